//! Makes the locks of a run and waits for them.

use std::time::{Duration, Instant};

use serde_json::json;
use zk_mutex::crossbeam_channel::{RecvTimeoutError, bounded};
use zk_mutex::{
    Contender, Error, LockBuilder, Member, Wait, ZkMultiLock, ZkMutex, ZkRwLock, ZkSemaphore,
    ZkSession,
};

use super::hold::HeldLocks;
use crate::cli::{Common, RunArgs};
use crate::exit::Failure;
use crate::output::Output;
use crate::signals::Signals;

/// A wait that has lasted so long is reported with its reason, and again each time that this time
/// has doubled.
const FIRST_REPORT: Duration = Duration::from_secs(3);

/// How long the program may wait until it has the lock, counted from its start.
pub struct WaitLimit {
    started: Instant,
    /// Zero: it tries once. `None`: it waits without a limit.
    timeout: Option<Duration>,
}

impl WaitLimit {
    pub fn new(started: Instant, try_once: bool, timeout: Option<Duration>) -> WaitLimit {
        WaitLimit { started, timeout: if try_once { Some(Duration::ZERO) } else { timeout } }
    }

    /// The limit of one step: `limit`, or the whole wait if that is shorter.
    pub fn bound(&self, limit: Duration) -> Duration {
        match self.timeout {
            Some(timeout) if !timeout.is_zero() => limit.min(timeout),
            _ => limit,
        }
    }

    /// When the wait ends; `None` if it has no end, or lasts for one try.
    pub fn deadline(&self) -> Option<Instant> {
        self.timeout.filter(|timeout| !timeout.is_zero()).map(|timeout| self.started + timeout)
    }

    pub fn wait(&self, signals: &Signals) -> Wait {
        let wait = match self.timeout {
            None => Wait::forever(),
            Some(Duration::ZERO) => Wait::timeout(Duration::ZERO),
            Some(timeout) => Wait::until(self.started + timeout),
        };
        wait.cancelled_by(&signals.cancel)
    }
}

/// How a wait has ended.
pub enum Acquired {
    Held(HeldLocks),
    /// Others have the lock at this path, one of those that were asked for.
    ByOthers(String),
}

/// The locks of `run`, not yet held.
pub struct Locks {
    session: ZkSession,
    paths: Vec<String>,
    locks: Vec<Lock>,
    all: ZkMultiLock,
}

/// A lock of one of the kinds.
#[derive(Clone)]
enum Lock {
    Mutex(ZkMutex),
    Shared(ZkRwLock),
    Semaphore(ZkSemaphore),
}

impl Locks {
    pub fn new(session: &ZkSession, common: &Common, args: &RunArgs) -> Result<Locks, Failure> {
        let acl = super::plan::acl(common, &args.child)?;
        let (mut locks, mut members) = (Vec::new(), Vec::new());
        for path in &args.paths {
            let (lock, member) = match args.permits {
                Some(permits) => {
                    let of = number_of_permits(session, path, args.of)?;
                    if permits > of && of != 0 {
                        return Err(Failure::usage(format!(
                            "--permits {permits}: the semaphore {path} has {of}"
                        )));
                    }
                    let semaphore =
                        ZkSemaphore::builder(session, path, of.max(1)).acl(acl.clone()).build()?;
                    let member = Member::permits(&semaphore, permits);
                    (Lock::Semaphore(semaphore), member)
                }
                None if args.read || args.write => {
                    let lock = ZkRwLock::builder(session, path)
                        .acl(acl.clone())
                        .layout(super::beside::layout(args))
                        .build()?;
                    let member = if args.read { Member::read(&lock) } else { Member::write(&lock) };
                    (Lock::Shared(lock), member)
                }
                None => {
                    let builder: LockBuilder<ZkMutex> = ZkMutex::builder(session, path);
                    let layout = super::beside::layout(args);
                    let lock = builder.acl(acl.clone()).layout(layout).build()?;
                    let member = Member::from(&lock);
                    (Lock::Mutex(lock), member)
                }
            };
            locks.push(lock);
            members.push(member);
        }
        let all = ZkMultiLock::new(members)?;
        Ok(Locks { session: session.clone(), paths: args.paths.clone(), locks, all })
    }

    /// Acquires all locks, or none if another client holds one of them. A signal ends the wait, and
    /// nothing stays in a queue.
    pub fn acquire(
        &self,
        wait_limit: &WaitLimit,
        signals: &Signals,
        output: &Output,
    ) -> Result<Acquired, Failure> {
        let (done, is_done) = bounded::<()>(0);
        let (paths, locks, told) = (self.paths.clone(), self.locks.clone(), output.clone());
        let session = self.session.clone();
        let report = move || {
            let mut pause = FIRST_REPORT;
            while is_done.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                report(&session, &paths, &locks, &told);
                pause *= 2;
            }
        };
        // Nothing joins this thread, because an outage can block it. If it cannot be started, only
        // the messages are missing.
        let _ = std::thread::Builder::new().name("report".into()).spawn(report);
        let acquired = self.all.lock_with(wait_limit.wait(signals));
        drop(done);
        match acquired {
            Ok(guard) => Ok(Acquired::Held(HeldLocks { paths: self.paths.clone(), guard })),
            Err(Error::WouldBlock { path } | Error::TimedOut { path } | Error::Paused { path }) => {
                Ok(Acquired::ByOthers(path))
            }
            Err(Error::Cancelled { .. }) => match signals.ending() {
                Some(signal) => Err(Failure::signalled(signal)),
                None => Err(Failure::system("the wait was cancelled")),
            },
            Err(e) => Err(e.into()),
        }
    }
}

/// Reports the holders for which this process waits.
fn report(session: &ZkSession, paths: &[String], locks: &[Lock], output: &Output) {
    for (path, lock) in paths.iter().zip(locks) {
        let holders = match lock {
            Lock::Mutex(lock) => lock.holders(),
            Lock::Shared(lock) => lock.holders(),
            Lock::Semaphore(lock) => lock.holders(),
        };
        match holders {
            Ok(holders) => {
                // Of several locks some may be ours already.
                let others = holders
                    .iter()
                    .filter(|one| Some(one.session_id) != session.status().session_id);
                let all = others.map(Contender::to_string).collect::<Vec<_>>();
                if all.is_empty() {
                    continue;
                }
                let text = format!("waiting for {path}, held by {}", all.join(" and by "));
                output.hint("waiting", &text, json!({"path": path, "holders": all}));
            }
            // The wait is over, and the session closed.
            Err(Error::Closed { .. }) => {}
            Err(e) => {
                output.hint("waiting", &format!("waiting for {path}: {e}"), json!({"path": path}));
            }
        }
    }
}

/// How many permits the semaphore has: the number in its node, or `of` if there is none. If there
/// are both, they must agree: this is asked of all semaphores before any node is made. (0 is a
/// pause.)
fn number_of_permits(session: &ZkSession, path: &str, of: Option<u32>) -> Result<u32, Failure> {
    // An invalid path is reported before anything is read.
    ZkSemaphore::new(session, path, 1)?;
    let node = crate::zk::data(session, path)?;
    let theirs: Option<u32> =
        node.and_then(|(data, _)| std::str::from_utf8(&data).ok()?.trim().parse().ok());
    match (theirs, of) {
        (Some(theirs), Some(ours)) if theirs != ours && theirs != 0 => {
            Err(Error::InconsistentPermits { path: path.to_owned(), ours, theirs }.into())
        }
        (Some(theirs), None) => Ok(theirs),
        (_, Some(ours)) => Ok(ours),
        (None, None) => Err(Failure::usage(format!(
            "the semaphore {path} has no number of permits yet: say how many it has with --of"
        ))),
    }
}
