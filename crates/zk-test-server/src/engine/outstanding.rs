//! Changes that are prepared and not applied yet (`outstandingChanges`). The next request is
//! checked against them, so that overlapping requests have the same results as one after the other.

use super::HashMap;
use super::acl::Acl;
use super::node::{Node, Stat};
use std::collections::VecDeque;
use std::sync::Arc;

/// A node as it will be when all prepared writes are applied (`ChangeRecord`).
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) zxid: i64,
    pub(crate) path: String,
    /// None if the node will be deleted.
    pub(crate) stat: Option<Stat>,
    pub(crate) children: i64,
    pub(crate) acl: Arc<[Acl]>,
}

impl Change {
    /// The node in its present state.
    pub(crate) fn of(path: &str, node: &Node) -> Change {
        Change {
            zxid: -1,
            path: path.to_owned(),
            stat: Some(node.stat),
            children: node.children.len() as i64,
            acl: Arc::clone(&node.acl),
        }
    }

    pub(crate) fn gone(zxid: i64, path: String) -> Change {
        Change { zxid, path, stat: None, children: -1, acl: [].into() }
    }
}

/// The state to restore if a multi fails.
pub(crate) struct Before(Vec<Arc<Change>>);

#[derive(Debug, Default)]
pub(crate) struct Outstanding {
    queue: VecDeque<Arc<Change>>,
    by_path: HashMap<String, Arc<Change>>,
}

impl Outstanding {
    pub(crate) fn get(&self, path: &str) -> Option<&Arc<Change>> {
        self.by_path.get(path)
    }

    pub(crate) fn add(&mut self, change: Change) {
        let change = Arc::new(change);
        self.by_path.insert(change.path.clone(), Arc::clone(&change));
        self.queue.push_back(change);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Change> {
        self.queue.iter().map(|change| &**change)
    }

    /// The outstanding changes of these nodes and of their parents.
    pub(crate) fn before<'a>(&self, paths: impl Iterator<Item = &'a str>) -> Before {
        let mut before = Vec::new();
        for path in paths {
            before.extend(self.get(path).cloned());
            let parent = path.rsplit_once('/').filter(|_| !path.contains('\0'));
            before.extend(parent.and_then(|(parent, _)| self.get(parent)).cloned());
        }
        Before(before)
    }

    /// Undoes the changes of the multi with this zxid.
    pub(crate) fn roll_back(&mut self, zxid: i64, before: Before) {
        while self.queue.back().is_some_and(|change| change.zxid == zxid) {
            let Some(change) = self.queue.pop_back() else { break };
            self.by_path.remove(&change.path);
        }
        let Some(first) = self.queue.front().map(|change| change.zxid) else { return };
        for change in before.0.into_iter().filter(|change| change.zxid >= first) {
            self.by_path.insert(change.path.clone(), change);
        }
    }

    /// Forgets the changes up to this zxid, which the tree has now.
    pub(crate) fn applied(&mut self, zxid: i64) {
        while self.queue.front().is_some_and(|change| change.zxid <= zxid) {
            let Some(change) = self.queue.pop_front() else { break };
            if self.get(&change.path).is_some_and(|newest| Arc::ptr_eq(newest, &change)) {
                self.by_path.remove(&change.path);
            }
        }
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.by_path.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.by_path.clear();
    }
}
