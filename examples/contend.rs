//! Threads contend for one lock and count under it:
//!
//!     cargo run --example contend
//!     ZK_CONNECT=127.0.0.1:2181 cargo run --example contend
//!
//! The first runs on an embedded test server, the second on ZooKeeper; start several of those at
//! once, and their threads contend with each other. Each section reads a counter, waits, and writes
//! it plus one. Only the lock keeps two sections apart, so a count that comes out right shows that
//! it did.

mod common;

use common::Result;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use zk_mutex::{ZkMutex, ZkSession};

const THREADS: u64 = 8;
const ROUNDS: u64 = 25;

fn main() -> ExitCode {
    env_logger::init(); // RUST_LOG=debug shows each step of the library
    common::example(run)
}

fn run(server: &str) -> Result<()> {
    let session = ZkSession::connect(server)?;
    let mutex = ZkMutex::new(&session, "/zk-mutex/contend")?;
    let counter = AtomicU64::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> =
            (0..THREADS).map(|_| scope.spawn(|| contend(&mutex, &counter))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    session.close()?;
    let count = counter.into_inner();
    println!("{count} sections by {THREADS} threads");
    if count == THREADS * ROUNDS { Ok(()) } else { Err("updates were lost".into()) }
}

/// One thread's sections.
fn contend(mutex: &ZkMutex, counter: &AtomicU64) -> Result<()> {
    for _ in 0..ROUNDS {
        let guard = mutex.lock()?; // blocks, as long as it takes
        let number = counter.load(Relaxed);
        thread::sleep(Duration::from_millis(2));
        guard.check()?; // right before the write: a lock that was lost protects nothing
        counter.store(number + 1, Relaxed);
    } // the guard goes, and with it the lock
    Ok(())
}
