//! Logging that cannot hurt the library's threads. The application's logger is foreign code: a logger
//! that prints panics when its pipe is closed. Such a panic would end the thread that logs. If that
//! were the supervisor or the connection's thread, no holder would learn of a lost lock any more. So
//! the library logs only through the macros of this file. If the level is enabled, each runs the
//! logger, and the formatting of its arguments, inside [`contained`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::world::Instant;

/// Runs foreign code (a logger, a callback, the client crate). Returns `None` if it panicked: the
/// panic ends here. `f` may panic anywhere, so the data that it shares with other threads must be
/// consistent at each such point.
pub(crate) fn contained<T>(f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // The drop of the panic's payload is foreign code too. If that panics in its turn, the
            // second payload is leaked.
            if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                std::mem::forget(another);
            }
            None
        }
    }
}

/// Something that lasts too long: after some time it is worth a line in the log, and again each time
/// that it has lasted twice as long.
pub(crate) struct Overlong {
    pub(crate) since: Instant,
    /// When the next line is due; `None` if the clock cannot express that time.
    pub(crate) next: Option<Instant>,
}

impl Overlong {
    pub(crate) fn new(since: Instant, first: Duration) -> Self {
        Overlong { since, next: since.checked_add(first) }
    }

    /// How long it has lasted, if a line is due now. From then on the next line is due later.
    pub(crate) fn due(&mut self) -> Option<Duration> {
        let now = Instant::now();
        self.next.filter(|next| now >= *next)?;
        let lasted = now.saturating_duration_since(self.since);
        self.next = now.checked_add(lasted);
        Some(lasted)
    }
}

macro_rules! log_contained {
    ($level:ident, $($arg:tt)+) => {
        if log::Level::$level <= log::STATIC_MAX_LEVEL && log::Level::$level <= log::max_level() {
            $crate::logging::contained(|| log::log!(log::Level::$level, $($arg)+));
        }
    };
}

macro_rules! error {
    ($($arg:tt)+) => { log_contained!(Error, $($arg)+) };
}

macro_rules! warn {
    ($($arg:tt)+) => { log_contained!(Warn, $($arg)+) };
}

macro_rules! info {
    ($($arg:tt)+) => { log_contained!(Info, $($arg)+) };
}

macro_rules! debug {
    ($($arg:tt)+) => { log_contained!(Debug, $($arg)+) };
}
