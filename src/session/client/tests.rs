//! The loopback end with the real client, against the embedded server: a small session stands in for
//! the core. It answers, reconnects and ends as the core does.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, bounded, unbounded};
use zookeeper::{Acl, CreateMode, WatchedEventType, ZkError};

use super::*;
use crate::testing::TestServer;
use crate::wire::code::{op, xid};
use crate::wire::frame::Frames;
use crate::wire::record::{ConnectReply, ConnectRequest, ReplyHeader, Writer};

const SOON: Duration = Duration::from_secs(10);

/// One session at the server, as the core would have it.
struct Session {
    end: Arc<ClientEnd>,
    wire: Arc<Mutex<Wire>>,
    thread: Option<JoinHandle<()>>,
    /// Hears each time that a connection carries the session.
    resumed: Receiver<()>,
}

#[derive(Default)]
struct Wire {
    stream: Option<TcpStream>,
    flight: VecDeque<(i32, u64)>,
    xid: i32,
    is_over: bool,
    /// Requests that reached the session, in order.
    ops: Vec<i32>,
}

impl Session {
    fn start(server: &TestServer, chroot: &'static str) -> Session {
        let end = Arc::new(ClientEnd::new(1, chroot.to_owned()));
        let (wire, address) = (Arc::new(Mutex::new(Wire::default())), server.address());
        let (tell, resumed) = unbounded();
        let (mine, its) = (end.clone(), wire.clone());
        let thread = std::thread::spawn(move || {
            let (mut id, mut password) = (0, vec![0; 16]);
            while let Some((mut stream, reply)) = attach(address, id, &password) {
                if its.lock().is_over {
                    return;
                }
                if reply.timeout_ms == 0 {
                    break;
                }
                let is_new = id == 0;
                (id, password) = (reply.session_id, reply.password);
                its.lock().stream = stream.try_clone().ok();
                if !is_new {
                    mine.reconnected();
                }
                tell.send(()).unwrap();
                run(&mut stream, &its, &mine);
                let lost = {
                    let mut wire = its.lock();
                    wire.stream = None;
                    std::mem::take(&mut wire.flight)
                };
                for (_, number) in lost {
                    mine.answer(number, err::CONNECTION_LOSS, 0, &[]);
                }
            }
            its.lock().is_over = true;
            mine.ended(err::SESSION_EXPIRED);
        });
        let session = Session { end, wire, thread: Some(thread), resumed };
        session.resumed.recv_timeout(SOON).unwrap();
        session
    }

    fn client(&self) -> Arc<ZooKeeper> {
        self.try_client().unwrap()
    }

    fn try_client(&self) -> io::Result<Arc<ZooKeeper>> {
        let wire = self.wire.clone();
        self.end.client(Box::new(move |number, op, body| wire.lock().submit(number, op, &body)))
    }

    fn ops(&self) -> Vec<i32> {
        self.wire.lock().ops.clone()
    }

    /// Cuts the connection; gives back when the session is resumed.
    fn cut(&self, server: &TestServer) {
        server.cut_connections();
        self.resumed.recv_timeout(SOON).unwrap();
    }

    fn expire(&self, server: &TestServer) {
        assert!(server.expire_session(server.sessions()[0].id));
        until("the end of the session", || self.wire.lock().is_over);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let mut wire = self.wire.lock();
        wire.is_over = true;
        if let Some(stream) = wire.stream.take() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(wire);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Wire {
    fn submit(&mut self, number: u64, op: i32, body: &[u8]) -> Result<(), CallError> {
        self.ops.push(op);
        if self.is_over {
            return Err(CallError::Expired);
        }
        let Some(stream) = &mut self.stream else { return Err(CallError::ConnectionLoss) };
        self.xid += 1;
        let mut frame = Writer::request(self.xid, op).frame();
        frame.extend_from_slice(body);
        let length = (frame.len() - 4) as i32;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        let _ = stream.write_all(&frame);
        self.flight.push_back((self.xid, number));
        Ok(())
    }
}

fn attach(address: SocketAddr, id: i64, password: &[u8]) -> Option<(TcpStream, ConnectReply)> {
    let until = Instant::now() + SOON;
    while Instant::now() < until {
        let Ok(mut stream) = TcpStream::connect(address) else { continue };
        let hello = ConnectRequest { last_zxid: 0, timeout_ms: 30_000, session_id: id, password };
        stream.write_all(&hello.frame()).unwrap();
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            continue;
        }
        let mut frame = vec![0; i32::from_be_bytes(length) as usize];
        if stream.read_exact(&mut frame).is_ok() {
            return Some((stream, ConnectReply::read(&frame).unwrap()));
        }
    }
    None
}

fn run(stream: &mut TcpStream, wire: &Mutex<Wire>, end: &ClientEnd) {
    let (mut frames, mut buf) = (Frames::default(), [0; 4096]);
    loop {
        let Ok(n @ 1..) = stream.read(&mut buf) else { return };
        frames.push(&buf[..n]);
        while let Some(frame) = frames.next().unwrap() {
            let (header, body) = ReplyHeader::read(frame).unwrap();
            if header.xid == xid::EVENT {
                let (kind, path) = crate::session::connection::codec::watch_event(body).unwrap();
                end.event(kind, path);
                continue;
            }
            let (xid, number) = wire.lock().flight.pop_front().unwrap();
            assert_eq!(xid, header.xid);
            end.answer(number, header.err, header.zxid, body);
        }
    }
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < SOON, "no {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn make(client: &ZooKeeper, path: &str, mode: CreateMode) -> String {
    client.create(path, b"data".to_vec(), Acl::open_unsafe().clone(), mode).unwrap()
}

/// A watcher, and where its events come out.
fn watcher() -> (impl Fn(WatchedEvent) + Send + 'static, Receiver<(WatchedEventType, String)>) {
    let (tell, events) = unbounded();
    let watcher = move |event: WatchedEvent| {
        let _ = tell.send((event.event_type, event.path.unwrap()));
    };
    (watcher, events)
}

#[track_caller]
fn next(events: &Receiver<(WatchedEventType, String)>) -> (WatchedEventType, String) {
    events.recv_timeout(SOON).unwrap()
}

#[test]
fn the_client_works_below_the_chroot_and_closing_it_ends_nothing_else() {
    let server = TestServer::start().unwrap();
    let session = Session::start(&server, "/app");
    let client = session.client();
    assert!(Arc::ptr_eq(&client, &session.client()));
    make(&client, "/", CreateMode::Persistent);
    let (watch, events) = watcher();
    client.get_children_w("/", watch).unwrap();
    assert_eq!(make(&client, "/n-", CreateMode::EphemeralSequential), "/n-0000000000");
    assert_eq!(next(&events), (WatchedEventType::NodeChildrenChanged, "/".into()));
    let (acl, _) = client.get_acl("/n-0000000000").unwrap();
    assert_eq!(acl, *Acl::open_unsafe());
    client.close().unwrap();
    assert_eq!(client.exists("/", false).unwrap_err(), ZkError::ConnectionLoss);
    let next = session.client();
    assert!(!Arc::ptr_eq(&client, &next));
    assert!(next.exists("/n-0000000000", false).unwrap().is_some(), "the session lives");
    drop((client, next));
    assert!(session.client().exists("/n-0000000000", false).unwrap().is_some());
    assert!(!session.ops().contains(&op::CLOSE));
}

#[test]
fn what_a_shared_session_cannot_have_is_an_error_to_the_client() {
    let server = TestServer::start().unwrap();
    let session = Session::start(&server, "");
    let client = session.client();
    make(&client, "/n", CreateMode::Persistent);
    let mode = zookeeper::AddWatchMode::PersistentRecursive;
    assert_eq!(client.add_watch("/n", mode, |_| ()), Err(ZkError::Unimplemented));
    assert_eq!(client.remove_watches("/n", zookeeper::WatcherType::Any), Err(ZkError::Unimplemented));
    assert_eq!(client.add_auth("digest", b"me:pw".to_vec()), Err(ZkError::Unimplemented));
    for length in [1 << 20, 17 << 20] {
        assert_eq!(client.set_data("/n", vec![0; length], None).unwrap_err(), ZkError::BadArguments);
    }
    assert_eq!(client.get_data("/n", false).unwrap().0, b"data");
    assert_eq!(session.ops(), [op::CREATE, op::GET_DATA]);
}

#[test]
fn watches_survive_a_cut_and_what_was_missed_is_delivered() {
    let server = TestServer::start().unwrap();
    let (session, other) = (Session::start(&server, ""), Session::start(&server, ""));
    let (client, theirs) = (session.client(), other.client());
    for path in ["/data", "/gone", "/list", "/later", "/calm"] {
        make(&theirs, path, CreateMode::Persistent);
    }
    let watches: Vec<_> = (0..6).map(|_| watcher()).collect();
    let mut watches = watches.into_iter();
    let mut watch = || watches.next().unwrap();
    let (w, data) = watch();
    client.get_data_w("/data", w).unwrap();
    let (w, gone) = watch();
    client.exists_w("/gone", w).unwrap();
    let (w, list) = watch();
    client.get_children_w("/list", w).unwrap();
    let (w, made) = watch();
    client.exists_w("/made", w).unwrap();
    let (w, later) = watch();
    client.get_data_w("/later", w).unwrap();
    let (w, calm) = watch();
    client.get_data_w("/calm", w).unwrap();

    // While the session has no connection, the others go on.
    {
        let mut wire = session.wire.lock();
        let stream = wire.stream.take().unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
        theirs.set_data("/data", vec![1], None).unwrap();
        theirs.delete("/gone", None).unwrap();
        make(&theirs, "/list/child", CreateMode::Persistent);
        make(&theirs, "/made", CreateMode::Persistent);
    }
    session.resumed.recv_timeout(SOON).unwrap();
    assert_eq!(next(&data), (WatchedEventType::NodeDataChanged, "/data".into()));
    assert_eq!(next(&gone), (WatchedEventType::NodeDeleted, "/gone".into()));
    assert_eq!(next(&list), (WatchedEventType::NodeChildrenChanged, "/list".into()));
    assert_eq!(next(&made), (WatchedEventType::NodeCreated, "/made".into()));
    for _ in 0..3 {
        session.cut(&server);
        other.resumed.recv_timeout(SOON).unwrap();
    }
    until("connection", || theirs.set_data("/later", vec![2], None).is_ok());
    assert_eq!(next(&later), (WatchedEventType::NodeDataChanged, "/later".into()));
    until("connection", || client.exists("/", false).is_ok());
    for events in [data, gone, list, made, later, calm] {
        assert!(events.try_recv().is_err(), "each fires once, and the last not at all");
    }
}

#[test]
fn a_request_under_way_at_a_cut_is_a_connection_loss_and_the_next_one_works() {
    let server = TestServer::start().unwrap();
    let session = Session::start(&server, "");
    let client = session.client();
    let held = server.hold_requests(crate::testing::Op::GetData);
    let asks = client.clone();
    let asker = std::thread::spawn(move || asks.get_data("/", false).map(drop));
    assert!(held.wait(SOON));
    server.cut_connections();
    assert_eq!(asker.join().unwrap(), Err(ZkError::ConnectionLoss));
    drop(held);
    session.resumed.recv_timeout(SOON).unwrap();
    until("connection", || client.get_data("/", false).is_ok());
}

#[test]
fn an_expired_session_is_a_clean_error_until_the_client_is_dropped() {
    let server = TestServer::start().unwrap();
    let session = Session::start(&server, "");
    let client = session.client();
    make(&client, "/n", CreateMode::Ephemeral);
    session.expire(&server);
    for _ in 0..3 {
        assert_eq!(client.exists("/n", false).unwrap_err(), ZkError::SessionExpired);
    }
    assert_eq!(session.try_client().map(drop).unwrap_err().kind(), io::ErrorKind::NotConnected);
    let loopback = session.end.state.lock().running.as_ref().map(|r| Arc::downgrade(&r.loopback)).unwrap();
    drop((client, session));
    until("end of the thread", || loopback.strong_count() == 0);
}

/// A state listener of the application blocks the client's io thread: nothing but that client waits.
#[test]
fn a_client_that_is_stuck_holds_up_nobody() {
    let server = TestServer::start().unwrap();
    let (session, other) = (Session::start(&server, ""), Session::start(&server, ""));
    let (client, theirs) = (session.client(), other.client());
    client.create("/big", vec![7; 900_000], Acl::open_unsafe().clone(), CreateMode::Persistent).unwrap();
    // It is told at the close, before the caller of `close` is.
    let (release, gate) = bounded::<()>(0);
    client.add_listener(move |_| assert!(gate.recv().is_err()));
    let closes = client.clone();
    let closer = std::thread::spawn(move || closes.close());
    let loopback = session.end.state.lock().running.as_ref().map(|r| r.loopback.clone()).unwrap();
    until("close", || loopback.machine.lock().is_closed());
    // The event loop goes on, and a new client serves.
    let new = session.client();
    for _ in 0..20 {
        assert_eq!(new.get_data("/big", false).unwrap().0.len(), 900_000);
    }
    theirs.delete("/big", None).unwrap();
    drop(release);
    closer.join().unwrap().unwrap();
}

/// Its socket is full: the answers wait in memory, the event loop does not, and none is lost.
#[test]
fn answers_to_a_client_with_a_full_socket_wait_without_the_event_loop() {
    let (loopback, start) = Loopback::new(Machine::new(String::new(), 1 << 32)).unwrap();
    let (address, secret) = (start.address().unwrap(), start.secret());
    let (tell, asked) = unbounded();
    start.spawn(7, Box::new(move |number, _, _| tell.send(number).map_err(|_| CallError::Expired))).unwrap();
    let mut peer = TcpStream::connect(address).unwrap();
    let timeout_ms = secret.as_millis() as i32;
    let hello = ConnectRequest { last_zxid: 0, timeout_ms, session_id: 0, password: &[0; 16] };
    peer.write_all(&hello.frame()).unwrap();
    let numbers: Vec<u64> = (0..40)
        .map(|xid| {
            let get = Writer::request(xid, op::GET_DATA).buffer(b"/big").bool(false).frame();
            peer.write_all(&get).unwrap();
            asked.recv_timeout(SOON).unwrap()
        })
        .collect();
    let body = vec![7; 1 << 20];
    for number in numbers {
        loopback.tell(|machine| machine.answer(number, err::OK, 1, &body));
    }
    let mut heard = vec![0; 4 + 37];
    peer.read_exact(&mut heard).unwrap();
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

#[test]
fn strangers_are_turned_away_and_the_port_is_closed_once_the_client_is_in() {
    let (loopback, start) = Loopback::new(Machine::new(String::new(), 1 << 32)).unwrap();
    let (address, secret) = (start.address().unwrap(), start.secret());
    let mut stranger = TcpStream::connect(address).unwrap();
    start.spawn(7, Box::new(|_, _, _| Err(CallError::ConnectionLoss))).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let client = ZooKeeper::connect(&address.to_string(), secret, no_watcher).unwrap();
    assert_eq!(client.exists("/", false).unwrap_err(), ZkError::ConnectionLoss);
    assert_eq!(stranger.read(&mut [0; 8]).unwrap_or(0), 0);
    assert!(TcpStream::connect(address).is_err());
    drop(client);
    until("end of the thread", || Arc::strong_count(&loopback) == 1);
}

/// A broken loopback connection ends the client's threads: left alone they dial at full speed.
#[test]
fn a_client_whose_connection_breaks_is_ended() {
    let (loopback, start) = Loopback::new(Machine::new(String::new(), 1 << 32)).unwrap();
    let (address, secret) = (start.address().unwrap(), start.secret());
    start.spawn(7, Box::new(|_, _, _| panic!("on purpose"))).unwrap();
    let client = ZooKeeper::connect(&address.to_string(), secret, no_watcher).unwrap();
    let (tell, states) = unbounded();
    client.add_listener(move |state| tell.send(state).unwrap_or(()));
    assert_eq!(client.exists("/", false).unwrap_err(), ZkError::ConnectionLoss);
    let start = Instant::now();
    while states.recv_timeout(SOON).unwrap() != zookeeper::ZkState::Closed {
        assert!(start.elapsed() < SOON);
    }
    drop(client);
    until("end of the thread", || Arc::strong_count(&loopback) == 1);
}
