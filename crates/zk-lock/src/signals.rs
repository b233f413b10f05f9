//! The signals that zk-lock gets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use signal_hook::consts::signal::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2,
};
use zk_mutex::CancelToken;
use zk_mutex::crossbeam_channel::{Receiver, bounded};

use crate::exit::Failure;

/// They end a wait, and are passed on to a command that runs.
pub const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
/// They are passed on to a command that runs, and mean nothing to us.
pub const PASSED: [i32; 2] = [SIGUSR1, SIGUSR2];

/// Ctrl-z in a terminal.
pub const STOP: i32 = SIGTSTP;

/// More signals than arrive before the main thread reads them; further ones change nothing.
const BACKLOG: usize = 64;

/// The signals, as a thread receives them.
pub struct Signals {
    /// What has arrived and was not handled. It is also a way to wait for the next.
    pub events: Receiver<i32>,
    /// Cancelled by the first that ends a wait.
    pub cancel: CancelToken,
    /// That signal; 0 if there was none.
    first: Arc<AtomicI32>,
    /// A command runs, which is to be stopped and continued with zk-lock.
    pub has_command: Arc<AtomicBool>,
}

impl Signals {
    /// Begins to receive. A signal that is ignored from the beginning stays so, here and in the
    /// command: that is what `nohup`, and a shell that starts us in the background, ask for.
    pub fn start() -> Result<Signals, Failure> {
        let ignored = ignored();
        let is_ignored = |signal: i32| ignored >> (signal - 1) & 1 == 1;
        let wanted =
            ENDING.into_iter().chain(PASSED).chain([STOP]).filter(|signal| !is_ignored(*signal));
        let mut incoming = signal_hook::iterator::Signals::new(wanted.chain([SIGCHLD]))
            .map_err(|e| Failure::system(format!("cannot receive signals: {e}")))?;
        let (tell, events) = bounded(BACKLOG);
        let cancel = CancelToken::new();
        let first = Arc::new(AtomicI32::new(0));
        let has_command = Arc::new(AtomicBool::new(false));
        let (token, seen) = (cancel.clone(), first.clone());
        let with_command = has_command.clone();
        let receive = move || {
            for signal in &mut incoming {
                if ENDING.contains(&signal) {
                    let _ = seen.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
                    token.cancel();
                }
                if signal == STOP && !with_command.load(Ordering::SeqCst) {
                    let _ = signal_hook::low_level::emulate_default_handler(STOP);
                    continue;
                }
                // A full channel has enough in it to wake the main thread.
                let _ = tell.try_send(signal);
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(receive)
            .map_err(|e| Failure::system(format!("no thread: {e}")))?;
        Ok(Signals { events, cancel, first, has_command })
    }

    /// The signal that ends a wait, if one came.
    pub fn ending(&self) -> Option<i32> {
        Some(self.first.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
    }
}

/// Whether it is for the command, and not for ourselves.
pub fn is_passed_on(signal: i32) -> bool {
    ENDING.contains(&signal) || PASSED.contains(&signal)
}

/// The signals that this process ignores, as bits; none where the system does not say.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}

const NAMES: [(&str, i32); 8] = [
    ("HUP", SIGHUP),
    ("INT", SIGINT),
    ("QUIT", SIGQUIT),
    ("KILL", signal_hook::consts::signal::SIGKILL),
    ("USR1", SIGUSR1),
    ("USR2", SIGUSR2),
    ("TERM", SIGTERM),
    ("CONT", SIGCONT),
];

/// Reads `TERM`, `SIGTERM` or `15`.
pub fn parse(text: &str) -> Result<i32, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let by_name = NAMES.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
    let by_number =
        || text.parse().ok().filter(|n| rustix::process::Signal::from_named_raw(*n).is_some());
    by_name
        .or_else(by_number)
        .ok_or_else(|| "write HUP, INT, QUIT, KILL, USR1, USR2, TERM, or a number".to_owned())
}

pub fn name(signal: i32) -> String {
    let known = NAMES.iter().find(|(_, known)| *known == signal);
    known.map_or_else(|| format!("signal {signal}"), |(name, _)| format!("SIG{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_by_name_and_number() {
        assert_eq!(parse("TERM"), Ok(15));
        assert_eq!(parse("sigint"), Ok(2));
        assert_eq!(parse("9"), Ok(9));
        assert!(parse("0").is_err() && parse("NOPE").is_err() && parse("-3").is_err());
        assert_eq!(name(15), "SIGTERM");
        assert_eq!(name(11), "signal 11");
    }
}
