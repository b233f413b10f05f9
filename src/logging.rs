//! Logging that cannot hurt the library's threads. The application's logger is foreign code: a
//! logger that prints panics when its pipe is closed. Such a panic would end the thread that logs.
//! If that were the supervisor or the connection's thread, no holder would learn of a lost lock any
//! more. So the library logs only through the macros of this file. If the level is enabled, each
//! runs the logger, and the formatting of its arguments, inside [`contained`].

use std::panic::{AssertUnwindSafe, catch_unwind};

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
