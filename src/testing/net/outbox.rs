//! What the engine says, on its way to the sockets: lost, delayed, sent.

use std::time::{Duration, Instant};

use super::Core;
use super::conn::Stage;
use super::serve::Tag;
use crate::session::wire::record::ConnectReply;
use crate::testing::engine::{ConnId, Output};
use crate::testing::faults::Plan;
use crate::testing::request::Event;

/// Something for one connection. The order of all of them stands.
#[derive(Debug)]
enum Item {
    Bytes(Vec<u8>),
    /// It is closed when all is sent.
    Close,
    /// The same, by a fault: the engine does not know yet.
    Cut,
    /// By a fault, it is neither read nor written from now on.
    Silence,
}

#[derive(Debug)]
pub(super) struct Delayed {
    pub(super) due: Instant,
    conn: ConnId,
    item: Item,
}

impl Core {
    /// Takes what the engine has said.
    pub(super) fn deliver(&mut self) {
        for output in self.engine.take_outputs() {
            match output {
                Output::Reply { conn, tag, bytes } => {
                    let tag = Tag(tag);
                    if tag.is_connect() {
                        self.connected(conn, &bytes);
                    }
                    let item = match tag.plan() {
                        Some(Plan::SilenceReply) => Item::Silence,
                        Some(_) => Item::Cut,
                        None => Item::Bytes(bytes),
                    };
                    self.pass(conn, item);
                }
                Output::Event { conn, session, kind, path, bytes } => {
                    if self.conns.contains_key(&conn) {
                        self.history.event(Event::new(session, kind, &path));
                        self.has_news = true;
                        self.pass(conn, Item::Bytes(bytes));
                    }
                }
                Output::Close { conn } => self.pass(conn, Item::Close),
            }
        }
    }

    fn connected(&mut self, id: ConnId, reply: &[u8]) {
        if let Some(conn) = self.conns.get_mut(&id) {
            let reply = reply.get(4..).and_then(|frame| ConnectReply::read(frame).ok());
            conn.session = reply.map_or(0, |reply| reply.session_id);
        }
    }

    /// Cuts the connection behind what was said to it.
    pub(super) fn cut(&mut self, id: ConnId) {
        self.pass(id, Item::Cut);
    }

    fn pass(&mut self, id: ConnId, item: Item) {
        let delay = self.faults.delay;
        if delay.is_zero() && self.delayed.is_empty() {
            self.put(id, item);
            return;
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if let Item::Bytes(bytes) = &item {
            conn.delay(bytes.len());
        }
        // The order stands also where the delay has become shorter.
        let due = Instant::now().checked_add(delay).unwrap_or_else(far_away);
        let due = self.delayed.back().map_or(due, |last| due.max(last.due));
        self.delayed.push_back(Delayed { due, conn: id, item });
        self.close_if_flooded(id);
    }

    fn close_if_flooded(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get(&id).filter(|conn| conn.is_flooded()) {
            log::warn!("test server: closed {}: it does not read what it is sent", conn.peer);
            self.drop_conn(id);
        }
    }

    /// Sends what was delayed until `now`.
    pub(super) fn send_delayed(&mut self, now: Instant) {
        while self.delayed.front().is_some_and(|delayed| delayed.due <= now) {
            let Some(Delayed { conn, item, .. }) = self.delayed.pop_front() else { return };
            self.put_delayed(conn, item);
        }
    }

    /// Sets the delay; what waits for the former one is sent if there is none any more.
    pub(in crate::testing) fn set_delay(&mut self, delay: Duration) {
        self.faults.delay = delay;
        if delay.is_zero() {
            for Delayed { conn, item, .. } in std::mem::take(&mut self.delayed) {
                self.put_delayed(conn, item);
            }
        }
    }

    pub(super) fn forget_delayed(&mut self) {
        self.delayed.clear();
    }

    fn put_delayed(&mut self, id: ConnId, item: Item) {
        if let (Item::Bytes(bytes), Some(conn)) = (&item, self.conns.get_mut(&id)) {
            conn.delayed = conn.delayed.saturating_sub(bytes.len());
        }
        self.put(id, item);
    }

    fn put(&mut self, id: ConnId, item: Item) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match item {
            _ if matches!(conn.stage, Stage::Silent | Stage::Closing) => {}
            Item::Bytes(bytes) => {
                conn.push(&bytes);
                self.touch(id);
                self.close_if_flooded(id);
            }
            Item::Close => self.close(id),
            Item::Cut => {
                self.engine.hang_up(id);
                self.close(id);
            }
            Item::Silence => {
                if !self.faults.black_hole {
                    let _ = conn.write(); // what came before; an error shows at the next event
                }
                conn.stage = Stage::Silent;
            }
        }
    }

    /// Sends what the sockets take.
    pub(super) fn flush(&mut self) {
        if self.faults.black_hole {
            return;
        }
        for id in std::mem::take(&mut self.dirty) {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            conn.is_dirty = false;
            if conn.stage == Stage::Silent {
                continue;
            }
            match conn.write() {
                Ok(_) if conn.stage == Stage::Closing && conn.is_drained() => self.drop_conn(id),
                Ok(true) => self.queue(id),
                Ok(false) => {}
                Err(e) => {
                    log::debug!("test server: {}: {e}", conn.peer);
                    self.drop_conn(id);
                }
            }
        }
    }
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(1 << 30)
}
