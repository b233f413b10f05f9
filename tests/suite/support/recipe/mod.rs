//! One driver for all recipes: the fault scenarios know a lock by what every recipe can do, and run
//! over each of them.

mod locks;
mod table;

use super::{OpKind, Proxy, op::Which};
pub use locks::{Guard, Lock, Lockable, kept};
pub(crate) use table::rows;
pub use table::{Needs, Row, over_recipes};
use zk_mutex::ZkSession;

/// What a scenario runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    Mutex,
    /// The mutex whose waiters watch the list of children.
    Herd,
    Read,
    Write,
    /// A semaphore of one.
    Permit,
    /// A candidate that joins to lead, and leaves.
    Leader,
    /// A mutex, and beside it a lock that nobody disputes.
    Multi,
    /// Those who wait for it have no nodes, and it is not re-entrant.
    Exclusive,
}

/// What scenarios need of a recipe.
impl Recipe {
    /// Nothing but what each has.
    pub fn any(self) -> bool {
        true
    }

    /// Its holders and waiters have nodes with names of their own, which each of them lists. The
    /// exclusive lock has one node, with a fixed name: its waiters have none, it lists nothing, and
    /// it asks whose the node is before it deletes it.
    pub fn queues(self) -> bool {
        self != Recipe::Exclusive
    }

    /// No candidate: a candidate joins to ask who leads, stands again by itself when it has lost
    /// its node, and its end is told to all who look at its term.
    pub fn is_lock(self) -> bool {
        self != Recipe::Leader
    }

    pub fn is_lock_that_queues(self) -> bool {
        self.is_lock() && self.queues()
    }

    /// Each waiter has a node in one row with the others. The waiters for a permit have none: they
    /// wait in the row of the semaphore's mutex.
    pub fn waits_in_one_row(self) -> bool {
        self.queues() && self != Recipe::Permit
    }

    /// A waiter reads the node ahead of its own, to watch it.
    pub fn watches_the_node_ahead(self) -> bool {
        self.waits_in_one_row() && self != Recipe::Herd
    }
}

impl Recipe {
    /// And what their scenarios are called.
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

    /// In the path of its nodes and of no others: the link's own writes are creates and deletes
    /// too.
    pub fn mark(self) -> &'static str {
        match self {
            Recipe::Mutex | Recipe::Herd | Recipe::Multi => "-lock-",
            Recipe::Read => "-__READ__",
            Recipe::Write => "-__WRIT__",
            Recipe::Permit => "-lease-",
            Recipe::Leader => "-latch-",
            Recipe::Exclusive => "/lock", // once the folders are there
        }
    }

    /// In the path of the first node that it makes.
    pub fn first_mark(self) -> &'static str {
        if self == Recipe::Permit { "-lock-" } else { self.mark() }
    }

    /// In the path of the nodes of another client's lock that keeps it waiting.
    pub fn foreign_mark(self) -> &'static str {
        match self {
            Recipe::Permit => "-lease-",
            Recipe::Leader => "-latch-",
            _ => "-lock-",
        }
    }

    /// What its errors call it to wait with a limit, and to let go.
    pub fn ops(self) -> [&'static str; 2] {
        if self == Recipe::Leader { ["wait_leader", "leave"] } else { ["lock", "unlock"] }
    }

    /// Whether a thread that holds it is told so when it asks again.
    pub fn is_a_threads(self) -> bool {
        self != Recipe::Permit
    }

    /// One that keeps it waiting, and that it keeps waiting.
    pub fn rival(self) -> Recipe {
        match self {
            Recipe::Read => Recipe::Write,
            Recipe::Write => Recipe::Read,
            other => other,
        }
    }

    /// The same, and it keeps its own kind waiting too.
    pub fn sole(self) -> Recipe {
        if self == Recipe::Read { Recipe::Write } else { self }
    }

    /// The folder of its nodes, below the path.
    pub fn folder(self, path: &str) -> String {
        if self == Recipe::Permit { format!("{path}/leases") } else { path.to_owned() }
    }

    /// Every folder that it makes nodes in.
    pub fn folders(self, path: &str) -> Vec<String> {
        let locks = (self == Recipe::Permit).then(|| format!("{path}/locks"));
        [self.folder(path)].into_iter().chain(locks).collect()
    }

    /// A path's last part, from behind that of the lock.
    pub fn name(self, path: &str) -> String {
        let name = path.rsplit_once('/').unwrap().1;
        if self == Recipe::Permit { format!("leases/{name}") } else { name.to_owned() }
    }

    /// Its own requests of a kind, not those for the mutex that it takes on the way.
    pub fn own(self, kind: OpKind) -> Which {
        match kind {
            OpKind::Create if self == Recipe::Permit => kind.on(self.mark()),
            OpKind::GetChildren if self == Recipe::Permit => kind.on("/leases"),
            kind => kind.into(),
        }
    }

    /// The node whose data makes a waiter look again when it changes: that of the holder, or how
    /// many there are.
    pub fn looked_at(self, holder: &str, folder: &str) -> (String, &'static [u8]) {
        if self == Recipe::Permit {
            (folder.to_owned(), b"1")
        } else {
            (holder.to_owned(), b"revoke")
        }
    }

    /// Whether what has passed the proxy since its log was cleared shows that somebody waits, and
    /// that the watches stand.
    pub fn waits(self, proxy: &Proxy) -> bool {
        let answered = proxy.answered();
        // Who waits for a permit lists twice, the second time with a watch, and each time reads the
        // number then.
        let leases = OpKind::GetChildren.on("/leases");
        let listings = if self == Recipe::Permit { 2 } else { 0 };
        let mut listed = 0;
        answered.iter().any(|request| {
            listed += usize::from(leases.matches(request));
            listed >= listings && request.kind == OpKind::GetData
        })
    }
}
