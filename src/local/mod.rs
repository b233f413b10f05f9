//! What happens inside this process: its threads queue here before one of them asks ZooKeeper.

pub(crate) mod places;
pub(crate) mod reentry;
pub(crate) mod turnstile;
pub(crate) mod witness;
