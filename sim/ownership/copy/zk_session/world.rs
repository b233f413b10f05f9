//! The machine's world: maps with one order.

use std::time::Duration;

pub(crate) use std::collections::{BTreeMap as HashMap, BTreeSet as HashSet};
pub(crate) use std::sync::atomic;

/// The machine reads no clock.
pub(crate) fn boot_time() -> Duration {
    Duration::ZERO
}

pub(crate) fn new_uuid() -> uuid::Uuid {
    uuid::Uuid::nil()
}
