//! What happens inside this process: its threads queue here before one of them asks ZooKeeper.

pub(crate) mod reentry;
pub(crate) mod registry;
pub(crate) mod turnstile;
pub(crate) mod witness;
