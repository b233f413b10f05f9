//! The program of the scenarios: it takes locks, forks, and looks at both processes.
//!
//! It is a process of its own. The scenario's process has threads that may have the lock of stderr
//! at the fork; nobody would release that lock in the child.
use crate::support::{
    Recipe,
    contend::{Over, stat},
    control::Scheduled,
    recipe::Lock,
    scene::{SOON, session},
    until,
};
use crossbeam_channel::{RecvTimeoutError, TryRecvError};
use fork::{Fork, fork, waitpid_nohang};
use log::{Log, Metadata, Record};
use std::{
    env,
    ops::ControlFlow,
    process::{self, ExitCode},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Error, Held, LossReason, LostSignal, Member, OptionalExt, RevokeSignal, SessionState,
    ZkElection, ZkExclusiveLock, ZkMultiLock, ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex,
    ZkSession,
};

/// The first argument that starts this program instead of the suite.
pub const NAME: &str = "forks";

const LOCK: &str = "/locks/orders";

/// What the program can do, by its name in the scenarios.
#[derive(Clone, Copy)]
pub struct Case(&'static str, fn(&str));

impl Case {
    pub fn name(self) -> &'static str {
        self.0
    }
}

const CASES: &[Case] = &[
    Case("mutex", |at| recipe(at, Recipe::Mutex)),
    Case("read", |at| recipe(at, Recipe::Read)),
    Case("write", |at| recipe(at, Recipe::Write)),
    Case("permit", |at| recipe(at, Recipe::Permit)),
    Case("leader", |at| recipe(at, Recipe::Leader)),
    Case("multi", |at| recipe(at, Recipe::Multi)),
    Case("exclusive", |at| recipe(at, Recipe::Exclusive)),
    Case("downgraded", downgraded),
    Case("semaphore_mutex", semaphore_mutex),
    Case("permits_together", permits_together),
    Case("candidate", candidate),
    Case("runner_that_leads", runner_that_leads),
    Case("kept_node", kept_node),
    Case("signals_of_a_multi_lock", signals_of_a_multi_lock),
    Case("signals_that_threads_wait_for", signals_that_threads_wait_for),
    Case("last_handle", last_handle),
    Case("session_of_its_own", session_of_its_own),
    Case("lines_of_the_log", lines_of_the_log),
    Case("child_of_a_child", child_of_a_child),
    Case("busy_parent", busy_parent),
];

pub fn case(name: &str) -> Option<Case> {
    CASES.iter().find(|case| case.0 == name).copied()
}

pub fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(2).collect();
    let [name, at] = &args[..] else { panic!("a case and an address, and not {args:?}") };
    case(name).expect("a case").1(at);
    ExitCode::SUCCESS
}

/// Forks. Gives the child's process id to the parent, and nothing to the child.
fn forked() -> Option<i32> {
    match fork().expect("a fork") {
        Fork::Parent(child) => Some(child),
        Fork::Child => None,
    }
}

/// The child has found all as it should be. (A panic ends the child too: its first thread is the
/// one that forked.)
fn well() -> ! {
    process::exit(0)
}

/// Waits until the child has found all as it should be. A child that hangs is a failure.
#[track_caller]
fn ended_well(child: i32) {
    let status = until("the child ends", SOON, || waitpid_nohang(child).expect("our child"));
    assert_eq!(status, 0, "the child failed or died");
}

/// What a child must find of a guard.
#[track_caller]
fn is_lost(held: &Held) {
    assert!(!held.is_held());
    assert_eq!(held.lost_reason(), Some(LossReason::Forked));
    assert!(matches!(held.check(), Err(Error::Lost { reason: LossReason::Forked, .. })));
    assert_eq!(held.valid_for(), Duration::ZERO);
    assert_eq!(held.hold_count(), 0);
    is_raised(&held.lost());
    is_never_asked(&held.revoke_requested());
    assert!(!held.path().is_empty() && held.fencing_token().zxid() > 0);
    assert!(format!("{held:?}").contains("<lost>"));
}

/// What a child must find of a signal that somebody asks for the lock.
#[track_caller]
fn is_never_asked(asked: &RevokeSignal) {
    assert!(!asked.is_requested() && !asked.wait(Duration::MAX));
    let told = asked.receiver();
    assert_eq!(told.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(told.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
}

/// What a child must find of a signal.
#[track_caller]
fn is_raised(lost: &LostSignal) {
    assert_eq!(lost.reason(), Some(LossReason::Forked));
    assert_eq!(lost.wait(Duration::MAX), Some(LossReason::Forked));
    assert!(lost.receiver().recv().is_err());
}

/// A call of the child must say what is wrong. (Some guards and locks cannot be printed.)
#[track_caller]
fn is_refused<T>(called: Result<T, Error>) {
    match called {
        Err(e @ Error::Forked { .. }) => {
            assert!(e.to_string().contains("connect a session in this process"), "{e}");
            assert!(!e.is_transient());
        }
        Err(e) => panic!("{e:?}"),
        Ok(_) => panic!("the call is done"),
    }
}

/// What a child must find of a lock.
#[track_caller]
fn is_dead(lock: &Lock) {
    is_refused(lock.try_lock().optional());
    is_refused(lock.lock());
    is_refused(lock.lock_timeout(SOON).optional());
    assert!(lock.is_owned_here().is_none_or(|owned| !owned));
}

/// What a child must find of a session.
#[track_caller]
fn is_closed(session: &ZkSession) {
    assert_eq!((session.status().state, session.status().session_id), (SessionState::Closed, None));
    assert_eq!(session.status().lease_remaining, Duration::ZERO);
    assert!(session.status().timeout > Duration::ZERO && session.status().stats.sessions == 0);
    assert!(session.subscribe().recv().is_err());
    is_refused(ZkMutex::new(session, "/locks/another"));
    is_refused(ZkElection::new(session, "/locks/another"));
    is_refused(session.attempt_revoke("/locks/orders/_c_x-lock-0000000000"));
    #[cfg(feature = "client")]
    is_refused(session.client());
    is_refused(session.close());
    assert!(format!("{session:?}").contains("Closed"));
}

/// After the child has ended, the parent must have its lock as before, on the same connection.
#[track_caller]
fn is_unharmed(at: &str, session: &ZkSession, holds: &[&Held]) {
    // Everything that the child has sent on the parent's connection is done before this is.
    ZkMutex::new(session, "/locks/beside").unwrap().lock().unwrap().unlock().unwrap();
    for held in holds {
        assert!(held.is_held(), "{:?}", held.lost_reason());
        assert!(stat(at, held.path()).is_some(), "the node is gone");
    }
    assert_eq!(session.status().state, SessionState::Connected);
    assert_eq!(session.status().stats.connections_lost, 0);
}

fn recipe(at: &str, recipe: Recipe) {
    let session = session(at);
    let lock = recipe.make(&session, LOCK);
    let other = recipe.make(&session, "/locks/other");
    let guard = lock.lock().unwrap();
    let before = guard.lost();
    let Some(child) = forked() else {
        guard.holds().into_iter().for_each(is_lost);
        is_raised(&before);
        is_dead(&lock);
        is_dead(&other);
        is_closed(&session);
        if recipe.queues() {
            is_refused(lock.contenders());
        }
        match guard.unlock() {
            Err(Error::Lost { reason: LossReason::Forked, .. }) => {}
            Err(Error::Forked { .. }) if recipe == Recipe::Leader => {} // the candidate's leave
            other => panic!("{other:?}"),
        }
        drop((lock, other, session));
        well()
    };
    ended_well(child);
    is_unharmed(at, &session, &guard.holds());
    // The same without a call: each value is just dropped.
    let Some(child) = forked() else {
        drop((guard, before));
        drop((lock, other, session));
        well()
    };
    ended_well(child);
    is_unharmed(at, &session, &guard.holds());
    assert_eq!(before.reason(), None);
    guard.unlock().unwrap();
    lock.try_lock().optional().unwrap().expect("it is free").unlock().unwrap();
}

fn downgraded(at: &str) {
    let session = session(at);
    let lock = ZkRwLock::new(&session, LOCK).unwrap();
    let write = lock.write().unwrap();
    let Some(child) = forked() else {
        is_refused(lock.read()); // no read beside the parent's write
        drop(write);
        well()
    };
    ended_well(child);
    is_unharmed(at, &session, &[&write]);
    let read = lock.read().unwrap();
    drop(write);
    let Some(child) = forked() else {
        is_lost(&read);
        is_refused(lock.read());
        is_refused(lock.try_write().optional());
        assert!(format!("{lock:?}").contains("<of the parent process>"));
        drop((read, lock, session));
        well()
    };
    ended_well(child);
    is_unharmed(at, &session, &[&read]);
    read.unlock().unwrap();
}

fn semaphore_mutex(at: &str) {
    let session = session(at);
    let mutex = ZkSemaphoreMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let Some(child) = forked() else {
        is_lost(&guard);
        is_refused(mutex.try_lock().optional());
        is_refused(mutex.holders());
        drop((guard, mutex, session));
        well()
    };
    ended_well(child);
    is_unharmed(at, &session, &[&guard]);
    guard.unlock().unwrap();
}

fn permits_together(at: &str) {
    let session = session(at);
    let semaphore = ZkSemaphore::new(&session, LOCK, 3).unwrap();
    let permits = semaphore.acquire_many(2).unwrap();
    let Some(child) = forked() else {
        is_lost(&permits);
        is_refused(semaphore.acquire_many(1));
        is_refused(semaphore.permits());
        is_refused(semaphore.set_permits(7));
        is_refused(semaphore.contenders());
        assert!(format!("{semaphore:?}").contains("ZkSemaphore"));
        drop(permits);
        drop((semaphore, session));
        well()
    };
    ended_well(child);
    is_unharmed(at, &session, &[&permits]);
    assert_eq!((semaphore.permits().unwrap(), semaphore.holders().unwrap().len()), (3, 2));
    permits.release().unwrap();
}

fn candidate(at: &str) {
    let session = session(at);
    let candidate = ZkElection::new(&session, LOCK).unwrap().join().unwrap();
    let term = candidate.wait_leader().unwrap();
    let Some(child) = forked() else {
        is_lost(&term);
        assert!(!candidate.is_leader() && candidate.leadership().is_none());
        is_refused(candidate.wait_leader());
        is_refused(candidate.wait_leader_timeout(SOON).optional());
        assert!(candidate.events().recv().is_err());
        assert!(format!("{candidate:?}").contains("<over>"));
        is_refused(candidate.leave());
        drop(candidate);
        well()
    };
    ended_well(child);
    is_unharmed(at, &session, &[&term]);
    assert!(candidate.is_leader());
    candidate.leave().unwrap();
}

/// The closure that leads forks, and both processes return from it.
fn runner_that_leads(at: &str) {
    let session = session(at);
    let election = ZkElection::new(&session, LOCK).unwrap();
    let mut child = None;
    let ended = election.run(|leadership| {
        child = forked();
        if child.is_none() {
            is_lost(leadership);
            return ControlFlow::Continue(());
        }
        ended_well(child.unwrap());
        is_unharmed(at, &session, &[leadership]);
        ControlFlow::Break(())
    });
    if child.is_none() {
        is_refused(ended); // the child does not stand again
        is_refused(election.join());
        drop((election, session));
        well()
    }
    ended.unwrap();
}

/// No guard holds the lock, and the process keeps its node.
fn kept_node(at: &str) {
    let session = session(at);
    let hour = Duration::from_secs(3_600);
    let mutex = ZkMutex::builder(&session, LOCK).keep(hour).build().unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    let [node] = &mutex.contenders().unwrap()[..] else { panic!("the node is not kept") };
    let Some(child) = forked() else {
        is_refused(mutex.lock());
        drop((mutex, session));
        well()
    };
    ended_well(child);
    is_unharmed(at, &session, &[]);
    assert_eq!(mutex.contenders().unwrap(), std::slice::from_ref(node));
}

fn signals_of_a_multi_lock(at: &str) {
    let (one, other) = (session(at), session(at));
    let mutex = ZkMutex::new(&one, LOCK).unwrap();
    let rwlock = ZkRwLock::new(&other, "/locks/other").unwrap();
    let both = ZkMultiLock::new([Member::from(&mutex), Member::read(&rwlock)]).unwrap();
    let guard = both.lock().unwrap();
    let before = guard.lost();
    let Some(child) = forked() else {
        assert!(!guard.is_held() && guard.check().is_err());
        let lost = guard.lost();
        is_raised(&lost);
        assert_eq!(lost.reason(), Some(LossReason::Forked));
        is_raised(&before);
        assert_eq!(guard.valid_for(), Duration::ZERO);
        is_refused(both.try_lock().optional());
        assert!(matches!(guard.unlock(), Err(Error::Lost { reason: LossReason::Forked, .. })));
        drop((both, mutex, rwlock, one, other));
        well()
    };
    ended_well(child);
    for session in [&one, &other] {
        is_unharmed(at, session, &guard.holds().collect::<Vec<_>>());
    }
    guard.unlock().unwrap();
}

/// The parent's threads wait for a guard's signals all the time, so that the locks of their channels
/// are taken at some fork.
fn signals_that_threads_wait_for(at: &str) {
    const FORKS: usize = 200;
    let session = session(at);
    let guard = ZkMutex::new(&session, LOCK).unwrap().lock().unwrap();
    let (lost, asked) = (guard.lost(), guard.revoke_requested());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Over(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let _ = lost.receiver().recv_timeout(Duration::from_nanos(1));
                    let _ = asked.receiver().recv_timeout(Duration::from_nanos(1));
                }
            });
        }
        for _ in 0..FORKS {
            let Some(child) = forked() else {
                is_raised(&lost);
                is_never_asked(&asked);
                well()
            };
            ended_well(child);
        }
        drop(over);
    });
    is_unharmed(at, &session, &[&guard]);
}

/// The child drops the last handle of a session, and of a session that is closed already.
fn last_handle(at: &str) {
    let (open, closed) = (session(at), session(at));
    let mutex = ZkMutex::new(&closed, LOCK).unwrap();
    closed.close().unwrap();
    let Some(child) = forked() else {
        // A child has no control. But all of this is done by its one thread, of which the kernel
        // knows for how long it had no processor.
        let (begun, before) = (Instant::now(), Scheduled::here());
        drop(open);
        drop((closed, mutex));
        let (took, runnable) = (begun.elapsed(), before.since().runnable);
        let best = took.saturating_sub(runnable);
        assert!(best < Duration::from_millis(500), "it has waited for {best:?} of {took:?}");
        well()
    };
    ended_well(child);
    is_unharmed(at, &open, &[]);
}

/// A child connects for itself, and stands in the same queue as its parent, whose thread it was.
fn session_of_its_own(at: &str) {
    let parents = session(at);
    let mutex = ZkMutex::new(&parents, LOCK).unwrap();
    let exclusive = ZkExclusiveLock::new(&parents, "/locks/other").unwrap();
    let guard = mutex.lock().unwrap();
    let Some(child) = forked() else {
        let own = session(at);
        assert_eq!(own.status().state, SessionState::Connected);
        let same = ZkMutex::new(&own, LOCK).unwrap();
        assert!(same.try_lock().optional().unwrap().is_none(), "the parent holds it");
        // Not as if this thread held it: that would be an error.
        let same = ZkMultiLock::new([&same]).unwrap();
        assert!(same.try_lock().optional().unwrap().is_none());
        // Another kind of lock at a path of the parent's: nobody uses it in this process.
        let other = ZkSemaphore::new(&own, "/locks/other", 2).unwrap();
        let permit = other.acquire().unwrap();
        let [holder] = &other.holders().unwrap()[..] else { panic!("one holder") };
        assert!(holder.data.ends_with(format!(":{}", process::id()).as_bytes()));
        assert_eq!(Some(holder.session_id), own.status().session_id);
        permit.release().unwrap();
        is_refused(exclusive.try_lock().optional());
        own.close().unwrap();
        well()
    };
    ended_well(child);
    is_unharmed(at, &parents, &[&guard]);
    guard.unlock().unwrap();
}

/// The lines that the application's logger has had, in this process.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Logger;

impl Log for Logger {
    fn enabled(&self, _: &Metadata) -> bool {
        true
    }

    fn log(&self, record: &Record) {
        LINES.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

/// Waits until the logger has had the line that this session is connected.
#[track_caller]
fn is_logged(session: &ZkSession) {
    let line = format!("session 0x{:x}: connected", session.status().session_id.unwrap());
    until("the line is logged", SOON, || {
        LINES.lock().unwrap().iter().any(|logged| logged.starts_with(&line)).then_some(())
    });
}

/// No thread of the parent logs in the child. What the child's own session logs comes out there.
fn lines_of_the_log(at: &str) {
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Info);
    let parents = session(at);
    is_logged(&parents);
    let Some(child) = forked() else {
        let own = session(at);
        is_logged(&own);
        drop((own, parents));
        well()
    };
    ended_well(child);
    let later = session(at);
    is_logged(&later);
    is_unharmed(at, &parents, &[]);
}

/// What a child made is its own, and nothing for its own child.
fn child_of_a_child(at: &str) {
    let parents = session(at);
    let guard = ZkMutex::new(&parents, LOCK).unwrap().lock().unwrap();
    let Some(child) = forked() else {
        let own = session(at);
        let mutex = ZkMutex::new(&own, "/locks/childs").unwrap();
        let second = mutex.lock().unwrap();
        let Some(grandchild) = forked() else {
            is_lost(&guard);
            is_lost(&second);
            is_refused(mutex.try_lock().optional());
            is_closed(&own);
            let third = session(at);
            let third = ZkMutex::new(&third, "/locks/childs").unwrap();
            assert!(third.try_lock().optional().unwrap().is_none(), "the child holds it");
            drop((second, mutex, own, guard));
            well()
        };
        ended_well(grandchild);
        is_lost(&guard);
        is_unharmed(at, &own, &[&second]);
        well()
    };
    ended_well(child);
    is_unharmed(at, &parents, &[&guard]);
}

/// The parent's other threads take and release the same locks all the time, so that each lock
/// inside the library is taken at some fork.
fn busy_parent(at: &str) {
    const FORKS: usize = 200;
    let session = session(at);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let rwlock = ZkRwLock::new(&session, "/locks/shared").unwrap();
    let semaphore = ZkSemaphore::new(&session, "/locks/two", 2).unwrap();
    let own = ZkMutex::new(&session, "/locks/own").unwrap();
    let mut guard = Some(own.lock().unwrap());
    let (is_over, inside, rounds) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    thread::scope(|scope| {
        let _all = Over(&is_over);
        for _ in 0..3 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let guard = mutex.lock().unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two have the lock");
                    let _ = (guard.lost(), guard.valid_for());
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                    let _write = rwlock.write().unwrap();
                    let _read = rwlock.read().unwrap();
                    drop(semaphore.acquire().unwrap());
                    drop(ZkMutex::new(&session, "/locks/brief").unwrap());
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..FORKS {
            let Some(child) = forked() else {
                is_lost(guard.as_ref().unwrap());
                is_refused(mutex.lock());
                is_refused(rwlock.read());
                is_refused(semaphore.acquire());
                is_refused(semaphore.holders());
                is_closed(&session);
                drop((guard.take(), own.clone()));
                drop((mutex.clone(), rwlock.clone(), semaphore.clone(), session.clone()));
                well()
            };
            ended_well(child);
            assert!(guard.as_ref().unwrap().is_held());
        }
    });
    assert!(rounds.load(Ordering::Relaxed) > 0, "the parent was not busy");
    let guard = guard.unwrap();
    is_unharmed(at, &session, &[&guard]);
    guard.unlock().unwrap();
}
