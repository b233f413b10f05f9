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
}

impl Touch {
    /// All kinds.
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
}

/// An act that waits for its step.
pub(crate) struct Awaited {
    process: ProcessId,
    step: Step,
    act: Box<dyn FnOnce(ThreadId)>,
}

/// Calls `act` as soon as the process is at this step, with the thread that is there. As each act
/// of the world it must not block. It is forgotten if the process ends before.
pub fn at_step(process: ProcessId, step: Step, act: impl FnOnce(ThreadId) + 'static) {
    core::with(|sim| {
        let (step, act) = (Step { nth: step.nth.max(1), ..step }, Box::new(act));
        sim.awaited.borrow_mut().push(Awaited { process, step, act });
    });
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
        let (of, is_own) = {
            let threads = self.threads.borrow();
            (threads[thread].process, threads[thread].is_own)
        };
        let mut awaited = self.awaited.borrow_mut();
        for Awaited { process, step, .. } in &mut *awaited {
            let is_counted = *process == of
                && step.touch.is(op)
                && step.is_own.is_none_or(|wanted| wanted == is_own);
            step.nth -= u32::from(is_counted);
        }
        let (mut acts, mut at) = (Vec::new(), 0);
        while at < awaited.len() {
            if awaited[at].step.nth == 0 {
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

    pub(crate) fn forget_steps(&self, process: ProcessId) {
        self.awaited.borrow_mut().retain(|awaited| awaited.process != process);
    }
}
