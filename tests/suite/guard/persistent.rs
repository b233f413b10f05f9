//! Locks that outlive their session: no other contender gets the lock while a hold becomes
//! persistent, the lock then stands without a session, and it is released by its name.
use crate::support::{
    Raw, Shared,
    contend::{proxied, session, spawn_waiting, until_queue},
    embedded::{exists, raw, start},
    raw::PERSISTENT,
    scenarios,
    scene::{SOON, full_path, queue, session_of, until_empty},
    until,
};
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Error, Layout, LossReason, PersistentLock, Result, WaitStrategy, ZkMutex, ZkMutexGuard,
    ZkRwLock, ZkSession,
};
use zk_test_server::{Matcher, Op, TestServer};

const LOCK: &str = "/locks/orders";
const BOTH: [WaitStrategy; 2] = [WaitStrategy::Predecessor, WaitStrategy::Parent];
/// Long enough to see that something does not come.
const A_WHILE: Duration = Duration::from_millis(300);

fn mutex(session: &ZkSession) -> ZkMutex {
    ZkMutex::new(session, LOCK).unwrap()
}

fn waiting(session: &ZkSession, strategy: WaitStrategy) -> ZkMutex {
    ZkMutex::builder(session, LOCK).wait_strategy(strategy).build().unwrap()
}

fn name(path: &str) -> String {
    path.rsplit_once('/').unwrap().1.to_owned()
}

/// Waits until the queue has only this node.
#[track_caller]
fn until_only(at: &str, kept: &PersistentLock) {
    until("only the persistent node is left", SOON, || {
        (queue(at, LOCK) == [kept.name()]).then_some(())
    });
}

fn a_persistent_lock_outlives_its_session_until_it_is_released_by_name() {
    for layout in [Layout::Curator, Layout::Kazoo] {
        let at = Shared::chroot();
        let [ours, theirs, admin] = [session(&at), session(&at), session(&at)];
        let make = |session| ZkMutex::builder(session, LOCK).layout(layout).build().unwrap();
        let (holder, other, third) = (make(&ours), make(&theirs), make(&admin));
        let guard = holder.lock().unwrap();
        let (own, token) = (name(guard.path()), guard.fencing_token());
        let kept = guard.persist().unwrap();
        assert!(!holder.is_owned_by_current_thread());
        assert_eq!(kept.path(), format!("{LOCK}/{}", kept.name()));
        assert_ne!(kept.name(), own);
        assert_eq!(
            kept.name()[kept.name().len() - 10..],
            own[own.len() - 10..],
            "the new node has the same number"
        );
        ours.close().unwrap();
        until_only(&at, &kept);
        let contender = other.contenders().unwrap().remove(0);
        assert!(
            contender.is_persistent() && contender.session_id == 0 && contender.name == kept.name()
        );
        assert!(contender.data.ends_with(format!(":{}", std::process::id()).as_bytes()));
        assert!(other.try_lock().unwrap().is_none());
        assert!(other.lock_timeout(A_WHILE).unwrap().is_none());
        thread::scope(|scope| {
            let waiter = spawn_waiting(scope, || other.lock().unwrap().fencing_token());
            until_queue(&at, LOCK, 2);
            thread::sleep(A_WHILE);
            assert!(!waiter.is_finished());
            assert!(third.release_persistent(kept.name()).unwrap());
            assert!(waiter.join().unwrap() > token);
        });
        assert!(!third.release_persistent(kept.name()).unwrap(), "the lock is released already");
        until_empty(&at, LOCK);
    }
}

fn waiters_wait_until_the_persistent_lock_is_released() {
    const ROUNDS: usize = 4;
    let at = Shared::chroot();
    let (ours, locked) = (session(&at), AtomicBool::new(false));
    let (holder, entered) = (mutex(&ours), AtomicUsize::new(0));
    let (_proxy, through) = proxied(&at);
    for round in 0..ROUNDS {
        entered.store(0, SeqCst);
        let guard = holder.lock().unwrap();
        locked.store(true, SeqCst);
        // Two kinds of lock on one path are refused, unless they are in different processes. The
        // proxies make these sessions look so.
        let sessions: Vec<_> = (0..4)
            .map(|number| session(if (number + round) % 4 < 2 { &at } else { &through }))
            .collect();
        let enters = || {
            assert!(!locked.load(SeqCst), "another contender got the lock");
            entered.fetch_add(1, SeqCst);
        };
        thread::scope(|scope| {
            for (number, waiter) in sessions.iter().enumerate() {
                let enters = &enters;
                // In some round, each of them is the waiter directly behind the holder.
                scope.spawn(move || match (number + round) % 4 {
                    0 => waiting(waiter, BOTH[0]).lock().map(|_guard| enters()).unwrap(),
                    1 => waiting(waiter, BOTH[1]).lock().map(|_guard| enters()).unwrap(),
                    2 => {
                        ZkRwLock::new(waiter, LOCK).unwrap().read().map(|_guard| enters()).unwrap()
                    }
                    _ => {
                        ZkRwLock::new(waiter, LOCK).unwrap().write().map(|_guard| enters()).unwrap()
                    }
                });
                until_queue(&at, LOCK, 2 + number);
            }
            if round % 2 == 0 {
                thread::sleep(A_WHILE); // all watches are set, or some are being set
            }
            let kept = guard.persist().unwrap();
            thread::sleep(A_WHILE);
            assert_eq!(entered.load(SeqCst), 0);
            locked.store(false, SeqCst);
            assert!(holder.release_persistent(kept.name()).unwrap());
        });
        assert_eq!(entered.load(SeqCst), 4);
        until_empty(&at, LOCK);
    }
}

/// A waiter has listed only the holder, and sets its watch when the holder's node is about to be
/// deleted.
fn a_watch_that_comes_late_does_not_take_the_nodes_end_for_a_grant() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (holder, other) = (mutex(&ours), mutex(&theirs));
    let guard = holder.lock().unwrap();
    let own = name(guard.path());
    thread::scope(|scope| {
        let reads =
            server.hold_requests(Op::GetData.on(&own).session(theirs.session_id().unwrap()));
        let waiter = scope.spawn(|| drop(other.lock().unwrap()));
        assert!(reads.wait(SOON), "the waiter has listed the queue and is about to set its watch");
        let ends = server.hold_requests(Op::Delete.on(&own));
        let kept = guard.persist().unwrap();
        assert!(ends.wait(SOON));
        drop(reads);
        // Watches that were under way when requests were held back, and the watch on its own node
        // after it.
        let watch = Matcher::from(Op::GetData).session(theirs.session_id().unwrap());
        until("both watches", SOON, || (server.count(watch.clone()) >= 2).then_some(()));
        drop(ends);
        until_queue(&at, LOCK, 2);
        thread::sleep(A_WHILE);
        assert!(!waiter.is_finished(), "granted while the persistent lock stands");
        assert!(holder.release_persistent(kept.name()).unwrap());
        waiter.join().unwrap();
    });
    until_empty(&at, LOCK);
}

fn a_persistent_lock_is_not_handed_to_the_next_thread_here() {
    let at = Shared::chroot();
    let ours = session(&at);
    let here = ZkMutex::builder(&ours, LOCK).hand_over(Duration::from_secs(60)).build().unwrap();
    thread::scope(|scope| {
        let guard = here.lock().unwrap();
        let next = spawn_waiting(scope, || here.lock().unwrap().is_held());
        let kept = guard.persist().unwrap();
        until_queue(&at, LOCK, 2);
        thread::sleep(A_WHILE);
        assert!(!next.is_finished());
        assert!(here.release_persistent(kept.name()).unwrap());
        assert!(next.join().unwrap());
    });
    until_empty(&at, LOCK);
}

fn a_nested_guard_cannot_be_kept() {
    let at = Shared::chroot();
    let ours = session(&at);
    let lock = mutex(&ours);
    let outer = lock.lock().unwrap();
    let said = lock.lock().unwrap().persist();
    assert!(matches!(said, Err(Error::InvalidConfig { what: "persistent lock", .. })), "{said:?}");
    assert!(outer.is_held() && outer.hold_count() == 1, "only the nested guard is gone");
    assert_eq!(queue(&at, LOCK), [name(outer.path())]);
    drop(outer);
    let kept = lock.lock().unwrap().persist().unwrap();
    until_only(&at, &kept);
    assert!(lock.release_persistent(kept.name()).unwrap());
    until_empty(&at, LOCK);
}

fn only_persistent_contenders_are_released_by_name() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    let guard = lock.lock().unwrap();
    let mut raw = Raw::connect(&at).unwrap();
    for other in ["leases", "lock-0000000000", "below"] {
        raw.create(&full_path(&at, &format!("{LOCK}/{other}")), b"", PERSISTENT).unwrap();
    }
    let inside = "below/_c_0c8f8d6e-6c0f-4f0e-9d55-0a1b2c3d4e5f-lock-0000000001";
    raw.create(&full_path(&at, &format!("{LOCK}/{inside}")), b"", PERSISTENT).unwrap();
    let own = name(guard.path());
    for refused in [own.as_str(), "leases", "lock-0000000000", "", ".", "..", inside] {
        let said = other.release_persistent(refused);
        let is_refused = matches!(said, Err(Error::InvalidConfig { what: "persistent lock", .. }));
        assert!(is_refused, "{refused}: {said:?}");
    }
    assert!(guard.is_held());
    guard.check().unwrap();
    assert_eq!(queue(&at, LOCK).len(), 4);
    let never = "_c_0c8f8d6e-6c0f-4f0e-9d55-0a1b2c3d4e5f-lock-0000000001";
    assert!(!other.release_persistent(never).unwrap());
}

// ---- faults in between ----

/// The call that makes the lock persistent.
fn keep(lock: &ZkMutex) -> (String, Result<PersistentLock>) {
    let guard = lock.lock().unwrap();
    let own = name(guard.path());
    (own, ZkMutexGuard::persist(guard))
}

fn requests_and_answers_that_are_lost_on_the_way_leave_one_node() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    drop(lock.lock().unwrap());
    until_empty(&at, LOCK);
    let lose: [fn(&TestServer, Matcher); 2] =
        [|server, which| server.drop_request(which), |server, which| server.drop_reply(which)];
    for lose in lose {
        // The second create is that of the persistent node.
        for which in
            [Op::Create.on("-lock-").skip(1), Op::SetData.on("-lock-"), Op::Delete.on("-lock-")]
        {
            server.clear_log();
            lose(&server, which.clone());
            let (own, kept) = keep(&lock);
            let kept = kept.unwrap();
            until_only(&at, &kept);
            assert_eq!(server.pending_faults(), 0, "{which:?}");
            assert!(!exists(&at, &format!("{LOCK}/{own}")));
            assert!(other.try_lock().unwrap().is_none());
            lose(&server, Op::Delete.on(kept.name()));
            assert!(other.release_persistent(kept.name()).unwrap(), "{which:?}");
            assert_eq!(server.pending_faults(), 0);
            until_empty(&at, LOCK);
        }
    }
}

fn a_cut_between_the_steps_grants_no_other() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    drop(lock.lock().unwrap());
    until_empty(&at, LOCK);
    let own = |matcher: Matcher| matcher.session(ours.session_id().unwrap());
    // With the number of nodes at that time: the ephemeral one, the persistent one, and the
    // waiter's.
    let steps = [
        (own(Op::Create.on("-lock-")).skip(1), 2),
        (own(Op::SetData.on("-lock-")), 3),
        (own(Op::Delete.on("-lock-")), 3),
    ];
    for (step, nodes) in steps {
        let entered = AtomicBool::new(false);
        thread::scope(|scope| {
            let held = server.hold_requests(step.clone());
            let keeper = scope.spawn(|| keep(&lock).1.unwrap());
            assert!(held.wait(SOON));
            let waiter = scope.spawn(|| {
                let _guard = other.lock().unwrap();
                entered.store(true, SeqCst);
            });
            until_queue(&at, LOCK, nodes);
            server.cut_connections();
            thread::sleep(A_WHILE);
            drop(held);
            let kept = keeper.join().unwrap();
            thread::sleep(A_WHILE);
            assert!(!entered.load(SeqCst), "{step:?}");
            assert!(lock.release_persistent(kept.name()).unwrap());
            waiter.join().unwrap();
        });
        until_empty(&at, LOCK);
    }
}

fn a_hold_that_is_lost_on_the_way_is_not_kept() {
    let (server, at) = start();
    let ours = session(&at);
    let lock = mutex(&ours);
    drop(lock.lock().unwrap());
    until_empty(&at, LOCK);
    for step in [Op::Create.on("-lock-").skip(1), Op::SetData.on("-lock-")] {
        thread::scope(|scope| {
            let held = server.hold_requests(step.clone());
            let keeper = scope.spawn(|| keep(&lock));
            assert!(held.wait(SOON));
            let names = queue(&at, LOCK);
            let own = names.iter().find(|name| {
                Raw::connect(&at)
                    .unwrap()
                    .exists(&format!("{LOCK}/{name}"))
                    .unwrap()
                    .unwrap()
                    .ephemeral_owner
                    != 0
            });
            raw(&at).delete(&format!("{LOCK}/{}", own.unwrap())).unwrap();
            drop(held);
            let (own, said) = keeper.join().unwrap();
            let path = format!("{LOCK}/{own}");
            assert_eq!(
                said,
                Err(Error::Lost { path, reason: LossReason::NodeDeleted }),
                "{step:?}"
            );
        });
        until_empty(&at, LOCK);
        assert!(lock.lock().unwrap().is_held());
        until_empty(&at, LOCK);
    }
}

fn a_hold_that_cannot_be_kept_in_time_is_released() {
    let (server, at) = start();
    let (ours, theirs) = (session_of(&at, Duration::from_secs(6)), session(&at));
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    drop(lock.lock().unwrap());
    until_empty(&at, LOCK);
    for step in [Op::Create.on("-lock-").skip(1), Op::SetData.on("-lock-")] {
        server.silence_reply(step.clone());
        let guard = lock.lock().unwrap();
        let start = Instant::now();
        let said = guard.persist();
        assert!(
            matches!(said, Err(Error::Unavailable { op: "persist", .. })),
            "{step:?}: {said:?}"
        );
        assert!(start.elapsed() < Duration::from_millis(2500), "{:?}", start.elapsed());
        assert_eq!(server.pending_faults(), 0);
        assert!(other.lock_timeout(SOON * 2).unwrap().is_some());
        until_empty(&at, LOCK);
    }
}

fn a_session_that_dies_on_the_way_may_leave_a_node_that_is_released_by_name() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    thread::scope(|scope| {
        let held = server.hold_requests(Op::SetData.on("-lock-"));
        let keeper = scope.spawn(|| keep(&lock).1);
        assert!(held.wait(SOON));
        assert!(server.expire_session(ours.session_id().unwrap()));
        drop(held);
        let said = keeper.join().unwrap();
        assert!(matches!(said, Err(Error::Lost { .. })), "{said:?}");
    });
    let left = other.contenders().unwrap();
    assert!(left.len() == 1 && left[0].is_persistent(), "{left:?}");
    assert!(other.try_lock().unwrap().is_none());
    assert!(lock.release_persistent(&left[0].name).unwrap());
    assert!(other.lock().unwrap().is_held());
}

fn a_hold_that_is_not_kept_is_deleted_before_its_session_is_closed() {
    let (server, at) = start();
    let (ours, theirs) = (session_of(&at, Duration::from_secs(6)), session(&at));
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    server.silence_reply(Op::SetData.on("-lock-"));
    let said = lock.lock().unwrap().persist();
    assert!(matches!(said, Err(Error::Unavailable { .. })), "{said:?}");
    ours.close().unwrap();
    assert!(other.lock_timeout(SOON * 2).unwrap().is_some(), "{:?}", other.contenders());
}

fn a_lock_that_never_existed_is_not_reported_as_released() {
    let (server, at) = start();
    let session = session(&at);
    let lock = mutex(&session);
    drop(lock.lock().unwrap());
    let never = "_c_0c8f8d6e-6c0f-4f0e-9d55-0a1b2c3d4e5f-lock-0000000001";
    server.drop_request(Op::GetData.on(never));
    assert_eq!(lock.release_persistent(never), Ok(false));
}

scenarios![
    a_persistent_lock_outlives_its_session_until_it_is_released_by_name,
    waiters_wait_until_the_persistent_lock_is_released,
    a_watch_that_comes_late_does_not_take_the_nodes_end_for_a_grant on embedded,
    a_persistent_lock_is_not_handed_to_the_next_thread_here,
    a_nested_guard_cannot_be_kept,
    only_persistent_contenders_are_released_by_name,
    requests_and_answers_that_are_lost_on_the_way_leave_one_node on embedded,
    a_cut_between_the_steps_grants_no_other on embedded,
    a_hold_that_is_lost_on_the_way_is_not_kept on embedded,
    a_hold_that_cannot_be_kept_in_time_is_released on embedded,
    a_session_that_dies_on_the_way_may_leave_a_node_that_is_released_by_name on embedded,
    a_hold_that_is_not_kept_is_deleted_before_its_session_is_closed on embedded,
    a_lock_that_never_existed_is_not_reported_as_released on embedded,
];
