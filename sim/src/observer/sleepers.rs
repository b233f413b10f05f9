//! No waiter sleeps although it could hold the lock, and no node is forgotten.
//!
//! The library has a slow poll behind its watches: a waiter lists the queue again every 60 s, in
//! case an event was lost. The poll would hide a lost wake-up. So the observer does not wait for
//! the end of a call but checks the existing nodes. If a node is first in its queue and not held,
//! its waiter should hold the lock, or the node should be deleted. Likewise, if a thread waits, it
//! must have a node in the queue, or another thread of its process must have the lock.
//!
//! Such a state may last for a while (`lasting.rs`). The bound is less than the poll's 60 s in every
//! run but in some of those with a timeout of 15 s or more: there the poll may hide a lost wake-up.

use zk_sim_runtime::ProcessId;
use zk_test_server::ensemble::NodeInfo;

use super::Seen;
use super::lasting::State;
use super::names::{self, Mode, Node};
use super::waits::Waiting;
use crate::workload::{Place, Recipe};

/// A node of a queue, or a lease.
struct Contender<'a> {
    info: &'a NodeInfo,
    node: Node,
    is_held: bool,
}

impl Seen {
    /// Adds the states in which somebody sleeps, or a node is forgotten.
    pub(super) fn sleepers(&self, tree: &[NodeInfo], all: &mut Vec<State>) {
        let mut suspects = Vec::new();
        for place in &self.setting.places {
            match place.recipe {
                Recipe::Mutex { .. } | Recipe::ReadWrite | Recipe::Election => {
                    self.queue(&self.contenders(tree, &place.path), &mut suspects);
                }
                Recipe::Semaphore { .. } | Recipe::SemaphoreMutex => {
                    self.semaphore(tree, &place.path, &mut suspects)
                }
                Recipe::Exclusive => {
                    let path = format!("{}/lock", place.path);
                    let node = tree.iter().find(|node| node.path == path && node.owner != 0);
                    if let Some(node) = node.filter(|node| !self.is_held(&node.path, node.owner)) {
                        // Each node of this lock has the same path.
                        let czxid = node.czxid;
                        let what = format!("{path}, made by {czxid:#x}, is held by no process");
                        suspects.push((what, node.owner));
                    }
                }
            }
        }
        self.waiters(tree, &mut suspects);
        let state = |(what, session)| State { check: "asleep", what, session, counts: true };
        all.extend(suspects.into_iter().map(state));
    }

    /// Checks that the first contender of a queue holds the lock.
    fn queue(&self, contenders: &[Contender<'_>], all: &mut Vec<(String, i64)>) {
        let place = |contender: &Contender<'_>| (contender.node.number, contender.info.czxid);
        for own in contenders.iter().filter(|own| !own.is_held && own.info.owner != 0) {
            let is_ahead = |other: &&Contender<'_>| {
                own.node.waits_for(other.node.mode) && names::is_ahead(place(other), place(own))
            };
            if !contenders.iter().any(|other| is_ahead(&other)) {
                all.push((
                    format!("{} is first, and no process holds it", own.info.path),
                    own.info.owner,
                ));
            }
        }
    }

    /// Checks that a lease node is held if there are enough permits. Only the contender that holds
    /// the mutex can have a lease node and still wait.
    fn semaphore(&self, tree: &[NodeInfo], path: &str, all: &mut Vec<(String, i64)>) {
        let entrance = self.contenders(tree, &format!("{path}/locks"));
        self.queue(&entrance, all);
        let leases = self.contenders(tree, &format!("{path}/leases"));
        let number = tree.iter().find(|node| node.path == path).and_then(|node| {
            std::str::from_utf8(&node.data).ok().and_then(|text| text.trim().parse::<usize>().ok())
        });
        let inside =
            |session: i64| entrance.iter().any(|node| node.is_held && node.info.owner == session);
        for lease in leases.iter().filter(|lease| !lease.is_held && lease.info.owner != 0) {
            let (path, session) = (&lease.info.path, lease.info.owner);
            if number.is_some_and(|number| leases.len() <= number) {
                all.push((format!("{path} waits, and there are permits enough"), session));
            } else if !inside(session) {
                all.push((
                    format!("{path} exists, and no process holds it or waits with it"),
                    session,
                ));
            }
        }
        for node in entrance.iter().filter(|node| node.is_held) {
            let session = node.info.owner;
            if !leases.iter().any(|lease| lease.info.owner == session && !lease.is_held) {
                all.push((
                    format!("{} is held, and no permit is asked for", node.info.path),
                    session,
                ));
            }
        }
    }

    /// Checks that each process with waiting threads has a contender in the queue or holds the
    /// lock.
    fn waiters(&self, tree: &[NodeInfo], all: &mut Vec<(String, i64)>) {
        for ((process, thread), Waiting { path, since, .. }) in &self.waiting {
            let current =
                self.sessions.iter().find(|(_, of)| of.process == *process && of.epoch.is_some());
            let Some((session, _)) = current else { continue };
            let Some(place) = self.setting.places.iter().find(|place| place.path == *path) else {
                continue;
            };
            if !self.is_on_the_way(tree, place, *process, *session) {
                let what = format!("thread {thread} waits for {path} since {since:?}");
                // Others may take an exclusive lock between any two looks, each time for a few
                // milliseconds: then it is not the same state.
                let end = match place.recipe {
                    Recipe::Exclusive => self.history.last_end(path),
                    _ => 0,
                };
                all.push((format!("{what}, and has no node there (version {end})"), *session));
            }
        }
    }

    fn is_on_the_way(
        &self,
        tree: &[NodeInfo],
        place: &Place,
        process: ProcessId,
        session: i64,
    ) -> bool {
        let folder = match place.recipe {
            Recipe::Exclusive => {
                let node = format!("{}/lock", place.path);
                return tree.iter().any(|other| other.path == node);
            }
            Recipe::Semaphore { .. } | Recipe::SemaphoreMutex => format!("{}/locks", place.path),
            Recipe::Mutex { .. } | Recipe::ReadWrite | Recipe::Election => place.path.clone(),
        };
        let has_it_alone = self.holds.iter().any(|hold| {
            hold.process == process && hold.node.lock == folder && hold.node.mode == Mode::Exclusive
        });
        let contenders = self.contenders(tree, &folder);
        has_it_alone || contenders.iter().any(|own| own.info.owner == session && !own.is_held)
    }

    fn contenders<'a>(&self, tree: &'a [NodeInfo], folder: &str) -> Vec<Contender<'a>> {
        let contender = |info: &'a NodeInfo| {
            let node = Node::numbered(&info.path).filter(|node| node.lock == folder)?;
            let is_held = self.is_held(&info.path, info.owner);
            Some(Contender { info, node, is_held })
        };
        tree.iter().filter_map(contender).collect()
    }

    fn is_held(&self, path: &str, session: i64) -> bool {
        self.holds.iter().any(|hold| {
            hold.hold.path == path && hold.hold.session_id().is_none_or(|of| of == session)
        })
    }
}
