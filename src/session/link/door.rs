//! Lets one peer in: the client instance that carries the secret it was started with.
//!
//! The listener is on loopback, where every process of the host can knock. Wrong peers are closed,
//! and silent ones do not delay the right one.

use std::io::{self, ErrorKind, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::session::wire::frame::Frames;
use crate::session::wire::record::ConnectRequest;

const MAX_CANDIDATES: usize = 64;

/// How often to see whether anybody is still to come.
const LOOK: Duration = Duration::from_millis(100);

/// The right peer, and the bytes it has sent so far.
pub(super) fn admit(
    listener: &mut TcpListener,
    secret: i32,
    patience: Duration,
    given_up: &AtomicBool,
) -> io::Result<(TcpStream, Vec<u8>)> {
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(64));
    let until = Instant::now() + patience;
    let mut candidates: Vec<(TcpStream, Vec<u8>)> = Vec::new();
    poll.registry().register(listener, Token(0), Interest::READABLE)?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || given_up.load(Ordering::Acquire) {
            return Err(io::Error::new(ErrorKind::TimedOut, "the client did not connect to its link"));
        }
        match poll.poll(&mut events, Some(left.min(LOOK))) {
            Err(e) if e.kind() != ErrorKind::Interrupted => return Err(e),
            _ => {}
        }
        loop {
            match listener.accept() {
                Ok((mut peer, _)) => {
                    poll.registry().register(&mut peer, Token(1), Interest::READABLE)?;
                    candidates.push((peer, Vec::new()));
                    if candidates.len() > MAX_CANDIDATES {
                        candidates.remove(0);
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                // A peer that left before it was let in.
                Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(e) => return Err(e),
            }
        }
        let mut i = 0;
        while let Some((peer, bytes)) = candidates.get_mut(i) {
            match knock(peer, bytes, secret) {
                Some(true) => {
                    let (mut peer, bytes) = candidates.swap_remove(i);
                    poll.registry().deregister(&mut peer)?;
                    poll.registry().deregister(listener)?;
                    return Ok((peer, bytes));
                }
                Some(false) => drop(candidates.swap_remove(i)),
                None => i += 1,
            }
        }
    }
}

/// Whether this peer is the one; `None` while it has not said enough.
fn knock(peer: &mut TcpStream, bytes: &mut Vec<u8>, secret: i32) -> Option<bool> {
    let mut buf = [0; 256];
    loop {
        match peer.read(&mut buf) {
            Ok(0) => return Some(false),
            Ok(n) => bytes.extend_from_slice(&buf[..n]),
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => return Some(false),
        }
        if bytes.len() > 4096 {
            return Some(false);
        }
    }
    let mut frames = Frames::default();
    frames.push(bytes);
    match frames.next() {
        Ok(None) => None,
        Ok(Some(frame)) => Some(ConnectRequest::timeout_of(frame) == Ok(secret)),
        Err(_) => Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpStream as Peer;

    fn request(timeout_ms: i32) -> Vec<u8> {
        ConnectRequest { last_zxid: 0, timeout_ms, session_id: 0, password: &[0; 16] }.frame()
    }

    #[test]
    fn only_the_bearer_of_the_secret_is_let_in() {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr().unwrap();
        let _silent = Peer::connect(addr).unwrap();
        let mut wrong = Peer::connect(addr).unwrap();
        wrong.write_all(&request(41)).unwrap();
        let mut rude = Peer::connect(addr).unwrap();
        rude.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut right = Peer::connect(addr).unwrap();
        right.write_all(&request(42)).unwrap();
        let (peer, bytes) =
            admit(&mut listener, 42, Duration::from_secs(5), &AtomicBool::new(false)).unwrap();
        assert_eq!(peer.peer_addr().unwrap(), right.local_addr().unwrap());
        assert_eq!(bytes, request(42));
        wrong.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(wrong.read(&mut [0; 8]).unwrap_or(0), 0);
    }

    #[test]
    fn nobody_comes_and_it_ends_in_time() {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let err = admit(&mut listener, 42, Duration::from_millis(20), &AtomicBool::new(false)).unwrap_err();
        assert_eq!(err.kind(), ErrorKind::TimedOut);
    }
}
