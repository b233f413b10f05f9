//! The command and its process group.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};

use super::guard::{self, Guard};
use super::plan::Plan;
use super::starter;
use super::terminal::Terminal;
use crate::exit::{self, Failure};
use crate::output;

/// How long the command of --on-loss may take.
const ON_LOSS_LIMIT: Duration = Duration::from_secs(30);

const ABORT_LIMIT: Duration = Duration::from_secs(3);
const SHORT_PAUSE: Duration = Duration::from_millis(10);

/// The end of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Exited(i32),
    Signalled(i32),
}

impl Status {
    pub fn code(self) -> u8 {
        match self {
            Status::Exited(status) => u8::try_from(status).unwrap_or(255),
            Status::Signalled(signal) => exit::of_signal(signal),
        }
    }
}

pub struct Child {
    /// Of the command, and of its process group.
    pub pid: Pid,
    pub guard: Guard,
    has_guard: bool,
    /// A guard that has ended since has ended the command.
    guard_has_acted: bool,
    terminal: Option<Terminal>,
    /// `None` once the command has begun.
    gate: Option<UnixStream>,
    pub status: Option<Status>,
    /// The signal that has stopped it.
    stopped_by: Option<i32>,
    /// The command of --on-loss, while it runs, and since when.
    on_loss: Option<(Pid, Instant)>,
}

impl Child {
    /// Starts the process that is to become the command, and lets it wait.
    pub fn prepare(
        command: &[OsString],
        variables: &[(String, String)],
        mut guard: Guard,
    ) -> Result<Child, Failure> {
        let failed = |e: std::io::Error| Failure::system(format!("cannot start a process: {e}"));
        // Orphans of the group become children of this process, so that it notices their end.
        #[cfg(target_os = "linux")]
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
        let (gate, theirs) = UnixStream::pair().map_err(failed)?;
        let child = Command::new(guard::program())
            .arg0("zk-lock")
            .arg(starter::NAME)
            .arg(output::form())
            .args(command)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .stdin(OwnedFd::from(theirs))
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let pid = guard::pid(child.id())?;
        // If this fails, the gate ends, and with it the process that waits there.
        guard.watch(pid)?;
        Ok(Child {
            pid,
            guard,
            has_guard: true,
            guard_has_acted: false,
            terminal: None,
            gate: Some(gate),
            status: None,
            stopped_by: None,
            on_loss: None,
        })
    }

    /// Lets the command begin.
    pub fn begin(&mut self) -> Result<(), Failure> {
        let failed = |e: std::io::Error| Failure::system(format!("cannot start the command: {e}"));
        self.terminal = Terminal::at_stdin();
        if let Some(terminal) = self.terminal.as_ref().filter(|terminal| !terminal.is_shared) {
            terminal.give(self.pid);
        }
        if let Some(gate) = self.gate.take() {
            starter::release(&gate, rustix::stdio::stdin()).map_err(failed)?;
        }
        // Stdin and stdout are the command's alone: the processes at their other ends see them end
        // with the command, not with zk-lock.
        if let Ok(null) = std::fs::File::options().read(true).write(true).open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
            let _ = rustix::stdio::dup2_stdout(&null);
        }
        Ok(())
    }

    pub fn signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Asks the group to end.
    pub fn end(&mut self, signal: i32) {
        self.guard.ending();
        self.signal(signal);
        // A stopped process gets no signal but SIGKILL.
        self.signal(Signal::CONT.as_raw());
    }

    pub fn kill(&self) {
        let _ = kill_process_group(self.pid, Signal::KILL);
    }

    /// Whether the guard found that the lease ran out, and zk-lock did nothing.
    pub fn was_ended_by_guard(&mut self) -> bool {
        self.guard_has_acted || self.guard.has_acted()
    }

    /// Whether no process of the group is left. Before the command was reaped this is false.
    pub fn group_is_gone(&self) -> bool {
        self.status.is_some() && guard::is_gone(self.pid)
    }

    /// Takes note of all children that have ended or stopped. This alone reaps, on the thread that
    /// alone sends signals: none of them can reach a process that was given the id of another.
    pub fn reap(&mut self, plan: &Plan) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            if status.stopped() {
                if pid == self.pid {
                    self.stopped_by = status.stopping_signal();
                }
                continue;
            }
            let ended = match (status.exit_status(), status.terminating_signal()) {
                (Some(status), _) => Status::Exited(status),
                (_, Some(signal)) => Status::Signalled(signal),
                _ => continue,
            };
            if pid == self.pid {
                self.status = Some(ended);
            } else if pid == self.guard.pid && self.status.is_none() {
                self.has_guard = false;
            } else if self.on_loss.is_some_and(|(helper, _)| helper == pid) {
                self.on_loss = None;
            }
        }
        if !self.has_guard {
            // Somebody killed the guard process. If no other one can be started now, the next call
            // tries again.
            if let Ok(guard) = Guard::start(plan) {
                self.guard_has_acted |= self.guard.has_acted();
                self.guard = guard;
                self.guard.adopt(self.pid);
                self.has_guard = true;
            }
        }
    }

    /// If the command was stopped from the terminal, stops zk-lock too, so that its shell goes on;
    /// returns when zk-lock is continued. True if the command is to be continued then.
    pub fn stop_with_it(&mut self) -> bool {
        let Some(signal) = self.stopped_by.take() else { return false };
        let Some(terminal) = &mut self.terminal else { return false };
        let [read, wrote, key] = [Signal::TTIN, Signal::TTOU, Signal::TSTP].map(Signal::as_raw);
        if [read, wrote].contains(&signal) {
            terminal.is_shared = false;
            if !terminal.is_ours() {
                stop();
            }
        } else if signal == key {
            terminal.take_back(self.pid, false);
            stop();
        }
        signal == read || signal == wrote || signal == key
    }

    /// Ctrl-z reached zk-lock, which has the terminal: stops the command and zk-lock.
    pub fn stop_it_too(&mut self) {
        self.signal(Signal::STOP.as_raw());
        stop();
    }

    /// Continues the command after that.
    pub fn go_on(&self) {
        if let Some(terminal) = self.terminal.as_ref().filter(|terminal| !terminal.is_shared) {
            terminal.give(self.pid);
        }
        self.signal(Signal::CONT.as_raw());
    }

    /// Starts the command of --on-loss.
    pub fn run_on_loss(
        &mut self,
        words: &[String],
        variables: &[(String, String)],
        reason: &str,
    ) -> std::io::Result<()> {
        let Some((program, arguments)) = words.split_first() else { return Ok(()) };
        let child = Command::new(program)
            .args(arguments)
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .env("ZK_LOCK_LOSS", reason)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()?;
        let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        self.on_loss = id.map(|id| (id, Instant::now()));
        Ok(())
    }

    /// The group is gone: tidies up.
    pub fn finish(mut self, plan: &Plan) {
        self.give_terminal_back();
        while let Some((helper, since)) = self.on_loss {
            if since.elapsed() > ON_LOSS_LIMIT {
                let _ = kill_process_group(helper, Signal::KILL);
            }
            std::thread::sleep(SHORT_PAUSE);
            self.reap(plan);
        }
        self.guard.dismiss();
    }

    /// Something failed: ends the group at once.
    pub fn abort(mut self) {
        let end = Instant::now() + ABORT_LIMIT;
        while Instant::now() < end && !self.group_is_gone() {
            self.kill();
            while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
                if pid == self.pid {
                    self.status =
                        status.terminating_signal().map(Status::Signalled).or(self.status);
                    self.status = status.exit_status().map(Status::Exited).or(self.status);
                }
            }
            std::thread::sleep(SHORT_PAUSE);
        }
        self.give_terminal_back();
        self.guard.dismiss();
    }

    fn give_terminal_back(&self) {
        if let Some(terminal) = &self.terminal {
            let was_killed = matches!(self.status, Some(Status::Signalled(_)) | None);
            terminal.take_back(self.pid, was_killed);
        }
    }
}

/// Stops this process as ctrl-z does, until it is continued.
fn stop() {
    let _ = signal_hook::low_level::emulate_default_handler(Signal::TSTP.as_raw());
    // The signal may reach another thread first; this thread sleeps until it is stopped.
    std::thread::sleep(Duration::from_millis(100));
}
