//! A `ZkElection`: candidates that wait to lead, and runners that are called when they lead.

use std::ops::ControlFlow;
use std::time::Duration;

use zk_mutex_simulated::{Error, Leadership, ZkElection, ZkSession};
use zk_sim_runtime::fail;

use super::Place;
use super::calls;
use super::side_channel::News;
use super::worker::Worker;
use crate::observer::{Listed, Wish};

pub(super) fn turn(worker: &mut Worker, session: &ZkSession, lock: &ZkElection, place: &Place) {
    match worker.rng.u32(..12) {
        0 => ask_to_resign(worker, session, lock, place),
        1..5 => run(worker, lock, place),
        _ => stand(worker, lock, place),
    }
}

/// Leads for a while. The caller then ends the term.
fn lead(worker: &mut Worker, leadership: &Leadership) {
    worker.shared.observer.leads(leadership);
    worker.acquired(&[leadership]);
    let view = worker.hold(leadership);
    worker.lets_go(&[leadership], &view);
    // The signals of the term are set when it ends for any reason.
}

/// Takes part as a candidate, until it has led or gives up.
fn stand(worker: &mut Worker, lock: &ZkElection, place: &Place) {
    let candidate = match worker.quick("join", Duration::ZERO, || lock.join()) {
        Ok(candidate) => candidate,
        Err(_) if worker.is_closed() => return,
        Err(e) => return fail("wrong error", format!("{}: join: {e}", place.path)),
    };
    let never = |_: &Error| false;
    let wanted = &[(place, Wish::Alone)];
    let elected = worker.ask(wanted, never, |wait| calls::leadership(&candidate, wait));
    if let Some(leadership) = &elected {
        lead(worker, leadership);
    }
    let lasted = elected.as_ref().is_some_and(|leadership| leadership.is_held());
    if worker.rng.bool() {
        drop(candidate);
    } else {
        let outcome = worker.quick("leave", worker.step(), || candidate.leave());
        match outcome {
            Ok(()) => worker.tells(News::Released),
            Err(Error::Unavailable { .. }) => {}
            Err(_) if worker.is_closed() => {}
            Err(e) => fail("wrong error", format!("{}: leave: {e}", place.path)),
        }
        if candidate.is_leader() || candidate.leadership().is_some() {
            fail("term outlived", format!("{}: a candidate that has left leads", place.path));
        }
    }
    if let Some(leadership) = elected {
        worker.has_led(leadership, lasted);
    }
}

/// Takes part as a runner, until it has led once or twice, or is cancelled.
fn run(worker: &mut Worker, lock: &ZkElection, place: &Place) {
    let terms = worker.rng.u32(1..=2);
    worker.runs(place, |worker, cancel| {
        let mut led = 0;
        let mut last: Option<(Leadership, bool)> = None;
        let outcome = lock.run_until_cancelled(cancel, |leadership| {
            // The function has returned from the term before.
            if let Some((before, lasted)) = last.take() {
                worker.has_led(before, lasted);
            }
            lead(worker, leadership);
            last = Some((leadership.clone(), leadership.is_held()));
            led += 1;
            if led < terms && !worker.is_over() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        if let Some((last, lasted)) = last {
            worker.has_led(last, lasted);
        }
        outcome
    });
}

/// Asks the leader to resign.
fn ask_to_resign(worker: &mut Worker, session: &ZkSession, lock: &ZkElection, place: &Place) {
    let all = if worker.rng.bool() {
        worker.lists(place, Listed::Holders, || lock.holders())
    } else {
        worker.lists(place, Listed::Contenders, || lock.contenders())
    };
    let Some(holders) = all else { return };
    let Some(leader) = holders.first() else { return };
    worker.asks_for(&leader.path, || session.attempt_revoke(&leader.path));
}
