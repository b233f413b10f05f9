//! A `ZkExclusiveLock`.

use zk_mutex_simulated::{Error, ZkExclusiveGuard, ZkExclusiveLock};

use super::Place;
use super::calls;
use super::worker::Worker;

pub(super) fn turn(worker: &mut Worker, lock: &ZkExclusiveLock, place: &Place) {
    if worker.one_in(12) {
        let _ = worker.quick("holders", worker.step() * 2, || lock.holders());
        return;
    }
    let never = |_: &Error| false;
    let Some(guard) = worker.ask(Some(&place.path), never, |wait| calls::exclusive(lock, wait))
    else {
        return;
    };
    worker.acquired(&[&guard]);
    let view = worker.hold(&guard);
    worker.lets_go(&[&guard], &view);
    worker.end(view, guard, ZkExclusiveGuard::unlock);
}
