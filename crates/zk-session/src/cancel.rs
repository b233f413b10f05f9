//! `CancelToken`: ends a wait from another thread.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use crate::signal::Signal;
use crate::world::Receiver;

/// Cancels waits, from any thread: every clone of a token is the same token.
///
/// A token stays cancelled: a wait that begins later with it ends at once. Cancelling ends a wait,
/// and nothing else: if the wait has its result just before that, the call returns it.
///
/// ```
/// let token = zk_session::CancelToken::new();
/// let same = token.clone();
/// same.cancel();
/// assert!(token.is_cancelled());
/// ```
#[derive(Clone)]
pub struct CancelToken(Arc<Signal<()>>);

impl CancelToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        CancelToken(Signal::new())
    }

    /// Ends every wait that uses this token, now and in the future.
    pub fn cancel(&self) {
        self.0.raise(());
    }

    /// Whether the token was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.value().is_some()
    }

    /// The token as a channel, for `select!` with other channels. No message ever comes: `recv()`
    /// returns `Err`, and `select!` picks its arm, when the token is cancelled. Keep the token, or
    /// a clone of it, and not the receiver alone.
    pub fn receiver(&self) -> &Receiver<Infallible> {
        self.0.receiver()
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        CancelToken::new()
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken").field("is_cancelled", &self.is_cancelled()).finish()
    }
}
