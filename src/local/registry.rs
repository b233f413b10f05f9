//! The lock registry: what the locks of one path on one session share, and which recipe uses which
//! path. Two kinds of lock on one path would queue in one folder and mean different things by it.
//!
//! Sessions know nothing of each other, so there is one registry for the whole process.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::world::{HashMap, LazyLock, Mutex};

static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::default);

/// Where a lock is.
#[derive(Clone)]
pub(crate) struct Place {
    /// The ensemble's, as a session names them.
    hosts: Vec<String>,
    /// The full path.
    dir: Arc<str>,
}

impl Place {
    pub(crate) fn new(hosts: Vec<String>, dir: &str) -> Self {
        Place { hosts, dir: dir.into() }
    }

    /// The full path.
    pub(super) fn dir(&self) -> &Arc<str> {
        &self.dir
    }

    /// Sessions that name a host in common are on the same ensemble, however each was written.
    pub(super) fn is_same(&self, other: &Place) -> bool {
        self.dir == other.dir && self.hosts.iter().any(|host| other.hosts.contains(host))
    }
}

/// What the locks of one path on one session share, until the last of them is gone.
pub(crate) struct Interned<T> {
    shared: T,
    dir: Arc<str>,
    registry: &'static Registry,
}

impl<T> Deref for Interned<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.shared
    }
}

impl<T> Drop for Interned<T> {
    /// Takes its own entry out. Another lock of the same place may have been made meanwhile: its
    /// entry stays.
    fn drop(&mut self) {
        self.registry.remove_dead(&self.dir);
    }
}

/// Gives what `recipe`'s locks at this place share within `session`; makes it for the first lock.
/// `Err`: another recipe, with this name, uses the place.
pub(crate) fn intern<T: Send + Sync + 'static>(
    place: &Place,
    session: u64,
    recipe: &'static str,
    make: impl FnOnce() -> T,
) -> Result<Arc<Interned<T>>, &'static str> {
    REGISTRY.intern(place, session, recipe, make)
}

/// How many paths have a lock in this process.
#[cfg(zk_sim)]
pub(crate) fn len() -> usize {
    REGISTRY.0.lock().len()
}

/// Finds entries by their path alone, so that no operation looks at the locks of other paths: there
/// may be a hundred thousand.
#[derive(Default)]
struct Registry(Mutex<HashMap<Arc<str>, Vec<User>>>);

/// The locks of one path on one session.
struct User {
    place: Place,
    session: u64,
    recipe: &'static str,
    shared: Weak<dyn Any + Send + Sync>,
}

impl Registry {
    fn intern<T: Send + Sync + 'static>(
        &'static self,
        place: &Place,
        session: u64,
        recipe: &'static str,
        make: impl FnOnce() -> T,
    ) -> Result<Arc<Interned<T>>, &'static str> {
        let mut all = self.0.lock();
        let users = all.get(&place.dir).map_or(&[][..], Vec::as_slice);
        let is_other = |user: &&User| {
            user.recipe != recipe && user.place.is_same(place) && user.shared.strong_count() > 0
        };
        if let Some(other) = users.iter().find(is_other) {
            return Err(other.recipe);
        }
        let mut own = users.iter().filter(|user| user.session == session && user.recipe == recipe);
        // No reference may be dropped under the lock, which the drop of the last one takes itself.
        // This one is not: a recipe shares one type, so that it is given back.
        if let Some(found) = own.find_map(|user| user.shared.upgrade()) {
            drop(all);
            return found.downcast().map_err(|_| recipe);
        }
        let made = Arc::new(Interned { shared: make(), dir: place.dir.clone(), registry: self });
        let shared = Arc::downgrade(&made) as Weak<dyn Any + Send + Sync>;
        all.entry(place.dir.clone()).or_default().push(User {
            place: place.clone(),
            session,
            recipe,
            shared,
        });
        Ok(made)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// One of a test's own.
    fn registry() -> &'static Registry {
        Box::leak(Box::default())
    }

    fn place(host: &str, dir: &str) -> Place {
        Place::new(vec![host.to_owned()], dir)
    }

    #[test]
    fn locks_of_one_path_and_session_share_one_thing() {
        let registry = registry();
        let (here, there) = (place("a:1", "/l"), place("a:1", "/m"));
        let make = |place: &Place, session, made| {
            **registry.intern(place, session, "mutex", || made).unwrap()
        };
        let first = registry.intern(&here, 1, "mutex", || 1).unwrap();
        assert_eq!(**first, 1);
        assert_eq!((make(&here, 1, 2), make(&here, 2, 3), make(&there, 1, 4)), (1, 3, 4));
        drop(first);
        assert_eq!(make(&here, 1, 5), 5);
    }

    #[test]
    fn another_recipe_on_the_path_is_refused_on_the_same_ensemble_and_as_long_as_the_first_lives() {
        let registry = registry();
        let both = Place::new(vec!["a:1".into(), "b:1".into()], "/l");
        let first = registry.intern(&both, 1, "mutex", || ()).unwrap();
        let ask =
            |place: &Place, session| registry.intern(place, session, "election", || ()).map(drop);
        for session in [1, 2] {
            assert_eq!(ask(&place("b:1", "/l"), session), Err("mutex"));
            assert_eq!(ask(&place("c:1", "/l"), session), Ok(()));
            assert_eq!(ask(&place("b:1", "/m"), session), Ok(()));
        }
        drop(first);
        assert_eq!(ask(&both, 1), Ok(()));
    }

    #[test]
    fn entries_go_with_the_last_lock() {
        let registry = registry();
        let count = || registry.0.lock().len();
        let intern = |session, dir: &str| {
            registry.intern(&place("a:1", dir), session, "mutex", || ()).unwrap()
        };
        let (one, two) = (intern(1, "/l"), intern(2, "/l"));
        let other = intern(1, "/m");
        assert_eq!((count(), registry.0.lock()["/l"].len()), (2, 2));
        drop((one, other));
        assert_eq!((count(), registry.0.lock()["/l"].len()), (1, 1));
        drop(two);
        assert_eq!(count(), 0);
    }

    #[test]
    fn a_lock_that_is_made_while_the_last_one_goes_keeps_its_entry() {
        let registry = registry();
        let here = place("a:1", "/l");
        for _ in 0..200 {
            let old = registry.intern(&here, 1, "mutex", || 1).unwrap();
            let new = std::thread::scope(|scope| {
                scope.spawn(|| drop(old));
                scope.spawn(|| registry.intern(&here, 1, "mutex", || 2).unwrap()).join().unwrap()
            });
            let again = registry.intern(&here, 1, "mutex", || 3).unwrap();
            assert!(Arc::ptr_eq(&new, &again));
        }
        assert!(registry.0.lock().is_empty());
    }

    /// However many locks there are elsewhere, the entries that are looked at are those of the
    /// path: the registry keeps no others there.
    #[test]
    fn a_hundred_thousand_locks_are_a_hundred_thousand_entries_of_their_own() {
        let registry = registry();
        let locks: Vec<_> = (0..100_000)
            .map(|i| registry.intern(&place("a:1", &format!("/l/{i}")), 1, "mutex", || i).unwrap())
            .collect();
        assert!(registry.0.lock().values().all(|users| users.len() == 1));
        assert_eq!(registry.0.lock().len(), locks.len());
        drop(locks);
        assert!(registry.0.lock().is_empty());
    }
}
