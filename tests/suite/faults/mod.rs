//! Faults over each recipe, of processes, and at random.
pub mod phases;
pub mod process;
pub mod progress;
pub mod random;
pub mod requests;
pub mod third_parties;

crate::support::tables![phases, process, progress, random, requests, third_parties];
