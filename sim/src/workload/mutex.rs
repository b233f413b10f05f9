//! A `ZkMutex`: nested guards and revocation requests.

use zk_mutex_simulated::{Error, Held, ZkMutex, ZkMutexGuard, ZkSession};

use super::calls;
use super::worker::Worker;
use super::{Place, Recipe};
use crate::observer::{Listed, Wish};

pub(super) fn turn(worker: &mut Worker, session: &ZkSession, lock: &ZkMutex, place: &Place) {
    // A lock that is kept for long is asked for more often: others have to leave it alone meanwhile.
    let is_kept = matches!(place.recipe, Recipe::Mutex { keep, .. } if keep > worker.step() * 12);
    if worker.one_in(if is_kept { 2 } else { 12 }) {
        return ask_for_it(worker, session, lock, place);
    }
    let never = |_: &Error| false;
    let Some(guard) = worker.ask(&[(place, Wish::Alone)], never, |wait| calls::mutex(lock, wait))
    else {
        return;
    };
    worker.acquired(&[&guard]);
    let view = worker.hold(&guard);
    let inner = if worker.one_in(4) { nested(worker, lock, &guard) } else { None };
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
    let inner = worker.ask(&[], is_lost, |wait| calls::mutex(lock, wait))?;
    let is_same = inner.fencing_token() == guard.fencing_token() && inner.hold_count() == 2;
    let text = || format!("{} is nested as {}", guard.path(), inner.path());
    worker.shared.observer.check("re-entry", is_same, text);
    Some(inner)
}

/// Requests the revocation of some contender, which is most often the holder.
fn ask_for_it(worker: &mut Worker, session: &ZkSession, lock: &ZkMutex, place: &Place) {
    let all = worker.lists(place, Listed::Contenders, || lock.contenders());
    let Some(contenders) = all else { return };
    let which = if worker.rng.bool() { 0 } else { worker.rng.usize(..8) };
    let Some(contender) = contenders.get(which) else { return };
    worker.asks_for(&contender.path, || session.attempt_revoke(&contender.path));
}
