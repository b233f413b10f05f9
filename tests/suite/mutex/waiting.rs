//! Waits that end without the lock: by a single try, a timeout, or a cancel token.
use crate::support::{
    OpKind, Shared, assert_lasted,
    contend::{proxied, session, spawn_waiting, until_queue},
    scenarios,
    scene::{SOON, full_path, queue, until_empty},
};
use std::{
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{CancelToken, Cause, Error, OptionalExt, Wait, ZkMutex};

const LOCK: &str = "/locks/orders";
/// How much longer a wait may take on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);

fn try_leaves_no_node() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (ours, theirs) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    let guard = ours.lock().unwrap();
    let held = queue(&at, LOCK);
    assert!(theirs.try_lock().optional().unwrap().is_none());
    assert_eq!(queue(&at, LOCK), held);
    guard.unlock().unwrap();
    theirs.try_lock().optional().unwrap().expect("the lock is free").unlock().unwrap();
    assert_eq!(queue(&at, LOCK), [""; 0]);
}

fn try_lock_costs_one_read_and_no_write_while_somebody_else_holds() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let (ours, theirs) = (session(&through), session(&at));
    let (mutex, other) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    let guard = other.lock().unwrap();
    for _ in 0..3 {
        proxy.clear();
        assert!(mutex.try_lock().optional().unwrap().is_none());
        // The session may send its own pings and syncs.
        let sent: Vec<_> =
            proxy.requests().into_iter().filter(|r| ![9, 11].contains(&r.opcode)).collect();
        assert_eq!(sent.len(), 1, "{sent:?}");
        assert_eq!(sent[0].path.as_deref(), Some(full_path(&at, LOCK).as_str()));
        assert!([8, 12].contains(&sent[0].opcode), "getChildren: {sent:?}");
    }
    drop(guard);
    until_empty(&at, LOCK);
    ours.close().unwrap();
}

fn twenty_threads_one_wins() {
    for clients in [1, 4] {
        let at = Shared::chroot();
        let mutexes: Vec<_> =
            (0..clients).map(|_| ZkMutex::new(&session(&at), LOCK).unwrap()).collect();
        let (start, tried) = (Barrier::new(20), Barrier::new(20));
        let wins = thread::scope(|scope| {
            let threads = (0..20).map(|i| {
                let (mutex, start, tried) = (&mutexes[i % clients], &start, &tried);
                scope.spawn(move || {
                    start.wait();
                    let got = mutex.try_lock().optional();
                    tried.wait();
                    got.expect("contention is no error").is_some()
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|won| *won).count()
        });
        assert_eq!(wins, 1, "{clients} clients");
        until_empty(&at, LOCK);
    }
}

fn cancel_ends_a_wait_in_the_local_queue() {
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    let token = CancelToken::new();
    thread::scope(|scope| {
        let guard = mutex.lock().unwrap();
        let waiter = spawn_waiting(scope, || {
            mutex.lock_with(Wait::forever().cancelled_by(&token)).optional().map(drop)
        });
        token.clone().cancel();
        assert_eq!(waiter.join().unwrap(), Err(Error::Cancelled { path: LOCK.into() }));
        assert_eq!(queue(&at, LOCK).len(), 1);
        assert!(guard.is_held());
    });
    until_empty(&at, LOCK);
}

fn cancel_ends_a_wait_in_zookeepers_queue() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    let token = CancelToken::new();
    let guard = other.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope
            .spawn(|| mutex.lock_with(Wait::forever().cancelled_by(&token)).optional().map(drop));
        let nodes = until_queue(&at, LOCK, 2);
        token.cancel();
        assert_eq!(waiter.join().unwrap(), Err(Error::Cancelled { path: LOCK.into() }));
        assert_eq!(until_queue(&at, LOCK, 1), nodes[..1]);
    });
    drop(guard);
    until_empty(&at, LOCK);
}

fn cancelling_is_sticky_and_takes_no_lock_away() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let session = session(&through);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let token = CancelToken::new();
    let guard = mutex.lock_with(Wait::forever().cancelled_by(&token)).optional().unwrap().unwrap();
    token.cancel();
    assert!(guard.is_held() && guard.check().is_ok(), "the granted lock stays");
    guard.unlock().unwrap();
    proxy.clear();
    for _ in 0..2 {
        let refused = mutex.lock_with(Wait::forever().cancelled_by(&token)).optional().map(drop);
        assert_eq!(
            refused,
            Err(Error::Cancelled { path: LOCK.into() }),
            "although the lock is free"
        );
    }
    drop(mutex.lock_with(Wait::forever().cancelled_by(&CancelToken::new())).optional().unwrap());
    until_empty(&at, LOCK);
    assert_eq!(proxy.count(OpKind::Create), 1, "nothing was sent for the cancelled calls");
    session.close().unwrap();
}

fn a_grant_that_wins_the_race_against_cancel_is_returned() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    for round in 0..30 {
        let token = CancelToken::new();
        thread::scope(|scope| {
            let guard = other.lock().unwrap();
            let waiter = scope.spawn(|| {
                match mutex.lock_with(Wait::forever().cancelled_by(&token)).optional() {
                    Ok(guard) => assert!(guard.unwrap().is_held()),
                    Err(e) => assert_eq!(e, Error::Cancelled { path: LOCK.into() }),
                }
            });
            until_queue(&at, LOCK, 2);
            if round % 2 == 0 {
                drop(guard);
                token.cancel();
            } else {
                token.cancel();
                drop(guard);
            }
            waiter.join().unwrap();
        });
        // In both cases the lock is free again.
        drop(mutex.lock_timeout(SOON).optional().unwrap().expect("the lock is free"));
    }
    until_empty(&at, LOCK);
}

fn re_acquire_times_out_while_still_held() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    let guard = other.lock().unwrap();
    let wait = Duration::from_millis(400);
    for by_deadline in [false, true, false] {
        let start = Instant::now();
        let got = if by_deadline {
            mutex.lock_with(Wait::until(start + wait)).optional()
        } else {
            mutex.lock_timeout(wait).optional()
        };
        assert!(got.unwrap().is_none());
        assert_lasted(start, wait..wait + SLACK);
        until_queue(&at, LOCK, 1);
        assert!(guard.is_held());
    }
    drop(guard);
    assert!(mutex.lock_timeout(SOON).optional().unwrap().is_some());
    until_empty(&at, LOCK);
}

fn a_timeout_beyond_the_clock_is_no_timeout() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    drop(mutex.lock_timeout(Duration::MAX).optional().unwrap().expect("the lock is free"));
    until_empty(&at, LOCK);
    thread::scope(|scope| {
        let guard = other.lock().unwrap();
        let waiter =
            scope.spawn(|| mutex.lock_timeout(Duration::MAX).optional().unwrap().is_some());
        until_queue(&at, LOCK, 2);
        drop(guard);
        assert!(waiter.join().unwrap());
    });
    until_empty(&at, LOCK);
}

fn a_deadline_in_the_past_says_only_what_is_known_here() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let ours = session(&through);
    let mutex = ZkMutex::new(&ours, LOCK).unwrap();
    let past = Wait::until(Instant::now());
    match mutex.lock_with(past.clone()).optional() {
        Err(Error::Unavailable { path, cause: Cause::Deadline, .. }) => assert_eq!(path, LOCK),
        other => panic!("only the server knows whether the lock is free: {other:?}"),
    }
    assert_eq!(proxy.count(OpKind::Create.on(LOCK)), 0, "no create is sent");
    let guard = mutex.lock().unwrap();
    thread::scope(|scope| {
        let elsewhere = scope.spawn(|| mutex.lock_with(past).optional().map(|got| got.is_some()));
        assert_eq!(elsewhere.join().unwrap(), Ok(false));
    });
    drop(guard);
    until_empty(&at, LOCK);
    ours.close().unwrap();
}

scenarios![
    try_leaves_no_node,
    try_lock_costs_one_read_and_no_write_while_somebody_else_holds,
    twenty_threads_one_wins,
    cancel_ends_a_wait_in_the_local_queue,
    cancel_ends_a_wait_in_zookeepers_queue,
    cancelling_is_sticky_and_takes_no_lock_away,
    a_grant_that_wins_the_race_against_cancel_is_returned,
    re_acquire_times_out_while_still_held,
    a_timeout_beyond_the_clock_is_no_timeout,
    a_deadline_in_the_past_says_only_what_is_known_here,
];
