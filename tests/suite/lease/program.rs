//! The program behind `tests/isolation`: plays rounds of `lease::rounds` for hours and counts the
//! results.
//!
//! Each batch of rounds is one process, which runs the scenario of `lease::isolation` with the
//! seeds of the batch on an ensemble of its own. That process and its servers end when our end of
//! its stdin closes, so that an interrupted run leaves no servers behind.
use crate::{
    lease::rounds::{Plan, Setup},
    support::{SCRATCH_VAR, Scratch, runner::TEST_VAR, variant},
};
use crossbeam_channel::{Sender, unbounded};
use std::{
    collections::BTreeMap,
    env, fmt,
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The first argument that starts this program instead of the suite.
pub const NAME: &str = "isolation";
pub const SCENARIO: &str =
    "holders_stopped_and_cut_off_at_random_stop_before_the_leader_lets_the_next_one_in";

/// The seeds of a batch, and the time after which no further round begins, in milliseconds since
/// 1970.
const SEEDS_VAR: &str = "ZK_MUTEX_TEST_SEEDS";
const END_VAR: &str = "ZK_MUTEX_TEST_END";

/// Rounds with the same setup that are near each other share an ensemble.
const WINDOW: usize = 60;
/// The sum of the session timeouts of a batch's rounds.
const BATCH: Duration = Duration::from_secs(40);

const USAGE: &str = "tests/isolation [--rounds N] [--seed S] [--timeout SECONDS] [--parallel P]";

/// The seeds of this batch; None if the suite runs the scenario.
pub fn seeds() -> Option<Vec<u64>> {
    let seeds = env::var(SEEDS_VAR).ok()?;
    Some(seeds.split(',').map(|seed| seed.parse().expect("a seed")).collect())
}

/// Whether no further round begins.
pub fn is_over() -> bool {
    env::var(END_VAR).is_ok_and(|end| end.parse::<u128>().expect("a time") <= millis())
}

fn millis() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()
}

struct Arguments {
    rounds: u64,
    seed: u64,
    timeout: Option<Duration>,
    parallel: usize,
}

fn arguments() -> Option<Arguments> {
    let mut said = Arguments { rounds: 20, seed: 1, timeout: None, parallel: 2 };
    let mut words = env::args().skip(2);
    while let Some(word) = words.next() {
        let number: u64 = words.next()?.parse().ok()?;
        match word.as_str() {
            "--rounds" => said.rounds = number,
            "--seed" => said.seed = number,
            "--timeout" => said.timeout = Some(Duration::from_secs(number)),
            "--parallel" => {
                said.parallel = usize::try_from(number).ok().filter(|number| *number > 0)?
            }
            _ => return None,
        }
    }
    Some(said)
}

/// The results of all rounds, or of those of one session timeout.
#[derive(Default)]
struct Tally {
    rounds: u64,
    expired: u64,
    never_held: u64,
    overlaps: u64,
    took: u64,
    margin: Option<f64>,
}

impl Tally {
    fn add(&mut self, result: &str, margin: Option<f64>, took: u64) {
        self.rounds += 1;
        self.expired += u64::from(["expired", "overlap"].contains(&result));
        self.never_held += u64::from(result == "never-held");
        self.overlaps += u64::from(result == "overlap");
        self.took += took;
        self.margin = self.margin.into_iter().chain(margin).min_by(f64::total_cmp);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { rounds, expired, never_held, overlaps, took, margin } = self;
        let margin = margin.map_or("null".to_owned(), |margin| format!("{margin:.1}"));
        let each = took / rounds.max(&1);
        write!(
            f,
            "\"rounds\":{rounds},\"expired\":{expired},\"never_held\":{never_held},\"overlaps\":{overlaps},\
             \"smallest_margin_ms\":{margin},\"ms_per_round\":{each}"
        )
    }
}

impl Tally {
    /// Why the rounds together show nothing: nobody's lock was at stake in most of them. A leader
    /// that expires no session gives the lock to nobody, and a holder that never held it shares it
    /// with nobody, whatever the library does.
    fn in_vain(&self) -> Option<&'static str> {
        if self.expired == 0 {
            return Some("no session of a holder expired");
        }
        (self.never_held > self.rounds / 4)
            .then_some("in more than a quarter of the rounds the holder never held the lock")
    }
}

/// Exit code 1 if two could hold the lock at once in any round, if a batch ended before its last
/// round, or if the rounds show nothing; 2 if the arguments are wrong.
pub fn main() -> ExitCode {
    let Some(Arguments { rounds, seed, timeout, parallel }) = arguments() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let seeds: Vec<u64> = (seed..seed.saturating_add(rounds)).collect();
    let (queue, batches) = unbounded();
    for window in seeds.chunks(WINDOW) {
        let mut setups: BTreeMap<Setup, Vec<u64>> = BTreeMap::new();
        window.iter().for_each(|seed| setups.entry(Plan::of(*seed).setup).or_default().push(*seed));
        for (setup, seeds) in setups {
            let rounds = BATCH.as_secs() / setup.timeout.as_secs();
            seeds
                .chunks(rounds as usize)
                .for_each(|batch| queue.send(batch.to_vec()).expect("we have the other end"));
        }
    }
    drop(queue);
    let end = timeout.map(|timeout| millis() + timeout.as_millis());
    let is_over = || end.is_some_and(|end| end <= millis());
    let scratch = Scratch::new(NAME);
    let (tell, lines) = unbounded();
    let (mut all, mut each) = (Tally::default(), BTreeMap::<u64, Tally>::new());
    let failed = thread::scope(|scope| {
        let players: Vec<_> = (0..parallel)
            .map(|_| {
                let (batches, tell, scratch) = (batches.clone(), tell.clone(), &scratch);
                scope.spawn(move || {
                    let open = batches.iter().take_while(|_| !is_over());
                    open.map(|batch| usize::from(!play(&batch, end, scratch, &tell))).sum::<usize>()
                })
            })
            .collect();
        drop(tell);
        for line in lines {
            println!("{line}");
            let _ = std::io::stdout().flush();
            let value = |key: &str| {
                line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
            };
            if let (Some(result), Some(t), Some(took)) =
                (value("result"), value("T"), value("took"))
            {
                let margin = value("margin").and_then(|margin| margin.parse().ok());
                let (t, took) = (t.parse().unwrap_or_default(), took.parse().unwrap_or_default());
                all.add(result, margin, took);
                each.entry(t).or_default().add(result, margin, took);
            }
        }
        players.into_iter().map(|player| player.join().unwrap_or(1)).sum::<usize>()
    });
    let each: Vec<String> = each.iter().map(|(t, tally)| format!("\"{t}\":{{{tally}}}")).collect();
    println!(
        "{{{all},\"failed_batches\":{failed},\"per_session_timeout\":{{{}}}}}",
        each.join(",")
    );
    let in_vain = all.in_vain();
    in_vain.iter().for_each(|why| eprintln!("the rounds show nothing: {why}"));
    ExitCode::from(u8::from(all.overlaps > 0 || failed > 0 || in_vain.is_some()))
}

/// Plays a batch in a process of its own; false if it ends early.
fn play(seeds: &[u64], end: Option<u128>, scratch: &Scratch, tell: &Sender<String>) -> bool {
    let words: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let mut command = Command::new(env::current_exe().expect("our own file"));
    command
        .env(TEST_VAR, format!("lease::isolation::{SCENARIO}"))
        .env(variant::VAR, variant::Variant::Real.name())
        .env(SCRATCH_VAR, scratch.path())
        .env(SEEDS_VAR, words.join(","))
        .env("RUST_LOG", env::var("RUST_LOG").unwrap_or_else(|_| "error".into()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0);
    end.map(|end| command.env(END_VAR, end.to_string()));
    let mut process = command.spawn().expect("our own program starts");
    let (mut played, mut overlaps) = (0, false);
    for line in BufReader::new(process.stdout.take().expect("a pipe")).lines().map_while(Result::ok)
    {
        played += usize::from(line.starts_with("seed="));
        overlaps |= line.contains("result=overlap");
        let _ = tell.send(line);
    }
    let status = process.wait();
    let complete = played == seeds.len() || (end.is_some_and(|end| end <= millis()) && !overlaps);
    let well = complete && (overlaps || status.as_ref().is_ok_and(|status| status.success()));
    if !well {
        let _ = tell.send(format!("the batch {words:?} ended after {played} rounds: {status:?}"));
    }
    well
}
