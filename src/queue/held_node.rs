//! A held node. Every guard, of whatever recipe, has one or several. It knows whether its lock is
//! still held, and how its node is deleted.

use std::iter;
use std::result::Result as StdResult;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::name::NodeKey;
use super::request::error;
use super::revoke_signal::{REVOKE_MESSAGE, RevokeSignal};
use super::tally::Holds;
use crate::error::{Cause, Error, LossReason, Result};
#[cfg(zk_sim)]
use crate::observed::{self, News, Observed};
use zk_session::unstable::{
    BootTime, Bounds, CallError, Core, Ended, Generation, LeasedNode, Limit, Listener, NodeWatch,
    Once, Outcome, Process, Refused, Removal, SharedTime,
};
use zk_session::world::atomic::{AtomicBool, AtomicU64, Ordering};
use zk_session::world::{Mutex, OnceLock, Receiver};
use zk_wire::path;

/// A node that was granted the lock. If it is dropped before it is released, by an early return or
/// a panic, the drop releases it: otherwise a node would keep the lock that no guard stands for.
pub(crate) struct HeldNode {
    generation: Arc<Generation>,
    leased: Arc<LeasedNode>,
    state: Arc<HeldState>,
    /// How the node is deleted.
    removal: Removal,
    /// How often the lock was handed to another thread of this process.
    hand_overs: AtomicU64,
    is_released: AtomicBool,
}

/// How a guard ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum EndBy {
    /// By a drop, which waits for nothing.
    Drop,
    /// By `unlock`, which waits for the outcome.
    Unlock,
}

/// The end of a guard, begun but not waited for: several guards can be ended before the first wait.
#[must_use = "the caller must learn the outcome"]
pub(crate) struct Release {
    loss: Option<LossReason>,
    /// The outcome of each delete, if the caller wants to wait for it.
    deleted: Vec<Receiver<Outcome>>,
    limit: Limit<'static>,
}

/// A node of ours that is to be held.
pub(crate) struct NewNode<'a> {
    /// Its full path.
    pub(crate) path: &'a str,
    /// Other clients may make nodes of the same name, so that only the czxid tells them apart.
    pub(crate) is_fixed: bool,
    pub(crate) czxid: i64,
    pub(crate) watch: NodeWatch,
    /// Its data, as the read said that has set the watch.
    pub(crate) data: &'a [u8],
    /// How it is deleted.
    pub(crate) removal: Removal,
}

impl HeldNode {
    /// Makes the node a held one, if the lease is fresh. `on_loss` makes the function that runs if
    /// the node with this key is lost.
    pub(crate) fn grant(
        generation: &Arc<Generation>,
        node: NewNode<'_>,
        on_loss: &dyn Fn(NodeKey) -> OnLoss,
    ) -> StdResult<Self, Refused> {
        let NewNode { path, is_fixed, czxid, watch, data, removal } = node;
        let state = HeldState::new(generation, path, on_loss((generation.number, czxid)));
        let make = if is_fixed { LeasedNode::fixed } else { LeasedNode::new };
        let leased = make(path.to_owned(), czxid, watch, state.clone());
        generation.grant(&leased)?;
        state.note_data(data);
        let held_node = HeldNode {
            generation: generation.clone(),
            leased,
            state,
            removal,
            hand_overs: AtomicU64::new(0),
            is_released: AtomicBool::new(false),
        };
        #[cfg(zk_sim)]
        observed::notify(|| News::Granted(Observed::new(&held_node)));
        Ok(held_node)
    }

    /// The session in which it is held.
    pub(crate) fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// The node as the lease knows it, with the signals of its loss.
    pub(crate) fn leased(&self) -> &Arc<LeasedNode> {
        &self.leased
    }

    /// What its holders share: requests to let go, and the holds that are counted on it.
    pub(crate) fn state(&self) -> &HeldState {
        &self.state
    }

    /// The node's full path.
    pub(crate) fn path(&self) -> &str {
        self.leased.path()
    }

    pub(crate) fn key(&self) -> NodeKey {
        (self.generation.number, self.leased.czxid())
    }

    pub(crate) fn is_held(&self) -> bool {
        self.generation.lease.is_held(&self.leased, BootTime::now())
    }

    /// Why the lock is lost; `None` if it is held.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.generation.lease.loss(&self.leased, BootTime::now())
    }

    /// The process that holds the node.
    pub(crate) fn process(&self) -> &Process {
        self.generation.lease.process()
    }

    /// An error if the lock is lost.
    pub(crate) fn check(&self, core: &Core) -> Result<()> {
        let path = core.shown(self.path()).to_owned();
        self.loss().map_or(Ok(()), |reason| Err(Error::Lost { path, reason }))
    }

    pub(crate) fn valid_for(&self) -> Duration {
        let (lease, now) = (&self.generation.lease, BootTime::now());
        if !lease.is_held(&self.leased, now) {
            return Duration::ZERO;
        }
        lease.remaining(now).min(self.leased.bound().since(now))
    }

    /// A holder gets the node now, and may have it as long as `bounds` say.
    pub(crate) fn bind(&self, bounds: &HoldBounds) {
        if *bounds == HoldBounds::default() && !self.leased.is_bound() {
            return;
        }
        // This runs when the node is marked as lost, and no guard of it is valid any more.
        let delete = || {
            let (generation, removal) = (Arc::downgrade(&self.generation), self.removal.clone());
            Box::new(move || {
                if let Some(generation) = generation.upgrade() {
                    generation.remove(removal);
                }
            }) as OnLoss
        };
        self.state.begin(bounds.releases_overdue.then(delete));
        self.generation.bind(&self.leased, bounds.of_lease());
    }

    /// How long ago the node was granted the lock.
    pub(crate) fn age(&self) -> Duration {
        BootTime::now().since(self.leased.since())
    }

    /// Counts that another thread of this process takes the lock over.
    pub(crate) fn hand_over(&self) {
        self.hand_overs.fetch_add(1, Ordering::AcqRel);
    }

    /// The second part of the fencing token. It does not change while one thread has the hold.
    pub(crate) fn hand_overs(&self) -> u64 {
        self.hand_overs.load(Ordering::Acquire)
    }

    /// The node continues the hold of this other node, with its fencing token.
    pub(crate) fn continues(&self, other: &HeldNode) {
        self.hand_overs.store(other.hand_overs(), Ordering::Release);
    }

    /// Requests a watch on the node, unless one is set, without waiting for it. The session's event
    /// loop sets it (`Lease::to_watch`).
    pub(crate) fn ask_for_watch(&self) {
        if self.leased.watch() == NodeWatch::Unset {
            self.watch_again();
        }
    }

    /// Requests a new watch on the node, without waiting for it: the last one has fired, or there
    /// is none.
    pub(crate) fn watch_again(&self) {
        self.generation.lease.rearm(&self.leased);
        self.generation.wake();
    }

    /// Notes that the node was seen gone: the lock is lost.
    pub(crate) fn seen_gone(&self) {
        self.generation.lease.node_gone(&self.leased, BootTime::now());
    }

    /// Lets the lock go while other threads still have views of it. Their signals become ready.
    pub(crate) fn resign(&self) {
        self.generation.lease.resign(&self.leased, BootTime::now());
        self.release();
    }

    /// Lets the lock go; its node is deleted, whatever happens. `loss`: how the hold ended before
    /// that ([`HoldTally::end`](super::tally::HoldTally::end)).
    pub(crate) fn begin_release(&self, loss: Option<LossReason>, end_by: EndBy) -> Release {
        self.begin_release_with(&[], loss, end_by)
    }

    /// The same for this node and `others` of the same session. All deletes are sent before the
    /// first outcome is waited for.
    pub(crate) fn begin_release_with(
        &self,
        others: &[HeldNode],
        loss: Option<LossReason>,
        end_by: EndBy,
    ) -> Release {
        let mut deleted = Vec::new();
        for held_node in iter::once(self).chain(others) {
            held_node.let_go();
            let (generation, removal) = (&held_node.generation, held_node.removal.clone());
            match end_by {
                EndBy::Unlock => deleted.push(generation.remove_and_tell(removal)),
                EndBy::Drop => generation.remove(removal),
            }
        }
        Release { loss, deleted, limit: Limit::after(self.generation.operation_timeout()) }
    }

    /// Takes the node out of the lease. The caller has it deleted.
    fn let_go(&self) {
        #[cfg(zk_sim)]
        observed::notify(|| News::Released(Observed::new(self)));
        self.is_released.store(true, Ordering::Release);
        self.generation.lease.release(&self.leased);
    }

    /// Lets the lock go of a node that no guard has.
    pub(crate) fn release(&self) {
        self.let_go();
        self.generation.remove(self.removal.clone());
    }
}

impl Drop for HeldNode {
    fn drop(&mut self) {
        if !*self.is_released.get_mut() && !self.process().is_forked() {
            self.release();
        }
    }
}

impl Release {
    /// The end of a guard that ends no hold: a nested guard, or a view. Only for an `unlock` is it
    /// read whether the lock was lost: that takes a clock and a lock, and most nested guards are
    /// just dropped.
    pub(crate) fn of_guard_only(held_node: &HeldNode, end_by: EndBy) -> Self {
        Release::of_hold(if end_by == EndBy::Unlock { held_node.loss() } else { None })
    }

    /// The end of a hold whose node goes on: it is shared, kept, or handed over.
    pub(crate) fn of_hold(loss: Option<LossReason>) -> Self {
        Release { loss, deleted: Vec::new(), limit: Limit::NONE }
    }

    /// An error if the lock was lost before. Otherwise waits for the outcome of the deletes, if
    /// that was wanted. `path` is that of the node, as its user knows it.
    pub(crate) fn wait(self, path: &str) -> Result<()> {
        let (op, path) = ("unlock", path.to_owned());
        if let Some(reason) = self.loss {
            return Err(Error::Lost { path, reason });
        }
        for deleted in self.deleted {
            match self.limit.recv(&deleted) {
                Ended::Got(Ok(())) => {}
                Ended::Got(Err(code)) => return Err(error(op, path, CallError::of_removal(code))),
                // If the session has ended meanwhile, no answer can come any more. The node goes
                // with the session, but perhaps later: a server tells that it has expired the
                // session before the others have agreed, and a session that is closed here lives at
                // the server until the server hears of it. Others may find the lock taken so long.
                Ended::Deadline | Ended::Disconnected | Ended::Cancelled => {
                    return Err(Error::Unavailable { op, path, cause: Cause::ConnectionLost });
                }
            }
        }
        Ok(())
    }
}

/// Called once, when a node is lost, on any thread. It must not block, and runs no foreign code.
pub(crate) type OnLoss = Box<dyn FnOnce() + Send>;

/// How long one holder may have a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HoldBounds {
    /// After this time the hold is lost.
    pub(crate) max: Option<Duration>,
    /// When that time is over the node is deleted, although the guard still exists.
    pub(crate) releases_overdue: bool,
    /// After this time the log says that the lock is held for long.
    pub(crate) report_after: Option<Duration>,
}

impl HoldBounds {
    /// As the lease has to know them.
    pub(super) fn of_lease(self) -> Bounds {
        Bounds { max: self.max, look_after: self.report_after }
    }
}

/// What all holders of one node share beside its lease: who is told of its loss, the requests to
/// release it, the holds that are counted on it, and for how long its present holder has it.
pub(crate) struct HeldState {
    /// The node's full path.
    path: String,
    generation: Weak<Generation>,
    on_loss: Mutex<Option<OnLoss>>,
    /// Called, before `on_loss`, if the node is lost because its holder had it for too long.
    on_overdue: Mutex<Option<OnLoss>>,
    /// Happens when somebody asks the holder to release the lock.
    revocation: Once<()>,
    /// The holds of guards on the node, which are counted; `None` before the first.
    holds: OnceLock<Arc<Holds>>,
    /// When the present holder got the node.
    held_since: SharedTime,
}

impl HeldState {
    pub(super) fn new(generation: &Arc<Generation>, path: &str, on_loss: OnLoss) -> Arc<Self> {
        Arc::new(HeldState {
            path: path.to_owned(),
            generation: Arc::downgrade(generation),
            on_loss: Mutex::new(Some(on_loss)),
            on_overdue: Mutex::new(None),
            revocation: Once::default(),
            holds: OnceLock::new(),
            held_since: SharedTime::default(),
        })
    }

    /// A holder gets the node now. `on_overdue` is called if that holder has it for too long.
    pub(super) fn begin(&self, on_overdue: Option<OnLoss>) {
        let replaced = std::mem::replace(&mut *self.on_overdue.lock(), on_overdue);
        drop(replaced); // after the lock is released
        self.held_since.set(BootTime::now());
    }

    /// Takes the node's data, which says whether somebody asks for the lock.
    pub(super) fn note_data(&self, data: &[u8]) {
        if data == REVOKE_MESSAGE && self.revocation.happen(()) {
            info!("{}: somebody asks the holder to release the lock", self.path);
        }
    }

    /// Whether the holder was asked to release the lock, as far as this process has read.
    pub(crate) fn is_revoked(&self) -> bool {
        self.revocation.value().is_some()
    }

    /// A new signal for one guard. It is raised when somebody asks for the lock, until
    /// `part_revoked`.
    pub(crate) fn revoke_signal(&self) -> RevokeSignal {
        let signal = RevokeSignal::of(&Process::default());
        self.join_revoked(&signal);
        signal
    }

    /// From now on, until `part_revoked`, a request for the lock raises this signal too.
    pub(crate) fn join_revoked(&self, signal: &RevokeSignal) {
        self.revocation.join(&signal.signal);
    }

    pub(crate) fn part_revoked(&self, signal: &RevokeSignal) {
        self.revocation.part(&signal.signal);
    }

    /// The holds on the node. The first call decides which these are: `make` is called then.
    pub(crate) fn holds(&self, make: impl FnOnce() -> Arc<Holds>) -> Option<&Arc<Holds>> {
        if self.holds.get().is_none() {
            let _ = self.holds.set(make());
        }
        self.known_holds()
    }

    pub(crate) fn known_holds(&self) -> Option<&Arc<Holds>> {
        self.holds.get()
    }
}

impl Listener for HeldState {
    fn lost(&self, reason: LossReason) {
        // The node's delete is sent before the next thread of this process asks for the lock: its
        // `try_lock` would find our own node.
        if reason == LossReason::HeldTooLong {
            let on_overdue = self.on_overdue.lock().take();
            on_overdue.into_iter().for_each(|on_overdue| on_overdue());
        }
        let on_loss = self.on_loss.lock().take();
        if let Some(on_loss) = on_loss {
            on_loss();
        }
        if let Some(holds) = self.holds.get() {
            holds.lose(reason);
        }
        queued!(Warn, "{}: lock lost, {reason}", self.path);
    }

    fn read(&self, data: &[u8]) {
        self.note_data(data);
        // A kept node has no guard whose holder could release it. So the function that watches the
        // folder is called: it ends the keeping.
        if let Some(generation) = self.generation.upgrade().filter(|_| self.is_revoked()) {
            generation.folder_changed(path::parent(&self.path));
        }
    }

    fn look(&self, now: BootTime) -> BootTime {
        let lasted = now.since(self.held_since.get());
        warn!("{}: held by this process for {} s", self.path, lasted.as_secs());
        // The next line is due when the time has doubled.
        now + lasted.max(Duration::from_secs(1))
    }
}

#[cfg(test)]
impl NewNode<'_> {
    /// A node for tests, which no watch is set on.
    pub(crate) fn named(path: &str) -> NewNode<'_> {
        NewNode {
            path,
            is_fixed: false,
            czxid: 5,
            watch: NodeWatch::Unset,
            data: &[],
            removal: Removal::named(path.into(), "id".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::queue::Callbacks;
    use crate::{ZkMutex, ZkSession};
    use zk_session::world::bounded;
    use zk_test_server::{Op, TestServer};

    const SOON: Duration = Duration::from_secs(20);

    /// A session that has ended answers nothing any more.
    #[test]
    fn a_delete_that_no_server_has_confirmed_is_no_success() {
        let (done, outcome) = bounded::<Outcome>(1);
        drop(done);
        let limit = Limit::after(Duration::from_secs(20));
        let told = Release { loss: None, deleted: vec![outcome], limit }.wait("/l/n");
        assert!(matches!(told, Err(Error::Unavailable { op: "unlock", .. })), "{told:?}");
    }

    /// Without a request it is set when the node has been held for 50 ms.
    #[test]
    fn a_watch_that_a_holder_asks_for_is_requested_at_once() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let held =
            HeldNode::grant(&generation, NewNode::named("/l/n"), Callbacks::NONE.on_loss).unwrap();
        held.ask_for_watch();
        assert_ne!(held.leased().watch(), NodeWatch::Unset);
    }

    /// The thread that lets its lock go loses the processor before the lease has given the node up.
    /// If the delete were sent before, its event would make the release a loss.
    #[test]
    fn no_node_is_deleted_while_the_lease_has_it() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let mutex = ZkMutex::new(&session, "/locks/orders").unwrap();
        let (tell, told) = bounded(1);
        std::thread::scope(|scope| {
            let (mutex, server) = (&mutex, &server);
            let (go_on, gate) = bounded::<()>(0);
            scope.spawn(move || {
                let guard = mutex.lock().unwrap();
                tell.send(guard.path().to_owned()).unwrap();
                let _ = gate.recv();
                guard.unlock().unwrap();
            });
            let path = told.recv().unwrap();
            assert!(server.wait_request(Op::GetData.on(&path), SOON).is_some());
            generation.read("/", false, &Limit::NONE).unwrap();
            let stopped = generation.lease.stopped();
            drop(go_on);
            let delete = || Op::Delete.on(&path);
            assert!(server.wait_request(delete(), Duration::from_millis(300)).is_none());
            drop(stopped);
            assert!(server.wait_request(delete(), SOON).is_some());
        });
    }

    #[test]
    fn a_request_is_noticed_in_the_nodes_data_and_stays() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let state = HeldState::new(&generation, "/l/n", Box::new(|| ()));
        for (data, is_asked) in
            [(&b"host:1"[..], false), (b"__REVOKE__!", false), (b"__REVOKE__", true), (b"", true)]
        {
            state.read(data);
            let signal = state.revoke_signal();
            assert_eq!((state.is_revoked(), signal.is_requested()), (is_asked, is_asked));
        }
    }

    #[test]
    fn the_log_names_a_long_hold_again_each_time_that_it_has_doubled() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let state = HeldState::new(&generation, "/l/n", Box::new(|| ()));
        state.begin(None);
        let since = state.held_since.get();
        let second = Duration::from_secs(1);
        let looks = [second / 2, second * 2, second * 4];
        let next = looks.map(|after| state.look(since + after).since(since));
        assert_eq!(next, [second * 3 / 2, second * 4, second * 8]);
    }

    /// The next thread of this process must not come to the server before the delete of our node.
    #[test]
    fn the_node_of_an_overdue_hold_is_deleted_before_the_turn_goes_on() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let (order, seen) = bounded(2);
        let deletes = order.clone();
        let turn = Box::new(move || order.send("the turn goes on").unwrap());
        let state = HeldState::new(&generation, "/l/n", turn);
        state.begin(Some(Box::new(move || deletes.send("the node is deleted").unwrap())));
        state.lost(LossReason::HeldTooLong);
        let order: Vec<_> = seen.try_iter().collect();
        assert_eq!(order, ["the node is deleted", "the turn goes on"]);
    }
}
