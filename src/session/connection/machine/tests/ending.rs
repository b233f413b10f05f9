//! The end of a session.

use super::*;

#[test]
fn an_expired_session_ends_everything_at_once() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    let a = rig.ask(op::EXISTS, "/a");
    rig.sent();
    rig.drop_connection();
    let b = rig.ask(op::EXISTS, "/b");
    rig.connect();
    rig.greet(0, 0);
    assert_eq!(rig.answers(), [(a, err::CONNECTION_LOSS), (b, err::SESSION_EXPIRED)]);
    assert_eq!(rig.events(), [SessionEvent::Suspended, SessionEvent::Lost(LossReason::SessionExpired)]);
    assert_eq!(hold.loss(), Some(LossReason::SessionExpired));
    let c = rig.ask(op::EXISTS, "/c");
    assert_eq!(rig.answers(), [(c, err::SESSION_EXPIRED)]);
    assert!(!rig.m.wants_connection());
}

#[test]
fn another_session_never_takes_the_place_of_ours() {
    let mut rig = Rig::up();
    rig.drop_connection();
    rig.attach(8);
    assert_eq!(rig.events()[1..], [SessionEvent::Lost(LossReason::SessionExpired)]);
}

#[test]
fn refused_credentials_end_the_session_and_close_it_at_the_server() {
    let mut rig = Rig::new(&[("nonsense", "x")]);
    rig.attach(7);
    rig.sent();
    rig.reply(xid::AUTH, err::AUTH_FAILED, &[]);
    assert_eq!(rig.events(), [SessionEvent::Lost(LossReason::AuthFailed)]);
    assert_eq!(rig.sent().last().map(|s| s.1), Some(op::CLOSE));
    let a = rig.ask(op::EXISTS, "/a");
    assert_eq!(rig.answers(), [(a, err::AUTH_FAILED)]);
}

pub(super) fn close(rig: &mut Rig) -> Receiver<bool> {
    let (done, told) = bounded(1);
    rig.with(|m, now| m.close(done, now));
    told
}

#[test]
fn a_close_is_told_to_the_server_again_when_the_connection_dies() {
    let mut rig = Rig::up();
    let a = rig.ask(op::EXISTS, "/a");
    rig.sent();
    let told = close(&mut rig);
    assert_eq!(rig.answers(), [(a, err::SESSION_EXPIRED)]);
    assert_eq!(rig.sent().last().map(|s| s.1), Some(op::CLOSE));
    rig.drop_connection();
    assert!(rig.m.wants_connection());
    rig.attach(7);
    let (xid, op, _) = rig.sent().pop().unwrap();
    assert_eq!(op, op::CLOSE);
    rig.reply(xid, err::OK, &[]);
    assert_eq!(told.try_recv(), Ok(true));
    assert!(rig.m.is_over());
}

#[test]
fn a_close_in_an_outage_gives_up_in_time() {
    let mut rig = Rig::up();
    rig.drop_connection();
    let told = close(&mut rig);
    rig.pass(GOODBYE);
    assert_eq!(told.try_recv(), Ok(false));
    assert!(rig.m.is_over());
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
    close(&mut rig);
    rig.pass(MS);
    let mut wakes = 0;
    let end = rig.now + GOODBYE;
    while let Some(next) = rig.look().filter(|next| *next <= end) {
        assert!(next > rig.now, "a wake-up in the past");
        rig.now = next;
        wakes += 1;
    }
    assert!(wakes < 10, "{wakes}");
    assert!(rig.m.is_over());
}
