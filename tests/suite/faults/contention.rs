//! What the end of a call's time means, while a request is under way: contention if the call has
//! seen somebody ahead, and otherwise an error that blames nobody.
use crate::support::{
    contend::{spawn_waiting, until_queue},
    embedded::start,
    scenarios,
    scene::{SOON, session, until_empty},
};
use std::{thread, time::Duration};
use zk_mutex::{
    CancelToken, Cause, Error, OptionalExt, Wait, ZkMultiLock, ZkMutex, ZkRwLock, ZkSemaphore,
};
use zk_test_server::{Op, TestServer};

const PATH: &str = "/locks/orders";
/// Long enough to see somebody ahead, even on a busy machine.
const LIMIT: Duration = Duration::from_secs(2);

/// The call waits in the mutex of the semaphore, behind another that waits for the permit. That one
/// gives up, and the call's own node for a permit is not answered in time.
fn semaphore_whose_time_ends_after_its_wait_in_the_mutex_was_contended() {
    let (server, at) = start();
    let sessions = [(); 3].map(|()| session(&at));
    let [holder, other, ours] =
        sessions.each_ref().map(|session| ZkSemaphore::new(session, PATH, 1).unwrap());
    let permit = holder.acquire().unwrap();
    let token = CancelToken::new();
    thread::scope(|scope| {
        let waits = Wait::forever().cancelled_by(&token);
        let ahead = spawn_waiting(scope, || other.acquire_with(waits).optional().map(drop));
        until_queue(&at, &format!("{PATH}/leases"), 2);
        let waiter =
            scope.spawn(|| ours.acquire_timeout(LIMIT).optional().map(|permit| permit.is_some()));
        until_queue(&at, &format!("{PATH}/locks"), 2);
        let held = server.hold_requests(Op::Create.on("-lease-"));
        token.cancel();
        assert!(matches!(ahead.join().unwrap(), Err(Error::Cancelled { .. })));
        assert!(held.wait(SOON), "it asks for the permit");
        assert_eq!(waiter.join().unwrap(), Ok(false), "another was ahead");
    });
    drop(permit);
    until_empty(&at, PATH);
}

/// One member was taken by somebody else for a while, and the other one's request is not answered
/// in time.
fn multi_lock_whose_time_ends_after_another_member_was_contended() {
    const A: &str = "/locks/a";
    const B: &str = "/locks/b";
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let mutex = |path| ZkMutex::new(&ours, path).unwrap();
    let lock = ZkMultiLock::new([mutex(A), mutex(B)]).unwrap();
    let guard = ZkMutex::new(&theirs, A).unwrap().lock().unwrap();
    let held = server.hold_requests(Op::Create.on(format!("{B}/")));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock_timeout(LIMIT).map(drop));
        until_queue(&at, A, 2);
        drop(guard);
        assert!(held.wait(SOON), "it has the one, and asks for the other");
        // The error names the member that another had.
        assert_eq!(waiter.join().unwrap(), Err(Error::TimedOut { path: A.to_owned() }));
    });
    drop(held);
    [A, B].iter().for_each(|path| until_empty(&at, path));
}

/// No answer shows who has the lock. The first thread gets an error that says so; the thread behind
/// it had the first one ahead. A thread that only tries does not know either.
fn threads_whose_time_ends_before_any_answer() {
    let (server, at) = start();
    let ours = session(&at);
    let lock = ZkMutex::new(&ours, PATH).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    let held = server.hold_requests(Op::Create.on(format!("{PATH}/")));
    thread::scope(|scope| {
        let first = spawn_waiting(scope, || lock.lock_timeout(LIMIT).optional().map(drop));
        assert_eq!(lock.lock_timeout(LIMIT / 4).optional().map(|guard| guard.is_some()), Ok(false));
        let said = first.join().unwrap().unwrap_err();
        let path = PATH.to_owned();
        assert_eq!(said, Error::Unavailable { op: "lock", path, cause: Cause::Deadline });
        assert!(!said.to_string().contains("ZooKeeper unavailable"), "{said}");
    });
    drop(held);
    until_empty(&at, PATH);
}

fn unanswered(server: &TestServer, at: &str, call: impl FnOnce() -> Result<(), Error>, op: &str) {
    let held = server.hold_requests(Op::Create.on(format!("{PATH}/")));
    let said = call();
    drop(held);
    assert!(
        matches!(&said, Err(Error::Unavailable { op: name, cause: Cause::Deadline, .. }) if *name == op),
        "{op}: {said:?}"
    );
    until_empty(at, PATH);
}

fn errors_name_the_call_that_failed() {
    let (server, at) = start();
    let ours = session(&at);
    let short = Duration::from_millis(300);
    let lock = ZkRwLock::new(&ours, PATH).unwrap();
    unanswered(&server, &at, || lock.read_timeout(short).optional().map(drop), "read");
    unanswered(&server, &at, || lock.write_timeout(short).optional().map(drop), "write");
    drop(lock);
    let semaphore = ZkSemaphore::new(&ours, PATH, 2).unwrap();
    unanswered(&server, &at, || semaphore.acquire_timeout(short).optional().map(drop), "acquire");
    drop(semaphore);
    let mutex = ZkMutex::new(&ours, PATH).unwrap();
    unanswered(&server, &at, || mutex.lock_timeout(short).optional().map(drop), "lock");
}

scenarios![
    on embedded;
    errors_name_the_call_that_failed,
    multi_lock_whose_time_ends_after_another_member_was_contended,
    semaphore_whose_time_ends_after_its_wait_in_the_mutex_was_contended,
    threads_whose_time_ends_before_any_answer,
];
