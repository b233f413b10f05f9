//! The commands that show locks and free them.
//!
//! They read the nodes as they are, so they see the locks of every client library whose names they
//! know (`names.rs`), and they take no part in any queue.

pub mod bench;
pub mod doctor;
pub mod free;
pub mod list;
pub mod names;
pub mod queue;
mod servers;
pub mod show;
pub mod watch;
