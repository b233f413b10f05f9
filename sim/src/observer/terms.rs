//! A term of leadership that has ended stays ended for every thread that still has a view of it.
//!
//! A term ends when its candidate leaves, or when the function of its runner returns, and when it
//! is lost. So each view of it says from then on that it does not last: at once, where its own
//! process has ended it, and at the latest when another candidate leads.

use zk_mutex_simulated::observed::Observed;
use zk_mutex_simulated::{Held, Leadership};
use zk_sim_runtime::{ProcessId, clock_of, is_alive, process_name, this_process};

use super::names::Mode;
use super::{Broken, Hold, Observer, Seen};

const OUTLIVED: &str = "term outlived";

/// A term that a thread was given, by weak references only. While somebody has a view of it, it can
/// be asked whether it lasts.
pub(super) struct Term {
    process: ProcessId,
    term: Observed,
}

impl Observer {
    /// The calling thread was given this term.
    pub fn leads(&self, term: &Held) {
        let Some(process) = this_process() else { return };
        let term = Observed::of(term);
        self.seen(|seen| {
            seen.terms.retain(|other| is_alive(other.process) && other.term.mark().is_some());
            if !seen.terms.iter().any(|other| other.term.is_same(&term)) {
                seen.terms.push(Term { process, term });
            }
        });
    }

    /// The candidate of this term has left, or the function of its runner has returned. `lasted`:
    /// the term still lasted just before.
    pub fn has_resigned(&self, view: &Leadership, lasted: bool) {
        let text =
            || format!("{}: its leader has resigned, and a view says that it leads", view.path());
        if lasted {
            self.check(OUTLIVED, !view.is_held(), text);
        }
    }
}

impl Seen {
    /// A term that lasts to those who look at it, although another candidate leads now.
    pub(super) fn outlived_term(&mut self, new: &Hold) -> Option<Broken> {
        if new.node.mode != Mode::Leader {
            return None;
        }
        let lock = format!("{}/", new.node.lock);
        let is_other = |old: &&Term| {
            is_alive(old.process)
                && old.term.path.starts_with(&lock)
                && !old.term.is_same(&new.hold)
        };
        // Of a term of which nobody has a view any more, nobody can ask.
        let is_seen = |old: &&Term| is_other(old) && old.term.mark().is_some();
        if self.terms.iter().any(|old| is_seen(&old)) {
            self.counts.note(OUTLIVED);
        }
        let old = self.terms.iter().filter(is_other).find(|old| {
            let since = self.since(&old.term);
            self.counts_for(old.process, &old.term, since)
                && old.term.is_held_at(clock_of(old.process))
        })?;
        let (one, two) = (process_name(new.process), process_name(old.process));
        let text = format!(
            "{one} leads by {}, and to a view at {two} the term of {} lasts",
            new.hold.path, old.term.path
        );
        Some((OUTLIVED, text))
    }
}
