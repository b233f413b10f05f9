//! The connections that are being made: from the first packet until the socket is connected and the
//! TLS handshake, if there is one, is over. Several may be made at a time. The machine gets one of
//! them, and the others wait, or are dropped.

use std::io;
use std::sync::Arc;

use super::TlsStream;
use super::addresses::Target;
use crate::clock::BootTime;
use crate::tls::TlsConfig;
use crate::world::{Interest, Poll, TcpStream, Token, socket};

/// The events for which a socket is registered until it is connected.
const CONNECTING: Interest = Interest::READABLE.add(Interest::WRITABLE);

/// The tokens of sockets begin here.
const FIRST_TOKEN: usize = 1;

pub(super) struct Attempts {
    tls: Option<TlsConfig>,
    all: Vec<Attempt>,
    next_token: usize,
}

pub(super) struct Attempt {
    pub(super) token: Token,
    pub(super) interest: Interest,
    pub(super) target: Target,
    pub(super) socket: Arc<TcpStream>,
    pub(super) tls: Option<Box<TlsStream>>,
    pub(super) since: BootTime,
    until: BootTime,
    is_ready: bool,
}

impl Attempts {
    pub(super) fn new(tls: Option<TlsConfig>) -> Self {
        Attempts { tls, all: Vec::new(), next_token: FIRST_TOKEN }
    }

    /// Begins to make a connection, which may last until `until`.
    pub(super) fn begin(
        &mut self,
        poll: &Poll,
        target: Target,
        until: BootTime,
    ) -> Result<(), String> {
        // The files are read for each connection. They may have been replaced.
        let tls = self.tls.as_ref().map(|tls| TlsStream::new(tls, &target.host)).transpose()?;
        let token = Token(self.next_token);
        self.next_token = self.next_token.wrapping_add(1).max(FIRST_TOKEN);
        #[cfg_attr(unix, allow(clippy::unnecessary_mut_passed))]
        let register = |mut socket: TcpStream| {
            let _ = socket.set_nodelay(true); // without it there is only more latency
            socket::register(&mut socket, poll.registry(), token, CONNECTING).map(|()| socket)
        };
        let socket = TcpStream::connect(target.addr).and_then(register);
        self.all.push(Attempt {
            token,
            interest: CONNECTING,
            target,
            socket: Arc::new(socket.map_err(|e| e.to_string())?),
            tls: tls.map(Box::new),
            since: BootTime::now(),
            until,
            is_ready: false,
        });
        Ok(())
    }

    /// Something has happened at the socket with this token. `ends`: the server has closed the
    /// connection. `None`: it is no attempt's. An error says why the attempt has failed.
    pub(super) fn event(
        &mut self,
        token: Token,
        ends: bool,
    ) -> Option<Result<(), (Target, String)>> {
        let at = self.all.iter().position(|attempt| attempt.token == token)?;
        let result = self.all.get_mut(at)?.go_on(ends);
        Some(result.map_err(|reason| (self.all.remove(at).target, reason)))
    }

    /// Takes the oldest attempt that is ready.
    pub(super) fn take_ready(&mut self) -> Option<Attempt> {
        let at = self.all.iter().position(|attempt| attempt.is_ready)?;
        Some(self.all.remove(at))
    }

    /// Takes the attempts whose time is over, with what was missing.
    pub(super) fn take_late(&mut self, now: BootTime) -> Vec<(Target, String)> {
        let is_late = |attempt: &Attempt| !attempt.is_ready && attempt.until <= now;
        let all = std::mem::take(&mut self.all);
        let (late, others) = all.into_iter().partition(is_late);
        self.all = others;
        let late: Vec<Attempt> = late;
        late.into_iter()
            .map(|late| {
                let reason = late.why_late();
                (late.target, reason)
            })
            .collect()
    }

    /// When the time of the next attempt is over.
    pub(super) fn next_late(&self) -> Option<BootTime> {
        self.all.iter().filter(|attempt| !attempt.is_ready).map(|attempt| attempt.until).min()
    }

    /// Keeps the attempts at the targets of which this is true.
    pub(super) fn retain(&mut self, mut keeps: impl FnMut(&Target) -> bool) {
        self.all.retain(|attempt| keeps(&attempt.target));
    }

    /// The targets that were still silent when an attempt got through that began later, at `since`.
    pub(super) fn overtaken(&self, since: BootTime) -> Vec<Target> {
        let is_silent = |attempt: &&Attempt| !attempt.is_ready && attempt.since < since;
        self.all.iter().filter(is_silent).map(|attempt| attempt.target.clone()).collect()
    }

    pub(super) fn clear(&mut self) {
        self.all.clear();
    }
}

impl Attempt {
    /// Goes on as far as the socket allows. An error says why it has failed.
    fn go_on(&mut self, ends: bool) -> Result<(), String> {
        if self.is_ready {
            // It waits, and nothing is read from it.
            let end = "closed the connection before our connect request; does it allow this host more connections (maxClientCnxns)?";
            return if ends { Err(end.into()) } else { Ok(()) };
        }
        if !self.is_socket_connected().map_err(|e| e.to_string())? {
            return Ok(());
        }
        self.is_ready = match &mut self.tls {
            Some(tls) => tls.handshake(&self.socket)?,
            None => true,
        };
        Ok(())
    }

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

    /// What the server has not done in the time of the attempt.
    fn why_late(&self) -> String {
        let ms = self.until.since(self.since).as_millis();
        match &self.tls {
            Some(tls) if tls.has_begun() => {
                format!("accepted the connection, but did not end the TLS handshake within {ms} ms")
            }
            _ => format!("no connection within {ms} ms"),
        }
    }
}
