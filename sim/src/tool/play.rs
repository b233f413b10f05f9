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

/// What somebody wishes who plays one run.
#[derive(Default)]
pub struct Wish {
    /// Each step on the standard error.
    pub verbose: bool,
    /// How many lines of the trace have each of these texts.
    pub count: Vec<String>,
    /// The scenario is written to this file, and not played.
    pub write: Option<PathBuf>,
}

/// What a run tells in its line of JSON.
#[derive(Serialize, Deserialize)]
pub struct Told {
    /// Of each step: two runs with the same hash are the same.
    pub hash: String,
    /// What was wrong first, which ended the run.
    pub violation: Option<Violation>,
    /// What can be added up over runs: numbers, and objects of numbers.
    pub sums: Value,
}

/// What was wrong.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Violation {
    /// The check that found it.
    pub kind: String,
    /// When, in the time of the simulation; unknown if the process of the run has ended.
    pub at: Option<Duration>,
}

/// Plays it in this process.
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
    // What is left of the simulated processes is not to be ended, but to be forgotten.
    std::process::exit(i32::from(told.violation.is_some()))
}

fn play(asked: &Asked, scenario: &Scenario, wish: &Wish) -> Told {
    if log::set_logger(&TraceLog).is_ok() {
        log::set_max_level(log::LevelFilter::Debug);
    }
    let Outcome { report, counts, faults } = scenario.play(wish.verbose, &wish.count);
    if !report.failures.is_empty() {
        // The trace shows its faults when they are injected; `--write` writes them to a file.
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

/// How long this thread has had a processor. On a machine that does other things too, that says
/// more of the simulation's speed than the time that has passed.
fn processor_time() -> Duration {
    let told = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let nanos = told.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

/// Plays it in a child process, and gives what it has told in JSON and for people.
pub fn in_child(asked: &Asked) -> io::Result<(Told, String)> {
    let output = command(asked)?.stdin(Stdio::null()).output()?;
    Ok((told(&output.stdout), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Plays it in a child process, which is ended if it takes until then: `None`.
pub fn in_child_until(asked: &Asked, until: Instant) -> io::Result<Option<Told>> {
    let mut command = command(asked)?;
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    // Its one line of JSON waits in the pipe until it has ended.
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
