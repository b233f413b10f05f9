//! The exclusive lock, whose one node has a fixed name.
pub mod faults;
pub mod locking;

crate::support::tables![faults, locking];
