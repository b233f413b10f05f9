//! How a mutex is made.

use std::time::Duration;

use super::ZkMutex;
use super::lock::{Lock, Shape};
use crate::error::{Error, Result};
use crate::queue::name::Layout;
use crate::session::path;
use crate::session::{Acl, ZkSession};

/// ZooKeeper's limit for a whole request (`jute.maxbuffer`), less room for the path and the ACL.
const MAX_DATA: usize = (1 << 20) - (8 << 10);

/// Settings of a [`ZkMutex`]; from [`ZkMutex::builder`].
#[must_use = "nothing happens until build() is called"]
pub struct MutexBuilder {
    session: ZkSession,
    path: String,
    data: Option<Vec<u8>>,
    acl: Acl,
    layout: Layout,
    hand_over: Duration,
}

impl MutexBuilder {
    pub(super) fn new(session: ZkSession, path: String) -> Self {
        MutexBuilder {
            session,
            path,
            data: None,
            acl: Acl::default(),
            layout: Layout::default(),
            hand_over: Duration::from_millis(20),
        }
    }

    /// What our nodes say of us, for [`contenders`](ZkMutex::contenders) and operators; default the
    /// host's name and the process id.
    pub fn data(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// The ACL of our nodes and of the parents that are made; default [`Acl::Open`].
    pub fn acl(mut self, acl: Acl) -> Self {
        self.acl = acl;
        self
    }

    /// Whose names our nodes bear; default [`Layout::Curator`].
    pub fn layout(mut self, layout: Layout) -> Self {
        self.layout = layout;
        self
    }

    /// How long the threads of this process may hand the lock to each other, without a round trip,
    /// counted from when their node came first; default 20 ms. Zero means that every acquisition
    /// queues anew behind other processes.
    pub fn hand_over(mut self, bound: Duration) -> Self {
        self.hand_over = bound;
        self
    }

    /// Makes the mutex. Nothing is sent.
    ///
    /// # Errors
    ///
    /// As [`ZkMutex::new`]; [`Error::InvalidConfig`] for data beyond ZooKeeper's limit of 1 MiB for
    /// a request.
    pub fn build(self) -> Result<ZkMutex> {
        let chroot = self.session.core().chroot();
        path::lock_path(chroot, &self.path)?;
        let data = self.data.unwrap_or_else(default_data);
        if data.len() > MAX_DATA {
            return Err(Error::InvalidConfig {
                what: "node data",
                reason: format!(
                    "{} bytes are more than {MAX_DATA}, which is what ZooKeeper takes",
                    data.len()
                ),
            });
        }
        let shape = Shape { dir: format!("{chroot}{}", self.path), layout: self.layout, acl: self.acl };
        let lock = Lock::new(self.session, self.path, shape, data, self.hand_over)?;
        Ok(ZkMutex { lock: lock.into() })
    }
}

/// Where a contender is found.
fn default_data() -> Vec<u8> {
    #[cfg(unix)]
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    #[cfg(not(unix))]
    let host = std::env::var("COMPUTERNAME").unwrap_or_else(|_| "?".into());
    format!("{host}:{}", std::process::id()).into_bytes()
}
