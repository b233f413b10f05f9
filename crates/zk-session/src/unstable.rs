//! What the locks of this workspace take of a session beside its documented face. It is no part of
//! the face: any version may change it.
//!
//! A recipe at the server makes its node and lists the queue in one flight, registers the thread
//! that waits before the watch is set, and puts its node under the lease with a function that runs
//! when the node is lost. The face has none of these, because most programs need none: it has
//! requests that wait, watches as channels, and nodes that are held.

// ---- the session, and one generation of it ----
pub use crate::core::Core;
pub use crate::event::{Notice, Observing};
pub use crate::generation::Generation;
pub use crate::process::{PerProcess, Process};
pub use crate::raw::RawNews;

/// Whether a session can be connected with this connect string; nothing is sent, and no name is
/// looked up.
pub fn check_connect_string(text: &str) -> crate::Result<()> {
    crate::connect_string::ConnectString::parse(text).map(drop)
}

// ---- requests and their answers ----
pub use crate::error::{ANSWER_TOO_LONG, At, CLOSE, TRANSIENT_CODES};
pub use crate::generation::{Listed, create_contender};
pub use crate::limit::{Ended, Limit, Overlong};
pub use crate::machine::codec::{CallError, CreateMode, Listing, Node, Operation, Reply, error};
pub use crate::machine::{Answers, Outcome, Removal};
pub use crate::retry::Retry;

// ---- who is told of what ----
pub use crate::callbacks::{Folder, FolderWatch};
pub use crate::notifier::{EventMask, Notifier, Registration, WatchRegistry};
pub use crate::signal::{Once, Signal};

// ---- nodes under the lease ----
pub use crate::clock::{BootTime, SharedTime};
pub use crate::lease::node::{LeasedNode, Listener, NodeWatch};
pub use crate::lease::{Bounds, Refused};

// ---- what has nothing to do with a session ----
pub use crate::logging::contained;
pub use crate::nonblocking::{read_some, write_some};

/// Whose a node with a common name is.
pub mod nonce {
    pub use crate::nonce::*;
}

#[cfg(feature = "test")]
pub use crate::machine::Bench;
