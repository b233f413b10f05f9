//! Who has the lock, as its node says.

use std::time::SystemTime;

use crate::error::Result;
use crate::limit::Limit;
use crate::queue::ask;
use crate::session::core::Core;
use crate::session::generation::CallError;
use crate::session::nonce;

/// Who holds a [`ZkExclusiveLock`](crate::ZkExclusiveLock), as its node says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// What it wrote in the node, without this crate's nonce; by default this crate's write their host
    /// and process id.
    pub data: Vec<u8>,
    /// The session that owns the node; 0 if the node is not ephemeral, which this crate's are.
    pub session_id: i64,
    /// When the node was made, by the server's clock.
    pub created: SystemTime,
}

/// `limit` is for the connection; the read itself has a time of its own.
pub(super) fn read(core: &Core, node: &str, limit: &Limit<'_>) -> Result<Option<Holder>> {
    ask("holder", core, node, limit, |generation, _| match generation.read(node, false, &Limit::NONE) {
        Ok(node) => Ok(Some(Holder {
            data: nonce::split(&node.data).1.to_vec(),
            session_id: node.stat.owner,
            created: node.created(),
        })),
        Err(CallError::NoNode) => Ok(None),
        Err(e) => Err(e),
    })
}
