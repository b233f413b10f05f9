//! The application's own client on the lock's session.
pub mod acl;
pub mod calls;
pub mod faults;

crate::support::tables![acl, calls, faults];
