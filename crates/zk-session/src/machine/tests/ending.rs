//! Tests of the end of a session.

use super::*;

#[test]
fn an_expired_session_ends_everything_at_once() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    let a = rig.client_request(op::EXISTS, "/a");
    rig.sent();
    rig.drop_connection();
    let b = rig.client_request(op::EXISTS, "/b");
    rig.connect();
    rig.greet(0, 0);
    assert_eq!(rig.client_answers(), [(a, err::CONNECTION_LOSS), (b, err::SESSION_EXPIRED)]);
    assert_eq!(
        rig.events(),
        [SessionEvent::Suspended, SessionEvent::Lost(LossReason::SessionExpired)]
    );
    assert_eq!(hold.loss(), Some(LossReason::SessionExpired));
    let c = rig.client_request(op::EXISTS, "/c");
    assert_eq!(rig.client_answers(), [(c, err::SESSION_EXPIRED)]);
    assert!(!rig.machine.wants_connection());
}

/// The address was the ensemble's at the last look-up, and is another ensemble's now.
#[test]
fn a_server_that_may_belong_to_another_ensemble_does_not_end_the_session() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    for session_id in [0, 8] {
        rig.drop_connection();
        rig.connect_to(false);
        rig.greet(session_id, if session_id == 0 { 0 } else { T.as_millis() as i32 });
        assert!(rig.machine.wants_connection() && !rig.machine.is_ending());
        assert!(rig.machine.cut.as_ref().is_some_and(|why| why.contains("does not know")));
        assert!(rig.machine.take_doubt() && !rig.machine.take_doubt());
    }
    assert_eq!(hold.loss(), None);
    // It may take the session up: only the session's own ensemble knows it.
    rig.connect_to(false);
    rig.greet(7, T.as_millis() as i32);
    assert!(!rig.machine.wants_connection());
}

#[test]
fn another_session_never_takes_the_place_of_ours() {
    let mut rig = Rig::up();
    rig.drop_connection();
    rig.attach(8);
    assert_eq!(rig.events()[1..], [SessionEvent::Lost(LossReason::SessionExpired)]);
}

/// All servers refused the session in an outage, and then one of them resumed it: it must not be
/// given up later, although nobody has counted anew.
#[test]
fn a_session_that_a_server_has_resumed_is_not_given_up_for_earlier_refusals() {
    let mut rig = Rig::up();
    rig.machine.config.after_data_loss = Some(T);
    let since = rig.now;
    rig.drop_connection();
    rig.attach(7);
    rig.now = since + T * 2;
    rig.machine.refused_by_all(since, rig.now);
    assert!(!rig.machine.is_ending(), "the session is up");
    rig.drop_connection();
    rig.machine.refused_by_all(since, rig.now);
    assert!(rig.machine.is_ending() || rig.machine.is_over());
}

#[test]
fn a_request_that_is_refused_because_the_session_expired_ends_it_at_once() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    let a = rig.client_request(op::EXISTS, "/a");
    let xid = rig.only_request(op::EXISTS, "/a");
    rig.reply(xid, err::SESSION_EXPIRED, &[]);
    assert_eq!(rig.events(), [SessionEvent::Lost(LossReason::SessionExpired)]);
    assert_eq!(hold.loss(), Some(LossReason::SessionExpired));
    assert_eq!(rig.client_answers(), [(a, err::SESSION_EXPIRED)]);
    assert!(rig.machine.is_over(), "the server has nothing to close");
    assert_eq!(rig.sent(), []);
}

#[test]
fn a_session_that_is_closed_while_a_server_checks_its_credentials_is_closed_at_the_server() {
    let mut rig = Rig::new(&[("digest", "a:b")]);
    rig.attach(7);
    let server_knows = rig.close();
    let xids = rig.only_requests(&[(op::AUTH, ""), (op::CLOSE, "")]);
    rig.reply(xid::AUTH, err::OK, &[]);
    rig.reply(xids[1], err::OK, &[]);
    assert_eq!(server_knows.try_recv(), Ok(true));
}

#[test]
fn a_session_that_is_closed_while_a_server_makes_it_is_closed_at_the_server() {
    let mut rig = Rig::new(&[]);
    rig.connect();
    let server_knows = rig.close();
    assert!(server_knows.is_empty() && !rig.machine.is_over());
    rig.greet(7, T.as_millis() as i32);
    let xid = rig.only_request(op::CLOSE, "");
    rig.reply(xid, err::OK, &[]);
    assert_eq!(server_knows.try_recv(), Ok(true));
}

#[test]
fn refused_credentials_end_the_session_and_close_it_at_the_server() {
    let mut rig = Rig::new(&[("nonsense", "x")]);
    rig.attach(7);
    rig.sent();
    rig.reply(xid::AUTH, err::AUTH_FAILED, &[]);
    assert_eq!(rig.events(), [SessionEvent::Lost(LossReason::AuthFailed)]);
    rig.attach(7); // the server has hung up
    rig.only_request(op::CLOSE, "");
    let a = rig.client_request(op::EXISTS, "/a");
    assert_eq!(rig.client_answers(), [(a, err::AUTH_FAILED)]);
}

/// Otherwise the server deletes the nodes and other processes get the locks, while this process
/// still takes them for held.
#[test]
fn holds_end_before_the_session_with_refused_credentials_is_closed_at_the_server() {
    let mut rig = Rig::new(&[("digest", "x")]);
    rig.attach(7);
    rig.reply(xid::AUTH, err::OK, &[]);
    let hold = rig.hold("/l/n");
    rig.drop_connection();
    rig.attach(7);
    rig.sent();
    let refusal = ReplyHeader { xid: xid::AUTH, zxid: 0, err: err::AUTH_FAILED }.frame(&[]);
    rig.machine.server_bytes(&refusal, rig.now);
    // The event loop has not delivered the loss yet. Meanwhile any calling thread may write bytes.
    assert_eq!((rig.sent().len(), hold.loss()), (0, None));
    rig.deliver_outputs();
    assert_eq!(hold.loss(), Some(LossReason::AuthFailed));
    rig.attach(7);
    rig.only_request(op::CLOSE, "");
}

#[test]
fn a_close_is_sent_again_when_the_connection_dies() {
    let mut rig = Rig::up();
    let a = rig.client_request(op::EXISTS, "/a");
    rig.sent();
    let server_knows = rig.close();
    assert_eq!(rig.client_answers(), [(a, err::SESSION_EXPIRED)]);
    assert_eq!(rig.sent().last().map(|s| s.1), Some(op::CLOSE));
    rig.drop_connection();
    assert!(rig.machine.wants_connection());
    rig.attach(7);
    let (xid, op, _) = rig.sent().pop().unwrap();
    assert_eq!(op, op::CLOSE);
    rig.reply(xid, err::OK, &[]);
    assert_eq!(server_knows.try_recv(), Ok(true));
    assert!(rig.machine.is_over());
}

/// A server may have made a session whose id does not arrive: no other connection can close it.
#[test]
fn a_close_before_the_first_session_waits_for_this_handshake_only() {
    let mut rig = Rig::new(&[]);
    rig.connect();
    let server_knows = rig.close();
    assert!(!rig.machine.is_over(), "the server may make a session, which is to be closed");
    assert!(!rig.machine.is_dialling(), "another connection would make another session");
    rig.drop_connection();
    assert!(rig.machine.is_over());
    assert_eq!(server_knows.try_recv(), Ok(false));
}

#[test]
fn a_close_in_an_outage_gives_up_in_time() {
    let mut rig = Rig::up();
    rig.drop_connection();
    let server_knows = rig.close();
    rig.pass_time(CLOSE_TIMEOUT);
    assert_eq!(server_knows.try_recv(), Ok(false));
    assert!(rig.machine.is_over());
}

#[test]
fn a_removal_ends_with_its_session() {
    let mut rig = Rig::up();
    let (_, outcome) = rig.remove(None);
    rig.with(|m, now| m.end(LossReason::SessionExpired, now));
    assert!(outcome.try_recv().is_err_and(|e| e.is_disconnected()));
}

#[test]
fn a_closing_session_does_not_spin() {
    let mut rig = Rig::up();
    rig.close();
    rig.pass_time(MS);
    let mut wakes = 0;
    let end = rig.now + CLOSE_TIMEOUT;
    while let Some(next) = rig.tick().filter(|next| *next <= end) {
        assert!(next > rig.now, "a wake-up in the past");
        rig.now = next;
        wakes += 1;
    }
    assert!(wakes < 10, "{wakes}");
    assert!(rig.machine.is_over());
}

#[test]
fn refused_credentials_are_not_sent_again_to_close_the_session() {
    let mut rig = Rig::new(&[("digest", "a:b")]);
    rig.attach(7);
    rig.reply(xid::AUTH, err::OK, &[]);
    rig.cut();
    rig.sent();
    rig.reply(xid::AUTH, err::AUTH_FAILED, &[]);
    rig.sent();
    rig.cut(); // the server hangs up
    rig.only_request(op::CLOSE, "");
}

/// A server that enforces a scheme refuses the close of a session that has not logged in.
#[test]
fn a_session_that_is_closed_in_an_outage_presents_its_credentials_before_it_closes_itself() {
    let mut rig = Rig::new(&[("digest", "a:b")]);
    rig.attach(7);
    rig.reply(xid::AUTH, err::OK, &[]);
    rig.drop_connection();
    let server_knows = rig.close();
    rig.attach(7);
    let xids = rig.only_requests(&[(op::AUTH, ""), (op::CLOSE, "")]);
    rig.reply(xid::AUTH, err::OK, &[]);
    rig.reply(xids[1], err::OK, &[]);
    assert_eq!(server_knows.try_recv(), Ok(true));
}

/// Somebody has changed the password during the outage. A server that enforces no login takes the
/// close without one.
#[test]
fn a_session_whose_credentials_are_refused_while_it_closes_is_closed_without_them() {
    let mut rig = Rig::new(&[("digest", "a:b")]);
    rig.attach(7);
    rig.reply(xid::AUTH, err::OK, &[]);
    rig.drop_connection();
    let server_knows = rig.close();
    rig.attach(7);
    rig.sent();
    rig.reply(xid::AUTH, err::AUTH_FAILED, &[]);
    rig.attach(7);
    let xid = rig.only_request(op::CLOSE, "");
    rig.reply(xid, err::OK, &[]);
    assert_eq!(server_knows.try_recv(), Ok(true));
}

#[test]
fn a_session_that_was_closed_before_it_was_made_is_not_made() {
    let mut rig = Rig::new(&[]);
    let server_knows = rig.close();
    assert_eq!(server_knows.try_recv(), Ok(true));
    // Just then the socket is connected.
    assert!(rig.connect().is_empty());
    assert!(rig.machine.is_over());
}

#[test]
fn the_end_answers_every_request_once() {
    for reason in [LossReason::SessionClosed, LossReason::SessionExpired, LossReason::AuthFailed] {
        for is_up in [true, false] {
            let mut rig = Rig::up();
            let half = rig.call(&batches::two());
            let (a, sent) = (rig.client_request(op::EXISTS, "/a"), rig.call(&batches::two()));
            let left = rig.call(&batches::two());
            assert!(rig.abandon(&left));
            let xids: Vec<i32> = rig.sent().into_iter().map(|(xid, ..)| xid).collect();
            rig.reply(xids[0], err::NO_NODE, &[]);
            // Requests that were sent on a lost connection were answered when it was lost.
            let code = if is_up { code_of(reason) } else { err::CONNECTION_LOSS };
            if !is_up {
                rig.drop_connection();
            }
            let (unsent, b) = (rig.call(&batches::two()), rig.client_request(op::EXISTS, "/b"));
            let gone = rig.call(&batches::two());
            assert!(rig.abandon(&gone));
            rig.with(|m, now| m.end(reason, now));
            let lost = CallError::of(op::CLOSE, code);
            let ended = CallError::of(op::CLOSE, code_of(reason));
            for (call, expected) in [
                (&half, [CallError::NoNode, lost.clone()]),
                (&sent, [lost.clone(), lost.clone()]),
                (&unsent, [ended.clone(), ended.clone()]),
            ] {
                let answers = call.1.try_recv().unwrap();
                assert_eq!(
                    answers.all.into_iter().map(|a| a.unwrap_err()).collect::<Vec<_>>(),
                    expected
                );
            }
            for call in [&half, &sent, &unsent, &left, &gone] {
                assert!(call.1.try_recv().is_err_and(|e| e.is_disconnected()));
                assert!(!rig.abandon(call));
            }
            assert_eq!(rig.client_answers(), [(a, code), (b, code_of(reason))]);
            // Later answers of the server change nothing.
            for xid in xids.into_iter().skip(1) {
                rig.reply(xid, err::NO_NODE, &[]);
            }
            rig.pass_time(T);
            assert_eq!(rig.client_answers(), []);
            assert!(rig.machine.is_over() && rig.machine.batches.is_empty());
        }
    }
}

/// Callers that were there before hear of it by their channels, which the event loop disconnects.
#[test]
fn a_machine_in_the_place_of_a_failed_one_ends_what_is_held_and_refuses_everything() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    rig.machine = Machine::failed(rig.now);
    rig.deliver_outputs();
    assert_eq!(hold.loss(), Some(LossReason::Internal));
    assert_eq!(rig.events(), [SessionEvent::Lost(LossReason::Internal)]);
    assert_eq!(rig.submit(Batch::new()).err(), Some(CallError::Expired));
    let removed = rig.remove_and_tell(Removal::named("/l/n".to_owned(), "n".to_owned()));
    assert!(removed.try_recv().is_err_and(|e| e.is_disconnected()));
    assert!(rig.prove().try_recv().is_err_and(|e| e.is_disconnected()));
    assert_eq!(rig.close().try_recv(), Ok(false), "the server does not hear of it");
    assert!(rig.machine.is_over() && rig.tick().is_none());
}

/// The event loop carries the outputs out in order, and no hold may stand too long meanwhile.
#[test]
fn the_lease_is_ended_or_shortened_before_any_log_line_is_written() {
    let is_log = |output: &Output| matches!(output, Output::Log(..));
    let is_lease = |output: &Output| matches!(output, Output::Shortened { .. } | Output::Lost(_));
    for (session_id, timeout, auth) in
        [(7, T / 2, err::OK), (8, T, err::OK), (0, Duration::ZERO, err::OK), (7, T, -1)]
    {
        let mut rig = Rig::new(&[("digest", "u:p")]);
        rig.connect();
        rig.greet(7, T.as_millis() as i32);
        rig.reply(xid::AUTH, err::OK, &[]);
        rig.drop_connection();
        rig.connect();
        let timeout_ms = timeout.as_millis() as i32;
        let mut bytes = ConnectReply { timeout_ms, session_id, password: vec![5; 16] }.frame();
        bytes.extend(ReplyHeader { xid: xid::AUTH, zxid: 0, err: auth }.frame(&[]));
        rig.machine.server_bytes(&bytes, rig.now);
        if let Some(reason) = rig.machine.take_refusal() {
            rig.machine.all_refuse_login(reason, rig.now);
        }
        let at = |is: fn(&Output) -> bool| rig.machine.outputs.iter().position(is);
        assert!(
            at(is_lease).is_some_and(|lease| at(is_log).is_none_or(|log| lease < log)),
            "{session_id}"
        );
    }
}
