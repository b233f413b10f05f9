//! Only in the simulation: what its observer sees of the locks from outside of all processes: each
//! held node from its grant to its release. What it sees of a session is in the session's crate.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::LossReason;
use crate::local::registry;
use crate::queue::HeldNode;
use crate::recipes::guard::Held;
use crate::session::ZkSession;
pub use zk_session::kept::Kept;
use zk_session::observed::Hook;
pub use zk_session::observed::{News as SessionNews, watch as watch_sessions};
use zk_session::unstable::{BootTime, Generation, LeasedNode};

/// One held node, by weak references only, so that the observer keeps nothing alive.
#[derive(Clone)]
pub struct Observed {
    generation: Weak<Generation>,
    node: Weak<LeasedNode>,
    /// The node's full path.
    pub path: String,
    /// The transaction that created the node. After a downgrade, the reader's node has the czxid of
    /// the writer's.
    pub czxid: i64,
}

/// The mark of the loss of one held node. It can be read when the node's guards are gone.
pub struct Mark(Arc<LeasedNode>);

impl Mark {
    /// Why the node was lost; `None` if it was not.
    pub fn reason(&self) -> Option<LossReason> {
        self.0.loss()
    }
}

/// A change that the observer is notified of.
pub enum News {
    /// A node was granted the lock, and there is no guard yet.
    Granted(Observed),
    /// A held node is about to be released: there is no guard any more.
    Released(Observed),
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

impl Observed {
    pub(crate) fn new(held_node: &HeldNode) -> Observed {
        Observed {
            generation: Arc::downgrade(held_node.generation()),
            node: Arc::downgrade(held_node.leased()),
            path: held_node.path().to_owned(),
            czxid: held_node.leased().czxid(),
        }
    }

    /// The held node of a guard.
    pub fn of(held: &Held) -> Observed {
        Observed::new(held.node())
    }

    /// All held nodes of a guard: several, if it has several permits.
    pub fn all(held: &Held) -> Vec<Observed> {
        held.held_nodes().map(Observed::new).collect()
    }

    /// The mark of its loss. `None` when the node is not held any more.
    pub fn mark(&self) -> Option<Mark> {
        self.node.upgrade().map(Mark)
    }

    /// Whether both are the same held node.
    pub fn is_same(&self, other: &Observed) -> bool {
        Weak::ptr_eq(&self.node, &other.node)
    }

    /// The session of the node; `None` when the node is not held any more.
    pub fn session_id(&self) -> Option<i64> {
        self.generation.upgrade()?.session_id()
    }

    /// What `is_held` of the node's guards would answer if the process read this time on its
    /// boot-time clock now.
    pub fn is_held_at(&self, boot_time: Duration) -> bool {
        let (Some(generation), Some(node)) = (self.generation.upgrade(), self.node.upgrade())
        else {
            return false;
        };
        generation.lease.would_be_held(&node, BootTime::default() + boot_time)
    }

    /// Why the node is marked as lost; `None` if it is not, or is not held any more.
    pub fn lost_reason(&self) -> Option<LossReason> {
        self.node.upgrade()?.loss()
    }

    /// Whether the node is marked as lost, or is not held any more.
    pub fn is_told_lost(&self) -> bool {
        self.node.upgrade().is_none_or(|node| node.loss().is_some())
    }
}

/// How much the session keeps now. This takes the session's own locks, as any call of a process
/// does.
pub fn kept(session: &ZkSession) -> Kept {
    session.core().kept()
}

/// How many paths have a lock in this process now, and how many threads hold one.
pub fn locks() -> usize {
    registry::len() + registry::holders()
}
