//! The server's time since it was made: real, or moved by the test.

use std::time::{Duration, Instant};

/// Only [`advance`](Clock::advance) moves the virtual one.
#[derive(Debug)]
pub(super) enum Clock {
    Real { start: Instant },
    Virtual { now: Duration },
}

impl Clock {
    pub(super) fn real() -> Clock {
        Clock::Real { start: Instant::now() }
    }

    pub(super) fn manual() -> Clock {
        Clock::Virtual { now: Duration::ZERO }
    }

    pub(super) fn now(&self) -> Duration {
        match self {
            Clock::Real { start } => start.elapsed(),
            Clock::Virtual { now } => *now,
        }
    }

    /// How long to wait, in real time, until this clock shows `at`. `None` for a virtual clock:
    /// waiting does not move it.
    pub(super) fn until(&self, at: Duration) -> Option<Duration> {
        match self {
            Clock::Real { start } => Some(at.saturating_sub(start.elapsed())),
            Clock::Virtual { .. } => None,
        }
    }

    /// Moves the virtual clock to `at`; `false` if this is a real one.
    pub(super) fn set(&mut self, at: Duration) -> bool {
        match self {
            Clock::Real { .. } => false,
            Clock::Virtual { now } => {
                *now = (*now).max(at);
                true
            }
        }
    }
}

/// As `Duration::from_nanos_u128` of Rust 1.93, but a number that is too large gives the longest
/// `Duration`.
pub(super) fn from_nanos(nanos: u128) -> Duration {
    const SECOND: u128 = 1_000_000_000;
    match (u64::try_from(nanos / SECOND), u32::try_from(nanos % SECOND)) {
        (Ok(seconds), Ok(rest)) => Duration::new(seconds, rest),
        _ => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_clock_stands_until_it_is_moved() {
        let mut clock = Clock::manual();
        let at = Duration::from_secs(3);
        assert_eq!(clock.now(), Duration::ZERO);
        assert_eq!(clock.until(at), None);
        assert!(clock.set(at));
        assert!(clock.set(Duration::ZERO), "it does not go back");
        assert_eq!(clock.now(), at);
    }

    #[test]
    fn any_number_of_nanoseconds_is_a_duration() {
        for time in [Duration::ZERO, Duration::from_millis(1_999), Duration::MAX] {
            assert_eq!(from_nanos(time.as_nanos()), time);
        }
        assert_eq!(from_nanos(u128::MAX), Duration::MAX);
    }

    #[test]
    fn a_real_clock_cannot_be_moved() {
        let mut clock = Clock::real();
        assert!(!clock.set(Duration::from_secs(9)));
        assert!(
            clock.until(Duration::from_secs(9)).is_some_and(|wait| wait > Duration::from_secs(8))
        );
        assert_eq!(clock.until(Duration::ZERO), Some(Duration::ZERO));
    }
}
