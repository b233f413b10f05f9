//! Acts of the world at a step of a process, and not at a time: between two operations of one
//! thread that touch what threads share. A thread, or its whole process, can be stopped there.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::core::{self, Sim, Tid};
use crate::process::{self, ProcessId};
use crate::thread::ThreadId;
use crate::trace::Op;

/// A kind of operation that touches what threads, or processes, share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Touch {
    /// Of any kind.
    Anything,
    /// A mutex is about to be locked, or was unlocked.
    Mutex,
    /// An atomic value is about to be read or written.
    Atomic,
    /// A message is about to be sent or received.
    Channel,
    /// Bytes are about to be read from a socket.
    Read,
    /// Bytes are about to be written to a socket.
    Write,
    /// A clock is about to be read.
    Clock,
    /// A thread goes on, in a call, after a wait that somebody has ended.
    Woken,
    /// A thread goes on, in a call, after a wait that its deadline has ended.
    TimedOut,
    /// A thread begins what [`call_begins`] tells.
    Call(Call),
}

/// What the program under test asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Call {
    /// A call that takes something.
    Take,
    /// A call that lets it go.
    LetGo,
    /// A call that ends everything.
    Close,
}

impl Touch {
    /// The kinds of single operations.
    pub const ALL: [Touch; 7] = [
        Touch::Anything,
        Touch::Mutex,
        Touch::Atomic,
        Touch::Channel,
        Touch::Read,
        Touch::Write,
        Touch::Clock,
    ];

    fn is(self, op: Op) -> bool {
        match self {
            Touch::Anything => true,
            Touch::Mutex => matches!(op, Op::Lock | Op::TryLock | Op::Unlock),
            Touch::Atomic => op == Op::Atomic,
            Touch::Channel => matches!(op, Op::Send | Op::Receive | Op::Select),
            Touch::Read => op == Op::Read,
            Touch::Write => op == Op::Write,
            Touch::Clock => op == Op::Clock,
            Touch::Woken | Touch::TimedOut | Touch::Call(_) => false,
        }
    }
}

/// A step of a process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The kind of the operations that are counted.
    pub touch: Touch,
    /// Only those of threads that were started by `spawn_own`, or only those of other threads.
    pub is_own: Option<bool>,
    /// The step is the one with this number from now on. The first is 1.
    pub nth: u32,
    /// If this is not zero, the step meant is a later one: so many steps, of any kind, does the
    /// thread that has come to the step above take after it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub then: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // as serde calls it
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An act that waits for its step.
pub(crate) struct Awaited {
    process: ProcessId,
    step: Step,
    /// The thread whose further steps are counted, once it has come to the first one.
    thread: Option<Tid>,
    act: Box<dyn FnOnce(ThreadId)>,
}

/// Calls `act` as soon as the process is at this step, with the thread that is there. As each act
/// of the world it must not block. It is forgotten if the process ends before.
pub fn at_step(process: ProcessId, step: Step, act: impl FnOnce(ThreadId) + 'static) {
    core::with(|sim| {
        let (step, act) = (Step { nth: step.nth.max(1), ..step }, Box::new(act));
        sim.awaited.borrow_mut().push(Awaited { process, step, thread: None, act });
    });
}

/// The calling thread begins this. It is no step: acts that wait for it alone are called before the
/// thread's next step.
pub fn call_begins(call: Call) {
    core::try_with(|sim| {
        sim.set_in_call(true);
        sim.marks(Touch::Call(call));
    });
}

/// What the calling thread has begun is over.
pub fn call_ends() {
    core::try_with(|sim| sim.set_in_call(false));
}

/// Takes the processor from one thread for this time, while the other threads of its process go
/// on.
pub fn hold_thread(thread: ThreadId, lasts: Duration) {
    let process = core::with(|sim| {
        let thread = thread.number();
        sim.note(&format!("thread {thread} is held for {lasts:?}"));
        sim.preempt(thread, u64::try_from(lasts.as_nanos()).unwrap_or(u64::MAX));
        sim.threads.borrow()[thread].process
    });
    process::halt(process);
    core::after(lasts, move || process::go_on(process));
}

impl Sim {
    /// The thread is at a step: calls the acts that wait for it. False if none did.
    pub(crate) fn reach(&self, thread: Tid, op: Op) -> bool {
        self.count_step(thread, |awaited| awaited.thread.is_some() || awaited.step.touch.is(op));
        let (mut acts, mut at) = (Vec::new(), 0);
        let mut awaited = self.awaited.borrow_mut();
        while at < awaited.len() {
            let Awaited { step, thread: counted, .. } = &awaited[at];
            if step.nth == 0 && counted.is_none_or(|counted| counted == thread) {
                acts.push(awaited.remove(at).act);
            } else {
                at += 1;
            }
        }
        drop(awaited);
        let is_reached = !acts.is_empty();
        self.act(|| acts.into_iter().for_each(|act| act(ThreadId::of(thread))));
        is_reached
    }

    fn set_in_call(&self, is_in_call: bool) {
        if let Some(thread) = self.current() {
            self.threads.borrow_mut()[thread].is_in_call = is_in_call;
        }
    }

    /// The running thread is at this place, which is no step.
    pub(crate) fn marks(&self, touch: Touch) {
        if let Some(thread) = self.current()
            && !self.awaited.borrow().is_empty()
        {
            self.count_step(thread, |awaited| {
                awaited.thread.is_none() && awaited.step.touch == touch
            });
        }
    }

    /// Counts a step for the acts that wait for such a step of this thread's process.
    fn count_step(&self, thread: Tid, is_meant: impl Fn(&Awaited) -> bool) {
        let (of, is_own) = {
            let threads = self.threads.borrow();
            (threads[thread].process, threads[thread].is_own)
        };
        for awaited in &mut *self.awaited.borrow_mut() {
            let is_counted = awaited.process == of
                && awaited.step.nth > 0
                && match awaited.thread {
                    Some(counted) => counted == thread,
                    None => awaited.step.is_own.is_none_or(|wanted| wanted == is_own),
                }
                && is_meant(awaited);
            if !is_counted {
                continue;
            }
            let step = &mut awaited.step;
            step.nth -= 1;
            let is_mark = !Touch::ALL.contains(&step.touch);
            if step.nth == 0 && awaited.thread.is_none() && (step.then > 0 || is_mark) {
                // A mark is no step: what waits for it happens at the thread's next one.
                (awaited.thread, step.nth) = (Some(thread), step.then.max(1));
            }
        }
    }

    pub(crate) fn forget_steps(&self, process: ProcessId) {
        self.awaited.borrow_mut().retain(|awaited| awaited.process != process);
    }
}
