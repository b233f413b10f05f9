//! A `ZkMultiLock`: several of the run's locks as one.

use zk_mutex_simulated::{Error, Held, Member, ZkMultiGuard, ZkMultiLock};
use zk_sim_runtime::fail;

use super::worker::Worker;
use super::{Lock, Recipe, calls};

pub(super) fn turn(worker: &mut Worker, locks: &[Lock]) {
    let mut which: Vec<usize> =
        (0..locks.len()).filter(|at| !matches!(locks[*at], Lock::Election(_))).collect();
    worker.rng.shuffle(&mut which);
    which.truncate(if worker.rng.bool() { 2 } else { 3 });
    let (mut members, mut changes) = (Vec::new(), false);
    for at in &which {
        let (recipe, reads) = (worker.places()[*at].recipe.clone(), worker.rng.bool());
        let member = match (&locks[*at], recipe) {
            (Lock::Semaphore(lock), Recipe::Semaphore { permits, most }) => {
                changes |= most > permits;
                let wanted = worker.rng.u32(1..=permits);
                Member::permits(lock, wanted)
            }
            (Lock::ReadWrite(lock), _) if reads => Member::read(lock),
            (Lock::ReadWrite(lock), _) => Member::write(lock),
            (Lock::Mutex(lock), _) => Member::from(lock),
            (Lock::SemaphoreMutex(lock), _) => Member::from(lock),
            (Lock::Exclusive(lock), _) => Member::from(lock),
            _ => continue,
        };
        members.push(member);
    }
    if members.len() < 2 {
        return;
    }
    let holds = members.len();
    let lock = match ZkMultiLock::new(members) {
        Ok(lock) => lock,
        Err(e) => return fail("wrong error", format!("no multi-lock: {e}")),
    };
    // If one member is lost during the wait for another one, the wait ends.
    let may_fail = move |e: &Error| {
        matches!(e, Error::Lost { .. }) || changes && matches!(e, Error::InvalidConfig { .. })
    };
    let Some(guard) = worker.ask(None, may_fail, |wait| calls::multi(&lock, wait)) else {
        let is_left = which.iter().any(|at| match &locks[*at] {
            Lock::Mutex(lock) => lock.is_owned_by_current_thread(),
            _ => false,
        });
        if is_left {
            fail("all or nothing", "a multi-lock was not taken, and a member is held".to_owned());
        }
        return;
    };
    let held: Vec<&Held> = guard.holds().collect();
    if held.len() != holds {
        fail("all or nothing", format!("{} holds in place of {holds}", held.len()));
    }
    worker.acquired(&held);
    let lost = (!worker.one_in(4)).then(|| guard.lost());
    let view = worker.hold_all(held[0], lost, || guard.is_held());
    worker.lets_go(&held, &view);
    drop(held);
    worker.end(view, guard, ZkMultiGuard::unlock);
}
