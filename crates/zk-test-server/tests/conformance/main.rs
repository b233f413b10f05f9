//! The conformance suite: how a ZooKeeper server answers. Each scenario is written once and runs
//! against the real server and the embedded one.
//!
//! Each scenario is a plain function named in its module's `scenarios![..]` table, and runs in a
//! process of its own (`zk-test-support`). The expected answers were observed at the real server
//! (3.8.0 of Debian), never guessed. Each topic has a file. `random` compares both servers with
//! each other over random sequences of operations.
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

zk_test_support::tables![
    counters,
    creates,
    framing,
    lasting_watches,
    multis,
    nodes,
    permissions,
    random,
    reaping,
    refusals,
    restarts,
    rewatches,
    sessions,
    watches,
    words,
    zxids,
];

fn main() -> std::process::ExitCode {
    zk_test_support::runner::main(tests, Vec::new)
}
