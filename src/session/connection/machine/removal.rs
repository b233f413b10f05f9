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

use super::Outcome;
use super::background::TaskAnswer;
use crate::session::connection::codec::{self, Operation, Reply};
use crate::session::nonce;
use crate::wire::Malformed;
use crate::wire::code::{err, op};
use crate::world::Sender;

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
    /// Only our session shows that the node is ours: is there a hold on it?
    Ask,
    Delete,
}

/// What an answer leads to.
pub(super) enum Next {
    /// The next request, at once.
    Now,
    /// It goes on when it is known whether a hold stands on its path.
    Ask,
    /// Our node is not there, for good.
    Gone,
    /// Refused: again, but somebody must change an ACL first.
    Refused,
    /// Again, a little later.
    Later,
}

/// Whose node a read has shown.
enum Whose {
    Ours,
    /// Of our session; which attempt of it made the node is not known.
    OurSessions,
    Others,
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

    /// The id by which it is among the pending deletes until it is gone.
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

    /// The next request; the delete of `noop` is a write without an effect.
    pub(super) fn operation<'a>(&'a self, noop: &'a str) -> Option<Operation<'a>> {
        match self.step {
            Step::Prove => Some(Operation::Delete { path: noop }),
            Step::Look => Some(Operation::GetData { path: &self.path, watch: false }),
            Step::Ask => None,
            Step::Delete => Some(Operation::Delete { path: &self.path }),
        }
    }

    /// Takes the answer to the last request; `session` is the id of our session.
    pub(super) fn reply(&mut self, answer: &TaskAnswer<'_>, session: i64) -> Result<Next, Malformed> {
        let TaskAnswer { code, is_written, body } = *answer;
        let step = std::mem::replace(&mut self.step, Step::Prove);
        let (step, next) = match (step, code) {
            (Step::Prove, _) if is_written => (Step::Look, Next::Now),
            (Step::Look, err::OK) => match self.whose(body, session)? {
                Whose::Ours => (Step::Delete, Next::Now),
                Whose::OurSessions => (Step::Ask, Next::Ask),
                Whose::Others => (step, Next::Gone),
            },
            (Step::Look, err::NO_NODE) => (step, Next::Gone),
            (Step::Delete, err::OK | err::NO_NODE) if is_written => (step, Next::Gone),
            (Step::Look | Step::Delete, err::NO_AUTH | err::AUTH_FAILED | err::NOT_EMPTY | err::TOO_LONG) => {
                (Step::Prove, Next::Refused)
            }
            _ => (Step::Prove, Next::Later),
        };
        self.step = step;
        Ok(next)
    }

    /// Whether no hold stands on the path, which was asked. `None`: it began anew meanwhile.
    pub(super) fn may_remove(&mut self, may: bool) -> Option<Next> {
        if self.step != Step::Ask {
            return None;
        }
        self.step = Step::Delete;
        Some(if may { Next::Now } else { Next::Gone })
    }

    fn whose(&self, body: &[u8], session: i64) -> Result<Whose, Malformed> {
        let Reply::Node(node) = codec::decode(op::GET_DATA, body)? else { return Ok(Whose::Others) };
        if node.stat.owner != session {
            return Ok(Whose::Others);
        }
        let is_ours = match (self.czxid, nonce::split(&node.data).0) {
            // Somebody may have written over the data of a node whose czxid we know.
            (Some(known), _) => known == node.stat.czxid,
            (None, Some(nonce)) => nonce == self.nonce,
            // Somebody has written over it before we knew its czxid. If this session owns it, it is
            // ours, unless a later attempt of this session made it. Such an attempt holds the lock
            // by now; if it is only about to, its watch tells it that its node has gone, and it
            // begins anew.
            (None, None) => return Ok(Whose::OurSessions),
        };
        Ok(if is_ours { Whose::Ours } else { Whose::Others })
    }
}
