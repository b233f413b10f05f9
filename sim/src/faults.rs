//! Which faults there are, and the plan of a seed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use zk_sim_runtime::net::{self, Flow, Side};
use zk_sim_runtime::{Death, Rng, after, kill, now, resume, set_drift, sleep_host, stop, this_process};

use crate::scenario::World;
use crate::{between, client_host};

/// A fault, with all that chance had to say about it. `number`s choose among what there is when it strikes.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A connection is reset.
    Cut { number: usize },
    /// A connection is closed for one of its ends.
    HalfOpen { number: usize, closed: Side },
    /// What a process and a server say to each other is held, or lost.
    Link { process: usize, up: Option<Flow>, down: Option<Flow>, lasts: Duration },
    /// It takes long from a process to a server and back.
    Slow { process: usize, least: Duration, most: Duration, lasts: Duration },
    /// The server's address refuses.
    Refuse { lasts: Duration },
    /// The server is gone for a while.
    Restart { pause: Duration, silently: bool },
    /// A session expires.
    Expire { number: usize },
    /// A process does nothing for a while.
    Stop { process: usize, lasts: Duration },
    /// A process ends, and another one takes its place.
    Kill { process: usize, death: Death, pause: Duration },
    /// The host of a process sleeps.
    SleepHost { process: usize, lasts: Duration },
    /// A process's clocks run too fast or too slow.
    Drift { process: usize, ppm: i64 },
}

impl Fault {
    /// A short name, to count by.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Cut { .. } => "cut",
            Fault::HalfOpen { .. } => "half-open",
            Fault::Link { up, down, .. } if [up, down].iter().any(|flow| **flow == Some(Flow::Hole)) => {
                "hole"
            }
            Fault::Link { .. } => "freeze",
            Fault::Slow { .. } => "slow",
            Fault::Refuse { .. } => "refuse",
            Fault::Restart { .. } => "restart",
            Fault::Expire { .. } => "expire",
            Fault::Stop { .. } => "stop",
            Fault::Kill { .. } => "kill",
            Fault::SleepHost { .. } => "sleep",
            Fault::Drift { .. } => "drift",
        }
    }

    fn random(rng: &mut Rng, timeout: Duration, processes: usize) -> Fault {
        let process = rng.usize(..processes);
        let number = rng.usize(..1_000);
        let lasts = between(rng, Duration::from_millis(1), timeout * 2);
        match rng.u32(..16) {
            0..2 => Fault::Cut { number },
            2 => Fault::HalfOpen { number, closed: if rng.bool() { Side::Client } else { Side::Server } },
            3..6 => {
                let flow = if rng.bool() { Flow::Hole } else { Flow::Frozen };
                let ways = [(true, true), (true, false), (false, true)][rng.usize(..3)];
                Fault::Link { process, up: ways.0.then_some(flow), down: ways.1.then_some(flow), lasts }
            }
            6..8 => {
                let most = between(rng, Duration::from_millis(1), timeout / 4);
                Fault::Slow { process, least: most.mul_f64(rng.f64()), most, lasts: lasts * 3 }
            }
            8 => Fault::Refuse { lasts },
            9 => Fault::Restart { pause: lasts, silently: rng.bool() },
            10 => Fault::Expire { number },
            11..13 => Fault::Stop { process, lasts: between(rng, Duration::from_micros(10), timeout * 3) },
            13 => {
                let death = if rng.bool() { Death::Killed } else { Death::PowerLost };
                Fault::Kill { process, death, pause: lasts }
            }
            14 => Fault::SleepHost { process, lasts: between(rng, Duration::from_millis(1), timeout * 3) },
            // Within the stated bound: a twelfth of the session timeout, of which pauses take a part too.
            _ => Fault::Drift { process, ppm: rng.i64(-40_000..=40_000) },
        }
    }

    /// It strikes, and ends by itself.
    pub fn strike(&self, world: &World) {
        zk_sim_runtime::note(&format!("fault: {self:?}"));
        let server = world.server().address();
        match self {
            Fault::Cut { number } => {
                if let Some(conn) = a_connection(*number) {
                    net::cut(conn);
                }
            }
            Fault::HalfOpen { number, closed } => {
                if let Some(conn) = a_connection(*number) {
                    net::half_open(conn, *closed);
                }
            }
            Fault::Link { process, up, down, lasts } => {
                let (client, server) = (client_host(*process), server.ip());
                let ways = [(client, server, *up), (server, client, *down)];
                for (from, to, flow) in ways {
                    if let Some(flow) = flow {
                        net::set_flow(from, to, flow);
                        after(*lasts, move || net::set_flow(from, to, Flow::Open));
                    }
                }
            }
            Fault::Slow { process, least, most, lasts } => {
                let (client, server) = (client_host(*process), server.ip());
                for (from, to) in [(client, server), (server, client)] {
                    net::set_delay(from, to, *least, *most);
                    let usual = world.delay();
                    after(*lasts, move || net::set_delay(from, to, usual.0, usual.1));
                }
            }
            Fault::Refuse { lasts } => {
                net::refuse(server);
                let server = world.server();
                after(*lasts, move || server.listen());
            }
            Fault::Restart { pause, silently } => world.server().restart(*pause, *silently),
            Fault::Expire { number } => {
                let sessions = world.server().sessions();
                if let Some(session) = sessions.get(number % sessions.len().max(1)) {
                    world.observer().is_ended_by_others(session.id);
                    world.server().expire(session.id);
                }
            }
            Fault::Stop { process, lasts } => {
                let id = world.process(*process);
                stop(id);
                stopped(id, *lasts);
                after(*lasts, move || resume(id));
            }
            Fault::Kill { process, death, pause } => {
                kill(world.process(*process), *death);
                let (world, process) = (world.clone(), *process);
                after(*pause, move || world.start_process(process));
            }
            Fault::SleepHost { process, lasts } => {
                let id = world.process(*process);
                stopped(id, *lasts);
                sleep_host(id, *lasts);
            }
            Fault::Drift { process, ppm } => set_drift(world.process(*process), *ppm),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

fn a_connection(number: usize) -> Option<net::ConnId> {
    let all = net::connections();
    all.get(number % all.len().max(1)).map(|connection| connection.id)
}

/// The faults of a seed, and when they strike.
#[derive(Clone, Debug)]
pub struct Plan(pub Vec<(Duration, Fault)>);

impl Plan {
    /// For so long, one fault in `pause` on average.
    pub fn random(
        rng: &mut Rng,
        lasts: Duration,
        pause: Duration,
        timeout: Duration,
        processes: usize,
    ) -> Plan {
        let mut plan = Vec::new();
        let mut at = Duration::ZERO;
        loop {
            at += pause.mul_f64(-(1.0 - rng.f64()).ln());
            if at >= lasts {
                return Plan(plan);
            }
            plan.push((at, Fault::random(rng, timeout, processes)));
        }
    }

    /// How often each kind is in it.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for (_, fault) in &self.0 {
            *counts.entry(fault.kind()).or_default() += 1;
        }
        counts
    }
}

thread_local! {
    /// From when to when which processes were stopped.
    static STOPPED: RefCell<Vec<(zk_sim_runtime::ProcessId, Duration, Duration)>> = const { RefCell::new(Vec::new()) };
}

fn stopped(process: zk_sim_runtime::ProcessId, lasts: Duration) {
    STOPPED.with(|all| all.borrow_mut().push((process, now(), now() + lasts)));
}

/// Whether the calling process was stopped, for longer than a moment, in the time before now.
pub fn was_stopped_within(time: Duration) -> bool {
    let (process, since) = (this_process(), now().saturating_sub(time * 2));
    STOPPED.with(|all| all.borrow().iter().any(|(of, _, until)| Some(*of) == process && *until >= since))
}
