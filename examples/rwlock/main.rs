//! A configuration that many read and few publish, under one read/write lock:
//!
//!     cargo run --example rwlock
//!
//! The configuration is two numbers, kept apart on purpose and always equal: only the lock keeps a
//! reader from seeing one of them new and the other old. A publisher reads back what it has
//! written, still under its lock: it downgrades.

#[path = "../common/mod.rs"]
mod common;

use common::{Args, CONNECT, Flag, say};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use zk_mutex::{ZkRwLock, ZkSession};

const ABOUT: &str =
    "readers and publishers share a configuration; exit code 0 if no reader ever saw half of one";

const FLAGS: &[Flag] = &[
    CONNECT,
    ("--path", "P", "the lock's path (default /zk-mutex/rwlock)"),
    ("--readers", "N", "threads that read (default 6)"),
    ("--publishers", "N", "threads that publish, each with a session of its own (default 2)"),
    ("--rounds", "N", "rounds of each thread (default 20)"),
    ("--hold", "MS", "how long a round lasts (default 2)"),
];

/// Threads of each kind.
const MOST: u32 = 1000;

#[derive(Default)]
struct Config {
    version: AtomicU64,
    copy: AtomicU64,
    torn: AtomicU64,
    readers: AtomicU64,
    most_readers: AtomicU64,
}

fn main() -> ExitCode {
    let args = Args::parse("rwlock", ABOUT, FLAGS);
    let plan = Plan {
        path: args.path("/zk-mutex/rwlock").to_owned(),
        readers: args.count("--readers", 6, MOST),
        publishers: args.count("--publishers", 2, MOST),
        rounds: args.positive("--rounds", 20),
        hold: Duration::from_millis(u64::from(args.number::<u32>("--hold").unwrap_or(2))),
    };
    let servers = args.servers(&[]);
    common::show_log("warn");
    match plan.run(servers.connect_string()) {
        Ok(code) => code,
        Err(error) => common::failure("rwlock", &error),
    }
}

struct Plan {
    path: String,
    readers: u32,
    publishers: u32,
    rounds: u32,
    hold: Duration,
}

impl Plan {
    fn run(&self, connect: &str) -> zk_mutex::Result<ExitCode> {
        let session = ZkSession::connect(connect)?;
        let lock = ZkRwLock::new(&session, &self.path)?;
        let config = Config::default();
        thread::scope(|scope| {
            let reading = (0..self.readers).map(|_| scope.spawn(|| self.read(&lock, &config)));
            let mut threads: Vec<_> = reading.collect();
            threads.extend(
                (0..self.publishers).map(|_| scope.spawn(|| self.publish(connect, &config))),
            );
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        let (version, torn) = (config.version.load(SeqCst), config.torn.load(SeqCst));
        say!(
            "version {version}, at most {} readers at once, {torn} torn reads",
            config.most_readers.load(SeqCst)
        );
        let published = u64::from(self.publishers) * u64::from(self.rounds);
        Ok(if torn == 0 && version == published { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn read(&self, lock: &ZkRwLock, config: &Config) -> zk_mutex::Result<()> {
        for _ in 0..self.rounds {
            let _reading = lock.read()?;
            let readers = config.readers.fetch_add(1, SeqCst) + 1;
            config.most_readers.fetch_max(readers, SeqCst);
            config.look(self.hold);
            config.readers.fetch_sub(1, SeqCst);
        }
        Ok(())
    }

    fn publish(&self, connect: &str, config: &Config) -> zk_mutex::Result<()> {
        let session = ZkSession::connect(connect)?;
        let lock = ZkRwLock::new(&session, &self.path)?;
        for _ in 0..self.rounds {
            let writing = lock.write()?;
            let version = config.version.load(SeqCst) + 1;
            config.version.store(version, SeqCst);
            thread::sleep(self.hold);
            config.copy.store(version, SeqCst);
            let reading = lock.read()?; // beside our own write
            drop(writing); // other readers may come in now, a writer not before we have read
            config.look(Duration::ZERO);
            if config.version.load(SeqCst) != version {
                config.torn.fetch_add(1, SeqCst);
            }
            drop(reading);
        }
        session.close()
    }
}

impl Config {
    /// Reads the two halves, some time apart.
    fn look(&self, hold: Duration) {
        let version = self.version.load(SeqCst);
        thread::sleep(hold);
        if self.copy.load(SeqCst) != version {
            self.torn.fetch_add(1, SeqCst);
        }
    }
}
