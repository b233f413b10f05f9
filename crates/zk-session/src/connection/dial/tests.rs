use std::collections::BTreeSet;
use std::io::{self, ErrorKind};

use super::super::addresses::{LOOK_UP_LIMIT, RETURNS_WITHIN};
use super::*;
use crate::connect_string::ConnectString;

const T: Duration = Duration::from_secs(24);
const MS: Duration = Duration::from_millis(1);

/// A session that nothing depends on.
const IDLE: Urgency = Urgency { timeout: T, has_session: true, left: None, took: Duration::ZERO };

/// There is no session.
const NONE: Urgency = Urgency { has_session: false, ..IDLE };

fn holder(left: Duration) -> Urgency {
    Urgency { left: Some(left), ..IDLE }
}

struct World {
    dialer: Dialer,
    now: BootTime,
}

/// The last numbers of these addresses, which are all of the network 10.0.0.0.
type Numbers = Vec<u8>;

impl World {
    fn new(connect_string: &str) -> Self {
        let hosts = ConnectString::parse(connect_string).unwrap().hosts;
        let addresses = Arc::new(Mutex::new(Addresses::new(&hosts)));
        let now = BootTime::at(Duration::from_secs(1000));
        let connect_timeout = Duration::from_secs(10);
        let dialer = Dialer::new(addresses, RetryPolicy::default(), connect_timeout, now);
        World { dialer, now }
    }

    /// Three servers of which the dialer knows the addresses.
    fn three() -> Self {
        World::new("10.0.0.1,10.0.0.2,10.0.0.3")
    }

    /// The only name has these addresses.
    fn answer(&mut self, numbers: &[u8]) {
        self.answer_for("zk", Ok(numbers));
    }

    fn answer_for(&mut self, name: &str, answer: Result<&[u8], ErrorKind>) {
        let answer = answer.map(|numbers| numbers.iter().map(|n| addr(*n)).collect());
        let host = Host { name: name.to_owned(), port: 2181 };
        let answer = answer.map_err(io::Error::from);
        self.dialer.addresses().lock().answered(&host, answer);
    }

    /// The names that are to be looked up now.
    fn look_ups(&mut self) -> Vec<String> {
        let Dialer { addresses, down_since, .. } = &self.dialer;
        let (every, mut addresses) = (self.dialer.looks_up_every(self.now), addresses.lock());
        let next = || addresses.next_look_up(*down_since, every, self.now);
        std::iter::from_fn(next).map(|host| host.name).collect()
    }

    /// The server that is dialled now.
    fn dials(&mut self, of: Urgency) -> Option<u8> {
        match self.dialer.next(of, self.now) {
            DialStep::Dial(target) => Some(number(&target)),
            DialStep::LookUp(_) => panic!("a look-up"),
            DialStep::Wait(_) => None,
        }
    }

    fn waits_until(&mut self, of: Urgency) -> Option<BootTime> {
        match self.dialer.next(of, self.now) {
            DialStep::Wait(until) => until,
            _ => panic!("it does not wait"),
        }
    }

    fn target(&self, n: u8) -> Target {
        let is_it = |target: &Target| target.addr == addr(n);
        self.dialer.addresses().lock().in_order(|_| ()).into_iter().find(is_it).unwrap()
    }

    fn fail(&mut self, n: u8) {
        let target = self.target(n);
        self.dialer.failed(&target, "refused".into(), self.now);
    }

    /// This server does not know the session, and is not believed.
    fn doubts(&mut self, n: u8) {
        self.now = self.now + MS;
        self.dialer.doubt(&self.target(n), self.now);
    }

    /// The servers of one pass in the order in which they are dialled; each fails at once.
    fn pass(&mut self, of: Urgency) -> Numbers {
        let mut all = Vec::new();
        while let Some(n) = self.dials(of) {
            self.fail(n);
            self.now = self.now + MS;
            all.push(n);
        }
        all
    }

    /// The session is resumed at this server, and the connection breaks `lasted` later.
    fn serve_and_break(&mut self, n: u8, lasted: Duration, of: Urgency) {
        let target = self.target(n);
        self.dialer.connected(&target, &[], self.now);
        self.now = self.now + lasted;
        self.dialer.failed(&target, "closed".into(), self.now);
        self.dialer.connection_lost(&target, lasted, of, self.now);
    }
}

fn addr(n: u8) -> std::net::SocketAddr {
    match n {
        100.. => format!("[fd00::{n}]:2181").parse().unwrap(),
        _ => format!("10.0.0.{n}:2181").parse().unwrap(),
    }
}

fn number(target: &Target) -> u8 {
    (1..=200).find(|n| addr(*n) == target.addr).unwrap()
}

// ---- order and passes ----

#[test]
fn every_address_is_tried_once_in_a_pass_and_passes_pause() {
    let mut world = World::three();
    let mut pass = world.pass(IDLE);
    pass.sort_unstable();
    assert_eq!(pass, [1, 2, 3]);
    let next = world.waits_until(IDLE).unwrap();
    assert!(next.since(world.now) >= Duration::from_millis(45) && next.since(world.now) <= T / 8);
    world.now = next;
    assert_eq!(world.pass(IDLE).len(), 3);
}

#[test]
fn the_addresses_of_a_name_are_dialled_in_random_order() {
    let mut first = BTreeSet::new();
    for _ in 0..50 {
        let mut world = World::new("zk");
        world.look_ups();
        world.answer(&[1, 2, 3]);
        first.extend(world.dials(NONE));
    }
    assert_eq!(first.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
}

/// A silent one would cost its time twice.
#[test]
fn an_address_that_two_hosts_have_is_tried_once_in_a_pass() {
    let mut hosts = BTreeSet::new();
    for _ in 0..50 {
        let mut world = World::new("zk,10.0.0.1");
        world.look_ups();
        world.answer(&[1, 2]);
        hosts.insert(match world.dialer.next(IDLE, world.now) {
            DialStep::Dial(target) => target.host,
            _ => panic!("it does not dial"),
        });
        let first = world.dialer.open[0].clone();
        world.dialer.failed(&first, "refused".into(), world.now);
        assert_eq!(world.pass(IDLE).len(), 1);
    }
    // The name may be what a certificate is for.
    assert_eq!(hosts.len(), 2);
}

/// A server that has been dead for weeks is not drawn like any other.
#[test]
fn addresses_that_failed_go_last_the_newest_failure_at_the_end() {
    for _ in 0..20 {
        let mut world = World::new("zk");
        world.look_ups();
        world.answer(&[1, 2, 3, 4]);
        let of_today = world.now;
        world.dials(IDLE);
        world.fail(2);
        world.now = world.now + T * 1000;
        world.serve_and_break(4, T, IDLE);
        world.look_ups();
        world.answer(&[1, 2, 3, 4]);
        assert!(world.now.since(of_today) > T * 1000);
        let pass = world.pass(IDLE);
        assert_eq!(pass[2..], [2, 4], "{pass:?}");
    }
}

#[test]
fn an_address_that_carries_a_session_again_has_not_failed() {
    let mut world = World::three();
    world.pass(IDLE);
    world.serve_and_break(1, T, IDLE);
    // The other two have failed before this one.
    assert_eq!(world.pass(IDLE)[2], 1);
    world.serve_and_break(2, T, IDLE);
    assert_eq!(world.pass(IDLE)[2], 2);
}

/// The attempt at a silent host has no result: the next one gets through before its time is over.
#[test]
fn a_silent_host_that_was_overtaken_goes_last() {
    for _ in 0..20 {
        let mut world = World::three();
        let (silent, serves) = (world.target(1), world.target(2));
        world.dialer.connected(&serves, &[silent], world.now);
        world.now = world.now + T;
        world.serve_and_break(2, T, IDLE);
        assert_eq!(world.pass(IDLE), [3, 1, 2]);
        let failures = world.dialer.addresses().lock().failures(None);
        assert!(failures.iter().all(|failure| failure.reason == "refused"), "{failures:?}");
    }
}

/// All servers restart, one by one. Addresses that have never served do not come first then.
#[test]
fn a_server_that_was_lost_has_not_failed_in_the_next_outage() {
    let mut first = BTreeSet::new();
    for _ in 0..50 {
        let mut world = World::new("10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4");
        [1, 2, 3].iter().for_each(|n| world.serve_and_break(*n, T, IDLE));
        first.extend(world.dials(IDLE));
    }
    assert_eq!(first.into_iter().collect::<Vec<_>>(), [1, 2, 4]);
}

/// One server refuses the login, and the other does not know the session that the first has made.
/// The next session is made at the second.
#[test]
fn a_server_whose_answer_ends_the_session_has_not_failed() {
    for _ in 0..20 {
        let mut world = World::new("10.0.0.1,10.0.0.2");
        world.fail(1);
        world.fail(2);
        let target = world.target(2);
        world.dialer.answered(&target, world.now);
        assert_eq!(world.pass(IDLE), [2, 1]);
    }
}

#[test]
fn a_server_that_cuts_at_once_is_not_dialled_in_a_loop() {
    let mut world = World::new("10.0.0.1");
    assert_eq!(world.dials(IDLE), Some(1));
    world.serve_and_break(1, 3 * MS, IDLE);
    assert!(world.waits_until(IDLE).is_some_and(|until| until > world.now));
    // After a connection that has lasted it is dialled at once, a second time too.
    for _ in 0..2 {
        world.serve_and_break(1, T, IDLE);
        assert_eq!(world.dials(IDLE), Some(1));
    }
}

/// The second outage begins like the first.
#[test]
fn pauses_grow_from_the_base_in_each_outage_after_a_connection_that_has_lasted() {
    let mut world = World::new("10.0.0.1");
    for outage in 0..3 {
        for failures in 0..5 {
            assert_eq!(world.pass(IDLE), [1]);
            let until = world.waits_until(IDLE).unwrap();
            let (pause, full) =
                (until.since(world.now), world.dialer.policy.base * (1 << failures));
            assert!(full / 2 <= pause && pause <= full, "{outage}, {failures}: {pause:?}");
            world.now = until;
        }
        assert_eq!(world.dials(IDLE), Some(1));
        world.serve_and_break(1, T, IDLE);
    }
    // A server that cuts at once has failed once more.
    for failures in 0..3 {
        assert_eq!(world.dials(IDLE), Some(1));
        world.serve_and_break(1, MS, IDLE);
        let pause = world.waits_until(IDLE).unwrap().since(world.now);
        assert!(pause >= world.dialer.policy.base * (1 << failures) / 2, "{failures}: {pause:?}");
        world.now = world.now + pause;
    }
}

#[test]
fn a_server_without_a_session_is_not_paused_for_longer_than_an_eighth_of_the_timeout() {
    let policy = RetryPolicy { base: T, cap: T, ..RetryPolicy::default() };
    for (of, longest) in [(IDLE, T / 8), (NONE, T)] {
        let mut world = World::new("10.0.0.1");
        world.dialer.policy = policy;
        world.pass(of);
        let pause = world.waits_until(of).unwrap().since(world.now);
        assert!(pause <= longest && pause > longest / 3, "{pause:?}");
    }
}

// ---- attempts that overlap ----

#[test]
fn a_silent_server_is_joined_by_the_next_after_a_moment_and_three_are_open_at_most() {
    let mut world = World::new("10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4");
    assert!(world.dials(IDLE).is_some());
    for _ in 0..2 {
        assert_eq!(world.waits_until(IDLE), Some(world.now + STAGGER));
        world.now = world.now + STAGGER;
        assert!(world.dials(IDLE).is_some());
    }
    world.now = world.now + STAGGER;
    assert_eq!(world.waits_until(IDLE), None);
    let open = world.dialer.open[0].clone();
    world.dialer.failed(&open, "no connection".into(), world.now);
    assert!(world.dials(IDLE).is_some());
}

#[test]
fn the_next_attempt_begins_at_once_if_one_fails() {
    let mut world = World::three();
    let first = world.dials(IDLE).unwrap();
    assert_eq!(world.dials(IDLE), None);
    world.fail(first);
    assert!(world.dials(IDLE).is_some());
}

#[test]
fn a_short_lease_shortens_the_moment() {
    for (left, moment) in [(T, STAGGER), (Duration::from_secs(1), 125 * MS), (80 * MS, 50 * MS)] {
        let mut world = World::three();
        assert!(world.dials(holder(left)).is_some());
        assert_eq!(world.waits_until(holder(left)), Some(world.now + moment));
    }
}

#[test]
fn a_host_that_lost_its_way_to_one_family_of_addresses_tries_the_other_next() {
    for _ in 0..20 {
        let mut world = World::new("zk");
        world.look_ups();
        world.answer(&[1, 2, 3, 101, 102, 103]);
        let first = world.dials(IDLE).unwrap();
        world.now = world.now + STAGGER;
        let second = world.dials(IDLE).unwrap();
        assert_ne!(first > 100, second > 100, "{first}, {second}");
    }
}

// ---- how long a server may take ----

#[test]
fn one_server_gets_a_share_of_the_lease_while_others_are_untried() {
    let mut world = World::three();
    world.dials(holder(T / 3));
    assert_eq!(world.dialer.bound(holder(T / 3)), T / 9);
    assert_eq!(world.dialer.bound(holder(T / 100)), T / 24);
    assert_eq!(world.dialer.bound(holder(T)), T / 6);
    assert_eq!(world.dialer.bound(IDLE), T / 6);
    // The last one may take its full time, and so may all in the next pass.
    let mut world = World::new("10.0.0.1,10.0.0.2");
    let first = world.dials(holder(T / 3)).unwrap();
    world.fail(first);
    let second = world.dials(holder(T / 3)).unwrap();
    assert_eq!(world.dialer.bound(holder(T / 3)), T / 6);
    world.fail(second);
    world.now = world.waits_until(holder(T / 3)).unwrap();
    assert!(world.dials(holder(T / 3)).is_some());
    assert_eq!(world.dialer.bound(holder(T / 3)), T / 6);
}

/// The second outage is like the first.
#[test]
fn the_share_counts_again_after_a_connection_that_has_lasted() {
    let mut world = World::three();
    for _ in 0..2 {
        world.pass(holder(T / 3));
        world.now = world.waits_until(holder(T / 3)).unwrap();
        let n = world.dials(holder(T / 3)).unwrap();
        assert_eq!(world.dialer.bound(holder(T / 3)), T / 6);
        world.serve_and_break(n, T, holder(T / 3));
        world.dials(holder(T / 3));
        assert_eq!(world.dialer.bound(holder(T / 3)), T / 9);
        world.serve_and_break(n, T, holder(T / 3));
    }
}

/// An election has made the first pass fail. Now one server is silent.
#[test]
fn in_later_passes_one_server_gets_half_of_the_lease() {
    let mut world = World::three();
    world.pass(holder(T / 3));
    world.now = world.waits_until(holder(T / 3)).unwrap();
    world.dials(holder(T / 6));
    assert_eq!(world.dialer.bound(holder(T / 6)), T / 12);
}

/// Each answer takes T/11, and a quarter of the lease is left: a third of that is less.
#[test]
fn a_server_of_a_slow_ensemble_is_waited_for() {
    let mut world = World::three();
    let slow = Urgency { took: T / 11, ..holder(T / 4) };
    world.dials(slow);
    assert_eq!(world.dialer.bound(slow), T / 6);
    let slow = Urgency { took: T / 20, ..slow };
    assert_eq!(world.dialer.bound(slow), T / 10);
}

/// The handshake of a closing session was slow, so other attempts had begun. They were dropped when
/// the close was sent. Its server has not answered that.
#[test]
fn a_closing_session_dials_again_although_attempts_were_dropped() {
    let mut world = World::three();
    let closing = holder(Duration::from_millis(700));
    let first = world.dials(closing).unwrap();
    for _ in 0..2 {
        world.now = world.now + STAGGER;
        assert!(world.dials(closing).is_some());
    }
    let link = world.target(first);
    world.dialer.all_ended(Some(&link));
    assert_eq!(world.dialer.open, [link]);
    world.fail(first);
    world.dialer.skip_pause(world.now);
    let _ = world.dials(closing); // the pass is over
    world.dialer.skip_pause(world.now);
    assert!(world.dials(closing).is_some());
}

#[test]
fn the_time_of_connect_is_divided_by_addresses_in_the_first_pass() {
    let of = Urgency { timeout: Duration::from_secs(600), ..NONE };
    let mut world = World::new("zk");
    world.look_ups();
    world.answer(&[1, 2, 3, 4]);
    assert_eq!(world.dialer.bound(of), Duration::from_secs(2));
    // A server may grant a longer timeout than this.
    let short = Urgency { timeout: MS, ..NONE };
    assert_eq!(world.dialer.bound(short), LEAST_FIRST_ATTEMPT);
    // A server may need longer to make a session than many servers leave it.
    world.pass(of);
    world.now = world.waits_until(of).unwrap();
    world.look_ups();
    world.answer(&[1, 2, 3, 4]);
    world.dials(of);
    assert_eq!(world.dialer.bound(of), Duration::from_secs(100));
}

// ---- names ----

#[test]
fn each_name_is_looked_up_by_itself_and_its_answer_counts_when_it_comes() {
    let mut world = World::new("a,b,c");
    assert_eq!(world.look_ups(), ["a", "b", "c"]);
    assert_eq!(world.dials(NONE), None);
    world.answer_for("b", Ok(&[2]));
    assert_eq!(world.dials(NONE), Some(2));
}

#[test]
fn a_name_is_looked_up_once_at_a_time_and_again_while_there_is_no_connection() {
    let mut world = World::new("zk");
    assert_eq!(world.look_ups(), ["zk"]);
    world.now = world.now + T;
    assert_eq!(world.look_ups(), Vec::<String>::new());
    world.answer(&[1]);
    // It was asked long ago.
    assert_eq!(world.look_ups(), ["zk"]);
    world.answer(&[1]);
    assert_eq!(world.dials(IDLE), Some(1));
    // After an eighth of the outage, and at once in the next one.
    assert_eq!(world.waits_until(IDLE), Some(world.now + T / 8));
    world.serve_and_break(1, T, IDLE);
    assert_eq!(world.look_ups(), ["zk"]);
    world.answer(&[1]);
    assert_eq!(world.dials(IDLE), Some(1));
    assert_eq!(world.waits_until(IDLE), Some(world.now + LOOK_UP_AGAIN[0]));
}

/// A rolling restart: each server comes back with another address.
#[test]
fn the_newest_answer_is_the_list() {
    let mut world = World::new("zk");
    for round in 0..3 {
        world.look_ups();
        let (old, new) = ([10 * round + 1, 10 * round + 2], [10 * round + 2, 10 * round + 3]);
        world.answer(&old);
        let dialled = world.dials(IDLE).unwrap();
        let target = world.target(dialled);
        world.answer(&new);
        assert_eq!(world.dialer.is_listed(&target), new.contains(&dialled));
        world.dialer.ended(&target, world.now);
        // The new address at once, and nothing that is gone or was tried.
        let mut left = world.pass(IDLE);
        left.sort_unstable();
        let not_tried = new.into_iter().filter(|n| *n != dialled).collect::<Vec<_>>();
        assert_eq!(left, not_tried);
        world.serve_and_break(new[1], T, IDLE);
    }
}

#[test]
fn a_new_address_is_dialled_next_to_a_silent_one_and_in_a_pause_at_once() {
    let mut world = World::new("zk");
    world.look_ups();
    world.answer(&[1]);
    assert_eq!(world.dials(IDLE), Some(1));
    world.answer(&[1, 2]);
    world.now = world.now + STAGGER;
    assert_eq!(world.dials(IDLE), Some(2));
    world.fail(1);
    world.fail(2);
    assert_eq!(world.dials(IDLE), None);
    world.answer(&[1, 2, 3]);
    assert_eq!(world.dials(IDLE), Some(3));
}

#[test]
fn a_name_that_is_gone_takes_its_addresses_with_it_and_a_failed_look_up_leaves_them() {
    let mut world = World::new("a,b");
    world.look_ups();
    world.answer_for("a", Ok(&[1]));
    world.answer_for("b", Ok(&[2]));
    world.now = world.now + MS;
    let target = world.target(1);
    world.dialer.connection_lost(&target, T, IDLE, world.now);
    assert_eq!(world.look_ups(), ["a", "b"]);
    world.answer_for("a", Err(ErrorKind::NotFound));
    world.answer_for("b", Err(ErrorKind::TimedOut));
    assert_eq!(world.pass(IDLE), [2]);
    let failures = world.dialer.addresses().lock().failures(None);
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert_eq!(failures.len(), 3, "{failures:?}");
    assert!(failures[0].starts_with("a:2181: its name has no address"), "{failures:?}");
    assert_eq!(failures[1], "b:2181 (10.0.0.2:2181): refused");
    assert!(failures[2].starts_with("b:2181: its name could not be looked up"), "{failures:?}");
    // The next answers are good: what was wrong with the names is over.
    world.now = world.now + T;
    assert_eq!(world.look_ups(), ["a", "b"]);
    world.answer_for("a", Ok(&[1]));
    world.answer_for("b", Ok(&[2]));
    let failures = world.dialer.addresses().lock().failures(None);
    let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
    assert_eq!(
        failures,
        ["a:2181 (10.0.0.1:2181): no answer yet", "b:2181 (10.0.0.2:2181): refused"]
    );
}

/// The resolver does not answer in this outage: the address of before may be another ensemble's. It
/// may resume the session, which only its own ensemble knows, and makes no new one.
#[test]
fn an_address_of_before_is_dialled_for_a_session_and_makes_none() {
    let mut world = World::new("zk");
    world.look_ups();
    world.answer(&[1]);
    world.serve_and_break(1, T, IDLE);
    assert_eq!(world.look_ups(), ["zk"]);
    assert_eq!(world.dials(NONE), None);
    assert_eq!(world.dials(IDLE), Some(1));
    world.fail(1);
    assert_eq!(world.dials(IDLE), None);
    // A look-up that fails says nothing. If that goes on, nothing better can be known.
    world.answer_for("zk", Err(ErrorKind::TimedOut));
    assert_eq!(world.dials(NONE), None);
    world.now = world.now + LOOK_UP_LIMIT;
    world.look_ups();
    assert_eq!(world.dials(NONE), Some(1));
}

/// Another ensemble may have got the address since the last look-up.
#[test]
fn a_server_that_does_not_know_the_session_is_believed_after_another_look_up() {
    let mut world = World::new("zk,10.0.0.9");
    for _ in 0..2 {
        world.look_ups();
        world.answer(&[1, 2]);
        let believed = |world: &World| {
            [1, 2, 9].map(|n| world.dialer.is_believed(&world.target(n), world.now))
        };
        assert_eq!(believed(&world), [false, false, true]);
        // A look-up that began before does not count.
        world.now = world.now + T;
        assert_eq!(world.look_ups(), ["zk"]);
        world.doubts(1);
        world.answer(&[1, 2]);
        assert_eq!(believed(&world), [false, false, true]);
        assert_eq!(world.look_ups(), ["zk"]);
        world.doubts(1); // the same again, sooner than the resolver answers
        world.answer(&[1, 2]);
        // The other address may have got another server since then.
        assert_eq!(believed(&world), [true, false, true]);
        world.doubts(2);
        assert_eq!(believed(&world), [true, false, true]);
        assert_eq!(world.look_ups(), ["zk"]);
        world.answer(&[1, 2]);
        assert_eq!(believed(&world), [true; 3]);
        world.serve_and_break(1, T, IDLE);
    }
}

#[test]
fn a_doubted_server_is_asked_again_once_after_the_look_up() {
    let mut world = World::new("zk");
    world.look_ups();
    world.answer(&[1]);
    world.serve_and_break(1, T, IDLE);
    assert_eq!(world.look_ups(), ["zk"]);
    assert_eq!(world.dials(IDLE), Some(1));
    world.doubts(1);
    world.fail(1);
    assert_eq!(world.dials(IDLE), None);
    world.answer(&[1]); // of the look-up that began before
    assert_eq!(world.look_ups(), ["zk"]);
    assert_eq!(world.dials(IDLE), None);
    world.answer(&[1]);
    assert_eq!(world.dials(IDLE), Some(1));
    assert!(world.dialer.is_believed(&world.target(1), world.now));
    world.fail(1);
    assert_eq!(world.dials(IDLE), None);
}

#[test]
fn what_all_servers_say_is_not_known_while_a_name_has_no_answer() {
    let mut world = World::new("a,b,10.0.0.9");
    world.look_ups();
    world.answer_for("a", Ok(&[1, 2]));
    let all = |world: &World, refusing: &[u8]| {
        let refuses = |of: &std::net::SocketAddr| refusing.iter().any(|n| addr(*n) == *of);
        world.dialer.all_are(world.now, refuses)
    };
    assert!(!all(&world, &[1, 2, 9]));
    // A name that does not exist now may be that of a server that starts again.
    world.answer_for("b", Err(ErrorKind::NotFound));
    assert!(!all(&world, &[1, 2, 9]));
    world.now = world.now + T;
    assert_eq!(world.look_ups(), ["a", "b"]);
    world.answer_for("a", Ok(&[1, 2]));
    world.answer_for("b", Ok(&[3]));
    assert!(all(&world, &[1, 2, 3, 9]));
    assert!(!all(&world, &[1, 3, 9]));
    // In the next outage the addresses of before say nothing until there is an answer, or for a
    // while if the resolver fails.
    world.serve_and_break(1, T, IDLE);
    world.look_ups();
    assert!(!all(&world, &[1, 2, 3, 9]));
    world.answer_for("a", Ok(&[1, 2]));
    world.answer_for("b", Err(ErrorKind::TimedOut));
    assert!(!all(&world, &[1, 2, 3, 9]));
    world.now = world.now + LOOK_UP_LIMIT;
    assert!(all(&world, &[1, 2, 3, 9]));
    // One address of two is gone: it may come back.
    world.look_ups();
    world.answer_for("a", Ok(&[2]));
    assert!(!all(&world, &[2, 3, 9]));
    world.now = world.now + RETURNS_WITHIN;
    assert!(all(&world, &[2, 3, 9]));
}

#[test]
fn the_failures_name_host_and_address_and_what_is_not_known_yet() {
    let mut world = World::new("a,b,10.0.0.9:5");
    let said = |world: &World, unknown| {
        let all = world.dialer.addresses().lock().failures(unknown);
        all.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    world.look_ups();
    world.answer_for("a", Ok(&[1, 2]));
    world.fail(1);
    assert_eq!(
        said(&world, None),
        [
            "a:2181 (10.0.0.1:2181): refused",
            "a:2181 (10.0.0.2:2181): no answer yet",
            "b:2181: its name is still being looked up",
            "10.0.0.9:5: no answer yet",
        ]
    );
    assert_eq!(
        said(&world, Some("no thread"))[1..3],
        ["a:2181 (10.0.0.2:2181): no thread", "b:2181: no thread",]
    );
    // What an earlier outage was about explains no later one.
    world.serve_and_break(2, T, IDLE);
    assert_eq!(said(&world, None)[0], "a:2181 (10.0.0.1:2181): no answer yet");
}
