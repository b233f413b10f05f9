//! Asks a contender to release its lock, by a write to its node. All recipes' `attempt_revoke`
//! calls come here. It must not write to a node that is not a contender's. Curator:
//! `Revoker.attemptRevoke`.

use super::request::query;
use super::revoke_signal::REVOKE_MESSAGE;
use super::{Contender, Queue, name};
use crate::error::{Error, Result};
use crate::path::lock_path;
use crate::session::ZkSession;
use zk_session::unstable::{CallError, Core, Limit, Operation};
use zk_session::world;
use zk_wire::path;

impl Queue {
    /// Asks the contender with this node name to let go. Gives the node's data from before. `None`:
    /// there is no such node.
    pub(crate) fn revoke(&self, core: &Core, name: &str) -> Result<Option<Vec<u8>>> {
        revoke_contender(core, &self.dir, name)
    }
}

/// Asks the contender whose node has this name in the folder `dir`, a full path. The name comes
/// from the caller: if it is not the name of a contender, nothing is sent.
pub(crate) fn revoke_contender(core: &Core, dir: &str, name: &str) -> Result<Option<Vec<u8>>> {
    if name.contains('/') || !is_contender(name) {
        let reason = format!("{name:?} is not the name of a node in a lock's queue");
        return Err(Error::InvalidConfig { what: "contender", reason });
    }
    revoke(core, &path::join(dir, name))
}

impl ZkSession {
    /// Asks the client whose node is at `path` to give up the lock, or its place in the queue, as
    /// [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke) does for a contender. The path
    /// is below the session's chroot, as [`Held::path`](crate::Held::path) and log lines have it.
    /// Gives the data that the node had before. Gives `None` if the node does not exist any more.
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
    /// [`Error::InvalidPath`] if the path is not that of a contender's node: no other node is
    /// overwritten. Otherwise as [`ZkMutex::attempt_revoke`](crate::ZkMutex::attempt_revoke).
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

/// Only such a node may be written over. A permit's node is one too.
fn is_contender(name: &str) -> bool {
    name::parse(name).is_some() || !name::permit_id(name).is_empty()
}

fn revoke(core: &Core, path: &str) -> Result<Option<Vec<u8>>> {
    let limit = Limit::after(core.operation_timeout());
    let write = Operation::SetData { path, data: REVOKE_MESSAGE, version: None };
    // The contender as it was before the write; `Some(None)` if we may not read it.
    let mut before = None;
    query("attempt_revoke", core, path, &limit, |generation, _| {
        // The data is read before the first write, and only once. After a write whose answer was
        // lost, a second read would find our own message. A server that lags may not have the node
        // yet: so the read travels behind a `sync`.
        if before.is_none() {
            before = match generation.synced_read(path, false, &limit) {
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
