//! The end of a `max_hold` is told in time.
//!
//! It needs nothing but a clock: no network, no other thread's answer. So it is not found by looks
//! now and then, but at the moment itself: the observer looks again behind the latest time at which
//! the hold may end, when a thread that runs must have told it.

use std::time::Duration;

use zk_mutex_simulated::observed::Observed;
use zk_sim_runtime::{ProcessId, after, clock_of, is_alive, slept_for, stopped_for};

use super::{Guard, Observer, report};

const LATE_END: &str = "end told late";

/// How late the thread may be that tells it, since it may have no processor for a while.
const LATE: Duration = Duration::from_millis(100);

/// While a host sleeps, the clock of the holds goes on, and threads that wait for a time do not
/// wake earlier for that. So the library lets the thread that tells the end wait for a second at
/// most.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A guard whose time will be over.
#[derive(Clone)]
struct Bound {
    process: ProcessId,
    thread: usize,
    /// By its process's clock.
    got: Duration,
    hold: Observed,
    /// How long the host had slept by then.
    slept: Duration,
    /// The latest end of its time.
    end: Duration,
}

impl Observer {
    /// Looks at this new guard behind the end of its time.
    pub(super) fn will_end(&self, guard: &Guard) {
        let Guard { process, thread, got, .. } = *guard;
        if let Some(most) = self.seen(|seen| seen.setting.max_hold(&guard.node.lock)) {
            let (hold, end) = (guard.hold.clone(), got + most);
            let slept = slept_for(process);
            self.at_clock(Bound { process, thread, got, slept, hold, end }, end, None);
        }
    }

    /// Looks when the clock of the process shows this time. `before`: the time of
    /// the guard was over at the last look, and the process had been stopped for so long by then.
    fn at_clock(&self, bound: Bound, time: Duration, before: Option<Duration>) {
        let left = time.saturating_sub(clock_of(bound.process)).max(Duration::from_nanos(1));
        let observer = self.clone();
        after(left, move || observer.looks_at_end(bound, time, before));
    }

    fn looks_at_end(&self, bound: Bound, time: Duration, before: Option<Duration>) {
        if !is_alive(bound.process) || !self.seen(|seen| seen.guards.iter().any(|g| bound.is_of(g)))
        {
            return;
        }
        let (clock, stopped) = (clock_of(bound.process), stopped_for(bound.process));
        let has_slept = slept_for(bound.process) != bound.slept;
        let late = if has_slept { LATE + LONGEST_WAIT } else { LATE };
        let late = late * self.seen(|seen| seen.setting.slowness());
        match before {
            // The clock has been slow meanwhile.
            _ if clock < time => self.at_clock(bound, time, before),
            // A process that is stopped has as much time again.
            Some(before) if before == stopped => report(self.seen(|_| {
                let Bound { hold, end, .. } = &bound;
                let text = || format!("{}: its time is over since {end:?}", hold.path);
                (!hold.is_told_lost()).then(|| (LATE_END, text()))
            })),
            _ => {
                if before.is_none() {
                    self.seen(|seen| seen.counts.note(LATE_END));
                }
                self.at_clock(bound, clock + late, Some(stopped));
            }
        }
    }
}

impl Bound {
    fn is_of(&self, guard: &Guard) -> bool {
        (guard.process, guard.thread, guard.got) == (self.process, self.thread, self.got)
            && guard.hold.is_same(&self.hold)
    }
}
