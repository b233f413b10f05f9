//! Admits one peer: the client that sends the secret with which it was started.
//!
//! The listener is on loopback, where every process of the host can connect. Other peers are
//! closed, and silent peers do not delay the right one. If there are more peers than are kept, the
//! oldest is closed, but first it is read once more: if it has sent the secret, it is admitted,
//! however many peers have connected behind it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::time::Instant;

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};

use zk_session::unstable::read_some;

/// If more peers than this have not sent enough bytes yet, the oldest is closed.
const MAX_CANDIDATES: usize = 64;

/// The place of the session timeout in the connect request: after the frame's length, the version
/// and the zxid.
const TIMEOUT_FIELD: Range<usize> = 16..20;

pub(super) struct Accept {
    listener: TcpListener,
    secret: i32,
    /// Peers that have not sent enough bytes to be judged, the oldest first.
    candidates: VecDeque<Peer>,
}

/// A peer, and the bytes that it has sent.
type Peer = (TcpStream, Vec<u8>);

impl Accept {
    pub(super) fn new(listener: TcpListener, secret: i32) -> Self {
        Accept { listener, secret, candidates: VecDeque::new() }
    }

    pub(super) fn listener(&mut self) -> &mut TcpListener {
        &mut self.listener
    }

    /// Gives the right client and the bytes that it has sent so far, once it is here. New peers are
    /// registered under `token`. If peers come without a pause, this goes on until `until`.
    pub(super) fn admit(
        &mut self,
        registry: &Registry,
        token: Token,
        until: Instant,
    ) -> io::Result<Option<Peer>> {
        let mut client = self.find(registry, token, until)?;
        if let Some((stream, _)) = &mut client {
            registry.deregister(stream)?;
        }
        Ok(client)
    }

    fn find(
        &mut self,
        registry: &Registry,
        token: Token,
        until: Instant,
    ) -> io::Result<Option<Peer>> {
        while Instant::now() < until {
            match self.listener.accept() {
                Ok((mut stream, _)) => {
                    registry.register(&mut stream, token, Interest::READABLE)?;
                    self.candidates.push_back((stream, Vec::new()));
                    if let Some(client) = self.make_room() {
                        return Ok(Some(client));
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
        // From the last to the first, because `look_at` removes candidates.
        Ok((0..self.candidates.len()).rev().find_map(|at| self.look_at(at)))
    }

    /// If there are too many candidates, closes the oldest. It may be the client, and its secret
    /// may have come since it was read last: then it is given.
    fn make_room(&mut self) -> Option<Peer> {
        if self.candidates.len() <= MAX_CANDIDATES {
            return None;
        }
        let client = self.look_at(0);
        if self.candidates.len() > MAX_CANDIDATES {
            self.candidates.pop_front();
        }
        client
    }

    /// Reads what this candidate has sent. If that is enough to judge it, it is a candidate no
    /// more, and is closed or, if it is the client, given.
    fn look_at(&mut self, at: usize) -> Option<Peer> {
        let (stream, bytes) = self.candidates.get_mut(at)?;
        let is_right = is_right(stream, bytes, self.secret)?;
        self.candidates.remove(at).filter(|_| is_right)
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
    use std::net::{SocketAddr, TcpStream as Client};
    use std::time::Duration;
    use zk_wire::record::ConnectRequest;

    fn request(timeout_ms: i32) -> Vec<u8> {
        ConnectRequest { last_zxid: 0, timeout_ms, session_id: 0, password: &[0; 16] }.frame()
    }

    fn listening() -> (Accept, SocketAddr, Poll) {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        let (mut accept, poll) = (Accept::new(listener, 42), Poll::new().unwrap());
        poll.registry().register(accept.listener(), Token(0), Interest::READABLE).unwrap();
        (accept, addr, poll)
    }

    fn silent(number: usize, addr: SocketAddr) -> Vec<Client> {
        (0..number).map(|_| Client::connect(addr).unwrap()).collect()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(5)
    }

    fn admitted(accept: &mut Accept, poll: &mut Poll) -> Peer {
        let mut events = Events::with_capacity(8);
        loop {
            if let Some(client) = accept.admit(poll.registry(), Token(1), soon()).unwrap() {
                return client;
            }
            poll.poll(&mut events, Some(Duration::from_secs(5))).unwrap();
            assert!(!events.is_empty(), "no client came");
        }
    }

    #[test]
    fn only_the_client_with_the_secret_is_admitted() {
        let (mut accept, addr, mut poll) = listening();
        let _silent = Client::connect(addr).unwrap();
        let mut wrong = Client::connect(addr).unwrap();
        wrong.write_all(&request(41)).unwrap();
        let mut rude = Client::connect(addr).unwrap();
        rude.write_all(&b"GET / HTTP/1.1\r\n\r\n".repeat(9)).unwrap();
        let mut right = Client::connect(addr).unwrap();
        right.write_all(&request(42)).unwrap();
        let (peer, bytes) = admitted(&mut accept, &mut poll);
        assert_eq!(peer.peer_addr().unwrap(), right.local_addr().unwrap());
        assert_eq!(bytes, request(42));
        wrong.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(wrong.read(&mut [0; 8]).unwrap_or(0), 0);
    }

    #[test]
    fn the_client_is_admitted_behind_as_many_silent_peers_as_are_kept() {
        let (mut accept, addr, mut poll) = listening();
        let _silent = silent(MAX_CANDIDATES, addr);
        let mut right = Client::connect(addr).unwrap();
        right.write_all(&request(42)).unwrap();
        let (peer, _) = admitted(&mut accept, &mut poll);
        assert_eq!(peer.peer_addr().unwrap(), right.local_addr().unwrap());
    }

    #[test]
    fn silent_peers_behind_the_client_do_not_push_it_out() {
        let (mut accept, addr, mut poll) = listening();
        let mut right = Client::connect(addr).unwrap();
        right.write_all(&request(42)).unwrap();
        let _silent = silent(MAX_CANDIDATES * 2, addr);
        let (peer, _) = admitted(&mut accept, &mut poll);
        assert_eq!(peer.peer_addr().unwrap(), right.local_addr().unwrap());
    }

    /// The peers come faster than the thread looks at those that are there.
    #[test]
    fn a_client_that_sends_its_secret_late_is_not_pushed_out_by_peers_behind_it() {
        let (mut accept, addr, mut poll) = listening();
        let mut right = Client::connect(addr).unwrap();
        let _some = silent(MAX_CANDIDATES / 2, addr);
        assert!(accept.admit(poll.registry(), Token(1), soon()).unwrap().is_none());
        right.write_all(&request(42)).unwrap();
        let _more = silent(MAX_CANDIDATES, addr);
        let (peer, _) = admitted(&mut accept, &mut poll);
        assert_eq!(peer.peer_addr().unwrap(), right.local_addr().unwrap());
    }

    /// The oldest are closed: a client connects and sends its secret without a pause.
    #[test]
    fn of_more_silent_peers_than_are_kept_the_oldest_are_closed() {
        let (mut accept, addr, mut poll) = listening();
        let mut all = silent(MAX_CANDIDATES + 2, addr);
        assert!(accept.admit(poll.registry(), Token(1), soon()).unwrap().is_none());
        for (number, peer) in all.iter_mut().enumerate() {
            peer.set_nonblocking(true).unwrap();
            let is_closed = peer.read(&mut [0; 8]).is_ok_and(|read| read == 0);
            assert_eq!(is_closed, number < 2, "{number}");
        }
        all[2].write_all(&request(42)).unwrap();
        let (peer, _) = admitted(&mut accept, &mut poll);
        assert_eq!(peer.peer_addr().unwrap(), all[2].local_addr().unwrap());
    }

    #[test]
    fn peers_that_come_without_a_pause_do_not_hold_up_the_end_of_the_time() {
        let (mut accept, addr, poll) = listening();
        let _silent = silent(3, addr);
        assert!(accept.admit(poll.registry(), Token(1), Instant::now()).unwrap().is_none());
        assert!(accept.candidates.is_empty());
    }

    /// The client may send its first requests right after its connect request, however long they
    /// are.
    #[test]
    fn the_client_is_admitted_with_its_first_requests() {
        let (mut accept, addr, mut poll) = listening();
        let mut right = Client::connect(addr).unwrap();
        let sent = [request(42), vec![7; 50_000]].concat();
        right.write_all(&sent).unwrap();
        let (mut peer, mut bytes) = admitted(&mut accept, &mut poll);
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
