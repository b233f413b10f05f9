//! `PersistentLock`: where the node of a lock is that outlives its session. `persist` gives it to
//! the program, which needs the node's name to release the lock later.

use std::fmt;

/// A lock whose node belongs to no session: the lock stays held until somebody releases it by the
/// node's name. [`ZkMutexGuard::persist`](crate::ZkMutexGuard::persist) makes it, and explains it.
/// If you drop this value, the lock stays held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use = "nobody but you knows that this lock must be released, and by which name"]
pub struct PersistentLock {
    path: String,
}

impl PersistentLock {
    /// `path`: the path of the node, below the session's chroot.
    pub(super) fn new(path: String) -> Self {
        PersistentLock { path }
    }

    /// The path of its node, below the session's chroot.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The name of its node, below the lock's path.
    /// [`release_persistent`](crate::ZkMutex::release_persistent) takes it. Store it where the
    /// process that will release the lock finds it.
    pub fn name(&self) -> &str {
        self.path.rsplit_once('/').map_or(&self.path, |(_, name)| name)
    }
}

impl fmt::Display for PersistentLock {
    /// The path.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}
