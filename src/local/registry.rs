//! The lock registry: what the locks of one path on one session share, and which recipe uses which
//! path. Two recipes on one path would use one folder at the server, and each would misread the
//! other's nodes.
//!
//! A session does not know the other sessions of its process, so there is one registry for the
//! whole process. Beside it stands what each thread holds: a thread is warned before it waits for
//! itself, because it locks one path through two sessions.

use std::any::Any;
use std::collections::BTreeSet;
use std::collections::hash_map::Entry;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use zk_session::unstable::{PerProcess, Process};
use zk_session::world::thread::ThreadId;
use zk_session::world::{HashMap, LazyLock, Mutex};

static REGISTRY: LazyLock<PerProcess<Registry>> = LazyLock::new(PerProcess::default);

/// Where a lock is: a path of an ensemble. Ordered by ensemble, then path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LockKey {
    /// The hosts that the session names.
    pub(crate) ensemble: BTreeSet<String>,
    /// The full path.
    pub(crate) dir: Arc<str>,
}

impl LockKey {
    /// `ensemble`: the hosts as the session's connect string names them.
    pub(crate) fn new(ensemble: &[String], dir: &str) -> Self {
        // DNS names know no case.
        let ensemble = ensemble.iter().map(|host| host.to_ascii_lowercase()).collect();
        LockKey { ensemble, dir: dir.into() }
    }

    /// Whether this is the same path of the same ensemble. A server belongs to one ensemble, so two
    /// sessions that name a common host are on one ensemble, however their connect strings are
    /// written.
    pub(super) fn is_same(&self, other: &LockKey) -> bool {
        self.dir == other.dir && !self.ensemble.is_disjoint(&other.ensemble)
    }
}

/// What the locks of one path on one session share, until the last of them is gone. In a forked
/// child of their process it is never dropped: it has the holds of the parent.
pub(crate) struct Shared<T>(Arc<Interned<T>>);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(self.0.clone())
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.shared
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        self.0.process.keeps(&self.0);
    }
}

struct Interned<T> {
    process: Process,
    shared: T,
    dir: Arc<str>,
    registry: &'static Registry,
}

impl<T> Drop for Interned<T> {
    /// Removes its own entry. If another lock of the path was made meanwhile, that lock's entry
    /// stays.
    fn drop(&mut self) {
        self.registry.remove_dead(&self.dir);
    }
}

/// Gives what the locks of `recipe` at this key share within `session`; makes it for the first
/// lock. `Err`: another recipe, with this name, uses the path.
pub(crate) fn intern<T: Send + Sync + 'static>(
    key: &LockKey,
    session: u64,
    recipe: &'static str,
    make: impl FnOnce() -> T,
) -> Result<Shared<T>, &'static str> {
    REGISTRY.get().intern(key, session, recipe, make)
}

/// How many paths have a lock in this process.
#[cfg(zk_sim)]
pub(crate) fn len() -> usize {
    REGISTRY.get().0.lock().len()
}

/// How many threads of this process hold a lock.
#[cfg(zk_sim)]
pub(crate) fn holders() -> usize {
    HELD.get().lock().len()
}

/// The entries by path, so that no operation reads the entries of other paths: there may be a
/// hundred thousand.
#[derive(Default)]
struct Registry(Mutex<HashMap<Arc<str>, Vec<User>>>);

/// The locks of one path on one session.
struct User {
    key: LockKey,
    session: u64,
    recipe: &'static str,
    shared: Weak<dyn Any + Send + Sync>,
}

impl Registry {
    fn intern<T: Send + Sync + 'static>(
        &'static self,
        key: &LockKey,
        session: u64,
        recipe: &'static str,
        make: impl FnOnce() -> T,
    ) -> Result<Shared<T>, &'static str> {
        let mut all = self.0.lock();
        let users = all.get(&key.dir).map_or(&[][..], Vec::as_slice);
        let is_other = |user: &&User| {
            user.recipe != recipe && user.key.is_same(key) && user.shared.strong_count() > 0
        };
        if let Some(other) = users.iter().find(is_other) {
            return Err(other.recipe);
        }
        let mut own = users.iter().filter(|user| user.session == session && user.recipe == recipe);
        // The drop of the last reference takes this mutex itself, so no reference may be dropped
        // while it is locked. `found` is not dropped: all locks of one recipe share one type, so
        // the downcast gives it back.
        if let Some(found) = own.find_map(|user| user.shared.upgrade()) {
            drop(all);
            return found.downcast().map(Shared).map_err(|_| recipe);
        }
        let (process, dir) = (Process::default(), key.dir.clone());
        let made = Arc::new(Interned { process, shared: make(), dir, registry: self });
        let shared = Arc::downgrade(&made) as Weak<dyn Any + Send + Sync>;
        all.entry(key.dir.clone()).or_default().push(User {
            key: key.clone(),
            session,
            recipe,
            shared,
        });
        Ok(Shared(made))
    }

    fn remove_dead(&self, dir: &Arc<str>) {
        if let Entry::Occupied(mut users) = self.0.lock().entry(dir.clone()) {
            users.get_mut().retain(|user| user.shared.strong_count() > 0);
            if users.get().is_empty() {
                users.remove();
            }
        }
    }
}

// ---- threads that would wait for themselves ----

/// The locks that each thread of this process holds, whatever the session. They are found by path,
/// so that for a thread that holds very many locks only those of one path are compared.
static HELD: LazyLock<PerProcess<Mutex<HashMap<ThreadId, Paths>>>> =
    LazyLock::new(PerProcess::default);

type Paths = HashMap<Arc<str>, Vec<SelfDeadlockDetector>>;

/// One lock, as one session knows it.
#[derive(Clone)]
pub(crate) struct SelfDeadlockDetector {
    key: Arc<LockKey>,
    session: u64,
}

impl SelfDeadlockDetector {
    pub(crate) fn new(key: LockKey, session: u64) -> Self {
        SelfDeadlockDetector { key: key.into(), session }
    }

    pub(crate) fn holds(&self, thread: ThreadId) {
        let mut all = HELD.get().lock();
        let held = all.entry(thread).or_default().entry(self.key.dir.clone()).or_default();
        if !held.iter().any(|other| self.is_myself(other)) {
            held.push(self.clone());
        }
    }

    pub(crate) fn released(&self, thread: ThreadId) {
        let mut all = HELD.get().lock();
        let Some(paths) = all.get_mut(&thread) else { return };
        if let Some(held) = paths.get_mut(&self.key.dir) {
            held.retain(|other| !self.is_myself(other));
            if held.is_empty() {
                paths.remove(&self.key.dir);
            }
        }
        if paths.is_empty() {
            all.remove(&thread);
        }
    }

    fn is_myself(&self, other: &SelfDeadlockDetector) -> bool {
        Arc::ptr_eq(&self.key, &other.key)
    }

    /// Whether `thread` holds the lock, through any session.
    pub(crate) fn is_held_by(&self, thread: ThreadId) -> bool {
        self.any(thread, |_| true)
    }

    /// Warns if `thread` holds the lock through another session.
    pub(crate) fn warn(&self, thread: ThreadId, path: &str) {
        if self.any(thread, |other| other.session != self.session) {
            warn!(
                "{path}: this thread holds the lock through another session and may be about to wait for itself"
            );
        }
    }

    /// Whether `thread` holds this lock through a session for which `is` is true.
    fn any(&self, thread: ThreadId, is: impl Fn(&SelfDeadlockDetector) -> bool) -> bool {
        let all = HELD.get().lock();
        let mut held =
            all.get(&thread).and_then(|paths| paths.get(&self.key.dir)).into_iter().flatten();
        held.any(|other| self.key.is_same(&other.key) && is(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zk_session::world::this_thread;

    /// A registry for one test.
    fn registry() -> &'static Registry {
        Box::leak(Box::default())
    }

    fn key(host: &str, dir: &str) -> LockKey {
        LockKey::new(&[host.to_owned()], dir)
    }

    #[test]
    fn locks_of_one_path_and_session_share_one_thing() {
        let registry = registry();
        let (here, there) = (key("a:1", "/l"), key("a:1", "/m"));
        let make = |key: &LockKey, session, made| {
            *registry.intern(key, session, "mutex", || made).unwrap()
        };
        let first = registry.intern(&here, 1, "mutex", || 1).unwrap();
        assert_eq!(*first, 1);
        assert_eq!((make(&here, 1, 2), make(&here, 2, 3), make(&there, 1, 4)), (1, 3, 4));
        drop(first);
        assert_eq!(make(&here, 1, 5), 5);
    }

    #[test]
    fn another_recipe_on_the_path_is_refused_on_the_same_ensemble_and_as_long_as_the_first_lives() {
        let registry = registry();
        let both = LockKey::new(&["a:1".into(), "b:1".into()], "/l");
        let first = registry.intern(&both, 1, "mutex", || ()).unwrap();
        let intern =
            |key: &LockKey, session| registry.intern(key, session, "election", || ()).map(drop);
        for session in [1, 2] {
            assert_eq!(intern(&key("b:1", "/l"), session), Err("mutex"));
            assert_eq!(intern(&key("c:1", "/l"), session), Ok(()));
            assert_eq!(intern(&key("b:1", "/m"), session), Ok(()));
        }
        drop(first);
        assert_eq!(intern(&both, 1), Ok(()));
    }

    #[test]
    fn entries_go_with_the_last_lock() {
        let registry = registry();
        let count = || registry.0.lock().len();
        let intern = |session, dir: &str| {
            registry.intern(&key("a:1", dir), session, "mutex", || ()).unwrap()
        };
        let (one, two) = (intern(1, "/l"), intern(2, "/l"));
        let other = intern(1, "/m");
        assert_eq!((count(), registry.0.lock()["/l"].len()), (2, 2));
        drop((one, other));
        assert_eq!((count(), registry.0.lock()["/l"].len()), (1, 1));
        drop(two);
        assert_eq!(count(), 0);
    }

    /// A program may start a thread for each request.
    #[test]
    fn nothing_is_left_of_a_thread_that_has_released_its_locks_in_whatever_order() {
        let thread = std::thread::spawn(this_thread).join().unwrap();
        let detector = |dir, session| SelfDeadlockDetector::new(key("a:1", dir), session);
        // Two of them are one lock, through two sessions.
        let locks = [detector("/l", 1), detector("/l", 2), detector("/m", 1)];
        for first in 0..locks.len() {
            for lock in &locks {
                lock.holds(thread);
                lock.holds(thread); // a read beside a write
            }
            let paths = HELD.get().lock()[&thread].clone();
            let entries = |dir| paths.get::<str>(dir).map(Vec::len);
            assert_eq!((entries("/l"), entries("/m"), paths.len()), (Some(2), Some(1), 2));
            for at in 0..locks.len() {
                let lock = &locks[(first + at) % locks.len()];
                assert!(lock.is_held_by(thread));
                lock.released(thread);
            }
            assert!(!HELD.get().lock().contains_key(&thread), "the entry of the thread");
        }
    }

    #[test]
    fn a_lock_that_is_made_while_the_last_one_goes_keeps_its_entry() {
        let registry = registry();
        let here = key("a:1", "/l");
        for _ in 0..200 {
            let old = registry.intern(&here, 1, "mutex", || 1).unwrap();
            let new = std::thread::scope(|scope| {
                scope.spawn(|| drop(old));
                scope.spawn(|| registry.intern(&here, 1, "mutex", || 2).unwrap()).join().unwrap()
            });
            let again = registry.intern(&here, 1, "mutex", || 3).unwrap();
            assert!(Arc::ptr_eq(&new.0, &again.0));
        }
        assert!(registry.0.lock().is_empty());
    }

    /// An operation reads only the entries of its own path, however many locks there are elsewhere:
    /// those entries hold no others.
    #[test]
    fn a_hundred_thousand_locks_are_a_hundred_thousand_entries_of_their_own() {
        let registry = registry();
        let locks: Vec<_> = (0..100_000)
            .map(|i| registry.intern(&key("a:1", &format!("/l/{i}")), 1, "mutex", || i).unwrap())
            .collect();
        assert!(registry.0.lock().values().all(|users| users.len() == 1));
        assert_eq!(registry.0.lock().len(), locks.len());
        drop(locks);
        assert!(registry.0.lock().is_empty());
    }
}
