//! What idle sessions send by themselves, and what is left of their lease meanwhile.

use super::*;
use crate::lease::heard::Heard;
use crate::lease::node::LeasedNode;

/// So many session timeouts pass.
const TIMES: u32 = 10;

/// What sessions have sent in all, and the least that was left of a lease.
#[derive(Debug)]
struct Upkeep {
    requests: usize,
    writes: usize,
    least: Duration,
}

/// Sessions of one ensemble, each of which holds something.
struct Fleet {
    rigs: Vec<Rig>,
    holds: Vec<Arc<LeasedNode>>,
    /// The zxid of the newest write.
    zxid: i64,
}

impl Fleet {
    fn new(sessions: usize, leader_serves: bool) -> Fleet {
        let mut rigs = Vec::new();
        for number in 0..sessions {
            let mut rig = Rig::new(&[]);
            rig.machine.config.leader_serves = leader_serves;
            rig.machine.heard = Heard::new(leader_serves);
            rig.machine.config.noop = format!("{NOOP}{number}");
            rig.attach(7);
            rigs.push(rig);
        }
        let holds = rigs.iter().map(|rig| rig.hold("/l/n")).collect();
        Fleet { rigs, holds, zxid: 1_000 }
    }

    /// Lets time pass. All sessions hear answers at the next step. If `others_write`, other clients
    /// write all the time.
    fn pass(&mut self, times: u32, others_write: bool) -> Upkeep {
        let mut upkeep = Upkeep { requests: 0, writes: 0, least: T };
        for _ in 0..times * 480 {
            self.zxid += i64::from(others_write);
            for (number, rig) in self.rigs.iter_mut().enumerate() {
                // The sessions are not in step.
                rig.pass_time(T / 480 + Duration::from_micros(number as u64 % 97));
                for (xid, op, _) in rig.sent() {
                    upkeep.requests += usize::from(op != op::GET_DATA);
                    upkeep.writes += usize::from(op == op::DELETE);
                    self.zxid += i64::from(op == op::DELETE);
                    let err = if op == op::DELETE { err::NO_NODE } else { err::OK };
                    let body = if op == op::GET_DATA { node(b"", 5, 7) } else { Vec::new() };
                    rig.bytes(&ReplyHeader { xid, zxid: self.zxid, err }.frame(&body));
                }
                rig.lapse();
                upkeep.least = upkeep.least.min(rig.lease.remaining(rig.now));
            }
        }
        upkeep
    }

    #[track_caller]
    fn assert_held(&self, upkeep: &Upkeep) {
        assert!(self.holds.iter().all(|hold| hold.loss().is_none()), "{upkeep:?}");
        assert!(self.rigs.iter().all(|rig| rig.machine.cut.is_none()), "{upkeep:?}");
        assert!(upkeep.least >= T / 4, "{upkeep:?}");
    }
}

#[test]
fn a_holder_sends_eight_requests_in_each_timeout_and_less_than_two_of_them_are_writes() {
    for others_write in [false, true] {
        let mut fleet = Fleet::new(1, true);
        let upkeep = fleet.pass(TIMES, others_write);
        fleet.assert_held(&upkeep);
        assert!((75..=82).contains(&upkeep.requests), "{upkeep:?}");
        assert!((14..=18).contains(&upkeep.writes), "{upkeep:?}");
    }
}

#[test]
fn where_no_leader_serves_and_others_write_a_holder_writes_nothing() {
    let mut fleet = Fleet::new(1, false);
    fleet.pass(1, true); // the first commit on a connection is its own
    let upkeep = fleet.pass(TIMES, true);
    fleet.assert_held(&upkeep);
    assert!((75..=82).contains(&upkeep.requests), "{upkeep:?}");
    assert_eq!(upkeep.writes, 0, "{upkeep:?}");
}

#[test]
fn where_no_leader_serves_and_nobody_writes_a_few_of_all_holders_do() {
    for sessions in [1, 10, 300] {
        let mut fleet = Fleet::new(sessions, false);
        fleet.pass(2, false);
        let upkeep = fleet.pass(TIMES, false);
        fleet.assert_held(&upkeep);
        assert!((1..=20 * TIMES as usize).contains(&upkeep.writes), "{sessions}: {upkeep:?}");
        // A look comes besides what is sent anyway. The fewer sessions there are, the later is the
        // first look, and the more of them look before they see its write.
        let most = sessions * TIMES as usize * 21 / 2 + upkeep.writes * 2;
        assert!(upkeep.requests <= most, "{sessions}: {upkeep:?}");
        println!("{sessions}: {upkeep:?}");
    }
}

/// For example, the only client that wrote goes away.
#[test]
fn holders_whose_others_stop_to_write_write_themselves_in_time() {
    let mut fleet = Fleet::new(1, false);
    fleet.pass(2, true);
    let upkeep = fleet.pass(TIMES, false);
    fleet.assert_held(&upkeep);
    assert!(upkeep.writes >= 1, "{upkeep:?}");
}

/// Only a write is refused when the session has moved to the server that does a create late.
#[test]
fn a_holder_writes_in_each_quarter_of_the_timeout_while_a_create_may_be_done_late() {
    for leader_serves in [false, true] {
        let mut fleet = Fleet::new(1, leader_serves);
        fleet.pass(1, true);
        let rig = &mut fleet.rigs[0];
        let until = rig.now + T * 100;
        rig.machine.background.late.add(Removal::of_create("/l/_c_late-lock-", "late"), until);
        let upkeep = fleet.pass(TIMES, true);
        fleet.assert_held(&upkeep);
        assert!(upkeep.writes >= 4 * TIMES as usize - 2, "{leader_serves}: {upkeep:?}");
    }
}

/// A server that is throttled refuses each `sync`.
#[test]
fn a_holder_whose_syncs_are_refused_sends_them_at_a_bounded_pace() {
    let mut fleet = Fleet::new(1, false);
    fleet.pass(2, false);
    let rig = &mut fleet.rigs[0];
    let (mut sent, end) = (0, rig.now + T / 2);
    while rig.now < end && rig.machine.cut.is_none() {
        rig.pass_time(T / 480);
        for (xid, op, _) in rig.sent() {
            sent += 1;
            rig.reply(xid, if op == op::SYNC { THROTTLED } else { err::NO_NODE }, &[]);
        }
    }
    assert!(sent <= 20, "{sent} requests in half of T");
}

#[test]
fn a_stated_tick_leaves_a_holder_more_of_its_lease() {
    let mut fleet = Fleet::new(1, true);
    fleet.rigs[0].machine.config.tick = Some(T / 10);
    fleet.rigs[0].drop_connection();
    fleet.rigs[0].attach(7);
    fleet.pass(1, false);
    let upkeep = fleet.pass(TIMES, false);
    fleet.assert_held(&upkeep);
    assert!(upkeep.least >= T * 5 / 12 - T / 100, "{upkeep:?}");
    assert!(upkeep.writes <= 2 * TIMES as usize + 2, "{upkeep:?}");
}
