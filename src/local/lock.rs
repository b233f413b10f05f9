//! One process's way to a lock: its threads take turns, and whoever's turn it is goes through the
//! queue at the server.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use super::hold::LocalHold;
use super::hold::NO_TURN;
use super::keep::Keeper;
use crate::error::{Cause, Error, Result};
use crate::limit::Limit;
use crate::local::queue::{LocalQueue, TurnOutcome, TurnPhase, Wants};
use crate::queue::name::Kind;
use crate::queue::{HeldNode, Mode, Queue, QueueRequest, Release};
use crate::session::notifier::WatchRegistry;
use crate::session::{SessionState, ZkSession};
use crate::world::atomic::{AtomicU64, Ordering};

/// `S` is what several threads can have at once.
pub(crate) struct LocalLock<S = Infallible> {
    pub(crate) queue: Queue,
    local_queue: Arc<LocalQueue<Arc<LocalHold>, S>>,
    keeper: Arc<Keeper>,
    /// Rings when a hold of one thread alone is lost, whichever thread has it by then.
    pub(crate) losses: Arc<WatchRegistry<()>>,
}

/// What one thread asks for.
pub(crate) struct LocalRequest<'a> {
    pub(crate) session: &'a ZkSession,
    /// The lock's path, as the user gave it.
    pub(crate) path: &'a str,
    pub(crate) kind: Kind,
    pub(crate) mode: Mode,
    pub(crate) limit: Limit<'a>,
    pub(crate) data: &'a [u8],
    /// Whether some thread of this process holds the lock, validly.
    pub(crate) is_held_here: &'a dyn Fn() -> bool,
}

/// A turn that is passed on unless it leads to a hold.
pub(crate) struct Turn<'a, S> {
    local_queue: &'a LocalQueue<Arc<LocalHold>, S>,
    number: u64,
    contended: bool,
}

/// What a wait for the turn led to.
pub(crate) enum Admission<'a, S> {
    /// The turn, and perhaps the lock.
    Turn(Turn<'a, S>, Option<Arc<LocalHold>>),
    /// Another thread has let this one in.
    Share(S),
}

impl<S: Send + 'static> LocalLock<S> {
    pub(crate) fn new(queue: Queue) -> Self {
        let keeper = Keeper::new(queue.dir().to_owned());
        LocalLock {
            queue,
            local_queue: Arc::new(LocalQueue::new()),
            keeper,
            losses: Arc::default(),
        }
    }

    /// The lock for this thread alone: handed over by another thread, or by way of the queue.
    pub(crate) fn hold(&self, request: &LocalRequest<'_>) -> Result<Option<Arc<LocalHold>>> {
        loop {
            let (turn, handed) = match self.enter(request, Wants::All)? {
                Some(Admission::Turn(turn, handed)) => (turn, handed),
                Some(Admission::Share(_)) => continue, // never: it is not what was asked for
                None => return Ok(None),
            };
            let number = turn.number;
            if let Some(local_hold) = handed.or_else(|| self.keeper.take()) {
                if local_hold.is_taken_over(number) {
                    self.local_queue.set_phase(number, TurnPhase::Holding);
                    turn.keep();
                    return Ok(Some(local_hold));
                }
                // Lost on the way here, or while it was kept; its turn may be over with it.
                drop(local_hold);
                continue;
            }
            let cell = Arc::new(AtomicU64::new(number));
            let on_loss = || {
                // A lost hold blocks no other thread, even if its guard stays.
                let (local_queue, cell, losses) =
                    (self.local_queue.clone(), cell.clone(), self.losses.clone());
                Box::new(move || {
                    local_queue.leave(cell.swap(NO_TURN, Ordering::AcqRel));
                    losses.notify(&(), true);
                }) as Box<dyn FnOnce() + Send>
            };
            let Some(held_node) = self.go(request, &turn, &on_loss)? else { return Ok(None) };
            let local_hold = Arc::new(LocalHold::new(held_node, cell));
            self.local_queue.set_phase(number, TurnPhase::Holding);
            turn.keep();
            return Ok(Some(local_hold));
        }
    }

    /// This thread's turn, which it passes on when it has what it wants; or what another thread
    /// shares with it.
    pub(crate) fn turn(&self, request: &LocalRequest<'_>) -> Result<Option<Admission<'_, S>>> {
        self.enter(request, Wants::Share)
    }

    /// Goes through the queue for a hold that does not keep the turn.
    pub(crate) fn share(
        &self,
        request: &LocalRequest<'_>,
        turn: &Turn<'_, S>,
    ) -> Result<Option<HeldNode>> {
        self.go(request, turn, &|| Box::new(|| ()))
    }

    fn enter(&self, request: &LocalRequest<'_>, wants: Wants) -> Result<Option<Admission<'_, S>>> {
        let path = || request.path.to_owned();
        let (number, handed, contended) =
            match self.local_queue.enter(request.mode == Mode::Try, wants, &request.limit) {
                TurnOutcome::Turn { number, handed, contended } => (number, handed, contended),
                TurnOutcome::Share(share) => return Ok(Some(Admission::Share(share))),
                TurnOutcome::Busy | TurnOutcome::Deadline { contended: true } => {
                    return busy(request).map(|()| None);
                }
                TurnOutcome::Deadline { contended: false } => {
                    return Err(unavailable(request, Cause::Deadline));
                }
                TurnOutcome::Cancelled => return Err(Error::Cancelled { path: path() }),
            };
        let turn = Turn { local_queue: &self.local_queue, number, contended };
        if request.session.state() == SessionState::Closed {
            return Err(Error::Closed { op: "lock", path: path() });
        }
        Ok(Some(Admission::Turn(turn, handed)))
    }

    fn go(
        &self,
        request: &LocalRequest<'_>,
        turn: &Turn<'_, S>,
        on_loss: &dyn Fn() -> crate::session::leased_node::OnLoss,
    ) -> Result<Option<HeldNode>> {
        let phase = |blocked| {
            self.local_queue.set_phase(
                turn.number,
                if blocked { TurnPhase::Blocked } else { TurnPhase::Asking },
            );
        };
        self.queue.acquire(&QueueRequest {
            core: request.session.core(),
            kind: request.kind,
            mode: request.mode,
            limit: request.limit,
            endures: None,
            contended: turn.contended,
            data: request.data,
            on_id: &|_| (),
            on_blocked: &phase,
            on_loss,
        })
    }

    /// Lets a hold of this thread alone go: to the thread that waits longest, if its node has been
    /// first for less than `hand_over` and nobody asked for it; or it is kept for `keep`, if nobody
    /// else asks for the lock; else its node is deleted. With `wait`, what the server says of that
    /// can be waited for.
    pub(crate) fn release(
        &self,
        local_hold: &Arc<LocalHold>,
        (hand_over, keep): (Duration, Duration),
        wait: bool,
    ) -> Release {
        let (held_node, turn) = (&local_hold.node, local_hold.turn());
        if held_node.loss().is_none() {
            let is_kept = !keep.is_zero() && self.keeper.is_alone(local_hold);
            // Asked behind that: a request to let go that comes later is told to the keeper.
            if !held_node.leased().is_revoked() {
                let goes_on = is_kept || held_node.age() < hand_over;
                if goes_on && self.local_queue.pass(turn, local_hold.clone()).is_ok() {
                    return Release::of_guard_only(held_node, false);
                }
                // Before the turn ends: the next thread must find it.
                if is_kept && self.keeper.put(local_hold, keep) {
                    self.local_queue.leave(turn);
                    return Release::of_guard_only(held_node, false);
                }
            }
        }
        // The delete is on its way before the next thread's create.
        let release = held_node.begin_release(wait);
        self.local_queue.leave(turn);
        release
    }

    pub(crate) fn describe(&self) -> &'static str {
        match self.local_queue.phase() {
            None => "<unlocked here>",
            Some(TurnPhase::Holding) => "<locked here>",
            Some(_) => "<waiting>",
        }
    }
}

/// Somebody else has the lock, if an outage does not make that hearsay.
fn busy(request: &LocalRequest<'_>) -> Result<()> {
    match request.session.state() {
        SessionState::Connected => Ok(()),
        SessionState::Closed => Err(Error::Closed { op: "lock", path: request.path.to_owned() }),
        _ if (request.is_held_here)() => Ok(()),
        _ => Err(unavailable(request, Cause::ConnectionLost)),
    }
}

fn unavailable(request: &LocalRequest<'_>, cause: Cause) -> Error {
    Error::Unavailable { op: "lock", path: request.path.to_owned(), cause }
}

impl<S> Turn<'_, S> {
    /// Lets in the thread that waits longest, if it wants a share; else this comes back.
    pub(crate) fn share(&self, share: S) -> std::result::Result<(), S> {
        self.local_queue.share(self.number, share)
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl<S> Drop for Turn<'_, S> {
    fn drop(&mut self) {
        self.local_queue.leave(self.number);
    }
}
