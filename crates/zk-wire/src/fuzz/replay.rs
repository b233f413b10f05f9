//! Plays the inputs in `fuzz/corpus`, and random changes of them, on stable Rust.

use super::Target;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long each target is run with random changes of its inputs: a second, or `FUZZ_SECONDS`.
fn mutations() -> Duration {
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(1))
}

/// The inputs in the repository, by the names of their files.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "fuzz", "corpus", target].iter().collect();
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
    /// Lengths, counts and codes at the ends of their ranges.
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

/// Plays all inputs of a target's corpus, and then random changes of them.
///
/// # Panics
///
/// If the target panics, or if there is no corpus.
#[track_caller]
pub fn replay(name: &str, target: Target) {
    let inputs = corpus(name);
    play(target, "the empty input", &[]);
    for (file, bytes) in &inputs {
        play(target, file, bytes);
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
        play(target, &from, &bytes);
    }
}
