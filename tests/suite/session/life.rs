//! A session from its connect to its end: its properties and events, its handles, and that nothing
//! is left behind.
use crate::support::{
    OpKind, Proxy, Raw, Server, Shared, at_best,
    contend::spawn_waiting,
    control::assert_in_time,
    logged,
    own::{listening, threads},
    raw::{self, SESSION_EXPIRED},
    scenarios,
    scene::{
        CLOSE_SPARE, SOON, expire, full_path, next, queue, session_of,
        session_that_makes_its_chroot, until_empty, until_event, until_state,
    },
    until,
};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::{
    fs,
    net::TcpListener,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Acl, CancelToken, Config, Error, LossReason, Observer, OptionalExt, SessionEvent, SessionState,
    ZkMutex, ZkSession,
};

/// The time of a close: a second, and the extra time of a busy machine.
const CLOSE: Duration = Duration::from_millis(2500);

/// A proxy in front of the shared server, and a connect string through it with a chroot of the
/// scenario's own.
fn proxied() -> (Proxy, String) {
    let address = Shared::chroot();
    let (server, chroot) = address.split_once('/').unwrap();
    let proxy = Proxy::start(server.parse().unwrap());
    let through = format!("{}/{chroot}", proxy.connect_string());
    (proxy, through)
}

fn outage(proxy: &Proxy) {
    proxy.refuse(true);
    proxy.cut();
}

/// A session that does not expire, even on a busy machine.
#[track_caller]
fn session(address: &str) -> ZkSession {
    session_of(address, Duration::from_secs(15))
}

/// Whether the server does not know a session any more. (Attaching to a living session would move
/// it.)
fn is_gone(server: &str, (id, password): &(i64, Vec<u8>)) -> bool {
    match Raw::with_session(server, *id, password) {
        Ok(raw) => {
            raw.abandon();
            false
        }
        Err(e) => e.code() == Some(SESSION_EXPIRED),
    }
}

fn id_of(event: &SessionEvent) -> Option<i64> {
    match event {
        SessionEvent::Connected { session_id, .. } => Some(*session_id),
        _ => None,
    }
}

// ---- connecting ----

fn connects_and_has_its_properties() {
    let (proxy, address) = proxied();
    for (asked, granted) in [(500_000, 60_000), (9_000, 9_000), (1, 500)]
        .map(|(asked, granted)| (Duration::from_millis(asked), Duration::from_millis(granted)))
    {
        let session = session_of(&address, asked);
        assert_eq!(session.status().timeout, granted, "asked for {asked:?}");
        if granted < Duration::from_secs(1) {
            continue; // so short a session may be lost on a busy machine
        }
        assert_eq!(session.status().state, SessionState::Connected);
        assert_eq!(session.status().session_id, proxy.sessions().last().map(|(id, _)| *id));
        let mutex = ZkMutex::new(&session, "/lock").unwrap();
        let guard = mutex.lock().unwrap();
        let (lease, valid) = (session.status().lease_remaining, guard.valid_for());
        assert!(
            lease > Duration::ZERO && lease <= granted - granted / 12,
            "{lease:?} of {granted:?}"
        );
        assert!(valid > Duration::ZERO && valid <= lease, "{valid:?}, then {lease:?}");
        let said = format!("{session:?}");
        assert!(said.contains(&format!("0x{:x}", session.status().session_id.unwrap())), "{said}");
        drop(guard);
        drop(mutex);
        session.close().unwrap();
        assert_eq!(
            (session.status().state, session.status().lease_remaining),
            (SessionState::Closed, Duration::ZERO)
        );
    }
    until_empty(&address, "/lock");
}

fn connects_over_ipv6() {
    if TcpListener::bind("[::1]:0").is_err() {
        println!("this machine has no IPv6 loopback: nothing to try");
        return;
    }
    let address = Shared::chroot();
    let (server, chroot) = address.split_once('/').unwrap();
    let proxy = Proxy::start_at("[::1]:0".parse().unwrap(), server.parse().unwrap());
    assert!(proxy.connect_string().starts_with("[::1]:"));
    let session = session(&format!("{}/{chroot}", proxy.connect_string()));
    assert_eq!(session.status().session_id, proxy.sessions().last().map(|(id, _)| *id));
    ZkMutex::new(&session, "/lock").unwrap().lock().unwrap().unlock().unwrap();
    until_empty(&address, "/lock");
}

fn connects_by_host_name() {
    let address = Shared::chroot();
    let (server, chroot) = address.split_once('/').unwrap();
    let proxy = Proxy::start_at("127.0.0.1:0".parse().unwrap(), server.parse().unwrap());
    let session = session(&format!("localhost:{}/{chroot}", proxy.address().port()));
    assert_eq!(session.status().session_id, proxy.sessions().last().map(|(id, _)| *id));
}

fn moves_to_another_host_when_one_fails() {
    let address = Shared::chroot();
    let (server, chroot) = address.split_once('/').unwrap();
    let proxies = [(); 3].map(|()| Proxy::start(server.parse().unwrap()));
    let hosts = proxies.each_ref().map(Proxy::connect_string).join(",");
    let session = session(&format!("{hosts}/{chroot}"));
    let id = session.status().session_id;
    let mutex = ZkMutex::new(&session, "/lock").unwrap();
    let guard = mutex.lock().unwrap();
    let events = session.subscribe();
    for _ in 0..4 {
        let at = until("a proxy carries the session", SOON, || {
            proxies.iter().position(|proxy| proxy.connections() > 0)
        });
        outage(&proxies[at]);
        let seen = until_event(&events, |event| *event == SessionEvent::Reconnected);
        assert_eq!(seen, [SessionEvent::Suspended, SessionEvent::Reconnected]);
        assert_eq!(session.status().session_id, id);
        assert!(guard.is_held());
        proxies[at].refuse(false);
    }
    guard.unlock().unwrap();
    until_empty(&address, "/lock");
}

fn works_below_a_chroot_that_it_makes() {
    let address = format!("{}/deep/down", Shared::chroot());
    let session = session_that_makes_its_chroot(&address);
    let mutex = ZkMutex::new(&session, "/locks/orders").unwrap();
    let guard = mutex.lock().unwrap();
    assert!(
        guard.path().starts_with("/locks/orders/"),
        "the path as the user gave it: {}",
        guard.path()
    );
    let names = queue(&address, "/locks/orders");
    assert_eq!(names.len(), 1);
    assert!(guard.path().ends_with(&names[0]));
    guard.unlock().unwrap();
    until_empty(&address, "/locks/orders");
}

// ---- events ----

fn subscriber_sees_every_change_in_order() {
    let (proxy, address) = proxied();
    let session = session(&address);
    let events = session.subscribe();
    let id = session.status().session_id;

    outage(&proxy);
    assert_eq!(next(&events), SessionEvent::Suspended);
    assert_eq!(session.status().state, SessionState::Suspended);
    assert_eq!(session.status().session_id, id);
    proxy.refuse(false);
    assert_eq!(next(&events), SessionEvent::Reconnected);
    assert_eq!(session.status().state, SessionState::Connected);

    let late = session.subscribe();
    expire(&proxy, &Shared::connect_string());
    let seen = until_event(&events, |event| id_of(event).is_some());
    let lost = SessionEvent::Lost(LossReason::SessionExpired);
    assert!(
        matches!(&seen[..], [first, _] if *first == lost)
            || matches!(&seen[..], [first, second, _] if (first, second) == (&SessionEvent::Suspended, &lost)),
        "{seen:?}"
    );
    let SessionEvent::Connected { session_id, timeout } = seen[seen.len() - 1] else {
        unreachable!()
    };
    assert_eq!(
        (Some(session_id), timeout),
        (session.status().session_id, session.status().timeout)
    );
    assert_ne!(Some(session_id), id);
    assert_eq!(
        until_event(&late, |event| id_of(event).is_some()),
        seen,
        "a later subscriber gets the same events"
    );

    session.close().unwrap();
    for events in [events, late] {
        assert_eq!(events.recv_timeout(SOON), Ok(SessionEvent::Closed));
        assert!(events.recv_timeout(SOON).is_err_and(|e| e.is_disconnected()), "nothing follows");
    }
    assert!(session.subscribe().recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
}

fn receiver_that_is_never_read_blocks_no_other() {
    let (proxy, address) = proxied();
    let session = session(&address);
    let (slow, quick) = (session.subscribe(), session.subscribe());
    for _ in 0..20 {
        proxy.cut();
        // Where a machine is so late that the session is lost, another one takes its place.
        let is_attached =
            |event: &SessionEvent| *event == SessionEvent::Reconnected || id_of(event).is_some();
        until_event(&quick, is_attached);
    }
    let start = Instant::now();
    assert_in_time(session.close().is_ok(), start, CLOSE_SPARE, "the server knows of the close");
    let seen: Vec<_> = slow.try_iter().collect();
    assert!((10..=40).contains(&seen.len()), "bounded: {}", seen.len());
    let mut last = seen.last().cloned();
    while let Ok(event) = slow.recv_timeout(SOON) {
        last = Some(event);
    }
    println!("the last event seen is {last:?}");
}

/// Reports its calls, and runs `at` in each of them.
struct Reporter<F: FnMut(&str) + Send + 'static> {
    tell: Sender<String>,
    at: F,
}

impl<F: FnMut(&str) + Send + 'static> Reporter<F> {
    fn called(&mut self, what: String) {
        let _ = self.tell.send(what.clone());
        (self.at)(&what);
    }
}

impl<F: FnMut(&str) + Send + 'static> Observer for Reporter<F> {
    fn session_changed(&mut self, event: &SessionEvent) {
        self.called(match event {
            SessionEvent::Connected { session_id, timeout } => {
                format!("connected {session_id} {}", timeout.as_millis())
            }
            SessionEvent::Suspended => "suspended".into(),
            SessionEvent::Reconnected => "reconnected".into(),
            SessionEvent::Lost(reason) => format!("lost {reason:?}"),
            SessionEvent::Closed => "closed".into(),
            other => format!("{other:?}"),
        });
    }
}

/// A session with an observer, and what that reports of the session.
fn observed(address: &str, at: impl FnMut(&str) + Send + 'static) -> (ZkSession, Receiver<String>) {
    let (tell, told) = unbounded();
    let config =
        Config::new(address).session_timeout(Duration::from_secs(15)).connect_timeout(SOON);
    (ZkSession::builder(config).observer(Reporter { tell, at }).connect().unwrap(), told)
}

#[track_caller]
fn told(calls: &Receiver<String>) -> String {
    calls.recv_timeout(SOON).unwrap_or_else(|e| panic!("the observer was not called: {e}"))
}

fn observer_is_called_for_each_change() {
    let (proxy, address) = proxied();
    let (session, calls) = observed(&address, |_| ());
    assert_eq!(told(&calls), format!("connected {} 15000", session.status().session_id.unwrap()));
    outage(&proxy);
    assert_eq!(told(&calls), "suspended");
    proxy.refuse(false);
    assert_eq!(told(&calls), "reconnected");
    expire(&proxy, &Shared::connect_string());
    let mut call = told(&calls);
    if call == "suspended" {
        call = told(&calls);
    }
    assert_eq!(call, "lost SessionExpired");
    assert!(told(&calls).starts_with("connected "));
    session.close().unwrap();
    assert_eq!(told(&calls), "closed");
    assert!(calls.recv_timeout(SOON).is_err(), "and then the observer is dropped");
}

fn observer_that_blocks_holds_nobody_up() {
    let (proxy, address) = proxied();
    let (release, gate) = unbounded::<()>();
    let (session, calls) = observed(&address, move |call| {
        if call == "suspended" {
            let _ = gate.recv();
        }
    });
    let events = session.subscribe();
    assert!(told(&calls).starts_with("connected "));
    proxy.cut();
    assert_eq!(told(&calls), "suspended");
    until_event(&events, |event| *event == SessionEvent::Reconnected);
    let mutex = ZkMutex::new(&session, "/lock").unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    assert!(calls.is_empty(), "the handler is called once at a time");
    drop(release);
    assert_eq!(told(&calls), "reconnected");
    drop(mutex);
    session.close().unwrap();
    assert_eq!(told(&calls), "closed");
    until_empty(&address, "/lock");
}

fn observer_that_blocks_for_ever_does_not_hold_up_close() {
    let address = Shared::chroot();
    let (release, gate) = unbounded::<()>();
    let (session, calls) = observed(&address, move |_| {
        let _ = gate.recv();
    });
    assert!(told(&calls).starts_with("connected "));
    let start = Instant::now();
    session.close().unwrap();
    assert!(at_best(start) < CLOSE, "{:?}", start.elapsed());
    drop(release);
    assert_eq!(told(&calls), "closed");
}

fn observer_that_panics_is_called_again() {
    let (proxy, address) = proxied();
    let (session, calls) = observed(&address, |call| assert!(call == "closed", "as told"));
    assert!(told(&calls).starts_with("connected "));
    proxy.cut();
    assert_eq!(told(&calls), "suspended");
    assert_eq!(told(&calls), "reconnected");
    until_state(&session, SessionState::Connected);
    session.close().unwrap();
    assert_eq!(told(&calls), "closed");
}

fn observer_may_close_the_session() {
    let (proxy, address) = proxied();
    let own: Arc<OnceLock<ZkSession>> = Arc::default();
    let (handle, (tell, outcome)) = (Arc::clone(&own), unbounded());
    let (session, calls) = observed(&address, move |call| {
        if call == "reconnected" {
            let start = Instant::now();
            let _ = tell.send((handle.get().unwrap().close(), at_best(start)));
        }
    });
    own.set(session.clone()).unwrap();
    let mutex = ZkMutex::new(&session, "/lock").unwrap();
    let guard = mutex.lock().unwrap();
    assert!(told(&calls).starts_with("connected "));
    proxy.cut();
    assert_eq!(told(&calls), "suspended");
    assert_eq!(told(&calls), "reconnected");
    let (closed, took) = outcome.recv_timeout(SOON).unwrap();
    assert_eq!(closed, Ok(()));
    assert!(took < CLOSE, "{took:?}");
    assert_eq!(told(&calls), "closed");
    assert_eq!(session.status().state, SessionState::Closed);
    assert_eq!(guard.lost_reason(), Some(LossReason::SessionClosed));
    drop(guard);
    assert!(matches!(mutex.lock(), Err(Error::Closed { .. })));
    until_empty(&address, "/lock");
}

fn observer_may_drop_the_last_handle() {
    let address = Shared::chroot();
    let own: Arc<parking_lot::Mutex<Option<ZkSession>>> = Arc::default();
    let (handle, (go, gate)) = (Arc::clone(&own), unbounded::<()>());
    let (session, calls) = observed(&address, move |call| {
        if call.starts_with("connected") {
            let _ = gate.recv();
            drop(handle.lock().take());
        }
    });
    *own.lock() = Some(session);
    drop(go);
    assert!(told(&calls).starts_with("connected "));
    assert_eq!(told(&calls), "closed");
}

// ---- handles ----

fn session_lives_until_its_last_handle_is_dropped_and_is_closed_at_once() {
    let (proxy, address) = proxied();
    let session = session_of(&address, Duration::from_secs(60));
    let at_server = proxy.sessions().pop().unwrap();
    let clone = session.clone();
    drop(session);
    assert_eq!(clone.status().state, SessionState::Connected);
    let mutex = Arc::new(ZkMutex::new(&clone, "/lock").unwrap());
    drop(clone);
    let second = mutex.as_ref().clone();
    let guard = mutex.lock().unwrap();
    drop(mutex);
    drop(second);
    assert!(guard.is_held());
    // The check goes past the proxy, which counts the closes.
    let direct = format!("{}/{}", Shared::connect_string(), address.split_once('/').unwrap().1);
    assert_eq!(queue(&direct, "/lock").len(), 1, "a guard is a handle too");
    assert_eq!(proxy.count(OpKind::CloseSession), 0);

    let closed = proxy.on_reply(OpKind::CloseSession, SOON);
    let start = Instant::now();
    drop(guard);
    assert!(at_best(start) < CLOSE, "{:?}", start.elapsed());
    closed.wait();
    assert!(
        is_gone(&Shared::connect_string(), &at_server),
        "the session ended long before its timeout of a minute"
    );
    until_empty(&address, "/lock");
}

fn close_ends_the_session_at_the_server_at_once() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let session = session_of(&proxy.connect_string(), Duration::from_secs(60));
    let mutex = ZkMutex::new(&session, "/lock").unwrap();
    let guard = mutex.lock().unwrap();
    let owner = format!("0x{:x}", session.status().session_id.unwrap());
    // Connections are not counted, because the server may still be closing them.
    let sessions = || {
        let dump = server.four_letter("dump").unwrap();
        dump.split_once("Connections dump").unwrap().0.to_owned()
    };
    assert!(sessions().contains(&owner));
    session.close().unwrap();
    // The close is answered, so the session and its nodes are deleted now, not soon.
    let left = sessions();
    assert!(!left.contains(&owner), "{left}");
    assert!(
        !guard.is_held() && guard.lost().receiver().try_recv().is_err_and(|e| e.is_disconnected())
    );
    drop(guard);
    until_empty(&server.connect_string(), "/lock");
}

fn mutexes_and_guards_may_outlive_a_closed_session() {
    let address = Shared::chroot();
    let session = session(&address);
    let mutex = Arc::new(ZkMutex::new(&session, "/lock").unwrap());
    let guard = mutex.lock().unwrap();
    let (signal, nested) = (guard.lost(), mutex.lock().unwrap());
    session.close().unwrap();
    assert!(signal.receiver().recv().is_err(), "the signal is ready by disconnection");
    for held in [&*guard, &*nested] {
        assert!(!held.is_held());
        assert_eq!(held.valid_for(), Duration::ZERO);
        let lost = held.check().unwrap_err();
        assert!(matches!(&lost, Error::Lost { reason: LossReason::SessionClosed, .. }), "{lost:?}");
        assert!(lost.to_string().contains("the session was closed"), "{lost}");
    }
    drop(nested);
    assert!(matches!(guard.unlock(), Err(Error::Lost { .. })));
    drop(session);
    drop(mutex);
    until_empty(&address, "/lock");
}

// ---- closing ----

#[track_caller]
fn closed<T: std::fmt::Debug>(made: Result<T, Error>, op: &str, path: &str) {
    let error = made.unwrap_err();
    let Error::Closed { op: done, path: at } = &error else { panic!("{error:?}") };
    assert_eq!((*done, at.as_str()), (op, path));
    assert_eq!(
        error.to_string(),
        format!(
            "{op} {path}: the session is closed for good; connect a new one, and make the locks anew in it"
        )
    );
}

/// Waits until a thread of this process, given by its /proc entry, sleeps.
fn until_it_sleeps(thread: &str) {
    until("the thread blocks", SOON, || {
        let stat = fs::read_to_string(format!("/proc/{thread}/stat")).ok()?;
        stat.rsplit_once(") ")?.1.starts_with('S').then_some(())
    });
}

/// The logger is code of the application. The session timeout is so long that only the close itself
/// can free the lock in time.
fn close_reaches_the_server_though_the_logger_blocks() {
    let address = Shared::chroot();
    let theirs = session(&address);
    for part in ["lock lost", ": closed"] {
        let ours = session_of(&address, Duration::from_secs(60));
        let _guard = ZkMutex::new(&ours, "/lock").unwrap().lock().unwrap();
        let blocked = logged::hold(part);
        thread::scope(|scope| {
            let closed = scope.spawn(|| {
                let begun = Instant::now();
                (ours.close(), at_best(begun))
            });
            assert!(blocked.wait(SOON), "nothing was logged with {part:?}");
            let freed = ZkMutex::new(&theirs, "/lock").unwrap().lock_timeout(SOON).optional();
            let (told, took) = closed.join().unwrap();
            drop(blocked);
            assert!(freed.is_ok_and(|guard| guard.is_some()), "{part:?} keeps the server waiting");
            assert!(told.is_ok() && took < CLOSE, "{part:?}: {told:?} after {took:?}");
        });
    }
}

/// In an outage a thread waits for the connection, and its session has a lock that the close ends.
fn close_frees_a_thread_that_waits_for_the_connection_though_the_logger_blocks() {
    let (proxy, through) = proxied();
    let ours = session_of(&through, Duration::from_secs(60));
    let _guard = ZkMutex::new(&ours, "/held").unwrap().lock().unwrap();
    proxy.refuse(true);
    proxy.cut();
    until_state(&ours, SessionState::Suspended);
    let (mutex, (done, ended)) = (ZkMutex::new(&ours, "/wanted").unwrap(), unbounded());
    let blocked = logged::hold("lock lost");
    thread::scope(|scope| {
        spawn_waiting(scope, move || done.send(mutex.lock().map(drop)));
        scope.spawn(|| ours.close());
        assert!(blocked.wait(SOON), "nothing was logged");
        let ended = ended.recv_timeout(SOON);
        drop(blocked);
        assert!(matches!(ended, Ok(Err(Error::Closed { .. }))), "{ended:?}");
    });
}

fn close_frees_every_blocked_caller() {
    let address = Shared::chroot();
    let (session, other) = (session(&address), session(&address));
    let paths = ["/one", "/two", "/three", "/four"];
    let held: Vec<ZkMutex> = paths.iter().map(|path| ZkMutex::new(&other, path).unwrap()).collect();
    let guards: Vec<_> = held.iter().map(|mutex| mutex.lock().unwrap()).collect();
    let mutexes = paths.map(|path| Arc::new(ZkMutex::new(&session, path).unwrap()));
    let own = ZkMutex::new(&session, "/own").unwrap();
    let own_guard = own.lock().unwrap();
    let token = CancelToken::new();
    let minute = Duration::from_secs(60);
    type Wait<'a> = Box<dyn FnOnce() -> zk_mutex::Result<()> + Send + 'a>;
    let [one, two, three, four] = &mutexes;
    let heads: Vec<(&str, Wait<'_>)> = vec![
        ("/one", Box::new(|| one.lock().map(drop))),
        ("/two", Box::new(|| two.lock_timeout(minute).optional().map(drop))),
        (
            "/three",
            Box::new(|| {
                three.lock_with(zk_mutex::Wait::forever().cancelled_by(&token)).optional().map(drop)
            }),
        ),
        (
            "/four",
            Box::new(|| {
                four.lock_with(zk_mutex::Wait::until(Instant::now() + minute)).optional().map(drop)
            }),
        ),
    ];
    let locals: Vec<(&str, Wait<'_>)> = vec![
        ("/one", Box::new(|| one.lock().map(drop))),
        ("/one", Box::new(|| one.lock_timeout(minute).optional().map(drop))),
        (
            "/two",
            Box::new(|| {
                two.lock_with(zk_mutex::Wait::forever().cancelled_by(&token)).optional().map(drop)
            }),
        ),
        ("/own", Box::new(|| own.lock().map(drop))),
        ("/own", Box::new(|| own.lock_timeout(minute).optional().map(drop))),
    ];
    thread::scope(|scope| {
        let (tell, started) = unbounded();
        let mut threads = Vec::new();
        for (path, wait) in heads {
            threads.push((path, scope.spawn(wait)));
        }
        for (path, mutex) in paths.iter().zip(&held) {
            until("the head of the queue waits", SOON, || {
                (mutex.contenders().unwrap().len() == 2).then_some(())
            });
            assert_eq!(queue(&address, path).len(), 2);
        }
        for (path, wait) in locals {
            let tell = tell.clone();
            threads.push((
                path,
                scope.spawn(move || {
                    let _ = tell.send(fs::read_link("/proc/thread-self").unwrap());
                    wait()
                }),
            ));
            let thread = started.recv_timeout(SOON).unwrap();
            until_it_sleeps(thread.to_str().unwrap());
        }
        let start = Instant::now();
        session.close().unwrap();
        for (path, thread) in threads {
            closed(thread.join().unwrap(), "lock", path);
        }
        assert!(at_best(start) < CLOSE, "{:?}", start.elapsed());
    });
    assert_eq!(own_guard.lost_reason(), Some(LossReason::SessionClosed));
    drop(own_guard);
    drop(guards);
    for path in paths.iter().chain(&["/own"]) {
        until_empty(&address, path);
    }
}

fn every_call_on_a_closed_session_says_so() {
    let address = Shared::chroot();
    let session = session(&address);
    let mutex = Arc::new(ZkMutex::new(&session, "/lock").unwrap());
    mutex.lock().unwrap().unlock().unwrap();
    let clone = session.clone();
    session.close().unwrap();
    closed(mutex.lock(), "lock", "/lock");
    closed(mutex.try_lock().optional(), "lock", "/lock");
    closed(mutex.lock_timeout(SOON).optional(), "lock", "/lock");
    closed(
        mutex.lock_with(zk_mutex::Wait::forever().cancelled_by(&CancelToken::new())).optional(),
        "lock",
        "/lock",
    );
    assert!(matches!(mutex.contenders(), Err(Error::Closed { .. })));
    assert!(!mutex.is_owned_by_current_thread());
    assert_eq!((clone.status().state, clone.status().session_id), (SessionState::Closed, None));
    for _ in 0..2 {
        let start = Instant::now();
        session.close().unwrap();
        clone.close().unwrap();
        assert!(at_best(start) < Duration::from_millis(900), "a second close does not wait");
    }
    // A mutex that is made now has the same error.
    closed(ZkMutex::new(&session, "/late").unwrap().lock(), "lock", "/late");
    until_empty(&address, "/lock");
}

fn close_by_several_threads_at_once_is_one_close() {
    let (proxy, address) = proxied();
    let session = session(&address);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| session.close())).collect();
        for thread in threads {
            assert_eq!(thread.join().unwrap(), Ok(()));
        }
    });
    assert_eq!(proxy.count(OpKind::CloseSession), 1);
}

/// A second caller used to get success at once, before the server had received the close.
fn every_caller_of_close_gets_the_one_outcome() {
    let (proxy, address) = proxied();
    let session = session(&address);
    proxy.black_hole(true);
    thread::scope(|scope| {
        let first = spawn_waiting(scope, || session.close());
        let second = session.close();
        let first = first.join().unwrap();
        assert!(matches!(first, Err(Error::Unavailable { .. })), "{first:?}");
        assert_eq!(second, first);
        assert_eq!(session.close(), first, "and later");
    });
}

/// The names of the session's threads, as the kernel has them.
fn threads_of_sessions() -> Vec<String> {
    threads().into_iter().filter(|name| name.starts_with("zkm-")).collect()
}

fn close_returns_once_the_sessions_threads_have_ended() {
    let (proxy, address) = proxied();
    let before = threads_of_sessions();
    let (told, tells) = unbounded();
    let (open, gate) = unbounded::<()>();
    let observer_ended = Arc::new(AtomicBool::new(false));
    let ends = observer_ended.clone();
    let (session, calls) = observed(&address, move |call| {
        if call == "closed" {
            let _ = told.send(());
            let _ = gate.recv_timeout(SOON);
            ends.store(true, Ordering::SeqCst);
        }
    });
    // The session is in its second life at the server: the thread of the first one has ended, or is
    // about to.
    let events = session.subscribe();
    expire(&proxy, &Shared::connect_string());
    until_event(&events, |event| id_of(event).is_some());
    until("its threads, and an observer's", SOON, || {
        (threads_of_sessions().len() == before.len() + 3).then_some(())
    });
    let start = Instant::now();
    thread::scope(|scope| {
        let closes = [(); 2].map(|()| {
            scope.spawn(|| {
                let is_known = session.close().is_ok();
                (is_known && observer_ended.load(Ordering::SeqCst), start.elapsed())
            })
        });
        tells.recv_timeout(SOON).unwrap();
        assert!(!observer_ended.load(Ordering::SeqCst));
        open.send(()).unwrap();
        for close in closes {
            // No caller waits for longer than a second. Only a machine that is too busy takes that
            // long here.
            let (has_ended, took) = close.join().unwrap();
            assert!(has_ended || took > Duration::from_millis(900), "{took:?}");
            assert_in_time(has_ended, start, CLOSE_SPARE, "the threads end within a second");
        }
    });
    until("no thread is left", SOON, || (threads_of_sessions() == before).then_some(()));
    drop(calls);
}

fn close_gives_up_within_a_second_when_the_server_is_down() {
    let server = Server::start();
    let session = session(&server.connect_string());
    let events = session.subscribe();
    server.kill();
    until_event(&events, |event| *event == SessionEvent::Suspended);
    let start = Instant::now();
    let error = session.close().unwrap_err();
    assert!(at_best(start) < CLOSE, "{:?}", start.elapsed());
    assert!(matches!(&error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().starts_with("close the session"), "{error}");
    assert_eq!(session.status().state, SessionState::Closed);
}

fn close_gives_up_within_a_second_in_a_black_hole() {
    let (proxy, address) = proxied();
    for dropped in [false, true] {
        let session = session_of(&address, Duration::from_secs(4));
        let mutex = Arc::new(ZkMutex::new(&session, "/lock").unwrap());
        let guard = mutex.lock().unwrap();
        proxy.black_hole(true);
        let start = Instant::now();
        if dropped {
            drop((guard, mutex, session));
        } else {
            assert!(matches!(session.close(), Err(Error::Unavailable { .. })));
            drop((guard, mutex, session));
        }
        assert!(at_best(start) < CLOSE, "{:?}", start.elapsed());
        proxy.cut();
        proxy.black_hole(false);
    }
    // The server does not receive the close: the nodes are deleted with their sessions.
    until_empty(&address, "/lock");
}

// ---- costs ----

fn session_has_two_threads_and_three_with_an_observer_and_listens_nowhere() {
    let address = Shared::chroot();
    let before = threads().len();
    let settled = |expected: usize| {
        until("the session has its threads and no more", SOON, || {
            (threads().len() == before + expected).then_some(())
        });
        assert!(listening().is_empty());
    };
    let plain = session(&address);
    settled(2);
    let mutex = ZkMutex::new(&plain, "/lock").unwrap();
    mutex.lock_timeout(SOON).optional().unwrap().unwrap().unlock().unwrap();
    settled(2);
    drop((mutex, plain));
    settled(0);
    let (session, calls) = observed(&address, |_| ());
    settled(3);
    assert!(threads().len() <= before + 3, "{:?}", threads());
    session.close().unwrap();
    settled(0);
    drop(calls);
    until_empty(&address, "/lock");
}

/// The resident memory of this process in KiB.
fn memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn dropped_subscribers_are_forgotten_at_the_next_event() {
    let (proxy, address) = proxied();
    let session = session(&address);
    let events = session.subscribe();
    let fds = || fs::read_dir("/proc/self/fd").unwrap().count();
    let (threads_before, fds_before) = (threads().len(), fds());
    let mut settled = 0;
    for round in 0..8 {
        for _ in 0..4_000 {
            drop(session.subscribe());
        }
        assert_eq!((threads().len(), fds()), (threads_before, fds_before));
        proxy.cut();
        assert_eq!(
            [next(&events), next(&events)],
            [SessionEvent::Suspended, SessionEvent::Reconnected]
        );
        until("the proxy has closed the old connection", SOON, || {
            ((threads().len(), fds()) == (threads_before, fds_before)).then_some(())
        });
        if round == 1 {
            settled = memory();
        }
    }
    let grown = memory().saturating_sub(settled);
    assert!(grown < 8_000, "the last 24,000 dropped subscribers hold {grown} KiB");
}

// ---- two sessions, reconnecting ----

fn two_sessions_of_one_process_are_two_owners() {
    let address = Shared::chroot();
    let (one, two) = (session(&address), session(&address));
    assert_ne!(one.status().session_id, two.status().session_id);
    let (first, second) =
        (ZkMutex::new(&one, "/lock").unwrap(), ZkMutex::new(&two, "/lock").unwrap());
    let guard = first.lock().unwrap();
    assert!(second.try_lock().optional().unwrap().is_none());
    assert!(first.is_owned_by_current_thread() && !second.is_owned_by_current_thread());
    one.close().unwrap();
    drop(guard);
    assert_eq!(two.status().state, SessionState::Connected);
    second.lock_timeout(SOON).optional().unwrap().unwrap().unlock().unwrap();
    until_empty(&address, "/lock");
}

fn credentials_are_presented_anew_after_a_cut() {
    let (proxy, address) = proxied();
    let config =
        Config::new(&address).session_timeout(Duration::from_secs(15)).connect_timeout(SOON);
    let session =
        ZkSession::connect(config.auth("digest", "user:one").auth("digest", "user:two")).unwrap();
    let events = session.subscribe();
    let mutex = ZkMutex::builder(&session, "/safe/lock").acl(Acl::CreatorAll).build().unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    for round in 1..=3 {
        proxy.clear();
        let guard = mutex.lock().unwrap();
        proxy.cut();
        assert_eq!(until_event(&events, |e| *e == SessionEvent::Reconnected).len(), 2);
        assert_eq!(proxy.count(OpKind::Auth), 2, "round {round}");
        let first = proxy
            .requests()
            .iter()
            .skip_while(|r| r.kind != OpKind::Connect)
            .nth(1)
            .map(|r| r.kind);
        assert_eq!(first, Some(OpKind::Auth), "credentials are sent before anything else");
        guard.unlock().unwrap();
        mutex.lock().unwrap().unlock().unwrap();
    }
    // They are sent in the next session, too.
    let id = session.status().session_id;
    expire(&proxy, &Shared::connect_string());
    until_event(&events, |event| id_of(event).is_some());
    assert_ne!(session.status().session_id, id);
    let guard = mutex.lock().unwrap();
    let mut raw = Raw::connect(&Shared::connect_string()).unwrap();
    let folder = full_path(&address, "/safe/lock");
    assert_eq!(raw.children(&folder).unwrap_err().code(), Some(raw::NO_AUTH));
    guard.unlock().unwrap();
    raw.add_auth("user:two").unwrap();
    assert_eq!(raw.children(&folder).unwrap(), Vec::<String>::new());
}

scenarios![
    connects_and_has_its_properties,
    connects_over_ipv6,
    connects_by_host_name,
    moves_to_another_host_when_one_fails,
    works_below_a_chroot_that_it_makes,
    subscriber_sees_every_change_in_order,
    receiver_that_is_never_read_blocks_no_other,
    observer_is_called_for_each_change,
    observer_that_blocks_holds_nobody_up,
    observer_that_blocks_for_ever_does_not_hold_up_close,
    observer_that_panics_is_called_again,
    observer_may_close_the_session,
    observer_may_drop_the_last_handle,
    session_lives_until_its_last_handle_is_dropped_and_is_closed_at_once,
    close_ends_the_session_at_the_server_at_once,
    mutexes_and_guards_may_outlive_a_closed_session,
    close_reaches_the_server_though_the_logger_blocks,
    close_frees_a_thread_that_waits_for_the_connection_though_the_logger_blocks,
    close_frees_every_blocked_caller,
    every_call_on_a_closed_session_says_so,
    close_by_several_threads_at_once_is_one_close,
    every_caller_of_close_gets_the_one_outcome,
    close_returns_once_the_sessions_threads_have_ended,
    close_gives_up_within_a_second_when_the_server_is_down,
    close_gives_up_within_a_second_in_a_black_hole,
    session_has_two_threads_and_three_with_an_observer_and_listens_nowhere,
    dropped_subscribers_are_forgotten_at_the_next_event,
    two_sessions_of_one_process_are_two_owners,
    credentials_are_presented_anew_after_a_cut,
];
