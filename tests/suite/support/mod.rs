//! What the scenarios stand on: `zk-test-support`, and what they share of the library: sessions,
//! recipes, contenders.
#![allow(dead_code)] // not every scenario needs everything

pub mod contend;
pub mod embedded;
pub mod process;
pub mod recipe;
pub mod scene;

pub use recipe::Recipe;
pub use zk_test_support::*;
