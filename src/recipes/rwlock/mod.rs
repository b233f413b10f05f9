//! `ZkRwLock`: many readers or one writer, over all processes.

mod downgrade;
mod lock;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::lock::RwLockHandle;
use crate::error::Result;
use crate::guard::guard;
use crate::queue::Contender;
use crate::queue::name::Kind;
use crate::recipes::settings::{
    HandsOver, HasLayout, HasWaitStrategy, LockBuilder, Recipe, Settings,
};
use crate::session::ZkSession;
use crate::wait::Wait;

/// A read/write lock over ZooKeeper, re-entrant per thread: many hold it to read, or one to write.
///
/// It counts all threads of all processes on the same path of the same ensemble, Curator's
/// `InterProcessReadWriteLock` and (with [`Layout::Kazoo`](crate::Layout::Kazoo)) kazoo's
/// `ReadLock` and `WriteLock` included. A [`ZkMutex`](crate::ZkMutex) of another process on the
/// path counts as a writer.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{ZkRwLock, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let config = ZkRwLock::new(&session, "/locks/config")?;
/// {
///     let _reading = config.read()?; // beside other readers
/// }
/// let writing = config.write()?; // alone
/// let reading = config.read()?; // a writer may read
/// drop(writing); // downgraded: we read on, and no writer came in between
/// drop(reading);
/// # Ok(())
/// # }
/// ```
///
/// # Fairness
///
/// By the order in which nodes were made: a reader waits for the last writer ahead of it, a writer
/// for whoever is just ahead, so that neither starves the other. Within a process threads take
/// turns, first come, first served. Readers of a process share one node: a thread that comes within
/// [`hand_over`](LockBuilder::hand_over) (20 ms by default) after that node came first joins it, a
/// later one queues a node of its own, behind writers that wait. A thread that reads already may
/// read again whoever waits.
///
/// # Upgrading, downgrading
///
/// A thread that writes may read, and reads on when it drops its write guard: no writer comes in
/// between, and no other thread of this process reads under its write. A thread that reads cannot
/// come to write without letting go: [`write`](Self::write) is
/// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock).
///
/// # When the session is lost
///
/// As with [`ZkMutex`](crate::ZkMutex): guards are lost, waiters wait on in a new session. Readers
/// that share a node lose it together.
///
/// The protocol is the shared locks recipe of the ZooKeeper documentation, with the nodes of
/// Curator's `InterProcessReadWriteLock` and its downgrade (since 5.5).
#[derive(Clone)]
pub struct ZkRwLock {
    pub(crate) lock: Arc<RwLockHandle>,
}

guard! {
    /// A hold of a [`ZkRwLock`] to read. Released when the thread's last read guard is dropped. It
    /// stays on its thread; see [`ZkMutexGuard`](crate::ZkMutexGuard).
    ///
    /// ```compile_fail,E0277
    /// # fn main() -> zk_mutex::Result<()> {
    /// # let session = zk_mutex::ZkSession::connect("127.0.0.1:2181")?;
    /// let reading = zk_mutex::ZkRwLock::new(&session, "/locks/config")?.read()?;
    /// std::thread::spawn(move || drop(reading)); // error: GuardStaysOnItsThread
    /// # Ok(())
    /// # }
    /// ```
    ZkReadGuard, unused: "the ZkRwLock will immediately unlock", _here: StaysOnItsThread
}

guard! {
    /// A hold of a [`ZkRwLock`] to write. Released when the thread's last write guard is dropped.
    /// It stays on its thread; see [`ZkMutexGuard`](crate::ZkMutexGuard).
    ///
    /// ```compile_fail,E0277
    /// # fn main() -> zk_mutex::Result<()> {
    /// # let session = zk_mutex::ZkSession::connect("127.0.0.1:2181")?;
    /// let writing = zk_mutex::ZkRwLock::new(&session, "/locks/config")?.write()?;
    /// std::thread::spawn(move || drop(writing)); // error: GuardStaysOnItsThread
    /// # Ok(())
    /// # }
    /// ```
    ZkWriteGuard, unused: "the ZkRwLock will immediately unlock", _here: StaysOnItsThread
}

impl ZkRwLock {
    /// The lock at `path` (below the session's chroot), with the default settings. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`build`](LockBuilder::build).
    pub fn new(session: &ZkSession, path: &str) -> Result<Self> {
        ZkRwLock::builder(session, path).build()
    }

    /// Begins to describe a lock.
    pub fn builder(session: &ZkSession, path: &str) -> LockBuilder<ZkRwLock> {
        LockBuilder::new(session.clone(), path.to_owned())
    }

    /// The lock's path, as it was given.
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Blocks until the lock is held to read. A thread that reads or
    /// writes already gets another guard at once.
    ///
    /// An outage is waited for as the session's [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when no server can be reached, or none
    /// gives the answer that is needed, for longer than the retry policy allows,
    /// [`Error::Lost`](crate::Error::Lost) when this thread's own earlier hold was lost and its
    /// guards still live (see [`clear_lost`](Self::clear_lost) for leaked ones),
    /// [`Error::Closed`](crate::Error::Closed) when the session is closed,
    /// [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses. Whatever was queued is removed.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn read(&self) -> Result<ZkReadGuard> {
        self.lock.lock(Kind::Read).map(ZkReadGuard::new)
    }

    /// A hold to read if the lock is free for that, `None` if somebody else is in the way. Costs
    /// one read, and no write, then.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); [`Error::Unavailable`](crate::Error::Unavailable) when ZooKeeper
    /// does not answer within a sixth of the session timeout.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn try_read(&self) -> Result<Option<ZkReadGuard>> {
        self.read_timeout(Duration::ZERO)
    }

    /// A hold to read within `timeout`, or `None` if others were in the way all the time; our node
    /// is gone then, or about to go.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); [`Error::Unavailable`](crate::Error::Unavailable) when the time ran
    /// out in an outage, or before the server answered: `None` always means contention. A timeout
    /// of zero is [`try_read`](Self::try_read).
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn read_timeout(&self, timeout: Duration) -> Result<Option<ZkReadGuard>> {
        self.read_with(Wait::timeout(timeout))
    }

    /// As [`read`](Self::read), for as long as `wait` says: a timeout, a deadline and a cancel
    /// token, or any of these. `None` if others had it all that time, as with
    /// [`read_timeout`](Self::read_timeout); never where only a token can end the wait.
    ///
    /// # Errors
    ///
    /// As [`read_timeout`](Self::read_timeout), and [`Error::Cancelled`](crate::Error::Cancelled).
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn read_with(&self, wait: Wait) -> Result<Option<ZkReadGuard>> {
        Ok(self.lock.lock_with(Kind::Read, &wait)?.map(ZkReadGuard::new))
    }

    /// Blocks until the lock is held to write. A thread that writes
    /// already gets another guard at once.
    ///
    /// An outage is waited for as the session's [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and [`Error::WouldDeadlock`](crate::Error::WouldDeadlock), at once,
    /// for a thread that reads and does not write: it would wait for itself.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn write(&self) -> Result<ZkWriteGuard> {
        self.lock.lock(Kind::Write).map(ZkWriteGuard::new)
    }

    /// A hold to write if the lock is free for that, `None` if somebody else is in the way. Costs
    /// one read, and no write, then.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); [`Error::Unavailable`](crate::Error::Unavailable) when ZooKeeper
    /// does not answer within a sixth of the session timeout.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn try_write(&self) -> Result<Option<ZkWriteGuard>> {
        self.write_timeout(Duration::ZERO)
    }

    /// A hold to write within `timeout`, or `None` if others were in the way all the time; our node
    /// is gone then, or about to go.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); [`Error::Unavailable`](crate::Error::Unavailable) when the time
    /// ran out in an outage, or before the server answered: `None` always means contention. A
    /// timeout of zero is [`try_write`](Self::try_write).
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn write_timeout(&self, timeout: Duration) -> Result<Option<ZkWriteGuard>> {
        self.write_with(Wait::timeout(timeout))
    }

    /// As [`write`](Self::write), for as long as `wait` says: a timeout, a deadline and a cancel
    /// token, or any of these. `None` if others had it all that time, as with
    /// [`write_timeout`](Self::write_timeout); never where only a token can end the wait.
    ///
    /// # Errors
    ///
    /// As [`write_timeout`](Self::write_timeout), and
    /// [`Error::Cancelled`](crate::Error::Cancelled).
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn write_with(&self, wait: Wait) -> Result<Option<ZkWriteGuard>> {
        Ok(self.lock.lock_with(Kind::Write, &wait)?.map(ZkWriteGuard::new))
    }

    /// Treats this thread's guards on lost holds, of either kind, as dropped. Returns `false` if it
    /// has none. The lost nodes are deleted in the background, as by a drop.
    ///
    /// While a thread has a guard on a lost hold, every further call on that thread gives
    /// [`Error::Lost`](crate::Error::Lost). So no work goes on under a new hold without knowing
    /// that others held the lock in between. A leaked guard ([`std::mem::forget`], a cycle of
    /// `Arc`s) is never dropped, so its thread could never lock again. Call this on the thread that
    /// locked (it does nothing for other threads) when none of that work goes on any more. If such
    /// a guard still exists it stays lost, and its drop does nothing.
    ///
    /// A leaked guard of a hold that is not lost keeps the lock held, as with [`std::sync::Mutex`].
    pub fn clear_lost(&self) -> bool {
        self.lock.clear_lost()
    }

    /// Everybody who reads or writes, or waits to, in queue order. [`Contender::reads`] tells
    /// readers from writers; a mutex's nodes count as writers. The readers of a process show as few
    /// nodes as they share. Costs a listing, and a read for each contender.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when there is no connection, or an answer
    /// takes longer than a sixth of the session timeout; otherwise as [`read`](Self::read).
    pub fn contenders(&self) -> Result<Vec<Contender>> {
        self.lock.contenders()
    }

    /// Who reads, or who writes, of whatever process: the first of the
    /// [`contenders`](Self::contenders), and where that one reads, all that read ahead of the first
    /// who wants to write. Costs a listing, and a read for each.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    pub fn holders(&self) -> Result<Vec<Contender>> {
        self.lock.holders()
    }

    /// Asks one of the [`contenders`](Self::contenders) to let go, as
    /// [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke). Readers that share a node are
    /// asked together, and no more of them join it.
    ///
    /// # Errors
    ///
    /// As [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke).
    pub fn attempt_revoke(&self, contender: &Contender) -> Result<Option<Vec<u8>>> {
        self.lock.revoke(contender)
    }
}

impl HasLayout for ZkRwLock {}

impl HandsOver for ZkRwLock {}

impl HasWaitStrategy for ZkRwLock {}

impl Recipe for ZkRwLock {
    fn make(settings: Settings) -> Result<Self> {
        Ok(ZkRwLock { lock: RwLockHandle::new(settings)?.into() })
    }
}

impl fmt::Debug for ZkRwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkRwLock")
            .field("path", &self.path())
            .field("state", &format_args!("{}", self.lock.describe()))
            .finish_non_exhaustive()
    }
}
