//! `ZkSemaphoreMutex`: a semaphore of one, whose guard any thread may drop.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::lock::Lock;
use crate::cancel::CancelToken;
use crate::error::Result;
use crate::guard::guards;
use crate::limit::Limit;
use crate::queue::{Contender, Mode};
use crate::session::ZkSession;
use crate::settings::{HandsOver, LockBuilder, Recipe, Settings};
use crate::world::Instant;

/// A mutual exclusion lock that belongs to no thread: lock it here, unlock it there.
///
/// It is not re-entrant: a thread that locks it twice waits for itself, for ever, unless another thread
/// drops the first guard. Where one thread both locks and unlocks, use [`ZkMutex`](crate::ZkMutex), which
/// costs half as many requests.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{ZkSemaphoreMutex, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let mutex = ZkSemaphoreMutex::new(&session, "/locks/upload").map(std::sync::Arc::new)?;
/// let guard = mutex.lock_owned()?; // blocks
/// std::thread::spawn(move || {
///     println!("uploading under {}", guard.path());
/// }); // released there
/// # Ok(())
/// # }
/// ```
///
/// # Fairness, and when the session is lost
///
/// As with [`ZkSemaphore`](crate::ZkSemaphore). The [`fencing_token`](crate::Held::fencing_token) grows
/// from holder to holder, as a mutex's should.
///
/// The protocol is that of Curator's `InterProcessSemaphoreMutex`, an `InterProcessSemaphoreV2` of one
/// lease, and the two exclude each other. The node at the path says `1`, as a
/// [`ZkSemaphore`](crate::ZkSemaphore)'s would: where it says another number,
/// [`lock`](Self::lock) is [`Error::InconsistentLeases`](crate::Error::InconsistentLeases).
#[derive(Clone)]
pub struct ZkSemaphoreMutex {
    pub(crate) lock: Arc<Lock>,
}

/// Settings of a [`ZkSemaphoreMutex`]; from [`ZkSemaphoreMutex::builder`].
pub type SemaphoreMutexBuilder = LockBuilder<ZkSemaphoreMutex>;

guards! {
    "ZkSemaphoreMutex" send;
    /// A hold of a [`ZkSemaphoreMutex`], borrowed from it. Released when it is dropped, on whichever thread;
    /// see [`ZkMutexGuard`](crate::ZkMutexGuard).
    ZkSemaphoreMutexGuard;
    /// A hold of a [`ZkSemaphoreMutex`] that keeps it alive; see [`ZkSemaphoreMutex::lock_owned`].
    OwnedZkSemaphoreMutexGuard
}

impl ZkSemaphoreMutex {
    /// The lock at `path` (below the session's chroot), with the default settings. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`build`](LockBuilder::build).
    pub fn new(session: &ZkSession, path: &str) -> Result<Self> {
        ZkSemaphoreMutex::builder(session, path).build()
    }

    /// Begins to describe a lock.
    pub fn builder(session: &ZkSession, path: &str) -> SemaphoreMutexBuilder {
        LockBuilder::new(session.clone(), path.to_owned())
    }

    /// The lock's path, as it was given.
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Blocks until the lock is held. A thread whose own guard holds it waits too, for ever if nobody else
    /// drops that guard.
    ///
    /// An outage is waited for as the session's [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server can be reached, or none gives
    /// the answer that is needed, for longer than the retry policy allows,
    /// [`Error::InconsistentLeases`](crate::Error::InconsistentLeases) when the path is that of a semaphore
    /// of another number of permits, [`Error::Closed`](crate::Error::Closed) when the session is closed,
    /// [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses. Whatever was queued is removed.
    #[doc(alias = "acquire")]
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock(&self) -> Result<ZkSemaphoreMutexGuard<'_>> {
        self.lock.one_forever(Limit::NONE).map(ZkSemaphoreMutexGuard::new)
    }

    /// The lock if it is free, `None` if somebody has it or queues for it. Costs two reads, and no write,
    /// while somebody has it. "Somebody" may be a guard of this process that was lost and still
    /// lives: its node goes when it is dropped.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`](crate::Error::Unavailable) when ZooKeeper
    /// does not answer within a sixth of the session timeout.
    #[doc(alias = "tryAcquire")]
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn try_lock(&self) -> Result<Option<ZkSemaphoreMutexGuard<'_>>> {
        Ok(self.lock.one_at_once()?.map(ZkSemaphoreMutexGuard::new))
    }

    /// The lock within `timeout`, or `None` if others had it all the time; our node is gone then,
    /// or about to go.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`](crate::Error::Unavailable) when the time ran
    /// out in an outage, or before the server answered: `None` always means contention. A timeout
    /// shorter than a round trip can only give that error; to ask once, use
    /// [`try_lock`](Self::try_lock).
    #[doc(alias = "try_lock_for")]
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<ZkSemaphoreMutexGuard<'_>>> {
        Ok(self.lock.acquire_one(Mode::Wait, Limit::after(timeout))?.map(ZkSemaphoreMutexGuard::new))
    }

    /// As [`lock_timeout`](Self::lock_timeout), until a point in time.
    ///
    /// # Errors
    ///
    /// As [`lock_timeout`](Self::lock_timeout).
    #[doc(alias = "try_lock_until")]
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock_deadline(&self, deadline: Instant) -> Result<Option<ZkSemaphoreMutexGuard<'_>>> {
        Ok(self.lock.acquire_one(Mode::Wait, Limit::at(deadline))?.map(ZkSemaphoreMutexGuard::new))
    }

    /// As [`lock`](Self::lock), until the token is cancelled.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock), and [`Error::Cancelled`](crate::Error::Cancelled).
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock_with(&self, cancel: &CancelToken) -> Result<ZkSemaphoreMutexGuard<'_>> {
        self.lock.one_forever(Limit::cancelled_by(cancel)).map(ZkSemaphoreMutexGuard::new)
    }

    /// As [`lock`](Self::lock), with a guard that is not tied to the mutex's lifetime.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock_owned(self: &Arc<Self>) -> Result<OwnedZkSemaphoreMutexGuard> {
        self.lock.one_forever(Limit::NONE).map(OwnedZkSemaphoreMutexGuard::new)
    }

    /// As [`try_lock`](Self::try_lock), with an owned guard.
    ///
    /// # Errors
    ///
    /// As [`try_lock`](Self::try_lock).
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn try_lock_owned(self: &Arc<Self>) -> Result<Option<OwnedZkSemaphoreMutexGuard>> {
        Ok(self.lock.one_at_once()?.map(OwnedZkSemaphoreMutexGuard::new))
    }

    /// As [`lock_timeout`](Self::lock_timeout), with an owned guard.
    ///
    /// # Errors
    ///
    /// As [`lock_timeout`](Self::lock_timeout).
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock_owned_timeout(
        self: &Arc<Self>,
        timeout: Duration,
    ) -> Result<Option<OwnedZkSemaphoreMutexGuard>> {
        Ok(self.lock.acquire_one(Mode::Wait, Limit::after(timeout))?.map(OwnedZkSemaphoreMutexGuard::new))
    }

    /// As [`lock_deadline`](Self::lock_deadline), with an owned guard.
    ///
    /// # Errors
    ///
    /// As [`lock_timeout`](Self::lock_timeout).
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock_owned_deadline(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<Option<OwnedZkSemaphoreMutexGuard>> {
        Ok(self.lock.acquire_one(Mode::Wait, Limit::at(deadline))?.map(OwnedZkSemaphoreMutexGuard::new))
    }

    /// As [`lock_with`](Self::lock_with), with an owned guard.
    ///
    /// # Errors
    ///
    /// As [`lock_with`](Self::lock_with).
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock_owned_with(self: &Arc<Self>, cancel: &CancelToken) -> Result<OwnedZkSemaphoreMutexGuard> {
        self.lock.one_forever(Limit::cancelled_by(cancel)).map(OwnedZkSemaphoreMutexGuard::new)
    }

    /// Everybody who holds or waits for the lock: first the holder, then the others in queue order. Of each
    /// process one thread is seen to wait. Costs two listings, and a read for each contender.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when there is no connection, or an answer
    /// takes longer than a sixth of the session timeout; otherwise as [`lock`](Self::lock).
    pub fn contenders(&self) -> Result<Vec<Contender>> {
        let mut all = self.lock.holders()?;
        // What stands behind the holder's lease is that of the first in the queue.
        all.truncate(1);
        all.extend(self.lock.waiting()?);
        Ok(all)
    }
}

impl HandsOver for ZkSemaphoreMutex {}

impl Recipe for ZkSemaphoreMutex {
    fn make(settings: Settings) -> Result<Self> {
        Ok(ZkSemaphoreMutex { lock: Lock::new(settings, "semaphore mutex", 1, true)?.into() })
    }
}

impl fmt::Debug for ZkSemaphoreMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkSemaphoreMutex").field("path", &self.path()).finish_non_exhaustive()
    }
}
