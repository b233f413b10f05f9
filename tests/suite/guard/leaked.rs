//! Guards of a lost hold that cannot be dropped any more: the error that their thread gets, and how
//! it locks again.
use crate::support::{
    Server,
    contend::session,
    scenarios,
    scene::{self, SOON, session_of, until_empty},
};
use std::{mem, thread, time::Duration};
use zk_mutex::{Error, LostSignal, OptionalExt, ZkMutex, ZkRwLock, ZkSession};

const PATH: &str = "/locks/orders";

#[track_caller]
fn expire(server: &Server, session: &ZkSession, lost: &LostSignal) {
    assert!(server.embedded_server().expire_session(session.session_id().unwrap()));
    assert!(lost.wait(SOON).is_some());
}

#[track_caller]
fn is_lost<T>(said: zk_mutex::Result<T>) {
    assert!(matches!(said, Err(Error::Lost { .. })), "{:?}", said.map(drop));
}

fn a_thread_whose_guards_leaked_locks_again_after_clear_lost() {
    let server = Server::embedded().start();
    let session = session(&server.connect_string());
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    let guard = mutex.lock().unwrap();
    let lost = guard.lost();
    mem::forget((mutex.lock().unwrap(), guard));
    assert!(!mutex.clear_lost(), "the hold is not lost");
    expire(&server, &session, &lost);
    for _ in 0..3 {
        is_lost(mutex.lock());
        is_lost(mutex.try_lock().optional());
    }
    // Other threads are not affected.
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!mutex.clear_lost());
            drop(mutex.lock().unwrap());
        });
    });
    is_lost(mutex.lock());
    assert!(mutex.clear_lost());
    assert!(!mutex.clear_lost());
    let again = mutex.lock().unwrap();
    assert_eq!((again.hold_count(), again.check()), (1, Ok(())));
    drop(again);
    until_empty(&server.connect_string(), PATH);
    session.close().unwrap(); // a leaked guard keeps the session open
}

/// A guard that still exists: neither its drop nor its release affects the new hold.
fn a_guard_that_was_given_up_does_nothing_to_the_next_hold() {
    let server = Server::embedded().start();
    let at = server.connect_string();
    let session = session(&at);
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    let guards = [mutex.lock().unwrap(), mutex.lock().unwrap()];
    expire(&server, &session, &guards[0].lost());
    assert!(mutex.clear_lost());
    let again = mutex.lock().unwrap();
    let [one, other] = guards;
    drop(one);
    is_lost(other.unlock());
    assert_eq!((again.hold_count(), again.check()), (1, Ok(())));
    assert!(mutex.is_owned_by_current_thread());
    assert_eq!(scene::queue(&at, PATH).len(), 1);
    drop(again);
    until_empty(&at, PATH);
}

fn readers_and_writers_whose_guards_leaked_lock_again_too() {
    let server = Server::embedded().start();
    let session = session(&server.connect_string());
    let lock = ZkRwLock::new(&session, PATH).unwrap();
    let (write, read) = (lock.write().unwrap(), lock.read().unwrap());
    let lost = [write.lost(), read.lost()];
    mem::forget((write, read));
    expire(&server, &session, &lost[0]);
    assert!(lost[1].wait(SOON).is_some());
    is_lost(lock.read());
    is_lost(lock.write());
    assert!(lock.clear_lost());
    mem::forget(lock.read().unwrap());
    let lost = lock.read().unwrap().lost();
    // The leaked hold is released and reports no more errors; another thread's read still reports
    // its loss.
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let reads = lock.read().unwrap();
            let told = reads.lost();
            expire(&server, &session, &told);
        });
        reader.join().unwrap();
    });
    assert_eq!(lost.reason(), None);
    is_lost(lock.read());
    is_lost(lock.write());
    assert!(lock.clear_lost());
    drop(lock.write().unwrap());
    until_empty(&server.connect_string(), PATH);
    session.close().unwrap(); // a leaked guard keeps the session open
}

/// The session outlives the lease: the node stays, and keeps all others waiting, until its guards
/// are given up.
fn the_node_of_leaked_guards_goes_when_they_are_given_up() {
    let server = Server::embedded().start();
    let at = server.connect_string();
    let timeout = Duration::from_secs(6);
    let (ours, others) = (session_of(&at, timeout), session(&at));
    let (mutex, theirs) =
        (ZkMutex::new(&ours, PATH).unwrap(), ZkMutex::new(&others, PATH).unwrap());
    let guard = mutex.lock().unwrap();
    let lost = guard.lost();
    mem::forget(guard);
    server.embedded_server().black_hole(true);
    assert!(lost.wait(timeout + SOON).is_some());
    server.embedded_server().black_hole(false);
    is_lost(mutex.lock());
    assert!(mutex.clear_lost());
    drop(theirs.lock_timeout(SOON).optional().unwrap().expect("the node is deleted"));
    drop(mutex.lock().unwrap());
    until_empty(&at, PATH);
    ours.close().unwrap(); // a leaked guard keeps the session open
}

scenarios![on embedded;
    a_thread_whose_guards_leaked_locks_again_after_clear_lost,
    a_guard_that_was_given_up_does_nothing_to_the_next_hold,
    readers_and_writers_whose_guards_leaked_lock_again_too,
    the_node_of_leaked_guards_goes_when_they_are_given_up,
];
