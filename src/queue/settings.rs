//! `Settings`: what a program has set for one lock. A `LockBuilder` fills it (`recipes/settings.rs`),
//! and each place that needs a setting reads it here.

use std::time::Duration;

use super::held_node::HoldBounds;
use super::name::Layout;
use crate::session::ZkSession;
use zk_session::Acl;
use zk_session::unstable::{Core, Process};
use zk_session::world;

/// What a thread that waits for a lock watches at the server.
///
/// It decides what a release costs. It does not change who gets the lock: with either strategy that
/// is the order of the queue. Clients of one lock in different sessions may use different
/// strategies.
///
/// | | [`Predecessor`](Self::Predecessor) | [`Parent`](Self::Parent) |
/// | --- | --- | --- |
/// | woken by a release | the next one in the queue | every waiter |
/// | woken by a contender that comes | nobody | every waiter |
/// | woken by a contender that gives up | the next one behind it | every waiter |
/// | requests until it waits | a listing, and a read or two | a listing |
/// | requests when it is woken | none if it is next | a listing of the whole queue |
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use zk_mutex::{WaitStrategy, ZkMutex, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let builder = ZkMutex::builder(&session, "/locks/nightly");
/// let few = builder.wait_strategy(WaitStrategy::Parent).build()?;
/// let _guard = few.lock()?;
/// # Ok(())
/// # }
/// ```
///
/// Source: "A simple lock" and "Herd effect" in "ZooKeeper: Wait-free coordination for
/// Internet-scale systems", 2010, 2.4; the lock recipe of the ZooKeeper documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WaitStrategy {
    /// The one node that has to be deleted before this thread can have the lock: the node just
    /// ahead or, for a reader, the node of the last writer ahead. So says the lock recipe of the
    /// ZooKeeper documentation. The default.
    #[default]
    Predecessor,
    /// The list of children of the lock's node, the first version in textbooks. Every change of the
    /// queue wakes every waiter, and each of them lists the queue again. With `n` waiters a release
    /// causes `n` events, and `n` listings of `n` names each. Use it for a handful of waiters at
    /// most, or to see what a herd costs (`herd` in `bench/`).
    Parent,
}

/// The settings of a lock. `LockBuilder::settings` checks them.
pub(crate) struct Settings {
    pub(crate) session: ZkSession,
    /// The lock's path, as the program gave it.
    pub(crate) path: String,
    /// What observers call the lock.
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
    pub(crate) acl: Acl,
    pub(crate) layout: Layout,
    pub(crate) hand_over: Duration,
    pub(crate) keep: Duration,
    pub(crate) strategy: WaitStrategy,
    /// How long one holder may have the lock.
    pub(crate) bounds: HoldBounds,
    /// After this time the log says who holds the lock for which a thread waits.
    pub(crate) warn_waiting_after: Duration,
    /// How many permits there are. Only a semaphore uses this.
    pub(crate) permits: u32,
}

impl Settings {
    /// The default settings of a lock.
    pub(crate) fn new(session: ZkSession, path: String) -> Self {
        Settings {
            session,
            path,
            name: String::new(),
            // By the host and the process id an operator finds the process.
            data: world::host_and_process().into_bytes(),
            acl: Acl::default(),
            layout: Layout::default(),
            hand_over: Duration::from_millis(20),
            keep: Duration::ZERO,
            strategy: WaitStrategy::default(),
            bounds: HoldBounds::default(),
            warn_waiting_after: Duration::from_secs(30),
            permits: 1,
        }
    }

    pub(crate) fn core(&self) -> &Core {
        self.session.core()
    }

    /// The process that has the lock's session. In a forked child nothing else can be asked.
    pub(crate) fn process(&self) -> &Process {
        self.core().process()
    }

    /// The lock's full path.
    pub(crate) fn dir(&self) -> String {
        format!("{}{}", self.core().chroot(), self.path)
    }

    /// A full path without the session's chroot, as programs and logs show it.
    pub(crate) fn shown<'a>(&self, full: &'a str) -> &'a str {
        self.core().shown(full)
    }

    /// How long one step of a call on the lock may take.
    pub(crate) fn operation_timeout(&self) -> Duration {
        self.core().operation_timeout()
    }
}
