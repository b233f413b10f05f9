//! What a session counts.

use super::event::SessionEvent;

/// The numbers of one session, as [`Session::stats`](crate::Session::stats) gives them. All are
/// counts since the session was connected first.
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
