//! The retry policy of a session, and the state of one call under it: since when the call has made
//! no progress, and when it may send requests again.

use std::cell::Cell;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::machine::backoff;
use crate::world::{Instant, random};

/// The longest pause: half a year, which is as good as for ever, and small enough that clocks can
/// add it.
const LONGEST: Duration = Duration::from_secs(1 << 24);

/// How a session comes back after an outage, and how long a blocked call goes on without progress.
///
/// While the session is open it tries again and again to connect. The pauses grow from `base` to
/// `cap`, with jitter; after a connection that carried the session they begin at `base` again. A
/// blocked call that fails although there is a connection also pauses like this before it tries
/// again. If such a call has no deadline and makes no progress for
/// [`max_elapsed`](Self::max_elapsed), it ends with [`Error::Unavailable`].
///
/// ```
/// use std::time::Duration;
/// use zk_session::RetryPolicy;
///
/// let patient = RetryPolicy { max_elapsed: Duration::from_secs(600), ..RetryPolicy::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// The pause after the first failed round of attempts; default 100 ms.
    pub base: Duration,
    /// The longest pause; default 5 s. While a live session is to be resumed, and between the
    /// attempts of a call in it, pauses are also kept below an eighth of its timeout. (They are
    /// longer after an answer so long that the connection was given up while it came.)
    pub cap: Duration,
    /// How long a blocked call without a deadline goes on without progress; default 60 s. A call
    /// with a timeout or a deadline goes on until that, however long it is. A
    /// call that only tries once does not wait for a connection at all.
    ///
    /// The time counts from the beginning of the call, and again from each progress: a node was
    /// created, watches were set, or the event for which it waited has come. A new connection
    /// alone is no progress. If the call has a connection and sends several requests one after the
    /// other, the time counts from the first of them that fails. When the time is over, the call
    /// ends with [`Cause::Outage`](crate::Cause::Outage) in an outage, and with
    /// [`Cause::NoProgress`](crate::Cause::NoProgress) if servers can be reached but do not give
    /// the answer that is needed. An outage that began before the call counts from the call on. So
    /// a program that calls again after each error does not spin: each call waits for this time.
    ///
    /// A call whose watches are set, and which only waits for an event, is not limited by this time
    /// until an outage begins.
    pub max_elapsed: Duration,
}

impl Default for RetryPolicy {
    /// A base of 100 ms, a cap of 5 s, and 60 s without progress.
    fn default() -> Self {
        RetryPolicy {
            base: Duration::from_millis(100),
            cap: Duration::from_secs(5),
            max_elapsed: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    pub(super) fn check(&self) -> Result<()> {
        if self.base.is_zero() || self.cap < self.base {
            return Err(Error::InvalidConfig {
                what: "retry_policy",
                reason: format!(
                    "its base ({:?}) must be above zero and at most its cap ({:?})",
                    self.base, self.cap
                ),
            });
        }
        Ok(())
    }

    /// The pause after this many failures in a row, with jitter: between half of the full pause and
    /// all of it.
    pub(super) fn pause(&self, failures: u32) -> Duration {
        let factor = 1u32.checked_shl(failures.saturating_sub(1).min(20)).unwrap_or(u32::MAX);
        let full = self.base.saturating_mul(factor).min(self.cap).min(LONGEST);
        full.mul_f64(0.5 + random() / 2.0)
    }
}

/// The state of one call, from its first request to its end. A call that only waits for its turn,
/// with its node and its watches in place, makes no attempts, and so none that fail.
pub struct Retry {
    /// The call goes on whatever the retry policy says.
    is_enduring: bool,
    /// When the last attempt began, when the call has sent requests in it, or when it has made
    /// progress since, whichever was last; before any attempt, when the call began.
    attempt_began: Cell<Instant>,
    /// When the current time without progress began; `None` while the call makes progress.
    failing_since: Cell<Option<Instant>>,
    /// How many attempts in a row have failed since then.
    failures: Cell<u32>,
    /// How many attempts have failed since then because their answer was cut short.
    cuts: Cell<u32>,
    /// The last attempt has failed so.
    was_cut_short: Cell<bool>,
    /// No attempt begins before this.
    not_before: Cell<Option<Instant>>,
}

impl Retry {
    /// For a call that began then.
    pub fn since(begun: Instant) -> Self {
        Retry {
            is_enduring: false,
            attempt_began: Cell::new(begun),
            failing_since: Cell::new(None),
            failures: Cell::new(0),
            cuts: Cell::new(0),
            was_cut_short: Cell::new(false),
            not_before: Cell::new(None),
        }
    }

    /// For a call that no outage ends. It pauses between its attempts as others do.
    pub fn enduring() -> Self {
        Retry { is_enduring: true, ..Retry::since(Instant::now()) }
    }

    /// The call has made progress: its node was created, its watches were set, or the event for
    /// which it waited has come.
    pub fn progress(&self) {
        self.failing_since.set(None);
        self.failures.set(0);
        self.cuts.set(0);
        // In an outage that has begun before, the time counts from here.
        self.attempt_began.set(Instant::now());
    }

    /// The call has a connection, and is about to send requests.
    pub(super) fn begin_attempt(&self) {
        self.sends();
        self.not_before.set(None);
    }

    /// The call is about to send requests, perhaps after others of the same attempt that were
    /// answered. If these fail, the time without progress counts from here: each request may wait
    /// for its answer for a while, and answered ones are no part of an outage.
    pub(super) fn sends(&self) {
        self.attempt_began.set(Instant::now());
    }

    /// The connection was lost when a part of the answer to the last requests had come.
    pub(super) fn cut_short(&self) {
        self.was_cut_short.set(true);
    }

    /// An attempt has failed: the connection or the session was lost before a useful answer came.
    /// The next attempt begins as soon as there is a connection. If it fails too, a pause comes
    /// before each further attempt. The pauses grow, up to `longest`.
    ///
    /// If an answer was cut short, a pause comes at once: the new connection renews the lease
    /// meanwhile. Each such pause is twice as long as the one before, up to 64 times `longest`: the
    /// answer may take longer than a connection waits for it, and then each attempt costs the other
    /// threads of the session their connection.
    pub(super) fn failed(&self, policy: &RetryPolicy, longest: Duration) {
        self.failing_since.set(self.failing_since.get().or(Some(self.attempt_began.get())));
        let before = self.failures.get();
        self.failures.set(before.saturating_add(1));
        if self.was_cut_short.take() {
            self.cuts.set(self.cuts.get().saturating_add(1));
            let pause = longest.min(policy.cap) * backoff(self.cuts.get());
            self.not_before.set(Some(Instant::now() + pause));
        } else if before > 0 {
            self.not_before.set(Some(Instant::now() + policy.pause(before).min(longest)));
        }
    }

    /// There has been no connection since `down_since`. If the last attempt of the call began
    /// later, the time without progress counts from that attempt.
    pub(super) fn note_outage(&self, down_since: Instant) {
        self.failing_since
            .set(self.failing_since.get().or(Some(down_since.max(self.attempt_began.get()))));
    }

    /// When the pause before the next attempt ends; `None` if the call need not pause.
    pub(super) fn pause_end(&self, now: Instant) -> Option<Instant> {
        self.not_before.get().filter(|at| now < *at)
    }

    /// When the current time without progress began; `None` while the call makes progress.
    pub(super) fn failing_since(&self) -> Option<Instant> {
        self.failing_since.get()
    }

    /// Since when the call has made no progress, and until when the policy lets it go on like this.
    pub(super) fn budget(&self, policy: &RetryPolicy) -> Option<(Instant, Instant)> {
        let since = self.failing_since.get().filter(|_| !self.is_enduring)?;
        Some((since, since.checked_add(policy.max_elapsed)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Limit;

    const CAP: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_grow_to_the_cap_and_vary() {
        let policy = RetryPolicy::default();
        for failures in 0..100 {
            let pause = policy.pause(failures);
            assert!(pause >= policy.base / 2 && pause <= policy.cap, "{failures}: {pause:?}");
        }
        assert!(policy.pause(50) >= policy.cap / 2);
        assert!(
            RetryPolicy { base: Duration::MAX, cap: Duration::MAX, ..policy }.pause(1) <= LONGEST
        );
    }

    #[test]
    fn an_answer_that_was_cut_short_costs_a_pause_at_once_and_longer_ones_from_then_on() {
        let (policy, retry) = (RetryPolicy::default(), Retry::since(Instant::now()));
        let pause = || {
            retry.cut_short();
            let now = Instant::now();
            retry.failed(&policy, CAP);
            retry.pause_end(now).map_or(0, |end| (end - now).as_secs())
        };
        let pauses: Vec<u64> = (0..8).map(|_| pause()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 64, 64]);
        retry.progress();
        assert_eq!(pause(), 2);
    }

    #[test]
    fn the_first_failure_costs_no_pause_and_those_after_it_ever_longer_ones() {
        let (policy, retry) = (RetryPolicy::default(), Retry::since(Instant::now()));
        retry.failed(&policy, CAP);
        assert_eq!(retry.pause_end(Instant::now()), None);
        let pauses: Vec<Duration> = (0..8)
            .map(|_| {
                let before = Instant::now();
                retry.failed(&policy, CAP);
                retry.pause_end(before).map_or(Duration::ZERO, |until| until - before)
            })
            .collect();
        assert!(pauses[0] >= policy.base / 2, "{pauses:?}");
        assert!(pauses[7] >= CAP, "{pauses:?}"); // the full pause would be longer than the cap
        retry.progress();
        retry.begin_attempt();
        retry.failed(&policy, CAP);
        assert_eq!(retry.pause_end(Instant::now()), None);
    }

    #[test]
    fn the_budget_counts_from_the_last_progress_and_not_from_the_last_connection() {
        let (policy, retry) = (RetryPolicy::default(), Retry::since(Instant::now()));
        assert_eq!(retry.budget(&policy), None);
        let began = retry.attempt_began.get();
        retry.failed(&policy, CAP);
        retry.begin_attempt(); // on a new connection
        retry.failed(&policy, CAP);
        assert_eq!(retry.budget(&policy), Some((began, began + policy.max_elapsed)));
        retry.progress();
        assert_eq!(retry.budget(&policy), None);
        // An outage begins long after the last attempt; the call has waited for its turn since.
        let down = retry.attempt_began.get() + CAP;
        retry.note_outage(down);
        assert_eq!(retry.budget(&policy), Some((down, down + policy.max_elapsed)));
    }

    /// A waiter lists the queue, and then reads the node ahead. Each answer may take its time.
    #[test]
    fn the_budget_counts_from_the_request_that_failed_and_not_from_those_before_it() {
        let policy = RetryPolicy::default();
        let retry = Retry::since(Instant::now() - CAP);
        let sent = Instant::now();
        Limit::NONE.of_call(&retry).sends();
        retry.failed(&policy, CAP);
        let (since, _) = retry.budget(&policy).unwrap();
        assert!(since >= sent);
        // Requests that are sent after a failure gain nothing.
        Limit::NONE.of_call(&retry).sends();
        retry.failed(&policy, CAP);
        assert_eq!(retry.budget(&policy), Some((since, since + policy.max_elapsed)));
    }

    #[test]
    fn for_a_call_that_begins_during_an_outage_the_budget_counts_from_the_call() {
        let (policy, retry) = (RetryPolicy::default(), Retry::since(Instant::now()));
        let began = retry.attempt_began.get();
        retry.note_outage(began - CAP);
        assert_eq!(retry.budget(&policy), Some((began, began + policy.max_elapsed)));
        let enduring = Retry::enduring();
        enduring.failed(&policy, CAP);
        assert_eq!(enduring.budget(&policy), None);
    }

    /// Another thread of this process may bring the progress, say, which needs no server.
    #[test]
    fn after_a_progress_during_an_outage_the_budget_counts_from_the_progress() {
        let (policy, now) = (RetryPolicy::default(), Instant::now());
        let retry = Retry::since(now - CAP);
        let counts_from = || {
            retry.note_outage(now - CAP * 2);
            retry.budget(&policy).map(|(since, _)| since)
        };
        assert_eq!(counts_from(), Some(now - CAP));
        retry.progress();
        assert!(counts_from() >= Some(now));
    }
}
