//! Deleting a node of ours whose name anybody may use: only while it is ours.
//!
//! A delete that is sent again on another connection could hit the node of whoever came next. So on each connection the same three
//! steps are taken: a write is acknowledged, behind which nothing of ours that was sent on an earlier connection can still be done
//! (ZooKeeper refuses the requests of a session that has moved); a read shows our node; and then it is deleted. What remains is what
//! somebody else does to our node within that last step.
//!
//! The node is ours if our session owns it and its czxid is the one we know. If we know none, because
//! the answer to the create was lost, the nonce in its data decides, unless somebody has written over
//! that data: then the session alone decides, as long as no hold of this session stands on the path.

use crossbeam_channel::Sender;

use super::Outcome;
use crate::session::nonce;
use crate::session::shared::Shared;
use crate::session::wire::Malformed;
use crate::session::wire::code::{err, op};
use crate::session::wire::record::{Reader, Writer};

pub(crate) struct Removal {
    path: String,
    nonce: String,
    /// If it is known; whether the node was made may be unknown too.
    czxid: Option<i64>,
    done: Option<Sender<Outcome>>,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Prove,
    Look,
    Delete,
}

/// What an answer leads to.
pub(super) enum Next {
    /// The next request, at once.
    Now,
    /// Our node is not there, for good.
    Gone,
    /// Refused: again, but somebody must change an ACL first.
    Refused,
    /// Again, a little later.
    Later,
}

impl Removal {
    pub(crate) fn new(
        path: String,
        nonce: String,
        czxid: Option<i64>,
        done: Option<Sender<Outcome>>,
    ) -> Self {
        Removal { path, nonce, czxid, done, step: Step::Prove }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The id of the debris that it is until it is gone.
    pub(super) fn nonce(&self) -> &str {
        &self.nonce
    }

    pub(super) fn done(&mut self) -> Option<Sender<Outcome>> {
        self.done.take()
    }

    /// The connection is gone, and what was seen and proven on it.
    pub(super) fn restart(&mut self) {
        self.step = Step::Prove;
    }

    /// The operation and the frame; `noop` makes a write without an effect.
    pub(super) fn request(&self, xid: i32, noop: impl FnOnce() -> Vec<u8>) -> (i32, Vec<u8>) {
        let request = |op| Writer::request(xid, op).buffer(self.path.as_bytes());
        match self.step {
            Step::Prove => (op::DELETE, noop()),
            Step::Look => (op::GET_DATA, request(op::GET_DATA).bool(false).frame()),
            Step::Delete => (op::DELETE, request(op::DELETE).i32(-1).frame()),
        }
    }

    /// Takes the answer to the last request.
    /// `is_written`: it is to a write, and the leader has acknowledged it.
    pub(super) fn reply(
        &mut self,
        (code, is_written): (i32, bool),
        body: &[u8],
        shared: &Shared,
    ) -> Result<Next, Malformed> {
        let step = std::mem::replace(&mut self.step, Step::Prove);
        let (step, next) = match (step, code) {
            (Step::Prove, _) if is_written => (Step::Look, Next::Now),
            (Step::Look, err::OK) if self.is_ours(body, shared)? => (Step::Delete, Next::Now),
            (Step::Look, err::OK | err::NO_NODE) => (step, Next::Gone),
            (Step::Delete, err::OK | err::NO_NODE) if is_written => (step, Next::Gone),
            (Step::Look | Step::Delete, err::NO_AUTH | err::AUTH_FAILED | err::NOT_EMPTY | err::TOO_LONG) => {
                (Step::Prove, Next::Refused)
            }
            _ => (Step::Prove, Next::Later),
        };
        self.step = step;
        Ok(next)
    }

    fn is_ours(&self, body: &[u8], shared: &Shared) -> Result<bool, Malformed> {
        let mut r = Reader::new(body);
        let data = r.buffer()?;
        let (czxid, owner) = r.stat_owner()?;
        let is_known = match (self.czxid, nonce::split(data).0) {
            // Somebody may have written over the data of a node whose czxid we know.
            (Some(known), _) => known == czxid,
            (None, Some(nonce)) => nonce == self.nonce,
            // Somebody has written over it before we knew its czxid. If this session owns it, it is
            // ours, unless a later attempt of this session made it. Such an attempt holds the lock
            // by now; if it is only about to, its watch tells it that its node has gone, and it
            // begins anew.
            (None, None) => shared.lease.hold_on(&self.path).is_none(),
        };
        Ok(is_known && shared.session_id() == Some(owner))
    }
}
