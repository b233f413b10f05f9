//! Waiting for what only the server can tell: asks again until it is so.
use std::{
    thread,
    time::{Duration, Instant},
};

/// Asks `probe` until it yields a value, and returns it. Panics with `what` after `limit`.
#[track_caller]
pub fn until<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < end, "waited {limit:?} in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}
