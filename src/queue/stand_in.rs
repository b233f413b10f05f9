//! A stand-in: a new node with the number of a held node, made while that node stands. A contender
//! that waits for the held node then waits for the new one too. A downgrade and a persistent lock
//! are made so.

use super::call::failure;
use super::contender_node::ContenderNode;
use super::name::{self, Kind};
use super::rule;
use super::{HeldNode, Queue};
use crate::clock::BootTime;
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::session::core::Core;
use crate::session::generation::{CallError, CreateMode, Operation, create_contender};
use crate::session::retry::Retry;
use zk_wire::path;

pub(crate) struct StandIn<'a> {
    pub(crate) op: &'static str,
    pub(crate) held: &'a HeldNode,
    /// The kind of the new node.
    pub(crate) kind: Kind,
    pub(crate) mode: CreateMode,
    pub(crate) data: &'a [u8],
    /// The request after the create that shows that the held node still stands. If the held node
    /// was gone before the new one was made, another contender may have got the lock in between.
    pub(crate) stands: Operation<'a>,
}

impl Queue {
    /// Makes the new node. Its drop deletes it, unless it is granted or kept. `tried` is set to the
    /// path of the last node that may have been made.
    pub(crate) fn stand_in(
        &self,
        core: &Core,
        make: &StandIn<'_>,
        limit: &Limit<'_>,
        tried: &mut Option<String>,
    ) -> Result<ContenderNode> {
        let StandIn { op, held, kind, mode, data, stands } = *make;
        // If numbers carry no order, a node that is made later cannot take the place of an earlier
        // one.
        let own = name::parse(path::name(held.path())).map(|name| name.sequence);
        let Some(sequence) = own.filter(|sequence| !rule::is_unordered(*sequence)) else {
            let code =
                "no more sequence numbers (no other node can have this one's place)".to_owned();
            return Err(Error::Server { op, path: core.shown(&self.dir).to_owned(), code });
        };
        let retry = Retry::new();
        let again = |e: CallError, path: &str| match e {
            // When the caller's time is over, nothing more is sent.
            CallError::ConnectionLoss | CallError::Expired if !limit.is_past() => {
                core.failed(&retry);
                Ok(())
            }
            e => Err(failure(op, core, path, e)),
        };
        loop {
            let generation = core.connected(op, core.shown(&self.dir), limit, &retry)?;
            held.check(core)?;
            let id = name::new_id(self.layout);
            let prefix = name::prefix(self.layout, kind, &id);
            let path = path::join(&self.dir, &format!("{prefix}{sequence:010}"));
            *tried = Some(path.clone());
            let create = create_contender(&path, &id, mode, data, &self.acl);
            let flight = generation.flight(&[create], limit);
            let created = match flight.and_then(|mut answers| answers.take(0)?.created()) {
                Ok(created) => created,
                Err(e) => {
                    again(e, &path)?;
                    continue;
                }
            };
            let mut contender = ContenderNode::new(generation.clone(), created, id, sequence);
            contender.outlives_session = mode == CreateMode::Persistent;
            match generation.call(stands, limit) {
                Ok(_) => {}
                Err(CallError::NoNode) => {
                    generation.lease.node_deleted(held.path(), BootTime::now())
                }
                Err(e) => {
                    again(e, held.path())?;
                    continue;
                }
            }
            held.check(core)?;
            return Ok(contender);
        }
    }
}
