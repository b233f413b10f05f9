//! A mutex as this process sees it: its threads' holds, and the lane to the queue.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::guard::{Held, Owner};
use crate::lane::{Ask, Lane, Tenure};
use crate::limit::Limit;
use crate::local::reentry::{Nested, Reentry};
use crate::local::registry::Interned;
use crate::local::witness::Witness;
use crate::queue::name::Kind;
use crate::queue::{Contender, Holding, Mode, Release};
use crate::session::ZkSession;
use crate::settings::Settings;
use crate::wait::{Wait, until_got};
use crate::world::this_thread;
use crate::world::thread::ThreadId;

/// One `ZkMutex`: the shared lock, and what is this user's own.
pub(crate) struct Lock {
    pub(super) settings: Settings,
    common: Arc<Interned<Common>>,
}

/// What all `ZkMutex` of one path on one session share.
struct Common {
    lane: Lane,
    reentry: Reentry<Hand>,
    witness: Witness,
}

impl Lock {
    pub(super) fn new(settings: Settings) -> Result<Self> {
        let common = settings.share("mutex", |settings| Common {
            lane: Lane::new(settings.queue()),
            reentry: Reentry::new(),
            witness: settings.witness(),
        })?;
        settings.agree("mutex", &common.lane.queue)?;
        Ok(Lock { settings, common })
    }

    pub(crate) fn session(&self) -> &ZkSession {
        &self.settings.session
    }

    pub(super) fn path(&self) -> &str {
        &self.settings.path
    }

    /// Another guard for a thread that holds the lock; `None` if it does not, or has lost it.
    #[inline]
    fn again(&self) -> Option<Held> {
        let hand = self.common.reentry.hold_of(this_thread())?;
        if !hand.tenure.holding.is_held() {
            return None;
        }
        hand.nest();
        Some(Held::new(hand))
    }

    /// A thread that holds the lock already needs no limit: most limits take a clock.
    #[inline]
    pub(super) fn lock(self: &Arc<Self>) -> Result<Held> {
        match self.again() {
            Some(held) => Ok(held),
            None => until_got(|| self.acquire(Mode::Wait, Limit::NONE)),
        }
    }

    #[inline]
    pub(super) fn lock_with(self: &Arc<Self>, wait: &Wait) -> Result<Option<Held>> {
        match self.again() {
            Some(held) => Ok(Some(held)),
            None => {
                wait.acquire(|| self.settings.patience(), |mode, limit| self.acquire(mode, limit))
            }
        }
    }

    /// The lock for a thread that does not hold it.
    pub(crate) fn acquire(self: &Arc<Self>, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>> {
        let (common, thread) = (&self.common, this_thread());
        // A hold that is there now is lost, or `again` would have found that it stands; and a loss
        // is final.
        if let Some(hand) = common.reentry.hold_of(thread) {
            self.settings.check(&hand.tenure.holding)?;
        }
        if limit.is_cancelled() {
            return Err(Error::Cancelled { path: self.settings.path.clone() });
        }
        common.witness.warn(thread, &self.settings.path);
        let ask = Ask {
            session: &self.settings.session,
            path: &self.settings.path,
            kind: Kind::Lock,
            mode,
            limit,
            data: &self.settings.data,
            is_held_here: &|| common.reentry.any(|hand| hand.tenure.holding.is_held()),
        };
        let Some(tenure) = common.lane.hold(&ask)? else { return Ok(None) };
        let hand = common.reentry.insert(thread, Hand { lock: self.clone(), tenure });
        common.witness.holds(thread);
        Ok(Some(Held::new(hand)))
    }

    /// Gives up this thread's guards on a lost hold; false if there are none.
    pub(super) fn clear_lost(&self) -> bool {
        let (common, thread) = (&self.common, this_thread());
        let Some(hand) = common.reentry.hold_of(thread) else { return false };
        if hand.tenure.holding.loss().is_none() {
            return false;
        }
        common.reentry.give_up(&hand);
        common.witness.released(thread);
        // Its node goes now; nobody waits for that.
        let _ = common.lane.release(&hand.tenure, (Duration::ZERO, Duration::ZERO), false);
        true
    }

    pub(super) fn is_owned_by(&self, thread: ThreadId) -> bool {
        self.common.reentry.hold_of(thread).is_some_and(|hand| hand.tenure.holding.is_held())
    }

    /// Whether it has guards on the lock, through whatever session; an error if they are of a lost
    /// hold.
    pub(crate) fn has_guards(&self, thread: ThreadId) -> Result<bool> {
        let hand = self.common.reentry.hold_of(thread);
        hand.iter().try_for_each(|hand| self.settings.check(&hand.tenure.holding))?;
        Ok(hand.is_some() || self.common.witness.is_held_by(thread))
    }

    pub(super) fn contenders(&self) -> Result<Vec<Contender>> {
        self.common
            .lane
            .queue
            .contenders(self.settings.session.core(), &Limit::after(self.settings.patience()))
    }

    pub(super) fn holders(&self) -> Result<Vec<Contender>> {
        let limit = Limit::after(self.settings.patience());
        self.common.lane.queue.holders(self.settings.session.core(), &limit)
    }

    /// Asks a contender to let go; gives what its node's data was.
    pub(super) fn revoke(&self, contender: &Contender) -> Result<Option<Vec<u8>>> {
        self.common.lane.queue.revoke(
            self.settings.session.core(),
            &contender.name,
            self.settings.patience(),
        )
    }

    /// Ends a lock that outlives sessions.
    pub(super) fn release_persistent(&self, name: &str) -> Result<bool> {
        self.common.lane.queue.release_persistent(
            self.settings.session.core(),
            name,
            self.settings.patience(),
        )
    }

    pub(super) fn describe(&self) -> &'static str {
        self.common.lane.describe()
    }
}

/// What the guards of one thread keep hold of.
struct Hand {
    lock: Arc<Lock>,
    tenure: Arc<Tenure>,
}

impl Owner for Nested<Hand> {
    fn holding(&self) -> &Holding {
        &self.tenure.holding
    }

    fn path(&self) -> &str {
        self.lock.settings.shown(self.tenure.holding.path())
    }

    fn count(&self) -> usize {
        self.lock.common.reentry.count(self.thread())
    }

    fn release(&self, wait: bool) -> Release {
        let Lock { settings, common } = &*self.lock;
        if !common.reentry.leave(self) {
            return Release::of_guard_only(&self.tenure.holding, wait);
        }
        common.witness.released(self.thread());
        common.lane.release(&self.tenure, (settings.hand_over, settings.keep), wait)
    }

    fn persist(&self) -> Result<String> {
        let Lock { settings, common } = &*self.lock;
        if self.count() > 1 {
            let reason = "this thread has other guards on it: drop them first".to_owned();
            return Err(Error::InvalidConfig { what: "persistent lock", reason });
        }
        let limit = Limit::after(settings.patience());
        let path = common.lane.queue.persist(
            settings.session.core(),
            &self.tenure.holding,
            &settings.data,
            &limit,
        )?;
        if common.reentry.leave(self) {
            common.witness.released(self.thread());
            // The lock is not ours to hand over any more. What comes of the node that was ours
            // makes no difference to it.
            let _ = common.lane.release(&self.tenure, (Duration::ZERO, Duration::ZERO), false);
        }
        Ok(settings.shown(&path).to_owned())
    }
}
