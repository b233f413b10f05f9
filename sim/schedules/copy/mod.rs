//! One copy of the parts of the library, in a world whose schedules are explored. `build.rs` adds
//! the library's own files below this one.

pub mod error;
pub mod local;
pub mod queue;
pub mod scenarios;
/// The real one has observers, too.
pub mod session {
    pub use zk_session::ZkSession;
}
pub mod zk_session;

pub(crate) use self::error::{Error, Result};
