//! The results of the threads: added up, checked and printed.

use std::time::Duration;
use zk_mutex_bench::say;

/// The results of one thread, or of all together.
#[derive(Default)]
pub struct Tally {
    /// The wait for each hold.
    pub waits: Vec<Duration>,
    /// Rounds in which the counter was written under a valid hold.
    pub sections: u64,
    /// Rounds that ended without the lock.
    pub timeouts: u64,
    /// Holds that were lost before the write; their rounds were repeated.
    pub lost: u64,
    /// Sections in which another section was inside although the hold was valid: the lock is
    /// broken.
    pub overlaps: u64,
    /// Errors that ended a thread, each once.
    pub failures: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, mut other: Tally) {
        // Several threads may fail for the same reason; it is reported once.
        other.failures.retain(|failure| !self.failures.contains(failure));
        self.waits.append(&mut other.waits);
        self.sections += other.sections;
        self.timeouts += other.timeouts;
        self.lost += other.lost;
        self.overlaps += other.overlaps;
        self.failures.append(&mut other.failures);
    }
}

/// The run as a whole.
pub struct Summary {
    pub threads: u32,
    pub rounds: u32,
    pub tally: Tally,
    pub counter: u64,
    /// Whether other processes may have counted too: then the caller has to check the total.
    pub shared: bool,
    pub took: Duration,
}

impl Summary {
    pub fn exact(&self) -> bool {
        self.shared || self.counter == self.tally.sections
    }

    /// Whether every round is accounted for, no update was lost, and no two sections overlapped.
    pub fn good(&self) -> bool {
        let rounds = u64::from(self.threads) * u64::from(self.rounds);
        self.exact()
            && self.tally.overlaps == 0
            && self.tally.failures.is_empty()
            && self.tally.sections + self.tally.timeouts == rounds
    }

    pub fn print(&mut self, json: bool) {
        self.tally.waits.sort_unstable();
        let (p50, p99) = (self.wait(0.5), self.wait(0.99));
        let seconds = self.took.as_secs_f64();
        let Tally { sections, timeouts, lost, overlaps, .. } = self.tally;
        let judgement = match (self.shared, self.exact()) {
            (true, _) => "in a shared file: check it against the sections of all processes",
            (_, true) => "exact",
            (_, false) => "WRONG: updates were lost",
        };
        say!(
            "{sections} sections by {} threads in {seconds:.2} s: {:.1} per second",
            self.threads,
            sections as f64 / seconds
        );
        say!("waited p50 {:.1} ms, p99 {:.1} ms", p50 as f64 / 1e3, p99 as f64 / 1e3);
        say!("{timeouts} timeouts, {lost} lost, {overlaps} overlaps");
        say!("counter {}, {judgement}", self.counter);
        if json {
            say!(
                "{{\"threads\":{},\"rounds\":{},\"sections\":{sections},\"timeouts\":{timeouts},\
                 \"lost\":{lost},\"overlaps\":{overlaps},\"counter\":{},\"seconds\":{seconds:.3},\
                 \"wait_p50_us\":{p50},\"wait_p99_us\":{p99}}}",
                self.threads,
                self.rounds,
                self.counter,
            );
        }
    }

    /// A percentile of the sorted waits, in microseconds.
    fn wait(&self, q: f64) -> u128 {
        let waits = &self.tally.waits;
        let at = (waits.len() as f64 * q) as usize;
        waits.get(at).or(waits.last()).map_or(0, Duration::as_micros)
    }
}
