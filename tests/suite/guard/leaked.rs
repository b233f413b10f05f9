//! Guards of a lost hold that are never dropped: the error that their thread gets.
use crate::support::{
    Server,
    contend::session,
    scenarios,
    scene::{SOON, until_empty},
};
use std::{mem, thread};
use zk_mutex::{Error, LostSignal, OptionalExt, ZkMutex, ZkRwLock, ZkSession};

const PATH: &str = "/locks/orders";

#[track_caller]
fn expire(server: &Server, session: &ZkSession, lost: &LostSignal) {
    assert!(server.embedded_server().expire_session(session.status().session_id.unwrap()));
    assert!(lost.wait(SOON).is_some());
}

#[track_caller]
fn is_lost<T>(said: zk_mutex::Result<T>) {
    assert!(matches!(said, Err(Error::Lost { .. })), "{:?}", said.map(drop));
}

fn a_thread_whose_guards_leaked_locks_again_in_another_session_only() {
    let server = Server::embedded().start();
    let ours = session(&server.connect_string());
    let mutex = ZkMutex::new(&ours, PATH).unwrap();
    let guard = mutex.lock().unwrap();
    let lost = guard.lost();
    mem::forget((mutex.lock().unwrap(), guard));
    expire(&server, &ours, &lost);
    for _ in 0..3 {
        is_lost(mutex.lock());
        is_lost(mutex.try_lock().optional());
    }
    // Other threads are not affected.
    thread::scope(|scope| {
        scope.spawn(|| drop(mutex.lock().unwrap()));
    });
    is_lost(mutex.lock());
    ours.close().unwrap(); // a leaked guard keeps the session open
    let next = session(&server.connect_string());
    let guard = ZkMutex::new(&next, PATH).unwrap().lock().unwrap();
    assert_eq!((guard.hold_count(), guard.check()), (1, Ok(())));
    drop(guard);
    until_empty(&server.connect_string(), PATH);
}

fn a_thread_whose_guards_to_read_or_to_write_leaked_gets_neither_again() {
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
    thread::scope(|scope| {
        scope.spawn(|| drop(lock.write().unwrap()));
    });
    is_lost(lock.read());
    session.close().unwrap(); // a leaked guard keeps the session open
}

scenarios![on embedded;
    a_thread_whose_guards_leaked_locks_again_in_another_session_only,
    a_thread_whose_guards_to_read_or_to_write_leaked_gets_neither_again,
];
