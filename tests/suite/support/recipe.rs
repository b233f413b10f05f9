//! One driver for all recipes: the fault scenarios know a lock by what every recipe can do, and run over each of them.
use super::{OpKind, Proxy, op::Which};
use std::{ops::Deref, time::Duration};
use zk_mutex::{
    CancelToken, Contender, Held, Result, ZkMutex, ZkMutexGuard, ZkPermit, ZkReadGuard, ZkRwLock,
    ZkSemaphore, ZkSession, ZkWriteGuard,
};

/// What a scenario runs over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    Mutex,
    Read,
    Write,
    /// A semaphore of one.
    Permit,
}

impl Recipe {
    #[track_caller]
    pub fn make(self, session: &ZkSession, path: &str) -> Lock {
        let rwlock = || ZkRwLock::new(session, path).unwrap();
        match self {
            Recipe::Mutex => Lock::Mutex(ZkMutex::new(session, path).unwrap()),
            Recipe::Read => Lock::Read(rwlock()),
            Recipe::Write => Lock::Write(rwlock()),
            Recipe::Permit => Lock::Permit(ZkSemaphore::new(session, path, 1).unwrap()),
        }
    }

    /// In the path of its nodes and of no others: the link's own writes are creates and deletes too.
    pub fn mark(self) -> &'static str {
        match self {
            Recipe::Mutex => "-lock-",
            Recipe::Read => "-__READ__",
            Recipe::Write => "-__WRIT__",
            Recipe::Permit => "-lease-",
        }
    }

    /// The folder of its nodes, below the path.
    pub fn folder(self, path: &str) -> String {
        if self == Recipe::Permit { format!("{path}/leases") } else { path.to_owned() }
    }

    /// Every folder that it makes nodes in.
    pub fn folders(self, path: &str) -> Vec<String> {
        let locks = (self == Recipe::Permit).then(|| format!("{path}/locks"));
        [self.folder(path)].into_iter().chain(locks).collect()
    }

    /// In the path of the first node that it makes.
    pub fn first_mark(self) -> &'static str {
        if self == Recipe::Permit { "-lock-" } else { self.mark() }
    }

    /// Its own requests of a kind, not those for the mutex that it takes on the way.
    pub fn own(self, kind: OpKind) -> Which {
        match kind {
            OpKind::Create if self == Recipe::Permit => kind.on(self.mark()),
            OpKind::GetChildren if self == Recipe::Permit => kind.on("/leases"),
            kind => kind.into(),
        }
    }

    /// A path's last part, from behind that of the lock.
    pub fn name(self, path: &str) -> String {
        let name = path.rsplit_once('/').unwrap().1;
        if self == Recipe::Permit { format!("leases/{name}") } else { name.to_owned() }
    }

    /// Whether a thread that holds it is told so when it asks again.
    pub fn is_a_threads(self) -> bool {
        self != Recipe::Permit
    }

    /// The node whose data makes a waiter look again when it changes: that of the holder, and how many there are.
    pub fn looked_at(self, holder: &str, folder: &str) -> (String, &'static [u8]) {
        if self == Recipe::Permit { (folder.to_owned(), b"1") } else { (holder.to_owned(), b"revoke") }
    }

    /// Whether what has passed the proxy since its log was cleared shows that somebody waits.
    pub fn waits(self, proxy: &Proxy) -> bool {
        if self == Recipe::Permit {
            proxy.count(OpKind::GetChildren.on("/leases")) > 1
        } else {
            proxy.count(OpKind::GetData) > 0
        }
    }

    /// One that keeps it waiting, and that it keeps waiting.
    pub fn rival(self) -> Recipe {
        match self {
            Recipe::Mutex => Recipe::Mutex,
            Recipe::Read => Recipe::Write,
            Recipe::Write => Recipe::Read,
            Recipe::Permit => Recipe::Permit,
        }
    }

    /// The same, and it keeps its own kind waiting too.
    pub fn sole(self) -> Recipe {
        match self {
            Recipe::Mutex => Recipe::Mutex,
            Recipe::Read | Recipe::Write => Recipe::Write,
            Recipe::Permit => Recipe::Permit,
        }
    }
}

/// A lock, asked for in one way.
pub enum Lock {
    Mutex(ZkMutex),
    Read(ZkRwLock),
    Write(ZkRwLock),
    Permit(ZkSemaphore),
}

impl Lock {
    pub fn lock(&self) -> Result<Guard<'_>> {
        match self {
            Lock::Mutex(lock) => lock.lock().map(Guard::Mutex),
            Lock::Read(lock) => lock.read().map(Guard::Read),
            Lock::Write(lock) => lock.write().map(Guard::Write),
            Lock::Permit(lock) => lock.acquire().map(Guard::Permit),
        }
    }

    pub fn try_lock(&self) -> Result<Option<Guard<'_>>> {
        Ok(match self {
            Lock::Mutex(lock) => lock.try_lock()?.map(Guard::Mutex),
            Lock::Read(lock) => lock.try_read()?.map(Guard::Read),
            Lock::Write(lock) => lock.try_write()?.map(Guard::Write),
            Lock::Permit(lock) => lock.try_acquire()?.map(Guard::Permit),
        })
    }

    pub fn lock_timeout(&self, timeout: Duration) -> Result<Option<Guard<'_>>> {
        Ok(match self {
            Lock::Mutex(lock) => lock.lock_timeout(timeout)?.map(Guard::Mutex),
            Lock::Read(lock) => lock.read_timeout(timeout)?.map(Guard::Read),
            Lock::Write(lock) => lock.write_timeout(timeout)?.map(Guard::Write),
            Lock::Permit(lock) => lock.acquire_timeout(timeout)?.map(Guard::Permit),
        })
    }

    pub fn lock_with(&self, cancel: &CancelToken) -> Result<Guard<'_>> {
        match self {
            Lock::Mutex(lock) => lock.lock_with(cancel).map(Guard::Mutex),
            Lock::Read(lock) => lock.read_with(cancel).map(Guard::Read),
            Lock::Write(lock) => lock.write_with(cancel).map(Guard::Write),
            Lock::Permit(lock) => lock.acquire_with(cancel).map(Guard::Permit),
        }
    }

    /// Those of its kind.
    pub fn contenders(&self) -> Result<Vec<Contender>> {
        match self {
            Lock::Mutex(lock) => lock.contenders(),
            Lock::Read(lock) => lock.readers(),
            Lock::Write(lock) => lock.writers(),
            Lock::Permit(lock) => lock.holders(),
        }
    }

    /// Whether it says that this thread holds it; None where it cannot be asked.
    pub fn is_owned_here(&self) -> Option<bool> {
        match self {
            Lock::Mutex(lock) => Some(lock.is_owned_by_current_thread()),
            Lock::Read(_) | Lock::Write(_) | Lock::Permit(_) => None,
        }
    }
}

#[must_use]
pub enum Guard<'a> {
    Mutex(ZkMutexGuard<'a>),
    Read(ZkReadGuard<'a>),
    Write(ZkWriteGuard<'a>),
    Permit(ZkPermit),
}

impl Guard<'_> {
    pub fn unlock(self) -> Result<()> {
        match self {
            Guard::Mutex(guard) => guard.unlock(),
            Guard::Read(guard) => guard.unlock(),
            Guard::Write(guard) => guard.unlock(),
            Guard::Permit(permit) => permit.release(),
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
            Guard::Permit(permit) => permit,
        }
    }
}

/// As `scenarios!`, for functions of a `Recipe`: each runs over each recipe, as `module::mutex::name`, `module::read::name` and so on.
/// With the mutex it runs on both servers; with the others, which stand on the same queue and session, on the embedded one. Behind a
/// `|` come those where each who waits has a node in one row with the others, which a semaphore's waiters have not. Behind a `;` come
/// the module's scenarios that are about no recipe.
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
     $(| $($row:ident $(within $row_seconds:literal)?),+ $(,)?)?
     $(; $($plain:ident $(on $variant:ident)? $(within $limit:literal)?),+ $(,)?)?) => {
        pub const TESTS: &[$crate::support::Test] = &[
            $(
                $crate::support::per_recipe!(@test Mutex "mutex" () $name $($seconds)?),
                $crate::support::per_recipe!(@test Read "read" (embedded) $name $($seconds)?),
                $crate::support::per_recipe!(@test Write "write" (embedded) $name $($seconds)?),
                $crate::support::per_recipe!(@test Permit "permit" (embedded) $name $($seconds)?),
            )+
            $($(
                $crate::support::per_recipe!(@test Mutex "mutex" () $row $($row_seconds)?),
                $crate::support::per_recipe!(@test Read "read" (embedded) $row $($row_seconds)?),
                $crate::support::per_recipe!(@test Write "write" (embedded) $row $($row_seconds)?),
            )+)?
            $($($crate::support::scenarios!(@test $plain $(on $variant)? $(within $limit)?)),+)?
        ];
    };
}
pub(crate) use per_recipe;
