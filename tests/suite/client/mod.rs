//! The application's own client on the lock's session.
pub mod calls;
pub mod faults;

crate::support::tables![calls, faults];
