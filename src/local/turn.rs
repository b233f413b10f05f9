//! A thread's turn at a lock within this process.
//!
//! A recipe takes a turn before it sends anything to the server. This file waits for it in the
//! local queue, and says what the end of that wait means to the caller: a turn, a hold that another
//! thread handed over, contention, or an error.

use std::cell::Cell;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;

use super::queue::{LocalQueue, TurnOutcome, TurnPhase, Wants};
use crate::error::{Error, Result};
use crate::queue::{HeldNode, Request};
use crate::wait::Mode;
use zk_session::SessionState;
use zk_session::world::Instant;

/// A thread's turn. Its drop gives the turn to the next thread, unless the turn became a hold.
pub(crate) struct Turn<'a, H, S> {
    queue: &'a Arc<LocalQueue<H, S>>,
    number: u64,
}

/// What a wait for a turn led to.
pub(crate) enum Admission<'a, H, S> {
    /// The turn, and the hold with it if the thread before handed its own over.
    Turn(Turn<'a, H, S>, Option<H>),
    /// Another thread shares its hold with this one.
    Share(S),
}

impl<H, S> LocalQueue<H, S> {
    /// Waits for a turn. `None`: contention, as [`end_of_time`](crate::queue::end_of_time) says.
    /// `is_held_here` says whether a thread of this process has a valid hold of the lock.
    pub(crate) fn turn(
        self: &Arc<Self>,
        request: &Request<'_>,
        wants: Wants,
        is_held_here: &dyn Fn() -> bool,
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
        let end_of_time = || request.end_of_time(is_held_here).map(|()| None);
        let is_try = request.mode == Mode::Try;
        let (number, handed, contended) = match self.enter(is_try, wants, &request.limit, &look) {
            TurnOutcome::Turn { number, handed, contended } => (number, handed, contended),
            TurnOutcome::Share(share) => return Ok(Some(Admission::Share(share))),
            TurnOutcome::Busy => {
                request.contended_until_now();
                return end_of_time();
            }
            TurnOutcome::Deadline => {
                if let Some(e) = given_up.take() {
                    return Err(e);
                }
                // Another thread of this process was ahead. A thread that only tries wants to know
                // whether that thread gets the lock, or somebody ahead of it. As long as that
                // thread's requests have no answer, no server has said so.
                let is_answered =
                    || matches!(self.phase(), Some(TurnPhase::Held | TurnPhase::Blocked));
                if request.mode == Mode::Wait || is_answered() {
                    request.contended_until_now();
                }
                return end_of_time();
            }
            TurnOutcome::Cancelled => return Err(request.cancelled()),
        };
        let turn = Turn { queue: self, number };
        match (contended, &handed) {
            (true, None) => request.contended(),
            (true, Some(_)) => request.contended_until_now(),
            (false, _) => {}
        }
        if settings.session.state() == SessionState::Closed {
            return Err(Error::Closed { op: call.op, path: settings.path.clone() });
        }
        Ok(Some(Admission::Turn(turn, handed)))
    }
}

/// When to ask this again, if at all. An error if the request has waited in an outage for as long
/// as the retry policy lets it: the thread that is ahead may wait longer, until its own deadline.
fn outage_limit(request: &Request<'_>) -> Result<Option<Instant>> {
    if request.limit.has_deadline() {
        return Ok(None);
    }
    let (op, path) = (request.call.op, &request.settings.path);
    let unavailable = |cause| Error::Unavailable { op, path: path.clone(), cause };
    request.core().outage_limit(request.call.begun()).map_err(unavailable)
}

impl<H, S> Turn<'_, H, S> {
    /// Notes whether the server shows somebody ahead. If so, threads that only try stop waiting.
    pub(crate) fn set_blocked(&self, is_blocked: bool) {
        let phase = if is_blocked { TurnPhase::Blocked } else { TurnPhase::Requesting };
        self.queue.set_phase(self.number, phase);
    }

    /// Lets in the thread that has waited longest, if it wants a share. Otherwise the share comes
    /// back.
    pub(crate) fn share(&self, share: S) -> std::result::Result<(), S> {
        self.queue.share(self.number, share)
    }

    /// The thread holds the lock now, with `node`. It keeps its turn until the hold ends. The turn
    /// comes back if the node is lost.
    ///
    /// A loss marks the node first, and then ends the turn for which the node is noted
    /// (`LocalQueue::end_hold`). Here it is the other way round: the node is noted first, and then
    /// the mark is looked for. So the loss finds this turn and ends it, or this thread finds the
    /// mark. If the mark were looked for first, both could miss what the other has just done: the
    /// hold would be lost and keep its turn, and no other thread of this process would get the lock
    /// until the guard is dropped. (The comment at the top of `local/lock.rs` has all orders of
    /// events.)
    ///
    /// Threads that only try are told that the lock is taken only behind that look: a node that was
    /// lost before it came to this thread was held by nobody.
    pub(crate) fn becomes_hold(self, node: &HeldNode) -> std::result::Result<(), Self> {
        self.queue.note_node(self.number, node.key());
        if !node.is_held() {
            return Err(self);
        }
        self.queue.set_phase(self.number, TurnPhase::Held);
        std::mem::forget(self);
        Ok(())
    }
}

impl<H, S> Drop for Turn<'_, H, S> {
    fn drop(&mut self) {
        self.queue.leave(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ZkSession;
    use crate::queue::{Callbacks, NewNode};
    use std::time::Duration;
    use zk_session::limit::Limit;
    use zk_test_server::TestServer;

    /// A node that was lost before it came to this thread is held by nobody. Another thread that
    /// only tries must not be told that the lock is taken: it gets the turn.
    #[test]
    fn a_thread_that_gets_a_lost_node_keeps_no_try_from_the_turn() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(&server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let node =
            HeldNode::grant(&generation, NewNode::named("/l/n"), Callbacks::NONE.on_loss).unwrap();
        node.seen_gone();
        let queue = Arc::new(LocalQueue::<(), ()>::default());
        let enter = |is_try| {
            let limit = Limit::after(Duration::from_secs(60));
            queue.enter(is_try, Wants::All, &limit, &|| Continue(None))
        };
        let TurnOutcome::Turn { number, .. } = enter(false) else { panic!("no turn") };
        let turn = Turn { queue: &queue, number };
        std::thread::scope(|scope| {
            let tries = scope.spawn(|| matches!(enter(true), TurnOutcome::Turn { .. }));
            while !queue.has_waiters() {
                std::thread::yield_now();
            }
            let lost = turn.becomes_hold(&node);
            assert!(lost.is_err());
            drop(lost);
            assert!(tries.join().unwrap(), "the try was told that the lock is taken");
        });
    }
}
