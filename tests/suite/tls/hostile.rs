//! Bytes that are not TLS, or are TLS gone wrong: each is a cut with words, or a failed host.
use super::{Stage, assert_says, config, reason};
use crate::support::{
    Proxy, Stub, at_best,
    pki::{Files, Leaf},
    proxy_tls::{self, Terminated},
    scenarios,
    scene::{SOON, next},
    stub::Then,
    until,
};
use crossbeam_channel::{Receiver, bounded};
use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{RetryPolicy, SessionEvent, ZkMutex};

fn answers_to_the_handshake_that_are_none_are_named() {
    let stage = Stage::new();
    let record = |kind: u8, bytes: &[u8]| {
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        [&[kind, 3, 3], length.as_slice(), bytes].concat()
    };
    let cases: [(&str, Vec<u8>, Then, &str); 9] = [
        (
            "nothing, then the end",
            vec![],
            Then::Close,
            "closed the connection in the TLS handshake",
        ),
        ("half a record, then the end", vec![22, 3, 3, 0], Then::Close, "in the TLS handshake"),
        ("half a record, then silence", vec![22, 3, 3, 0], Then::Stay, "did not end the TLS"),
        ("HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), Then::Close, "does not speak TLS"),
        ("zeros", vec![0; 64], Then::Stay, "does not speak TLS"),
        ("ZooKeeper", [0, 0, 0, 37].repeat(10), Then::Stay, "does not speak TLS"),
        ("an alert", record(21, &[2, 40]), Then::Close, "refused the TLS connection"),
        ("an old version", record(21, &[2, 70]), Then::Close, "neither TLS 1.2 nor TLS 1.3"),
        ("a hello of nonsense", record(22, &[2, 0, 0, 3, 9, 9, 9]), Then::Stay, "TLS"),
    ];
    for (what, bytes, then, word) in cases {
        let stub = Stub::start(bytes, then);
        let begun = Instant::now();
        let said = reason(
            config(&stub.connect_string(), stage.trust()).session_timeout(Duration::from_secs(2)),
        );
        assert!(said.contains(word), "{what}: {said}");
        assert!(at_best(begun) < Duration::from_secs(10), "{what}");
    }
}

/// Bytes from the middle come into the stream: the connection is cut, and no caller sees them.
fn bytes_that_somebody_adds_to_the_stream_are_a_cut() {
    let stage = Stage::new();
    // It does not understand what it carries, and passes it on as it is.
    let proxy = Proxy::start(stage.server.secure().parse().unwrap());
    let ip = proxy.address().ip().to_string();
    let own = stage.server.address().ip().to_string();
    let leaf = crate::support::pki::Leaf::server(&[&ip, &own]);
    stage.server.renew(stage.pki.clone(), Some(leaf));
    stage.server.restart();
    let session = super::connected(config(&proxy.connect_string(), stage.trust()));
    let (id, events) = (session.status().session_id, session.subscribe());
    let guard = ZkMutex::new(&session, "/lock").unwrap().lock().unwrap();
    let forged: [&[u8]; 3] = [
        &[0, 0, 0, 20, 0, 0, 0, 1],
        &[
            23, 3, 3, 0, 32, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20,
            21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32,
        ],
        &[21, 3, 3, 0, 2, 1, 0], // an end that the server did not announce
    ];
    for bytes in forged {
        proxy.inject(bytes);
        assert_eq!(next(&events), SessionEvent::Suspended);
        assert_eq!(next(&events), SessionEvent::Reconnected);
    }
    assert!(guard.is_held() && session.status().session_id == id);
    assert_says(guard.path(), &["lock"]);
}

/// Serves TLS in front of a server without it, one connection after the other. At each message of
/// `announce` the connection says that it ends, and stays open. Ends when there are no more senders
/// of these messages.
fn relay(listener: &TcpListener, server: SocketAddr, files: &Files, announce: &Receiver<()>) {
    let config = proxy_tls::config(files);
    loop {
        let (client, _) = listener.accept().unwrap();
        let server = TcpStream::connect(server).unwrap();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        let tls = Terminated::new(&client, config.clone());
        let is_last = thread::scope(|scope| {
            scope.spawn(|| {
                let _ = io::copy(&mut &tls, &mut &server);
                let _ = io::copy(&mut &tls, &mut io::sink()); // until the client closes the socket
            });
            let answers = scope.spawn(|| io::copy(&mut &server, &mut &tls));
            let is_last = announce.recv().is_err();
            let _ = server.shutdown(Shutdown::Both);
            let _ = answers.join();
            tls.announce_end();
            is_last
        });
        if is_last {
            return;
        }
    }
}

/// The server says that the stream ends, and its socket stays open: no end of the socket and no
/// silence of T/6 may be needed to notice that.
fn an_end_that_only_tls_announces_is_a_cut() {
    // The next ping, which would get no answer, is later than this scenario may last.
    let timeout = Duration::from_secs(900);
    let stage = Stage::with(false, |server| server.max_session(timeout));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let files = stage.pki.issue("relay", &Leaf::server(&["127.0.0.1"]));
    let (base, cap) = (Duration::from_millis(1), Duration::from_millis(10));
    let at_once = RetryPolicy { base, cap, ..RetryPolicy::default() };
    let config = config(&listener.local_addr().unwrap().to_string(), stage.trust());
    let config = config.session_timeout(timeout).retry_policy(at_once);
    let (say, announce) = bounded(0);
    let server = stage.server.address();
    let relay = thread::spawn(move || relay(&listener, server, &files, &announce));
    let session = super::connected(config);
    assert_eq!(session.status().timeout, timeout);
    let (id, events) = (session.status().session_id, session.subscribe());
    let suspended_and_resumed = || {
        assert_eq!(next(&events), SessionEvent::Suspended);
        assert_eq!(next(&events), SessionEvent::Reconnected);
    };
    // The event loop reads the record.
    say.send(()).unwrap();
    suspended_and_resumed();
    // Or a thread that waits for an answer does.
    let mutex = ZkMutex::new(&session, "/lock").unwrap();
    let (is_over, locked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            // The bound is for a scenario that fails: its thread would never set `is_over`.
            let bound = Instant::now() + SOON * 3;
            while !is_over.load(Ordering::Relaxed) && Instant::now() < bound {
                mutex.lock().unwrap().unlock().unwrap_or(());
                locked.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..20 {
            let before = locked.load(Ordering::Relaxed);
            until("the thread is at work", SOON, || {
                (locked.load(Ordering::Relaxed) > before + 5).then_some(())
            });
            say.send(()).unwrap();
            suspended_and_resumed();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(session.status().session_id, id);
    session.close().unwrap();
    drop(say);
    relay.join().unwrap();
}

scenarios![
    answers_to_the_handshake_that_are_none_are_named on embedded,
    bytes_that_somebody_adds_to_the_stream_are_a_cut,
    an_end_that_only_tls_announces_is_a_cut on embedded,
];
