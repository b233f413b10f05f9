//! One call of a user: how long it waits for the servers, and what a request that failed means to
//! it.

use std::cell::Cell;
use std::result::Result as StdResult;
use std::sync::Arc;

use crate::error::{Cause, Error, Result};
use crate::limit::{Ended, Limit};
use crate::session::SessionState;
use crate::session::core::Core;
use crate::session::generation::{CallError, Generation};
use crate::session::lease::Refused;
use crate::session::notifier::Notifier;
use crate::session::retry::Retry;
use crate::world::Instant;

/// A call that takes a lock and may wait for it: in a queue, for leases, or for the one node of an
/// exclusive lock.
pub(crate) struct Call<'a> {
    pub(crate) core: &'a Core,
    /// The full path that it names in its errors, unless a node of its own was refused.
    pub(crate) path: &'a str,
    pub(crate) limit: Limit<'a>,
    retry: Retry,
    /// The server, or another thread of this process, has shown that somebody else was ahead.
    pub(crate) is_contended: Cell<bool>,
}

/// Why a step did not lead on.
pub(crate) enum Stop {
    /// Others have what the call wants, and it goes no further.
    Busy,
    Fail(Error),
    /// The connection was lost: ask the server again.
    Again,
    /// The call's own node is gone, or its session: begin anew.
    Anew,
}

pub(crate) type Step<T> = StdResult<T, Stop>;

impl<'a> Call<'a> {
    pub(crate) fn new(core: &'a Core, path: &'a str, limit: Limit<'a>, is_contended: bool) -> Self {
        Call { core, path, limit, retry: Retry::new(), is_contended: Cell::new(is_contended) }
    }

    /// Goes on without an end, whatever the retry policy says.
    pub(crate) fn enduring(self) -> Self {
        Call { retry: Retry::enduring(), ..self }
    }

    /// The session, once it is connected.
    pub(crate) fn connected(&self) -> Step<Arc<Generation>> {
        let path = self.core.shown(self.path);
        self.core.connected("lock", path, &self.limit, &self.retry).map_err(Stop::Fail)
    }

    /// Waits until that session is connected, in which the call has made its node.
    pub(crate) fn connected_still(&self, generation: &Generation) -> Step<()> {
        if self.connected()?.number == generation.number { Ok(()) } else { Err(Stop::Anew) }
    }

    /// Whether watches that were set on the connection `epoch` still stand, as far as is known.
    pub(crate) fn is_undisturbed(&self, generation: &Generation, epoch: u64) -> bool {
        // A later session may be connected already; nothing stands of an earlier one then.
        self.core.state() == SessionState::Connected
            && generation.epoch() == epoch
            && !generation.lease.is_over()
    }

    /// The call has got further: its node is made, its watches stand, what it waited for has
    /// happened.
    pub(crate) fn progress(&self) {
        self.retry.progress();
    }

    /// If it has made no progress for as long as the retry policy allows another call, says so.
    pub(crate) fn overdue(&self) -> Option<Error> {
        let cause = self.core.overdue(&self.retry)?;
        let path = self.core.shown(self.path).to_owned();
        Some(Error::Unavailable { op: "lock", path, cause })
    }

    /// Waits for a notification; gives the mask. `None`: `until` came first.
    pub(crate) fn wait(
        &self,
        generation: &Generation,
        notifier: &Notifier,
        until: Instant,
    ) -> Step<Option<u8>> {
        match generation.wait(notifier, &self.limit.or_at(until)) {
            Ended::Got(events) => Ok(Some(events)),
            Ended::Deadline if !self.limit.is_past() => Ok(None),
            Ended::Deadline | Ended::Disconnected => Err(self.stop(self.path, CallError::Deadline)),
            Ended::Cancelled => Err(self.stop(self.path, CallError::Cancelled)),
        }
    }

    /// A node of this session was not granted the lock: renews the lease, where that can help.
    /// `dir` is a directory of our locks.
    pub(crate) fn renew(&self, refused: &Refused, generation: &Generation, dir: &str) -> Step<()> {
        match refused {
            Refused::Stale => generation.prove(dir, &self.limit).map_err(|e| self.stop(dir, e)),
            Refused::Over(_) => Err(self.stop(dir, CallError::Expired)),
        }
    }

    /// What it means that a request of this node has failed.
    pub(crate) fn stop(&self, path: &str, e: CallError) -> Stop {
        let core = self.core;
        if matches!(e, CallError::ConnectionLoss | CallError::Expired) {
            core.failed(&self.retry);
        }
        match e {
            CallError::ConnectionLoss => Stop::Again,
            CallError::Expired => Stop::Anew,
            // Contention only if the server has shown it, and an outage is not what kept us since.
            CallError::Deadline
                if self.is_contended.get() && core.state() == SessionState::Connected =>
            {
                Stop::Busy
            }
            CallError::Deadline | CallError::Cancelled => {
                Stop::Fail(failure("lock", core, self.path, e))
            }
            e => Stop::Fail(failure("lock", core, path, e)),
        }
    }
}

/// Sends requests that wait for no lock: again after a lost connection, as long as the limit and
/// the retry policy allow. `path`, a full one, is what an error names, unless `requests` set it to
/// another.
pub(crate) fn ask<T>(
    op: &'static str,
    core: &Core,
    path: &str,
    limit: &Limit<'_>,
    mut requests: impl FnMut(&Generation, &mut String) -> StdResult<T, CallError>,
) -> Result<T> {
    let retry = Retry::new();
    loop {
        let generation = core.connected(op, core.shown(path), limit, &retry)?;
        let mut at = path.to_owned();
        match requests(&generation, &mut at) {
            Err(CallError::ConnectionLoss | CallError::Expired) if !limit.is_past() => {
                core.failed(&retry)
            }
            done => return done.map_err(|e| failure(op, core, &at, e)),
        }
    }
}

/// What a request that failed means to the user; `path` is a full one.
pub(crate) fn failure(op: &'static str, core: &Core, path: &str, e: CallError) -> Error {
    error(op, core.shown(path).to_owned(), e)
}

/// The same, of a path as its user knows it.
pub(crate) fn error(op: &'static str, path: String, e: CallError) -> Error {
    let unavailable = |cause| Error::Unavailable { op, path: path.clone(), cause };
    match e {
        CallError::ConnectionLoss | CallError::Expired => unavailable(Cause::ConnectionLost),
        CallError::Deadline => unavailable(Cause::Deadline),
        CallError::Cancelled => Error::Cancelled { path },
        CallError::NoAuth => Error::NoAuth { op, path },
        CallError::AuthFailed => Error::Auth { op, path },
        CallError::NoNode => Error::Server { op, path, code: "NoNode".into() },
        CallError::NodeExists => Error::Server { op, path, code: "NodeExists".into() },
        CallError::BadVersion => Error::Server { op, path, code: "BadVersion".into() },
        CallError::Other(code) => Error::Server { op, path, code },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SessionEvent, ZkSession};
    use std::time::Duration;
    use zk_test_server::TestServer;

    /// It sleeps, as on a busy computer, until its session is lost and the next one is connected.
    /// On the old connection no event can come any more: it must not go on waiting for one.
    #[test]
    fn a_waiter_that_wakes_in_the_next_session_finds_its_watches_gone() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(&server.connect_string()).unwrap();
        let (events, core) = (session.subscribe(), session.core());
        let call = Call::new(core, "/locks/orders", Limit::NONE, false);
        let old = core.generation().unwrap();
        let epoch = old.epoch();
        assert!(call.is_undisturbed(&old, epoch));
        assert!(server.expire_session(old.session_id().unwrap()));
        let soon = Duration::from_secs(20);
        while !matches!(events.recv_timeout(soon).unwrap(), SessionEvent::Connected { .. }) {}
        assert_eq!((core.state(), old.epoch()), (SessionState::Connected, epoch));
        assert!(!call.is_undisturbed(&old, epoch));
    }
}
