//! The faults of a storm, in the order that the seed gives.
//!
//! The plan has a sequence of faults for each worker and one for the servers. A sequence makes one
//! fault at a time; the sequences go on side by side. How far a sequence gets depends on the
//! machine.
use crate::support::{Direction, Isolation, OpKind};
use std::time::Duration;

/// A fault of a worker: of its process, or of its proxies to the servers.
#[derive(Clone, Copy, Debug)]
pub enum WorkerFault {
    Cut,
    Refuse,
    Hole,
    OneWay(Direction),
    Freeze,
    HalfOpen,
    Delay(Duration),
    LostReply(OpKind),
    LostRequest(OpKind),
    Stop,
    Kill,
}

/// A fault of the servers: of one process, of all, or of the proxies between them.
#[derive(Clone, Copy, Debug)]
pub enum ServerFault {
    Kill,
    Stop,
    DiskFull,
    RollingRestart,
    StopAll,
    KillAll,
    Isolate(Isolation),
    OneWay(Direction),
    Delay(Duration),
}

/// A fault, with the pause before it and its length.
pub struct Next<F> {
    pub pause: Duration,
    pub fault: F,
    pub lasts: Duration,
    /// The member, or the worker's proxy to this member; None for all its proxies.
    pub member: Option<usize>,
}

/// The faults of one worker, or of the servers.
pub struct Sequence {
    random: fastrand::Rng,
    timeout: Duration,
    members: usize,
    /// The numbers that are still to be drawn before all are there again. So the rare faults do not
    /// depend on chance.
    deck: Vec<u32>,
}

impl Sequence {
    pub fn new(seed: u64, number: usize, timeout: Duration, members: usize) -> Sequence {
        let random = fastrand::Rng::with_seed(seed.wrapping_mul(1_000).wrapping_add(number as u64));
        Sequence { random, timeout, members, deck: Vec::new() }
    }

    /// A seed for the sequence's next worker.
    pub fn seed(&mut self) -> u64 {
        self.random.u64(..)
    }

    fn draw(&mut self, below: u32) -> u32 {
        if self.deck.is_empty() {
            self.deck.extend(0..below);
            self.random.shuffle(&mut self.deck);
        }
        self.deck.pop().unwrap_or_default()
    }

    pub fn next_of_worker(&mut self) -> Next<WorkerFault> {
        let drawn = self.draw(24);
        let random = &mut self.random;
        let direction = if random.bool() { Direction::ToServer } else { Direction::ToClient };
        let delay = Duration::from_millis(random.u64(5..300));
        let kinds =
            [OpKind::Create, OpKind::Create, OpKind::Delete, OpKind::GetChildren, OpKind::GetData];
        let kind = kinds[random.usize(..kinds.len())];
        let fault = match drawn {
            0..3 => WorkerFault::Cut,
            3..5 => WorkerFault::Refuse,
            5..8 => WorkerFault::Hole,
            8..10 => WorkerFault::OneWay(direction),
            10..12 => WorkerFault::Freeze,
            12..14 => WorkerFault::HalfOpen,
            14..16 => WorkerFault::Delay(delay),
            16..18 => WorkerFault::LostReply(kind),
            18..19 => WorkerFault::LostRequest(kind),
            19..22 => WorkerFault::Stop,
            _ => WorkerFault::Kill,
        };
        let member = (self.random.u32(0..3) == 0).then(|| self.random.usize(..self.members));
        Next { pause: self.pause(2_500), fault, lasts: self.length(), member }
    }

    pub fn next_of_servers(&mut self) -> Next<ServerFault> {
        let drawn = self.draw(if self.members == 1 { 9 } else { 20 });
        let random = &mut self.random;
        let direction = if random.bool() { Direction::ToServer } else { Direction::ToClient };
        let delay = Duration::from_millis(random.u64(5..200));
        let fault = match drawn {
            0..4 => ServerFault::Kill,
            4..7 => ServerFault::Stop,
            7..9 => ServerFault::DiskFull,
            // Only ensembles have these faults.
            9 => ServerFault::StopAll,
            10 => ServerFault::KillAll,
            11 => ServerFault::RollingRestart,
            12..14 => ServerFault::Isolate(Isolation::BlackHole),
            14..16 => ServerFault::Isolate(Isolation::Cut),
            16..18 => ServerFault::OneWay(direction),
            _ => ServerFault::Delay(delay),
        };
        let member = Some(self.random.usize(..self.members));
        // The lease allows for a leader that pauses for less than a twelfth of the session timeout
        // before its follower is cut off. So a server that was stopped runs for a while before the
        // next fault.
        let pause = Duration::from_secs(1) + self.pause(1_500);
        Next { pause, fault, lasts: self.length(), member }
    }

    fn pause(&mut self, most: u64) -> Duration {
        Duration::from_millis(self.random.u64(0..most))
    }

    /// Most are shorter than a lease.
    fn length(&mut self) -> Duration {
        let part = self.random.f64();
        self.timeout.mul_f64(match self.random.u32(0..10) {
            0..6 => 0.02 + 0.3 * part,
            6..9 => 0.3 + 0.7 * part,
            _ => 1.0 + part,
        })
    }
}

impl WorkerFault {
    pub fn kind(self) -> &'static str {
        match self {
            WorkerFault::Cut => "cut",
            WorkerFault::Refuse => "refuse",
            WorkerFault::Hole => "hole",
            WorkerFault::OneWay(_) => "one_way",
            WorkerFault::Freeze => "freeze",
            WorkerFault::HalfOpen => "half_open",
            WorkerFault::Delay(_) => "delay",
            WorkerFault::LostReply(_) => "lost_reply",
            WorkerFault::LostRequest(_) => "lost_request",
            WorkerFault::Stop => "worker_stop",
            WorkerFault::Kill => "worker_kill",
        }
    }

    /// Whether the fault hits only what exists now, and nothing that comes later.
    pub fn is_over_at_once(self) -> bool {
        matches!(self, WorkerFault::Cut | WorkerFault::Freeze | WorkerFault::HalfOpen)
    }
}

impl ServerFault {
    pub fn kind(self) -> &'static str {
        match self {
            ServerFault::Kill => "server_kill",
            ServerFault::Stop => "server_stop",
            ServerFault::DiskFull => "disk_full",
            ServerFault::RollingRestart => "rolling_restart",
            ServerFault::StopAll => "all_servers_stop",
            ServerFault::KillAll => "all_servers_kill",
            ServerFault::Isolate(Isolation::BlackHole) => "quorum_hole",
            ServerFault::Isolate(Isolation::Cut) => "quorum_cut",
            ServerFault::OneWay(_) => "quorum_one_way",
            ServerFault::Delay(_) => "quorum_delay",
        }
    }
}
