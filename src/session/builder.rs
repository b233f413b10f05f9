//! How a session is made.

use std::time::Duration;

use super::ZkSession;
use super::connect_string::ConnectString;
use super::core::{Config, Core};
use super::event::EventHandler;
use super::retry::RetryPolicy;
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::world::{Instant, thread};

/// Settings of a new session; from [`ZkSession::builder`].
#[must_use = "nothing happens until connect() is called"]
pub struct SessionBuilder {
    connect_string: String,
    config: Config,
    handler: Option<Box<dyn EventHandler>>,
}

impl SessionBuilder {
    pub(super) fn new(connect_string: String) -> Self {
        let config = Config {
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            auth: Vec::new(),
            retry: RetryPolicy::default(),
            tick: None,
        };
        SessionBuilder { connect_string, config, handler: None }
    }

    /// The session timeout to ask for; default 30 s. The server grants what lies within its own
    /// bounds (by default 2 to 20 of its ticks); see [`ZkSession::timeout`].
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.config.timeout = timeout;
        self
    }

    /// How long [`connect`](Self::connect) tries; default 10 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.config.connect_timeout = timeout;
        self
    }

    /// Credentials for ACLs, for instance `("digest", "user:password")`; several may be given. They
    /// are presented anew on every connection, before anything else.
    pub fn auth(mut self, scheme: impl Into<String>, credentials: impl Into<Vec<u8>>) -> Self {
        self.config.auth.push((scheme.into(), credentials.into()));
        self
    }

    /// How the session comes back after an outage and how long calls wait for that; see
    /// [`RetryPolicy`].
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.config.retry = policy;
        self
    }

    /// Somebody to tell of each change of the session's state; default nobody.
    pub fn event_handler(mut self, handler: impl EventHandler) -> Self {
        self.handler = Some(Box::new(handler));
        self
    }

    /// The tick of the servers: `tickTime` in their configuration. With servers that are configured
    /// as usual there is no need to state it; it is then taken for half of the granted session
    /// timeout.
    ///
    /// The length of a guard's lease depends on it: a server tells its leader every half tick which
    /// sessions it has heard. By default servers grant no session timeout below two ticks, so half
    /// of the timeout is never too short. State the tick in these cases:
    ///
    /// * **`minSessionTimeout` of the servers is set below two ticks.** Two guards may be valid at
    ///   once otherwise.
    /// * Guards should outlive longer outages. With a tick far below the timeout, and stated, a
    ///   lease lasts up to a fifth of the timeout longer.
    ///
    /// Never state less than the real tick: then two guards can be valid at once. The library warns
    /// of it in the log only if the servers grant another timeout than was asked for, since only
    /// then does their tick show. If the servers' ticks differ, state the longest.
    ///
    /// Behind an observer master (`observerMasterPort`) no tick is right: do not connect sessions
    /// that lock through one.
    ///
    /// Keep the stated tick at or below half of the session timeout. With a longer one the session
    /// attaches anew to its servers often, because that alone keeps its lease; a warning says so.
    pub fn server_tick(mut self, tick: Duration) -> Self {
        self.config.tick = Some(tick);
        self
    }

    /// Connects, and waits for the session.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] at once, before any dialling, for a setting that cannot work;
    /// [`Error::Connect`], within the connect timeout, when no server gave a session, with each
    /// host and its reason; [`Error::Auth`] when a server refused the credentials.
    pub fn connect(self) -> Result<ZkSession> {
        let ensemble = ConnectString::parse(&self.connect_string)?;
        let Config { timeout, connect_timeout, auth, retry, tick } = &self.config;
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
            if scheme.is_empty() || scheme.len() > 1024 || credentials.len() > 64 << 10 {
                return Err(Error::InvalidConfig {
                    what: "auth",
                    reason: format!(
                        "the scheme {scheme:?} must have 1 to 1024 bytes, the credentials at most 64 KiB"
                    ),
                });
            }
        }
        let start = Instant::now();
        let session = ZkSession::from_core(Core::start(ensemble, self.config, self.handler)?);
        match session.core().first_connection(&Limit::after(connect_timeout)) {
            Ok(_) => Ok(session),
            Err(Error::Unavailable { .. }) => {
                let hosts = session.core().failures();
                let failure = Error::Connect { hosts, waited: start.elapsed() };
                // A host that is being asked just now may still make a session, and is told that
                // nobody wants it. The caller's time is up: that is waited for elsewhere, or here
                // where there is no thread.
                let _ =
                    thread::Builder::new().name("zkm-close".into()).spawn(move || drop(session));
                Err(failure)
            }
            Err(e) => Err(e),
        }
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
