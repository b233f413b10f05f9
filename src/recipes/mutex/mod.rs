//! `ZkMutex`: of all threads of all processes, one holds the lock at a time.
//!
//! This file has the public types and their documentation. Programs call it, and it passes each
//! call on to `thread_lock.rs`, which guarantees the exclusion.

use crate::recipes::calls::{Acquire, InQueue, contender_calls, lock_at_a_path, lock_calls};
use crate::recipes::guard::guard;
use crate::recipes::thread_lock::{ThreadLock, Way};
#[cfg(doc)]
use crate::{Contender, LockBuilder};
use zk_session::world::thread;

/// A mutual exclusion lock over ZooKeeper, re-entrant per thread.
///
/// All threads of all processes that lock the same path of the same ensemble exclude each other:
/// one of them holds the lock at a time. Clients in other languages count too (see
/// [`Layout`](crate::Layout)). Two `ZkMutex` of one path on one session, and clones of one, are the
/// same lock. All threads may share it by reference. On two sessions they exclude each other, even
/// on the same thread.
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
/// if let Ok(_leader) = mutex.try_lock() {
///     println!("on duty");
/// }
/// match mutex.lock_timeout(Duration::from_secs(5)) {
///     Ok(_guard) => println!("got it"),
///     Err(e) if e.is_contended() => println!("somebody else holds it"),
///     Err(e) => return Err(e), // an outage, for instance
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Slips
///
/// Those about guards are the same with each lock of this crate. The compiler warns of a guard that
/// nobody takes, since it is released at once:
///
/// ```compile_fail
/// #![deny(unused_must_use)] // makes the warning an error
/// # fn main() -> zk_mutex::Result<()> {
/// # let session = zk_mutex::ZkSession::connect("127.0.0.1:2181")?;
/// # let mutex = zk_mutex::ZkMutex::new(&session, "/locks/orders")?;
/// mutex.lock_timeout(std::time::Duration::from_secs(5))?;
/// # Ok(())
/// # }
/// ```
///
/// It does not warn of these:
///
/// * A guard that no variable keeps is released at once, before the code that it should protect:
///   `let _ = mutex.lock()?;`, `if mutex.try_lock().is_ok() { .. }`, `mutex.lock()?.check()?;`,
///   `let token = mutex.lock()?.fencing_token();`, `let Ok(_) = mutex.try_lock() else { .. };`.
///   Write `let _guard = mutex.lock()?;` and `if let Ok(_guard) = mutex.try_lock() { .. }`.
///   Clippy's lint `let_underscore_must_use` finds the first of them.
/// * A guard lives until the end of its scope, also where another `let guard` hides it. To release
///   it earlier, write `drop(guard)`.
/// * A drop does not wait: the node is deleted a moment later. So another session that calls
///   `try_lock` right after the drop may find the lock taken. [`unlock`](ZkMutexGuard::unlock)
///   waits.
/// * A thread that holds the lock may take it again. If this thread runs other tasks before it
///   drops its guard, such a task gets the lock too, and both are in their sections. Thread pools
///   that let a waiting thread take other work do that (rayon's `join` and `scope`). Hold no guard
///   across such a call. (With a [`ZkSemaphoreMutex`](crate::ZkSemaphoreMutex), which is not
///   re-entrant, the thread would wait for itself.)
/// * Two `ZkMutex` of one path on one session, and clones of one, are one lock: a thread that has
///   locked one of them gets the other at once.
///
/// # Fairness
///
/// Between processes, the lock goes to the process whose node was made first. The threads of a
/// session share one node. They take turns, first come, first served. A thread whose time is over
/// leaves the node's place to the next one; the last one deletes the node. They may hand the lock
/// to each other without a round trip for as long as [`hand_over`](LockBuilder::hand_over) allows,
/// 20 ms by default.
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
/// * It is re-entrant, and there is no poisoning: a panic releases the lock like any other end of
///   the guard's scope.
/// * A guard can be lost while it lives.
/// * If a guard is leaked (`std::mem::forget`), the lock stays held until the session is closed. If
///   the hold is lost before that, each later call of the same thread gives
///   [`Error::Lost`](crate::Error::Lost): close the session, and connect another one.
///
/// Source: the lock recipe of the ZooKeeper documentation, as Curator's `InterProcessMutex` has it.
#[derive(Clone)]
pub struct ZkMutex {
    pub(crate) way: Way,
}

guard! {
    /// A hold of a [`ZkMutex`]. The lock is released when the thread drops its last guard.
    ///
    /// # Threads
    ///
    /// Guards are counted by thread, so a guard stays on the thread that took it, as a guard of
    /// `std::sync::Mutex` does. To lock on one thread and unlock on another, use a
    /// [`ZkSemaphoreMutex`](crate::ZkSemaphoreMutex).
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
    ZkMutexGuard, ends by #[doc(alias = "release")] unlock,
    unused: "the ZkMutex will immediately unlock", _here: StaysOnItsThread
}

lock_at_a_path! {
    ZkMutex, |mutex| mutex.way.lock,
    made by |settings| Ok(ZkMutex { way: ThreadLock::mutex(settings)? }),
    HasGuards, HasLayout, HandsOver, Keeps, HasWaitStrategy;
    shown by describe
}

lock_calls! {
    ZkMutex gives ZkMutexGuard by ZkMutexGuard::new, of "the lock",
    unused: "the ZkMutex will immediately unlock", |mutex| mutex.way;

    /// Blocks until this thread holds the lock. A thread that holds it already gets another guard
    /// at once.
    lock
    errors:
    /// * [`Error::Lost`](crate::Error::Lost) when this thread held the lock before and lost it, and
    ///   its guards still live. So the thread cannot go on under a new hold without noticing that
    ///   others may have held the lock in between.
    ;

    /// Takes the lock if it is free. If somebody else has it, the call costs one read behind a
    /// `sync`, and no write.
    try_lock;
}

impl ZkMutex {
    /// What all locks of this path and session have counted, since the first of them was made:
    /// calls that wait, holds, losses. When the last of them is dropped, the counts are gone. Costs
    /// nothing. See [`LockStats`](crate::LockStats).
    pub fn stats(&self) -> crate::LockStats {
        self.way.tally().stats()
    }
}

contender_calls! {
    ZkMutex, |mutex| mutex.way.lock;

    /// All contenders, in the order of the queue: the first holds the lock, the others wait for it.
    /// The threads of a session count as one contender. Costs a listing behind a `sync`, and a read
    /// for each contender.
    contenders;

    /// The contender that holds the lock, in any process: the first of the
    /// [`contenders`](Self::contenders). The list is empty if nobody holds the lock. Costs a
    /// listing, and a read.
    holders;
}

impl ZkMutex {
    /// Whether the calling thread holds the lock now. A lost hold does not count.
    pub fn is_owned_by_current_thread(&self) -> bool {
        self.way.lock.is_owned_by(thread::current().id())
    }
}
