//! One connection to the ensemble at a time: the protocol, the socket, and who is dialled next.
//!
//! `machine` decides, without I/O, clock or locks. This file puts it behind one lock, under which
//! the calling threads submit their requests and write them to the socket themselves. `event_loop`
//! is the one thread that reads, keeps time and dials; a calling thread that waits for a quick
//! answer reads that itself (`reader`). `dial` says whom to dial; `codec` knows the requests.

pub(crate) mod codec;
mod dial;
mod event_loop;
pub(crate) mod machine;
#[cfg(unix)]
mod reader;

use std::io::{self, ErrorKind, Write};
use std::sync::Arc;

pub(super) use self::event_loop::EventLoop;
use self::machine::{Machine, MachineConfig};
use crate::clock::BootTime;
#[cfg(unix)]
use crate::world::socket;
use crate::world::{Interest, Mutex, Registry, TcpStream, Token, Waker};

/// The socket, among what the event loop waits for.
const SERVER: Token = Token(1);

/// So much is read at once, into the stack of the thread that reads: a buffer kept by each session
/// would be the largest part of what 1,000 idle sessions need.
const CHUNK: usize = 4 << 10;

pub(crate) struct Connection {
    inner: Mutex<Inner>,
    waker: Waker,
    /// Where the socket is registered while the event loop waits for it.
    registry: Registry,
    /// Held by the thread that takes outputs from the machine and carries them out, so that they
    /// are carried out in order. Taken before `inner`, never after it.
    delivering: Mutex<()>,
}

/// What threads share: the machine, and the socket that its bytes go to.
struct Inner {
    machine: Machine,
    /// While it is connected.
    socket: Option<Arc<TcpStream>>,
    /// Why a write failed, until the event loop has seen it.
    failed: Option<String>,
    /// The calling thread that waits for the socket, in the place of the event loop.
    #[cfg(unix)]
    reader: Option<reader::CurrentReader>,
    /// How many there have been.
    #[cfg(unix)]
    reader_number: u64,
    /// What the event loop waits for at the socket.
    interest: Option<Interest>,
}

impl Connection {
    fn new(config: MachineConfig, waker: Waker, registry: Registry) -> Self {
        let machine = Machine::new(config, BootTime::now());
        let inner = Inner {
            machine,
            socket: None,
            failed: None,
            #[cfg(unix)]
            reader: None,
            #[cfg(unix)]
            reader_number: 0,
            interest: None,
        };
        Connection { inner: Mutex::new(inner), waker, registry, delivering: Mutex::new(()) }
    }

    /// Gives the machine something to do and sends what comes of it. Blocks for nothing but the
    /// lock, which nobody keeps for longer than a write that does not block.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Machine, BootTime) -> T) -> T {
        let mut inner = self.inner.lock();
        // The clock is read under the lock, so that the machine never sees it go back.
        let value = act(&mut inner.machine, BootTime::now());
        inner.flush(&self.registry);
        let needs_event_loop = inner.failed.is_some() || inner.machine.wants_attention();
        drop(inner);
        if needs_event_loop {
            self.wake();
        }
        value
    }

    /// Lets the event loop look at what there is to do.
    pub(super) fn wake(&self) {
        // It can fail only if this computer has no more resources. The event loop then looks by
        // itself a little later.
        let _ = self.waker.wake();
    }
}

impl Inner {
    /// Writes what the socket takes. What remains goes when the socket is writable again.
    fn flush(&mut self, registry: &Registry) {
        self.write();
        self.wait_for_socket(registry);
    }

    /// Tells the event loop's poll what to wait for: bytes, unless a calling thread reads them; and
    /// room for bytes that were not taken.
    #[cfg(unix)]
    fn wait_for_socket(&mut self, registry: &Registry) {
        let Some(server) = &self.socket else { return };
        let reads = self.reader.is_none().then_some(Interest::READABLE);
        let writes = (!self.machine.to_server.is_empty()).then_some(Interest::WRITABLE);
        let wanted = match (reads, writes) {
            (Some(reads), Some(writes)) => Some(reads | writes),
            (reads, writes) => reads.or(writes),
        };
        if wanted == self.interest {
            return;
        }
        let done = match (self.interest, wanted) {
            (None, Some(wanted)) => socket::register(server, registry, SERVER, wanted),
            (Some(_), Some(wanted)) => socket::reregister(server, registry, SERVER, wanted),
            (_, None) => socket::deregister(server, registry),
        };
        match done {
            Ok(()) => self.interest = wanted,
            Err(e) => self.failed = Some(e.to_string()),
        }
    }

    /// Where no calling thread reads, the registration of the beginning stands.
    #[cfg(not(unix))]
    fn wait_for_socket(&mut self, _: &Registry) {
        let _ = self.interest;
    }

    fn write(&mut self) {
        let Some(socket) = &self.socket else { return };
        if let Err(e) = write_some(&mut &**socket, &mut self.machine.to_server) {
            self.failed = Some(e.to_string());
        }
    }
}

/// Writes as many of these bytes as the socket takes, and keeps the others.
pub(super) fn write_some(socket: &mut impl Write, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut written = 0;
    let end = loop {
        let rest = bytes.get(written..).unwrap_or_default();
        if rest.is_empty() {
            break Ok(());
        }
        match socket.write(rest) {
            Ok(0) => break Err(ErrorKind::WriteZero.into()),
            Ok(n) => written += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break Ok(()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => break Err(e),
        }
    };
    if written == bytes.len() {
        bytes.clear();
    } else {
        bytes.drain(..written);
    }
    end
}
