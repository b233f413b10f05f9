//! Sequence numbers near and past their end: exclusion and order still hold, and the log describes
//! what to do. The numbers start anew when the folder is made anew.
use crate::support::{
    Raw, Server,
    contend::{Over, Section, session, spawn_waiting, stat, until_queue},
    embedded::start,
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
use zk_mutex::{OptionalExt, ZkMutex, ZkSession};
use zk_test_server::Op;

const LOCK: &str = "/orders";
/// Behind this number the log says what to do.
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

/// The library leaves the empty folder alone. The server deletes it, because it is a container, or
/// an operator does as the log says.
fn delete_folder(at: &str) {
    until_empty(at, LOCK);
    Raw::connect(at).unwrap().delete(LOCK).unwrap();
}

fn half_used() -> usize {
    logged(Level::Warn, "more than half").len()
}

fn past_half_of_the_numbers_the_log_says_so_and_a_new_folder_begins_anew() {
    let server = Server::builder().counter(LOCK, HALF).start();
    let at = server.connect_string();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    let guard = mutex.lock().unwrap();
    assert_eq!((number_of(guard.path()), half_used()), (i64::from(HALF), 0));
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
    assert_eq!(half_used(), 1);
    delete_folder(&at);
    assert_eq!(number_of(mutex.lock().unwrap().path()), 0);
    assert_eq!(logged(Level::Error, ""), [""; 0]);
    ours.close().unwrap();
    theirs.close().unwrap();
}

/// The operator's ACL and data would be lost if the folder were made anew.
fn folder_of_an_operator_keeps_its_acl_and_data_when_numbers_get_high() {
    let (server, at) = start();
    let mut raw = Raw::connect(&at).unwrap();
    raw.mkdirs(LOCK).unwrap();
    raw.set_data(LOCK, b"owner: payments").unwrap();
    raw.set_acl(LOCK, 1 | 4 | 8).unwrap();
    let before = raw.exists(LOCK).unwrap().unwrap();
    server.set_sequence(LOCK, HALF + 1).unwrap();
    let ours = session(&at);
    let lock = ZkMutex::new(&ours, LOCK).unwrap();
    for _ in 0..3 {
        lock.lock().unwrap().unlock().unwrap();
    }
    let id = ours.status().session_id.unwrap();
    ours.close().unwrap();
    let after = raw.exists(LOCK).unwrap().unwrap();
    assert_eq!((after.czxid, after.aversion), (before.czxid, before.aversion));
    assert_eq!(raw.get_data(LOCK).unwrap().0, b"owner: payments");
    let deletes = server.count(Op::Delete.on(LOCK).session(id));
    assert_eq!((deletes, half_used()), (3, 1), "those of the releases, and one line");
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
            contenders.iter().map(|c| number_of(&c.path) - i64::from(i32::MAX)).collect();
        assert_eq!(numbers, [-2, -1, 0, 0, 0, 0, 0], "the numbers stick at their end");
        let owners: Vec<_> = contenders.iter().map(|c| Some(c.session_id)).collect();
        assert_eq!(
            owners,
            sessions.iter().map(|session| session.status().session_id).collect::<Vec<_>>()
        );
        assert!(
            mutexes[6].try_lock().optional().is_ok_and(|got| got.is_none()) && order.is_empty()
        );
        drop(guard);
    });
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    assert_eq!(section.counter(), 6);
    says_what_to_do(sessions.len());
    delete_folder(&at);
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
        let all = Over(&done);
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
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        drop(all);
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
    past_half_of_the_numbers_the_log_says_so_and_a_new_folder_begins_anew,
    folder_of_an_operator_keeps_its_acl_and_data_when_numbers_get_high on embedded,
    contenders_keep_their_order_where_the_numbers_stick,
    threads_exclude_each_other_where_the_numbers_stick_and_wrap,
    a_wrapped_number_ahead_or_behind_is_placed_by_its_age,
];
