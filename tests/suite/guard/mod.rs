//! What a hold tells its holder, and what becomes of it: over several recipes.
pub mod leaked;
pub mod persistent;
pub mod revocation;
pub mod signals;

crate::support::tables![leaked, persistent, revocation, signals];
