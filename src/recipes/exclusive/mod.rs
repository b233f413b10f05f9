//! `ZkExclusiveLock`: the simple lock. One node exists or does not exist; there is no queue.
//!
//! This file has the public types and their documentation. Programs call it, and it passes each
//! call on to `lock.rs`. `attempt.rs` guarantees that a node that was made is ours, and that no
//! delete of ours hits the node of another client.

mod attempt;
mod lock;

use std::sync::Arc;
use std::time::Duration;

use self::lock::ExclusiveHandle;
#[cfg(doc)]
use crate::LockBuilder;
use crate::error::Result;
use crate::queue::Contender;
use crate::recipes::calls::{Acquire, lock_at_a_path, lock_calls};
use crate::recipes::guard::guard;
use crate::recipes::wait::Wait;

/// The simple lock over ZooKeeper: the client that makes the one ephemeral node `lock` below the
/// lock's path holds the lock. Every other client that wants it watches that node, and tries again
/// when it is deleted. It is not re-entrant.
///
/// All threads of all processes that lock the same path of the same ensemble with a
/// `ZkExclusiveLock` exclude each other: there is one guard at a time. Any other client counts too
/// if it makes an ephemeral node `lock` there, and respects such a node of others. The lock does
/// **not** exclude the locks that have a queue, such as [`ZkMutex`](crate::ZkMutex): use each path
/// for one kind of lock. Two `ZkExclusiveLock` of one path on one session are the same lock. On two
/// sessions they exclude each other.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{ZkExclusiveLock, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let lock = ZkExclusiveLock::new(&session, "/locks/import")?;
/// if let Ok(guard) = lock.try_lock() {
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
/// Use it for a lock that few processes want, and that they mostly ask for with
/// [`try_lock`](Self::try_lock): a job that one of a few hosts runs, or a file that one process
/// imports. Its protocol is also the simplest. If many wait, or wait for long, use a
/// [`ZkMutex`](crate::ZkMutex):
///
/// * **A release wakes every process that waits** (the herd). Each of them sends a create, and all
///   but one of them read the node and watch it again. With n waiting processes a release causes
///   about 2n requests. With a queue it causes the same few for any n.
/// * **Waiting processes are not listed.** Only the [holder](Self::holders) has a node.
/// * **A release takes three requests**, and with a queue one. All clients use the same name, so
///   each delete has to make sure that the node is still ours.
///
/// # Which node is ours
///
/// The first line of the node's data is a UUID, a new one for each acquisition. Behind it stands
/// the text that [`data`](LockBuilder::data) sets. A hold begins when a read that follows an
/// acknowledged write shows that line, even if the reply to the create itself was lost.
///
/// A node is deleted only if, on the same connection, first a write was acknowledged (so that no
/// earlier delete of ours is still on its way) and then a read showed our line and our session. So
/// a delete that is sent again cannot hit the node of the next holder.
///
/// # Fairness
///
/// It is not fair: the lock goes to the process whose create arrives first, so a process can be
/// passed over for ever. Within a process the threads take turns, first come, first served, and one
/// thread at a time tries.
///
/// # When the session is lost
///
/// A guard is valid while [`is_held`](crate::Held::is_held) says so. Its lease ends before any
/// server can have expired the session. When the guard is lost, its signal
/// [`lost`](crate::Held::lost) becomes ready, and [`check`](crate::Held::check) gives an error.
/// Threads that wait for the lock go on waiting, in a new session, for as long as their deadline or
/// the [`RetryPolicy`](crate::RetryPolicy) lets them wait in an outage.
///
/// # Differences from `std::sync::Mutex`
///
/// * It contains no value: what it protects is elsewhere, and shared with other machines.
/// * Its guard is `Send`: any thread may drop it. If a thread that holds the lock calls
///   [`lock`](Self::lock) again, it waits until another thread drops the first guard.
/// * There is no poisoning: a panic releases the lock like any other end of the guard's scope.
/// * A guard can be lost while it lives.
/// * If a guard is leaked (`std::mem::forget`), the lock stays held until the session is closed.
///
/// Source: "Simple Locks" in "ZooKeeper: Wait-free coordination for Internet-scale systems", P.
/// Hunt and others, 2010. The proof that a node is ours, the lease and the signal of loss are this
/// library's.
#[derive(Clone)]
pub struct ZkExclusiveLock {
    pub(crate) lock: Arc<ExclusiveHandle>,
}

guard! {
    /// A hold of a [`ZkExclusiveLock`]. The lock is released when the guard is dropped, on any
    /// thread: it may be sent to another thread.
    ZkExclusiveGuard, ends by #[doc(alias = "release")] unlock,
    unused: "the ZkExclusiveLock will immediately unlock"
}

lock_at_a_path! {
    ZkExclusiveLock, |lock| lock.lock,
    made by |settings| Ok(ZkExclusiveLock { lock: ExclusiveHandle::new(settings)?.into() }),
    HasGuards;
    shown by describe
}

lock_calls! {
    ZkExclusiveLock gives ZkExclusiveGuard by ZkExclusiveGuard::new, of "the lock",
    unused: "the ZkExclusiveLock will immediately unlock", |lock| lock.lock;

    /// Blocks until this call holds the lock. A thread that holds it already waits too, for ever if
    /// no other thread drops that guard.
    lock
    errors:
    /// * [`Error::NoAuth`](crate::Error::NoAuth) also when the ACL of the holder's node does not
    ///   let us read.
    ;

    /// Takes the lock if it is free. If somebody else has it, the call costs one write, or nothing
    /// if another thread of this process has the lock or waits for it. If a node of ours is being
    /// deleted, the call waits for that.
    try_lock;
}

impl ZkExclusiveLock {
    /// What all locks of this path and session have counted, since the first of them was made:
    /// calls that wait, holds, losses. When the last of them is dropped, the counts are gone. Costs
    /// nothing. See [`LockStats`](crate::LockStats).
    pub fn stats(&self) -> crate::LockStats {
        self.lock.tally().stats()
    }
}

impl ZkExclusiveLock {
    /// The contender that holds the lock, in any process. The list is empty if nobody holds the
    /// lock. Costs one read behind a `sync`. Processes that wait have no nodes, so no call lists
    /// them.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) at once when there is no connection, and
    /// when the answer takes longer than a sixth of the session timeout; otherwise as
    /// [`lock`](Self::lock).
    pub fn holders(&self) -> Result<Vec<Contender>> {
        self.holders_with(Wait::timeout(Duration::ZERO))
    }

    /// As [`holders`](Self::holders), and waits for a connection and for the answer as long as
    /// `wait` says: in an outage too, with a timeout for all of its time. Without a timeout and a
    /// deadline the session's [`RetryPolicy`](crate::RetryPolicy) says how long the call waits in
    /// an outage.
    ///
    /// # Errors
    ///
    /// As [`holders`](Self::holders), and [`Error::Cancelled`](crate::Error::Cancelled) when the
    /// token is cancelled.
    pub fn holders_with(&self, wait: Wait) -> Result<Vec<Contender>> {
        self.lock.holders(&wait)
    }
}
