//! Our side of `bench/compare`, and a peer of it (`zk_mutex_bench::protocol`):
//!
//!     peer HOSTS WORKLOAD key=value...
//!
//! Workloads:
//! - `uncontended`, `contended` and `readers` (threads; max and ms for each). With hand_over, the
//!   threads of the first two hand the lock to each other for so many milliseconds;
//! - `keep` (the same): the lock is kept between two cycles, because no other contender asks for
//!   it;
//! - `waiters` (threads, sessions): one cycle each behind a holder;
//! - `reentrant` (max);
//! - `locks` (max): made on paths of their own, and kept; `held` (max): the same, and locked;
//! - `objects` (threads, max, paths): a lock object for each call, on one path after the other;
//! - `sessions` (sessions, threads, max and ms for each): threads use one session after the other.
//!
//! `bytes_each` in its line of JSON is the growth of the process for each waiter, lock or session.

use std::ops::{Deref, Range};
use std::process::ExitCode;
use std::thread::{self, Builder};
use std::time::Duration;
use zk_mutex::{Error, Held, ZkMutex, ZkRwLock, ZkSemaphore, ZkSession};
use zk_mutex_bench::protocol::{
    self, Args, Counter, Cycle, Outcome, STACK, bytes_each, done, drain, gather, in_a_loop, line,
    mark, now, percentile, report, resident,
};

/// How long `keep` keeps a lock that no thread uses.
const KEEP: Duration = Duration::from_secs(60);
/// The number of cycles for whose times memory is reserved.
const ROOM: usize = 10_000_000;

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    let find = |workload: &str| -> Option<fn(&Args) -> Outcome<()>> {
        Some(match workload {
            "uncontended" | "contended" => contended,
            "readers" => readers,
            "keep" => keep,
            "waiters" => waiters,
            "reentrant" => reentrant,
            "locks" => locks,
            "held" => held,
            "objects" => objects,
            "sessions" => sessions,
            _ => return None,
        })
    };
    protocol::run("peer", find, |error| {
        matches!(
            error.downcast_ref(),
            Some(Error::InvalidPath { .. } | Error::InvalidConfig { .. })
        )
    })
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
    let mutex = ZkMutex::new(session, args.warm_path())?;
    for _ in 0..args.number("warm", 500)? {
        cycle(&mutex, || ())?;
    }
    Ok(())
}

fn connect(args: &Args) -> Outcome<ZkSession> {
    let session = ZkSession::connect(&args.hosts)?;
    warm(args, &session)?;
    Ok(session)
}

/// Threads in a loop on one session. Each has a mutex of its own on the same path.
fn contended(args: &Args) -> Outcome<()> {
    let (session, counter) = (connect(args)?, &Counter::default());
    let hand_over = args.number("hand_over", 20).map(Duration::from_millis)?;
    in_a_loop(args, Some(counter), || {
        let mutex = ZkMutex::builder(&session, args.path()).hand_over(hand_over).build()?;
        Ok(move || Ok(cycle(&mutex, || counter.bump())?))
    })?;
    Ok(session.close()?)
}

/// The same with a lock that stays with the process between two holds.
fn keep(args: &Args) -> Outcome<()> {
    let (session, counter) = (connect(args)?, &Counter::default());
    in_a_loop(args, Some(counter), || {
        let mutex = ZkMutex::builder(&session, args.path()).keep(KEEP).build()?;
        Ok(move || Ok(cycle(&mutex, || counter.bump())?))
    })?;
    Ok(session.close()?)
}

/// The same with read locks, and no writer.
fn readers(args: &Args) -> Outcome<()> {
    let session = connect(args)?;
    in_a_loop(args, None, || {
        let lock = ZkRwLock::new(&session, args.path())?;
        Ok(move || Ok(cycle_of(|| lock.read(), || ())?))
    })?;
    Ok(session.close()?)
}

/// A holder and many waiters with one cycle each. The holder has a session of its own, so that each
/// session of the waiters has one node in the queue. The threads of a session queue within this
/// process.
fn waiters(args: &Args) -> Outcome<()> {
    let (count, counter) = (args.sessions()?, &Counter::default());
    let sessions =
        (0..count).map(|_| ZkSession::connect(&args.hosts)).collect::<Result<Vec<_>, _>>()?;
    let holding = connect(args)?;
    let held = ZkMutex::new(&holding, args.path())?;
    let guard = held.lock()?;
    let waiter = |number: usize| {
        let mutex = ZkMutex::new(&sessions[number % count], args.path())?;
        Ok(move || Ok(cycle(&mutex, || counter.bump())?))
    };
    let queued = || Ok(held.contenders()?.len() > count);
    drain(args, counter, waiter, queued, || Ok(guard.unlock()?))?;
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

/// A lock object for each call, as in a service that makes its locks where it needs them: kept
/// mutexes, semaphores and read locks. The line of JSON has the memory of the process after each
/// tenth of the calls, which should not grow once each path was used.
fn objects(args: &Args) -> Outcome<()> {
    const ROUNDS: usize = 10;
    let session = ZkSession::connect(&args.hosts)?;
    warm(args, &session)?;
    let (threads, paths) = (args.threads()?, usize::try_from(args.number("paths", 25_000)?)?);
    let max = usize::try_from(args.number("max", 1_000_000)?)?;
    let call = |number: usize| -> zk_mutex::Result<u64> {
        let (number, begun) = (number % paths, now());
        let path = format!("{}/{number}", args.path());
        match number % 3 {
            0 => drop(ZkMutex::builder(&session, &path).keep(KEEP).build()?.lock()?),
            1 => drop(ZkSemaphore::new(&session, &path, 2)?.acquire()?),
            _ => drop(ZkRwLock::new(&session, &path)?.read()?),
        }
        Ok(now() - begun)
    };
    let round = |calls: Range<usize>| {
        thread::scope(|scope| -> Outcome<Vec<u64>> {
            let run = |first| {
                let calls = calls.clone().skip(first).step_by(threads);
                move || calls.map(call).collect::<zk_mutex::Result<Vec<u64>>>()
            };
            let started = (0..threads)
                .map(|first| Builder::new().stack_size(STACK).spawn_scoped(scope, run(first)))
                .collect::<Result<Vec<_>, _>>()?;
            let mut all = Vec::new();
            for thread in started {
                all.extend(thread.join().map_err(|_| "a thread panicked")??);
            }
            Ok(all)
        })
    };
    // The memory for the times is used before the first call, so it does not grow.
    let mut latencies = vec![1; max];
    latencies.clear();
    mark("ready")?;
    let (start, mut memory) = (now(), Vec::new());
    for number in 0..ROUNDS {
        latencies.extend(round(max * number / ROUNDS..max * (number + 1) / ROUNDS)?);
        memory.push(format!("{:.1}", resident() as f64 / 1e6));
    }
    let more = format!(",\"paths\":{paths},\"mb_per_tenth\":[{}]", memory.join(","));
    line(args, now() - start, &mut latencies, &more)?;
    done()?;
    Ok(session.close()?)
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
        let mutex = ZkMutex::new(&session, format!("{}/{number}", args.path()))?;
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
