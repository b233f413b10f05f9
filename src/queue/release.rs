//! A hold on its way out, and what came of it.

use std::time::Duration;

use crossbeam_channel::Receiver;

use super::holding::Holding;
use crate::error::{Cause, Error, LossReason, Result};
use crate::limit::{Ended, Limit};
use crate::session::{NO_AUTH, Outcome, ZkSession};

#[must_use = "tell the caller how it went"]
pub(crate) struct Release {
    path: String,
    loss: Option<LossReason>,
    /// Only if somebody wants to wait for it.
    deleted: Option<Receiver<Outcome>>,
    patience: Duration,
}

impl Holding {
    /// Lets the hold go; its node is deleted, whatever happens.
    pub(crate) fn begin_release(&self, wait: bool) -> Release {
        let loss = self.loss();
        let deleted = self.release(wait);
        Release { path: self.path().to_owned(), loss, deleted, patience: self.timeout() / 6 }
    }
}

impl Release {
    /// Says that the hold was lost before, if it was, and otherwise waits for the outcome, if that was asked for.
    pub(crate) fn wait(self, session: &ZkSession) -> Result<()> {
        let (op, path) = ("unlock", session.core().shown(&self.path).to_owned());
        if let Some(reason) = self.loss {
            return Err(Error::Lost { path, reason });
        }
        let Some(deleted) = self.deleted else { return Ok(()) };
        match Limit::after(self.patience).recv(&deleted) {
            // Without an answer the session is gone, and the node with it.
            Ended::Got(Ok(())) | Ended::Disconnected | Ended::Cancelled => Ok(()),
            Ended::Got(Err(code)) if code == NO_AUTH => Err(Error::NoAuth { op, path }),
            Ended::Got(Err(code)) => Err(Error::Server { op, path, code: code.to_string() }),
            Ended::Deadline => Err(Error::Unavailable { op, path, cause: Cause::ConnectionLost }),
        }
    }
}
