//! Each fault of the embedded server's network and of single requests, observed by a raw client and
//! by the library: its effect, and that it has this effect exactly then.
use crate::{
    server::hostile::{frame, hello},
    support::{
        contend::session,
        embedded::{LOSE, attach, exists, is_connected, lost_by_expiry, raw, start},
        raw::{DATA_CHANGED, DELETED, EPHEMERAL, PERSISTENT, SESSION_EXPIRED},
        scenarios,
        scene::{SOON, queue, session_of, until_empty, until_event},
        until,
        wire::{Reader, Writer},
    },
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{OptionalExt, SessionEvent, ZkMutex, ZkSemaphore, ZkSession};
use zk_test_server::{Matcher, Op, TestServer};

const LOCK: &str = "/locks/orders";
/// A part of the path of contenders' nodes only.
const NODE: &str = "-lock-";
/// Long enough to see that something does not come.
const A_WHILE: Duration = Duration::from_millis(300);

/// A mutex on a session that does not expire.
pub fn mutex(session: &ZkSession) -> ZkMutex {
    ZkMutex::new(session, LOCK).unwrap()
}

/// A connection with a session. The test writes and reads its frames itself.
fn bare(server: &TestServer) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(&hello(30_000)).unwrap();
    assert!(frame(&mut stream).unwrap().is_some());
    stream
}

/// A create of a persistent node.
fn create(xid: i32, path: &str) -> Vec<u8> {
    let create = Writer::new().i32(xid).i32(1).string(path).buffer(b"");
    create.i32(1).i32(31).string("world").string("anyone").i32(0).frame()
}

/// The xids of the replies until the connection ends.
fn replies(stream: &mut TcpStream) -> Vec<i32> {
    let mut xids = Vec::new();
    while let Some(reply) = frame(stream).unwrap() {
        xids.extend(Reader(&reply).i32());
    }
    xids
}

// ---- sessions and connections ----

fn expired_session_is_gone_when_the_call_returns() {
    let (server, at) = start();
    let mut owner = raw(&at);
    owner.create("/e", b"", EPHEMERAL).unwrap();
    let mut looker = raw(&at);
    looker.watch("/e").unwrap();
    assert!(server.expire_session(owner.session_id()));
    assert_eq!(looker.exists("/e").unwrap(), None);
    assert_eq!(looker.events(), [(DELETED, "/e".to_owned())]);
    assert!(owner.ping().is_err_and(|e| e.code().is_none()), "the owner's connection is closed");
    assert_eq!(attach(&at, &owner).map(drop).unwrap_err().code(), Some(SESSION_EXPIRED));
    assert!(!server.expire_session(owner.session_id()), "the session does not exist any more");
    owner.abandon();
}

fn holder_is_notified_that_its_session_was_expired() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (id, events) = (ours.status().session_id.unwrap(), ours.subscribe());
    let (mutex, other) = (mutex(&ours), mutex(&theirs));
    let guard = mutex.lock().unwrap();
    assert!(server.expire_session(id));
    assert_eq!(queue(&at, LOCK), [""; 0], "the node was deleted with the session");
    lost_by_expiry(&guard);
    assert!(other.try_lock().optional().unwrap().is_some());
    until_event(&events, is_connected);
    assert_ne!(ours.status().session_id, Some(id));
    drop(guard);
    mutex.lock().unwrap().unlock().unwrap();
    until_empty(&at, LOCK);
}

fn cut_connections_leave_the_sessions() {
    let (server, at) = start();
    let (mut one, mut other) = (raw(&at), raw(&at));
    one.create("/e", b"", EPHEMERAL).unwrap();
    assert_eq!(server.connection_count(), 2);
    server.cut_connections();
    assert_eq!(server.connection_count(), 0);
    assert!(one.ping().is_err() && other.ping().is_err());
    assert_eq!(server.sessions().iter().filter(|session| !session.connected).count(), 2);
    let mut again = attach(&at, &one).unwrap();
    assert_eq!(again.exists("/e").unwrap().unwrap().ephemeral_owner, one.session_id());
    one.abandon();
    other.abandon();
}

fn cut_ends_connections_that_were_not_accepted_yet() {
    let (server, _) = start();
    for _ in 0..100 {
        let mut client = TcpStream::connect(server.address()).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        server.cut_connections();
        let read = client.read(&mut [0]);
        assert!(
            matches!(&read, Ok(0))
                || read.as_ref().is_err_and(|e| e.kind() == ErrorKind::ConnectionReset),
            "{read:?}"
        );
    }
    assert_eq!(server.connection_count(), 0);
}

fn what_was_sent_before_a_cut_or_a_restart_is_served() {
    let (server, at) = start();
    for (path, end) in [
        ("/a", TestServer::cut_connections as fn(&TestServer)),
        ("/b", TestServer::restart),
        ("/c", |server| {
            assert!(server.expire_session(server.sessions().last().unwrap().id));
        }),
    ] {
        let mut client = bare(&server);
        client.write_all(&create(1, path)).unwrap();
        end(&server);
        assert!(exists(&at, path), "{path}");
        assert!(server.wait_request(Op::Create.on(path), Duration::ZERO).is_some());
    }
}

fn holder_keeps_its_hold_over_cuts() {
    let (server, at) = start();
    let session = session(&at);
    let (id, events) = (session.status().session_id, session.subscribe());
    let mutex = mutex(&session);
    let guard = mutex.lock().unwrap();
    for _ in 0..3 {
        server.cut_connections();
        let seen = until_event(&events, |event| *event == SessionEvent::Reconnected);
        assert_eq!(seen, [SessionEvent::Suspended, SessionEvent::Reconnected]);
        assert!(guard.is_held());
    }
    assert_eq!(session.status().session_id, id);
    assert_eq!(server.count(Op::Connect), 1 + 3, "each session dials once for each cut");
    guard.unlock().unwrap();
    until_empty(&at, LOCK);
}

fn refused_port_stays_the_servers_own() {
    let (server, at) = start();
    let mut old = raw(&at);
    for _ in 0..2 {
        server.refuse(true);
        let refused = TcpStream::connect(server.address());
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        let taken = TcpListener::bind(server.address());
        assert_eq!(
            taken.unwrap_err().kind(),
            ErrorKind::AddrInUse,
            "no other socket gets the port meanwhile"
        );
        old.ping().unwrap();
        server.refuse(false);
        raw(&at).ping().unwrap();
    }
}

fn session_waits_out_a_refusal() {
    let (server, at) = start();
    let session = session(&at);
    let (id, events) = (session.status().session_id, session.subscribe());
    let mutex = mutex(&session);
    let guard = mutex.lock().unwrap();
    server.refuse(true);
    server.cut_connections();
    until_event(&events, |event| *event == SessionEvent::Suspended);
    server.refuse(false);
    until_event(&events, |event| *event == SessionEvent::Reconnected);
    assert!(guard.is_held() && session.status().session_id == id);
    drop(guard);
    until_empty(&at, LOCK);
}

fn black_hole_takes_everything_and_answers_nothing() {
    let (server, at) = start();
    let (mut client, mut looker) = (raw(&at), raw(&at));
    server.black_hole(true);
    let mut newcomer = TcpStream::connect(server.address()).unwrap();
    newcomer.set_read_timeout(Some(A_WHILE)).unwrap();
    let nodes = server.node_count();
    thread::scope(|scope| {
        let create = scope.spawn(|| client.create("/late", b"", PERSISTENT));
        assert_eq!(
            newcomer.read(&mut [0]).unwrap_err().kind(),
            ErrorKind::WouldBlock,
            "the connection is accepted, but silent"
        );
        assert!(!create.is_finished());
        assert_eq!((server.node_count(), server.count(Op::Create)), (nodes, 0));
        server.black_hole(false);
        create.join().unwrap().unwrap();
    });
    assert!(looker.exists("/late").unwrap().is_some());
}

fn cut_ends_connections_in_a_black_hole_and_their_requests() {
    let (server, at) = start();
    let mut client = raw(&at);
    server.black_hole(true);
    thread::scope(|scope| {
        let create = scope.spawn(|| client.create("/never", b"", PERSISTENT));
        thread::sleep(A_WHILE);
        server.cut_connections();
        assert!(create.join().unwrap().is_err());
    });
    server.black_hole(false);
    assert!(!exists(&at, "/never"));
}

fn session_finds_a_black_hole_and_its_end() {
    let (server, at) = start();
    let session = session_of(&at, Duration::from_secs(6));
    let (id, events) = (session.status().session_id, session.subscribe());
    server.black_hole(true);
    until_event(&events, |event| *event == SessionEvent::Suspended);
    server.black_hole(false);
    until_event(&events, |event| *event == SessionEvent::Reconnected);
    assert_eq!(session.status().session_id, id);
    let mutex = mutex(&session);
    mutex.lock().unwrap().unlock().unwrap();
    until_empty(&at, LOCK);
}

fn delay_is_for_answers_and_events() {
    let (server, at) = start();
    let (mut client, mut other) = (raw(&at), raw(&at));
    client.create("/n", b"", PERSISTENT).unwrap();
    client.watch("/n").unwrap();
    let by = Duration::from_millis(250);
    server.delay(by);
    let start = Instant::now();
    client.ping().unwrap();
    assert!(start.elapsed() >= by);
    let start = Instant::now();
    thread::scope(|scope| {
        let set = scope.spawn(|| other.set_data("/n", b"new"));
        assert_eq!(client.next_event(SOON), Some((DATA_CHANGED, "/n".to_owned())));
        assert!(start.elapsed() >= by);
        set.join().unwrap().unwrap();
    });
    server.delay(Duration::ZERO);
    // The lock works on a slow network too, and keeps its order.
    let session = session(&at);
    server.delay(Duration::from_millis(40));
    let mutex = mutex(&session);
    for _ in 0..3 {
        mutex.lock().unwrap().unlock().unwrap();
    }
    server.delay(Duration::ZERO);
    until_empty(&at, LOCK);
}

fn delay_is_for_the_end_of_a_connection_too() {
    let (server, at) = start();
    let by = Duration::from_millis(300);
    server.delay(by);
    let start = Instant::now();
    let mut asks = TcpStream::connect(server.address()).unwrap();
    asks.write_all(b"ruok").unwrap();
    let mut answer = String::new();
    asks.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "imok");
    assert!(start.elapsed() >= by);
    // The answer before a bad frame arrives before the close.
    let mut bad = bare(&server);
    bad.write_all(&[create(1, "/x"), vec![0xff; 4]].concat()).unwrap();
    assert_eq!(replies(&mut bad), [1]);
    // A client that is refused is not served while the refusal is under way.
    server.clear_log();
    let mut refused = TcpStream::connect(server.address()).unwrap();
    let hello =
        Writer::new().i32(0).i64(1 << 40).i32(30_000).i64(0).buffer(&[0; 16]).bool(false).frame();
    refused.write_all(&[hello, create(1, "/ghost")].concat()).unwrap();
    assert_eq!(replies(&mut refused), [0; 0]);
    assert_eq!(server.count(Op::Create), 0);
    server.delay(Duration::ZERO);
    assert!(!exists(&at, "/ghost"));
}

// ---- single requests ----

/// It does not matter whether a later request comes in the same packet.
fn nothing_behind_a_lost_request_is_served() {
    let [drop_request, drop_reply] = LOSE;
    let silence_reply = |server: &TestServer, which: Matcher| server.silence_reply(which);
    for (plan, applied) in [(drop_request, false), (drop_reply, true), (silence_reply, true)] {
        for (together, delay) in
            [(true, Duration::ZERO), (false, Duration::ZERO), (true, A_WHILE), (false, A_WHILE)]
        {
            let (server, at) = start();
            let mut client = bare(&server);
            server.delay(delay);
            plan(&server, Op::Create.on("/faulted"));
            let mut packet = [create(1, "/before"), create(2, "/faulted")].concat();
            if together {
                packet.extend(create(3, "/behind"));
            }
            client.write_all(&packet).unwrap();
            assert!(server.wait_request(Op::Create.on("/faulted"), SOON).is_some());
            if !together {
                let _ = client.write_all(&create(3, "/behind")); // it may fail after the cut
            }
            assert_eq!(frame(&mut client).unwrap().and_then(|reply| Reader(&reply).i32()), Some(1));
            server.delay(Duration::ZERO);
            let nodes = ["/before", "/faulted", "/behind"].map(|path| exists(&at, path));
            assert_eq!(nodes, [true, applied, false], "together: {together}");
            assert_eq!(server.count(Op::Create.on("/behind")), 0);
            assert_eq!(server.pending_faults(), 0);
            drop(client);
            until("the connection is gone", SOON, || {
                (server.connection_count() == 0).then_some(())
            });
        }
    }
}

/// A check outside a transaction has no answer: the real server fails while it makes it.
fn fault_is_injected_into_a_request_without_an_answer_too() {
    let (server, at) = start();
    let check = Writer::new().i32(1).i32(13).string("/").i32(-1).frame();
    server.drop_reply(Op::Check);
    let mut client = bare(&server);
    client.write_all(&check).unwrap();
    assert_eq!(replies(&mut client), [0; 0]);
    server.silence_reply(Op::Check);
    let mut client = bare(&server);
    client.write_all(&[check, create(2, "/behind")].concat()).unwrap();
    assert!(server.wait_request(Matcher::from(Op::Check).skip(1), SOON).is_some());
    assert!(!exists(&at, "/behind"));
    assert_eq!((server.connection_count(), server.pending_faults()), (1, 0));
}

fn late_connect_request_changes_nothing() {
    let (server, _) = start();
    let mut client = bare(&server);
    let id = server.sessions()[0].id;
    client.write_all(&Writer::new().i32(7).i32(-10).frame()).unwrap();
    client.write_all(&create(8, "/a")).unwrap();
    let logged = server.wait_request(Op::Create, SOON).expect("the create is served");
    assert_eq!(logged.session, id);
    assert_eq!((server.count(Op::Connect), server.count(Op::Other(-10))), (1, 1));
}

fn release_serves_all_that_was_held() {
    const CLIENTS: usize = 100;
    let (server, at) = start();
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| bare(&server)).collect();
    let held = server.hold_requests(Op::Create);
    let look = Writer::new().i32(2).i32(3).string("/").bool(false).frame();
    for (i, client) in clients.iter_mut().enumerate() {
        client.write_all(&[create(1, &format!("/h{i}")), look.repeat(20)].concat()).unwrap();
    }
    until("all are held", SOON, || (held.count() == CLIENTS).then_some(()));
    drop(held);
    assert_eq!((server.count(Op::Create), server.count(Op::Exists)), (CLIENTS, 20 * CLIENTS));
    assert!(exists(&at, "/h0"));
}

fn dropped_reply_applies_the_request_and_cuts() {
    let (server, at) = start();
    let mut client = raw(&at);
    server.drop_reply(Op::Create.on("/orphan"));
    client.create("/other", b"", PERSISTENT).unwrap();
    assert_eq!(server.pending_faults(), 1);
    let failed = client.create("/orphan", b"", PERSISTENT).unwrap_err();
    assert_eq!(failed.code(), None, "a cut: {failed}");
    assert!(exists(&at, "/orphan"));
    assert_eq!(server.pending_faults(), 0);
    let mut again = attach(&at, &client).unwrap();
    again.create("/orphan/child", b"", PERSISTENT).unwrap();
    client.abandon();
}

/// The test that every implementation of the recipe should have: the create is executed, and its
/// answer is lost.
fn lost_answer_to_a_create_leaves_no_orphan() {
    let (server, at) = start();
    let session = session(&at);
    let id = session.status().session_id;
    let mutex = mutex(&session);
    mutex.lock().unwrap().unlock().unwrap(); // makes the folder
    for lose in LOSE {
        server.clear_log();
        lose(&server, Op::Create.on(NODE));
        let guard = mutex.lock().unwrap();
        assert_eq!(server.pending_faults(), 0);
        assert_eq!(
            server.count(Op::Create.on(NODE)),
            2,
            "the create without an answer, and another one"
        );
        let name = guard.path().rsplit_once('/').unwrap().1.to_owned();
        until("the holder's node is the only one", SOON, || {
            (queue(&at, LOCK) == [&*name]).then_some(())
        });
        guard.unlock().unwrap();
        until_empty(&at, LOCK);
    }
    assert_eq!(session.status().session_id, id);
}

fn lost_answer_to_a_delete_leaves_the_lock_free() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (mutex(&ours), mutex(&theirs));
    for lose in LOSE {
        let guard = mutex.lock().unwrap();
        lose(&server, Op::Delete.on(NODE));
        drop(guard);
        assert!(other.lock_timeout(SOON).optional().unwrap().is_some());
        until_empty(&at, LOCK);
        assert_eq!(server.pending_faults(), 0);
    }
}

fn silenced_reply_applies_the_request_and_leaves_the_connection_open() {
    let (server, at) = start();
    let mut client = raw(&at);
    server.silence_reply(Op::Create.on("/orphan"));
    thread::scope(|scope| {
        let create = scope.spawn(|| client.create("/orphan", b"", PERSISTENT));
        let applied = server.wait_request(Op::Create, SOON).expect("the create was applied");
        assert_eq!(applied.path.as_deref(), Some("/orphan"));
        assert!(exists(&at, "/orphan"), "other connections are served");
        thread::sleep(A_WHILE);
        assert!(!create.is_finished());
        server.cut_connections();
        assert_eq!(create.join().unwrap().unwrap_err().code(), None);
    });
    client.abandon();
}

fn call_gets_over_a_silent_connection() {
    let (server, at) = start();
    let session = session_of(&at, Duration::from_secs(6));
    let id = session.status().session_id;
    let mutex = mutex(&session);
    mutex.lock().unwrap().unlock().unwrap();
    server.silence_reply(Op::Create.on(NODE));
    let guard = mutex.lock().unwrap();
    assert_eq!((server.pending_faults(), session.status().session_id), (0, id));
    until("the first create's node is gone", SOON, || (queue(&at, LOCK).len() == 1).then_some(()));
    assert!(guard.is_held());
    drop(guard);
    until_empty(&at, LOCK);
}

/// A listing of its own searches for each create without an answer. If all creates were sent at
/// once, a cut would be followed by as many listings as there are permits, each with as many names.
fn cut_among_many_permits_is_not_followed_by_a_listing_for_each() {
    const PERMITS: u32 = 400;
    let (server, at) = start();
    let session = session(&at);
    let semaphore = ZkSemaphore::new(&session, LOCK, PERMITS).unwrap();
    drop(semaphore.acquire().unwrap());
    until_empty(&at, &format!("{LOCK}/leases"));
    server.drop_request(Op::Create.on("-lease-").skip(3));
    let permits = semaphore.acquire_many(PERMITS).unwrap();
    assert_eq!((permits.permits(), server.pending_faults()), (PERMITS, 0));
    assert!(permits.is_held());
    let listings = server.count(Op::GetChildren.on("/leases"));
    assert!(listings < PERMITS as usize / 2, "{listings} listings");
    drop(permits);
    until_empty(&at, &format!("{LOCK}/leases"));
}

fn dropped_request_is_logged_and_not_applied() {
    let (server, at) = start();
    let mut client = raw(&at);
    server.drop_request(Op::Create.on("/never"));
    assert_eq!(client.create("/never", b"", PERSISTENT).unwrap_err().code(), None);
    assert!(!exists(&at, "/never"));
    let logged = server.requests().into_iter().find(|request| request.op == Op::Create).unwrap();
    assert!(!logged.applied, "{logged:?}");
    client.abandon();
}

fn matcher_names_the_session_and_the_number() {
    let (server, at) = start();
    let (mut one, mut other) = (raw(&at), raw(&at));
    server.drop_request(Matcher::from(Op::Create).session(one.session_id()).skip(1));
    for name in ["/a", "/b", "/c"] {
        other.create(name, b"", PERSISTENT).unwrap();
    }
    one.create("/d", b"", PERSISTENT).unwrap();
    assert!(one.create("/e", b"", PERSISTENT).is_err());
    assert!(!exists(&at, "/e"));
    one.abandon();
}

fn held_requests_wait_and_others_pass() {
    let (server, at) = start();
    let (mut client, mut other) = (raw(&at), raw(&at));
    let held = server.hold_requests(Op::Create.on("/first"));
    assert!(!held.wait(Duration::from_millis(10)));
    thread::scope(|scope| {
        let both =
            scope.spawn(|| client.create_at_once(&["/first".into(), "/second".into()], PERSISTENT));
        assert!(held.wait(SOON));
        assert_eq!(held.count(), 1);
        other.create("/third", b"", PERSISTENT).unwrap();
        assert_eq!(
            other.children("/").unwrap(),
            ["third", "zookeeper"],
            "later requests on its connection wait"
        );
        drop(held);
        both.join().unwrap().unwrap();
    });
    assert_eq!(other.children("/").unwrap(), ["first", "second", "third", "zookeeper"]);
}

/// The holder releases after the waiter has listed it and before the waiter watches it: a careless
/// lock would miss this wake-up.
fn holder_that_goes_before_the_watch_is_set_is_not_waited_for() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (mutex(&ours), mutex(&theirs));
    let guard = other.lock().unwrap();
    let node = guard.path().to_owned();
    let held =
        server.hold_requests(Op::GetData.on(&node).session(ours.status().session_id.unwrap()));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex.lock().unwrap().is_held());
        assert!(held.wait(SOON), "the waiter has listed and is about to watch the holder");
        guard.unlock().unwrap();
        until("the holder has released", SOON, || (!exists(&at, &node)).then_some(()));
        drop(held);
        assert!(waiter.join().unwrap());
    });
    until_empty(&at, LOCK);
}

scenarios![on embedded;
    expired_session_is_gone_when_the_call_returns,
    holder_is_notified_that_its_session_was_expired,
    cut_connections_leave_the_sessions,
    cut_ends_connections_that_were_not_accepted_yet,
    what_was_sent_before_a_cut_or_a_restart_is_served,
    holder_keeps_its_hold_over_cuts,
    refused_port_stays_the_servers_own,
    session_waits_out_a_refusal,
    black_hole_takes_everything_and_answers_nothing,
    cut_ends_connections_in_a_black_hole_and_their_requests,
    session_finds_a_black_hole_and_its_end,
    delay_is_for_answers_and_events,
    delay_is_for_the_end_of_a_connection_too,
    nothing_behind_a_lost_request_is_served,
    fault_is_injected_into_a_request_without_an_answer_too,
    late_connect_request_changes_nothing,
    release_serves_all_that_was_held,
    dropped_reply_applies_the_request_and_cuts,
    lost_answer_to_a_create_leaves_no_orphan,
    lost_answer_to_a_delete_leaves_the_lock_free,
    silenced_reply_applies_the_request_and_leaves_the_connection_open,
    call_gets_over_a_silent_connection,
    cut_among_many_permits_is_not_followed_by_a_listing_for_each,
    dropped_request_is_logged_and_not_applied,
    matcher_names_the_session_and_the_number,
    held_requests_wait_and_others_pass,
    holder_that_goes_before_the_watch_is_set_is_not_waited_for,
];
