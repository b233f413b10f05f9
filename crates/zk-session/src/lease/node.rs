//! A node of ours under the session's lease, until it is released or lost, and the signal that its
//! loss raises.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootTime, SharedTime};
use crate::error::LossReason;
use crate::process::Process;
use crate::signal::{Once, Signal};
use crate::world::atomic::{AtomicU64, Ordering};
use crate::world::{LazyLock, Receiver, bounded};

/// What is to hear of a node under the lease. Each function may be called on any thread. It must
/// not block, and runs no foreign code.
pub trait Listener: Send + Sync {
    /// The node is lost. It bears the mark of that already. This is called once at most, and not if
    /// the node was released or resigned.
    fn lost(&self, reason: LossReason);

    /// A read that has set a watch has shown this data of the node.
    fn read(&self, data: &[u8]);

    /// The time has come that [`Bounds::look_after`](super::Bounds::look_after) or an earlier look
    /// has named. Gives the time of the next look; `BootTime::END`: never.
    fn look(&self, now: BootTime) -> BootTime;
}

/// The watch on a node under the lease, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeWatch {
    /// None was asked for.
    Unset,
    /// It is set, or is being set, on the connection of this number.
    On(u64),
    /// It has fired, or is wanted at once.
    Due,
}

/// A node of ours under the session's lease.
pub struct LeasedNode {
    path: String,
    /// Other clients may make nodes of the same name, so that only the czxid tells them apart.
    is_fixed: bool,
    /// When the lease granted it.
    since: SharedTime,
    /// When its hold ends by itself, and when its listener looks next. [`BootTime::END`]: never.
    /// Written under the lease's lock.
    pub(super) bound: SharedTime,
    pub(super) look_at: SharedTime,
    czxid: i64,
    /// A [`NodeWatch`] as a number: that of a connection, 0 for `Unset`, the largest for `Due`.
    watch: AtomicU64,
    loss: Once<LossReason>,
    listener: Arc<dyn Listener>,
}

#[allow(missing_docs)]
impl LeasedNode {
    /// A node whose name no other client uses.
    pub fn new(
        path: String,
        czxid: i64,
        watch: NodeWatch,
        listener: Arc<dyn Listener>,
    ) -> Arc<Self> {
        LeasedNode::make(path, false, czxid, watch, listener)
    }

    /// A node whose name other clients use too. A read has shown that this node is ours.
    pub fn fixed(
        path: String,
        czxid: i64,
        watch: NodeWatch,
        listener: Arc<dyn Listener>,
    ) -> Arc<Self> {
        LeasedNode::make(path, true, czxid, watch, listener)
    }

    fn make(
        path: String,
        is_fixed: bool,
        czxid: i64,
        watch: NodeWatch,
        listener: Arc<dyn Listener>,
    ) -> Arc<Self> {
        let (bound, look_at) = (SharedTime::default(), SharedTime::default());
        bound.set(BootTime::END);
        look_at.set(BootTime::END);
        let node = LeasedNode {
            path,
            is_fixed,
            since: SharedTime::default(),
            bound,
            look_at,
            czxid,
            watch: AtomicU64::new(0),
            loss: Once::default(),
            listener,
        };
        node.set_watch(watch);
        Arc::new(node)
    }

    /// The node's full path, chroot included.
    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn since(&self) -> BootTime {
        self.since.get()
    }

    pub(super) fn granted(&self, now: BootTime) {
        self.since.set(now);
    }

    /// When its hold ends by itself; [`BootTime::END`]: never.
    pub fn bound(&self) -> BootTime {
        self.bound.get()
    }

    /// Whether it has a bound, or a look of its listener is due some time.
    pub fn is_bound(&self) -> bool {
        self.bound().min(self.look_at.get()) < BootTime::END
    }

    pub fn czxid(&self) -> i64 {
        self.czxid
    }

    /// Whether a node that was read at this path, with this czxid, is this one, and not another
    /// client's node of the same name.
    pub(crate) fn is_node(&self, czxid: i64) -> bool {
        !self.is_fixed || self.czxid == czxid
    }

    pub fn listener(&self) -> &dyn Listener {
        &*self.listener
    }

    pub fn loss(&self) -> Option<LossReason> {
        self.loss.value()
    }

    /// A new signal for one holder. The loss of this node raises it, until `part`.
    pub fn signal(&self) -> LostSignal {
        let signal = LostSignal::common();
        self.join(&signal);
        signal
    }

    /// From now on, until `part`, the loss of this node raises this signal too.
    pub fn join(&self, signal: &LostSignal) {
        self.loss.join(&signal.signal);
    }

    pub fn part(&self, signal: &LostSignal) {
        self.loss.part(&signal.signal);
    }

    pub fn watch(&self) -> NodeWatch {
        match self.watch.load(Ordering::Acquire) {
            0 => NodeWatch::Unset,
            u64::MAX => NodeWatch::Due,
            epoch => NodeWatch::On(epoch),
        }
    }

    pub(super) fn set_watch(&self, watch: NodeWatch) {
        let number = match watch {
            NodeWatch::Unset => 0,
            NodeWatch::On(epoch) => epoch,
            NodeWatch::Due => u64::MAX,
        };
        self.watch.store(number, Ordering::Release);
    }

    /// Marks the node as lost, for good; true the first time. The caller has the lease's lock.
    /// Without it another thread could find that the lease has given the node up, and then find
    /// that the node still counts as held.
    pub(super) fn mark(&self, reason: LossReason) -> bool {
        self.loss.happen(reason)
    }

    /// Notifies the listener of the loss. The caller has no lock, since this takes several.
    pub(super) fn notify_lost(&self) {
        if let Some(reason) = self.loss() {
            self.listener.lost(reason);
        }
    }
}

/// A holder of something under the lease of a session gives out this signal. It becomes ready if
/// what is held is lost before the holder releases it, and never otherwise. Where a holder has
/// several nodes, it becomes ready when the first of them is lost.
///
/// A normal release never makes it ready, and nothing that happens later does. So a thread that
/// waits on it for ever needs another way to end. All clones of this value are one signal.
///
/// ```no_run
/// # fn step() {}
/// use std::time::Duration;
/// use zk_session::LostSignal;
/// use zk_session::crossbeam_channel::{select, tick};
///
/// # fn work(lost: LostSignal) {
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
    #[doc(hidden)]
    pub fn common() -> Self {
        LostSignal { signal: Signal::new(), process: Process::default() }
    }

    /// A signal that is ready.
    #[doc(hidden)]
    pub fn ready(reason: LossReason) -> Self {
        let signal = LostSignal::common();
        signal.signal.raise(reason);
        signal
    }

    /// Why what is held was lost; `None` as long as it is not.
    pub fn reason(&self) -> Option<LossReason> {
        self.signal.value().or_else(|| self.process.is_forked().then_some(LossReason::Forked))
    }

    /// Blocks until what is held is lost, and says why. `None`: it was not lost within `timeout`.
    pub fn wait(&self, timeout: Duration) -> Option<LossReason> {
        self.reason().or_else(|| self.signal.wait(timeout))
    }

    /// The signal as a channel, for `select!` with other channels. No message ever comes:
    /// `recv()` returns `Err`, and `select!` picks its arm, exactly when what is held is
    /// lost.
    ///
    /// Keep the `LostSignal`, or a clone of it. A clone of this receiver alone becomes ready as
    /// soon as the last `LostSignal` of its holder is dropped, although nothing was lost.
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
