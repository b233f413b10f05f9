//! Things that happen at most once, and the signals for the threads that wait for them.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::limit::Limit;
use crate::world::{Mutex, Receiver, Sender, bounded};

/// A signal that becomes ready at most once, and has a value then. Its channel becomes ready by
/// disconnection, so any number of threads can wait for it.
pub struct Signal<T> {
    value: OnceLock<T>,
    /// `None` once the signal is ready.
    sender: Mutex<Option<Sender<Infallible>>>,
    receiver: Receiver<Infallible>,
}

impl<T: Copy> Signal<T> {
    pub fn new() -> Arc<Self> {
        let (sender, receiver) = bounded(0);
        Arc::new(Signal { value: OnceLock::new(), sender: Mutex::new(Some(sender)), receiver })
    }

    /// Makes the signal ready. If it is ready already, nothing changes.
    pub(crate) fn raise(&self, value: T) {
        if self.value.set(value).is_ok() {
            drop(self.sender.lock().take());
        }
    }

    pub fn value(&self) -> Option<T> {
        self.value.get().copied()
    }

    /// Waits until the signal is ready, for `timeout` at most.
    pub fn wait(&self, timeout: Duration) -> Option<T> {
        let _ = Limit::after(timeout).recv(&self.receiver); // the value shows how it ended
        self.value()
    }

    pub fn receiver(&self) -> &Receiver<Infallible> {
        &self.receiver
    }
}

/// Something that happens to a node at most once. The guards of the node come and go. So each guard
/// brings a signal of its own, which joins when the guard is made and parts when it is released.
pub struct Once<T> {
    value: OnceLock<T>,
    signals: Mutex<Vec<Arc<Signal<T>>>>,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Once { value: OnceLock::new(), signals: Mutex::new(Vec::new()) }
    }
}

impl<T: Copy> Once<T> {
    /// Makes it happen with this value, and raises all signals that have joined. True the first
    /// time; after that nothing changes.
    pub fn happen(&self, value: T) -> bool {
        let is_first = self.value.set(value).is_ok();
        if is_first {
            // A signal that joins after this lock is released finds the value set.
            for signal in self.signals.lock().drain(..) {
                signal.raise(value);
            }
        }
        is_first
    }

    pub fn value(&self) -> Option<T> {
        self.value.get().copied()
    }

    /// From now on, until `part`, this signal is raised when it happens; at once if it has
    /// happened.
    pub fn join(&self, signal: &Arc<Signal<T>>) {
        let mut signals = self.signals.lock();
        match self.value() {
            None => signals.push(signal.clone()),
            Some(value) => signal.raise(value),
        }
    }

    /// From now on the signal is not raised any more.
    pub fn part(&self, signal: &Arc<Signal<T>>) {
        self.signals.lock().retain(|other| !Arc::ptr_eq(other, signal));
    }
}
