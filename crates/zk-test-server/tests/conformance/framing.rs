//! Frames: their longest length, and the pieces in which they may arrive.
use super::{
    answers::{Body, Heard},
    checks::*,
    client::{Client, Hello},
    requests::*,
};
use std::time::Duration;
use zk_test_support::{Shared, scenarios};

scenarios![
    a_frame_may_be_as_long_as_jute_maxbuffer,
    a_longer_one_closes_the_connection,
    frames_without_a_header_close_the_connection,
    frames_may_come_in_pieces_or_many_at_once,
    an_answer_may_be_longer_than_a_request,
    requests_are_answered_in_their_order,
];

/// `jute.maxbuffer`, by default.
const LONGEST: usize = 0xf_ffff;

/// A create whose frame has this length.
fn create_of(path: &str, length: usize) -> Req {
    let bare = create(path).frame(0, "").len() - 4;
    create(path).data(&vec![7; length - bare])
}

fn a_frame_may_be_as_long_as_jute_maxbuffer() {
    let address = Shared::chroot();
    let mut client = Client::connect(&address);
    let root = address.len() - address.find('/').unwrap();
    for (path, length) in [("/a", LONGEST), ("/b", LONGEST - 1)] {
        let longest = create_of(path, length - root);
        client.good(&longest);
        let Req::Create(Create { data, .. }) = longest else { unreachable!() };
        let Body::Data(read, _) = client.body(&get_data(path)) else { panic!() };
        assert_eq!(read, data);
        client.good(&delete(path));
    }
}

fn a_longer_one_closes_the_connection() {
    let address = Shared::chroot();
    let root = address.len() - address.find('/').unwrap();
    let mut client = Client::connect(&address);
    client.good(&ephemeral("/e"));
    client.send(&[create_of("/a", LONGEST + 1 - root)]);
    assert_eq!(client.next(), Heard::Closed);
    let mut client = Hello::again(&client).say(&address).unwrap();
    codes(&mut client, &[(exists("/a"), NO_NODE), (exists("/e"), 0)]);
    client.close();
    // The length alone is enough, also on a new connection.
    for length in [LONGEST as i32 + 1, i32::MAX, -1, i32::MIN] {
        let mut client = Client::connect(&address);
        client.say(&length.to_be_bytes());
        assert_eq!(client.next(), Heard::Closed, "{length}");
        let mut silent = Client::silent(&address);
        silent.say(&length.to_be_bytes());
        assert_eq!(silent.next(), Heard::Closed, "{length}");
    }
}

fn frames_without_a_header_close_the_connection() {
    let address = Shared::chroot();
    for length in [0, 1, 4, 7] {
        let mut client = Client::connect(&address);
        client.say(&[&(length as u32).to_be_bytes()[..], &vec![0; length]].concat());
        assert_eq!(client.next(), Heard::Closed, "{length}");
    }
}

fn frames_may_come_in_pieces_or_many_at_once() {
    let address = Shared::chroot();
    let root = &address[address.find('/').unwrap()..];
    let mut client = Client::connect(&address);
    make(&mut client, &["/a"]);
    let frame = exists("/a").frame(2, root);
    for byte in &frame {
        client.say(&[*byte]);
        std::thread::sleep(Duration::from_micros(100));
    }
    client.expect(2, op::EXISTS);
    assert!(matches!(client.next(), Heard::Reply(reply) if reply.err == 0));
    // One packet with a frame and a half, then the other half.
    let cut = frame.len() / 2;
    client.say(&[&frame, &frame[..cut]].concat());
    client.expect(2, op::EXISTS);
    assert!(matches!(client.next(), Heard::Reply(reply) if reply.err == 0));
    client.say(&frame[cut..]);
    client.expect(2, op::EXISTS);
    assert!(matches!(client.next(), Heard::Reply(reply) if reply.err == 0));
    // The connect request may come in pieces, too.
    let mut silent = Client::silent(&address);
    for byte in Hello::new().frame() {
        silent.say(&[byte]);
    }
    let welcome = silent.welcomed();
    assert_ne!(welcome.id, 0);
    // Requests may follow the connect request before it was answered.
    let mut silent = Client::silent(&address);
    silent.say(
        &[Hello::new().frame(), exists("/a").frame(1, root), delete("/a").frame(2, root)].concat(),
    );
    assert_ne!(silent.welcomed().id, 0);
    silent.expect(1, op::EXISTS);
    silent.expect(2, op::DELETE);
    for xid in [1, 2] {
        assert!(matches!(silent.next(), Heard::Reply(reply) if (reply.xid, reply.err) == (xid, 0)));
    }
}

fn an_answer_may_be_longer_than_a_request() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/p"]);
    let name = "n".repeat(5000);
    let creates = Vec::from_iter((0..300).map(|number| create(&format!("/p/{name}{number}"))));
    client.send(&creates);
    for _ in &creates {
        assert_eq!(client.reply().map(|reply| reply.err), Some(0));
    }
    assert_eq!(names(&mut client, "/p").len(), creates.len());
    for number in 0..300 {
        client.good(&delete(&format!("/p/{name}{number}")));
    }
}

fn requests_are_answered_in_their_order() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a"]);
    let mut requests = Vec::new();
    for round in 0..200 {
        let path = format!("/a/{round}");
        requests.extend([
            create(&path),
            exists(&path),
            get_children("/x"),
            Req::Ping,
            set_data("/a", b""),
            sync("/"),
        ]);
    }
    client.send(&requests);
    let mut xid = 1;
    for request in &requests {
        let expected = if matches!(request, Req::Ping) {
            -2
        } else {
            xid += 1;
            xid
        };
        assert_eq!(client.reply().map(|reply| reply.xid), Some(expected), "{request:?}");
    }
}
