//! The guard's own side: a process that waits, and acts once.
//!
//! Until the command's group has ended, the main thread waits for nothing but zk-lock's socket and
//! the clock. Stderr and the command of `--on-loss`, which may block, have threads of their own.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, Signal, getppid, kill_process_group};
use serde_json::json;
use zk_mutex::crossbeam_channel::{Receiver, Sender, bounded};

use super::{Cause, Deed, Ending, KNOWS, is_gone};
use crate::exit::{Failure, SYSTEM};
use crate::output::Output;
use crate::run::on_loss::{self, OnLoss};
use crate::run::reports::{Moment, Reports};
use crate::signals;
use crate::time::{boot_millis, millis};

/// How long the guard waits for a message before it reads the clock again.
const SHORTEST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_secs(1);

/// How long a line waits for stderr if zk-lock will say the same, and if nobody will.
const SHORT_PATIENCE: Duration = Duration::from_secs(5);
const LONG_PATIENCE: Duration = Duration::from_secs(30);

pub fn main(words: &[OsString], output: &Output) -> ExitCode {
    match guard(words, output) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(_)) | None => ExitCode::from(SYSTEM),
    }
}

/// `None`: it was started with other words than zk-lock's.
fn guard(words: &[OsString], output: &Output) -> Option<Result<(), Failure>> {
    let number = |i: usize| words.get(i)?.to_str()?.parse::<u64>().ok();
    let (grace, margin, signal) = (number(0)?, number(1)?, i32::try_from(number(2)?).ok()?);
    // What ends zk-lock's group, terminal or service must not end its guard.
    let _ = rustix::process::setsid();
    for signal in signals::ENDING.into_iter().chain(signals::PASSED) {
        let _ = signal_hook::flag::register(signal, Arc::default());
    }
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_name(c"zk-guard");
    let socket = fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).ok()?;
    let watch = Watch {
        grace: Duration::from_millis(grace),
        margin: Duration::from_millis(margin),
        signal: Signal::from_named_raw(signal).unwrap_or(Signal::TERM),
        group: None,
        lease: None,
        ending: None,
    };
    Some(serve(watch, UnixStream::from(socket), output))
}

fn serve(mut watch: Watch, socket: UnixStream, output: &Output) -> Result<(), Failure> {
    // Whatever has to be started is started before it is needed.
    let voice = Voice::start(output)?;
    let mut lines = Lines { socket, read: Vec::new() };
    let cause = loop {
        match lines.next(watch.until_action()) {
            Word::Line(line) if line == "done" => return Ok(()),
            Word::Line(line) => {
                if watch.hear(&line) {
                    let _ = lines.socket.write_all(KNOWS.as_bytes());
                }
            }
            Word::Silence => {}
            Word::End if watch.group.is_none_or(is_gone) => return Ok(()),
            Word::End => break Cause::Killed,
        }
        if watch.until_action() == Some(Duration::ZERO) {
            break if parent_is_stopped() { Cause::Stopped } else { Cause::Slow };
        }
    };
    let at = boot_millis();
    // The signal may end the command before anybody can look.
    let found = watch.look(cause, at);
    let deed = match found {
        Found::Ended => Deed::FoundEnded,
        _ => Deed::Ended { at, cause },
    };
    let _ = lines.socket.write_all(deed.line().as_bytes());
    watch.signal();
    if found == Found::Running {
        let _ = voice.loss.try_send(cause.text());
    }
    watch.tell(found, cause, at, &voice.reports);
    watch.end();
    voice.finish(if cause == Cause::Killed { LONG_PATIENCE } else { SHORT_PATIENCE });
    Ok(())
}

/// The threads that may block.
struct Voice {
    reports: Reports,
    loss: Sender<&'static str>,
    is_over: Receiver<()>,
}

impl Voice {
    fn start(output: &Output) -> Result<Voice, Failure> {
        let failed = |e: std::io::Error| Failure::system(format!("the guard: {e}"));
        let mut on_loss = OnLoss::take_over().map_err(failed)?;
        let reports = Reports::start(output)?;
        let again = reports.clone();
        let (loss, losses) = bounded::<&str>(1);
        let (end, is_over) = bounded::<()>(0);
        let run = move || {
            for reason in losses {
                match on_loss.start(reason) {
                    Ok(Some(mut child)) => on_loss::wait(&mut child),
                    Ok(None) => {}
                    Err(e) => {
                        let text = format!("--on-loss {}: {e}", on_loss.name());
                        again.warn("on_loss_failed", &text, json!({}));
                    }
                }
            }
            drop((again, end));
        };
        std::thread::Builder::new().name("on-loss".into()).spawn(run).map_err(failed)?;
        Ok(Voice { reports, loss, is_over })
    }

    fn finish(self, patience: Duration) {
        let begun = Instant::now();
        drop(self.loss);
        let _ = self.is_over.recv_timeout(super::DEED_LIMIT);
        self.reports.finish_within(patience.saturating_sub(begun.elapsed()));
    }
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
    ending: Option<Ending>,
}

/// How the guard finds the command when it has to act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It runs: the lock is lost, or as good as lost.
    Running,
    /// It had ended by itself, and in time.
    Ended,
    /// zk-lock was about to end it, and not because of a loss.
    BeingEnded,
    NotBegun,
}

impl Watch {
    /// Takes note of a line; true if it wants an answer.
    fn hear(&mut self, line: &str) -> bool {
        match line.split_once(' ') {
            Some(("group", id)) => {
                self.group = id.parse().ok().and_then(Pid::from_raw);
                return true;
            }
            Some(("lease", end)) => self.lease = end.parse().ok().or(self.lease),
            Some(("ending", "loss")) => self.ending = Some(Ending::Loss),
            Some(("ending", "other")) => self.ending = Some(Ending::Other),
            // Half a line, where zk-lock did not wait until there was room for the rest.
            _ => {}
        }
        false
    }

    /// How long the lease lasts, less what is kept for SIGKILL. Half of zk-lock's own margin: it
    /// acts first where it can.
    fn left(&self) -> Option<Duration> {
        let end = self.lease?.saturating_sub(millis(self.margin / 2));
        Some(Duration::from_millis(end.saturating_sub(boot_millis())))
    }

    /// How long until something must be done, whatever zk-lock does.
    fn until_action(&self) -> Option<Duration> {
        let grace = if self.ending.is_some() { Duration::ZERO } else { self.grace };
        self.left().map(|left| left.saturating_sub(grace))
    }

    fn look(&self, cause: Cause, now: Moment) -> Found {
        // zk-lock tells of the lease before the command begins.
        let Some(lease) = self.lease else { return Found::NotBegun };
        if now < lease && self.group.is_some_and(has_ended) {
            return Found::Ended;
        }
        // Where the lease ends first, it is a loss, as it would be to zk-lock.
        if cause == Cause::Killed && self.ending == Some(Ending::Other) {
            return Found::BeingEnded;
        }
        Found::Running
    }

    /// Says what zk-lock cannot say.
    fn tell(&self, found: Found, cause: Cause, at: Moment, reports: &Reports) {
        let path = std::env::var("ZK_LOCK_PATH").unwrap_or_default().replace('\n', ", ");
        let gone = match (found, cause) {
            // zk-lock has said it already, and was too late with the rest.
            (Found::Running, Cause::Stopped | Cause::Slow) if self.ending.is_some() => return,
            (Found::Running, _) if self.ending.is_none() => {
                let reason = cause.text();
                let text = format!("{path}: the guard has ended the command: {reason}");
                let fields = json!({"reason": reason, "by": "guard"});
                return reports.loss(at, "lost", &text, fields);
            }
            (_, Cause::Stopped | Cause::Slow) => return,
            (Found::NotBegun, _) => "before the command began",
            (Found::Ended, _) => "after the command had ended; what it left behind is ended too",
            (Found::Running | Found::BeingEnded, _) => {
                "while the command was being ended; the guard does the rest"
            }
        };
        let text = format!("{path}: zk-lock was killed {gone}");
        reports.loss(at, "guard_ends", &text, json!({}));
    }

    /// Asks the group to end, if nobody did.
    fn signal(&self) {
        let Some(group) = self.group.filter(|_| self.ending.is_none()) else { return };
        let _ = kill_process_group(group, self.signal);
        // A stopped process gets no signal but SIGKILL.
        let _ = kill_process_group(group, Signal::CONT);
    }

    /// The grace, and SIGKILL.
    fn end(&self) {
        let Some(group) = self.group else { return };
        let is_gone = || is_gone(group);
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

/// Whether a process has ended, also if its parent has not taken note of it yet. A process whose
/// first thread has ended goes on with its others.
fn has_ended(pid: Pid) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) else {
        return fs::exists("/proc/self/stat").unwrap_or(false);
    };
    let fields = fields(&stat);
    let threads = fields.get(17).and_then(|threads| threads.parse::<u32>().ok());
    matches!(fields.first(), Some(&("Z" | "X"))) && threads.is_none_or(|threads| threads <= 1)
}

/// zk-lock is the parent of its guard.
fn parent_is_stopped() -> bool {
    let Some(parent) = getppid() else { return false };
    let stat = fs::read_to_string(format!("/proc/{}/stat", parent.as_raw_nonzero()));
    stat.is_ok_and(|stat| matches!(fields(&stat).first(), Some(&("T" | "t"))))
}

/// The fields of a line of `/proc/PID/stat` from the state on.
fn fields(stat: &str) -> Vec<&str> {
    stat.rsplit_once(')').map_or_else(Vec::new, |(_, rest)| rest.split_whitespace().collect())
}

/// What came over the socket.
enum Word {
    Line(String),
    Silence,
    End,
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
