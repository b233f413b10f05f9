//! `ZkExclusiveLock`: the simple lock, one node that is there or is not.

mod attempt;
mod lock;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::lock::ExclusiveHandle;
use crate::error::Result;
use crate::guard::guard;
use crate::queue::Contender;
use crate::recipes::settings::{LockBuilder, Recipe, Settings};
use crate::session::ZkSession;
use crate::wait::Wait;

/// The simple lock: whoever makes the one ephemeral node `lock` below the lock's path holds it, and
/// everybody else watches that node and tries again when it goes. Not re-entrant; its guards may
/// move between threads.
///
/// It excludes all threads of all processes that lock the same path of the same ensemble with a
/// `ZkExclusiveLock`, and every other client that makes an ephemeral node `lock` there and takes an
/// existing one for somebody else's lock. It does **not** exclude with the locks that queue
/// ([`ZkMutex`](crate::ZkMutex) and its kin): give each path one kind of lock. Two
/// `ZkExclusiveLock` of one path on one session are the same lock; on two sessions they are two
/// owners.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{ZkExclusiveLock, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let lock = ZkExclusiveLock::new(&session, "/locks/import")?;
/// if let Some(guard) = lock.try_lock()? {
///     // Locked here, unlocked there.
///     std::thread::spawn(move || {
///         println!("importing under {}", guard.fencing_token()); // the store refuses an older token
///     });
/// } else if let Some(holder) = lock.holders()?.first() {
///     println!("{} is at it", String::from_utf8_lossy(&holder.data));
/// }
/// # Ok(())
/// # }
/// ```
///
/// # When to use it, and when not
///
/// For a lock that few want and that is mostly asked for by [`try_lock`](Self::try_lock): a job
/// that one of a few hosts runs, a file that one process imports. It is also the protocol to read
/// first. Use [`ZkMutex`](crate::ZkMutex) where many wait, or wait long:
///
/// * **It has a herd.** A release wakes every process that waits. Each of them sends a create, and
///   all but one of them read the node and watch it again: with n waiting, some 2n requests a
///   release, where the queue takes the same few for any n.
/// * **It is not fair.** Whoever's create comes first has it, so a process can be passed over for
///   ever. (Within one process threads take turns, first come, first served, and of these one at a
///   time tries.)
/// * **Nobody knows who waits**, only [who holds](Self::holders).
/// * **A release takes three requests**, where a queue's takes one: since others use the same name,
///   each delete has to make sure that the node is still ours.
///
/// # What makes a node ours
///
/// Its first line, a UUID made for each acquisition; behind it stands what
/// [`data`](LockBuilder::data) says. A hold begins when a read behind an acknowledged write shows
/// that line, even if the reply to the create itself was lost. A node is deleted only if, on the
/// same connection, a write was acknowledged (so that no earlier delete of ours is still under way)
/// and then a read showed our line and our session: a delete that is sent again cannot hit the node
/// of whoever came next.
///
/// # When the session is lost
///
/// A guard is valid while [`is_held`](crate::Held::is_held); the lease behind that ends before any
/// server can have expired the session. When it is lost, [`lost`](crate::Held::lost) becomes ready,
/// and [`check`](crate::Held::check) is an error. Threads that wait for the lock keep waiting, in a
/// new session.
///
/// # Differences from `std::sync::Mutex`
///
/// * It protects no value: what it protects is elsewhere, and shared with other machines.
/// * Its guard is `Send`: any thread may end it. A second [`lock`](Self::lock) by a thread that
///   holds it waits until somebody else ends the first, as std's may.
/// * There is no poisoning: a panic releases the lock like any other end of the guard's scope.
/// * A guard can be lost while it lives.
/// * `std::mem::forget` on a guard holds the lock until the session is closed.
///
/// The protocol is the one that ZooKeeper's paper calls "Simple Locks" ("ZooKeeper: Wait-free
/// coordination for Internet-scale systems", P. Hunt and others, 2010), and what its session and
/// its guards do beyond that is as in [`ZkMutex`](crate::ZkMutex).
#[derive(Clone)]
pub struct ZkExclusiveLock {
    pub(crate) lock: Arc<ExclusiveHandle>,
}

guard! {
    /// A hold of a [`ZkExclusiveLock`]. Released when it is dropped, by whichever thread: it may be
    /// sent to another one.
    ///
    /// The drop does not wait for ZooKeeper: the node is deleted for sure, in the background; see
    /// [`unlock`](Self::unlock) to wait. What can be asked of a guard is at [`Held`](crate::Held).
    ZkExclusiveGuard, unused: "the ZkExclusiveLock will immediately unlock"
}

impl ZkExclusiveLock {
    /// The lock at `path` (below the session's chroot), with the default settings. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`build`](LockBuilder::build).
    pub fn new(session: &ZkSession, path: &str) -> Result<Self> {
        ZkExclusiveLock::builder(session, path).build()
    }

    /// Begins to describe a lock.
    pub fn builder(session: &ZkSession, path: &str) -> LockBuilder<ZkExclusiveLock> {
        LockBuilder::new(session.clone(), path.to_owned())
    }

    /// The lock's path, as it was given.
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Blocks until the lock is held. A thread that holds it already waits for itself, or for
    /// whoever it gave its guard to.
    ///
    /// An outage is waited for as the session's [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server can be reached, or none
    /// gives the answer that is needed, for longer than the retry policy allows,
    /// [`Error::Closed`](crate::Error::Closed) when the session is closed,
    /// [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses, also to read the node of
    /// whoever has the lock. Whatever was made is removed.
    #[doc(alias = "acquire")]
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn lock(&self) -> Result<ZkExclusiveGuard> {
        self.lock.lock().map(ZkExclusiveGuard::new)
    }

    /// The lock if it is free, `None` if somebody else has it. "Somebody" may be a guard of this
    /// process that was lost and still lives: its node goes when it is dropped. A node of ours that
    /// is on its way out is waited for. Costs one write, unless another thread of this process has
    /// the lock.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`](crate::Error::Unavailable) when ZooKeeper
    /// does not answer within a sixth of the session timeout.
    #[doc(alias = "tryAcquire")]
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn try_lock(&self) -> Result<Option<ZkExclusiveGuard>> {
        self.lock_timeout(Duration::ZERO)
    }

    /// The lock within `timeout`, or `None` if others had it all the time; our node is gone then,
    /// or about to go, if one was made.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`](crate::Error::Unavailable) when the time ran
    /// out in an outage, or before the server answered: `None` always means contention. A timeout
    /// of zero is [`try_lock`](Self::try_lock); any other that is shorter than a round trip can
    /// only give that error.
    #[doc(alias = "try_lock_for")]
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<ZkExclusiveGuard>> {
        self.lock_with(Wait::timeout(timeout))
    }

    /// As [`lock`](Self::lock), for as long as `wait` says: a timeout, a deadline and a cancel
    /// token, or any of these. `None` if others had it all that time, as with
    /// [`lock_timeout`](Self::lock_timeout); never where only a token can end the wait.
    ///
    /// # Errors
    ///
    /// As [`lock_timeout`](Self::lock_timeout), and [`Error::Cancelled`](crate::Error::Cancelled).
    #[doc(alias = "try_lock_until")]
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn lock_with(&self, wait: Wait) -> Result<Option<ZkExclusiveGuard>> {
        Ok(self.lock.lock_with(&wait)?.map(ZkExclusiveGuard::new))
    }

    /// Who holds the lock, of whatever process, or nobody. Costs one read. Those who wait have no
    /// nodes, so nobody knows them.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when there is no connection, or the answer
    /// takes longer than a sixth of the session timeout; otherwise as [`lock`](Self::lock).
    pub fn holders(&self) -> Result<Vec<Contender>> {
        self.lock.holders()
    }
}

impl Recipe for ZkExclusiveLock {
    fn make(settings: Settings) -> Result<Self> {
        Ok(ZkExclusiveLock { lock: ExclusiveHandle::new(settings)?.into() })
    }
}

impl fmt::Debug for ZkExclusiveLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkExclusiveLock")
            .field("path", &self.path())
            .field("state", &format_args!("{}", self.lock.describe()))
            .finish_non_exhaustive()
    }
}
