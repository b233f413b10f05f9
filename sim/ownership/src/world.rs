//! The world of the model: one session of a client, and three servers.
//!
//! What can go, goes at once: packets wait only in streams that stand still. So time passes only by
//! an action, and the number of orders stays small. An action stops a stream, lets one packet of it
//! pass or all, or breaks it; and so every order of the packets of different streams comes about.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use zk_wire::code::{err, op};
use zk_wire::frame::Frames;
use zk_wire::path;
use zk_wire::record::{ConnectReply, ConnectRequest, Reader, ReplyHeader, Writer, request_header};

use crate::client::{Client, Lock, Said, T, hash_at};
use crate::scope::{Action, Scope, Start};

/// Our session, and that of the other client.
const OURS: i64 = 7;
const THEIRS: i64 = 9;

/// For so long a stream between servers can stand still; then it breaks. (`removal::late_bound` of
/// this T.)
const PATIENCE: u64 = 60_000;

/// The leader expires a session at the latest so long after it last heard of it: T, and a tick,
/// which is how often it looks.
const LONGEST: u64 = T + T / 2;

/// The time between two pings of the leader: half a tick, with the longest tick that T allows.
const PINGS: u64 = T / 4;

#[derive(Clone, Debug, Hash)]
enum Op {
    Create { path: String, data: Vec<u8>, is_sequential: bool },
    Delete { path: String, version: i32 },
    Set { path: String, data: Vec<u8>, version: i32 },
    Get(String),
    List(String),
    Sync,
    Ping,
}

#[derive(Clone, Debug, Hash)]
struct Request {
    connection: u32,
    xid: i32,
    op: Op,
}

/// A packet of a follower to the leader. The leader's own clients have such a queue, too.
#[derive(Clone, Debug, Hash)]
enum Up {
    Revalidate,
    /// The answer to a ping; true if it lists our session.
    Heard(bool),
    Request(Request),
}

/// A packet of the leader to a follower.
#[derive(Clone, Debug, Hash)]
enum Down {
    Valid,
    Commit(Rc<Tree>, Option<Answer>),
    Synced(Answer),
    Ping,
}

#[derive(Clone, Debug, Hash)]
struct Answer {
    connection: u32,
    xid: i32,
    err: i32,
    body: Vec<u8>,
}

#[derive(Clone, Debug, Default, Hash)]
struct Tree {
    zxid: i64,
    nodes: Vec<Node>,
    /// How many sequential nodes were made.
    made: u32,
}

#[derive(Clone, Debug, Hash)]
struct Node {
    path: String,
    data: Vec<u8>,
    czxid: i64,
    version: i32,
    owner: i64,
    /// The call that has made it.
    call: usize,
}

#[derive(Clone, Debug, Default, Hash)]
struct Server {
    /// The connection that carries the session.
    connection: Option<u32>,
    /// The connection that the next answer to a REVALIDATE completes.
    pending_revalidation: Option<u32>,
    /// The requests of the connection in their order, with their answers so far.
    unanswered: VecDeque<(Request, Option<Answer>)>,
    up: VecDeque<Up>,
    down: VecDeque<Down>,
    /// Since when each stream has stood still.
    up_stopped: Option<u64>,
    down_stopped: Option<u64>,
    is_up_lost: bool,
    /// Counts the streams to the leader: for the leader each is another owner.
    stream: u32,
    tree: Rc<Tree>,
    /// It has heard the session since the last ping of the leader.
    is_touched: bool,
}

#[derive(Clone, Debug, Hash)]
enum Caller {
    Waits(u64),
    Holds(String, i64),
    /// Nobody wants the node.
    Left,
}

pub struct World {
    scope: &'static Scope,
    client: Box<dyn Client>,
    now: u64,
    /// The client's socket: its number, and the server.
    socket: Option<(u32, usize)>,
    sockets: u32,
    servers: [Server; 3],
    leader: usize,
    /// It was the leader before, and does not know that it has been replaced.
    deposed: Option<usize>,
    /// The server, and its stream, that may send requests of our session.
    owner: Option<(usize, u32)>,
    /// When the leader last heard of our session.
    heard: u64,
    tree: Rc<Tree>,
    callers: Vec<Caller>,
    /// The leader has expired the session.
    is_over: bool,
    to_client: VecDeque<(u32, Option<Vec<u8>>)>,
    pub wrong: Option<String>,
}

impl Clone for World {
    fn clone(&self) -> Self {
        World {
            client: self.client.copied(),
            servers: self.servers.clone(),
            tree: self.tree.clone(),
            callers: self.callers.clone(),
            to_client: VecDeque::new(),
            wrong: None,
            ..*self
        }
    }
}

impl World {
    pub fn new(scope: &'static Scope, client: Box<dyn Client>, start: &Start) -> Self {
        let (at, now) = (start.at, T * 20 + start.after_ping);
        let mut world = World {
            scope,
            client,
            now,
            socket: None,
            sockets: 0,
            servers: Default::default(),
            leader: 0,
            deposed: None,
            owner: Some((at, 0)),
            heard: now,
            tree: Rc::default(),
            callers: Vec::new(),
            is_over: false,
            to_client: VecDeque::new(),
            wrong: None,
        };
        world.dial(at);
        world.flow();
        if scope.lease {
            world.client.hold();
            world.client.wake(world.now);
            world.flow();
        }
        start.done.iter().for_each(|action| world.act(*action));
        world
    }

    pub fn key(&self) -> u64 {
        let mut h = DefaultHasher::new();
        hash_at(self.now);
        self.client.hash(&mut h);
        let newest = self.sockets;
        (self.socket, newest, &self.leader, self.deposed, self.owner).hash(&mut h);
        (&self.tree, &self.callers).hash(&mut h);
        for server in &self.servers {
            let Server { connection, pending_revalidation, unanswered, up, down, .. } = server;
            (connection, pending_revalidation, unanswered, up, down).hash(&mut h);
            let Server { is_up_lost, stream, tree, is_touched, .. } = server;
            (is_up_lost, stream, tree.zxid, is_touched).hash(&mut h);
            let since = |t: Option<u64>| t.map(|t| self.now - t);
            (since(server.up_stopped), since(server.down_stopped)).hash(&mut h);
        }
        if self.scope.lease || self.scope.step > 0 || self.scope.patience {
            ((self.now - self.heard).min(T * 2), self.now % PINGS).hash(&mut h);
        }
        h.finish()
    }

    // ---- the client ----

    fn dial(&mut self, server: usize) {
        let bytes = self.client.dial(self.now);
        self.sockets += 1;
        self.socket = Some((self.sockets, server));
        let mut frames = Frames::default();
        frames.push(&bytes);
        let frame = frames.next().ok().flatten().expect("a connect request");
        let (request, _) = ConnectRequest::read(frame).expect("a connect request");
        let connection = self.sockets;
        if request.last_zxid > self.servers[server].tree.zxid {
            self.close(connection); // ZooKeeperServer.processConnectRequest
            return;
        }
        let at = &mut self.servers[server];
        // ServerCnxnFactory.closeSession: of two connections of one session, the earlier one ends.
        (at.connection, at.pending_revalidation) = (None, None);
        at.unanswered.clear();
        if request.session_id == 0 || server == self.leader || self.deposed == Some(server) {
            if self.deposed != Some(server) {
                (self.owner, self.heard) = (Some((server, at.stream)), self.now);
            }
            self.established(server, connection);
        } else {
            at.pending_revalidation = Some(connection);
            self.push_up(server, Up::Revalidate);
        }
    }

    /// A server completes the handshake.
    fn established(&mut self, server: usize, connection: u32) {
        self.servers[server].connection = Some(connection);
        let timeout_ms = i32::try_from(T).unwrap_or(i32::MAX);
        let reply = ConnectReply { timeout_ms, session_id: OURS, password: vec![5; 16] };
        self.to_client.push_back((connection, Some(reply.frame())));
    }

    fn close(&mut self, connection: u32) {
        self.to_client.push_back((connection, None));
    }

    /// Everything goes that can go.
    fn flow(&mut self) {
        loop {
            self.client_goes_on();
            if let Some((connection, bytes)) = self.to_client.pop_front() {
                if self.socket.is_some_and(|(own, _)| own == connection) {
                    let before = self.client.lease_end();
                    match bytes {
                        Some(bytes) => self.client.bytes(&bytes, self.now),
                        None => {
                            self.client.hang_up(self.now);
                            self.socket = None;
                        }
                    }
                    self.judge_lease(before);
                }
                continue;
            }
            let up = |s: &Server| s.up_stopped.is_none() && !s.up.is_empty();
            let down = |s: &Server| s.down_stopped.is_none() && !s.down.is_empty();
            if let Some(server) = self.servers.iter().position(up) {
                let packet = self.servers[server].up.pop_front();
                packet.into_iter().for_each(|packet| self.leader_takes(server, packet));
            } else if let Some(server) = self.servers.iter().position(down) {
                let packet = self.servers[server].down.pop_front();
                packet.into_iter().for_each(|packet| self.follower_takes(server, packet));
            } else {
                return;
            }
        }
    }

    fn client_goes_on(&mut self) {
        for said in self.client.said() {
            match said {
                Said::Cut => self.socket = None,
                // What the session has left goes with its end at the leader.
                Said::Lost(_) if self.client.was_let_go(self.now) => self.expire(),
                Said::Lost(reason) => self.wrong = Some(format!("the session is lost: {reason}")),
                Said::Answered(call, made) => {
                    let is_it = |c: &&mut Caller| matches!(c, Caller::Waits(of) if *of == call);
                    if let Some(caller) = self.callers.iter_mut().find(is_it) {
                        *caller = made.map_or(Caller::Left, |(path, id)| Caller::Holds(path, id));
                    }
                }
            }
        }
        let mut frames = Frames::default();
        frames.push(&self.client.sent());
        if let Some((connection, server)) = self.socket.filter(|_| !self.is_over) {
            while let Ok(Some(frame)) = frames.next() {
                let (xid, code) = request_header(frame).expect("a request");
                let op = read_op(code, &frame[8..]);
                self.server_takes(server, Request { connection, xid, op });
            }
        }
    }

    /// The lease ends at the latest T - T/12 after the leader heard of the session.
    fn judge_lease(&mut self, before: Option<u64>) {
        let end = self.client.lease_end();
        if self.scope.lease && end > before && end > Some(self.heard + T - T / 12) {
            let by = end.unwrap_or(0) - (self.heard + T - T / 12);
            self.wrong = Some(format!("the lease ends {by} ms later than it may"));
        }
    }

    // ---- the servers ----

    /// A server reads a request from its client.
    fn server_takes(&mut self, server: usize, request: Request) {
        if self.servers[server].connection != Some(request.connection) {
            return;
        }
        let is_leader = server == self.leader;
        let is_ordered = !matches!(request.op, Op::Get(_) | Op::List(_) | Op::Ping);
        self.servers[server].unanswered.push_back((request.clone(), None));
        if is_leader {
            self.heard = self.now;
            self.push_up(server, Up::Request(request));
        } else if self.deposed == Some(server) {
            // It does no write any more, but it does not know that.
            if matches!(request.op, Op::Sync)
                && let Some((_, answer)) = self.servers[server].unanswered.back_mut()
            {
                let Request { connection, xid, .. } = request;
                *answer = Some(Answer { connection, xid, err: err::OK, body: Vec::new() });
            }
        } else {
            self.servers[server].is_touched = true;
            if is_ordered {
                self.push_up(server, Up::Request(request));
            }
        }
        self.answer(server);
    }

    fn push_up(&mut self, server: usize, packet: Up) {
        if !self.servers[server].is_up_lost {
            self.servers[server].up.push_back(packet);
        }
    }

    /// Answers the requests of a connection that can be answered: a session's requests are answered
    /// in order, and a read waits for the writes before it (CommitProcessor).
    fn answer(&mut self, server: usize) {
        let is_leader = server == self.leader;
        while let Some((request, answer)) = self.servers[server].unanswered.front().cloned() {
            let answer = match answer {
                Some(answer) => answer,
                // Its requests wait for their turn: `leader_takes` comes back to them.
                None if is_leader
                    && self.servers[server].up.iter().any(|up| is_of(up, &request)) =>
                {
                    return;
                }
                None => match self.servers[server].tree.read(&request.op) {
                    Some((err, body)) => {
                        let Request { connection, xid, .. } = request;
                        Answer { connection, xid, err, body }
                    }
                    None => return,
                },
            };
            self.servers[server].unanswered.pop_front();
            let Answer { connection, xid, err, body } = answer;
            if err == err::SESSION_MOVED {
                self.servers[server].connection = None;
                self.servers[server].unanswered.clear();
                self.close(connection); // FinalRequestProcessor: sendCloseSession
                return;
            }
            let zxid = self.servers[server].tree.zxid;
            let frame = ReplyHeader { xid, zxid, err }.frame(&body);
            self.to_client.push_back((connection, Some(frame)));
        }
    }

    fn leader_takes(&mut self, from: usize, packet: Up) {
        let via = (from, self.servers[from].stream);
        match packet {
            Up::Revalidate => {
                (self.owner, self.heard) = (Some(via), self.now);
                self.push_down(from, Down::Valid);
            }
            Up::Heard(true) => self.heard = self.now,
            Up::Heard(false) => {}
            Up::Request(request) => {
                let Request { connection, xid, op } = request;
                let mut answer = Answer { connection, xid, err: err::OK, body: Vec::new() };
                let is_moved = *self.owner.get_or_insert(via) != via;
                match op {
                    // ProposalRequestProcessor passes a follower's sync on, moved or not.
                    Op::Sync if from != self.leader => self.push_down(from, Down::Synced(answer)),
                    Op::Sync | Op::Get(_) | Op::List(_) | Op::Ping => {
                        // A request of the leader's own client; only it comes here.
                        let read = self.tree.read(&op).unwrap_or((err::OK, Vec::new()));
                        (answer.err, answer.body) =
                            if is_moved { (err::SESSION_MOVED, Vec::new()) } else { read };
                        self.push_down(from, Down::Synced(answer));
                    }
                    _ => {
                        let mut tree = (*self.tree).clone();
                        tree.zxid += 1;
                        match is_moved {
                            true => answer.err = err::SESSION_MOVED,
                            false => (answer.err, answer.body) = self.write(&mut tree, &op),
                        }
                        self.commit(tree, Some((from, answer)));
                    }
                }
            }
        }
    }

    fn commit(&mut self, tree: Tree, answer: Option<(usize, Answer)>) {
        self.tree = Rc::new(tree);
        let deposed = self.deposed;
        for server in (0..3).filter(|server| deposed != Some(*server)) {
            let of = answer.as_ref().filter(|(from, _)| *from == server);
            let commit = Down::Commit(self.tree.clone(), of.map(|(_, answer)| answer.clone()));
            self.push_down(server, commit);
        }
    }

    fn push_down(&mut self, server: usize, packet: Down) {
        if server == self.leader {
            self.follower_takes(server, packet);
        } else {
            self.servers[server].down.push_back(packet);
        }
    }

    /// A server takes what the leader sends. (The leader sends to itself, too.)
    fn follower_takes(&mut self, server: usize, packet: Down) {
        let at = &mut self.servers[server];
        match packet {
            Down::Valid => {
                if let Some(connection) = at.pending_revalidation.take() {
                    self.established(server, connection);
                }
            }
            Down::Ping => {
                let is_touched = std::mem::take(&mut at.is_touched);
                self.push_up(server, Up::Heard(is_touched));
            }
            Down::Commit(tree, answer) => {
                at.tree = tree;
                answer.into_iter().for_each(|answer| at.note(answer));
                self.answer(server);
            }
            Down::Synced(answer) => {
                at.note(answer);
                self.answer(server);
            }
        }
    }

    /// The leader does a write of our session.
    fn write(&mut self, tree: &mut Tree, op: &Op) -> (i32, Vec<u8>) {
        let found = |path: &str| tree.nodes.iter().position(|node| node.path == path);
        match op {
            Op::Create { path, data, is_sequential } => {
                if !is_sequential && found(path).is_some() {
                    return (err::NODE_EXISTS, Vec::new());
                }
                let is_it = |call: &usize| {
                    let lock = Lock::new(self.scope.is_named, *call);
                    lock.path == *path && lock.data() == *data
                };
                let call = (0..self.callers.len()).find(is_it).unwrap_or(usize::MAX);
                let mut path = path.clone();
                if *is_sequential {
                    path += &format!("{:010}", tree.made);
                    tree.made += 1;
                }
                let (data, czxid) = (data.clone(), tree.zxid);
                let node = Node { path, data, czxid, version: 0, owner: OURS, call };
                let body = node.stat(Writer::bare().buffer(node.path.as_bytes()));
                tree.nodes.push(node);
                (err::OK, body)
            }
            Op::Delete { path, version } => {
                let Some(at) = found(path) else { return (err::NO_NODE, Vec::new()) };
                if *version != -1 && *version != tree.nodes[at].version {
                    return (err::BAD_VERSION, Vec::new());
                }
                let node = tree.nodes.remove(at);
                if node.owner == THEIRS {
                    self.wrong = Some("the other client's node is deleted by ours".into());
                } else if !matches!(self.callers.get(node.call), Some(Caller::Left)) {
                    self.wrong = Some("the node of our own next lock is deleted".into());
                }
                (err::OK, Vec::new())
            }
            Op::Set { path, data, version } => {
                let Some(at) = found(path) else { return (err::NO_NODE, Vec::new()) };
                let node = &mut tree.nodes[at];
                if *version != -1 && *version != node.version {
                    return (err::BAD_VERSION, Vec::new());
                }
                node.data.clone_from(data);
                node.version += 1;
                (err::OK, node.stat(Writer::bare()))
            }
            _ => (err::UNIMPLEMENTED, Vec::new()),
        }
    }

    // ---- actions ----

    pub fn actions(&self) -> Vec<Action> {
        let (scope, mut all) = (self.scope, Vec::new());
        if self.is_over {
            return all;
        }
        all.extend((0..scope.servers).map(Action::Dial));
        if scope.step > 0 {
            all.push(Action::Wait);
        }
        for (server, at) in self.servers.iter().enumerate().take(scope.servers) {
            if self.deposed == Some(server) {
                continue;
            }
            let is_follower = server != self.leader;
            match at.up_stopped {
                None if !at.is_up_lost && (is_follower || scope.overtaking) => {
                    all.push(Action::StopUp(server));
                }
                None => {}
                Some(_) => {
                    all.push(Action::GoUp(server));
                    let first = at.up.iter().position(|up| matches!(up, Up::Request(_)));
                    let check = at.up.iter().position(|up| !matches!(up, Up::Request(_)));
                    if first.is_some_and(|at| at == 0 || scope.overtaking) {
                        all.push(Action::PassRequest(server));
                    }
                    if check.is_some_and(|at| at == 0 || scope.overtaking) {
                        all.push(Action::PassCheck(server));
                    }
                }
            }
            if is_follower && scope.down {
                match at.down_stopped {
                    None => all.push(Action::StopDown(server)),
                    Some(_) => {
                        all.push(Action::GoDown(server));
                        if !at.down.is_empty() {
                            all.push(Action::PassDown(server));
                        }
                    }
                }
            }
            if is_follower && scope.breaks {
                all.push(Action::Break(server));
                if scope.lease && !at.is_up_lost {
                    all.push(Action::LoseUp(server));
                }
            }
            if is_follower && scope.elections && self.deposed.is_none() {
                all.push(Action::Elect(server));
            }
        }
        if self.deposed.is_some() {
            all.push(Action::Rejoin);
        }
        let stopped = self.servers.iter().any(|s| s.up_stopped.or(s.down_stopped).is_some());
        if scope.patience && stopped {
            all.push(Action::WaitLong);
        }
        let idle = self.callers.iter().all(|caller| matches!(caller, Caller::Left));
        if idle && self.callers.len() < scope.calls && self.client.is_up() {
            all.push(Action::Lock);
        }
        for (call, caller) in self.callers.iter().enumerate() {
            match caller {
                Caller::Waits(_) => all.push(Action::Abandon(call)),
                Caller::Holds(..) => all.push(Action::Release(call)),
                Caller::Left => {}
            }
        }
        if scope.theirs && self.tree.nodes.is_empty() {
            all.push(Action::TheyLock);
        }
        all
    }

    pub fn act(&mut self, action: Action) {
        match action {
            Action::Dial(server) => self.dial(server),
            Action::StopUp(server) => self.servers[server].up_stopped = Some(self.now),
            Action::StopDown(server) => self.servers[server].down_stopped = Some(self.now),
            Action::GoUp(server) => self.servers[server].up_stopped = None,
            Action::GoDown(server) => self.servers[server].down_stopped = None,
            Action::PassCheck(server) | Action::PassRequest(server) => {
                let is_request = matches!(action, Action::PassRequest(_));
                let up = &mut self.servers[server].up;
                let at = up.iter().position(|up| matches!(up, Up::Request(_)) == is_request);
                let packet = at.and_then(|at| up.remove(at));
                packet.into_iter().for_each(|packet| self.leader_takes(server, packet));
            }
            Action::PassDown(server) => {
                let packet = self.servers[server].down.pop_front();
                packet.into_iter().for_each(|packet| self.follower_takes(server, packet));
            }
            Action::Break(server) => self.join(server),
            Action::LoseUp(server) => {
                self.servers[server].up.clear();
                self.servers[server].is_up_lost = true;
            }
            Action::Elect(server) => {
                let old = std::mem::replace(&mut self.leader, server);
                self.servers[old].up.clear();
                self.servers[old].up_stopped = None;
                self.deposed = Some(old);
                // Sessions begin anew at a new leader.
                (self.owner, self.heard) = (None, self.now);
                (0..3).filter(|other| *other != old).for_each(|other| self.join(other));
            }
            Action::Rejoin => {
                self.deposed.take().into_iter().for_each(|server| self.join(server));
            }
            Action::Lock => {
                let lock = Lock::new(self.scope.is_named, self.callers.len());
                let call = self.client.lock(&lock, self.now);
                self.callers.push(Caller::Waits(call));
            }
            Action::Abandon(call) => {
                if let Caller::Waits(number) = self.callers[call] {
                    self.callers[call] = Caller::Left;
                    self.client.abandon(number, self.now);
                }
            }
            Action::Release(call) => {
                if let Caller::Holds(path, czxid) = &self.callers[call] {
                    let lock = Lock::new(self.scope.is_named, call);
                    self.client.release(&lock, path, *czxid, self.now);
                    self.callers[call] = Caller::Left;
                }
            }
            Action::TheyLock => {
                let Lock { path, .. } = Lock::new(false, 0);
                let mut tree = (*self.tree).clone();
                tree.zxid += 1;
                let (data, czxid) = (Lock::new(false, 99).data(), tree.zxid);
                let call = usize::MAX;
                tree.nodes.push(Node { path, data, czxid, version: 0, owner: THEIRS, call });
                self.commit(tree, None);
            }
            Action::Wait => self.pass_time(self.now + self.scope.step),
            Action::WaitLong => {
                let since = |s: &Server| [s.up_stopped, s.down_stopped];
                let oldest = self.servers.iter().flat_map(since).flatten().min();
                self.pass_time(oldest.unwrap_or(self.now) + PATIENCE - 1);
            }
        }
        self.flow();
        self.judge();
    }

    /// A server joins the leader anew: its clients' connections end.
    fn join(&mut self, server: usize) {
        let stream = self.servers[server].stream + 1;
        self.servers[server] = Server { stream, tree: self.tree.clone(), ..Server::default() };
        if let Some((connection, _)) = self.socket.filter(|(_, at)| *at == server) {
            self.close(connection);
        }
    }

    fn pass_time(&mut self, until: u64) {
        let mut rounds = 0;
        loop {
            rounds += 1;
            if rounds > 2_000 {
                self.wrong = Some("the event loop wakes up for nothing, over and over".into());
                return;
            }
            self.flow();
            let ping = (self.now / PINGS + 1) * PINGS;
            let next = self.client.next().map_or(ping, |next| next.max(self.now).min(ping));
            let next = next.min(until);
            if next == until && self.now == until {
                return;
            }
            self.now = next;
            for server in 0..3 {
                let Server { up_stopped, down_stopped, .. } = self.servers[server];
                let is_over = |since: u64| self.now >= since + PATIENCE;
                if [up_stopped, down_stopped].into_iter().flatten().any(is_over) {
                    self.join(server);
                }
                if server != self.leader
                    && self.deposed != Some(server)
                    && self.now.is_multiple_of(PINGS)
                {
                    self.servers[server].down.push_back(Down::Ping);
                }
            }
            if self.now > self.heard + LONGEST {
                self.expire();
            }
            let before = self.client.lease_end();
            self.client.wake(self.now);
            self.judge_lease(before);
        }
    }

    /// The leader has not heard of the session for long enough, and deletes its nodes. No more is
    /// to be seen in this world.
    fn expire(&mut self) {
        let mut tree = (*self.tree).clone();
        tree.nodes.retain(|node| node.owner != OURS);
        (self.tree, self.is_over) = (Rc::new(tree), true);
    }

    /// The nodes that nobody wants.
    fn unwanted(&self) -> impl Iterator<Item = &Node> {
        let is_left = |node: &&Node| matches!(self.callers.get(node.call), Some(Caller::Left));
        self.tree.nodes.iter().filter(is_left)
    }

    fn judge(&mut self) {
        let id = |node: &Node| Lock::new(self.scope.is_named, node.call).id;
        let forgotten = self.unwanted().find(|node| !self.client.is_pending(&id(node)));
        if let Some(path) = forgotten.map(|node| node.path.clone()) {
            self.wrong = Some(format!("{path} exists, nobody wants it, and it is forgotten"));
        }
    }

    /// Whether a node that nobody wants stays, though there are no more faults.
    pub fn calms_down(&self) -> Option<String> {
        self.unwanted().next()?;
        let mut world = self.clone();
        world.deposed.take().into_iter().for_each(|server| world.join(server));
        for server in 0..3 {
            let at = &mut world.servers[server];
            (at.up_stopped, at.down_stopped) = (None, None);
        }
        for _ in 0..16 {
            world.flow();
            if world.socket.is_none() {
                world.dial(world.leader);
            }
            world.pass_time(world.now + T / 8);
            if world.unwanted().next().is_none() || world.wrong.is_some() {
                return world.wrong;
            }
        }
        let path = &world.unwanted().next()?.path;
        Some(format!("{path} exists, nobody wants it, and it stays though the faults have ended"))
    }
}

impl Server {
    fn note(&mut self, answer: Answer) {
        let is_it =
            |(r, _): &&mut (Request, _)| (r.connection, r.xid) == (answer.connection, answer.xid);
        if let Some((_, noted)) = self.unanswered.iter_mut().find(is_it) {
            *noted = Some(answer);
        }
    }
}

impl Tree {
    /// The answer to a read.
    fn read(&self, op: &Op) -> Option<(i32, Vec<u8>)> {
        match op {
            Op::Ping => Some((err::OK, Vec::new())),
            Op::Get(path) => Some(match self.nodes.iter().find(|node| node.path == *path) {
                Some(node) => (err::OK, node.stat(Writer::bare().buffer(&node.data))),
                None => (err::NO_NODE, Vec::new()),
            }),
            Op::List(dir) => {
                let names = self.nodes.iter().filter(|node| path::parent(&node.path) == dir);
                let names: Vec<&str> = names.map(|node| path::name(&node.path)).collect();
                let count = Writer::bare().i32(i32::try_from(names.len()).unwrap_or(0));
                let all = names.iter().fold(count, |w, name| w.buffer(name.as_bytes()));
                Some((err::OK, all.body()))
            }
            _ => None,
        }
    }
}

impl Node {
    fn stat(&self, w: Writer) -> Vec<u8> {
        let w = w.i64(self.czxid).i64(0).i64(0).i64(0).i32(self.version);
        w.i32(0).i32(0).i64(self.owner).i32(0).i32(0).i64(0).body()
    }
}

fn is_of(up: &Up, request: &Request) -> bool {
    matches!(up, Up::Request(of) if (of.connection, of.xid) == (request.connection, request.xid))
}

fn read_op(code: i32, body: &[u8]) -> Op {
    let mut r = Reader::new(body);
    let mut text = || r.string().unwrap_or_default().to_owned();
    match code {
        op::SYNC => Op::Sync,
        op::PING => Op::Ping,
        op::GET_DATA => Op::Get(text()),
        op::GET_CHILDREN => Op::List(text()),
        op::CREATE2 => {
            let path = text();
            let data = r.buffer().unwrap_or_default().to_vec();
            let _acl = r.i32();
            let is_sequential = r.i32().is_ok_and(|mode| mode == 3);
            Op::Create { path, data, is_sequential }
        }
        op::DELETE => {
            let path = text();
            Op::Delete { path, version: r.i32().unwrap_or(-1) }
        }
        op::SET_DATA => {
            let path = text();
            let data = r.buffer().unwrap_or_default().to_vec();
            Op::Set { path, data, version: r.i32().unwrap_or(-1) }
        }
        code => panic!("the model knows no operation {code}"),
    }
}
