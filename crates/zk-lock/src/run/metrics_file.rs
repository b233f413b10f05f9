//! `run --metrics-file`: the last run as metrics, in a file for node_exporter's textfile collector.
//!
//! When the run has ended, zk-lock writes another file and gives it the name of this one. So a
//! reader finds the old file or the new one, and never half of it. What goes wrong here never
//! changes the exit status.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::cli::RunArgs;
use crate::exit::Failure;
use crate::metrics::{Metric, Metrics};
use crate::output::Output;

const END: Metric = of_path("zk_lock_run_end_timestamp_seconds", "When the last run ended.");
const SUCCESS: Metric = of_path(
    "zk_lock_run_last_success_timestamp_seconds",
    "When the last run with the exit status 0 ended.",
);
const STATUS: Metric = of_path("zk_lock_run_status", "The exit status of the last run.");
const WAITED: Metric =
    of_path("zk_lock_run_waited_seconds", "How long the last run waited for the lock.");
const HELD: Metric =
    of_path("zk_lock_run_held_seconds", "How long the last run held the lock for its command.");
const LOST: Metric =
    of_path("zk_lock_run_lost", "1 if the last run lost the lock, or was about to lose it.");

const fn of_path(name: &'static str, help: &'static str) -> Metric {
    Metric { name, help, labels: &["path"] }
}

/// An older file of this length or more is none of ours.
const LONGEST: u64 = 64 << 10;

/// The run as it goes on.
pub struct MetricsFile {
    file: Option<PathBuf>,
    paths: Vec<String>,
    began: Instant,
    waited: Option<Duration>,
    held: Duration,
    is_lost: bool,
}

impl MetricsFile {
    pub fn of(args: &RunArgs, began: Instant) -> MetricsFile {
        MetricsFile {
            file: args.metrics_file.clone(),
            paths: args.paths.clone(),
            began,
            waited: None,
            held: Duration::ZERO,
            is_lost: false,
        }
    }

    /// The run has the lock.
    pub fn acquired(&mut self) {
        self.waited = Some(self.began.elapsed());
    }

    /// The command has ended.
    pub fn ended(&mut self, is_lost: bool) {
        self.held = self.began.elapsed().saturating_sub(self.waited.unwrap_or_default());
        self.is_lost = is_lost;
    }

    /// Writes the file. If others held the lock all the time there was no run, and the file stays
    /// as it is.
    pub fn write(self, result: &Result<u8, Failure>, output: &Output) {
        let (Some(file), false) = (&self.file, self.waited.is_none() && result.is_ok()) else {
            return;
        };
        let status = result.as_ref().map_or_else(|failure| failure.code, |code| *code);
        if let Err(why) = self.text(file, status).and_then(|text| replace(file, &text)) {
            let text = format!("--metrics-file {}: {why}", file.display());
            output.warn("no_metrics_file", &text, json!({"file": file.display().to_string()}));
        }
    }

    fn text(&self, file: &Path, status: u8) -> Result<String, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let before = before(file);
        let mut metrics = Metrics::default();
        let waited = self.waited.unwrap_or_else(|| self.began.elapsed()).as_secs_f64();
        for path in &self.paths {
            let values = [
                (&END, now),
                (&STATUS, f64::from(status)),
                (&WAITED, waited),
                (&HELD, self.held.as_secs_f64()),
                (&LOST, f64::from(u8::from(self.is_lost))),
            ];
            let success =
                if status == 0 && !self.is_lost { Some(now) } else { last_success(&before, path) };
            let success = success.map(|at| (&SUCCESS, at));
            for (metric, value) in values.into_iter().chain(success) {
                metrics.set(metric, &[path], value).map_err(|e| e.message)?;
            }
        }
        metrics.text().map_err(|e| e.message)
    }
}

/// The file of the run before, if there is one that can be read.
fn before(file: &Path) -> String {
    let mut text = String::new();
    let read = File::open(file).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

/// The end of the last run of this lock that went well, as the file of the run before has it.
fn last_success(before: &str, path: &str) -> Option<f64> {
    let mut wanted = Metrics::default();
    wanted.set(&SUCCESS, &[path], 0.0).ok()?;
    let wanted = wanted.text().ok()?;
    // The line as it would be, without its value.
    let start = wanted.lines().last()?.strip_suffix('0')?;
    let value = before.lines().find_map(|line| line.strip_prefix(start))?;
    value.parse().ok().filter(|at: &f64| at.is_finite())
}

/// Puts a file with this text in the place of `file`.
fn replace(file: &Path, text: &str) -> Result<(), String> {
    let name = file.file_name().ok_or("it must be the name of a file")?.to_string_lossy();
    // The collector reads no file of this name.
    let beside = file.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || -> io::Result<()> {
        // A process of this id may have been killed here.
        let _ = fs::remove_file(&beside);
        let mut new = File::create_new(&beside)?;
        // The collector is another user, whatever the umask says.
        new.set_permissions(Permissions::from_mode(0o644))?;
        new.write_all(text.as_bytes())?;
        fs::rename(&beside, file)
    };
    write().map_err(|e| {
        let _ = fs::remove_file(&beside);
        e.to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_one_that_prometheus_takes() {
        crate::metrics::check(&[&END, &SUCCESS, &STATUS, &WAITED, &HELD, &LOST]);
    }

    #[test]
    fn the_last_success_is_taken_from_the_file_of_the_run_before() {
        let mut metrics = Metrics::default();
        for (path, at) in [("/a", 7.25), ("/a\"b\\", 8.0)] {
            metrics.set(&SUCCESS, &[path], at).expect("a metric");
        }
        let text = metrics.text().expect("text");
        assert_eq!(last_success(&text, "/a"), Some(7.25));
        assert_eq!(last_success(&text, "/a\"b\\"), Some(8.0));
        assert_eq!(last_success(&text, "/b"), None);
        for garbage in ["", "zk_lock_run_last_success_timestamp_seconds{path=\"/a\"} soon"] {
            assert_eq!(last_success(garbage, "/a"), None);
        }
    }
}
