//! One connection to the ensemble at a time: the protocol, the socket, and who is dialled next.
//!
//! `machine` decides, without I/O, clock or locks. This file puts it behind one lock, under which the
//! calling threads submit their requests and write them to the socket themselves. `event_loop` is the
//! one thread that reads, keeps time and dials; `dial` says whom; `codec` knows the requests.

pub(crate) mod codec;
mod dial;
mod event_loop;
pub(crate) mod machine;

use std::io::{ErrorKind, Write};
use std::sync::Arc;

use mio::Waker;
use mio::net::TcpStream;
use parking_lot::Mutex;

pub(super) use self::event_loop::EventLoop;
use self::machine::{Machine, Settings};
use crate::clock::BootTime;

pub(crate) struct Connection {
    inner: Mutex<Inner>,
    waker: Waker,
}

/// What threads share: the machine, and the socket that its bytes go to.
struct Inner {
    machine: Machine,
    /// While it is connected.
    socket: Option<Arc<TcpStream>>,
    /// Why a write failed, until the event loop has seen it.
    failed: Option<String>,
}

impl Connection {
    fn new(settings: Settings, waker: Waker) -> Self {
        let machine = Machine::new(settings, BootTime::now());
        Connection { inner: Mutex::new(Inner { machine, socket: None, failed: None }), waker }
    }

    /// Gives the machine something to do and sends what comes of it. Blocks for nothing but the lock,
    /// which nobody keeps for longer than a write that does not block.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Machine, BootTime) -> T) -> T {
        let mut inner = self.inner.lock();
        // The clock is read under the lock, so that the machine never sees it go back.
        let value = act(&mut inner.machine, BootTime::now());
        inner.flush();
        let is_loops = inner.failed.is_some() || inner.machine.wants_attention();
        drop(inner);
        if is_loops {
            self.wake();
        }
        value
    }

    /// Lets the event loop look at what there is to do.
    pub(super) fn wake(&self) {
        // It fails only where the machine gave no more resources; the loop looks by itself then.
        let _ = self.waker.wake();
    }
}

impl Inner {
    /// Writes what the socket takes. What remains goes when the socket is writable again.
    fn flush(&mut self) {
        let (Some(socket), bytes) = (&self.socket, &mut self.machine.to_server) else { return };
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match (&**socket).write(rest) {
                Ok(0) => {
                    self.failed = Some("took no more bytes".to_owned());
                    break;
                }
                Ok(n) => written += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    self.failed = Some(e.to_string());
                    break;
                }
            }
        }
        if written == bytes.len() {
            bytes.clear();
        } else {
            bytes.drain(..written);
        }
    }
}
