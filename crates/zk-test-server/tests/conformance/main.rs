//! The conformance suite: what a ZooKeeper server answers, written once, run against the real one
//! and the embedded one.
//!
//! Each scenario is a plain function named in its module's `scenarios![..]` table, and runs in a
//! process of its own (`zk-test-support`). The expected answers were taken from the real server
//! (3.8.0 as Debian ships it), never from guesses. Topics have a file each; `random` compares both
//! servers with each other over random sequences of operations.
#![deny(dead_code)]

mod answers;
mod checks;
mod client;
mod requests;
mod servers;
mod shorthand;

mod counters;
mod creates;
mod framing;
mod lasting_watches;
mod multis;
mod nodes;
mod permissions;
mod random;
mod reaping;
mod refusals;
mod restarts;
mod rewatches;
mod sessions;
mod watches;
mod words;
mod zxids;

fn main() -> std::process::ExitCode {
    zk_test_support::runner::main(
        &[
            counters::TESTS,
            creates::TESTS,
            framing::TESTS,
            lasting_watches::TESTS,
            multis::TESTS,
            nodes::TESTS,
            permissions::TESTS,
            random::TESTS,
            reaping::TESTS,
            refusals::TESTS,
            restarts::TESTS,
            rewatches::TESTS,
            sessions::TESTS,
            watches::TESTS,
            words::TESTS,
            zxids::TESTS,
        ],
        &[],
    )
}
