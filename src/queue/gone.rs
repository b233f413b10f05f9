//! Waiting until the server has nothing left of what was given up.

use std::collections::HashSet;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use crossbeam_channel::never;

use crate::error::{Cause, Error, Result};
use crate::limit::Limit;
use crate::session::core::Core;

/// Between two looks at a node whose create may still be on its way.
const PAUSE: Duration = Duration::from_millis(5);

/// The ids of this session's nodes that should go and may still exist.
#[derive(Default)]
pub(crate) struct Leftovers(HashSet<String>);

impl Leftovers {
    pub(crate) fn now(core: &Core) -> Self {
        Leftovers(core.shared().map(|shared| shared.debris()).unwrap_or_default())
    }

    /// Waits until all that should go now is gone, but for what should have gone `before`. A session that is lost takes its nodes with it.
    pub(crate) fn wait(core: &Core, path: &str, before: &Leftovers, limit: &Limit<'_>) -> Result<()> {
        let Some(shared) = core.shared() else { return Ok(()) };
        let going = &shared.debris() - &before.0;
        while !shared.lease.is_over() && !going.is_disjoint(&shared.debris()) {
            // What the link has to do it does in order: behind an acknowledged write the deletes before it are done.
            match core.connected_at_last("leave", path, limit) {
                Ok(generation) => drop(generation.prove(limit)),
                Err(Error::Closed { .. }) => return Ok(()),
                Err(e) => return Err(e),
            }
            if limit.is_past() {
                return Err(Error::Unavailable {
                    op: "leave",
                    path: path.to_owned(),
                    cause: Cause::ConnectionLost,
                });
            }
            if !going.is_disjoint(&shared.debris()) {
                limit.or_at(Instant::now() + PAUSE).recv(&never::<Infallible>());
            }
        }
        Ok(())
    }
}
