//! What happens at most once, and the signals of those who wait for it.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::limit::Limit;
use crate::world::{Mutex, Receiver, Sender, bounded};

/// Becomes ready once, by disconnection, and says with what.
pub(crate) struct Signal<T> {
    value: OnceLock<T>,
    /// Gone once it is ready.
    sender: Mutex<Option<Sender<Infallible>>>,
    receiver: Receiver<Infallible>,
}

impl<T: Copy> Signal<T> {
    pub(crate) fn new() -> Arc<Self> {
        let (sender, receiver) = bounded(0);
        Arc::new(Signal { value: OnceLock::new(), sender: Mutex::new(Some(sender)), receiver })
    }

    /// Makes it ready. Of several values the first counts.
    pub(crate) fn raise(&self, value: T) {
        if self.value.set(value).is_ok() {
            drop(self.sender.lock().take());
        }
    }

    pub(crate) fn value(&self) -> Option<T> {
        self.value.get().copied()
    }

    /// Waits until it is ready, for `timeout` at most.
    pub(crate) fn wait(&self, timeout: Duration) -> Option<T> {
        let _ = Limit::after(timeout).recv(&self.receiver); // however that ended, the value tells
        self.value()
    }

    pub(crate) fn receiver(&self) -> &Receiver<Infallible> {
        &self.receiver
    }
}

/// Something that happens to a node at most once. The guards on the node come and go, so each
/// brings a signal of its own, which is raised only while the guard has its part in the node.
pub(crate) struct Once<T> {
    value: OnceLock<T>,
    signals: Mutex<Vec<Arc<Signal<T>>>>,
}

impl<T: Copy> Once<T> {
    pub(crate) fn new() -> Self {
        Once { value: OnceLock::new(), signals: Mutex::new(Vec::new()) }
    }

    /// It happens: true the first time. All signals that have joined are raised.
    pub(crate) fn happen(&self, value: T) -> bool {
        let is_first = self.value.set(value).is_ok();
        if is_first {
            // A signal that joins after this lock is released finds the value set.
            for signal in self.signals.lock().drain(..) {
                signal.raise(value);
            }
        }
        is_first
    }

    pub(crate) fn value(&self) -> Option<T> {
        self.value.get().copied()
    }

    /// From now on, until `part`, it raises that signal too; at once if it has happened.
    pub(crate) fn join(&self, signal: &Arc<Signal<T>>) {
        let mut signals = self.signals.lock();
        match self.value() {
            None => signals.push(signal.clone()),
            Some(value) => signal.raise(value),
        }
    }

    pub(crate) fn part(&self, signal: &Arc<Signal<T>>) {
        self.signals.lock().retain(|other| !Arc::ptr_eq(other, signal));
    }
}
