//! Several locks as one.
pub mod faults;
pub mod locking;

crate::support::tables![faults, locking];
