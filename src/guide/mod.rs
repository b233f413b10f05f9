//! Chapters to read: no code.

#[doc = include_str!("which_lock.md")]
pub mod which_lock {}

#[doc = include_str!("migration.md")]
pub mod migration {}

#[doc = include_str!("testing.md")]
pub mod testing {}

#[doc = include_str!("costs.md")]
#[doc = include_str!("measured.md")]
pub mod costs {}
