//! `unlock()` tells the truth: `Ok` if its nodes are gone or go on with other guards of the process,
//! `Lost` if the hold was lost before.

use zk_mutex_simulated::observed::{Mark, Observed};
use zk_mutex_simulated::{Error, Held, LossReason, Result};
use zk_sim_runtime::library::this_thread;
use zk_sim_runtime::{ProcessId, as_world, process_name, this_process};

use super::{Moment, Node, Observer, Seen, report};

const UNTRUE: &str = "untrue unlock";

/// A guard, or several as one, that its thread is about to end.
#[derive(Default)]
pub struct Ending {
    all: Vec<Ends>,
    since: Moment,
}

/// One guard.
struct Ends {
    path: String,
    nodes: Vec<(Observed, Mark)>,
    /// It was lost already.
    was_lost: bool,
}

impl Ending {
    fn of(held: &[&Held], since: Moment) -> Ending {
        let ends = |held: &&Held| {
            let nodes = Observed::all(held).into_iter();
            let nodes: Vec<_> =
                nodes.filter_map(|node| Some((node.clone(), node.mark()?))).collect();
            let was_lost = nodes.iter().any(|(_, mark)| mark.reason().is_some());
            Ends { path: held.path().to_owned(), nodes, was_lost }
        };
        Ending { all: held.iter().map(ends).collect(), since }
    }

    /// The path of each guard's node, and whether it was lost already.
    pub fn losses(&self) -> impl Iterator<Item = (&str, bool)> {
        self.all.iter().map(|ends| (ends.path.as_str(), ends.was_lost))
    }

    /// The paths of those that were not lost before the end of their release.
    pub fn released(&self) -> impl Iterator<Item = &str> {
        let is_lost = |(_, mark): &(Observed, Mark)| mark.reason().is_some();
        let released = self.all.iter().filter(move |ends| !ends.nodes.iter().any(is_lost));
        released.map(|ends| ends.path.as_str())
    }

    fn of_path(&self, path: &str) -> Option<&Ends> {
        self.all.iter().find(|ends| ends.path == path)
    }
}

impl Observer {
    /// The calling thread begins to end these guards.
    pub fn ends(&self, held: &[&Held]) -> Ending {
        let own = this_thread();
        self.seen(|seen| {
            seen.released.insert(own, Vec::new());
            Ending::of(held, seen.history.moment())
        })
    }

    /// The calling thread has ended these guards with `unlock()`. `may_fail`: faults may be the
    /// reason of an error. `is_closing`: another thread has begun to close the session.
    pub fn unlocked(
        &self,
        thread: usize,
        ending: &Ending,
        outcome: &Result<()>,
        may_fail: bool,
        is_closing: bool,
    ) {
        let Some(process) = this_process() else { return };
        let own = this_thread();
        // Where a lease may end before it is renewed, a request may also be answered too late.
        if !may_fail && !self.seen(|seen| seen.setting.is_tight) {
            let fails = matches!(outcome, Err(Error::Unavailable { .. }));
            self.check("error in calm", !fails, || format!("unlock: {outcome:?}"));
        }
        match outcome {
            Ok(()) => report(self.seen(|seen| {
                seen.counts.note(UNTRUE);
                let released = seen.released.remove(&own).unwrap_or_default();
                let why = |ends: &Ends| {
                    let mut nodes = ends.nodes.iter();
                    let stays = nodes.find_map(|(node, mark)| {
                        // A hold that goes on may have been released by another thread since.
                        if !released.iter().any(|other| other.is_same(node)) {
                            return seen.is_held_by_nobody(process, thread, node);
                        }
                        // This thread had handed the hold to the next one, which could not take it:
                        // the session was closed meanwhile. Of the two, this thread was the last to
                        // let the node go. A close first refuses calls, and then marks the holds as
                        // lost; the node may have been let go in between. (A node that this thread
                        // releases itself is not marked any more.)
                        let was_handed_over = mark.reason() == Some(LossReason::SessionClosed)
                            || is_closing && seen.has_passed(process, thread, node, ending.since);
                        seen.stands(node).filter(|_| !was_handed_over)
                    });
                    stays
                        .or_else(|| ends.was_lost.then(|| format!("{} was lost before", ends.path)))
                };
                let why = ending.all.iter().find_map(why)?;
                let who = process_name(process);
                Some((
                    UNTRUE,
                    format!("thread {thread} of {who} has unlocked its guard, and {why}"),
                ))
            })),
            Err(Error::Lost { path, reason }) => {
                let is_marked = |(_, mark): &(Observed, Mark)| mark.reason() == Some(*reason);
                let ends = ending.of_path(path);
                let is_so = as_world(|| ends.is_some_and(|ends| ends.nodes.iter().any(is_marked)));
                let text = || format!("{path}: unlock says {reason:?}, and it is not marked so");
                self.check(UNTRUE, is_so, text);
            }
            Err(Error::Unavailable { path, .. }) => {
                let is_so = ending.of_path(path).is_some_and(|ends| !ends.was_lost);
                let text = || format!("{path} was lost before, and unlock says {outcome:?}");
                self.check(UNTRUE, is_so, text);
            }
            Err(Error::Several { failures }) => {
                for failure in failures {
                    self.unlocked(thread, ending, &Err(failure.clone()), may_fail, is_closing);
                }
            }
            Err(e) => self.check("wrong error", false, || format!("unlock: {e}")),
        }
    }
}

impl Seen {
    /// Whether another thread of this process may have been given this hold since then.
    fn has_passed(
        &self,
        process: ProcessId,
        thread: usize,
        node: &Observed,
        since: Moment,
    ) -> bool {
        let place = self.setting.place(&Node::of(&node.path).lock);
        place.is_some_and(|place| self.is_used_here(process, thread, &place.path, since))
    }

    /// A node that was not released must be kept, or go on with another guard.
    fn is_held_by_nobody(
        &self,
        process: ProcessId,
        thread: usize,
        node: &Observed,
    ) -> Option<String> {
        let hold = self.holds.iter().find(|hold| hold.hold.is_same(node))?;
        let place = self.setting.place(&hold.node.lock)?;
        let goes_on = self.guards.iter().any(|guard| guard.hold.is_same(node))
            || self.setting.kept(&hold.node.lock).is_some()
            || self.is_used_by_others(process, thread, &place.path);
        (!goes_on).then(|| format!("{} is held, and nobody has it", node.path))
    }
}
