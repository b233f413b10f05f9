//! The tools of the scenarios, as those of `tests/suite`.

#[allow(dead_code)] // a part of it is used here
#[path = "../../../tests/suite/support/scene.rs"]
pub mod scene;

pub use zk_test_support::*;
