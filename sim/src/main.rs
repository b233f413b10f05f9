//! `zk-mutex-sim search --seconds N [--seed S]` plays seeds in child processes, on all cores, and ends with one line
//! of JSON. `zk-mutex-sim play --seed S [--faults 0,3,5] [--verbose]` plays one, or what is left of it with these
//! faults of its plan alone.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use zk_mutex_sim::TraceLog;
use zk_mutex_sim::scenario::{Outcome, Scenario};

const USAGE: &str = "usage: zk-mutex-sim search --seconds N [--seed S]
       zk-mutex-sim play --seed S [--faults 0,3,5] [--verbose]";

/// One seed in so many is played twice, to see that it is the same run.
const TWICE: u64 = 16;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, options) = match arguments.split_first() {
        Some((command, options)) => (command.as_str(), options),
        None => return usage(),
    };
    let value = |name: &str| {
        let at = options.iter().position(|option| option == name)?;
        options.get(at + 1).map(String::as_str)
    };
    let number = |name: &str| value(name).and_then(|value| value.parse::<u64>().ok());
    match command {
        "play" => {
            let Some(seed) = number("--seed") else { return usage() };
            let keep = value("--faults")
                .map(|list| list.split(',').filter_map(|number| number.parse().ok()).collect::<Vec<usize>>());
            play(seed, keep, options.iter().any(|option| option == "--verbose"))
        }
        "search" => {
            let Some(seconds) = number("--seconds") else { return usage() };
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let first = number("--seed").unwrap_or(since.as_secs() << 20);
            search(Duration::from_secs(seconds), first)
        }
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

// ---- one seed ----

fn play(seed: u64, keep: Option<Vec<usize>>, verbose: bool) -> ExitCode {
    if log::set_logger(&TraceLog).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
    let mut scenario = Scenario::of(seed);
    if let Some(keep) = keep {
        let mut number = 0;
        scenario.plan.0.retain(|_| {
            number += 1;
            keep.contains(&(number - 1))
        });
    }
    let Outcome { report, counts, faults } = scenario.play(verbose);
    for failure in &report.failures {
        println!("violation {}", failure.kind);
        eprintln!("seed {seed}: {failure}");
    }
    if !report.failures.is_empty() {
        eprintln!("{scenario:#?}");
        report.trace.iter().for_each(|line| eprintln!("{line}"));
        report.threads.iter().for_each(|line| eprintln!("{line}"));
    }
    println!("hash {:x}", report.hash);
    println!("steps {}", report.steps);
    println!("switches {}", report.switches);
    println!("simulated {}", report.time.as_secs_f64());
    println!("processor {}", processor_time().as_secs_f64());
    println!("acquisitions {}", counts.acquisitions);
    println!("refused {}", counts.refused);
    println!("errors {}", counts.errors);
    println!("lost {}", counts.lost);
    faults.iter().for_each(|(kind, count)| println!("fault:{kind} {count}"));
    println!("done 1");
    let _ = io::stdout().flush();
    // What is left of the simulated processes is not to be ended, but to be forgotten.
    std::process::exit(i32::from(!report.failures.is_empty()))
}

/// How long this thread has had a processor. On a machine that does other things too, that says more of the
/// simulation's speed than the time that has passed.
fn processor_time() -> Duration {
    let told = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = told.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

// ---- many seeds ----

/// What the children said, added up.
#[derive(Default)]
struct Total {
    seeds: u64,
    replays: u64,
    sums: BTreeMap<String, f64>,
    violations: BTreeMap<String, u64>,
}

struct Child {
    words: BTreeMap<String, String>,
    violations: Vec<String>,
    told: String,
}

fn search(lasts: Duration, first: u64) -> ExitCode {
    let (started, total) = (Instant::now(), Arc::new(Mutex::new(Total::default())));
    let (next, is_over) = (Arc::new(AtomicU64::new(first)), Arc::new(AtomicBool::new(false)));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads: Vec<_> = (0..cores)
        .map(|_| {
            let (total, next, is_over) = (total.clone(), next.clone(), is_over.clone());
            std::thread::spawn(move || {
                while started.elapsed() < lasts && !is_over.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if !one(seed, seed % TWICE == 0, &total) {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        if thread.join().is_err() {
            is_over.store(true, Ordering::Relaxed);
        }
    }
    let total = total.lock().unwrap_or_else(|e| e.into_inner());
    let sum = |name: &str| total.sums.get(name).copied().unwrap_or(0.0);
    let list = |words: Vec<(String, u64)>| {
        let words: Vec<String> = words.iter().map(|(kind, count)| format!("\"{kind}\":{count}")).collect();
        format!("{{{}}}", words.join(","))
    };
    let faults: Vec<(String, u64)> = total
        .sums
        .iter()
        .filter_map(|(name, count)| Some((name.strip_prefix("fault:")?.to_owned(), *count as u64)))
        .collect();
    println!(
        "{{\"first_seed\":{first},\"seeds\":{},\"replayed\":{},\"seconds\":{:.1},\"simulated_hours\":{:.2},\
         \"steps\":{},\"processor_seconds\":{:.1},\"steps_per_processor_second\":{:.0},\"acquisitions\":{},\"refused\":{},\"errors\":{},\"lost\":{},\
         \"faults\":{},\"faults_by_kind\":{},\"violations\":{},\"violations_by_check\":{}}}",
        total.seeds,
        total.replays,
        started.elapsed().as_secs_f64(),
        sum("simulated") / 3_600.0,
        sum("steps"),
        sum("processor"),
        sum("steps") / sum("processor").max(0.001),
        sum("acquisitions"),
        sum("refused"),
        sum("errors"),
        sum("lost"),
        faults.iter().map(|(_, count)| count).sum::<u64>(),
        list(faults),
        total.violations.values().sum::<u64>(),
        list(total.violations.clone().into_iter().collect()),
    );
    ExitCode::from(u8::from(is_over.load(Ordering::Relaxed)))
}

/// Plays one seed in a process of its own; false if something is wrong with it.
fn one(seed: u64, is_twice: bool, total: &Mutex<Total>) -> bool {
    let (child, again) = match (child(seed), is_twice.then(|| child(seed)).transpose()) {
        (Ok(child), Ok(again)) => (child, again),
        (Err(e), _) | (_, Err(e)) => {
            eprintln!("seed {seed}: no child process ({e})");
            return false;
        }
    };
    let mut violations = child.violations.clone();
    if !child.words.contains_key("done") {
        violations.push("ended early".to_owned());
    }
    if again.as_ref().is_some_and(|again| again.words.get("hash") != child.words.get("hash")) {
        violations.push("not the same twice".to_owned());
    }
    let mut total = total.lock().unwrap_or_else(|e| e.into_inner());
    total.seeds += 1;
    total.replays += u64::from(again.is_some());
    for (word, value) in &child.words {
        if word != "hash" {
            *total.sums.entry(word.clone()).or_default() += value.parse().unwrap_or(0.0);
        }
    }
    for violation in &violations {
        *total.violations.entry(violation.clone()).or_default() += 1;
    }
    if !violations.is_empty() {
        eprintln!("{}", child.told);
        eprintln!(
            "seed {seed} failed ({}); to see it again: tests/simulate --play {seed}",
            violations.join(", ")
        );
    }
    violations.is_empty()
}

fn child(seed: u64) -> io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.args(["play", "--seed", &seed.to_string()]).stdin(Stdio::null()).output()?;
    let mut child = Child {
        words: BTreeMap::new(),
        violations: Vec::new(),
        told: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        match line.split_once(' ') {
            Some(("violation", kind)) => child.violations.push(kind.to_owned()),
            Some((word, value)) => drop(child.words.insert(word.to_owned(), value.to_owned())),
            None => {}
        }
    }
    Ok(child)
}
