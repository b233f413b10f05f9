//! Locks that others have, locks that are lost, and calls that are in vain.
use super::{
    page::{Failures, LOCK, failed},
    program,
};
use crate::support::{
    OpKind, Proxy,
    embedded::{raw, start},
    scenarios,
    scene::{SOON, config, session, session_of},
};
use std::time::Duration;
use zk_mutex::{
    CancelToken, Error, Held, LossReason, Member, Wait, ZkElection, ZkMultiLock, ZkMutex, ZkRwLock,
    ZkSemaphore, ZkSession,
};
use zk_test_server::Op;
use zk_wire::{
    code::{err, xid},
    record::ReplyHeader,
};

pub const VARIANTS: &[&str] = &[
    "WouldBlock",
    "TimedOut",
    "Paused",
    "Lost",
    "WouldDeadlock",
    "InconsistentPermits",
    "Cancelled",
    "Closed",
    "Forked",
    "Several",
];

const OTHER: &str = "/locks/rates";
const ALL: i32 = 31;

fn calls_that_get_no_lock_print_what_the_page_says() {
    let (_server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let mut failures = Failures::of(&[
        "WouldBlock",
        "TimedOut",
        "Paused",
        "WouldDeadlock",
        "InconsistentPermits",
        "Cancelled",
        "Closed",
        "Several",
    ]);
    let (lock, held_by_others) =
        (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    let guard = held_by_others.lock().unwrap();
    failures.add(&failed(lock.try_lock()), &[]);
    failures.add(&failed(lock.lock_timeout(Duration::from_millis(300))), &[]);
    let token = CancelToken::new();
    token.cancel();
    failures.add(&failed(lock.lock_with(Wait::timeout(SOON).cancelled_by(&token))), &[]);
    guard.unlock().unwrap();

    let rates = ZkRwLock::new(&ours, OTHER).unwrap();
    let read = rates.read().unwrap();
    failures.add(&failed(rates.write()), &[(OTHER, LOCK)]);
    drop(read);
    failures.add(&failed(ZkMultiLock::new([&lock, &lock])), &[]);
    let both = ZkMultiLock::new([Member::from(&lock), Member::write(&rates)]).unwrap();
    let guard = lock.lock().unwrap();
    failures.add(&failed(both.lock()), &[]);
    guard.unlock().unwrap();

    let permits = "/permits/api";
    ZkSemaphore::new(&theirs, permits, 3).unwrap().permits().unwrap();
    failures.add(&failed(ZkSemaphore::new(&ours, permits, 2).unwrap().acquire()), &[]);
    let paused = ZkSemaphore::new(&ours, permits, 3).unwrap();
    paused.set_permits(0).unwrap();
    failures.add(&failed(paused.try_acquire()), &[]);

    let guard = both.lock().unwrap();
    for path in [LOCK, OTHER] {
        raw(&at).set_acl(path, ALL & !8).unwrap(); // no DELETE
    }
    let error = failed(guard.unlock());
    let Error::Several { failures: each } = &error else { panic!("{error:?}") };
    let each: Vec<String> = each.iter().map(ToString::to_string).collect();
    failures.add(&error, &[(&each[0], "ERROR"), (&each[1], "ERROR")]);

    ours.close().unwrap();
    failures.add(&failed(lock.lock()), &[]);
    failures.check();
}

fn each_loss_prints_what_the_page_says() {
    let (server, at) = start();
    let mut failures = Failures::of(&["Lost", "Forked"]);
    let mut add = |held: &Held, reason: LossReason| {
        assert_eq!(held.lost().wait(SOON), Some(reason));
        failures.add(&failed(held.check()), &[(held.path(), "NODE")]);
    };

    let short = session_of(&at, Duration::from_secs(3));
    let guard = ZkMutex::new(&short, "/locks/a").unwrap().lock().unwrap();
    server.black_hole(true);
    add(&guard, LossReason::LeaseExpired);
    server.black_hole(false);
    drop(guard);

    // The events of the end do not come, and the next connection is told of it.
    let proxy = Proxy::start(at.parse().unwrap());
    let expired = session(&proxy.connect_string());
    let guard = ZkMutex::new(&expired, "/locks/b").unwrap().lock().unwrap();
    proxy.hold_replies(true);
    assert!(server.expire_session(expired.status().session_id.unwrap()));
    proxy.cut();
    proxy.hold_replies(false);
    add(&guard, LossReason::SessionExpired);
    drop(guard);

    // The next server does not take the credentials.
    let proxy = Proxy::start(at.parse().unwrap());
    let refused = config(proxy.connect_string()).auth("digest", "orders:secret");
    let refused = ZkSession::connect(refused.session_timeout(SOON)).unwrap();
    let guard = ZkMutex::new(&refused, "/locks/c").unwrap().lock().unwrap();
    let asked = server.hold_requests(Op::Auth);
    let attached = proxy.on_reply(OpKind::Connect, SOON);
    proxy.cut();
    attached.wait();
    assert!(asked.wait(SOON));
    proxy.inject(&ReplyHeader { xid: xid::AUTH, zxid: 0, err: err::AUTH_FAILED }.frame(&[]));
    add(&guard, LossReason::AuthFailed);
    drop((guard, asked));

    let session = session(&at);
    let guard = ZkMutex::new(&session, "/locks/d").unwrap().lock().unwrap();
    let lost = guard.lost(); // the node is watched
    raw(&at).delete(guard.path()).unwrap();
    add(&guard, LossReason::NodeDeleted);
    drop((guard, lost));

    let short = ZkMutex::builder(&session, "/locks/e").max_hold(Duration::from_millis(1));
    let guard = short.build().unwrap().lock().unwrap();
    add(&guard, LossReason::HeldTooLong);
    drop(guard);

    let candidate = ZkElection::new(&session, "/election").unwrap().join().unwrap();
    let leadership = candidate.wait_leader().unwrap();
    candidate.leave().unwrap();
    add(&leadership, LossReason::Resigned);

    let guard = ZkMutex::new(&session, LOCK).unwrap().lock().unwrap();
    session.close().unwrap();
    add(&guard, LossReason::SessionClosed);

    // No failure from outside ends the library's own thread: that would be a bug of the library.
    let (path, reason) = ("NODE".to_owned(), LossReason::Internal);
    failures.not_made(&Error::Lost { path, reason }, &[]);

    for line in program::forked(&at) {
        failures.add_line(&line);
    }
    failures.check();
}

scenarios![
    calls_that_get_no_lock_print_what_the_page_says on embedded,
    each_loss_prints_what_the_page_says on embedded,
];
