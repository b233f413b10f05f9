//! One turn of the server: it serves the requests that have arrived, does the work that is due by
//! the clock, and sends the answers.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use mio::event::Event;

use super::Core;
use super::conn::{Conn, Stage};
use super::listener::Listener;
use crate::engine::ConnId;

/// A connection that has no session after this time is closed at the next multiple of it
/// (`zookeeper.nio.sessionlessCnxnTimeout`). It is real time, also if the sessions' clock is
/// virtual.
const SESSIONLESS: Duration = Duration::from_secs(10);
/// How long a client may take to read the last bytes before its connection is closed.
const LINGER: Duration = Duration::from_secs(10);
/// How many new connections a turn accepts.
const ACCEPTS: usize = 64;
/// The shortest pause between two checks of the engine's timer.
const RESOLUTION: Duration = Duration::from_millis(1);

/// In this order the earliest deadline is the greatest.
pub(super) type Deadline = Reverse<(Instant, ConnId)>;

impl Core {
    pub(super) fn set_now(&mut self) {
        self.engine.set_now(self.clock.now());
    }

    /// The poll has reported an event at the port.
    pub(super) fn listener_ready(&mut self) {
        if let Some(listener) = &mut self.listener {
            listener.ready();
        }
    }

    /// The poll has reported an event at a connection.
    pub(super) fn socket_ready(&mut self, id: ConnId, event: &Event) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if event.is_readable() || event.is_error() || event.is_read_closed() {
            conn.readable();
            self.queue(id);
        }
        if event.is_writable() || event.is_error() {
            self.touch(id);
        }
    }

    pub(super) fn turn(&mut self) {
        if self.is_over() {
            return;
        }
        self.set_now();
        self.accept();
        self.send_delayed(Instant::now());
        self.serve();
        self.tick();
        self.deliver();
        self.flush();
        self.close_overdue(Instant::now());
    }

    /// How long the thread may wait for socket events.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let listener = self.listener.as_ref()?;
        if listener.has_more() || !self.ready.is_empty() && !self.faults.black_hole {
            return Some(Duration::ZERO);
        }
        let now = Instant::now();
        let instants = [
            listener.retry(),
            self.delayed.front().map(|delayed| delayed.due),
            self.deadlines.peek().map(|Reverse((at, _))| *at),
        ];
        let waits = instants.into_iter().flatten().map(|at| at.saturating_duration_since(now));
        let tick =
            self.engine.next_tick().and_then(|at| self.clock.until(at)).map(|t| t.max(RESOLUTION));
        waits.chain(tick).min()
    }

    /// Accepts all connections that were made by now.
    pub(super) fn accept_all(&mut self) {
        /// More rounds than the backlog can fill.
        const ROUNDS: usize = 64;
        self.listener_ready();
        for _ in 0..ROUNDS {
            self.accept();
            if !self.listener.as_ref().is_some_and(Listener::has_more) {
                break;
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let Some(listener) = &mut self.listener else { return };
            let Some((socket, peer)) = listener.accept(&self.registry, Instant::now()) else {
                return;
            };
            let id = self.next_id;
            self.next_id += 1;
            match Conn::new(socket, peer, id, &self.registry, self.tls.as_ref().map(|(_, tls)| tls))
            {
                Ok(conn) => {
                    self.conns.insert(id, conn);
                    self.engine.accept(id, peer);
                    let age = self.made.elapsed() + SESSIONLESS;
                    let tick = age.as_nanos() / SESSIONLESS.as_nanos() + 1;
                    let at = SESSIONLESS.saturating_mul(u32::try_from(tick).unwrap_or(u32::MAX));
                    self.deadlines.extend(self.made.checked_add(at).map(|at| Reverse((at, id))));
                    self.queue(id);
                }
                Err(e) => warn!("test server: cannot serve {peer}: {e}"),
            }
        }
    }

    /// Does the work that is due by now.
    pub(super) fn tick(&mut self) {
        if self.engine.next_tick().is_some_and(|at| at <= self.clock.now()) {
            self.engine.tick();
            self.deliver();
        }
    }

    /// Moves the virtual clock forward and does all work that becomes due. Returns `false` if the
    /// clock is real.
    pub(crate) fn advance(&mut self, by: Duration) -> bool {
        /// The limit of steps; the rest of the time then passes in one step.
        const STEPS: usize = 100_000;
        self.catch_up();
        let end = self.clock.now().saturating_add(by);
        for _ in 0..STEPS {
            match self.engine.next_due().filter(|at| *at <= end) {
                Some(at) if self.clock.set(at) => {
                    self.set_now();
                    self.tick();
                }
                _ => break,
            }
        }
        let was_set = self.clock.set(end);
        self.set_now();
        self.tick();
        was_set
    }

    /// Closes connections that have no session after their time, and connections whose last bytes
    /// the client does not read.
    fn close_overdue(&mut self, now: Instant) {
        while let Some(Reverse((_, id))) =
            self.deadlines.peek().copied().filter(|Reverse((at, _))| *at <= now)
        {
            self.deadlines.pop();
            let Some(conn) = self.conns.get(&id) else { continue };
            if !matches!(conn.stage, Stage::First | Stage::Closing) {
                continue;
            }
            if self.faults.black_hole || conn.held.is_some() {
                self.deadlines.push(Reverse((now + LINGER, id))); // not the client's fault
                continue;
            }
            if conn.stage == Stage::First {
                info!("test server: closed {}: no session within {SESSIONLESS:?}", conn.peer);
            }
            self.drop_conn(id);
        }
    }

    /// From now on the server serves nothing of this connection, neither new requests nor those
    /// that have arrived.
    pub(super) fn stop_reading(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if matches!(conn.stage, Stage::First | Stage::Connecting | Stage::Open) {
            conn.stop_reading();
            self.faults.forget(id);
            self.queue(id);
        }
    }

    /// From now on the server reads nothing from this connection, and closes it when all bytes are
    /// sent.
    pub(super) fn close(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if matches!(conn.stage, Stage::Closing | Stage::Silent) {
            return;
        }
        conn.stage = Stage::Closing;
        conn.input.clear();
        self.deadlines.push(Reverse((Instant::now() + LINGER, id)));
        self.touch(id);
    }

    /// Ends the connection at once.
    pub(super) fn drop_conn(&mut self, id: ConnId) {
        self.engine.hang_up(id);
        self.faults.forget(id);
        if let Some(conn) = self.conns.remove(&id) {
            if conn.delayed > 0 {
                self.delayed.retain(|delayed| delayed.conn != id);
            }
            conn.close(&mut self.buffer);
        }
    }

    /// Adds the connection to those to be served.
    pub(super) fn queue(&mut self, id: ConnId) {
        if let Some(conn) =
            self.conns.get_mut(&id).filter(|conn| !conn.is_queued && conn.is_heard())
        {
            conn.is_queued = true;
            self.ready.push_back(id);
        }
    }

    /// Adds the connection to those with bytes to send.
    pub(super) fn touch(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.is_dirty) {
            conn.is_dirty = true;
            self.dirty.push(id);
        }
    }
}
