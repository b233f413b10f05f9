//! The actions of a test on the server: faults, the clock, restarts.

use std::time::Instant;

use super::Core;
use super::conn::Stage;
use crate::engine::ConnId;
use crate::faults::HoldId;

impl Core {
    /// Closes all connections, also those that were not accepted yet. Requests that have arrived by
    /// now are served first.
    pub(crate) fn cut_connections(&mut self) {
        self.catch_up();
        self.cut_all();
    }

    fn cut_all(&mut self) {
        self.listener_ready(); // the poll may not have reported all that wait
        while let Some(connection) = self
            .listener
            .as_mut()
            .and_then(|listener| listener.accept(&self.registry, Instant::now()))
        {
            drop(connection);
        }
        for id in self.ids() {
            self.drop_conn(id);
        }
        self.forget_delayed();
    }

    /// Refuses new connections, or accepts them again.
    pub(crate) fn refuse(&mut self, refuse: bool) {
        if let Some(listener) = &mut self.listener {
            listener.refuse(refuse, &self.registry);
        }
    }

    pub(crate) fn black_hole(&mut self, black_hole: bool) {
        self.faults.black_hole = black_hole;
    }

    /// Restarts the server as if its process was killed and started again, with or without its
    /// data.
    pub(crate) fn restart(&mut self, keep_data: bool) {
        let is_refusing = self.listener.as_ref().is_none_or(|listener| listener.is_refusing());
        self.catch_up();
        self.refuse(true);
        self.cut_all();
        if let Some((files, acceptor)) = &mut self.tls {
            match files.load() {
                Ok(new) => *acceptor = new,
                Err(e) => warn!("test server: goes on with its former certificate: {e}"),
            }
        }
        if keep_data {
            self.engine.restart();
        } else {
            self.engine.wipe();
        }
        self.refuse(is_refusing);
    }

    pub(crate) fn expire(&mut self, session: i64) -> bool {
        self.catch_up();
        let lived = self.engine.expire(session);
        self.deliver();
        lived
    }

    /// Ends a hold: serves its requests now, in the order in which they came.
    pub(crate) fn release(&mut self, hold: HoldId) {
        for id in self.faults.release(hold) {
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.held = None;
                conn.after = hold;
                self.queue(id);
            }
        }
        self.catch_up();
    }

    /// The number of connections without those that are being closed.
    pub(crate) fn connection_count(&self) -> usize {
        self.conns.values().filter(|conn| conn.stage != Stage::Closing).count()
    }

    pub(super) fn ids(&self) -> Vec<ConnId> {
        let mut ids: Vec<_> = self.conns.keys().copied().collect();
        ids.sort_unstable();
        ids
    }
}
