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
//!   whether the running thread goes on or another one does. To go on costs some nanoseconds, to
//!   change threads some tens of nanoseconds. With threads of the operating system, of which one
//!   runs and wakes the next, a change would cost some microseconds.
//! * **Time.** Each scheduling point takes a microsecond of virtual time, so that a loop on the
//!   clock ends. When no thread can run, the clock jumps to the next timer or event. Each process
//!   sees the time through a clock of its own, which may be off and may drift.
//! * **Events.** What the world does (a packet arrives, a server's timer fires, a fault begins) is
//!   a function in a queue, ordered by time and then by the order in which it was put there. See
//!   [`after`]. It runs between two steps of the threads and must not block.
//! * **Preemption.** Besides choosing who is next, the seed now and then takes the processor from a
//!   thread for up to some milliseconds, as operating systems do. That finds what a fair choice at
//!   each step would find rarely.
//! * **The end.** A run ends when [`finish`] or [`fail`] is called, at the time limit, or when no
//!   thread can ever run again, which is a failure. A thread that runs on without scheduling points
//!   is found by a watchdog, which ends the process of the operating system. [`Report::hash`] is a
//!   hash over every step: two runs with the same hash were the same.
//!
//! # Why not shuttle
//!
//! [shuttle](https://docs.rs/shuttle) also runs threads as coroutines, one at a time, and chooses
//! the next one by a seed. It has no notion of time: `sleep` is a mere change of threads, and a
//! wait with a timeout is a wait without one, so that a program in which all threads wait for a
//! deadline counts as deadlocked (shuttle 0.8, `thread.rs`). A lock with a lease is about little
//! but time. It has no processes, so nothing to kill, to stop or to give a clock of its own; no
//! sockets; and no `select` over channels of crossbeam's kind. What would be left of it is the
//! change of stacks, which the crate `generator` does for both.
//!
//! # What it does not show
//!
//! Memory orders weaker than sequential consistency.

#![deny(missing_docs)]

mod atomic;
mod chance;
mod channel;
mod core;
mod net_client;
mod once;
mod process;
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
    Death, ProcessId, ProcessSettings, clock_of, exit, is_alive, kill, process_name, resume,
    set_drift, sleep_host, spawn, stop, stopped_for, this_process,
};
pub use self::trace::note;

/// The names that a program under test uses, as its own module of names in a normal build has them.
pub mod library {
    pub use std::collections::hash_map::DefaultHasher;
    use std::hash::BuildHasherDefault;

    pub use crossbeam_channel::{RecvTimeoutError, TrySendError};
    pub use mio::{Interest, Token};

    /// See `std::sync::atomic`.
    pub mod atomic {
        pub use crate::atomic::*;
    }

    pub use crate::chance::{new_uuid, random, shuffle};
    pub use crate::channel::{Receiver, Select, Sender, bounded, never, unbounded};
    pub use crate::net_client::{Events, Poll, Registry, TcpStream, Waker, resolve, socket};
    pub use crate::once::{LazyLock, OnceLock};
    pub use crate::process::host_and_process;
    pub use crate::sync::Mutex;
    pub use crate::thread::{self, this_thread};
    pub use crate::time::{Instant, boot_time, wall_time};

    /// Iterates in the same order in each run.
    pub type HashMap<K, V, S = BuildHasherDefault<DefaultHasher>> =
        std::collections::HashMap<K, V, S>;
    /// Iterates in the same order in each run.
    pub type HashSet<T, S = BuildHasherDefault<DefaultHasher>> = std::collections::HashSet<T, S>;
}
