//! `ZkSemaphoreMutex`: a semaphore of one, whose guard any thread may drop.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::lock::SemaphoreHandle;
use crate::error::Result;
use crate::guard::guard;
use crate::queue::Contender;
use crate::recipes::settings::{HandsOver, LockBuilder, Recipe, Settings};
use crate::session::ZkSession;
use crate::wait::Wait;

/// With what the name of a lease begins.
const LEASE: &str = "leases/";

/// A mutual exclusion lock that belongs to no thread: lock it here, unlock it there.
///
/// It is not re-entrant: a thread that locks it twice waits for itself, for ever, unless another
/// thread drops the first guard. Where one thread both locks and unlocks, use
/// [`ZkMutex`](crate::ZkMutex), which costs half as many requests.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{ZkSemaphoreMutex, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let mutex = ZkSemaphoreMutex::new(&session, "/locks/upload")?;
/// let guard = mutex.lock()?; // blocks
/// std::thread::spawn(move || {
///     println!("uploading under {}", guard.path());
/// }); // released there
/// # Ok(())
/// # }
/// ```
///
/// # Fairness, and when the session is lost
///
/// As with [`ZkSemaphore`](crate::ZkSemaphore). The [`fencing_token`](crate::Held::fencing_token)
/// grows from holder to holder, as a mutex's should.
///
/// The protocol is that of Curator's `InterProcessSemaphoreMutex`, an `InterProcessSemaphoreV2` of
/// one lease, and the two exclude each other. The node at the path says `1`, as a
/// [`ZkSemaphore`](crate::ZkSemaphore)'s would: where it says another number, [`lock`](Self::lock)
/// is [`Error::InconsistentLeases`](crate::Error::InconsistentLeases).
#[derive(Clone)]
pub struct ZkSemaphoreMutex {
    pub(crate) lock: Arc<SemaphoreHandle>,
}

guard! {
    /// A hold of a [`ZkSemaphoreMutex`]. Released when it is dropped, on whichever thread: it may
    /// be sent to another one. Otherwise it is as a [`ZkMutexGuard`](crate::ZkMutexGuard).
    ZkSemaphoreMutexGuard, unused: "the ZkSemaphoreMutex will immediately unlock"
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
    pub fn builder(session: &ZkSession, path: &str) -> LockBuilder<ZkSemaphoreMutex> {
        LockBuilder::new(session.clone(), path.to_owned())
    }

    /// The lock's path, as it was given.
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Blocks until the lock is held. A thread whose own guard holds it waits too, for ever if
    /// nobody else drops that guard.
    ///
    /// An outage is waited for as the session's [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server can be reached, or none
    /// gives the answer that is needed, for longer than the retry policy allows,
    /// [`Error::InconsistentLeases`](crate::Error::InconsistentLeases) when the path is that of a
    /// semaphore of another number of permits, [`Error::Closed`](crate::Error::Closed) when the
    /// session is closed, [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses. Whatever was
    /// queued is removed.
    #[doc(alias = "acquire")]
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock(&self) -> Result<ZkSemaphoreMutexGuard> {
        self.lock.lock(1).map(ZkSemaphoreMutexGuard::new)
    }

    /// The lock if it is free, `None` if somebody has it or queues for it. Costs two reads, and no
    /// write, while somebody has it. "Somebody" may be a guard of this process that was lost and
    /// still lives: its node goes when it is dropped.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`](crate::Error::Unavailable) when ZooKeeper
    /// does not answer within a sixth of the session timeout.
    #[doc(alias = "tryAcquire")]
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn try_lock(&self) -> Result<Option<ZkSemaphoreMutexGuard>> {
        self.lock_timeout(Duration::ZERO)
    }

    /// The lock within `timeout`, or `None` if others had it all the time; our node is gone then,
    /// or about to go.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`](crate::Error::Unavailable) when the time ran
    /// out in an outage, or before the server answered: `None` always means contention. A timeout
    /// of zero is [`try_lock`](Self::try_lock); any other that is shorter than a round trip can
    /// only give that error.
    #[doc(alias = "try_lock_for")]
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<ZkSemaphoreMutexGuard>> {
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
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock_with(&self, wait: Wait) -> Result<Option<ZkSemaphoreMutexGuard>> {
        Ok(self.lock.lock_with(1, &wait)?.map(ZkSemaphoreMutexGuard::new))
    }

    /// Everybody who holds or waits for the lock: first the holder, then the others in queue order.
    /// Of each process one thread is seen to wait. Costs two listings, and a read for each
    /// contender.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when there is no connection, or an answer
    /// takes longer than a sixth of the session timeout; otherwise as [`lock`](Self::lock).
    pub fn contenders(&self) -> Result<Vec<Contender>> {
        let mut all = self.lock.contenders()?;
        // Behind the holder's lease stands that which the first in the queue has made already.
        let leases = all.iter().take_while(|contender| contender.name.starts_with(LEASE)).count();
        all.drain(leases.min(1)..leases);
        Ok(all)
    }

    /// Who holds the lock, of whatever process, or nobody. Costs a listing, and a read for each
    /// lease.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    pub fn holders(&self) -> Result<Vec<Contender>> {
        let mut all = self.lock.holders()?;
        all.truncate(1);
        Ok(all)
    }

    /// Asks one of the [`contenders`](Self::contenders) to let go, as
    /// [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke).
    ///
    /// # Errors
    ///
    /// As [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke).
    pub fn attempt_revoke(&self, contender: &Contender) -> Result<Option<Vec<u8>>> {
        self.lock.revoke(contender)
    }
}

impl HandsOver for ZkSemaphoreMutex {}

impl Recipe for ZkSemaphoreMutex {
    fn make(settings: Settings) -> Result<Self> {
        Ok(ZkSemaphoreMutex {
            lock: SemaphoreHandle::new(settings, "semaphore mutex", true)?.into(),
        })
    }
}

impl fmt::Debug for ZkSemaphoreMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkSemaphoreMutex").field("path", &self.path()).finish_non_exhaustive()
    }
}
