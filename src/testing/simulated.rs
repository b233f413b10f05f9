//! What the simulation takes of the embedded server: the engine, which has no sockets and no threads,
//! and the ensemble that is made of it.

pub(crate) mod engine;
pub mod ensemble;
mod info;
