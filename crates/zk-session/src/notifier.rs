//! Wakes a thread that waits for one of several events, and says which of them have happened.
//!
//! A waiter makes a `Notifier` and registers it for each key (a path, say) in a `WatchRegistry`.
//! The thread that learns of a change of the key notifies the registry. No event may be lost, even
//! if it comes before the wait begins.

use std::borrow::Borrow;
use std::hash::Hash;
use std::sync::Arc;

use crate::limit::{Ended, Limit};
use crate::world::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::world::{HashMap, Mutex, Receiver, Sender, bounded};

/// One waiter's notifier. Several notifications before one wait are one wake-up; none is lost.
/// Each bit of its masks stands for one event.
pub struct Notifier {
    events: AtomicU8,
    sender: Sender<()>,
    receiver: Receiver<()>,
}

impl Notifier {
    pub fn new() -> Arc<Self> {
        let (sender, receiver) = bounded(1);
        Arc::new(Notifier { events: AtomicU8::new(0), sender, receiver })
    }

    /// Notifies the waiter. If the channel is full, an earlier notification is unread, and the
    /// waiter will read these events together with it.
    pub fn notify(&self, mask: u8) {
        self.events.fetch_or(mask, Ordering::AcqRel);
        let _ = self.sender.try_send(());
    }

    /// Waits for a notification. Returns the events since the last wait.
    pub fn wait(&self, limit: &Limit<'_>) -> Ended<u8> {
        match limit.recv(&self.receiver) {
            Ended::Got(()) => Ended::Got(self.events.swap(0, Ordering::AcqRel)),
            Ended::Disconnected => Ended::Disconnected,
            Ended::Deadline => Ended::Deadline,
            Ended::Cancelled => Ended::Cancelled,
        }
    }

    /// As `wait`, but does not block: `None` if there was no notification.
    pub(crate) fn take(&self) -> Option<u8> {
        self.receiver.try_recv().ok().map(|()| self.events.swap(0, Ordering::AcqRel))
    }

    /// The events since the last wait.
    pub fn events(&self) -> u8 {
        self.events.load(Ordering::Acquire)
    }

    /// Forgets the events of this mask that have come until now. The next wait may end with no
    /// event at all.
    pub fn clear(&self, mask: u8) {
        self.events.fetch_and(!mask, Ordering::AcqRel);
    }
}

/// The dispatch table for watch events: which notifiers to notify when a key (a znode's path, say)
/// changes. A registration ends when its `Registration` is dropped.
pub struct WatchRegistry<K> {
    next: AtomicU64,
    table: Arc<Table<K>>,
}

type Table<K> = Mutex<HashMap<K, Vec<Registered>>>;

struct Registered {
    number: u64,
    notifier: Arc<Notifier>,
    mask: EventMask,
}

/// The events that a notifier gets for a key: one mask when the key is gone, another when it has
/// changed.
#[derive(Clone, Copy)]
pub struct EventMask {
    pub gone: u8,
    pub changed: u8,
}

/// Keeps a notifier registered until this is dropped.
pub struct Registration<K: Hash + Eq> {
    table: Arc<Table<K>>,
    key: K,
    number: u64,
}

/// A registration that is made when its owner first has to wait: most calls never do.
pub(crate) struct LazyRegistration<'a, K: Hash + Eq> {
    registry: &'a WatchRegistry<K>,
    key: K,
    made: Option<(Arc<Notifier>, Registration<K>)>,
}

impl<'a, K: Hash + Eq + Clone> LazyRegistration<'a, K> {
    pub(crate) fn new(registry: &'a WatchRegistry<K>, key: K) -> Self {
        LazyRegistration { registry, key, made: None }
    }

    /// Waits for a change of the key. The first call only registers, and returns at once: a change
    /// from before the registration has notified nobody, so the owner must look once more.
    pub(crate) fn wait(&mut self, limit: &Limit<'_>) -> Ended<u8> {
        if let Some((notifier, _)) = &self.made {
            return notifier.wait(limit);
        }
        let notifier = Notifier::new();
        let mask = EventMask { gone: 1, changed: 1 };
        let registration = self.registry.register(self.key.clone(), &notifier, mask);
        self.made = Some((notifier, registration));
        Ended::Got(0)
    }
}

impl<K> Default for WatchRegistry<K> {
    fn default() -> Self {
        WatchRegistry { next: AtomicU64::new(0), table: Arc::default() }
    }
}

impl<K: Hash + Eq + Clone> WatchRegistry<K> {
    /// From now on each change of `key` notifies `notifier`.
    pub fn register(&self, key: K, notifier: &Arc<Notifier>, mask: EventMask) -> Registration<K> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let registered = Registered { number, notifier: notifier.clone(), mask };
        self.table.lock().entry(key.clone()).or_default().push(registered);
        Registration { table: self.table.clone(), key, number }
    }

    /// The number of keys with a registration.
    #[cfg(any(feature = "test", zk_sim))]
    pub(crate) fn len(&self) -> usize {
        self.table.lock().len()
    }

    /// Notifies all notifiers that are registered for `key`.
    pub fn notify<Q>(&self, key: &Q, is_gone: bool)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        for Registered { notifier, mask, .. } in self.table.lock().get(key).into_iter().flatten() {
            notifier.notify(if is_gone { mask.gone } else { mask.changed });
        }
    }
}

impl<K: Hash + Eq> Drop for Registration<K> {
    fn drop(&mut self) {
        let mut table = self.table.lock();
        if let Some(entries) = table.get_mut(&self.key) {
            entries.retain(|registered| registered.number != self.number);
            if entries.is_empty() {
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
    fn a_notification_before_the_wait_ends_it_at_once_and_is_delivered_once() {
        let notifier = Notifier::new();
        notifier.notify(1);
        notifier.notify(4);
        assert_eq!(notifier.events(), 5);
        assert!(matches!(notifier.wait(&Limit::after(Duration::ZERO)), Ended::Got(5)));
        assert!(matches!(notifier.wait(&Limit::after(Duration::ZERO)), Ended::Deadline));
    }

    #[test]
    fn a_cleared_event_is_not_delivered_and_a_later_one_is() {
        let notifier = Notifier::new();
        notifier.notify(3);
        notifier.clear(1);
        assert_eq!(notifier.events(), 2);
        notifier.notify(8);
        assert!(matches!(notifier.wait(&Limit::after(Duration::ZERO)), Ended::Got(10)));
    }

    #[test]
    fn each_registration_is_notified_of_its_key_until_it_is_dropped() {
        let (registry, notifier, other) =
            (WatchRegistry::<u8>::default(), Notifier::new(), Notifier::new());
        let first = registry.register(7, &notifier, EventMask { gone: 1, changed: 2 });
        let second = registry.register(7, &other, EventMask { gone: 4, changed: 8 });
        registry.notify(&7, true);
        registry.notify(&8, false);
        assert_eq!((notifier.events(), other.events()), (1, 4));
        drop(first);
        registry.notify(&7, false);
        assert_eq!((notifier.events(), other.events()), (1, 12));
        drop(second);
        assert!(registry.table.lock().is_empty());
    }
}
