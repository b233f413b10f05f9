//! A hold that outlives its session: a persistent node in the place of the ephemeral one, and its end by name.
//!
//! The persistent node bears the number of the ephemeral one and is made while that stands, so that whoever waits for the one waits
//! for the other too. Then the ephemeral node is written to, and only then it goes: a waiter that would take its end for a grant,
//! because it was the only one ahead in its listing, sees the change first, or the node's version, and lists again.

use std::time::Duration;

use super::failure::failure_of;
use super::name::{self, Kind};
use super::rule;
use super::ticket::Ticket;
use super::{Holding, Queue};
use crate::clock::BootTime;
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::session::core::Core;
use crate::session::generation::{CallError, Naming};
use crate::session::path;
use crate::session::retry::Retry;

const PERSIST: &str = "persist";
const RELEASE: &str = "release_persistent";

impl Queue {
    /// Makes a persistent node beside the hold's own, which may go then. Gives its full path.
    pub(crate) fn persist(
        &self,
        core: &Core,
        held: &Holding,
        data: &[u8],
        limit: &Limit<'_>,
    ) -> Result<String> {
        let mut tried = None;
        let outcome = self.stand_in(core, held, data, limit, &mut tried);
        if let (Err(e), Some(tried)) = (&outcome, tried) {
            warn!(
                "{tried}: not kept, {e}; should its session be gone too, it may stay: then release it by name"
            );
        }
        outcome
    }

    fn stand_in(
        &self,
        core: &Core,
        held: &Holding,
        data: &[u8],
        limit: &Limit<'_>,
        tried: &mut Option<String>,
    ) -> Result<String> {
        let own = held.path().rsplit_once('/').and_then(|(_, name)| name::parse(name));
        // Where numbers carry no order, a node made later cannot have the place of one made earlier.
        let sequence = own.map(|name| name.sequence).filter(|sequence| !rule::is_unordered(*sequence));
        let Some(sequence) = sequence else {
            let code = "no more sequence numbers (the lock cannot be made persistent)".to_owned();
            return Err(Error::Server { op: PERSIST, path: core.shown(&self.dir).to_owned(), code });
        };
        let lost = || match held.loss() {
            None => Ok(()),
            Some(reason) => Err(Error::Lost { path: core.shown(held.path()).to_owned(), reason }),
        };
        let retry = Retry::new();
        loop {
            let generation = core.connected(PERSIST, core.shown(&self.dir), limit, &retry)?;
            lost()?;
            let id = name::new_id(self.layout);
            let prefix = name::prefix(self.layout, Kind::Lock, &id);
            let path = path::join(&self.dir, &format!("{prefix}{sequence:010}"));
            *tried = Some(path.clone());
            let naming = Naming::Persistent;
            let ticket = match generation.create_contender(&path, &id, naming, data, &self.acl, limit) {
                Ok(created) => Ticket::new(generation.clone(), created, id, sequence).lasting(),
                Err(CallError::ConnectionLoss | CallError::Expired) => {
                    core.failed(&retry);
                    continue;
                }
                Err(e) => return Err(failure_of(PERSIST, core, &path, e)),
            };
            // Until it is kept the ticket's drop deletes the node. That the ephemeral one can be written to shows that it kept
            // everybody out until the other stood.
            match generation.set_data(held.path(), data, None, limit) {
                Ok(()) => {}
                Err(CallError::NoNode) => generation.lease.node_deleted(held.path(), BootTime::now()),
                Err(CallError::ConnectionLoss | CallError::Expired) => {
                    core.failed(&retry);
                    continue;
                }
                Err(e) => return Err(failure_of(PERSIST, core, held.path(), e)),
            }
            lost()?;
            let path = ticket.keep();
            info!("{path}: held until it is released by name");
            return Ok(path);
        }
    }

    /// Deletes a persistent contender. False: there is no such node.
    pub(crate) fn release_persistent(&self, core: &Core, name: &str, patience: Duration) -> Result<bool> {
        // With an id in its name no other node can ever bear it: it can be deleted again blindly.
        if name::parse(name).is_none_or(|parsed| parsed.id.is_empty()) || name.contains('/') {
            return Err(refused(name, "is not the name of a contender's node with an id in it"));
        }
        let (path, limit) = (path::join(&self.dir, name), Limit::after(patience));
        // An earlier delete whose answer was lost.
        let mut may_be_done = false;
        let retry = Retry::new();
        loop {
            let generation = core.connected(RELEASE, core.shown(&path), &limit, &retry)?;
            let deleted = match generation.read(&path, false, &limit) {
                Ok(node) if node.stat.owner != 0 => {
                    return Err(refused(
                        name,
                        "is ephemeral: it goes when its owner lets go, or with its session",
                    ));
                }
                Ok(_) => {
                    let deleted = generation.delete_now(&path, &limit);
                    may_be_done |= matches!(deleted, Err(CallError::ConnectionLoss | CallError::Expired));
                    deleted
                }
                Err(e) => Err(e),
            };
            match deleted {
                Ok(()) => return Ok(true),
                Err(CallError::NoNode) => return Ok(may_be_done),
                Err(CallError::ConnectionLoss | CallError::Expired) => core.failed(&retry),
                Err(e) => return Err(failure_of(RELEASE, core, &path, e)),
            }
        }
    }
}

fn refused(name: &str, why: &str) -> Error {
    Error::InvalidConfig { what: "persistent lock", reason: format!("{name:?} {why}") }
}
