//! One seed, from beginning to end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zk_sim_runtime::{
    Config, Failure, ProcessId, ProcessSettings, Report, Rng, after, at, fail, finish, is_alive,
    net, now, run, set_drift, spawn,
};
use zk_test_server::ensemble::Settings;

use crate::faults::{Fault, Focus, Mix, Plan};
use crate::names::{Name, Names};
use crate::observer::{Counts, Node, Observer, Setting};
use crate::operator::{self, Request};
use crate::servers::Servers;
use crate::workload::{self, Hasty, Job, Listing, Longest, Place, Recipe, Shared};
use crate::{between, client_host, server_host, unblock_foreign_code};

fn lock(number: usize) -> String {
    format!("/locks/{number}")
}

/// How far clocks drift. This decides what counts as a violation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Within the bound that the library states.
    #[default]
    Usual,
    /// Far beyond the bound. Two holds may overlap; all other checks must pass.
    Drift,
}

impl Mode {
    /// The mode's name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Usual => "usual",
            Mode::Drift => "drift",
        }
    }

    /// The mode with this name.
    pub fn of(name: &str) -> Option<Mode> {
        [Mode::Usual, Mode::Drift].into_iter().find(|mode| mode.name() == name)
    }

    /// The largest drift in millionths. In the usual mode the drifts of a process and of a server
    /// add up to less than a twelfth of the session timeout, of which pauses of the leader take a
    /// part too.
    fn most_drift(self) -> i32 {
        match self {
            Mode::Usual => 35_000,
            Mode::Drift => 700_000,
        }
    }
}

/// The choices of one seed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scenario {
    /// The seed from which the rest was chosen.
    pub seed: u64,
    /// How far clocks drift.
    pub mode: Mode,
    /// Decides everything that the scenario leaves open: which thread runs, how long each packet
    /// takes. It is the seed, unless the search tries another run of the same scenario.
    pub chance: u64,
    /// The servers' settings.
    #[serde(with = "ServerSettings")]
    pub servers: Settings,
    /// The faults that may occur, and the numbers of processes and locks.
    pub mix: Mix,
    /// The shortest and the longest time of a packet.
    pub delay: (Duration, Duration),
    /// The names in the connect string.
    #[serde(default)]
    pub names: Vec<Name>,
    /// The work of each process.
    pub job: Job,
    /// How long faults are injected.
    pub storm: Duration,
    /// The faults. In a file each of them has a line of its own, see `file.rs`.
    #[serde(skip)]
    pub plan: Plan,
    /// Fails at this time on purpose, to test the search for failures.
    #[serde(skip)]
    pub planted: Option<Duration>,
}

/// How the servers' settings, a type of another crate, are written.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Settings")]
struct ServerSettings {
    members: usize,
    tick: Duration,
    init_limit: u32,
    sync_limit: u32,
    min_session: Duration,
    max_session: Duration,
    reap_interval: Duration,
    eager_acl_check: bool,
    #[serde(default = "yes")]
    leader_serves: bool,
}

fn yes() -> bool {
    true
}

/// The address of a member until it moves.
fn first_address(member: usize) -> String {
    SocketAddr::new(server_host(member), 2181).to_string()
}

/// The result of one seed.
pub struct Outcome {
    /// The report of the world.
    pub report: Report,
    /// The counts of the observer.
    pub counts: Counts,
    /// The faults that were injected.
    pub faults: BTreeMap<&'static str, u64>,
}

/// A long session timeout, as many installations have, and the tick to it: on one seed in eight.
fn long_timeout(seed: u64) -> Option<(Duration, Duration)> {
    // Apart from the other choices of the seed, which stay as they are.
    let mut rng = Rng::with_seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    if rng.u32(..8) > 0 {
        return None;
    }
    let timeout = between(&mut rng, Duration::from_secs(10), Duration::from_secs(60));
    Some((timeout / rng.u32(2..=20), timeout))
}

/// On one seed in eight the first lock is a mutex that is kept for so long, each process has one
/// thread, and threads pause for as long: if nobody else wants the mutex, it stays longer than any
/// state may last that the library should end.
fn long_keep(seed: u64, session_timeout: Duration) -> Option<Duration> {
    // Apart from the other choices of the seed, as above.
    let mut rng = Rng::with_seed(seed.wrapping_mul(0xd134_2543_de82_ef95));
    (rng.u32(..8) == 0).then(|| between(&mut rng, session_timeout * 2, session_timeout * 10))
}

/// On half of the seeds calls without a timeout go on in an outage for so long. Faults last up to
/// twice the session timeout, and calls that wait for at most a time wait for up to 20 s: so such
/// an outage may be longer than this, and such a call, too.
fn max_elapsed(seed: u64, session_timeout: Duration) -> Option<Duration> {
    // Apart from the other choices of the seed, as above.
    let mut rng = Rng::with_seed(seed.wrapping_mul(0xa076_1d64_78bd_642f));
    let most = session_timeout.min(Duration::from_secs(10));
    rng.bool().then(|| between(&mut rng, session_timeout / 16, most))
}

/// A timeout of many ticks, as most installations grant it to clients that ask for it: on one seed
/// in eight. Pings between servers are frequent then, and the leader expires a session soon after
/// its timeout.
fn many_ticks(seed: u64) -> Option<u32> {
    // Apart from the other choices of the seed, as above.
    let mut rng = Rng::with_seed(seed.wrapping_mul(0x9fb2_1c65_1e98_df25));
    (rng.u32(..8) == 0).then(|| rng.u32(7..=20))
}

/// Whether the leader serves clients: not on one seed in four.
fn leader_serves(seed: u64) -> bool {
    // Apart from the other choices of the seed, as above.
    Rng::with_seed(seed.wrapping_mul(0xa3b1_95c2_d471_6e0f)).u32(..4) > 0
}

/// Where the leader serves no clients, all processes say so, but none on one seed in four of these.
fn says_nothing_of_the_leader(seed: u64) -> bool {
    // Apart from the other choices of the seed, as above.
    Rng::with_seed(seed.wrapping_mul(0x8ebc_6af0_9c88_c6e3)).u32(..4) == 0
}

/// This many session timeouts after the last fault everything has healed, and each thread has had a
/// lock since: each of twelve threads may have held it for three and a half session timeouts.
const QUIET: u32 = 60;

/// The time without progress that a retry policy allows, and the longest pause between attempts to
/// connect, by default.
const USUAL_ELAPSED: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Scenario {
    /// The choices of this seed.
    pub fn of(seed: u64, mode: Mode) -> Scenario {
        let mut scenario = Self::before_life(seed, mode);
        scenario.add_life();
        scenario
    }

    /// The choices of this seed for a file that is older than the choices of ordinary life.
    pub fn before_life(seed: u64, mode: Mode) -> Scenario {
        let mut scenario = Self::before_names(seed, mode);
        scenario.add_names();
        scenario
    }

    /// The choices of this seed for a file that was written when servers had no names.
    pub fn before_names(seed: u64, mode: Mode) -> Scenario {
        Self::chosen(seed, mode, true)
    }

    /// The choices of this seed for a file that was written when there were fewer to make: without
    /// timeouts of many ticks, stops in calls, deletes of several nodes, last words, and sessions
    /// that are closed in use.
    pub fn older(seed: u64, mode: Mode) -> Scenario {
        Self::chosen(seed, mode, false)
    }

    fn chosen(seed: u64, mode: Mode, is_new: bool) -> Scenario {
        let mut rng = Rng::with_seed(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let tick = Duration::from_millis([200, 500, 1_000, 2_000][rng.usize(..4)]);
        // If the timeout has few ticks, less is rounded up in favour of a lease.
        let is_short = rng.u32(..3) == 0;
        let session_timeout = tick * if is_short { 2 } else { rng.u32(2..=6) };
        let long = long_timeout(seed);
        let is_long = long.is_some();
        let (tick, session_timeout) = long.unwrap_or((tick, session_timeout));
        let many = many_ticks(seed).filter(|_| is_new && !is_long);
        let (tick, session_timeout) = match many {
            Some(ticks) => (Duration::from_millis(200), Duration::from_millis(200) * ticks),
            None => (tick, session_timeout),
        };
        // A run with a long timeout lasts longer. Its threads do less in each second, so that it
        // costs about as much as another one.
        let least = if is_long { session_timeout / 16 } else { Duration::from_millis(5) };
        let most = between(&mut rng, Duration::from_micros(200), Duration::from_millis(20))
            .min(if many.is_some() { tick / 20 } else { session_timeout / 40 });
        let locks = rng.usize(1..=3);
        let place = |number| Place {
            path: lock(number),
            recipe: Recipe::random(&mut rng, session_timeout),
            longest: None,
        };
        let places: Vec<Place> = (0..locks).map(place).collect();
        // Only refused requests show whether a server checks ACLs by itself.
        let eager_acl_check = rng.bool();
        let asks_in_vain = eager_acl_check || rng.u32(..3) == 0;
        let servers = Settings {
            members: 3,
            tick,
            init_limit: rng.u32(5..=10),
            sync_limit: rng.u32(2..=6),
            min_session: tick * 2,
            max_session: tick * 20,
            reap_interval: Duration::from_secs(60),
            eager_acl_check,
            leader_serves: leader_serves(seed),
        };
        let mix = Mix {
            session_timeout,
            tick,
            processes: 4,
            members: servers.members,
            locks,
            has_drift: rng.bool() || mode == Mode::Drift,
            most_drift: mode.most_drift(),
            has_limits: rng.u32(..3) == 0,
            has_deletes: rng.u32(..4) == 0,
            has_sequences: rng.u32(..4) == 0,
            movable: Vec::new(),
            listing: 0,
        };
        let addresses: Vec<String> = (0..servers.members).map(first_address).collect();
        let mut job = Job {
            connect_string: addresses.join(","),
            session_timeout,
            server_tick: rng.bool().then_some(tick),
            leader_serves: servers.leader_serves || says_nothing_of_the_leader(seed),
            threads: rng.usize(1..=3),
            has_multi: locks > 1 && rng.bool(),
            places,
            asks_in_vain,
            is_observed: false,
            talks: false,
            max_elapsed: max_elapsed(seed, session_timeout),
            closes: false,
            listing: None,
            number: 0,
            hasty: None,
            remakes: false,
            passes: None,
            is_kept_from_reading: false,
            longest_hold: between(&mut rng, least, session_timeout * 2),
            long_hold_in: if is_short { 2 } else { [3, 10, 100][rng.usize(..3)] },
            longest_pause: between(&mut rng, least, session_timeout),
            seed: rng.u64(..),
        };
        let storm = Duration::from_secs(rng.u64(100..400));
        let mut storm = if is_long { storm.max(session_timeout * 6) } else { storm };
        let pause = between(&mut rng, session_timeout / 8, session_timeout * 8);
        let mut plan = Plan::random(&mut rng, storm, pause, &mix);
        if mode == Mode::Drift {
            plan.0.splice(..0, Plan::all_drift(&mut rng, &mix).0);
        }
        // Chosen last: what the seed chose before stays as it was without this.
        for place in &mut job.places {
            place.longest = Longest::random(&mut rng, session_timeout);
        }
        if let Some(longest) = long_keep(seed, session_timeout) {
            (job.threads, job.longest_pause) = (1, longest);
            job.places[0].recipe = match job.places[0].recipe {
                Recipe::Mutex { hand_over, watches_parent, .. } => {
                    Recipe::Mutex { keep: longest, hand_over, watches_parent }
                }
                _ => Recipe::Mutex {
                    keep: longest,
                    hand_over: Duration::ZERO,
                    watches_parent: false,
                },
            };
        }
        job.is_observed = rng.u32(..3) == 0;
        job.talks = rng.bool();
        if rng.bool() {
            plan.add_lags(&mut rng, storm, &mix);
        }
        if rng.u32(..4) > 0 {
            plan.add_stops_at_steps(&mut rng, storm, &mix);
        }
        if rng.u32(..4) == 0 {
            plan.add_late_handshakes(&mut rng, storm, &mix);
        }
        if mix.has_deletes {
            // Apart from the other choices of the seed, as above.
            let mut rng = Rng::with_seed(seed.wrapping_mul(0x8cb9_2ba7_2f3d_8dd7));
            plan.add_deletes_of_waiters(&mut rng, storm, &mix);
        }
        // Apart from the other choices of the seed, as above.
        let mut rng = Rng::with_seed(seed.wrapping_mul(0xe703_7ed1_a0b4_28db));
        let kind = rng.u32(..8);
        job.closes = is_new && rng.u32(..6) == 0;
        job.asks_in_vain &= !job.closes;
        // A process that is stopped as it closes its session has no connection, and no outage.
        job.max_elapsed = job.max_elapsed.filter(|_| !job.closes);
        if !is_new {
            // Nothing is added.
        } else if kind < 2 {
            // Nothing else disturbs what the leader hears, and holds last.
            if rng.u32(..4) > 0 && mode == Mode::Usual {
                plan.0.clear();
                storm = storm.max(session_timeout * 120);
                (job.long_hold_in, job.closes) = (3, false);
                // Other threads of the process write meanwhile.
                (job.threads, job.longest_pause) = (3, job.longest_pause.min(session_timeout / 8));
                job.server_tick = job.server_tick.or_else(|| rng.bool().then_some(tick));
            }
            let may_shorten = plan.0.is_empty() && rng.u32(..3) == 0;
            plan.add_last_words(&mut rng, storm, &mix, most, may_shorten);
        } else {
            if rng.bool() || job.closes {
                plan.add_stops_in_calls(&mut rng, storm, &mix, job.closes);
            }
            if kind < 5 {
                plan.add_deletes(&mut rng, storm, &mix);
            }
        }
        let delay = (most / 4, most);
        let (chance, names, planted) = (seed, Vec::new(), None);
        Scenario { seed, mode, chance, servers, mix, delay, names, plan, job, storm, planted }
    }

    /// Chooses what the connect string says of the servers, and what happens to their addresses. On
    /// one seed in eight there are five servers.
    fn add_names(&mut self) {
        // Apart from the other choices of the seed, as above.
        let mut rng = Rng::with_seed(self.seed.wrapping_mul(0xc2b2_ae3d_27d4_eb4f));
        let is_last = |(_, fault): &(Duration, Fault)| fault.kind() == "last-words";
        if rng.u32(..8) == 0 {
            self.servers.members = 5;
        }
        let members = self.servers.members;
        self.mix.members = members;
        let has_silent = rng.u32(..4) == 0;
        let silent = |number: u16| -> Vec<IpAddr> {
            let ip = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, number + 1]);
            Vec::from_iter(has_silent.then_some(ip))
        };
        let name = |name: String, members: Vec<usize>, number| {
            let silent = silent(number);
            Name { name, members, silent }
        };
        // The first of them have no name.
        let fixed = match rng.u32(..6) {
            0 | 1 => members,
            2 => rng.usize(1..members),
            _ => 0,
        };
        self.mix.movable = (fixed..members).collect();
        if fixed < members {
            self.names = match rng.bool() {
                true => vec![name("zk".to_owned(), self.mix.movable.clone(), 0)],
                false => (fixed..members)
                    .zip(0..)
                    .map(|(member, number)| name(format!("zk{member}"), vec![member], number))
                    .collect(),
            };
            if fixed > 0 && rng.bool() {
                // A member that the connect string names twice.
                self.names.push(name("all".to_owned(), (0..members).collect(), 9));
            }
        }
        let named = self.names.iter().map(|name| format!("{}:2181", name.name));
        let hosts: Vec<String> = (0..fixed).map(first_address).chain(named).collect();
        self.job.connect_string = hosts.join(",");
        if rng.u32(..3) == 0 && !self.job.closes {
            let listing = Listing { nodes: 12, length: 4_000 };
            (self.mix.listing, self.job.listing) = (listing.bytes(), Some(listing));
        }
        // Nothing else disturbs what the leader hears.
        if rng.u32(..3) > 0 && !self.plan.0.iter().all(is_last) {
            self.plan.add_ordinary(&mut rng, self.storm, &self.mix, self.names.len());
        }
        if self.job.listing.is_some() && self.mode == Mode::Usual && rng.u32(..3) == 0 {
            // Nothing but slow lines, and processes that hold and want nothing now and then.
            self.plan = Plan::slow_lines(&mut rng, self.storm, &self.mix);
            (self.job.threads, self.job.asks_in_vain) = (1, false);
            self.job.longest_pause = self.mix.session_timeout * 4;
        }
    }

    /// Chooses what happens in ordinary life without any fault: some processes in a hurry and others
    /// patient, slow servers, lock objects for each call, other libraries' contenders, folders that
    /// may not be read.
    fn add_life(&mut self) {
        // Apart from the other choices of the seed, as above.
        let mut rng = Rng::with_seed(self.seed.wrapping_mul(0xb5ad_4ece_da1c_e2a9));
        let is_alone = |(_, fault): &(Duration, Fault)| {
            matches!(fault.kind(), "last-words" | "slow-line" | "drift" | "server-drift")
        };
        let has_plan_of_its_own = self.plan.0.iter().all(is_alone);
        // The servers look for empty containers this often, 60 s by default.
        self.servers.reap_interval = Duration::from_secs([5, 20, 60][rng.usize(..3)]);
        let is_slow = rng.u32(..6) == 0 && self.mode == Mode::Usual && !has_plan_of_its_own;
        if is_slow {
            self.slow_down(&mut rng);
        }
        let (timeout, round) =
            (self.mix.session_timeout, self.delay.1 + self.plan.slowest_answer());
        let is_kept_for_long = self.job.threads == 1 && long_keep(self.seed, timeout).is_some();
        if rng.bool() && !is_kept_for_long {
            let hold = self.job.longest_hold.min(Duration::from_secs(5));
            let least = if is_slow { round / 4 } else { hold / 2 };
            let most = if is_slow { round * 2 } else { hold * 8 };
            let patience = between(&mut rng, least, most).max(round);
            self.job.hasty = Some(Hasty { processes: rng.usize(1..=2), patience });
            self.job.threads = self.job.threads.max(rng.usize(2..=3));
        }
        self.job.remakes = rng.bool();
        // A call takes some four packets, one after the other.
        self.job.passes = rng.bool().then_some(round * 6);
        self.job.is_kept_from_reading = rng.u32(..3) == 0 && !self.job.closes;
        if rng.bool() && !has_plan_of_its_own {
            self.plan.add_visits(&mut rng, self.storm, &self.mix, &self.job.places);
        }
    }

    /// Makes the servers slow, and lets nothing else happen: each answer is late by a part of the
    /// timeout that leaves room for the requests of a call, by 0.1 to 3 s.
    fn slow_down(&mut self, rng: &mut Rng) {
        let tick = Duration::from_secs(2);
        let timeout = between(rng, tick * 10, tick * 20);
        let most = between(rng, timeout / 40, timeout / 12).min(Duration::from_secs(3));
        self.servers.tick = tick;
        (self.servers.min_session, self.servers.max_session) = (tick * 2, tick * 20);
        (self.mix.tick, self.mix.session_timeout, self.mix.listing) = (tick, timeout, 0);
        let job = &mut self.job;
        (job.session_timeout, job.server_tick) = (timeout, job.server_tick.map(|_| tick));
        (job.max_elapsed, job.closes, job.listing, job.asks_in_vain) = (None, false, None, false);
        job.longest_hold = between(rng, Duration::from_millis(50), Duration::from_secs(10));
        job.longest_pause = between(rng, Duration::from_millis(10), Duration::from_secs(10));
        job.long_hold_in = 100;
        self.storm = self.storm.max(timeout * 10);
        self.plan = Plan::slow_servers(rng, self.storm, most);
    }

    /// Plays the scenario, with each step on the standard error if `verbose`. Counts the lines of
    /// the trace that contain each of these texts.
    pub fn play(&self, verbose: bool, count: &[String]) -> Outcome {
        let shortest_timeout = self.plan.shortest_timeout(self.job.session_timeout);
        let observer = Observer::new(Setting {
            places: self.job.places.clone(),
            session_timeout: self.job.session_timeout,
            shortest_timeout,
            tick: self.servers.tick,
            closes: self.job.closes,
            // A renewal takes half a tick, and some ten packets one after the other. A session keeps
            // the timeout that it was granted, also when servers grant longer ones again.
            is_tight: shortest_timeout < (self.servers.tick * 3).max(self.delay.1 * 100)
                || shortest_timeout < self.plan.slowest_answer() * 12,
            sync_time: self.servers.tick * self.servers.sync_limit,
            max_elapsed: self.job.max_elapsed.unwrap_or(USUAL_ELAPSED),
            has_short_policy: self.job.max_elapsed.is_some(),
            may_overlap: self.mode == Mode::Drift,
        });
        let shared = Shared {
            observer: observer.clone(),
            side_channel: Default::default(),
            has_odd_folders: Arc::default(),
            is_calm: Arc::default(),
            is_well: Arc::default(),
            is_over: Arc::default(),
        };
        let time_limit = self.storm * 20;
        let config =
            Config { verbose, time_limit, count: count.to_vec(), ..Config::seed(self.chance) };
        let mut report = run(config, || World::build(self, shared));
        if report.failures.is_empty() && report.time >= time_limit {
            let (kind, text) = ("time limit".to_owned(), "the run has come to no end".to_owned());
            report.failures.push(Failure { kind, text, at: report.time, step: report.steps });
        }
        Outcome { report, counts: observer.counts(), faults: self.plan.counts() }
    }
}

/// The parts of a run.
#[derive(Clone)]
pub struct World(Rc<Inner>);

struct Inner {
    scenario: Scenario,
    servers: Servers,
    names: Names,
    processes: RefCell<Vec<ProcessId>>,
    /// The process and the server that each burst of faults hits, by the number of the burst.
    focuses: RefCell<BTreeMap<usize, (usize, usize)>>,
    shared: Shared,
}

impl World {
    fn build(scenario: &Scenario, shared: Shared) {
        unblock_foreign_code();
        net::set_default_delay(scenario.delay.0, scenario.delay.1);
        let servers = Servers::start(&scenario.servers, scenario.chance);
        let Scenario { names, job, servers: settings, .. } = scenario;
        let names = Names::new(names, &job.connect_string, settings.members);
        shared.observer.watch(&servers, &names);
        let world = World(Rc::new(Inner {
            scenario: scenario.clone(),
            servers,
            names,
            processes: RefCell::default(),
            focuses: RefCell::default(),
            shared,
        }));
        for process in 0..scenario.mix.processes {
            let id = world.spawn(process);
            world.0.processes.borrow_mut().push(id);
        }
        for (time, fault) in scenario.plan.0.clone() {
            let world = world.clone();
            at(time, move || fault.inject(&world));
        }
        world.make_odd_folders();
        world.make_listing();
        world.look();
        if let Some(time) = scenario.planted {
            at(time, || fail("planted", "all faults that were named were injected"));
        }
        let storm_ends = world.clone();
        at(scenario.storm, move || storm_ends.quiet(scenario_longest(&storm_ends)));
    }

    /// The servers.
    pub fn servers(&self) -> &Servers {
        &self.0.servers
    }

    /// The names of the servers.
    pub fn names(&self) -> &Names {
        &self.0.names
    }

    /// The shortest and the longest timeout that servers grant without a fault.
    pub fn limits(&self) -> (Duration, Duration) {
        (self.0.scenario.servers.min_session, self.0.scenario.servers.max_session)
    }

    /// Whether no fault may begin any more.
    pub fn is_calm(&self) -> bool {
        self.0.shared.is_calm.load(Ordering::Relaxed)
    }

    /// The lock with this number.
    pub fn place(&self, number: usize) -> &Place {
        &self.0.scenario.job.places[number]
    }

    /// The path of the queue of the lock with this number.
    pub fn lock(&self, number: usize) -> String {
        self.0.scenario.job.places[number].queue()
    }

    /// The nodes of one queue of the lock with this number, in their order.
    pub fn queue_of(&self, lock: usize, queue: usize) -> Vec<String> {
        let above = format!("{}/", self.0.scenario.job.places[lock].path);
        let nodes = self.0.servers.ephemerals().into_iter().map(|node| node.path);
        let mut queues = BTreeMap::<String, Vec<(Option<i64>, String)>>::new();
        for path in nodes.filter(|path| path.starts_with(&above)) {
            let Some((folder, _)) = path.rsplit_once('/') else { continue };
            let number = Node::numbered(&path).map(|node| node.number);
            queues.entry(folder.to_owned()).or_default().push((number, path));
        }
        let count = queues.len().max(1);
        let mut nodes = queues.into_values().nth(queue % count).unwrap_or_default();
        nodes.sort();
        nodes.into_iter().map(|(_, path)| path).collect()
    }

    /// An operator makes the folders whose ACLs permit no deletes, or no reads. Where there are some
    /// of the first kind, the root permits no deletes either.
    fn make_odd_folders(&self) {
        let Job { asks_in_vain, is_kept_from_reading, .. } = self.0.scenario.job;
        let no_deletes = operator::ALL_BUT_DELETE;
        let undeletable = [workload::UNDELETABLE.to_owned()].into_iter();
        let undeletable = undeletable.chain(workload::undeletable()).map(|path| (path, no_deletes));
        let above = (workload::UNREADABLE.to_owned(), operator::ALL);
        let unreadable = workload::unreadable().map(|path| (path, operator::ALL_BUT_READ));
        let unreadable = [above].into_iter().chain(unreadable);
        let folders =
            undeletable.filter(|_| asks_in_vain).chain(unreadable.filter(|_| is_kept_from_reading));
        let tree = self.0.servers.newest().unwrap_or_default();
        let is_missing = |path: &String| !tree.iter().any(|node| node.path == *path);
        let missing = folders.filter(|(path, _)| is_missing(path));
        let make = |(path, permissions)| Request::Make { path, permissions };
        let mut requests: Vec<Request> = missing.map(make).collect();
        if requests.is_empty() {
            self.0.shared.has_odd_folders.store(true, Ordering::Relaxed);
            return;
        }
        if asks_in_vain {
            requests.push(Request::Permit { path: "/".to_owned(), permissions: no_deletes });
        }
        self.0.servers.operate(requests);
        let world = self.clone();
        after(self.0.scenario.mix.session_timeout / 4, move || world.make_odd_folders());
    }

    /// An operator makes the large folder, if there is to be one.
    fn make_listing(&self) {
        let Some(listing) = self.0.scenario.job.listing else { return };
        let tree = self.0.servers.newest().unwrap_or_default();
        let is_missing = |path: &String| !tree.iter().any(|node| node.path == *path);
        let make = |path| Request::Make { path, permissions: operator::ALL };
        let requests: Vec<Request> = listing.paths().filter(is_missing).map(make).collect();
        if !requests.is_empty() {
            self.0.servers.operate(requests);
            let world = self.clone();
            after(self.0.scenario.mix.session_timeout / 4, move || world.make_listing());
        }
    }

    /// An operator permits the deletes, and the lists without which a client cannot find the nodes
    /// of creates whose answers were lost. So the sessions can forget these locks.
    fn make_usual(&self) {
        let Job { asks_in_vain, is_kept_from_reading, .. } = self.0.scenario.job;
        let undeletable = ["/".to_owned()].into_iter().chain(workload::undeletable());
        let paths = undeletable
            .filter(|_| asks_in_vain)
            .chain(workload::unreadable().filter(|_| is_kept_from_reading));
        let permit = |path| Request::Permit { path, permissions: operator::ALL };
        let requests: Vec<Request> = paths.map(permit).collect();
        self.0.shared.has_odd_folders.store(false, Ordering::Relaxed);
        if !requests.is_empty() {
            self.0.servers.operate(requests);
        }
    }

    /// Lets the observer check now and then, until the run is over.
    fn look(&self) {
        if !self.0.servers.all_serve() {
            self.0.shared.observer.has_trouble(None, Duration::ZERO);
        }
        self.0.shared.observer.look(&self.0.servers, &self.0.names);
        let world = self.clone();
        after(self.0.scenario.mix.session_timeout / 8, move || world.look());
    }

    /// The observer.
    pub fn observer(&self) -> &Observer {
        &self.0.shared.observer
    }

    /// The process that has this number now.
    pub fn process(&self, number: usize) -> ProcessId {
        self.0.processes.borrow()[number]
    }

    /// The process and the server that the faults of a burst hit. The first fault of the burst
    /// chooses them.
    pub fn focus(&self, focus: &Focus) -> (usize, usize) {
        let mut focuses = self.0.focuses.borrow_mut();
        *focuses.entry(focus.burst).or_insert_with(|| self.choose(focus))
    }

    fn choose(&self, focus: &Focus) -> (usize, usize) {
        let processes = self.0.processes.borrow();
        let holders = if focus.is_holder { self.observer().holders() } else { Vec::new() };
        let id = match holders.len() {
            0 => processes[focus.number % processes.len()],
            count => holders[focus.number % count],
        };
        let process = processes.iter().position(|process| *process == id).unwrap_or(0);
        (process, self.member_of(id).unwrap_or(focus.number % self.0.servers.count()))
    }

    /// The server that the process is connected to. Of several connections the newest counts: the
    /// process has given up the others.
    pub fn member_of(&self, id: ProcessId) -> Option<usize> {
        let newest = net::connections().into_iter().rfind(|connection| connection.process == id)?;
        (0..self.0.servers.count()).find(|n| self.0.servers.address(*n) == newest.to)
    }

    /// The faults that the run may have.
    pub fn mix(&self) -> &Mix {
        &self.0.scenario.mix
    }

    /// The shortest and the longest time of packets without a fault.
    pub fn delay(&self) -> (Duration, Duration) {
        self.0.scenario.delay
    }

    /// Starts a new process that replaces an ended one.
    pub fn start_process(&self, number: usize) {
        if !is_alive(self.process(number)) {
            let id = self.spawn(number);
            self.0.processes.borrow_mut()[number] = id;
        }
    }

    fn spawn(&self, number: usize) -> ProcessId {
        let mut job = self.0.scenario.job.clone();
        job.seed ^= zk_sim_runtime::rng(|rng| rng.u64(..));
        job.number = number;
        let shared = self.0.shared.clone();
        let settings = ProcessSettings {
            clock: Duration::from_secs(zk_sim_runtime::rng(|rng| rng.u64(10..1_000_000))),
            ..ProcessSettings::new(&format!("p{number}"), client_host(number))
        };
        spawn(settings, move || workload::run(&job, &shared))
    }

    /// Injects no more faults; the faults in force end within `longest`. After that no call may
    /// fail.
    fn quiet(&self, longest: Duration) {
        let world = self.clone();
        self.0.shared.is_calm.store(true, Ordering::Relaxed);
        after(longest, move || {
            for number in 0..world.0.scenario.mix.processes {
                world.start_process(number);
                set_drift(world.process(number), 0);
            }
            for member in 0..world.0.servers.count() {
                world.0.servers.restart(member, true);
                world.0.servers.listen(member);
                world.0.servers.set_drift(member, 0);
            }
            world.settles();
        });
    }

    /// Waits until all servers serve and each semaphore has its original number of permits. Only
    /// then the time begins in which no call may fail and each thread must get a lock.
    fn settles(&self) {
        let session_timeout = self.0.scenario.mix.session_timeout;
        let world = self.clone();
        if !self.0.servers.all_serve() || !self.has_original_permits() {
            after(session_timeout / 4, move || world.settles());
            return;
        }
        // A session that was lost in the last outage may be replaced late: the pauses between the
        // attempts to connect have grown. Calls that go on for a shorter time end meanwhile.
        let connects = self.0.scenario.job.max_elapsed.map_or(Duration::ZERO, |_| LONGEST_PAUSE);
        let since = now() + session_timeout * 3 + connects * 2;
        let is_well = self.0.shared.is_well.clone();
        at(since, move || is_well.store(true, Ordering::Relaxed));
        self.when_all_have_progress(since);
    }

    /// Whether each semaphore has its original number of permits. An operator sets the others back.
    /// A server that leads no more may drop the operator's request, so the caller looks again.
    fn has_original_permits(&self) -> bool {
        let Some(tree) = self.0.servers.newest() else { return false };
        let mut all = true;
        for place in &self.0.scenario.job.places {
            let Recipe::Semaphore { permits, .. } = place.recipe else { continue };
            let (path, data) = (place.path.clone(), permits.to_string());
            if tree.iter().any(|node| node.path == path && node.data != data.as_bytes()) {
                self.0.servers.operate(vec![Request::Write { path, data }]);
                all = false;
            }
        }
        all
    }

    /// Ends the threads when each thread of every process has had a lock since that time, and there
    /// was time to find sleeping waiters.
    fn when_all_have_progress(&self, since: Duration) {
        let Scenario { servers, mix, .. } = &self.0.scenario;
        let begin = since + servers.tick * servers.sync_limit + mix.session_timeout * 2;
        let until = since + mix.session_timeout * QUIET + Duration::from_secs(60);
        let world = self.clone();
        at(begin, move || world.has_progress(since, until));
    }

    fn has_progress(&self, since: Duration, until: Duration) {
        let threads = 0..self.0.scenario.job.threads;
        let observer = &self.0.shared.observer;
        let processes = self.0.processes.borrow();
        let mut all =
            processes.iter().flat_map(|process| threads.clone().map(|thread| (*process, thread)));
        let without =
            all.find(|(process, thread)| !observer.has_progress(*process, *thread, since));
        match without {
            None => {
                observer.check("stuck", true, String::new);
                self.make_usual();
                self.0.shared.is_over.store(true, Ordering::Relaxed);
                self.ends(
                    now() + self.0.scenario.mix.session_timeout * QUIET + Duration::from_secs(60),
                );
            }
            Some((process, thread)) if now() >= until => {
                let name = zk_sim_runtime::process_name(process);
                let text = || format!("thread {thread} of {name} has had no lock since {since:?}");
                observer.check("stuck", false, text);
            }
            Some(_) => {
                let world = self.clone();
                after(self.0.scenario.mix.session_timeout, move || {
                    world.has_progress(since, until)
                });
            }
        }
    }

    /// Checks that no node is left when all threads have ended.
    fn ends(&self, until: Duration) {
        let observer = &self.0.shared.observer;
        let is_done = observer.is_quiet()
            && self.0.processes.borrow().iter().all(|process| !is_alive(*process))
            && self.0.servers.all_serve();
        let (left, watches) = (self.0.servers.left(), self.0.servers.watches());
        let is_clean = left.is_empty() && watches == 0;
        if is_done && is_clean || now() >= until {
            let text = || "a thread has not ended, or a server does not serve".to_owned();
            observer.check("no end", is_done, text);
            let text = || format!("watches: {watches}; nodes: {left:?}");
            observer.check("node left", is_clean, text);
            // Each look of the server at its containers deletes one level of folders.
            self.forgets_folders(now() + self.0.scenario.servers.reap_interval * 5);
            return;
        }
        let world = self.clone();
        after(Duration::from_millis(100), move || world.ends(until));
    }

    /// Checks that the folders of the locks go.
    fn forgets_folders(&self, until: Duration) {
        let tree = self.0.servers.newest();
        let left = tree.map(|tree| self.observer().folders_left(&tree));
        let is_clean = left.as_ref().is_some_and(Vec::is_empty);
        if is_clean || now() >= until {
            self.observer().check("folder left", is_clean, || format!("{left:?}"));
            finish();
            return;
        }
        let world = self.clone();
        after(Duration::from_secs(1), move || world.forgets_folders(until));
    }
}

fn scenario_longest(world: &World) -> Duration {
    world.0.scenario.mix.session_timeout * 7
}
