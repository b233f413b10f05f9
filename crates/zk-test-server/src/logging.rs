//! Logging that cannot harm the server. The application's logger is foreign code, and the program
//! under test may have a logger that panics on purpose. Such a panic would end the server's thread.
//! So the server logs only through the macros of this file. Each runs the logger and formats its
//! arguments inside [`contained`], and only if the level is enabled.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code. Catches its panic and returns `None` then.
pub(crate) fn contained<T>(f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // Dropping the panic's payload runs foreign code as well. If this panics too, the
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
