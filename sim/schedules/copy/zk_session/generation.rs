//! Replaces a session at the server: a lease, and notes of the requests.

use std::sync::{Arc, Mutex}; // not the engine's: these are notes
use std::time::Duration;

use super::notifier::WatchRegistry;
use super::lease::node::LeasedNode;
use super::lease::{self, Bounds, Lease, Refused};
use crate::clock::BootTime;
use zk_wire::code::event;
use crate::world::{HashSet, Receiver, bounded};

/// The timeout of all sessions. The lease ends after eleven twelfths of it.
pub const T: Duration = Duration::from_secs(12);
pub const SPAN: Duration = Duration::from_secs(11);

pub type Outcome = Result<(), i32>;

pub struct Generation {
    pub number: u64,
    pub lease: Lease,
    pub nodes: WatchRegistry<String>,
    connection: Connection,
    raw: RawHook,
    /// The nodes that were to be deleted.
    pub deleted: Mutex<Vec<String>>,
    pub folders: Mutex<Vec<Arc<FolderWatch>>>,
}

/// A node that is to be deleted.
#[derive(Clone)]
pub struct Removal {
    pub path: String,
}

pub struct CallError(pub i32);

impl CallError {
    pub fn of_removal(code: i32) -> Self {
        CallError(code)
    }
}

/// Replaces the connection and its event loop.
#[derive(Default)]
pub struct Connection;

impl Connection {
    fn wake(&self) {}
}

/// There is no client of another kind here.
struct RawHook;

enum RawNews<'a> {
    Watch { kind: i32, path: &'a str },
}

impl RawHook {
    fn tell(&self, _news: RawNews<'_>) {}
}

pub struct FolderWatch {
    pub notify: Box<dyn Fn(Folder<'_>) -> bool + Send + Sync>,
}

pub enum Folder<'a> {
    Listed { names: Vec<&'a str>, pending: &'a HashSet<String> },
    Changed,
}

impl FolderWatch {
    pub fn new(_dir: String, notify: Box<dyn Fn(Folder<'_>) -> bool + Send + Sync>) -> Arc<Self> {
        Arc::new(FolderWatch { notify })
    }
}

impl Generation {
    pub fn new(number: u64) -> Arc<Self> {
        let lease = Lease::default();
        lease.begin(T, BootTime::now());
        let (deleted, folders) = (Mutex::default(), Mutex::default());
        Arc::new(Generation {
            number,
            lease,
            nodes: WatchRegistry::default(),
            connection: Connection,
            raw: RawHook,
            deleted,
            folders,
        })
    }

    pub fn timeout(&self) -> Duration {
        T
    }

    pub fn operation_timeout(&self) -> Duration {
        T / 6
    }

    pub fn wake(&self) {}

    pub fn remove(&self, removal: Removal) {
        self.deleted.lock().expect("no thread panics here").push(removal.path);
    }

    pub fn remove_and_tell(&self, removal: Removal) -> Receiver<Outcome> {
        self.remove(removal);
        bounded(1).1
    }

    pub fn watch_folder(&self, watch: Arc<FolderWatch>) {
        self.folders.lock().expect("no thread panics here").push(watch);
    }

    pub fn grant(&self, node: &Arc<LeasedNode>) -> Result<(), Refused> {
        self.lease.grant(node, BootTime::now())
    }

    pub fn folder_changed(&self, _dir: &str) {}

    pub fn bind(&self, node: &Arc<LeasedNode>, bounds: Bounds) {
        self.lease.bind(node, bounds, BootTime::now());
    }

    pub fn at(&self, time: BootTime, _act: Box<dyn FnOnce() + Send>) -> (BootTime, u64) {
        (time, 0)
    }

    pub fn forget_timer(&self, _key: (BootTime, u64)) {}

    /// What the session does when a proof shows that the leader has received something from it at
    /// `heard`.
    pub fn proven(&self, heard: BootTime, now: BootTime) {
        self.notify_later(self.lease.extend(heard, now));
    }

    /// The event of the server that the node is deleted.
    pub fn deletion_seen(&self, path: &str) {
        self.watch_event(event::DELETED, path);
    }

    /// The session's event loop does this.
    fn notify_later(&self, lost: Vec<Arc<LeasedNode>>) {
        lease::notify_lost(&lost);
    }

    //= Generation::watch_event

    //= Generation::held_node_gone
}
