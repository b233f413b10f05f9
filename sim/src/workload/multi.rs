//! A `ZkMultiLock`: several of the run's locks as one.

use zk_mutex_simulated::{Error, Held, Member, ZkMultiGuard, ZkMultiLock};
use zk_sim_runtime::fail;

use super::worker::Worker;
use super::{Lock, Recipe, calls};
use crate::observer::Wish;

pub(super) fn turn(worker: &mut Worker, locks: &[Lock]) {
    let mut which: Vec<usize> =
        (0..locks.len()).filter(|at| !matches!(locks[*at], Lock::Election(_))).collect();
    worker.rng.shuffle(&mut which);
    which.truncate(if worker.rng.bool() { 2 } else { 3 });
    let places = worker.places().to_vec();
    let (mut members, mut wanted, mut changes) = (Vec::new(), Vec::new(), false);
    for at in &which {
        let (place, reads) = (&places[*at], worker.rng.bool());
        let (member, wish) = match (&locks[*at], &place.recipe) {
            (Lock::Semaphore(lock), Recipe::Semaphore { permits, most }) => {
                changes |= most > permits;
                let number = worker.rng.u32(1..=*permits);
                (Member::permits(lock, number), Wish::Permits(number))
            }
            (Lock::ReadWrite(lock), _) if reads => (Member::read(lock), Wish::Shared),
            (Lock::ReadWrite(lock), _) => (Member::write(lock), Wish::Alone),
            (Lock::Mutex(lock), _) => (Member::from(lock), Wish::Alone),
            (Lock::SemaphoreMutex(lock), _) => (Member::from(lock), Wish::Alone),
            (Lock::Exclusive(lock), _) => (Member::from(lock), Wish::Alone),
            _ => continue,
        };
        members.push(member);
        wanted.push((place, wish));
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
    let Some(guard) = worker.ask(&wanted, may_fail, |wait| calls::multi(&lock, wait)) else {
        for at in &which {
            // Only a mutex can say whether this thread has it.
            let Lock::Mutex(lock) = &locks[*at] else { continue };
            let is_left = lock.is_owned_by_current_thread();
            let text = || format!("a multi-lock was not taken, and {lock:?} is held");
            worker.shared.observer.check("all or nothing", !is_left, text);
        }
        return;
    };
    let held: Vec<&Held> = guard.holds().collect();
    let text = || format!("{} holds in place of {holds}", held.len());
    worker.shared.observer.check("all or nothing", held.len() == holds, text);
    worker.acquired(&held);
    let lost = (!worker.one_in(4)).then(|| guard.lost());
    let view = worker.hold_all(held[0], lost, || guard.is_held());
    worker.lets_go(&held, &view);
    drop(held);
    worker.end(view, guard, ZkMultiGuard::unlock);
}
