//! What one session's callers and its link share.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::bell::Bells;
use super::lease::Lease;

#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) lease: Lease,
    /// Bells by the full path of the node that they are about.
    pub(crate) nodes: Bells<String>,
    /// The number of the connection that stands or stood last; watches live only on their own one.
    attach: AtomicU64,
    /// The ids of nodes of ours that should go and may still exist.
    debris: Mutex<HashSet<String>>,
    /// Nodes that outlive the session, by their ids, until they are kept for good or gone.
    lasting: Mutex<HashMap<String, String>>,
    session_id: OnceLock<i64>,
    /// The granted session timeout in milliseconds; it may change when the session is resumed.
    timeout_ms: AtomicU64,
    /// Why each host last failed us.
    failures: Mutex<BTreeMap<String, String>>,
}

impl Shared {
    pub(super) fn granted(&self, session_id: i64, timeout: Duration) {
        let _ = self.session_id.set(session_id);
        self.timeout_ms.store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }

    pub(crate) fn session_id(&self) -> Option<i64> {
        self.session_id.get().copied()
    }

    /// The negotiated session timeout; zero as long as there is no session.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms.load(Ordering::Acquire))
    }

    pub(crate) fn attach(&self) -> u64 {
        self.attach.load(Ordering::Acquire)
    }

    pub(super) fn attached(&self) {
        self.attach.fetch_add(1, Ordering::AcqRel);
        self.failures.lock().clear();
    }

    pub(crate) fn debris(&self) -> HashSet<String> {
        self.debris.lock().clone()
    }

    pub(super) fn add_debris(&self, id: &str) {
        self.debris.lock().insert(id.to_owned());
    }

    pub(super) fn remove_debris(&self, id: &str) {
        self.debris.lock().remove(id);
        self.keep(id);
    }

    /// A node that outlives the session is being made.
    pub(super) fn lasts(&self, id: &str, path: &str) {
        self.lasting.lock().insert(id.to_owned(), path.to_owned());
    }

    /// It is to stay.
    pub(crate) fn keep(&self, id: &str) {
        self.lasting.lock().remove(id);
    }

    /// Of those that should go: the end of the session does not end them.
    pub(super) fn lasting_debris(&self) -> Vec<String> {
        let (debris, lasting) = (self.debris.lock(), self.lasting.lock());
        lasting.iter().filter(|(id, _)| debris.contains(*id)).map(|(_, path)| path.clone()).collect()
    }

    pub(super) fn failed(&self, host: &str, reason: String) {
        self.failures.lock().insert(host.to_owned(), reason);
    }

    pub(super) fn failures(&self) -> BTreeMap<String, String> {
        self.failures.lock().clone()
    }
}
