//! Bytes that are not TLS, or are TLS gone wrong: each is a cut with words, or a failed host.
use super::{Stage, assert_says, builder, reason};
use crate::support::{Proxy, Stub, scenarios, scene::next, stub::Then};
use std::time::{Duration, Instant};
use zk_mutex::{SessionEvent, ZkMutex};

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
            builder(&stub.connect_string(), stage.trust()).session_timeout(Duration::from_secs(2)),
        );
        assert!(said.contains(word), "{what}: {said}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{what}");
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
    let session = super::connected(builder(&proxy.connect_string(), stage.trust()));
    let (id, events) = (session.session_id(), session.subscribe());
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
    assert!(guard.is_held() && session.session_id() == id);
    assert_says(guard.path(), &["lock"]);
}

scenarios![
    answers_to_the_handshake_that_are_none_are_named on embedded,
    bytes_that_somebody_adds_to_the_stream_are_a_cut,
];
