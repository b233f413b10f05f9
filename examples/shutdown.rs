//! Ctrl-C ends the program in good order:
//!
//!     cargo run --example shutdown        # and press Ctrl-C
//!
//! One worker holds the lock and works, the others wait for it. Ctrl-C cancels a token. The waits
//! end, the holder stops between two steps and releases the lock, and nothing is left at the
//! server. (If nobody presses Ctrl-C, the program ends when all workers have done their work.)
//!
//! Service managers and `kill` send SIGTERM. The crate `ctrlc` handles it only with its feature
//! `termination`; without it, SIGTERM kills the program, and its locks stay taken until the session
//! expires. So `Cargo.toml` has this line:
//!
//!     ctrlc = { version = "3", features = ["termination"] }

mod common;

use common::Result;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;
use zk_mutex::{CancelToken, Error, Wait, ZkMutex, ZkSession};

const PATH: &str = "/zk-mutex/shutdown";
const WORKERS: u32 = 3;
const STEPS: u32 = 50; // of each worker
const STEP: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    common::example(work_until_stopped)
}

fn work_until_stopped(server: &str) -> Result<()> {
    let stop = CancelToken::new();
    let same = stop.clone();
    // A second Ctrl-C changes nothing.
    ctrlc::set_handler(move || same.cancel())?;

    let session = ZkSession::connect(server)?;
    let mutex = ZkMutex::new(&session, PATH)?;
    thread::scope(|scope| {
        let worker = |number| {
            let (mutex, stop) = (&mutex, &stop);
            scope.spawn(move || work(number, mutex, stop))
        };
        let workers: Vec<_> = (1..=WORKERS).map(worker).collect();
        workers.into_iter().try_for_each(common::join)
    })?;
    let left = mutex.contenders()?;
    println!("{} contenders are left at the server", left.len());
    let is_ours = |id| Some(id) == session.status().session_id;
    common::must(!left.iter().any(|one| is_ours(one.session_id)), "one of our nodes is left")?;
    Ok(session.close()?)
}

fn work(worker: u32, mutex: &ZkMutex, stop: &CancelToken) -> Result<()> {
    let guard = match mutex.lock_with(Wait::forever().cancelled_by(stop)) {
        Err(Error::Cancelled { .. }) => {
            println!("worker {worker} waits no longer");
            return Ok(());
        }
        got => got?,
    };
    println!("worker {worker} holds the lock; press Ctrl-C");
    let lost = guard.lost();
    let mut steps = 0;
    while steps < STEPS && !stop.is_cancelled() && lost.wait(STEP).is_none() {
        steps += 1; // A program would do a step of its work here.
    }
    guard.unlock()?; // An error would say that the lock was lost.
    println!("worker {worker} has released the lock after {steps} of {STEPS} steps");
    Ok(())
}
