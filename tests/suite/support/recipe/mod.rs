//! One driver for all recipes: the fault scenarios use only calls that every recipe has, and run
//! over each of them.

mod locks;
mod table;

use super::{OpKind, Proxy, op::Which};
pub use locks::{Guard, Lock, Lockable, bounded, kept};
pub(crate) use table::rows;
pub use table::{Needs, Row, over_recipes};
use zk_mutex::ZkSession;

/// The recipes over which scenarios run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    Mutex,
    /// The mutex whose waiters watch the list of children.
    Herd,
    Read,
    Write,
    /// A semaphore with one permit.
    Permit,
    /// A candidate that joins an election and leaves it.
    Leader,
    /// A mutex together with a lock that no other contender takes.
    Multi,
    /// The exclusive lock: its waiters have no nodes, and it is not re-entrant.
    Exclusive,
}

/// The properties that scenarios need of a recipe.
impl Recipe {
    /// Any recipe.
    pub fn any(self) -> bool {
        true
    }

    /// Its holders and waiters have nodes with names of their own, which each of them lists. The
    /// exclusive lock has one node with a fixed name: its waiters have none, it lists nothing, and
    /// it checks whose node it is before it deletes it.
    pub fn queues(self) -> bool {
        self != Recipe::Exclusive
    }

    /// All but the election: a candidate joins to find the leader, queues again by itself when it
    /// has lost its node, and reports the end of its term to all readers of the term.
    pub fn is_lock(self) -> bool {
        self != Recipe::Leader
    }

    pub fn is_lock_that_queues(self) -> bool {
        self.is_lock() && self.queues()
    }

    /// All waiters have nodes in one queue. The waiters for a permit have none there: they wait in
    /// the queue of the semaphore's mutex.
    pub fn waits_in_one_row(self) -> bool {
        self.queues() && self != Recipe::Permit
    }

    /// A waiter reads and watches the node ahead of its own.
    pub fn watches_the_node_ahead(self) -> bool {
        self.waits_in_one_row() && self != Recipe::Herd
    }
}

impl Recipe {
    /// All recipes, with their names in scenarios.
    pub const ALL: [(Recipe, &'static str); 8] = [
        (Recipe::Mutex, "mutex"),
        (Recipe::Herd, "herd"),
        (Recipe::Read, "read"),
        (Recipe::Write, "write"),
        (Recipe::Permit, "permit"),
        (Recipe::Leader, "leader"),
        (Recipe::Multi, "multi"),
        (Recipe::Exclusive, "exclusive"),
    ];

    #[track_caller]
    pub fn make(self, session: &ZkSession, path: &str) -> Lock {
        locks::make(self, session, path)
    }

    /// A part of the path of its own nodes only: the connection's own writes are creates and
    /// deletes too.
    pub fn mark(self) -> &'static str {
        match self {
            Recipe::Mutex | Recipe::Herd | Recipe::Multi => "-lock-",
            Recipe::Read => "-__READ__",
            Recipe::Write => "-__WRIT__",
            Recipe::Permit => "-lease-",
            Recipe::Leader => "-latch-",
            Recipe::Exclusive => "/lock", // once the folders exist
        }
    }

    /// A part of the path of the first node that it makes.
    pub fn first_mark(self) -> &'static str {
        if self == Recipe::Permit { "-lock-" } else { self.mark() }
    }

    /// A part of the path of a foreign lock's nodes that keep it waiting.
    pub fn foreign_mark(self) -> &'static str {
        match self {
            Recipe::Permit => "-lease-",
            Recipe::Leader => "-latch-",
            Recipe::Read | Recipe::Write => "-__WRIT__",
            _ => "-lock-",
        }
    }

    /// The names of its calls in errors: the wait with a limit, and the release.
    pub fn ops(self) -> [&'static str; 2] {
        match self {
            Recipe::Leader => ["wait_leader", "leave"],
            Recipe::Read => ["read", "unlock"],
            Recipe::Write => ["write", "unlock"],
            Recipe::Permit => ["acquire", "unlock"],
            Recipe::Mutex | Recipe::Herd | Recipe::Multi | Recipe::Exclusive => ["lock", "unlock"],
        }
    }

    /// The name in errors of what goes through the queue at the server: a candidate does that on
    /// its own, and not in a call.
    pub fn queues_as(self) -> &'static str {
        if self == Recipe::Leader { "campaign" } else { self.ops()[0] }
    }

    /// Whether a thread that holds it gets an error when it asks again after a loss.
    pub fn is_a_threads(self) -> bool {
        self != Recipe::Permit
    }

    /// The recipe whose locks keep it waiting and wait for it.
    pub fn rival(self) -> Recipe {
        match self {
            Recipe::Read => Recipe::Write,
            Recipe::Write => Recipe::Read,
            other => other,
        }
    }

    /// The same recipe, or one that also excludes its own kind.
    pub fn sole(self) -> Recipe {
        if self == Recipe::Read { Recipe::Write } else { self }
    }

    /// The folder of its nodes, below the lock's path.
    pub fn folder(self, path: &str) -> String {
        if self == Recipe::Permit { format!("{path}/leases") } else { path.to_owned() }
    }

    /// All folders in which it makes nodes.
    pub fn folders(self, path: &str) -> Vec<String> {
        let locks = (self == Recipe::Permit).then(|| format!("{path}/locks"));
        [self.folder(path)].into_iter().chain(locks).collect()
    }

    /// The part of a node's path behind that of the lock.
    pub fn name(self, path: &str) -> String {
        let name = path.rsplit_once('/').unwrap().1;
        if self == Recipe::Permit { format!("leases/{name}") } else { name.to_owned() }
    }

    /// Its own requests of a kind, without those for the mutex that it takes first.
    pub fn own(self, kind: OpKind) -> Which {
        match kind {
            OpKind::Create if self == Recipe::Permit => kind.on(self.mark()),
            OpKind::GetChildren if self == Recipe::Permit => kind.on("/leases"),
            kind => kind.into(),
        }
    }

    /// A node whose data change makes a waiter list again, with the new data: the holder's node, or
    /// the node with the number of permits.
    pub fn looked_at(self, holder: &str, folder: &str) -> (String, &'static [u8]) {
        if self == Recipe::Permit {
            (folder.to_owned(), b"1")
        } else {
            (holder.to_owned(), b"revoke")
        }
    }

    /// Whether the requests since the proxy's log was cleared show that a contender waits, and that
    /// its watches are set.
    pub fn waits(self, proxy: &Proxy) -> bool {
        let answered = proxy.answered();
        // A waiter for a permit lists twice, the second time with a watch, and reads the number
        // after each listing.
        let leases = OpKind::GetChildren.on("/leases");
        let listings = if self == Recipe::Permit { 2 } else { 0 };
        let mut listed = 0;
        answered.iter().any(|request| {
            listed += usize::from(leases.matches(request));
            listed >= listings && request.kind == OpKind::GetData
        })
    }
}
