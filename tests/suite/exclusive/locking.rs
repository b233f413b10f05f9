//! The simple lock: one holder at a time, by one node that exists or not.
use crate::support::{
    Raw, Server, Shared, assert_lasted,
    contend::{Over, Section, session, spawn_waiting, stat},
    raw::{self, EPHEMERAL, PERSISTENT},
    scenarios,
    scene::{SOON, full_path, queue, session_of, session_that_makes_its_chroot, until_empty},
    until,
};
use crossbeam_channel::bounded;
use std::{
    process,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Acl, CancelToken, Config, Error, LossReason, OptionalExt, Wait, ZkExclusiveLock, ZkMutex,
    ZkSession,
};

const LOCK: &str = "/locks/orders";
const NODE: &str = "/locks/orders/lock";
/// For threads that run late on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

fn lock(session: &ZkSession) -> ZkExclusiveLock {
    ZkExclusiveLock::new(session, LOCK).unwrap()
}

/// Another client's node with the lock's name, in a folder that exists.
fn foreign(at: &str, flags: i32) -> Raw {
    let mut raw = Raw::connect(at).unwrap();
    raw.mkdirs(&full_path(at, LOCK)).unwrap();
    raw.create(&full_path(at, NODE), b"somebody", flags).unwrap();
    raw
}

// ---- one at a time ----

fn three_sessions_of_three_threads_count_exactly() {
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at), session(&at)];
    let locks = sessions.each_ref().map(lock);
    let section = Section::default();
    thread::scope(|scope| {
        for lock in locks.iter().flat_map(|lock| [lock; 3]) {
            let section = &section;
            scope.spawn(move || {
                for _ in 0..20 {
                    let guard = lock.lock().unwrap();
                    section.pass();
                    assert!(guard.is_held());
                }
            });
        }
    });
    assert_eq!(section.counter(), 180);
    until_empty(&at, LOCK);
}

fn every_waiting_process_gets_it_in_the_end() {
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..6).map(|_| session(&at)).collect();
    let section = Section::default();
    thread::scope(|scope| {
        let first = lock(&sessions[0]);
        let guard = first.lock().unwrap();
        let waiters: Vec<_> = sessions[1..]
            .iter()
            .map(|session| {
                spawn_waiting(scope, || {
                    let lock = lock(session);
                    let guard = lock.lock().unwrap();
                    section.pass();
                    assert!(guard.is_held());
                })
            })
            .collect();
        assert_eq!(
            (section.counter(), queue(&at, LOCK)),
            (0, vec!["lock".to_owned()]),
            "waiters have no nodes"
        );
        guard.unlock().unwrap();
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
    assert_eq!(section.counter(), 5);
    until_empty(&at, LOCK);
}

fn threads_of_one_process_take_turns_in_order() {
    let at = Shared::chroot();
    let session = session(&at);
    let lock = lock(&session);
    let (tell, told) = bounded(8);
    thread::scope(|scope| {
        let guard = lock.lock().unwrap();
        for number in 0..5 {
            let (lock, tell) = (&lock, tell.clone());
            spawn_waiting(scope, move || {
                let _guard = lock.lock().unwrap();
                tell.send(number).unwrap();
            });
        }
        assert!(lock.try_lock().optional().unwrap().is_none());
        drop(guard);
    });
    drop(tell);
    assert_eq!(told.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    until_empty(&at, LOCK);
}

fn it_is_not_reentrant_and_any_thread_may_end_a_hold() {
    let at = Shared::chroot();
    let session = session(&at);
    let lock = lock(&session);
    let guard = lock.lock().unwrap();
    assert_eq!(guard.hold_count(), 1);
    // The same thread would wait for itself; a call that does not wait returns None.
    assert!(lock.try_lock().optional().unwrap().is_none());
    let begun = Instant::now();
    assert!(lock.lock_timeout(Duration::from_millis(200)).optional().unwrap().is_none());
    assert!(begun.elapsed() >= Duration::from_millis(200));
    thread::scope(|scope| {
        let ends_it = scope.spawn(move || guard.unlock().unwrap());
        let _mine = lock.lock().unwrap(); // returns when the other thread has released the first
        ends_it.join().unwrap();
    });
    until_empty(&at, LOCK);
}

fn every_way_to_ask_gets_it_and_lets_it_go() {
    let at = Shared::chroot();
    let session = session(&at);
    let lock = lock(&session);
    let (soon, never) = (|| Instant::now() + SOON, CancelToken::new());
    for _ in 0..3 {
        lock.lock().unwrap().unlock().unwrap();
        lock.try_lock().optional().unwrap().unwrap().unlock().unwrap();
        lock.lock_timeout(SOON).optional().unwrap().unwrap().unlock().unwrap();
        lock.lock_with(Wait::until(soon())).optional().unwrap().unwrap().unlock().unwrap();
        lock.lock_with(Wait::forever().cancelled_by(&never))
            .optional()
            .unwrap()
            .unwrap()
            .unlock()
            .unwrap();
        assert_eq!(queue(&at, LOCK), [""; 0], "unlock waits until the node is deleted");
    }
    let guard = lock.lock().unwrap();
    assert!(format!("{lock:?}").contains("<locked here>"), "{lock:?}");
    let node = guard.path().to_owned();
    drop(lock);
    assert!(guard.is_held() && stat(&at, &node).is_some(), "the guard keeps the lock alive");
    thread::spawn(move || drop(guard)).join().unwrap();
    until_empty(&at, LOCK);
}

/// A dropped lock's node is deleted in the background. Meanwhile it does not count as another
/// holder's.
fn released_nodes_of_this_process_never_keep_it_out() {
    let at = Shared::chroot();
    let session = session(&at);
    let lock = lock(&session);
    for round in 0..60 {
        let guard = lock.try_lock().optional().unwrap();
        drop(guard.unwrap_or_else(|| panic!("round {round}: kept out by its own node")));
    }
    until_empty(&at, LOCK);
}

// ---- the node ----

fn node_names_its_owner_and_missing_parents_are_made() {
    let bare = Shared::chroot();
    for at in [bare.clone(), format!("{bare}/not/there/yet")] {
        let session = session_that_makes_its_chroot(&at);
        let lock = ZkExclusiveLock::builder(&session, LOCK).data("billing").build().unwrap();
        assert_eq!(lock.holders().unwrap(), [], "the folder does not exist");
        let guard = lock.lock().unwrap();
        assert_eq!(guard.path(), NODE, "without the chroot");
        let node = stat(&at, NODE).expect("below the chroot");
        assert_eq!(Some(node.ephemeral_owner), session.status().session_id);
        assert_eq!(guard.fencing_token().zxid(), node.czxid);
        let (data, _) = Raw::connect(&at).unwrap().get_data(&full_path(&at, NODE)).unwrap();
        let (nonce, rest) = data.split_at(37);
        assert!(
            uuid::Uuid::try_parse(std::str::from_utf8(&nonce[..36]).unwrap()).is_ok(),
            "{data:?}"
        );
        assert_eq!((nonce[36], rest), (b'\n', &b"billing"[..]));
        guard.unlock().unwrap();
        until_empty(&at, LOCK);
    }
}

fn holder_is_shown_and_waiters_are_not() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (first, second) = (lock(&ours), lock(&theirs));
    let guard = first.lock().unwrap();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || second.lock().unwrap().fencing_token());
        let holder = second.holders().unwrap().pop().expect("the lock is held");
        assert_eq!(Some(holder.session_id), ours.status().session_id);
        assert!(String::from_utf8(holder.data).unwrap().ends_with(&format!(":{}", process::id())));
        let token = guard.fencing_token();
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap() > token, "a token grows from holder to holder");
    });
    until("the lock is free", SOON, || first.holders().unwrap().is_empty().then_some(()));
}

fn another_clients_node_keeps_us_out_until_it_goes() {
    for flags in [EPHEMERAL, PERSISTENT] {
        let at = Shared::chroot();
        let mut raw = foreign(&at, flags);
        let session = session(&at);
        let lock = lock(&session);
        assert!(lock.try_lock().optional().unwrap().is_none());
        assert!(lock.lock_timeout(Duration::from_millis(300)).optional().unwrap().is_none());
        let holder = lock.holders().unwrap().remove(0);
        assert_eq!(
            (holder.data.as_slice(), holder.session_id == 0),
            (&b"somebody"[..], flags == PERSISTENT)
        );
        thread::scope(|scope| {
            let waiter = spawn_waiting(scope, || drop(lock.lock().unwrap()));
            raw.set_data(&full_path(&at, NODE), b"still me").unwrap();
            assert!(lock.try_lock().optional().unwrap().is_none() && !waiter.is_finished());
            raw.delete(&full_path(&at, NODE)).unwrap();
            waiter.join().unwrap();
        });
        until_empty(&at, LOCK);
    }
}

fn acl_is_on_node_and_parents() {
    let at = Shared::chroot();
    let ours = ZkSession::connect(Config::new(&at).auth("digest", "service:secret")).unwrap();
    let lock = ZkExclusiveLock::builder(&ours, LOCK).acl(Acl::CreatorAll).build().unwrap();
    let refused = ZkExclusiveLock::new(&ours, LOCK).map(drop);
    assert!(matches!(refused, Err(Error::InvalidConfig { .. })), "with another ACL: {refused:?}");
    let guard = lock.lock().unwrap();
    let mut friend = Raw::connect(&at).unwrap();
    friend.add_auth("service:secret").unwrap();
    for path in [NODE, LOCK, "/locks"] {
        let acl = friend.get_acl(&full_path(&at, path)).unwrap();
        assert_eq!((acl.len(), acl[0].perms, acl[0].scheme.as_str()), (1, 31, "digest"), "{path}");
    }
    let mut stranger = Raw::connect(&at).unwrap();
    assert_eq!(stranger.delete(&full_path(&at, NODE)).unwrap_err().code(), Some(raw::NO_AUTH));
    let theirs = session(&at);
    let shut_out = ZkExclusiveLock::new(&theirs, LOCK).unwrap();
    for refused in [
        shut_out.lock().map(drop),
        shut_out.try_lock().optional().map(drop),
        shut_out.holders().map(drop),
    ] {
        assert!(matches!(refused, Err(Error::NoAuth { .. })), "{refused:?}");
    }
    guard.unlock().unwrap();
    assert_eq!(friend.children(&full_path(&at, LOCK)).unwrap(), [""; 0]);
}

fn one_path_is_for_one_kind_of_lock() {
    let at = Shared::chroot();
    let session = session(&at);
    let exclusive = lock(&session);
    assert!(matches!(ZkMutex::new(&session, LOCK), Err(Error::InvalidConfig { .. })));
    drop(exclusive);
    let _mutex = ZkMutex::new(&session, LOCK).unwrap();
    assert!(matches!(ZkExclusiveLock::new(&session, LOCK), Err(Error::InvalidConfig { .. })));
    assert!(matches!(ZkExclusiveLock::new(&session, "locks"), Err(Error::InvalidPath { .. })));
}

// ---- giving up, and the end ----

fn timeout_and_cancellation_leave_nothing() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (first, second) = (lock(&ours), lock(&theirs));
    let guard = first.lock().unwrap();
    let begun = Instant::now();
    assert!(second.lock_timeout(Duration::from_millis(300)).optional().unwrap().is_none());
    assert_lasted(begun, Duration::from_millis(300)..Duration::from_millis(300) + SLACK);
    let token = CancelToken::new();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || {
            second.lock_with(Wait::forever().cancelled_by(&token)).optional().map(drop)
        });
        // A thread that waits for its turn behind this one gives up, too.
        let behind = spawn_waiting(scope, || {
            second.lock_with(Wait::forever().cancelled_by(&token)).optional().map(drop)
        });
        token.cancel();
        for waiter in [waiter, behind] {
            assert_eq!(waiter.join().unwrap(), Err(Error::Cancelled { path: LOCK.into() }));
        }
    });
    assert_eq!(queue(&at, LOCK), ["lock"]);
    assert!(guard.is_held());
    guard.unlock().unwrap();
    assert_eq!(queue(&at, LOCK), [""; 0]);
    assert!(second.try_lock().optional().unwrap().is_some());
    until_empty(&at, LOCK);
}

fn close_releases_it_and_ends_the_waits() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (first, second) = (lock(&ours), lock(&theirs));
    thread::scope(|scope| {
        let guard = first.lock().unwrap();
        let lost = guard.lost();
        let local = spawn_waiting(scope, || first.lock().map(drop));
        let other = spawn_waiting(scope, || second.lock().unwrap().unlock().unwrap());
        ours.close().unwrap();
        assert!(lost.wait(SOON).is_some());
        assert_eq!(guard.lost_reason(), Some(LossReason::SessionClosed));
        assert!(matches!(local.join().unwrap(), Err(Error::Closed { op: "lock", .. })));
        other.join().unwrap();
        assert!(matches!(
            guard.unlock(),
            Err(Error::Lost { reason: LossReason::SessionClosed, .. })
        ));
        assert!(matches!(first.try_lock().optional().map(drop), Err(Error::Closed { .. })));
    });
    let waiting = session(&at);
    thread::scope(|scope| {
        let guard = second.lock().unwrap();
        let waiter = spawn_waiting(scope, || lock(&waiting).lock().map(drop));
        waiting.close().unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Closed { op: "lock", .. })));
        assert!(guard.is_held());
    });
    until_empty(&at, LOCK);
}

fn count_stays_exact_while_the_server_is_killed_and_restarted() {
    const ROUNDS: usize = 4;
    let server = Server::start();
    let at = server.connect_string();
    // On a busy machine a server starts slowly, and it must be back within the lease.
    let sessions = [(); 3].map(|()| session_of(&at, Duration::from_secs(36)));
    let locks = sessions.each_ref().map(lock);
    let (section, over) = (Section::default(), AtomicBool::new(false));
    let passed = thread::scope(|scope| {
        let all = Over(&over);
        let threads: Vec<_> = locks
            .iter()
            .flat_map(|lock| [lock; 2])
            .map(|lock| {
                let (section, over) = (&section, &over);
                scope.spawn(move || {
                    let mut passed = 0;
                    while !over.load(Ordering::SeqCst) {
                        let guard = lock.lock().unwrap();
                        section.pass();
                        assert!(guard.is_held(), "{:?}", guard.lost_reason());
                        passed += 1;
                    }
                    passed
                })
            })
            .collect();
        for _ in 0..ROUNDS {
            let before = section.counter();
            until("progress", SOON * 4, || (section.counter() > before + 20).then_some(()));
            server.kill();
            server.restart();
        }
        let before = section.counter();
        until("progress", SOON * 4, || (section.counter() > before + 20).then_some(()));
        drop(all);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(section.counter(), passed);
    until_empty(&at, LOCK);
}

fn panic_releases_it() {
    let at = Shared::chroot();
    let session = session(&at);
    let lock = lock(&session);
    thread::scope(|scope| {
        let panicked = scope.spawn(|| {
            let _guard = lock.lock().unwrap();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        assert!(panicked.join().is_err());
    });
    assert!(lock.try_lock().optional().unwrap().is_some());
    until_empty(&at, LOCK);
}

scenarios![
    three_sessions_of_three_threads_count_exactly,
    every_waiting_process_gets_it_in_the_end,
    threads_of_one_process_take_turns_in_order,
    it_is_not_reentrant_and_any_thread_may_end_a_hold,
    every_way_to_ask_gets_it_and_lets_it_go,
    released_nodes_of_this_process_never_keep_it_out,
    node_names_its_owner_and_missing_parents_are_made,
    holder_is_shown_and_waiters_are_not,
    another_clients_node_keeps_us_out_until_it_goes,
    acl_is_on_node_and_parents,
    one_path_is_for_one_kind_of_lock,
    timeout_and_cancellation_leave_nothing,
    close_releases_it_and_ends_the_waits,
    count_stays_exact_while_the_server_is_killed_and_restarted within 240,
    panic_releases_it,
];
