//! The tools of the scenarios: `zk-test-support`, and tools for the library: sessions, recipes,
//! contenders.
#![allow(dead_code)] // not every binary uses everything

pub mod contend;
pub mod embedded;
pub mod process;
pub mod recipe;
pub mod scene;

pub use recipe::Recipe;
pub use zk_test_support::*;
