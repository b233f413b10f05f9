//! The watches of waiters: which waiters are woken under each strategy, and that both strategies
//! use one queue.
use crate::support::{
    Shared,
    contend::{Section, session, spawn_waiting, until_queue},
    embedded::start,
    scenarios,
    scene::{SOON, until_empty, until_watched},
    until,
};
use parking_lot::Mutex;
use std::{thread, time::Duration};
use zk_mutex::{Error, OptionalExt, WaitStrategy, ZkMutex, ZkRwLock, ZkSession};
use zk_test_server::{EventKind, Matcher, Op, TestServer};

const LOCK: &str = "/locks/orders";
const BOTH: [WaitStrategy; 2] = [WaitStrategy::Predecessor, WaitStrategy::Parent];

fn mutex(session: &ZkSession, strategy: WaitStrategy) -> ZkMutex {
    ZkMutex::builder(session, LOCK).wait_strategy(strategy).build().unwrap()
}

/// The number of watch events of this kind that the server has sent.
fn events(server: &TestServer, kind: EventKind) -> usize {
    server.events().iter().filter(|event| event.kind == kind).count()
}

fn a_release_wakes_one_waiter_or_the_herd() {
    const WAITERS: usize = 6;
    for strategy in BOTH {
        let (server, at) = start();
        let sessions: Vec<_> = (0..=WAITERS).map(|_| session(&at)).collect();
        let mutexes: Vec<_> = sessions.iter().map(|session| mutex(session, strategy)).collect();
        let granted = Mutex::new(Vec::new());
        let held = mutexes[0].lock().unwrap();
        until_watched(&at, &held); // the watch on its node is set before the count
        let (gate, go_on) = crossbeam_channel::bounded::<()>(0);
        thread::scope(|scope| {
            for (number, lock) in mutexes.iter().enumerate().skip(1) {
                let (granted, go_on) = (&granted, &go_on);
                scope.spawn(move || {
                    let _guard = lock.lock().unwrap();
                    granted.lock().push(number);
                    let _ = go_on.recv();
                });
                until_queue(&at, LOCK, number + 1);
                // One watch on the node or list that it waits for, and one on its own node, as the
                // holder has.
                until("all watch", SOON, || (server.watch_count() == 1 + 2 * number).then_some(()));
            }
            server.clear_log();
            held.unlock().unwrap();
            until("the next waiter has the lock", SOON, || (*granted.lock() == [1]).then_some(()));
            let woken = match strategy {
                WaitStrategy::Parent => {
                    until("all are woken", SOON, || {
                        (events(&server, EventKind::ChildrenChanged) == WAITERS).then_some(())
                    });
                    WAITERS
                }
                _ => 0,
            };
            thread::sleep(Duration::from_millis(200)); // no other waiter is woken
            assert_eq!(events(&server, EventKind::ChildrenChanged), woken, "{strategy:?}");
            // The deletion of the node itself is reported to the session that released it, and to
            // waiters that watch it.
            let told = 1 + usize::from(strategy == WaitStrategy::Predecessor);
            assert_eq!(events(&server, EventKind::Deleted), told, "{strategy:?}");
            drop(gate);
        });
        assert_eq!(
            granted.into_inner(),
            (1..=WAITERS).collect::<Vec<_>>(),
            "in the order of the queue"
        );
        until_empty(&at, LOCK);
    }
}

fn waiters_of_both_strategies_stand_in_one_queue() {
    const EACH: usize = 3;
    const ROUNDS: usize = 15;
    let at = Shared::chroot();
    let section = Section::default();
    thread::scope(|scope| {
        for strategy in BOTH.into_iter().cycle().take(2 * EACH) {
            let (section, at) = (&section, &at);
            scope.spawn(move || {
                let session = session(at);
                let mutex = mutex(&session, strategy);
                for _ in 0..ROUNDS {
                    let guard = mutex.lock().unwrap();
                    section.pass();
                    assert!(guard.is_held());
                }
            });
        }
    });
    assert_eq!(section.counter(), 2 * EACH * ROUNDS);
    until_empty(&at, LOCK);
}

fn a_herd_is_granted_in_the_order_of_the_queue() {
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..5).map(|_| session(&at)).collect();
    let mutexes: Vec<_> =
        sessions.iter().map(|session| mutex(session, WaitStrategy::Parent)).collect();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let held = mutexes[0].lock().unwrap();
        for (number, lock) in mutexes.iter().enumerate().skip(1) {
            let order = &order;
            scope.spawn(move || {
                let _guard = lock.lock().unwrap();
                order.lock().push(number);
            });
            until_queue(&at, LOCK, number + 1);
        }
        drop(held);
    });
    assert_eq!(order.into_inner(), [1, 2, 3, 4]);
    until_empty(&at, LOCK);
}

fn a_herds_readers_and_writers_wait_for_the_right_nodes() {
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at), session(&at)];
    let lock = |session| {
        let herd = ZkRwLock::builder(session, LOCK).wait_strategy(WaitStrategy::Parent);
        herd.build().unwrap()
    };
    let [one, two, three] = sessions.each_ref().map(lock);
    thread::scope(|scope| {
        let reading = one.read().unwrap();
        let beside = two.read().unwrap();
        let writer = spawn_waiting(scope, || drop(three.write().unwrap()));
        until_queue(&at, LOCK, 3);
        drop(reading);
        thread::sleep(Duration::from_millis(200));
        assert!(!writer.is_finished() && beside.is_held());
        drop(beside);
        writer.join().unwrap();
    });
    until_empty(&at, LOCK);
}

fn a_thread_that_only_tries_leaves_no_watch() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let held =
        mutex(&theirs, WaitStrategy::Predecessor).lock_timeout(SOON).optional().unwrap().is_some();
    assert!(held);
    until_empty(&at, LOCK); // and the folder exists
    let tried = mutex(&ours, WaitStrategy::Parent);
    assert!(tried.try_lock().optional().unwrap().is_some());
    until_empty(&at, LOCK);
    assert_eq!(
        server.count(Matcher::from(Op::GetChildren).session(ours.status().session_id.unwrap())),
        2
    );
    assert!(
        server.requests().iter().all(|request| request.op != Op::GetChildren || !request.watch)
    );
}

fn users_of_one_lock_in_one_session_wait_alike() {
    let at = Shared::chroot();
    let (one, two) = (session(&at), session(&at));
    let _first = mutex(&one, WaitStrategy::Parent);
    let said = ZkMutex::new(&one, LOCK).map(drop);
    assert!(matches!(said, Err(Error::InvalidConfig { what: "wait_strategy", .. })), "{said:?}");
    let _same = mutex(&one, WaitStrategy::Parent);
    let _other = mutex(&two, WaitStrategy::Predecessor);
}

scenarios![
    a_release_wakes_one_waiter_or_the_herd on embedded,
    waiters_of_both_strategies_stand_in_one_queue,
    a_herd_is_granted_in_the_order_of_the_queue,
    a_herds_readers_and_writers_wait_for_the_right_nodes,
    a_thread_that_only_tries_leaves_no_watch on embedded,
    users_of_one_lock_in_one_session_wait_alike,
];
