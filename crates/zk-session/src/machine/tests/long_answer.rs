//! Tests of answers that are longer than the longest frame: only their own request fails.

use super::background::sweep;
use super::*;
use crate::error::TOO_LONG_ADVICE;
use zk_wire::frame::MAX_FRAME;

/// The length of a long answer without its head.
const REST: usize = MAX_FRAME + 1000;

/// The beginning of an answer that is longer than any frame may be.
fn head(xid: i32, err: i32) -> Vec<u8> {
    head_of(HEAD + REST, xid, err)
}

/// The beginning of an answer of so many bytes.
fn head_of(length: usize, xid: i32, err: i32) -> Vec<u8> {
    let mut frame = ReplyHeader { xid, zxid: 1, err }.frame(&[]);
    frame[..4].copy_from_slice(&i32::try_from(length).unwrap().to_be_bytes());
    frame
}

/// The answer of a server to these requests.
type ServerAnswer = fn(&[Sent]) -> Vec<u8>;

impl Rig {
    /// The rest of a long answer, or a part of it.
    fn rest(&mut self, mut left: usize) {
        let chunk = [7; 64 << 10];
        while left > 0 {
            let part = left.min(chunk.len());
            self.bytes(&chunk[..part]);
            left -= part;
        }
    }

    /// A whole long answer.
    fn long_reply(&mut self, xid: i32) {
        self.bytes(&head(xid, err::OK));
        self.rest(REST);
    }

    /// Lets time pass in small steps, and answers the requests that are sent meanwhile. Gives the
    /// paths of the requests that get a long answer, as `is_long` says.
    fn serve(&mut self, time: Duration, is_long: impl Fn(i32) -> bool) -> Vec<String> {
        let (mut long, until) = (Vec::new(), self.now + time);
        while self.now < until {
            for (xid, op, path) in self.sent() {
                match op {
                    op if is_long(op) => {
                        self.long_reply(xid);
                        long.push(path);
                    }
                    op::DELETE => self.reply(xid, err::NO_NODE, &[]),
                    _ => self.reply(xid, err::OK, b"\0\0\0\x01/"),
                }
            }
            self.pass_time(T / 48);
        }
        long
    }
}

#[test]
fn a_listing_that_is_too_long_fails_at_once_and_alone() {
    let mut rig = Rig::up();
    let (a, b) = (rig.client_request(op::GET_CHILDREN, "/a"), rig.client_request(op::EXISTS, "/b"));
    let sent = rig.sent();
    let head = head(sent[0].0, err::OK);
    rig.bytes(&head[..head.len() - 1]);
    assert_eq!(rig.client_answers(), []);
    rig.bytes(&head[head.len() - 1..]);
    assert_eq!(rig.client_answers(), [(a, err::TOO_LONG)]);
    rig.rest(REST);
    rig.reply(sent[1].0, err::NO_NODE, &[]);
    assert_eq!(rig.client_answers(), [(b, err::NO_NODE)]);
    assert_eq!(rig.events(), []);
    assert_eq!(rig.machine.cut, None);
}

#[test]
fn a_length_that_no_request_accounts_for_is_cut() {
    // No request has a long answer, so the length alone is wrong.
    let mut rig = Rig::up();
    rig.client_request(op::EXISTS, "/a");
    let xid = rig.sent()[0].0;
    rig.bytes(&head(xid, err::OK)[..4]);
    assert!(rig.machine.cut.is_some());
    // A request may have a long answer, but the head does not fit it.
    let answers: [ServerAnswer; 6] = [
        |sent| head(sent[0].0 + 1000, err::OK),
        |sent| head(sent[1].0, err::OK), // of a request with a short answer
        |sent| head(sent[0].0, err::NO_NODE), // a refusal has no body
        |sent| head(sent[2].0, err::OK), // out of turn
        |_| head(xid::EVENT, err::OK),
        |_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
    ];
    for (case, answer) in answers.into_iter().enumerate() {
        let mut rig = Rig::up();
        for (op, path) in [(op::GET_CHILDREN, "/a"), (op::EXISTS, "/b"), (op::GET_CHILDREN, "/c")] {
            rig.client_request(op, path);
        }
        let sent = rig.sent();
        rig.bytes(&answer(&sent));
        assert!(rig.machine.cut.is_some(), "case {case}");
        assert!(
            rig.client_answers().iter().all(|(_, code)| *code == err::CONNECTION_LOSS),
            "case {case}"
        );
    }
}

#[test]
fn a_handshake_has_no_long_answers() {
    for auth in [&[][..], &[("digest", "a:b")]] {
        let mut rig = Rig::new(auth);
        rig.client_request(op::GET_CHILDREN, "/a");
        rig.connect();
        if !auth.is_empty() {
            rig.greet(7, T.as_millis() as i32);
        }
        rig.bytes(&head(1, err::OK)[..4]);
        assert!(rig.machine.cut.is_some(), "{auth:?}");
    }
}

#[test]
fn the_cut_of_a_long_answer_does_not_affect_the_next_connection() {
    let mut rig = Rig::up();
    rig.client_request(op::GET_CHILDREN, "/a");
    let xid = rig.sent()[0].0;
    rig.bytes(&head(xid, err::OK));
    rig.rest(REST / 2);
    rig.cut();
    rig.client_answers();
    let b = rig.client_request(op::EXISTS, "/b");
    let xid = rig.sent().pop().unwrap().0;
    rig.reply(xid, err::NO_NODE, &[]);
    assert_eq!(rig.client_answers(), [(b, err::NO_NODE)]);
}

#[test]
fn requests_that_wait_behind_a_long_answer_on_a_slow_line_do_not_cut_it() {
    let mut rig = Rig::up();
    let a = rig.client_request(op::GET_CHILDREN, "/a");
    let xid = rig.sent()[0].0;
    rig.bytes(&head(xid, err::OK));
    let b = rig.client_request(op::EXISTS, "/b");
    let behind = rig.sent();
    for part in 0..3 {
        rig.pass_time(T / 12);
        rig.rest(if part < 2 { REST / 3 } else { REST - REST / 3 * 2 });
    }
    assert_eq!(rig.machine.cut, None);
    // Its caller still gets an answer after T/6.
    assert_eq!(rig.client_answers(), [(a, err::TOO_LONG), (b, err::CONNECTION_LOSS)]);
    let sent: Vec<_> = behind.into_iter().chain(rig.sent()).collect();
    for (xid, op, _) in sent {
        rig.reply(xid, if op == op::EXISTS { err::NO_NODE } else { err::OK }, b"\0\0\0\x01/");
    }
    rig.pass_time(T / 12);
    assert_eq!(rig.client_answers(), []);
    assert_eq!(rig.machine.cut, None);
}

#[test]
fn a_long_answer_that_stops_or_does_not_end_is_cut_in_time() {
    // The answer that is skipped is followed by that to a `sync`, which is sent T/4 after the
    // listing at the latest.
    for (length, later) in [(MAX_FRAME + 1000, T / 4), (MAX_FRAME - 1000, Duration::ZERO)] {
        for (dripping, least) in [(false, T / 6), (true, T / 2)] {
            let mut rig = Rig::up();
            rig.client_request(op::GET_CHILDREN, "/a");
            let xid = rig.sent()[0].0;
            rig.bytes(&head_of(length, xid, err::OK));
            let begun = rig.now;
            while rig.machine.cut.is_none() {
                rig.pass_time(T / 50);
                if dripping {
                    rig.rest(100);
                }
            }
            let lasted = rig.now.since(begun);
            let expected = least..=least + later + T / 25;
            assert!(expected.contains(&lasted), "{length}, {dripping}: {lasted:?}");
        }
    }
}

/// The bytes of an answer that is taken come as slowly as those of one that is skipped.
#[test]
fn an_answer_whose_bytes_still_come_does_not_cut_the_connection() {
    for length in [MAX_FRAME + 1000, MAX_FRAME - 1000] {
        let mut rig = Rig::up();
        rig.client_request(op::GET_CHILDREN, "/a");
        let xid = rig.sent()[0].0;
        rig.bytes(&head_of(length, xid, err::OK));
        for _ in 0..3 {
            rig.pass_time(T / 15); // a third of the answer; all of it takes T/5
            rig.rest((length - HEAD) / 3);
        }
        assert_eq!(rig.machine.cut, None, "{length} bytes");
    }
}

/// The answer to a listing, with some 100,000 bytes.
fn long_listing(xid: i32) -> Vec<u8> {
    let name = "n".repeat(100);
    ReplyHeader { xid, zxid: 1, err: err::OK }.frame(&listing(&vec![name.as_str(); 1000]))
}

fn list(dir: &str) -> Operation<'_> {
    Operation::GetChildren { path: dir, watch: false }
}

#[test]
fn a_caller_waits_for_its_answer_while_its_bytes_come_and_the_others_do_not() {
    let mut rig = Rig::up();
    let (_, listed) = rig.call(&[(list("/a"), None)]);
    let frame = long_listing(rig.sent()[0].0);
    let (_, behind) = rig.call(&[(Operation::Exists { path: "/b" }, None)]);
    let exists = rig.sent();
    for part in frame.chunks(frame.len() / 4 + 1) {
        rig.pass_time(T / 15);
        rig.bytes(part);
    }
    assert_eq!(rig.machine.cut, None);
    assert!(listed.try_recv().unwrap().all[0].is_ok());
    let answers = behind.try_recv().unwrap();
    assert_eq!(answers.all[0].as_ref().err(), Some(&CallError::ConnectionLoss));
    assert!(!answers.was_cut_short);
    // The answer comes all the same, and is dropped.
    for (xid, ..) in exists.into_iter().chain(rig.sent()) {
        rig.reply(xid, err::OK, b"\0\0\0\x01/");
    }
    rig.pass_time(T / 4);
    assert_eq!(rig.machine.cut, None);
}

/// The client that shares the session takes answers in the order of its requests.
#[test]
fn a_raw_request_whose_answer_comes_slowly_is_answered_before_those_behind_it() {
    let mut rig = Rig::up();
    let a = rig.client_request(op::GET_CHILDREN, "/a");
    let xid = rig.sent()[0].0;
    let b = rig.client_request(op::EXISTS, "/b");
    for part in long_listing(xid).chunks(30_000) {
        rig.pass_time(T / 15);
        rig.bytes(part);
    }
    assert_eq!(rig.client_answers(), [(a, err::CONNECTION_LOSS), (b, err::CONNECTION_LOSS)]);
    assert_eq!(rig.machine.cut, None);
}

/// Only the caller whose answer was too slow waits for long before it asks again.
#[test]
fn a_caller_hears_that_its_own_answer_was_cut_short() {
    for slow in [true, false] {
        let mut rig = Rig::up();
        let (_, listed) = rig.call(&[(Operation::Sync, None), (list("/a"), None)]);
        let xids: Vec<i32> = rig.sent().iter().map(|(xid, ..)| *xid).collect();
        rig.pass_time(T / 12);
        let (_, behind) = rig.call(&[(Operation::Exists { path: "/b" }, None)]);
        rig.reply(xids[0], err::OK, b"\0\0\0\x01/");
        if slow {
            rig.bytes(&long_listing(xids[1])[..1000]);
        }
        rig.drop_connection();
        assert_eq!(listed.try_recv().unwrap().was_cut_short, slow);
        assert!(!behind.try_recv().unwrap().was_cut_short);
    }
}

/// An ordinary restart of the server costs no pause.
#[test]
fn a_server_that_ends_in_the_middle_of_an_answer_in_time_has_cut_nothing_short() {
    for (late, is_cut_short) in [(MS, true), (Duration::ZERO, false)] {
        let mut rig = Rig::up();
        let (_, listed) = rig.call(&[(list("/a"), None)]);
        let xid = rig.sent()[0].0;
        rig.bytes(&long_listing(xid)[..1000]);
        rig.pass_time(T / 12 - MS + late);
        rig.drop_connection();
        assert_eq!(listed.try_recv().unwrap().was_cut_short, is_cut_short);
    }
}

/// Each try blocks the answers to all others.
#[test]
fn a_sweep_whose_listing_is_cut_short_again_and_again_is_retried_ever_more_seldom() {
    let mut rig = Rig::up();
    rig.add_task(sweep());
    let (mut listed, until) = (Vec::new(), rig.now + T * 20);
    while rig.now < until {
        if rig.machine.wants_connection() {
            rig.attach(7);
        }
        for (xid, op, _) in rig.sent() {
            match op {
                op::GET_CHILDREN => {
                    listed.push(rig.now);
                    rig.bytes(&long_listing(xid)[..1000]);
                }
                op::DELETE => rig.reply(xid, err::NO_NODE, &[]),
                _ => rig.reply(xid, err::OK, b"\0\0\0\x01/"),
            }
            if rig.machine.wants_connection() {
                break;
            }
        }
        rig.pass_time(T / 48);
    }
    assert!((4..=8).contains(&listed.len()), "{listed:?}");
}

#[test]
fn a_sweep_whose_listing_is_too_long_is_retried_seldom_and_finds_its_node_later() {
    let mut rig = Rig::up();
    rig.add_task(sweep());
    let listed = rig.serve(T * 20, |op| op == op::GET_CHILDREN);
    assert!((2..=3).contains(&listed.len()), "{listed:?}");
    let [line] = &rig.logged[..] else { panic!("{:?}", rig.logged) };
    let said = format!(
        "/l/_c_id-lock-: its directory could not be listed, to find and delete our node \
         ({TOO_LONG_ADVICE})"
    );
    assert!(line.starts_with(&said), "{line}");
    assert_eq!(rig.machine.cut, None);
    // A cut of the connection does not shorten the pause.
    rig.cut();
    assert_eq!(rig.serve(T, |op| op == op::GET_CHILDREN), [""; 0]);
    assert_eq!(rig.pending(), ["id"]);
    let mut deleted = false;
    for _ in 0..48 * 20 {
        for (xid, op, path) in rig.sent() {
            match op {
                op::GET_CHILDREN => rig.reply(xid, err::OK, &listing(&["_c_id-lock-0000000003"])),
                op::GET_DATA => rig.reply(xid, err::OK, &node(b"", 5, 7)),
                op::DELETE if path != NOOP => {
                    assert_eq!(path, "/l/_c_id-lock-0000000003");
                    rig.reply(xid, err::OK, &[]);
                    deleted = true;
                }
                op::DELETE => rig.reply(xid, err::NO_NODE, &[]),
                _ => rig.reply(xid, err::OK, b"\0\0\0\x01/"),
            }
        }
        rig.pass_time(T / 48);
    }
    assert!(deleted);
    assert_eq!(rig.pending(), [""; 0]);
}

#[test]
fn a_removal_whose_node_is_too_long_to_read_is_reported_and_retried_seldom() {
    let mut rig = Rig::up();
    let (nonce, outcome) = rig.remove(None);
    let read = rig.serve(T * 20, |op| op == op::GET_DATA);
    assert!((2..=3).contains(&read.len()), "{read:?}");
    assert_eq!(rig.machine.cut, None);
    assert_eq!(outcome.try_recv(), Ok(Err(err::TOO_LONG)));
    assert_eq!(rig.pending(), [nonce]);
}

#[test]
fn a_hold_whose_node_is_too_long_to_read_stands_and_is_lost_with_its_node() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    let read = rig.serve(T, |op| op == op::GET_DATA);
    assert_eq!(read, ["/l/n"]);
    assert_eq!((&rig.machine.cut, hold.loss()), (&None, None));
    rig.event(event::DELETED, "/l/n");
    assert_eq!(hold.loss(), Some(LossReason::NodeDeleted));
}

#[test]
fn a_closing_session_skips_a_long_answer() {
    let mut rig = Rig::up();
    rig.client_request(op::GET_CHILDREN, "/a");
    let listed = rig.sent()[0].0;
    let told = rig.close();
    let (closing, op, _) = rig.sent().pop().unwrap();
    assert_eq!(op, op::CLOSE);
    rig.long_reply(listed);
    rig.reply(closing, err::OK, &[]);
    assert_eq!(told.try_recv(), Ok(true));
}
