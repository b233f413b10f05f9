//! A mutex that is kept between two holds goes when another client wants it.
//!
//! Another client wants it if a node of another session stands in its queue, or if a request to let
//! the lock go was written to its node. Once that has lasted for the time of `lasting.rs`, the
//! process knows it. Then the node may not stay without a guard. And a thread that lets its guard go
//! may not give the node to another thread of its process, but within the time of the lock's
//! hand-over.

use std::time::Duration;

use zk_sim_runtime::{ProcessId, now};
use zk_test_server::ensemble::NodeInfo;

use super::lasting::State;
use super::names::Node;
use super::{Broken, Guard, Seen, Setting};
use crate::workload::Recipe;

const KEPT: &str = "kept from others";

impl Seen {
    /// Notes which of the kept mutexes other clients want, and adds those that have no guard.
    pub(super) fn kept(&mut self, tree: &[NodeInfo], all: &mut Vec<State>) {
        for at in 0..self.holds.len() {
            let hold = &self.holds[at];
            let (path, lock) = (&hold.hold.path, &hold.node.lock);
            let Some(session) = hold.hold.session_id() else { continue };
            if self.setting.kept(lock).is_none() || hold.hold.is_told_lost() {
                continue;
            }
            let is_other = |node: &NodeInfo| {
                node.owner != session
                    && Node::numbered(&node.path).is_some_and(|node| node.lock == *lock)
            };
            let is_wanted = self.is_asked_for(path) || tree.iter().any(is_other);
            let since = is_wanted.then(|| self.since_when(session, hold.wanted.clone())).flatten();
            let has_guard = self.guards.iter().any(|guard| guard.hold.is_same(&hold.hold));
            if since.is_some()
                && hold.let_go.is_some()
                && !has_guard
                && !self.is_used_with_others(hold.process, lock)
            {
                let what = format!("{path} is kept, and others want it");
                all.push(State { check: KEPT, what, session, counts: true });
            }
            self.holds[at].wanted = since;
        }
    }

    /// Whether a thread of this process takes the lock as one of several: it may have the lock for
    /// long while it waits for the others, and has no guard yet.
    fn is_used_with_others(&self, process: ProcessId, lock: &str) -> bool {
        let mut using = self.using.iter().filter(|((of, _), _)| *of == process);
        using.any(|(_, paths)| paths.len() > 1 && paths.iter().any(|used| used == lock))
    }

    /// A thread lets this guard go. If other clients have wanted the lock for long enough, no other
    /// thread of the process may get it.
    pub(super) fn has_to_go(&mut self, guard: &Guard) {
        let Some(hand_over) = self.setting.kept(&guard.node.lock) else { return };
        let Some(at) = self.holds.iter().position(|hold| hold.hold.is_same(&guard.hold)) else {
            return;
        };
        let hold = &self.holds[at];
        let wanted = hold.wanted.as_ref().filter(|since| self.is_still(since));
        let let_go = hold.let_go.as_ref().filter(|since| self.is_still(since));
        // Who else is in the queue the process asks only when it has let the first guard go.
        let is_known = wanted.is_some_and(|since| self.has_lasted(since))
            && let_go.is_some_and(|since| self.has_lasted(since));
        // The process's clock may be slower than the world's.
        let age = now().saturating_sub(hold.since).mul_f64(0.9) / self.setting.slowness();
        let has_to_go = is_known && age > hand_over;
        let session = hold.hold.session_id();
        let let_go = session.and_then(|session| self.since_when(session, let_go.cloned()));
        if has_to_go {
            self.counts.note(KEPT);
        }
        let hold = &mut self.holds[at];
        (hold.let_go, hold.has_to_go) = (let_go, has_to_go);
    }

    /// A thread has got a guard of a hold that had to go.
    pub(super) fn is_kept_from_others(&self, new: &Guard) -> Option<Broken> {
        let hold = self.holds.iter().find(|hold| hold.hold.is_same(&new.hold))?;
        let since = hold.wanted.as_ref().map(|since| since.time);
        let text = || {
            format!("others want {} since {since:?}, and {} gets it", hold.hold.path, new.thread())
        };
        hold.has_to_go.then(|| (KEPT, text()))
    }
}

impl Setting {
    /// If the lock whose nodes are in this folder is kept: how long threads hand it to each other.
    pub(super) fn kept(&self, folder: &str) -> Option<Duration> {
        match self.place(folder)?.recipe {
            Recipe::Mutex { keep, hand_over, .. } => Some(hand_over).filter(|_| !keep.is_zero()),
            _ => None,
        }
    }
}
