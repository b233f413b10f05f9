//! Read/write locks.
pub mod faults;
pub mod locking;

crate::support::tables![faults, locking];
