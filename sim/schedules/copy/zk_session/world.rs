//! Replaces the library's world (`src/world.rs`) under an explored schedule: locks, channels,
//! one-time cells and the clock, with the names and the meaning that the library expects. `engine`
//! is loom or shuttle.
//!
//! A channel is a queue behind one lock. A thread that waits for several channels and a deadline
//! registers one waker with each of them, as `crossbeam-channel` does. The clock stands still until
//! a scenario advances it, so a deadline comes at every possible moment of the other threads'
//! steps.
//!
//! All threads of an explored execution run on one thread of the operating system, one at a time.
//! So all of them share a plain thread-local, and the standard library's atomics, which the engine
//! does not see, are plain counters for the scenarios' own notes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Add;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::super::engine;
pub use engine::sync::atomic;
use engine::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use engine::sync::{Condvar, MutexGuard};

/// Iterates in the same order in each execution: an explored execution must be repeatable.
pub type HashMap<K, V, S = BuildHasherDefault<DefaultHasher>> = std::collections::HashMap<K, V, S>;
pub type HashSet<K, S = BuildHasherDefault<DefaultHasher>> = std::collections::HashSet<K, S>;

// ---- threads ----

pub use engine::thread::JoinHandle;

pub mod thread {
    pub use super::engine::thread::ThreadId;
}

pub fn this_thread() -> thread::ThreadId {
    engine::thread::current().id()
}

pub fn spawn<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    engine::thread::spawn(f)
}

/// Explores all schedules of `f`.
pub fn explore(f: impl Fn() + Send + Sync + 'static) {
    explore_up_to(None, f);
}

/// Explores the schedules of `f` in which threads that could continue lose the processor at most so
/// many times.
pub fn explore_up_to(preemptions: Option<usize>, f: impl Fn() + Send + Sync + 'static) {
    engine::explore(preemptions, move || {
        CLOCK.set(Some(Clock::new()));
        f();
    });
}

/// As `forkguard::Guard`: no process forks here.
#[derive(Clone)]
pub struct ForkGuard;

impl ForkGuard {
    pub fn try_new() -> Result<Self, std::convert::Infallible> {
        Ok(ForkGuard)
    }

    pub fn detected_fork(&mut self) -> bool {
        false
    }
}

// ---- locks and one-time cells ----

pub use std::sync::LazyLock;

/// As `parking_lot::Mutex`.
#[derive(Default)]
pub struct Mutex<T>(engine::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Mutex(engine::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As `std::sync::OnceLock`: a thread that finds the value also sees all earlier writes of its
/// writer. The value itself is in a cell that the engine does not know; the engine knows the flag
/// that says whether the value is there.
pub struct OnceLock<T> {
    is_set: AtomicBool,
    setting: Mutex<()>,
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub fn new() -> Self {
        OnceLock {
            is_set: AtomicBool::new(false),
            setting: Mutex::new(()),
            value: std::sync::OnceLock::new(),
        }
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        let _setting = self.setting.lock();
        if self.is_set.load(Ordering::Acquire) {
            return Err(value);
        }
        let set = self.value.set(value);
        self.is_set.store(true, Ordering::Release);
        set
    }

    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        if self.get().is_none() {
            let _ = self.set(make());
        }
        self.get().expect("just set")
    }

    pub fn get(&self) -> Option<&T> {
        if self.is_set.load(Ordering::Acquire) { self.value.get() } else { None }
    }
}

// ---- the clock ----

thread_local! {
    static CLOCK: RefCell<Option<Arc<Clock>>> = const { RefCell::new(None) };
}

struct Clock {
    nanos: AtomicU64,
    sleepers: Mutex<Vec<(Instant, Arc<Waker>)>>,
}

impl Clock {
    fn new() -> Arc<Self> {
        let start = 1_000_000_000_000;
        Arc::new(Clock { nanos: AtomicU64::new(start), sleepers: Mutex::default() })
    }

    fn get() -> Arc<Self> {
        CLOCK.with_borrow(|clock| clock.clone()).expect("a scenario runs inside explore()")
    }

    /// Reads the newest time, and orders nothing else: the clock must not synchronise threads. Only
    /// a read that also writes is sure to find the newest value.
    fn now(&self) -> Duration {
        Duration::from_nanos(self.nanos.fetch_add(0, Ordering::Relaxed))
    }

    /// Wakes `waker` when this time has come; true if it has come already.
    fn wake_at(&self, deadline: Instant, waker: &Arc<Waker>) -> bool {
        self.sleepers.lock().push((deadline, waker.clone()));
        Instant::now() >= deadline
    }
}

/// Advances the clock and wakes the threads whose deadline has come.
pub fn advance(by: Duration) {
    let clock = Clock::get();
    clock.nanos.fetch_add(u64::try_from(by.as_nanos()).expect("a short time"), Ordering::Relaxed);
    let now = Instant::now();
    let mut sleepers = clock.sleepers.lock();
    let (due, rest) = sleepers.drain(..).partition(|(deadline, _)| *deadline <= now);
    *sleepers = rest;
    drop(sleepers);
    let due: Vec<(Instant, Arc<Waker>)> = due;
    due.iter().for_each(|(_, waker)| waker.wake());
}

pub fn boot_time() -> Duration {
    Clock::get().now()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Self {
        Instant(Clock::get().now())
    }

    pub fn checked_add(self, d: Duration) -> Option<Self> {
        self.0.checked_add(d).map(Instant)
    }

    pub fn saturating_duration_since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, d: Duration) -> Instant {
        Instant(self.0 + d)
    }
}

// ---- channels ----

/// Wakes one thread, once.
struct Waker {
    is_woken: Mutex<bool>,
    changed: Condvar,
}

impl Waker {
    fn new() -> Arc<Self> {
        Arc::new(Waker { is_woken: Mutex::new(false), changed: Condvar::new() })
    }

    fn wake(&self) {
        *self.is_woken.lock() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut is_woken = self.is_woken.lock();
        while !*is_woken {
            is_woken = self.changed.wait(is_woken).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

struct Channel<T> {
    capacity: usize,
    state: Mutex<Ends<T>>,
}

struct Ends<T> {
    messages: VecDeque<T>,
    senders: usize,
    receivers: usize,
    waiting: Vec<Arc<Waker>>,
}

pub struct Sender<T>(Arc<Channel<T>>);

pub struct Receiver<T>(Arc<Channel<T>>);

pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let ends = Ends { messages: VecDeque::new(), senders: 1, receivers: 1, waiting: Vec::new() };
    let channel = Arc::new(Channel { capacity, state: Mutex::new(ends) });
    (Sender(channel.clone()), Receiver(channel))
}

#[derive(Debug)]
pub enum TrySendError<T> {
    Full(T),
    Disconnected(T),
}

impl<T> TrySendError<T> {
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
        }
    }
}

#[derive(Debug)]
pub enum TryRecvError {
    Empty,
    Disconnected,
}

impl TryRecvError {
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TryRecvError::Disconnected)
    }
}

#[derive(Debug)]
pub struct RecvError;

#[derive(Debug)]
pub enum RecvTimeoutError {
    Timeout,
    Disconnected,
}

#[derive(Debug)]
pub struct ReadyTimeoutError;

impl<T> Sender<T> {
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let mut ends = self.0.state.lock();
        if ends.receivers == 0 {
            return Err(TrySendError::Disconnected(message));
        }
        if ends.messages.len() >= self.0.capacity {
            return Err(TrySendError::Full(message));
        }
        ends.messages.push_back(message);
        let waiting = std::mem::take(&mut ends.waiting);
        drop(ends);
        waiting.iter().for_each(|waker| waker.wake());
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return; // the execution is over
        }
        let mut ends = self.0.state.lock();
        ends.senders -= 1;
        if ends.senders == 0 {
            let waiting = std::mem::take(&mut ends.waiting);
            drop(ends);
            waiting.iter().for_each(|waker| waker.wake());
        }
    }
}

impl<T> Receiver<T> {
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut ends = self.0.state.lock();
        let empty = if ends.senders == 0 { TryRecvError::Disconnected } else { TryRecvError::Empty };
        ends.messages.pop_front().ok_or(empty)
    }

    pub fn recv(&self) -> Result<T, RecvError> {
        self.receive(None).map_err(|_| RecvError)
    }

    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.receive(Some(deadline))
    }

    fn receive(&self, deadline: Option<Instant>) -> Result<T, RecvTimeoutError> {
        loop {
            match self.try_recv() {
                Ok(message) => return Ok(message),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            wait(&[self], deadline).map_err(|_| RecvTimeoutError::Timeout)?;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().receivers += 1;
        Receiver(self.0.clone())
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return; // the execution is over
        }
        let mut ends = self.0.state.lock();
        ends.receivers -= 1;
        // Messages that no thread can receive any more are dropped outside the lock.
        let lost = if ends.receivers == 0 { std::mem::take(&mut ends.messages) } else { VecDeque::new() };
        drop(ends);
        drop(lost);
    }
}

/// An object that a thread can wait for.
trait Source {
    /// Wakes `waker` when there is something to receive; true if there is already.
    fn register(&self, waker: &Arc<Waker>) -> bool;

    fn unregister(&self, waker: &Arc<Waker>);
}

impl<T> Source for Receiver<T> {
    fn register(&self, waker: &Arc<Waker>) -> bool {
        let mut ends = self.0.state.lock();
        ends.waiting.push(waker.clone());
        !ends.messages.is_empty() || ends.senders == 0
    }

    fn unregister(&self, waker: &Arc<Waker>) {
        self.0.state.lock().waiting.retain(|other| !Arc::ptr_eq(other, waker));
    }
}

/// Waits until one of the sources has something, or the deadline has come. A waker serves one wait:
/// after it the thread checks all sources again.
fn wait(sources: &[&dyn Source], deadline: Option<Instant>) -> Result<(), ReadyTimeoutError> {
    loop {
        let waker = Waker::new();
        let is_ready = sources.iter().any(|source| source.register(&waker));
        let is_late = !is_ready && deadline.is_some_and(|at| Clock::get().wake_at(at, &waker));
        if !is_ready && !is_late {
            waker.wait();
        }
        sources.iter().for_each(|source| source.unregister(&waker));
        if is_ready {
            return Ok(());
        }
        if is_late {
            return Err(ReadyTimeoutError);
        }
    }
}

/// As `crossbeam_channel::Select`, as far as the library uses it.
pub struct Select<'a>(Vec<&'a dyn Source>);

impl<'a> Select<'a> {
    pub fn new() -> Self {
        Select(Vec::new())
    }

    pub fn recv<T>(&mut self, from: &'a Receiver<T>) {
        self.0.push(from);
    }

    pub fn ready(&mut self) {
        wait(&self.0, None).expect("there is no deadline");
    }

    pub fn ready_deadline(&mut self, deadline: Instant) -> Result<(), ReadyTimeoutError> {
        wait(&self.0, Some(deadline))
    }
}
