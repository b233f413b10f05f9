//! A wait that is long: the log says for what, and who holds it; and nothing takes longer by that.
use crate::support::{
    Shared,
    contend::{session, spawn_waiting},
    embedded::start,
    logged::logged,
    scenarios,
    scene::{SOON, until_empty},
    until,
};
use log::Level;
use std::{
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{LockBuilder, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSemaphore, ZkSession};
use zk_test_server::{Matcher, Op};

const LOCK: &str = "/locks/orders";
const LONG: Duration = Duration::from_millis(500);

fn waits_briefly(session: &ZkSession) -> LockBuilder<ZkMutex> {
    ZkMutex::builder(session, LOCK).warn_waiting_after(LONG)
}

fn holder(session: &ZkSession) -> String {
    format!("held by billing on h7, session 0x{:x}, for ", session.status().session_id.unwrap())
}

fn long_wait_names_the_holder_and_a_short_one_nobody() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let other = ZkMutex::builder(&theirs, LOCK).data("billing on h7").build().unwrap();
    let patient = ZkMutex::builder(&session(&at), LOCK).build().unwrap();
    let mine = waits_briefly(&ours).build().unwrap();
    let guard = other.lock().unwrap();
    let said = || logged(Level::Warn, "waiting for ");
    thread::scope(|scope| {
        spawn_waiting(scope, || drop(patient.lock().unwrap()));
        spawn_waiting(scope, || drop(mine.lock().unwrap()));
        let behind = holder(&theirs);
        let named = || said().into_iter().filter(|line| line.contains(&behind)).count();
        until("the holder is named, and again", SOON, || (named() >= 2).then_some(()));
        // Another thread waits for its turn in this process.
        spawn_waiting(scope, || drop(mine.lock().unwrap()));
        until("the thread ahead is named", SOON, || {
            (!logged(Level::Warn, "another thread of this process is ahead").is_empty())
                .then_some(())
        });
        drop(guard);
    });
    assert!(said().iter().all(|line| line.contains(LOCK)), "{:?}", said());
    until_empty(&at, LOCK);
}

fn every_kind_of_lock_names_its_holders() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let behind = holder(&theirs);
    let named = |what: &str, before: usize| {
        until(&format!("the holder of {what} is named"), SOON, || {
            let lines = logged(Level::Warn, "waiting for ");
            let here = lines.iter().filter(|l| l.contains(what) && l.contains(&behind));
            (here.count() > before).then_some(())
        });
    };
    let data = "billing on h7";
    // A writer waits for all readers.
    let read = ZkRwLock::builder(&theirs, "/read").data(data).build().unwrap();
    let write = ZkRwLock::builder(&ours, "/read").warn_waiting_after(LONG).build().unwrap();
    let guard = read.read().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(write.write().unwrap()));
        named("/read", 0);
        drop(guard);
    });
    let permits = ZkSemaphore::builder(&theirs, "/permits", 1).data(data).build().unwrap();
    let wanted =
        ZkSemaphore::builder(&ours, "/permits", 1).warn_waiting_after(LONG).build().unwrap();
    let permit = permits.acquire().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(wanted.acquire().unwrap()));
        named("/permits", 0);
        drop(permit);
    });
    let one = ZkExclusiveLock::builder(&theirs, "/one").data(data).build().unwrap();
    let other = ZkExclusiveLock::builder(&ours, "/one").warn_waiting_after(LONG).build().unwrap();
    let guard = one.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| drop(other.lock().unwrap()));
        named("/one", 0);
        drop(guard);
    });
    ["/read", "/permits", "/one"].iter().for_each(|path| until_empty(&at, path));
}

/// The server does not answer the question who holds the lock. The lock becomes free meanwhile.
fn lock_is_taken_at_once_though_nobody_says_who_held_it() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (mine, other) =
        (waits_briefly(&ours).build().unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    let guard = other.lock().unwrap();
    thread::scope(|scope| {
        let waits = spawn_waiting(scope, || {
            drop(mine.lock().unwrap());
            Instant::now()
        });
        let list = Matcher::from(Op::GetChildren).session(ours.status().session_id.unwrap());
        let held = server.hold_requests(list);
        until("it asks", SOON, || (held.count() > 0).then_some(()));
        let free = Instant::now();
        guard.unlock().unwrap();
        let taken = waits.join().unwrap() - free;
        assert!(taken < ours.status().timeout / 12, "{taken:?}");
        drop(held);
    });
    assert_eq!(logged(Level::Warn, "waiting for "), Vec::<String>::new());
    until_empty(&at, LOCK);
}

scenarios![
    long_wait_names_the_holder_and_a_short_one_nobody,
    every_kind_of_lock_names_its_holders,
    lock_is_taken_at_once_though_nobody_says_who_held_it on embedded,
];
