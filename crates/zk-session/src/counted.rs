//! The mutex of test builds: `parking_lot`'s, and it counts the locks that each thread holds. So
//! each test also shows that foreign code runs under none of them.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Whether the calling thread holds no lock of the library.
pub fn holds_no_lock() -> bool {
    HELD.get() == 0
}

/// See `parking_lot::Mutex`.
#[derive(Debug, Default)]
pub struct Mutex<T>(parking_lot::Mutex<T>);

/// Holds the mutex until it is dropped.
pub struct MutexGuard<'a, T>(parking_lot::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    /// As `parking_lot`'s.
    pub const fn new(value: T) -> Self {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// As `parking_lot`'s.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }

    /// As `parking_lot`'s.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard::of(self.0.lock())
    }

    /// As `parking_lot`'s.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.try_lock().map(MutexGuard::of)
    }
}

impl<'a, T> MutexGuard<'a, T> {
    fn of(guard: parking_lot::MutexGuard<'a, T>) -> Self {
        HELD.set(HELD.get() + 1);
        MutexGuard(guard)
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
