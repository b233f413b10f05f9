//! A guard's own signals: events that set them while the guard lives, and that nothing sets them
//! after its release, even if its node stays.
use crate::support::{
    Server,
    contend::{session, spawn_waiting},
    scenarios,
    scene::SOON,
};
use crossbeam_channel::bounded;
use std::{fmt::Debug, thread, time::Duration};
use zk_mutex::{
    Held, LossReason, LostSignal, RevokeSignal, ZkElection, ZkExclusiveLock, ZkMutex, ZkRwLock,
    ZkSemaphore, ZkSemaphoreMutex, ZkSession, crossbeam_channel::select,
};

const PATH: &str = "/locks/orders";

/// The session is lost and the living guard is notified. By then a signal that wrongly reacts would
/// have been set, too.
#[track_caller]
fn lose(server: &Server, session: &ZkSession, living: &LostSignal, released: &[&LostSignal]) {
    assert!(server.embedded_server().expire_session(session.status().session_id.unwrap()));
    assert!(living.wait(SOON).is_some());
    assert!(living.reason().is_some());
    for signal in released {
        assert!(
            signal.receiver().try_recv().is_err_and(|e| e.is_empty()),
            "the signal was set after the release"
        );
        assert_eq!(signal.reason(), None);
    }
}

#[track_caller]
fn never_asked(signal: &RevokeSignal) {
    assert!(
        signal.receiver().try_recv().is_err_and(|e| e.is_empty()),
        "the signal was set after the release"
    );
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
        assert!(session.attempt_revoke(&holder.path).unwrap().is_some());
        assert!(asks.wait(SOON));
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
    // A nested guard that lives is notified like the outer one.
    let other = mutex.lock().unwrap();
    let other_lost = other.lost();
    assert!(session.attempt_revoke(&mutex.contenders().unwrap()[0].path).unwrap().is_some());
    assert!(outer.revoke_requested().wait(SOON));
    never_asked(&asked);
    lose(&server, &session, &outer_lost, &[&lost]);
    assert!(other_lost.wait(SOON).is_some());
    // A signal that is requested after the loss is ready at once.
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
    assert!(session.attempt_revoke(&lock.holders().unwrap()[0].path).unwrap().is_some());
    assert!(stays.revoke_requested().wait(SOON));
    never_asked(&asked);
    lose(&server, &session, &stays.lost(), &[&lost]);
}

fn a_wait_for_the_loss_ends_with_its_reason_or_when_its_time_is_up() {
    let server = Server::embedded().start();
    let session = session(&server.connect_string());
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    let guard = mutex.lock().unwrap();
    let lost = guard.lost();
    assert_eq!(lost.wait(Duration::ZERO), None);
    assert_eq!(lost.wait(Duration::from_millis(50)), None);
    thread::scope(|scope| {
        // The wait is longer than a clock can represent, and has another channel beside it.
        let waits = spawn_waiting(scope, || lost.clone().wait(Duration::MAX));
        let selects = spawn_waiting(scope, || {
            let (_open, other) = bounded::<()>(0);
            select! {
                recv(lost.receiver()) -> message => message.is_err(),
                recv(other) -> _ => false,
            }
        });
        assert!(!waits.is_finished() && !selects.is_finished());
        assert!(server.embedded_server().expire_session(session.status().session_id.unwrap()));
        let reason = waits.join().unwrap();
        // The server reports the deleted node before the expired session.
        assert!(
            matches!(reason, Some(LossReason::NodeDeleted | LossReason::SessionExpired)),
            "{reason:?}"
        );
        assert!(selects.join().unwrap());
        assert_eq!((lost.wait(Duration::ZERO), lost.reason()), (reason, reason));
    });
}

fn a_wait_for_a_request_ends_with_it_or_when_its_time_is_up() {
    let server = Server::embedded().start();
    let session = session(&server.connect_string());
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    let guard = mutex.lock().unwrap();
    let asked = guard.revoke_requested();
    assert!(!asked.wait(Duration::ZERO) && !asked.wait(Duration::from_millis(50)));
    thread::scope(|scope| {
        let waits = spawn_waiting(scope, || asked.wait(Duration::MAX));
        let selects = spawn_waiting(scope, || asked.receiver().recv().is_err());
        session.attempt_revoke(&mutex.contenders().unwrap()[0].path).unwrap();
        assert!(waits.join().unwrap() && selects.join().unwrap());
        assert!(asked.wait(Duration::ZERO));
    });
}

/// A log line of a guard says what kind of guard it is.
fn debug_names_the_type_of_each_guard() {
    let server = Server::start();
    let session = session(&server.connect_string());
    let shows = |guard: &dyn Debug, held: &Held, name: &str| {
        let text = format!("{guard:?}");
        let start = format!("{name} {{ path: {:?}, state: <held>, ", held.path());
        assert!(text.starts_with(&start), "{text}, and not {start}");
    };
    let lock = ZkRwLock::new(&session, "/l/rw").unwrap();
    let write = lock.write().unwrap();
    shows(&write, &write, "ZkWriteGuard");
    let read = lock.read().unwrap();
    shows(&read, &read, "ZkReadGuard");
    let mutex = ZkMutex::new(&session, PATH).unwrap().lock().unwrap();
    shows(&mutex, &mutex, "ZkMutexGuard");
    let permit = ZkSemaphore::new(&session, "/l/s", 1).unwrap().acquire().unwrap();
    shows(&permit, &permit, "ZkPermit");
    let one = ZkSemaphoreMutex::new(&session, "/l/one").unwrap().lock().unwrap();
    shows(&one, &one, "ZkSemaphoreMutexGuard");
    let sole = ZkExclusiveLock::new(&session, "/l/sole").unwrap().lock().unwrap();
    shows(&sole, &sole, "ZkExclusiveGuard");
    let candidate = ZkElection::new(&session, "/l/e").unwrap().join().unwrap();
    let leader = candidate.wait_leader().unwrap();
    shows(&leader, &leader, "Leadership");
    session.close().unwrap();
    assert!(format!("{mutex:?}").contains("state: <lost>"), "{mutex:?}");
}

scenarios![on embedded;
    debug_names_the_type_of_each_guard,
    a_wait_for_the_loss_ends_with_its_reason_or_when_its_time_is_up,
    a_wait_for_a_request_ends_with_it_or_when_its_time_is_up,
    signals_of_a_released_guard_stay_silent_when_the_next_thread_has_its_node,
    signals_of_a_nested_guard_stay_silent_when_the_outer_one_is_lost,
    signals_of_a_reader_that_left_stay_silent_when_the_others_are_lost,
];
