//! How long a caller is ready to wait: a deadline, a cancel token, both or neither.

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, never, select};

use crate::cancel::CancelToken;

#[derive(Clone, Copy, Default)]
pub(crate) struct Limit<'a> {
    deadline: Option<Instant>,
    cancel: Option<&'a CancelToken>,
}

/// Why a wait on a channel ended.
pub(crate) enum Ended<T> {
    Got(T),
    /// The channel's other side is gone.
    Disconnected,
    Deadline,
    Cancelled,
}

impl<'a> Limit<'a> {
    pub(crate) const NONE: Limit<'static> = Limit { deadline: None, cancel: None };

    /// A deadline so far away that the clock cannot name it is none.
    pub(crate) fn after(d: Duration) -> Self {
        Limit { deadline: Instant::now().checked_add(d), cancel: None }
    }

    pub(crate) fn at(deadline: Instant) -> Self {
        Limit { deadline: Some(deadline), cancel: None }
    }

    pub(crate) fn cancelled_by(token: &'a CancelToken) -> Self {
        Limit { deadline: None, cancel: Some(token) }
    }

    /// This limit, or that deadline if it comes first.
    pub(crate) fn or_at(self, deadline: Instant) -> Self {
        Limit { deadline: Some(self.deadline.map_or(deadline, |d| d.min(deadline))), ..self }
    }

    pub(crate) fn is_past(&self) -> bool {
        self.deadline.is_some_and(|d| Instant::now() >= d)
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(CancelToken::is_cancelled)
    }

    /// Whether a call that can take `d` could outlast this limit.
    pub(crate) fn may_end_within(&self, d: Duration) -> bool {
        self.cancel.is_some()
            || self.deadline.is_some_and(|at| at.saturating_duration_since(Instant::now()) < d)
    }

    /// Waits for a message. One that is there already wins over a deadline or a cancelled token.
    pub(crate) fn recv<T>(&self, from: &Receiver<T>) -> Ended<T> {
        if let Ok(message) = from.try_recv() {
            return Ended::Got(message);
        }
        let got = |r: Result<T, _>| r.map_or(Ended::Disconnected, Ended::Got);
        let never = never();
        let cancel = self.cancel.map_or(&never, CancelToken::receiver);
        match (self.deadline, self.cancel) {
            (None, None) => got(from.recv()),
            (None, Some(_)) => select! {
                recv(from) -> r => got(r),
                recv(cancel) -> _ => Ended::Cancelled,
            },
            (Some(deadline), _) => select! {
                recv(from) -> r => got(r),
                recv(cancel) -> _ => Ended::Cancelled,
                default(deadline.saturating_duration_since(Instant::now())) => Ended::Deadline,
            },
        }
    }
}
