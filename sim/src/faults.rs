//! The kinds of faults, and the plan of a seed.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zk_sim_runtime::net::{self, Flow, Side};
use zk_sim_runtime::{
    Call, Death, ProcessId, Rng, Step, Touch, after, at_step, hold_thread, kill, resume, set_drift,
    sleep_host, stop,
};

use crate::last_words::LastWords;
use crate::late_handshakes::LateHandshakes;
use crate::names::{LookUps, Stranger};
use crate::operator::Request;
use crate::scenario::World;
use crate::visitors::{self, Visitor};
use crate::workload::Place;
use crate::{between, block_foreign_code, client_host};

/// A fault, with all its random choices. A `number` chooses among the things that exist when the
/// fault is injected.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Fault {
    /// A connection is reset.
    Cut { number: usize },
    /// A connection is closed for one end only.
    HalfOpen { number: usize, closed: Side },
    /// The messages between a process and one server, or all servers, are held or lost.
    Link {
        process: usize,
        member: Option<usize>,
        up: Option<Flow>,
        down: Option<Flow>,
        lasts: Duration,
    },
    /// The link between a process and a server is slow in both directions.
    Slow { process: usize, member: usize, least: Duration, most: Duration, lasts: Duration },
    /// A server's address refuses connections.
    Refuse { member: usize, lasts: Duration },
    /// A server is down for a while.
    KillServer { member: usize, pause: Duration, silently: bool, keeps_data: bool },
    /// All servers are down for a while.
    KillServers { pause: Duration },
    /// A server does not run for a while.
    StallServer { member: usize, lasts: Duration },
    /// The messages between a server and the other servers are held or lost. Its clients still
    /// reach it.
    CutOff { which: Which, hears: Option<Flow>, says: Option<Flow>, lasts: Duration },
    /// The messages of the other servers reach a server late: as a follower it applies each write
    /// late, and its clients notice nothing else.
    Lag { member: usize, least: Duration, most: Duration, lasts: Duration },
    /// A server's clock runs too fast or too slow.
    DriftServer { member: usize, ppm: i32 },
    /// A server grants shorter timeouts than the others for a while.
    Limits { member: usize, most: Duration, lasts: Duration },
    /// A session expires.
    Expire { number: usize },
    /// An operator deletes an ephemeral node: that of a hold, if there is one and `is_held` says so.
    Delete {
        number: usize,
        #[serde(default)]
        is_held: bool,
    },
    /// An operator deletes the node of a waiter. It may also delete the node ahead of that, just
    /// before or just after: `beside` says which.
    DeleteWaiting { number: usize, beside: Beside },
    /// The sequence numbers of a lock's nodes jump to a value near which the order rule changes.
    Sequence { lock: usize, next: i32 },
    /// A process does not run for a while.
    Stop { process: usize, lasts: Duration },
    /// A process does not run for a while from a step on, which is counted from the fault on. If
    /// `is_alone`, only the thread that is at the step does not run.
    StopAt { process: usize, step: Step, is_alone: bool, lasts: Duration },
    /// A process ends, and another one replaces it.
    Kill { process: usize, death: Death, pause: Duration },
    /// The host of a process sleeps.
    SleepHost { process: usize, lasts: Duration },
    /// A process's clocks run too fast or too slow.
    Drift { process: usize, ppm: i64 },
    /// The application's own code, its logger and its observers, blocks in a process for a while.
    Block { process: usize, lasts: Duration },
    /// The requests of clients that hand their sessions over to a follower come late to the leader:
    /// see `LateHandshakes`.
    LateHandshakes(LateHandshakes),
    /// The leader hears the last of a client that goes on believing in its lease: see `LastWords`.
    LastWords(LastWords),
    /// An operator deletes several nodes of one queue of a lock at once, from this place of the
    /// queue on.
    DeleteSeveral { lock: usize, queue: usize, first: usize, count: usize, backwards: bool },
    /// A server ends and starts again with another address, as a pod does.
    MoveServer {
        member: usize,
        pause: Duration,
        /// The names say the new address so long after the server has started.
        named_after: Duration,
        /// The names say no address of the server until then.
        is_gone: bool,
        old: Old,
    },
    /// Something is wrong with the look-ups of a name for a while.
    LookUps { name: usize, trouble: LookUps, lasts: Duration },
    /// A server half works for a while, as far as its clients can see.
    HalfWorks { member: usize, how: Half, lasts: Duration },
    /// A process can reach one server only for a while, and that one takes the session up and serves
    /// nothing.
    OnlyDeaf { process: usize, member: usize, lasts: Duration },
    /// The lines from the servers to a process carry so many bytes in a second for a while.
    SlowLine { process: usize, rate: u64, lasts: Duration },
    /// Each answer of the servers comes late for a while, and nothing else is wrong with them.
    SlowServers { least: Duration, most: Duration, lasts: Duration },
    /// A contender of another client library comes to a lock's path for a while. That is no fault.
    Visit { lock: usize, who: Visitor, lasts: Duration },
    /// A fault that hits the focus of its burst, whatever process and server it names.
    Focused { focus: Focus, fault: Box<Fault> },
}

/// The target of the faults of a burst: one process, and the server that it is connected to. Both
/// are chosen when the first fault of the burst is injected.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Focus {
    /// The number of the burst in the plan.
    pub burst: usize,
    /// The process is a holder of a lock at that moment, if there is one.
    pub is_holder: bool,
    /// Chooses the process, and the server if the process is connected to none.
    pub number: usize,
}

/// Whether an operator also deletes the node ahead of a waiter's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Beside {
    /// It deletes the waiter's node alone.
    Nothing,
    /// It deletes the node ahead first.
    AheadFirst,
    /// It deletes the node ahead afterwards.
    AheadLast,
}

/// What is at an address that a server has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Old {
    /// Nothing: packets get no answer.
    Swallows,
    /// A host that refuses connections.
    Refuses,
    /// A server of another ensemble, some time after the names say the new address.
    Stranger,
}

/// How a server half works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Half {
    /// Its clients' packets get no answer.
    Swallows,
    /// It accepts connections, and answers nothing.
    Mute,
    /// It takes sessions up, and serves nothing.
    Deaf,
}

/// A member of the ensemble.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Which {
    /// The member with this number.
    Member(usize),
    /// The member that leads.
    Leader,
}

/// The faults that a run may have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mix {
    /// The session timeout that clients ask for.
    pub session_timeout: Duration,
    /// The servers' tick.
    pub tick: Duration,
    /// The number of processes.
    pub processes: usize,
    /// The number of servers.
    pub members: usize,
    /// The number of locks.
    pub locks: usize,
    /// Whether clocks drift.
    pub has_drift: bool,
    /// The largest drift in either direction, in millionths.
    pub most_drift: i32,
    /// Whether servers change the timeouts that they grant.
    pub has_limits: bool,
    /// Whether an operator deletes nodes.
    pub has_deletes: bool,
    /// Whether sequence numbers jump towards their end.
    pub has_sequences: bool,
    /// The members that are known by name, so that they may move.
    #[serde(default)]
    pub movable: Vec<usize>,
    /// The bytes of the large folder that processes list; 0 if there is none.
    #[serde(default)]
    pub listing: u64,
}

impl Fault {
    /// A line on which the long list takes up to a quarter of the session timeout.
    fn slow_line(rng: &mut Rng, mix: &Mix, process: usize, lasts: Duration) -> Fault {
        let takes = mix.session_timeout.mul_f64(0.05 + 0.2 * rng.f64());
        let rate = (mix.listing as f64 / takes.as_secs_f64()) as u64;
        Fault::SlowLine { process, rate, lasts }
    }

    /// A short name, for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Cut { .. } => "cut",
            Fault::HalfOpen { .. } => "half-open",
            Fault::Link { up, down, .. } if [up, down].contains(&&Some(Flow::Hole)) => "hole",
            Fault::Link { .. } => "freeze",
            Fault::Slow { .. } => "slow",
            Fault::Refuse { .. } => "refuse",
            Fault::KillServer { keeps_data: true, .. } => "server-killed",
            Fault::KillServer { .. } => "server-data-lost",
            Fault::KillServers { .. } => "all-servers-killed",
            Fault::StallServer { .. } => "server-stalled",
            Fault::CutOff { .. } => "server-cut-off",
            Fault::Lag { .. } => "server-lags",
            Fault::DriftServer { .. } => "server-drift",
            Fault::Limits { .. } => "timeout-limits",
            Fault::Expire { .. } => "expire",
            Fault::Delete { .. } => "node-deleted",
            Fault::DeleteWaiting { .. } => "waiting-node-deleted",
            Fault::Sequence { .. } => "sequence",
            Fault::Stop { .. } => "stop",
            Fault::StopAt { is_alone: false, .. } => "stop-at-step",
            Fault::StopAt { .. } => "thread-stop-at-step",
            Fault::LateHandshakes(_) => "late-handshakes",
            Fault::LastWords(_) => "last-words",
            Fault::DeleteSeveral { .. } => "nodes-deleted",
            Fault::Kill { .. } => "kill",
            Fault::SleepHost { .. } => "sleep",
            Fault::Drift { .. } => "drift",
            Fault::Block { .. } => "code-blocks",
            Fault::MoveServer { old: Old::Stranger, .. } => "server-moved-for-another",
            Fault::MoveServer { .. } => "server-moved",
            Fault::LookUps { .. } => "look-ups",
            Fault::HalfWorks { how: Half::Swallows, .. } => "host-silent",
            Fault::HalfWorks { how: Half::Mute, .. } => "server-mute",
            Fault::HalfWorks { how: Half::Deaf, .. } => "server-deaf",
            Fault::OnlyDeaf { .. } => "only-a-deaf-server",
            Fault::SlowLine { .. } => "slow-line",
            Fault::SlowServers { .. } => "slow-servers",
            Fault::Visit { .. } => "visit",
            Fault::Focused { fault, .. } => fault.kind(),
        }
    }

    /// How long the fault lasts; zero if it is over at once or has no end of its own.
    fn lasts(&self) -> Duration {
        match self {
            Fault::Link { lasts, .. }
            | Fault::Slow { lasts, .. }
            | Fault::Refuse { lasts, .. }
            | Fault::StallServer { lasts, .. }
            | Fault::CutOff { lasts, .. }
            | Fault::Lag { lasts, .. }
            | Fault::Limits { lasts, .. }
            | Fault::Stop { lasts, .. }
            | Fault::StopAt { lasts, .. }
            | Fault::SleepHost { lasts, .. }
            | Fault::Block { lasts, .. }
            | Fault::LookUps { lasts, .. }
            | Fault::HalfWorks { lasts, .. }
            | Fault::OnlyDeaf { lasts, .. }
            | Fault::SlowLine { lasts, .. }
            | Fault::SlowServers { lasts, .. }
            | Fault::Visit { lasts, .. }
            | Fault::KillServer { pause: lasts, .. }
            | Fault::KillServers { pause: lasts }
            | Fault::Kill { pause: lasts, .. } => *lasts,
            Fault::MoveServer { pause, named_after, .. } => *pause + *named_after,
            Fault::LateHandshakes(late) => late.stalls.max(late.freezes_after + late.frozen),
            Fault::LastWords(last) => last.lasts(),
            Fault::Focused { fault, .. } => fault.lasts(),
            Fault::Cut { .. }
            | Fault::HalfOpen { .. }
            | Fault::DriftServer { .. }
            | Fault::Expire { .. }
            | Fault::Delete { .. }
            | Fault::DeleteWaiting { .. }
            | Fault::DeleteSeveral { .. }
            | Fault::Sequence { .. }
            | Fault::Drift { .. } => Duration::ZERO,
        }
    }

    fn random(rng: &mut Rng, mix: &Mix) -> Fault {
        let timeout = mix.session_timeout;
        let (process, member) = (rng.usize(..mix.processes), rng.usize(..mix.members));
        let number = rng.usize(..1_000);
        let lasts = between(rng, Duration::from_millis(1), timeout * 2);
        match rng.u32(..29) {
            0 | 1 => Fault::Cut { number },
            2 => Fault::HalfOpen {
                number,
                closed: if rng.bool() { Side::Client } else { Side::Server },
            },
            3 | 4 => {
                let (up, down) = ways(rng);
                let member = rng.bool().then_some(member);
                Fault::Link { process, member, up, down, lasts }
            }
            5 => {
                let most = between(rng, Duration::from_millis(1), timeout / 4);
                Fault::Slow {
                    process,
                    member,
                    least: most.mul_f64(rng.f64()),
                    most,
                    lasts: lasts * 3,
                }
            }
            6 => Fault::Refuse { member, lasts },
            7 | 8 => {
                let keeps_data = rng.u32(..4) > 0;
                Fault::KillServer { member, pause: lasts, silently: rng.bool(), keeps_data }
            }
            9 => Fault::KillServers { pause: lasts },
            10 | 11 => Fault::StallServer { member, lasts },
            12..16 => {
                let which = if rng.u32(..3) == 0 { Which::Leader } else { Which::Member(member) };
                let (hears, says) = ways(rng);
                let lasts = if rng.bool() { timeout.mul_f64(0.2 + rng.f64() * 1.8) } else { lasts };
                Fault::CutOff { which, hears, says, lasts }
            }
            16 if mix.has_drift => Fault::DriftServer { member, ppm: drift(rng, mix) },
            17 if mix.has_limits => {
                Fault::Limits { member, most: mix.tick * rng.u32(2..=8), lasts: lasts * 3 }
            }
            18 => Fault::Expire { number },
            19 if mix.has_deletes => Fault::Delete { number, is_held: rng.bool() },
            20 if mix.has_sequences => {
                let border = [1 << 30, i32::MAX - (1 << 20), i32::MAX][rng.usize(..3)];
                Fault::Sequence { lock: rng.usize(..mix.locks), next: border - rng.i32(0..20) }
            }
            21 => {
                Fault::Stop { process, lasts: between(rng, Duration::from_micros(10), timeout * 3) }
            }
            22..25 => Fault::Stop { process, lasts: timeout.mul_f64(0.2 + rng.f64()) },
            25 => {
                let death = if rng.bool() { Death::Killed } else { Death::PowerLost };
                Fault::Kill { process, death, pause: lasts }
            }
            26 => Fault::SleepHost {
                process,
                lasts: between(rng, Duration::from_millis(1), timeout * 3),
            },
            27 if mix.has_drift => Fault::Drift { process, ppm: drift(rng, mix).into() },
            28 => {
                Fault::Block { process, lasts: between(rng, Duration::from_millis(1), timeout * 3) }
            }
            _ => Fault::random(rng, mix),
        }
    }

    /// A fault that cuts a process, or its server, off from the rest of the world for about as long
    /// as a session lasts. Or the application's own code blocks meanwhile.
    fn parting(rng: &mut Rng, mix: &Mix) -> Fault {
        let (process, member) = (0, 0);
        let lasts = mix.session_timeout.mul_f64(0.3 + rng.f64() * 1.7);
        let (one, two) = ways(rng);
        match rng.u32(..9) {
            8 => Fault::Block { process, lasts: lasts * 2 },
            0..3 => Fault::CutOff { which: Which::Member(member), hears: one, says: two, lasts },
            3 | 4 => Fault::Link { process, member: None, up: one, down: two, lasts },
            5 | 6 => Fault::Stop { process, lasts },
            _ => Fault::StallServer { member, lasts },
        }
    }

    /// A stop at a step, of a process or of one of its threads.
    fn stop_at_step(rng: &mut Rng, mix: &Mix) -> Fault {
        let timeout = mix.session_timeout;
        let step = Step {
            touch: Touch::ALL[rng.usize(..Touch::ALL.len())],
            is_own: [None, Some(true), Some(false)][rng.usize(..3)],
            nth: (rng.f64() * 1_000_f64.ln()).exp() as u32,
            then: 0,
        };
        let lasts = match rng.bool() {
            true => between(rng, Duration::from_micros(10), timeout * 3),
            false => timeout.mul_f64(0.2 + rng.f64()),
        };
        Fault::StopAt { process: 0, step, is_alone: rng.u32(..3) == 0, lasts }
    }

    /// A stop of one thread, or of its process, a few steps after it has begun a call, or goes on
    /// after a wait, or has read what a server says. Races between few steps are met so: with the
    /// thread at each of its next steps about equally often, while all others go on.
    fn stop_in_call(rng: &mut Rng, mix: &Mix, closes: bool) -> Fault {
        let timeout = mix.session_timeout;
        let (touch, is_own, depth) = match rng.u32(..12) {
            0 | 6 | 7 if closes => (Touch::Call(Call::Close), None, 60.0),
            0..3 => (Touch::Call(Call::Take), Some(false), 300.0),
            3..6 => (Touch::Call(Call::LetGo), Some(false), 120.0),
            6..8 => (Touch::Woken, Some(false), 60.0),
            8 | 9 => (Touch::TimedOut, Some(false), 12.0),
            _ => (Touch::Read, Some(true), 120.0),
        };
        let nth = if rng.bool() { 1 } else { rng.u32(1..=4) };
        // Half of the depths are equally likely, and half of them on a logarithmic scale.
        let then = match rng.bool() {
            true => rng.f64() * depth,
            false => (rng.f64() * f64::ln(depth)).exp(),
        };
        let lasts = match rng.bool() {
            true => between(rng, Duration::from_micros(10), timeout * 2),
            false => timeout.mul_f64(0.05 + 0.5 * rng.f64()),
        };
        let step = Step { touch, is_own, nth, then: (then as u32).max(1) };
        Fault::StopAt { process: 0, step, is_alone: rng.u32(..4) > 0, lasts }
    }

    /// The same fault, at this process and this server.
    fn at(&self, world: &World, process: usize, member: usize) -> Fault {
        let mut fault = self.clone();
        match &mut fault {
            Fault::Cut { number } | Fault::HalfOpen { number, .. } => {
                let id = world.process(process);
                let is_its = |connection: &net::Connection| connection.process == id;
                *number = net::connections().iter().rposition(is_its).unwrap_or(*number);
            }
            Fault::Link { process: whose, member: which, .. } => {
                *whose = process;
                *which = which.map(|_| member);
            }
            Fault::Slow { process: whose, member: which, .. } => {
                (*whose, *which) = (process, member)
            }
            Fault::CutOff { which, .. } => *which = Which::Member(member),
            Fault::Refuse { member: which, .. }
            | Fault::KillServer { member: which, .. }
            | Fault::StallServer { member: which, .. }
            | Fault::Lag { member: which, .. }
            | Fault::DriftServer { member: which, .. }
            | Fault::HalfWorks { member: which, .. }
            | Fault::Limits { member: which, .. } => *which = member,
            Fault::OnlyDeaf { process: whose, member: which, .. } => {
                (*whose, *which) = (process, member)
            }
            Fault::Stop { process: whose, .. }
            | Fault::StopAt { process: whose, .. }
            | Fault::Kill { process: whose, .. }
            | Fault::SleepHost { process: whose, .. }
            | Fault::Block { process: whose, .. }
            | Fault::SlowLine { process: whose, .. }
            | Fault::LastWords(LastWords { process: whose, .. })
            | Fault::Drift { process: whose, .. } => *whose = process,
            Fault::KillServers { .. }
            | Fault::Expire { .. }
            | Fault::Delete { .. }
            | Fault::DeleteWaiting { .. }
            | Fault::DeleteSeveral { .. }
            | Fault::Sequence { .. }
            | Fault::LateHandshakes(_)
            | Fault::MoveServer { .. }
            | Fault::LookUps { .. }
            | Fault::SlowServers { .. }
            | Fault::Visit { .. }
            | Fault::Focused { .. } => {}
        }
        fault
    }

    /// The process that may lose locks by this fault; all of them may (`Some(None)`), or none.
    fn troubles(&self, world: &World) -> Option<Option<ProcessId>> {
        match self {
            Fault::Cut { number } | Fault::HalfOpen { number, .. } => {
                let all = net::connections();
                let connection = all.get(number % all.len().max(1))?;
                Some(Some(connection.process))
            }
            Fault::Link { process, .. }
            | Fault::Slow { process, .. }
            | Fault::Stop { process, .. }
            | Fault::Kill { process, .. }
            | Fault::SleepHost { process, .. } => Some(Some(world.process(*process))),
            Fault::Refuse { .. }
            | Fault::KillServer { .. }
            | Fault::KillServers { .. }
            | Fault::StallServer { .. }
            | Fault::CutOff { .. }
            | Fault::Lag { .. }
            | Fault::Limits { .. }
            | Fault::Expire { .. }
            | Fault::Delete { .. }
            | Fault::DeleteWaiting { .. }
            | Fault::DeleteSeveral { .. }
            | Fault::LastWords(_)
            | Fault::MoveServer { .. }
            | Fault::HalfWorks { .. }
            | Fault::OnlyDeaf { .. }
            | Fault::LateHandshakes(_) => Some(None),
            // Clocks that drift within the bound cost no lock, nor do loggers and observers that
            // block, nor look-ups, nor a line on which the longest answer takes a part of the
            // timeout, nor servers whose answers take such a part, nor others who want a lock. What a
            // fault of a burst hits is told when that is chosen, and a stop at a step when the step
            // comes.
            Fault::Block { .. }
            | Fault::LookUps { .. }
            | Fault::SlowLine { .. }
            | Fault::SlowServers { .. }
            | Fault::Visit { .. }
            | Fault::DriftServer { .. }
            | Fault::Drift { .. }
            | Fault::Sequence { .. }
            | Fault::StopAt { .. }
            | Fault::Focused { .. } => None,
        }
    }

    /// The processes whose connections or leases the fault may cost, but for what a process that can
    /// reach a majority of the servers can do about it.
    fn disturbs(&self, world: &World) -> Vec<Option<ProcessId>> {
        let clients_of = |member: usize| {
            let all = net::connections().into_iter();
            let at = world.servers().address(member);
            all.filter(|open| open.to == at).map(|open| Some(open.process)).collect()
        };
        match self {
            Fault::KillServer { member, .. }
            | Fault::StallServer { member, .. }
            | Fault::Lag { member, .. }
            | Fault::MoveServer { member, .. }
            | Fault::HalfWorks { member, .. } => clients_of(*member),
            Fault::OnlyDeaf { process, member, .. } => {
                let own = Some(world.process(*process));
                clients_of(*member).into_iter().chain([own]).collect()
            }
            Fault::Refuse { .. } => Vec::new(),
            _ => self.troubles(world).into_iter().collect(),
        }
    }

    /// Begins the fault. It ends by itself.
    pub fn inject(&self, world: &World) {
        zk_sim_runtime::note(&format!("fault: {self:?}"));
        let (servers, observer) = (world.servers().clone(), world.observer());
        if let Some(process) = self.troubles(world) {
            observer.has_trouble(process, self.lasts());
        }
        self.disturbs(world).into_iter().for_each(|process| observer.disturbs(process));
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
            Fault::Link { process, member, up, down, lasts } => {
                let client = client_host(*process);
                for member in member.map_or(0..servers.count(), |member| member..member + 1) {
                    flow_for(client, servers.host(member), *up, *lasts);
                    flow_for(servers.host(member), client, *down, *lasts);
                }
            }
            Fault::Slow { process, member, least, most, lasts } => {
                let (client, server) = (client_host(*process), servers.host(*member));
                for (from, to) in [(client, server), (server, client)] {
                    net::set_delay(from, to, *least, *most);
                    let usual = world.delay();
                    after(*lasts, move || net::set_delay(from, to, usual.0, usual.1));
                }
            }
            Fault::Refuse { member, lasts } => {
                net::refuse(servers.address(*member));
                let member = *member;
                after(*lasts, move || servers.listen(member));
            }
            Fault::KillServer { member, pause, silently, keeps_data } => {
                servers.kill(*member, *silently);
                let (member, keeps_data) = (*member, *keeps_data);
                after(*pause, move || servers.restart(member, keeps_data));
            }
            Fault::KillServers { pause } => {
                for member in 0..servers.count() {
                    servers.kill(member, false);
                    let servers = servers.clone();
                    after(*pause, move || servers.restart(member, true));
                }
            }
            Fault::StallServer { member, lasts } => servers.stall(*member, *lasts),
            Fault::CutOff { which, hears, says, lasts } => {
                let member = match which {
                    Which::Member(member) => Some(*member),
                    Which::Leader => servers.leader(),
                };
                for (member, other) in member
                    .into_iter()
                    .flat_map(|member| (0..servers.count()).map(move |other| (member, other)))
                    .filter(|(member, other)| member != other)
                {
                    let (host, other) = (servers.host(member), servers.host(other));
                    flow_for(other, host, *hears, *lasts);
                    flow_for(host, other, *says, *lasts);
                }
            }
            Fault::Lag { member, least, most, lasts } => {
                let to = servers.host(*member);
                for from in (0..servers.count()).filter(|other| other != member) {
                    let from = servers.host(from);
                    net::set_delay(from, to, *least, *most);
                    let usual = world.delay();
                    after(*lasts, move || net::set_delay(from, to, usual.0, usual.1));
                }
            }
            Fault::DriftServer { member, ppm } => servers.set_drift(*member, *ppm),
            Fault::Limits { member, most, lasts } => {
                servers.set_session_limits(*member, world.limits().0, *most);
                let (member, (min, max)) = (*member, world.limits());
                after(*lasts, move || servers.set_session_limits(member, min, max));
            }
            Fault::Expire { number } => {
                let sessions = servers.sessions();
                if let Some(session) = sessions.get(number % sessions.len().max(1)) {
                    observer.is_ended_by_others(*session);
                    servers.expire(*session);
                }
            }
            Fault::Delete { number, is_held } => {
                let held = if *is_held { observer.held_nodes() } else { Vec::new() };
                let nodes = || servers.ephemerals().into_iter().map(|node| node.path).collect();
                let nodes: Vec<String> = if held.is_empty() { nodes() } else { held };
                if let Some(path) = nodes.get(number % nodes.len().max(1)).cloned() {
                    observer.is_deleted_by_others(&path);
                    servers.operate(vec![Request::Delete { path }]);
                }
            }
            Fault::DeleteWaiting { number, beside } => {
                let waiters = observer.waiters(&servers.ephemerals());
                let Some((own, ahead)) = waiters.get(number % waiters.len().max(1)).cloned() else {
                    return;
                };
                let paths = match (beside, ahead) {
                    (Beside::AheadFirst, Some(ahead)) => vec![ahead, own],
                    (Beside::AheadLast, Some(ahead)) => vec![own, ahead],
                    _ => vec![own],
                };
                paths.iter().for_each(|path| observer.is_deleted_by_others(path));
                servers.operate(paths.into_iter().map(|path| Request::Delete { path }).collect());
            }
            Fault::DeleteSeveral { lock, queue, first, count, backwards } => {
                let mut paths = world.queue_of(*lock, *queue);
                paths.drain(..*first.min(&paths.len()));
                paths.truncate(*count);
                if *backwards {
                    paths.reverse();
                }
                paths.iter().for_each(|path| observer.is_deleted_by_others(path));
                let delete = |path| Request::Delete { path };
                let requests: Vec<Request> = paths.into_iter().map(delete).collect();
                if !requests.is_empty() {
                    servers.operate(requests);
                }
            }
            Fault::Sequence { lock, next } => servers.set_sequence(&world.lock(*lock), *next),
            Fault::Stop { process, lasts } => {
                let id = world.process(*process);
                stop(id);
                after(*lasts, move || resume(id));
            }
            Fault::StopAt { process, step, is_alone, lasts } => {
                let (id, is_alone, lasts) = (world.process(*process), *is_alone, *lasts);
                let world = world.clone();
                at_step(id, *step, move |thread| {
                    if world.is_calm() {
                        return;
                    }
                    world.observer().has_trouble(Some(id), lasts);
                    world.observer().disturbs(Some(id));
                    if is_alone {
                        hold_thread(thread, lasts);
                    } else {
                        stop(id);
                        after(lasts, move || resume(id));
                    }
                });
            }
            Fault::MoveServer { member, pause, named_after, is_gone, old } => {
                move_server(world, *member, *pause, *named_after, *is_gone, *old);
            }
            Fault::LookUps { name, trouble, lasts } => {
                world.names().trouble(*name, *trouble, *lasts);
            }
            Fault::HalfWorks { member, how, lasts } => half_works(world, *member, *how, *lasts),
            Fault::OnlyDeaf { process, member, lasts } => {
                half_works(world, *member, Half::Deaf, *lasts);
                let client = client_host(*process);
                for other in (0..servers.count()).filter(|other| other != member) {
                    let host = servers.host(other);
                    flow_for(client, host, Some(Flow::Hole), *lasts);
                    flow_for(host, client, Some(Flow::Hole), *lasts);
                }
            }
            Fault::SlowLine { process, rate, lasts } => {
                let to = client_host(*process);
                observer.has_slow_line(world.process(*process), *lasts);
                for from in (0..servers.count()).map(|member| servers.host(member)) {
                    net::set_rate(from, to, Some(*rate));
                    after(*lasts, move || net::set_rate(from, to, None));
                }
            }
            Fault::SlowServers { least, most, lasts } => {
                for from in (0..servers.count()).map(|member| servers.host(member)) {
                    for to in (0..world.mix().processes).map(client_host) {
                        net::set_delay(from, to, *least, *most);
                        let usual = world.delay();
                        after(*lasts, move || net::set_delay(from, to, usual.0, usual.1));
                    }
                }
            }
            Fault::Visit { lock, who, lasts } => {
                let id = zk_sim_runtime::rng(|rng| rng.u128(..));
                let requests = who.requests(world.place(*lock), id);
                servers.visit(requests, world.mix().session_timeout, *lasts);
            }
            Fault::LateHandshakes(late) => late.begin(&servers),
            Fault::LastWords(last) => last.begin(world),
            Fault::Kill { process, death, pause } => {
                kill(world.process(*process), *death);
                let (world, process) = (world.clone(), *process);
                after(*pause, move || world.start_process(process));
            }
            Fault::SleepHost { process, lasts } => {
                let id = world.process(*process);
                sleep_host(id, *lasts);
            }
            Fault::Block { process, lasts } => block_foreign_code(world.process(*process), *lasts),
            Fault::Drift { process, ppm } => set_drift(world.process(*process), *ppm),
            Fault::Focused { focus, fault } => {
                let (process, member) = world.focus(focus);
                fault.at(world, process, member).inject(world);
            }
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

fn move_server(
    world: &World,
    member: usize,
    pause: Duration,
    named_after: Duration,
    is_gone: bool,
    old: Old,
) {
    let (servers, names) = (world.servers().clone(), world.names().clone());
    let (left, timeout) = (servers.host(member), world.mix().session_timeout);
    servers.kill(member, false);
    if is_gone {
        names.publish(member, None);
    }
    if old == Old::Swallows {
        // The host is gone when the ends of its connections are on their way.
        after(world.delay().1 * 2, move || net::set_host_down(left, true));
    }
    let world = world.clone();
    after(pause, move || {
        let host = names.next_host(member);
        servers.move_to(member, host);
        after(named_after, move || names.publish(member, Some(servers.host(member))));
        if old == Old::Stranger {
            // By then no client that was told of the address before dials it.
            after(named_after + timeout / 2, move || {
                let (names, observer) = (world.names().clone(), world.observer().clone());
                Stranger::listen(left, names, observer);
            });
        }
    });
}

fn half_works(world: &World, member: usize, how: Half, lasts: Duration) {
    let servers = world.servers().clone();
    match how {
        Half::Swallows => {
            let host = servers.host(member);
            for client in (0..world.mix().processes).map(client_host) {
                flow_for(client, host, Some(Flow::Hole), lasts);
                flow_for(host, client, Some(Flow::Hole), lasts);
            }
        }
        Half::Mute => {
            servers.mute(member);
            after(lasts, move || servers.listen(member));
        }
        Half::Deaf => {
            servers.set_deaf(member, true);
            after(lasts, move || servers.set_deaf(member, false));
        }
    }
}

fn drift(rng: &mut Rng, mix: &Mix) -> i32 {
    rng.i32(-mix.most_drift..=mix.most_drift)
}

/// Chooses which of two directions are disturbed, and how.
fn ways(rng: &mut Rng) -> (Option<Flow>, Option<Flow>) {
    let flow = if rng.bool() { Flow::Hole } else { Flow::Frozen };
    let ways = [(true, true), (true, false), (false, true)][rng.usize(..3)];
    (ways.0.then_some(flow), ways.1.then_some(flow))
}

pub(crate) fn flow_for(from: IpAddr, to: IpAddr, flow: Option<Flow>, lasts: Duration) {
    if let Some(flow) = flow {
        net::set_flow(from, to, flow);
        after(lasts, move || net::set_flow(from, to, Flow::Open));
    }
}

fn a_connection(number: usize) -> Option<net::ConnId> {
    let all = net::connections();
    all.get(number % all.len().max(1)).map(|connection| connection.id)
}

/// The faults of a seed, and the times at which they are injected.
#[derive(Clone, Debug, Default)]
pub struct Plan(pub Vec<(Duration, Fault)>);

impl Plan {
    /// A random plan of this length, with one fault or one burst of faults in each `pause` on
    /// average.
    pub fn random(rng: &mut Rng, lasts: Duration, pause: Duration, mix: &Mix) -> Plan {
        let mut plan = Vec::new();
        let (mut at, mut bursts) = (Duration::ZERO, 0);
        loop {
            at += pause.mul_f64(-(1.0 - rng.f64()).ln());
            if at >= lasts {
                plan.sort_by_key(|(at, _)| *at);
                return Plan(plan);
            }
            if rng.u32(..3) == 0 {
                let focus =
                    Focus { burst: bursts, is_holder: rng.bool(), number: rng.usize(..1_000) };
                bursts += 1;
                plan.extend(burst(rng, at, mix, focus));
                continue;
            }
            let fault = Fault::random(rng, mix);
            // Faults come together: often the next one begins when this one ends.
            let next = rng.bool().then(|| {
                at + fault.lasts() + between(rng, Duration::from_millis(1), mix.session_timeout / 4)
            });
            plan.push((at, fault));
            if let Some(next) = next.filter(|next| *next < lasts) {
                plan.push((next, Fault::random(rng, mix)));
            }
        }
    }

    /// Adds servers that follow their leader late for a while.
    pub fn add_lags(&mut self, rng: &mut Rng, lasts: Duration, mix: &Mix) {
        let (timeout, mut at) = (mix.session_timeout, Duration::ZERO);
        loop {
            at += timeout.mul_f64(1.0 + 9.0 * rng.f64());
            if at >= lasts {
                break;
            }
            let most = between(rng, Duration::from_millis(1), timeout / 8);
            let lag = Fault::Lag {
                member: rng.usize(..mix.members),
                least: most.mul_f64(rng.f64()),
                most,
                lasts: between(rng, timeout, timeout * 6),
            };
            self.0.push((at, lag));
        }
        self.0.sort_by_key(|(at, _)| *at);
    }

    /// Adds processes, and threads of them, that are stopped at a step. Half of the times another
    /// fault parts the process from the others at about the same time.
    pub fn add_stops_at_steps(&mut self, rng: &mut Rng, lasts: Duration, mix: &Mix) {
        let pause = between(rng, mix.session_timeout, mix.session_timeout * 12);
        self.add_stops(rng, lasts, mix, pause, |rng| Fault::stop_at_step(rng, mix), Rng::bool);
    }

    /// Adds such stops at random times, `pause` apart on the average. After each of them `parts`
    /// draws whether another fault parts the process from the others at about the same time.
    fn add_stops(
        &mut self,
        rng: &mut Rng,
        lasts: Duration,
        mix: &Mix,
        pause: Duration,
        stop: impl Fn(&mut Rng) -> Fault,
        parts: impl Fn(&mut Rng) -> bool,
    ) {
        let (mut at, mut burst) = (Duration::ZERO, self.bursts());
        loop {
            at += pause.mul_f64(2.0 * rng.f64());
            if at >= lasts {
                break;
            }
            let focus = Focus { burst, is_holder: rng.bool(), number: rng.usize(..1_000) };
            let focused = |fault| Fault::Focused { focus, fault: Box::new(fault) };
            self.0.push((at, focused(stop(rng))));
            if parts(rng) {
                let beside = at + mix.session_timeout.mul_f64(0.3 * rng.f64());
                self.0.push((beside, focused(Fault::parting(rng, mix))));
            }
            burst += 1;
        }
        self.0.sort_by_key(|(at, _)| *at);
    }

    /// Adds nodes of waiters that an operator deletes, most often together with the node ahead.
    /// Half of the times a process does not run meanwhile: so it hears of both at once.
    pub fn add_deletes_of_waiters(&mut self, rng: &mut Rng, lasts: Duration, mix: &Mix) {
        let timeout = mix.session_timeout;
        let pause = between(rng, timeout / 2, timeout * 8);
        let mut at = Duration::ZERO;
        loop {
            at += pause.mul_f64(2.0 * rng.f64());
            if at >= lasts {
                break;
            }
            let beside = [Beside::Nothing, Beside::AheadFirst, Beside::AheadLast][rng.usize(..3)];
            self.0.push((at, Fault::DeleteWaiting { number: rng.usize(..1_000), beside }));
            if rng.bool() {
                let process = rng.usize(..mix.processes);
                let lasts = between(rng, timeout / 100, timeout / 8);
                self.0.push((at, Fault::Stop { process, lasts }));
            }
        }
        self.0.sort_by_key(|(at, _)| *at);
    }

    /// Adds handshakes that come late to the leader.
    pub fn add_late_handshakes(&mut self, rng: &mut Rng, lasts: Duration, mix: &Mix) {
        let mut at = Duration::ZERO;
        loop {
            at += mix.session_timeout.mul_f64(1.5 + 6.0 * rng.f64());
            if at >= lasts {
                break;
            }
            self.0.push((at, Fault::LateHandshakes(LateHandshakes::random(rng, mix))));
        }
        self.0.sort_by_key(|(at, _)| *at);
    }

    /// Adds threads that are stopped a few steps after the begin of a call or the end of a wait. One
    /// time in four another fault parts the process from the others at about the same time.
    pub fn add_stops_in_calls(&mut self, rng: &mut Rng, lasts: Duration, mix: &Mix, closes: bool) {
        let pause = between(rng, mix.session_timeout / 4, mix.session_timeout * 4);
        let stop = |rng: &mut Rng| Fault::stop_in_call(rng, mix, closes);
        self.add_stops(rng, lasts, mix, pause, stop, |rng| rng.u32(..4) == 0);
    }

    /// Adds an operator that deletes several nodes of a queue at once. Half of the times the
    /// connection of a holder is cut just before, or a thread that hears of it stops soon after.
    pub fn add_deletes(&mut self, rng: &mut Rng, lasts: Duration, mix: &Mix) {
        let timeout = mix.session_timeout;
        let pause = between(rng, timeout, timeout * 6);
        let (mut at, mut burst) = (Duration::ZERO, self.bursts());
        loop {
            at += pause.mul_f64(2.0 * rng.f64());
            if at >= lasts {
                break;
            }
            let delete = Fault::DeleteSeveral {
                lock: rng.usize(..mix.locks),
                queue: rng.usize(..1_000),
                first: [0, 0, 0, 1, 2][rng.usize(..5)],
                count: [1, 2, 2, 3][rng.usize(..4)],
                backwards: rng.bool(),
            };
            self.0.push((at, delete));
            let focus = Focus { burst, is_holder: true, number: rng.usize(..1_000) };
            let focused = |fault| Fault::Focused { focus, fault: Box::new(fault) };
            match rng.u32(..6) {
                0 | 1 => {
                    let before = between(rng, Duration::from_micros(1), timeout / 50);
                    self.0.push((at.saturating_sub(before), focused(Fault::Cut { number: 0 })));
                }
                2 => {
                    let step = Step {
                        touch: Touch::Read,
                        is_own: Some(true),
                        nth: 1,
                        then: rng.u32(1..=120),
                    };
                    let lasts = between(rng, Duration::from_micros(10), timeout / 3);
                    let stop = Fault::StopAt { process: 0, step, is_alone: true, lasts };
                    self.0.push((at, focused(stop)));
                }
                _ => {}
            }
            burst += 1;
        }
        self.0.sort_by_key(|(at, _)| *at);
    }

    /// Adds the last that the leader hears of holders. A packet takes `packet` at most. If
    /// `may_shorten`, nothing else happens in the run: then no answer to a handshake is lost, and
    /// the servers may grant shorter timeouts for a while.
    pub fn add_last_words(
        &mut self,
        rng: &mut Rng,
        lasts: Duration,
        mix: &Mix,
        packet: Duration,
        may_shorten: bool,
    ) {
        let (mut at, mut burst) = (Duration::ZERO, self.bursts());
        loop {
            at += mix.session_timeout.mul_f64(2.0 + 2.0 * rng.f64()) + mix.tick;
            if at >= lasts {
                break;
            }
            let focus = Focus { burst, is_holder: true, number: rng.usize(..1_000) };
            let last = LastWords::random(rng, mix, packet, may_shorten);
            let shortens = last.shorter.is_some();
            if shortens {
                // What was before is over.
                at += mix.session_timeout * 2;
            }
            self.0.push((at, Fault::Focused { focus, fault: Box::new(Fault::LastWords(last)) }));
            if shortens {
                // In a calm the session must lose nothing, whatever timeout it has by then.
                at += mix.session_timeout * 4;
            }
            burst += 1;
        }
        self.0.sort_by_key(|(at, _)| *at);
    }

    /// Adds what happens to servers and names in ordinary life: servers that move one after the
    /// other, all at once or alone, look-ups that fail, servers that half work, and slow lines.
    pub fn add_ordinary(&mut self, rng: &mut Rng, lasts: Duration, mix: &Mix, names: usize) {
        let timeout = mix.session_timeout;
        let pause = between(rng, timeout, timeout * 8);
        let mut at = Duration::ZERO;
        loop {
            at += pause.mul_f64(2.0 * rng.f64());
            if at >= lasts {
                break;
            }
            let lasts = between(rng, timeout / 8, timeout * 2);
            let (process, member) = (rng.usize(..mix.processes), rng.usize(..mix.members));
            match rng.u32(..12) {
                0..5 if !mix.movable.is_empty() => self.0.extend(moves(rng, at, mix)),
                0..7 if names > 0 => {
                    let name = rng.usize(..names);
                    let trouble = match rng.u32(..4) {
                        0 => LookUps::NoSuchName,
                        1 => LookUps::Fail(between(rng, Duration::from_millis(1), timeout)),
                        _ => LookUps::Late(between(rng, Duration::from_millis(5), timeout * 2)),
                    };
                    self.0.push((at, Fault::LookUps { name, trouble, lasts: lasts * 2 }));
                }
                7 | 8 if mix.listing > 0 => {
                    self.0.push((at, Fault::slow_line(rng, mix, process, lasts * 3)));
                }
                9 => {
                    let lasts = timeout.mul_f64(1.0 + 5.0 * rng.f64());
                    self.0.push((at, Fault::OnlyDeaf { process, member, lasts }));
                }
                _ => {
                    let how = [Half::Swallows, Half::Mute, Half::Deaf][rng.usize(..3)];
                    self.0.push((at, Fault::HalfWorks { member, how, lasts: lasts * 2 }));
                }
            }
        }
        self.0.sort_by_key(|(at, _)| *at);
    }

    /// Adds contenders of other libraries, which come to these locks.
    pub fn add_visits(&mut self, rng: &mut Rng, lasts: Duration, mix: &Mix, places: &[Place]) {
        let pause = between(rng, mix.session_timeout / 2, mix.session_timeout * 8);
        let mut at = Duration::ZERO;
        while at < lasts {
            let lock = rng.usize(..places.len());
            if let Some(who) = Visitor::random(rng, &places[lock].recipe) {
                let lasts = visitors::stands(rng, mix.session_timeout);
                self.0.push((at, Fault::Visit { lock, who, lasts }));
            }
            at += pause.mul_f64(2.0 * rng.f64());
        }
        self.0.sort_by_key(|(at, _)| *at);
    }

    /// A plan in which the servers are slow again and again, and nothing is wrong.
    pub fn slow_servers(rng: &mut Rng, lasts: Duration, most: Duration) -> Plan {
        let (mut plan, mut at) = (Plan::default(), Duration::ZERO);
        while at < lasts {
            let least = between(rng, most / 6, most);
            let most = between(rng, least, most);
            let slow = between(rng, most * 8, most * 40);
            plan.0.push((at, Fault::SlowServers { least, most, lasts: slow }));
            at += slow + between(rng, Duration::from_millis(10), most * 8);
        }
        plan
    }

    /// The longest time that a slow server takes for an answer.
    pub fn slowest_answer(&self) -> Duration {
        let most = |fault: &Fault| match fault {
            Fault::SlowServers { most, .. } => Some(*most),
            _ => None,
        };
        self.0.iter().filter_map(|(_, fault)| most(fault)).max().unwrap_or_default()
    }

    /// A plan in which the lines of all processes are slow again and again, and nothing else happens.
    pub fn slow_lines(rng: &mut Rng, lasts: Duration, mix: &Mix) -> Plan {
        let (timeout, mut plan, mut at) = (mix.session_timeout, Plan::default(), Duration::ZERO);
        while at < lasts {
            for process in 0..mix.processes {
                plan.0.push((at, Fault::slow_line(rng, mix, process, timeout * 6)));
            }
            at += timeout * 8;
        }
        plan
    }

    /// The number of bursts so far.
    fn bursts(&self) -> usize {
        let number = |fault: &Fault| match fault {
            Fault::Focused { focus, .. } => Some(focus.burst),
            _ => None,
        };
        self.0.iter().filter_map(|(_, fault)| number(fault)).max().map_or(0, |last| last + 1)
    }

    /// A plan in which every clock runs too fast or too slow from the beginning.
    pub fn all_drift(rng: &mut Rng, mix: &Mix) -> Plan {
        let processes = (0..mix.processes).map(|process| (process, true));
        let members = (0..mix.members).map(|member| (member, false));
        let fault = |(number, is_process)| match drift(rng, mix) {
            ppm if is_process => Fault::Drift { process: number, ppm: ppm.into() },
            ppm => Fault::DriftServer { member: number, ppm },
        };
        Plan(processes.chain(members).map(fault).map(|fault| (Duration::ZERO, fault)).collect())
    }

    /// The shortest timeout that a server grants to a client that asks for this one.
    pub fn shortest_timeout(&self, asked: Duration) -> Duration {
        let granted = |fault: &Fault| match fault {
            Fault::Limits { most, .. } => Some(*most),
            Fault::Focused { fault, .. } => match **fault {
                Fault::Limits { most, .. } => Some(most),
                Fault::LastWords(ref last) => last.shorter.map(|(most, _)| most),
                _ => None,
            },
            _ => None,
        };
        self.0.iter().filter_map(|(_, fault)| granted(fault)).fold(asked, Duration::min)
    }

    /// How often each kind of fault is in the plan.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = BTreeMap::new();
        for (_, fault) in &self.0 {
            *counts.entry(fault.kind()).or_default() += 1;
        }
        counts
    }
}

/// Servers that move, from this time on: one, or all of them, at once or one after the other.
fn moves(rng: &mut Rng, at: Duration, mix: &Mix) -> Vec<(Duration, Fault)> {
    let timeout = mix.session_timeout;
    let step = timeout.mul_f64([0.0, 0.1 + rng.f64(), 0.1 + rng.f64()][rng.usize(..3)]);
    let pause = between(rng, Duration::from_millis(1), timeout / 2);
    let named_after = match rng.bool() {
        true => Duration::ZERO,
        false => between(rng, Duration::from_millis(1), timeout),
    };
    let is_gone = rng.bool();
    let mut members = mix.movable.clone();
    rng.shuffle(&mut members);
    if rng.u32(..3) == 0 {
        members.truncate(1);
    }
    let mut move_one = |(number, member)| {
        let old = [Old::Swallows, Old::Swallows, Old::Refuses, Old::Stranger][rng.usize(..4)];
        let moves = Fault::MoveServer { member, pause, named_after, is_gone, old };
        (at + step * number, moves)
    };
    (0_u32..).zip(members).map(&mut move_one).collect()
}

/// Two to four faults at one process and its server, at once or shortly after each other.
fn burst(rng: &mut Rng, at: Duration, mix: &Mix, focus: Focus) -> Vec<(Duration, Fault)> {
    let spread = mix.session_timeout.mul_f64([0.0, 0.05, 0.35][rng.usize(..3)]);
    let count = rng.usize(2..=4);
    let fault = |_| {
        let fault =
            if rng.u32(..4) == 0 { Fault::random(rng, mix) } else { Fault::parting(rng, mix) };
        (at + spread.mul_f64(rng.f64()), Fault::Focused { focus, fault: Box::new(fault) })
    };
    (0..count).map(fault).collect()
}
