//! What the simulation takes of the embedded server: the engine, which has no sockets and no threads.

pub mod engine;
mod info;

pub use self::info::SessionInfo;
