//! A semaphore's permits: the children of one znode. At most as many are held as the semaphore's
//! number says. (The folder and the nodes at the server have `lease` in their names. That is
//! Curator's word for a permit, and its protocol.)
//!
//! `count.rs` knows the number, `taking.rs` takes permits for a caller that holds the semaphore's
//! mutex.

mod count;
mod taking;

use std::sync::Arc;

pub(crate) use self::count::{Count, Number};
use crate::error::{Error, Result};
use crate::queue::ContenderNode;
use crate::queue::request::until_done;
use crate::queue::snapshot::Children;
use crate::queue::{Contender, Request, Step, Stop, name, query};
use zk_session::Acl;
use zk_session::unstable::{
    Answers, CallError, Core, Generation, Limit, Listing, Node, Operation, Reply,
};
use zk_session::world::HashSet;
use zk_wire::path;

/// The permits' folder at the server, below the semaphore's node.
pub(super) const FOLDER: &str = "leases";

pub(crate) struct Permits {
    pub(crate) count: Arc<Count>,
    /// The full path of the permits' parent.
    dir: String,
    acl: Acl,
}

/// The error for a request for more permits than there are.
pub(crate) fn too_many(path: &str, wanted: u32, permits: u32) -> Error {
    let reason = match permits {
        0 => format!(
            "{wanted} at once cannot be had while {path:?} is paused: its number of permits is 0; raise it with set_permits(), or wait for 1"
        ),
        _ => {
            format!(
                "{wanted} at once are more than {path:?} has, which is {permits}; ask for fewer"
            )
        }
    };
    Error::InvalidConfig { what: "permits", reason }
}

impl Permits {
    /// `dir`: the semaphore's full path.
    pub(crate) fn new(dir: &str, acl: Acl, count: Arc<Count>) -> Self {
        Permits { count, dir: path::join(dir, FOLDER), acl }
    }

    /// The full path of the permits' parent.
    pub(crate) fn dir(&self) -> &str {
        &self.dir
    }

    /// Before a caller that only tries: two reads show whether fewer than `number` permits are
    /// free, so that nothing is written then. They travel behind a `sync`, because no write of this
    /// call goes before them.
    pub(crate) fn is_full(&self, request: &Request<'_>, number: u32) -> Result<bool> {
        let is_full = until_done(&|_| (), || {
            let generation = request.connected()?;
            let counted = generation.synced(&self.count_requests(false), &request.limit());
            let answers = counted.map_err(|e| request.stop(&self.dir, e))?;
            let room = self.room_of(request, &generation, &[], false, answers, 0)?;
            let is_full = room.is_none_or(|room| room < i64::from(number));
            if is_full {
                request.call.found_contention();
            }
            Ok(is_full)
        })?;
        // None: the deadline has passed, and the permits were seen taken.
        Ok(is_full.unwrap_or(true))
    }

    /// The number at the server. If there is none, `given`, the caller's, is written there. `limit`
    /// is for all of it.
    pub(crate) fn number(
        &self,
        op: &'static str,
        core: &Core,
        given: u32,
        limit: &Limit<'_>,
    ) -> Result<Number> {
        let path = self.count.path();
        query(op, core, path, limit, |generation, limit, _| {
            self.count.get(generation, given, false, limit)
        })
    }

    /// Writes the number. False: the node's data belongs to somebody else.
    pub(crate) fn set_number(&self, core: &Core, number: u32, limit: &Limit<'_>) -> Result<bool> {
        query("set_permits", core, self.count.path(), limit, |generation, limit, _| {
            self.count.set(generation, number, limit)
        })
    }

    /// The permits among these children of their folder, in the order in which they were made: the
    /// holders' nodes.
    ///
    /// The contender that is first in the queue makes its node before it holds a permit. Where
    /// there is one permit, that node comes right after the holder's, and its maker is listed as a
    /// contender that waits.
    pub(crate) fn holders(&self, core: &Core, mut nodes: Children) -> Vec<Contender> {
        nodes.sort_by_key(|(_, node)| node.stat.czxid);
        if self.count.is_fixed() {
            nodes.truncate(1);
        }
        let holder = |(name, node): (String, Node)| {
            Contender::of(core.shown(&path::join(&self.dir, &name)), false, node)
        };
        nodes.into_iter().map(holder).collect()
    }

    /// The requests that show how many permits are free: the listing, and behind it the number. In
    /// this order a number that was lowered before a permit came free is always seen. `watch` sets
    /// watches on both.
    fn count_requests(&self, watch: bool) -> [Operation<'_>; 2] {
        let listing = Operation::GetChildren { path: &self.dir, watch };
        let number = Operation::GetData { path: self.count.path(), watch };
        [listing, number]
    }

    /// How many permits are free, with `own` counted as taken; negative if there are too many.
    /// `None`: one of `own` is not listed. The creates of `own` were acknowledged before, so this
    /// needs no `sync`.
    fn room(
        &self,
        request: &Request<'_>,
        generation: &Generation,
        own: &[ContenderNode],
        watch: bool,
    ) -> Step<Option<i64>> {
        let requests = self.count_requests(watch).map(|request| (request, None));
        let counted = generation.flight(&requests, &request.limit());
        let answers = counted.map_err(|e| request.stop(&self.dir, e))?;
        self.room_of(request, generation, own, watch, answers, 0)
    }

    /// The same, from `answers` to `count_requests`; the first of them is at `at`.
    fn room_of(
        &self,
        request: &Request<'_>,
        generation: &Generation,
        own: &[ContenderNode],
        watch: bool,
        mut answers: Answers,
        at: usize,
    ) -> Step<Option<i64>> {
        let children = match answers.listed(at) {
            Ok(listed) => listed.children,
            Err(CallError::NoNode) => Listing::default(),
            Err(e) => return Err(request.stop(&self.dir, e)),
        };
        // Any other child counts as a permit, as it does for Curator.
        let is_pending = |child: &&str| answers.pending.contains(name::permit_id(child));
        let counted: HashSet<&str> =
            children.names().into_iter().filter(|child| !is_pending(child)).collect();
        if !own.iter().all(|contender| counted.contains(contender.name())) {
            return Ok(None);
        }
        let count = match answers.take(at + 1).and_then(Reply::node) {
            Ok(node) => self.count.said(&node),
            // Nothing but a permit needs the folder.
            Err(CallError::NoNode) if self.count.is_fixed() => {
                Some(Number { permits: self.count.known(), is_set: false })
            }
            Err(CallError::NoNode) => None,
            Err(e) => return Err(request.stop(self.count.path(), e)),
        };
        let count = count.map_or_else(
            || self.count.get(generation, self.count.known(), watch, &request.limit()),
            Ok,
        );
        let count = count.map_err(|e| request.stop(self.count.path(), e))?.permits;
        if self.count.is_fixed() && count != self.count.known() {
            let path = request.settings.path.clone();
            let (ours, theirs) = (self.count.known(), count);
            return Err(Stop::Fail(Error::InconsistentPermits { path, ours, theirs }));
        }
        // A request for one permit may wait until the number is raised from 0. A request for more
        // permits than the number would never be granted, and its nodes would keep all others
        // waiting.
        if own.len() > 1 && own.len() > count as usize {
            let wanted = u32::try_from(own.len()).unwrap_or(u32::MAX);
            return Err(Stop::Fail(too_many(&request.settings.path, wanted, count)));
        }
        let used = i64::try_from(counted.len()).unwrap_or(i64::MAX);
        Ok(Some(i64::from(count).saturating_sub(used)))
    }
}
