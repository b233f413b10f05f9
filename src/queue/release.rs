//! A hold on its way out, and what came of it.

use super::holding::Holding;
use crate::error::{ANSWER_TOO_LONG, Cause, Error, LossReason, Result};
use crate::limit::{Ended, Limit};
use crate::session::generation::Outcome;
use crate::wire::code::err::{NO_AUTH, TOO_LONG};
use crate::world::Receiver;

/// The end of a guard, begun: several may be begun before the first is waited for.
#[must_use = "tell the caller how it went"]
pub(crate) struct Release {
    loss: Option<LossReason>,
    /// Only if somebody wants to wait for it.
    deleted: Option<Receiver<Outcome>>,
    limit: Limit<'static>,
}

impl Holding {
    /// Lets the hold go; its node is deleted, whatever happens.
    pub(crate) fn begin_release(&self, wait: bool) -> Release {
        let loss = self.loss();
        let deleted = self.release(wait);
        Release { loss, deleted, limit: Limit::after(self.timeout() / 6) }
    }
}

impl Release {
    /// Of a guard whose node stays: nested, shared, or handed over. Whether its hold was lost before
    /// is only looked up if somebody wants to `wait` for it: that takes a clock and a lock, and
    /// most nested guards are just dropped.
    pub(crate) fn of_guard_only(holding: &Holding, wait: bool) -> Self {
        let loss = if wait { holding.loss() } else { None };
        Release { loss, deleted: None, limit: Limit::NONE }
    }

    /// Says that the hold was lost before, if it was, and otherwise waits for the outcome, if that was asked for. `path` is that of the
    /// node, as its user knows it.
    pub(crate) fn wait(self, path: &str) -> Result<()> {
        let (op, path) = ("unlock", path.to_owned());
        if let Some(reason) = self.loss {
            return Err(Error::Lost { path, reason });
        }
        let Some(deleted) = self.deleted else { return Ok(()) };
        match self.limit.recv(&deleted) {
            // Without an answer the session is gone, and the node with it.
            Ended::Got(Ok(())) | Ended::Disconnected | Ended::Cancelled => Ok(()),
            Ended::Got(Err(code)) if code == NO_AUTH => Err(Error::NoAuth { op, path }),
            Ended::Got(Err(code)) if code == TOO_LONG => {
                Err(Error::Server { op, path, code: ANSWER_TOO_LONG.to_owned() })
            }
            Ended::Got(Err(code)) => Err(Error::Server { op, path, code: code.to_string() }),
            Ended::Deadline => Err(Error::Unavailable { op, path, cause: Cause::ConnectionLost }),
        }
    }
}
