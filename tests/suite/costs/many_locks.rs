//! A great number of locks at once: making and releasing one more costs no more than the first.
use crate::support::{
    Server, scenarios,
    scene::{session, until_empty},
};
use zk_mutex::{Error, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSession};
use zk_test_server::Op;

const LIVE: usize = 100_000;
/// One of so many locks is checked.
const STEP: usize = 997;

fn path(i: usize) -> String {
    format!("/locks/{i}")
}

/// Whether another kind of lock can be made on the path.
#[track_caller]
fn is_free(session: &ZkSession, i: usize) -> bool {
    match ZkRwLock::new(session, path(i)) {
        Ok(_) => true,
        Err(Error::InvalidConfig { reason, .. }) if reason.contains("(mutex)") => false,
        Err(e) => panic!("{e}"),
    }
}

fn a_hundred_thousand_locks_live_at_once_and_leave_nothing() {
    let server = Server::start();
    let at = server.connect_string();
    let session = session(&at);
    let embedded = server.embedded_server();
    let locks: Vec<ZkMutex> = (0..LIVE).map(|i| ZkMutex::new(&session, path(i)).unwrap()).collect();
    for op in [Op::Create, Op::GetChildren, Op::GetData, Op::Exists] {
        assert_eq!(embedded.count(op), 0, "making a lock sends nothing");
    }
    // A second lock on the same path shares the state of the first one and keeps it when the first
    // is dropped.
    let second = ZkMutex::new(&session, path(0)).unwrap();
    let guard = locks[0].lock().unwrap();
    assert_eq!(second.lock().unwrap().hold_count(), 2);
    guard.unlock().unwrap();
    assert!((0..LIVE).step_by(STEP).all(|i| !is_free(&session, i)));
    let (kept, gone) = (LIVE / 2, LIVE / 2 + STEP);
    let mut locks = locks;
    drop(locks.drain(kept..));
    assert!((gone..LIVE).step_by(STEP).all(|i| is_free(&session, i)));
    assert!((0..kept).step_by(STEP).all(|i| !is_free(&session, i)));
    drop(locks);
    assert!((STEP..LIVE).step_by(STEP).all(|i| is_free(&session, i)));
    assert!(!is_free(&session, 0), "the second lock on its path is alive");
    drop(second);
    assert!(is_free(&session, 0));
    // The same number of locks of another kind on the same paths.
    let others: Vec<_> =
        (0..LIVE).map(|i| ZkExclusiveLock::new(&session, path(i)).unwrap()).collect();
    drop(others[LIVE - 1].lock().unwrap());
    until_empty(&at, &path(LIVE - 1));
    until_empty(&at, &path(0));
}

scenarios![on embedded; a_hundred_thousand_locks_live_at_once_and_leave_nothing within 300];
