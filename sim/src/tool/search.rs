//! Many seeds, each in a process of its own, on all cores.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use zk_mutex_sim::scenario::Mode;

use crate::asked::Asked;
use crate::play::{self, Told, Violation};
use crate::shrink;

/// One seed of this many is played twice, to check that both runs are the same.
const TWICE: u64 = 16;

/// The check that two runs of one seed are the same.
const SAME: &str = "not the same twice";

/// A search that has used this many seconds of processors makes each check at least once. On a free
/// machine with two processors it has used them after half a minute; on a busy one a minute may be
/// too short.
const MADE_WITHIN: f64 = 60.0;

/// The settings of a search over many seeds.
pub struct Search {
    /// The time after which no seed is begun.
    pub lasts: Duration,
    /// The first seed.
    pub first: u64,
    /// How far clocks drift.
    pub mode: Mode,
    /// How long a failing seed may be shrunk.
    pub shrink: Duration,
    /// Each seed fails on purpose once these faults were injected.
    pub planted: Vec<usize>,
}

/// The results so far.
#[derive(Default)]
struct Total {
    seeds: u64,
    replays: u64,
    sums: Value,
    failed: Vec<(u64, Violation)>,
}

impl Search {
    /// Plays seeds, and prints the line of JSON at the end.
    pub fn run(&self) -> ExitCode {
        let (started, total) = (Instant::now(), Mutex::new(Total::default()));
        let (next, is_over) = (AtomicU64::new(self.first), AtomicBool::new(false));
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    while started.elapsed() < self.lasts && !is_over.load(Ordering::Relaxed) {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if !self.is_well(seed, &total) {
                            is_over.store(true, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let (total, took) =
            (total.into_inner().unwrap_or_else(|e| e.into_inner()), started.elapsed());
        let first = total.failed.iter().min_by_key(|(seed, _)| *seed);
        if let Some((seed, violation)) = first.filter(|(_, violation)| violation.kind != SAME) {
            let asked = Asked::whole(*seed, self.mode, &self.planted);
            shrink::report(&asked, violation, self.shrink, cores);
        }
        let line = self.line(&total, took);
        println!("{line}");
        if is_over.into_inner() {
            return ExitCode::from(1);
        }
        let missing = never_made(&line);
        if !missing.is_empty() {
            eprintln!("never checked: {}", missing.join("; "));
            if line["processor_seconds"].as_f64() >= Some(MADE_WITHIN) {
                eprintln!("a search of this length has to make each check");
                return ExitCode::from(2);
            }
        }
        ExitCode::SUCCESS
    }

    /// Plays one seed; false if it fails.
    fn is_well(&self, seed: u64, total: &Mutex<Total>) -> bool {
        let asked = Asked::whole(seed, self.mode, &self.planted);
        let is_twice = seed.is_multiple_of(TWICE);
        let played = play::in_child(&asked)
            .and_then(|first| Ok((first, is_twice.then(|| play::in_child(&asked)).transpose()?)));
        let ((Told { hash, mut violation, sums }, text), again) = match played {
            Ok(played) => played,
            Err(e) => {
                eprintln!("seed {seed}: no child process ({e})");
                return false;
            }
        };
        if again.as_ref().is_some_and(|(again, _)| again.hash != hash) {
            violation = Some(Violation { kind: SAME.to_owned(), at: None });
        }
        let mut total = total.lock().unwrap_or_else(|e| e.into_inner());
        total.seeds += 1;
        total.replays += u64::from(again.is_some());
        add(&mut total.sums, &sums);
        let Some(violation) = violation else { return true };
        eprintln!("{text}");
        eprintln!("seed {seed} failed ({}); to see it again: {asked}", violation.kind);
        total.failed.push((seed, violation));
        false
    }

    /// The line of JSON at the end.
    fn line(&self, total: &Total, took: Duration) -> Value {
        let mut line = total.sums.as_object().cloned().unwrap_or_default();
        let sum = |name: &str| total.sums[name].as_f64().unwrap_or(0.0);
        let mut violations = Map::new();
        for (_, violation) in &total.failed {
            let so_far = violations.get(&violation.kind).and_then(Value::as_u64).unwrap_or(0);
            violations.insert(violation.kind.clone(), json!(so_far + 1));
        }
        let faults = total.sums["faults_by_kind"].as_object();
        let faults =
            faults.into_iter().flat_map(Map::values).filter_map(Value::as_u64).sum::<u64>();
        let round = |number: f64| (number * 100.0).round() / 100.0;
        line.insert("mode".into(), json!(self.mode));
        line.insert("first_seed".into(), json!(self.first));
        line.insert("seeds".into(), json!(total.seeds));
        line.insert("seconds".into(), json!(round(took.as_secs_f64())));
        line.insert("simulated_hours".into(), json!(round(sum("simulated_seconds") / 3_600.0)));
        line.insert("processor_seconds".into(), json!(round(sum("processor_seconds"))));
        let speed = sum("steps") / sum("processor_seconds").max(0.001);
        line.insert("steps_per_processor_second".into(), json!(speed.round()));
        line.insert("faults".into(), json!(faults));
        line.insert("violations".into(), json!(total.failed.len()));
        line.insert("violations_by_check".into(), Value::Object(violations));
        line.remove("simulated_seconds");
        let mut line = Value::Object(line);
        line["checks"][SAME] = json!(total.replays);
        line
    }
}

/// Adds numbers to the numbers with the same names.
fn add(sums: &mut Value, more: &Value) {
    match more {
        Value::Object(more) => {
            for (name, more) in more {
                add(&mut sums[name.as_str()], more);
            }
        }
        Value::Number(more) => {
            let sum = match (sums.as_u64(), more.as_u64()) {
                (Some(sum), Some(more)) => json!(sum + more),
                (None, Some(more)) if sums.is_null() => json!(more),
                _ => json!(sums.as_f64().unwrap_or(0.0) + more.as_f64().unwrap_or(0.0)),
            };
            *sums = sum;
        }
        _ => {}
    }
}

/// The checks that were never made, according to this line.
fn never_made(line: &Value) -> Vec<String> {
    let checks = line["checks"].as_object();
    checks
        .into_iter()
        .flatten()
        .filter(|(_, made)| made.as_u64() == Some(0))
        .map(|(name, _)| name.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_runs_are_added_up() {
        let mut sums = Value::Null;
        add(&mut sums, &json!({"steps": 3, "seconds": 1.5, "checks": {"a": 1, "b": 0}}));
        add(&mut sums, &json!({"steps": 4, "seconds": 1, "checks": {"a": 2, "b": 0, "c": 5}}));
        assert_eq!(sums, json!({"steps": 7, "seconds": 2.5, "checks": {"a": 3, "b": 0, "c": 5}}));
        assert_eq!(never_made(&sums), ["b"]);
    }
}
