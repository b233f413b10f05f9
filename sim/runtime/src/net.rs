//! The network between hosts, and the servers in it.
//!
//! Processes connect with [`TcpStream`](crate::library::TcpStream). The other end of a connection
//! is a [`Service`]. It has no threads: the network calls it when something arrives. Between
//! servers, a [`Wire`] carries all messages. Each direction between two hosts is a link, which can
//! delay, freeze or lose messages. The messages of one wire (one direction of one connection)
//! arrive in order or not at all.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::{self, Sim};
use crate::net_client::Socket;
use crate::process::{self, Death, ProcessId};

/// A connection of a client to a service. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A service that accepts connections at an address. The network calls it between the steps of the
/// threads, and it must not block. It answers with [`send`] and [`close`].
pub trait Service {
    /// A client has connected, to `at` from `from`.
    fn opened(&mut self, conn: ConnId, at: SocketAddr, from: SocketAddr);
    /// The client has sent these bytes. The service has to find the ends of messages itself.
    fn bytes(&mut self, conn: ConnId, bytes: &[u8]);
    /// The client's end is closed, or the connection is cut. Not called after [`close`].
    fn closed(&mut self, conn: ConnId);
}

/// What the link from one host to another does with messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flow {
    /// Messages arrive after the link's delay.
    #[default]
    Open,
    /// Messages are held, and arrive when the link is open again.
    Frozen,
    /// Messages are lost, and all later ones on the same wire too: a connection that has lost bytes
    /// stays broken in that direction, as if a firewall had forgotten it. New connections work.
    Hole,
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Side {
    /// The end of the process.
    Client,
    /// The end of the service.
    Server,
}

/// A connection, for the choice of a fault's target.
#[derive(Clone, Debug)]
pub struct Connection {
    /// Its number.
    pub id: ConnId,
    /// The client.
    pub process: ProcessId,
    /// The client's address.
    pub from: SocketAddr,
    /// The service's address.
    pub to: SocketAddr,
}

/// The resolver's answer for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The name has these addresses.
    Addresses(Vec<IpAddr>),
    /// There is no such name.
    NoSuchName,
    /// The resolver cannot say it now.
    Failure,
}

/// A step of a process on its way to a server.
#[derive(Clone, Debug)]
pub enum Dialling {
    /// A look-up of this name has ended with this answer.
    Answered(String, Answer),
    /// A connection to this address begins.
    Dialled(SocketAddr),
}

/// The way of the messages from one host to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Messages arrive, and no later than usual.
    pub is_open: bool,
    /// Since when nothing has changed on the way.
    pub since: Duration,
}

#[derive(Default)]
struct Link {
    delay: Option<(Duration, Duration)>,
    /// The bytes of each connection that arrive in a second, if that is bounded.
    rate: Option<u64>,
    flow: Flow,
    /// When the delay, the rate or the flow was changed last.
    changed: u64,
    /// The wires on which something has arrived while the link was frozen.
    held: VecDeque<Rc<Wire>>,
}

struct Conn {
    about: Connection,
    client: Arc<Socket>,
    up: Rc<Wire>,
    down: Rc<Wire>,
    /// None when the service's end is closed.
    service: Option<Rc<RefCell<dyn Service>>>,
    is_client_gone: bool,
}

struct Name {
    answer: Answer,
    takes: Duration,
    /// Since when look-ups take so long, and have addresses or not.
    since: u64,
    /// Since when the name has each of its addresses.
    ips: BTreeMap<IpAddr, u64>,
}

/// A look-up that has not ended.
struct Lookup {
    process: ProcessId,
    name: String,
    since: u64,
}

pub(crate) struct Net {
    links: BTreeMap<(IpAddr, IpAddr), Link>,
    delay: (Duration, Duration),
    down: BTreeSet<IpAddr>,
    /// When each host was taken off the network, or connected again.
    moved: BTreeMap<IpAddr, u64>,
    listeners: BTreeMap<SocketAddr, (Rc<RefCell<dyn Service>>, u64)>,
    conns: BTreeMap<ConnId, Conn>,
    names: BTreeMap<String, Name>,
    lookups: BTreeMap<u64, Lookup>,
    next_lookup: u64,
    /// When a look-up of the name by the process ended that had begun under other circumstances.
    late_ends: BTreeMap<(ProcessId, String), u64>,
    next_conn: u64,
    /// Is called with the bytes at clients' ends.
    watcher: Option<Watcher>,
    /// Is called with the steps of each process on its way to a server.
    dial_watcher: Option<Rc<dyn Fn(ProcessId, Dialling)>>,
}

/// A function that is called with the connection, the end that has sent the bytes, and the bytes.
type Watcher = Rc<dyn Fn(&Connection, Side, &[u8])>;

impl Default for Net {
    fn default() -> Self {
        Net {
            links: BTreeMap::new(),
            delay: (Duration::from_micros(50), Duration::from_micros(500)),
            down: BTreeSet::new(),
            moved: BTreeMap::new(),
            listeners: BTreeMap::new(),
            conns: BTreeMap::new(),
            names: BTreeMap::new(),
            lookups: BTreeMap::new(),
            next_lookup: 0,
            late_ends: BTreeMap::new(),
            next_conn: 1,
            watcher: None,
            dial_watcher: None,
        }
    }
}

/// A function that runs when a message arrives.
type Delivery = Box<dyn FnOnce()>;

/// One direction between two hosts in which messages keep their order: one direction of a
/// connection, or the messages from one server to another.
pub struct Wire {
    from: IpAddr,
    to: IpAddr,
    on_the_way: RefCell<VecDeque<Delivery>>,
    last_arrival: Cell<u64>,
    /// When all bytes so far are on the line, if its rate is bounded.
    busy_until: Cell<u64>,
    is_broken: Cell<bool>,
}

impl Wire {
    /// A new wire between two hosts.
    pub fn new(from: IpAddr, to: IpAddr) -> Rc<Wire> {
        Rc::new(Wire {
            from,
            to,
            on_the_way: RefCell::default(),
            last_arrival: Cell::new(0),
            busy_until: Cell::new(0),
            is_broken: Cell::new(false),
        })
    }

    /// Calls `arrives` after the link's delay, unless the message is lost.
    pub fn send(self: &Rc<Self>, arrives: impl FnOnce() + 'static) {
        self.send_bytes(0, arrives);
    }

    /// The same for a message of so many bytes, which take their time where the link's rate is
    /// bounded.
    fn send_bytes(self: &Rc<Self>, bytes: usize, arrives: impl FnOnce() + 'static) {
        if self.is_broken.get() {
            return;
        }
        self.on_the_way.borrow_mut().push_back(Box::new(arrives));
        let wire = self.clone();
        core::with(|sim| {
            let ((least, most), rate) = {
                let net = sim.net.borrow();
                let link = net.links.get(&(self.from, self.to));
                let delay = link.and_then(|link| link.delay).unwrap_or(net.delay);
                (delay, link.and_then(|link| link.rate))
            };
            let (least, most) = (nanos(least), nanos(most));
            let delay = sim.net_rng.borrow_mut().u64(least..=most.max(least));
            let mut sent = sim.now.get();
            if let Some(rate) = rate {
                let takes = bytes as u64 * 1_000_000_000 / rate.max(1);
                sent = sent.max(self.busy_until.get()) + takes;
                self.busy_until.set(sent);
            }
            let at = (sent + delay).max(self.last_arrival.get() + 1);
            self.last_arrival.set(at);
            sim.call_at(at, move || wire.arrival());
        });
    }

    /// Loses all messages that are under way, and all later ones.
    pub fn break_off(&self) {
        self.is_broken.set(true);
        let lost = std::mem::take(&mut *self.on_the_way.borrow_mut());
        drop(lost);
    }

    /// Whether the wire has lost a message, so that no later one arrives.
    pub fn is_broken(&self) -> bool {
        self.is_broken.get()
    }

    fn arrival(self: Rc<Self>) {
        let flow = core::with(|sim| {
            let mut net = sim.net.borrow_mut();
            if net.down.contains(&self.from) || net.down.contains(&self.to) {
                return Flow::Hole;
            }
            let Some(link) = net.links.get_mut(&(self.from, self.to)) else { return Flow::Open };
            if link.flow == Flow::Frozen {
                link.held.push_back(self.clone());
            }
            link.flow
        });
        match flow {
            Flow::Frozen => {}
            Flow::Hole => self.break_off(),
            Flow::Open => {
                let first = self.on_the_way.borrow_mut().pop_front();
                if let Some(deliver) = first {
                    deliver();
                }
            }
        }
    }
}

/// The bytes that a slow line carries at once.
const PIECE: usize = 1_460;

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn with_net<T>(f: impl FnOnce(&mut Net) -> T) -> T {
    core::with(|sim| f(&mut sim.net.borrow_mut()))
}

/// Calls `told` in this run with all bytes at the clients' ends: when a client sends them, and when
/// they arrive at the client. It must not act on the network.
pub fn watch_clients(told: impl Fn(&Connection, Side, &[u8]) + 'static) {
    with_net(|net| net.watcher = Some(Rc::new(told)));
}

/// Calls `told` in this run with each answer of a look-up and each begin of a connection. It must
/// not act on the network.
pub fn watch_dialling(told: impl Fn(ProcessId, Dialling) + 'static) {
    with_net(|net| net.dial_watcher = Some(Rc::new(told)));
}

fn tell_dialling(process: ProcessId, step: Dialling) {
    if let Some(told) = with_net(|net| net.dial_watcher.clone()) {
        told(process, step);
    }
}

/// Tells the watcher of bytes that this end has sent.
fn tell(conn: ConnId, from: Side, bytes: &[u8]) {
    let told = with_net(|net| Some((net.watcher.clone()?, net.conns.get(&conn)?.about.clone())));
    if let Some((watcher, about)) = told {
        watcher(&about, from, bytes);
    }
}

// ---- interface for services ----

/// Lets this service accept connections to the address.
pub fn listen(at: SocketAddr, service: Rc<RefCell<dyn Service>>) {
    let now = core::with(|sim| sim.now.get());
    with_net(|net| net.listeners.insert(at, (service, now)));
}

/// Refuses connections to the address from now on. Open connections stay.
pub fn refuse(at: SocketAddr) {
    with_net(|net| net.listeners.remove(&at));
}

/// Sends bytes to the client.
pub fn send(conn: ConnId, bytes: Vec<u8>) {
    let Some((wire, client)) = with_net(|net| {
        let conn = net.conns.get(&conn).filter(|conn| conn.service.is_some())?;
        Some((conn.down.clone(), conn.client.clone()))
    }) else {
        return;
    };
    // Now and then a message arrives in two pieces, and on a slow line in many.
    let cut = core::with(|sim| {
        let mut rng = sim.net_rng.borrow_mut();
        if bytes.len() > 1 && rng.u32(..50) == 0 { rng.usize(1..bytes.len()) } else { bytes.len() }
    });
    let (first, second) = bytes.split_at(cut);
    let is_slow = with_net(|net| {
        net.links.get(&(wire.from, wire.to)).is_some_and(|link| link.rate.is_some())
    });
    let most = if is_slow { PIECE } else { usize::MAX };
    for piece in [first, second].into_iter().flat_map(|part| part.chunks(most)) {
        let (client, piece) = (client.clone(), piece.to_vec());
        wire.send_bytes(piece.len(), move || {
            tell(conn, Side::Server, &piece);
            client.receive(&piece);
        });
    }
}

/// Closes the service's end. The client reads all sent bytes and then the end.
pub fn close(conn: ConnId) {
    if let Some((wire, client)) = take_server_end(conn) {
        wire.send(move || client.receive_end());
    }
}

/// Closes the service's end at once, with a reset.
pub fn reset(conn: ConnId) {
    if let Some((wire, client)) = take_server_end(conn) {
        wire.send(move || client.fail(ErrorKind::ConnectionReset));
    }
}

fn take_server_end(conn: ConnId) -> Option<(Rc<Wire>, Arc<Socket>)> {
    with_net(|net| {
        let open = net.conns.get_mut(&conn)?;
        open.service.take()?;
        Some((open.down.clone(), open.client.clone()))
    })
}

/// Ends a server: its address refuses connections, and its ends of connections are closed without a
/// call of the service. The clients see the closed connections, unless the server ends `silently`.
pub fn server_gone(at: SocketAddr, silently: bool) {
    refuse(at);
    for connection in connections().into_iter().filter(|connection| connection.to == at) {
        if silently {
            take_server_end(connection.id);
        } else {
            reset(connection.id);
        }
    }
}

// ---- faults ----

/// The connections that both ends believe to be open.
pub fn connections() -> Vec<Connection> {
    with_net(|net| {
        let open = net.conns.values().filter(|conn| conn.service.is_some() && !conn.is_client_gone);
        open.map(|conn| conn.about.clone()).collect()
    })
}

/// Cuts a connection: both ends see the reset.
pub fn cut(conn: ConnId) {
    core::with(|sim| sim.note(&format!("connection {conn} is cut")));
    if let Some(up) = with_net(|net| net.conns.get(&conn).map(|conn| conn.up.clone())) {
        // The service first gets the bytes that are under way.
        up.send(move || client_is_gone(conn));
    }
    let down =
        with_net(|net| net.conns.get(&conn).map(|conn| (conn.down.clone(), conn.client.clone())));
    if let Some((down, client)) = down {
        down.send(move || client.fail(ErrorKind::ConnectionReset));
    }
}

/// Closes a connection for one end. The other end does not notice it.
pub fn half_open(conn: ConnId, closed: Side) {
    core::with(|sim| sim.note(&format!("connection {conn} is closed for its {closed:?} alone")));
    let Some((up, down, client)) = with_net(|net| {
        let conn = net.conns.get(&conn)?;
        Some((conn.up.clone(), conn.down.clone(), conn.client.clone()))
    }) else {
        return;
    };
    match closed {
        Side::Client => {
            up.break_off();
            client.fail(ErrorKind::ConnectionReset);
        }
        Side::Server => {
            down.break_off();
            client_is_gone(conn);
        }
    }
}

/// Sets what the link does with messages, including those under way.
pub fn set_flow(from: IpAddr, to: IpAddr, flow: Flow) {
    core::with(|sim| sim.note(&format!("{from} to {to}: {flow:?}")));
    let now = core::with(|sim| sim.now.get());
    let held = with_net(|net| {
        let link = net.links.entry((from, to)).or_default();
        (link.flow, link.changed) = (flow, now);
        if flow == Flow::Frozen { VecDeque::new() } else { std::mem::take(&mut link.held) }
    });
    for wire in held {
        core::with(|sim| sim.call_at(sim.now.get(), move || wire.arrival()));
    }
}

/// Sets the shortest and the longest time from one host to another.
pub fn set_delay(from: IpAddr, to: IpAddr, least: Duration, most: Duration) {
    change_link(from, to, |link| link.delay = Some((least, most)));
}

/// Lets each connection from one host to another carry so many bytes in a second, or any number.
pub fn set_rate(from: IpAddr, to: IpAddr, rate: Option<u64>) {
    core::with(|sim| sim.note(&format!("{from} to {to}: {rate:?} bytes in a second")));
    change_link(from, to, |link| link.rate = rate);
}

fn change_link(from: IpAddr, to: IpAddr, change: impl FnOnce(&mut Link)) {
    let now = core::with(|sim| sim.now.get());
    with_net(|net| {
        let link = net.links.entry((from, to)).or_default();
        link.changed = now;
        change(link);
    });
}

/// Sets the delay of links that have no delay of their own.
pub fn set_default_delay(least: Duration, most: Duration) {
    with_net(|net| net.delay = (least, most));
}

/// Takes a host off the network, or connects it again.
pub fn set_host_down(ip: IpAddr, is_down: bool) {
    core::with(|sim| sim.note(&format!("host {ip} is {}", if is_down { "down" } else { "up" })));
    let now = core::with(|sim| sim.now.get());
    with_net(|net| {
        let changes = if is_down { net.down.insert(ip) } else { net.down.remove(&ip) };
        if changes {
            net.moved.insert(ip, now);
        }
    });
}

/// Sets the answer of the resolver for a name, and how long a look-up takes that begins from now on.
/// It ends with the answer of its end.
pub fn set_name(name: &str, answer: Answer, takes: Duration) {
    core::with(|sim| sim.note(&format!("the resolver says of {name} in {takes:?}: {answer:?}")));
    let now = core::with(|sim| sim.now.get());
    let kind = |answer: &Answer| matches!(answer, Answer::Addresses(_));
    with_net(|net| {
        let before = net.names.remove(name);
        let same =
            before.as_ref().filter(|old| kind(&old.answer) == kind(&answer) && old.takes == takes);
        let since = same.map_or(now, |old| old.since);
        let ips = match &answer {
            Answer::Addresses(ips) => ips.as_slice(),
            Answer::NoSuchName | Answer::Failure => &[],
        };
        let had = |ip| before.as_ref().and_then(|old| old.ips.get(ip)).copied();
        let ips = ips.iter().map(|ip| (*ip, had(ip).unwrap_or(now))).collect();
        net.names.insert(name.to_owned(), Name { answer, takes, since, ips });
    });
}

// ---- what the world sees of the network ----

/// The way from one host to another.
pub fn way(from: IpAddr, to: IpAddr) -> Way {
    with_net(|net| {
        let link = net.links.get(&(from, to));
        let is_usual = |link: &Link| {
            link.flow == Flow::Open
                && link.rate.is_none()
                && link.delay.is_none_or(|delay| delay == net.delay)
        };
        let is_open =
            !net.down.contains(&from) && !net.down.contains(&to) && link.is_none_or(is_usual);
        let moved = [from, to].map(|ip| net.moved.get(&ip).copied().unwrap_or_default());
        let since = moved.into_iter().chain(link.map(|link| link.changed)).max();
        Way { is_open, since: Duration::from_nanos(since.unwrap_or_default()) }
    })
}

/// Since when both ways between two hosts have been open.
pub fn both_ways_since(one: IpAddr, other: IpAddr) -> Option<Duration> {
    let ways = [way(one, other), way(other, one)];
    ways.iter().all(|way| way.is_open).then(|| ways[0].since.max(ways[1].since))
}

/// Since when the address accepts connections, with the service that it has now.
pub fn listens_since(at: SocketAddr) -> Option<Duration> {
    with_net(|net| net.listeners.get(&at).map(|(_, since)| Duration::from_nanos(*since)))
}

/// The addresses that the resolver would name now.
pub fn addresses_of(name: &str) -> Vec<IpAddr> {
    with_net(|net| match net.names.get(name).map(|name| &name.answer) {
        Some(Answer::Addresses(ips)) => ips.clone(),
        _ => Vec::new(),
    })
}

/// Since when each look-up of this name ends within `prompt` and with addresses, for this process.
/// `None` also if an earlier look-up has not ended.
pub fn prompt_since(process: ProcessId, name: &str, prompt: Duration) -> Option<Duration> {
    with_net(|net| {
        let state = net.names.get(name)?;
        let is_late = |lookup: &Lookup| {
            lookup.process == process && lookup.name == name && lookup.since < state.since
        };
        if !matches!(state.answer, Answer::Addresses(_))
            || state.takes > prompt
            || net.lookups.values().any(is_late)
        {
            return None;
        }
        let late = net.late_ends.get(&(process, name.to_owned())).copied();
        Some(Duration::from_nanos(state.since.max(late.unwrap_or_default())))
    })
}

/// Since when the name has this address.
pub fn named_since(name: &str, ip: IpAddr) -> Option<Duration> {
    with_net(|net| net.names.get(name)?.ips.get(&ip).map(|since| Duration::from_nanos(*since)))
}

// ---- the clients' side ----

/// Begins to look a name up: its number, and how long it takes.
pub(crate) fn begin_lookup(process: ProcessId, name: &str) -> (u64, Duration) {
    let since = core::with(|sim| sim.now.get());
    with_net(|net| {
        net.next_lookup += 1;
        let lookup = Lookup { process, name: name.to_owned(), since };
        net.lookups.insert(net.next_lookup, lookup);
        let takes = net.names.get(name).map_or(Duration::ZERO, |name| name.takes);
        (net.next_lookup, takes)
    })
}

/// The answer to this look-up. Addresses of the same kind have no order, and IPv6 comes first.
pub(crate) fn end_lookup(number: u64) -> Answer {
    let now = core::with(|sim| sim.now.get());
    let (lookup, mut answer) = with_net(|net| {
        let lookup = net.lookups.remove(&number);
        let state = lookup.as_ref().and_then(|lookup| net.names.get(&lookup.name));
        let answer = state.map_or(Answer::NoSuchName, |name| name.answer.clone());
        if let (Some(lookup), Some(state)) = (&lookup, state)
            && lookup.since < state.since
        {
            net.late_ends.insert((lookup.process, lookup.name.clone()), now);
        }
        (lookup, answer)
    });
    if let Answer::Addresses(ips) = &mut answer
        && ips.len() > 1
    {
        core::with(|sim| sim.net_rng.borrow_mut().shuffle(ips));
        ips.sort_by_key(IpAddr::is_ipv4);
    }
    if let Some(Lookup { process, name, .. }) = lookup {
        core::with(|sim| sim.note(&format!("process {process} looks {name} up: {answer:?}")));
        tell_dialling(process, Dialling::Answered(name, answer.clone()));
    }
    answer
}

pub(crate) fn connect(sim: &Sim, to: SocketAddr) -> Arc<Socket> {
    let process = sim.current_process().expect("a connection of no process");
    let ip = process::ip_of(sim, Some(process));
    let (socket, up, down) = {
        let mut net = sim.net.borrow_mut();
        let id = ConnId(net.next_conn);
        net.next_conn += 1;
        let port = u16::try_from(20_000 + id.0 % 40_000).unwrap_or(1);
        let from = SocketAddr::new(ip, port);
        let socket = Socket::new(id, from, to);
        let (up, down) = (Wire::new(ip, to.ip()), Wire::new(to.ip(), ip));
        let conn = Conn {
            about: Connection { id, process, from, to },
            client: socket.clone(),
            up: up.clone(),
            down: down.clone(),
            service: None,
            is_client_gone: false,
        };
        net.conns.insert(id, conn);
        (socket, up, down)
    };
    tell_dialling(process, Dialling::Dialled(to));
    let client = socket.clone();
    up.send(move || {
        let conn = client.conn();
        let service = with_net(|net| {
            let service = net.listeners.get(&to).map(|(service, _)| service.clone());
            let open = net.conns.get_mut(&conn)?;
            open.service.clone_from(&service);
            service
        });
        match service {
            Some(service) => {
                service.borrow_mut().opened(conn, to, client.from());
                down.send(move || client.established());
            }
            None => down.send(move || client.fail(ErrorKind::ConnectionRefused)),
        }
    });
    socket
}

/// Sends bytes of a client. `arrived` is called with their number when they have left the sender's
/// buffer.
pub(crate) fn client_sends(client: &Arc<Socket>, bytes: Vec<u8>) {
    let conn = client.conn();
    let Some(up) = with_net(|net| net.conns.get(&conn).map(|conn| conn.up.clone())) else { return };
    tell(conn, Side::Client, &bytes);
    let client = client.clone();
    up.send(move || {
        client.taken(bytes.len());
        let ends = with_net(|net| {
            net.conns.get(&conn).map(|conn| (conn.service.clone(), conn.down.clone()))
        });
        let Some((service, down)) = ends else { return };
        match service {
            Some(service) => service.borrow_mut().bytes(conn, &bytes),
            None => down.send(move || client.fail(ErrorKind::ConnectionReset)),
        }
    });
}

/// Closes the client's end.
pub(crate) fn client_closes(conn: ConnId) {
    let up = with_net(|net| {
        let open = net.conns.get_mut(&conn)?;
        open.is_client_gone = true;
        Some(open.up.clone())
    });
    if let Some(up) = up {
        up.send(move || client_is_gone(conn));
    }
}

/// Reports the end of the client to the service.
fn client_is_gone(conn: ConnId) {
    let service = with_net(|net| {
        let open = net.conns.get_mut(&conn)?;
        let service = open.service.take();
        if open.is_client_gone {
            net.conns.remove(&conn);
        }
        service
    });
    if let Some(service) = service {
        service.borrow_mut().closed(conn);
    }
}

pub(crate) fn process_ended(process: ProcessId, death: Death) {
    let all = with_net(|net| {
        let own =
            net.conns.values().filter(|conn| conn.about.process == process && !conn.is_client_gone);
        own.map(|conn| conn.about.id).collect::<Vec<_>>()
    });
    for conn in all {
        match death {
            Death::Killed => client_closes(conn),
            Death::PowerLost => {
                with_net(|net| {
                    if let Some(open) = net.conns.get_mut(&conn) {
                        open.is_client_gone = true;
                        open.up.break_off();
                        open.down.break_off();
                    }
                });
            }
        }
    }
}
