//! The command and its process group.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};

use super::guard::{self, Deed, Ending, Guard};
use super::on_loss::{self, OnLoss};
use super::plan::Plan;
use super::starter;
use super::terminal::Terminal;
use crate::exit::{self, Failure};
use crate::output;

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
    /// Of a guard that has ended since.
    deed: Option<Deed>,
    plan: Plan,
    terminal: Option<Terminal>,
    /// `None` once the command has begun.
    gate: Option<UnixStream>,
    pub status: Option<Status>,
    /// The signal that has stopped it.
    stopped_by: Option<i32>,
    on_loss: OnLoss,
    /// The command of --on-loss, while it runs, and since when.
    teller: Option<(Pid, Instant)>,
}

impl Child {
    /// Starts the process that is to become the command, and lets it wait.
    pub fn prepare(
        command: &[OsString],
        variables: &[(String, String)],
        plan: &Plan,
    ) -> Result<Child, Failure> {
        let failed = |e: std::io::Error| Failure::system(format!("cannot start a process: {e}"));
        let on_loss = OnLoss::new(&plan.on_loss, variables)?;
        let mut guard = Guard::start(plan, &on_loss)?;
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
            deed: None,
            plan: plan.clone(),
            terminal: None,
            gate: Some(gate),
            status: None,
            stopped_by: None,
            on_loss,
            teller: None,
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
    pub fn end(&mut self, why: Ending) {
        self.guard.ending(why);
        self.signal(self.plan.signal);
        // A stopped process gets no signal but SIGKILL.
        self.signal(Signal::CONT.as_raw());
    }

    pub fn kill(&self) {
        let _ = kill_process_group(self.pid, Signal::KILL);
    }

    /// What the guard found at the end of the lease, where zk-lock did nothing.
    pub fn deed(&mut self) -> Option<Deed> {
        self.deed.or_else(|| self.guard.deed())
    }

    /// Whether no process of the group is left. Before the command was reaped this is false.
    pub fn group_is_gone(&self) -> bool {
        self.status.is_some() && guard::is_gone(self.pid)
    }

    /// Takes note of all children that have ended or stopped. This alone reaps, on the thread that
    /// alone sends signals: none of them can reach a process that was given the id of another.
    pub fn reap(&mut self) {
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
            } else if pid == self.guard.pid {
                self.has_guard = false;
            } else if self.teller.is_some_and(|(teller, _)| teller == pid) {
                self.teller = None;
            }
        }
        if !self.has_guard && self.status.is_none() {
            // Somebody killed the guard process. If no other one can be started now, the next call
            // tries again.
            if let Ok(mut guard) = Guard::start(&self.plan, &self.on_loss) {
                self.deed = self.deed();
                guard.adopt(self.pid, &self.guard);
                self.guard = guard;
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

    /// Starts the command of --on-loss, unless it was started before.
    pub fn run_on_loss(&mut self, reason: &str) -> std::io::Result<()> {
        if let Some(child) = self.on_loss.start(reason)? {
            let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
            self.teller = id.map(|id| (id, Instant::now()));
        }
        Ok(())
    }

    /// The group is gone: tidies up.
    pub fn finish(mut self) {
        self.give_terminal_back();
        while let Some((teller, since)) = self.teller {
            if since.elapsed() > on_loss::LIMIT {
                let _ = kill_process_group(teller, Signal::KILL);
            }
            std::thread::sleep(SHORT_PAUSE);
            self.reap();
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
