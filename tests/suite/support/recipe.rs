//! One driver for all recipes: the fault scenarios know a lock by what every recipe can do, and run over each of them.
use std::{ops::Deref, time::Duration};
use zk_mutex::{
    CancelToken, Contender, Error, Held, Leadership, Member, Result, ZkCandidate, ZkElection,
    ZkExclusiveGuard, ZkExclusiveLock, ZkMultiGuard, ZkMultiLock, ZkMutex, ZkMutexGuard, ZkReadGuard,
    ZkRwLock, ZkSession, ZkWriteGuard,
};

/// What a scenario runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    Mutex,
    Read,
    Write,
    /// A candidate that joins to lead, and leaves.
    Leader,
    /// A mutex, and beside it a lock that nobody disputes, below `path` with this ending.
    Multi,
    /// Those who wait for it have no nodes, and it is not re-entrant: for scenarios where that is no matter.
    Exclusive,
}

/// Taken after the lock that a scenario is about.
const BESIDE: &str = "-beside";

impl Recipe {
    #[track_caller]
    pub fn make(self, session: &ZkSession, path: &str) -> Lock {
        let rwlock = || ZkRwLock::new(session, path).unwrap();
        match self {
            Recipe::Mutex => Lock::Mutex(ZkMutex::new(session, path).unwrap()),
            Recipe::Read => Lock::Read(rwlock()),
            Recipe::Write => Lock::Write(rwlock()),
            Recipe::Leader => Lock::Leader(ZkElection::new(session, path).unwrap(), session.timeout()),
            Recipe::Multi => {
                let mutex = ZkMutex::new(session, path).unwrap();
                let beside = ZkRwLock::new(session, &format!("{path}{BESIDE}")).unwrap();
                let members = [Member::from(&mutex), Member::read(&beside)];
                Lock::Multi(ZkMultiLock::new(members).unwrap(), mutex)
            }
            Recipe::Exclusive => Lock::Exclusive(ZkExclusiveLock::new(session, path).unwrap()),
        }
    }

    /// In the path of its nodes and of no others: the link's own writes are creates and deletes too.
    pub fn mark(self) -> &'static str {
        match self {
            Recipe::Mutex | Recipe::Multi => "-lock-",
            Recipe::Read => "-__READ__",
            Recipe::Write => "-__WRIT__",
            Recipe::Leader => "-latch-",
            Recipe::Exclusive => "/lock", // once the folders are there
        }
    }

    /// In the path of the nodes of another client's lock that keeps it waiting.
    pub fn foreign_mark(self) -> &'static str {
        match self {
            Recipe::Mutex | Recipe::Read | Recipe::Write | Recipe::Multi | Recipe::Exclusive => "-lock-",
            Recipe::Leader => "-latch-",
        }
    }

    /// What its errors call it to wait with a limit, and to let go.
    pub fn ops(self) -> [&'static str; 2] {
        match self {
            Recipe::Mutex | Recipe::Read | Recipe::Write | Recipe::Multi | Recipe::Exclusive => {
                ["lock", "unlock"]
            }
            Recipe::Leader => ["wait_leader", "leave"],
        }
    }

    /// No candidate, which joins to ask who leads, and whose end all are told who look at its term.
    pub fn is_lock(self) -> bool {
        self != Recipe::Leader
    }

    /// One that keeps it waiting, and that it keeps waiting.
    pub fn rival(self) -> Recipe {
        match self {
            Recipe::Mutex => Recipe::Mutex,
            Recipe::Multi => Recipe::Multi,
            Recipe::Read => Recipe::Write,
            Recipe::Write => Recipe::Read,
            Recipe::Leader => Recipe::Leader,
            Recipe::Exclusive => Recipe::Exclusive,
        }
    }

    /// The same, and it keeps its own kind waiting too.
    pub fn sole(self) -> Recipe {
        match self {
            Recipe::Mutex => Recipe::Mutex,
            Recipe::Multi => Recipe::Multi,
            Recipe::Read | Recipe::Write => Recipe::Write,
            Recipe::Leader => Recipe::Leader,
            Recipe::Exclusive => Recipe::Exclusive,
        }
    }
}

/// A lock, asked for in one way.
pub enum Lock {
    Mutex(ZkMutex),
    Read(ZkRwLock),
    Write(ZkRwLock),
    /// With its session's timeout.
    Leader(ZkElection, Duration),
    Multi(ZkMultiLock, ZkMutex),
    Exclusive(ZkExclusiveLock),
}

impl Lock {
    pub fn lock(&self) -> Result<Guard<'_>> {
        match self {
            Lock::Mutex(lock) => lock.lock().map(Guard::Mutex),
            Lock::Read(lock) => lock.read().map(Guard::Read),
            Lock::Write(lock) => lock.write().map(Guard::Write),
            Lock::Leader(election, _) => {
                let candidate = election.join()?;
                Ok(Guard::Leader(candidate.wait_leader()?, candidate))
            }
            Lock::Multi(lock, _) => lock.lock().map(Guard::Multi),
            Lock::Exclusive(lock) => lock.lock().map(Guard::Exclusive),
        }
    }

    pub fn try_lock(&self) -> Result<Option<Guard<'_>>> {
        Ok(match self {
            Lock::Mutex(lock) => lock.try_lock()?.map(Guard::Mutex),
            Lock::Read(lock) => lock.try_read()?.map(Guard::Read),
            Lock::Write(lock) => lock.try_write()?.map(Guard::Write),
            Lock::Leader(_, timeout) => return self.lock_timeout(*timeout / 6),
            Lock::Multi(lock, _) => lock.try_lock()?.map(Guard::Multi),
            Lock::Exclusive(lock) => lock.try_lock()?.map(Guard::Exclusive),
        })
    }

    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard<'_>>> {
        Ok(match self {
            Lock::Mutex(lock) => lock.lock_timeout(timeout)?.map(Guard::Mutex),
            Lock::Read(lock) => lock.read_timeout(timeout)?.map(Guard::Read),
            Lock::Write(lock) => lock.write_timeout(timeout)?.map(Guard::Write),
            Lock::Leader(election, _) => {
                let candidate = election.join()?;
                candidate.wait_leader_timeout(timeout)?.map(|term| Guard::Leader(term, candidate))
            }
            Lock::Multi(lock, _) => lock.lock_timeout(timeout)?.map(Guard::Multi),
            Lock::Exclusive(lock) => lock.lock_timeout(timeout)?.map(Guard::Exclusive),
        })
    }

    pub fn lock_with(&self, cancel: &CancelToken) -> Result<Guard<'_>> {
        match self {
            Lock::Mutex(lock) => lock.lock_with(cancel).map(Guard::Mutex),
            Lock::Read(lock) => lock.read_with(cancel).map(Guard::Read),
            Lock::Write(lock) => lock.write_with(cancel).map(Guard::Write),
            Lock::Leader(election, _) => {
                let candidate = election.join()?;
                Ok(Guard::Leader(candidate.wait_leader_with(cancel)?, candidate))
            }
            Lock::Multi(lock, _) => lock.lock_with(cancel).map(Guard::Multi),
            Lock::Exclusive(lock) => lock.lock_with(cancel).map(Guard::Exclusive),
        }
    }

    /// Those of its kind.
    pub fn contenders(&self) -> Result<Vec<Contender>> {
        match self {
            Lock::Mutex(lock) | Lock::Multi(_, lock) => lock.contenders(),
            Lock::Read(lock) => lock.readers(),
            Lock::Write(lock) => lock.writers(),
            Lock::Leader(election, _) => election.candidates(),
            Lock::Exclusive(_) => panic!("who waits for it has no node"),
        }
    }

    /// Whether it says that this thread holds it; None where it cannot be asked.
    pub fn is_owned_here(&self) -> Option<bool> {
        match self {
            Lock::Mutex(lock) | Lock::Multi(_, lock) => Some(lock.is_owned_by_current_thread()),
            Lock::Read(_) | Lock::Write(_) | Lock::Leader(..) | Lock::Exclusive(_) => None,
        }
    }
}

#[must_use]
pub enum Guard<'a> {
    Mutex(ZkMutexGuard<'a>),
    Read(ZkReadGuard<'a>),
    Write(ZkWriteGuard<'a>),
    Leader(Leadership, ZkCandidate),
    Multi(ZkMultiGuard<'a>),
    Exclusive(ZkExclusiveGuard<'a>),
}

impl Guard<'_> {
    pub fn unlock(self) -> Result<()> {
        match self {
            Guard::Mutex(guard) => guard.unlock(),
            Guard::Read(guard) => guard.unlock(),
            Guard::Write(guard) => guard.unlock(),
            Guard::Leader(term, candidate) => {
                let lasted = term.check();
                candidate.leave()?;
                lasted
            }
            // Of the lock that the scenario is about, which is let go last.
            Guard::Multi(guard) => guard.unlock().map_err(|e| match e {
                Error::Several { mut failures } => failures.pop().expect("two at least"),
                e => e,
            }),
            Guard::Exclusive(guard) => guard.unlock(),
        }
    }
}

impl Deref for Guard<'_> {
    type Target = Held;

    fn deref(&self) -> &Held {
        match self {
            Guard::Mutex(guard) => guard,
            Guard::Read(guard) => guard,
            Guard::Write(guard) => guard,
            Guard::Leader(term, _) => term,
            Guard::Multi(guard) => guard.holds().next().expect("its first member"),
            Guard::Exclusive(guard) => guard,
        }
    }
}

/// As `scenarios!`, for functions of a `Recipe`: each runs over each recipe, as `module::mutex::name`, `module::read::name` and so on.
/// With the mutex it runs on both servers; with the others, which stand on the same queue and session, on the embedded one. Behind a
/// `|` come scenarios of locks only, behind a `;` those of the module that are about no recipe.
macro_rules! per_recipe {
    (@test $recipe:ident $module:literal ($($on:tt)*) $name:ident $($seconds:literal)?) => {
        $crate::support::Test {
            module: concat!(module_path!(), "::", $module),
            name: stringify!($name),
            run: || $name($crate::support::Recipe::$recipe),
            on: $crate::support::scenarios!(@on $($on)*),
            within: std::time::Duration::from_secs($crate::support::scenarios!(@limit $($seconds)?)),
        }
    };
    ($($name:ident $(within $seconds:literal)?),+ $(,)?
     $(| $($lock:ident $(within $time:literal)?),+ $(,)?)?
     $(; $($plain:ident $(on $variant:ident)? $(within $limit:literal)?),+ $(,)?)?) => {
        pub const TESTS: &[$crate::support::Test] = &[
            $(
                $crate::support::per_recipe!(@test Mutex "mutex" () $name $($seconds)?),
                $crate::support::per_recipe!(@test Read "read" (embedded) $name $($seconds)?),
                $crate::support::per_recipe!(@test Write "write" (embedded) $name $($seconds)?),
                $crate::support::per_recipe!(@test Leader "leader" (embedded) $name $($seconds)?),
                $crate::support::per_recipe!(@test Multi "multi" (embedded) $name $($seconds)?),
            )+
            $($(
                $crate::support::per_recipe!(@test Mutex "mutex" () $lock $($time)?),
                $crate::support::per_recipe!(@test Read "read" (embedded) $lock $($time)?),
                $crate::support::per_recipe!(@test Write "write" (embedded) $lock $($time)?),
                $crate::support::per_recipe!(@test Multi "multi" (embedded) $lock $($time)?),
            )+)?
            $($($crate::support::scenarios!(@test $plain $(on $variant)? $(within $limit)?)),+)?
        ];
    };
}
pub(crate) use per_recipe;

/// A second table, of those of the module's scenarios that run over the exclusive lock too.
macro_rules! over_exclusive {
    ($($name:ident),+ $(,)?) => {
        pub const EXCLUSIVE: &[$crate::support::Test] =
            &[$($crate::support::per_recipe!(@test Exclusive "exclusive" (embedded) $name)),+];
    };
}
pub(crate) use over_exclusive;
