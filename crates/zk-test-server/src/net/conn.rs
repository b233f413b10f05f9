//! One client's socket, with the bytes that came in and the bytes that are to go out.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};

use super::framing::Input;
use super::tls::{Acceptor, Tls};
use crate::engine::ConnId;
use crate::faults::HoldId;

/// With more than this to send, a connection is not read until half of it has gone.
const FULL: usize = 1 << 20;
/// A client that takes nothing for so long, although more waits for it, does not read any more.
const STALLED: Duration = Duration::from_secs(2);
/// How much of its buffer an idle connection may keep.
const KEPT: usize = 4 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing was served yet: a four-letter word or a connect request.
    First,
    /// The connect request is with the engine; nothing else is taken before it is answered.
    Connecting,
    /// Requests.
    Open,
    /// Its end is decided. Nothing more that arrives is served. The close, the cut or the silence
    /// follows when everything before it is sent.
    Ending,
    /// Nothing more is read; to be closed when all is sent.
    Closing,
    /// Nothing is read and nothing is sent, until the client goes or the connection is cut.
    Silent,
}

#[derive(Debug)]
pub(super) struct Conn {
    socket: TcpStream,
    /// TLS on the socket, if the connection has it, or may turn out to have it.
    tls: Option<Box<Tls>>,
    pub(super) peer: SocketAddr,
    pub(super) stage: Stage,
    /// 0 before it is known.
    pub(super) session: i64,
    pub(super) input: Input,
    out: Vec<u8>,
    written: usize,
    /// When the socket last took something, or had nothing to take.
    taken: Instant,
    /// Bytes that a `delay` still holds back.
    pub(super) delayed: usize,
    is_readable: bool,
    is_full: bool,
    pub(super) at_end: bool,
    /// It is in the queue of connections that have something to serve.
    pub(super) is_queued: bool,
    /// It is in the list of connections that have something to send.
    pub(super) is_dirty: bool,
    /// A fault holds its next request.
    pub(super) held: Option<HoldId>,
    /// The last hold that let its next request go.
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

    /// The poll has seen something.
    pub(super) fn readable(&mut self) {
        self.is_readable = true;
    }

    /// Whether it may be asked for requests now.
    pub(super) fn is_served(&self) -> bool {
        matches!(self.stage, Stage::First | Stage::Open) && self.held.is_none() && !self.is_full
    }

    /// Whether it is to be read at all now.
    pub(super) fn is_heard(&self) -> bool {
        self.is_served() || self.is_ignored()
    }

    /// From now on nothing that has arrived or arrives here is served.
    pub(super) fn stop_reading(&mut self) {
        self.stage = Stage::Ending;
        self.held = None;
        self.input.clear();
    }

    /// Whether what it sends is thrown away.
    pub(super) fn is_ignored(&self) -> bool {
        matches!(self.stage, Stage::Ending | Stage::Silent)
    }

    /// Reads once. Returns `false` if nothing new came, also if the stream has ended.
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

    /// How much memory it uses.
    pub(super) fn unsent(&self) -> usize {
        self.untaken() + self.delayed
    }

    /// How many bytes its client could have read by now.
    pub(super) fn untaken(&self) -> usize {
        self.out.len() - self.written
    }

    /// Whether its client has not read for a while what is there for it.
    pub(super) fn is_stalled(&self) -> bool {
        !self.out.is_empty() && self.taken.elapsed() > STALLED
    }

    /// Whether all that may be sent by now is sent.
    pub(super) fn is_drained(&self) -> bool {
        self.out.is_empty() && !self.tls.as_ref().is_some_and(|tls| tls.has_unwritten())
    }

    /// Counts bytes that are held back.
    pub(super) fn delay(&mut self, bytes: usize) {
        self.delayed += bytes;
        self.is_full = self.is_full || self.unsent() > FULL;
    }

    /// Sends what the socket takes; true if it may be read again because of that. An error means
    /// that the client is gone.
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

    /// Ends the connection so that what was sent arrives: bytes that nobody read would make the
    /// system reset it, and the client's side might throw away what it had not read.
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
