//! One driver for all recipes: the fault scenarios know a lock by what every recipe can do, and run over each of them.
use std::{ops::Deref, time::Duration};
use zk_mutex::{
    CancelToken, Contender, Held, Leadership, Result, ZkCandidate, ZkElection, ZkMutex, ZkMutexGuard,
    ZkReadGuard, ZkRwLock, ZkSession, ZkWriteGuard,
};

/// What a scenario runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    Mutex,
    Read,
    Write,
    /// A candidate that joins to lead, and leaves.
    Leader,
}

impl Recipe {
    #[track_caller]
    pub fn make(self, session: &ZkSession, path: &str) -> Lock {
        let rwlock = || ZkRwLock::new(session, path).unwrap();
        match self {
            Recipe::Mutex => Lock::Mutex(ZkMutex::new(session, path).unwrap()),
            Recipe::Read => Lock::Read(rwlock()),
            Recipe::Write => Lock::Write(rwlock()),
            Recipe::Leader => Lock::Leader(ZkElection::new(session, path).unwrap(), session.timeout()),
        }
    }

    /// In the path of its nodes and of no others: the link's own writes are creates and deletes too.
    pub fn mark(self) -> &'static str {
        match self {
            Recipe::Mutex => "-lock-",
            Recipe::Read => "-__READ__",
            Recipe::Write => "-__WRIT__",
            Recipe::Leader => "-latch-",
        }
    }

    /// In the path of the nodes of another client's lock that keeps it waiting.
    pub fn foreign_mark(self) -> &'static str {
        match self {
            Recipe::Mutex | Recipe::Read | Recipe::Write => "-lock-",
            Recipe::Leader => "-latch-",
        }
    }

    /// What its errors call it to wait with a limit, and to let go.
    pub fn ops(self) -> [&'static str; 2] {
        match self {
            Recipe::Mutex | Recipe::Read | Recipe::Write => ["lock", "unlock"],
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
            Recipe::Read => Recipe::Write,
            Recipe::Write => Recipe::Read,
            Recipe::Leader => Recipe::Leader,
        }
    }

    /// The same, and it keeps its own kind waiting too.
    pub fn sole(self) -> Recipe {
        match self {
            Recipe::Mutex => Recipe::Mutex,
            Recipe::Read | Recipe::Write => Recipe::Write,
            Recipe::Leader => Recipe::Leader,
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
        }
    }

    pub fn try_lock(&self) -> Result<Option<Guard<'_>>> {
        Ok(match self {
            Lock::Mutex(lock) => lock.try_lock()?.map(Guard::Mutex),
            Lock::Read(lock) => lock.try_read()?.map(Guard::Read),
            Lock::Write(lock) => lock.try_write()?.map(Guard::Write),
            Lock::Leader(_, timeout) => return self.lock_timeout(*timeout / 6),
        })
    }

    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard<'_>>> {
        Ok(match self {
            Lock::Mutex(lock) => lock.lock_timeout(timeout)?.map(Guard::Mutex),
            Lock::Read(lock) => lock.read_timeout(timeout)?.map(Guard::Read),
            Lock::Write(lock) => lock.write_timeout(timeout)?.map(Guard::Write),
            Lock::Leader(election, _) => {
                let candidate = election.join()?;
                match candidate.wait_leader_timeout(timeout)? {
                    Some(term) => Some(Guard::Leader(term, candidate)),
                    // Whoever asked looks at the queue next.
                    None => candidate.leave().map(|()| None)?,
                }
            }
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
        }
    }

    /// Those of its kind.
    pub fn contenders(&self) -> Result<Vec<Contender>> {
        match self {
            Lock::Mutex(lock) => lock.contenders(),
            Lock::Read(lock) => lock.readers(),
            Lock::Write(lock) => lock.writers(),
            Lock::Leader(election, _) => election.candidates(),
        }
    }

    /// Whether it says that this thread holds it; None where it cannot be asked.
    pub fn is_owned_here(&self) -> Option<bool> {
        match self {
            Lock::Mutex(lock) => Some(lock.is_owned_by_current_thread()),
            Lock::Read(_) | Lock::Write(_) | Lock::Leader(..) => None,
        }
    }
}

#[must_use]
pub enum Guard<'a> {
    Mutex(ZkMutexGuard<'a>),
    Read(ZkReadGuard<'a>),
    Write(ZkWriteGuard<'a>),
    Leader(Leadership, ZkCandidate),
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
            )+
            $($(
                $crate::support::per_recipe!(@test Mutex "mutex" () $lock $($time)?),
                $crate::support::per_recipe!(@test Read "read" (embedded) $lock $($time)?),
                $crate::support::per_recipe!(@test Write "write" (embedded) $lock $($time)?),
            )+)?
            $($($crate::support::scenarios!(@test $plain $(on $variant)? $(within $limit)?)),+)?
        ];
    };
}
pub(crate) use per_recipe;
