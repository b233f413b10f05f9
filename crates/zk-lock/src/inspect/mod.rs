//! The commands that show locks and free them, by what their nodes say (`nodes/`).

pub mod bench;
pub mod doctor;
pub mod forget;
pub mod free;
pub mod history;
pub mod list;
pub mod permits;
mod servers;
pub mod show;
pub mod watch;
mod words;
