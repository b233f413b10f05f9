//! Locks of two kinds at one path, of different processes: the nodes of the other process are made
//! by hand. The later kind is refused, and the earlier one is not disturbed.
use crate::support::{
    Raw, Shared,
    contend::{session, spawn_waiting, until_queue},
    raw::EPHEMERAL_SEQUENTIAL,
    scenarios,
    scene::{full_path, queue},
};
use std::thread;
use zk_mutex::{Error, OptionalExt, Result, ZkElection, ZkMutex, ZkRwLock};

const PATH: &str = "/locks/orders";
const UUID: &str = "6f8ad2cc-3b5e-4f0c-9a57-0b8f9d3c1e42";

/// The path, with what another process has there.
struct Folder {
    at: String,
    raw: Raw,
}

impl Folder {
    fn new() -> Folder {
        let at = Shared::chroot();
        let mut raw = Raw::connect(&at).unwrap();
        raw.mkdirs(&full_path(&at, PATH)).unwrap();
        Folder { at, raw }
    }

    fn full(&self, name: &str) -> String {
        full_path(&self.at, &format!("{PATH}/{name}"))
    }

    /// Another process's contender; the path of its node.
    fn stands(&mut self, mark: &str) -> String {
        let prefix = self.full(&format!("_c_{UUID}-{mark}"));
        self.raw.create(&prefix, b"h7:1", EPHEMERAL_SEQUENTIAL).unwrap()
    }
}

/// The call was refused because of this node, and says so.
#[track_caller]
fn assert_refused<T>(outcome: Result<T>, node: &str) {
    let Some(error) = outcome.err() else { panic!("it was not refused") };
    let name = node.rsplit('/').next().unwrap();
    assert!(matches!(error, Error::InvalidConfig { what: "path", .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains(PATH) && said.contains(name) && said.contains("of its own"), "{said}");
    assert!(said.contains("(h7:1, session 0x") && said.contains(", for 0 s)"), "{said}");
    assert!(!error.is_transient() && !error.is_contended(), "{error:?}");
}

fn a_lock_where_an_election_stands_is_refused_and_leaves_nothing() {
    let mut folder = Folder::new();
    let node = folder.stands("latch-");
    let session = session(&folder.at);
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    assert_refused(mutex.lock(), &node);
    assert_refused(mutex.try_lock(), &node);
    drop(mutex);
    let lock = ZkRwLock::new(&session, PATH).unwrap();
    assert_refused(lock.read(), &node);
    assert_refused(lock.write(), &node);
    drop(lock);
    until_queue(&folder.at, PATH, 1);
}

fn a_mutex_and_a_read_write_lock_at_one_path_are_refused() {
    for mark in ["__READ__", "__WRIT__", "__rlock__"] {
        let mut folder = Folder::new();
        let node = folder.stands(mark);
        let session = session(&folder.at);
        let mutex = ZkMutex::new(&session, PATH).unwrap();
        assert_refused(mutex.lock(), &node);
        assert_refused(mutex.try_lock(), &node);
        drop(mutex);
        until_queue(&folder.at, PATH, 1);
    }
    let mut folder = Folder::new();
    let node = folder.stands("lock-");
    let session = session(&folder.at);
    let lock = ZkRwLock::new(&session, PATH).unwrap();
    assert_refused(lock.read(), &node);
    assert_refused(lock.try_read(), &node);
    assert_refused(lock.write(), &node);
    until_queue(&folder.at, PATH, 1);
}

/// kazoo's `Lock` and `WriteLock` have one name: a lock of either kind waits for it.
fn a_lock_of_kazoos_is_of_either_kind() {
    let mut folder = Folder::new();
    folder.stands("__lock__");
    let session = session(&folder.at);
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    assert!(mutex.try_lock().optional().unwrap().is_none());
    drop(mutex);
    let lock = ZkRwLock::new(&session, PATH).unwrap();
    assert!(lock.try_read().optional().unwrap().is_none());
    assert!(lock.try_write().optional().unwrap().is_none());
}

fn a_candidate_where_a_lock_stands_is_refused() {
    for mark in ["lock-", "__WRIT__", "__READ__"] {
        let mut folder = Folder::new();
        let node = folder.stands(mark);
        let session = session(&folder.at);
        let candidate = ZkElection::new(&session, PATH).unwrap().join().unwrap();
        assert_refused(candidate.wait_leader(), &node);
        drop(candidate);
        until_queue(&folder.at, PATH, 1);
    }
}

/// Somebody's mistake does not cost the users of a lock their path.
fn a_lock_is_not_disturbed_by_a_candidate_that_comes_later() {
    let mut folder = Folder::new();
    let sessions = [(); 3].map(|()| session(&folder.at));
    let [first, second, third] =
        sessions.each_ref().map(|session| ZkMutex::new(session, PATH).unwrap());
    let guard = first.lock().unwrap();
    thread::scope(|scope| {
        let next = spawn_waiting(scope, || second.lock().unwrap().unlock());
        until_queue(&folder.at, PATH, 2);
        let late = folder.stands("latch-");
        // This one came behind the candidate, and its kind was here before.
        let last = spawn_waiting(scope, || third.lock().unwrap().unlock());
        until_queue(&folder.at, PATH, 4);
        assert!(third.try_lock().optional().unwrap().is_none());
        folder.raw.delete(&late).unwrap();
        guard.unlock().unwrap();
        for waiter in [next, last] {
            waiter.join().unwrap().unwrap();
        }
    });
    assert_eq!(queue(&folder.at, PATH), [""; 0]);
}

/// A candidate of another client leads beside the lock that was here before. When that lock goes, a
/// waiter that came after the candidate is refused.
fn a_waiter_behind_a_candidate_is_refused_when_the_lock_ahead_goes() {
    let mut folder = Folder::new();
    let sessions = [(); 2].map(|()| session(&folder.at));
    let [first, second] = sessions.each_ref().map(|session| ZkMutex::new(session, PATH).unwrap());
    let guard = first.lock().unwrap();
    let node = folder.stands("latch-");
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || second.lock().map(drop));
        until_queue(&folder.at, PATH, 3);
        guard.unlock().unwrap();
        let refused = waiter.join().unwrap();
        let said = refused.unwrap_err().to_string();
        assert!(said.contains(node.rsplit('/').next().unwrap()), "{said}");
    });
    until_queue(&folder.at, PATH, 1);
}

scenarios![
    a_waiter_behind_a_candidate_is_refused_when_the_lock_ahead_goes,
    a_lock_where_an_election_stands_is_refused_and_leaves_nothing,
    a_candidate_where_a_lock_stands_is_refused,
    a_lock_of_kazoos_is_of_either_kind,
    a_mutex_and_a_read_write_lock_at_one_path_are_refused,
    a_lock_is_not_disturbed_by_a_candidate_that_comes_later,
];
