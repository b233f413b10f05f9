//! The loopback end with the real client and without a session: what the socket and the thread do
//! if a peer is stuck, foreign or broken. The suite's scenarios `client::calls` and
//! `client::faults` cover the rest.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use zookeeper::ZkError;

use super::*;
use zk_wire::code::op;
use zk_wire::record::{ConnectRequest, ReplyHeader, Writer};

const SOON: Duration = Duration::from_secs(10);

fn start(submit: Submit) -> (Arc<Loopback>, SocketAddr, Duration) {
    Loopback::start(7, ClientMachine::new(String::new(), 1 << 32), submit).unwrap()
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < SOON, "no {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The answers wait in memory, the event loop does not wait, and no answer is lost.
#[test]
fn answers_to_a_client_with_a_full_socket_wait_without_the_event_loop() {
    let (sender, submitted) = unbounded();
    let submit = Box::new(move |number, _, _| sender.send(number).unwrap_or(()));
    let (loopback, address, secret) = start(submit);
    let mut peer = TcpStream::connect(address).unwrap();
    let timeout_ms = secret.as_millis() as i32;
    let hello = ConnectRequest { last_zxid: 0, timeout_ms, session_id: 0, password: &[0; 16] };
    peer.write_all(&hello.frame()).unwrap();
    let numbers: Vec<u64> = (0..40)
        .map(|xid| {
            let get = Writer::request(xid, op::GET_DATA).buffer(b"/big").bool(false).frame();
            peer.write_all(&get).unwrap();
            submitted.recv_timeout(SOON).unwrap()
        })
        .collect();
    let body = vec![7; 1 << 20];
    for number in numbers {
        loopback.update(|machine| machine.answer(number, err::OK, 1, &body));
    }
    let mut reply = vec![0; 4 + 37];
    peer.read_exact(&mut reply).unwrap();
    for xid in 0..40 {
        let mut frame = vec![0; 4 + 16 + body.len()];
        peer.read_exact(&mut frame).unwrap();
        assert_eq!(ReplyHeader::read(&frame[4..]).unwrap().0.xid, xid);
    }
    peer.write_all(&Writer::request(0, op::CLOSE).frame()).unwrap();
    peer.read_exact(&mut [0; 20]).unwrap();
    drop(peer);
    until("end of the thread", || Arc::strong_count(&loopback) == 1);
}

/// A request that comes while the crate's io thread registers the channel of requests can be
/// missed, and its call blocks for ever. The connect request shows that the io thread has
/// registered it.
#[test]
fn the_application_gets_its_client_only_when_the_connect_request_has_come() {
    let (loopback, address, secret) = start(Box::new(|_, _, _| ()));
    let (sender, admitted) = unbounded();
    let waits = loopback.clone();
    let waiter = std::thread::spawn(move || sender.send(waits.is_admitted()).unwrap());
    let mut peer = TcpStream::connect(address).unwrap();
    assert!(admitted.recv_timeout(Duration::from_millis(50)).is_err());
    let timeout_ms = secret.as_millis() as i32;
    let hello = ConnectRequest { last_zxid: 0, timeout_ms, session_id: 0, password: &[0; 16] };
    peer.write_all(&hello.frame()).unwrap();
    assert_eq!(admitted.recv_timeout(SOON), Ok(true));
    waiter.join().unwrap();
    peer.write_all(&Writer::request(0, op::CLOSE).frame()).unwrap();
    peer.read_exact(&mut [0; 4 + 37 + 4 + 16]).unwrap();
    drop(peer);
    until("end of the thread", || Arc::strong_count(&loopback) == 1);

    let (given_up, ..) = start(Box::new(|_, _, _| ()));
    given_up.give_up("on purpose");
    assert!(!given_up.is_admitted());
}

#[test]
fn strangers_are_turned_away_and_the_port_is_closed_once_the_client_is_in() {
    let (loopback, address, secret) = start(Box::new(|_, _, _| ()));
    loopback.update(|machine| machine.ended(err::SESSION_EXPIRED));
    let mut stranger = TcpStream::connect(address).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let client = ZooKeeper::connect(&address.to_string(), secret, no_watcher).unwrap();
    assert_eq!(client.exists("/", false).unwrap_err(), ZkError::SessionExpired);
    assert_eq!(stranger.read(&mut [0; 8]).unwrap_or(0), 0);
    assert!(TcpStream::connect(address).is_err());
    drop(client);
    until("end of the thread", || Arc::strong_count(&loopback) == 1);
}

/// If the loopback connection breaks, the client's threads must end: otherwise they dial at full
/// speed.
#[test]
fn a_client_whose_connection_breaks_is_ended() {
    let (loopback, address, secret) = start(Box::new(|_, _, _| panic!("on purpose")));
    let client = ZooKeeper::connect(&address.to_string(), secret, no_watcher).unwrap();
    let (sender, states) = unbounded();
    client.add_listener(move |state| sender.send(state).unwrap_or(()));
    assert_eq!(client.exists("/", false).unwrap_err(), ZkError::ConnectionLoss);
    let start = Instant::now();
    while states.recv_timeout(SOON).unwrap() != zookeeper::ZkState::Closed {
        assert!(start.elapsed() < SOON);
    }
    drop(client);
    until("end of the thread", || Arc::strong_count(&loopback) == 1);
}

/// The client sends a wrong secret, so the loopback end closes each of its connections.
#[test]
fn a_client_that_is_never_admitted_is_an_error_in_time_and_is_ended() {
    let (loopback, address, secret) = start(Box::new(|_, _, _| ()));
    let wrong = secret.checked_sub(Duration::from_millis(1)).unwrap();
    let client = ZooKeeper::connect(&address.to_string(), wrong, no_watcher).unwrap();
    let (sender, states) = unbounded();
    client.add_listener(move |state| sender.send(state).unwrap_or(()));
    assert!(!loopback.is_admitted());
    assert_eq!(loopback.give_up("why").to_string(), "the client did not start: why");
    let start = Instant::now();
    while states.recv_timeout(SOON).unwrap() != zookeeper::ZkState::Closed {
        assert!(start.elapsed() < SOON);
    }
    drop(client);
    until("end of the thread", || Arc::strong_count(&loopback) == 1);
    assert!(TcpStream::connect(address).is_err(), "the port is closed");
}
