//! What an observer hears, and what the locks count: of each recipe, of each way in which a call
//! and a hold can end, and of the end of the session.
use crate::support::{
    contend::spawn_waiting,
    embedded::start,
    scenarios,
    scene::{SOON, session_of, until_event},
    until,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::{
    ops::Deref,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    CancelToken, Config, Error, Held, LockLabel, LockStats, LossReason, Member, Observer,
    OptionalExt, Result, SessionEvent, Wait, WaitOutcome, ZkElection, ZkExclusiveLock, ZkMultiLock,
    ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkSession,
};

const T: Duration = Duration::from_secs(15);
const SHORT: Duration = Duration::from_millis(300);

/// Tells its calls about locks and the session, and in another channel those about requests.
struct Teller {
    locks: Sender<String>,
    rest: Sender<(String, Duration)>,
}

impl Teller {
    fn tell(&self, lock: &LockLabel, what: &str) {
        assert!(lock.path.starts_with('/'));
        let _ = self.locks.send(format!("{} {:?} {what}", lock.recipe, lock.name));
    }
}

impl Observer for Teller {
    fn wait_began(&mut self, lock: &LockLabel) {
        self.tell(lock, "began");
    }
    fn contended(&mut self, lock: &LockLabel) {
        self.tell(lock, "contended");
    }
    fn handed_over(&mut self, lock: &LockLabel) {
        self.tell(lock, "handed over");
    }
    fn wait_ended(&mut self, lock: &LockLabel, outcome: WaitOutcome, waited: Duration) {
        assert!(waited < SOON);
        self.tell(lock, outcome.as_str());
    }
    fn released(&mut self, lock: &LockLabel, held_for: Duration) {
        assert!(held_for < SOON);
        self.tell(lock, "released");
    }
    fn lost(&mut self, lock: &LockLabel, reason: LossReason) {
        self.tell(lock, reason.as_str());
    }
    fn request_answered(&mut self, operation: &'static str, took: Duration) {
        let _ = self.rest.send((operation.to_owned(), took));
    }
    fn lease_margin(&mut self, left: Duration) {
        let _ = self.rest.send(("margin".to_owned(), left));
    }
    fn session_changed(&mut self, event: &SessionEvent) {
        let what = match event {
            SessionEvent::Connected { timeout, .. } => {
                assert_eq!(*timeout, T);
                "connected".to_owned()
            }
            SessionEvent::Lost(reason) => format!("session {}", reason.as_str()),
            SessionEvent::Closed => "closed".to_owned(),
            _ => return,
        };
        let _ = self.locks.send(what);
    }
}

struct Told {
    locks: Receiver<String>,
    rest: Receiver<(String, Duration)>,
}

impl Told {
    /// The next calls are these.
    #[track_caller]
    fn next(&self, expected: &[&str]) {
        for expected in expected {
            match self.locks.recv_timeout(SOON) {
                Ok(told) => assert_eq!(told, *expected),
                Err(_) => panic!("not told: {expected}"),
            }
        }
    }

    /// The next calls are about this lock.
    #[track_caller]
    fn of(&self, lock: &str, expected: &[&str]) {
        let expected: Vec<String> = expected.iter().map(|what| format!("{lock} {what}")).collect();
        self.next(&expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

fn observed(at: &str) -> (ZkSession, Told) {
    let ((locks, told), (rest, of_requests)) = (unbounded(), unbounded());
    let config = Config::new(at).session_timeout(T).connect_timeout(SOON);
    let session = ZkSession::builder(config).observer(Teller { locks, rest }).connect().unwrap();
    let told = Told { locks: told, rest: of_requests };
    told.next(&["connected"]);
    (session, told)
}

type Guard = Box<dyn Deref<Target = Held>>;

/// A lock by its label, what it counts, and how it is taken.
type Lock =
    (&'static str, Box<dyn Fn() -> LockStats + Sync>, Box<dyn Fn(Wait) -> Result<Option<Guard>>>);

/// Each lock of the family that a thread takes itself; two of one `number` exclude each other.
fn locks(session: &ZkSession) -> Vec<Lock> {
    macro_rules! lock {
        ($label:literal, $lock:expr, $stats:ident, $take:ident) => {{
            let lock = $lock.name("a name").build().unwrap();
            let counts = lock.clone();
            let take =
                move |wait| lock.$take(wait).map(|guard| -> Guard { Box::new(guard) }).optional();
            ($label, Box::new(move || counts.$stats()) as _, Box::new(take) as _)
        }};
    }
    vec![
        lock!("mutex", ZkMutex::builder(session, "/mutex"), stats, lock_with),
        lock!("write", ZkRwLock::builder(session, "/write"), write_stats, write_with),
        lock!("semaphore", ZkSemaphore::builder(session, "/semaphore", 1), stats, acquire_with),
        lock!("semaphore_mutex", ZkSemaphoreMutex::builder(session, "/sm"), stats, lock_with),
        lock!("exclusive", ZkExclusiveLock::builder(session, "/exclusive"), stats, lock_with),
    ]
}

fn each_end_of_a_call_is_told_and_counted_for_each_recipe() {
    let (_server, at) = start();
    let other = session_of(&at, T);
    let (session, told) = observed(&at);
    let taken = locks(&session);
    for ((label, stats, take), (.., theirs)) in taken.iter().zip(locks(&other)) {
        let lock = format!("{label} \"a name\"");
        let mut expected = LockStats::default();
        drop(take(Wait::forever()).unwrap().unwrap());
        told.of(&lock, &["began", "acquired", "released"]);

        let guard = theirs(Wait::forever()).unwrap().unwrap();
        assert!(take(Wait::timeout(Duration::ZERO)).unwrap().is_none());
        told.of(&lock, &["began", "contended", "timed_out"]);
        assert!(take(Wait::timeout(SHORT)).unwrap().is_none());
        told.of(&lock, &["began", "contended", "timed_out"]);
        let cancel = CancelToken::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                told.of(&lock, &["began", "contended"]);
                let now = stats();
                assert_eq!((now.waiting, now.held), (1, 0), "{label}");
                cancel.cancel();
            });
            assert!(matches!(
                take(Wait::forever().cancelled_by(&cancel)),
                Err(Error::Cancelled { .. })
            ));
        });
        told.of(&lock, &["cancelled"]);
        drop(guard);
        (expected.acquired, expected.timed_out, expected.cancelled) = (1, 2, 1);
        expected.contended = 3;
        assert_eq!(stats(), expected, "{label}");
    }
    other.close().unwrap(); // its nodes are gone
    // The session ends: each call fails, and the observer has heard the last.
    let guards: Vec<_> =
        taken.iter().map(|(.., take)| take(Wait::forever()).unwrap().unwrap()).collect();
    taken.iter().for_each(|(label, ..)| {
        told.of(&format!("{label} \"a name\""), &["began", "acquired"]);
    });
    session.close().unwrap();
    let mut last: Vec<String> = told.locks.iter().collect();
    assert_eq!(last.pop().as_deref(), Some("closed"));
    let mut lost: Vec<String> =
        taken.iter().map(|(label, ..)| format!("{label} \"a name\" session_closed")).collect();
    last.sort();
    lost.sort();
    assert_eq!(last, lost, "a loss for each hold, and nothing else");
    drop(guards);
    for (label, stats, take) in &taken {
        assert!(take(Wait::forever()).is_err());
        let now = stats();
        let ends = (now.waiting, now.held, now.acquired, now.lost, now.failed);
        assert_eq!(ends, (0, 0, 2, 1, 1), "{label}");
    }
}

fn each_hold_ends_once_when_it_is_lost() {
    let (server, at) = start();
    let (session, told) = observed(&at);
    let events = session.subscribe();
    let all = locks(&session);
    let guards: Vec<_> =
        all.iter().map(|(.., take)| take(Wait::forever()).unwrap().unwrap()).collect();
    all.iter()
        .for_each(|(label, ..)| told.of(&format!("{label} \"a name\""), &["began", "acquired"]));
    assert!(all.iter().all(|(_, stats, _)| stats().held == 1));
    assert!(server.expire_session(session.status().session_id.unwrap()));
    let lost: Vec<String> =
        (0..all.len()).map(|_| told.locks.recv_timeout(SOON).unwrap()).collect();
    for (label, stats, _) in &all {
        let is_it = |told: &&String| {
            told.starts_with(&format!("{label} "))
                && (told.ends_with("session_expired") || told.ends_with("node_deleted"))
        };
        assert_eq!(lost.iter().filter(is_it).count(), 1, "{label}: {lost:?}");
        assert_eq!((stats().held, stats().lost), (0, 1), "{label}");
    }
    told.next(&["session session_expired", "connected"]);
    drop(guards);
    until_event(&events, |event| matches!(event, SessionEvent::Connected { .. }));
    drop(all[0].2(Wait::forever()).unwrap().unwrap());
    told.of("mutex \"a name\"", &["began", "acquired", "released"]);
    let now = session.status().stats;
    assert_eq!((now.sessions, now.sessions_lost), (2, 1));
}

fn a_guard_that_is_dropped_as_soon_as_it_is_lost_ends_as_lost() {
    let (server, at) = start();
    let (session, other) = (session_of(&at, T), session_of(&at, T));
    for (label, stats, take) in locks(&session) {
        for round in 1..=20 {
            let guard = take(Wait::timeout(SOON)).unwrap().unwrap();
            let lost = guard.lost();
            if round % 2 == 0 {
                other.zookeeper().requests().delete(guard.path(), None).unwrap();
            } else {
                assert!(server.expire_session(session.status().session_id.unwrap()));
            }
            assert!(lost.wait(SOON).is_some());
            drop(guard);
            assert_eq!((stats().held, stats().lost), (0, round), "{label}");
        }
    }
}

fn guards_of_one_thread_are_one_hold_and_their_re_entry_is_no_wait() {
    let (_server, at) = start();
    let (session, told) = observed(&at);
    let mutex = ZkMutex::new(&session, "/lock").unwrap();
    let guards = [(); 3].map(|()| mutex.lock().unwrap());
    assert_eq!((mutex.stats().acquired, mutex.stats().held), (1, 1));
    drop(guards);
    told.of("mutex \"\"", &["began", "acquired", "released"]);
    // Several permits are one hold, and so are the members of a multi-lock, each by itself.
    let semaphore = ZkSemaphore::new(&session, "/semaphore", 3).unwrap();
    drop(semaphore.acquire_many(3).unwrap());
    told.of("semaphore \"\"", &["began", "acquired", "released"]);
    let rwlock = ZkRwLock::builder(&session, "/rwlock").name("rates").build().unwrap();
    let both = [Member::from(&mutex), Member::read(&rwlock)];
    drop(ZkMultiLock::new(both).unwrap().lock().unwrap());
    told.of("mutex \"\"", &["began", "acquired"]);
    told.of("read \"rates\"", &["began", "acquired", "released"]);
    told.of("mutex \"\"", &["released"]);
    // A downgrade: the thread reads before it stops writing.
    let writer = rwlock.write().unwrap();
    let reader = rwlock.read().unwrap();
    drop((writer, reader));
    told.of("write \"rates\"", &["began", "acquired"]);
    told.of("read \"rates\"", &["began", "acquired"]);
    told.of("write \"rates\"", &["released"]);
    told.of("read \"rates\"", &["released"]);
    assert_eq!((rwlock.read_stats().acquired, rwlock.write_stats().acquired), (2, 1));
}

fn a_hand_over_is_told_and_the_name_is_that_of_the_first_lock_of_the_path() {
    let (_server, at) = start();
    let (session, told) = observed(&at);
    let mutex = |name: &str| {
        let builder = ZkMutex::builder(&session, "/lock").hand_over(Duration::from_secs(3_600));
        builder.name(name).build().unwrap()
    };
    let (mutex, same) = (mutex("orders"), mutex("another name"));
    let guard = mutex.lock().unwrap();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || drop(same.lock().unwrap()));
        told.of("mutex \"orders\"", &["began", "acquired", "began"]);
        drop(guard);
        waiter.join().unwrap();
    });
    told.of("mutex \"orders\"", &["released", "contended", "handed over", "acquired", "released"]);
    let now = same.stats();
    assert_eq!((now.acquired, now.handed_over, now.contended), (2, 1, 1));
}

fn readers_that_share_a_node_are_a_hold_each_and_are_lost_together() {
    let (server, at) = start();
    let (session, told) = observed(&at);
    let builder = ZkRwLock::builder(&session, "/lock").hand_over(Duration::from_secs(3_600));
    let rwlock = builder.build().unwrap();
    let (inside, go_on) = (Barrier::new(3), Barrier::new(3));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let guard = rwlock.read().unwrap();
                inside.wait();
                go_on.wait();
                drop(guard);
            });
        }
        inside.wait();
        assert_eq!((rwlock.read_stats().held, rwlock.write_stats().held), (2, 0));
        assert!(server.expire_session(session.status().session_id.unwrap()));
        until("both are lost", SOON, || (rwlock.read_stats().lost == 2).then_some(()));
        go_on.wait();
    });
    assert_eq!(rwlock.read_stats().held, 0);
    until("the new session", SOON, || (session.status().stats.sessions == 2).then_some(()));
    session.close().unwrap();
    let all: Vec<String> = told.locks.iter().collect();
    let count = |what: &str| all.iter().filter(|told| told.ends_with(what)).count();
    assert_eq!((count(" acquired"), count(" released"), count("closed")), (2, 0, 1), "{all:?}");
    // Each of the two, and the session.
    assert_eq!(count(" node_deleted") + count(" session_expired"), 3, "{all:?}");
}

fn a_term_is_a_hold_and_a_candidate_waits() {
    let (_server, at) = start();
    let other = session_of(&at, T);
    let (session, told) = observed(&at);
    let election = ZkElection::builder(&session, "/election").name("nightly").build().unwrap();
    let candidate = election.join().unwrap();
    candidate.wait_leader().unwrap();
    told.of("election \"nightly\"", &["began", "acquired"]);
    assert_eq!(election.stats().held, 1);
    candidate.leave().unwrap();
    told.of("election \"nightly\"", &["released"]);
    let theirs = ZkElection::new(&other, "/election").unwrap().join().unwrap();
    theirs.wait_leader().unwrap();
    let candidate = election.join().unwrap();
    told.of("election \"nightly\"", &["began", "contended"]);
    drop(candidate);
    told.of("election \"nightly\"", &["cancelled"]);
    assert_eq!((election.stats().held, election.stats().waiting), (0, 0));
}

fn a_call_that_waits_at_the_close_is_told_of_before_the_end() {
    let (_server, at) = start();
    let other = session_of(&at, T);
    let (session, told) = observed(&at);
    let _theirs = ZkMutex::new(&other, "/lock").unwrap().lock().unwrap();
    let mutex = ZkMutex::new(&session, "/lock").unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex.lock().map(drop));
        told.of("mutex \"\"", &["began", "contended"]);
        session.close().unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Closed { .. })));
    });
    told.next(&["mutex \"\" failed", "closed"]);
    assert!(mutex.lock().is_err());
    assert!(told.locks.recv().is_err(), "nothing is told after the end");
    assert_eq!((mutex.stats().failed, mutex.stats().waiting), (2, 0));
}

fn round_trips_and_what_is_left_of_the_lease_are_told() {
    let (server, at) = start();
    let (session, told) = observed(&at);
    server.delay(Duration::from_millis(20));
    let guard = ZkMutex::new(&session, "/lock").unwrap().lock().unwrap();
    let mut wanted = vec!["create", "get_children", "margin", "sync"];
    let until = Instant::now() + SOON;
    while !wanted.is_empty() {
        let left = until.saturating_duration_since(Instant::now());
        let (what, time) = told.rest.recv_timeout(left).expect("all of them");
        if what == "create" {
            assert!(time >= Duration::from_millis(20), "{time:?}");
        } else if what == "margin" {
            assert!(time > T / 12 && time < T, "{time:?}");
        }
        wanted.retain(|wanted| *wanted != what);
    }
    drop(guard);
}

/// Blocks at its first call for as long as the gate is closed, and then panics at each.
struct Stuck(Receiver<()>, Sender<u64>);

impl Observer for Stuck {
    fn wait_began(&mut self, _: &LockLabel) {
        let _ = self.0.recv();
        panic!("the application's observer");
    }
    fn missed(&mut self, events: u64) {
        let _ = self.1.send(events);
    }
}

fn an_observer_that_is_stuck_or_panics_holds_up_no_lock_and_no_loss() {
    let (server, at) = start();
    let ((open, gate), (tell, missed)) = (unbounded(), unbounded());
    let ((locks, told), (rest, _)) = (unbounded(), unbounded());
    let session = ZkSession::builder(Config::new(&at).session_timeout(T))
        .observer(Stuck(gate, tell))
        .observer(Teller { locks, rest })
        .connect()
        .unwrap();
    let mutex = Arc::new(ZkMutex::builder(&session, "/lock").keep(T).build().unwrap());
    let guard = mutex.lock().unwrap();
    let lost = guard.lost();
    assert!(server.expire_session(session.status().session_id.unwrap()));
    assert!(lost.wait(SOON).is_some(), "the holder is told, whatever an observer does");
    drop(guard);
    // As many calls as the queue has room for, and more.
    (0..20_000).for_each(|_| drop(mutex.lock().unwrap()));
    assert_eq!((mutex.stats().acquired, mutex.stats().held), (20_001, 0));
    drop(open);
    assert!(missed.recv_timeout(SOON).unwrap() > 0);
    session.close().unwrap();
    let all: Vec<String> = told.iter().collect();
    let count = |what: &str| all.iter().filter(|told| told.ends_with(what)).count();
    assert!(count(" began") < 20_001);
    assert_eq!(count(" began"), count(" acquired"), "what has begun is told to its end");
    assert_eq!(count(" acquired"), count(" released") + count(" lost") + 1);
    assert_eq!(all.last().map(String::as_str), Some("closed"), "the other observer is called too");
}

scenarios![
    each_end_of_a_call_is_told_and_counted_for_each_recipe on embedded,
    each_hold_ends_once_when_it_is_lost on embedded,
    a_guard_that_is_dropped_as_soon_as_it_is_lost_ends_as_lost on embedded,
    guards_of_one_thread_are_one_hold_and_their_re_entry_is_no_wait on embedded,
    a_hand_over_is_told_and_the_name_is_that_of_the_first_lock_of_the_path on embedded,
    readers_that_share_a_node_are_a_hold_each_and_are_lost_together on embedded,
    a_term_is_a_hold_and_a_candidate_waits on embedded,
    a_call_that_waits_at_the_close_is_told_of_before_the_end on embedded,
    round_trips_and_what_is_left_of_the_lease_are_told on embedded,
    an_observer_that_is_stuck_or_panics_holds_up_no_lock_and_no_loss on embedded,
];
