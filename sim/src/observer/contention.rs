//! "Others have it" is what a server has answered, or what a thread of the process itself has.
//!
//! A thread that waits in its process for the turn of a thread that is itself still asking knows of
//! no other holder. The threads of a process that ask for a lock pass on what they know, as long as
//! one of them asks. So a call that says "taken" must have one of these reasons, and it must be
//! younger than the first of the calls that follow one another up to this one without a break:
//!
//! * a thread of the process held the lock;
//! * a server's answer about the lock came, and others had the lock or stood in its queue.
//!
//! Who is ahead in the process may want more than the call: so for a call that was not alone it is
//! enough that others kept out who wants most. Each call of an election has a node of its own, so
//! other candidates of its process are contenders like all others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use zk_mutex_simulated::observed::Observed;
use zk_sim_runtime::{ProcessId, now, process_name, this_process};

use super::answers::{Wish, leases};
use super::history::Moment;
use super::{Broken, Observer, Seen};
use crate::workload::{Place, Recipe};

const UNPROVEN: &str = "contention unproven";

/// The calls for locks that run now.
#[derive(Default)]
pub(super) struct Asking(BTreeMap<(ProcessId, String), Calls>);

/// Calls of one process for one lock, without a break.
struct Calls {
    /// The threads that make them.
    threads: BTreeSet<usize>,
    since: Moment,
}

impl Observer {
    /// A call for these locks begins.
    pub fn asks(&self, thread: usize, wanted: &[(&Place, Wish)]) {
        let Some(process) = this_process() else { return };
        self.seen(|seen| {
            let since = seen.history.moment();
            for (place, _) in wanted {
                let key = (process, place.path.clone());
                let threads = BTreeSet::new();
                let calls = seen.asking.0.entry(key).or_insert(Calls { threads, since });
                calls.threads.insert(thread);
            }
        });
    }

    /// A call for these locks has ended. Gives for each when the first of the calls began that
    /// followed one another until now.
    pub fn has_asked(&self, thread: usize, wanted: &[(&Place, Wish)]) -> Vec<Moment> {
        let Some(process) = this_process() else { return Vec::new() };
        self.seen(|seen| {
            let ends = |(place, _): &(&Place, Wish)| {
                let key = (process, place.path.clone());
                let calls = seen.asking.0.get_mut(&key)?;
                calls.threads.remove(&thread);
                let (is_last, since) = (calls.threads.is_empty(), calls.since);
                if is_last {
                    seen.asking.0.remove(&key);
                }
                Some(since)
            };
            wanted.iter().filter_map(ends).collect()
        })
    }

    /// The calling thread has released its locks: the servers have answered, or it waits no more.
    pub fn has_released(&self, thread: usize) {
        let Some(process) = this_process() else { return };
        self.seen(|seen| {
            for path in seen.using.get(&(process, thread)).into_iter().flatten() {
                seen.held.insert((process, path.clone()), now());
            }
        });
    }
}

impl Seen {
    /// The process lets this hold go.
    pub(super) fn lets_go(&mut self, process: ProcessId, hold: &Observed) {
        let hold = self.holds.iter().find(|other| other.hold.is_same(hold));
        let Some(hold) = hold.filter(|hold| !hold.is_of_a_queue_for_permits(&self.setting.places))
        else {
            return;
        };
        if let Some(place) = self.setting.place(&hold.node.lock) {
            self.held.insert((process, place.path.clone()), now());
        }
    }

    /// A call was told that others have one of these locks. `since`: what `has_asked` gave.
    pub(super) fn unproven(
        &mut self,
        process: ProcessId,
        thread: usize,
        wanted: &[(&Place, Wish)],
        asked: Moment,
        since: &[Moment],
    ) -> Option<Broken> {
        let is_candidate = |(place, _): &(&Place, Wish)| {
            matches!(place.recipe, Recipe::Election)
                && self.is_used_here(process, thread, &place.path, asked)
        };
        if wanted.is_empty() || wanted.iter().any(is_candidate) || !self.may_judge(process, asked) {
            return None;
        }
        self.counts.note(UNPROVEN);
        let has_reason = |((place, wish), since): (&(&Place, Wish), &Moment)| {
            let is_here = self.is_used_here(process, thread, &place.path, *since);
            let heard = self.heard.of(process, &place.path);
            let wish = match (&place.recipe, wish) {
                (Recipe::Semaphore { permits, .. }, _) if is_here => Wish::Permits(*permits),
                (_, Wish::Shared) if is_here => Wish::Alone,
                (_, wish) => *wish,
            };
            // The permit of a thread that has just counted it: it becomes a hold in a moment.
            let has_permit = || self.history.lives(&leases(place), *since).next().is_some();
            is_here && (self.was_held_here(process, thread, place, since.time) || has_permit())
                || heard.is_some_and(|heard| heard >= since.time)
                    && self.is_taken(process, place, wish, *since)
        };
        if wanted.iter().zip(since).any(has_reason) {
            return None;
        }
        let what = Vec::from_iter(wanted.iter().map(|(place, wish)| (&place.path, wish)));
        let heard = wanted.iter().map(|(place, _)| self.heard.of(process, &place.path));
        let text = format!(
            "thread {thread} of {} asked for {what:?} at {asked:?} and was told that others have \
             it; since {since:?} no thread of its process has had it, and no server has said so: \
             the last answers came at {:?}",
            process_name(process),
            Vec::from_iter(heard)
        );
        Some((UNPROVEN, text))
    }

    /// Whether another thread of the process has held this lock at some moment since then, or was
    /// releasing it.
    fn was_held_here(
        &self,
        process: ProcessId,
        thread: usize,
        place: &Place,
        since: Duration,
    ) -> bool {
        let until = self.held.get(&(process, place.path.clone()));
        let is_its = |of: &super::Hold| {
            of.process == process
                && !of.is_of_a_queue_for_permits(&self.setting.places)
                && self.setting.place(&of.node.lock).is_some_and(|other| other.path == place.path)
        };
        let asks = |other: usize| {
            let calls = self.asking.0.get(&(process, place.path.clone()));
            calls.is_some_and(|calls| calls.threads.contains(&other))
        };
        let mut using = self.using.iter().filter(|((of, other), paths)| {
            *of == process && *other != thread && paths.contains(&place.path)
        });
        until.is_some_and(|until| *until >= since)
            || self.holds.iter().any(is_its)
            || using.any(|((_, other), _)| !asks(*other))
    }
}
