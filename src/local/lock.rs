//! A lock as one process sees it. Its threads take turns, and the thread whose turn it is goes
//! through the queue at the server. A thread may hand its hold to the next thread, or leave it to
//! be kept for one that comes later; neither costs a round trip.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::keep::Keeper;
use super::queue::{LocalQueue, Wants};
use super::turn::Admission;
use crate::error::Result;
use crate::queue::HoldBounds;
use crate::queue::OnLoss;
use crate::queue::name::Kind;
use crate::queue::{Callbacks, HeldNode, Queue, Release, Request};
use crate::session::notifier::WatchRegistry;
use crate::world::atomic::{AtomicU64, Ordering};

/// What all locks of one path on one session share. `S` is a hold that several threads can share.
pub(crate) struct LocalLock<S = Infallible> {
    pub(crate) queue: Queue,
    pub(crate) turns: Arc<LocalQueue<Arc<LocalHold>, S>>,
    keeper: Arc<Keeper>,
    /// Notified when a hold of one thread is lost, whichever thread has it by then.
    pub(crate) losses: Arc<WatchRegistry<()>>,
}

/// A hold that one thread has at a time. `turn` is the number of that thread's turn, which changes
/// at each hand-over.
pub(crate) struct LocalHold {
    pub(crate) node: HeldNode,
    turn: Arc<AtomicU64>,
}

impl<S: Send + 'static> LocalLock<S> {
    pub(crate) fn new(queue: Queue) -> Self {
        let keeper = Keeper::new(queue.dir().to_owned());
        LocalLock { queue, turns: Arc::default(), keeper, losses: Arc::default() }
    }

    /// Takes the lock for this thread alone: from the thread before, from the keeper, or by way of
    /// the queue at the server. `is_held_here` says whether a thread of this process has a valid
    /// hold of the lock.
    pub(crate) fn hold(
        &self,
        request: &Request<'_>,
        kind: Kind,
        is_held_here: &dyn Fn() -> bool,
    ) -> Result<Option<Arc<LocalHold>>> {
        loop {
            let (turn, handed) = match self.turns.turn(request, Wants::All, is_held_here)? {
                Some(Admission::Turn(turn, handed)) => (turn, handed),
                Some(Admission::Share(_)) => continue, // never: this thread wants no share
                None => return Ok(None),
            };
            if let Some(local_hold) = handed.or_else(|| self.keeper.take()) {
                if local_hold.is_taken_over(turn.number) {
                    turn.becomes_hold();
                    return Ok(Some(local_hold));
                }
                // The hold was lost on its way here or while it was kept. The loss may have ended
                // this thread's turn too, so this thread waits for another one.
                drop(local_hold);
                continue;
            }
            let turn_of_hold = Arc::new(AtomicU64::new(turn.number));
            let on_loss = || {
                // The loss ends the turn, even if the guard lives on: a lost hold must not keep
                // other threads of this process from the lock.
                let (turns, turn, losses) =
                    (self.turns.clone(), turn_of_hold.clone(), self.losses.clone());
                Box::new(move || {
                    turns.leave(turn.fetch_add(0, Ordering::AcqRel));
                    losses.notify(&(), true);
                }) as OnLoss
            };
            let on_blocked = |is_blocked| turn.set_blocked(is_blocked);
            let callbacks =
                Callbacks { on_blocked: &on_blocked, on_loss: &on_loss, ..Callbacks::NONE };
            let Some(node) = self.queue.acquire(request, kind, &callbacks)? else {
                return Ok(None);
            };
            turn.becomes_hold();
            return Ok(Some(Arc::new(LocalHold { node, turn: turn_of_hold })));
        }
    }

    /// Ends a thread's hold. The hold goes to the thread that has waited longest, if its node has
    /// been first for less than `hand_over` and nobody asked for the lock. Otherwise it is kept for
    /// `keep`, if no other contender is in the queue. Otherwise its node is deleted; with `wait`,
    /// the caller can wait for the server's answer to that.
    pub(crate) fn release(
        &self,
        local_hold: &Arc<LocalHold>,
        (hand_over, keep): (Duration, Duration),
        wait: bool,
    ) -> Release {
        let (node, turn) = (&local_hold.node, local_hold.turn.load(Ordering::Acquire));
        if node.loss().is_none() {
            let is_kept = !keep.is_zero() && self.keeper.is_alone(local_hold);
            // This is read after `is_alone`: from then on the keeper is notified of a request to
            // let go.
            if !node.state().is_revoked() {
                // The bounds are this thread's. While no thread has the hold, it has none. If the time
                // was over just before, the hold is lost, and must be neither passed on nor kept.
                node.bind(&HoldBounds::default());
                let is_lost = node.loss().is_some();
                let is_kept = is_kept && !is_lost;
                let goes_on = is_kept || node.age() < hand_over && !is_lost;
                if goes_on && self.turns.pass(turn, local_hold.clone()).is_ok() {
                    return Release::of_guard_only(node, false);
                }
                // The keeper gets the hold before the turn ends, so that the next thread finds it
                // there.
                if is_kept && self.keeper.put(local_hold, keep) {
                    self.turns.leave(turn);
                    return Release::of_guard_only(node, false);
                }
            }
        }
        // The delete is sent before the next thread's create.
        let release = node.begin_release(wait);
        self.turns.leave(turn);
        release
    }

    pub(crate) fn describe(&self) -> &'static str {
        self.turns.describe()
    }
}

impl LocalHold {
    /// Another thread takes the hold over, with its turn. False: the hold is lost.
    ///
    /// A loss marks the hold first, and then reads its turn, by a `fetch_add` of 0, and ends that
    /// turn. Of the swap here and that `fetch_add` one is first. If the swap is first, the loss finds
    /// this turn and ends it. If the `fetch_add` is first, this thread finds the mark. A store here,
    /// or a load there, could both miss what the other thread has just written: the hold would be
    /// lost and keep its turn, and no other thread of this process would get the lock until the guard
    /// is dropped.
    ///
    /// The loss leaves the number where it is: a thread may drop its guard before the loss has ended
    /// the turn, and ends the turn itself then. Otherwise its next `try_lock` would find that the
    /// lock is taken, by nobody but itself.
    fn is_taken_over(&self, turn: u64) -> bool {
        self.turn.swap(turn, Ordering::AcqRel);
        let is_held = self.node.is_held();
        if is_held {
            self.node.hand_over();
        }
        is_held
    }
}
