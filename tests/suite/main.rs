//! The one test binary: collects the scenario modules and runs each scenario in a process of its
//! own.
//!
//! A folder is a subject, a file in it a chapter, and the path of both the scenario's name:
//! `embedded::mutex::waiting::try_leaves_no_node`. A scenario is a plain function named in its
//! file's `scenarios![..]` table; one left out of the table, or a table left out of the lists of its
//! folder and below, is dead code and does not compile. It is for the real ZooKeeper and for the
//! embedded server unless its table says otherwise. `cargo test` runs it on the embedded server,
//! `tests/run` on both.
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

fn main() -> std::process::ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(lease::program::NAME) => return lease::program::main(),
        Some(storm::program::NAME) => return storm::program::main(),
        Some(storm::worker::NAME) => return storm::worker::main(),
        _ => {}
    }
    let folders = [
        runner::TABLES,
        #[cfg(feature = "client")]
        client::TABLES,
        costs::TABLES,
        election::TABLES,
        exclusive::TABLES,
        faults::TABLES,
        guard::TABLES,
        lease::TABLES,
        multi::TABLES,
        mutex::TABLES,
        rwlock::TABLES,
        semaphore::TABLES,
        server::TABLES,
        session::TABLES,
        storm::TABLES,
    ];
    support::runner::main(&folders.concat(), runner::traps::TESTS)
}
