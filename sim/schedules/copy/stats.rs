//! What a lock counts, in the place of the real one: nothing is counted here.

use crate::error::LossReason;
use crate::wait::UserCall;

pub struct WaitRecord<'a> {
    pub call: &'a UserCall,
}

impl WaitRecord<'_> {
    pub fn contended(&self) {}

    pub fn contended_until_now(&self) {}
}

pub struct Holds;

impl Holds {
    pub fn lose(&self, _reason: LossReason) {}
}
