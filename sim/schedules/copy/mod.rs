//! One copy of the parts of the library, with a world whose schedule is explored. `build.rs` puts
//! the library's own files in their places below this one.

pub mod cancel;
pub mod clock;
pub mod error;
pub mod limit;
pub mod local;
pub mod queue;
pub mod scenarios;
pub mod session;
pub mod signal;
pub mod stats;
pub mod wait;
pub mod world;

pub(crate) use self::error::{Error, Result};
