//! A downgrade: from writing to reading without a gap, as Curator's `InterProcessReadWriteLock`
//! does it since 5.5. An ephemeral read node with the write's number is made while the write node
//! stands, and only then the write node is deleted. A contender that waits for the write waits for
//! the read too, because both have one number.

use crate::error::{Error, NUMBERS_USED_UP, Result};
use crate::queue::ContenderNode;
use crate::queue::name::{self, Kind};
use crate::queue::request::failure;
use crate::queue::rule;
use crate::queue::{Callbacks, HeldNode, Queue, Request};
use zk_session::unstable::{BootTime, CallError, CreateMode, Refused, create_contender};
use zk_wire::path;

impl Queue {
    /// Makes a held read node in the place of `write`, for the thread that holds that.
    pub(crate) fn downgrade(&self, request: &Request<'_>, write: &HeldNode) -> Result<HeldNode> {
        let core = request.core();
        let mut contender = self.read_node_beside(request, write)?;
        request.progress();
        // The read continues the write's hold, so it has the write's fencing token. The read node's
        // own czxid is above that of writers which wait already.
        contender.czxid = write.leased().czxid();
        loop {
            let refused = match contender.grant(Callbacks::NONE.on_loss) {
                Ok(held_node) => {
                    held_node.continues(write);
                    write.check(core)?;
                    debug!("{}: held beside the write", contender.path);
                    return Ok(held_node);
                }
                Err(refused) => refused,
            };
            write.check(core)?;
            if refused == Refused::Stale {
                // Without a connection a proof fails at once, so the connection is waited for here.
                request.session()?;
                match contender.generation.prove(&request.limit()) {
                    Ok(()) => {}
                    Err(CallError::ConnectionLoss) => request.failed(),
                    Err(e) => return Err(failure(request.call.op, core, &contender.path, e)),
                }
            }
        }
    }

    /// Makes a read node with the number of `write`, and makes sure that `write` still stood then.
    fn read_node_beside(&self, request: &Request<'_>, write: &HeldNode) -> Result<ContenderNode> {
        let (op, core, limit) = (request.call.op, request.core(), &request.limit());
        // If numbers carry no order, a node that is made later cannot take the place of an earlier
        // one.
        let own = name::parse(path::name(write.path())).map(|name| name.sequence);
        let Some(sequence) = own.filter(|sequence| !rule::is_unordered(*sequence)) else {
            let path = core.shown(self.dir()).to_owned();
            return Err(Error::Server { op, path, code: NUMBERS_USED_UP.to_owned() });
        };
        let again = |e: CallError, path: &str| match e {
            // When the caller's time is over, nothing more is sent.
            CallError::ConnectionLoss | CallError::Expired if !limit.is_past() => {
                request.failed();
                Ok(())
            }
            e => Err(failure(op, core, path, e)),
        };
        loop {
            let generation = request.session()?;
            write.check(core)?;
            let id = name::new_id(self.layout());
            let prefix = name::prefix(self.layout(), Kind::Read, &id);
            let path = path::join(self.dir(), &format!("{prefix}{sequence:010}"));
            let data = &request.settings.data;
            let create = create_contender(&path, &id, CreateMode::Ephemeral, data, self.acl());
            let flight = generation.flight(&[create], limit);
            let created = match flight.and_then(|mut answers| answers.take(0)?.created()) {
                Ok(created) => created,
                Err(e) => {
                    again(e, &path)?;
                    continue;
                }
            };
            let contender = ContenderNode::new(generation.clone(), created, id);
            // If the write node was gone before the read node was made, another contender may have
            // got the lock in between. So the read of the write node must succeed. A silent watch
            // would not do, because a change of the node may have used it up.
            match generation.read(write.path(), false, limit) {
                Ok(_) => {}
                Err(CallError::NoNode) => {
                    generation.lease.node_deleted(write.path(), BootTime::now())
                }
                Err(e) => {
                    again(e, write.path())?;
                    continue;
                }
            }
            write.check(core)?;
            return Ok(contender);
        }
    }
}
