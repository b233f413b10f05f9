//! All calls of the library that take a lock, so that a change of the library's interface is a
//! change of this file.

use std::time::Duration;

use zk_mutex_simulated::{
    CancelToken, Leadership, OptionalExt, Result, Wait as Face, ZkCandidate, ZkExclusiveGuard,
    ZkExclusiveLock, ZkMultiGuard, ZkMultiLock, ZkMutex, ZkMutexGuard, ZkPermit, ZkReadGuard,
    ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkSemaphoreMutexGuard, ZkWriteGuard,
};

/// How long a call waits.
#[derive(Clone)]
pub enum Wait {
    /// The call does not wait.
    Try,
    /// The call waits for at most this time.
    Timeout(Duration),
    /// The call waits until this token is cancelled.
    Cancelled(CancelToken),
    /// The call waits until it has the lock.
    Forever,
}

macro_rules! call {
    ($wait:expr, $lock:ident . ($forever:ident, $try:ident, $timeout:ident, $with:ident)) => {
        match $wait {
            Wait::Try => $lock.$try(),
            Wait::Timeout(limit) => $lock.$timeout(*limit),
            Wait::Cancelled(token) => $lock.$with(Face::forever().cancelled_by(token)),
            Wait::Forever => $lock.$forever(),
        }
        .optional()
    };
}

pub fn mutex(lock: &ZkMutex, wait: &Wait) -> Result<Option<ZkMutexGuard>> {
    call!(wait, lock.(lock, try_lock, lock_timeout, lock_with))
}

pub fn read(lock: &ZkRwLock, wait: &Wait) -> Result<Option<ZkReadGuard>> {
    call!(wait, lock.(read, try_read, read_timeout, read_with))
}

pub fn write(lock: &ZkRwLock, wait: &Wait) -> Result<Option<ZkWriteGuard>> {
    call!(wait, lock.(write, try_write, write_timeout, write_with))
}

pub fn permits(lock: &ZkSemaphore, number: u32, wait: &Wait) -> Result<Option<ZkPermit>> {
    let wait = match wait {
        Wait::Try => Face::timeout(Duration::ZERO),
        Wait::Timeout(limit) => Face::timeout(*limit),
        Wait::Cancelled(token) => Face::forever().cancelled_by(token),
        Wait::Forever => return lock.acquire_many(number).optional(),
    };
    lock.acquire_many_with(number, wait).optional()
}

pub fn semaphore_mutex(
    lock: &ZkSemaphoreMutex,
    wait: &Wait,
) -> Result<Option<ZkSemaphoreMutexGuard>> {
    call!(wait, lock.(lock, try_lock, lock_timeout, lock_with))
}

pub fn exclusive(lock: &ZkExclusiveLock, wait: &Wait) -> Result<Option<ZkExclusiveGuard>> {
    call!(wait, lock.(lock, try_lock, lock_timeout, lock_with))
}

pub fn multi(lock: &ZkMultiLock, wait: &Wait) -> Result<Option<ZkMultiGuard>> {
    call!(wait, lock.(lock, try_lock, lock_timeout, lock_with))
}

pub fn leadership(candidate: &ZkCandidate, wait: &Wait) -> Result<Option<Leadership>> {
    match wait {
        Wait::Try => candidate.wait_leader_timeout(Duration::ZERO),
        Wait::Timeout(limit) => candidate.wait_leader_timeout(*limit),
        Wait::Cancelled(token) => candidate.wait_leader_with(Face::forever().cancelled_by(token)),
        Wait::Forever => candidate.wait_leader(),
    }
    .optional()
}
