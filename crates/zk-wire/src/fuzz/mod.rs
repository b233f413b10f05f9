//! The fuzz targets of this crate, and what the fuzz targets of all crates of this repository
//! share. A target takes any bytes, and panics if the code breaks a rule.
//!
//! A fuzzer that is guided by coverage runs the targets (`fuzz/run`, which needs nightly Rust).
//! Tests of the crates replay every input of `fuzz/corpus`, and then random changes of them.
//!
//! Bytes from the wire are passed on as they are. If a target plays a whole world, a server or many
//! clients, the bytes are a [`Script`] of acts.

mod replay;
mod targets;

pub use self::replay::replay;

/// A target: takes any bytes.
pub type Target = fn(&[u8]);

/// The targets of this crate by their names.
pub const TARGETS: &[(&str, Target)] =
    &[("frames", targets::frames), ("records", targets::records)];

/// An input that is read as a list of numbers and pieces. After its end there are zeros, so each
/// beginning of a script is a script too.
pub struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Script(bytes)
    }

    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    pub fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.byte()) % of.len()]
    }

    /// An index into a list of this length; `None` if the list is empty.
    pub fn place(&mut self, len: usize) -> Option<usize> {
        usize::from(self.byte()).checked_rem(len)
    }

    /// Four bytes.
    pub fn word(&mut self) -> i32 {
        i32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A piece of at most 255 bytes, with its length in front.
    pub fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (piece, rest) = self.0.split_at(length);
        self.0 = rest;
        piece
    }

    /// The rest of the bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames() {
        replay("frames", targets::frames);
    }

    #[test]
    fn records() {
        replay("records", targets::records);
    }
}
