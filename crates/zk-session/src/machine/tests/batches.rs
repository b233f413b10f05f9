//! Tests of the requests of callers: several in one batch, and callers that leave before the
//! answers.

use super::*;
use crate::acl::Acl;

/// A contender's create, and the listing after it.
const ENTER: [(i32, &str); 2] = [(op::CREATE2, "/l/_c_id-lock-"), (op::GET_CHILDREN, "/l")];
const NODE: &str = "/l/_c_id-lock-0000000003";

fn create<'a>(path: &'a str, mode: CreateMode) -> Operation<'a> {
    Operation::Create { path, data: b"", acl: &Acl::Open, mode }
}

fn list(dir: &str) -> (Operation<'_>, Option<Removal>) {
    (Operation::GetChildren { path: dir, watch: false }, None)
}

fn contender<'a>(prefix: &'a str, id: &str) -> (Operation<'a>, Option<Removal>) {
    let settle = Some(Removal::of_create(prefix, id));
    (create(prefix, CreateMode::EphemeralSequential), settle)
}

/// The body of the answer to a create.
pub(super) fn created(path: &str, czxid: i64) -> Vec<u8> {
    node(path.as_bytes(), czxid, 7)
}

/// Two requests of one caller: a contender's create, and a listing.
pub(super) fn two() -> [(Operation<'static>, Option<Removal>); 2] {
    [contender("/l/_c_id-lock-", "id"), list("/l")]
}

impl Rig {
    fn enter(&mut self) -> PendingCall {
        self.call(&two())
    }

    pub(super) fn create_fixed(&mut self, nonce: &str) -> PendingCall {
        let settle = Some(Removal::signed("/l/lock".into(), nonce.into(), None));
        self.call(&[(create("/l/lock", CreateMode::Ephemeral), settle)])
    }

    /// Exactly these requests were sent; gives their xids.
    #[track_caller]
    pub(super) fn only_requests(&mut self, expected: &[(i32, &str)]) -> Vec<i32> {
        let sent = self.sent();
        assert_eq!(without_xids(&sent), expected);
        sent.into_iter().map(|(xid, ..)| xid).collect()
    }

    /// A sweep lists the directory, and does not find the node.
    #[track_caller]
    fn sweep_in_vain(&mut self) {
        self.acknowledge_noop();
        let xid = self.only_request(op::GET_CHILDREN, "/l");
        self.reply(xid, err::OK, &listing(&["_c_other-lock-0000000001"]));
    }
}

fn errors(answers: &Answers) -> Vec<Option<CallError>> {
    answers.all.iter().map(|answer| answer.as_ref().err().cloned()).collect()
}

const LOST: Option<CallError> = Some(CallError::ConnectionLoss);

/// The caller gets no answer at all.
fn is_unanswered(call: &PendingCall) -> bool {
    call.1.try_recv().is_err_and(|e| e.is_disconnected())
}

#[test]
fn two_requests_of_a_caller_are_one_flight_and_one_answer() {
    let mut rig = Rig::up();
    let call = rig.enter();
    let xids = rig.only_requests(&ENTER);
    rig.reply(xids[0], err::OK, &created(NODE, 9));
    assert!(call.1.is_empty());
    rig.reply(xids[1], err::OK, &listing(&["_c_id-lock-0000000003"]));
    let answers = call.1.try_recv().unwrap();
    assert_eq!(answers.epoch, 1);
    let [Ok(Reply::Created(path, Stat { czxid: 9, .. })), Ok(Reply::Children(children))] =
        &answers.all[..]
    else {
        panic!("{:?}", answers.all);
    };
    assert_eq!((path.as_str(), children.names()), (NODE, vec!["_c_id-lock-0000000003"]));
    assert!(is_unanswered(&call), "it was answered once");
}

#[test]
fn requests_that_pile_up_before_the_socket_takes_them_keep_their_xids() {
    let mut rig = Rig::up();
    rig.machine.next_xid = i32::MAX - 2; // the xids start again at 1 among these requests
    let calls: Vec<PendingCall> = (0..3).map(|_| rig.enter()).collect();
    let xids = rig.only_requests(&[ENTER, ENTER, ENTER].concat());
    assert_eq!(xids, [i32::MAX - 1, i32::MAX, 1, 2, 3, 4]);
    for (call, xids) in calls.iter().zip(xids.chunks(2)) {
        rig.reply(xids[0], err::NO_NODE, &[]);
        assert!(call.1.is_empty());
        rig.reply(xids[1], err::NO_NODE, &[]);
        assert_eq!(
            errors(&call.1.try_recv().unwrap()),
            [Some(CallError::NoNode), Some(CallError::NoNode)]
        );
    }
}

#[test]
fn a_cut_between_two_answers_leaves_the_first_as_it_is() {
    // The connection ends: by itself, by a malformed answer, by a session that has moved.
    for case in 0..3 {
        let mut rig = Rig::up();
        let call = rig.enter();
        let xids = rig.only_requests(&ENTER);
        rig.reply(xids[0], err::OK, &created(NODE, 9));
        match case {
            0 => rig.drop_connection(),
            1 => rig.reply(xids[1], err::OK, &[0x7f, 0xff, 0xff, 0xff]),
            _ => rig.reply(xids[1], err::SESSION_MOVED, &[]),
        }
        let answers = call.1.try_recv().unwrap();
        assert_eq!(errors(&answers), [None, LOST], "case {case}");
        assert_eq!(answers.epoch, 1);
        // The caller has its node.
        assert_eq!(rig.pending(), [""; 0]);
        rig.attach(7);
        assert_eq!(rig.sent(), []);
    }
}

#[test]
fn a_create_whose_answer_is_lost_is_swept_and_its_caller_is_answered_at_once() {
    for case in 0..3 {
        let mut rig = Rig::up();
        let call = rig.enter();
        let xids = rig.only_requests(&ENTER);
        match case {
            0 => rig.drop_connection(),
            1 => rig.reply(xids[0], err::OK, &[0, 0, 0, 9]),
            _ => rig.reply(xids[0], err::SESSION_MOVED, &[]),
        }
        let answers = call.1.try_recv().unwrap();
        assert_eq!(errors(&answers), [LOST, LOST], "case {case}");
        assert!(answers.pending.contains("id"));
        assert_eq!(rig.pending(), ["id"]);
        rig.attach(7);
        rig.acknowledge_noop();
        let xid = rig.only_request(op::GET_CHILDREN, "/l");
        rig.reply(xid, err::OK, &listing(&["_c_id-lock-0000000003"]));
        rig.delete_found(NODE);
        assert_eq!(rig.pending(), [""; 0]);
    }
}

#[test]
fn a_create_that_was_never_sent_has_made_nothing() {
    let mut rig = Rig::up();
    rig.drop_connection();
    let call = rig.enter();
    rig.pass_time(T / 6);
    assert_eq!(errors(&call.1.try_recv().unwrap()), [LOST, LOST]);
    assert_eq!(rig.pending(), [""; 0]);
    rig.attach(7);
    assert_eq!(rig.sent(), []);
}

#[test]
fn a_caller_that_leaves_before_its_requests_are_sent_takes_them_back() {
    let mut rig = Rig::up();
    rig.drop_connection();
    let calls = [rig.enter(), rig.create_fixed("first")];
    for call in &calls {
        assert!(rig.abandon(call));
        assert!(!rig.abandon(call), "twice");
        assert!(is_unanswered(call));
    }
    assert_eq!(rig.pending(), [""; 0]);
    rig.attach(7);
    assert_eq!(rig.sent(), []);
}

/// A caller that gets no answer learns whether a server can have got its requests.
#[test]
fn answers_say_whether_the_requests_were_sent() {
    let mut rig = Rig::up();
    let sent = rig.enter();
    rig.only_requests(&ENTER);
    rig.drop_connection();
    let answers = sent.1.try_recv().unwrap();
    assert_eq!((errors(&answers), answers.were_sent), (vec![LOST, LOST], true));
    let unsent = rig.enter();
    rig.pass_time(T / 6);
    let answers = unsent.1.try_recv().unwrap();
    assert_eq!((errors(&answers), answers.were_sent), (vec![LOST, LOST], false));
    rig.attach(7);
    assert!(!rig.sent().iter().any(|(_, op, _)| *op == op::CREATE2), "it is never sent");
}

#[test]
fn requests_can_be_withdrawn_until_they_are_sent() {
    let mut rig = Rig::up();
    let sent = rig.enter();
    let xids = rig.only_requests(&ENTER);
    assert!(!rig.machine.withdraw(sent.0));
    rig.reply(xids[0], err::OK, &created(NODE, 9));
    rig.reply(xids[1], err::OK, &listing(&[]));
    assert!(sent.1.try_recv().unwrap().were_sent);
    assert!(!rig.machine.withdraw(sent.0), "they are answered");
    rig.drop_connection();
    let unsent = rig.enter();
    assert!(rig.machine.withdraw(unsent.0) && !rig.machine.withdraw(unsent.0));
    rig.attach(7);
    assert!(!rig.sent().iter().any(|(_, op, _)| *op == op::CREATE2), "they are never sent");
}

#[test]
fn a_node_whose_caller_left_is_pending_at_once_and_deleted_when_it_is_made() {
    let mut rig = Rig::up();
    let call = rig.enter();
    let xids = rig.only_requests(&ENTER);
    assert_eq!(rig.pending(), [""; 0]);
    assert!(rig.abandon(&call));
    assert!(is_unanswered(&call));
    assert_eq!(rig.pending(), ["id"]);
    assert_eq!(rig.sent(), []);
    rig.reply(xids[0], err::OK, &created(NODE, 9));
    let delete = rig.only_request(op::DELETE, NODE);
    rig.reply(xids[1], err::OK, &listing(&["_c_id-lock-0000000003"]));
    assert_eq!(rig.pending(), ["id"]);
    rig.reply(delete, err::OK, &[]);
    assert_eq!(rig.pending(), [""; 0]);
    assert_eq!(rig.sent(), []);
}

#[test]
fn a_create_that_is_refused_after_its_caller_left_leaves_nothing_to_delete() {
    for code in [err::NO_NODE, err::NO_AUTH, err::INVALID_ACL, err::NO_CHILDREN_FOR_EPHEMERALS] {
        let mut rig = Rig::up();
        let call = rig.enter();
        let xids = rig.only_requests(&ENTER);
        rig.abandon(&call);
        rig.reply(xids[0], code, &[]);
        assert_eq!(rig.pending(), [""; 0], "{code}");
        rig.reply(xids[1], err::NO_NODE, &[]);
        assert_eq!(rig.sent(), []);
    }
}

#[test]
fn a_write_that_a_server_refuses_by_itself_is_answered_before_others_and_nothing_else_is() {
    let (own, leaders) = (0, 1_000);
    for (code, zxid, is_taken) in [
        (err::NO_AUTH, own, true),
        (err::INVALID_ACL, own, true),
        (err::NO_AUTH, leaders, false),
        (err::NO_NODE, own, false),
        (err::OK, own, false),
    ] {
        let mut rig = Rig::up();
        let (first, second) = (rig.enter(), rig.call(&[contender("/refused/_c_x-lock-", "x")]));
        let xids = rig.only_requests(&[ENTER[0], ENTER[1], (op::CREATE2, "/refused/_c_x-lock-")]);
        rig.bytes(&ReplyHeader { xid: xids[2], zxid, err: code }.frame(&[]));
        assert_eq!(rig.machine.cut.is_none(), is_taken, "{code} {zxid}");
        if is_taken {
            assert!(errors(&second.1.try_recv().unwrap())[0].is_some());
            assert!(first.1.is_empty(), "the other caller waits on");
            rig.reply(xids[0], err::OK, &created(NODE, 9));
            rig.reply(xids[1], err::OK, &listing(&["_c_id-lock-0000000003"]));
            assert_eq!(errors(&first.1.try_recv().unwrap()), [None, None]);
        }
    }
    // A server never refuses a read in this way.
    let mut rig = Rig::up();
    let _calls = (rig.enter(), rig.call(&[list("/refused")]));
    let xids = rig.only_requests(&[ENTER[0], ENTER[1], (op::GET_CHILDREN, "/refused")]);
    rig.bytes(&ReplyHeader { xid: xids[2], zxid: 0, err: err::NO_AUTH }.frame(&[]));
    assert!(rig.machine.cut.is_some());
}

#[test]
fn a_create_that_may_be_done_after_its_caller_left_is_swept() {
    // The connection ends, or the server's error leaves it open whether the node was made.
    for is_cut in [true, false] {
        let mut rig = Rig::up();
        let call = rig.enter();
        let xids = rig.only_requests(&ENTER);
        rig.abandon(&call);
        if is_cut {
            rig.cut();
        } else {
            rig.reply(xids[0], -127, &[]);
        }
        assert_eq!(rig.pending(), ["id"]);
        rig.sweep_in_vain();
        assert_eq!(rig.pending(), ["id"], "the create may still be done");
        if !is_cut {
            rig.reply(xids[1], err::NO_NODE, &[]);
        }
        assert!(is_unanswered(&call));
        assert_eq!(rig.sent(), []);
    }
}

#[test]
fn a_caller_that_leaves_between_two_answers_has_its_node_deleted_once() {
    // The second answer comes, or the batch is given up before it, or the connection ends.
    for case in 0..3 {
        let mut rig = Rig::up();
        rig.drop_connection();
        let call = rig.enter();
        rig.pass_time(T / 12);
        rig.attach(7);
        let xids = rig.only_requests(&ENTER);
        rig.reply(xids[0], err::OK, &created(NODE, 9));
        assert!(rig.abandon(&call));
        let delete = rig.only_request(op::DELETE, NODE);
        assert_eq!(rig.pending(), ["id"]);
        match case {
            0 => {
                rig.reply(xids[1], err::OK, &listing(&["_c_id-lock-0000000003"]));
                rig.reply(delete, err::OK, &[]);
            }
            1 => {
                rig.pass_time(T / 12);
                assert_eq!(rig.machine.cut, None);
                rig.reply(xids[1], err::OK, &listing(&["_c_id-lock-0000000003"]));
                rig.reply(delete, err::OK, &[]);
            }
            _ => {
                rig.cut();
                let delete = rig.only_request(op::DELETE, NODE);
                rig.reply(delete, err::NO_NODE, &[]);
            }
        }
        assert_eq!(rig.pending(), [""; 0], "case {case}");
        assert!(is_unanswered(&call));
        assert_eq!(rig.sent(), [], "case {case}");
    }
}

#[test]
fn the_second_of_two_creates_is_swept_too_when_it_is_given_up() {
    for leaves_first in [true, false] {
        let mut rig = Rig::up();
        rig.drop_connection();
        let call = rig.call(&[contender("/l/_c_a-lock-", "a"), contender("/l/_c_b-lock-", "b")]);
        rig.pass_time(T / 12);
        rig.attach(7);
        let xids =
            rig.only_requests(&[(op::CREATE2, "/l/_c_a-lock-"), (op::CREATE2, "/l/_c_b-lock-")]);
        if leaves_first {
            rig.abandon(&call);
        }
        rig.reply(xids[0], err::OK, &created("/l/_c_a-lock-0000000001", 9));
        if !leaves_first {
            rig.abandon(&call);
        }
        assert_eq!(rig.pending(), ["a", "b"]);
        let delete = rig.only_request(op::DELETE, "/l/_c_a-lock-0000000001");
        rig.pass_time(T / 12); // the batch has waited for T/6; the connection has been up for less
        assert_eq!(rig.machine.cut, None);
        let list = rig.only_request(op::GET_CHILDREN, "/l");
        rig.reply(xids[1], err::OK, &created("/l/_c_b-lock-0000000002", 10));
        rig.reply(delete, err::OK, &[]);
        rig.reply(list, err::OK, &listing(&["_c_b-lock-0000000002"]));
        assert_eq!(rig.pending(), ["b"]);
        rig.delete_found("/l/_c_b-lock-0000000002");
        assert_eq!(rig.pending(), [""; 0]);
    }
}

#[test]
fn a_node_with_a_fixed_name_whose_caller_left_is_removed_unless_the_create_was_refused() {
    for (code, is_removed) in
        [(err::OK, true), (err::NODE_EXISTS, false), (-127, true), (err::NO_AUTH, false)]
    {
        let mut rig = Rig::up();
        let nonce = nonce::new();
        let call = rig.create_fixed(&nonce);
        let xid = rig.only_request(op::CREATE2, "/l/lock");
        rig.abandon(&call);
        assert_eq!(rig.pending(), [nonce.as_str()]);
        let body = if code == err::OK { created("/l/lock", 9) } else { Vec::new() };
        rig.reply(xid, code, &body);
        assert_eq!(rig.pending().is_empty(), !is_removed, "{code}");
        if is_removed {
            if code != err::OK {
                rig.acknowledge_noop();
            }
            rig.answer_read(Some(node(&nonce::sign(&nonce, b"x"), 9, 7)));
            rig.write_and_delete(9);
        }
        assert_eq!((rig.sent(), rig.pending()), (vec![], vec![]));
    }
}

/// The server's error leaves it open whether the node was made.
#[test]
fn a_caller_that_leaves_behind_a_doubtful_create_has_its_node_removed_once() {
    for is_named in [true, false] {
        let mut rig = Rig::up();
        let create_node = if is_named {
            contender("/l/_c_id-lock-", "id")
        } else {
            let removal = Removal::signed("/l/lock".into(), "id".into(), None);
            (create("/l/lock", CreateMode::Ephemeral), Some(removal))
        };
        let call = rig.call(&[create_node, list("/l")]);
        let xids: Vec<i32> = rig.sent().into_iter().map(|(xid, ..)| xid).collect();
        rig.reply(xids[0], background::THROTTLED, &[]);
        assert!(rig.abandon(&call));
        assert_eq!(rig.pending(), ["id"]);
        rig.acknowledge_noop();
        let step = if is_named { (op::GET_CHILDREN, "/l") } else { (op::GET_DATA, "/l/lock") };
        rig.only_requests(&[step]);
    }
}

#[test]
fn a_lost_create_of_a_fixed_name_is_removed_though_its_caller_stays() {
    let mut rig = Rig::up();
    let call = rig.create_fixed("nonce");
    rig.only_request(op::CREATE2, "/l/lock");
    rig.cut();
    assert_eq!(errors(&call.1.try_recv().unwrap()), [LOST]);
    assert_eq!(rig.pending(), ["nonce"]);
    rig.acknowledge_noop();
    rig.only_request(op::GET_DATA, "/l/lock");
}

#[test]
fn a_caller_that_leaves_when_all_answers_are_there_gets_them() {
    for takes_them_itself in [false, true] {
        let mut rig = Rig::up();
        let call = rig.enter();
        let xids = rig.only_requests(&ENTER);
        let bodies = [created(NODE, 9), listing(&["_c_id-lock-0000000003"])];
        for (xid, body) in xids.into_iter().zip(bodies) {
            // The event loop has read the answers, and has not delivered them.
            let frame = ReplyHeader { xid, zxid: 9, err: err::OK }.frame(&body);
            rig.machine.server_bytes(&frame, rig.now);
        }
        assert!(!rig.machine.abandon(call.0, rig.now));
        assert!(call.1.is_empty());
        let taken = takes_them_itself.then(|| rig.take_answers(call.0).unwrap());
        rig.deliver_outputs();
        let answers = taken.unwrap_or_else(|| call.1.try_recv().unwrap());
        assert_eq!(errors(&answers), [None, None]);
        assert!(is_unanswered(&call), "it was answered once");
        assert_eq!((rig.sent(), rig.pending()), (vec![], vec![]));
    }
}

#[test]
fn a_caller_is_answered_after_a_sixth_of_the_timeout_and_the_connection_lives_on() {
    let mut rig = Rig::up();
    rig.drop_connection();
    let call = rig.enter();
    rig.pass_time(T / 12);
    rig.attach(7);
    let xids = rig.only_requests(&ENTER);
    rig.pass_time(T / 12);
    let answers = call.1.try_recv().unwrap();
    assert_eq!(errors(&answers), [LOST, LOST]);
    assert!(answers.pending.contains("id"));
    assert_eq!(rig.machine.cut, None);
    // The sweep runs on the connection of the create, after it.
    let noop = rig.only_request(op::DELETE, NOOP);
    rig.reply(xids[0], err::OK, &created(NODE, 9));
    rig.reply(xids[1], err::OK, &listing(&["_c_id-lock-0000000003"]));
    rig.reply(noop, err::NO_NODE, &[]);
    let list = rig.only_request(op::GET_CHILDREN, "/l");
    rig.reply(list, err::OK, &listing(&["_c_id-lock-0000000003"]));
    rig.delete_found(NODE);
    assert_eq!(rig.pending(), [""; 0]);
    assert!(is_unanswered(&call), "it was answered once");
}

#[test]
fn a_caller_whose_first_answer_came_in_time_keeps_it_when_the_second_is_late() {
    let mut rig = Rig::up();
    rig.drop_connection();
    let call = rig.enter();
    rig.pass_time(T / 12);
    rig.attach(7);
    let xids = rig.only_requests(&ENTER);
    rig.reply(xids[0], err::OK, &created(NODE, 9));
    rig.pass_time(T / 12);
    assert_eq!(errors(&call.1.try_recv().unwrap()), [None, LOST]);
    rig.reply(xids[1], err::OK, &listing(&["_c_id-lock-0000000003"]));
    assert_eq!((rig.sent(), rig.pending(), &rig.machine.cut), (vec![], vec![], &None));
}

#[test]
fn a_listing_comes_with_the_ids_of_our_nodes_that_are_still_to_be_deleted() {
    let mut rig = Rig::up();
    rig.add_task(background::delete("/l/a")); // its id is "id"
    let delete = rig.only_request(op::DELETE, "/l/a");
    let (before, behind) = (rig.call(&[list("/l")]), rig.call(&[list("/l")]));
    let xids = rig.only_requests(&[(op::GET_CHILDREN, "/l"); 2]);
    // The delete was acknowledged before this listing, so the listing has no node of ours to
    // delete.
    rig.reply(delete, err::OK, &[]);
    rig.reply(xids[0], err::OK, &listing(&["b"]));
    assert!(!before.1.try_recv().unwrap().pending.contains("id"));
    // This delete was sent after the listing. The node is still listed, and its id is pending.
    rig.add_task(background::delete("/l/b"));
    rig.reply(xids[1], err::OK, &listing(&["b"]));
    assert!(behind.1.try_recv().unwrap().pending.contains("id"));
}

// ---- a new connection ----

#[test]
fn a_new_connection_renews_the_lease_then_deletes_then_sends_what_waited() {
    let mut rig = Rig::up();
    let _hold = rig.hold("/l/n");
    rig.drop_connection();
    let call = rig.enter();
    rig.add_task(background::delete("/l/a"));
    rig.attach(7);
    rig.only_requests(&[&[(op::DELETE, NOOP), (op::DELETE, "/l/a")], &ENTER[..]].concat());
    assert!(call.1.is_empty());
}

#[test]
fn a_request_between_the_handshake_and_the_first_tick_is_not_sent_ahead() {
    let mut rig = Rig::up();
    let _hold = rig.hold("/l/n");
    rig.drop_connection();
    rig.add_task(background::delete("/l/a"));
    rig.connect();
    let reply =
        ConnectReply { timeout_ms: T.as_millis() as i32, session_id: 7, password: vec![5; 16] };
    rig.machine.server_bytes(&reply.frame(), rig.now);
    rig.deliver_outputs();
    assert_eq!(rig.events().last(), Some(&SessionEvent::Reconnected));
    // Threads that the event has woken come before the event loop calls `tick`.
    let mut batch = Batch::new();
    batch.push(&Operation::Exists { path: "/left" }, None);
    let (left_number, left) = rig.submit(batch).unwrap();
    let mut batch = Batch::new();
    batch.push(&Operation::Exists { path: "/x" }, None);
    let (_, answers) = rig.submit(batch).unwrap();
    rig.machine.add_task(background::delete("/l/b"), rig.now);
    assert!(rig.leave(left_number));
    let proof = rig.machine.prove(rig.now);
    let fresh = rig.outcome_of(proof);
    assert_eq!((rig.sent(), rig.machine.wants_attention()), (vec![], true));
    rig.tick();
    let expected =
        [(op::DELETE, NOOP), (op::DELETE, "/l/a"), (op::DELETE, "/l/b"), (op::EXISTS, "/x")];
    let xids = rig.only_requests(&expected);
    for xid in xids {
        rig.reply(xid, err::NO_NODE, &[]);
    }
    assert_eq!(errors(&answers.try_recv().unwrap()), [Some(CallError::NoNode)]);
    assert_eq!(fresh.try_recv(), Ok(Ok(())));
    assert!(left.try_recv().is_err_and(|e| e.is_disconnected()));
}

#[test]
fn a_process_that_was_stopped_reconnects_before_it_deletes_an_abandoned_node() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    let call = rig.enter();
    let xids = rig.only_requests(&ENTER);
    rig.reply(xids[0], err::OK, &created(NODE, 9));
    rig.now = rig.now + T / 3; // nothing ran, and the caller's deadline has passed
    assert!(rig.abandon(&call));
    assert!(rig.machine.cut.is_some());
    assert_eq!(rig.sent(), []);
    rig.attach(7);
    rig.only_requests(&[(op::DELETE, NOOP), (op::DELETE, NODE)]);
    assert!(is_unanswered(&call));
    assert_eq!(hold.loss(), None);
}
