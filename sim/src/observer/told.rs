//! A holder is told in time of what others do to its node: of its deletion, and of a request to let
//! the lock go.
//!
//! The session watches each node that it has held for 50 ms, and at once a node whose guard was
//! asked for its signals. On each further connection it reads the node again. So the news comes
//! within the time of `lasting.rs`.

use zk_mutex_simulated::observed::Observed;
use zk_mutex_simulated::{Held, RevokeSignal};
use zk_sim_runtime::{clock_of, is_alive, this_process};
use zk_test_server::ensemble::NodeInfo;

use super::lasting::State;
use super::names::Mode;
use super::{Guard, Hold, Observer, Seen};
use crate::servers::Change;

const DELETED: &str = "deleted and not told";
const ASKED: &str = "asked and not told";

impl Observer {
    /// The calling thread asks for the lock whose node is at this path, or was answered: `is_done`
    /// says that the request is in the node.
    pub fn asks_for(&self, path: &str, is_done: bool) {
        self.seen(|seen| {
            let was_done = seen.asked_for.entry(path.to_owned()).or_default();
            if is_done && !std::mem::replace(was_done, true) {
                let is_its = |guard: &Guard| guard.hold.path == path && guard.signal.is_some();
                if seen.guards.iter().any(is_its) {
                    seen.counts.note(ASKED);
                }
            }
        });
    }

    /// The calling thread has asked its guard for this signal.
    pub fn listens(&self, thread: usize, held: &Held, signal: &RevokeSignal) {
        let Some(process) = this_process() else { return };
        let hold = Observed::of(held);
        self.seen(|seen| {
            let Some(guard) = seen.guards.iter_mut().find(|guard| {
                (guard.process, guard.thread) == (process, thread) && guard.hold.is_same(&hold)
            }) else {
                return;
            };
            guard.signal = Some(signal.clone());
            if seen.is_asked_for(&hold.path) {
                seen.counts.note(ASKED);
            }
        });
    }
}

impl Observer {
    /// Whether the holder of this guard is to be told something. It stays until it is told, so that
    /// it is seen if it is not.
    pub fn owes_news(&self, held: &Held) -> bool {
        let hold = Observed::of(held);
        self.seen(|seen| {
            let is_deleted = seen.deleted_by_others.contains_key(&hold.path)
                && !hold.is_told_lost()
                && seen.stands(&hold).is_none();
            let mut guards = seen.guards.iter().filter(|guard| guard.hold.is_same(&hold));
            is_deleted || guards.any(|guard| seen.is_untold(guard))
        })
    }
}

impl Seen {
    /// Whether a request to let the lock go was written to this node.
    pub(super) fn is_asked_for(&self, path: &str) -> bool {
        self.asked_for.get(path).is_some_and(|is_done| *is_done)
    }

    /// That a node stands which was held.
    pub(super) fn stands(&self, node: &Observed) -> Option<String> {
        let (folder, name) = node.path.rsplit_once('/')?;
        let life = self.history.standing(folder).iter().find(|life| {
            life.name == name
                // Others may make nodes of the same name. The read of a downgrade has another czxid
                // here than at the server.
                && (life.node.is_some() || life.czxid == node.czxid)
        })?;
        Some(format!("{} stands, made by {:#x}", node.path, life.czxid))
    }

    /// Adds the states in which a holder is to be told something.
    pub(super) fn untold(&self, tree: &[NodeInfo], all: &mut Vec<State>) {
        for hold in &self.holds {
            let Some(session) = hold.hold.session_id() else { continue };
            if !hold.hold.is_told_lost() && !hold.stands(tree) {
                let (path, czxid) = (&hold.hold.path, hold.hold.czxid);
                let what = format!("{path}, made by {czxid:#x}, is held, and its node is gone");
                all.push(State { check: DELETED, what, session, counts: false });
            }
        }
        for guard in &self.guards {
            let Some(session) = guard.hold.session_id() else { continue };
            if self.is_untold(guard) && tree.iter().any(|node| node.path == guard.hold.path) {
                let (path, who) = (&guard.hold.path, guard.thread());
                let what = format!("{path} was asked for, and {who} is not told");
                all.push(State { check: ASKED, what, session, counts: false });
            }
        }
    }

    /// Whether somebody asks for the lock of this guard, which listens, and has not been told.
    fn is_untold(&self, guard: &Guard) -> bool {
        self.is_asked_for(&guard.hold.path)
            && guard.signal.as_ref().is_some_and(|signal| !signal.is_requested())
            && guard.hold.is_held_at(clock_of(guard.process))
    }

    /// Counts the holds that must be told that somebody else has deleted their nodes.
    pub(super) fn count_deleted(&mut self, changes: &[Change]) {
        for change in changes {
            let Change::Gone { path } = change else { continue };
            self.is_gone(path);
            let is_its = |hold: &Hold| {
                hold.hold.path == *path && !hold.hold.is_told_lost() && is_alive(hold.process)
            };
            if self.deleted_by_others.contains_key(path) && self.holds.iter().any(is_its) {
                self.counts.note(DELETED);
            }
        }
    }
}

impl Hold {
    /// Whether its node stands.
    fn stands(&self, tree: &[NodeInfo]) -> bool {
        let session = self.hold.session_id();
        tree.iter().any(|node| {
            node.path == self.hold.path
                && Some(node.owner) == session
                // Others may make nodes of the same name. The read of a downgrade has another czxid
                // here than at the server.
                && (self.node.mode != Mode::Name || node.czxid == self.hold.czxid)
        })
    }
}
