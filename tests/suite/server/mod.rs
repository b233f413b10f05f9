//! The embedded server, as its users and the library see it.
pub mod brands;
pub mod faults;
pub mod hostile;
pub mod life;

crate::support::tables![brands, faults, hostile, life];
