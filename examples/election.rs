//! Candidates stand for election, and each leads for two terms:
//!
//!     cargo run --example election
//!
//! Each thread has a session of its own, as if it were a host. `run_until_cancelled` calls the
//! closure whenever its
//! candidate is elected. When the closure returns, the next candidate leads, and this one stands
//! again behind the others (`Continue`) or is done (`Break`).

mod common;

use common::Result;
use std::ops::ControlFlow::{Break, Continue};
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;
use zk_mutex::{CancelToken, FencingToken, ZkElection, ZkSession};

const PATH: &str = "/zk-mutex/election";
const CANDIDATES: [&str; 3] = ["alpha", "beta", "gamma"];
const TERMS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    common::example(election)
}

fn election(server: &str) -> Result<()> {
    let (tell, elected) = mpsc::channel();
    let over = CancelToken::new();
    let tokens = thread::scope(|scope| {
        let candidate = |name| {
            let (over, tell) = (&over, tell.clone());
            scope.spawn(move || stand(name, server, over, &tell))
        };
        let candidates = CANDIDATES.map(candidate);
        drop(tell); // The candidates have it: when the last one is done, there is no more to come.
        // No outage ends a candidate's wait, so the program says for how long it makes sense.
        let mut tokens: Vec<FencingToken> = Vec::new();
        let end = loop {
            match elected.recv_timeout(PATIENCE) {
                Ok(token) => tokens.push(token),
                Err(end) => break end,
            }
        };
        over.cancel();
        let done = candidates.into_iter().try_for_each(common::join);
        if end == RecvTimeoutError::Timeout {
            return Err(format!("nobody was elected for {PATIENCE:?}").into());
        }
        done.map(|()| tokens)
    })?;
    println!("{} terms, each under a greater token than the one before", tokens.len());
    common::must(tokens.len() >= CANDIDATES.len() * TERMS, "a term is missing")?;
    let grow = tokens.is_sorted_by(|earlier, later| earlier < later);
    common::must(grow, "a token was not greater than the one before")
}

fn stand(name: &str, server: &str, over: &CancelToken, tell: &Sender<FencingToken>) -> Result<()> {
    let session = ZkSession::connect(server)?;
    // The others see the name in `contenders()`.
    let election = ZkElection::builder(&session, PATH).data(name).build()?;
    let mut terms = 0;
    election.run_until_cancelled(over, |leadership| {
        println!("{name} leads under token {}", leadership.fencing_token());
        let _ = tell.send(leadership.fencing_token());
        if let Some(reason) = leadership.lost().wait(Duration::from_millis(50)) {
            println!("{name} leads no longer: {reason}");
            return Continue(()); // This term does not count.
        }
        terms += 1; // The work of this term is done.
        if terms < TERMS { Continue(()) } else { Break(()) }
    })?;
    session.close()?;
    Ok(())
}
