//! A `ZkRwLock`: readers, writers, and writers that downgrade.

use zk_mutex_simulated::{Error, ZkReadGuard, ZkRwLock, ZkSession, ZkWriteGuard};

use super::Place;
use super::calls::{self, Wait};
use super::worker::Worker;
use crate::observer::{Listed, Wish};

pub(super) fn turn(worker: &mut Worker, session: &ZkSession, lock: &ZkRwLock, place: &Place) {
    match worker.rng.u32(..12) {
        0 => ask_for_it(worker, session, lock, place),
        1..7 => read(worker, lock, place),
        _ => write(worker, lock, place),
    }
}

fn read(worker: &mut Worker, lock: &ZkRwLock, place: &Place) {
    let never = |_: &Error| false;
    let Some(guard) = worker.ask(&[(place, Wish::Shared)], never, |wait| calls::read(lock, wait))
    else {
        return;
    };
    worker.acquired(&[&guard]);
    reads(worker, lock, guard);
}

/// The thread reads and does not write any more.
fn reads(worker: &mut Worker, lock: &ZkRwLock, guard: ZkReadGuard) {
    let view = worker.hold(&guard);
    let lost = |e: &Error| matches!(e, Error::Lost { .. });
    if worker.one_in(8)
        && let Some(inner) = worker.ask(&[], lost, |wait| calls::read(lock, wait))
    {
        let is_same = inner.fencing_token() == guard.fencing_token();
        let text = || format!("{} is nested as {}", guard.path(), inner.path());
        worker.shared.observer.check("re-entry", is_same, text);
    }
    if worker.one_in(8) {
        let told = worker.quick("write", worker.step(), || calls::write(lock, &Wait::Forever));
        let is_refused = matches!(told, Err(Error::WouldDeadlock { .. } | Error::Lost { .. }));
        let is_refused = is_refused || worker.is_closed();
        let text = || format!("{} is read, and write() says {told:?}", guard.path());
        worker.shared.observer.check("upgrade", is_refused, text);
    }
    worker.lets_go(&[&guard], &view);
    worker.end(view, guard, ZkReadGuard::unlock);
}

fn write(worker: &mut Worker, lock: &ZkRwLock, place: &Place) {
    let never = |_: &Error| false;
    let Some(guard) = worker.ask(&[(place, Wish::Alone)], never, |wait| calls::write(lock, wait))
    else {
        return;
    };
    worker.acquired(&[&guard]);
    let view = worker.hold(&guard);
    if worker.one_in(3) {
        // The server refuses this when the queue's numbers are used up.
        let may_fail = |e: &Error| matches!(e, Error::Lost { .. } | Error::Server { .. });
        let observer = worker.shared.observer.clone();
        let reading = worker.ask(&[], may_fail, |wait| {
            let outcome = calls::read(lock, wait);
            let may_read = !matches!(outcome, Ok(None));
            let text = || format!("{lock:?} is written to, and may not be read");
            observer.check("downgrade", may_read, text);
            outcome
        });
        if let Some(reading) = reading {
            worker.acquired(&[&reading]);
            if worker.rng.bool() {
                worker.lets_go(&[&guard], &view);
                worker.end(view, guard, ZkWriteGuard::unlock);
                return reads(worker, lock, reading);
            }
            // The read is released first, and the write goes on.
            let beside = worker.hold(&reading);
            worker.lets_go(&[&reading], &beside);
            worker.end(beside, reading, ZkReadGuard::unlock);
        }
    }
    worker.lets_go(&[&guard], &view);
    worker.end(view, guard, ZkWriteGuard::unlock);
}

/// Requests the revocation of some contender.
fn ask_for_it(worker: &mut Worker, session: &ZkSession, lock: &ZkRwLock, place: &Place) {
    let all = if worker.rng.bool() {
        worker.lists(place, Listed::Holders, || lock.holders())
    } else {
        worker.lists(place, Listed::Contenders, || lock.contenders())
    };
    let Some(contenders) = all else { return };
    let Some(contender) = contenders.first() else { return };
    worker.asks_for(&contender.path, || session.attempt_revoke(&contender.path));
}
