//! The number that lets a store refuse a holder whose time is over.

use std::fmt;

/// Grows from holder to holder of a lock, over all processes: give it to the store that the lock
/// protects, and let the store refuse a token lower than the highest it has seen.
///
/// A lock alone cannot stop a process that was paused (by a long collection, a debugger, a
/// suspended host) past its session from writing when it wakes: only the store can, by this. It is
/// the zxid that created the holder's node, which ZooKeeper counts over the whole ensemble, and the
/// number of hand-overs between threads of that process since. Compare the pair, as `Ord` does.
/// Source: "How to do distributed locking", M. Kleppmann, 2016; ZooKeeper's zxid.
///
/// The zxid falls back to a lower number only if the ensemble's data is wiped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    zxid: i64,
    hand_over: u64,
}

impl FencingToken {
    pub(crate) fn new(zxid: i64, hand_over: u64) -> Self {
        FencingToken { zxid, hand_over }
    }

    /// The zxid that created the holder's node.
    pub fn zxid(&self) -> i64 {
        self.zxid
    }

    /// How often the lock was handed over within the process since.
    pub fn hand_over(&self) -> u64 {
        self.hand_over
    }
}

impl fmt::Display for FencingToken {
    /// `0x200000017.3`: the zxid in hexadecimal, as ZooKeeper prints it, and the hand-overs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:x}.{}", self.zxid, self.hand_over)
    }
}
