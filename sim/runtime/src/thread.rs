//! Threads with the interface of `std::thread`.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::core::{self, Tid};
use crate::time::Instant;
use crate::trace::Op;

/// A thread of this run. No number is used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(u64);

impl ThreadId {
    pub(crate) fn of(thread: Tid) -> ThreadId {
        ThreadId(thread as u64 + 1)
    }

    pub(crate) fn number(self) -> Tid {
        usize::try_from(self.0 - 1).unwrap_or(usize::MAX)
    }
}

/// A thread's handle.
pub struct Thread {
    id: ThreadId,
}

impl Thread {
    /// Its id.
    pub fn id(&self) -> ThreadId {
        self.id
    }
}

/// The result of a thread, or the payload of its panic.
pub type Result<T> = std::thread::Result<T>;

struct Packet<T> {
    result: parking_lot::Mutex<Option<Result<T>>>,
    waiters: parking_lot::Mutex<Vec<Tid>>,
}

/// Waits for the end of a thread.
pub struct JoinHandle<T> {
    packet: Arc<Packet<T>>,
    thread: Tid,
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended.
    ///
    /// # Errors
    ///
    /// The payload of the thread's panic.
    pub fn join(self) -> Result<T> {
        core::point(Op::Join, self.thread as u64);
        loop {
            if let Some(result) = self.packet.result.lock().take() {
                return result;
            }
            core::with(|sim| {
                self.packet.waiters.lock().extend(sim.current());
                sim.block("the end of thread", self.thread as u64, None);
            });
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        self.packet.result.lock().is_some()
    }
}

/// Builds a thread with a name.
#[derive(Debug, Default)]
pub struct Builder {
    name: Option<String>,
}

impl Builder {
    /// A builder without a name.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// The thread's name.
    #[must_use]
    pub fn name(self, name: String) -> Builder {
        Builder { name: Some(name) }
    }

    /// Starts the thread in the process of the calling thread.
    ///
    /// # Errors
    ///
    /// None so far.
    pub fn spawn<F, T>(self, body: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let packet = Arc::new(Packet {
            result: parking_lot::Mutex::new(None),
            waiters: parking_lot::Mutex::default(),
        });
        let ends = packet.clone();
        let thread = core::with(|sim| {
            let process = sim.current_process().expect("a thread of no process");
            let body = move || {
                let result = catch_unwind(AssertUnwindSafe(body));
                *ends.result.lock() = Some(result);
                core::with(|sim| sim.wake_all(&ends.waiters.lock()));
            };
            sim.start(self.name.unwrap_or_default(), process, Box::new(body))
        });
        core::point(Op::Spawn, thread as u64);
        Ok(JoinHandle { packet, thread })
    }
}

/// Starts a thread without a name.
pub fn spawn<F, T>(body: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match Builder::new().spawn(body) {
        Ok(thread) => thread,
        Err(e) => resume_unwind(Box::new(e)),
    }
}

/// Starts a thread of the program under test that can be told from those of its users.
///
/// # Errors
///
/// None so far.
pub fn spawn_own<F, T>(name: String, body: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().name(name).spawn(move || {
        core::with(|sim| {
            if let Some(thread) = sim.current() {
                sim.threads.borrow_mut()[thread].is_own = true;
            }
        });
        body()
    })
}

/// Whether the calling thread was started by `spawn_own`.
pub fn is_own_thread() -> bool {
    core::with(|sim| sim.current().is_some_and(|thread| sim.threads.borrow()[thread].is_own))
}

/// The calling thread.
pub fn current() -> Thread {
    Thread { id: this_thread() }
}

/// The calling thread's id.
pub fn this_thread() -> ThreadId {
    let thread = core::try_with(|sim| sim.current()).flatten();
    thread.map_or(ThreadId(0), ThreadId::of)
}

/// Waits for this time.
pub fn sleep(pause: Duration) {
    core::point(Op::Sleep, 0);
    core::with(|sim| {
        let until = Instant::now_at(sim) + pause;
        while Instant::now_at(sim) < until {
            sim.block("its sleep", 0, Some(until.nanos()));
        }
    });
}

/// Lets other threads run.
pub fn yield_now() {
    core::point(Op::Yield, 0);
}
