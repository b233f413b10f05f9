//! The counter that loses updates unless a lock guards it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The place of the number. Reading and writing are two steps on purpose: only the lock keeps them
/// together.
pub enum Counter {
    Memory(AtomicU64),
    /// A decimal number in a file, which processes in other languages may count in as well.
    File(PathBuf),
}

impl Counter {
    pub fn new(file: Option<&str>) -> Counter {
        match file {
            Some(path) => Counter::File(path.into()),
            None => Counter::Memory(AtomicU64::new(0)),
        }
    }

    /// The number; 0 if there is none yet.
    pub fn read(&self) -> io::Result<u64> {
        match self {
            // Relaxed, so that only the lock orders the threads' memory accesses.
            Counter::Memory(number) => Ok(number.load(Relaxed)),
            Counter::File(path) => match fs::read_to_string(path) {
                Ok(text) if text.trim().is_empty() => Ok(0),
                Ok(text) => text.trim().parse().map_err(|_| {
                    let what = format!("{}: {:?} is not a number", path.display(), text.trim());
                    io::Error::new(ErrorKind::InvalidData, what)
                }),
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(0),
                Err(e) => Err(named(path, e)),
            },
        }
    }

    pub fn write(&self, number: u64) -> io::Result<()> {
        match self {
            Counter::Memory(memory) => memory.store(number, Relaxed),
            Counter::File(path) => write_in_place(path, number).map_err(|e| named(path, e))?,
        }
        Ok(())
    }
}

/// Writes over the old digits in one short write, without truncating before: a process that is
/// killed here leaves the old number or the new one, never an empty file.
fn write_in_place(path: &PathBuf, number: u64) -> io::Result<()> {
    let text = format!("{number}\n");
    let mut file = File::options().write(true).create(true).truncate(false).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

fn named(path: &std::path::Path, e: io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}
