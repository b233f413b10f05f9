//! What a hold tells its holder, and what becomes of it: over several recipes.
pub mod leaked;
pub mod max_hold;
pub mod persistent;
pub mod revocation;
pub mod signals;

crate::support::tables![leaked, max_hold, persistent, revocation, signals];
