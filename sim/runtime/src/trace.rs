//! The trace of a run: the last steps and notes, and a hash over all of them.

use std::collections::VecDeque;
use std::fmt;

use crate::core::{self, Tid};

/// The number of steps that are kept, and the number of notes.
const KEPT: usize = 4_000;

/// The operation of a thread at a scheduling point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    Block,
    Preempted,
    Clock,
    Atomic,
    Lock,
    TryLock,
    Unlock,
    Send,
    Receive,
    Select,
    Disconnect,
    Spawn,
    Join,
    Sleep,
    Yield,
    Connect,
    Read,
    Write,
    CloseSocket,
    Register,
    Poll,
    Wake,
    Resolve,
}

#[derive(Clone, Copy)]
struct Step {
    step: u64,
    now: u64,
    thread: Tid,
    op: Op,
    object: u64,
}

struct Note {
    step: u64,
    now: u64,
    thread: Option<Tid>,
    text: String,
}

pub(crate) struct Trace {
    verbose: bool,
    /// The texts to count, with the number of notes that contain each.
    counted: Vec<(String, u64)>,
    hash: u64,
    steps: VecDeque<Step>,
    notes: VecDeque<Note>,
}

impl Trace {
    pub(crate) fn new(verbose: bool, count: Vec<String>) -> Trace {
        let (steps, notes) = (VecDeque::with_capacity(KEPT), VecDeque::new());
        let counted = count.into_iter().map(|text| (text, 0)).collect();
        Trace { verbose, counted, hash: 0, steps, notes }
    }

    fn mix(&mut self, value: u64) {
        // As rustc's own hash for its tables.
        self.hash = (self.hash.rotate_left(5) ^ value).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    pub(crate) fn record(&mut self, step: u64, now: u64, thread: Tid, op: Op, object: u64) {
        self.mix(now);
        self.mix((thread as u64) << 8 | op as u64);
        self.mix(object);
        if self.steps.len() == KEPT {
            self.steps.pop_front();
        }
        let step = Step { step, now, thread, op, object };
        if self.verbose {
            eprintln!("{step}");
        }
        self.steps.push_back(step);
    }

    pub(crate) fn note(&mut self, step: u64, now: u64, thread: Option<Tid>, text: &str) {
        self.mix(now);
        for bytes in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.mix(u64::from_le_bytes(word));
        }
        self.mix(text.len() as u64);
        for (wanted, count) in &mut self.counted {
            *count += u64::from(text.contains(wanted.as_str()));
        }
        if self.notes.len() == KEPT {
            self.notes.pop_front();
        }
        if self.verbose {
            eprintln!("{} {thread:?}: {text}", Time(now));
        }
        self.notes.push_back(Note { step, now, thread, text: text.to_owned() });
    }

    pub(crate) fn counted(&self) -> &[(String, u64)] {
        &self.counted
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// All entries that are kept, in order.
    pub(crate) fn lines(&self, name: impl Fn(Tid) -> String) -> Vec<String> {
        let steps = self.steps.iter().map(|step| {
            (
                step.step,
                0,
                format!("{} {:?} {}, {}", Time(step.now), step.op, step.object, name(step.thread)),
            )
        });
        let notes = self.notes.iter().map(|note| {
            let of = note.thread.map_or_else(|| "the world".to_owned(), &name);
            (note.step, 1, format!("{} * {of}: {}", Time(note.now), note.text))
        });
        let mut all: Vec<_> = steps.chain(notes).collect();
        all.sort_by_key(|(step, kind, _)| (*step, *kind));
        all.into_iter().map(|(_, _, line)| line).collect()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Step { step, now, thread, op, object } = self;
        write!(f, "{} {step} thread {thread} {op:?} {object}", Time(*now))
    }
}

struct Time(u64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Time(now) = self;
        write!(f, "{:6}.{:09}", now / 1_000_000_000, now % 1_000_000_000)
    }
}

/// Adds a line to the trace.
pub fn note(text: &str) {
    core::try_with(|sim| sim.note(text));
}
