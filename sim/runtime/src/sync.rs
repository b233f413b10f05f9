//! A mutex with the interface of `parking_lot`'s: no poisoning, no fairness.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::core::{self, Tid};
use crate::trace::Op;

const NOBODY: usize = usize::MAX;

/// See `parking_lot::Mutex`.
pub struct Mutex<T: ?Sized> {
    id: u64,
    /// The thread that holds the mutex, for the trace of a deadlock.
    owner: AtomicUsize,
    waiters: parking_lot::Mutex<Vec<Tid>>,
    value: parking_lot::Mutex<T>,
}

/// Holds the mutex until it is dropped.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// Taken out when the guard is dropped.
    value: Option<parking_lot::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// As `parking_lot`'s.
    pub fn new(value: T) -> Mutex<T> {
        Mutex {
            id: core::new_object(),
            owner: AtomicUsize::new(NOBODY),
            waiters: parking_lot::Mutex::default(),
            value: parking_lot::Mutex::new(value),
        }
    }

    /// As `parking_lot`'s.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until no other thread holds the mutex.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        core::point(Op::Lock, self.id);
        loop {
            if let Some(guard) = self.take() {
                return guard;
            }
            let thread = core::with(|sim| {
                let Some(thread) = sim.current() else {
                    panic!("the world waits for mutex {}", self.id)
                };
                if self.owner.load(Ordering::Relaxed) == thread {
                    sim.fail("deadlock", format!("a thread takes mutex {} a second time", self.id));
                }
                self.waiters.lock().push(thread);
                sim.block("mutex", self.id, None);
                thread
            });
            self.waiters.lock().retain(|other| *other != thread);
        }
    }

    /// `None` if it is locked.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        core::point(Op::TryLock, self.id);
        self.take()
    }

    fn take(&self) -> Option<MutexGuard<'_, T>> {
        let value = self.value.try_lock()?;
        let thread = core::try_with(|sim| sim.current()).flatten();
        self.owner.store(thread.unwrap_or(NOBODY), Ordering::Relaxed);
        Some(MutexGuard { mutex: self, value: Some(value) })
    }

    /// As `parking_lot`'s.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_deref().expect("there until the drop")
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_deref_mut().expect("there until the drop")
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.mutex.owner.store(NOBODY, Ordering::Relaxed);
        self.value = None;
        core::try_with(|sim| sim.wake_all(&self.mutex.waiters.lock()));
        core::point(Op::Unlock, self.mutex.id);
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("id", &self.id).finish_non_exhaustive()
    }
}
