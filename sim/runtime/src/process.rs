//! Processes: threads with a common address, clock and statics, which end together.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::{self, Sim, State};
use crate::net;

/// A process of this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub(crate) usize);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The settings of a new process.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The name, for people.
    pub name: String,
    /// Its host. Faults of the network happen between hosts.
    pub ip: IpAddr,
    /// The time that its clocks show when the run begins.
    pub clock: Duration,
    /// How much too fast its clocks run, in millionths; below zero they run too slowly.
    pub drift_ppm: i64,
    /// The error of its wall clock, in milliseconds.
    pub wall_offset_ms: i64,
}

impl ProcessSettings {
    /// A process whose clocks are right.
    pub fn new(name: &str, ip: impl Into<IpAddr>) -> ProcessSettings {
        ProcessSettings {
            name: name.to_owned(),
            ip: ip.into(),
            clock: Duration::from_secs(1_000),
            drift_ppm: 0,
            wall_offset_ms: 0,
        }
    }
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Death {
    /// The system of its host closes its sockets, and the other ends notice it.
    Killed,
    /// Its host is gone, and the other ends notice nothing.
    PowerLost,
}

/// A process's clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clock {
    /// The moment at which the rate was last set: by the world's time, and by this clock.
    world: u64,
    local: u64,
    drift_ppm: i64,
    /// The time that its host has slept: the monotonic clock stopped then, the boot-time clock did
    /// not.
    slept: u64,
    /// The number of current sleeps, and their begin by the boot-time clock.
    sleeps: u32,
    asleep_since: u64,
    wall_offset_ms: i64,
}

const MILLION: i128 = 1_000_000;

/// The time of wall clocks when the run begins: 2025-01-01, in milliseconds since 1970.
const EPOCH_MS: i64 = 1_735_689_600_000;

impl Clock {
    fn rate(&self) -> i128 {
        (MILLION + i128::from(self.drift_ppm)).max(1)
    }

    pub(crate) fn boot(&self, now: u64) -> u64 {
        let passed = i128::from(now.saturating_sub(self.world)) * self.rate() / MILLION;
        self.local.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    pub(crate) fn monotonic(&self, now: u64) -> u64 {
        self.boot(now).saturating_sub(self.slept)
    }

    /// The first time of the world at which the monotonic clock shows this time.
    pub(crate) fn global_at(&self, monotonic: u64) -> u64 {
        let left = i128::from(monotonic.saturating_add(self.slept)) - i128::from(self.local);
        let left = (left.max(0) * MILLION + self.rate() - 1) / self.rate();
        self.world.saturating_add(u64::try_from(left).unwrap_or(u64::MAX))
    }

    pub(crate) fn wall_ms(&self, now: u64) -> i64 {
        let start = i64::try_from(now).unwrap_or(i64::MAX) / 1_000_000;
        EPOCH_MS + start + self.wall_offset_ms
    }
}

pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) ip: IpAddr,
    pub(crate) clock: Clock,
    is_alive: bool,
    /// The number of stops in force.
    stops: u32,
    /// The number of stops in force, of the process and of single threads. The begin of the current
    /// ones, and the length of all earlier ones, in the world's time.
    halts: u32,
    halted_at: u64,
    halted_for: u64,
    /// The values of its statics, by their addresses.
    pub(crate) statics: BTreeMap<usize, &'static (dyn Any + Send + Sync)>,
}

impl Process {
    pub(crate) fn runs(&self) -> bool {
        self.is_alive && self.stops == 0
    }

    pub(crate) fn describe(&self) -> &'static str {
        match (self.is_alive, self.stops) {
            (false, _) => " (of a process that has ended)",
            (true, 0) => "",
            (true, _) => " (of a process that is stopped)",
        }
    }
}

/// Starts a process. It ends when `main` returns, with all its threads.
pub fn spawn(settings: ProcessSettings, main: impl FnOnce() + Send + 'static) -> ProcessId {
    let ProcessSettings { name, ip, clock, drift_ppm, wall_offset_ms } = settings;
    core::with(|sim| {
        let clock = Clock {
            world: 0,
            local: u64::try_from(clock.as_nanos()).unwrap_or(0),
            drift_ppm,
            slept: 0,
            sleeps: 0,
            asleep_since: 0,
            wall_offset_ms,
        };
        let mut processes = sim.processes.borrow_mut();
        let process = ProcessId(processes.len());
        sim.note(&format!("process {process} ({name}) starts at {ip}"));
        processes.push(Process {
            name,
            ip,
            clock,
            is_alive: true,
            stops: 0,
            halts: 0,
            halted_at: 0,
            halted_for: 0,
            statics: BTreeMap::new(),
        });
        drop(processes);
        sim.start(
            "main".to_owned(),
            process,
            Box::new(move || {
                main();
                exit();
            }),
        );
        process
    })
}

/// The process of the calling thread; none for the world.
pub fn this_process() -> Option<ProcessId> {
    core::with(Sim::current_process)
}

/// The process's name.
pub fn process_name(process: ProcessId) -> String {
    core::with(|sim| sim.processes.borrow()[process.0].name.clone())
}

/// The address of its host.
pub fn host_of(process: ProcessId) -> IpAddr {
    core::with(|sim| ip_of(sim, Some(process)))
}

/// Whether it has not ended. It may be stopped.
pub fn is_alive(process: ProcessId) -> bool {
    core::with(|sim| sim.processes.borrow()[process.0].is_alive)
}

/// Ends the calling thread's process.
pub fn exit() -> ! {
    let process = this_process().expect("the world is no process");
    kill(process, Death::Killed);
    core::with(|sim| sim.vanish())
}

/// Ends a process: none of its threads runs again. Locks that they hold are never released.
pub fn kill(process: ProcessId, death: Death) {
    let was_alive = core::with(|sim| {
        let was_alive =
            std::mem::replace(&mut sim.processes.borrow_mut()[process.0].is_alive, false);
        if was_alive {
            sim.note(&format!("process {process} ends: {death:?}"));
            sim.threads_of(process).into_iter().for_each(|thread| sim.unlist(thread));
            sim.forget_steps(process);
        }
        was_alive
    });
    if was_alive {
        net::process_ended(process, death);
    }
}

/// Stops a process: its threads do not run, while the world goes on. Several stops may be in force
/// at once.
pub fn stop(process: ProcessId) {
    core::with(|sim| {
        sim.note(&format!("process {process} is stopped"));
        sim.processes.borrow_mut()[process.0].stops += 1;
        sim.threads_of(process).into_iter().for_each(|thread| sim.unlist(thread));
    });
    halt(process);
}

/// The process, or one of its threads, does not run from now on.
pub(crate) fn halt(process: ProcessId) {
    core::with(|sim| {
        let halted = &mut sim.processes.borrow_mut()[process.0];
        if halted.halts == 0 {
            halted.halted_at = sim.now.get();
        }
        halted.halts += 1;
    });
}

/// Ends one `halt`.
pub(crate) fn go_on(process: ProcessId) {
    core::with(|sim| {
        let halted = &mut sim.processes.borrow_mut()[process.0];
        halted.halts -= 1;
        if halted.halts == 0 {
            halted.halted_for += sim.now.get() - halted.halted_at;
        }
    });
}

/// Ends one `stop`.
pub fn resume(process: ProcessId) {
    core::with(|sim| {
        sim.note(&format!("process {process} goes on"));
        sim.processes.borrow_mut()[process.0].stops -= 1;
    });
    go_on(process);
    core::with(|sim| {
        for thread in sim.threads_of(process) {
            if sim.threads.borrow()[thread].state == State::Runnable {
                sim.list(thread);
            }
        }
    });
}

/// How long a process has been stopped until now, including the sleeps of its host, and the time in
/// which one of its threads was held. Other threads may have waited for that thread.
pub fn stopped_for(process: ProcessId) -> Duration {
    core::with(|sim| {
        let process = &sim.processes.borrow()[process.0];
        let current = if process.halts == 0 { 0 } else { sim.now.get() - process.halted_at };
        Duration::from_nanos(process.halted_for + current)
    })
}

/// How long the host of this process has slept, up to the end of its last sleep and by the
/// process's own clock.
pub fn slept_for(process: ProcessId) -> Duration {
    core::with(|sim| Duration::from_nanos(sim.processes.borrow()[process.0].clock.slept))
}

/// Sets how much too fast the clocks of this process run, in millionths.
pub fn set_drift(process: ProcessId, drift_ppm: i64) {
    change_clock(process, |clock| clock.drift_ppm = drift_ppm);
}

/// Lets the host of this process sleep: the process does not run, its monotonic clock stops, and
/// its boot-time clock goes on.
pub fn sleep_host(process: ProcessId, lasts: Duration) {
    stop(process);
    change_clock(process, |clock| {
        if clock.sleeps == 0 {
            clock.asleep_since = clock.local;
        }
        clock.sleeps += 1;
    });
    core::after(lasts, move || {
        // Two sleeps that overlap count as one. Otherwise the monotonic clock would go back.
        change_clock(process, |clock| {
            clock.sleeps -= 1;
            if clock.sleeps == 0 {
                clock.slept += clock.local - clock.asleep_since;
            }
        });
        resume(process);
    });
}

fn change_clock(process: ProcessId, change: impl FnOnce(&mut Clock)) {
    core::with(|sim| {
        let now = sim.now.get();
        let clock = &mut sim.processes.borrow_mut()[process.0].clock;
        (clock.local, clock.world) = (clock.boot(now), now);
        change(clock);
    });
    core::with(|sim| sim.set_timers_again(process));
}

/// The time on the boot-time clock of this process.
pub fn clock_of(process: ProcessId) -> Duration {
    core::with(|sim| {
        Duration::from_nanos(sim.processes.borrow()[process.0].clock.boot(sim.now.get()))
    })
}

/// The host and the process, as a text for people.
pub fn host_and_process() -> String {
    core::with(|sim| match sim.current_process() {
        Some(process) => format!("{}:{process}", sim.processes.borrow()[process.0].ip),
        None => "the world:0".to_owned(),
    })
}

pub(crate) fn ip_of(sim: &Sim, process: Option<ProcessId>) -> IpAddr {
    process.map_or(Ipv4Addr::LOCALHOST.into(), |process| sim.processes.borrow()[process.0].ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_drifts_shows_a_time_exactly_when_it_is_said_to() {
        for drift_ppm in [-90_000, -1, 0, 7, 83_333] {
            let clock = Clock {
                world: 5_000,
                local: 70_000,
                drift_ppm,
                slept: 11,
                sleeps: 0,
                asleep_since: 0,
                wall_offset_ms: 0,
            };
            for shown in [69_989, 70_000, 70_001, 123_456, 987_654_321_000] {
                let at = clock.global_at(shown);
                assert!(clock.monotonic(at) >= shown, "{drift_ppm} {shown}");
                assert!(
                    at == clock.world || clock.monotonic(at - 1) < shown,
                    "{drift_ppm} {shown}"
                );
            }
        }
    }
}
