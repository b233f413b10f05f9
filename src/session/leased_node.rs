//! One znode of ours that is a hold: whether it stands, and the signals that it was lost, or is
//! asked for.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootTime, SharedTime};
use crate::error::LossReason;
use crate::signal::{Once, Signal};
use crate::world::atomic::{AtomicU64, Ordering};
use crate::world::{Mutex, Receiver};

/// What is written to the node of a holder who is asked to let go; Curator's
/// `LockInternals.REVOKE_MESSAGE`.
pub(crate) const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// Told once, when a hold is lost. It runs on whichever thread sees the loss first: it must not
/// block.
pub(crate) type OnLoss = Box<dyn FnOnce() + Send>;

/// A hold: a znode of ours that was granted the lock.
pub(crate) struct LeasedNode {
    path: String,
    /// Others may use the name as well: the node is known by its czxid.
    is_fixed: bool,
    /// When the lease granted it.
    since: SharedTime,
    czxid: i64,
    /// The connection (by number) on which the watch on the node stands or is being set; 0 is none.
    armed_on: AtomicU64,
    loss: Once<LossReason>,
    /// Its holder was asked to let go.
    revocation: Once<()>,
    on_loss: Mutex<Option<OnLoss>>,
}

impl LeasedNode {
    /// `armed_on`: the connection on which a watch on the node stands already, 0 if none.
    pub(crate) fn new(path: String, czxid: i64, armed_on: u64, on_loss: OnLoss) -> Arc<Self> {
        LeasedNode::make(path, false, czxid, armed_on, on_loss)
    }

    /// Of a node whose name others may use as well, which a read has shown.
    pub(crate) fn fixed(path: String, czxid: i64, armed_on: u64, on_loss: OnLoss) -> Arc<Self> {
        LeasedNode::make(path, true, czxid, armed_on, on_loss)
    }

    fn make(path: String, is_fixed: bool, czxid: i64, armed_on: u64, on_loss: OnLoss) -> Arc<Self> {
        Arc::new(LeasedNode {
            path,
            is_fixed,
            since: SharedTime::default(),
            czxid,
            armed_on: AtomicU64::new(armed_on),
            loss: Once::new(),
            revocation: Once::new(),
            on_loss: Mutex::new(Some(on_loss)),
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

    pub(crate) fn czxid(&self) -> i64 {
        self.czxid
    }

    /// Whether a read that armed the watch on this node showed it, and no other one of the same
    /// name.
    pub(crate) fn seen(&self, czxid: i64) -> bool {
        !self.is_fixed || self.czxid == czxid
    }

    /// Notes what the node's data says: whether its holder is asked to let go.
    pub(crate) fn told(&self, data: &[u8]) {
        if data == REVOKE_MESSAGE && self.revocation.happen(()) {
            info!("{}: asked to let the lock go", self.path);
        }
    }

    /// Whether the holder was asked to let go, as far as is known.
    pub(crate) fn is_revoked(&self) -> bool {
        self.revocation.value().is_some()
    }

    /// A new signal for one guard, raised when the holder is asked to let go, until `part_revoked`.
    pub(crate) fn revoke_signal(&self) -> RevokeSignal {
        let signal = RevokeSignal(Signal::new());
        self.revocation.join(&signal.0);
        signal
    }

    /// From now on, until `part_revoked`, that signal is raised too.
    pub(crate) fn join_revoked(&self, signal: &RevokeSignal) {
        self.revocation.join(&signal.0);
    }

    pub(crate) fn part_revoked(&self, signal: &RevokeSignal) {
        self.revocation.part(&signal.0);
    }

    pub(crate) fn loss(&self) -> Option<LossReason> {
        self.loss.value()
    }

    /// A new signal for one guard, raised by the loss of this hold, until `part`.
    pub(crate) fn signal(&self) -> LostSignal {
        let signal = LostSignal::common();
        self.join(&signal);
        signal
    }

    /// From now on, until `part`, the loss of this hold raises that signal too.
    pub(crate) fn join(&self, signal: &LostSignal) {
        self.loss.join(&signal.0);
    }

    pub(crate) fn part(&self, signal: &LostSignal) {
        self.loss.part(&signal.0);
    }

    /// Whether a watch stands, or is being set, on this connection.
    pub(crate) fn armed_on(&self) -> u64 {
        self.armed_on.load(Ordering::Acquire)
    }

    pub(crate) fn set_armed_on(&self, epoch: u64) {
        self.armed_on.store(epoch, Ordering::Release);
    }

    /// Marks the hold lost, for good; true the first time. Under the lease's lock, so that nobody
    /// can see a hold that the lease has let go and that still looks held.
    pub(super) fn mark(&self, reason: LossReason) -> bool {
        self.loss.happen(reason)
    }

    /// Tells of the loss, outside of any lock: a logger may block.
    pub(super) fn tell(&self) {
        let on_loss = self.on_loss.lock().take();
        if let Some(on_loss) = on_loss {
            on_loss();
        }
        if let Some(reason) = self.loss() {
            warn!("{}: lock lost, {reason}", self.path);
        }
    }
}

/// A guard gives out this signal. It becomes ready if the hold is lost before that guard is
/// released, and never otherwise. Of several holds as one ([`ZkMultiGuard`](crate::ZkMultiGuard), a
/// [`ZkPermit`](crate::ZkPermit) of several permits): if the first of them is lost.
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
pub struct LostSignal(Arc<Signal<LossReason>>);

impl LostSignal {
    /// One for several holds, which `join` it.
    pub(crate) fn common() -> Self {
        LostSignal(Signal::new())
    }

    /// Why the hold was lost, once it is.
    pub fn reason(&self) -> Option<LossReason> {
        self.0.value()
    }

    /// Blocks until the hold is lost, and says why. `None`: it was not lost within `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<LossReason> {
        self.0.wait(timeout)
    }

    /// The signal as a channel, for `select!` with other channels. No message ever comes:
    /// `recv()` returns `Err`, and `select!` picks its arm, exactly when the hold is lost.
    ///
    /// Keep the `LostSignal`, or clone that. A clone of this receiver alone becomes ready as soon
    /// as the last `LostSignal` of its guard is dropped, though nothing was lost.
    pub fn receiver(&self) -> &Receiver<Infallible> {
        self.0.receiver()
    }
}

impl fmt::Debug for LostSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LostSignal").field("reason", &self.reason()).finish()
    }
}

/// A guard gives out this signal. It becomes ready if somebody asks for the lock before that guard
/// is released, and never otherwise: a release, a loss, or a request to a later holder does not
/// make it ready. All clones of this value are one signal, which stays ready.
#[derive(Clone)]
pub struct RevokeSignal(Arc<Signal<()>>);

impl RevokeSignal {
    /// Whether the holder was asked.
    pub fn is_requested(&self) -> bool {
        self.0.value().is_some()
    }

    /// Blocks until the holder is asked. `false`: it was not asked within `timeout`.
    pub fn wait(&self, timeout: Duration) -> bool {
        self.0.wait(timeout).is_some()
    }

    /// The signal as a channel, for `select!`, as [`LostSignal::receiver`]: ready once the holder
    /// is asked. Keep the `RevokeSignal`, or clone that, and not the receiver alone.
    pub fn receiver(&self) -> &Receiver<Infallible> {
        self.0.receiver()
    }
}

impl fmt::Debug for RevokeSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevokeSignal").field("is_requested", &self.is_requested()).finish()
    }
}
