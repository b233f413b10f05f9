//! Sessions: how they begin, move to another connection, and end.
use super::{
    answers::{Heard, deleted},
    checks::*,
    client::{Client, Hello, Welcome},
    requests::*,
};
use std::time::{Duration, Instant};
use zk_test_support::{Shared, scenarios};

scenarios![
    timeouts_are_negotiated,
    the_welcome_has_a_read_only_flag_if_the_client_sent_one,
    a_session_moves_to_a_new_connection_and_the_old_one_is_closed,
    the_timeout_is_negotiated_again_by_a_move,
    a_wrong_password_is_refused_and_closes_the_owners_connection,
    unknown_and_closed_sessions_are_refused,
    a_client_that_has_seen_more_is_turned_away,
    a_close_ends_session_and_connection,
    pings_are_answered_with_their_own_xid,
    a_first_frame_that_is_no_hello_closes_the_connection,
    a_second_hello_is_an_unknown_request,
    an_unknown_opcode_is_unimplemented_and_closes_the_connection,
    a_silent_session_expires_and_its_connection_is_closed,
    a_session_without_connection_expires,
];

/// The welcome of a refused session.
fn refused(read_only: Option<bool>) -> Welcome {
    Welcome { protocol: 0, timeout: 0, id: 0, password: vec![0; 16], read_only }
}

fn timeouts_are_negotiated() {
    let address = Shared::chroot();
    for (asked, granted) in [
        (10_000, 10_000),
        (500, 500),
        (499, 500),
        (1, 500),
        (0, 500),
        (-1, 500),
        (i32::MIN, 500),
        (501, 501),
        (60_000, 60_000),
        (60_001, 60_000),
        (i32::MAX, 60_000),
    ] {
        let client = Hello::new().timeout(asked).say(&address).unwrap();
        assert_eq!(client.welcome.timeout, granted, "asked for {asked}");
        assert_eq!(client.welcome.protocol, 0);
        assert_eq!(client.welcome.password.len(), 16);
    }
    let (one, other) = (Client::connect(&address), Client::connect(&address));
    assert_ne!(one.id(), other.id());
    assert_ne!(one.welcome.password, other.welcome.password);
}

fn the_welcome_has_a_read_only_flag_if_the_client_sent_one() {
    let address = Shared::chroot();
    for (sent, got) in [(Some(false), Some(false)), (Some(true), Some(false)), (None, None)] {
        let client = Hello { read_only: sent, ..Hello::new() }.say(&address).unwrap();
        assert_eq!(client.welcome.read_only, got, "sent {sent:?}");
        let again = Hello { read_only: sent, id: 1, ..Hello::new() }.say(&address).unwrap();
        assert_eq!(again.welcome, refused(got));
    }
    // Neither the protocol version of the client nor the length of a new session's password
    // matters.
    for protocol in [1, -1, i32::MAX] {
        let client = Hello { protocol, ..Hello::new() }.say(&address).unwrap();
        assert_eq!((client.welcome.protocol, client.welcome.password.len()), (0, 16));
    }
    for length in [0, 1, 100] {
        let client = Hello { password: vec![7; length], ..Hello::new() }.say(&address).unwrap();
        assert_eq!(client.welcome.password.len(), 16, "sent {length}");
    }
}

fn a_session_moves_to_a_new_connection_and_the_old_one_is_closed() {
    let address = Shared::chroot();
    let mut first = Client::connect(&address);
    let mut other = Client::connect(&address);
    make(&mut first, &["/watched", "/mine"]);
    first.good(&auth("digest", "alice:wonder"));
    first.good(&set_acl("/mine", &[acl(31, "auth", "")]));
    first.good(&ephemeral("/e"));
    first.good(&watch_data("/watched"));
    let mut second = Hello::again(&first).say(&address).unwrap();
    assert_eq!(second.welcome, first.welcome);
    assert_eq!(first.rest(), []);
    // The node stays with the session; the watch and the credentials are gone with the old
    // connection.
    other.good(&set_data("/watched", b"x"));
    heard(&mut second, &[]);
    assert_eq!(stat(&mut other, "/e").ephemeral_owner, second.id());
    codes(&mut second, &[(get_data("/mine"), NO_AUTH), (create("/by-second"), 0)]);
    second.close();
    assert_eq!(other.code(&exists("/e")), NO_NODE);
}

fn the_timeout_is_negotiated_again_by_a_move() {
    let address = Shared::chroot();
    let first = Hello::new().timeout(5_000).say(&address).unwrap();
    // The shortest timeout comes last, because nothing has to happen within it.
    for (asked, granted) in [(7_000, 7_000), (90_000, 60_000), (1, 500)] {
        let moved = Hello::again(&first).timeout(asked).say(&address).unwrap();
        assert_eq!(moved.welcome, Welcome { timeout: granted, ..first.welcome.clone() });
        moved.abandon();
    }
}

fn a_wrong_password_is_refused_and_closes_the_owners_connection() {
    let address = Shared::chroot();
    let mut client = Client::connect(&address);
    let good = client.welcome.password.clone();
    let mut nearly = good.clone();
    nearly[15] ^= 1;
    let short = good[..15].to_vec();
    for password in [vec![0; 16], nearly, short, Vec::new()] {
        let mut thief = Hello { password, ..Hello::again(&client) }.say(&address).unwrap();
        assert_eq!(thief.welcome, refused(Some(false)));
        assert_eq!(thief.rest(), []);
        assert_eq!(client.rest(), []);
        // The session still lives.
        client = Hello { password: good.clone(), ..Hello::again(&client) }.say(&address).unwrap();
        assert_eq!(client.code(&exists("/")), 0);
    }
}

fn unknown_and_closed_sessions_are_refused() {
    let address = Shared::chroot();
    let mut client = Client::connect(&address);
    client.close();
    let last = Client::connect(&address);
    for hello in [
        Hello::again(&client),
        Hello { id: 1, ..Hello::again(&client) },
        Hello { id: -1, ..Hello::again(&client) },
        Hello { id: last.id() + 1000, ..Hello::again(&client) },
    ] {
        let mut late = hello.say(&address).unwrap();
        assert_eq!(late.welcome, refused(Some(false)), "{hello:?}");
        assert_eq!(late.rest(), []);
    }
}

fn a_client_that_has_seen_more_is_turned_away() {
    let address = Shared::chroot();
    let mut client = Client::connect(&address);
    let seen = client.good(&Req::Ping).zxid;
    assert!(Hello { seen, ..Hello::new() }.say(&address).is_some());
    assert!(Hello { seen: -1, ..Hello::new() }.say(&address).is_some());
    assert!(Hello { seen: seen + 1_000_000, ..Hello::new() }.say(&address).is_none());
    assert!(Hello { seen: i64::MAX, ..Hello::again(&client) }.say(&address).is_none());
    // The client was refused before the server looked for the session's connection.
    assert_eq!(client.code(&exists("/")), 0);
}

fn a_close_ends_session_and_connection() {
    let address = Shared::chroot();
    let mut client = Client::connect(&address);
    let mut other = Client::connect(&address);
    client.good(&ephemeral("/e"));
    other.good(&watch_exists("/e"));
    let before = client.good(&Req::Ping).zxid;
    client.send(&[Req::CloseSession]);
    let Heard::Reply(reply) = client.next() else { panic!("no reply") };
    assert_eq!((reply.err, reply.xid), (0, 2));
    assert!(reply.zxid > before);
    assert_eq!(client.next(), Heard::Closed);
    heard(&mut other, &[deleted("/e")]);
    assert_eq!(other.code(&exists("/e")), NO_NODE);
}

fn pings_are_answered_with_their_own_xid() {
    let address = Shared::chroot();
    let mut client = Client::connect(&address);
    let zxid = zxid(&mut client, &create("/a"));
    assert!(client.good(&Req::Ping).zxid >= zxid);
    // The answer to a ping has xid -2, whatever its own xid is.
    client.say(&Req::Ping.frame(77, ""));
    client.expect(-2, op::PING);
    assert!(matches!(client.next(), Heard::Reply(reply) if reply.xid == -2));
    client.send(&[Req::Ping, Req::Ping]);
    for _ in 0..2 {
        assert!(matches!(client.next(), Heard::Reply(reply) if reply.xid == -2));
    }
}

fn a_first_frame_that_is_no_hello_closes_the_connection() {
    let address = Shared::chroot();
    let hello = Hello::new().frame();
    let cut = |length: usize| [&(length as u32).to_be_bytes(), &hello[4..4 + length]].concat();
    for bytes in [create("/early").frame(1, ""), Req::Ping.frame(-2, ""), cut(0), cut(7), cut(27)] {
        let mut client = Client::silent(&address);
        client.say(&bytes);
        assert_eq!(client.next(), Heard::Closed, "{bytes:?}");
    }
    assert_eq!(Client::connect(&address).code(&exists("/early")), NO_NODE);
}

fn a_second_hello_is_an_unknown_request() {
    let address = Shared::chroot();
    let mut client = Client::connect(&address);
    // As a request it has xid 0 and opcode 0.
    client.say(&Hello::new().frame());
    client.expect(0, 0);
    let Heard::Reply(reply) = client.next() else { panic!("no reply") };
    assert_eq!((reply.xid, reply.zxid, reply.err), (0, -1, UNIMPLEMENTED));
    assert_eq!(client.next(), Heard::Closed);
}

fn an_unknown_opcode_is_unimplemented_and_closes_the_connection() {
    let address = Shared::chroot();
    for op in [-1, 0, 10, 23, 99, 108, 1000, i32::MIN] {
        let mut client = Client::connect(&address);
        client.good(&ephemeral("/e"));
        let reply = client.call(&Req::Other { op, body: b"anything".to_vec() });
        assert_eq!((reply.xid, reply.zxid, reply.err), (2, -1, UNIMPLEMENTED), "opcode {op}");
        assert_eq!(client.next(), Heard::Closed);
        // The session still lives.
        let mut again = Hello::again(&client).say(&address).unwrap();
        assert_eq!(again.id(), client.id());
        assert_eq!(stat(&mut again, "/e").ephemeral_owner, client.id());
        again.close();
    }
}

fn a_silent_session_expires_and_its_connection_is_closed() {
    let address = Shared::chroot();
    let mut other = Client::connect(&address);
    let mut client = Hello::new().timeout(1500).say(&address).unwrap();
    client.good(&ephemeral("/e"));
    other.good(&watch_exists("/e"));
    // Pings keep the session alive.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(2500) {
        client.good(&Req::Ping);
        std::thread::sleep(Duration::from_millis(50));
    }
    let silent = Instant::now();
    client.good(&Req::Ping);
    assert_eq!(other.code(&exists("/e")), 0);
    assert_eq!(client.next(), Heard::Closed);
    assert!(silent.elapsed() >= Duration::from_millis(1500), "after {:?}", silent.elapsed());
    assert_eq!(other.next(), Heard::Event(deleted("/e")));
    assert_eq!(answered(&Hello::again(&client), &address), refused(Some(false)));
}

/// What the server answers to this connect request. While ZooKeeper ends the session, it may close
/// the connection without an answer; a later connection gets one.
#[track_caller]
fn answered(hello: &Hello, address: &str) -> Welcome {
    (0..20).find_map(|_| hello.say(address)).expect("an answer").welcome.clone()
}

fn a_session_without_connection_expires() {
    let address = Shared::chroot();
    let mut other = Client::connect(&address);
    let mut client = Hello::new().timeout(1000).say(&address).unwrap();
    client.good(&ephemeral("/e"));
    other.good(&watch_exists("/e"));
    let hello = Hello::again(&client);
    let gone = Instant::now();
    client.abandon();
    assert_eq!(other.next(), Heard::Event(deleted("/e")));
    assert!(gone.elapsed() >= Duration::from_millis(1000), "after {:?}", gone.elapsed());
    assert_eq!(answered(&hello, &address), refused(Some(false)));
}
