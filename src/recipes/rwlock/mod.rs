//! `ZkRwLock`: of all threads of all processes, many hold the lock to read, or one to write.
//!
//! This file has the public types and their documentation. Programs call it, and it passes each
//! call on to `thread_lock.rs`, which guarantees the exclusion; `downgrade.rs` lets a writer become
//! a reader.

mod downgrade;

use crate::recipes::calls::{Acquire, InQueue, contender_calls, lock_at_a_path, lock_calls};
use crate::recipes::guard::guard;
use crate::recipes::thread_lock::{ThreadLock, Way};
#[cfg(doc)]
use crate::{Contender, LockBuilder};

/// A read/write lock over ZooKeeper, re-entrant per thread.
///
/// All threads of all processes that lock the same path of the same ensemble exclude each other: at
/// a time, either one of them holds the lock to write, or any number of them hold it to read.
/// Clients in other languages count too: Curator's `InterProcessReadWriteLock`, and kazoo's
/// `ReadLock` and `WriteLock` with [`Layout::Kazoo`](crate::Layout::Kazoo). A mutex does not: a path
/// is for one kind of lock. Two `ZkRwLock` of one path on one session are the same lock. On two
/// sessions they exclude each other, even on the same thread.
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
/// come, first served. A thread whose time is over leaves its node's place to the next one, if both
/// want to read or both to write. They may hand the lock to each other without a round trip for as
/// long as [`hand_over`](LockBuilder::hand_over) allows, 20 ms by default.
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
/// Threads that wait for the lock go on waiting, in a new session, for as long as their deadline or
/// the [`RetryPolicy`](crate::RetryPolicy) lets them wait in an outage.
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
    pub(crate) read: Way,
    pub(crate) write: Way,
}

guard! {
    /// A hold of a [`ZkRwLock`] to read. The hold ends when the thread drops its last read guard.
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
    ZkReadGuard, ends by #[doc(alias = "release")] unlock,
    unused: "the ZkRwLock will immediately unlock", _here: StaysOnItsThread
}

guard! {
    /// A hold of a [`ZkRwLock`] to write. The hold ends when the thread drops its last write guard.
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
    ZkWriteGuard, ends by #[doc(alias = "release")] unlock,
    unused: "the ZkRwLock will immediately unlock", _here: StaysOnItsThread
}

lock_at_a_path! {
    ZkRwLock, |lock| lock.read.lock,
    made by |settings| {
        let [read, write] = ThreadLock::read_write(settings)?;
        Ok(ZkRwLock { read, write })
    },
    HasGuards, HasLayout, HandsOver, HasWaitStrategy;
    shown by describe
}

lock_calls! {
    ZkRwLock gives ZkReadGuard by ZkReadGuard::new, of "the lock",
    unused: "the ZkRwLock will immediately unlock", |lock| lock.read;

    /// Blocks until this thread holds the lock to read. A thread that reads already gets another
    /// guard at once. A thread that writes gets one too, after two round trips to the server.
    read
    errors:
    /// * [`Error::Lost`](crate::Error::Lost) when this thread held the lock before and lost it, and
    ///   its guards still live.
    /// * [`Error::Server`](crate::Error::Server) when this thread writes and the queue's sequence
    ///   numbers are used up.
    ;

    /// Takes the lock to read if no writer is ahead. If somebody else holds the lock to write or
    /// waits for it, the call costs one read behind a `sync`, and no write.
    try_read;

    read_timeout;

    read_with;
}

lock_calls! {
    ZkRwLock gives ZkWriteGuard by ZkWriteGuard::new, of "the lock",
    unused: "the ZkRwLock will immediately unlock", |lock| lock.write;

    /// Blocks until this thread holds the lock to write. A thread that writes already gets another
    /// guard at once.
    write
    errors:
    /// * [`Error::WouldDeadlock`](crate::Error::WouldDeadlock), at once, when this thread reads and
    ///   does not write: it would wait for itself.
    /// * [`Error::Lost`](crate::Error::Lost) when this thread held the lock before and lost it, and
    ///   its guards still live.
    ;

    /// Takes the lock to write if it is free. If somebody else has it, the call costs one read
    /// behind a `sync`, and no write.
    try_write;

    write_timeout;

    write_with;
}

contender_calls! {
    ZkRwLock, |lock| lock.read.lock;

    /// All contenders, in the order of the queue. [`Contender::reads`] tells readers from writers.
    /// The readers of a session that share a node count as one contender. Costs a listing behind a
    /// `sync`, and a read for each contender.
    contenders;

    /// The contenders that hold the lock, in any process: the writer, or all readers ahead of the
    /// first writer. The list is empty if nobody holds the lock. Costs a listing behind a `sync`,
    /// and a read for each holder.
    holders;
}

impl ZkRwLock {
    /// What all locks of this path and session have counted for those that read, since the first of
    /// them was made: calls that wait, holds, losses. When the last of them is dropped, the counts
    /// are gone. Costs nothing. See [`LockStats`](crate::LockStats).
    pub fn read_stats(&self) -> crate::LockStats {
        self.read.tally().stats()
    }

    /// The same for those that write.
    pub fn write_stats(&self) -> crate::LockStats {
        self.write.tally().stats()
    }
}
