//! "Others have it" is what a server has answered, or what a thread of the process itself has.
//!
//! A thread that waits in its process for the turn of a thread that is itself still asking knows of
//! nobody who has the lock. So a call that says "taken" must have one of these reasons:
//!
//! * A thread of its process held the lock at some moment of the call.
//! * An answer of a server about the lock has come during the call, or a thread that was ahead in
//!   the process had one before. And others had the lock, or stood in its queue, at some moment
//!   since the question: since that of the first thread ahead, if there was one, which goes by what
//!   it was answered until a server tells it of a change.
//!
//! Who is ahead in the process may want more than the call: so for a call that was not alone it is
//! enough that others kept out who wants most. Each call of an election has a node of its own, so
//! other candidates of its process are contenders like all others. What a thread that takes several
//! locks as one has heard of one of them is not known here.

use zk_mutex_simulated::observed::Observed;
use zk_sim_runtime::{ProcessId, now, process_name, this_process};

use super::answers::Wish;
use super::history::Moment;
use super::{Broken, Observer, Seen};
use crate::workload::{Place, Recipe};

const UNPROVEN: &str = "contention unproven";

/// The threads of its process that wait for a lock as a call for it begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead {
    /// When the first of them, or of those that were ahead of it, has asked.
    since: Option<Moment>,
    /// One of them had heard of the lock since it asked.
    is_known: bool,
}

impl Observer {
    /// The threads of the calling process that wait for one of these locks already.
    pub fn ahead(&self, thread: usize, wanted: &[(&Place, Wish)]) -> Ahead {
        let Some(process) = this_process() else { return Ahead::default() };
        self.seen(|seen| {
            let ahead = wanted.iter().map(|(place, _)| seen.ahead(process, thread, &place.path));
            ahead.fold(Ahead::default(), Ahead::and)
        })
    }
}

impl Ahead {
    fn and(self, other: Ahead) -> Ahead {
        let first = self.since.into_iter().chain(other.since).min_by_key(|asked| asked.version);
        Ahead { since: first, is_known: self.is_known || other.is_known }
    }
}

impl Seen {
    pub(super) fn ahead(&self, process: ProcessId, thread: usize, lock: &str) -> Ahead {
        let heard = self.heard.of(process, lock);
        let others = self.waiting.iter().filter(|((of, other), waiting)| {
            *of == process && *other != thread && waiting.path == lock
        });
        let ahead = others.map(|(_, waiting)| {
            let is_known = heard.is_some_and(|heard| heard >= waiting.since);
            waiting.ahead.and(Ahead { since: Some(waiting.asked), is_known })
        });
        ahead.fold(Ahead::default(), Ahead::and)
    }

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

    /// A call was told that others have one of these locks.
    pub(super) fn unproven(
        &mut self,
        process: ProcessId,
        thread: usize,
        wanted: &[(&Place, Wish)],
        asked: Moment,
        ahead: Ahead,
    ) -> Option<Broken> {
        let is_here = |place: &Place| self.is_used_here(process, thread, &place.path, asked);
        let is_election = |place: &Place| matches!(place.recipe, Recipe::Election);
        let is_candidate = |(place, _): &(&Place, Wish)| is_election(place) && is_here(place);
        let has_several = self.several.values().any(|call| call.process == process)
            || self.had_several.get(&process).is_some_and(|ended| *ended >= asked.time);
        if wanted.is_empty()
            || wanted.iter().any(is_candidate)
            || has_several && wanted.iter().any(|(place, _)| is_here(place))
            || !self.may_judge(process, asked)
        {
            return None;
        }
        self.counts.note(UNPROVEN);
        let has_reason = |(place, wish): &(&Place, Wish)| {
            let is_here = self.is_used_here(process, thread, &place.path, asked);
            let heard = self.heard.of(process, &place.path);
            let is_answered = heard.is_some_and(|heard| heard >= asked.time);
            let wish = match (&place.recipe, wish) {
                (Recipe::Semaphore { permits, .. }, _) if is_here => Wish::Permits(*permits),
                (_, Wish::Shared) if is_here => Wish::Alone,
                (_, wish) => *wish,
            };
            let since = ahead.since.unwrap_or(asked);
            is_here && self.was_held_here(process, place, since)
                || (is_answered || ahead.is_known) && self.is_taken(process, place, wish, since)
        };
        if wanted.iter().any(has_reason) {
            return None;
        }
        let what = Vec::from_iter(wanted.iter().map(|(place, wish)| (&place.path, wish)));
        let heard =
            Vec::from_iter(wanted.iter().map(|(place, _)| self.heard.of(process, &place.path)));
        let text = format!(
            "thread {thread} of {} asked for {what:?} at {asked:?} and was told that others have \
             it; no thread of its process had it, and no server has said so since: the last answer \
             came at {heard:?}",
            process_name(process)
        );
        Some((UNPROVEN, text))
    }

    /// Whether the process has had a hold of this lock at some moment since then. Of a semaphore
    /// the tree says whether too few permits are free.
    fn was_held_here(&self, process: ProcessId, place: &Place, asked: Moment) -> bool {
        let until = self.held.get(&(process, place.path.clone()));
        let is_its = |of: &super::Hold| {
            of.process == process
                && !of.is_of_a_queue_for_permits(&self.setting.places)
                && self.setting.place(&of.node.lock).is_some_and(|other| other.path == place.path)
        };
        until.is_some_and(|until| *until >= asked.time) || self.holds.iter().any(is_its)
    }
}
