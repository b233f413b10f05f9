//! One process's way to a lock: its threads take turns, and whoever's turn it is goes through the
//! queue at the server.

mod keep;
mod tenure;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use self::keep::Keeper;
use self::tenure::NO_TURN;
pub(crate) use self::tenure::Tenure;
use crate::error::{Cause, Error, Result};
use crate::limit::Limit;
use crate::local::turnstile::{Entry, Phase, Turnstile, Wants};
use crate::queue::name::Kind;
use crate::queue::{Holding, Mode, Queue, Release, Request};
use crate::session::bell::Bells;
use crate::session::{SessionState, ZkSession};
use crate::world::atomic::{AtomicU64, Ordering};

/// `S` is what several threads can have at once.
pub(crate) struct Lane<S = Infallible> {
    pub(crate) queue: Queue,
    turnstile: Arc<Turnstile<Arc<Tenure>, S>>,
    keeper: Arc<Keeper>,
    /// Rings when a hold of one thread alone is lost, whichever thread has it by then.
    pub(crate) losses: Arc<Bells<()>>,
}

/// What one thread asks for.
pub(crate) struct Ask<'a> {
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
    turnstile: &'a Turnstile<Arc<Tenure>, S>,
    number: u64,
    contended: bool,
}

/// What a wait for the turn led to.
pub(crate) enum Admission<'a, S> {
    /// The turn, and perhaps the lock.
    Turn(Turn<'a, S>, Option<Arc<Tenure>>),
    /// Another thread has let this one in.
    Share(S),
}

impl<S: Send + 'static> Lane<S> {
    pub(crate) fn new(queue: Queue) -> Self {
        let keeper = Keeper::new(queue.dir().to_owned());
        Lane { queue, turnstile: Arc::new(Turnstile::new()), keeper, losses: Arc::default() }
    }

    /// The lock for this thread alone: handed over by another thread, or by way of the queue.
    pub(crate) fn hold(&self, ask: &Ask<'_>) -> Result<Option<Arc<Tenure>>> {
        loop {
            let (turn, baton) = match self.enter(ask, Wants::All)? {
                Some(Admission::Turn(turn, baton)) => (turn, baton),
                Some(Admission::Share(_)) => continue, // never: it is not what was asked for
                None => return Ok(None),
            };
            let number = turn.number;
            if let Some(tenure) = baton.or_else(|| self.keeper.take()) {
                if tenure.is_taken_over(number) {
                    self.turnstile.set_phase(number, Phase::Holding);
                    turn.keep();
                    return Ok(Some(tenure));
                }
                // Lost on the way here, or while it was kept; its turn may be over with it.
                drop(tenure);
                continue;
            }
            let cell = Arc::new(AtomicU64::new(number));
            let on_loss = || {
                // A lost hold blocks no other thread, even if its guard stays.
                let (turnstile, cell, losses) =
                    (self.turnstile.clone(), cell.clone(), self.losses.clone());
                Box::new(move || {
                    turnstile.leave(cell.swap(NO_TURN, Ordering::AcqRel));
                    losses.ring(&(), true);
                }) as Box<dyn FnOnce() + Send>
            };
            let Some(holding) = self.go(ask, &turn, &on_loss)? else { return Ok(None) };
            let tenure = Arc::new(Tenure::new(holding, cell));
            self.turnstile.set_phase(number, Phase::Holding);
            turn.keep();
            return Ok(Some(tenure));
        }
    }

    /// This thread's turn, which it passes on when it has what it wants; or what another thread
    /// shares with it.
    pub(crate) fn turn(&self, ask: &Ask<'_>) -> Result<Option<Admission<'_, S>>> {
        self.enter(ask, Wants::Share)
    }

    /// Goes through the queue for a hold that does not keep the turn.
    pub(crate) fn share(&self, ask: &Ask<'_>, turn: &Turn<'_, S>) -> Result<Option<Holding>> {
        self.go(ask, turn, &|| Box::new(|| ()))
    }

    fn enter(&self, ask: &Ask<'_>, wants: Wants) -> Result<Option<Admission<'_, S>>> {
        let path = || ask.path.to_owned();
        let (number, baton, contended) =
            match self.turnstile.enter(ask.mode == Mode::Try, wants, &ask.limit) {
                Entry::Turn { number, baton, contended } => (number, baton, contended),
                Entry::Share(share) => return Ok(Some(Admission::Share(share))),
                Entry::Busy | Entry::Deadline { contended: true } => {
                    return busy(ask).map(|()| None);
                }
                Entry::Deadline { contended: false } => {
                    return Err(unavailable(ask, Cause::Deadline));
                }
                Entry::Cancelled => return Err(Error::Cancelled { path: path() }),
            };
        let turn = Turn { turnstile: &self.turnstile, number, contended };
        if ask.session.state() == SessionState::Closed {
            return Err(Error::Closed { op: "lock", path: path() });
        }
        Ok(Some(Admission::Turn(turn, baton)))
    }

    fn go(
        &self,
        ask: &Ask<'_>,
        turn: &Turn<'_, S>,
        on_loss: &dyn Fn() -> crate::session::hold::OnLoss,
    ) -> Result<Option<Holding>> {
        let phase = |blocked| {
            self.turnstile
                .set_phase(turn.number, if blocked { Phase::Blocked } else { Phase::Asking });
        };
        self.queue.acquire(&Request {
            core: ask.session.core(),
            kind: ask.kind,
            mode: ask.mode,
            limit: ask.limit,
            endures: None,
            contended: turn.contended,
            data: ask.data,
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
        tenure: &Arc<Tenure>,
        (hand_over, keep): (Duration, Duration),
        wait: bool,
    ) -> Release {
        let (holding, turn) = (&tenure.holding, tenure.turn());
        if holding.loss().is_none() {
            let is_kept = !keep.is_zero() && self.keeper.is_alone(tenure);
            // Asked behind that: a request to let go that comes later is told to the keeper.
            if !holding.hold().is_revoked() {
                let goes_on = is_kept || holding.age() < hand_over;
                if goes_on && self.turnstile.pass(turn, tenure.clone()).is_ok() {
                    return Release::of_guard_only(holding, false);
                }
                // Before the turn ends: the next thread must find it.
                if is_kept && self.keeper.put(tenure, keep) {
                    self.turnstile.leave(turn);
                    return Release::of_guard_only(holding, false);
                }
            }
        }
        // The delete is on its way before the next thread's create.
        let release = holding.begin_release(wait);
        self.turnstile.leave(turn);
        release
    }

    pub(crate) fn describe(&self) -> &'static str {
        match self.turnstile.phase() {
            None => "<unlocked here>",
            Some(Phase::Holding) => "<locked here>",
            Some(_) => "<waiting>",
        }
    }
}

/// Somebody else has the lock, if an outage does not make that hearsay.
fn busy(ask: &Ask<'_>) -> Result<()> {
    match ask.session.state() {
        SessionState::Connected => Ok(()),
        SessionState::Closed => Err(Error::Closed { op: "lock", path: ask.path.to_owned() }),
        _ if (ask.is_held_here)() => Ok(()),
        _ => Err(unavailable(ask, Cause::ConnectionLost)),
    }
}

fn unavailable(ask: &Ask<'_>, cause: Cause) -> Error {
    Error::Unavailable { op: "lock", path: ask.path.to_owned(), cause }
}

impl<S> Turn<'_, S> {
    /// Lets in the thread that waits longest, if it wants a share; else this comes back.
    pub(crate) fn share(&self, share: S) -> std::result::Result<(), S> {
        self.turnstile.share(self.number, share)
    }

    fn keep(self) {
        std::mem::forget(self);
    }
}

impl<S> Drop for Turn<'_, S> {
    fn drop(&mut self) {
        self.turnstile.leave(self.number);
    }
}
