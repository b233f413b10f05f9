//! One run, in this process or in a child process.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zk_mutex_sim::faults::Plan;
use zk_mutex_sim::scenario::{Outcome, Scenario};
use zk_mutex_sim::{TraceLog, file};

use crate::asked::Asked;

/// Options for a single run.
#[derive(Default)]
pub struct Wish {
    /// Prints each step to the standard error.
    pub verbose: bool,
    /// Counts the lines of the trace that contain each of these texts.
    pub count: Vec<String>,
    /// Writes the scenario to this file instead of playing it.
    pub write: Option<PathBuf>,
}

/// The content of a run's line of JSON.
#[derive(Serialize, Deserialize)]
pub struct Told {
    /// A hash over each step: two runs with the same hash are the same.
    pub hash: String,
    /// The first violation, which ended the run.
    pub violation: Option<Violation>,
    /// Values that are added up over runs: numbers, and objects of numbers.
    pub sums: Value,
}

/// A violation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Violation {
    /// The check that found it.
    pub kind: String,
    /// The virtual time of the violation; unknown if the process of the run has ended.
    pub at: Option<Duration>,
}

/// Plays the run in this process.
pub fn here(asked: &Asked, wish: &Wish) -> ExitCode {
    let scenario = match asked.scenario() {
        Ok(scenario) => scenario,
        Err(wrong) => {
            eprintln!("{wrong}");
            return ExitCode::from(2);
        }
    };
    if let Some(path) = &wish.write {
        let written = file::write(&scenario)
            .map_err(io::Error::from)
            .and_then(|text| std::fs::write(path, text));
        return written.map_or_else(
            |e| {
                eprintln!("{}: {e}", path.display());
                ExitCode::from(2)
            },
            |()| ExitCode::SUCCESS,
        );
    }
    let told = play(asked, &scenario, wish);
    println!("{}", serde_json::to_string(&told).unwrap_or_default());
    let _ = io::stdout().flush();
    // The simulated processes that are left need no end; the process exits.
    std::process::exit(i32::from(told.violation.is_some()))
}

fn play(asked: &Asked, scenario: &Scenario, wish: &Wish) -> Told {
    if log::set_logger(&TraceLog).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
    let Outcome { report, counts, faults } = scenario.play(wish.verbose, &wish.count);
    if !report.failures.is_empty() {
        // The faults are left out: the trace shows each when it is injected, and `--write` writes
        // all to a file.
        eprintln!("{:#?}", Scenario { plan: Plan::default(), ..scenario.clone() });
        report.trace.iter().for_each(|line| eprintln!("{line}"));
        report.threads.iter().for_each(|line| eprintln!("{line}"));
    }
    for failure in &report.failures {
        eprintln!("{asked}: {failure}");
    }
    let mut sums = serde_json::to_value(&counts).unwrap_or_default();
    sums["steps"] = json!(report.steps);
    sums["switches"] = json!(report.switches);
    sums["simulated_seconds"] = json!(report.time.as_secs_f64());
    sums["processor_seconds"] = json!(processor_time().as_secs_f64());
    sums["faults_by_kind"] = json!(faults);
    for (text, count) in &report.counted {
        sums["counted"][text.as_str()] = json!(count);
    }
    let violation = report
        .failures
        .first()
        .map(|failure| Violation { kind: failure.kind.clone(), at: Some(failure.at) });
    Told { hash: format!("{:x}", report.hash), violation, sums }
}

/// The processor time of this thread. On a busy machine it shows the simulation's speed better than
/// the elapsed time.
fn processor_time() -> Duration {
    let told = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = told.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Plays the run in a child process. Returns its result and its output for people.
pub fn in_child(asked: &Asked) -> io::Result<(Told, String)> {
    let output = command(asked)?.stdin(Stdio::null()).output()?;
    Ok((told(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Plays the run in a child process, and ends it at `until`: `None`.
pub fn in_child_until(asked: &Asked, until: Instant) -> io::Result<Option<Told>> {
    let mut command = command(asked)?;
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    // The child's line of JSON stays in the pipe until it has ended.
    while child.try_wait()?.is_none() {
        if Instant::now() >= until {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut bytes = Vec::new();
    child.stdout.take().map(|mut out| out.read_to_end(&mut bytes)).transpose()?;
    Ok(Some(told(&bytes)))
}

fn command(asked: &Asked) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(asked.arguments());
    Ok(command)
}

fn told(bytes: &[u8]) -> Told {
    serde_json::from_slice(bytes).unwrap_or_else(|_| {
        let violation = Violation { kind: "ended early".to_owned(), at: None };
        Told { hash: String::new(), violation: Some(violation), sums: json!({}) }
    })
}
