//! The process that ends the command if zk-lock cannot.
//!
//! zk-lock may be killed with SIGKILL, or stopped, in which case its session expires at the server
//! and another client gets the lock. The guard is a process of this program in a session of its
//! own. It reads a socket whose other end only zk-lock has, and ends the command's process group
//!
//! * when the socket ends, for then zk-lock has gone;
//! * shortly before the end of the lease, if zk-lock has told of no later end by then.
//!
//! Then it runs the command of `--on-loss`, if zk-lock has not. Its name is not zk-lock, so
//! `pkill -9 zk-lock` leaves it alone.
//!
//! This file is zk-lock's end of the socket; `process.rs` is the guard's own side.

mod process;

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, test_kill_process_group, waitpid};

pub use self::process::main;
use super::on_loss::{self, OnLoss};
use super::plan::Plan;
use super::reports::Moment;
use crate::exit::Failure;
use crate::output;
use crate::time::{boot_millis, millis};

pub const NAME: &str = "__guard";

/// What the guard answers when it knows the group.
const KNOWS: &str = "knows\n";

/// How long a guard with nothing to do may take to end.
const DISMISS_LIMIT: Duration = Duration::from_secs(2);
/// How long one may take that has ended the command: it runs the command of `--on-loss`.
const DEED_LIMIT: Duration = on_loss::LIMIT.saturating_add(Duration::from_secs(15));

/// This program, to start it again. The path stays right where the file was replaced meanwhile.
pub fn program() -> std::path::PathBuf {
    let running = std::path::PathBuf::from("/proc/self/exe");
    if running.exists() { running } else { std::env::current_exe().unwrap_or(running) }
}

/// Why zk-lock ends the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The lock is lost, or is about to be.
    Loss,
    Other,
}

/// Why the guard ends the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Killed,
    Stopped,
    Slow,
}

impl Cause {
    const ALL: [(Cause, &'static str); 3] =
        [(Cause::Killed, "killed"), (Cause::Stopped, "stopped"), (Cause::Slow, "slow")];

    /// For people, and for the command of `--on-loss`.
    pub fn text(self) -> &'static str {
        match self {
            Cause::Killed => "zk-lock was killed",
            Cause::Stopped => "zk-lock was stopped, and could not renew its lease",
            Cause::Slow => "zk-lock was too slow to end the command before its lease",
        }
    }
}

/// What the guard has done about the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Ended {
        at: Moment,
        cause: Cause,
    },
    /// Nothing: the command had ended by itself before the lease did.
    FoundEnded,
}

impl Deed {
    fn line(self) -> String {
        match self {
            Deed::Ended { at, cause } => {
                let word = Cause::ALL.iter().find(|(known, _)| *known == cause);
                format!("ended {at} {}\n", word.map_or("", |(_, word)| word))
            }
            Deed::FoundEnded => "found\n".to_owned(),
        }
    }

    fn parse(line: &str) -> Option<Deed> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["ended", at, word] => {
                let (cause, _) = Cause::ALL.into_iter().find(|(_, known)| *known == word)?;
                Some(Deed::Ended { at: at.parse().ok()?, cause })
            }
            ["found"] => Some(Deed::FoundEnded),
            _ => None,
        }
    }
}

/// zk-lock's end of it.
pub struct Guard {
    pub pid: Pid,
    socket: UnixStream,
    /// The end of the lease that it knows.
    told: u64,
    ending: Option<Ending>,
    heard: Vec<u8>,
}

impl Guard {
    pub fn start(plan: &Plan, on_loss: &OnLoss) -> Result<Guard, Failure> {
        let failed = |e: std::io::Error| Failure::system(format!("cannot start the guard: {e}"));
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        // Inside the command of another zk-lock: the other one gave its grace before it killed us,
        // and our command must not outlive the other lease.
        let is_nested = std::env::var_os("ZK_LOCK_NODE").is_some();
        let grace = if is_nested { Duration::ZERO } else { plan.grace };
        let mut command = Command::new(program());
        command
            .arg0("zk-guard")
            .arg(NAME)
            .arg(output::form())
            .args([grace, plan.margin].map(|duration| millis(duration).to_string()))
            .arg(plan.signal.to_string())
            .stdin(OwnedFd::from(theirs));
        on_loss.hand_over(&mut command).map_err(failed)?;
        let child: Child = command.spawn().map_err(failed)?;
        let pid = pid(child.id())?;
        Ok(Guard { pid, socket, told: 0, ending: None, heard: Vec::new() })
    }

    /// Tells it the command's process group, and waits until it knows.
    pub fn watch(&mut self, group: Pid) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::system(format!("the guard does not answer: {e}"));
        self.socket.set_nonblocking(false).map_err(failed)?;
        self.socket.set_read_timeout(Some(Duration::from_secs(10))).map_err(failed)?;
        let line = format!("group {}\n", group.as_raw_nonzero());
        self.socket.write_all(line.as_bytes()).map_err(failed)?;
        self.socket.read_exact(&mut [0; KNOWS.len()]).map_err(failed)?;
        // From now on zk-lock never waits for it.
        self.socket.set_nonblocking(true).map_err(failed)
    }

    /// The same in the place of a guard that was killed: the command runs already, and its lease is
    /// to be watched meanwhile.
    pub fn adopt(&mut self, group: Pid, before: &Guard) {
        let _ = self.socket.set_nonblocking(true);
        self.say(&format!("group {}\n", group.as_raw_nonzero()));
        self.told = before.told;
        self.say(&format!("lease {}\n", self.told));
        if let Some(ending) = before.ending {
            self.ending(ending);
        }
    }

    /// Tells it how long the lease still lasts.
    pub fn lease(&mut self, left: Duration) {
        let end = boot_millis() + millis(left);
        if end.abs_diff(self.told) >= 20 {
            self.told = end;
            self.say(&format!("lease {end}\n"));
        }
    }

    /// The signal that ends the command has gone out.
    pub fn ending(&mut self, why: Ending) {
        self.ending = Some(why);
        self.say(if why == Ending::Loss { "ending loss\n" } else { "ending other\n" });
    }

    /// What it had to do in zk-lock's place, if anything.
    pub fn deed(&mut self) -> Option<Deed> {
        let mut some = [0; 256];
        while let Ok(count @ 1..) = self.socket.read(&mut some) {
            self.heard.extend(&some[..count]);
        }
        String::from_utf8_lossy(&self.heard).lines().find_map(Deed::parse)
    }

    /// The group is gone: there is nothing left to guard. One that does not end (somebody may have
    /// stopped it) is killed, and can do no harm by that.
    pub fn dismiss(mut self) {
        self.say("done\n");
        let limit = if self.deed().is_some() { DEED_LIMIT } else { DISMISS_LIMIT };
        drop(self.socket);
        let end = Instant::now() + limit;
        while matches!(waitpid(Some(self.pid), WaitOptions::NOHANG), Ok(None)) {
            if Instant::now() >= end {
                let _ = kill_process(self.pid, Signal::KILL);
                let _ = waitpid(Some(self.pid), WaitOptions::empty());
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn say(&mut self, line: &str) {
        // A guard that has gone, or that does not read, is noticed elsewhere or never needed.
        let _ = self.socket.write_all(line.as_bytes());
    }
}

pub fn pid(id: u32) -> Result<Pid, Failure> {
    let raw = i32::try_from(id).ok().and_then(Pid::from_raw);
    raw.ok_or_else(|| Failure::system(format!("{id} is no process id")))
}

/// Whether a process group has no process left. Of one that we may not signal, it has some.
pub fn is_gone(group: Pid) -> bool {
    test_kill_process_group(group) == Err(rustix::io::Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guard_tells_is_what_zk_lock_reads() {
        let ended = Cause::ALL.map(|(cause, _)| Deed::Ended { at: 4_711, cause });
        for deed in ended.into_iter().chain([Deed::FoundEnded]) {
            assert_eq!(Deed::parse(&deed.line()), Some(deed));
        }
        for other in [KNOWS, "ended", "ended x killed", "ended 1 asleep", ""] {
            assert_eq!(Deed::parse(other), None);
        }
    }
}
