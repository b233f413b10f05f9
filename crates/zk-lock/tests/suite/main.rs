//! The program as a process, against the embedded server; the scenarios of `sasl` also against the
//! real ZooKeeper, where the run has it (`ZK_TEST_SERVER`).

mod doctor;
mod export;
mod face;
mod inspect;
mod kinds;
mod memory;
mod overview;
mod run;
mod run_faults;
mod run_loss;
mod run_processes;
mod sasl;
mod schema;
mod slips;
mod support;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
