//! Ephemeral nodes under the session's lease, for programs that must know whether their node is
//! still there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acl::Acl;
use crate::clock::BootTime;
use crate::error::{Error, LossReason, RELEASE, Result};
use crate::generation::{CallError, CreateMode, Generation, Operation, Removal, Reply};
use crate::lease::node::{LeasedNode, Listener, NodeWatch};
use crate::lease::{LostSignal, Refused};
use crate::limit::{Ended, Limit};
use crate::machine::codec::error;
use crate::path::full_path;
use crate::requests::Requests;
use crate::requests::wait::check_length;
use crate::retry::Retry;
use crate::world::{Instant, new_uuid};
use zk_wire::path;

const HOLD: &str = "hold";

/// An ephemeral node of this process, and what is known of it; [`Requests::hold`] makes it.
///
/// The server deletes the node when the session ends. A process that has lost its connection cannot
/// see that, so an ephemeral node alone says nothing to its owner. This value does:
/// [`is_held`](Self::is_held) is true only as long as no server can have expired the session (its
/// *lease* lasts), and the node was not seen deleted. The lease is renewed in the background while
/// this value exists, which costs some requests in each session timeout.
///
/// # The lease
///
/// When the connection breaks, the lease has at least a quarter of the session timeout left (more,
/// if the tick of the servers is stated, see
/// [`Config::server_tick`](crate::Config::server_tick)). So a node outlives shorter outages. To
/// renew the lease, the session sends a `sync` every eighth of the timeout and, in place of each
/// fifth, a delete of a node that never exists (its name begins with `zk-mutex-no-op-`).
///
/// The end of the lease is not the end of the session: the server may have expired it, or not. So
/// the node may still be there after [`LossReason::LeaseExpired`], until this value is dropped. A
/// program that registers itself should hold the next node first, and drop this one then.
///
/// # Names
///
/// The name of the node ends with a fresh id, so no other client makes a node of that name, and if
/// the answer to the create is lost, the session finds and deletes the node. This takes some time,
/// and [`Requests::hold`] makes another node meanwhile: for a moment others may see two nodes of
/// one owner. So a recipe must not count the names. It can count the nodes whose owners have
/// written to them after `hold` has returned (their [`Stat::version`](crate::Stat::version) is not
/// 0).
///
/// # The end
///
/// It does not keep the session open: if the session is closed, the node goes, and this value
/// counts as lost. What was lost stays lost; hold another node then.
///
/// ```no_run
/// # fn serve_one_request() {}
/// # fn main() -> zk_session::Result<()> {
/// use zk_session::{Acl, Session};
///
/// let session = Session::connect("127.0.0.1:2181")?;
/// let mut registered = None;
/// loop {
///     match session.requests().hold("/services/web-", b"10.0.0.7:80", &Acl::Open) {
///         // The node before, if there is one, is dropped now, behind the new one.
///         Ok(held) => drop(registered.replace(held)),
///         Err(e) if e.is_transient() => continue, // it has waited for a server already
///         Err(e) => return Err(e),
///     }
///     while registered.as_ref().is_some_and(|node| node.is_held()) {
///         serve_one_request();
///     }
/// }
/// # }
/// ```
#[must_use = "the node is deleted when this value is dropped"]
pub struct Ephemeral {
    /// The path as the program knows it.
    path: String,
    generation: Arc<Generation>,
    leased: Arc<LeasedNode>,
    removal: Removal,
    lost: LostSignal,
    is_released: bool,
}

impl Requests {
    /// Makes an ephemeral node and holds it under the session's lease. The node's path is `prefix`
    /// with 32 hexadecimal digits behind it: `/services/web-` gives `/services/web-0f...e1`. Nodes
    /// above it that do not exist are made, with the same ACL (as containers, where the server has
    /// them).
    ///
    /// The node exists, and is held, when this returns. Other than [`create`](Self::create), this
    /// tries again, with another id, when the answer to its create was lost. If it fails, no node
    /// stays behind: if one was made, or may still be made by a request that is on its way, the
    /// session deletes it.
    ///
    /// # Errors
    ///
    /// [`Error::NoChildrenForEphemerals`]; [`Error::Server`] with the code `InvalidACL`; and those
    /// of all calls ([`Requests`]).
    pub fn hold(&self, prefix: &str, data: &[u8], acl: &Acl) -> Result<Ephemeral> {
        let (core, begun) = (self.core(), Instant::now());
        core.process().check(HOLD, prefix)?;
        let (limit, retry) = (self.limit(begun), Retry::since(begun));
        loop {
            // With an id of its own for each try, a node of an earlier try is never taken for this
            // one.
            let id = new_uuid().simple().to_string();
            let shown = [prefix, &id].concat();
            let full = full_path(core.chroot(), &shown).map_err(|e| match e {
                Error::InvalidPath { rule, .. } => Error::InvalidPath { path: prefix.into(), rule },
                e => e,
            })?;
            let node = NewNode { full: &full, id, data, acl };
            check_length(&node.create())?;
            let generation = core.connected(HOLD, prefix, &limit, &retry)?;
            let e = match node.make(&generation, &limit) {
                Ok((leased, removal)) => {
                    let (lost, is_released) = (leased.signal(), false);
                    let path = shown;
                    return Ok(Ephemeral { path, generation, leased, removal, lost, is_released });
                }
                Err(e) => e,
            };
            match e {
                CallError::ConnectionLoss | CallError::Expired if !limit.is_past() => {
                    core.failed(&retry);
                }
                e => return Err(error(HOLD, prefix.to_owned(), e)),
            }
        }
    }
}

/// A node that is to be held.
struct NewNode<'a> {
    full: &'a str,
    id: String,
    data: &'a [u8],
    acl: &'a Acl,
}

impl NewNode<'_> {
    fn create(&self) -> Operation<'_> {
        let &NewNode { full: path, data, acl, .. } = self;
        Operation::Create { path, data, acl, mode: CreateMode::Ephemeral }
    }

    /// Makes the node and puts it under the lease. After an error the session deletes the node, if
    /// it was made or may still be made.
    fn make(
        &self,
        generation: &Arc<Generation>,
        limit: &Limit<'_>,
    ) -> Result<(Arc<LeasedNode>, Removal), CallError> {
        let &NewNode { full: path, ref id, .. } = self;
        let lost = Removal::of_create(path, id);
        let create = [(self.create(), Some(lost))];
        let flight = generation.flight_in(path::parent(path), None, self.acl, &create, limit);
        let answer = flight?.take(0);
        let (_, czxid) = answer.and_then(Reply::created)?;
        let removal = Removal::named(path.to_owned(), id.clone());
        // The event loop sets a watch on the node soon. If the node is deleted before, the read
        // that sets the watch shows that.
        let listener = Arc::new(LossLog(path.to_owned()));
        // The czxid tells the node from another one that somebody makes by its name.
        let leased = LeasedNode::fixed(path.to_owned(), czxid, NodeWatch::Unset, listener);
        loop {
            let renewed = match generation.grant(&leased) {
                Ok(()) => return Ok((leased, removal)),
                // Nothing was held, so the lease was not renewed lately.
                Err(Refused::Stale) => generation.prove(limit),
                Err(Refused::Over(_)) => Err(CallError::Expired),
            };
            if let Err(e) = renewed {
                generation.remove(removal);
                return Err(e);
            }
        }
    }
}

/// Notes in the log that the node is lost.
struct LossLog(String);

impl Listener for LossLog {
    fn lost(&self, reason: LossReason) {
        queued!(Warn, "{}: this ephemeral node is lost, {reason}", self.0);
    }

    fn read(&self, _: &[u8]) {}

    fn look(&self, _: BootTime) -> BootTime {
        BootTime::END
    }
}

impl Ephemeral {
    /// The path of the node, below the chroot.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the node is still held at this moment: no server can have expired the session, and
    /// the node was not seen deleted. Once false, it stays false. This takes no lock and sends
    /// nothing. In a forked child it is false.
    pub fn is_held(&self) -> bool {
        self.generation.lease.is_held(&self.leased, BootTime::now())
    }

    /// A signal that becomes ready when the node is lost, at the latest when the lease ends, and
    /// not when it is released.
    pub fn lost(&self) -> LostSignal {
        self.lost.clone()
    }

    /// For how long no server can expire the session, by the answers that have come so far; zero if
    /// the node is lost. The node can be deleted by other clients at any time.
    pub fn remaining(&self) -> Duration {
        let (lease, now) = (&self.generation.lease, BootTime::now());
        if lease.is_held(&self.leased, now) { lease.remaining(now) } else { Duration::ZERO }
    }

    /// Deletes the node, and waits for the answer, for a sixth of the session timeout at most.
    /// `Ok`: the node does not exist any more. (That is so as well if somebody has deleted it.)
    ///
    /// A drop deletes the node too, in the background.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if no answer came in time. As long as the session lives, it goes on
    /// to delete the node; otherwise the node goes with the session. [`Error::NoAuth`] if an ACL
    /// does not allow the delete. [`Error::Forked`] in a forked child.
    pub fn release(mut self) -> Result<()> {
        self.generation.lease.process().check(RELEASE, &self.path)?;
        if self.let_go() {
            return Ok(());
        }
        let deleted = self.generation.remove_and_tell(self.removal.clone());
        let limit = Limit::after(self.generation.operation_timeout());
        let e = match limit.recv(&deleted) {
            Ended::Got(Ok(())) => return Ok(()),
            Ended::Got(Err(code)) => CallError::of_removal(code),
            // A server may have the node for a while, even if it has told us of the session's end.
            Ended::Deadline | Ended::Disconnected | Ended::Cancelled => CallError::ConnectionLoss,
        };
        Err(error(RELEASE, self.path.clone(), e))
    }

    /// Takes the node out of the lease before its delete is sent: the event of the delete would
    /// count as a loss. True: the node is gone already, and nothing must be deleted. Somebody may
    /// have made another node by its name.
    fn let_go(&mut self) -> bool {
        self.is_released = true;
        self.leased.part(&self.lost);
        self.generation.lease.release(&self.leased);
        self.leased.loss() == Some(LossReason::NodeDeleted)
    }
}

impl Drop for Ephemeral {
    fn drop(&mut self) {
        let is_ours = !self.is_released && !self.generation.lease.process().is_forked();
        if is_ours && !self.let_go() {
            self.generation.remove(self.removal.clone());
        }
    }
}

impl fmt::Debug for Ephemeral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ephemeral")
            .field("path", &self.path)
            .field("is_held", &self.is_held())
            .finish_non_exhaustive()
    }
}
