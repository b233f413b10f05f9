//! `WaitStrategy`: what a thread that waits in the queue watches. The program sets it, and the
//! queue goes by it. It must not change the order in which contenders get the lock.

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
/// let few = ZkMutex::builder(&session, "/locks/nightly").wait_strategy(WaitStrategy::Parent).build()?;
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
