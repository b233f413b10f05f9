//! A thread's turn at a lock within this process.
//!
//! A recipe takes a turn before it sends anything to the server. This file waits for it in the
//! local queue, and says what the end of that wait means to the caller: a turn, a hold that another
//! thread handed over, contention, or an error.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::queue::{LocalQueue, TurnOutcome, TurnPhase, Wants};
use crate::error::{Cause, Error, Result};
use crate::limit::{Limit, Overlong};
use crate::session::lease::HoldBounds;
use crate::session::{SessionState, ZkSession};
use crate::stats::WaitRecord;
use crate::wait::Mode;
use crate::world::Instant;

/// One call for a lock: whether and how long it waits, and where that is counted.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) mode: Mode,
    pub(crate) limit: Limit<'a>,
    pub(crate) wait: &'a WaitRecord<'a>,
}

/// What one thread wants of a lock.
pub(crate) struct LocalRequest<'a> {
    pub(crate) session: &'a ZkSession,
    /// The lock's path, as the user gave it.
    pub(crate) path: &'a str,
    pub(crate) mode: Mode,
    pub(crate) limit: Limit<'a>,
    /// The data of a node that is made for this request.
    pub(crate) data: &'a [u8],
    /// How long the thread may hold the lock.
    pub(crate) bounds: HoldBounds,
    /// After this time the log says for what the thread waits.
    pub(crate) warn_after: Duration,
    /// Says whether a thread of this process has a valid hold of the lock.
    pub(crate) is_held_here: &'a dyn Fn() -> bool,
    pub(crate) wait: &'a WaitRecord<'a>,
}

/// A thread's turn. Its drop gives the turn to the next thread, unless the turn became a hold.
pub(crate) struct Turn<'a, H, S> {
    queue: &'a Arc<LocalQueue<H, S>>,
    pub(crate) number: u64,
    /// Somebody held the lock, or was ahead at the server, while this thread waited for its turn.
    pub(crate) contended: bool,
}

/// What a wait for a turn led to.
pub(crate) enum Admission<'a, H, S> {
    /// The turn, and the hold with it if the thread before handed its own over.
    Turn(Turn<'a, H, S>, Option<H>),
    /// Another thread shares its hold with this one.
    Share(S),
}

impl<'a, H, S> Turn<'a, H, S> {
    /// Waits for a turn in `queue`. `None`: somebody else has the lock, and this was not only known
    /// from before an outage.
    pub(crate) fn wait(
        queue: &'a Arc<LocalQueue<H, S>>,
        request: &LocalRequest<'_>,
        wants: Wants,
    ) -> Result<Option<Admission<'a, H, S>>> {
        let overlong = Cell::new(None);
        let report = || {
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
            wait.next
        };
        let is_try = request.mode == Mode::Try;
        let (number, handed, contended) = match queue.enter(is_try, wants, &request.limit, &report)
        {
            TurnOutcome::Turn { number, handed, contended } => (number, handed, contended),
            TurnOutcome::Share(share) => return Ok(Some(Admission::Share(share))),
            TurnOutcome::Busy | TurnOutcome::Deadline { contended: true } => {
                return request.busy().map(|()| None);
            }
            TurnOutcome::Deadline { contended: false } => {
                return Err(request.unavailable(Cause::Deadline));
            }
            TurnOutcome::Cancelled => {
                return Err(Error::Cancelled { path: request.path.to_owned() });
            }
        };
        let turn = Turn { queue, number, contended };
        match (contended, &handed) {
            (true, None) => request.wait.contended(),
            (true, Some(_)) => request.wait.contended_until_now(),
            (false, _) => {}
        }
        if request.session.state() == SessionState::Closed {
            return Err(request.closed());
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
            self.wait.contended();
        }
    }

    /// Another thread or process has the lock: this was learnt from the server, directly or through
    /// another thread. The answer may be from before an outage, and the other's hold may have ended
    /// since. So during an outage only a valid hold of this process shows that the lock is taken;
    /// without one this is an error.
    fn busy(&self) -> Result<()> {
        match self.session.state() {
            SessionState::Connected => Ok(()),
            SessionState::Closed => Err(self.closed()),
            _ if (self.is_held_here)() => Ok(()),
            _ => Err(self.unavailable(Cause::ConnectionLost)),
        }
    }

    fn closed(&self) -> Error {
        Error::Closed { op: "lock", path: self.path.to_owned() }
    }

    fn unavailable(&self, cause: Cause) -> Error {
        Error::Unavailable { op: "lock", path: self.path.to_owned(), cause }
    }
}
