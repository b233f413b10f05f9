//! The lock, held: a granted node, and how it is let go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::BootTime;
use crate::error::LossReason;
use crate::session::RevokeSignal;
use crate::session::generation::{Generation, Outcome};
use crate::session::hold::{Hold, LostSignal};
use crate::world::{Receiver, bounded};

/// Dropped before it is released, by an early return or a panic, it is released then: no node stays
/// that nobody knows of.
pub(crate) struct Holding {
    generation: Arc<Generation>,
    hold: Arc<Hold>,
    going: Going,
    /// How often it was handed to another thread of this process.
    hand_overs: AtomicU64,
    is_released: AtomicBool,
}

/// How its node goes.
pub(crate) enum Going {
    /// It has this id in its name, and nobody else's has. `renew_parent`: the parent's numbers should start anew once it is empty.
    Named { id: String, renew_parent: bool },
    /// Others may have a node of the same name; ours bears this nonce.
    Signed { nonce: String },
}

impl Holding {
    pub(crate) fn new(generation: &Arc<Generation>, hold: Arc<Hold>, going: Going) -> Self {
        Holding {
            generation: generation.clone(),
            hold,
            going,
            hand_overs: AtomicU64::new(0),
            is_released: AtomicBool::new(false),
        }
    }

    /// The session that it is held in.
    pub(crate) fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// The node's full path.
    pub(crate) fn path(&self) -> &str {
        self.hold.path()
    }

    #[cfg(zk_sim)]
    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    pub(crate) fn is_held(&self) -> bool {
        self.generation.lease.stands(&self.hold, BootTime::now())
    }

    /// Why it is lost, if it is.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        if self.is_held() { None } else { self.hold.loss() }
    }

    /// A new signal for one guard, until `part`.
    pub(crate) fn signal(&self) -> LostSignal {
        self.hold.signal()
    }

    /// From now on, until `part`, its loss raises that signal too.
    pub(crate) fn join(&self, signal: &LostSignal) {
        self.hold.join(signal);
    }

    pub(crate) fn part(&self, signal: &LostSignal) {
        self.hold.part(signal);
    }

    /// Whether somebody asked for the lock back, as far as is known.
    pub(crate) fn is_revoked(&self) -> bool {
        self.hold.is_revoked()
    }

    /// A new signal for one guard, until `part_revoked`.
    pub(crate) fn revoke_signal(&self) -> RevokeSignal {
        self.hold.revoke_signal()
    }

    pub(crate) fn part_revoked(&self, signal: &RevokeSignal) {
        self.hold.part_revoked(signal);
    }

    pub(crate) fn valid_for(&self) -> Duration {
        let (lease, now) = (&self.generation.lease, BootTime::now());
        if lease.stands(&self.hold, now) { lease.remaining(now) } else { Duration::ZERO }
    }

    /// How long ago the node got the lock.
    pub(crate) fn age(&self) -> Duration {
        BootTime::now().since(self.hold.since())
    }

    /// Another thread of this process takes it over.
    pub(crate) fn hand_over(&self) {
        self.hand_overs.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn hand_overs(&self) -> u64 {
        self.hand_overs.load(Ordering::Acquire)
    }

    /// The session timeout, on which the bounds of single steps stand.
    pub(crate) fn timeout(&self) -> Duration {
        self.generation.timeout()
    }

    /// The zxid that made the node.
    pub(crate) fn czxid(&self) -> i64 {
        self.hold.czxid()
    }

    /// Asks for the watch on the node, without waiting for it.
    pub(crate) fn ask_for_watch(&self) {
        if self.hold.armed_on() == 0 {
            self.watch_again();
        }
    }

    /// The watch on the node has fired, or there is none: asks for a new one, without waiting for it.
    pub(crate) fn watch_again(&self) {
        self.generation.lease.rearm(&self.hold);
        self.generation.wake();
    }

    /// Lets the lock go while others still look at the hold, who are told that it is over.
    pub(crate) fn resign(&self) {
        self.generation.lease.resign(&self.hold, BootTime::now());
        self.release(false);
    }

    /// Lets the lock go; its node is deleted, whatever happens. The receiver hears how that went.
    pub(crate) fn release(&self, wait: bool) -> Option<Receiver<Outcome>> {
        self.is_released.store(true, Ordering::Release);
        self.generation.lease.release(&self.hold);
        let (done, outcome) = wait.then(|| bounded(1)).unzip();
        let path = self.hold.path().to_owned();
        match &self.going {
            Going::Named { id, renew_parent } => {
                self.generation.delete(path, id.clone(), *renew_parent, false, done);
            }
            Going::Signed { nonce } => {
                self.generation.remove(path, nonce.clone(), Some(self.hold.czxid()), done);
            }
        }
        outcome
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if !*self.is_released.get_mut() {
            self.release(false);
        }
    }
}
