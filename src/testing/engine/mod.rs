//! ZooKeeper itself, with no sockets and no threads: frames and time in, frames out.
//!
//! It follows the real server's two processors: a request is first *prepared* (`prep.rs`: writes are checked and numbered), later
//! *finished* (`finish.rs`: transactions are applied, watches strike, the answer goes out). Requests that are prepared
//! together overlap, as those of a busy real server do.

mod acl;
mod conn;
mod connect;
mod finish;
#[cfg(any(test, fuzzing))]
pub(crate) mod hostile;
mod node;
mod outstanding;
mod prep;
mod read;
mod report;
mod request;
mod session;
mod tree;
mod txn;
mod watch;

use self::acl::Id;
use self::conn::{Conn, State};
use self::finish::Pending;
use self::outstanding::Outstanding;
use self::prep::Prep;
use self::session::Sessions;
use self::tree::Tree;
use self::txn::{Stamp, Store};
use self::watch::Watches;
use crate::wire::Malformed;
use crate::wire::code::{err, op};
use crate::wire::record::{Reader, ReplyHeader, Writer};
use crate::world::{HashMap, wall_time};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

/// A connection, as whoever owns the sockets calls it.
pub type ConnId = u64;

#[derive(Clone, Debug)]
pub struct Settings {
    pub tick: Duration,
    pub min_session: Duration,
    pub max_session: Duration,
    /// How often containers and nodes with a time to live are looked at.
    pub reap_interval: Duration,
}

/// What the engine wants done, in this order.
#[derive(Debug)]
pub enum Output {
    /// The answer to the request with this tag; frames are whole, their length in front.
    Reply { conn: ConnId, tag: u64, bytes: Vec<u8> },
    /// A watch event.
    Event { conn: ConnId, session: i64, kind: i32, path: Arc<str>, bytes: Vec<u8> },
    /// Close the connection, after what was sent to it.
    Close { conn: ConnId },
}

#[derive(Debug)]
pub struct Engine {
    settings: Settings,
    now: Duration,
    /// The wall clock at the beginning, in milliseconds since 1970.
    epoch: i64,
    store: Store,
    sessions: Sessions,
    conns: HashMap<ConnId, Conn>,
    queue: VecDeque<Pending>,
    outstanding: Outstanding,
    /// The newest transaction that was numbered, and the newest that was applied.
    next_zxid: i64,
    last_zxid: i64,
    next_reaping: Duration,
    outputs: Vec<Output>,
    received: u64,
    sent: u64,
}

impl Engine {
    pub fn new(settings: Settings) -> Engine {
        let since = wall_time().duration_since(UNIX_EPOCH).unwrap_or_default();
        let epoch = i64::try_from(since.as_millis()).unwrap_or(0);
        Engine {
            sessions: Sessions::new(settings.tick, epoch),
            next_reaping: settings.reap_interval,
            settings,
            now: Duration::ZERO,
            epoch,
            store: Store { tree: Tree::new(), watches: Watches::default() },
            conns: HashMap::default(),
            queue: VecDeque::new(),
            outstanding: Outstanding::default(),
            next_zxid: 0,
            last_zxid: 0,
            outputs: Vec::new(),
            received: 0,
            sent: 0,
        }
    }

    /// Tells how long ago the engine was made, by a clock of the caller's. Before anything else below.
    pub fn set_now(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    fn wall_ms(&self) -> i64 {
        self.epoch.saturating_add(i64::try_from(self.now.as_millis()).unwrap_or(i64::MAX))
    }

    pub fn accept(&mut self, conn: ConnId, peer: SocketAddr) {
        self.conns.insert(conn, Conn::new(peer, self.now));
    }

    /// Takes one frame, without its length. The answer bears `tag`. After an error the connection is to be closed.
    pub fn prepare(&mut self, conn: ConnId, frame: &[u8], tag: u64) -> Result<(), Malformed> {
        let state = self.conns.get(&conn).map_or(State::Ended, |client| client.state);
        match state {
            State::Ended => return Ok(()),
            // The real server does not read on until the session is made.
            State::Connecting => self.apply(),
            State::New | State::Open => {}
        }
        self.received += 1;
        let Some(client) = self.conns.get_mut(&conn) else { return Ok(()) };
        client.received += 1;
        if state == State::New {
            return self.connect(conn, frame, tag);
        }
        let mut r = Reader::new(frame);
        let (xid, op) = (r.i32()?, r.i32()?);
        match op {
            op::AUTH => return self.authenticate(conn, xid, r.rest(), tag),
            op::SASL => {
                self.reply(conn, tag, op, xid, Writer::bare().i32(xid).i64(0).i32(err::AUTH_FAILED));
                self.close(conn);
                return Ok(());
            }
            _ => {}
        }
        let (session, timeout) = (client.session, client.timeout);
        if !self.sessions.touch(session, timeout, self.now) {
            debug!("test server: dropped a request of {session:#x}, which has ended");
            return Ok(());
        }
        if is_known(op) {
            self.submit(Some(conn), session, xid, op, tag, r.rest());
        } else {
            warn!("test server: unknown request type {op} from session {session:#x}: closing its connection");
            self.reply(conn, tag, op, xid, Writer::bare().i32(xid).i64(-1).i32(err::UNIMPLEMENTED));
            self.close(conn);
        }
        Ok(())
    }

    /// Finishes all that was prepared.
    pub fn apply(&mut self) {
        while let Some(request) = self.queue.pop_front() {
            self.finish(request);
        }
    }

    /// A connection is gone. What it asked is done all the same.
    pub fn hang_up(&mut self, conn: ConnId) {
        let Some(client) = self.conns.remove(&conn) else { return };
        self.store.watches.hang_up(conn);
        if let Some(session) =
            self.sessions.get_mut(client.session).filter(|session| session.conn == Some(conn))
        {
            session.conn = None;
        }
    }

    /// Expires and reaps what is due.
    pub fn tick(&mut self) {
        while let Some(session) = self.sessions.expired(self.now) {
            info!("test server: session {session:#x} has expired");
            self.end_session(session);
        }
        if self.now >= self.next_reaping {
            // In step with the looks so far, however many of them had nothing to find.
            let interval = self.settings.reap_interval.as_nanos().max(1);
            let missed = (self.now - self.next_reaping).as_nanos() % interval;
            let step = Duration::from_nanos_u128(interval - missed);
            self.next_reaping = self.now.saturating_add(step);
            for path in self.store.tree.due_for_reaping(self.wall_ms()) {
                self.submit(None, 0, 0, op::DELETE_CONTAINER, 0, path.as_bytes());
            }
            self.apply();
        }
    }

    /// When [`tick`](Self::tick) may have something to do, by the same clock. Cheap.
    pub(crate) fn next_tick(&self) -> Option<Duration> {
        let reaping = self.store.tree.has_reapable().then_some(self.next_reaping);
        self.sessions.next_expiry().into_iter().chain(reaping).min()
    }

    /// As [`next_tick`](Self::next_tick), past the looks that will find nothing to reap.
    pub fn next_due(&self) -> Option<Duration> {
        self.sessions.next_expiry().into_iter().chain(self.next_reaping_due()).min()
    }

    fn next_reaping_due(&self) -> Option<Duration> {
        let due_in = self.store.tree.next_reapable()?.saturating_sub(self.wall_ms());
        let due = self.now.saturating_add(Duration::from_millis(u64::try_from(due_in).unwrap_or(0)));
        let wait = due.saturating_sub(self.next_reaping).as_nanos();
        let looks = wait.div_ceil(self.settings.reap_interval.as_nanos().max(1));
        let later = self.settings.reap_interval.saturating_mul(u32::try_from(looks).unwrap_or(u32::MAX));
        Some(self.next_reaping.saturating_add(later))
    }

    pub fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// Ends a session as if its time had come; false if there is none with this id.
    pub fn expire(&mut self, session: i64) -> bool {
        self.apply();
        let known = self.sessions.check(session).is_ok();
        if known {
            self.end_session(session);
        }
        known
    }

    fn end_session(&mut self, session: i64) {
        self.sessions.set_closing(session);
        self.submit(None, session, 0, op::CLOSE, 0, &[]);
        self.apply();
    }

    /// The server comes back with the data and the sessions it had; watches and connections are gone.
    pub fn restart(&mut self) {
        self.apply();
        self.conns.clear();
        self.outputs.clear();
        self.store.watches = Watches::default();
        self.outstanding.clear();
        self.next_zxid = self.last_zxid;
        self.sessions.restart(self.now);
    }

    /// The server comes back with nothing.
    pub fn wipe(&mut self) {
        self.sessions.clear();
        self.conns.clear();
        self.outputs.clear();
        self.queue.clear();
        self.outstanding.clear();
        self.store = Store { tree: Tree::new(), watches: Watches::default() };
        (self.next_zxid, self.last_zxid) = (0, 0);
        self.next_reaping = self.now.saturating_add(self.settings.reap_interval);
    }

    /// Lets the next sequential child of `parent` have the number `next`; false if there is no such node.
    pub fn set_sequence(&mut self, parent: &str, next: i32) -> bool {
        self.apply();
        self.store.tree.get_mut(parent).map(|node| node.stat.cversion = next).is_some()
    }

    /// The first half of a request.
    fn submit(&mut self, conn: Option<ConnId>, session: i64, xid: i32, op: i32, tag: u64, body: &[u8]) {
        let client = conn.and_then(|conn| self.conns.get(&conn));
        let who = client.map(|client| Arc::clone(&client.who)).unwrap_or_default();
        let (mut txn, mut refused, mut rest) = (None, None, Vec::new());
        if prep::is_write(op) {
            self.next_zxid += 1;
            let stamp = Stamp { zxid: self.next_zxid, time: self.wall_ms() };
            let Engine { store, sessions, outstanding, .. } = self;
            let prep = Prep { tree: &store.tree, sessions, outstanding, session, who: &who, stamp };
            txn = Some((stamp, prep.write(op, body)));
            if op == op::CLOSE {
                self.sessions.set_closing(session);
            }
        } else {
            refused = self.sessions.check(session).err();
            rest = body.to_vec();
        }
        self.queue.push_back(Pending { conn, session, xid, op, tag, body: rest, who, txn, refused });
    }

    /// Answered at once, before what was asked earlier and is not finished.
    fn authenticate(&mut self, conn: ConnId, xid: i32, body: &[u8], tag: u64) -> Result<(), Malformed> {
        let mut r = Reader::new(body);
        r.i32()?;
        let (scheme, credentials) = (r.nullable_string()?, r.nullable_buffer()?);
        let Some(client) = self.conns.get_mut(&conn) else { return Ok(()) };
        let id = match (scheme.as_deref(), credentials) {
            _ if client.who.len() >= acl::MOST_IDENTITIES => None,
            (Some("digest"), Some(credentials)) => Some(Id::digest(credentials)),
            (Some("ip"), _) => Some(Id::ip(client.peer.ip())),
            _ => None,
        };
        let code = if id.is_some() { err::OK } else { err::AUTH_FAILED };
        id.into_iter().for_each(|id| client.add_identity(id));
        self.send(conn, tag, ReplyHeader { xid, zxid: 0, err: code }.frame(&[]));
        if code != err::OK {
            warn!("test server: refused credentials of the scheme {scheme:?}: closing the connection");
            self.close(conn);
        }
        Ok(())
    }
}

/// `Request.isValid`.
fn is_known(op: i32) -> bool {
    prep::is_write(op)
        || matches!(
            op,
            op::EXISTS
                | op::GET_ACL
                | op::GET_CHILDREN
                | op::GET_ALL_CHILDREN_NUMBER
                | op::GET_CHILDREN2
                | op::GET_DATA
                | op::GET_EPHEMERALS
                | op::MULTI_READ
                | op::PING
                | op::SET_WATCHES
                | op::SET_WATCHES2
                | op::SYNC
                | op::CHECK_WATCHES
                | op::REMOVE_WATCHES
                | op::ADD_WATCH
                | op::WHO_AM_I
        )
}

#[cfg(test)]
mod tests;
