//! A world in which threaded programs run the same way each time: a virtual clock, threads of which
//! one runs at a time, processes that can be stopped and killed, and a network in memory.
//!
//! A program under test takes its clock, its locks, channels, threads, sockets and random numbers
//! from [`library`] instead of the standard library. [`run`] then makes everything that happens a
//! function of one seed. This crate knows nothing of what runs in it.
//!
//! # How it works
//!
//! * **One thread at a time.** Each simulated thread is a coroutine with a stack of its own. All
//!   coroutines run on the one thread of the operating system that called [`run`]. At a *scheduling
//!   point* (a lock, an atomic, a channel, a clock, a socket, a new thread) the seed decides
//!   whether the running thread continues or another one does. To continue costs some nanoseconds;
//!   a switch costs some tens of nanoseconds. With one thread of the operating system for each
//!   simulated thread, a switch would cost some microseconds.
//! * **Time.** Each scheduling point takes a microsecond of virtual time, so that a loop that waits
//!   for the clock ends. When no thread can run, the clock jumps to the next timer or event. Each
//!   process sees the time through a clock of its own, which may be wrong and may drift.
//! * **Events.** An action of the world (a packet arrives, a server's timer fires, a fault begins)
//!   is a function in a queue, ordered by time and then by the order of the calls of [`after`]. It
//!   runs between two steps of the threads and must not block.
//! * **Preemption.** The seed chooses the next thread. Now and then it also takes the processor
//!   from a thread for up to some milliseconds, as operating systems do. This finds faults that a
//!   fair choice at each step would rarely find.
//! * **Stops.** A process is stopped at a time, or at a step ([`at_step`]): between two operations
//!   of a thread. A single thread can lose the processor there for any time ([`hold_thread`]).
//! * **The end.** A run ends when [`finish`] or [`fail`] is called, at the time limit, or when no
//!   thread can ever run again, which is a failure. A watchdog finds a thread that runs without
//!   scheduling points, and ends the process of the operating system. [`Report::hash`] is a hash
//!   over every step: two runs with the same hash were the same.
//!
//! # Why not shuttle
//!
//! [shuttle](https://docs.rs/shuttle) also runs threads as coroutines, one at a time, and chooses
//! the next one by a seed. But it has no time: `sleep` only changes threads, and a wait with a
//! timeout is a wait without one. So a program in which all threads wait for a deadline counts as
//! deadlocked (shuttle 0.8, `thread.rs`). A lock with a lease needs time above all. shuttle also
//! has no processes that could be killed, stopped or given clocks of their own, no sockets, and no
//! `select` over channels like crossbeam's. Only the switch of stacks would remain, and the crate
//! `generator` does this for both.
//!
//! # What it does not find
//!
//! Errors that need a memory order weaker than sequential consistency.

#![deny(missing_docs)]

mod atomic;
mod chance;
mod channel;
mod core;
mod net_client;
mod once;
mod process;
mod steps;
mod sync;
pub mod thread;
mod time;
mod trace;

pub mod net;

#[cfg(test)]
mod tests;

pub use self::chance::Rng;
pub use self::core::{
    Config, Failure, Policy, Report, after, as_world, at, fail, finish, is_running, now, on_step,
    rng, run, stats,
};
pub use self::process::{
    Death, ProcessId, ProcessSettings, clock_of, exit, host_of, is_alive, kill, process_name,
    resume, set_drift, sleep_host, slept_for, spawn, stop, stopped_for, this_process,
};
pub use self::steps::{Call, Step, Touch, at_step, call_begins, call_ends, hold_thread};
pub use self::trace::note;

/// The names that a program under test uses instead of those of the standard library.
pub mod library {
    pub use std::collections::hash_map::DefaultHasher;
    use std::hash::BuildHasherDefault;

    pub use crossbeam_channel::{RecvTimeoutError, TrySendError};
    pub use mio::{Interest, Token};

    /// See `std::sync::atomic`.
    pub mod atomic {
        pub use crate::atomic::*;
    }

    /// Stands for the type of the crate `forkguard`. In the simulation no process forks.
    #[derive(Clone)]
    pub struct ForkGuard;

    impl ForkGuard {
        /// A guard, which belongs to this process.
        pub fn try_new() -> Result<Self, std::convert::Infallible> {
            Ok(ForkGuard)
        }

        /// Whether this process is a forked child of the process that made the guard.
        pub fn detected_fork(&mut self) -> bool {
            false
        }
    }

    pub use crate::chance::{new_uuid, random, shuffle};
    pub use crate::channel::{Receiver, Select, Sender, bounded, never, unbounded};
    pub use crate::net_client::{Events, Poll, Registry, TcpStream, Waker, resolve, socket};
    pub use crate::once::{LazyLock, OnceLock};
    pub use crate::process::host_and_process;
    pub use crate::sync::Mutex;
    pub use crate::thread::{self, is_own_thread, spawn_own, this_thread};
    pub use crate::time::{Instant, boot_time, wall_time};

    /// Iterates in the same order in each run.
    pub type HashMap<K, V, S = BuildHasherDefault<DefaultHasher>> =
        std::collections::HashMap<K, V, S>;
    /// Iterates in the same order in each run.
    pub type HashSet<T, S = BuildHasherDefault<DefaultHasher>> = std::collections::HashSet<T, S>;
}
