//! The work of the simulated processes.
//!
//! Each thread of a process takes one lock after the other, holds it for a while, and lets it go:
//! with guards that are dropped or unlocked, nested, downgraded, lost or asked for back.
//!
//! | file | what it is for |
//! | --- | --- |
//! | `account.rs` | how holds have ended in truth |
//! | `calls.rs` | the calls of the library that take a lock |
//! | `listener.rs` | the application's observer of a session |
//! | `passing.rs` | locks at paths of their own, taken once |
//! | `side_channel.rs` | clients talk to each other beside ZooKeeper |
//! | `worker.rs` | the common part of all recipes: a call, a hold, its end, and their checks |
//! | `mutex.rs`, `rwlock.rs`, `semaphore.rs`, `exclusive.rs`, `election.rs`, `multi.rs` | one file per recipe |

mod account;
mod calls;
mod election;
mod exclusive;
mod listener;
mod multi;
mod mutex;
mod passing;
mod rwlock;
mod semaphore;
mod side_channel;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zk_mutex_simulated::observed::{self, Kept};
use zk_mutex_simulated::{
    Acl, Config, Contender, Error, OptionalExt, Result, RetryPolicy, Wait, WaitStrategy,
    ZkElection, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkSession,
};
use zk_sim_runtime::library::{Instant, thread};
use zk_sim_runtime::{Call, Rng, call_begins, fail};

use self::account::{Account, Counted};
use self::listener::Listener;
pub use self::passing::FOLDER as PASSING;
pub use self::side_channel::SideChannel;
use self::side_channel::{News, Tip};
use self::worker::{Canceller, Worker};
use crate::between;
use crate::observer::{Listed, Observer};

/// The state that all processes of a run share, outside of them.
#[derive(Clone)]
pub struct Shared {
    /// The observer.
    pub observer: Observer,
    /// By which clients talk to each other.
    pub side_channel: SideChannel,
    /// An operator has made the folders with odd permissions.
    pub has_odd_folders: Arc<AtomicBool>,
    /// The faults are over. Holds and pauses are short from now on.
    pub is_calm: Arc<AtomicBool>,
    /// The effects of the faults are over too. No call may fail from now on.
    pub is_well: Arc<AtomicBool>,
    /// The threads should end.
    pub is_over: Arc<AtomicBool>,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// A folder with many children that no lock has made, which processes list now and then.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// The number of children.
    pub nodes: usize,
    /// The length of each name. A few long names are as many bytes as many short ones, and cost the
    /// simulation less.
    pub length: usize,
}

impl Listing {
    const FOLDER: &str = "/listing";

    /// The length of its list.
    pub fn bytes(&self) -> u64 {
        (self.nodes * self.length) as u64
    }

    /// The paths of the folder and of all its children.
    pub fn paths(&self) -> impl Iterator<Item = String> {
        let length = self.length;
        let child = move |number| format!("{}/{}-{number}-", Self::FOLDER, "x".repeat(length));
        [Self::FOLDER.to_owned()].into_iter().chain((0..self.nodes).map(child))
    }
}

/// A lock of a run. All processes use it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Place {
    /// The path of the lock.
    pub path: String,
    /// The recipe of the lock.
    pub recipe: Recipe,
    /// How long a guard may hold it, if that is bounded.
    #[serde(default)]
    pub longest: Option<Longest>,
}

/// The longest time of a hold, and what becomes of its node then.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Longest {
    /// After this time the guard is lost.
    pub max_hold: Duration,
    /// Others get the lock then, and not only when the guard is dropped.
    pub is_released: bool,
}

impl Longest {
    /// For one lock in three.
    pub fn random(rng: &mut Rng, session_timeout: Duration) -> Option<Longest> {
        if rng.u32(..3) > 0 {
            return None;
        }
        let max_hold = between(rng, Duration::from_millis(5), session_timeout);
        Some(Longest { max_hold, is_released: rng.bool() })
    }
}

/// Builds a lock, with the longest time of a hold if there is one.
macro_rules! build {
    ($place:expr, $builder:expr) => {
        match $place.longest {
            None => $builder.build()?,
            Some(Longest { max_hold, is_released: false }) => {
                $builder.max_hold(max_hold).build()?
            }
            Some(Longest { max_hold, is_released: true }) => {
                $builder.max_hold(max_hold).release_overdue().build()?
            }
        }
    };
}

/// The recipe of a lock, with its settings.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Recipe {
    /// A `ZkMutex`.
    Mutex {
        /// How long its node is kept between two holds.
        keep: Duration,
        /// How long threads hand it to each other.
        hand_over: Duration,
        /// Waiters watch the list of its nodes.
        watches_parent: bool,
    },
    /// A `ZkRwLock`.
    ReadWrite,
    /// A `ZkSemaphore`.
    Semaphore {
        /// The number of permits that all clients begin with.
        permits: u32,
        /// The number is changed now and then, up to this.
        most: u32,
    },
    /// A `ZkSemaphoreMutex`.
    SemaphoreMutex,
    /// A `ZkExclusiveLock`.
    Exclusive,
    /// A `ZkElection`.
    Election,
}

impl Recipe {
    /// A random recipe.
    pub fn random(rng: &mut Rng, session_timeout: Duration) -> Recipe {
        match rng.u32(..20) {
            0..8 => Recipe::Mutex {
                keep: if rng.u32(..4) == 0 {
                    session_timeout.mul_f64(rng.f64())
                } else {
                    Duration::ZERO
                },
                hand_over: Duration::from_millis([0, 20, 20, 200][rng.usize(..4)]),
                watches_parent: rng.u32(..5) == 0,
            },
            8..13 => Recipe::ReadWrite,
            13..16 => {
                let permits = rng.u32(1..=4);
                let most = if rng.u32(..3) == 0 { permits + rng.u32(1..=2) } else { permits };
                Recipe::Semaphore { permits, most }
            }
            16 => Recipe::SemaphoreMutex,
            17 => Recipe::Exclusive,
            _ => Recipe::Election,
        }
    }
}

impl Place {
    /// The path of its queue, if it has one.
    pub fn queue(&self) -> String {
        match self.recipe {
            Recipe::Semaphore { .. } | Recipe::SemaphoreMutex => format!("{}/locks", self.path),
            _ => self.path.clone(),
        }
    }
}

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The servers' addresses.
    pub connect_string: String,
    /// The session timeout to ask for.
    pub session_timeout: Duration,
    /// The tick of the servers, as the process configures it.
    pub server_tick: Option<Duration>,
    /// Whether a leader may serve the process, as the process configures it. `false` is true only
    /// where no leader serves clients.
    #[serde(default = "yes")]
    pub leader_serves: bool,
    /// The number of threads.
    pub threads: usize,
    /// The locks. Each thread takes each of them now and then.
    pub places: Vec<Place>,
    /// Threads take several locks as one now and then.
    pub has_multi: bool,
    /// One more thread asks again and again for a lock that any server refuses, and another one
    /// takes locks whose nodes nobody may delete.
    pub asks_in_vain: bool,
    /// The session has an observer.
    #[serde(default)]
    pub is_observed: bool,
    /// Threads tell each other at once what they were answered, in all processes.
    #[serde(default)]
    pub talks: bool,
    /// For how long a call without a timeout goes on in an outage, if that is not the default.
    #[serde(default)]
    pub max_elapsed: Option<Duration>,
    /// Now and then a process closes its session while its threads use it, and connects anew.
    #[serde(default)]
    pub closes: bool,
    /// One more thread lists this folder now and then.
    #[serde(default)]
    pub listing: Option<Listing>,
    /// The number of the process.
    #[serde(skip)]
    pub number: usize,
    /// Some processes are in a hurry. The threads of the others are patient then.
    #[serde(default)]
    pub hasty: Option<Hasty>,
    /// Threads make their lock objects for each call, and drop them after it.
    #[serde(default)]
    pub remakes: bool,
    /// One more thread takes locks at paths of their own, once each. This is about the time that a
    /// call takes.
    #[serde(default)]
    pub passes: Option<Duration>,
    /// One more thread asks for locks in folders that it may not read.
    #[serde(default)]
    pub is_kept_from_reading: bool,
    /// The longest time of a usual hold.
    pub longest_hold: Duration,
    /// One hold in so many is longer than that.
    pub long_hold_in: u32,
    /// The longest time between two holds.
    pub longest_pause: Duration,
    /// The seed of its random choices.
    pub seed: u64,
}

/// Processes in a hurry.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Hasty {
    /// How many: the processes with the lowest numbers.
    pub processes: usize,
    /// Their threads wait for this time at most.
    pub patience: Duration,
}

fn yes() -> bool {
    true
}

/// A lock object of a thread.
enum Lock {
    Mutex(ZkMutex),
    ReadWrite(ZkRwLock),
    Semaphore(ZkSemaphore),
    SemaphoreMutex(ZkSemaphoreMutex),
    Exclusive(ZkExclusiveLock),
    Election(ZkElection),
}

impl Lock {
    fn new(session: &ZkSession, place: &Place) -> Result<Lock> {
        let path = place.path.as_str();
        Ok(match &place.recipe {
            Recipe::Mutex { keep, hand_over, watches_parent } => {
                let strategy =
                    if *watches_parent { WaitStrategy::Parent } else { WaitStrategy::Predecessor };
                let builder =
                    ZkMutex::builder(session, path).hand_over(*hand_over).wait_strategy(strategy);
                Lock::Mutex(build!(place, builder.keep(*keep)))
            }
            Recipe::ReadWrite => Lock::ReadWrite(build!(place, ZkRwLock::builder(session, path))),
            Recipe::Semaphore { permits, .. } => {
                let mut told = *permits;
                loop {
                    let made = build!(place, ZkSemaphore::builder(session, path, told));
                    // It waits: whoever gets no answer asks again at once.
                    let wait = Wait::timeout(session.status().timeout / 6);
                    match made.permits_with(wait) {
                        // Another client has changed the number, and this error reports it.
                        Err(Error::InconsistentPermits { theirs, .. }) => told = theirs,
                        Err(e) => return Err(e),
                        Ok(_) => break Lock::Semaphore(made),
                    }
                }
            }
            Recipe::SemaphoreMutex => {
                Lock::SemaphoreMutex(build!(place, ZkSemaphoreMutex::builder(session, path)))
            }
            Recipe::Exclusive => {
                Lock::Exclusive(build!(place, ZkExclusiveLock::builder(session, path)))
            }
            Recipe::Election => Lock::Election(ZkElection::new(session, path)?),
        })
    }

    fn list(&self, which: Listed) -> Result<Vec<Contender>> {
        macro_rules! list {
            ($($recipe:ident),*) => {
                match (self, which) {
                    $((Lock::$recipe(lock), Listed::Holders) => lock.holders(),)*
                    $((Lock::$recipe(lock), Listed::Contenders) => lock.contenders(),)*
                    // It has no queue.
                    (Lock::Exclusive(lock), _) => lock.holders(),
                }
            };
        }
        list!(Mutex, ReadWrite, Semaphore, SemaphoreMutex, Election)
    }
}

/// Runs in a simulated process until the run is over.
pub fn run(job: &Job, shared: &Shared) {
    let mut number = 0;
    loop {
        let is_closed = job.closes.then(Arc::<AtomicBool>::default);
        let job = Job { seed: job.seed.wrapping_add(number << 32), ..job.clone() };
        use_session(&job, shared, is_closed.as_ref());
        if is_closed.is_none_or(|is_closed| !is_closed.load(Ordering::Relaxed)) {
            return;
        }
        number += 1;
    }
}

/// Connects, and uses the session until it is closed or the run is over.
fn use_session(job: &Job, shared: &Shared, is_closed: Option<&Arc<AtomicBool>>) {
    let account = Account::default();
    let (session, is_told) = loop {
        let mut config = Config::new(job.connect_string.as_str())
            .session_timeout(job.session_timeout)
            .leader_serves(job.leader_serves);
        if let Some(tick) = job.server_tick {
            config = config.server_tick(tick);
        }
        if let Some(max_elapsed) = job.max_elapsed {
            config = config.retry_policy(RetryPolicy { max_elapsed, ..RetryPolicy::default() });
        }
        if job.asks_in_vain {
            // Credentials that give the session no identity of its own.
            config = config.auth("ip", "");
        }
        let mut builder = ZkSession::builder(config);
        let mut is_told = None;
        if job.is_observed {
            let of_several = job.has_multi;
            let (observer, account) = (shared.observer.clone(), account.clone());
            let (listener, is_closed) =
                Listener::new(observer, is_closed.cloned(), account, of_several);
            builder = builder.observer(listener);
            is_told = Some(is_closed);
        }
        match builder.connect() {
            Ok(session) => break (session, is_told),
            Err(e) => {
                log::info!("no session: {e}");
                shared.observer.lets_a_client_go();
            }
        }
        if shared.is_over() {
            return;
        }
    };
    // These objects keep the counts of their paths, which go with the last object.
    let counted = if job.remakes || job.closes { Vec::new() } else { Counted::all(&session, job) };
    let canceller = Canceller::start();
    let in_vain = job.asks_in_vain.then(|| {
        let programs = [ask_in_vain, hold_undeletable];
        programs.map(|program| {
            let (job, shared, session) = (job.clone(), shared.clone(), session.clone());
            thread::spawn(move || program(&job, &shared, &session))
        })
    });
    let lists = job.listing.map(|_| {
        let (job, shared, session) = (job.clone(), shared.clone(), session.clone());
        thread::spawn(move || list_much(&job, &shared, &session))
    });
    let unread = job.is_kept_from_reading.then(|| {
        let (job, shared, session) = (job.clone(), shared.clone(), session.clone());
        thread::spawn(move || ask_unread(&job, &shared, &session))
    });
    let passes = job.passes.map(|limit| {
        let (job, shared, session) = (job.clone(), shared.clone(), session.clone());
        let is_closed = is_closed.cloned();
        let is_closed = move || is_closed.as_ref().is_some_and(|is| is.load(Ordering::Relaxed));
        thread::spawn(move || passing::pass(&job, &shared, &session, limit, is_closed))
    });
    let in_vain = in_vain.into_iter().flatten().chain(lists).chain(unread).chain(passes);
    let threads: Vec<_> = (0..job.threads)
        .map(|number| {
            let rng = Rng::with_seed(job.seed.wrapping_add(number as u64));
            let (job, shared, session) = (job.clone(), shared.clone(), session.clone());
            let mut worker = Worker::new(number, job, shared, rng, canceller.clone());
            (worker.is_closed, worker.account) = (is_closed.cloned(), account.clone());
            thread::spawn(move || work(&mut worker, &session))
        })
        .collect();
    drop(canceller);
    let closer = is_closed.map(|is_closed| {
        let (job, shared, session, closed) =
            (job.clone(), shared.clone(), session.clone(), is_closed.clone());
        thread::spawn(move || close_in_use(&job, &shared, &session, &closed))
    });
    threads.into_iter().chain(in_vain).chain(closer).for_each(|thread| drop(thread.join()));
    for of in counted {
        of.check(&shared.observer, &account, job.has_multi);
    }
    if is_closed.is_none_or(|is_closed| !is_closed.load(Ordering::Relaxed)) {
        forgets(job, shared, &session);
    }
    worker::check_close(&shared.observer, || session.close());
    let is_over = shared.is_over();
    if let Some(is_told) = is_told.filter(|_| is_over) {
        // `close` waits for the thread that calls the observer, but not for ever.
        let until = Instant::now() + Duration::from_secs(1);
        while !is_told.load(Ordering::Relaxed) && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let is_told = is_told.load(Ordering::Relaxed);
        shared.observer.check("account", is_told, || "the end was not told".to_owned());
    }
}

/// Closes the session while threads use it. What they do with it may fail from then on.
fn close_in_use(job: &Job, shared: &Shared, session: &ZkSession, is_closed: &AtomicBool) {
    let mut rng = Rng::with_seed(job.seed.wrapping_add(u64::MAX - 2));
    let longest = job.session_timeout * 8;
    let until = Instant::now() + between(&mut rng, job.session_timeout / 4, longest);
    while Instant::now() < until {
        thread::sleep((until - Instant::now()).min(job.session_timeout / 2));
        if shared.is_calm.load(Ordering::Relaxed) {
            return;
        }
    }
    is_closed.store(true, Ordering::Relaxed);
    call_begins(Call::Close);
    worker::check_close(&shared.observer, || session.close());
}

fn work(worker: &mut Worker, session: &ZkSession) {
    let mut locks = make(worker, session);
    let mut tip = None;
    while !worker.is_over() && locks.len() == worker.places().len() {
        worker.check_released();
        if worker.is_closed() {
            break;
        }
        if worker.remakes() {
            // All objects are gone before the next are made.
            drop(std::mem::take(&mut locks));
            locks = make(worker, session);
            continue;
        }
        let which = worker.rng.usize(..locks.len());
        match tip {
            Some(tip) => hears(worker, session, &locks, tip),
            None if worker.wants_several() => {
                worker.uses(None);
                multi::turn(worker, &locks);
            }
            None => turn(worker, session, &locks, which),
        }
        worker.rests();
        tip = worker.pause();
    }
    worker.check_released();
}

/// Makes an object of each lock. There are fewer if the run is over, or the session closed.
fn make(worker: &Worker, session: &ZkSession) -> Vec<Lock> {
    worker
        .places()
        .iter()
        .filter_map(|place| {
            loop {
                match Lock::new(session, place) {
                    Ok(lock) => return Some(lock),
                    Err(Error::Unavailable { .. } | Error::InconsistentPermits { .. }) => {}
                    Err(_) if worker.is_closed() => return None,
                    Err(e) => {
                        fail("wrong error", format!("{}: no lock: {e}", place.path));
                        return None;
                    }
                }
                if worker.is_over() {
                    return None;
                }
            }
        })
        .collect()
}

/// Takes the lock with this number once.
fn turn(worker: &mut Worker, session: &ZkSession, locks: &[Lock], which: usize) {
    worker.uses(Some(which));
    let place = worker.places()[which].clone();
    match &locks[which] {
        Lock::Mutex(lock) => mutex::turn(worker, session, lock, &place),
        Lock::ReadWrite(lock) => rwlock::turn(worker, session, lock, &place),
        Lock::Semaphore(lock) => semaphore::turn(worker, session, lock, &place),
        Lock::SemaphoreMutex(lock) => semaphore::mutex_turn(worker, lock, &place),
        Lock::Exclusive(lock) => exclusive::turn(worker, lock, &place),
        Lock::Election(lock) => election::turn(worker, session, lock, &place),
    }
}

/// Another client has told something: the thread asks at once, and takes no old answer.
fn hears(worker: &mut Worker, session: &ZkSession, locks: &[Lock], tip: Tip) {
    let place = worker.places()[tip.place].clone();
    if worker.one_in(3) {
        let which = if worker.rng.bool() { Listed::Holders } else { Listed::Contenders };
        worker.lists(&place, which, || locks[tip.place].list(which));
        return;
    }
    if let News::Permits(number) = tip.news
        && worker.rng.bool()
    {
        return semaphore::hears(worker, session, &place, number);
    }
    worker.tries = true;
    turn(worker, session, locks, tip.place);
    worker.tries = false;
}

/// Asks for a lock whose nodes would belong to the identities of a session that has none, so the
/// create is refused. With eager ACL checks each server refuses it by itself, even a server that
/// has lost its leader.
fn ask_in_vain(job: &Job, shared: &Shared, session: &ZkSession) {
    let mut rng = Rng::with_seed(job.seed.wrapping_add(u64::MAX));
    let mutex = match ZkMutex::builder(session, "/refused").acl(Acl::CreatorAll).build() {
        Ok(mutex) => mutex,
        Err(e) => return fail("wrong error", format!("no lock: {e}")),
    };
    while !shared.is_over() {
        thread::sleep(between(&mut rng, Duration::from_millis(1), job.session_timeout / 4));
        shared.observer.calls();
        let outcome = mutex.try_lock().optional();
        shared.observer.calls();
        match outcome {
            Err(e) => log::debug!("refused: {e}"),
            Ok(_) => fail("wrong error", "a lock was given that every server must refuse"),
        }
    }
}

/// Lists the large folder now and then, and asks again until there is an answer. None of its nodes
/// is of a lock.
fn list_much(job: &Job, shared: &Shared, session: &ZkSession) {
    let mut rng = Rng::with_seed(job.seed.wrapping_add(u64::MAX - 3));
    let mutex = match ZkMutex::new(session, Listing::FOLDER) {
        Ok(mutex) => mutex,
        Err(e) => return fail("wrong error", format!("no lock: {e}")),
    };
    while !shared.is_over() {
        let pause = between(&mut rng, job.session_timeout / 4, job.session_timeout * 4);
        thread::sleep(pause);
        shared.observer.lists_much();
        loop {
            shared.observer.calls();
            let listed = mutex.contenders();
            shared.observer.calls();
            match listed {
                Err(e) => log::debug!("no list: {e}"),
                Ok(all) if all.is_empty() => break,
                Ok(all) => return fail("wrong error", format!("{all:?}: nobody has made these")),
            }
            if shared.is_over() {
                return;
            }
            thread::sleep(job.session_timeout / 12);
        }
        shared.observer.has_listed();
    }
}

/// The folders of locks whose ACLs permit no reads.
pub fn unreadable() -> impl Iterator<Item = String> {
    (0..4).map(|number| format!("{UNREADABLE}/{number}"))
}

/// The folder above.
pub const UNREADABLE: &str = "/unreadable";

/// Asks for locks in folders in which it may make and delete nodes and may not list them.
fn ask_unread(job: &Job, shared: &Shared, session: &ZkSession) {
    let mut rng = Rng::with_seed(job.seed.wrapping_add(u64::MAX - 5));
    let paths: Vec<String> = unreadable().collect();
    while !shared.is_over() {
        thread::sleep(between(&mut rng, Duration::from_millis(1), job.session_timeout));
        if !shared.has_odd_folders.load(Ordering::Relaxed) {
            continue; // a lock would make the folder
        }
        let path = &paths[rng.usize(..paths.len())];
        let wait = match rng.bool() {
            true => calls::Wait::Try,
            false => calls::Wait::Timeout(job.session_timeout),
        };
        shared.observer.calls();
        let taken =
            match rng.bool() {
                true => ZkMutex::new(session, path)
                    .and_then(|of| Ok(calls::mutex(&of, &wait)?.is_some())),
                false => ZkRwLock::new(session, path)
                    .and_then(|of| Ok(calls::read(&of, &wait)?.is_some())),
            };
        shared.observer.calls();
        // An operator has permitted it at the end.
        let is_usual = !shared.has_odd_folders.load(Ordering::Relaxed);
        let is_expected =
            is_usual || matches!(taken, Err(Error::NoAuth { .. } | Error::Unavailable { .. }));
        let text = || format!("{path}, which may not be read: {taken:?}");
        shared.observer.check("wrong error", is_expected, text);
    }
}

/// The folders of locks whose nodes nobody may delete: they go with their sessions.
pub fn undeletable() -> impl Iterator<Item = String> {
    (0..8).map(|number| format!("{UNDELETABLE}/{number}"))
}

/// The folder above.
pub const UNDELETABLE: &str = "/undeletable";

/// Takes locks whose nodes nobody may delete. That is the trouble of these locks alone: the session
/// must not lose others by it.
fn hold_undeletable(job: &Job, shared: &Shared, session: &ZkSession) {
    let mut rng = Rng::with_seed(job.seed.wrapping_add(u64::MAX - 1));
    let paths: Vec<String> = undeletable().collect();
    while !shared.is_over() {
        let path = &paths[rng.usize(..paths.len())];
        shared.observer.calls();
        shared.observer.uses(job.threads, &[path]);
        let taken = ZkMutex::new(session, path).and_then(|mutex| mutex.try_lock().optional());
        shared.observer.uses(job.threads, &[]);
        shared.observer.calls();
        let lasts = match taken {
            Ok(Some(guard)) => {
                let until = Instant::now() + job.session_timeout.mul_f64(6.0 * rng.f64());
                while guard.is_held() && Instant::now() < until && !shared.is_over() {
                    thread::sleep(job.session_timeout / 8);
                }
                Duration::ZERO
            }
            Ok(None) | Err(_) => job.session_timeout / 4,
        };
        thread::sleep(lasts + between(&mut rng, Duration::from_millis(1), job.session_timeout));
    }
}

/// Checks that the session keeps nothing when all threads and locks are gone.
fn forgets(job: &Job, shared: &Shared, session: &ZkSession) {
    // The timer of a lock that was kept stays until it fires.
    let kept = job.places.iter().map(|place| match place.recipe {
        Recipe::Mutex { keep, .. } => keep,
        _ => Duration::ZERO,
    });
    let longest = kept.max().unwrap_or_default();
    let until = Instant::now() + longest + job.session_timeout * 3 + Duration::from_secs(1);
    loop {
        let kept = observed::kept(session);
        // The last released hold may stay in the list of those whose nodes may need a watch, and a
        // create without an answer is remembered for as long as it may still be done.
        let Kept { unwatched, late_creates, .. } = kept;
        let documented = Kept { unwatched: unwatched.min(1), late_creates, ..Kept::default() };
        let locks = observed::locks();
        let is_well = kept == documented && locks == 0;
        if is_well || Instant::now() >= until {
            shared.observer.check("memory", is_well, || format!("{kept:?}, {locks} locks"));
            return;
        }
        thread::sleep(between(
            &mut Rng::with_seed(job.seed),
            Duration::from_millis(1),
            Duration::from_millis(50),
        ));
    }
}
