//! A `ZkSemaphore`, whose number of permits may be changed, and a `ZkSemaphoreMutex`.

use zk_mutex_simulated::{
    Error, ZkPermit, ZkSemaphore, ZkSemaphoreMutex, ZkSemaphoreMutexGuard, ZkSession,
};
use zk_sim_runtime::library::thread;

use super::calls;
use super::worker::Worker;
use super::{Place, Recipe};

pub(super) fn turn(worker: &mut Worker, session: &ZkSession, lock: &ZkSemaphore, place: &Place) {
    let Recipe::Semaphore { permits, most } = place.recipe else { return };
    let changes = most > permits;
    if changes && !worker.is_calm() && worker.one_in(10) {
        let number = if worker.one_in(6) { 0 } else { worker.rng.u32(1..=most) };
        let _ = worker.quick("set_permits", worker.step(), || lock.set_permits(number));
        return;
    }
    if worker.one_in(12) {
        return ask_for_one(worker, session, lock);
    }
    let number = if worker.rng.bool() { 1 } else { worker.rng.u32(1..=permits) };
    // The thread wants more permits than there are now.
    let too_many =
        move |e: &Error| changes && number > 1 && matches!(e, Error::InvalidConfig { .. });
    let permit = worker.ask(Some(&place.path), too_many, |wait| calls::permits(lock, number, wait));
    let Some(permit) = permit else { return };
    worker.acquired(&[&permit]);
    let view = worker.hold(&permit);
    worker.lets_go(&[&permit], &view);
    if worker.one_in(8) {
        // Any thread may release the permit.
        thread::spawn(move || drop(permit));
        // Signals may come until that thread has released it, so they are not checked later.
        return;
    }
    worker.end(view, permit, ZkPermit::unlock);
}

/// Requests the revocation of the holder of some permit.
fn ask_for_one(worker: &mut Worker, session: &ZkSession, lock: &ZkSemaphore) {
    let step = worker.step() * 2;
    let Ok(holders) = worker.quick("holders", step * 8, || lock.holders()) else { return };
    let Some(holder) = holders.first() else { return };
    let node = format!("{}/{}", lock.path(), holder.name);
    worker.shared.observer.asks_for(&node);
    let _ = worker.quick("attempt_revoke", step, || session.attempt_revoke(&node));
}

pub(super) fn mutex_turn(worker: &mut Worker, lock: &ZkSemaphoreMutex, place: &Place) {
    let never = |_: &Error| false;
    let guard = worker.ask(Some(&place.path), never, |wait| calls::semaphore_mutex(lock, wait));
    let Some(guard) = guard else { return };
    worker.acquired(&[&guard]);
    let view = worker.hold(&guard);
    worker.lets_go(&[&guard], &view);
    worker.end(view, guard, ZkSemaphoreMutexGuard::unlock);
}
