//! The event loop: the one thread of a connection. It reads the socket, keeps time, dials, and
//! carries out the outputs of the machine.
//!
//! The machine makes the decisions; this file only does what the machine and the dialer want. The
//! loop ends when the session is over.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::dial::{DialStep, Dialer, Resolved, Target, resolve};
use super::sasl::Login;
use super::{CHUNK, Connection, Owner, SERVER, TlsStream, is_light};
use crate::clock::BootTime;
use crate::connect_string::Host;
use crate::error::LossReason;
use crate::logging::contained;
use crate::machine::{MachineConfig, Output};
use crate::retry::RetryPolicy;
use crate::sasl::Sasl;
use crate::tls::TlsConfig;
use crate::world::atomic::Ordering;
use crate::world::{
    Events, HashSet, Interest, Poll, Receiver, Sender, TcpStream, Token, Waker, socket, spawn_own,
    unbounded,
};

const WAKER: Token = Token(0);

/// The events for which a socket is registered until it is connected.
const CONNECTING: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// How servers are dialled.
pub(crate) struct Dialling {
    pub(crate) hosts: Vec<Host>,
    pub(crate) policy: RetryPolicy,
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) sasl: Option<Sasl>,
}

pub(crate) struct EventLoop {
    poll: Poll,
    owner: Arc<dyn Owner>,
    dialer: Dialer,
    tls: Option<TlsConfig>,
    sasl: Option<Sasl>,
    server: Option<ServerConnection>,
    /// The results of name lookups. Each lookup runs on a thread of its own, because the resolver
    /// blocks.
    resolutions: (Sender<Resolved>, Receiver<Resolved>),
    refusals: Refusals,
    /// The hosts that have refused the login since one of them took it.
    refusing_hosts: HashSet<String>,
}

/// The hosts that have closed the connection right behind the connect request for our session,
/// since some attempt ended otherwise.
#[derive(Default)]
struct Refusals {
    hosts: HashSet<String>,
    /// When the first of them did.
    since: Option<BootTime>,
}

struct ServerConnection {
    socket: Arc<TcpStream>,
    host: String,
    /// When dialling began; once `is_connected`, when that became so.
    since: BootTime,
    /// True when the socket is connected and the TLS handshake, if there is one, is over.
    is_connected: bool,
    /// TLS, until the handshake is over.
    tls: Option<Box<TlsStream>>,
    /// The login by SASL on this connection, once it has begun.
    login: Option<Login>,
    /// The epoch when this socket was dialled. Once this connection carries the session, the
    /// machine's epoch is larger.
    epoch_before: u64,
}

impl ServerConnection {
    /// Whether the socket is connected. An error says why it never will be.
    fn is_socket_connected(&self) -> io::Result<bool> {
        // An error in the handshake is found by the handshake, which has better words for it.
        if self.tls.as_ref().is_some_and(|tls| tls.has_begun()) {
            return Ok(true);
        }
        match self.socket.take_error()? {
            Some(e) => Err(e),
            None => Ok(self.socket.peer_addr().is_ok()),
        }
    }
}

impl EventLoop {
    /// Starts the thread, which dials at once. The thread ends when the session is over, and keeps
    /// `alive` until then. `make` makes the owner of the connection.
    pub(crate) fn start<O: Owner>(
        name: String,
        config: MachineConfig,
        dialling: Dialling,
        alive: Sender<Infallible>,
        make: impl FnOnce(Connection) -> O,
    ) -> io::Result<Arc<O>> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let connection = Connection::new(config, waker, poll.registry().try_clone()?);
        let owner = Arc::new(make(connection));
        let mut this = EventLoop {
            poll,
            owner: owner.clone(),
            dialer: Dialer::new(dialling.hosts, dialling.policy, BootTime::now()),
            tls: dialling.tls,
            sasl: dialling.sasl,
            server: None,
            resolutions: unbounded(),
            refusals: Refusals::default(),
            refusing_hosts: HashSet::default(),
        };
        spawn_own(name, move || {
            let end = catch_unwind(AssertUnwindSafe(|| this.run()));
            if !matches!(end, Ok(Ok(()))) {
                error!("the ZooKeeper connection thread failed ({end:?}); a new session follows");
                this.give_up();
            }
            drop(this); // the sockets too
            drop(alive);
        })?;
        Ok(owner)
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(16);
        loop {
            let next = self.do_what_is_due();
            if self.deliver_outputs() {
                return Ok(());
            }
            let timeout = self.sleep_until(next).map(|next| next.since(BootTime::now()));
            match self.poll.poll(&mut events, timeout) {
                Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
            self.owner.connection().next_look.set(BootTime::default());
            while let Ok(found) = self.resolutions.1.try_recv() {
                self.resolved(found);
            }
            self.log_in_later();
            for event in &events {
                if event.token() == SERVER {
                    self.server_event(event.is_read_closed() || event.is_error());
                    self.deliver_outputs();
                }
            }
        }
    }

    /// The time at which this thread must wake: `next`, which `do_what_is_due` has found, or an
    /// earlier time at which a hold needs its watch. A hold may have been granted while
    /// `do_what_is_due` ran, so the lease is asked again here. A thread that grants a hold after
    /// that finds `next_look` set, and wakes this thread if that is too late for the hold.
    fn sleep_until(&self, next: Option<BootTime>) -> Option<BootTime> {
        let connection = self.owner.connection();
        connection.next_look.set(next.unwrap_or(BootTime::END));
        let (is_up, epoch) = {
            let inner = connection.inner.lock();
            (inner.machine.is_up(), inner.machine.epoch())
        };
        let watch = if is_up { self.owner.next_watch(epoch) } else { None };
        let next = [next, watch].into_iter().flatten().min();
        connection.next_look.set(next.unwrap_or(BootTime::END));
        next
    }

    /// Does what is due: sends requests, gives connections up, dials, as the machine wants. Gives
    /// the time of the next wake-up.
    fn do_what_is_due(&mut self) -> Option<BootTime> {
        let owner = self.owner.clone();
        let timers = owner.run_timers(BootTime::now());
        let mut inner = owner.connection().inner.lock();
        let now = BootTime::now();
        if let Some(error) = inner.failed.take() {
            self.closed_by_server(&mut inner, error, now);
        }
        if inner.machine.is_up() {
            self.refusals = Refusals::default(); // a server has resumed the session
            self.refusing_hosts.clear();
        }
        if let Refusals { hosts, since: Some(since) } = &self.refusals {
            if self.dialer.hosts().all(|host| hosts.contains(&host.to_string())) {
                inner.machine.refused_by_all(*since, now);
            }
        }
        #[cfg(unix)]
        if inner.reader.as_ref().is_some_and(|reader| now >= reader.until) {
            // Its time is over, and it got no processor; `flush` lets this thread read again.
            inner.reader = None;
        }
        if inner.machine.is_up() {
            let nodes = owner.to_watch(inner.machine.epoch(), now);
            nodes.into_iter().for_each(|node| inner.machine.watch(node, now));
        }
        let mut next = inner.machine.tick(owner.lease(now), now);
        let mut wake_by = |t: BootTime| next = Some(next.map_or(t, |n: BootTime| n.min(t)));
        timers.into_iter().for_each(&mut wake_by);
        if let Some(reason) = inner.machine.cut.take() {
            self.drop_server(&mut inner, &reason, None, now);
        }
        inner.flush(&owner.connection().registry);
        if inner.failed.is_some() || !inner.machine.outputs.is_empty() {
            wake_by(now);
        }
        let attempt = inner.machine.attempt();
        if let Some(server) = self.server.as_ref().filter(|server| !server.is_connected) {
            if now >= server.since + attempt {
                let within = format!("within {} ms", attempt.as_millis());
                let reason = match &server.tls {
                    Some(tls) if tls.has_begun() => format!(
                        "accepted the connection, but did not end the TLS handshake {within}"
                    ),
                    _ => format!("no connection {within}"),
                };
                let host = server.host.clone();
                self.host_failed(&host, reason, None);
                self.server = None;
            } else {
                wake_by(server.since + attempt);
            }
        }
        let (wants_connection, cap) =
            (inner.machine.wants_connection(), inner.machine.redial_cap());
        let epoch = inner.machine.epoch();
        drop(inner);
        while self.server.is_none() && wants_connection {
            match self.dialer.next(now, cap) {
                DialStep::Connect(target) => self.dial(target, epoch, now),
                DialStep::Resolve(names) => self.resolve(names),
                DialStep::Wait(until) => {
                    until.into_iter().for_each(&mut wake_by);
                    return next;
                }
            }
            if self.server.is_some() {
                wake_by(now + attempt);
            }
        }
        next
    }

    /// Carries out the outputs of the machine, in order. True: the session is over, and no more
    /// outputs will come.
    fn deliver_outputs(&mut self) -> bool {
        let owner = self.owner.clone();
        let connection = owner.connection();
        let _delivering = connection.delivering.lock();
        loop {
            // This takes outputs up to the first that does more than wake threads. Later outputs stay
            // in the machine: their callers can take them from there if this thread loses the
            // processor.
            let (outputs, is_over) = {
                let mut inner = connection.inner.lock();
                let all = &mut inner.machine.outputs;
                let last = all
                    .iter()
                    .position(|output| !is_light(output, &*owner))
                    .map_or(all.len(), |at| at + 1);
                let outputs: Vec<Output> = all.drain(..last).collect();
                (outputs, inner.machine.is_over())
            };
            if outputs.is_empty() {
                owner.tell_losses();
                return is_over;
            }
            for output in outputs {
                match output {
                    // A closing session has little time left.
                    Output::Lost(_) => self.dialer.skip_pause(BootTime::now()),
                    Output::Attached { .. } => connection.failures.lock().clear(),
                    Output::Sasl(token) => {
                        self.log_in(token);
                        continue;
                    }
                    _ => {}
                }
                connection.carry_out(output, &*owner);
            }
        }
    }

    /// Has the mechanism make the next step of the login by SASL: the first, or the answer to this
    /// token of the server.
    fn log_in(&mut self, token: Option<Vec<u8>>) {
        let (Some(server), Some(sasl)) = (&mut self.server, &self.sasl) else { return };
        let owner = &self.owner;
        let login = server.login.get_or_insert_with(|| {
            let waking = owner.clone();
            Login::new(sasl, &server.host, move || waking.connection().wake())
        });
        if let Some(step) = login.step(token) {
            owner.connection().with(|machine, now| machine.sasl(step, now));
        }
    }

    /// Passes on the step that a mechanism has made which waits for others.
    fn log_in_later(&mut self) {
        let login = self.server.as_mut().and_then(|server| server.login.as_mut());
        if let Some(step) = login.and_then(Login::made_later) {
            self.owner.connection().with(|machine, now| machine.sasl(step, now));
        }
    }

    fn server_event(&mut self, ends: bool) {
        let Some(server) = &mut self.server else { return };
        let owner = self.owner.clone();
        let connection = owner.connection();
        if !server.is_connected {
            match server.is_socket_connected() {
                Ok(true) => {
                    if let Some(tls) = &mut server.tls {
                        match tls.handshake(&server.socket) {
                            Ok(true) => {}
                            Ok(false) => return, // it waits for the server
                            Err(reason) => {
                                let host = server.host.clone();
                                debug!("{host}: {reason}");
                                self.host_failed(&host, reason, None);
                                self.server = None;
                                return;
                            }
                        }
                    }
                    let mut inner = connection.inner.lock();
                    let now = BootTime::now();
                    (server.is_connected, server.since) = (true, now);
                    server.host.clone_into(&mut connection.server.lock());
                    (inner.socket, inner.tls) = (Some(server.socket.clone()), server.tls.take());
                    inner.interest = Some(CONNECTING);
                    inner.machine.connected(now);
                    inner.flush(&connection.registry);
                }
                Ok(false) => return, // not yet
                Err(e) => {
                    let host = server.host.clone();
                    self.host_failed(&host, e.to_string(), None);
                    self.server = None;
                    return;
                }
            }
        }
        let mut buf = [0; CHUNK];
        let end = loop {
            // The socket is read under the lock: a calling thread may read too, and the bytes must
            // keep their order.
            let mut inner = connection.inner.lock();
            #[cfg(unix)]
            if inner.reader.is_some() {
                return; // when it ends, the poll announces the bytes that it left unread
            }
            match inner.read(&server.socket, &mut buf) {
                Ok(Some(0)) => break "closed the connection".to_owned(),
                Ok(Some(n)) => {
                    // After a short read epoll and kqueue announce new bytes again, so another read
                    // is not needed. But if the end of the stream came together with the last
                    // bytes, it was announced with them and is not announced again.
                    // (With TLS a read is short although there is more in the socket.)
                    if cfg!(unix) && !ends && n < buf.len() && inner.tls.is_none() {
                        return;
                    }
                }
                Ok(None) => return,
                Err(e) => {
                    // TLS explains its own errors, and they say nothing about the server's data.
                    if e.kind() == ErrorKind::Other {
                        inner.machine.cut = Some(e.to_string());
                    }
                    break e.to_string();
                }
            }
        };
        let mut inner = connection.inner.lock();
        self.closed_by_server(&mut inner, end, BootTime::now());
    }

    /// The server has closed the connection, or it broke.
    fn closed_by_server(&mut self, inner: &mut super::Inner, end: String, now: BootTime) {
        // If the machine gave this connection up while it read, its own reason counts.
        let own = inner.machine.cut.take();
        let refused_at = (own.is_none() && inner.machine.is_presented()).then_some(now);
        let reason = own.unwrap_or_else(|| inner.machine.why_closed(end));
        inner.machine.server_gone(&reason, now);
        self.drop_server(inner, &reason, refused_at, now);
    }

    /// An attempt at this host has failed. `refused_at`: when it closed the connection right behind
    /// the connect request for our session, if it did.
    fn host_failed(&mut self, host: &str, reason: String, refused_at: Option<BootTime>) {
        self.owner.connection().host_failed(host, reason);
        self.owner.connection().has_outage.store(true, Ordering::Relaxed);
        match refused_at {
            Some(now) => {
                self.refusals.since.get_or_insert(now);
                self.refusals.hosts.insert(host.to_owned());
            }
            None => self.refusals = Refusals::default(),
        }
    }

    fn drop_server(
        &mut self,
        inner: &mut super::Inner,
        reason: &str,
        refused_at: Option<BootTime>,
        now: BootTime,
    ) {
        (inner.socket, inner.failed, inner.interest) = (None, None, None);
        let tls = inner.tls.take();
        #[cfg(unix)]
        {
            inner.reader = None; // a reader reads one socket only, and not the next one
        }
        let Some(server) = self.server.take() else { return };
        if let Some(mut tls) = tls {
            tls.close(&server.socket);
        }
        // This wakes a calling thread that waits for the socket.
        let _ = server.socket.shutdown(Shutdown::Both);
        let carried_the_session = inner.machine.epoch() > server.epoch_before;
        if carried_the_session && !inner.machine.is_ending() {
            let (id, left) = (inner.machine.session_id(), self.owner.lease(now).left(now));
            warn!(
                "session 0x{id:x}: the connection to {} is lost ({reason}); {left}; resuming",
                server.host
            );
        } else {
            debug!("{}: {reason}", server.host);
        }
        match inner.machine.take_refusal() {
            Some(refusal) => {
                self.refusing_hosts.insert(server.host.clone());
                if self.dialer.hosts().all(|host| self.refusing_hosts.contains(&host.to_string())) {
                    self.refusing_hosts.clear();
                    inner.machine.all_refuse_login(refusal, now);
                }
                self.owner.connection().host_failed(&server.host, reason.to_owned());
                self.refusals = Refusals::default();
            }
            None => self.host_failed(&server.host, reason.to_owned(), refused_at),
        }
        if carried_the_session {
            self.dialer.connection_lost(
                server.host,
                now.since(server.since),
                now,
                inner.machine.redial_cap(),
            );
        }
        if inner.machine.is_ending() {
            self.dialer.skip_pause(now);
        }
    }

    fn dial(&mut self, target: Target, epoch_before: u64, now: BootTime) {
        debug!("{}: dialling {}", target.host, target.addr);
        #[cfg_attr(unix, allow(clippy::unnecessary_mut_passed))]
        let register = |mut socket: TcpStream| {
            let _ = socket.set_nodelay(true); // without it there is only more latency
            socket::register(&mut socket, self.poll.registry(), SERVER, CONNECTING).map(|()| socket)
        };
        // The files are read anew for each connection. They may have been replaced.
        let tls = self.tls.as_ref().map(|tls| TlsStream::new(tls, &target.host)).transpose();
        let tls = match tls {
            Ok(tls) => tls.map(Box::new),
            Err(reason) => return self.host_failed(&target.host, reason, None),
        };
        match TcpStream::connect(target.addr).and_then(register) {
            Ok(socket) => {
                let (socket, host) = (Arc::new(socket), target.host);
                self.server = Some(ServerConnection {
                    socket,
                    host,
                    since: now,
                    is_connected: false,
                    tls,
                    login: None,
                    epoch_before,
                });
            }
            Err(e) => self.host_failed(&target.host, e.to_string(), None),
        }
    }

    fn resolve(&mut self, names: Vec<Host>) {
        let (found, owner) = (self.resolutions.0.clone(), self.owner.clone());
        let failed =
            |why: &str| names.iter().map(|h| (h.to_string(), Err(why.to_owned()))).collect();
        let (no_thread, panicked): (Resolved, Resolved) =
            (failed("no thread to resolve it on"), failed("its resolution panicked"));
        // The dialer must get an answer in any case: without an answer it would never look up names
        // again.
        let spawned = spawn_own("zkm-resolve".into(), move || {
            let _ = found.send(contained(|| resolve(names)).unwrap_or(panicked));
            owner.connection().wake();
        });
        if spawned.is_err() {
            self.resolved(no_thread);
        }
    }

    fn resolved(&mut self, found: Resolved) {
        for (host, result) in &found {
            if let Err(reason) = result {
                self.owner.connection().host_failed(host, reason.clone());
            }
        }
        self.dialer.resolved(found);
    }

    /// This thread cannot go on: the session is lost.
    fn give_up(&mut self) {
        {
            let mut inner = self.owner.connection().inner.lock();
            (inner.socket, inner.tls) = (None, None);
            (inner.interest, self.server) = (None, None);
            inner.machine.fail(LossReason::Internal, BootTime::now());
        }
        if contained(|| self.deliver_outputs()).is_none() {
            // It has failed again, perhaps before it has ended the holds and reported the loss.
            let owner = &*self.owner;
            contained(|| owner.connection().carry_out(Output::Lost(LossReason::Internal), owner));
        }
    }
}
