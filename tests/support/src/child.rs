//! The child's side of a test: runs one scenario and checks what it has left behind.
use super::{control, logged, residue::Residue, runner::Test};
use std::{
    any::Any,
    io::{self, Read},
    panic::{self, AssertUnwindSafe},
    process::{self, Command, ExitCode},
    thread,
    time::{Duration, Instant},
};

/// Names the scenario to the child.
pub const VAR: &str = "ZK_MUTEX_TEST";
/// How long threads, sockets and processes may take to end after the scenario. A client that is
/// closed in the middle of a call takes up to seven seconds by its own rules.
const SETTLE: Duration = Duration::from_secs(10);

pub fn main(test: &Test) -> ExitCode {
    end_with_parent();
    let filter = env_logger::Env::default()
        .default_filter_or("zk_mutex=debug,zk_session=debug,zk_test_server=debug,suite=debug");
    logged::install(env_logger::Builder::from_env(filter).format_timestamp_micros().build());
    control::start();
    let before = Residue::now();
    // The hook has already printed the panic, and the scenario's values are dropped, so no
    // half-changed value can be seen.
    let outcome: Result<(), Box<dyn Any + Send>> = panic::catch_unwind(AssertUnwindSafe(&test.run));
    if outcome.is_err() {
        return ExitCode::FAILURE;
    }
    match settle(&before) {
        left if left.is_empty() => ExitCode::SUCCESS,
        left => {
            eprintln!(
                "the scenario passed, but {SETTLE:?} later it had left behind:\n  {}",
                left.join("\n  ")
            );
            ExitCode::FAILURE
        }
    }
}

fn settle(before: &Residue) -> Vec<String> {
    let end = Instant::now() + SETTLE;
    loop {
        // On a busy machine a check takes long, so the last one begins when the time is over.
        let is_last = Instant::now() >= end;
        let left = before.since();
        if left.is_empty() || is_last {
            return left;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Ends this process and its group when the parent's end of our stdin closes, so that an
/// interrupted run leaves nothing behind.
fn end_with_parent() {
    let watch = || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = Command::new("sh").args(["-c", "kill -KILL 0"]).status();
        process::exit(1);
    };
    thread::Builder::new()
        .name("parent-watch".into())
        .spawn(watch)
        .expect("a thread for the parent watch");
}
