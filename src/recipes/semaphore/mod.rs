//! `ZkSemaphore`: at most so many holders at a time, over all processes.

mod leases;
mod lock;
mod mutex;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::lock::SemaphoreHandle;
pub use self::mutex::{ZkSemaphoreMutex, ZkSemaphoreMutexGuard};
use crate::error::{Error, Result};
use crate::guard::guard;
use crate::queue::Contender;
use crate::recipes::settings::{HandsOver, LockBuilder, Recipe, Settings};
use crate::session::ZkSession;
use crate::wait::Wait;

/// A counting semaphore over ZooKeeper: at most as many permits are held at a time as it has, over
/// all threads of all processes.
///
/// Permits are nobody's in particular: a thread may take several, hand them to other threads, and
/// hold them while it asks for more (and so wait for itself: take together what is needed
/// together).
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::{Wait, ZkSemaphore, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let downloads = ZkSemaphore::new(&session, "/limits/downloads", 4)?; // at most four at once
/// {
///     let permit = downloads.acquire()?; // blocks
///     println!("downloading under {}", permit.path());
/// } // given back here
/// if let Some(permit) = downloads.try_acquire()? {
///     std::thread::spawn(move || drop(permit)); // any thread may give it back
/// }
/// match downloads.acquire_many_with(3, Wait::timeout(Duration::from_secs(5)))? {
///     Some(permit) => println!("{} at once", permit.permits()),
///     None => println!("others have too many"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # The number of permits
///
/// It is kept as decimal text in the data of the node at the semaphore's path, where kazoo's
/// `Semaphore` keeps it too. [`new`](Self::new) sends nothing. The first call that asks for a
/// permit, or for the number, writes the number that was given to `new` if the node has none, and
/// compares it if it has one: another is [`Error::InconsistentLeases`]. From then on the node
/// rules: every grant goes by the number as it is then. [`set_permits`](Self::set_permits) changes
/// it, as does anybody who writes there. Raising it lets waiters in at once; lowering it takes no
/// permit away, and none is granted until enough are given back; 0 is a pause: none is granted, and
/// whoever comes meanwhile is not refused. To tell all clients another number, change it here
/// first, then what they are told. Data that is no number is ignored and left as it is, and
/// everybody goes by the number that they saw last, or were told: then they had better been told
/// the same. The node stays when nobody uses the semaphore any more (unless another client made it,
/// see below); if somebody deletes it, it is made again with the number that was seen last.
///
/// # Other clients
///
/// Nodes and algorithm are those of Curator's `InterProcessSemaphoreV2`, and it and this count each
/// other's leases. But it goes by the number that it was given and never reads the node: give it
/// the same. Where it comes first the node is a container, which goes, with a number that was
/// changed, when nobody uses the semaphore.
///
/// # Fairness
///
/// First come, first served between processes. Whoever asks for many holds back those who come
/// later and ask for few, and so is not starved by them. Within a process its threads queue up
/// (first come, first served) behind one node, for as long as [`hand_over`](LockBuilder::hand_over)
/// allows.
///
/// # When the session is lost
///
/// As with [`ZkMutex`](crate::ZkMutex): permits are lost ([`lost`](crate::Held::lost),
/// [`check`](crate::Held::check)), waiters wait on in a new session. A waiter whose connection was
/// away for longer than the lease lasts (see [`Held`](crate::Held)) queues up again behind the
/// others.
///
/// # Fencing
///
/// A permit's [`fencing_token`](crate::Held::fencing_token) is the zxid of its own node. Among
/// several holders there is no newest one, so a store cannot refuse all but the highest. It can
/// refuse what is older than the oldest permit that may still be held (see
/// [`holders`](Self::holders)), and it tells permits apart.
#[derive(Clone)]
pub struct ZkSemaphore {
    pub(crate) lock: Arc<SemaphoreHandle>,
}

guard! {
    /// A permit of a [`ZkSemaphore`], or several that were [taken
    /// together](ZkSemaphore::acquire_many). It is given back when it is dropped, on whichever
    /// thread: it may be sent to another one.
    ///
    /// The drop does not wait for ZooKeeper: the nodes are deleted for sure, in the background; see
    /// [`unlock`](Self::unlock) to wait. What can be asked of a permit is at [`Held`](crate::Held).
    /// Several permits are one hold: it is held while all of them are, and lost with the first of
    /// them that is lost. The nodes of the others stay then, and keep others out, until this is
    /// dropped.
    ZkPermit, unused: "the permit is given back at once"
}

impl ZkPermit {
    /// How many permits it is.
    pub fn permits(&self) -> u32 {
        u32::try_from(self.held.nodes()).unwrap_or(u32::MAX)
    }
}

impl ZkSemaphore {
    /// The semaphore at `path` (below the session's chroot) that has `permits`, with the default
    /// settings. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`build`](LockBuilder::build).
    pub fn new(session: &ZkSession, path: &str, permits: u32) -> Result<Self> {
        ZkSemaphore::builder(session, path, permits).build()
    }

    /// Begins to describe a semaphore.
    pub fn builder(session: &ZkSession, path: &str, permits: u32) -> LockBuilder<ZkSemaphore> {
        LockBuilder::new(session.clone(), path.to_owned()).permits(permits)
    }

    /// The semaphore's path, as it was given.
    pub fn path(&self) -> &str {
        self.lock.path()
    }

    /// Blocks until there is a permit for us.
    ///
    /// An outage is waited for as the session's [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when no server can be reached, or none gives the answer that is
    /// needed, for longer than the retry policy allows, [`Error::InconsistentLeases`] when this is
    /// the first use of the semaphore and its node says another number of permits than it was made
    /// with, [`Error::Closed`] when the session is closed, [`Error::NoAuth`] when an ACL refuses.
    /// Whatever was queued is removed.
    #[must_use = "if unused the permit is given back at once"]
    pub fn acquire(&self) -> Result<ZkPermit> {
        self.acquire_many(1)
    }

    /// A permit if one is free, `None` if none is or others queue for those that are. Costs two
    /// reads, and no write, while none is free; the first use of the semaphore reads the number
    /// before that.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`Error::Unavailable`] when ZooKeeper does not answer within
    /// a sixth of the session timeout.
    #[doc(alias = "tryAcquire")]
    #[must_use = "if unused the permit is given back at once"]
    pub fn try_acquire(&self) -> Result<Option<ZkPermit>> {
        self.acquire_timeout(Duration::ZERO)
    }

    /// A permit within `timeout`, or `None` if others had them all or queued before us; our nodes
    /// are gone then, or about to go.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`Error::Unavailable`] when the time ran out in an outage, or
    /// before the server answered: `None` always means contention. A timeout of zero is
    /// [`try_acquire`](Self::try_acquire); any other that is shorter than a few round trips can
    /// only give that error.
    #[must_use = "if unused the permit is given back at once"]
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Option<ZkPermit>> {
        self.acquire_with(Wait::timeout(timeout))
    }

    /// As [`acquire`](Self::acquire), for as long as `wait` says: a timeout, a deadline and a
    /// cancel token, or any of these. `None` if others had it all that time, as with
    /// [`acquire_timeout`](Self::acquire_timeout); never where only a token can end the wait.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout), and [`Error::Cancelled`].
    #[must_use = "if unused the permit is given back at once"]
    pub fn acquire_with(&self, wait: Wait) -> Result<Option<ZkPermit>> {
        self.acquire_many_with(1, wait)
    }

    /// Blocks until there are `n` permits for us: all of them, taken together and given back
    /// together, or none.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::InvalidConfig`] for none, and for more than the
    /// semaphore has: at once, or when its number is lowered below `n` meanwhile, for who waits for
    /// so many keeps everybody else waiting.
    #[must_use = "if unused the permit is given back at once"]
    pub fn acquire_many(&self, n: u32) -> Result<ZkPermit> {
        self.lock.lock(n).map(ZkPermit::new)
    }

    /// `n` permits, for as long as `wait` says; see [`acquire_with`](Self::acquire_with).
    ///
    /// # Errors
    ///
    /// As [`acquire_with`](Self::acquire_with) and [`acquire_many`](Self::acquire_many).
    #[must_use = "if unused the permit is given back at once"]
    pub fn acquire_many_with(&self, n: u32, wait: Wait) -> Result<Option<ZkPermit>> {
        Ok(self.lock.lock_with(n, &wait)?.map(ZkPermit::new))
    }

    /// How many permits the semaphore has, held or not, as its node says. If it says no number, the
    /// one that the semaphore was made with is written there.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when ZooKeeper does not answer within a sixth of the session timeout;
    /// otherwise as [`acquire`](Self::acquire).
    pub fn permits(&self) -> Result<u32> {
        self.lock.permits()
    }

    /// Changes how many permits the semaphore has, for everybody; the last one to do so wins. What
    /// is held stays held. With 0 nobody gets one until it is raised again.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] when the node's data is no number: it is somebody else's;
    /// [`Error::Unavailable`] when ZooKeeper does not answer within a sixth of the session timeout
    /// (it may have been done all the same); otherwise as [`acquire`](Self::acquire).
    pub fn set_permits(&self, permits: u32) -> Result<()> {
        self.lock.set_permits(permits)
    }

    /// The permits that are held, in the order in which their nodes were made; last among them
    /// perhaps those that whoever is first in the queue still waits for. Costs a listing, and a
    /// read for each.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when there is no connection, or an answer takes longer than a sixth
    /// of the session timeout; otherwise as [`acquire`](Self::acquire).
    #[doc(alias = "getParticipantNodes")]
    pub fn holders(&self) -> Result<Vec<Contender>> {
        self.lock.holders()
    }

    /// Everybody who holds a permit or waits for one: first the [`holders`](Self::holders), then
    /// those who queue, in order; of each process one thread is seen there. The
    /// [names](Contender::name) tell which: they begin with `leases/` or with `locks/`. Costs two
    /// listings, and a read for each.
    ///
    /// # Errors
    ///
    /// As [`holders`](Self::holders).
    pub fn contenders(&self) -> Result<Vec<Contender>> {
        self.lock.contenders()
    }

    /// Asks one of the [`contenders`](Self::contenders) to give back what it holds by that node, as
    /// [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke). Permits that were taken
    /// together are one hold: to ask for one of them is to ask for all.
    ///
    /// # Errors
    ///
    /// As [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke).
    pub fn attempt_revoke(&self, contender: &Contender) -> Result<Option<Vec<u8>>> {
        self.lock.revoke(contender)
    }
}

impl HandsOver for ZkSemaphore {}

impl Recipe for ZkSemaphore {
    fn make(settings: Settings) -> Result<Self> {
        if settings.permits == 0 {
            let reason = "a semaphore begins with at least one".to_owned();
            return Err(Error::InvalidConfig { what: "number of permits", reason });
        }
        Ok(ZkSemaphore { lock: SemaphoreHandle::new(settings, "semaphore", false)?.into() })
    }
}

impl fmt::Debug for ZkSemaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkSemaphore")
            .field("path", &self.path())
            .field("permits", &self.lock.known_permits())
            .finish_non_exhaustive()
    }
}
