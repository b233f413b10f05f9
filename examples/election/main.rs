//! An election among several processes: the leader resigns, the next one leads; that one is killed,
//! and the next takes over.
//!
//!     cargo run --example election
//!
//! Each candidate marks its term with a file that only one can make: two leaders at once would be
//! seen.

#[path = "../common/mod.rs"]
mod common;
mod demo;

use common::{Args, CONNECT, Flag, say};
use crossbeam_channel::{Receiver, select, unbounded};
use log::{error, warn};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::time::Duration;
use std::{fs, io, thread};
use zk_mutex::{ElectionEvent, FencingToken, ZkElection, ZkSession};

const ABOUT: &str = "candidates in several processes; exit code 0 if one led at a time, and the next took over each time";

const FLAGS: &[Flag] = &[
    CONNECT,
    ("--path", "P", "the election's path (default /zk-mutex/election)"),
    ("--candidates", "N", "how many processes stand, at least 3 (default 4)"),
    (
        "--stand",
        "DIR",
        "be one of the candidates, and mark terms in DIR (so the example starts itself)",
    ),
];

/// How long a killed leader keeps the others waiting: its node goes when its session expires.
const SESSION_TIMEOUT: Duration = Duration::from_secs(4);

/// Candidates, which are processes.
const MOST: u32 = 100;

fn main() -> ExitCode {
    let args = Args::parse("election", ABOUT, FLAGS);
    let path = args.path("/zk-mutex/election");
    if let Some(dir) = args.text("--stand").filter(|dir| !Path::new(dir).is_dir()) {
        args.refuse(&format!("--stand wants a directory, which {dir:?} is not"));
    }
    let servers = args.servers(&["--stand"]);
    common::show_log("warn");
    let Some(dir) = args.text("--stand") else {
        let candidates = args.count("--candidates", 4, MOST);
        if candidates < 3 {
            args.refuse("--candidates must be at least 3: one resigns, one is killed, one is left");
        }
        return demo::run(servers.connect_string(), path, candidates);
    };
    let member = Member { mark: PathBuf::from(dir).join("leader"), token: None };
    match member.stand(servers.connect_string(), path) {
        Ok(code) => code,
        Err(error) => common::failure("election", &error),
    }
}

/// One candidate. It resigns, and stands again, when told so by a line on its input, and leaves at
/// the end of that.
struct Member {
    mark: PathBuf,
    /// Of the term, while it leads.
    token: Option<FencingToken>,
}

impl Member {
    fn stand(mut self, connect: &str, path: &str) -> zk_mutex::Result<ExitCode> {
        let session = ZkSession::builder(connect).session_timeout(SESSION_TIMEOUT).connect()?;
        let election =
            ZkElection::builder(&session, path).data(process::id().to_string()).build()?;
        let told = lines();
        let mut candidate = election.join()?;
        loop {
            select! {
                recv(candidate.events()) -> event => match event {
                    Ok(ElectionEvent::Elected { token }) => {
                        if let Err(why) = self.begin(token) {
                            error!("pid {}: elected, but {why}", process::id());
                            return Ok(ExitCode::FAILURE);
                        }
                    }
                    Ok(ElectionEvent::Lost(reason)) => self.end(&reason.to_string()),
                    Ok(ElectionEvent::Failed(error)) => return Err(error),
                    Ok(other) => warn!("{other:?}"),
                    // after Left or Failed, which come before
                    Err(_) => return Ok(ExitCode::FAILURE),
                },
                recv(told) -> line => {
                    self.end("it resigns");
                    candidate.leave()?;
                    if line.is_err() {
                        return session.close().map(|()| ExitCode::SUCCESS);
                    }
                    candidate = election.join()?;
                }
            }
        }
    }

    fn begin(&mut self, token: FencingToken) -> io::Result<()> {
        fs::File::create_new(&self.mark)?; // that of another leader would be there
        self.token = Some(token);
        say!("pid {} leads, token {token}", process::id());
        Ok(())
    }

    fn end(&mut self, why: &str) {
        if let Some(token) = self.token.take() {
            say!("pid {} leads no longer under {token}: {why}", process::id());
            if let Err(error) = fs::remove_file(&self.mark) {
                error!("{}: {error}", self.mark.display());
            }
        }
    }
}

/// The lines of our input, until its end.
fn lines() -> Receiver<String> {
    let (tell, told) = unbounded();
    thread::spawn(move || {
        io::stdin().lock().lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
    });
    told
}
