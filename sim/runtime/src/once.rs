//! Values that are made once: in a `OnceLock`, or in each process.

use std::any::Any;
use std::ops::Deref;

use crate::core;
use crate::sync::Mutex;

/// See `std::sync::OnceLock`. With std's type, a function that makes the value and waits would
/// block the whole simulation.
#[derive(Debug)]
pub struct OnceLock<T> {
    value: std::sync::OnceLock<T>,
    making: Mutex<()>,
}

impl<T> OnceLock<T> {
    /// A cell without a value.
    pub fn new() -> OnceLock<T> {
        OnceLock { value: std::sync::OnceLock::new(), making: Mutex::new(()) }
    }

    /// The value, if there is one.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Sets the value. Returns it if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)
    }

    /// The value; the first call makes it.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.value.get().is_none() {
            let _making = self.making.lock();
            if self.value.get().is_none() {
                let value = make();
                let _ = self.value.set(value);
            }
        }
        self.value.get().expect("just set")
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        OnceLock::new()
    }
}

/// See `std::sync::LazyLock`. It is for statics: each process has a value of its own.
pub struct LazyLock<T: 'static> {
    make: fn() -> T,
}

impl<T: Send + Sync> LazyLock<T> {
    /// A static whose value is made at its first use, by a function that must not wait.
    pub const fn new(make: fn() -> T) -> LazyLock<T> {
        LazyLock { make }
    }

    fn value(&self) -> &'static T {
        // The address only identifies the static; no decision depends on it.
        let key = std::ptr::from_ref(self).addr();
        core::with(|sim| {
            let process =
                sim.current_process().expect("a static of a process, asked for by the world");
            let known = sim.processes.borrow()[process.0].statics.get(&key).copied();
            let value = known.unwrap_or_else(|| {
                let value: &'static (dyn Any + Send + Sync) = Box::leak(Box::new((self.make)()));
                sim.processes.borrow_mut()[process.0].statics.insert(key, value);
                value
            });
            value.downcast_ref().expect("one type at one address")
        })
    }
}

impl<T: Send + Sync> Deref for LazyLock<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value()
    }
}
