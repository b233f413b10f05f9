//! A copy of the machine, with stand-ins for what the rest of the library gives it.

pub(crate) mod zk_session;

use std::hash::{Hash, Hasher};

use zk_session::clock::BootTime;

/// Two states are the same if they differ by a shift of time only.
impl Hash for BootTime {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let at = self.since(BootTime::default()).as_millis() as i64;
        (at - outside::client::hashed_at()).hash(state);
    }
}
