//! One client's socket, with the bytes that were received and the bytes to be sent.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::framing::Input;
use super::tls::{Acceptor, Tls};
use crate::engine::ConnId;
use crate::faults::HoldId;

/// While more than this waits to be sent, the connection is not read. It is read again when half of
/// it is sent.
const FULL: usize = 1 << 20;
/// A client that takes no byte for this long, although bytes wait for it, counts as not reading.
const STALLED: Duration = Duration::from_secs(2);
/// How much of its buffer an idle connection may keep.
const KEPT: usize = 4 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing was served yet. A four-letter word or a connect request comes first.
    First,
    /// The engine has the connect request. Nothing else is served before it is answered.
    Connecting,
    /// Requests are served.
    Open,
    /// The end of the connection is decided, and nothing more is served. The close, the cut or the
    /// silence follows when all earlier bytes are sent.
    Ending,
    /// Nothing more is read. The connection is closed when all bytes are sent.
    Closing,
    /// Nothing is read and nothing is sent, until the client closes the connection or it is cut.
    Silent,
}

#[derive(Debug)]
pub(super) struct Conn {
    socket: TcpStream,
    /// TLS on the socket, if the connection has it, or may turn out to have it.
    tls: Option<Box<Tls>>,
    pub(super) peer: SocketAddr,
    pub(super) stage: Stage,
    /// 0 while it is not known.
    pub(super) session: i64,
    pub(super) input: Input,
    out: Vec<u8>,
    written: usize,
    /// When the socket last took bytes, or there were none to take.
    taken: Instant,
    /// The number of bytes that a `delay` still holds back.
    pub(super) delayed: usize,
    is_readable: bool,
    is_full: bool,
    pub(super) at_end: bool,
    /// The connection is in the queue of those with something to serve.
    pub(super) is_queued: bool,
    /// The connection is in the list of those with something to send.
    pub(super) is_dirty: bool,
    /// The hold that keeps the connection's next request.
    pub(super) held: Option<HoldId>,
    /// The last hold that released the connection's next request.
    pub(super) after: HoldId,
}

impl Conn {
    pub(super) fn new(
        mut socket: TcpStream,
        peer: SocketAddr,
        id: ConnId,
        registry: &Registry,
        tls: Option<&Acceptor>,
    ) -> io::Result<Conn> {
        let tls = tls.map(Tls::new).transpose()?.map(Box::new);
        let _ = socket.set_nodelay(true); // it only costs latency where it cannot be had
        registry.register(
            &mut socket,
            Token(id as usize),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        Ok(Conn {
            socket,
            tls,
            peer,
            stage: Stage::First,
            session: 0,
            input: Input::default(),
            out: Vec::new(),
            written: 0,
            taken: Instant::now(),
            delayed: 0,
            is_readable: true,
            is_full: false,
            at_end: false,
            is_queued: false,
            is_dirty: false,
            held: None,
            after: 0,
        })
    }

    /// The poll has reported an event.
    pub(super) fn readable(&mut self) {
        self.is_readable = true;
    }

    /// Whether requests of this connection may be served now.
    pub(super) fn is_served(&self) -> bool {
        matches!(self.stage, Stage::First | Stage::Open) && self.held.is_none() && !self.is_full
    }

    /// Whether the socket is to be read now.
    pub(super) fn is_heard(&self) -> bool {
        self.is_served() || self.is_ignored()
    }

    /// From now on the server serves nothing of this connection, neither new bytes nor bytes that
    /// have arrived.
    pub(super) fn stop_reading(&mut self) {
        self.stage = Stage::Ending;
        self.held = None;
        self.input.clear();
    }

    /// Whether the bytes that arrive are thrown away.
    pub(super) fn is_ignored(&self) -> bool {
        matches!(self.stage, Stage::Ending | Stage::Silent)
    }

    /// Reads once. Returns `false` if no new bytes came, also if the stream has ended.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> bool {
        while self.is_readable && !self.at_end {
            match self.socket.read(buffer) {
                Ok(0) => self.at_end = true,
                Ok(n) => {
                    if self.take(buffer.get(..n).unwrap_or_default()) {
                        return true;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => self.is_readable = false,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => {
                    debug!("test server: {}: {e}", self.peer);
                    self.at_end = true;
                }
            }
        }
        false
    }

    /// Takes bytes of the socket. True if they have brought bytes of the protocol.
    fn take(&mut self, bytes: &[u8]) -> bool {
        if self.tls.as_ref().is_some_and(|tls| tls.is_plain(bytes)) {
            self.tls = None;
        }
        let Some(tls) = &mut self.tls else {
            self.input.push(bytes);
            return true;
        };
        match tls.take(bytes, &self.socket) {
            Ok(plain) => {
                self.input.push(&plain);
                !plain.is_empty()
            }
            Err(why) => {
                warn!("test server: closed {}: {why}", self.peer);
                self.at_end = true;
                false
            }
        }
    }

    /// Once: the subject of the certificate that its client has presented.
    pub(super) fn take_subject(&mut self) -> Option<String> {
        self.tls.as_mut()?.take_subject()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        if self.out.is_empty() {
            self.taken = Instant::now();
        }
        self.out.extend_from_slice(bytes);
        self.is_full = self.is_full || self.unsent() > FULL;
    }

    /// How much memory the bytes to be sent use.
    pub(super) fn unsent(&self) -> usize {
        self.untaken() + self.delayed
    }

    /// How many bytes wait for the client to read them.
    pub(super) fn untaken(&self) -> usize {
        self.out.len() - self.written
    }

    /// Whether the client has not read for a while although bytes wait for it.
    pub(super) fn is_stalled(&self) -> bool {
        !self.out.is_empty() && self.taken.elapsed() > STALLED
    }

    /// Whether all bytes that may be sent now are sent.
    pub(super) fn is_drained(&self) -> bool {
        self.out.is_empty() && !self.tls.as_ref().is_some_and(|tls| tls.has_unwritten())
    }

    /// Counts bytes that are held back.
    pub(super) fn delay(&mut self, bytes: usize) {
        self.delayed += bytes;
        self.is_full = self.is_full || self.unsent() > FULL;
    }

    /// Sends as many bytes as the socket takes. Returns true if the connection may be read again
    /// because of this. An error means that the client is gone.
    pub(super) fn write(&mut self) -> io::Result<bool> {
        let mut took = false;
        if let Some(tls) = &mut self.tls {
            tls.flush(&self.socket)?;
        }
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            let written = match &mut self.tls {
                Some(tls) => tls.write(&self.socket, rest),
                None => self.socket.write(rest),
            };
            match written {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.written += n;
                    took = true;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        if took {
            self.taken = Instant::now();
        }
        if self.written == self.out.len() {
            self.out.clear();
            self.written = 0;
            if self.out.capacity() > KEPT {
                self.out = Vec::new();
            }
        } else if self.written > self.out.len() / 2 {
            self.out.drain(..self.written);
            self.written = 0;
        }
        let was_full = self.is_full;
        self.is_full = was_full && self.unsent() > FULL / 2;
        Ok(was_full && !self.is_full)
    }

    /// Closes the connection so that the sent bytes arrive. If received bytes were left unread, the
    /// system would reset the connection, and the client might lose bytes that it has not read yet.
    pub(super) fn close(mut self, buffer: &mut [u8]) {
        if let Some(tls) = self.tls.as_mut().filter(|_| self.stage == Stage::Closing) {
            tls.close(&self.socket); // a connection that is cut ends without it
        }
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
        self.is_readable = true;
        for _ in 0..16 {
            self.input.clear();
            if !self.read(buffer) {
                break;
            }
        }
    }
}
