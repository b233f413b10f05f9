//! A lock that stays with the process between two holds, while no other contender asks for it.
use crate::support::{
    Proxy, Shared, at_best,
    contend::{Over, Section, session, spawn_waiting, until_queue},
    logged::logged,
    scenarios,
    scene::{SOON, expire, until_empty, until_state},
    until,
};
use log::Level;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{OptionalExt, SessionState, ZkMutex, ZkSession};

const LOCK: &str = "/locks/orders";

/// Longer than any scenario takes.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn kept(session: &ZkSession, keep: Duration) -> ZkMutex {
    ZkMutex::builder(session, LOCK).hand_over(Duration::ZERO).keep(keep).build().unwrap()
}

fn through_a_proxy(at: &str) -> (Proxy, ZkSession) {
    let (server, chroot) = at.split_once('/').unwrap();
    let proxy = Proxy::start(server.parse().unwrap());
    let ours = session(&format!("{}/{chroot}", proxy.connect_string()));
    (proxy, ours)
}

/// The guard is the last handle of its mutex and of its session. Its drop releases the kept node
/// and closes the session. Neither of the two is a lost lock.
fn the_last_handle_of_all_lets_it_go_without_a_warning() {
    let at = Shared::chroot();
    let guard = kept(&session(&at), FOR_EVER).lock().unwrap();
    drop(guard);
    until_empty(&at, LOCK);
    assert_eq!(logged(Level::Warn, "lock lost"), [] as [&str; 0]);
}

fn taken_again_it_is_the_same_node_with_another_token() {
    let at = Shared::chroot();
    let ours = session(&at);
    let mutex = kept(&ours, FOR_EVER);
    let first = mutex.lock().unwrap();
    let (path, token, lost) = (first.path().to_owned(), first.fencing_token(), first.lost());
    drop(first);
    until_queue(&at, LOCK, 1);
    // Another thread locks it, and a thread that only tries.
    thread::scope(|scope| {
        let second = scope.spawn(|| {
            let guard = mutex.try_lock().optional().unwrap().expect("the lock is kept");
            (guard.path().to_owned(), guard.fencing_token())
        });
        let (second_path, second_token) = second.join().unwrap();
        assert_eq!(second_path, path);
        assert!(second_token > token, "{second_token} after {token}");
    });
    assert!(lost.receiver().try_recv().is_err_and(|e| e.is_empty()), "nothing was lost");
    drop(mutex);
    until_empty(&at, LOCK);
}

fn another_contender_gets_a_kept_lock_at_once() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (kept(&ours, FOR_EVER), ZkMutex::new(&theirs, LOCK).unwrap());
    for _ in 0..3 {
        drop(mutex.lock().unwrap());
        let start = Instant::now();
        drop(other.lock().unwrap());
        assert!(at_best(start) < SOON);
    }
    drop(mutex);
    until_empty(&at, LOCK);
}

fn a_contender_that_came_while_it_was_held_gets_it_at_the_release() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (kept(&ours, FOR_EVER), ZkMutex::new(&theirs, LOCK).unwrap());
    drop(mutex.lock().unwrap());
    until_queue(&at, LOCK, 1);
    for _ in 0..3 {
        let guard = mutex.lock().unwrap();
        thread::scope(|scope| {
            let waiting = spawn_waiting(scope, || drop(other.lock().unwrap()));
            until_queue(&at, LOCK, 2);
            assert!(!waiting.is_finished() && guard.is_held());
            drop(guard);
            waiting.join().unwrap();
        });
    }
    drop(mutex);
    until_empty(&at, LOCK);
}

fn it_goes_when_its_time_is_over() {
    let at = Shared::chroot();
    let ours = session(&at);
    let mutex = kept(&ours, Duration::from_millis(300));
    let path = mutex.lock().unwrap().path().to_owned();
    until_empty(&at, LOCK);
    assert_ne!(mutex.lock().unwrap().path(), path);
    until_empty(&at, LOCK);
}

fn a_lost_session_takes_it_along() {
    let at = Shared::chroot();
    let (proxy, ours) = through_a_proxy(&at);
    let mutex = kept(&ours, FOR_EVER);
    let path = mutex.lock().unwrap().path().to_owned();
    let id = ours.status().session_id.expect("a session");
    expire(&proxy, &at);
    until("another session", SOON, || {
        (ours.status().session_id.is_some_and(|now| now != id)
            && ours.status().state == SessionState::Connected)
            .then_some(())
    });
    let guard = mutex.lock().unwrap();
    assert!(guard.is_held());
    assert_ne!(guard.path(), path);
    drop(guard);
    drop(mutex);
    until_empty(&at, LOCK);
}

fn a_reconnection_lets_it_go() {
    let at = Shared::chroot();
    let (proxy, ours) = through_a_proxy(&at);
    let mutex = kept(&ours, FOR_EVER);
    let path = mutex.lock().unwrap().path().to_owned();
    until_queue(&at, LOCK, 1);
    proxy.cut();
    until_empty(&at, LOCK);
    until_state(&ours, SessionState::Connected);
    assert_ne!(mutex.lock().unwrap().path(), path);
    drop(mutex);
    until_empty(&at, LOCK);
}

fn threads_that_pass_it_on_among_themselves_let_another_process_in() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (kept(&ours, FOR_EVER), ZkMutex::new(&theirs, LOCK).unwrap());
    let is_over = AtomicBool::new(false);
    let got = thread::scope(|scope| {
        let _all = Over(&is_over);
        for _ in 0..4 {
            scope.spawn(|| {
                // Each hold is so long that some thread waits at each release.
                while !is_over.load(Ordering::Relaxed) {
                    let _guard = mutex.lock().unwrap();
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
        until_queue(&at, LOCK, 1);
        other.lock_timeout(SOON).optional().map(|guard| guard.is_some())
    });
    assert!(got.unwrap(), "the lock never left the process");
    drop(mutex);
    until_empty(&at, LOCK);
}

fn its_time_ends_in_the_next_session_too() {
    let at = Shared::chroot();
    let (proxy, ours) = through_a_proxy(&at);
    let mutex = kept(&ours, Duration::from_secs(3));
    drop(mutex.lock().unwrap());
    let id = ours.status().session_id.expect("a session");
    expire(&proxy, &at); // the timer of the kept lock ends with its session
    until("another session", SOON, || {
        (ours.status().session_id.is_some_and(|now| now != id)
            && ours.status().state == SessionState::Connected)
            .then_some(())
    });
    drop(mutex.lock().unwrap());
    until_empty(&at, LOCK);
}

fn each_mutex_keeps_it_for_its_own_time() {
    let at = Shared::chroot();
    let ours = session(&at);
    let (long, short) = (kept(&ours, FOR_EVER), kept(&ours, Duration::from_millis(300)));
    for _ in 0..2 {
        drop(long.lock().unwrap());
        drop(short.lock().unwrap());
        until_empty(&at, LOCK);
    }
    drop(short.lock().unwrap());
    let path = long.lock().unwrap().path().to_owned();
    thread::sleep(Duration::from_millis(600)); // longer than the short time
    assert_eq!(long.lock().unwrap().path(), path);
    drop((long, short));
    until_empty(&at, LOCK);
}

fn a_kept_lock_with_a_revocation_request_is_released() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (kept(&ours, FOR_EVER), ZkMutex::new(&theirs, LOCK).unwrap());
    drop(mutex.lock().unwrap());
    let contender = other.contenders().unwrap().remove(0);
    assert!(theirs.attempt_revoke(&contender.path).unwrap().is_some());
    until_empty(&at, LOCK);
}

fn threads_and_sessions_that_keep_it_exclude_each_other() {
    const ROUNDS: usize = 40;
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at)];
    let section = Section::default();
    thread::scope(|scope| {
        for number in 0..6 {
            let (ours, section) = (&sessions[number % 2], &section);
            scope.spawn(move || {
                let mutex = kept(ours, Duration::from_millis(50));
                for _ in 0..ROUNDS {
                    let guard = mutex.lock().unwrap();
                    section.pass();
                    assert!(guard.is_held());
                }
            });
        }
    });
    assert_eq!(section.counter(), 6 * ROUNDS);
    until_empty(&at, LOCK);
}

scenarios![
    taken_again_it_is_the_same_node_with_another_token,
    another_contender_gets_a_kept_lock_at_once,
    a_contender_that_came_while_it_was_held_gets_it_at_the_release,
    it_goes_when_its_time_is_over,
    a_lost_session_takes_it_along,
    a_reconnection_lets_it_go,
    threads_that_pass_it_on_among_themselves_let_another_process_in,
    its_time_ends_in_the_next_session_too,
    each_mutex_keeps_it_for_its_own_time,
    a_kept_lock_with_a_revocation_request_is_released,
    threads_and_sessions_that_keep_it_exclude_each_other,
    the_last_handle_of_all_lets_it_go_without_a_warning,
];
