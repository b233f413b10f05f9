//! `ZkMultiLock`: several locks as one.

mod guard;
mod member;
mod order;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::guard::ZkMultiGuard;
pub use self::member::Member;
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::queue::Mode;
use crate::wait::{Wait, until_got};
use crate::world::thread;

/// Several locks as one: all are held, or none.
///
/// The members are any mix of this crate's locks, on one session or on several, on one ensemble or
/// on several; see [`Member`]. A failure half-way releases what was taken.
///
/// ```no_run
/// # fn main() -> zk_mutex::Result<()> {
/// use std::time::Duration;
/// use zk_mutex::{Member, ZkMultiLock, ZkMutex, ZkRwLock, ZkSession};
///
/// let session = ZkSession::connect("127.0.0.1:2181")?;
/// let from = ZkMutex::new(&session, "/locks/accounts/17")?;
/// let to = ZkMutex::new(&session, "/locks/accounts/4")?;
/// let rates = ZkRwLock::new(&session, "/locks/rates")?;
///
/// let transfer = ZkMultiLock::new([Member::from(&from), Member::from(&to), Member::read(&rates)])?;
/// if let Some(guard) = transfer.lock_timeout(Duration::from_secs(5))? {
///     let tokens = guard.fencing_tokens(); // of 17, of 4, of the rates
///     println!("moving money under {tokens:?}");
///     guard.check()?; // all are still held
///     guard.unlock()?; // all at once
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Deadlocks
///
/// The members are taken one after the other, in the order of their ensemble (its hosts, sorted),
/// of their full path (chroot included) and of their kind, whatever the order in which they were
/// given. So multi-locks, of all processes, never wait for each other in a circle, provided that
///
/// * the thread holds nothing else when it asks: no lock outside the set for which somebody in the
///   set may be waiting. A member that the thread holds already is refused, with
///   [`Error::WouldDeadlock`]; but a permit, or a guard that may move between threads, belongs to
///   no thread and cannot be seen;
/// * all sessions, of all processes, name an ensemble by the same hosts, if a multi-lock has
///   members on several ensembles. Within one, the order is that of the paths, however its hosts
///   are written.
///
/// The same lock twice (also to read and to write, or through another session or chroot) would wait
/// for itself, and is refused when the multi-lock is made. Two sessions are taken to be on the same
/// ensemble if they name a host in common, by its name and port.
///
/// A multi-lock is not re-entrant, even where its members are.
///
/// # Fairness
///
/// As its members: it stands in each one's queue, one at a time. Whoever holds the first keeps it
/// while it waits for the rest, so few and briefly held members serve best.
///
/// # When the session is lost
///
/// A guard is valid while [`is_held`](ZkMultiGuard::is_held): all members are. When the first is
/// lost, [`lost`](ZkMultiGuard::lost) becomes ready, and [`check`](ZkMultiGuard::check) is an
/// error. A member that is lost while another is waited for ends the wait: all are released, and
/// the call gives [`Error::Lost`]. A thread that has nothing yet keeps waiting in a new session, as
/// each lock does.
///
/// It is Curator's `InterProcessMultiLock`, with an order, one deadline for all, and a signal of
/// loss.
#[derive(Clone)]
pub struct ZkMultiLock {
    set: Arc<Set>,
}

struct Set {
    /// As they were given.
    members: Vec<Member>,
    /// Their numbers in the order in which they are taken.
    order: Vec<usize>,
}

impl ZkMultiLock {
    /// Several locks as one. Nothing is sent.
    ///
    /// Mutexes go in as they are: `ZkMultiLock::new([&one, &other])`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] without a member; [`Error::WouldDeadlock`] when two are the same
    /// lock, be it of different kinds.
    pub fn new<M: Into<Member>>(members: impl IntoIterator<Item = M>) -> Result<Self> {
        let members: Vec<Member> = members.into_iter().map(M::into).collect();
        if members.is_empty() {
            let reason = "it has no member".to_owned();
            return Err(Error::InvalidConfig { what: "multi-lock", reason });
        }
        let places = members.iter().map(Member::place).collect();
        match order::order(places) {
            Ok(order) => Ok(ZkMultiLock { set: Arc::new(Set { members, order }) }),
            Err(twice) => Err(Error::WouldDeadlock {
                path: members[twice].path().to_owned(),
                why: "it is there twice and would wait for itself: give each lock once, to read or to write",
            }),
        }
    }

    /// Blocks until all members are held.
    ///
    /// An outage is waited for as each session's [`RetryPolicy`](crate::RetryPolicy) says.
    ///
    /// # Errors
    ///
    /// [`Error::WouldDeadlock`], at once, when this thread holds a member already; [`Error::Lost`]
    /// when it has lost that hold and its guards still live. [`Error::Unavailable`] when no server
    /// can be reached, or none gives the answer that is needed, for longer than the retry policy
    /// allows, [`Error::Lost`] when a member was lost while others were waited for,
    /// [`Error::Closed`] when a session is closed, [`Error::NoAuth`] when an ACL refuses; what a
    /// member of permits refuses ([`Error::InvalidConfig`], [`Error::InconsistentLeases`]). It is
    /// the first that went wrong; whatever was taken is released, and whatever was queued is
    /// removed.
    #[doc(alias = "acquire")]
    #[must_use = "if unused the ZkMultiLock will immediately unlock"]
    pub fn lock(&self) -> Result<ZkMultiGuard> {
        until_got(|| self.set.acquire(Mode::Wait, Limit::NONE))
    }

    /// All members if all are free, `None` if somebody else has one: nothing is held then.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`] when ZooKeeper does not answer within a
    /// sixth of the shortest session timeout, in all.
    #[doc(alias = "tryAcquire")]
    #[must_use = "if unused the ZkMultiLock will immediately unlock"]
    pub fn try_lock(&self) -> Result<Option<ZkMultiGuard>> {
        self.lock_timeout(Duration::ZERO)
    }

    /// All members within `timeout`, or `None` if others had one of them all the time that was left
    /// for it: nothing is held then.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock); [`Error::Unavailable`] when the time ran out in an outage, or
    /// before the server answered for the next member: `None` always means contention. A timeout of
    /// zero is [`try_lock`](Self::try_lock).
    #[doc(alias = "try_lock_for")]
    #[must_use = "if unused the ZkMultiLock will immediately unlock"]
    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<ZkMultiGuard>> {
        self.lock_with(Wait::timeout(timeout))
    }

    /// As [`lock`](Self::lock), for as long as `wait` says: a timeout, a deadline and a cancel
    /// token, or any of these. `None` if others had it all that time, as with
    /// [`lock_timeout`](Self::lock_timeout); never where only a token can end the wait.
    ///
    /// # Errors
    ///
    /// As [`lock_timeout`](Self::lock_timeout), and [`Error::Cancelled`].
    #[doc(alias = "try_lock_until")]
    #[must_use = "if unused the ZkMultiLock will immediately unlock"]
    pub fn lock_with(&self, wait: Wait) -> Result<Option<ZkMultiGuard>> {
        wait.acquire(|| self.set.operation_timeout(), |mode, limit| self.set.acquire(mode, limit))
    }
}

impl Set {
    /// Takes one member after the other. Whatever ends it half-way drops, and so releases, what was
    /// taken.
    fn acquire(&self, mode: Mode, limit: Limit<'_>) -> Result<Option<ZkMultiGuard>> {
        let thread = thread::current().id();
        for member in &self.members {
            if member.part().is_held_by(thread)? {
                return Err(Error::WouldDeadlock {
                    path: member.path().to_owned(),
                    why: "this thread holds it already and others could wait for it in a circle: drop its guards first",
                });
            }
        }
        let mut all = ZkMultiGuard::new();
        for &number in &self.order {
            let member = &self.members[number];
            let lost = all.signal().clone();
            match member.part().acquire(mode, limit.or_moot_by(lost.receiver())) {
                Ok(Some(held)) => all.add(number, held),
                Ok(None) => {
                    debug!("{}: somebody else has it; releasing the other members", member.path());
                    return Ok(None);
                }
                Err(e) => {
                    if matches!(e, Error::Cancelled { .. }) && !limit.is_cancelled() {
                        all.check()?; // it was a loss that ended the wait
                    }
                    return Err(e);
                }
            }
        }
        all.check()?;
        Ok(Some(all))
    }

    /// A sixth of the shortest session timeout: the bound of single steps.
    fn operation_timeout(&self) -> Duration {
        self.members
            .iter()
            .map(|member| member.part().session().timeout() / 6)
            .min()
            .unwrap_or_default()
    }
}

impl fmt::Debug for ZkMultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkMultiLock").field("members", &self.set.members).finish()
    }
}
