//! A `ZkRwLock`: readers, writers, and writers that downgrade.

use zk_mutex_simulated::{Error, ZkReadGuard, ZkRwLock, ZkWriteGuard};
use zk_sim_runtime::fail;

use super::Place;
use super::calls::{self, Wait};
use super::worker::Worker;

pub(super) fn turn(worker: &mut Worker, lock: &ZkRwLock, place: &Place) {
    match worker.rng.u32(..12) {
        0 => ask_for_it(worker, lock),
        1..7 => read(worker, lock, place),
        _ => write(worker, lock, place),
    }
}

fn read(worker: &mut Worker, lock: &ZkRwLock, place: &Place) {
    let never = |_: &Error| false;
    let Some(guard) = worker.ask(Some(&place.path), never, |wait| calls::read(lock, wait)) else {
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
        && let Some(inner) = worker.ask(None, lost, |wait| calls::read(lock, wait))
        && inner.fencing_token() != guard.fencing_token()
    {
        fail("re-entry", format!("{} is nested as {}", guard.path(), inner.path()));
    }
    if worker.one_in(8) {
        match worker.quick("write", worker.step(), || calls::write(lock, &Wait::Forever)) {
            Err(Error::WouldDeadlock { .. } | Error::Lost { .. }) => {}
            other => {
                fail("upgrade", format!("{} is read, and write() says {other:?}", guard.path()))
            }
        }
    }
    worker.lets_go(&[&guard], &view);
    worker.end(view, guard, ZkReadGuard::unlock);
}

fn write(worker: &mut Worker, lock: &ZkRwLock, place: &Place) {
    let never = |_: &Error| false;
    let Some(guard) = worker.ask(Some(&place.path), never, |wait| calls::write(lock, wait)) else {
        return;
    };
    worker.acquired(&[&guard]);
    let view = worker.hold(&guard);
    if worker.one_in(3) {
        // The server refuses this when the queue's numbers are used up.
        let may_fail = |e: &Error| matches!(e, Error::Lost { .. } | Error::Server { .. });
        let reading = worker.ask(None, may_fail, |wait| {
            let outcome = calls::read(lock, wait);
            if matches!(outcome, Ok(None)) {
                fail("downgrade", format!("{} is written to, and may not be read", lock.path()));
            }
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
fn ask_for_it(worker: &mut Worker, lock: &ZkRwLock) {
    let step = worker.step() * 2;
    let holding = worker.rng.bool();
    let all = worker
        .quick("contenders", step * 8, || if holding { lock.holders() } else { lock.contenders() });
    let Ok(contenders) = all else { return };
    let Some(contender) = contenders.first() else { return };
    worker.shared.observer.asks_for(&format!("{}/{}", lock.path(), contender.name));
    let _ = worker.quick("attempt_revoke", step, || lock.attempt_revoke(contender));
}
