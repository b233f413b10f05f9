//! The session's lease: until when the leader cannot have expired us, and the holds that live by
//! it.
//!
//! The leader alone expires sessions, T after it last heard of them. `heard` works out a time at or
//! after which the leader has heard of us. The lease ends 11/12 T after that time. The last T/12 is
//! left for the error of our clock; together with a pause of the leader it must stay below T/12.
//! The end of a lease is final for the holds of that time.
//!
//! # Answers without the lock
//!
//! A holder asks before each step of its work whether its hold stands. So `stands` takes no lock as
//! long as the answer is yes. It compares three things in this order: the clock, which its caller
//! has read; the end of the lease, `Lease::end`; the mark in the hold which says that the hold is
//! lost. Both the end and the marks are written under the lock only. If the clock is before the end
//! and there is no mark, the hold stands. If the clock has reached the end, `stands` takes the
//! lock, marks all holds of the lease as lost, and then the mark decides. So:
//!
//! * **"Lost" is final.** `stands` says that a hold is lost only if the hold bears the mark by
//!   then, and no mark is ever removed. Each call that begins later finds the mark.
//! * **"Held" is true at the moment when the end is read.** At this moment that end is in force,
//!   the clock, read just before, has not reached it, and the hold is not marked: the mark is read
//!   later, and is still missing then.
//! * **A late proof brings no hold back.** Before `extend` writes a later end, it marks the holds
//!   if the earlier end has passed. A reader that finds the later end also finds this mark, and
//!   each mark that another thread set before. If the mark were read first, the reader could miss
//!   it, then find the later end, and say "held" for a hold that is lost.
//! * **A proof in time may be written late.** The thread that brings it reads the clock before the
//!   end, and waits for the lock until the end has passed. If a reader came first, the holds are
//!   marked, and stay lost. If none came, nobody was told that they are lost, and they stand on.
//!   They may, because the proof shows that no server could expire the session meanwhile.
//! * **A shorter lease counts at once.** `shorten` writes the earlier end, and marks the holds if
//!   it has passed, before it returns. A call of `stands` that begins after that finds the earlier
//!   end. A call that found the later end read it before `shorten` returned.
//! * **A grant changes no end.** `grant` refuses if the end was near when its caller read the
//!   clock. If the caller is stopped after that until the end has passed, the first call of
//!   `stands` for the new hold finds so.
//!
//! A thread can be stopped between two of these steps, or between the answer and the work that
//! follows it. No lock can prevent the latter, so an answer holds for the moment at which the clock
//! was read. The fencing token protects against the rest.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::leased_node::LeasedNode;
use crate::clock::{BootTime, SharedTime};
use crate::error::LossReason;
use crate::world::{HashMap, Mutex};
use zk_wire::path;

/// A hold this old gets a watch on its node, if it has none yet.
pub(super) const WATCH_AFTER: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(crate) struct Lease {
    state: Mutex<State>,
    /// When the lease ends, for readers without the lock: what `State::end` says, or the start of
    /// the clock if that says nothing. Written under the lock.
    end: SharedTime,
}

#[derive(Default)]
struct State {
    /// T: the shortest session timeout that a server has granted to this session.
    timeout: Duration,
    /// The leader has heard of the session at this time or later.
    heard: Option<BootTime>,
    over: Option<LossReason>,
    holds: HashMap<String, Arc<LeasedNode>>,
    /// Holds whose nodes may need a watch: first those that had one, then in the order of their
    /// grants. Some were let go since.
    unwatched: VecDeque<Arc<LeasedNode>>,
    /// The connection that the watches belong to which are not in `unwatched`.
    epoch: u64,
}

/// Why a grant was refused.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Too little of the lease is left: it must be renewed first.
    Stale,
    /// The session is lost.
    Over(LossReason),
}

impl Lease {
    /// Begins with a new session: the leader made it after the request for it was sent.
    pub(crate) fn begin(&self, timeout: Duration, sent: BootTime) {
        let mut state = self.state.lock();
        state.timeout = timeout;
        state.heard = Some(sent);
        self.publish_end(&state);
    }

    /// It is proven that the leader heard of the session at `heard` or later. For the holds that
    /// are given the proof comes too late: they are marked as lost, and the caller sees to it that
    /// they are [told](tell).
    pub(crate) fn extend(&self, heard: BootTime, now: BootTime) -> Vec<Arc<LeasedNode>> {
        let mut state = self.state.lock();
        let lapsed = self.lapse(&mut state, now);
        if state.over.is_none() {
            state.heard = state.heard.max(Some(heard));
            self.publish_end(&state);
        }
        lapsed
    }

    /// A server granted a shorter timeout when the session was resumed.
    pub(crate) fn shorten(&self, timeout: Duration, now: BootTime) {
        let mut state = self.state.lock();
        let mut lapsed = self.lapse(&mut state, now);
        state.timeout = state.timeout.min(timeout);
        self.publish_end(&state);
        lapsed.extend(self.lapse(&mut state, now));
        drop(state);
        tell(&lapsed);
    }

    /// Ends every hold whose lease has run out. Tells when to look again, if there are holds.
    pub(crate) fn watch(&self, now: BootTime) -> Option<BootTime> {
        let mut state = self.state.lock();
        let lapsed = self.lapse(&mut state, now);
        let next = state.needed_end();
        drop(state);
        tell(&lapsed);
        next
    }

    pub(crate) fn remaining(&self, now: BootTime) -> Duration {
        let state = self.state.lock();
        match (state.over, state.end()) {
            (None, Some(end)) => end.since(now),
            _ => Duration::ZERO,
        }
    }

    /// Whether the session is lost, for whatever reason.
    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().over.is_some()
    }

    /// Whether enough of the lease is left for a new hold: so much that the session renews it
    /// before it ends, even if the server that it is connected to fails just now.
    pub(crate) fn is_fresh(&self, now: BootTime) -> bool {
        self.state.lock().is_fresh(now)
    }

    /// When the lease ends, if a hold depends on it: then the session keeps writing.
    pub(crate) fn needed_end(&self) -> Option<BootTime> {
        self.state.lock().needed_end()
    }

    /// The directory of a held node: there our own writes are allowed.
    pub(crate) fn a_directory(&self) -> Option<String> {
        self.state.lock().holds.keys().next().map(|node| path::parent(node).to_owned())
    }

    /// Makes `hold` stand, if the lease is fresh.
    pub(crate) fn grant(&self, hold: &Arc<LeasedNode>, now: BootTime) -> Result<(), Refused> {
        let mut state = self.state.lock();
        if let Some(reason) = state.over {
            return Err(Refused::Over(reason));
        }
        if !state.is_fresh(now) {
            return Err(Refused::Stale);
        }
        hold.granted(now);
        state.holds.insert(hold.path().to_owned(), hold.clone());
        match hold.armed_on() {
            0 => state.unwatched.push_back(hold.clone()),
            epoch if epoch != state.epoch => state.unwatched.push_front(hold.clone()),
            _ => {}
        }
        Ok(())
    }

    /// Whether `hold` stands at `now`, which the caller has just read. The clock decides, whatever
    /// threads have or have not noticed. The top of this file says why no lock is needed, and why
    /// the mark of the loss is read last.
    pub(crate) fn stands(&self, hold: &LeasedNode, now: BootTime) -> bool {
        if now >= self.end.get() {
            self.watch(now);
        }
        hold.loss().is_none()
    }

    /// Whether `stands` would say that the hold stands if its process read this time now. Takes no
    /// lock, so that the simulation's observer can ask between any two steps of any thread.
    #[cfg(zk_sim)]
    pub(crate) fn would_stand(&self, hold: &LeasedNode, now: BootTime) -> bool {
        now < self.end.get() && hold.loss().is_none()
    }

    /// Counts what it keeps.
    #[cfg(zk_sim)]
    pub(crate) fn add_kept(&self, kept: &mut crate::observed::Kept) {
        let state = self.state.lock();
        (kept.holds, kept.unwatched) = (state.holds.len(), state.unwatched.len());
    }

    /// The hold was let go; its node may go now.
    pub(crate) fn release(&self, hold: &Arc<LeasedNode>) {
        self.state.lock().take_out(hold);
    }

    /// The hold was let go while others may still look at it: to them it is lost.
    pub(crate) fn resign(&self, hold: &Arc<LeasedNode>, now: BootTime) {
        let mut state = self.state.lock();
        let lapsed = self.lapse(&mut state, now);
        if let Some(hold) = state.take_out(hold) {
            hold.mark(LossReason::Resigned);
        }
        drop(state);
        tell(&lapsed);
    }

    /// The watch on the node of this hold has fired, or there is none: it needs a new one, at once.
    pub(crate) fn rearm(&self, hold: &Arc<LeasedNode>) {
        let mut state = self.state.lock();
        if state.stands(hold) {
            hold.set_armed_on(u64::MAX);
            state.unwatched.push_front(hold.clone());
        }
    }

    /// The holds whose nodes need a watch on this connection, which is being set from now on: those
    /// that have lived for `WATCH_AFTER`, and those that had a watch before.
    pub(crate) fn to_watch(&self, epoch: u64, now: BootTime) -> Vec<Arc<LeasedNode>> {
        let mut state = self.state.lock();
        if state.epoch != epoch {
            // The watches of the connection before are gone.
            let mut all: Vec<_> = state.holds.values().cloned().collect();
            all.sort_by_key(|hold| (hold.armed_on() == 0, hold.since()));
            (state.unwatched, state.epoch) = (all.into(), epoch);
        }
        let mut due = Vec::new();
        loop {
            state.forget_released();
            if state.next_watch().is_none_or(|next| next > now) {
                break;
            }
            let Some(hold) = state.unwatched.pop_front() else { break };
            if state.stands(&hold) && hold.armed_on() != epoch {
                hold.set_armed_on(epoch);
                due.push(hold);
            }
        }
        due
    }

    /// When [`to_watch`](Self::to_watch) is to be asked again; the start of the clock means at
    /// once.
    pub(crate) fn next_watch(&self, epoch: u64) -> Option<BootTime> {
        let state = self.state.lock();
        if state.epoch == epoch { state.next_watch() } else { Some(BootTime::default()) }
    }

    /// The node of a hold is gone, as an event says.
    pub(crate) fn node_deleted(&self, path: &str, now: BootTime) {
        if let Some(hold) = self.hold_on(path) {
            self.gone(&hold, now);
        }
    }

    /// This hold's node was seen gone.
    pub(crate) fn gone(&self, hold: &Arc<LeasedNode>, now: BootTime) {
        tell(&self.mark_gone(hold, now));
    }

    /// The same for a caller that must run no foreign code, such as a logger. The holds that are
    /// lost are marked so; the caller sees to it that they are [told](tell).
    pub(super) fn mark_gone(&self, hold: &Arc<LeasedNode>, now: BootTime) -> Vec<Arc<LeasedNode>> {
        let mut state = self.state.lock();
        // A process that was stopped reads of its node's end when it wakes: it was the lease that
        // ended first.
        let mut lost = self.lapse(&mut state, now);
        lost.extend(state.take_out(hold).filter(|hold| hold.mark(LossReason::NodeDeleted)));
        lost
    }

    /// The hold on this node, if there is one.
    pub(crate) fn hold_on(&self, path: &str) -> Option<Arc<LeasedNode>> {
        self.state.lock().holds.get(path).cloned()
    }

    /// The session is lost: so is every hold.
    pub(crate) fn end(&self, reason: LossReason) {
        let mut state = self.state.lock();
        state.over.get_or_insert(reason);
        let lost = self.take(&mut state, reason);
        drop(state);
        tell(&lost);
    }

    /// Lets readers without the lock know when the lease ends. The holds of an end that has passed
    /// are marked before.
    fn publish_end(&self, state: &State) {
        self.end.set(state.end().unwrap_or_default());
    }

    fn lapse(&self, state: &mut State, now: BootTime) -> Vec<Arc<LeasedNode>> {
        match state.end() {
            Some(end) if now >= end => self.take(state, LossReason::LeaseExpired),
            _ => Vec::new(),
        }
    }

    /// Takes all holds out, marked as lost.
    fn take(&self, state: &mut State, reason: LossReason) -> Vec<Arc<LeasedNode>> {
        state.holds.drain().map(|(_, hold)| hold).filter(|hold| hold.mark(reason)).collect()
    }
}

impl State {
    fn end(&self) -> Option<BootTime> {
        self.heard.map(|heard| heard + (self.timeout - self.timeout / 12))
    }

    fn needed_end(&self) -> Option<BootTime> {
        if self.holds.is_empty() { None } else { self.end() }
    }

    fn is_fresh(&self, now: BootTime) -> bool {
        self.end().is_some_and(|end| end.since(now) > self.timeout * 3 / 8)
    }

    /// Whether this hold is among those that stand, and not a later one of a node of the same name.
    fn stands(&self, hold: &Arc<LeasedNode>) -> bool {
        self.holds.get(hold.path()).is_some_and(|standing| Arc::ptr_eq(standing, hold))
    }

    /// Of the holds at the front of `unwatched` that were let go meanwhile, only the newest stays.
    /// While locks are taken over and over, the event loop then wakes once in `WATCH_AFTER`: for
    /// the newest, and not for each of them.
    fn forget_released(&mut self) {
        while self.unwatched.len() > 1
            && self.unwatched.front().is_some_and(|hold| !self.stands(hold))
        {
            self.unwatched.pop_front();
        }
    }

    /// When the first hold without a watch is due for one. One that was let go meanwhile counts
    /// too: so the event loop sleeps for `WATCH_AFTER` at most while locks are taken over and over,
    /// and need not be woken by each of them.
    fn next_watch(&self) -> Option<BootTime> {
        let first = self.unwatched.front()?;
        Some(if first.armed_on() == 0 { first.since() + WATCH_AFTER } else { BootTime::default() })
    }

    fn take_out(&mut self, hold: &Arc<LeasedNode>) -> Option<Arc<LeasedNode>> {
        if self.stands(hold) { self.holds.remove(hold.path()) } else { None }
    }
}

/// Outside the lock, since it runs what the holders left to be run.
pub(super) fn tell(lost: &[Arc<LeasedNode>]) {
    for hold in lost {
        hold.tell();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use super::*;
    use crate::session::leased_node::LostSignal;

    impl Lease {
        /// When the lease ends, if a session was made.
        pub(crate) fn end_time(&self) -> Option<BootTime> {
            self.state.lock().end()
        }
    }

    const T: Duration = Duration::from_secs(30);

    fn held(lease: &Lease, now: BootTime) -> Arc<LeasedNode> {
        let hold = LeasedNode::new("/l/n".into(), 0, 0, Box::new(|| ()));
        assert_eq!(lease.grant(&hold, now), Ok(()));
        hold
    }

    fn ago(d: Duration) -> BootTime {
        // The boot clock starts at zero: a test cannot go before that, so it starts later.
        let now = BootTime::now();
        BootTime::at(now.since(BootTime::at(Duration::ZERO)).saturating_sub(d))
    }

    /// How long a lease lasts from when the leader was heard.
    const SPAN: Duration = Duration::from_millis(27_500);

    #[test]
    fn a_late_proof_does_not_bring_a_lapsed_hold_back() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let hold = held(&lease, start);
        lease.extend(start + T / 2, start + SPAN);
        assert_eq!(hold.loss(), Some(LossReason::LeaseExpired));
        assert!(hold.signal().receiver().try_recv().is_err_and(|e| e.is_disconnected()));
        assert_eq!(lease.needed_end(), None);
    }

    #[test]
    fn a_proof_in_time_extends_from_when_the_leader_heard_of_us() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let hold = held(&lease, start);
        lease.extend(start + T / 6, start + T / 3);
        lease.extend(start + T / 12, start + T / 3); // an older proof takes nothing back
        assert_eq!(lease.watch(start + T / 2), Some(start + T / 6 + SPAN));
        assert_eq!(hold.loss(), None);
        lease.watch(start + T / 6 + SPAN);
        assert_eq!(hold.loss(), Some(LossReason::LeaseExpired));
    }

    #[test]
    fn of_the_holds_that_were_let_go_only_the_newest_wakes_the_event_loop() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let path = |i: u32| format!("/l/{i}");
        let grant = |i: u32| {
            let hold = LeasedNode::new(path(i), 0, 0, Box::new(|| ()));
            assert_eq!(lease.grant(&hold, start + WATCH_AFTER * i / 10), Ok(()));
            hold
        };
        let look = |tenths: u32| {
            (lease.to_watch(1, start + WATCH_AFTER * tenths / 10), lease.next_watch(1))
        };
        look(0);
        (0..5).for_each(|i| lease.release(&grant(i)));
        assert_eq!(look(5).1, Some(start + WATCH_AFTER * 14 / 10));
        let kept = grant(5);
        assert_eq!(look(5).1, Some(start + WATCH_AFTER * 15 / 10));
        let (due, next) = look(15);
        assert!(due.len() == 1 && Arc::ptr_eq(&due[0], &kept) && next.is_none());
    }

    #[test]
    fn a_stale_lease_grants_nothing_until_it_is_renewed() {
        let lease = Lease::default();
        lease.begin(T, ago(T * 13 / 24));
        let hold = LeasedNode::new("/l/n".into(), 0, 0, Box::new(|| ()));
        assert_eq!(lease.grant(&hold, BootTime::now()), Err(Refused::Stale));
        lease.extend(ago(T / 2), BootTime::now());
        assert_eq!(lease.grant(&hold, BootTime::now()), Ok(()));
        lease.end(LossReason::SessionExpired);
        assert_eq!(hold.loss(), Some(LossReason::SessionExpired));
        assert_eq!(
            lease.grant(&hold, BootTime::now()),
            Err(Refused::Over(LossReason::SessionExpired))
        );
    }

    #[test]
    fn no_hold_looks_held_while_another_ones_loss_is_told() {
        let (lease, start) = (Arc::new(Lease::default()), BootTime::now());
        lease.begin(T, start);
        let (told, news) = crossbeam_channel::bounded(0);
        let (go_on, gate) = crossbeam_channel::bounded::<()>(0);
        let slow = |path: &str| {
            let (told, gate) = (told.clone(), gate.clone());
            let on_loss = Box::new(move || {
                let _ = (told.send(()), gate.recv());
            });
            let hold = LeasedNode::new(path.into(), 0, 0, on_loss);
            assert_eq!(lease.grant(&hold, BootTime::now()), Ok(()));
            hold
        };
        let holds = [slow("/l/a"), slow("/l/b")];
        let (here, late) = (lease.clone(), start + T);
        let teller = std::thread::spawn(move || here.watch(late));
        news.recv().unwrap(); // it is telling of the first and has not come to the second
        assert!(holds.iter().all(|hold| !lease.stands(hold, late)));
        drop(go_on);
        news.recv().unwrap();
        assert_eq!(teller.join().unwrap(), None);
    }

    #[test]
    fn a_shorter_timeout_granted_later_shortens_the_lease_at_once() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let hold = held(&lease, start);
        lease.shorten(T / 3, start + T / 9);
        assert_eq!(lease.watch(start + T / 9), Some(start + (T / 3 - T / 36)));
        lease.shorten(T, start + T / 9); // a longer one changes nothing
        assert_eq!(lease.watch(start + T / 9), Some(start + (T / 3 - T / 36)));
        lease.shorten(T / 30, start + T / 9);
        assert_eq!(hold.loss(), Some(LossReason::LeaseExpired));
    }

    #[test]
    fn a_common_signal_comes_with_the_first_loss_among_those_who_have_joined() {
        let (lease, signal) = (Lease::default(), LostSignal::common());
        lease.begin(T, BootTime::now());
        let holds = ["/l/a", "/l/b", "/l/c"].map(|path| {
            let hold = LeasedNode::new(path.into(), 0, 0, Box::new(|| ()));
            assert_eq!(lease.grant(&hold, BootTime::now()), Ok(()));
            hold.join(&signal);
            hold
        });
        holds[0].part(&signal);
        lease.node_deleted("/l/a", BootTime::now());
        assert_eq!(signal.reason(), None);
        assert!(signal.receiver().try_recv().is_err_and(|e| e.is_empty()));
        lease.node_deleted("/l/b", BootTime::now());
        assert!(signal.receiver().try_recv().is_err_and(|e| e.is_disconnected()));
        lease.end(LossReason::SessionExpired);
        assert_eq!(signal.reason(), Some(LossReason::NodeDeleted));
        // Who joins when it is lost already.
        let late = LostSignal::common();
        holds[2].join(&late);
        assert_eq!(late.reason(), Some(LossReason::SessionExpired));
    }

    #[test]
    fn a_resigned_hold_is_lost_to_all_who_look_at_it() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let hold = held(&lease, start);
        let signal = hold.signal();
        lease.resign(&hold, start);
        assert!(!lease.stands(&hold, start) && lease.needed_end().is_none());
        assert!(signal.receiver().try_recv().is_err_and(|e| e.is_disconnected()));
        assert_eq!(signal.reason(), Some(LossReason::Resigned));
    }

    #[test]
    fn a_reader_that_finds_the_end_passed_ends_the_hold_for_good() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let hold = held(&lease, start);
        let signal = hold.signal();
        let just_before = start + (SPAN - Duration::from_nanos(1));
        assert!(lease.stands(&hold, just_before));
        assert!(!lease.stands(&hold, start + SPAN));
        assert!(signal.receiver().try_recv().is_err_and(|e| e.is_disconnected()));
        // A thread that read the clock in time brings a proof when it is too late.
        lease.extend(start + T / 2, just_before);
        assert!(!lease.stands(&hold, start + SPAN) && !lease.stands(&hold, just_before));
        assert_eq!(hold.loss(), Some(LossReason::LeaseExpired));
    }

    #[test]
    fn a_shorter_lease_and_each_other_loss_count_for_the_next_reader() {
        let start = BootTime::now();
        let grant = || {
            let lease = Lease::default();
            lease.begin(T, start);
            let hold = held(&lease, start);
            assert!(lease.stands(&hold, start + T / 2));
            (lease, hold)
        };
        let (lease, hold) = grant();
        lease.shorten(T / 3, start + T / 9);
        assert!(lease.stands(&hold, start + T / 9) && !lease.stands(&hold, start + T / 2));
        let (lease, hold) = grant();
        lease.shorten(T / 3, start + T / 2);
        assert!(!lease.stands(&hold, start));
        let (lease, hold) = grant();
        lease.node_deleted(hold.path(), start);
        assert!(!lease.stands(&hold, start));
        let (lease, hold) = grant();
        lease.end(LossReason::SessionClosed);
        assert!(!lease.stands(&hold, start));
    }

    /// Readers and proofs race for the end of a lease, on a clock that goes in great steps: a proof
    /// is in time, or too late, as it happens.
    #[test]
    fn who_begins_to_ask_after_anybody_was_told_of_the_loss_is_told_of_it_too() {
        let start = BootTime::now();
        for _ in 0..50 {
            let lease = Lease::default();
            lease.begin(T, start);
            let hold = held(&lease, start);
            let (steps, is_told, is_over) =
                (AtomicU32::new(0), AtomicBool::new(false), AtomicBool::new(false));
            let clock = || start + SPAN / 4 * steps.load(Ordering::SeqCst);
            let read = || {
                while !is_over.load(Ordering::SeqCst) {
                    let was_told = is_told.load(Ordering::SeqCst);
                    let stands = lease.stands(&hold, clock());
                    assert!(!(was_told && stands), "held again");
                    if !stands {
                        is_told.store(true, Ordering::SeqCst);
                    }
                }
            };
            let prove = || {
                while !is_over.load(Ordering::SeqCst) {
                    let now = clock();
                    std::thread::yield_now(); // it is late, once in a while
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
            assert!(!is_told.into_inner() || hold.loss() == Some(LossReason::LeaseExpired));
        }
    }

    #[test]
    fn who_begins_to_ask_after_the_lease_was_shortened_finds_it_so() {
        let start = BootTime::now();
        for _ in 0..50 {
            let lease = Lease::default();
            lease.begin(T, start);
            let hold = held(&lease, start);
            let is_shorter = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let read = || loop {
                    let was_shorter = is_shorter.load(Ordering::Acquire);
                    let stands = lease.stands(&hold, start + T / 2);
                    assert!(!(was_shorter && stands), "the longer lease");
                    if was_shorter {
                        return;
                    }
                };
                let readers = [scope.spawn(read), scope.spawn(read)];
                // By the clock of who shortens it, it has not ended yet: only a reader sees that.
                lease.shorten(T / 3, start + T / 9);
                is_shorter.store(true, Ordering::Release);
                readers.into_iter().for_each(|reader| reader.join().unwrap());
            });
        }
    }

    #[test]
    fn a_release_never_fires_the_signal() {
        let (lease, start) = (Lease::default(), BootTime::now());
        lease.begin(T, start);
        let hold = held(&lease, start);
        let signal = hold.signal();
        lease.release(&hold);
        drop(hold);
        lease.end(LossReason::SessionClosed);
        assert!(signal.receiver().try_recv().is_err_and(|e| e.is_empty()));
    }
}
