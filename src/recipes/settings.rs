//! What is set of every lock that stands in a queue, and the one builder for it.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::local::registry::{self, Interned, LockKey};
use crate::local::self_deadlock::SelfDeadlockDetector;
use crate::local::turn::LocalRequest;
use crate::queue::name::Layout;
use crate::queue::{HeldNode, Mode, Queue, WaitStrategy};
use crate::session::path::lock_path;
use crate::session::{Acl, ZkSession};
use crate::world;
use crate::world::thread::ThreadId;

/// ZooKeeper's limit for a whole request (`jute.maxbuffer`), less room for the path and the ACL.
const MAX_DATA: usize = (1 << 20) - (8 << 10);

/// The longest ACL, a part of that room.
const MAX_ACL: usize = 3 << 10;

/// Checked settings.
pub(crate) struct Settings {
    pub(crate) session: ZkSession,
    /// As the user gave it.
    pub(crate) path: String,
    pub(crate) data: Vec<u8>,
    pub(crate) acl: Acl,
    pub(crate) layout: Layout,
    pub(crate) hand_over: Duration,
    pub(crate) keep: Duration,
    pub(crate) strategy: WaitStrategy,
    /// How many hold it at once, where that is told: of a semaphore.
    pub(crate) permits: u32,
}

/// A lock that a [`LockBuilder`] makes.
pub(crate) trait Recipe: Sized {
    fn make(settings: Settings) -> Result<Self>;
}

/// One whose nodes can bear the names of different clients.
pub(crate) trait HasLayout: Recipe {}

/// One whose holds can go from thread to thread.
pub(crate) trait HandsOver: Recipe {}

/// One whose node can stay with the process between two holds.
pub(crate) trait Keeps: Recipe {}

/// One whose waiters can watch this or that.
pub(crate) trait HasWaitStrategy: Recipe {}

impl Settings {
    /// The lock's full path.
    pub(crate) fn dir(&self) -> String {
        format!("{}{}", self.session.core().chroot(), self.path)
    }

    /// A full path as the user knows it.
    pub(crate) fn shown<'a>(&self, full: &'a str) -> &'a str {
        self.session.core().shown(full)
    }

    /// A sixth of the session timeout: the bound of single steps.
    pub(crate) fn operation_timeout(&self) -> Duration {
        self.session.timeout() / 6
    }

    /// An error if this hold of the lock is lost: a lost hold cannot be entered again.
    pub(crate) fn check(&self, node: &HeldNode) -> Result<()> {
        node.check(self.session.core())
    }

    /// The lock's queue.
    pub(crate) fn queue(&self) -> Queue {
        Queue::new(self.dir(), self.layout, self.acl.clone()).waiting(self.strategy)
    }

    fn key(&self) -> LockKey {
        LockKey::new(&self.session.core().ensemble(), &self.dir())
    }

    pub(crate) fn self_deadlock(&self) -> SelfDeadlockDetector {
        SelfDeadlockDetector::new(self.key(), self.session.core().number())
    }

    /// One thread's request for this lock. It warns a thread that is about to wait for itself.
    ///
    /// # Errors
    ///
    /// [`Error::Cancelled`] if the caller has cancelled the call already.
    pub(crate) fn request<'a>(
        &'a self,
        mode: Mode,
        limit: Limit<'a>,
        self_deadlock: &SelfDeadlockDetector,
        thread: ThreadId,
        is_held_here: &'a dyn Fn() -> bool,
    ) -> Result<LocalRequest<'a>> {
        let Settings { session, path, data, .. } = self;
        if limit.is_cancelled() {
            return Err(Error::Cancelled { path: path.clone() });
        }
        self_deadlock.warn(thread, path);
        Ok(LocalRequest { session, path, mode, limit, data, is_held_here })
    }

    /// What all locks of this recipe and path on this session share, made if this is the first.
    pub(crate) fn share<T: Send + Sync + 'static>(
        &self,
        what: &'static str,
        make: impl FnOnce(&Settings) -> T,
    ) -> Result<Arc<Interned<T>>> {
        let session = self.session.core().number();
        registry::intern(&self.key(), session, what, || make(self)).map_err(|other| {
            let reason = format!(
                "{:?} is in use in this process by another kind of lock ({other})",
                self.path
            );
            Error::InvalidConfig { what, reason }
        })
    }

    /// All users of one lock in one session have the same node names and ACLs, and wait alike: they
    /// share nodes.
    pub(crate) fn agree(&self, what: &'static str, queue: &Queue) -> Result<()> {
        let (path, layout, acl, strategy) =
            (&self.path, queue.layout(), queue.acl(), queue.strategy());
        if layout == self.layout && *acl == self.acl && strategy == self.strategy {
            return Ok(());
        }
        let reason = format!(
            "{path:?} is in use on this session with layout {layout:?}, ACL {acl:?} and wait strategy {strategy:?}"
        );
        Err(Error::InvalidConfig { what, reason })
    }
}

/// Settings of a lock; from its `builder`, as [`ZkMutex::builder`](crate::ZkMutex::builder).
#[must_use = "nothing happens until build() is called"]
pub struct LockBuilder<L> {
    session: ZkSession,
    path: String,
    data: Option<Vec<u8>>,
    acl: Acl,
    layout: Layout,
    hand_over: Duration,
    keep: Duration,
    strategy: WaitStrategy,
    permits: u32,
    lock: PhantomData<fn() -> L>,
}

impl<L> LockBuilder<L> {
    pub(crate) fn new(session: ZkSession, path: String) -> Self {
        LockBuilder {
            session,
            path,
            data: None,
            acl: Acl::default(),
            layout: Layout::default(),
            hand_over: Duration::from_millis(20),
            keep: Duration::ZERO,
            strategy: WaitStrategy::default(),
            permits: 1,
            lock: PhantomData,
        }
    }

    pub(crate) fn permits(mut self, permits: u32) -> Self {
        self.permits = permits;
        self
    }

    /// What our nodes say of us, for `contenders` and operators; default the host's name and the
    /// process id.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// The ACL of our nodes and of the parents that are made; default [`Acl::Open`]. Every client
    /// of a semaphore must be able to read its node, and one that finds it empty to write it.
    pub fn acl(mut self, acl: Acl) -> Self {
        self.acl = acl;
        self
    }

    /// Checks what can be checked here.
    pub(crate) fn settings(self) -> Result<Settings> {
        let LockBuilder {
            session,
            path,
            data,
            acl,
            layout,
            hand_over,
            keep,
            strategy,
            permits,
            ..
        } = self;
        lock_path(session.core().chroot(), &path)?;
        let data = data.unwrap_or_else(default_data);
        if data.len() > MAX_DATA {
            let reason = format!(
                "{} bytes are more than {MAX_DATA}, which is what ZooKeeper takes",
                data.len()
            );
            return Err(Error::InvalidConfig { what: "node data", reason });
        }
        if acl.len() > MAX_ACL {
            let reason = format!("its entries take {} bytes, more than {MAX_ACL}", acl.len());
            return Err(Error::InvalidConfig { what: "ACL", reason });
        }
        Ok(Settings { session, path, data, acl, layout, hand_over, keep, strategy, permits })
    }
}

#[allow(private_bounds)] // locks are made here and nowhere else
impl<L: HasLayout> LockBuilder<L> {
    /// Whose names our nodes bear; default [`Layout::Curator`].
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }
}

#[allow(private_bounds)]
impl<L: HandsOver> LockBuilder<L> {
    /// How long the threads of this process may hand the lock to each other (or, as readers, join
    /// each other's hold), without a round trip, counted from when their node came first; default
    /// 20 ms. Zero means that every acquisition queues anew behind other processes. The threads
    /// that want permits of a semaphore hand their place in its queue to each other.
    pub fn hand_over(mut self, bound: Duration) -> Self {
        self.hand_over = bound;
        self
    }
}

#[allow(private_bounds)]
impl<L: Keeps> LockBuilder<L> {
    /// How long the lock's node stays with this process after a release, as long as nobody else
    /// asks for the lock: taking it again meanwhile costs no round trip. Default zero: the node is
    /// deleted at each release.
    ///
    /// The node is watched by its folder. The moment another contender appears it is let go, or, if
    /// a guard lives, when that is released. It is let go too after a reconnection. While the node
    /// stays, [`contenders`](crate::ZkMutex::contenders) shows it, and to everybody else the lock
    /// is taken: another process that only tries ([`try_lock`](crate::ZkMutex::try_lock)) finds it
    /// so, and leaves no node by which it would be noticed. The lease and
    /// [`lost`](crate::Held::lost) are as of a held lock. Each new hold has a token of its own.
    /// `unlock` does not wait for a delete.
    ///
    /// If the process dies, others wait until the server expires its session, also where no guard
    /// lived: up to the session timeout. So it suits a lock that mostly one process takes, over and
    /// over.
    pub fn keep(mut self, at_most: Duration) -> Self {
        self.keep = at_most;
        self
    }
}

#[allow(private_bounds)]
impl<L: HasWaitStrategy> LockBuilder<L> {
    /// What threads that wait for the lock watch; default [`WaitStrategy::Predecessor`].
    pub fn wait_strategy(mut self, strategy: WaitStrategy) -> Self {
        self.strategy = strategy;
        self
    }
}

#[allow(private_bounds)]
impl<L: Recipe> LockBuilder<L> {
    /// Makes the lock. Nothing is sent.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] for a path that ZooKeeper would refuse, for `/` and for what is below
    /// `/zookeeper`; [`Error::InvalidConfig`] when this process has another kind of lock at this
    /// path, or this session the same with another layout, ACL or wait strategy, for data beyond
    /// ZooKeeper's limit of 1 MiB for a request, and for a semaphore without permits.
    pub fn build(self) -> Result<L> {
        L::make(self.settings()?)
    }
}

/// Where a contender is found.
fn default_data() -> Vec<u8> {
    world::host_and_process().into_bytes()
}
