//! The control beside the tests: a thread that does nothing but sleep, and notes how late it wakes.
//!
//! A test that gives a call a bound of some seconds judges the machine too: with ten busy processes
//! for each processor, a thread that could run waits for a long time until it does. The control
//! waits in the same process, in the same way, and has nothing of the library in it. So what it was
//! late is the machine's part of the time, and [`at_best`] takes that off. On a machine that is
//! punctual nothing is taken off, and the bound is as strict as it is written.
use parking_lot::Mutex;
use std::{
    fs,
    ops::Range,
    sync::{LazyLock, Once},
    thread,
    time::{Duration, Instant},
};

/// The time between two looks of the control.
const LOOK: Duration = Duration::from_millis(5);
/// What a thread may be late on a machine that is punctual.
const PUNCTUAL: Duration = Duration::from_millis(1);
/// A look that comes so late was kept waiting, and not only woken slowly.
const KEPT: Duration = Duration::from_millis(20);

/// What the control has noted.
struct Noted {
    /// When it looked last.
    last: Instant,
    /// Each look that came late: when it should have come, and when it came.
    late: Vec<(Instant, Instant)>,
}

static NOTED: LazyLock<Mutex<Noted>> =
    LazyLock::new(|| Mutex::new(Noted { last: Instant::now(), late: Vec::new() }));

/// Starts the control of this process. What was before the first call is not known.
pub fn start() {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        LazyLock::force(&NOTED);
        thread::Builder::new().name("control".into()).spawn(watch).expect("a thread");
    });
}

fn watch() {
    loop {
        thread::sleep(LOOK);
        let (mut noted, now) = (NOTED.lock(), Instant::now());
        let due = noted.last + LOOK;
        if now.saturating_duration_since(due) > PUNCTUAL {
            noted.late.push((due, now));
        }
        noted.last = now;
    }
}

/// For how long since `from` the control could have run, and did not: the machine's part of the
/// time.
pub fn late_since(from: Instant) -> Duration {
    sum_since(from, PUNCTUAL)
}

/// The same without the looks that came less than 20 ms late. The control wakes up to 200 times in a
/// second, and a machine that is busy delays each of these by a little. A thread that sleeps until
/// one time is delayed once: all the little delays of the control are no part of its time.
pub fn kept_since(from: Instant) -> Duration {
    sum_since(from, KEPT)
}

/// For how long since `from` those looks were late that came more than `least` late.
fn sum_since(from: Instant, least: Duration) -> Duration {
    start();
    let (noted, now) = (NOTED.lock(), Instant::now());
    let first = noted.late.partition_point(|(_, came)| *came <= from);
    // The look that is due now may be late itself.
    let looks = noted.late[first..].iter().copied().chain([(noted.last + LOOK, now)]);
    let late = looks.filter(|(due, came)| came.saturating_duration_since(*due) > least);
    late.map(|(due, came)| came.saturating_duration_since(due.max(from))).sum()
}

/// How long the time since `from` would have been on a machine that is punctual. A bound for a call
/// is a bound for this.
pub fn at_best(from: Instant) -> Duration {
    from.elapsed().saturating_sub(late_since(from))
}

/// Checks how long something has lasted that began at `from`: no less than the first bound, whatever
/// the machine does, and less than the second one on a machine that is punctual.
#[track_caller]
pub fn assert_lasted(from: Instant, bounds: Range<Duration>) {
    let (best, real) = (at_best(from), from.elapsed());
    assert!(real >= bounds.start && best < bounds.end, "{real:?}, {best:?} at best: {bounds:?}");
}

/// How the scheduler has treated a thread so far. In the rest of its time it was asleep.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scheduled {
    /// For how long it ran on a processor.
    pub ran: Duration,
    /// For how long it was runnable and had no processor.
    pub runnable: Duration,
}

impl Scheduled {
    /// That of the calling thread. It asks the kernel alone, so it also tells of the one thread of a
    /// forked child, where there is no control.
    pub fn here() -> Scheduled {
        let text = fs::read_to_string("/proc/thread-self/schedstat").expect("schedstat");
        let mut words = text.split_whitespace().map(|word| word.parse().expect("nanoseconds"));
        let mut next = || Duration::from_nanos(words.next().expect("a time"));
        Scheduled { ran: next(), runnable: next() }
    }

    /// That of the calling thread since then.
    pub fn since(self) -> Scheduled {
        let Scheduled { ran, runnable } = Scheduled::here();
        Scheduled {
            ran: ran.saturating_sub(self.ran),
            runnable: runnable.saturating_sub(self.runnable),
        }
    }
}

/// Checks what a process must have done within a time that leaves it `spare`. It may have failed to
/// only if the machine took that much of the time since `from`.
#[track_caller]
pub fn assert_in_time(is_so: bool, from: Instant, spare: Duration, what: &str) {
    let late = late_since(from);
    assert!(is_so || late >= spare, "not so: {what}; the machine was late for {late:?} only");
    if !is_so {
        eprintln!("not judged, the machine was late for {late:?}: {what}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_no_lateness_and_a_look_that_comes_late_is() {
        start();
        let begun = Instant::now();
        thread::sleep(LOOK * 20);
        let (best, real) = (at_best(begun), begun.elapsed());
        assert!(best <= real && best + late_since(begun) >= LOOK * 20);
        // While somebody keeps the control from its note, it is late.
        let (held, begun) = (NOTED.lock(), Instant::now());
        thread::sleep(LOOK * 40);
        drop(held);
        let late = late_since(begun);
        assert!(late >= LOOK * 30, "{late:?}");
        assert!(at_best(begun) <= begun.elapsed() - LOOK * 30);
        // It was one long delay. A look that comes a little late is none.
        assert!(kept_since(begun) >= LOOK * 30);
        let mut noted = NOTED.lock();
        let last = Instant::now();
        let begun = last - LOOK * 2;
        noted.late.push((last - LOOK, last));
        noted.last = last;
        drop(noted);
        let (kept, late) = (kept_since(begun), late_since(begun));
        assert!(late >= kept + LOOK, "{late:?} {kept:?}");
    }

    #[test]
    fn a_thread_that_sleeps_neither_runs_nor_waits_for_a_processor() {
        let (begun, before) = (Instant::now(), Scheduled::here());
        while begun.elapsed() < LOOK * 20 {}
        let spun = before.since();
        assert!(spun.ran + spun.runnable >= LOOK * 15, "{spun:?}");
        let before = Scheduled::here();
        let begun = Instant::now();
        thread::sleep(LOOK * 60);
        let Scheduled { ran, runnable } = before.since();
        assert!(begun.elapsed() - ran - runnable >= LOOK * 50, "{ran:?} {runnable:?}");
    }
}
