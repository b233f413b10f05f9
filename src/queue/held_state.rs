//! What all holders of one node share beside its lease: who is told of its loss, the requests to
//! release it, the holds that are counted on it, and for how long its present holder has it.

use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::LossReason;
use crate::queue::tally::Holds;
use zk_session::unstable::{
    BootTime, Bounds, Generation, Listener, Once, Process, SharedTime, Signal,
};
use zk_session::world::{LazyLock, Mutex, OnceLock, Receiver, Sender, bounded};
use zk_wire::path;

/// A client that asks a holder to release its lock writes this to the holder's node. Curator does
/// so too (`LockInternals.REVOKE_MESSAGE`).
pub(crate) const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

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

/// A channel that is never ready: the receiver of all these signals of a parent in its forked
/// child, where nobody asks. The parent's own channel could be locked for ever.
static NEVER: LazyLock<(Sender<Infallible>, Receiver<Infallible>)> = LazyLock::new(|| bounded(0));

/// A guard gives out this signal. It becomes ready if somebody asks for the lock before that guard
/// is released, and never otherwise: a release, a loss, or a request to a later holder does not
/// make it ready. All clones of this value are one signal, which stays ready.
#[derive(Clone)]
pub struct RevokeSignal {
    signal: Arc<Signal<()>>,
    process: Process,
}

impl RevokeSignal {
    /// A signal for a guard of this process.
    pub(crate) fn of(process: &Process) -> Self {
        RevokeSignal { signal: Signal::new(), process: process.clone() }
    }

    /// Whether somebody has asked for the lock.
    pub fn is_requested(&self) -> bool {
        self.signal.value().is_some()
    }

    /// Blocks until somebody asks for the lock. `false`: nobody did within `timeout`. In a forked
    /// child nobody ever asks, and the call returns at once.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.is_requested() || !self.process.is_forked() && self.signal.wait(timeout).is_some()
    }

    /// The signal as a channel, for `select!`, as
    /// [`LostSignal::receiver`](crate::LostSignal::receiver). It becomes ready when somebody asks
    /// for the lock. Keep the `RevokeSignal`, or a clone of it, and not the receiver alone.
    ///
    /// In a forked child this receiver is never ready.
    pub fn receiver(&self) -> &Receiver<Infallible> {
        if self.process.is_forked() { &NEVER.1 } else { self.signal.receiver() }
    }
}

impl fmt::Debug for RevokeSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevokeSignal").field("is_requested", &self.is_requested()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZkSession;
    use zk_test_server::TestServer;

    #[test]
    fn a_request_is_noticed_in_the_nodes_data_and_stays() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(&server.connect_string()).unwrap();
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
        let session = ZkSession::connect(&server.connect_string()).unwrap();
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
        let session = ZkSession::connect(&server.connect_string()).unwrap();
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
