//! The one test binary: collects the scenario modules and runs each scenario in a process of its
//! own.
//!
//! A scenario is a plain function named in its module's `scenarios![..]` table; one left out of the
//! table, or a module's table left out of the list below, is dead code and does not compile. It
//! runs on the real ZooKeeper and on the embedded server unless its table says otherwise.
//! `tests/run` runs them all and installs what is missing before.
#![deny(dead_code)]

#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod client_faults;
mod costs;
#[cfg(feature = "client")]
mod custom_acl;
mod election;
mod election_faults;
mod embedded_faults;
mod embedded_hostile;
mod embedded_life;
mod exclusive;
mod exclusive_faults;
mod faults;
mod faults_lease;
mod faults_process;
mod faults_progress;
mod faults_requests;
mod faults_waiting;
mod input;
mod keep;
mod leaked;
mod lease_isolation;
mod lease_program;
mod lease_rounds;
mod long_answers;
mod many_locks;
mod multi;
mod multi_faults;
mod mutex;
mod mutex_guards;
mod mutex_held;
mod mutex_names;
mod mutex_numbers;
mod mutex_threads;
mod mutex_waiting;
mod own_answers;
mod panics;
mod persistent;
mod random_calls;
mod revocation;
mod runner_traps;
mod rwlock;
mod rwlock_faults;
mod semaphore;
mod semaphore_faults;
mod server_tick;
mod session;
mod session_faults;
mod signals;
mod storm;
mod support;
mod support_selftest;
mod wait_strategies;

fn main() -> std::process::ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some(lease_program::NAME) => return lease_program::main(),
        Some(storm::program::NAME) => return storm::program::main(),
        Some(storm::worker::NAME) => return storm::worker::main(),
        _ => {}
    }
    support::runner::main(
        &[
            support_selftest::TESTS,
            #[cfg(feature = "client")]
            client::TESTS,
            #[cfg(feature = "client")]
            client_faults::TESTS,
            #[cfg(feature = "client")]
            custom_acl::TESTS,
            costs::TESTS,
            election::TESTS,
            election_faults::TESTS,
            embedded_faults::TESTS,
            embedded_hostile::TESTS,
            embedded_life::TESTS,
            exclusive::TESTS,
            exclusive_faults::TESTS,
            faults::TESTS,
            faults::EXCLUSIVE,
            faults_lease::TESTS,
            faults_process::TESTS,
            faults_progress::TESTS,
            faults_progress::EXCLUSIVE,
            faults_requests::TESTS,
            faults_requests::EXCLUSIVE,
            faults_waiting::TESTS,
            faults_waiting::EXCLUSIVE,
            input::TESTS,
            keep::TESTS,
            long_answers::TESTS,
            many_locks::TESTS,
            lease_isolation::TESTS,
            server_tick::TESTS,
            session::TESTS,
            session_faults::TESTS,
            leaked::TESTS,
            multi::TESTS,
            multi_faults::TESTS,
            mutex::TESTS,
            mutex_guards::TESTS,
            mutex_held::TESTS,
            mutex_names::TESTS,
            mutex_numbers::TESTS,
            mutex_threads::TESTS,
            mutex_waiting::TESTS,
            own_answers::TESTS,
            panics::TESTS,
            persistent::TESTS,
            random_calls::TESTS,
            revocation::TESTS,
            rwlock::TESTS,
            rwlock_faults::TESTS,
            semaphore::TESTS,
            semaphore_faults::TESTS,
            signals::TESTS,
            storm::TESTS,
            storm::CHECKER,
            wait_strategies::TESTS,
        ],
        runner_traps::TESTS,
    )
}
