//! Logging that can hurt nobody. The application's logger is foreign code, and the program under
//! test may have one that panics on purpose. Such a panic would end the server's thread. So the
//! server logs through the macros of this file only: each runs the logger, and the formatting of
//! what it is given, inside [`contained`], and only if the level is enabled.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs foreign code. `None` if it panicked: the panic ends here.
pub(crate) fn contained<T>(f: impl FnOnce() -> T) -> Option<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) => {
            // Dropping what was thrown is foreign code as well. What that throws in its turn is
            // leaked.
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
