//! `HeldRequests`: the handle of requests that are held back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::faults::HoldId;
use super::net::Shared;

/// Holds matching requests back until it is dropped: see
/// [`hold_requests`](super::TestServer::hold_requests).
#[derive(Debug)]
#[must_use = "the requests are released when this is dropped"]
pub struct HeldRequests {
    server: Weak<Shared>,
    id: HoldId,
}

impl HeldRequests {
    pub(super) fn new(server: &Arc<Shared>, id: HoldId) -> HeldRequests {
        HeldRequests { server: Arc::downgrade(server), id }
    }

    /// Waits until at least one request is held. Returns `false` if no request came in time, or if
    /// the server has stopped.
    #[must_use = "false if nothing was held in time"]
    pub fn wait(&self, timeout: Duration) -> bool {
        let Some(server) = self.server.upgrade() else { return false };
        server.wait(timeout, |core| (!core.faults.held(self.id).is_empty()).then_some(())).is_some()
    }

    /// How many requests are held now, at most one of each connection, because later requests wait
    /// behind it. A held request still counts after its client has closed the connection: the
    /// server has not read the close yet, and serves the request when the hold is released.
    pub fn count(&self) -> usize {
        let server = self.server.upgrade();
        server.map_or(0, |server| server.look(|core| core.faults.held(self.id).len()))
    }
}

impl Drop for HeldRequests {
    fn drop(&mut self) {
        if let Some(server) = self.server.upgrade() {
            server.act(|core| core.release(self.id));
        }
    }
}
