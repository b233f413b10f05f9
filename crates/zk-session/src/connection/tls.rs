//! TLS on the connection's socket: the handshake, and the bytes of the protocol in TLS records.
//!
//! The event loop makes the handshake by itself, before the machine hears of the connection. After
//! that this stands beside the socket, under the connection's lock. All reads and writes of the
//! socket are made under that lock, so calling threads write and read over TLS as they do without.
//!
//! # The times on which the lease rests
//!
//! The machine takes the time of a request when it encodes it, before the request comes here. TLS
//! can only delay it: its record may wait in `connection` until the socket takes it. So the request
//! was sent at the machine's time *s* or later, and a leader that has heard the request has heard
//! of us at *s* or later. That is what the lease needs. Where the rule of the lease wants a request
//! that was sent *after* some answer, it has one: the request was encoded after that answer.
//!
//! The time of an answer is taken after its bytes have left `connection`. So an answer never counts
//! as older than it is, wherever its record has waited.
//!
//! No request is encoded before the handshake is over: otherwise the lease would count from the
//! start of the handshake, and be shorter for nothing.

use std::io::{self, BufRead, ErrorKind, Read, Write};

use rustls::ClientConnection;

use crate::tls::{TlsConfig, server_name};
use crate::world::TcpStream;

/// A connection over TLS, without its socket.
pub(crate) struct TlsStream {
    connection: ClientConnection,
    /// For the words of errors.
    config: TlsConfig,
    name: String,
    has_begun: bool,
    /// `read` has given bytes.
    has_given: bool,
}

impl TlsStream {
    /// For a connection to `host`, as the connect string has it with its port. Reads the files of
    /// the configuration.
    pub(crate) fn new(config: &TlsConfig, host: &str) -> Result<Self, String> {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let name = name.trim_matches(['[', ']']);
        let connection = ClientConnection::new(config.load()?, server_name(name)?)
            .map_err(|e| format!("TLS cannot be set up: {e}"))?;
        Ok(TlsStream {
            connection,
            config: config.clone(),
            name: name.to_owned(),
            has_begun: false,
            has_given: false,
        })
    }

    /// Whether the socket was connected, so that the handshake could begin.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Goes on with the handshake as far as the socket allows. True: it is over. An error says what
    /// to do.
    pub(crate) fn handshake(&mut self, socket: &TcpStream) -> Result<bool, String> {
        self.has_begun = true;
        loop {
            if self.write_records(socket).is_err() {
                return Err(self.last_words(socket).unwrap_or_else(|| self.config.explain_end()));
            }
            if !self.connection.is_handshaking() {
                return Ok(true);
            }
            match self.read_records(socket) {
                Ok(Some(0)) => return Err(self.config.explain_end()),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(false),
                Err(e) if is_broken(&e) => return Err(self.config.explain_end()),
                Err(e) => return Err(e.to_string()),
            }
        }
    }

    /// Reads bytes of the protocol: `Some(0)` at the end of the stream, `None` if none have come.
    ///
    /// An end without TLS's close_notify is an end like any other: the protocol's frames bear their
    /// length, so what was cut off cannot pass for an answer.
    pub(crate) fn read(&mut self, socket: &TcpStream, buf: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.connection.reader().read(buf) {
                Ok(0) => return Ok(Some(0)),
                Ok(n) => {
                    self.has_given = true;
                    return Ok(Some(n));
                }
                Err(e) if e.kind() == ErrorKind::UnexpectedEof => return self.end(),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            match self.read_records(socket) {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(None),
                Err(e) if is_broken(&e) && !self.has_given => return self.end(),
                Err(e) => return Err(e),
            }
        }
    }

    /// The end of the stream without a close_notify. Before the first answer it needs words: the
    /// server may have refused our certificate.
    fn end(&self) -> io::Result<Option<usize>> {
        if self.has_given {
            return Ok(Some(0));
        }
        Err(io::Error::other(self.config.explain_early_end()))
    }

    /// Whether bytes, or the end of the stream, have come that `read` has not given yet. The socket
    /// does not announce them.
    pub(crate) fn has_unread(&mut self) -> bool {
        match self.connection.reader().fill_buf() {
            Ok(_) => true, // no bytes are the end
            Err(e) => e.kind() != ErrorKind::WouldBlock,
        }
    }

    /// Writes as many of these bytes as the socket takes. At most a part that is short stays in
    /// `connection`; the caller keeps the others.
    pub(crate) fn write(&mut self, socket: &TcpStream, bytes: &mut Vec<u8>) -> io::Result<()> {
        loop {
            if let Err(e) = self.write_records(socket) {
                return Err(self.last_words(socket).map_or(e, io::Error::other));
            }
            if bytes.is_empty() || self.connection.wants_write() {
                return Ok(());
            }
            let taken = self.connection.writer().write(bytes)?;
            if taken == 0 {
                return Err(ErrorKind::WriteZero.into());
            }
            bytes.drain(..taken);
        }
    }

    /// Whether records wait until the socket is writable.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.connection.wants_write()
    }

    /// Announces the end of the stream, if the socket takes it.
    pub(crate) fn close(&mut self, socket: &TcpStream) {
        self.connection.send_close_notify();
        let _ = self.write_records(socket);
    }

    /// Reads the socket once: `Some(0)` at its end, `None` if nothing has come.
    fn read_records(&mut self, mut socket: &TcpStream) -> io::Result<Option<usize>> {
        let count = loop {
            match self.connection.read_tls(&mut socket) {
                Ok(count) => break count,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        };
        if let Err(e) = self.connection.process_new_packets() {
            let _ = self.write_records(socket); // an alert that says what is wrong
            return Err(io::Error::other(self.config.explain(&self.name, &e)));
        }
        Ok(Some(count))
    }

    /// What the server has said before it closed the connection, where a write has failed because
    /// of that: it may have refused our certificate.
    fn last_words(&mut self, socket: &TcpStream) -> Option<String> {
        loop {
            match self.read_records(socket) {
                Ok(Some(count)) if count > 0 => {
                    // Answers that came before count no more than those that could not come.
                    let _ = io::copy(&mut self.connection.reader(), &mut io::sink());
                }
                Ok(_) => return None,
                Err(e) => return (!is_broken(&e)).then(|| e.to_string()),
            }
        }
    }

    /// Writes the records that wait, as far as the socket takes them.
    fn write_records(&mut self, mut socket: &TcpStream) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

/// Whether the error is the socket's, and not one of TLS with words of its own.
fn is_broken(error: &io::Error) -> bool {
    error.kind() != ErrorKind::Other
}
