//! The conformance suite: what a ZooKeeper server answers, written once, run against the real one and the embedded one.
//!
//! The expected answers were taken from the real server (3.8.0 as Debian ships it), never from guesses. Topics have a file each;
//! `random` compares both servers with each other over random sequences of operations.
mod answers;
mod checks;
mod client;
mod requests;
mod servers;
mod shorthand;

pub mod counters;
pub mod creates;
pub mod framing;
pub mod lasting_watches;
pub mod multis;
pub mod nodes;
pub mod permissions;
pub mod random;
pub mod reaping;
pub mod refusals;
pub mod restarts;
pub mod rewatches;
pub mod sessions;
pub mod watches;
pub mod words;
pub mod zxids;
