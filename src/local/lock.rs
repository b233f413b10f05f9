//! A lock as one process sees it. Its threads take turns, and the thread whose turn it is goes
//! through the queue at the server. A thread may hand its hold to the next thread, or leave it to
//! be kept for one that comes later; neither costs a round trip. A thread waits for its turn in the
//! local queue. [`Admission`] says what the end of that wait means to it.
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

use std::cell::Cell;
use std::convert::Infallible;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

use super::keep::Keeper;
use super::queue::{LocalQueue, TurnOutcome, TurnPhase, Wants, With};
use crate::error::{Error, LossReason, Result};
use crate::queue::name::{Kind, NodeKey};
use crate::queue::request::Mode;
use crate::queue::{
    Callbacks, EndBy, HeldNode, HoldBounds, OnLoss, Place, Queue, Release, Request,
};
use std::time::Duration;
use zk_session::SessionState;
use zk_session::unstable::WatchRegistry;
use zk_session::world::Instant;

/// What all locks of one path on one session share. `S` is a hold that several threads can share.
pub(crate) struct LocalLock<S = Infallible> {
    pub(crate) queue: Queue,
    pub(crate) turns: Arc<Turns<Arc<HeldNode>, S>>,
    /// How far a thread is that has the lock. A semaphore's mutex is only passed: its hold shows
    /// nothing about the permits.
    held: TurnPhase,
    keeper: Arc<Keeper>,
    /// Notified when a hold of one thread is lost, whichever thread has it by then.
    pub(crate) losses: Arc<WatchRegistry<()>>,
}

impl<S: Send + 'static> LocalLock<S> {
    pub(crate) fn new(queue: Queue) -> Self {
        let keeper = Keeper::new(queue.dir().to_owned());
        let held = TurnPhase::Held;
        LocalLock { queue, turns: Arc::default(), held, keeper, losses: Arc::default() }
    }

    /// A lock that threads pass on their way to something else. Its hold is no contention until
    /// [`found_taken`](Self::found_taken) says that the other thing is taken.
    pub(crate) fn passed(queue: Queue) -> Self {
        LocalLock { held: TurnPhase::Requesting, ..LocalLock::new(queue) }
    }

    pub(crate) fn found_taken(&self, passage: &HeldNode) {
        self.turns.set_phase_of(passage.key(), TurnPhase::Held);
    }

    /// Takes the lock for this thread alone: from the thread before, from the keeper, or by way of
    /// the queue at the server.
    pub(crate) fn hold(&self, request: &Request<'_>, kind: Kind) -> Result<Option<Arc<HeldNode>>> {
        loop {
            let (mut turn, handed) = match self.turns.turn(request, Wants::All)? {
                Some(Admission::Turn(turn, handed)) => (turn, handed),
                Some(Admission::Share(_)) => continue, // never: this thread wants no share
                None => return Ok(None),
            };
            if let Some(node) = handed.or_else(|| self.keeper.take()) {
                if let Err(turn) = turn.becomes_hold(&node, self.held) {
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
            let Some(node) = turn.acquire(&self.queue, request, kind, &on_loss)? else {
                return Ok(None);
            };
            drop(turn.becomes_hold(&node, self.held)); // if it is lost by now, the turn ends here
            return Ok(Some(Arc::new(node)));
        }
    }

    /// Ends a thread's hold. The hold goes to the thread that has waited longest, if its node has
    /// been first for less than `hand_over` and no client asked for the lock. Otherwise it is kept
    /// for `keep`, if no other contender is in the queue. Otherwise its node is deleted. `loss`: the
    /// hold was lost before, for this reason.
    pub(crate) fn release(
        &self,
        node: &Arc<HeldNode>,
        hand_over: Duration,
        keep: Duration,
        loss: Option<LossReason>,
        end_by: EndBy,
    ) -> Release {
        if loss.is_none() {
            let is_kept = !keep.is_zero() && self.keeper.is_alone(node);
            // This is read after `is_alone`: from then on the keeper is notified of a request to
            // let go.
            if !node.state().is_revoked() {
                // The bounds are this thread's. While no thread has the hold, it has none. If the
                // time was over just before, the hold is lost, and must be neither passed on nor
                // kept.
                node.bind(&HoldBounds::default());
                let is_lost = node.loss().is_some();
                let is_kept = is_kept && !is_lost;
                let goes_on = is_kept || node.age() < hand_over && !is_lost;
                if goes_on && self.turns.pass(node.key(), node.clone()).is_ok() {
                    return Release::of_hold(None);
                }
                // The keeper gets the hold before the turn ends, so that the next thread finds it
                // there.
                if is_kept && self.keeper.put(node, keep) {
                    self.turns.end_hold(node.key());
                    return Release::of_hold(None);
                }
            }
        }
        self.end(node, loss, end_by)
    }

    /// Ends a thread's hold, which goes to no other thread of this process: its node is deleted.
    pub(crate) fn end(&self, node: &HeldNode, loss: Option<LossReason>, end_by: EndBy) -> Release {
        // The delete is sent before the next thread's create.
        let release = node.begin_release(loss, end_by);
        self.turns.end_hold(node.key());
        release
    }

    pub(crate) fn describe(&self) -> &'static str {
        self.turns.describe()
    }
}

// ---- turns ----

/// The turns of the threads of one lock.
pub(crate) type Turns<H, S> = LocalQueue<H, Box<Place>, S, HoldBounds>;

/// A thread's turn. Its drop gives the turn to the next thread, unless the turn became a hold. So
/// the thread's place in the queue at the server outlives a call that ends without the lock, in
/// whatever way, as long as another thread waits for it.
pub(crate) struct Turn<'a, H, S> {
    queue: &'a Arc<Turns<H, S>>,
    number: u64,
    place: Option<Box<Place>>,
}

/// What a wait for a turn led to.
pub(crate) enum Admission<'a, H, S> {
    /// The turn, and the hold with it if the thread before handed its own over.
    Turn(Turn<'a, H, S>, Option<H>),
    /// Another thread shares its hold with this one.
    Share(S),
}

impl<H, S> Turns<H, S> {
    /// Waits for a turn. `None`: contention, as [`end_of_time`](crate::queue::end_of_time) says.
    pub(crate) fn turn(
        self: &Arc<Self>,
        request: &Request<'_>,
        wants: Wants<HoldBounds>,
    ) -> Result<Option<Admission<'_, H, S>>> {
        let (call, settings) = (request.call, request.settings);
        let given_up = Cell::new(None);
        let look = || {
            let (lasted, next) = request.long_wait();
            if let Some(lasted) = lasted {
                let (path, seconds) = (&settings.path, lasted.as_secs());
                let ahead = match self.phase() {
                    Some(TurnPhase::Held) => "holds it",
                    _ => "is ahead, and waits at the server",
                };
                warn!("{path}: waiting for {seconds} s; another thread of this process {ahead}");
            }
            match outage_limit(request) {
                Ok(until) => Continue([next, until].into_iter().flatten().min()),
                Err(e) => {
                    given_up.set(Some(e));
                    Break(())
                }
            }
        };
        // The queue may have learnt from before an outage that somebody else has the lock.
        let end_of_time = || request.end_of_time().map(|()| None);
        let is_try = request.mode == Mode::Try;
        let (number, with, contended) = match self.enter(is_try, wants, &request.limit(), &look) {
            TurnOutcome::Turn { number, with, contended } => (number, with, contended),
            TurnOutcome::Share(share) => return Ok(Some(Admission::Share(share))),
            TurnOutcome::Busy => {
                request.contended_until_now();
                return end_of_time();
            }
            TurnOutcome::Deadline { contended } => {
                if let Some(e) = given_up.take() {
                    return Err(e);
                }
                if contended {
                    request.contended_until_now();
                }
                return end_of_time();
            }
            TurnOutcome::Cancelled => return Err(request.cancelled()),
        };
        let mut turn = Turn { queue: self, number, place: None };
        let mut handed = None;
        match with {
            With::Nothing => {}
            With::Hold(hold) => handed = Some(hold),
            With::Place(place) => turn.place = Some(place),
        }
        match (contended, &handed) {
            (true, None) => request.contended(),
            (true, Some(_)) => request.contended_until_now(),
            (false, _) => {}
        }
        if settings.core().state() == SessionState::Closed {
            return Err(Error::Closed { op: call.op, path: settings.path.clone() });
        }
        Ok(Some(Admission::Turn(turn, handed)))
    }
}

/// When to ask this again, if at all. An error if the request has waited in an outage for as long
/// as the retry policy lets it: the thread that is ahead may wait longer, until its own deadline.
fn outage_limit(request: &Request<'_>) -> Result<Option<Instant>> {
    if request.limit().has_deadline() {
        return Ok(None);
    }
    let (op, path) = (request.call.op, &request.settings.path);
    let unavailable = |cause| Error::Unavailable { op, path: path.clone(), cause };
    request.core().outage_limit(request.call.begun()).map_err(unavailable)
}

impl<H, S> Turn<'_, H, S> {
    /// Notes whether the server shows somebody ahead. If so, threads that only try stop waiting.
    pub(crate) fn set_blocked(&self, is_blocked: bool) {
        self.queue.set_phase(self.number, TurnPhase::asking(is_blocked));
    }

    /// Goes on with this turn's place, or with a new one, through the queue at the server.
    pub(crate) fn acquire(
        &mut self,
        queue: &Queue,
        request: &Request<'_>,
        kind: Kind,
        on_loss: &dyn Fn(NodeKey) -> OnLoss,
    ) -> Result<Option<HeldNode>> {
        let Turn { queue: turns, number, place, .. } = self;
        let on_blocked = |is_blocked| turns.set_phase(*number, TurnPhase::asking(is_blocked));
        let callbacks = Callbacks { on_blocked: &on_blocked, on_loss, ..Callbacks::NONE };
        loop {
            let done = queue.acquire(request, kind, &callbacks, place)?;
            // Without a deadline it was one request that took too long while others were ahead. The
            // thread goes on with its turn and its place: threads that came later come later.
            if done.is_some() || request.limit().has_deadline() {
                return Ok(done);
            }
        }
    }

    /// Lets in the thread that has waited longest, if it wants a share with these bounds. Otherwise
    /// the share comes back.
    pub(crate) fn share(&self, bounds: HoldBounds, share: S) -> std::result::Result<(), S> {
        self.queue.share(self.number, bounds, share)
    }

    /// The thread holds the lock now, with `node`. It keeps its turn until the hold ends. The turn
    /// comes back if the node is lost.
    ///
    /// A loss marks the node first, and then ends the turn for which the node is noted
    /// (`LocalQueue::end_hold`). Here it is the other way round: the node is noted first, and then
    /// the mark is looked for. So the loss finds this turn and ends it, or this thread finds the
    /// mark. If the mark were looked for first, both could miss what the other has just done: the
    /// hold would be lost and keep its turn, and no other thread of this process would get the lock
    /// until the guard is dropped. (The comment at the top of this file has all orders of events.)
    ///
    /// Threads that only try are told that the lock is taken only behind that look: a node that was
    /// lost before it came to this thread was held by nobody.
    pub(crate) fn becomes_hold(
        self,
        node: &HeldNode,
        held: TurnPhase,
    ) -> std::result::Result<(), Self> {
        self.queue.note_node(self.number, node.key());
        if !node.is_held() {
            return Err(self);
        }
        self.queue.set_phase(self.number, held);
        std::mem::forget(self);
        Ok(())
    }
}

impl<H, S> Drop for Turn<'_, H, S> {
    fn drop(&mut self) {
        self.queue.leave(self.number, self.place.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZkSession;
    use crate::queue::NewNode;
    use std::time::Duration;
    use zk_session::unstable::Limit;
    use zk_test_server::TestServer;

    /// A node that was lost before it came to this thread is held by nobody. Another thread that
    /// only tries must not be told that the lock is taken: it gets the turn.
    #[test]
    fn a_thread_that_gets_a_lost_node_keeps_no_try_from_the_turn() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let node =
            HeldNode::grant(&generation, NewNode::named("/l/n"), Callbacks::NONE.on_loss).unwrap();
        node.seen_gone();
        let queue = Arc::new(Turns::<(), ()>::default());
        let enter = |is_try| {
            let limit = Limit::after(Duration::from_secs(60));
            queue.enter(is_try, Wants::All, &limit, &|| Continue(None))
        };
        let TurnOutcome::Turn { number, .. } = enter(false) else { panic!("no turn") };
        let turn = Turn { queue: &queue, number, place: None };
        std::thread::scope(|scope| {
            let tries = scope.spawn(|| matches!(enter(true), TurnOutcome::Turn { .. }));
            while !queue.has_waiters() {
                std::thread::yield_now();
            }
            let lost = turn.becomes_hold(&node, TurnPhase::Held);
            assert!(lost.is_err());
            drop(lost);
            assert!(tries.join().unwrap(), "the try was told that the lock is taken");
        });
    }
}
