//! A semaphore as this process sees it: the way of its threads through the mutex to the permits.

use std::cell::Cell;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::permits::{self, Count, Permits};
use crate::error::{Cause, Error, Result};
use crate::local::lock::LocalLock;
use crate::local::registry::Shared;
use crate::queue::Settings;
use crate::queue::memory::Fact;
use crate::queue::name::Kind;
use crate::queue::request::Mode;
use crate::queue::snapshot::{Folder, snapshot};
use crate::queue::tally::{HoldTally, LockStats, LockTally};
use crate::queue::{Contender, EndBy, HeldNode, Queue, Release, Request, Stop};
use crate::recipes::calls::Acquire;
use crate::recipes::guard::{Held, Hold};
use crate::recipes::wait::Wait;
use zk_session::Session;
use zk_session::unstable::Limit;
use zk_session::world::{Instant, Mutex};
use zk_wire::path;

/// One user's semaphore: the shared one, and the settings of this user.
pub(crate) struct SemaphoreHandle {
    pub(super) settings: Settings,
    kind: &'static str,
    shared: Shared<SharedSemaphore>,
}

/// What all semaphores of one path on one session share.
struct SharedSemaphore {
    /// The mutex. Its holder releases it when it has its permits.
    local: LocalLock,
    permits: Permits,
    /// A semaphore mutex: the hold of this process, if there is one.
    hold: Mutex<Weak<PermitHold>>,
    tally: Arc<LockTally>,
}

impl SemaphoreHandle {
    /// `is_fixed`: it takes no other number than the given one.
    pub(super) fn new(settings: Settings, kind: &'static str, is_fixed: bool) -> Result<Self> {
        let shared = settings.share(kind, |settings| {
            let Settings { layout, acl, permits, memory, .. } = settings;
            let (dir, memory) = (settings.dir(), || memory.clone());
            let mutex = Queue::new(path::join(&dir, "locks"), *layout, acl.clone(), memory());
            let count = Count::new(dir.clone(), acl.clone(), *permits, is_fixed, memory());
            let count = Arc::new(count);
            // A number that nobody may change need not outlive its users.
            let mutex = if is_fixed { mutex } else { mutex.below(Count::maker(&count)) };
            SharedSemaphore {
                local: LocalLock::passed(mutex),
                permits: Permits::new(&dir, settings.acl.clone(), count),
                hold: Mutex::default(),
                tally: settings.tally(if is_fixed { "semaphore_mutex" } else { "semaphore" }),
            }
        })?;
        settings.agree(&shared.local.queue)?;
        Ok(SemaphoreHandle { settings, kind, shared })
    }

    /// The number at the server; if there is none, this user's is written. The first time in a
    /// session, a number with which another program has made the node must be this user's; from
    /// then on the server's counts. A number that somebody has set since always counts.
    fn number(&self, op: &'static str, limit: &Limit<'_>) -> Result<u32> {
        let ours = self.settings.permits;
        let number = self.shared.permits.number(op, self.settings.core(), ours, limit)?;
        let theirs = number.permits;
        // 0 is a pause: every client waits until the number is raised.
        if theirs != ours && theirs != 0 && !number.is_set && !self.has_agreed() {
            let path = self.settings.path.clone();
            return Err(Error::InconsistentPermits { path, ours, theirs });
        }
        self.agrees();
        Ok(theirs)
    }

    /// Whether a semaphore of this session with this user's number may go by the server's.
    fn has_agreed(&self) -> bool {
        let count = &self.shared.permits.count;
        // A number that is fixed is compared at each count.
        let agreed = Fact::Agreed(self.settings.permits);
        count.is_fixed() || self.settings.memory.knows(count.path(), agreed)
    }

    fn agrees(&self) {
        let agreed = Fact::Agreed(self.settings.permits);
        self.settings.memory.is_new(self.shared.permits.count.path(), agreed);
    }

    /// Takes all of `number` permits or none. `None`: somebody else was ahead, or has them.
    fn take(&self, number: u32, request: &Request<'_>) -> Result<Option<Held>> {
        request.check_cancelled()?;
        self.check(number, request)?;
        let (local, permits) = (&self.shared.local, &self.shared.permits);
        let limit = &request.limit();
        let mut slice = self.settings.operation_timeout() / 2;
        loop {
            // Before the mutex is taken: its node might stay as well.
            let generation = self.settings.core().generation();
            match generation.map_or(Ok(()), |of| request.may_delete_in(&of, permits.dir())) {
                Ok(()) | Err(Stop::Again | Stop::Anew) => {}
                Err(Stop::Busy) => return Ok(None),
                Err(Stop::Fail(e)) => return Err(e),
            }
            if request.mode == Mode::Try && permits.is_full(request, number)? {
                return Ok(None);
            }
            // A caller that only tries must not fail because another caller passes through the
            // mutex while permits are free; and it must not wait for one that stays there because
            // none are free. So it waits for a slice of time, counts again, and makes each slice
            // longer.
            let may_wait = request.mode == Mode::Wait;
            let until = (!may_wait).then(|| Instant::now() + slice);
            let passage = match self.enter(&request.passage(until)) {
                Ok(Some(passage)) => passage,
                Ok(None) if may_wait || limit.is_past() => return Ok(None),
                Ok(None) => {
                    slice *= 2;
                    continue;
                }
                Err(Error::Unavailable { cause: Cause::Deadline, .. })
                    if !may_wait && !limit.is_past() =>
                {
                    slice *= 2;
                    continue;
                }
                Err(e) => return Err(e),
            };
            // Behind the wait for the mutex the time of the policy begins anew.
            request.progress();
            let mutex = &passage.mutex;
            let on_taken = || local.found_taken(mutex);
            match permits.take(request, number, mutex, &local.losses, &on_taken) {
                Ok(nodes) => {
                    drop(passage);
                    return Ok(self.held(nodes, request));
                }
                Err(Stop::Busy) => {
                    passage.is_given_up.set(true);
                    return Ok(None);
                }
                Err(Stop::Fail(e)) => {
                    passage.is_given_up.set(e.is_giving_up());
                    return Err(e);
                }
                Err(Stop::Again | Stop::Anew) => {}
            }
        }
    }

    /// A request for more permits than there are could wait for ever: that is an error. A request
    /// for one may wait: there may be none for a while. For one permit the number needs no read
    /// once it was compared, unless the semaphore was paused when it was seen last: if the call ends
    /// without a permit, its error says that of a moment of the call (`missed`).
    fn check(&self, number: u32, request: &Request<'_>) -> Result<()> {
        if number == 0 {
            let reason = "0 cannot be held; ask for 1 at least".to_owned();
            return Err(Error::InvalidConfig { what: "permits", reason });
        }
        if number == 1 && self.has_agreed() && self.known_permits() > 0 {
            return Ok(());
        }
        if request.limit().is_past() {
            // Nothing is known of others yet, so this is an error.
            return request.end_of_time();
        }
        let permits = self.number(request.call.op, &request.limit())?;
        if number > 1 && number > permits {
            return Err(permits::too_many(&self.settings.path, number, permits));
        }
        Ok(())
    }

    /// Takes the mutex, for a caller that wants permits.
    fn enter(&self, request: &Request<'_>) -> Result<Option<Passage<'_>>> {
        let mutex = self.shared.local.hold(request, Kind::Lock)?;
        Ok(mutex.map(|mutex| Passage { lock: self, mutex, is_given_up: Cell::new(false) }))
    }

    /// One hold of permits that were taken together. `None` for no permits, which nobody requests.
    fn held(&self, nodes: Vec<HeldNode>, request: &Request<'_>) -> Option<Held> {
        let (session, shared) = (self.settings.session.clone(), self.shared.clone());
        nodes.iter().for_each(|node| node.bind(&self.settings.bounds));
        let mut nodes = nodes.into_iter();
        let first = nodes.next()?;
        let others: Vec<HeldNode> = nodes.collect();
        let tally = request.tally.acquired(&first, &others);
        let hold = Arc::new(PermitHold { session, _common: shared, first, others, tally });
        if self.shared.permits.count.is_fixed() {
            *self.shared.hold.lock() = Arc::downgrade(&hold);
        }
        Some(Held::new(hold))
    }

    pub(super) fn stats(&self) -> LockStats {
        self.shared.tally.stats()
    }

    /// The number of permits at the server.
    pub(super) fn permits(&self, wait: &Wait) -> Result<u32> {
        self.number("permits", &wait.question(self.settings.core()).whole)
    }

    /// The number of permits as it was seen last.
    pub(super) fn known_permits(&self) -> u32 {
        self.shared.permits.count.known()
    }

    pub(super) fn set_permits(&self, permits: u32) -> Result<()> {
        self.settings.process().check("set_permits", &self.settings.path)?;
        let limit = Limit::after(self.settings.operation_timeout());
        // A caller that sets the number knows it, whatever number it was given before. This is
        // noted before the request: if its answer is lost, the number may have changed, and this
        // user must go on with the new one.
        self.agrees();
        if self.shared.permits.set_number(self.settings.core(), permits, &limit)? {
            return Ok(());
        }
        let reason = format!(
            "the data of {:?} is no number of permits and is left as it is; see who has written it, or give the semaphore another path",
            self.settings.path
        );
        Err(Error::InvalidConfig { what: "permits", reason })
    }

    /// The holders of permits.
    pub(super) fn holders(&self, wait: &Wait) -> Result<Vec<Contender>> {
        let (core, permits) = (self.settings.core(), &self.shared.permits);
        let folder = Folder { dir: permits.dir(), choose: &all };
        let (path, of) = (permits.count.path(), wait.question(core));
        let nodes = snapshot("holders", core, path, &of, &[folder])?.pop();
        Ok(permits.holders(core, nodes.unwrap_or_default()))
    }

    /// The holders of permits, and behind them the contenders for the mutex.
    pub(super) fn contenders(&self, wait: &Wait) -> Result<Vec<Contender>> {
        let (core, permits) = (self.settings.core(), &self.shared.permits);
        let queue = &self.shared.local.queue;
        let waiting = |children: &[&str]| queue.choose(children, |_| ());
        let folders = [
            Folder { dir: permits.dir(), choose: &all },
            Folder { dir: queue.dir(), choose: &waiting },
        ];
        let (path, of) = (permits.count.path(), wait.question(core));
        let mut nodes = snapshot("contenders", core, path, &of, &folders)?.into_iter();
        let mut all = permits.holders(core, nodes.next().unwrap_or_default());
        all.extend(queue.ordered(core, nodes.next().unwrap_or_default(), |_| ()));
        Ok(all)
    }
}

/// A number of permits, to be taken together.
#[derive(Clone)]
pub(crate) struct ManyPermits {
    pub(super) lock: Arc<SemaphoreHandle>,
    pub(super) number: u32,
}

impl Acquire for ManyPermits {
    fn kind(&self) -> &'static str {
        self.lock.kind
    }

    fn op(&self) -> &'static str {
        // A semaphore of a fixed number is a mutex.
        if self.lock.shared.permits.count.is_fixed() { "lock" } else { "acquire" }
    }

    fn settings(&self) -> &Settings {
        &self.lock.settings
    }

    fn tally(&self) -> &Arc<LockTally> {
        &self.lock.shared.tally
    }

    /// Where there is one permit, a hold of this process shows that it is taken.
    fn is_excluded_here(&self) -> bool {
        let hold = self.lock.shared.hold.lock().upgrade();
        hold.is_some_and(|hold| hold.first.is_held())
    }

    fn take(&self, request: &Request<'_>) -> Result<Option<Held>> {
        self.lock.take(self.number, request)
    }

    fn missed(&self, mode: Mode) -> Error {
        let path = self.lock.settings.path.clone();
        if self.lock.known_permits() == 0 { Error::Paused { path } } else { mode.missed(path) }
    }
}

/// Any child of the permits' folder counts as a permit.
fn all(children: &[&str]) -> Vec<String> {
    children.iter().map(|child| (*child).to_owned()).collect()
}

/// The held mutex. Its drop releases it, or hands it to the next thread, however the request ended.
/// The mutex of a thread that gave up is this process's place in the queue: it goes to the next
/// thread however old it is.
struct Passage<'a> {
    lock: &'a SemaphoreHandle,
    mutex: Arc<HeldNode>,
    /// The thread ends without permits, because its time is over or it was cancelled.
    is_given_up: Cell<bool>,
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        let SemaphoreHandle { settings: Settings { hand_over, keep, .. }, shared, .. } = self.lock;
        let hand_over = if self.is_given_up.get() { Duration::MAX } else { *hand_over };
        // If the mutex was lost, that matters to no thread any more.
        let loss = self.mutex.loss();
        let _ = shared.local.release(&self.mutex, hand_over, *keep, loss, EndBy::Drop);
    }
}

/// The hold of a permit. It belongs to no thread, and outlives the semaphore object.
struct PermitHold {
    /// A permit keeps its session open, and other recipes off its path.
    session: Session,
    _common: Shared<SharedSemaphore>,
    first: HeldNode,
    others: Vec<HeldNode>,
    tally: HoldTally,
}

impl Hold for PermitHold {
    fn node(&self) -> &HeldNode {
        &self.first
    }

    fn others(&self) -> &[HeldNode] {
        &self.others
    }

    fn path(&self) -> &str {
        self.session.core().shown(self.first.path())
    }

    fn release(&self, end_by: EndBy) -> Release {
        let loss = self.tally.end(&self.first, &self.others);
        self.first.begin_release_with(&self.others, loss, end_by)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::{LossReason, ZkSemaphore, ZkSession};
    use zk_test_server::TestServer;
    use zk_test_support::until;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn the_loss_of_any_permit_is_the_loss_of_all_that_were_taken_with_it() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        for (number, lost) in [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2)] {
            let path = format!("/permits/{number}-{lost}");
            let semaphore = ZkSemaphore::new(&session, &path, 3).unwrap();
            let permit = semaphore.acquire_many(number).unwrap();
            let (signal, node) = (permit.lost(), semaphore.holders().unwrap()[lost].path.clone());
            let before = semaphore.stats();
            assert_eq!((before.held, before.lost), (1, 0), "{path}");
            session.zookeeper().requests().delete(&node, None).unwrap();
            assert_eq!(signal.wait(SOON), Some(LossReason::NodeDeleted), "{path}");
            let stats = until("the loss is counted", SOON, || {
                Some(semaphore.stats()).filter(|stats| stats.lost == 1)
            });
            assert_eq!((stats.held, stats.acquired), (0, 1), "{path}");
            assert!(!permit.is_held() && permit.check().is_err(), "{path}");
            drop(permit);
            assert_eq!(semaphore.stats(), stats, "{path}: it has ended once");
        }
    }
}
