//! Waiting for a state that only the server knows: repeats a check until it holds.
use std::{
    thread,
    time::{Duration, Instant},
};

/// Calls `probe` until it returns a value, and returns it. Panics with `what` after `limit`.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        // On a busy machine a probe takes long, so the last one begins when the time is over.
        let is_last = Instant::now() >= end;
        if let Some(value) = probe() {
            return value;
        }
        assert!(!is_last, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
