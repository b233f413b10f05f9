//! What the processes do with the library.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use zk_mutex_simulated::{ZkMutex, ZkMutexGuard, ZkSession};
use zk_sim_runtime::library::{Instant, thread};
use zk_sim_runtime::{Rng, fail};

use crate::between;
use crate::observer::Observer;

/// What all processes of a run share, outside of them.
#[derive(Clone)]
pub struct Shared {
    /// Who checks.
    pub observer: Observer,
    /// The threads should end.
    pub is_over: Arc<AtomicBool>,
    /// How many threads are at work.
    pub at_work: Arc<AtomicUsize>,
}

/// What one process does.
#[derive(Clone, Debug)]
pub struct Job {
    /// Where the servers are.
    pub connect_string: String,
    /// What to ask for.
    pub session_timeout: Duration,
    /// How many threads it has.
    pub threads: usize,
    /// The locks, each of them wanted by each thread now and then.
    pub locks: Vec<String>,
    /// How long a lock is held at most.
    pub longest_hold: Duration,
    /// One hold in so many is long, whatever the above says.
    pub long_hold_in: u32,
    /// How long a thread does something else at most.
    pub longest_pause: Duration,
    /// Its chance.
    pub seed: u64,
}

/// Runs in a process of the simulation until the run is over.
pub fn run(job: &Job, shared: &Shared) {
    let session = loop {
        let builder = ZkSession::builder(job.connect_string.as_str()).session_timeout(job.session_timeout);
        match builder.connect() {
            Ok(session) => break session,
            Err(e) => log::info!("no session: {e}"),
        }
        if shared.is_over.load(Ordering::Relaxed) {
            return;
        }
    };
    let threads: Vec<_> = (0..job.threads)
        .map(|number| {
            let (job, shared, session) = (job.clone(), shared.clone(), session.clone());
            shared.at_work.fetch_add(1, Ordering::Relaxed);
            thread::spawn(move || {
                if let Err(e) = work(number, &job, &shared, &session) {
                    fail("unexpected error", e.to_string());
                }
                shared.at_work.fetch_sub(1, Ordering::Relaxed);
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| drop(thread.join()));
}

fn work(number: usize, job: &Job, shared: &Shared, session: &ZkSession) -> zk_mutex_simulated::Result<()> {
    let mut rng = Rng::with_seed(job.seed.wrapping_add(number as u64));
    let mutexes = job.locks.iter().map(|path| ZkMutex::new(session, path)).collect::<Result<Vec<_>, _>>()?;
    while !shared.is_over.load(Ordering::Relaxed) {
        let which = rng.usize(..mutexes.len());
        let (mutex, path) = (&mutexes[which], &job.locks[which]);
        match acquire(mutex, &mut rng) {
            Ok(Some(guard)) => hold(number, job, shared, path, guard, &mut rng),
            Ok(None) => shared.observer.not_acquired(false),
            Err(e) => {
                log::info!("not locked: {e}");
                shared.observer.not_acquired(true);
            }
        }
        if rng.u32(..4) > 0 {
            thread::sleep(between(&mut rng, Duration::from_micros(10), job.longest_pause));
        }
    }
    Ok(())
}

fn acquire(mutex: &ZkMutex, rng: &mut Rng) -> zk_mutex_simulated::Result<Option<ZkMutexGuard>> {
    match rng.u32(..10) {
        0 => mutex.try_lock(),
        1..3 => {
            let (limit, start) =
                (between(rng, Duration::from_millis(1), Duration::from_secs(20)), Instant::now());
            let result = mutex.lock_timeout(limit);
            check_deadline(limit, start.elapsed());
            result
        }
        _ => mutex.lock().map(Some),
    }
}

/// A thread that has no processor, or whose process is stopped, is late for other reasons: so much is allowed.
const LATE: Duration = Duration::from_secs(1);

fn check_deadline(limit: Duration, took: Duration) {
    if took > limit + LATE && !crate::faults::was_stopped_within(took) {
        fail("deadline", format!("lock_timeout({limit:?}) took {took:?}"));
    }
}

fn hold(number: usize, job: &Job, shared: &Shared, path: &str, guard: ZkMutexGuard, rng: &mut Rng) {
    shared.observer.acquired(path, number, &guard);
    let usual = between(rng, Duration::from_micros(1), job.longest_hold);
    // Some hold a lock for longer than a lease lasts that nothing extends.
    let is_long = rng.u32(..job.long_hold_in) == 0;
    let lasts = if is_long { job.session_timeout.mul_f64(0.5 + rng.f64() * 3.0) } else { usual };
    let until = Instant::now() + lasts;
    let lost = guard.lost();
    let was_lost = if rng.bool() {
        lost.receiver().recv_deadline(until).is_err_and(|e| e.is_disconnected())
    } else {
        while guard.is_held() && Instant::now() < until {
            let step = between(rng, Duration::from_micros(1), Duration::from_millis(50));
            thread::sleep(step.min(until - Instant::now()));
        }
        !guard.is_held()
    };
    if was_lost && guard.is_held() {
        fail("lost, and held", path.to_owned());
    }
    shared.observer.releases(was_lost);
    if rng.bool() {
        drop(guard);
    } else {
        let _ = guard.unlock();
    }
}
