//! `ZkMultiLock`: several locks as one.
//!
//! This file takes the members one after the other, and releases those that it has when one fails.
//! `order.rs` guarantees that all multi-locks take them in one order. `member.rs` makes a member of
//! each kind of lock. `guard.rs` is the guard of all of them together.

mod guard;
mod member;
mod order;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::guard::ZkMultiGuard;
pub use self::member::Member;
use crate::error::{Error, Result};
use crate::queue::request::{Call, Mode, until_got};
use crate::recipes::calls::lock_calls;
use crate::recipes::wait::Wait;
use zk_session::unstable::Limit;
use zk_session::world::thread;

/// Several locks as one: a guard holds all of them, or the call holds none.
///
/// The members are any mix of this crate's locks, on one session or on several, on one ensemble or
/// on several; see [`Member`]. If one of them cannot be taken, the members that were taken before
/// are released.
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
/// let guard = transfer.lock_timeout(Duration::from_secs(5))?;
/// let tokens = guard.fencing_tokens(); // of 17, of 4, of the rates
/// println!("moving money under {tokens:?}");
/// guard.check()?; // all are still held
/// guard.unlock()?; // all at once
/// # Ok(())
/// # }
/// ```
///
/// # Deadlocks
///
/// A call takes the members one after the other, always in one order: by their ensemble (its hosts,
/// sorted), then by their full path (chroot included), then by their kind. The order in which they
/// were given makes no difference. So multi-locks, of all processes, never wait for each other in a
/// circle, on two conditions:
///
/// * A thread that calls this lock holds no other lock L such that a holder of a member may be
///   waiting for L. (Each of the two would wait for the other.) If the thread holds a member
///   already, the call gives [`Error::WouldDeadlock`]. But permits, and guards that may move
///   between threads, belong to no thread: the library cannot see that this thread holds one.
/// * If a multi-lock has members on several ensembles, all sessions, of all processes, name each
///   ensemble by the same hosts. Within one ensemble the order is that of the paths, however its
///   hosts are written.
///
/// If the same lock is given twice (also once to read and once to write, or through another session
/// or chroot), the multi-lock would wait for itself: [`new`](Self::new) refuses it. Two sessions
/// count as sessions of one ensemble if they name a host in common, by its name and port.
///
/// A multi-lock is not re-entrant, even if its members are.
///
/// # Fairness
///
/// As with the members: the call waits in the queue of one member at a time. While it waits for one
/// member, it keeps the members that it has taken. So use few members, and hold them briefly.
///
/// # When the session is lost
///
/// A guard is valid while [`is_held`](ZkMultiGuard::is_held) says so: while all members are held.
/// When the first of them is lost, the signal [`lost`](ZkMultiGuard::lost) of the guard becomes
/// ready, and [`check`](ZkMultiGuard::check) gives an error. If a member is lost while the call
/// waits for another, the call releases all members and gives [`Error::Lost`]. Threads that have no
/// member yet go on waiting, in a new session, for as long as their deadline or the
/// [`RetryPolicy`](crate::RetryPolicy) lets them wait in an outage.
///
/// # Differences from Curator's `InterProcessMultiLock`
///
/// * The members are taken in one order everywhere, so multi-locks do not deadlock.
/// * One timeout is for all members together.
/// * The guard has one signal of loss for all members.
///
/// Source: Curator's `InterProcessMultiLock`.
#[derive(Clone)]
pub struct ZkMultiLock {
    set: Arc<Set>,
}

struct Set {
    /// In the order in which the program gave them.
    members: Vec<Member>,
    /// Their numbers in the order in which they are taken.
    order: Vec<usize>,
}

impl ZkMultiLock {
    /// The lock of these members. Nothing is sent.
    ///
    /// Mutexes are members as they are: `ZkMultiLock::new([&one, &other])`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidConfig`] without a member; [`Error::WouldDeadlock`] when two members are the
    /// same lock, or are locks of different kinds on one path.
    pub fn new<M: Into<Member>>(members: impl IntoIterator<Item = M>) -> Result<Self> {
        let members: Vec<Member> = members.into_iter().map(M::into).collect();
        if members.is_empty() {
            let reason = "a ZkMultiLock needs one at least".to_owned();
            return Err(Error::InvalidConfig { what: "members", reason });
        }
        let keys = members.iter().map(Member::key).collect();
        match order::order(keys) {
            Ok(order) => Ok(ZkMultiLock { set: Arc::new(Set { members, order }) }),
            Err(twice) => Err(Error::WouldDeadlock {
                path: members[twice].path().to_owned(),
                why: "two members are this lock, and one would wait for the other for ever; give each lock once, to read or to write",
            }),
        }
    }
}

lock_calls! {
    ZkMultiLock gives ZkMultiGuard by std::convert::identity, of "all members together",
    unused: "the ZkMultiLock will immediately unlock", |lock| lock.set;

    /// Blocks until this thread holds all members. The call gives the first error that it meets.
    lock
    errors:
    /// * [`Error::WouldDeadlock`], at once, when this thread holds a member already.
    /// * [`Error::Lost`] when this thread held a member before and lost it, and its guards still
    ///   live, or when a member was lost while the call waited for another.
    /// * [`Error::InvalidConfig`] and [`Error::InconsistentPermits`] when a semaphore refuses, as
    ///   [`ZkSemaphore::acquire_many`](crate::ZkSemaphore::acquire_many) says.
    ;

    /// Takes all members if all are free. If somebody else has one of them, no member is held. The
    /// shortest of the sessions' timeouts counts.
    try_lock;
}

impl Set {
    fn lock(&self) -> Result<ZkMultiGuard> {
        let call = Call::new("lock");
        until_got(|| self.acquire(&call, Mode::Wait, Limit::NONE, &Cell::default()))
    }

    fn lock_with(&self, wait: &Wait) -> Result<ZkMultiGuard> {
        let (call, behind) = (Call::new("lock"), Cell::<usize>::default());
        wait.acquire(
            || self.operation_timeout(),
            |mode| self.members[behind.get()].0.missed(mode),
            |mode, limit| self.acquire(&call, mode, limit, &behind),
        )
    }

    /// Takes one member after the other. If the call ends before it has all of them, it drops, and
    /// so releases, those that it has. If it gives `None`, `behind` is the member that somebody else
    /// had when the time ended.
    fn acquire(
        &self,
        call: &Call,
        mode: Mode,
        limit: Limit<'_>,
        behind: &Cell<usize>,
    ) -> Result<Option<ZkMultiGuard>> {
        self.members.iter().try_for_each(|member| member.0.check_process())?;
        let thread = thread::current().id();
        for member in &self.members {
            if member.0.has_guards(thread)? {
                return Err(Error::WouldDeadlock {
                    path: member.path().to_owned(),
                    why: "this thread holds this member already, and threads that hold one lock and want more could wait for each other for ever; drop its guards first",
                });
            }
        }
        let mut all = ZkMultiGuard::new();
        // The member that was taken last, if somebody else had it until then.
        let mut awaited = None;
        for &number in &self.order {
            let member = &self.members[number];
            if let Some(awaited) = awaited.filter(|_| limit.is_past()) {
                behind.set(awaited); // no time is left to ask for this one
                return Ok(None);
            }
            let lost = all.signal().clone();
            match member.0.acquire(call, mode, limit.or_moot_by(lost.receiver())) {
                Ok(Some(held)) => {
                    all.add(number, held);
                    awaited = call.has_one().then_some(number);
                }
                Ok(None) => {
                    debug!("{}: somebody else has it; releasing the other members", member.path());
                    behind.set(number);
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

    /// The shortest operation timeout of the members' sessions.
    fn operation_timeout(&self) -> Duration {
        self.members
            .iter()
            .map(|member| member.0.settings().operation_timeout())
            .min()
            .unwrap_or_default()
    }
}

impl fmt::Debug for ZkMultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZkMultiLock").field("members", &self.set.members).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Acl, Config, Held, LossReason, ZkMutex, ZkSession};
    use zk_session::CreateMode;
    use zk_test_server::TestServer;

    const SOON: Duration = Duration::from_secs(20);
    const PATHS: [&str; 3] = ["/a", "/b", "/c"];

    /// Each order in which the program can give three members. They are taken in that of the paths.
    const ORDERS: [[usize; 3]; 6] =
        [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

    #[test]
    fn whichever_member_is_in_the_way_or_lost_it_is_named_in_whatever_order_they_are_given() {
        let server = TestServer::start().unwrap();
        let [ours, theirs] = [(); 2].map(|()| ZkSession::connect(server.connect_string()).unwrap());
        let theirs = theirs.zookeeper().requests();
        let make = |path: &str, mode| theirs.create(path, b"", mode, &Acl::Open).unwrap().path;
        PATHS.iter().for_each(|path| drop(make(path, CreateMode::Persistent)));
        for order in ORDERS {
            let given = order.map(|at| PATHS[at]);
            let members = given.map(|path| ZkMutex::new(&ours, path).unwrap());
            let all = ZkMultiLock::new(&members).unwrap();
            for path in PATHS {
                let node = format!("{path}/_c_6f8ad2cc-3b5e-4f0c-9a57-0b8f9d3c1e42-lock-");
                let node = make(&node, CreateMode::EphemeralSequential);
                let e = all.try_lock().err();
                assert_eq!(e, Some(Error::WouldBlock { path: path.to_owned() }), "{given:?}");
                theirs.delete(&node, None).unwrap();
            }
            for (at, path) in given.iter().enumerate() {
                let guard = all.lock().unwrap();
                let holds: Vec<&Held> = guard.holds().collect();
                assert!(holds.iter().zip(given).all(|(held, path)| held.path().starts_with(path)));
                let tokens: Vec<_> = holds.iter().map(|held| held.fencing_token()).collect();
                assert_eq!(guard.fencing_tokens(), tokens);
                let (lost, node) = (guard.lost(), holds[at].path().to_owned());
                ours.zookeeper().requests().delete(&node, None).unwrap();
                assert_eq!(lost.wait(SOON), Some(LossReason::NodeDeleted), "{path} of {given:?}");
                let reason = LossReason::NodeDeleted;
                assert_eq!(guard.check(), Err(Error::Lost { path: node, reason }), "{given:?}");
                assert!(!guard.is_held() && guard.valid_for().is_zero());
                // Of all that are lost, the first that was given is named.
                let first = holds[0].path().to_owned();
                let deleted = ours.zookeeper().requests().delete(&first, None);
                assert!(deleted.is_ok() || at == 0);
                assert_eq!(holds[0].lost().wait(SOON), Some(reason));
                assert_eq!(guard.check(), Err(Error::Lost { path: first, reason }), "{given:?}");
            }
        }
    }

    #[test]
    fn a_thread_that_holds_one_of_the_members_is_told_which() {
        let server = TestServer::start().unwrap();
        let session = ZkSession::connect(server.connect_string()).unwrap();
        for order in ORDERS {
            let members = order.map(|at| ZkMutex::new(&session, PATHS[at]).unwrap());
            let all = ZkMultiLock::new(&members).unwrap();
            for (at, held) in order.into_iter().zip(&members) {
                let _guard = held.lock().unwrap();
                let e = all.lock().err();
                let is_named = |path: &str| path == PATHS[at];
                assert!(matches!(&e, Some(Error::WouldDeadlock { path, .. }) if is_named(path)));
            }
        }
    }

    #[test]
    fn a_member_that_is_given_twice_is_named() {
        let session = ZkSession::builder("127.0.0.1:1").connect_in_background().unwrap();
        for twice in PATHS {
            let given = [PATHS[2], PATHS[0], PATHS[1], twice];
            let members = given.map(|path| ZkMutex::new(&session, path).unwrap());
            let e = ZkMultiLock::new(&members).err();
            assert!(matches!(e, Some(Error::WouldDeadlock { path, .. }) if path == twice));
        }
    }

    #[test]
    fn the_shortest_timeout_of_the_members_sessions_counts() {
        let server = TestServer::start().unwrap();
        let seconds = [5, 20, 10];
        let sessions = seconds.map(|seconds| {
            let config = Config::new(server.connect_string());
            ZkSession::connect(config.session_timeout(Duration::from_secs(seconds))).unwrap()
        });
        assert_eq!(sessions.each_ref().map(|of| of.status().timeout.as_secs()), seconds);
        for order in ORDERS {
            let members = order.map(|at| ZkMutex::new(&sessions[at], PATHS[at]).unwrap());
            let all = ZkMultiLock::new(&members).unwrap();
            assert_eq!(all.set.operation_timeout(), Duration::from_secs(5) / 6);
        }
    }
}
