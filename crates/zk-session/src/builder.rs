//! The builder of a session: its settings and their checks, and the first connection.

use std::sync::Arc;
use std::time::Duration;

use super::connect_string::ConnectString;
use super::core::{Config, Core};
use super::retry::{Retry, RetryPolicy};
use super::session::{Handle, Session};
use crate::error::{Error, Result};
use crate::event::Observing;
use crate::limit::Limit;
use crate::world::{Instant, spawn_own};

/// The settings of a new session. [`Session::builder`] makes this builder.
#[must_use = "nothing happens until connect() or connect_in_background() is called"]
pub struct Builder {
    connect_string: String,
    config: Config,
    observing: Option<Observing>,
}

impl Builder {
    pub(super) fn new(connect_string: String) -> Self {
        let config = Config {
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            auth: Vec::new(),
            retry: RetryPolicy::default(),
            tick: None,
            tls: None,
            after_data_loss: None,
            requires_chroot: false,
        };
        Builder { connect_string, config, observing: None }
    }

    /// The session timeout to request; default 30 s. The server grants a timeout within its own
    /// bounds (by default 2 to 20 of its ticks); see [`Session::timeout`].
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// How long [`connect`](Self::connect) tries; default 10 s. One attempt at a host takes only a
    /// part of this time.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// Credentials for ACLs, for instance `("digest", "user:password")`; several may be given. They
    /// are presented anew on every connection, before anything else. Credentials of the scheme
    /// `digest` without a colon are refused by [`connect`](Self::connect).
    pub fn auth(mut self, scheme: impl Into<String>, credentials: impl Into<Vec<u8>>) -> Self {
        self.config.auth.push((scheme.into(), credentials.into()));
        self
    }

    /// Connects over TLS; by default connections are not encrypted. See
    /// [`TlsConfig`](crate::TlsConfig) for what is checked, and for the servers' side.
    ///
    /// If a server does not pass the checks or does not let us in, [`connect`](Self::connect) says
    /// so for each host, with what to do. If a file cannot be used, it says
    /// [`Error::InvalidConfig`] at once.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::TlsConfig) -> Self {
        self.config.tls = Some(tls);
        self
    }

    /// How the session comes back after an outage and how long calls wait for that; see
    /// [`RetryPolicy`].
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.config.retry = policy;
        self
    }

    /// Everything that happens to the session is told to `observing`.
    #[doc(hidden)]
    pub fn observed_by(mut self, observing: Observing) -> Self {
        self.observing = Some(observing);
        self
    }

    /// The tick of the servers: `tickTime` in their configuration. With servers that are configured
    /// as usual there is no need to state it. By default the library takes half of the granted
    /// session timeout for the tick.
    ///
    /// The length of the lease depends on the tick: every half tick each server reports to
    /// its leader which sessions it has heard. By default servers grant no session timeout below
    /// two ticks, so half of the timeout is never shorter than the tick. State the tick in these
    /// cases:
    ///
    /// * **`minSessionTimeout` of the servers is set below two ticks.** If the tick is not stated
    ///   then, two clients may hold the same thing at once.
    /// * What is held should outlive longer outages. If the tick is far below the timeout and is
    ///   stated, a lease lasts up to a fifth of the timeout longer.
    ///
    /// Never state less than the real tick: then two clients can hold the same thing at once. The
    /// library can warn of that in the log only if the servers grant another timeout than was
    /// requested, since only then their tick shows. If the servers' ticks differ, state the
    /// longest.
    ///
    /// Behind an observer master (`observerMasterPort`) no tick is right: hold nothing in sessions
    /// that are connected to observers of such a master.
    ///
    /// Keep the stated tick at or below half of the session timeout. With a longer tick only a new
    /// connection renews the lease, so the session connects anew often. A warning in the log says
    /// so.
    pub fn server_tick(mut self, tick: Duration) -> Self {
        self.config.tick = Some(tick);
        self
    }

    /// After this time a new session is made if all servers refuse the old one because they have
    /// lost their data; by default never.
    ///
    /// A server refuses a session that has seen a later state than the server itself has. That is
    /// so for a moment when the server lags behind, or has just started and still reads its data.
    /// It is so for good when the ensemble comes back without its data, or with an older copy of
    /// it. Then the old session can never be resumed:
    /// what it holds is lost as with an expiry ([`LossReason`](crate::LossReason) `LeaseExpired` or
    /// `SessionExpired`), and calls that wait begin anew in the new session. The time counts from
    /// the first refusal, and begins again whenever a host answers otherwise or cannot be reached:
    /// that host may still have the data.
    ///
    /// By default the session waits until the data is back, because only an operator knows whether
    /// it will come back. Transaction numbers of an ensemble that has lost its data begin anew. A
    /// server without a quorum closes connections in the same way. Then the library may give up a
    /// session that the servers could resume when the quorum is back, and its ephemeral nodes are
    /// lost. So give a time that is longer than the outages which a session should survive.
    pub fn after_data_loss(mut self, wait: Duration) -> Self {
        self.config.after_data_loss = Some(wait);
        self
    }

    /// The chroot of the connect string must exist: if it does not, [`connect`](Self::connect) ends
    /// with an error, and so does a call if the chroot is deleted later. By default the first
    /// [`hold`](Session::hold) makes it, and the log says so at level `info`. A chroot that does
    /// not exist is often a mistake: the connect string is mistyped, or names another ensemble.
    /// Then no other process uses the same nodes. Without a chroot in the connect string this
    /// changes nothing.
    pub fn require_chroot(mut self) -> Self {
        self.config.requires_chroot = true;
        self
    }

    /// Connects, and waits for the session.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a setting that cannot work; this comes at once, and no server
    /// is dialled. (Only whether a [required chroot](Self::require_chroot) exists is asked of a
    /// server.) [`Error::Connect`] when no server gave a session within the connect timeout; it
    /// names each host with the reason. [`Error::Auth`] when a server refused the credentials.
    pub fn connect(self) -> Result<Session> {
        let timeout = self.config.connect_timeout;
        let start = Instant::now();
        let session = self.connect_in_background()?;
        let connected = session.core().connected(
            "connect",
            "",
            &Limit::after(timeout),
            &Retry::since(Instant::now()),
        );
        match connected {
            Ok(_) => Ok(session),
            Err(Error::Unavailable { .. }) => {
                let hosts = session.core().failures();
                let failure = Error::Connect { hosts, waited: start.elapsed() };
                // A server may still make a session now, which must then be closed. The caller's
                // time is up, so another thread does that and waits for it. If no thread can be
                // started, the session is dropped, and so closed, right here.
                let _ = spawn_own("zkm-close".into(), move || drop(session));
                Err(failure)
            }
            Err(e) => Err(e),
        }
    }

    /// A session at once, which connects in the background: a service can start before its
    /// ZooKeeper. Until a server can be reached, it is as in an outage:
    ///
    /// * [`state`](Session::state) is [`Connecting`](crate::SessionState::Connecting).
    ///   [`SessionEvent::Connected`](crate::SessionEvent::Connected) says when there is a session.
    /// * Calls wait for that, as long as their deadline or the [`RetryPolicy`] allows.
    /// * The log says after 10 s what each host answers.
    ///
    /// The connect timeout does not end this: the session tries until it is closed. If a server
    /// refuses the credentials, calls give [`Error::Auth`], as when that happens later. If a
    /// [required chroot](Self::require_chroot) does not exist, calls give
    /// [`Error::InvalidConfig`] until it does.
    ///
    /// ```no_run
    /// # fn main() -> zk_session::Result<()> {
    /// use zk_session::Session;
    ///
    /// let session = Session::builder("zk1:2181,zk2:2181,zk3:2181").connect_in_background()?;
    /// println!("{:?}", session.state()); // Connecting, until a server can be reached
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] for a setting that cannot work, as from [`connect`](Self::connect).
    /// [`Error::Unavailable`] when this machine gives no thread.
    pub fn connect_in_background(self) -> Result<Session> {
        let ensemble = ConnectString::parse(&self.connect_string)?;
        let Config { timeout, connect_timeout, auth, retry, tick, tls, .. } = &self.config;
        let (timeout, connect_timeout) = (*timeout, *connect_timeout);
        check_millis("session timeout", timeout)?;
        check_millis("connect timeout", connect_timeout)?;
        retry.check()?;
        if let Some(tick) = *tick {
            check_millis("server tick", tick)?;
            if tick > timeout {
                return Err(Error::InvalidConfig {
                    what: "server tick",
                    reason: format!(
                        "{tick:?} is longer than the session timeout, {timeout:?}: ask for a session timeout of two ticks or more"
                    ),
                });
            }
        }
        for (scheme, credentials) in auth {
            let refused = |reason| Err(Error::InvalidConfig { what: "auth", reason });
            if scheme.is_empty() || scheme.len() > 1024 || credentials.len() > 64 << 10 {
                return refused(format!(
                    "the scheme {scheme:?} must have 1 to 1024 bytes, the credentials at most 64 KiB"
                ));
            }
            // A server accepts digest credentials without a colon, and then takes the whole secret
            // for the user's name, which it writes into the ACLs.
            if scheme == "digest" && !credentials.contains(&b':') {
                return refused("digest credentials are `user:password`, with a colon".to_owned());
            }
        }
        if let Some(tls) = tls {
            tls.check(&ensemble.hosts)?;
        }
        Ok(Session(Arc::new(Handle(Core::start(ensemble, self.config, self.observing)?))))
    }
}

/// A duration that ZooKeeper can carry: 1 ms to `i32::MAX` ms.
fn check_millis(what: &'static str, d: Duration) -> Result<()> {
    if d.as_millis() == 0 || d.as_millis() > i32::MAX as u128 {
        return Err(Error::InvalidConfig {
            what,
            reason: format!("{d:?} is not between 1 ms and {} ms", i32::MAX),
        });
    }
    Ok(())
}
