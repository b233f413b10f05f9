//! An exclusive lock as this process sees it: its threads take turns, and the thread whose turn it
//! is tries to make the lock's node.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use super::attempt;
use crate::error::Result;
use crate::local::lock::{self, Admission};
use crate::local::queue::{TurnPhase, Wants};
use crate::local::registry::SelfDeadlockDetector;
use crate::local::registry::Shared;
use crate::queue::Settings;
use crate::queue::tally::{HoldTally, LockTally};
use crate::queue::{Callbacks, Contender, EndBy, HeldNode, OnLoss, Release, Request, query};
use crate::recipes::calls::Acquire;
use crate::recipes::guard::{Held, Hold};
use crate::recipes::settings::FORKED;
use crate::recipes::wait::Wait;
use zk_session::Acl;
use zk_session::unstable::{CallError, nonce};
use zk_session::world::thread::ThreadId;
use zk_session::world::{Mutex, thread};

/// Threads neither hand this lock over nor share it, and no queue has places: a turn carries nothing.
type Turns = lock::Turns<Infallible, Infallible>;

const KIND: &str = "exclusive lock";

/// The name of the one node, below the lock's path.
const NODE: &str = "lock";

/// One `ZkExclusiveLock`: the shared lock, and the settings of this user.
pub(crate) struct ExclusiveHandle {
    pub(super) settings: Settings,
    shared: Shared<SharedExclusive>,
}

/// What all `ZkExclusiveLock`s of one path on one session share.
struct SharedExclusive {
    /// The lock's node, its full path.
    node: String,
    acl: Acl,
    turns: Arc<Turns>,
    /// The hold of this process, if there is one.
    hold: Mutex<Weak<HeldNode>>,
    self_deadlock: SelfDeadlockDetector,
    tally: Arc<LockTally>,
}

impl ExclusiveHandle {
    pub(super) fn new(settings: Settings) -> Result<Self> {
        let shared = settings.share(KIND, |settings| SharedExclusive {
            node: format!("{}/{NODE}", settings.dir()),
            acl: settings.acl.clone(),
            turns: Arc::default(),
            hold: Mutex::new(Weak::new()),
            self_deadlock: settings.self_deadlock(),
            tally: settings.tally("exclusive"),
        })?;
        if shared.acl != settings.acl {
            return Err(settings.is_in_use_with("acl", &shared.acl));
        }
        Ok(ExclusiveHandle { settings, shared })
    }

    /// The holder, if there is one; the nonce is left out of its data.
    pub(super) fn holders(&self, wait: &Wait) -> Result<Vec<Contender>> {
        let (core, path) = (self.settings.core(), &self.shared.node);
        let of = wait.question(core);
        query("holders", core, path, &of.whole, |generation, _, _| {
            match generation.synced_read(path, false, &of.request) {
                Ok(mut node) => {
                    node.data = nonce::split(&node.data).1.to_vec();
                    Ok(vec![Contender::of(core.shown(path), false, node)])
                }
                Err(CallError::NoNode) => Ok(Vec::new()),
                Err(e) => Err(e),
            }
        })
    }

    pub(super) fn describe(&self) -> &'static str {
        if self.settings.process().is_forked() { FORKED } else { self.shared.turns.describe() }
    }
}

impl Acquire for Arc<ExclusiveHandle> {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn tally(&self) -> &Arc<LockTally> {
        &self.shared.tally
    }

    fn is_excluded_here(&self) -> bool {
        // `is_held` may find that the lease has ended. It notifies the holders then, which takes
        // other mutexes, so it must not run under this one.
        let node = self.shared.hold.lock().upgrade();
        node.is_some_and(|node| node.is_held())
    }

    fn take(&self, request: &Request<'_>) -> Result<Option<Held>> {
        let (shared, thread) = (&self.shared, thread::current().id());
        request.check_cancelled()?;
        shared.self_deadlock.warn(thread, &self.settings.path);
        let turn = match shared.turns.turn(request, Wants::All)? {
            Some(Admission::Turn(turn, _)) => turn,
            Some(Admission::Share(never)) => match never {},
            None => return Ok(None),
        };
        let on_blocked = |is_blocked| turn.set_blocked(is_blocked);
        let on_loss = |node| {
            // The loss ends the turn, even if the guard lives on: a lost hold must not keep other
            // threads of this process from the lock.
            let turns = shared.turns.clone();
            Box::new(move || turns.end_hold(node)) as OnLoss
        };
        let callbacks = Callbacks { on_blocked: &on_blocked, on_loss: &on_loss, ..Callbacks::NONE };
        let Some(node) = attempt::acquire(request, &shared.node, &callbacks)? else {
            return Ok(None);
        };
        node.bind(&self.settings.bounds);
        let node = Arc::new(node);
        *shared.hold.lock() = Arc::downgrade(&node);
        drop(turn.becomes_hold(&node, TurnPhase::Held)); // if it is lost by now, the turn ends here
        shared.self_deadlock.holds(thread);
        let tally = request.tally.acquired(&node, &[]);
        Ok(Some(Held::new(Arc::new(ExclusiveHold { lock: self.clone(), node, thread, tally }))))
    }
}

/// The hold that a guard ends.
struct ExclusiveHold {
    lock: Arc<ExclusiveHandle>,
    node: Arc<HeldNode>,
    /// The thread that took the lock.
    thread: ThreadId,
    tally: HoldTally,
}

/// This lock is not re-entrant: each guard has a hold of its own.
impl Hold for ExclusiveHold {
    fn node(&self) -> &HeldNode {
        &self.node
    }

    fn path(&self) -> &str {
        self.lock.settings.shown(&self.lock.shared.node)
    }

    fn release(&self, end_by: EndBy) -> Release {
        let shared = &self.lock.shared;
        shared.self_deadlock.released(self.thread);
        let loss = self.tally.end(&self.node, &[]);
        // The node becomes a pending delete before the next thread has the turn. The delete itself
        // may be sent later than that thread's create, which then finds the node still there and
        // waits for its end.
        let release = self.node.begin_release(loss, end_by);
        shared.turns.end_hold(self.node.key());
        release
    }
}
