//! Many read a configuration and one publishes it, under one read/write lock:
//!
//!     cargo run --example rwlock
//!
//! The configuration has two halves, which must be equal. Only the lock keeps a reader from seeing
//! a new first half beside an old second one. Readers read at the same time. The publisher reads
//! back what it has written before anybody else can write: it downgrades its lock.

mod common;

use common::Result;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use zk_mutex::{ZkRwLock, ZkSession};

const PATH: &str = "/zk-mutex/rwlock";
const READERS: usize = 4;
const READS: u32 = 25; // of each reader
const VERSIONS: u64 = 10;
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Config {
    halves: [AtomicU64; 2],
    readers: AtomicU64,
    most_readers: AtomicU64,
}

fn main() -> ExitCode {
    common::example(rwlock)
}

fn rwlock(server: &str) -> Result<()> {
    let config = Config::default();
    // A session for each thread, as if each were a host.
    let connect = || ZkRwLock::new(&ZkSession::connect(server)?, PATH);
    let publisher = connect()?;
    let readers = (0..READERS).map(|_| connect()).collect::<zk_mutex::Result<Vec<_>>>()?;
    thread::scope(|scope| {
        let mut threads: Vec<_> =
            readers.iter().map(|lock| scope.spawn(|| read(lock, &config))).collect();
        threads.push(scope.spawn(|| publish(&publisher, &config)));
        threads.into_iter().try_for_each(common::join)
    })?;
    let most = config.most_readers.into_inner();
    println!("{VERSIONS} versions, never a half of one; up to {most} of {READERS} read at once");
    common::must(most > 1, "readers did not share the lock")
}

fn read(lock: &ZkRwLock, config: &Config) -> Result<()> {
    for _ in 0..READS {
        let reading = lock.read()?;
        config.most_readers.fetch_max(config.readers.fetch_add(1, SeqCst) + 1, SeqCst);
        let version = config.halves[0].load(SeqCst);
        thread::sleep(PAUSE);
        reading.check()?; // It was held all the time.
        common::must(config.halves[1].load(SeqCst) == version, "half of a version was read")?;
        config.readers.fetch_sub(1, SeqCst);
    }
    Ok(())
}

fn publish(lock: &ZkRwLock, config: &Config) -> Result<()> {
    for version in 1..=VERSIONS {
        thread::sleep(PAUSE);
        let writing = lock.write()?;
        config.halves[0].store(version, SeqCst);
        thread::sleep(PAUSE);
        writing.check()?; // The second half only while nobody can see the first alone.
        config.halves[1].store(version, SeqCst);
        let _reading = lock.read()?; // beside this thread's own write lock
        drop(writing); // Other readers may come in now. The next writer waits for `_reading`.
        let is_ours = config.halves[0].load(SeqCst) == version;
        common::must(is_ours, "somebody has written before the downgrade was over")?;
    }
    Ok(())
}
