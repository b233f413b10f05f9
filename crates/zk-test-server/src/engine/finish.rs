//! The second half of a request: transactions are applied, watches fire, answers go out, in this
//! order (`FinalRequestProcessor`).

use super::ConnId;
use super::acl::Id;
use super::front::Front;
use super::read::{Failed, Reading, multi_end, multi_error, multi_header};
use super::txn::{Done, Stamp, Txn};
use std::sync::Arc;
use zk_wire::code::{err, op, xid};
use zk_wire::record::Writer;

/// A request between its two halves.
#[derive(Debug)]
pub(crate) struct Pending {
    /// None for a write of the server itself.
    pub(crate) conn: Option<ConnId>,
    pub(crate) session: i64,
    pub(crate) xid: i32,
    pub(crate) op: i32,
    pub(crate) tag: u64,
    pub(crate) body: Vec<u8>,
    pub(crate) who: Arc<Vec<Id>>,
    /// The transaction, if the request is a write.
    pub(crate) txn: Option<(Stamp, Txn)>,
    /// The error that a read gets without being served.
    pub(crate) refused: Option<i32>,
}

/// The answer to a request.
enum Answer {
    Body(Writer),
    Error(i32),
    /// No answer: the real server fails while it makes the answer.
    Nothing,
}

impl Front {
    /// Finishes a request. A request without a connection is a write of the server itself, or of a
    /// client of another server.
    pub(crate) fn finish(&mut self, request: Pending) {
        let Pending { conn, session, xid, op, tag, body, who, txn, refused } = request;
        let mut events = Vec::new();
        let done = txn.map(|(stamp, txn)| {
            let done = self.store.apply(txn, stamp, &mut events);
            self.last_zxid = self.last_zxid.max(stamp.zxid);
            done
        });
        let attached = if op == op::CLOSE { self.attached.remove(&session) } else { None };
        self.send_events(std::mem::take(&mut events));
        // If the connection is gone meanwhile, only the write's change stays. A watch would stay
        // for ever.
        let Some(conn) = conn.filter(|conn| self.conns.contains_key(conn)) else {
            if let Some(conn) = attached {
                self.close(conn);
            }
            return;
        };
        if refused == Some(err::SESSION_MOVED) || done.as_ref().is_some_and(Done::is_moved) {
            // The client has to connect again, so that its session is checked first.
            self.close(conn);
            return;
        }
        if op == op::CREATE_SESSION && matches!(done, Some(Done::Session)) {
            self.welcome(conn, tag);
            return;
        }
        let w =
            Writer::bare().i32(if op == op::PING { xid::PING } else { xid }).i64(self.last_zxid);
        let answer = match (done, refused) {
            (_, Some(code)) => Answer::Error(code),
            (Some(done), None) => written(done, w.i32(err::OK)),
            (None, None) => {
                let events = &mut events;
                let reading = Reading { store: &mut self.store, conn, session, who: &who, events };
                match reading.answer(op, &body, w.i32(err::OK)) {
                    Ok(w) => Answer::Body(w),
                    Err(Failed { code, empty_multi: true }) => Answer::Body(multi_end(
                        Writer::bare().i32(xid).i64(self.last_zxid).i32(code),
                    )),
                    Err(Failed { code, .. }) => Answer::Error(code),
                }
            }
        };
        self.send_events(events);
        let header = |code| Writer::bare().i32(xid).i64(self.last_zxid).i32(code);
        match answer {
            Answer::Body(w) => self.reply(conn, tag, op, xid, w),
            Answer::Error(code) => self.reply(conn, tag, op, xid, header(code)),
            Answer::Nothing => {
                debug!("test server: no answer to the request {xid} of {session:#x}")
            }
        }
        if op == op::CLOSE {
            self.close(conn);
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
        Done::Created { op: op::CREATE, path, .. } => {
            multi_header(w, op::CREATE).buffer(path.as_bytes())
        }
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
        // An operation of a multi is never one of these.
        Done::AclSet(_) | Done::Session | Done::Multi(_) => {
            multi_error(w, err::RUNTIME_INCONSISTENCY)
        }
    }
}
