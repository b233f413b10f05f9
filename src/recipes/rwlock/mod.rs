//! `ZkRwLock`: of all threads of all processes, many hold the lock to read, or one to write.
//!
//! This file has the public types and their documentation. Programs call it, and it passes each
//! call on to `lock.rs`, which guarantees the exclusion; `downgrade.rs` lets a writer become a
//! reader.

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
use crate::stats::LockStats;
use crate::wait::Wait;

/// A read/write lock over ZooKeeper, re-entrant per thread.
///
/// All threads of all processes that lock the same path of the same ensemble exclude each other: at
/// a time, either one of them holds the lock to write, or any number of them hold it to read.
/// Clients in other languages count too: Curator's `InterProcessReadWriteLock`, and kazoo's
/// `ReadLock` and `WriteLock` with [`Layout::Kazoo`](crate::Layout::Kazoo). A
/// [`ZkMutex`](crate::ZkMutex) of another process on the path counts as a writer. Two `ZkRwLock` of
/// one path on one session are the same lock. On two sessions they exclude each other, even on the
/// same thread.
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
/// # From writing to reading
///
/// A thread that holds the lock to write may also take it to read. When it drops its write guard,
/// it goes on reading, and no writer gets the lock in between (a downgrade). No other thread shares
/// the read of a thread that writes.
///
/// A thread that reads cannot become a writer. If it calls [`write`](Self::write), it gets
/// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock). It has to drop its read guards first.
///
/// # Fairness
///
/// Readers and writers wait in one queue, in the order in which their nodes were made. A reader
/// waits for the last writer ahead of it, a writer for the contender just ahead. So readers cannot
/// starve writers, and writers cannot starve readers. The threads of a session take turns, first
/// come, first served. They may hand the lock to each other without a round trip for as long as
/// [`hand_over`](LockBuilder::hand_over) allows, 20 ms by default.
///
/// The readers of a session share one node. The first reader makes it. A thread that wants to read
/// within `hand_over` after that node came first joins it. A thread that comes later makes a new
/// node, behind the writers that wait. A thread that reads already may read again at once, even if
/// writers wait.
///
/// # When the session is lost
///
/// A guard is valid while [`is_held`](crate::Held::is_held) says so. Its lease ends before any
/// server can have expired the session. When the guard is lost, its signal
/// [`lost`](crate::Held::lost) becomes ready, and [`check`](crate::Held::check) gives an error.
/// Threads that wait for the lock go on waiting, in a new session.
/// Readers that share a node lose it together.
///
/// # Differences from `std::sync::RwLock`
///
/// * It contains no value: what it protects is elsewhere, and shared with other machines.
/// * It is re-entrant, and there is no poisoning: a panic releases the lock like any other end of
///   the guard's scope.
/// * A guard can be lost while it lives.
/// * If a guard is leaked (`std::mem::forget`), the lock stays held until the session is closed.
///
/// Source: the shared locks recipe of the ZooKeeper documentation, with the nodes of Curator's
/// `InterProcessReadWriteLock` and its downgrade (since 5.5).
#[derive(Clone)]
pub struct ZkRwLock {
    pub(crate) lock: Arc<RwLockHandle>,
}

guard! {
    /// A hold of a [`ZkRwLock`] to read. The hold ends when the thread drops its last read guard.
    ///
    /// The drop does not wait for ZooKeeper: the node is deleted for sure, in the background. To
    /// wait until it is deleted, call [`unlock`](Self::unlock). The methods of a guard are those of
    /// [`Held`](crate::Held).
    ///
    /// The guard borrows nothing, so it can be stored in a struct. It is a handle of its session
    /// and keeps the session open. If it is the last handle, its end also closes the session. Then
    /// the drop, or `unlock`, waits for that for up to 0.95 s. Keep a [`ZkSession`] elsewhere to
    /// avoid this.
    ///
    /// # Threads
    ///
    /// Guards are counted by thread, so a guard stays on the thread that took it, as a guard of
    /// `std::sync::RwLock` does.
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
    /// A hold of a [`ZkRwLock`] to write. The hold ends when the thread drops its last write guard.
    ///
    /// The drop does not wait for ZooKeeper: the node is deleted for sure, in the background. To
    /// wait until it is deleted, call [`unlock`](Self::unlock). The methods of a guard are those of
    /// [`Held`](crate::Held).
    ///
    /// The guard borrows nothing, so it can be stored in a struct. It is a handle of its session
    /// and keeps the session open. If it is the last handle, its end also closes the session. Then
    /// the drop, or `unlock`, waits for that for up to 0.95 s. Keep a [`ZkSession`] elsewhere to
    /// avoid this.
    ///
    /// # Threads
    ///
    /// Guards are counted by thread, so a guard stays on the thread that took it, as a guard of
    /// `std::sync::RwLock` does.
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

    /// A builder, for a lock with settings of its own.
    pub fn builder(session: &ZkSession, path: &str) -> LockBuilder<ZkRwLock> {
        LockBuilder::new(session.clone(), path.to_owned())
    }

    /// The lock's path, as it was given.
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Blocks until this thread holds the lock to read. A thread that reads already gets another
    /// guard at once. A thread that writes gets one too, after two round trips to the server.
    ///
    /// The call waits in an outage for as long as the session's [`RetryPolicy`](crate::RetryPolicy)
    /// says.
    ///
    /// # Errors
    ///
    /// * [`Error::Unavailable`](crate::Error::Unavailable) when no server can be reached, or no
    ///   server gives the answer that is needed, for longer than the retry policy allows.
    /// * [`Error::Lost`](crate::Error::Lost) when this thread held the lock before and lost it, and
    ///   its guards still live (see [`clear_lost`](Self::clear_lost) for leaked guards).
    /// * [`Error::Closed`](crate::Error::Closed) when the session is closed.
    /// * [`Error::NoAuth`](crate::Error::NoAuth) when an ACL refuses, and
    ///   [`Error::Auth`](crate::Error::Auth) when the servers refuse the session's credentials.
    /// * [`Error::Server`](crate::Error::Server) when this thread writes and the queue's sequence
    ///   numbers are used up.
    ///
    /// After an error this call has no node in the queue, or the node is being deleted.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn read(&self) -> Result<ZkReadGuard> {
        self.lock.lock(Kind::Read).map(ZkReadGuard::new)
    }

    /// Takes the lock to read if no writer is ahead, and gives `None` if a writer holds the lock or
    /// waits for it. In that case the call costs one read and no write. The writer may also be a
    /// guard of this process that was lost and still lives: its node is deleted when the guard is
    /// dropped.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); [`Error::Unavailable`](crate::Error::Unavailable) when ZooKeeper
    /// does not answer within a sixth of the session timeout.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn try_read(&self) -> Result<Option<ZkReadGuard>> {
        self.read_timeout(Duration::ZERO)
    }

    /// Waits for the lock for `timeout` at most, and gives `None` if others had it all that time.
    /// In that case this call's node is deleted, or about to be deleted.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read); [`Error::Unavailable`](crate::Error::Unavailable) when the time ran
    /// out in an outage, or before the server answered. So `None` always means that somebody else
    /// was ahead. A timeout of zero is [`try_read`](Self::try_read), which waits for the server's
    /// answer. Any other timeout that is shorter than a round trip mostly gives this error.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn read_timeout(&self, timeout: Duration) -> Result<Option<ZkReadGuard>> {
        self.read_with(Wait::timeout(timeout))
    }

    /// Waits for the lock for as long as `wait` says: a timeout, a deadline and a cancel token, or
    /// any of these. Gives `None` if others had it all that time, as
    /// [`read_timeout`](Self::read_timeout) does. A wait that has neither a timeout nor a deadline
    /// never gives `None`.
    ///
    /// # Errors
    ///
    /// As [`read_timeout`](Self::read_timeout), and [`Error::Cancelled`](crate::Error::Cancelled)
    /// when the token is cancelled.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn read_with(&self, wait: Wait) -> Result<Option<ZkReadGuard>> {
        Ok(self.lock.lock_with(Kind::Read, &wait)?.map(ZkReadGuard::new))
    }

    /// Blocks until this thread holds the lock to write. A thread that writes already gets another
    /// guard at once.
    ///
    /// The call waits in an outage for as long as the session's [`RetryPolicy`](crate::RetryPolicy)
    /// says.
    ///
    /// # Errors
    ///
    /// As [`ZkMutex::lock`](crate::ZkMutex::lock), and
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock), at once, when this thread reads and
    /// does not write: it would wait for itself.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn write(&self) -> Result<ZkWriteGuard> {
        self.lock.lock(Kind::Write).map(ZkWriteGuard::new)
    }

    /// Takes the lock to write if it is free, and gives `None` if somebody else has it. In that
    /// case the call costs one read and no write. "Somebody else" may also be a guard of this
    /// process that was lost and still lives: its node is deleted when the guard is dropped.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); [`Error::Unavailable`](crate::Error::Unavailable) when ZooKeeper
    /// does not answer within a sixth of the session timeout.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn try_write(&self) -> Result<Option<ZkWriteGuard>> {
        self.write_timeout(Duration::ZERO)
    }

    /// Waits for the lock for `timeout` at most, and gives `None` if others had it all that time.
    /// In that case this call's node is deleted, or about to be deleted.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write); [`Error::Unavailable`](crate::Error::Unavailable) when the time
    /// ran out in an outage, or before the server answered. So `None` always means that somebody
    /// else was ahead. A timeout of zero is [`try_write`](Self::try_write), which waits for the
    /// server's answer. Any other timeout that is shorter than a round trip mostly gives this
    /// error.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn write_timeout(&self, timeout: Duration) -> Result<Option<ZkWriteGuard>> {
        self.write_with(Wait::timeout(timeout))
    }

    /// Waits for the lock for as long as `wait` says: a timeout, a deadline and a cancel token, or
    /// any of these. Gives `None` if others had it all that time, as
    /// [`write_timeout`](Self::write_timeout) does. A wait that has neither a timeout nor a
    /// deadline never gives `None`.
    ///
    /// # Errors
    ///
    /// As [`write_timeout`](Self::write_timeout), and [`Error::Cancelled`](crate::Error::Cancelled)
    /// when the token is cancelled.
    #[must_use = "if unused the ZkRwLock will immediately unlock"]
    pub fn write_with(&self, wait: Wait) -> Result<Option<ZkWriteGuard>> {
        Ok(self.lock.lock_with(Kind::Write, &wait)?.map(ZkWriteGuard::new))
    }

    /// Treats this thread's guards on lost holds, to read and to write, as dropped. Returns `false`
    /// if it has none. The lost nodes are deleted in the background, as by a drop.
    ///
    /// While a thread has a guard on a lost hold, every further call that locks on that thread
    /// gives [`Error::Lost`](crate::Error::Lost). So the thread cannot go on under a new hold
    /// without noticing that others may have held the lock in between. But a leaked guard
    /// ([`std::mem::forget`], a cycle of `Arc`s) is never dropped, so its thread could never lock
    /// again. In that case make sure that the work under the lost hold has stopped. Then call this
    /// on the thread that locked (it does nothing for other threads). If such a guard still exists,
    /// it stays lost, and its drop does nothing.
    ///
    /// A leaked guard of a hold that is not lost keeps the lock held, as with
    /// [`std::sync::RwLock`].
    pub fn clear_lost(&self) -> bool {
        self.lock.clear_lost()
    }

    /// What the lock has counted in this session for those that read: calls that wait, holds, losses.
    /// Costs nothing. See [`LockStats`](crate::LockStats).
    pub fn read_stats(&self) -> LockStats {
        self.lock.stats(Kind::Read)
    }

    /// The same for those that write.
    pub fn write_stats(&self) -> LockStats {
        self.lock.stats(Kind::Write)
    }

    /// All contenders, in the order of the queue. [`Contender::reads`] tells readers from writers.
    /// A mutex on the same path counts as a writer. The readers of a session that share a node
    /// count as one contender. Costs a listing, and a read for each contender.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) when there is no connection, or an answer
    /// takes longer than a sixth of the session timeout; otherwise as [`read`](Self::read).
    pub fn contenders(&self) -> Result<Vec<Contender>> {
        let (queue, core) = self.lock.queue();
        queue.contenders(core)
    }

    /// The contenders that hold the lock, in any process: the writer, or all readers ahead of the
    /// first writer. The list is empty if nobody holds the lock. Costs a listing, and a read for
    /// each holder.
    ///
    /// # Errors
    ///
    /// As [`contenders`](Self::contenders).
    pub fn holders(&self) -> Result<Vec<Contender>> {
        let (queue, core) = self.lock.queue();
        queue.holders(core)
    }

    /// Asks the client whose node is `contender` (one of [`contenders`](Self::contenders)) to give
    /// up the lock, or its place in the queue: the signal
    /// [`revoke_requested`](crate::Held::revoke_requested) of its guard becomes ready.
    /// [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke) says what follows, and what this
    /// call returns.
    /// Readers that share a node are asked together, and no other reader joins them after that.
    ///
    /// # Errors
    ///
    /// As [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke).
    pub fn attempt_revoke(&self, contender: &Contender) -> Result<Option<Vec<u8>>> {
        let (queue, core) = self.lock.queue();
        queue.revoke(core, &contender.name)
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
