//! A thread's turn at a lock within this process.
//!
//! A recipe takes a turn before it sends anything to the server. This file waits for it in the
//! local queue, and says what the end of that wait means to the caller: a turn, a hold that another
//! thread handed over, contention, or an error.

use std::cell::Cell;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::Arc;
use std::time::Duration;

use super::queue::{LocalQueue, TurnOutcome, TurnPhase, Wants};
use crate::error::{Error, Result};
use crate::limit::{Limit, Overlong};
use crate::queue::HoldBounds;
use crate::queue::call::end_of_time;
use crate::session::{SessionState, ZkSession};
use crate::stats::CallTally;
use crate::wait::Mode;
use crate::world::Instant;

/// One call for a lock: whether and how long it waits, and where that is counted.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) mode: Mode,
    pub(crate) limit: Limit<'a>,
    pub(crate) tally: &'a CallTally<'a>,
}

/// What one thread wants of a lock.
pub(crate) struct LocalRequest<'a> {
    pub(crate) session: &'a ZkSession,
    /// The lock's path, as the user gave it.
    pub(crate) path: &'a str,
    /// Whether the request waits: for its turn, and at the server.
    pub(crate) mode: Mode,
    /// Whether the caller waits. A request may wait for a caller that only tries.
    pub(crate) caller: Mode,
    pub(crate) limit: Limit<'a>,
    /// The data of a node that is made for this request.
    pub(crate) data: &'a [u8],
    /// How long the thread may hold the lock.
    pub(crate) bounds: HoldBounds,
    /// After this time the log says for what the thread waits.
    pub(crate) warn_after: Duration,
    /// Says whether a thread of this process has a valid hold of the lock.
    pub(crate) is_held_here: &'a dyn Fn() -> bool,
    pub(crate) tally: &'a CallTally<'a>,
}

/// A thread's turn. Its drop gives the turn to the next thread, unless the turn became a hold.
pub(crate) struct Turn<'a, H, S> {
    queue: &'a Arc<LocalQueue<H, S>>,
    pub(crate) number: u64,
}

/// What a wait for a turn led to.
pub(crate) enum Admission<'a, H, S> {
    /// The turn, and the hold with it if the thread before handed its own over.
    Turn(Turn<'a, H, S>, Option<H>),
    /// Another thread shares its hold with this one.
    Share(S),
}

impl<'a, H, S> Turn<'a, H, S> {
    /// Waits for a turn in `queue`. `None`: the call ends without the lock, because somebody else
    /// was ahead of it. [`end_of_time`] decides whether that is so, or whether it is an error.
    pub(crate) fn wait(
        queue: &'a Arc<LocalQueue<H, S>>,
        request: &LocalRequest<'_>,
        wants: Wants,
    ) -> Result<Option<Admission<'a, H, S>>> {
        let (overlong, given_up) = (Cell::new(None), Cell::new(None));
        let look = || {
            let begun = || Overlong::new(Instant::now(), request.warn_after);
            let mut wait = overlong.get().unwrap_or_else(begun);
            if let Some(lasted) = wait.due() {
                let (path, seconds) = (request.path, lasted.as_secs());
                let ahead = match queue.phase() {
                    Some(TurnPhase::Held) => "holds it",
                    _ => "is ahead, and waits at the server",
                };
                warn!("{path}: waiting for {seconds} s; another thread of this process {ahead}");
            }
            overlong.set(Some(wait));
            match request.outage_limit() {
                Ok(until) => Continue([wait.next, until].into_iter().flatten().min()),
                Err(e) => {
                    given_up.set(Some(e));
                    Break(())
                }
            }
        };
        let is_try = request.mode == Mode::Try;
        let (number, handed, contended) = match queue.enter(is_try, wants, &request.limit, &look) {
            TurnOutcome::Turn { number, handed, contended } => (number, handed, contended),
            TurnOutcome::Share(share) => return Ok(Some(Admission::Share(share))),
            TurnOutcome::Busy => {
                request.tally.contended_until_now();
                return request.end_of_time().map(|()| None);
            }
            TurnOutcome::Deadline => {
                if let Some(e) = given_up.take() {
                    return Err(e);
                }
                // Another thread of this process was ahead. A thread that only tries wants to know
                // whether that thread gets the lock, or somebody ahead of it. As long as that
                // thread's requests have no answer, no server has said so.
                let is_answered =
                    || matches!(queue.phase(), Some(TurnPhase::Held | TurnPhase::Blocked));
                if request.caller == Mode::Wait || is_answered() {
                    request.tally.contended_until_now();
                }
                return request.end_of_time().map(|()| None);
            }
            TurnOutcome::Cancelled => {
                return Err(Error::Cancelled { path: request.path.to_owned() });
            }
        };
        let turn = Turn { queue, number };
        match (contended, &handed) {
            (true, None) => request.tally.contended(),
            (true, Some(_)) => request.tally.contended_until_now(),
            (false, _) => {}
        }
        if request.session.state() == SessionState::Closed {
            return Err(Error::Closed { op: request.tally.call.op, path: request.path.to_owned() });
        }
        Ok(Some(Admission::Turn(turn, handed)))
    }

    /// Notes whether the server shows somebody ahead. If so, threads that only try stop waiting.
    fn set_blocked(&self, is_blocked: bool) {
        let phase = if is_blocked { TurnPhase::Blocked } else { TurnPhase::Requesting };
        self.queue.set_phase(self.number, phase);
    }

    /// Lets in the thread that has waited longest, if it wants a share. Otherwise the share comes
    /// back.
    pub(crate) fn share(&self, share: S) -> std::result::Result<(), S> {
        self.queue.share(self.number, share)
    }

    /// The thread holds the lock now. It keeps its turn until the hold ends.
    pub(crate) fn becomes_hold(self) {
        self.queue.set_phase(self.number, TurnPhase::Held);
        std::mem::forget(self);
    }
}

impl<H, S> Drop for Turn<'_, H, S> {
    fn drop(&mut self) {
        self.queue.leave(self.number);
    }
}

impl LocalRequest<'_> {
    /// Notes whether the server shows somebody ahead.
    pub(crate) fn blocked<H, S>(&self, turn: &Turn<'_, H, S>, is_blocked: bool) {
        turn.set_blocked(is_blocked);
        if is_blocked {
            self.tally.contended();
        }
    }

    /// What the end of its time means to the request. The queue may have learnt from before an
    /// outage that somebody else has the lock.
    fn end_of_time(&self) -> Result<()> {
        end_of_time(self.tally.call, self.session.core(), self.path, || (self.is_held_here)())
    }

    /// When to ask this again, if at all. An error if the request has waited in an outage for as
    /// long as the retry policy lets it: the thread that is ahead may wait longer, until its own
    /// deadline.
    fn outage_limit(&self) -> Result<Option<Instant>> {
        if self.limit.has_deadline() {
            return Ok(None);
        }
        let (op, path) = (self.tally.call.op, self.path);
        let unavailable = |cause| Error::Unavailable { op, path: path.to_owned(), cause };
        self.session.core().outage_limit(self.tally.call.begun).map_err(unavailable)
    }
}
