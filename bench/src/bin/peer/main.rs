//! One peer of a lock benchmark, driven over its input and output:
//!
//!     peer HOSTS WORKLOAD key=value...
//!
//! Workloads:
//! - `uncontended`, `contended` and `readers` (threads; max and secs for each). With hand_over, the
//!   threads of the first two hand the lock to each other for so many milliseconds;
//! - `keep` (the same): the lock is kept between two cycles, because no other contender asks for
//!   it;
//! - `waiters` (threads, sessions): one cycle each behind a holder;
//! - `reentrant` (max);
//! - `locks` (max): made on paths of their own, and kept; `held` (max): the same, and locked;
//! - `sessions` (sessions, threads, max and secs for each): threads use one session after the
//!   other.
//!
//! All take path, warm (cycles before measuring) and events (a file for the times of each cycle).
//! It prints `MARK ready` (`waiters` later also `MARK queued`), waits for a line each time, then
//! prints a line of JSON and `DONE`, and ends when its input is closed. `bytes_each` in that line
//! is the growth of the process for each waiter, lock or session. Exit status 2: wrong arguments;
//! 3: the workload does not exist here.
//! such workload here.

mod protocol;

use protocol::{
    Args, Counter, Cycle, Outcome, bytes_each, done, line, mark, now, percentile, report, resident,
};
use std::ops::Deref;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::{self, Builder, ScopedJoinHandle};
use std::time::{Duration, Instant};
use zk_mutex::{Error, Held, ZkMutex, ZkRwLock, ZkSession};

/// The size of a thread's stack. Benchmarks have a thousand waiters, which need little.
const STACK: usize = 256 * 1024;
/// How long `keep` keeps a lock that no thread uses.
const KEEP: Duration = Duration::from_secs(60);
/// How long `waiters` gives its threads to queue.
const LIMIT: Duration = Duration::from_secs(60);
/// The time from a thread's report that it will call `lock` until it is in the local queue.
const SETTLE: Duration = Duration::from_millis(300);
/// The number of cycles for whose times memory is reserved.
const ROOM: usize = 10_000_000;
/// Exit code: the arguments are wrong.
const WRONG: u8 = 2;
/// Exit code: the workload does not exist here.
const UNKNOWN: u8 = 3;

fn main() -> ExitCode {
    let args = match Args::parse() {
        Ok(args) => args,
        Err(why) => return refuse(WRONG, &why),
    };
    let run = match args.workload.as_str() {
        "uncontended" | "contended" => contended,
        "readers" => readers,
        "keep" => keep,
        "waiters" => waiters,
        "reentrant" => reentrant,
        "locks" => locks,
        "held" => held,
        "sessions" => sessions,
        other => return refuse(UNKNOWN, &format!("there is no workload {other:?} here")),
    };
    if let Err(why) = args.check() {
        return refuse(WRONG, &why);
    }
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    let Err(error) = run(&args) else {
        return ExitCode::SUCCESS;
    };
    let is_wrong =
        |error: &Error| matches!(error, Error::InvalidPath { .. } | Error::InvalidConfig { .. });
    let code = if error.downcast_ref().is_some_and(is_wrong) { WRONG } else { 1 };
    refuse(code, &error.to_string())
}

/// Prints the reason on one line and returns the exit code.
fn refuse(code: u8, why: &str) -> ExitCode {
    eprintln!("peer: {why}");
    ExitCode::from(code)
}

/// One acquire and release.
fn cycle(mutex: &ZkMutex, inside: impl FnOnce()) -> zk_mutex::Result<Cycle> {
    cycle_of(|| mutex.lock(), inside)
}

fn cycle_of<G: Deref<Target = Held>>(
    lock: impl FnOnce() -> zk_mutex::Result<G>,
    inside: impl FnOnce(),
) -> zk_mutex::Result<Cycle> {
    let acquire = now();
    let guard = lock()?;
    let acquired = now();
    inside();
    guard.check()?;
    let release = now();
    drop(guard); // as at the end of a scope: the delete is sent and not waited for
    Ok(Cycle { acquire, acquired, release, released: now() })
}

fn warm(args: &Args, session: &ZkSession) -> Outcome<()> {
    let mutex = ZkMutex::new(session, &format!("{}-warm", args.path()))?;
    for _ in 0..args.number("warm", 500)? {
        cycle(&mutex, || ())?;
    }
    Ok(())
}

/// Threads in a loop on one session. Each has a mutex of its own on the same path.
fn contended(args: &Args) -> Outcome<()> {
    let counter = &Counter::default();
    let hand_over = args.number("hand_over", 20).map(Duration::from_millis)?;
    in_a_loop(args, Some(counter), |session| {
        let mutex = ZkMutex::builder(session, args.path()).hand_over(hand_over).build()?;
        Ok(move || cycle(&mutex, || counter.bump()))
    })
}

/// The same with a lock that stays with the process between two holds.
fn keep(args: &Args) -> Outcome<()> {
    let counter = &Counter::default();
    in_a_loop(args, Some(counter), |session| {
        let mutex = ZkMutex::builder(session, args.path()).keep(KEEP).build()?;
        Ok(move || cycle(&mutex, || counter.bump()))
    })
}

/// The same with read locks, and no writer.
fn readers(args: &Args) -> Outcome<()> {
    in_a_loop(args, None, |session| {
        let lock = ZkRwLock::new(session, args.path())?;
        Ok(move || cycle_of(|| lock.read(), || ()))
    })
}

/// Each thread makes its lock and runs cycles with it until the limit.
fn in_a_loop<C: FnMut() -> zk_mutex::Result<Cycle>>(
    args: &Args,
    counter: Option<&Counter>,
    make: impl Fn(&ZkSession) -> zk_mutex::Result<C> + Sync,
) -> Outcome<()> {
    let session = ZkSession::connect(&args.hosts)?;
    warm(args, &session)?;
    mark("ready")?;
    let (start, limit) = (now(), args.limit()?);
    let cycles = thread::scope(|scope| -> Outcome<Vec<Cycle>> {
        let run = || -> Outcome<Vec<Cycle>> {
            let (mut cycle, mut cycles) = (make(&session)?, Vec::new());
            while !limit.reached(cycles.len()) {
                cycles.push(cycle()?);
            }
            Ok(cycles)
        };
        let threads = (0..args.threads()?)
            .map(|_| Builder::new().stack_size(STACK).spawn_scoped(scope, run))
            .collect::<Result<Vec<_>, _>>()?;
        gather(threads)
    })?;
    report(args, &cycles, start, counter, "")?;
    done()?;
    Ok(session.close()?)
}

/// A holder and many waiters with one cycle each. It measures the time from the holder's release to
/// the last waiter's release.
///
/// The holder has a session of its own, so that each session of the waiters has one node in the
/// queue. The threads of a session queue within this process. No thread ends before all have
/// finished their cycle: the ends of 1,000 threads would take longer than the hand-overs between
/// them.
fn waiters(args: &Args) -> Outcome<()> {
    let threads = args.threads()?;
    let count = usize::try_from(args.number("sessions", 8)?)?.clamp(1, threads.max(1));
    let sessions =
        (0..count).map(|_| ZkSession::connect(&args.hosts)).collect::<Result<Vec<_>, _>>()?;
    let holding = ZkSession::connect(&args.hosts)?;
    warm(args, &holding)?;
    let held = ZkMutex::new(&holding, args.path())?;
    let guard = held.lock()?;
    mark("ready")?;
    let (counter, calling, all) = (Counter::default(), AtomicUsize::new(0), Barrier::new(threads));
    let before = resident();
    let (start, cycles, memory) = thread::scope(|scope| -> Outcome<(u64, Vec<Cycle>, String)> {
        let (counter, calling, all) = (&counter, &calling, &all);
        let mut started = Vec::new();
        for number in 0..threads {
            let mutex = ZkMutex::new(&sessions[number % count], args.path())?;
            let wait = move || -> Outcome<Vec<Cycle>> {
                calling.fetch_add(1, Relaxed);
                let cycle = cycle(&mutex, || counter.bump());
                all.wait();
                Ok(vec![cycle?])
            };
            started.push(Builder::new().stack_size(STACK).spawn_scoped(scope, wait)?);
        }
        let deadline = Instant::now() + LIMIT;
        while calling.load(Relaxed) < threads || held.contenders()?.len() <= count {
            if Instant::now() >= deadline {
                return Err("the waiters did not queue in time".into());
            }
            thread::sleep(Duration::from_millis(20));
        }
        thread::sleep(SETTLE);
        let memory = bytes_each(before, threads);
        mark("queued")?;
        let start = now();
        guard.unlock()?;
        Ok((start, gather(started)?, memory))
    })?;
    report(args, &cycles, start, Some(&counter), &format!(",\"sessions\":{count}{memory}"))?;
    done()?;
    for session in sessions.iter().chain([&holding]) {
        session.close()?;
    }
    Ok(())
}

/// Nested acquire and release under a held lock.
fn reentrant(args: &Args) -> Outcome<()> {
    let session = ZkSession::connect(&args.hosts)?;
    let mutex = ZkMutex::new(&session, args.path())?;
    let guard = mutex.lock()?;
    for _ in 0..args.number("warm", 10_000)? {
        cycle(&mutex, || ())?;
    }
    mark("ready")?;
    let max = usize::try_from(args.number("max", 1_000_000)?)?;
    // Memory for all times is reserved, within reason, so that no cycle pays for it.
    let (mut latencies, start) = (Vec::with_capacity(max.min(ROOM)), now());
    for _ in 0..max {
        let cycle = cycle(&mutex, || ())?;
        latencies.push(cycle.released - cycle.acquire);
    }
    line(args, now() - start, &mut latencies, "")?;
    guard.unlock()?;
    done()?;
    Ok(session.close()?)
}

/// Makes locks, each on a path of its own, and keeps them.
fn locks(args: &Args) -> Outcome<()> {
    let session = ZkSession::connect(&args.hosts)?;
    many(args, |path| ZkMutex::new(&session, path))?;
    Ok(session.close()?)
}

/// Locks them as well, and holds them all at once.
fn held(args: &Args) -> Outcome<()> {
    let session = ZkSession::connect(&args.hosts)?;
    warm(args, &session)?;
    many(args, |path| ZkMutex::new(&session, path)?.lock())?;
    // So many deletes may still be in progress that the close is not answered in time.
    let _ = session.close();
    Ok(())
}

/// Makes something on each of many paths, and keeps all. The line of JSON has the time of each
/// 1,000, which should not grow.
fn many<T>(args: &Args, mut make: impl FnMut(&str) -> zk_mutex::Result<T>) -> Outcome<()> {
    const BLOCK: usize = 1000;
    mark("ready")?;
    let max = usize::try_from(args.number("max", 10_000)?)?;
    let (mut kept, mut latencies) =
        (Vec::with_capacity(max.min(ROOM)), Vec::with_capacity(max.min(ROOM)));
    let (before, start) = (resident(), now());
    for number in 0..max {
        let (path, begun) = (format!("{}/{number}", args.path()), now());
        kept.push(make(&path)?);
        latencies.push(now() - begun);
    }
    let (took, memory) = (now() - start, bytes_each(before, max));
    let milliseconds = |block: &[u64]| format!("{:.1}", block.iter().sum::<u64>() as f64 / 1e6);
    let blocks: Vec<_> = latencies.chunks(BLOCK).map(milliseconds).collect();
    line(
        args,
        took,
        &mut latencies,
        &format!("{memory},\"ms_per_{BLOCK}\":[{}]", blocks.join(",")),
    )?;
    done()?;
    drop(kept);
    Ok(())
}

/// Many sessions in one process, each with a lock of its own, and threads that use one lock after
/// the other.
fn sessions(args: &Args) -> Outcome<()> {
    let (threads, count) = (args.threads()?, usize::try_from(args.number("sessions", 1000)?)?);
    let threads = threads.min(count); // no two threads share a session
    warm(args, &ZkSession::connect(&args.hosts)?)?;
    let (before, mut connecting, mut locks) = (resident(), Vec::new(), Vec::new());
    for number in 0..count {
        let begun = now();
        let session = ZkSession::connect(&args.hosts)?;
        connecting.push(now() - begun);
        let mutex = ZkMutex::new(&session, &format!("{}/{number}", args.path()))?;
        drop(mutex.lock()?); // makes its folder
        locks.push((session, mutex));
    }
    let memory = bytes_each(before, count);
    mark("ready")?;
    let (start, limit) = (now(), args.limit()?);
    let cycles = thread::scope(|scope| -> Outcome<Vec<Cycle>> {
        let locks = &locks;
        let run = |first: usize| {
            move || -> Outcome<Vec<Cycle>> {
                let mut cycles = Vec::new();
                for (_, mutex) in locks.iter().skip(first).step_by(threads).cycle() {
                    if limit.reached(cycles.len()) {
                        break;
                    }
                    cycles.push(cycle(mutex, || ())?);
                }
                Ok(cycles)
            }
        };
        let started = (0..threads)
            .map(|first| Builder::new().stack_size(STACK).spawn_scoped(scope, run(first)))
            .collect::<Result<Vec<_>, _>>()?;
        gather(started)
    })?;
    let connect = percentile(&mut connecting, 0.5);
    let more = format!(",\"sessions\":{count}{memory},\"connect_p50_us\":{connect:.1}");
    report(args, &cycles, start, None, &more)?;
    done()?;
    for (session, _) in &locks {
        session.close()?;
    }
    Ok(())
}

fn gather(threads: Vec<ScopedJoinHandle<'_, Outcome<Vec<Cycle>>>>) -> Outcome<Vec<Cycle>> {
    let mut all = Vec::new();
    for thread in threads {
        all.extend(thread.join().map_err(|_| "a thread panicked")??);
    }
    Ok(all)
}
