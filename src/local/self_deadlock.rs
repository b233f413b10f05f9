//! The self-deadlock detector: warns a thread that is about to wait for itself, because it locks
//! one path through two sessions.

use std::sync::Arc;

use super::registry::LockKey;
use zk_session::process::PerProcess;
use zk_session::world::thread::ThreadId;
use zk_session::world::{HashMap, LazyLock, Mutex};

/// The locks that each thread of this process holds, whatever the session. They are found by path,
/// so that for a thread that holds very many locks only those of one path are compared.
static HELD: LazyLock<PerProcess<Mutex<HashMap<ThreadId, Paths>>>> =
    LazyLock::new(PerProcess::default);

type Paths = HashMap<Arc<str>, Vec<SelfDeadlockDetector>>;

/// One lock, as one session knows it.
#[derive(Clone)]
pub(crate) struct SelfDeadlockDetector {
    key: Arc<LockKey>,
    session: u64,
}

impl SelfDeadlockDetector {
    pub(crate) fn new(key: LockKey, session: u64) -> Self {
        SelfDeadlockDetector { key: key.into(), session }
    }

    pub(crate) fn holds(&self, thread: ThreadId) {
        let mut all = HELD.get().lock();
        let held = all.entry(thread).or_default().entry(self.key.dir.clone()).or_default();
        if !held.iter().any(|other| self.is_myself(other)) {
            held.push(self.clone());
        }
    }

    pub(crate) fn released(&self, thread: ThreadId) {
        let mut all = HELD.get().lock();
        let Some(paths) = all.get_mut(&thread) else { return };
        if let Some(held) = paths.get_mut(&self.key.dir) {
            held.retain(|other| !self.is_myself(other));
            if held.is_empty() {
                paths.remove(&self.key.dir);
            }
        }
        if paths.is_empty() {
            all.remove(&thread);
        }
    }

    fn is_myself(&self, other: &SelfDeadlockDetector) -> bool {
        Arc::ptr_eq(&self.key, &other.key)
    }

    /// Whether `thread` holds the lock, through any session.
    pub(crate) fn is_held_by(&self, thread: ThreadId) -> bool {
        self.any(thread, |_| true)
    }

    /// Warns if `thread` holds the lock through another session.
    pub(crate) fn warn(&self, thread: ThreadId, path: &str) {
        if self.any(thread, |other| other.session != self.session) {
            warn!(
                "{path}: this thread holds the lock through another session and may be about to wait for itself"
            );
        }
    }

    /// Whether `thread` holds this lock through a session for which `is` is true.
    fn any(&self, thread: ThreadId, is: impl Fn(&SelfDeadlockDetector) -> bool) -> bool {
        let all = HELD.get().lock();
        let mut held =
            all.get(&thread).and_then(|paths| paths.get(&self.key.dir)).into_iter().flatten();
        held.any(|other| self.key.is_same(&other.key) && is(other))
    }
}
