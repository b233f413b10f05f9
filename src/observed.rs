//! What the simulation's observer can see of a guard, from outside its process and without a lock.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock::BootTime;
use crate::guard::Held;
use crate::session::generation::Generation;
use crate::session::hold::Hold;

/// One hold. It keeps nothing alive.
#[derive(Clone)]
pub struct Observed {
    generation: Weak<Generation>,
    hold: Weak<Hold>,
}

impl Observed {
    /// The hold of this guard.
    pub fn new(guard: &Held) -> Observed {
        let holding = guard.holding();
        Observed { generation: Arc::downgrade(holding.generation()), hold: Arc::downgrade(holding.hold()) }
    }

    /// The session that it is held in; `None` once nobody holds it any more.
    pub fn session_id(&self) -> Option<i64> {
        self.generation.upgrade()?.session_id()
    }

    /// Whether [`Held::is_held`] would be true if the process read this time on its boot-time clock now.
    pub fn is_held_at(&self, boot_time: Duration) -> bool {
        let (Some(generation), Some(hold)) = (self.generation.upgrade(), self.hold.upgrade()) else {
            return false;
        };
        generation.lease.would_stand(&hold, BootTime::default() + boot_time)
    }
}
