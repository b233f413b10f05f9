//! Which process made a value. A child of `fork()` has a copy of all values of its parent, and none
//! of its threads: it must use no session and no guard of the parent.
//!
//! The child shares the parent's socket, so a request of the child would stand between the parent's
//! bytes. A lock inside the library may have been taken by another thread at the fork; nobody
//! releases it in the child. So each public call and each drop asks first whether it runs in the
//! process that made the session, before it takes any lock. In a child a call gives an error, and a
//! drop does nothing and keeps the memory.
//!
//! `forkguard` counts the forks: `pthread_atfork` calls it in each child. To ask is one load from
//! memory. Children made by a bare `clone` system call, or by `_Fork`, are not counted.

use std::mem;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::world::{ForkGuard, OnceLock};

/// The process that made a value. The default is the process that runs now.
#[derive(Clone)]
pub struct Process(
    /// `None` if forks cannot be noticed. No session is made then.
    Option<ForkGuard>,
);

impl Default for Process {
    fn default() -> Self {
        Process(ForkGuard::try_new().ok())
    }
}

impl Process {
    /// The process that runs now. An error says why its forks cannot be noticed.
    pub(crate) fn here() -> Result<Self, String> {
        ForkGuard::try_new().map(|guard| Process(Some(guard))).map_err(|e| e.to_string())
    }

    /// Whether this process is a forked child of the process that made the value.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.0.clone().is_some_and(|mut guard| guard.detected_fork())
    }

    /// An error in a forked child.
    #[inline]
    pub fn check(&self, op: &'static str, path: &str) -> Result<()> {
        if self.is_forked() { Err(Error::Forked { op, path: path.to_owned() }) } else { Ok(()) }
    }

    /// For the drop of a value: in a forked child `value` is never dropped, and this gives true.
    pub fn keeps<T: ?Sized>(&self, value: &Arc<T>) -> bool {
        let is_forked = self.is_forked();
        if is_forked {
            mem::forget(value.clone());
        }
        is_forked
    }
}

/// A value for statics: each process has its own, also a forked child. The child's copy of the
/// parent's value may be locked for ever, and speaks of the parent's threads.
pub struct PerProcess<T> {
    first: OnceLock<(Process, T)>,
    /// The values of forked children.
    next: OnceLock<Box<PerProcess<T>>>,
}

impl<T> Default for PerProcess<T> {
    fn default() -> Self {
        PerProcess { first: OnceLock::new(), next: OnceLock::new() }
    }
}

impl<T: Default> PerProcess<T> {
    /// This process's value; the first call makes it.
    pub fn get(&self) -> &T {
        let (process, value) = self.first.get_or_init(Default::default);
        if process.is_forked() { self.next.get_or_init(Box::default).get() } else { value }
    }
}
