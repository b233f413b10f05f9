//! A hold that outlives its session: a persistent node in the place of the ephemeral one, and its
//! end by name.
//!
//! The persistent node bears the number of the ephemeral one and is made while that stands, so that
//! whoever waits for the one waits for the other too. Then the ephemeral node is written to, and
//! only then it goes: a waiter that would take its end for a grant, because it was the only one
//! ahead in its listing, sees the change first, or the node's version, and lists again.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::queue::call::query;
use crate::queue::name::{self, Kind};
use crate::queue::stand_in::StandIn;
use crate::queue::{HeldNode, Queue};
use crate::session::core::Core;
use crate::session::generation::{CallError, CreateMode, Operation};
use zk_wire::path;

impl Queue {
    /// Makes a persistent node beside the hold's own, which may go then. Gives its full path.
    pub(crate) fn persist(
        &self,
        core: &Core,
        held: &HeldNode,
        data: &[u8],
        limit: &Limit<'_>,
    ) -> Result<String> {
        let (kind, mode) = (Kind::Lock, CreateMode::Persistent);
        // That the ephemeral node can be written to shows that it kept everybody out until the
        // other stood.
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

    /// Deletes a persistent contender. False: there is no such node.
    pub(crate) fn release_persistent(
        &self,
        core: &Core,
        name: &str,
        operation_timeout: Duration,
    ) -> Result<bool> {
        let refused = |why: &str| {
            let reason = format!("{name:?} {why}");
            Err(Error::InvalidConfig { what: "persistent lock", reason })
        };
        // With an id in its name no other node can ever bear it: it can be deleted again blindly.
        if name::parse(name).is_none_or(|parsed| parsed.id.is_empty()) || name.contains('/') {
            return refused("is not the name of a contender's node with an id in it");
        }
        let (path, limit) = (path::join(self.dir(), name), Limit::after(operation_timeout));
        // An earlier delete whose answer was lost.
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
