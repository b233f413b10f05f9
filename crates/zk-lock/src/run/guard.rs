//! The process that ends the command if zk-lock cannot.
//!
//! zk-lock may be killed with SIGKILL, or stopped, in which case its session expires at the server
//! and another client gets the lock. The guard is a process of this program in a session of its
//! own. It reads a socket whose other end only zk-lock has, and ends the command's process group
//!
//! * when the socket ends, for then zk-lock has gone;
//! * shortly before the end of the lease, if zk-lock has told of no later end by then.
//!
//! Its name is not zk-lock, so `pkill -9 zk-lock` leaves it alone.

use std::ffi::OsString;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use serde_json::json;

use super::plan::Plan;
use super::signals;
use crate::exit::{Failure, SYSTEM};
use crate::output::{self, Output};
use crate::time::{boot_millis, millis};

pub const NAME: &str = "__guard";

/// What the guard says: it knows the group; it ends the group.
const KNOWS: u8 = b'k';
const ACTED: u8 = b'a';

/// How long the guard waits for a message before it reads the clock again.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// This program, to start it again. The path stays right where the file was replaced meanwhile.
pub fn program() -> std::path::PathBuf {
    let running = std::path::PathBuf::from("/proc/self/exe");
    if running.exists() { running } else { std::env::current_exe().unwrap_or(running) }
}

/// zk-lock's end of it.
pub struct Guard {
    pub pid: Pid,
    socket: UnixStream,
    /// The end of the lease that it knows.
    told: u64,
}

impl Guard {
    pub fn start(plan: &Plan) -> Result<Guard, Failure> {
        let failed = |e: std::io::Error| Failure::system(format!("cannot start the guard: {e}"));
        let (socket, theirs) = UnixStream::pair().map_err(failed)?;
        // Inside the command of another zk-lock: the other one gave its grace before it killed us,
        // and our command must not outlive the other lease.
        let is_nested = std::env::var_os("ZK_LOCK_NODE").is_some();
        let grace = if is_nested { Duration::ZERO } else { plan.grace };
        let child = Command::new(program())
            .arg0("zk-guard")
            .arg(NAME)
            .arg(output::form())
            .args([grace, plan.margin].map(|duration| millis(duration).to_string()))
            .arg(plan.signal.to_string())
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .current_dir("/")
            .spawn()
            .map_err(failed)?;
        let pid = pid(child.id())?;
        Ok(Guard { pid, socket, told: 0 })
    }

    /// Tells it the command's process group, and waits until it knows.
    pub fn watch(&mut self, group: Pid) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::system(format!("the guard does not answer: {e}"));
        self.socket.set_nonblocking(false).map_err(failed)?;
        self.socket.set_read_timeout(Some(Duration::from_secs(10))).map_err(failed)?;
        let line = format!("group {}\n", group.as_raw_nonzero());
        self.socket.write_all(line.as_bytes()).map_err(failed)?;
        self.socket.read_exact(&mut [0]).map_err(failed)?;
        // From now on zk-lock never waits for it.
        self.socket.set_nonblocking(true).map_err(failed)
    }

    /// The same in the place of a guard that was killed: the command runs already, and its lease is
    /// to be watched meanwhile.
    pub fn adopt(&mut self, group: Pid) {
        let _ = self.socket.set_nonblocking(true);
        self.say(&format!("group {}\n", group.as_raw_nonzero()));
    }

    /// Tells it how long the lease still lasts.
    pub fn lease(&mut self, left: Duration) {
        let end = boot_millis() + millis(left);
        if end.abs_diff(self.told) >= 20 {
            self.told = end;
            self.say(&format!("lease {end}\n"));
        }
    }

    /// The signal has gone out.
    pub fn ending(&mut self) {
        self.say("ending\n");
    }

    /// Whether it had to end the command itself: then the lock was lost, or as good as lost.
    pub fn has_acted(&mut self) -> bool {
        let mut said = [0; 64];
        self.socket.read(&mut said).is_ok_and(|count| said[..count].contains(&ACTED))
    }

    /// The group is gone: there is nothing left to guard.
    pub fn dismiss(mut self) {
        self.say("done\n");
        drop(self.socket);
        let _ = rustix::process::waitpid(Some(self.pid), rustix::process::WaitOptions::empty());
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

/// What the guard knows.
struct Watch {
    grace: Duration,
    margin: Duration,
    signal: Signal,
    group: Option<Pid>,
    /// On the boot-time clock, in milliseconds.
    lease: Option<u64>,
    /// The group has got the signal that ends it.
    is_ending: bool,
}

/// What came over the socket.
enum Word {
    Line(String),
    Silence,
    End,
}

/// The guard's own side.
pub fn main(words: &[OsString], output: &Output) -> ExitCode {
    let number = |i: usize| words.get(i)?.to_str()?.parse::<u64>().ok();
    let (Some(grace), Some(margin), Some(signal)) = (number(0), number(1), number(2)) else {
        return ExitCode::from(SYSTEM);
    };
    // What ends zk-lock's group, terminal or service must not end its guard.
    let _ = rustix::process::setsid();
    for signal in signals::ENDING.into_iter().chain(signals::PASSED) {
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"zk-guard");
    let Ok(socket) = rustix::io::dup(rustix::stdio::stdin()) else { return ExitCode::from(SYSTEM) };
    let mut lines = Lines { socket: UnixStream::from(socket), read: Vec::new() };
    let signal = i32::try_from(signal).ok().and_then(Signal::from_named_raw);
    let mut watch = Watch {
        grace: Duration::from_millis(grace),
        margin: Duration::from_millis(margin),
        signal: signal.unwrap_or(Signal::TERM),
        group: None,
        lease: None,
        is_ending: false,
    };
    loop {
        match lines.next(watch.until_action()) {
            Word::Line(line) => match line.split_once(' ') {
                Some(("group", id)) => {
                    watch.group = id.parse().ok().and_then(Pid::from_raw);
                    let _ = lines.socket.write_all(&[KNOWS]);
                }
                Some(("lease", end)) => watch.lease = end.parse().ok().or(watch.lease),
                _ if line == "ending" => watch.is_ending = true,
                _ if line == "done" => return ExitCode::SUCCESS,
                // Half a line, where zk-lock did not wait until there was room for the rest.
                _ => {}
            },
            Word::Silence => {}
            Word::End => break,
        }
        if watch.until_action() == Some(Duration::ZERO) {
            let _ = lines.socket.write_all(&[ACTED]);
            if !watch.is_ending {
                let text = "its guard ends the command: the lease runs out";
                output.warn("guard_ends", text, json!({}));
            }
            watch.end();
            return ExitCode::SUCCESS;
        }
    }
    if watch.group.is_some_and(|group| !is_gone(group)) {
        let text = "it has gone without a word; its guard ends the command";
        output.warn("guard_ends", text, json!({}));
        watch.end();
    }
    ExitCode::SUCCESS
}

impl Watch {
    /// How long the lease lasts, less what is kept for SIGKILL. Half of zk-lock's own margin: it
    /// acts first where it can.
    fn left(&self) -> Option<Duration> {
        let end = self.lease?.saturating_sub(millis(self.margin / 2));
        Some(Duration::from_millis(end.saturating_sub(boot_millis())))
    }

    /// How long until something must be done, whatever zk-lock does.
    fn until_action(&self) -> Option<Duration> {
        let grace = if self.is_ending { Duration::ZERO } else { self.grace };
        self.left().map(|left| left.saturating_sub(grace))
    }

    /// The signal, the grace, SIGKILL.
    fn end(&self) {
        let Some(group) = self.group else { return };
        let is_gone = || is_gone(group);
        if !self.is_ending {
            let _ = kill_process_group(group, self.signal);
            // A stopped process gets no signal but SIGKILL.
            let _ = kill_process_group(group, Signal::CONT);
        }
        let kill_at = Instant::now() + self.left().map_or(self.grace, |left| left.min(self.grace));
        while Instant::now() < kill_at && !is_gone() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end && !is_gone() {
            let _ = kill_process_group(group, Signal::KILL);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The lines of zk-lock.
struct Lines {
    socket: UnixStream,
    read: Vec<u8>,
}

impl Lines {
    /// The next, if it comes in time.
    fn next(&mut self, limit: Option<Duration>) -> Word {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                return Word::Line(String::from_utf8_lossy(&line).trim().to_owned());
            }
            // The host may sleep, which this limit does not count and the lease does.
            let limit = limit.map(|limit| limit.clamp(SHORTEST_LOOK, LONGEST_LOOK));
            if self.socket.set_read_timeout(limit).is_err() {
                return Word::End;
            }
            let mut some = [0; 256];
            match self.socket.read(&mut some) {
                Ok(0) => return Word::End,
                Ok(count) => self.read.extend(&some[..count]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Word::Silence;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Word::End,
            }
        }
    }
}
