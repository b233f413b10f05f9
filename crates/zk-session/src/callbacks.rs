//! What the event loop's thread calls: functions for looks at nodes, and functions for some time.
//! They are the library's own, and must not block.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::BootTime;
use crate::logging::contained;
use crate::sight::teller::Teller;
use crate::world::{HashMap, HashSet, Mutex};

#[derive(Default)]
pub(super) struct Callbacks {
    watchers: Mutex<Watchers>,
    timers: Mutex<Timers>,
}

/// Who hears of a look of the machine, by the look's number.
#[derive(Default)]
struct Watchers {
    all: BTreeMap<u64, Watcher>,
    /// The number of the function for each folder, by the folder's full path.
    folders: HashMap<String, u64>,
}

/// Who hears of a look of the machine.
#[derive(Clone)]
pub(super) enum Watcher {
    /// The look of a folder: the listing, and the first change after it.
    Folder(Arc<FolderWatch>),
    /// A lasting look.
    Node(Arc<Teller>),
}

#[derive(Default)]
struct Timers {
    next: u64,
    all: BTreeMap<(BootTime, u64), Box<dyn FnOnce() + Send>>,
}

/// A function that is called when a node's children were listed, and when they have changed then.
/// A node has one such function at most: a later one replaces an earlier one. (Besides, any number
/// of [`Watch`](crate::Watch)es may watch the node.)
pub struct FolderWatch {
    dir: String,
    /// Returns false if it must not be called again. After a change the watch is over in any case.
    notify: Box<dyn Fn(Folder<'_>) -> bool + Send + Sync>,
}

/// The argument of a [`FolderWatch`].
pub enum Folder<'a> {
    /// The answer to the listing that has set the watch.
    Listed {
        /// The names of the children.
        names: Vec<&'a str>,
        /// The ids of our own pending deletes.
        pending: &'a HashSet<String>,
    },
    /// A child was created or deleted, or the children could not be listed. Or the watch ended with
    /// its connection, so that such a change would not be noticed. Or
    /// [`Generation::folder_changed`] was called.
    ///
    /// [`Generation::folder_changed`]: super::generation::Generation::folder_changed
    Changed,
}

impl FolderWatch {
    /// Returns false if it must not be called again.
    pub(super) fn notify(&self, folder: Folder<'_>) -> bool {
        (self.notify)(folder)
    }

    /// A function for the folder `dir`.
    pub fn new(dir: String, notify: Box<dyn Fn(Folder<'_>) -> bool + Send + Sync>) -> Arc<Self> {
        Arc::new(FolderWatch { dir, notify })
    }

    pub(crate) fn dir(&self) -> &str {
        &self.dir
    }
}

impl Callbacks {
    /// From now on this watcher hears of the look with this number. Gives the function that it
    /// replaces, with its number. The caller ends that look and drops the function when it has
    /// released its locks: the drop may run any code.
    pub(super) fn add_watcher(&self, number: u64, watcher: Watcher) -> Option<(u64, Watcher)> {
        let mut watchers = self.watchers.lock();
        let replaced = match &watcher {
            Watcher::Folder(folder) => watchers.folders.insert(folder.dir.clone(), number),
            Watcher::Node(_) => None,
        };
        watchers.all.insert(number, watcher);
        replaced.and_then(|number| Some((number, watchers.all.remove(&number)?)))
    }

    pub(super) fn watcher(&self, number: u64) -> Option<Watcher> {
        self.watchers.lock().all.get(&number).cloned()
    }

    /// The function for this folder, with its number.
    pub(super) fn folder(&self, dir: &str) -> Option<(u64, Arc<FolderWatch>)> {
        let watchers = self.watchers.lock();
        let number = *watchers.folders.get(dir)?;
        match watchers.all.get(&number)? {
            Watcher::Folder(folder) => Some((number, folder.clone())),
            Watcher::Node(_) => None,
        }
    }

    /// From now on nobody hears of the look with this number. The caller drops the result when it
    /// has released its locks.
    pub(super) fn remove_watcher(&self, number: u64) -> Option<Watcher> {
        let mut watchers = self.watchers.lock();
        let removed = watchers.all.remove(&number);
        if let Some(Watcher::Folder(folder)) = &removed {
            if watchers.folders.get(&folder.dir) == Some(&number) {
                watchers.folders.remove(&folder.dir);
            }
        }
        removed
    }

    /// Takes the tellers of all lasting looks: the session has ended.
    pub(super) fn take_tellers(&self) -> Vec<Arc<Teller>> {
        let mut watchers = self.watchers.lock();
        let mut tellers = Vec::new();
        watchers.all.retain(|_, watcher| match watcher {
            Watcher::Folder(_) => true,
            Watcher::Node(teller) => {
                tellers.push(teller.clone());
                false
            }
        });
        tellers
    }

    /// `act` is called at this time, unless `forget_timer` is called with the key that this gives.
    pub(super) fn at(&self, time: BootTime, act: Box<dyn FnOnce() + Send>) -> (BootTime, u64) {
        let mut timers = self.timers.lock();
        timers.next += 1;
        let key = (time, timers.next);
        timers.all.insert(key, act);
        key
    }

    pub(super) fn forget_timer(&self, key: (BootTime, u64)) {
        let forgotten = self.timers.lock().all.remove(&key);
        drop(forgotten); // outside the mutex
    }

    /// Calls the functions whose time has come. Returns the time of the next one.
    pub(super) fn run_timers(&self, now: BootTime) -> Option<BootTime> {
        loop {
            let mut timers = self.timers.lock();
            let first = timers.all.first_entry()?;
            let (time, _) = *first.key();
            if time > now {
                return Some(time);
            }
            let act = first.remove();
            drop(timers);
            contained(act);
        }
    }

    #[cfg(any(test, feature = "test"))]
    pub(super) fn timers_after(&self, time: BootTime) -> usize {
        self.timers.lock().all.range((time, u64::MAX)..).count()
    }

    /// How many watchers, folders and timers it has.
    #[cfg(any(test, feature = "test", zk_sim))]
    pub(super) fn len(&self) -> (usize, usize, usize) {
        let watchers = self.watchers.lock();
        (watchers.all.len(), watchers.folders.len(), self.timers.lock().all.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Watched;
    use std::time::Duration;

    fn folder(dir: &str) -> Watcher {
        Watcher::Folder(FolderWatch::new(dir.to_owned(), Box::new(|_| true)))
    }

    /// A program may lock a thousand paths, one after the other.
    #[test]
    fn nothing_is_left_of_a_watcher_that_was_removed_or_replaced_nor_of_a_timer() {
        let callbacks = Callbacks::default();
        let number_of = |dir| callbacks.folder(dir).map(|(number, _)| number);
        for round in 0..2 {
            let [first, second, other, node] = [1, 2, 3, 4].map(|number| 10 * round + number);
            assert!(callbacks.add_watcher(first, folder("/a")).is_none());
            let replaced = callbacks.add_watcher(second, folder("/a"));
            assert_eq!(replaced.map(|(number, _)| number), Some(first));
            assert!(callbacks.add_watcher(other, folder("/b")).is_none());
            let (teller, _events, _is_set) = Teller::new("/a", Watched::Node);
            assert!(callbacks.add_watcher(node, Watcher::Node(teller)).is_none());
            assert_eq!(callbacks.len(), (3, 2, 0));
            // The end of a look that was replaced comes late.
            assert!(callbacks.remove_watcher(first).is_none());
            assert_eq!((number_of("/a"), number_of("/b")), (Some(second), Some(other)));
            assert!([second, other].iter().all(|n| callbacks.remove_watcher(*n).is_some()));
            assert_eq!(callbacks.take_tellers().len(), 1);
            let now = BootTime::now();
            for later in [0, 5] {
                callbacks.at(now + Duration::from_secs(later), Box::new(|| ()));
            }
            assert_eq!(callbacks.run_timers(now), Some(now + Duration::from_secs(5)));
            assert_eq!(callbacks.run_timers(now + Duration::from_secs(5)), None);
            assert_eq!(callbacks.len(), (0, 0, 0));
        }
    }
}
