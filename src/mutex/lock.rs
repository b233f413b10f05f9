//! A lock as this process sees it: its threads' turn, their holds, and the one node in the queue.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

use crate::error::{Cause, Error, Result};
use crate::guard::{Held, Owner};
use crate::limit::{Ended, Limit};
use crate::local::reentry::Reentry;
use crate::local::turnstile::{Entry, Phase, Turnstile};
use crate::local::witness;
use crate::queue::name::{Kind, Layout};
use crate::queue::{Contender, Holding, Mode, Queue, Request};
use crate::session::{Acl, SessionState, ZkSession};

/// What the users of one lock must agree on.
pub(super) struct Shape {
    /// The lock's full path.
    pub(super) dir: String,
    pub(super) layout: Layout,
    pub(super) acl: Acl,
}

/// One `ZkMutex`: the shared lock, and what is this user's own.
pub(super) struct Lock {
    session: ZkSession,
    path: String,
    data: Vec<u8>,
    hand_over: Duration,
    common: Arc<Common>,
}

/// What all `ZkMutex` of one path on one session share.
struct Common {
    queue: Queue,
    turnstile: Arc<Turnstile<Arc<Tenure>>>,
    reentry: Reentry<Tenure>,
    /// This lock and this session, for the witness.
    lock_hash: u64,
    session_hash: u64,
}

/// A hold, and whose turn at the turnstile it is: that changes at each hand-over.
struct Tenure {
    holding: Holding,
    turn: Arc<AtomicU64>,
}

impl Lock {
    pub(super) fn new(
        session: ZkSession,
        path: String,
        shape: Shape,
        data: Vec<u8>,
        hand_over: Duration,
    ) -> Result<Self> {
        let core = session.core();
        let (layout, acl) = (shape.layout, shape.acl);
        let mut hasher = DefaultHasher::new();
        (core.ensemble(), &shape.dir).hash(&mut hasher);
        let name = format!("mutex {}", shape.dir);
        let common = core.shelve(&name, || Common {
            queue: Queue::new(shape.dir, layout, acl),
            turnstile: Arc::new(Turnstile::new()),
            reentry: Reentry::new(),
            lock_hash: hasher.finish(),
            session_hash: std::ptr::from_ref(core).addr() as u64,
        });
        if common.queue.layout() != layout || common.queue.acl() != acl {
            return Err(Error::InvalidConfig {
                what: "mutex",
                reason: format!(
                    "{path:?} is in use on this session with layout {:?} and ACL {:?}",
                    common.queue.layout(),
                    common.queue.acl()
                ),
            });
        }
        Ok(Lock { session, path, data, hand_over, common })
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// A sixth of the session timeout: the bound of single steps.
    pub(super) fn patience(&self) -> Duration {
        self.session.timeout() / 6
    }

    pub(super) fn acquire(self: &Arc<Self>, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>> {
        let (common, thread) = (&self.common, std::thread::current().id());
        if let Some(tenure) = common.reentry.hold_of(thread) {
            if let Some(reason) = tenure.holding.loss() {
                let path = self.shown(tenure.holding.path());
                return Err(Error::Lost { path, reason });
            }
            common.reentry.nest(thread);
            return Ok(Some(self.held(tenure, thread)));
        }
        if limit.is_cancelled() {
            return Err(Error::Cancelled { path: self.path.clone() });
        }
        if witness::holds_elsewhere(thread, common.lock_hash, common.session_hash) {
            log::warn!(
                "{}: this thread holds the lock through another session and may be about to wait for itself",
                self.path
            );
        }
        let Some(tenure) = self.take_turn(mode, limit)? else { return Ok(None) };
        common.reentry.insert(thread, tenure.clone());
        witness::holds(thread, common.lock_hash, common.session_hash);
        Ok(Some(self.held(tenure, thread)))
    }

    fn held(self: &Arc<Self>, tenure: Arc<Tenure>, thread: ThreadId) -> Held {
        let (fence, path) = (tenure.holding.hand_overs(), self.shown(tenure.holding.path()));
        Held::new(Arc::new(Hand { lock: self.clone(), tenure }), thread, path, fence)
    }

    /// Waits for this thread's turn in the process, then for the node's turn in the queue.
    fn take_turn(&self, mode: Mode, limit: Limit<'_>) -> Result<Option<Arc<Tenure>>> {
        let turnstile = &self.common.turnstile;
        loop {
            let (number, baton, contended) = match turnstile.enter(mode == Mode::Try, &limit) {
                Entry::Turn { number, baton, contended } => (number, baton, contended),
                Entry::Busy => return self.busy().map(|()| None),
                Entry::Deadline { contended: true } => return self.busy().map(|()| None),
                Entry::Deadline { contended: false } => return Err(self.unavailable(Cause::Deadline)),
                Entry::Cancelled => return Err(Error::Cancelled { path: self.path.clone() }),
            };
            let turn = Turn { turnstile, number };
            if self.session.state() == SessionState::Closed {
                return Err(Error::Closed { op: "lock", path: self.path.clone() });
            }
            if let Some(tenure) = baton {
                tenure.turn.store(number, Ordering::Release);
                if tenure.holding.is_held() {
                    tenure.holding.hand_over();
                    turnstile.set_phase(number, Phase::Holding);
                    turn.keep();
                    return Ok(Some(tenure));
                }
                // Lost on the way here; its turn may be over with it.
                tenure.holding.release(false);
                drop(turn);
                continue;
            }
            let cell = Arc::new(AtomicU64::new(number));
            let phase = |blocked| {
                turnstile.set_phase(number, if blocked { Phase::Blocked } else { Phase::Asking });
            };
            let request = Request {
                core: self.session.core(),
                kind: Kind::Lock,
                mode,
                limit,
                contended,
                data: &self.data,
                on_blocked: &phase,
                on_loss: &|| {
                    // A lost hold blocks no other thread, even if its guard stays.
                    let (turnstile, cell) = (turnstile.clone(), cell.clone());
                    Box::new(move || drop(turnstile.leave(cell.load(Ordering::Acquire), None)))
                },
            };
            let Some(holding) = self.common.queue.acquire(&request)? else { return Ok(None) };
            turnstile.set_phase(number, Phase::Holding);
            turn.keep();
            return Ok(Some(Arc::new(Tenure { holding, turn: cell })));
        }
    }

    /// Somebody else has the lock, if an outage does not make that hearsay.
    fn busy(&self) -> Result<()> {
        match self.session.state() {
            SessionState::Connected => Ok(()),
            SessionState::Closed => Err(Error::Closed { op: "lock", path: self.path.clone() }),
            _ if self.common.reentry.any(|tenure| tenure.holding.is_held()) => Ok(()),
            _ => Err(self.unavailable(Cause::ConnectionLost)),
        }
    }

    fn unavailable(&self, cause: Cause) -> Error {
        Error::Unavailable { op: "lock", path: self.path.clone(), cause }
    }

    fn shown(&self, full: &str) -> String {
        self.session.core().shown(full).to_owned()
    }

    pub(super) fn is_owned_by(&self, thread: ThreadId) -> bool {
        self.common.reentry.hold_of(thread).is_some_and(|tenure| tenure.holding.is_held())
    }

    pub(super) fn contenders(&self) -> Result<Vec<Contender>> {
        self.common.queue.contenders(self.session.core(), &Limit::after(self.patience()))
    }

    pub(super) fn describe(&self) -> &'static str {
        match self.common.turnstile.phase() {
            None => "<unlocked here>",
            Some(Phase::Holding) => "<locked here>",
            Some(_) => "<waiting>",
        }
    }
}

/// A turn that is passed on unless it leads to a hold.
struct Turn<'a> {
    turnstile: &'a Turnstile<Arc<Tenure>>,
    number: u64,
}

impl Turn<'_> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.turnstile.leave(self.number, None);
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

    fn release(&self, thread: ThreadId, wait: bool) -> Result<()> {
        let Lock { common, hand_over, .. } = &*self.lock;
        let Some(tenure) = common.reentry.leave(thread) else { return Ok(()) };
        witness::released(thread, common.lock_hash, common.session_hash);
        let (holding, turn) = (&tenure.holding, tenure.turn.load(Ordering::Acquire));
        let loss = holding.loss();
        if loss.is_none() && holding.age() < *hand_over && common.turnstile.has_waiters() {
            let Some(tenure) = common.turnstile.leave(turn, Some(tenure.clone())) else {
                return Ok(());
            };
            tenure.holding.release(false); // whoever waited has left meanwhile
            return Ok(());
        }
        // The delete is on its way before the next thread's create.
        let deleted = holding.release(wait);
        common.turnstile.leave(turn, None);
        if let Some(reason) = loss {
            return Err(Error::Lost { path: self.lock.shown(holding.path()), reason });
        }
        let (Some(deleted), true) = (deleted, wait) else { return Ok(()) };
        let (op, path) = ("unlock", self.lock.shown(holding.path()));
        match Limit::after(holding.timeout() / 6).recv(&deleted) {
            // Without an answer the session is gone, and the node with it.
            Ended::Got(Ok(())) | Ended::Disconnected | Ended::Cancelled => Ok(()),
            Ended::Got(Err(code)) if code == crate::session::NO_AUTH => Err(Error::NoAuth { op, path }),
            Ended::Got(Err(code)) => Err(Error::Server { op, path, code: code.to_string() }),
            Ended::Deadline => Err(Error::Unavailable { op, path, cause: Cause::ConnectionLost }),
        }
    }
}
