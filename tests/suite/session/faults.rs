//! A session under faults: it is resumed if it can be, is replaced if it is lost, and never uses
//! the processor in an idle loop, hangs, or reports a wrong state.
use crate::support::{
    Ensemble, OpKind, Proxy, Raw, Server, Shared, Stub, Which, at_best,
    control::assert_in_time,
    raw, scenarios,
    scene::{
        CLOSE_SPARE, SOON, expire, next, queue, session_of, until_empty, until_event, until_state,
    },
    stub::Then,
    until,
    wire::Writer,
};
use crossbeam_channel::Receiver;
use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Cause, Config, Error, LossReason, OptionalExt, RetryPolicy, SessionEvent, SessionState,
    ZkMutex, ZkSession,
};

/// The session timeout of scenarios in which the server expires a session.
const T: Duration = Duration::from_secs(4);
/// The session timeout of scenarios in which no session may expire, even on a busy machine.
const LONG: Duration = Duration::from_secs(15);
/// The extra time of any bound on a busy machine.
const SLACK: Duration = Duration::from_millis(1500);
/// The time of a close: a second, and the extra time of a busy machine.
const CLOSE: Duration = Duration::from_millis(2500);
const LOCK: &str = "/lock";

/// A chroot of the scenario's own on the shared server, with its addresses past a proxy and through
/// it.
struct Stage {
    proxy: Proxy,
    /// The address without the proxy.
    direct: String,
    through: String,
}

impl Stage {
    fn new() -> Stage {
        let direct = Shared::chroot();
        let (server, chroot) = direct.split_once('/').unwrap();
        let proxy = Proxy::start(server.parse().unwrap());
        let through = format!("{}/{chroot}", proxy.connect_string());
        Stage { proxy, through, direct }
    }

    fn session(&self) -> ZkSession {
        session_of(&self.through, LONG)
    }

    /// No host answers, as if its machine were off.
    fn outage(&self, on: bool) {
        self.proxy.refuse(on);
        if on {
            self.proxy.cut();
        }
    }

    /// Ends the session at the server without its owner's knowledge.
    fn expire(&self) {
        expire(&self.proxy, &self.direct);
    }
}

/// Waits until the session is resumed. It was suspended before, once or on a busy machine more
/// often, and never lost.
#[track_caller]
fn resumed(events: &Receiver<SessionEvent>) {
    let seen = until_event(events, |event| *event == SessionEvent::Reconnected);
    assert_eq!(seen[0], SessionEvent::Suspended);
    assert!(!seen.iter().any(|event| matches!(event, SessionEvent::Lost(_))), "{seen:?}");
}

fn is_connected(event: &SessionEvent) -> bool {
    matches!(event, SessionEvent::Connected { .. })
}

/// Closes a session in any state, and checks that this ends in time.
#[track_caller]
fn close_in_time(session: &ZkSession) {
    let start = Instant::now();
    let _ = session.close();
    assert!(at_best(start) < CLOSE, "the close took {:?}", start.elapsed());
    assert_eq!(session.status().state, SessionState::Closed);
}

/// Threads that lock, read a number, and write it plus one; only the lock protects the number.
struct Traffic {
    stop: Arc<AtomicBool>,
    number: Arc<AtomicU64>,
    threads: Vec<thread::JoinHandle<u64>>,
    exact: bool,
}

impl Traffic {
    /// `pause` is the time between the sections of one thread.
    fn start(sessions: &[&ZkSession], threads: usize, pause: Duration) -> Traffic {
        Traffic::start_with(sessions, threads, pause, true)
    }

    /// Without `exact` the scenario itself breaks exclusion, by ending a session at the server
    /// while its holder works.
    fn start_with(
        sessions: &[&ZkSession],
        threads: usize,
        pause: Duration,
        exact: bool,
    ) -> Traffic {
        let (stop, number) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let entries = Arc::new(AtomicU64::new(0));
        let run = |session: &ZkSession| {
            let mutex = ZkMutex::new(session, LOCK).unwrap();
            let (stop, number, entries) =
                (Arc::clone(&stop), Arc::clone(&number), Arc::clone(&entries));
            let work = move || {
                let mut sections = 0;
                while !stop.load(Ordering::SeqCst) {
                    let guard = mutex.lock().unwrap();
                    let entered = entries.fetch_add(1, Ordering::SeqCst) + 1;
                    let read = number.load(Ordering::SeqCst);
                    thread::sleep(Duration::from_millis(1));
                    let last = entries.load(Ordering::SeqCst);
                    // A hold may end in the section, with its lease. While it is valid no other
                    // thread enters.
                    if guard.is_held() {
                        assert!(last == entered || !exact, "two threads were inside at once");
                        number.store(read + 1, Ordering::SeqCst);
                        sections += 1;
                    }
                    drop(guard);
                    thread::sleep(pause);
                }
                sections
            };
            thread::spawn(work)
        };
        let threads =
            sessions.iter().flat_map(|session| (0..threads).map(|_| run(session))).collect();
        Traffic { stop, number, threads, exact }
    }

    /// Waits until so many more sections are done.
    #[track_caller]
    fn flows(&self, sections: u64) {
        let from = self.number.load(Ordering::SeqCst);
        until("the traffic flows", Duration::from_secs(40), || {
            assert!(
                self.threads.iter().all(|thread| !thread.is_finished()),
                "a thread of the traffic died"
            );
            (self.number.load(Ordering::SeqCst) >= from + sections).then_some(())
        });
    }

    /// Checks that the number is what all threads together have counted.
    #[track_caller]
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        let counted: u64 = self.threads.into_iter().map(|thread| thread.join().unwrap()).sum();
        if self.exact {
            assert_eq!(self.number.load(Ordering::SeqCst), counted);
        }
        counted
    }
}

// ---- outages that a session survives ----

fn survives_cuts_under_steady_traffic() {
    let stage = Stage::new();
    let session = stage.session();
    let (id, events) = (session.status().session_id, session.subscribe());
    let traffic = Traffic::start(&[&session], 3, Duration::from_millis(5));
    for _ in 0..5 {
        traffic.flows(10);
        stage.proxy.cut();
        resumed(&events);
    }
    traffic.flows(10);
    traffic.stop();
    assert_eq!(session.status().session_id, id);
    assert!(!events.try_iter().any(|event| matches!(event, SessionEvent::Lost(_))));
    until_empty(&stage.direct, LOCK);
    close_in_time(&session);
}

fn survives_a_server_restart_under_steady_traffic() {
    let server = Server::start();
    let session = session_of(&server.connect_string(), Duration::from_secs(30));
    let (id, events) = (session.status().session_id, session.subscribe());
    let traffic = Traffic::start(&[&session], 3, Duration::from_millis(5));
    for _ in 0..2 {
        traffic.flows(20);
        server.restart();
        until_event(&events, |event| *event == SessionEvent::Reconnected);
    }
    traffic.flows(20);
    traffic.stop();
    assert_eq!(
        (session.status().session_id, session.status().state),
        (id, SessionState::Connected)
    );
    until_empty(&server.connect_string(), LOCK);
}

fn survives_a_failover_under_steady_traffic() {
    let ensemble = Ensemble::start(3);
    let session = session_of(&ensemble.connect_string(), Duration::from_secs(30));
    let (id, events) = (session.status().session_id, session.subscribe());
    let traffic = Traffic::start(&[&session], 3, Duration::from_millis(5));
    traffic.flows(20);
    ensemble.member(ensemble.leader()).kill();
    traffic.flows(50);
    traffic.stop();
    assert_eq!(
        (session.status().session_id, session.status().state),
        (id, SessionState::Connected)
    );
    let lost = events.try_iter().find(|event| matches!(event, SessionEvent::Lost(_)));
    assert_eq!(lost, None);
    let alive = (0..3).find(|member| ensemble.serves(*member)).unwrap();
    until_empty(&ensemble.member(alive).connect_string(), LOCK);
}

fn black_hole_is_found_in_a_third_of_the_timeout_and_left_in_time() {
    let t = Duration::from_secs(6);
    let stage = Stage::new();
    for idle in [false, true] {
        let session = session_of(&stage.through, t);
        let (id, events) = (session.status().session_id, session.subscribe());
        let mutex = ZkMutex::new(&session, LOCK).unwrap();
        let guard = if idle { None } else { Some(mutex.lock().unwrap()) };
        stage.proxy.black_hole(true);
        let start = Instant::now();
        assert_eq!(next(&events), SessionEvent::Suspended);
        assert!(at_best(start) < t / 3 + SLACK, "found after {:?}", start.elapsed());
        let asked = Instant::now();
        if idle {
            let error = mutex.try_lock().optional().unwrap_err();
            assert!(matches!(&error, Error::Unavailable { op: "lock", .. }), "{error:?}");
            assert!(at_best(asked) < t / 6 + SLACK, "try_lock took {:?}", asked.elapsed());
        }
        stage.proxy.black_hole(false);
        assert_eq!(next(&events), SessionEvent::Reconnected);
        assert_eq!(
            (session.status().session_id, session.status().state),
            (id, SessionState::Connected)
        );
        drop(guard);
        mutex.lock_timeout(SOON).optional().unwrap().unwrap().unlock().unwrap();
        until_empty(&stage.direct, LOCK);
        close_in_time(&session);
    }
}

// ---- sessions that end ----

fn expired_session_is_replaced_by_itself() {
    let stage = Stage::new();
    let session = stage.session();
    let events = session.subscribe();
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let mut id = session.status().session_id;
    for _ in 0..3 {
        let guard = mutex.lock().unwrap();
        let signal = guard.lost();
        stage.expire();
        let seen = until_event(&events, is_connected);
        assert!(seen.contains(&SessionEvent::Lost(LossReason::SessionExpired)), "{seen:?}");
        assert!(signal.wait(SOON).is_some());
        assert_eq!(guard.lost_reason(), Some(LossReason::SessionExpired));
        assert_ne!(session.status().session_id, id);
        id = session.status().session_id;
        assert!(matches!(mutex.lock(), Err(Error::Lost { .. })), "the lost guard still lives");
        assert!(matches!(guard.unlock(), Err(Error::Lost { .. })));
        mutex.lock_timeout(SOON).optional().unwrap().unwrap().unlock().unwrap();
    }
    until_empty(&stage.direct, LOCK);
}

fn expiry_under_steady_traffic_stops_no_thread() {
    let stage = Stage::new();
    let (session, other) = (stage.session(), session_of(&stage.direct, T));
    let events = session.subscribe();
    let traffic = Traffic::start_with(&[&session, &other], 2, Duration::from_millis(2), false);
    for _ in 0..4 {
        traffic.flows(10);
        stage.expire();
        until_event(&events, is_connected);
    }
    traffic.flows(20);
    traffic.stop();
    until_empty(&stage.direct, LOCK);
}

fn refused_for_longer_than_the_timeout_then_healed_gives_a_usable_lock() {
    let t = Duration::from_secs(2);
    let stage = Stage::new();
    let session = session_of(&stage.through, t);
    let events = session.subscribe();
    let id = session.status().session_id;
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let cut = Instant::now();
    stage.outage(true);
    assert_eq!(next(&events), SessionEvent::Suspended);
    assert!(guard.lost().wait(SOON).is_some());
    assert!(at_best(cut) < t + SLACK, "notified after {:?}", cut.elapsed());
    assert_eq!(guard.lost_reason(), Some(LossReason::LeaseExpired));
    until_empty(&stage.direct, LOCK); // the server has expired the session
    assert_eq!(session.status().state, SessionState::Suspended, "the client is not notified yet");
    stage.outage(false);
    let seen = until_event(&events, is_connected);
    assert!(seen.contains(&SessionEvent::Lost(LossReason::SessionExpired)), "{seen:?}");
    assert_ne!(session.status().session_id, id);
    drop(guard);
    mutex.lock_timeout(SOON).optional().unwrap().unwrap().unlock().unwrap();
    until_empty(&stage.direct, LOCK);
}

fn black_hole_for_longer_than_the_timeout_then_healed_gives_a_usable_lock() {
    let t = Duration::from_secs(2);
    let stage = Stage::new();
    let session = session_of(&stage.through, t);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    stage.proxy.black_hole(true);
    until_empty(&stage.direct, LOCK); // the server has expired the session
    assert!(!guard.is_held(), "the hold ends before the server removes its node");
    stage.proxy.black_hole(false);
    drop(guard);
    let guard = mutex.lock_timeout(SOON).optional().unwrap().unwrap();
    assert_eq!(queue(&stage.direct, LOCK).len(), 1);
    guard.unlock().unwrap();
    until_state(&session, SessionState::Connected);
    until_empty(&stage.direct, LOCK);
}

// ---- servers that are away ----

/// The processor time of this process.
fn processor_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks) // every Linux has a hundred ticks a second
}

/// At most 1 % of a core over some seconds, by the lower of two measurements.
#[track_caller]
fn burns_nothing() {
    const LOOK: Duration = Duration::from_secs(5);
    let mut burnt = Duration::MAX;
    for _ in 0..2 {
        let before = processor_time();
        thread::sleep(LOOK);
        burnt = burnt.min(processor_time() - before);
        if burnt <= LOOK / 100 {
            return;
        }
    }
    panic!("{burnt:?} of processor time in {LOOK:?}");
}

fn refusing_server_burns_no_processor_time() {
    let stage = Stage::new();
    let session = stage.session();
    stage.outage(true);
    until_state(&session, SessionState::Suspended);
    burns_nothing();
    close_in_time(&session);
}

fn black_hole_burns_no_processor_time() {
    let stage = Stage::new();
    let session = stage.session();
    stage.proxy.black_hole(true);
    until_state(&session, SessionState::Suspended);
    burns_nothing();
    close_in_time(&session);
}

fn waiting_threads_burn_no_processor_time_in_an_outage() {
    let stage = Stage::new();
    let session = stage.session();
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    stage.outage(true);
    until_state(&session, SessionState::Suspended);
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..8).map(|_| scope.spawn(|| mutex.lock().map(drop))).collect();
        burns_nothing();
        close_in_time(&session);
        for thread in waiting {
            assert!(matches!(thread.join().unwrap(), Err(Error::Closed { .. })));
        }
    });
}

fn outage_longer_than_the_retry_policy_is_an_error_and_then_it_works_again() {
    let server = Server::start();
    let second = Duration::from_secs(1);
    let session = ZkSession::connect(
        Config::new(server.connect_string())
            .session_timeout(Duration::from_secs(30))
            .connect_timeout(SOON)
            .retry_policy(RetryPolicy { max_elapsed: second, ..RetryPolicy::default() }),
    )
    .unwrap();
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    server.kill();
    until_state(&session, SessionState::Suspended);
    let start = Instant::now();
    let error = mutex.lock().unwrap_err();
    assert!(at_best(start) < second + SLACK, "{:?}", start.elapsed());
    let Error::Unavailable { op: "lock", path, cause: Cause::Outage(hosts) } = &error else {
        panic!("{error:?}")
    };
    assert_eq!(path, LOCK);
    let [host] = &hosts[..] else { panic!("{hosts:?}") };
    assert_eq!(host.host, server.connect_string());
    let said = error.to_string();
    assert!(said.contains(&host.to_string()) && said.contains("try again later"), "{said}");
    // A loop of calls does not spin: each call waits for its own time.
    let start = Instant::now();
    let tries = std::iter::repeat_with(|| mutex.lock()).take_while(|got| {
        assert!(matches!(got, Err(Error::Unavailable { .. })), "{got:?}");
        start.elapsed() < second * 3
    });
    assert!(tries.count() < 3);
    // With a shorter deadline of its own the caller gets its own cause or the outage, never
    // contention.
    assert!(matches!(
        mutex.lock_timeout(Duration::from_millis(50)).optional(),
        Err(Error::Unavailable { .. })
    ));

    server.restart();
    until_state(&session, SessionState::Connected);
    mutex.lock().unwrap().unlock().unwrap();
    until_empty(&server.connect_string(), LOCK);
}

fn flapping_connection_keeps_the_count_exact_and_leaves_no_orphan() {
    let stage = Stage::new();
    let (session, other) = (stage.session(), session_of(&stage.direct, T));
    let traffic = Traffic::start(&[&session, &other], 4, Duration::from_millis(1));
    for cut in 0..60 {
        if cut % 4 == 0 {
            traffic.flows(1);
        }
        thread::sleep(Duration::from_millis(fastrand::u64(50..100))); // the pause between two cuts
        stage.proxy.cut();
    }
    traffic.flows(20);
    traffic.stop();
    until_state(&session, SessionState::Connected);
    until_empty(&stage.direct, LOCK);
    close_in_time(&session);
}

// ---- servers that send nonsense, or nothing ----

fn nonsense_in_mid_session_costs_the_connection_only() {
    let stage = Stage::new();
    let session = stage.session();
    let (id, events) = (session.status().session_id, session.subscribe());
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let head = |xid: i32, error: i32| Writer::new().i32(xid).i64(1).i32(error);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a negative length", vec![0xff; 4]),
        ("a huge length", vec![0x7f, 0xff, 0xff, 0xff]),
        ("an empty frame", vec![0; 4]),
        ("half a header", vec![0, 0, 0, 6, 0, 0, 0, 1, 0, 0]),
        ("an unknown xid", head(123_456_789, 0).frame()),
        ("an xid that is never used", head(-77, 0).frame()),
        ("a watch event without a body", head(-1, 0).frame()),
        ("a watch event of no type", head(-1, 0).i32(99).i32(3).string("/lock").frame()),
        ("a watch event whose path is too long", head(-1, 0).i32(2).i32(3).i32(1 << 20).frame()),
        (
            "a watch event whose path is no text",
            head(-1, 0).i32(2).i32(3).buffer(&[0xff, 0xfe]).frame(),
        ),
        ("an answer to no credentials", head(-4, 0).frame()),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
    ];
    for (what, words) in cases {
        stage.proxy.inject(&words);
        let seen = until_event(&events, |event| *event == SessionEvent::Reconnected);
        assert_eq!(seen, [SessionEvent::Suspended, SessionEvent::Reconnected], "{what}");
        assert_eq!(session.status().session_id, id, "{what}");
        assert!(guard.is_held(), "{what}");
        assert_eq!(mutex.contenders().unwrap().len(), 1, "{what}");
    }
    guard.unlock().unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    until_empty(&stage.direct, LOCK);
}

fn strange_but_lawful_events_are_ignored() {
    let stage = Stage::new();
    let session = stage.session();
    let events = session.subscribe();
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    for (kind, path) in
        [(1, "/nobody/asked"), (2, "/nobody/asked"), (3, LOCK), (4, LOCK), (2, LOCK), (2, "")]
    {
        stage
            .proxy
            .inject(&Writer::new().i32(-1).i64(-1).i32(0).i32(kind).i32(3).string(path).frame());
    }
    mutex.contenders().unwrap(); // the answer comes after the events
    assert!(guard.is_held());
    guard.unlock().unwrap();
    assert!(events.is_empty(), "{:?}", events.try_iter().collect::<Vec<_>>());
    until_empty(&stage.direct, LOCK);
}

fn nonsense_under_steady_traffic_keeps_the_count_exact() {
    let stage = Stage::new();
    let session = stage.session();
    let id = session.status().session_id;
    let traffic = Traffic::start(&[&session], 4, Duration::from_millis(1));
    for round in 0..12 {
        traffic.flows(5);
        let words: Vec<u8> = (0..fastrand::usize(4..64)).map(|_| fastrand::u8(..)).collect();
        // Every other frame is complete and means nothing.
        let frame = Writer::new().i32(fastrand::i32(..)).i64(1).i32(fastrand::i32(-130..1)).frame();
        stage.proxy.inject(if round % 2 == 0 { &words } else { &frame });
    }
    traffic.flows(20);
    traffic.stop();
    assert_eq!(session.status().session_id, id);
    until_empty(&stage.direct, LOCK);
}

/// A reply is lost, and its connection stays open and silent.
fn swallowed(
    stage: &Stage,
    t: Duration,
    which: impl Into<Which>,
    call: impl FnOnce(&ZkMutex, Instant),
) {
    let session = session_of(&stage.through, t);
    let (id, events) = (session.status().session_id, session.subscribe());
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    mutex.lock().unwrap().unlock().unwrap(); // the folder is there
    stage.proxy.silence_reply(which);
    call(&mutex, Instant::now());
    assert_eq!(stage.proxy.plans(), 0, "the fault was injected");
    resumed(&events);
    assert_eq!(session.status().session_id, id);
    mutex.lock_timeout(SOON).optional().unwrap().unwrap().unlock().unwrap();
    until_empty(&stage.direct, LOCK);
    close_in_time(&session);
}

fn swallowed_reply_ends_its_call_in_a_sixth_of_the_timeout() {
    let t = Duration::from_secs(6);
    let stage = Stage::new();
    let within = |start: Instant, bound: Duration| {
        assert!(at_best(start) < bound + SLACK, "{:?}", start.elapsed());
    };
    for which in [OpKind::GetChildren, OpKind::Create] {
        swallowed(&stage, t, which, |mutex, start| {
            let tried = mutex.try_lock().optional();
            within(start, t / 6);
            assert!(matches!(tried, Err(Error::Unavailable { .. })), "{which:?}: {tried:?}");
        });
    }
    swallowed(&stage, t, OpKind::Create, |mutex, start| {
        let got = mutex.lock_timeout(Duration::from_millis(300)).optional();
        within(start, Duration::from_millis(300));
        assert!(matches!(got, Err(Error::Unavailable { cause: Cause::Deadline, .. })), "{got:?}");
    });
    swallowed(&stage, t, OpKind::GetChildren, |mutex, start| {
        assert!(matches!(mutex.contenders(), Err(Error::Unavailable { .. })));
        within(start, t / 6);
    });
    swallowed(&stage, t, OpKind::Delete.on(LOCK), |mutex, _| {
        let guard = mutex.lock().unwrap();
        let start = Instant::now();
        let unlocked = guard.unlock();
        within(start, t / 6);
        assert!(
            matches!(unlocked, Ok(()) | Err(Error::Unavailable { op: "unlock", .. })),
            "{unlocked:?}"
        );
    });
}

fn call_that_may_wait_gets_over_a_swallowed_reply() {
    let t = Duration::from_secs(3);
    let stage = Stage::new();
    for which in [OpKind::GetChildren, OpKind::Create] {
        swallowed(&stage, t, which, |mutex, start| {
            let guard = mutex.lock().unwrap();
            assert!(at_best(start) < t / 6 + SLACK * 2, "{:?}", start.elapsed());
            until("the node of the first create is deleted", SOON, || {
                (mutex.contenders().unwrap().len() == 1).then_some(())
            });
            drop(guard);
        });
    }
}

// ---- closing during faults ----

/// Makes the fault, waits for its effect, and closes while one thread waits for a lock and another
/// one holds one.
fn closing_in(fault: impl FnOnce(&Stage, &ZkSession), heal: impl FnOnce(&Stage)) {
    let stage = Stage::new();
    let (session, other) = (session_of(&stage.through, T), session_of(&stage.direct, T));
    let taken = ZkMutex::new(&other, LOCK).unwrap();
    let others = taken.lock().unwrap();
    let (waiting, held) =
        (ZkMutex::new(&session, LOCK).unwrap(), ZkMutex::new(&session, "/held").unwrap());
    let guard = held.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waiting.lock().map(drop));
        until("the waiter is in the queue", SOON, || {
            (queue(&stage.direct, LOCK).len() == 2).then_some(())
        });
        fault(&stage, &session);
        let start = Instant::now();
        close_in_time(&session);
        let freed = waiter.join().unwrap();
        assert!(at_best(start) < CLOSE, "the waiter was freed after {:?}", start.elapsed());
        assert!(matches!(freed, Err(Error::Closed { .. })), "{freed:?}");
    });
    assert!(!guard.is_held());
    drop(guard);
    heal(&stage);
    drop(others);
    until_empty(&stage.direct, LOCK);
    until_empty(&stage.direct, "/held");
}

fn closing_in_an_outage_is_bounded() {
    closing_in(
        |stage, session| {
            stage.outage(true);
            until_state(session, SessionState::Suspended);
        },
        |stage| stage.outage(false),
    );
}

fn closing_in_a_black_hole_is_bounded_whether_it_is_noticed_or_not() {
    let heal = |stage: &Stage| {
        stage.proxy.cut();
        stage.proxy.black_hole(false);
    };
    closing_in(|stage, _| stage.proxy.black_hole(true), heal);
    closing_in(
        |stage, session| {
            stage.proxy.black_hole(true);
            until_state(session, SessionState::Suspended);
        },
        heal,
    );
}

fn closing_just_after_a_cut_is_bounded_and_reaches_the_server() {
    closing_in(|stage, _| stage.proxy.cut(), |_| ());
}

/// The pause before the next connection attempt is longer than a close may take, so it is left out.
///
/// A close has a second for a connection and its own request. A machine that is late may need
/// longer; then another session is closed, and the close of one of them must reach the server.
fn closing_just_after_an_outage_reaches_the_server() {
    const TRIES: usize = 12;
    let has_reached = (0..TRIES).any(|_| {
        let (start, end) = close_just_after_an_outage();
        assert_in_time(end == Ok(()), start, CLOSE_SPARE, "the close has reached the server");
        end == Ok(())
    });
    assert!(has_reached, "none of {TRIES} closes has reached the server");
}

/// Closes a session; gives when the close began, and its outcome.
fn close_just_after_an_outage() -> (Instant, zk_mutex::Result<()>) {
    let stage = Stage::new();
    let session = ZkSession::connect(
        Config::new(&*stage.through).session_timeout(Duration::from_secs(60)).retry_policy(
            RetryPolicy {
                base: Duration::from_secs(10),
                cap: Duration::from_secs(10),
                ..RetryPolicy::default()
            },
        ),
    )
    .unwrap();
    stage.outage(true);
    until_state(&session, SessionState::Suspended);
    stage.outage(false);
    let start = Instant::now();
    (start, session.close())
}

fn closing_just_after_an_expiry_is_bounded() {
    closing_in(|stage, _| stage.expire(), |_| ());
}

fn closing_while_a_lost_session_is_replaced_is_bounded() {
    closing_in(
        |stage, session| {
            let events = session.subscribe();
            stage.proxy.refuse(true);
            stage.expire();
            stage.proxy.cut();
            until_event(&events, |event| *event == SessionEvent::Suspended);
            // Connections are accepted again when the session is reported as lost, and the new one
            // gets no answer.
            stage.proxy.refuse(false);
            until_event(&events, |event| matches!(event, SessionEvent::Lost(_)));
            stage.proxy.black_hole(true);
        },
        |stage| {
            stage.proxy.cut();
            stage.proxy.black_hole(false);
        },
    );
}

fn closing_after_nonsense_or_silence_is_bounded() {
    closing_in(|stage, _| stage.proxy.inject(&[0xff; 64]), |_| ());
    closing_in(|stage, _| stage.proxy.silence_reply(OpKind::CloseSession), |_| ());
}

fn close_whose_answer_is_lost_is_said_again() {
    let stage = Stage::new();
    let session = session_of(&stage.through, Duration::from_secs(60));
    let at_server = stage.proxy.sessions().pop().unwrap();
    stage.proxy.drop_request(OpKind::CloseSession);
    assert_eq!(session.close(), Ok(()));
    assert_eq!(stage.proxy.plans(), 0);
    let again = Raw::with_session(&stage.direct, at_server.0, &at_server.1).map(drop);
    assert_eq!(
        again.unwrap_err().code(),
        Some(raw::SESSION_EXPIRED),
        "long before its timeout of a minute"
    );
}

/// The end of the stream arrives together with the bytes. It must be noticed now, and not only at
/// the next silence.
fn end_of_stream_that_comes_with_the_last_bytes_is_noticed_at_once() {
    let timeout = Duration::from_secs(24);
    let welcome = Writer::new().i32(0).i32(24_000).i64(7).buffer(&[1; 16]).bool(false).frame();
    // Each connection ends at once, so `connect` need not see an open one.
    let stub = Stub::start(welcome, Then::CloseFirst);
    // (The stub speaks no TLS and no SASL, whatever the run's switches say.)
    let config = Config::new(stub.connect_string()).session_timeout(timeout);
    let session = ZkSession::connect(config.connect_timeout(SOON)).unwrap();
    assert_eq!(session.status().session_id, Some(7));
    // A silence would be noticed after an eighth of the timeout at the earliest.
    until("the session dials again", timeout / 12, || (stub.taken() > 1).then_some(()));
    drop(session);
}

scenarios![
    end_of_stream_that_comes_with_the_last_bytes_is_noticed_at_once on none,
    survives_cuts_under_steady_traffic,
    survives_a_server_restart_under_steady_traffic,
    // Only real servers form ensembles.
    survives_a_failover_under_steady_traffic on real,
    black_hole_is_found_in_a_third_of_the_timeout_and_left_in_time,
    expired_session_is_replaced_by_itself,
    expiry_under_steady_traffic_stops_no_thread,
    refused_for_longer_than_the_timeout_then_healed_gives_a_usable_lock,
    black_hole_for_longer_than_the_timeout_then_healed_gives_a_usable_lock,
    refusing_server_burns_no_processor_time,
    black_hole_burns_no_processor_time,
    waiting_threads_burn_no_processor_time_in_an_outage,
    outage_longer_than_the_retry_policy_is_an_error_and_then_it_works_again,
    flapping_connection_keeps_the_count_exact_and_leaves_no_orphan,
    nonsense_in_mid_session_costs_the_connection_only,
    strange_but_lawful_events_are_ignored,
    nonsense_under_steady_traffic_keeps_the_count_exact,
    swallowed_reply_ends_its_call_in_a_sixth_of_the_timeout,
    call_that_may_wait_gets_over_a_swallowed_reply,
    closing_in_an_outage_is_bounded,
    closing_in_a_black_hole_is_bounded_whether_it_is_noticed_or_not,
    closing_just_after_a_cut_is_bounded_and_reaches_the_server,
    closing_just_after_an_outage_reaches_the_server,
    closing_just_after_an_expiry_is_bounded,
    closing_while_a_lost_session_is_replaced_is_bounded,
    closing_after_nonsense_or_silence_is_bounded,
    close_whose_answer_is_lost_is_said_again,
];
