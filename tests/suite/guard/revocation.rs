//! Revocation: the holder is notified of a request to release its lock, and then decides itself.
use crate::support::{
    Raw, Shared, at_best,
    contend::{proxied, session, spawn_waiting, until_queue},
    embedded::{exists, raw, start},
    logged,
    raw::EPHEMERAL_SEQUENTIAL,
    scenarios,
    scene::{SOON, full_path, session_of, until_empty, until_event, until_state, until_watched},
};
use crossbeam_channel::bounded;
use std::{
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Error, LossReason, OptionalExt, RevokeSignal, SessionEvent, SessionState, WaitStrategy,
    ZkElection, ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkSession,
};
use zk_test_server::{Matcher, Op};

const LOCK: &str = "/locks/orders";
/// The bytes that Curator writes and compares.
const MESSAGE: &[u8] = b"__REVOKE__";
/// Long enough to see that something does not come.
const A_WHILE: Duration = Duration::from_millis(300);

fn mutex(session: &ZkSession) -> ZkMutex {
    ZkMutex::new(session, LOCK).unwrap()
}

#[track_caller]
fn comes(asked: &RevokeSignal) {
    assert!(asked.wait(SOON), "not asked");
    assert!(asked.is_requested() && asked.clone().is_requested());
}

#[track_caller]
fn does_not_come(asked: &RevokeSignal) {
    assert!(!asked.wait(A_WHILE) && !asked.is_requested(), "asked");
}

/// Sets the data, as any other client may.
#[track_caller]
fn write(at: &str, path: &str, data: &[u8]) {
    Raw::connect(at).and_then(|mut raw| raw.set_data(&full_path(at, path), data)).unwrap();
}

fn a_holder_is_notified_of_a_request_and_releases_when_it_decides_to() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (holder, other) = (mutex(&ours), mutex(&theirs));
    let guard = holder.lock().unwrap();
    let (asked, clone) = (guard.revoke_requested(), guard.revoke_requested());
    does_not_come(&asked);
    let contender = other.contenders().unwrap().remove(0);
    assert!(theirs.attempt_revoke(&contender.path).unwrap().is_some());
    comes(&asked);
    comes(&clone);
    comes(&guard.revoke_requested());
    assert_eq!(other.contenders().unwrap()[0].data, MESSAGE, "Curator's own bytes");
    assert!(
        guard.is_held() && !guard.lost().receiver().try_recv().is_err_and(|e| e.is_disconnected())
    );
    assert!(other.try_lock().optional().unwrap().is_none(), "the holder still has the lock");
    assert!(
        theirs.attempt_revoke(guard.path()).unwrap().is_some(),
        "a second request, by the node's path"
    );
    guard.unlock().unwrap();
    let next = other.lock_timeout(SOON).optional().unwrap().unwrap();
    does_not_come(&next.revoke_requested());
    assert!(theirs.attempt_revoke(&contender.path).unwrap().is_none(), "the node is deleted");
    drop(next);
    until_empty(&at, LOCK);
}

/// Curator's message replaces the data of the holder. The client that requests the revocation is
/// the last one to see that data.
fn a_revocation_returns_the_former_data_of_the_node() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let holder = ZkMutex::builder(&ours, LOCK).data("billing on h7").build().unwrap();
    let other = mutex(&theirs);
    let guard = holder.lock().unwrap();
    let contender = other.contenders().unwrap().remove(0);
    assert_eq!(
        theirs.attempt_revoke(&contender.path).unwrap().as_deref(),
        Some(&b"billing on h7"[..])
    );
    assert_eq!(
        theirs.attempt_revoke(guard.path()).unwrap().as_deref(),
        Some(MESSAGE),
        "asked before"
    );
    guard.unlock().unwrap();
    let lock = ZkRwLock::builder(&ours, "/locks/table").data("readers").build().unwrap();
    let reading = lock.read().unwrap();
    let reader = lock.holders().unwrap().remove(0);
    assert_eq!(theirs.attempt_revoke(&reader.path).unwrap().as_deref(), Some(&b"readers"[..]));
    reading.unlock().unwrap();
    assert_eq!(theirs.attempt_revoke(&reader.path).unwrap(), None);
}

/// The node's ACL lets everybody write to it (and change the ACL), and nobody read it.
fn a_holder_is_notified_by_a_client_that_may_write_and_not_read() {
    let (_server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let lock = mutex(&ours);
    let guard = lock.lock().unwrap();
    raw(&at).set_acl(guard.path(), 2 | 16).unwrap();
    assert_eq!(theirs.attempt_revoke(guard.path()).unwrap().as_deref(), Some(&b""[..]));
    raw(&at).set_acl(guard.path(), 31).unwrap();
    assert_eq!(lock.contenders().unwrap()[0].data, MESSAGE);
}

fn the_log_names_the_holder_and_the_requester() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let holder = ZkMutex::builder(&ours, LOCK).data("billing on h7").build().unwrap();
    let guard = holder.lock().unwrap();
    let contender = mutex(&theirs).contenders().unwrap().remove(0);
    let who = format!("billing on h7, session 0x{:x}, for ", ours.status().session_id.unwrap());
    assert!(contender.to_string().starts_with(&who), "{contender}");
    let by =
        format!(":{}, session 0x{:x}", std::process::id(), theirs.status().session_id.unwrap());
    for part in [
        format!("{}: {who}", full_path(&at, guard.path())),
        format!("asked to let go by {}{by}", host()),
    ] {
        write(&at, guard.path(), b"billing on h7");
        let part: &str = part.leak();
        let logs = logged::hold(part);
        thread::scope(|scope| {
            let asks = scope.spawn(|| theirs.attempt_revoke(&contender.path));
            assert!(logs.wait(SOON), "the log does not say {part}");
            drop(logs);
            assert!(asks.join().unwrap().unwrap().is_some());
        });
    }
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

fn only_curators_message_is_a_request() {
    let at = Shared::chroot();
    let lock = mutex(&session(&at));
    let guard = lock.lock().unwrap();
    let asked = guard.revoke_requested();
    let mut long = MESSAGE.to_vec();
    long.resize(900_000, b'_');
    for data in [&b""[..], b"__REVOKE_", b"__REVOKE__ ", b"__revoke__", &long, b"host:1"] {
        write(&at, guard.path(), data);
    }
    does_not_come(&asked);
    write(&at, guard.path(), MESSAGE);
    comes(&asked);
    assert!(guard.is_held());
    drop(guard);
    until_empty(&at, LOCK);
}

fn a_request_from_before_the_signal_was_taken_is_reported() {
    let at = Shared::chroot();
    let lock = mutex(&session(&at));
    let guard = lock.lock().unwrap();
    write(&at, guard.path(), MESSAGE);
    comes(&guard.revoke_requested());
    drop(guard);
    // A watch that another caller has set reports the request too.
    let guard = lock.lock().unwrap();
    write(&at, guard.path(), MESSAGE);
    until_watched(&at, &guard);
    comes(&guard.revoke_requested());
}

fn neither_a_release_nor_a_loss_is_a_request() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let lock = mutex(&ours);
    let guard = lock.lock().unwrap();
    let released = guard.revoke_requested();
    guard.unlock().unwrap();
    let guard = lock.lock().unwrap();
    let lost = guard.revoke_requested();
    Raw::connect(&at).and_then(|mut raw| raw.delete(&full_path(&at, guard.path()))).unwrap();
    assert!(guard.lost().wait(SOON).is_some());
    assert_eq!(guard.lost_reason(), Some(LossReason::NodeDeleted));
    ours.close().unwrap();
    for signal in [released, lost] {
        does_not_come(&signal);
    }
    drop(theirs);
}

fn a_request_to_a_waiter_is_reported_once_it_holds() {
    for strategy in [WaitStrategy::Predecessor, WaitStrategy::Parent] {
        let at = Shared::chroot();
        let (ours, theirs) = (session(&at), session(&at));
        let make =
            |session| ZkMutex::builder(session, LOCK).wait_strategy(strategy).build().unwrap();
        let (first, second) = (make(&theirs), make(&ours));
        // The requests come before the waiter watches its own node, and after; the lock is granted
        // at once, and after another listing.
        let now = Duration::ZERO;
        for (pause, then) in [(now, now), (A_WHILE, now), (now, A_WHILE), (A_WHILE, A_WHILE)] {
            let held = first.lock().unwrap();
            thread::scope(|scope| {
                let waiter = spawn_waiting(scope, || {
                    let guard = second.lock().unwrap();
                    comes(&guard.revoke_requested());
                    assert!(guard.is_held());
                });
                until_queue(&at, LOCK, 2);
                thread::sleep(pause);
                let behind = first.contenders().unwrap().remove(1);
                assert!(theirs.attempt_revoke(&behind.path).unwrap().is_some());
                thread::sleep(then);
                assert!(!held.revoke_requested().is_requested());
                drop(held);
                waiter.join().unwrap();
            });
            until_empty(&at, LOCK);
        }
    }
}

fn a_requested_lock_goes_to_others_and_not_to_the_next_thread_here() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let here = ZkMutex::builder(&ours, LOCK).hand_over(Duration::from_secs(60)).build().unwrap();
    let there = mutex(&theirs);
    let order = parking_lot::Mutex::new(Vec::new());
    thread::scope(|scope| {
        let guard = here.lock().unwrap();
        let asked = guard.revoke_requested();
        let remote = spawn_waiting(scope, || {
            let _guard = there.lock().unwrap();
            order.lock().push("there");
        });
        until_queue(&at, LOCK, 2);
        let local = spawn_waiting(scope, || {
            let guard = here.lock().unwrap();
            order.lock().push("here");
            assert!(!guard.revoke_requested().is_requested(), "another node, without a request");
        });
        assert!(theirs.attempt_revoke(&there.contenders().unwrap()[0].path).unwrap().is_some());
        comes(&asked);
        drop(guard);
        remote.join().unwrap();
        local.join().unwrap();
    });
    assert_eq!(order.into_inner(), ["there", "here"]);
    until_empty(&at, LOCK);
}

fn readers_that_share_a_node_are_notified_together_and_no_reader_joins_them() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let lock = ZkRwLock::builder(&ours, LOCK).hand_over(Duration::from_secs(60)).build().unwrap();
    let other = ZkRwLock::new(&theirs, LOCK).unwrap();
    let (tell, told) = bounded(1);
    thread::scope(|scope| {
        let reading = lock.read().unwrap();
        let beside = scope.spawn(|| {
            let reading = lock.read().unwrap();
            tell.send(reading.path().to_owned()).unwrap();
            comes(&reading.revoke_requested());
        });
        assert_eq!(
            told.recv_timeout(SOON).as_deref(),
            Ok(reading.path()),
            "the readers share a node"
        );
        let mut readers = other.holders().unwrap();
        assert_eq!(readers.len(), 1);
        assert!(theirs.attempt_revoke(&readers.remove(0).path).unwrap().is_some());
        comes(&reading.revoke_requested());
        beside.join().unwrap();
        let late = scope.spawn(|| lock.read().unwrap().path().to_owned()).join().unwrap();
        assert_ne!(late, reading.path());
    });
    let writing = lock.write().unwrap();
    assert!(theirs.attempt_revoke(&other.holders().unwrap()[0].path).unwrap().is_some());
    comes(&writing.revoke_requested());
    drop(writing);
    until_empty(&at, LOCK);
}

fn a_request_made_while_the_holder_is_cut_off_is_reported_when_it_is_back() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let session = session_of(&through, Duration::from_secs(20));
    let events = session.subscribe();
    let lock = mutex(&session);
    let guard = lock.lock().unwrap();
    let asked = guard.revoke_requested();
    until_watched(&at, &guard);
    proxy.refuse(true);
    proxy.cut();
    until_state(&session, SessionState::Suspended);
    write(&at, guard.path(), MESSAGE);
    assert!(!asked.is_requested());
    proxy.refuse(false);
    until_event(&events, |event| *event == SessionEvent::Reconnected);
    comes(&asked);
    assert!(guard.is_held());
    guard.unlock().unwrap();
    until_empty(&at, LOCK);
}

fn a_request_or_its_answer_that_is_lost_is_made_again() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    for lose_answer in [false, true] {
        let guard = lock.lock().unwrap();
        let asked = guard.revoke_requested();
        let contender = other.contenders().unwrap().remove(0);
        server.clear_log();
        if lose_answer {
            server.drop_reply(Op::SetData);
        } else {
            server.drop_request(Op::SetData);
        }
        let said = theirs.attempt_revoke(&contender.path).unwrap();
        assert_eq!(said, Some(contender.data), "and not the data of the first request");
        assert_eq!((server.pending_faults(), server.count(Matcher::from(Op::SetData))), (0, 2));
        comes(&asked);
        guard.unlock().unwrap();
    }
    until_empty(&at, LOCK);
}

fn a_revocation_ends_in_time_and_names_its_obstacle() {
    let (server, at) = start();
    let theirs = session_of(&at, Duration::from_secs(6));
    let other = mutex(&theirs);
    let mut foreign = raw(&at);
    foreign.mkdirs(LOCK).unwrap();
    let name = format!("{LOCK}/_c_0c8f8d6e-6c0f-4f0e-9d55-0a1b2c3d4e5f-lock-");
    let node = foreign.create(&name, b"java", EPHEMERAL_SEQUENTIAL).unwrap();
    let contender = other.contenders().unwrap().remove(0);
    foreign.set_acl(&node, 1).unwrap();
    let said = theirs.attempt_revoke(&contender.path);
    let refused = Error::NoAuth { op: "attempt_revoke", path: node.clone(), permission: "WRITE" };
    assert_eq!(said, Err(refused));
    server.black_hole(true);
    for _ in 0..2 {
        let start = Instant::now();
        let said = theirs.attempt_revoke(&node);
        assert!(matches!(said, Err(Error::Unavailable { op: "attempt_revoke", .. })), "{said:?}");
        assert!(at_best(start) < Duration::from_millis(2500), "{:?}", start.elapsed());
    }
    server.black_hole(false);
    for path in [
        "/locks/orders",
        "/locks/orders/leases",
        "/locks/orders/locks/config",
        "/locks/../_c_x-lock-0000000001",
        "relative",
        "/",
        "/zookeeper/config-lock-0000000001",
    ] {
        let said = theirs.attempt_revoke(path);
        assert!(matches!(said, Err(Error::InvalidPath { .. })), "{path}: {said:?}");
    }
    assert!(exists(&at, &node));
    theirs.close().unwrap();
    assert!(matches!(theirs.attempt_revoke(&node), Err(Error::Closed { .. })));
}

fn a_permit_and_a_leader_are_revoked_by_their_nodes_and_other_nodes_are_not_changed() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let semaphore = ZkSemaphore::new(&ours, "/limits/downloads", 1).unwrap();
    let permit = semaphore.acquire().unwrap();
    assert!(theirs.attempt_revoke(permit.path()).unwrap().is_some());
    comes(&permit.revoke_requested());
    let candidate = ZkElection::new(&ours, "/elections/billing").unwrap().join().unwrap();
    let leadership = candidate.wait_leader().unwrap();
    assert!(theirs.attempt_revoke(leadership.path()).unwrap().is_some());
    comes(&leadership.revoke_requested());
    assert!(permit.is_held() && leadership.is_held());
}

fn the_holders_of_each_lock_with_a_queue_are_asked_by_their_paths() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let [semaphore, other] =
        [&ours, &theirs].map(|s| ZkSemaphore::new(s, "/limits/downloads", 1).unwrap());
    let permit = semaphore.acquire().unwrap();
    assert!(theirs.attempt_revoke(&other.holders().unwrap()[0].path).unwrap().is_some());
    comes(&permit.revoke_requested());
    let [one, other] =
        [&ours, &theirs].map(|s| ZkSemaphoreMutex::new(s, "/limits/upload").unwrap());
    let guard = one.lock().unwrap();
    assert!(theirs.attempt_revoke(&other.holders().unwrap()[0].path).unwrap().is_some());
    comes(&guard.revoke_requested());
    let [election, other] =
        [&ours, &theirs].map(|s| ZkElection::new(s, "/elections/billing").unwrap());
    let candidate = election.join().unwrap();
    let leadership = candidate.wait_leader().unwrap();
    assert!(theirs.attempt_revoke(&other.holders().unwrap()[0].path).unwrap().is_some());
    comes(&leadership.revoke_requested());
    assert!(permit.is_held() && guard.is_held() && leadership.is_held());
}

scenarios![
    the_holders_of_each_lock_with_a_queue_are_asked_by_their_paths,
    a_holder_is_notified_of_a_request_and_releases_when_it_decides_to,
    a_revocation_returns_the_former_data_of_the_node,
    a_holder_is_notified_by_a_client_that_may_write_and_not_read on embedded,
    the_log_names_the_holder_and_the_requester,
    only_curators_message_is_a_request,
    a_request_from_before_the_signal_was_taken_is_reported,
    neither_a_release_nor_a_loss_is_a_request,
    a_request_to_a_waiter_is_reported_once_it_holds,
    a_requested_lock_goes_to_others_and_not_to_the_next_thread_here,
    readers_that_share_a_node_are_notified_together_and_no_reader_joins_them,
    a_request_made_while_the_holder_is_cut_off_is_reported_when_it_is_back,
    a_request_or_its_answer_that_is_lost_is_made_again on embedded,
    a_revocation_ends_in_time_and_names_its_obstacle on embedded,
    a_permit_and_a_leader_are_revoked_by_their_nodes_and_other_nodes_are_not_changed,
];
