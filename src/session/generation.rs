//! One session at the server, from its making to its loss: its lease, the watch registry, and calls
//! that end in time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::acl::Acl;
use super::bell::Bells;
#[cfg(feature = "client")]
use super::client::ClientEnd;
use super::config::RetryPolicy;
use super::connect_string::Host;
pub(crate) use super::connection::codec::{CallError, CreateMode, Listing, Node, Operation, Reply};
#[cfg(feature = "client")]
use super::connection::machine::code_of;
pub(crate) use super::connection::machine::{Answers, Outcome, Settle};
use super::connection::machine::{Batch, Output, Removal, Settings, Task};
use super::connection::{Connection, EventLoop};
use super::event::SessionEvent;
use super::hold::Hold;
use super::lease::{Lease, Refused};
use super::path;
use crate::clock::{BootTime, SharedTime};
use crate::error::LossReason;
use crate::limit::{Ended, Limit};
use crate::logging::contained;
use crate::wire::code::event;
use crate::world::{HashMap, HashSet, Mutex, Receiver, Sender, bounded};

/// A hold this old gets a watch on its node, if it has none yet.
const WATCH_AFTER: Duration = Duration::from_millis(50);

/// Where the events of one session go.
pub(super) type Report = Box<dyn Fn(SessionEvent) + Send + Sync>;

pub(crate) struct Generation {
    /// Counts the sessions made through one `ZkSession`.
    pub(crate) number: u64,
    pub(crate) lease: Lease,
    /// Who waits for an event of a node, by the node's full path.
    pub(crate) nodes: Bells<String>,
    pub(super) connection: Connection,
    session_id: OnceLock<i64>,
    /// The granted session timeout in milliseconds; it may change when the session is resumed.
    timeout_ms: AtomicU64,
    /// The number of the connection that stands or stood last; watches live only on their own one.
    epoch: AtomicU64,
    /// Why each host last failed us.
    failures: Mutex<BTreeMap<String, String>>,
    report: Report,
    /// When the event loop looks again at the latest; the start of the clock while it is looking.
    pub(super) next_look: SharedTime,
    #[cfg(feature = "client")]
    pub(super) client_end: ClientEnd,
    /// What to call when the children of a node change, by the node's full path.
    folders: Mutex<HashMap<String, Arc<FolderWatch>>>,
    /// What is to be done at some time, on the event loop's thread.
    timers: Mutex<Timers>,
}

#[derive(Default)]
struct Timers {
    next: u64,
    all: BTreeMap<(BootTime, u64), Box<dyn FnOnce() + Send>>,
}

/// A function that the event loop's thread calls when a node's children were listed or have changed.
/// It must not block. Each node has one at most: a later one takes the place of an earlier one.
pub(crate) struct FolderWatch {
    dir: String,
    /// Gives false when it is not to be called again.
    tell: Box<dyn Fn(Folder<'_>) -> bool + Send + Sync>,
}

/// What a [`FolderWatch`] is called with.
pub(crate) enum Folder<'a> {
    /// The answer to the listing that has left a watch.
    Listed { names: Vec<&'a str>, pending: &'a HashSet<String> },
    /// A child was made or deleted; or the watch is gone with its connection, so that this would not be
    /// noticed; or somebody asked for the lock that one of our own children holds.
    Changed,
}

impl FolderWatch {
    pub(crate) fn new(dir: String, tell: Box<dyn Fn(Folder<'_>) -> bool + Send + Sync>) -> Arc<Self> {
        Arc::new(FolderWatch { dir, tell })
    }

    pub(super) fn dir(&self) -> &str {
        &self.dir
    }
}

/// A node that was just made.
pub(crate) struct Created {
    /// As the server made it.
    pub(crate) path: String,
    pub(crate) czxid: i64,
}

/// What a listing shows.
pub(crate) struct Listed {
    pub(crate) children: Listing,
    /// The ids of our own nodes that were still to be deleted then.
    pub(crate) pending: Arc<HashSet<String>>,
    /// The connection that it came on.
    pub(crate) epoch: u64,
}

/// How a contender's node gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The server appends the next number.
    Numbered,
    /// The name is whole.
    AsGiven,
    /// The same, and the node outlives the session.
    Persistent,
}

impl Generation {
    /// Starts to make a session. The receiver is disconnected when its thread has ended.
    pub(super) fn start(
        number: u64,
        settings: Settings,
        hosts: Vec<Host>,
        policy: RetryPolicy,
        report: Report,
    ) -> io::Result<(Arc<Self>, Receiver<Infallible>)> {
        EventLoop::start(format!("zkm-loop-{number}"), settings, hosts, policy, |connection| Generation {
            number,
            lease: Lease::default(),
            nodes: Bells::default(),
            connection,
            session_id: OnceLock::new(),
            timeout_ms: AtomicU64::new(0),
            epoch: AtomicU64::new(0),
            failures: Mutex::default(),
            report,
            next_look: SharedTime::default(),
            #[cfg(feature = "client")]
            client_end: ClientEnd::new(number),
            folders: Mutex::default(),
            timers: Mutex::default(),
        })
    }

    pub(crate) fn session_id(&self) -> Option<i64> {
        self.session_id.get().copied()
    }

    /// The negotiated session timeout; zero as long as there is no session.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Acquire))
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The ids of our own nodes that should go and may still exist.
    pub(crate) fn pending_deletes(&self) -> Arc<HashSet<String>> {
        self.connection.with(|machine, _| machine.pending_deletes())
    }

    /// The holds whose nodes are to be watched now, on this connection, and when to look again.
    pub(super) fn to_watch(&self, epoch: u64, now: BootTime) -> (Vec<Arc<Hold>>, Option<BootTime>) {
        self.lease.to_watch(epoch, WATCH_AFTER, now)
    }

    /// When to ask [`to_watch`](Self::to_watch) again.
    pub(super) fn next_to_watch(&self, epoch: u64) -> Option<BootTime> {
        self.lease.next_watch(epoch, WATCH_AFTER)
    }

    pub(super) fn host_failed(&self, host: &str, reason: String) {
        self.failures.lock().insert(host.to_owned(), reason);
    }

    pub(super) fn failures(&self) -> BTreeMap<String, String> {
        self.failures.lock().clone()
    }

    /// Makes `hold` stand, if the lease is fresh. Its node is watched once it has stood for a while.
    pub(crate) fn grant(&self, hold: &Arc<Hold>) -> Result<(), Refused> {
        let now = BootTime::now();
        self.lease.grant(hold, now)?;
        // Most often the event loop looks in time by itself, and this hold is none of those that live
        // for so long.
        if self.next_look.get() > now + WATCH_AFTER + WATCH_AFTER / 5 {
            self.connection.wake();
        }
        Ok(())
    }

    // ---- requests whose callers wait ----

    /// Sends these requests together, and waits for all their answers as long as `limit` says. If the
    /// caller leaves before, what its requests have made or may still make is deleted.
    ///
    /// Each request is answered within T/6, whatever the network does.
    pub(crate) fn flight(
        &self,
        requests: &[(Operation<'_>, Settle)],
        limit: &Limit<'_>,
    ) -> Result<Answers, CallError> {
        let (mut batch, answers) = Batch::new();
        for (operation, settle) in requests {
            batch.push(operation, settle.clone());
        }
        let number = self.connection.with(|machine, now| machine.submit(batch, now))?;
        #[cfg(unix)]
        let read = |output| self.take_output(output);
        #[cfg(unix)]
        if let Some(answers) = self.connection.read_answers(number, &answers, limit, read) {
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
        // The answers came before this caller left. They may still stand among the outputs, behind one
        // whose foreign code (a logger, say) keeps the event loop. This caller takes them from there.
        if let Some(answers) = self.connection.with(|machine, _| machine.take_answers(number)) {
            return Ok(answers);
        }
        // Otherwise another thread is handing them over. It has nothing to do before that which blocks.
        answers.recv().map_err(|_| CallError::Expired)
    }

    fn one(&self, operation: Operation<'_>, settle: Settle, limit: &Limit<'_>) -> Result<Reply, CallError> {
        self.flight(&[(operation, settle)], limit)?.take(0)
    }

    fn simple(&self, operation: Operation<'_>, limit: &Limit<'_>) -> Result<Reply, CallError> {
        self.one(operation, Settle::Nothing, limit)
    }

    /// Makes a node; the id is a part of its name. If the node may exist although this call fails, it
    /// is deleted.
    pub(crate) fn create_contender(
        &self,
        prefix: &str,
        id: &str,
        naming: Naming,
        data: &[u8],
        acl: &Acl,
        limit: &Limit<'_>,
    ) -> Result<Created, CallError> {
        let (request, settle) = contender(prefix, id, naming, data, acl);
        self.one(request, settle, limit)?.created()
    }

    /// Makes a contender's node and lists its parent behind that, in one flight. The listing is there
    /// whenever the node is.
    pub(crate) fn enter(
        &self,
        prefix: &str,
        id: &str,
        data: &[u8],
        acl: &Acl,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<(Created, Result<Listed, CallError>), CallError> {
        let list = Operation::GetChildren { path: path::parent(prefix), watch };
        let create = contender(prefix, id, Naming::Numbered, data, acl);
        let mut answers = self.flight(&[create, (list, Settle::Nothing)], limit)?;
        let created = answers.take(0)?.created()?;
        Ok((created, answers.listed(1)))
    }

    /// Makes an ephemeral node whose name is fixed; its data bears `nonce`.
    ///
    /// If this fails otherwise than by a refusal, the node may exist: that is the caller's to settle,
    /// by another create or by [`remove`](Self::remove). Not if its own time is up before the answer:
    /// then the node is removed whatever the answer says, if this create or one before it
    /// (`may_exist`) may have made it.
    pub(crate) fn create_fixed(
        &self,
        path: &str,
        nonce: &str,
        data: &[u8],
        acl: &Acl,
        may_exist: bool,
        limit: &Limit<'_>,
    ) -> Result<(), CallError> {
        let create = Operation::Create { path, data, acl, mode: CreateMode::Ephemeral };
        let settle = Settle::Fixed { path: path.to_owned(), nonce: nonce.to_owned(), may_exist };
        self.one(create, settle, limit).map(drop)
    }

    /// Makes a container and the containers above it that are missing.
    pub(crate) fn make_parents(&self, dir: &str, acl: &Acl, limit: &Limit<'_>) -> Result<(), CallError> {
        // From the bottom: an ACL further up may forget to allow what is not needed.
        let create = Operation::Create { path: dir, data: &[], acl, mode: CreateMode::Container };
        match self.simple(create, limit) {
            Ok(_) | Err(CallError::NodeExists) => Ok(()),
            Err(CallError::NoNode) if path::parent(dir) != "/" => {
                self.make_parents(path::parent(dir), acl, limit)?;
                match self.simple(create, limit) {
                    // Somebody may delete the parent meanwhile; the caller's own loop starts again then.
                    Ok(_) | Err(CallError::NodeExists | CallError::NoNode) => Ok(()),
                    Err(e) => Err(e),
                }
            }
            Err(e) => Err(e),
        }
    }

    /// Makes a node that stays, whatever becomes of its children and of us.
    pub(crate) fn create_lasting(
        &self,
        path: &str,
        data: &[u8],
        acl: &Acl,
        limit: &Limit<'_>,
    ) -> Result<(), CallError> {
        let create = Operation::Create { path, data, acl, mode: CreateMode::Persistent };
        self.simple(create, limit).map(drop)
    }

    /// Lists a node's children; `watch` leaves a watch on the list, if the node exists.
    pub(crate) fn children(&self, dir: &str, watch: bool, limit: &Limit<'_>) -> Result<Listed, CallError> {
        let list = Operation::GetChildren { path: dir, watch };
        self.flight(&[(list, Settle::Nothing)], limit)?.listed(0)
    }

    /// Reads a node; `watch` leaves a watch on it, if it exists.
    pub(crate) fn read(&self, path: &str, watch: bool, limit: &Limit<'_>) -> Result<Node, CallError> {
        self.simple(Operation::GetData { path, watch }, limit)?.node()
    }

    /// Changes a node's data; with a `version`, if it is as it was at that.
    pub(crate) fn set_data(
        &self,
        path: &str,
        data: &[u8],
        version: Option<i32>,
        limit: &Limit<'_>,
    ) -> Result<(), CallError> {
        self.simple(Operation::SetData { path, data, version }, limit).map(drop)
    }

    /// Deletes a node, once; see [`delete`](Self::delete) for what must go.
    pub(crate) fn delete_now(&self, path: &str, limit: &Limit<'_>) -> Result<(), CallError> {
        self.simple(Operation::Delete { path }, limit).map(drop)
    }

    /// The node's czxid, if it exists.
    pub(crate) fn czxid(&self, path: &str, limit: &Limit<'_>) -> Result<Option<i64>, CallError> {
        match self.simple(Operation::Exists { path }, limit) {
            Ok(Reply::Stat(stat)) => Ok(Some(stat.czxid)),
            Ok(_) | Err(CallError::NoNode) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Waits until the lease is renewed so far that it is fresh. The write of the renewal, which has
    /// no effect, goes to `dir`, a directory of our locks. Where this takes longer than T/6 the
    /// session is attached anew, and the caller gets `ConnectionLoss`.
    pub(crate) fn prove(&self, dir: &str, limit: &Limit<'_>) -> Result<(), CallError> {
        let (done, proven) = bounded(1);
        self.connection.with(|machine, now| machine.prove(dir.to_owned(), done, now));
        match limit.recv(&proven) {
            Ended::Got(_) => Ok(()),
            Ended::Disconnected => Err(CallError::ConnectionLoss),
            Ended::Deadline => Err(CallError::Deadline),
            Ended::Cancelled => Err(CallError::Cancelled),
        }
    }

    // ---- the application's client ----

    /// Takes a request of the client; the answer goes to the client's end, under this number.
    #[cfg(feature = "client")]
    pub(super) fn submit_client(&self, number: u64, op: i32, body: &[u8]) -> Result<(), CallError> {
        let batch = Batch::of_client(number, op, body);
        self.connection.with(|machine, now| machine.submit(batch, now)).map(drop)
    }

    // ---- what nobody waits for ----

    /// Deletes a node of ours, for sure: until that is acknowledged, or the session is gone.
    /// `renew_parent`: the parent too, if that leaves it empty. The outcome is sent to `done`, whose
    /// sender is dropped if the session ends first.
    pub(crate) fn delete(
        &self,
        path: String,
        id: String,
        renew_parent: bool,
        outlives_session: bool,
        done: Option<Sender<Outcome>>,
    ) {
        let task = Task::Delete { path, id, renew_parent, outlives_session, done };
        self.connection.with(|machine, now| machine.add_task(task, now));
    }

    /// As [`delete`](Self::delete), for a node with a fixed name, which is deleted only if it is ours:
    /// if its data bears `nonce`, or its czxid is this one.
    pub(crate) fn remove(
        &self,
        path: String,
        nonce: String,
        czxid: Option<i64>,
        done: Option<Sender<Outcome>>,
    ) {
        let task = Task::Remove(Removal::new(path, nonce, czxid, done));
        self.connection.with(|machine, now| machine.add_task(task, now));
    }

    /// Lists a node's children with a watch. Calls `watch` with the listing, and at the next change.
    pub(crate) fn watch_folder(&self, watch: Arc<FolderWatch>) {
        self.folders.lock().insert(watch.dir.clone(), watch.clone());
        self.connection.with(|machine, now| machine.add_task(Task::WatchFolder { watch }, now));
    }

    /// Runs this at that time, on the event loop's thread, as long as the session lives. It must not
    /// block.
    pub(crate) fn at(&self, time: BootTime, act: Box<dyn FnOnce() + Send>) {
        let mut timers = self.timers.lock();
        timers.next += 1;
        let number = timers.next;
        timers.all.insert((time, number), act);
        drop(timers);
        self.connection.wake();
    }

    /// Runs what is due; gives the time of the next.
    pub(super) fn run_timers(&self, now: BootTime) -> Option<BootTime> {
        loop {
            let mut timers = self.timers.lock();
            let first = timers.all.first_entry()?;
            let (time, _) = *first.key();
            if time > now {
                return Some(time);
            }
            let act = first.remove();
            drop(timers);
            contained(act);
        }
    }

    fn tell_folder(&self, dir: &str, folder: Folder<'_>) {
        let watch = self.folders.lock().get(dir).cloned();
        if let Some(watch) = watch
            && !(watch.tell)(folder)
        {
            let mut folders = self.folders.lock();
            if folders.get(dir).is_some_and(|other| Arc::ptr_eq(other, &watch)) {
                folders.remove(dir);
            }
        }
    }

    /// Lets the event loop look for held nodes that want a watch.
    pub(crate) fn wake(&self) {
        self.connection.wake();
    }

    /// Ends the session at the server, then here; the receiver hears whether the server knows.
    pub(super) fn close(&self) -> Receiver<bool> {
        // The lease ends before the server can hear of the close. When the server hears of it, it deletes
        // our nodes, and other processes get the locks: no guard of ours may be valid by then.
        self.lease.end(LossReason::SessionClosed);
        let (done, told) = bounded(1);
        self.connection.with(|machine, now| machine.close(done, now));
        told
    }

    // ---- what comes out of the machine ----

    /// Carries out an output of the machine: on the event loop's thread, or on a calling thread that
    /// reads its own answer.
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
                self.failures.lock().clear();
                if !is_first {
                    // The watches of the connection before are gone.
                    let folders: Vec<String> = self.folders.lock().keys().cloned().collect();
                    folders.iter().for_each(|dir| self.tell_folder(dir, Folder::Changed));
                    #[cfg(feature = "client")]
                    self.client_end.reconnected();
                }
                (self.report)(match (is_first, self.session_id()) {
                    (true, Some(session_id)) => {
                        SessionEvent::Connected { session_id, timeout: self.timeout() }
                    }
                    _ => SessionEvent::Reconnected,
                });
            }
            Output::Suspended => (self.report)(SessionEvent::Suspended),
            Output::Lost(reason) => {
                self.lease.end(reason);
                #[cfg(feature = "client")]
                self.client_end.ended(code_of(reason));
                (self.report)(SessionEvent::Lost(reason));
            }
            Output::Heard(at) => self.lease.extend(at, BootTime::now()),
            // The caller may have left meanwhile. Then its channel is gone, and nothing is to be done.
            Output::Answered(_, caller, answers) => drop(caller.try_send(answers)),
            Output::Done(caller, outcome) => drop(caller.try_send(outcome)),
            #[cfg(feature = "client")]
            Output::ClientAnswered { number, err, zxid, body } => {
                self.client_end.answer(number, err, zxid, &body);
            }
            #[cfg(not(feature = "client"))]
            Output::ClientAnswered { .. } => {}
            Output::Watch { kind, path } => self.watch_event(kind, &path),
            Output::HoldRead(hold, Some((czxid, data))) if hold.seen(czxid) => {
                hold.told(&data);
                // A hold that is kept has no guard that could be asked to let go.
                if hold.is_revoked() {
                    self.tell_folder(path::parent(hold.path()), Folder::Changed);
                }
            }
            Output::HoldRead(hold, _) => self.lease.gone(&hold, BootTime::now()),
            Output::FolderListed(watch, Some((children, pending))) => {
                self.tell_folder(watch.dir(), Folder::Listed { names: children.names(), pending: &pending });
            }
            Output::FolderListed(watch, None) => self.tell_folder(watch.dir(), Folder::Changed),
            Output::MayRemove { task, path } => {
                let may = self.lease.hold_on(&path).is_none();
                self.connection.with(|machine, now| machine.may_remove(task, may, now));
            }
            Output::Log(level, text) => match level {
                log::Level::Error => error!("{text}"),
                log::Level::Warn => warn!("{text}"),
                log::Level::Info => info!("{text}"),
                log::Level::Debug | log::Level::Trace => debug!("{text}"),
            },
        }
    }

    fn granted(&self, timeout: Duration) {
        self.timeout_ms.store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Notifies whoever waits for an event of this node.
    fn watch_event(&self, kind: i32, path: &str) {
        let is_gone = kind == event::DELETED;
        // First the hold is marked as lost, then the waiters are notified. In the other order a waiter of
        // this process could take the lock while our guard still says that it is held.
        if is_gone {
            self.lease.node_deleted(path, BootTime::now());
        }
        self.nodes.ring(path, is_gone);
        #[cfg(feature = "client")]
        self.client_end.event(kind, path);
        if kind == event::CHILDREN_CHANGED || is_gone {
            self.tell_folder(path, Folder::Changed);
        }
        // Once more behind the notification: a caller may have made its node a hold in between. Either it
        // finds the notification after that, or its hold is found here.
        if is_gone {
            self.lease.node_deleted(path, BootTime::now());
        } else if let Some(hold) = self.lease.hold_on(path) {
            self.lease.rearm(&hold); // the event loop looks for it next
        }
    }
}

impl Answers {
    /// The answer to one of the requests.
    pub(crate) fn take(&mut self, at: usize) -> Result<Reply, CallError> {
        let taken = Err(CallError::ConnectionLoss);
        self.all.get_mut(at).map_or(taken, |answer| std::mem::replace(answer, Err(CallError::ConnectionLoss)))
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
    pub(crate) fn created(self) -> Result<Created, CallError> {
        match self {
            Reply::Created(path, czxid) => Ok(Created { path, czxid }),
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

/// The codec decodes each answer by its request, so that this never happens.
fn unexpected() -> CallError {
    CallError::Other("an answer to another request".to_owned())
}

/// The request for a contender's node.
pub(crate) fn contender<'a>(
    prefix: &'a str,
    id: &str,
    naming: Naming,
    data: &'a [u8],
    acl: &'a Acl,
) -> (Operation<'a>, Settle) {
    let mode = match naming {
        Naming::Numbered => CreateMode::EphemeralSequential,
        Naming::AsGiven => CreateMode::Ephemeral,
        Naming::Persistent => CreateMode::Persistent,
    };
    let settle = Settle::Named {
        prefix: prefix.to_owned(),
        id: id.to_owned(),
        outlives_session: naming == Naming::Persistent,
    };
    (Operation::Create { path: prefix, data, acl, mode }, settle)
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::{ZkMutex, ZkSession, testing::TestServer};

    /// Holds the event loop up, as a busy computer may do, until what this gives is dropped.
    fn stop_event_loop(generation: &Generation) -> Sender<()> {
        let (stopped, is_stopped) = bounded(0);
        let (go_on, gate) = bounded::<()>(0);
        let stop = move || {
            let _ = (stopped.send(()), gate.recv());
        };
        generation.at(BootTime::now(), Box::new(stop));
        is_stopped.recv().unwrap();
        go_on
    }

    #[test]
    fn nothing_is_held_any_more_when_the_server_hears_that_the_session_is_closed() {
        let server = TestServer::start().unwrap();
        let session = || ZkSession::connect(&server.connect_string()).unwrap();
        let (ours, theirs) = (session(), session());
        let mutex = ZkMutex::new(&ours, "/locks/orders").unwrap();
        let guard = mutex.lock().unwrap();
        let generation = ours.core().generation().unwrap();
        let go_on = stop_event_loop(&generation);
        std::thread::scope(|scope| {
            scope.spawn(|| ours.close());
            let other = ZkMutex::new(&theirs, "/locks/orders").unwrap();
            let theirs = other.lock().unwrap();
            assert!(!(guard.is_held() && theirs.is_held()), "two valid guards");
            drop(go_on);
        });
    }

    const SOON: Duration = Duration::from_secs(20);

    /// A listing that is sent and not read yet.
    #[cfg(unix)]
    fn sent(generation: &Generation) -> (u64, Receiver<Answers>) {
        let (mut batch, answers) = Batch::new();
        batch.push(&Operation::GetChildren { path: "/", watch: false }, Settle::Nothing);
        (generation.connection.with(|machine, now| machine.submit(batch, now)).unwrap(), answers)
    }

    #[cfg(unix)]
    #[test]
    fn the_event_loop_reads_again_after_a_caller_that_panicked_while_it_read() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(&server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        // The event loop may be first, once in a while.
        let panics = (0..100).any(|_| {
            let (number, answers) = sent(&generation);
            let panic = |_| panic!("a defect");
            let read = || generation.connection.read_answers(number, &answers, &Limit::NONE, panic);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err()
        });
        assert!(panics);
        assert!(generation.children("/", false, &Limit::after(SOON)).is_ok());
        assert_eq!(server.count(crate::testing::Op::Connect), 1);
    }

    /// Its answers are read by another thread, before it comes to that itself.
    #[cfg(unix)]
    #[test]
    fn a_caller_does_not_wait_for_the_socket_when_its_answers_were_read() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(&server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let (number, answers) = sent(&generation);
        answers.recv_timeout(SOON).unwrap();
        let fails = |_| panic!("it reads");
        assert!(generation.connection.read_answers(number, &answers, &Limit::NONE, fails).is_none());
        assert!(generation.connection.with(|machine, _| !machine.is_under_way(number)));
    }

    /// The session is so long that the event loop looks by itself every four minutes.
    #[test]
    fn a_proof_whose_answer_another_caller_reads_ends_the_wait_for_it() {
        let hour = Duration::from_secs(3600);
        let server = TestServer::builder().max_session_timeout(hour).start().unwrap();
        let session = ZkSession::builder(server.connect_string()).session_timeout(hour).connect().unwrap();
        let generation = session.core().generation().unwrap();
        server.delay(Duration::from_millis(1));
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    let _ = generation.children("/", false, &Limit::NONE);
                }
            });
            let proven: Vec<_> = (0..30).map(|_| generation.prove("/", &Limit::after(SOON))).collect();
            is_over.store(true, Ordering::SeqCst);
            assert!(proven.iter().all(Result::is_ok), "{proven:?}");
        });
    }

    /// Foreign code that blocks (a logger, say) keeps the event loop, which has read the answer already.
    #[test]
    fn a_caller_leaves_at_its_deadline_though_its_answer_waits_behind_foreign_code() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(&server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let go_on = stop_event_loop(&generation);
        let (blocked, is_blocked) = bounded(1);
        let (unblock, gate) = bounded::<()>(0);
        let tell = move |_: Folder<'_>| {
            let _ = (blocked.try_send(()), gate.recv());
            true
        };
        generation.watch_folder(FolderWatch::new("/".to_owned(), Box::new(tell)));
        let (left, has_left) = bounded(1);
        std::thread::scope(|scope| {
            let call = || {
                let limit = Limit::after(Duration::from_secs(1));
                let _ = left.send(generation.children("/", false, &limit).map(drop));
            };
            scope.spawn(call);
            let both = crate::testing::Matcher::from(crate::testing::Op::GetChildren).skip(1);
            server.wait_request(both, SOON).unwrap();
            drop(go_on);
            is_blocked.recv_timeout(SOON).unwrap();
            let outcome = has_left.recv_timeout(SOON);
            drop(unblock);
            assert!(outcome.is_ok(), "it waits for the event loop");
        });
    }

    /// It comes in many reads.
    #[test]
    fn a_large_listing_is_whole_while_other_callers_read_too() {
        const NODES: usize = 2_000;
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(&server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let paths: Vec<String> = (0..NODES).map(|i| format!("/{}-{i}", "n".repeat(60))).collect();
        let mode = CreateMode::Ephemeral;
        let create = |path| (Operation::Create { path, data: &[], acl: &Acl::Open, mode }, Settle::Nothing);
        let creates: Vec<_> = paths.iter().map(|path| create(path.as_str())).collect();
        let made = generation.flight(&creates, &Limit::NONE).unwrap();
        assert!(made.all.iter().all(Result::is_ok));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let listed = generation.children("/", false, &Limit::NONE).unwrap();
                        let names: HashSet<&str> = listed.children.names().into_iter().collect();
                        assert!(paths.iter().all(|path| names.contains(&path[1..])));
                    }
                });
            }
        });
        assert_eq!(server.count(crate::testing::Op::Connect), 1);
    }
}
