//! A persistent lock: a hold that outlives its session, by a persistent node in the place of the
//! ephemeral one, and the end of such a lock by the node's name.
//!
//! The persistent node has the number of the ephemeral one and is made while that stands, so that a
//! contender which waits for one waits for the other too. Then the ephemeral node is written to,
//! and only then deleted. A waiter whose listing showed only the ephemeral node ahead would take
//! its end for a grant. Because of the write it gets a change event first, or reads a version above
//! 0, and lists the queue again.

use std::fmt;

use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::queue::call::query;
use crate::queue::name::{self, Kind};
use crate::queue::stand_in::StandIn;
use crate::queue::{HeldNode, Queue};
use crate::session::core::Core;
use crate::session::generation::{CallError, CreateMode, Operation};
use zk_wire::path;

/// A lock whose node belongs to no session: the lock stays held until somebody releases it by the
/// node's name. [`ZkMutexGuard::persist`](crate::ZkMutexGuard::persist) makes it, and explains it.
/// If you drop this value, the lock stays held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use = "nobody but you knows that this lock must be released, and by which name"]
pub struct PersistentLock {
    path: String,
}

impl PersistentLock {
    /// `path`: the path of the node, below the session's chroot.
    pub(super) fn new(path: String) -> Self {
        PersistentLock { path }
    }

    /// The path of its node, below the session's chroot.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The name of its node, below the lock's path.
    /// [`release_persistent`](crate::ZkMutex::release_persistent) takes it. Store it where the
    /// process that will release the lock finds it.
    pub fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }
}

impl fmt::Display for PersistentLock {
    /// The path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

impl Queue {
    /// Makes a persistent node beside the hold's own node, which may be deleted then. Gives the
    /// full path.
    pub(crate) fn persist(
        &self,
        core: &Core,
        held: &HeldNode,
        data: &[u8],
        limit: &Limit<'_>,
    ) -> Result<String> {
        let (kind, mode) = (Kind::Lock, CreateMode::Persistent);
        // A write to the ephemeral node that succeeds shows that the node is still there. So it
        // kept everybody out until the persistent node was made.
        let stands = Operation::SetData { path: held.path(), data, version: None };
        let stand_in = StandIn { op: "persist", held, kind, mode, data, stands };
        let mut tried = None;
        let outcome = self.stand_in(core, &stand_in, limit, &mut tried);
        if let (Err(e), Some(tried)) = (&outcome, tried) {
            warn!(
                "{tried}: not kept, {e}; should its session be gone too, it may stay: then release it by name"
            );
        }
        let path = outcome?.keep();
        info!("{path}: held until it is released by name");
        Ok(path)
    }

    /// Deletes the node of a persistent lock. False: there is no such node.
    pub(crate) fn release_persistent(&self, core: &Core, name: &str) -> Result<bool> {
        let refused = |why: &str| {
            let reason = format!("{name:?} {why}");
            Err(Error::InvalidConfig { what: "persistent lock", reason })
        };
        // Because of the id no other node ever has this name. So the delete can be repeated after a
        // lost answer.
        if name::parse(name).is_none_or(|parsed| parsed.id.is_empty()) || name.contains('/') {
            return refused("is not the name of a contender's node with an id in it");
        }
        let (path, limit) = (path::join(self.dir(), name), Limit::after(core.operation_timeout()));
        // An earlier delete may have succeeded although its answer was lost.
        let mut may_be_done = false;
        let is_deleted = query("release_persistent", core, &path, &limit, |generation, _| {
            match generation.read(&path, false, &limit) {
                Ok(node) if node.stat.owner != 0 => return Ok(None),
                Ok(_) => {}
                Err(CallError::NoNode) => return Ok(Some(may_be_done)),
                Err(e) => return Err(e),
            }
            match generation.call(Operation::Delete { path: &path }, &limit) {
                Ok(_) => Ok(Some(true)),
                Err(CallError::NoNode) => Ok(Some(may_be_done)),
                Err(e) => {
                    may_be_done |= matches!(e, CallError::ConnectionLoss | CallError::Expired);
                    Err(e)
                }
            }
        })?;
        is_deleted.map_or_else(
            || refused("is ephemeral: it goes when its owner lets go, or with its session"),
            Ok,
        )
    }
}
