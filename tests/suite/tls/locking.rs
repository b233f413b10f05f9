//! What works without TLS works over it.
use super::{Stage, config, connected, tries};
use crate::support::{
    Proxy, Server, at_best, contend, scenarios,
    scene::{self, SOON, next, until_renewed, until_watched},
    until,
};
use std::{
    net::Ipv4Addr,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{OptionalExt, SessionEvent, ZkMutex};

const LOCK: &str = "/locks/orders";

/// Two sessions, each with several threads, count together.
fn threads_and_processes_exclude_each_other() {
    const ROUNDS: u64 = 25;
    let stage = Stage::new();
    let sessions = [stage.session(stage.trust()), stage.session(stage.trust())];
    let (inside, total) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for session in sessions.iter().flat_map(|session| [session; 3]) {
            scope.spawn(|| {
                let mutex = ZkMutex::new(session, LOCK).unwrap();
                for _ in 0..ROUNDS {
                    let guard = mutex.lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    total.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 6 * ROUNDS);
    sessions.iter().for_each(|session| session.close().unwrap());
}

/// The lease is renewed by answers that come over TLS, and the holder hears of the end of its node.
fn a_held_lock_is_renewed_watched_and_lost_as_without_tls() {
    let stage = Stage::new();
    let session = connected(
        config(&stage.server.secure(), stage.trust()).session_timeout(Duration::from_secs(6)),
    );
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    until_renewed(&session);
    let begun = Instant::now();
    while begun.elapsed() < session.status().timeout * 3 / 2 {
        assert!(guard.is_held() && !session.status().lease_remaining.is_zero());
        thread::sleep(Duration::from_millis(50));
    }
    let at = stage.server.connect_string();
    until_watched(&at, &guard);
    let mut other = crate::support::Raw::connect(&at).unwrap();
    other.delete(guard.path()).unwrap();
    assert!(guard.lost().wait(SOON).is_some());
}

/// Java 17 and Netty can do TLS 1.3, if they are told so.
fn tls_1_3() -> Stage {
    Stage::with(true, |server| {
        server.set("ssl.protocol", "TLSv1.3").set("ssl.ciphersuites", "TLS_AES_128_GCM_SHA256")
    })
}

fn tls_1_3_with_a_client_certificate() {
    let stage = tls_1_3();
    let session = stage.session(stage.named("orders"));
    ZkMutex::new(&session, LOCK).unwrap().lock().unwrap().unlock().unwrap();
}

/// Where the client has no certificate, it is told so only after the handshake.
fn tls_1_3_without_a_client_certificate_is_refused_with_advice() {
    let stage = tls_1_3();
    for _ in 0..tries() {
        let said = super::reason(config(&stage.server.secure(), stage.trust()));
        super::assert_says(&said, &["TlsConfig::client_certificate", "refused"]);
    }
}

fn a_host_name_is_checked_against_the_certificate() {
    let stage = Stage::new();
    let proxy =
        Proxy::start_at((Ipv4Addr::LOCALHOST, 0).into(), stage.server.secure().parse().unwrap());
    let at = format!("localhost:{}/below", proxy.address().port());
    crate::support::Raw::connect(&stage.server.connect_string())
        .and_then(|mut raw| raw.mkdirs("/below"))
        .unwrap();
    let session = connected(config(&at, stage.trust()));
    ZkMutex::new(&session, LOCK).unwrap().lock().unwrap().unlock().unwrap();
}

/// Writes and answers that are longer than TLS keeps, and than the socket takes at once.
#[cfg(feature = "client")]
fn the_client_crate_works_on_the_same_connection() {
    use zk_mutex::zookeeper::{Acl, CreateMode};
    let stage = Stage::new();
    let session = stage.session(stage.trust());
    let client = session.client().unwrap();
    let data: Vec<u8> = (0..900_000_u32).map(|i| (i % 251) as u8).collect();
    let acl = || Acl::open_unsafe().clone();
    thread::scope(|scope| {
        let mutex = ZkMutex::new(&session, LOCK).unwrap();
        let locker = scope.spawn(move || {
            (0..50).for_each(|_| mutex.lock().unwrap().unlock().unwrap());
        });
        for i in 0..10 {
            let path = format!("/data-{i}");
            client.create(&path, data.clone(), acl(), CreateMode::Ephemeral).unwrap();
            assert!(client.get_data(&path, false).unwrap().0 == data, "{path}");
        }
        locker.join().unwrap();
    });
    let stat = client.exists("/data-0", false).unwrap().expect("the node");
    assert_eq!(Some(stat.ephemeral_owner), session.status().session_id, "one session for both");
}

/// A hundred threads ask at once: their requests and the answers share TLS records.
fn many_waiting_threads_are_answered() {
    let stage = Stage::new();
    let session = stage.session(stage.trust());
    thread::scope(|scope| {
        for i in 0..100 {
            let session = &session;
            scope.spawn(move || {
                let mutex = ZkMutex::new(session, format!("/locks/l{i}")).unwrap();
                (0..5).for_each(|_| mutex.lock().unwrap().unlock().unwrap());
            });
        }
    });
}

/// An answer that is longer than one read comes in one TLS record. A calling thread reads it, and
/// nothing else comes that would announce the rest of it.
fn a_long_listing_is_read_to_its_end_at_once() {
    let stage = Stage::new();
    let mut raw = crate::support::Raw::connect(&stage.server.connect_string()).unwrap();
    raw.mkdirs(LOCK).unwrap();
    for i in 0..200 {
        raw.create(&format!("{LOCK}/somebody-elses-node-with-a-long-name-{i}"), b"", 0).unwrap();
    }
    let session = stage.session(stage.trust());
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let begun = Instant::now();
    (0..30).for_each(|_| mutex.lock().unwrap().unlock().unwrap());
    assert!(at_best(begun) < SOON, "{:?}", begun.elapsed());
}

fn a_cut_session_is_resumed_over_tls() {
    let stage = Stage::new();
    // Longer than a busy machine takes to start a server.
    let long = Duration::from_secs(60);
    let session = connected(config(&stage.server.secure(), stage.trust()).session_timeout(long));
    let (id, events) = (session.status().session_id, session.subscribe());
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    for _ in 0..2 {
        stage.server.restart();
        assert_eq!(next(&events), SessionEvent::Suspended);
        assert_eq!(next(&events), SessionEvent::Reconnected);
    }
    assert!(guard.is_held() && session.status().session_id == id);
    guard.unlock().unwrap();
}

/// Locks are exact while connections end at any byte.
fn locks_are_exact_while_connections_are_cut() {
    let stage = Stage::new();
    let (at, server) = (stage.server.secure(), stage.server.embedded_server());
    let total = AtomicU64::new(0);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let sessions: Vec<_> = (0..2).map(|_| connected(config(&at, stage.trust()))).collect();
    let inside = AtomicU64::new(0);
    thread::scope(|scope| {
        let _all = contend::Over(&is_over);
        for session in sessions.iter().flat_map(|session| [session; 2]) {
            scope.spawn(|| {
                let mutex = ZkMutex::new(session, LOCK).unwrap();
                while !is_over.load(Ordering::SeqCst) {
                    let Ok(guard) = mutex.lock() else { continue };
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    total.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let _ = guard.unlock();
                }
            });
        }
        let done = || usize::try_from(total.load(Ordering::SeqCst)).unwrap();
        crate::support::embedded::flap(server, 7, 20, 100, done);
    });
    let path = stage.server.connect_string();
    scene::until_empty(&path, LOCK);
}

/// The close is answered, and the server hears the end of TLS.
fn a_close_ends_the_session_at_the_server() {
    let stage = Stage::new();
    let session = stage.session(stage.trust());
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let path = guard.path().to_owned();
    session.close().unwrap();
    let at = stage.server.connect_string();
    until("the node is gone", SOON, || contend::stat(&at, &path).is_none().then_some(()));
    drop(guard);
}

/// One host of two hangs in the handshake: the other has the session in time.
fn a_server_that_hangs_in_the_handshake_holds_nothing_up() {
    let stage = Stage::new();
    let silent = crate::support::Stub::silent();
    for _ in 0..4 {
        let at = format!("{},{}", silent.connect_string(), stage.server.secure());
        let begun = Instant::now();
        let session = connected(config(&at, stage.trust()).session_timeout(Duration::from_secs(3)));
        assert!(at_best(begun) < Duration::from_secs(10));
        ZkMutex::new(&session, LOCK).unwrap().lock().unwrap().unlock().unwrap();
    }
    let begun = Instant::now();
    let said = super::reason(
        config(&silent.connect_string(), stage.trust()).session_timeout(Duration::from_secs(3)),
    );
    assert!(at_best(begun) < Duration::from_secs(8));
    super::assert_says(&said, &["did not end the TLS handshake within"]);
}

/// The same of a session that lives: while its only server hangs in the handshake, calls keep their
/// deadlines, and the close too.
fn deadlines_hold_while_the_server_hangs_in_the_handshake() {
    let stage = Stage::new();
    let server: &Server = &stage.server;
    let session =
        connected(config(&server.secure(), stage.trust()).session_timeout(Duration::from_secs(6)));
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let events = session.subscribe();
    server.embedded_server().black_hole(true);
    assert_eq!(next(&events), SessionEvent::Suspended);
    let begun = Instant::now();
    assert!(mutex.lock_timeout(Duration::from_millis(500)).optional().is_err());
    assert!(at_best(begun) < Duration::from_secs(3), "{:?}", begun.elapsed());
    let begun = Instant::now();
    assert!(session.close().is_err());
    assert!(at_best(begun) < Duration::from_secs(3), "{:?}", begun.elapsed());
    server.embedded_server().black_hole(false);
}

/// The scenarios of this module.
pub fn tests() -> Vec<crate::support::Test> {
    #[allow(unused_mut)]
    let mut all = scenarios![@list
        threads_and_processes_exclude_each_other,
        a_held_lock_is_renewed_watched_and_lost_as_without_tls,
        tls_1_3_with_a_client_certificate on real,
        tls_1_3_without_a_client_certificate_is_refused_with_advice on real,
        a_host_name_is_checked_against_the_certificate,
        many_waiting_threads_are_answered,
        a_long_listing_is_read_to_its_end_at_once,
        a_cut_session_is_resumed_over_tls,
        locks_are_exact_while_connections_are_cut on embedded,
        a_close_ends_the_session_at_the_server,
        a_server_that_hangs_in_the_handshake_holds_nothing_up on embedded,
        deadlines_hold_while_the_server_hangs_in_the_handshake on embedded,
    ];
    #[cfg(feature = "client")]
    all.extend(scenarios![@list the_client_crate_works_on_the_same_connection]);
    all
}
