//! The messages of errors.
pub mod holds;
pub mod page;
pub mod program;
pub mod servers;
pub mod settings;

crate::support::tables![holds, page, servers, settings];
