//! The notifier and the registry of watches.

use std::sync::Arc;
use std::time::Duration;

use crate::limit::{Ended, Limit};
use crate::session::bell::{Bell, Bells, Causes};
use crate::world::atomic::{AtomicBool, Ordering};
use crate::world::{Instant, advance, explore_up_to, spawn};

/// How often a thread that could go on loses the processor.
const BOUND: Option<usize> = Some(3);

const SECOND: Duration = Duration::from_secs(1);
const ONE: u8 = 1;
const TWO: u8 = 2;

fn wait(bell: &Bell) -> u8 {
    match bell.wait(&Limit::NONE) {
        Ended::Got(causes) => causes,
        _ => panic!("nothing else ends this wait"),
    }
}

pub fn no_event_is_lost() {
    explore_up_to(BOUND, || {
        let bell = Bell::new();
        let ringers = [ONE, TWO].map(|cause| {
            let bell = bell.clone();
            spawn(move || bell.ring(cause))
        });
        let mut heard = 0;
        while heard != ONE | TWO {
            heard |= wait(&bell);
        }
        ringers.into_iter().for_each(|ringer| ringer.join().unwrap());
    });
}

/// The server changes a node, and tells those who had set a watch. The flag is the node: who reads
/// it after the registration either finds the change or is told of it.
pub fn an_event_behind_the_registration_wakes_the_waiter() {
    explore_up_to(BOUND, || {
        let (bells, is_gone) = (Arc::new(Bells::<String>::default()), Arc::new(AtomicBool::new(false)));
        let server = {
            let (bells, is_gone) = (bells.clone(), is_gone.clone());
            spawn(move || {
                is_gone.store(true, Ordering::Release);
                bells.ring("/l/n", true);
            })
        };
        let bell = Bell::new();
        let _registration = bells.register("/l/n".to_owned(), &bell, Causes { gone: ONE, changed: TWO });
        if !is_gone.load(Ordering::Acquire) {
            assert_eq!(wait(&bell), ONE, "another event");
        }
        server.join().unwrap();
    });
}

pub fn an_event_and_a_deadline_at_the_same_instant() {
    explore_up_to(BOUND, || {
        let bell = Bell::new();
        let deadline = Instant::now() + SECOND;
        let ringer = {
            let bell = bell.clone();
            spawn(move || bell.ring(ONE))
        };
        let clock = spawn(|| advance(SECOND));
        let heard = match bell.wait(&Limit::NONE.or_at(deadline)) {
            Ended::Got(causes) => causes,
            // The wait that follows hears what this one has missed.
            Ended::Deadline => wait(&bell),
            _ => panic!("nothing else ends this wait"),
        };
        assert_eq!(heard, ONE, "another event");
        [ringer, clock].into_iter().for_each(|thread| thread.join().unwrap());
    });
}

pub fn an_event_that_comes_while_another_is_cleared_is_kept() {
    explore_up_to(BOUND, || {
        let bell = Bell::new();
        bell.ring(ONE);
        let ringer = {
            let bell = bell.clone();
            spawn(move || bell.ring(TWO))
        };
        bell.hush(ONE);
        let mut heard = 0;
        while heard & TWO == 0 {
            heard |= wait(&bell);
        }
        assert_eq!(heard, TWO, "what was cleared came back");
        ringer.join().unwrap();
        assert_eq!(bell.rung(), 0, "an event is told twice");
    });
}

pub fn a_registration_that_is_dropped_takes_no_other_along() {
    explore_up_to(BOUND, || {
        let bells = Arc::new(Bells::<u32>::default());
        let causes = Causes { gone: ONE, changed: TWO };
        let (old, new) = (Bell::new(), Bell::new());
        let former = bells.register(1, &old, causes);
        let server = {
            let bells = bells.clone();
            spawn(move || bells.ring(&1, false))
        };
        let _registration = bells.register(1, &new, causes);
        drop(former);
        let before = old.rung();
        server.join().unwrap();
        assert_eq!(old.rung(), before, "an event came behind the registration");
        bells.ring(&1, true);
        assert_eq!(wait(&new) & ONE, ONE, "the other registration is gone");
        assert_eq!(old.rung(), before, "an event came behind the registration");
    });
}
