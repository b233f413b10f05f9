//! A hold whose node an operator had deleted before it was granted.
//!
//! For a short time this is nobody's fault: the news of the deletion may be on its way. So such a
//! hold counts for nothing in the checks of exclusion, and its holder has to be told soon
//! (`told.rs`). But some of these grants no news on its way can explain:
//!
//! * **Somebody else held the lock before the node was deleted, and still does.** The process that
//!   is granted the lock has seen its node in a listing, or has seen the node ahead of it go,
//!   before the deletion. By then the other contender stood in the queue and held the lock. It
//!   would have been seen, or else that other one was granted the lock while this node stood ahead
//!   of it. The same is true of permits: of those that are in use and were granted before the
//!   deletion, and this one, the one whose node was made last has counted all others.
//! * **The node has been gone for longer than any news takes**: a follower's `syncLimit` and a
//!   session timeout, on one connection. Time in which the process is stopped does not count.

use std::collections::BTreeMap;
use std::time::Duration;

use zk_mutex_simulated::observed::Observed;
use zk_sim_runtime::{ProcessId, clock_of, is_alive, now, process_name, stopped_for};
use zk_test_server::ensemble::NodeInfo;

use super::names::{self, Mode, Node};
use super::{Broken, Hold, Observer, Seen, excludes, is_downgrade};
use crate::workload::Recipe;

/// The end of a node that an operator has deleted.
pub(super) struct Gone {
    time: Duration,
    /// How long each process had been stopped by then.
    stopped: BTreeMap<ProcessId, Duration>,
}

/// The node of a waiter, and the node ahead of it, if there is one.
pub type Waiter = (String, Option<String>);

impl Observer {
    /// The nodes of the run's locks that stand in this tree and are not held, in the order of their
    /// places. Among permits there is no order: each that is not held has one ahead that is.
    pub fn waiters(&self, tree: &[NodeInfo]) -> Vec<Waiter> {
        self.seen(|seen| {
            let mut all = Vec::new();
            for place in &seen.setting.places {
                let (queue, leases) = (place.queue(), format!("{}/leases", place.path));
                let folders = match place.recipe {
                    Recipe::Semaphore { .. } | Recipe::SemaphoreMutex => vec![queue, leases],
                    _ => vec![queue],
                };
                for folder in folders {
                    all.extend(seen.waiters_in(tree, &folder));
                }
            }
            all
        })
    }
}

impl Seen {
    fn waiters_in(&self, tree: &[NodeInfo], folder: &str) -> Vec<Waiter> {
        let of_folder = |info: &NodeInfo| {
            let node = Node::numbered(&info.path).filter(|node| node.lock == *folder)?;
            let is_held = self.holds.iter().any(|hold| hold.hold.path == info.path);
            Some(((node.number, info.czxid), info.path.clone(), is_held))
        };
        let mut nodes: Vec<_> = tree.iter().filter_map(of_folder).collect();
        nodes.sort_by(|(one, ..), (two, ..)| {
            names::is_ahead(*two, *one).cmp(&names::is_ahead(*one, *two))
        });
        let is_unordered = folder.ends_with("/leases");
        let held = nodes.iter().find(|(.., is_held)| *is_held).map(|(_, path, _)| path.clone());
        let mut before = None;
        let mut waiters = Vec::new();
        for (_, path, is_held) in nodes {
            if !is_held {
                let ahead = if is_unordered { held.clone() } else { before.clone() };
                waiters.push((path.clone(), ahead));
            }
            before = Some(path);
        }
        waiters
    }

    /// A node that an operator wanted to delete is gone.
    pub(super) fn is_gone(&mut self, path: &str) {
        if self.deleted_by_others.contains_key(path) && Node::of(path).mode != Mode::Name {
            let processes: Vec<ProcessId> =
                self.sessions.values().map(|session| session.process).collect();
            let living = processes.into_iter().filter(|process| is_alive(*process));
            let stopped = living.map(|process| (process, stopped_for(process))).collect();
            self.gone.insert(path.to_owned(), Gone { time: now(), stopped });
        }
    }

    /// Checks the grant of a node that an operator had deleted before.
    pub(super) fn granted_without_node(&mut self, new: &Hold) -> Option<Broken> {
        let gone = self.gone.get(&new.hold.path)?;
        let session = new.hold.session_id()?;
        if self.ended_by_others.contains(&session)
            || !new.hold.is_held_at(clock_of(new.process))
            || new.node.mode == Mode::Name
        {
            return None;
        }
        let (time, before) = (gone.time, gone.stopped.get(&new.process).copied());
        let (path, who) = (&new.hold.path, process_name(new.process));
        let earlier: Vec<&Observed> = self
            .holds
            .iter()
            .filter(|old| old.since < time && self.counts_for(old.process, &old.hold, old.since))
            .filter(|old| match new.node.mode {
                Mode::Permit => old.node.mode == Mode::Permit && old.node.lock == new.node.lock,
                _ => excludes(&old.node, &new.node) && !is_downgrade(old, new),
            })
            .map(|old| &old.hold)
            .collect();
        let text = || {
            let first = earlier.first().map(|old| &old.path);
            format!(
                "{who} holds {path}, which an operator had deleted at {time:?}, and {} others are \
                 held since before that: {first:?}",
                earlier.len()
            )
        };
        let broken = match new.node.mode {
            Mode::Permit => {
                let most = self.setting.most_permits(&new.node.lock);
                most.filter(|most| earlier.len() >= *most).map(|_| ("too many permits", text()))
            }
            _ => (!earlier.is_empty()).then(|| ("two holders", text())),
        };
        // Without a connection since then nothing was heard.
        let is_attached = self
            .sessions
            .get(&session)
            .is_some_and(|of| of.epoch.is_some() && of.attached + self.news_takes() < now());
        let stopped = before.map_or(Duration::MAX, |before| stopped_for(new.process) - before);
        let is_old = is_attached && now() > time.saturating_add(self.news_takes() + stopped);
        self.counts.note("held without a node");
        broken.or_else(|| {
            let text = format!("{who} holds {path}, which an operator had deleted at {time:?}");
            is_old.then_some(("held without a node", text))
        })
    }

    /// For how long news may be on its way.
    fn news_takes(&self) -> Duration {
        (self.setting.sync_time + self.setting.session_timeout) * self.setting.slowness()
    }
}
