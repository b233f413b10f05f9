//! Every call of the library's face that takes a lock stands here, so that a change of the face is a change
//! of this file.

use std::time::Duration;

use zk_mutex_simulated::{
    CancelToken, Leadership, Result, ZkCandidate, ZkExclusiveGuard, ZkExclusiveLock, ZkMultiGuard,
    ZkMultiLock, ZkMutex, ZkMutexGuard, ZkPermit, ZkReadGuard, ZkRwLock, ZkSemaphore, ZkSemaphoreMutex,
    ZkSemaphoreMutexGuard, ZkWriteGuard,
};

/// How long a call waits.
#[derive(Clone)]
pub enum Wait {
    /// Not at all.
    Try,
    /// For so long.
    Timeout(Duration),
    /// Until this is cancelled.
    Cancelled(CancelToken),
    /// Until it has the lock.
    Forever,
}

macro_rules! call {
    ($wait:expr, $lock:ident . ($forever:ident, $try:ident, $timeout:ident, $with:ident) ($($number:expr)?)) => {
        match $wait {
            Wait::Try => $lock.$try($($number)?),
            Wait::Timeout(limit) => $lock.$timeout($($number,)? *limit),
            Wait::Cancelled(token) => $lock.$with($($number,)? token).map(Some),
            Wait::Forever => $lock.$forever($($number)?).map(Some),
        }
    };
}

pub fn mutex<'a>(lock: &'a ZkMutex, wait: &Wait) -> Result<Option<ZkMutexGuard<'a>>> {
    call!(wait, lock.(lock, try_lock, lock_timeout, lock_with)())
}

pub fn read<'a>(lock: &'a ZkRwLock, wait: &Wait) -> Result<Option<ZkReadGuard<'a>>> {
    call!(wait, lock.(read, try_read, read_timeout, read_with)())
}

pub fn write<'a>(lock: &'a ZkRwLock, wait: &Wait) -> Result<Option<ZkWriteGuard<'a>>> {
    call!(wait, lock.(write, try_write, write_timeout, write_with)())
}

pub fn permits(lock: &ZkSemaphore, number: u32, wait: &Wait) -> Result<Option<Vec<ZkPermit>>> {
    call!(wait, lock.(acquire_many, try_acquire_many, acquire_many_timeout, acquire_many_with)(number))
}

pub fn semaphore_mutex<'a>(
    lock: &'a ZkSemaphoreMutex,
    wait: &Wait,
) -> Result<Option<ZkSemaphoreMutexGuard<'a>>> {
    call!(wait, lock.(lock, try_lock, lock_timeout, lock_with)())
}

pub fn exclusive<'a>(lock: &'a ZkExclusiveLock, wait: &Wait) -> Result<Option<ZkExclusiveGuard<'a>>> {
    call!(wait, lock.(lock, try_lock, lock_timeout, lock_with)())
}

pub fn multi<'a>(lock: &'a ZkMultiLock, wait: &Wait) -> Result<Option<ZkMultiGuard<'a>>> {
    call!(wait, lock.(lock, try_lock, lock_timeout, lock_with)())
}

pub fn leadership(candidate: &ZkCandidate, wait: &Wait) -> Result<Option<Leadership>> {
    match wait {
        Wait::Try => Ok(candidate.leadership()),
        Wait::Timeout(limit) => candidate.wait_leader_timeout(*limit),
        Wait::Cancelled(token) => candidate.wait_leader_with(token).map(Some),
        Wait::Forever => candidate.wait_leader().map(Some),
    }
}
