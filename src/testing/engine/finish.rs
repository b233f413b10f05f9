//! The second half of a request: transactions are applied, watches strike, answers go out, in this order
//! (`FinalRequestProcessor`).

use super::acl::{self, Id, perm};
use super::conn::{Conn, Last, State};
use super::read::{Failed, Reading, multi_end, multi_error, multi_header};
use super::txn::{Done, Stamp, Txn};
use super::watch::Event;
use super::{ConnId, Engine, Output};
use crate::wire::code::{err, event, op, xid};
use crate::wire::record::{ConnectReply, Writer};
use std::sync::Arc;

/// A request between its two halves.
#[derive(Debug)]
pub(crate) struct Pending {
    /// None: the server's own.
    pub(crate) conn: Option<ConnId>,
    pub(crate) session: i64,
    pub(crate) xid: i32,
    pub(crate) op: i32,
    pub(crate) tag: u64,
    pub(crate) body: Vec<u8>,
    pub(crate) who: Arc<Vec<Id>>,
    /// Of a write.
    pub(crate) txn: Option<(Stamp, Txn)>,
    /// Why a read fails before it is looked at.
    pub(crate) refused: Option<i32>,
}

/// What is sent.
enum Answer {
    Body(Writer),
    Error(i32),
    /// The real server fails at making the answer, and sends none.
    Nothing,
}

impl Engine {
    pub(crate) fn finish(&mut self, request: Pending) {
        let Pending { conn, session, xid, op, tag, body, who, txn, refused } = request;
        let mut events = Vec::new();
        let done = txn.map(|(stamp, txn)| {
            let done = self.store.apply(txn, stamp, &mut events);
            self.last_zxid = self.last_zxid.max(stamp.zxid);
            self.outstanding.applied(stamp.zxid);
            done
        });
        let ended = if op == op::CLOSE { self.sessions.remove(session) } else { None };
        self.send_events(std::mem::take(&mut events));
        // Of a connection that has gone meanwhile nothing is left but what its writes have changed: a watch
        // would stay for ever.
        let Some(conn) = conn.filter(|conn| self.conns.contains_key(conn)) else {
            if let Some(conn) = ended.and_then(|session| session.conn) {
                self.close(conn);
            }
            return;
        };
        if op == op::CREATE_SESSION && matches!(done, Some(Done::Session)) {
            self.welcome(conn, tag);
            return;
        }
        let w = Writer::bare().i32(if op == op::PING { xid::PING } else { xid }).i64(self.last_zxid);
        let answer = match (done, refused) {
            (_, Some(code)) => Answer::Error(code),
            (Some(done), None) => written(done, w.i32(err::OK)),
            (None, None) => {
                let events = &mut events;
                let reading = Reading { store: &mut self.store, conn, session, who: &who, events };
                match reading.answer(op, &body, w.i32(err::OK)) {
                    Ok(w) => Answer::Body(w),
                    Err(Failed { code, empty_multi: true }) => {
                        Answer::Body(multi_end(Writer::bare().i32(xid).i64(self.last_zxid).i32(code)))
                    }
                    Err(Failed { code, .. }) => Answer::Error(code),
                }
            }
        };
        self.send_events(events);
        let header = |code| Writer::bare().i32(xid).i64(self.last_zxid).i32(code);
        match answer {
            Answer::Body(w) => self.reply(conn, tag, op, xid, w),
            Answer::Error(code) => self.reply(conn, tag, op, xid, header(code)),
            Answer::Nothing => debug!("test server: no answer to the request {xid} of {session:#x}"),
        }
        if op == op::CLOSE {
            self.close(conn);
        }
    }

    /// The connection's session is made.
    pub(crate) fn welcome(&mut self, conn: ConnId, tag: u64) {
        // One that was closed meanwhile stays so.
        let is_open = |client: &&mut Conn| client.state != State::Ended;
        let Some(client) = self.conns.get_mut(&conn).filter(is_open) else { return };
        client.state = State::Open;
        let Some(session) = self.sessions.get(client.session) else { return };
        let timeout_ms = i32::try_from(client.timeout.as_millis()).unwrap_or(i32::MAX);
        let (session_id, password) = (client.session, session.password.to_vec());
        let reply = ConnectReply { timeout_ms, session_id, password };
        let bytes = if client.old_client { reply.old_frame() } else { reply.frame() };
        debug!("test server: session {session_id:#x} of {} for {timeout_ms} ms", client.peer);
        client.last.op = "SESS";
        self.send(conn, tag, bytes);
    }

    pub(crate) fn reply(&mut self, conn: ConnId, tag: u64, op: i32, xid: i32, w: Writer) {
        let (now, zxid) = (self.now, self.last_zxid);
        if let Some(client) = self.conns.get_mut(&conn) {
            client.last = Last { op: short_name(op), xid, zxid, at: now };
        }
        self.send(conn, tag, w.frame());
    }

    pub(crate) fn send(&mut self, conn: ConnId, tag: u64, bytes: Vec<u8>) {
        let Some(client) = self.conns.get_mut(&conn).filter(|client| client.state != State::Ended) else {
            return;
        };
        client.sent += 1;
        self.sent += 1;
        self.outputs.push(Output::Reply { conn, tag, bytes });
    }

    fn send_events(&mut self, events: Vec<Event>) {
        for Event { conn, kind, path, acl } in events {
            // Not who may not read the node (CVE-2024-23944).
            let may_hear = |client: &&mut Conn| {
                let reads = acl.as_ref().is_none_or(|acl| acl::check(acl, perm::READ, &client.who).is_ok());
                reads && client.state != State::Ended
            };
            let Some(client) = self.conns.get_mut(&conn).filter(may_hear) else { continue };
            client.sent += 1;
            self.sent += 1;
            let header = Writer::bare().i32(xid::EVENT).i64(-1).i32(err::OK);
            let bytes = header.i32(kind).i32(event::SYNC_CONNECTED).buffer(path.as_bytes()).frame();
            self.outputs.push(Output::Event { conn, session: client.session, kind, path, bytes });
        }
    }

    /// Closes a connection after what was sent to it.
    pub(crate) fn close(&mut self, conn: ConnId) {
        if let Some(client) = self.conns.get_mut(&conn) {
            client.state = State::Ended;
            self.store.watches.hang_up(conn);
            self.outputs.push(Output::Close { conn });
        }
    }
}

/// The answer to a write.
fn written(done: Done, w: Writer) -> Answer {
    Answer::Body(match done {
        Done::Created { path, stat, .. } => {
            let w = w.buffer(path.as_bytes());
            match stat {
                Some(stat) => stat.write(w),
                None => w,
            }
        }
        Done::DataSet(stat) | Done::AclSet(stat) => stat.write(w),
        Done::Deleted | Done::Session => w,
        Done::Checked => return Answer::Nothing,
        Done::Failed(code) => return Answer::Error(code),
        Done::Multi(results) => multi_end(results.into_iter().fold(w, multi_result)),
    })
}

fn multi_result(w: Writer, done: Done) -> Writer {
    match done {
        Done::Created { op: op::CREATE, path, .. } => multi_header(w, op::CREATE).buffer(path.as_bytes()),
        Done::Created { path, stat, .. } => {
            let w = multi_header(w, op::CREATE2).buffer(path.as_bytes());
            match stat {
                Some(stat) => stat.write(w),
                None => w,
            }
        }
        Done::Deleted => multi_header(w, op::DELETE),
        Done::DataSet(stat) => stat.write(multi_header(w, op::SET_DATA)),
        Done::Checked => multi_header(w, op::CHECK),
        Done::Failed(code) => multi_error(w, code),
        // A multi has none of these.
        Done::AclSet(_) | Done::Session | Done::Multi(_) => multi_error(w, err::RUNTIME_INCONSISTENCY),
    }
}

/// What the four-letter words call an operation.
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
