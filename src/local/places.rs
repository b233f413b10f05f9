//! Which recipe uses which path: two kinds of lock on one path would queue in one folder and mean different things by it.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

/// Where a lock is.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Place {
    /// The ensemble's, as a session names them.
    hosts: Vec<String>,
    /// The full path.
    dir: String,
}

impl Place {
    pub(crate) fn new(hosts: Vec<String>, dir: String) -> Self {
        Place { hosts, dir }
    }

    /// Sessions that name a host in common are on the same ensemble, however each was written.
    pub(super) fn is_same(&self, other: &Place) -> bool {
        self.dir == other.dir && self.hosts.iter().any(|host| other.hosts.contains(host))
    }
}

/// In the whole process: sessions know nothing of each other.
static USERS: LazyLock<Mutex<HashMap<Place, Users>>> = LazyLock::new(Mutex::default);

struct Users {
    recipe: &'static str,
    /// What the locks of each session share; gone when the last of them is.
    shared: Vec<Weak<dyn Any + Send + Sync>>,
}

/// Notes that `recipe` uses this place for as long as what `make` gives lives. The other recipe's name, if there is one.
pub(crate) fn settle<T: Send + Sync + 'static>(
    place: Place,
    recipe: &'static str,
    make: impl FnOnce() -> Option<Arc<T>>,
) -> Result<Arc<T>, &'static str> {
    let mut all = USERS.lock();
    all.retain(|_, users| {
        users.shared.retain(|shared| shared.strong_count() > 0);
        !users.shared.is_empty()
    });
    if let Some((_, other)) =
        all.iter().find(|(known, users)| known.is_same(&place) && users.recipe != recipe)
    {
        return Err(other.recipe);
    }
    let made = make().ok_or(recipe)?;
    let weak = Arc::downgrade(&made) as Weak<dyn Any + Send + Sync>;
    let users = all.entry(place).or_insert_with(|| Users { recipe, shared: Vec::new() });
    if !users.shared.iter().any(|known| known.ptr_eq(&weak)) {
        users.shared.push(weak);
    }
    Ok(made)
}
