//! A clock that goes on while the host sleeps: leases are measured on it.
//!
//! `std::time::Instant` stops during suspend on Linux and macOS, so a lease measured on it would
//! seem to live on a host that just woke up long after the server expired its session.

use std::ops::Add;
use std::time::Duration;

/// A point on the boot-time clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(Duration);

impl BootTime {
    #[cfg(unix)]
    pub(crate) fn now() -> Self {
        use rustix::time::{ClockId, clock_gettime};
        // On Apple systems CLOCK_MONOTONIC itself goes on during sleep.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let now = clock_gettime(ClockId::Boottime);
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        let now = clock_gettime(ClockId::Monotonic);
        BootTime(Duration::new(
            u64::try_from(now.tv_sec).unwrap_or(0),
            u32::try_from(now.tv_nsec).unwrap_or(0),
        ))
    }

    /// On Windows `Instant` counts sleep.
    #[cfg(not(unix))]
    pub(crate) fn now() -> Self {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        BootTime(START.get_or_init(Instant::now).elapsed())
    }

    /// This time less `d`; the start of the clock, if that is later.
    pub(crate) fn before(self, d: Duration) -> Self {
        BootTime(self.0.saturating_sub(d))
    }

    /// The time from `earlier` to this, zero when `earlier` is later.
    pub(crate) fn since(self, earlier: BootTime) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for BootTime {
    type Output = BootTime;

    fn add(self, rhs: Duration) -> BootTime {
        BootTime(self.0.saturating_add(rhs))
    }
}

#[cfg(test)]
impl BootTime {
    pub(crate) fn at(d: Duration) -> Self {
        BootTime(d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goes_forward_and_saturates() {
        let a = BootTime::now();
        assert!(BootTime::now() >= a);
        assert_eq!(a.since(a + Duration::from_secs(1)), Duration::ZERO);
        assert!(a + Duration::MAX > a);
    }
}
