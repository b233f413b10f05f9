//! The program behind `tests/storm`: reads the arguments, and plays the scenario in a process of
//! its own. That process ends, with its servers and its workers, when our end of its stdin closes.
use super::{Settings, judge, summary};
use crate::support::{
    SCRATCH_VAR, Scratch,
    runner::TEST_VAR,
    variant::{self, Variant},
};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::{
    env, fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The first argument that starts this program instead of the suite.
pub const NAME: &str = "storm";
const SCENARIO: &str = "storm::processes_under_faults_are_not_seen_to_break_a_guarantee";
/// The settings of the scenario: the seed, the seconds and the number of servers.
const SETTINGS_VAR: &str = "ZK_MUTEX_TEST_STORM";

const USAGE: &str =
    "tests/storm [--seconds N] [--ensemble] [--seed S]\ntests/storm --judge DIRECTORY";

/// The settings of the suite's storm.
const SHORT: Settings = Settings { seed: 1, length: Duration::from_secs(12), members: 1 };

/// The settings that the program has set, or those of the suite.
pub fn settings() -> Settings {
    let Ok(text) = env::var(SETTINGS_VAR) else { return SHORT };
    let numbers: Vec<u64> =
        text.split(' ').map(|number| number.parse().expect("a number")).collect();
    let [seed, seconds, members] = numbers[..] else { panic!("three settings, not {text:?}") };
    Settings { seed, length: Duration::from_secs(seconds), members: members as usize }
}

/// Copies histories with violations to a directory that is kept.
pub fn keep(settings: Settings, dir: &Path) -> PathBuf {
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("storm-{}", settings.seed));
    let _ = fs::remove_dir_all(&kept);
    fs::create_dir_all(&kept).expect("a directory for the histories");
    for entry in fs::read_dir(dir).expect("the histories") {
        let path = entry.expect("the histories").path();
        fs::copy(&path, kept.join(path.file_name().expect("a file")))
            .expect("the histories can be copied");
    }
    kept
}

enum Asked {
    Play(Settings),
    Judge(PathBuf),
}

fn arguments() -> Option<Asked> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut settings =
        Settings { seed: now.as_secs(), length: Duration::from_secs(30), members: 1 };
    let mut words = env::args().skip(2);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seconds" => settings.length = Duration::from_secs(words.next()?.parse().ok()?),
            "--seed" => settings.seed = words.next()?.parse().ok()?,
            "--ensemble" => settings.members = 3,
            "--judge" => return words.next().map(|dir| Asked::Judge(dir.into())),
            _ => return None,
        }
    }
    Some(Asked::Play(settings))
}

/// Exit code 1 if there is a violation, or if the storm ended early; 2 if the arguments are wrong.
pub fn main() -> ExitCode {
    // No server and no worker may outlive the script that started us, however it ends.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("the kernel knows this signal");
    match arguments() {
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
        Some(Asked::Judge(dir)) => {
            let verdict = judge(&dir);
            verdict.violations.iter().for_each(|(kind, what)| println!("{kind}: {what}"));
            println!("{}", summary("", &verdict));
            ExitCode::from(u8::from(!verdict.violations.is_empty()))
        }
        Some(Asked::Play(settings)) => {
            let Settings { seed, length, members } = settings;
            eprintln!("the seed is {seed}");
            let scratch = Scratch::new(NAME);
            let process = Command::new(env::current_exe().expect("our own file"))
                .env(TEST_VAR, SCENARIO)
                .env(variant::VAR, Variant::Real.name())
                .env(SCRATCH_VAR, scratch.path())
                .env(SETTINGS_VAR, format!("{seed} {} {members}", length.as_secs()))
                .env("RUST_LOG", env::var("RUST_LOG").unwrap_or_else(|_| "error".into()))
                .stdin(Stdio::piped())
                .process_group(0)
                .spawn();
            // `wait` would close its stdin.
            let mut process = process.expect("our own program starts");
            let stdin = process.stdin.take();
            let status = process.wait();
            drop(stdin);
            ExitCode::from(u8::from(!status.is_ok_and(|status| status.success())))
        }
    }
}
