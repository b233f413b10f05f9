//! Random histories: clients write, read, watch and move, while members and their streams fail. The
//! world checks what must be true at every step; this file checks what must be true at the end.

use super::super::*;
use super::world::{Answer, World, create, ms};
use std::collections::BTreeMap;
use zk_wire::code::{err, op};
use zk_wire::record::Reader;

/// A request of a client, to be compared with its answer.
#[derive(Clone, Debug)]
enum Asked {
    Created(String),
    /// A read of the counter.
    Read,
    Other,
}

#[derive(Default)]
struct Plan {
    asked: BTreeMap<i32, Asked>,
    done: usize,
    /// The highest version of the counter that this client has read.
    counter: i32,
}

struct History {
    world: World,
    plans: Vec<Plan>,
    created: Vec<String>,
    names: usize,
    loses_data: bool,
}

impl History {
    fn new(seed: u64) -> History {
        let mut rng = fastrand::Rng::with_seed(!seed);
        let settings = Settings {
            members: [3, 3, 5][rng.usize(..3)],
            tick: ms([200, 500, 2000][rng.usize(..3)]),
            sync_limit: rng.u32(2..6),
            min_session: ms(1000),
            eager_acl_check: rng.bool(),
            ..Settings::default()
        };
        let mut world = World::new(settings, seed);
        world.slowest = ms([2, 20, 100][rng.usize(..3)]);
        world.checks_order = !world.settings.eager_acl_check;
        let plans = (0..5)
            .map(|_| {
                let timeout = world.settings.tick * world.rng.u32(2..8);
                world.client(timeout);
                Plan::default()
            })
            .collect();
        History { world, plans, created: Vec::new(), names: 0, loses_data: rng.u8(..4) == 0 }
    }

    /// Injects a random fault, or ends one.
    fn harm(&mut self) {
        let world = &mut self.world;
        let members = world.settings.members;
        let (one, two) = (world.rng.usize(..members), world.rng.usize(..members));
        let time = world.settings.tick.mul_f64(world.rng.f64() * 12.0);
        match world.rng.u8(..16) {
            0 | 1 => {
                world.ensemble.kill(one, world.now);
            }
            2..5 => {
                for member in 0..members {
                    world.ensemble.start(member, true, world.now);
                }
            }
            // At most one member loses its data, and only while all others have logged the same
            // writes. So no write that a quorum has logged is lost.
            5 if self.loses_data && !world.ensemble.is_running(one) && world.is_level_but(one) => {
                world.ensemble.start(one, false, world.now);
                world.carry();
                world.until_all_serve();
            }
            6 => world.cut_off(one),
            7 => {
                world.cut.insert((one, two));
            }
            8..11 => world.cut.clear(),
            11 => world.hold(one, two, time),
            12 => world.stall(one, time),
            13 => {
                let drift = world.rng.i32(-20_000..20_000);
                world.ensemble.set_drift(one, drift, world.now);
            }
            14 => {
                let least = world.settings.tick * world.rng.u32(2..4);
                world.ensemble.set_session_limits(one, least, least * 8);
            }
            _ => {}
        }
        world.carry();
    }

    fn act(&mut self, client: usize) {
        let world = &mut self.world;
        let state = &mut world.clients[client];
        if state.is_expired {
            state.is_expired = false;
            (state.session, state.last_zxid) = (0, 0);
        }
        if state.conn.is_none() || !state.is_attached {
            if world.rng.u8(..4) == 0 {
                world.leave(client);
                let member = world.rng.usize(..world.settings.members);
                world.connect(client, member);
                self.plans[client].asked.clear();
            }
            return;
        }
        if state.asked.len() > 5 {
            return;
        }
        self.names += 1;
        let plan = &mut self.plans[client];
        match world.rng.u8(..12) {
            0..3 => {
                let path = format!("/n{}", self.names);
                let xid = world.send(client, op::CREATE, |w| create(w, &path, 0));
                plan.asked.insert(xid, Asked::Created(path));
            }
            3 => {
                let path = format!("/e{}", self.names);
                world.send(client, op::CREATE, |w| create(w, &path, 1));
            }
            4 => {
                world.send(client, op::SET_DATA, |w| w.buffer(b"/counter").i32(-1).i32(-1));
            }
            5 => {
                world.watch(client, "/counter");
            }
            6 | 7 => {
                let xid = world.send(client, op::GET_DATA, |w| w.buffer(b"/counter").bool(false));
                plan.asked.insert(xid, Asked::Read);
            }
            8 => {
                let xid = world.send(client, op::SYNC, |w| w.buffer(b"/"));
                plan.asked.insert(xid, Asked::Other);
            }
            9 if world.rng.u8(..4) == 0 => {
                world.leave(client);
            }
            10 if world.rng.u8(..10) == 0 => {
                world.send(client, op::CLOSE, |w| w);
            }
            _ => {
                world.send(client, op::PING, |w| w);
            }
        }
    }

    /// Compares the answers with the requests.
    fn judge(&mut self, client: usize) {
        let plan = &mut self.plans[client];
        for Answer { xid, err: code, body, .. } in &self.world.clients[client].answers[plan.done..]
        {
            match plan.asked.remove(xid) {
                Some(Asked::Created(path)) if *code == err::OK => self.created.push(path),
                Some(Asked::Read) if *code == err::OK => {
                    let mut r = Reader::new(body);
                    r.nullable_buffer().expect("data");
                    let version = r.stat().expect("a stat").version;
                    assert!(version >= plan.counter, "a session has read an older version");
                    plan.counter = version;
                }
                _ => {}
            }
        }
        plan.done = self.world.clients[client].answers.len();
        if self.world.clients[client].session == 0 {
            plan.counter = 0;
        }
    }

    fn run(mut self) -> (usize, usize) {
        self.world.until_all_serve();
        let first = self.world.attach(0, self.world.settings.tick * 4);
        assert!(self.world.create(first, "/counter", 0).is_some());
        self.world.leave(first);
        for _ in 0..400 {
            if self.world.rng.u8(..12) == 0 {
                self.harm();
            }
            let client = self.world.rng.usize(..self.plans.len());
            self.act(client);
            let pause = self.world.settings.tick.mul_f64(self.world.rng.f64() / 4.0);
            self.world.run(pause);
            (0..self.plans.len()).for_each(|client| self.judge(client));
        }
        self.world.heal();
        (0..self.plans.len()).for_each(|client| self.judge(client));
        // Nothing that was acknowledged is lost, and each request on an open connection was
        // answered.
        for member in 0..self.world.settings.members {
            let nodes = self.world.ensemble.nodes(member);
            for path in &self.created {
                assert!(
                    nodes.iter().any(|node| node.path == *path),
                    "member {member} has lost {path}"
                );
            }
            let sessions = self.world.ensemble.sessions(member);
            for node in nodes.iter().filter(|node| node.owner != 0) {
                assert!(
                    sessions.iter().any(|(session, _)| *session == node.owner),
                    "{node:?} is an orphan"
                );
            }
        }
        for (at, client) in self.world.clients.iter().enumerate() {
            let waits = client.conn.is_some() && client.is_attached && !client.asked.is_empty();
            assert!(!waits, "client {at} was not answered: {:?}", client.asked);
        }
        let expired =
            |(_, _, notice): &&(Duration, usize, Notice)| matches!(notice, Notice::Expired { .. });
        (self.created.len(), self.world.notices.iter().filter(expired).count())
    }
}

/// The number of histories: `ENSEMBLE_HISTORIES`, or as many as take a few seconds.
fn histories() -> u64 {
    std::env::var("ENSEMBLE_HISTORIES").map_or(60, |n| n.parse().expect("a number of histories"))
}

#[test]
fn under_random_faults_all_members_have_one_history_and_nothing_acknowledged_is_lost() {
    let first = std::env::var("ENSEMBLE_SEED").map_or(0, |n| n.parse().expect("a seed"));
    let (mut created, mut expired) = (0, 0);
    for seed in first..first + histories() {
        let result = std::panic::catch_unwind(|| History::new(seed).run());
        let Ok((new, ended)) = result else { panic!("seed {seed}") };
        (created, expired) = (created + new, expired + ended);
    }
    println!("{created} writes, {expired} sessions expired");
    assert!(created > 0 && expired > 0);
}

#[test]
fn a_seed_makes_one_history() {
    let run = || {
        let mut history = History::new(7);
        for _ in 0..100 {
            history.harm();
            (0..history.plans.len()).for_each(|client| history.act(client));
            history.world.run(ms(300));
        }
        let answers = history.world.clients.iter().flat_map(|client| &client.answers);
        let answers: Vec<String> = answers.map(|answer| format!("{answer:?}")).collect();
        (answers, history.world.notices)
    };
    assert!(!run().0.is_empty());
    assert_eq!(run(), run());
}
