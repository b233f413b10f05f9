//! A semaphore's leases: the children of one znode, as many held as the semaphore's number says.

mod count;
mod taking;

use std::sync::Arc;

pub(crate) use self::count::Count;
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::queue::contender_node::ContenderNode;
use crate::queue::{Call, Contender, Mode, Step, Stop, name, query};
use crate::session::acl::Acl;
use crate::session::core::Core;
use crate::session::generation::{
    Answers, CallError, Generation, Listing, Node, Operation, Removal, Reply,
};
use crate::world::HashSet;
use zk_wire::path;

pub(crate) struct Leases {
    pub(crate) count: Arc<Count>,
    /// The full path of the leases' parent.
    dir: String,
    acl: Acl,
}

/// What one request for leases brings along.
pub(crate) struct Want<'a> {
    pub(crate) call: &'a Call<'a>,
    /// All of these or none.
    pub(crate) number: u32,
    pub(crate) mode: Mode,
    pub(crate) data: &'a [u8],
}

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

    /// For those who only try: two reads, and no write while too few are free.
    pub(crate) fn is_full(&self, want: &Want<'_>) -> Result<bool> {
        loop {
            let room = want
                .call
                .connected()
                .and_then(|generation| self.room(want, &generation, &[], false));
            match room {
                Ok(room) => {
                    let is_full = room.is_none_or(|room| room < i64::from(want.number));
                    want.call.is_contended.set(want.call.is_contended.get() || is_full);
                    return Ok(is_full);
                }
                Err(Stop::Fail(e)) => return Err(e),
                Err(Stop::Busy) => return Ok(true),
                Err(Stop::Again | Stop::Anew) => {}
            }
        }
    }

    /// The number at the server. `told`: what the caller was told, which is written where there is
    /// none. `limit` is for all of it.
    pub(crate) fn permits(
        &self,
        op: &'static str,
        core: &Core,
        told: u32,
        limit: &Limit<'_>,
    ) -> Result<u32> {
        let path = self.count.path();
        query(op, core, path, limit, |generation, _| self.count.get(generation, told, false, limit))
    }

    /// Changes the number. False: the node's data is something else.
    pub(crate) fn set_permits(&self, core: &Core, number: u32, limit: &Limit<'_>) -> Result<bool> {
        query("semaphore", core, self.count.path(), limit, |generation, _| {
            self.count.set(generation, number, limit)
        })
    }

    /// The leases there are, in the order in which they were made.
    pub(crate) fn contenders(&self, core: &Core) -> Result<Vec<Contender>> {
        // This is the time for the connection. Each request has a time of its own, since there may
        // be many.
        let limit = &Limit::after(core.operation_timeout());
        query("semaphore", core, self.count.path(), limit, |generation, _| {
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
            let contender = |(node, name): (Node, String)| {
                Contender::of(&name, false, name::number(&name), node)
            };
            Ok(all.into_iter().map(contender).collect())
        })
    }

    /// The requests that show how many leases are free: the listing, and behind it the number. So
    /// one that was lowered before a lease came free is never missed. `watch` leaves watches on
    /// both.
    fn count_requests(&self, watch: bool) -> [(Operation<'_>, Option<Removal>); 2] {
        let listing = Operation::GetChildren { path: &self.dir, watch };
        let number = Operation::GetData { path: self.count.path(), watch };
        [(listing, None), (number, None)]
    }

    /// How many leases are free, `own` counted as taken: negative where there are too many. `None`:
    /// one of `own` is not listed.
    fn room(
        &self,
        want: &Want<'_>,
        generation: &Generation,
        own: &[ContenderNode],
        watch: bool,
    ) -> Step<Option<i64>> {
        let counted = generation.flight(&self.count_requests(watch), &want.call.limit);
        let answers = counted.map_err(|e| want.call.stop(&self.dir, e))?;
        self.room_of(want, generation, own, watch, answers, 0)
    }

    /// The same, of these answers to `count_requests`, of which the first is at `at`.
    fn room_of(
        &self,
        want: &Want<'_>,
        generation: &Generation,
        own: &[ContenderNode],
        watch: bool,
        mut answers: Answers,
        at: usize,
    ) -> Step<Option<i64>> {
        let children = match answers.listed(at) {
            Ok(listed) => listed.children,
            Err(CallError::NoNode) => Listing::default(),
            Err(e) => return Err(want.call.stop(&self.dir, e)),
        };
        // Whatever else is there counts as a lease, as it does for Curator.
        let is_pending = |child: &&str| answers.pending.contains(name::lease_id(child));
        let standing: HashSet<&str> =
            children.names().into_iter().filter(|child| !is_pending(child)).collect();
        if !own.iter().all(|contender| standing.contains(contender.name())) {
            return Ok(None);
        }
        let count = match answers.take(at + 1).and_then(Reply::node) {
            Ok(node) => self.count.said(&node),
            Err(CallError::NoNode) => None,
            Err(e) => return Err(want.call.stop(self.count.path(), e)),
        };
        let count = count.map_or_else(
            || self.count.get(generation, self.count.known(), watch, &want.call.limit),
            Ok,
        );
        let count = count.map_err(|e| want.call.stop(self.count.path(), e))?;
        if self.count.is_fixed() && count != self.count.known() {
            let path = want.call.core.shown(self.count.path()).to_owned();
            let (ours, theirs) = (self.count.known(), count);
            return Err(Stop::Fail(Error::InconsistentLeases { path, ours, theirs }));
        }
        // One may wait until there are any; several, that there cannot be any more, would keep
        // everybody else waiting.
        if own.len() > 1 && own.len() > count as usize {
            return Err(Stop::Fail(too_many(
                want.call.core.shown(self.count.path()),
                want.number,
                count,
            )));
        }
        let used = i64::try_from(standing.len()).unwrap_or(i64::MAX);
        Ok(Some(i64::from(count).saturating_sub(used)))
    }
}
