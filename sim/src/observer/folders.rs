//! No folder of a lock outlives its last lock.
//!
//! The folders are containers: the server deletes them when it looks for empty ones, but never a
//! container that had no child. So a client must not leave one behind in which it has made nothing.
//! The folders that others have made stay, and so do those of a semaphore, whose node has its number
//! of permits. A process that was killed in the middle of a call could do nothing about the folder
//! that it had just made.

use zk_sim_runtime::{is_alive, this_process};
use zk_test_server::ensemble::NodeInfo;

use super::Observer;
use crate::workload::{PASSING, Recipe};

impl Observer {
    /// The calling thread begins to ask for the lock at this path of its own, or has ended that.
    pub fn passes(&self, path: &str, begins: bool) {
        let Some(process) = this_process() else { return };
        self.seen(|seen| match begins {
            true => drop(seen.passing.insert(path.to_owned(), process)),
            false => drop(seen.passing.remove(path)),
        });
    }

    /// The folders of locks that stand in this tree.
    pub fn folders_left(&self, tree: &[NodeInfo]) -> Vec<String> {
        self.seen(|seen| {
            let is_semaphore = |recipe: &Recipe| matches!(recipe, Recipe::Semaphore { .. });
            let places = seen.setting.places.iter();
            let kept = places.filter(|place| is_semaphore(&place.recipe)).map(|place| &place.path);
            let killed = seen.passing.iter().filter(|(_, process)| !is_alive(**process));
            let kept: Vec<&String> = kept.chain(killed.map(|(path, _)| path)).collect();
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
            let all = tree.iter().map(|node| node.path.clone());
            all.filter(|path| is_ours(path) && !is_kept(path)).collect()
        })
    }
}
