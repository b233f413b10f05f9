//! What is said while a lock is held, on a thread of its own.
//!
//! Stderr may be a pipe that nobody reads, or a terminal that was stopped with ctrl-s, and then a
//! write to it blocks. The thread that watches the lease and the command must not wait for that, so
//! it hands its lines over. A line that comes late says when the thing happened: it had to wait for
//! stderr, or zk-lock was stopped and has found out only now.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};
use zk_mutex::crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};

use crate::exit::Failure;
use crate::output::Output;
use crate::signals::{self, Signals};
use crate::time::{boot_millis, date, millis, show};

/// A line that comes so long after the thing has its time in it.
const LATE: Duration = Duration::from_secs(2);

/// A moment on the boot-time clock, in milliseconds.
pub type Moment = u64;

/// Clones speak through the same thread.
#[derive(Clone)]
pub struct Reports {
    lines: Sender<Line>,
    /// It ends when all is said.
    all_said: Receiver<()>,
}

#[derive(Clone, Copy)]
enum Level {
    /// A loss: shown with `--quiet` too.
    Error,
    /// Something of which operators should see a line in any case but `--quiet`.
    Warn,
    /// A step that is of interest with `--verbose`, and for programs that read `--json`.
    Note,
}

struct Line {
    level: Level,
    event: &'static str,
    text: String,
    fields: Value,
    /// When the thing happened.
    at: Moment,
}

impl Reports {
    pub fn start(output: &Output) -> Result<Reports, Failure> {
        let (lines, incoming) = unbounded::<Line>();
        let (end, all_said) = bounded(0);
        let output = output.clone();
        let say_all = move || {
            for line in incoming {
                await_stderr();
                line.say(&output);
            }
            drop(end);
        };
        std::thread::Builder::new()
            .name("reports".into())
            .spawn(say_all)
            .map_err(|e| Failure::system(format!("no thread: {e}")))?;
        Ok(Reports { lines, all_said })
    }

    /// The lock is lost, or is about to be, since this moment.
    pub fn loss(&self, at: Moment, event: &'static str, text: &str, fields: Value) {
        self.tell(Level::Error, at, event, text, fields);
    }

    pub fn warn(&self, event: &'static str, text: &str, fields: Value) {
        self.tell(Level::Warn, boot_millis(), event, text, fields);
    }

    /// The same of something that may have happened a while ago.
    pub fn warn_of(&self, at: Moment, event: &'static str, text: &str, fields: Value) {
        self.tell(Level::Warn, at, event, text, fields);
    }

    pub fn note(&self, event: &'static str, text: &str, fields: Value) {
        self.tell(Level::Note, boot_millis(), event, text, fields);
    }

    fn tell(&self, level: Level, at: Moment, event: &'static str, text: &str, fields: Value) {
        let _ = self.lines.send(Line { level, event, text: text.to_owned(), fields, at });
    }

    /// Waits until all is said, by all clones; a signal ends that.
    pub fn finish(self, signals: &Signals) {
        drop(self.lines);
        // Those that came before were meant for the command.
        while signals.events.try_recv().is_ok() {}
        loop {
            select! {
                recv(self.all_said) -> _ => return,
                recv(signals.events) -> signal => match signal {
                    Ok(signal) if signals::ENDING.contains(&signal) => return,
                    Ok(_) => {}
                    Err(_) => return,
                },
            }
        }
    }

    /// Waits until all is said, and no longer than this.
    pub fn finish_within(self, limit: Duration) {
        drop(self.lines);
        let _ = self.all_said.recv_timeout(limit);
    }
}

impl Line {
    fn say(mut self, output: &Output) {
        let late = Duration::from_millis(boot_millis().saturating_sub(self.at));
        if late >= LATE {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let at = millis(now.saturating_sub(late));
            self.text.push_str(&format!(" (at {}, {} ago)", date(at), show(late)));
            if let Value::Object(fields) = &mut self.fields {
                fields.insert("time_ms".to_owned(), json!(at));
                fields.insert("late_ms".to_owned(), json!(millis(late)));
            }
        }
        match self.level {
            Level::Error => output.error(self.event, &self.text, self.fields),
            Level::Warn => output.warn(self.event, &self.text, self.fields),
            Level::Note => output.note(self.event, &self.text, self.fields),
        }
    }
}

/// Waits until a write to stderr does not block. The line is made after that, with its time.
fn await_stderr() {
    let stderr = rustix::stdio::stderr();
    let mut files = [PollFd::new(&stderr, PollFlags::OUT)];
    while poll(&mut files, None) == Err(rustix::io::Errno::INTR) {}
}
