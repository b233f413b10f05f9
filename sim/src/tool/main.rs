//! `tests/simulate`: plays many seeds, or one run again.
//!
//! | file | what it is for |
//! | --- | --- |
//! | `asked.rs` | the run that the command line asks for |
//! | `play.rs` | one run, in this process or in a child process |
//! | `search.rs` | many seeds, on all cores |
//! | `shrink.rs` | the fewest faults with which a run still fails |

mod asked;
mod play;
mod search;
mod shrink;

use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use zk_mutex_sim::scenario::Mode;

use self::asked::{Asked, Source};
use self::play::Wish;
use self::search::Search;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USAGE: &str = "\
tests/simulate --seconds N [--seed S] [--mode usual|drift] [--shrink-seconds N]
    Plays seeds; without --seed the first one is made from the time of day. The first seed that fails
    is shrunk to the fewest faults with which it still fails, for 60 seconds or N. The last line of
    the output is JSON. The exit code is 1 if a check has failed, and 2 if a check was never made in
    a run that has used 60 seconds of processors.
tests/simulate --play S [--mode usual|drift] [PART] [WISH]
tests/simulate --plan FILE [PART] [WISH]
    Plays a seed, or the scenario of a file, again, and prints the result in one line of JSON. The
    exit code is 1 if the run fails.
PART: --faults 0,3,5-9 only these faults of the plan
      --chance C       another run of the same scenario
WISH: --verbose        prints each step to the standard error
      --count TEXT     counts the lines of the trace with this text; may be repeated
      --write FILE     writes the scenario to this file and does not play it

In the mode `usual` clocks drift within the bound that the library states. In the mode `drift` they
drift far beyond it. Then two may hold a lock at once, which is counted; all other checks must pass.";

fn main() -> ExitCode {
    match read(std::env::args().skip(1)) {
        Ok(Order::Search(search)) => search.run(),
        Ok(Order::Play(asked, wish)) => play::here(&asked, &wish),
        Err(wrong) => {
            eprintln!("{wrong}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

enum Order {
    Search(Search),
    Play(Asked, Wish),
}

fn read(arguments: impl Iterator<Item = String>) -> Result<Order, String> {
    let (mut arguments, mut seconds, mut first, mut mode, mut shrink) =
        (arguments, None, None, None, 60);
    let (mut seed, mut file, mut wish) = (None, None, Wish::default());
    let (mut faults, mut chance, mut planted) = (None, None, Vec::new());
    while let Some(option) = arguments.next() {
        if option == "--verbose" {
            wish.verbose = true;
            continue;
        }
        let value = arguments.next().ok_or(format!("nothing follows {option}"))?;
        match option.as_str() {
            "--seconds" => seconds = Some(number(&value)?),
            "--seed" => first = Some(number(&value)?),
            "--shrink-seconds" => shrink = number(&value)?,
            "--mode" => mode = Some(Mode::of(&value).ok_or(format!("there is no mode {value}"))?),
            "--play" => seed = Some(number(&value)?),
            "--plan" => file = Some(PathBuf::from(value)),
            "--faults" => faults = Some(asked::numbers(&value)?),
            "--chance" => chance = Some(number(&value)?),
            "--count" => wish.count.push(value),
            "--write" => wish.write = Some(PathBuf::from(value)),
            // For the tests of this program: the run fails once all these faults were injected.
            "--planted" => planted = asked::numbers(&value)?,
            _ => return Err(format!("{option} is unknown")),
        }
    }
    let of_seed = |seed| Source::Seed(seed, mode.unwrap_or_default());
    let asked = |source| Asked { source, faults, chance, planted: planted.clone() };
    match (seconds, seed, file) {
        (Some(seconds), None, None) => {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Ok(Order::Search(Search {
                lasts: Duration::from_secs(seconds),
                first: first.unwrap_or(since.as_secs() << 20),
                mode: mode.unwrap_or_default(),
                shrink: Duration::from_secs(shrink),
                planted,
            }))
        }
        (None, Some(seed), None) => Ok(Order::Play(asked(of_seed(seed)), wish)),
        (None, None, Some(file)) if mode.is_none() => {
            Ok(Order::Play(asked(Source::File(file)), wish))
        }
        _ => Err("give --seconds, --play or --plan (whose file has its mode)".to_owned()),
    }
}

pub fn number<T: FromStr>(value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{value:?} is not a number"))
}
