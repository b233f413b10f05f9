//! The ensemble in the simulated network.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use zk_sim_runtime::net::{self, ConnId, Service, Wire};
use zk_sim_runtime::{at, note, now};
use zk_test_server::ensemble::{Ensemble, NodeInfo, Notice, Output, Packet, Settings};

use crate::observer::Node;
use crate::operator::{self, Request};
use crate::server_host;

/// The members, as all that act on them share them.
#[derive(Clone)]
pub struct Servers(Rc<RefCell<Inner>>);

struct Inner {
    ensemble: Ensemble,
    members: Vec<Member>,
    /// What members say to each other: nothing overtakes on the way from one to another.
    wires: BTreeMap<(usize, usize), Rc<Wire>>,
    /// The last number that was set in each folder.
    sequences: BTreeMap<String, i32>,
    operators: BTreeMap<u64, Operator>,
    next_operator: u64,
    myself: Option<Servers>,
    /// Called with each session that the leader expires.
    on_expired: Option<Box<dyn Fn(i64)>>,
}

struct Member {
    /// The connections of its clients.
    conns: Vec<ConnId>,
    /// It does not run until then.
    stalled_until: Duration,
    /// What came since it does not run.
    waiting: VecDeque<Event>,
    /// When it will be woken next.
    next_timer: Option<Duration>,
}

/// An operator's connection to a member, over no network.
struct Operator {
    member: usize,
    /// What is still to be sent once there is a session.
    requests: Vec<Request>,
}

/// What happens to a member.
enum Event {
    Opened(ConnId, SocketAddr),
    Bytes(ConnId, Vec<u8>),
    Closed(ConnId),
    Packet(Packet),
}

/// One member's address.
struct Listener {
    member: usize,
    servers: Servers,
}

/// The numbers of operators' connections begin here, far from those of the network.
const OPERATORS: u64 = 1 << 40;

impl Servers {
    /// All members start, at port 2181 of their hosts.
    pub fn start(settings: &Settings, seed: u64) -> Servers {
        let member = |_| Member {
            conns: Vec::new(),
            stalled_until: Duration::ZERO,
            waiting: VecDeque::new(),
            next_timer: None,
        };
        let inner = Inner {
            ensemble: Ensemble::new(settings, seed),
            members: (0..settings.members).map(member).collect(),
            wires: BTreeMap::new(),
            sequences: BTreeMap::new(),
            operators: BTreeMap::new(),
            next_operator: OPERATORS,
            myself: None,
            on_expired: None,
        };
        let servers = Servers(Rc::new(RefCell::new(inner)));
        servers.0.borrow_mut().myself = Some(servers.clone());
        for member in 0..settings.members {
            servers.restart(member, true);
        }
        servers
    }

    /// Where a member listens.
    pub fn address(member: usize) -> SocketAddr {
        SocketAddr::new(server_host(member), 2181)
    }

    /// How many members there are.
    pub fn count(&self) -> usize {
        self.0.borrow().members.len()
    }

    /// From now on a member that runs takes connections.
    pub fn listen(&self, member: usize) {
        if self.0.borrow().ensemble.is_running(member) {
            let listener = Listener { member, servers: self.clone() };
            net::listen(Self::address(member), Rc::new(RefCell::new(listener)));
        }
    }

    /// Ends a member. Its host closes its connections, or goes `silently`.
    pub fn kill(&self, member: usize, silently: bool) {
        if !self.0.borrow().ensemble.is_running(member) {
            return;
        }
        note(&format!("server {member} ends"));
        net::server_gone(Self::address(member), silently);
        net::set_host_down(server_host(member), silently);
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
            conns.into_iter().for_each(|conn| inner.ensemble.closed(member, conn.0, now()));
        });
    }

    /// Starts a member that does not run. It loses its data only if the others still have all of
    /// it.
    pub fn restart(&self, member: usize, keeps_data: bool) {
        if self.0.borrow().ensemble.is_running(member) {
            return;
        }
        net::set_host_down(server_host(member), false);
        self.with(|inner| {
            let keeps_data = keeps_data || !inner.ensemble.can_lose_data(member);
            note(&format!("server {member} starts, with its data: {keeps_data}"));
            inner.ensemble.start(member, keeps_data, now());
        });
        self.listen(member);
    }

    /// A member does nothing for a while. What arrives meanwhile waits.
    pub fn stall(&self, member: usize, lasts: Duration) {
        let until = {
            let state = &mut self.0.borrow_mut().members[member];
            state.stalled_until = state.stalled_until.max(now() + lasts);
            state.stalled_until
        };
        let servers = self.clone();
        at(until, move || servers.with(|inner| inner.go_on(member)));
    }

    /// From now on a member's clock is so much too fast, in millionths.
    pub fn set_drift(&self, member: usize, ppm: i32) {
        self.with(|inner| inner.ensemble.set_drift(member, ppm, now()));
    }

    /// From now on a member grants timeouts within these limits.
    pub fn set_session_limits(&self, member: usize, min: Duration, max: Duration) {
        self.with(|inner| inner.ensemble.set_session_limits(member, min, max));
    }

    /// Ends a session as if its time had come.
    pub fn expire(&self, session: i64) {
        note(&format!("the operator expires session {session:#x}"));
        self.with(|inner| {
            inner.ensemble.expire(session, now());
        });
    }

    /// The next sequential child of `parent` has this number, unless that could be a step back,
    /// which the numbers of no server take.
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

    /// An operator asks the leader for this. It is not done if there is none, or if it ends
    /// meanwhile.
    pub fn operate(&self, requests: Vec<Request>) {
        let Some(member) = self.leader() else { return };
        note(&format!("the operator asks server {member} for {requests:?}"));
        self.with(|inner| {
            let conn = inner.next_operator;
            inner.next_operator += 1;
            inner.operators.insert(conn, Operator { member, requests });
            inner.happen(member, Event::Opened(ConnId(conn), ([10, 0, 2, 1], 7).into()));
            inner.happen(member, Event::Bytes(ConnId(conn), operator::connect()));
        });
    }

    /// The member that leads, if there is one.
    pub fn leader(&self) -> Option<usize> {
        self.0.borrow().ensemble.leader()
    }

    /// Whether all members serve.
    pub fn all_serve(&self) -> bool {
        let inner = self.0.borrow();
        (0..inner.members.len()).all(|member| inner.ensemble.is_serving(member))
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

    /// From now on this is called when the leader ends a session whose time is over. It must not
    /// act on the servers.
    pub fn on_expired(&self, told: impl Fn(i64) + 'static) {
        self.0.borrow_mut().on_expired = Some(Box::new(told));
    }

    /// The nodes at the leader that go with a session; none without a leader.
    pub fn ephemerals(&self) -> Vec<NodeInfo> {
        let inner = self.0.borrow();
        let leader = inner.ensemble.leader();
        let nodes = leader.into_iter().flat_map(|leader| inner.ensemble.nodes(leader));
        // The owner of a container is no session.
        nodes.filter(|node| node.owner > 0).collect()
    }

    /// The nodes at the leader that somebody must have forgotten if nobody has a lock: ephemeral
    /// ones, and persistent ones with a place in a queue.
    pub fn left(&self) -> Vec<NodeInfo> {
        let inner = self.0.borrow();
        let leader = inner.ensemble.leader();
        let nodes = leader.into_iter().flat_map(|leader| inner.ensemble.nodes(leader));
        nodes.filter(|node| node.owner > 0 || Node::numbered(&node.path).is_some()).collect()
    }

    /// The nodes at the leader, if no other member has applied more.
    pub fn newest(&self) -> Option<Vec<NodeInfo>> {
        let inner = self.0.borrow();
        inner.newest().map(|leader| inner.ensemble.nodes(leader))
    }

    /// How many watches there are at all members.
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
    /// The leader, if no other member has applied more. A leader that does not know yet that there
    /// is another one may be behind.
    fn newest(&self) -> Option<usize> {
        let leader = self.ensemble.leader()?;
        let applied = |member| self.ensemble.applied(member);
        (0..self.members.len()).all(|member| applied(member) <= applied(leader)).then_some(leader)
    }

    /// Now, or when the member runs again.
    fn happen(&mut self, member: usize, event: Event) {
        let state = &mut self.members[member];
        if now() < state.stalled_until || !state.waiting.is_empty() {
            state.waiting.push_back(event);
        } else {
            self.happens(member, event);
        }
    }

    fn happens(&mut self, member: usize, event: Event) {
        let conns = &mut self.members[member].conns;
        match event {
            Event::Opened(conn, from) => {
                conns.push(conn);
                self.ensemble.open(member, conn.0, from, now());
            }
            Event::Bytes(conn, bytes) => self.ensemble.bytes(member, conn.0, &bytes, now()),
            Event::Closed(conn) => {
                conns.retain(|open| *open != conn);
                self.ensemble.closed(member, conn.0, now());
            }
            Event::Packet(packet) => self.ensemble.packet(packet, now()),
        }
    }

    /// A member that was stalled runs again, if no later stall holds it.
    fn go_on(&mut self, member: usize) {
        if now() < self.members[member].stalled_until {
            return;
        }
        // Its threads read and see to its clock side by side, so either may come first.
        let timer_first = zk_sim_runtime::rng(|rng| rng.bool());
        if timer_first {
            self.ensemble.timer(member, now());
        }
        while let Some(event) = self.members[member].waiting.pop_front() {
            self.happens(member, event);
        }
    }

    /// Carries out what the ensemble wants, and sees to its timers.
    fn settle(&mut self) {
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
            return; // it was called sooner
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
                        self.happen(member, Event::Bytes(ConnId(conn), operator::all(&requests)));
                    }
                }
                None => net::send(ConnId(conn), bytes),
            },
            Output::Close { member, conn } => {
                self.operators.remove(&conn);
                net::close(ConnId(conn));
                self.members[member].conns.retain(|open| open.0 != conn);
                self.ensemble.closed(member, conn, now());
            }
            Output::Packet(packet) => {
                let way = (packet.from, packet.to);
                let new = || Wire::new(server_host(way.0), server_host(way.1));
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
                // What a leader ends that is none any more has no effect.
                if let (Notice::Expired { session }, Some(told)) = (notice, &self.on_expired)
                    && self.newest() == Some(member)
                {
                    told(session);
                }
            }
        }
    }
}
