//! How much a session keeps in memory, for the simulation and for the tests: when all that uses the
//! session is gone, each map is empty.

/// What a session keeps in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Pending deletes: nodes that must be deleted and may still exist.
    pub pending_deletes: usize,
    /// Creates without an answer that have made no node and may still be done. They are forgotten
    /// after some time.
    pub late_creates: usize,
    /// Nodes with a common name whose creates were acknowledged and whose end was not seen.
    pub common_names: usize,
    /// Background operations: deletes, sweeps, and watches to be set.
    pub background: usize,
    /// Callers whose requests are not answered, and batches that are not sent.
    pub callers: usize,
    /// Requests without an answer, except those for which no caller waits.
    pub in_flight: usize,
    /// Callers that wait for a fresh lease.
    pub proofs: usize,
    /// Nodes for whose events a thread waits.
    pub watched: usize,
    /// Threads that wait for a change of the session.
    pub waiters: usize,
    /// Watches, and functions for folders.
    pub watchers: usize,
    /// The folders of these functions.
    pub folders: usize,
    /// Nodes that are looked at for them.
    pub looks: usize,
    /// The paths of these looks, and the looks that are to be sent.
    pub looks_by_path: usize,
    /// Functions that will be called at some time.
    pub timers: usize,
    /// Nodes under the lease.
    pub holds: usize,
    /// Those of them that have an end of their own, or whose listeners look some time.
    pub timed_holds: usize,
    /// Nodes that may need a watch. The node that was released last may be among them, see
    /// `Lease::next_watch`.
    pub unwatched: usize,
}
