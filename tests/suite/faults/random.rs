//! Random calls of many threads under random faults: there are never two holders at once, and each
//! one's token is greater than those before; no hold is lost without a cause, and a lost one is told;
//! nobody is told that a lock is taken that only its thread asks for; no signal becomes ready after
//! the release; no call exceeds its time, and nothing is left behind. The seed decides the calls and
//! the faults, but not the order of the threads. `ZK_MUTEX_RANDOM_CALLS=600 ZK_MUTEX_SEED=7` plays
//! for ten minutes each.
use crate::support::{
    at_best,
    contend::{Over, Section},
    control,
    embedded::start,
    scenarios,
    scene::{SOON, config, until_empty, until_state},
};
use parking_lot::Mutex;
use std::{
    env,
    fmt::Debug,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    CancelToken, Error, FencingToken, Held, LostSignal, OptionalExt, RetryPolicy, SessionState,
    Wait, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSemaphore, ZkSession,
};
use zk_test_server::{Matcher, Op, TestServer};

const SESSIONS: usize = 3;
const THREADS: usize = 4;
const T: Duration = Duration::from_secs(6);
/// How late a call may end on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);
const PATHS: [&str; 4] = ["/c/mutex", "/c/rw", "/c/permits", "/c/one"];

/// What one lock protects that one holder has at a time.
#[derive(Default)]
struct Protected {
    section: Section,
    /// The greatest token that a holder has shown.
    token: Mutex<Option<FencingToken>>,
}

/// The state that the locks protect.
#[derive(Default)]
struct World {
    mutex: Protected,
    write: Protected,
    readers: AtomicUsize,
    permits: AtomicUsize,
    one: Protected,
    /// The signals of guards that were released while they were held.
    former: Mutex<Vec<LostSignal>>,
    done: AtomicUsize,
    is_over: AtomicBool,
    /// False if sessions are expired without their owners' knowledge: then two may be inside for a
    /// moment.
    is_checked: bool,
}

/// The locks of one session.
struct Locks {
    mutex: ZkMutex,
    rw: ZkRwLock,
    permits: ZkSemaphore,
    one: ZkExclusiveLock,
}

impl Locks {
    fn new(session: &ZkSession) -> Locks {
        Locks {
            mutex: ZkMutex::new(session, PATHS[0]).unwrap(),
            rw: ZkRwLock::new(session, PATHS[1]).unwrap(),
            permits: ZkSemaphore::new(session, PATHS[2], 3).unwrap(),
            one: ZkExclusiveLock::new(session, PATHS[3]).unwrap(),
        }
    }
}

/// Whether the call has got the lock. It may fail only in an outage.
#[track_caller]
fn got<G: Debug>(result: Result<Option<G>, Error>) -> Option<G> {
    match result {
        Ok(got) => got,
        Err(Error::Unavailable { .. } | Error::Cancelled { .. } | Error::Lost { .. }) => None,
        Err(e) => panic!("{e}"),
    }
}

impl World {
    fn inside(&self, held: &Held, protected: &Protected) {
        let begun = Instant::now();
        if self.is_checked && held.is_held() {
            let mut greatest = protected.token.lock();
            let token = Some(held.fencing_token());
            assert!(token > *greatest, "{token:?} after {greatest:?}");
            *greatest = token;
            drop(greatest);
            protected.section.pass();
        }
        self.is_told(held, begun);
        self.done.fetch_add(1, SeqCst);
    }

    /// A hold that is not valid any more is told, and there is a cause.
    fn is_told(&self, held: &Held, since: Instant) {
        let lost = held.lost();
        if !held.is_held() {
            assert!(lost.wait(SOON).is_some() && held.lost_reason().is_some());
            // No fault here lasts for as long as a lease.
            let is_due = !self.is_checked;
            control::assert_in_time(is_due, since, T / 2, "no hold is lost");
        }
    }

    /// A lock that only this thread asks for: nobody else can have it, but for a session of ours that
    /// was lost and that the server has not expired yet.
    fn own(&self, lock: &ZkMutex, limit: Duration) {
        let result = lock.lock_timeout(limit).optional();
        let is_taken = matches!(result, Ok(None));
        assert!(!(is_taken && self.is_checked), "somebody else has the lock of this thread");
        let Some(guard) = got(result) else { return };
        let lost = guard.lost();
        self.is_told(&guard, Instant::now());
        if guard.unlock().is_ok() {
            self.former.lock().push(lost);
        }
        self.done.fetch_add(1, SeqCst);
    }

    fn call(&self, random: &mut fastrand::Rng, locks: &Locks, own: &ZkMutex) {
        let (begun, limit) = (Instant::now(), Duration::from_millis(random.u64(0..200)));
        let mut most = Some(limit);
        match random.u32(0..13) {
            0 => {
                most = None;
                let guard = got(locks.mutex.lock().map(Some));
                guard.iter().for_each(|guard| {
                    self.inside(guard, &self.mutex);
                    drop(got(locks.mutex.lock_timeout(limit).optional()));
                });
            }
            1 => {
                most = Some(T / 6);
                got(locks.mutex.try_lock().optional())
                    .iter()
                    .for_each(|guard| self.inside(guard, &self.mutex));
            }
            2 | 3 => got(locks.mutex.lock_timeout(limit).optional())
                .iter()
                .for_each(|guard| self.inside(guard, &self.mutex)),
            4 => {
                let token = CancelToken::new();
                thread::scope(|scope| {
                    scope.spawn(|| {
                        thread::sleep(limit);
                        token.cancel();
                    });
                    got(locks.mutex.lock_with(Wait::forever().cancelled_by(&token)).optional())
                        .iter()
                        .for_each(|guard| self.inside(guard, &self.mutex));
                });
            }
            5 | 6 => got(locks.rw.read_timeout(limit).optional()).iter().for_each(|guard| {
                if self.is_checked && guard.is_held() {
                    self.readers.fetch_add(1, SeqCst);
                    thread::yield_now();
                    self.readers.fetch_sub(1, SeqCst);
                }
                self.done.fetch_add(1, SeqCst);
            }),
            7 => got(locks.rw.write_timeout(limit).optional()).iter().for_each(|guard| {
                assert!(
                    !self.is_checked || !guard.is_held() || self.readers.load(SeqCst) == 0,
                    "a reader is inside"
                );
                self.inside(guard, &self.write);
            }),
            8 | 9 => {
                let number = random.u32(1..4);
                let Some(permits) =
                    got(locks.permits.acquire_many_with(number, Wait::timeout(limit)).optional())
                else {
                    return;
                };
                if self.is_checked && permits.is_held() {
                    let before = self.permits.fetch_add(permits.permits() as usize, SeqCst);
                    assert!(
                        before + permits.permits() as usize <= 3,
                        "{before} and {number} permits"
                    );
                    thread::yield_now();
                    self.permits.fetch_sub(permits.permits() as usize, SeqCst);
                }
                self.done.fetch_add(1, SeqCst);
            }
            10 => self.own(own, limit),
            _ => got(locks.one.lock_timeout(limit).optional())
                .iter()
                .for_each(|guard| self.inside(guard, &self.one)),
        }
        if let Some(most) = most {
            assert!(at_best(begun) < most + SLACK, "{:?} for {most:?}", begun.elapsed());
        }
    }
}

fn inject(server: &TestServer, random: &mut fastrand::Rng, sessions: &[ZkSession], expires: bool) {
    let ops = [Op::Create, Op::Create, Op::Delete, Op::GetChildren, Op::GetData, Op::Sync];
    let which = Matcher::from(ops[random.usize(..ops.len())]).skip(random.usize(0..4));
    let a_while = Duration::from_millis(random.u64(1..400));
    // Faults that cost a sixth of the timeout are rare, because nothing else happens meanwhile.
    match random.u32(0..20) {
        0..=3 => server.cut_connections(),
        // These faults come one at a time: many together would cut each connection before it can do
        // anything.
        4..=15 if server.pending_faults() > 1 => {}
        4..=10 => server.drop_reply(which),
        11..=14 => server.drop_request(which),
        15 => server.silence_reply(which),
        16 => {
            server.delay(a_while / 10);
            thread::sleep(a_while);
            server.delay(Duration::ZERO);
        }
        17 => {
            server.black_hole(true);
            thread::sleep(a_while);
            server.black_hole(false);
        }
        18 if expires => {
            let id = sessions[random.usize(..sessions.len())].status().session_id;
            if let Some(id) = id {
                server.expire_session(id); // the session may be lost already
            }
        }
        _ => server.restart(),
    }
}

fn play(expires: bool) {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("ZK_MUTEX_RANDOM_CALLS").unwrap_or(8);
    let seed = number("ZK_MUTEX_SEED").unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let (server, at) = start();
    // Connections that are cut at once are soon made again.
    let policy = RetryPolicy {
        base: Duration::from_millis(2),
        cap: Duration::from_millis(50),
        ..RetryPolicy::default()
    };
    let connect =
        |_| ZkSession::connect(config(&*at).session_timeout(T).retry_policy(policy)).unwrap();
    let sessions: Vec<_> = (0..SESSIONS).map(connect).collect();
    let ids: Vec<_> = sessions.iter().map(|session| session.status().session_id).collect();
    let locks: Vec<_> = sessions.iter().map(Locks::new).collect();
    let world = World { is_checked: !expires, ..World::default() };
    thread::scope(|scope| {
        let _all = Over(&world.is_over);
        for (number, locks) in locks.iter().enumerate() {
            for thread in 0..THREADS {
                let mut random =
                    fastrand::Rng::with_seed(seed ^ ((number * THREADS + thread) as u64) << 32);
                let (world, session) = (&world, &sessions[number]);
                scope.spawn(move || {
                    let own = ZkMutex::new(session, format!("/c/own-{number}-{thread}")).unwrap();
                    while !world.is_over.load(SeqCst) {
                        world.call(&mut random, locks, &own);
                    }
                });
            }
        }
        let (mut random, end) =
            (fastrand::Rng::with_seed(seed), Instant::now() + Duration::from_secs(seconds));
        let mut injected = 0;
        while Instant::now() < end {
            inject(&server, &mut random, &sessions, expires);
            injected += 1;
            let (some, before) = (random.usize(0..40), world.done.load(SeqCst));
            let until = Instant::now() + if injected % 16 == 0 { SOON * 3 } else { T / 12 };
            while world.done.load(SeqCst) < before + some {
                thread::sleep(Duration::from_millis(1));
                if Instant::now() >= until {
                    assert!(injected % 16 != 0, "there is no progress");
                    break;
                }
            }
        }
        println!("{injected} faults, {} holds", world.done.load(SeqCst));
    });
    let former = world.former.lock();
    assert!(!former.is_empty(), "no guard was released while it was held");
    assert!(former.iter().all(|signal| signal.reason().is_none()), "lost after the release");
    sessions.iter().for_each(|session| until_state(session, SessionState::Connected));
    PATHS.iter().for_each(|path| until_empty(&at, path));
    let now: Vec<_> = sessions.iter().map(|session| session.status().session_id).collect();
    assert!(expires || now == ids, "no session was lost: {now:?} after {ids:?}");
    for locks in &locks {
        drop((locks.mutex.lock().unwrap(), locks.rw.write().unwrap(), locks.one.lock().unwrap()));
        drop(locks.permits.acquire_many(3).unwrap());
    }
    PATHS.iter().for_each(|path| until_empty(&at, path));
}

fn locks_keep_their_word_over_random_faults() {
    play(false);
}

fn nothing_is_left_behind_over_random_faults_and_lost_sessions() {
    play(true);
}

scenarios![on embedded;
    locks_keep_their_word_over_random_faults within 900,
    nothing_is_left_behind_over_random_faults_and_lost_sessions within 900,
];
