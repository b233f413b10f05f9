//! One seed, from beginning to end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use zk_sim_runtime::{
    Config, ProcessId, ProcessSettings, Report, Rng, after, at, fail, finish, is_alive, net, now, run,
    set_drift, spawn,
};
use zk_test_server::ensemble::Settings;

use crate::faults::{Mix, Plan};
use crate::observer::{Counts, Observer};
use crate::operator::Request;
use crate::servers::{Servers, when_led};
use crate::workload::{self, Job, Shared};
use crate::{between, client_host};

/// The folder of all locks.
const LOCKS: &str = "/locks";

fn lock(number: usize) -> String {
    format!("{LOCKS}/{number}")
}

/// What is chosen for one seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// All chance comes of it.
    pub seed: u64,
    /// What the servers are told.
    pub servers: Settings,
    /// What faults there may be, and how many processes and locks there are.
    pub mix: Mix,
    /// How long packets take, at least and at most.
    pub delay: (Duration, Duration),
    /// What each process does.
    pub job: Job,
    /// For how long faults strike.
    pub storm: Duration,
    /// Which faults.
    pub plan: Plan,
}

/// How one seed went.
pub struct Outcome {
    /// What the world says of it.
    pub report: Report,
    /// What the observer saw.
    pub counts: Counts,
    /// Which faults struck.
    pub faults: BTreeMap<&'static str, u64>,
}

/// Everything has healed by so much after the last fault, and each thread has had a lock since: each
/// of twelve threads may have held it for three and a half session timeouts.
const QUIET: u32 = 60;

impl Scenario {
    /// What this seed chooses.
    pub fn of(seed: u64) -> Scenario {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let tick = Duration::from_millis([200, 500, 1_000, 2_000][rng.usize(..4)]);
        let session_timeout = tick * rng.u32(2..=6);
        let most = between(&mut rng, Duration::from_micros(200), Duration::from_millis(20))
            .min(session_timeout / 40);
        let locks = rng.usize(1..=2);
        let servers = Settings {
            members: 3,
            tick,
            init_limit: rng.u32(5..=10),
            sync_limit: rng.u32(2..=6),
            min_session: tick * 2,
            max_session: tick * 20,
            reap_interval: Duration::from_secs(60),
            eager_acl_check: rng.u32(..3) == 0,
        };
        let mix = Mix {
            session_timeout,
            tick,
            processes: 4,
            members: servers.members,
            locks,
            has_drift: rng.bool(),
            has_limits: rng.u32(..3) == 0,
            has_deletes: rng.u32(..4) == 0,
            has_sequences: rng.u32(..4) == 0,
        };
        let addresses: Vec<String> =
            (0..servers.members).map(|member| Servers::address(member).to_string()).collect();
        let job = Job {
            connect_string: addresses.join(","),
            session_timeout,
            threads: rng.usize(1..=3),
            locks: (0..locks).map(lock).collect(),
            longest_hold: between(&mut rng, Duration::from_millis(5), session_timeout * 2),
            long_hold_in: [3, 10, 100][rng.usize(..3)],
            longest_pause: between(&mut rng, Duration::from_millis(5), session_timeout),
            seed: rng.u64(..),
        };
        let storm = Duration::from_secs(rng.u64(100..400));
        let pause = between(&mut rng, session_timeout / 8, session_timeout * 8);
        let plan = Plan::random(&mut rng, storm, pause, &mix);
        Scenario { seed, servers, mix, delay: (most / 4, most), plan, job, storm }
    }

    /// Plays it.
    pub fn play(&self, verbose: bool) -> Outcome {
        let observer = Observer::default();
        let shared = Shared { observer: observer.clone(), is_over: Arc::default(), at_work: Arc::default() };
        let config = Config { verbose, time_limit: self.storm * 20, ..Config::seed(self.seed) };
        let report = run(config, || World::build(self, shared));
        Outcome { report, counts: observer.counts(), faults: self.plan.counts() }
    }
}

/// What there is in a run.
#[derive(Clone)]
pub struct World(Rc<Inner>);

struct Inner {
    scenario: Scenario,
    servers: Servers,
    processes: RefCell<Vec<ProcessId>>,
    shared: Shared,
}

impl World {
    fn build(scenario: &Scenario, shared: Shared) {
        shared.observer.watch();
        net::set_default_delay(scenario.delay.0, scenario.delay.1);
        let servers = Servers::start(&scenario.servers, scenario.seed);
        if scenario.servers.eager_acl_check {
            // Clients may not delete below the root, so a server by itself can refuse what they
            // send to prove that the leader hears them.
            when_led(&servers, |servers| {
                let (locks, root) = (LOCKS.to_owned(), "/".to_owned());
                servers.operate(vec![Request::Create { path: locks }, Request::MakeReadOnly { path: root }]);
            });
        }
        let world = World(Rc::new(Inner {
            scenario: scenario.clone(),
            servers,
            processes: RefCell::default(),
            shared,
        }));
        for process in 0..scenario.mix.processes {
            let id = world.spawn(process);
            world.0.processes.borrow_mut().push(id);
        }
        for (time, fault) in scenario.plan.0.clone() {
            let world = world.clone();
            at(time, move || fault.strike(&world));
        }
        let storm_ends = world.clone();
        at(scenario.storm, move || storm_ends.quiet(scenario_longest(&storm_ends)));
    }

    /// The servers.
    pub fn servers(&self) -> &Servers {
        &self.0.servers
    }

    /// The shortest and the longest timeout that servers grant where no fault says otherwise.
    pub fn limits(&self) -> (Duration, Duration) {
        (self.0.scenario.servers.min_session, self.0.scenario.servers.max_session)
    }

    /// The path of the lock of this number.
    pub fn lock(&self, number: usize) -> String {
        self.0.scenario.job.locks[number].clone()
    }

    /// Who checks.
    pub fn observer(&self) -> &Observer {
        &self.0.shared.observer
    }

    /// The process that has this place now.
    pub fn process(&self, number: usize) -> ProcessId {
        self.0.processes.borrow()[number]
    }

    /// How long packets take where no fault says otherwise.
    pub fn delay(&self) -> (Duration, Duration) {
        self.0.scenario.delay
    }

    /// Puts a new process in the place of one that has ended.
    pub fn start_process(&self, number: usize) {
        if !is_alive(self.process(number)) {
            let id = self.spawn(number);
            self.0.processes.borrow_mut()[number] = id;
        }
    }

    fn spawn(&self, number: usize) -> ProcessId {
        let mut job = self.0.scenario.job.clone();
        job.seed ^= zk_sim_runtime::rng(|rng| rng.u64(..));
        let shared = self.0.shared.clone();
        let settings = ProcessSettings {
            clock: Duration::from_secs(zk_sim_runtime::rng(|rng| rng.u64(10..1_000_000))),
            ..ProcessSettings::new(&format!("p{number}"), client_host(number))
        };
        spawn(settings, move || workload::run(&job, &shared))
    }

    /// No more faults strike; those that last end within `longest`. After that all must be well.
    fn quiet(&self, longest: Duration) {
        let world = self.clone();
        after(longest, move || {
            for number in 0..world.0.scenario.mix.processes {
                world.start_process(number);
                set_drift(world.process(number), 0);
            }
            for member in 0..world.0.servers.count() {
                world.0.servers.restart(member, true);
                world.0.servers.set_drift(member, 0);
            }
            let since = now() + world.0.scenario.mix.session_timeout * 3;
            let later = world.clone();
            after(world.0.scenario.mix.session_timeout * QUIET + Duration::from_secs(60), move || {
                later.has_progress(since)
            });
        });
    }

    /// Every thread of every process has had a lock since that time.
    fn has_progress(&self, since: Duration) {
        for process in self.0.processes.borrow().iter() {
            for thread in 0..self.0.scenario.job.threads {
                let last = self.0.shared.observer.last_progress(*process, thread);
                if last.is_none_or(|last| last < since) {
                    let name = zk_sim_runtime::process_name(*process);
                    fail(
                        "stuck",
                        format!("thread {thread} of {name} had no lock since {since:?}, last {last:?}"),
                    );
                    return;
                }
            }
        }
        self.0.shared.is_over.store(true, Ordering::Relaxed);
        self.ends(now() + self.0.scenario.mix.session_timeout * QUIET + Duration::from_secs(60));
    }

    /// When all threads have ended, no node may be left.
    fn ends(&self, until: Duration) {
        let is_done = self.0.shared.observer.is_quiet()
            && self.0.processes.borrow().iter().all(|process| !is_alive(*process));
        let left = self.0.servers.ephemerals();
        if is_done && left.is_empty() && self.0.servers.all_serve() {
            finish();
            return;
        }
        if now() >= until {
            fail("no end", format!("all threads ended: {is_done}; nodes left: {left:?}"));
            return;
        }
        let world = self.clone();
        after(Duration::from_millis(100), move || world.ends(until));
    }
}

fn scenario_longest(world: &World) -> Duration {
    world.0.scenario.mix.session_timeout * 7
}
