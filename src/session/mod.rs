//! The session: the only room that knows the client crate, the wire and the network.

pub(crate) mod acl;
mod builder;
#[cfg(feature = "client")]
pub(crate) mod client;
pub(crate) mod connect_string;
pub(crate) mod connection;
pub(crate) mod core;
mod event;
pub(crate) mod generation;
mod heard;
pub(crate) mod lease;
pub(crate) mod leased_node;
pub(crate) mod nonce;
pub(crate) mod notifier;
pub(crate) mod path;
pub(crate) mod retry;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use acl::Acl;
pub use builder::SessionBuilder;
pub use event::{EventHandler, SessionEvent, SessionState};
pub use leased_node::{LostSignal, RevokeSignal};
pub use retry::RetryPolicy;

use self::core::Core;
use crate::clock::BootTime;
use crate::error::Result;
use crate::world::Receiver;

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
/// A session has two threads, one for the connection and one for the supervision, and one more if
/// an [`EventHandler`] is set. Where the servers are given by name, their addresses are looked up
/// on a thread that ends with that. A session listens on no port. A client of the application,
/// `ZkSession::client`, has threads of its own.
///
/// # Statics, forks
///
/// Statics are not dropped at exit: a session kept in one should be closed by hand, or its locks
/// stay taken until the server expires it. A session must not be used in a forked child, which has
/// none of its threads.
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
pub struct ZkSession(Arc<Handle>);

/// Its drop closes the session; the session's own threads hold the core only.
struct Handle(Arc<Core>);

impl Drop for Handle {
    fn drop(&mut self) {
        if let Err(e) = self.0.close() {
            debug!("{e}");
        }
    }
}

impl ZkSession {
    /// Connects with the default settings; see [`builder`](Self::builder) for others.
    ///
    /// The connect string is ZooKeeper's own: `host[:port]` items, separated by commas, and perhaps
    /// a chroot: `"zk1:2181,10.0.0.7,[::1]:2182/app"`. The default port is 2181.
    ///
    /// # Errors
    ///
    /// As [`SessionBuilder::connect`].
    pub fn connect(connect_string: &str) -> Result<Self> {
        ZkSession::builder(connect_string).connect()
    }

    /// Begins to describe a session.
    pub fn builder(connect_string: impl Into<String>) -> SessionBuilder {
        SessionBuilder::new(connect_string.into())
    }

    fn from_core(core: Arc<Core>) -> Self {
        ZkSession(Arc::new(Handle(core)))
    }

    pub(crate) fn core(&self) -> &Core {
        &self.0.0
    }

    /// Where the session stands now.
    pub fn state(&self) -> SessionState {
        self.core().state()
    }

    /// The session's id at the server; `None` while there is no session.
    pub fn session_id(&self) -> Option<i64> {
        self.core().generation().and_then(|generation| generation.session_id())
    }

    /// The negotiated session timeout; the requested one while there is no session. It may become
    /// shorter when the session moves to another server, never longer; a new session has its own.
    pub fn timeout(&self) -> Duration {
        self.core().timeout()
    }

    /// For how long no server can have expired this session, as far as the answers of the servers
    /// show; see [`Held`](crate::Held). It is renewed in the background only while a guard lives.
    pub fn lease_remaining(&self) -> Duration {
        let remaining =
            |generation: Arc<generation::Generation>| generation.lease.remaining(BootTime::now());
        self.core().generation().map_or(Duration::ZERO, remaining)
    }

    /// A channel of the session's events from now on.
    ///
    /// It is bounded: a receiver that falls 16 events behind misses those in between but gets the
    /// latest. It is disconnected after [`SessionEvent::Closed`]. A receiver that was dropped is
    /// forgotten at the next event.
    pub fn subscribe(&self) -> Receiver<SessionEvent> {
        self.core().subscribe()
    }

    /// The application's own client on this session: a [`zookeeper::ZooKeeper`], for what is not a
    /// lock (to register a service, to read configuration, to publish who leads). A process then
    /// has one session at the server, and a node that it makes here as ephemeral lives exactly as
    /// long as its locks do.
    ///
    /// As long as the client lives, every call gives the same one. Like any call this waits for the
    /// session to be connected, as long as the [`RetryPolicy`] says. The paths are below the chroot
    /// of the connect string.
    ///
    /// # Outages
    ///
    /// The client does not see connections come and go: its state stays `Connected`. A call returns
    /// `ConnectionLoss` after a sixth of the session timeout at the latest; whether a write was
    /// done is unknown then. Watches live on: after a reconnection they are set again, and what
    /// changed meanwhile is delivered.
    ///
    /// # The end of the session
    ///
    /// When the session is lost or closed, every call of its client returns `SessionExpired`, and
    /// its watches never fire again. Ephemeral nodes go with the session. The client tells nobody
    /// by itself: listen to the session ([`subscribe`](Self::subscribe)), and at
    /// [`SessionEvent::Connected`] call `client` again. It gives a client of the new session. The
    /// client does not keep the session open.
    ///
    /// # Closing
    ///
    /// To drop the last `Arc` of the client ends its threads and nothing else. The session and its
    /// locks go on, and so do the ephemeral nodes that the client made. A later call of this method
    /// gives a new client. (To close it does the same; but the crate logs an error where a closed
    /// client is dropped.)
    ///
    /// # Watches
    ///
    /// Use the calls that take a watcher (`get_data_w`, `exists_w`, `get_children_w`). The events
    /// of those with a flag (`exists(path, true)`) go nowhere. The crate keeps the watcher of a
    /// call that failed, and calls it at the next event of that path that another watch brings. A
    /// watcher runs on the client's event thread and may make calls, but holds up the watchers
    /// behind it. A state listener (`add_listener`) runs on the client's io thread: a call from
    /// there waits for itself for ever.
    ///
    /// # What differs from a client with a session of its own
    ///
    /// `add_auth`, `add_watch` and `remove_watches` return `Unimplemented`: credentials belong to
    /// the session ([`SessionBuilder::auth`]), which presents them on each connection; a lasting
    /// watch would miss changes in an outage, and nobody would know; and to remove watches would
    /// remove those of locks on the same node. (After a `remove_watches`, refused or not, the crate
    /// forgets other watchers of that path.) A request of 1 MiB or more returns `BadArguments` and
    /// is not sent: a server would cut the connection. An answer beyond 16 MiB is `APIError`;
    /// shorter ones, of many MiB, hold up the locks' answers behind them on a slow line.
    /// `Container` makes a container, where the crate alone makes a persistent node.
    ///
    /// # Threads and port
    ///
    /// The first call starts four threads: three of the crate (`event`, `io`, and a timer's, which
    /// bears no name of its own), and `zkm-client-N`. They talk over a loopback connection in this
    /// process. Its port listens only until the client is in, and nobody else is let in. A client
    /// that is stuck, or that reads nothing, holds up only itself, never a lock.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) where the session is not connected in
    /// time, or this machine gives no thread or socket; [`Error::Closed`](crate::Error::Closed) and
    /// [`Error::Auth`](crate::Error::Auth) as from a lock.
    ///
    /// # Example
    ///
    /// ```no_run
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use zk_mutex::zookeeper::{Acl, CreateMode};
    /// use zk_mutex::{ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::connect("zk1:2181,zk2:2181,zk3:2181/app")?;
    /// let client = session.client()?;
    /// let acl = Acl::open_unsafe().clone();
    /// client.create("/hosts/h7", b"10.0.0.7:80".to_vec(), acl, CreateMode::Ephemeral)?;
    /// let mutex = ZkMutex::new(&session, "/locks/orders")?; // of the same session
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "client")]
    pub fn client(&self) -> Result<Arc<zookeeper::ZooKeeper>> {
        self.core().client()
    }

    /// Ends the session, and with it every lock it holds.
    ///
    /// Where a server can be reached it is told at once; otherwise this gives up within a second
    /// and the server expires the session by itself. Every blocked call returns
    /// [`Error::Closed`](crate::Error::Closed).
    ///
    /// Returns once the session's threads have ended, [`EventHandler`] included, or after that
    /// second (the handler may take longer). Called by the handler itself it does not wait for the
    /// threads. The first call closes the session. Further calls, at the same time or later, wait
    /// for the first and give its outcome.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server could be told in time: the
    /// session is closed here, and lives on at the server until it expires.
    pub fn close(&self) -> Result<()> {
        self.core().close()
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
