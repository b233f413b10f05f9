//! `ZkSession`: the session in which locks are made and held, and its builder. The session itself
//! is the crate `zk-session`, which knows no locks; here it gets the observers of the locks.

use std::fmt;
use std::sync::Arc;

use crate::error::Result;
use crate::observer::{EventQueue, Observer, Observers};
use crate::queue::memory::Memory;
use zk_session::unstable::Core;
use zk_session::world::Receiver;
use zk_session::{Config, Session, SessionEvent, SessionStatus};

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
/// [`Observer`](crate::Observer) it has one more. Each look-up of a host name has a thread, which
/// ends with it. A session listens on no port. The application's client, `ZkSession::client`,
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
/// [`Error::Forked`](crate::Error::Forked), the state is [`Closed`](crate::SessionState::Closed),
/// and a drop does nothing. The chapter [`guide::forks`](crate::guide::forks) says what to do
/// instead.
///
/// # Example
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::ZkSession;
///
/// let session = ZkSession::connect("zk1:2181,zk2:2181,zk3:2181/app")?;
/// println!("{:?}", session.status().state);
/// session.close()
/// # }
/// ```
#[derive(Clone)]
pub struct ZkSession {
    pub(crate) session: Session,
    /// Where the locks report what happens; `None` without an observer.
    pub(crate) events: Option<Arc<EventQueue>>,
    /// What the locks of the session remember.
    pub(crate) memory: Arc<Memory>,
}

impl ZkSession {
    /// Connects, and waits for the session. A connect string alone, such as
    /// `"zk1:2181,zk2:2181,zk3:2181/app"`, stands for the default settings; [`Config`] has all
    /// settings.
    ///
    /// ```no_run
    /// # fn main() -> zk_mutex::Result<()> {
    /// use std::time::Duration;
    /// use zk_mutex::{Config, ZkSession};
    ///
    /// let config = Config::new("zk1:2181,zk2:2181,zk3:2181/app")
    ///     .session_timeout(Duration::from_secs(10))
    ///     .auth("digest", "orders:secret");
    /// let session = ZkSession::connect(config)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) for a setting that cannot work; this
    /// comes at once, and no server is dialled. (Only whether the chroot of the connect string
    /// [exists](Config::create_chroot) is asked of a server.)
    /// [`Error::Connect`](crate::Error::Connect) when no server gave a session within the connect
    /// timeout; it names each host with the reason. [`Error::Auth`](crate::Error::Auth) when all
    /// servers refuse the login.
    pub fn connect(config: impl Into<Config>) -> Result<Self> {
        ZkSession::builder(config).connect()
    }

    /// A builder for a session with observers, or for one that connects in the background.
    pub fn builder(config: impl Into<Config>) -> SessionBuilder {
        SessionBuilder { config: config.into(), observers: Observers::new() }
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

    /// How the session is at this moment: its state, its id, its timeout, its lease, and what it
    /// has counted. This asks no server.
    ///
    /// ```no_run
    /// # fn main() -> zk_mutex::Result<()> {
    /// use zk_mutex::{SessionState, ZkSession};
    ///
    /// let status = ZkSession::connect("127.0.0.1:2181")?.status();
    /// println!("healthy: {}", status.state == SessionState::Connected);
    /// println!("session 0x{:x}, {:?}", status.session_id.unwrap_or(0), status.timeout);
    /// println!("{} connections were lost", status.stats.connections_lost);
    /// # Ok(())
    /// # }
    /// ```
    pub fn status(&self) -> SessionStatus {
        self.session.status()
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
        let status = self.status();
        f.debug_struct("ZkSession")
            .field("id", &status.session_id.map(|id| format!("0x{id:x}")))
            .field("state", &status.state)
            .field("timeout", &status.timeout)
            .finish()
    }
}

/// A new session and its observers. [`ZkSession::builder`] makes this builder.
#[must_use = "nothing happens until connect() or connect_in_background() is called"]
pub struct SessionBuilder {
    config: Config,
    observers: Observers,
}

impl SessionBuilder {
    /// Adds an observer: the session calls it at each event of the session and its locks. By
    /// default there is none. If this is called several times, each observer is called, in this
    /// order. See [`Observer`].
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers.push((Box::new(observer), false));
        self
    }

    /// Connects, and waits for the session.
    ///
    /// # Errors
    ///
    /// As [`ZkSession::connect`].
    pub fn connect(self) -> Result<ZkSession> {
        let ZkSession { session, events, memory } = self.connect_in_background()?;
        Ok(ZkSession { session: session.awaited()?, events, memory })
    }

    /// A session at once, which connects in the background: a service can start before its
    /// ZooKeeper. Until a server can be reached, it is as in an outage:
    ///
    /// * [`SessionStatus::state`] is [`Connecting`](crate::SessionState::Connecting).
    ///   [`SessionEvent::Connected`](crate::SessionEvent::Connected) says when there is a session.
    /// * Calls wait for that, as long as their deadline or the [`RetryPolicy`](crate::RetryPolicy)
    ///   allows. Calls that do not wait, such as `try_lock`, give
    ///   [`Error::Unavailable`](crate::Error::Unavailable).
    /// * The log says after 10 s what each host answers.
    ///
    /// The connect timeout does not end this: the session tries until it is closed. If all servers
    /// refuse the login, calls give [`Error::Auth`](crate::Error::Auth), as when that happens
    /// later. If the chroot of the connect string does not exist, and the session is not to [make
    /// it](Config::create_chroot), calls give
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
        Ok(ZkSession { session, events, memory: Arc::default() })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Member, ZkElection, ZkExclusiveLock, ZkMultiLock, ZkMutex, ZkRwLock, ZkSemaphore};
    use zk_session::kept::Kept;
    use zk_test_server::TestServer;
    use zk_test_support::until;

    const SOON: Duration = Duration::from_secs(20);

    /// A program may use a path once and never again.
    #[test]
    fn a_session_keeps_nothing_of_locks_that_are_gone() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        for round in 0..2 {
            let at = |name: &str| format!("/{round}/{name}");
            let keep = Duration::from_millis(1);
            let builder = ZkMutex::builder(&session, at("kept")).keep(keep);
            let kept_mutex = builder.max_hold(SOON).warn_held_after(SOON).build().unwrap();
            drop(kept_mutex.lock().unwrap().lost());
            let mutex = ZkMutex::new(&session, at("mutex")).unwrap();
            let rwlock = ZkRwLock::new(&session, at("rwlock")).unwrap();
            let members = [Member::from(&mutex), Member::write(&rwlock)];
            let multi = ZkMultiLock::new(members).unwrap();
            let guard = multi.lock().unwrap();
            std::thread::scope(|scope| {
                let tried = || mutex.try_lock().is_err() && rwlock.try_read().is_err();
                assert!(scope.spawn(tried).join().unwrap());
            });
            drop((guard.lost(), guard));
            let semaphore = ZkSemaphore::new(&session, at("semaphore"), 3).unwrap();
            drop(semaphore.acquire_many(2).unwrap().lost());
            drop(ZkExclusiveLock::new(&session, at("exclusive")).unwrap().lock().unwrap());
            let election = ZkElection::new(&session, at("election")).unwrap();
            let candidate = election.join().unwrap();
            drop(candidate.wait_leader().unwrap().lost());
            candidate.leave().unwrap();
        }
        let zookeeper = session.zookeeper();
        drop(zookeeper.requests().hold("/held-", b"", &crate::Acl::Open).unwrap());
        drop(zookeeper.requests().watch("/", zk_session::Watched::Children).unwrap());
        until("the session keeps nothing", SOON, || {
            let kept = session.core().kept();
            // The last released hold may stay in this list (`Lease::next_watch`).
            let nothing = Kept { unwatched: kept.unwatched.min(1), ..Kept::default() };
            (kept == nothing).then_some(())
        });
    }
}
