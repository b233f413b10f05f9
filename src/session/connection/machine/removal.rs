//! The removal of a node of ours. `background` sends the requests of a removal; this file says
//! which request is next, and what an answer means.
//!
//! If the node's name contains an id of ours, no other client makes a node of that name. The node
//! is deleted by its name, and the delete is sent again until it is acknowledged. If the answer to
//! the create was lost, only the beginning of the name is known, so the node must be found in a
//! listing first. If other clients may make a node of the same name, a delete that is sent again on
//! another connection could delete the node of the next holder.
//!
//! In the last two cases a removal takes the same steps, on each connection from the beginning:
//!
//! 1. A write is acknowledged. After it, no request of ours from an earlier connection can still be
//!    done, because ZooKeeper refuses the requests of a session that has moved.
//! 2. A listing or a read shows our node.
//! 3. The node is deleted.
//!
//! One danger remains: within the last step another client may delete a node with a common name and
//! make its own.
//!
//! A node with a common name is ours if our session owns it and its czxid is the one that we know.
//! If we know no czxid, because the answer to the create was lost, the nonce in the node's data
//! decides. If another client has overwritten that data, the session alone decides, as long as no
//! hold of this session stands on the path.

use super::*;
use crate::session::connection::codec::{Node, Operation, Reply};
use crate::session::nonce;
use zk_wire::path;

#[derive(Clone, Debug)]
pub(crate) struct Removal {
    /// The node's path, as far as it is known.
    pub(crate) path: String,
    /// The id that makes the node ours: a part of its name, or the nonce in its data. The pending
    /// deletes contain this id until the node is gone.
    pub(crate) id: String,
    known: KnownPart,
    step: RemovalStep,
    /// An earlier create than this removal's own may have made the node.
    pub(crate) may_exist: bool,
    /// After the node, delete its parent too, if that is empty.
    pub(crate) renew_parent: bool,
    pub(crate) outlives_session: bool,
    /// The callers that wait for the outcome.
    pub(crate) done: Vec<Sender<Outcome>>,
}

/// How much is known of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KnownPart {
    FullPath,
    /// The beginning of the path; the server may have appended a number.
    Prefix,
    /// The path, which other clients use too; and the czxid, if the create was answered or the node
    /// was seen.
    Shared(Option<i64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemovalStep {
    Prove,
    Read,
    /// Only the session shows that the node is ours: check that no hold stands on it.
    CheckHolds,
    Delete,
}

/// What follows from an answer.
pub(super) enum RemovalNext {
    /// Send the next request at once.
    SendNow,
    /// Check whether a hold stands on the path; `may_go` gets the result.
    CheckHolds,
    /// Our node does not exist, and no request can still make it.
    Gone,
    /// The server refused it. Try again, but seldom: somebody must change an ACL first.
    Refused,
    /// Try again a little later.
    SendLater,
}

impl Removal {
    /// The removal of a node with this id in its name.
    pub(crate) fn named(path: String, id: String) -> Self {
        Removal::new(path, id, KnownPart::FullPath)
    }

    /// The removal of the node that a create of `prefix` may make; `prefix` contains the id.
    pub(crate) fn of_create(prefix: &str, id: &str) -> Self {
        Removal::new(prefix.to_owned(), id.to_owned(), KnownPart::Prefix)
    }

    /// The removal of a node that has `nonce` in its data, and this czxid, if that is known.
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
            done: Vec::new(),
        };
        removal.restart();
        removal
    }

    /// Whether no other client makes a node of this name.
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

    /// Begins anew: the connection is gone, and nothing that was seen on it counts.
    pub(super) fn restart(&mut self) {
        self.step = if self.known == KnownPart::FullPath {
            RemovalStep::Delete
        } else {
            RemovalStep::Prove
        };
    }

    /// The text that says which step was refused.
    pub(super) fn refused(&self) -> &'static str {
        match self.known {
            KnownPart::Prefix => "its directory could not be listed, to find and delete our node",
            KnownPart::FullPath | KnownPart::Shared(_) => "our node could not be deleted",
        }
    }

    /// The next request, if it is time for one. The delete of `noop` is a write without an effect.
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

    /// Takes the answer to the last request. `is_written` says that the request is a write and the
    /// leader has acknowledged it; a server without a leader can give the same code, which shows
    /// nothing. `session` is the id of our session.
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

    /// Takes the result of `CheckHolds`: `may` says that no hold stands on the path. `None`: the
    /// removal began anew meanwhile.
    pub(super) fn may_go(&mut self, may: bool) -> Option<RemovalNext> {
        let next = if may { RemovalNext::SendNow } else { RemovalNext::Gone };
        (self.step == RemovalStep::CheckHolds).then(|| self.go_on(RemovalStep::Delete, next))
    }

    fn go_on(&mut self, step: RemovalStep, next: RemovalNext) -> RemovalNext {
        self.step = step;
        next
    }

    /// Takes the listing, which contains the node if the create was done.
    fn listed(&mut self, body: &[u8]) -> Result<RemovalNext, Malformed> {
        let (dir, prefix) = (path::parent(&self.path), path::name(&self.path));
        let Some(name) = codec::children(body)?.into_iter().find(|name| is_made_by(prefix, name))
        else {
            return Ok(RemovalNext::Gone);
        };
        (self.path, self.known) = (path::join(dir, name), KnownPart::FullPath);
        Ok(self.go_on(RemovalStep::Delete, RemovalNext::SendNow))
    }

    /// Takes the node that exists on the path now.
    fn seen(&mut self, node: &Node, session: i64) -> RemovalNext {
        let is_ours = match (self.known, nonce::split(&node.data).0) {
            _ if node.stat.owner != session => false,
            // Another client may have overwritten the data, but the czxid stays.
            (KnownPart::Shared(Some(known)), _) => known == node.stat.czxid,
            (_, Some(nonce)) => nonce == self.id,
            // Another client has overwritten the data before we knew the czxid. If this session
            // owns the node, the node is ours, unless a later attempt of this session made it. If
            // that attempt holds the lock by now, the check finds its hold. If it is only about to
            // hold, its watch reports that the node is gone, and it begins anew.
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
