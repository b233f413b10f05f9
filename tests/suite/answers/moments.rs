//! Lists that are asked for while nodes come and go: each answer was true at one moment.
use crate::support::{
    Raw, Shared,
    contend::{Over, session, spawn_waiting, until_queue},
    embedded::start,
    raw::EPHEMERAL,
    scenarios,
    scene::SOON,
};
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
};
use zk_mutex::{Contender, ZkMutex, ZkRwLock, ZkSemaphore, ZkSession};
use zk_test_server::{Matcher, Op, TestServer};

const LOCK: &str = "/locks/orders";
const LIMIT: &str = "/limits/downloads";

/// Asks, and makes a change when the first such request of the question is at the server. The
/// request is done after the change.
#[track_caller]
fn ask_amid<T: Send>(
    server: &TestServer,
    session: &ZkSession,
    which: Matcher,
    question: impl FnOnce() -> T + Send,
    change: impl FnOnce(),
) -> T {
    let held = server.hold_requests(which.session(session.status().session_id.unwrap()));
    thread::scope(|scope| {
        let asking = scope.spawn(question);
        assert!(held.wait(SOON), "the question is at the server");
        change();
        drop(held);
        asking.join().unwrap()
    })
}

fn paths(contenders: &[Contender]) -> Vec<&str> {
    contenders.iter().map(|contender| contender.path.as_str()).collect()
}

/// The holder of the listing goes before its node is read. Somebody holds the lock at each moment
/// but one, at which it is free and nobody asks.
fn a_lock_that_changes_hands_has_a_holder() {
    let (server, at) = start();
    let sessions = [session(&at), session(&at)];
    let [one, other] = sessions.each_ref().map(|session| ZkMutex::new(session, LOCK).unwrap());
    let asker = session(&at);
    let asked = ZkMutex::new(&asker, LOCK).unwrap();
    let read = || Op::GetData.on(LOCK);

    let (first, mut second) = (one.lock().unwrap(), None);
    let change = || {
        first.unlock().unwrap();
        second = Some(other.lock().unwrap());
    };
    let holders = ask_amid(&server, &asker, read(), || asked.holders().unwrap(), change);
    let second = second.unwrap();
    assert_eq!(paths(&holders), [second.path()]);

    // The next holder was listed too.
    thread::scope(|scope| {
        let waiting = spawn_waiting(scope, || {
            let guard = one.lock().unwrap();
            let path = guard.path().to_owned();
            guard.unlock().unwrap();
            path
        });
        let queue = until_queue(&at, LOCK, 2);
        let change = || {
            second.unlock().unwrap();
            waiting.join().unwrap();
        };
        let holders = ask_amid(&server, &asker, read(), || asked.holders().unwrap(), change);
        assert!(holders.is_empty(), "both have gone: {queue:?}, {holders:?}");
    });
}

/// A reader goes, and then another comes: at no moment did only the third one read.
fn readers_that_are_listed_read_together() {
    let (server, at) = start();
    let sessions = [session(&at), session(&at), session(&at)];
    let [one, two, three] =
        sessions.each_ref().map(|session| ZkRwLock::new(session, LOCK).unwrap());
    let asker = session(&at);
    let asked = ZkRwLock::new(&asker, LOCK).unwrap();
    let (first, second, mut third) = (one.read().unwrap(), two.read().unwrap(), None);
    let change = || {
        third = Some(three.read().unwrap());
        first.unlock().unwrap();
    };
    let read = Op::GetData.on(LOCK);
    let holders = ask_amid(&server, &asker, read, || asked.holders().unwrap(), change);
    assert_eq!(paths(&holders), [second.path(), third.as_ref().unwrap().path()]);
}

/// The folder of the leases is listed before that of the waiters, and they change in between.
fn holders_of_permits_and_waiters_are_of_one_moment() {
    let (server, at) = start();
    let sessions = [session(&at), session(&at)];
    let [one, other] =
        sessions.each_ref().map(|session| ZkSemaphore::new(session, LIMIT, 1).unwrap());
    drop(one.acquire().unwrap());
    until_queue(&at, &format!("{LIMIT}/leases"), 0);
    let asker = session(&at);
    let asked = ZkSemaphore::new(&asker, LIMIT, 1).unwrap();
    thread::scope(|scope| {
        let mut held = None;
        let mut waiting = None;
        let change = || {
            held = Some(one.acquire().unwrap());
            waiting = Some(spawn_waiting(scope, || drop(other.acquire().unwrap())));
            until_queue(&at, &format!("{LIMIT}/locks"), 1);
        };
        let locks = Op::GetChildren.on("/locks");
        let question = || asked.contenders().unwrap();
        let contenders = ask_amid(&server, &asker, locks, question, change);
        let held = held.unwrap();
        assert_eq!(paths(&contenders).first(), Some(&held.path()), "{contenders:?}");
        let waits = format!("{LIMIT}/locks/");
        assert!(paths(&contenders).last().unwrap().starts_with(&waits));
        held.release().unwrap();
        waiting.unwrap().join().unwrap();
    });
}

/// Nodes come and go between each listing and its reads.
fn holders_are_found_though_the_lock_changes_hands_all_the_time() {
    let at = Shared::chroot();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _all = Over(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                let session = session(&at);
                let mutex = ZkMutex::new(&session, LOCK).unwrap();
                while !is_over.load(SeqCst) {
                    mutex.lock().unwrap().unlock().unwrap();
                }
            });
        }
        let asker = session(&at);
        let asked = ZkMutex::new(&asker, LOCK).unwrap();
        let mut found = 0;
        for _ in 0..100 {
            let (holders, contenders) = (asked.holders().unwrap(), asked.contenders().unwrap());
            assert!(holders.len() <= 1 && contenders.len() <= 3, "{holders:?} {contenders:?}");
            found += holders.len();
        }
        assert!(found > 0);
    });
}

/// More than are read in one flight.
fn a_long_queue_is_listed_whole() {
    let (_server, at) = start();
    let mut raw = Raw::connect(&at).unwrap();
    raw.mkdirs(LOCK).unwrap();
    let path = |n: usize| format!("{LOCK}/_c_6f8ad2cc-3b5e-4f0c-9a57-{n:012}-lock-{n:010}");
    for number in (0..600).rev() {
        raw.create(&path(number), b"h7:1", EPHEMERAL).unwrap();
    }
    let asker = session(&at);
    let contenders = ZkMutex::new(&asker, LOCK).unwrap().contenders().unwrap();
    let expected: Vec<String> = (0..600).map(path).collect();
    assert_eq!(paths(&contenders), expected);
    assert!(contenders.iter().all(|one| one.data == b"h7:1" && one.session_id == raw.session_id()));
}

scenarios![
    a_lock_that_changes_hands_has_a_holder on embedded,
    a_long_queue_is_listed_whole on embedded,
    holders_are_found_though_the_lock_changes_hands_all_the_time,
    holders_of_permits_and_waiters_are_of_one_moment on embedded,
    readers_that_are_listed_read_together on embedded,
];
