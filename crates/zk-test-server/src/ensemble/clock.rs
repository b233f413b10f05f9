//! A member's own clock. It may show any time, and runs a little faster or slower than the clock of
//! the simulated world.

use std::time::Duration;

#[derive(Debug)]
pub(super) struct Clock {
    /// The same moment in the world's time and by this clock.
    world: Duration,
    own: Duration,
    /// How much faster this clock runs than the world's, in millionths.
    drift_ppm: i32,
}

const MILLION: i128 = 1_000_000;

impl Clock {
    /// A clock that is ahead of the world's clock by this much.
    pub(super) fn new(ahead: Duration) -> Clock {
        Clock { world: Duration::ZERO, own: ahead, drift_ppm: 0 }
    }

    fn rate(&self) -> i128 {
        (MILLION + i128::from(self.drift_ppm)).max(1)
    }

    /// The time that this clock shows at a moment of the world's time.
    pub(super) fn at(&self, world: Duration) -> Duration {
        let passed = world.saturating_sub(self.world).as_nanos() as i128;
        self.own.saturating_add(nanos(passed * self.rate() / MILLION))
    }

    /// The first moment of the world's time at which this clock shows `own` or more.
    pub(super) fn when(&self, own: Duration) -> Duration {
        let ahead = own.saturating_sub(self.own).as_nanos() as i128;
        self.world.saturating_add(nanos((ahead * MILLION + self.rate() - 1) / self.rate()))
    }

    /// Lets this clock run faster than the world's by so many millionths from now on.
    pub(super) fn set_drift(&mut self, drift_ppm: i32, world: Duration) {
        (self.own, self.world) = (self.at(world), world.max(self.world));
        self.drift_ppm = drift_ppm;
    }
}

/// No simulation lasts for 500 years.
fn nanos(n: i128) -> Duration {
    Duration::from_nanos(u64::try_from(n).unwrap_or(if n < 0 { 0 } else { u64::MAX }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_due_at_the_time_that_it_was_set_to() {
        for drift in [-83_333, -7, 0, 3, 500_000] {
            let mut clock = Clock::new(Duration::from_millis(13));
            clock.set_drift(drift, Duration::from_nanos(1_234_567));
            for own in [20_000_000, 77_777_777, 999_999_937, 86_400_000_000_001] {
                let own = Duration::from_nanos(own);
                let due = clock.when(own);
                assert!(clock.at(due) >= own, "{drift} {own:?}");
                assert!(clock.at(due - Duration::from_nanos(2)) < own, "{drift} {own:?}");
            }
        }
    }
}
