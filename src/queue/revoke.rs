//! Requests to a contender to let go: a message that is written to its node. Curator:
//! `Revoker.attemptRevoke`.

use super::call::query;
use super::{Contender, Queue, name};
use crate::error::{Error, Result};
use crate::limit::Limit;
use crate::session::ZkSession;
use crate::session::core::Core;
use crate::session::generation::{CallError, Operation};
use crate::session::leased_node::REVOKE_MESSAGE;
use crate::session::path::lock_path;
use crate::world;
use zk_wire::path;

impl Queue {
    /// Asks the contender with this node name to let go. Gives the node's data from before. `None`:
    /// there is no such node.
    pub(crate) fn revoke(&self, core: &Core, name: &str) -> Result<Option<Vec<u8>>> {
        if name.contains('/') || !is_contender(name) {
            let reason = format!("{name:?} is not the name of a node in a lock's queue");
            return Err(Error::InvalidConfig { what: "contender", reason });
        }
        revoke(core, &path::join(&self.dir, name))
    }
}

impl ZkSession {
    /// Asks the contender with the node `path` to let go of a lock, or to stop waiting for it. This
    /// does what [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke) does, for a node of
    /// which only the path is known: the path below the session's chroot, as
    /// [`Held::path`](crate::Held::path) and log lines show it. The node may be any client's. Gives
    /// the node's data as it was before. `None`: there is no such node any more.
    ///
    /// ```no_run
    /// # fn main() -> zk_mutex::Result<()> {
    /// use zk_mutex::ZkSession;
    ///
    /// let session = ZkSession::connect("127.0.0.1:2181")?;
    /// let node = "/locks/orders/_c_5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab-lock-0000000031";
    /// if let Some(data) = session.attempt_revoke(node)? {
    ///     println!("{} was asked to let go", String::from_utf8_lossy(&data));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::InvalidPath`] if this is not the path of a node in a lock's queue: no other node is
    /// ever written over. Otherwise as [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke).
    pub fn attempt_revoke(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let chroot = self.core().chroot();
        lock_path(chroot, path)?;
        if !path.rsplit_once('/').is_some_and(|(_, name)| is_contender(name)) {
            let rule = "its last part must be the name of a node in a lock's queue";
            return Err(Error::InvalidPath { path: path.to_owned(), rule });
        }
        revoke(self.core(), &format!("{chroot}{path}"))
    }
}

/// Only such a node may be written over. A semaphore's lease is one too.
fn is_contender(name: &str) -> bool {
    name::parse(name).is_some() || !name::lease_id(name).is_empty()
}

fn revoke(core: &Core, path: &str) -> Result<Option<Vec<u8>>> {
    let limit = Limit::after(core.operation_timeout());
    let write = Operation::SetData { path, data: REVOKE_MESSAGE, version: None };
    // The contender as it was before the write; `Some(None)` if we may not read it.
    let mut before = None;
    query("attempt_revoke", core, path, &limit, |generation, _| {
        // The data is read before the first write, and only once. After a write whose answer was
        // lost, a second read would find our own message.
        if before.is_none() {
            before = match generation.read(path, false, &limit) {
                Ok(node) => Some(Some(Contender::of("", false, 0, node))),
                // The node's ACL may allow us to write but not to read.
                Err(CallError::NoAuth) => Some(None),
                Err(CallError::NoNode) => return Ok(None),
                Err(e) => return Err(e),
            };
        }
        match generation.call(write, &limit) {
            Ok(_) => {
                let (contender, by) = (before.take().flatten(), world::host_and_process());
                let session = generation.session_id().unwrap_or(0);
                match &contender {
                    Some(contender) => {
                        info!("{path}: {contender}, asked to let go by {by}, session 0x{session:x}")
                    }
                    None => info!("{path}: asked to let go by {by}, session 0x{session:x}"),
                }
                Ok(Some(contender.map(|contender| contender.data).unwrap_or_default()))
            }
            Err(CallError::NoNode) => Ok(None),
            Err(e) => Err(e),
        }
    })
}
