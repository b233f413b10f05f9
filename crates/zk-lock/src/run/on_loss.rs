//! The command of `--on-loss`. It runs once, whichever process finds the loss.
//!
//! zk-lock and its guards share a socket in which one byte waits. The process that reads the byte
//! runs the command; the others find the socket empty, whatever was stopped, continued, killed or
//! replaced meanwhile.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::exit::Failure;

/// How long the command may take.
pub const LIMIT: Duration = Duration::from_secs(30);

/// The words of the command, in the environment of a guard. Among the guard's arguments they would
/// let `pkill -f COMMAND` end the guard too.
const WORDS: &str = "ZK_GUARD_ON_LOSS";

/// The command, and the right to run it.
pub struct OnLoss {
    words: Vec<String>,
    /// What the command sees in its environment, beside the reason.
    variables: Vec<(String, String)>,
    right: UnixStream,
}

impl OnLoss {
    pub fn new(words: &[String], variables: &[(String, String)]) -> Result<OnLoss, Failure> {
        let failed = |e: std::io::Error| Failure::system(format!("no socket: {e}"));
        let (mut other, right) = UnixStream::pair().map_err(failed)?;
        other.write_all(&[0]).map_err(failed)?;
        right.set_nonblocking(true).map_err(failed)?;
        Ok(OnLoss { words: words.to_vec(), variables: variables.to_vec(), right })
    }

    /// Gives a guard, which is to be started, what it needs. The socket takes the place of its
    /// stdout.
    pub fn hand_over(&self, guard: &mut Command) -> std::io::Result<()> {
        guard.stdout(OwnedFd::from(self.right.try_clone()?));
        guard.env(WORDS, self.words.join(" "));
        guard.envs(self.variables.iter().map(|(name, value)| (name, value)));
        Ok(())
    }

    /// What this process, a guard, was given. The variables are in its own environment.
    pub fn take_over() -> std::io::Result<OnLoss> {
        let right = UnixStream::from(fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?);
        let words = std::env::var_os(WORDS).unwrap_or_default();
        let words = words.to_string_lossy().split_whitespace().map(str::to_owned).collect();
        Ok(OnLoss { words, variables: Vec::new(), right })
    }

    /// The command, for messages.
    pub fn name(&self) -> String {
        self.words.join(" ")
    }

    /// Starts the command with this reason. `None` if there is none, or if it was started before.
    pub fn start(&mut self, reason: &str) -> std::io::Result<Option<Child>> {
        let Some((program, arguments)) = self.words.split_first() else { return Ok(None) };
        if !matches!(self.right.read(&mut [0]), Ok(1)) {
            return Ok(None);
        }
        let mut command = Command::new(program);
        command.args(arguments);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env("ZK_LOCK_LOSS", reason).env_remove(WORDS);
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        command.spawn().map(Some)
    }
}

/// Waits for the command, and kills it when its time is over.
pub fn wait(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let started = Instant::now();
    while matches!(child.try_wait(), Ok(None)) {
        if started.elapsed() > LIMIT {
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
        }
        if started.elapsed() > LIMIT + Duration::from_secs(3) {
            return; // the kernel does not let it go
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
