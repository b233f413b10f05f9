//! `ZkSemaphoreMutex`: of all threads of all processes, one holds the lock at a time. Its guard may
//! go to another thread. It is a semaphore with one permit, and adds no protocol of its own.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::lock::SemaphoreHandle;
use crate::error::Result;
use crate::guard::guard;
use crate::queue::Contender;
use crate::recipes::settings::{HandsOver, LockBuilder, Recipe, Settings};
use crate::session::ZkSession;
use crate::stats::LockStats;
use crate::wait::Wait;

/// The name of a lease's contender begins with this.
const LEASE: &str = "leases/";

/// A mutual exclusion lock over ZooKeeper that belongs to no thread: one thread may lock it, and
/// another may unlock it.
///
/// All threads of all processes that lock the same path of the same ensemble exclude each other:
/// there is one guard at a time. Clients in other languages count too: Curator's
/// `InterProcessSemaphoreMutex`. Two `ZkSemaphoreMutex` of one path on one session are the same
/// lock.
///
/// The lock is not re-entrant: a thread that locks it twice blocks for ever, unless another thread
/// drops the first guard.
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
/// # Fairness
///
/// Between processes, the lock goes to the process that asked first. The threads of a session share
/// one node in the queue. They take turns, first come, first served, and hand their place in the
/// queue to each other for as long as [`hand_over`](LockBuilder::hand_over) allows, 20 ms by
/// default.
///
/// # When the session is lost
///
/// A guard is valid while [`is_held`](crate::Held::is_held) says so. Its lease ends before any
/// server can have expired the session. When the guard is lost, its signal
/// [`lost`](crate::Held::lost) becomes ready, and [`check`](crate::Held::check) gives an error.
/// Threads that wait for the lock go on waiting, in a new session.
/// If the connection of a waiting thread was away for longer than the lease lasts (see
/// [`Held`](crate::Held)), the thread queues again, behind the others.
///
/// # Differences from `ZkMutex`
///
/// * The guard is `Send`: any thread may drop it.
/// * It is not re-entrant.
/// * A lock and its release cost seven requests, where a [`ZkMutex`](crate::ZkMutex) needs three.
///   If one thread both locks and unlocks, use a `ZkMutex`.
/// * The node at the path has the number `1` in its data, as that of a
///   [`ZkSemaphore`](crate::ZkSemaphore) with one permit. If it has another number, the path
///   belongs to another semaphore, and [`lock`](Self::lock) gives
///   [`Error::InconsistentLeases`](crate::Error::InconsistentLeases).
///
/// Source: Curator's `InterProcessSemaphoreMutex`, which is an `InterProcessSemaphoreV2` with one
/// lease.
#[derive(Clone)]
pub struct ZkSemaphoreMutex {
    pub(crate) lock: Arc<SemaphoreHandle>,
}

guard! {
    /// A hold of a [`ZkSemaphoreMutex`]. The lock is released when the guard is dropped, on any
    /// thread: it may be sent to another thread.
    ///
    /// The drop does not wait for ZooKeeper: the node is deleted for sure, in the background. To
    /// wait until it is deleted, call [`unlock`](Self::unlock). The methods of a guard are those of
    /// [`Held`](crate::Held).
    ///
    /// The guard borrows nothing, so it can be stored in a struct. It is a handle of its session
    /// and keeps the session open. If it is the last handle, its end also closes the session. Then
    /// the drop, or `unlock`, waits for that for up to 0.95 s. Keep a [`ZkSession`] elsewhere to
    /// avoid this.
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

    /// A builder, for a lock with settings of its own.
    pub fn builder(session: &ZkSession, path: &str) -> LockBuilder<ZkSemaphoreMutex> {
        LockBuilder::new(session.clone(), path.to_owned())
    }

    /// The lock's path, as it was given.
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Blocks until this call holds the lock. A thread that holds it already waits too, for ever if
    /// no other thread drops that guard.
    ///
    /// The call waits in an outage for as long as the session's [`RetryPolicy`](crate::RetryPolicy)
    /// says.
    ///
    /// # Errors
    ///
    /// * [`Error::Unavailable`](crate::Error::Unavailable) when no server can be reached, or no
    ///   server gives the answer that is needed, for longer than the retry policy allows.
    /// * [`Error::InconsistentLeases`](crate::Error::InconsistentLeases) when the path is that of a
    ///   semaphore with another number of permits.
    /// * [`Error::Closed`](crate::Error::Closed) when the session is closed.
    /// * [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses, and
    ///   [`Error::Auth`](crate::Error::Auth) when the servers refuse the session's credentials.
    ///
    /// After an error this call has no node in the queue, or the node is being deleted.
    #[doc(alias = "acquire")]
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock(&self) -> Result<ZkSemaphoreMutexGuard> {
        self.lock.lock(1).map(ZkSemaphoreMutexGuard::new)
    }

    /// Takes the lock if it is free, and gives `None` if somebody else has it or waits for it. In
    /// that case the call costs two reads and no write. "Somebody else" may also be a guard of this
    /// process that was lost and still lives: its node is deleted when the guard is dropped.
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

    /// Waits for the lock for `timeout` at most, and gives `None` if others had it all that time.
    /// In that case this call's node is deleted, or about to be deleted.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`](crate::Error::Unavailable) when the time ran
    /// out in an outage, or before the server answered. So `None` always means that somebody else
    /// was ahead. A timeout of zero is [`try_lock`](Self::try_lock), which waits for the server's
    /// answer. Any other timeout that is shorter than a few round trips gives this error.
    #[doc(alias = "try_lock_for")]
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<ZkSemaphoreMutexGuard>> {
        self.lock_with(Wait::timeout(timeout))
    }

    /// Waits for the lock for as long as `wait` says: a timeout, a deadline and a cancel token, or
    /// any of these. Gives `None` if others had it all that time, as
    /// [`lock_timeout`](Self::lock_timeout) does. A wait that has neither a timeout nor a deadline
    /// never gives `None`.
    ///
    /// # Errors
    ///
    /// As [`lock_timeout`](Self::lock_timeout), and [`Error::Cancelled`](crate::Error::Cancelled)
    /// when the token is cancelled.
    #[doc(alias = "try_lock_until")]
    #[must_use = "if unused the ZkSemaphoreMutex will immediately unlock"]
    pub fn lock_with(&self, wait: Wait) -> Result<Option<ZkSemaphoreMutexGuard>> {
        Ok(self.lock.lock_with(1, &wait)?.map(ZkSemaphoreMutexGuard::new))
    }

    /// What the lock has counted in this session: calls that wait, holds, losses. Costs nothing. See
    /// [`LockStats`](crate::LockStats).
    pub fn stats(&self) -> LockStats {
        self.lock.stats()
    }

    /// All contenders, in the order of the queue: the first holds the lock, the others wait for it.
    /// The threads of a session count as one contender. Costs two listings, and a read for each
    /// contender.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when there is no connection, or an answer
    /// takes longer than a sixth of the session timeout; otherwise as [`lock`](Self::lock).
    pub fn contenders(&self) -> Result<Vec<Contender>> {
        let mut all = self.lock.contenders()?;
        // The first contender in the queue makes its lease before it holds the lock. That lease
        // comes right after the holder's and is left out: its maker is listed as a waiting
        // contender.
        let leases = all.iter().take_while(|contender| contender.name.starts_with(LEASE)).count();
        all.drain(leases.min(1)..leases);
        Ok(all)
    }

    /// The contender that holds the lock, in any process. The list is empty if nobody holds the
    /// lock. Costs a listing, and a read for each lease.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    pub fn holders(&self) -> Result<Vec<Contender>> {
        let mut all = self.lock.holders()?;
        all.truncate(1);
        Ok(all)
    }

    /// Asks the client whose node is `contender` (one of [`contenders`](Self::contenders)) to give
    /// up the lock, or its place in the queue: the signal
    /// [`revoke_requested`](crate::Held::revoke_requested) of its guard becomes ready.
    /// [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke) says what follows, and what this
    /// call returns.
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
