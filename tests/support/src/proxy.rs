//! A TCP proxy in front of a server. It injects faults when a test wants it, and reads ZooKeeper's
//! requests and replies as they pass.
use super::{
    op::{Request, Which},
    own_loopback, proxy_link,
};
#[cfg(feature = "tls")]
use super::{
    pki::{Leaf, Pki},
    proxy_tls, tls,
};
use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::{
    collections::{BTreeMap, VecDeque},
    fmt, io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A direction through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    ToServer,
    ToClient,
}

/// The protocol of a proxy's connections.
#[derive(Clone, Copy)]
pub(super) enum Traffic {
    /// ZooKeeper's client protocol, which the proxy reads.
    Clients,
    /// Any bytes, which the proxy does not read.
    Plain,
    /// ZooKeeper's elections: the proxy replaces the address that a member sends, so that other
    /// members connect to a proxy.
    Election { advertise: SocketAddr },
}

/// What happens when a planned fault is injected into a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The reply is lost and its connection cut.
    Cut,
    /// The reply is lost, and nothing more passes on its connection.
    Silence,
    /// The reply and all bytes after it wait, for all clients, until `hold` ends.
    Hold,
}

pub(super) struct Plan {
    pub which: Which,
    pub fault: Fault,
}

#[derive(Clone, Copy)]
pub(super) enum Fault {
    DropRequest,
    Reply(Then),
}

pub(super) struct Waiter {
    which: Which,
    of: Passing,
    tell: Sender<Request>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Passing {
    Request,
    Reply,
    /// A reply begins to wait.
    Held,
}

/// One connection through the proxy; it is cut when it is no longer in `State::links`.
pub(super) struct LinkState {
    pub client: TcpStream,
    pub server: Option<TcpStream>,
    /// All bytes are lost; the connection stays open.
    pub silent: bool,
    /// Requests that were passed to the server and are not answered: xid (None for connect),
    /// request, and the fault for the reply.
    pub pending: VecDeque<(Option<i32>, Request, Option<Then>)>,
    /// The queue of bytes for the client, once the connection is made.
    pub to_client: Option<Sender<proxy_link::Item>>,
}

#[derive(Default)]
pub(super) struct State {
    pub links: BTreeMap<u64, LinkState>,
    next_link: u64,
    held: [bool; 2],
    delay: [Duration; 2],
    /// Replies that arrived later than this wait. Watch events do not wait.
    replies_until: Option<Instant>,
    pub plans: Vec<Plan>,
    waiters: Vec<Waiter>,
    log: Vec<Request>,
    answered: Vec<Request>,
    /// The paths of the watch events that have come from the server, whether they have passed on
    /// to the client or not.
    pub events: Vec<String>,
    pub sessions: Vec<(i64, Vec<u8>)>,
}

/// The state that the threads of a proxy share.
pub(super) struct Core {
    pub upstream: SocketAddr,
    pub traffic: Traffic,
    /// For clients that connect over TLS.
    #[cfg(feature = "tls")]
    pub tls: Option<Arc<rustls::ServerConfig>>,
    state: Mutex<State>,
    changed: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A proxy on a loopback address of its own. All its connections, threads and sockets end on drop.
pub struct Proxy {
    address: SocketAddr,
    core: Arc<Core>,
    listening: Mutex<Option<Listening>>,
}

struct Listening {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Proxy {
    /// A proxy in front of the ZooKeeper server at `upstream`.
    #[track_caller]
    pub fn start(upstream: SocketAddr) -> Proxy {
        Proxy::start_at(SocketAddr::from((own_loopback(), 0)), upstream)
    }

    /// The same, with this listening address, such as `127.0.0.1:0` or `[::1]:0`.
    #[track_caller]
    pub fn start_at(address: SocketAddr, upstream: SocketAddr) -> Proxy {
        Proxy::open(address, upstream, Traffic::Clients).expect("the proxy listens")
    }

    pub(super) fn open(
        address: SocketAddr,
        upstream: SocketAddr,
        traffic: Traffic,
    ) -> io::Result<Proxy> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (state, changed) = (Mutex::default(), Condvar::new());
        let core = Arc::new(Core {
            upstream,
            traffic,
            #[cfg(feature = "tls")]
            tls: (tls::is_on() && matches!(traffic, Traffic::Clients)).then(|| {
                let leaf = Leaf::server(&[&address.ip().to_string()]);
                let file = format!("proxy-{}", uuid::Uuid::new_v4().simple());
                proxy_tls::config(&Pki::shared().issue(&file, &leaf))
            }),
            state,
            changed,
            threads: Mutex::default(),
        });
        let listening = Mutex::new(Some(Listening::start(listener, &core)));
        Ok(Proxy { address, core, listening })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// `host:port`.
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// Closes all present connections on both sides; bytes that are under way are lost.
    pub fn cut(&self) {
        log::debug!("{self}: cut");
        let mut state = self.core.state();
        let links: Vec<u64> = state.links.keys().copied().collect();
        links.into_iter().for_each(|link| state.cut(link));
        drop(state);
        self.core.changed.notify_all();
    }

    /// From now on nothing passes on the present connections, in either direction. They stay open.
    /// New connections work.
    pub fn freeze(&self) {
        log::debug!("{self}: freeze");
        self.core.state().links.values_mut().for_each(|link| link.silent = true);
    }

    /// Closes the server's side of the present connections. The clients do not notice it, as after
    /// a crash and restart of the server's host, and nothing passes to them any more.
    pub fn half_open(&self) {
        self.freeze();
        for server in self.core.state().links.values().filter_map(|link| link.server.as_ref()) {
            let _ = server.shutdown(Shutdown::Both);
        }
    }

    /// Refuses new connections, as the kernel of a host without the server does, or listens again
    /// at the same address. Present connections stay.
    #[track_caller]
    pub fn refuse(&self, on: bool) {
        log::debug!("{self}: refuse {on}");
        let mut listening = self.listening.lock();
        match (on, listening.take()) {
            (true, Some(open)) => open.stop(self.address),
            (true, None) => {}
            (false, Some(open)) => *listening = Some(open),
            (false, None) => {
                let listener =
                    TcpListener::bind(self.address).expect("the proxy's address is still its own");
                *listening = Some(Listening::start(listener, &self.core));
            }
        }
    }

    /// Lets nothing through in either direction. Connections stay open, and new ones are accepted
    /// but get no answer. Bytes that are sent meanwhile, and the end of a connection, pass when the
    /// black hole ends.
    pub fn black_hole(&self, on: bool) {
        self.hold(Direction::ToServer, on);
        self.hold(Direction::ToClient, on);
    }

    /// A black hole in one direction.
    pub fn hold(&self, direction: Direction, on: bool) {
        log::debug!("{self}: hold {direction:?} {on}");
        self.core.state().held[direction as usize] = on;
        self.core.changed.notify_all();
    }

    /// Holds back all replies that arrive from now on, or ends this. Watch events pass, unless they
    /// follow a reply that waits.
    pub fn hold_replies(&self, on: bool) {
        log::debug!("{self}: hold replies {on}");
        self.core.state().replies_until = on.then(Instant::now);
        self.core.changed.notify_all();
    }

    /// While replies are held back: lets the present ones pass, and holds back those that arrive
    /// from now on.
    pub fn pass_replies(&self) {
        self.hold_replies(true);
    }

    /// The number of requests that were read from clients, but whose replies were not read from the
    /// server.
    pub fn unanswered(&self) -> usize {
        self.core.state().links.values().map(|link| link.pending.len()).sum()
    }

    /// Delays all bytes that come from now on, in each direction.
    pub fn delay(&self, by: Duration) {
        self.core.state().delay = [by; 2];
    }

    /// Plans a fault: the next such request goes to the server, its reply is lost, and the
    /// connection is cut.
    pub fn drop_reply(&self, which: impl Into<Which>) {
        self.plan(which, Fault::Reply(Then::Cut));
    }

    /// Plans a fault: the next such request goes to the server, its reply is lost, and nothing more
    /// passes on that connection.
    pub fn silence_reply(&self, which: impl Into<Which>) {
        self.plan(which, Fault::Reply(Then::Silence));
    }

    /// Plans a fault: the next such request goes to the server. Its reply and all bytes after it
    /// are held back, as by `hold(Direction::ToClient, true)`, until that is ended. The returned
    /// value waits until the proxy has the reply.
    pub fn hold_reply(&self, which: impl Into<Which>, limit: Duration) -> Awaited {
        let which = which.into();
        let awaited = self.await_passing(which.clone(), Passing::Held, limit);
        self.plan(which, Fault::Reply(Then::Hold));
        awaited
    }

    /// Plans a fault: the next such request is lost, and its connection is cut.
    pub fn drop_request(&self, which: impl Into<Which>) {
        self.plan(which, Fault::DropRequest);
    }

    /// Forgets the planned faults that were not injected yet.
    pub fn forget_plans(&self) {
        self.core.state().plans.clear();
    }

    /// The number of planned faults that were not injected yet.
    pub fn plans(&self) -> usize {
        self.core.state().plans.len()
    }

    /// Waits for the next such request: until it is passed to the server, or lost by a fault.
    pub fn on_request(&self, which: impl Into<Which>, limit: Duration) -> Awaited {
        self.await_passing(which.into(), Passing::Request, limit)
    }

    /// Waits for the next reply to such a request: until it is passed to the client, or lost by a
    /// fault.
    pub fn on_reply(&self, which: impl Into<Which>, limit: Duration) -> Awaited {
        self.await_passing(which.into(), Passing::Reply, limit)
    }

    /// Sends bytes that are not the server's to every connected client.
    pub fn inject(&self, bytes: &[u8]) {
        for link in self.core.state().links.values() {
            if let Some(queue) = &link.to_client {
                let _ = queue.send(proxy_link::Item::bytes(bytes.to_vec()));
            }
        }
    }

    /// The sessions (id, password) that were granted through this proxy, one entry for each
    /// attachment, the newest last.
    pub fn sessions(&self) -> Vec<(i64, Vec<u8>)> {
        self.core.state().sessions.clone()
    }

    /// The requests that were passed to the server, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.core.state().log.clone()
    }

    /// The number of such requests that were passed to the server.
    pub fn count(&self, which: impl Into<Which>) -> usize {
        let which = which.into();
        self.core.state().log.iter().filter(|request| which.matches(request)).count()
    }

    /// The requests whose replies were passed to the client, in order. The server has done them.
    pub fn answered(&self) -> Vec<Request> {
        self.core.state().answered.clone()
    }

    /// The number of watch events about this node that have come from the server. They count also
    /// while the proxy holds them back.
    pub fn events(&self, path: &str) -> usize {
        self.core.state().events.iter().filter(|about| *about == path).count()
    }

    /// Forgets the requests, replies and events so far.
    pub fn clear(&self) {
        let mut state = self.core.state();
        state.log.clear();
        state.events.clear();
        state.answered.clear();
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.core.state().links.len()
    }

    fn plan(&self, which: impl Into<Which>, fault: Fault) {
        self.core.state().plans.push(Plan { which: which.into(), fault });
    }

    fn await_passing(&self, which: Which, of: Passing, limit: Duration) -> Awaited {
        let (tell, told) = bounded(1);
        let what = format!("{which:?} through the proxy");
        self.core.state().waiters.push(Waiter { which, of, tell });
        Awaited { told, what, limit }
    }
}

impl fmt::Display for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proxy to {}", self.core.upstream)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(open) = self.listening.get_mut().take() {
            open.stop(self.address);
        }
        self.cut();
        let threads = std::mem::take(&mut *self.core.threads.lock());
        for thread in threads {
            let _ = thread.join();
        }
    }
}

/// A wait for a request or reply that passes through the proxy.
#[must_use = "wait for it"]
pub struct Awaited {
    told: Receiver<Request>,
    what: String,
    limit: Duration,
}

impl Awaited {
    /// Waits until it has passed; panics if it has not within the limit from now.
    #[track_caller]
    pub fn wait(self) -> Request {
        match self.told.recv_timeout(self.limit) {
            Ok(request) => request,
            Err(_) => panic!("not within {:?}: {}", self.limit, self.what),
        }
    }

    /// Whether it has passed already.
    pub fn passed(&self) -> bool {
        !self.told.is_empty()
    }
}

impl Listening {
    fn start(listener: TcpListener, core: &Arc<Core>) -> Listening {
        let stop = Arc::new(AtomicBool::new(false));
        let (core, stopped) = (Arc::clone(core), Arc::clone(&stop));
        let accept = move || {
            for client in listener.incoming().flatten() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                core.adopt(client);
            }
        };
        let thread = thread::Builder::new()
            .name("proxy-accept".into())
            .spawn(accept)
            .expect("a thread for the proxy");
        Listening { stop, thread }
    }

    /// Returns when the listener is closed.
    fn stop(self, address: SocketAddr) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(address); // ends the wait for a connection
        let _ = self.thread.join();
    }
}

impl Core {
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn adopt(self: &Arc<Core>, client: TcpStream) {
        let Ok(copy) = client.try_clone() else { return };
        let _ = client.set_nodelay(true);
        let mut state = self.state();
        let link = state.next_link;
        state.next_link += 1;
        let pending = VecDeque::new();
        state.links.insert(
            link,
            LinkState { client: copy, server: None, silent: false, pending, to_client: None },
        );
        drop(state);
        let core = Arc::clone(self);
        let carry = move || proxy_link::carry(&core, link, client);
        let thread = thread::Builder::new()
            .name("proxy-link".into())
            .spawn(carry)
            .expect("a thread for the proxy");
        let mut threads = self.threads.lock();
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }

    /// Waits until bytes that are due at `due` may pass; false if the connection was cut.
    pub fn await_passage(
        &self,
        link: u64,
        direction: Direction,
        due: Instant,
        is_reply: bool,
    ) -> bool {
        let mut state = self.state();
        loop {
            let Some(here) = state.links.get(&link) else {
                return false;
            };
            let is_held = is_reply && state.replies_until.is_some_and(|until| until < due);
            if state.held[direction as usize] || is_held || here.silent {
                self.changed.wait(&mut state);
            } else if Instant::now() < due {
                let _ = self.changed.wait_until(&mut state, due);
            } else {
                return true;
            }
        }
    }

    /// The time at which bytes that arrive now may pass.
    pub fn due(&self, direction: Direction) -> Instant {
        Instant::now() + self.state().delay[direction as usize]
    }

    pub fn inject(&self, link: u64, then: Then) {
        log::debug!("proxy to {}: link {link}: {then:?}", self.upstream);
        let mut state = self.state();
        match then {
            Then::Cut => state.cut(link),
            Then::Silence => {
                if let Some(here) = state.links.get_mut(&link) {
                    here.silent = true;
                }
            }
            Then::Hold => state.held[Direction::ToClient as usize] = true,
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Logs a request that is about to be passed on, and takes the waits for it (or for its reply).
    /// This happens before the request passes. So a thread that has seen the effect of the request
    /// finds it in the log, and a wait that begins later is for the next request.
    pub fn announce(&self, request: &Request, of: Passing, logged: bool) -> Vec<Waiter> {
        let mut state = self.state();
        if logged {
            state.log_of(of).push(request.clone());
        }
        let meant = |waiter: &mut Waiter| waiter.of == of && waiter.which.matches(request);
        state.waiters.extract_if(.., meant).collect()
    }

    /// Takes this back for a request that did not pass.
    pub fn retract(&self, request: &Request, of: Passing, logged: bool, waiters: Vec<Waiter>) {
        let mut state = self.state();
        let log = state.log_of(of);
        if logged && let Some(at) = log.iter().rposition(|passed| passed == request) {
            log.remove(at);
        }
        state.waiters.extend(waiters);
    }
}

impl Waiter {
    pub fn tell(self, request: &Request) {
        let _ = self.tell.send(request.clone());
    }
}

impl State {
    pub fn cut(&mut self, link: u64) {
        if let Some(link) = self.links.remove(&link) {
            let _ = link.client.shutdown(Shutdown::Both);
            if let Some(server) = link.server {
                let _ = server.shutdown(Shutdown::Both);
            }
        }
    }

    fn log_of(&mut self, of: Passing) -> &mut Vec<Request> {
        if of == Passing::Request { &mut self.log } else { &mut self.answered }
    }

    /// Takes the first plan for this request.
    pub fn take_plan(&mut self, request: &Request) -> Option<Fault> {
        let at = self.plans.iter().position(|plan| plan.which.matches(request))?;
        Some(self.plans.remove(at).fault)
    }
}
