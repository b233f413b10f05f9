//! The locks and guards of all recipes behind common traits.
use super::Recipe;
use std::{ops::Deref, time::Duration};
use zk_mutex::{
    Contender, Error, Held, Leadership, Member, Result, Wait, WaitStrategy, ZkCandidate,
    ZkElection, ZkExclusiveGuard, ZkExclusiveLock, ZkMultiGuard, ZkMultiLock, ZkMutex,
    ZkMutexGuard, ZkPermit, ZkReadGuard, ZkRwLock, ZkSemaphore, ZkSession, ZkWriteGuard,
};

/// A lock of any recipe.
pub type Lock = Box<dyn Lockable>;

pub type Guard<'a> = Box<dyn Guarded + 'a>;

pub trait Lockable: Send + Sync {
    fn lock(&self) -> Result<Guard<'_>>;

    fn try_lock(&self) -> Result<Guard<'_>>;

    fn lock_timeout(&self, timeout: Duration) -> Result<Guard<'_>>;

    fn lock_with(&self, wait: Wait) -> Result<Guard<'_>>;

    /// The contenders of its kind.
    fn contenders(&self) -> Result<Vec<Contender>>;

    /// Whether the lock reports that this thread holds it; None if it has no such call.
    fn is_owned_here(&self) -> Option<bool> {
        None
    }
}

pub trait Guarded: Deref<Target = Held> {
    fn unlock(self: Box<Self>) -> Result<()>;

    /// All its holds.
    fn holds(&self) -> Vec<&Held> {
        vec![self]
    }
}

/// A mutex whose node stays with its process for so long after a release.
#[track_caller]
pub fn kept(session: &ZkSession, path: &str, at_most: Duration) -> Lock {
    Box::new(Mutex(ZkMutex::builder(session, path).keep(at_most).build().unwrap()))
}

/// A mutex each of whose holds is lost after `max_hold`. With `release_overdue` others get the lock
/// then, although the guard still lives.
#[track_caller]
pub fn bounded(session: &ZkSession, path: &str, max_hold: Duration, release_overdue: bool) -> Lock {
    let builder = ZkMutex::builder(session, path).max_hold(max_hold);
    let builder = if release_overdue { builder.release_overdue() } else { builder };
    Box::new(Mutex(builder.build().unwrap()))
}

#[track_caller]
pub fn make(recipe: Recipe, session: &ZkSession, path: &str) -> Lock {
    let mutex = |strategy| ZkMutex::builder(session, path).wait_strategy(strategy).build().unwrap();
    let rwlock = || ZkRwLock::new(session, path).unwrap();
    match recipe {
        Recipe::Mutex => Box::new(Mutex(mutex(WaitStrategy::Predecessor))),
        Recipe::Herd => Box::new(Mutex(mutex(WaitStrategy::Parent))),
        Recipe::Read => Box::new(Read(rwlock())),
        Recipe::Write => Box::new(Write(rwlock())),
        Recipe::Permit => {
            let semaphore = ZkSemaphore::new(session, path, 1).unwrap();
            semaphore.permits().unwrap(); // the scenarios do not test the first use
            Box::new(Permit(semaphore))
        }
        Recipe::Leader => Box::new(Leader(ZkElection::new(session, path).unwrap())),
        Recipe::Multi => {
            let mutex = mutex(WaitStrategy::Predecessor);
            // This member is taken after the lock that the scenario tests.
            let beside = ZkRwLock::new(session, format!("{path}-beside")).unwrap();
            let members = [Member::from(&mutex), Member::read(&beside)];
            Box::new(Multi(ZkMultiLock::new(members).unwrap(), mutex))
        }
        Recipe::Exclusive => Box::new(Exclusive(ZkExclusiveLock::new(session, path).unwrap())),
    }
}

/// Implements the traits for a lock by the names of its calls; behind the colon are its contenders
/// and its owner.
macro_rules! lockable {
    ($name:ident($lock:ty) $all:ident $try:ident $timeout:ident $with:ident: $($more:tt)+) => {
        struct $name($lock);

        impl Lockable for $name {
            fn lock(&self) -> Result<Guard<'_>> {
                Ok(Box::new(self.0.$all()?))
            }

            fn try_lock(&self) -> Result<Guard<'_>> {
                Ok(Box::new(self.0.$try()?))
            }

            fn lock_timeout(&self, timeout: Duration) -> Result<Guard<'_>> {
                Ok(Box::new(self.0.$timeout(timeout)?))
            }

            fn lock_with(&self, wait: Wait) -> Result<Guard<'_>> {
                Ok(Box::new(self.0.$with(wait)?))
            }

            $($more)+
        }
    };
}

macro_rules! guarded {
    ($($guard:ty, $end:ident);+) => {
        $(impl Guarded for $guard {
            fn unlock(self: Box<Self>) -> Result<()> {
                <$guard>::$end(*self)
            }
        })+
    };
}

lockable! { Mutex(ZkMutex) lock try_lock lock_timeout lock_with:
    fn contenders(&self) -> Result<Vec<Contender>> {
        self.0.contenders()
    }

    fn is_owned_here(&self) -> Option<bool> {
        Some(self.0.is_owned_by_current_thread())
    }
}

lockable! { Read(ZkRwLock) read try_read read_timeout read_with:
    fn contenders(&self) -> Result<Vec<Contender>> {
        let mut all = self.0.contenders()?;
        all.retain(|contender| contender.reads);
        Ok(all)
    }
}

lockable! { Write(ZkRwLock) write try_write write_timeout write_with:
    fn contenders(&self) -> Result<Vec<Contender>> {
        let mut all = self.0.contenders()?;
        all.retain(|contender| !contender.reads);
        Ok(all)
    }
}

lockable! { Permit(ZkSemaphore) acquire try_acquire acquire_timeout acquire_with:
    fn contenders(&self) -> Result<Vec<Contender>> {
        self.0.holders()
    }
}

lockable! { Exclusive(ZkExclusiveLock) lock try_lock lock_timeout lock_with:
    fn contenders(&self) -> Result<Vec<Contender>> {
        panic!("a waiter has no node")
    }
}

guarded! {
    ZkMutexGuard, unlock; ZkReadGuard, unlock; ZkWriteGuard, unlock; ZkPermit, release;
    ZkExclusiveGuard, unlock
}

struct Multi(ZkMultiLock, ZkMutex);

/// A multi-lock whose first member is the lock that a scenario tests.
struct First(ZkMultiGuard);

impl Lockable for Multi {
    fn lock(&self) -> Result<Guard<'_>> {
        Ok(Box::new(First(self.0.lock()?)))
    }

    fn try_lock(&self) -> Result<Guard<'_>> {
        Ok(Box::new(First(self.0.try_lock()?)))
    }

    fn lock_timeout(&self, timeout: Duration) -> Result<Guard<'_>> {
        Ok(Box::new(First(self.0.lock_timeout(timeout)?)))
    }

    fn lock_with(&self, wait: Wait) -> Result<Guard<'_>> {
        Ok(Box::new(First(self.0.lock_with(wait)?)))
    }

    fn contenders(&self) -> Result<Vec<Contender>> {
        self.1.contenders()
    }

    fn is_owned_here(&self) -> Option<bool> {
        Some(self.1.is_owned_by_current_thread())
    }
}

impl Deref for First {
    type Target = Held;

    fn deref(&self) -> &Held {
        self.0.holds().next().expect("its first member")
    }
}

impl Guarded for First {
    fn unlock(self: Box<Self>) -> Result<()> {
        // The first member is released last.
        self.0.unlock().map_err(|e| match e {
            Error::Several { mut failures } => failures.pop().expect("two at least"),
            e => e,
        })
    }

    fn holds(&self) -> Vec<&Held> {
        self.0.holds().collect()
    }
}

struct Leader(ZkElection);

struct Term(Leadership, ZkCandidate);

impl Lockable for Leader {
    fn lock(&self) -> Result<Guard<'_>> {
        let candidate = self.0.join()?;
        Ok(Box::new(Term(candidate.wait_leader()?, candidate)))
    }

    fn try_lock(&self) -> Result<Guard<'_>> {
        self.lock_timeout(Duration::ZERO)
    }

    fn lock_timeout(&self, timeout: Duration) -> Result<Guard<'_>> {
        self.lock_with(Wait::timeout(timeout))
    }

    fn lock_with(&self, wait: Wait) -> Result<Guard<'_>> {
        let candidate = self.0.join()?;
        match candidate.wait_leader_with(wait) {
            // The caller lists the queue next.
            Err(e) if e.is_contended() => candidate.leave().and(Err(e)),
            term => Ok(Box::new(Term(term?, candidate))),
        }
    }

    fn contenders(&self) -> Result<Vec<Contender>> {
        self.0.contenders()
    }
}

impl Deref for Term {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.0
    }
}

impl Guarded for Term {
    fn unlock(self: Box<Self>) -> Result<()> {
        let lasted = self.0.check();
        self.1.leave()?;
        lasted
    }
}
