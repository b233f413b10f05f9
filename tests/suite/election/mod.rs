//! Elections.
pub mod faults;
pub mod leading;

crate::support::tables![faults, leading];
