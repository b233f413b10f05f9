//! A semaphore's leases: the children of one znode, as many held as the semaphore's number says.

mod count;
mod taking;

use std::cell::Cell;
use std::sync::Arc;

pub(crate) use self::count::Count;
use self::taking::Taking;
use super::failure::{failure, failure_of};
use super::name;
use super::ticket::Ticket;
use super::{Contender, Holding, Mode};
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::session::SessionState;
use crate::session::acl::Acl;
use crate::session::bell::Bells;
use crate::session::core::Core;
use crate::session::generation::{Answers, CallError, Generation, Listing, Node, Operation, Reply, Settle};
use crate::session::path;
use crate::session::retry::Retry;
use crate::world::HashSet;

pub(crate) struct Leases {
    pub(crate) count: Arc<Count>,
    /// The full path of the leases' parent.
    dir: String,
    acl: Acl,
}

/// What one request for leases brings along.
pub(crate) struct Want<'a> {
    pub(crate) core: &'a Core,
    /// All of these or none.
    pub(crate) number: u32,
    pub(crate) mode: Mode,
    pub(crate) limit: Limit<'a>,
    pub(crate) data: &'a [u8],
    /// The server has shown that too few are free.
    pub(crate) seen_full: &'a Cell<bool>,
    pub(crate) retry: &'a Retry,
}

/// How a request ended that held the mutex.
pub(crate) enum Taken {
    Leases(Vec<Holding>),
    /// Too few are free, and the request goes no further.
    Full,
    /// The mutex is lost, or the session: take it again.
    Anew,
}

/// Why a step did not lead on.
enum Stop {
    Full,
    Fail(Error),
    /// The connection was lost: count again.
    Again,
    /// Our nodes are no good any more: make them again, at the same place in the queue.
    Remake,
    Anew,
}

type Step<T> = std::result::Result<T, Stop>;

/// More permits are wanted than there are.
pub(crate) fn too_many(path: &str, wanted: u32, permits: u32) -> Error {
    let reason = format!("{wanted} are more than {path:?} has, which is {permits}");
    Error::InvalidConfig { what: "number of permits", reason }
}

impl Leases {
    /// `dir`: the semaphore's full path.
    pub(crate) fn new(dir: &str, acl: Acl, count: Arc<Count>) -> Self {
        Leases { count, dir: path::join(dir, "leases"), acl }
    }

    /// Takes leases, for who holds the mutex; `losses` rings when that is lost.
    pub(crate) fn take(&self, want: &Want<'_>, mutex: &Holding, losses: &Bells<()>) -> Result<Taken> {
        match Taking::new(self, want, mutex, losses).run() {
            Ok(leases) => Ok(Taken::Leases(leases)),
            Err(Stop::Full) => Ok(Taken::Full),
            Err(Stop::Fail(e)) => Err(e),
            Err(Stop::Again | Stop::Remake | Stop::Anew) => Ok(Taken::Anew),
        }
    }

    /// For those who only try: two reads, and no write while too few are free.
    pub(crate) fn is_full(&self, want: &Want<'_>) -> Result<bool> {
        loop {
            let generation = self.connected(want)?;
            match self.room(want, &generation, &[], false) {
                Ok(room) => {
                    let is_full = room.is_none_or(|room| room < i64::from(want.number));
                    want.seen_full.set(want.seen_full.get() || is_full);
                    return Ok(is_full);
                }
                Err(Stop::Fail(e)) => return Err(e),
                Err(Stop::Full) => return Ok(true),
                Err(Stop::Again | Stop::Remake | Stop::Anew) => {}
            }
        }
    }

    /// The number at the server. `limit` is for all of it.
    pub(crate) fn permits(&self, core: &Core, limit: &Limit<'_>) -> Result<u32> {
        self.in_time(core, limit, |generation| self.count.get(generation, false, limit))
    }

    /// Changes the number. False: the node's data is something else.
    pub(crate) fn set_permits(&self, core: &Core, number: u32, limit: &Limit<'_>) -> Result<bool> {
        self.in_time(core, limit, |generation| self.count.set(generation, number, limit))
    }

    /// The leases there are, in the order in which they were made. `limit` is for the connection; each request has a time of its own,
    /// since there may be many.
    pub(crate) fn contenders(&self, core: &Core, limit: &Limit<'_>) -> Result<Vec<Contender>> {
        self.in_time(core, limit, |generation| {
            let children = match generation.children(&self.dir, false, &Limit::NONE) {
                Err(CallError::NoNode) => Listing::default(),
                listed => listed?.children,
            };
            let mut all = Vec::new();
            for name in children.names() {
                match generation.read(&path::join(&self.dir, name), false, &Limit::NONE) {
                    Err(CallError::NoNode) => {}
                    node => all.push((node?, name.to_owned())),
                }
            }
            all.sort_by_key(|(node, _)| node.stat.czxid);
            let contender = |(node, name): (Node, String)| Contender {
                reads: false,
                sequence: name::number(&name),
                name,
                session_id: node.stat.owner,
                created: node.created(),
                data: node.data,
            };
            Ok(all.into_iter().map(contender).collect())
        })
    }

    /// Asks again after a lost connection, as long as the limit allows.
    fn in_time<T>(
        &self,
        core: &Core,
        limit: &Limit<'_>,
        ask: impl Fn(&Arc<Generation>) -> std::result::Result<T, CallError>,
    ) -> Result<T> {
        let (op, root, retry) = ("semaphore", self.count.path(), Retry::new());
        loop {
            let generation = core.connected(op, core.shown(root), limit, &retry)?;
            match ask(&generation) {
                Err(CallError::ConnectionLoss | CallError::Expired) if !limit.is_past() => {
                    core.failed(&retry)
                }
                done => return done.map_err(|e| failure_of(op, core, root, e)),
            }
        }
    }

    /// The requests that show how many leases are free: the listing, and behind it the number. So one
    /// that was lowered before a lease came free is never missed. `watch` leaves watches on both.
    fn count_requests(&self, watch: bool) -> [(Operation<'_>, Settle); 2] {
        let listing = Operation::GetChildren { path: &self.dir, watch };
        let number = Operation::GetData { path: self.count.path(), watch };
        [(listing, Settle::Nothing), (number, Settle::Nothing)]
    }

    /// How many leases are free, `own` counted as taken: negative where there are too many. `None`: one
    /// of `own` is not listed.
    fn room(
        &self,
        want: &Want<'_>,
        generation: &Arc<Generation>,
        own: &[Ticket],
        watch: bool,
    ) -> Step<Option<i64>> {
        let counted = generation.flight(&self.count_requests(watch), &want.limit);
        let answers = counted.map_err(|e| self.stop(want, &self.dir, e))?;
        self.room_of(want, generation, own, watch, answers, 0)
    }

    /// The same, of these answers to `count_requests`, of which the first is at `at`.
    fn room_of(
        &self,
        want: &Want<'_>,
        generation: &Arc<Generation>,
        own: &[Ticket],
        watch: bool,
        mut answers: Answers,
        at: usize,
    ) -> Step<Option<i64>> {
        let children = match answers.listed(at) {
            Ok(listed) => listed.children,
            Err(CallError::NoNode) => Listing::default(),
            Err(e) => return Err(self.stop(want, &self.dir, e)),
        };
        // Whatever else is there counts as a lease, as it does for Curator.
        let is_pending = |child: &&str| answers.pending.contains(name::lease_id(child));
        let standing: HashSet<&str> =
            children.names().into_iter().filter(|child| !is_pending(child)).collect();
        if !own.iter().all(|ticket| standing.contains(ticket.name())) {
            return Ok(None);
        }
        let count = match answers.take(at + 1).and_then(Reply::node) {
            Ok(node) => self.count.said(&node),
            Err(CallError::NoNode) => None,
            Err(e) => return Err(self.stop(want, self.count.path(), e)),
        };
        let count = match count.map_or_else(|| self.count.get(generation, watch, &want.limit), Ok) {
            Ok(count) => count,
            Err(e) => return Err(self.stop(want, self.count.path(), e)),
        };
        if self.count.is_fixed() && count != self.count.known() {
            let path = want.core.shown(self.count.path()).to_owned();
            let (ours, theirs) = (self.count.known(), count);
            return Err(Stop::Fail(Error::InconsistentLeases { path, ours, theirs }));
        }
        // One may wait until there are any; several, that there cannot be any more, would keep everybody else waiting.
        if own.len() > 1 && own.len() > count as usize {
            return Err(Stop::Fail(too_many(want.core.shown(self.count.path()), want.number, count)));
        }
        let used = i64::try_from(standing.len()).unwrap_or(i64::MAX);
        Ok(Some(i64::from(count).saturating_sub(used)))
    }

    fn connected(&self, want: &Want<'_>) -> Result<Arc<Generation>> {
        want.core.connected("lock", want.core.shown(self.count.path()), &want.limit, want.retry)
    }

    /// `path`: the node that was asked for.
    fn stop(&self, want: &Want<'_>, path: &str, e: CallError) -> Stop {
        let core = want.core;
        if matches!(e, CallError::ConnectionLoss | CallError::Expired) {
            core.failed(want.retry);
        }
        Stop::Fail(match e {
            CallError::ConnectionLoss => return Stop::Again,
            CallError::Expired => return Stop::Anew,
            // Contention only if the server has shown it, and an outage is not what kept us since.
            CallError::Deadline if want.seen_full.get() && core.state() == SessionState::Connected => {
                return Stop::Full;
            }
            CallError::Deadline | CallError::Cancelled => failure(core, self.count.path(), e),
            e => failure(core, path, e),
        })
    }
}
