//! The machine's decisions, tested with no network: a scripted crate on one side, a scripted server
//! on the other, and a clock that only the test moves.

use super::*;
use crate::session::hold::Hold;
use crate::session::link::{Outcome, Removal};
use crate::session::nonce;
use crossbeam_channel::{Receiver, bounded};
use proptest::prelude::*;

mod long_answer;
mod slow_server;

const T: Duration = Duration::from_secs(24);
const MS: Duration = Duration::from_millis(1);

struct Rig {
    m: Machine,
    now: BootTime,
    shared: Arc<Shared>,
    crate_in: Frames,
    server_in: Frames,
    crate_xid: i32,
    zxid: i64,
}

/// What the machine sent to the server: xid, operation, and the path where there is one.
type Sent = (i32, i32, String);

impl Rig {
    fn new(auth: &[(&str, &str)]) -> Self {
        let shared = Arc::new(Shared::default());
        let now = BootTime::now();
        let settings = Settings {
            timeout: T,
            attempt: T / 6,
            auth: auth.iter().map(|(s, c)| ((*s).into(), c.as_bytes().to_vec())).collect(),
            tick: None,
            noop: "noop".into(),
        };
        let mut rig = Rig {
            m: Machine::new(settings, shared.clone(), now),
            now,
            shared,
            crate_in: Frames::default(),
            server_in: Frames::default(),
            crate_xid: 0,
            zxid: 0,
        };
        let request = ConnectRequest { last_zxid: 0, timeout_ms: 1, session_id: 0, password: &[] };
        rig.m.crate_bytes(&request.frame(), now).unwrap();
        rig.m.to_crate.clear();
        rig
    }

    fn up() -> Self {
        let mut rig = Rig::new(&[]);
        rig.attach(7);
        assert!(matches!(rig.events()[..], [LinkEvent::Connected { session_id: 7, timeout: T }]));
        rig
    }

    fn attach(&mut self, session_id: i64) {
        self.m.connected(self.now);
        self.m.to_server.clear();
        self.greet(session_id, T.as_millis() as i32);
    }

    fn greet(&mut self, session_id: i64, timeout_ms: i32) {
        let reply = ConnectReply { timeout_ms, session_id, password: vec![5; 16] };
        self.m.server_bytes(&reply.frame(), self.now);
    }

    /// The crate asks; gives its xid.
    fn ask(&mut self, op: i32, path: &str) -> i32 {
        self.crate_xid += 1;
        let frame = Writer::request(self.crate_xid, op).buffer(path.as_bytes()).bool(false).frame();
        self.m.crate_bytes(&frame, self.now).unwrap();
        self.crate_xid
    }

    fn sent(&mut self) -> Vec<Sent> {
        let bytes = std::mem::take(&mut self.m.to_server);
        self.server_in.push(&bytes);
        let mut all = Vec::new();
        while let Some(frame) = self.server_in.next().unwrap() {
            let (xid, op) = request_header(frame).unwrap();
            let rest = frame.get(8..).unwrap_or_default();
            let path = crate::session::wire::record::Reader::new(rest).string().unwrap_or("").to_owned();
            all.push((xid, op, path));
        }
        all
    }

    /// An answer of the leader: it bears a new zxid.
    fn reply(&mut self, xid: i32, err: i32, body: &[u8]) {
        self.zxid += 1;
        let frame = ReplyHeader { xid, zxid: self.zxid, err }.frame(body);
        self.m.server_bytes(&frame, self.now);
    }

    /// What the crate was answered: xid and error.
    fn answers(&mut self) -> Vec<(i32, i32)> {
        let bytes = std::mem::take(&mut self.m.to_crate);
        self.crate_in.push(&bytes);
        let mut all = Vec::new();
        while let Some(frame) = self.crate_in.next().unwrap() {
            let (header, _) = ReplyHeader::read(frame).unwrap();
            all.push((header.xid, header.err));
        }
        all
    }

    fn events(&mut self) -> Vec<LinkEvent> {
        std::mem::take(&mut self.m.events)
    }

    /// Lets time pass, looking whenever the machine asked to be looked at.
    fn pass(&mut self, d: Duration) {
        let until = self.now + d;
        while let Some(next) = self.m.tick(self.now).filter(|next| *next <= until) {
            self.now = next.max(self.now + MS / 10);
        }
        self.now = until;
        self.m.tick(self.now);
    }

    fn hold(&mut self, path: &str) -> Arc<Hold> {
        let hold = Hold::new(path.into(), None, 0, Box::new(|| ()));
        self.shared.lease.grant(&hold, self.now).unwrap();
        hold
    }
}

#[test]
fn requests_are_answered_in_order_under_their_own_xids() {
    let mut rig = Rig::up();
    let (a, b) = (rig.ask(op::EXISTS, "/a"), rig.ask(op::DELETE, "/b"));
    let sent = rig.sent();
    assert_eq!(
        sent.iter().map(|s| (s.1, s.2.as_str())).collect::<Vec<_>>(),
        [(op::EXISTS, "/a"), (op::DELETE, "/b")]
    );
    rig.reply(sent[0].0, err::NO_NODE, &[]);
    rig.reply(sent[1].0, err::OK, &[]);
    assert_eq!(rig.answers(), [(a, err::NO_NODE), (b, err::OK)]);
}

#[test]
fn a_cut_answers_what_was_sent_and_holds_what_was_not() {
    let mut rig = Rig::up();
    let a = rig.ask(op::EXISTS, "/a");
    rig.sent();
    rig.m.server_gone("cut", rig.now);
    let b = rig.ask(op::EXISTS, "/b");
    assert_eq!(rig.answers(), [(a, err::CONNECTION_LOSS)]);
    assert_eq!(rig.events(), [LinkEvent::Suspended]);
    rig.attach(7);
    assert_eq!(rig.events(), [LinkEvent::Reconnected]);
    let sent = rig.sent();
    assert_eq!(sent.len(), 1);
    rig.reply(sent[0].0, err::NO_NODE, &[]);
    assert_eq!(rig.answers(), [(b, err::NO_NODE)]);
}

#[test]
fn a_request_held_through_an_outage_is_answered_within_a_sixth_of_the_timeout() {
    let mut rig = Rig::up();
    rig.m.server_gone("cut", rig.now);
    let a = rig.ask(op::EXISTS, "/a");
    rig.pass(T / 6 - MS);
    assert_eq!(rig.answers(), []);
    rig.pass(MS * 2);
    assert_eq!(rig.answers(), [(a, err::CONNECTION_LOSS)]);
}

#[test]
fn a_late_request_is_answered_without_blaming_a_fresh_connection() {
    let mut rig = Rig::up();
    rig.m.server_gone("cut", rig.now);
    let a = rig.ask(op::EXISTS, "/a");
    rig.pass(T / 6 - MS * 10);
    rig.attach(7);
    let sent = rig.sent();
    rig.pass(MS * 20);
    assert_eq!(rig.answers(), [(a, err::CONNECTION_LOSS)]);
    assert_eq!(rig.m.cut, None);
    let b = rig.ask(op::EXISTS, "/b");
    rig.reply(sent[0].0, err::NO_NODE, &[]);
    assert_eq!(rig.answers(), []);
    let sent = rig.sent();
    rig.reply(sent[0].0, err::NO_NODE, &[]);
    assert_eq!(rig.answers(), [(b, err::NO_NODE)]);
}

#[test]
fn a_black_hole_is_cut_within_a_third_of_the_timeout_even_when_idle() {
    let mut rig = Rig::up();
    rig.pass(T / 3);
    assert!(rig.m.cut.is_some());
    assert_eq!(rig.events(), [LinkEvent::Suspended]);
}

#[test]
fn an_idle_session_pings_and_asks_the_leader() {
    let mut rig = Rig::up();
    let (mut pings, mut syncs) = (0, 0);
    for _ in 0..48 {
        rig.pass(T / 48);
        for (xid, op, _) in rig.sent() {
            match op {
                op::PING => pings += 1,
                op::SYNC => syncs += 1,
                other => panic!("unexpected operation {other}"),
            }
            rig.reply(xid, err::OK, b"\0\0\0\x01/");
        }
    }
    assert!((3..=4).contains(&syncs), "{syncs}");
    assert!((3..=8).contains(&pings), "{pings}");
    assert_eq!(rig.m.cut, None);
}

#[test]
fn a_held_lock_keeps_its_lease_by_writes_and_reads_do_not() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    for _ in 0..96 {
        rig.pass(T / 48);
        for (xid, op, path) in rig.sent() {
            match op {
                op::DELETE => assert_eq!(path, "/l/noop"),
                op::GET_DATA => assert_eq!(path, "/l/n"),
                _ => {}
            }
            let body = if op == op::GET_DATA { [0; 72].as_slice() } else { &[] };
            rig.reply(xid, if op == op::DELETE { err::NO_NODE } else { err::OK }, body);
        }
        rig.shared.lease.watch(rig.now);
    }
    assert_eq!(hold.loss(), None);
    // From here on the server answers everything but writes: what a follower without leader does.
    for _ in 0..48 {
        rig.pass(T / 48);
        rig.shared.lease.watch(rig.now);
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
        let made = rig.shared.lease.end_time().unwrap();
        // Answered every T/48, and the leader is asked every T/4.
        let mut synced = rig.now;
        for _ in 0..48 {
            rig.pass(T / 48);
            for (xid, op, _) in rig.sent() {
                synced = if op == op::SYNC { rig.now } else { synced };
                rig.reply(xid, err::OK, &[]);
            }
            assert_eq!(rig.shared.lease.end_time(), Some(made), "no write was acknowledged");
        }
        rig.ask(op::SET_DATA, "/l/n");
        let body = if code == err::OK { [0; 68].as_slice() } else { &[] };
        let (xid, ..) = rig.sent().pop().unwrap();
        rig.reply(xid, code, body);
        let end = rig.shared.lease.end_time().unwrap();
        // Pings go out every T/8, and what was answered T/3 before the sync counts.
        let heard = end.before(T - T / 12);
        let lag = T / 3;
        assert!(heard.since(synced.before(lag + T / 6)) > Duration::ZERO && heard <= synced.before(lag));
    }
}

#[test]
fn a_write_that_a_server_refused_by_itself_proves_nothing() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    let made = rig.shared.lease.end_time();
    rig.shared.add_debris("id");
    rig.m.chore(sweep(), rig.now);
    for _ in 0..48 {
        for (xid, op, _) in rig.sent() {
            // As a follower without a leader answers with eager ACL checks.
            let frame = match op {
                op::DELETE => ReplyHeader { xid, zxid: 0, err: err::NO_AUTH }.frame(&[]),
                op::GET_DATA => ReplyHeader { xid, zxid: 0, err: err::OK }.frame(&[0; 72]),
                op::GET_CHILDREN => panic!("a listing that may be old"),
                _ => ReplyHeader { xid, zxid: 0, err: err::OK }.frame(&[]),
            };
            rig.m.server_bytes(&frame, rig.now);
        }
        rig.pass(T / 48);
        rig.shared.lease.watch(rig.now);
    }
    assert_eq!(rig.shared.lease.end_time(), made);
    assert!(rig.m.cut.is_some(), "it looks for another server");
    assert_eq!(hold.loss(), Some(LossReason::LeaseExpired));
    assert!(rig.shared.debris().contains("id"));
}

#[test]
fn a_session_that_was_silent_attaches_anew_before_it_sends_anything() {
    let mut rig = Rig::up();
    let _hold = rig.hold("/l/n");
    rig.now = rig.now + T / 3; // nothing ran
    let a = rig.ask(op::SET_DATA, "/x");
    assert!(rig.m.cut.is_some());
    assert_eq!(rig.sent(), []);
    assert_eq!(rig.answers(), [], "it is held until the session is attached");
    rig.attach(7);
    let mut sent = rig.sent();
    sent.retain(|s| s.1 != op::GET_DATA); // the hold's watch is set again too
    assert_eq!(sent.iter().map(|s| s.2.as_str()).collect::<Vec<_>>(), ["/l/noop", "/x"]);
    rig.reply(sent[0].0, err::NO_NODE, &[]);
    assert_eq!(rig.shared.lease.end_time(), Some(rig.now + (T - T / 12)));
    rig.reply(sent[1].0, err::OK, &[0; 68]);
    assert_eq!(rig.answers(), [(a, err::OK)]);
}

#[test]
fn a_proof_is_a_sync_and_behind_its_answer_a_write() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    let mut asked = Vec::new();
    for _ in 0..48 {
        rig.pass(T / 48);
        let mut sent = rig.sent();
        while !sent.is_empty() {
            // What is sent together was not sent behind an answer.
            assert!(sent.iter().filter(|s| s.1 == op::SYNC || s.2 == "/l/noop").count() <= 1);
            for (xid, op, path) in sent {
                let is_noop = path == "/l/noop";
                if is_noop || op == op::SYNC {
                    asked.push(op);
                }
                let body = if op == op::GET_DATA { [0; 72].as_slice() } else { &[] };
                rig.reply(xid, if is_noop { err::NO_NODE } else { err::OK }, body);
            }
            sent = rig.sent();
        }
    }
    assert_eq!(asked[asked.len() - 4..], [op::SYNC, op::DELETE, op::SYNC, op::DELETE]);
    // Every T/6; the first ones need no sync, because the handshake shows more.
    assert!((6..=12).contains(&asked.len()) && asked[0] == op::DELETE, "{asked:?}");
    assert_eq!(hold.loss(), None);
}

#[test]
fn a_caller_that_waits_for_a_fresh_lease_gets_it_as_soon_as_a_proof_shows_enough() {
    let mut rig = Rig::up();
    for _ in 0..12 {
        rig.pass(T / 12);
        for (xid, ..) in rig.sent() {
            rig.reply(xid, err::OK, &[]);
        }
    }
    assert!(!rig.shared.lease.is_fresh(rig.now));
    let (done, fresh) = bounded(1);
    rig.m.prove("/l".into(), done, rig.now);
    let mut requests = 0;
    while fresh.is_empty() {
        for (xid, op, _) in rig.sent() {
            requests += usize::from(op == op::SYNC || op == op::DELETE);
            rig.reply(xid, if op == op::DELETE { err::NO_NODE } else { err::OK }, &[]);
        }
        rig.m.tick(rig.now);
    }
    assert!(requests <= 2, "{requests}");
    assert!(rig.shared.lease.is_fresh(rig.now));
}

#[test]
fn a_proof_that_is_answered_slowly_does_not_spin() {
    let mut rig = Rig::up();
    let (_hold, (done, fresh)) = (rig.hold("/l/n"), bounded(1));
    rig.m.prove("/l".into(), done, rig.now);
    let (mut wakes, end) = (0, rig.now + (T / 6 - MS));
    while let Some(next) = rig.m.tick(rig.now).filter(|next| *next <= end) {
        assert!(next > rig.now, "a wake-up in the past");
        rig.now = next;
        wakes += 1;
    }
    assert!(wakes < 10 && fresh.is_empty(), "{wakes}");
}

#[test]
fn a_throttled_write_proves_nothing() {
    let mut rig = Rig::up();
    rig.pass(T / 4);
    let before = rig.shared.lease.remaining(rig.now);
    rig.ask(op::DELETE, "/a");
    for (xid, op, _) in rig.sent() {
        rig.reply(xid, if op == op::DELETE { -127 } else { err::OK }, &[]);
    }
    assert_eq!(rig.shared.lease.remaining(rig.now), before);
}

#[test]
fn an_expired_session_ends_everything_at_once() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    let a = rig.ask(op::EXISTS, "/a");
    rig.sent();
    rig.m.server_gone("cut", rig.now);
    let b = rig.ask(op::EXISTS, "/b");
    rig.m.connected(rig.now);
    rig.greet(0, 0);
    assert_eq!(rig.answers(), [(a, err::CONNECTION_LOSS), (b, err::SESSION_EXPIRED)]);
    assert_eq!(rig.events(), [LinkEvent::Suspended, LinkEvent::Lost(LossReason::SessionExpired)]);
    assert_eq!(hold.loss(), Some(LossReason::SessionExpired));
    let c = rig.ask(op::EXISTS, "/c");
    assert_eq!(rig.answers(), [(c, err::SESSION_EXPIRED)]);
    assert!(!rig.m.wants_connection());
}

#[test]
fn another_session_never_takes_the_place_of_ours() {
    let mut rig = Rig::up();
    rig.m.server_gone("cut", rig.now);
    rig.attach(8);
    assert_eq!(rig.events()[1..], [LinkEvent::Lost(LossReason::SessionExpired)]);
}

#[test]
fn credentials_go_before_anything_else_on_every_connection() {
    let mut rig = Rig::new(&[("digest", "a:b"), ("digest", "c:d")]);
    for round in 0..2 {
        let a = rig.ask(op::EXISTS, "/a");
        rig.attach(7);
        let sent = rig.sent();
        assert_eq!(sent.iter().map(|s| s.1).collect::<Vec<_>>(), [op::AUTH, op::AUTH], "round {round}");
        rig.reply(xid::AUTH, err::OK, &[]);
        assert_eq!(rig.sent(), []);
        rig.reply(xid::AUTH, err::OK, &[]);
        let sent = rig.sent();
        assert_eq!(sent.len(), 1);
        rig.reply(sent[0].0, err::NO_NODE, &[]);
        assert_eq!(rig.answers(), [(a, err::NO_NODE)]);
        rig.m.server_gone("cut", rig.now);
    }
}

#[test]
fn refused_credentials_end_the_session_and_close_it_at_the_server() {
    let mut rig = Rig::new(&[("nonsense", "x")]);
    rig.attach(7);
    rig.sent();
    rig.reply(xid::AUTH, err::AUTH_FAILED, &[]);
    assert_eq!(rig.events(), [LinkEvent::Lost(LossReason::AuthFailed)]);
    assert_eq!(rig.sent().last().map(|s| s.1), Some(op::CLOSE));
    let a = rig.ask(op::EXISTS, "/a");
    assert_eq!(rig.answers(), [(a, err::AUTH_FAILED)]);
}

fn close(rig: &mut Rig) -> Receiver<bool> {
    let (done, told) = bounded(1);
    rig.m.close(done, rig.now);
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
    rig.m.server_gone("cut", rig.now);
    assert!(rig.m.wants_connection());
    rig.attach(7);
    let (xid, op, _) = rig.sent().pop().unwrap();
    assert_eq!(op, op::CLOSE);
    rig.reply(xid, err::OK, &[]);
    assert_eq!(told.try_recv(), Ok(true));
    assert!(rig.m.is_over());
}

#[test]
fn a_close_in_an_outage_gives_up_in_time_and_answers_the_crate() {
    let mut rig = Rig::up();
    rig.m.server_gone("cut", rig.now);
    let told = close(&mut rig);
    let frame = Writer::request(99, op::CLOSE).frame();
    rig.m.crate_bytes(&frame, rig.now).unwrap();
    assert_eq!(rig.answers(), []);
    rig.pass(GOODBYE);
    assert_eq!(told.try_recv(), Ok(false));
    assert_eq!(rig.answers(), [(99, err::OK)]);
    assert!(rig.m.crate_is_closed());
}

#[test]
fn a_delete_is_sent_until_it_is_acknowledged() {
    let mut rig = Rig::up();
    rig.shared.add_debris("id");
    let (done, outcome) = bounded(1);
    let chore = Chore::Delete { path: "/l/n".into(), id: "id".into(), renew_parent: false, done: Some(done) };
    rig.m.chore(chore, rig.now);
    for _ in 0..3 {
        assert_eq!(rig.sent().pop().map(|s| (s.1, s.2)), Some((op::DELETE, "/l/n".into())));
        rig.m.server_gone("cut", rig.now);
        rig.attach(7);
    }
    assert!(rig.shared.debris().contains("id"));
    let (xid, ..) = rig.sent().pop().unwrap();
    rig.reply(xid, err::NO_NODE, &[]);
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
    assert!(rig.shared.debris().is_empty());
}

/// The create of a contender's node got no answer.
fn sweep() -> Chore {
    Chore::Sweep { parent: "/l".into(), prefix: "_c_id-lock-".into(), id: "id".into() }
}

/// A listing with one name.
fn listing(name: &str) -> Vec<u8> {
    Writer::bare().i32(1).buffer(name.as_bytes()).frame()[4..].to_vec()
}

#[test]
fn a_lost_create_is_looked_for_only_behind_a_write_on_the_same_connection() {
    let mut rig = Rig::up();
    rig.shared.add_debris("id");
    rig.m.chore(sweep(), rig.now);
    let (xid, op, path) = rig.sent().pop().unwrap();
    assert_eq!((op, path.as_str()), (op::DELETE, "/l/noop"));
    rig.reply(xid, err::NO_NODE, &[]);
    assert_eq!(rig.sent().pop().map(|s| s.1), Some(op::GET_CHILDREN));
    // The answer does not come; on the next connection it begins with the write again.
    rig.m.server_gone("cut", rig.now);
    rig.attach(7);
    let (xid, op, _) = rig.sent().pop().unwrap();
    assert_eq!(op, op::DELETE);
    rig.reply(xid, err::NO_NODE, &[]);
    let (xid, ..) = rig.sent().pop().unwrap();
    rig.reply(xid, err::OK, &listing("_c_id-lock-0000000003"));
    let (xid, op, path) = rig.sent().pop().unwrap();
    assert_eq!((op, path.as_str()), (op::DELETE, "/l/_c_id-lock-0000000003"));
    rig.reply(xid, err::OK, &[]);
    assert!(rig.shared.debris().is_empty());
}

/// What a read says of a node.
fn node(data: &[u8], czxid: i64, owner: i64) -> Vec<u8> {
    let stat = Writer::bare().buffer(data).i64(czxid).i64(0).i64(0).i64(0).i32(0).i32(0).i32(0).i64(owner);
    stat.i32(0).i32(0).i64(0).frame()[4..].to_vec()
}

impl Rig {
    /// A node of ours is to be removed; gives its nonce, and what hears of the outcome.
    fn remove(&mut self, czxid: Option<i64>) -> (String, Receiver<Outcome>) {
        let nonce = nonce::new();
        self.shared.add_debris(&nonce);
        let (done, outcome) = bounded(1);
        let removal = Removal::new("/l/lock".into(), nonce.clone(), czxid, Some(done));
        self.m.chore(Chore::Remove(removal), self.now);
        (nonce, outcome)
    }

    /// The one request that was sent.
    #[track_caller]
    fn one(&mut self, op: i32, path: &str) -> i32 {
        let sent = self.sent();
        assert_eq!(sent.iter().map(|s| (s.1, s.2.as_str())).collect::<Vec<_>>(), [(op, path)]);
        sent[0].0
    }

    /// The write before a removal's read is acknowledged.
    #[track_caller]
    fn prove(&mut self) {
        let xid = self.one(op::DELETE, "/l/noop");
        self.reply(xid, err::NO_NODE, &[]);
    }

    /// A removal's read shows this.
    #[track_caller]
    fn show(&mut self, shown: Option<Vec<u8>>) {
        let xid = self.one(op::GET_DATA, "/l/lock");
        let code = if shown.is_some() { err::OK } else { err::NO_NODE };
        self.reply(xid, code, &shown.unwrap_or_default());
    }

    fn cut(&mut self) {
        self.m.server_gone("cut", self.now);
        self.attach(7);
    }
}

#[test]
fn a_node_with_a_fixed_name_is_deleted_behind_a_write_and_a_read_that_shows_it_is_ours() {
    for czxid in [None, Some(5)] {
        let mut rig = Rig::up();
        let (nonce, outcome) = rig.remove(czxid);
        rig.prove();
        rig.show(Some(node(&nonce::sign(&nonce, b"x"), 5, 7)));
        let xid = rig.one(op::DELETE, "/l/lock");
        assert!(rig.shared.debris().contains(&nonce));
        rig.reply(xid, err::OK, &[]);
        assert_eq!(outcome.try_recv(), Ok(Ok(())));
        assert!(rig.shared.debris().is_empty());
        rig.pass(T);
        assert!(rig.sent().iter().all(|s| s.2 != "/l/lock"));
    }
}

#[test]
fn a_node_with_a_fixed_name_that_is_not_ours_stays() {
    let (theirs, ours) = (nonce::sign(&nonce::new(), b"x"), |nonce: &str| nonce::sign(nonce, b"x"));
    for czxid in [None, Some(5)] {
        for case in 0..5 {
            let mut rig = Rig::up();
            let (nonce, outcome) = rig.remove(czxid);
            let shown = match (case, czxid) {
                (0, _) => None,
                (1, _) => Some(node(&theirs, 6, 7)),
                (2, _) => Some(node(&ours(&nonce), 5, 8)),
                (3, _) => Some(node(b"", 6, 0)),
                (_, Some(_)) => Some(node(&ours(&nonce), 6, 7)),
                (_, None) => Some(node(b"their words", 6, 8)),
            };
            rig.prove();
            rig.show(shown);
            assert_eq!(rig.sent(), [], "{case} {czxid:?}");
            assert_eq!(outcome.try_recv(), Ok(Ok(())), "{case} {czxid:?}");
            assert!(rig.shared.debris().is_empty());
        }
    }
}

#[test]
fn a_node_of_our_session_is_ours_though_somebody_wrote_on_it_before_its_czxid_was_known() {
    for is_held_by_another in [false, true] {
        let mut rig = Rig::up();
        if is_held_by_another {
            fixed(&rig, 9);
        }
        rig.remove(None);
        rig.prove();
        rig.show(Some(node(b"their words", 9, 7)));
        let deletes = rig.sent().iter().filter(|s| s.2 == "/l/lock").count();
        assert_eq!(deletes, usize::from(!is_held_by_another));
    }
}

#[test]
fn a_sweep_takes_the_node_whose_name_is_its_own_and_no_other() {
    for (names, ours) in [
        (["x_c_id-lock-0000000001", "_c_id-lock-0000000003"], Some("_c_id-lock-0000000003")),
        (["_c_id-lock-000000000x", "_c_id-lock--2147483648"], Some("_c_id-lock--2147483648")),
        (["_c_id-lock-7-copy", "_c_id-__READ__0000000001"], None),
    ] {
        let mut rig = Rig::up();
        rig.shared.add_debris("id");
        rig.m.chore(sweep(), rig.now);
        rig.prove();
        let xid = rig.one(op::GET_CHILDREN, "/l");
        let both = names.iter().fold(Writer::bare().i32(2), |w, name| w.buffer(name.as_bytes()));
        rig.reply(xid, err::OK, &both.frame()[4..]);
        let deleted: Vec<_> = rig.sent().into_iter().map(|s| s.2).collect();
        assert_eq!(deleted, ours.map(|name| format!("/l/{name}")).into_iter().collect::<Vec<_>>());
    }
}

#[test]
fn a_node_known_by_its_czxid_is_ours_whatever_somebody_wrote_on_it() {
    let mut rig = Rig::up();
    rig.remove(Some(5));
    rig.prove();
    rig.show(Some(node(b"their words", 5, 7)));
    rig.one(op::DELETE, "/l/lock");
}

#[test]
fn a_removal_begins_anew_on_each_connection_and_spares_the_next_owner() {
    let mut rig = Rig::up();
    let (nonce, outcome) = rig.remove(Some(5));
    let ours = Some(node(&nonce::sign(&nonce, b"x"), 5, 7));
    rig.one(op::DELETE, "/l/noop"); // no answer
    rig.cut();
    rig.prove();
    rig.one(op::GET_DATA, "/l/lock"); // no answer
    rig.cut();
    rig.prove();
    rig.show(ours);
    rig.one(op::DELETE, "/l/lock"); // done, and its answer is lost; then somebody else makes the node
    rig.cut();
    assert!(rig.shared.debris().contains(&nonce));
    rig.prove();
    rig.show(Some(node(&nonce::sign(&nonce::new(), b"x"), 6, 8)));
    assert_eq!(rig.sent(), []);
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
    assert!(rig.shared.debris().is_empty());
}

#[test]
fn a_removal_looks_only_behind_a_write_that_went_through_the_quorum() {
    let mut rig = Rig::up();
    rig.remove(None);
    let xid = rig.one(op::DELETE, "/l/noop");
    rig.reply(xid, err::RUNTIME_INCONSISTENCY, &[]);
    assert_eq!(rig.sent(), []);
    rig.pass(T / 8);
    assert_eq!(rig.sent().iter().filter(|s| s.2 == "/l/noop").count(), 1);
}

#[test]
fn a_removal_that_is_refused_is_told_and_tried_again_from_the_start() {
    for refused in [op::GET_DATA, op::DELETE] {
        let mut rig = Rig::up();
        let (nonce, outcome) = rig.remove(None);
        let (mut steps, end) = (Vec::new(), rig.now + T * 2);
        while rig.now < end {
            for (xid, op, path) in rig.sent() {
                match (op, path.as_str()) {
                    (op, "/l/lock") if op == refused => rig.reply(xid, err::NO_AUTH, &[]),
                    (_, "/l/lock") => rig.reply(xid, err::OK, &node(&nonce::sign(&nonce, b"x"), 5, 7)),
                    (_, "/l/noop") => rig.reply(xid, err::NO_NODE, &[]),
                    _ => {
                        rig.reply(xid, err::OK, &[]);
                        continue;
                    }
                }
                steps.push((op, path));
                rig.m.tick(rig.now);
            }
            rig.pass(T / 48);
        }
        assert_eq!(outcome.try_recv(), Ok(Err(err::NO_AUTH)));
        assert!(rig.shared.debris().contains(&nonce));
        let is_refused = |(op, path): &(i32, String)| *op == refused && path == "/l/lock";
        let tries = steps.iter().filter(|step| is_refused(step)).count();
        assert!((2..=3).contains(&tries), "{steps:?}");
        let steps: Vec<_> = steps.iter().map(|(op, path)| (*op, path.as_str())).collect();
        let whole = [(op::DELETE, "/l/noop"), (op::GET_DATA, "/l/lock"), (op::DELETE, "/l/lock")];
        let whole = if refused == op::GET_DATA { &whole[..2] } else { &whole };
        assert_eq!(steps, whole.repeat(tries));
    }
}

#[test]
fn a_removal_survives_an_answer_that_is_none() {
    let mut rig = Rig::up();
    let (nonce, outcome) = rig.remove(None);
    rig.prove();
    let xid = rig.one(op::GET_DATA, "/l/lock");
    rig.reply(xid, err::OK, &[0, 0, 0, 9]);
    assert!(rig.m.cut.is_some());
    rig.attach(7);
    rig.prove();
    rig.show(Some(node(&nonce::sign(&nonce, b"x"), 5, 7)));
    let xid = rig.one(op::DELETE, "/l/lock");
    rig.reply(xid, err::NO_NODE, &[]);
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
}

#[test]
fn a_sweep_survives_an_answer_that_is_none() {
    let mut rig = Rig::up();
    rig.shared.add_debris("id");
    rig.m.chore(sweep(), rig.now);
    rig.prove();
    let xid = rig.one(op::GET_CHILDREN, "/l");
    rig.reply(xid, err::OK, &[0, 0, 0, 9]);
    assert!(rig.m.cut.is_some());
    rig.attach(7);
    rig.prove();
    let xid = rig.one(op::GET_CHILDREN, "/l");
    rig.reply(xid, err::OK, &[0, 0, 0, 0]);
    assert!(rig.shared.debris().is_empty());
}

#[test]
fn a_removal_ends_with_its_session() {
    let mut rig = Rig::up();
    let (_, outcome) = rig.remove(None);
    rig.m.end(LossReason::SessionExpired, rig.now);
    assert!(outcome.try_recv().is_err_and(|e| e.is_disconnected()));
}

/// A hold of a node whose name others use too.
fn fixed(rig: &Rig, czxid: i64) -> Arc<Hold> {
    let hold = Hold::fixed("/l/lock".into(), czxid, 0, Box::new(|| ()));
    rig.shared.lease.grant(&hold, rig.now).unwrap();
    hold
}

#[test]
fn a_watch_that_finds_another_node_of_the_same_name_shows_that_ours_is_gone() {
    for (czxid, loss) in [(5, None), (6, Some(LossReason::NodeDeleted))] {
        let mut rig = Rig::up();
        let hold = fixed(&rig, 5);
        rig.pass(WATCH_AFTER * 2);
        rig.show(Some(node(b"whatever", czxid, 7)));
        assert_eq!((hold.loss(), hold.czxid()), (loss, Some(5)));
    }
}

#[test]
fn a_late_release_of_a_lost_hold_leaves_the_next_one_of_the_same_name_alone() {
    let mut rig = Rig::up();
    let first = fixed(&rig, 5);
    rig.shared.lease.node_deleted("/l/lock", rig.now);
    let second = fixed(&rig, 6);
    rig.shared.lease.release(&first);
    rig.shared.lease.gone(&first, rig.now);
    assert_eq!((first.loss(), second.loss()), (Some(LossReason::NodeDeleted), None));
    rig.m.end(LossReason::SessionExpired, rig.now);
    assert_eq!(second.loss(), Some(LossReason::SessionExpired), "it still stands and falls with the lease");
}

#[test]
fn a_hold_is_watched_after_a_while_and_again_on_each_connection() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    rig.pass(WATCH_AFTER * 2);
    let (xid, op, path) = rig.sent().pop().unwrap();
    assert_eq!((op, path.as_str()), (op::GET_DATA, "/l/n"));
    let mut body = vec![0; 72];
    body[4..12].copy_from_slice(&77i64.to_be_bytes());
    rig.reply(xid, err::OK, &body);
    assert_eq!(hold.czxid(), Some(77));
    rig.m.server_gone("cut", rig.now);
    rig.attach(7);
    let (xid, op, _) = rig.sent().pop().unwrap();
    assert_eq!(op, op::GET_DATA);
    rig.reply(xid, err::NO_NODE, &[]);
    assert_eq!(hold.loss(), Some(LossReason::NodeDeleted));
}

#[test]
fn a_holder_is_asked_to_let_go_by_the_data_that_its_watch_reads() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    rig.pass(WATCH_AFTER * 2);
    let node = |data: &[u8]| {
        let length = i32::try_from(data.len()).unwrap().to_be_bytes();
        [&length[..], data, &[0; 68]].concat()
    };
    for (data, is_asked) in
        [(&b"host:1"[..], false), (b"__REVOKE__!", false), (b"__REVOKE__", true), (b"", true)]
    {
        let (xid, op, _) = rig.sent().pop().unwrap();
        assert_eq!(op, op::GET_DATA);
        rig.reply(xid, err::OK, &node(data));
        assert_eq!((hold.is_revoked(), hold.revoke_signal().is_requested()), (is_asked, is_asked));
        rig.m.watched(event::DATA_CHANGED, "/l/n", rig.now);
    }
    assert_eq!(hold.loss(), None);
}

#[test]
fn what_is_not_the_protocol_is_cut_before_the_crate_sees_it() {
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
        rig.m.server_bytes(bytes, rig.now);
        assert!(rig.m.cut.is_some(), "{bytes:?}");
        assert_eq!(rig.answers(), []);
    }
    let mut rig = Rig::up();
    let a = rig.ask(op::GET_CHILDREN, "/a");
    let (xid, ..) = rig.sent().pop().unwrap();
    rig.reply(xid, err::OK, &[0x7f, 0xff, 0xff, 0xff]);
    assert_eq!(rig.answers(), [(a, err::CONNECTION_LOSS)]);
}

#[test]
fn containers_are_made_as_containers() {
    let mut rig = Rig::up();
    let frame = Writer::request(1, op::CREATE).buffer(b"/a").buffer(b"").i32(0).i32(4).frame();
    rig.m.crate_bytes(&frame, rig.now).unwrap();
    assert_eq!(rig.sent().pop().map(|s| s.1), Some(op::CREATE_CONTAINER));
}

#[test]
fn a_longer_timeout_granted_anew_never_counts() {
    let mut rig = Rig::up();
    rig.m.server_gone("cut", rig.now);
    rig.m.connected(rig.now);
    let bytes = std::mem::take(&mut rig.m.to_server);
    assert_eq!(ConnectRequest::timeout_of(&bytes[4..]), Ok(T.as_millis() as i32));
    rig.greet(7, (T * 4).as_millis() as i32);
    assert_eq!(rig.shared.timeout(), T);
    assert_eq!(rig.m.timeout(), T);
}

#[test]
fn a_timeout_granted_anew_counts_from_then_on() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    rig.m.server_gone("cut", rig.now);
    rig.m.connected(rig.now);
    rig.greet(7, (T / 4).as_millis() as i32);
    assert_eq!(rig.shared.timeout(), T / 4);
    rig.shared.lease.watch(rig.now + T / 4);
    assert_eq!(hold.loss(), Some(LossReason::LeaseExpired));
}

#[test]
fn a_crate_that_counted_past_its_numbers_still_gets_its_answers() {
    let mut rig = Rig::up();
    for xid in [-1, -2, i32::MIN] {
        let frame = Writer::request(xid, op::EXISTS).buffer(b"/a").bool(false).frame();
        rig.m.crate_bytes(&frame, rig.now).unwrap();
        let (sent, ..) = rig.sent().pop().unwrap();
        rig.reply(sent, err::NO_NODE, &[]);
        let answers = rig.answers();
        assert!(matches!(answers[..], [(0.., err::NO_NODE)]), "{answers:?}");
    }
}

#[test]
fn a_proof_is_not_waited_for_in_an_outage() {
    let mut rig = Rig::up();
    let (done, proven) = bounded(1);
    rig.m.server_gone("cut", rig.now);
    rig.m.prove("/l".into(), done, rig.now);
    assert!(proven.try_recv().is_err_and(|e| e.is_disconnected()));
}

#[test]
fn a_resumed_session_with_a_hold_proves_its_lease_at_once() {
    let mut rig = Rig::up();
    let _hold = rig.hold("/l/n");
    rig.ask(op::DELETE, "/a"); // a write that is never acknowledged
    rig.sent();
    rig.m.server_gone("cut", rig.now);
    rig.attach(7);
    assert_eq!(rig.sent().first().map(|s| s.2.clone()), Some("/l/noop".into()));
}

#[test]
fn a_closing_session_does_not_spin() {
    let mut rig = Rig::up();
    close(&mut rig);
    rig.pass(MS);
    let mut wakes = 0;
    let end = rig.now + GOODBYE;
    while let Some(next) = rig.m.tick(rig.now).filter(|next| *next <= end) {
        assert!(next > rig.now, "a wake-up in the past");
        rig.now = next;
        wakes += 1;
    }
    assert!(wakes < 10, "{wakes}");
    assert!(rig.m.is_over());
}

#[test]
fn a_delete_that_is_refused_is_tried_again_and_never_blocks_us() {
    let mut rig = Rig::up();
    rig.shared.add_debris("id");
    let (done, outcome) = bounded(1);
    let chore = Chore::Delete { path: "/l/n".into(), id: "id".into(), renew_parent: false, done: Some(done) };
    rig.m.chore(chore, rig.now);
    let (xid, ..) = rig.sent().pop().unwrap();
    rig.reply(xid, err::NO_AUTH, &[]);
    assert_eq!(outcome.try_recv(), Ok(Err(err::NO_AUTH)));
    assert!(rig.shared.debris().contains("id"));
    let mut tries = 0;
    for _ in 0..96 {
        rig.pass(T / 48);
        for (xid, _, path) in rig.sent() {
            tries += usize::from(path == "/l/n");
            rig.reply(xid, err::NO_AUTH, &[]);
        }
    }
    assert!((1..=2).contains(&tries), "{tries}");
}

#[test]
fn answers_out_of_turn_are_cut_before_they_reach_the_wrong_caller() {
    let mut rig = Rig::up();
    let (a, b) = (rig.ask(op::EXISTS, "/a"), rig.ask(op::EXISTS, "/b"));
    let sent = rig.sent();
    rig.reply(sent[1].0, err::NO_NODE, &[]);
    assert_eq!(rig.answers(), [(a, err::CONNECTION_LOSS), (b, err::CONNECTION_LOSS)]);
}

#[derive(Clone, Debug)]
enum Act {
    Ask,
    Answer(usize),
    Cut,
    Attach,
    Wait(u64),
    Release,
    Remove,
    Garbage(Vec<u8>),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => Just(Act::Ask),
        6 => (0usize..4).prop_map(Act::Answer),
        1 => Just(Act::Cut),
        2 => Just(Act::Attach),
        2 => (1u64..5000).prop_map(Act::Wait),
        2 => Just(Act::Release),
        2 => Just(Act::Remove),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Act::Garbage),
    ]
}

proptest! {
    /// Whatever the server does, the crate gets exactly one answer to each request, in order, and
    /// in the end nothing that should be deleted is left.
    #[test]
    fn every_request_gets_one_answer_in_order(acts in prop::collection::vec(act(), 0..120)) {
        let mut rig = Rig::up();
        let (mut asked, mut answered) = (Vec::new(), Vec::new());
        let mut open: Vec<Sent> = Vec::new();
        let mut releases = 0;
        for act in acts.into_iter().chain([Act::Attach]) {
            match act {
                Act::Ask => asked.push(rig.ask(op::EXISTS, "/a")),
                Act::Answer(n) => for (xid, ..) in open.drain(..n.min(open.len())).collect::<Vec<_>>() {
                    rig.reply(xid, err::NO_NODE, &[]);
                },
                Act::Cut => rig.m.server_gone("cut", rig.now),
                Act::Attach if rig.m.wants_connection() => rig.attach(7),
                Act::Attach => {}
                Act::Wait(ms) => rig.pass(Duration::from_millis(ms)),
                Act::Release => {
                    releases += 1;
                    let id = format!("id{releases}");
                    rig.shared.add_debris(&id);
                    let path = format!("/l/{id}");
                    rig.m.chore(Chore::Delete { path, id, renew_parent: false, done: None }, rig.now);
                }
                Act::Remove => drop(rig.remove(None)),
                Act::Garbage(bytes) => rig.m.server_bytes(&bytes, rig.now),
            }
            answered.extend(rig.answers());
            if rig.m.wants_connection() {
                open.clear();
                rig.m.to_server.clear();
                rig.server_in.clear();
                rig.m.cut = None;
            } else {
                open.extend(rig.sent());
            }
            prop_assume!(!rig.m.is_ending());
        }
        for _ in 0..200 {
            if rig.m.wants_connection() {
                rig.m.cut = None;
                rig.server_in.clear();
                open.clear();
                rig.attach(7);
            }
            open.extend(rig.sent());
            for (xid, ..) in std::mem::take(&mut open) {
                rig.reply(xid, err::NO_NODE, &[]);
            }
            rig.pass(T / 100); // half a frame of garbage is only given up when answers stay out
            answered.extend(rig.answers());
        }
        prop_assert_eq!(answered.iter().map(|a| a.0).collect::<Vec<_>>(), asked);
        prop_assert!(rig.shared.debris().is_empty());
    }
}
