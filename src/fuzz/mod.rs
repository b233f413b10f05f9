//! Fuzz targets: each takes any bytes, and panics where the library does what it must never do.
//!
//! An explorer that is guided by coverage runs them (`fuzz/run`, which needs nightly Rust). The tests
//! below need nothing but stable Rust: they play every input in `fuzz/corpus` again, and then random
//! changes of them.
//!
//! Bytes that come off the wire are handed over as they are. Where a target plays a whole world, a
//! server or many clients, the bytes are a [`Script`] of acts.

mod names;
mod wire;

use crate::session::connection::machine::hostile;
#[cfg(feature = "testing")]
use crate::testing::engine::hostile::server;

/// A target: takes any bytes.
pub type Target = fn(&[u8]);

/// Each target by its name.
pub const TARGETS: &[(&str, Target)] = &[
    ("connect_answers", hostile::connect_answers),
    ("connect_strings", names::connect_strings),
    ("connection", hostile::connection),
    ("frames", wire::frames),
    ("names", names::names),
    ("records", wire::records),
    ("replies", wire::replies),
    #[cfg(feature = "testing")]
    ("server", server),
    ("watch_events", hostile::watch_events),
];

/// An input, read as a list of numbers and pieces. Behind its end there are zeros, so that each
/// beginning of a script is a script.
pub(crate) struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Script(bytes)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.byte()) % of.len()]
    }

    /// One of the places in a list of this length; `None` if it is empty.
    pub(crate) fn place(&mut self, len: usize) -> Option<usize> {
        usize::from(self.byte()).checked_rem(len)
    }

    /// Four bytes.
    pub(crate) fn word(&mut self) -> i32 {
        i32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// Bytes as they come, 255 at most: their number first.
    pub(crate) fn piece(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (piece, rest) = self.0.split_at(length);
        self.0 = rest;
        piece
    }

    /// All that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    /// For so long each target gets random changes of its inputs: a second, or what `FUZZ_SECONDS` says.
    fn mutations() -> Duration {
        let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
        Duration::from_secs(seconds.unwrap_or(1))
    }

    /// The inputs in the repository, by the names of their files.
    fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
        let dir: PathBuf = [env!("CARGO_MANIFEST_DIR"), "fuzz", "corpus", target].iter().collect();
        let files = std::fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
        let mut inputs: Vec<_> = files
            .map(|file| {
                let file = file.unwrap();
                (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap())
            })
            .collect();
        inputs.sort();
        inputs
    }

    #[track_caller]
    fn play(target: Target, from: &str, bytes: &[u8]) {
        if catch_unwind(AssertUnwindSafe(|| target(bytes))).is_err() {
            panic!("{from}: b\"{}\"", bytes.escape_ascii());
        }
    }

    /// One random change.
    fn mutate(random: &mut fastrand::Rng, bytes: &mut Vec<u8>, other: &[u8]) {
        /// Lengths, counts and codes at their ends.
        const NUMBERS: [[u8; 4]; 6] =
            [[0xff; 4], [0x7f, 0xff, 0xff, 0xff], [0x80, 0, 0, 0], [0; 4], [0, 0, 0, 1], [1, 0, 0, 1]];
        let at = random.usize(..=bytes.len());
        let end = (at + random.usize(..=8)).min(bytes.len());
        match random.u8(..7) {
            0 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.u8(..)),
            1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.u8(..8)),
            2 => drop(bytes.drain(at..end)),
            3 => bytes.insert(at, random.u8(..)),
            4 => drop(bytes.splice(at..end, random.choice(NUMBERS).unwrap_or_default())),
            5 => {
                let from = random.usize(..=other.len());
                let piece = &other[from..(from + random.usize(..=32)).min(other.len())];
                drop(bytes.splice(at..at, piece.iter().copied()));
            }
            _ => bytes.truncate(at),
        }
    }

    #[track_caller]
    fn play_all(name: &str) {
        let (_, target) = TARGETS.iter().find(|(of, _)| *of == name).unwrap();
        let inputs = corpus(name);
        play(*target, "the empty input", &[]);
        for (file, bytes) in &inputs {
            play(*target, file, bytes);
        }
        let mut random = fastrand::Rng::new();
        let from = format!("a change of an input (seed {})", random.get_seed());
        let until = Instant::now() + mutations();
        while Instant::now() < until {
            let any = |random: &mut fastrand::Rng| match random.choice(&inputs) {
                Some((_, bytes)) => bytes.clone(),
                None => Vec::new(),
            };
            let (mut bytes, other) = (any(&mut random), any(&mut random));
            for _ in 0..random.usize(1..=4) {
                mutate(&mut random, &mut bytes, &other);
            }
            play(*target, &from, &bytes);
        }
    }

    /// A test for each target, so that they run side by side and a failure names its target.
    macro_rules! hostile {
        ($($name:ident)*) => {
            $(
                #[test]
                fn $name() {
                    play_all(stringify!($name));
                }
            )*

            #[test]
            fn each_target_has_a_test() {
                let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
                assert_eq!(names, [$(stringify!($name)),*]);
            }
        };
    }

    hostile! { connect_answers connect_strings connection frames names records replies server watch_events }
}
