//! Candidates stand for election, and each leads for two terms:
//!
//!     cargo run --example election
//!
//! Each thread has a session of its own, as if it were a host. `run` calls the closure whenever its
//! candidate is elected. When the closure returns, the next candidate leads, and this one stands
//! again behind the others (`Continue`) or is done (`Break`).

mod common;

use common::Result;
use std::ops::ControlFlow::{Break, Continue};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;
use zk_mutex::{FencingToken, ZkElection, ZkSession};

const PATH: &str = "/zk-mutex/election";
const CANDIDATES: [&str; 3] = ["alpha", "beta", "gamma"];
const TERMS: usize = 2;

fn main() -> Result<()> {
    let server = common::server()?;
    let (tell, elected) = mpsc::channel();
    thread::scope(|scope| {
        let candidate = |name| {
            let (server, tell) = (&server, tell.clone());
            scope.spawn(move || stand(name, server, &tell))
        };
        let candidates = CANDIDATES.map(candidate);
        candidates.into_iter().try_for_each(|candidate| candidate.join().expect("no panic"))
    })?;
    drop(tell);
    let tokens: Vec<FencingToken> = elected.iter().collect();
    println!("{} terms, each under a greater token than the one before", tokens.len());
    assert!(tokens.len() >= CANDIDATES.len() * TERMS);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later));
    Ok(())
}

fn stand(name: &str, server: &str, tell: &Sender<FencingToken>) -> Result<()> {
    let session = ZkSession::connect(server)?;
    // The others see the name in `contenders()`.
    let election = ZkElection::builder(&session, PATH).data(name).build()?;
    let mut terms = 0;
    election.run(|leadership| {
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
