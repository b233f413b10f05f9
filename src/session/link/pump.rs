//! The link's sockets and its loop: moves bytes, dials, keeps time. It decides nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use mio::event::Source;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use super::dial::{Dialer, Resolved, Step, Target, resolve};
use super::machine::Machine;
use super::{Command, Link, Report};
use crate::clock::BootTime;
use crate::error::LossReason;
use crate::logging::contained;
use crate::session::connect_string::Host;
use crate::session::shared::Shared;

pub(super) const WAKER: Token = Token(0);
const CRATE: Token = Token(1);
const SERVER: Token = Token(2);

/// How long the crate may take to close its socket once its session is over.
const LINGER: Duration = Duration::from_secs(2);

pub(super) struct Pump {
    pub(super) poll: Poll,
    pub(super) machine: Machine,
    pub(super) dialer: Dialer,
    pub(super) shared: Arc<Shared>,
    pub(super) commands: Receiver<Command>,
    pub(super) handle: Link,
    pub(super) report: Report,
}

struct Conn {
    sock: TcpStream,
    out: Vec<u8>,
    written: usize,
}

struct Server {
    conn: Conn,
    host: String,
    /// Since when it is being connected, or was connected.
    since: BootTime,
    is_connected: bool,
    /// The number of the connection before: it grows when this one carries the session.
    attach_before: u64,
}

impl Conn {
    fn new(mut sock: TcpStream, poll: &Poll, token: Token) -> io::Result<Self> {
        let _ = sock.set_nodelay(true); // it only costs latency where it cannot be had
        sock.register(poll.registry(), token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Conn { sock, out: Vec::new(), written: 0 })
    }

    fn write(&mut self, bytes: &mut Vec<u8>) -> io::Result<()> {
        self.out.append(bytes);
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.sock.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => self.written += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(())
    }

    /// Reads all there is; `false` at the end of the stream. `ends`: the poll said that the end, or an error, comes after it.
    fn read(&mut self, buf: &mut [u8], ends: bool, mut take: impl FnMut(&[u8])) -> io::Result<bool> {
        loop {
            match self.sock.read(buf) {
                Ok(0) => return Ok(false),
                Ok(n) => {
                    take(&buf[..n]);
                    // Epoll and kqueue announce what comes after a short read anew: no need to ask. But an end that
                    // came along with the last bytes was announced with them, and never again.
                    if cfg!(unix) && !ends && n < buf.len() {
                        return Ok(true);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(true),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Pump {
    /// Runs until the crate is gone and the session is over.
    pub(super) fn run(&mut self, client: TcpStream, first: &[u8]) -> io::Result<()> {
        let mut client = Conn::new(client, &self.poll, CRATE)?;
        let mut client_open = true;
        let mut server: Option<Server> = None;
        let mut events = Events::with_capacity(16);
        let mut buf = vec![0; 64 << 10];
        let mut linger_until = None;
        let _ = self.machine.crate_bytes(first, BootTime::now());
        loop {
            let now = BootTime::now();
            while let Ok(command) = self.commands.try_recv() {
                self.command(command, now);
            }
            let mut next = self.machine.tick(now);
            if client_open && client.write(&mut self.machine.to_crate).is_err() {
                client_open = false;
            }
            self.machine.to_crate.clear(); // nothing is left of it but for a crate that is gone
            if !client_open {
                self.machine.end(LossReason::Internal, now);
                if self.machine.is_over() {
                    self.pass_events();
                    if self.machine.crate_is_closed() {
                        return Ok(());
                    }
                    // It still lives, and would dial us at full speed: the tombstone ends it.
                    return Err(io::Error::new(
                        ErrorKind::ConnectionAborted,
                        "the client let go of its link",
                    ));
                }
            }
            self.serve(&mut server, now, &mut next);
            self.pass_events();
            if self.machine.crate_is_closed() {
                let until = *linger_until.get_or_insert(now + LINGER);
                if now >= until {
                    return Ok(());
                }
                next = Some(next.map_or(until, |n| n.min(until)));
            }

            let timeout = next.map(|n| n.since(BootTime::now()));
            match self.poll.poll(&mut events, timeout) {
                Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
                _ => {}
            }
            let now = BootTime::now();
            // Commands before requests: the release of a lock goes out before what follows it.
            while let Ok(command) = self.commands.try_recv() {
                self.command(command, now);
            }
            for event in &events {
                let ends = event.is_read_closed() || event.is_error();
                match event.token() {
                    CRATE if client_open => {
                        let machine = &mut self.machine;
                        let mut sane = true;
                        let open = client
                            .read(&mut buf, ends, |bytes| sane &= machine.crate_bytes(bytes, now).is_ok());
                        client_open = sane && open.unwrap_or(false);
                    }
                    SERVER => self.server_event(&mut server, &mut buf, ends, now),
                    _ => {}
                }
            }
        }
    }

    fn command(&mut self, command: Command, now: BootTime) {
        match command {
            Command::Chore(chore) => self.machine.chore(chore, now),
            Command::Prove(dir, done) => self.machine.prove(dir, done, now),
            Command::Wake => self.machine.wake(now),
            Command::Close(done) => {
                self.machine.close(done, now);
                self.dialer.hurry(now);
            }
            Command::Resolved(found) => {
                for (host, result) in &found {
                    if let Err(reason) = result {
                        self.shared.failed(host, reason.clone());
                    }
                }
                self.dialer.resolved(found);
            }
        }
    }

    fn server_event(&mut self, server: &mut Option<Server>, buf: &mut [u8], ends: bool, now: BootTime) {
        let Some(s) = server else { return };
        if !s.is_connected {
            match (s.conn.sock.take_error(), s.conn.sock.peer_addr()) {
                (Ok(None), Ok(_)) => {
                    s.is_connected = true;
                    s.since = now;
                    self.machine.connected(now);
                }
                (Ok(None), Err(_)) => return, // not yet
                (Ok(Some(e)) | Err(e), _) => {
                    self.shared.failed(&s.host, e.to_string());
                    *server = None;
                    return;
                }
            }
        }
        let machine = &mut self.machine;
        // The clock is read after the bytes: an answer must never be taken for older than it is.
        let take = |bytes: &[u8]| machine.server_bytes(bytes, BootTime::now());
        let end = match s.conn.read(buf, ends, take) {
            Ok(true) => return,
            Ok(false) => "closed the connection".to_owned(),
            Err(e) => e.to_string(),
        };
        self.server_lost(server, &end, now);
    }

    /// The server's side failed by itself.
    fn server_lost(&mut self, server: &mut Option<Server>, reason: &str, now: BootTime) {
        // What the machine gave up while reading has its own reason.
        if self.machine.cut.is_none() {
            self.machine.server_gone(reason, now);
            self.drop_server(server, reason, now);
        }
    }

    fn drop_server(&mut self, server: &mut Option<Server>, reason: &str, now: BootTime) {
        if let Some(s) = server.take() {
            let carried_the_session = self.shared.attach() > s.attach_before;
            if carried_the_session && !self.machine.is_over() {
                info!("{}: connection lost: {reason}", s.host);
            } else {
                debug!("{}: {reason}", s.host);
            }
            self.shared.failed(&s.host, reason.to_owned());
            if carried_the_session {
                self.dialer.lost(s.host, now.since(s.since), now, self.machine.redial_cap());
            }
            if self.machine.is_ending() {
                self.dialer.hurry(now);
            }
        }
    }

    /// Cuts, dials and writes as the machine wants.
    fn serve(&mut self, server: &mut Option<Server>, now: BootTime, next: &mut Option<BootTime>) {
        let attempt = self.machine.attempt();
        let mut at_the_latest = |t: BootTime| *next = Some(next.map_or(t, |n| n.min(t)));
        if let Some(reason) = self.machine.cut.take() {
            self.drop_server(server, &reason, now);
        }
        if let Some(s) = server {
            if s.is_connected {
                if let Err(e) = s.conn.write(&mut self.machine.to_server) {
                    self.server_lost(server, &e.to_string(), now);
                    at_the_latest(now);
                }
            } else if now >= s.since + attempt {
                let reason = format!("no connection within {} ms", attempt.as_millis());
                self.shared.failed(&s.host, reason);
                *server = None;
            } else {
                at_the_latest(s.since + attempt);
            }
        }
        while server.is_none() && self.machine.wants_connection() {
            match self.dialer.next(now, self.machine.redial_cap()) {
                Step::Connect(target) => *server = self.dial(target, now),
                Step::Resolve(names) => self.resolve(names),
                Step::Wait(until) => {
                    if let Some(until) = until {
                        at_the_latest(until);
                    }
                    return;
                }
            }
            if server.is_some() {
                at_the_latest(now + attempt);
            }
        }
    }

    fn dial(&self, target: Target, now: BootTime) -> Option<Server> {
        debug!("{}: dialling {}", target.host, target.addr);
        let conn = TcpStream::connect(target.addr).and_then(|s| Conn::new(s, &self.poll, SERVER));
        match conn {
            Ok(conn) => Some(Server {
                conn,
                host: target.host,
                since: now,
                is_connected: false,
                attach_before: self.shared.attach(),
            }),
            Err(e) => {
                self.shared.failed(&target.host, e.to_string());
                None
            }
        }
    }

    fn resolve(&mut self, names: Vec<Host>) {
        let handle = self.handle.clone();
        let failed = |why: &str| names.iter().map(|h| (h.to_string(), Err(why.to_owned()))).collect();
        let (no_thread, panicked): (Resolved, Resolved) =
            (failed("no thread to resolve it on"), failed("its resolution panicked"));
        // An answer comes in any case: without one no name would be looked up again.
        let spawned = std::thread::Builder::new().name("zkm-resolve".into()).spawn(move || {
            handle.send(Command::Resolved(contained(|| resolve(names)).unwrap_or(panicked)));
        });
        if spawned.is_err() {
            self.command(Command::Resolved(no_thread), BootTime::now());
        }
    }

    fn pass_events(&mut self) {
        for event in self.machine.events.drain(..) {
            (self.report)(event);
        }
    }
}
