//! The runner, and the servers and proxies that scenarios stand on.
pub mod selftest;
pub mod traps;

crate::support::tables![selftest];
