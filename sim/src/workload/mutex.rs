//! A `ZkMutex`: nested guards, revocation requests, and locks that outlive their session.

use zk_mutex_simulated::{Error, Held, ZkMutex, ZkMutexGuard};
use zk_sim_runtime::fail;
use zk_sim_runtime::library::thread;

use super::calls;
use super::worker::Worker;
use super::{Place, Recipe};

pub(super) fn turn(worker: &mut Worker, lock: &ZkMutex, place: &Place) {
    if worker.one_in(12) {
        return ask_for_it(worker, lock);
    }
    let never = |_: &Error| false;
    let Some(guard) = worker.ask(Some(&place.path), never, |wait| calls::mutex(lock, wait)) else {
        return;
    };
    worker.acquired(&[&guard]);
    let view = worker.hold(&guard);
    let inner = if worker.one_in(4) { nested(worker, lock, &guard) } else { None };
    let persists = matches!(place.recipe, Recipe::Mutex { persists: true, .. });
    if inner.is_none() && persists && !worker.is_calm() && worker.one_in(8) {
        worker.lets_go(&[&guard], &view);
        return persist(worker, lock, place, guard);
    }
    match inner {
        // The hold lasts until its last guard is dropped, whichever that is.
        Some(inner) if worker.rng.bool() => {
            drop(guard);
            worker.lets_go(&[&inner], &view);
            worker.end(view, inner, ZkMutexGuard::unlock);
        }
        inner => {
            drop(inner);
            worker.lets_go(&[&guard], &view);
            worker.end(view, guard, ZkMutexGuard::unlock);
        }
    }
}

/// Takes another guard on the same thread. It is granted at once, on the same hold, unless the hold
/// is lost.
fn nested(worker: &mut Worker, lock: &ZkMutex, guard: &Held) -> Option<ZkMutexGuard> {
    let is_lost = |e: &Error| matches!(e, Error::Lost { .. });
    let inner = worker.ask(None, is_lost, |wait| calls::mutex(lock, wait))?;
    if inner.fencing_token() != guard.fencing_token() || inner.hold_count() != 2 {
        fail("re-entry", format!("{} is nested as {}", guard.path(), inner.path()));
    }
    Some(inner)
}

/// Requests the revocation of some contender, which is most often the holder.
fn ask_for_it(worker: &mut Worker, lock: &ZkMutex) {
    let step = worker.step() * 2;
    let Ok(contenders) = worker.quick("contenders", step * 8, || lock.contenders()) else { return };
    let which = if worker.rng.bool() { 0 } else { worker.rng.usize(..8) };
    let Some(contender) = contenders.get(which).filter(|contender| !contender.is_persistent())
    else {
        return;
    };
    worker.shared.observer.asks_for(&format!("{}/{}", lock.path(), contender.name));
    let _ = worker.quick("attempt_revoke", step, || lock.attempt_revoke(contender));
}

/// Makes the hold persistent, and releases it by its name later.
fn persist(worker: &mut Worker, lock: &ZkMutex, place: &Place, guard: ZkMutexGuard) {
    let (observer, number, step) = (worker.shared.observer.clone(), worker.number(), worker.step());
    observer.persists(number, &place.path);
    let kept = match worker.quick("persist", step, || guard.persist()) {
        Ok(kept) => kept,
        Err(e) => {
            observer.persisted(number, None);
            return match e {
                Error::Unavailable { .. } | Error::Lost { .. } | Error::Server { .. } => {}
                e => fail("wrong error", format!("{}: persist: {e}", place.path)),
            };
        }
    };
    observer.persisted(number, Some(kept.path()));
    let lasts = worker.a_while();
    thread::sleep(lasts);
    observer.releases_persistent(number, kept.path());
    while let Err(e) =
        worker.quick("release_persistent", step, || lock.release_persistent(kept.name()))
    {
        log::info!("not released: {e}");
        if !matches!(e, Error::Unavailable { .. }) {
            fail("wrong error", format!("{}: release_persistent: {e}", place.path));
        }
    }
    observer.released_persistent(number);
}
