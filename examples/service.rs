//! A service with threads, as one would write it:
//!
//!     cargo run --example service
//!
//! Workers charge accounts under a lock that all hosts share, with a fencing token for the store,
//! and try again what may pass: in an outage each call waits by itself. One thread sweeps for as long as this host holds another lock. One
//! thread logs what becomes of the session. After three seconds the service shuts down in order.

mod common;

use common::Result;
use log::{info, warn};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use zk_mutex::crossbeam_channel::{Receiver, bounded};
use zk_mutex::{CancelToken, Error, FencingToken, Wait, ZkMutex, ZkSession};

const WORKERS: u32 = 4;
const RUN: Duration = Duration::from_secs(3);
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
    stop: CancelToken,
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
    };
    let events = session.subscribe();
    let (jobs, queue) = bounded(16);
    let (taken, sweeps) = thread::scope(|scope| {
        scope.spawn(|| events.iter().for_each(|event| info!("the session: {event:?}")));
        let sweeper = scope.spawn(|| service.sweep());
        let worker = |_| {
            let (service, queue) = (&service, queue.clone());
            scope.spawn(move || service.work(queue))
        };
        let workers: Vec<_> = (0..WORKERS).map(worker).collect();
        drop(queue); // The workers have it: if all of them fail, `send` does too.

        let (began, mut taken) = (Instant::now(), 0);
        for number in (0..).take_while(|_| began.elapsed() < RUN) {
            let (account, amount) = (number % 10, u64::from(number % 7) + 1);
            if jobs.send(Job { account, amount }).is_err() {
                break;
            }
            taken += amount;
        }
        // There are no more jobs. The workers do what is queued, and try nothing again. The sweeper
        // releases its lock, or ends its wait for it.
        drop(jobs);
        service.stop.cancel();
        let done = workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"));
        let swept = sweeper.join().expect("no panic");
        let closed = session.close(); // This ends its events too.
        done.and(closed).and(swept).map(|sweeps| (taken, sweeps))
    })?;

    let charged: u64 = service.store().balances.values().sum();
    println!("jobs for {taken} in all, {charged} charged; swept {sweeps} times");
    assert_eq!(charged, taken, "each job is done once");
    Ok(())
}

impl Service {
    fn work(&self, queue: Receiver<Job>) -> zk_mutex::Result<()> {
        for job in queue {
            loop {
                match self.charge(&job) {
                    Ok(true) => break,
                    Ok(false) => warn!("account {}: written too late", job.account),
                    Err(error) if self.may_pass(&error) => warn!("trying again: {error}"),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Reads a balance and writes it back. No other host may come in between. False if the store
    /// has refused the write: this host has lost the lock, and another host has written since.
    fn charge(&self, job: &Job) -> zk_mutex::Result<bool> {
        let guard = self.charging.lock()?;
        let balance = self.store().balances.get(&job.account).copied().unwrap_or(0);
        guard.check()?; // Costs no request. Do not begin what would come too late.
        Ok(self.store().write(job.account, balance + job.amount, guard.fencing_token()))
    }

    /// Sweeps while this host holds the lock, and gives the number of sweeps.
    fn sweep(&self) -> zk_mutex::Result<u32> {
        let mut sweeps = 0;
        while !self.stop.is_cancelled() {
            match self.sweeping.lock_with(Wait::forever().cancelled_by(&self.stop)) {
                Ok(Some(guard)) => {
                    info!("this host sweeps");
                    let lost = guard.lost();
                    while !self.stop.is_cancelled() && lost.wait(SWEEP).is_none() {
                        sweeps += 1;
                    }
                }
                Ok(None) | Err(Error::Cancelled { .. }) => {}
                Err(error) if self.may_pass(&error) => warn!("no sweeping: {error}"),
                Err(error) => return Err(error),
            }
        }
        Ok(sweeps)
    }

    /// Whether to try again. A lost lock can be taken again, if need be in the next session.
    fn may_pass(&self, error: &Error) -> bool {
        !self.stop.is_cancelled() && (error.is_transient() || matches!(error, Error::Lost { .. }))
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
