//! The histories of a storm: one file for each process, one line for each note.
//!
//! One `write` call writes each line when the note is made, so a killed process loses at most its
//! last line. A stamp is the time of the boot-time clock in microseconds; all processes of a host
//! share this clock. Each note has its stamp taken either before or after the event, as documented:
//! the checker needs to know on which side the error lies.
use std::{
    fmt::{self, Display},
    fs::File,
    io::{self, Write},
    path::Path,
    str::{FromStr, SplitN},
};

/// Microseconds of the boot-time clock.
pub fn now() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// How often a process notes that it runs, in microseconds.
pub const BEAT: i64 = 200_000;

/// The name of the history of the program that injects the faults.
pub const PROGRAM: &str = "storm";

/// How many may hold the lock at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Only one.
    Write,
    /// Any number of readers.
    Read,
    /// As many as there are permits.
    Permit,
}

/// How a thread spent a time, in microseconds. In the rest of that time it was asleep.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// For how long it ran on a processor.
    pub ran: i64,
    /// For how long it was runnable and had no processor.
    pub runnable: i64,
    /// For how long a thread beside it that does nothing but sleep was late
    /// (`zk_test_support::control::kept_since`).
    pub control: i64,
}

/// For how long a thread was kept waiting for a processor, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Wait {
    pub thread: String,
    pub micros: i64,
}

impl Wait {
    /// The thread that does nothing but sleep. For how long it was late is its wait.
    pub const CONTROL: &str = "control";
    /// The thread that takes the elections, the only calls that wait for a candidate's thread.
    pub const ELECTION: &str = "election";

    /// Whether this wait may have delayed a call of `thread`. It may if the thread that was kept
    /// waiting is the same one, the control, or one of the library's that answer calls and end holds.
    /// A process of the storm has one session, so all of the library's threads are of that session.
    /// No call waits for the threads that call the logger and the observers.
    pub fn delays(&self, thread: &str) -> bool {
        match &*self.thread {
            Wait::CONTROL | "zkm-session" | "zkm-resolve" => true,
            "zkm-candidate" => thread == Wait::ELECTION,
            other => other == thread || other.starts_with("zkm-loop-"),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// The process runs. The waits are those since the beat before.
    Beat(Vec<Wait>),
    /// Stamped before a call. `within` is the time that the call may take, if it has a deadline. A
    /// call with a mode takes a lock; a call without one releases it. `timeout` is the
    /// time for which the call may wait for the lock, or 0 if it was given none. It is a part of
    /// `within`. A machine that keeps the call waiting before this part is over makes it no later.
    Ask {
        op: u64,
        lock: String,
        mode: Option<Mode>,
        within: Option<i64>,
        timeout: i64,
    },
    /// Stamped after a call that took the lock, and before `is_held()` returned true. Until
    /// `until`, which is not later than the end of the lease, the hold stands whatever happens to
    /// the process. If the hold was already invalid when the call returned, `until` is not later
    /// than the stamp.
    Got {
        op: u64,
        hold: u64,
        lock: String,
        mode: Mode,
        token: (i64, u64),
        until: i64,
        node: String,
    },
    /// Stamped after a call that found the lock taken.
    Taken {
        op: u64,
    },
    /// Stamped after a call that released the lock.
    Done {
        op: u64,
    },
    /// Stamped after a call that failed.
    Failed {
        op: u64,
        error: Failure,
        text: String,
    },
    /// Stamped after a call that returned later than `within`: how the time since the call began
    /// was spent.
    Waited {
        op: u64,
        spent: Spent,
    },
    /// Stamped before the hold was found valid; `until` as above.
    Held {
        hold: u64,
        until: i64,
    },
    /// Stamped after `is_held()` returned false, or the lease was found to be over.
    Void {
        hold: u64,
    },
    /// Stamped after `lost()` was found ready: how the time since the note before was spent, in
    /// which the hold was found to be void.
    Lost {
        hold: u64,
        spent: Spent,
        reason: String,
    },
    /// Stamped after `is_held()` returned true although `lost()` was ready before.
    Revived {
        hold: u64,
    },
    /// Stamped before the guard is released.
    Free {
        hold: u64,
    },
    /// Stamped after the guard was released. False: the library reported that the hold had been
    /// lost before.
    Freed {
        hold: u64,
        held: bool,
    },
    /// Stamped after the `lost()` of an already released guard was found ready.
    Late {
        hold: u64,
    },
    /// Stamped after a call that found the process's session to be this one. It is noted before
    /// the call's result, and only if the session is another one than before.
    Session {
        id: i64,
    },
    /// The process has closed its session and ends.
    End,
    /// A fault begins or ends. Only the program writes this note and all below.
    Fault {
        kind: String,
        target: String,
    },
    Healed {
        kind: String,
        target: String,
    },
    /// Stamped after a client without the library has connected to a server, in a calm, and has
    /// got an answer to a write: how long that took. Or it has got no answer in that time.
    Bare {
        took: i64,
        answered: bool,
    },
    /// There is no fault from now until this time, and the last ones ended long enough ago.
    Calm {
        until: i64,
    },
    /// The faults are over: each thread takes its lock once more and ends.
    Quiet,
    /// A worker was killed by a fault.
    Killed {
        worker: String,
    },
    /// A worker did not end, or ended with an error.
    Stuck {
        worker: String,
        how: String,
    },
    /// A node that is left when all sessions are closed or expired.
    Left {
        node: String,
    },
    /// All nodes that are left were noted.
    Listed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// `Error::Unavailable`.
    Unavailable,
    /// `Error::Lost`.
    Lost,
    /// Any other error.
    Other,
}

/// A note with its stamp and the thread that made it.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    pub at: i64,
    pub thread: String,
    pub note: Note,
}

/// A file to which one process appends its notes.
pub struct History(File);

impl History {
    pub fn create(path: &Path) -> io::Result<History> {
        Ok(History(File::options().create(true).append(true).open(path)?))
    }

    pub fn note(&self, at: i64, thread: &str, note: Note) {
        let line = format!("{}\n", Line { at, thread: thread.to_owned(), note });
        (&self.0).write_all(line.as_bytes()).expect("the history can be written");
    }
}

/// The lines of a history. A kill may have cut off the last one, so bytes behind the last line's
/// end are ignored.
pub fn parse(text: &str) -> Result<Vec<Line>, String> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().map(|line| line.parse().map_err(|()| format!("not a note: {line:?}"))).collect()
}

/// An optional word.
struct Word<T>(Option<T>);

impl<T: Display> Display for Word<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("-"),
        }
    }
}

/// Values that each have a word.
macro_rules! words {
    ($($type:ty: $($value:path = $word:literal),+;)+) => {
        $(
            impl Display for $type {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str(match self { $($value => $word),+ })
                }
            }

            impl FromStr for $type {
                type Err = ();

                fn from_str(word: &str) -> Result<Self, ()> {
                    match word { $($word => Ok($value),)+ _ => Err(()) }
                }
            }
        )+
    };
}

words! {
    Mode: Mode::Write = "write", Mode::Read = "read", Mode::Permit = "permit";
    Failure: Failure::Unavailable = "unavailable", Failure::Lost = "lost", Failure::Other = "other";
}

impl Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spent { ran, runnable, control } = self;
        write!(f, "{ran} {runnable} {control}")
    }
}

impl Spent {
    fn read(words: &mut SplitN<'_, char>) -> Result<Spent, ()> {
        Ok(Spent { ran: next(words)?, runnable: next(words)?, control: next(words)? })
    }
}

impl Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.at, self.thread)?;
        match &self.note {
            Note::Beat(waits) => {
                write!(f, "beat")?;
                waits.iter().try_for_each(|wait| write!(f, " {} {}", wait.thread, wait.micros))
            }
            Note::Ask { op, lock, mode, within, timeout } => {
                write!(f, "ask {op} {lock} {} {} {timeout}", Word(*mode), Word(*within))
            }
            Note::Got { op, hold, lock, mode, token: (zxid, hand_over), until, node } => {
                write!(f, "got {op} {hold} {lock} {mode} {zxid} {hand_over} {until} {node}")
            }
            Note::Taken { op } => write!(f, "taken {op}"),
            Note::Done { op } => write!(f, "done {op}"),
            Note::Failed { op, error, text } => {
                write!(f, "failed {op} {error} {}", text.replace('\n', " "))
            }
            Note::Waited { op, spent } => write!(f, "waited {op} {spent}"),
            Note::Held { hold, until } => write!(f, "held {hold} {until}"),
            Note::Void { hold } => write!(f, "void {hold}"),
            Note::Lost { hold, spent, reason } => write!(f, "lost {hold} {spent} {reason}"),
            Note::Revived { hold } => write!(f, "revived {hold}"),
            Note::Free { hold } => write!(f, "free {hold}"),
            Note::Freed { hold, held } => write!(f, "freed {hold} {held}"),
            Note::Late { hold } => write!(f, "late {hold}"),
            Note::Session { id } => write!(f, "session {id}"),
            Note::End => write!(f, "end"),
            Note::Fault { kind, target } => write!(f, "fault {kind} {target}"),
            Note::Healed { kind, target } => write!(f, "healed {kind} {target}"),
            Note::Bare { took, answered } => write!(f, "bare {took} {answered}"),
            Note::Calm { until } => write!(f, "calm {until}"),
            Note::Quiet => write!(f, "quiet"),
            Note::Killed { worker } => write!(f, "killed {worker}"),
            Note::Stuck { worker, how } => write!(f, "stuck {worker} {how}"),
            Note::Left { node } => write!(f, "left {node}"),
            Note::Listed => write!(f, "listed"),
        }
    }
}

impl FromStr for Line {
    type Err = ();

    fn from_str(line: &str) -> Result<Line, ()> {
        let mut words = line.splitn(4, ' ');
        let (at, thread, word) = (next(&mut words)?, next(&mut words)?, words.next().ok_or(())?);
        let rest = words.next().unwrap_or_default();
        // The last word of a note is the rest of its line.
        let mut words = rest.splitn(
            match word {
                "ask" => 5,
                "got" => 8,
                "lost" => 5,
                "waited" => 4,
                "failed" => 3,
                "held" | "freed" | "bare" | "fault" | "healed" | "stuck" => 2,
                _ => 1,
            },
            ' ',
        );
        let words = &mut words;
        let note = match word {
            "beat" => {
                let words: Vec<&str> = rest.split_ascii_whitespace().collect();
                let wait = |pair: &[&str]| {
                    let [thread, micros] = pair else { return Err(()) };
                    let micros = micros.parse().map_err(drop)?;
                    Ok(Wait { thread: (*thread).to_owned(), micros })
                };
                Note::Beat(words.chunks(2).map(wait).collect::<Result<_, ()>>()?)
            }
            "ask" => {
                let (op, lock) = (next(words)?, next(words)?);
                let (mode, within) = (optional(words)?, optional(words)?);
                let timeout = words.next().map_or(Ok(0), str::parse).map_err(drop)?;
                Note::Ask { op, lock, mode, within, timeout }
            }
            "got" => {
                let (op, hold, lock, mode) =
                    (next(words)?, next(words)?, next(words)?, next(words)?);
                let token = (next(words)?, next(words)?);
                Note::Got { op, hold, lock, mode, token, until: next(words)?, node: next(words)? }
            }
            "taken" => Note::Taken { op: next(words)? },
            "done" => Note::Done { op: next(words)? },
            "failed" => {
                let (op, error) = (next(words)?, next(words)?);
                Note::Failed { op, error, text: next(words)? }
            }
            "waited" => {
                let op = next(words)?;
                Note::Waited { op, spent: Spent::read(words)? }
            }
            "held" => Note::Held { hold: next(words)?, until: next(words)? },
            "void" => Note::Void { hold: next(words)? },
            "lost" => {
                let (hold, spent) = (next(words)?, Spent::read(words)?);
                Note::Lost { hold, spent, reason: next(words)? }
            }
            "revived" => Note::Revived { hold: next(words)? },
            "free" => Note::Free { hold: next(words)? },
            "freed" => Note::Freed { hold: next(words)?, held: next(words)? },
            "late" => Note::Late { hold: next(words)? },
            "session" => Note::Session { id: next(words)? },
            "end" => Note::End,
            "fault" => Note::Fault { kind: next(words)?, target: next(words)? },
            "healed" => Note::Healed { kind: next(words)?, target: next(words)? },
            "bare" => Note::Bare { took: next(words)?, answered: next(words)? },
            "calm" => Note::Calm { until: next(words)? },
            "quiet" => Note::Quiet,
            "killed" => Note::Killed { worker: next(words)? },
            "stuck" => Note::Stuck { worker: next(words)?, how: next(words)? },
            "left" => Note::Left { node: next(words)? },
            "listed" => Note::Listed,
            _ => return Err(()),
        };
        Ok(Line { at, thread, note })
    }
}

fn next<T: FromStr>(words: &mut SplitN<'_, char>) -> Result<T, ()> {
    words.next().ok_or(())?.parse().map_err(drop)
}

fn optional<T: FromStr>(words: &mut SplitN<'_, char>) -> Result<Option<T>, ()> {
    match words.next().ok_or(())? {
        "-" => Ok(None),
        word => word.parse().map(Some).map_err(drop),
    }
}
