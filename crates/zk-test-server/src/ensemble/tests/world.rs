//! A simulated world for an ensemble: it carries packets and bytes with delays, keeps the time and
//! injects faults. At every step it checks the rules that hold whatever fails.

use super::super::message::{Channel, Forwarded, Message};
use super::super::*;
use crate::engine::conn::State as ConnState;
use fastrand::Rng;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use zk_wire::code::{err, op, xid};
use zk_wire::frame::Frames;
use zk_wire::record::{ConnectReply, ConnectRequest, Reader, ReplyHeader, Writer};

pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// An event that will arrive later.
enum Event {
    Packet(Packet),
    ToServer {
        member: usize,
        conn: ConnId,
        bytes: Vec<u8>,
    },
    /// The client has closed the connection.
    EndToServer {
        member: usize,
        conn: ConnId,
    },
    ToClient {
        conn: ConnId,
        bytes: Vec<u8>,
    },
    /// The server has closed the connection.
    EndToClient {
        conn: ConnId,
    },
}

/// An answer that a client received.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) xid: i32,
    pub(super) zxid: i64,
    pub(super) err: i32,
    pub(super) body: Vec<u8>,
}

/// A client: its session, and its connection, if it has one.
pub(super) struct Client {
    pub(super) session: i64,
    password: Vec<u8>,
    pub(super) timeout: Duration,
    pub(super) granted: Duration,
    pub(super) last_zxid: i64,
    pub(super) member: usize,
    pub(super) conn: Option<ConnId>,
    pub(super) is_attached: bool,
    /// The server has refused the session, because it has ended.
    pub(super) is_expired: bool,
    frames: Frames,
    next_xid: i32,
    /// The requests on this connection that are not answered yet: xid and operation.
    pub(super) asked: VecDeque<(i32, i32)>,
    pub(super) answers: Vec<Answer>,
    pub(super) events: Vec<(i32, String)>,
    /// For each path, how many watches this connection has set and how many have fired.
    watches: BTreeMap<String, (usize, usize)>,
}

pub(super) struct World {
    pub(super) ensemble: Ensemble,
    pub(super) settings: Settings,
    pub(super) rng: Rng,
    pub(super) now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    sequence: u64,
    /// The longest delay of packets and of bytes.
    pub(super) slowest: Duration,
    /// When the last packet from one member to another, or the last bytes of one direction of a
    /// connection, arrive. Later ones do not overtake them.
    arrivals: HashMap<(u64, u64), Duration>,
    /// Pairs of members, sender and receiver, between which all packets are lost.
    pub(super) cut: BTreeSet<(usize, usize)>,
    /// Pairs of members, sender and receiver, between which packets wait until this time.
    held: BTreeMap<(usize, usize), Duration>,
    /// Members that do not run until this time.
    stalled: BTreeMap<usize, Duration>,
    pub(super) clients: Vec<Client>,
    by_conn: HashMap<ConnId, usize>,
    conns: ConnId,
    pub(super) notices: Vec<(Duration, usize, Notice)>,
    pub(super) checks_order: bool,
    // ---- memory of the checks ----
    /// A digest of the tree after each transaction.
    trees: HashMap<i64, u64>,
    seen: Vec<i64>,
    epochs: BTreeSet<u64>,
    /// For each session, the time before which a leader may not expire it, by the leader's own
    /// clock. It follows from the last packet for the session that the leader has read.
    heard: HashMap<(usize, i64), Duration>,
}

impl World {
    /// A world in which all members run and elect a leader.
    pub(super) fn new(settings: Settings, seed: u64) -> World {
        let mut world = World {
            ensemble: Ensemble::new(&settings, seed),
            seen: vec![0; settings.members],
            settings,
            rng: Rng::with_seed(seed),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            sequence: 0,
            slowest: ms(5),
            arrivals: HashMap::new(),
            cut: BTreeSet::new(),
            held: BTreeMap::new(),
            stalled: BTreeMap::new(),
            clients: Vec::new(),
            by_conn: HashMap::new(),
            conns: 0,
            notices: Vec::new(),
            checks_order: true,
            trees: HashMap::new(),
            epochs: BTreeSet::new(),
            heard: HashMap::new(),
        };
        for member in 0..world.settings.members {
            world.ensemble.start(member, true, world.now);
        }
        world.carry();
        world
    }

    /// A world in which all members serve clients.
    pub(super) fn serving(settings: Settings, seed: u64) -> World {
        let mut world = World::new(settings, seed);
        world.until_all_serve();
        world
    }

    pub(super) fn until_all_serve(&mut self) {
        let members = self.settings.members;
        self.until("all serve", |world| {
            (0..members).all(|member| world.ensemble.is_serving(member))
        });
    }

    pub(super) fn leader(&self) -> usize {
        self.ensemble.leader().expect("a leader")
    }

    pub(super) fn followers(&self) -> Vec<usize> {
        let leader = self.leader();
        (0..self.settings.members).filter(|member| *member != leader).collect()
    }

    pub(super) fn cut_off(&mut self, member: usize) {
        for other in 0..self.settings.members {
            self.cut.extend([(member, other), (other, member)]);
        }
    }

    // ---- time ----

    /// Goes on to the next event, if it is due before `limit`; returns false if there is none.
    pub(super) fn step(&mut self, limit: Duration) -> bool {
        let timer = |member: usize| {
            let due = self.ensemble.next_timer(member)?;
            let stalled = self.stalled.get(&member).copied().unwrap_or_default();
            Some((due.max(stalled).max(self.now), member))
        };
        let timer = (0..self.settings.members).filter_map(timer).min();
        let event = self.events.first_key_value().map(|((at, _), _)| *at);
        let at = timer.map(|(at, _)| at).into_iter().chain(event).min();
        let Some(at) = at.filter(|at| *at <= limit) else {
            self.now = limit;
            return false;
        };
        self.now = self.now.max(at);
        match timer {
            Some((due, member)) if event.is_none_or(|event| due < event) => {
                self.ensemble.timer(member, self.now);
            }
            _ => {
                if let Some(((_, sequence), event)) = self.events.pop_first() {
                    self.happen(sequence, event);
                }
            }
        }
        self.carry();
        self.check();
        true
    }

    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.step(end) {}
    }

    pub(super) fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut World) -> bool) {
        let end = self.now + Duration::from_secs(600);
        while !is_so(self) {
            assert!(self.step(end), "{what}: {:?}", self.notices);
        }
    }

    fn put(&mut self, way: (u64, u64), event: Event) {
        let delay = ms(1).max(self.slowest.mul_f64(self.rng.f64()));
        let arrival = self.arrivals.entry(way).or_default();
        *arrival = (*arrival).max(self.now + delay);
        self.sequence += 1;
        self.events.insert((*arrival, self.sequence), event);
    }

    fn happen(&mut self, sequence: u64, event: Event) {
        let now = self.now;
        let (member, from) = match &event {
            Event::Packet(packet) => (packet.to, Some(packet.from)),
            Event::ToServer { member, .. } | Event::EndToServer { member, .. } => (*member, None),
            Event::ToClient { conn, bytes } => {
                let (conn, bytes) = (*conn, bytes.clone());
                return self.read(conn, &bytes);
            }
            Event::EndToClient { conn } => {
                let conn = *conn;
                return self.ended(conn);
            }
        };
        let stalled = self.stalled.get(&member).copied();
        let held = from.and_then(|from| self.held.get(&(from, member)).copied());
        if let Some(until) = stalled.max(held).filter(|until| *until > now) {
            self.events.insert((until, sequence), event);
            return;
        }
        match event {
            Event::Packet(packet) if self.cut.contains(&(packet.from, packet.to)) => {}
            Event::Packet(packet) => {
                let heard = packet.clone();
                self.ensemble.packet(packet, now);
                self.note_heard(heard);
            }
            Event::ToServer { member, conn, bytes } => {
                self.ensemble.bytes(member, conn, &bytes, now);
                let client = self.ensemble.members[member].server.front.conns.get(&conn);
                if let Some(client) = client.filter(|client| client.state != ConnState::Ended) {
                    self.note_touch(member, client.session, client.timeout);
                }
            }
            Event::EndToServer { member, conn } => self.ensemble.closed(member, conn, now),
            Event::ToClient { .. } | Event::EndToClient { .. } => {}
        }
    }

    /// Carries out the ensemble's outputs.
    pub(super) fn carry(&mut self) {
        for output in self.ensemble.take_outputs() {
            match output {
                Output::Bytes { conn, bytes, .. } => {
                    self.put((conn, 0), Event::ToClient { conn, bytes })
                }
                Output::Close { member, conn } => {
                    self.put((conn, 0), Event::EndToClient { conn });
                    self.ensemble.closed(member, conn, self.now);
                }
                Output::Packet(packet) => {
                    let way = (u64::MAX - packet.from as u64, packet.to as u64);
                    self.put(way, Event::Packet(packet));
                }
                Output::Notice { member, notice } => {
                    self.check_notice(member, notice);
                    self.notices.push((self.now, member, notice));
                }
            }
        }
    }

    // ---- clients ----

    /// A client without a session.
    pub(super) fn client(&mut self, timeout: Duration) -> usize {
        self.clients.push(Client {
            session: 0,
            password: vec![0; 16],
            timeout,
            granted: timeout,
            last_zxid: 0,
            member: 0,
            conn: None,
            is_attached: false,
            is_expired: false,
            frames: Frames::default(),
            next_xid: 1,
            asked: VecDeque::new(),
            answers: Vec::new(),
            events: Vec::new(),
            watches: BTreeMap::new(),
        });
        self.clients.len() - 1
    }

    /// Connects to a member, with the client's session, or for a new one if it has none.
    pub(super) fn connect(&mut self, client: usize, member: usize) {
        self.conns += 1;
        let conn = self.conns;
        self.by_conn.insert(conn, client);
        self.ensemble.open(member, conn, ([10, 0, 0, 1], 7).into(), self.now);
        let client = &mut self.clients[client];
        (client.conn, client.member, client.is_attached) = (Some(conn), member, false);
        client.frames.clear();
        client.asked.clear();
        client.watches.clear();
        let request = ConnectRequest {
            last_zxid: client.last_zxid,
            timeout_ms: client.timeout.as_millis() as i32,
            session_id: client.session,
            password: &client.password,
        };
        let bytes = request.frame();
        self.put((conn, 1), Event::ToServer { member, conn, bytes });
    }

    /// A client with a new session at this member.
    pub(super) fn attach(&mut self, member: usize, timeout: Duration) -> usize {
        let client = self.client(timeout);
        self.connect(client, member);
        self.until("a session", |world| world.clients[client].is_attached);
        client
    }

    /// The client closes its connection.
    pub(super) fn leave(&mut self, client: usize) {
        if let Some(conn) = self.clients[client].conn.take() {
            self.by_conn.remove(&conn);
            let member = self.clients[client].member;
            self.put((conn, 1), Event::EndToServer { member, conn });
        }
    }

    /// The client leaves its connection open and continues without it. Bytes that still arrive
    /// there are not read.
    pub(super) fn forget(&mut self, client: usize) -> (usize, ConnId) {
        let conn = self.clients[client].conn.take().expect("a connection");
        self.by_conn.remove(&conn);
        (self.clients[client].member, conn)
    }

    pub(super) fn send_raw(&mut self, (member, conn): (usize, ConnId), bytes: Vec<u8>) {
        self.put((conn, 1), Event::ToServer { member, conn, bytes });
    }

    pub(super) fn send(
        &mut self,
        client: usize,
        op: i32,
        body: impl FnOnce(Writer) -> Writer,
    ) -> i32 {
        let state = &mut self.clients[client];
        let Some(conn) = state.conn else { panic!("no connection") };
        let xid = if op == op::PING { xid::PING } else { state.next_xid };
        state.next_xid += i32::from(op != op::PING);
        state.asked.push_back((xid, op));
        let (member, bytes) = (state.member, body(Writer::request(xid, op)).frame());
        self.put((conn, 1), Event::ToServer { member, conn, bytes });
        xid
    }

    /// Sends a request and waits for its answer. Returns none if the connection ends first, or
    /// after a minute.
    pub(super) fn call(
        &mut self,
        client: usize,
        op: i32,
        body: impl FnOnce(Writer) -> Writer,
    ) -> Option<Answer> {
        let before = self.clients[client].answers.len();
        let xid = self.send(client, op, body);
        let end = self.now + Duration::from_secs(60);
        loop {
            let state = &self.clients[client];
            let answer = state.answers[before..].iter().find(|answer| answer.xid == xid);
            if answer.is_some() || state.conn.is_none() || !self.step(end) {
                let answers = &self.clients[client].answers[before..];
                return answers.iter().find(|answer| answer.xid == xid).cloned();
            }
        }
    }

    pub(super) fn create(&mut self, client: usize, path: &str, flags: i32) -> Option<Answer> {
        self.call(client, op::CREATE, |w| create(w, path, flags))
    }

    /// The error code of the answer to an `exists`.
    pub(super) fn exists(&mut self, client: usize, path: &str) -> Option<i32> {
        self.call(client, op::EXISTS, |w| w.buffer(path.as_bytes()).bool(false))
            .map(|answer| answer.err)
    }

    pub(super) fn watch(&mut self, client: usize, path: &str) {
        self.send(client, op::EXISTS, |w| w.buffer(path.as_bytes()).bool(true));
        self.clients[client].watches.entry(path.to_owned()).or_default().0 += 1;
    }

    /// Lets clients ping while this time passes, as idle clients do.
    pub(super) fn idle(&mut self, clients: &[usize], time: Duration) {
        let end = self.now + time;
        while self.now < end {
            for client in clients {
                if self.clients[*client].conn.is_some() {
                    self.send(*client, op::PING, |w| w);
                }
            }
            self.run(ms(200).min(end - self.now));
        }
    }

    fn read(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(client) = self.by_conn.get(&conn) else { return };
        let client = &mut self.clients[*client];
        client.frames.push(bytes);
        while let Some(frame) = client.frames.next().expect("frames").map(<[u8]>::to_vec) {
            if !client.is_attached {
                let reply = ConnectReply::read(&frame).expect("a welcome");
                if reply.timeout_ms == 0 {
                    client.is_expired = true;
                    continue;
                }
                client.is_attached = true;
                client.granted = ms(reply.timeout_ms as u64);
                (client.session, client.password) = (reply.session_id, reply.password);
                continue;
            }
            let (header, body) = ReplyHeader::read(&frame).expect("an answer");
            if header.xid == xid::EVENT {
                let mut r = Reader::new(body);
                let (kind, _state) = (r.i32().expect("a kind"), r.i32().expect("a state"));
                let path = r.string().expect("a path").to_owned();
                let (set, fired) = client.watches.get_mut(&path).expect("a watch that was set");
                *fired += 1;
                assert!(fired <= set, "more watches on {path} have fired than were set");
                client.events.push((kind, path));
                continue;
            }
            let at = match self.checks_order {
                true => 0,
                false => {
                    client.asked.iter().position(|(xid, _)| *xid == header.xid).expect("asked")
                }
            };
            let (xid, _) = client.asked.remove(at).expect("an answer belongs to a request");
            assert_eq!(xid, header.xid, "answers come in the order of the requests");
            let ReplyHeader { zxid, err, .. } = header;
            if zxid > 0 {
                assert!(
                    zxid >= client.last_zxid,
                    "a session's zxid goes back: {zxid:#x}, {:#x}",
                    client.last_zxid
                );
                client.last_zxid = zxid;
            }
            client.answers.push(Answer { xid, zxid, err, body: body.to_vec() });
        }
    }

    fn ended(&mut self, conn: ConnId) {
        if let Some(client) = self.by_conn.remove(&conn) {
            self.clients[client].conn = None;
        }
    }

    // ---- checks at every step ----

    /// Notes which sessions this packet keeps alive, if the leader has read the packet.
    fn note_heard(&mut self, packet: Packet) {
        let (Channel::Stream { id, .. }, Part::Leading(leader)) =
            (packet.channel, &self.ensemble.members[packet.to].part)
        else {
            return;
        };
        if !leader.has_stream(id) {
            return;
        }
        match packet.message {
            Message::Touched(touched) => {
                for (session, timeout) in touched {
                    self.note_touch(packet.to, session, timeout);
                }
            }
            Message::Revalidate { session, timeout } => {
                self.note_touch(packet.to, session, timeout)
            }
            Message::Forwarded(Forwarded { session, op: op::CREATE_SESSION, body, .. }) => {
                let timeout = ms(Reader::new(&body).i32().expect("a timeout") as u64);
                self.note_touch(packet.to, session, timeout);
            }
            _ => {}
        }
    }

    /// Notes that a member has received a sign of life of a session. If this member leads, it may
    /// not expire the session before the timeout is over.
    fn note_touch(&mut self, member: usize, session: i64, timeout: Duration) {
        let member_state = &self.ensemble.members[member];
        if member_state.server.is_serving && matches!(member_state.part, Part::Leading(_)) {
            let now = member_state.clock.at(self.now);
            self.heard.insert((member, session), now + timeout);
        }
    }

    fn check_notice(&mut self, member: usize, notice: Notice) {
        match notice {
            Notice::Leads { epoch } => {
                assert!(self.epochs.insert(epoch), "two leaders of one epoch");
                let now = self.ensemble.members[member].clock.at(self.now);
                self.heard.retain(|(heard, _), _| *heard != member);
                for (session, timeout) in self.ensemble.sessions(member) {
                    self.heard.insert((member, session), now + timeout);
                }
            }
            Notice::Expired { session } => {
                let now = self.ensemble.members[member].clock.at(self.now);
                let until = self.heard.get(&(member, session)).copied().unwrap_or_default();
                assert!(now >= until, "{member} expires {session:#x} {:?} too early", until - now);
            }
            Notice::Looks { .. } | Notice::Follows { .. } => {}
        }
    }

    /// Checks that all serving members have the same tree after the same transaction.
    fn check(&mut self) {
        for member in 0..self.settings.members {
            let applied = self.ensemble.applied(member);
            if applied == self.seen[member] || !self.ensemble.is_serving(member) {
                continue;
            }
            self.seen[member] = applied;
            let mut hasher = DefaultHasher::new();
            for node in self.ensemble.nodes(member) {
                (node.path, node.owner, node.czxid, node.data).hash(&mut hasher);
            }
            for session in self.ensemble.sessions(member) {
                session.hash(&mut hasher);
            }
            let digest = hasher.finish();
            let known = *self.trees.entry(applied).or_insert(digest);
            assert_eq!(
                known, digest,
                "member {member} differs from another member after transaction {applied:#x}"
            );
        }
    }

    /// Lets packets from one member to another wait for this time. Packets that wait already keep
    /// their place in the order.
    pub(super) fn hold(&mut self, from: usize, to: usize, time: Duration) {
        let until = self.held.entry((from, to)).or_default();
        *until = (*until).max(self.now + time);
    }

    /// Stops a member for this time. An earlier stop that ends later stays in force.
    pub(super) fn stall(&mut self, member: usize, time: Duration) {
        let until = self.stalled.entry(member).or_default();
        *until = (*until).max(self.now + time);
    }

    /// Whether all members but this one serve and have logged and applied the same writes.
    pub(super) fn is_level_but(&self, member: usize) -> bool {
        let others = || (0..self.settings.members).filter(|other| *other != member);
        let logged: BTreeSet<i64> =
            others().map(|other| self.ensemble.members[other].server.last_logged()).collect();
        let is_disturbed =
            self.held.values().chain(self.stalled.values()).any(|until| *until > self.now);
        !is_disturbed
            && self.cut.is_empty()
            && logged.len() == 1
            && others().all(|other| {
                self.ensemble.is_serving(other) && logged.contains(&self.ensemble.applied(other))
            })
    }

    /// Starts all members and ends all faults.
    pub(super) fn heal(&mut self) {
        self.cut.clear();
        for member in 0..self.settings.members {
            self.ensemble.start(member, true, self.now);
        }
        self.carry();
        let last =
            self.held.values().chain(self.stalled.values()).max().copied().unwrap_or_default();
        self.run(last.saturating_sub(self.now) + self.settings.tick * 2);
        self.until("one history", |world| {
            let applied: BTreeSet<i64> =
                (0..world.settings.members).map(|member| world.ensemble.applied(member)).collect();
            (0..world.settings.members).all(|member| world.ensemble.is_serving(member))
                && applied.len() == 1
        });
    }

    pub(super) fn expiries(&self, session: i64) -> usize {
        let is_it = |notice: &Notice| *notice == Notice::Expired { session };
        self.notices.iter().filter(|(_, _, notice)| is_it(notice)).count()
    }
}

pub(super) fn create(w: Writer, path: &str, flags: i32) -> Writer {
    w.buffer(path.as_bytes()).i32(-1).i32(1).i32(31).buffer(b"world").buffer(b"anyone").i32(flags)
}

pub(super) fn is_ok(answer: Option<Answer>) -> bool {
    answer.is_some_and(|answer| answer.err == err::OK)
}

impl World {
    /// From now on the checks allow any session to expire at any time.
    pub(super) fn forget_heard(&mut self) {
        self.heard.clear();
    }
}
