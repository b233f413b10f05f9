//! Random operations on two servers, the real one and the embedded one. Both servers must give the
//! same answers.
//!
//! A sequence is made from a seed: the requests of two or three clients, one after the other or
//! many in one packet. It is played to each server. Then every answer, every watch event and the
//! final tree with all Stats are compared. zxids and session ids are compared as offsets and
//! ordinals. Times are not compared, but must be plausible.
//!
//! `ZK_CONFORMANCE_SEQUENCES` sets the number of sequences, `ZK_CONFORMANCE_SEED` the seed of the
//! first one.
mod coverage;
mod generator;
mod normal;
mod player;
mod vocabulary;

use super::servers;
use coverage::Coverage;
use player::Played;
use std::{env, fs, path::Path, sync::Mutex, thread, time::Instant};
use zk_test_support::scenarios;

scenarios![both_servers_say_the_same on real within 1200];

const SEQUENCES: u64 = 200;
/// The number of acts of one sequence.
const ACTS: usize = 60;
const FIRST_SEED: u64 = 1;
/// The number of acts that are shown before the first one that differs.
const SHOWN: usize = 5;

fn setting(name: &str, default: u64) -> u64 {
    let set = env::var(name).ok();
    set.map_or(default, |set| set.parse().unwrap_or_else(|e| panic!("{name} is {set:?}: {e}")))
}

fn both_servers_say_the_same() {
    let (servers, names) = servers::pair();
    let sequences = setting("ZK_CONFORMANCE_SEQUENCES", SEQUENCES);
    let first = setting("ZK_CONFORMANCE_SEED", FIRST_SEED);
    let began = Instant::now();
    let mut coverage = Coverage::default();
    for seed in first..first + sequences {
        // The acts so far are kept where they survive a panic.
        let played = [(); 2].map(|()| Mutex::new(Vec::new()));
        let ended = thread::scope(|scope| {
            let plays = [0, 1].map(|at| {
                let (server, played) = (&servers[at], &played[at]);
                scope.spawn(move || player::play(server, seed, ACTS, played))
            });
            plays.map(|play| play.join().is_ok())
        });
        let [one, other] =
            played.map(|played| played.into_inner().unwrap_or_else(|e| e.into_inner()));
        compare(seed, &names, &one, &other);
        assert!(
            ended.iter().all(|ended| *ended),
            "sequence {seed} was not played to its end: {}",
            tail(&one)
        );
        coverage.add(&one);
    }
    let summary = format!(
        "{sequences} random sequences (seeds {first} to {}) played to {} and {} in {:.1?}\n{coverage}",
        first + sequences - 1,
        names[0],
        names[1],
        began.elapsed(),
    );
    println!("{summary}");
    let _ = fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance.txt"), &summary);
    if sequences >= SEQUENCES {
        coverage.check();
    }
}

/// Ends the sequence with a report at the first act on which the servers differ.
fn compare(seed: u64, names: &[&str; 2], one: &[Played], other: &[Played]) {
    let same = one.iter().zip(other).take_while(|(one, other)| one == other).count();
    if same == one.len().max(other.len()) {
        return;
    }
    let mut said = format!("sequence {seed} differs at act {same}\n");
    for played in &one[same.saturating_sub(SHOWN)..same] {
        said += &format!("  both: {played}\n");
    }
    for (name, played) in names.iter().zip([one.get(same), other.get(same)]) {
        match played {
            Some(played) => said += &format!("{name}: {played}\n"),
            None => said += &format!("{name}: nothing more\n"),
        }
    }
    panic!("{said}");
}

fn tail(played: &[Played]) -> String {
    let from = played.len().saturating_sub(SHOWN);
    played[from..].iter().map(|played| format!("\n  {played}")).collect()
}
