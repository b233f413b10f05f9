//! The one test binary: collects the scenario modules and runs each scenario in a process of its
//! own.
//!
//! A folder is a subject, a file in it a chapter, and the path of both the scenario's name:
//! `embedded::mutex::waiting::try_leaves_no_node`. A scenario is a plain function named in its
//! file's `scenarios![..]` table, or a row of a table that runs over recipes (`support/recipe/`). A
//! function left out of its table, or a module left out of `tables![..]`, is dead code and does not
//! compile. (rustfmt would not find modules that the macro declares; so they are named twice.) A
//! scenario is for the real ZooKeeper and for the embedded server unless its table says otherwise.
//! `cargo test` runs it on the embedded server, `tests/run` on both.
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
#[cfg(feature = "tls")]
mod tls;

support::tables![
    // It has the longest scenarios, which begin first.
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
    #[cfg(feature = "tls")]
    tls,
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
