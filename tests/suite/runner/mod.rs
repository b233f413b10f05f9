//! Tests of the tests' tools: the runner, the servers and the proxies.
pub mod selftest;
pub mod traps;

crate::support::tables![selftest];
