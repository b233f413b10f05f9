//! The conformance suite: how a ZooKeeper server answers. Each scenario is written once and runs
//! against the real server and the embedded one.
//!
//! Each scenario is a plain function named in its module's `scenarios![..]` table, and runs in a
//! process of its own (`zk-test-support`). The expected answers were taken from the real server
//! (3.8.0 as Debian ships it, and 3.9.5), never from guesses. Topics have a file each; `random`
//! compares both servers with each other over random sequences of operations.
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
mod logins;
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
    logins,
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
    if zk_test_support::brand::chosen() == Ok(zk_test_server::Brand::Keeper) {
        eprintln!("a Keeper is no ZooKeeper: there is nothing to compare it with");
        return std::process::ExitCode::from(2);
    }
    zk_test_support::runner::main(tests, Vec::new)
}
