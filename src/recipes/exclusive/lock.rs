//! An exclusive lock as this process sees it: its threads take turns, and whoever's turn it is
//! tries for the node.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use super::attempt::{ExclusiveAttempt, ExclusiveRequest};
use crate::error::{Cause, Error, Result};
use crate::guard::{Held, Hold};
use crate::limit::Limit;
use crate::local::queue::{LocalQueue, TurnOutcome, TurnPhase, Wants};
use crate::local::registry::Interned;
use crate::local::self_deadlock::SelfDeadlockDetector;
use crate::queue::{Contender, HeldNode, Mode, Release, ask};
use crate::recipes::settings::Settings;
use crate::session::acl::Acl;
use crate::session::generation::CallError;
use crate::session::leased_node::OnLoss;
use crate::session::nonce;
use crate::session::{SessionState, ZkSession};
use crate::wait::{Wait, until_got};
use crate::world::thread::ThreadId;
use crate::world::{Mutex, thread};

/// No lock is handed over or shared here: its turns carry nothing.
type Turns = LocalQueue<Infallible, Infallible>;

/// The name of the one node, below the lock's path.
const NODE: &str = "lock";

/// One `ZkExclusiveLock`: the shared lock, and what is this user's own.
pub(crate) struct ExclusiveHandle {
    pub(super) settings: Settings,
    shared: Arc<Interned<SharedExclusive>>,
}

/// What all `ZkExclusiveLock` of one path on one session share.
struct SharedExclusive {
    /// The lock's node, its full path.
    node: String,
    acl: Acl,
    local_queue: Arc<Turns>,
    /// The hold of this process, if there is one.
    hold: Mutex<Weak<HeldNode>>,
    self_deadlock: SelfDeadlockDetector,
}

/// A turn that is passed on unless it leads to a hold.
struct Turn<'a> {
    local_queue: &'a Arc<Turns>,
    number: u64,
    contended: bool,
}

impl ExclusiveHandle {
    pub(super) fn new(settings: Settings) -> Result<Self> {
        let what = "exclusive lock";
        let shared = settings.share(what, |settings| SharedExclusive {
            node: format!("{}/{NODE}", settings.dir()),
            acl: settings.acl.clone(),
            local_queue: Arc::new(LocalQueue::new()),
            hold: Mutex::new(Weak::new()),
            self_deadlock: settings.self_deadlock(),
        })?;
        if shared.acl != settings.acl {
            let reason =
                format!("{:?} is in use on this session with ACL {:?}", settings.path, shared.acl);
            return Err(Error::InvalidConfig { what, reason });
        }
        Ok(ExclusiveHandle { settings, shared })
    }

    pub(crate) fn session(&self) -> &ZkSession {
        &self.settings.session
    }

    pub(super) fn path(&self) -> &str {
        &self.settings.path
    }

    pub(crate) fn acquire(self: &Arc<Self>, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>> {
        let (shared, thread) = (&self.shared, thread::current().id());
        if limit.is_cancelled() {
            return Err(Error::Cancelled { path: self.settings.path.clone() });
        }
        shared.self_deadlock.warn(thread, &self.settings.path);
        let Some(turn) = self.turn(mode, &limit)? else { return Ok(None) };
        let (local_queue, number) = (turn.local_queue, turn.number);
        let request = ExclusiveRequest {
            core: self.settings.session.core(),
            node: &shared.node,
            acl: &shared.acl,
            data: &self.settings.data,
            mode,
            limit,
            contended: turn.contended,
            on_blocked: &|blocked| {
                local_queue.set_phase(
                    number,
                    if blocked { TurnPhase::Blocked } else { TurnPhase::Asking },
                );
            },
            on_loss: &|| {
                // A lost hold blocks no other thread, even if its guard stays.
                let local_queue = local_queue.clone();
                Box::new(move || local_queue.leave(number)) as OnLoss
            },
        };
        let Some(held_node) = ExclusiveAttempt::new(&request).run()? else { return Ok(None) };
        let held_node = Arc::new(held_node);
        *shared.hold.lock() = Arc::downgrade(&held_node);
        local_queue.set_phase(number, TurnPhase::Holding);
        turn.keep();
        shared.self_deadlock.holds(thread);
        Ok(Some(Held::new(Arc::new(ExclusiveHold {
            lock: self.clone(),
            node: held_node,
            thread,
            turn: number,
        }))))
    }

    pub(super) fn lock(self: &Arc<Self>) -> Result<Held> {
        until_got(|| self.acquire(Mode::Wait, Limit::NONE))
    }

    pub(super) fn lock_with(self: &Arc<Self>, wait: &Wait) -> Result<Option<Held>> {
        wait.acquire(|| self.settings.operation_timeout(), |mode, limit| self.acquire(mode, limit))
    }

    fn turn(&self, mode: Mode, limit: &Limit<'_>) -> Result<Option<Turn<'_>>> {
        let local_queue = &self.shared.local_queue;
        let turn = match local_queue.enter(mode == Mode::Try, Wants::All, limit) {
            TurnOutcome::Turn { number, contended, .. } => Turn { local_queue, number, contended },
            TurnOutcome::Share(never) => match never {},
            TurnOutcome::Busy | TurnOutcome::Deadline { contended: true } => {
                return self.busy().map(|()| None);
            }
            TurnOutcome::Deadline { contended: false } => {
                return Err(self.unavailable(Cause::Deadline));
            }
            TurnOutcome::Cancelled => {
                return Err(Error::Cancelled { path: self.settings.path.clone() });
            }
        };
        if self.settings.session.state() == SessionState::Closed {
            return Err(self.closed());
        }
        Ok(Some(turn))
    }

    /// Somebody else has the lock, if an outage does not make that hearsay.
    fn busy(&self) -> Result<()> {
        match self.settings.session.state() {
            SessionState::Connected => Ok(()),
            SessionState::Closed => Err(self.closed()),
            _ => {
                let hold = self.shared.hold.lock().upgrade();
                let is_held_here = hold.is_some_and(|hold| hold.is_held());
                if is_held_here { Ok(()) } else { Err(self.unavailable(Cause::ConnectionLost)) }
            }
        }
    }

    fn closed(&self) -> Error {
        Error::Closed { op: "lock", path: self.settings.path.clone() }
    }

    fn unavailable(&self, cause: Cause) -> Error {
        Error::Unavailable { op: "lock", path: self.settings.path.clone(), cause }
    }

    /// Whose node is there, as it says; the nonce is left out of its data.
    pub(super) fn holders(&self) -> Result<Vec<Contender>> {
        let (core, path) = (self.settings.session.core(), &self.shared.node);
        // for the connection; the read has a time of its own
        let limit = Limit::after(self.settings.operation_timeout());
        ask("holders", core, path, &limit, |generation, _| {
            match generation.read(path, false, &Limit::NONE) {
                Ok(mut node) => {
                    node.data = nonce::split(&node.data).1.to_vec();
                    Ok(vec![Contender::of(NODE, false, 0, node)])
                }
                Err(CallError::NoNode) => Ok(Vec::new()),
                Err(e) => Err(e),
            }
        })
    }

    pub(super) fn describe(&self) -> &'static str {
        match self.shared.local_queue.phase() {
            None => "<unlocked here>",
            Some(TurnPhase::Holding) => "<locked here>",
            Some(_) => "<waiting>",
        }
    }
}

impl Turn<'_> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.local_queue.leave(self.number);
    }
}

/// What a guard keeps hold of.
struct ExclusiveHold {
    lock: Arc<ExclusiveHandle>,
    node: Arc<HeldNode>,
    /// Which took it.
    thread: ThreadId,
    turn: u64,
}

/// It is not re-entrant: each guard is a hold of its own.
impl Hold for ExclusiveHold {
    fn node(&self) -> &HeldNode {
        &self.node
    }

    fn path(&self) -> &str {
        self.lock.settings.shown(&self.lock.shared.node)
    }

    fn release(&self, wait: bool) -> Release {
        let shared = &self.lock.shared;
        shared.self_deadlock.released(self.thread);
        // The removal is on its way before the next thread's create.
        let release = self.node.begin_release(wait);
        shared.local_queue.leave(self.turn);
        release
    }
}
