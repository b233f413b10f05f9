//! `Session`: the handle of a session that an application has.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::builder::Builder;
use crate::clock::BootTime;
use crate::core::Core;
use crate::error::Result;
use crate::event::{SessionEvent, SessionState};
use crate::generation::Generation;
use crate::stats::SessionStats;
use crate::world::Receiver;

/// A supervised ZooKeeper session.
///
/// The session survives an outage: it is resumed on another connection, with back-off, for as long
/// as the server keeps it. If the server expires it, what is held in it is lost, its holders are
/// notified, and a new session is made in the background. That goes on until the session is closed.
///
/// # Handles
///
/// Clones of this value are handles of one session, and so are [`Requests`](crate::Requests). A
/// [`Watch`](crate::Watch) and an [`Ephemeral`](crate::Ephemeral) are not: they end with the
/// session. [`close`](Self::close) closes the session; so does the drop of its last handle. That
/// drop waits for the server's answer to the close and for the session's threads, for 0.95 seconds
/// at most.
///
/// # Threads
///
/// A session has two threads: one for the connection and one that supervises. Host names are looked
/// up on a thread that ends with the look-up. A session listens on no port. All sessions of a
/// process share one thread that gives their lines to the application's logger (of the crate `log`,
/// with the target `zk_session`), so that a logger that blocks delays nothing; it ends when there
/// was nothing to log for ten seconds.
///
/// # Statics, forks
///
/// Statics are not dropped at exit. So close a session that is kept in a static by hand, or its
/// ephemeral nodes stay until the server expires the session.
///
/// A session belongs to the process that connected it. In a forked child each call gives
/// [`Error::Forked`](crate::Error::Forked), the state is [`Closed`](SessionState::Closed), and a
/// drop does nothing. Connect a session of its own in the child.
///
/// # Example
///
/// ```no_run
/// # fn main() -> zk_session::Result<()> {
/// use zk_session::Session;
///
/// let session = Session::connect("zk1:2181,zk2:2181,zk3:2181/app")?;
/// println!("session 0x{:x}", session.session_id().unwrap_or(0));
/// session.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Session(pub(crate) Arc<Handle>);

/// The drop of this closes the session. The session's own threads have the `Core` only, and so do
/// not keep the session open.
pub(crate) struct Handle(pub(crate) Arc<Core>);

impl Drop for Handle {
    fn drop(&mut self) {
        if self.0.process().keeps(&self.0) {
            return;
        }
        if let Err(e) = self.0.close() {
            debug!("{e}");
        }
    }
}

impl Session {
    /// Connects with the default settings; see [`builder`](Self::builder) for others.
    ///
    /// The connect string is in ZooKeeper's format: `host[:port]` items, separated by commas, and
    /// an optional chroot: `"zk1:2181,10.0.0.7,[::1]:2182/app"`. The default port is 2181.
    ///
    /// # Errors
    ///
    /// As [`Builder::connect`].
    pub fn connect(connect_string: &str) -> Result<Self> {
        Session::builder(connect_string).connect()
    }

    /// A builder for a session with other settings.
    pub fn builder(connect_string: impl Into<String>) -> Builder {
        Builder::new(connect_string.into())
    }

    #[doc(hidden)]
    pub fn core(&self) -> &Core {
        &self.0.0
    }

    /// The current state of the session.
    pub fn state(&self) -> SessionState {
        self.core().state()
    }

    /// The session's id at the server; `None` while there is no session.
    pub fn session_id(&self) -> Option<i64> {
        self.core().generation().and_then(|generation| generation.session_id())
    }

    /// The negotiated session timeout; the requested timeout while there is no session. When the
    /// session moves to another server, the timeout may become shorter, but never longer. A new
    /// session has a timeout of its own.
    pub fn timeout(&self) -> Duration {
        self.core().timeout()
    }

    /// How long the lease of the session still lasts: for this time no server can expire the
    /// session, as the servers' answers show. The lease is renewed in the background only while
    /// something is held.
    pub fn lease_remaining(&self) -> Duration {
        let remaining = |generation: Arc<Generation>| generation.lease.remaining(BootTime::now());
        self.core().generation().map_or(Duration::ZERO, remaining)
    }

    /// What the session has counted so far: sessions, lost connections, losses. Costs nothing.
    pub fn stats(&self) -> SessionStats {
        self.core().stats()
    }

    /// A channel of the session's events from now on.
    ///
    /// The channel is bounded: a receiver that falls 16 events behind misses events in between but
    /// gets the latest. The channel is disconnected after [`SessionEvent::Closed`]. A dropped
    /// receiver is forgotten at the next event.
    pub fn subscribe(&self) -> Receiver<SessionEvent> {
        self.core().subscribe()
    }

    /// Ends the session, and with it everything that it holds.
    ///
    /// If a server can be reached, it ends the session at once. Otherwise this call gives up within
    /// a second, and the server expires the session later. Every blocked call returns
    /// [`Error::Closed`](crate::Error::Closed).
    ///
    /// This call returns when the session's threads have ended, and when the logger has the
    /// session's last lines, or after that second (the logger may take longer). The first call
    /// closes the session. Further calls, at the same time or later, wait for the first and return
    /// its outcome.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server has answered in time. Then
    /// the session is closed in this process, and the server keeps it until it expires.
    /// [`Error::Forked`](crate::Error::Forked) in a forked child: the parent's session stays as it
    /// is.
    pub fn close(&self) -> Result<()> {
        self.core().close()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.session_id().map(|id| format!("0x{id:x}")))
            .field("state", &self.state())
            .field("timeout", &self.timeout())
            .finish()
    }
}
