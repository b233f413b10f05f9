//! Distributed locks over [Apache ZooKeeper](https://zookeeper.apache.org) for blocking, threaded
//! programs, without an async runtime. A lock is as pleasant to use as `std::sync::Mutex`. Its
//! guard knows in every fault whether it is still valid.
//!
//! ```no_run
//! # fn write(_: &str, _: zk_mutex::FencingToken) -> zk_mutex::Result<()> { Ok(()) }
//! # fn main() -> zk_mutex::Result<()> {
//! use zk_mutex::{ZkMutex, ZkSession};
//!
//! let session = ZkSession::connect("zk1:2181,zk2:2181,zk3:2181/app")?;
//! let mutex = ZkMutex::new(&session, "/locks/orders")?;
//! let guard = mutex.lock()?; // blocks; a thread that holds the lock gets another guard at once
//! write("order 17", guard.fencing_token())?; // the store refuses an older token
//! drop(guard); // released
//! # Ok(())
//! # }
//! ```
//!
//! | lock | for |
//! | --- | --- |
//! | [`ZkMutex`] | one holder at a time |
//! | [`ZkRwLock`] | many readers, or one writer |
//! | [`ZkSemaphore`] | at most *n* permits at a time; *n* can be changed while it is in use |
//! | [`ZkSemaphoreMutex`] | one holder at a time; one thread locks, another may unlock |
//! | [`ZkMultiLock`] | several locks as one, without deadlocks |
//! | [`ZkElection`] | one leader; the other candidates wait |
//! | [`ZkExclusiveLock`] | one node and no queue, for few contenders |
//!
//! The [`guide`] has the chapters, in the order to read them in. If you come from `std::sync`,
//! `parking_lot`, Curator, kazoo or Redisson, begin with what differs dangerously:
//! [`migration`](guide::migration).
//!
//! # What you can rely on
//!
//! * **Exclusion.** Two guards that exclude each other are never valid at once. A guard is valid
//!   until it is dropped or lost; [`is_held`](Held::is_held) tells. It is lost, at the latest, when
//!   the lease of its session ends: by this host's own clock, and before any server can have
//!   expired the session. The session renews the lease in the background; [`Held`] says how often,
//!   and what this assumes of the servers.
//! * **The holder is told.** The signal [`lost`](Held::lost) becomes ready when the lock is lost,
//!   at the latest when the lease ends.
//! * **Deadlines hold**, even if the network swallows everything.
//! * **What was not locked does not look locked.** If somebody else has the lock, a call that tries
//!   or has a deadline gives [`Error::WouldBlock`] or [`Error::TimedOut`], and never a value that
//!   `if let Ok(..)` or `?` take for a lock. An outage is [`Error::Unavailable`].
//! * **No orphans.** A node of ours that is no longer needed is deleted for sure, even if a reply
//!   was lost.
//! * **Fair.** First come, first served; a release wakes only the contenders whose turn it is. (A
//!   [`ZkExclusiveLock`] has no queue, and [`WaitStrategy::Parent`] wakes all that wait.)
//! * **It recovers.** After any outage the session connects again by itself. Waiters go on waiting,
//!   until their deadline or for the time of the [`RetryPolicy`].
//!
//! # Why a lock needs a fencing token
//!
//! A process may be paused (by a debugger, a suspended host, a storm of page faults) after it has
//! checked the guard and before it writes. When it wakes, the session may have expired and another
//! process may hold the lock, but this process goes on and writes. No lock can prevent that. Only
//! the store can refuse the write: give each write the [`FencingToken`] of its guard, and let the
//! store refuse a token lower than the highest it has seen. If the store cannot do that, call
//! [`check`](Held::check) right before each step that matters: that makes the window small, not
//! zero.
//!
//! # Threads, forks, logs
//!
//! [`ZkSession`] says which threads a session has. A forked child has nothing of its parent's
//! sessions: see [`guide::forks`]. The library logs through [`log`](https://docs.rs/log): changes
//! of sessions at level info, what an operator should see at warn and error, and the steps of the
//! protocol at debug.
//!
//! # Features
//!
//! None is on by default.
//!
//! * `tls`: `Config::tls`, connections over TLS.
//! * `sasl-digest-md5`: `Config::sasl_digest_md5`, a login by a user and a password.
//! * `sasl-gssapi`: `Config::sasl_gssapi`, a login by Kerberos. A build needs the packages
//!   `libkrb5-dev`, `pkg-config` and `libclang-dev` (as Debian names them), a running program
//!   `libgssapi-krb5-2`. [`guide::sasl`] has both.
//! * `metrics`: `MetricsObserver`, which feeds the crate `metrics`.
//! * `client`: `ZkSession::client`, a client of the crate `zookeeper` on the session of the locks,
//!   for programs that use that crate already. The compiler announces that a coming version of Rust
//!   rejects that crate's code: `ZkSession::client` says more.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

/// The crate of the session, which is a ZooKeeper client by itself: [`ZkSession::zookeeper`] gives
/// it. What the locks share with it ([`Acl`], [`CancelToken`], [`RetryPolicy`] and so on) is in the
/// root of this crate too.
#[macro_use(debug, error, info, queued, warn)]
pub extern crate zk_session;

#[cfg(feature = "client")]
mod client;
mod error;
mod fencing;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
pub mod guide;
mod local;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(zk_sim)]
pub mod observed;
mod observer;
mod path;
mod queue;
mod recipes;
mod session;

/// The channels crate, in the version of the `Receiver`s that this crate gives out. With its
/// `select!` a program waits for a [`LostSignal`] and for its own channels at once.
pub use crossbeam_channel;
pub use error::{Cause, Error, HostFailure, LossReason, OptionalExt, Result};
pub use fencing::FencingToken;
#[cfg(feature = "metrics")]
pub use metrics::MetricsObserver;
pub use observer::{LockLabel, Observer, WaitOutcome};
pub use queue::WaitStrategy;
pub use queue::name::Layout;
pub use queue::tally::LockStats;
pub use queue::{Contender, RevokeSignal};
pub use recipes::election::{ElectionEvent, Leadership, ZkCandidate, ZkElection};
pub use recipes::exclusive::{ZkExclusiveGuard, ZkExclusiveLock};
pub use recipes::guard::Held;
pub use recipes::multi::{Member, ZkMultiGuard, ZkMultiLock};
pub use recipes::mutex::{ZkMutex, ZkMutexGuard};
pub use recipes::rwlock::{ZkReadGuard, ZkRwLock, ZkWriteGuard};
pub use recipes::semaphore::{ZkPermit, ZkSemaphore, ZkSemaphoreMutex, ZkSemaphoreMutexGuard};
pub use recipes::settings::LockBuilder;
pub use recipes::wait::Wait;
pub use session::{SessionBuilder, ZkSession};
#[cfg(feature = "sasl-gssapi")]
pub use zk_session::Gssapi;
#[cfg(feature = "tls")]
pub use zk_session::TlsConfig;
pub use zk_session::{
    Acl, AclEntry, CancelToken, Config, LostSignal, Permissions, RetryPolicy, SessionEvent,
    SessionState, SessionStats, SessionStatus,
};
/// The client crate, in the version of the client that [`ZkSession::client`] gives.
#[cfg(feature = "client")]
pub use zookeeper;

/// With this, the doc tests compile the code of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
