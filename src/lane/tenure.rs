//! A hold of one thread alone, and whose turn at the turnstile it is: that changes at each hand-over.

use std::sync::Arc;

use crate::queue::Holding;
use crate::world::atomic::{AtomicU64, Ordering};

pub(crate) struct Tenure {
    pub(crate) holding: Holding,
    turn: Arc<AtomicU64>,
}

impl Tenure {
    pub(super) fn new(holding: Holding, turn: Arc<AtomicU64>) -> Self {
        Tenure { holding, turn }
    }

    pub(super) fn turn(&self) -> u64 {
        self.turn.load(Ordering::Acquire)
    }

    /// Another thread takes it over, with its turn; false if it is lost.
    pub(super) fn is_taken_over(&self, turn: u64) -> bool {
        self.turn.store(turn, Ordering::Release);
        let is_held = self.holding.is_held();
        if is_held {
            self.holding.hand_over();
        }
        is_held
    }
}
