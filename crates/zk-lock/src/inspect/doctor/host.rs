//! This host: its clock, and where the library's warnings go.

use std::io::{self, IsTerminal, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use log::{Level as LogLevel, Metadata};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat, major, minor};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use super::report::{Findings, Level};
use crate::cli::Common;
use crate::output::Output;
use crate::time::{boot_millis, show};

/// How far the clocks of one host may run apart during the check.
const APART: Duration = Duration::from_millis(500);
/// How long `timedatectl` may take: it starts a service.
const TIMEDATECTL_TAKES: Duration = Duration::from_secs(10);
/// How long a pipe may be full.
const PIPE_WAITS: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// What the clocks of this host showed at one moment.
pub struct Clocks {
    /// The time of day, since 1970.
    real: Duration,
    /// While the host runs.
    running: Duration,
    /// The same, and while it sleeps.
    boot: Duration,
}

impl Clocks {
    pub fn now() -> Clocks {
        let read = |clock| {
            let now = clock_gettime(clock);
            let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
            Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
        };
        let (real, running) = (read(ClockId::Realtime), read(ClockId::Monotonic));
        Clocks { real, running, boot: Duration::from_millis(boot_millis()) }
    }
}

/// Whether the host slept during the check, or its time of day jumped.
pub fn judge(before: &Clocks, after: &Clocks, findings: &mut Findings) {
    let boot = after.boot.saturating_sub(before.boot);
    let slept = boot.saturating_sub(after.running.saturating_sub(before.running));
    if slept > APART {
        findings.add(
            "clock",
            Level::Warning,
            format!("this host slept for {} during the check", show(slept)),
            "a host that sleeps for a session timeout loses its locks: switch off suspend for \
             hosts that hold locks",
        );
    }
    let should = before.real + boot;
    let jumped = after.real.abs_diff(should);
    if jumped > APART {
        let way = if after.real > should { "ahead" } else { "back" };
        findings.add(
            "clock",
            Level::Warning,
            format!("this host's clock jumped {} {way} during the check", show(jumped)),
            "locks do not depend on it, but ages, logs and certificates do: one NTP client should \
             set it, and step it at its own start only (chrony: makestep 1 3 and maxslewrate 1000)",
        );
    }
}

/// Whether something keeps this host's clock right, as systemd knows it from the kernel. Elsewhere
/// the comparison with the server's clock stands alone.
pub fn synchronised(findings: &mut Findings) {
    match timedatectl().as_deref().map(str::trim) {
        Some("yes") => findings.ok("ntp", "this host's clock is synchronised"),
        Some("no") => findings.add(
            "ntp",
            Level::Warning,
            "nothing synchronises this host's clock",
            "locks do not depend on it, but ages, logs and certificates do: run NTP (chrony, \
             systemd-timesyncd); `timedatectl` shows its state",
        ),
        _ => findings.ok(
            "ntp",
            "whether this host's clock is synchronised is not known: timedatectl does not tell it",
        ),
    }
}

fn timedatectl() -> Option<String> {
    let mut command = Command::new("timedatectl");
    command.args(["show", "--property=NTPSynchronized", "--value"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let end = Instant::now() + TIMEDATECTL_TAKES;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            _ => break None,
        }
    };
    if !status?.success() {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    }
    let mut answer = String::new();
    child.stdout.take()?.take(1 << 10).read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Whether somebody sees the library's warnings: that a connection or a lock was lost, and why.
pub fn logger(common: &Common, output: &Output, findings: &mut Findings) {
    if let Ok(filters) = std::env::var("RUST_LOG") {
        filter(&filters, findings);
    }
    match stderr(common, output) {
        Ok(()) => findings.ok("logger", "stderr takes lines"),
        Err((level, text)) => findings.add(
            "logger",
            level,
            text,
            "the library and zk-lock tell there why a lock was lost: send stderr to a log that \
             somebody keeps",
        ),
    }
}

fn filter(filters: &str, findings: &mut Findings) {
    let mut builder = env_filter::Builder::new();
    if let Err(e) = builder.try_parse(filters) {
        findings.add(
            "logger",
            Level::Warning,
            format!("RUST_LOG={filters:?} has parts that are ignored: {e}"),
            "write it as target=level,target=level, for instance warn,zk_mutex=info",
        );
        return;
    }
    let filter = builder.build();
    let hides = |target: &&str| {
        !filter.enabled(&Metadata::builder().level(LogLevel::Warn).target(target).build())
    };
    let hidden: Vec<&str> = ["zk_mutex", "zk_session"].into_iter().filter(hides).collect();
    if !hidden.is_empty() {
        let hidden = hidden.join(" and ");
        findings.add(
            "logger",
            Level::Warning,
            format!("RUST_LOG={filters:?} hides the warnings of {hidden}"),
            "they say why a lock or a session was lost: add zk_mutex=warn,zk_session=warn",
        );
    }
}

/// Whether stderr takes lines. A file is tried with one.
fn stderr(common: &Common, output: &Output) -> Result<(), (Level, String)> {
    let stderr = io::stderr();
    let warning = |text: String| Err((Level::Warning, text));
    let stat = match fstat(&stderr) {
        Ok(stat) => stat,
        Err(e) => return warning(format!("stderr cannot be used: {e}")),
    };
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind == FileType::CharacterDevice && (major(stat.st_rdev), minor(stat.st_rdev)) == (1, 3) {
        // The standard library opens /dev/null for a stderr that is closed.
        return Err((Level::Note, "stderr is closed, or goes to /dev/null".to_owned()));
    }
    if matches!(kind, FileType::Fifo | FileType::Socket) {
        let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
        let ready = poll(&mut polled, Some(&PIPE_WAITS));
        let state = polled[0].revents();
        if state.intersects(PollFlags::ERR | PollFlags::HUP) {
            return warning("nobody reads stderr any more: its reader has gone".to_owned());
        }
        if ready == Ok(0) {
            return warning(
                "stderr is full, and its reader does not go on: who writes there waits for ever"
                    .to_owned(),
            );
        }
        return Ok(());
    }
    if common.quiet || stderr.is_terminal() {
        return Ok(());
    }
    let text = "doctor tries whether stderr takes lines";
    let line = output.line("tried", text, json!({}));
    match io::stderr().write_all(format!("{line}\n").as_bytes()) {
        Ok(()) => Ok(()),
        Err(e) => warning(format!("stderr takes no line: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much is found if between two looks the clocks move by so many seconds.
    fn found(real: i64, running: u64, boot: u64) -> usize {
        let at = Duration::from_secs;
        let before = Clocks { real: at(1_000), running: at(1_000), boot: at(1_000) };
        let after = Clocks {
            real: at(1_000_u64.saturating_add_signed(real)),
            running: at(1_000 + running),
            boot: at(1_000 + boot),
        };
        let mut findings = Findings::default();
        judge(&before, &after, &mut findings);
        findings.len()
    }

    #[test]
    fn a_clock_that_jumps_and_a_host_that_sleeps_are_found() {
        assert_eq!(found(3, 3, 3), 0);
        assert_eq!(found(90, 3, 3), 1);
        assert_eq!(found(-60, 3, 3), 1);
        assert_eq!(found(63, 3, 63), 1); // it slept
        assert_eq!(found(3, 3, 63), 2); // and its clock has not noticed
    }
}
