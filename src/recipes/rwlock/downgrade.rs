//! A downgrade: from writing to reading without a gap, as Curator's `InterProcessReadWriteLock`
//! does it since 5.5. An ephemeral read node with the write's number is made while the write node
//! stands, and only then the write node is deleted.

use crate::error::Result;
use crate::limit::Limit;
use crate::queue::call::failure;
use crate::queue::name::Kind;
use crate::queue::stand_in::StandIn;
use crate::queue::{HeldNode, Queue};
use crate::session::core::Core;
use crate::session::generation::{CallError, CreateMode, Operation};
use crate::session::lease::Refused;
use crate::session::retry::Retry;

const OP: &str = "lock";

impl Queue {
    /// Makes a read node in the place of `write`, for the thread that holds that. A contender that
    /// waits for the write waits for the read too, because both have one number.
    pub(crate) fn downgrade(
        &self,
        core: &Core,
        write: &HeldNode,
        data: &[u8],
        limit: &Limit<'_>,
    ) -> Result<HeldNode> {
        let (kind, mode) = (Kind::Read, CreateMode::Ephemeral);
        // The read of the write node must succeed. A silent watch would not do, because a change of
        // the node may have used it up.
        let stands = Operation::GetData { path: write.path(), watch: false };
        let stand_in = StandIn { op: OP, held: write, kind, mode, data, stands };
        let mut contender = self.stand_in(core, &stand_in, limit, &mut None)?;
        // The read continues the write's hold, so it has the write's fencing token. The read node's
        // own czxid is above that of writers which wait already.
        contender.czxid = write.leased().czxid();
        let retry = Retry::new();
        loop {
            let refused = match contender.grant(Box::new(|| ())) {
                Ok(held_node) => {
                    write.check(core)?;
                    debug!("{}: held beside the write", contender.path);
                    return Ok(held_node);
                }
                Err(refused) => refused,
            };
            write.check(core)?;
            if refused == Refused::Stale {
                // Without a connection a proof fails at once, so the connection is waited for here.
                core.connected(OP, core.shown(self.dir()), limit, &retry)?;
                match contender.generation.prove(self.dir(), limit) {
                    Ok(()) => {}
                    Err(CallError::ConnectionLoss) => core.failed(&retry),
                    Err(e) => return Err(failure(OP, core, &contender.path, e)),
                }
            }
        }
    }
}
