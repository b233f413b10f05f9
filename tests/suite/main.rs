//! The only test binary: it collects the scenario modules and runs each scenario in a process of its
//! own.
//!
//! A folder is a subject, a file in it is a chapter, and both make the scenario's name:
//! `embedded::mutex::waiting::try_leaves_no_node`. A scenario is a plain function named in its
//! file's `scenarios![..]` table, or a row of a table that runs over recipes (`support/recipe/`). A
//! function that is missing in its table, or a module that is missing in `tables![..]`, is dead
//! code and does not compile. (rustfmt would not find modules that the macro declares, so they are
//! named twice.) A scenario runs on the real ZooKeeper and on the embedded server unless its table
//! says otherwise: `cargo test` runs it on the embedded server, `tests/run` on both.
#![deny(dead_code)]

#[cfg(feature = "client")]
mod client;
mod costs;
mod election;
mod exclusive;
mod faults;
mod guard;
mod lease;
mod multi;
mod mutex;
mod runner;
mod rwlock;
mod semaphore;
mod server;
mod session;
mod storm;
mod support;

support::tables![
    // This module has the longest scenarios, so they begin first.
    session,
    runner,
    #[cfg(feature = "client")]
    client,
    costs,
    election,
    exclusive,
    faults,
    guard,
    lease,
    multi,
    mutex,
    rwlock,
    semaphore,
    server,
    storm,
];

fn main() -> std::process::ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(lease::program::NAME) => return lease::program::main(),
        Some(storm::program::NAME) => return storm::program::main(),
        Some(storm::worker::NAME) => return storm::worker::main(),
        _ => {}
    }
    support::runner::main(tests, runner::traps::tests)
}
