//! How the holds of a session have ended in truth, for the account of its observer and for the
//! counts of its locks.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use zk_mutex_simulated::{
    LockStats, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkSession,
};

use super::{Job, Place, Recipe};
use crate::observer::{Observer, is_shared};

/// The check that what is counted is true.
pub(super) const UNTRUE: &str = "untrue count";

/// Of one session. All its threads share it.
#[derive(Clone, Default)]
pub(super) struct Account(Arc<Mutex<BTreeMap<Key, Ends>>>);

/// The name of a recipe, as observers are told it, and the path of a lock.
type Key = (&'static str, String);

/// The ends of the holds of one lock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    /// These were lost before they were released.
    pub(super) lost: u64,
    /// These may have been lost while they were released.
    pub(super) either: u64,
}

impl Account {
    /// A hold of this lock ends.
    pub(super) fn ends(&self, lock: Key, was_lost: bool) {
        self.change(lock, |ends| match was_lost {
            true => ends.lost += 1,
            false => ends.either += 1,
        });
    }

    /// A hold of this lock that was noted as the last is released, and was not lost until then.
    pub(super) fn was_released(&self, lock: Key) {
        self.change(lock, |ends| ends.either = ends.either.saturating_sub(1));
    }

    fn change(&self, lock: Key, change: impl FnOnce(&mut Ends)) {
        let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
        change(all.entry(lock).or_default());
    }

    /// The ends so far.
    pub(super) fn all(&self) -> BTreeMap<Key, Ends> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }
}

impl Ends {
    /// Whether the library may have counted this number of losses. `has_more`: a call for several
    /// locks may have lost holds that it gave to no thread.
    pub(super) fn allow(self, lost: u64, has_more: bool) -> bool {
        self.lost <= lost && (has_more || lost <= self.lost + self.either)
    }
}

/// The name of the recipe, and the path, of the lock to which this node belongs.
pub(super) fn lock_of(places: &[Place], node: &str) -> Option<Key> {
    let place = places.iter().find(|place| {
        node.strip_prefix(place.path.as_str()).is_some_and(|rest| rest.starts_with('/'))
    })?;
    let recipe = match place.recipe {
        Recipe::Mutex { .. } => "mutex",
        Recipe::ReadWrite if is_shared(node) => "read",
        Recipe::ReadWrite => "write",
        Recipe::Semaphore { .. } => "semaphore",
        Recipe::SemaphoreMutex => "semaphore_mutex",
        Recipe::Exclusive => "exclusive",
        Recipe::Election => "election",
    };
    Some((recipe, place.path.clone()))
}

/// A lock whose counts are compared with the truth at the end of its session.
pub(super) struct Counted {
    path: String,
    stats: Vec<Stats>,
}

/// The name of a recipe, and its counts.
type Stats = (&'static str, Box<dyn Fn() -> LockStats>);

impl Counted {
    /// All locks of the job, but for its elections, whose terms end with their candidates.
    pub(super) fn all(session: &ZkSession, job: &Job) -> Vec<Counted> {
        let lock = |place: &Place| {
            let path = place.path.as_str();
            macro_rules! counted {
                ($recipe:literal, $lock:expr) => {{
                    let lock = $lock.ok()?;
                    vec![($recipe, Box::new(move || lock.stats()) as Box<_>)]
                }};
            }
            let stats: Vec<Stats> = match place.recipe {
                // The settings are those of the path's other objects.
                Recipe::Mutex { watches_parent: false, .. } => {
                    counted!("mutex", ZkMutex::new(session, path))
                }
                Recipe::ReadWrite => {
                    let lock = ZkRwLock::new(session, path).ok()?;
                    let other = lock.clone();
                    vec![
                        ("read", Box::new(move || lock.read_stats()) as Box<_>),
                        ("write", Box::new(move || other.write_stats()) as Box<_>),
                    ]
                }
                Recipe::Semaphore { permits, .. } => {
                    counted!("semaphore", ZkSemaphore::new(session, path, permits))
                }
                Recipe::SemaphoreMutex => {
                    counted!("semaphore_mutex", ZkSemaphoreMutex::new(session, path))
                }
                Recipe::Exclusive => counted!("exclusive", ZkExclusiveLock::new(session, path)),
                Recipe::Mutex { .. } | Recipe::Election => return None,
            };
            Some(Counted { path: place.path.clone(), stats })
        };
        job.places.iter().filter_map(lock).collect()
    }

    /// Compares its counts with the truth. No thread waits for the lock or holds it any more.
    pub(super) fn check(self, observer: &Observer, account: &Account, has_more: bool) {
        let truth = account.all();
        for (recipe, stats) in &self.stats {
            let ends = truth.get(&(*recipe, self.path.clone())).copied().unwrap_or_default();
            let told = stats();
            let is_well = ends.allow(told.lost, has_more) && told.waiting == 0;
            if ends.lost + ends.either > 0 {
                let text = || format!("{recipe} {}: {told:?}, and in truth {ends:?}", self.path);
                observer.check(UNTRUE, is_well, text);
            }
        }
    }
}
