//! What operations, threads and many locks cost.
pub mod many_locks;
pub mod page;

crate::support::tables![many_locks, page];
