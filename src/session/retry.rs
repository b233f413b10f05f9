//! Since when one blocked call has made no progress, and when it may ask the servers again.

use std::cell::Cell;
use std::time::Duration;

use super::config::RetryPolicy;
use crate::world::Instant;

/// The state of one call, from its first request to its end. A call that waits for its turn, with
/// its node and its watches in place, does not fail, however long that takes.
pub(crate) struct Retry {
    /// Goes on whatever the retry policy says.
    endures: bool,
    /// When the servers were asked last, or the call began.
    asked: Cell<Instant>,
    /// When the current time without progress began; `None` while the call makes progress.
    failing_since: Cell<Option<Instant>>,
    /// How many attempts in a row have failed since then.
    failures: Cell<u32>,
    /// Before this nothing is asked.
    not_before: Cell<Option<Instant>>,
}

impl Retry {
    pub(crate) fn new() -> Self {
        Retry {
            endures: false,
            asked: Cell::new(Instant::now()),
            failing_since: Cell::new(None),
            failures: Cell::new(0),
            not_before: Cell::new(None),
        }
    }

    /// Of a call that no outage ends. It backs off as others do.
    pub(crate) fn enduring() -> Self {
        Retry { endures: true, ..Retry::new() }
    }

    /// The call has got further: its node is made, its watches stand, what it waited for has
    /// happened.
    pub(crate) fn progress(&self) {
        self.failing_since.set(None);
        self.failures.set(0);
    }

    /// Servers are about to be asked.
    pub(super) fn asks(&self) {
        self.asked.set(Instant::now());
        self.not_before.set(None);
    }

    /// The connection or the session was lost before a useful answer came. The first attempt after
    /// that is made as soon as there is a connection; where it fails too, the next ones wait, ever
    /// longer.
    pub(super) fn failed(&self, policy: &RetryPolicy, longest: Duration) {
        self.failing_since.set(self.failing_since.get().or(Some(self.asked.get())));
        let before = self.failures.get();
        self.failures.set(before.saturating_add(1));
        if before > 0 {
            self.not_before.set(Some(Instant::now() + policy.pause(before).min(longest)));
        }
    }

    /// There has been no connection since `down_since`. A call that began later counts from its own
    /// beginning.
    pub(super) fn is_cut_off(&self, down_since: Instant) {
        self.failing_since.set(self.failing_since.get().or(Some(down_since.max(self.asked.get()))));
    }

    /// If the call must pause: when the pause ends.
    pub(super) fn pause(&self, now: Instant) -> Option<Instant> {
        self.not_before.get().filter(|at| now < *at)
    }

    /// When the current time without progress began; `None` while the call makes progress.
    pub(super) fn failing_since(&self) -> Option<Instant> {
        self.failing_since.get()
    }

    /// Since when the call has got no further, and until when the policy lets it go on so.
    pub(super) fn budget(&self, policy: &RetryPolicy) -> Option<(Instant, Instant)> {
        let since = self.failing_since.get().filter(|_| !self.endures)?;
        Some((since, since.checked_add(policy.max_elapsed)?))
    }

    pub(super) fn endures(&self) -> bool {
        self.endures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(1);

    #[test]
    fn the_first_failure_costs_no_pause_and_those_after_it_ever_longer_ones() {
        let (policy, retry) = (RetryPolicy::default(), Retry::new());
        retry.failed(&policy, LONGEST);
        assert_eq!(retry.pause(Instant::now()), None);
        let pauses: Vec<Duration> = (0..8)
            .map(|_| {
                let before = Instant::now();
                retry.failed(&policy, LONGEST);
                retry.pause(before).map_or(Duration::ZERO, |until| until - before)
            })
            .collect();
        assert!(pauses[0] >= policy.base / 2, "{pauses:?}");
        assert!(pauses[7] >= LONGEST, "{pauses:?}"); // the pause itself is longer than the longest
        retry.progress();
        retry.asks();
        retry.failed(&policy, LONGEST);
        assert_eq!(retry.pause(Instant::now()), None);
    }

    #[test]
    fn the_budget_counts_from_the_last_progress_and_not_from_the_last_connection() {
        let (policy, retry) = (RetryPolicy::default(), Retry::new());
        assert_eq!(retry.budget(&policy), None);
        let asked = retry.asked.get();
        retry.failed(&policy, LONGEST);
        retry.asks(); // connected again
        retry.failed(&policy, LONGEST);
        assert_eq!(retry.budget(&policy), Some((asked, asked + policy.max_elapsed)));
        retry.progress();
        assert_eq!(retry.budget(&policy), None);
        // An outage begins long after the call asked last, which has waited for its turn since.
        let down = retry.asked.get() + LONGEST;
        retry.is_cut_off(down);
        assert_eq!(retry.budget(&policy), Some((down, down + policy.max_elapsed)));
    }

    #[test]
    fn who_calls_during_an_outage_has_not_failed_since_its_beginning() {
        let (policy, retry) = (RetryPolicy::default(), Retry::new());
        let asked = retry.asked.get();
        retry.is_cut_off(asked - LONGEST);
        assert_eq!(retry.budget(&policy), Some((asked, asked + policy.max_elapsed)));
        let enduring = Retry::enduring();
        enduring.failed(&policy, LONGEST);
        assert_eq!(enduring.budget(&policy), None);
    }
}
