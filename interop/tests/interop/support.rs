//! What the scenarios stand on, as those of `tests/suite`.

#[allow(dead_code)] // not all of it is needed here
#[path = "../../../tests/suite/support/scene.rs"]
pub mod scene;

pub use zk_test_support::*;
