//! A read/write lock as this process sees it: who reads, who writes, and the lane to the queue.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::cohort::Cohort;
use crate::error::{Cause, Error, Result};
use crate::guard::{Held, Owner};
use crate::lane::{Admission, Ask, Lane, Tenure, Turn};
use crate::limit::Limit;
use crate::local::reentry::{Nested, Reentry};
use crate::local::registry::Interned;
use crate::local::witness::Witness;
use crate::queue::name::Kind;
use crate::queue::{Contender, Holding, Mode, Release};
use crate::session::ZkSession;
use crate::settings::Settings;
use crate::wait::{Wait, until_got};
use crate::world::thread::ThreadId;
use crate::world::{Mutex, this_thread};

/// One `ZkRwLock`: the shared lock, and what is this user's own.
pub(crate) struct Lock {
    settings: Settings,
    common: Arc<Interned<Common>>,
}

/// What all `ZkRwLock` of one path on one session share.
struct Common {
    lane: Lane<Arc<Cohort>>,
    writes: Reentry<Writer>,
    reads: Reentry<Reader>,
    /// The readers that others may still join.
    newest: Mutex<Weak<Cohort>>,
    witness: Witness,
}

impl Lock {
    pub(super) fn new(settings: Settings) -> Result<Self> {
        let common = settings.share("read/write lock", |settings| Common {
            lane: Lane::new(settings.queue()),
            writes: Reentry::new(),
            reads: Reentry::new(),
            newest: Mutex::new(Weak::new()),
            witness: settings.witness(),
        })?;
        settings.agree("read/write lock", &common.lane.queue)?;
        Ok(Lock { settings, common })
    }

    pub(crate) fn session(&self) -> &ZkSession {
        &self.settings.session
    }

    pub(super) fn path(&self) -> &str {
        &self.settings.path
    }

    /// Another guard for a thread that reads or writes; `None` if it does not, or has lost the
    /// lock.
    #[inline]
    fn again(&self, kind: Kind) -> Option<Held> {
        let thread = this_thread();
        if kind == Kind::Read {
            let reader =
                self.common.reads.hold_of(thread).filter(|hold| hold.cohort.holding.is_held())?;
            reader.nest();
            return Some(Held::new(reader));
        }
        let writer =
            self.common.writes.hold_of(thread).filter(|hold| hold.tenure.holding.is_held())?;
        writer.nest();
        Some(Held::new(writer))
    }

    /// A thread that holds the lock already needs no limit: most limits take a clock.
    #[inline]
    pub(super) fn lock(self: &Arc<Self>, kind: Kind) -> Result<Held> {
        match self.again(kind) {
            Some(held) => Ok(held),
            None => until_got(|| self.acquire(kind, Mode::Wait, Limit::NONE)),
        }
    }

    #[inline]
    pub(super) fn lock_with(self: &Arc<Self>, kind: Kind, wait: &Wait) -> Result<Option<Held>> {
        match self.again(kind) {
            Some(held) => Ok(Some(held)),
            None => wait.acquire(
                || self.settings.patience(),
                |mode, limit| self.acquire(kind, mode, limit),
            ),
        }
    }

    /// The lock for a thread that does not hold it so.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        kind: Kind,
        mode: Mode,
        limit: Limit<'_>,
    ) -> Result<Option<Held>> {
        match kind {
            Kind::Read => self.read(mode, limit),
            Kind::Write | Kind::Lock | Kind::Latch => self.write(mode, limit),
        }
    }

    fn write(self: &Arc<Self>, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>> {
        let (common, thread) = (&self.common, this_thread());
        // A write that is there now is lost, or `again` would have found that it stands; and a loss
        // is final. The same holds in `read`.
        if let Some(writer) = common.writes.hold_of(thread) {
            self.settings.check(&writer.tenure.holding)?;
        }
        if let Some(reader) = common.reads.hold_of(thread) {
            self.settings.check(&reader.cohort.holding)?;
            return Err(Error::WouldDeadlock {
                path: self.settings.path.clone(),
                why: "this thread reads and would wait for itself: drop its read guards first",
            });
        }
        let held_here = || common.writes.any(|writer| writer.tenure.holding.is_held());
        let ask = self.ask(Kind::Write, mode, limit, &held_here, thread)?;
        let Some(tenure) = common.lane.hold(&ask)? else { return Ok(None) };
        let writer = common.writes.insert(thread, Writer { lock: self.clone(), tenure });
        common.witness.holds(thread);
        Ok(Some(Held::new(writer)))
    }

    fn read(self: &Arc<Self>, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>> {
        let (common, thread) = (&self.common, this_thread());
        if let Some(reader) = common.reads.hold_of(thread) {
            self.settings.check(&reader.cohort.holding)?;
        }
        let cohort = match common.writes.hold_of(thread) {
            Some(writer) => Some(self.read_beside(&writer.tenure, limit)?),
            None => self.read_in_turn(mode, limit, thread)?,
        };
        let Some(cohort) = cohort else { return Ok(None) };
        let reader = common.reads.insert(thread, Reader { lock: self.clone(), cohort });
        common.witness.holds(thread);
        Ok(Some(Held::new(reader)))
    }

    /// The thread that writes gets a read node of its own, in the write's place: what is left when
    /// it ends writing.
    fn read_beside(&self, tenure: &Tenure, limit: Limit<'_>) -> Result<Arc<Cohort>> {
        self.settings.check(&tenure.holding)?;
        // A request that is sent now would make a node which nobody waits for.
        let path = || self.settings.path.clone();
        if limit.is_cancelled() {
            return Err(Error::Cancelled { path: path() });
        }
        if limit.is_past() {
            return Err(Error::Unavailable { op: "lock", path: path(), cause: Cause::Deadline });
        }
        let (queue, core) = (&self.common.lane.queue, self.settings.session.core());
        let holding = queue.downgrade(core, &tenure.holding, &self.settings.data, &limit)?;
        Ok(Cohort::new(holding, tenure.holding.hand_overs()))
    }

    /// The thread joins who reads here already, or queues for a read node of its own.
    fn read_in_turn(
        &self,
        mode: Mode,
        limit: Limit<'_>,
        thread: ThreadId,
    ) -> Result<Option<Arc<Cohort>>> {
        let common = &self.common;
        let held_here = || common.writes.any(|writer| writer.tenure.holding.is_held());
        let ask = self.ask(Kind::Read, mode, limit, &held_here, thread)?;
        loop {
            let turn = match common.lane.turn(&ask)? {
                Some(Admission::Turn(turn, _)) => turn,
                Some(Admission::Share(cohort)) if cohort.holding.is_held() => {
                    return Ok(Some(cohort));
                }
                Some(Admission::Share(cohort)) => {
                    // Lost on the way here; released if we are the last.
                    cohort.leave();
                    continue;
                }
                None => return Ok(None),
            };
            let newest = common.newest.lock().upgrade();
            if let Some(cohort) = newest.filter(|cohort| self.is_open(cohort) && cohort.join()) {
                return Ok(Some(cohort));
            }
            let Some(holding) = common.lane.share(&ask, &turn)? else { return Ok(None) };
            let cohort = Cohort::new(holding, 0);
            *common.newest.lock() = Arc::downgrade(&cohort);
            self.let_in(&cohort, &turn);
            return Ok(Some(cohort));
        }
    }

    /// Whether new members may join.
    fn is_open(&self, cohort: &Cohort) -> bool {
        let holding = &cohort.holding;
        holding.is_held() && !holding.hold().is_revoked() && holding.age() < self.settings.hand_over
    }

    /// Those who wait to read, next in line, come in at once: one by one they could find the cohort
    /// gone again.
    fn let_in(&self, cohort: &Arc<Cohort>, turn: &Turn<'_, Arc<Cohort>>) {
        while self.is_open(cohort) && cohort.join() {
            if turn.share(cohort.clone()).is_err() {
                cohort.leave(); // never the last: we are in it
                return;
            }
        }
    }

    fn ask<'a>(
        &'a self,
        kind: Kind,
        mode: Mode,
        limit: Limit<'a>,
        is_held_here: &'a dyn Fn() -> bool,
        thread: ThreadId,
    ) -> Result<Ask<'a>> {
        if limit.is_cancelled() {
            return Err(Error::Cancelled { path: self.settings.path.clone() });
        }
        self.common.witness.warn(thread, &self.settings.path);
        Ok(Ask {
            session: &self.settings.session,
            path: &self.settings.path,
            kind,
            mode,
            limit,
            data: &self.settings.data,
            is_held_here,
        })
    }

    /// Gives up this thread's guards on lost holds, of either kind; false if there are none.
    pub(super) fn clear_lost(&self) -> bool {
        let (common, thread) = (&self.common, this_thread());
        let write =
            common.writes.hold_of(thread).filter(|hold| hold.tenure.holding.loss().is_some());
        let read = common.reads.hold_of(thread).filter(|hold| hold.cohort.holding.loss().is_some());
        // Their nodes go now; nobody waits for that.
        if let Some(writer) = &write {
            common.writes.give_up(writer);
            let _ = common.lane.release(&writer.tenure, (Duration::ZERO, Duration::ZERO), false);
        }
        if let Some(reader) = &read {
            common.reads.give_up(reader);
            if reader.cohort.leave() {
                let _ = reader.cohort.holding.begin_release(false);
            }
        }
        if common.writes.count(thread) == 0 && common.reads.count(thread) == 0 {
            common.witness.released(thread);
        }
        write.is_some() || read.is_some()
    }

    /// Whether it has guards on the lock, of either kind, through whatever session; an error if
    /// they are of a lost hold.
    pub(crate) fn has_guards(&self, thread: ThreadId) -> Result<bool> {
        let (reader, writer) =
            (self.common.reads.hold_of(thread), self.common.writes.hold_of(thread));
        writer.iter().try_for_each(|writer| self.settings.check(&writer.tenure.holding))?;
        reader.iter().try_for_each(|reader| self.settings.check(&reader.cohort.holding))?;
        Ok(reader.is_some() || writer.is_some() || self.common.witness.is_held_by(thread))
    }

    pub(super) fn contenders(&self) -> Result<Vec<Contender>> {
        let limit = Limit::after(self.settings.patience());
        self.common.lane.queue.contenders(self.settings.session.core(), &limit)
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

    pub(super) fn describe(&self) -> &'static str {
        if self.common.reads.any(|reader| reader.cohort.holding.is_held()) {
            "<read here>"
        } else {
            self.common.lane.describe()
        }
    }
}

/// What the write guards of one thread keep hold of.
struct Writer {
    lock: Arc<Lock>,
    tenure: Arc<Tenure>,
}

impl Owner for Nested<Writer> {
    fn holding(&self) -> &Holding {
        &self.tenure.holding
    }

    fn path(&self) -> &str {
        self.lock.settings.shown(self.tenure.holding.path())
    }

    fn count(&self) -> usize {
        self.lock.common.writes.count(self.thread())
    }

    fn release(&self, wait: bool) -> Release {
        let Lock { settings, common } = &*self.lock;
        if !common.writes.leave(self) {
            return Release::of_guard_only(&self.tenure.holding, wait);
        }
        let reads_on = common.reads.count(self.thread()) > 0;
        if !reads_on {
            common.witness.released(self.thread());
        }
        // A thread that reads on must not be joined by a writer that is handed the write node.
        let hand_over = if reads_on { Duration::ZERO } else { settings.hand_over };
        common.lane.release(&self.tenure, (hand_over, Duration::ZERO), wait)
    }
}

/// What the read guards of one thread keep hold of.
struct Reader {
    lock: Arc<Lock>,
    cohort: Arc<Cohort>,
}

impl Owner for Nested<Reader> {
    fn holding(&self) -> &Holding {
        &self.cohort.holding
    }

    fn path(&self) -> &str {
        self.lock.settings.shown(self.cohort.holding.path())
    }

    fn count(&self) -> usize {
        self.lock.common.reads.count(self.thread())
    }

    /// As when the thread's write was handed to it, if it reads in the place of that.
    fn hand_over(&self) -> u64 {
        self.cohort.fence
    }

    fn release(&self, wait: bool) -> Release {
        let common = &self.lock.common;
        if !common.reads.leave(self) {
            return Release::of_guard_only(&self.cohort.holding, wait);
        }
        if common.writes.count(self.thread()) == 0 {
            common.witness.released(self.thread());
        }
        if self.cohort.leave() {
            return self.cohort.holding.begin_release(wait);
        }
        Release::of_guard_only(&self.cohort.holding, wait)
    }
}
