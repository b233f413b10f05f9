//! The server's thread and its sockets. One lock protects all state, and no thread waits for
//! anything while it holds the lock. So a test's change is in force when its call returns.

mod actions;
mod conn;
pub(super) mod framing;
mod listener;
mod outbox;
mod poller;
mod serve;
#[cfg(feature = "tls")]
mod subject;
#[cfg(feature = "tls")]
pub(super) mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
pub(super) mod tls;
mod turn;

use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::{Poll, Registry, Token, Waker};
use parking_lot::{Condvar, Mutex};

use self::conn::Conn;
use self::listener::Listener;
use self::outbox::Delayed;
use self::tls::{Acceptor, ServerTls};
use super::clock::Clock;
use super::engine::{ConnId, Engine, Identity, Settings};
use super::faults::{Faults, Plan};
use super::history::History;
use super::request::Event;

const WAKER: Token = Token(1);
/// Smaller numbers are the tokens of the listener and the waker.
const FIRST_CONN: ConnId = 2;

/// The state that the thread and the handles share.
#[derive(Debug)]
pub(super) struct Shared {
    core: Mutex<Core>,
    /// Signals that something was logged or held, or that the server has stopped.
    news: Condvar,
    waker: Waker,
}

/// The whole server.
pub(super) struct Core {
    pub(super) engine: Engine,
    pub(super) clock: Clock,
    pub(super) faults: Faults,
    pub(super) history: History,
    max_frame: usize,
    /// Where connections are over TLS: the files, and what was read from them.
    tls: Option<(ServerTls, Acceptor)>,
    /// `None` once the server is stopped.
    listener: Option<Listener>,
    registry: Registry,
    conns: HashMap<ConnId, Conn>,
    next_id: ConnId,
    /// Connections that may have something to serve, in the order of their requests.
    ready: VecDeque<ConnId>,
    /// Connections that have something to send.
    dirty: Vec<ConnId>,
    /// The faults of the batch that is being served: connections whose answer is to be lost.
    to_inject: Vec<(ConnId, Plan)>,
    /// Items that a `delay` holds back.
    delayed: VecDeque<Delayed>,
    /// The times at which to check whether a connection has sent or taken something.
    deadlines: BinaryHeap<turn::Deadline>,
    made: Instant,
    /// How many bytes may be added before all unsent bytes are counted again.
    slack: usize,
    /// The buffer into which sockets are read.
    buffer: Vec<u8>,
    has_news: bool,
    /// How many watch events were ever logged.
    events: u64,
}

/// Settings that the engine does not need.
#[derive(Clone, Debug)]
pub(super) struct Options {
    /// The longest frame taken, in bytes.
    pub(super) max_frame: usize,
    /// How many requests, and how many events, the log keeps.
    pub(super) log_capacity: usize,
    pub(super) tls: Option<ServerTls>,
    /// The time of day at the start; `None`: as this host's clock has it.
    pub(super) wall_clock: Option<SystemTime>,
}

impl Core {
    /// Whether the server was stopped.
    pub(super) fn is_over(&self) -> bool {
        self.listener.is_none()
    }

    /// The number of watch events that were ever logged, and all events after the first `seen` that
    /// are still in the log; `None` if there are no new ones.
    pub(super) fn events_after(&self, seen: u64) -> Option<(u64, Vec<Event>)> {
        let new = self.events.checked_sub(seen).filter(|new| *new > 0)?;
        let new = usize::try_from(new).unwrap_or(usize::MAX);
        let all = self.history.events().count();
        Some((self.events, self.history.events().skip(all.saturating_sub(new)).cloned().collect()))
    }

    /// Closes every socket.
    fn stop(&mut self) {
        self.listener = None;
        self.conns.clear();
        self.has_news = true;
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("connections", &self.conns.len()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Binds the port and starts the thread.
    pub(super) fn start(
        wanted: SocketAddr,
        clock: Clock,
        settings: Settings,
        options: Options,
    ) -> io::Result<(Arc<Shared>, JoinHandle<()>, SocketAddr)> {
        let tls = match options.tls {
            Some(tls) => {
                let acceptor = tls.load()?;
                Some((tls, acceptor))
            }
            None => None,
        };
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        let waker = Waker::new(&registry, WAKER)?;
        let listener = Listener::bind(wanted, &registry)?;
        let address = listener.address();
        let start = options.wall_clock.unwrap_or_else(SystemTime::now);
        let since = start.duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = i64::try_from(since.as_millis()).unwrap_or(0);
        let identity = Identity { server: 0, epoch, secret: fastrand::u128(..) };
        let core = Core {
            engine: Engine::new(settings, identity),
            clock,
            faults: Faults::default(),
            history: History::new(options.log_capacity),
            max_frame: options.max_frame,
            tls,
            listener: Some(listener),
            registry,
            conns: HashMap::new(),
            next_id: FIRST_CONN,
            ready: VecDeque::new(),
            dirty: Vec::new(),
            to_inject: Vec::new(),
            delayed: VecDeque::new(),
            deadlines: BinaryHeap::new(),
            made: Instant::now(),
            slack: 0,
            buffer: vec![0; 64 << 10],
            has_news: false,
            events: 0,
        };
        let shared = Arc::new(Shared { core: Mutex::new(core), news: Condvar::new(), waker });
        let thread = poller::start(poll, Arc::clone(&shared))?;
        Ok((shared, thread, address))
    }

    /// Changes the server. On return the effects are sent, as far as the sockets take the bytes.
    pub(super) fn act<T>(&self, act: impl FnOnce(&mut Core) -> T) -> T {
        let mut core = self.core.lock();
        core.set_now();
        let result = act(&mut core);
        core.turn();
        let has_news = std::mem::take(&mut core.has_news);
        drop(core);
        if has_news {
            self.news.notify_all();
        }
        if let Err(e) = self.waker.wake() {
            error!("test server: {e}"); // the thread notices the change at its next event
        }
        result
    }

    /// Reads the server's state.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Core) -> T) -> T {
        look(&self.core.lock())
    }

    /// Waits until `find` returns something. Returns `None` if the time is over or the server has
    /// stopped.
    pub(super) fn wait<T>(
        &self,
        timeout: Duration,
        mut find: impl FnMut(&Core) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now().checked_add(timeout);
        let mut core = self.core.lock();
        loop {
            if let Some(found) = find(&core) {
                return Some(found);
            }
            if core.is_over() {
                return None;
            }
            match deadline {
                Some(deadline) if self.news.wait_until(&mut core, deadline).timed_out() => {
                    return find(&core);
                }
                Some(_) => {}
                None => self.news.wait(&mut core),
            }
        }
    }

    /// Closes all sockets and makes the thread end.
    pub(super) fn stop(&self) {
        self.act(Core::stop);
    }
}
