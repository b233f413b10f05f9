//! The application's code that panics where the library calls it: its logger, its observer. No
//! thread of the library ends by that, no call panics, nothing is left behind.
use crate::support::{
    Server,
    contend::spawn_waiting,
    logged, scenarios,
    scene::{SOON, next, queue, session, session_of, until_empty, until_event},
    until,
};
use crossbeam_channel::{Sender, unbounded};
use std::{panic, thread, time::Duration};
use zk_mutex::{
    Config, ElectionEvent, LossReason, Observer, OptionalExt, RetryPolicy, SessionEvent,
    SessionState, ZkElection, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSemaphore, ZkSession,
};

const PATH: &str = "/locks/orders";

/// Waits until the logger has panicked so often.
#[track_caller]
fn until_panics(times: usize) {
    until("the logger has panicked", SOON, || (logged::panics() >= times).then_some(()));
}

/// The holder is notified in time and the session recovers after the thread that logs the session's
/// state has panicked, in an outage.
fn session_goes_on_when_the_logger_panics_at_its_news() {
    let server = Server::embedded().start();
    let session = session_of(&server.connect_string(), SOON);
    let events = session.subscribe();
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    let guard = mutex.lock().unwrap();
    let lost = guard.lost();
    logged::trap("session 0x");
    server.embedded_server().cut_connections();
    until_event(&events, |event| *event == SessionEvent::Reconnected);
    until_panics(1);
    assert_eq!(guard.check(), Ok(()));
    thread::scope(|scope| {
        let other =
            scope.spawn(|| drop(ZkMutex::new(&session, "/locks/other").unwrap().lock().unwrap()));
        other.join().unwrap();
    });
    server.embedded_server().black_hole(true);
    assert!(lost.wait(SOON * 2).is_some());
    assert_eq!(lost.reason(), Some(LossReason::LeaseExpired));
    server.embedded_server().black_hole(false);
    drop(guard);
    drop(mutex.lock_timeout(SOON * 2).optional().unwrap().expect("the lock is free"));
    until_panics(3);
}

/// A panic between the grant of a hold and its guard used to leave a node without a guard for the
/// rest of the session.
fn every_lock_is_granted_and_released_where_the_logger_panics_at_the_grant() {
    let server = Server::embedded().start();
    let at = server.connect_string();
    let session = session(&at);
    let mutex = ZkMutex::new(&session, PATH).unwrap();
    let both = ZkRwLock::new(&session, "/locks/rates").unwrap();
    let permits = ZkSemaphore::new(&session, "/locks/permits", 2).unwrap();
    let one = ZkExclusiveLock::new(&session, "/locks/one").unwrap();
    logged::trap(": held");
    for round in 1..3 {
        drop(mutex.lock().unwrap());
        let write = both.write().unwrap();
        drop((both.read().unwrap(), write));
        drop(permits.acquire_many(2).unwrap());
        drop(one.lock().unwrap());
        assert!(logged::panics() >= round * 5, "{}", logged::panics());
    }
    for path in [PATH, "/locks/rates", "/locks/permits", "/locks/one"] {
        until_empty(&at, path);
    }
}

/// The thread of the connection logs each connection attempt. It does not end, and the session
/// stays the same.
fn connection_comes_back_when_the_logger_panics_at_its_dialling() {
    let server = Server::embedded().start();
    let session = session_of(&server.connect_string(), SOON);
    let events = session.subscribe();
    let guard_of = ZkMutex::new(&session, PATH).unwrap();
    let guard = guard_of.lock().unwrap();
    let id = session.status().session_id;
    logged::trap("dialling");
    server.embedded_server().cut_connections();
    assert_eq!(
        (next(&events), next(&events)),
        (SessionEvent::Suspended, SessionEvent::Reconnected)
    );
    until_panics(1);
    assert_eq!((session.status().session_id, guard.check()), (id, Ok(())));
}

/// Two holds end together. A panic of the logger at the first loss must not stop the notification
/// of the second, nor the threads that wait for it.
fn all_losses_are_notified_when_the_logger_panics_at_the_first_one() {
    let server = Server::embedded().start();
    let session = session(&server.connect_string());
    let locks =
        ["/locks/a", "/locks/b", "/locks/c"].map(|path| ZkMutex::new(&session, path).unwrap());
    let guards = locks.each_ref().map(|lock| lock.lock().unwrap());
    let lost = guards.each_ref().map(|guard| guard.lost());
    thread::scope(|scope| {
        // They wait behind guards that stay: only the loss lets them in.
        let waiters =
            locks.each_ref().map(|lock| spawn_waiting(scope, || drop(lock.lock().unwrap())));
        logged::trap("lock lost");
        assert!(server.embedded_server().expire_session(session.status().session_id.unwrap()));
        assert!(lost.iter().all(|lost| lost.wait(SOON).is_some()));
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
    until_panics(3);
    drop(guards);
}

/// A panic's payload whose drop panics too.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !thread::panicking() {
            panic!("the drop of the payload panics too");
        }
    }
}

struct Thrower(Sender<&'static str>);

impl Observer for Thrower {
    fn session_changed(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::Suspended => {
                let _ = self.0.send("suspended");
                panic::panic_any(Bomb);
            }
            SessionEvent::Reconnected => {
                let _ = self.0.send("reconnected");
                panic!("the application's observer");
            }
            SessionEvent::Closed => drop(self.0.send("closed")),
            _ => {}
        }
    }
}

fn observer_that_panics_is_called_again_though_the_logger_panics_at_that() {
    let server = Server::embedded().start();
    let (calls, called) = unbounded();
    let session = ZkSession::builder(
        Config::new(server.connect_string()).session_timeout(Duration::from_secs(4)),
    )
    .observer(Thrower(calls))
    .connect()
    .unwrap();
    logged::trap("an observer panicked");
    for _ in 0..2 {
        server.embedded_server().cut_connections();
        assert_eq!(called.recv_timeout(SOON), Ok("suspended"));
        assert_eq!(called.recv_timeout(SOON), Ok("reconnected"));
        until("the logger has panicked", SOON, || (logged::panics() == 1).then_some(()));
    }
    session.close().unwrap();
    assert_eq!(called.recv_timeout(SOON), Ok("closed"));
    assert_eq!(logged::panics(), 1, "only the first panic of an observer is logged");
    assert!(called.recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
}

fn candidate_leads_and_leaves_though_the_logger_panics_at_its_news() {
    let server = Server::embedded().start();
    let at = server.connect_string();
    let session = session(&at);
    let election = ZkElection::new(&session, PATH).unwrap();
    logged::trap("elect");
    let candidate = election.join().unwrap();
    let leadership = candidate.wait_leader().unwrap();
    assert!(matches!(candidate.events().recv_timeout(SOON), Ok(ElectionEvent::Elected { .. })));
    candidate.leave().unwrap();
    assert_eq!(leadership.lost_reason(), Some(LossReason::Resigned));
    assert_eq!(candidate.events().iter().last(), Some(ElectionEvent::Left));
    assert_eq!(queue(&at, PATH), [""; 0]);
    until_panics(2);
}

/// If no session can be made, the logger panics at each attempt, too.
fn session_is_made_in_the_end_though_the_logger_panics_at_each_attempt() {
    let server = Server::embedded().start();
    let session = ZkSession::connect(
        Config::new(server.connect_string()).session_timeout(Duration::from_secs(4)).retry_policy(
            RetryPolicy { cap: Duration::from_millis(200), ..RetryPolicy::default() },
        ),
    )
    .unwrap();
    let events = session.subscribe();
    logged::trap(""); // the logger panics at every record
    server.embedded_server().refuse(true);
    server.embedded_server().cut_connections();
    until_event(&events, |event| *event == SessionEvent::Suspended);
    server.embedded_server().expire_session(session.status().session_id.unwrap());
    server.embedded_server().refuse(false);
    until_event(&events, |event| matches!(event, SessionEvent::Connected { .. }));
    assert_eq!(session.status().state, SessionState::Connected);
    drop(ZkMutex::new(&session, PATH).unwrap().lock().unwrap());
}

scenarios![on embedded;
    session_goes_on_when_the_logger_panics_at_its_news,
    every_lock_is_granted_and_released_where_the_logger_panics_at_the_grant,
    connection_comes_back_when_the_logger_panics_at_its_dialling,
    all_losses_are_notified_when_the_logger_panics_at_the_first_one,
    observer_that_panics_is_called_again_though_the_logger_panics_at_that,
    candidate_leads_and_leaves_though_the_logger_panics_at_its_news,
    session_is_made_in_the_end_though_the_logger_panics_at_each_attempt,
];
