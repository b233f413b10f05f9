//! One connection to the ensemble at a time: the protocol, the socket, and the choice of the next
//! server.
//!
//! `machine` makes all decisions, without I/O, clock or locks. This file protects the machine with
//! one lock. Calling threads take that lock, submit their requests, and write them to the socket
//! themselves. `event_loop` is the one thread that reads, keeps time and dials; a calling thread
//! that waits for a quick answer reads it itself (`reader`). `callers` knows who waits for which
//! answer. `dial` chooses the address to dial and the time, by what `addresses` knows; `attempts` are
//! the connections that are being made. `codec` encodes the requests and decodes the answers.
//!
//! The session that owns the connection is known here as `Owner` only.

mod addresses;
mod attempts;
mod callers;
mod dial;
mod event_loop;
#[cfg(feature = "sasl-gssapi")]
mod gssapi;
#[cfg(unix)]
mod reader;
mod sasl;
#[cfg(feature = "tls")]
mod tls;

use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

pub(super) use self::addresses::Addresses;
use self::callers::Callers;
pub(super) use self::event_loop::{Dialling, EventLoop};
#[cfg(feature = "tls")]
use self::tls::TlsStream;
use crate::clock::{BootTime, SharedTime};
use crate::machine::{LeaseStatus, Machine, MachineConfig, Output, WatchedNode};
use crate::nonblocking::{read_some, write_some};
#[cfg(not(feature = "tls"))]
use crate::tls::TlsStream;
use crate::world::atomic::{AtomicBool, Ordering};
#[cfg(unix)]
use crate::world::socket;
use crate::world::{Interest, Mutex, Registry, TcpStream, Token, Waker};

/// The size of one read. The buffer is on the stack of the thread that reads: if each session kept
/// a buffer, that buffer would be most of the memory of 1,000 idle sessions.
const CHUNK: usize = 4 << 10;

/// The session that owns a connection. The event loop calls it, and `take_output` is also called
/// by a calling thread that reads the socket.
pub(super) trait Owner: Send + Sync + 'static {
    fn connection(&self) -> &Connection;

    /// Carries out an output that is no answer to a caller.
    fn take_output(&self, output: Output);

    /// Whether `take_output` takes no time for this output: it only wakes waiting threads. Then any
    /// calling thread that reads the socket may carry it out.
    fn is_light(&self, output: &Output) -> bool;

    /// Notifies the holders whose losses `take_output` has found. They may be many, so only the
    /// event loop calls this: the thread that found a loss may be a caller with a deadline.
    fn tell_losses(&self);

    /// Does what is due at `now` by the owner's own timers. Gives the time of the next call.
    fn run_timers(&self, now: BootTime) -> Option<BootTime>;

    fn lease(&self, now: BootTime) -> LeaseStatus;

    /// The held nodes that need a watch on this connection now. Each counts as watched from now on.
    fn to_watch(&self, epoch: u64, now: BootTime) -> Vec<WatchedNode>;

    /// When `to_watch` must be called again.
    fn next_watch(&self, epoch: u64) -> Option<BootTime>;
}

pub(crate) struct Connection {
    inner: Mutex<Inner>,
    callers: Mutex<Callers>,
    waker: Waker,
    /// The registry of the event loop's poll: the socket is registered here while the event loop
    /// waits for it.
    registry: Registry,
    /// A thread holds this lock while it takes outputs from the machine and carries them out. So
    /// they are carried out in order. It is taken before `inner`, never after it.
    delivering: Mutex<()>,
    /// When the event loop wakes at the latest; the start of the clock while it is at work.
    next_look: SharedTime,
    /// An attempt has failed for another reason than a refused login.
    has_outage: AtomicBool,
    /// The server of the current connection, or of the last one.
    server: Mutex<String>,
}

/// The state that the threads share: the machine, and the socket for its bytes.
struct Inner {
    machine: Machine,
    /// `None` while there is no connection.
    socket: Option<Arc<TcpStream>>,
    /// TLS on that socket, if the connection has it.
    tls: Option<Box<TlsStream>>,
    /// The error of a failed write, until the event loop has seen it.
    failed: Option<String>,
    /// The calling thread that reads the socket in the place of the event loop, if there is one.
    #[cfg(unix)]
    reader: Option<reader::CurrentReader>,
    /// The number of the last reader; it counts the readers of this connection.
    #[cfg(unix)]
    reader_number: u64,
    /// The token of the socket in the event loop's poll.
    token: Token,
    /// The events of the socket for which it is registered now; `None` if it is not registered.
    interest: Option<Interest>,
}

impl Connection {
    fn new(config: MachineConfig, waker: Waker, registry: Registry) -> Self {
        let machine = Machine::new(config, BootTime::now());
        let inner = Inner {
            machine,
            socket: None,
            tls: None,
            failed: None,
            #[cfg(unix)]
            reader: None,
            #[cfg(unix)]
            reader_number: 0,
            token: Token(0),
            interest: None,
        };
        Connection {
            inner: Mutex::new(inner),
            callers: Mutex::default(),
            waker,
            registry,
            delivering: Mutex::new(()),
            next_look: SharedTime::default(),
            has_outage: AtomicBool::new(false),
            server: Mutex::default(),
        }
    }

    /// Lets `act` give the machine something to do, and sends the bytes that follow from it. It
    /// blocks only for the lock, and no thread keeps that lock longer than a write that does not
    /// block.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Machine, BootTime) -> T) -> T {
        let mut inner = self.inner.lock();
        // The clock is read under the lock, so that the time never goes back for the machine.
        let value = match inner.turn(|machine| act(machine, BootTime::now())) {
            Ok(value) => value,
            Err(panic) => {
                drop(inner);
                self.wake(); // it ends the session
                resume_unwind(panic);
            }
        };
        inner.flush(&self.registry);
        let needs_event_loop = inner.failed.is_some() || inner.machine.wants_attention();
        drop(inner);
        if needs_event_loop {
            self.wake();
        }
        value
    }

    /// Wakes the event loop, so that it does the work that is due.
    pub(super) fn wake(&self) {
        // This fails only if the computer has no resources left. Then the event loop wakes a little
        // later by its own timeout.
        let _ = self.waker.wake();
    }

    /// Wakes the event loop unless it wakes before this time by itself.
    pub(super) fn wake_before(&self, time: BootTime) {
        if self.next_look.get() > time {
            self.wake();
        }
    }

    /// The server of the current connection, or of the last one.
    pub(super) fn server(&self) -> String {
        self.server.lock().clone()
    }

    /// Whether an attempt has failed for another reason than a refused login.
    pub(super) fn has_outage(&self) -> bool {
        self.has_outage.load(Ordering::Relaxed)
    }

    /// Carries out an output.
    fn carry_out(&self, output: Output, owner: &dyn Owner) {
        if let Some(output) = self.answer(output) {
            owner.take_output(output);
        }
    }
}

/// Whether an output only wakes waiting threads.
fn is_light(output: &Output, owner: &dyn Owner) -> bool {
    matches!(output, Output::Answered(..) | Output::Done(..) | Output::Closed(_))
        || owner.is_light(output)
}

impl Inner {
    /// Lets `act` change the machine. If it panics, the machine may be half changed, and other
    /// threads would go on with that: this lock knows no poison. So a machine whose session is lost
    /// takes its place, and the event loop tells the owner and the callers.
    fn turn<T>(&mut self, act: impl FnOnce(&mut Machine) -> T) -> std::thread::Result<T> {
        let turn = catch_unwind(AssertUnwindSafe(|| act(&mut self.machine)));
        if turn.is_err() {
            self.machine = Machine::failed(BootTime::now());
            self.failed = Some("a thread of this process panicked while it used it".to_owned());
        }
        turn
    }

    /// Writes as many bytes as the socket takes. The rest is written when the socket is writable
    /// again.
    fn flush(&mut self, registry: &Registry) {
        self.write();
        self.wait_for_socket(registry);
    }

    /// Registers the socket for the events that the event loop needs: for reading, unless a calling
    /// thread reads; and for writing, while there are bytes that the socket did not take.
    #[cfg(unix)]
    fn wait_for_socket(&mut self, registry: &Registry) {
        let Some(server) = &self.socket else { return };
        let reads = self.reader.is_none().then_some(Interest::READABLE);
        let waits = self.tls.as_ref().is_some_and(|tls| tls.has_unwritten());
        let writes = (waits || !self.machine.to_server.is_empty()).then_some(Interest::WRITABLE);
        let wanted = match (reads, writes) {
            (Some(reads), Some(writes)) => Some(reads | writes),
            (reads, writes) => reads.or(writes),
        };
        if wanted == self.interest {
            return;
        }
        let done = match (self.interest, wanted) {
            (None, Some(wanted)) => socket::register(server, registry, self.token, wanted),
            (Some(_), Some(wanted)) => socket::reregister(server, registry, self.token, wanted),
            (_, None) => socket::deregister(server, registry),
        };
        match done {
            Ok(()) => self.interest = wanted,
            Err(e) => self.failed = Some(e.to_string()),
        }
    }

    /// On this platform calling threads do not read, so the first registration stays as it is.
    #[cfg(not(unix))]
    fn wait_for_socket(&mut self, _: &Registry) {
        let _ = (self.interest, self.token);
    }

    fn write(&mut self) {
        let Some(socket) = &self.socket else { return };
        let bytes = &mut self.machine.to_server;
        let written = match &mut self.tls {
            Some(tls) => tls.write(socket, bytes),
            None => write_some(&mut &**socket, bytes),
        };
        if let Err(e) = written {
            self.fail(&e);
        }
    }

    /// Keeps the error of the socket for the event loop. TLS explains its own errors: they count as
    /// reasons of ours, and say nothing about the server's data.
    fn fail(&mut self, error: &io::Error) {
        let reason = error.to_string();
        if error.kind() == ErrorKind::Other {
            self.machine.cut = Some(reason.clone());
        }
        self.failed = Some(reason);
    }

    /// Reads once, and gives the bytes to the machine. The result is that of `read_some`.
    fn read(&mut self, mut socket: &TcpStream, buf: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let (count, now) = timed(|| match &mut self.tls {
                Some(tls) => tls.read(socket, buf),
                None => read_some(&mut socket, buf),
            })?;
            let Some(bytes) = count.and_then(|n| buf.get(..n)).filter(|bytes| !bytes.is_empty())
            else {
                return Ok(count);
            };
            if let Err(panic) = self.turn(|machine| machine.server_bytes(bytes, now)) {
                resume_unwind(panic);
            }
            // What TLS has taken from the socket already, bytes or the end of the stream, is read
            // now: neither the poll nor the socket would announce it to the thread that reads next.
            if !self.tls.as_mut().is_some_and(|tls| tls.has_unread()) {
                return Ok(count);
            }
        }
    }
}

/// What a read gives, and a time at which it had come. The clock is read after the bytes: this thread
/// may be stopped in between, and an answer must never be taken for older than it is.
fn timed<T>(read: impl FnOnce() -> io::Result<T>) -> io::Result<(T, BootTime)> {
    let value = read()?;
    Ok((value, BootTime::now()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lease counts on the order of what was sent and of what had come by then.
    #[test]
    fn the_time_of_an_answer_is_not_before_the_answer() {
        let (came, at) = timed(|| {
            let begun = BootTime::now();
            while BootTime::now() == begun {} // the bytes come when the thread has waited for them
            Ok(BootTime::now())
        })
        .unwrap();
        assert!(at >= came);
    }

    /// A request that TLS has taken, and the full socket has not, is written as soon as there is
    /// room: otherwise it would wait until something else is sent.
    #[cfg(all(unix, feature = "tls"))]
    #[test]
    fn the_rest_of_a_tls_record_waits_until_the_socket_is_writable() {
        use crate::tls::TlsConfig;
        use crate::world::Poll;
        use std::io::{Read, Write};
        use std::net::TcpListener;
        use std::time::Duration;
        use zk_test_support::{Scratch, pki::Pki};
        let scratch = Scratch::new("unwritten");
        let config = TlsConfig::new(Pki::new(scratch.path(), "own").ca_file());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        let socket = Arc::new(TcpStream::from_std(socket));

        let poll = Poll::new().unwrap();
        let registry = poll.registry().try_clone().unwrap();
        let waker = Waker::new(&registry, Token(0)).unwrap();
        let settings = MachineConfig::new(Duration::from_secs(3600), "/no-op".into());
        let connection = Connection::new(settings, waker, registry);
        let mut inner = connection.inner.lock();
        inner.socket = Some(socket.clone());
        // A new TLS connection has a record to send at once. Until then the socket is full, and the
        // peer reads nothing; should it find room for a record all the same, it is filled again.
        loop {
            while (&*socket).write(&[0; 1 << 12]).is_ok() {}
            inner.tls = Some(Box::new(TlsStream::new(&config, "127.0.0.1:1").unwrap()));
            inner.flush(&connection.registry);
            assert!(inner.failed.is_none() && inner.machine.to_server.is_empty());
            if inner.tls.as_ref().is_some_and(|tls| tls.has_unwritten()) {
                break;
            }
        }
        assert_eq!(inner.interest, Some(Interest::READABLE | Interest::WRITABLE));
        // When there is room it is written, and nothing more is waited for but answers.
        peer.set_nonblocking(true).unwrap();
        let mut buf = vec![0; 1 << 20];
        while inner.tls.as_ref().is_some_and(|tls| tls.has_unwritten()) {
            let _ = peer.read(&mut buf);
            inner.flush(&connection.registry);
        }
        assert_eq!(inner.interest, Some(Interest::READABLE));
    }
}
