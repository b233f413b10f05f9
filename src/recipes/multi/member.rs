//! `Member`: any lock of this crate, as a part of a multi-lock. The multi-lock calls each member in
//! the same way, through `Part`.

use std::fmt;
use std::sync::Arc;

use super::order::MemberKey;
use crate::error::Result;
use crate::guard::Held;
use crate::limit::Limit;
use crate::local::registry::LockKey;
use crate::queue::Mode;
use crate::queue::name::Kind;
use crate::recipes::exclusive::ZkExclusiveLock;
use crate::recipes::mutex::ZkMutex;
use crate::recipes::rwlock::ZkRwLock;
use crate::recipes::semaphore::{ZkSemaphore, ZkSemaphoreMutex};
use crate::session::ZkSession;
use crate::world::thread::ThreadId;

/// How a multi-lock calls each of its members.
pub(super) trait Part: Send + Sync {
    fn kind(&self) -> &'static str;

    fn session(&self) -> &ZkSession;

    /// The lock's path, as the program gave it.
    fn path(&self) -> &str;

    /// Takes the lock. `None` if somebody else has it. After `None` and after an error this call
    /// has no node, or the node is being deleted.
    fn acquire(&self, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>>;

    /// Whether this thread holds the lock already, and so would wait for itself. False also where
    /// guards belong to no thread. An error if the thread has guards of a lost hold.
    fn is_held_by(&self, thread: ThreadId) -> Result<bool>;
}

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
pub struct Member(Arc<dyn Part>);

impl Member {
    /// A read/write lock that is to be held to read.
    pub fn read(lock: &ZkRwLock) -> Self {
        Member(Arc::new(Half { lock: lock.clone(), kind: Kind::Read }))
    }

    /// A read/write lock that is to be held to write.
    pub fn write(lock: &ZkRwLock) -> Self {
        Member(Arc::new(Half { lock: lock.clone(), kind: Kind::Write }))
    }

    /// A semaphore of which so many permits are to be held, taken together.
    pub fn permits(semaphore: &ZkSemaphore, permits: u32) -> Self {
        Member(Arc::new(Permits { semaphore: semaphore.clone(), permits }))
    }

    pub(super) fn path(&self) -> &str {
        self.0.path()
    }

    pub(super) fn part(&self) -> &dyn Part {
        &*self.0
    }
    pub(super) fn key(&self) -> MemberKey {
        let core = self.0.session().core();
        let dir = format!("{}{}", core.chroot(), self.0.path());
        MemberKey { lock: LockKey::new(&core.ensemble(), &dir), kind: self.0.kind() }
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

/// A lock that is a member as it is: its kind, how it is taken, and whether a thread holds it
/// (false where guards belong to no thread).
macro_rules! by_itself {
    ($($lock:ty, $kind:literal, |$me:ident, $mode:ident, $limit:ident| $acquired:expr, |$this:ident, $thread:ident| $held:expr;)+) => {
        $(
            impl From<$lock> for Member {
                fn from(lock: $lock) -> Self {
                    Member(Arc::new(lock))
                }
            }

            impl From<&$lock> for Member {
                fn from(lock: &$lock) -> Self {
                    lock.clone().into()
                }
            }

            impl Part for $lock {
                fn kind(&self) -> &'static str {
                    $kind
                }

                fn session(&self) -> &ZkSession {
                    self.lock.session()
                }

                fn path(&self) -> &str {
                    self.path()
                }

                fn acquire(&self, $mode: Mode, $limit: Limit<'_>) -> Result<Option<Held>> {
                    let $me = &self.lock;
                    $acquired
                }

                fn is_held_by(&self, $thread: ThreadId) -> Result<bool> {
                    let $this = &self.lock;
                    $held
                }
            }
        )+
    };
}

by_itself! {
    ZkMutex, "mutex",
        |lock, mode, limit| lock.acquire(mode, limit),
        |lock, thread| lock.has_guards(thread);
    ZkSemaphoreMutex, "semaphore mutex",
        |lock, mode, limit| lock.acquire(1, mode, limit),
        |_lock, _thread| Ok(false);
    ZkExclusiveLock, "exclusive lock",
        |lock, mode, limit| lock.acquire(mode, limit),
        |_lock, _thread| Ok(false);
}

/// A read/write lock, to read or to write.
struct Half {
    lock: ZkRwLock,
    kind: Kind,
}

impl Part for Half {
    fn kind(&self) -> &'static str {
        if self.kind == Kind::Read { "read" } else { "write" }
    }

    fn session(&self) -> &ZkSession {
        self.lock.lock.session()
    }

    fn path(&self) -> &str {
        self.lock.path()
    }

    fn acquire(&self, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>> {
        self.lock.lock.acquire(self.kind, mode, limit)
    }

    fn is_held_by(&self, thread: ThreadId) -> Result<bool> {
        self.lock.lock.has_guards(thread)
    }
}

/// A semaphore, for several permits.
struct Permits {
    semaphore: ZkSemaphore,
    permits: u32,
}

impl Part for Permits {
    fn kind(&self) -> &'static str {
        "semaphore"
    }

    fn session(&self) -> &ZkSession {
        self.semaphore.lock.session()
    }

    fn path(&self) -> &str {
        self.semaphore.path()
    }

    fn acquire(&self, mode: Mode, limit: Limit<'_>) -> Result<Option<Held>> {
        self.semaphore.lock.acquire(self.permits, mode, limit)
    }

    /// Permits belong to no thread.
    fn is_held_by(&self, _: ThreadId) -> Result<bool> {
        Ok(false)
    }
}
