//! The terminal, where zk-lock runs in one.
//!
//! A command in a process group of its own could not read from the terminal, and ctrl-c would not
//! reach it. So its group gets the terminal, as a shell does it for its jobs, and zk-lock takes it
//! back in the end. Where the output goes elsewhere (`zk-lock run .. | less`) the terminal is left
//! to the programs of the pipeline, until the command wants to read from it.

use std::os::fd::OwnedFd;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgrp};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

pub struct Terminal {
    tty: OwnedFd,
    /// As it was before the command could change it.
    settings: Option<Termios>,
    /// Other programs of a pipeline may need it.
    pub is_shared: bool,
}

impl Terminal {
    /// The terminal at stdin, if it is our session's.
    pub fn at_stdin() -> Option<Terminal> {
        let stdin = rustix::stdio::stdin();
        if !rustix::termios::isatty(stdin) || tcgetpgrp(stdin).is_err() {
            return None;
        }
        let tty = rustix::io::fcntl_dupfd_cloexec(stdin, 3).ok()?;
        // A process in the background that takes the terminal back would be stopped for it.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        blocked.thread_block().ok()?;
        let settings = tcgetattr(&tty).ok();
        let is_shared = !rustix::termios::isatty(rustix::stdio::stdout());
        Some(Terminal { tty, settings, is_shared })
    }

    /// Lets this group have it, if it is ours to give.
    pub fn give(&self, group: Pid) {
        if self.is_ours() {
            let _ = tcsetpgrp(&self.tty, group);
        }
    }

    /// Takes it from this group, if it has it.
    pub fn take_back(&self, group: Pid, restore: bool) {
        if self.is_ours() {
            return;
        }
        let holder = tcgetpgrp(&self.tty);
        // The terminal may still be with a group that is gone.
        if holder.is_ok_and(|holder| holder != group)
            && rustix::process::test_kill_process_group(group).is_ok()
        {
            return;
        }
        let _ = tcsetpgrp(&self.tty, getpgrp());
        // A command that was killed could not tidy up.
        if let Some(settings) = self.settings.as_ref().filter(|_| restore) {
            let _ = tcsetattr(&self.tty, OptionalActions::Drain, settings);
        }
    }

    /// Whether zk-lock is in the foreground now.
    pub fn is_ours(&self) -> bool {
        tcgetpgrp(&self.tty).is_ok_and(|holder| holder == getpgrp())
    }
}
