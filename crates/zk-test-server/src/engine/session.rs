//! Sessions, and their expiry by tick buckets (`SessionTrackerImpl`, `ExpiryQueue`).

use super::HashMap;
use crate::clock;
use std::collections::BTreeSet;
use std::time::Duration;
use zk_wire::code::err;

/// The server over which a session's client may write. In an ensemble this is the follower that
/// asked last to have the session checked. It is named by the number of its stream to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The server that keeps the sessions: the single server, or the leader.
    Me,
    Learner(u64),
}

#[derive(Debug)]
pub(crate) struct Session {
    /// The timeout that was granted first. A client that reconnects may be granted another one.
    pub(crate) timeout: Duration,
    /// None if the session's client has not written since the leader began to lead.
    owner: Option<Owner>,
    closing: bool,
    /// The end of the tick in which it expires.
    expires: Duration,
    /// The timeout by which that was counted.
    counted: Duration,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    by_id: HashMap<i64, Session>,
    queue: BTreeSet<(Duration, i64)>,
    tick: Duration,
    /// The error for a request of a session that is not here.
    unknown: i32,
}

impl Sessions {
    /// `unknown` is the error for a request of a session that is not here.
    pub(crate) fn new(tick: Duration, unknown: i32) -> Sessions {
        Sessions { by_id: HashMap::default(), queue: BTreeSet::new(), tick, unknown }
    }

    /// The timeout by which a session's expiry is counted.
    pub(crate) fn counted(&self, id: i64) -> Option<Duration> {
        Some(self.by_id.get(&id)?.counted)
    }

    /// Begins to track a session.
    pub(crate) fn track(
        &mut self,
        id: i64,
        timeout: Duration,
        owner: Option<Owner>,
        now: Duration,
    ) {
        let expires = self.bucket(now.saturating_add(timeout));
        let counted = timeout;
        self.by_id.insert(id, Session { timeout, owner, closing: false, expires, counted });
        self.queue.insert((expires, id));
    }

    /// The end of the tick that `at` is in: always later than `at`.
    fn bucket(&self, at: Duration) -> Duration {
        let tick = self.tick.as_nanos().max(1);
        let end = (at.as_nanos() / tick + 1).saturating_mul(tick);
        clock::from_nanos(end)
    }

    /// Postpones the expiry; false if there is no such session any more.
    pub(crate) fn touch(&mut self, id: i64, timeout: Duration, now: Duration) -> bool {
        let expires = self.bucket(now.saturating_add(timeout));
        let Some(session) = self.by_id.get_mut(&id).filter(|session| !session.closing) else {
            return false;
        };
        if session.expires != expires {
            self.queue.remove(&(session.expires, id));
            self.queue.insert((expires, id));
            session.expires = expires;
        }
        session.counted = timeout;
        true
    }

    /// Checks a request of this session that came over `owner` (`checkSession`). The first request
    /// makes its server the session's owner.
    pub(crate) fn check(&mut self, id: i64, owner: Owner) -> Result<(), i32> {
        let session = self.by_id.get_mut(&id).ok_or(self.unknown)?;
        if session.closing {
            return Err(err::SESSION_EXPIRED);
        }
        if *session.owner.get_or_insert(owner) == owner { Ok(()) } else { Err(err::SESSION_MOVED) }
    }

    /// Lets the session's client write only over `owner` from now on.
    pub(crate) fn set_owner(&mut self, id: i64, owner: Owner) {
        if let Some(session) = self.by_id.get_mut(&id).filter(|session| !session.closing) {
            session.owner = Some(owner);
        }
    }

    /// Whether there is such a session, and its end has not begun.
    pub(crate) fn is_alive(&self, id: i64) -> bool {
        self.by_id.get(&id).is_some_and(|session| !session.closing)
    }

    /// Refuses the session's requests from now on.
    pub(crate) fn set_closing(&mut self, id: i64) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.closing = true;
            self.queue.remove(&(session.expires, id));
        }
    }

    pub(crate) fn remove(&mut self, id: i64) {
        if let Some(session) = self.by_id.remove(&id) {
            self.queue.remove(&(session.expires, id));
        }
    }

    /// The time at which the next session expires, if its client stays silent.
    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// A session that has timed out.
    pub(crate) fn expired(&self, now: Duration) -> Option<i64> {
        self.queue.first().filter(|(at, _)| *at <= now).map(|(_, id)| *id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Session)> {
        self.by_id.iter().map(|(id, session)| (*id, session))
    }

    /// All sessions and the times at which they expire.
    pub(crate) fn expiries(&self) -> impl Iterator<Item = (Duration, i64)> {
        self.queue.iter().copied()
    }

    /// Gives every session its whole timeout again, after a restart.
    pub(crate) fn restart(&mut self, now: Duration) {
        let ids: Vec<i64> = self.by_id.keys().copied().collect();
        for id in ids {
            if let Some(session) = self.by_id.get_mut(&id) {
                session.closing = false;
                let timeout = session.timeout;
                self.touch(id, timeout, now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_expires_with_its_tick_and_not_before() {
        let mut sessions = Sessions::new(Duration::from_millis(100), err::UNKNOWN_SESSION);
        let (ms, id) = (Duration::from_millis, 7);
        sessions.track(id, ms(250), Some(Owner::Me), ms(0));
        assert_eq!(sessions.next_expiry(), Some(ms(300)));
        assert_eq!(sessions.expired(ms(299)), None);
        assert!(sessions.touch(id, ms(250), ms(299)));
        assert_eq!(sessions.expired(ms(300)), None);
        assert_eq!(sessions.counted(id), Some(ms(250)));
        assert!(sessions.touch(id, ms(150), ms(310)));
        assert_eq!(sessions.counted(id), Some(ms(150)));
        assert_eq!((sessions.expired(ms(499)), sessions.expired(ms(500))), (None, Some(id)));
        assert!(sessions.touch(id, ms(250), ms(340)));
        assert_eq!(sessions.expired(ms(600)), Some(id));
        sessions.set_closing(id);
        assert_eq!(sessions.expired(ms(600)), None);
        assert!(!sessions.touch(id, ms(250), ms(600)));
    }
}
