//! Asking whoever has a node in the queue to let go. Curator: `Revoker.attemptRevoke`.

use std::time::Duration;

use super::Queue;
use super::call::ask;
use super::name;
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::session::ZkSession;
use crate::session::core::Core;
use crate::session::generation::{CallError, Operation};
use crate::session::hold::REVOKE_MESSAGE;
use crate::session::path::lock_path;
use zk_wire::path;

impl Queue {
    /// Asks the contender whose node bears this name. False: there is no such node.
    pub(crate) fn revoke(&self, core: &Core, name: &str, patience: Duration) -> Result<bool> {
        if name.contains('/') || !is_contender(name) {
            let reason = format!("{name:?} is not the name of a node in a lock's queue");
            return Err(Error::InvalidConfig { what: "contender", reason });
        }
        revoke(core, &path::join(&self.dir, name), patience)
    }
}

impl ZkSession {
    /// Asks whoever holds or waits for a lock by the node `path` to let go: as
    /// [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke), for a node of which only the path is known (below the session's
    /// chroot, as [`Held::path`](crate::Held::path) and log lines have it). The node may be any client's. `false`: there is no such
    /// node any more.
    ///
    /// ```no_run
    /// # fn main() -> zk_mutex::Result<()> {
    /// use zk_mutex::ZkSession;
    ///
    /// let session = ZkSession::connect("127.0.0.1:2181")?;
    /// let node = "/locks/orders/_c_5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab-lock-0000000031";
    /// if session.attempt_revoke(node)? {
    ///     println!("asked; it lets go when it will");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] if it is not the path of a node in a lock's queue, so that nothing else is written over; otherwise as
    /// [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke).
    pub fn attempt_revoke(&self, path: &str) -> Result<bool> {
        let chroot = self.core().chroot();
        lock_path(chroot, path)?;
        if !path.rsplit_once('/').is_some_and(|(_, name)| is_contender(name)) {
            let rule = "its last part must be the name of a node in a lock's queue";
            return Err(Error::InvalidPath { path: path.to_owned(), rule });
        }
        revoke(self.core(), &format!("{chroot}{path}"), self.timeout() / 6)
    }
}

/// Nothing else is written over. A lease is asked for as a lock is.
fn is_contender(name: &str) -> bool {
    name::parse(name).is_some() || !name::lease_id(name).is_empty()
}

fn revoke(core: &Core, path: &str, patience: Duration) -> Result<bool> {
    let limit = Limit::after(patience);
    let write = Operation::SetData { path, data: REVOKE_MESSAGE, version: None };
    // To ask twice is to ask once.
    ask("attempt_revoke", core, path, &limit, |generation, _| match generation.call(write, &limit) {
        Ok(_) => {
            debug!("{path}: asked to let go");
            Ok(true)
        }
        Err(CallError::NoNode) => Ok(false),
        Err(e) => Err(e),
    })
}
