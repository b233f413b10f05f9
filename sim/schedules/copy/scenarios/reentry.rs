//! The number of guards that each thread has on a lock.

use std::sync::{Arc, OnceLock, Weak};

use crate::local::reentry::{Guards, Reentry};
use zk_session::world::{explore_up_to, spawn, this_thread};

/// How often a thread that could continue loses the processor.
const BOUND: Option<usize> = Some(3);

/// A hold of this thread, with a number.
struct Numbered(u32, Guards);

impl Numbered {
    fn new(number: u32) -> Self {
        Numbered(number, Guards::of(this_thread()))
    }
}

impl AsRef<Guards> for Numbered {
    fn as_ref(&self) -> &Guards {
        &self.1
    }
}

/// Two threads take three guards each on a lock with two places, and give them up in two ways. A
/// third thread checks the state.
pub fn guards_of_two_threads_and_a_check_by_a_third() {
    explore_up_to(BOUND, || {
        let reentry = Arc::new(Reentry::new());
        let other = {
            let reentry = reentry.clone();
            spawn(move || {
                let hold = reentry.insert(Numbered::new(2));
                hold.1.nest();
                assert!(!reentry.leave(&hold), "one guard is left");
                assert!(reentry.leave(&hold), "the last guard");
            })
        };
        let looker = {
            let reentry = reentry.clone();
            spawn(move || reentry.any(|hold: &Numbered| hold.0 == 3))
        };
        let (own, first) = (this_thread(), reentry.insert(Numbered::new(1)));
        assert_eq!(reentry.count(own), 1, "guards of this thread");
        assert!(reentry.leave(&first), "the last guard");
        other.join().unwrap();
        assert!(!looker.join().unwrap(), "no thread has such a hold");
        assert!(!reentry.any(|_| true), "all are gone");
    });
}

/// A hold that reads the state of its lock when it is dropped.
struct Curious(OnceLock<Weak<Reentry<Curious>>>, Guards);

impl Curious {
    fn new() -> Self {
        Curious(OnceLock::new(), Guards::of(this_thread()))
    }
}

impl AsRef<Guards> for Curious {
    fn as_ref(&self) -> &Guards {
        &self.1
    }
}

impl Drop for Curious {
    fn drop(&mut self) {
        if let Some(reentry) = self.0.get().and_then(Weak::upgrade) {
            assert!(!reentry.any(|_| false), "the closure returns false");
        }
    }
}

/// A thread's new hold replaces an old one whose guards were leaked. The old hold is dropped then.
pub fn a_hold_may_read_its_lock_when_it_is_dropped() {
    explore_up_to(BOUND, || {
        let reentry = Arc::new(Reentry::new());
        let looker = {
            let reentry = reentry.clone();
            // This thread may have the last reference, and drops it outside the lock too.
            spawn(move || reentry.any(|_: &Curious| false))
        };
        let old = reentry.insert(Curious::new());
        let _ = old.0.set(Arc::downgrade(&reentry));
        drop(old);
        let new = reentry.insert(Curious::new());
        assert!(reentry.leave(&new), "the last guard");
        assert!(!looker.join().unwrap(), "the closure returns false");
    });
}
