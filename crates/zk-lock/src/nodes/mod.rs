//! What stands at a path, read from its nodes as they are: so the locks of every client library
//! whose names are known (`names.rs`) are seen, and no queue is joined.

pub mod conflict;
pub mod names;
pub mod queue;
pub mod record;
pub mod since;
pub mod tree;
