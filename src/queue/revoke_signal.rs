//! `RevokeSignal`: how a guard's thread learns that somebody asks for its lock.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use zk_session::unstable::{Process, Signal};
use zk_session::world::{LazyLock, Receiver, Sender, bounded};

/// A client that asks a holder to release its lock writes this to the holder's node. Curator does
/// so too (`LockInternals.REVOKE_MESSAGE`).
pub(crate) const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// A channel that is never ready: the receiver of all these signals of a parent in its forked
/// child, where nobody asks. The parent's own channel could be locked for ever.
static NEVER: LazyLock<(Sender<Infallible>, Receiver<Infallible>)> = LazyLock::new(|| bounded(0));

/// A guard gives out this signal. It becomes ready if somebody asks for the lock before that guard
/// is released, and never otherwise: a release, a loss, or a request to a later holder does not
/// make it ready. All clones of this value are one signal, which stays ready.
#[derive(Clone)]
pub struct RevokeSignal {
    pub(super) signal: Arc<Signal<()>>,
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
