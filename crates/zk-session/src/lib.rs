#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[macro_use]
#[doc(hidden)]
pub mod logging; // comes first: the other modules use its macros

#[doc(hidden)]
pub mod acl;
mod callbacks;
#[doc(hidden)]
pub mod cancel;
#[doc(hidden)]
pub mod clock;
mod config;
mod connect_string;
mod connection;
#[doc(hidden)]
pub mod core;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod event;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod generation;
mod hold;
#[doc(hidden)]
pub mod lease;
#[doc(hidden)]
pub mod limit;
#[doc(hidden)]
pub mod machine;
#[doc(hidden)]
pub mod nonblocking;
#[doc(hidden)]
pub mod nonce;
#[doc(hidden)]
pub mod notifier;
#[cfg(zk_sim)]
pub mod observed;
mod parents;
mod path;
#[doc(hidden)]
pub mod process;
#[doc(hidden)]
pub mod raw;
#[doc(hidden)]
pub mod requests;
#[doc(hidden)]
pub mod retry;
mod session;
mod sight;
#[doc(hidden)]
pub mod signal;
mod status;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
mod watch;
#[doc(hidden)]
pub mod world;

pub use acl::{Acl, AclEntry, Permissions};
pub use cancel::CancelToken;
pub use config::Config;
/// The channels crate, in the version of the `Receiver`s that this crate gives out.
pub use crossbeam_channel;
pub use error::{Cause, Error, HostFailure, LossReason, Result};
pub use event::{SessionEvent, SessionState};
pub use hold::Ephemeral;
pub use lease::LostSignal;
pub use machine::Watched;
pub use machine::codec::{CreateMode, Node};
pub use requests::{Created, Op, OpOutcome, Requests};
pub use retry::RetryPolicy;
pub use session::Session;
pub use sight::event::WatchEvent;
pub use status::{SessionStats, Status};
#[cfg(feature = "tls")]
pub use tls::TlsConfig;
pub use watch::Watch;
pub use zk_wire::record::Stat;
