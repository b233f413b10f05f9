//! What happens to a candidate, for those who want to know.

use crate::error::{Error, LossReason};
use crate::fencing::FencingToken;
use crate::world::{Mutex, Receiver, Sender, TrySendError, bounded};

/// What happens to a candidate; from [`ZkCandidate::events`](crate::ZkCandidate::events).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ElectionEvent {
    /// It leads.
    Elected {
        /// The token of this term.
        token: FencingToken,
    },
    /// Its leadership is lost. It queues again, by itself.
    Lost(LossReason),
    /// It cannot stand for election at the moment, and tries on. (An outage of ZooKeeper is waited
    /// for without a word: the session's events tell of it.)
    Trouble(Error),
    /// It left, or was dropped; with that its leadership ended, if it led. The last event.
    Left,
    /// It cannot go on: the session is closed, or the server refuses it. The last event.
    Failed(Error),
}

/// How many events a reader may be behind before the oldest are forgotten.
const BACKLOG: usize = 64;

/// A candidate's events. Nobody has to read them: there is room for so many, and no more.
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

    /// Never waits: where there is no room, the oldest goes.
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

    /// Nothing comes after this one.
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
