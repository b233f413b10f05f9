//! The part of a server that deals with clients: their connections, the tree with all applied
//! transactions, and the watches. It reads frames, answers them and sends events. The server that
//! owns it, or that server's leader, orders writes and expires sessions.

use super::ConnId;
use super::HashMap;
use super::acl::{self, Id, perm};
use super::conn::{Conn, Last, State};
use super::sasl::{Answer, Sasl};
use super::tree::Tree;
use super::txn::Store;
use super::watch::{Event, Watches};
use crate::Brand;
use sha1_smol::Sha1;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use zk_wire::Malformed;
use zk_wire::code::{err, event, op, xid};
use zk_wire::record::{ConnectReply, ConnectRequest, Reader, ReplyHeader, Writer};

/// The length of a session's password.
const PASSWORD: usize = 16;

/// An output of the engine. The outputs are carried out in their order.
#[derive(Debug)]
pub enum Output {
    /// The answer to the request with this tag; frames are whole, their length in front.
    Reply { conn: ConnId, tag: u64, bytes: Vec<u8> },
    /// A watch event.
    Event { conn: ConnId, session: i64, kind: i32, path: Arc<str>, bytes: Vec<u8> },
    /// Close the connection, after what was sent to it.
    Close { conn: ConnId },
}

/// The identity of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    /// Its number in the ensemble: the first byte of the ids of the sessions that it makes.
    pub(crate) server: u8,
    /// The wall clock at the beginning, in milliseconds since 1970.
    pub(crate) epoch: i64,
    /// The secret from which sessions' passwords are made. All servers of an ensemble have the
    /// same.
    pub(crate) secret: u128,
}

/// The shortest and the longest timeout that a server grants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeoutLimits {
    pub(crate) min: Duration,
    pub(crate) max: Duration,
}

/// The request in a connection's first frame.
pub(crate) enum Greeting {
    /// The server refuses the connection.
    Refused,
    /// The client wants a new session. This is its id, if it is made.
    Create { session: i64, timeout: Duration },
    /// The client wants this session back. `is_known`: its password is right.
    Resume { session: i64, timeout: Duration, is_known: bool },
}

/// A client's request without its header.
pub(crate) struct Request<'a> {
    pub(crate) session: i64,
    pub(crate) timeout: Duration,
    pub(crate) xid: i32,
    pub(crate) op: i32,
    pub(crate) body: &'a [u8],
}

#[derive(Debug)]
pub(crate) struct Front {
    identity: Identity,
    pub(crate) limits: TimeoutLimits,
    super_digest: Option<String>,
    pub(super) sasl: Sasl,
    /// How many challenges were made, so that each is a new one.
    challenges: u64,
    pub(crate) now: Duration,
    pub(crate) store: Store,
    pub(crate) conns: HashMap<ConnId, Conn>,
    /// The connection that was last attached to each session, if that is still there.
    pub(crate) attached: HashMap<i64, ConnId>,
    next_session: i64,
    /// The newest transaction that was applied.
    pub(crate) last_zxid: i64,
    pub(super) outputs: Vec<Output>,
    pub(super) received: u64,
    pub(super) sent: u64,
}

impl Front {
    pub(crate) fn new(
        identity: Identity,
        limits: TimeoutLimits,
        brand: Brand,
        super_digest: Option<String>,
        sasl: Sasl,
    ) -> Front {
        // Session ids continue with the time, so that a session of an earlier server does not come
        // back to life in this one.
        let next_session =
            i64::from(identity.server) << 56 | ((identity.epoch << 24) as u64 >> 8) as i64;
        Front {
            identity,
            limits,
            super_digest,
            sasl,
            challenges: 0,
            now: Duration::ZERO,
            store: Store { tree: Tree::new(), watches: Watches::new(brand), brand },
            conns: HashMap::default(),
            attached: HashMap::default(),
            next_session,
            last_zxid: 0,
            outputs: Vec::new(),
            received: 0,
            sent: 0,
        }
    }

    /// Sets the time since the server was made, by the caller's clock. Call this before the
    /// functions below.
    pub(crate) fn set_now(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    /// The wall clock, in milliseconds since 1970.
    pub(crate) fn wall_ms(&self) -> i64 {
        self.wall_ms_at(self.now)
    }

    /// The wall clock at a time on the server's clock.
    pub(crate) fn wall_ms_at(&self, at: Duration) -> i64 {
        self.identity.epoch.saturating_add(i64::try_from(at.as_millis()).unwrap_or(i64::MAX))
    }

    pub(crate) fn accept(&mut self, conn: ConnId, peer: SocketAddr) {
        self.conns.insert(conn, Conn::new(peer, self.now));
    }

    /// See `Engine::identify`.
    pub(crate) fn identify(&mut self, conn: ConnId, subject: String) {
        if let Some(client) = self.conns.get_mut(&conn) {
            client.add_identity(Id::x509(subject));
        }
    }

    pub(crate) fn state(&self, conn: ConnId) -> State {
        self.conns.get(&conn).map_or(State::Ended, |client| client.state)
    }

    /// The identities of a connection's client; none if the connection is gone.
    pub(crate) fn who(&self, conn: ConnId) -> Arc<Vec<Id>> {
        self.conns.get(&conn).map(|client| Arc::clone(&client.who)).unwrap_or_default()
    }

    /// Forgets a connection that is gone. Its requests are executed all the same.
    pub(crate) fn hang_up(&mut self, conn: ConnId) {
        let Some(client) = self.conns.remove(&conn) else { return };
        self.store.watches.hang_up(conn);
        if self.attached.get(&client.session) == Some(&conn) {
            self.attached.remove(&client.session);
        }
    }

    /// Forgets all connections and all watches.
    pub(crate) fn forget_clients(&mut self) {
        self.conns.clear();
        self.attached.clear();
        self.outputs.clear();
        self.store.watches = Watches::new(self.store.brand);
    }

    /// Deletes all data and forgets all connections.
    pub(crate) fn wipe(&mut self) {
        self.forget_clients();
        self.store.tree = Tree::new();
        self.last_zxid = 0;
    }

    pub(crate) fn take_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    fn count_received(&mut self, conn: ConnId) {
        self.received += 1;
        if let Some(client) = self.conns.get_mut(&conn) {
            client.received += 1;
        }
    }

    /// Takes the first frame of a connection (`ZooKeeperServer.processConnectRequest`).
    pub(crate) fn greet(&mut self, conn: ConnId, frame: &[u8]) -> Result<Greeting, Malformed> {
        self.count_received(conn);
        let (request, knows_read_only) = ConnectRequest::read(frame)?;
        let ConnectRequest { last_zxid, timeout_ms, session_id, password } = request;
        if last_zxid > self.last_zxid {
            // The client has seen transactions that this server does not have, so its session may
            // not continue here.
            info!(
                "test server: refused a client that has seen zxid {last_zxid:#x}, ours is {:#x}",
                self.last_zxid
            );
            self.close(conn);
            return Ok(Greeting::Refused);
        }
        let wanted = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let timeout = wanted.max(self.limits.min).min(self.limits.max);
        let Some(client) = self.conns.get_mut(&conn) else { return Ok(Greeting::Refused) };
        (client.timeout, client.old_client) = (timeout, !knows_read_only);
        client.state = State::Connecting;
        if session_id == 0 || !self.store.brand.resumes_sessions() {
            let session = self.next_session;
            self.next_session += 1;
            client.session = session;
            self.attached.insert(session, conn);
            return Ok(Greeting::Create { session, timeout });
        }
        client.session = session_id;
        // The connection that had the session before is closed first, even if the password is
        // wrong.
        if let Some(old) = self.attached.insert(session_id, conn) {
            self.close(old);
        }
        let is_known = self.password(session_id) == password;
        Ok(Greeting::Resume { session: session_id, timeout, is_known })
    }

    fn password(&self, session: i64) -> [u8; PASSWORD] {
        let mut hash = Sha1::new();
        hash.update(&self.identity.secret.to_be_bytes());
        hash.update(&session.to_be_bytes());
        hash.digest().bytes().first_chunk().copied().unwrap_or_default()
    }

    /// Answers a connect request: the connection has its session.
    pub(crate) fn welcome(&mut self, conn: ConnId, tag: u64) {
        let Some(client) = self.conns.get_mut(&conn).filter(|client| client.state != State::Ended)
        else {
            return;
        };
        client.state = State::Open;
        client.last.op = "SESS";
        let timeout_ms = i32::try_from(client.timeout.as_millis()).unwrap_or(i32::MAX);
        let (session_id, is_old) = (client.session, client.old_client);
        debug!("test server: session {session_id:#x} of {} for {timeout_ms} ms", client.peer);
        let reply =
            ConnectReply { timeout_ms, session_id, password: self.password(session_id).to_vec() };
        self.send(conn, tag, if is_old { reply.old_frame() } else { reply.frame() });
    }

    /// Answers a connect request: the session does not exist, or the password is wrong.
    pub(crate) fn refuse_session(&mut self, conn: ConnId, tag: u64) {
        let Some(client) = self.conns.get(&conn) else { return };
        info!("test server: there is no session {:#x} with that password", client.session);
        let is_old = client.old_client;
        let reply = ConnectReply { timeout_ms: 0, session_id: 0, password: vec![0; PASSWORD] };
        self.send(conn, tag, if is_old { reply.old_frame() } else { reply.frame() });
        self.close(conn);
    }

    /// Takes a later frame. Returns none if the request was answered.
    pub(crate) fn receive<'a>(
        &mut self,
        conn: ConnId,
        frame: &'a [u8],
        tag: u64,
    ) -> Result<Option<Request<'a>>, Malformed> {
        self.count_received(conn);
        let mut r = Reader::new(frame);
        let (xid, op) = (r.i32()?, r.i32()?);
        match op {
            op::AUTH => self.authenticate(conn, xid, r.rest(), tag)?,
            op::SASL => self.log_in(conn, xid, r.rest(), tag)?,
            _ if self.requires_login(conn) => self.refuse_stranger(conn, xid, tag),
            _ => {
                let client = self.conns.get(&conn);
                return Ok(client.map(|client| Request {
                    session: client.session,
                    timeout: client.timeout,
                    xid,
                    op,
                    body: r.rest(),
                }));
            }
        }
        Ok(None)
    }

    /// Adds credentials. The answer is sent at once, before the answers to earlier requests that
    /// are not finished.
    fn authenticate(
        &mut self,
        conn: ConnId,
        xid: i32,
        body: &[u8],
        tag: u64,
    ) -> Result<(), Malformed> {
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
        let is_super = |id: &Id| self.super_digest.as_ref().is_some_and(|digest| *digest == id.id);
        if id.as_ref().is_some_and(|id| id.scheme == "digest" && is_super(id)) {
            client.add_identity(Id::superuser());
        }
        let code = if id.is_some() { err::OK } else { err::AUTH_FAILED };
        id.into_iter().for_each(|id| client.add_identity(id));
        self.send(conn, tag, ReplyHeader { xid, zxid: 0, err: code }.frame(&[]));
        if code != err::OK {
            warn!(
                "test server: refused credentials of the scheme {scheme:?}: closing the connection"
            );
            self.close(conn);
        }
        Ok(())
    }

    /// Takes a token of a login by SASL. As that to credentials, the answer is sent at once.
    fn log_in(&mut self, conn: ConnId, xid: i32, body: &[u8], tag: u64) -> Result<(), Malformed> {
        let token = Reader::new(body).nullable_buffer()?.ok_or(Malformed("a null token"))?;
        let mut hash = Sha1::new();
        hash.update(&self.identity.secret.to_be_bytes());
        hash.update(b"challenge");
        hash.update(&self.challenges.to_be_bytes());
        self.challenges += 1;
        let Some(client) = self.conns.get_mut(&conn) else { return Ok(()) };
        let step = self.sasl.step(&mut client.login, token, || hash.digest().to_string());
        let (code, Answer { token, user }) = match step {
            Ok(answer) => (err::OK, answer),
            Err(code) => (code, Answer::default()),
        };
        if let Some(user) = user {
            debug!("test server: session {:#x} is {user:?}, by SASL", client.session);
            client.add_identity(Id::sasl(user));
        }
        let w = Writer::bare().i32(xid).i64(0).i32(code);
        let w = match token {
            Some(token) => w.buffer(&token),
            None => w.i32(-1),
        };
        self.send(conn, tag, w.frame());
        if code != err::OK {
            self.close(conn);
        }
        Ok(())
    }

    /// Whether this connection is served only after a login that it lacks.
    fn requires_login(&self, conn: ConnId) -> bool {
        let is_in = |client: &Conn| client.who.iter().any(|id| id.scheme == "sasl");
        self.sasl.is_required && !self.conns.get(&conn).is_some_and(is_in)
    }

    /// Answers any request of a client that must log in first, also the close of its session, and
    /// closes the connection (`AuthenticationHelper.enforceAuthentication`).
    fn refuse_stranger(&mut self, conn: ConnId, xid: i32, tag: u64) {
        warn!("test server: a client has not logged in by SASL: closing its connection");
        self.send(conn, tag, ReplyHeader { xid, zxid: 0, err: err::REQUIRES_AUTH }.frame(&[]));
        self.close(conn);
    }

    /// Answers an operation that no server knows, and closes the connection.
    pub(crate) fn refuse_operation(
        &mut self,
        conn: ConnId,
        Request { session, xid, op, .. }: &Request<'_>,
        tag: u64,
    ) {
        warn!(
            "test server: unknown request type {op} from session {session:#x}: closing its connection"
        );
        self.reply(conn, tag, *op, *xid, Writer::bare().i32(*xid).i64(-1).i32(err::UNIMPLEMENTED));
        self.close(conn);
    }

    pub(crate) fn reply(&mut self, conn: ConnId, tag: u64, op: i32, xid: i32, w: Writer) {
        let (now, zxid) = (self.now, self.last_zxid);
        if let Some(client) = self.conns.get_mut(&conn) {
            client.last = Last { op: short_name(op), xid, zxid, at: now };
        }
        self.send(conn, tag, w.frame());
    }

    pub(crate) fn send(&mut self, conn: ConnId, tag: u64, bytes: Vec<u8>) {
        let Some(client) = self.conns.get_mut(&conn).filter(|client| client.state != State::Ended)
        else {
            return;
        };
        client.sent += 1;
        self.sent += 1;
        self.outputs.push(Output::Reply { conn, tag, bytes });
    }

    pub(super) fn send_events(&mut self, events: Vec<Event>) {
        for Event { conn, kind, path, acl } in events {
            // A client that may not read the node gets no event of it (CVE-2024-23944).
            let may_hear = |client: &&mut Conn| {
                let reads =
                    acl.as_ref().is_none_or(|acl| acl::check(acl, perm::READ, &client.who).is_ok());
                reads && client.state != State::Ended
            };
            let Some(client) = self.conns.get_mut(&conn).filter(may_hear) else { continue };
            client.sent += 1;
            self.sent += 1;
            // An event without an ACL is one that a `setWatches` found missed.
            let is_live = acl.is_some() && self.store.brand.events_have_a_zxid();
            let zxid = if is_live { self.last_zxid } else { -1 };
            let header = Writer::bare().i32(xid::EVENT).i64(zxid).i32(err::OK);
            let bytes = header.i32(kind).i32(event::SYNC_CONNECTED).buffer(path.as_bytes()).frame();
            self.outputs.push(Output::Event { conn, session: client.session, kind, path, bytes });
        }
    }

    /// Closes a connection after all earlier bytes were sent to it.
    pub(crate) fn close(&mut self, conn: ConnId) {
        if let Some(client) = self.conns.get_mut(&conn) {
            client.state = State::Ended;
            self.store.watches.hang_up(conn);
            self.outputs.push(Output::Close { conn });
        }
    }
}

/// The name of an operation in the answers to four-letter words.
fn short_name(op: i32) -> &'static str {
    match op {
        op::PING => "PING",
        op::MULTI => "MULT",
        op::MULTI_READ => "MLTR",
        op::CREATE | op::CREATE2 | op::CREATE_TTL | op::CREATE_CONTAINER => "CREA",
        op::DELETE | op::DELETE_CONTAINER => "DELE",
        op::SET_DATA => "SETD",
        op::SET_ACL => "SETA",
        op::CLOSE => "CLOS",
        op::SYNC => "SYNC",
        op::CHECK => "CHEC",
        op::EXISTS => "EXIS",
        op::GET_DATA => "GETD",
        op::SET_WATCHES => "SETW",
        op::SET_WATCHES2 => "STW2",
        op::ADD_WATCH => "ADDW",
        op::GET_ACL => "GETA",
        op::GET_CHILDREN | op::GET_CHILDREN2 => "GETC",
        op::GET_ALL_CHILDREN_NUMBER => "GETACN",
        op::CHECK_WATCHES => "CHKW",
        op::REMOVE_WATCHES => "REMW",
        op::WHO_AM_I => "HOMI",
        op::GET_EPHEMERALS => "GETE",
        _ => "NA",
    }
}
