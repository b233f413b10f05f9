//! Mutexes.
pub mod guards;
pub mod held;
pub mod keep;
pub mod locking;
pub mod long_waits;
pub mod names;
pub mod numbers;
pub mod strategies;
pub mod threads;
pub mod waiting;

crate::support::tables![
    guards, held, keep, locking, long_waits, names, numbers, strategies, threads, waiting
];
