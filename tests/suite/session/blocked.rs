//! The application's code that blocks where the library calls it: its logger (a full pipe), its
//! observer. Losses are told in time, calls end in time, the session can be closed, and the log has
//! all lines afterwards.
use crate::support::{
    Proxy, Raw, Shared, at_best,
    contend::{proxied, session},
    logged::{self, logged},
    raw, scenarios,
    scene::{
        SOON, config, full_path, session_of, until_empty, until_event, until_renewed, until_state,
    },
    until,
};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use log::Level;
use std::{
    convert::Infallible,
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Error, Held, LossReason, Observer, OptionalExt, SessionEvent, SessionState, ZkElection,
    ZkMutex, ZkSession,
};

const LOCK: &str = "/locks/orders";
const T: Duration = Duration::from_secs(4);
/// The delay that a busy machine may add.
const SLACK: Duration = Duration::from_millis(1500);
/// How long a call waits for a lock that somebody else has.
const A_WHILE: Duration = Duration::from_millis(300);

fn mutex(session: &ZkSession) -> ZkMutex {
    ZkMutex::new(session, LOCK).unwrap()
}

/// Cuts the session off from its server. The hold ends with the lease, at which it is told.
#[track_caller]
fn loses(proxy: &Proxy, ours: &ZkSession, guard: &Held) {
    let lost = guard.lost();
    until_renewed(ours);
    proxy.black_hole(true);
    until("the lease ends", SOON, || ours.status().lease_remaining.is_zero().then_some(()));
    let ended = Instant::now();
    assert_eq!(lost.wait(SOON), Some(LossReason::LeaseExpired));
    assert!(at_best(ended) < SLACK, "{:?}", ended.elapsed());
    assert!(!guard.is_held());
}

/// The logger blocks at the first line about the outage, long before the lease ends.
fn lost_is_told_at_the_end_of_the_lease_though_the_logger_blocks() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let ours = session_of(&through, T);
    let guard = mutex(&ours).lock().unwrap();
    let logger = logged::hold(": suspended");
    loses(&proxy, &ours, &guard);
    assert!(logger.wait(SOON), "the outage is logged");
    assert_eq!(logged(Level::Warn, "lock lost"), [""; 0]);
    thread::sleep(Duration::from_secs(1));
    drop(logger);
    // The lines come late, in their order, and say when they were logged.
    let line = until("the loss is logged", SOON, || logged(Level::Warn, "lock lost").pop());
    assert!(line.ends_with(" s ago)"), "{line}");
    assert_eq!(logged(Level::Info, ": suspended").len(), 1);
    proxy.black_hole(false);
    drop(guard);
    until_empty(&at, LOCK);
}

/// The logger blocks in one thread's call of a candidate. Another thread's `leave` waits for nobody.
fn a_candidate_leaves_though_the_logger_blocks_in_another_call() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let join = |session| ZkElection::new(session, "/elections/billing").unwrap().join().unwrap();
    let leader = join(&theirs);
    leader.wait_leader_timeout(SOON).unwrap();
    let candidate = join(&ours);
    let told = candidate.wait_leader_timeout(Duration::ZERO);
    assert!(told.is_err_and(|e| e.is_contended()), "it waits behind the leader");
    let other = full_path(&at, "/elections/billing/notes");
    Raw::connect(&at).unwrap().create(&other, b"", raw::PERSISTENT).unwrap();
    let logger = logged::hold("are no contenders");
    thread::scope(|scope| {
        let asks = scope.spawn(|| candidate.wait_leader_timeout(SOON).map(drop));
        assert!(logger.wait(SOON), "the other node is logged");
        let begun = Instant::now();
        candidate.leave().unwrap();
        assert!(at_best(begun) < SLACK, "{:?}", begun.elapsed());
        drop(logger);
        assert!(matches!(asks.join().unwrap(), Err(Error::Cancelled { .. })));
    });
}

/// Several locks are lost together. The logger blocks at the line of the first one: no thread that
/// waits for one of the others does.
fn every_loss_is_told_though_the_logger_blocks_at_the_first() {
    let at = Shared::chroot();
    let ours = session_of(&at, T);
    let locks = ["/locks/a", "/locks/b", "/locks/c"].map(|path| ZkMutex::new(&ours, path).unwrap());
    let guards = locks.each_ref().map(|lock| lock.lock().unwrap());
    let lost = guards.each_ref().map(|guard| guard.lost());
    let logger = logged::hold("lock lost");
    let mut raw = Raw::connect(&at).unwrap();
    for guard in &guards {
        raw.delete(&full_path(&at, guard.path())).unwrap();
    }
    assert!(logger.wait(SOON), "the loss is logged");
    assert!(lost.iter().all(|lost| lost.wait(SOON) == Some(LossReason::NodeDeleted)));
    // A lost hold keeps no thread of the process from the lock, though its guard lives on.
    thread::scope(|scope| {
        for lock in &locks {
            scope.spawn(|| {
                lock.lock_timeout(SOON).optional().unwrap().expect("it is free").unlock().unwrap()
            });
        }
    });
    drop(logger);
    until("all are logged", SOON, || (logged(Level::Warn, "lock lost").len() == 3).then_some(()));
    drop(guards);
}

/// Calls in a calm and in an outage, and the close, while the logger blocks at a line of the thread
/// that keeps the connection.
fn calls_and_the_close_end_in_time_though_the_logger_blocks() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let (ours, theirs) = (session_of(&through, T), session(&at));
    let taken = ZkMutex::new(&theirs, "/locks/taken").unwrap();
    let _taken = taken.lock().unwrap();
    let wanted = ZkMutex::new(&ours, "/locks/taken").unwrap();
    let events = ours.subscribe();
    let logger = logged::hold("; resuming");
    proxy.cut();
    assert!(logger.wait(SOON), "the outage is logged");
    until_event(&events, |event| *event == SessionEvent::Reconnected);
    let in_time = |limit: Duration, what: &str, call: &dyn Fn() -> Result<bool, Error>| {
        let begun = Instant::now();
        let got = call();
        assert!(at_best(begun) < limit + SLACK, "{what}: {:?}", begun.elapsed());
        got
    };
    let waits = || wanted.lock_timeout(A_WHILE).optional().map(|guard| guard.is_some());
    assert_eq!(in_time(A_WHILE, "lock_timeout", &waits), Ok(false));
    for _ in 0..3 {
        mutex(&ours).lock_timeout(SOON).optional().unwrap().expect("it is free").unlock().unwrap();
    }
    let guard = mutex(&ours).lock().unwrap();
    proxy.black_hole(true);
    let got = in_time(A_WHILE, "lock_timeout in an outage", &waits);
    assert!(matches!(got, Err(Error::Unavailable { .. })), "{got:?}");
    proxy.black_hole(false);
    until_state(&ours, SessionState::Connected);
    let second = Duration::from_secs(1);
    // An outage of before may have ended the hold. The close tells the server anyway.
    let closes = || ours.close().map(|()| true);
    assert_eq!(in_time(second, "close", &closes), Ok(true));
    assert!(!guard.is_held());
    drop(logger);
    until("the close is logged", SOON, || logged(Level::Info, ": closed").pop());
    until_empty(&at, LOCK);
}

/// The lines of a session are in the log when its close returns.
fn the_last_lines_are_logged_before_the_close_returns() {
    let at = Shared::chroot();
    for round in 1..=10 {
        let ours = session(&at);
        let id = format!("session 0x{:x}", ours.status().session_id.unwrap());
        let _guard = mutex(&ours).lock().unwrap();
        ours.close().unwrap();
        let lines = logged(Level::Info, &id);
        assert!(lines.last().is_some_and(|last| last.ends_with(": closed")), "{lines:?}");
        assert_eq!(logged(Level::Warn, "lock lost").len(), round);
    }
    until_empty(&at, LOCK);
}

/// A library below this one logs at this level. Its lines are not in the queue, so the threads of
/// the library must not have it log.
fn no_logger_is_called_where_a_server_is_dialled() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let ours = session_of(&through, T);
    let (id, events, level) = (ours.status().session_id, ours.subscribe(), log::max_level());
    logged::trap("registering event source");
    log::set_max_level(log::LevelFilter::Trace);
    proxy.cut();
    let seen = until_event(&events, |event| *event != SessionEvent::Suspended);
    log::set_max_level(level);
    assert_eq!(seen.last(), Some(&SessionEvent::Reconnected));
    assert_eq!((ours.status().session_id, logged::panics()), (id, 0));
}

/// Blocks at each outage until it is let go.
struct Blocks {
    told: Sender<&'static str>,
    gate: Receiver<Infallible>,
}

impl Observer for Blocks {
    fn session_changed(&mut self, event: &SessionEvent) {
        match event {
            SessionEvent::Suspended => {
                let _ = self.told.send("suspended");
                let _ = self.gate.recv();
            }
            SessionEvent::Closed => drop(self.told.send("closed")),
            _ => {}
        }
    }
}

struct Tells(Sender<SessionEvent>);

impl Observer for Tells {
    fn session_changed(&mut self, event: &SessionEvent) {
        if matches!(event, SessionEvent::Suspended | SessionEvent::Reconnected) {
            let _ = self.0.send(event.clone());
        }
    }
}

fn observer_that_blocks_delays_no_loss_no_call_no_close_and_no_other_sessions_observer() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let (told, tells) = unbounded();
    let (open, gate) = bounded(0);
    let ours = ZkSession::builder(config(&through).session_timeout(T).connect_timeout(SOON))
        .observer(Blocks { told, gate })
        .connect()
        .unwrap();
    let (told, theirs_told) = unbounded();
    let theirs = ZkSession::builder(config(&through).connect_timeout(SOON))
        .observer(Tells(told))
        .connect()
        .unwrap();
    let guard = mutex(&ours).lock().unwrap();
    proxy.cut();
    assert_eq!(tells.recv_timeout(SOON), Ok("suspended"));
    until_event(&theirs_told, |event| *event == SessionEvent::Reconnected);
    until_state(&ours, SessionState::Connected);
    loses(&proxy, &ours, &guard);
    let begun = Instant::now();
    let got = mutex(&theirs).lock_timeout(A_WHILE).optional();
    assert!(got.is_err() && at_best(begun) < A_WHILE + SLACK, "{:?}", begun.elapsed());
    proxy.black_hole(false);
    until_state(&ours, SessionState::Connected);
    let begun = Instant::now();
    ours.close().unwrap();
    assert!(at_best(begun) < Duration::from_secs(1) + SLACK, "{:?}", begun.elapsed());
    drop(open);
    // It is told the rest, the end last, and is dropped.
    assert_eq!(tells.iter().last(), Some("closed"));
    until_empty(&at, LOCK);
}

scenarios![
    lost_is_told_at_the_end_of_the_lease_though_the_logger_blocks,
    a_candidate_leaves_though_the_logger_blocks_in_another_call,
    every_loss_is_told_though_the_logger_blocks_at_the_first,
    calls_and_the_close_end_in_time_though_the_logger_blocks,
    the_last_lines_are_logged_before_the_close_returns,
    no_logger_is_called_where_a_server_is_dialled,
    observer_that_blocks_delays_no_loss_no_call_no_close_and_no_other_sessions_observer,
];
