//! The costs of operations, threads and many locks.
pub mod many_locks;
pub mod page;

crate::support::tables![many_locks, page];
