//! A hold of one thread alone, and whose turn at the local_queue it is: that changes at each
//! hand-over.

use std::sync::Arc;

use crate::queue::HeldNode;
use crate::world::atomic::{AtomicU64, Ordering};

pub(crate) struct LocalHold {
    pub(crate) node: HeldNode,
    turn: Arc<AtomicU64>,
}

/// The turn of a hold that was lost: none. The local_queue counts turns from one.
pub(super) const NO_TURN: u64 = 0;

impl LocalHold {
    pub(super) fn new(node: HeldNode, turn: Arc<AtomicU64>) -> Self {
        LocalHold { node, turn }
    }

    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// Another thread takes it over, with its turn; false if it is lost.
    ///
    /// A loss marks the hold first, and then swaps its turn for `NO_TURN` and ends that turn. Of
    /// two swaps one is first. If that is the one here, the loss finds this turn and ends it. If
    /// that is the one of the loss, this thread finds the mark. A store here, and a load there,
    /// could both miss what the other thread has just written: the hold would be lost and keep its
    /// turn, and no other thread of this process would get the lock until the guard is dropped.
    pub(super) fn is_taken_over(&self, turn: u64) -> bool {
        self.turn.swap(turn, Ordering::AcqRel);
        let is_held = self.node.is_held();
        if is_held {
            self.node.hand_over();
        }
        is_held
    }
}
