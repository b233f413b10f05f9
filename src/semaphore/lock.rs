//! A semaphore as this process sees it: its threads' way through the mutex to the leases.

use std::sync::Arc;
use std::time::Duration;

use crate::error::{Cause, Error, Result};
use crate::guard::{Held, Owner};
use crate::lane::{Ask, Lane, Tenure};
use crate::limit::Limit;
use crate::local::registry::Interned;
use crate::queue::leases::{self, Count, Leases, Want};
use crate::queue::name::Kind;
use crate::queue::{Call, Contender, Holding, Mode, Queue, Release, Stop};
use crate::session::{SessionState, ZkSession};
use crate::settings::Settings;
use crate::world::Instant;
use zk_wire::path;

/// One user's semaphore: the shared one, and what is this user's own.
pub(crate) struct Lock {
    settings: Settings,
    common: Arc<Interned<Common>>,
}

/// What all semaphores of one path on one session share.
struct Common {
    /// To the mutex, which its holder lets go when it has its leases.
    lane: Lane,
    leases: Leases,
}

impl Lock {
    /// `is_fixed`: it takes no other number than it was told.
    pub(super) fn new(settings: Settings, what: &'static str, told: u32, is_fixed: bool) -> Result<Self> {
        let common = settings.share(what, |settings| {
            let dir = settings.dir();
            let mutex = Queue::new(path::join(&dir, "locks"), settings.layout, settings.acl.clone());
            let count = Arc::new(Count::new(dir.clone(), settings.acl.clone(), told, is_fixed));
            // A number that nobody may change need not outlive its users.
            let mutex = if is_fixed { mutex } else { mutex.below(count.clone()) };
            Common { lane: Lane::new(mutex), leases: Leases::new(&dir, settings.acl.clone(), count) }
        })?;
        settings.agree(what, &common.lane.queue)?;
        Ok(Lock { settings, common })
    }

    /// Sees to it that the node says the number of permits that we were told. A connection that breaks meanwhile comes back in time.
    pub(super) fn agree(&self, told: u32) -> Result<()> {
        let limit = Limit::after(self.settings.session.timeout() / 2);
        let theirs = self.common.leases.permits(self.settings.session.core(), &limit)?;
        // 0 is a pause, which whoever comes meanwhile waits out.
        if theirs == told || theirs == 0 {
            return Ok(());
        }
        Err(Error::InconsistentLeases { path: self.settings.path.clone(), ours: told, theirs })
    }

    pub(crate) fn session(&self) -> &ZkSession {
        &self.settings.session
    }

    pub(super) fn path(&self) -> &str {
        &self.settings.path
    }

    /// All of `number` leases, or none: somebody else is ahead, or has them.
    pub(crate) fn acquire(&self, number: u32, mode: Mode, limit: Limit<'_>) -> Result<Option<Vec<Held>>> {
        if limit.is_cancelled() {
            return Err(Error::Cancelled { path: self.settings.path.clone() });
        }
        let limit =
            if mode == Mode::Try { limit.or_at(Instant::now() + self.settings.patience()) } else { limit };
        self.check(number, &limit)?;
        let call = Call::new(self.settings.session.core(), self.common.leases.count.path(), limit, false);
        let want = Want { call: &call, number, mode, data: &self.settings.data };
        let mut slice = self.settings.patience() / 2;
        loop {
            if mode == Mode::Try && self.common.leases.is_full(&want)? {
                return Ok(None);
            }
            // Who only tries is not sent away by those who pass through the mutex while permits are free, and does not wait for one
            // who stays there because they are not: it looks again, ever less often.
            let patient = mode == Mode::Wait;
            let passage = match self.enter(if patient { limit } else { limit.or_at(Instant::now() + slice) })
            {
                Ok(Some(passage)) => passage,
                Ok(None) if patient || limit.is_past() => return Ok(None),
                Ok(None) => {
                    call.is_contended.set(true); // somebody ahead was shown: that is contention too
                    slice *= 2;
                    continue;
                }
                Err(Error::Unavailable { cause: Cause::Deadline, .. }) if !patient && !limit.is_past() => {
                    slice *= 2;
                    continue;
                }
                // As in the queue: it was shown, and an outage is not what kept us since.
                Err(Error::Unavailable { cause: Cause::Deadline, .. })
                    if call.is_contended.get()
                        && self.settings.session.state() == SessionState::Connected =>
                {
                    return Ok(None);
                }
                Err(e) => return Err(e),
            };
            let lane = &self.common.lane;
            match self.common.leases.take(&want, &passage.tenure.holding, &lane.losses) {
                Ok(leases) => {
                    drop(passage);
                    return Ok(Some(leases.into_iter().map(|lease| self.held(lease)).collect()));
                }
                Err(Stop::Busy) => return Ok(None),
                Err(Stop::Fail(e)) => return Err(e),
                Err(Stop::Again | Stop::Anew) => {}
            }
        }
    }

    /// One lease.
    pub(crate) fn acquire_one(&self, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>> {
        Ok(self.acquire(1, mode, limit)?.and_then(|mut leases| leases.pop()))
    }

    /// Without a deadline they are got, or an error: somebody else ahead ends no wait.
    pub(super) fn forever(&self, number: u32, limit: Limit<'_>) -> Result<Vec<Held>> {
        loop {
            if let Some(leases) = self.acquire(number, Mode::Wait, limit)? {
                return Ok(leases);
            }
        }
    }

    pub(super) fn one_forever(&self, limit: Limit<'_>) -> Result<Held> {
        loop {
            if let Some(held) = self.acquire_one(Mode::Wait, limit)? {
                return Ok(held);
            }
        }
    }

    pub(super) fn at_once(&self, number: u32) -> Result<Option<Vec<Held>>> {
        self.acquire(number, Mode::Try, Limit::NONE)
    }

    pub(super) fn one_at_once(&self) -> Result<Option<Held>> {
        self.acquire_one(Mode::Try, Limit::NONE)
    }

    /// More than there are could wait for ever. A single one may: there may be none for a while.
    fn check(&self, number: u32, limit: &Limit<'_>) -> Result<()> {
        if number == 0 {
            let reason = "0 permits cannot be held".to_owned();
            return Err(Error::InvalidConfig { what: "number of permits", reason });
        }
        if number == 1 {
            return Ok(());
        }
        // It may have been changed since we looked.
        let permits = self.common.leases.permits(self.settings.session.core(), limit)?;
        if number > permits {
            return Err(leases::too_many(&self.settings.path, number, permits));
        }
        Ok(())
    }

    /// The mutex, for one who wants leases.
    fn enter(&self, limit: Limit<'_>) -> Result<Option<Passage<'_>>> {
        let ask = Ask {
            session: &self.settings.session,
            path: &self.settings.path,
            kind: Kind::Lock,
            mode: Mode::Wait,
            limit,
            data: &self.settings.data,
            // Whoever has the mutex here says nothing of who has the leases.
            is_held_here: &|| false,
        };
        let tenure = self.common.lane.hold(&ask).map_err(|e| self.of_ours(e))?;
        Ok(tenure.map(|tenure| Passage { lock: self, tenure }))
    }

    /// What the mutex says of itself and means of the semaphore.
    fn of_ours(&self, e: Error) -> Error {
        let path = self.settings.path.clone();
        match e {
            Error::Unavailable { op, cause, .. } => Error::Unavailable { op, path, cause },
            Error::Cancelled { .. } => Error::Cancelled { path },
            Error::Closed { op, .. } => Error::Closed { op, path },
            e => e,
        }
    }

    fn held(&self, holding: Holding) -> Held {
        let (session, common) = (self.settings.session.clone(), self.common.clone());
        Held::new(Arc::new(Lease { session, _common: common, holding }))
    }

    /// The number of permits at the server.
    pub(super) fn permits(&self) -> Result<u32> {
        self.common.leases.permits(self.settings.session.core(), &Limit::after(self.settings.patience()))
    }

    /// The number of permits as it was seen last.
    pub(super) fn known_permits(&self) -> u32 {
        self.common.leases.count.known()
    }

    pub(super) fn set_permits(&self, permits: u32) -> Result<()> {
        let limit = Limit::after(self.settings.patience());
        if self.common.leases.set_permits(self.settings.session.core(), permits, &limit)? {
            return Ok(());
        }
        let reason =
            format!("the data of {:?} is something else, which is left as it is", self.settings.path);
        Err(Error::InvalidConfig { what: "number of permits", reason })
    }

    /// The leases that stand.
    pub(super) fn holders(&self) -> Result<Vec<Contender>> {
        let limit = Limit::after(self.settings.patience());
        Ok(below("leases", self.common.leases.contenders(self.settings.session.core(), &limit)?))
    }

    /// Who is at the mutex.
    pub(super) fn waiting(&self) -> Result<Vec<Contender>> {
        let limit = Limit::after(self.settings.patience());
        Ok(below("locks", self.common.lane.queue.contenders(self.settings.session.core(), &limit)?))
    }
}

/// Contenders whose nodes are not right below the semaphore's.
fn below(dir: &str, mut all: Vec<Contender>) -> Vec<Contender> {
    all.iter_mut().for_each(|contender| contender.name = format!("{dir}/{}", contender.name));
    all
}

/// The mutex, held. It goes on at the end, whatever the end is.
struct Passage<'a> {
    lock: &'a Lock,
    tenure: Arc<Tenure>,
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let Lock { settings, common } = self.lock;
        // That it was lost concerns nobody any more.
        let _ = common.lane.release(&self.tenure, (settings.hand_over, Duration::ZERO), false);
    }
}

/// What a permit keeps hold of: no thread's, and of use without the semaphore.
struct Lease {
    /// A permit keeps its session open, and other recipes off its path.
    session: ZkSession,
    _common: Arc<Interned<Common>>,
    holding: Holding,
}

impl Owner for Lease {
    fn holding(&self) -> &Holding {
        &self.holding
    }

    fn path(&self) -> &str {
        self.session.core().shown(self.holding.path())
    }

    fn release(&self, wait: bool) -> Release {
        self.holding.begin_release(wait)
    }
}
