//! One session at the server, from its making to its loss: its lease, the watch registry, and calls
//! that end in time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::acl::Acl;
#[cfg(feature = "client")]
use super::client::ClientEnd;
use super::config::RetryPolicy;
use super::connect_string::Host;
pub(crate) use super::connection::codec::{CallError, CreateMode, Listing, Node, Operation, Reply};
#[cfg(feature = "client")]
use super::connection::machine::code_of;
pub(crate) use super::connection::machine::{Answers, Outcome, Removal};
use super::connection::machine::{Batch, Output, Settings, Task};
use super::connection::{Connection, EventLoop};
use super::event::SessionEvent;
use super::lease::{self, Lease, Refused, WATCH_AFTER};
use super::leased_node::LeasedNode;
use super::notifier::{Notifier, WatchRegistry};
use crate::clock::{BootTime, SharedTime};
use crate::error::LossReason;
use crate::limit::{Ended, Limit};
use crate::logging::contained;
use crate::world::atomic::{AtomicU64, Ordering};
use crate::world::{HashMap, HashSet, Mutex, Receiver, Sender, bounded};
use zk_wire::code::event;
use zk_wire::path;

/// Where the events of one session go.
pub(super) type Report = Box<dyn Fn(SessionEvent) + Send + Sync>;

pub(crate) struct Generation {
    /// Counts the sessions made through one `ZkSession`.
    pub(crate) number: u64,
    pub(crate) lease: Lease,
    /// Who waits for an event of a node, by the node's full path.
    pub(crate) nodes: WatchRegistry<String>,
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

/// A function that the event loop's thread calls when a node's children were listed or have
/// changed. It must not block. Each node has one at most: a later one takes the place of an earlier
/// one.
pub(crate) struct FolderWatch {
    dir: String,
    /// Gives false when it is not to be called again.
    tell: Box<dyn Fn(Folder<'_>) -> bool + Send + Sync>,
}

/// What a [`FolderWatch`] is called with.
pub(crate) enum Folder<'a> {
    /// The answer to the listing that has left a watch.
    Listed { names: Vec<&'a str>, pending: &'a HashSet<String> },
    /// A child was made or deleted; or the watch is gone with its connection, so that this would
    /// not be noticed; or somebody asked for the lock that one of our own children holds.
    Changed,
}

impl FolderWatch {
    pub(crate) fn new(
        dir: String,
        tell: Box<dyn Fn(Folder<'_>) -> bool + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(FolderWatch { dir, tell })
    }

    pub(super) fn dir(&self) -> &str {
        &self.dir
    }
}

/// What a listing shows.
pub(crate) struct Listed {
    pub(crate) children: Listing,
    /// The ids of our own nodes that were still to be deleted then.
    pub(crate) pending: Arc<HashSet<String>>,
    /// The connection that it came on.
    pub(crate) epoch: u64,
}

impl Generation {
    /// Starts to make a session. Its thread keeps `alive` until it ends.
    pub(super) fn start(
        number: u64,
        settings: Settings,
        hosts: Vec<Host>,
        policy: RetryPolicy,
        report: Report,
        alive: Sender<Infallible>,
    ) -> io::Result<Arc<Self>> {
        EventLoop::start(
            format!("zkm-loop-{number}"),
            settings,
            hosts,
            policy,
            alive,
            |connection| Generation {
                number,
                lease: Lease::default(),
                nodes: WatchRegistry::default(),
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
            },
        )
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

    /// Counts what it keeps.
    #[cfg(zk_sim)]
    pub(crate) fn add_kept(&self, kept: &mut crate::observed::Kept) {
        self.connection.with(|machine, _| machine.add_kept(kept));
        self.lease.add_kept(kept);
        kept.watched = self.nodes.len();
        kept.folders = self.folders.lock().len();
        kept.timers = self.timers.lock().all.len();
    }

    /// Shows the simulation's observer on which connection the session is.
    #[cfg(zk_sim)]
    fn show_connection(&self, epoch: Option<u64>) {
        use crate::observed::{self, News};
        let Some(session) = self.session_id() else { return };
        observed::tell(|| match epoch {
            Some(epoch) => News::Attached { session, epoch },
            None => News::Detached { session },
        });
    }

    pub(super) fn host_failed(&self, host: &str, reason: String) {
        self.failures.lock().insert(host.to_owned(), reason);
    }

    pub(super) fn failures(&self) -> BTreeMap<String, String> {
        self.failures.lock().clone()
    }

    /// Makes `hold` stand, if the lease is fresh. Its node is watched once it has stood for a
    /// while.
    pub(crate) fn grant(&self, hold: &Arc<LeasedNode>) -> Result<(), Refused> {
        let now = BootTime::now();
        self.lease.grant(hold, now)?;
        // Most often the event loop looks in time by itself, and this hold is none of those that
        // live for so long.
        if self.next_look.get() > now + WATCH_AFTER + WATCH_AFTER / 5 {
            self.connection.wake();
        }
        Ok(())
    }

    // ---- requests whose callers wait ----

    /// Sends these requests together, and waits for all their answers as long as `limit` says. If
    /// the caller leaves before, what its requests have made or may still make is removed, as the
    /// removal beside each says.
    ///
    /// Each request is answered within T/6, whatever the network does.
    pub(crate) fn flight(
        &self,
        requests: &[(Operation<'_>, Option<Removal>)],
        limit: &Limit<'_>,
    ) -> Result<Answers, CallError> {
        let (mut batch, answers) = Batch::new();
        for (operation, removal) in requests {
            batch.push(operation, removal.clone());
        }
        let number = self.connection.with(|machine, now| machine.submit(batch, now))?;
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
        // The answers came before this caller left. They may still stand among the outputs, behind
        // one whose foreign code (a logger, say) keeps the event loop. This caller takes them from
        // there.
        if let Some(answers) = self.connection.with(|machine, _| machine.take_answers(number)) {
            return Ok(answers);
        }
        // Otherwise another thread is handing them over. It has nothing to do before that which
        // blocks.
        answers.recv().map_err(|_| CallError::Expired)
    }

    /// Waits for a ring of a notifier that is registered with `nodes`.
    pub(crate) fn wait(&self, notifier: &Notifier, limit: &Limit<'_>) -> Ended<u8> {
        #[cfg(unix)]
        if let Some(events) = self.read_until(|| notifier.take(), limit) {
            return Ended::Got(events);
        }
        notifier.wait(limit)
    }

    /// Sends one request that makes nothing which must go, and waits for its answer.
    pub(crate) fn call(
        &self,
        operation: Operation<'_>,
        limit: &Limit<'_>,
    ) -> Result<Reply, CallError> {
        self.flight(&[(operation, None)], limit)?.take(0)
    }

    /// Makes a container and the containers above it that are missing.
    pub(crate) fn make_parents(
        &self,
        dir: &str,
        acl: &Acl,
        limit: &Limit<'_>,
    ) -> Result<(), CallError> {
        // From the bottom: an ACL further up may forget to allow what is not needed.
        let create = Operation::Create { path: dir, data: &[], acl, mode: CreateMode::Container };
        match self.call(create, limit) {
            Ok(_) | Err(CallError::NodeExists) => Ok(()),
            Err(CallError::NoNode) if path::parent(dir) != "/" => {
                self.make_parents(path::parent(dir), acl, limit)?;
                match self.call(create, limit) {
                    // Somebody may delete the parent meanwhile; the caller's own loop starts again
                    // then.
                    Ok(_) | Err(CallError::NodeExists | CallError::NoNode) => Ok(()),
                    Err(e) => Err(e),
                }
            }
            Err(e) => Err(e),
        }
    }

    /// Lists a node's children; `watch` leaves a watch on the list, if the node exists.
    pub(crate) fn children(
        &self,
        dir: &str,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<Listed, CallError> {
        let list = Operation::GetChildren { path: dir, watch };
        self.flight(&[(list, None)], limit)?.listed(0)
    }

    /// Reads a node; `watch` leaves a watch on it, if it exists.
    pub(crate) fn read(
        &self,
        path: &str,
        watch: bool,
        limit: &Limit<'_>,
    ) -> Result<Node, CallError> {
        self.call(Operation::GetData { path, watch }, limit)?.node()
    }

    /// Waits until the lease is renewed so far that it is fresh. The write of the renewal, which
    /// has no effect, goes to `dir`, a directory of our locks. Where this takes longer than T/6 the
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

    /// Takes a request of the client; the answer goes to the client's end, under this number. The
    /// end of the session answers what is not taken any more.
    #[cfg(feature = "client")]
    pub(super) fn submit_client(&self, number: u64, op: i32, body: &[u8]) {
        let batch = Batch::of_client(number, op, body);
        let _ = self.connection.with(|machine, now| machine.submit(batch, now));
    }

    // ---- what nobody waits for ----

    /// Deletes a node of ours, for sure: until that is acknowledged, or the session is gone.
    pub(crate) fn remove(&self, removal: Removal) {
        self.connection.with(|machine, now| machine.add_task(Task::Remove(removal), now));
    }

    /// Lists a node's children with a watch. Calls `watch` with the listing, and at the next
    /// change.
    pub(crate) fn watch_folder(&self, watch: Arc<FolderWatch>) {
        // What it takes the place of is dropped when the lock is released: that may run any code.
        let replaced = self.folders.lock().insert(watch.dir.clone(), watch.clone());
        drop(replaced);
        self.connection.with(|machine, now| machine.add_task(Task::WatchFolder { watch }, now));
    }

    /// Runs this at that time, on the event loop's thread, as long as the session lives. It must
    /// not block.
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
        let Some(watch) = watch else { return };
        if !(watch.tell)(folder) {
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
        // The lease ends before the server can hear of the close. When the server hears of it, it
        // deletes our nodes, and other processes get the locks: no guard of ours may be valid by
        // then.
        self.lease.end(LossReason::SessionClosed);
        let (done, told) = bounded(1);
        self.connection.with(|machine, now| machine.close(done, now));
        told
    }

    // ---- what comes out of the machine ----

    /// Whether an output only wakes threads that wait. Then a calling thread that reads may carry
    /// it out: it runs no foreign code, and waits for nobody.
    pub(super) fn is_light(&self, output: &Output) -> bool {
        match output {
            Output::Answered(..) | Output::Done(..) | Output::Heard(_) => true,
            Output::Watch { path, .. } => !self.folders.lock().contains_key(path),
            _ => false,
        }
    }

    /// Carries out an output of the machine: on the event loop's thread, or, if it is light, on a
    /// calling thread that reads.
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
            Output::Suspended => {
                #[cfg(zk_sim)]
                self.show_connection(None);
                (self.report)(SessionEvent::Suspended);
            }
            Output::Lost(reason) => {
                self.lease.end(reason);
                #[cfg(zk_sim)]
                self.show_connection(None);
                #[cfg(feature = "client")]
                self.client_end.ended(code_of(reason));
                (self.report)(SessionEvent::Lost(reason));
            }
            Output::Heard(at) => self.tell_later(self.lease.extend(at, BootTime::now())),
            // The caller may have left meanwhile. Then its channel is gone, and nothing is to be
            // done.
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
            Output::TellLoss(lost) => lease::tell(&lost),
            Output::FolderListed(watch, Some((children, pending))) => {
                self.tell_folder(
                    watch.dir(),
                    Folder::Listed { names: children.names(), pending: &pending },
                );
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
        self.timeout_ms
            .store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// Notifies whoever waits for an event of this node.
    fn watch_event(&self, kind: i32, path: &str) {
        let is_gone = kind == event::DELETED;
        // First the hold is marked as lost, then the waiters are notified. In the other order a
        // waiter of this process could take the lock while our guard still says that it is held.
        if is_gone {
            self.held_node_gone(path);
        }
        self.nodes.notify(path, is_gone);
        #[cfg(feature = "client")]
        self.client_end.event(kind, path);
        if kind == event::CHILDREN_CHANGED || is_gone {
            self.tell_folder(path, Folder::Changed);
        }
        // Once more behind the notification: a caller may have made its node a hold in between.
        // Either it finds the notification after that, or its hold is found here.
        if is_gone {
            self.held_node_gone(path);
        } else if let Some(hold) = self.lease.hold_on(path) {
            self.lease.rearm(&hold);
            self.connection.wake(); // the event loop looks for it next
        }
    }

    /// Marks the hold on this node as lost, if there is one.
    fn held_node_gone(&self, path: &str) {
        if let Some(hold) = self.lease.hold_on(path) {
            self.tell_later(self.lease.mark_gone(&hold, BootTime::now()));
        }
    }

    /// These holds are marked as lost. The event loop tells their holders, since that runs foreign
    /// code, and this thread may be one that waits for something else.
    fn tell_later(&self, lost: Vec<Arc<LeasedNode>>) {
        if !lost.is_empty() {
            self.connection.with(|machine, _| machine.outputs.push_back(Output::TellLoss(lost)));
        }
    }
}

impl Answers {
    /// The answer to one of the requests.
    pub(crate) fn take(&mut self, at: usize) -> Result<Reply, CallError> {
        let taken = Err(CallError::ConnectionLoss);
        self.all
            .get_mut(at)
            .map_or(taken, |answer| std::mem::replace(answer, Err(CallError::ConnectionLoss)))
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
    /// The path and the czxid of a node that was just made.
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

/// The codec decodes each answer by its request, so that this never happens.
fn unexpected() -> CallError {
    CallError::Other("an answer to another request".to_owned())
}

/// The request for a contender's node; the id is a part of its name. If the node may exist although
/// the call fails, it is deleted.
pub(crate) fn contender<'a>(
    path: &'a str,
    id: &str,
    mode: CreateMode,
    data: &'a [u8],
    acl: &'a Acl,
) -> (Operation<'a>, Option<Removal>) {
    let mut removal = Removal::of_create(path, id);
    removal.outlives_session = mode == CreateMode::Persistent;
    (Operation::Create { path, data, acl, mode }, Some(removal))
}

#[cfg(test)]
mod tests;
