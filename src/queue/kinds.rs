//! Locks of different kinds at one path. They do not wait for each other, so two clients could do
//! the work that the path stands for.
//!
//! Within a process the second kind is refused when it is made. Of another process only its nodes
//! are known. So each lock looks at the nodes at its path, and the kind that came later is refused:
//! nobody's mistake costs the users of a lock their path. A lock that queues sees these nodes in
//! each listing that it makes. An exclusive lock lists its folder in the flight that reads its node. A
//! semaphore lists its folder with the number of its permits, and later where its node has more
//! children than its own.

use super::name;
use super::rule;
use crate::error::Error;
use std::result::Result as StdResult;
use zk_session::unstable::{CallError, Core, Generation, Limit, nonce};
use zk_session::world::HashSet;
use zk_wire::path;

/// A lock that looks for others at its path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looker {
    /// A contender of a queue, and its number; `None` before its node is made.
    Queue(Option<i64>),
    Semaphore,
    Exclusive,
}

/// What a listing of a lock's folder shows beside the lock's own contenders.
pub(crate) struct Beside<'a> {
    /// The folder's full path.
    pub(crate) dir: &'a str,
    /// The names of the children, without the contenders of the looker's own queue.
    pub(crate) others: &'a [&'a str],
    /// The ids and nonces of our nodes that are about to be deleted.
    pub(crate) pending: &'a HashSet<String>,
}

impl Looker {
    /// Lists the folder `dir`, a full path, and gives the error about a lock of another kind there.
    /// The listing travels behind a `sync`, so it shows all that was made before this call.
    pub(crate) fn list_and_look(
        self,
        core: &Core,
        generation: &Generation,
        dir: &str,
        limit: &Limit<'_>,
    ) -> StdResult<Option<Error>, CallError> {
        let listed = match generation.synced_children(dir, limit) {
            Err(CallError::NoNode) => return Ok(None),
            listed => listed?,
        };
        let children = listed.children.names();
        let beside = Beside { dir, others: &children, pending: &listed.pending };
        self.look(core, generation, &beside, limit)
    }

    /// The error about a lock of another kind that was at this path before ours.
    ///
    /// Nodes in the folder itself show the other kind at once. Permits, and the node of an exclusive
    /// lock, cost a request more, which is sent only if the folder has a child of their name.
    pub(crate) fn look(
        self,
        core: &Core,
        generation: &Generation,
        beside: &Beside<'_>,
        limit: &Limit<'_>,
    ) -> StdResult<Option<Error>, CallError> {
        let Beside { dir, others, pending } = *beside;
        let refused = |node: &str, what| Ok(Some(other_kind(core.shown(dir), node, what)));
        let own = if let Looker::Queue(own) = self { own } else { None };
        if let Some(name) = rule::stranger(others, own, &|id| pending.contains(id)) {
            return refused(name.full, name.kind.described());
        }
        if self != Looker::Semaphore && others.contains(&name::PERMITS) {
            let folder = path::join(dir, name::PERMITS);
            match generation.children(&folder, false, limit) {
                Ok(listed) => {
                    // A folder of this name may be anybody's.
                    let is_permit = |child: &str| {
                        name::is_permit(child) && !listed.pending.contains(name::permit_id(child))
                    };
                    let mut children = listed.children.names().into_iter();
                    if let Some(permit) = children.find(|child| is_permit(child)) {
                        return refused(&path::join(name::PERMITS, permit), "a semaphore's permit");
                    }
                }
                Err(CallError::NoNode) => {}
                Err(e) => return Err(e),
            }
        }
        if self != Looker::Exclusive && others.contains(&name::EXCLUSIVE) {
            match generation.read(&path::join(dir, name::EXCLUSIVE), false, limit) {
                // A node that ends with no session is a folder.
                Ok(node) if node.stat.owner != 0 => {
                    let nonce = nonce::split(&node.data).0.or_else(|| nonce::released(&node.data));
                    if !nonce.is_some_and(|nonce| pending.contains(nonce)) {
                        return refused(name::EXCLUSIVE, "the node of an exclusive lock");
                    }
                }
                Ok(_) | Err(CallError::NoNode) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }
}

/// The error of a lock at whose path a lock of another kind stands. `path` is as the user knows it,
/// `node` the name of a node there, and `what` says what that is.
fn other_kind(path: &str, node: &str, what: &str) -> Error {
    let reason = format!(
        "{path:?} belongs to another kind of lock: {node} is {what}; give each kind a path of its own"
    );
    Error::InvalidConfig { what: "path", reason }
}
