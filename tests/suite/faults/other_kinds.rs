//! Locks of different kinds at one path, of different processes: the nodes of the other process are
//! made by hand. The later kind is refused, and the earlier one is not disturbed.
use crate::support::{
    Raw, Shared,
    contend::{session, spawn_waiting, until_queue},
    raw::{EPHEMERAL, EPHEMERAL_SEQUENTIAL, PERSISTENT},
    scenarios,
    scene::{full_path, queue, until_empty},
};
use std::thread;
use zk_mutex::{
    Error, OptionalExt, Result, ZkElection, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSemaphore,
};

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

    /// Another process's contender, or its permit in the folder `leases/`; the path of its node.
    fn stands(&mut self, mark: &str) -> String {
        let (folder, mark) = mark.rsplit_once('/').map_or(("", mark), |(f, mark)| (f, mark));
        let folder = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let prefix = self.full(&format!("{folder}_c_{UUID}-{mark}"));
        self.raw.create(&prefix, b"h7:1", EPHEMERAL_SEQUENTIAL).unwrap()
    }

    fn semaphore_folders(&mut self) {
        for folder in ["leases", "locks"] {
            let path = self.full(folder);
            self.raw.create(&path, b"", PERSISTENT).unwrap();
        }
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
    let semaphore = ZkSemaphore::new(&session, PATH, 2).unwrap();
    assert_refused(semaphore.acquire(), &node);
    assert_refused(semaphore.set_permits(3), &node);
    until_queue(&folder.at, PATH, 1);
    let path = full_path(&folder.at, PATH);
    assert_eq!(folder.raw.get_data(&path).unwrap().0, b"", "no number was written");
}

fn a_candidate_and_a_semaphore_where_a_mutex_stands_are_refused() {
    let mut folder = Folder::new();
    let node = folder.stands("lock-");
    let session = session(&folder.at);
    let election = ZkElection::new(&session, PATH).unwrap();
    let candidate = election.join().unwrap();
    assert_refused(candidate.wait_leader(), &node);
    drop((candidate, election));
    let semaphore = ZkSemaphore::new(&session, PATH, 2).unwrap();
    for outcome in [semaphore.acquire(), semaphore.try_acquire()] {
        assert_refused(outcome, &node);
    }
    until_queue(&folder.at, PATH, 1);
}

/// The handle of the semaphore has seen the path before the mutex came.
fn a_semaphore_that_meets_a_mutex_later_takes_no_permit_beside_it() {
    let mut folder = Folder::new();
    let session = session(&folder.at);
    let semaphore = ZkSemaphore::new(&session, PATH, 2).unwrap();
    let permit = semaphore.acquire().unwrap();
    let node = folder.stands("lock-");
    assert_refused(semaphore.acquire(), &node);
    assert_refused(semaphore.try_acquire(), &node);
    permit.release().unwrap();
    until_empty(&folder.at, &format!("{PATH}/leases"));
    folder.raw.delete(&node).unwrap();
    drop(semaphore.acquire().unwrap());
}

fn a_mutex_where_a_semaphore_stands_is_refused_while_permits_are_taken() {
    let mut folder = Folder::new();
    folder.semaphore_folders();
    let permit = folder.stands("leases/lease-");
    let session = session(&folder.at);
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    assert_refused(mutex.lock(), &permit);
    assert_refused(mutex.try_lock(), &permit);
    until_queue(&folder.at, PATH, 2);
    // Folders that nobody uses keep nobody out.
    folder.raw.delete(&permit).unwrap();
    drop(mutex.lock().unwrap());
    assert!(mutex.try_lock().optional().unwrap().is_some());
}

fn an_exclusive_lock_and_a_mutex_refuse_each_other() {
    let mut folder = Folder::new();
    let node = folder.stands("lock-");
    let session = session(&folder.at);
    let lock = ZkExclusiveLock::new(&session, PATH).unwrap();
    assert_refused(lock.lock(), &node);
    assert_refused(lock.try_lock(), &node);
    until_queue(&folder.at, PATH, 1);
    drop(lock);
    folder.raw.delete(&node).unwrap();

    // The other process has an exclusive lock.
    let node = folder.full("lock");
    folder.raw.create(&node, format!("{UUID}\nh7:1").as_bytes(), EPHEMERAL).unwrap();
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    assert_refused(mutex.lock(), "is the node of an exclusive lock");
    drop(mutex);
    let semaphore = ZkSemaphore::new(&session, PATH, 2).unwrap();
    assert_refused(semaphore.acquire(), "is the node of an exclusive lock");
    drop(semaphore);
    folder.raw.delete(&node).unwrap();

    // A folder of this name may be anybody's.
    folder.raw.create(&node, b"", PERSISTENT).unwrap();
    drop(ZkMutex::new(&session, PATH).unwrap().lock().unwrap());
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
        // Two are ahead of this one, so it lists the queue again when the second has gone.
        let last = spawn_waiting(scope, || third.lock().unwrap().unlock());
        until_queue(&folder.at, PATH, 3);
        let late = folder.stands("latch-");
        guard.unlock().unwrap();
        for waiter in [next, last] {
            waiter.join().unwrap().unwrap();
        }
        folder.raw.delete(&late).unwrap();
    });
    assert_eq!(queue(&folder.at, PATH), [""; 0]);
}

scenarios![
    a_lock_where_an_election_stands_is_refused_and_leaves_nothing,
    a_candidate_and_a_semaphore_where_a_mutex_stands_are_refused,
    a_semaphore_that_meets_a_mutex_later_takes_no_permit_beside_it,
    a_mutex_where_a_semaphore_stands_is_refused_while_permits_are_taken,
    an_exclusive_lock_and_a_mutex_refuse_each_other,
    a_lock_is_not_disturbed_by_a_candidate_that_comes_later,
];
