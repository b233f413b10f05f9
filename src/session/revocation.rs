//! A holder is asked to let go: by the data of its node, as Curator's `Revoker` does it.

use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

/// What is written to the node; Curator's `LockInternals.REVOKE_MESSAGE`.
pub(crate) const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// Whether the holder of one node was asked.
pub(crate) struct Revocation {
    /// Gone once it was.
    sender: Mutex<Option<Sender<Infallible>>>,
    receiver: Receiver<Infallible>,
}

impl Revocation {
    pub(super) fn new() -> Arc<Self> {
        let (sender, receiver) = bounded(0);
        Arc::new(Revocation { sender: Mutex::new(Some(sender)), receiver })
    }

    /// True the first time.
    pub(super) fn request(&self) -> bool {
        self.sender.lock().take().is_some()
    }

    pub(super) fn is_requested(&self) -> bool {
        self.sender.lock().is_none()
    }

    pub(super) fn signal(self: &Arc<Self>) -> RevokeSignal {
        RevokeSignal(self.clone())
    }
}

/// Becomes ready when somebody asks the holder to let go, and never otherwise.
///
/// It is a `crossbeam_channel::Receiver` that carries no message, as [`LostSignal`](crate::LostSignal): `recv()` returns `Err` (and
/// `select!` picks its arm) once somebody asked, in every clone of this value, and from then on. Neither a release nor a loss fires it.
///
/// Keep or clone the `RevokeSignal` itself: a receiver cloned out of it is only good while a `RevokeSignal` of the same hold lives.
#[derive(Clone)]
pub struct RevokeSignal(Arc<Revocation>);

impl RevokeSignal {
    /// Whether the holder was asked.
    pub fn is_requested(&self) -> bool {
        self.0.is_requested()
    }
}

impl Deref for RevokeSignal {
    type Target = Receiver<Infallible>;

    fn deref(&self) -> &Self::Target {
        &self.0.receiver
    }
}

impl fmt::Debug for RevokeSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevokeSignal").field("is_requested", &self.is_requested()).finish()
    }
}
