//! The history of the newest tree: between which of its changes each node of a lock stood, and a
//! semaphore's number of permits had each value.
//!
//! The tree goes from one version to the next by each transaction that changes it. An answer is
//! true if it was true of a version that was the newest one at some moment between the question and
//! the answer.

use std::collections::BTreeMap;
use std::time::Duration;

use zk_sim_runtime::now;

use super::names::Node;
use crate::servers::Change;

#[derive(Default)]
pub(super) struct History {
    version: u64,
    /// The nodes of each folder.
    folders: BTreeMap<String, Folder>,
    /// The data of nodes that belong to no session.
    data: BTreeMap<String, Vec<Number>>,
}

/// A moment in the history.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    /// The world's time.
    pub(super) time: Duration,
    /// The version of the newest tree.
    pub(super) version: u64,
}

#[derive(Default)]
struct Folder {
    standing: Vec<Life>,
    /// In the order of their ends.
    gone: Vec<Life>,
}

/// One node, from its create to its end.
#[derive(Debug)]
pub(super) struct Life {
    /// Its name in its folder.
    pub(super) name: String,
    /// Its place, if it has a number.
    pub(super) node: Option<Node>,
    /// Its session; 0 for none.
    pub(super) owner: i64,
    pub(super) czxid: i64,
    /// The first version that has the node, and the first one that has it no more.
    pub(super) born: u64,
    pub(super) died: u64,
}

/// A number in the data of a node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    /// The first version with this number.
    pub(super) since: u64,
    /// `None`: there was no node, or its data was no number.
    pub(super) is: Option<u32>,
}

impl History {
    pub(super) fn moment(&self) -> Moment {
        Moment { time: now(), version: self.version }
    }

    /// The versions that were the newest ones at some moment since then.
    pub(super) fn since(&self, then: Moment) -> std::ops::RangeInclusive<u64> {
        then.version..=self.version
    }

    /// Takes the changes that lead to the next version.
    pub(super) fn changed(&mut self, changes: Vec<Change>) {
        self.version += 1;
        changes.into_iter().for_each(|change| self.change(change));
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Made { path, owner, czxid, data } => {
                let node = Node::numbered(&path);
                if owner <= 0 && node.is_none() {
                    self.has_data(path, Some(&data));
                } else if let Some((folder, name)) = path.rsplit_once('/') {
                    let (name, born) = (name.to_owned(), self.version);
                    let life = Life { name, node, owner, czxid, born, died: u64::MAX };
                    self.folders.entry(folder.to_owned()).or_default().standing.push(life);
                }
            }
            Change::Written { path, data } => {
                if self.data.contains_key(&path) {
                    self.has_data(path, Some(&data));
                }
            }
            Change::Gone { path } => {
                if self.data.contains_key(&path) {
                    return self.has_data(path, None);
                }
                let Some((folder, name)) = path.rsplit_once('/') else { return };
                let Some(Folder { standing, gone }) = self.folders.get_mut(folder) else { return };
                if let Some(at) = standing.iter().position(|life| life.name == name) {
                    gone.push(Life { died: self.version, ..standing.remove(at) });
                }
            }
        }
    }

    fn has_data(&mut self, path: String, data: Option<&[u8]>) {
        let text = data.and_then(|data| std::str::from_utf8(data).ok());
        let is = text.and_then(|text| text.trim().parse().ok());
        self.data.entry(path).or_default().push(Number { since: self.version, is });
    }

    /// The nodes of this folder that stood in some version since then.
    pub(super) fn lives<'a>(
        &'a self,
        folder: &str,
        then: Moment,
    ) -> impl Iterator<Item = &'a Life> + use<'a> {
        let stood = move |life: &&Life| life.died > then.version;
        self.folders.get(folder).into_iter().flat_map(move |Folder { standing, gone }| {
            standing.iter().chain(gone.iter().rev().take_while(stood))
        })
    }

    /// The nodes of this folder that stand now.
    pub(super) fn standing(&self, folder: &str) -> &[Life] {
        self.folders.get(folder).map_or(&[], |folder| &folder.standing)
    }

    /// The first version that had the node of this folder no more that went last; 0 if none has
    /// gone.
    pub(super) fn last_end(&self, folder: &str) -> u64 {
        let newest = self.folders.get(folder).and_then(|folder| folder.gone.last());
        newest.map_or(0, |life| life.died)
    }

    /// The numbers in the data of this node since then.
    pub(super) fn numbers(&self, path: &str, then: Moment) -> Vec<Number> {
        let all = self.data.get(path).map_or(&[][..], Vec::as_slice);
        match all.iter().rposition(|number| number.since <= then.version) {
            Some(first) => all[first..].to_vec(),
            None => [&[Number { since: 0, is: None }], all].concat(),
        }
    }
}

impl Life {
    /// Whether this version has the node.
    pub(super) fn is_in(&self, version: u64) -> bool {
        (self.born..self.died).contains(&version)
    }
}
