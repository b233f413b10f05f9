//! What the end of a call's time means, while a request is under way: contention if the call has
//! seen somebody ahead, and otherwise an error that blames nobody.
use crate::support::{
    contend::{spawn_waiting, until_queue},
    embedded::start,
    scenarios,
    scene::{SOON, session, until_empty, until_state},
};
use std::{thread, time::Duration};
use zk_mutex::{
    CancelToken, Cause, Error, OptionalExt, SessionState, Wait, ZkExclusiveLock, ZkMultiLock,
    ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex,
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

/// One member was taken by somebody else for a while. The call has it by now, so it was not in the
/// way when the time ended: the other one's request had no answer.
fn multi_lock_names_the_member_that_was_in_the_way() {
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
        let path = B.to_owned();
        let unanswered = Error::Unavailable { op: "lock", path, cause: Cause::Deadline };
        assert_eq!(waiter.join().unwrap(), Err(unanswered));
    });
    drop(held);
    [A, B].iter().for_each(|path| until_empty(&at, path));
}

/// No answer shows who has the lock. The first thread gets an error that says so. The thread behind
/// it waits for a thread that is still asking: that is no contention either.
fn threads_whose_time_ends_before_any_answer() {
    let (server, at) = start();
    let ours = session(&at);
    let lock = ZkMutex::new(&ours, PATH).unwrap();
    lock.lock().unwrap().unlock().unwrap();
    let held = server.hold_requests(Op::Create.on(format!("{PATH}/")));
    thread::scope(|scope| {
        let first = spawn_waiting(scope, || lock.lock_timeout(LIMIT).optional().map(drop));
        let behind = lock.lock_timeout(LIMIT / 4).optional().map(drop).unwrap_err();
        let said = first.join().unwrap().unwrap_err();
        let path = PATH.to_owned();
        assert_eq!(said, Error::Unavailable { op: "lock", path, cause: Cause::Deadline });
        assert_eq!(behind, said);
        assert!(!said.to_string().contains("ZooKeeper unavailable"), "{said}");
    });
    drop(held);
    until_empty(&at, PATH);
}

/// One thread has the mutex of the semaphore, and its count has no answer. All permits are free: the
/// thread behind it has nobody to blame.
fn permits_that_nobody_holds_are_not_contended_while_the_server_hangs() {
    let (server, at) = start();
    let semaphore = ZkSemaphore::new(&session(&at), PATH, 10).unwrap();
    semaphore.acquire().unwrap().release().unwrap();
    let held = server.hold_requests(Op::Create.on("-lease-"));
    thread::scope(|scope| {
        let ahead = spawn_waiting(scope, || semaphore.acquire_timeout(LIMIT).map(drop));
        assert!(held.wait(SOON), "it asks for the permit");
        let path = PATH.to_owned();
        let unanswered = Error::Unavailable { op: "acquire", path, cause: Cause::Deadline };
        assert_eq!(semaphore.acquire_timeout(LIMIT / 4).map(drop), Err(unanswered.clone()));
        assert_eq!(ahead.join().unwrap(), Err(unanswered));
    });
    drop(held);
    until_empty(&at, PATH);
}

/// In an outage only a valid guard of this process shows that no other client has the lock.
fn guards_of_this_process_are_contention_in_an_outage() {
    let (server, at) = start();
    let session = session(&at);
    let at_path = |name: &str| format!("/locks/{name}");
    let [read, written] =
        ["read", "written"].map(|name| ZkRwLock::new(&session, at_path(name)).unwrap());
    let single = ZkSemaphoreMutex::new(&session, at_path("single")).unwrap();
    let exclusive = ZkExclusiveLock::new(&session, at_path("exclusive")).unwrap();
    let free = ZkMutex::new(&session, at_path("free")).unwrap();
    let _reader = read.read().unwrap();
    let _writer = written.write().unwrap();
    let _single = single.lock().unwrap();
    let _exclusive = exclusive.lock().unwrap();
    server.refuse(true);
    server.cut_connections();
    until_state(&session, SessionState::Suspended);
    let short = Duration::from_millis(50);
    thread::scope(|scope| {
        scope.spawn(|| {
            let contended = [
                read.write_timeout(short).map(drop),
                written.read_timeout(short).map(drop),
                written.write_timeout(short).map(drop),
                single.lock_timeout(short).map(drop),
                exclusive.lock_timeout(short).map(drop),
            ];
            assert!(
                contended.iter().all(|said| matches!(said, Err(Error::TimedOut { .. }))),
                "{contended:?}"
            );
            let said = free.lock_timeout(short).map(drop);
            let is_outage = |cause: &Cause| matches!(cause, Cause::Outage(_));
            assert!(
                matches!(&said, Err(Error::Unavailable { cause, .. }) if is_outage(cause)),
                "{said:?}"
            );
        });
    });
    server.refuse(false);
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
    guards_of_this_process_are_contention_in_an_outage,
    multi_lock_names_the_member_that_was_in_the_way,
    permits_that_nobody_holds_are_not_contended_while_the_server_hangs,
    semaphore_whose_time_ends_after_its_wait_in_the_mutex_was_contended,
    threads_whose_time_ends_before_any_answer,
];
