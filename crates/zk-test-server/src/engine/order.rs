//! The part of a server that orders all writes; only a single server or the leader has it. It
//! numbers writes, checks each against all earlier ones, expires sessions, and deletes containers
//! and nodes whose time to live is over.

use super::acl::{Id, Schemes};
use super::outstanding::Outstanding;
use super::prep::Prep;
use super::session::{Owner, Sessions};
use super::tree::Tree;
use super::txn::{Stamp, Txn};
use crate::clock;
use std::sync::Arc;
use std::time::Duration;
use zk_wire::code::op;

#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) sessions: Sessions,
    outstanding: Outstanding,
    /// The newest transaction that was numbered.
    pub(crate) zxid: i64,
    reap_interval: Duration,
    next_reaping: Duration,
    schemes: Schemes,
}

/// A write that is to be prepared.
pub(crate) struct Submitted<'a> {
    pub(crate) session: i64,
    /// The server to which the client sent the write.
    pub(crate) owner: Owner,
    pub(crate) op: i32,
    pub(crate) body: &'a [u8],
    pub(crate) who: &'a [Id],
}

impl Order {
    /// Begins after the transaction `zxid`. The first check for nodes to delete follows one
    /// interval after `now`.
    pub(crate) fn new(
        sessions: Sessions,
        zxid: i64,
        reap_interval: Duration,
        now: Duration,
        schemes: Schemes,
    ) -> Order {
        let next_reaping = now.saturating_add(reap_interval);
        let outstanding = Outstanding::default();
        Order { sessions, outstanding, zxid, reap_interval, next_reaping, schemes }
    }

    /// Makes a transaction of a write. `tree` has all transactions that were applied; `time` is the
    /// wall clock.
    pub(crate) fn prepare(&mut self, tree: &Tree, write: Submitted<'_>, time: i64) -> (Stamp, Txn) {
        self.zxid += 1;
        let stamp = Stamp { zxid: self.zxid, time };
        let Submitted { session, owner, op, body, who } = write;
        let Order { sessions, outstanding, schemes, .. } = self;
        let schemes = *schemes;
        let prep = Prep { tree, sessions, outstanding, session, owner, who, stamp, schemes };
        let txn = prep.write(op, body);
        if op == op::CLOSE {
            self.sessions.set_closing(session);
        }
        (stamp, txn)
    }

    /// The transaction that lets the next sequential child of `path` have the number `next`.
    pub(crate) fn set_sequence(
        &mut self,
        tree: &Tree,
        path: &str,
        next: i32,
        time: i64,
    ) -> (Stamp, Txn) {
        self.zxid += 1;
        let stamp = Stamp { zxid: self.zxid, time };
        let Order { sessions, outstanding, schemes, .. } = self;
        let prep = Prep {
            tree,
            sessions,
            outstanding,
            session: 0,
            owner: Owner::Me,
            who: &[],
            stamp,
            schemes: *schemes,
        };
        (stamp, prep.set_sequence(path, next))
    }

    /// Notes that a transaction was applied.
    pub(crate) fn applied(&mut self, zxid: i64, txn: &Txn) {
        self.outstanding.applied(zxid);
        if let Txn::CloseSession { session, .. } = txn {
            self.sessions.remove(*session);
        }
    }

    /// Forgets writes that were prepared and will never be applied.
    pub(crate) fn forget_outstanding(&mut self, zxid: i64) {
        self.outstanding.clear();
        self.zxid = zxid;
    }

    /// Whether all prepared writes are applied.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn is_idle(&self) -> bool {
        self.outstanding.is_empty()
    }

    /// A session that has timed out.
    pub(crate) fn next_expired(&self, now: Duration) -> Option<i64> {
        self.sessions.expired(now)
    }

    /// The nodes to delete now, if a check is due.
    pub(crate) fn due_for_reaping(
        &mut self,
        tree: &Tree,
        now: Duration,
        wall_ms: i64,
    ) -> Vec<Arc<str>> {
        if now < self.next_reaping {
            return Vec::new();
        }
        // The checks stay in step with the earlier ones, even if many were skipped because there
        // was nothing to find.
        let interval = self.reap_interval.as_nanos().max(1);
        let missed = (now - self.next_reaping).as_nanos() % interval;
        let step = clock::from_nanos(interval - missed);
        self.next_reaping = now.saturating_add(step);
        tree.due_for_reaping(wall_ms)
    }

    /// The time at which there may be something to expire or to delete. It is cheap to call.
    pub(crate) fn next_tick(&self, tree: &Tree) -> Option<Duration> {
        let reaping = tree.has_reapable().then_some(self.next_reaping);
        self.sessions.next_expiry().into_iter().chain(reaping).min()
    }

    /// As [`next_tick`](Self::next_tick), but leaves out checks that would find nothing to delete.
    pub(crate) fn next_due(&self, tree: &Tree, now: Duration, wall_ms: i64) -> Option<Duration> {
        self.sessions
            .next_expiry()
            .into_iter()
            .chain(self.next_reaping_due(tree, now, wall_ms))
            .min()
    }

    fn next_reaping_due(&self, tree: &Tree, now: Duration, wall_ms: i64) -> Option<Duration> {
        let due_in = tree.next_reapable()?.saturating_sub(wall_ms);
        let due = now.saturating_add(Duration::from_millis(u64::try_from(due_in).unwrap_or(0)));
        let wait = due.saturating_sub(self.next_reaping).as_nanos();
        let looks = wait.div_ceil(self.reap_interval.as_nanos().max(1));
        let later = self.reap_interval.saturating_mul(u32::try_from(looks).unwrap_or(u32::MAX));
        Some(self.next_reaping.saturating_add(later))
    }
}
