//! Wakes one waiting thread, for whichever of several causes.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;

use crate::limit::{Ended, Limit};
use crate::world::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::world::{HashMap, Mutex, Receiver, Sender, bounded};

/// One waiter's bell. Rings that come together are one wake-up; none is lost.
pub(crate) struct Bell {
    rung: AtomicU8,
    sender: Sender<()>,
    receiver: Receiver<()>,
}

impl Bell {
    pub(crate) fn new() -> Arc<Self> {
        let (sender, receiver) = bounded(1);
        Arc::new(Bell { rung: AtomicU8::new(0), sender, receiver })
    }

    /// Notifies the waiter. If the channel is full, an earlier notification is unread, and the waiter
    /// will read these events together with it.
    pub(crate) fn ring(&self, causes: u8) {
        self.rung.fetch_or(causes, Ordering::AcqRel);
        let _ = self.sender.try_send(());
    }

    /// Waits for a ring; gives the causes since the last time.
    pub(crate) fn wait(&self, limit: &Limit<'_>) -> Ended<u8> {
        match limit.recv(&self.receiver) {
            Ended::Got(()) => Ended::Got(self.rung.swap(0, Ordering::AcqRel)),
            Ended::Disconnected => Ended::Disconnected,
            Ended::Deadline => Ended::Deadline,
            Ended::Cancelled => Ended::Cancelled,
        }
    }

    /// The same without waiting, if there is a ring.
    pub(crate) fn take(&self) -> Option<u8> {
        self.receiver.try_recv().ok().map(|()| self.rung.swap(0, Ordering::AcqRel))
    }

    /// What rang since the last wait.
    pub(crate) fn rung(&self) -> u8 {
        self.rung.load(Ordering::Acquire)
    }

    /// Forgets what rang before now for these causes. Who waits next may wake for nothing.
    pub(crate) fn hush(&self, causes: u8) {
        self.rung.fetch_and(!causes, Ordering::AcqRel);
    }
}

/// Which bell to ring when something happens to a key (a znode's path, say).
///
/// This is the dispatch table for watch events. Who waits for one registers here, and is forgotten
/// when the registration is dropped.
pub(crate) struct Bells<K> {
    next: AtomicU64,
    table: Mutex<HashMap<K, Vec<Entry>>>,
}

struct Entry {
    number: u64,
    bell: Arc<Bell>,
    causes: Causes,
}

/// What a bell hears of a key: these bits when it is gone, those when it has changed.
#[derive(Clone, Copy)]
pub(crate) struct Causes {
    pub(crate) gone: u8,
    pub(crate) changed: u8,
}

/// Rings until it is dropped.
pub(crate) struct Registration<'a, K: Hash + Eq> {
    bells: &'a Bells<K>,
    key: K,
    number: u64,
}

impl<K> Default for Bells<K> {
    fn default() -> Self {
        Bells { next: AtomicU64::new(0), table: Mutex::new(HashMap::default()) }
    }
}

impl<K: Hash + Eq + Clone> Bells<K> {
    /// From now on what happens to `key` rings `bell`.
    pub(crate) fn register(&self, key: K, bell: &Arc<Bell>, causes: Causes) -> Registration<'_, K> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { number, bell: bell.clone(), causes };
        self.table.lock().entry(key.clone()).or_default().push(entry);
        Registration { bells: self, key, number }
    }

    /// Of how many keys somebody waits to hear.
    #[cfg(zk_sim)]
    pub(crate) fn len(&self) -> usize {
        self.table.lock().len()
    }

    pub(crate) fn ring<Q>(&self, key: &Q, is_gone: bool)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        for Entry { bell, causes, .. } in self.table.lock().get(key).into_iter().flatten() {
            bell.ring(if is_gone { causes.gone } else { causes.changed });
        }
    }
}

impl<K: Hash + Eq> Drop for Registration<'_, K> {
    fn drop(&mut self) {
        let mut table = self.bells.table.lock();
        if let Some(bells) = table.get_mut(&self.key) {
            bells.retain(|entry| entry.number != self.number);
            if bells.is_empty() {
                table.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_rang_before_the_wait_ends_it_at_once_and_is_told_once() {
        let bell = Bell::new();
        bell.ring(1);
        bell.ring(4);
        assert_eq!(bell.rung(), 5);
        assert!(matches!(bell.wait(&Limit::after(Duration::ZERO)), Ended::Got(5)));
        assert!(matches!(bell.wait(&Limit::after(Duration::ZERO)), Ended::Deadline));
    }

    #[test]
    fn what_was_hushed_is_not_told_and_what_rings_after_that_is() {
        let bell = Bell::new();
        bell.ring(3);
        bell.hush(1);
        assert_eq!(bell.rung(), 2);
        bell.ring(8);
        assert!(matches!(bell.wait(&Limit::after(Duration::ZERO)), Ended::Got(10)));
    }

    #[test]
    fn each_registration_hears_of_its_key_until_it_is_dropped() {
        let (bells, bell, other) = (Bells::<u8>::default(), Bell::new(), Bell::new());
        let first = bells.register(7, &bell, Causes { gone: 1, changed: 2 });
        let second = bells.register(7, &other, Causes { gone: 4, changed: 8 });
        bells.ring(&7, true);
        bells.ring(&8, false);
        assert_eq!((bell.rung(), other.rung()), (1, 4));
        drop(first);
        bells.ring(&7, false);
        assert_eq!((bell.rung(), other.rung()), (1, 12));
        drop(second);
        assert!(bells.table.lock().is_empty());
    }
}
