//! How a session is, and what it has counted.

use std::time::Duration;

use crate::event::{SessionEvent, SessionState};

/// How a session is at this moment; [`Session::status`](crate::Session::status) gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStatus {
    /// The state of the session.
    pub state: SessionState,
    /// The session's id at the server; `None` while there is no session.
    pub session_id: Option<i64>,
    /// The negotiated session timeout; the requested timeout while there is no session. When the
    /// session moves to another server, the timeout may become shorter, but never longer. A new
    /// session has a timeout of its own.
    pub timeout: Duration,
    /// How long the lease of the session still lasts: for this time no server can expire the
    /// session, as the servers' answers show. The lease is renewed in the background only while
    /// something is held.
    pub lease_remaining: Duration,
    /// What the session has counted so far.
    pub stats: SessionStats,
}

/// The numbers of one session. All are counts since the session was connected first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionStats {
    /// Sessions that servers have made: one, and one more after each loss.
    pub sessions: u64,
    /// Lost connections.
    pub connections_lost: u64,
    /// Lost connections after which the same session was resumed.
    pub reconnected: u64,
    /// Lost sessions, and with each what was held in it.
    pub sessions_lost: u64,
}

impl SessionStats {
    pub(crate) fn count(&mut self, event: &SessionEvent) {
        let counter = match event {
            SessionEvent::Connected { .. } => &mut self.sessions,
            SessionEvent::Suspended => &mut self.connections_lost,
            SessionEvent::Reconnected => &mut self.reconnected,
            SessionEvent::Lost(_) => &mut self.sessions_lost,
            SessionEvent::Closed => return,
        };
        *counter += 1;
    }
}
