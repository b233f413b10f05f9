//! Calling threads that read the answers to their own requests, instead of the event loop: many of
//! them at once, over cuts, and with events among the answers.
use crate::support::{
    Raw, Server,
    contend::Over,
    logged, scenarios,
    scene::{SOON, session, session_of, until_empty, until_event, until_watched},
    until,
};
use crossbeam_channel::bounded;
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Duration,
};
use zk_mutex::{LossReason, OptionalExt, SessionEvent, ZkMutex};
use zk_test_server::Op;

const LOCK: &str = "/locks/orders";

/// mio's log lines about each change of a registration, which go to the application's logger.
const REGISTERS: [&str; 2] = ["registering event source", "deregistering event source"];

fn many_threads_take_many_locks_of_a_session_over_cuts_and_a_slow_server() {
    const LOCKS: usize = 3;
    const ROUNDS: usize = 20;
    let server = Server::embedded().start();
    let at = server.connect_string();
    let session = session(&at);
    let embedded = server.embedded_server();
    embedded.delay(Duration::from_millis(1));
    let taken = [const { AtomicBool::new(false) }; LOCKS];
    let done = AtomicUsize::new(0);
    let locks: Vec<_> =
        (0..LOCKS).map(|i| ZkMutex::new(&session, format!("/locks/{i}")).unwrap()).collect();
    thread::scope(|scope| {
        for number in 0..3 * LOCKS {
            let (mutex, taken, done) = (&locks[number % LOCKS], &taken[number % LOCKS], &done);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let guard = mutex.lock().unwrap();
                    assert!(!taken.swap(true, Ordering::SeqCst), "two holders");
                    assert!(guard.is_held());
                    taken.store(false, Ordering::SeqCst);
                    drop(guard);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        for cut in 1..5 {
            until("the threads make progress", SOON * 3, || {
                (done.load(Ordering::SeqCst) >= cut * 3 * LOCKS * ROUNDS / 5).then_some(())
            });
            embedded.delay(Duration::from_millis(if cut % 2 == 0 { 1 } else { 15 }));
            embedded.cut_connections();
        }
    });
    embedded.delay(Duration::ZERO);
    (0..LOCKS).for_each(|i| until_empty(&at, &format!("/locks/{i}")));
}

fn caller_whose_connection_is_cut_while_it_reads_has_the_lock_on_the_next_one() {
    let server = Server::embedded().start();
    let at = server.connect_string();
    let session = session(&at);
    let events = session.subscribe();
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    drop(mutex.lock().unwrap());
    for op in [Op::Create, Op::GetChildren] {
        server.embedded_server().drop_reply(op);
        drop(mutex.lock_timeout(SOON).optional().unwrap().expect("the lock is free"));
        until_event(&events, |event| *event == SessionEvent::Reconnected);
    }
    until_empty(&at, LOCK);
}

fn holder_is_notified_of_the_deletion_of_its_node_while_callers_read() {
    let server = Server::embedded().start();
    let at = server.connect_string();
    let session = session(&at);
    let held = ZkMutex::new(&session, LOCK).unwrap();
    let other = ZkMutex::new(&session, "/locks/other").unwrap();
    server.embedded_server().delay(Duration::from_millis(1));
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _all = Over(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                drop(other.lock().unwrap());
            }
        });
        for _ in 0..5 {
            let guard = held.lock().unwrap();
            until_watched(&at, &guard);
            let lost = guard.lost();
            Raw::connect(&at).unwrap().delete(guard.path()).unwrap();
            assert!(lost.wait(SOON).is_some());
            assert_eq!(lost.reason(), Some(LossReason::NodeDeleted));
        }
    });
}

/// A library below this one logs. A logger that blocks there must not hold a mutex of the
/// connection.
fn no_logger_is_called_where_a_caller_begins_or_ends_to_read() {
    let server = Server::embedded().start();
    let at = server.connect_string();
    let session = session_of(&at, Duration::from_secs(3600));
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    drop(mutex.lock().unwrap());
    log::set_max_level(log::LevelFilter::Trace);
    for part in REGISTERS {
        let kept = logged::hold(part);
        let (done, is_done) = bounded(1);
        thread::scope(|scope| {
            scope.spawn(|| {
                done.send(mutex.lock_timeout(SOON).optional().map(|guard| guard.is_some()))
            });
            let outcome = is_done.recv_timeout(SOON);
            drop(kept);
            assert!(outcome.is_ok_and(|outcome| outcome.is_ok_and(|had| had)), "{part} keeps it");
        });
    }
    logged::trap(REGISTERS[0]);
    (0..20).for_each(|_| drop(mutex.lock().unwrap()));
    assert_eq!(logged::panics(), 0);
}

scenarios![on embedded;
    many_threads_take_many_locks_of_a_session_over_cuts_and_a_slow_server,
    caller_whose_connection_is_cut_while_it_reads_has_the_lock_on_the_next_one,
    holder_is_notified_of_the_deletion_of_its_node_while_callers_read,
    no_logger_is_called_where_a_caller_begins_or_ends_to_read,
];
