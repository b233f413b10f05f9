//! A service with threads, as one would write it: workers charge accounts under a lock, with a
//! fencing token; one thread owns a task for as long as it holds another lock; one logs what
//! becomes of the session.
//!
//!     cargo run --example service
//!     cargo run --example service -- --connect 127.0.0.1:2181

#[path = "../common/mod.rs"]
mod common;
mod store;

use common::{Args, CONNECT, Flag, say};
use crossbeam_channel::{Receiver, after, bounded, select, tick};
use log::{error, info, warn};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use store::{Stale, Store};
use zk_mutex::{CancelToken, Error, SessionEvent, Wait, ZkMutex, ZkSession};

const ABOUT: &str = "a threaded service: charges under a lock, with fencing tokens";

const FLAGS: &[Flag] = &[
    CONNECT,
    ("--path", "P", "the locks' parent (default /zk-mutex/service)"),
    ("--seconds", "N", "how long to run (default 5)"),
];

const WORKERS: u32 = 4;
const ACCOUNTS: u32 = 10;

fn main() -> ExitCode {
    let args = Args::parse("service", ABOUT, FLAGS);
    let path = args.path("/zk-mutex/service");
    let seconds = args.positive::<u32>("--seconds", 5);
    let servers = args.servers(&[]);
    common::show_log("info,zookeeper=warn"); // The client below tells of each watch event at info.
    match run(servers.connect_string(), path, Duration::from_secs(seconds.into())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => common::failure("service", &error),
    }
}

/// One charge. Its amount goes to the account once, however often it has to be tried.
struct Job {
    account: u32,
    amount: i64,
}

/// What the threads share.
struct Service {
    store: Store,
    /// Every host that charges takes this lock; one mutex serves all threads of a process.
    charging: ZkMutex,
    /// Whoever holds this one sweeps; the others stand by.
    sweeping: ZkMutex,
    charged: AtomicU64,
    charged_amount: AtomicU64,
    retried: AtomicU64,
    /// Jobs that were taken and not done.
    undone: AtomicU64,
    sweeps: AtomicU64,
}

/// Why a job did not succeed this time.
enum Failure {
    Lock(Error),
    Late(Stale),
}

fn run(connect: &str, path: &str, duration: Duration) -> zk_mutex::Result<bool> {
    let session = ZkSession::connect(connect)?;
    let service = Service {
        store: Store::default(),
        charging: ZkMutex::new(&session, &format!("{path}/charging"))?,
        sweeping: ZkMutex::new(&session, &format!("{path}/sweeping"))?,
        charged: AtomicU64::new(0),
        charged_amount: AtomicU64::new(0),
        retried: AtomicU64::new(0),
        undone: AtomicU64::new(0),
        sweeps: AtomicU64::new(0),
    };
    let events = session.subscribe();
    let (jobs, queue) = bounded(16);
    let (stop, stopped) = bounded::<()>(0);
    let cancel = CancelToken::new();

    thread::scope(|scope| {
        scope.spawn(|| log_events(&events));
        let workers: Vec<_> =
            (0..WORKERS).map(|_| scope.spawn(|| service.work(&queue, &cancel))).collect();
        let sweeper = scope.spawn(|| service.sweep(&stopped, &cancel));

        let end = after(duration);
        for number in 0.. {
            let job = Job { account: number % ACCOUNTS, amount: i64::from(number % 7) + 1 };
            select! {
                send(jobs, job) -> sent => if sent.is_err() { break },
                recv(end) -> _ => break,
            }
        }

        // Shut down: no more jobs; the workers finish what is queued, but try nothing again; the
        // sweeper lets its lock go, or ends its wait for it if another host sweeps.
        drop(jobs);
        drop(stop);
        cancel.cancel();
        for worker in workers {
            let _ = worker.join();
        }
        let _ = sweeper.join();
        session.close() // And with it the events.
    })?;

    let (charged, amount) = (service.charged.load(Relaxed), service.charged_amount.load(Relaxed));
    let undone = service.undone.load(Relaxed) + queue.len() as u64;
    let total = service.store.total();
    say!("charged {charged} times, {amount} in all; the accounts hold {total}");
    say!(
        "{} charges tried again, {undone} not done, {} sweeps",
        service.retried.load(Relaxed),
        service.sweeps.load(Relaxed)
    );
    Ok(charged > 0 && undone == 0 && u64::try_from(total) == Ok(amount))
}

impl Service {
    /// Takes jobs until there are no more.
    fn work(&self, queue: &Receiver<Job>, cancel: &CancelToken) {
        for job in queue {
            loop {
                match self.charge(&job) {
                    Ok(()) => break,
                    // What passes is tried again. `lock` itself has waited for a server by then.
                    Err(failure) if failure.passes() && !cancel.is_cancelled() => {
                        warn!("account {}: {failure}; trying again", job.account);
                        self.retried.fetch_add(1, Relaxed);
                    }
                    Err(failure) => {
                        error!("account {}: {failure}; given up", job.account);
                        self.undone.fetch_add(1, Relaxed);
                        return;
                    }
                }
            }
        }
    }

    /// Reads a balance and writes it back: two steps that nobody may come between, on any host.
    fn charge(&self, job: &Job) -> Result<(), Failure> {
        let guard = self.charging.lock()?;
        let token = guard.fencing_token();
        let balance = self.store.balance(job.account);
        guard.check()?; // Cheap: no request. Do not start what we may no longer finish.
        self.store.set_balance(job.account, balance + job.amount, token)?;
        self.charged.fetch_add(1, Relaxed);
        self.charged_amount.fetch_add(job.amount.unsigned_abs(), Relaxed);
        Ok(())
    } // Released here.

    /// Sweeps while it holds the lock, and stops at once when it loses it. Then it queues for it
    /// again.
    fn sweep(&self, stopped: &Receiver<()>, cancel: &CancelToken) {
        loop {
            let guard = match self.sweeping.lock_with(Wait::forever().cancelled_by(cancel)) {
                Ok(Some(guard)) => guard,
                Ok(None) => continue, // not without a deadline
                Err(Error::Cancelled { .. }) => return,
                Err(error) => {
                    warn!("no sweeping: {error}");
                    match error {
                        Error::Unavailable { .. } | Error::Lost { .. } => continue,
                        _ => return,
                    }
                }
            };
            info!("this host sweeps");
            let (lost, due) = (guard.lost(), tick(Duration::from_millis(200)));
            loop {
                select! {
                    recv(lost.receiver()) -> _ => {
                        warn!("sweeping stops: {:?}", guard.lost_reason());
                        break; // Drops the guard.
                    }
                    recv(due) -> _ => {
                        self.sweeps.fetch_add(1, Relaxed);
                    }
                    recv(stopped) -> _ => return,
                }
            }
        }
    }
}

/// Says what becomes of the session, until it is closed.
fn log_events(events: &Receiver<SessionEvent>) {
    for event in events {
        match event {
            SessionEvent::Lost(why) => warn!("session lost: {why}"),
            SessionEvent::Suspended => {
                warn!("no server reachable; holds stay valid for their lease")
            }
            SessionEvent::Closed => return info!("session closed"),
            other => info!("session: {other:?}"),
        }
    }
}

impl Failure {
    /// Whether it is worth trying again.
    fn passes(&self) -> bool {
        matches!(
            self,
            Failure::Late(_) | Failure::Lock(Error::Unavailable { .. } | Error::Lost { .. })
        )
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Lock(error)
    }
}

impl From<Stale> for Failure {
    fn from(stale: Stale) -> Failure {
        Failure::Late(stale)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Lock(error) => error.fmt(f),
            Failure::Late(stale) => stale.fmt(f),
        }
    }
}
