//! The functions that the event loop's thread calls: when the children of a node change, and at
//! some time. They are the library's own, and must not block.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::BootTime;
use crate::logging::contained;
use crate::world::{HashMap, HashSet, Mutex};

#[derive(Default)]
pub(super) struct Callbacks {
    /// By the node's full path.
    folders: Mutex<HashMap<String, Arc<FolderWatch>>>,
    timers: Mutex<Timers>,
}

#[derive(Default)]
struct Timers {
    next: u64,
    all: BTreeMap<(BootTime, u64), Box<dyn FnOnce() + Send>>,
}

/// A function that is called when a node's children were listed or have changed. A node has one
/// such function at most: a later one replaces an earlier one.
pub struct FolderWatch {
    dir: String,
    /// Returns false if it must not be called again.
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
    /// A child was created or deleted. Or the watch ended with its connection, so that such a
    /// change would not be noticed. Or [`Generation::folder_changed`] was called.
    ///
    /// [`Generation::folder_changed`]: super::generation::Generation::folder_changed
    Changed,
}

impl FolderWatch {
    /// A function for the folder `dir`.
    pub fn new(dir: String, notify: Box<dyn Fn(Folder<'_>) -> bool + Send + Sync>) -> Arc<Self> {
        Arc::new(FolderWatch { dir, notify })
    }

    pub(crate) fn dir(&self) -> &str {
        &self.dir
    }
}

impl Callbacks {
    /// From now on this function is called for its folder.
    pub(super) fn watch_folder(&self, watch: Arc<FolderWatch>) {
        // The replaced function is dropped after the lock is released: its drop may run any code.
        let replaced = self.folders.lock().insert(watch.dir.clone(), watch);
        drop(replaced);
    }

    pub(super) fn is_watched(&self, dir: &str) -> bool {
        self.folders.lock().contains_key(dir)
    }

    pub(super) fn notify_folder(&self, dir: &str, folder: Folder<'_>) {
        let watch = self.folders.lock().get(dir).cloned();
        let Some(watch) = watch else { return };
        if !(watch.notify)(folder) {
            let mut folders = self.folders.lock();
            if folders.get(dir).is_some_and(|other| Arc::ptr_eq(other, &watch)) {
                folders.remove(dir);
            }
        }
    }

    /// The connection with all watches is gone.
    pub(super) fn notify_all_folders(&self) {
        let folders: Vec<String> = self.folders.lock().keys().cloned().collect();
        folders.iter().for_each(|dir| self.notify_folder(dir, Folder::Changed));
    }

    /// `act` is called at this time.
    pub(super) fn at(&self, time: BootTime, act: Box<dyn FnOnce() + Send>) {
        let mut timers = self.timers.lock();
        timers.next += 1;
        let number = timers.next;
        timers.all.insert((time, number), act);
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

    /// How many functions it has: for folders, and for times.
    #[cfg(zk_sim)]
    pub(super) fn len(&self) -> (usize, usize) {
        (self.folders.lock().len(), self.timers.lock().all.len())
    }
}
