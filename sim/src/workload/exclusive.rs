//! A `ZkExclusiveLock`.

use zk_mutex_simulated::{Error, ZkExclusiveGuard, ZkExclusiveLock};

use super::Place;
use super::calls;
use super::worker::Worker;
use crate::observer::{Listed, Wish};

pub(super) fn turn(worker: &mut Worker, lock: &ZkExclusiveLock, place: &Place) {
    if worker.one_in(12) {
        worker.lists(place, Listed::Holders, || lock.holders());
        return;
    }
    let never = |_: &Error| false;
    let Some(guard) =
        worker.ask(&[(place, Wish::Alone)], never, |wait| calls::exclusive(lock, wait))
    else {
        return;
    };
    worker.acquired(&[&guard]);
    let view = worker.hold(&guard);
    worker.lets_go(&[&guard], &view);
    worker.end(view, guard, ZkExclusiveGuard::unlock);
}
