//! From writing to reading without a gap, as Curator's `InterProcessReadWriteLock` does it since
//! 5.5: an ephemeral read node with the write's own number is made while the write stands, and only
//! then the write goes.

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
    /// A read node in the place of a write that is held, for who holds it: it has the write's
    /// number, so that whoever waits for the write waits for it too.
    pub(crate) fn downgrade(
        &self,
        core: &Core,
        write: &HeldNode,
        data: &[u8],
        limit: &Limit<'_>,
    ) -> Result<HeldNode> {
        let (kind, mode) = (Kind::Read, CreateMode::Ephemeral);
        // The write's watch does not say that it still stands: a change may have used that up. A
        // node that is there does.
        let stands = Operation::GetData { path: write.path(), watch: false };
        let stand_in = StandIn { op: OP, held: write, kind, mode, data, stands };
        let mut contender = self.stand_in(core, &stand_in, limit, &mut None)?;
        // The hold goes on, and its token with it: the read node's own would be above that of a
        // writer who waits already.
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
                // Without a connection a proof fails at once: it is waited for here.
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
