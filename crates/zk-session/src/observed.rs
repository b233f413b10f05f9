//! Only in the simulation: what its observer sees of a session from outside of all processes: each
//! connection of the session, and how much the session keeps in memory.

use std::cell::RefCell;

use crate::session::Session;

/// A change that the observer is notified of.
pub enum News {
    /// A server has accepted the session on a connection.
    Attached {
        /// Which session.
        session: i64,
        /// The number of the connection.
        epoch: u64,
    },
    /// The session has no connection.
    Detached {
        /// Which session.
        session: i64,
    },
}

type Watcher<N> = Box<dyn Fn(N)>;

/// Where the news of one kind goes: the observer's function, if there is one.
pub struct Hook<N>(RefCell<Option<Watcher<N>>>);

impl<N> Default for Hook<N> {
    fn default() -> Self {
        Hook(RefCell::new(None))
    }
}

impl<N> Hook<N> {
    /// From now on `watcher` is called at each change, on the thread that makes the change. It must
    /// not block.
    pub fn set(&self, watcher: impl Fn(N) + 'static) {
        *self.0.borrow_mut() = Some(Box::new(watcher));
    }

    /// Calls the function with this news.
    pub fn notify(&self, news: impl FnOnce() -> N) {
        if let Some(watcher) = &*self.0.borrow() {
            watcher(news());
        }
    }
}

thread_local! {
    static NEWS: Hook<News> = Hook::default();
}

/// From now on `watcher` is called at each change, as [`Hook::set`] says.
pub fn watch(watcher: impl Fn(News) + 'static) {
    NEWS.with(|hook| hook.set(watcher));
}

pub(crate) fn notify(news: impl FnOnce() -> News) {
    NEWS.with(|hook| hook.notify(news));
}

/// What a session keeps in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Pending deletes: nodes that must be deleted and may still exist.
    pub pending_deletes: usize,
    /// Creates without an answer that have made no node and may still be done. They are forgotten
    /// after some time.
    pub late_creates: usize,
    /// Nodes with a common name whose creates were acknowledged and whose end was not seen.
    pub common_names: usize,
    /// Background operations: deletes, sweeps, and watches to be set.
    pub background: usize,
    /// Callers whose requests are not answered.
    pub callers: usize,
    /// Requests without an answer, except those for which no caller waits.
    pub in_flight: usize,
    /// Callers that wait for a fresh lease.
    pub proofs: usize,
    /// Nodes for whose events a thread waits.
    pub watched: usize,
    /// Threads that wait for a change of the session.
    pub waiters: usize,
    /// Watches, and functions for folders.
    pub watchers: usize,
    /// Nodes that are looked at for them.
    pub looks: usize,
    /// Functions that will be called at some time.
    pub timers: usize,
    /// Nodes under the lease.
    pub holds: usize,
    /// Nodes that may need a watch. The node that was released last may be among them, see
    /// `Lease::next_watch`.
    pub unwatched: usize,
}

/// How much the session keeps now. This takes the session's own locks, as any call of a process
/// does.
pub fn kept(session: &Session) -> Kept {
    let core = session.core();
    let mut kept = Kept { waiters: core.changes.len(), ..Kept::default() };
    if let Some(generation) = core.generation() {
        generation.add_kept(&mut kept);
    }
    kept
}
