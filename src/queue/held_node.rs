//! The lock, held: a granted node, and how it is let go.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use super::call::error;
use crate::clock::BootTime;
use crate::error::{Cause, Error, LossReason, Result};
use crate::limit::{Ended, Limit};
#[cfg(zk_sim)]
use crate::observed::{self, News, Observed};
use crate::session::core::Core;
use crate::session::generation::{CallError, Generation, Outcome, Removal};
use crate::session::leased_node::LeasedNode;
use crate::world::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::world::{Receiver, Sender, bounded};

/// Dropped before it is released, by an early return or a panic, it is released then: no node stays
/// that nobody knows of.
pub(crate) struct HeldNode {
    generation: Arc<Generation>,
    hold: Arc<LeasedNode>,
    /// How its node goes.
    removal: Removal,
    /// How often it was handed to another thread of this process.
    hand_overs: AtomicU64,
    is_released: AtomicBool,
}

/// The end of a guard, begun: several may be begun before the first is waited for.
#[must_use = "tell the caller how it went"]
pub(crate) struct Release {
    loss: Option<LossReason>,
    /// Of each node, and only if somebody wants to wait for it.
    deleted: Vec<Receiver<Outcome>>,
    limit: Limit<'static>,
}

impl HeldNode {
    pub(crate) fn new(
        generation: &Arc<Generation>,
        hold: Arc<LeasedNode>,
        removal: Removal,
    ) -> Self {
        let held_node = HeldNode {
            generation: generation.clone(),
            hold,
            removal,
            hand_overs: AtomicU64::new(0),
            is_released: AtomicBool::new(false),
        };
        #[cfg(zk_sim)]
        observed::notify(|| News::Granted(Observed::new(&held_node)));
        held_node
    }

    /// The session that it is held in.
    pub(crate) fn generation(&self) -> &Arc<Generation> {
        &self.generation
    }

    /// Its node, and the signals of that.
    pub(crate) fn leased(&self) -> &Arc<LeasedNode> {
        &self.hold
    }

    /// The node's full path.
    pub(crate) fn path(&self) -> &str {
        self.hold.path()
    }

    pub(crate) fn is_held(&self) -> bool {
        self.generation.lease.is_held(&self.hold, BootTime::now())
    }

    /// Why it is lost, if it is.
    pub(crate) fn loss(&self) -> Option<LossReason> {
        if self.is_held() { None } else { self.hold.loss() }
    }

    /// An error if it is lost.
    pub(crate) fn check(&self, core: &Core) -> Result<()> {
        let path = core.shown(self.path()).to_owned();
        self.loss().map_or(Ok(()), |reason| Err(Error::Lost { path, reason }))
    }

    pub(crate) fn valid_for(&self) -> Duration {
        let (lease, now) = (&self.generation.lease, BootTime::now());
        if lease.is_held(&self.hold, now) { lease.remaining(now) } else { Duration::ZERO }
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

    /// Asks for the watch on the node, without waiting for it.
    pub(crate) fn ask_for_watch(&self) {
        if self.hold.armed_on() == 0 {
            self.watch_again();
        }
    }

    /// The watch on the node has fired, or there is none: asks for a new one, without waiting for
    /// it.
    pub(crate) fn watch_again(&self) {
        self.generation.lease.rearm(&self.hold);
        self.generation.wake();
    }

    /// The node was seen gone: the hold is lost.
    pub(crate) fn seen_gone(&self) {
        self.generation.lease.node_gone(&self.hold, BootTime::now());
    }

    /// Lets the lock go while others still look at the hold, who are told that it is over.
    pub(crate) fn resign(&self) {
        self.generation.lease.resign(&self.hold, BootTime::now());
        self.release(None);
    }

    /// Lets the lock go; its node is deleted, whatever happens. With `wait`, the outcome can be
    /// waited for.
    pub(crate) fn begin_release(&self, wait: bool) -> Release {
        self.begin_release_with(&[], wait)
    }

    /// The same, and with it `others` of the same session are let go: all deletes are on their way
    /// before the first outcome is waited for.
    pub(crate) fn begin_release_with(&self, others: &[HeldNode], wait: bool) -> Release {
        let all = || iter::once(self).chain(others);
        let loss = all().find_map(HeldNode::loss);
        let mut deleted = Vec::new();
        for held_node in all() {
            let (done, outcome) = wait.then(|| bounded(1)).unzip();
            held_node.release(done);
            deleted.extend(outcome);
        }
        Release { loss, deleted, limit: Limit::after(self.generation.operation_timeout()) }
    }

    fn release(&self, done: Option<Sender<Outcome>>) {
        #[cfg(zk_sim)]
        observed::notify(|| News::Released(Observed::new(self)));
        self.is_released.store(true, Ordering::Release);
        self.generation.lease.release(&self.hold);
        let mut removal = self.removal.clone();
        removal.done = done;
        self.generation.remove(removal);
    }
}

impl Drop for HeldNode {
    fn drop(&mut self) {
        if !*self.is_released.get_mut() {
            self.release(None);
        }
    }
}

impl Release {
    /// Of a guard whose node stays: nested, shared, or handed over. Whether its hold was lost
    /// before is only looked up if somebody wants to `wait` for it: that takes a clock and a lock,
    /// and most nested guards are just dropped.
    pub(crate) fn of_guard_only(held_node: &HeldNode, wait: bool) -> Self {
        let loss = if wait { held_node.loss() } else { None };
        Release { loss, deleted: Vec::new(), limit: Limit::NONE }
    }

    /// Says that the hold was lost before, if it was, and otherwise waits for the outcome, if that
    /// was asked for. `path` is that of the node, as its user knows it.
    pub(crate) fn wait(self, path: &str) -> Result<()> {
        let (op, path) = ("unlock", path.to_owned());
        if let Some(reason) = self.loss {
            return Err(Error::Lost { path, reason });
        }
        for deleted in self.deleted {
            match self.limit.recv(&deleted) {
                // Without an answer the session is gone, and the node with it.
                Ended::Got(Ok(())) | Ended::Disconnected | Ended::Cancelled => {}
                Ended::Got(Err(code)) => return Err(error(op, path, CallError::of_code(code))),
                Ended::Deadline => {
                    return Err(Error::Unavailable { op, path, cause: Cause::ConnectionLost });
                }
            }
        }
        Ok(())
    }
}
