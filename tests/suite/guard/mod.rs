//! The signals of a hold, and what becomes of the hold, over several recipes.
pub mod leaked;
pub mod max_hold;
pub mod revocation;
pub mod signals;

crate::support::tables![leaked, max_hold, revocation, signals];
