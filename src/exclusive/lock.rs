//! An exclusive lock as this process sees it: its threads take turns, and whoever's turn it is
//! tries for the node.

use std::convert::Infallible;
use std::sync::{Arc, Weak};

use super::attempt::{Attempt, Request};
use crate::error::{Cause, Error, Result};
use crate::guard::{Held, Owner};
use crate::limit::Limit;
use crate::local::registry::Interned;
use crate::local::turnstile::{Entry, Phase, Turnstile, Wants};
use crate::local::witness::Witness;
use crate::queue::{Contender, Holding, Mode, Release, ask};
use crate::session::acl::Acl;
use crate::session::generation::CallError;
use crate::session::hold::OnLoss;
use crate::session::nonce;
use crate::session::{SessionState, ZkSession};
use crate::settings::Settings;
use crate::wait::{Wait, until_got};
use crate::world::thread::ThreadId;
use crate::world::{Mutex, thread};

/// No lock is handed over or shared here: its turns carry nothing.
type Turns = Turnstile<Infallible, Infallible>;

/// The name of the one node, below the lock's path.
const NODE: &str = "lock";

/// One `ZkExclusiveLock`: the shared lock, and what is this user's own.
pub(crate) struct Lock {
    pub(super) settings: Settings,
    common: Arc<Interned<Common>>,
}

/// What all `ZkExclusiveLock` of one path on one session share.
struct Common {
    /// The lock's node, its full path.
    node: String,
    acl: Acl,
    turnstile: Arc<Turns>,
    /// The hold of this process, if there is one.
    hold: Mutex<Weak<Holding>>,
    witness: Witness,
}

/// A turn that is passed on unless it leads to a hold.
struct Turn<'a> {
    turnstile: &'a Arc<Turns>,
    number: u64,
    contended: bool,
}

impl Lock {
    pub(super) fn new(settings: Settings) -> Result<Self> {
        let what = "exclusive lock";
        let common = settings.share(what, |settings| Common {
            node: format!("{}/{NODE}", settings.dir()),
            acl: settings.acl.clone(),
            turnstile: Arc::new(Turnstile::new()),
            hold: Mutex::new(Weak::new()),
            witness: settings.witness(),
        })?;
        if common.acl != settings.acl {
            let reason =
                format!("{:?} is in use on this session with ACL {:?}", settings.path, common.acl);
            return Err(Error::InvalidConfig { what, reason });
        }
        Ok(Lock { settings, common })
    }

    pub(crate) fn session(&self) -> &ZkSession {
        &self.settings.session
    }

    pub(super) fn path(&self) -> &str {
        &self.settings.path
    }

    pub(crate) fn acquire(self: &Arc<Self>, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>> {
        let (common, thread) = (&self.common, thread::current().id());
        if limit.is_cancelled() {
            return Err(Error::Cancelled { path: self.settings.path.clone() });
        }
        common.witness.warn(thread, &self.settings.path);
        let Some(turn) = self.turn(mode, &limit)? else { return Ok(None) };
        let (turnstile, number) = (turn.turnstile, turn.number);
        let request = Request {
            core: self.settings.session.core(),
            node: &common.node,
            acl: &common.acl,
            data: &self.settings.data,
            mode,
            limit,
            contended: turn.contended,
            on_blocked: &|blocked| {
                turnstile.set_phase(number, if blocked { Phase::Blocked } else { Phase::Asking });
            },
            on_loss: &|| {
                // A lost hold blocks no other thread, even if its guard stays.
                let turnstile = turnstile.clone();
                Box::new(move || turnstile.leave(number)) as OnLoss
            },
        };
        let Some(holding) = Attempt::new(&request).run()? else { return Ok(None) };
        let holding = Arc::new(holding);
        *common.hold.lock() = Arc::downgrade(&holding);
        turnstile.set_phase(number, Phase::Holding);
        turn.keep();
        common.witness.holds(thread);
        Ok(Some(Held::new(Arc::new(Hand { lock: self.clone(), holding, thread, turn: number }))))
    }

    pub(super) fn lock(self: &Arc<Self>) -> Result<Held> {
        until_got(|| self.acquire(Mode::Wait, Limit::NONE))
    }

    pub(super) fn lock_with(self: &Arc<Self>, wait: &Wait) -> Result<Option<Held>> {
        wait.acquire(|| self.settings.patience(), |mode, limit| self.acquire(mode, limit))
    }

    fn turn(&self, mode: Mode, limit: &Limit<'_>) -> Result<Option<Turn<'_>>> {
        let turnstile = &self.common.turnstile;
        let turn = match turnstile.enter(mode == Mode::Try, Wants::All, limit) {
            Entry::Turn { number, contended, .. } => Turn { turnstile, number, contended },
            Entry::Share(never) => match never {},
            Entry::Busy | Entry::Deadline { contended: true } => return self.busy().map(|()| None),
            Entry::Deadline { contended: false } => return Err(self.unavailable(Cause::Deadline)),
            Entry::Cancelled => return Err(Error::Cancelled { path: self.settings.path.clone() }),
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
                let hold = self.common.hold.lock().upgrade();
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
        let (core, path) = (self.settings.session.core(), &self.common.node);
        // for the connection; the read has a time of its own
        let limit = Limit::after(self.settings.patience());
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
        match self.common.turnstile.phase() {
            None => "<unlocked here>",
            Some(Phase::Holding) => "<locked here>",
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
        self.turnstile.leave(self.number);
    }
}

/// What a guard keeps hold of.
struct Hand {
    lock: Arc<Lock>,
    holding: Arc<Holding>,
    /// Which took it.
    thread: ThreadId,
    turn: u64,
}

/// It is not re-entrant: each guard is a hold of its own.
impl Owner for Hand {
    fn holding(&self) -> &Holding {
        &self.holding
    }

    fn path(&self) -> &str {
        self.lock.settings.shown(&self.lock.common.node)
    }

    fn release(&self, wait: bool) -> Release {
        let common = &self.lock.common;
        common.witness.released(self.thread);
        // The removal is on its way before the next thread's create.
        let release = self.holding.begin_release(wait);
        common.turnstile.leave(self.turn);
        release
    }
}
