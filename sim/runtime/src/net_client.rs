//! Sockets and polls, with the interface of `mio` on Linux: a poll reports each change once
//! (edge-triggered).

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mio::{Interest, Token};

use crate::core::{self, Sim, Tid};
use crate::net::{self, Answer, ConnId};
use crate::thread;
use crate::time::Instant;
use crate::trace::Op;

/// The number of bytes that the sender's system buffers until the receiver's system has them.
const BUFFER: usize = 64 << 10;

// ---- the socket ----

pub(crate) struct Socket {
    conn: ConnId,
    from: SocketAddr,
    to: SocketAddr,
    state: parking_lot::Mutex<SocketState>,
}

#[derive(Default)]
struct SocketState {
    is_established: bool,
    /// The client has closed the socket.
    is_shut: bool,
    received: VecDeque<u8>,
    /// Nothing follows the bytes that were received.
    is_at_end: bool,
    /// An error that is reported once.
    error: Option<ErrorKind>,
    has_failed: bool,
    /// The number of written bytes that have not arrived.
    unsent: usize,
    /// The poll to which changes are reported.
    registration: Option<(Weak<PollShared>, Token, Interest)>,
    /// The threads that wait for this socket alone.
    waiters: Vec<Tid>,
}

impl SocketState {
    fn is_readable(&self) -> bool {
        !self.received.is_empty() || self.is_read_closed()
    }

    fn is_read_closed(&self) -> bool {
        self.is_at_end || self.has_failed || self.is_shut
    }

    fn is_writable(&self) -> bool {
        self.has_failed || self.is_shut || self.is_established && self.unsent < BUFFER
    }

    fn event(&self, token: Token, interest: Interest) -> Option<Event> {
        let event = Event {
            token,
            is_readable: interest.is_readable() && self.is_readable(),
            is_writable: interest.is_writable() && self.is_writable(),
            is_read_closed: (interest.is_readable() && self.is_read_closed()) || self.has_failed,
            is_error: self.error.is_some(),
        };
        let Event { is_readable, is_writable, is_read_closed, is_error, .. } = event;
        (is_readable || is_writable || is_read_closed || is_error).then_some(event)
    }
}

impl Socket {
    pub(crate) fn new(conn: ConnId, from: SocketAddr, to: SocketAddr) -> Arc<Socket> {
        Arc::new(Socket { conn, from, to, state: parking_lot::Mutex::default() })
    }

    pub(crate) fn conn(&self) -> ConnId {
        self.conn
    }

    pub(crate) fn from(&self) -> SocketAddr {
        self.from
    }

    /// Changes the state and wakes all threads that wait for this socket.
    fn change(&self, change: impl FnOnce(&mut SocketState)) {
        let mut state = self.state.lock();
        change(&mut state);
        let waiters = state.waiters.clone();
        let registration = state.registration.as_ref().and_then(|(poll, token, interest)| {
            state.event(*token, *interest)?;
            Some((poll.upgrade()?, *token))
        });
        drop(state);
        core::try_with(|sim| sim.wake_all(&waiters));
        if let Some((poll, token)) = registration {
            poll.tell(token);
        }
    }

    pub(crate) fn established(&self) {
        self.change(|state| state.is_established = true);
    }

    pub(crate) fn receive(&self, bytes: &[u8]) {
        self.change(|state| {
            if !state.is_shut && !state.has_failed {
                state.received.extend(bytes);
            }
        });
    }

    pub(crate) fn receive_end(&self) {
        self.change(|state| state.is_at_end = true);
    }

    pub(crate) fn fail(&self, error: ErrorKind) {
        self.change(|state| {
            if !state.has_failed && !state.is_shut {
                (state.has_failed, state.error) = (true, Some(error));
            }
        });
    }

    /// Notes that so many bytes have left the buffer.
    pub(crate) fn taken(&self, bytes: usize) {
        let was_full = self.state.lock().unsent >= BUFFER;
        if was_full {
            self.change(|state| state.unsent = state.unsent.saturating_sub(bytes));
        } else {
            let mut state = self.state.lock();
            state.unsent = state.unsent.saturating_sub(bytes);
        }
    }

    fn close(&self) {
        let was_shut = std::mem::replace(&mut self.state.lock().is_shut, true);
        if !was_shut {
            core::try_with(|_| net::client_closes(self.conn));
        }
        self.change(|_| ());
    }
}

/// See `mio::net::TcpStream`.
pub struct TcpStream(Arc<Socket>);

impl TcpStream {
    /// Begins to connect.
    ///
    /// # Errors
    ///
    /// None: a failure is found at the socket later.
    pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
        core::point(Op::Connect, u64::from(to.port()));
        Ok(TcpStream(core::with(|sim| net::connect(sim, to))))
    }

    /// Does nothing.
    ///
    /// # Errors
    ///
    /// None.
    pub fn set_nodelay(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    /// The error since the last call.
    ///
    /// # Errors
    ///
    /// None.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.0.state.lock().error.take().map(io::Error::from))
    }

    /// The address of the other end, once the socket is connected.
    ///
    /// # Errors
    ///
    /// If the socket is not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        let state = self.0.state.lock();
        if state.is_established && !state.has_failed {
            Ok(self.0.to)
        } else {
            Err(ErrorKind::NotConnected.into())
        }
    }

    /// Closes the socket, in both directions.
    ///
    /// # Errors
    ///
    /// None.
    pub fn shutdown(&self, _: Shutdown) -> io::Result<()> {
        core::point(Op::CloseSocket, self.0.conn.0);
        self.0.close();
        Ok(())
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        core::point(Op::CloseSocket, self.0.conn.0);
        self.0.close();
        let registration = self.0.state.lock().registration.take();
        if let Some((poll, token, _)) = registration
            && let Some(poll) = poll.upgrade()
        {
            poll.forget(token, &self.0);
        }
    }
}

impl Read for &TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        core::point(Op::Read, self.0.conn.0);
        let mut state = self.0.state.lock();
        if state.is_shut {
            return Ok(0);
        }
        let length = state.received.len().min(buf.len());
        if length > 0 {
            buf.iter_mut().zip(state.received.drain(..length)).for_each(|(to, from)| *to = from);
            return Ok(length);
        }
        match state.error.take() {
            Some(error) => Err(error.into()),
            None if state.is_at_end || state.has_failed => Ok(0),
            None if !state.is_established => Err(ErrorKind::NotConnected.into()),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for &TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        core::point(Op::Write, self.0.conn.0);
        let length = {
            let mut state = self.0.state.lock();
            if let Some(error) = state.error.take() {
                return Err(error.into());
            }
            if state.has_failed || state.is_shut {
                return Err(ErrorKind::BrokenPipe.into());
            }
            if !state.is_established || state.unsent >= BUFFER {
                return Err(ErrorKind::WouldBlock.into());
            }
            let length = bytes.len().min(BUFFER - state.unsent);
            // Now and then the system takes only a part of the bytes.
            let length = core::with(|sim| {
                let mut rng = sim.net_rng.borrow_mut();
                if length > 1 && rng.u32(..100) == 0 { rng.usize(1..length) } else { length }
            });
            state.unsent += length;
            length
        };
        net::client_sends(&self.0, bytes[..length].to_vec());
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TcpStream({}, {} to {})", self.0.conn, self.0.from, self.0.to)
    }
}

/// The registration of a connected socket with a poll, and the wait for a single socket.
pub mod socket {
    use super::*;

    /// As with epoll, a change that is there already is reported.
    ///
    /// # Errors
    ///
    /// If the socket is registered already.
    pub fn register(
        socket: &TcpStream,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        core::point(Op::Register, socket.0.conn.0);
        if socket.0.state.lock().registration.is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        set(socket, registry, token, interest);
        Ok(())
    }

    /// Changes the events to report. An event that is there already is reported.
    ///
    /// # Errors
    ///
    /// If the socket is not registered.
    pub fn reregister(
        socket: &TcpStream,
        registry: &Registry,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        core::point(Op::Register, socket.0.conn.0);
        if socket.0.state.lock().registration.is_none() {
            return Err(ErrorKind::NotFound.into());
        }
        set(socket, registry, token, interest);
        Ok(())
    }

    fn set(socket: &TcpStream, registry: &Registry, token: Token, interest: Interest) {
        let new = (Arc::downgrade(&registry.0), token, interest);
        let before = socket.0.state.lock().registration.replace(new);
        if let Some((_, before, _)) = before.filter(|(_, before, _)| *before != token) {
            registry.0.forget(before, &socket.0);
        }
        registry.0.sources.lock().insert(token.0, socket.0.clone());
        let is_there = socket.0.state.lock().event(token, interest).is_some();
        if is_there {
            registry.0.tell(token);
        }
    }

    /// Ends the reports about this socket.
    ///
    /// # Errors
    ///
    /// If the socket is not registered.
    pub fn deregister(socket: &TcpStream, registry: &Registry) -> io::Result<()> {
        core::point(Op::Register, socket.0.conn.0);
        match socket.0.state.lock().registration.take() {
            Some((_, token, _)) => {
                registry.0.forget(token, &socket.0);
                Ok(())
            }
            None => Err(ErrorKind::NotFound.into()),
        }
    }

    /// Waits until there are bytes to read, an end or an error. Returns false if the time is over
    /// or a signal came.
    ///
    /// # Errors
    ///
    /// None.
    pub fn wait_readable(socket: &TcpStream, timeout: Duration) -> io::Result<bool> {
        core::point(Op::Poll, socket.0.conn.0);
        let until = core::with(|sim| Instant::now_at(sim) + timeout);
        loop {
            if socket.0.state.lock().is_readable() {
                return Ok(true);
            }
            let is_late = core::with(|sim| {
                if Instant::now_at(sim) >= until || sim.net_rng.borrow_mut().u32(..5_000) == 0 {
                    return true;
                }
                socket.0.state.lock().waiters.extend(sim.current());
                sim.block("socket", socket.0.conn.0, Some(until.nanos()));
                socket.0.state.lock().waiters.retain(|other| Some(*other) != sim.current());
                false
            });
            if is_late {
                return Ok(false);
            }
        }
    }
}

// ---- the poll ----

struct PollShared {
    id: u64,
    sources: parking_lot::Mutex<BTreeMap<usize, Arc<Socket>>>,
    changes: parking_lot::Mutex<Changes>,
}

#[derive(Default)]
struct Changes {
    /// The tokens with changes since the last poll, in order.
    tokens: VecDeque<Token>,
    waker: Option<Token>,
    waiter: Option<Tid>,
}

impl PollShared {
    fn tell(&self, token: Token) {
        let mut changes = self.changes.lock();
        if !changes.tokens.contains(&token) {
            changes.tokens.push_back(token);
        }
        if let Some(waiter) = changes.waiter {
            core::try_with(|sim| sim.wake(waiter));
        }
    }

    /// Forgets the socket, unless another one is registered with its token by now.
    fn forget(&self, token: Token, socket: &Arc<Socket>) {
        let mut sources = self.sources.lock();
        if sources.get(&token.0).is_some_and(|known| Arc::ptr_eq(known, socket)) {
            sources.remove(&token.0);
            self.changes.lock().tokens.retain(|other| *other != token);
        }
    }

    fn take_events(&self) -> Vec<Event> {
        let (tokens, waker) = {
            let mut changes = self.changes.lock();
            (std::mem::take(&mut changes.tokens), changes.waker)
        };
        let event = |token: Token| {
            if Some(token) == waker {
                return Some(Event { token, is_readable: true, ..Event::none(token) });
            }
            // Like epoll, this reads the state of the socket when it reports the event.
            let socket = self.sources.lock().get(&token.0).cloned()?;
            let state = socket.state.lock();
            let interest = state.registration.as_ref().map(|(_, _, interest)| *interest)?;
            state.event(token, interest)
        };
        tokens.into_iter().filter_map(event).collect()
    }
}

/// See `mio::Poll`.
pub struct Poll {
    registry: Registry,
}

/// See `mio::Registry`.
pub struct Registry(Arc<PollShared>);

/// See `mio::Waker`.
pub struct Waker {
    poll: Arc<PollShared>,
    token: Token,
}

/// See `mio::Events`.
#[derive(Debug, Default)]
pub struct Events(Vec<Event>);

/// See `mio::event::Event`.
#[derive(Clone, Debug)]
pub struct Event {
    token: Token,
    is_readable: bool,
    is_writable: bool,
    is_read_closed: bool,
    is_error: bool,
}

impl Poll {
    /// A poll with no registered sockets.
    ///
    /// # Errors
    ///
    /// None.
    pub fn new() -> io::Result<Poll> {
        let shared = PollShared {
            id: core::new_object(),
            sources: parking_lot::Mutex::default(),
            changes: parking_lot::Mutex::default(),
        };
        Ok(Poll { registry: Registry(Arc::new(shared)) })
    }

    /// The registry of this poll.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Waits until something has changed. Like epoll's, the timeout counts full milliseconds.
    ///
    /// # Errors
    ///
    /// `Interrupted`, now and then.
    pub fn poll(&mut self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        let shared = &self.registry.0;
        core::point(Op::Poll, shared.id);
        events.0.clear();
        let until = timeout.map(|timeout| {
            let ms = timeout.as_nanos().div_ceil(1_000_000);
            let timeout = Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX));
            core::with(|sim| Instant::now_at(sim) + timeout)
        });
        loop {
            events.0 = shared.take_events();
            if !events.0.is_empty() {
                return Ok(());
            }
            let (is_late, is_interrupted) = core::with(|sim| {
                if until.is_some_and(|until| Instant::now_at(sim) >= until) {
                    return (true, false);
                }
                if sim.net_rng.borrow_mut().u32(..5_000) == 0 {
                    return (false, true);
                }
                shared.changes.lock().waiter = sim.current();
                sim.block("poll", shared.id, until.map(Instant::nanos));
                shared.changes.lock().waiter = None;
                (false, false)
            });
            if is_interrupted {
                return Err(ErrorKind::Interrupted.into());
            }
            if is_late {
                return Ok(());
            }
        }
    }
}

impl Registry {
    /// Another handle of this registry.
    ///
    /// # Errors
    ///
    /// None.
    pub fn try_clone(&self) -> io::Result<Registry> {
        Ok(Registry(self.0.clone()))
    }

    /// See [`socket::register`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn register(
        &self,
        socket: &mut TcpStream,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        socket::register(socket, self, token, interest)
    }
}

impl Waker {
    /// A waker whose events have this token.
    ///
    /// # Errors
    ///
    /// None.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Waker> {
        registry.0.changes.lock().waker = Some(token);
        Ok(Waker { poll: registry.0.clone(), token })
    }

    /// Ends the current wait of the poll, or its next one.
    ///
    /// # Errors
    ///
    /// None.
    pub fn wake(&self) -> io::Result<()> {
        core::point(Op::Wake, self.poll.id);
        self.poll.tell(self.token);
        Ok(())
    }
}

impl Events {
    /// An empty list, for any number of events.
    pub fn with_capacity(_: usize) -> Events {
        Events::default()
    }

    /// All events of the list.
    pub fn iter(&self) -> std::slice::Iter<'_, Event> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Events {
    type Item = &'a Event;
    type IntoIter = std::slice::Iter<'a, Event>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Event {
    fn none(token: Token) -> Event {
        Event {
            token,
            is_readable: false,
            is_writable: false,
            is_read_closed: false,
            is_error: false,
        }
    }

    /// The token of the socket or waker.
    pub fn token(&self) -> Token {
        self.token
    }

    /// As mio's.
    pub fn is_readable(&self) -> bool {
        self.is_readable
    }

    /// As mio's.
    pub fn is_writable(&self) -> bool {
        self.is_writable
    }

    /// As mio's.
    pub fn is_read_closed(&self) -> bool {
        self.is_read_closed
    }

    /// As mio's.
    pub fn is_error(&self) -> bool {
        self.is_error
    }
}

// ---- names ----

/// Resolves a name. It blocks.
///
/// # Errors
///
/// `NotFound` if there is no such name, and another kind if the resolver cannot say it.
pub fn resolve(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    core::point(Op::Resolve, 0);
    let process = core::with(Sim::current_process).expect("a look-up of no process");
    let (lookup, takes) = net::begin_lookup(process, name);
    if !takes.is_zero() {
        thread::sleep(takes);
    }
    match net::end_lookup(lookup) {
        Answer::Addresses(ips) => {
            Ok(ips.into_iter().map(|ip: IpAddr| SocketAddr::new(ip, port)).collect())
        }
        Answer::NoSuchName => Err(io::Error::new(ErrorKind::NotFound, "no such name")),
        Answer::Failure => Err(io::Error::other("the resolver has no answer")),
    }
}
