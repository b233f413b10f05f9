//! From writing to reading without a gap, as Curator's `InterProcessReadWriteLock` does it since
//! 5.5: an ephemeral read node with the write's own number is made while the write stands, and only
//! then the write goes.

use super::call::failure;
use super::name::Kind;
use super::stand_in::StandIn;
use super::{Holding, Queue};
use crate::error::Result;
use crate::limit::Limit;
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
        write: &Holding,
        data: &[u8],
        limit: &Limit<'_>,
    ) -> Result<Holding> {
        let (kind, mode) = (Kind::Read, CreateMode::Ephemeral);
        // The write's watch does not say that it still stands: a change may have used that up. A
        // node that is there does.
        let stands = Operation::GetData { path: write.path(), watch: false };
        let stand_in = StandIn { op: OP, held: write, kind, mode, data, stands };
        let mut ticket = self.stand_in(core, &stand_in, limit, &mut None)?;
        // The hold goes on, and its token with it: the read node's own would be above that of a
        // writer who waits already.
        ticket.czxid = write.hold().czxid();
        let retry = Retry::new();
        loop {
            let refused = match ticket.grant(Box::new(|| ())) {
                Ok(holding) => {
                    write.check(core)?;
                    debug!("{}: held beside the write", ticket.path);
                    return Ok(holding);
                }
                Err(refused) => refused,
            };
            write.check(core)?;
            if refused == Refused::Stale {
                // Without a connection a proof fails at once: it is waited for here.
                core.connected(OP, core.shown(&self.dir), limit, &retry)?;
                match ticket.generation.prove(&self.dir, limit) {
                    Ok(()) => {}
                    Err(CallError::ConnectionLoss) => core.failed(&retry),
                    Err(e) => return Err(failure(OP, core, &ticket.path, e)),
                }
            }
        }
    }
}
