//! What the simulation's observer sees: each hold from its grant to its release, from outside of all processes.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock::BootTime;
use crate::queue::Holding;
use crate::queue::name::{self, Kind};
use crate::session::generation::Generation;
use crate::session::hold::Hold;

/// One hold: a node that was granted the lock. It keeps nothing alive.
#[derive(Clone)]
pub struct Observed {
    generation: Weak<Generation>,
    hold: Weak<Hold>,
    /// The node's full path.
    pub path: String,
}

/// What a hold lets others have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nobody else may hold the lock: a mutex, a write lock.
    Exclusive,
    /// Other readers may.
    Shared,
    /// No other candidate may lead.
    Leader,
    /// So many others may as the semaphore has permits.
    Permit,
    /// Nobody else may hold this very node's name.
    Name,
}

/// What happens to a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was granted, and no guard has it yet.
    Granted,
    /// It is about to be let go: no guard has it any more.
    Released,
}

type Watcher = Box<dyn Fn(Change, Observed)>;

thread_local! {
    static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
}

/// From now on this is called at each change, on the thread that makes it, which must not be made to wait.
pub fn watch(watcher: impl Fn(Change, Observed) + 'static) {
    WATCHER.with(|current| *current.borrow_mut() = Some(Box::new(watcher)));
}

pub(crate) fn tell(change: Change, holding: &Holding) {
    WATCHER.with(|watcher| {
        if let Some(watcher) = &*watcher.borrow() {
            watcher(change, Observed::new(holding));
        }
    });
}

impl Observed {
    fn new(holding: &Holding) -> Observed {
        Observed {
            generation: Arc::downgrade(holding.generation()),
            hold: Arc::downgrade(holding.hold()),
            path: holding.path().to_owned(),
        }
    }

    /// Which lock this is a hold of, and what it lets others have.
    pub fn lock(&self) -> (&str, Mode) {
        let (folder, child) = self.path.rsplit_once('/').unwrap_or(("", &self.path));
        match name::parse(child).map(|name| name.kind) {
            Some(Kind::Lock | Kind::Write) => (folder, Mode::Exclusive),
            Some(Kind::Read) => (folder, Mode::Shared),
            Some(Kind::Latch) => (folder, Mode::Leader),
            None if !name::lease_id(child).is_empty() => (folder, Mode::Permit),
            None => (&self.path, Mode::Name),
        }
    }

    /// Whether both are the same hold.
    pub fn is_same(&self, other: &Observed) -> bool {
        Weak::ptr_eq(&self.hold, &other.hold)
    }

    /// The session that it is held in; `None` once nobody holds it any more.
    pub fn session_id(&self) -> Option<i64> {
        self.generation.upgrade()?.session_id()
    }

    /// Whether `is_held` of its guards would be true if the process read this time on its boot-time clock now.
    pub fn is_held_at(&self, boot_time: Duration) -> bool {
        let (Some(generation), Some(hold)) = (self.generation.upgrade(), self.hold.upgrade()) else {
            return false;
        };
        generation.lease.would_stand(&hold, BootTime::default() + boot_time)
    }
}
