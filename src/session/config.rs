//! What a session is made with.

use std::time::Duration;

use crate::error::{Error, Result};
use crate::world::random;

/// A pause this long is one without end, and the clocks can still count with it.
const LONGEST: Duration = Duration::from_secs(1 << 24);

/// How a session comes back after an outage, and how long a blocked call goes on without getting
/// any further.
///
/// While the session is open it tries again and again to connect. The pauses grow from `base` to
/// `cap`, with jitter. A blocked call (`lock()` and its kin) that fails although there is a
/// connection also pauses like this before it tries again. If such a call gets no further for
/// [`max_elapsed`](Self::max_elapsed), it ends with [`Error::Unavailable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    pub(crate) base: Duration,
    pub(crate) cap: Duration,
    pub(crate) max_elapsed: Duration,
}

impl Default for RetryPolicy {
    /// 100 ms, 5 s, and 60 s in all.
    fn default() -> Self {
        RetryPolicy {
            base: Duration::from_millis(100),
            cap: Duration::from_secs(5),
            max_elapsed: Duration::from_secs(60),
        }
    }
}

impl RetryPolicy {
    /// The pause after the first failed round of attempts; default 100 ms.
    #[must_use]
    pub fn base(mut self, base: Duration) -> Self {
        self.base = base;
        self
    }

    /// The longest pause; default 5 s. While a live session is to be resumed, and between the
    /// attempts of a call in it, pauses are also kept below an eighth of its timeout.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// How long a blocked call goes on without getting any further; default 60 s.
    ///
    /// The time counts from the call's last progress: its node was made, its watches were set, or
    /// what it waited for happened. Before any progress it counts from the beginning of the call. A
    /// new connection alone is no progress. When the time is over the call ends with
    /// [`Cause::NoProgress`](crate::Cause::NoProgress).
    ///
    /// An outage counts from its own beginning, also if that was before the call. When it has
    /// lasted for this time the call ends with [`Cause::Outage`](crate::Cause::Outage).
    ///
    /// A call whose node is in the queue and whose watches are set is only waiting for its turn.
    /// This time does not limit it.
    #[must_use]
    pub fn max_elapsed(mut self, max_elapsed: Duration) -> Self {
        self.max_elapsed = max_elapsed;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.base.is_zero() || self.cap < self.base {
            return Err(Error::InvalidConfig {
                what: "retry policy",
                reason: format!(
                    "the base ({:?}) must be above zero and at most the cap ({:?})",
                    self.base, self.cap
                ),
            });
        }
        Ok(())
    }

    /// The pause after so many failures in a row, with jitter: between half and all of it.
    pub(super) fn pause(&self, failures: u32) -> Duration {
        let factor = 1u32.checked_shl(failures.saturating_sub(1).min(20)).unwrap_or(u32::MAX);
        let full = self.base.saturating_mul(factor).min(self.cap).min(LONGEST);
        full.mul_f64(0.5 + random() / 2.0)
    }
}

/// A duration that ZooKeeper can carry: 1 ms to `i32::MAX` ms.
pub(super) fn check_millis(what: &'static str, d: Duration) -> Result<()> {
    if d.as_millis() == 0 || d.as_millis() > i32::MAX as u128 {
        return Err(Error::InvalidConfig {
            what,
            reason: format!("{d:?} is not between 1 ms and {} ms", i32::MAX),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_cap_and_vary() {
        let policy = RetryPolicy::default();
        for failures in 0..100 {
            let pause = policy.pause(failures);
            assert!(pause >= policy.base / 2 && pause <= policy.cap, "{failures}: {pause:?}");
        }
        assert!(policy.pause(50) >= policy.cap / 2);
        assert!(policy.base(Duration::MAX).cap(Duration::MAX).pause(1) <= LONGEST);
    }
}
