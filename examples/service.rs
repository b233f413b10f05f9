//! A service with threads, as one would write it:
//!
//!     cargo run --example service
//!
//! Workers charge accounts under a lock that all hosts share, with a fencing token for the store.
//! What fails and may pass is tried again after a pause. One thread sweeps for as long as this host
//! holds another lock. One thread logs what becomes of the session. After three seconds the service
//! ends in order. It has two seconds for the jobs that it took; then it says what is left. So it
//! ends in time also if no server answers. (The example `shutdown` ends at a signal.)

mod common;

use common::Result;
use log::{info, warn};
use std::collections::HashMap;
use std::convert::Infallible;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use zk_mutex::crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use zk_mutex::{CancelToken, Error, FencingToken, Wait, ZkMutex, ZkSession};

const WORKERS: usize = 4;
const QUEUE: usize = 16;
/// After this time the service takes no more jobs.
const RUN: Duration = Duration::from_secs(3);
/// How long it may take for the jobs that it has taken by then.
const GRACE: Duration = Duration::from_secs(2);
/// How long one try waits: for other holders, or for a server.
const TRY: Duration = Duration::from_secs(10);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(500);
const SWEEP: Duration = Duration::from_millis(200);

struct Job {
    account: u32,
    amount: u64,
}

/// A pretend database, which refuses a write under a token that is older than one it has seen.
#[derive(Default)]
struct Store {
    balances: HashMap<u32, u64>,
    newest: Option<FencingToken>,
}

impl Store {
    fn write(&mut self, account: u32, balance: u64, token: FencingToken) -> bool {
        let is_late = self.newest.is_some_and(|newest| token < newest);
        if !is_late {
            self.newest = Some(token);
            self.balances.insert(account, balance);
        }
        !is_late
    }
}

struct Service {
    store: Mutex<Store>,
    charging: ZkMutex,
    sweeping: ZkMutex,
    /// Cancelled when the service is to end: then it begins nothing new.
    stop: CancelToken,
    /// Cancelled when the grace is over: then nothing is waited for.
    give_up: CancelToken,
}

fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
    common::example(serve)
}

fn serve(server: &str) -> Result<()> {
    // The service may start before its ZooKeeper: the first calls wait for it.
    let session = ZkSession::builder(server).connect_in_background()?;
    let service = Service {
        store: Mutex::default(),
        charging: ZkMutex::new(&session, "/zk-mutex/service/charging")?,
        sweeping: ZkMutex::new(&session, "/zk-mutex/service/sweeping")?,
        stop: CancelToken::new(),
        give_up: CancelToken::new(),
    };
    let events = session.subscribe();
    let log = thread::spawn(move || events.iter().for_each(|e| info!("the session: {e:?}")));
    let (jobs, queue) = bounded(QUEUE);
    // Nothing is sent here: the channel is disconnected when the last worker has ended.
    let (works, all_ended) = bounded::<Infallible>(0);

    let (taken, done, swept) = thread::scope(|scope| {
        let sweeper = scope.spawn(|| service.sweep());
        let worker = |_| {
            let (service, queue, works) = (&service, queue.clone(), works.clone());
            scope.spawn(move || {
                let _works = works;
                service.work(queue)
            })
        };
        let workers: Vec<_> = (0..WORKERS).map(worker).collect();
        drop((queue, works)); // The workers have them: if all of them fail, nobody waits.

        let taken = take_jobs(jobs, Instant::now() + RUN);
        service.stop.cancel(); // The sweeper releases its lock, or ends its wait for it.
        if all_ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
            warn!("the grace is over, and not all jobs are done");
        }
        service.give_up.cancel(); // The workers end their waits and their pauses.
        let done = workers.into_iter().try_for_each(common::join);
        (taken, done, common::join(sweeper))
    });
    let closed = session.close(); // It takes a second at most, and ends the events.
    let _ = log.join(); // A logger that panics is no reason to fail.
    let charged: u64 = service.store().balances.values().sum();
    println!("jobs for {taken} in all, {charged} charged");
    done?;
    println!("swept {} times", swept?);
    if charged != taken {
        return Err(format!("jobs for {} are left that it has taken", taken - charged).into());
    }
    Ok(closed?)
}

/// Puts jobs into the queue until the service is to end, and gives the sum of their amounts. The
/// queue may be full all that time, as in an outage: then `send` would not return.
fn take_jobs(jobs: Sender<Job>, end: Instant) -> u64 {
    let mut taken = 0;
    for number in 0.. {
        let (account, amount) = (number % 10, u64::from(number % 7) + 1);
        // It fails at the end of that time, or when all workers have failed.
        if Instant::now() >= end || jobs.send_deadline(Job { account, amount }, end).is_err() {
            break;
        }
        taken += amount;
    }
    taken
}

impl Service {
    /// Does jobs until there are no more, or until the service gives up.
    fn work(&self, queue: Receiver<Job>) -> zk_mutex::Result<()> {
        for job in queue {
            loop {
                match self.charge(&job) {
                    Ok(true) => break,
                    Ok(false) => warn!("account {}: not charged, trying again", job.account),
                    Err(Error::Cancelled { .. }) => return Ok(()),
                    Err(error) if may_pass(&error) => warn!("trying again: {error}"),
                    Err(error) => return Err(error),
                }
                if is_cancelled_within(&self.give_up, PAUSE) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads a balance and writes it back. No other host may come in between. False: the store has
    /// refused the write, since this host has lost the lock, and another host has written since.
    fn charge(&self, job: &Job) -> zk_mutex::Result<bool> {
        let wait = Wait::timeout(TRY).cancelled_by(&self.give_up);
        let guard = self.charging.lock_with(wait)?;
        let balance = self.store().balances.get(&job.account).copied().unwrap_or(0);
        guard.check()?; // Costs no request. Do not begin what would come too late.
        Ok(self.store().write(job.account, balance + job.amount, guard.fencing_token()))
    }

    /// Sweeps while this host holds the lock, and gives the number of sweeps.
    fn sweep(&self) -> zk_mutex::Result<u32> {
        let mut sweeps = 0;
        while !self.stop.is_cancelled() {
            match self.sweeping.lock_with(Wait::forever().cancelled_by(&self.stop)) {
                Ok(guard) => {
                    info!("this host sweeps");
                    let lost = guard.lost();
                    while !self.stop.is_cancelled() && lost.wait(SWEEP).is_none() {
                        sweeps += 1;
                    }
                }
                Err(Error::Cancelled { .. }) => {}
                Err(error) if may_pass(&error) => {
                    warn!("no sweeping: {error}");
                    is_cancelled_within(&self.stop, PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(sweeps)
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether to try again. A lost lock can be taken again, if need be in the next session.
fn may_pass(error: &Error) -> bool {
    error.is_transient() || matches!(error, Error::Lost { .. })
}

/// Waits for this time, or until the token is cancelled.
fn is_cancelled_within(token: &CancelToken, time: Duration) -> bool {
    token.receiver().recv_timeout(time) == Err(RecvTimeoutError::Disconnected)
}
