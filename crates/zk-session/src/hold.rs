//! Ephemeral nodes under the session's lease, for programs that must know whether their node is
//! still there.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::acl::Acl;
use crate::clock::BootTime;
use crate::core::Core;
use crate::error::{Cause, Error, LossReason, Result};
use crate::generation::{CallError, CreateMode, Generation, Operation, Removal, Reply};
use crate::lease::node::{LeasedNode, Listener, NodeWatch};
use crate::lease::{LostSignal, Refused};
use crate::limit::{Ended, Limit};
use crate::retry::Retry;
use crate::session::Session;
use crate::watch::full_path;
use crate::world::{Instant, new_uuid};
use zk_wire::path;

const HOLD: &str = "hold";
const RELEASE: &str = "release";

/// An ephemeral node of this process, and what is known of it; [`Session::hold`] makes it.
///
/// The server deletes the node when the session ends. A process that has lost its connection cannot
/// see that, so an ephemeral node alone says nothing to its owner. This value does:
/// [`is_held`](Self::is_held) is true only as long as no server can have expired the session (its
/// *lease* lasts), and the node was not seen deleted. The lease is renewed in the background while
/// this value exists, which costs some requests in each session timeout.
///
/// The name of the node ends with a fresh id, so no other client makes a node of that name, and if
/// the answer to the create is lost, the session finds and deletes the node.
///
/// It does not keep the [`Session`] open: if the session is closed, the node goes, and this value
/// counts as lost. A node that is lost does not come back; hold another one then.
///
/// ```no_run
/// # fn serve_one_request() {}
/// # fn main() -> zk_session::Result<()> {
/// use zk_session::{Acl, Session};
///
/// let session = Session::connect("127.0.0.1:2181")?;
/// loop {
///     let registered = session.hold("/services/web-", b"10.0.0.7:80", &Acl::Open)?;
///     while registered.is_held() {
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

impl Session {
    /// Makes an ephemeral node and holds it under the session's lease. The node's path is `prefix`
    /// with 32 hexadecimal digits behind it: `/services/web-` gives
    /// `/services/web-0f...e1`. Nodes above it that do not exist are made, with the same ACL (as
    /// containers, where the server has them).
    ///
    /// The node exists, and is held, when this returns. In an outage this waits as long as the
    /// [`RetryPolicy`](crate::RetryPolicy) allows. If it fails, no node stays behind: if one was
    /// made, or may still be made by a request that is on its way, the session deletes it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`]; [`Error::NoAuth`] if the ACL of a node above does not allow it;
    /// [`Error::Unavailable`] if no server has answered in time; [`Error::Server`] for other
    /// refusals, such as an invalid ACL, a quota, or an ephemeral node above; [`Error::Closed`];
    /// [`Error::Forked`] in a forked child.
    pub fn hold(&self, prefix: &str, data: &[u8], acl: &Acl) -> Result<Ephemeral> {
        hold(self.core(), prefix, data, acl, &Limit::NONE)
    }
}

/// As [`Session::hold`], within `limit`.
pub(crate) fn hold(
    core: &Core,
    prefix: &str,
    data: &[u8],
    acl: &Acl,
    limit: &Limit<'_>,
) -> Result<Ephemeral> {
    core.process().check(HOLD, prefix)?;
    let retry = Retry::since(Instant::now());
    let mut has_made_parents = false;
    loop {
        // With an id of its own for each try, a node of an earlier try is never taken for this one.
        let id = new_uuid().simple().to_string();
        let shown = [prefix, &id].concat();
        let full = full_path(core.chroot(), &shown).map_err(|e| match e {
            Error::InvalidPath { rule, .. } => Error::InvalidPath { path: prefix.into(), rule },
            e => e,
        })?;
        let generation = core.connected(HOLD, prefix, limit, &retry)?;
        let node = NewNode { full, id, data, acl };
        match node.make(&generation, limit) {
            Ok((leased, removal)) => {
                let lost = leased.signal();
                let is_released = false;
                return Ok(Ephemeral {
                    path: shown,
                    generation,
                    leased,
                    removal,
                    lost,
                    is_released,
                });
            }
            Err(CallError::NoNode) => {
                let parent = path::parent(&node.full);
                if let Err(e) = generation.make_parents(parent, acl, limit) {
                    give_up(HOLD, core.shown(parent), e, limit)?;
                    core.failed(&retry);
                } else if std::mem::replace(&mut has_made_parents, true) {
                    core.failed(&retry); // somebody deletes them over and over
                }
            }
            Err(e) => {
                give_up(HOLD, prefix, e, limit)?;
                core.failed(&retry);
            }
        }
    }
}

/// A node that is to be held.
struct NewNode<'a> {
    full: String,
    id: String,
    data: &'a [u8],
    acl: &'a Acl,
}

impl NewNode<'_> {
    /// Makes the node and puts it under the lease. After an error the session deletes the node, if
    /// it was made or may still be made.
    fn make(
        &self,
        generation: &Arc<Generation>,
        limit: &Limit<'_>,
    ) -> Result<(Arc<LeasedNode>, Removal), CallError> {
        let NewNode { full: path, id, data, acl } = self;
        let create = Operation::Create { path, data, acl, mode: CreateMode::Ephemeral };
        let lost = Removal::of_create(path, id);
        let answer = generation.flight(&[(create, Some(lost))], limit)?.take(0);
        let (_, czxid) = answer.and_then(Reply::created)?;
        let removal = Removal::named(path.clone(), id.clone());
        // The event loop sets a watch on the node soon. If the node is deleted before, the read
        // that sets the watch shows that.
        let listener = Arc::new(LossLog(path.clone()));
        let leased = LeasedNode::new(path.clone(), czxid, NodeWatch::Unset, listener);
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

/// An error, if this failure ends a call; otherwise the call tries again.
fn give_up(op: &'static str, path: &str, e: CallError, limit: &Limit<'_>) -> Result<()> {
    let path = path.to_owned();
    Err(match e {
        CallError::ConnectionLoss | CallError::Expired if !limit.is_past() => return Ok(()),
        CallError::ConnectionLoss | CallError::Expired => {
            Error::Unavailable { op, path, cause: Cause::ConnectionLost }
        }
        CallError::Deadline => Error::Unavailable { op, path, cause: Cause::Deadline },
        CallError::Cancelled => Error::Cancelled { path },
        CallError::NoAuth => Error::NoAuth { op, path },
        CallError::AuthFailed => Error::Auth { op, path },
        CallError::Other(code) => Error::Server { op, path, code },
        e => Error::Server { op, path, code: format!("{e:?}") },
    })
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
        self.let_go();
        let deleted = self.generation.remove_and_tell(self.removal.clone());
        let limit = Limit::after(self.generation.operation_timeout());
        let e = match limit.recv(&deleted) {
            Ended::Got(Ok(())) => return Ok(()),
            Ended::Got(Err(code)) => CallError::of_code(code),
            // A server may have the node for a while, even if it has told us of the session's end.
            Ended::Deadline | Ended::Disconnected | Ended::Cancelled => CallError::ConnectionLoss,
        };
        let no_retry = Limit::after(Duration::ZERO);
        give_up(RELEASE, &self.path, e, &no_retry)
    }

    /// Takes the node out of the lease before its delete is sent: the event of the delete would
    /// count as a loss.
    fn let_go(&mut self) {
        self.is_released = true;
        self.leased.part(&self.lost);
        self.generation.lease.release(&self.leased);
    }
}

impl Drop for Ephemeral {
    fn drop(&mut self) {
        if !self.is_released && !self.generation.lease.process().is_forked() {
            self.let_go();
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
