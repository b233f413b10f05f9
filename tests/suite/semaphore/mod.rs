//! Semaphores.
pub mod faults;
pub mod permits;

crate::support::tables![faults, permits];
