//! Only so many at once, over all hosts, under one semaphore:
//!
//!     cargo run --example semaphore
//!
//! Each worker has a session of its own, as if it were a host. There are two permits, so two
//! workers download at a time, and the others wait.

mod common;

use common::Result;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use zk_mutex::{ZkSemaphore, ZkSession};

const PATH: &str = "/zk-mutex/semaphore";
const PERMITS: u32 = 2; // All clients of a semaphore must state the same number.
const WORKERS: u32 = 6;
const DOWNLOADS: u32 = 3; // of each worker

fn main() -> ExitCode {
    common::example(semaphore)
}

fn semaphore(server: &str) -> Result<()> {
    let (running, most) = (AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        let worker = |_| scope.spawn(|| work(server, &running, &most));
        let workers: Vec<_> = (0..WORKERS).map(worker).collect();
        workers.into_iter().try_for_each(common::join)
    })?;
    let most = most.into_inner();
    println!("{} downloads by {WORKERS} workers, at most {most} at once", WORKERS * DOWNLOADS);
    common::must(most <= PERMITS, "there were more at once than there are permits")
}

fn work(server: &str, running: &AtomicU32, most: &AtomicU32) -> Result<()> {
    let session = ZkSession::connect(server)?;
    let semaphore = ZkSemaphore::new(&session, PATH, PERMITS)?;
    for _ in 0..DOWNLOADS {
        let permit = semaphore.acquire()?; // blocks while all permits are taken
        most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
        thread::sleep(Duration::from_millis(20)); // a download
        running.fetch_sub(1, SeqCst);
        permit.check()?; // It was held all the time.
        drop(permit); // It is given back, and the next in the queue has it.
    }
    session.close()?;
    Ok(())
}
