//! The benchmark's protocol: arguments, marks, the shared clock, the lines of JSON and of events.

use rustix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

pub struct Args {
    pub hosts: String,
    pub workload: String,
    settings: Vec<(String, String)>,
}

/// The keys whose values are numbers, with the range of each.
const NUMBERS: [(&str, RangeInclusive<u64>); 6] = [
    ("max", 1..=u64::MAX),
    ("secs", 1..=u64::MAX),
    ("threads", 1..=10_000),
    ("sessions", 1..=10_000),
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

    pub fn path(&self) -> &str {
        self.text("path").unwrap_or("/bench/lock")
    }

    /// The limit of a loop that starts now.
    pub fn limit(&self) -> Outcome<Limit> {
        let seconds = self.number("secs", 3600)?;
        let deadline = now().saturating_add(seconds.saturating_mul(1_000_000_000));
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

/// Prints the mark and waits for the driver's line.
pub fn mark(name: &str) -> io::Result<()> {
    print(&format!("MARK {name}"))?;
    io::stdin().read_line(&mut String::new()).map(drop)
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
        "{{\"peer\":\"ours\",\"workload\":\"{}\",\"threads\":{},\"processes\":1,\"ops\":{operations},\
         \"seconds\":{seconds:.3},\"ops_per_s\":{:.1},\"p50_us\":{:.1},\"p99_us\":{:.1}{more}}}",
        args.workload,
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
