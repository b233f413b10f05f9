//! A `ZkSemaphore`, whose number of permits may be changed, and a `ZkSemaphoreMutex`.

use std::time::Duration;

use zk_mutex_simulated::{
    Error, ZkPermit, ZkSemaphore, ZkSemaphoreMutex, ZkSemaphoreMutexGuard, ZkSession,
};
use zk_sim_runtime::fail;
use zk_sim_runtime::library::thread;

use super::calls;
use super::side_channel::News;
use super::worker::Worker;
use super::{Place, Recipe};
use crate::between;
use crate::observer::{Listed, Wish};

pub(super) fn turn(worker: &mut Worker, session: &ZkSession, lock: &ZkSemaphore, place: &Place) {
    let Recipe::Semaphore { permits, most } = place.recipe else { return };
    let changes = most > permits;
    if changes && !worker.is_calm() && worker.one_in(10) {
        let number = if worker.one_in(6) { 0 } else { worker.rng.u32(1..=most) };
        return change(worker, lock, place, number, most);
    }
    if worker.one_in(12) {
        return ask_for_one(worker, session, lock, place);
    }
    let number = if worker.rng.bool() { 1 } else { worker.rng.u32(1..=permits) };
    // The thread wants more permits than there are now.
    let too_many =
        move |e: &Error| changes && number > 1 && matches!(e, Error::InvalidConfig { .. });
    let permit = worker.ask(&[(place, Wish::Permits(number))], too_many, |wait| {
        calls::permits(lock, number, wait)
    });
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
    worker.end(view, permit, ZkPermit::release);
}

/// Changes the number of permits. A thread that has set it to 0 raises it again: all threads may
/// wait by then, and none of them would change it before the storm is over.
fn change(worker: &mut Worker, lock: &ZkSemaphore, place: &Place, number: u32, most: u32) {
    set(worker, lock, place, number);
    let mut is_raised = number > 0;
    while !is_raised && !worker.is_calm() && !worker.is_closed() {
        let pause = between(&mut worker.rng, Duration::from_millis(1), worker.job.longest_pause);
        thread::sleep(pause);
        let number = worker.rng.u32(1..=most);
        is_raised = set(worker, lock, place, number);
    }
}

/// Sets the number of permits, and tells another client. False if it is not known whether it is set.
fn set(worker: &mut Worker, lock: &ZkSemaphore, place: &Place, number: u32) -> bool {
    let asked = worker.shared.observer.moment();
    let is_set = worker.quick("set_permits", worker.step(), || lock.set_permits(number)).is_ok();
    if is_set {
        worker.shared.observer.has_permits(place, number, asked);
        worker.tells(News::Permits(number));
    }
    is_set
}

/// Another client has told that it has set the number of permits: the number is asked for, by an
/// object that was given this number.
pub(super) fn hears(worker: &mut Worker, session: &ZkSession, place: &Place, number: u32) {
    if number == 0 {
        return; // no object may be given this number
    }
    let lock = match ZkSemaphore::builder(session, &place.path, number).build() {
        Ok(lock) => lock,
        Err(_) if worker.is_closed() => return,
        Err(e) => return fail("wrong error", format!("{}: no lock: {e}", place.path)),
    };
    let asked = worker.shared.observer.moment();
    match worker.quick("permits", worker.step(), || lock.permits()) {
        Ok(number) => worker.shared.observer.has_permits(place, number, asked),
        Err(e) => worker.shared.observer.refuses_permits(place, 1, &e, asked),
    }
}

/// Requests the revocation of some contender.
fn ask_for_one(worker: &mut Worker, session: &ZkSession, lock: &ZkSemaphore, place: &Place) {
    let all = if worker.rng.bool() {
        worker.lists(place, Listed::Holders, || lock.holders())
    } else {
        worker.lists(place, Listed::Contenders, || lock.contenders())
    };
    let Some(holders) = all else { return };
    let Some(holder) = holders.first() else { return };
    worker.asks_for(&holder.path, || session.attempt_revoke(&holder.path));
}

pub(super) fn mutex_turn(worker: &mut Worker, lock: &ZkSemaphoreMutex, place: &Place) {
    if worker.one_in(12) {
        worker.lists(place, Listed::Holders, || lock.holders());
        return;
    }
    let never = |_: &Error| false;
    let guard =
        worker.ask(&[(place, Wish::Alone)], never, |wait| calls::semaphore_mutex(lock, wait));
    let Some(guard) = guard else { return };
    worker.acquired(&[&guard]);
    let view = worker.hold(&guard);
    worker.lets_go(&[&guard], &view);
    worker.end(view, guard, ZkSemaphoreMutexGuard::unlock);
}
