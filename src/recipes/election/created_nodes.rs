//! Waiting until the server has nothing left of what was given up.

use std::convert::Infallible;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::queue::call::error;
use crate::session::core::Core;
use crate::session::generation::CallError;
use crate::session::retry::Retry;
use crate::world::{HashSet, Instant, Mutex, never};

/// Between two looks at a node whose create may still be on its way; twice as long each time.
const PAUSE: Duration = Duration::from_millis(5);

/// The nodes that one contender has made in its time, by their ids, but for those that have long
/// been gone.
#[derive(Default)]
pub(crate) struct CreatedNodes(Mutex<HashSet<String>>);

impl CreatedNodes {
    /// A node with this id is about to be made.
    pub(crate) fn add(&self, core: &Core, id: &str) {
        let pending =
            core.generation().map(|generation| generation.pending_deletes()).unwrap_or_default();
        let mut ids = self.0.lock();
        ids.retain(|id| pending.contains(id));
        ids.insert(id.to_owned());
    }

    /// Waits until all that should go is gone. A session that is lost takes its nodes with it.
    pub(crate) fn until_gone(&self, core: &Core, path: &str, limit: &Limit<'_>) -> Result<()> {
        let Some(generation) = core.generation() else { return Ok(()) };
        let going = &*generation.pending_deletes() & &*self.0.lock();
        let dir = [core.chroot(), path].concat();
        let (mut pause, retry) = (PAUSE, Retry::enduring());
        while !generation.lease.is_over() && !going.is_disjoint(&generation.pending_deletes()) {
            // The connection sends what it has to do in order. So once a write of its own is
            // acknowledged the deletes before that are mostly done; the loop looks again.
            match core.connected("leave", path, limit, &retry) {
                Ok(generation) => drop(generation.prove(&dir, limit)),
                Err(Error::Closed { .. }) => return Ok(()),
                Err(e) => return Err(e),
            }
            if limit.is_past() {
                return Err(error("leave", path.to_owned(), CallError::ConnectionLoss));
            }
            if !going.is_disjoint(&generation.pending_deletes()) {
                limit.or_at(Instant::now() + pause).recv(&never::<Infallible>());
                pause *= 2;
            }
        }
        Ok(())
    }
}
