//! Deleting a node of ours that should go.
//!
//! A node whose name bears an id of ours is nobody else's: it is deleted by its name, as often as
//! it takes. If the answer to its create was lost, only the beginning of its name is known, and it
//! is looked for first. Of a node whose name others may use too, a delete that is sent again on
//! another connection could hit the node of whoever came next.
//!
//! So in these two cases the same steps are taken on each connection: a write is acknowledged,
//! behind which nothing of ours that was sent on an earlier connection can still be done (ZooKeeper
//! refuses the requests of a session that has moved); a listing or a read shows our node; and then
//! it is deleted. What remains is what somebody else does to a node with a common name within the
//! last step.
//!
//! Such a node is ours if our session owns it and its czxid is the one we know. If we know none,
//! because the answer to the create was lost, the nonce in its data decides, unless somebody has
//! written over that data: then the session alone decides, as long as no hold of this session
//! stands on the path.

use super::*;
use crate::session::connection::codec::{Node, Operation, Reply};
use crate::session::nonce;
use zk_wire::path;

#[derive(Clone, Debug)]
pub(crate) struct Removal {
    /// The node's full path, as far as it is known.
    pub(crate) path: String,
    /// What makes the node ours: a part of its name, or the nonce in its data. By this it is among
    /// the pending deletes until it is gone.
    pub(crate) id: String,
    known: KnownPart,
    step: RemovalStep,
    /// A request before the one that this stands by may have made the node.
    pub(crate) may_exist: bool,
    /// Delete the parent too, if that is empty then.
    pub(crate) renew_parent: bool,
    pub(crate) outlives_session: bool,
    pub(crate) done: Option<Sender<Outcome>>,
}

/// What is known of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownPart {
    FullPath,
    /// The path begins so; the server may have appended a number.
    Prefix,
    /// The path, which others use too, and the czxid, if the node was seen or its create answered.
    Shared(Option<i64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemovalStep {
    Prove,
    Read,
    /// Only our session shows that the node is ours: is there a hold on it?
    CheckHolds,
    Delete,
}

/// What an answer leads to.
pub(super) enum RemovalNext {
    /// The next request, at once.
    SendNow,
    /// It goes on when it is known whether a hold stands on its path.
    CheckHolds,
    /// Our node is not there, for good.
    Gone,
    /// Refused: again, but somebody must change an ACL first.
    Refused,
    /// Again, a little later.
    SendLater,
}

impl Removal {
    /// Of a node with this id in its name.
    pub(crate) fn named(path: String, id: String) -> Self {
        Removal::new(path, id, KnownPart::FullPath)
    }

    /// Of the node that a create of `prefix` may make; the id is in there.
    pub(crate) fn of_create(prefix: &str, id: &str) -> Self {
        Removal::new(prefix.to_owned(), id.to_owned(), KnownPart::Prefix)
    }

    /// Of a node that bears `nonce` in its data, and has this czxid, if that is known.
    pub(crate) fn signed(path: String, nonce: String, czxid: Option<i64>) -> Self {
        Removal::new(path, nonce, KnownPart::Shared(czxid))
    }

    fn new(path: String, id: String, known: KnownPart) -> Self {
        let (may_exist, renew_parent, outlives_session) = (false, false, false);
        let mut removal = Removal {
            path,
            id,
            known,
            step: RemovalStep::Prove,
            may_exist,
            renew_parent,
            outlives_session,
            done: None,
        };
        removal.restart();
        removal
    }

    /// Whether the node's name is nobody else's.
    pub(super) fn is_named(&self) -> bool {
        !matches!(self.known, KnownPart::Shared(_))
    }

    /// The create has made this node.
    pub(super) fn made(self, path: &str) -> Self {
        let known = if self.is_named() { KnownPart::FullPath } else { self.known };
        let mut removal = Removal { path: path.to_owned(), known, ..self };
        removal.restart();
        removal
    }

    /// The connection is gone, and what was seen and proven on it.
    pub(super) fn restart(&mut self) {
        self.step = if self.known == KnownPart::FullPath {
            RemovalStep::Delete
        } else {
            RemovalStep::Prove
        };
    }

    /// What was refused.
    pub(super) fn refused(&self) -> &'static str {
        match self.known {
            KnownPart::Prefix => "its folder may not be listed, to delete our node",
            KnownPart::FullPath | KnownPart::Shared(_) => "our node could not be deleted",
        }
    }

    /// The next request; the delete of `noop` is a write without an effect.
    pub(super) fn operation<'a>(&'a self, noop: &'a str) -> Option<Operation<'a>> {
        match (self.step, self.known) {
            (RemovalStep::Prove, _) => Some(Operation::Delete { path: noop }),
            (RemovalStep::Read, KnownPart::Prefix) => {
                Some(Operation::GetChildren { path: path::parent(&self.path), watch: false })
            }
            (RemovalStep::Read, _) => Some(Operation::GetData { path: &self.path, watch: false }),
            (RemovalStep::CheckHolds, _) => None,
            (RemovalStep::Delete, _) => Some(Operation::Delete { path: &self.path }),
        }
    }

    /// Takes the answer to the last request. `is_written`: it is a write, and the leader has
    /// acknowledged it; the same code from a server that is alone shows nothing. `session` is the
    /// id of our session.
    pub(super) fn answered(
        &mut self,
        code: i32,
        is_written: bool,
        body: &[u8],
        session: i64,
    ) -> Result<RemovalNext, Malformed> {
        let step = self.step;
        self.restart();
        Ok(match (step, code) {
            (RemovalStep::Prove, _) if is_written => {
                self.go_on(RemovalStep::Read, RemovalNext::SendNow)
            }
            (RemovalStep::Read, err::OK) if self.known == KnownPart::Prefix => self.listed(body)?,
            (RemovalStep::Read, err::OK) => match codec::decode(op::GET_DATA, body)? {
                Reply::Node(node) => self.seen(&node, session),
                _ => RemovalNext::Gone,
            },
            (RemovalStep::Read, err::NO_NODE) => RemovalNext::Gone,
            (RemovalStep::Delete, err::OK | err::NO_NODE) if is_written => RemovalNext::Gone,
            (
                RemovalStep::Read | RemovalStep::Delete,
                err::NO_AUTH | err::AUTH_FAILED | err::NOT_EMPTY | err::TOO_LONG,
            ) => RemovalNext::Refused,
            _ => RemovalNext::SendLater,
        })
    }

    /// Whether no hold stands on the path, which was asked. `None`: it began anew meanwhile.
    pub(super) fn may_go(&mut self, may: bool) -> Option<RemovalNext> {
        let next = if may { RemovalNext::SendNow } else { RemovalNext::Gone };
        (self.step == RemovalStep::CheckHolds).then(|| self.go_on(RemovalStep::Delete, next))
    }

    fn go_on(&mut self, step: RemovalStep, next: RemovalNext) -> RemovalNext {
        self.step = step;
        next
    }

    /// Takes the list in which the node is, if it was made.
    fn listed(&mut self, body: &[u8]) -> Result<RemovalNext, Malformed> {
        let (dir, prefix) = (path::parent(&self.path), path::name(&self.path));
        let Some(name) = codec::children(body)?.into_iter().find(|name| is_made_by(prefix, name))
        else {
            return Ok(RemovalNext::Gone);
        };
        (self.path, self.known) = (path::join(dir, name), KnownPart::FullPath);
        Ok(self.go_on(RemovalStep::Delete, RemovalNext::SendNow))
    }

    /// Takes what a read shows of the node that stands now.
    fn seen(&mut self, node: &Node, session: i64) -> RemovalNext {
        let is_ours = match (self.known, nonce::split(&node.data).0) {
            _ if node.stat.owner != session => false,
            // Somebody may have written over the data of a node whose czxid we know.
            (KnownPart::Shared(Some(known)), _) => known == node.stat.czxid,
            (_, Some(nonce)) => nonce == self.id,
            // Somebody has written over it before we knew its czxid. If this session owns it, it is
            // ours, unless a later attempt of this session made it. Such an attempt holds the lock
            // by now; if it is only about to, its watch tells it that its node has gone, and it
            // begins anew.
            (_, None) => return self.go_on(RemovalStep::CheckHolds, RemovalNext::CheckHolds),
        };
        if is_ours {
            self.go_on(RemovalStep::Delete, RemovalNext::SendNow)
        } else {
            RemovalNext::Gone
        }
    }
}

/// Whether a create of `prefix`, numbered by the server or not, can have made the node `name`.
fn is_made_by(prefix: &str, name: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|number| {
        number.strip_prefix('-').unwrap_or(number).bytes().all(|digit| digit.is_ascii_digit())
    })
}
