//! Distributed locks over Apache ZooKeeper for blocking, threaded programs.

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod cancel;
mod clock;
mod error;
mod fencing;
mod guard;
mod limit;
mod local;
mod mutex;
mod queue;
mod session;

pub use cancel::CancelToken;
pub use error::{Cause, Error, HostFailure, LossReason, Result};
pub use fencing::FencingToken;
pub use guard::Held;
pub use mutex::{MutexBuilder, OwnedZkMutexGuard, ZkMutex, ZkMutexGuard};
pub use queue::Contender;
pub use queue::name::Layout;
pub use session::{
    Acl, EventHandler, LeaseProof, LostSignal, RetryPolicy, SessionBuilder, SessionEvent, SessionState,
    ZkSession,
};
