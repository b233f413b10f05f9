//! `ZkExclusiveLock`: the simple lock, one node that is there or is not.

mod attempt;
mod bid;
mod holder;
mod lock;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::holder::Holder;
use self::lock::Lock;
use crate::cancel::CancelToken;
use crate::error::Result;
use crate::guard::{Held, guards};
use crate::limit::Limit;
use crate::queue::Mode;
use crate::session::ZkSession;
use crate::settings::{LockBuilder, Recipe, Settings};
use crate::world::Instant;

/// The simple lock: whoever makes the one ephemeral node `lock` below the lock's path holds it, and
/// everybody else watches that node and tries again when it goes. Not re-entrant; its guards may move
/// between threads.
///
/// It excludes all threads of all processes that lock the same path of the same ensemble with a
/// `ZkExclusiveLock`, and every other client that makes an ephemeral node `lock` there and takes an
/// existing one for somebody else's lock. It does **not** exclude with the locks that queue
/// ([`ZkMutex`](crate::ZkMutex) and its kin): give each path one kind of lock. Two `ZkExclusiveLock` of
/// one path on one session are the same lock; on two sessions they are two owners.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::sync::Arc;
/// use zk_mutex::{ZkExclusiveLock, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let lock = Arc::new(ZkExclusiveLock::new(&session, "/locks/import")?);
/// if let Some(guard) = lock.try_lock_owned()? {
///     // Locked here, unlocked there.
///     std::thread::spawn(move || {
///         println!("importing under {}", guard.fencing_token()); // the store refuses an older token
///     });
/// } else if let Some(holder) = lock.holder()? {
///     println!("{} is at it", String::from_utf8_lossy(&holder.data));
/// }
/// # Ok(())
/// # }
/// ```
///
/// # When to use it, and when not
///
/// For a lock that few want and that is mostly asked for by [`try_lock`](Self::try_lock): a job that one
/// of a few hosts runs, a file that one process imports. It is also the protocol to read first. Use
/// [`ZkMutex`](crate::ZkMutex) where many wait, or wait long:
///
/// * **It has a herd.** A release wakes every process that waits. Each of them sends a create, and all but one
///   of them read the node and watch it again: with n waiting, some 2n requests a release, where the queue
///   takes the same few for any n.
/// * **It is not fair.** Whoever's create comes first has it, so a process can be passed over for ever.
///   (Within one process threads take turns, first come, first served, and of these one at a time tries.)
/// * **Nobody knows who waits**, only [who holds](Self::holder).
/// * **A release takes three requests**, where a queue's takes one: since others use the same name, each delete
///   has to make sure that the node is still ours.
///
/// # What makes a node ours
///
/// Its first line, a UUID made for each acquisition; behind it stands what
/// [`data`](LockBuilder::data) says. A hold begins when a read behind an acknowledged write shows that line,
/// even if the reply to the create itself was lost. A node is deleted only if, on the same connection, a write
/// was acknowledged (so that no earlier delete of ours is still under way) and then a read showed our line
/// and our session: a delete that is sent again cannot hit the node of whoever came next.
///
/// # When the session is lost
///
/// A guard is valid while [`is_held`](Held::is_held); the lease behind that ends before any server
/// can have expired the session. When it is lost, [`lost`](Held::lost) becomes ready, and
/// [`check`](Held::check) is an error. Threads that wait for the lock keep waiting, in a new
/// session.
///
/// # Differences from `std::sync::Mutex`
///
/// * It protects no value: what it protects is elsewhere, and shared with other machines.
/// * Its guard is `Send`: any thread may end it. A second [`lock`](Self::lock) by a thread that holds it
///   waits until somebody else ends the first, as std's may.
/// * There is no poisoning: a panic releases the lock like any other end of the guard's scope.
/// * A guard can be lost while it lives.
/// * `std::mem::forget` on a guard holds the lock until the session is closed.
///
/// The protocol is the one that ZooKeeper's paper calls "Simple Locks" ("ZooKeeper: Wait-free coordination
/// for Internet-scale systems", P. Hunt and others, 2010), and what its session and its guards do beyond that
/// is as in [`ZkMutex`](crate::ZkMutex).
#[derive(Clone)]
pub struct ZkExclusiveLock {
    pub(crate) lock: Arc<Lock>,
}

/// Settings of a [`ZkExclusiveLock`]; from [`ZkExclusiveLock::builder`].
pub type ExclusiveLockBuilder = LockBuilder<ZkExclusiveLock>;

guards! {
    "ZkExclusiveLock" send;
    /// A hold of a [`ZkExclusiveLock`], borrowed from it. Released when it is dropped, by whichever thread.
    ///
    /// The drop does not wait for ZooKeeper: the node is deleted for sure, in the background; see
    /// [`unlock`](Self::unlock) to wait. What can be asked of a guard is at [`Held`].
    ZkExclusiveGuard;
    /// A hold of a [`ZkExclusiveLock`] that keeps it alive; see [`ZkExclusiveLock::lock_owned`].
    OwnedZkExclusiveGuard
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
    pub fn builder(session: &ZkSession, path: &str) -> ExclusiveLockBuilder {
        LockBuilder::new(session.clone(), path.to_owned())
    }

    /// The lock's path, as it was given.
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Blocks until the lock is held. A thread that holds it already waits for itself, or for whoever it
    /// gave its guard to.
    ///
    /// An outage is waited for as the session's [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server can be reached, or none gives
    /// the answer that is needed, for longer than the retry policy allows,
    /// [`Error::Closed`](crate::Error::Closed) when the session is closed,
    /// [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses, also to read the node of whoever has
    /// the lock. Whatever was made is removed.
    #[doc(alias = "acquire")]
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn lock(&self) -> Result<ZkExclusiveGuard<'_>> {
        self.lock.forever(Limit::NONE).map(ZkExclusiveGuard::new)
    }

    /// The lock if it is free, `None` if somebody else has it. "Somebody" may be a guard of this process
    /// that was lost and still lives: its node goes when it is dropped. A node of ours that is on its way
    /// out is waited for. Costs one write, unless another thread of this process has the lock.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`](crate::Error::Unavailable) when ZooKeeper
    /// does not answer within a sixth of the session timeout.
    #[doc(alias = "tryAcquire")]
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn try_lock(&self) -> Result<Option<ZkExclusiveGuard<'_>>> {
        Ok(self.at_once()?.map(ZkExclusiveGuard::new))
    }

    /// The lock within `timeout`, or `None` if others had it all the time; our node is gone then,
    /// or about to go, if one was made.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`](crate::Error::Unavailable) when the time ran
    /// out in an outage, or before the server answered: `None` always means contention. A timeout
    /// shorter than a round trip can only give that error; to ask once, use
    /// [`try_lock`](Self::try_lock).
    #[doc(alias = "try_lock_for")]
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<ZkExclusiveGuard<'_>>> {
        Ok(self.lock.acquire(Mode::Wait, Limit::after(timeout))?.map(ZkExclusiveGuard::new))
    }

    /// As [`lock_timeout`](Self::lock_timeout), until a point in time.
    ///
    /// # Errors
    ///
    /// As [`lock_timeout`](Self::lock_timeout).
    #[doc(alias = "try_lock_until")]
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn lock_deadline(&self, deadline: Instant) -> Result<Option<ZkExclusiveGuard<'_>>> {
        Ok(self.lock.acquire(Mode::Wait, Limit::at(deadline))?.map(ZkExclusiveGuard::new))
    }

    /// As [`lock`](Self::lock), until the token is cancelled.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::Cancelled`](crate::Error::Cancelled).
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn lock_with(&self, cancel: &CancelToken) -> Result<ZkExclusiveGuard<'_>> {
        self.lock.forever(Limit::cancelled_by(cancel)).map(ZkExclusiveGuard::new)
    }

    /// As [`lock`](Self::lock), with a guard that is not tied to the lock's lifetime.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn lock_owned(self: &Arc<Self>) -> Result<OwnedZkExclusiveGuard> {
        self.lock.forever(Limit::NONE).map(OwnedZkExclusiveGuard::new)
    }

    /// As [`try_lock`](Self::try_lock), with an owned guard.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn try_lock_owned(self: &Arc<Self>) -> Result<Option<OwnedZkExclusiveGuard>> {
        Ok(self.at_once()?.map(OwnedZkExclusiveGuard::new))
    }

    /// As [`lock_timeout`](Self::lock_timeout), with an owned guard.
    ///
    /// # Errors
    ///
    /// As [`lock_timeout`](Self::lock_timeout).
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn lock_owned_timeout(self: &Arc<Self>, timeout: Duration) -> Result<Option<OwnedZkExclusiveGuard>> {
        Ok(self.lock.acquire(Mode::Wait, Limit::after(timeout))?.map(OwnedZkExclusiveGuard::new))
    }

    /// As [`lock_deadline`](Self::lock_deadline), with an owned guard.
    ///
    /// # Errors
    ///
    /// As [`lock_timeout`](Self::lock_timeout).
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn lock_owned_deadline(self: &Arc<Self>, deadline: Instant) -> Result<Option<OwnedZkExclusiveGuard>> {
        Ok(self.lock.acquire(Mode::Wait, Limit::at(deadline))?.map(OwnedZkExclusiveGuard::new))
    }

    /// As [`lock_with`](Self::lock_with), with an owned guard.
    ///
    /// # Errors
    ///
    /// As [`lock_with`](Self::lock_with).
    #[must_use = "if unused the ZkExclusiveLock will immediately unlock"]
    pub fn lock_owned_with(self: &Arc<Self>, cancel: &CancelToken) -> Result<OwnedZkExclusiveGuard> {
        self.lock.forever(Limit::cancelled_by(cancel)).map(OwnedZkExclusiveGuard::new)
    }

    /// Who holds the lock, if anybody does. Costs one read. Those who wait have no nodes, so nobody knows
    /// them.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when there is no connection, or the answer takes
    /// longer than a sixth of the session timeout; otherwise as [`lock`](Self::lock).
    pub fn holder(&self) -> Result<Option<Holder>> {
        self.lock.holder()
    }

    fn at_once(&self) -> Result<Option<Held>> {
        self.lock.acquire(Mode::Try, Limit::after(self.lock.settings.patience()))
    }
}

impl Recipe for ZkExclusiveLock {
    fn make(settings: Settings) -> Result<Self> {
        Ok(ZkExclusiveLock { lock: Lock::new(settings)?.into() })
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
