//! The program as a process, against the embedded server.

mod doctor;
mod look;
mod run;
mod run_faults;
mod run_processes;
mod support;
mod terminal;
#[cfg(feature = "tls")]
mod tls;
