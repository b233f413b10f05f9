//! When a request is sent, when it is sent again, and what the end of its call is.

use super::{LONGEST, Requests};
use crate::core::Core;
use crate::error::{Error, Result};
use crate::generation::Generation;
use crate::limit::Limit;
use crate::machine::codec::{CallError, Operation, Reply, error};
use crate::retry::Retry;
use crate::world::Instant;
use std::result::Result as StdResult;
use zk_wire::record::Stat;

impl Requests {
    pub(crate) fn core(&self) -> &Core {
        self.session.core()
    }

    /// The limit of a call that began then.
    pub(crate) fn limit(&self, begun: Instant) -> Limit<'_> {
        let after = self.within.and_then(|time| begun.checked_add(time));
        let deadline = after.into_iter().chain(self.until).min();
        Limit::new(deadline, self.cancel.as_ref())
    }

    /// Sends a read, and again after each lost connection, until there is an answer.
    pub(super) fn read(
        &self,
        op: &'static str,
        path: &str,
        operation: Operation<'_>,
    ) -> Result<Reply> {
        self.attempt(op, path, operation, |generation, limit| {
            match generation.call(operation, limit) {
                // If the time is over, the next attempt finds whether that is an outage.
                Err(CallError::ConnectionLoss | CallError::Expired | CallError::Deadline) => {
                    Ok(None)
                }
                answer => answer.map(Some),
            }
        })
    }

    /// Sends a write, once.
    pub(super) fn write(
        &self,
        op: &'static str,
        path: &str,
        operation: Operation<'_>,
    ) -> Result<Reply> {
        let send = |generation: &Generation, limit: &Limit<'_>| generation.write(operation, limit);
        self.attempt(op, path, operation, send)
    }

    /// Calls `send` whenever there is a connection, until it gives an answer or an error. `None`:
    /// it is to be called again.
    fn attempt(
        &self,
        op: &'static str,
        path: &str,
        operation: Operation<'_>,
        send: impl Fn(&Generation, &Limit<'_>) -> StdResult<Option<Reply>, CallError>,
    ) -> Result<Reply> {
        check_length(&operation)?;
        let (core, begun) = (self.core(), Instant::now());
        let limit = self.limit(begun);
        let retry = Retry::since(begun);
        loop {
            let generation = core.connected(op, path, &limit, &retry)?;
            // A write that is sent now would be done, and its call would end without an answer.
            if limit.is_cancelled() {
                return Err(Error::Cancelled { path: path.to_owned() });
            }
            if limit.is_past() {
                return Err(error(op, path.to_owned(), CallError::Deadline));
            }
            match send(&generation, &limit.of_call(&retry)) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) => core.failed(&retry),
                Err(e) => return Err(error(op, path.to_owned(), e)),
            }
        }
    }
}

/// An error if the request is longer than servers accept: a server would end the connection, which
/// all of the session uses.
pub(crate) fn check_length(operation: &Operation<'_>) -> Result<()> {
    let length = operation.encoded_len();
    if length <= LONGEST {
        return Ok(());
    }
    let reason = format!(
        "it has {length} bytes, and servers accept at most {LONGEST} (jute.maxbuffer); divide it"
    );
    Err(Error::InvalidConfig { what: "request", reason })
}

/// The `Stat` of an answer that has only that.
pub(super) fn stat(op: &'static str, path: &str, reply: Reply) -> Result<Stat> {
    match reply {
        Reply::Stat(stat) => Ok(stat),
        other => Err(unexpected(op, path, &other)),
    }
}

/// The codec decodes each answer by its request. So this happens only for a multi, whose answer
/// says by itself which results it has.
pub(super) fn unexpected(op: &'static str, path: &str, reply: &Reply) -> Error {
    debug!("{op} {path}: the answer is {reply:?}");
    let code = "an answer to another request".to_owned();
    Error::Server { op, path: path.to_owned(), code }
}
