//! `ElectionEvent`, and the channel on which a candidate reports its events to the program.

use crate::error::{Error, LossReason};
use crate::fencing::FencingToken;
use zk_session::world::{Mutex, Receiver, Sender, TrySendError, bounded};

/// An event of a candidate. [`ZkCandidate::events`](crate::ZkCandidate::events) gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionEvent {
    /// The candidate leads.
    Elected {
        /// The token of this leadership.
        token: FencingToken,
    },
    /// The leadership is lost. The candidate queues again by itself.
    Lost(LossReason),
    /// The candidate could not stand for election, for this reason, and tries again by itself. (An
    /// outage of ZooKeeper gives no event here. The session has an event for it.)
    Retrying(Error),
    /// The candidate left, or was dropped. If it led, its leadership has ended. This is the last
    /// event.
    Left,
    /// The candidate cannot go on: the session is closed, or the server refuses it. This is the
    /// last event.
    Failed(Error),
}

/// How many events a reader may be behind before the oldest are forgotten.
const BACKLOG: usize = 64;

/// The events of a candidate. If nobody reads them, the oldest are dropped.
pub(super) struct Events {
    sender: Mutex<Option<Sender<ElectionEvent>>>,
    receiver: Receiver<ElectionEvent>,
}

impl Events {
    pub(super) fn new() -> Self {
        let (sender, receiver) = bounded(BACKLOG);
        Events { sender: Mutex::new(Some(sender)), receiver }
    }

    pub(super) fn receiver(&self) -> &Receiver<ElectionEvent> {
        &self.receiver
    }

    /// Never waits: if the channel is full, the oldest event is dropped.
    pub(super) fn publish(&self, event: ElectionEvent) {
        let sender = self.sender.lock();
        let Some(sender) = &*sender else { return };
        let mut next = Some(event);
        while let Some(event) = next.take() {
            if let Err(TrySendError::Full(event)) = sender.try_send(event) {
                let _ = self.receiver.try_recv();
                next = Some(event);
            }
        }
    }

    /// Publishes the last event and disconnects the channel.
    pub(super) fn end(&self, event: ElectionEvent) {
        self.publish(event);
        drop(self.sender.lock().take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elected(zxid: usize) -> ElectionEvent {
        ElectionEvent::Elected { token: FencingToken::new(zxid as i64, 0) }
    }

    #[test]
    fn a_slow_reader_misses_the_oldest_and_gets_the_end() {
        let events = Events::new();
        for zxid in 0..BACKLOG * 2 {
            events.publish(elected(zxid));
        }
        events.end(ElectionEvent::Left);
        events.publish(elected(0));
        let seen: Vec<_> = events.receiver().iter().collect();
        assert_eq!(seen.len(), BACKLOG);
        assert_eq!(seen.first(), Some(&elected(BACKLOG + 1)));
        assert_eq!(seen.last(), Some(&ElectionEvent::Left));
    }
}
