//! One candidate's way to leadership, over and over: through outages and lost sessions, with one
//! node at a time.

use std::convert::Infallible;
use std::sync::Arc;

use super::created_nodes::CreatedNodes;
use super::leadership::HeldTerm;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::fencing::FencingToken;
use crate::limit::{Ended, Limit};
use crate::local::registry::Interned;
use crate::queue::name::Kind;
use crate::queue::{HeldNode, Mode, Queue, QueueRequest};
use crate::session::ZkSession;
use crate::world::{Instant, never};

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

    /// Waits until the server has none of these nodes any more that should go.
    pub(super) fn until_gone(&self, created_nodes: &CreatedNodes) -> Result<()> {
        let limit = Limit::after(self.session.core().operation_timeout());
        created_nodes.until_gone(self.session.core(), &self.path, &limit)
    }
}
