//! The only test binary: it collects the scenario modules and runs each scenario in a process of
//! its own.
//!
//! A folder is a subject, a file in it is a chapter, and both make the scenario's name:
//! `embedded::mutex::waiting::try_leaves_no_node`. A scenario is a plain function named in its
//! file's `scenarios![..]` table, or a row of a table that runs over recipes (`support/recipe/`). A
//! function that is missing in its table, or a module that is missing in `tables![..]`, is dead
//! code and does not compile. (rustfmt would not find modules that the macro declares, so they are
//! named twice.) A scenario runs on the real ZooKeeper and on the embedded server unless its table
//! says otherwise: `cargo test` runs it on the embedded server, `tests/run` on both.
#![deny(dead_code)]

mod answers;
#[cfg(feature = "client")]
mod client;
mod costs;
mod election;
mod errors;
mod exclusive;
mod faults;
mod forks;
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
    // This module has the longest scenarios, so they begin first.
    session,
    runner,
    answers,
    #[cfg(feature = "client")]
    client,
    costs,
    election,
    errors,
    exclusive,
    faults,
    forks,
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
        Some(errors::program::NAME) => return errors::program::main(),
        Some(forks::program::NAME) => return forks::program::main(),
        Some(lease::program::NAME) => return lease::program::main(),
        Some(storm::program::NAME) => return storm::program::main(),
        Some(storm::worker::NAME) => return storm::worker::main(),
        _ => {}
    }
    support::runner::main(on_this_brand, runner::traps::tests)
}

/// The scenarios that can be run on the embedded server as it is: some need what a Keeper has not.
fn on_this_brand() -> Vec<support::Test> {
    let mut all = tests();
    let lines = include_str!("not_on_a_keeper.txt").lines();
    let listed: Vec<&str> = lines.filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    let is_meant = |line: &str, name: &str| {
        let (line, name) = (line.split("::"), name.split("::"));
        line.clone().count() == name.clone().count()
            && line.zip(name).all(|(part, of)| part == "*" || part == of)
    };
    let names: Vec<String> = all.iter().map(support::Test::full_name).collect();
    // With fewer features there are fewer scenarios.
    if cfg!(all(feature = "client", feature = "tls")) {
        for line in &listed {
            let is_known = names.iter().any(|name| is_meant(line, name));
            assert!(is_known, "not_on_a_keeper.txt: no scenario is {line}");
        }
    }
    if support::brand::chosen() == Ok(zk_test_server::Brand::Keeper) {
        all.retain(|test| !listed.iter().any(|line| is_meant(line, &test.full_name())));
        let left_out = names.len() - all.len();
        eprintln!("{left_out} scenarios are left out: tests/suite/not_on_a_keeper.txt says why");
    }
    all
}
