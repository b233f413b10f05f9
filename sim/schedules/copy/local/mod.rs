mod keep;
pub mod lock;
pub mod queue;
pub mod reentry;
