//! Leases: a hold ends for its holder before the server lets the next contender in.
pub mod expiry;
pub mod isolation;
pub mod program;
pub mod refused;
pub mod rounds;

crate::support::tables![expiry, isolation, refused];
