//! Faults that only a read/write lock has: in the middle of a downgrade, at a node that readers
//! share, and with readers and writers mixed.
use crate::{
    rwlock::locking::Room,
    support::{
        Server, at_best,
        contend::{session, spawn_waiting, until_queue},
        embedded::{LOSE, Lose, exists, flap, raw, start},
        scenarios,
        scene::{SOON, name, queue, session_of, until_empty, until_event, until_state},
        until,
    },
};
use crossbeam_channel::bounded;
use parking_lot::Mutex;
use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Config, Error, LossReason, OptionalExt, RetryPolicy, SessionEvent, SessionState, ZkRwLock,
    ZkSession,
};
use zk_test_server::Op;

const LOCK: &str = "/locks/config";
const READ: &str = "-__READ__";
const WRITE: &str = "-__WRIT__";
/// Long enough to see that something does not come.
const A_WHILE: Duration = Duration::from_millis(300);
const SLACK: Duration = Duration::from_millis(1500);

fn lock(session: &ZkSession) -> ZkRwLock {
    ZkRwLock::new(session, LOCK).unwrap()
}

/// A lock whose threads share one node for the whole scenario.
fn sharing(session: &ZkSession) -> ZkRwLock {
    ZkRwLock::builder(session, LOCK).hand_over(Duration::from_secs(60)).build().unwrap()
}

#[track_caller]
fn until_just(at: &str, mut paths: Vec<&str>) {
    paths = paths.into_iter().map(name).collect();
    paths.sort_unstable();
    until("exactly these nodes are in the queue", SOON, || {
        let mut names = queue(at, LOCK);
        names.sort_unstable();
        (names == paths).then_some(())
    });
}

// ---- a downgrade ----

fn downgrade_whose_create_or_its_answer_is_lost_leaves_one_read_node() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (lock(&ours), lock(&theirs));
    let id = ours.status().session_id;
    for lose in LOSE {
        let writing = lock.write().unwrap();
        server.clear_log();
        lose(&server, Op::Create.on(READ));
        let reading = lock.read().unwrap();
        assert_eq!(
            (server.pending_faults(), server.count(Op::Create.on(READ))),
            (0, 2),
            "one create for the lost answer, and one after it"
        );
        assert!(writing.is_held() && reading.is_held());
        until_just(&at, vec![writing.path(), reading.path()]);
        let read = reading.path().to_owned();
        assert_eq!(read[read.len() - 10..], writing.path()[writing.path().len() - 10..]);
        writing.unlock().unwrap();
        until_just(&at, vec![&read]);
        assert!(reading.is_held() && other.try_write().optional().unwrap().is_none());
        assert!(other.try_read().optional().unwrap().is_some());
        reading.unlock().unwrap();
        assert!(other.write_timeout(SOON).optional().unwrap().is_some());
        until_empty(&at, LOCK);
    }
    assert_eq!(ours.status().session_id, id);
}

fn downgrade_given_up_in_the_middle_leaves_the_write_and_nothing_else() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (lock(&ours), lock(&theirs));
    let writing = lock.write().unwrap();
    // The call ends before the create is applied, and after.
    for silenced in [false, true] {
        let held = (!silenced).then(|| server.hold_requests(Op::Create.on(READ)));
        if silenced {
            server.silence_reply(Op::Create.on(READ));
        }
        let begun = Instant::now();
        let said = lock.read_timeout(A_WHILE).optional().map(drop);
        assert!(matches!(said, Err(Error::Unavailable { .. })), "{said:?}");
        assert!(at_best(begun) < A_WHILE + SLACK);
        assert!(writing.is_held());
        if silenced {
            assert_eq!(server.pending_faults(), 0);
            server.cut_connections(); // the silence would end later by itself
        }
        drop(held);
        until_just(&at, vec![writing.path()]);
        let tried = until("the other session is back", SOON, || other.try_read().optional().ok());
        assert!(writing.is_held() && tried.is_none());
    }
    // The downgrade can be repeated.
    let reading = lock.read().unwrap();
    drop(writing);
    until_just(&at, vec![reading.path()]);
    drop(reading);
    until_empty(&at, LOCK);
}

fn downgrade_whose_writes_end_is_lost_keeps_a_queued_writer_out() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (lock(&ours), lock(&theirs));
    for lose in LOSE {
        let entered = AtomicBool::new(false);
        thread::scope(|scope| {
            let writing = lock.write().unwrap();
            let writer = spawn_waiting(scope, || {
                let _guard = other.write().unwrap();
                entered.store(true, SeqCst);
            });
            let theirs = until_queue(&at, LOCK, 2).remove(1);
            let reading = lock.read().unwrap();
            lose(&server, Op::Delete.on(WRITE));
            drop(writing);
            until_just(&at, vec![reading.path(), &format!("{LOCK}/{theirs}")]);
            assert_eq!(server.pending_faults(), 0);
            thread::sleep(A_WHILE);
            assert!(reading.is_held() && !entered.load(SeqCst));
            reading.unlock().unwrap();
            writer.join().unwrap();
        });
        until_empty(&at, LOCK);
    }
}

fn downgrade_of_a_write_whose_node_is_deleted_meanwhile_is_lost() {
    let (server, at) = start();
    let session = session(&at);
    let lock = lock(&session);
    for lose_watch in [false, true] {
        let (tell, told) = bounded(1);
        thread::scope(|scope| {
            let held = server.hold_requests(Op::Create.on(READ));
            scope.spawn(|| {
                let writing = lock.write().unwrap();
                tell.send(writing.path().to_owned()).unwrap();
                let said = lock.read().map(|reading| reading.is_held());
                let lost =
                    Error::Lost { path: writing.path().into(), reason: LossReason::NodeDeleted };
                assert_eq!(said, Err(lost), "others may have held the lock in between");
                assert!(!writing.is_held());
            });
            let write = told.recv_timeout(SOON).unwrap();
            assert!(held.wait(SOON));
            // A watch that a change has used up is set again after the create, and reports the
            // deletion too late.
            let set_again = lose_watch.then(|| {
                raw(&at).set_data(&write, b"revoke").unwrap();
                server.hold_requests(Op::GetData.on(WRITE))
            });
            raw(&at).delete(&write).unwrap();
            thread::sleep(A_WHILE);
            drop(held);
            thread::sleep(A_WHILE);
            drop(set_again);
        });
        until_empty(&at, LOCK);
        assert!(lock.write().unwrap().is_held());
        until_empty(&at, LOCK);
    }
}

/// A write that has been held for a moment only has no watch yet: nothing but the read of its node
/// shows that it is gone.
fn downgrade_of_a_write_that_is_deleted_before_it_is_watched_is_lost() {
    let (_server, at) = start();
    let session = session(&at);
    let lock = lock(&session);
    let mut third_party = raw(&at);
    for _ in 0..3 {
        let writing = lock.write().unwrap();
        third_party.delete(writing.path()).unwrap();
        let said = lock.read().map(drop);
        let lost = Error::Lost { path: writing.path().into(), reason: LossReason::NodeDeleted };
        assert_eq!(said, Err(lost), "others may have held the lock in between");
        drop(writing);
        until_empty(&at, LOCK);
    }
}

fn downgraded_hold_is_lost_with_its_session() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (lock(&ours), lock(&theirs));
    let writing = lock.write().unwrap();
    let reading = lock.read().unwrap();
    assert!(server.expire_session(ours.status().session_id.unwrap()));
    for lost in [writing.lost(), reading.lost()] {
        assert!(lost.wait(SOON).is_some());
    }
    assert!(!writing.is_held() && !reading.is_held());
    assert!(other.write_timeout(SOON).optional().unwrap().is_some());
    assert!(matches!(lock.read().map(drop), Err(Error::Lost { .. })));
    assert!(matches!(lock.write().map(drop), Err(Error::Lost { .. })));
    drop((writing, reading));
    assert!(lock.write().unwrap().is_held());
    until_empty(&at, LOCK);
}

// ---- readers that share a node ----

fn readers_that_share_a_node_lose_it_together() {
    const READERS: usize = 5;
    let (server, at) = start();
    let session = session(&at);
    let (lock, id) = (sharing(&session), session.status().session_id.unwrap());
    let events = session.subscribe();
    let (inside, over) = (AtomicUsize::new(0), Barrier::new(READERS + 1));
    let old = thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                let reading = lock.read().unwrap();
                let lost = reading.lost();
                inside.fetch_add(1, SeqCst);
                assert!(lost.wait(SOON * 2).is_some(), "each reader is notified");
                let reason = lost.reason().unwrap();
                assert!(
                    matches!(reason, LossReason::SessionExpired | LossReason::NodeDeleted),
                    "{reason}"
                );
                assert!(!reading.is_held());
                let gone = Err(Error::Lost { path: reading.path().into(), reason });
                assert_eq!(reading.check(), gone);
                assert_eq!(lock.read().map(drop), gone, "no second hold on top of a lost one");
                over.wait(); // the other readers may continue
                assert_eq!(reading.unlock(), gone, "the last reader gets the same error");
                assert!(lock.read().unwrap().is_held());
            });
        }
        until("all read", SOON, || (inside.load(SeqCst) == READERS).then_some(()));
        let old = until_queue(&at, LOCK, 1).remove(0);
        assert!(server.expire_session(id));
        until_event(&events, |event| matches!(event, SessionEvent::Connected { .. }));
        let reading = lock.read().unwrap();
        assert!(reading.is_held());
        until_just(&at, vec![reading.path()]);
        over.wait();
        old
    });
    assert_ne!(session.status().session_id, Some(id));
    until_empty(&at, LOCK);
    assert!(!exists(&at, &format!("{LOCK}/{old}")));
}

fn shared_node_goes_with_its_last_reader() {
    const READERS: usize = 4;
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (sharing(&ours), lock(&theirs));
    // The last one's delete is lost, or its answer, or nothing.
    let faults: [Option<Lose>; 3] = [None, Some(LOSE[0]), Some(LOSE[1])];
    for fault in faults {
        let turn = AtomicUsize::new(0);
        let inside = AtomicUsize::new(0);
        server.clear_log();
        thread::scope(|scope| {
            for place in 1..=READERS {
                let (lock, inside, turn, server) = (&lock, &inside, &turn, &server);
                scope.spawn(move || {
                    let reading = lock.read().unwrap();
                    inside.fetch_add(1, SeqCst);
                    until("it is this reader's turn to leave", SOON * 2, || {
                        (turn.load(SeqCst) >= place).then_some(())
                    });
                    assert!(reading.is_held());
                    if let (READERS, Some(lose)) = (place, fault) {
                        lose(server, Op::Delete.on(READ));
                    }
                    reading.unlock().unwrap();
                    inside.fetch_sub(1, SeqCst);
                });
            }
            until("all read", SOON, || (inside.load(SeqCst) == READERS).then_some(()));
            let node = until_queue(&at, LOCK, 1);
            for place in 1..READERS {
                turn.store(place, SeqCst);
                until("the reader has left", SOON, || {
                    (inside.load(SeqCst) == READERS - place).then_some(())
                });
                assert!(other.try_write().optional().unwrap().is_none());
                assert_eq!(
                    (queue(&at, LOCK), server.count(Op::Delete.on(READ))),
                    (node.clone(), 0)
                );
            }
            turn.store(READERS, SeqCst);
            assert!(
                other.write_timeout(SOON).optional().unwrap().is_some(),
                "all readers have left"
            );
        });
        assert_eq!(server.pending_faults(), 0);
        until_empty(&at, LOCK);
    }
}

/// The last reader waits until its node is deleted. Who comes meanwhile must not join it.
fn reader_that_comes_while_the_last_one_unlocks_has_a_node_of_its_own() {
    let (server, at) = start();
    let session = session(&at);
    let lock = sharing(&session);
    let reading = lock.read().unwrap();
    let first = reading.path().to_owned();
    let held = server.hold_requests(Op::Delete.on(READ));
    thread::scope(|scope| {
        // A guard stays on its thread, so this one unlocks.
        let next = scope.spawn(|| {
            assert!(held.wait(SOON));
            let asked =
                lock.read_timeout(A_WHILE).optional().map(|read| read.map(|r| r.path().to_owned()));
            drop(held);
            assert!(!matches!(&asked, Ok(Some(path)) if *path == first), "its node is released");
            let reading = lock.read().unwrap();
            assert!(exists(&at, reading.path()) && reading.path() != first);
        });
        reading.unlock().unwrap();
        next.join().unwrap();
    });
    until_empty(&at, LOCK);
}

fn readers_in_line_come_in_with_the_one_ahead_up_to_a_writer() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (sharing(&ours), lock(&theirs));
    let writing = other.write().unwrap();
    server.clear_log();
    thread::scope(|scope| {
        let lock = &lock;
        // Each leaves at once: readers that come one by one find no reader to join.
        let read = move || drop(lock.read().unwrap());
        let write = move || drop(lock.write().unwrap());
        let ahead: Vec<_> = (0..5).map(|_| spawn_waiting(scope, read)).collect();
        let writer = spawn_waiting(scope, write);
        let behind: Vec<_> = (0..5).map(|_| spawn_waiting(scope, read)).collect();
        drop(writing);
        ahead.into_iter().chain([writer]).chain(behind).for_each(|thread| thread.join().unwrap());
    });
    assert_eq!((server.count(Op::Create.on(READ)), server.count(Op::Create.on(WRITE))), (2, 1));
    until_empty(&at, LOCK);
}

// ---- all at once ----

fn flapping_connections_grant_no_other_beside_a_writer() {
    const CUTS: usize = 60;
    const ROUNDS: usize = 15;
    let (server, at) = start();
    // It reconnects at once, so that more cuts fit into the time.
    let eager = RetryPolicy {
        base: Duration::from_millis(5),
        cap: Duration::from_millis(20),
        ..RetryPolicy::default()
    };
    let sessions = [(); 2].map(|()| {
        let config = Config::new(at.as_str()).session_timeout(Duration::from_secs(30));
        ZkSession::connect(config.retry_policy(eager)).unwrap()
    });
    let ids = sessions.each_ref().map(|session| session.status().session_id);
    let (room, calm, rounds) = (Room::default(), AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..6 {
            let lock = lock(&sessions[thread % 2]);
            let (room, calm, rounds) = (&room, &calm, &rounds);
            scope.spawn(move || {
                let mut done = 0;
                while done < ROUNDS || !calm.load(SeqCst) {
                    if thread < 4 {
                        let reading = lock.read().unwrap();
                        room.read();
                        assert!(reading.is_held(), "{:?}", reading.lost_reason());
                    } else {
                        let writing = lock.write().unwrap();
                        room.write();
                        if done % 2 == 0 {
                            let reading = lock.read().unwrap();
                            assert!(writing.is_held(), "{:?}", writing.lost_reason());
                            drop(writing);
                            room.read();
                            rounds.fetch_add(1, SeqCst);
                            assert!(reading.is_held(), "{:?}", reading.lost_reason());
                        }
                    }
                    done += 1;
                    rounds.fetch_add(1, SeqCst);
                }
            });
        }
        // The cuts come as soon as a session is connected again, until much was done in between.
        let cuts = flap(&server, 4, CUTS, ROUNDS * 6, || rounds.load(SeqCst));
        println!("{} rounds over {cuts} cuts", rounds.load(SeqCst));
        calm.store(true, SeqCst);
    });
    assert_eq!(room.inside.load(SeqCst), 0);
    let (reads, writes) = (room.reads.load(SeqCst), room.writes.load(SeqCst));
    println!("{reads} reads and {writes} writes");
    assert_eq!(reads + writes, rounds.load(SeqCst));
    until_empty(&at, LOCK);
    assert_eq!(
        sessions.each_ref().map(|session| session.status().session_id),
        ids,
        "the sessions are the same, so they have deleted the nodes"
    );
}

/// Runs on both servers.
fn readers_and_writers_keep_their_order_over_a_restart() {
    let server = Server::start();
    let at = server.connect_string();
    // On a busy machine a server starts slowly, and it must be back within the lease.
    let sessions: Vec<_> = (0..7).map(|_| session_of(&at, Duration::from_secs(36))).collect();
    let locks: Vec<_> = sessions.iter().map(lock).collect();
    let ids: Vec<_> = sessions.iter().map(|session| session.status().session_id).collect();
    let order = Mutex::new(String::new());
    let writing = locks[0].write().unwrap();
    thread::scope(|scope| {
        // Two readers, a writer, two readers, a writer.
        for (place, kind) in "rrwrrw".chars().enumerate() {
            let (lock, order) = (&locks[place + 1], &order);
            scope.spawn(move || {
                let pass = || {
                    order.lock().push(kind);
                    thread::sleep(Duration::from_millis(20)); // a wrong grant would show
                };
                if kind == 'r' {
                    let reading = lock.read().unwrap();
                    pass();
                    assert!(reading.is_held());
                } else {
                    let writing = lock.write().unwrap();
                    pass();
                    assert!(writing.is_held());
                }
            });
            until_queue(&at, LOCK, place + 2);
        }
        let before = queue(&at, LOCK);
        server.restart();
        for session in &sessions {
            until("the session is back", SOON * 2, || {
                (session.status().state == SessionState::Connected).then_some(())
            });
        }
        let mut after = (queue(&at, LOCK), before);
        after.0.sort_unstable();
        after.1.sort_unstable();
        assert_eq!(after.0, after.1);
        assert!(order.lock().is_empty() && writing.is_held());
        writing.unlock().unwrap();
    });
    assert_eq!(order.into_inner(), "rrwrrw");
    assert_eq!(sessions.iter().map(|session| session.status().session_id).collect::<Vec<_>>(), ids);
    sessions.iter().for_each(|session| until_state(session, SessionState::Connected));
    until_empty(&at, LOCK);
}

scenarios![
    downgrade_whose_create_or_its_answer_is_lost_leaves_one_read_node on embedded,
    downgrade_given_up_in_the_middle_leaves_the_write_and_nothing_else on embedded,
    downgrade_whose_writes_end_is_lost_keeps_a_queued_writer_out on embedded,
    downgrade_of_a_write_whose_node_is_deleted_meanwhile_is_lost on embedded,
    downgrade_of_a_write_that_is_deleted_before_it_is_watched_is_lost on embedded,
    downgraded_hold_is_lost_with_its_session on embedded,
    readers_that_share_a_node_lose_it_together on embedded,
    shared_node_goes_with_its_last_reader on embedded,
    reader_that_comes_while_the_last_one_unlocks_has_a_node_of_its_own on embedded,
    readers_in_line_come_in_with_the_one_ahead_up_to_a_writer on embedded,
    flapping_connections_grant_no_other_beside_a_writer on embedded,
    readers_and_writers_keep_their_order_over_a_restart,
];
