//! A blocking client that does nothing by itself: it sends the requests of the scenario, and keeps
//! all messages of the server in their order.
use super::{
    answers::{self, Body, Event, Heard, Reply},
    requests::{Req, op},
};
use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};
use zk_test_support::wire::{Framer, Next, Reader, Writer};

/// The time that the server has for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// The timeout of sessions in scenarios that do not depend on it, in milliseconds.
const SESSION_TIMEOUT: i32 = 30_000;

/// The connect request: a connection's first frame.
#[derive(Clone, Debug)]
pub struct Hello {
    pub protocol: i32,
    /// The last zxid that the client has seen.
    pub seen: i64,
    /// In milliseconds.
    pub timeout: i32,
    pub id: i64,
    pub password: Vec<u8>,
    /// None: the field is left out, as by clients before 3.4.
    pub read_only: Option<bool>,
}

/// The server's answer to a connect request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    pub protocol: i32,
    pub timeout: i32,
    pub id: i64,
    pub password: Vec<u8>,
    pub read_only: Option<bool>,
}

impl Hello {
    /// The connect request for a new session.
    pub fn new() -> Hello {
        Hello {
            protocol: 0,
            seen: 0,
            timeout: SESSION_TIMEOUT,
            id: 0,
            password: vec![0; 16],
            read_only: Some(false),
        }
    }

    /// The connect request for the session of `client`.
    pub fn again(client: &Client) -> Hello {
        Hello { id: client.welcome.id, password: client.welcome.password.clone(), ..Hello::new() }
    }

    pub fn timeout(self, millis: i32) -> Hello {
        Hello { timeout: millis, ..self }
    }

    pub fn frame(&self) -> Vec<u8> {
        let hello = Writer::new().i32(self.protocol).i64(self.seen).i32(self.timeout);
        let hello = hello.i64(self.id).buffer(&self.password);
        match self.read_only {
            Some(read_only) => hello.bool(read_only),
            None => hello,
        }
        .frame()
    }

    /// Connects and sends the request; None if the server closes the connection without an answer.
    #[track_caller]
    pub fn say(&self, address: &str) -> Option<Client> {
        let mut client = Client::silent(address);
        client.say(&self.frame());
        client.welcome()?;
        Some(client)
    }
}

/// One connection and its session, which is closed on drop.
pub struct Client {
    pub welcome: Welcome,
    /// Events that came while the client waited for a reply.
    pub events: Vec<Event>,
    stream: TcpStream,
    framer: Framer,
    root: String,
    xid: i32,
    /// Xids and opcodes of requests that are not answered yet.
    asked: VecDeque<(i32, i32)>,
    closed: bool,
}

impl Client {
    /// A new session at `host:port` or `host:port/chroot`. With a chroot, all its paths are below
    /// the chroot.
    #[track_caller]
    pub fn connect(address: &str) -> Client {
        Hello::new().say(address).expect("a welcome")
    }

    /// A connection on which nothing was sent.
    #[track_caller]
    pub fn silent(address: &str) -> Client {
        let (host, root) = address.split_at(address.find('/').unwrap_or(address.len()));
        let stream = TcpStream::connect(host).unwrap_or_else(|e| panic!("{host}: {e}"));
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_read_timeout(Some(ANSWER_LIMIT)).expect("a read timeout");
        let welcome =
            Welcome { protocol: 0, timeout: 0, id: 0, password: Vec::new(), read_only: None };
        Client {
            welcome,
            events: Vec::new(),
            stream,
            framer: Framer::default(),
            root: root.to_owned(),
            xid: 0,
            asked: VecDeque::new(),
            closed: false,
        }
    }

    /// Reads the answer to a connect request that was sent as bytes.
    #[track_caller]
    pub fn welcomed(&mut self) -> Welcome {
        self.welcome().expect("a welcome");
        self.welcome.clone()
    }

    #[track_caller]
    fn welcome(&mut self) -> Option<()> {
        let frame = self.frame()?;
        let mut from = Reader(&frame);
        let mut read = || {
            Some(Welcome {
                protocol: from.i32()?,
                timeout: from.i32()?,
                id: from.i64()?,
                password: from.buffer()?.to_vec(),
                read_only: match from.0 {
                    [] => None,
                    [flag] => Some(*flag == 1),
                    _ => return None,
                },
            })
        };
        self.welcome = read().unwrap_or_else(|| panic!("no welcome: {frame:?}"));
        Some(())
    }

    pub fn id(&self) -> i64 {
        self.welcome.id
    }

    pub fn local_ip(&self) -> String {
        self.stream.local_addr().expect("an address").ip().to_string()
    }

    /// Sends these bytes. (An error here means that the connection is closed; the next read finds
    /// it.)
    pub fn say(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends all requests in one packet.
    pub fn send(&mut self, requests: &[Req]) {
        let mut packet = Vec::new();
        for request in requests {
            let xid = match request.opcode() {
                op::PING => -2,
                op::AUTH => -4,
                op::SET_WATCHES | op::SET_WATCHES2 => -8,
                _ => {
                    self.xid += 1;
                    self.xid
                }
            };
            packet.extend(request.frame(xid, &self.root));
            self.asked.push_back((xid, request.opcode()));
        }
        self.say(&packet);
    }

    /// Announces the reply to a request that was sent as bytes.
    pub fn expect(&mut self, xid: i32, opcode: i32) {
        self.asked.push_back((xid, opcode));
    }

    /// The opcodes of requests that are not answered yet.
    pub fn unanswered(&self) -> Vec<i32> {
        self.asked.iter().map(|(_, opcode)| *opcode).collect()
    }

    /// Expects no answers to the requests so far.
    pub fn forget(&mut self) {
        self.asked.clear();
    }

    /// The next message of the server.
    #[track_caller]
    pub fn next(&mut self) -> Heard {
        let Some(frame) = self.frame() else { return Heard::Closed };
        let asked = &mut self.asked;
        let opcode = |xid| {
            let at = asked.iter().position(|(asked, _)| *asked == xid)?;
            asked.remove(at).map(|(_, opcode)| opcode)
        };
        answers::read(&frame, &self.root, opcode).unwrap_or_else(|| {
            panic!("neither an event nor a reply to one of {:?}: {frame:02x?}", self.asked)
        })
    }

    /// The next reply. Events before it are kept. None if the connection is closed.
    #[track_caller]
    pub fn reply(&mut self) -> Option<Reply> {
        loop {
            match self.next() {
                Heard::Reply(reply) => return Some(reply),
                Heard::Event(event) => self.events.push(event),
                Heard::Closed => return None,
            }
        }
    }

    /// The reply to a request.
    #[track_caller]
    pub fn call(&mut self, request: &Req) -> Reply {
        self.send(std::slice::from_ref(request));
        self.reply().unwrap_or_else(|| panic!("the connection is closed: no reply to {request:?}"))
    }

    /// The reply to a request that must succeed.
    #[track_caller]
    pub fn good(&mut self, request: &Req) -> Reply {
        let reply = self.call(request);
        assert_eq!(reply.err, 0, "{request:?}");
        reply
    }

    /// The body of the reply to a request that must succeed.
    #[track_caller]
    pub fn body(&mut self, request: &Req) -> Body {
        self.good(request).body
    }

    /// The error code, 0 if there is none.
    #[track_caller]
    pub fn code(&mut self, request: &Req) -> i32 {
        self.call(request).err
    }

    /// All events so far. They include those of other clients' changes that were acknowledged
    /// before this call.
    #[track_caller]
    pub fn events(&mut self) -> Vec<Event> {
        self.good(&Req::Ping);
        std::mem::take(&mut self.events)
    }

    /// All messages up to the end of the connection.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        loop {
            match self.next() {
                Heard::Closed => return heard,
                other => heard.push(other),
            }
        }
    }

    /// All bytes up to the end of the connection, for answers that have no frames.
    pub fn raw(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).expect("an end of the connection");
        bytes
    }

    /// Closes the session, and waits until the server has closed the connection.
    #[track_caller]
    pub fn close(&mut self) -> Reply {
        let reply = self.good(&Req::CloseSession);
        let rest = self.rest();
        assert!(rest.is_empty(), "after the end of the session: {rest:?}");
        reply
    }

    /// Ends the connection and leaves the session to its timeout.
    pub fn abandon(mut self) {
        self.closed = true;
    }

    /// The next frame, without its length; None if the connection is closed.
    #[track_caller]
    fn frame(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.framer.next() {
                Next::Frame(mut frame) => return Some(frame.split_off(4)),
                Next::Foreign(bytes) => panic!("no frame: {bytes:02x?}"),
                Next::Partial => {}
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => self.closed = true,
                Ok(count) => self.framer.push(&chunk[..count]),
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => self.closed = true,
                Err(e) => panic!(
                    "the server says nothing for {ANSWER_LIMIT:?} ({e}); asked: {:?}",
                    self.asked
                ),
            }
            if self.closed {
                return None;
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if !self.closed && self.welcome.id != 0 && !std::thread::panicking() {
            let _ = self.stream.set_read_timeout(Some(Duration::from_secs(1)));
            self.say(&Req::CloseSession.frame(0, ""));
            let mut chunk = [0; 4 << 10];
            while self.stream.read(&mut chunk).is_ok_and(|count| count > 0) {}
        }
    }
}
