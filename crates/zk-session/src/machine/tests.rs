//! Tests of the machine's decisions, without a network: callers and a scripted server around it,
//! and a clock that only the test moves.

use super::rig::*;
use super::*;
use crate::event::SessionEvent;
use crate::lease::WATCH_AFTER;
use crate::machine::codec::{CallError, CreateMode, Operation, Reply};
use crate::nonce;
use crossbeam_channel::Receiver;
use proptest::prelude::*;
use zk_wire::code::event;
use zk_wire::path;
use zk_wire::record::Reader;

use self::background::{THROTTLED, sweep};

mod background;
mod batches;
mod ending;
mod login;
mod long_answer;
mod looks;
mod model;
mod slow_server;
mod upkeep;

#[test]
fn requests_are_answered_in_order_under_their_own_xids() {
    let mut rig = Rig::up();
    let (a, b) = (rig.client_request(op::EXISTS, "/a"), rig.client_request(op::DELETE, "/b"));
    let sent = rig.sent();
    assert_eq!(
        sent.iter().map(|s| (s.1, s.2.as_str())).collect::<Vec<_>>(),
        [(op::EXISTS, "/a"), (op::DELETE, "/b")]
    );
    rig.reply(sent[0].0, err::NO_NODE, &[]);
    rig.reply(sent[1].0, err::OK, &[]);
    assert_eq!(rig.client_answers(), [(a, err::NO_NODE), (b, err::OK)]);
}

#[test]
fn a_cut_answers_requests_that_were_sent_and_keeps_the_others() {
    let mut rig = Rig::up();
    let a = rig.client_request(op::EXISTS, "/a");
    rig.sent();
    rig.drop_connection();
    let b = rig.client_request(op::EXISTS, "/b");
    assert_eq!(rig.client_answers(), [(a, err::CONNECTION_LOSS)]);
    assert_eq!(rig.events(), [SessionEvent::Suspended]);
    rig.attach(7);
    assert_eq!(rig.events(), [SessionEvent::Reconnected]);
    let sent = rig.sent();
    assert_eq!(sent.len(), 1);
    rig.reply(sent[0].0, err::NO_NODE, &[]);
    assert_eq!(rig.client_answers(), [(b, err::NO_NODE)]);
}

#[test]
fn a_request_in_an_outage_is_answered_within_a_sixth_of_the_timeout() {
    let mut rig = Rig::up();
    rig.drop_connection();
    let a = rig.client_request(op::EXISTS, "/a");
    rig.pass_time(T / 6 - MS);
    assert_eq!(rig.client_answers(), []);
    rig.pass_time(MS * 2);
    assert_eq!(rig.client_answers(), [(a, err::CONNECTION_LOSS)]);
}

#[test]
fn a_late_request_is_answered_without_blaming_a_fresh_connection() {
    let mut rig = Rig::up();
    rig.drop_connection();
    let a = rig.client_request(op::EXISTS, "/a");
    rig.pass_time(T / 6 - MS * 10);
    rig.attach(7);
    let sent = rig.sent();
    rig.pass_time(MS * 20);
    assert_eq!(rig.client_answers(), [(a, err::CONNECTION_LOSS)]);
    assert_eq!(rig.machine.cut, None);
    let b = rig.client_request(op::EXISTS, "/b");
    rig.reply(sent[0].0, err::NO_NODE, &[]);
    assert_eq!(rig.client_answers(), []);
    let sent = rig.sent();
    rig.reply(sent[0].0, err::NO_NODE, &[]);
    assert_eq!(rig.client_answers(), [(b, err::NO_NODE)]);
}

#[test]
fn a_black_hole_is_cut_even_when_the_session_is_idle_and_sooner_when_it_holds_something() {
    for (is_held, within) in [(false, T / 4 + T / 6), (true, T / 8 + T / 6)] {
        let mut rig = Rig::up();
        let _hold = is_held.then(|| rig.hold("/l/n"));
        rig.pass_time(within + MS);
        assert!(rig.machine.cut.is_some());
        assert_eq!(rig.events(), [SessionEvent::Suspended]);
    }
}

#[test]
fn an_idle_session_sends_a_sync_in_each_quarter_of_the_timeout_and_nothing_else() {
    let mut rig = Rig::up();
    let mut syncs = 0;
    for _ in 0..480 {
        rig.pass_time(T / 48);
        for (xid, op, _) in rig.sent() {
            assert_eq!(op, op::SYNC);
            syncs += 1;
            rig.reply(xid, err::OK, b"\0\0\0\x01/");
        }
    }
    assert!((36..=40).contains(&syncs), "{syncs}");
    assert_eq!(rig.machine.cut, None);
}

#[test]
fn a_held_lock_keeps_its_lease_by_writes_and_reads_do_not() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    for _ in 0..96 {
        rig.pass_time(T / 48);
        for (xid, op, path) in rig.sent() {
            match op {
                op::DELETE => assert_eq!(path, NOOP),
                op::GET_DATA => assert_eq!(path, "/l/n"),
                _ => {}
            }
            let body = if op == op::GET_DATA { [0; 72].as_slice() } else { &[] };
            rig.reply(xid, if op == op::DELETE { err::NO_NODE } else { err::OK }, body);
        }
        rig.lapse();
    }
    assert_eq!(hold.loss(), None);
    // From here on the server answers everything except writes, like a follower without a leader.
    for _ in 0..48 {
        rig.pass_time(T / 48);
        rig.lapse();
        for (xid, op, _) in rig.sent() {
            if op != op::DELETE {
                rig.reply(xid, err::OK, &[]);
            }
        }
    }
    assert_eq!(hold.loss(), Some(LossReason::LeaseExpired));
}

#[test]
fn a_write_shows_what_was_answered_a_lag_before_the_request_that_was_answered_before_it() {
    for code in [err::OK, err::NO_NODE, err::NO_AUTH] {
        let mut rig = Rig::up();
        let made = rig.lease.end_time().unwrap();
        // Requests are answered every T/48, and a `sync` is sent every T/4.
        let mut synced = rig.now;
        for _ in 0..48 {
            rig.pass_time(T / 48);
            for (xid, op, _) in rig.sent() {
                synced = if op == op::SYNC { rig.now } else { synced };
                rig.reply(xid, err::OK, &[]);
            }
            assert_eq!(rig.lease.end_time(), Some(made), "no write was acknowledged");
        }
        rig.client_request(op::SET_DATA, "/l/n");
        let body = if code == err::OK { [0; 68].as_slice() } else { &[] };
        let (xid, ..) = rig.sent().pop().unwrap();
        rig.reply(xid, code, body);
        let end = rig.lease.end_time().unwrap();
        // Syncs are sent every T/4. Those count that were answered T/3 before the last one.
        let heard = end.before(T - T / 12);
        let lag = T / 3;
        assert!(
            heard.since(synced.before(lag + T / 3)) > Duration::ZERO && heard <= synced.before(lag)
        );
    }
}

#[test]
fn a_write_that_a_server_refused_by_itself_proves_nothing() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    let made = rig.lease.end_time();
    rig.add_task(sweep());
    for _ in 0..48 {
        for (xid, op, _) in rig.sent() {
            // A follower without a leader gives these answers, with eager ACL checks.
            let frame = match op {
                op::DELETE => ReplyHeader { xid, zxid: 0, err: err::NO_AUTH }.frame(&[]),
                op::GET_DATA => ReplyHeader { xid, zxid: 0, err: err::OK }.frame(&[0; 72]),
                op::GET_CHILDREN => panic!("a listing that may be old"),
                _ => ReplyHeader { xid, zxid: 0, err: err::OK }.frame(&[]),
            };
            rig.bytes(&frame);
        }
        rig.pass_time(T / 48);
        rig.lapse();
    }
    assert_eq!(rig.lease.end_time(), made);
    assert!(rig.machine.cut.is_some(), "it gives the connection up");
    assert_eq!(hold.loss(), Some(LossReason::LeaseExpired));
    assert_eq!(rig.pending(), ["id"]);
}

/// A server with eager ACL checks refuses writes of the application's client by itself, so they
/// show nothing of the leader. However many they are, the lease is renewed in time.
#[test]
fn refused_writes_do_not_put_off_the_renewal_of_the_lease() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    for _ in 0..96 {
        rig.pass_time(T / 24);
        rig.client_request(op::SET_DATA, "/refused");
        for (xid, op, _) in rig.sent() {
            match op {
                op::SET_DATA => {
                    rig.bytes(&ReplyHeader { xid, zxid: 0, err: err::NO_AUTH }.frame(&[]));
                }
                op::DELETE => rig.reply(xid, err::NO_NODE, &[]),
                op::GET_DATA => rig.reply(xid, err::OK, &[0; 72]),
                _ => rig.reply(xid, err::OK, &[]),
            }
        }
        rig.lapse();
    }
    assert_eq!(hold.loss(), None);
}

#[test]
fn a_session_that_was_silent_reconnects_before_it_sends_anything() {
    let mut rig = Rig::up();
    let _hold = rig.hold("/l/n");
    rig.now = rig.now + T / 3; // nothing ran
    let a = rig.client_request(op::SET_DATA, "/x");
    assert!(rig.machine.cut.is_some());
    assert_eq!(rig.sent(), []);
    assert_eq!(rig.client_answers(), [], "it is held until the session is attached");
    rig.attach(7);
    let sent = rig.sent();
    assert_eq!(without_xids(&sent), [(op::DELETE, NOOP), (op::SET_DATA, "/x")]);
    rig.reply(sent[0].0, err::NO_NODE, &[]);
    assert_eq!(rig.lease.end_time(), Some(rig.now + (T - T / 12)));
    rig.reply(sent[1].0, err::OK, &[0; 68]);
    assert_eq!(rig.client_answers(), [(a, err::OK)]);
}

/// Answers the requests that were sent, and those that follow them. Gives their operations.
fn answered(rig: &mut Rig) -> Vec<i32> {
    let mut ops = Vec::new();
    let mut sent = rig.sent();
    while !sent.is_empty() {
        // A write that is sent together with the `sync` of a renewal is not sent after its answer.
        assert!(sent.iter().filter(|s| s.1 == op::SYNC || s.2 == NOOP).count() <= 1, "{sent:?}");
        for (xid, op, path) in sent {
            ops.push(op);
            let body = if op == op::GET_DATA { [0; 72].as_slice() } else { &[] };
            rig.reply(xid, if path == NOOP { err::NO_NODE } else { err::OK }, body);
        }
        sent = rig.sent();
    }
    ops
}

#[test]
fn a_holder_sends_a_sync_in_each_eighth_of_the_timeout_and_seldom_a_write_in_its_place() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    let (mut asked, mut least) = (Vec::new(), T);
    for _ in 0..480 {
        rig.pass_time(T / 48);
        asked.extend(answered(&mut rig).into_iter().filter(|op| *op != op::GET_DATA));
        least = least.min(rig.lease.remaining(rig.now));
    }
    let writes = asked.iter().filter(|op| **op == op::DELETE).count();
    assert_eq!(asked.len(), asked.iter().filter(|op| **op == op::SYNC).count() + writes);
    // In ten times the timeout.
    assert!((75..=82).contains(&asked.len()) && (14..=18).contains(&writes), "{asked:?}");
    assert_eq!((hold.loss(), least >= T / 4), (None, true), "{least:?}");
}

/// It is shorter than the upkeep leaves it, because nothing was held for a while.
#[test]
fn a_lease_that_has_become_short_is_renewed_by_a_sync_and_after_its_answer_a_write() {
    let mut rig = Rig::up();
    while rig.lease.remaining(rig.now) > T / 4 + T / 40 {
        rig.pass_time(T / 48);
        answered(&mut rig);
    }
    let hold = rig.hold("/l/n");
    rig.now = rig.now + T / 40;
    rig.tick();
    // The watch on the node is due, too.
    assert_eq!(answered(&mut rig), [op::GET_DATA, op::SYNC, op::DELETE]);
    let left = rig.lease.remaining(rig.now);
    assert!(hold.loss().is_none() && left >= T / 4, "{left:?}");
}

/// The servers' tick is short, so the lease is long, and its end alone would call for a renewal
/// much later.
#[test]
fn callers_that_sync_again_and_again_do_not_put_the_renewal_off() {
    let mut rig = Rig::new(&[]);
    rig.machine.config.tick = Some(T / 24);
    rig.attach(7);
    let hold = rig.hold("/l/n");
    let mut renewals = Vec::new();
    for _ in 0..96 {
        rig.pass_time(T / 48);
        rig.call(&[(Operation::Sync, None)]);
        let mut sent = rig.sent();
        while !sent.is_empty() {
            for (xid, op, path) in sent {
                let is_noop = path == NOOP;
                renewals.extend(is_noop.then_some(rig.now));
                let body = if op == op::GET_DATA { [0; 72].as_slice() } else { &[] };
                rig.reply(xid, if is_noop { err::NO_NODE } else { err::OK }, body);
            }
            sent = rig.sent();
        }
    }
    assert!(renewals.windows(2).all(|two| two[1].since(two[0]) <= T * 3 / 4), "{renewals:?}");
    assert_eq!((hold.loss(), renewals.len() >= 3), (None, true), "{renewals:?}");
}

#[test]
fn a_caller_that_waits_for_a_fresh_lease_gets_it_as_soon_as_a_proof_shows_enough() {
    let mut rig = Rig::up();
    for _ in 0..12 {
        rig.pass_time(T / 12);
        for (xid, ..) in rig.sent() {
            rig.reply(xid, err::OK, &[]);
        }
    }
    assert!(!rig.lease.is_fresh(rig.now));
    let fresh = rig.prove();
    let mut requests = 0;
    while fresh.is_empty() {
        for (xid, op, _) in rig.sent() {
            requests += usize::from(op == op::SYNC || op == op::DELETE);
            rig.reply(xid, if op == op::DELETE { err::NO_NODE } else { err::OK }, &[]);
        }
    }
    assert!(requests <= 2, "{requests}");
    assert!(rig.lease.is_fresh(rig.now));
}

#[test]
fn a_proof_that_is_answered_slowly_does_not_spin() {
    let mut rig = Rig::up();
    let (_hold, fresh) = (rig.hold("/l/n"), rig.prove());
    let (mut wakes, end) = (0, rig.now + (T / 6 - MS));
    while let Some(next) = rig.tick().filter(|next| *next <= end) {
        assert!(next > rig.now, "a wake-up in the past");
        rig.now = next;
        wakes += 1;
    }
    assert!(wakes < 10 && fresh.is_empty(), "{wakes}");
}

/// A `sync` and then a write: each has its answer within T/6, and both together have not.
#[test]
fn a_caller_waits_for_a_proof_of_several_requests_for_a_sixth_of_the_timeout_and_no_longer() {
    let mut rig = Rig::up();
    for _ in 0..12 {
        rig.pass_time(T / 12);
        for (xid, ..) in rig.sent() {
            rig.reply(xid, err::OK, &[]);
        }
    }
    rig.pass_time(T / 8);
    assert!(!rig.lease.is_fresh(rig.now));
    let (fresh, asked) = (rig.prove(), rig.now);
    // The event loop sleeps until the time that the machine says.
    let run_until = |rig: &mut Rig, end| {
        while let Some(next) = rig.tick().filter(|next| *next <= end) {
            rig.now = next;
        }
        rig.deliver_outputs();
    };
    run_until(&mut rig, asked + T / 7);
    for (xid, ..) in rig.sent() {
        rig.reply(xid, err::OK, &[]);
    }
    assert!(rig.sent().iter().any(|(_, op, _)| *op == op::DELETE) && fresh.is_empty());
    run_until(&mut rig, asked + T / 6);
    assert_eq!(fresh.try_recv(), Ok(Err(err::CONNECTION_LOSS)));
}

#[test]
fn a_throttled_write_proves_nothing() {
    let mut rig = Rig::up();
    rig.pass_time(T / 4);
    let before = rig.lease.remaining(rig.now);
    rig.client_request(op::DELETE, "/a");
    for (xid, op, _) in rig.sent() {
        rig.reply(xid, if op == op::DELETE { THROTTLED } else { err::OK }, &[]);
    }
    assert_eq!(rig.lease.remaining(rig.now), before);
}

#[test]
fn a_refused_sync_shows_nothing_and_no_write_of_a_renewal_follows_it() {
    for is_held in [false, true] {
        let mut rig = Rig::up();
        let made = rig.lease.end_time();
        let _hold = is_held.then(|| rig.hold("/l/n"));
        let (mut syncs, until) = (0, rig.now + T / 2);
        while rig.now < until {
            rig.pass_time(T / 48);
            for (xid, op, path) in rig.sent() {
                let code = if op == op::SYNC { THROTTLED } else { err::OK };
                let body = if op == op::GET_DATA { node(b"", 5, 7) } else { Vec::new() };
                rig.reply(xid, code, &body);
                syncs += usize::from(op == op::SYNC);
                assert!(syncs == 0 || path != NOOP);
            }
        }
        rig.client_request(op::SET_DATA, "/x");
        let (xid, ..) = rig.sent().pop().unwrap();
        rig.reply(xid, err::OK, &[0; 68]);
        assert!(syncs > 0);
        assert_eq!(rig.lease.end_time(), made, "only the handshake went through the leader");
    }
}

#[test]
fn a_holder_sends_something_in_each_eighth_of_the_timeout() {
    let mut rig = Rig::up();
    let (_hold, step) = (rig.hold("/l/n"), T / 240);
    let mut last = rig.now;
    for _ in 0..480 {
        rig.pass_time(step);
        for (xid, op, _) in rig.sent() {
            last = rig.now;
            let body = if op == op::GET_DATA { node(b"", 5, 7) } else { Vec::new() };
            rig.reply(xid, if op == op::DELETE { err::NO_NODE } else { err::OK }, &body);
        }
        assert!(rig.now.since(last) <= T / 8 + step);
    }
}

/// A hold is granted without the event loop, which must notice it in time for the next `sync`.
#[test]
fn the_event_loop_looks_for_new_holds_in_each_sixteenth_of_the_timeout() {
    let mut rig = Rig::up();
    assert!(rig.tick().is_some_and(|next| next <= rig.now + T / 16));
}

#[test]
fn a_server_that_does_not_resume_the_session_in_its_time_is_given_up() {
    let mut rig = Rig::up();
    rig.drop_connection();
    rig.connect();
    rig.pass_time(T / 6 - MS);
    assert_eq!(rig.machine.cut, None);
    rig.pass_time(MS);
    assert!(rig.machine.cut.is_some());
}

#[test]
fn an_outage_is_reported_once_however_many_hosts_fail_in_it() {
    let mut rig = Rig::up();
    for _ in 0..3 {
        rig.drop_connection();
        rig.connect();
    }
    assert_eq!(rig.events(), [SessionEvent::Suspended]);
}

#[test]
fn the_same_timeout_granted_anew_is_no_news() {
    let mut rig = Rig::up();
    rig.drop_connection();
    rig.connect();
    let timeout_ms = T.as_millis() as i32;
    let reply = ConnectReply { timeout_ms, session_id: 7, password: vec![5; 16] };
    rig.machine.server_bytes(&reply.frame(), rig.now);
    let is_news = |output: &Output| matches!(output, Output::Shortened { .. } | Output::Log(..));
    assert!(!rig.machine.outputs.iter().any(is_news));
}

#[test]
fn credentials_go_before_anything_else_on_every_connection() {
    let mut rig = Rig::new(&[("digest", "a:b"), ("digest", "c:d")]);
    for round in 0..2 {
        let a = rig.client_request(op::EXISTS, "/a");
        rig.attach(7);
        let sent = rig.sent();
        assert_eq!(
            sent.iter().map(|s| s.1).collect::<Vec<_>>(),
            [op::AUTH, op::AUTH],
            "round {round}"
        );
        rig.reply(xid::AUTH, err::OK, &[]);
        assert_eq!(rig.sent(), []);
        rig.reply(xid::AUTH, err::OK, &[]);
        let sent = rig.sent();
        assert_eq!(sent.len(), 1);
        rig.reply(sent[0].0, err::NO_NODE, &[]);
        assert_eq!(rig.client_answers(), [(a, err::NO_NODE)]);
        rig.drop_connection();
    }
}

#[test]
fn what_is_not_the_protocol_is_cut_before_a_caller_sees_it() {
    let garbage: [&[u8]; 7] = [
        &[0xff; 4],
        &[0x7f, 0xff, 0xff, 0xff],
        &ReplyHeader { xid: 12345, zxid: 1, err: 0 }.frame(&[]),
        &ReplyHeader { xid: -1, zxid: -1, err: 0 }.frame(&[0, 0, 0, 99]),
        &ReplyHeader { xid: -4, zxid: 0, err: 0 }.frame(&[]),
        &[0, 0, 0, 2, 1, 1],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
    ];
    for bytes in garbage {
        let mut rig = Rig::up();
        rig.bytes(bytes);
        assert!(rig.machine.cut.is_some(), "{bytes:?}");
        assert_eq!((rig.client_answers(), &rig.watch_events), (vec![], &vec![]));
    }
    // Answers to the application's client are checked too: the client crate believes every length.
    for op in [
        op::CREATE,
        op::EXISTS,
        op::GET_DATA,
        op::SET_DATA,
        op::GET_ACL,
        op::SET_ACL,
        op::GET_CHILDREN,
    ] {
        let mut rig = Rig::up();
        let a = rig.client_request(op, "/a");
        let (xid, ..) = rig.sent().pop().unwrap();
        rig.reply(xid, err::OK, &[0x7f, 0xff, 0xff, 0xff]);
        assert!(rig.machine.cut.is_some(), "{op}");
        assert_eq!(rig.client_answers(), [(a, err::CONNECTION_LOSS)], "{op}");
    }
}

#[test]
fn a_longer_timeout_granted_anew_never_counts() {
    let mut rig = Rig::up();
    rig.drop_connection();
    let bytes = rig.connect();
    assert_eq!(bytes[16..20], (T.as_millis() as i32).to_be_bytes());
    rig.greet(7, (T * 4).as_millis() as i32);
    assert_eq!(rig.timeout, T);
    assert_eq!(rig.machine.timeout(), T);
}

#[test]
fn a_timeout_granted_anew_counts_from_then_on() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    rig.drop_connection();
    rig.connect();
    rig.greet(7, (T / 4).as_millis() as i32);
    assert_eq!(rig.timeout, T / 4);
    rig.lease.end_if_due(rig.now + T / 4);
    assert_eq!(hold.loss(), Some(LossReason::LeaseExpired));
}

/// In a folder that exists, an ACL may refuse the write, and some servers refuse it by themselves.
#[test]
fn the_write_without_an_effect_is_in_a_folder_that_never_exists() {
    for (chroot, above) in [("", "/"), ("/app/locks", "/app/locks")] {
        let (noop, other) = (noop(chroot, "an-id"), noop(chroot, "another"));
        let folder = path::parent(&noop);
        assert_eq!(path::parent(folder), above);
        assert!(folder.contains("an-id") && folder != path::parent(&other), "{folder}");
    }
}

#[test]
fn a_proof_is_not_waited_for_in_an_outage() {
    let mut rig = Rig::up();
    rig.drop_connection();
    let proven = rig.prove();
    assert!(proven.try_recv().is_err_and(|e| e.is_disconnected()));
}

#[test]
fn a_resumed_session_with_a_hold_proves_its_lease_at_once() {
    let mut rig = Rig::up();
    let _hold = rig.hold("/l/n");
    rig.client_request(op::DELETE, "/a"); // a write that is never acknowledged
    rig.sent();
    rig.cut();
    assert_eq!(rig.sent().first().map(|s| s.2.clone()), Some(NOOP.into()));
}

/// A server that is no longer the leader also answers a handshake.
#[test]
fn a_handshake_extends_no_lease_by_itself() {
    let mut rig = Rig::up();
    let _hold = rig.hold("/l/n");
    let end = rig.lease.end_time();
    rig.now = rig.now + T / 16;
    rig.cut();
    assert_eq!(rig.lease.end_time(), end);
    let proof = rig.sent()[0].0;
    rig.reply(proof, err::NO_NODE, &[]);
    assert!(rig.lease.end_time() > end);
}

/// The leader may have checked the session as soon as the request for it was sent, however late the
/// answer comes.
#[test]
fn a_slow_handshake_counts_from_its_beginning() {
    let mut rig = Rig::up();
    let _hold = rig.hold("/l/n");
    rig.now = rig.now + T / 16;
    rig.drop_connection();
    rig.connect();
    let begun = rig.now;
    rig.now = rig.now + T / 8;
    rig.greet(7, T.as_millis() as i32);
    let proof = rig.sent()[0].0;
    rig.reply(proof, err::NO_NODE, &[]);
    assert_eq!(rig.lease.end_time(), Some(begun + (T - T / 12)));
}

#[test]
fn answers_out_of_turn_are_cut_before_they_reach_the_wrong_caller() {
    let mut rig = Rig::up();
    let (a, b) = (rig.client_request(op::EXISTS, "/a"), rig.client_request(op::EXISTS, "/b"));
    let sent = rig.sent();
    rig.reply(sent[1].0, err::NO_NODE, &[]);
    assert_eq!(rig.client_answers(), [(a, err::CONNECTION_LOSS), (b, err::CONNECTION_LOSS)]);
}

#[derive(Clone, Debug)]
enum RandomAct {
    Ask,
    Answer(usize),
    Cut,
    Attach,
    Wait(u64),
    Release,
    Remove,
    Garbage(Vec<u8>),
}

fn act() -> impl Strategy<Value = RandomAct> {
    prop_oneof![
        4 => Just(RandomAct::Ask),
        6 => (0usize..4).prop_map(RandomAct::Answer),
        1 => Just(RandomAct::Cut),
        2 => Just(RandomAct::Attach),
        2 => (1u64..5000).prop_map(RandomAct::Wait),
        2 => Just(RandomAct::Release),
        2 => Just(RandomAct::Remove),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(RandomAct::Garbage),
    ]
}

proptest! {
    /// Whatever the server does, the application's client gets exactly one answer to each request,
    /// in order, and in the end every node that was to be deleted is deleted.
    #[test]
    fn every_request_gets_one_answer_in_order(acts in prop::collection::vec(act(), 0..120)) {
        let mut rig = Rig::up();
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        let mut open: Vec<Sent> = Vec::new();
        let mut releases = 0;
        for act in acts.into_iter().chain([RandomAct::Attach]) {
            match act {
                RandomAct::Ask => asked.push(rig.client_request(op::EXISTS, "/a")),
                RandomAct::Answer(n) => for (xid, ..) in open.drain(..n.min(open.len())).collect::<Vec<_>>() {
                    rig.reply(xid, err::NO_NODE, &[]);
                },
                RandomAct::Cut => rig.drop_connection(),
                RandomAct::Attach if rig.machine.wants_connection() => rig.attach(7),
                RandomAct::Attach => {}
                RandomAct::Wait(ms) => rig.pass_time(Duration::from_millis(ms)),
                RandomAct::Release => {
                    releases += 1;
                    let id = format!("id{releases}");
                    let path = format!("/l/{id}");
                    rig.add_task(Task::Remove(Removal::named(path, id)));
                }
                RandomAct::Remove => drop(rig.remove(Some(5))),
                RandomAct::Garbage(bytes) => rig.bytes(&bytes),
            }
            answered.extend(rig.client_answers());
            if rig.machine.wants_connection() {
                open.clear();
            } else {
                open.extend(rig.sent());
            }
            prop_assume!(!rig.machine.is_ending());
        }
        for _ in 0..200 {
            if rig.machine.wants_connection() {
                open.clear();
                rig.attach(7);
            }
            open.extend(rig.sent());
            for (xid, ..) in std::mem::take(&mut open) {
                rig.reply(xid, err::NO_NODE, &[]);
            }
            rig.pass_time(T / 100); // half a frame is given up only when answers are overdue
            answered.extend(rig.client_answers());
        }
        prop_assert_eq!(answered.iter().map(|a| a.0).collect::<Vec<_>>(), asked);
        prop_assert_eq!(rig.pending(), [""; 0]);
    }
}
