//! Reports on the engine's state, for the test that owns the server and for the four-letter words.

use super::conn::Conn;
use super::session::Session;
use super::watch::Table;
use super::{ConnId, Engine, Settings};
use crate::info::SessionInfo;
use std::collections::BTreeMap;
use std::time::Duration;

impl Engine {
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The sessions by id, and so by age.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let report = |(id, session): (i64, &Session)| SessionInfo {
            id,
            timeout: session.timeout,
            connected: self.front.attached.contains_key(&id),
            ephemerals: self.front.store.tree.ephemerals(id).count(),
        };
        let mut sessions: Vec<_> = self.order.sessions.iter().map(report).collect();
        sessions.sort_unstable_by_key(|session| session.id);
        sessions
    }

    /// The sessions that expire together, by their time on the engine's clock.
    pub(crate) fn session_expiries(&self) -> BTreeMap<Duration, Vec<i64>> {
        let mut buckets: BTreeMap<Duration, Vec<i64>> = BTreeMap::new();
        for (at, session) in self.order.sessions.expiries() {
            buckets.entry(at).or_default().push(session);
        }
        buckets
    }

    /// The ephemeral nodes of each session that has any.
    pub(crate) fn ephemerals(&self) -> BTreeMap<i64, Vec<&str>> {
        let nodes = self.front.store.tree.all_ephemerals();
        nodes
            .map(|(session, paths)| (session, paths.iter().map(|path| &**path).collect()))
            .collect()
    }

    pub(crate) fn ephemeral_count(&self) -> usize {
        self.front.store.tree.all_ephemerals().map(|(_, paths)| paths.len()).sum()
    }

    /// The number of nodes as the real server counts it: twice for the root, because it has two
    /// names.
    pub(crate) fn node_count(&self) -> usize {
        self.front.store.tree.len() + 1
    }

    pub(crate) fn data_size(&self) -> usize {
        self.front.store.tree.size()
    }

    pub(crate) fn watch_count(&self) -> usize {
        self.front.store.watches.len()
    }

    /// Watches on data and existence. The real server's four-letter words list only these.
    pub(crate) fn data_watches(&self) -> &Table {
        &self.front.store.watches.data
    }

    /// The connections, oldest first.
    pub(crate) fn connections(&self) -> Vec<(ConnId, &Conn)> {
        let mut conns: Vec<_> = self.front.conns.iter().map(|(id, conn)| (*id, conn)).collect();
        conns.sort_unstable_by_key(|(id, _)| *id);
        conns
    }

    /// The session of a connection, 0 for none.
    pub(crate) fn session_of(&self, conn: ConnId) -> i64 {
        self.front.conns.get(&conn).map_or(0, |conn| conn.session)
    }

    pub(crate) fn last_zxid(&self) -> i64 {
        self.front.last_zxid
    }

    /// The numbers of packets received and sent.
    pub(crate) fn packets(&self) -> (u64, u64) {
        (self.front.received, self.front.sent)
    }

    pub(crate) fn now(&self) -> Duration {
        self.front.now
    }

    /// The wall clock, in milliseconds since 1970, at a time on the engine's clock.
    pub(crate) fn wall_ms_at(&self, at: Duration) -> i64 {
        self.front.wall_ms_at(at)
    }

    /// Counts a four-letter word as a packet.
    pub(crate) fn count_word(&mut self, conn: ConnId) {
        self.front.received += 1;
        if let Some(conn) = self.front.conns.get_mut(&conn) {
            conn.received += 1;
        }
    }

    pub(crate) fn count_answer(&mut self) {
        self.front.sent += 1;
    }

    pub(crate) fn reset_packets(&mut self) {
        (self.front.received, self.front.sent) = (0, 0);
    }

    pub(crate) fn reset_connection_packets(&mut self) {
        for conn in self.front.conns.values_mut() {
            (conn.received, conn.sent) = (0, 0);
        }
    }
}
