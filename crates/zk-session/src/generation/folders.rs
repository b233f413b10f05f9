//! The folders of locks, and the nodes above them: they are made when a request finds that they are
//! missing. Where the server has no containers, the session deletes its own empty ones
//! (`session/parents.rs`).

use super::{CallError, CreateMode, Generation, Operation, Reply};
use crate::acl::Acl;
use crate::clock::BootTime;
use crate::limit::Limit;
use crate::machine::Task;
use zk_wire::path;

impl Generation {
    /// Creates a container, and the containers above it that are missing. Where the server has no
    /// containers, they are persistent nodes (`parents.rs`).
    pub fn make_parents(&self, dir: &str, acl: &Acl, limit: &Limit<'_>) -> Result<(), CallError> {
        // Begins at the bottom: an ACL further up may not allow us to create nodes, and need not if
        // the parents exist.
        match self.make_parent(dir, acl, limit) {
            Ok(()) | Err(CallError::NodeExists) => Ok(()),
            Err(CallError::NoNode) if path::parent(dir) != "/" => {
                self.make_parents(path::parent(dir), acl, limit)?;
                match self.make_parent(dir, acl, limit) {
                    // Somebody may delete the parent meanwhile. Then the caller's own create fails,
                    // and the caller begins again.
                    Ok(()) | Err(CallError::NodeExists | CallError::NoNode) => Ok(()),
                    Err(e) => Err(e),
                }
            }
            Err(e) => Err(e),
        }
    }

    fn make_parent(&self, dir: &str, acl: &Acl, limit: &Limit<'_>) -> Result<(), CallError> {
        let is_chroot = dir == self.of_core.chroot.path;
        if is_chroot && self.of_core.chroot.is_required {
            return Err(CallError::Other(format!("NoNode (the chroot {dir} does not exist)")));
        }
        let create = |mode| {
            let create = Operation::Create { path: dir, data: &[], acl, mode };
            let (_, czxid) = self.call(create, limit)?.created()?;
            if is_chroot {
                info!("{dir}: the chroot did not exist and was made");
            }
            Ok(czxid)
        };
        if !self.of_core.parents.are_persistent() {
            let connection = (self.number, self.epoch());
            let created = create(CreateMode::Container).map(drop);
            if !self.of_core.parents.is_refusal(connection, &created) {
                return created;
            }
        }
        let czxid = create(CreateMode::Persistent)?;
        self.of_core.parents.made(dir, czxid, BootTime::now());
        self.connection.wake(); // the event loop learns when it is to look for empty parents
        Ok(())
    }

    /// Deletes those of the persistent parents that are empty, if it is time. Gives the time of the
    /// next look.
    pub(super) fn delete_empty_parents(&self, now: BootTime) -> Option<BootTime> {
        for path in self.of_core.parents.due(now) {
            self.connection.with(|machine, now| {
                // In an outage they would pile up; the next look comes in any case.
                if machine.is_up() {
                    machine.add_task(Task::Prune { path, is_ours: false }, now);
                }
            });
        }
        self.of_core.parents.next_look()
    }

    /// The persistent parents that still are as this session made them. Looks at them, if there is
    /// a connection.
    pub(super) fn own_parents(&self, limit: &Limit<'_>) -> Vec<String> {
        let mut all = self.of_core.parents.all();
        if all.is_empty() || !self.connection.with(|machine, _| machine.is_up()) {
            return Vec::new();
        }
        let looks: Vec<_> = all.iter().map(|path| (Operation::Exists { path }, None)).collect();
        let Ok(mut seen) = self.flight(&looks, limit) else { return Vec::new() };
        let mut at = 0..all.len();
        all.retain(|path| match at.next().map(|at| seen.take(at)) {
            Some(Ok(Reply::Stat(stat))) => self.of_core.parents.is_ours(path, &stat),
            _ => false,
        });
        all
    }
}
