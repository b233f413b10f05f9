//! A mutex as this process sees it: its threads' holds, and the lane to the queue.

use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::guard::{Held, Owner};
use crate::lane::{Ask, Lane, Tenure};
use crate::limit::Limit;
use crate::local::reentry::Reentry;
use crate::local::registry::Interned;
use crate::local::witness::Witness;
use crate::queue::name::Kind;
use crate::queue::{Contender, Holding, Mode, Release};
use crate::session::ZkSession;
use crate::settings::Settings;

/// One `ZkMutex`: the shared lock, and what is this user's own.
pub(crate) struct Lock {
    pub(super) settings: Settings,
    common: Arc<Interned<Common>>,
}

/// What all `ZkMutex` of one path on one session share.
struct Common {
    lane: Lane,
    reentry: Reentry<Tenure>,
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

    pub(crate) fn acquire(self: &Arc<Self>, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>> {
        let (common, thread) = (&self.common, std::thread::current().id());
        if let Some(tenure) = common.reentry.hold_of(thread) {
            self.settings.check(&tenure.holding)?;
            common.reentry.nest(thread);
            return Ok(Some(self.held(tenure, thread)));
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
            is_held_here: &|| common.reentry.any(|tenure| tenure.holding.is_held()),
        };
        let Some(tenure) = common.lane.hold(&ask)? else { return Ok(None) };
        common.reentry.insert(thread, tenure.clone());
        common.witness.holds(thread);
        Ok(Some(self.held(tenure, thread)))
    }

    fn held(self: &Arc<Self>, tenure: Arc<Tenure>, thread: ThreadId) -> Held {
        let (fence, path) = (tenure.holding.hand_overs(), self.settings.shown(tenure.holding.path()));
        Held::new(Arc::new(Hand { lock: self.clone(), tenure }), thread, path, fence)
    }

    /// Gives up this thread's guards on a lost hold; false if there are none.
    pub(super) fn clear_lost(&self) -> bool {
        let (common, thread) = (&self.common, std::thread::current().id());
        let Some(tenure) = common.reentry.hold_of(thread) else { return false };
        if tenure.holding.loss().is_none() {
            return false;
        }
        common.reentry.give_up(thread, &tenure);
        common.witness.released(thread);
        // Its node goes now; nobody waits for that.
        let _ = common.lane.release(&tenure, (Duration::ZERO, Duration::ZERO), false);
        true
    }

    pub(super) fn is_owned_by(&self, thread: ThreadId) -> bool {
        self.common.reentry.hold_of(thread).is_some_and(|tenure| tenure.holding.is_held())
    }

    /// Whether it has guards on the lock, through whatever session; an error if they are of a lost hold.
    pub(crate) fn has_guards(&self, thread: ThreadId) -> Result<bool> {
        let tenure = self.common.reentry.hold_of(thread);
        tenure.iter().try_for_each(|tenure| self.settings.check(&tenure.holding))?;
        Ok(tenure.is_some() || self.common.witness.is_held_by(thread))
    }

    pub(super) fn contenders(&self) -> Result<Vec<Contender>> {
        self.common
            .lane
            .queue
            .contenders(self.settings.session.core(), &Limit::after(self.settings.patience()))
    }

    /// Asks a contender to let go.
    pub(super) fn revoke(&self, contender: &Contender) -> Result<bool> {
        self.common.lane.queue.revoke(self.settings.session.core(), &contender.name, self.settings.patience())
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

/// What a guard keeps hold of.
struct Hand {
    lock: Arc<Lock>,
    tenure: Arc<Tenure>,
}

impl Owner for Hand {
    fn holding(&self) -> &Holding {
        &self.tenure.holding
    }

    fn count(&self, thread: ThreadId) -> usize {
        self.lock.common.reentry.count(thread)
    }

    fn release(&self, thread: ThreadId, wait: bool) -> Release {
        let Lock { settings, common } = &*self.lock;
        let Some(tenure) = common.reentry.leave(thread, &self.tenure) else {
            return Release::of_guard_only(&self.tenure.holding, wait);
        };
        common.witness.released(thread);
        common.lane.release(&tenure, (settings.hand_over, settings.keep), wait)
    }

    fn persist(&self, thread: ThreadId) -> Result<String> {
        let Lock { settings, common } = &*self.lock;
        if common.reentry.count(thread) > 1 {
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
        if let Some(tenure) = common.reentry.leave(thread, &self.tenure) {
            common.witness.released(thread);
            // The lock is not ours to hand over any more. What comes of the node that was ours makes no difference to it.
            let _ = common.lane.release(&tenure, (Duration::ZERO, Duration::ZERO), false);
        }
        Ok(settings.shown(&path))
    }
}
