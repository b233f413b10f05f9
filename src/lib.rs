//! Distributed locks over [Apache ZooKeeper](https://zookeeper.apache.org) for blocking, threaded
//! programs: as pleasant as `std::sync::Mutex`, and honest under faults. No async runtime.
//!
//! ```no_run
//! # fn write(_: &str, _: zk_mutex::FencingToken) -> zk_mutex::Result<()> { Ok(()) }
//! # fn main() -> zk_mutex::Result<()> {
//! use zk_mutex::{ZkMutex, ZkSession};
//!
//! let session = ZkSession::connect("zk1:2181,zk2:2181,zk3:2181/app")?;
//! let mutex = ZkMutex::new(&session, "/locks/orders")?;
//! let guard = mutex.lock()?; // blocks; re-entrant on its thread
//! write("order 17", guard.fencing_token())?; // the store refuses an older token
//! drop(guard); // released
//! # Ok(())
//! # }
//! ```
//!
//! | lock | for |
//! | --- | --- |
//! | [`ZkMutex`] | one at a time |
//! | [`ZkRwLock`] | many that read, or one that writes |
//! | [`ZkSemaphore`] | at most *n* at a time; the number can be changed while it is in use |
//! | [`ZkSemaphoreMutex`] | one at a time, locked by one thread and unlocked by another |
//! | [`ZkMultiLock`] | several locks as one, without deadlocks |
//! | [`ZkElection`] | a leader, and those who stand by |
//! | [`ZkExclusiveLock`] | the simplest protocol, for small groups |
//!
//! Which of them when: [`guide::which_lock`]. With which clients of other languages: [`guide::interop`]. What each costs:
//! [`guide::costs`]. Coming from Curator, kazoo, `std::sync` or `parking_lot`: [`guide::migration`]. To test a
//! program that locks: [`guide::testing`].
//!
//! # What you can rely on
//!
//! * **Exclusion.** No two guards are valid at once. A guard is valid while
//!   [`is_held`](Held::is_held): its lease ends, by this host's own clock, before any server can
//!   have expired the session. The session renews the lease in the background; [`Held`] says how
//!   often, and what this assumes of the servers.
//! * **The holder is told.** [`lost`](Held::lost) becomes ready exactly when the hold is lost, at
//!   the latest when the lease ends.
//! * **Deadlines hold**, in a black hole too. `Ok(None)` always means that somebody else was in the
//!   queue; an outage is [`Error::Unavailable`].
//! * **No orphans.** A node that should go is deleted for sure, whatever reply was lost.
//! * **Fair.** First come, first served; a release wakes one waiter, not the herd.
//! * **It recovers.** After any outage the session re-establishes itself, and waiters keep waiting.
//!
//! # Why a lock needs a fencing token
//!
//! A lock cannot stop a process that was paused (a debugger, a suspended host, a storm of page
//! faults) between its last look at the guard and its write. By the time it wakes, the session may
//! have expired and the lock may be somebody else's. Only the store that is written to can refuse
//! it: give each write the [`FencingToken`] of its guard, and let the store refuse a token lower
//! than the highest it has seen. Where the store cannot do that, call [`check`](Held::check) right
//! before each step that matters: it makes the window small, not zero.
//!
//! # Which faults, and what you see
//!
//! The chapter [`guide::faults`] has the table. [`guide::guarantees`] says what the promises above
//! assume of servers and clocks.
//!
//! # Threads and forks
//!
//! See [`ZkSession`]. The library logs through [`log`](https://docs.rs/log): session transitions at
//! info, what an operator should see at warn and error, the steps of the protocol at debug.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[macro_use]
mod logging; // first: its macros are for all that follow

mod cancel;
mod clock;
mod election;
mod error;
mod exclusive;
mod fencing;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod guard;
pub mod guide;
mod lane;
mod limit;
mod local;
mod multi;
mod mutex;
#[cfg(zk_sim)]
pub mod observed;
mod queue;
mod rwlock;
mod semaphore;
mod session;
mod settings;
mod signal;
mod wait;
mod world;

pub use cancel::CancelToken;
/// The channels crate, in the version whose `Receiver` this crate gives out: its `select!` waits for
/// a [`LostSignal`] and for the application's own channels at once.
pub use crossbeam_channel;
pub use election::{ElectionEvent, Leadership, ZkCandidate, ZkElection};
pub use error::{Cause, Error, HostFailure, LossReason, Result};
pub use exclusive::{ZkExclusiveGuard, ZkExclusiveLock};
pub use fencing::FencingToken;
pub use guard::Held;
pub use multi::{Member, ZkMultiGuard, ZkMultiLock};
pub use mutex::{PersistentLock, ZkMutex, ZkMutexGuard};
pub use queue::Contender;
pub use queue::name::Layout;
pub use queue::strategy::WaitStrategy;
pub use rwlock::{ZkReadGuard, ZkRwLock, ZkWriteGuard};
pub use semaphore::{ZkPermit, ZkSemaphore, ZkSemaphoreMutex, ZkSemaphoreMutexGuard};
pub use session::{
    Acl, EventHandler, LostSignal, RetryPolicy, RevokeSignal, SessionBuilder, SessionEvent, SessionState,
    ZkSession,
};
pub use settings::LockBuilder;
pub use wait::Wait;
/// The client crate, as [`ZkSession::client`] gives it: its types, in the version that fits.
#[cfg(feature = "client")]
pub use zookeeper;

/// The code of README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
