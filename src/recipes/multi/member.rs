//! `Member`: any lock of this crate, as a part of a multi-lock.

use std::fmt;
use std::sync::Arc;

use super::order::MemberKey;
use crate::recipes::calls::Acquire;
use crate::recipes::exclusive::ZkExclusiveLock;
use crate::recipes::mutex::ZkMutex;
use crate::recipes::rwlock::ZkRwLock;
use crate::recipes::semaphore::{ZkSemaphore, ZkSemaphoreMutex};

/// One lock of a [`ZkMultiLock`](crate::ZkMultiLock), and how it is to be held.
///
/// A [`ZkMutex`], a [`ZkSemaphoreMutex`] and a [`ZkExclusiveLock`] are members as they are. A
/// [`ZkRwLock`] is a member to [`read`](Self::read) or to [`write`](Self::write), and a
/// [`ZkSemaphore`] is a member with a number of [`permits`](Self::permits). A member keeps its lock
/// and its session alive, as a clone of the lock does.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{Member, ZkMultiLock, ZkMutex, ZkRwLock, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let account = ZkMutex::new(&session, "/locks/accounts/17")?;
/// let rates = ZkRwLock::new(&session, "/locks/rates")?;
/// let both = ZkMultiLock::new([Member::from(&account), Member::read(&rates)])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Member(pub(super) Arc<dyn Acquire>);

impl Member {
    /// A read/write lock that is to be held to read.
    pub fn read(lock: &ZkRwLock) -> Self {
        Member(Arc::new(lock.read.clone()))
    }

    /// A read/write lock that is to be held to write.
    pub fn write(lock: &ZkRwLock) -> Self {
        Member(Arc::new(lock.write.clone()))
    }

    /// A semaphore of which so many permits are to be held, taken together.
    pub fn permits(semaphore: &ZkSemaphore, permits: u32) -> Self {
        Member(Arc::new(semaphore.many(permits)))
    }

    pub(super) fn path(&self) -> &str {
        &self.0.settings().path
    }

    pub(super) fn key(&self) -> MemberKey {
        MemberKey { lock: self.0.settings().key(), kind: self.0.kind() }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("kind", &self.0.kind()).field("path", &self.path()).finish()
    }
}

impl From<&Member> for Member {
    fn from(member: &Member) -> Self {
        member.clone()
    }
}

/// Makes a lock that can be held in one way only a member as it is.
macro_rules! member_as_it_is {
    ($($lock:ident, |$this:ident| $way:expr;)+) => {
        $(
            impl From<&$lock> for Member {
                fn from($this: &$lock) -> Self {
                    Member(Arc::new($way.clone()))
                }
            }

            impl From<$lock> for Member {
                fn from(lock: $lock) -> Self {
                    Member::from(&lock)
                }
            }
        )+
    };
}

member_as_it_is! {
    ZkMutex, |mutex| mutex.way;
    ZkSemaphoreMutex, |mutex| mutex.permit;
    ZkExclusiveLock, |lock| lock.lock;
}
