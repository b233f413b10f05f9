//! ZooKeeper's wire format: frames, and the records that both the library and the embedded server read and write.
//!
//! Everything read here comes from outside: lengths are bounded and arithmetic is checked.

pub(crate) mod code;
pub(crate) mod frame;
pub(crate) mod record;

/// What a peer sent is not ZooKeeper's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed(pub(crate) &'static str);
