//! Asks a contender to release its lock, by a write to its node. It must not write to a node that
//! is not a contender's. Curator: `Revoker.attemptRevoke`.

use super::request::query;
use super::revoke_signal::REVOKE_MESSAGE;
use super::{Contender, name};
use crate::error::{Error, Result};
use crate::path::lock_path;
use crate::session::ZkSession;
use zk_session::unstable::{CallError, Core, Limit, Operation};
use zk_session::world;

impl ZkSession {
    /// Asks the client whose node is at `path` to release its lock, or to give up its place in the
    /// queue: the signal [`revoke_requested`](crate::Held::revoke_requested) of its guard becomes
    /// ready. The path is that of a [`Contender`] or of a guard
    /// ([`Held::path`](crate::Held::path)), as log lines have it too: it is below the session's
    /// chroot.
    ///
    /// Gives the data that the node had before: by default the host and the process id of the
    /// client that was asked. Gives `None` if the node does not exist any more.
    ///
    /// The client that was asked decides what to do, and when. It sends no answer, and nothing
    /// changes until it releases the lock. If you cannot wait for that, an operator has to end its
    /// process. A leader of an election that lets go resigns. Permits that were taken together are
    /// one hold: to ask for one of them is to ask for all. Readers of a session that share a node
    /// are asked together. The client may also be a Curator program that called `makeRevocable`;
    /// other clients do not listen. The holder of a [`ZkExclusiveLock`](crate::ZkExclusiveLock)
    /// cannot be asked by this call.
    ///
    /// This call overwrites the node's data, as Curator's `Revoker.attemptRevoke` does. From then
    /// on [`Contender::data`] is `__REVOKE__`, and this call returns the only copy of the old data.
    /// (It returns `__REVOKE__` if somebody asked before, and empty data if the node's ACL does not
    /// let us read.) Any client that may write to the node can ask. A line in the log at level info
    /// names the client that was asked and the process that asked.
    ///
    /// ```no_run
    /// # fn main() -> zk_mutex::Result<()> {
    /// use zk_mutex::{ZkMutex, ZkSession};
    ///
    /// let session = ZkSession::connect("127.0.0.1:2181")?;
    /// let mutex = ZkMutex::new(&session, "/locks/orders")?;
    /// for holder in mutex.holders()? {
    ///     session.attempt_revoke(&holder.path)?;
    ///     println!("{holder} was asked to let go"); // h7:4711, session 0x1000002a3c5f0001, for 12 s
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidPath`] if the path is not that of a node in a lock's queue: no other node
    ///   is overwritten, and nothing is sent.
    /// * [`Error::Unavailable`] when ZooKeeper does not answer within a sixth of the session
    ///   timeout. The client may have been asked all the same, and to ask again is safe.
    /// * [`Error::NoAuth`] when the node's ACL does not let us write.
    /// * [`Error::Closed`] when the session is closed.
    ///
    /// Source: Curator's `Revoker.attemptRevoke`.
    pub fn attempt_revoke(&self, path: impl AsRef<str>) -> Result<Option<Vec<u8>>> {
        let (chroot, path) = (self.core().chroot(), path.as_ref());
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
    query("attempt_revoke", core, path, &limit, |generation, _, _| {
        // The data is read before the first write, and only once. After a write whose answer was
        // lost, a second read would find our own message. A server that lags may not have the node
        // yet: so the read travels behind a `sync`.
        if before.is_none() {
            before = match generation.synced_read(path, false, &limit) {
                Ok(node) => Some(Some(Contender::of(path, false, node))),
                // The node's ACL may allow us to write but not to read.
                Err(CallError::NoAuth(_)) => Some(None),
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
