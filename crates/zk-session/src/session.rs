//! `Session`: the handle of a session that an application has.

use std::fmt;
use std::sync::Arc;

use crate::config::Config;
use crate::core::Core;
use crate::error::{Error, Result};
use crate::event::{Observing, SessionEvent};
use crate::limit::Limit;
use crate::retry::Retry;
use crate::status::SessionStatus;
use crate::world::{Instant, Receiver, spawn_own};

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
/// A session has two threads: one for the connection and one that supervises. Each look-up of a
/// host name has a thread, which ends with it. A session listens on no port. All sessions of a
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
/// [`Error::Forked`], the state is [`Closed`](crate::SessionState::Closed), and a
/// drop does nothing. Connect a session of its own in the child.
///
/// # Example
///
/// ```no_run
/// # fn main() -> zk_session::Result<()> {
/// use zk_session::Session;
///
/// let session = Session::connect("zk1:2181,zk2:2181,zk3:2181/app")?;
/// println!("session 0x{:x}", session.status().session_id.unwrap_or(0));
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
    /// Connects, and waits for the session. The settings are a connect string, in ZooKeeper's
    /// format (`"zk1:2181,10.0.0.7,[::1]:2182/app"`), or a [`Config`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a setting that cannot work; this comes at once, and no server
    /// is dialled. (Only whether the chroot of the connect string [exists](Config::create_chroot) is
    /// asked of a server.) [`Error::Connect`] when no server gave a session within
    /// [`Config::connect_timeout`]; it names each host with the reason. [`Error::Auth`] when all
    /// servers refuse the login.
    pub fn connect(config: impl Into<Config>) -> Result<Self> {
        Session::start(config.into(), None)?.awaited()
    }

    /// A session at once, which connects in the background: a service can start before its
    /// ZooKeeper. Until a server can be reached, it is as in an outage:
    ///
    /// * [`SessionStatus::state`] is [`Connecting`](crate::SessionState::Connecting).
    ///   [`SessionEvent::Connected`](crate::SessionEvent::Connected) says when there is a session.
    /// * Calls wait for that, as long as their deadline or the [`RetryPolicy`](crate::RetryPolicy)
    ///   allows.
    /// * The log says after 10 s what each host answers.
    ///
    /// The connect timeout does not end this: the session tries until it is closed. If all
    /// servers refuse the login, calls give [`Error::Auth`], as when that happens later. If the
    /// chroot of the connect string does not exist, and the session is not to
    /// [make it](Config::create_chroot), calls give [`Error::InvalidConfig`] until it does.
    ///
    /// ```no_run
    /// # fn main() -> zk_session::Result<()> {
    /// use zk_session::Session;
    ///
    /// let session = Session::connect_in_background("zk1:2181,zk2:2181,zk3:2181")?;
    /// println!("{:?}", session.status().state); // Connecting, until a server can be reached
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a setting that cannot work, as from [`connect`](Self::connect).
    /// [`Error::Unavailable`] when this machine gives no thread.
    pub fn connect_in_background(config: impl Into<Config>) -> Result<Self> {
        Session::start(config.into(), None)
    }

    /// As [`connect_in_background`](Self::connect_in_background); everything that happens to the
    /// session is told to `observing`.
    #[doc(hidden)]
    pub fn start(config: Config, observing: Option<Observing>) -> Result<Self> {
        let ensemble = config.check()?;
        Ok(Session(Arc::new(Handle(Core::start(ensemble, config, observing)?))))
    }

    /// Waits for the connection, and closes the session if none comes within the connect timeout.
    #[doc(hidden)]
    pub fn awaited(self) -> Result<Self> {
        let (core, begun) = (self.core(), Instant::now());
        let limit = Limit::after(core.connect_timeout());
        match core.connected("connect", "", &limit, &Retry::since(begun)) {
            Ok(_) => Ok(self),
            Err(Error::Unavailable { .. }) => {
                let failure = Error::Connect { hosts: core.failures(), waited: begun.elapsed() };
                // A server may still make a session now, which must then be closed. The caller's
                // time is up, so another thread does that and waits for it. If no thread can be
                // started, the session is dropped, and so closed, right here.
                let _ = spawn_own("zkm-close".into(), move || drop(self));
                Err(failure)
            }
            Err(e) => Err(e),
        }
    }

    #[doc(hidden)]
    pub fn core(&self) -> &Core {
        &self.0.0
    }

    /// How the session is at this moment: its state, its id, its timeout, its lease, and what it
    /// has counted. This asks no server.
    pub fn status(&self) -> SessionStatus {
        self.core().status()
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
    /// [`Error::Closed`].
    ///
    /// This call returns when the session's threads have ended, and when the logger has the
    /// session's last lines, or after that second (the logger may take longer). The first call
    /// closes the session. Further calls, at the same time or later, wait for the first and return
    /// its outcome.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when no server has answered in time. Then
    /// the session is closed in this process, and the server keeps it until it expires.
    /// [`Error::Forked`] in a forked child: the parent's session stays as it
    /// is.
    pub fn close(&self) -> Result<()> {
        self.core().close()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status();
        f.debug_struct("Session")
            .field("id", &status.session_id.map(|id| format!("0x{id:x}")))
            .field("state", &status.state)
            .field("timeout", &status.timeout)
            .finish()
    }
}
