//! The ensemble in the simulated network.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use zk_sim_runtime::net::{self, ConnId, Service, Wire};
use zk_sim_runtime::{ProcessId, after, at, note, now};
use zk_test_server::ensemble::{Ensemble, NodeInfo, NodeView, Notice, Output, Packet, Settings};

use crate::names::Mute;
use crate::observer::Node;
use crate::operator::{self, Request};
use crate::server_host;

/// The members. All parts of the world that act on them share this handle.
#[derive(Clone)]
pub struct Servers(Rc<RefCell<Inner>>);

struct Inner {
    ensemble: Ensemble,
    tick: Duration,
    leader_serves: bool,
    members: Vec<Member>,
    /// The messages between members; they keep their order from one member to another.
    wires: BTreeMap<(usize, usize), Rc<Wire>>,
    /// The last number that was set in each folder.
    sequences: BTreeMap<String, i32>,
    operators: BTreeMap<u64, Operator>,
    next_operator: u64,
    myself: Option<Servers>,
    /// Is called with each session that the leader expires, and with the timeout by which the leader
    /// has counted.
    on_expired: Option<Box<dyn Fn(i64, Duration)>>,
    /// Is called with the changes from each version of the newest tree to the next.
    on_changed: Option<Box<dyn Fn(Vec<Change>)>>,
    /// Is called with each process that is connected to a server whose leader was replaced.
    on_deposed: Option<Box<dyn Fn(ProcessId)>>,
    known: Known,
}

/// A change of the newest tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The leader's tree has this node no more.
    Gone {
        /// Its path.
        path: String,
    },
    /// The leader's tree has a new node.
    Made {
        /// Its path.
        path: String,
        /// The session that owns it, if it is ephemeral; 0 for none.
        owner: i64,
        /// The transaction that made it.
        czxid: i64,
        /// Its data.
        data: Vec<u8>,
    },
    /// The data of a node of the leader's tree has changed.
    Written {
        /// Its path.
        path: String,
        /// Its data.
        data: Vec<u8>,
    },
}

/// The newest tree, as far as its changes were told.
#[derive(Default)]
struct Known {
    /// The leader, and the newest transaction in its tree.
    state: Option<(usize, i64)>,
    /// The transactions that made and wrote each node, and the number of the look that saw it.
    nodes: HashMap<String, (i64, i64, u64)>,
    looks: u64,
}

struct Member {
    host: IpAddr,
    /// When it was last deaf, or began to be.
    hears_since: Duration,
    /// Another service has its address.
    is_mute: bool,
    /// When it last began or ceased to lead or to follow.
    joined: Duration,
    /// The connections of its clients, and the clients; an operator is no process.
    conns: Vec<(ConnId, Option<ProcessId>)>,
    /// The member does not run until this time.
    stalled_until: Duration,
    /// Events that came while the member did not run.
    waiting: VecDeque<Event>,
    /// The time at which it will be woken next.
    next_timer: Option<Duration>,
}

/// An operator's connection to a member, which uses no network.
struct Operator {
    member: usize,
    /// The requests that are sent once there is a session.
    requests: Vec<Request>,
    /// The session is closed right after them.
    leaves: bool,
}

/// An event of a member.
enum Event {
    Opened(ConnId, SocketAddr),
    Bytes(ConnId, Vec<u8>),
    Closed(ConnId),
    Packet(Packet),
}

/// The service at one member's address.
struct Listener {
    member: usize,
    servers: Servers,
}

/// The first number of operators' connections, far from those of the network.
const OPERATORS: u64 = 1 << 40;

impl Servers {
    /// Starts all members, at port 2181 of their hosts.
    pub fn start(settings: &Settings, seed: u64) -> Servers {
        let member = |number| Member {
            host: server_host(number),
            hears_since: Duration::ZERO,
            is_mute: false,
            joined: Duration::ZERO,
            conns: Vec::new(),
            stalled_until: Duration::ZERO,
            waiting: VecDeque::new(),
            next_timer: None,
        };
        let inner = Inner {
            ensemble: Ensemble::new(settings, seed),
            tick: settings.tick,
            leader_serves: settings.leader_serves,
            members: (0..settings.members).map(member).collect(),
            wires: BTreeMap::new(),
            sequences: BTreeMap::new(),
            operators: BTreeMap::new(),
            next_operator: OPERATORS,
            myself: None,
            on_expired: None,
            on_changed: None,
            on_deposed: None,
            known: Known::default(),
        };
        let servers = Servers(Rc::new(RefCell::new(inner)));
        servers.0.borrow_mut().myself = Some(servers.clone());
        for member in 0..settings.members {
            servers.restart(member, true);
        }
        servers
    }

    /// The address of a member's host.
    pub fn host(&self, member: usize) -> IpAddr {
        self.0.borrow().members[member].host
    }

    /// The address of a member.
    pub fn address(&self, member: usize) -> SocketAddr {
        SocketAddr::new(self.host(member), 2181)
    }

    /// Starts a member on another host.
    pub fn move_to(&self, member: usize, host: IpAddr) {
        self.kill(member, false);
        {
            let mut inner = self.0.borrow_mut();
            inner.members[member].host = host;
            inner.wires.retain(|(from, to), wire| {
                let stays = *from != member && *to != member;
                if !stays {
                    wire.break_off();
                }
                stays
            });
        }
        note(&format!("server {member} is at {host} now"));
        self.restart(member, true);
    }

    /// Lets a member take sessions up and serve nothing, or serve again.
    pub fn set_deaf(&self, member: usize, is_deaf: bool) {
        note(&format!("server {member} is deaf: {is_deaf}"));
        let mut inner = self.0.borrow_mut();
        inner.ensemble.set_deaf(member, is_deaf);
        inner.members[member].hears_since = now();
    }

    /// Lets a member's address accept connections and answer nothing, and cuts those that are open.
    /// [`Self::listen`] ends that.
    pub fn mute(&self, member: usize) {
        let at = self.address(member);
        let all = net::connections().into_iter().filter(|open| open.to == at);
        all.for_each(|open| net::cut(open.id));
        self.0.borrow_mut().members[member].is_mute = true;
        net::listen(at, Rc::new(RefCell::new(Mute)));
    }

    /// Since when a member has led or followed the leader that was elected last. A member that is
    /// stalled counts as one that does not, and one that the leader does not hear.
    pub fn takes_part_since(&self, member: usize) -> Option<Duration> {
        let inner = self.0.borrow();
        let leader = inner.ensemble.leader()?;
        let Member { joined, stalled_until, host, .. } = &inner.members[member];
        let takes_part = inner.ensemble.is_serving(member)
            && !inner.ensemble.is_deposed(member)
            && now() >= *stalled_until;
        let linked = match member == leader {
            true => Duration::ZERO,
            false => net::both_ways_since(*host, inner.members[leader].host)?,
        };
        takes_part.then(|| linked.max(*joined).max(*stalled_until))
    }

    /// Since when the same majority has taken part, with its leader.
    pub fn quorum_since(&self) -> Option<Duration> {
        let leads = self.takes_part_since(self.leader()?)?;
        let all = (0..self.count()).filter_map(|member| self.takes_part_since(member));
        let mut all: Vec<Duration> = all.collect();
        all.sort_unstable();
        Some(leads.max(*all.get(self.count() / 2)?))
    }

    /// Since when a member has taken part, and served its clients' requests.
    pub fn serves_since(&self, member: usize) -> Option<Duration> {
        let joined = self.takes_part_since(member)?;
        let inner = self.0.borrow();
        let state = &inner.members[member];
        let serves = !inner.ensemble.is_deaf(member) && !state.is_mute;
        serves.then(|| joined.max(state.hears_since))
    }

    /// Whether the leader serves clients.
    pub fn leader_serves(&self) -> bool {
        self.0.borrow().leader_serves
    }

    /// The number of members.
    pub fn count(&self) -> usize {
        self.0.borrow().members.len()
    }

    /// Lets a running member accept connections.
    pub fn listen(&self, member: usize) {
        self.0.borrow_mut().members[member].is_mute = false;
        if self.0.borrow().ensemble.is_running(member) {
            let listener = Listener { member, servers: self.clone() };
            net::listen(self.address(member), Rc::new(RefCell::new(listener)));
        }
    }

    /// Ends a member. Its host closes its connections, unless the host is lost `silently`.
    pub fn kill(&self, member: usize, silently: bool) {
        if !self.0.borrow().ensemble.is_running(member) {
            return;
        }
        note(&format!("server {member} ends"));
        net::server_gone(self.address(member), silently);
        net::set_host_down(self.host(member), silently);
        self.with(|inner| {
            let state = &mut inner.members[member];
            state.waiting.clear();
            state.stalled_until = Duration::ZERO;
            let conns = std::mem::take(&mut state.conns);
            inner.operators.retain(|_, operator| operator.member != member);
            inner.ensemble.kill(member, now());
            if silently {
                inner.ensemble.take_outputs();
            }
            conns.into_iter().for_each(|(conn, _)| inner.ensemble.closed(member, conn.0, now()));
        });
    }

    /// Starts a member that does not run. It loses its data only if all others have the same data.
    pub fn restart(&self, member: usize, keeps_data: bool) {
        if self.0.borrow().ensemble.is_running(member) {
            return;
        }
        net::set_host_down(self.host(member), false);
        self.with(|inner| {
            let keeps_data = keeps_data || !inner.ensemble.can_lose_data(member);
            note(&format!("server {member} starts, with its data: {keeps_data}"));
            inner.ensemble.start(member, keeps_data, now());
        });
        self.listen(member);
    }

    /// Stops a member for a while. Events that arrive meanwhile wait.
    pub fn stall(&self, member: usize, lasts: Duration) {
        let until = {
            let state = &mut self.0.borrow_mut().members[member];
            state.stalled_until = state.stalled_until.max(now() + lasts);
            state.stalled_until
        };
        let servers = self.clone();
        at(until, move || servers.with(|inner| inner.go_on(member)));
    }

    /// Sets how much too fast a member's clock runs, in millionths.
    pub fn set_drift(&self, member: usize, ppm: i32) {
        self.with(|inner| inner.ensemble.set_drift(member, ppm, now()));
    }

    /// Lets a member grant only timeouts within these limits.
    pub fn set_session_limits(&self, member: usize, min: Duration, max: Duration) {
        self.with(|inner| inner.ensemble.set_session_limits(member, min, max));
    }

    /// Ends a session as if it had timed out.
    pub fn expire(&self, session: i64) {
        note(&format!("the operator expires session {session:#x}"));
        self.with(|inner| {
            inner.ensemble.expire(session, now());
        });
    }

    /// Gives the next sequential child of `parent` this number, unless the numbers would go back,
    /// which they never do at a real server.
    pub fn set_sequence(&self, parent: &str, next: i32) {
        let last = self.0.borrow().sequences.get(parent).copied();
        if last.is_some_and(|last| next < last.saturating_add(1 << 16)) {
            return;
        }
        note(&format!("the operator sets the next number in {parent} to {next}"));
        self.with(|inner| {
            if inner.ensemble.set_sequence(parent, next, now()) {
                inner.sequences.insert(parent.to_owned(), next);
            }
        });
    }

    /// An operator sends these requests to the leader, or to a follower where the leader serves no
    /// clients. They are lost if there is no such server, or if it ends meanwhile.
    pub fn operate(&self, requests: Vec<Request>) {
        let _ = self.ask(requests, Duration::from_secs(30), true);
    }

    /// Another library's client sends these requests, as an operator does, and closes its session
    /// after this time.
    pub fn visit(&self, requests: Vec<Request>, timeout: Duration, lasts: Duration) {
        if let Some(conn) = self.ask(requests, timeout, false) {
            let servers = self.clone();
            after(lasts, move || servers.say(conn, operator::end()));
            self.keep_alive(conn, now() + lasts);
        }
    }

    fn keep_alive(&self, conn: u64, until: Duration) {
        let (servers, pause) = (self.clone(), self.0.borrow().tick);
        after(pause, move || {
            if now() < until && servers.0.borrow().operators.contains_key(&conn) {
                servers.say(conn, operator::ping());
                servers.keep_alive(conn, until);
            }
        });
    }

    /// An operator, if it still has its connection, sends these bytes.
    fn say(&self, conn: u64, bytes: Vec<u8>) {
        self.with(|inner| {
            if let Some(Operator { member, .. }) = inner.operators.get(&conn) {
                inner.happen(*member, Event::Bytes(ConnId(conn), bytes));
            }
        });
    }

    fn ask(&self, requests: Vec<Request>, timeout: Duration, leaves: bool) -> Option<u64> {
        let member = self.serves_operators()?;
        let who = if leaves { "the operator" } else { "a client of another library" };
        note(&format!("{who} asks server {member} for {requests:?}"));
        let mut conn = 0;
        self.with(|inner| {
            conn = inner.next_operator;
            inner.next_operator += 1;
            inner.operators.insert(conn, Operator { member, requests, leaves });
            inner.happen(member, Event::Opened(ConnId(conn), ([10, 0, 2, 1], 7).into()));
            inner.happen(member, Event::Bytes(ConnId(conn), operator::connect(timeout)));
        });
        Some(conn)
    }

    fn serves_operators(&self) -> Option<usize> {
        let leader = self.leader()?;
        let inner = self.0.borrow();
        if inner.leader_serves {
            return Some(leader);
        }
        (0..inner.members.len())
            .find(|member| *member != leader && inner.ensemble.is_serving(*member))
    }

    /// The member that leads, if there is one.
    pub fn leader(&self) -> Option<usize> {
        self.0.borrow().ensemble.leader()
    }

    /// What this member's clock shows, and the length of its tick.
    pub fn clock_and_tick(&self, member: usize) -> (Duration, Duration) {
        let inner = self.0.borrow();
        (inner.ensemble.clock(member, now()), inner.tick)
    }

    /// Whether all members serve, but for those that real servers would leave outside, too.
    pub fn all_serve(&self) -> bool {
        let inner = self.0.borrow();
        let Inner { ensemble, members, .. } = &*inner;
        (0..members.len()).all(|member| ensemble.is_serving(member) || ensemble.is_left_out(member))
    }

    /// The sessions that live at the leader; none without a leader.
    pub fn sessions(&self) -> Vec<i64> {
        let inner = self.0.borrow();
        let leader = inner.ensemble.leader();
        leader
            .into_iter()
            .flat_map(|leader| inner.ensemble.sessions(leader))
            .map(|(id, _)| id)
            .collect()
    }

    /// The timeout that a server granted to this session when its client connected last.
    pub fn granted_timeout(&self, session: i64) -> Option<Duration> {
        self.0.borrow().ensemble.granted_timeout(session)
    }

    /// Sets a function that is called when the leader expires a session, with the timeout by which
    /// the leader has counted. The function must not act on the servers.
    pub fn on_expired(&self, told: impl Fn(i64, Duration) + 'static) {
        self.0.borrow_mut().on_expired = Some(Box::new(told));
    }

    /// Sets a function that is called with each change of the newest tree, at the time of the
    /// change. The newest tree is that of the leader that was elected last: a write is in it from
    /// its commit on, and before anybody is told of the commit. The function must not act on the
    /// servers.
    pub fn on_changed(&self, told: impl Fn(Vec<Change>) + 'static) {
        self.0.borrow_mut().on_changed = Some(Box::new(told));
    }

    /// Sets a function that is called while a process is connected to a server whose leader has
    /// been replaced, which the server does not know yet: before and after each event of a server,
    /// so that no answer of such a server is left out. The function must not act on the servers.
    pub fn on_deposed(&self, told: impl Fn(ProcessId) + 'static) {
        self.0.borrow_mut().on_deposed = Some(Box::new(told));
    }

    /// The leader's nodes that belong to sessions; none without a leader.
    pub fn ephemerals(&self) -> Vec<NodeInfo> {
        let inner = self.0.borrow();
        let leader = inner.ensemble.leader();
        let nodes = leader.into_iter().flat_map(|leader| inner.ensemble.nodes(leader));
        // A negative owner marks a container.
        nodes.filter(|node| node.owner > 0).collect()
    }

    /// The leader's nodes that were forgotten if no process has a lock: ephemeral nodes, and
    /// persistent ones with a place in a queue.
    pub fn left(&self) -> Vec<NodeInfo> {
        let inner = self.0.borrow();
        let leader = inner.ensemble.leader();
        let nodes = leader.into_iter().flat_map(|leader| inner.ensemble.nodes(leader));
        nodes.filter(|node| node.owner > 0 || Node::numbered(&node.path).is_some()).collect()
    }

    /// The leader's nodes, if no other member has applied more transactions.
    pub fn newest(&self) -> Option<Vec<NodeInfo>> {
        let inner = self.0.borrow();
        inner.newest().map(|leader| inner.ensemble.nodes(leader))
    }

    /// The number of watches at all members.
    pub fn watches(&self) -> usize {
        let inner = self.0.borrow();
        (0..inner.members.len()).map(|member| inner.ensemble.watch_count(member)).sum()
    }

    fn with(&self, act: impl FnOnce(&mut Inner)) {
        let mut inner = self.0.borrow_mut();
        act(&mut inner);
        inner.settle();
    }
}

impl Service for Listener {
    fn opened(&mut self, conn: ConnId, _: SocketAddr, from: SocketAddr) {
        self.servers.with(|inner| inner.happen(self.member, Event::Opened(conn, from)));
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        self.servers.with(|inner| inner.happen(self.member, Event::Bytes(conn, bytes.to_vec())));
    }

    fn closed(&mut self, conn: ConnId) {
        self.servers.with(|inner| inner.happen(self.member, Event::Closed(conn)));
    }
}

impl Inner {
    /// The leader, if no other member has applied more transactions. A leader that does not know of
    /// a newer leader yet may be behind.
    fn newest(&self) -> Option<usize> {
        let leader = self.ensemble.leader()?;
        let applied = |member| self.ensemble.applied(member);
        (0..self.members.len()).all(|member| applied(member) <= applied(leader)).then_some(leader)
    }

    /// Lets the event happen now, or when the member runs again.
    fn happen(&mut self, member: usize, event: Event) {
        let state = &mut self.members[member];
        if now() < state.stalled_until || !state.waiting.is_empty() {
            state.waiting.push_back(event);
        } else {
            self.happens(member, event);
        }
    }

    fn happens(&mut self, member: usize, event: Event) {
        self.tell_deposed();
        let conns = &mut self.members[member].conns;
        match event {
            Event::Opened(conn, from) => {
                let client = net::connections().into_iter().find(|open| open.id == conn);
                conns.push((conn, client.map(|client| client.process)));
                self.ensemble.open(member, conn.0, from, now());
            }
            Event::Bytes(conn, bytes) => self.ensemble.bytes(member, conn.0, &bytes, now()),
            Event::Closed(conn) => {
                conns.retain(|(open, _)| *open != conn);
                self.ensemble.closed(member, conn.0, now());
            }
            Event::Packet(packet) => self.ensemble.packet(packet, now()),
        }
        self.tell_changes();
        self.tell_deposed();
    }

    /// Whether a leader that was deposed while it was stalled is the only one again, because its
    /// successor has ended. Its tree is of the past.
    fn leads_in_the_past(&self) -> bool {
        let applied = self.ensemble.leader().map(|leader| self.ensemble.applied(leader));
        applied.zip(self.known.state).is_some_and(|(applied, (_, newest))| applied < newest)
    }

    /// Tells the changes of the newest tree since the last call.
    fn tell_changes(&mut self) {
        let (Some(leader), Some(told)) = (self.ensemble.leader(), &self.on_changed) else { return };
        if self.leads_in_the_past() {
            return;
        }
        let state = Some((leader, self.ensemble.applied(leader)));
        if self.known.state == state {
            return;
        }
        let Known { nodes, looks, .. } = &mut self.known;
        *looks += 1;
        let (mut changes, mut seen) = (Vec::new(), 0);
        self.ensemble.each_node(leader, |node| {
            let NodeView { path, owner, czxid, mzxid, data } = node;
            let before =
                nodes.get_mut(path).map(|known| std::mem::replace(known, (czxid, mzxid, *looks)));
            seen += 1;
            let (path, data) = (|| path.to_owned(), || data.to_vec());
            match before {
                Some((made, written, _)) if made == czxid => {
                    if written != mzxid {
                        changes.push(Change::Written { path: path(), data: data() });
                    }
                }
                before => {
                    if before.is_some() {
                        changes.push(Change::Gone { path: path() });
                    } else {
                        nodes.insert(path(), (czxid, mzxid, *looks));
                    }
                    changes.push(Change::Made { path: path(), owner, czxid, data: data() });
                }
            }
        });
        if seen < nodes.len() {
            nodes.retain(|path, (_, _, look)| {
                let stands = look == looks;
                if !stands {
                    changes.push(Change::Gone { path: path.clone() });
                }
                stands
            });
        }
        self.known.state = state;
        // The tree has no order, and two runs of a seed must be the same.
        changes.sort_unstable();
        if !changes.is_empty() {
            told(changes);
        }
    }

    fn tell_deposed(&self) {
        let Some(told) = &self.on_deposed else { return };
        let is_past = self.leads_in_the_past();
        for (member, state) in self.members.iter().enumerate() {
            if self.ensemble.is_deposed(member) || is_past && self.ensemble.is_serving(member) {
                let clients = state.conns.iter().filter_map(|(_, client)| *client);
                clients.for_each(told);
            }
        }
    }

    /// Lets a stalled member run again, unless a later stall is in force.
    fn go_on(&mut self, member: usize) {
        if now() < self.members[member].stalled_until {
            return;
        }
        // The member's threads read input and check the clock side by side, so either may come
        // first.
        let timer_first = zk_sim_runtime::rng(|rng| rng.bool());
        if timer_first {
            self.ensemble.timer(member, now());
        }
        while let Some(event) = self.members[member].waiting.pop_front() {
            self.happens(member, event);
        }
    }

    /// Carries out the ensemble's outputs and sets its timers.
    fn settle(&mut self) {
        self.tell_changes();
        loop {
            let outputs = self.ensemble.take_outputs();
            if outputs.is_empty() {
                break;
            }
            outputs.into_iter().for_each(|output| self.carry(output));
        }
        for member in 0..self.members.len() {
            let state = &self.members[member];
            let due =
                self.ensemble.next_timer(member).map(|due| due.max(state.stalled_until).max(now()));
            if due.is_some() && (state.next_timer.is_none() || due < state.next_timer) {
                self.members[member].next_timer = due;
                if let (Some(due), Some(servers)) = (due, self.myself.clone()) {
                    at(due, move || servers.with(|inner| inner.wake(member, due)));
                }
            }
        }
    }

    fn wake(&mut self, member: usize, due: Duration) {
        let state = &mut self.members[member];
        if state.next_timer != Some(due) {
            return; // the timer was set to an earlier time
        }
        state.next_timer = None;
        let is_due = self.ensemble.next_timer(member).is_some_and(|due| due <= now());
        if is_due && now() >= self.members[member].stalled_until {
            self.ensemble.timer(member, now());
        }
    }

    fn carry(&mut self, output: Output) {
        match output {
            Output::Bytes { member, conn, bytes } => match self.operators.get_mut(&conn) {
                Some(operator) => {
                    let requests = std::mem::take(&mut operator.requests);
                    if !requests.is_empty() {
                        let mut bytes = operator::all(&requests);
                        if operator.leaves {
                            bytes.extend(operator::end());
                        }
                        self.happen(member, Event::Bytes(ConnId(conn), bytes));
                    }
                }
                None => net::send(ConnId(conn), bytes),
            },
            Output::Close { member, conn } => {
                self.operators.remove(&conn);
                net::close(ConnId(conn));
                self.members[member].conns.retain(|(open, _)| open.0 != conn);
                self.ensemble.closed(member, conn, now());
            }
            Output::Packet(packet) => {
                let way = (packet.from, packet.to);
                let new = || Wire::new(self.members[way.0].host, self.members[way.1].host);
                let wire = self.wires.entry(way).or_insert_with(new);
                if wire.is_broken() {
                    *wire = new();
                }
                if let Some(servers) = self.myself.clone() {
                    wire.send(move || {
                        servers.with(|inner| inner.happen(packet.to, Event::Packet(packet)));
                    });
                }
            }
            Output::Notice { member, notice } => {
                note(&format!("server {member} {notice}"));
                if !matches!(notice, Notice::Expired { .. }) {
                    self.members[member].joined = now();
                }
                // A session that was ended before stays ended.
                if let (Notice::Expired { session }, Some(told)) = (notice, &self.on_expired)
                    && self.newest() == Some(member)
                    && let Some(counted) = self.ensemble.counted_timeout(member, session)
                {
                    told(session, counted);
                }
            }
        }
    }
}
