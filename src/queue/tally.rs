//! What locks count, and when they report it to the session's observers.
//!
//! A recipe opens a [`CallTally`] for each call, but for a re-entry. When the call has the lock,
//! the `CallTally` gives the recipe a [`HoldTally`]. The counters take no lock and read no clock,
//! since they count in every program. Times are measured only where a session has observers.

use std::cell::Cell;
use std::iter;
use std::sync::Arc;

use super::HeldNode;
use crate::error::{Error, LossReason, Result};
use crate::observer::{EventQueue, LockEvent, LockLabel, WaitEnd, WaitOutcome};
use crate::queue::request::Call;
use zk_session::world::Instant;
use zk_session::world::atomic::{AtomicU64, Ordering};

/// The numbers of one lock. Each lock gives them by `stats()`, a `ZkRwLock` by `read_stats()` and
/// `write_stats()`; a multi-lock has none of its own. The counts begin with the first lock of the
/// path in its session, and end with the last: all locks of a path in a session share them.
///
/// A call by a thread that holds the lock already (re-entry) is not counted, and all guards of such
/// a thread are one hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// Calls for the lock that wait now.
    pub waiting: u64,
    /// Holds that stand now. A hold that was lost does not count, even if its guard lives.
    pub held: u64,
    /// Calls that have got the lock.
    pub acquired: u64,
    /// Calls that others had ahead for as long as the call could wait: they returned
    /// [`Error::WouldBlock`](crate::Error::WouldBlock) or
    /// [`Error::TimedOut`](crate::Error::TimedOut).
    pub timed_out: u64,
    /// Calls that returned [`Error::Cancelled`](crate::Error::Cancelled).
    pub cancelled: u64,
    /// Calls that returned another error, or panicked.
    pub failed: u64,
    /// Calls that have found that somebody else has the lock or is ahead, in this process or
    /// another.
    pub contended: u64,
    /// Calls that got the lock from another thread of this process, or as their process had
    /// [kept](crate::LockBuilder::keep) it: without a round trip.
    pub handed_over: u64,
    /// Holds that were lost.
    pub lost: u64,
}

/// What the locks of one path in one session count together, and where they report it.
pub(crate) struct LockTally {
    label: Arc<LockLabel>,
    /// `None`: the session has no observer.
    events: Option<Arc<EventQueue>>,
    begun: AtomicU64,
    /// By [`WaitOutcome`].
    ended: [AtomicU64; 4],
    contended: AtomicU64,
    handed_over: AtomicU64,
    released: AtomicU64,
    lost: AtomicU64,
}

impl LockTally {
    pub(crate) fn new(label: LockLabel, events: Option<Arc<EventQueue>>) -> Arc<Self> {
        Arc::new(LockTally {
            label: Arc::new(label),
            events,
            begun: AtomicU64::default(),
            ended: Default::default(),
            contended: AtomicU64::default(),
            handed_over: AtomicU64::default(),
            released: AtomicU64::default(),
            lost: AtomicU64::default(),
        })
    }

    pub(crate) fn stats(&self) -> LockStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        // What ends is read before what begins: a count of what stands now is never too low by a
        // call that ends between the two.
        let (lost, released) = (read(&self.lost), read(&self.released));
        let [acquired, timed_out, cancelled, failed] = [0, 1, 2, 3].map(|at| read(&self.ended[at]));
        let ended = acquired + timed_out + cancelled + failed;
        LockStats {
            waiting: read(&self.begun).saturating_sub(ended),
            held: acquired.saturating_sub(released + lost),
            acquired,
            timed_out,
            cancelled,
            failed,
            contended: read(&self.contended),
            handed_over: read(&self.handed_over),
            lost,
        }
    }

    /// Counts `call` as a call for this lock, from now to the outcome of `take`. `take` calls
    /// [`CallTally::acquired`] when it has the lock.
    pub(crate) fn count<T>(
        self: &Arc<Self>,
        call: &Call,
        take: impl FnOnce(&CallTally<'_>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let is_reported = self.events.as_ref().is_some_and(|events| events.wait_began(&self.label));
        let tally = CallTally {
            lock: self,
            since: is_reported.then(Instant::now),
            contention: Cell::new(Contention::None),
            is_handed_over: Cell::new(false),
            end: Cell::new(Some(WaitOutcome::Failed)),
        };
        let outcome = take(&tally);
        let end = match &outcome {
            Ok(None) => {
                call.found_contention();
                tally.contended_until_now();
                WaitOutcome::TimedOut
            }
            Err(Error::Cancelled { .. }) => WaitOutcome::Cancelled,
            Ok(Some(_)) | Err(_) => WaitOutcome::Failed,
        };
        tally.end.set(tally.end.get().and(Some(end))); // unless it has ended as acquired
        outcome
    }

    /// Counts a lost hold.
    fn lose(&self, is_reported: bool, reason: LossReason) {
        self.lost.fetch_add(1, Ordering::AcqRel);
        if is_reported {
            self.follows(LockEvent::Lost(reason));
        }
    }

    fn follows(&self, event: LockEvent) {
        if let Some(events) = &self.events {
            events.follows(&self.label, event);
        }
    }
}

/// One call for a lock, as it is counted. If nothing has ended it before, its drop does, also by a
/// panic.
pub(crate) struct CallTally<'a> {
    lock: &'a Arc<LockTally>,
    /// When it began; `None` if it is not reported.
    since: Option<Instant>,
    contention: Cell<Contention>,
    is_handed_over: Cell<bool>,
    /// How the drop ends it; `None` once it has ended.
    end: Cell<Option<WaitOutcome>>,
}

/// Whether a call has found somebody else ahead.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Contention {
    None,
    /// It is counted, and is reported with the end of the wait.
    Counted,
    Reported,
}

impl CallTally<'_> {
    /// Somebody else has the lock or is ahead.
    pub(crate) fn contended(&self) {
        self.count_contention();
        if self.contention.replace(Contention::Reported) == Contention::Counted {
            self.follows(LockEvent::Contended);
        }
    }

    /// As `contended`, for a wait that is about to end: the contention is reported with its end.
    pub(crate) fn contended_until_now(&self) {
        self.count_contention();
    }

    fn count_contention(&self) {
        if self.contention.get() == Contention::None {
            self.contention.set(Contention::Counted);
            self.lock.contended.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The call takes a hold over that stands already in this process. This is reported with the
    /// end of the wait, which comes at once.
    pub(crate) fn handed_over(&self) {
        self.lock.handed_over.fetch_add(1, Ordering::Relaxed);
        self.is_handed_over.set(true);
    }

    /// The call has the lock, with this node, or with several nodes that are one hold.
    pub(crate) fn acquired(&self, node: &HeldNode, others: &[HeldNode]) -> HoldTally {
        let now = self.ends(WaitOutcome::Acquired);
        if let Some(holds) = node.state().holds(|| Holds::new(self.lock)) {
            others.iter().for_each(|other| {
                other.state().holds(|| holds.clone());
            });
            // The end of the wait was reported before: a loss that is found now comes after it.
            holds.begin(now.is_some());
            let mut nodes = iter::once(node).chain(others);
            if let Some(reason) = nodes.find_map(|node| node.leased().loss()) {
                holds.lose(reason);
            }
        }
        HoldTally { since: now }
    }

    /// Ends the wait. Gives the time if the wait is reported.
    fn ends(&self, outcome: WaitOutcome) -> Option<Instant> {
        self.end.set(None);
        self.lock.ended[outcome as usize].fetch_add(1, Ordering::AcqRel);
        let (since, events) = (self.since?, self.lock.events.as_ref()?);
        let now = Instant::now();
        let end = WaitEnd {
            outcome,
            waited: now.saturating_duration_since(since),
            is_contended: self.contention.get() == Contention::Counted,
            is_handed_over: self.is_handed_over.get(),
        };
        events.follows(&self.lock.label, LockEvent::WaitEnded(end));
        Some(now)
    }

    fn follows(&self, event: LockEvent) {
        if self.since.is_some() {
            self.lock.follows(event);
        }
    }
}

impl Drop for CallTally<'_> {
    fn drop(&mut self) {
        if let Some(outcome) = self.end.get() {
            self.ends(outcome);
        }
    }
}

/// One hold, as it is counted: all guards of a thread, or a guard that belongs to no thread.
pub(crate) struct HoldTally {
    /// When it began; `None` if it is not reported.
    since: Option<Instant>,
}

impl HoldTally {
    /// The hold of these nodes ends: by a release, unless one of them was lost before. Gives the
    /// reason of the loss. This alone decides what is counted, what observers hear, and what
    /// `unlock` returns.
    ///
    /// A loss marks the node first, and raises the signals of its guards with that. Its holds are
    /// told later, on another thread. A guard that its thread drops as soon as the signal says so
    /// ends in between. So the mark is looked for here, and whoever comes first counts the loss.
    pub(crate) fn end(&self, node: &HeldNode, others: &[HeldNode]) -> Option<LossReason> {
        let loss = || iter::once(node).chain(others).find_map(HeldNode::loss);
        let Some(holds) = node.state().known_holds() else { return loss() };
        if let Some(reason) = loss() {
            holds.lose(reason);
            return Some(reason);
        }
        if !holds.end(self.since.is_some()) {
            return loss(); // it was told since
        }
        holds.tally.released.fetch_add(1, Ordering::AcqRel);
        if let Some(since) = self.since {
            let held_for = Instant::now().saturating_duration_since(since);
            holds.tally.follows(LockEvent::Released(held_for));
        }
        None
    }
}

/// The holds that stand on one node, or on several that are held together.
pub(crate) struct Holds {
    tally: Arc<LockTally>,
    /// How many stand; in the upper half, how many of these are reported.
    standing: AtomicU64,
}

impl Holds {
    fn new(tally: &Arc<LockTally>) -> Arc<Self> {
        Arc::new(Holds { tally: tally.clone(), standing: AtomicU64::new(0) })
    }

    fn begin(&self, is_reported: bool) {
        self.standing.fetch_add(one(is_reported), Ordering::AcqRel);
    }

    /// False: it was lost before.
    fn end(&self, is_reported: bool) -> bool {
        let mut standing = self.standing.load(Ordering::Acquire);
        while let Some(rest) = standing.checked_sub(one(is_reported)) {
            let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
            match self.standing.compare_exchange(standing, rest, success, failure) {
                Ok(_) => return true,
                Err(now) => standing = now,
            }
        }
        false
    }

    /// The node is lost, and all holds that stand on it.
    pub(crate) fn lose(&self, reason: LossReason) {
        let standing = self.standing.swap(0, Ordering::AcqRel);
        let (reported, all) = (standing >> 32, standing & u64::from(u32::MAX));
        (0..all).for_each(|hold| self.tally.lose(hold < reported, reason));
    }
}

fn one(is_reported: bool) -> u64 {
    1 | u64::from(is_reported) << 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::{Callbacks, NewNode};
    use crate::{
        Held, Observer, ZkElection, ZkExclusiveLock, ZkMultiLock, ZkMutex, ZkRwLock, ZkSemaphore,
        ZkSemaphoreMutex, ZkSession,
    };
    use std::time::Duration;
    use zk_test_server::TestServer;

    const MOMENT: Duration = Duration::from_millis(1);

    /// The node is lost between its grant and the end of the call, when no hold is counted on it
    /// yet.
    #[test]
    fn a_hold_that_is_lost_before_its_call_returns_counts_as_lost() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let held =
            HeldNode::grant(&generation, NewNode::named("/l/n"), Callbacks::NONE.on_loss).unwrap();
        let label = LockLabel { recipe: "mutex", name: String::new(), path: "/l".into() };
        let tally = LockTally::new(label, None);
        let taken = tally.count(&Call::new("lock"), |tally| {
            held.seen_gone();
            Ok(Some(tally.acquired(&held, &[])))
        });
        let stats = tally.stats();
        assert_eq!((stats.held, stats.lost), (0, 1));
        taken.unwrap().unwrap().end(&held, &[]);
        assert_eq!(tally.stats(), stats);
    }

    /// Counts what the observer of a session hears of the ends of holds.
    #[derive(Clone, Default)]
    struct Ends(Arc<[AtomicU64; 2]>);

    impl Observer for Ends {
        fn released(&mut self, _: &LockLabel, _: Duration) {
            self.0[0].fetch_add(1, Ordering::SeqCst);
        }

        fn lost(&mut self, _: &LockLabel, reason: LossReason) {
            assert_eq!(reason, LossReason::NodeDeleted);
            self.0[1].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The signal of the loss comes first, and its thread drops the guard at once.
    #[test]
    fn a_hold_whose_guard_is_dropped_before_its_loss_is_told_ends_as_lost() {
        let server = TestServer::start().unwrap();
        let ends = Ends::default();
        let builder = ZkSession::builder(server.connect_string()).observer(ends.clone());
        let session = builder.connect().unwrap();
        let generation = session.core().generation().unwrap();
        let lose = |held: &Held| {
            // The last of several nodes is lost.
            let node = held.held_nodes().last().unwrap();
            let tell = generation.lease.lose_untold(node.leased());
            assert!(held.lost().reason().is_some() && !held.is_held());
            tell
        };
        let mut holds = 0;
        let mut check = |stats: LockStats, lost, tell: Box<dyn FnOnce()>, what: &str| {
            assert_eq!((stats.held, stats.lost), (0, lost), "{what}");
            tell();
            holds += 1;
        };
        macro_rules! check {
            ($lock:expr, $stats:ident, $take:expr, $end:ident) => {{
                let (lock, what) =
                    ($lock.unwrap(), concat!(stringify!($take), " ", stringify!($lock)));
                let guard = $take(&lock).unwrap();
                let tell = lose(&guard);
                drop(guard);
                check(lock.$stats(), 1, Box::new(tell), what);
                assert_eq!(lock.$stats().lost, 1, "told once");
                let guard = $take(&lock).unwrap();
                let tell = lose(&guard);
                assert!(matches!(guard.$end(), Err(Error::Lost { .. })), "{what}");
                check(lock.$stats(), 2, Box::new(tell), what);
            }};
        }
        check!(ZkMutex::new(&session, "/mutex"), stats, ZkMutex::lock, unlock);
        let kept = || ZkMutex::builder(&session, "/kept").keep(Duration::from_secs(60)).build();
        check!(kept(), stats, ZkMutex::lock, unlock);
        check!(ZkRwLock::new(&session, "/read"), read_stats, ZkRwLock::read, unlock);
        check!(ZkRwLock::new(&session, "/write"), write_stats, ZkRwLock::write, unlock);
        let three = |semaphore: &ZkSemaphore| semaphore.acquire_many(3);
        check!(ZkSemaphore::new(&session, "/permits", 3), stats, three, release);
        check!(ZkSemaphoreMutex::new(&session, "/sm"), stats, ZkSemaphoreMutex::lock, unlock);
        check!(ZkExclusiveLock::new(&session, "/fixed"), stats, ZkExclusiveLock::lock, unlock);

        let mutex = ZkMutex::new(&session, "/one").unwrap();
        let both = [mutex.clone(), ZkMutex::new(&session, "/other").unwrap()];
        let guard = ZkMultiLock::new(&both).unwrap().lock().unwrap();
        let tell = lose(guard.holds().next().unwrap());
        drop(guard);
        check(mutex.stats(), 1, Box::new(tell), "multi");
        assert_eq!((both[1].stats().held, both[1].stats().lost), (0, 0));

        // The thread of the candidate ends the term as soon as the signal says so.
        let election = ZkElection::new(&session, "/election").unwrap();
        let candidate = election.join().unwrap();
        let tell = lose(&candidate.wait_leader().unwrap());
        candidate.wait_leader().unwrap();
        let stats = election.stats();
        assert_eq!((stats.acquired, stats.lost), (2, 1), "election");
        tell();
        candidate.leave().unwrap();
        assert_eq!(election.stats().lost, 1);
        session.close().unwrap();
        // The other member of the multi-lock, and the second term.
        assert_eq!(ends.0.each_ref().map(|n| n.load(Ordering::SeqCst)), [2, holds + 1]);
    }

    /// A time that is a millisecond later.
    fn a_moment_later() -> Instant {
        let begun = Instant::now();
        while begun.elapsed() < MOMENT {}
        Instant::now()
    }

    /// Each time ends where the next one begins: the wait with the grant, and the hold with the
    /// release. Two calls, since the second begins long after the lock was made.
    #[test]
    fn the_time_of_a_wait_is_no_part_of_its_hold_and_the_time_of_a_hold_no_part_of_a_wait() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let (queue, inbox) = EventQueue::new();
        let label = LockLabel { recipe: "mutex", name: String::new(), path: "/l".into() };
        let tally = LockTally::new(label, Some(queue));
        for node in ["/l/first", "/l/second"] {
            let node = NewNode::named(node);
            let held = HeldNode::grant(&generation, node, Callbacks::NONE.on_loss).unwrap();
            let before = a_moment_later();
            let mut asked = before;
            let taken = tally.count(&Call::new("lock"), |tally| {
                assert!(tally.since >= Some(before));
                asked = a_moment_later();
                Ok(Some(tally.acquired(&held, &[])))
            });
            let hold = taken.unwrap().unwrap();
            let granted = hold.since.unwrap();
            assert!(granted >= asked, "the hold begins with the grant");
            let releases = a_moment_later();
            hold.end(&held, &[]);
            let after = Instant::now();
            let mut told = inbox.reported().into_iter();
            let mut next = || told.next().unwrap();
            assert!(matches!(next(), LockEvent::WaitBegan));
            let LockEvent::WaitEnded(end) = next() else { panic!("no end of the wait") };
            assert_eq!(end.outcome, WaitOutcome::Acquired);
            assert!(!end.is_contended && !end.is_handed_over);
            assert!(end.waited >= MOMENT && end.waited <= granted - before, "{end:?}");
            let LockEvent::Released(held_for) = next() else { panic!("no release") };
            assert!(held_for >= releases - granted && held_for <= after - granted, "{held_for:?}");
            assert!(told.next().is_none());
        }
    }

    /// Which of the nodes is lost makes no difference, nor does how many are lost.
    #[test]
    fn several_nodes_are_one_hold_which_any_of_them_loses_once() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        let generation = session.core().generation().unwrap();
        let (queue, inbox) = EventQueue::new();
        let label = LockLabel { recipe: "semaphore", name: String::new(), path: "/l".into() };
        let tally = LockTally::new(label, Some(queue));
        for (round, lost) in [[0, 1], [1, 2], [2, 0]].into_iter().enumerate() {
            let nodes: Vec<HeldNode> = (0..3)
                .map(|at| {
                    let path = format!("/l/{round}-{at}");
                    let node = NewNode::named(&path);
                    HeldNode::grant(&generation, node, Callbacks::NONE.on_loss).unwrap()
                })
                .collect();
            let taken = tally.count(&Call::new("acquire"), |tally| {
                Ok(Some(tally.acquired(&nodes[0], &nodes[1..])))
            });
            let before = tally.stats();
            assert_eq!((before.held, before.lost), (1, round as u64));
            lost.iter().for_each(|at| nodes[*at].seen_gone());
            let stats = tally.stats();
            assert_eq!((stats.held, stats.lost), (0, round as u64 + 1));
            taken.unwrap().unwrap().end(&nodes[0], &nodes[1..]);
            assert_eq!(tally.stats(), stats);
            let ends = inbox.reported().into_iter().filter_map(|event| match event {
                LockEvent::Lost(reason) => Some(reason.as_str()),
                LockEvent::Released(_) => Some("released"),
                _ => None,
            });
            assert_eq!(ends.collect::<Vec<_>>(), ["node_deleted"]);
        }
    }
}
