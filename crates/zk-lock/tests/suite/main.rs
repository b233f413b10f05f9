//! The program as a process, against the embedded server.

mod doctor;
mod inspect;
mod kinds;
mod memory;
mod run;
mod run_faults;
mod run_processes;
mod slips;
mod support;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
