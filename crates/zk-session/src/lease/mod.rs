//! The session's lease: until when the leader cannot have expired the session, and the nodes that
//! are held under the lease.
//!
//! The leader alone expires sessions, T after it last heard of them. `heard` works out a time at or
//! after which the leader has heard of us. The lease ends 11/12 T after that time. The last T/12
//! covers what our clock and the leader's gain on each other, and a pause of the leader: together
//! they must stay below T/12.
//! When the lease ends, its nodes are lost for good: a proof that comes after the end does not
//! bring them back.
//!
//! # Answers without the lock
//!
//! A thread that has a guard asks before each step of its work whether its node is still held. So
//! `is_held` takes no lock as long as the answer is yes. In a forked child it says no, and does
//! nothing else (`process.rs`). Otherwise it compares three things in this order: the clock, which
//! its caller has read; the end of the lease, `Lease::end`; the mark in the node which says that
//! the node is lost. The end and the marks are written only under the lock. If the clock is before
//! the end and there is no mark, the node is held. If the clock has reached the end, `is_held`
//! takes the lock and marks all nodes of the lease as lost; then the mark decides. Seven properties
//! follow:
//!
//! * **"Lost" is final.** `is_held` says that a node is lost only if the node bears the mark by
//!   then, and no mark is ever removed. Each call that begins later finds the mark.
//! * **"Held" is true at the moment when the end is read.** At this moment that end is in force.
//!   The clock, read just before, has not reached it. The node is not marked, because the mark is
//!   read later and is still missing then.
//! * **A late proof brings no node back.** Before `extend` writes a later end, it marks the nodes
//!   if the earlier end has passed. A reader that finds the later end also finds this mark, and
//!   each mark that another thread set before. If the mark were read first, the reader could miss
//!   it, then find the later end, and say "held" for a node that is lost.
//! * **A proof in time may be written late.** The thread that brings the proof reads the clock
//!   before the end, and waits for the lock until the end has passed. If a reader came first, the
//!   nodes are marked, and stay lost. If no reader came, no thread was told that they are lost, and
//!   they stay held. That is safe, because the proof shows that no server could expire the session
//!   meanwhile.
//! * **A shorter lease counts at once.** `shorten` writes the earlier end, and marks the nodes if
//!   it has passed, before it returns. A call of `is_held` that begins after that finds the earlier
//!   end. A call that found the later end read it before `shorten` returned.
//! * **A bound of one hold is part of its end.** If a lock has a `max_hold`, each hold of a node
//!   has an end of its own, `LeasedNode::bound`. `is_held` compares it with the clock as it
//!   compares the end of the lease, and if it has passed, takes the lock and marks the node. A
//!   hand-over moves the bound: `bind` marks the nodes whose bounds have passed before it writes a
//!   new one. No guard exists in between, so no thread can have been told the earlier bound.
//! * **A grant changes no end.** `grant` refuses if the end was near when its caller read the
//!   clock. The caller may be stopped after that until the end has passed. Then the first call of
//!   `is_held` for the new node finds that the end has passed.
//!
//! A thread can be stopped between two of these steps, or between the answer and the work that
//! follows it. No lock can prevent the latter, so an answer is true for the moment at which the
//! clock was read. For the time after that moment there is the fencing token.

pub mod heard;
pub mod node;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use self::node::LostSignal;
use self::node::{LeasedNode, NodeWatch};
use crate::clock::{BootTime, SharedTime};
use crate::error::LossReason;
use crate::process::Process;
use crate::world::{HashMap, Mutex};

/// A node that has been held for this long gets a watch, if it has none yet.
pub(super) const WATCH_AFTER: Duration = Duration::from_millis(50);

#[derive(Default)]
pub struct Lease {
    /// The process that holds the nodes.
    process: Process,
    state: Mutex<LeaseState>,
    /// When the lease ends, for readers without the lock: `LeaseState::end`, or the start of the
    /// clock as long as that is `None`. Written under the lock.
    end: SharedTime,
}

#[derive(Default)]
struct LeaseState {
    /// T: the shortest session timeout that a server has granted to this session.
    timeout: Duration,
    /// The leader has heard of the session at this time or later.
    heard: Option<BootTime>,
    /// Why the session was lost.
    over: Option<LossReason>,
    /// The nodes that are held, by path.
    nodes: HashMap<String, Arc<LeasedNode>>,
    /// Nodes that may need a watch: first the nodes whose watch was lost, then the others in the
    /// order of their grants. Some of them were released since.
    unwatched: VecDeque<Arc<LeasedNode>>,
    /// The connection on which the other nodes have their watches.
    epoch: u64,
    /// The held nodes that have a `bound`, and those whose listeners look some time.
    bounds: Timed,
    looks: Timed,
}

/// Nodes by a time of each, the earliest first.
#[derive(Default)]
struct Timed(BTreeMap<(BootTime, String), Arc<LeasedNode>>);

/// How long one holder may have a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// After this time the hold is lost.
    pub max: Option<Duration>,
    /// After this time the listener looks.
    pub look_after: Option<Duration>,
}

/// Why a grant was refused.
#[derive(Debug, PartialEq, Eq)]
pub enum Refused {
    /// Too little of the lease is left: it must be renewed first.
    Stale,
    /// The session is lost.
    Over(LossReason),
}

impl Lease {
    /// Begins the lease of a new session. The leader made the session after the request for it was
    /// sent, so the lease counts from `sent`.
    pub(crate) fn begin(&self, timeout: Duration, sent: BootTime) {
        let mut state = self.state.lock();
        state.timeout = timeout;
        state.heard = Some(sent);
        self.publish_end(&state);
    }

    /// Extends the lease: the leader heard of the session at `heard` or later. Returns the nodes
    /// for which this proof comes too late. They are marked as lost; the caller must pass them to
    /// [`notify_lost`].
    pub(crate) fn extend(&self, heard: BootTime, now: BootTime) -> Vec<Arc<LeasedNode>> {
        let mut state = self.state.lock();
        let lapsed = self.lapse(&mut state, now);
        if state.over.is_none() {
            state.heard = state.heard.max(Some(heard));
            self.publish_end(&state);
        }
        lapsed
    }

    /// Takes the timeout that a server granted when the session was resumed, if it is shorter.
    pub(crate) fn shorten(&self, timeout: Duration, now: BootTime) {
        let mut state = self.state.lock();
        let mut lapsed = self.lapse(&mut state, now);
        state.timeout = state.timeout.min(timeout);
        self.publish_end(&state);
        lapsed.extend(self.lapse(&mut state, now));
        drop(state);
        notify_lost(&lapsed);
    }

    /// If the lease has ended, marks its nodes as lost and notifies their holders. Returns when to
    /// call this again; `None` if no node is held.
    pub(crate) fn end_if_due(&self, now: BootTime) -> Option<BootTime> {
        let mut state = self.state.lock();
        let lapsed = self.lapse(&mut state, now);
        let next = state.needed_end().into_iter().chain(state.bounds.first()).min();
        drop(state);
        notify_lost(&lapsed);
        next
    }

    /// A holder gets this node now, and may have it as long as `bounds` say; the bounds of the
    /// holder before count no more. If those have ended the hold already, it stays lost.
    pub(crate) fn bind(&self, node: &Arc<LeasedNode>, bounds: Bounds, now: BootTime) {
        let mut state = self.state.lock();
        let lapsed = self.lapse(&mut state, now);
        if state.contains(node) {
            state.unbind(node);
            let at = |after: Option<Duration>| after.map_or(BootTime::END, |after| now + after);
            node.bound.set(at(bounds.max));
            state.bounds.insert(node.bound(), node);
            state.look_at(node, at(bounds.look_after));
        }
        drop(state);
        notify_lost(&lapsed);
    }

    /// Lets the listeners look whose time has come. No lock is held meanwhile.
    pub(super) fn look(&self, now: BootTime) {
        loop {
            let due = self.state.lock().looks.pop_due(now);
            let Some(node) = due else { return };
            let next = node.listener().look(now);
            let mut state = self.state.lock();
            // A holder that was bound meanwhile has named a time of its own.
            if state.contains(&node) && node.look_at.get() <= now {
                state.look_at(&node, next);
            }
        }
    }

    pub fn remaining(&self, now: BootTime) -> Duration {
        let state = self.state.lock();
        match (state.over, state.end()) {
            (None, Some(end)) => end.since(now),
            _ => Duration::ZERO,
        }
    }

    /// Whether the session is lost, for whatever reason.
    pub fn is_over(&self) -> bool {
        self.state.lock().over.is_some()
    }

    /// Whether enough of the lease is left for a grant. Enough means: the session can renew the
    /// lease before it ends, even if its server fails now.
    pub(crate) fn is_fresh(&self, now: BootTime) -> bool {
        self.state.lock().is_fresh(now)
    }

    /// When the lease ends, if any node is held. As long as this is `Some`, the session renews the
    /// lease.
    pub(crate) fn needed_end(&self) -> Option<BootTime> {
        self.state.lock().needed_end()
    }

    /// Puts `node` under the lease, if the lease is fresh: from now on it is held.
    pub(crate) fn grant(&self, node: &Arc<LeasedNode>, now: BootTime) -> Result<(), Refused> {
        let mut state = self.state.lock();
        if let Some(reason) = state.over {
            return Err(Refused::Over(reason));
        }
        if !state.is_fresh(now) {
            return Err(Refused::Stale);
        }
        node.granted(now);
        state.nodes.insert(node.path().to_owned(), node.clone());
        match node.watch() {
            NodeWatch::Unset => state.unwatched.push_back(node.clone()),
            NodeWatch::On(epoch) if epoch == state.epoch => {}
            NodeWatch::On(_) | NodeWatch::Due => state.unwatched.push_front(node.clone()),
        }
        Ok(())
    }

    /// Whether `node` is held at `now`, which the caller has just read. The clock decides, even if
    /// no thread has noticed yet that the lease has ended. The top of this file says why no lock is
    /// needed, and why the mark of the loss is read last.
    pub fn is_held(&self, node: &LeasedNode, now: BootTime) -> bool {
        if self.process.is_forked() {
            return false;
        }
        if now >= self.end.get() || now >= node.bound() {
            self.end_if_due(now);
        }
        node.loss().is_none()
    }

    /// Why `node` is not held. In a forked child no other method but `is_held` can be called:
    /// another thread of the parent may have had the lock at the fork.
    pub fn loss(&self, node: &LeasedNode, now: BootTime) -> Option<LossReason> {
        if self.is_held(node, now) {
            return None;
        }
        node.loss().or_else(|| self.process.is_forked().then_some(LossReason::Forked))
    }

    /// The process that holds the nodes.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// What `is_held` would answer if the process read this time now. Takes no lock, so that the
    /// simulation's observer can call it between any two steps of any thread.
    #[cfg(zk_sim)]
    pub fn would_be_held(&self, node: &LeasedNode, now: BootTime) -> bool {
        now < self.end.get() && now < node.bound() && node.loss().is_none()
    }

    /// How many nodes are held, have times, and may need a watch.
    #[cfg(any(feature = "test", zk_sim))]
    pub(crate) fn kept(&self) -> (usize, usize, usize) {
        let state = self.state.lock();
        (state.nodes.len(), state.bounds.0.len() + state.looks.0.len(), state.unwatched.len())
    }

    /// Takes a node that its holder releases out of the lease. It is not lost: no signal is raised.
    pub fn release(&self, node: &Arc<LeasedNode>) {
        self.state.lock().take_out(node);
    }

    /// Takes a node that its holder gives up out of the lease, and marks it as lost: other guards
    /// of the node may exist still.
    pub fn resign(&self, node: &Arc<LeasedNode>, now: BootTime) {
        let mut state = self.state.lock();
        let lapsed = self.lapse(&mut state, now);
        if let Some(node) = state.take_out(node) {
            node.mark(LossReason::Resigned);
        }
        drop(state);
        notify_lost(&lapsed);
    }

    /// Asks for a new watch on this node at once: its watch has fired, or it has none.
    pub fn rearm(&self, node: &Arc<LeasedNode>) {
        let mut state = self.state.lock();
        if state.contains(node) {
            node.set_watch(NodeWatch::Due);
            state.unwatched.push_front(node.clone());
        }
    }

    /// The nodes that need a watch on this connection now: nodes that have been held for
    /// `WATCH_AFTER`, and nodes that had a watch on an earlier connection. The caller sets the
    /// watches; from now on each counts as set.
    pub(crate) fn to_watch(&self, epoch: u64, now: BootTime) -> Vec<Arc<LeasedNode>> {
        let mut state = self.state.lock();
        if state.epoch != epoch {
            // The watches were set on the connection before, and are gone with it.
            let mut all: Vec<_> = state.nodes.values().cloned().collect();
            all.sort_by_key(|node| (node.watch() == NodeWatch::Unset, node.since()));
            (state.unwatched, state.epoch) = (all.into(), epoch);
        }
        let mut due = Vec::new();
        loop {
            state.forget_released();
            if state.next_watch().is_none_or(|next| next > now) {
                break;
            }
            let Some(node) = state.unwatched.pop_front() else { break };
            if state.contains(&node) && node.watch() != NodeWatch::On(epoch) {
                node.set_watch(NodeWatch::On(epoch));
                due.push(node);
            }
        }
        due
    }

    /// When [`to_watch`](Self::to_watch) must be called again; the start of the clock means at
    /// once.
    pub(crate) fn next_watch(&self, epoch: u64) -> Option<BootTime> {
        let state = self.state.lock();
        if state.epoch == epoch { state.next_watch() } else { Some(BootTime::default()) }
    }

    /// An event says that the node at this path is gone: if it is held, it is lost.
    pub fn node_deleted(&self, path: &str, now: BootTime) {
        if let Some(node) = self.leased_node(path) {
            self.node_gone(&node, now);
        }
    }

    /// A request or an event has shown that this node is gone: it is lost.
    pub fn node_gone(&self, node: &Arc<LeasedNode>, now: BootTime) {
        notify_lost(&self.mark_gone(node, now));
    }

    /// As `node_gone`, for a caller that notifies nobody itself. Returns the nodes that are marked
    /// as lost; the caller must have them passed to [`notify_lost`].
    pub(super) fn mark_gone(&self, node: &Arc<LeasedNode>, now: BootTime) -> Vec<Arc<LeasedNode>> {
        let mut state = self.state.lock();
        // A process that was stopped may read this event when the lease has ended already. Then the
        // end of the lease is the reason of the loss, since it came first.
        let mut lost = self.lapse(&mut state, now);
        lost.extend(state.take_out(node).filter(|node| node.mark(LossReason::NodeDeleted)));
        lost
    }

    /// The held node at this path, if there is one.
    pub(crate) fn leased_node(&self, path: &str) -> Option<Arc<LeasedNode>> {
        self.state.lock().nodes.get(path).cloned()
    }

    /// The session is lost, and each node with it.
    pub(crate) fn end(&self, reason: LossReason) {
        notify_lost(&self.mark_ended(reason));
    }

    /// As `end`, for a caller that has something to do before the holders are notified. Returns the
    /// nodes that are marked as lost; the caller must pass them to [`notify_lost`].
    pub(super) fn mark_ended(&self, reason: LossReason) -> Vec<Arc<LeasedNode>> {
        let mut state = self.state.lock();
        state.over.get_or_insert(reason);
        self.take_all(&mut state, reason)
    }

    /// Writes the end for readers without the lock. If there was an end before, the caller has
    /// called `lapse`: if that end has passed, the nodes are marked.
    fn publish_end(&self, state: &LeaseState) {
        self.end.set(state.end().unwrap_or_default());
    }

    /// Marks the nodes as lost whose bounds have passed at `now`, and all nodes if the lease has
    /// ended; returns them.
    fn lapse(&self, state: &mut LeaseState, now: BootTime) -> Vec<Arc<LeasedNode>> {
        let end = state.end().unwrap_or(BootTime::END);
        let mut lost = Vec::new();
        // What came first is the reason.
        while let Some(node) = state.bounds.pop_due(now.min(end)) {
            state.take_out(&node);
            lost.extend(Some(node).filter(|node| node.mark(LossReason::HeldTooLong)));
        }
        if now >= end {
            lost.extend(self.take_all(state, LossReason::LeaseExpired));
        }
        lost
    }

    /// Takes all nodes out of the lease, and marks them as lost. Returns those that were not marked
    /// before.
    fn take_all(&self, state: &mut LeaseState, reason: LossReason) -> Vec<Arc<LeasedNode>> {
        (state.bounds, state.looks) = (Timed::default(), Timed::default());
        state.nodes.drain().map(|(_, node)| node).filter(|node| node.mark(reason)).collect()
    }
}

impl LeaseState {
    fn end(&self) -> Option<BootTime> {
        self.heard.map(|heard| heard + heard::span(self.timeout))
    }

    fn needed_end(&self) -> Option<BootTime> {
        if self.nodes.is_empty() { None } else { self.end() }
    }

    fn is_fresh(&self, now: BootTime) -> bool {
        self.end().is_some_and(|end| end.since(now) > self.timeout / 4)
    }

    /// Whether this node is under the lease, and not a later node of the same name.
    fn contains(&self, node: &Arc<LeasedNode>) -> bool {
        self.nodes.get(node.path()).is_some_and(|leased| Arc::ptr_eq(leased, node))
    }

    /// Removes the released nodes from the front of `unwatched`, but keeps the newest of them.
    /// While threads take and release locks all the time, the event loop then wakes once in
    /// `WATCH_AFTER` for the newest, and not once for each of them.
    fn forget_released(&mut self) {
        while self.unwatched.len() > 1
            && self.unwatched.front().is_some_and(|node| !self.contains(node))
        {
            self.unwatched.pop_front();
        }
    }

    /// When the first node without a watch needs one. A node that was released meanwhile counts
    /// too: then the event loop sleeps for `WATCH_AFTER` at most while threads take and release
    /// locks all the time, and not each of these threads must wake it.
    fn next_watch(&self) -> Option<BootTime> {
        let first = self.unwatched.front()?;
        Some(match first.watch() {
            NodeWatch::Unset => first.since() + WATCH_AFTER,
            NodeWatch::On(_) | NodeWatch::Due => BootTime::default(),
        })
    }

    fn take_out(&mut self, node: &Arc<LeasedNode>) -> Option<Arc<LeasedNode>> {
        if !self.contains(node) {
            return None;
        }
        self.unbind(node);
        self.nodes.remove(node.path())
    }

    fn unbind(&mut self, node: &LeasedNode) {
        self.bounds.remove(node.bound(), node);
        self.looks.remove(node.look_at.get(), node);
    }

    fn look_at(&mut self, node: &Arc<LeasedNode>, time: BootTime) {
        node.look_at.set(time);
        self.looks.insert(time, node);
    }
}

impl Timed {
    fn insert(&mut self, at: BootTime, node: &Arc<LeasedNode>) {
        if at < BootTime::END {
            self.0.insert((at, node.path().to_owned()), node.clone());
        }
    }

    fn remove(&mut self, at: BootTime, node: &LeasedNode) {
        if at < BootTime::END {
            self.0.remove(&(at, node.path().to_owned()));
        }
    }

    fn first(&self) -> Option<BootTime> {
        self.0.first_key_value().map(|((at, _), _)| *at)
    }

    /// Takes out the first node whose time has come.
    fn pop_due(&mut self, now: BootTime) -> Option<Arc<LeasedNode>> {
        self.first().filter(|at| *at <= now)?;
        self.0.pop_first().map(|(_, node)| node)
    }
}

/// Notifies the holders of these nodes. The caller has no lock, since this takes several.
pub(super) fn notify_lost(lost: &[Arc<LeasedNode>]) {
    for node in lost {
        node.notify_lost();
    }
}

#[cfg(any(test, feature = "test"))]
impl Lease {
    /// While the result lives, a thread that ends or renews the lease waits.
    pub fn stopped(&self) -> impl Drop {
        self.state.lock()
    }

    /// Marks the node as lost, as the event of its deletion does. Its listener is told when the
    /// result is called, as the thread that marks a node may be stopped in between.
    pub fn lose_untold(&self, node: &Arc<LeasedNode>) -> impl FnOnce() + use<> {
        let lost = self.mark_gone(node, BootTime::now());
        move || notify_lost(&lost)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::lease::node::{Listener, LostSignal};
    use NodeWatch::{On, Unset};

    /// A listener that hears of losses only.
    impl<F: Fn() + Send + Sync> Listener for F {
        fn lost(&self, _: LossReason) {
            self();
        }

        fn read(&self, _: &[u8]) {}

        fn look(&self, _: BootTime) -> BootTime {
            BootTime::END
        }
    }

    impl Lease {
        /// When the lease ends, if a session was made.
        pub(crate) fn end_time(&self) -> Option<BootTime> {
            self.state.lock().end()
        }
    }

    const T: Duration = Duration::from_secs(30);

    fn held(lease: &Lease, now: BootTime) -> Arc<LeasedNode> {
        let node = LeasedNode::new("/l/n".into(), 0, Unset, Arc::new(|| ()));
        assert_eq!(lease.grant(&node, now), Ok(()));
        node
    }

    fn ago(d: Duration) -> BootTime {
        // The boot clock starts at zero: a test cannot go before that, so it starts later.
        let now = BootTime::now();
        BootTime::at(now.since(BootTime::at(Duration::ZERO)).saturating_sub(d))
    }

    /// How long a lease lasts from the moment when the leader heard of the session.
    const SPAN: Duration = Duration::from_millis(27_500);

    #[test]
    fn a_late_proof_does_not_bring_a_lost_node_back() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let node = held(&lease, start);
        lease.extend(start + T / 2, start + SPAN);
        assert_eq!(node.loss(), Some(LossReason::LeaseExpired));
        assert!(node.signal().receiver().try_recv().is_err_and(|e| e.is_disconnected()));
        assert_eq!(lease.needed_end(), None);
    }

    #[test]
    fn a_proof_in_time_extends_from_when_the_leader_heard_of_us() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let node = held(&lease, start);
        lease.extend(start + T / 6, start + T / 3);
        lease.extend(start + T / 12, start + T / 3); // an older proof takes nothing back
        assert_eq!(lease.end_if_due(start + T / 2), Some(start + T / 6 + SPAN));
        assert_eq!(node.loss(), None);
        lease.end_if_due(start + T / 6 + SPAN);
        assert_eq!(node.loss(), Some(LossReason::LeaseExpired));
    }

    #[test]
    fn of_the_released_nodes_only_the_newest_wakes_the_event_loop() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let path = |i: u32| format!("/l/{i}");
        let grant = |i: u32| {
            let node = LeasedNode::new(path(i), 0, Unset, Arc::new(|| ()));
            assert_eq!(lease.grant(&node, start + WATCH_AFTER * i / 10), Ok(()));
            node
        };
        let watch = |tenths: u32| {
            (lease.to_watch(1, start + WATCH_AFTER * tenths / 10), lease.next_watch(1))
        };
        watch(0);
        (0..5).for_each(|i| lease.release(&grant(i)));
        assert_eq!(watch(5).1, Some(start + WATCH_AFTER * 14 / 10));
        let kept = grant(5);
        assert_eq!(watch(5).1, Some(start + WATCH_AFTER * 15 / 10));
        let (due, next) = watch(15);
        assert!(due.len() == 1 && Arc::ptr_eq(&due[0], &kept) && next.is_none());
    }

    #[test]
    fn a_released_node_gets_no_watch() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let node = held(&lease, start);
        assert!(lease.to_watch(1, start).is_empty());
        lease.release(&node);
        assert!(lease.to_watch(1, start + WATCH_AFTER).is_empty());
    }

    #[test]
    fn a_node_whose_watch_was_set_on_an_earlier_connection_gets_another_one_at_once() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let grant = |path: &str, watch| {
            let node = LeasedNode::new(path.into(), 0, watch, Arc::new(|| ()));
            assert_eq!(lease.grant(&node, start), Ok(()));
        };
        let due = |epoch| -> Vec<String> {
            lease.to_watch(epoch, start).iter().map(|node| node.path().to_owned()).collect()
        };
        due(2);
        grant("/l/set-on-this-one", On(2));
        assert_eq!(lease.next_watch(2), None);
        grant("/l/not-set", Unset);
        grant("/l/set-before", On(1));
        assert_eq!(lease.next_watch(2), Some(BootTime::default()));
        assert_eq!(due(2), ["/l/set-before"]);
        assert_eq!(lease.next_watch(2), Some(start + WATCH_AFTER));
        // The next connection has none of the watches, and the node without one may wait.
        let mut all = due(3);
        all.sort();
        assert_eq!(all, ["/l/set-before", "/l/set-on-this-one"]);
    }

    #[test]
    fn a_stale_lease_grants_nothing_until_it_is_renewed() {
        let lease = Lease::default();
        lease.begin(T, ago(T * 2 / 3));
        let node = LeasedNode::new("/l/n".into(), 0, Unset, Arc::new(|| ()));
        assert_eq!(lease.grant(&node, BootTime::now()), Err(Refused::Stale));
        lease.extend(ago(T / 2), BootTime::now());
        assert_eq!(lease.grant(&node, BootTime::now()), Ok(()));
        lease.end(LossReason::SessionExpired);
        assert_eq!(node.loss(), Some(LossReason::SessionExpired));
        assert_eq!(
            lease.grant(&node, BootTime::now()),
            Err(Refused::Over(LossReason::SessionExpired))
        );
    }

    #[test]
    fn no_node_counts_as_held_while_the_loss_of_another_is_notified() {
        let (lease, start) = (Arc::new(Lease::default()), BootTime::now());
        lease.begin(T, start);
        let (told, news) = crossbeam_channel::bounded(0);
        let (go_on, gate) = crossbeam_channel::bounded::<()>(0);
        let slow = |path: &str| {
            let (told, gate) = (told.clone(), gate.clone());
            let on_loss = Arc::new(move || {
                let _ = (told.send(()), gate.recv());
            });
            let node = LeasedNode::new(path.into(), 0, Unset, on_loss);
            assert_eq!(lease.grant(&node, BootTime::now()), Ok(()));
            node
        };
        let nodes = [slow("/l/a"), slow("/l/b")];
        let (here, late) = (lease.clone(), start + T);
        let teller = std::thread::spawn(move || here.end_if_due(late));
        news.recv().unwrap(); // it notifies of the first, and has not come to the second
        assert!(nodes.iter().all(|node| !lease.is_held(node, late)));
        drop(go_on);
        news.recv().unwrap();
        assert_eq!(teller.join().unwrap(), None);
    }

    #[test]
    fn a_shorter_timeout_granted_later_shortens_the_lease_at_once() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let node = held(&lease, start);
        lease.shorten(T / 3, start + T / 9);
        assert_eq!(lease.end_if_due(start + T / 9), Some(start + (T / 3 - T / 36)));
        lease.shorten(T, start + T / 9); // a longer one changes nothing
        assert_eq!(lease.end_if_due(start + T / 9), Some(start + (T / 3 - T / 36)));
        lease.shorten(T / 30, start + T / 9);
        assert_eq!(node.loss(), Some(LossReason::LeaseExpired));
    }

    #[test]
    fn a_common_signal_is_raised_by_the_first_loss_among_the_nodes_that_it_has_joined() {
        let (lease, signal) = (Lease::default(), LostSignal::common());
        lease.begin(T, BootTime::now());
        let nodes = ["/l/a", "/l/b", "/l/c"].map(|path| {
            let node = LeasedNode::new(path.into(), 0, Unset, Arc::new(|| ()));
            assert_eq!(lease.grant(&node, BootTime::now()), Ok(()));
            node.join(&signal);
            node
        });
        nodes[0].part(&signal);
        lease.node_deleted("/l/a", BootTime::now());
        assert_eq!(signal.reason(), None);
        assert!(signal.receiver().try_recv().is_err_and(|e| e.is_empty()));
        lease.node_deleted("/l/b", BootTime::now());
        assert!(signal.receiver().try_recv().is_err_and(|e| e.is_disconnected()));
        lease.end(LossReason::SessionExpired);
        assert_eq!(signal.reason(), Some(LossReason::NodeDeleted));
        // A signal that joins a node that is lost already is raised at once.
        let late = LostSignal::common();
        nodes[2].join(&late);
        assert_eq!(late.reason(), Some(LossReason::SessionExpired));
    }

    #[test]
    fn a_node_that_is_given_up_is_lost_for_all_its_guards() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let node = held(&lease, start);
        let signal = node.signal();
        lease.resign(&node, start);
        assert!(!lease.is_held(&node, start) && lease.needed_end().is_none());
        assert!(signal.receiver().try_recv().is_err_and(|e| e.is_disconnected()));
        assert_eq!(signal.reason(), Some(LossReason::Resigned));
    }

    #[test]
    fn a_reader_that_finds_the_end_passed_marks_the_node_for_good() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let node = held(&lease, start);
        let signal = node.signal();
        let just_before = start + (SPAN - Duration::from_nanos(1));
        assert!(lease.is_held(&node, just_before));
        assert!(!lease.is_held(&node, start + SPAN));
        assert!(signal.receiver().try_recv().is_err_and(|e| e.is_disconnected()));
        // A thread that read the clock in time brings a proof when it is too late.
        lease.extend(start + T / 2, just_before);
        assert!(!lease.is_held(&node, start + SPAN) && !lease.is_held(&node, just_before));
        assert_eq!(node.loss(), Some(LossReason::LeaseExpired));
    }

    #[test]
    fn a_shorter_lease_and_each_other_loss_count_for_the_next_reader() {
        let start = BootTime::now();
        let grant = || {
            let lease = Lease::default();
            lease.begin(T, start);
            let node = held(&lease, start);
            assert!(lease.is_held(&node, start + T / 2));
            (lease, node)
        };
        let (lease, node) = grant();
        lease.shorten(T / 3, start + T / 9);
        assert!(lease.is_held(&node, start + T / 9) && !lease.is_held(&node, start + T / 2));
        let (lease, node) = grant();
        lease.shorten(T / 3, start + T / 2);
        assert!(!lease.is_held(&node, start));
        let (lease, node) = grant();
        lease.node_deleted(node.path(), start);
        assert!(!lease.is_held(&node, start));
        let (lease, node) = grant();
        lease.end(LossReason::SessionClosed);
        assert!(!lease.is_held(&node, start));
    }

    /// Readers and proofs race at the end of a lease. The clock goes in great steps, so that each
    /// proof may be in time or too late.
    #[test]
    fn each_call_that_begins_after_a_thread_was_told_of_the_loss_finds_the_loss() {
        let start = BootTime::now();
        for _ in 0..50 {
            let lease = Lease::default();
            lease.begin(T, start);
            let node = held(&lease, start);
            let (steps, is_told, is_over) =
                (AtomicU32::new(0), AtomicBool::new(false), AtomicBool::new(false));
            let clock = || start + SPAN / 4 * steps.load(Ordering::SeqCst);
            let read = || {
                while !is_over.load(Ordering::SeqCst) {
                    let was_told = is_told.load(Ordering::SeqCst);
                    let is_held = lease.is_held(&node, clock());
                    assert!(!(was_told && is_held), "held again");
                    if !is_held {
                        is_told.store(true, Ordering::SeqCst);
                    }
                }
            };
            let prove = || {
                while !is_over.load(Ordering::SeqCst) {
                    let now = clock();
                    std::thread::yield_now(); // so that the proof is late once in a while
                    lease.extend(now, now);
                }
            };
            std::thread::scope(|scope| {
                let readers = [scope.spawn(read), scope.spawn(read)];
                scope.spawn(prove);
                for _ in 0..20 {
                    steps.fetch_add(1, Ordering::SeqCst);
                    std::thread::yield_now();
                }
                is_over.store(true, Ordering::SeqCst);
                readers.into_iter().for_each(|reader| reader.join().unwrap());
            });
            assert!(!is_told.into_inner() || node.loss() == Some(LossReason::LeaseExpired));
        }
    }

    #[test]
    fn each_call_that_begins_after_the_lease_was_shortened_uses_the_shorter_lease() {
        let start = BootTime::now();
        for _ in 0..50 {
            let lease = Lease::default();
            lease.begin(T, start);
            let node = held(&lease, start);
            let is_shorter = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let read = || loop {
                    let was_shorter = is_shorter.load(Ordering::Acquire);
                    let is_held = lease.is_held(&node, start + T / 2);
                    assert!(!(was_shorter && is_held), "the longer lease");
                    if was_shorter {
                        return;
                    }
                };
                let readers = [scope.spawn(read), scope.spawn(read)];
                // By the clock of this thread the lease has not ended yet. Only a reader, whose
                // clock is later, finds that it has.
                lease.shorten(T / 3, start + T / 9);
                is_shorter.store(true, Ordering::Release);
                readers.into_iter().for_each(|reader| reader.join().unwrap());
            });
        }
    }

    fn most(max: Duration) -> Bounds {
        Bounds { max: Some(max), ..Bounds::default() }
    }

    #[test]
    fn a_hold_is_lost_at_the_end_of_its_time_whoever_notices() {
        let start = BootTime::now();
        let grant = || {
            let lease = Lease::default();
            lease.begin(T, start);
            let node = held(&lease, start);
            lease.bind(&node, most(SPAN / 3), start);
            assert_eq!(lease.end_if_due(start), Some(start + SPAN / 3));
            assert!(lease.is_held(&node, start + (SPAN / 3 - Duration::from_nanos(1))));
            (lease, node)
        };
        let (reader, other) = grant();
        assert!(!reader.is_held(&other, start + SPAN / 3));
        let (timer, node) = grant();
        timer.end_if_due(start + SPAN / 3);
        // The session goes on, and no other hold is touched.
        let next = held(&timer, start + SPAN / 3);
        assert!(timer.is_held(&next, start + SPAN / 2) && !timer.is_held(&node, start));
        for node in [node, other] {
            assert_eq!(node.loss(), Some(LossReason::HeldTooLong));
        }
        // A process that was stopped finds both ends passed: the first of them is the reason.
        let (lease, node) = grant();
        let later = held(&lease, start);
        let other = LeasedNode::new("/l/o".into(), 0, Unset, Arc::new(|| ()));
        assert_eq!(lease.grant(&other, start), Ok(()));
        lease.bind(&other, most(SPAN * 2), start);
        lease.end_if_due(start + SPAN * 3);
        let losses = [node.loss(), later.loss(), other.loss()];
        let expired = Some(LossReason::LeaseExpired);
        assert_eq!(losses, [Some(LossReason::HeldTooLong), expired, expired]);
    }

    #[test]
    fn the_next_holder_has_an_end_of_its_own_unless_the_hold_was_lost_before() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let node = held(&lease, start);
        lease.bind(&node, most(SPAN / 4), start);
        lease.bind(&node, Bounds::default(), start + SPAN / 8);
        assert!(!node.is_bound() && lease.is_held(&node, start + SPAN / 3));
        lease.bind(&node, most(SPAN / 4), start + SPAN / 3);
        assert!(lease.is_held(&node, start + SPAN / 2));
        lease.bind(&node, most(SPAN), start + SPAN / 3 + SPAN / 4);
        assert_eq!(node.loss(), Some(LossReason::HeldTooLong), "too late");
        assert!(lease.state.lock().bounds.0.is_empty());
    }

    #[test]
    fn what_is_released_or_lost_has_no_end_to_wait_for() {
        let (lease, start) = (Lease::default(), BootTime::now());
        let bounds = Bounds { look_after: Some(T), ..most(SPAN) };
        lease.begin(T, start);
        for end in [
            |lease: &Lease, node: &Arc<LeasedNode>, _| lease.release(node),
            |lease: &Lease, node: &Arc<LeasedNode>, now| lease.node_gone(node, now),
            |lease: &Lease, node: &Arc<LeasedNode>, now| lease.resign(node, now),
            |lease: &Lease, _: &Arc<LeasedNode>, _| lease.end(LossReason::SessionClosed),
        ] {
            let node = held(&lease, start);
            lease.bind(&node, bounds, start);
            end(&lease, &node, start);
            let state = lease.state.lock();
            assert!(state.bounds.0.is_empty() && state.looks.0.is_empty());
        }
    }

    /// Looks each time that the time since its beginning has doubled.
    struct Doubling(BootTime, Mutex<Vec<u64>>);

    impl Listener for Doubling {
        fn lost(&self, _: LossReason) {}

        fn read(&self, _: &[u8]) {}

        fn look(&self, now: BootTime) -> BootTime {
            let lasted = now.since(self.0);
            self.1.lock().push(lasted.as_secs());
            now + lasted
        }
    }

    #[test]
    fn a_listener_looks_at_each_time_that_it_has_named_until_its_node_is_released() {
        let (lease, start) = (Lease::default(), BootTime::now());
        let second = Duration::from_secs(1);
        lease.begin(T, start);
        let listener = Arc::new(Doubling(start, Mutex::default()));
        let node = LeasedNode::new("/l/n".into(), 0, Unset, listener.clone());
        assert_eq!(lease.grant(&node, start), Ok(()));
        lease.bind(&node, Bounds { look_after: Some(second * 2), ..Bounds::default() }, start);
        [1, 2, 3, 4, 7, 8].into_iter().for_each(|after| lease.look(start + second * after));
        lease.release(&node);
        lease.look(start + second * 16);
        assert_eq!(*listener.1.lock(), [2, 4, 8]);
    }

    #[test]
    fn a_release_never_fires_the_signal() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let node = held(&lease, start);
        let signal = node.signal();
        lease.release(&node);
        drop(node);
        lease.end(LossReason::SessionClosed);
        assert!(signal.receiver().try_recv().is_err_and(|e| e.is_empty()));
    }
}
