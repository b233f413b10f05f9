//! One leader among several processes. Run it in two or more terminals, then end the one that
//! leads:
//!
//!     cargo run --example leader -- --connect 127.0.0.1:2181
//!
//! or let it show that by itself, with `--demo`. Without `--connect` and `ZK_CONNECT` it starts the
//! embedded test server, and says where: the others can join it there.

#[path = "../common/mod.rs"]
mod common;
mod demo;

use common::{Args, CONNECT, Flag, say};
use crossbeam_channel::{Receiver, after, never, select, tick};
use log::{info, warn};
use std::process::{self, ExitCode};
use std::time::Duration;
use zk_mutex::{Error, ZkMutex, ZkMutexGuard, ZkSession};

const ABOUT: &str = "one leader among several processes; the next takes over when it ends";

const FLAGS: &[Flag] = &[
    CONNECT,
    ("--path", "P", "the lock's path (default /zk-mutex/leader)"),
    ("--interval", "MS", "how often to try to lead, and the leader to work (default 500)"),
    ("--for", "SECONDS", "end by itself after so long (default: never)"),
    ("--demo", "", "start three processes, kill the leader, show the takeover"),
];

/// How long a dead leader keeps the others waiting: its node goes when its session expires.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);

fn main() -> ExitCode {
    let args = Args::parse("leader", ABOUT, FLAGS);
    let path = args.path("/zk-mutex/leader");
    let interval = args.positive::<u32>("--interval", 500);
    let seconds = args.number::<u32>("--for");
    let servers = args.servers(&[]);
    if args.text("--demo").is_some() {
        return demo::run(servers.connect_string(), path, interval);
    }
    common::show_log("warn");
    let member = Member {
        interval: Duration::from_millis(interval.into()),
        end: seconds.map_or_else(never, |s| after(Duration::from_secs(s.into()))),
    };
    match member.run(servers.connect_string(), path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => common::failure("leader", &error),
    }
}

/// One process of the group.
struct Member {
    interval: Duration,
    /// Becomes ready when it is time to end.
    end: Receiver<std::time::Instant>,
}

/// How a term of leadership ended.
enum Term {
    Lost,
    Over,
}

impl Member {
    fn run(&self, connect: &str, path: &str) -> zk_mutex::Result<()> {
        let session = ZkSession::builder(connect).session_timeout(SESSION_TIMEOUT).connect()?;
        let mutex = ZkMutex::new(&session, path)?;
        let mut followed = None;
        loop {
            match self.turn(&mutex, &mut followed) {
                Ok(Some(Term::Over)) => break,
                Ok(Some(Term::Lost)) => continue,
                Ok(None) => {}
                // Neither says that we are out: somebody leads, or nobody can at the moment.
                Err(error @ (Error::Unavailable { .. } | Error::Lost { .. })) => warn!("{error}"),
                Err(error) => return Err(error),
            }
            if self.end.recv_timeout(self.interval).is_ok() {
                break;
            }
        }
        session.close()
    }

    /// One check: leads if nobody else does, else says who does when that has changed.
    fn turn(
        &self,
        mutex: &ZkMutex,
        followed: &mut Option<String>,
    ) -> zk_mutex::Result<Option<Term>> {
        if let Some(guard) = mutex.try_lock()? {
            *followed = None;
            return self.lead(guard).map(Some);
        }
        let leader = match mutex.contenders()?.first() {
            Some(first) => String::from_utf8_lossy(&first.data).into_owned(),
            None => return Ok(None), // It went just now; the next turn decides.
        };
        if followed.as_ref() != Some(&leader) {
            say!("pid {} follows {leader}", process::id());
            *followed = Some(leader);
        }
        Ok(None)
    }

    /// Leads until the lock is lost or it is time to end.
    fn lead(&self, guard: ZkMutexGuard) -> zk_mutex::Result<Term> {
        let (pid, token) = (process::id(), guard.fencing_token());
        let (lost, work) = (guard.lost(), tick(self.interval));
        let mut done = 0;
        say!("pid {pid} leads, fencing token {token}");
        loop {
            select! {
                recv(lost.receiver()) -> _ => {
                    let why = guard.lost_reason().map_or_else(String::new, |why| format!(", {why}"));
                    say!("pid {pid} leads no longer{why}; it had done {done} pieces of work");
                    return Ok(Term::Lost);
                }
                recv(work) -> _ => {
                    done += 1; // Pass the token to whatever the work writes to.
                    info!("piece of work {done} under token {token}");
                }
                recv(self.end) -> _ => {
                    guard.unlock()?;
                    say!("pid {pid} resigns; it had done {done} pieces of work");
                    return Ok(Term::Over);
                }
            }
        }
    }
}
