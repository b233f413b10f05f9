//! The readers of one process that share one node.

use std::sync::Arc;

use crate::queue::HeldNode;
use crate::world::Mutex;

/// A read node, held, and how many threads read under it.
pub(super) struct SharedRead {
    pub(super) node: HeldNode,
    /// The second part of its fencing token.
    pub(super) fence: u64,
    members: Mutex<usize>,
}

impl SharedRead {
    /// With its first member.
    pub(super) fn new(node: HeldNode, fence: u64) -> Arc<Self> {
        Arc::new(SharedRead { node, fence, members: Mutex::new(1) })
    }

    /// One more member; false if the last has left.
    pub(super) fn join(&self) -> bool {
        let mut members = self.members.lock();
        if *members > 0 {
            *members += 1;
        }
        *members > 0
    }

    /// A member leaves; true if it was the last.
    pub(super) fn leave(&self) -> bool {
        let mut members = self.members.lock();
        *members = members.saturating_sub(1);
        *members == 0
    }
}
