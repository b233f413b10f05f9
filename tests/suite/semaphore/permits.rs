//! Permits: how many are held at once, which contenders get them, how their number is set, and
//! which nodes exist at the server.
use crate::support::{
    OpKind, Raw, Server, Shared, at_best,
    contend::{Section, proxied, session, spawn_waiting, stat, until_queue},
    logged::logged,
    raw::{EPHEMERAL, EPHEMERAL_SEQUENTIAL, PERSISTENT},
    scenarios,
    scene::{SOON, full_path, queue, session_of, until_empty},
    until,
};
use crossbeam_channel::bounded;
use log::Level;
use std::{
    sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    CancelToken, Error, Member, OptionalExt, Wait, ZkMultiLock, ZkMutex, ZkPermit, ZkSemaphore,
    ZkSemaphoreMutex, ZkSemaphoreMutexGuard, ZkSession,
};

const PATH: &str = "/limits/downloads";
pub const LEASES: &str = "/limits/downloads/leases";
pub const LOCKS: &str = "/limits/downloads/locks";
const UUID: &str = "6f8ad2cc-3b5e-4f0c-9a57-0b8f9d3c1e42";
/// Long enough to see that something does not come.
const A_WHILE: Duration = Duration::from_millis(300);
/// Long enough for the requests of one call on a busy machine.
const ONE_TRY: Duration = Duration::from_millis(1500);

/// Checks that at most so many are inside at once.
pub struct Room {
    inside: AtomicU32,
    most: AtomicU32,
    bound: AtomicU32,
}

impl Room {
    pub fn of(bound: u32) -> Room {
        Room { inside: AtomicU32::new(0), most: AtomicU32::new(0), bound: AtomicU32::new(bound) }
    }

    pub fn enter(&self, many: usize) {
        let inside = self.inside.fetch_add(many as u32, SeqCst) + many as u32;
        self.most.fetch_max(inside, SeqCst);
        assert!(inside <= self.bound.load(SeqCst), "{inside} inside at once");
    }

    pub fn leave(&self, many: usize) {
        self.inside.fetch_sub(many as u32, SeqCst);
    }

    pub fn most(&self) -> u32 {
        self.most.load(SeqCst)
    }
}

#[track_caller]
pub fn semaphore(session: &ZkSession, permits: u32) -> ZkSemaphore {
    let semaphore = ZkSemaphore::new(session, PATH, permits).unwrap();
    semaphore.permits().unwrap(); // the first use writes the number, or compares it
    semaphore
}

/// How many permits the hold has, if there is one.
fn permits(hold: Option<ZkPermit>) -> Option<u32> {
    hold.map(|permit| permit.permits())
}

#[track_caller]
pub fn until_nothing_left(at: &str) {
    until_empty(at, LEASES);
    until_empty(at, LOCKS);
}

#[track_caller]
pub fn data(at: &str) -> Vec<u8> {
    Raw::connect(at).unwrap().get_data(&full_path(at, PATH)).unwrap().0
}

#[track_caller]
pub fn set_data(at: &str, data: &[u8]) {
    Raw::connect(at).unwrap().set_data(&full_path(at, PATH), data).unwrap();
}

// ---- the number of holders ----

fn as_many_are_inside_as_it_has_and_never_more() {
    const PERMITS: u32 = 3;
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..3).map(|_| session(&at)).collect();
    let room = Room::of(PERMITS);
    thread::scope(|scope| {
        for thread in 0..9 {
            let semaphore = semaphore(&sessions[thread % 3], PERMITS);
            let room = &room;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread as u64);
                for _ in 0..30 {
                    let wanted = random.u32(1..=PERMITS);
                    let permit = match random.u8(..4) {
                        0 => semaphore
                            .acquire_many_with(wanted, Wait::timeout(Duration::ZERO))
                            .optional()
                            .unwrap(),
                        1 => semaphore
                            .acquire_many_with(
                                wanted,
                                Wait::timeout(Duration::from_millis(random.u64(5..200))),
                            )
                            .optional()
                            .unwrap_or_else(|e| match e {
                                // the deadline was shorter than a round trip
                                Error::Unavailable { .. } => None,
                                e => panic!("{e}"),
                            }),
                        _ => Some(semaphore.acquire_many(wanted).unwrap()),
                    };
                    let Some(permit) = permit else { continue };
                    assert_eq!(permit.permits(), wanted);
                    room.enter(wanted as usize);
                    thread::sleep(Duration::from_millis(random.u64(..3)));
                    assert!(permit.is_held());
                    room.leave(wanted as usize);
                }
            });
        }
    });
    assert_eq!(room.most(), PERMITS, "all permits were used at once");
    until_nothing_left(&at);
}

fn permits_are_taken_and_given_back_one_at_a_time_and_in_chunks() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 5), semaphore(&theirs, 5));
    let [single, three, last] = [1, 3, 1].map(|number| one.acquire_many(number).unwrap());
    assert_eq!(until_queue(&at, LEASES, 5).len(), 5);
    until_empty(&at, LOCKS);
    let tokens = [&single, &three, &last].map(|permit| permit.fencing_token());
    assert!(tokens.is_sorted() && tokens[1].zxid() + 2 < tokens[2].zxid(), "{tokens:?}");
    assert!([&single, &three, &last].iter().all(|permit| permit.path().starts_with(LEASES)));
    assert!(other.try_acquire().optional().unwrap().is_none());
    single.release().unwrap();
    assert!(
        other.acquire_many_with(2, Wait::timeout(Duration::ZERO)).optional().unwrap().is_none()
    );
    let theirs = other.try_acquire().optional().unwrap().unwrap();
    three.release().unwrap();
    assert_eq!(queue(&at, LEASES).len(), 2, "unlock waits until all three nodes are deleted");
    assert!(other.acquire_many_with(4, Wait::timeout(ONE_TRY)).optional().unwrap().is_none());
    let three = other.acquire_many_with(3, Wait::timeout(SOON)).optional().unwrap().unwrap();
    assert!(one.try_acquire().optional().unwrap().is_none());
    assert!([&three, &last, &theirs].iter().all(|permit| permit.is_held()));
    drop((three, theirs, last));
    assert_eq!(permits(one.acquire_many_with(5, Wait::timeout(SOON)).optional().unwrap()), Some(5));
    until_nothing_left(&at);
}

fn one_session_gets_no_more_than_there_are() {
    let at = Shared::chroot();
    let session = session(&at);
    let semaphore = semaphore(&session, 2);
    let again = ZkSemaphore::new(&session, PATH, 2).unwrap();
    let (first, second) = (semaphore.acquire().unwrap(), again.acquire().unwrap());
    assert!(
        semaphore.try_acquire().optional().unwrap().is_none()
            && again.try_acquire().optional().unwrap().is_none()
    );
    assert!(semaphore.acquire_timeout(ONE_TRY).optional().unwrap().is_none());
    assert_eq!((first.hold_count(), second.hold_count()), (1, 1));
    let tokens = [first.fencing_token(), second.fencing_token()];
    assert!(tokens.is_sorted() && tokens[0] != tokens[1]);
    drop(first);
    assert!(
        semaphore.acquire_timeout(SOON).optional().unwrap().is_some_and(|permit| permit.is_held())
    );
    drop(second);
    until_nothing_left(&at);
}

fn permits_move_between_threads() {
    let at = Shared::chroot();
    let session = session(&at);
    let semaphore = semaphore(&session, 2);
    let (give, take) = bounded::<ZkPermit>(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                give.send(semaphore.acquire().unwrap()).unwrap();
            }
        });
        for turn in 0..20 {
            let permit = take.recv_timeout(SOON).unwrap();
            assert!(permit.is_held() && permit.check().is_ok());
            if turn % 2 == 0 { permit.release().unwrap() } else { drop(permit) }
        }
    });
    until_nothing_left(&at);
}

fn permit_outlives_its_semaphore() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let permit = semaphore(&ours, 1).acquire().unwrap();
    drop(ours);
    let other = semaphore(&theirs, 1);
    thread::sleep(A_WHILE);
    assert!(permit.is_held() && other.try_acquire().optional().unwrap().is_none());
    drop(permit);
    assert!(other.acquire_timeout(SOON).optional().unwrap().is_some());
    until_nothing_left(&at);
}

fn closed_session_frees_its_permits() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 3), semaphore(&theirs, 3));
    let permits = one.acquire_many(3).unwrap();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || other.acquire_many(3).unwrap());
        let start = Instant::now();
        ours.close().unwrap();
        assert!(!permits.is_held());
        assert!(waiter.join().unwrap().is_held());
        assert!(at_best(start) < SOON, "the close has woken the waiter: {:?}", start.elapsed());
    });
    assert!(matches!(one.acquire().map(drop), Err(Error::Closed { .. })));
    let late = ZkSemaphore::new(&ours, PATH, 3).unwrap();
    assert!(matches!(late.acquire().map(drop), Err(Error::Closed { .. })));
    until_nothing_left(&at);
}

fn a_waiter_for_many_is_not_starved_by_requests_for_few() {
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..3).map(|_| session(&at)).collect();
    let semaphores: Vec<_> = sessions.iter().map(|session| semaphore(session, 3)).collect();
    let held = semaphores[0].acquire().unwrap();
    let order = parking_lot::Mutex::new(Vec::new());
    thread::scope(|scope| {
        let many = scope.spawn(|| {
            let all = semaphores[1].acquire_many(3).unwrap();
            order.lock().push("many");
            all
        });
        until_queue(&at, LEASES, 4);
        let few = spawn_waiting(scope, || {
            let one = semaphores[2].acquire().unwrap();
            order.lock().push("few");
            one
        });
        assert!(semaphores[2].try_acquire().optional().unwrap().is_none(), "a contender is ahead");
        assert!(semaphores[0].acquire_timeout(ONE_TRY).optional().unwrap().is_none());
        held.release().unwrap();
        drop(many.join().unwrap());
        drop(few.join().unwrap());
    });
    assert_eq!(order.into_inner(), ["many", "few"]);
    until_nothing_left(&at);
}

fn leases_of_others_count_whatever_they_are_called() {
    let at = Shared::chroot();
    let session = session(&at);
    let semaphore = semaphore(&session, 2);
    drop(semaphore.acquire().unwrap());
    let mut foreign = Raw::connect(&at).unwrap();
    let below = |name: &str| full_path(&at, &format!("{LEASES}/{name}"));
    let lease = foreign
        .create(&below(&format!("_c_{UUID}-lease-")), b"java", EPHEMERAL_SEQUENTIAL)
        .unwrap();
    let ours = semaphore.acquire().unwrap();
    assert!(semaphore.try_acquire().optional().unwrap().is_none());
    foreign.create(&below("what is this"), b"", EPHEMERAL).unwrap();
    drop(ours);
    assert!(semaphore.acquire_timeout(ONE_TRY).optional().unwrap().is_none());
    foreign.delete(&lease).unwrap();
    assert!(semaphore.acquire_timeout(SOON).optional().unwrap().is_some());
    foreign.close_session().unwrap();
    assert_eq!(
        permits(semaphore.acquire_many_with(2, Wait::timeout(SOON)).optional().unwrap()),
        Some(2)
    );
    until_nothing_left(&at);
}

// ---- the number of permits ----

fn first_use_writes_the_number_of_the_one_that_is_used() {
    let at = Shared::chroot();
    let session = session(&at);
    // This semaphore is made first, with another number, and is never used.
    let unused = ZkSemaphore::new(&session, PATH, 8).unwrap();
    let used = ZkSemaphore::new(&session, PATH, 4).unwrap();
    assert_eq!(used.acquire().map(drop), Ok(()));
    assert_eq!((used.permits(), data(&at)), (Ok(4), b"4".to_vec()));
    assert!(matches!(unused.permits(), Err(Error::InconsistentPermits { ours: 8, theirs: 4, .. })));
}

fn number_is_written_at_the_first_use_and_others_are_refused_at_theirs() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let (ours, theirs) = (session(&through), session(&at));
    proxy.clear();
    let one = ZkSemaphore::new(&ours, PATH, 3).unwrap();
    assert_eq!((proxy.count(OpKind::GetData), stat(&at, PATH)), (0, None), "nothing is sent");
    drop(one.acquire().unwrap());
    assert_eq!(data(&at), b"3");
    for session in [&ours, &theirs] {
        let told_another = ZkSemaphore::new(session, PATH, 4).unwrap();
        let timeout = told_another.acquire_timeout(SOON).optional().map(drop);
        for said in [
            told_another.acquire().map(drop),
            told_another.try_acquire().optional().map(drop),
            timeout,
        ] {
            let refused = said.unwrap_err();
            assert_eq!(
                refused,
                Error::InconsistentPermits { path: PATH.into(), ours: 4, theirs: 3 }
            );
            let said = refused.to_string();
            assert!(
                ["3", "4", PATH, "set_permits"].iter().all(|word| said.contains(word)),
                "{said}"
            );
        }
        assert!(matches!(
            told_another.permits(),
            Err(Error::InconsistentPermits { theirs: 3, .. })
        ));
    }
    until_nothing_left(&at);
    // A client that sets the number knows it, whatever number it was made with. Later changes count
    // for all.
    let told_another = ZkSemaphore::new(&theirs, PATH, 4).unwrap();
    told_another.set_permits(5).unwrap();
    assert_eq!((told_another.permits(), one.permits(), data(&at)), (Ok(5), Ok(5), b"5".to_vec()));
    drop(told_another.acquire_many(5).unwrap());
    told_another.set_permits(3).unwrap();
    let other = semaphore(&theirs, 3);
    assert_eq!((data(&at), one.permits(), other.permits()), (b"3".to_vec(), Ok(3), Ok(3)));
    // Empty data, like that of a parent which another client has made.
    set_data(&at, b"");
    assert_eq!(ZkSemaphore::new(&theirs, PATH, 3).unwrap().permits(), Ok(3));
    assert_eq!(data(&at), b"3");
}

/// A service makes its semaphore in each call. Somebody changes the number, and the service is
/// still told the old one, by its settings.
fn a_number_that_was_set_counts_for_all_semaphores_and_is_logged_once() {
    let at = Shared::chroot();
    let (service, operator) = (session(&at), session(&at));
    let call = |session: &ZkSession, n| {
        let semaphore = ZkSemaphore::new(session, PATH, 2).unwrap();
        let permits = semaphore.acquire_many(n)?.permits();
        drop(semaphore.acquire()?);
        assert!(semaphore.try_acquire().optional()?.is_some());
        Ok::<_, Error>((permits, semaphore.permits()?))
    };
    let told = || {
        let mut lines = logged(Level::Warn, &full_path(&at, PATH));
        lines.retain(|line| line.contains("permits, and this client went by"));
        lines.len()
    };
    assert_eq!(call(&service, 2), Ok((2, 2)));
    let set = ZkSemaphore::new(&operator, PATH, 2).unwrap();
    for (times, number) in [(1, 5), (2, 4)] {
        set.set_permits(number).unwrap();
        for _ in 0..3 {
            assert_eq!(call(&service, number), Ok((number, number)));
        }
        assert_eq!(told(), times, "the service");
    }
    // A program that starts now, with the old number.
    assert_eq!(call(&session(&at), 4), Ok((4, 4)));
    assert_eq!((told(), data(&at)), (3, b"4".to_vec()));
    until_nothing_left(&at);
}

fn a_semaphore_for_each_call_reads_the_number_once() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let session = session(&through);
    let node = Some(full_path(&at, PATH));
    let reads = |permits| {
        proxy.clear();
        drop(ZkSemaphore::new(&session, PATH, permits)?.acquire()?);
        let mut requests = proxy.answered();
        requests.retain(|request| request.kind == OpKind::GetData && request.path == node);
        Ok::<_, Error>(requests.len())
    };
    let first = reads(2).unwrap();
    // One with each count of the permits.
    assert_eq!([reads(2), reads(2)], [Ok(1), Ok(1)]);
    assert!(first > 1, "{first}");
    assert!(matches!(reads(3), Err(Error::InconsistentPermits { ours: 3, theirs: 2, .. })));
    until_nothing_left(&at);
}

fn number_that_is_absurd_is_refused_at_once() {
    let at = Shared::chroot();
    let session = session(&at);
    let refused =
        |said: Result<(), Error>| matches!(said, Err(Error::InvalidConfig { what: "permits", .. }));
    assert!(refused(ZkSemaphore::new(&session, PATH, 0).map(drop)));
    let semaphore = semaphore(&session, 2);
    assert!(refused(semaphore.acquire_many(0).map(drop)));
    assert!(refused(
        semaphore.acquire_many_with(3, Wait::timeout(Duration::ZERO)).optional().map(drop)
    ));
    assert!(refused(semaphore.acquire_many_with(3, Wait::timeout(SOON)).optional().map(drop)));
    let said = semaphore.acquire_many(3).map(drop);
    assert!(said.as_ref().is_err_and(|e| e.to_string().contains("which is 2")), "{said:?}");
    set_data(&at, b"3");
    assert_eq!(
        semaphore.acquire_many(3).map(|three| three.permits()),
        Ok(3),
        "the number was raised meanwhile"
    );
    until_nothing_left(&at);
}

fn raising_the_number_lets_waiters_in() {
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..3).map(|_| session(&at)).collect();
    let semaphores: Vec<_> = sessions.iter().map(|session| semaphore(session, 1)).collect();
    let held = semaphores[0].acquire().unwrap();
    thread::scope(|scope| {
        let second = spawn_waiting(scope, || semaphores[1].acquire().unwrap());
        let third = spawn_waiting(scope, || semaphores[2].acquire().unwrap());
        semaphores[0].set_permits(2).unwrap();
        until_queue(&at, LEASES, 3); // one more has a permit, and the next one waits
        thread::sleep(A_WHILE);
        assert_ne!(second.is_finished(), third.is_finished());
        set_data(&at, b"3"); // any client may set the number
        assert!(
            held.is_held() && second.join().unwrap().is_held() && third.join().unwrap().is_held()
        );
    });
    assert_eq!(semaphores[2].permits(), Ok(3));
    drop(held);
    until_nothing_left(&at);
}

fn lowering_the_number_takes_none_away_and_grants_none_until_enough_are_back() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 3), semaphore(&theirs, 3));
    let mut three = vec![(); 3].into_iter().map(|()| one.acquire().unwrap());
    let mut three: Vec<_> = three.by_ref().collect();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || other.acquire().unwrap());
        one.set_permits(1).unwrap();
        for left in [2, 1] {
            drop(three.pop());
            until_queue(&at, LEASES, left + 1);
            thread::sleep(A_WHILE);
            assert!(!waiter.is_finished(), "one permit exists and {left} are held");
        }
        drop(three.pop());
        assert!(waiter.join().unwrap().is_held());
    });
    assert!(matches!(one.acquire_many(3).map(drop), Err(Error::InvalidConfig { .. })));
    until_nothing_left(&at);
}

fn a_number_of_zero_grants_no_permit() {
    let at = Shared::chroot();
    let session = session(&at);
    let semaphore = semaphore(&session, 1);
    semaphore.set_permits(0).unwrap();
    assert!(semaphore.try_acquire().optional().unwrap().is_none());
    assert!(semaphore.acquire_timeout(ONE_TRY).optional().unwrap().is_none());
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || semaphore.acquire().unwrap().is_held());
        semaphore.set_permits(1).unwrap();
        assert!(waiter.join().unwrap());
    });
    until_nothing_left(&at);
}

/// Asks with a short time, and again if that was too short for an answer on a busy machine.
fn asked(semaphore: &ZkSemaphore) -> Result<(), Error> {
    loop {
        match semaphore.acquire_timeout(A_WHILE).map(drop) {
            Err(Error::Unavailable { .. }) => {}
            said => return said,
        }
    }
}

fn a_paused_semaphore_says_so_and_blames_nobody() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 2), semaphore(&theirs, 2));
    other.set_permits(0).unwrap();
    let paused = || Err(Error::Paused { path: PATH.to_owned() });
    assert_eq!(one.try_acquire().map(drop), paused());
    assert!(one.try_acquire().optional().unwrap().is_none());
    assert_eq!(asked(&one), paused());
    let both = ZkMultiLock::new([Member::permits(&one, 1)]).unwrap();
    assert_eq!(both.try_lock().map(drop), paused());
    // The threads that wait behind the first one say it too.
    thread::scope(|scope| {
        let waits = || scope.spawn(|| asked(&one));
        for waits in [waits(), waits()] {
            assert_eq!(waits.join().unwrap(), paused());
        }
    });
    let several = one.acquire_many(2).map(drop).unwrap_err();
    assert!(!several.is_contended() && several.to_string().contains("is paused"), "{several}");
    other.set_permits(1).unwrap();
    let held = one.acquire().unwrap();
    assert_eq!(one.try_acquire().map(drop), Err(Error::WouldBlock { path: PATH.to_owned() }));
    drop(held);
    until_nothing_left(&at);
}

/// The pause is over, and the call never comes so far that it counts the permits.
fn a_semaphore_that_was_paused_before_the_call_is_not_called_paused() {
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..3).map(|_| session(&at)).collect();
    let semaphores: Vec<_> = sessions.iter().map(|session| semaphore(session, 1)).collect();
    let [holds, waits, asks] = &semaphores[..] else { unreachable!() };
    holds.set_permits(0).unwrap();
    assert!(matches!(asks.try_acquire(), Err(Error::Paused { .. })));
    holds.set_permits(1).unwrap();
    let held = holds.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || waits.acquire().map(drop));
        until_queue(&at, LOCKS, 1);
        assert_eq!(asked(asks), Err(Error::TimedOut { path: PATH.to_owned() }));
        drop(held);
        assert_eq!(waiter.join().unwrap(), Ok(()));
    });
    until_nothing_left(&at);
}

fn data_that_is_no_number_is_ignored_and_left() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let mut raw = Raw::connect(&at).unwrap();
    raw.mkdirs(&full_path(&at, PATH)).unwrap();
    for other in [&b"{\"owner\": \"us\"}"[..], b"-3", &[b'1'; 33]] {
        set_data(&at, other);
        let (one, two) = (semaphore(&ours, 2), semaphore(&theirs, 2));
        let (_first, second) = (one.acquire().unwrap(), two.acquire().unwrap());
        assert!(one.try_acquire().optional().unwrap().is_none());
        assert!(matches!(one.set_permits(3), Err(Error::InvalidConfig { .. })));
        assert_eq!((one.permits(), data(&at).as_slice()), (Ok(2), other));
        // In one session the mistake can still be noticed.
        let refused = ZkSemaphore::new(&ours, PATH, 5).and_then(|semaphore| semaphore.permits());
        assert!(
            matches!(refused, Err(Error::InconsistentPermits { ours: 5, theirs: 2, .. })),
            "{refused:?}"
        );
        drop(second);
        assert!(one.acquire_timeout(SOON).optional().unwrap().is_some());
    }
    until_nothing_left(&at);
}

fn deleted_nodes_are_made_again_with_the_number_last_seen() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 1), semaphore(&theirs, 1));
    one.set_permits(2).unwrap();
    drop(one.acquire().unwrap());
    until_nothing_left(&at);
    let mut raw = Raw::connect(&at).unwrap();
    for folder in [PATH, LEASES, "/limits"] {
        raw.delete_recursive(&full_path(&at, folder)).unwrap();
        assert_eq!(one.acquire_many(2).unwrap().permits(), 2, "{folder}");
        assert_eq!(data(&at), b"2");
        assert!(
            one.acquire_many_with(2, Wait::timeout(Duration::ZERO)).optional().unwrap().is_some()
        );
        until_nothing_left(&at);
    }
    assert_eq!(other.permits(), Ok(2));
    raw.delete_recursive(&full_path(&at, PATH)).unwrap();
    assert_eq!((other.permits(), data(&at)), (Ok(2), b"2".to_vec()));
}

fn number_outlasts_everybody() {
    let server = Server::builder().container_check(Duration::from_millis(50)).start();
    let at = server.connect_string();
    let session = session(&at);
    let exists = |path: &str| stat(&at, path).is_some();
    let until_gone =
        |path: &str| until(&format!("{path} goes"), SOON * 2, || (!exists(path)).then_some(()));
    let semaphore = semaphore(&session, 1);
    semaphore.set_permits(2).unwrap();
    for wiped in [false, true] {
        if wiped {
            Raw::connect(&at).unwrap().delete_recursive("/limits").unwrap();
        }
        drop(semaphore.acquire().unwrap());
        until_gone(LEASES);
        until_gone(LOCKS);
        // Other empty containers are deleted within this time.
        drop(ZkMutex::new(&session, "/other/lock").unwrap().lock().unwrap());
        until_gone("/other");
        assert!(exists(PATH) && data(&at) == b"2", "wiped: {wiped}");
    }
    drop(semaphore);
    // A mutex always has one permit: its nodes are deleted like those of other locks.
    let path = "/mutexes/upload";
    drop(ZkSemaphoreMutex::new(&session, path).unwrap().lock().unwrap());
    until_gone("/mutexes");
}

// ---- trying, giving up, counting ----

fn try_acquire_writes_nothing_while_none_is_free() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let (ours, theirs) = (session(&through), session(&at));
    let (one, other) = (semaphore(&ours, 2), semaphore(&theirs, 2));
    let held = other.acquire_many(2).unwrap();
    proxy.clear();
    assert!(one.try_acquire().optional().unwrap().is_none());
    assert_eq!(
        [OpKind::GetChildren, OpKind::GetData, OpKind::Create, OpKind::Delete]
            .map(|kind| proxy.count(kind)),
        [1, 1, 0, 0]
    );
    drop(held);
    until_empty(&at, LEASES);
    assert!(one.try_acquire().optional().unwrap().is_some());
    until_nothing_left(&at);
}

/// A foreign client holds the mutex for a moment, and permits are free.
fn try_acquire_waits_for_a_contender_that_passes_through_the_mutex() {
    let at = Shared::chroot();
    let session = session_of(&at, Duration::from_secs(18));
    let semaphore = semaphore(&session, 2);
    drop(semaphore.acquire().unwrap());
    let mut foreign = Raw::connect(&at).unwrap();
    let lock = full_path(&at, &format!("{LOCKS}/_c_{UUID}-lock-"));
    let passing = foreign.create(&lock, b"java", EPHEMERAL_SEQUENTIAL).unwrap();
    thread::scope(|scope| {
        let trying = scope.spawn(|| {
            semaphore.try_acquire().optional().unwrap().is_some_and(|permit| permit.is_held())
        });
        thread::sleep(A_WHILE);
        foreign.delete(&passing).unwrap();
        assert!(trying.join().unwrap(), "the foreign client has left the mutex");
    });
    // A foreign node that stays is a contender ahead, and no error.
    let staying = foreign.create(&lock, b"java", EPHEMERAL_SEQUENTIAL).unwrap();
    let start = Instant::now();
    assert!(semaphore.try_acquire().optional().unwrap().is_none());
    assert!(at_best(start) < session.status().timeout / 6 + ONE_TRY);
    foreign.delete(&staying).unwrap();
    assert!(semaphore.try_acquire().optional().unwrap().is_some());
    until_nothing_left(&at);
}

fn many_tries_at_once_all_get_a_permit_while_there_are_enough() {
    const THREADS: u32 = 8;
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at)];
    let semaphores: Vec<_> = sessions.iter().map(|session| semaphore(session, THREADS)).collect();
    for _ in 0..5 {
        let got: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS as usize)
                .map(|thread| {
                    scope.spawn({
                        let semaphores = &semaphores;
                        move || semaphores[thread % 2].try_acquire().optional().unwrap()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(got.iter().all(|permit| permit.as_ref().is_some_and(|permit| permit.is_held())));
        drop(got);
        until_nothing_left(&at);
    }
}

fn cancelled_and_timed_out_acquires_leave_nothing() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 2), semaphore(&theirs, 2));
    let held = other.acquire().unwrap();
    let token = CancelToken::new();
    thread::scope(|scope| {
        // The first waiter is at the leases, the second is behind it.
        let first = spawn_waiting(scope, || {
            one.acquire_many_with(2, Wait::forever().cancelled_by(&token)).optional().map(drop)
        });
        let second = spawn_waiting(scope, || {
            one.acquire_with(Wait::forever().cancelled_by(&token)).optional().map(drop)
        });
        until_queue(&at, LEASES, 3);
        token.cancel();
        for waiter in [first, second] {
            assert_eq!(waiter.join().unwrap(), Err(Error::Cancelled { path: PATH.into() }));
        }
    });
    assert_eq!(
        one.acquire_with(Wait::forever().cancelled_by(&token)).optional().map(drop),
        Err(Error::Cancelled { path: PATH.into() })
    );
    until_queue(&at, LEASES, 1);
    until_empty(&at, LOCKS);
    let start = Instant::now();
    assert!(one.acquire_many_with(2, Wait::until(start + ONE_TRY)).optional().unwrap().is_none());
    assert!(start.elapsed() >= ONE_TRY);
    until_queue(&at, LEASES, 1);
    assert!(one.acquire_with(Wait::until(Instant::now() + SOON)).optional().unwrap().is_some());
    drop(held);
    assert!(one.acquire_many_with(2, Wait::timeout(SOON)).optional().unwrap().is_some());
    until_nothing_left(&at);
}

fn panic_gives_permits_back() {
    let at = Shared::chroot();
    let session = session(&at);
    let semaphore = semaphore(&session, 2);
    let panicked = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let _permits = semaphore.acquire_many(2).unwrap();
            panic!("on purpose");
        });
        thread.join().is_err()
    });
    assert!(
        panicked
            && semaphore.acquire_many_with(2, Wait::timeout(SOON)).optional().unwrap().is_some()
    );
    until_nothing_left(&at);
}

fn holders_and_waiters_are_listed() {
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..3).map(|_| session(&at)).collect();
    let semaphores: Vec<_> = sessions
        .iter()
        .zip(["a", "b", "c"])
        .map(|(session, data)| ZkSemaphore::builder(session, PATH, 2).data(data).build().unwrap())
        .collect();
    assert_eq!((semaphores[0].holders(), semaphores[0].contenders()), (Ok(vec![]), Ok(vec![])));
    let held = [semaphores[0].acquire().unwrap(), semaphores[1].acquire().unwrap()];
    until_empty(&at, LOCKS);
    let holders = semaphores[2].holders().unwrap();
    for (holder, (permit, (session, data))) in
        holders.iter().zip(held.iter().zip(sessions.iter().zip(["a", "b"])))
    {
        assert_eq!(holder.path, permit.path());
        assert_eq!(
            (holder.data.as_slice(), Some(holder.session_id)),
            (data.as_bytes(), session.status().session_id)
        );
        assert!(!holder.reads);
    }
    assert_eq!(holders.len(), 2);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphores[2].acquire().unwrap());
        until_queue(&at, LEASES, 3); // it waits for a permit
        let (holders, contenders) =
            (semaphores[0].holders().unwrap(), semaphores[0].contenders().unwrap());
        assert_eq!(
            (holders.len(), &contenders[..3]),
            (3, &holders[..]),
            "the node that it waits for is the last"
        );
        let waiting = &contenders[3..];
        assert_eq!(waiting.iter().map(|waiter| waiter.data.as_slice()).collect::<Vec<_>>(), [b"c"]);
        assert!(waiting[0].path.starts_with(&format!("{PATH}/locks/")));
        drop(held);
        drop(waiter.join().unwrap());
    });
    let said = format!("{:?}", semaphores[0]);
    assert!(said.contains(PATH) && said.contains("permits: 2"), "{said}");
    until_nothing_left(&at);
}

fn other_kinds_of_lock_on_the_path_are_refused() {
    let at = Shared::chroot();
    let session = session(&at);
    let semaphore = semaphore(&session, 1);
    let refused = |said: Result<(), Error>| matches!(said, Err(Error::InvalidConfig { .. }));
    assert!(refused(ZkMutex::new(&session, PATH).map(drop)));
    assert!(refused(ZkSemaphoreMutex::new(&session, PATH).map(drop)));
    drop(semaphore);
    let mutex = ZkSemaphoreMutex::new(&session, PATH).unwrap();
    assert!(refused(ZkSemaphore::new(&session, PATH, 1).map(drop)));
    drop(mutex);
    assert!(matches!(
        ZkSemaphore::new(&session, "relative", 1).map(drop),
        Err(Error::InvalidPath { .. })
    ));
}

// ---- a semaphore with one permit ----

fn semaphore_mutex_is_locked_here_and_unlocked_there() {
    fn is_send<T: Send + Sync>() {}
    is_send::<ZkPermit>();
    is_send::<ZkSemaphoreMutexGuard>();
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let mutex = ZkSemaphoreMutex::new(&ours, PATH).unwrap();
    let other = ZkSemaphoreMutex::new(&theirs, PATH).unwrap();
    let guard = mutex.lock().unwrap();
    assert_eq!(data(&at), b"1");
    let first = guard.fencing_token();
    assert!(
        other.try_lock().optional().unwrap().is_none()
            && mutex.try_lock().optional().unwrap().is_none()
    );
    assert_eq!(other.contenders().unwrap().len(), 1);
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || {
            let guard = other.lock().unwrap();
            let seen = (guard.is_held(), guard.fencing_token());
            guard.unlock().unwrap(); // a drop would not wait until the permit is back
            seen
        });
        assert_eq!(mutex.contenders().unwrap().len(), 2);
        scope.spawn(move || guard.unlock().unwrap());
        let (held, second) = waiter.join().unwrap();
        assert!(held && second > first);
        assert_eq!(mutex.holders().unwrap().len(), 0);
        let guard = mutex.lock().unwrap();
        assert_eq!(other.holders().unwrap(), other.contenders().unwrap());
        scope.spawn(move || drop(guard));
    });
    assert!(other.lock_timeout(SOON).optional().unwrap().is_some());
    until_nothing_left(&at);
}

fn second_lock_of_the_same_thread_waits() {
    let at = Shared::chroot();
    let session = session(&at);
    let mutex = ZkSemaphoreMutex::new(&session, PATH).unwrap();
    let guard = mutex.lock().unwrap();
    assert!(mutex.try_lock().optional().unwrap().is_none());
    assert!(mutex.lock_timeout(ONE_TRY).optional().unwrap().is_none());
    assert!(mutex.lock_with(Wait::until(Instant::now() + ONE_TRY)).optional().unwrap().is_none());
    let token = CancelToken::new();
    thread::scope(|scope| {
        let cancelled = spawn_waiting(scope, || {
            mutex.lock_with(Wait::forever().cancelled_by(&token)).optional().map(drop)
        });
        token.cancel();
        assert_eq!(cancelled.join().unwrap(), Err(Error::Cancelled { path: PATH.into() }));
        scope.spawn(move || {
            thread::sleep(A_WHILE);
            drop(guard);
        });
        assert!(
            mutex.lock().unwrap().is_held(),
            "the guard stays until another thread has unlocked it"
        );
    });
    until_nothing_left(&at);
}

fn semaphore_mutex_excludes() {
    const THREADS: usize = 6;
    const ROUNDS: usize = 20;
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..3).map(|_| session(&at)).collect();
    let (section, done) = (Section::default(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let mutex = ZkSemaphoreMutex::new(&sessions[thread % 3], PATH).unwrap();
            let (section, done) = (&section, &done);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let guard = mutex.lock().unwrap();
                    section.pass();
                    assert!(guard.is_held());
                }
                done.fetch_add(1, SeqCst);
            });
        }
    });
    assert_eq!((section.counter(), done.load(SeqCst)), (THREADS * ROUNDS, THREADS));
    until_nothing_left(&at);
}

fn semaphore_mutex_refuses_a_semaphore_of_another_number() {
    let at = Shared::chroot();
    let (ours, mut raw) = (session(&at), Raw::connect(&at).unwrap());
    raw.mkdirs(&full_path(&at, "/limits")).unwrap();
    raw.create(&full_path(&at, PATH), b"3", PERSISTENT).unwrap();
    let mutex = ZkSemaphoreMutex::new(&ours, PATH).unwrap();
    for said in [
        mutex.lock().map(drop),
        mutex.try_lock().optional().map(drop),
        mutex.lock_timeout(SOON).optional().map(drop),
    ] {
        assert_eq!(said, Err(Error::InconsistentPermits { path: PATH.into(), ours: 1, theirs: 3 }));
    }
    until_nothing_left(&at);
    set_data(&at, b"1");
    let guard = mutex.lock().unwrap();
    // Waiters must have the same number, too.
    let theirs = session(&at);
    thread::scope(|scope| {
        let other = ZkSemaphoreMutex::new(&theirs, PATH).unwrap();
        let waiter = spawn_waiting(scope, move || other.lock().map(drop));
        set_data(&at, b"2");
        assert!(matches!(
            waiter.join().unwrap(),
            Err(Error::InconsistentPermits { theirs: 2, .. })
        ));
    });
    assert!(guard.is_held());
    drop(guard);
    until_nothing_left(&at);
}

scenarios![
    as_many_are_inside_as_it_has_and_never_more,
    first_use_writes_the_number_of_the_one_that_is_used,
    permits_are_taken_and_given_back_one_at_a_time_and_in_chunks,
    one_session_gets_no_more_than_there_are,
    permits_move_between_threads,
    permit_outlives_its_semaphore,
    closed_session_frees_its_permits,
    a_waiter_for_many_is_not_starved_by_requests_for_few,
    leases_of_others_count_whatever_they_are_called,
    number_is_written_at_the_first_use_and_others_are_refused_at_theirs,
    a_number_that_was_set_counts_for_all_semaphores_and_is_logged_once,
    a_semaphore_for_each_call_reads_the_number_once,
    number_that_is_absurd_is_refused_at_once,
    raising_the_number_lets_waiters_in,
    lowering_the_number_takes_none_away_and_grants_none_until_enough_are_back,
    a_number_of_zero_grants_no_permit,
    a_paused_semaphore_says_so_and_blames_nobody,
    a_semaphore_that_was_paused_before_the_call_is_not_called_paused,
    data_that_is_no_number_is_ignored_and_left,
    deleted_nodes_are_made_again_with_the_number_last_seen,
    number_outlasts_everybody,
    try_acquire_writes_nothing_while_none_is_free,
    try_acquire_waits_for_a_contender_that_passes_through_the_mutex,
    many_tries_at_once_all_get_a_permit_while_there_are_enough,
    cancelled_and_timed_out_acquires_leave_nothing,
    panic_gives_permits_back,
    holders_and_waiters_are_listed,
    other_kinds_of_lock_on_the_path_are_refused,
    semaphore_mutex_is_locked_here_and_unlocked_there,
    second_lock_of_the_same_thread_waits,
    semaphore_mutex_excludes,
    semaphore_mutex_refuses_a_semaphore_of_another_number,
];
