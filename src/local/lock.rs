//! A lock as one process sees it. Its threads take turns, and the thread whose turn it is goes
//! through the queue at the server. A thread may hand its hold to the next thread, or leave it to
//! be kept for one that comes later; neither costs a round trip.
//!
//! # Who gives the turn on
//!
//! When a thread takes the lock, the local queue notes with which node (`LocalQueue::note_node`).
//! From then on the turn of that thread can be ended by the name of this node. Each end happens
//! under the queue's mutex. Three may end it:
//!
//! * **The holder**, when the last guard of its hold ends, or when it gives up its lost guards. It
//!   hands the node and the turn to the next thread (`LocalQueue::pass`). Or it leaves the node to
//!   the keeper or begins its delete, and ends the turn after that (`LocalQueue::end_hold`).
//! * **The loss**, whichever thread finds it: the supervisor when the lease or the hold's own time
//!   ends, the event loop when the node is gone, or a thread that asks whether it holds the lock.
//!   The node is marked as lost first. Then `on_loss` is called, once, by that thread or by the
//!   event loop, which has neither the lease's lock nor a queue's mutex then. It ends the turn for
//!   which the node is noted.
//! * **A thread that has just noted its node** and finds that mark (`Turn::becomes_hold`). It ends
//!   its own turn, by the turn's number, if that is not over.
//!
//! A turn that nobody ends is the worst outcome: no thread of the process gets the lock until the
//! process ends. A turn that is ended twice gives a second thread the turn while the first one
//! still has it. Then both are contenders at the server, and `try_lock` and the order of the
//! threads are wrong. So in each order of events exactly one of the three must end it:
//!
//! * *Released, then lost.* The release takes the node out of the lease, so the loss is not told.
//!   If the mark was set before that, `on_loss` may come at any later time. If it comes before the
//!   release has ended the turn, it ends the turn, and the release then finds its node noted
//!   nowhere. If it comes later, it finds that, and ends nothing.
//! * *Lost, then released.* The loss ends the turn, although the guard lives on. The release does
//!   not find its node noted, and ends nothing: the next thread may hold the lock by then.
//! * *Marked, released, told.* The holder does not leave the turn to the loss. Otherwise a thread
//!   that drops its lost guard, and tries again before the loss is told, would find the lock taken,
//!   by nobody but itself.
//! * *Handed over, then lost.* The queue has noted no node from `pass` until the next thread notes
//!   the same one. If the loss comes in between, it finds nothing to end. But the mark is there by
//!   then, so the next thread finds it, and ends the turn itself.
//! * *Lost, then handed over.* `pass` does not find the node noted, and hands over nothing.
//! * *Kept.* The thread that leaves a node to the keeper still has the turn, so no thread can take
//!   the node out before that turn ends. If a loss ends it first, another thread may note this node
//!   before the first one calls `end_hold`, which then ends the turn of that other thread. No harm
//!   is done: the node is lost for good, so that thread gives its turn up in any case.
//! * *Lost, then kept.* The thread looks for the mark before it leaves the node to the keeper. If
//!   the loss comes behind that look, the keeper gets a lost node, although the thread may have no
//!   turn any more. The next thread that takes the node out finds the mark, and drops the node. If
//!   no thread comes, the keeper lets it go when its time is over.
//! * *The time of a hold ends during its release.* The release takes the bound away (`bind`). If it
//!   has passed by then, the node is marked and the loss told at once, on this thread: the node is
//!   neither handed over nor kept. If not, no timer finds the bound any more.
//! * *A guard is leaked* (`mem::forget`). No release ever comes, so only a loss ends the turn. As
//!   long as the lease lasts, the lock is held.
//! * *A forked child* ends no turn. It has no supervisor and no event loop; each call and each drop
//!   of a guard asks first whether it is in the child, and touches no queue there, whose mutex may
//!   be locked for ever; and `is_held` says no without marking anything.
//!
//! If one thread hands its node to another, the name of the node does not say which of the two has
//! it. It need not: after `pass` the first thread never names the node again, and a loss ends the
//! turn of the thread that has the node then.

use std::convert::Infallible;
use std::sync::Arc;

use super::keep::Keeper;
use super::queue::{LocalQueue, Wants};
use super::turn::Admission;
use crate::error::Result;
use crate::queue::HoldBounds;
use crate::queue::OnLoss;
use crate::queue::name::Kind;
use crate::queue::settings::Settings;
use crate::queue::{Callbacks, EndBy, HeldNode, Queue, Release, Request};
use zk_session::notifier::WatchRegistry;

/// What all locks of one path on one session share. `S` is a hold that several threads can share.
pub(crate) struct LocalLock<S = Infallible> {
    pub(crate) queue: Queue,
    pub(crate) turns: Arc<LocalQueue<Arc<HeldNode>, S>>,
    keeper: Arc<Keeper>,
    /// Notified when a hold of one thread is lost, whichever thread has it by then.
    pub(crate) losses: Arc<WatchRegistry<()>>,
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
    ) -> Result<Option<Arc<HeldNode>>> {
        loop {
            let (turn, handed) = match self.turns.turn(request, Wants::All, is_held_here)? {
                Some(Admission::Turn(turn, handed)) => (turn, handed),
                Some(Admission::Share(_)) => continue, // never: this thread wants no share
                None => return Ok(None),
            };
            if let Some(node) = handed.or_else(|| self.keeper.take()) {
                if let Err(turn) = turn.becomes_hold(&node) {
                    // The hold was lost on its way here or while it was kept. The loss may have
                    // ended this thread's turn too, so this thread waits for another one.
                    drop(node);
                    drop(turn);
                    continue;
                }
                node.hand_over();
                return Ok(Some(node));
            }
            let on_loss = |node| {
                // The loss ends the turn, even if the guard lives on: a lost hold must not keep
                // other threads of this process from the lock.
                let (turns, losses) = (self.turns.clone(), self.losses.clone());
                Box::new(move || {
                    turns.end_hold(node);
                    losses.notify(&(), true);
                }) as OnLoss
            };
            let on_blocked = |is_blocked| turn.set_blocked(is_blocked);
            let callbacks =
                Callbacks { on_blocked: &on_blocked, on_loss: &on_loss, ..Callbacks::NONE };
            let Some(node) = self.queue.acquire(request, kind, &callbacks)? else {
                return Ok(None);
            };
            drop(turn.becomes_hold(&node)); // if it is lost by now, the turn ends here
            return Ok(Some(Arc::new(node)));
        }
    }

    /// Ends a thread's hold. The hold goes to the thread that has waited longest, if its node has
    /// been first for less than the lock's `hand_over` and nobody asked for the lock. Otherwise it
    /// is kept for `keep`, if no other contender is in the queue. Otherwise its node is deleted.
    pub(crate) fn release(
        &self,
        node: &Arc<HeldNode>,
        settings: &Settings,
        end_by: EndBy,
    ) -> Release {
        if node.loss().is_none() {
            let Settings { hand_over, keep, .. } = *settings;
            let is_kept = !keep.is_zero() && self.keeper.is_alone(node);
            // This is read after `is_alone`: from then on the keeper is notified of a request to
            // let go.
            if !node.state().is_revoked() {
                // The bounds are this thread's. While no thread has the hold, it has none. If the time
                // was over just before, the hold is lost, and must be neither passed on nor kept.
                node.bind(&HoldBounds::default());
                let is_lost = node.loss().is_some();
                let is_kept = is_kept && !is_lost;
                let goes_on = is_kept || node.age() < hand_over && !is_lost;
                if goes_on && self.turns.pass(node.key(), node.clone()).is_ok() {
                    return Release::of_guard_only(node, EndBy::Drop);
                }
                // The keeper gets the hold before the turn ends, so that the next thread finds it
                // there.
                if is_kept && self.keeper.put(node, keep) {
                    self.turns.end_hold(node.key());
                    return Release::of_guard_only(node, EndBy::Drop);
                }
            }
        }
        self.end(node, end_by)
    }

    /// Ends a thread's hold, which goes to no other thread of this process: its node is deleted.
    pub(crate) fn end(&self, node: &HeldNode, end_by: EndBy) -> Release {
        // The delete is sent before the next thread's create.
        let release = node.begin_release(end_by);
        self.turns.end_hold(node.key());
        release
    }

    pub(crate) fn describe(&self) -> &'static str {
        self.turns.describe()
    }
}
