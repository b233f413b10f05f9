//! What `bench/compare` and each of its peers agree on: arguments, marks, the shared clock, the
//! lines of JSON and of events.
//!
//!     PEER HOSTS WORKLOAD key=value...
//!
//! - A peer that lacks the workload ends with exit status 3, and with 2 if the arguments are wrong.
//!   Otherwise it connects, and warms up with so many cycles (`warm`) on a path of its own.
//! - It prints `MARK ready` and waits for a line of input. `waiters` prints `MARK queued` when all
//!   its threads wait, and waits for one more line.
//! - It runs, and prints one line of JSON: `threads`, `ops`, `seconds`, `ops_per_s`; `p50_us` and
//!   `p99_us` of acquire (in `reentrant`, of acquire and release); `rel_p50_us` of release; and
//!   `exact`: a counter that the lock alone protected came out right. `waiters` adds `sessions`.
//! - With `events=FILE` it writes a line for each cycle, of four times of CLOCK_MONOTONIC in ns:
//!   when acquire was called and had returned, and when release was called and had returned.
//! - It prints `DONE`, and keeps its sessions until its input is closed.

use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// The size of a thread's stack. Benchmarks have a thousand waiters, which need little.
pub const STACK: usize = 256 * 1024;
/// How long `drain` gives its threads to queue.
const LIMIT: Duration = Duration::from_secs(60);
/// The time from a thread's report that it will acquire the lock until it is in the local queue.
const SETTLE: Duration = Duration::from_millis(300);
/// Exit code: the arguments are wrong.
const WRONG: u8 = 2;
/// Exit code: the workload does not exist here.
const UNKNOWN: u8 = 3;

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

pub struct Args {
    pub hosts: String,
    pub workload: String,
    settings: Vec<(String, String)>,
}

/// The keys whose values are numbers, with the range of each.
const NUMBERS: [(&str, RangeInclusive<u64>); 7] = [
    ("max", 1..=u64::MAX),
    ("ms", 1..=u64::MAX),
    ("threads", 1..=10_000),
    ("sessions", 1..=10_000),
    ("paths", 1..=1_000_000),
    ("warm", 0..=u64::MAX),
    ("hand_over", 0..=60_000),
];
const TEXTS: [&str; 2] = ["path", "events"];

impl Args {
    /// Reads `HOSTS WORKLOAD key=value...`; the error describes what is wrong.
    pub fn parse() -> Result<Args, String> {
        let mut words = std::env::args().skip(1);
        let (Some(hosts), Some(workload)) = (words.next(), words.next()) else {
            return Err("wants HOSTS WORKLOAD key=value...".to_owned());
        };
        let settings = words
            .map(|word| match word.split_once('=') {
                Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
                None => Err(format!("{word:?} is not key=value")),
            })
            .collect::<Result<_, _>>()?;
        Ok(Args { hosts, workload, settings })
    }

    /// Checks all keys and values before the workload begins.
    pub fn check(&self) -> Result<(), String> {
        for (key, value) in &self.settings {
            if let Some((_, range)) = NUMBERS.iter().find(|(number, _)| number == key) {
                let number: u64 =
                    value.parse().map_err(|_| format!("{key}={value}: not a whole number"))?;
                if !range.contains(&number) {
                    return Err(format!(
                        "{key}={value}: not within {} and {}",
                        range.start(),
                        range.end()
                    ));
                }
            } else if !TEXTS.contains(&key.as_str()) {
                return Err(format!("there is no key {key:?}"));
            }
        }
        match self.path() {
            path if !path.starts_with('/') || path.ends_with('/') => {
                Err(format!("path={path}: not a path below the root"))
            }
            _ => Ok(()),
        }
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    pub fn number(&self, key: &str, default: u64) -> Outcome<u64> {
        match self.text(key) {
            Some(text) => {
                text.parse().map_err(|_| format!("{key}={text}: not a whole number").into())
            }
            None => Ok(default),
        }
    }

    pub fn threads(&self) -> Outcome<usize> {
        Ok(usize::try_from(self.number("threads", 1)?)?)
    }

    /// The sessions of the workload `waiters`: no more than threads.
    pub fn sessions(&self) -> Outcome<usize> {
        Ok(usize::try_from(self.number("sessions", 8)?)?.clamp(1, self.threads()?))
    }

    /// Where this process warms up, alone.
    pub fn warm_path(&self) -> String {
        format!("{}-warm-{}", self.path(), std::process::id())
    }

    pub fn path(&self) -> &str {
        self.text("path").unwrap_or("/bench/lock")
    }

    /// The limit of a loop that starts now.
    pub fn limit(&self) -> Outcome<Limit> {
        let milliseconds = self.number("ms", 3_600_000)?;
        let deadline = now().saturating_add(milliseconds.saturating_mul(1_000_000));
        Ok(Limit { cycles: self.number("max", u64::MAX)?, deadline })
    }
}

/// Ends a loop at a count or at a time, whichever comes first.
#[derive(Clone, Copy)]
pub struct Limit {
    cycles: u64,
    deadline: u64,
}

impl Limit {
    pub fn reached(&self, done: usize) -> bool {
        done as u64 >= self.cycles || now() >= self.deadline
    }
}

/// CLOCK_MONOTONIC in ns, which all peers of a machine share.
pub fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// One acquire and release: the begin and the end of each call.
#[derive(Clone, Copy)]
pub struct Cycle {
    pub acquire: u64,
    pub acquired: u64,
    pub release: u64,
    pub released: u64,
}

/// A counter that loses updates unless a lock guards it.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn bump(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Runs the workload that `find` has for the name, and returns the program's exit code. `is_wrong`
/// picks the errors that tell that an argument is wrong.
pub fn run<F: FnOnce(&Args) -> Outcome<()>>(
    program: &str,
    find: impl FnOnce(&str) -> Option<F>,
    is_wrong: impl FnOnce(&(dyn Error + Send + Sync + 'static)) -> bool,
) -> ExitCode {
    let refuse = |code: u8, why: &str| {
        eprintln!("{program}: {why}");
        ExitCode::from(code)
    };
    let args = match Args::parse() {
        Ok(args) => args,
        Err(why) => return refuse(WRONG, &why),
    };
    let Some(workload) = find(&args.workload) else {
        return refuse(UNKNOWN, &format!("there is no workload {:?} here", args.workload));
    };
    if let Err(why) = args.check() {
        return refuse(WRONG, &why);
    }
    match workload(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let code = if is_wrong(error.as_ref()) { WRONG } else { 1 };
            refuse(code, &error.to_string())
        }
    }
}

/// Prints the mark and waits for the driver's line.
pub fn mark(name: &str) -> io::Result<()> {
    print(&format!("MARK {name}"))?;
    io::stdin().read_line(&mut String::new()).map(drop)
}

/// Threads in a loop: each makes its lock, of which it gets a function for one cycle, and runs
/// cycles until the limit.
pub fn in_a_loop<C: FnMut() -> Outcome<Cycle>>(
    args: &Args,
    counter: Option<&Counter>,
    make: impl Fn() -> Outcome<C> + Sync,
) -> Outcome<()> {
    mark("ready")?;
    let (start, limit) = (now(), args.limit()?);
    let cycles = thread::scope(|scope| -> Outcome<Vec<Cycle>> {
        let run = || -> Outcome<Vec<Cycle>> {
            let (mut cycle, mut cycles) = (make()?, Vec::new());
            while !limit.reached(cycles.len()) {
                cycles.push(cycle()?);
            }
            Ok(cycles)
        };
        let threads = (0..args.threads()?)
            .map(|_| Builder::new().stack_size(STACK).spawn_scoped(scope, run))
            .collect::<Result<Vec<_>, _>>()?;
        gather(threads)
    })?;
    report(args, &cycles, start, counter, "")?;
    Ok(done()?)
}

/// Many waiters behind a holder, with one cycle each. It measures the time from the holder's
/// release to the last waiter's release. Each waiter makes its lock from its number, and `queued`
/// says whether all of them are in the queue once they have been told to acquire.
///
/// No thread ends before all have finished their cycle: the ends of 1,000 threads would take longer
/// than the hand-overs between them.
pub fn drain<C: FnOnce() -> Outcome<Cycle> + Send>(
    args: &Args,
    counter: &Counter,
    make: impl Fn(usize) -> Outcome<C>,
    mut queued: impl FnMut() -> Outcome<bool>,
    release: impl FnOnce() -> Outcome<()>,
) -> Outcome<()> {
    mark("ready")?;
    let (threads, before) = (args.threads()?, resident());
    let (calling, all) = (AtomicUsize::new(0), Barrier::new(threads));
    let (start, cycles, memory) = thread::scope(|scope| -> Outcome<(u64, Vec<Cycle>, String)> {
        let (calling, all) = (&calling, &all);
        let mut started = Vec::new();
        for number in 0..threads {
            let cycle = make(number)?;
            let wait = move || -> Outcome<Vec<Cycle>> {
                calling.fetch_add(1, Relaxed);
                let cycle = cycle();
                all.wait();
                Ok(vec![cycle?])
            };
            started.push(Builder::new().stack_size(STACK).spawn_scoped(scope, wait)?);
        }
        let deadline = Instant::now() + LIMIT;
        while calling.load(Relaxed) < threads || !queued()? {
            if Instant::now() >= deadline {
                return Err("the waiters did not queue in time".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(SETTLE);
        let memory = bytes_each(before, threads);
        mark("queued")?;
        let start = now();
        release()?;
        Ok((start, gather(started)?, memory))
    })?;
    let sessions = args.sessions()?;
    report(args, &cycles, start, Some(counter), &format!(",\"sessions\":{sessions}{memory}"))?;
    Ok(done()?)
}

/// The results of threads.
pub fn gather(threads: Vec<ScopedJoinHandle<'_, Outcome<Vec<Cycle>>>>) -> Outcome<Vec<Cycle>> {
    let mut all = Vec::new();
    for thread in threads {
        all.extend(thread.join().map_err(|_| "a thread panicked")??);
    }
    Ok(all)
}

/// A lock of one thread, without any recovery.
pub trait Bare {
    fn acquire(&mut self) -> Outcome<()>;
    fn release(&mut self) -> Outcome<()>;

    /// One acquire and release.
    fn cycle(&mut self, inside: impl FnOnce()) -> Outcome<Cycle> {
        let acquire = now();
        self.acquire()?;
        let acquired = now();
        inside();
        let release = now();
        self.release()?;
        Ok(Cycle { acquire, acquired, release, released: now() })
    }
}

/// Warms up with a lock on the path of [`Args::warm_path`].
pub fn warm(args: &Args, mut lock: impl Bare) -> Outcome<()> {
    for _ in 0..args.number("warm", 500)? {
        lock.cycle(|| ())?;
    }
    Ok(())
}

/// Reports the end of the measurement. The sessions stay until the driver closes our input.
pub fn done() -> io::Result<()> {
    print("DONE")?;
    io::copy(&mut io::stdin(), &mut io::sink()).map(drop)
}

/// Writes the events, if they are wanted, and the line of JSON for cycles, which ends with `more`
/// and, if a counter was kept, with the result of its check.
pub fn report(
    args: &Args,
    cycles: &[Cycle],
    start: u64,
    counter: Option<&Counter>,
    more: &str,
) -> Outcome<()> {
    if let Some(path) = args.text("events") {
        let mut file = BufWriter::new(File::create(path)?);
        for c in cycles {
            writeln!(file, "{} {} {} {}", c.acquire, c.acquired, c.release, c.released)?;
        }
        file.flush()?;
    }
    let end = cycles.iter().map(|c| c.released).max().unwrap_or(start + 1);
    let mut acquiring: Vec<_> = cycles.iter().map(|c| c.acquired - c.acquire).collect();
    let mut releasing: Vec<_> = cycles.iter().map(|c| c.released - c.release).collect();
    let mut more = format!("{more},\"rel_p50_us\":{:.1}", percentile(&mut releasing, 0.5));
    if let Some(counter) = counter {
        let exact = counter.get() == cycles.len() as u64;
        more.push_str(&format!(",\"exact\":{exact}"));
    }
    line(args, end - start, &mut acquiring, &more)
}

/// One line of JSON about so many operations in so many ns.
pub fn line(args: &Args, took: u64, latencies: &mut [u64], more: &str) -> Outcome<()> {
    let (operations, seconds) = (latencies.len(), took as f64 / 1e9);
    Ok(print(&format!(
        "{{\"threads\":{},\"ops\":{operations},\"seconds\":{seconds:.3},\"ops_per_s\":{:.1},\
         \"p50_us\":{:.1},\"p99_us\":{:.1}{more}}}",
        args.threads()?,
        operations as f64 / seconds,
        percentile(latencies, 0.5),
        percentile(latencies, 0.99),
    ))?)
}

/// The resident memory of this process in bytes; 0 if the system does not report it.
pub fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().map_or(0, |kilobytes: u64| kilobytes * 1024)
}

/// The part of the line of JSON with the growth of memory since `before`, divided by `count`.
pub fn bytes_each(before: u64, count: usize) -> String {
    format!(",\"bytes_each\":{}", resident().saturating_sub(before) / count.max(1) as u64)
}

/// A percentile in microseconds.
pub fn percentile(ns: &mut [u64], q: f64) -> f64 {
    ns.sort_unstable();
    let at = (ns.len() as f64 * q) as usize;
    ns.get(at).or(ns.last()).map_or(0.0, |ns| *ns as f64 / 1e3)
}

fn print(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
