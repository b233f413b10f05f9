//! One session at the server, from its making to its loss: its lease, its watch registry, and its
//! requests, each of which ends in time.
//!
//! `Core` makes one generation after the other. The recipes and the queue send their requests
//! through a generation. It carries out what the connection's machine puts out. When it learns that
//! a held node is lost, it marks the node before any thread can take the lock because of that.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::acl::Acl;
#[cfg(feature = "client")]
use super::client::ClientEnd;
pub(crate) use super::connection::codec::{CallError, CreateMode, Listing, Node, Operation, Reply};
#[cfg(feature = "client")]
use super::connection::machine::code_of;
pub(crate) use super::connection::machine::{Answers, Outcome, Removal};
use super::connection::machine::{Batch, MachineConfig, Output, Task};
use super::connection::{Connection, Dialling, EventLoop};
use super::event::SessionEvent;
use super::lease::{self, HoldBounds, Lease, Refused, WATCH_AFTER};
use super::leased_node::LeasedNode;
use super::notifier::{Notifier, WatchRegistry};
use super::parents::Parents;
use crate::clock::{BootTime, SharedTime};
use crate::error::LossReason;
use crate::limit::{Ended, Limit};
use crate::logging::contained;
use crate::observer::{Event, EventQueue};
use crate::world::atomic::{AtomicU64, Ordering};
use crate::world::{HashMap, HashSet, Mutex, Receiver, Sender, bounded};
use zk_wire::code::event;
use zk_wire::path;

/// The operation timeout that goes with a session timeout.
pub(super) fn operation_timeout(session_timeout: Duration) -> Duration {
    session_timeout / 6
}

/// How long the close of a session may take to look at the folders that it is about to delete.
const LOOK_BEFORE_CLOSE: Duration = Duration::from_millis(200);

/// Where the events of one session go.
pub(super) type Report = Box<dyn Fn(SessionEvent) + Send + Sync>;

pub(crate) struct Generation {
    /// Counts the sessions made through one `ZkSession`.
    pub(crate) number: u64,
    pub(crate) lease: Lease,
    /// The threads that wait for an event of a node, by the node's full path.
    pub(crate) nodes: WatchRegistry<String>,
    pub(super) connection: Connection,
    session_id: OnceLock<i64>,
    /// The granted session timeout in milliseconds; it may change when the session is resumed.
    timeout_ms: AtomicU64,
    /// The number of the current connection, or of the last one. A watch ends with the connection
    /// on which it was set.
    epoch: AtomicU64,
    /// Why the last attempt at each host failed.
    failures: Mutex<BTreeMap<String, String>>,
    /// The host of the current connection, or of the last one.
    server: Mutex<String>,
    of_core: OfCore,
    /// When a renewal of the lease was last reported.
    margin_reported: SharedTime,
    /// When the event loop wakes at the latest; the start of the clock while it is at work.
    pub(super) next_look: SharedTime,
    /// When the supervisor looks next whether a hold has ended; [`BootTime::END`] while it looks.
    pub(super) supervisor_looks: SharedTime,
    #[cfg(feature = "client")]
    pub(super) client_end: ClientEnd,
    /// The functions to call when the children of a node change, by the node's full path.
    folders: Mutex<HashMap<String, Arc<FolderWatch>>>,
    /// The functions to call at some time, on the event loop's thread.
    timers: Mutex<Timers>,
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
    /// Where answers and renewals of the lease are reported; `None` without an observer.
    pub(super) events: Option<Arc<EventQueue>>,
    /// Where the events of the session go.
    pub(super) report: Report,
    /// Has the supervisor look again when a hold ends.
    pub(super) wake_supervisor: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Timers {
    next: u64,
    all: BTreeMap<(BootTime, u64), Box<dyn FnOnce() + Send>>,
}

/// A function that the event loop's thread calls when a node's children were listed or have
/// changed. It must not block. A node has one such function at most: a later one replaces an
/// earlier one.
pub(crate) struct FolderWatch {
    dir: String,
    /// Returns false if it must not be called again.
    notify: Box<dyn Fn(Folder<'_>) -> bool + Send + Sync>,
}

/// The argument of a [`FolderWatch`].
pub(crate) enum Folder<'a> {
    /// The answer to the listing that has set the watch.
    Listed { names: Vec<&'a str>, pending: &'a HashSet<String> },
    /// A child was created or deleted. Or the watch ended with its connection, so that such a
    /// change would not be noticed. Or somebody asks for the lock that one of our own children
    /// holds.
    Changed,
}

impl FolderWatch {
    pub(crate) fn new(
        dir: String,
        notify: Box<dyn Fn(Folder<'_>) -> bool + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(FolderWatch { dir, notify })
    }

    pub(super) fn dir(&self) -> &str {
        &self.dir
    }
}

/// The answer to a listing.
pub(crate) struct Listed {
    pub(crate) children: Listing,
    /// The ids of our own pending deletes at that time.
    pub(crate) pending: Arc<HashSet<String>>,
    /// The connection on which the answer came.
    pub(crate) epoch: u64,
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
                failures: Mutex::default(),
                server: Mutex::default(),
                of_core,
                margin_reported: SharedTime::default(),
                next_look: SharedTime::default(),
                supervisor_looks: SharedTime::default(),
                #[cfg(feature = "client")]
                client_end: ClientEnd::new(number),
                folders: Mutex::default(),
                timers: Mutex::default(),
            }
        })
    }

    pub(crate) fn session_id(&self) -> Option<i64> {
        self.session_id.get().copied()
    }

    /// The negotiated session timeout; zero as long as there is no session.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Acquire))
    }

    /// How long one step may take in this session; zero as long as there is no session.
    pub(crate) fn operation_timeout(&self) -> Duration {
        operation_timeout(self.timeout())
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The ids of our own pending deletes: nodes that must go, and may still exist or be made.
    pub(crate) fn pending_deletes(&self) -> Arc<HashSet<String>> {
        self.connection.with(|machine, _| machine.pending_deletes())
    }

    /// The pending deletes without the creates that have made no node so far, and may still be done.
    pub(crate) fn deletes_under_way(&self) -> HashSet<String> {
        self.connection.with(|machine, _| machine.deletes_under_way())
    }

    /// Adds to `kept` how much the session keeps in memory.
    #[cfg(zk_sim)]
    pub(crate) fn add_kept(&self, kept: &mut crate::observed::Kept) {
        self.connection.with(|machine, _| machine.add_kept(kept));
        self.lease.add_kept(kept);
        kept.watched = self.nodes.len();
        kept.folders = self.folders.lock().len();
        kept.timers = self.timers.lock().all.len();
    }

    /// Notifies the simulation's observer on which connection the session is.
    #[cfg(zk_sim)]
    fn show_connection(&self, epoch: Option<u64>) {
        use crate::observed::{self, News};
        let Some(session) = self.session_id() else { return };
        observed::notify(|| match epoch {
            Some(epoch) => News::Attached { session, epoch },
            None => News::Detached { session },
        });
    }

    pub(super) fn host_failed(&self, host: &str, reason: String) {
        self.failures.lock().insert(host.to_owned(), reason);
    }

    /// The session is being made or resumed on a connection to this host.
    pub(super) fn connected_to(&self, host: &str) {
        host.clone_into(&mut self.server.lock());
    }

    /// The host of the current connection, or of the last one.
    pub(super) fn server(&self) -> String {
        self.server.lock().clone()
    }

    /// What is left of the lease, for the log.
    pub(super) fn lease_left(&self) -> String {
        match self.lease.needed_end() {
            Some(end) => format!("lease left {:.1} s", end.since(BootTime::now()).as_secs_f64()),
            None => "no lock is held".to_owned(),
        }
    }

    pub(super) fn failures(&self) -> BTreeMap<String, String> {
        self.failures.lock().clone()
    }

    /// Puts `node` under the lease, if the lease is fresh. The event loop sets a watch on the node
    /// when it has been held for `WATCH_AFTER`.
    pub(crate) fn grant(&self, node: &Arc<LeasedNode>) -> Result<(), Refused> {
        let now = BootTime::now();
        self.lease.grant(node, now)?;
        // Most often the event loop wakes in time by itself, and this node is released before that.
        if self.next_look.get() > now + WATCH_AFTER + WATCH_AFTER / 5 {
            self.connection.wake();
        }
        Ok(())
    }

    /// A holder gets this node now, and may have it as long as `bounds` say.
    pub(crate) fn bind(&self, node: &Arc<LeasedNode>, bounds: &HoldBounds) {
        let now = BootTime::now();
        self.lease.bind(node, bounds, now);
        // The supervisor, which ends holds in time, may sleep for longer.
        let end = bounds.max.map(|max| now + max);
        if let Some(end) = end.filter(|end| *end < self.supervisor_looks.get()) {
            self.supervisor_looks.set(end);
            (self.of_core.wake_supervisor)();
        }
    }

    // ---- requests whose callers wait ----

    /// Sends these requests together. Gives the number of the batch, and where its answers will
    /// come.
    pub(crate) fn send(
        &self,
        requests: &[(Operation<'_>, Option<Removal>)],
    ) -> Result<(u64, Receiver<Answers>), CallError> {
        let (mut batch, answers) = Batch::new();
        for (operation, removal) in requests {
            batch.push(operation, removal.clone());
        }
        let number = self.connection.with(|machine, now| machine.submit(batch, now))?;
        Ok((number, answers))
    }

    /// Sends these requests together, and waits for all their answers as long as `limit` says. If
    /// the wait ends before the answers come, the nodes that the requests have made or may still
    /// make are deleted, as the removal beside each request says.
    ///
    /// Each request is answered within the operation timeout, whatever the network does.
    pub(crate) fn flight(
        &self,
        requests: &[(Operation<'_>, Option<Removal>)],
        limit: &Limit<'_>,
    ) -> Result<Answers, CallError> {
        let (number, answers) = self.send(requests)?;
        #[cfg(unix)]
        if let Some(answers) = self.read_until(|| answers.try_recv().ok(), limit) {
            return Ok(answers);
        }
        let why = match limit.recv(&answers) {
            Ended::Got(answers) => return Ok(answers),
            Ended::Disconnected => return Err(CallError::Expired),
            Ended::Deadline => CallError::Deadline,
            Ended::Cancelled => CallError::Cancelled,
        };
        if self.connection.with(|machine, now| machine.abandon(number, now)) {
            return Err(why);
        }
        // The answers came before this thread gave up. They may still be in the queue of outputs,
        // and the event loop may get no processor to carry them out. This thread takes them from
        // there.
        if let Some(answers) = self.connection.with(|machine, _| machine.take_answers(number)) {
            return Ok(answers);
        }
        // Otherwise another thread is sending them to this one, and does nothing before that which
        // can block.
        answers.recv().map_err(|_| CallError::Expired)
    }

    /// Waits until a notifier that is registered with `nodes` is notified.
    pub(crate) fn wait(&self, notifier: &Notifier, limit: &Limit<'_>) -> Ended<u8> {
        #[cfg(unix)]
        if let Some(events) = self.read_until(|| notifier.take(), limit) {
            return Ended::Got(events);
        }
        notifier.wait(limit)
    }

    /// Sends one request that makes no node to be deleted later, and waits for its answer.
    pub(crate) fn call(
        &self,
        operation: Operation<'_>,
        limit: &Limit<'_>,
    ) -> Result<Reply, CallError> {
        self.flight(&[(operation, None)], limit)?.take(0)
    }

    /// Whether the chroot exists.
    pub(super) fn has_chroot(&self, limit: &Limit<'_>) -> Result<bool, CallError> {
        match self.call(Operation::Exists { path: &self.of_core.chroot.path }, limit) {
            Ok(_) => Ok(true),
            Err(CallError::NoNode) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Creates a container, and the containers above it that are missing. Where the server has no
    /// containers, they are persistent nodes (`parents.rs`).
    pub(crate) fn make_parents(
        &self,
        dir: &str,
        acl: &Acl,
        limit: &Limit<'_>,
    ) -> Result<(), CallError> {
        // Begins at the bottom: an ACL further up may not allow us to create nodes, and need not if
        // the parents exist.
        match self.make_parent(dir, acl, limit) {
            Ok(()) | Err(CallError::NodeExists) => Ok(()),
            Err(CallError::NoNode) if path::parent(dir) != "/" => {
                self.make_parents(path::parent(dir), acl, limit)?;
                match self.make_parent(dir, acl, limit) {
                    // Somebody may delete the parent meanwhile. Then the caller's own create fails,
                    // and the caller begins again.
                    Ok(()) | Err(CallError::NodeExists | CallError::NoNode) => Ok(()),
                    Err(e) => Err(e),
                }
            }
            Err(e) => Err(e),
        }
    }

    fn make_parent(&self, dir: &str, acl: &Acl, limit: &Limit<'_>) -> Result<(), CallError> {
        let is_chroot = dir == self.of_core.chroot.path;
        if is_chroot && self.of_core.chroot.is_required {
            return Err(CallError::Other(format!("NoNode (the chroot {dir} does not exist)")));
        }
        let create = |mode| {
            let create = Operation::Create { path: dir, data: &[], acl, mode };
            let (_, czxid) = self.call(create, limit)?.created()?;
            if is_chroot {
                info!("{dir}: the chroot did not exist and was made");
            }
            Ok(czxid)
        };
        if !self.of_core.parents.are_persistent() {
            let connection = (self.number, self.epoch());
            let created = create(CreateMode::Container).map(drop);
            if !self.of_core.parents.is_refusal(connection, &created) {
                return created;
            }
        }
        let czxid = create(CreateMode::Persistent)?;
        self.of_core.parents.made(dir, czxid, BootTime::now());
        self.connection.wake(); // the event loop learns when it is to look for empty parents
        Ok(())
    }

    /// Deletes those of the persistent parents that are empty, if it is time. Gives the time of the
    /// next look.
    fn delete_empty_parents(&self, now: BootTime) -> Option<BootTime> {
        for path in self.of_core.parents.due(now) {
            self.connection.with(|machine, now| {
                // In an outage they would pile up; the next look comes in any case.
                if machine.is_up() {
                    machine.add_task(Task::Prune { path, is_ours: false }, now);
                }
            });
        }
        self.of_core.parents.next_look()
    }

    /// The persistent parents that still are as this session made them. Looks at them, if there is
    /// a connection.
    fn own_parents(&self, limit: &Limit<'_>) -> Vec<String> {
        let mut all = self.of_core.parents.all();
        if all.is_empty() || !self.connection.with(|machine, _| machine.is_up()) {
            return Vec::new();
        }
        let looks: Vec<_> = all.iter().map(|path| (Operation::Exists { path }, None)).collect();
        let Ok(mut seen) = self.flight(&looks, limit) else { return Vec::new() };
        let mut at = 0..all.len();
        all.retain(|path| match at.next().map(|at| seen.take(at)) {
            Some(Ok(Reply::Stat(stat))) => self.of_core.parents.is_ours(path, &stat),
            _ => false,
        });
        all
    }

    /// Lists a node's children. With `watch`, sets a watch on the list, if the node exists.
    pub(crate) fn children(
        &self,
        dir: &str,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<Listed, CallError> {
        let list = Operation::GetChildren { path: dir, watch };
        self.flight(&[(list, None)], limit)?.listed(0)
    }

    /// Sends these reads in one flight, behind a `sync`. So they show all that was acknowledged to
    /// any client before this call.
    ///
    /// A server may lag behind the leader for as long as its stream from there is slow. It answers
    /// reads meanwhile, and what they show may be over: a lock that somebody has released, as the
    /// caller knows from him, would seem to be taken. The server answers a `sync` when it has
    /// received what the leader had committed before, and only then the reads behind it. If the
    /// `sync` fails, the reads show nothing, and the call fails.
    ///
    /// A read that follows an acknowledged write of the same call needs no `sync`: its server has
    /// done that write, and all writes before it. That holds on a later connection too, because a
    /// server that has seen less than the session refuses it.
    pub(crate) fn synced(
        &self,
        reads: &[Operation<'_>],
        limit: &Limit<'_>,
    ) -> Result<Answers, CallError> {
        let behind_sync = std::iter::once(&Operation::Sync).chain(reads);
        let requests: Vec<_> = behind_sync.map(|request| (*request, None)).collect();
        self.flight(&requests, limit)?.behind_sync()
    }

    /// Lists a node's children as [`synced`](Self::synced) does.
    pub(crate) fn synced_children(
        &self,
        dir: &str,
        limit: &Limit<'_>,
    ) -> Result<Listed, CallError> {
        self.synced(&[Operation::GetChildren { path: dir, watch: false }], limit)?.listed(0)
    }

    /// Reads a node as [`synced`](Self::synced) does. With `watch`, sets a watch on it, if it
    /// exists.
    pub(crate) fn synced_read(
        &self,
        path: &str,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<Node, CallError> {
        self.synced(&[Operation::GetData { path, watch }], limit)?.take(0)?.node()
    }

    /// Reads a node. With `watch`, sets a watch on it, if it exists.
    pub(crate) fn read(
        &self,
        path: &str,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<Node, CallError> {
        self.call(Operation::GetData { path, watch }, limit)?.node()
    }

    /// Renews the lease, and waits until it is fresh. If that takes longer than the operation
    /// timeout, the session is attached to a server anew, and the caller gets `ConnectionLoss`.
    pub(crate) fn prove(&self, limit: &Limit<'_>) -> Result<(), CallError> {
        let (done, proven) = bounded(1);
        self.connection.with(|machine, now| machine.prove(done, now));
        match limit.recv(&proven) {
            Ended::Got(_) => Ok(()),
            Ended::Disconnected => Err(CallError::ConnectionLoss),
            Ended::Deadline => Err(CallError::Deadline),
            Ended::Cancelled => Err(CallError::Cancelled),
        }
    }

    // ---- the application's client ----

    /// Takes a request of the client. The answer goes to the client's end, under this number. If
    /// the session has ended, the request is not taken: the client's end answers all its requests
    /// then.
    #[cfg(feature = "client")]
    pub(super) fn submit_client(&self, number: u64, op: i32, body: &[u8]) {
        let batch = Batch::of_client(number, op, body);
        let _ = self.connection.with(|machine, now| machine.submit(batch, now));
    }

    // ---- background operations, for which no caller waits ----

    /// Deletes a node of ours: tries until the delete is acknowledged or the session is gone.
    pub(crate) fn remove(&self, removal: Removal) {
        self.connection.with(|machine, now| machine.add_task(Task::Remove(removal), now));
    }

    /// Lists a node's children with a watch. Calls `watch` with the listing, and again at the next
    /// change.
    pub(crate) fn watch_folder(&self, watch: Arc<FolderWatch>) {
        // The replaced function is dropped after the lock is released: its drop may run any code.
        let replaced = self.folders.lock().insert(watch.dir.clone(), watch.clone());
        drop(replaced);
        self.connection.with(|machine, now| machine.add_task(Task::WatchFolder { watch }, now));
    }

    /// Calls `act` at this time on the event loop's thread, if the session lives then. `act` must
    /// not block.
    pub(crate) fn at(&self, time: BootTime, act: Box<dyn FnOnce() + Send>) {
        let mut timers = self.timers.lock();
        timers.next += 1;
        let number = timers.next;
        timers.all.insert((time, number), act);
        drop(timers);
        self.connection.wake();
    }

    /// Calls the functions that are due. Returns the time of the next one.
    pub(super) fn run_timers(&self, now: BootTime) -> Option<BootTime> {
        let next_look = self.delete_empty_parents(now);
        loop {
            let mut timers = self.timers.lock();
            let Some(first) = timers.all.first_entry() else { return next_look };
            let (time, _) = *first.key();
            if time > now {
                return Some(next_look.map_or(time, |look| look.min(time)));
            }
            let act = first.remove();
            drop(timers);
            contained(act);
        }
    }

    fn notify_folder(&self, dir: &str, folder: Folder<'_>) {
        let watch = self.folders.lock().get(dir).cloned();
        let Some(watch) = watch else { return };
        if !(watch.notify)(folder) {
            let mut folders = self.folders.lock();
            if folders.get(dir).is_some_and(|other| Arc::ptr_eq(other, &watch)) {
                folders.remove(dir);
            }
        }
    }

    /// Wakes the event loop, which then sets the watches that held nodes need.
    pub(crate) fn wake(&self) {
        self.connection.wake();
    }

    /// Ends the session here and at the server. Returns once the request is on its way. Gives the
    /// nodes that are lost by it, which the caller must pass to [`lease::notify_lost`], and a
    /// receiver that gets whether the server has answered.
    pub(super) fn close(&self) -> (Vec<Arc<LeasedNode>>, Receiver<bool>) {
        let parents = self.own_parents(&Limit::after(LOOK_BEFORE_CLOSE));
        // The lease ends before the server can hear of the close. When the server hears of it, it
        // deletes our nodes, and other processes get the locks: no guard of ours may be valid by
        // then.
        let lost = self.lease.mark_ended(LossReason::SessionClosed);
        let (done, told) = bounded(1);
        self.connection.with(|machine, now| {
            // These requests go behind the deletes of all that was released, and so find the
            // folders of those locks empty.
            for path in parents {
                machine.add_task(Task::Prune { path, is_ours: true }, now);
            }
            machine.close(done, now);
        });
        (lost, told)
    }

    // ---- the outputs of the connection's machine ----

    /// Whether an output only wakes waiting threads. Then any calling thread that reads the socket
    /// may carry it out, because that takes no time.
    pub(super) fn is_light(&self, output: &Output) -> bool {
        match output {
            Output::Answered(..)
            | Output::Done(..)
            | Output::Heard(_)
            | Output::RoundTrip { .. } => true,
            Output::Watch { path, .. } => !self.folders.lock().contains_key(path),
            _ => false,
        }
    }

    /// Carries out an output of the machine. This is the event loop's thread or, for a light
    /// output, a calling thread that reads the socket.
    pub(super) fn take_output(&self, output: Output) {
        match output {
            Output::Granted { session_id, timeout, sent } => {
                let _ = self.session_id.set(session_id);
                self.granted(timeout);
                self.lease.begin(timeout, sent);
            }
            Output::Shortened { timeout } => {
                self.granted(timeout);
                self.lease.shorten(timeout, BootTime::now());
            }
            Output::Attached { epoch, is_first } => {
                self.epoch.store(epoch, Ordering::Release);
                #[cfg(zk_sim)]
                self.show_connection(Some(epoch));
                self.failures.lock().clear();
                if !is_first {
                    // The watches were set on the connection before, and are gone with it.
                    let folders: Vec<String> = self.folders.lock().keys().cloned().collect();
                    folders.iter().for_each(|dir| self.notify_folder(dir, Folder::Changed));
                    #[cfg(feature = "client")]
                    self.client_end.reconnected();
                }
                (self.of_core.report)(match (is_first, self.session_id()) {
                    (true, Some(session_id)) => {
                        SessionEvent::Connected { session_id, timeout: self.timeout() }
                    }
                    _ => SessionEvent::Reconnected,
                });
            }
            Output::Suspended => {
                #[cfg(zk_sim)]
                self.show_connection(None);
                (self.of_core.report)(SessionEvent::Suspended);
            }
            Output::Lost(reason) => {
                self.lease.end(reason);
                #[cfg(zk_sim)]
                self.show_connection(None);
                #[cfg(feature = "client")]
                self.client_end.ended(code_of(reason));
                (self.of_core.report)(SessionEvent::Lost(reason));
            }
            Output::Heard(at) => {
                let now = BootTime::now();
                self.report_margin(now);
                self.notify_later(self.lease.extend(at, now));
            }
            Output::RoundTrip { op, took } => {
                if let Some(events) = &self.of_core.events {
                    events.report(Event::Answered(op, took));
                }
            }
            // If the caller has given up, its channel is gone, and the answer is dropped.
            Output::Answered(_, caller, answers) => drop(caller.try_send(answers)),
            Output::Done(caller, outcome) => drop(caller.try_send(outcome)),
            #[cfg(feature = "client")]
            Output::ClientAnswered { number, err, zxid, body } => {
                self.client_end.answer(number, err, zxid, &body);
            }
            #[cfg(not(feature = "client"))]
            Output::ClientAnswered { .. } => {}
            Output::Watch { kind, path } => self.watch_event(kind, &path),
            Output::HoldRead(node, Some((czxid, data))) if node.is_node(czxid) => {
                node.note_data(&data);
                // A kept node has no guard whose holder could release it. So the function that
                // watches the folder is called: it ends the keeping.
                if node.is_revoked() {
                    self.notify_folder(path::parent(node.path()), Folder::Changed);
                }
            }
            Output::HoldRead(node, _) => self.lease.node_gone(&node, BootTime::now()),
            Output::Pruned(path) => self.of_core.parents.gone(&path),
            Output::MayPrune { task, path, stat } => {
                let may = self.of_core.parents.is_ours(&path, &stat);
                self.connection.with(|machine, now| machine.may_prune(task, may, now));
            }
            Output::TellLoss(lost) => lease::notify_lost(&lost),
            Output::FolderListed(watch, Some((children, pending))) => {
                self.notify_folder(
                    watch.dir(),
                    Folder::Listed { names: children.names(), pending: &pending },
                );
            }
            Output::FolderListed(watch, None) => self.notify_folder(watch.dir(), Folder::Changed),
            Output::Log(level, text) => match level {
                log::Level::Error => error!("{text}"),
                log::Level::Warn => warn!("{text}"),
                log::Level::Info => info!("{text}"),
                log::Level::Debug | log::Level::Trace => debug!("{text}"),
            },
        }
    }

    fn granted(&self, timeout: Duration) {
        self.timeout_ms
            .store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Reports how much of the lease is left, before it is renewed.
    fn report_margin(&self, now: BootTime) {
        let Some(events) = &self.of_core.events else { return };
        // Each write of a lock renews the lease too. A renewal that comes late comes long after the
        // one before, so it is never left out.
        if now.since(self.margin_reported.get()) < self.timeout() / 12 {
            return;
        }
        if let Some(end) = self.lease.needed_end() {
            self.margin_reported.set(now);
            events.report(Event::LeaseMargin(end.since(now)));
        }
    }

    /// Notifies the threads that wait for an event of this node.
    fn watch_event(&self, kind: i32, path: &str) {
        let is_gone = kind == event::DELETED;
        // The node is marked as lost before the waiters are notified. In the other order a waiter
        // of this process could take the lock while our guard still says that it is held.
        if is_gone {
            self.held_node_gone(path);
        }
        self.nodes.notify(path, is_gone);
        #[cfg(feature = "client")]
        self.client_end.event(kind, path);
        if kind == event::CHILDREN_CHANGED || is_gone {
            self.notify_folder(path, Folder::Changed);
        }
        // The same again after the notification. A caller may have put its node under the lease in
        // between, after the first try did not find the node there. A caller that does so before
        // this second try has its node marked here. A caller that does so later finds the
        // notification.
        if is_gone {
            self.held_node_gone(path);
        } else if let Some(node) = self.lease.leased_node(path) {
            self.lease.rearm(&node);
            self.connection.wake(); // the event loop sets the watch
        }
    }

    /// Marks this node as lost, if it is held.
    fn held_node_gone(&self, path: &str) {
        if let Some(node) = self.lease.leased_node(path) {
            self.notify_later(self.lease.mark_gone(&node, BootTime::now()));
        }
    }

    /// Lets the event loop notify the holders of these nodes, which are marked as lost. They may be
    /// many, and this thread may be a caller that waits for an answer and has a deadline.
    fn notify_later(&self, lost: Vec<Arc<LeasedNode>>) {
        if !lost.is_empty() {
            self.connection.with(|machine, _| machine.outputs.push_back(Output::TellLoss(lost)));
        }
    }
}

impl Answers {
    /// Takes the answer to one of the requests.
    pub(crate) fn take(&mut self, at: usize) -> Result<Reply, CallError> {
        let taken = || Err(CallError::ConnectionLoss);
        self.all.get_mut(at).map_or_else(taken, |answer| std::mem::replace(answer, taken()))
    }

    /// The answers to the requests behind a `sync`, which is the first request; an error if it
    /// failed.
    pub(crate) fn behind_sync(mut self) -> Result<Self, CallError> {
        self.take(0)?;
        drop(self.all.remove(0));
        Ok(self)
    }

    pub(crate) fn listed(&mut self, at: usize) -> Result<Listed, CallError> {
        match self.take(at)? {
            Reply::Children(children) => {
                Ok(Listed { children, pending: self.pending.clone(), epoch: self.epoch })
            }
            _ => Err(unexpected()),
        }
    }
}

impl Reply {
    /// The path and the czxid of a node that was just created.
    pub(crate) fn created(self) -> Result<(String, i64), CallError> {
        match self {
            Reply::Created(path, czxid) => Ok((path, czxid)),
            _ => Err(unexpected()),
        }
    }

    pub(crate) fn node(self) -> Result<Node, CallError> {
        match self {
            Reply::Node(node) => Ok(node),
            _ => Err(unexpected()),
        }
    }
}

/// The codec decodes each answer by its request, so this never happens.
fn unexpected() -> CallError {
    CallError::Other("an answer to another request".to_owned())
}

/// The request that creates a contender's node; the id is a part of its name. If the call fails and
/// the node may exist, it is deleted.
pub(crate) fn create_contender<'a>(
    path: &'a str,
    id: &str,
    mode: CreateMode,
    data: &'a [u8],
    acl: &'a Acl,
) -> (Operation<'a>, Option<Removal>) {
    (Operation::Create { path, data, acl, mode }, Some(Removal::of_create(path, id)))
}

#[cfg(test)]
mod tests;
