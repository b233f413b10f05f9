//! One copy of the parts of the library, in a world whose schedules are explored. `build.rs` adds
//! the library's own files below this one.

pub mod cancel;
pub mod clock;
pub mod error;
pub mod limit;
pub mod local;
pub mod process;
pub mod queue;
pub mod scenarios;
pub mod session;
pub mod signal;
pub mod wait;
pub mod world;

pub(crate) use self::error::{Error, Result};
