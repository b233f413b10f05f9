//! `ZkSemaphoreMutex`: of all threads of all processes, one holds the lock at a time. Its guard may
//! go to another thread. It is a semaphore with one permit, and adds no protocol of its own.

use super::lock::{ManyPermits, SemaphoreHandle};
#[cfg(doc)]
use crate::LockBuilder;
use crate::recipes::calls::{Acquire, contender_calls, lock_at_a_path, lock_calls};
use crate::recipes::guard::guard;

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
/// one node in the queue. They take turns, first come, first served. A thread whose time is over
/// leaves its place in the queue to the next one. A thread that has the lock does so for as long as
/// [`hand_over`](LockBuilder::hand_over) allows, 20 ms by default.
///
/// # When the session is lost
///
/// A guard is valid while [`is_held`](crate::Held::is_held) says so. Its lease ends before any
/// server can have expired the session. When the guard is lost, its signal
/// [`lost`](crate::Held::lost) becomes ready, and [`check`](crate::Held::check) gives an error.
/// Threads that wait for the lock go on waiting, in a new session, for as long as their deadline or
/// the [`RetryPolicy`](crate::RetryPolicy) lets them wait in an outage.
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
///   [`Error::InconsistentPermits`](crate::Error::InconsistentPermits).
///
/// Source: Curator's `InterProcessSemaphoreMutex`, which is an `InterProcessSemaphoreV2` with one
/// permit.
#[derive(Clone)]
pub struct ZkSemaphoreMutex {
    pub(crate) permit: ManyPermits,
}

guard! {
    /// A hold of a [`ZkSemaphoreMutex`]. The lock is released when the guard is dropped, on any
    /// thread: it may be sent to another thread.
    ZkSemaphoreMutexGuard, ends by #[doc(alias = "release")] unlock,
    unused: "the ZkSemaphoreMutex will immediately unlock"
}

lock_at_a_path! {
    ZkSemaphoreMutex, |mutex| mutex.permit.lock,
    made by |settings| {
        let lock = SemaphoreHandle::new(settings, "semaphore mutex", true)?.into();
        Ok(ZkSemaphoreMutex { permit: ManyPermits { lock, number: 1 } })
    },
    HasGuards, HandsOver
}

lock_calls! {
    ZkSemaphoreMutex gives ZkSemaphoreMutexGuard by ZkSemaphoreMutexGuard::new, of "the lock",
    unused: "the ZkSemaphoreMutex will immediately unlock", |mutex| mutex.permit;

    /// Blocks until this call holds the lock. A thread that holds it already waits too, for ever if
    /// no other thread drops that guard.
    lock
    errors:
    /// * [`Error::InconsistentPermits`](crate::Error::InconsistentPermits) when the path is that of
    ///   a semaphore with another number of permits.
    ;

    /// Takes the lock if it is free, and nobody else waits for it. Otherwise the call costs two
    /// reads behind a `sync`, and no write.
    try_lock;
}

impl ZkSemaphoreMutex {
    /// What all locks of this path and session have counted, since the first of them was made:
    /// calls that wait, holds, losses. When the last of them is dropped, the counts are gone. Costs
    /// nothing. See [`LockStats`](crate::LockStats).
    pub fn stats(&self) -> crate::LockStats {
        self.permit.tally().stats()
    }
}

contender_calls! {
    ZkSemaphoreMutex, |mutex| mutex.permit.lock;

    /// All contenders, in the order of the queue: the first holds the lock, the others wait for it.
    /// The threads of a session count as one contender. Costs two listings behind a `sync`, and a
    /// read for each contender.
    contenders;

    /// The contender that holds the lock, in any process. The list is empty if nobody holds the
    /// lock. Costs a listing behind a `sync`, and a read for each permit.
    holders;
}
