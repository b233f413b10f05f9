//! Holds with a longest time: their guard is lost in time whatever the network does, and others get
//! the lock when the thread lets go or, if the lock is built so, at once.
use crate::support::{
    Server, Shared, assert_lasted, at_best,
    contend::spawn_waiting,
    embedded::start,
    logged::logged,
    scenarios,
    scene::{SOON, queue, session, session_of, until_empty},
    until,
};
use crossbeam_channel::bounded;
use log::Level;
use std::{
    thread::{self, sleep},
    time::{Duration, Instant},
};
use zk_mutex::{
    Error, Held, LockBuilder, LossReason, OptionalExt, Wait, ZkExclusiveLock, ZkMultiLock, ZkMutex,
    ZkRwLock, ZkSemaphore, ZkSession,
};

const LOCK: &str = "/locks/orders";

/// The longest time of a hold. It is so long that a busy machine gets the guard well within it.
const MOST: Duration = Duration::from_millis(1_500);

fn short_lock(session: &ZkSession) -> LockBuilder<ZkMutex> {
    ZkMutex::builder(session, LOCK).max_hold(MOST)
}

/// Waits for the end of a hold that `held_since` at the earliest. It comes in time.
#[track_caller]
fn held_too_long(held: &Held, held_since: Instant) {
    assert_eq!(held.lost().wait(SOON), Some(LossReason::HeldTooLong));
    assert_lasted(held_since, MOST..MOST + Duration::from_secs(2));
    assert!(!held.is_held() && held.valid_for().is_zero());
    assert_eq!(held.lost_reason(), Some(LossReason::HeldTooLong));
    assert!(matches!(held.check(), Err(Error::Lost { reason: LossReason::HeldTooLong, .. })));
}

fn guard_ends_at_its_time_and_others_get_the_lock_when_it_is_dropped() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mine, other) = (short_lock(&ours).build().unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    let start = Instant::now();
    let guard = mine.lock().unwrap();
    let nested = mine.lock().unwrap();
    assert!(guard.is_held() && guard.valid_for() <= MOST);
    held_too_long(&guard, start);
    assert!(!nested.is_held(), "it has the end of the first guard");
    until("the loss is logged", SOON, || {
        (logged(Level::Warn, "held for longer than its max_hold").len() == 1).then_some(())
    });
    // The thread has not let go: nobody else has the lock, and it cannot lock again.
    assert_eq!(queue(&at, LOCK).len(), 1);
    assert!(other.try_lock().optional().unwrap().is_none());
    assert!(matches!(mine.lock(), Err(Error::Lost { reason: LossReason::HeldTooLong, .. })));
    drop(nested);
    thread::scope(|scope| {
        // Another thread of this process waits at the server.
        let next = scope
            .spawn(|| mine.lock_timeout(SOON).optional().unwrap().map(|guard| guard.is_held()));
        until("it waits there", SOON, || (queue(&at, LOCK).len() == 2).then_some(()));
        assert!(matches!(guard.unlock(), Err(Error::Lost { .. })));
        assert_eq!(next.join().unwrap(), Some(true));
    });
    assert!(mine.lock().unwrap().is_held(), "the time begins anew");
    assert!(other.lock_timeout(SOON).optional().unwrap().is_some());
    until_empty(&at, LOCK);
}

fn overdue_hold_is_released_for_others_though_its_guard_lives() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let mine = short_lock(&ours).release_overdue().build().unwrap();
    let other = ZkMutex::new(&theirs, LOCK).unwrap();
    let start = Instant::now();
    let guard = mine.lock().unwrap();
    thread::scope(|scope| {
        let waits = spawn_waiting(scope, || {
            let next = other.lock_timeout(SOON).optional().unwrap().expect("it is released");
            assert!(!guard.is_held() && start.elapsed() >= MOST, "it is lost before that");
            next.fencing_token()
        });
        assert!(waits.join().unwrap() > guard.fencing_token());
    });
    held_too_long(&guard, start);
    let theirs = other.lock_timeout(SOON).optional().unwrap().expect("nobody has it");
    drop(guard); // of a node that is gone
    assert!(theirs.is_held() && theirs.check().is_ok());
    theirs.unlock().unwrap();
    until_empty(&at, LOCK);
}

/// The timer waits for no network: the lease would last for much longer.
fn hold_ends_in_time_in_a_black_hole() {
    let (server, at) = start();
    let ours = session_of(&at, Duration::from_secs(60));
    let mine = short_lock(&ours).release_overdue().build().unwrap();
    let start = Instant::now();
    let guard = mine.lock().unwrap();
    server.black_hole(true);
    held_too_long(&guard, start);
    // A time far below that at which the supervisor looks by itself.
    server.black_hole(false);
    drop(guard);
    let short = ZkMutex::builder(&ours, "/short").max_hold(Duration::from_millis(200));
    let short = short.build().unwrap().lock_timeout(SOON).optional().unwrap().unwrap();
    let begun = Instant::now();
    assert_eq!(short.lost().wait(SOON), Some(LossReason::HeldTooLong));
    assert!(at_best(begun) < Duration::from_millis(900), "{:?}", begun.elapsed());
    drop(short);
    until_empty(&at, LOCK);
}

fn each_thread_has_its_own_time_when_the_lock_is_handed_over() {
    let at = Shared::chroot();
    let ours = session(&at);
    let mine = short_lock(&ours).hand_over(Duration::from_secs(60)).build().unwrap();
    let first = mine.lock().unwrap();
    thread::scope(|scope| {
        let next = spawn_waiting(scope, || {
            let begun = Instant::now();
            let next = mine.lock_timeout(SOON).optional().unwrap().expect("it is handed over");
            let path = next.path().to_owned();
            sleep(MOST * 2 / 3);
            // The first thread's time is over by now.
            assert!(next.is_held() && begun.elapsed() > MOST);
            assert_eq!(next.lost().wait(SOON), Some(LossReason::HeldTooLong));
            path
        });
        sleep(MOST * 2 / 3);
        let path = first.path().to_owned();
        first.unlock().unwrap();
        assert_eq!(next.join().unwrap(), path, "it is one node");
    });
    until_empty(&at, LOCK);
}

/// No thread has the lock while its node is kept.
fn kept_lock_has_no_end() {
    let at = Shared::chroot();
    let ours = session(&at);
    let mine = short_lock(&ours).keep(Duration::from_secs(60)).build().unwrap();
    // The first hold asks whether anybody else is there.
    let kept = until("it is kept", SOON, || {
        mine.lock().unwrap().unlock().unwrap();
        queue(&at, LOCK).pop()
    });
    sleep(MOST * 3 / 2);
    let guard = mine.lock().unwrap();
    assert!(guard.is_held() && guard.path().ends_with(&kept), "{}", guard.path());
    held_too_long(&guard, Instant::now() - MOST);
    drop(guard);
    until("it is deleted", SOON, || (!queue(&at, LOCK).contains(&kept)).then_some(()));
}

fn readers_that_share_a_node_share_its_end() {
    let at = Shared::chroot();
    let ours = session(&at);
    let hand_over = Duration::from_secs(60);
    let build = |most| ZkRwLock::builder(&ours, LOCK).hand_over(hand_over).max_hold(most);
    let (short, long) = (build(MOST).build().unwrap(), build(MOST * 20).build().unwrap());
    let start = Instant::now();
    let first = short.read().unwrap();
    thread::scope(|scope| {
        let (tell, has_joined) = bounded(1);
        let (short, first) = (&short, &first);
        let shares = scope.spawn(move || {
            let second = short.read().unwrap();
            tell.send(()).unwrap();
            assert_eq!(second.path(), first.path());
            held_too_long(&second, start);
        });
        has_joined.recv_timeout(SOON).unwrap();
        let other = scope.spawn(|| {
            let third = long.read().unwrap();
            assert_ne!(third.path(), first.path(), "it has another end");
            sleep(MOST * 3 / 2);
            assert!(third.is_held());
        });
        held_too_long(first, start);
        shares.join().unwrap();
        other.join().unwrap();
    });
    drop(first);
    until_empty(&at, LOCK);
    // A thread that reads beside its own write has an end for each.
    let start = Instant::now();
    let write = short.write().unwrap();
    sleep(MOST / 3);
    let read = short.read().unwrap();
    held_too_long(&write, start);
    assert!(read.is_held());
    drop(write);
    assert_eq!(read.lost().wait(SOON), Some(LossReason::HeldTooLong));
    drop(read);
    until_empty(&at, LOCK);
}

fn permits_exclusive_and_multi_locks_end_in_time() {
    let at = Shared::chroot();
    let ours = session(&at);
    let permits =
        ZkSemaphore::builder(&ours, LOCK, 3).max_hold(MOST).release_overdue().build().unwrap();
    let start = Instant::now();
    let two = permits.acquire_many(2).unwrap();
    held_too_long(&two, start);
    let all = permits
        .acquire_many_with(3, Wait::timeout(SOON))
        .optional()
        .unwrap()
        .expect("they were released");
    drop(two);
    assert!(all.is_held());
    drop(all);
    let exclusive = ZkExclusiveLock::builder(&ours, "/one").max_hold(MOST).release_overdue();
    let exclusive = exclusive.build().unwrap();
    let start = Instant::now();
    let guard = exclusive.lock().unwrap();
    held_too_long(&guard, start);
    let next = thread::scope(|scope| {
        scope
            .spawn(|| exclusive.lock_timeout(SOON).optional().map(|next| next.is_some()))
            .join()
            .unwrap()
    });
    assert_eq!(next, Ok(true));
    drop(guard);
    let (mutex, other) = (bounded_at(&ours, "/two"), ZkMutex::new(&ours, "/three").unwrap());
    let multi = ZkMultiLock::new([&mutex, &other]).unwrap();
    let start = Instant::now();
    let both = multi.lock().unwrap();
    assert_eq!(both.lost().wait(SOON), Some(LossReason::HeldTooLong));
    assert!(start.elapsed() >= MOST && !both.is_held());
    drop(both);
    ["/one", "/two", "/three"].iter().for_each(|path| until_empty(&at, path));
}

fn bounded_at(session: &ZkSession, path: &str) -> ZkMutex {
    ZkMutex::builder(session, path).max_hold(MOST).build().unwrap()
}

fn settings_without_a_meaning_are_refused() {
    let server = Server::start();
    let ours = session(&server.connect_string());
    let builder = || ZkMutex::builder(&ours, LOCK);
    for (refused, name) in [
        (builder().max_hold(Duration::ZERO), "max_hold"),
        (builder().release_overdue(), "release_overdue"),
    ] {
        let told = refused.build();
        let is_named = matches!(&told, Err(Error::InvalidConfig { what, .. }) if *what == name);
        assert!(is_named, "{told:?}");
    }
    let longest = builder().max_hold(Duration::MAX).release_overdue().build().unwrap();
    assert!(longest.lock().unwrap().is_held());
    until_empty(&server.connect_string(), LOCK);
}

fn lock_that_is_held_for_long_is_named_in_the_log() {
    let at = Shared::chroot();
    let ours = session(&at);
    let mine =
        ZkMutex::builder(&ours, LOCK).warn_held_after(Duration::from_secs(1)).build().unwrap();
    mine.lock().unwrap().unlock().unwrap();
    let guard = mine.lock().unwrap();
    let told = || logged(Level::Warn, "held by this process for");
    let first = until("the log says so", SOON, || told().pop());
    assert!(first.contains(guard.path()), "{first}");
    until("and says so again", SOON, || (told().len() == 2).then_some(()));
    assert!(told().iter().all(|line| line.contains(guard.path())), "{:?}", told());
    assert!(guard.is_held());
    guard.unlock().unwrap();
    until_empty(&at, LOCK);
}

scenarios![
    guard_ends_at_its_time_and_others_get_the_lock_when_it_is_dropped,
    overdue_hold_is_released_for_others_though_its_guard_lives,
    hold_ends_in_time_in_a_black_hole on embedded,
    each_thread_has_its_own_time_when_the_lock_is_handed_over,
    kept_lock_has_no_end,
    readers_that_share_a_node_share_its_end,
    permits_exclusive_and_multi_locks_end_in_time,
    settings_without_a_meaning_are_refused on embedded,
    lock_that_is_held_for_long_is_named_in_the_log,
];
