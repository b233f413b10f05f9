//! The chapters of the guide: text to read, with no code of the library.

#[doc = include_str!("which_lock.md")]
pub mod which_lock {}

#[doc = include_str!("guarantees.md")]
pub mod guarantees {}

#[doc = include_str!("fencing.md")]
pub mod fencing {}

#[doc = include_str!("faults.md")]
pub mod faults {}

#[doc = include_str!("forks.md")]
pub mod forks {}

#[doc = include_str!("interop.md")]
pub mod interop {}

#[doc = include_str!("operations.md")]
pub mod operations {}

#[doc = include_str!("migration.md")]
pub mod migration {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("costs.md")]
#[doc = ""]
#[doc = include_str!("peers.md")]
#[doc = include_str!("fleet.md")]
#[doc = include_str!("measured.md")]
pub mod costs {}
