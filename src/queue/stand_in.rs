//! Another node in the place of a held one: made with the number of the held node while that
//! stands, so that whoever waits for the one waits for the other too.

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
    /// What the new node is.
    pub(crate) kind: Kind,
    pub(crate) mode: CreateMode,
    pub(crate) data: &'a [u8],
    /// Shows that the held node still stands: it must have outlasted the making of the new one.
    pub(crate) stands: Operation<'a>,
}

impl Queue {
    /// Makes the new node. Until it is granted or kept, its drop deletes it. `tried` is the path of
    /// the last one that may have been made.
    pub(crate) fn stand_in(
        &self,
        core: &Core,
        make: &StandIn<'_>,
        limit: &Limit<'_>,
        tried: &mut Option<String>,
    ) -> Result<ContenderNode> {
        let StandIn { op, held, kind, mode, data, stands } = *make;
        // Where numbers carry no order, a node made later cannot have the place of one made
        // earlier.
        let own = name::parse(path::name(held.path())).map(|name| name.sequence);
        let Some(sequence) = own.filter(|sequence| !rule::is_unordered(*sequence)) else {
            let code =
                "no more sequence numbers (no other node can have this one's place)".to_owned();
            return Err(Error::Server { op, path: core.shown(&self.dir).to_owned(), code });
        };
        let retry = Retry::new();
        let again = |e: CallError, path: &str| match e {
            // After the end of the caller's time nothing more is sent.
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
