//! Faults of permits: nodes are deleted, requests and answers are lost, a waiter loses its place in
//! the queue, or the number changes at the worst moment.
use crate::{
    semaphore::permits::{LEASES, LOCKS, Room, data, semaphore, set_data, until_nothing_left},
    support::{
        Ensemble, Raw, Server, Shared, at_best,
        contend::{Over, proxied, session, spawn_waiting, stat, until_queue},
        embedded::{LOSE, flap, raw, start},
        process::{Process, child},
        scenarios,
        scene::{
            SOON, full_path, name, queue, session_of, until_event, until_node_watched,
            until_renewed, until_state, until_watched,
        },
        until,
    },
};
use parking_lot::Mutex;
use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Config, Error, LossReason, OptionalExt, RetryPolicy, SessionEvent, SessionState, Wait,
    ZkPermit, ZkSemaphore, ZkSemaphoreMutex, ZkSession,
};
use zk_test_server::Op;

const PATH: &str = "/limits/downloads";
const LEASE: &str = "-lease-";
const LOCK: &str = "-lock-";
/// Long enough to see that something does not come.
const A_WHILE: Duration = Duration::from_millis(300);
const SLACK: Duration = Duration::from_millis(1500);

/// A session that reconnects at once after a cut, so that more faults fit into the time.
fn eager(at: &str) -> ZkSession {
    let eager = RetryPolicy {
        base: Duration::from_millis(5),
        cap: Duration::from_millis(20),
        ..RetryPolicy::default()
    };
    let config = Config::new(at).session_timeout(Duration::from_secs(30));
    ZkSession::connect(config.retry_policy(eager)).unwrap()
}

/// Waits until exactly these permits have nodes.
#[track_caller]
fn until_just(at: &str, permits: &[&ZkPermit]) {
    let number: u32 = permits.iter().map(|permit| permit.permits()).sum();
    until("exactly these leases exist", SOON, || {
        let names = queue(at, LEASES);
        let has_all =
            permits.iter().all(|permit| names.iter().any(|known| known == name(permit.path())));
        (has_all && names.len() == number as usize).then_some(())
    });
}

/// Waits for a lease that is not one of these.
#[track_caller]
fn newcomer(at: &str, known: &[String]) -> String {
    until("another lease is made", SOON, || {
        queue(at, LEASES).into_iter().find(|name| !known.contains(name))
    })
}

#[track_caller]
fn delete(at: &str, folder: &str, name: &str) {
    raw(at).delete(&full_path(at, &format!("{folder}/{name}"))).unwrap();
}

// ---- requests and answers that are lost ----

fn lost_creates_and_deletes_leave_no_orphan_and_no_permit_too_many() {
    let (server, at) = start();
    let (ours, theirs) = (eager(&at), session(&at));
    let (one, other) = (semaphore(&ours, 2), semaphore(&theirs, 2));
    let id = ours.status().session_id;
    for lose in LOSE {
        for which in [
            Op::Create.on(LEASE),
            Op::Create.on(LEASE).skip(1),
            Op::Create.on(LOCK),
            Op::Delete.on(LOCK),
            Op::GetChildren.on("/leases"),
            Op::GetData.on(PATH),
        ] {
            lose(&server, which.clone());
            let permits = one.acquire_many(2).unwrap();
            until("the fault was injected", SOON, || (server.pending_faults() == 0).then_some(()));
            assert!(permits.is_held(), "{which:?}");
            until_just(&at, &[&permits]);
            assert!(other.try_acquire().optional().unwrap().is_none());
            // First the first of the two deletes is lost, then the second, of an unlock and of a
            // drop.
            lose(&server, Op::Delete.on(LEASE));
            drop(permits);
            let theirs =
                other.acquire_many_with(2, Wait::timeout(SOON)).optional().unwrap().unwrap();
            // The fault has cut our connection, and a call that only tries says so until it is back.
            let tried =
                until("our session answers again", SOON, || one.try_acquire().optional().ok());
            assert!(tried.is_none());
            theirs.release().unwrap();
            let permits = one.acquire_many(2).unwrap();
            lose(&server, Op::Delete.on(LEASE).skip(1));
            permits.release().unwrap();
            until_nothing_left(&at);
            assert_eq!(server.pending_faults(), 0);
        }
    }
    assert_eq!(ours.status().session_id, id, "the session is the same, so it has deleted the node");
}

/// Permits are free, and another thread of this process is ahead, whose request has no answer yet.
/// Nobody has said then that the permits are taken.
fn a_try_beside_a_thread_without_an_answer_does_not_say_that_permits_are_taken() {
    let (server, at) = start();
    let ours = session_of(&at, Duration::from_secs(12));
    let semaphore = semaphore(&ours, 2);
    thread::scope(|scope| {
        let counting = server.hold_requests(Op::GetChildren.on(LEASES));
        let tried = scope.spawn(|| semaphore.try_acquire().optional());
        assert!(counting.wait(SOON), "it counts the permits");
        let created = server.hold_requests(Op::Create.on(LOCK));
        let ahead = spawn_waiting(scope, || semaphore.acquire().unwrap());
        drop(counting);
        assert!(created.wait(SOON), "the other thread has the turn");
        let tried = tried.join().unwrap().map(drop);
        assert!(matches!(&tried, Err(Error::Unavailable { .. })), "{tried:?}");
        drop(created);
        assert!(ahead.join().unwrap().is_held());
    });
    until_nothing_left(&at);
}

fn one_that_fails_half_way_leaves_nothing_of_many() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 3), semaphore(&theirs, 3));
    // The third create is held back until the deadline has passed, and is applied afterwards.
    let held = server.hold_requests(Op::Create.on(LEASE).skip(2));
    let start = Instant::now();
    let said = one.acquire_many_with(3, Wait::timeout(A_WHILE)).optional().map(drop);
    assert!(matches!(&said, Err(Error::Unavailable { path, .. }) if path == PATH), "{said:?}");
    assert!(at_best(start) < A_WHILE + SLACK);
    drop(held);
    assert_eq!(
        other
            .acquire_many_with(3, Wait::timeout(SOON))
            .optional()
            .unwrap()
            .map(|three| three.permits()),
        Some(3)
    );
    until_nothing_left(&at);
    // An ACL forbids all listings: the nodes that were made are deleted, and the place in the queue
    // becomes free.
    let mut admin = raw(&at);
    admin.mkdirs(LEASES).unwrap();
    admin.set_acl(LEASES, 4 + 8 + 16).unwrap();
    let refused = Error::NoAuth { op: "acquire", path: LEASES.into(), permission: "READ" };
    assert_eq!(one.acquire_many(2).map(drop), Err(refused.clone()));
    assert_eq!(other.acquire().map(drop), Err(refused));
    admin.set_acl(LEASES, 31).unwrap();
    until_nothing_left(&at);
    assert!(other.acquire_many(3).is_ok_and(|three| three.is_held()));
    until_nothing_left(&at);
}

fn session_that_expires_between_two_of_many_gets_all_in_the_next() {
    let (server, at) = start();
    let ours = session(&at);
    let semaphore = semaphore(&ours, 3);
    let id = ours.status().session_id.unwrap();
    let held = server.hold_requests(Op::Create.on(LEASE).skip(1));
    thread::scope(|scope| {
        let acquiring = scope.spawn(|| semaphore.acquire_many(3).unwrap());
        assert!(held.wait(SOON));
        assert!(server.expire_session(id));
        drop(held);
        let three = acquiring.join().unwrap();
        assert!(three.is_held());
        until_just(&at, &[&three]);
        assert!(ours.status().session_id.is_some_and(|now| now != id));
    });
    until_nothing_left(&at);
}

fn first_use_of_a_semaphore_ends_in_time_and_survives_a_lost_answer() {
    let (server, at) = start();
    let (session, hasty) = (eager(&at), session_of(&at, Duration::from_secs(4)));
    for lose in LOSE {
        for op in [Op::GetData, Op::Create] {
            lose(&server, op.on(PATH));
            let made = ZkSemaphore::new(&session, PATH, 2).unwrap();
            assert_eq!((server.pending_faults(), made.acquire().map(drop)), (1, Ok(())));
            assert_eq!(
                (server.pending_faults(), made.permits(), data(&at)),
                (0, Ok(2), b"2".to_vec())
            );
            until_nothing_left(&at);
            raw(&at).delete_recursive(PATH).unwrap();
        }
    }
    raw(&at).create(PATH, b"", 0).unwrap();
    for lose in LOSE {
        set_data(&at, b"");
        lose(&server, Op::SetData.on(PATH));
        let made = ZkSemaphore::new(&session, PATH, 2).unwrap();
        assert_eq!((made.permits(), server.pending_faults(), data(&at)), (Ok(2), 0, b"2".to_vec()));
        lose(&server, Op::SetData.on(PATH));
        made.set_permits(3).unwrap();
        assert_eq!((server.pending_faults(), data(&at)), (0, b"3".to_vec()));
    }
    set_data(&at, b"2");
    server.black_hole(true);
    let start = Instant::now();
    let made = ZkSemaphore::new(&hasty, PATH, 2).unwrap();
    let said = made.permits();
    assert!(matches!(said, Err(Error::Unavailable { op: "permits", .. })), "{said:?}");
    for said in [
        made.try_acquire().optional().map(drop),
        made.acquire_timeout(A_WHILE).optional().map(drop),
    ] {
        let is_ours = |said: &Result<(), Error>| matches!(said, Err(Error::Unavailable { op: "acquire", path, .. }) if path == PATH);
        assert!(is_ours(&said), "{said:?}");
    }
    assert!(at_best(start) < Duration::from_secs(2) + SLACK, "{:?}", start.elapsed());
    server.black_hole(false);
    until_state(&session, SessionState::Connected);
    until_state(&hasty, SessionState::Connected);
    assert!(made.acquire().is_ok_and(|permit| permit.is_held()));
}

fn outage_is_no_contention() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let (ours, theirs) = (session_of(&through, Duration::from_secs(6)), session(&at));
    let (one, other) = (semaphore(&ours, 2), semaphore(&theirs, 2));
    // All permits are taken, but the server cannot be reached any more.
    let held = other.acquire_many(2).unwrap();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || {
            let start = Instant::now();
            let said = one.acquire_timeout(Duration::from_secs(2)).optional().map(drop);
            (said, at_best(start))
        });
        until_queue(&at, LEASES, 3);
        proxy.refuse(true);
        proxy.cut();
        let (said, took) = waiter.join().unwrap();
        assert!(matches!(&said, Err(Error::Unavailable { path, .. }) if path == PATH), "{said:?}");
        assert!(took < Duration::from_secs(2) + SLACK, "{took:?}");
    });
    let start = Instant::now();
    assert!(matches!(one.try_acquire().optional().map(drop), Err(Error::Unavailable { .. })));
    assert!(at_best(start) < Duration::from_secs(1) + SLACK);
    proxy.refuse(false);
    until_state(&ours, SessionState::Connected);
    assert!(
        one.acquire_timeout(SLACK).optional().unwrap().is_none(),
        "now the server has answered"
    );
    drop(held);
    assert!(one.acquire_many_with(2, Wait::timeout(SOON)).optional().unwrap().is_some());
    until_nothing_left(&at);
}

/// The permit is released, but an ACL forbids the deletion of its node.
fn own_node_that_cannot_be_deleted_is_no_contention_until_it_can() {
    let at = Shared::chroot();
    let (ours, theirs) = (session_of(&at, Duration::from_secs(4)), session(&at));
    let (one, other) = (semaphore(&ours, 1), semaphore(&theirs, 1));
    let (id, permit) = (ours.status().session_id, one.acquire().unwrap());
    let mut admin = Raw::connect(&at).unwrap();
    let folder = full_path(&at, LEASES);
    admin.set_acl(&folder, 1 + 4 + 16).unwrap();
    assert!(matches!(permit.release(), Err(Error::NoAuth { .. })));
    assert!(other.try_acquire().optional().unwrap().is_none(), "for others the permit is taken");
    for said in [one.try_acquire().map(drop), one.acquire_timeout(SOON).map(drop)] {
        assert!(matches!(said, Err(Error::NoAuth { permission: "DELETE", .. })), "{said:?}");
    }
    admin.set_acl(&folder, 31).unwrap();
    one.try_acquire().unwrap().release().unwrap();
    assert!(other.try_acquire().is_ok_and(|permit| permit.is_held()));
    assert_eq!(ours.status().session_id, id);
    until_nothing_left(&at);
}

// ---- nodes that third parties delete ----

/// One of two nodes is deleted, and later the session ends, which deletes the other node. Every
/// call of the guard names the first loss.
fn of_two_losses_the_first_is_the_reason() {
    let at = Shared::chroot();
    let ours = session(&at);
    let two = semaphore(&ours, 2).acquire_many(2).unwrap();
    let lost = two.lost();
    let nodes = queue(&at, LEASES);
    let last = nodes.iter().find(|node| **node != name(two.path())).unwrap();
    raw(&at).delete(&full_path(&at, &format!("{LEASES}/{last}"))).unwrap();
    assert!(lost.wait(SOON).is_some());
    ours.close().unwrap();
    let loss = Error::Lost { path: two.path().into(), reason: LossReason::NodeDeleted };
    assert_eq!((lost.reason(), two.lost_reason()), (Some(LossReason::NodeDeleted), lost.reason()));
    assert_eq!(two.check(), Err(loss.clone()));
    assert_eq!(two.release(), Err(loss));
    until_nothing_left(&at);
}

fn permit_whose_node_is_deleted_is_lost() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 2), semaphore(&theirs, 2));
    let (gone, stays) = (one.acquire().unwrap(), one.acquire().unwrap());
    let lost = gone.lost();
    until_watched(&at, &gone); // the watch is set
    delete(&at, LEASES, name(gone.path()));
    assert!(lost.wait(SOON).is_some());
    let loss = Error::Lost { path: gone.path().into(), reason: LossReason::NodeDeleted };
    assert_eq!((gone.check(), stays.check()), (Err(loss.clone()), Ok(())));
    let theirs = other.acquire_timeout(SOON).optional().unwrap().unwrap();
    assert_eq!(gone.release(), Err(loss));
    assert!(stays.is_held() && theirs.is_held());
    drop((stays, theirs));
    until_nothing_left(&at);
}

/// It does not matter which of their nodes is deleted. The places of the others stay taken until
/// the guard is dropped.
fn permits_taken_together_are_lost_with_any_of_them_and_asked_for_by_any() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 3), semaphore(&theirs, 3));
    for which in 0..3 {
        let three = one.acquire_many(3).unwrap();
        let nodes = one.holders().unwrap();
        assert_eq!((three.permits(), nodes.len(), three.check()), (3, 3, Ok(())));
        let (lost, asked) = (three.lost(), three.revoke_requested());
        for node in &nodes {
            until_node_watched(&at, &full_path(&at, &node.path));
        }
        assert!(theirs.attempt_revoke(&nodes[which].path).unwrap().is_some());
        assert!(asked.wait(SOON));
        assert!(lost.reason().is_none() && three.is_held(), "a revocation request is no loss");
        raw(&at).delete(&full_path(&at, &nodes[which].path)).unwrap();
        assert!(lost.wait(SOON).is_some());
        assert_eq!(three.lost_reason(), Some(LossReason::NodeDeleted));
        assert!(!three.is_held() && three.valid_for().is_zero());
        let loss = Error::Lost { path: three.path().into(), reason: LossReason::NodeDeleted };
        assert_eq!(three.check(), Err(loss.clone()));
        assert!(
            other.acquire_many_with(2, Wait::timeout(Duration::ZERO)).optional().unwrap().is_none(),
            "two places are still taken"
        );
        assert_eq!(three.release(), Err(loss));
        assert_eq!(
            other
                .acquire_many_with(3, Wait::timeout(SOON))
                .optional()
                .unwrap()
                .map(|three| three.permits()),
            Some(3)
        );
        until_nothing_left(&at);
    }
}

/// A thread that only tries counts the permits before it has the mutex. A permit that is taken
/// after this count is not free any more.
fn last_permit_that_goes_behind_the_first_count_is_not_given_twice() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 1), semaphore(&theirs, 1));
    drop(other.acquire().unwrap()); // makes the folders
    until_nothing_left(&at);
    let held =
        server.hold_requests(Op::Create.on("-lock-").session(ours.status().session_id.unwrap()));
    thread::scope(|scope| {
        let trying = scope.spawn(|| one.try_acquire().optional().unwrap().map(drop));
        assert!(held.wait(SOON));
        let permit = other.acquire().unwrap();
        drop(held);
        assert_eq!(trying.join().unwrap(), None, "two hold the only permit");
        assert!(permit.is_held());
    });
    until_nothing_left(&at);
}

/// Between the listing that shows the node and the grant: the permit that is then granted does not
/// stay valid.
fn permit_whose_node_is_deleted_behind_the_count_does_not_stay_valid() {
    let (server, at) = start();
    let session = session(&at);
    let semaphore = semaphore(&session, 1);
    drop(semaphore.acquire().unwrap()); // makes the folders
    until_nothing_left(&at);
    for _ in 0..5 {
        let held = server.hold_requests(Op::GetData.on(PATH));
        thread::scope(|scope| {
            let acquiring = scope.spawn(|| semaphore.acquire().unwrap());
            assert!(held.wait(SOON));
            delete(&at, LEASES, &queue(&at, LEASES)[0]);
            drop(held);
            let permit = acquiring.join().unwrap();
            until("the loss is known", SOON, || (!permit.is_held()).then_some(()));
            assert_eq!(permit.lost_reason(), Some(LossReason::NodeDeleted));
        });
        until_nothing_left(&at);
    }
}

/// A waiter watches its node, so it is notified before it is granted anything.
fn waiter_whose_node_is_deleted_behind_the_count_counts_again() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 1), semaphore(&theirs, 1));
    let id = theirs.status().session_id.unwrap();
    for _ in 0..5 {
        let holding = one.acquire().unwrap();
        let known = queue(&at, LEASES);
        thread::scope(|scope| {
            let waiter = spawn_waiting(scope, || other.acquire().unwrap());
            let own = newcomer(&at, &known);
            let held = server.hold_requests(Op::GetData.on(PATH).session(id));
            holding.release().unwrap();
            assert!(held.wait(SOON), "the waiter has listed and reads the number");
            delete(&at, LEASES, &own);
            drop(held);
            let permit = waiter.join().unwrap();
            assert_ne!(name(permit.path()), own);
            assert!(permit.is_held());
            until_just(&at, &[&permit]);
        });
        until_nothing_left(&at);
    }
}

fn lease_deleted_under_a_waiter_is_made_again_at_the_same_place() {
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..3).map(|_| session(&at)).collect();
    let [holder, first, second] = [0, 1, 2].map(|i| semaphore(&sessions[i], 2));
    let held = holder.acquire_many(2).unwrap();
    let known = queue(&at, LEASES);
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let many = spawn_waiting(scope, || {
            let permits = first.acquire_many(2).unwrap();
            order.lock().push(1);
            permits
        });
        until_queue(&at, LEASES, 4);
        let few = spawn_waiting(scope, || {
            let permit = second.acquire().unwrap();
            order.lock().push(2);
            permit
        });
        let before = queue(&at, LEASES);
        let gone = before.iter().find(|name| !known.contains(name)).unwrap();
        delete(&at, LEASES, gone);
        newcomer(&at, &before);
        until_queue(&at, LEASES, 4); // all nodes of the waiter are new
        assert_eq!(queue(&at, LEASES).iter().filter(|name| before.contains(name)).count(), 2);
        drop(held);
        let permits = many.join().unwrap();
        assert!(permits.is_held());
        drop(permits);
        assert!(few.join().unwrap().is_held());
    });
    assert_eq!(order.into_inner(), [1, 2]);
    until_nothing_left(&at);
}

/// The waiter behind it gets the next place; neither waits for the other.
fn mutex_deleted_under_a_waiter_sends_it_to_the_end_of_the_queue() {
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..3).map(|_| session(&at)).collect();
    let [holder, first, second] = [0, 1, 2].map(|i| semaphore(&sessions[i], 1));
    let held = holder.acquire().unwrap();
    until_queue(&at, LOCKS, 0); // the holder has left the mutex; later nodes there are waiters
    let order = Mutex::new(Vec::new());
    let room = Room::of(1);
    let wait = |number, semaphore: &ZkSemaphore| {
        let permit = semaphore.acquire().unwrap();
        room.enter(1);
        order.lock().push(number);
        thread::sleep(Duration::from_millis(50));
        assert!(permit.is_held());
        room.leave(1);
    };
    thread::scope(|scope| {
        let one = spawn_waiting(scope, || wait(1, &first));
        let place = until_queue(&at, LOCKS, 1).remove(0);
        let two = spawn_waiting(scope, || wait(2, &second));
        let behind = until_queue(&at, LOCKS, 2).remove(1);
        delete(&at, LOCKS, &place);
        until("the first is behind the second", SOON, || {
            let mut places = queue(&at, LOCKS);
            places.sort_by_key(|name| name[name.len() - 10..].to_owned());
            (places.len() == 2 && places[0] == behind).then_some(())
        });
        until_queue(&at, LEASES, 2); // those of the holder and of the second waiter
        thread::sleep(A_WHILE);
        assert!(order.lock().is_empty() && held.is_held());
        held.release().unwrap();
        one.join().unwrap();
        two.join().unwrap();
    });
    assert_eq!(order.into_inner(), [2, 1]);
    until_nothing_left(&at);
}

fn mutex_deleted_under_a_lone_waiter_is_taken_again_at_once() {
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at)];
    let [holder, waiter] = [0, 1].map(|i| semaphore(&sessions[i], 1));
    let held = holder.acquire().unwrap();
    until_queue(&at, LOCKS, 0); // the holder has left the mutex; later nodes there are waiters
    let known = queue(&at, LEASES);
    thread::scope(|scope| {
        let waiting = spawn_waiting(scope, || waiter.acquire().unwrap());
        let mut own = newcomer(&at, &known);
        for _ in 0..3 {
            thread::sleep(A_WHILE); // after this time the mutex's node is watched
            delete(&at, LOCKS, &until_queue(&at, LOCKS, 1)[0]);
            own = newcomer(&at, &[known.as_slice(), &[own]].concat());
            until_queue(&at, LEASES, 2);
        }
        until_queue(&at, LOCKS, 1);
        assert!(held.is_held() && !waiting.is_finished());
        held.release().unwrap();
        assert_eq!(name(waiting.join().unwrap().path()), own);
    });
    until_nothing_left(&at);
}

fn everything_deleted_under_holders_and_waiters_is_made_again() {
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..2).map(|_| session(&at)).collect();
    let [one, other] = [0, 1].map(|i| semaphore(&sessions[i], 1));
    for round in 0..5 {
        let held = one.acquire().unwrap();
        let lost = held.lost();
        until_watched(&at, &held);
        thread::scope(|scope| {
            let waiter = spawn_waiting(scope, || other.acquire().unwrap());
            until_queue(&at, LEASES, 2);
            // The waiters make new nodes meanwhile.
            until("all nodes are deleted", SOON, || {
                Raw::connect(&at).unwrap().delete_recursive(&full_path(&at, PATH)).ok()
            });
            assert!(lost.wait(SOON).is_some(), "round {round}");
            drop(waiter.join().unwrap()); // a later deletion may have hit it
        });
        drop(held);
        until_nothing_left(&at);
        assert!(
            other.acquire_timeout(SOON).optional().unwrap().is_some_and(|permit| permit.is_held())
        );
        assert_eq!(data(&at), b"1");
        until_nothing_left(&at);
    }
}

// ---- sessions that are lost, or away ----

fn place_lost_in_an_outage_shorter_than_the_session_is_taken_anew() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let timeout = Duration::from_secs(9);
    let (away, sessions) = (session_of(&through, timeout), [session(&at), session(&at)]);
    let id = away.status().session_id;
    let [holder, behind] = [0, 1].map(|i| semaphore(&sessions[i], 1));
    let waiting = semaphore(&away, 1);
    let held = holder.acquire().unwrap();
    until_queue(&at, LOCKS, 0); // the holder has left the mutex; later nodes there are waiters
    let known = queue(&at, LEASES);
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let one = spawn_waiting(scope, || {
            let permit = waiting.acquire().unwrap();
            order.lock().push(1);
            assert!(permit.is_held());
        });
        let own = newcomer(&at, &known);
        let two = spawn_waiting(scope, || {
            let permit = behind.acquire().unwrap();
            order.lock().push(2);
            assert!(permit.is_held());
        });
        until_queue(&at, LOCKS, 2);
        until_renewed(&away);
        proxy.refuse(true);
        proxy.cut();
        until("the lease has run out", SOON, || {
            away.status().lease_remaining.is_zero().then_some(())
        });
        assert!(queue(&at, LEASES).contains(&own), "the session and its nodes live");
        proxy.refuse(false);
        until_state(&away, SessionState::Connected);
        assert_eq!(away.status().session_id, id);
        until("the second is first", SOON, || {
            let leases = queue(&at, LEASES);
            (leases.len() == 2 && !leases.contains(&own) && queue(&at, LOCKS).len() == 2)
                .then_some(())
        });
        assert!(held.is_held() && order.lock().is_empty());
        held.release().unwrap();
        one.join().unwrap();
        two.join().unwrap();
    });
    assert_eq!(order.into_inner(), [2, 1]);
    assert_eq!(away.status().session_id, id);
    until_nothing_left(&at);
}

fn cut_connections_keep_the_place_and_miss_no_change_of_the_number() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let (ours, theirs) = (session(&through), session(&at));
    let (one, other) = (semaphore(&ours, 1), semaphore(&theirs, 1));
    let held = other.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || one.acquire().unwrap());
        let before = until_queue(&at, LEASES, 2);
        proxy.refuse(true);
        proxy.cut();
        other.set_permits(2).unwrap(); // the session is disconnected, so it gets no event
        proxy.refuse(false);
        let permit = waiter.join().unwrap();
        assert!(
            before.iter().any(|lease| permit.path().ends_with(lease)),
            "the permit has the same node"
        );
        assert!(permit.is_held() && held.is_held());
    });
    drop(held);
    until_nothing_left(&at);
}

fn expired_session_loses_its_permits_and_waits_on_in_the_next() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 2), semaphore(&theirs, 2));
    let (lost, kept) = (one.acquire().unwrap(), other.acquire().unwrap());
    let events = ours.subscribe();
    let signal = lost.lost();
    let id = ours.status().session_id.unwrap();
    thread::scope(|scope| {
        let first = spawn_waiting(scope, || one.acquire_many(2).unwrap());
        until_queue(&at, LEASES, 4);
        let second = spawn_waiting(scope, || other.acquire().unwrap());
        assert!(server.expire_session(id));
        assert!(signal.wait(SOON).is_some());
        assert!(!lost.is_held() && matches!(lost.check(), Err(Error::Lost { .. })));
        until_event(&events, |event| matches!(event, SessionEvent::Connected { .. }));
        // The permit that is now free goes to the waiter behind.
        let second = second.join().unwrap();
        assert!(second.is_held() && kept.is_held());
        drop(lost);
        until_queue(&at, LEASES, 4); // the first waiter is back in the queue
        assert!(!first.is_finished());
        drop((second, kept));
        assert!(first.join().unwrap().is_held());
    });
    assert_ne!(ours.status().session_id, Some(id));
    until_nothing_left(&at);
}

fn permits_are_granted_after_an_outage_that_ended_the_session() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let (ours, theirs) = (session_of(&through, Duration::from_secs(4)), session(&at));
    let (one, other) = (semaphore(&ours, 2), semaphore(&theirs, 2));
    let id = ours.status().session_id;
    let lost = one.acquire().unwrap();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || one.acquire_many(2).unwrap());
        until_queue(&at, LEASES, 3);
        proxy.refuse(true);
        proxy.cut();
        // The permits of the session are free when the server has ended it.
        let both = other.acquire_many_with(2, Wait::timeout(SOON * 2)).optional().unwrap().unwrap();
        assert!(both.is_held() && !lost.is_held());
        proxy.refuse(false);
        until_queue(&at, LEASES, 4);
        assert!(!waiter.is_finished());
        drop(both);
        assert!(waiter.join().unwrap().is_held());
    });
    assert_ne!(ours.status().session_id, id);
    drop(lost);
    until_nothing_left(&at);
}

fn permits_and_the_place_of_a_killed_process_come_free() {
    if let Some(address) = child() {
        let session = session_of(&address, Duration::from_secs(2));
        let semaphore = semaphore(&session, 2);
        let _held = semaphore.acquire().unwrap();
        println!("held");
        let _both = semaphore.acquire_many(2).unwrap();
        return;
    }
    let at = Shared::chroot();
    let here = "permits_and_the_place_of_a_killed_process_come_free";
    let mut process = Process::start(module_path!(), here, &at, &[]);
    assert_eq!(process.says(), "held");
    let session = session(&at);
    let semaphore = semaphore(&session, 2);
    until_queue(&at, LEASES, 3);
    assert!(
        semaphore.try_acquire().optional().unwrap().is_none(),
        "the process waits for two permits, ahead of us"
    );
    drop(process); // killed
    assert_eq!(
        semaphore
            .acquire_many_with(2, Wait::timeout(SOON * 2))
            .optional()
            .unwrap()
            .map(|two| two.permits()),
        Some(2)
    );
    until_nothing_left(&at);
}

/// Runs on both servers.
fn queue_and_permits_outlast_a_restart() {
    let server = Server::start();
    let at = server.connect_string();
    // On a busy machine a server starts slowly, and it must be back within the lease.
    let sessions: Vec<_> = (0..4).map(|_| session_of(&at, Duration::from_secs(36))).collect();
    let semaphores: Vec<_> = sessions.iter().map(|session| semaphore(session, 2)).collect();
    let ids: Vec<_> = sessions.iter().map(|session| session.status().session_id).collect();
    let held = semaphores[0].acquire_many(2).unwrap();
    until_queue(&at, LOCKS, 0); // the holder has left the mutex; later nodes there are waiters
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for place in 1..4 {
            let (semaphores, order) = (&semaphores, &order);
            scope.spawn(move || {
                let permits = semaphores[place].acquire_many(2).unwrap();
                order.lock().push(place);
                thread::sleep(Duration::from_millis(20)); // a wrong grant would show
                assert!(permits.is_held());
            });
            until_queue(&at, LOCKS, place);
        }
        until_queue(&at, LEASES, 4);
        server.restart();
        for session in &sessions {
            until("the session is back", SOON * 2, || {
                (session.status().state == SessionState::Connected).then_some(())
            });
        }
        thread::sleep(A_WHILE);
        assert!(order.lock().is_empty() && held.is_held());
        drop(held);
    });
    assert_eq!(order.into_inner(), [1, 2, 3]);
    assert_eq!(sessions.iter().map(|session| session.status().session_id).collect::<Vec<_>>(), ids);
    until_nothing_left(&at);
}

fn flapping_connections_grant_no_more_than_the_number() {
    const CUTS: usize = 60;
    const ROUNDS: usize = 12;
    const PERMITS: u32 = 3;
    let (server, at) = start();
    let sessions = [(); 2].map(|()| eager(&at));
    let ids = sessions.each_ref().map(|session| session.status().session_id);
    let semaphores = sessions.each_ref().map(|session| semaphore(session, PERMITS));
    let (room, calm, rounds) = (Room::of(PERMITS), AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..6 {
            let semaphore = &semaphores[thread % 2];
            let (room, calm, rounds) = (&room, &calm, &rounds);
            scope.spawn(move || {
                let mut done = 0;
                while done < ROUNDS || !calm.load(SeqCst) {
                    let permits = semaphore.acquire_many(1 + thread as u32 / 2).unwrap();
                    room.enter(permits.permits() as usize);
                    thread::yield_now();
                    assert!(permits.is_held());
                    room.leave(permits.permits() as usize);
                    drop(permits);
                    done += 1;
                    rounds.fetch_add(1, SeqCst);
                }
            });
        }
        let cuts = flap(&server, 5, CUTS, ROUNDS * 6, || rounds.load(SeqCst));
        println!("{} rounds over {cuts} cuts", rounds.load(SeqCst));
        calm.store(true, SeqCst);
    });
    assert_eq!(room.most(), PERMITS);
    until_nothing_left(&at);
    assert_eq!(
        sessions.each_ref().map(|session| session.status().session_id),
        ids,
        "the sessions are the same, so they have deleted the nodes"
    );
}

/// Each session reads from a server of its own, which may not have another session's newest node
/// yet.
fn members_of_an_ensemble_let_in_no_more_than_there_are() {
    const PERMITS: u32 = 2;
    let ensemble = Ensemble::start(3);
    let sessions: Vec<_> =
        (0..3).map(|member| session(&ensemble.member(member).connect_string())).collect();
    let room = Room::of(PERMITS);
    thread::scope(|scope| {
        for thread in 0..6 {
            let (sessions, room) = (&sessions, &room);
            scope.spawn(move || {
                // Without hand-over, so that each permit goes to another session.
                let builder = ZkSemaphore::builder(&sessions[thread % 3], PATH, PERMITS);
                let semaphore = builder.hand_over(Duration::ZERO).build().unwrap();
                for round in 0..40 {
                    let permits = semaphore.acquire_many(1 + u32::from(round % 3 == 0)).unwrap();
                    room.enter(permits.permits() as usize);
                    assert!(permits.is_held());
                    room.leave(permits.permits() as usize);
                }
            });
        }
    });
    assert_eq!(room.most(), PERMITS);
    until_nothing_left(&ensemble.member(0).connect_string());
}

// ---- the number, at the worst moment ----

fn number_lowered_before_the_grant_is_respected() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (one, other) = (semaphore(&ours, 2), semaphore(&theirs, 2));
    drop(one.acquire().unwrap()); // makes the folders
    until_nothing_left(&at);
    for which in [Op::GetChildren.on("/leases"), Op::GetData.on(PATH)] {
        other.set_permits(2).unwrap();
        let first = one.acquire().unwrap();
        let held = server.hold_requests(which.session(theirs.status().session_id.unwrap()));
        thread::scope(|scope| {
            let second = scope.spawn(|| other.acquire().unwrap());
            assert!(held.wait(SOON), "this listing will show two leases");
            set_data(&at, b"1");
            drop(held);
            thread::sleep(A_WHILE);
            assert!(!second.is_finished() && first.is_held());
            first.release().unwrap();
            assert!(second.join().unwrap().is_held());
        });
        until_nothing_left(&at);
    }
}

fn number_that_goes_up_and_down_lets_in_no_more_than_it_ever_was() {
    const MOST: u32 = 4;
    let at = Shared::chroot();
    let sessions: Vec<_> = (0..2).map(|_| session(&at)).collect();
    let semaphores: Vec<_> = sessions.iter().map(|session| semaphore(session, MOST)).collect();
    let (room, over) = (Room::of(MOST), AtomicBool::new(false));
    thread::scope(|scope| {
        let _all = Over(&over);
        for thread in 0..6 {
            let (semaphore, room, over) = (&semaphores[thread % 2], &room, &over);
            scope.spawn(move || {
                while !over.load(SeqCst) {
                    let permit = semaphore
                        .acquire_timeout(SOON)
                        .optional()
                        .unwrap()
                        .expect("the number is never 0 for long");
                    room.enter(1);
                    thread::sleep(Duration::from_millis(1));
                    assert!(permit.is_held());
                    room.leave(1);
                }
            });
        }
        for number in (0..MOST).chain((0..=MOST).rev()).cycle().take(60) {
            semaphores[0].set_permits(number).unwrap();
            thread::sleep(Duration::from_millis(10));
        }
        semaphores[1].set_permits(MOST).unwrap();
    });
    until_nothing_left(&at);
    assert_eq!(semaphores[0].acquire_many(MOST).map(|all| all.permits()), Ok(MOST));
    until_nothing_left(&at);
}

fn more_than_there_are_by_now_is_refused_at_once() {
    let (_server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (semaphore, other) = (semaphore(&ours, 5), semaphore(&theirs, 5));
    other.set_permits(2).unwrap();
    let said = semaphore.acquire_many(4);
    assert!(matches!(said, Err(Error::InvalidConfig { .. })), "{said:?}");
    assert!(other.try_acquire().optional().unwrap().is_some());
    until_nothing_left(&at);
}

fn number_lowered_below_what_one_waits_for_ends_that_wait() {
    let (_server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (semaphore, other) = (semaphore(&ours, 5), semaphore(&theirs, 5));
    let two = other.acquire_many(2).unwrap();
    thread::scope(|scope| {
        let many = spawn_waiting(scope, || semaphore.acquire_many(4).map(|all| all.permits()));
        let behind = spawn_waiting(scope, || other.acquire().map(drop));
        other.set_permits(3).unwrap();
        let said = many.join().unwrap();
        assert!(matches!(said, Err(Error::InvalidConfig { .. })), "{said:?}");
        assert_eq!(behind.join().unwrap(), Ok(()), "no contender is ahead any more");
    });
    drop(two);
    until_nothing_left(&at);
}

fn try_acquire_of_a_free_permit_has_the_time_for_its_requests() {
    let (server, at) = start();
    let session = session_of(&at, Duration::from_secs(30));
    let semaphore = semaphore(&session, 2);
    drop(semaphore.acquire().unwrap());
    // six answers fit into five seconds, a sixth of the timeout
    server.delay(Duration::from_millis(400));
    assert!(semaphore.try_acquire().optional().unwrap().is_some());
    server.delay(Duration::ZERO);
}

fn mutex_of_permits_that_was_only_tried_leaves_no_node() {
    let server = Server::builder().container_check(Duration::from_millis(50)).start();
    let at = server.connect_string();
    let session = session(&at);
    drop(
        ZkSemaphoreMutex::new(&session, "/mutexes/upload")
            .unwrap()
            .try_lock()
            .optional()
            .unwrap()
            .unwrap(),
    );
    until("the folders are deleted", SOON, || stat(&at, "/mutexes").is_none().then_some(()));
}

fn a_number_of_zero_is_joined_by_clients_with_another_number() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    semaphore(&ours, 2).set_permits(0).unwrap();
    let other = semaphore(&theirs, 3);
    assert!(other.try_acquire().optional().unwrap().is_none());
    other.set_permits(3).unwrap();
    assert_eq!(other.acquire_many(3).unwrap().permits(), 3);
}

fn a_number_set_by_a_first_use_whose_answer_never_comes_counts_for_its_handle() {
    let (server, at) = start();
    raw(&at).mkdirs(PATH).unwrap();
    set_data(&at, b"4");
    let session = session_of(&at, Duration::from_secs(4));
    let handle = ZkSemaphore::new(&session, PATH, 4).unwrap();
    // The write is applied and its answer lost, and the next read of the number takes too long.
    server.drop_reply(Op::SetData.on(PATH));
    let held = server.hold_requests(Op::GetData.on(PATH).skip(1));
    let said = handle.set_permits(8);
    assert!(matches!(said, Err(Error::Unavailable { .. })), "{said:?}");
    drop(held);
    until_state(&session, SessionState::Connected);
    assert_eq!(data(&at), b"8");
    assert_eq!((handle.acquire_many(8).map(|all| all.permits()), handle.permits()), (Ok(8), Ok(8)));
}

/// An earlier write of another number may still be on its way. It names the version that it has
/// seen, which must not be that of the node any more.
fn a_number_that_is_there_already_is_written_all_the_same() {
    let (server, at) = start();
    let session = eager(&at);
    let made = ZkSemaphore::new(&session, PATH, 2).unwrap();
    assert_eq!(made.permits(), Ok(2));
    let written = server.count(Op::SetData.on(PATH));
    made.set_permits(2).unwrap();
    assert_eq!(server.count(Op::SetData.on(PATH)), written + 1);
}

scenarios![
    a_number_that_is_there_already_is_written_all_the_same on embedded,
    lost_creates_and_deletes_leave_no_orphan_and_no_permit_too_many on embedded,
    a_try_beside_a_thread_without_an_answer_does_not_say_that_permits_are_taken on embedded,
    one_that_fails_half_way_leaves_nothing_of_many on embedded,
    session_that_expires_between_two_of_many_gets_all_in_the_next on embedded,
    first_use_of_a_semaphore_ends_in_time_and_survives_a_lost_answer on embedded,
    a_number_set_by_a_first_use_whose_answer_never_comes_counts_for_its_handle on embedded,
    last_permit_that_goes_behind_the_first_count_is_not_given_twice on embedded,
    outage_is_no_contention,
    own_node_that_cannot_be_deleted_is_no_contention_until_it_can,
    of_two_losses_the_first_is_the_reason,
    permit_whose_node_is_deleted_is_lost,
    permits_taken_together_are_lost_with_any_of_them_and_asked_for_by_any,
    permit_whose_node_is_deleted_behind_the_count_does_not_stay_valid on embedded,
    waiter_whose_node_is_deleted_behind_the_count_counts_again on embedded,
    lease_deleted_under_a_waiter_is_made_again_at_the_same_place,
    mutex_deleted_under_a_waiter_sends_it_to_the_end_of_the_queue,
    mutex_deleted_under_a_lone_waiter_is_taken_again_at_once,
    everything_deleted_under_holders_and_waiters_is_made_again,
    place_lost_in_an_outage_shorter_than_the_session_is_taken_anew,
    cut_connections_keep_the_place_and_miss_no_change_of_the_number,
    expired_session_loses_its_permits_and_waits_on_in_the_next on embedded,
    permits_are_granted_after_an_outage_that_ended_the_session,
    permits_and_the_place_of_a_killed_process_come_free,
    queue_and_permits_outlast_a_restart,
    flapping_connections_grant_no_more_than_the_number on embedded,
    members_of_an_ensemble_let_in_no_more_than_there_are on real within 300,
    number_lowered_before_the_grant_is_respected on embedded,
    more_than_there_are_by_now_is_refused_at_once on embedded,
    number_lowered_below_what_one_waits_for_ends_that_wait on embedded,
    try_acquire_of_a_free_permit_has_the_time_for_its_requests on embedded,
    mutex_of_permits_that_was_only_tried_leaves_no_node,
    a_number_of_zero_is_joined_by_clients_with_another_number,
    number_that_goes_up_and_down_lets_in_no_more_than_it_ever_was,
];
