//! The server's information about its sessions.

use std::time::Duration;

/// A session that lives at the server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// Its id.
    pub id: i64,
    /// The timeout that was granted to it.
    pub timeout: Duration,
    /// Whether a connection is attached to it now. A client that has gone without closing its
    /// session, or is about to connect again, is not connected.
    pub connected: bool,
    /// How many ephemeral nodes it owns.
    pub ephemerals: usize,
}
