//! `ZkSemaphore`: at most so many holders at a time, over all processes.

mod lock;
mod mutex;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use self::lock::Lock;
pub use self::mutex::{
    OwnedZkSemaphoreMutexGuard, SemaphoreMutexBuilder, ZkSemaphoreMutex, ZkSemaphoreMutexGuard,
};
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::guard::Held;
use crate::limit::Limit;
use crate::queue::{Contender, Mode};
use crate::session::{Acl, ZkSession};
use crate::settings::LockBuilder;
use crate::world::Instant;

/// A counting semaphore over ZooKeeper: at most as many permits are held at a time as it has, over all
/// threads of all processes.
///
/// Permits are nobody's in particular: a thread may take several, hand them to other threads, and hold
/// them while it asks for more (and so wait for itself: take together what is needed together).
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::{ZkSemaphore, ZkSession};
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
/// match downloads.acquire_many_timeout(3, Duration::from_secs(5))? {
///     Some(permits) => println!("{} at once", permits.len()),
///     None => println!("others have too many"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # The number of permits
///
/// It is kept as decimal text in the data of the node at the semaphore's path, where kazoo's `Semaphore`
/// keeps it too. [`new`](Self::new) writes it if there is none, and refuses another:
/// [`Error::InconsistentLeases`]. From then on the node rules: every
/// grant goes by the number as it is then. [`set_permits`](Self::set_permits) changes it, as does anybody
/// who writes there. Raising it lets waiters in at once; lowering it takes no permit away, and none is
/// granted until enough are given back; 0 is a pause: none is granted, and whoever comes meanwhile is not
/// refused. To tell all clients another number, change it here first, then what they are told. Data that is no number is ignored and left as it
/// is, and everybody goes by the number that they saw last, or were told: then they had better been told the
/// same. The node stays when nobody uses the semaphore any more (unless another client made it, see below);
/// if somebody deletes it, it is made again with the number that was seen last.
///
/// # Other clients
///
/// Nodes and algorithm are those of Curator's `InterProcessSemaphoreV2`, and it and this count each
/// other's leases. But it goes by the number that it was given and never reads the node: give it the same.
/// Where it comes first the node is a container, which goes, with a number that was changed, when nobody
/// uses the semaphore.
///
/// # Fairness
///
/// First come, first served between processes. Whoever asks for many holds back those who come later and
/// ask for few, and so is not starved by them. Within a process its threads queue up (first come, first
/// served) behind one node, for as long as [`hand_over`](SemaphoreBuilder::hand_over) allows.
///
/// # When the session is lost
///
/// As with [`ZkMutex`](crate::ZkMutex): permits are lost ([`lost`](Held::lost), [`check`](Held::check)),
/// waiters wait on in a new session. A waiter whose connection was away for longer than the lease
/// lasts (see [`Held`]) queues up again behind the others.
///
/// # Fencing
///
/// A permit's [`fencing_token`](Held::fencing_token) is the zxid of its own node. Among several holders
/// there is no newest one, so a store cannot refuse all but the highest. It can refuse what is older than
/// the oldest permit that may still be held (see [`holders`](Self::holders)), and it tells permits apart.
#[derive(Clone)]
pub struct ZkSemaphore {
    pub(crate) lock: Arc<Lock>,
}

/// Settings of a [`ZkSemaphore`]; from [`ZkSemaphore::builder`].
#[must_use = "nothing happens until build() is called"]
pub struct SemaphoreBuilder {
    settings: LockBuilder<ZkSemaphore>,
    permits: u32,
    hand_over: Option<Duration>,
}

impl SemaphoreBuilder {
    /// As [`LockBuilder::data`]: what our nodes say of us.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.settings = self.settings.data(data);
        self
    }

    /// As [`LockBuilder::acl`]: the ACL of our nodes and of the parents that are made. Every client must
    /// be able to read the semaphore's node, and one that finds it empty to write it.
    pub fn acl(mut self, acl: Acl) -> Self {
        self.settings = self.settings.acl(acl);
        self
    }

    /// How long the threads of this process may hand their place in the queue to each other, counted from
    /// when it came first; default 20 ms. Zero means that each acquisition queues anew behind other processes.
    pub fn hand_over(mut self, bound: Duration) -> Self {
        self.hand_over = Some(bound);
        self
    }

    /// Makes the semaphore: reads the number of permits at the server, and writes it if there is none.
    /// Takes half of the session timeout at most.
    ///
    /// # Errors
    ///
    /// As [`ZkSemaphore::new`].
    pub fn build(self) -> Result<ZkSemaphore> {
        if self.permits == 0 {
            let reason = "a semaphore begins with at least one".to_owned();
            return Err(Error::InvalidConfig { what: "number of permits", reason });
        }
        let mut settings = self.settings.settings()?;
        settings.hand_over = self.hand_over.unwrap_or(settings.hand_over);
        let lock = Lock::new(settings, "semaphore", self.permits, false)?;
        lock.agree(self.permits)?;
        Ok(ZkSemaphore { lock: lock.into() })
    }
}

/// A permit of a [`ZkSemaphore`]. It is given back when it is dropped, on whichever thread.
///
/// The drop does not wait for ZooKeeper: the node is deleted for sure, in the background; see
/// [`release`](Self::release) to wait. What can be asked of a permit is at [`Held`].
#[must_use = "if unused the permit is given back at once"]
pub struct ZkPermit {
    held: Held,
}

impl ZkPermit {
    /// Gives the permit back and waits until its node is deleted, for up to a sixth of the session timeout.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] when the permit was lost before; [`Error::Unavailable`] when the server has not
    /// answered yet, and [`Error::NoAuth`] or [`Error::Server`] when it refused. The permit is let go in any
    /// case, and the node goes at the latest with the session.
    #[doc(alias = "unlock")]
    pub fn release(self) -> Result<()> {
        self.held.unlock()
    }
}

impl Deref for ZkPermit {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl fmt::Debug for ZkPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.held.fmt(f)
    }
}

impl ZkSemaphore {
    /// The semaphore at `path` (below the session's chroot) that has `permits`, with the default settings.
    /// Asks the server for the number, and writes it if there is none; takes half of the session timeout at
    /// most.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] for a path that ZooKeeper would refuse, for `/` and for what is below
    /// `/zookeeper`; [`Error::InvalidConfig`] for no permits, and when this process has another kind of lock
    /// at this path, or this session the same with another ACL; [`Error::InconsistentLeases`] when the
    /// semaphore has another number of permits; [`Error::Unavailable`] when ZooKeeper does not answer in
    /// time; [`Error::NoAuth`] when an ACL refuses; [`Error::Closed`] when the session is closed.
    pub fn new(session: &ZkSession, path: &str, permits: u32) -> Result<Self> {
        ZkSemaphore::builder(session, path, permits).build()
    }

    /// Begins to describe a semaphore.
    pub fn builder(session: &ZkSession, path: &str, permits: u32) -> SemaphoreBuilder {
        let settings = LockBuilder::new(session.clone(), path.to_owned());
        SemaphoreBuilder { settings, permits, hand_over: None }
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
    /// [`Error::Unavailable`] when no server can be reached, or none gives the answer that is needed,
    /// for longer than the retry policy allows, [`Error::Closed`] when the session is
    /// closed, [`Error::NoAuth`] when an ACL refuses. Whatever was queued is removed.
    #[must_use = "if unused the permit is given back at once"]
    pub fn acquire(&self) -> Result<ZkPermit> {
        self.lock.one_forever(Limit::NONE).map(ZkPermit::new)
    }

    /// A permit if one is free, `None` if none is or others queue for those that are. Costs two reads, and
    /// no write, while none is free.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`Error::Unavailable`] when ZooKeeper does not answer within a sixth of
    /// the session timeout.
    #[doc(alias = "tryAcquire")]
    #[must_use = "if unused the permit is given back at once"]
    pub fn try_acquire(&self) -> Result<Option<ZkPermit>> {
        Ok(self.lock.one_at_once()?.map(ZkPermit::new))
    }

    /// A permit within `timeout`, or `None` if others had them all or queued before us; our nodes are gone
    /// then, or about to go.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); [`Error::Unavailable`] when the time ran out in an outage, or before
    /// the server answered: `None` always means contention. A timeout shorter than a few round trips can
    /// only give that error; to ask once, use [`try_acquire`](Self::try_acquire).
    #[must_use = "if unused the permit is given back at once"]
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Option<ZkPermit>> {
        Ok(self.lock.acquire_one(Mode::Wait, Limit::after(timeout))?.map(ZkPermit::new))
    }

    /// As [`acquire_timeout`](Self::acquire_timeout), until a point in time.
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout).
    #[must_use = "if unused the permit is given back at once"]
    pub fn acquire_deadline(&self, deadline: Instant) -> Result<Option<ZkPermit>> {
        Ok(self.lock.acquire_one(Mode::Wait, Limit::at(deadline))?.map(ZkPermit::new))
    }

    /// As [`acquire`](Self::acquire), until the token is cancelled.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::Cancelled`].
    #[must_use = "if unused the permit is given back at once"]
    pub fn acquire_with(&self, cancel: &CancelToken) -> Result<ZkPermit> {
        self.lock.one_forever(Limit::cancelled_by(cancel)).map(ZkPermit::new)
    }

    /// Blocks until there are `n` permits for us: all of them, taken together, or none. Each is given back
    /// by itself.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`Error::InvalidConfig`] for none, and for more than the semaphore
    /// has: at once, or when its number is lowered below `n` meanwhile, for who waits for so many keeps
    /// everybody else waiting.
    #[must_use = "if unused the permits are given back at once"]
    pub fn acquire_many(&self, n: u32) -> Result<Vec<ZkPermit>> {
        self.lock.forever(n, Limit::NONE).map(permits)
    }

    /// `n` permits if so many are free; see [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire) and [`acquire_many`](Self::acquire_many).
    #[must_use = "if unused the permits are given back at once"]
    pub fn try_acquire_many(&self, n: u32) -> Result<Option<Vec<ZkPermit>>> {
        Ok(self.lock.at_once(n)?.map(permits))
    }

    /// `n` permits within `timeout`; see [`acquire_timeout`](Self::acquire_timeout).
    ///
    /// # Errors
    ///
    /// As [`acquire_timeout`](Self::acquire_timeout) and [`acquire_many`](Self::acquire_many).
    #[must_use = "if unused the permits are given back at once"]
    pub fn acquire_many_timeout(&self, n: u32, timeout: Duration) -> Result<Option<Vec<ZkPermit>>> {
        Ok(self.lock.acquire(n, Mode::Wait, Limit::after(timeout))?.map(permits))
    }

    /// As [`acquire_many_timeout`](Self::acquire_many_timeout), until a point in time.
    ///
    /// # Errors
    ///
    /// As [`acquire_many_timeout`](Self::acquire_many_timeout).
    #[must_use = "if unused the permits are given back at once"]
    pub fn acquire_many_deadline(&self, n: u32, deadline: Instant) -> Result<Option<Vec<ZkPermit>>> {
        Ok(self.lock.acquire(n, Mode::Wait, Limit::at(deadline))?.map(permits))
    }

    /// As [`acquire_many`](Self::acquire_many), until the token is cancelled.
    ///
    /// # Errors
    ///
    /// As [`acquire_many`](Self::acquire_many), and [`Error::Cancelled`].
    #[must_use = "if unused the permits are given back at once"]
    pub fn acquire_many_with(&self, n: u32, cancel: &CancelToken) -> Result<Vec<ZkPermit>> {
        self.lock.forever(n, Limit::cancelled_by(cancel)).map(permits)
    }

    /// How many permits the semaphore has, held or not, as its node says.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when ZooKeeper does not answer within a sixth of the session timeout;
    /// otherwise as [`acquire`](Self::acquire).
    pub fn permits(&self) -> Result<u32> {
        self.lock.permits()
    }

    /// Changes how many permits the semaphore has, for everybody; the last one to do so wins. What is held
    /// stays held. With 0 nobody gets one until it is raised again.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] when the node's data is no number: it is somebody else's;
    /// [`Error::Unavailable`] when ZooKeeper does not answer within a sixth of the session timeout (it may
    /// have been done all the same); otherwise as [`acquire`](Self::acquire).
    pub fn set_permits(&self, permits: u32) -> Result<()> {
        self.lock.set_permits(permits)
    }

    /// The permits that are held, in the order in which their nodes were made; last among them perhaps
    /// those that whoever is first in the queue still waits for. Costs a listing, and a read for each.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] when there is no connection, or an answer takes longer than a sixth of the
    /// session timeout; otherwise as [`acquire`](Self::acquire).
    #[doc(alias = "getParticipantNodes")]
    pub fn holders(&self) -> Result<Vec<Contender>> {
        self.lock.holders()
    }

    /// Everybody who queues for a permit, in order; of each process one thread is seen. Costs a listing, and
    /// a read for each.
    ///
    /// # Errors
    ///
    /// As [`holders`](Self::holders).
    pub fn waiting(&self) -> Result<Vec<Contender>> {
        self.lock.waiting()
    }
}

fn permits(held: Vec<Held>) -> Vec<ZkPermit> {
    held.into_iter().map(ZkPermit::new).collect()
}

impl ZkPermit {
    fn new(held: Held) -> Self {
        ZkPermit { held }
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
