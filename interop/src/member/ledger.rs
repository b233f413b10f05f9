//! What a group's members do under their lock: count in a file, and note when they came and went in
//! another.

use crate::{Failure, Task};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// One thread's access to the group's files.
pub struct Ledger {
    counter: PathBuf,
    lines: File,
    who: String,
    /// How long a section lasts, besides what it does.
    pause: Duration,
}

/// What is done under the lock.
#[derive(Clone, Copy)]
pub enum Deed {
    /// Counts one: alone.
    Write,
    /// Reads the counter: beside others that read.
    Read,
    /// As `Read`, by who has just written and not let go since.
    Stay,
}

impl Ledger {
    pub fn new(task: &Task, thread: u32) -> Result<Ledger, Failure> {
        let dir = Path::new(task.text("dir")?);
        // Lines of all members, each written at once, come to stand in the order in which they were
        // written.
        let lines = File::options().append(true).open(dir.join("ledger"))?;
        let who = format!("{}.{thread}", task.text("name")?);
        let pause = Duration::from_micros(task.number("pause")?);
        Ok(Ledger { counter: dir.join("counter"), lines, who, pause })
    }

    /// Does one section. `node` is the name of the node that holds the lock. The ledger notes the
    /// number in it, which is the place in the queue.
    pub fn section(&self, deed: Deed, node: &str) -> Result<(), Failure> {
        let number = node.len().checked_sub(10).and_then(|at| node.get(at..)).unwrap_or("-");
        let count = self.count()?;
        self.note('+', deed, number, count)?;
        thread::sleep(self.pause);
        match deed {
            // Reading and writing are two steps on purpose: nothing but the lock joins them.
            Deed::Write => {
                self.set_count(count + 1)?;
                self.note('-', deed, number, count + 1)
            }
            Deed::Read | Deed::Stay => self.note('-', deed, number, self.count()?),
        }
    }

    /// The thread, as the ledger names it.
    pub fn who(&self) -> &[u8] {
        self.who.as_bytes()
    }

    fn count(&self) -> Result<u64, Failure> {
        let text = fs::read_to_string(&self.counter)?;
        Ok(text.trim().parse().map_err(|_| format!("the counter file says {text:?}"))?)
    }

    /// Over the old digits, so that the file is never empty, not even where the lock fails.
    fn set_count(&self, count: u64) -> Result<(), Failure> {
        let mut file = File::options().write(true).open(&self.counter)?;
        Ok(file.write_all(format!("{count:010}\n").as_bytes())?)
    }

    fn note(&self, sign: char, deed: Deed, number: &str, count: u64) -> Result<(), Failure> {
        let deed = match deed {
            Deed::Write => "write",
            Deed::Read => "read",
            Deed::Stay => "stay",
        };
        let line = format!("{sign} {deed} {number} {} {count}\n", self.who);
        Ok((&self.lines).write_all(line.as_bytes())?)
    }
}
