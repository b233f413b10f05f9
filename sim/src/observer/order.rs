//! Between processes the lock goes to the process that came first, as long as it waits.
//!
//! A process comes with the node that it makes in the queue, and keeps this place while any of its
//! threads waits: if the thread that has made the node gives up, another thread goes on in its
//! place. The check of the queue's order (`queue.rs`) goes by the nodes that stand, and does not
//! see a place that was thrown away.
//!
//! A place is kept here from one thread to another where the library had every means to keep it:
//! the node has stood for longer than its answer takes on a connection that stays, and its process
//! has made no other one since; the thread that gives up had reached the end of its time or was
//! cancelled; and another thread had waited since before, has time left, and wants the same. The
//! process must not have been stopped, and must have had the same connection, since it came. No
//! other thread of it may use the lock in another way.

use std::collections::BTreeMap;
use std::time::Duration;

use zk_sim_runtime::{ProcessId, clock_of, is_alive, now, process_name, stopped_for};

use super::answers::Wish;
use super::history::{Life, Moment};
use super::lasting::Clue;
use super::names::{self, Mode, Node};
use super::waits::{End, Waiting};
use super::{Broken, Hold, LATE, Seen, Setting};
use crate::servers::Change;
use crate::workload::{Place, Recipe};

const LOST_PLACE: &str = "place lost";

/// The place of each process in the queue of each lock for which it waits.
#[derive(Default)]
pub(super) struct Order(BTreeMap<(ProcessId, String), Came>);

/// A process has come to a queue.
struct Came {
    /// The path of the node with which it came, and its place.
    node: String,
    at: (i64, i64),
    mode: Mode,
    time: Duration,
    moment: Moment,
    clue: Clue,
    stopped: Duration,
    /// Another thread has gone on in the place of the first one.
    is_inherited: bool,
}

impl Seen {
    /// Notes which processes have come to a queue by these changes.
    pub(super) fn comes(&mut self, changes: &[Change]) {
        for change in changes {
            let Change::Made { path, owner, czxid, .. } = change else { continue };
            let Some(node) = Node::numbered(path) else { continue };
            let Some(lock) = self.setting.queue_of(&node.lock) else { continue };
            let Some(clue) = self.clue(*owner) else { continue };
            let key = (clue.process, lock.path.clone());
            if !self.order.0.contains_key(&key) && self.all_wait(key.0, &key.1, node.mode, None) {
                let (stopped, time, moment) = (stopped_for(key.0), now(), self.history.moment());
                let (node, at, mode) = (path.clone(), (node.number, *czxid), node.mode);
                let came =
                    Came { node, at, mode, moment, time, clue, stopped, is_inherited: false };
                self.order.0.insert(key, came);
            }
        }
    }

    /// Whether all threads of this process that use the lock, but for this one, wait for it, and
    /// all want the same.
    fn all_wait(&self, process: ProcessId, lock: &str, mode: Mode, but: Option<usize>) -> bool {
        let mut using = self.using.iter().filter(|((of, thread), paths)| {
            *of == process && Some(*thread) != but && paths.iter().any(|path| path == lock)
        });
        using.all(|(thread, _)| {
            let waiting = self.waiting.get(thread);
            waiting.is_some_and(|waiting| waiting.path == lock && waiting.wants(mode))
        })
    }

    /// A thread of this process waits for the lock no more.
    pub(super) fn waits_no_more(
        &mut self,
        process: ProcessId,
        thread: usize,
        gone: &Waiting,
        end: End,
    ) {
        let key = (process, gone.path.clone());
        let Some(came) = self.order.0.get(&key) else { return };
        let step = self.setting.session_timeout / 6 * self.setting.slowness() + LATE;
        let is_kept = matches!(end, End::Refused | End::Cancelled)
            && came.time + step * 2 < now()
            && self.has_no_other_node(came)
            && self.has_kept_its_ways(process, came)
            && self.all_wait(process, &gone.path, came.mode, Some(thread))
            && self.has_waiter(process, &gone.path);
        match self.order.0.get_mut(&key).filter(|_| is_kept) {
            Some(came) => came.is_inherited = true,
            None => drop(self.order.0.remove(&key)),
        }
    }

    fn has_kept_its_ways(&self, process: ProcessId, came: &Came) -> bool {
        let place =
            self.setting.places.iter().find(|place| Node::of(&came.node).lock == place.queue());
        is_alive(process)
            && came.stopped == stopped_for(process)
            && self.clue(came.clue.session) == Some(came.clue.clone())
            && place.is_some_and(|place| !self.was_deleted_in(place, came.time))
    }

    /// Whether its session has made no other node in that queue since it came: a thread that gave up
    /// early may have left one that is still to be deleted.
    fn has_no_other_node(&self, came: &Came) -> bool {
        let lives = self.history.lives(&Node::of(&came.node).lock, came.moment);
        let is_other = |life: &Life| life.owner == came.clue.session && life.czxid != came.at.1;
        !lives.into_iter().any(is_other)
    }

    /// Whether a thread of this process waits since long before, and for longer.
    fn has_waiter(&self, process: ProcessId, lock: &str) -> bool {
        self.waiting.iter().any(|((of, _), waiting)| {
            *of == process
                && waiting.path == lock
                && waiting.since + LATE < now()
                && waiting.has_time(clock_of(process))
        })
    }

    /// Checks the grant of a node: no process that had come before may still wait for the lock.
    pub(super) fn is_granted_in_order(&mut self, new: &Hold) -> Option<Broken> {
        let place = self.setting.place(&new.node.lock)?.clone();
        let is_queue = place.queue() == new.node.lock;
        let counts = self.counts_for(new.process, &new.hold, new.since);
        let (mut before, mut could_fail) = (None, 0);
        if is_queue && counts {
            let own = (new.node.number, new.hold.czxid);
            let others = self.order.0.iter().filter(|((process, lock), came)| {
                *process != new.process
                    && *lock == place.path
                    && came.is_inherited
                    && new.node.waits_for(came.mode)
                    && self.has_kept_its_ways(*process, came)
                    && self.has_waiter(*process, lock)
                    && self.all_wait(*process, lock, came.mode, None)
            });
            for ((process, _), came) in others {
                could_fail += 1;
                if names::is_ahead(came.at, own) {
                    before = before.or_else(|| Some((*process, came.node.clone(), came.time)));
                }
            }
        }
        (0..could_fail).for_each(|_| self.counts.note(LOST_PLACE));
        if !(is_queue && is_for_permits(&place)) {
            self.order.0.remove(&(new.process, place.path));
        }
        let (process, node, time) = before?;
        let text = format!(
            "{} holds {}, and {} waits since {time:?}, when it came with {node}",
            process_name(new.process),
            new.hold.path,
            process_name(process)
        );
        Some((LOST_PLACE, text))
    }
}

impl Waiting {
    /// Whether it wants what a node with this access gets.
    fn wants(&self, mode: Mode) -> bool {
        match self.wish {
            Wish::Alone | Wish::Permits(_) => mode == Mode::Exclusive,
            Wish::Shared => mode == Mode::Shared,
        }
    }

    /// Whether it has time left.
    fn has_time(&self, clock: Duration) -> bool {
        self.limit.is_none_or(|limit| self.clock + limit > clock + LATE)
    }
}

impl Setting {
    /// The lock whose queue is in this folder, if threads of a process take turns for it.
    fn queue_of(&self, folder: &str) -> Option<&Place> {
        let place = self.place(folder).filter(|place| place.queue() == folder)?;
        (!matches!(place.recipe, Recipe::Exclusive | Recipe::Election)).then_some(place)
    }
}

fn is_for_permits(place: &Place) -> bool {
    matches!(place.recipe, Recipe::Semaphore { .. } | Recipe::SemaphoreMutex)
}
