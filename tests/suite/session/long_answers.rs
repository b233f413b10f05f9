//! Answers that are longer than the library reads: the operation fails with an error that says what
//! to do, and the others continue.
use crate::support::{
    Raw, Server, brand,
    logged::logged,
    raw::PERSISTENT,
    scenarios,
    scene::{SOON, queue, session_of, until_empty},
    until,
};
use crossbeam_channel::Receiver;
use log::Level;
use std::{fmt::Debug, thread, time::Duration};
use zk_mutex::{
    ElectionEvent, Error, OptionalExt, SessionEvent, ZkElection, ZkExclusiveLock, ZkMutex,
    ZkRwLock, ZkSemaphore, ZkSession,
};
use zk_test_server::Op;

const BAD: &str = "/locks/bad";
const GOOD: &str = "/locks/good";
/// A sixth of this is enough for a server on a busy machine to make a long answer.
const T: Duration = Duration::from_secs(60);
/// For a candidate, which pauses for fractions of it. This session may lose its connection.
const SHORTER: Duration = Duration::from_secs(30);
/// A listing of so many children, whose names have a megabyte, is longer than 16 MiB.
const TOO_MANY: usize = 17;

/// A server that can make such answers.
#[track_caller]
fn roomy() -> Server {
    Server::builder().heap(512).start()
}

/// Makes the listing of `dir` too long, by nodes that are not contenders.
#[track_caller]
pub fn swell(at: &str, dir: &str) -> Vec<String> {
    let mut raw = Raw::connect(at).unwrap();
    raw.mkdirs(dir).unwrap();
    let path = |i| format!("{dir}/{i:02}{}", "x".repeat(1_000_000));
    let made: Vec<String> = (0..TOO_MANY).map(path).collect();
    for path in &made {
        raw.create(path, b"", PERSISTENT).unwrap();
    }
    made
}

#[track_caller]
fn clean_up(at: &str, made: &[String]) {
    let mut raw = Raw::connect(at).unwrap();
    for path in made {
        raw.delete(path).unwrap();
    }
}

/// The error of an operation whose answer was too long, for the node at `path`.
#[track_caller]
fn too_long<T: Debug>(result: Result<T, Error>, path: &str) {
    let e = result.map(drop).expect_err("the answer is too long");
    let Error::Server { path: named, code, .. } = &e else { panic!("{e:?}") };
    assert_eq!((named.as_str(), code.as_str()), (path, "AnswerTooLong"));
    let text = e.to_string();
    for part in [path, "16 MiB", "delete what does not belong there"] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

/// The connection of this session was never cut.
#[track_caller]
fn undisturbed(events: &Receiver<SessionEvent>) {
    let seen: Vec<_> = events.try_iter().collect();
    assert!(!seen.contains(&SessionEvent::Suspended), "{seen:?}");
}

fn a_huge_listing_of_one_lock_leaves_the_others_alone() {
    let server = roomy();
    let at = server.connect_string();
    let session = session_of(&at, T);
    let events = session.subscribe();
    let (good, bad) = (ZkMutex::new(&session, GOOD).unwrap(), ZkMutex::new(&session, BAD).unwrap());
    let guard = good.lock().unwrap();
    let made = swell(&at, BAD);
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            let third = ZkMutex::new(&session, "/locks/third").unwrap();
            for _ in 0..50 {
                third.lock().unwrap().unlock().unwrap();
            }
        });
        too_long(bad.lock(), BAD);
        too_long(bad.lock_timeout(T).optional(), BAD);
        too_long(bad.lock_timeout(T / 6).optional(), BAD); // lock_timeout() leaves no blocked thread behind
        too_long(bad.try_lock().optional(), BAD);
        too_long(bad.contenders(), BAD);
        others.join().unwrap();
    });
    assert!(guard.is_held());
    guard.unlock().unwrap();
    undisturbed(&events);
    clean_up(&at, &made);
    drop(bad.lock().unwrap());
    until_empty(&at, BAD);
}

fn a_huge_listing_is_an_error_of_every_recipe() {
    let server = roomy();
    let at = server.connect_string();
    let session = session_of(&at, T);
    let events = session.subscribe();
    let lock = ZkRwLock::new(&session, BAD).unwrap();
    let made = swell(&at, BAD);
    too_long(lock.read(), BAD);
    too_long(lock.write(), BAD);
    clean_up(&at, &made);
    drop(lock.read().unwrap());
    drop(lock);
    until_empty(&at, BAD);
    for folder in ["leases", "locks"] {
        let (path, folder) =
            (format!("/semaphores/{folder}"), format!("/semaphores/{folder}/{folder}"));
        let semaphore = ZkSemaphore::new(&session, &path, 2).unwrap();
        let made = swell(&at, &folder);
        too_long(semaphore.acquire(), &folder);
        too_long(semaphore.acquire_timeout(T).optional(), &folder);
        if folder.ends_with("leases") {
            too_long(semaphore.try_acquire().optional(), &folder);
        }
        clean_up(&at, &made);
        drop(semaphore.acquire().unwrap());
        until_empty(&at, &path);
    }
    undisturbed(&events);
}

/// A waiter makes no listing before the end of its wait. That listing fails, and the waiter's node
/// is deleted.
fn a_waiter_whose_queue_has_grown_too_long_ends_with_the_error() {
    let server = roomy();
    let at = server.connect_string();
    let sessions = [(); 3].map(|()| session_of(&at, T));
    let events = sessions.each_ref().map(ZkSession::subscribe);
    let [first, second, third] = sessions.each_ref().map(|s| ZkMutex::new(s, BAD).unwrap());
    let guard = first.lock().unwrap();
    thread::scope(|scope| {
        let queued = |count| {
            until("the waiter queues", SOON, || (queue(&at, BAD).len() == count).then_some(()))
        };
        // The next waiter takes the lock over without a listing; the one behind it needs a listing.
        let next = scope.spawn(|| second.lock().map(drop));
        queued(2);
        let last = scope.spawn(|| third.lock().map(drop));
        queued(3);
        let made = swell(&at, BAD);
        guard.unlock().unwrap();
        let (next, last) = (next.join().unwrap(), last.join().unwrap());
        assert!(next.is_ok() || matches!(next, Err(Error::Server { .. })), "{next:?}");
        too_long(last, BAD);
        clean_up(&at, &made);
    });
    until_empty(&at, BAD);
    events.iter().for_each(undisturbed);
}

fn a_candidate_in_a_folder_that_is_too_long_tries_on_and_leads_once_it_is_cleaned_up() {
    let server = roomy();
    let at = server.connect_string();
    let session = session_of(&at, SHORTER);
    let made = swell(&at, BAD);
    let election = ZkElection::new(&session, BAD).unwrap();
    let candidate = election.join().unwrap();
    match candidate.events().recv_timeout(SOON).unwrap() {
        ElectionEvent::Retrying(e) => too_long(Err::<(), _>(e), BAD),
        other => panic!("{other:?}"),
    }
    clean_up(&at, &made);
    let event = candidate.events().recv_timeout(SOON * 3).unwrap();
    assert!(matches!(event, ElectionEvent::Elected { .. }), "{event:?}");
    candidate.leave().unwrap();
    until_empty(&at, BAD);
    session.close().unwrap(); // the log has all lines
    let told = logged(Level::Warn, "the candidate tries again");
    assert_eq!(told.len(), 1, "the warning is logged once: {told:?}");
}

/// The sweep for a node whose create was not answered cannot list the folder. It repeats the
/// listing until it can.
fn a_lost_create_in_a_folder_that_is_too_long_is_swept_once_it_is_cleaned_up() {
    let server = Server::embedded().start();
    let at = server.connect_string();
    let session = session_of(&at, Duration::from_secs(2));
    let mutex = ZkMutex::new(&session, BAD).unwrap();
    let made = swell(&at, BAD);
    server.embedded_server().drop_reply(Op::Create.on(BAD));
    too_long(mutex.lock(), BAD);
    until("the sweep has warned", SOON, || {
        (!logged(Level::Warn, "could not be listed").is_empty()).then_some(())
    });
    let said = logged(Level::Warn, "could not be listed");
    assert!(
        said[0].contains(BAD) && said[0].contains("delete what does not belong there"),
        "{said:?}"
    );
    clean_up(&at, &made);
    until("the node is swept", SOON * 6, || queue(&at, BAD).is_empty().then_some(()));
}

/// Servers can be configured to store nodes that are longer than the library reads.
fn a_node_that_is_too_long_fails_alone() {
    let server = brand::embedded().max_frame(64 << 20).start().unwrap();
    let at = server.connect_string();
    let session = session_of(&at, T);
    let events = session.subscribe();
    let (good, bad) =
        (ZkMutex::new(&session, GOOD).unwrap(), ZkExclusiveLock::new(&session, BAD).unwrap());
    let guard = good.lock().unwrap();
    let mut raw = Raw::connect(&at).unwrap();
    raw.mkdirs(BAD).unwrap();
    let node = format!("{BAD}/lock");
    raw.create(&node, &vec![7; 17 << 20], PERSISTENT).unwrap();
    too_long(bad.lock(), &node);
    too_long(bad.lock_timeout(T).optional(), &node);
    too_long(bad.holders(), &node);
    assert!(bad.try_lock().optional().unwrap().is_none());
    raw.delete(&node).unwrap();
    drop(bad.lock().unwrap());
    // A contender of a queue. The contender behind it has to read this node.
    let queued = format!("{BAD}/_c_6f8ad2cc-3b5e-4f0c-9a57-0b8f9d3c1e42-lock-0000000000");
    raw.create(&queued, &vec![7; 17 << 20], PERSISTENT).unwrap();
    drop(bad);
    let mutex = ZkMutex::new(&session, BAD).unwrap();
    too_long(mutex.lock(), &queued);
    too_long(mutex.contenders(), &queued);
    raw.delete(&queued).unwrap();
    drop(mutex.lock().unwrap());
    assert!(guard.is_held());
    undisturbed(&events);
}

scenarios![
    a_huge_listing_of_one_lock_leaves_the_others_alone,
    a_huge_listing_is_an_error_of_every_recipe,
    a_waiter_whose_queue_has_grown_too_long_ends_with_the_error,
    a_candidate_in_a_folder_that_is_too_long_tries_on_and_leads_once_it_is_cleaned_up,
    a_lost_create_in_a_folder_that_is_too_long_is_swept_once_it_is_cleaned_up on embedded,
    a_node_that_is_too_long_fails_alone on embedded,
];
