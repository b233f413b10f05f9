//! How often each thread holds a lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread::ThreadId;

use parking_lot::Mutex;

/// The holds of a lock, by thread. A guard keeps its thread's id, so that a drop never asks which
/// thread it is on: it may run in the destructor of a thread-local.
pub(crate) struct Reentry<H>(Mutex<HashMap<ThreadId, Entry<H>>>);

struct Entry<H> {
    hold: Arc<H>,
    count: usize,
}

impl<H> Reentry<H> {
    pub(crate) fn new() -> Self {
        Reentry(Mutex::new(HashMap::new()))
    }

    pub(crate) fn hold_of(&self, thread: ThreadId) -> Option<Arc<H>> {
        self.0.lock().get(&thread).map(|entry| entry.hold.clone())
    }

    /// The thread's first guard.
    pub(crate) fn insert(&self, thread: ThreadId, hold: Arc<H>) {
        self.0.lock().insert(thread, Entry { hold, count: 1 });
    }

    /// Another guard of a thread that has one.
    pub(crate) fn nest(&self, thread: ThreadId) {
        if let Some(entry) = self.0.lock().get_mut(&thread) {
            entry.count = entry.count.saturating_add(1);
        }
    }

    /// A guard of this hold is dropped; the hold, if it was the thread's last. Nothing happens for
    /// a guard that was given up: the thread may have another hold by now.
    pub(crate) fn leave(&self, thread: ThreadId, hold: &Arc<H>) -> Option<Arc<H>> {
        let mut map = self.0.lock();
        let entry = map.get_mut(&thread).filter(|entry| Arc::ptr_eq(&entry.hold, hold))?;
        entry.count -= 1;
        if entry.count > 0 { None } else { map.remove(&thread).map(|entry| entry.hold) }
    }

    /// Gives up all guards of the thread on this hold.
    pub(crate) fn give_up(&self, thread: ThreadId, hold: &Arc<H>) {
        let mut map = self.0.lock();
        if map.get(&thread).is_some_and(|entry| Arc::ptr_eq(&entry.hold, hold)) {
            map.remove(&thread);
        }
    }

    pub(crate) fn count(&self, thread: ThreadId) -> usize {
        self.0.lock().get(&thread).map_or(0, |entry| entry.count)
    }

    /// Whether any thread has a hold for which this is true. Asked outside the lock: to look at a hold can be to see its loss, and
    /// that is logged.
    pub(crate) fn any(&self, is: impl Fn(&H) -> bool) -> bool {
        let holds: Vec<Arc<H>> = self.0.lock().values().map(|entry| entry.hold.clone()).collect();
        holds.iter().any(|hold| is(hold))
    }
}
