//! One candidate's way to leadership, over and over: through outages and lost sessions, with one
//! node at a time.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use super::leadership::{HeldTerm, Leadership};
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::fencing::FencingToken;
use crate::limit::{Ended, Limit};
use crate::local::registry::Interned;
use crate::queue::call::error;
use crate::queue::name::Kind;
use crate::queue::{HeldNode, Mode, Queue, QueueRequest};
use crate::session::ZkSession;
use crate::session::core::Core;
use crate::session::generation::CallError;
use crate::session::retry::Retry;
use crate::world::{HashSet, Instant, Mutex, never};

/// Between two looks at a node whose create may still be on its way; twice as long each time.
const PAUSE: Duration = Duration::from_millis(5);

/// What a candidate is, to the server.
#[derive(Clone)]
pub(super) struct Campaign {
    pub(super) session: ZkSession,
    /// As the user gave it.
    pub(super) path: String,
    pub(super) id: Vec<u8>,
    pub(super) shared: Arc<Interned<SharedElection>>,
}

/// What all elections of one path on one session share. (A type of its own: by it other recipes are
/// kept off the path.)
pub(super) struct SharedElection {
    pub(super) queue: Queue,
}

impl Campaign {
    /// Queues until it leads, whatever happens on the way. `on_blocked` hears whether the server
    /// shows somebody ahead, `on_trouble` what went wrong and is tried again.
    ///
    /// Ends with an error only if trying again cannot help: cancelled, closed, no right to be
    /// there.
    pub(super) fn elect(
        &self,
        cancel: &CancelToken,
        created_nodes: &CreatedNodes,
        on_blocked: &dyn Fn(bool),
        on_trouble: &dyn Fn(&Error),
    ) -> Result<(HeldTerm, FencingToken)> {
        let limit = Limit::cancelled_by(cancel);
        let (mut told, mut refusals) = (None, 0);
        loop {
            if cancel.is_cancelled() {
                return Err(Error::Cancelled { path: self.path.clone() });
            }
            let acquired = self.shared.queue.acquire(&QueueRequest {
                core: self.session.core(),
                kind: Kind::Latch,
                mode: Mode::Wait,
                limit,
                on_overdue: Some(on_trouble),
                contended: false,
                data: &self.id,
                on_id: &|id| created_nodes.add(self.session.core(), id),
                on_blocked,
                on_loss: &|| Box::new(|| ()),
            });
            let elected = match acquired {
                Ok(node) => Ok(node.and_then(|node| self.begin(node))),
                Err(e) => Err(e),
            };
            match elected {
                Ok(Some(elected)) => return Ok(elected),
                Ok(None) => {} // lost before it began
                Err(e @ (Error::Unavailable { .. } | Error::Server { .. })) => {
                    if told.as_ref() != Some(&e) {
                        warn!("election {}: {e}; trying on", self.path);
                        told = Some(e.clone());
                    }
                    on_trouble(&e);
                    // An outage ends by itself. For what the server refuses somebody must do
                    // something first, and each attempt makes and deletes a node: less and less
                    // often.
                    refusals = if matches!(e, Error::Server { .. }) { refusals + 1 } else { 0 };
                    self.pause(refusals, &limit)?;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Makes a hold a term. `None`: the hold is lost.
    fn begin(&self, node: HeldNode) -> Option<(HeldTerm, FencingToken)> {
        let path = self.session.core().shown(node.path()).to_owned();
        let token = FencingToken::new(node.leased().czxid(), 0);
        let term = HeldTerm::new(node, path.clone());
        if !term.node().is_held() {
            return None;
        }
        term.node().ask_for_watch();
        info!("{path}: elected, token {token}");
        Some((term, token))
    }

    /// T/8; behind so many refusals in a row twice as long for each but the first, up to 8 T.
    fn pause(&self, refusals: u32, limit: &Limit<'_>) -> Result<()> {
        let until =
            Instant::now() + self.session.timeout() / 8 * (1 << refusals.saturating_sub(1).min(6));
        match limit.or_at(until).recv(&never::<Infallible>()) {
            Ended::Cancelled => Err(Error::Cancelled { path: self.path.clone() }),
            _ => Ok(()),
        }
    }

    /// Stands for election until `lead` has had enough.
    pub(super) fn run<T>(
        &self,
        cancel: &CancelToken,
        mut lead: impl FnMut(&Leadership) -> ControlFlow<T>,
    ) -> Result<T> {
        let created_nodes = CreatedNodes::default();
        loop {
            // Ends the term when it goes, be it by a panic.
            let (term, _) = self.elect(cancel, &created_nodes, &|_| (), &|_| ())?;
            let leadership = term.view();
            if cancel.is_cancelled() {
                return Err(Error::Cancelled { path: self.path.clone() });
            }
            // The last look before the call.
            if !leadership.is_held() {
                continue;
            }
            if let ControlFlow::Break(value) = lead(&leadership) {
                return Ok(value);
            }
        }
    }
}

/// The nodes that one contender has made in its time, by their ids, but for those that have long
/// been gone.
#[derive(Default)]
pub(super) struct CreatedNodes(Mutex<HashSet<String>>);

impl CreatedNodes {
    /// A node with this id is about to be made.
    pub(super) fn add(&self, core: &Core, id: &str) {
        let pending =
            core.generation().map(|generation| generation.pending_deletes()).unwrap_or_default();
        let mut ids = self.0.lock();
        ids.retain(|id| pending.contains(id));
        ids.insert(id.to_owned());
    }

    /// Waits until all that should go is gone. A session that is lost takes its nodes with it.
    pub(super) fn until_gone(&self, campaign: &Campaign) -> Result<()> {
        let (core, path) = (campaign.session.core(), campaign.path.as_str());
        let limit = &Limit::after(campaign.session.timeout() / 6);
        let Some(generation) = core.generation() else { return Ok(()) };
        let going = &*generation.pending_deletes() & &*self.0.lock();
        let dir = [core.chroot(), path].concat();
        let (mut pause, retry) = (PAUSE, Retry::enduring());
        while !generation.lease.is_over() && !going.is_disjoint(&generation.pending_deletes()) {
            // The connection sends what it has to do in order. So once a write of its own is
            // acknowledged the deletes before that are mostly done; the loop looks again.
            match core.connected("leave", path, limit, &retry) {
                Ok(generation) => drop(generation.prove(&dir, limit)),
                Err(Error::Closed { .. }) => return Ok(()),
                Err(e) => return Err(e),
            }
            if limit.is_past() {
                return Err(error("leave", path.to_owned(), CallError::ConnectionLoss));
            }
            if !going.is_disjoint(&generation.pending_deletes()) {
                limit.or_at(Instant::now() + pause).recv(&never::<Infallible>());
                pause *= 2;
            }
        }
        Ok(())
    }
}
