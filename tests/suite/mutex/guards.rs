//! Guards: re-entry, and release on every way out of a scope.
use crate::support::{
    Direction, Shared,
    contend::{proxied, session, spawn_waiting, stat, until_queue},
    logged::logged,
    scenarios,
    scene::{SOON, queue, until_empty},
};
use log::Level;
use std::{
    cell::RefCell,
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    thread,
    time::Duration,
};
use zk_mutex::{
    Acl, CancelToken, Config, Error, Layout, LockBuilder, OptionalExt, Wait, ZkMutex, ZkMutexGuard,
    ZkSession,
};

const LOCK: &str = "/locks/orders";

fn re_entrant_across_two_mutexes_of_one_path_on_one_session() {
    let at = Shared::chroot();
    let session = session(&at);
    let one = ZkMutex::new(&session, LOCK).unwrap();
    let other = ZkMutex::builder(&session.clone(), LOCK)
        .data("other")
        .hand_over(Duration::ZERO)
        .build()
        .unwrap();
    let first = one.lock().unwrap();
    let second = other.try_lock().optional().unwrap().expect("the thread holds the lock");
    assert_eq!((first.hold_count(), second.hold_count()), (2, 2));
    assert_eq!(first.path(), second.path());
    assert!(one.is_owned_by_current_thread() && other.is_owned_by_current_thread());
    drop(first);
    assert!(one.is_owned_by_current_thread() && second.is_held());
    thread::scope(|scope| {
        let elsewhere = scope.spawn(|| {
            assert!(!one.is_owned_by_current_thread());
            one.try_lock().optional().unwrap().is_some()
                || other.try_lock().optional().unwrap().is_some()
        });
        assert!(!elsewhere.join().unwrap());
    });
    second.unlock().unwrap();
    assert_eq!(queue(&at, LOCK), [""; 0]);
}

fn one_path_with_another_layout_or_acl_is_refused() {
    let at = Shared::chroot();
    let ours = ZkSession::connect(Config::new(&at).auth("digest", "service:secret")).unwrap();
    let mutex = ZkMutex::new(&ours, LOCK).unwrap();
    let refused = |builder: LockBuilder<ZkMutex>, name: &str, word: &str| match builder.build() {
        Err(Error::InvalidConfig { what, reason }) => {
            assert!(what == name && reason.contains(LOCK) && reason.contains(word), "{reason}");
        }
        other => panic!("{other:?}"),
    };
    refused(ZkMutex::builder(&ours, LOCK).layout(Layout::Kazoo), "layout", "layout(Curator)");
    refused(ZkMutex::builder(&ours, LOCK).acl(Acl::CreatorAll), "acl", "acl(Open)");
    // Another path, or another session, makes another lock.
    ZkMutex::builder(&ours, "/locks/other").layout(Layout::Kazoo).build().unwrap();
    let theirs = session(&at);
    ZkMutex::builder(&theirs, LOCK).layout(Layout::Kazoo).build().unwrap();
    ZkMutex::new(&ours, LOCK).unwrap().lock().unwrap().unlock().unwrap();
    drop(mutex);
    until_empty(&at, LOCK);
}

fn two_sessions_are_two_owners_and_the_thread_is_warned() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    let warnings = || logged(Level::Warn, "through another session").len();
    let guard = one.lock().unwrap();
    assert!(!other.is_owned_by_current_thread());
    thread::scope(|scope| {
        // Another thread does not wait for itself.
        scope.spawn(|| assert!(other.try_lock().optional().unwrap().is_none()));
    });
    assert_eq!(warnings(), 0);
    assert!(other.try_lock().optional().unwrap().is_none());
    assert_eq!(warnings(), 1);
    assert!(logged(Level::Warn, LOCK).len() == 1 && guard.is_held());
    guard.unlock().unwrap();
    drop(other.lock().unwrap());
    assert_eq!(warnings(), 1, "the thread holds nothing else any more");
    until_empty(&at, LOCK);
}

fn a_guard_dropped_in_a_panic_releases() {
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        let _outer = mutex.lock().unwrap();
        let _inner = mutex.lock().unwrap();
        panic!("as planned");
    }));
    assert!(unwound.is_err() && !mutex.is_owned_by_current_thread());
    until_empty(&at, LOCK);
}

fn a_thread_that_panics_holding_poisons_nothing() {
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    let elsewhere = session(&at);
    let other = ZkMutex::new(&elsewhere, LOCK).unwrap();
    let (tell, go_on) = crossbeam_channel::bounded::<()>(0);
    let locked = thread::scope(|scope| {
        let held = crossbeam_channel::bounded(1);
        let mutex = &mutex;
        let panics = scope.spawn(move || {
            let _guard = mutex.lock().unwrap();
            held.0.send(()).unwrap();
            go_on.recv().unwrap();
            panic!("as planned");
        });
        held.1.recv().unwrap();
        let here = spawn_waiting(scope, || mutex.lock().map(|guard| guard.is_held()));
        let there = scope.spawn(|| other.lock().map(|guard| guard.is_held()));
        until_queue(&at, LOCK, 2);
        tell.send(()).unwrap();
        assert!(panics.join().is_err());
        [here.join().unwrap(), there.join().unwrap()]
    });
    assert_eq!(locked, [Ok(true), Ok(true)]);
    until_empty(&at, LOCK);
}

fn a_guard_outlives_the_handles_it_came_from() {
    let at = Shared::chroot();
    let guards = {
        let session = session(&at);
        let mutex = ZkMutex::new(&session, LOCK).unwrap();
        [
            mutex.lock().unwrap(),
            mutex.try_lock().optional().unwrap().unwrap(),
            mutex.lock_timeout(SOON).optional().unwrap().unwrap(),
            mutex
                .lock_with(Wait::forever().cancelled_by(&CancelToken::new()))
                .optional()
                .unwrap()
                .unwrap(),
        ]
    };
    let [first, second, third, last] = guards;
    assert_eq!(last.hold_count(), 4);
    drop((first, second, third));
    assert!(last.is_held() && last.check().is_ok() && stat(&at, last.path()).is_some());
    last.unlock().unwrap();
    assert_eq!(queue(&at, LOCK), [""; 0]);
}

fn unlock_returns_when_the_node_is_gone() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let session = session(&through);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    proxy.delay(Duration::from_millis(100)); // each way, so that a sent delete arrives later
    for _ in 0..3 {
        let guard = mutex.lock().unwrap();
        let node = guard.path().to_owned();
        assert!(stat(&at, &node).is_some());
        guard.unlock().unwrap();
        assert_eq!(stat(&at, &node), None);
    }
    // A drop does not wait.
    let guard = mutex.lock().unwrap();
    let node = guard.path().to_owned();
    proxy.hold(Direction::ToServer, true);
    drop(guard);
    assert!(stat(&at, &node).is_some());
    proxy.hold(Direction::ToServer, false);
    until_empty(&at, LOCK);
    session.close().unwrap();
}

fn unlock_of_a_nested_guard_only_ends_the_nesting() {
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    let outer = mutex.lock().unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    assert!(outer.is_held() && outer.hold_count() == 1);
    assert!(stat(&at, outer.path()).is_some());
    outer.unlock().unwrap();
    assert_eq!(queue(&at, LOCK), [""; 0]);
}

fn a_forgotten_guard_holds_until_the_session_closes() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    mem::forget(mutex.lock().unwrap());
    assert!(mutex.is_owned_by_current_thread());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| other.lock().unwrap().is_held());
        let nodes = until_queue(&at, LOCK, 2);
        assert!(!waiter.is_finished());
        ours.close().unwrap();
        assert_eq!(stat(&at, &format!("{LOCK}/{}", nodes[0])), None);
        assert!(waiter.join().unwrap());
    });
    assert!(!mutex.is_owned_by_current_thread());
    until_empty(&at, LOCK);
}

fn a_guard_in_a_thread_local_is_released_by_the_threads_end() {
    thread_local!(static KEPT: RefCell<Option<ZkMutexGuard>> = const { RefCell::new(None) });
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    for _ in 0..3 {
        let keeps = mutex.clone();
        // The test uses no scope, because a scope ends before its threads' locals are dropped.
        let thread = thread::spawn(move || {
            KEPT.set(Some(keeps.lock().unwrap()));
            assert!(keeps.is_owned_by_current_thread());
        });
        thread.join().unwrap();
        assert!(
            mutex.lock_timeout(SOON).optional().unwrap().is_some(),
            "the thread has ended and its hold is released"
        );
    }
    until_empty(&at, LOCK);
}

scenarios![
    re_entrant_across_two_mutexes_of_one_path_on_one_session,
    one_path_with_another_layout_or_acl_is_refused,
    two_sessions_are_two_owners_and_the_thread_is_warned,
    a_guard_dropped_in_a_panic_releases,
    a_thread_that_panics_holding_poisons_nothing,
    a_guard_outlives_the_handles_it_came_from,
    unlock_returns_when_the_node_is_gone,
    unlock_of_a_nested_guard_only_ends_the_nesting,
    a_forgotten_guard_holds_until_the_session_closes,
    a_guard_in_a_thread_local_is_released_by_the_threads_end,
];
