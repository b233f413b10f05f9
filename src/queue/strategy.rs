//! What a waiter watches.

/// What a thread that waits for a lock watches at the server.
///
/// The strategy decides how much work a release causes, never which contender gets the lock: the
/// order of the queue is the same. Clients of one lock in different sessions may use different
/// strategies.
///
/// | | [`Predecessor`](Self::Predecessor) | [`Parent`](Self::Parent) |
/// | --- | --- | --- |
/// | woken by a release | the next one in the queue | every waiter |
/// | woken by a new contender, or one that leaves | none, or the one behind it | every waiter |
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
    /// The one node whose end concerns the waiter, as the lock recipe of the ZooKeeper
    /// documentation says. The default.
    #[default]
    Predecessor,
    /// The list of children of the lock's node, as in the first version of the textbook recipe.
    /// Every change of the queue wakes every waiter, and each of them lists the queue again. `n`
    /// waiters cost `n` events and `n` listings of `n` names at each release. It is meant for a
    /// handful of waiters at most, and to see the herd effect (`herd` in `bench/`).
    Parent,
}
