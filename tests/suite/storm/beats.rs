//! The beats of a process: at each one it notes that it runs, and for how long each of its threads
//! was kept waiting since the beat before.
use super::history::{Note, Wait};
use crate::support::control;
use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
    time::Instant,
};

/// Shorter waits are not noted, in microseconds.
const SHORT: i64 = 1_000;

/// What the last beat has found.
pub struct Beats {
    at: Instant,
    /// For how long each thread has been runnable without a processor, by its id.
    waited: HashMap<u32, i64>,
}

impl Beats {
    pub fn begin() -> Beats {
        let mut beats = Beats { at: Instant::now(), waited: HashMap::new() };
        beats.next();
        beats
    }

    /// The next note. Of threads with the same name the longest wait counts.
    pub fn next(&mut self) -> Note {
        let now = Instant::now();
        let control = control::kept_since(self.at).as_micros() as i64;
        let mut waits: BTreeMap<String, i64> =
            BTreeMap::from([(Wait::CONTROL.to_owned(), control)]);
        let mut waited = HashMap::new();
        for (id, name, micros) in threads() {
            let since = micros - self.waited.get(&id).copied().unwrap_or_default();
            let longest = waits.entry(name).or_default();
            *longest = since.max(*longest);
            waited.insert(id, micros);
        }
        (self.at, self.waited) = (now, waited);
        waits.retain(|_, micros| *micros >= SHORT);
        Note::Beat(waits.into_iter().map(|(thread, micros)| Wait { thread, micros }).collect())
    }
}

/// The threads of this process: the id, the name, and for how many microseconds it was runnable
/// without a processor. A thread that ends meanwhile is left out.
fn threads() -> Vec<(u32, String, i64)> {
    let tasks = fs::read_dir("/proc/self/task").expect("our own threads");
    let thread = |path: &Path| {
        let id = path.file_name()?.to_str()?.parse().ok()?;
        let name = fs::read_to_string(path.join("comm")).ok()?.trim().replace(' ', "_");
        let stat = fs::read_to_string(path.join("schedstat")).ok()?;
        let nanos: i64 = stat.split(' ').nth(1)?.parse().ok()?;
        Some((id, name, nanos / 1000))
    };
    tasks.filter_map(|task| thread(&task.ok()?.path())).collect()
}
