//! Threads contend for one lock, in this process and in as many others as you start:
//!
//!     cargo run -p zk-mutex-bench --bin stress
//!     cargo run -p zk-mutex-bench --bin stress -- --connect 127.0.0.1:2181
//!
//! The first command runs on an embedded test server of its own, the second on ZooKeeper.
//!
//! Each section reads a counter, waits, and writes it plus one. Only the lock keeps two sections
//! apart, so a correct count at the end shows that it did.

mod counter;
mod tally;

use counter::Counter;
use log::warn;
use std::io;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tally::{Summary, Tally};
use zk_mutex::{Error, Held, OptionalExt, ZkMutex, ZkMutexGuard, ZkSession};
use zk_mutex_bench::{Servers, failure, millis, path, positive, say, text};

const HELP: &str = "\
threads contend for one lock and count under it; exit code 0 if the count is exact

Flags:
  --connect STR   the servers, as in h1:2181,h2:2181/chroot
                  (default: $ZK_CONNECT, or else an embedded test server)
  --path P        the lock's path (default /zk-mutex/stress)
  --threads N     threads of this process (default 8)
  --rounds N      sections per thread (default 25)
  --hold MS       how long a section lasts (default 5)
  --timeout MS    give a round up after waiting so long; it counts as a timeout, not as a section
  --counter FILE  count in FILE, together with other processes (default: in memory)
  --json          end with one line of JSON
  --help          this text";

/// If `lock_timeout` meets an outage, the round is tried again for as long as `lock` would try.
const LIMIT: Duration = Duration::from_secs(60);
/// The pause before such a try.
const PAUSE: Duration = Duration::from_millis(100);
/// The pause between two reports about the holder.
const SHOW_EVERY: Duration = Duration::from_millis(250);
/// The size of a thread's stack. The threads do little, and there may be thousands.
const STACK: usize = 256 * 1024;

fn main() -> ExitCode {
    let mut config = Config {
        threads: 8,
        rounds: 25,
        hold: Duration::from_millis(5),
        timeout: None,
        counter: Counter::new(None),
        json: false,
    };
    let (mut connect, mut at) = (None, "/zk-mutex/stress".to_owned());
    zk_mutex_bench::flags("stress", HELP, |flag, parser| {
        match flag {
            "connect" => connect = Some(text(parser)?),
            "path" => at = path(parser)?,
            "threads" => config.threads = positive(parser)?,
            "rounds" => config.rounds = positive(parser)?,
            "hold" => config.hold = millis(parser)?,
            "timeout" => config.timeout = Some(millis(parser)?),
            "counter" => config.counter = Counter::new(Some(&text(parser)?)),
            "json" => config.json = true,
            _ => return Ok(false),
        }
        Ok(true)
    });
    let servers = Servers::find("stress", connect);
    if servers.embedded().is_some() && matches!(config.counter, Counter::File(_)) {
        zk_mutex_bench::refuse(
            "stress",
            "--counter is for several processes: name the server that they share with --connect",
        );
    }
    zk_mutex_bench::show_log();
    match run(servers.connect_string(), &at, config) {
        Ok(code) => code,
        Err(error) => failure("stress", &error),
    }
}

fn run(connect: &str, path: &str, config: Config) -> zk_mutex::Result<ExitCode> {
    let session = ZkSession::connect(connect)?;
    let contest = Contest::new(ZkMutex::new(&session, path)?, path, config);
    let mut summary = contest.run();
    summary.print(contest.config.json);
    for failure in &summary.tally.failures {
        eprintln!("stress: {failure}");
    }
    if let Err(error) = session.close() {
        warn!("{error}");
    }
    Ok(if summary.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Config {
    threads: u32,
    rounds: u32,
    hold: Duration,
    timeout: Option<Duration>,
    counter: Counter,
    json: bool,
}

/// The state that the threads share.
struct Contest {
    config: Config,
    mutex: ZkMutex,
    path: String,
    /// The number of the section that is inside, 0 for none: set on entry, reset on exit.
    inside: AtomicU64,
    /// Counts entries. The count is the number of a section.
    entries: AtomicU64,
    began: Instant,
    /// The time of the last report about the holder, in milliseconds since the beginning.
    shown: AtomicU64,
    /// A thread has failed, so the others stop.
    stop: AtomicBool,
}

/// The result of a round.
enum Round {
    Section,
    TimedOut,
    Lost,
}

/// The reason for which a thread ended.
enum Failure {
    Lock(Error),
    Counter(io::Error),
}

impl Contest {
    fn new(mutex: ZkMutex, path: &str, config: Config) -> Contest {
        Contest {
            config,
            mutex,
            path: path.to_owned(),
            inside: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            began: Instant::now(),
            shown: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    fn run(&self) -> Summary {
        let mut all = Tally::default();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for number in 1..=self.config.threads {
                let builder =
                    thread::Builder::new().name(format!("stress-{number}")).stack_size(STACK);
                match builder.spawn_scoped(scope, move || self.contend(number)) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        all.failures.push(format!("no thread {number}: {error}"));
                        self.stop.store(true, Relaxed);
                        break;
                    }
                }
            }
            for thread in threads {
                match thread.join() {
                    Ok(tally) => all.add(tally),
                    Err(_) => all.failures.push("a thread panicked".to_owned()),
                }
            }
        });
        let took = self.began.elapsed();
        let counter = self.config.counter.read().unwrap_or_else(|error| {
            all.failures.push(error.to_string());
            0
        });
        Summary {
            threads: self.config.threads,
            rounds: self.config.rounds,
            shared: matches!(self.config.counter, Counter::File(_)),
            tally: all,
            counter,
            took,
        }
    }

    /// One thread's rounds. A round whose hold was lost is repeated.
    fn contend(&self, thread: u32) -> Tally {
        let mut tally = Tally::default();
        let mut rounds = 0;
        while rounds < self.config.rounds && !self.stop.load(Relaxed) {
            match self.round(thread, &mut tally) {
                Ok(Round::Section) => tally.sections += 1,
                Ok(Round::TimedOut) => tally.timeouts += 1,
                Ok(Round::Lost) => {
                    tally.lost += 1;
                    continue;
                }
                Err(failure) => {
                    self.stop.store(true, Relaxed);
                    tally.failures.push(failure.to_string());
                }
            }
            rounds += 1;
        }
        tally
    }

    fn round(&self, thread: u32, tally: &mut Tally) -> Result<Round, Failure> {
        let asked = Instant::now();
        let Some(guard) = self.lock().map_err(Failure::Lock)? else {
            return Ok(Round::TimedOut);
        };
        let waited = asked.elapsed();
        tally.waits.push(waited);
        self.show(thread, waited);
        let round = self.section(&guard, tally).map_err(Failure::Counter)?;
        if let Round::Section = round
            && let Err(error) = guard.unlock()
        {
            warn!("unlock: {error}"); // The section is done; the library deletes the node later.
        }
        Ok(round)
    }

    fn lock(&self) -> zk_mutex::Result<Option<ZkMutexGuard>> {
        let Some(timeout) = self.config.timeout else {
            return self.mutex.lock().map(Some);
        };
        let asked = Instant::now();
        loop {
            match self.mutex.lock_timeout(timeout).optional() {
                Err(error @ Error::Unavailable { .. }) if asked.elapsed() < LIMIT => {
                    warn!("{error}");
                    thread::sleep(PAUSE);
                }
                answer => return answer,
            }
        }
    }

    /// Counts one, in two steps that only the lock keeps together.
    fn section(&self, hold: &Held, tally: &mut Tally) -> io::Result<Round> {
        let counter = &self.config.counter;
        let me = self.entries.fetch_add(1, Relaxed) + 1;
        self.inside.swap(me, Relaxed);
        let number = counter.read()?;
        thread::sleep(self.config.hold);
        let number_now = counter.read()?;
        // This check comes right before the write: after the loss of the hold, other sections may
        // rightly be inside.
        if let Err(error) = hold.check() {
            warn!("section repeated: {error}");
            let _ = self.inside.compare_exchange(me, 0, Relaxed, Relaxed);
            return Ok(Round::Lost);
        }
        counter.write(number + 1)?;
        // Another section entered while we held the lock: in this process, or (visible only in the
        // counter) in another one.
        let entered = self.inside.compare_exchange(me, 0, Relaxed, Relaxed).is_err();
        if number_now != number || entered && hold.is_held() {
            tally.overlaps += 1;
        }
        Ok(Round::Section)
    }

    /// Reports the holder of the lock now and then.
    fn show(&self, thread: u32, waited: Duration) {
        let now = self.began.elapsed().as_millis() as u64;
        let last = self.shown.load(Relaxed);
        let due = last == 0 || now >= last + SHOW_EVERY.as_millis() as u64;
        if due && self.shown.compare_exchange(last, now.max(1), Relaxed, Relaxed).is_ok() {
            say!(
                "{:6.2} s  process {} thread {thread} holds {} after {:.1} ms; {} sections before",
                self.began.elapsed().as_secs_f64(),
                std::process::id(),
                self.path,
                waited.as_secs_f64() * 1e3,
                self.entries.load(Relaxed),
            );
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Lock(error) => error.fmt(f),
            Failure::Counter(error) => write!(f, "the counter: {error}"),
        }
    }
}
