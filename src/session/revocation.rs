//! A holder is asked to let go: by the data of its node, as Curator's `Revoker` does it.

use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::signal::Signal;
use crate::world::Receiver;

/// What is written to the node; Curator's `LockInternals.REVOKE_MESSAGE`.
pub(crate) const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// A guard gives out this signal. It becomes ready if somebody asks for the lock before that guard
/// is released, and never otherwise.
///
/// It is a `crossbeam_channel::Receiver` that carries no message, as [`LostSignal`](crate::LostSignal): `recv()` returns `Err` (and
/// `select!` picks its arm) once somebody asked, in every clone of this value, and from then on.
/// A release, a loss, or a request to a later holder does not fire it.
///
/// Keep or clone the `RevokeSignal` itself: a receiver cloned out of it is only good while a
/// `RevokeSignal` of the same guard lives.
#[derive(Clone)]
pub struct RevokeSignal(pub(super) Arc<Signal<()>>);

impl RevokeSignal {
    /// Whether the holder was asked.
    pub fn is_requested(&self) -> bool {
        self.0.value().is_some()
    }
}

impl Deref for RevokeSignal {
    type Target = Receiver<Infallible>;

    fn deref(&self) -> &Self::Target {
        self.0.receiver()
    }
}

impl fmt::Debug for RevokeSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevokeSignal").field("is_requested", &self.is_requested()).finish()
    }
}
