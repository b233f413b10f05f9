//! The engine's answers and events on their way to the sockets: sent, delayed or lost.

use std::time::{Duration, Instant};

use super::Core;
use super::conn::{Conn, Stage};
use super::serve::Tag;
use crate::engine::{ConnId, Output};
use crate::faults::Plan;
use crate::request::Event;
use zk_wire::record::ConnectReply;

/// A connection is closed if its client takes nothing while more than this, or more than four of
/// the longest frames, waits for it.
const FLOODED: usize = 32 << 20;
/// How much may be unsent on all connections together: this, or eight of the longest frames if that
/// is more.
const UNSENT: usize = 256 << 20;

/// An item for one connection. The items of a connection keep their order.
#[derive(Debug)]
enum Item {
    Bytes(Vec<u8>),
    /// The connection is closed when all bytes are sent.
    Close,
    /// The same because of a fault: the engine does not know yet that the connection is gone.
    Cut,
    /// Because of a fault, the connection is neither read nor written from now on.
    Silence,
}

impl Item {
    fn of(plan: Plan) -> Item {
        match plan {
            Plan::SilenceReply => Item::Silence,
            Plan::DropReply | Plan::DropRequest => Item::Cut,
        }
    }
}

#[derive(Debug)]
pub(super) struct Delayed {
    pub(super) due: Instant,
    pub(super) conn: ConnId,
    item: Item,
}

impl Core {
    /// Takes the engine's outputs.
    pub(super) fn deliver(&mut self) {
        for output in self.engine.take_outputs() {
            match output {
                Output::Reply { conn, tag, bytes } => {
                    let tag = Tag(tag);
                    if tag.is_connect() {
                        self.connected(conn, &bytes);
                    }
                    match tag.plan() {
                        Some(_) => self.inject(conn),
                        None => self.pass(conn, Item::Bytes(bytes)),
                    }
                }
                Output::Event { conn, session, kind, path, bytes } => {
                    if self.conns.contains_key(&conn) {
                        self.events += 1;
                        self.history.event(Event::new(session, kind, &path));
                        self.has_news = true;
                        self.pass(conn, Item::Bytes(bytes));
                    }
                }
                Output::Close { conn } => {
                    self.stop_reading(conn);
                    self.inject(conn); // a connection that a fault made silent stays open
                    self.pass(conn, Item::Close);
                }
            }
        }
    }

    /// Injects the fault that is planned instead of this connection's answer, if there is one.
    fn inject(&mut self, id: ConnId) {
        if let Some(at) = self.to_inject.iter().position(|(planned, _)| *planned == id) {
            let (_, plan) = self.to_inject.swap_remove(at);
            self.pass(id, Item::of(plan));
        }
    }

    /// Injects the remaining faults, whose requests had no answer.
    pub(super) fn inject_unanswered(&mut self) {
        for (id, plan) in std::mem::take(&mut self.to_inject) {
            self.pass(id, Item::of(plan));
        }
    }

    fn connected(&mut self, id: ConnId, reply: &[u8]) {
        if let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.stage == Stage::Connecting) {
            let reply = reply.get(4..).and_then(|frame| ConnectReply::read(frame).ok());
            conn.session = reply.map_or(0, |reply| reply.session_id);
        }
    }

    /// Closes the connection when all earlier bytes are sent.
    pub(super) fn cut(&mut self, id: ConnId) {
        self.stop_reading(id);
        self.pass(id, Item::Cut);
    }

    /// Sends these last bytes to a connection, and closes it.
    pub(super) fn finish(&mut self, id: ConnId, bytes: Vec<u8>) {
        self.stop_reading(id);
        self.pass(id, Item::Bytes(bytes));
        self.pass(id, Item::Close);
    }

    fn pass(&mut self, id: ConnId, item: Item) {
        let delay = self.faults.delay;
        if delay.is_zero() && self.delayed.is_empty() {
            self.put(id, item);
            return;
        }
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut length = 0;
        if let Item::Bytes(bytes) = &item {
            length = bytes.len();
            conn.delay(length);
        }
        // An item is never sent before an earlier one, even if the delay has become shorter.
        let due = Instant::now().checked_add(delay).unwrap_or_else(far_away);
        let due = self.delayed.back().map_or(due, |last| due.max(last.due));
        self.delayed.push_back(Delayed { due, conn: id, item });
        self.count_unsent(length);
    }

    fn close_if_flooded(&mut self, id: ConnId) {
        let most = FLOODED.max(self.max_frame.saturating_mul(4));
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.untaken() > most) else {
            return;
        };
        if self.faults.black_hole {
            return; // the fault does not let the client read
        }
        match conn.write() {
            Ok(_) if conn.is_stalled() => {
                warn!("test server: closed {}: it does not read what it is sent", conn.peer);
                self.drop_conn(id);
            }
            Ok(true) => self.queue(id),
            Ok(false) => {}
            Err(e) => {
                debug!("test server: {}: {e}", conn.peer);
                self.drop_conn(id);
            }
        }
    }

    /// Limits the unsent bytes of all connections together; `more` bytes were added.
    fn count_unsent(&mut self, more: usize) {
        self.slack = self.slack.saturating_sub(more);
        if self.slack > 0 {
            return;
        }
        self.flush();
        let most = UNSENT.max(self.max_frame.saturating_mul(8));
        let mut all: usize = self.conns.values().map(Conn::unsent).sum();
        while all > most {
            let Some((id, conn)) = self.conns.iter().max_by_key(|(_, conn)| conn.unsent()) else {
                break;
            };
            warn!("test server: closed {}: {all} bytes are unsent, most of them here", conn.peer);
            all = all.saturating_sub(conn.unsent());
            let id = *id;
            self.drop_conn(id);
        }
        self.slack = most.saturating_sub(all).max(most / 16);
    }

    /// Sends the delayed items that are due.
    pub(super) fn send_delayed(&mut self, now: Instant) {
        while self.delayed.front().is_some_and(|delayed| delayed.due <= now) {
            let Some(Delayed { conn, item, .. }) = self.delayed.pop_front() else { return };
            self.put_delayed(conn, item);
        }
    }

    /// Sets the delay. A delay of zero sends all items that still wait.
    pub(crate) fn set_delay(&mut self, delay: Duration) {
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
                self.count_unsent(bytes.len());
            }
            Item::Close => self.close(id),
            Item::Cut => {
                self.engine.hang_up(id);
                self.close(id);
            }
            Item::Silence => {
                conn.stage = Stage::Silent; // earlier bytes are already sent
                self.queue(id);
            }
        }
    }

    /// Sends as many bytes as the sockets take.
    pub(super) fn flush(&mut self) {
        if self.faults.black_hole {
            return;
        }
        for id in std::mem::take(&mut self.dirty) {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            conn.is_dirty = false;
            match conn.write() {
                Ok(_) if conn.stage == Stage::Closing && conn.is_drained() => self.drop_conn(id),
                Ok(true) => self.queue(id),
                Ok(false) => {}
                Err(e) => {
                    debug!("test server: {}: {e}", conn.peer);
                    self.drop_conn(id);
                }
            }
        }
    }
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(1 << 30)
}
