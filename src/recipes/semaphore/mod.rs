//! `ZkSemaphore`: all threads of all processes together hold at most so many permits at a time.
//!
//! This file has the public types and their documentation. Programs call it, and it passes each
//! call on to `lock.rs`. `permits/` counts the permits and guarantees that there are never too
//! many. `mutex.rs` is `ZkSemaphoreMutex`, a semaphore with one permit.

mod lock;
mod mutex;
mod permits;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::lock::{ManyPermits, SemaphoreHandle};
pub use self::mutex::{ZkSemaphoreMutex, ZkSemaphoreMutexGuard};
#[cfg(doc)]
use crate::LockBuilder;
use crate::error::{Error, Result};
use crate::queue::Settings;
use crate::recipes::calls::{Acquire, contender_calls, lock_builder, lock_calls};
use crate::recipes::guard::guard;
use crate::recipes::settings::Recipe;
use crate::recipes::wait::Wait;
use crate::session::ZkSession;

/// A counting semaphore over ZooKeeper: a limited number of permits, of which a thread can take one
/// or several.
///
/// The limit holds for all threads of all processes that use the same path of the same ensemble.
/// Clients in other languages count too: Curator's `InterProcessSemaphoreV2`. Two `ZkSemaphore` of
/// one path on one session are the same semaphore.
///
/// A permit belongs to no thread. A thread may take several permits, or hand one to another thread.
/// If a thread holds a permit and asks for one more when none is left, it may wait for its own
/// permit for ever. If you need several permits, take them together, with
/// [`acquire_many`](Self::acquire_many).
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::{OptionalExt, Wait, ZkSemaphore, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let downloads = ZkSemaphore::new(&session, "/limits/downloads", 4)?; // at most four at once
/// {
///     let permit = downloads.acquire()?; // blocks
///     println!("downloading under {}", permit.path());
/// } // given back here
/// if let Ok(permit) = downloads.try_acquire() {
///     std::thread::spawn(move || drop(permit)); // any thread may give it back
/// }
/// match downloads.acquire_many_with(3, Wait::timeout(Duration::from_secs(5))).optional()? {
///     Some(permit) => println!("{} at once", permit.permits()),
///     None => println!("others have too many"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # The number of permits
///
/// The node at the semaphore's path has the number in its data, as decimal text. This is where
/// kazoo's `Semaphore` keeps it too. [`new`](Self::new) sends nothing. The first call that asks for
/// a permit, or for the number, reads the node:
///
/// * If the node does not exist, or its data is empty, the call writes the number that was given to
///   `new`.
/// * If the node has another number, and is as the program has made it that came first, the call
///   gives [`Error::InconsistentPermits`]: the two programs differ. (The number 0 is a pause and no
///   error.)
/// * If somebody has set the number since, with [`set_permits`](Self::set_permits) or another
///   client, it counts, and the log has a warning: once for each change.
/// * If the data is no number, it is left as it is, with a warning in the log. Then each process
///   goes by the number that it saw last or that was given to `new`, so give the same number to
///   all.
///
/// From then on the number in the node counts, at every grant, for all semaphores of this path and
/// session that are given the same number: a program may make a `ZkSemaphore` for each call.
/// `set_permits` changes the number in the node. If you raise it, waiting threads get permits at once. If you lower it, nobody loses
/// a permit, and no permit is granted until enough of them are given back. To change the number for
/// all clients, call `set_permits`. Then change the number that the programs give to `new`, when it
/// suits you.
///
/// The number 0 is a pause: threads that ask for one permit wait until the number is raised, also
/// if this is their first call. A call whose time ends before that gets [`Error::Paused`]. A call
/// that asks for more than one permit does not wait: it gets [`Error::InvalidConfig`] at once, as
/// for every number above the one in the node.
///
/// The node stays when nobody uses the semaphore any more. If somebody deletes it, the next call
/// makes it again, with the number that its process saw last.
///
/// # Fairness
///
/// Between processes, permits go to the process that asked first. A call that asks for many permits
/// holds back later calls that ask for few, so those cannot starve it. The threads of a session
/// share one node in the queue. They take turns, first come, first served. A thread whose time is
/// over leaves its place in the queue to the next one. A thread that has its permits does so for as
/// long as [`hand_over`](LockBuilder::hand_over) allows, 20 ms by default.
///
/// # When the session is lost
///
/// A permit is valid while [`is_held`](crate::Held::is_held) says so. Its lease ends before any
/// server can have expired the session. When the permit is lost, its signal
/// [`lost`](crate::Held::lost) becomes ready, and [`check`](crate::Held::check) gives an error.
/// Threads that wait for a permit go on waiting, in a new session, for as long as their deadline or
/// the [`RetryPolicy`](crate::RetryPolicy) lets them wait in an outage. If the connection of a
/// waiting thread was away for longer than the lease lasts (see [`Held`](crate::Held)), the thread
/// queues again, behind the others.
///
/// # Fencing
///
/// The [`fencing_token`](crate::Held::fencing_token) of a permit is the zxid that created its own
/// node. Several permits are valid at the same time, so a store must not refuse all tokens but the
/// highest. It can refuse a token that is lower than the tokens of all permits that are still held
/// (see [`holders`](Self::holders)), and it can tell permits apart by their tokens.
///
/// # Differences from Curator's `InterProcessSemaphoreV2`
///
/// * Nodes and protocol are the same, so each counts the permits of the other. But Curator goes by
///   the number that its program gave, and never reads the node: give it the same number.
/// * If Curator's client comes first, it makes the node as a container. The server deletes a
///   container, and with it a number that was changed, when nobody uses the semaphore any more.
/// * Several permits that are taken together are one guard. A call gets all of them or none.
///
/// Source: Curator's `InterProcessSemaphoreV2`.
#[derive(Clone)]
pub struct ZkSemaphore {
    pub(crate) lock: Arc<SemaphoreHandle>,
}

guard! {
    /// A permit of a [`ZkSemaphore`], or several permits that were [taken
    /// together](ZkSemaphore::acquire_many). It is given back when it is dropped, on any thread: it
    /// may be sent to another thread.
    ///
    /// Several permits are one hold. The hold is valid while all of its permits are, and is lost
    /// when the first of them is lost. The nodes of the other permits stay then, and keep others
    /// out, until this guard is dropped.
    ZkPermit, ends by release, unused: "the permit is given back at once"
}

impl ZkPermit {
    /// How many permits this guard holds.
    pub fn permits(&self) -> u32 {
        u32::try_from(self.held.nodes()).unwrap_or(u32::MAX)
    }
}

lock_builder! {
    ZkSemaphore, HasGuards, HandsOver;
    /// A builder, for a semaphore with settings of its own.
    builder(permits: u32)
}

impl ZkSemaphore {
    /// The semaphore with `permits` permits at `path` (below the session's chroot), with the
    /// default settings. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`build`](LockBuilder::build).
    pub fn new(session: &ZkSession, path: impl AsRef<str>, permits: u32) -> Result<Self> {
        ZkSemaphore::builder(session, path, permits).build()
    }

    /// Blocks until there are `n` permits for this call. It takes all of them together, or none.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::InvalidConfig`] when `n` is 0, or when `n` is
    /// more than 1 and more than the number of permits: at once, or when the number is lowered
    /// below `n` while the call waits. (Such a call could wait for ever, and would keep all others
    /// waiting.)
    #[must_use = "if unused the permit is given back at once; keep it: `let _permit = ..`"]
    pub fn acquire_many(&self, n: u32) -> Result<ZkPermit> {
        self.many(n).lock().map(ZkPermit::new)
    }

    /// Waits for `n` permits for as long as `wait` says, as [`acquire_with`](Self::acquire_with)
    /// does for one. With [`Wait::timeout`] of zero the call takes them if so many are free, as
    /// [`try_acquire`](Self::try_acquire) does.
    ///
    /// # Errors
    ///
    /// As [`acquire_with`](Self::acquire_with) and [`acquire_many`](Self::acquire_many).
    #[must_use = "if unused the permit is given back at once; keep it: `let _permit = ..`"]
    pub fn acquire_many_with(&self, n: u32, wait: Wait) -> Result<ZkPermit> {
        self.many(n).lock_with(&wait).map(ZkPermit::new)
    }

    /// How many permits the semaphore has, held or not: the number in the data of its node.
    ///
    /// If the node does not exist or its data is empty, this call writes the number that this
    /// process saw last or, if it saw none, the one that was given to [`new`](Self::new). If the
    /// data is something else, the call leaves it alone and gives that number.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] at once when there is no connection, and when ZooKeeper does not
    /// answer within a sixth of the session timeout; otherwise as [`acquire`](Self::acquire).
    pub fn permits(&self) -> Result<u32> {
        self.permits_with(Wait::timeout(Duration::ZERO))
    }

    /// As [`permits`](Self::permits), and waits for a connection and for the answer as long as
    /// `wait` says, as [`contenders_with`](Self::contenders_with) does.
    ///
    /// # Errors
    ///
    /// As [`permits`](Self::permits), and [`Error::Cancelled`] when the token is cancelled.
    pub fn permits_with(&self, wait: Wait) -> Result<u32> {
        self.lock.permits(&wait)
    }

    /// Changes how many permits the semaphore has, for all clients. If several clients call this,
    /// the last call counts. Nobody loses a permit. With 0 nobody gets a permit until the number is
    /// raised again.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidConfig`] when the data of the node is no number: then it is left as it is.
    /// * [`Error::Unavailable`] when ZooKeeper does not answer within a sixth of the session
    ///   timeout. The number may have been changed all the same.
    ///
    /// Otherwise as [`acquire`](Self::acquire).
    pub fn set_permits(&self, permits: u32) -> Result<()> {
        self.lock.set_permits(permits)
    }

    /// The way to take so many permits together.
    pub(crate) fn many(&self, number: u32) -> ManyPermits {
        ManyPermits { lock: self.lock.clone(), number }
    }
}

lock_calls! {
    ZkSemaphore gives ZkPermit by ZkPermit::new, of "a permit",
    unused: "the permit is given back at once", |semaphore| semaphore.many(1);

    /// Blocks until there is a permit for this call.
    acquire
    errors:
    /// * [`Error::InconsistentPermits`] when another program has made the node with another number
    ///   than was given to [`new`](Self::new), and nobody has set the number since. This is asked
    ///   at the first use of the semaphore in the session.
    /// * A call that does not wait for ever gives [`Error::Paused`] in place of `WouldBlock` or
    ///   `TimedOut` when the number was 0 as this process saw it last.
    ;

    /// Takes a permit if one is free, and nobody else waits for it. If none is free, the call costs
    /// two reads behind a `sync`, and no write. The first use of the semaphore in the session reads
    /// the number before that.
    #[doc(alias = "tryAcquire")]
    try_acquire;

    acquire_timeout;

    acquire_with;
}

impl ZkSemaphore {
    /// What all semaphores of this path and session have counted, since the first of them was made:
    /// calls that wait, holds, losses. A hold is a [`ZkPermit`], of however many permits. When the
    /// last semaphore is dropped, the counts are gone. Costs nothing. See
    /// [`LockStats`](crate::LockStats).
    pub fn stats(&self) -> crate::LockStats {
        self.lock.stats()
    }
}

contender_calls! {
    ZkSemaphore, |semaphore| semaphore.lock;

    /// All contenders: first the [`holders`](Self::holders), then those that wait, in the order of
    /// the queue. The threads of a session that wait count as one contender. Their
    /// [paths](crate::Contender::path) tell them apart: a permit's node is in the folder `leases`,
    /// and that of a contender that waits in `locks`. Costs two listings behind a `sync`, and a
    /// read for each contender.
    contenders;

    /// The permits that are held, in the order in which their nodes were made. At the end of the
    /// list may be nodes of the call that is first in the queue: it has made them, and still waits
    /// for its permits. Costs a listing behind a `sync`, and a read for each permit.
    #[doc(alias = "getParticipantNodes")]
    holders;
}

impl Recipe for ZkSemaphore {
    fn make(settings: Settings) -> Result<Self> {
        if settings.permits == 0 {
            let reason =
                "a semaphore begins with 1 at least; set_permits(0) can pause it later".to_owned();
            return Err(Error::InvalidConfig { what: "permits", reason });
        }
        Ok(ZkSemaphore { lock: SemaphoreHandle::new(settings, "semaphore", false)?.into() })
    }
}

impl fmt::Debug for ZkSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkSemaphore")
            .field("path", &self.lock.settings.path)
            .field("permits", &self.lock.known_permits())
            .finish_non_exhaustive()
    }
}
