//! Plays small parts of the library under every schedule, or under very many. `tests/schedules` at
//! the top of the repository builds and runs it.
//!
//! The parts are those in which threads of one process meet: the local queue with its hand-over
//! (`local/queue.rs`, `local/`), waits with deadlines and cancel tokens (`limit.rs`, `cancel.rs`),
//! notifiers and the registry of watches (`notifier.rs`), signals (`signal.rs`), the lease
//! that is read without a lock (`lease/mod.rs`, `lease/node.rs`), a hold that is being
//! released (`queue/held_node.rs`) and re-entry (`local/reentry.rs`). They are the library's own
//! files: `build.rs` copies them to a place where `crate::world` is `copy/world.rs`, whose locks,
//! channels and clock an engine controls.
//!
//! Two engines are used:
//!
//! * **loom** tries every schedule of a small world, and for each read of an atomic every value
//!   that the memory model allows. Only loom can check the lease, whose readers take no lock, and
//!   every other place where one thread writes one thing and reads another. It can do so for two to
//!   four threads with a few steps each. If there are too many schedules even so, it tries those
//!   with at most two or three preemptions.
//! * **shuttle** tries random schedules (half of them by PCT, which aims at bugs that need few
//!   switches), and knows only one order of all steps. So it can play crowds of nine threads.
//!
//! `shuttle-parking_lot` is not used: a lock for two engines takes three lines here. There is no
//! shuttle version of `crossbeam-channel`, and no engine has a clock, which deadlines need.
//!
//! Each scenario runs in a process of its own. The copies that are broken on purpose
//! (`src/mutants.rs`) show that the scenarios can fail: each must fail with the expected words.

use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};

use self::mutants::Mutant;

#[allow(dead_code)] // only `build.rs` uses the edits
mod mutants;

// The library's log is dropped.
macro_rules! warn {
    ($($arg:tt)+) => {
        if false {
            println!($($arg)+);
        }
    };
}
macro_rules! info {
    ($($arg:tt)+) => { warn!($($arg)+) };
}
macro_rules! queued {
    ($level:ident, $($arg:tt)+) => { warn!($($arg)+) };
}

/// The name and the function of a scenario.
type Scenario = (&'static str, fn());

include!(concat!(env!("OUT_DIR"), "/copies.rs"));

/// The number of schedules that this process has played.
static PLAYED: AtomicU64 = AtomicU64::new(0);

/// The name of the copy, in the process of one scenario.
const COPY: &str = "ZK_SCHEDULES_COPY";

/// The number of schedules of each crowd that shuttle plays.
const CROWD: &str = "ZK_SCHEDULES_CROWD";

mod engines {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    fn counted(f: impl Fn() + Send + Sync + 'static) -> impl Fn() + Send + Sync + Clone + 'static {
        let f = Arc::new(f);
        move || {
            crate::PLAYED.fetch_add(1, Ordering::Relaxed);
            f();
        }
    }

    pub mod loom {
        pub use ::loom::{sync, thread};

        /// With `preemptions`, a schedule takes the processor from a thread that could continue at
        /// most so many times. Without it, every schedule is tried.
        pub fn explore(preemptions: Option<usize>, f: impl Fn() + Send + Sync + 'static) {
            let mut builder = ::loom::model::Builder::new();
            builder.preemption_bound = preemptions;
            builder.max_branches = 10_000;
            builder.check(super::counted(f));
        }
    }

    pub mod shuttle {
        pub use ::shuttle::{sync, thread};

        pub fn explore(_: Option<usize>, f: impl Fn() + Send + Sync + 'static) {
            let schedules =
                std::env::var(crate::CROWD).ok().and_then(|n| n.parse().ok()).unwrap_or(4000);
            let f = super::counted(f);
            ::shuttle::check_random(f.clone(), schedules / 2);
            ::shuttle::check_pct(f, schedules / 2, 3);
        }
    }
}

fn main() -> ExitCode {
    if let Ok(copy) = std::env::var(COPY) {
        return play(&copy, &std::env::args().nth(1).unwrap_or_default());
    }
    let total = Arc::new(AtomicU64::new(0));
    let mut trials = Vec::new();
    for copy in ["loom_copy", "shuttle_copy"] {
        for (name, _) in scenarios(copy).into_iter().flatten() {
            if name.contains("::crowd_") == (copy == "shuttle_copy") {
                let total = total.clone();
                trials.push(Trial::test(*name, move || holds(copy, name, &total)));
            }
        }
    }
    for mutant in mutants::ALL {
        trials.push(Trial::test(format!("mutants::{}", mutant.name), || is_found(mutant)));
    }
    let conclusion = libtest_mimic::run(&Arguments::from_args(), trials);
    println!("{} schedules", total.load(Ordering::Relaxed));
    conclusion.exit_code()
}

/// Plays one scenario here. It ends this process if it fails.
fn play(copy: &str, scenario: &str) -> ExitCode {
    let all = scenarios(copy).into_iter().flatten();
    let Some((_, play)) = all.into_iter().find(|(name, _)| *name == scenario) else {
        eprintln!("{copy} has no scenario {scenario}");
        return ExitCode::from(2);
    };
    play();
    println!("{}", PLAYED.load(Ordering::Relaxed));
    ExitCode::SUCCESS
}

/// Plays one scenario in another process. Returns whether it holds, and its output.
fn play_apart(copy: &str, scenario: &str) -> Result<(bool, String), Failed> {
    let output = Command::new(std::env::current_exe()?)
        .arg(scenario)
        .env(COPY, copy)
        .env("SHUTTLE_SILENCE_WARNINGS", "1")
        .env("RUST_BACKTRACE", "0")
        .output()?;
    let said = if output.status.success() { output.stdout } else { output.stderr };
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

fn holds(copy: &str, scenario: &str, total: &AtomicU64) -> Result<(), Failed> {
    let (holds, said) = play_apart(copy, scenario)?;
    if !holds {
        return Err(said.into());
    }
    let played: u64 = said.trim().parse()?;
    total.fetch_add(played, Ordering::Relaxed);
    println!("{scenario}: {played} schedules");
    Ok(())
}

fn is_found(mutant: &Mutant) -> Result<(), Failed> {
    let copy = format!("mutant_{}", mutant.name);
    let (holds, said) = play_apart(&copy, mutant.scenario)?;
    if holds {
        return Err(format!("{} does not find this mutant", mutant.scenario).into());
    }
    if !said.contains(mutant.words) {
        return Err(format!(
            "{} fails, but without the words {:?}: {said}",
            mutant.scenario, mutant.words
        )
        .into());
    }
    Ok(())
}
