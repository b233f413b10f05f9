//! One ZooKeeper server in the simulated network.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use zk_mutex_simulated::testing::SessionInfo;
use zk_mutex_simulated::testing::engine::{Engine, Output, Settings};
use zk_sim_runtime::net::{self, ConnId, Service};
use zk_sim_runtime::{after, at, note, now, rng};

/// The longest that requests wait until they are finished: they overlap meanwhile.
const SLOWEST: Duration = Duration::from_micros(800);

/// The longest frame that a client sends.
const MOST: usize = 2 << 20;

/// A server, as all that act on it share it.
#[derive(Clone)]
pub struct Server(Rc<RefCell<Inner>>);

struct Inner {
    address: SocketAddr,
    engine: Engine,
    /// What came and is no whole frame yet.
    input: BTreeMap<ConnId, Vec<u8>>,
    /// Requests are prepared, and will be finished.
    is_busy: bool,
    next_tick: Option<Duration>,
    myself: Option<Server>,
}

struct Listener(Server);

impl Server {
    /// One that listens at port 2181 of this host.
    pub fn start(ip: IpAddr, settings: Settings) -> Server {
        let address = SocketAddr::new(ip, 2181);
        let inner = Inner {
            address,
            engine: Engine::new(settings),
            input: BTreeMap::new(),
            is_busy: false,
            next_tick: None,
            myself: None,
        };
        let server = Server(Rc::new(RefCell::new(inner)));
        server.0.borrow_mut().myself = Some(server.clone());
        server.listen();
        server
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.0.borrow().address
    }

    /// From now on it takes connections.
    pub fn listen(&self) {
        net::listen(self.address(), Rc::new(RefCell::new(Listener(self.clone()))));
    }

    /// It is gone, and comes back after a while with the data and the sessions that it had.
    pub fn restart(&self, pause: Duration, silently: bool) {
        let ip = self.address().ip();
        net::server_gone(self.address(), silently);
        net::set_host_down(ip, silently);
        {
            let mut inner = self.0.borrow_mut();
            inner.engine.restart();
            inner.input.clear();
        }
        let server = self.clone();
        after(pause, move || {
            net::set_host_down(ip, false);
            server.0.borrow_mut().engine.restart(); // the sessions' time begins when it is back
            server.listen();
            server.0.borrow_mut().settle();
        });
    }

    /// Ends a session as if its time had come.
    pub fn expire(&self, session: i64) {
        note(&format!("the operator expires session {session:#x}"));
        self.with(|inner| {
            inner.engine.expire(session);
        });
    }

    /// The sessions that live.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.0.borrow().engine.sessions()
    }

    fn with(&self, act: impl FnOnce(&mut Inner)) {
        let mut inner = self.0.borrow_mut();
        inner.engine.set_now(now());
        act(&mut inner);
        inner.settle();
    }
}

impl Service for Listener {
    fn opened(&mut self, conn: ConnId, _: SocketAddr, from: SocketAddr) {
        self.0.with(|inner| {
            inner.input.insert(conn, Vec::new());
            inner.engine.accept(conn.0, from);
        });
    }

    fn bytes(&mut self, conn: ConnId, bytes: &[u8]) {
        self.0.with(|inner| inner.take(conn, bytes));
    }

    fn closed(&mut self, conn: ConnId) {
        self.0.with(|inner| inner.hang_up(conn));
    }
}

impl Inner {
    fn take(&mut self, conn: ConnId, bytes: &[u8]) {
        let Some(input) = self.input.get_mut(&conn) else { return };
        input.extend(bytes);
        let mut input = std::mem::take(input);
        let mut is_closed = false;
        while let Some((length, rest)) = input.split_first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            let Some(frame) = rest.get(..length) else {
                is_closed = length > MOST;
                break;
            };
            is_closed = self.engine.prepare(conn.0, frame, 0).is_err();
            if is_closed {
                break;
            }
            input.drain(..4 + length);
        }
        if is_closed {
            net::close(conn);
            self.hang_up(conn);
        } else if let Some(kept) = self.input.get_mut(&conn) {
            *kept = input;
        }
        self.finish_soon();
    }

    fn finish_soon(&mut self) {
        if !std::mem::replace(&mut self.is_busy, true)
            && let Some(server) = self.myself.clone()
        {
            let pause = rng(|rng| SLOWEST.mul_f64(rng.f64()));
            after(pause, move || {
                server.with(|inner| {
                    inner.is_busy = false;
                    inner.engine.apply();
                });
            });
        }
    }

    fn hang_up(&mut self, conn: ConnId) {
        self.input.remove(&conn);
        self.engine.hang_up(conn.0);
    }

    /// Carries out what the engine wants, and sees to its timer.
    fn settle(&mut self) {
        for output in self.engine.take_outputs() {
            match output {
                Output::Reply { conn, bytes, .. } | Output::Event { conn, bytes, .. } => {
                    net::send(ConnId(conn), bytes);
                }
                Output::Close { conn } => {
                    net::close(ConnId(conn));
                    self.input.remove(&ConnId(conn));
                    self.engine.hang_up(conn);
                }
            }
        }
        let due = self.engine.next_due();
        if due.is_some() && (self.next_tick.is_none() || due < self.next_tick) {
            self.next_tick = due;
            if let (Some(due), Some(server)) = (due, self.myself.clone()) {
                at(due, move || {
                    server.with(|inner| {
                        inner.next_tick = None;
                        inner.engine.tick();
                    });
                });
            }
        }
    }
}
