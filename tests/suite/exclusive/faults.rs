//! Faults of a lock whose node has a fixed name: to which session does a node belong, and may it be
//! deleted?
use crate::support::{
    at_best,
    contend::{Over, Section, session, spawn_waiting, stat},
    embedded::{LOSE, raw, start},
    logged,
    raw::EPHEMERAL,
    scenarios,
    scene::{
        SOON, queue, session_of, until_empty, until_event, until_renewed, until_state,
        until_watched,
    },
    until,
};
use std::{
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    CancelToken, Error, LossReason, OptionalExt, SessionEvent, SessionState, Wait, ZkExclusiveLock,
    ZkMutex, ZkSession,
};
use zk_test_server::{Matcher, Op, TestServer};

const LOCK: &str = "/locks/orders";
const NODE: &str = "/locks/orders/lock";
/// A part of the path of the connection's own writes.
const NO_OP: &str = "/zk-mutex-no-op-";
/// Long enough to see that something does not come.
const A_WHILE: Duration = Duration::from_millis(300);
const SLACK: Duration = Duration::from_millis(1500);

fn lock(session: &ZkSession) -> ZkExclusiveLock {
    ZkExclusiveLock::new(session, LOCK).unwrap()
}

fn id(session: &ZkSession) -> i64 {
    session.status().session_id.unwrap()
}

/// Two sessions, each with the lock, whose folder exists.
fn two(at: &str) -> ([ZkSession; 2], [ZkExclusiveLock; 2]) {
    let sessions = [session(at), session(at)];
    let locks = sessions.each_ref().map(lock);
    locks[0].lock().unwrap().unlock().unwrap();
    (sessions, locks)
}

// ---- a create without an answer ----

/// A create whose answer was lost may be done much later, so its node is never used.
fn create_whose_answer_is_lost_is_removed_and_the_node_is_made_anew() {
    let (server, at) = start();
    let ([ours, _theirs], [mine, other]) = two(&at);
    let ours = id(&ours);
    for silenced in [false, true] {
        server.clear_log();
        let which = Op::Create.on(NODE);
        if silenced {
            server.silence_reply(which)
        } else {
            server.drop_reply(which)
        }
        let guard = mine.lock().unwrap();
        assert_eq!(server.pending_faults(), 0);
        assert_eq!(server.count(Op::Delete.on(NODE)), 1, "the first node is deleted");
        let node = stat(&at, NODE).unwrap();
        assert_eq!(node.ephemeral_owner, ours);
        server.clear_log();
        assert_eq!(guard.fencing_token().zxid(), node.czxid);
        assert_eq!(server.count(Op::GetData.on(NODE)), 0, "one read has identified the node");
        assert!(other.try_lock().optional().unwrap().is_none());
        // The node is watched like any other.
        let lost = guard.lost();
        raw(&at).delete(NODE).unwrap();
        assert!(lost.wait(SOON).is_some());
        assert_eq!(lost.reason(), Some(LossReason::NodeDeleted));
        drop(guard);
        assert!(other.lock_timeout(SOON).optional().unwrap().is_some());
        until_empty(&at, LOCK);
    }
}

fn create_that_is_lost_is_sent_again() {
    let (server, at) = start();
    let (_sessions, [mine, _]) = two(&at);
    server.clear_log();
    server.drop_request(Op::Create.on(NODE));
    let guard = mine.lock().unwrap();
    assert_eq!((server.pending_faults(), server.count(Op::Create.on(NODE))), (0, 2));
    assert!(guard.is_held());
    guard.unlock().unwrap();
    until_empty(&at, LOCK);
}

/// The folder is made at the wrong moment, the node is made and its reply lost, and the call's
/// deadline comes.
fn create_given_up_in_the_middle_is_removed_and_nothing_else_is() {
    let (server, at) = start();
    let ([ours, _theirs], [mine, other]) = two(&at);
    let session = id(&ours);
    // This create reaches the server after another client's.
    let held = server.hold_requests(Op::Create.on(NODE).session(session));
    let begun = Instant::now();
    let said = mine.lock_timeout(A_WHILE).optional().map(drop);
    assert!(matches!(said, Err(Error::Unavailable { .. })), "{said:?}");
    assert!(at_best(begun) < A_WHILE + SLACK);
    let guard = other.lock().unwrap();
    drop(held);
    assert!(
        mine.try_lock().optional().unwrap().is_none(),
        "the answer comes after the held create"
    );
    assert!(guard.is_held() && stat(&at, NODE).is_some());
    guard.unlock().unwrap();
    // This create is executed after its caller has gone.
    let token = CancelToken::new();
    server.silence_reply(Op::Create.on(NODE).session(session));
    thread::scope(|scope| {
        let locker = scope
            .spawn(|| mine.lock_with(Wait::forever().cancelled_by(&token)).optional().map(drop));
        until("it is made", SOON, || stat(&at, NODE));
        token.cancel();
        assert_eq!(locker.join().unwrap(), Err(Error::Cancelled { path: LOCK.into() }));
    });
    assert!(
        other.try_lock().optional().unwrap().is_none(),
        "the node stays until the silence is noticed"
    );
    assert!(other.lock_timeout(SOON).optional().unwrap().is_some_and(|guard| guard.is_held()));
    assert!(mine.lock_timeout(SOON).optional().unwrap().is_some());
    assert_eq!(id(&ours), session);
    until_empty(&at, LOCK);
}

/// The call ends before it can check whether the node was made.
fn create_whose_answer_is_lost_is_removed_when_its_time_is_up() {
    let (server, at) = start();
    let ([ours, _theirs], [mine, other]) = two(&at);
    let session = id(&ours);
    // Once while there is no connection, and once while the node is read again.
    for refused in [true, false] {
        server.drop_reply(Op::Create.on(NODE).session(session));
        let again = server.hold_requests(Op::Create.on(NODE).session(session).skip(1));
        let token = CancelToken::new();
        thread::scope(|scope| {
            let locker = scope.spawn(|| {
                mine.lock_with(Wait::forever().cancelled_by(&token)).optional().map(drop)
            });
            until("it is made", SOON, || stat(&at, NODE));
            if refused {
                // The client reconnects in between or not: its create is not answered, and no call
                // takes the node.
                server.refuse(true);
                server.cut_connections();
            } else {
                assert!(again.wait(SOON));
            }
            token.cancel();
            assert_eq!(locker.join().unwrap(), Err(Error::Cancelled { path: LOCK.into() }));
        });
        assert_eq!(server.pending_faults(), 0);
        server.refuse(false);
        drop(again);
        assert!(other.lock_timeout(SOON).optional().unwrap().is_some());
        until_empty(&at, LOCK);
        assert_eq!(id(&ours), session);
    }
}

/// An ACL forbids the deletion of the node, which the library knows to be its own.
fn node_of_ours_that_cannot_be_deleted_is_no_contention() {
    const NO_DELETE: i32 = 1 + 2 + 4 + 16;
    let (_server, at) = start();
    let sessions = [session_of(&at, Duration::from_secs(4)), session(&at)];
    let [mine, other] = sessions.each_ref().map(lock);
    let guard = mine.lock().unwrap();
    let mut raw = raw(&at);
    raw.set_acl(LOCK, NO_DELETE).unwrap();
    assert!(matches!(guard.unlock(), Err(Error::NoAuth { op: "unlock", .. })));
    for _ in 0..2 {
        let said = mine.try_lock().map(drop);
        assert!(
            matches!(said, Err(Error::NoAuth { permission: "DELETE", .. })),
            "the node is not another client's: {said:?}"
        );
    }
    assert!(other.try_lock().optional().unwrap().is_none(), "for others the lock is held");
    raw.set_acl(LOCK, NO_DELETE + 8).unwrap();
    assert!(mine.lock().unwrap().is_held());
    until_empty(&at, LOCK);
}

/// The node in the way of our create is that of a hold of this process that was lost. Its guard is
/// dropped behind the create and before the read that shows whose node it is.
fn node_that_is_let_go_behind_our_create_is_waited_for_and_is_no_contention() {
    let (server, at) = start();
    let session = session(&at);
    let mine = ZkExclusiveLock::builder(&session, LOCK);
    let mine = mine.max_hold(Duration::from_millis(500)).build().unwrap();
    // A create without an answer may still be done. So our session has nodes on their way out, and
    // must read the node in the way.
    let elsewhere = ZkMutex::new(&session, "/elsewhere").unwrap();
    elsewhere.lock().unwrap().unlock().unwrap();
    server.drop_request(Op::Create.on("/elsewhere/"));
    elsewhere.lock().unwrap().unlock().unwrap();
    assert_eq!(server.pending_faults(), 0);
    let guard = mine.lock().unwrap();
    until_watched(&at, &guard); // later reads are those of calls
    assert_eq!(guard.lost().wait(SOON), Some(LossReason::HeldTooLong));
    until("another thread has its turn", SOON, || {
        format!("{mine:?}").contains("<unlocked here>").then_some(())
    });
    let unread = server.hold_requests(Op::GetData.on(NODE));
    thread::scope(|scope| {
        let next = scope
            .spawn(|| mine.try_lock().optional().map(|guard| guard.is_some_and(|g| g.is_held())));
        assert!(unread.wait(SOON));
        drop(guard);
        drop(unread);
        assert_eq!(next.join().unwrap(), Ok(true));
    });
    until_empty(&at, LOCK);
}

// ---- a release whose request or answer is lost ----

/// This must never happen: our delete is executed, another session takes the lock, and our delete
/// is sent again.
fn release_sent_again_spares_the_next_owners_node() {
    let (server, at) = start();
    let ([session, _theirs], [mine, other]) = two(&at);
    let ours = id(&session);
    for _ in 0..3 {
        server.clear_log();
        let guard = mine.lock().unwrap();
        thread::scope(|scope| {
            let theirs = spawn_waiting(scope, || other.lock().unwrap());
            server.drop_reply(Op::Delete.on(NODE).session(ours));
            // The later requests on the next connection wait until the other session has the lock.
            // Only the write that is sent before them passes.
            let again = server.hold_requests(Op::Delete.on(NO_OP).session(ours));
            drop(guard);
            let theirs = theirs.join().unwrap();
            assert!(again.wait(SOON), "our session has reconnected and continues the release");
            assert_eq!(server.pending_faults(), 0);
            let node = stat(&at, NODE).unwrap();
            drop(again);
            until_state(&session, SessionState::Connected);
            assert!(
                mine.try_lock().optional().unwrap().is_none(),
                "this call ends after all repeated requests"
            );
            assert_eq!(server.count(Op::Delete.on(NODE).session(ours)), 1);
            assert_eq!(stat(&at, NODE), Some(node));
            assert!(theirs.is_held());
            theirs.unlock().unwrap();
        });
        until_empty(&at, LOCK);
    }
}

fn release_whose_requests_are_lost_is_done() {
    let (server, at) = start();
    let ([ours, _theirs], [mine, other]) = two(&at);
    let session = id(&ours);
    for which in [Op::GetData.on(NODE), Op::SetData.on(NODE), Op::Delete.on(NODE)] {
        for lose in LOSE {
            let guard = mine.lock().unwrap();
            let lost = guard.lost();
            until_watched(&at, &guard); // later reads belong to the release
            lose(&server, which.clone().session(session));
            drop(guard);
            assert!(other.lock_timeout(SOON).optional().unwrap().is_some(), "{which:?}");
            assert_eq!(server.pending_faults(), 0);
            until_empty(&at, LOCK);
            assert!(
                lost.receiver().try_recv().is_err_and(|e| e.is_empty()),
                "a release is no loss"
            );
        }
    }
    assert_eq!(id(&ours), session);
}

fn release_is_done_over_cuts_restarts_and_black_holes() {
    let (server, at) = start();
    let ours = session_of(&at, Duration::from_secs(6));
    let (mine, events, session) = (lock(&ours), ours.subscribe(), id(&ours));
    let faults: [fn(&TestServer, &ZkSession); 3] = [
        |server, _| server.cut_connections(),
        |server, _| server.restart(),
        |server, ours| {
            server.black_hole(true);
            until_state(ours, SessionState::Suspended);
            server.black_hole(false);
        },
    ];
    for fault in faults {
        for step in [Op::GetData.on(NODE), Op::SetData.on(NODE), Op::Delete.on(NODE)] {
            let guard = mine.lock().unwrap();
            until_watched(&at, &guard);
            let held = server.hold_requests(step.session(session));
            drop(guard);
            assert!(held.wait(SOON));
            fault(&server, &ours);
            drop(held);
            until_event(&events, |event| *event == SessionEvent::Reconnected);
            until_empty(&at, LOCK);
        }
    }
    assert!(mine.try_lock().optional().unwrap().is_some());
    assert_eq!(id(&ours), session);
}

fn unlock_without_an_answer_says_so_and_the_node_goes() {
    let (server, at) = start();
    let ours = session_of(&at, Duration::from_secs(6));
    let mine = lock(&ours);
    let guard = mine.lock().unwrap();
    server.black_hole(true);
    let begun = Instant::now();
    let said = guard.unlock();
    assert!(matches!(said, Err(Error::Unavailable { op: "unlock", .. })), "{said:?}");
    assert!(at_best(begun) < ours.status().timeout / 6 + SLACK);
    server.black_hole(false);
    until_empty(&at, LOCK);
    assert!(mine.lock_timeout(SOON).optional().unwrap().is_some());
}

// ---- changes of our node by third parties ----

fn holder_whose_node_another_replaces_is_notified_and_leaves_the_new_node_alone() {
    let (server, at) = start();
    let ([ours, _theirs], [mine, other]) = two(&at);
    for asked in [true, false] {
        let guard = mine.lock().unwrap();
        let lost = guard.lost();
        if asked {
            until_watched(&at, &guard);
        }
        thread::scope(|scope| {
            let theirs = spawn_waiting(scope, || other.lock().unwrap());
            raw(&at).delete(NODE).unwrap();
            let theirs = theirs.join().unwrap();
            assert!(lost.wait(SOON).is_some());
            assert_eq!(guard.lost_reason(), Some(LossReason::NodeDeleted));
            assert!(
                guard.fencing_token() < theirs.fencing_token(),
                "the token of a lost hold stays the same"
            );
            server.clear_log();
            assert!(matches!(
                guard.unlock(),
                Err(Error::Lost { reason: LossReason::NodeDeleted, .. })
            ));
            assert!(mine.try_lock().optional().unwrap().is_none());
            until("our session has read the node", SOON, || {
                (server.count(Op::GetData.on(NODE).session(id(&ours))) > 0).then_some(())
            });
            assert!(
                mine.try_lock().optional().unwrap().is_none(),
                "this call ends after all requests that follow the read"
            );
            assert_eq!(server.count(Op::Delete.on(NODE)), 0);
            assert!(theirs.is_held() && stat(&at, NODE).is_some());
            theirs.unlock().unwrap();
        });
        until_empty(&at, LOCK);
    }
}

/// A third party replaces the node before the session has read it after the create: the lock is not
/// granted.
fn node_replaced_behind_its_create_is_not_granted() {
    let (server, at) = start();
    let ([ours, theirs], [mine, other]) = two(&at);
    for replaced in [true, false] {
        let unseen = server.hold_requests(Op::GetData.on(NODE).session(id(&ours)));
        thread::scope(|scope| {
            let locker = scope.spawn(|| mine.lock().unwrap().is_held());
            assert!(unseen.wait(SOON));
            raw(&at).delete(NODE).unwrap();
            let guard = replaced.then(|| other.lock().unwrap());
            server.clear_log();
            drop(unseen);
            if let Some(guard) = guard {
                until("our session has read the node", SOON, || {
                    (server.count(Op::Create.on(NODE).session(id(&ours))) > 0).then_some(())
                });
                assert!(
                    other.holders().unwrap().iter().any(|holder| holder.session_id == id(&theirs))
                );
                assert!(!locker.is_finished() && guard.is_held());
                guard.unlock().unwrap();
            }
            assert!(locker.join().unwrap());
        });
        until_empty(&at, LOCK);
    }
}

/// The node was deleted while the holder was disconnected, so there is no event: the holder finds
/// it on the next connection.
fn holder_whose_node_is_replaced_while_it_is_cut_off_is_notified() {
    let (server, at) = start();
    let ([ours, _theirs], [mine, other]) = two(&at);
    let guard = mine.lock().unwrap();
    let token = guard.fencing_token();
    let held = server.hold_requests(Matcher::any().session(id(&ours)));
    server.cut_connections();
    raw(&at).delete(NODE).unwrap();
    let theirs = other.lock_timeout(SOON).optional().unwrap().unwrap();
    drop(held);
    until("the loss is known", SOON, || (!guard.is_held()).then_some(()));
    assert_eq!(guard.lost_reason(), Some(LossReason::NodeDeleted));
    assert!(theirs.fencing_token() > token);
    drop(guard);
    // The loss is known before the session is connected again.
    until_state(&ours, SessionState::Connected);
    assert!(mine.try_lock().optional().unwrap().is_none() && theirs.is_held());
    theirs.unlock().unwrap();
    until_empty(&at, LOCK);
}

/// An event of the previous node comes while our create is unanswered. It must not count for our
/// node.
fn event_of_the_node_before_ours_is_no_loss() {
    let (server, at) = start();
    let ([ours, _theirs], [mine, other]) = two(&at);
    let ours = id(&ours);
    let theirs = other.lock().unwrap();
    assert!(
        mine.lock_timeout(A_WHILE).optional().unwrap().is_none(),
        "a watch on the previous node stays"
    );
    let held = server.hold_requests(Op::Create.on(NODE).session(ours));
    thread::scope(|scope| {
        let locker = scope.spawn(|| mine.lock().unwrap());
        assert!(held.wait(SOON));
        server.clear_log();
        theirs.unlock().unwrap();
        drop(held);
        let guard = locker.join().unwrap();
        assert_eq!(server.count(Op::Create.on(NODE).session(ours)), 1);
        assert_eq!(
            server.count(Op::GetData.on(NODE).session(ours)),
            1,
            "the session has checked the node"
        );
        assert!(guard.is_held());
        assert!(guard.lost().wait(A_WHILE).is_none());
        guard.unlock().unwrap();
    });
    until_empty(&at, LOCK);
}

fn data_set_on_our_node_is_no_loss_and_its_release_deletes_it() {
    let (_server, at) = start();
    let (_sessions, [mine, other]) = two(&at);
    let guard = mine.lock().unwrap();
    let lost = guard.lost();
    until_watched(&at, &guard);
    for data in [&b"others"[..], b"words"] {
        raw(&at).set_data(NODE, data).unwrap();
        assert!(lost.wait(A_WHILE).is_none());
    }
    assert!(guard.is_held());
    guard.unlock().unwrap();
    assert_eq!(queue(&at, LOCK), [""; 0]);
    assert!(other.try_lock().optional().unwrap().is_some());
}

fn folder_deleted_under_holder_and_waiter_is_made_again() {
    let (server, at) = start();
    let ([_ours, theirs], [mine, other]) = two(&at);
    thread::scope(|scope| {
        let guard = mine.lock().unwrap();
        until_watched(&at, &guard);
        let waiter = spawn_waiting(scope, || other.lock().unwrap().is_held());
        let held = server.hold_requests(Op::Create.on(NODE).session(id(&theirs)));
        raw(&at).delete_recursive("/locks").unwrap();
        drop(held);
        assert!(waiter.join().unwrap());
        until("the loss is known", SOON, || (!guard.is_held()).then_some(()));
        drop(guard);
    });
    until_empty(&at, LOCK);
}

// ---- sessions ----

fn expired_session_loses_the_hold_and_its_release_spares_the_next() {
    let (server, at) = start();
    let ([ours, _theirs], [mine, other]) = two(&at);
    let events = ours.subscribe();
    thread::scope(|scope| {
        let guard = mine.lock().unwrap();
        let lost = guard.lost();
        let theirs = spawn_waiting(scope, || other.lock().unwrap());
        assert!(server.expire_session(id(&ours)));
        assert!(lost.wait(SOON).is_some());
        let theirs = theirs.join().unwrap();
        until_event(&events, |event| matches!(event, SessionEvent::Connected { .. }));
        drop(guard);
        assert!(mine.try_lock().optional().unwrap().is_none());
        assert!(theirs.is_held() && stat(&at, NODE).is_some());
        theirs.unlock().unwrap();
    });
    assert!(mine.lock().unwrap().is_held());
    until_empty(&at, LOCK);
}

fn waiter_waits_on_over_everything() {
    let (server, at) = start();
    let sessions = [session_of(&at, Duration::from_secs(6)), session(&at)];
    let [mine, other] = sessions.each_ref().map(lock);
    let [ours, _] = &sessions;
    let faults: [fn(&TestServer, &ZkSession); 4] = [
        |server, _| server.cut_connections(),
        |server, _| server.restart(),
        |server, ours| {
            server.black_hole(true);
            until_state(ours, SessionState::Suspended);
            server.black_hole(false);
        },
        |server, ours| assert!(server.expire_session(id(ours))),
    ];
    for fault in faults {
        let guard = other.lock().unwrap();
        let may_have = AtomicBool::new(false);
        thread::scope(|scope| {
            let events = ours.subscribe();
            let waiter = spawn_waiting(scope, || {
                let guard = mine.lock().unwrap();
                assert!(may_have.load(SeqCst), "granted while another session holds the lock");
                assert!(guard.is_held());
            });
            fault(&server, ours);
            until_event(&events, |event| {
                matches!(event, SessionEvent::Reconnected | SessionEvent::Connected { .. })
            });
            until_state(&sessions[1], SessionState::Connected);
            thread::sleep(A_WHILE);
            assert!(!waiter.is_finished() && guard.is_held());
            may_have.store(true, SeqCst);
            drop(guard);
            until("the waiter gets it", SOON, || waiter.is_finished().then_some(()));
            waiter.join().unwrap();
        });
        until_empty(&at, LOCK);
    }
}

fn node_that_goes_while_the_waiter_is_cut_off_is_not_missed() {
    let (server, at) = start();
    let ([ours, _theirs], [mine, other]) = two(&at);
    thread::scope(|scope| {
        let guard = other.lock().unwrap();
        let waiter = spawn_waiting(scope, || mine.lock().unwrap().is_held());
        let held = server.hold_requests(Matcher::any().session(id(&ours)));
        server.cut_connections();
        guard.unlock().unwrap();
        drop(held);
        until("the waiter gets it", SOON, || waiter.is_finished().then_some(()));
        assert!(waiter.join().unwrap());
    });
    until_empty(&at, LOCK);
}

/// The lease is over and the session lives: the node stays until the guard is dropped, and is then
/// deleted.
fn hold_that_outlived_its_lease_keeps_others_out_until_it_is_dropped() {
    let (server, at) = start();
    let (ours, theirs) = (session_of(&at, Duration::from_secs(6)), session(&at));
    let (mine, other) = (lock(&ours), lock(&theirs));
    let session = ours.status().session_id;
    let guard = mine.lock().unwrap();
    let lost = guard.lost();
    until_renewed(&ours);
    let held = server.hold_requests(Matcher::any().session(id(&ours)));
    assert!(lost.wait(SOON).is_some());
    assert_eq!(lost.reason(), Some(LossReason::LeaseExpired));
    drop(held);
    until_state(&ours, SessionState::Connected);
    assert_eq!(ours.status().session_id, session, "resumed");
    assert!(!guard.is_held() && stat(&at, NODE).is_some());
    // The first hold has ended: another thread's call reads the node and finds it.
    for lock in [&mine, &other] {
        assert!(lock.lock_timeout(A_WHILE).optional().unwrap().is_none());
    }
    thread::scope(|scope| {
        let next = spawn_waiting(scope, || mine.lock().unwrap().is_held());
        drop(guard);
        assert!(next.join().unwrap());
    });
    assert!(other.lock_timeout(SOON).optional().unwrap().is_some());
    until_empty(&at, LOCK);
}

/// The loss of a hold is logged by the thread that is the first to find it, which may be a caller's.
/// A logger that blocks there must keep no thread from the lock.
fn a_logger_that_blocks_at_a_loss_keeps_no_thread_from_the_lock() {
    let (server, at) = start();
    let ours = session_of(&at, Duration::from_secs(3));
    let mine = lock(&ours);
    let guard = mine.lock().unwrap();
    until_renewed(&ours);
    let held = server.hold_requests(Matcher::any().session(id(&ours)));
    let logger = logged::hold("lock lost");
    until("the loss is found", SOON, || (!guard.is_held()).then_some(()));
    assert!(logger.wait(SOON));
    let asked = mine.try_lock().optional().map(drop);
    assert!(matches!(asked, Err(Error::Unavailable { .. })), "{asked:?}");
    drop((held, guard));
    assert!(mine.lock_timeout(SOON).optional().unwrap().is_some());
    drop(logger);
    until_empty(&at, LOCK);
}

fn try_lock_and_timeouts_end_in_time_in_a_black_hole() {
    let (server, at) = start();
    let ours = session_of(&at, Duration::from_secs(6));
    let mine = lock(&ours);
    mine.lock().unwrap().unlock().unwrap();
    server.black_hole(true);
    let limit = ours.status().timeout / 6;
    for _ in 0..2 {
        for (said, limit) in [
            (
                Box::new(|| mine.try_lock().optional().map(drop))
                    as Box<dyn Fn() -> zk_mutex::Result<()>>,
                limit,
            ),
            (Box::new(|| mine.lock_timeout(A_WHILE).optional().map(drop)), A_WHILE),
            (Box::new(|| mine.holders().map(drop)), limit * 2),
        ] {
            let begun = Instant::now();
            let said = said();
            assert!(matches!(said, Err(Error::Unavailable { .. })), "{said:?}");
            assert!(at_best(begun) < limit + SLACK, "{:?}", begun.elapsed());
        }
    }
    server.black_hole(false);
    assert!(mine.lock_timeout(SOON).optional().unwrap().is_some());
    until_empty(&at, LOCK);
}

// ---- all at once ----

fn count_stays_exact_and_nothing_is_left_while_requests_answers_and_connections_are_lost() {
    let (server, at) = start();
    let sessions = [session(&at), session(&at), session(&at)];
    let locks = sessions.each_ref().map(lock);
    let (section, over) = (Section::default(), AtomicBool::new(false));
    let passed = thread::scope(|scope| {
        let all = Over(&over);
        let threads: Vec<_> = locks
            .iter()
            .flat_map(|lock| [lock; 2])
            .map(|lock| {
                let (section, over) = (&section, &over);
                scope.spawn(move || {
                    let mut passed = 0;
                    while !over.load(SeqCst) {
                        let guard = match passed % 3 {
                            0 => lock.try_lock().optional().unwrap_or(None),
                            1 => lock
                                .lock_timeout(Duration::from_millis(40))
                                .optional()
                                .unwrap_or(None),
                            _ => Some(lock.lock().unwrap()),
                        };
                        let Some(guard) = guard else { continue };
                        section.pass();
                        assert!(guard.is_held(), "{:?}", guard.lost_reason());
                        passed += 1;
                    }
                    passed
                })
            })
            .collect();
        for round in 0..60 {
            let before = section.counter();
            let which = [
                Op::Create.on(NODE),
                Op::Delete.on(NODE),
                Op::GetData.on(NODE),
                Op::Delete.on(NO_OP),
            ];
            // The writes of the threads renew the leases, so the library's own write for that may not
            // come for a long time. A session that holds sends it on each new connection.
            let is_rare = round % 4 == 3;
            let which = which[round % 4].clone();
            match round % 3 {
                0 => server.drop_reply(which),
                1 => server.drop_request(which),
                _ => server.cut_connections(),
            }
            let mut looks = 0;
            until("the count goes on", SOON, || {
                let is_pending = server.pending_faults() > 0;
                if is_pending && is_rare && looks % 50 == 0 {
                    server.cut_connections();
                }
                looks += 1;
                (!is_pending && section.counter() > before + 4).then_some(())
            });
        }
        drop(all);
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
    });
    assert_eq!(section.counter(), passed);
    until_empty(&at, LOCK);
    // No late delete hits the next holder's node.
    let mut next = raw(&at);
    next.create(NODE, b"", EPHEMERAL).unwrap();
    thread::sleep(A_WHILE);
    assert_eq!(stat(&at, NODE).map(|node| node.ephemeral_owner), Some(next.session_id()));
}

fn node_whose_data_is_set_after_its_create_is_still_ours() {
    let (server, at) = start();
    let session = session(&at);
    let lock = lock(&session);
    lock.lock().unwrap().unlock().unwrap();
    thread::scope(|scope| {
        let held = server.hold_requests(Op::GetData.on(NODE));
        let locker = scope.spawn(|| {
            lock.lock_timeout(SOON).optional().unwrap().expect("the lock is granted").unlock()
        });
        assert!(held.wait(SOON));
        raw(&at).set_data(NODE, b"x").unwrap();
        drop(held);
        assert_eq!(locker.join().unwrap(), Ok(()));
    });
    until_empty(&at, LOCK);
}

scenarios![
    on embedded;
    create_whose_answer_is_lost_is_removed_and_the_node_is_made_anew,
    create_that_is_lost_is_sent_again,
    create_given_up_in_the_middle_is_removed_and_nothing_else_is,
    create_whose_answer_is_lost_is_removed_when_its_time_is_up,
    node_of_ours_that_cannot_be_deleted_is_no_contention,
    node_that_is_let_go_behind_our_create_is_waited_for_and_is_no_contention,
    release_sent_again_spares_the_next_owners_node,
    release_whose_requests_are_lost_is_done,
    release_is_done_over_cuts_restarts_and_black_holes,
    unlock_without_an_answer_says_so_and_the_node_goes,
    holder_whose_node_another_replaces_is_notified_and_leaves_the_new_node_alone,
    node_replaced_behind_its_create_is_not_granted,
    holder_whose_node_is_replaced_while_it_is_cut_off_is_notified,
    event_of_the_node_before_ours_is_no_loss,
    data_set_on_our_node_is_no_loss_and_its_release_deletes_it,
    folder_deleted_under_holder_and_waiter_is_made_again,
    expired_session_loses_the_hold_and_its_release_spares_the_next,
    waiter_waits_on_over_everything,
    node_that_goes_while_the_waiter_is_cut_off_is_not_missed,
    hold_that_outlived_its_lease_keeps_others_out_until_it_is_dropped,
    a_logger_that_blocks_at_a_loss_keeps_no_thread_from_the_lock,
    try_lock_and_timeouts_end_in_time_in_a_black_hole,
    node_whose_data_is_set_after_its_create_is_still_ours,
    count_stays_exact_and_nothing_is_left_while_requests_answers_and_connections_are_lost,
];
