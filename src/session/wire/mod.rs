//! ZooKeeper's wire format: frames, and the few records that the link reads and writes.
//!
//! Everything read here comes from outside: lengths are bounded and arithmetic is checked.

pub(crate) mod check;
pub(crate) mod code;
pub(crate) mod frame;
pub(crate) mod record;

/// What a peer sent is not ZooKeeper's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);
