//! The notifier and the registry of watches.

use std::sync::Arc;
use std::time::Duration;

use zk_session::limit::{Ended, Limit};
use zk_session::notifier::{EventMask, LazyRegistration, Notifier, WatchRegistry};
use zk_session::world::atomic::{AtomicBool, Ordering};
use zk_session::world::{Instant, advance, explore_up_to, spawn};

/// How often a thread that could continue loses the processor.
const BOUND: Option<usize> = Some(3);

const SECOND: Duration = Duration::from_secs(1);
const ONE: u8 = 1;
const TWO: u8 = 2;

fn wait(notifier: &Notifier) -> u8 {
    match notifier.wait(&Limit::NONE) {
        Ended::Got(mask) => mask,
        _ => panic!("this wait cannot end in another way"),
    }
}

pub fn no_event_is_lost() {
    explore_up_to(BOUND, || {
        let notifier = Notifier::new();
        let senders = [ONE, TWO].map(|mask| {
            let notifier = notifier.clone();
            spawn(move || notifier.notify(mask))
        });
        let mut heard = 0;
        while heard != ONE | TWO {
            heard |= wait(&notifier);
        }
        senders.into_iter().for_each(|sender| sender.join().unwrap());
    });
}

/// The server changes a node and notifies the threads that had set a watch. The flag stands for the
/// node: a thread that reads it after the registration either finds the change or is notified of
/// it.
pub fn an_event_behind_the_registration_wakes_the_waiter() {
    explore_up_to(BOUND, || {
        let (registry, is_gone) = (Arc::new(WatchRegistry::<String>::default()), Arc::new(AtomicBool::new(false)));
        let server = {
            let (registry, is_gone) = (registry.clone(), is_gone.clone());
            spawn(move || {
                is_gone.store(true, Ordering::Release);
                registry.notify("/l/n", true);
            })
        };
        let notifier = Notifier::new();
        let _registration = registry.register("/l/n".to_owned(), &notifier, EventMask { gone: ONE, changed: TWO });
        if !is_gone.load(Ordering::Acquire) {
            assert_eq!(wait(&notifier), ONE, "another event");
        }
        server.join().unwrap();
    });
}

/// The session gets its connection while a call looks for it. The flag stands for the connection:
/// the call looks first, and registers only because it has found none.
pub fn a_change_before_the_registration_is_found_by_another_look() {
    explore_up_to(BOUND, || {
        let (registry, is_up) = (Arc::new(WatchRegistry::<()>::default()), Arc::new(AtomicBool::new(false)));
        let session = {
            let (registry, is_up) = (registry.clone(), is_up.clone());
            spawn(move || {
                is_up.store(true, Ordering::Release);
                registry.notify(&(), true);
            })
        };
        let mut changes = LazyRegistration::new(&registry, ());
        while !is_up.load(Ordering::Acquire) {
            changes.wait(&Limit::NONE);
        }
        session.join().unwrap();
    });
}

pub fn an_event_and_a_deadline_at_the_same_instant() {
    explore_up_to(BOUND, || {
        let notifier = Notifier::new();
        let deadline = Instant::now() + SECOND;
        let sender = {
            let notifier = notifier.clone();
            spawn(move || notifier.notify(ONE))
        };
        let clock = spawn(|| advance(SECOND));
        let heard = match notifier.wait(&Limit::NONE.or_at(deadline)) {
            Ended::Got(mask) => mask,
            // This event came too late for the first wait, so the next wait gets it.
            Ended::Deadline => wait(&notifier),
            _ => panic!("this wait cannot end in another way"),
        };
        assert_eq!(heard, ONE, "another event");
        [sender, clock].into_iter().for_each(|thread| thread.join().unwrap());
    });
}

pub fn an_event_that_comes_while_another_is_cleared_is_kept() {
    explore_up_to(BOUND, || {
        let notifier = Notifier::new();
        notifier.notify(ONE);
        let sender = {
            let notifier = notifier.clone();
            spawn(move || notifier.notify(TWO))
        };
        notifier.clear(ONE);
        let mut heard = 0;
        while heard & TWO == 0 {
            heard |= wait(&notifier);
        }
        assert_eq!(heard, TWO, "an event that was cleared came back");
        sender.join().unwrap();
        assert_eq!(notifier.events(), 0, "an event was delivered twice");
    });
}

pub fn a_registration_that_is_dropped_takes_no_other_along() {
    explore_up_to(BOUND, || {
        let registry = Arc::new(WatchRegistry::<u32>::default());
        let mask = EventMask { gone: ONE, changed: TWO };
        let (old, new) = (Notifier::new(), Notifier::new());
        let former = registry.register(1, &old, mask);
        let server = {
            let registry = registry.clone();
            spawn(move || registry.notify(&1, false))
        };
        let _registration = registry.register(1, &new, mask);
        drop(former);
        let before = old.events();
        server.join().unwrap();
        assert_eq!(old.events(), before, "an event came behind the registration");
        registry.notify(&1, true);
        assert_eq!(wait(&new) & ONE, ONE, "the other registration is gone");
        assert_eq!(old.events(), before, "an event came behind the registration");
    });
}
