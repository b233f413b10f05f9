//! A mutex as this process sees it: the holds of its threads, and their way to the queue at the
//! server.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::local::lock::{LocalHold, LocalLock};
use crate::local::reentry::{Nested, Reentry};
use crate::local::registry::Interned;
use crate::local::self_deadlock::SelfDeadlockDetector;
use crate::local::turn::Ask;
use crate::queue::name::Kind;
use crate::queue::{HeldNode, Queue, Release};
use crate::recipes::calls::{Acquire, InQueue};
use crate::recipes::guard::{Held, Hold};
use crate::recipes::settings::Settings;
use crate::session::core::Core;
use crate::stats::{HoldRecord, LockRecord};
use crate::world::this_thread;
use crate::world::thread::ThreadId;

/// One `ZkMutex`: the shared lock, and the settings of this user.
pub(crate) struct MutexHandle {
    // `shared` is dropped first. It may have a kept hold, which is released then. If the session in
    // `settings` were closed before that, the kept hold would be logged as a lost lock.
    shared: Arc<Interned<SharedMutex>>,
    pub(super) settings: Settings,
}

/// What all `ZkMutex`es of one path on one session share.
struct SharedMutex {
    local: LocalLock,
    reentry: Reentry<MutexHold>,
    self_deadlock: SelfDeadlockDetector,
    record: Arc<LockRecord>,
}

impl MutexHandle {
    pub(super) fn new(settings: Settings) -> Result<Self> {
        let shared = settings.share("mutex", |settings| SharedMutex {
            local: LocalLock::new(settings.queue()),
            reentry: Reentry::new(),
            self_deadlock: settings.self_deadlock(),
            record: settings.record("mutex"),
        })?;
        settings.agree("mutex", &shared.local.queue)?;
        Ok(MutexHandle { settings, shared })
    }

    /// Gives up this thread's guards on a lost hold; false if there are none.
    pub(super) fn clear_lost(&self) -> bool {
        let (shared, thread) = (&self.shared, this_thread());
        let Some(hold) = shared.reentry.hold_of(thread) else { return false };
        if hold.local_hold.node.loss().is_none() {
            return false;
        }
        shared.reentry.give_up(&hold);
        shared.self_deadlock.released(thread);
        // The delete goes on in the background; no caller waits for its outcome.
        let _ = shared.local.release(&hold.local_hold, (Duration::ZERO, Duration::ZERO), false);
        true
    }

    pub(super) fn is_owned_by(&self, thread: ThreadId) -> bool {
        self.shared.reentry.hold_of(thread).is_some_and(|hold| hold.local_hold.node.is_held())
    }

    pub(super) fn describe(&self) -> &'static str {
        self.shared.local.describe()
    }
}

impl InQueue for MutexHandle {
    fn queue(&self) -> (&Queue, &Core) {
        (&self.shared.local.queue, self.settings.session.core())
    }
}

impl Acquire for Arc<MutexHandle> {
    fn kind(&self) -> &'static str {
        "mutex"
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn record(&self) -> &Arc<LockRecord> {
        &self.shared.record
    }

    #[inline]
    fn again(&self) -> Option<Held> {
        let hold = self.shared.reentry.hold_of(this_thread())?;
        if !hold.local_hold.node.is_held() {
            return None;
        }
        hold.nest();
        Some(Held::new(hold))
    }

    fn take(&self, ask: Ask<'_>) -> Result<Option<Held>> {
        let (shared, thread) = (&self.shared, this_thread());
        // If the thread has a hold here, the hold is lost: otherwise `again` would have used it. A
        // loss is final.
        if let Some(hold) = shared.reentry.hold_of(thread) {
            self.settings.check(&hold.local_hold.node)?;
        }
        let is_held_here = || shared.reentry.any(|hold| hold.local_hold.node.is_held());
        let request = self.settings.request(ask, &shared.self_deadlock, thread, &is_held_here)?;
        let Some(local_hold) = shared.local.hold(&request, Kind::Lock)? else { return Ok(None) };
        if local_hold.node.hand_overs() > 0 {
            ask.wait.handed_over();
        }
        let record = ask.wait.acquired(&local_hold.node, &[]);
        let hold =
            shared.reentry.insert(thread, MutexHold { lock: self.clone(), local_hold, record });
        shared.self_deadlock.holds(thread);
        Ok(Some(Held::new(hold)))
    }

    fn has_guards(&self, thread: ThreadId) -> Result<bool> {
        let hold = self.shared.reentry.hold_of(thread);
        hold.iter().try_for_each(|hold| self.settings.check(&hold.local_hold.node))?;
        Ok(hold.is_some() || self.shared.self_deadlock.is_held_by(thread))
    }
}

/// The hold that the guards of one thread share.
struct MutexHold {
    // `local_hold` is dropped first: if `lock` is the last handle, the keeper's reference to a kept
    // hold must be the last one when `lock` goes.
    local_hold: Arc<LocalHold>,
    lock: Arc<MutexHandle>,
    record: HoldRecord,
}

impl Hold for Nested<MutexHold> {
    fn node(&self) -> &HeldNode {
        &self.local_hold.node
    }

    fn path(&self) -> &str {
        self.lock.settings.shown(self.local_hold.node.path())
    }

    fn count(&self) -> usize {
        self.lock.shared.reentry.count(self.thread())
    }

    fn release(&self, wait: bool) -> Release {
        let MutexHandle { settings, shared } = &*self.lock;
        if !shared.reentry.leave(self) {
            return Release::of_guard_only(&self.local_hold.node, wait);
        }
        shared.self_deadlock.released(self.thread());
        self.record.released(&self.local_hold.node);
        shared.local.release(&self.local_hold, (settings.hand_over, settings.keep), wait)
    }

    fn persist(&self) -> Result<String> {
        let MutexHandle { settings, shared } = &*self.lock;
        if self.count() > 1 {
            let reason = "this thread has other guards on it: drop them first".to_owned();
            return Err(Error::InvalidConfig { what: "persistent lock", reason });
        }
        let limit = Limit::after(settings.operation_timeout());
        let path = shared.local.queue.persist(
            settings.session.core(),
            &self.local_hold.node,
            &settings.data,
            &limit,
        )?;
        if shared.reentry.leave(self) {
            shared.self_deadlock.released(self.thread());
            self.record.released(&self.local_hold.node);
            // The persistent node holds the lock now, so the hold is not handed over. The outcome
            // of the delete of our own node makes no difference to that.
            let _ = shared.local.release(&self.local_hold, (Duration::ZERO, Duration::ZERO), false);
        }
        Ok(settings.shown(&path).to_owned())
    }
}
