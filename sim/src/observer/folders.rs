//! No folder of a lock outlives its last lock.
//!
//! The folders are containers: the server deletes them when it looks for empty ones, but never a
//! container that had no child. So a client must not leave one behind in which it has made nothing.
//! The folders that others have made stay, and so do those of a semaphore, whose node has its number
//! of permits. A folder and the node in it are made by requests of one flight: if the connection
//! ends, or the process is killed, the server may have got the first of them and not the second.

use std::time::Duration;

use zk_sim_runtime::{ProcessId, now, this_process};
use zk_test_server::ensemble::NodeInfo;

use super::{Observer, Seen};
use crate::workload::{PASSING, Recipe};

/// A call for a lock at a path of its own.
pub(super) struct Call {
    process: ProcessId,
    ended: Option<Duration>,
    /// The connection has ended while it ran, or soon after: requests of it may be lost.
    is_torn: bool,
}

impl Seen {
    /// A connection of this process has ended.
    pub(super) fn tears(&mut self, process: ProcessId) {
        let timeout = self.setting.session_timeout;
        for call in self.passing.values_mut().filter(|call| call.process == process) {
            call.is_torn |= call.ended.is_none_or(|ended| ended + timeout > now());
        }
    }
}

impl Observer {
    /// The calling thread begins to ask for the lock at this path of its own, or has ended that.
    pub fn passes(&self, path: &str, begins: bool) {
        let Some(process) = this_process() else { return };
        self.seen(|seen| match begins {
            true => {
                let call = Call { process, ended: None, is_torn: false };
                seen.passing.insert(path.to_owned(), call);
            }
            false => {
                seen.passing.entry(path.to_owned()).and_modify(|call| call.ended = Some(now()));
            }
        });
    }

    /// The folders of locks that stand in this tree.
    pub fn folders_left(&self, tree: &[NodeInfo]) -> Vec<String> {
        self.seen(|seen| {
            let is_semaphore = |recipe: &Recipe| matches!(recipe, Recipe::Semaphore { .. });
            let places = seen.setting.places.iter();
            let kept = places.filter(|place| is_semaphore(&place.recipe)).map(|place| &place.path);
            // A call that has no end was cut short with its process.
            let is_torn = |call: &Call| call.is_torn || call.ended.is_none();
            let torn = seen.passing.iter().filter(|(_, call)| is_torn(call));
            let kept: Vec<&String> = kept.chain(torn.map(|(path, _)| path)).collect();
            let is_kept = |path: &str| {
                let is_below = |one: &str, other: &str| {
                    one.strip_prefix(other)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                kept.iter().any(|kept| is_below(kept, path) || is_below(path, kept))
            };
            let above = |place: &str| place.rsplit_once('/').map(|(above, _)| above.to_owned());
            let roots = seen.setting.places.iter().filter_map(|place| above(&place.path));
            let roots: Vec<String> = roots.chain([PASSING.to_owned()]).collect();
            let is_ours = |path: &str| roots.iter().any(|root| path.starts_with(root.as_str()));
            // A client whose connections end again and again as it makes containers makes
            // persistent folders.
            let is_container = |node: &&NodeInfo| node.owner < 0;
            let all = tree.iter().filter(is_container).map(|node| node.path.clone());
            all.filter(|path| is_ours(path) && !is_kept(path)).collect()
        })
    }
}
