//! The login by SASL on a new connection.

use super::*;
use crate::machine::{SaslStep, SaslWords};

fn words() -> SaslWords {
    SaslWords { login: "SASL TEST as \"alice\"".into(), advice: "check the test" }
}

/// A session that logs in by SASL, and then with credentials of the scheme digest.
fn rig() -> Rig {
    let mut rig = Rig::new(&[("digest", "a:b")]);
    rig.machine.config.sasl = Some(words());
    rig
}

/// The mechanism makes a step.
fn step(rig: &mut Rig, step: SaslStep) {
    rig.with(|machine, now| machine.sasl(step, now));
    rig.attend();
}

/// The token of the server that the mechanism has to answer.
fn asked(rig: &mut Rig) -> Option<Vec<u8>> {
    let mut asked = std::mem::take(&mut rig.sasl);
    assert_eq!(asked.len(), 1, "{asked:?}");
    asked.remove(0)
}

/// The server's answer to our token.
fn token(token: &[u8]) -> Vec<u8> {
    Writer::bare().buffer(token).body()
}

/// Both sides log in on the connection that has just begun.
fn log_in(rig: &mut Rig) {
    assert_eq!(asked(rig), None);
    step(rig, SaslStep::Send(b"1".into()));
    let xid = rig.only_request(op::SASL, "1");
    rig.reply(xid, err::OK, &token(b"2"));
    assert_eq!(asked(rig).as_deref(), Some(&b"2"[..]));
    step(rig, SaslStep::Done);
    assert_eq!(rig.sent().iter().map(|sent| sent.1).collect::<Vec<_>>(), [op::AUTH]);
    rig.reply(xid::AUTH, err::OK, &[]);
}

/// The server takes the token with this xid, and so the login; the session, which ends, closes
/// itself behind that.
fn closes_behind_the_login(rig: &mut Rig, xid: i32) {
    rig.reply(xid, err::OK, &token(b"2"));
    assert_eq!(asked(rig).as_deref(), Some(&b"2"[..]));
    step(rig, SaslStep::Done);
    let xids = rig.only_requests(&[(op::AUTH, ""), (op::CLOSE, "")]);
    rig.reply(xid::AUTH, err::OK, &[]);
    rig.reply(xids[1], err::OK, &[]);
}

#[test]
fn a_login_by_sasl_goes_before_everything_else_on_every_connection() {
    let mut rig = rig();
    for _ in 0..2 {
        let a = rig.client_request(op::EXISTS, "/a");
        rig.attach(7);
        assert_eq!(rig.sent(), [], "something goes before the mechanism has said a word");
        log_in(&mut rig);
        let xid = rig.only_request(op::EXISTS, "/a");
        rig.reply(xid, err::NO_NODE, &[]);
        assert_eq!(rig.client_answers(), [(a, err::NO_NODE)]);
        rig.drop_connection();
    }
}

#[test]
fn a_step_that_comes_after_its_connection_has_ended_is_not_taken_for_one_of_the_next() {
    let mut rig = rig();
    rig.attach(7);
    rig.drop_connection();
    step(&mut rig, SaslStep::Send(b"late".into()));
    assert_eq!(rig.sent(), []);
    rig.sasl.clear();
    rig.attach(7);
    log_in(&mut rig);
    step(&mut rig, SaslStep::Refused("late".into()));
    assert_eq!(rig.events(), [SessionEvent::Connected { session_id: 7, timeout: T }]);
}

#[test]
fn a_refused_login_ends_the_session_and_says_why() {
    for code in [err::AUTH_FAILED, err::REQUIRES_AUTH] {
        let mut rig = rig();
        rig.attach(7);
        step(&mut rig, SaslStep::Send(b"1".into()));
        let xid = rig.only_request(op::SASL, "1");
        rig.reply(xid, code, &token(b""));
        assert_eq!(rig.events(), [SessionEvent::Lost(LossReason::AuthFailed)]);
        let [reason] = &rig.refusals[..] else { panic!("{:?}", rig.refusals) };
        let name = err::name(code);
        for part in ["SASL TEST as \"alice\"", "check the test", &name] {
            assert!(reason.contains(part), "{reason}");
        }
    }
}

/// Otherwise the server deletes the nodes and other processes get the locks, while this process
/// still takes them for held.
#[test]
fn holds_end_before_the_session_with_a_refused_login_is_closed_at_the_server() {
    let mut rig = rig();
    rig.attach(7);
    log_in(&mut rig);
    let hold = rig.hold("/l/n");
    rig.drop_connection();
    rig.attach(7);
    step(&mut rig, SaslStep::Send(b"1".into()));
    let xid = rig.only_request(op::SASL, "1");
    let refusal = ReplyHeader { xid, zxid: 0, err: err::AUTH_FAILED }.frame(&token(b""));
    rig.machine.server_bytes(&refusal, rig.now);
    assert_eq!((rig.sent().len(), hold.loss()), (0, None));
    rig.deliver_outputs();
    assert_eq!(hold.loss(), Some(LossReason::AuthFailed));
}

/// Its key may be old, or its password not be changed yet.
#[test]
fn one_server_that_refuses_the_login_costs_the_connection_and_not_the_session() {
    let mut rig = rig();
    rig.is_only_host = false;
    rig.attach(7);
    log_in(&mut rig);
    rig.events();
    let hold = rig.hold("/l/n");
    rig.drop_connection();
    rig.events();
    rig.attach(7);
    step(&mut rig, SaslStep::Send(b"1".into()));
    let xid = rig.only_request(op::SASL, "1");
    rig.reply(xid, err::AUTH_FAILED, &token(b""));
    assert_eq!((rig.refused_by.len(), rig.events(), hold.loss()), (1, vec![], None));
    assert!(rig.machine.wants_connection());
    rig.sasl.clear();
    rig.attach(7);
    log_in(&mut rig);
    assert_eq!((rig.events(), hold.loss()), (vec![SessionEvent::Reconnected], None));
    // The next refusal is that of all servers.
    rig.drop_connection();
    rig.is_only_host = true;
    rig.attach(7);
    step(&mut rig, SaslStep::Refused("not proven".into()));
    assert_eq!(hold.loss(), Some(LossReason::AuthFailed));
}

/// Each handshake keeps the session alive at the server, although nothing can be asked on it. The
/// nodes of such a session would stand for ever, and nobody else would get its locks.
#[test]
fn a_session_that_cannot_log_in_for_its_timeout_is_given_up_and_closed_without_a_login() {
    for code in [err::OK, err::REQUIRES_AUTH] {
        let mut rig = rig();
        rig.is_only_host = false;
        rig.attach(7);
        log_in(&mut rig);
        rig.events();
        let hold = rig.hold("/l/n");
        let waiter = rig.client_request(op::EXISTS, "/a");
        rig.sent();
        rig.drop_connection();
        // An outage costs no session that the servers still know.
        rig.pass_time(T * 2);
        let taken_up = rig.now + T / 8;
        let mut closed = None;
        while closed.is_none() {
            assert!(rig.now <= taken_up + T * 5 / 4, "the session is kept alive for ever");
            rig.pass_time(T / 8);
            rig.attach(7);
            if let [None] = std::mem::take(&mut rig.sasl)[..] {
                assert!(rig.now < taken_up + T, "it logs in once more");
                step(&mut rig, SaslStep::Failed("no ticket".into()));
            } else {
                closed = Some(rig.only_request(op::CLOSE, ""));
            }
        }
        assert!(rig.now >= taken_up + T, "it gives up a session that could have been saved");
        let lost = SessionEvent::Lost(LossReason::SessionExpired);
        assert_eq!(rig.events().last(), Some(&lost));
        assert!(hold.loss().is_some());
        assert_eq!(rig.client_answers().last().map(|(number, _)| *number), Some(waiter));
        rig.reply(closed.unwrap(), code, &[]);
        assert!(rig.machine.is_over());
    }
}

/// A login fails, and then the servers have no quorum for longer than T. They know the session all
/// the same when they are back, and its waiters have kept their place.
#[test]
fn an_outage_behind_a_login_that_failed_costs_no_session_that_the_servers_still_know() {
    let mut rig = rig();
    rig.attach(7);
    log_in(&mut rig);
    rig.drop_connection();
    rig.attach(7);
    step(&mut rig, SaslStep::Failed("no ticket".into()));
    rig.sasl.clear();
    rig.events();
    rig.pass_time(T * 2);
    rig.attach(7);
    log_in(&mut rig);
    assert_eq!(rig.events(), [SessionEvent::Reconnected]);
}

/// The leader counts in ticks, so a session lives for up to T and a tick without a handshake.
#[test]
fn handshakes_that_are_little_more_than_a_timeout_apart_keep_a_session_alive_for_its_client_too() {
    let mut rig = rig();
    rig.attach(7);
    log_in(&mut rig);
    rig.drop_connection();
    rig.attach(7);
    step(&mut rig, SaslStep::Failed("no ticket".into()));
    rig.sasl.clear();
    rig.events();
    rig.pass_time(T * 5 / 4);
    rig.attach(7);
    rig.only_request(op::CLOSE, "");
    assert_eq!(rig.events().last(), Some(&SessionEvent::Lost(LossReason::SessionExpired)));
}

/// A session that no connection has carried yet has nodes of nobody, but counts at the server.
#[test]
fn a_new_session_that_cannot_log_in_for_its_timeout_is_given_up_too() {
    let mut rig = rig();
    rig.attach(7);
    let begun = rig.now;
    while rig.events().is_empty() {
        assert!(rig.now <= begun + T + T / 6);
        rig.sasl.clear();
        step(&mut rig, SaslStep::Failed("no ticket".into()));
        rig.pass_time(T / 8);
        rig.attach(7);
    }
    rig.only_request(op::CLOSE, "");
}

#[test]
fn a_mechanism_that_fails_on_our_side_costs_the_connection_and_not_the_session() {
    let mut rig = rig();
    rig.attach(7);
    log_in(&mut rig);
    let hold = rig.hold("/l/n");
    rig.drop_connection();
    rig.events();
    rig.attach(7);
    rig.sasl.clear();
    step(&mut rig, SaslStep::Failed("no ticket".into()));
    assert_eq!(rig.machine.cut.as_deref(), Some("no ticket"));
    assert!(rig.machine.wants_connection());
    assert_eq!((rig.events(), hold.loss()), (vec![], None));
    rig.attach(7);
    log_in(&mut rig);
    assert_eq!(rig.events(), [SessionEvent::Reconnected]);
}

#[test]
fn a_login_that_takes_longer_than_an_attempt_is_given_up_and_says_on_whom_it_waited() {
    for (is_sent, part) in [(false, "does the KDC answer"), (true, "did not answer SASL TEST")] {
        let mut rig = rig();
        rig.attach(7);
        if is_sent {
            step(&mut rig, SaslStep::Send(b"1".into()));
        }
        rig.pass_time(T / 6);
        let reason = rig.machine.cut.clone().expect("the connection is kept");
        assert!(reason.contains(part), "{reason}");
        assert!(rig.machine.wants_connection());
    }
}

/// The server refuses the only request that was sent for want of a login.
fn refuse_for_want_of_a_login(rig: &mut Rig, op: i32, path: &str) {
    let xid = rig.only_request(op, path);
    let refusal = ReplyHeader { xid, zxid: 0, err: err::REQUIRES_AUTH }.frame(&[]);
    rig.machine.server_bytes(&refusal, rig.now);
}

#[test]
fn servers_that_serve_only_sessions_that_log_in_end_the_session_and_say_what_to_give() {
    let mut rig = Rig::up();
    let a = rig.client_request(op::EXISTS, "/a");
    let hold = rig.hold("/l/n");
    refuse_for_want_of_a_login(&mut rig, op::EXISTS, "/a");
    // The event loop has not delivered the loss yet, and any calling thread may write bytes.
    assert_eq!((rig.sent().len(), hold.loss()), (0, None));
    rig.deliver_outputs();
    let events = [SessionEvent::Suspended, SessionEvent::Lost(LossReason::AuthFailed)];
    assert_eq!(rig.events(), events);
    assert_eq!(hold.loss(), Some(LossReason::AuthFailed));
    assert_eq!(rig.client_answers(), [(a, err::CONNECTION_LOSS)]);
    assert!(rig.refusals[0].contains("log in"), "{:?}", rig.refusals);
    // It asks for the reason at its next request.
    let b = rig.client_request(op::EXISTS, "/b");
    assert_eq!(rig.client_answers(), [(b, err::AUTH_FAILED)]);
    rig.attach(7);
    rig.only_request(op::CLOSE, "");
}

/// The servers' settings are changed on one after the other.
#[test]
fn one_server_that_serves_only_sessions_that_log_in_costs_the_connection_and_not_the_session() {
    let mut rig = Rig::up();
    rig.is_only_host = false;
    let hold = rig.hold("/l/n");
    for refused in 1..=2 {
        let a = rig.client_request(op::EXISTS, "/a");
        refuse_for_want_of_a_login(&mut rig, op::EXISTS, "/a");
        rig.deliver_outputs();
        assert_eq!(rig.client_answers(), [(a, err::CONNECTION_LOSS)]);
        assert_eq!((rig.refused_by.len(), rig.events()), (refused, vec![SessionEvent::Suspended]));
        assert!(rig.machine.wants_connection());
        // Another server takes it up, which alone shows nothing, and serves it.
        rig.attach(7);
        assert_eq!(rig.events(), [SessionEvent::Reconnected]);
        assert!(!rig.machine.is_served());
        rig.acknowledge_noop(); // the renewal of the lease
        assert!(rig.machine.is_served());
        for (xid, op, _) in rig.sent() {
            answer(&mut rig, xid, op);
        }
        assert_eq!(hold.loss(), None);
    }
}

/// The server refuses the close itself, so it does not know of it.
#[test]
fn a_close_that_is_refused_for_want_of_a_login_is_not_said_to_be_known() {
    let mut rig = Rig::up();
    let server_knows = rig.close();
    let xid = rig.only_request(op::CLOSE, "");
    rig.reply(xid, err::REQUIRES_AUTH, &[]);
    assert_eq!(server_knows.try_recv(), Ok(false));
}

#[test]
fn a_session_that_is_closed_in_an_outage_logs_in_before_it_closes_itself() {
    let mut rig = rig();
    rig.attach(7);
    log_in(&mut rig);
    rig.drop_connection();
    let server_knows = rig.close();
    rig.attach(7);
    assert_eq!(asked(&mut rig), None);
    step(&mut rig, SaslStep::Send(b"1".into()));
    let xid = rig.only_request(op::SASL, "1");
    closes_behind_the_login(&mut rig, xid);
    assert_eq!(server_knows.try_recv(), Ok(true));
}

#[test]
fn a_session_that_is_closed_while_it_logs_in_is_closed_at_the_server_behind_the_login() {
    let mut rig = rig();
    rig.attach(7);
    asked(&mut rig);
    step(&mut rig, SaslStep::Send(b"1".into()));
    let xid = rig.only_request(op::SASL, "1");
    let server_knows = rig.close();
    assert_eq!(rig.sent(), []);
    closes_behind_the_login(&mut rig, xid);
    assert_eq!(server_knows.try_recv(), Ok(true));
}

/// The password was changed. A server that enforces a login refuses the close too, and then the
/// session ends at once and asks nobody over and over.
#[test]
fn a_session_whose_login_is_refused_while_it_closes_tries_once_without() {
    for (code, knows) in [(err::OK, true), (err::REQUIRES_AUTH, false)] {
        let mut rig = rig();
        rig.attach(7);
        let server_knows = rig.close();
        step(&mut rig, SaslStep::Send(b"1".into()));
        let xid = rig.only_request(op::SASL, "1");
        rig.reply(xid, err::AUTH_FAILED, &token(b""));
        rig.attach(7);
        let xid = rig.only_request(op::CLOSE, "");
        rig.reply(xid, code, &[]);
        assert_eq!(server_knows.try_recv(), Ok(knows));
        assert!(rig.machine.is_over());
    }
}

#[test]
fn an_answer_to_another_request_in_the_middle_of_a_login_is_not_the_protocol() {
    let mut rig = rig();
    rig.attach(7);
    step(&mut rig, SaslStep::Send(b"1".into()));
    rig.reply(1 << 20, err::OK, &[]);
    assert!(rig.machine.cut.is_some());
    assert_eq!(rig.events(), []);
}

#[test]
fn an_answer_to_a_login_that_is_no_buffer_is_not_the_protocol() {
    let mut rig = rig();
    rig.attach(7);
    step(&mut rig, SaslStep::Send(b"1".into()));
    let xid = rig.only_request(op::SASL, "1");
    rig.reply(xid, err::OK, &[0, 0, 0, 9, 1]);
    assert!(rig.machine.cut.is_some());
}

// ---- servers that take the session up and serve nothing ----

/// What a server does with the request that has this xid and this operation.
type Serving = dyn Fn(&mut Rig, i32, i32);

/// The machine dials again whenever it wants a connection, `late` behind that, and the server takes
/// the session up and does with each request what `serve` does with it, for `time`. Gives when the
/// session was lost.
fn serve(
    rig: &mut Rig,
    time: Duration,
    late: Duration,
    serve: impl Fn(&mut Rig, i32, i32),
) -> Option<BootTime> {
    let until = rig.now + time;
    while rig.now < until {
        if rig.machine.wants_connection() {
            rig.pass_time(late);
            rig.attach(7);
        }
        let is_lost = |event: &SessionEvent| matches!(event, SessionEvent::Lost(_));
        if rig.events().iter().any(is_lost) {
            return Some(rig.now);
        }
        for (xid, op, _) in rig.sent() {
            serve(rig, xid, op);
        }
        rig.pass_time(T / 48);
        rig.lapse();
    }
    None
}

/// The answer of a server that serves everything.
fn answer(rig: &mut Rig, xid: i32, op: i32) {
    match op {
        op::DELETE => rig.reply(xid, err::NO_NODE, &[]),
        op::GET_DATA => rig.reply(xid, err::OK, &node(b"", 5, 7)),
        _ => rig.reply(xid, err::OK, b"\0\0\0\x01/"),
    }
}

/// Each handshake counts at the leader as a sign of life. The holder has lost its hold long before,
/// and its node would block the lock for as long as the server does this.
#[test]
fn a_session_that_servers_take_up_and_do_not_serve_is_let_go() {
    let answers_nothing = |_: &mut Rig, _: i32, _: i32| {};
    let throttles = |rig: &mut Rig, xid: i32, _: i32| rig.reply(xid, -127, &[]);
    let reads_only = |rig: &mut Rig, xid: i32, op: i32| {
        if op != op::DELETE {
            answer(rig, xid, op);
        }
    };
    let all: [(bool, bool, &Serving); 5] = [
        (true, true, &answers_nothing),
        (false, false, &answers_nothing),
        (true, true, &throttles),
        (false, true, &throttles),
        (true, true, &reads_only),
    ];
    for (case, (holds, has_node, server)) in all.into_iter().enumerate() {
        let mut rig = Rig::up();
        let hold = holds.then(|| rig.hold("/l/n"));
        // The connection has worked for long.
        assert_eq!(serve(&mut rig, T * 3, T / 8, answer), None);
        let mut begun = rig.now;
        if hold.is_some() {
            // The holder loses its hold, and its node is to go.
            assert_eq!(serve(&mut rig, T / 2, T / 8, server), None, "case {case}");
            begun = rig.now.before(T / 2);
        }
        if has_node {
            rig.add_task(Task::Remove(Removal::named("/l/n".to_owned(), "n".to_owned())));
        }
        let lost = serve(&mut rig, T * 3, T / 8, server);
        let lasted = lost.map(|lost| lost.since(begun));
        assert!(lasted.is_some_and(|lasted| lasted >= T), "case {case}: {lasted:?}");
        // T later the leader expires it: its node is gone in 3 T.
        assert!(lasted.is_some_and(|lasted| lasted < T * 7 / 4), "case {case}: {lasted:?}");
        let close = rig.sent().pop().map(|(_, op, _)| op);
        assert_eq!(close, Some(op::CLOSE), "case {case}");
        rig.pass_time(Duration::from_millis(700));
        assert!(rig.machine.is_over(), "case {case}: it is presented again");
    }
}

/// Its connections last for less time than it takes it to send anything.
#[test]
fn an_idle_session_whose_connections_are_short_is_not_let_go_by_servers_that_serve() {
    for holds in [false, true] {
        let mut rig = Rig::up();
        let hold = holds.then(|| rig.hold("/l/n"));
        let until = rig.now + T * 4;
        while rig.now < until {
            let lost = serve(&mut rig, T / 12, T / 12, answer);
            assert_eq!((lost, hold.as_ref().and_then(|hold| hold.loss())), (None, None));
            rig.drop_connection();
        }
    }
}

/// It neither writes nor renews a lease, and a server serves it all the same.
#[test]
fn a_new_connection_costs_an_idle_session_no_request() {
    let mut rig = Rig::up();
    assert_eq!(serve(&mut rig, T * 2, T / 8, answer), None);
    rig.cut();
    assert_eq!(rig.sent(), []);
}

/// The delete of its node is tried again only after more than T.
#[test]
fn a_session_with_a_refused_delete_is_not_let_go_by_a_server_that_serves() {
    let mut rig = Rig::up();
    let refuses = |rig: &mut Rig, xid: i32, op: i32| match op {
        op::DELETE => rig.reply(xid, err::NO_AUTH, &[]),
        _ => answer(rig, xid, op),
    };
    rig.add_task(Task::Remove(Removal::named("/l/n".to_owned(), "n".to_owned())));
    for _ in 0..8 {
        assert_eq!(serve(&mut rig, T * 5 / 2, T / 8, refuses), None);
        assert_eq!(rig.pending(), ["n"]);
        rig.drop_connection();
    }
}
