//! A node of ours that was granted the lock, until it is released or lost, and the two signals that
//! its guards give out: the lock is lost; somebody asks for the lock.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootTime, SharedTime};
use crate::error::LossReason;
use crate::process::Process;
use crate::signal::{Once, Signal};
use crate::stats::Holds;
use crate::world::atomic::{AtomicU64, Ordering};
use crate::world::{LazyLock, Mutex, OnceLock, Receiver, Sender, bounded};

/// A client that asks a holder to release its lock writes this to the holder's node. Curator does
/// so too (`LockInternals.REVOKE_MESSAGE`).
pub(crate) const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// Called once, when a node is lost, on any thread. It must not block, and runs no foreign code.
pub(crate) type OnLoss = Box<dyn FnOnce() + Send>;

/// A node of ours that was granted the lock under the session's lease.
pub(crate) struct LeasedNode {
    path: String,
    /// Other clients may make nodes of the same name, so that only the czxid tells them apart.
    is_fixed: bool,
    /// When the lease granted it.
    since: SharedTime,
    /// When its present holder got it, when that holder's `max_hold` is over, and when the log says
    /// next that the holder has it for long. [`BootTime::END`]: never. Written under the lease's
    /// lock.
    pub(super) held_since: SharedTime,
    pub(super) bound: SharedTime,
    pub(super) report_at: SharedTime,
    czxid: i64,
    /// The number of the connection on which the watch on the node is set or is being set; 0 if
    /// there is no watch.
    armed_on: AtomicU64,
    loss: Once<LossReason>,
    /// Happens when somebody asks the holder to release the lock.
    revocation: Once<()>,
    on_loss: Mutex<Option<OnLoss>>,
    /// The holds of guards on it, which are counted; `None` before the first.
    holds: OnceLock<Arc<Holds>>,
    /// Called, after `on_loss`, if the node is lost because its holder had it for too long.
    on_overdue: Mutex<Option<OnLoss>>,
}

impl LeasedNode {
    /// A node whose name no other client uses. `armed_on`: the connection on which a watch on the
    /// node is set already, 0 if there is none.
    pub(crate) fn new(path: String, czxid: i64, armed_on: u64, on_loss: OnLoss) -> Arc<Self> {
        LeasedNode::make(path, false, czxid, armed_on, on_loss)
    }

    /// A node whose name other clients use too. A read has shown that this node is ours.
    pub(crate) fn fixed(path: String, czxid: i64, armed_on: u64, on_loss: OnLoss) -> Arc<Self> {
        LeasedNode::make(path, true, czxid, armed_on, on_loss)
    }

    fn make(path: String, is_fixed: bool, czxid: i64, armed_on: u64, on_loss: OnLoss) -> Arc<Self> {
        let (bound, report_at) = (SharedTime::default(), SharedTime::default());
        bound.set(BootTime::END);
        report_at.set(BootTime::END);
        Arc::new(LeasedNode {
            path,
            is_fixed,
            since: SharedTime::default(),
            held_since: SharedTime::default(),
            bound,
            report_at,
            czxid,
            armed_on: AtomicU64::new(armed_on),
            loss: Once::new(),
            revocation: Once::new(),
            on_loss: Mutex::new(Some(on_loss)),
            holds: OnceLock::new(),
            on_overdue: Mutex::new(None),
        })
    }

    /// The node's full path, chroot included.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn since(&self) -> BootTime {
        self.since.get()
    }

    pub(super) fn granted(&self, now: BootTime) {
        self.since.set(now);
    }

    /// When its holder's `max_hold` is over; [`BootTime::END`] if there is none.
    pub(crate) fn bound(&self) -> BootTime {
        self.bound.get()
    }

    /// Whether its holder has bounds.
    pub(crate) fn is_bound(&self) -> bool {
        self.bound().min(self.report_at.get()) < BootTime::END
    }

    /// The function to call if the holder has the node for too long.
    pub(crate) fn set_on_overdue(&self, on_overdue: Option<OnLoss>) {
        let replaced = std::mem::replace(&mut *self.on_overdue.lock(), on_overdue);
        drop(replaced); // after the lock is released
    }

    pub(crate) fn czxid(&self) -> i64 {
        self.czxid
    }

    /// Whether a node that was read at this path, with this czxid, is this one, and not another
    /// client's node of the same name.
    pub(crate) fn is_node(&self, czxid: i64) -> bool {
        !self.is_fixed || self.czxid == czxid
    }

    /// Takes the node's data, which says whether somebody asks for the lock.
    pub(crate) fn note_data(&self, data: &[u8]) {
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

    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.loss.value()
    }

    /// A new signal for one guard. The loss of this node raises it, until `part`.
    pub(crate) fn signal(&self) -> LostSignal {
        let signal = LostSignal::common();
        self.join(&signal);
        signal
    }

    /// From now on, until `part`, the loss of this node raises this signal too.
    pub(crate) fn join(&self, signal: &LostSignal) {
        self.loss.join(&signal.signal);
    }

    pub(crate) fn part(&self, signal: &LostSignal) {
        self.loss.part(&signal.signal);
    }

    /// The connection on which the watch on the node is set or is being set; 0 if there is none.
    pub(crate) fn armed_on(&self) -> u64 {
        self.armed_on.load(Ordering::Acquire)
    }

    pub(crate) fn set_armed_on(&self, epoch: u64) {
        self.armed_on.store(epoch, Ordering::Release);
    }

    /// The holds on this node. The first call decides which these are: `make` is called then.
    pub(crate) fn holds(&self, make: impl FnOnce() -> Arc<Holds>) -> Option<&Arc<Holds>> {
        if self.holds.get().is_none() {
            let _ = self.holds.set(make());
        }
        self.known_holds()
    }

    pub(crate) fn known_holds(&self) -> Option<&Arc<Holds>> {
        self.holds.get()
    }

    /// Marks the node as lost, for good; true the first time. The caller has the lease's lock.
    /// Without it another thread could find that the lease has given the node up, and then find
    /// that the node still counts as held.
    pub(super) fn mark(&self, reason: LossReason) -> bool {
        self.loss.happen(reason)
    }

    /// Notifies the holder of the loss. The caller has no lock, since this takes several.
    pub(super) fn notify_lost(&self) {
        let on_loss = self.on_loss.lock().take();
        if let Some(on_loss) = on_loss {
            on_loss();
        }
        if let (Some(holds), Some(reason)) = (self.holds.get(), self.loss()) {
            holds.lose(reason);
        }
        if self.loss() == Some(LossReason::HeldTooLong) {
            let on_overdue = self.on_overdue.lock().take();
            on_overdue.into_iter().for_each(|on_overdue| on_overdue());
        }
        if let Some(reason) = self.loss() {
            queued!(Warn, "{}: lock lost, {reason}", self.path);
        }
    }
}

/// A guard gives out this signal. It becomes ready if the lock is lost before that guard is
/// released, and never otherwise. Where a guard stands for several locks or permits
/// ([`ZkMultiGuard`](crate::ZkMultiGuard), a [`ZkPermit`](crate::ZkPermit) of several permits), it
/// becomes ready when the first of them is lost.
///
/// A normal release never makes it ready, and nothing that happens to the lock later does. So a
/// thread that waits on it for ever needs another way to end. (The signal of an election's term
/// becomes ready whenever the term ends.) All clones of this value are one signal.
///
/// ```no_run
/// # fn step() {}
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::crossbeam_channel::{select, tick};
/// use zk_mutex::{ZkMutex, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let mutex = ZkMutex::new(&session, "/locks/orders")?;
/// let guard = mutex.lock()?;
/// let lost = guard.lost();
///
/// // A thread that only waits.
/// if let Some(reason) = lost.wait(Duration::from_secs(60)) {
///     eprintln!("stop: {reason}");
/// }
///
/// // A thread that does something else as well.
/// let work = tick(Duration::from_secs(1));
/// loop {
///     select! {
///         recv(lost.receiver()) -> _ => break, // lost: the work stops
///         recv(work) -> _ => step(),
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LostSignal {
    signal: Arc<Signal<LossReason>>,
    /// In a forked child the signal is ready, although no thread raises it there.
    process: Process,
}

/// A channel that is ready: the receiver of all signals of a parent in its forked child. The
/// parent's own channel could be locked for ever.
static READY: LazyLock<Receiver<Infallible>> = LazyLock::new(|| bounded(0).1);

impl LostSignal {
    /// A signal for several nodes, each of which must `join` it.
    pub(crate) fn common() -> Self {
        LostSignal { signal: Signal::new(), process: Process::default() }
    }

    /// A signal that is ready.
    pub(crate) fn ready(reason: LossReason) -> Self {
        let signal = LostSignal::common();
        signal.signal.raise(reason);
        signal
    }

    /// Why the lock was lost; `None` as long as it is not.
    pub fn reason(&self) -> Option<LossReason> {
        self.signal.value().or_else(|| self.process.is_forked().then_some(LossReason::Forked))
    }

    /// Blocks until the lock is lost, and says why. `None`: it was not lost within `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<LossReason> {
        self.reason().or_else(|| self.signal.wait(timeout))
    }

    /// The signal as a channel, for `select!` with other channels. No message ever comes:
    /// `recv()` returns `Err`, and `select!` picks its arm, exactly when the lock is lost.
    ///
    /// Keep the `LostSignal`, or a clone of it. A clone of this receiver alone becomes ready as
    /// soon as the last `LostSignal` of its guard is dropped, although the lock was not lost.
    ///
    /// In a forked child this receiver is ready. A clone of it that was made before the fork never
    /// becomes ready in the child.
    pub fn receiver(&self) -> &Receiver<Infallible> {
        if self.process.is_forked() { &READY } else { self.signal.receiver() }
    }
}

impl fmt::Debug for LostSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostSignal").field("reason", &self.reason()).finish()
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

    /// The signal as a channel, for `select!`, as [`LostSignal::receiver`]. It becomes ready when
    /// somebody asks for the lock. Keep the `RevokeSignal`, or a clone of it, and not the receiver
    /// alone.
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
