//! The folders of locks, and the nodes above them: they are made in the flight of the first node
//! that goes there. Where the server has no containers, the session deletes its own empty ones
//! (`session/parents.rs`).

use super::{Answers, CallError, CreateMode, Generation, Operation, Removal, Reply};
use crate::acl::Acl;
use crate::clock::BootTime;
use crate::limit::{Ended, Limit};
use crate::machine::Task;
use std::iter;
use zk_wire::path;

impl Generation {
    /// Sends `requests` in one flight. The first of them makes or reads a node in the folder `dir`.
    /// If the folder is missing, they are sent again, and the folder and the missing nodes above it
    /// are made in the same flight: as containers or, where the server has none, as persistent nodes
    /// (`parents.rs`). `below`: the caller makes this node itself, and the nodes above it.
    ///
    /// A server deletes a container whose last child is gone, but not one that never had a child. So
    /// no folder is made in a flight of its own: if the caller's time ended after that flight, the
    /// folder would stay. It still does if the connection ends between the two creates.
    ///
    /// An error says why the folder could not be made. It is `NoNode` if `below` is missing.
    pub fn flight_in(
        &self,
        dir: &str,
        below: Option<&str>,
        acl: &Acl,
        requests: &[(Operation<'_>, Option<Removal>)],
        limit: &Limit<'_>,
    ) -> Result<Answers, CallError> {
        let parents = &self.of_core.parents;
        let missing_top = || match (below, &self.of_core.chroot) {
            (None, chroot) if chroot.is_required => {
                CallError::Other(format!("NoNode (the chroot {} does not exist)", chroot.path))
            }
            _ => CallError::NoNode,
        };
        // The topmost is the last one.
        let levels = self.levels(dir, below);
        let mut making = 0;
        loop {
            if limit.is_past() {
                return Err(CallError::Deadline); // a folder would be made for nothing
            }
            let mode = match parents.are_persistent() {
                true => CreateMode::Persistent,
                false => CreateMode::Container,
            };
            let connection = (self.number, self.epoch());
            let folders = levels.iter().take(making).rev();
            let make = |path| (Operation::Create { path, data: &[], acl, mode }, None);
            let mut answers = match making {
                0 => self.flight(requests, limit)?,
                _ => {
                    let folders = folders.clone().map(|path| make(*path));
                    let all: Vec<_> = folders.chain(requests.iter().cloned()).collect();
                    self.flight(&all, limit)?
                }
            };
            // The deepest folder whose parent exists decides. An ACL further up may refuse us a
            // node that exists already.
            let (mut decisive, mut has_no_containers) = (Err(CallError::NoNode), false);
            let made = answers.all.drain(..making.min(answers.all.len()));
            for (folder, answer) in folders.zip(made) {
                let created = answer.and_then(Reply::created).map(|(_, czxid)| czxid);
                if mode == CreateMode::Container {
                    has_no_containers |= parents.is_refusal(connection, &created);
                }
                match created {
                    Ok(czxid) => {
                        self.made_folder(folder, czxid, mode);
                        decisive = Ok(());
                    }
                    Err(CallError::NodeExists) => decisive = Ok(()),
                    Err(CallError::NoNode) => {}
                    Err(e) => decisive = Err(e),
                }
            }
            match answers.all.first() {
                Some(Err(CallError::NoNode)) => {}
                _ => {
                    if making > 0 && decisive.is_ok() {
                        parents.saw(path::parent(dir));
                    }
                    return Ok(answers);
                }
            }
            making = match decisive {
                _ if has_no_containers => making, // the same again with persistent nodes
                Err(CallError::NoNode) if making == levels.len() => return Err(missing_top()),
                Err(CallError::NoNode) if making == 0 => {
                    let stands = |dir: &&str| parents.stands(path::parent(dir));
                    levels.iter().position(stands).map_or(levels.len(), |last| last + 1)
                }
                // The folder was deleted meanwhile, or one that was seen earlier.
                Ok(()) | Err(CallError::NoNode) => levels.len(),
                Err(e) => return Err(e),
            };
        }
    }

    /// Fails if a node of ours in the folder `dir` stays because an ACL does not let us delete it:
    /// another one would stay there too. Its delete is tried again first, since somebody may have
    /// changed the ACL. Gives the path of the node with the error.
    pub fn may_delete_in(&self, dir: &str, limit: &Limit<'_>) -> Result<(), (String, CallError)> {
        while let Some((outcome, node)) = self.connection.retry_refused(dir) {
            let e = match limit.or_after(self.operation_timeout()).recv(&outcome) {
                Ended::Got(Ok(())) => continue,
                Ended::Got(Err(code)) => CallError::of_removal(code),
                Ended::Disconnected => CallError::Expired,
                Ended::Cancelled => CallError::Cancelled,
                Ended::Deadline if limit.is_past() => CallError::Deadline,
                Ended::Deadline => CallError::ConnectionLoss,
            };
            return Err((node, e));
        }
        Ok(())
    }

    /// The folder `dir` and the nodes above it that this library makes, from the bottom up.
    fn levels<'a>(&self, dir: &'a str, below: Option<&str>) -> Vec<&'a str> {
        let chroot = &self.of_core.chroot;
        let top = below.or_else(|| chroot.is_required.then_some(&*chroot.path)).unwrap_or("/");
        // The parent of the root is the root.
        let above = |dir: &&'a str| (*dir != "/").then(|| path::parent(dir));
        let all = iter::successors(Some(dir), above);
        all.take_while(|dir| dir.len() > top.len()).collect()
    }

    fn made_folder(&self, dir: &str, czxid: i64, mode: CreateMode) {
        if dir == self.of_core.chroot.path {
            info!("{dir}: the chroot did not exist and was made");
        }
        if mode == CreateMode::Persistent {
            self.of_core.parents.made(dir, czxid, BootTime::now());
            self.connection.wake(); // the event loop learns when it is to look for empty parents
        }
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
