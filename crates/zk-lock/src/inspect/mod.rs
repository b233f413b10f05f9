//! The commands that show locks and free them, by what their nodes say (`nodes/`).

pub mod bench;
pub mod doctor;
pub mod follow;
pub mod forget;
pub mod free;
pub mod history;
mod limits;
pub mod list;
mod overview;
pub mod permits;
mod servers;
pub mod show;
pub mod wait;
pub mod watch;
mod words;
