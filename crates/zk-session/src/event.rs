//! The states and events of a session, as the application sees them, and their delivery to its
//! subscribers.

use std::time::Duration;

use crate::error::LossReason;
use crate::world::{Receiver, Sender, TrySendError, bounded};

/// The state of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionState {
    /// The first session, or a new one after a loss, is being made.
    Connecting,
    /// The session is connected to a server.
    Connected,
    /// The connection is lost. The session, as far as is known, is not: it is being resumed. What
    /// is held stays held until the lease ends.
    Suspended,
    /// The session is gone, and what was held in it; a new session is being made.
    Lost,
    /// The session was closed, by `close()` or by the drop of its last handle; or this process is a
    /// forked child of the process that connected it. This state is final.
    Closed,
}

/// A change of a session's state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent {
    /// A session was made: the first, or a new one after a loss.
    Connected {
        /// The session's id at the server.
        session_id: i64,
        /// The session timeout that the server granted.
        timeout: Duration,
    },
    /// The connection is lost; the session is being resumed.
    Suspended,
    /// The same session was resumed on a new connection.
    Reconnected,
    /// The session is lost, and what was held in it.
    Lost(LossReason),
    /// The session was closed on our side. This is the last event.
    Closed,
}

/// What happens to a session, for somebody who is told of everything.
#[derive(Debug)]
pub enum Notice {
    /// The code of an operation, and the time from the request to its answer.
    Answered(i32, Duration),
    /// An answer has renewed the lease while something is held, and so much was left of it then.
    LeaseMargin(Duration),
    /// The state of the session has changed.
    Session(SessionEvent),
}

/// Somebody who is told of everything that happens to a session.
pub struct Observing {
    /// Called for each notice, on any thread of the session or of a caller. It must not block, and
    /// runs no foreign code.
    pub tell: Tell,
    /// What a thread of the session's own runs. `Session::close` waits for its end, if it is not
    /// this thread that closes the session.
    pub run: Box<dyn FnOnce() + Send>,
}

/// Takes a notice.
pub type Tell = Box<dyn Fn(Notice) + Send + Sync>;

/// How many events wait for a subscriber at most. Of further events only the latest is kept.
const BACKLOG: usize = 16;

/// The receivers of a session's events.
#[derive(Default)]
pub(super) struct Subscribers(Vec<Subscriber>);

struct Subscriber {
    sender: Sender<SessionEvent>,
    /// The newest event, if the channel was full. A later event replaces it.
    latest: Option<SessionEvent>,
}

impl Subscribers {
    pub(super) fn add(&mut self) -> Receiver<SessionEvent> {
        let (sender, receiver) = bounded(BACKLOG + 1); // one more, for `Closed`
        self.0.push(Subscriber { sender, latest: None });
        receiver
    }

    pub(super) fn publish(&mut self, event: &SessionEvent) {
        for subscriber in &mut self.0 {
            subscriber.latest = Some(event.clone());
        }
        self.flush();
    }

    /// Sends the events that are left over to the channels that have room now. Returns whether any
    /// are still left over.
    pub(super) fn flush(&mut self) -> bool {
        self.0.retain_mut(|subscriber| {
            let Some(event) = subscriber.latest.take() else { return true };
            if subscriber.sender.len() >= BACKLOG && event != SessionEvent::Closed {
                subscriber.latest = Some(event);
                return true;
            }
            match subscriber.sender.try_send(event) {
                Ok(()) => true,
                Err(TrySendError::Full(event)) => {
                    subscriber.latest = Some(event);
                    true
                }
                Err(TrySendError::Disconnected(_)) => false,
            }
        });
        self.0.iter().any(|s| s.latest.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_subscriber_gets_the_latest_event_once_there_is_room() {
        let mut subscribers = Subscribers::default();
        let events = subscribers.add();
        for _ in 0..BACKLOG {
            subscribers.publish(&SessionEvent::Suspended);
        }
        subscribers.publish(&SessionEvent::Reconnected);
        subscribers.publish(&SessionEvent::Suspended);
        subscribers.publish(&SessionEvent::Reconnected);
        assert!(subscribers.flush());
        assert_eq!(events.try_iter().count(), BACKLOG);
        assert!(!subscribers.flush());
        assert_eq!(events.try_iter().collect::<Vec<_>>(), [SessionEvent::Reconnected]);
    }

    #[test]
    fn the_end_reaches_even_a_subscriber_that_is_full() {
        let mut subscribers = Subscribers::default();
        let events = subscribers.add();
        for _ in 0..BACKLOG * 2 {
            subscribers.publish(&SessionEvent::Suspended);
        }
        subscribers.publish(&SessionEvent::Closed);
        drop(subscribers);
        assert_eq!(events.iter().last(), Some(SessionEvent::Closed));
    }

    #[test]
    fn a_subscriber_that_left_is_forgotten() {
        let mut subscribers = Subscribers::default();
        drop(subscribers.add());
        subscribers.publish(&SessionEvent::Suspended);
        assert!(subscribers.0.is_empty());
    }
}
