//! Several locks as one: all or none, in one order, within one deadline.
use crate::mutex::held::assert_not_send;
use crate::support::{
    Raw, Shared, assert_lasted, at_best,
    contend::{Section, session, spawn_waiting, until_queue},
    scenarios,
    scene::{SOON, full_path, queue, until_empty},
};
use std::{
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    CancelToken, Error, LossReason, Member, OptionalExt, Wait, ZkExclusiveLock, ZkMultiGuard,
    ZkMultiLock, ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkSession,
};

const A: &str = "/locks/a";
const B: &str = "/locks/b";
const C: &str = "/locks/c";
const D: &str = "/locks/d";
/// Long enough to see that something does not come.
const A_WHILE: Duration = Duration::from_millis(300);
const SLACK: Duration = Duration::from_millis(1500);
/// ZooKeeper's permission bits without the right to create below a node, and without the right to
/// delete.
const NO_CREATE: i32 = 31 & !4;
const NO_DELETE: i32 = 31 & !8;

pub fn mutexes(session: &ZkSession, paths: &[&str]) -> Vec<ZkMutex> {
    paths.iter().map(|path| ZkMutex::new(session, path).unwrap()).collect()
}

pub fn multi(session: &ZkSession, paths: &[&str]) -> ZkMultiLock {
    ZkMultiLock::new(mutexes(session, paths)).unwrap()
}

/// Runs on a thread that holds nothing.
pub fn elsewhere<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(run).join().unwrap())
}

#[track_caller]
fn until_all_empty(at: &str) {
    for path in [A, B, C, D] {
        until_empty(at, path);
    }
}

/// Makes the lock's folder with these permissions.
fn allow(at: &str, path: &str, permissions: i32) {
    let (mut raw, full) = (Raw::connect(at).unwrap(), full_path(at, path));
    raw.mkdirs(&full).unwrap();
    raw.set_acl(&full, permissions).unwrap();
}

fn opposite_orders_never_deadlock() {
    const PATHS: [&str; 4] = [A, B, C, D];
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at), session(&at)];
    let sections: [Section; 4] = Default::default();
    let rates = [(); 3].map(|()| Section::default());
    let passed: usize = thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|number| {
                let (session, sections, reading) =
                    (&sessions[number % 3], &sections, &rates[number % 3]);
                scope.spawn(move || {
                    let mut random = fastrand::Rng::with_seed(number as u64);
                    let mut passed = 0;
                    for _ in 0..25 {
                        let mut chosen = [0, 1, 2, 3];
                        random.shuffle(&mut chosen);
                        let chosen = &chosen[..random.usize(2..4)];
                        let mut members: Vec<Member> = chosen
                            .iter()
                            .map(|&account| ZkMutex::new(session, PATHS[account]).unwrap().into())
                            .collect();
                        let rates =
                            ZkRwLock::builder(session, "/locks/bb").hand_over(Duration::ZERO);
                        let rates = rates.build().unwrap();
                        let writes = random.u8(..8) == 0;
                        let rates =
                            if writes { Member::write(&rates) } else { Member::read(&rates) };
                        members.insert(random.usize(..=members.len()), rates);
                        let lock = ZkMultiLock::new(members).unwrap();
                        let guard =
                            lock.lock_timeout(SOON * 6).optional().unwrap().expect("no deadlock");
                        guard.check().unwrap();
                        chosen.iter().for_each(|&account| sections[account].pass());
                        if writes {
                            reading.pass();
                        }
                        passed += chosen.len();
                    }
                    passed
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(sections.iter().map(Section::counter).sum::<usize>(), passed);
    until_all_empty(&at);
    until_empty(&at, "/locks/bb");
}

fn all_are_held_and_all_are_let_go() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, others) = (multi(&ours, &[C, A, B]), mutexes(&theirs, &[A, B, C]));
    let rates = ZkRwLock::new(&ours, D).unwrap();
    let free =
        || others.iter().filter(|other| other.try_lock().optional().unwrap().is_some()).count();
    for unlocks in [true, false] {
        let guard = lock.lock().unwrap();
        assert!(
            guard.is_held()
                && guard.valid_for() > Duration::ZERO
                && guard.lost().reason().is_none()
        );
        guard.check().unwrap();
        assert_eq!(free(), 0);
        // In the order in which the members were given.
        let paths: Vec<_> = guard.holds().map(|held| held.path().to_owned()).collect();
        assert!(
            [C, A, B].iter().zip(&paths).all(|(lock, node)| node.starts_with(lock)),
            "{paths:?}"
        );
        let tokens = guard.fencing_tokens();
        assert_eq!(tokens, guard.holds().map(|held| held.fencing_token()).collect::<Vec<_>>());
        assert!(tokens[1] < tokens[2] && tokens[2] < tokens[0], "{tokens:?}");
        let lost = guard.lost();
        if unlocks {
            guard.unlock().unwrap();
            assert_eq!([A, B, C].map(|path| queue(&at, path).len()), [0; 3]);
        } else {
            drop(guard);
            [A, B, C].iter().for_each(|path| until_empty(&at, path));
        }
        assert_eq!(free(), 3);
        assert!(lost.receiver().try_recv().is_err_and(|e| e.is_empty()) && lost.reason().is_none());
    }
    // Readers may hold it together.
    let reading = ZkMultiLock::new([Member::from(&others[0]), Member::read(&rates)]).unwrap();
    let guard = reading.try_lock().optional().unwrap().expect("both members are free");
    let far = ZkRwLock::new(&theirs, D).unwrap();
    assert!(
        far.try_read().optional().unwrap().is_some()
            && far.try_write().optional().unwrap().is_none()
    );
    guard.unlock().unwrap();
    assert!(far.try_write().optional().unwrap().is_some());
    until_all_empty(&at);
}

fn a_busy_member_rolls_the_others_back() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let lock = multi(&ours, &[A, B, C]);
    let other = ZkMutex::new(&theirs, B).unwrap();
    let held = other.lock().unwrap();
    for waits in [false, true] {
        let begun = Instant::now();
        let got = elsewhere(|| {
            let got = if waits { lock.lock_timeout(A_WHILE) } else { lock.try_lock() };
            got.map(drop)
        });
        // The error names the member.
        let path = B.to_owned();
        let error = if waits { Error::TimedOut { path } } else { Error::WouldBlock { path } };
        assert_eq!(got, Err(error));
        if waits {
            assert_lasted(begun, A_WHILE..A_WHILE + SLACK);
        }
        [A, C].iter().for_each(|path| until_empty(&at, path));
        until_queue(&at, B, 1);
    }
    assert!(held.is_held());
    drop(held);
    assert!(lock.lock().unwrap().is_held());
    until_all_empty(&at);
}

fn one_deadline_is_for_all_members() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let lock = multi(&ours, &[A, B, C]);
    let others = mutexes(&theirs, &[A, B]);
    let timeout = Duration::from_secs(3);
    thread::scope(|scope| {
        let first = others[0].lock().unwrap();
        let second = others[1].lock().unwrap();
        let begun = Instant::now();
        let waiting =
            scope.spawn(|| lock.lock_timeout(timeout).optional().map(|guard| guard.is_some()));
        until_queue(&at, A, 2);
        thread::sleep((timeout * 2 / 3).saturating_sub(begun.elapsed()));
        drop(first);
        assert_eq!(waiting.join().unwrap(), Ok(false));
        assert_lasted(begun, timeout..timeout + SLACK);
        assert!(second.is_held());
        [A, C].iter().for_each(|path| until_empty(&at, path));
    });
    until_all_empty(&at);
    let deadline = Instant::now() + SOON;
    assert!(lock.lock_with(Wait::until(deadline)).optional().unwrap().is_some());
}

fn a_member_that_refuses_rolls_the_others_back() {
    let at = Shared::chroot();
    let ours = session(&at);
    let (lock, others) = (multi(&ours, &[D, C, B, A]), mutexes(&session(&at), &[A, B]));
    allow(&at, C, NO_CREATE);
    for refused in [
        lock.lock().map(drop),
        lock.try_lock().optional().map(drop),
        lock.lock_timeout(SOON).optional().map(drop),
    ] {
        assert_eq!(
            refused,
            Err(Error::NoAuth { op: "lock", path: C.into(), permission: "CREATE" })
        );
        assert!(others.iter().all(|other| other.lock_timeout(SOON).optional().unwrap().is_some()));
    }
    until_all_empty(&at);
    allow(&at, C, 31);
    assert!(lock.lock().unwrap().is_held());
}

fn releases_that_fail_stop_no_others_and_are_all_reported() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, others) = (multi(&ours, &[A, B, C, D]), mutexes(&theirs, &[A, B, D]));
    // One release fails, and its error is returned.
    allow(&at, C, NO_DELETE);
    let guard = lock.lock().unwrap();
    let stays = guard.holds().nth(2).unwrap().path().to_owned();
    let may_not_delete =
        |path: &String| Error::NoAuth { op: "unlock", path: path.clone(), permission: "DELETE" };
    assert_eq!(guard.unlock(), Err(may_not_delete(&stays)));
    assert!(others.iter().all(|other| other.lock_timeout(SOON).optional().unwrap().is_some()));
    until_queue(&at, C, 1);
    allow(&at, C, 31);
    lock.lock().unwrap().unlock().unwrap(); // makes up for the refused delete
    until_all_empty(&at);
    // One member was lost before. That is the error, as with any lock.
    allow(&at, C, NO_DELETE);
    let guard = lock.lock().unwrap();
    let paths: Vec<_> = guard.holds().map(|held| held.path().to_owned()).collect();
    let lost = guard.lost();
    Raw::connect(&at).unwrap().delete(&full_path(&at, &paths[1])).unwrap();
    assert!(lost.wait(SOON).is_some());
    let gone = Error::Lost { path: paths[1].clone(), reason: LossReason::NodeDeleted };
    assert_eq!((guard.check(), guard.unlock()), (Err(gone.clone()), Err(gone)));
    assert!(others.iter().all(|other| other.lock_timeout(SOON).optional().unwrap().is_some()));
    allow(&at, C, 31);
    lock.lock().unwrap().unlock().unwrap();
    until_all_empty(&at);
    // Two releases fail. Both errors are reported, and the rest is released.
    [B, C].iter().for_each(|path| allow(&at, path, NO_DELETE));
    let guard = lock.lock().unwrap();
    let paths: Vec<_> = guard.holds().map(|held| held.path().to_owned()).collect();
    let failures = [2, 1].map(|which| may_not_delete(&paths[which])).to_vec();
    let error = guard.unlock().unwrap_err();
    assert_eq!(error, Error::Several { failures });
    let said = error.to_string();
    assert!(
        said.starts_with("2 releases failed; ")
            && paths[1..3].iter().all(|path| said.contains(path)),
        "{said}"
    );
    assert!(
        [&others[0], &others[2]].iter().all(|other| other
            .lock_timeout(SOON)
            .optional()
            .unwrap()
            .is_some())
    );
    [B, C].iter().for_each(|path| drop(until_queue(&at, path, 1)));
}

fn a_multi_lock_that_would_wait_for_itself_is_refused_when_it_is_made() {
    let at = Shared::chroot();
    let (server, chroot) = at.split_once('/').unwrap();
    let (ours, again) = (session(&at), session(&at));
    let above = session(server);
    let full = format!("/{chroot}{A}");
    let (a, b) = (ZkMutex::new(&ours, A).unwrap(), ZkMutex::new(&ours, B).unwrap());
    let (same, elsewhere) =
        (ZkMutex::new(&again, A).unwrap(), ZkMutex::new(&above, &full).unwrap());
    let rates = ZkRwLock::new(&ours, C).unwrap();
    let twice: [(&str, Vec<Member>); 5] = [
        (A, vec![a.clone().into(), b.clone().into(), a.clone().into()]),
        (A, vec![(&a).into(), ZkMutex::new(&ours, A).unwrap().into()]),
        (A, vec![(&a).into(), (&same).into(), (&b).into()]),
        (&full, vec![(&a).into(), (&b).into(), (&elsewhere).into()]),
        (C, vec![Member::read(&rates), (&a).into(), Member::write(&rates)]),
    ];
    for (twice, members) in twice {
        match ZkMultiLock::new(&members) {
            Err(Error::WouldDeadlock { path, why }) => {
                assert_eq!(path, twice);
                assert!(why.contains("give each lock once"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
    let none = ZkMultiLock::new([&a; 0]).unwrap_err();
    assert!(matches!(&none, Error::InvalidConfig { what: "members", .. }), "{none}");
    let lock = ZkMultiLock::new([Member::write(&rates), (&a).into()]).unwrap();
    let shown = format!("{lock:?}");
    assert!(
        shown.contains("\"write\"") && shown.contains("\"mutex\"") && shown.contains(C),
        "{shown}"
    );
}

fn a_member_that_this_thread_holds_already_is_refused_at_once() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, rates) = (ZkMutex::new(&ours, B).unwrap(), ZkRwLock::new(&ours, C).unwrap());
    let far = ZkMutex::new(&theirs, A).unwrap();
    let lock =
        ZkMultiLock::new([Member::from(ZkMutex::new(&ours, A).unwrap()), (&mutex).into()]).unwrap();
    let reading = ZkMultiLock::new([Member::read(&rates), (&far).into()]).unwrap();
    let refused = |lock: &ZkMultiLock, holds: &str| {
        let begun = Instant::now();
        for said in [
            lock.lock().map(drop),
            lock.try_lock().optional().map(drop),
            lock.lock_timeout(SOON).optional().map(drop),
        ] {
            assert!(
                matches!(&said, Err(Error::WouldDeadlock { path, .. }) if path == holds),
                "{said:?}"
            );
        }
        assert!(at_best(begun) < SOON);
    };
    let held = mutex.lock().unwrap();
    refused(&lock, B);
    assert_eq!(queue(&at, A), [""; 0]);
    thread::scope(|scope| {
        // Another thread holds nothing, so it may wait.
        scope.spawn(|| assert!(lock.try_lock().optional().unwrap().is_none()));
    });
    drop(held);
    let held = rates.read().unwrap();
    refused(&reading, C);
    drop(held);
    let held = rates.write().unwrap();
    refused(&reading, C);
    drop(held);
    // The hold comes from another session.
    let held = far.lock().unwrap();
    refused(&lock, A);
    drop(held);
    // A hold as a member of another multi-lock, or of the same one: it is not re-entrant.
    let guard = lock.lock().unwrap();
    refused(&lock, A);
    refused(&reading, A);
    drop(guard);
    assert!(reading.lock().unwrap().is_held());
    until_all_empty(&at);
}

fn one_order_through_different_chroots() {
    let at = Shared::chroot();
    let (server, chroot) = at.split_once('/').unwrap();
    // By the paths as given, "/t-.." comes before "/x", and the two would take them in opposite
    // orders.
    Raw::connect(&at).unwrap().mkdirs(&full_path(&at, "/locks")).unwrap();
    let (below, above) = (session(&format!("{at}/locks")), session(server));
    let path = |path: &str| format!("/{chroot}{path}");
    let mixed = |first: &ZkSession, one: &str, second: &ZkSession, other: &str| {
        let (one, other) =
            (ZkMutex::new(first, one).unwrap(), ZkMutex::new(second, other).unwrap());
        ZkMultiLock::new([one, other]).unwrap()
    };
    let one = mixed(&below, "/x", &above, &path("/locks/y"));
    let other = mixed(&above, &path("/locks/x"), &below, "/y");
    let section = Section::default();
    thread::scope(|scope| {
        for lock in [&one, &other] {
            let section = &section;
            scope.spawn(move || {
                for _ in 0..50 {
                    let _guard =
                        lock.lock_timeout(SOON * 3).optional().unwrap().expect("no deadlock");
                    section.pass();
                }
            });
        }
    });
    assert_eq!(section.counter(), 100);
    until_empty(&at, "/locks/x");
    until_empty(&at, "/locks/y");
}

fn a_cancelled_wait_leaves_nothing() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (multi(&ours, &[C, B, A]), ZkMutex::new(&theirs, B).unwrap());
    let (cancel, held) = (CancelToken::new(), other.lock().unwrap());
    thread::scope(|scope| {
        let waiting = spawn_waiting(scope, || {
            lock.lock_with(Wait::forever().cancelled_by(&cancel)).optional().map(drop)
        });
        until_queue(&at, B, 2);
        assert_eq!(queue(&at, A).len(), 1, "the first member is held meanwhile");
        cancel.cancel();
        assert_eq!(waiting.join().unwrap(), Err(Error::Cancelled { path: B.into() }));
    });
    until_empty(&at, A);
    until_queue(&at, B, 1);
    assert_eq!(queue(&at, C), [""; 0]);
    drop(held);
    // The token stays cancelled, and nothing is sent.
    assert!(matches!(
        lock.lock_with(Wait::forever().cancelled_by(&cancel)).optional(),
        Err(Error::Cancelled { .. })
    ));
    assert!(
        lock.lock_with(Wait::forever().cancelled_by(&CancelToken::new()))
            .optional()
            .unwrap()
            .unwrap()
            .is_held()
    );
    until_all_empty(&at);
}

fn a_closed_session_ends_the_wait() {
    let at = Shared::chroot();
    let (ours, theirs, waits) = (session(&at), session(&at), session(&at));
    let (a, b) = (ZkMutex::new(&ours, A).unwrap(), ZkMutex::new(&waits, B).unwrap());
    let lock = ZkMultiLock::new([&a, &b]).unwrap();
    let other = ZkMutex::new(&theirs, B).unwrap();
    let held = other.lock().unwrap();
    thread::scope(|scope| {
        let waiting = spawn_waiting(scope, || lock.lock().map(drop));
        until_queue(&at, B, 2);
        waits.close().unwrap();
        assert_eq!(waiting.join().unwrap(), Err(Error::Closed { op: "lock", path: B.into() }));
        until_empty(&at, A);
    });
    drop(held);
    assert!(a.lock().unwrap().is_held());
}

fn which_types_may_go_to_other_threads() {
    fn both<T: Send + Sync + 'static>() {}
    fn shared<T: Sync>() {}
    both::<(ZkMultiLock, Member)>();
    shared::<ZkMultiGuard>();
    assert_not_send!(ZkMultiGuard);
}

fn every_kind_of_lock_is_a_member() {
    const PATHS: [&str; 6] =
        ["/l/mutex", "/l/read", "/l/write", "/l/permits", "/l/one", "/l/simple"];
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let members = |session| {
        [
            Member::from(ZkMutex::new(session, PATHS[0]).unwrap()),
            Member::read(&ZkRwLock::new(session, PATHS[1]).unwrap()),
            Member::write(&ZkRwLock::new(session, PATHS[2]).unwrap()),
            Member::permits(&ZkSemaphore::new(session, PATHS[3], 3).unwrap(), 2),
            Member::from(ZkSemaphoreMutex::new(session, PATHS[4]).unwrap()),
            Member::from(ZkExclusiveLock::new(session, PATHS[5]).unwrap()),
        ]
    };
    let (lock, others) = (ZkMultiLock::new(members(&ours)).unwrap(), members(&theirs));
    // Each of the other holds keeps the whole out, except a read beside a read.
    let alone = others.map(|member| ZkMultiLock::new([member]).unwrap());
    for (one, path) in alone.iter().zip(PATHS) {
        let theirs = elsewhere(|| {
            let guard = one.lock().unwrap();
            let is_free = thread::scope(|s| {
                s.spawn(|| lock.try_lock().optional().unwrap().is_some()).join().unwrap()
            });
            guard.unlock().unwrap();
            is_free
        });
        assert_eq!(theirs, path == "/l/read", "{path}");
    }
    let guard = lock.lock().unwrap();
    assert_eq!(guard.fencing_tokens().len(), alone.len(), "one each, also of two permits");
    for (one, path) in alone.iter().zip(PATHS) {
        assert_eq!(
            elsewhere(|| one.try_lock().optional().unwrap().is_some()),
            path == "/l/read",
            "{path}"
        );
    }
    guard.unlock().unwrap();
    for one in &alone {
        assert!(elsewhere(|| one.lock_timeout(SOON).optional().unwrap().is_some()));
    }
    for path in [PATHS[0], PATHS[1], PATHS[2], "/l/permits/leases", "/l/one/leases", PATHS[5]] {
        until_empty(&at, path);
    }
}

scenarios![
    every_kind_of_lock_is_a_member,
    opposite_orders_never_deadlock,
    all_are_held_and_all_are_let_go,
    a_busy_member_rolls_the_others_back,
    one_deadline_is_for_all_members,
    a_member_that_refuses_rolls_the_others_back,
    releases_that_fail_stop_no_others_and_are_all_reported,
    a_multi_lock_that_would_wait_for_itself_is_refused_when_it_is_made,
    a_member_that_this_thread_holds_already_is_refused_at_once,
    one_order_through_different_chroots,
    a_cancelled_wait_leaves_nothing,
    a_closed_session_ends_the_wait,
    which_types_may_go_to_other_threads on none,
];
