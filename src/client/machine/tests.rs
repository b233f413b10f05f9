use super::*;
use proptest::prelude::*;
use zk_wire::code::event;
use zk_wire::record::Writer;

const FIRST: u64 = 1 << 32;

/// A machine whose client is connected.
fn open(chroot: &str) -> ClientMachine {
    let mut machine = ClientMachine::new(chroot.into(), FIRST);
    let hello = Writer::bare().i32(0).i64(0).i32(42).i64(0).buffer(&[0; 16]).bool(false).frame();
    machine.client_bytes(&hello).unwrap();
    let granted = ConnectReply { timeout_ms: i32::MAX, session_id: 1, password: vec![0; 16] };
    assert_eq!(machine.to_client, granted.frame());
    machine.to_client.clear();
    machine
}

fn send_request(machine: &mut ClientMachine, xid: i32, op: i32, body: &[u8]) -> Vec<Submission> {
    let mut frame = Writer::request(xid, op).frame();
    frame.extend_from_slice(body);
    let length = (frame.len() - 4) as i32;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    machine.client_bytes(&frame).unwrap();
    std::mem::take(&mut machine.submissions)
}

/// Sends a request that is submitted to the session, and gives its number.
fn submitted(machine: &mut ClientMachine, xid: i32, op: i32, body: &[u8]) -> u64 {
    let submissions = send_request(machine, xid, op, body);
    assert_eq!(submissions.len(), 1);
    assert_eq!((submissions[0].op, &submissions[0].body[..]), (op, body));
    submissions[0].number
}

fn read(path: &str, watch: bool) -> Vec<u8> {
    Writer::bare().buffer(path.as_bytes()).bool(watch).body()
}

fn create(path: &str, flags: i32) -> Vec<u8> {
    Writer::bare().buffer(path.as_bytes()).buffer(b"").i32(0).i32(flags).body()
}

fn string(text: &str) -> Vec<u8> {
    Writer::bare().buffer(text.as_bytes()).body()
}

/// The frames for the client since the last call: xid, code and body.
fn received(machine: &mut ClientMachine) -> Vec<(i32, i32, Vec<u8>)> {
    let mut frames = Frames::default();
    frames.push(&std::mem::take(&mut machine.to_client));
    let mut frames_received = Vec::new();
    while let Some(frame) = frames.next().unwrap() {
        let (header, body) = ReplyHeader::read(frame).unwrap();
        frames_received.push((header.xid, header.err, body.to_vec()));
    }
    frames_received
}

#[test]
fn answers_leave_in_the_order_of_the_requests() {
    let mut machine = open("");
    let one = submitted(&mut machine, 1, op::GET_DATA, &read("/a", false));
    assert!(send_request(&mut machine, xid::PING, op::PING, &[]).is_empty());
    assert!(send_request(&mut machine, -4, op::AUTH, &[0; 12]).is_empty());
    let two = submitted(&mut machine, 2, op::DELETE, &[1, 2]);
    machine.answer(two, err::NO_NODE, 9, &[]);
    assert!(received(&mut machine).is_empty(), "the first is not answered yet");
    machine.answer(one, err::OK, 8, b"body");
    let expected = [
        (1, err::OK, b"body".to_vec()),
        (xid::PING, err::OK, vec![]),
        (-4 & i32::MAX, err::UNIMPLEMENTED, vec![]),
        (2, err::NO_NODE, vec![]),
    ];
    assert_eq!(received(&mut machine), expected);
    machine.answer(one, err::OK, 10, b"again");
    assert!(received(&mut machine).is_empty());
}

#[test]
fn an_idle_clients_ping_is_answered_at_once() {
    let mut machine = open("");
    send_request(&mut machine, xid::PING, op::PING, &[]);
    assert_eq!(received(&mut machine), [(xid::PING, err::OK, vec![])]);
}

/// Negative xids have another meaning in answers.
#[test]
fn the_clients_numbers_beyond_two_billion_are_not_taken_for_events() {
    let mut machine = open("");
    for xid in [-1, -2, i32::MIN] {
        let number = submitted(&mut machine, xid, op::DELETE, &[]);
        machine.answer(number, err::OK, 1, &[]);
        assert_eq!(received(&mut machine), [(xid & i32::MAX, err::OK, vec![])]);
    }
}

#[test]
fn containers_are_made_as_containers() {
    let mut machine = open("");
    let body = create("/c", 4);
    let made = send_request(&mut machine, 1, op::CREATE, &body);
    assert_eq!((made[0].op, &made[0].body), (op::CREATE_CONTAINER, &body));
    submitted(&mut machine, 2, op::CREATE, &create("/c", 3));
}

#[test]
fn operations_that_a_shared_session_cannot_have_are_refused_and_not_sent() {
    let mut machine = open("");
    let path = string("/locks");
    for op in [op::ADD_WATCH, op::REMOVE_WATCHES, op::AUTH, op::SET_WATCHES, op::MULTI, 9999] {
        assert!(send_request(&mut machine, 5, op, &path).is_empty(), "{op}");
        assert_eq!(received(&mut machine), [(5, err::UNIMPLEMENTED, vec![])], "{op}");
        assert_eq!(std::mem::take(&mut machine.warnings).len(), 1);
    }
}

/// A server would cut the connection, which is that of the whole session.
#[test]
fn a_request_longer_than_servers_take_is_refused_and_the_next_is_understood() {
    let mut machine = open("");
    for length in [LONGEST - 7, 17 << 20] {
        let mut frame = Writer::bare().i32(1).i32(op::SET_DATA).frame();
        frame[..4].copy_from_slice(&(length as i32 + 8).to_be_bytes());
        frame.resize(frame.len() + length, 7);
        // Until it has sent the last byte the client expects no answer.
        let last = frame.pop().unwrap();
        machine.client_bytes(&frame).unwrap();
        assert!(!machine.has_work());
        machine.client_bytes(&[last]).unwrap();
        assert_eq!(received(&mut machine), [(1, err::BAD_ARGUMENTS, vec![])]);
        assert!(machine.submissions.is_empty());
    }
    submitted(&mut machine, 2, op::SET_DATA, &vec![0; LONGEST - 8]);
}

#[test]
fn only_events_of_the_clients_own_watches_reach_it_and_each_once() {
    let mut machine = open("");
    let plain = submitted(&mut machine, 1, op::GET_DATA, &read("/plain", false));
    let data = submitted(&mut machine, 2, op::GET_DATA, &read("/data", true));
    let missing = submitted(&mut machine, 3, op::GET_DATA, &read("/missing", true));
    let awaited = submitted(&mut machine, 4, op::EXISTS, &read("/awaited", true));
    let lost = submitted(&mut machine, 5, op::GET_CHILDREN, &read("/lost", true));
    machine.answer(plain, err::OK, 1, &[]);
    machine.event(event::DATA_CHANGED, "/data"); // of a watch of a lock; the client has none yet
    machine.answer(data, err::OK, 1, &[]);
    machine.answer(missing, err::NO_NODE, 1, &[]);
    machine.answer(awaited, err::NO_NODE, 1, &[]);
    machine.answer(lost, err::CONNECTION_LOSS, 0, &[]);
    assert!(received(&mut machine).iter().all(|answer| answer.0 > 0));
    for path in ["/plain", "/missing", "/lost", "/other"] {
        for kind in event::CREATED..=event::CHILDREN_CHANGED {
            machine.event(kind, path);
        }
    }
    machine.event(event::CHILDREN_CHANGED, "/data");
    assert!(received(&mut machine).is_empty());
    machine.event(event::DATA_CHANGED, "/data");
    machine.event(event::DATA_CHANGED, "/data");
    machine.event(event::CREATED, "/awaited");
    let (changed, created) = (event::DATA_CHANGED, event::CREATED);
    let expected = [
        (xid::EVENT, err::OK, watch_event(changed, "/data")),
        (xid::EVENT, err::OK, watch_event(created, "/awaited")),
    ];
    assert_eq!(received(&mut machine), expected);
}

#[test]
fn after_a_reconnection_watches_are_set_again_until_a_server_has_answered() {
    let mut machine = open("");
    let number = submitted(&mut machine, 1, op::GET_DATA, &read("/a", true));
    machine.answer(number, err::OK, 7, &[]);
    let set_again = |machine: &mut ClientMachine| {
        machine.set_watches_again();
        let sent = std::mem::take(&mut machine.submissions);
        let [Submission { number, op: op::SET_WATCHES, body }] = &sent[..] else {
            panic!("{sent:?}")
        };
        (*number, body.clone())
    };
    let (first, body) = set_again(&mut machine);
    assert_eq!(body[..8], 7i64.to_be_bytes());
    // The next connection fails before it answers, but not before it has answered something else.
    let other = submitted(&mut machine, 2, op::DELETE, &[]);
    machine.answer(other, err::OK, 20, &[]);
    machine.answer(first, err::CONNECTION_LOSS, 0, &[]);
    // The connection may stand: the answer only came too late. No reconnection follows then.
    let sent = std::mem::take(&mut machine.submissions);
    let [Submission { op: op::SET_WATCHES, body: at_once, .. }] = &sent[..] else {
        panic!("{sent:?}")
    };
    assert_eq!(*at_once, body, "what changed after zxid 7 must fire still");
    let (second, again) = set_again(&mut machine);
    assert_eq!(again, body);
    machine.answer(second, err::OK, 30, &[]);
    let (third, body) = set_again(&mut machine);
    assert_eq!(body[..8], 30i64.to_be_bytes());
    machine.answer(third, err::UNIMPLEMENTED, 31, &[]);
    assert_eq!(machine.warnings.len(), 1);
    received(&mut machine);
    machine.event(event::DELETED, "/a");
    assert_eq!(received(&mut machine), [(xid::EVENT, err::OK, watch_event(event::DELETED, "/a"))]);
    machine.set_watches_again();
    assert!(machine.submissions.is_empty(), "it has fired");
}

#[test]
fn the_close_is_answered_after_earlier_requests_and_not_sent_to_the_server() {
    let mut machine = open("");
    let number = submitted(&mut machine, 1, op::GET_CHILDREN, &read("/a", true));
    assert!(send_request(&mut machine, 0, op::CLOSE, &[]).is_empty());
    assert!(send_request(&mut machine, 2, op::DELETE, &[]).is_empty());
    assert!(!machine.is_closed());
    machine.answer(number, err::OK, 3, &[]);
    assert!(machine.is_closed());
    assert_eq!(received(&mut machine), [(1, err::OK, vec![]), (0, err::OK, vec![])]);
    machine.event(event::DELETED, "/a");
    machine.set_watches_again();
    assert!(!machine.has_work());
}

#[test]
fn the_end_of_the_session_answers_everything_from_then_on() {
    let mut machine = open("");
    let one = submitted(&mut machine, 1, op::GET_DATA, &read("/a", true));
    machine.answer(one, err::OK, 3, &[]);
    let two = submitted(&mut machine, 2, op::GET_DATA, &read("/b", true));
    received(&mut machine);
    machine.ended(err::SESSION_EXPIRED);
    machine.ended(err::AUTH_FAILED);
    machine.answer(two, err::OK, 4, &[]);
    assert!(send_request(&mut machine, 3, op::DELETE, &[]).is_empty());
    machine.event(event::DELETED, "/a");
    let expired = |xid| (xid, err::SESSION_EXPIRED, vec![]);
    assert_eq!(received(&mut machine), [expired(2), expired(3)]);
    send_request(&mut machine, 0, op::CLOSE, &[]);
    assert_eq!(received(&mut machine), [(0, err::OK, vec![])]);
    assert!(machine.is_closed());
}

/// The client removes the chroot by its length, without comparing it.
#[test]
fn the_chroot_is_on_every_path_that_the_client_gets() {
    let mut machine = open("/app");
    let made = submitted(&mut machine, 1, op::CREATE, &create("/app/n-", 2));
    machine.answer(made, err::OK, 1, &string("/app/n-0000000001"));
    let strange = submitted(&mut machine, 2, op::CREATE, &create("/app/x", 0));
    machine.answer(strange, err::OK, 2, &string("/x"));
    let strange = submitted(&mut machine, 3, op::CREATE, &create("/app/x", 0));
    machine.answer(strange, err::OK, 2, &string("/apple"));
    let container = send_request(&mut machine, 4, op::CREATE, &create("/app/x", 4));
    machine.answer(container[0].number, err::OK, 2, &string("/x"));
    let codes: Vec<_> = received(&mut machine).iter().map(|answer| answer.1).collect();
    let strange = err::RUNTIME_INCONSISTENCY;
    assert_eq!(codes, [err::OK, strange, strange, strange]);
    // The client keeps the watch on its root under "/".
    let root = submitted(&mut machine, 5, op::GET_CHILDREN, &read("/app", true));
    machine.answer(root, err::OK, 3, &[]);
    received(&mut machine);
    machine.event(event::CHILDREN_CHANGED, "/app");
    let event = watch_event(event::CHILDREN_CHANGED, "/app/");
    assert_eq!(received(&mut machine), [(xid::EVENT, err::OK, event)]);
}

#[test]
fn an_answer_that_was_too_long_keeps_its_code() {
    let mut machine = open("");
    let number = submitted(&mut machine, 1, op::GET_CHILDREN, &read("/many", true));
    machine.answer(number, err::TOO_LONG, 1, &[]);
    assert_eq!(received(&mut machine), [(1, err::TOO_LONG, vec![])]);
}

#[test]
fn a_malformed_frame_of_the_client_is_an_error() {
    assert!(open("").client_bytes(&(-1i32).to_be_bytes()).is_err());
    assert!(open("").client_bytes(&[0, 0, 0, 2, 1, 1]).is_err());
    let mut no_path = Writer::request(1, op::EXISTS).i32(99).bool(true).frame();
    assert!(open("").client_bytes(&std::mem::take(&mut no_path)).is_err());
}

proptest! {
    #[test]
    fn garbage_is_refused_without_a_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        op in -20i32..120,
        body in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut machine = open("/app");
        let _ = machine.client_bytes(&Writer::request(1, op).buffer(&body).frame());
        let _ = machine.client_bytes(&bytes);
        for Submission { number, .. } in std::mem::take(&mut machine.submissions) {
            machine.answer(number, err::OK, 1, &body);
        }
        machine.set_watches_again();
        machine.event(op, "/app");
    }
}
