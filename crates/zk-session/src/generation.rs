//! One session at the server, from its making to its loss: its lease, its watch registry, and its
//! requests, each of which ends in time.
//!
//! `Core` makes one generation after the other, and its supervisor ends leases in time: what it
//! needs is in this file. The callers' requests are in `requests`, and the folders of locks that
//! they make in `folders`. `outputs` has what the event loop calls.

mod folders;
mod outputs;
mod requests;

use std::convert::Infallible;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use self::requests::{Listed, create_contender};
use super::callbacks::{Callbacks, Watcher};
pub use super::callbacks::{Folder, FolderWatch};
use super::connection::{Connection, Dialling, EventLoop, Owner};
use super::event::{SessionEvent, Tell};
use super::lease::{Bounds, Lease, Refused, WATCH_AFTER};
use super::notifier::WatchRegistry;
use super::parents::Parents;
use super::raw::RawHook;
use crate::clock::{BootTime, SharedTime};
use crate::error::LossReason;
use crate::lease::node::LeasedNode;
use crate::limit::Limit;
use crate::machine::Watched;
pub use crate::machine::codec::{CallError, CreateMode, Listing, Node, Operation, Reply};
pub use crate::machine::{Answers, Outcome, Removal};
use crate::machine::{MachineConfig, Task};
use crate::sight::teller::Teller;
use crate::world::atomic::{AtomicU64, Ordering};
use crate::world::{HashSet, Instant, Mutex, Receiver, Sender};

/// The operation timeout that goes with a session timeout.
pub(super) fn operation_timeout(session_timeout: Duration) -> Duration {
    session_timeout / 6
}

/// How long the close of a session may take to look at the folders that it is about to delete.
const LOOK_BEFORE_CLOSE: Duration = Duration::from_millis(200);

/// Where the events of one session go.
pub(super) type Report = Box<dyn Fn(SessionEvent) + Send + Sync>;

pub struct Generation {
    /// Counts the sessions made through one `Session`.
    pub number: u64,
    pub lease: Lease,
    /// The threads that wait for an event of a node, by the node's full path.
    pub nodes: WatchRegistry<String>,
    pub(super) connection: Connection,
    session_id: OnceLock<i64>,
    /// The granted session timeout in milliseconds; it may change when the session is resumed.
    timeout_ms: AtomicU64,
    /// The number of the current connection, or of the last one. A watch ends with the connection
    /// on which it was set.
    epoch: AtomicU64,
    of_core: OfCore,
    /// When a renewal of the lease was last reported.
    margin_reported: SharedTime,
    made: Instant,
    /// When the supervisor looks next whether a hold has ended; [`BootTime::END`] while it looks.
    /// On the clock by which it sleeps ([`timers_now`](Self::timers_now)), which stops while the
    /// host sleeps.
    pub(super) supervisor_looks: SharedTime,
    /// Where the news for a client of another kind goes.
    pub(super) raw: RawHook,
    callbacks: Callbacks,
    /// Why the servers have refused the login, if that has ended the session.
    refusal: OnceLock<String>,
    /// Nodes that are marked as lost, and whose holders the event loop must notify.
    lost: Mutex<Vec<Arc<LeasedNode>>>,
}

/// The path below which all paths of the session are, or "".
#[derive(Clone)]
pub(super) struct Chroot {
    pub(super) path: String,
    /// It must exist: the library does not make it.
    pub(super) is_required: bool,
}

/// What a generation has from its `Core`, the same in each generation but for `report`.
pub(super) struct OfCore {
    pub(super) chroot: Chroot,
    pub(super) parents: Arc<Parents>,
    /// Where answers and renewals of the lease are reported; `None` if nobody observes them.
    pub(super) tell: Option<Arc<Tell>>,
    /// Where the events of the session go.
    pub(super) report: Report,
    /// Has the supervisor look again when a hold ends.
    pub(super) wake_supervisor: Box<dyn Fn() + Send + Sync>,
}

impl Generation {
    /// Starts to make a session. Its thread keeps `alive` until the thread ends.
    pub(super) fn start(
        number: u64,
        config: MachineConfig,
        dialling: Dialling,
        of_core: OfCore,
        alive: Sender<Infallible>,
    ) -> io::Result<Arc<Self>> {
        EventLoop::start(format!("zkm-loop-{number}"), config, dialling, alive, |connection| {
            Generation {
                number,
                lease: Lease::default(),
                nodes: WatchRegistry::default(),
                connection,
                session_id: OnceLock::new(),
                timeout_ms: AtomicU64::new(0),
                epoch: AtomicU64::new(0),
                of_core,
                margin_reported: SharedTime::default(),
                made: Instant::now(),
                supervisor_looks: SharedTime::default(),
                raw: RawHook::default(),
                callbacks: Callbacks::default(),
                refusal: OnceLock::new(),
                lost: Mutex::default(),
            }
        })
    }

    pub fn session_id(&self) -> Option<i64> {
        self.session_id.get().copied()
    }

    /// Whether an attempt to connect has failed for another reason than a refused login.
    pub(super) fn has_outage(&self) -> bool {
        self.connection.has_outage()
    }

    /// Why the servers refuse the login.
    pub(super) fn refusal(&self) -> String {
        self.refusal.get().cloned().unwrap_or_default()
    }

    /// The negotiated session timeout; zero as long as there is no session.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Acquire))
    }

    /// How long one step may take in this session; zero as long as there is no session.
    pub fn operation_timeout(&self) -> Duration {
        operation_timeout(self.timeout())
    }

    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The ids of our own pending deletes: nodes that must go, and may still exist or be made.
    pub fn pending_deletes(&self) -> Arc<HashSet<String>> {
        self.connection.with(|machine, _| machine.pending_deletes())
    }

    /// The pending deletes without the creates that have made no node so far, and may still be done.
    pub fn deletes_under_way(&self) -> HashSet<String> {
        self.connection.with(|machine, _| machine.deletes_under_way())
    }

    /// Adds to `kept` how much the session keeps in memory.
    #[cfg(any(feature = "test", zk_sim))]
    pub(crate) fn add_kept(&self, kept: &mut crate::kept::Kept) {
        let machine = self.connection.with(|machine, _| machine.kept());
        kept.late_creates = machine.late_creates;
        kept.pending_deletes = machine.pending_deletes;
        kept.background = machine.background;
        kept.common_names = machine.common_names;
        kept.callers = machine.callers.max(self.connection.waiting_callers());
        kept.in_flight = machine.in_flight;
        kept.proofs = machine.proofs;
        (kept.holds, kept.timed_holds, kept.unwatched) = self.lease.kept();
        kept.watched = self.nodes.len();
        (kept.watchers, kept.folders, kept.timers) = self.callbacks.len();
        (kept.looks, kept.looks_by_path) = machine.looks;
    }

    /// The server of the current connection, or of the last one.
    pub(super) fn server(&self) -> String {
        self.connection.server()
    }

    /// What is left of the lease, for the log.
    pub(super) fn lease_left(&self) -> String {
        let now = BootTime::now();
        self.lease(now).left(now)
    }

    /// Puts `node` under the lease, if the lease is fresh. The event loop sets a watch on the node
    /// when it has been held for `WATCH_AFTER`.
    pub fn grant(&self, node: &Arc<LeasedNode>) -> Result<(), Refused> {
        let now = BootTime::now();
        self.lease.grant(node, now)?;
        // Most often the event loop wakes in time by itself, and this node is released before that.
        self.connection.wake_before(now + WATCH_AFTER + WATCH_AFTER / 5);
        Ok(())
    }

    /// Now, on the clock of timers.
    pub(super) fn timers_now(&self) -> BootTime {
        self.timers_at(Instant::now())
    }

    pub(super) fn timers_at(&self, at: Instant) -> BootTime {
        BootTime::default() + at.saturating_duration_since(self.made)
    }

    /// A holder gets this node now, and may have it as long as `bounds` say.
    pub fn bind(&self, node: &Arc<LeasedNode>, bounds: Bounds) {
        let now = BootTime::now();
        self.lease.bind(node, bounds, now);
        // The supervisor, which ends holds in time, may sleep for longer.
        let end = bounds.max.map(|max| self.timers_now() + max);
        if let Some(end) = end.filter(|end| *end < self.supervisor_looks.get()) {
            self.supervisor_looks.set(end);
            (self.of_core.wake_supervisor)();
        }
    }

    /// Deletes a node of ours: tries until the delete is acknowledged or the session is gone.
    pub fn remove(&self, removal: Removal) {
        self.connection.with(|machine, now| machine.add_task(Task::Remove(removal), now));
    }

    /// As `remove`; the receiver gets the outcome. It is disconnected if the session is lost, and
    /// the node with it.
    pub fn remove_and_tell(&self, removal: Removal) -> Receiver<Outcome> {
        self.connection.remove(removal)
    }

    /// Lists a node's children with a watch. Calls `watch` with the listing, and again at the next
    /// change. If the session is lost, it is not called.
    pub fn watch_folder(&self, watch: Arc<FolderWatch>) {
        let replaced = self.connection.with(|machine, now| {
            let number = machine.watch_folder(watch.dir(), now)?;
            // No thread can carry out an output before this thread lets the machine go.
            self.callbacks.add_watcher(number, Watcher::Folder(watch))
        });
        if let Some((number, _)) = replaced {
            self.end_watch(number);
        }
    }

    /// Calls the function that watches this node's children, if there is one, as after a change.
    pub fn folder_changed(&self, dir: &str) {
        if let Some((number, folder)) = self.callbacks.folder(dir) {
            if !folder.notify(Folder::Changed) {
                self.end_watch(number);
            }
        }
    }

    /// Watches the node at this full path until `end_watch` is called with the number that this
    /// gives. `None` if the session is lost.
    pub(crate) fn watch(&self, path: &str, what: Watched, teller: Arc<Teller>) -> Option<u64> {
        self.connection.with(|machine, now| {
            let number = machine.watch_node(path, what, now)?;
            self.callbacks.add_watcher(number, Watcher::Node(teller)); // it replaces none
            Some(number)
        })
    }

    pub(crate) fn end_watch(&self, number: u64) {
        self.connection.with(|machine, _| machine.end_look(number));
        drop(self.callbacks.remove_watcher(number));
    }

    /// Calls `act` at this time on the event loop's thread, if the session lives then. `act` must
    /// not block. Gives the key for [`forget_timer`](Self::forget_timer).
    pub fn at(&self, time: BootTime, act: Box<dyn FnOnce() + Send>) -> (BootTime, u64) {
        let key = self.callbacks.at(time, act);
        self.connection.wake();
        key
    }

    /// What was to be called with this key is not called any more, unless that has begun.
    pub fn forget_timer(&self, key: (BootTime, u64)) {
        self.callbacks.forget_timer(key);
    }

    /// How many functions are to be called after this time.
    #[cfg(any(test, feature = "test"))]
    pub fn timers_after(&self, time: BootTime) -> usize {
        self.callbacks.timers_after(time)
    }

    /// Wakes the event loop, which then sets the watches that held nodes need.
    pub fn wake(&self) {
        self.connection.wake();
    }

    /// The session is lost for this reason, which the server does not know. The lease ends first,
    /// and waits for no other thread.
    pub(super) fn lose(&self, reason: LossReason) {
        let lost = self.lease.mark_ended(reason);
        self.connection.with(|machine, now| machine.end(reason, now));
        super::lease::notify_lost(&lost);
    }

    /// Ends the session here and at the server. Returns once the request is on its way. Gives the
    /// nodes that are lost by it, which the caller must pass to [`notify_lost`](super::lease::notify_lost), and a
    /// receiver that gets whether the server has answered.
    pub(super) fn close(&self) -> (Vec<Arc<LeasedNode>>, Receiver<bool>) {
        let parents = self.own_parents(&Limit::after(LOOK_BEFORE_CLOSE));
        // The lease ends before the server can hear of the close. When the server hears of it, it
        // deletes our nodes, and other processes get the locks: no guard of ours may be valid by
        // then.
        let lost = self.lease.mark_ended(LossReason::SessionClosed);
        let told = self.connection.close(|machine, now| {
            // These requests go behind the deletes of all that was released, and so find the
            // folders of those locks empty.
            for path in parents {
                machine.add_task(Task::Prune { path, is_ours: true }, now);
            }
        });
        (lost, told)
    }
}

#[cfg(test)]
mod tests;
