//! Re-entry: how many guards each thread has on a lock.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use zk_session::world::atomic::{AtomicUsize, Ordering};
use zk_session::world::thread::ThreadId;
use zk_session::world::{HashMap, Mutex};

/// The holds of a lock, by thread.
pub(crate) struct Reentry<H>(Mutex<HashMap<ThreadId, Arc<H>, BuildHasherDefault<Spread>>>);

/// The guards of one hold, all of one thread. The hold that has this is allocated for the thread's
/// first guard, so that further guards allocate nothing.
pub(crate) struct Guards {
    /// A hold knows its thread's id, because the drop of a guard may run in the destructor of a
    /// thread-local, where the current thread's id may not be there.
    thread: ThreadId,
    /// Guards are not `Send`: only their own thread changes this number. Other threads only read
    /// it.
    number: AtomicUsize,
}

impl<H: AsRef<Guards>> Reentry<H> {
    pub(crate) fn new() -> Self {
        Reentry(Mutex::default())
    }

    pub(crate) fn hold_of(&self, thread: ThreadId) -> Option<Arc<H>> {
        self.0.lock().get(&thread).cloned()
    }

    /// Adds a thread's hold, with its first guard.
    pub(crate) fn insert(&self, hold: H) -> Arc<H> {
        let (thread, hold) = (hold.as_ref().thread, Arc::new(hold));
        let before = self.0.lock().insert(thread, hold.clone());
        drop(before); // outside the mutex
        hold
    }

    /// Counts that a guard of this hold is dropped; true if it was the thread's last. Then the
    /// thread has no hold any more.
    pub(crate) fn leave(&self, hold: &H) -> bool {
        let guards = hold.as_ref();
        let left = guards.number.load(Ordering::Relaxed).saturating_sub(1);
        guards.number.store(left, Ordering::Relaxed);
        if left > 0 {
            return false;
        }
        let own = self.0.lock().remove(&guards.thread);
        drop(own); // outside the mutex
        true
    }

    pub(crate) fn count(&self, thread: ThreadId) -> usize {
        let guards = |hold: &Arc<H>| (**hold).as_ref().number.load(Ordering::Relaxed);
        self.0.lock().get(&thread).map_or(0, guards)
    }

    /// Whether `is` is true for the hold of any thread. It is called outside the mutex: if `is` is
    /// the first to see a loss, it notifies the holders, which takes other mutexes.
    pub(crate) fn any(&self, is: impl Fn(&H) -> bool) -> bool {
        let holds: Vec<_> = self.0.lock().values().cloned().collect();
        holds.iter().any(|hold| is(hold))
    }
}

impl Guards {
    /// The first guard of a hold, of this thread.
    pub(crate) fn of(thread: ThreadId) -> Self {
        Guards { thread, number: AtomicUsize::new(1) }
    }

    pub(crate) fn thread(&self) -> ThreadId {
        self.thread
    }

    /// Counts another guard of the thread.
    pub(crate) fn nest(&self) {
        self.number.store(self.number.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }
}

/// Hashes a thread's id, which is a number that counts threads. The standard library's hash is
/// slower, because it must withstand an attacker who chooses the keys. Nobody chooses thread ids.
#[derive(Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }

    fn write_u64(&mut self, n: u64) {
        // 2^64 divided by the golden ratio. Source: D. Knuth, The Art of Computer Programming,
        // volume 3, section 6.4.
        self.0 = (self.0 ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zk_session::world::this_thread;

    struct Numbered(u32, Guards);

    impl Numbered {
        fn of(thread: ThreadId, number: u32) -> Self {
            Numbered(number, Guards::of(thread))
        }
    }

    impl AsRef<Guards> for Numbered {
        fn as_ref(&self) -> &Guards {
            &self.1
        }
    }

    #[test]
    fn the_last_guard_of_a_thread_ends_its_hold() {
        let (reentry, thread) = (Reentry::new(), this_thread());
        assert!(reentry.hold_of(thread).is_none());
        let hold = reentry.insert(Numbered::of(thread, 7));
        hold.1.nest();
        assert_eq!(
            (reentry.count(thread), reentry.hold_of(thread).map(|hold| hold.0)),
            (2, Some(7))
        );
        assert!(!reentry.leave(&hold));
        assert_eq!(reentry.count(thread), 1);
        assert!(reentry.leave(&hold));
        assert_eq!((reentry.count(thread), Arc::strong_count(&hold)), (0, 1));
    }

    #[test]
    fn each_thread_has_a_hold_of_its_own() {
        let reentry = Reentry::new();
        let threads: Vec<ThreadId> =
            (0..100).map(|_| std::thread::spawn(this_thread).join().unwrap()).collect();
        let holds: Vec<_> = (0..)
            .zip(&threads)
            .map(|(i, thread)| reentry.insert(Numbered::of(*thread, i)))
            .collect();
        assert!((0..).zip(&threads).all(|(i, thread)| reentry.hold_of(*thread).unwrap().0 == i));
        assert!(reentry.hold_of(this_thread()).is_none(), "the hold of another thread");
        assert!(reentry.any(|hold| hold.0 == 99) && !reentry.any(|hold| hold.0 == 100));
        assert!(holds.iter().all(|hold| reentry.leave(hold)));
        assert!(!reentry.any(|_| true));
    }
}
