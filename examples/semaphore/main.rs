//! Workers of several sessions that may do a thing only so many at once, under one semaphore:
//!
//!     cargo run --example semaphore
//!
//! Midway the number of permits is raised, and whoever waits is let in at once. Every third round a
//! worker takes two permits.

#[path = "../common/mod.rs"]
mod common;

use common::{Args, CONNECT, Flag, say};
use log::warn;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use zk_mutex::{Error, ZkSemaphore, ZkSession};

const ABOUT: &str = "workers share a limited number of permits; exit code 0 if never more were in use than there were";

const FLAGS: &[Flag] = &[
    CONNECT,
    ("--path", "P", "the semaphore's path (default /zk-mutex/semaphore)"),
    ("--permits", "N", "how many permits there are at first (default 2)"),
    ("--raised", "N", "how many there are from midway on (default 4)"),
    ("--workers", "N", "threads that work, a session for each two (default 8)"),
    ("--rounds", "N", "rounds of each worker (default 12)"),
    ("--hold", "MS", "how long a round lasts (default 5)"),
];

/// How long to try to set the number of permits: as long as `acquire` tries.
const PATIENCE: Duration = Duration::from_secs(60);
/// The pause before such a try.
const PAUSE: Duration = Duration::from_millis(100);
/// Workers, half as many sessions.
const MOST: u32 = 1000;

fn main() -> ExitCode {
    let args = Args::parse("semaphore", ABOUT, FLAGS);
    let plan = Plan {
        path: args.path("/zk-mutex/semaphore").to_owned(),
        permits: args.positive("--permits", 2),
        raised: args.positive("--raised", 4),
        workers: args.count("--workers", 8, MOST),
        rounds: args.positive("--rounds", 12),
        hold: Duration::from_millis(u64::from(args.number::<u32>("--hold").unwrap_or(5))),
    };
    if plan.raised < plan.permits {
        args.refuse("--raised must not be less than --permits");
    }
    let Some(all) = plan.workers.checked_mul(plan.rounds) else {
        args.refuse("--workers times --rounds is too large to count");
    };
    let servers = args.servers(&[]);
    common::show_log("warn");
    match plan.run(servers.connect_string(), all) {
        Ok(code) => code,
        Err(error) => common::failure("semaphore", &error),
    }
}

struct Plan {
    path: String,
    permits: u32,
    raised: u32,
    workers: u32,
    rounds: u32,
    hold: Duration,
}

/// What is limited: how much of it is in use, and how much may be.
struct Limited {
    in_use: AtomicU32,
    allowed: AtomicU32,
    at_first: u32,
    /// The most that were in use at once, before the number was raised and since.
    most: [AtomicU32; 2],
    exceeded: AtomicU32,
    rounds: AtomicU32,
}

impl Plan {
    fn run(&self, connect: &str, all: u32) -> zk_mutex::Result<ExitCode> {
        let session = ZkSession::connect(connect)?;
        let semaphore = self.open(&session)?;
        let limited = Limited {
            in_use: AtomicU32::new(0),
            allowed: AtomicU32::new(self.permits),
            at_first: self.permits,
            most: [const { AtomicU32::new(0) }; 2],
            exceeded: AtomicU32::new(0),
            rounds: AtomicU32::new(0),
        };
        let sessions = (0..self.workers.div_ceil(2))
            .map(|_| ZkSession::connect(connect))
            .collect::<zk_mutex::Result<Vec<_>>>()?;
        // Before the first of them works: who comes later must have heard of the number as it is by
        // then.
        let semaphores = sessions
            .iter()
            .map(|session| {
                let semaphore = ZkSemaphore::new(session, &self.path, self.permits)?;
                semaphore.permits().map(|_| semaphore)
            })
            .collect::<zk_mutex::Result<Vec<_>>>()?;
        thread::scope(|scope| {
            let work = |worker: u32| {
                let semaphore = &semaphores[worker as usize / 2];
                let limited = &limited;
                scope.spawn(move || self.work(semaphore, limited))
            };
            let threads: Vec<_> = (0..self.workers).map(work).collect();
            while limited.rounds.load(SeqCst) < all / 2
                && threads.iter().any(|thread| !thread.is_finished())
            {
                thread::sleep(Duration::from_millis(1));
            }
            // What we allow first, so that nobody exceeds it who has heard of it before us.
            limited.allowed.store(self.raised, SeqCst);
            set(&semaphore, self.raised)?;
            threads.into_iter().try_for_each(|thread| match thread.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        let [before, after] = limited.most.each_ref().map(|most| most.load(SeqCst));
        let (rounds, exceeded) = (limited.rounds.load(SeqCst), limited.exceeded.load(SeqCst));
        say!(
            "{rounds} rounds: at most {before} of {} permits in use, then {after} of {}; exceeded {exceeded} times",
            self.permits,
            self.raised
        );
        set(&semaphore, self.permits)?; // as the next run is told
        Ok(if exceeded == 0 && rounds == all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The semaphore with the number that we are told. What the node says lasts: a run that was
    /// killed midway leaves the number that it raised, and this is how to roll out another.
    fn open(&self, session: &ZkSession) -> zk_mutex::Result<ZkSemaphore> {
        let semaphore = ZkSemaphore::new(session, &self.path, self.permits)?; // sends nothing
        if let Err(Error::InconsistentLeases { ours, theirs, .. }) = semaphore.permits() {
            warn!(
                "{} says {theirs} permits, left there by another run: sets it to {ours}",
                self.path
            );
            set(&semaphore, ours)?;
        }
        Ok(semaphore)
    }

    fn work(&self, semaphore: &ZkSemaphore, limited: &Limited) -> zk_mutex::Result<()> {
        for round in 0..self.rounds {
            let wanted = if round % 3 == 2 && self.permits > 1 { 2 } else { 1 };
            let permit = semaphore.acquire_many(wanted)?;
            limited.enter(wanted);
            thread::sleep(self.hold);
            limited.in_use.fetch_sub(wanted, SeqCst);
            drop(permit);
            limited.rounds.fetch_add(1, SeqCst);
        }
        Ok(())
    }
}

/// Sets the number, through an outage if need be, as `acquire` waits for one to pass. Twice does no
/// harm.
fn set(semaphore: &ZkSemaphore, permits: u32) -> zk_mutex::Result<()> {
    let begun = Instant::now();
    loop {
        match semaphore.set_permits(permits) {
            Err(error @ Error::Unavailable { .. }) if begun.elapsed() < PATIENCE => {
                warn!("{error}; trying again");
                thread::sleep(PAUSE);
            }
            done => return done,
        }
    }
}

impl Limited {
    fn enter(&self, many: u32) {
        let in_use = self.in_use.fetch_add(many, SeqCst) + many;
        let allowed = self.allowed.load(SeqCst);
        self.most[usize::from(allowed != self.at_first)].fetch_max(in_use, SeqCst);
        if in_use > allowed {
            self.exceeded.fetch_add(1, SeqCst);
        }
    }
}
