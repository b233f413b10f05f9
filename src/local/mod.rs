//! Inside one process: its threads take turns here, and the thread whose turn it is goes through
//! the queue at the server.

mod keep;
pub(crate) mod lock;
pub(crate) mod queue;
pub(crate) mod reentry;
pub(crate) mod registry;
