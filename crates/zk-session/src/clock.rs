//! The clock on which leases are measured. It goes on while the host sleeps.
//!
//! `std::time::Instant` stops during suspend on Linux and macOS. A lease that is measured on it
//! would still last on a host that has just woken up, long after the server expired the session.

use std::ops::Add;
use std::time::Duration;

use crate::world;
use crate::world::atomic::{AtomicU64, Ordering};

/// A point on the boot-time clock, in nanoseconds since its start. They suffice for 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(u64);

impl BootTime {
    /// Later than any time.
    pub(crate) const END: BootTime = BootTime(u64::MAX);

    pub fn now() -> Self {
        BootTime(nanos(world::boot_time()))
    }

    /// The time `d` before this; the start of the clock, if that is later.
    pub(crate) fn before(self, d: Duration) -> Self {
        BootTime(self.0.saturating_sub(nanos(d)))
    }

    /// The time from `earlier` to this; zero if `earlier` is later.
    pub fn since(self, earlier: BootTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// A point in time that threads read without a lock. At first it is the start of the clock.
#[derive(Default)]
pub struct SharedTime(AtomicU64);

impl SharedTime {
    /// A thread that reads a time here also sees everything that the writer did before it wrote
    /// that time.
    pub fn get(&self) -> BootTime {
        BootTime(self.0.load(Ordering::Acquire))
    }

    pub fn set(&self, time: BootTime) {
        self.0.store(time.0, Ordering::Release);
    }
}

impl Add<Duration> for BootTime {
    type Output = BootTime;

    fn add(self, rhs: Duration) -> BootTime {
        BootTime(self.0.saturating_add(nanos(rhs)))
    }
}

#[cfg(test)]
impl BootTime {
    pub(crate) fn at(d: Duration) -> Self {
        BootTime(nanos(d))
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

    /// A wall clock can be set back, and other clocks stop while the host sleeps. A lease that is
    /// measured on one of them would last longer than its session.
    #[cfg(target_os = "linux")]
    #[test]
    fn it_is_the_boot_time_clock() {
        use rustix::time::{ClockId, clock_gettime};
        let boot = || {
            let now = clock_gettime(ClockId::Boottime);
            BootTime::at(Duration::new(
                now.tv_sec.try_into().unwrap(),
                now.tv_nsec.try_into().unwrap(),
            ))
        };
        let (before, now, after) = (boot(), BootTime::now(), boot());
        assert!(before <= now && now <= after, "{before:?} {now:?} {after:?}");
    }
}
