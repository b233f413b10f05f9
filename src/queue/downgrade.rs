//! From writing to reading without a gap, as Curator's `InterProcessReadWriteLock` does it since 5.5: an ephemeral read node with
//! the write's own number is made while the write stands, and only then the write goes.

use super::failure::failure;
use super::name::{self, Kind};
use super::rule;
use super::ticket::Ticket;
use super::{Holding, Queue};
use crate::clock::BootTime;
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::session::core::Core;
use crate::session::generation::{CallError, Naming};
use crate::session::lease::Refused;
use crate::session::path;
use crate::session::retry::Retry;

pub(super) fn downgrade(
    queue: &Queue,
    core: &Core,
    write: &Holding,
    data: &[u8],
    limit: &Limit<'_>,
) -> Result<Holding> {
    let written = write.path().rsplit_once('/').and_then(|(_, name)| name::parse(name));
    // Where numbers carry no order, a node made later cannot have the place of one made earlier.
    let sequence = written.map(|name| name.sequence).filter(|sequence| !rule::is_unordered(*sequence));
    let Some(sequence) = sequence else {
        let code = "no more sequence numbers (end writing before you read)".to_owned();
        return Err(Error::Server { op: "lock", path: core.shown(&queue.dir).to_owned(), code });
    };
    let retry = Retry::new();
    loop {
        let lost = |holding: &Holding| match holding.loss() {
            None => Ok(()),
            Some(reason) => Err(Error::Lost { path: core.shown(holding.path()).to_owned(), reason }),
        };
        let generation = core.connected("lock", core.shown(&queue.dir), limit, &retry)?;
        lost(write)?;
        // The hold goes on, and its token with it: the read node's own would be above that of a writer who waits already.
        let czxid = write.czxid();
        let id = name::new_id(queue.layout);
        let prefix = name::prefix(queue.layout, Kind::Read, &id);
        let path = path::join(&queue.dir, &format!("{prefix}{sequence:010}"));
        let made = generation.create_contender(&path, &id, Naming::AsGiven, data, &queue.acl, limit);
        let mut ticket = match made {
            Ok(created) => Ticket::new(generation.clone(), created, id, sequence),
            Err(CallError::ConnectionLoss | CallError::Expired) => {
                core.failed(&retry);
                continue;
            }
            Err(e) => return Err(failure(core, &path, e)),
        };
        ticket.czxid = czxid;
        // The write is what keeps everybody out until the read node stands: it must have outlasted its making. Its watch does not say
        // so, which a change may have used up; a node that is still there does.
        match generation.read(write.path(), false, limit) {
            Ok(_) => {}
            Err(CallError::NoNode) => generation.lease.node_deleted(write.path(), BootTime::now()),
            Err(CallError::ConnectionLoss | CallError::Expired) => {
                core.failed(&retry);
                continue;
            }
            Err(e) => return Err(failure(core, write.path(), e)),
        }
        loop {
            lost(write)?;
            match ticket.grant(Box::new(|| ())) {
                Ok(holding) => {
                    lost(write)?;
                    debug!("{}: held beside the write", ticket.path);
                    return Ok(holding);
                }
                Err(Refused::Stale) => {
                    // Without a connection a proof fails at once: it is waited for here.
                    core.connected("lock", core.shown(&queue.dir), limit, &retry)?;
                    match generation.prove(&queue.dir, limit) {
                        Ok(()) => {}
                        Err(CallError::ConnectionLoss) => core.failed(&retry),
                        Err(e) => return Err(failure(core, &ticket.path, e)),
                    }
                }
                Err(Refused::Over(_)) => lost(write)?,
            }
        }
    }
}
