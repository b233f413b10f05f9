//! One leader among several hosts: the host that has the lock leads, and stops when it is lost.
//!
//!     cargo run --example leader
//!
//! Two threads with sessions of their own stand for two hosts. The first one leads until it has
//! done its work; then the other one, which waits for that, leads. In the middle of its work its
//! session ends, as after an outage that is longer than the lease. The signal `lost()` tells it.

mod common;

use common::Result;
use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;
use zk_mutex::{LossReason, ZkMutex, ZkSession};

const PATH: &str = "/zk-mutex/leader";
const PIECES: u32 = 3;
const PIECE: Duration = Duration::from_millis(300);

fn main() -> ExitCode {
    common::example(leader)
}

fn leader(server: &str) -> Result<()> {
    let (alpha, beta) = (ZkSession::connect(server)?, ZkSession::connect(server)?);
    let (alpha_tells, alpha_works) = mpsc::channel();
    let (beta_tells, beta_works) = mpsc::channel();
    thread::scope(|scope| {
        let first = scope.spawn(|| lead("alpha", &alpha, alpha_tells));
        let _ = alpha_works.recv(); // An error means that it has failed, and `join` says why.
        let second = scope.spawn(|| lead("beta", &beta, beta_tells));
        let _ = beta_works.recv();
        let closed = beta.close();
        let (first, second) = (common::join(first)?, common::join(second)?);
        common::must(first.is_none(), "alpha has lost the lock")?;
        common::must(second == Some(LossReason::SessionClosed), "beta was not told of its loss")?;
        Ok(closed?)
    })
}

/// Waits until this host leads, and does its work. Gives the reason if the lock was lost meanwhile.
fn lead(host: &str, session: &ZkSession, tell: Sender<u32>) -> Result<Option<LossReason>> {
    let guard = ZkMutex::new(session, PATH)?.lock()?; // blocks while another host leads
    println!("{host} leads under token {}", guard.fencing_token());
    let lost = guard.lost();
    for piece in 1..=PIECES {
        println!("{host} does piece {piece} of the work");
        let _ = tell.send(piece);
        // A program would work here. In a loop of its own it would ask `guard.is_held()`, and in a
        // `select!` of crossbeam-channel it would wait for `lost.receiver()` too.
        if let Some(reason) = lost.wait(PIECE) {
            println!("{host} stops: {reason}");
            return Ok(Some(reason));
        }
    }
    println!("{host} has done its work, and lets others lead");
    guard.unlock()?;
    Ok(None)
}
