//! How long an internal call may wait: until a deadline, until a token is cancelled, or both. Each
//! wait of the library that a caller can end early goes through `Limit::recv`.

use std::convert::Infallible;
use std::time::Duration;

use crate::cancel::CancelToken;
use crate::retry::Retry;
use crate::world::{Instant, Receiver, RecvTimeoutError, Select};

#[derive(Clone, Copy, Default)]
pub struct Limit<'a> {
    deadline: Option<Instant>,
    cancel: Option<&'a CancelToken>,
    /// Becomes ready, by disconnection, when the wait has become useless.
    moot: Option<&'a Receiver<Infallible>>,
    /// The call that waits, if a retry policy is for it: it notes each time that it sends requests.
    retry: Option<&'a Retry>,
}

/// Something that lasts too long: after some time it is worth a line in the log, and again each
/// time that it has lasted twice as long.
#[derive(Clone, Copy)]
pub struct Overlong {
    pub(crate) since: Instant,
    /// When the next line is due; `None` if the clock cannot express that time.
    pub next: Option<Instant>,
}

impl Overlong {
    pub fn new(since: Instant, first: Duration) -> Self {
        Overlong { since, next: since.checked_add(first) }
    }

    /// How long it has lasted, if a line is due now. From then on the next line is due later.
    pub fn due(&mut self) -> Option<Duration> {
        let now = Instant::now();
        self.next.filter(|next| now >= *next)?;
        let lasted = now.saturating_duration_since(self.since);
        self.next = now.checked_add(lasted);
        Some(lasted)
    }
}

/// Why a wait on a channel ended.
pub enum Ended<T> {
    Got(T),
    /// All senders of the channel are gone.
    Disconnected,
    Deadline,
    Cancelled,
}

impl<'a> Limit<'a> {
    pub const NONE: Limit<'static> =
        Limit { deadline: None, cancel: None, moot: None, retry: None };

    pub fn new(deadline: Option<Instant>, cancel: Option<&'a CancelToken>) -> Self {
        Limit { deadline, cancel, ..Limit::NONE }
    }

    pub fn after(d: Duration) -> Self {
        Limit::NONE.or_after(d)
    }

    pub fn cancelled_by(token: &'a CancelToken) -> Self {
        Limit { cancel: Some(token), ..Limit::NONE }
    }

    /// This limit, but no longer than `d` from now. If the clock cannot express that time, nothing
    /// changes.
    pub fn or_after(self, d: Duration) -> Self {
        Instant::now().checked_add(d).map_or(self, |deadline| self.or_at(deadline))
    }

    /// This limit, but no longer than until `deadline`.
    pub fn or_at(self, deadline: Instant) -> Self {
        Limit { deadline: Some(self.deadline.map_or(deadline, |d| d.min(deadline))), ..self }
    }

    /// This limit, but the wait also ends, as if cancelled, when `signal` becomes ready.
    pub fn or_moot_by(self, signal: &'a Receiver<Infallible>) -> Self {
        Limit { moot: Some(signal), ..self }
    }

    /// This limit, for the requests of the call that owns `retry`.
    pub fn of_call(self, retry: &'a Retry) -> Self {
        Limit { retry: Some(retry), ..self }
    }

    /// The call is about to send requests, and to wait for their answers.
    pub(crate) fn sends(&self) {
        self.retry.inspect(|retry| retry.sends());
    }

    /// The connection was lost when a part of the answer to these requests had come.
    pub(crate) fn cut_short(&self) {
        self.retry.inspect(|retry| retry.cut_short());
    }

    pub fn is_past(&self) -> bool {
        self.deadline.is_some_and(|d| Instant::now() >= d)
    }

    pub fn has_deadline(&self) -> bool {
        self.deadline.is_some()
    }

    /// How long until the deadline, if there is one.
    pub fn left(&self) -> Option<Duration> {
        self.deadline.map(|at| at.saturating_duration_since(Instant::now()))
    }

    pub fn is_cancelled(&self) -> bool {
        let is_ready =
            |signal: &Receiver<Infallible>| signal.try_recv().is_err_and(|e| e.is_disconnected());
        self.cancel.is_some_and(CancelToken::is_cancelled) || self.moot.is_some_and(is_ready)
    }

    /// Waits for a message. A message that is there already is taken even if the deadline has
    /// passed or the token is cancelled.
    pub fn recv<T>(&self, from: &Receiver<T>) -> Ended<T> {
        let signals = [self.cancel.map(CancelToken::receiver), self.moot];
        if signals.iter().all(Option::is_none) {
            return self.recv_alone(from);
        }
        let mut select = Select::new();
        select.recv(from);
        for signal in signals.into_iter().flatten() {
            select.recv(signal);
        }
        loop {
            match from.try_recv() {
                Ok(message) => return Ended::Got(message),
                Err(e) if e.is_disconnected() => return Ended::Disconnected,
                Err(_) if self.is_cancelled() => return Ended::Cancelled,
                Err(_) => {}
            }
            match self.deadline {
                None => {
                    select.ready();
                }
                Some(deadline) if select.ready_deadline(deadline).is_err() => {
                    return Ended::Deadline;
                }
                Some(_) => {}
            }
        }
    }

    /// As `recv`, for a limit of which only the deadline can end the wait early.
    fn recv_alone<T>(&self, from: &Receiver<T>) -> Ended<T> {
        let Some(deadline) = self.deadline else {
            return from.recv().map_or(Ended::Disconnected, Ended::Got);
        };
        match from.recv_deadline(deadline) {
            Ok(message) => Ended::Got(message),
            Err(RecvTimeoutError::Timeout) => Ended::Deadline,
            Err(RecvTimeoutError::Disconnected) => Ended::Disconnected,
        }
    }
}
