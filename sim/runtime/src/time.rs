//! The clocks of the calling process.

use std::ops::{Add, AddAssign, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::core::{self, Sim};
use crate::process::Clock;
use crate::trace::Op;

/// A point on the monotonic clock of a process, as `std::time::Instant`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// The time on this process's clock; outside of processes, the world's time.
fn read(of: impl Fn(&Clock, u64) -> u64) -> u64 {
    core::point(Op::Clock, 0);
    core::with(|sim| shown(sim, of))
}

fn shown(sim: &Sim, of: impl Fn(&Clock, u64) -> u64) -> u64 {
    let now = sim.now.get();
    sim.current_process().map_or(now, |process| of(&sim.processes.borrow()[process.0].clock, now))
}

impl Instant {
    /// Now.
    pub fn now() -> Instant {
        Instant(read(Clock::monotonic))
    }

    /// Now, without a scheduling point.
    pub(crate) fn now_at(sim: &Sim) -> Instant {
        Instant(shown(sim, Clock::monotonic))
    }

    pub(crate) fn nanos(self) -> u64 {
        self.0
    }

    /// As std's.
    pub fn elapsed(&self) -> Duration {
        Instant::now().saturating_duration_since(*self)
    }

    /// As std's.
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }

    /// As std's.
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// As std's.
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_sub(earlier.0).map(Duration::from_nanos)
    }

    /// As std's.
    pub fn checked_add(&self, d: Duration) -> Option<Instant> {
        u64::try_from(d.as_nanos()).ok().and_then(|d| self.0.checked_add(d)).map(Instant)
    }

    /// As std's.
    pub fn checked_sub(&self, d: Duration) -> Option<Instant> {
        u64::try_from(d.as_nanos()).ok().and_then(|d| self.0.checked_sub(d)).map(Instant)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(nanos(d)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, d: Duration) -> Instant {
        Instant(self.0.saturating_sub(nanos(d)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

/// The time on a clock that goes on while the host sleeps.
pub fn boot_time() -> Duration {
    Duration::from_nanos(read(Clock::boot))
}

/// The time on the wall clock.
pub fn wall_time() -> SystemTime {
    core::point(Op::Clock, 1);
    let ms = core::with(|sim| match sim.current_process() {
        Some(process) => sim.processes.borrow()[process.0].clock.wall_ms(sim.now.get()),
        None => Clock::default().wall_ms(sim.now.get()),
    });
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}
