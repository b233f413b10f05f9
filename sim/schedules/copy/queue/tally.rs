//! What a lock counts, in the place of the real one: nothing is counted here.

use crate::error::LossReason;

pub struct Holds;

impl Holds {
    pub fn lose(&self, _reason: LossReason) {}
}
