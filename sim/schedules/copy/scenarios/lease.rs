//! The lease: holds that stand and end while threads check them without a lock. The order in which
//! one thread's writes become visible to another matters here, and loom tries each order that the
//! memory model allows.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize; // notes
use std::time::Duration;

use zk_session::clock::BootTime;
use zk_session::error::LossReason;
use zk_session::notifier::{Notifier, EventMask};
use zk_session::generation::{Generation, SPAN, T};
use zk_session::lease::node::{LeasedNode, Listener, LostSignal, NodeWatch};
use zk_session::lease::Refused;
use zk_session::world::atomic::{AtomicBool, Ordering};
use zk_session::world::{advance, explore, explore_up_to, spawn};

const SECOND: Duration = Duration::from_secs(1);

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

/// A session with one hold, granted at the start of its lease, and the number of times that its
/// owner was notified of its loss.
struct Stage {
    session: Arc<Generation>,
    hold: Arc<LeasedNode>,
    start: BootTime,
    told: Arc<AtomicUsize>,
}

impl Stage {
    fn new() -> Arc<Self> {
        let (session, told) = (Generation::new(1), Arc::new(AtomicUsize::new(0)));
        let start = BootTime::now();
        let note = told.clone();
        let on_loss = move || {
            note.fetch_add(1, Ordering::Relaxed);
        };
        let hold = LeasedNode::new("/l/n".to_owned(), 0, NodeWatch::Unset, Arc::new(on_loss));
        assert_eq!(session.lease.grant(&hold, start), Ok(()));
        Arc::new(Stage { session, hold, start, told })
    }

    fn is_held(&self) -> bool {
        self.session.lease.is_held(&self.hold, BootTime::now())
    }

    fn times_notified(&self) -> usize {
        self.told.load(Ordering::Relaxed)
    }
}

/// The clock passes the end of the lease. One thread brings a proof, in time or not. Two threads
/// check the hold: a check that begins after another one has seen the loss must see it too. There
/// are too many schedules to try all.
pub fn a_check_after_one_that_saw_the_loss_sees_it_too() {
    explore_up_to(Some(3), || {
        let stage = Stage::new();
        advance(SPAN - SECOND);
        let is_told = Arc::new(AtomicBool::new(false));
        let prover = {
            let stage = stage.clone();
            spawn(move || {
                let now = BootTime::now();
                stage.session.proven(now, now);
            })
        };
        let other = {
            let (stage, is_told) = (stage.clone(), is_told.clone());
            spawn(move || {
                let stands = stage.is_held();
                is_told.store(!stands, Ordering::Release);
                stands
            })
        };
        advance(SECOND);
        let was_told = is_told.load(Ordering::Acquire);
        let stands = stage.is_held();
        assert!(!(was_told && stands), "held again");
        prover.join().unwrap();
        let others = other.join().unwrap();
        if !(stands && others) {
            assert!(!stage.is_held(), "held again");
            assert_eq!(stage.hold.loss(), Some(LossReason::LeaseExpired));
        }
    });
}

/// The lease has ended, and no thread has noticed it. A thread reads the clock now and then brings
/// a proof, while another thread checks the hold.
pub fn a_late_proof_brings_no_hold_back() {
    explore(|| {
        let stage = Stage::new();
        advance(SPAN);
        let prover = {
            let stage = stage.clone();
            spawn(move || {
                let now = BootTime::now();
                stage.session.proven(now, now);
            })
        };
        assert!(!stage.is_held(), "held again");
        prover.join().unwrap();
        assert_eq!(stage.hold.loss(), Some(LossReason::LeaseExpired));
        assert_eq!(stage.times_notified(), 1, "how often its owner was notified");
    });
}

/// A thread reads the clock in time, but brings its proof after the end of the lease. Either the
/// hold is lost, or no check has seen a loss.
pub fn a_proof_in_time_that_is_written_late_decides_once() {
    explore(|| {
        let stage = Stage::new();
        advance(SPAN - SECOND);
        let in_time = BootTime::now();
        advance(SECOND);
        let prover = {
            let stage = stage.clone();
            spawn(move || stage.session.proven(in_time, in_time))
        };
        let other = {
            let stage = stage.clone();
            spawn(move || stage.is_held())
        };
        let mine = stage.is_held();
        prover.join().unwrap();
        let others = other.join().unwrap();
        let is_lost = stage.hold.loss().is_some();
        assert_eq!(stage.is_held(), !is_lost, "the mark decides");
        assert_eq!(mine && others, !is_lost, "a thread saw a loss although the hold stands");
        assert_eq!(stage.times_notified(), usize::from(is_lost), "how often its owner was notified");
    });
}

pub fn a_shorter_lease_counts_as_soon_as_it_is_there() {
    explore(|| {
        let stage = Stage::new();
        let is_shorter = Arc::new(AtomicBool::new(false));
        let server = {
            let (stage, is_shorter) = (stage.clone(), is_shorter.clone());
            spawn(move || {
                // By this thread's clock the lease has not ended yet: only a later check finds the
                // end.
                stage.session.lease.shorten(T / 3, stage.start + SECOND);
                is_shorter.store(true, Ordering::Release);
            })
        };
        let now = stage.start + T / 2;
        let was_shorter = is_shorter.load(Ordering::Acquire);
        let stands = stage.session.lease.is_held(&stage.hold, now);
        assert!(!(was_shorter && stands), "the longer lease still counts");
        server.join().unwrap();
        assert!(!stage.session.lease.is_held(&stage.hold, now), "the longer lease still counts");
    });
}

/// The lease ends. The timer, a holder and an event of the node notice it at the same time.
pub fn a_loss_that_several_threads_find_is_notified_once() {
    explore(|| {
        let stage = Stage::new();
        let signal = stage.hold.signal();
        advance(SPAN);
        let timer = {
            let stage = stage.clone();
            spawn(move || stage.session.lease.end_if_due(BootTime::now()))
        };
        let event = {
            let stage = stage.clone();
            spawn(move || stage.session.lease.node_deleted("/l/n", BootTime::now()))
        };
        assert!(!stage.is_held(), "the lease has ended");
        assert_eq!(signal.reason(), Some(LossReason::LeaseExpired), "the signal comes with the loss");
        assert_eq!(timer.join().unwrap(), None);
        event.join().unwrap();
        assert_eq!(stage.hold.loss(), Some(LossReason::LeaseExpired), "it was the lease that ended first");
        assert_eq!(stage.times_notified(), 1, "how often its owner was notified");
        assert!(signal.receiver().try_recv().is_err_and(|e| e.is_disconnected()), "the signal");
        assert!(stage.session.lease.needed_end().is_none(), "no hold is counted any more");
    });
}

pub fn a_hold_that_is_given_up_while_its_node_is_deleted_has_one_reason() {
    explore(|| {
        let stage = Stage::new();
        let signal = stage.hold.signal();
        let event = {
            let stage = stage.clone();
            spawn(move || {
                stage.session.lease.node_deleted("/l/n", BootTime::now());
                stage.hold.loss()
            })
        };
        stage.session.lease.resign(&stage.hold, BootTime::now());
        let mine = stage.hold.loss();
        assert!(mine.is_some() && !stage.is_held(), "given up");
        assert_eq!(event.join().unwrap(), mine, "one reason");
        assert_eq!(signal.reason(), mine, "one reason");
        // The owner needs a notification only if the hold was lost for another reason.
        let expected = usize::from(mine == Some(LossReason::NodeDeleted));
        assert_eq!(stage.times_notified(), expected, "how often its owner was notified");
    });
}

/// The drop of a guard: its signal parts, then the hold is released. An event reports the deletion,
/// which is our own.
pub fn a_released_hold_is_never_lost() {
    explore(|| {
        let stage = Stage::new();
        let signal: LostSignal = stage.hold.signal();
        let event = {
            let stage = stage.clone();
            spawn(move || stage.session.lease.node_deleted("/l/n", BootTime::now()))
        };
        stage.hold.part(&signal);
        stage.session.lease.release(&stage.hold);
        let at_release = (signal.reason(), stage.hold.loss().is_some());
        assert!(at_release.0.is_none() || at_release.1, "a signal without a loss");
        stage.session.lease.end(LossReason::SessionClosed);
        event.join().unwrap();
        assert_eq!((signal.reason(), stage.hold.loss().is_some()), at_release, "the hold was lost after its release");
        assert!(stage.session.lease.needed_end().is_none(), "no hold is counted any more");
    });
}

pub fn a_hold_that_is_granted_while_the_session_ends_is_lost() {
    explore(|| {
        let session = Generation::new(1);
        let event = {
            let session = session.clone();
            spawn(move || session.lease.end(LossReason::SessionExpired))
        };
        let hold = LeasedNode::new("/l/n".to_owned(), 0, NodeWatch::Unset, Arc::new(|| ()));
        let granted = session.lease.grant(&hold, BootTime::now());
        event.join().unwrap();
        match granted {
            Ok(()) => assert_eq!(hold.loss(), Some(LossReason::SessionExpired), "a hold was granted although the session has ended"),
            Err(refused) => assert_eq!(refused, Refused::Over(LossReason::SessionExpired)),
        }
        assert!(session.lease.needed_end().is_none(), "no hold is counted any more");
    });
}

pub fn a_renewal_while_the_session_ends_grants_nothing() {
    explore(|| {
        let stage = Stage::new();
        advance(SPAN - SECOND);
        let event = {
            let stage = stage.clone();
            spawn(move || stage.session.lease.end(LossReason::SessionExpired))
        };
        let now = BootTime::now();
        stage.session.proven(now, now);
        let hold = LeasedNode::new("/l/m".to_owned(), 0, NodeWatch::Unset, Arc::new(|| ()));
        let granted = stage.session.lease.grant(&hold, now);
        event.join().unwrap();
        assert!(!stage.is_held() && (granted.is_err() || hold.loss().is_some()), "a hold was granted although the session has ended");
        assert_eq!(stage.session.lease.remaining(now), Duration::ZERO, "a lease lasts although the session has ended");
    });
}

const GONE: u8 = 1;

/// A waiter whose turn has come makes its node a hold (`queue/attempt.rs`, `grant`), while the
/// event of the node's deletion by a third party arrives.
pub fn a_node_that_is_deleted_while_it_becomes_a_hold_is_lost() {
    explore(|| {
        let (session, notifier) = (Generation::new(1), Notifier::new());
        let _own = session.nodes.register("/l/n".to_owned(), &notifier, EventMask { gone: GONE, changed: 0 });
        let event = {
            let session = session.clone();
            spawn(move || session.deletion_seen("/l/n"))
        };
        let hold = LeasedNode::new("/l/n".to_owned(), 0, NodeWatch::Unset, Arc::new(|| ()));
        assert_eq!(session.lease.grant(&hold, BootTime::now()), Ok(()));
        if notifier.events() & GONE != 0 {
            session.lease.node_deleted("/l/n", BootTime::now());
        }
        event.join().unwrap();
        assert_eq!(hold.loss(), Some(LossReason::NodeDeleted), "the hold stands although its node is deleted");
    });
}

/// A third party deletes a holder's node. The next waiter, in the same process, may take the lock
/// when it is notified of the deletion. By then the holder's guard must be invalid.
pub fn a_waiter_that_is_notified_of_the_deletion_finds_the_hold_lost() {
    explore(|| {
        let (stage, notifier) = (Stage::new(), Notifier::new());
        let _ahead =
            stage.session.nodes.register("/l/n".to_owned(), &notifier, EventMask { gone: GONE, changed: 0 });
        let event = {
            let stage = stage.clone();
            spawn(move || stage.session.deletion_seen("/l/n"))
        };
        if notifier.events() & GONE != 0 {
            assert!(!stage.is_held(), "two guards are valid");
        }
        event.join().unwrap();
        assert!(notifier.events() & GONE != 0, "the waiter was not notified");
    });
}
