//! The program as a process, against the embedded server.

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
mod schema;
mod slips;
mod support;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
