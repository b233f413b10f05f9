//! A guard's own signals: what fires them while it lives, and that nothing fires them after its
//! release, though its node goes on.
use crate::support::{
    Server,
    contend::{session, spawn_waiting},
    scenarios,
    scene::SOON,
};
use crossbeam_channel::bounded;
use std::thread;
use zk_mutex::{LostSignal, RevokeSignal, ZkMutex, ZkRwLock, ZkSession};

const PATH: &str = "/locks/orders";

/// The session is lost, and the guard that lives is told: then whoever is not to be told has not
/// been.
#[track_caller]
fn lose(server: &Server, session: &ZkSession, living: &LostSignal, released: &[&LostSignal]) {
    assert!(server.embedded_server().expire_session(session.session_id().unwrap()));
    assert!(living.recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
    assert!(living.reason().is_some());
    for signal in released {
        assert!(signal.try_recv().is_err_and(|e| e.is_empty()), "fired after the release");
        assert_eq!(signal.reason(), None);
    }
}

#[track_caller]
fn never_asked(signal: &RevokeSignal) {
    assert!(signal.try_recv().is_err_and(|e| e.is_empty()), "fired after the release");
    assert!(!signal.is_requested());
}

fn signals_of_a_released_guard_stay_silent_when_the_next_thread_has_its_node() {
    let server = Server::embedded().start();
    let session = session(&server.connect_string());
    let mutex = ZkMutex::builder(&session, PATH).hand_over(SOON * 6).build().unwrap();
    let guard = mutex.lock().unwrap();
    let (lost, asked, node) = (guard.lost(), guard.revoke_requested(), guard.path().to_owned());
    let (got, gets) = bounded(0);
    let (end, ends) = bounded::<()>(0);
    thread::scope(|scope| {
        let next = spawn_waiting(scope, || {
            let next = mutex.lock().unwrap();
            assert_eq!(next.path(), node);
            got.send((next.lost(), next.revoke_requested())).unwrap();
            let _ = ends.recv();
        });
        guard.unlock().unwrap(); // a normal release
        let (theirs, asks) = gets.recv().unwrap();
        let holder = mutex.contenders().unwrap().remove(0);
        assert!(mutex.attempt_revoke(&holder).unwrap());
        assert!(asks.recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
        never_asked(&asked);
        lose(&server, &session, &theirs, &[&lost]);
        drop(end);
        next.join().unwrap();
    });
}

fn signals_of_a_nested_guard_stay_silent_when_the_outer_one_is_lost() {
    let server = Server::embedded().start();
    let session = session(&server.connect_string());
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    let outer = mutex.lock().unwrap();
    let inner = mutex.lock().unwrap();
    let (lost, asked, outer_lost) = (inner.lost(), inner.revoke_requested(), outer.lost());
    drop(inner);
    // A nested guard that lives is told as the outer one is.
    let other = mutex.lock().unwrap();
    let other_lost = other.lost();
    assert!(mutex.attempt_revoke(&mutex.contenders().unwrap()[0]).unwrap());
    assert!(outer.revoke_requested().recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
    never_asked(&asked);
    lose(&server, &session, &outer_lost, &[&lost]);
    assert!(other_lost.recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
    // Who asks when it is lost already is told at once.
    assert_eq!(other.lost().reason(), outer_lost.reason());
    assert!(outer.lost().reason().is_some());
}

fn signals_of_a_reader_that_left_stay_silent_when_the_others_are_lost() {
    let server = Server::embedded().start();
    let session = session(&server.connect_string());
    let lock = ZkRwLock::builder(&session, PATH).hand_over(SOON * 6).build().unwrap();
    let stays = lock.read().unwrap();
    let (lost, asked) = thread::scope(|scope| {
        let leaves = scope.spawn(|| {
            let leaves = lock.read().unwrap();
            assert_eq!(leaves.path(), stays.path());
            (leaves.lost(), leaves.revoke_requested())
        });
        leaves.join().unwrap()
    });
    assert!(lock.attempt_revoke(&lock.holders().unwrap()[0]).unwrap());
    assert!(stays.revoke_requested().recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
    never_asked(&asked);
    lose(&server, &session, &stays.lost(), &[&lost]);
}

scenarios![on embedded;
    signals_of_a_released_guard_stay_silent_when_the_next_thread_has_its_node,
    signals_of_a_nested_guard_stay_silent_when_the_outer_one_is_lost,
    signals_of_a_reader_that_left_stay_silent_when_the_others_are_lost,
];
