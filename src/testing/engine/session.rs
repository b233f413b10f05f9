//! Sessions, and their expiry by tick buckets (`SessionTrackerImpl`, `ExpiryQueue`).

use super::ConnId;
use crate::wire::code::err;
use crate::world::{HashMap, new_uuid};
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) const PASSWORD: usize = 16;

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) password: [u8; PASSWORD],
    /// As granted at first; an attachment may have a timeout of its own.
    pub(crate) timeout: Duration,
    /// The connection that was last attached to it, if that is still there.
    pub(crate) conn: Option<ConnId>,
    closing: bool,
    /// The end of the tick in which it expires.
    expires: Duration,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    by_id: HashMap<i64, Session>,
    queue: BTreeSet<(Duration, i64)>,
    next_id: i64,
    tick: Duration,
}

impl Sessions {
    /// Ids begin with the time, so that no session of an earlier server comes back to life in this one.
    pub(crate) fn new(tick: Duration, wall_ms: i64) -> Sessions {
        let next_id = ((wall_ms << 24) as u64 >> 8) as i64;
        Sessions { by_id: HashMap::default(), queue: BTreeSet::new(), next_id, tick }
    }

    pub(crate) fn create(&mut self, timeout: Duration, conn: ConnId, now: Duration) -> i64 {
        let id = self.next_id;
        self.next_id += 1;
        let password = new_uuid().into_bytes();
        let expires = self.bucket(now.saturating_add(timeout));
        let session = Session { password, timeout, conn: Some(conn), closing: false, expires };
        self.by_id.insert(id, session);
        self.queue.insert((expires, id));
        id
    }

    /// The end of the tick that `at` is in: always later than `at`.
    fn bucket(&self, at: Duration) -> Duration {
        let tick = self.tick.as_nanos().max(1);
        let end = (at.as_nanos() / tick + 1).saturating_mul(tick);
        Duration::from_nanos_u128(end.min(Duration::MAX.as_nanos()))
    }

    /// Puts the expiry off; false if there is no such session any more.
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
        true
    }

    /// `checkSession`: what a request of this session is told.
    pub(crate) fn check(&self, id: i64) -> Result<(), i32> {
        match self.by_id.get(&id) {
            None => Err(err::UNKNOWN_SESSION),
            Some(session) if session.closing => Err(err::SESSION_EXPIRED),
            Some(_) => Ok(()),
        }
    }

    /// From here on requests of this session are refused.
    pub(crate) fn set_closing(&mut self, id: i64) {
        if let Some(session) = self.by_id.get_mut(&id) {
            session.closing = true;
            self.queue.remove(&(session.expires, id));
        }
    }

    pub(crate) fn remove(&mut self, id: i64) -> Option<Session> {
        let session = self.by_id.remove(&id)?;
        self.queue.remove(&(session.expires, id));
        Some(session)
    }

    /// When a session expires if nothing is heard of it.
    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// A session whose time has come.
    pub(crate) fn expired(&self, now: Duration) -> Option<i64> {
        self.queue.first().filter(|(at, _)| *at <= now).map(|(_, id)| *id)
    }

    pub(crate) fn get(&self, id: i64) -> Option<&Session> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: i64) -> Option<&mut Session> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (i64, &Session)> {
        self.by_id.iter().map(|(id, session)| (*id, session))
    }

    /// The time of each expiry, and whose.
    pub(crate) fn expiries(&self) -> impl Iterator<Item = (Duration, i64)> {
        self.queue.iter().copied()
    }

    /// Forgets all sessions, and gives none of their ids to another.
    pub(crate) fn clear(&mut self) {
        self.by_id.clear();
        self.queue.clear();
    }

    /// After a restart every session has its whole time again, and no connection.
    pub(crate) fn restart(&mut self, now: Duration) {
        let ids: Vec<i64> = self.by_id.keys().copied().collect();
        for id in ids {
            if let Some(session) = self.by_id.get_mut(&id) {
                (session.conn, session.closing) = (None, false);
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
        let mut sessions = Sessions::new(Duration::from_millis(100), 0);
        let ms = Duration::from_millis;
        let id = sessions.create(ms(250), 7, ms(0));
        assert_eq!(sessions.next_expiry(), Some(ms(300)));
        assert_eq!(sessions.expired(ms(299)), None);
        assert!(sessions.touch(id, ms(250), ms(299)));
        assert_eq!(sessions.expired(ms(300)), None);
        assert_eq!(sessions.expired(ms(600)), Some(id));
        sessions.set_closing(id);
        assert_eq!(sessions.expired(ms(600)), None);
        assert!(!sessions.touch(id, ms(250), ms(600)));
    }
}
