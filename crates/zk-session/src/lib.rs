#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[macro_use]
#[doc(hidden)]
pub mod logging; // comes first: the other modules use its macros

// The modules that need no docs on each item have none in the face, and only some in `unstable`.

mod acl;
mod callbacks;
mod cancel;
#[allow(missing_docs)]
mod clock;
mod config;
mod connect_string;
mod connection;
#[allow(missing_docs)]
mod core;
#[cfg(all(debug_assertions, any(test, feature = "test"), not(zk_sim)))]
mod counted;
mod error;
mod event;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
#[allow(missing_docs)]
mod generation;
mod hold;
#[cfg(any(feature = "test", zk_sim))]
#[doc(hidden)]
pub mod kept;
mod lease;
#[allow(missing_docs)]
mod limit;
mod machine;
mod nonblocking;
mod nonce;
#[allow(missing_docs)]
mod notifier;
#[cfg(zk_sim)]
pub mod observed;
mod parents;
mod path;
mod process;
#[allow(missing_docs)]
mod raw;
mod requests;
mod retry;
mod sasl;
mod session;
mod sight;
#[allow(missing_docs)]
mod signal;
mod status;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "no_tls.rs"]
mod tls;
#[doc(hidden)]
pub mod unstable;
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
#[cfg(feature = "sasl-gssapi")]
pub use sasl::Gssapi;
pub use session::Session;
pub use sight::event::WatchEvent;
pub use status::{SessionStats, SessionStatus};
#[cfg(feature = "tls")]
pub use tls::TlsConfig;
pub use watch::Watch;
pub use zk_wire::record::Stat;
