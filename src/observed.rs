//! What the simulation's observer sees of the library, from outside of all processes: each hold
//! from its grant to its release, each connection of a session, and what a session keeps.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock::BootTime;
use crate::guard::Held;
use crate::local::registry;
use crate::queue::HeldNode;
use crate::session::ZkSession;
use crate::session::generation::Generation;
use crate::session::leased_node::LeasedNode;

/// One hold: a node that was granted the lock. It keeps nothing alive.
#[derive(Clone)]
pub struct Observed {
    generation: Weak<Generation>,
    hold: Weak<LeasedNode>,
    /// The node's full path.
    pub path: String,
    /// The transaction that made the node. A downgrade's read has that of its write.
    pub czxid: i64,
}

/// What happens.
pub enum News {
    /// A hold was granted, and no guard has it yet.
    Granted(Observed),
    /// A hold is about to be let go: no guard has it any more.
    Released(Observed),
    /// A session is taken up on a connection.
    Attached {
        /// Which session.
        session: i64,
        /// Counts its connections.
        epoch: u64,
    },
    /// The session has no connection.
    Detached {
        /// Which session.
        session: i64,
    },
}

type Watcher = Box<dyn Fn(News)>;

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// From now on this is called at each change, on the thread that makes it, which must not be made
/// to wait.
pub fn watch(watcher: impl Fn(News) + 'static) {
    WATCHER.with(|current| *current.borrow_mut() = Some(Box::new(watcher)));
}

pub(crate) fn tell(news: impl FnOnce() -> News) {
    WATCHER.with(|watcher| {
        if let Some(watcher) = &*watcher.borrow() {
            watcher(news());
        }
    });
}

impl Observed {
    pub(crate) fn new(held_node: &HeldNode) -> Observed {
        Observed {
            generation: Arc::downgrade(held_node.generation()),
            hold: Arc::downgrade(held_node.leased()),
            path: held_node.path().to_owned(),
            czxid: held_node.leased().czxid(),
        }
    }

    /// The hold of a guard.
    pub fn of(held: &Held) -> Observed {
        Observed::new(held.node())
    }

    /// Whether both are the same hold.
    pub fn is_same(&self, other: &Observed) -> bool {
        Weak::ptr_eq(&self.hold, &other.hold)
    }

    /// The session that it is held in; `None` once nobody holds it any more.
    pub fn session_id(&self) -> Option<i64> {
        self.generation.upgrade()?.session_id()
    }

    /// Whether `is_held` of its guards would be true if the process read this time on its boot-time
    /// clock now.
    pub fn is_held_at(&self, boot_time: Duration) -> bool {
        let (Some(generation), Some(hold)) = (self.generation.upgrade(), self.hold.upgrade())
        else {
            return false;
        };
        generation.lease.would_be_held(&hold, BootTime::default() + boot_time)
    }

    /// Whether its guards were told that it is lost, or nobody has it any more.
    pub fn is_told_lost(&self) -> bool {
        self.hold.upgrade().is_none_or(|hold| hold.loss().is_some())
    }
}

/// What a session, and the locks of its process, keep in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Nodes that should go and may still exist.
    pub pending_deletes: usize,
    /// Deletes, sweeps, and watches that are to be set.
    pub background: usize,
    /// Callers whose requests are not answered.
    pub callers: usize,
    /// Requests that were sent and not answered, but for pings and the like, for which nobody
    /// waits.
    pub in_flight: usize,
    /// Callers that wait for a fresh lease.
    pub proofs: usize,
    /// Nodes of which somebody waits for an event.
    pub watched: usize,
    /// Threads that wait for a change of the session.
    pub waiters: usize,
    /// Nodes whose children are watched.
    pub folders: usize,
    /// What is to be done at some time.
    pub timers: usize,
    /// Holds of the lease.
    pub holds: usize,
    /// Holds whose nodes may need a watch. The one that was let go last may stay:
    /// `Lease::next_watch`.
    pub unwatched: usize,
    /// Paths with a lock, in the whole process.
    pub locks: usize,
}

/// What is kept now. Takes the library's own locks, as any other call of a process does.
pub fn kept(session: &ZkSession) -> Kept {
    let core = session.core();
    let mut kept = Kept { waiters: core.changes.len(), locks: registry::len(), ..Kept::default() };
    if let Some(generation) = core.generation() {
        generation.add_kept(&mut kept);
    }
    kept
}
