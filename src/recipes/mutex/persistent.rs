//! The name of a lock that has no owner any more.

use std::fmt;

/// A lock that nobody's session keeps: it stands until somebody releases it by its name. From
/// [`ZkMutexGuard::persist`](crate::ZkMutexGuard::persist), which see; the end of this value ends
/// nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[must_use = "nobody but you knows that this lock must be released, and by which name"]
pub struct PersistentLock {
    path: String,
}

impl PersistentLock {
    /// `path`: as the session shows it.
    pub(super) fn new(path: String) -> Self {
        PersistentLock { path }
    }

    /// The path of its node, below the session's chroot.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The name of its node, below the lock's path: what
    /// [`release_persistent`](crate::ZkMutex::release_persistent) wants. Store it where whoever is
    /// to release the lock finds it.
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
