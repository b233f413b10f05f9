//! A fuzz target: clients that send arbitrary bytes on several connections, while time passes,
//! sessions expire, and the server restarts.

use super::tree::is_special;
use super::*;
use crate::net::framing::{Input, Next};
use crate::request::RequestSummary;
use crate::words;
use zk_wire::code::{event, xid};
use zk_wire::digest_md5;
use zk_wire::fuzz::Script;
use zk_wire::record::{ConnectReply, ConnectRequest, Reader, ReplyHeader, Writer};

/// The number of acts of a script.
const ACTS: usize = 400;

/// How many connections are open at once.
const CONNS: usize = 5;

/// The longest frame taken, as servers have it by default.
const LONGEST: usize = 0xf_ffff;

/// Plays a script to the engine, in the place of the code between the engine and the sockets.
pub(crate) fn server(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut world = World::new();
    for _ in 0..ACTS {
        if script.is_over() {
            break;
        }
        world.act(&mut script);
    }
    world.end();
}

struct Client {
    conn: ConnId,
    input: Input,
    is_first: bool,
    /// The requests that were not answered yet: the tag, the operation, the xid.
    asked: Vec<(u64, i32, i32)>,
    /// The tag of the last answer that had to wait for the answers before it.
    answered: u64,
    zxid: i64,
    /// The server's last token of a login.
    challenge: Vec<u8>,
    /// The users for whom a response was made with the right password.
    users: Vec<&'static str>,
}

struct World {
    engine: Engine,
    now: Duration,
    clients: Vec<Client>,
    next_conn: ConnId,
    next_tag: u64,
    /// All sessions that were ever made, and their passwords.
    sessions: Vec<(i64, Vec<u8>)>,
}

impl World {
    fn new() -> World {
        let settings = Settings {
            brand: Brand::default(),
            tick: Duration::from_millis(100),
            min_session: Duration::from_millis(200),
            max_session: Duration::from_secs(10),
            reap_interval: Duration::from_secs(60),
            super_digest: None,
            sasl: Sasl {
                users: USERS.map(|(user, word)| (user.into(), word.into())).into(),
                ..Sasl::default()
            },
        };
        let identity = Identity { server: 0, epoch: 1_700_000_000_000, secret: 7 };
        let engine = Engine::new(settings, identity);
        let (clients, sessions) = (Vec::new(), Vec::new());
        World { engine, now: Duration::ZERO, clients, next_conn: 2, next_tag: 0, sessions }
    }

    // ---- acts ----

    fn act(&mut self, script: &mut Script<'_>) {
        let act = script.byte();
        let overlaps = act & 0x80 != 0;
        match act % 0x20 {
            0 => self.accept(),
            1 | 2 => self.connect(script),
            3 => {
                let bytes = script.piece();
                self.send(script, bytes);
            }
            4 => {
                let frame = Writer::bare().raw(script.piece()).frame();
                self.send(script, &frame);
            }
            5..=15 => {
                let (op, xid) =
                    (script.pick(&OPERATIONS), script.pick(&[1, 2, 3, -1, -2, -8, i32::MAX]));
                let frame = body(script, op, Writer::request(xid, op)).frame();
                self.send(script, &frame);
            }
            16 => {
                let (op, body) = (script.pick(&OPERATIONS), script.piece());
                self.send(script, &Writer::request(4, op).raw(body).frame());
            }
            17 => {
                let op = script.word();
                self.send(script, &Writer::request(5, op).frame());
            }
            18..=20 => {
                let op = script.pick(&[op::MULTI, op::MULTI_READ]);
                let mut w = Writer::request(6, op);
                for _ in 0..script.byte() % 5 {
                    let op = script.pick(&IN_MULTI);
                    w = body(script, op, w.i32(op).bool(false).i32(-1));
                }
                let w = if script.byte() < 240 { w.i32(-1).bool(true).i32(-1) } else { w };
                self.send(script, &w.frame());
            }
            21 | 22 => self.pass(Duration::from_millis(50) * u32::from(script.byte())),
            23 => self.pass(Duration::from_secs(60) * u32::from(script.byte())),
            24 => {
                if let Some(at) = script.place(self.clients.len()) {
                    self.hang_up(self.clients[at].conn);
                }
            }
            25 => {
                if let Some(at) = script.place(self.sessions.len()) {
                    self.engine.expire(self.sessions[at].0);
                }
            }
            26 if script.byte() > 128 => {
                self.engine.restart();
                self.clients.clear();
            }
            27 if script.byte() > 200 => {
                self.engine.wipe();
                self.clients.clear();
            }
            28 => {
                let path = script.pick(&PATHS);
                let next = script.pick(&[i32::MAX, i32::MAX - 1, 0, 1 << 30]);
                self.engine.set_sequence(path, next);
            }
            29 => {
                let words = [
                    b"srvr", b"stat", b"mntr", b"conf", b"cons", b"dump", b"wchs", b"wchp", b"wchc",
                ];
                let word = *script.pick(&words);
                let asked = words::Asked { conn: 0, address: ([127, 0, 0, 1], 1).into() };
                assert!(!words::answer(&mut self.engine, word, asked).is_empty());
            }
            30 => self.log_in(script),
            31 => {
                let sasl = &mut self.engine.front.sasl;
                (sasl.is_required, sasl.allows_failed) = (script.flag(), script.flag());
            }
            _ => {}
        }
        if !overlaps {
            self.engine.apply();
            assert!(self.engine.queue.is_empty() && self.engine.order.is_idle());
        }
        self.outputs();
        self.check();
    }

    fn accept(&mut self) {
        if self.clients.len() < CONNS {
            let conn = self.next_conn;
            self.next_conn += 1;
            self.engine.accept(conn, ([127, 0, 0, 1], 9).into());
            let (input, asked) = (Input::default(), Vec::new());
            self.clients.push(Client {
                conn,
                input,
                is_first: true,
                asked,
                answered: 0,
                zxid: 0,
                challenge: Vec::new(),
                users: Vec::new(),
            });
        }
    }

    /// Opens a connection and sends its first frame.
    fn connect(&mut self, script: &mut Script<'_>) {
        self.accept();
        let again = script.place(self.sessions.len() + 1).and_then(|at| self.sessions.get(at));
        let (session_id, mut password) = again.cloned().unwrap_or((0, vec![0; 16]));
        if script.byte() > 250 {
            password.truncate(3);
        }
        let timeout_ms = script.pick(&[1000, 200, 10_000, 0, -1, i32::MAX]);
        let last_zxid = if script.byte() > 250 { i64::MAX } else { 0 };
        let mut frame =
            ConnectRequest { last_zxid, timeout_ms, session_id, password: &password }.frame();
        if script.byte() > 200 {
            // A client that knows nothing of read-only servers.
            frame.pop();
            let length = frame.len() as i32 - 4;
            frame[..4].copy_from_slice(&length.to_be_bytes());
        }
        if let Some(conn) = self.clients.last().map(|client| client.conn) {
            self.bytes(conn, &frame);
        }
    }

    fn send(&mut self, script: &mut Script<'_>, bytes: &[u8]) {
        if let Some(at) = script.place(self.clients.len()) {
            self.bytes(self.clients[at].conn, bytes);
        }
    }

    /// Sends a token of a login: an empty one, any bytes, or a response to the server's last token.
    fn log_in(&mut self, script: &mut Script<'_>) {
        let Some(at) = script.place(self.clients.len()) else { return };
        let (user, password) =
            (script.pick(&["alice", "bob", "eve"]), script.pick(&["secret", "", "x"]));
        let client = &mut self.clients[at];
        let mut token = match script.byte() % 4 {
            0 => Vec::new(),
            1 => script.piece().to_vec(),
            _ => match digest_md5::Client::new(user, password, "c").step(&client.challenge) {
                Ok(digest_md5::Step::Send(response)) => response,
                _ => return,
            },
        };
        if USERS.contains(&(user, password)) {
            client.users.push(user);
        }
        if let change @ 200.. = script.byte() {
            let place = (usize::from(change - 200) * 6).min(token.len());
            let end = (place + 9).min(token.len());
            token.splice(place..end, script.piece().iter().copied());
        }
        let conn = client.conn;
        self.bytes(conn, &Writer::request(7, op::SASL).buffer(&token).frame());
    }

    fn pass(&mut self, d: Duration) {
        self.now += d;
        self.engine.set_now(self.now);
        self.engine.tick();
        assert!(
            self.engine.next_tick().is_none_or(|next| next > self.now),
            "it would tick for ever"
        );
        assert!(self.engine.next_due().is_none_or(|due| due > self.now));
    }

    // ---- the surroundings of the engine ----

    /// Takes bytes as `net/serve.rs` takes them from a socket.
    fn bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(client) = self.clients.iter_mut().find(|client| client.conn == conn) else {
            return;
        };
        client.input.push(bytes);
        loop {
            let is_word = client.is_first.then_some(words::is_word as fn(&[u8; 4]) -> bool);
            let at = match client.input.peek(LONGEST, is_word) {
                Next::Frame(at) => at,
                Next::Wait => return,
                Next::Word(word) => {
                    let asked = words::Asked { conn, address: ([127, 0, 0, 1], 1).into() };
                    assert!(!words::answer(&mut self.engine, word, asked).is_empty());
                    return self.hang_up(conn);
                }
                Next::Nonsense(length) => {
                    assert!(
                        usize::try_from(length).is_ok_and(|length| length > LONGEST) || length < 0
                    );
                    return self.hang_up(conn);
                }
            };
            let frame = client.input.frame(&at).to_vec();
            client.input.consume(&at);
            let summary = if client.is_first {
                RequestSummary::connect(&frame)
            } else {
                RequestSummary::request(&frame, 1)
            };
            let Some(request) = summary else { return self.hang_up(conn) };
            assert!(request.logged(true).path.is_none_or(|path| path.len() <= 1024));
            self.next_tag += 1;
            let asked = if client.is_first { (0, 0) } else { (request.opcode, request.xid) };
            client.asked.push((self.next_tag, asked.0, asked.1));
            client.is_first = false;
            if self.engine.prepare(conn, &frame, self.next_tag).is_err() {
                return self.hang_up(conn);
            }
        }
    }

    fn hang_up(&mut self, conn: ConnId) {
        self.outputs();
        self.engine.hang_up(conn);
        self.clients.retain(|client| client.conn != conn);
    }

    /// Checks that the outputs are well formed, and that each answer belongs to its request.
    fn outputs(&mut self) {
        for output in self.engine.take_outputs() {
            match output {
                Output::Close { conn } => {
                    self.engine.hang_up(conn);
                    self.clients.retain(|client| client.conn != conn);
                }
                Output::Event { conn, bytes, .. } => {
                    let (header, body) =
                        ReplyHeader::read(whole(&bytes)).expect("an event has a header");
                    assert_eq!((header.xid, header.err), (xid::EVENT, err::OK));
                    assert_eq!(read_event(body), Ok(()));
                    assert!(
                        self.engine.front.conns.contains_key(&conn),
                        "an event for a connection that is gone"
                    );
                }
                Output::Reply { conn, tag, bytes } => self.reply(conn, tag, whole(&bytes)),
            }
        }
    }

    fn reply(&mut self, conn: ConnId, tag: u64, bytes: &[u8]) {
        let Some(client) = self.clients.iter_mut().find(|client| client.conn == conn) else {
            return;
        };
        let at =
            client.asked.iter().position(|(of, ..)| *of == tag).expect("an answer to no request");
        let (_, op, xid) = client.asked.remove(at);
        // ZooKeeper answers a request with the code createSession as it answers a connect request;
        // so does the engine.
        if matches!(op, 0 | op::CREATE_SESSION)
            && let Ok(reply) = ConnectReply::read(bytes)
        {
            if reply.timeout_ms > 0 && self.sessions.iter().all(|(id, _)| *id != reply.session_id) {
                self.sessions.push((reply.session_id, reply.password));
            }
            return;
        }
        let (header, body) = ReplyHeader::read(bytes).expect("an answer has a header");
        assert_eq!(
            header.xid,
            if op == op::PING && header.err == err::OK { xid::PING } else { xid }
        );
        // Credentials and unknown operations are answered at once.
        if op != op::AUTH && header.zxid > 0 {
            assert!(tag > client.answered, "an answer out of turn");
            assert!(header.zxid >= client.zxid, "a zxid that goes back");
            (client.answered, client.zxid) = (tag, header.zxid);
        }
        if op == op::SASL {
            let token = Reader::new(body).nullable_buffer().expect("a token, or null");
            assert!(header.err == err::OK || token.is_none());
            client.challenge = token.unwrap_or_default().to_vec();
        }
        if header.err == err::OK {
            assert_eq!(read_answer(op, body), Ok(()), "the answer to {op}");
        }
    }

    /// Checks that the parts of the engine's state fit together.
    fn check(&self) {
        let Engine { front, order, .. } = &self.engine;
        let Front { store, conns, attached, .. } = front;
        store.tree.check();
        store.watches.check(|conn| conns.contains_key(&conn));
        for (session, _) in store.tree.all_ephemerals() {
            assert!(
                order.sessions.iter().any(|(id, _)| id == session),
                "there are ephemeral nodes of a session that has ended"
            );
        }
        for (id, conn) in attached {
            assert!(conns.contains_key(conn), "{id}: the engine has lost the connection");
        }
        for client in &self.clients {
            let who = conns[&client.conn].who.iter().filter(|id| id.scheme == "sasl");
            for id in who {
                assert!(client.users.contains(&&*id.id), "a login without the password");
            }
        }
        assert_eq!(conns.len(), self.clients.len());
        assert!(["/", "/zookeeper", "/zookeeper/quota"].iter().all(|path| is_special(path)));
        assert!(store.tree.get("/zookeeper/config").is_some());
    }

    /// Drops all connections. Then the sessions expire, and their ephemeral nodes and watches must
    /// be gone.
    fn end(&mut self) {
        self.engine.apply();
        let conns: Vec<ConnId> = self.clients.iter().map(|client| client.conn).collect();
        conns.into_iter().for_each(|conn| self.hang_up(conn));
        self.pass(Duration::from_secs(11));
        self.outputs();
        self.check();
        let engine = &self.engine;
        assert_eq!(
            (engine.ephemeral_count(), engine.watch_count(), engine.order.sessions.iter().count()),
            (0, 0, 0)
        );
        assert!(engine.queue.is_empty() && engine.order.is_idle());
    }
}

/// A frame without its length. The length must be right.
fn whole(bytes: &[u8]) -> &[u8] {
    let (length, frame) = bytes.split_first_chunk::<4>().expect("a frame has a length");
    assert_eq!(u32::from_be_bytes(*length) as usize, frame.len());
    frame
}

/// Reads an answer as a client does.
fn read_answer(op: i32, body: &[u8]) -> Result<(), Malformed> {
    let mut r = Reader::new(body);
    if matches!(op, op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL) {
        r.string()?;
    }
    match op {
        op::GET_DATA => drop(r.buffer()?),
        op::GET_CHILDREN | op::GET_CHILDREN2 | op::GET_EPHEMERALS => {
            for _ in 0..r.count(4)? {
                r.string()?;
            }
        }
        op::GET_ACL => {
            for _ in 0..r.count(12)? {
                r.i32()?;
                r.string()?;
                r.string()?;
            }
        }
        _ => {}
    }
    let has_stat = [
        op::CREATE2,
        op::CREATE_CONTAINER,
        op::CREATE_TTL,
        op::EXISTS,
        op::GET_DATA,
        op::SET_DATA,
        op::GET_ACL,
        op::SET_ACL,
        op::GET_CHILDREN2,
    ];
    if has_stat.contains(&op) {
        r.stat()?;
    }
    Ok(())
}

/// Reads a watch event as a client does.
fn read_event(body: &[u8]) -> Result<(), Malformed> {
    let mut r = Reader::new(body);
    let (kind, state) = (r.i32()?, r.i32()?);
    r.string()?;
    let is_event = (event::CREATED..=event::CHILDREN_CHANGED).contains(&kind);
    if is_event && state == event::SYNC_CONNECTED {
        Ok(())
    } else {
        Err(Malformed("a watch event of unknown type"))
    }
}

/// Those who may log in.
const USERS: [(&str, &str); 2] = [("alice", "secret"), ("bob", "")];

const OPERATIONS: [i32; 30] = [
    op::CREATE,
    op::CREATE2,
    op::CREATE_CONTAINER,
    op::CREATE_TTL,
    op::DELETE,
    op::EXISTS,
    op::GET_DATA,
    op::SET_DATA,
    op::GET_ACL,
    op::SET_ACL,
    op::GET_CHILDREN,
    op::GET_CHILDREN2,
    op::SYNC,
    op::PING,
    op::CHECK,
    op::AUTH,
    op::SET_WATCHES,
    op::SET_WATCHES2,
    op::ADD_WATCH,
    op::CHECK_WATCHES,
    op::REMOVE_WATCHES,
    op::GET_EPHEMERALS,
    op::GET_ALL_CHILDREN_NUMBER,
    op::WHO_AM_I,
    op::CLOSE,
    op::RECONFIG,
    op::DELETE_CONTAINER,
    op::CREATE_SESSION,
    op::SASL,
    op::ERROR,
];

const IN_MULTI: [i32; 10] = [
    op::CREATE,
    op::CREATE2,
    op::CREATE_CONTAINER,
    op::CREATE_TTL,
    op::DELETE,
    op::SET_DATA,
    op::CHECK,
    op::GET_DATA,
    op::GET_CHILDREN,
    op::SET_ACL,
];

const PATHS: [&str; 18] = [
    "/a",
    "/a/b",
    "/a/b/c",
    "/q",
    "/q/n-",
    "/e",
    "/",
    "",
    "/a/",
    "//",
    "a",
    "/a\0",
    "/\u{e9}",
    "/zookeeper",
    "/zookeeper/quota",
    "/zookeeper/config",
    "/a/..",
    "/q/n-0000000000",
];

/// The body of a request, whose fields are often valid.
fn body(script: &mut Script<'_>, op: i32, w: Writer) -> Writer {
    let path = script.pick(&PATHS).as_bytes();
    match op {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
            let w = w.buffer(path).buffer(script.piece());
            let w = acl(script, w).i32(script.pick(&[0, 1, 2, 3, 4, 5, 6, 7, -1]));
            match op {
                op::CREATE_TTL => w.i64(i64::from(script.word())),
                _ => w,
            }
        }
        op::DELETE | op::CHECK => w.buffer(path).i32(script.pick(&[-1, 0, 1, i32::MAX])),
        op::EXISTS | op::GET_DATA | op::GET_CHILDREN | op::GET_CHILDREN2 => {
            w.buffer(path).bool(script.flag())
        }
        op::SET_DATA => w.buffer(path).buffer(script.piece()).i32(script.pick(&[-1, 0, 1])),
        op::SET_ACL => acl(script, w.buffer(path)).i32(script.pick(&[-1, 0, 1])),
        op::AUTH => {
            let scheme = script.pick(&["digest", "ip", "world", ""]);
            w.i32(0).buffer(scheme.as_bytes()).buffer(script.pick(&["u:p", "v:p", ""]).as_bytes())
        }
        op::ADD_WATCH | op::CHECK_WATCHES | op::REMOVE_WATCHES => {
            w.buffer(path).i32(script.pick(&[0, 1, 2, 3, -1]))
        }
        op::SET_WATCHES | op::SET_WATCHES2 => {
            let mut w = w.i64(i64::from(script.pick(&[0_i32, 1, 5, -1, i32::MAX])));
            for _ in 0..if op == op::SET_WATCHES { 3 } else { 5 } {
                let count = i32::from(script.byte() % 3);
                w = w.i32(count);
                for _ in 0..count {
                    w = w.buffer(script.pick(&PATHS).as_bytes());
                }
            }
            w
        }
        op::PING | op::CLOSE | op::WHO_AM_I => w,
        _ => w.buffer(path),
    }
}

fn acl(script: &mut Script<'_>, w: Writer) -> Writer {
    let entry = |w: Writer, perms, scheme: &str, id: &str| {
        w.i32(perms).buffer(scheme.as_bytes()).buffer(id.as_bytes())
    };
    match script.byte() % 10 {
        0 => w.i32(-1),
        1 => w.i32(0),
        2 => entry(w.i32(1), 31, "auth", ""),
        3 => entry(w.i32(1), 1, "world", "anyone"),
        4 => entry(w.i32(1), 31, "digest", "u:fBk=:"),
        7 => entry(w.i32(1), 31, "sasl", script.pick(&["alice", "bob", "a@b@c"])),
        5 => entry(entry(w.i32(2), 31, "ip", "127.0.0.0/8"), 0, "world", "anyone"),
        6 => {
            let id = String::from_utf8_lossy(script.piece()).into_owned();
            entry(w.i32(1), script.word(), script.pick(&["ip", "digest", "auth", "x"]), &id)
        }
        _ => entry(w.i32(1), 31, "world", "anyone"),
    }
}
