//! `ZkSession`: the session in which locks are made and held, and its builder. The session itself
//! is the crate `zk-session`, which knows no locks; here it gets the observers of the locks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Result;
use crate::observer::{EventQueue, Observer, Observers};
use zk_session::unstable::Core;
use zk_session::world::Receiver;
use zk_session::{Config, RetryPolicy, Session, SessionEvent, SessionState, SessionStats};

/// A supervised ZooKeeper session, in which locks are made and held.
///
/// The session survives an outage: it is resumed on another connection, with back-off, for as long
/// as the server keeps it. If the server expires it, every guard is lost, the holders are notified,
/// and a new session is made in the background. That goes on until the session is closed.
///
/// # Handles
///
/// Clones of this value are handles of one session. Each lock and each guard of the session is a
/// handle too. [`close`](Self::close) closes the session; so does the drop of its last handle. That
/// drop waits for the server's answer to the close and for the session's threads, for 0.95 seconds
/// at most. So where a guard is the last handle, its drop or its `unlock()` may take that long when
/// no server answers. Keep a clone of the session until the end of the program, or call `close`, if
/// the release of a guard must not wait.
///
/// # Threads
///
/// A session has two threads: one for the connection and one that supervises. With an
/// [`Observer`](crate::Observer) it has one more. Host names are looked up on a thread that ends
/// with the look-up. A session listens on no port. The application's client, `ZkSession::client`,
/// has threads of its own. All sessions of a process share one thread that gives their lines to the
/// application's logger, so that a logger that blocks delays nothing; it ends when there was
/// nothing to log for ten seconds.
///
/// # Statics, forks
///
/// Statics are not dropped at exit. So close a session that is kept in a static by hand, or its
/// locks stay taken until the server expires the session.
///
/// A session belongs to the process that connected it. In a forked child each call gives
/// [`Error::Forked`](crate::Error::Forked), the state is [`Closed`](SessionState::Closed), and a
/// drop does nothing. The chapter [`guide::forks`](crate::guide::forks) says what to do instead.
///
/// # Example
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::ZkSession;
///
/// let session = ZkSession::connect("zk1:2181,zk2:2181,zk3:2181/app")?;
/// println!("session 0x{:x}", session.session_id().unwrap_or(0));
/// session.close()
/// # }
/// ```
#[derive(Clone)]
pub struct ZkSession {
    pub(crate) session: Session,
    /// Where the locks report what happens; `None` without an observer.
    pub(crate) events: Option<Arc<EventQueue>>,
}

impl ZkSession {
    /// Connects with the default settings; see [`builder`](Self::builder) for others.
    ///
    /// The connect string is in ZooKeeper's format: `host[:port]` items, separated by commas, and
    /// an optional chroot: `"zk1:2181,10.0.0.7,[::1]:2182/app"`. The default port is 2181.
    ///
    /// # Errors
    ///
    /// As [`SessionBuilder::connect`].
    pub fn connect(connect_string: &str) -> Result<Self> {
        ZkSession::builder(connect_string).connect()
    }

    /// A builder for a session with other settings.
    pub fn builder(connect_string: impl Into<String>) -> SessionBuilder {
        SessionBuilder { config: Config::new(connect_string), observers: Observers::new() }
    }

    /// The session as a client of ZooKeeper: for an application that reads and writes nodes of its
    /// own, and needs no second connection and no second session for that. Its
    /// [`requests`](Session::requests) wait through outages and have deadlines; paths are below the
    /// chroot of this session. It is another handle of the same session, which each of the two can
    /// [close](Session::close).
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use zk_mutex::zk_session::CreateMode;
    /// use zk_mutex::{Acl, ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::connect("zk1:2181,zk2:2181,zk3:2181/app")?;
    /// let guard = ZkMutex::new(&session, "/locks/orders")?.lock()?;
    /// let requests = session.zookeeper().requests().within(Duration::from_secs(5));
    /// requests.create("/orders/17", b"new", CreateMode::Persistent, &Acl::Open)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn zookeeper(&self) -> &Session {
        &self.session
    }

    pub(crate) fn core(&self) -> &Core {
        self.session.core()
    }

    /// The current state of the session.
    pub fn state(&self) -> SessionState {
        self.session.status().state
    }

    /// The session's id at the server; `None` while there is no session.
    pub fn session_id(&self) -> Option<i64> {
        self.session.status().session_id
    }

    /// The negotiated session timeout; the requested timeout while there is no session. When the
    /// session moves to another server, the timeout may become shorter, but never longer. A new
    /// session has a timeout of its own.
    pub fn timeout(&self) -> Duration {
        self.session.status().timeout
    }

    /// How long the lease of the session still lasts: for this time no server can expire the
    /// session, as the servers' answers show; see [`Held`](crate::Held). The lease is renewed in
    /// the background only while a guard exists.
    pub fn lease_remaining(&self) -> Duration {
        self.session.status().lease_remaining
    }

    /// What the session has counted so far: sessions, lost connections, losses. Costs nothing.
    pub fn stats(&self) -> SessionStats {
        self.session.status().stats
    }

    /// A channel of the session's events from now on.
    ///
    /// The channel is bounded: a receiver that falls 16 events behind misses events in between but
    /// gets the latest. The channel is disconnected after [`SessionEvent::Closed`]. A dropped
    /// receiver is forgotten at the next event.
    pub fn subscribe(&self) -> Receiver<SessionEvent> {
        self.session.subscribe()
    }

    /// Ends the session, and with it every lock that it holds.
    ///
    /// If a server can be reached, it ends the session at once. Otherwise this call gives up within
    /// a second, and the server expires the session later. Every blocked call returns
    /// [`Error::Closed`](crate::Error::Closed).
    ///
    /// This call returns when the session's threads have ended, the thread of its observers
    /// included, and when the logger has the session's last lines, or after that second (an
    /// observer or the logger may take longer). If an observer itself calls this, the call does not
    /// wait for the threads. The first call closes the session. Further
    /// calls, at the same time or later, wait for the first and return its outcome.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server has answered in time. Then
    /// the session is closed in this process, and the server keeps it until it expires.
    /// [`Error::Forked`](crate::Error::Forked) in a forked child: the parent's session stays as it
    /// is.
    pub fn close(&self) -> Result<()> {
        Ok(self.session.close()?)
    }
}

impl fmt::Debug for ZkSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkSession")
            .field("id", &self.session_id().map(|id| format!("0x{id:x}")))
            .field("state", &self.state())
            .field("timeout", &self.timeout())
            .finish()
    }
}

/// The settings of a new session. [`ZkSession::builder`] makes this builder.
#[must_use = "nothing happens until connect() or connect_in_background() is called"]
pub struct SessionBuilder {
    config: Config,
    observers: Observers,
}

impl SessionBuilder {
    /// The session timeout to request; default 30 s. The server grants a timeout within its own
    /// bounds (by default 2 to 20 of its ticks); see [`ZkSession::timeout`].
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.config.session_timeout = timeout;
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
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) at once.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::TlsConfig) -> Self {
        self.config.tls = Some(tls);
        self
    }

    /// How the session comes back after an outage and how long calls wait for that; see
    /// [`RetryPolicy`].
    pub fn retry_policy(mut self, policy: RetryPolicy) -> Self {
        self.config.retry_policy = policy;
        self
    }

    /// Adds an observer: the session calls it at each event of the session and its locks. By
    /// default there is none. If this is called several times, each observer is called, in this
    /// order. See [`Observer`].
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push((Box::new(observer), false));
        self
    }

    /// The tick of the servers: `tickTime` in their configuration. With servers that are configured
    /// as usual there is no need to state it. By default the library takes half of the granted
    /// session timeout for the tick.
    ///
    /// The length of a guard's lease depends on the tick: every half tick each server reports to
    /// its leader which sessions it has heard. By default servers grant no session timeout below
    /// two ticks, so half of the timeout is never shorter than the tick. State the tick in these
    /// cases:
    ///
    /// * **`minSessionTimeout` of the servers is set below two ticks.** If the tick is not stated
    ///   then, two guards may be valid at once.
    /// * Guards should outlive longer outages. If the tick is far below the timeout and is stated,
    ///   a lease lasts up to an eighth of the timeout longer.
    ///
    /// Never state less than the real tick: then two guards can be valid at once. The library can
    /// warn of that in the log only if the servers grant another timeout than was requested, since
    /// only then their tick shows. If the servers' ticks differ, state the longest.
    ///
    /// Behind an observer master (`observerMasterPort`) no tick is right: do not use locks in
    /// sessions that are connected to observers of such a master.
    ///
    /// Keep the stated tick at or below half of the session timeout. With a longer tick only a new
    /// connection renews the lease, so the session connects anew often. A warning in the log says
    /// so.
    pub fn server_tick(mut self, tick: Duration) -> Self {
        self.config.server_tick = Some(tick);
        self
    }

    /// Whether a server that leads the ensemble may serve this session; default true. ZooKeeper
    /// calls it so (`zookeeper.leaderServes` in the servers' configuration), and advises `no` for
    /// ensembles of more than three servers that have much to do.
    ///
    /// The lease needs a write of some client from time to time. If no server that this session can
    /// be connected to ever leads, the writes of all other clients count. So as long as anybody
    /// writes, a holder writes nothing; otherwise few of all holders write, however many there are.
    /// A leader answers its own clients in another way, which shows too little: then each holder
    /// sends a small write of its own, less than two in each session timeout.
    ///
    /// State `false` only if all servers have `leaderServes=no`, or if the connect string names
    /// observers only. If a leader serves the session all the same, two guards can be valid at
    /// once, after a change of the leader. No server can be asked for this, so the library
    /// cannot find a mistake.
    pub fn leader_serves(mut self, serves: bool) -> Self {
        self.config.leader_serves = serves;
        self
    }

    /// After this time a new session is made if all servers refuse the old one because they have
    /// lost their data; by default never.
    ///
    /// A server refuses a session that has seen a later state than the server itself has. That is
    /// so for a moment when the server lags behind, or has just started and still reads its data.
    /// It is so for good when the ensemble comes back without its data, or with an older copy of
    /// it. Then the old session can never be resumed:
    /// its locks are lost as with an expiry ([`LossReason`](crate::LossReason) `LeaseExpired` or
    /// `SessionExpired`), and calls that wait begin anew in the new session. The time counts from
    /// the first refusal, and begins again whenever a host answers otherwise or cannot be reached:
    /// that host may still have the data.
    ///
    /// By default the session waits until the data is back, because only an operator knows whether
    /// it will come back. Locks and fencing tokens of an ensemble that has lost its data begin
    /// anew: a store that knows a token of before refuses the new holders. A server without a
    /// quorum closes connections in the same way. Then the library may give up a session that the
    /// servers could resume when the quorum is back. Its waiters lose their places in the queue
    /// then. So give a time that is longer than the outages which a session should survive.
    pub fn after_data_loss(mut self, wait: Duration) -> Self {
        self.config.after_data_loss = Some(wait);
        self
    }

    /// The chroot of the connect string must exist: if it does not, [`connect`](Self::connect) ends
    /// with an error, and so does a lock if the chroot is deleted later. By default the first lock
    /// makes it, and the log says so at level `info`. A chroot that does not exist is often a
    /// mistake: the connect string is mistyped, or names another ensemble. Then no other process
    /// uses the same locks. Without a chroot in the connect string this changes nothing.
    pub fn require_chroot(mut self) -> Self {
        self.config.require_chroot = true;
        self
    }

    /// Connects, and waits for the session.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for a setting that cannot work; this
    /// comes at once, and no server is dialled. (Only whether a [required
    /// chroot](Self::require_chroot) exists is asked of a server.)
    /// [`Error::Connect`](crate::Error::Connect) when no server gave a session within the connect
    /// timeout; it names each host with the reason. [`Error::Auth`](crate::Error::Auth) when a
    /// server refused the credentials.
    pub fn connect(self) -> Result<ZkSession> {
        let ZkSession { session, events } = self.connect_in_background()?;
        Ok(ZkSession { session: session.awaited()?, events })
    }

    /// A session at once, which connects in the background: a service can start before its
    /// ZooKeeper. Until a server can be reached, it is as in an outage:
    ///
    /// * [`state`](ZkSession::state) is [`Connecting`](crate::SessionState::Connecting).
    ///   [`SessionEvent::Connected`](crate::SessionEvent::Connected) says when there is a session.
    /// * Calls wait for that, as long as their deadline or the [`RetryPolicy`] allows. Calls that
    ///   do not wait, such as `try_lock`, give [`Error::Unavailable`](crate::Error::Unavailable).
    /// * The log says after 10 s what each host answers.
    ///
    /// The connect timeout does not end this: the session tries until it is closed. If a server
    /// refuses the credentials, calls give [`Error::Auth`](crate::Error::Auth), as when that
    /// happens later. If a
    /// [required chroot](Self::require_chroot) does not exist, calls give
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) until it does.
    ///
    /// ```no_run
    /// # fn main() -> zk_mutex::Result<()> {
    /// use zk_mutex::{ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::builder("zk1:2181,zk2:2181,zk3:2181").connect_in_background()?;
    /// let mutex = ZkMutex::new(&session, "/locks/orders")?;
    /// let guard = mutex.lock()?; // waits for a server, and then for the lock
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for a setting that cannot work, as
    /// from [`connect`](Self::connect).
    /// [`Error::Unavailable`](crate::Error::Unavailable) when this machine gives no thread.
    pub fn connect_in_background(self) -> Result<ZkSession> {
        let (events, observing) = if self.observers.is_empty() {
            (None, None)
        } else {
            let (events, inbox) = EventQueue::new();
            (Some(events.clone()), Some(events.observing(inbox, self.observers)))
        };
        let session = Session::start(self.config, observing)?;
        Ok(ZkSession { session, events })
    }
}
