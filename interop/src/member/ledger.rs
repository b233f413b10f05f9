//! The work of a group's members under their lock: they count in one file, and write their entries
//! and exits to another one.

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
    /// The shortest time of a section.
    pause: Duration,
}

/// The work of a section.
#[derive(Clone, Copy)]
pub enum Deed {
    /// Counts one; needs exclusive access.
    Write,
    /// Reads the counter; other readers may be inside too.
    Read,
    /// As `Read`, by a writer that has downgraded its lock.
    Stay,
}

impl Ledger {
    pub fn new(task: &Task, thread: u32) -> Result<Ledger, Failure> {
        let dir = Path::new(task.text("dir")?);
        // Each line is written at once, so the lines of all members have the order of their writes.
        let lines = File::options().append(true).open(dir.join("ledger"))?;
        let who = format!("{}.{thread}", task.text("name")?);
        let pause = Duration::from_micros(task.number("pause")?);
        Ok(Ledger { counter: dir.join("counter"), lines, who, pause })
    }

    /// Runs one section. `node` is the name of the node that holds the lock. The ledger notes its
    /// sequence number, which is the place in the queue.
    pub fn section(&self, deed: Deed, node: &str) -> Result<(), Failure> {
        let number = node.len().checked_sub(10).and_then(|at| node.get(at..)).unwrap_or("-");
        let count = self.count()?;
        self.note('+', deed, number, count)?;
        thread::sleep(self.pause);
        match deed {
            // Reading and writing are two steps on purpose: only the lock keeps them together.
            Deed::Write => {
                self.set_count(count + 1)?;
                self.note('-', deed, number, count + 1)
            }
            Deed::Read | Deed::Stay => self.note('-', deed, number, self.count()?),
        }
    }

    /// The name of the thread in the ledger.
    pub fn who(&self) -> &[u8] {
        self.who.as_bytes()
    }

    fn count(&self) -> Result<u64, Failure> {
        let text = fs::read_to_string(&self.counter)?;
        Ok(text.trim().parse().map_err(|_| format!("the counter file says {text:?}"))?)
    }

    /// Writes over the old digits, so that the file is never empty, even if the lock fails.
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
