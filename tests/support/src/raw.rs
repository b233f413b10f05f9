//! A small blocking ZooKeeper client for tests, which reads the server's state and makes changes
//! that the library does not expect. It sends no pings by itself.
use super::wire::{MAX_FRAME, Reader, Writer};
use std::{
    collections::VecDeque,
    fmt,
    io::{self, Read, Write},
    net::{TcpStream, ToSocketAddrs},
    time::Duration,
};

pub const PERSISTENT: i32 = 0;
pub const EPHEMERAL: i32 = 1;
pub const SEQUENTIAL: i32 = 2;
pub const EPHEMERAL_SEQUENTIAL: i32 = 3;
pub const CONTAINER: i32 = 4;

/// The kinds of watch events.
pub const CREATED: i32 = 1;
pub const DELETED: i32 = 2;
pub const DATA_CHANGED: i32 = 3;
pub const CHILDREN_CHANGED: i32 = 4;

pub const NO_NODE: i32 = -101;
pub const NO_AUTH: i32 = -102;
pub const BAD_VERSION: i32 = -103;
pub const NODE_EXISTS: i32 = -110;
pub const NOT_EMPTY: i32 = -111;
pub const SESSION_EXPIRED: i32 = -112;

const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// The time that the server has for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// How many requests are sent before their replies are read.
const WINDOW: usize = 500;

#[derive(Debug)]
pub enum Failed {
    /// The server's error code.
    Server(i32),
    Io(io::Error),
}

impl Failed {
    pub fn code(&self) -> Option<i32> {
        match self {
            Failed::Server(code) => Some(*code),
            Failed::Io(_) => None,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Server(code) => write!(f, "ZooKeeper error {code}"),
            Failed::Io(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for Failed {}

impl From<io::Error> for Failed {
    fn from(e: io::Error) -> Failed {
        Failed::Io(e)
    }
}

pub type Result<T> = std::result::Result<T, Failed>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    pub czxid: i64,
    pub mzxid: i64,
    /// Milliseconds since 1970.
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    pub cversion: i32,
    pub aversion: i32,
    pub ephemeral_owner: i64,
    pub data_length: i32,
    pub num_children: i32,
    pub pzxid: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl {
    pub perms: i32,
    pub scheme: String,
    pub id: String,
}

/// One connection and its session, which is closed on drop. Paths are the server's own: the chroot
/// of the address does not count.
pub struct Raw {
    stream: TcpStream,
    xid: i32,
    id: i64,
    password: Vec<u8>,
    timeout: Duration,
    open: bool,
    events: VecDeque<(i32, String)>,
}

impl Raw {
    /// A new session with the longest timeout, at the first server of `address` (`host:port`).
    pub fn connect(address: &str) -> Result<Raw> {
        Raw::attach(address, SESSION_TIMEOUT, 0, &[0; 16])
    }

    pub fn connect_timeout(address: &str, session_timeout: Duration) -> Result<Raw> {
        Raw::attach(address, session_timeout, 0, &[0; 16])
    }

    /// Attaches to an existing session; `Server(SESSION_EXPIRED)` if there is none (any more).
    pub fn with_session(address: &str, id: i64, password: &[u8]) -> Result<Raw> {
        Raw::attach(address, SESSION_TIMEOUT, id, password)
    }

    fn attach(address: &str, session_timeout: Duration, id: i64, password: &[u8]) -> Result<Raw> {
        let host = address.split([',', '/']).next().unwrap_or_default();
        let address = host
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        let millis = i32::try_from(session_timeout.as_millis()).unwrap_or(i32::MAX);
        let hello = Writer::new().i32(0).i64(0).i32(millis).i64(id).buffer(password).bool(false);
        stream.write_all(&hello.frame())?;
        let reply = frame(&mut stream)?;
        let mut reply = Reader(&reply);
        let mut read =
            || Some((reply.i32()?, reply.i32()?, reply.i64()?, reply.buffer()?.to_vec()));
        let (_, millis, granted, password) = read().ok_or_else(garbled)?;
        if granted == 0 {
            return Err(Failed::Server(SESSION_EXPIRED));
        }
        let timeout = Duration::from_millis(u64::try_from(millis).unwrap_or_default());
        Ok(Raw {
            stream,
            xid: 0,
            id: granted,
            password,
            timeout,
            open: true,
            events: VecDeque::new(),
        })
    }

    pub fn session_id(&self) -> i64 {
        self.id
    }

    pub fn password(&self) -> &[u8] {
        &self.password
    }

    /// The session timeout the server granted.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Creates a node that is open to all; `flags` as in the constants above. Returns its path.
    pub fn create(&mut self, path: &str, data: &[u8], flags: i32) -> Result<String> {
        let xid = self.send_create(path, data, flags)?;
        string(&self.reply(xid)?)
    }

    /// Creates `count` nodes with the same (sequential) path, without waiting for each answer.
    pub fn create_many(
        &mut self,
        path: &str,
        data: &[u8],
        flags: i32,
        count: usize,
    ) -> Result<Vec<String>> {
        let mut made = Vec::with_capacity(count);
        while made.len() < count {
            let batch = WINDOW.min(count - made.len());
            let xids = (0..batch)
                .map(|_| self.send_create(path, data, flags))
                .collect::<Result<Vec<_>>>()?;
            for xid in xids {
                made.push(string(&self.reply(xid)?)?);
            }
        }
        Ok(made)
    }

    /// Creates a node at each path, with all requests in one packet: the server begins with the
    /// last before the first is finished.
    pub fn create_at_once(&mut self, paths: &[String], flags: i32) -> Result<Vec<String>> {
        let mut packet = Vec::new();
        let first = self.xid + 1;
        for path in paths {
            self.xid += 1;
            let create = Writer::new().i32(self.xid).i32(1).string(path).buffer(b"");
            packet
                .extend(create.i32(1).i32(31).string("world").string("anyone").i32(flags).frame());
        }
        self.stream.write_all(&packet)?;
        (first..=self.xid).map(|xid| string(&self.reply(xid)?)).collect()
    }

    /// Deletes a node of any version.
    pub fn delete(&mut self, path: &str) -> Result<()> {
        self.call(2, |body| body.string(path).i32(-1)).map(drop)
    }

    pub fn exists(&mut self, path: &str) -> Result<Option<Stat>> {
        match self.call(3, |body| body.string(path).bool(false)) {
            Err(Failed::Server(NO_NODE)) => Ok(None),
            reply => stat(&mut Reader(&reply?)).map(Some),
        }
    }

    pub fn get_data(&mut self, path: &str) -> Result<(Vec<u8>, Stat)> {
        let reply = self.call(4, |body| body.string(path).bool(false))?;
        let mut reply = Reader(&reply);
        let data = reply.buffer().ok_or_else(garbled)?.to_vec();
        Ok((data, stat(&mut reply)?))
    }

    /// Reads a node's data and sets a watch on it.
    pub fn watch(&mut self, path: &str) -> Result<Vec<u8>> {
        let reply = self.call(4, |body| body.string(path).bool(true))?;
        Ok(Reader(&reply).buffer().ok_or_else(garbled)?.to_vec())
    }

    /// Sets a watch on the node and all nodes below it. It stays when it fires.
    pub fn watch_all_below(&mut self, path: &str) -> Result<()> {
        self.call(106, |body| body.string(path).i32(1)).map(drop)
    }

    /// The next watch event (kind, path), which has come already or comes within `limit`.
    pub fn next_event(&mut self, limit: Duration) -> Option<(i32, String)> {
        if self.events.is_empty() {
            let _ = self.stream.set_read_timeout(Some(limit));
            if let Ok(frame) = frame(&mut self.stream) {
                self.keep_event(&frame);
            }
            let _ = self.stream.set_read_timeout(Some(ANSWER_LIMIT));
        }
        self.events.pop_front()
    }

    /// The watch events that have come with the replies so far.
    pub fn events(&mut self) -> Vec<(i32, String)> {
        self.events.drain(..).collect()
    }

    fn keep_event(&mut self, frame: &[u8]) {
        let mut event = Reader(frame);
        let mut read = || {
            event.i32().filter(|xid| *xid == -1)?;
            event.take(12)?; // zxid, error
            let (kind, _state) = (event.i32()?, event.i32()?);
            Some((kind, event.string()?))
        };
        self.events.extend(read());
    }

    /// Sets the data of a node of any version.
    pub fn set_data(&mut self, path: &str, data: &[u8]) -> Result<Stat> {
        let reply = self.call(5, |body| body.string(path).buffer(data).i32(-1))?;
        stat(&mut Reader(&reply))
    }

    pub fn get_acl(&mut self, path: &str) -> Result<Vec<Acl>> {
        let reply = self.call(6, |body| body.string(path))?;
        list(&mut Reader(&reply), |entry| {
            Some(Acl { perms: entry.i32()?, scheme: entry.string()?, id: entry.string()? })
        })
    }

    /// Gives these permissions (read 1, write 2, create 4, delete 8, admin 16) to everybody, and no
    /// others.
    pub fn set_acl(&mut self, path: &str, perms: i32) -> Result<()> {
        self.call(7, |body| {
            body.string(path).i32(1).i32(perms).string("world").string("anyone").i32(-1)
        })
        .map(drop)
    }

    /// The names of the children, sorted.
    pub fn children(&mut self, path: &str) -> Result<Vec<String>> {
        let reply = self.call(8, |body| body.string(path).bool(false))?;
        let mut names = list(&mut Reader(&reply), Reader::string)?;
        names.sort();
        Ok(names)
    }

    /// Waits until this server has caught up with the leader.
    pub fn sync(&mut self) -> Result<()> {
        self.call(9, |body| body.string("/")).map(drop)
    }

    pub fn ping(&mut self) -> Result<()> {
        self.stream.write_all(&Writer::new().i32(-2).i32(11).frame())?;
        self.reply(-2).map(drop)
    }

    /// Adds the credentials `user:password` of the scheme digest.
    pub fn add_auth(&mut self, credentials: &str) -> Result<()> {
        let auth = Writer::new().i32(-4).i32(100).i32(0).string("digest").string(credentials);
        self.stream.write_all(&auth.frame())?;
        self.reply(-4).map(drop)
    }

    /// Creates a node and its missing parents, all persistent.
    pub fn mkdirs(&mut self, path: &str) -> Result<()> {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
        for end in ends {
            match self.create(&path[..end], b"", PERSISTENT) {
                Ok(_) | Err(Failed::Server(NODE_EXISTS)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Deletes a node and all nodes below it; nodes that do not exist are not an error.
    pub fn delete_recursive(&mut self, path: &str) -> Result<()> {
        let children = match self.children(path) {
            Err(Failed::Server(NO_NODE)) => return Ok(()),
            children => children?,
        };
        for child in children {
            self.delete_recursive(&format!("{}/{child}", path.trim_end_matches('/')))?;
        }
        match self.delete(path) {
            Err(Failed::Server(NO_NODE)) => Ok(()),
            done => done,
        }
    }

    /// Ends the session; its ephemeral nodes are gone when this returns.
    pub fn close_session(mut self) -> Result<()> {
        self.end()
    }

    /// Ends the connection and leaves the session to its timeout, as a crash does.
    pub fn abandon(mut self) {
        self.open = false;
    }

    fn end(&mut self) -> Result<()> {
        self.open = false;
        self.call(-11, |body| body).map(drop)
    }

    fn send_create(&mut self, path: &str, data: &[u8], flags: i32) -> Result<i32> {
        let opcode = if flags == CONTAINER { 19 } else { 1 };
        // One ACL: everything (31) to world:anyone.
        self.send(opcode, |body| {
            body.string(path)
                .buffer(data)
                .i32(1)
                .i32(31)
                .string("world")
                .string("anyone")
                .i32(flags)
        })
    }

    fn call(&mut self, opcode: i32, body: impl FnOnce(Writer) -> Writer) -> Result<Vec<u8>> {
        let xid = self.send(opcode, body)?;
        self.reply(xid)
    }

    fn send(&mut self, opcode: i32, body: impl FnOnce(Writer) -> Writer) -> Result<i32> {
        self.xid += 1;
        self.stream.write_all(&body(Writer::new().i32(self.xid).i32(opcode)).frame())?;
        Ok(self.xid)
    }

    /// The body of the reply to `xid`. Frames before it are events.
    fn reply(&mut self, xid: i32) -> Result<Vec<u8>> {
        loop {
            let frame = frame(&mut self.stream)?;
            let mut head = Reader(&frame);
            let (answered, _zxid, code) = (head.i32(), head.i64(), head.i32());
            match (answered, code) {
                (Some(answered), Some(0)) if answered == xid => return Ok(head.0.to_vec()),
                (Some(answered), Some(code)) if answered == xid => {
                    return Err(Failed::Server(code));
                }
                (Some(_), Some(_)) => self.keep_event(&frame),
                _ => return Err(garbled()),
            }
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if self.open {
            let _ = self.stream.set_read_timeout(Some(Duration::from_secs(1)));
            let _ = self.end();
        }
    }
}

/// Ends another client's session at the server, so that the client finds it expired: attaches to
/// the session and closes it.
pub fn expire(address: &str, id: i64, password: &[u8]) -> Result<()> {
    Raw::with_session(address, id, password)?.close_session()
}

fn frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length =
        usize::try_from(i32::from_be_bytes(length)).ok().filter(|length| *length <= MAX_FRAME);
    let mut frame = vec![0; length.ok_or(io::ErrorKind::InvalidData)?];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

fn garbled() -> Failed {
    Failed::Io(io::ErrorKind::InvalidData.into())
}

fn string(reply: &[u8]) -> Result<String> {
    Reader(reply).string().ok_or_else(garbled)
}

/// A count and as many items, each read by `field`.
fn list<'a, T>(
    reply: &mut Reader<'a>,
    mut field: impl FnMut(&mut Reader<'a>) -> Option<T>,
) -> Result<Vec<T>> {
    let count = reply.i32().ok_or_else(garbled)?;
    (0..count).map(|_| field(reply).ok_or_else(garbled)).collect()
}

fn stat(reply: &mut Reader<'_>) -> Result<Stat> {
    let mut read = || {
        Some(Stat {
            czxid: reply.i64()?,
            mzxid: reply.i64()?,
            ctime: reply.i64()?,
            mtime: reply.i64()?,
            version: reply.i32()?,
            cversion: reply.i32()?,
            aversion: reply.i32()?,
            ephemeral_owner: reply.i64()?,
            data_length: reply.i32()?,
            num_children: reply.i32()?,
            pzxid: reply.i64()?,
        })
    };
    read().ok_or_else(garbled)
}
