//! A lock whose guards belong to threads, as this process sees it: which of its threads have it
//! alone and which read, and their way to the queue at the server. A [`ZkRwLock`](crate::ZkRwLock)
//! is such a lock, and so is a [`ZkMutex`](crate::ZkMutex), which nobody reads.

use std::sync::{Arc, Weak};

use crate::error::{Cause, Error, LossReason, Result};
use crate::local::lock::LocalLock;
use crate::local::lock::{Admission, Turn};
use crate::local::queue::Wants;
use crate::local::reentry::{Guards, Reentry};
use crate::local::registry::SelfDeadlockDetector;
use crate::local::registry::Shared;
use crate::queue::HoldBounds;
use crate::queue::Settings;
use crate::queue::name::Kind;
use crate::queue::tally::{HoldTally, LockTally};
use crate::queue::{Callbacks, EndBy, HeldNode, Queue, Release, Request};
use crate::recipes::calls::{Acquire, InQueue};
use crate::recipes::guard::{Held, Hold};
use crate::recipes::settings::FORKED;
use zk_session::SessionState;
use zk_session::unstable::Core;
use zk_session::world::thread::ThreadId;
use zk_session::world::{Mutex, this_thread};

/// One `ZkMutex` or `ZkRwLock`: the shared lock, and the settings of this user.
pub(crate) struct ThreadLock {
    // `shared` is dropped first. It may have a kept hold, which is released then. If the session in
    // `settings` were closed before that, the kept hold would be logged as a lost lock.
    shared: Shared<SharedThreadLock>,
    pub(super) settings: Settings,
}

/// What all locks of one kind and path on one session share.
struct SharedThreadLock {
    local: LocalLock<Arc<SharedRead>>,
    writes: Reentry<ThreadHold>,
    reads: Reentry<ThreadHold>,
    /// The shared read that other threads may still join.
    newest: Mutex<Weak<SharedRead>>,
    self_deadlock: SelfDeadlockDetector,
    read_tally: Arc<LockTally>,
    write_tally: Arc<LockTally>,
}

impl SharedThreadLock {
    fn new(settings: &Settings, read_tally: Arc<LockTally>, write_tally: Arc<LockTally>) -> Self {
        SharedThreadLock {
            local: LocalLock::new(settings.queue()),
            writes: Reentry::new(),
            reads: Reentry::new(),
            newest: Mutex::new(Weak::new()),
            self_deadlock: settings.self_deadlock(),
            read_tally,
            write_tally,
        }
    }
}

/// A shared read: one held read node, and how many threads of this process read under it.
struct SharedRead {
    node: Arc<HeldNode>,
    /// Only threads with these bounds share it.
    bounds: HoldBounds,
    members: Mutex<usize>,
}

impl SharedRead {
    /// A shared read with its first member.
    fn new(node: HeldNode, bounds: HoldBounds) -> Arc<Self> {
        Arc::new(SharedRead { node: Arc::new(node), bounds, members: Mutex::new(1) })
    }

    /// Adds a member; false if the last one has left already.
    fn join(&self) -> bool {
        let mut members = self.members.lock();
        if *members > 0 {
            *members += 1;
        }
        *members > 0
    }

    /// Removes a member; true if it was the last.
    fn leave(&self) -> bool {
        let mut members = self.members.lock();
        *members = members.saturating_sub(1);
        *members == 0
    }
}

impl ThreadLock {
    /// A new mutex, and the one way to take it.
    pub(super) fn mutex(settings: Settings) -> Result<Way> {
        let new = |settings: &Settings| {
            let tally = settings.tally("mutex");
            SharedThreadLock::new(settings, tally.clone(), tally)
        };
        let lock = ThreadLock::new(settings, "mutex", new)?.into();
        Ok(Way { lock, kind: Kind::Lock })
    }

    /// A new read/write lock, and the two ways to take it: to read, and to write.
    pub(super) fn read_write(settings: Settings) -> Result<[Way; 2]> {
        let new = |settings: &Settings| {
            SharedThreadLock::new(settings, settings.tally("read"), settings.tally("write"))
        };
        let lock = Arc::new(ThreadLock::new(settings, "read/write lock", new)?);
        Ok([Kind::Read, Kind::Write].map(|kind| Way { lock: lock.clone(), kind }))
    }

    fn new(
        settings: Settings,
        what: &'static str,
        new: impl FnOnce(&Settings) -> SharedThreadLock,
    ) -> Result<Self> {
        let shared = settings.share(what, new)?;
        settings.agree(&shared.local.queue)?;
        Ok(ThreadLock { settings, shared })
    }

    pub(super) fn is_owned_by(&self, thread: ThreadId) -> bool {
        if self.settings.process().is_forked() {
            return false;
        }
        self.shared.writes.hold_of(thread).is_some_and(|hold| hold.node.is_held())
    }

    /// Takes the lock for this thread alone; `kind` is the kind of node that it makes for that.
    fn write(self: &Arc<Self>, kind: Kind, request: &Request<'_>) -> Result<Option<Held>> {
        let (shared, thread) = (&self.shared, this_thread());
        // If the thread has a write hold here, the hold is lost: otherwise `again` would have used
        // it. A loss is final. The same is true in `read`.
        if let Some(writer) = shared.writes.hold_of(thread) {
            self.settings.check(&writer.node)?;
        }
        if let Some(reader) = shared.reads.hold_of(thread) {
            self.settings.check(&reader.node)?;
            return Err(Error::WouldDeadlock {
                path: self.settings.path.clone(),
                why: "this thread reads, and its write would wait for its own read for ever; drop its read guards first",
            });
        }
        self.may_wait(request, thread)?;
        let Some(node) = shared.local.hold(request, kind)? else {
            return Ok(None);
        };
        node.bind(&self.settings.bounds);
        if node.hand_overs() > 0 {
            request.tally.handed_over();
        }
        Ok(Some(self.held(request, thread, node, None)))
    }

    fn read(self: &Arc<Self>, request: &Request<'_>) -> Result<Option<Held>> {
        let (shared, thread) = (&self.shared, this_thread());
        if let Some(reader) = shared.reads.hold_of(thread) {
            self.settings.check(&reader.node)?;
        }
        let shared_read = match shared.writes.hold_of(thread) {
            Some(writer) => Some(self.read_beside(&writer.node, request)?),
            None => self.read_in_turn(request, thread)?,
        };
        let Some(shared_read) = shared_read else { return Ok(None) };
        let node = shared_read.node.clone();
        Ok(Some(self.held(request, thread, node, Some(shared_read))))
    }

    /// The first guard of this thread's hold.
    fn held(
        self: &Arc<Self>,
        request: &Request<'_>,
        thread: ThreadId,
        node: Arc<HeldNode>,
        shared_read: Option<Arc<SharedRead>>,
    ) -> Held {
        let shared = &self.shared;
        let holds = if shared_read.is_some() { &shared.reads } else { &shared.writes };
        let (tally, guards) = (request.tally.acquired(&node, &[]), Guards::of(thread));
        let lock = self.clone();
        let hold = holds.insert(ThreadHold { node, shared_read, lock, tally, guards });
        shared.self_deadlock.holds(thread);
        Held::new(hold)
    }

    /// Before this thread waits for a turn: an error if the call is cancelled already, and a
    /// warning if the thread is about to wait for itself.
    fn may_wait(&self, request: &Request<'_>, thread: ThreadId) -> Result<()> {
        request.check_cancelled()?;
        self.shared.self_deadlock.warn(thread, &self.settings.path);
        Ok(())
    }

    /// Takes a read for the thread that writes: it gets a read node of its own in the write's
    /// place, which stays when the write ends.
    fn read_beside(&self, write: &HeldNode, request: &Request<'_>) -> Result<Arc<SharedRead>> {
        self.settings.check(write)?;
        // A request that is sent now would make a node for which nobody waits.
        request.check_cancelled()?;
        if request.limit().is_past() {
            let core = request.core();
            let cause = match core.state() {
                SessionState::Connected => Cause::Deadline,
                _ => Cause::Outage(core.failures()),
            };
            let (op, path) = (request.call.op, self.settings.path.clone());
            return Err(Error::Unavailable { op, path, cause });
        }
        let held_node = self.shared.local.queue.downgrade(request, write)?;
        held_node.bind(&self.settings.bounds);
        Ok(SharedRead::new(held_node, self.settings.bounds))
    }

    /// Takes a read for another thread: it joins the readers of this process, or queues for a read
    /// node of its own.
    fn read_in_turn(
        &self,
        request: &Request<'_>,
        thread: ThreadId,
    ) -> Result<Option<Arc<SharedRead>>> {
        let shared = &self.shared;
        self.may_wait(request, thread)?;
        let wants = Wants::Share(self.settings.bounds);
        loop {
            let mut turn = match shared.local.turns.turn(request, wants)? {
                Some(Admission::Turn(turn, _)) => turn,
                Some(Admission::Share(shared_read)) if shared_read.node.is_held() => {
                    return Ok(Some(shared_read));
                }
                Some(Admission::Share(shared_read)) => {
                    // The shared read was lost before this thread got it. Its node is released with
                    // its last member.
                    shared_read.leave();
                    continue;
                }
                None => return Ok(None),
            };
            let newest = shared.newest.lock().upgrade();
            if let Some(shared_read) =
                newest.filter(|shared_read| self.is_open(shared_read) && shared_read.join())
            {
                return Ok(Some(shared_read));
            }
            let (queue, on_loss) = (&shared.local.queue, Callbacks::NONE.on_loss);
            let Some(held_node) = turn.acquire(queue, request, Kind::Read, on_loss)? else {
                return Ok(None);
            };
            held_node.bind(&self.settings.bounds);
            let shared_read = SharedRead::new(held_node, self.settings.bounds);
            *shared.newest.lock() = Arc::downgrade(&shared_read);
            self.let_in(&shared_read, &turn);
            return Ok(Some(shared_read));
        }
    }

    /// Whether threads may still join this shared read.
    fn is_open(&self, shared_read: &SharedRead) -> bool {
        let held_node = &shared_read.node;
        shared_read.bounds == self.settings.bounds
            && held_node.is_held()
            && !held_node.state().is_revoked()
            && held_node.age() < self.settings.hand_over
    }

    /// Lets in all threads that are next in line and want to read with these bounds. If they came
    /// one by one, the shared read could have ended before they join.
    fn let_in(
        &self,
        shared_read: &Arc<SharedRead>,
        turn: &Turn<'_, Arc<HeldNode>, Arc<SharedRead>>,
    ) {
        while self.is_open(shared_read) && shared_read.join() {
            if turn.share(self.settings.bounds, shared_read.clone()).is_err() {
                shared_read.leave(); // never the last: this thread is a member
                return;
            }
        }
    }

    pub(super) fn describe(&self) -> &'static str {
        if self.settings.process().is_forked() {
            FORKED
        } else if self.shared.reads.any(|reader| reader.node.is_held()) {
            "<read here>"
        } else {
            self.shared.local.describe()
        }
    }
}

/// One way to take the lock: to read, or to have it alone.
#[derive(Clone)]
pub(crate) struct Way {
    pub(super) lock: Arc<ThreadLock>,
    /// The kind of node that is made for it. To read: `Kind::Read`. To have the lock alone:
    /// `Kind::Write`, or `Kind::Lock` for a mutex.
    kind: Kind,
}

impl InQueue for ThreadLock {
    fn queue(&self) -> (&Queue, &Core) {
        (&self.shared.local.queue, self.settings.core())
    }
}

impl Acquire for Way {
    fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Lock | Kind::Latch => "mutex",
        }
    }

    fn op(&self) -> &'static str {
        match self.kind {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Lock | Kind::Latch => "lock",
        }
    }

    fn settings(&self) -> &Settings {
        &self.lock.settings
    }

    fn tally(&self) -> &Arc<LockTally> {
        let SharedThreadLock { read_tally, write_tally, .. } = &*self.lock.shared;
        if self.kind == Kind::Read { read_tally } else { write_tally }
    }

    #[inline]
    fn again(&self) -> Option<Held> {
        let SharedThreadLock { reads, writes, .. } = &*self.lock.shared;
        let holds = if self.kind == Kind::Read { reads } else { writes };
        let hold = holds.hold_of(this_thread()).filter(|hold| hold.node.is_held())?;
        hold.guards.nest();
        Some(Held::new(hold))
    }

    /// A writer excludes all, a reader the writers.
    fn is_excluded_here(&self) -> bool {
        let SharedThreadLock { reads, writes, .. } = &*self.lock.shared;
        let is_held_by = |holds: &Reentry<ThreadHold>| holds.any(|hold| hold.node.is_held());
        is_held_by(writes) || self.kind != Kind::Read && is_held_by(reads)
    }

    fn take(&self, request: &Request<'_>) -> Result<Option<Held>> {
        match self.kind {
            Kind::Read => self.lock.read(request),
            Kind::Write | Kind::Lock | Kind::Latch => self.lock.write(self.kind, request),
        }
    }

    /// Guards of the other way count too.
    fn has_guards(&self, thread: ThreadId) -> Result<bool> {
        let ThreadLock { settings, shared } = &*self.lock;
        let (reader, writer) = (shared.reads.hold_of(thread), shared.writes.hold_of(thread));
        writer.iter().try_for_each(|writer| settings.check(&writer.node))?;
        reader.iter().try_for_each(|reader| settings.check(&reader.node))?;
        Ok(reader.is_some() || writer.is_some() || shared.self_deadlock.is_held_by(thread))
    }
}

/// The hold that all read guards of one thread share; or all its write guards, or all its guards of
/// a mutex.
struct ThreadHold {
    // `node` is dropped before `lock`. If the hold is kept, the keeper of `lock` has a reference to
    // it too. If `lock` is the last handle, its drop first releases the kept hold, with that
    // reference, and then closes the session. With another reference still here the hold would be
    // released after the close, and would be logged as a lost lock.
    node: Arc<HeldNode>,
    /// To read: the shared read whose node this is. `None`: the thread has the lock alone.
    shared_read: Option<Arc<SharedRead>>,
    lock: Arc<ThreadLock>,
    tally: HoldTally,
    guards: Guards,
}

impl AsRef<Guards> for ThreadHold {
    fn as_ref(&self) -> &Guards {
        &self.guards
    }
}

impl ThreadHold {
    /// The holds of the same kind, and those of the other one.
    fn holds(&self) -> [&Reentry<ThreadHold>; 2] {
        let SharedThreadLock { reads, writes, .. } = &*self.lock.shared;
        if self.shared_read.is_some() { [reads, writes] } else { [writes, reads] }
    }

    /// Ends the hold, which goes to no other thread.
    fn end(&self, loss: Option<LossReason>, end_by: EndBy) -> Release {
        match &self.shared_read {
            Some(shared_read) if shared_read.leave() => self.node.begin_release(loss, end_by),
            Some(_) => Release::of_hold(loss),
            None => self.lock.shared.local.end(&self.node, loss, end_by),
        }
    }
}

impl Hold for ThreadHold {
    fn node(&self) -> &HeldNode {
        &self.node
    }

    fn path(&self) -> &str {
        self.lock.settings.shown(self.node.path())
    }

    fn count(&self) -> usize {
        let [own, _] = self.holds();
        own.count(self.guards.thread())
    }

    fn release(&self, end_by: EndBy) -> Release {
        let ThreadLock { settings, shared } = &*self.lock;
        let ([own, others], thread) = (self.holds(), self.guards.thread());
        if !own.leave(self) {
            return Release::of_guard_only(&self.node, end_by);
        }
        let loss = self.tally.end(&self.node, &[]);
        // If the thread goes on reading, its write node must not be handed to another writer.
        if others.count(thread) > 0 {
            return self.end(loss, end_by);
        }
        shared.self_deadlock.released(thread);
        match self.shared_read {
            Some(_) => self.end(loss, end_by),
            None => {
                let Settings { hand_over, keep, .. } = *settings;
                shared.local.release(&self.node, hand_over, keep, loss, end_by)
            }
        }
    }
}
