//! Warns a thread that is about to wait for itself: one path locked through two sessions.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;
use std::thread::ThreadId;

use parking_lot::Mutex;

/// Who holds what, in the whole process: two sessions know nothing of each other.
static HELD: LazyLock<Mutex<HashMap<(ThreadId, u64), u64>>> = LazyLock::new(Mutex::default);

/// One lock, as one session knows it.
#[derive(Clone, Copy)]
pub(crate) struct Witness {
    /// A hash of ensemble and path.
    lock: u64,
    session: u64,
}

impl Witness {
    pub(crate) fn new(ensemble: &impl Hash, dir: &str, session: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        (ensemble, dir).hash(&mut hasher);
        Witness { lock: hasher.finish(), session }
    }

    pub(crate) fn holds(&self, thread: ThreadId) {
        HELD.lock().insert((thread, self.lock), self.session);
    }

    pub(crate) fn released(&self, thread: ThreadId) {
        let mut held = HELD.lock();
        if held.get(&(thread, self.lock)) == Some(&self.session) {
            held.remove(&(thread, self.lock));
        }
    }

    /// Whether `thread` holds the lock, through whatever session.
    pub(crate) fn is_held_by(&self, thread: ThreadId) -> bool {
        HELD.lock().contains_key(&(thread, self.lock))
    }

    /// Warns if `thread` holds the lock through another session.
    pub(crate) fn warn(&self, thread: ThreadId, path: &str) {
        if HELD.lock().get(&(thread, self.lock)).is_some_and(|other| *other != self.session) {
            log::warn!(
                "{path}: this thread holds the lock through another session and may be about to wait for itself"
            );
        }
    }
}
