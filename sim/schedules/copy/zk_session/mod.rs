//! Replaces the crate of the session, as far as the library's files below need it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering}; // not the engine's: no other thread decides by it

pub mod cancel;
pub mod clock;
pub mod error;
pub mod generation;
pub mod lease;
pub mod limit;
pub mod notifier;
pub mod process;
pub mod retry;
pub mod signal;
pub mod world;

pub use self::cancel::CancelToken;
pub use self::error::{Cause, Error, HostFailure, LossReason, Result};

/// What the library's files take from the session beside its face.
pub mod unstable {
    pub(crate) use super::Core;
    pub(crate) use super::clock::*;
    pub(crate) use super::error::{At, CLOSE};
    pub(crate) use super::generation::*;
    pub(crate) use super::lease::node::*;
    pub(crate) use super::lease::*;
    pub(crate) use super::limit::*;
    pub(crate) use super::notifier::*;
    pub(crate) use super::process::*;
    pub(crate) use super::signal::*;
}

/// The real one has a file of its own.
pub mod core {
    pub(crate) use super::Core;
}

use self::generation::Generation;
use crate::world::{Instant, Mutex};

/// The session of a scenario is always connected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SessionState {
    Connected,
    Suspended,
    Closed,
}

#[derive(Clone)]
pub struct ZkSession(Arc<Core>);

/// Gives out the current session, and a new one when its lease has ended.
pub struct Core {
    current: Mutex<Arc<Generation>>,
    nodes: AtomicUsize,
}

impl ZkSession {
    pub fn new() -> Self {
        let (current, nodes) = (Mutex::new(Generation::new(1)), AtomicUsize::new(0));
        ZkSession(Arc::new(Core { current, nodes }))
    }

    pub fn core(&self) -> &Core {
        &self.0
    }
}

impl Core {
    pub fn state(&self) -> SessionState {
        SessionState::Connected
    }

    pub fn outage_limit(&self, _begun: Instant) -> std::result::Result<Option<Instant>, Cause> {
        Ok(None)
    }

    pub fn current(&self) -> Arc<Generation> {
        self.current.lock().clone()
    }

    /// A full path as the user of the lock knows it.
    pub fn shown<'a>(&self, full: &'a str) -> &'a str {
        full
    }

    /// The session after this one.
    pub fn next(&self, old: &Generation) {
        let mut current = self.current.lock();
        if current.number == old.number {
            *current = Generation::new(old.number + 1);
        }
    }

    /// The number of a new node.
    pub fn new_node(&self) -> usize {
        self.nodes.fetch_add(1, Ordering::Relaxed)
    }

    /// How many nodes were made. They are numbered from zero.
    pub fn nodes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }
}
