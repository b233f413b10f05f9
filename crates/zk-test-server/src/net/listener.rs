//! The server's port. It is bound once and stays bound, also while the server refuses connections.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

pub(super) const TOKEN: Token = Token(0);

/// The pause before the next try if the system has no descriptor left, or does not give the port
/// back yet.
const PAUSE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    socket: Option<TcpListener>,
    is_refusing: bool,
    /// Whether there may be connections to accept.
    is_ready: bool,
    /// When to try again after a failure.
    retry: Option<Instant>,
    /// Whether the failure of `accept` was logged as a warning.
    is_short: bool,
}

impl Listener {
    pub(super) fn bind(wanted: SocketAddr, registry: &Registry) -> io::Result<Listener> {
        let socket = bind(wanted)?;
        let address = socket.local_addr()?;
        let mut listener = Listener {
            address,
            socket: None,
            is_refusing: false,
            is_ready: false,
            retry: None,
            is_short: false,
        };
        listener.register(socket, registry)?;
        Ok(listener)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn is_refusing(&self) -> bool {
        self.is_refusing
    }

    fn register(&mut self, mut socket: TcpListener, registry: &Registry) -> io::Result<()> {
        registry.register(&mut socket, TOKEN, Interest::READABLE)?;
        self.socket = Some(socket);
        self.is_ready = true;
        Ok(())
    }

    /// The poll has reported an event.
    pub(super) fn ready(&mut self) {
        self.is_ready = true;
    }

    /// When to call `accept` even if the poll reports nothing.
    pub(super) fn retry(&self) -> Option<Instant> {
        if self.is_refusing {
            return None;
        }
        self.retry
    }

    /// Whether `accept` may return a connection now.
    pub(super) fn has_more(&self) -> bool {
        self.is_ready && !self.is_refusing && self.retry.is_none()
    }

    /// The next connection.
    pub(super) fn accept(
        &mut self,
        registry: &Registry,
        now: Instant,
    ) -> Option<(TcpStream, SocketAddr)> {
        if self.is_refusing || self.retry.is_some_and(|at| now < at) {
            return None;
        }
        if self.retry.take().is_some() {
            self.is_ready = true;
            if self.socket.is_none() {
                self.open(registry);
            }
        }
        while self.is_ready {
            match self.socket.as_ref()?.accept() {
                Ok(connection) => {
                    self.is_short = false;
                    return Some(connection);
                }
                Err(e) => match e.kind() {
                    ErrorKind::WouldBlock => self.is_ready = false,
                    // The connection was closed before it was accepted.
                    ErrorKind::Interrupted
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::ConnectionReset => {}
                    _ => {
                        if !std::mem::replace(&mut self.is_short, true) {
                            warn!(
                                "test server at {}: cannot accept a connection: {e}",
                                self.address
                            );
                        }
                        self.pause();
                        return None;
                    }
                },
            }
        }
        None
    }

    fn pause(&mut self) {
        self.retry = Some(Instant::now() + PAUSE);
    }

    /// Refuses connections, also those not accepted yet, or accepts them again.
    pub(super) fn refuse(&mut self, refuse: bool, registry: &Registry) {
        if self.is_refusing == refuse {
            return;
        }
        self.is_refusing = refuse;
        self.retry = None;
        if refuse {
            if self.socket.as_ref().is_some_and(|socket| !close(socket)) {
                self.socket = None;
            }
        } else {
            self.is_ready = true;
            self.open(registry);
        }
    }

    fn open(&mut self, registry: &Registry) {
        if self.socket.as_ref().is_some_and(open) {
            return;
        }
        self.socket = None;
        if let Err(e) = bind(self.address).and_then(|socket| self.register(socket, registry)) {
            error!("test server: cannot take {} back: {e}", self.address);
            self.pause();
        }
    }
}

/// On Linux a listener that is shut down stops listening and drops the connections that it has not
/// accepted. It can listen again later, and its port stays bound.
#[cfg(target_os = "linux")]
mod system {
    use super::*;
    use rustix::net::{self, AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};

    /// A port stays bound while the socket does not listen only if it was bound by its number. So
    /// for "any port" a first socket finds a free one, and keeps it until the listener has it.
    pub(super) fn bind(wanted: SocketAddr) -> io::Result<TcpListener> {
        if wanted.port() != 0 {
            return TcpListener::bind(wanted);
        }
        let family = if wanted.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let finder = net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&finder, true)?;
        net::bind(&finder, &wanted)?;
        TcpListener::bind(SocketAddr::try_from(net::getsockname(&finder)?)?)
    }

    /// Without SO_REUSEADDR no other process can bind the port meanwhile.
    pub(super) fn close(socket: &TcpListener) -> bool {
        net::shutdown(socket, Shutdown::Read).is_ok()
            && sockopt::set_socket_reuseaddr(socket, false).is_ok()
    }

    pub(super) fn open(socket: &TcpListener) -> bool {
        sockopt::set_socket_reuseaddr(socket, true).is_ok() && net::listen(socket, 1024).is_ok()
    }
}

/// On other systems the listener gives up its port and binds it again.
#[cfg(not(target_os = "linux"))]
mod system {
    use super::*;

    pub(super) fn bind(wanted: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind(wanted)
    }

    pub(super) fn close(_: &TcpListener) -> bool {
        false
    }

    pub(super) fn open(_: &TcpListener) -> bool {
        false
    }
}

use system::{bind, close, open};

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpStream as Client};

    #[test]
    fn the_port_stays_its_own_while_it_refuses() {
        let poll = mio::Poll::new().unwrap();
        let mut listener =
            Listener::bind((Ipv4Addr::LOCALHOST, 0).into(), poll.registry()).unwrap();
        let at = listener.address();
        for _ in 0..3 {
            let waiting = Client::connect(at).unwrap();
            listener.refuse(true, poll.registry());
            assert_eq!(Client::connect(at).unwrap_err().kind(), ErrorKind::ConnectionRefused);
            assert!(listener.accept(poll.registry(), Instant::now()).is_none());
            if cfg!(target_os = "linux") {
                assert!(TcpListener::bind(at).is_err(), "no other socket can bind the port");
            }
            drop(waiting);
            listener.refuse(false, poll.registry());
            let client = Client::connect(at).unwrap();
            listener.ready();
            let (_, peer) = listener.accept(poll.registry(), Instant::now()).unwrap();
            assert_eq!(peer, client.local_addr().unwrap());
        }
    }
}
