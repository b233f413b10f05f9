//! `ZkMutex`: one holder at a time, over all processes.

mod lock;
mod persistent;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::lock::Lock;
pub use self::persistent::PersistentLock;
use crate::error::Result;
use crate::guard::guard;
use crate::queue::Contender;
use crate::session::ZkSession;
use crate::settings::{HandsOver, HasLayout, HasWaitStrategy, Keeps, LockBuilder, Recipe, Settings};
use crate::wait::Wait;
use crate::world::thread;

/// A mutual exclusion lock over ZooKeeper, re-entrant per thread.
///
/// It excludes all threads of all processes that lock the same path of the same ensemble, clients
/// in other languages included (see [`Layout`](crate::Layout)). Two `ZkMutex` of one path on one
/// session are the same lock; on two sessions they are two owners.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::{ZkMutex, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let mutex = ZkMutex::new(&session, "/locks/orders")?;
/// {
///     let guard = mutex.lock()?; // blocks
///     let token = guard.fencing_token(); // the store refuses an older token
///     println!("charging the account under {token}");
/// } // released here
/// if let Some(_leader) = mutex.try_lock()? {
///     println!("on duty");
/// }
/// match mutex.lock_timeout(Duration::from_secs(5))? {
///     Some(_guard) => println!("got it"),
///     None => println!("somebody else holds it"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Fairness
///
/// Between processes: first come, first served, by the order in which their nodes were made. Within
/// a process its threads queue up (first come, first served) behind one node, and may hand the lock
/// to each other without a round trip for as long as
/// [`hand_over`](LockBuilder::hand_over) allows, 20 ms by default.
///
/// # When the session is lost
///
/// A guard is valid while [`is_held`](crate::Held::is_held); the lease behind that ends before any server
/// can have expired the session. When it is lost, [`lost`](crate::Held::lost) becomes ready, and
/// [`check`](crate::Held::check) is an error. Threads that wait for the lock keep waiting, in a new
/// session.
///
/// # Differences from `std::sync::Mutex`
///
/// * It protects no value: what it protects is elsewhere, and shared with other machines.
/// * It is re-entrant, and there is no poisoning: a panic releases the lock like any other end of
///   the guard's scope.
/// * A guard can be lost while it lives.
/// * `std::mem::forget` on a guard holds the lock until the session is closed.
///
/// The protocol is the lock recipe of the ZooKeeper documentation as Curator's `InterProcessMutex`
/// has it.
#[derive(Clone)]
pub struct ZkMutex {
    pub(crate) lock: Arc<Lock>,
}

guard! {
    /// A hold of a [`ZkMutex`]. Released when the thread's last guard is dropped.
    ///
    /// The drop does not wait for ZooKeeper: the node is deleted for sure, in the background; see
    /// [`unlock`](Self::unlock) to wait. What can be asked of a guard is at [`Held`](crate::Held).
    ///
    /// The guard keeps the lock and its session open, and may be stored where it likes: it borrows
    /// nothing.
    ///
    /// # Threads
    ///
    /// Holds are counted by thread, so a guard stays on the thread that took it, as std's does. To lock
    /// here and unlock on another thread, use a [`ZkSemaphoreMutex`](crate::ZkSemaphoreMutex).
    ///
    /// ```compile_fail,E0277
    /// # fn main() -> zk_mutex::Result<()> {
    /// # let session = zk_mutex::ZkSession::connect("127.0.0.1:2181")?;
    /// let guard = zk_mutex::ZkMutex::new(&session, "/locks/orders")?.lock()?;
    /// // error: `(dyn GuardStaysOnItsThread + ..)` cannot be sent between threads safely
    /// std::thread::spawn(move || drop(guard));
    /// # Ok(())
    /// # }
    /// ```
    ZkMutexGuard, unused: "the ZkMutex will immediately unlock", _here: StaysOnItsThread
}

impl ZkMutexGuard {
    /// **Dangerous.** Leaves the lock held for good, by a node that belongs to no session: nobody holds it until somebody calls
    /// [`release_persistent`](ZkMutex::release_persistent) with its name, from any process, at any later time.
    ///
    /// For work that outlives the process that began it, as a migration that another run will end. Mind what is given up:
    ///
    /// * If nobody releases it, it stays locked for ever: no crash, no expiry, no restart of ZooKeeper ends it. Store its
    ///   [`name`](PersistentLock::name) first thing; [`contenders`](ZkMutex::contenders) shows it too
    ///   ([`is_persistent`](Contender::is_persistent)).
    /// * There is no lease, no [`lost`](crate::Held::lost) and no [`check`](crate::Held::check) any more: whether it still stands can only be asked
    ///   of the server. Who may delete its node can end it.
    /// * Take the [`fencing_token`](crate::Held::fencing_token) before: it is good for as long as the lock stands.
    ///
    /// There is no gap: the new node is made in the place of ours while that still stands, and whoever waits goes on waiting. This
    /// holds for waiters of this library, of Curator, kazoo and zookeeper-client, which list the queue before they take the lock.
    ///
    /// ```no_run
    /// # fn store(_: &str) {}
    /// # fn main() -> zk_mutex::Result<()> {
    /// use zk_mutex::{ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::connect("127.0.0.1:2181")?;
    /// let mutex = ZkMutex::new(&session, "/locks/migration")?;
    /// let kept = mutex.lock()?.persist()?;
    /// store(kept.name());
    /// session.close()?; // and the lock is held all the same
    ///
    /// // Another day, another process:
    /// let session = ZkSession::connect("127.0.0.1:2181")?;
    /// let mutex = ZkMutex::new(&session, "/locks/migration")?;
    /// assert!(mutex.release_persistent(kept.name())?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// In each case the lock is released, as by a drop. [`Error::InvalidConfig`](crate::Error::InvalidConfig) when this thread has
    /// other guards on it; [`Error::Lost`](crate::Error::Lost) when the hold was lost before the new node stood for sure;
    /// [`Error::Unavailable`](crate::Error::Unavailable) when that took longer than a sixth of the session timeout;
    /// [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses; [`Error::Server`](crate::Error::Server) where the queue's
    /// sequence numbers are used up.
    ///
    /// A new node that was made and is not needed is deleted in the background. Only if the session is lost just then, or
    /// closed while no server can be reached, it may stay behind; a warning in the log names it.
    pub fn persist(self) -> Result<PersistentLock> {
        self.held.persist().map(PersistentLock::new)
    }
}

impl ZkMutex {
    /// The lock at `path` (below the session's chroot), with the default settings. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`build`](LockBuilder::build).
    pub fn new(session: &ZkSession, path: &str) -> Result<Self> {
        ZkMutex::builder(session, path).build()
    }

    /// Begins to describe a lock.
    pub fn builder(session: &ZkSession, path: &str) -> LockBuilder<ZkMutex> {
        LockBuilder::new(session.clone(), path.to_owned())
    }

    /// The lock's path, as it was given.
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Blocks until the lock is held. A thread that holds it already gets another guard at once.
    ///
    /// An outage is waited for as the session's [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server can be reached, or none gives
    /// the answer that is needed, for longer than the retry policy allows,
    /// [`Error::Lost`](crate::Error::Lost) when this thread's own earlier hold was lost and its
    /// guards still live (see [`clear_lost`](Self::clear_lost) for leaked ones),
    /// [`Error::Closed`](crate::Error::Closed) when the session is closed,
    /// [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses. Whatever was queued is removed.
    #[doc(alias = "acquire")]
    #[must_use = "if unused the ZkMutex will immediately unlock"]
    pub fn lock(&self) -> Result<ZkMutexGuard> {
        self.lock.lock().map(ZkMutexGuard::new)
    }

    /// The lock if it is free, `None` if somebody else has it. Costs one read, and no write, while
    /// somebody else has it. "Somebody" may be a guard of this process that was lost and still
    /// lives: its node goes when it is dropped.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`](crate::Error::Unavailable) when ZooKeeper
    /// does not answer within a sixth of the session timeout.
    #[doc(alias = "tryAcquire")]
    #[must_use = "if unused the ZkMutex will immediately unlock"]
    pub fn try_lock(&self) -> Result<Option<ZkMutexGuard>> {
        self.lock_timeout(Duration::ZERO)
    }

    /// The lock within `timeout`, or `None` if others had it all the time; our node is gone then,
    /// or about to go.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`](crate::Error::Unavailable) when the time ran
    /// out in an outage, or before the server answered: `None` always means contention. A timeout of zero
    /// is [`try_lock`](Self::try_lock); any other that is shorter than a round trip can only give that error.
    #[doc(alias = "try_lock_for")]
    #[must_use = "if unused the ZkMutex will immediately unlock"]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<ZkMutexGuard>> {
        self.lock_with(Wait::timeout(timeout))
    }

    /// As [`lock`](Self::lock), for as long as `wait` says: a timeout, a deadline and a cancel token, or
    /// any of these. `None` if others had it all that time, as with [`lock_timeout`](Self::lock_timeout);
    /// never where only a token can end the wait.
    ///
    /// # Errors
    ///
    /// As [`lock_timeout`](Self::lock_timeout), and [`Error::Cancelled`](crate::Error::Cancelled).
    #[doc(alias = "try_lock_until")]
    #[must_use = "if unused the ZkMutex will immediately unlock"]
    pub fn lock_with(&self, wait: Wait) -> Result<Option<ZkMutexGuard>> {
        Ok(self.lock.lock_with(&wait)?.map(ZkMutexGuard::new))
    }

    /// Whether the calling thread holds the lock now, validly.
    pub fn is_owned_by_current_thread(&self) -> bool {
        self.lock.is_owned_by(thread::current().id())
    }

    /// Treats this thread's guards on a lost hold as dropped. Returns `false` if it has none. The
    /// lost node is deleted in the background, as by a drop.
    ///
    /// While a thread has a guard on a lost hold, every further call on that thread gives
    /// [`Error::Lost`](crate::Error::Lost). So no work goes on under a new hold without knowing that
    /// others held the lock in between. A leaked guard ([`std::mem::forget`], a cycle of `Arc`s) is
    /// never dropped, so its thread could never lock again. Call this on the thread that locked (it
    /// does nothing for other threads) when none of that work goes on any more. If such a guard
    /// still exists it stays lost, and its drop does nothing.
    ///
    /// A leaked guard of a hold that is not lost keeps the lock held, as with [`std::sync::Mutex`].
    pub fn clear_lost(&self) -> bool {
        self.lock.clear_lost()
    }

    /// Everybody who holds or waits for the lock, in queue order: the first holds it. Of each
    /// process the thread at its head is seen. Costs a listing, and a read for each contender.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when there is no connection, or an answer
    /// takes longer than a sixth of the session timeout; otherwise as [`lock`](Self::lock).
    pub fn contenders(&self) -> Result<Vec<Contender>> {
        self.lock.contenders()
    }

    /// Who holds the lock, of whatever process: the first of the [`contenders`](Self::contenders), or
    /// nobody. Costs a listing, and a read.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    pub fn holders(&self) -> Result<Vec<Contender>> {
        self.lock.holders()
    }

    /// Asks whoever holds or waits for the lock by the node `contender` (of [`contenders`](Self::contenders)) to let go: its
    /// guard's [`revoke_requested`](crate::Held::revoke_requested) becomes ready. Gives what the node's data was until then: by default host
    /// and process id of whoever was asked. `None`: the node is gone already.
    ///
    /// The other side decides what to do about it, and when. Until it lets go nothing changes, and there is no answer; who cannot
    /// wait for that asks an operator to end it. It may be a Curator client that called `makeRevocable`; other clients do not
    /// listen. The node's data is written over, as with Curator's `Revoker.attemptRevoke`: [`Contender::data`] is
    /// `__REVOKE__` from then on, and what is given here is the last copy of it. (It is `__REVOKE__` if somebody asked before, and
    /// empty if the node's ACL does not let us read.) Whoever may write to the node can ask. A line of level info in the log says who
    /// was asked, and by whom.
    ///
    /// ```no_run
    /// # fn main() -> zk_mutex::Result<()> {
    /// use zk_mutex::{ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::connect("127.0.0.1:2181")?;
    /// let mutex = ZkMutex::new(&session, "/locks/orders")?;
    /// for holder in mutex.holders()? {
    ///     mutex.attempt_revoke(&holder)?;
    ///     println!("{holder} was asked to let go"); // h7:4711, session 0x1000002a3c5f0001, for 12 s
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when ZooKeeper does not answer within a sixth of the session timeout: it
    /// may have been asked all the same, and may be asked again; [`Error::NoAuth`](crate::Error::NoAuth) when the node's ACL does
    /// not let us write; [`Error::InvalidConfig`](crate::Error::InvalidConfig) for a name that is none of a queue's; [`Error::Closed`](crate::Error::Closed) when the session is closed.
    pub fn attempt_revoke(&self, contender: &Contender) -> Result<Option<Vec<u8>>> {
        self.lock.revoke(contender)
    }

    /// Ends a lock that was [made to outlive its session](ZkMutexGuard::persist), by the name of its node below the lock's path:
    /// that of [`PersistentLock::name`] or [`Contender::name`]. `false`: there is no such node any more.
    ///
    /// Any process may, whoever made it: make sure that the work it protects is over. To ask again after an error is safe.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`](crate::Error::InvalidConfig) when it is not the name of a contender with an id in it, or the node
    /// belongs to a session: such a node is not deleted. [`Error::Unavailable`](crate::Error::Unavailable) when ZooKeeper does not
    /// answer within a sixth of the session timeout: it may have been released all the same.
    /// [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses; [`Error::Closed`](crate::Error::Closed) when the session is
    /// closed.
    pub fn release_persistent(&self, name: &str) -> Result<bool> {
        self.lock.release_persistent(name)
    }
}

impl HasLayout for ZkMutex {}

impl HandsOver for ZkMutex {}

impl Keeps for ZkMutex {}

impl HasWaitStrategy for ZkMutex {}

impl Recipe for ZkMutex {
    fn make(settings: Settings) -> Result<Self> {
        Ok(ZkMutex { lock: Lock::new(settings)?.into() })
    }
}

impl fmt::Debug for ZkMutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkMutex")
            .field("path", &self.path())
            .field("state", &format_args!("{}", self.lock.describe()))
            .finish_non_exhaustive()
    }
}
