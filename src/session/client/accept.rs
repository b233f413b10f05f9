//! Admits one peer: the client that sends the secret with which it was started.
//!
//! The listener is on loopback, where every process of the host can connect. Other peers are
//! closed, and silent peers do not delay the right one.

use std::io::{self, ErrorKind};
use std::ops::Range;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use crate::session::connection::read_some;

/// If there are more peers than this, the oldest is closed.
const MAX_CANDIDATES: usize = 64;

/// The place of the session timeout in the connect request: after the frame's length, the version
/// and the zxid.
const TIMEOUT_FIELD: Range<usize> = 16..20;

pub(super) struct Accept {
    listener: TcpListener,
    secret: i32,
    candidates: Vec<(TcpStream, Vec<u8>)>,
}

impl Accept {
    pub(super) fn new(listener: TcpListener, secret: i32) -> Self {
        Accept { listener, secret, candidates: Vec::new() }
    }

    pub(super) fn listener(&mut self) -> &mut TcpListener {
        &mut self.listener
    }

    /// Gives the right client and the bytes that it has sent so far, once it is here. New peers are
    /// registered under `token`.
    pub(super) fn admit(
        &mut self,
        registry: &Registry,
        token: Token,
    ) -> io::Result<Option<(TcpStream, Vec<u8>)>> {
        loop {
            match self.listener.accept() {
                Ok((mut peer, _)) => {
                    registry.register(&mut peer, token, Interest::READABLE)?;
                    self.candidates.push((peer, Vec::new()));
                    if self.candidates.len() > MAX_CANDIDATES {
                        self.candidates.remove(0);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // A peer left before it was accepted.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::ConnectionAborted | ErrorKind::Interrupted
                    ) => {}
                Err(e) => return Err(e),
            }
        }
        let mut i = 0;
        while let Some((peer, bytes)) = self.candidates.get_mut(i) {
            match is_right(peer, bytes, self.secret) {
                Some(true) => {
                    let (mut peer, bytes) = self.candidates.swap_remove(i);
                    registry.deregister(&mut peer)?;
                    return Ok(Some((peer, bytes)));
                }
                Some(false) => drop(self.candidates.swap_remove(i)),
                None => i += 1,
            }
        }
        Ok(None)
    }
}

/// Whether this peer is the right client; `None` while it has not sent enough bytes. The right
/// client may already have sent requests after its connect request.
fn is_right(peer: &mut TcpStream, bytes: &mut Vec<u8>, secret: i32) -> Option<bool> {
    let mut buf = [0; 64];
    loop {
        if let Some(timeout) = bytes.get(TIMEOUT_FIELD) {
            return Some(timeout == secret.to_be_bytes());
        }
        match read_some(peer, &mut buf) {
            Ok(Some(0)) | Err(_) => return Some(false),
            Ok(Some(n)) => bytes.extend_from_slice(&buf[..n]),
            Ok(None) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};
    use std::io::{Read, Write};
    use std::net::TcpStream as Peer;
    use std::time::Duration;
    use zk_wire::record::ConnectRequest;

    fn request(timeout_ms: i32) -> Vec<u8> {
        ConnectRequest { last_zxid: 0, timeout_ms, session_id: 0, password: &[0; 16] }.frame()
    }

    fn admitted(accept: &mut Accept) -> (TcpStream, Vec<u8>) {
        let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(8));
        poll.registry().register(accept.listener(), Token(0), Interest::READABLE).unwrap();
        loop {
            if let Some(client) = accept.admit(poll.registry(), Token(1)).unwrap() {
                return client;
            }
            poll.poll(&mut events, Some(Duration::from_secs(5))).unwrap();
            assert!(!events.is_empty(), "no client came");
        }
    }

    #[test]
    fn only_the_client_with_the_secret_is_admitted() {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        let _silent = Peer::connect(addr).unwrap();
        let mut wrong = Peer::connect(addr).unwrap();
        wrong.write_all(&request(41)).unwrap();
        let mut rude = Peer::connect(addr).unwrap();
        rude.write_all(&b"GET / HTTP/1.1\r\n\r\n".repeat(9)).unwrap();
        let mut right = Peer::connect(addr).unwrap();
        right.write_all(&request(42)).unwrap();
        let (peer, bytes) = admitted(&mut Accept::new(listener, 42));
        assert_eq!(peer.peer_addr().unwrap(), right.local_addr().unwrap());
        assert_eq!(bytes, request(42));
        wrong.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(wrong.read(&mut [0; 8]).unwrap_or(0), 0);
    }

    /// The client may send its first requests right after its connect request, however long they
    /// are.
    #[test]
    fn the_client_is_admitted_with_its_first_requests() {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut right = Peer::connect(listener.local_addr().unwrap()).unwrap();
        let sent = [request(42), vec![7; 50_000]].concat();
        right.write_all(&sent).unwrap();
        let (mut peer, mut bytes) = admitted(&mut Accept::new(listener, 42));
        drop(right);
        let mut buf = [0; 4096];
        loop {
            match peer.read(&mut buf) {
                Ok(0) => break,
                Ok(n) => bytes.extend_from_slice(&buf[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(e) => panic!("{e}"),
            }
        }
        assert_eq!(bytes, sent);
    }
}
