//! `Settings`: what a program has set for one lock. A `LockBuilder` fills it (`recipes/settings.rs`),
//! and each place that needs a setting reads it here.

use std::time::Duration;

use super::WaitStrategy;
use super::held_state::HoldBounds;
use super::name::Layout;
use crate::session::ZkSession;
use zk_session::Acl;
use zk_session::core::Core;
use zk_session::process::Process;
use zk_session::world;

/// The settings of a lock. `LockBuilder::settings` checks them.
pub(crate) struct Settings {
    pub(crate) session: ZkSession,
    /// The lock's path, as the program gave it.
    pub(crate) path: String,
    /// What observers call the lock.
    pub(crate) name: String,
    pub(crate) data: Vec<u8>,
    pub(crate) acl: Acl,
    pub(crate) layout: Layout,
    pub(crate) hand_over: Duration,
    pub(crate) keep: Duration,
    pub(crate) strategy: WaitStrategy,
    /// How long one holder may have the lock.
    pub(crate) bounds: HoldBounds,
    /// After this time the log says who holds the lock for which a thread waits.
    pub(crate) warn_waiting_after: Duration,
    /// How many permits there are. Only a semaphore uses this.
    pub(crate) permits: u32,
}

impl Settings {
    /// The default settings of a lock.
    pub(crate) fn new(session: ZkSession, path: String) -> Self {
        Settings {
            session,
            path,
            name: String::new(),
            // By the host and the process id an operator finds the process.
            data: world::host_and_process().into_bytes(),
            acl: Acl::default(),
            layout: Layout::default(),
            hand_over: Duration::from_millis(20),
            keep: Duration::ZERO,
            strategy: WaitStrategy::default(),
            bounds: HoldBounds::default(),
            warn_waiting_after: Duration::from_secs(30),
            permits: 1,
        }
    }

    pub(crate) fn core(&self) -> &Core {
        self.session.core()
    }

    /// The process that has the lock's session. In a forked child nothing else can be asked.
    pub(crate) fn process(&self) -> &Process {
        self.core().process()
    }

    /// The lock's full path.
    pub(crate) fn dir(&self) -> String {
        format!("{}{}", self.core().chroot(), self.path)
    }

    /// A full path without the session's chroot, as programs and logs show it.
    pub(crate) fn shown<'a>(&self, full: &'a str) -> &'a str {
        self.core().shown(full)
    }

    /// How long one step of a call on the lock may take.
    pub(crate) fn operation_timeout(&self) -> Duration {
        self.core().operation_timeout()
    }
}
