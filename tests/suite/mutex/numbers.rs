//! Sequence numbers near and past their end: exclusion and order still hold, the log describes what
//! to do, and the parent is renewed.
use crate::support::{
    Raw, Server,
    contend::{Section, session, spawn_waiting, stat, until_queue},
    logged::logged,
    raw::{EPHEMERAL_SEQUENTIAL, PERSISTENT},
    scenarios,
    scene::{SOON, until_empty},
    until,
};
use crossbeam_channel::bounded;
use log::Level;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};
use zk_mutex::{ZkMutex, ZkSession};

const LOCK: &str = "/orders";
/// From this number on a release tries to renew the parent.
const HALF: i32 = 1 << 30;

fn number_of(path: &str) -> i64 {
    let (_, number) = path.split_once("-lock-").unwrap();
    number.parse().unwrap()
}

/// Another client's contenders, made by pipelined creates; the oldest first.
fn contenders_at_once(raw: &mut Raw, count: usize) -> Vec<String> {
    let names = (0..count).map(|_| format!("{LOCK}/_c_{}-lock-", uuid::Uuid::new_v4()));
    raw.create_at_once(&names.collect::<Vec<_>>(), EPHEMERAL_SEQUENTIAL).unwrap()
}

/// The same, repeated until some of their numbers have wrapped.
fn wrapped_contenders(raw: &mut Raw) -> Vec<String> {
    until("numbers wrap", SOON, || {
        let nodes = contenders_at_once(raw, 8);
        if nodes.iter().any(|node| number_of(node) < 0) {
            return Some(nodes);
        }
        nodes.iter().for_each(|node| raw.delete(node).unwrap());
        None
    })
}

fn until_renewed(at: &str) {
    until("the parent goes when it is empty", SOON, || stat(at, LOCK).is_none().then_some(()));
}

fn past_half_of_the_numbers_the_parent_is_renewed_once_it_is_empty() {
    let server = Server::builder().counter(LOCK, HALF).start();
    let at = server.connect_string();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    let guard = mutex.lock().unwrap();
    assert_eq!(number_of(guard.path()), i64::from(HALF));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = other.lock().unwrap();
            assert!(guard.is_held() && stat(&at, LOCK).is_some(), "the parent is not empty");
            number_of(guard.path())
        });
        until_queue(&at, LOCK, 2);
        guard.unlock().unwrap();
        assert_eq!(waiter.join().unwrap(), i64::from(HALF) + 1);
    });
    until_renewed(&at);
    for expected in 0..2 {
        let guard = mutex.lock().unwrap();
        assert_eq!(number_of(guard.path()), expected);
        guard.unlock().unwrap();
    }
    assert!(stat(&at, LOCK).is_some(), "with small numbers the parent stays");
    assert_eq!(logged(Level::Error, ""), [""; 0]);
    ours.close().unwrap();
    theirs.close().unwrap();
}

fn contenders_keep_their_order_where_the_numbers_stick() {
    let server = Server::builder().counter(LOCK, i32::MAX - 2).start();
    let at = server.connect_string();
    let sessions: Vec<ZkSession> = (0..7).map(|_| session(&at)).collect();
    let mutexes: Vec<ZkMutex> =
        sessions.iter().map(|session| ZkMutex::new(session, LOCK).unwrap()).collect();
    let (tell, order) = bounded(6);
    let section = Section::default();
    thread::scope(|scope| {
        let guard = mutexes[0].lock().unwrap();
        for (i, mutex) in mutexes.iter().enumerate().skip(1) {
            let (tell, section) = (tell.clone(), &section);
            scope.spawn(move || {
                let guard = mutex.lock().unwrap();
                section.pass();
                tell.send(i).unwrap();
                assert!(guard.is_held());
            });
            until_queue(&at, LOCK, i + 1);
        }
        let contenders = mutexes[0].contenders().unwrap();
        let numbers: Vec<i64> =
            contenders.iter().map(|c| c.sequence - i64::from(i32::MAX)).collect();
        assert_eq!(numbers, [-2, -1, 0, 0, 0, 0, 0], "the numbers stick at their end");
        let owners: Vec<_> = contenders.iter().map(|c| Some(c.session_id)).collect();
        assert_eq!(owners, sessions.iter().map(ZkSession::session_id).collect::<Vec<_>>());
        assert!(mutexes[6].try_lock().is_ok_and(|got| got.is_none()) && order.is_empty());
        drop(guard);
    });
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(section.counter(), 6);
    says_what_to_do(sessions.len());
    until_renewed(&at);
    let guard = mutexes[3].lock().unwrap();
    assert_eq!(number_of(guard.path()), 0);
    guard.unlock().unwrap();
    sessions.iter().for_each(|session| session.close().unwrap());
}

/// Checks that each lock that has met such numbers has logged one error, and nothing else.
fn says_what_to_do(locks: usize) {
    let errors = logged(Level::Error, "");
    assert!(!errors.is_empty() && errors.len() <= locks, "{errors:?}");
    for error in errors {
        assert!(error.contains(LOCK) && error.contains("sequence numbers are used up"), "{error}");
        assert!(error.contains("delete the node when it is empty"), "{error}");
    }
}

fn threads_exclude_each_other_where_the_numbers_stick_and_wrap() {
    let server = Server::builder().counter(LOCK, i32::MAX - 20).start();
    let at = server.connect_string();
    let sessions = [session(&at), session(&at)];
    let (section, done) = (Section::default(), AtomicBool::new(false));
    let mut raw = Raw::connect(&at).unwrap();
    // A parent that is not empty is not renewed.
    let keeps = raw.create(&format!("{LOCK}/keeps-it"), b"", PERSISTENT).unwrap();
    let numbers = thread::scope(|scope| {
        // Another client's pipelined creates, some of which wrap, are among ours.
        let pipelines = scope.spawn(|| {
            let mut raw = Raw::connect(&at).unwrap();
            let mut numbers = Vec::new();
            while !done.load(Ordering::SeqCst) {
                let nodes = contenders_at_once(&mut raw, 8);
                numbers.extend(nodes.iter().map(|node| number_of(node)));
                nodes.iter().for_each(|node| raw.delete(node).unwrap());
            }
            numbers
        });
        let threads: Vec<_> = (0..16)
            .map(|i| {
                let (session, section) = (&sessions[i % 2], &section);
                scope.spawn(move || {
                    let mutex =
                        ZkMutex::builder(session, LOCK).hand_over(Duration::ZERO).build().unwrap();
                    for _ in 0..15 {
                        let guard = mutex.lock().unwrap();
                        section.pass();
                        assert!(guard.is_held());
                    }
                })
            })
            .collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::SeqCst);
        assert!(ended.iter().all(Result::is_ok));
        pipelines.join().unwrap()
    });
    assert_eq!(section.counter(), 16 * 15);
    assert!(numbers.iter().any(|number| *number < 0), "some wrapped: {numbers:?}");
    assert!(numbers.iter().any(|number| *number == i64::from(i32::MAX)), "some stuck: {numbers:?}");
    says_what_to_do(sessions.len());
    assert_eq!(until_queue(&at, LOCK, 1), ["keeps-it"]);
    raw.delete(&keeps).unwrap();
    sessions.iter().for_each(|session| session.close().unwrap());
}

fn a_wrapped_number_ahead_or_behind_is_placed_by_its_age() {
    let server = Server::builder().counter(LOCK, i32::MAX).start();
    let at = server.connect_string();
    let session = session(&at);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let mut raw = Raw::connect(&at).unwrap();
    let ahead = wrapped_contenders(&mut raw);
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || mutex.lock().unwrap().is_held());
        until_queue(&at, LOCK, ahead.len() + 1);
        // The numbers of these nodes are lower than ours, but the nodes are younger, so they are
        // not ahead.
        let behind = wrapped_contenders(&mut raw);
        for node in &ahead {
            raw.sync().unwrap();
            assert!(!waiter.is_finished(), "{node} is ahead");
            raw.delete(node).unwrap();
        }
        assert!(waiter.join().unwrap());
        behind.iter().for_each(|node| raw.delete(node).unwrap());
    });
    says_what_to_do(1);
    until_empty(&at, LOCK);
    session.close().unwrap();
}

scenarios![
    past_half_of_the_numbers_the_parent_is_renewed_once_it_is_empty,
    contenders_keep_their_order_where_the_numbers_stick,
    threads_exclude_each_other_where_the_numbers_stick_and_wrap,
    a_wrapped_number_ahead_or_behind_is_placed_by_its_age,
];
