//! Locks at paths of their own, each with an object for one call: as where each order, account or
//! file has a lock. All handles are dropped at once: the lock's object while its guard lives, and
//! the guard as soon as it is there. Most calls have little time, so many end between two of their
//! requests.

use std::time::Duration;

use zk_mutex_simulated::ZkSession;
use zk_mutex_simulated::{Error, Result, ZkExclusiveLock, ZkMutex, ZkRwLock, ZkSemaphoreMutex};
use zk_sim_runtime::library::{Instant, thread};
use zk_sim_runtime::{Rng, fail};

use super::calls::{self, Wait};
use super::{Job, Shared};
use crate::between;

/// The folder of these locks.
pub const FOLDER: &str = "/passing";

/// Takes one such lock after the other, until the run is over. `limit`: about as long as a call
/// takes.
pub(super) fn pass(
    job: &Job,
    shared: &Shared,
    session: &ZkSession,
    limit: Duration,
    is_closed: impl Fn() -> bool,
) {
    let mut rng = Rng::with_seed(job.seed.wrapping_add(u64::MAX - 4));
    while !shared.is_over() && !is_closed() {
        thread::sleep(between(&mut rng, job.session_timeout / 32, job.session_timeout * 2));
        // No other client uses a fresh path.
        let path = format!("{FOLDER}/{:016x}", rng.u64(..));
        let wait = match rng.u32(..4) {
            0 => Wait::Try,
            _ => Wait::Timeout(between(&mut rng, limit / 20, limit)),
        };
        shared.observer.calls();
        shared.observer.passes(&path, true);
        let begun = Instant::now();
        let taken = once(session, &path, &wait, rng.u32(..5));
        shared.observer.passes(&path, false);
        shared.observer.calls();
        match taken {
            Ok(is_taken) => {
                let took = begun.elapsed();
                let text = || format!("{path}: taken after {took:?}, and no other client asks");
                shared.observer.check("taken, and free", is_taken, text);
            }
            Err(Error::Unavailable { .. } | Error::Closed { .. } | Error::Lost { .. }) => {}
            Err(_) if is_closed() => {}
            Err(e) => fail("wrong error", format!("{path}: {e}")),
        }
    }
}

/// Takes the lock at this path and lets it go. False: the library says that others have it.
fn once(session: &ZkSession, path: &str, wait: &Wait, kind: u32) -> Result<bool> {
    macro_rules! once {
        ($lock:ident, $call:expr) => {{
            let lock = $lock::new(session, path)?;
            let guard = $call(&lock, wait)?;
            drop(lock);
            Ok(guard.is_some())
        }};
    }
    match kind {
        0 => once!(ZkRwLock, calls::read),
        1 => once!(ZkRwLock, calls::write),
        2 => once!(ZkSemaphoreMutex, calls::semaphore_mutex),
        3 => once!(ZkExclusiveLock, calls::exclusive),
        _ => once!(ZkMutex, calls::mutex),
    }
}
