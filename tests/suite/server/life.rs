//! The embedded server's life: restart and wipe, sequence numbers, virtual time, the logs, and its
//! end.
use crate::{
    server::faults::mutex,
    support::{
        Raw, at_best, brand,
        contend::{session, until_queue},
        embedded::{attach, exists, is_connected, lost_by_expiry, raw, start},
        raw::{self, CONTAINER, EPHEMERAL, PERSISTENT, SEQUENTIAL, SESSION_EXPIRED},
        scenarios,
        scene::{SOON, session_of, until_empty, until_event, until_state},
        until,
        wire::Writer,
    },
};
use std::{
    fs,
    io::{ErrorKind, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{LossReason, SessionEvent, SessionState};
use zk_test_server::{EventKind, Op};

const LOCK: &str = "/locks/orders";

// ---- the server's life ----

fn restart_keeps_nodes_and_sessions_and_forgets_watches() {
    let (server, at) = start();
    let mut client = raw(&at);
    client.create("/kept", b"data", PERSISTENT).unwrap();
    client.create("/e", b"", EPHEMERAL).unwrap();
    client.watch("/kept").unwrap();
    let before = client.exists("/kept").unwrap();
    assert_eq!(server.watch_count(), 1);
    server.restart();
    assert_eq!((server.connection_count(), server.watch_count()), (0, 0));
    assert!(client.ping().is_err());
    let mut again = attach(&at, &client).unwrap();
    assert_eq!(again.get_data("/kept").unwrap().0, b"data");
    assert_eq!(again.exists("/kept").unwrap(), before, "the node has the same Stat");
    assert_eq!(again.exists("/e").unwrap().unwrap().ephemeral_owner, client.session_id());
    again.set_data("/kept", b"new").unwrap();
    again.ping().unwrap();
    assert_eq!(again.events(), [], "the watch is gone with the connection");
    client.abandon();
}

fn waiter_waits_on_over_restarts() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (mutex(&ours), mutex(&theirs));
    let ids = [ours.status().session_id, theirs.status().session_id];
    let guard = other.lock().unwrap();
    let events = [ours.subscribe(), theirs.subscribe()];
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex.lock().unwrap().is_held());
        for _ in 0..3 {
            until_queue(&at, LOCK, 2);
            server.restart();
            for events in &events {
                until_event(events, |event| *event == SessionEvent::Reconnected);
            }
        }
        assert!(guard.is_held() && !waiter.is_finished());
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap());
    });
    assert_eq!([ours.status().session_id, theirs.status().session_id], ids);
    until_empty(&at, LOCK);
}

fn restart_without_data_is_a_new_server_at_the_old_address() {
    let server = brand::embedded().keep_data(false).start().unwrap();
    let at = server.connect_string();
    let mut client = raw(&at);
    client.create("/gone", b"", PERSISTENT).unwrap();
    server.restart();
    assert_eq!(server.connect_string(), at);
    assert_eq!(attach(&at, &client).map(drop).unwrap_err().code(), Some(SESSION_EXPIRED));
    assert!(!exists(&at, "/gone"));
    client.abandon();
}

fn wiped_server_knows_no_session() {
    let (server, at) = start();
    let session = session(&at);
    let (id, events) = (session.status().session_id, session.subscribe());
    let mutex = mutex(&session);
    let guard = mutex.lock().unwrap();
    let mut client = raw(&at);
    client.create("/gone", b"", PERSISTENT).unwrap();
    server.wipe();
    assert!(client.ping().is_err());
    assert!(!exists(&at, "/gone"));
    assert_eq!(raw(&at).children("/").unwrap(), ["zookeeper"]);
    // The server refuses a client that has seen a higher zxid, until its own zxid is as high.
    until_event(&events, |event| *event == SessionEvent::Suspended);
    let mut writer = raw(&at);
    for i in 0..20 {
        writer.create(&format!("/n{i}"), b"", PERSISTENT).unwrap();
    }
    until_event(&events, is_connected);
    assert_ne!(session.status().session_id, id);
    assert_eq!(guard.lost_reason(), Some(LossReason::SessionExpired));
    drop(guard);
    mutex.lock().unwrap().unlock().unwrap();
    until_empty(&at, LOCK);
    client.abandon();
}

fn sequence_numbers_are_set() {
    let (server, at) = start();
    let mut client = raw(&at);
    assert!(server.set_sequence("/nowhere", 1).is_err());
    client.create("/q", b"", PERSISTENT).unwrap();
    server.set_sequence("/q", 41).unwrap();
    assert_eq!(client.create("/q/n-", b"", SEQUENTIAL).unwrap(), "/q/n-0000000041");
    server.set_sequence("/q", i32::MAX - 1).unwrap();
    let serial = [(); 3].map(|()| client.create("/q/n-", b"", SEQUENTIAL));
    assert_eq!(serial[0].as_deref().unwrap(), "/q/n-2147483646");
    assert_eq!(serial[1].as_deref().unwrap(), "/q/n-2147483647");
    // A third create with this name finds the second one: the number does not change any more.
    assert_eq!(serial[2].as_ref().unwrap_err().code(), Some(raw::NODE_EXISTS));
}

fn lock_keeps_its_order_past_the_last_number() {
    let (server, at) = start();
    let sessions = [(); 4].map(|()| session(&at));
    let mutexes = sessions.each_ref().map(mutex);
    mutexes[0].lock().unwrap().unlock().unwrap();
    server.set_sequence(LOCK, i32::MAX - 1).unwrap();
    let order = parking_lot::Mutex::new(Vec::new());
    thread::scope(|scope| {
        let guard = mutexes[0].lock().unwrap();
        for (i, mutex) in mutexes.iter().enumerate().skip(1) {
            let order = &order;
            scope.spawn(move || {
                let guard = mutex.lock().unwrap();
                order.lock().push(i);
                drop(guard);
            });
            until_queue(&at, LOCK, i + 1);
        }
        drop(guard);
    });
    assert_eq!(*order.lock(), [1, 2, 3]);
    until_empty(&at, LOCK);
}

// ---- time ----

fn virtual_hours_pass_at_once() {
    let server = brand::embedded().virtual_clock().start().unwrap();
    let at = server.connect_string();
    let mut owner = Raw::connect_timeout(&at, Duration::from_secs(20)).unwrap();
    let timeout = owner.timeout();
    owner.create("/e", b"", EPHEMERAL).unwrap();
    let start = Instant::now();
    // No step is longer than half of the timeout without a request of the owner.
    for _ in 0..10 {
        server.advance(timeout / 2);
        owner.ping().unwrap();
    }
    assert!(exists(&at, "/e"));
    server.advance(timeout * 2);
    assert!(server.sessions().is_empty());
    assert!(owner.ping().is_err());
    assert!(!exists(&at, "/e"));
    assert_eq!(attach(&at, &owner).map(drop).unwrap_err().code(), Some(SESSION_EXPIRED));
    assert!(at_best(start) < timeout / 2, "no real time passed");
    owner.abandon();
}

fn advance_serves_earlier_requests_first() {
    let server = brand::embedded().virtual_clock().start().unwrap();
    let at = server.connect_string();
    let timeout = Duration::from_secs(10);
    for _ in 0..20 {
        let owner = Raw::connect_timeout(&at, timeout).unwrap();
        let (id, password) = (owner.session_id(), owner.password().to_vec());
        owner.abandon();
        server.advance(timeout * 2 / 3);
        let mut again = TcpStream::connect(server.address()).unwrap();
        let hello = Writer::new().i32(0).i64(0).i32(10_000).i64(id).buffer(&password).bool(false);
        again.write_all(&hello.frame()).unwrap();
        server.advance(timeout * 2 / 3);
        assert!(
            server.sessions().iter().any(|session| session.id == id),
            "the owner had reconnected in time"
        );
        assert!(server.expire_session(id));
    }
}

fn event_is_waited_for() {
    let (server, at) = start();
    let mut client = raw(&at);
    client.create("/n", b"", PERSISTENT).unwrap();
    let set =
        |event: &zk_test_server::Event| event.kind == EventKind::DataChanged && event.path == "/n";
    assert_eq!(server.wait_event(set, Duration::ZERO), None);
    client.watch("/n").unwrap();
    thread::scope(|scope| {
        // The function that is called with the event may call the server.
        let waits =
            scope.spawn(|| server.wait_event(|event| set(event) && server.node_count() > 0, SOON));
        client.set_data("/n", b"new").unwrap();
        assert_eq!(waits.join().unwrap().map(|event| event.session), Some(client.session_id()));
    });
    assert!(server.wait_event(set, Duration::ZERO).is_some(), "the event is in the log");
}

fn holder_loses_a_lock_by_virtual_time() {
    let server = brand::embedded().virtual_clock().start().unwrap();
    let at = server.connect_string();
    let session = session_of(&at, Duration::from_secs(30));
    let mutex = mutex(&session);
    let guard = mutex.lock().unwrap();
    let start = Instant::now();
    server.advance(Duration::from_secs(60));
    lost_by_expiry(&guard);
    assert!(at_best(start) < Duration::from_secs(15));
    drop(guard);
    until_state(&session, SessionState::Connected);
    mutex.lock().unwrap().unlock().unwrap();
    until_empty(&at, LOCK);
}

fn containers_go_by_virtual_time() {
    let server = brand::embedded().virtual_clock().start().unwrap();
    let at = server.connect_string();
    let mut client = raw(&at);
    client.create("/box", b"", CONTAINER).unwrap();
    client.create("/new", b"", CONTAINER).unwrap();
    let child = client.create("/box/n", b"", PERSISTENT).unwrap();
    client.delete(&child).unwrap();
    for _ in 0..8 {
        server.advance(client.timeout() / 2);
        client.ping().unwrap();
    }
    assert!(client.exists("/box").unwrap().is_none(), "the container was used and is empty");
    assert!(client.exists("/new").unwrap().is_some(), "the container was never used");
}

// ---- logs ----

fn waiter_arms_one_watch_and_is_sent_one_event() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (mutex, other) = (mutex(&ours), mutex(&theirs));
    let guard = other.lock().unwrap();
    let (holder, me) = (guard.path().to_owned(), ours.status().session_id.unwrap());
    server.clear_log();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| mutex.lock().unwrap().unlock().unwrap());
        let armed = server.wait_request(Op::GetData.on(&holder).session(me), SOON);
        assert!(armed.is_some_and(|request| request.watch), "the waiter watches the holder");
        guard.unlock().unwrap();
        waiter.join().unwrap();
    });
    let armed = |request: &&zk_test_server::Request| {
        request.watch && request.session == me && request.path.as_deref() == Some(&holder)
    };
    assert_eq!(server.requests().iter().filter(armed).count(), 1);
    let mut events = server.events();
    events.retain(|event| event.session == me && event.path == holder);
    assert_eq!(events.iter().map(|event| event.kind).collect::<Vec<_>>(), [EventKind::Deleted]);
    until_empty(&at, LOCK);
}

fn log_keeps_the_newest_and_forgets_when_told() {
    let server = brand::embedded().log_capacity(5).start().unwrap();
    let mut client = raw(&server.connect_string());
    for i in 0..10 {
        client.create(&format!("/n{i}"), b"", PERSISTENT).unwrap();
    }
    let paths: Vec<_> = server.requests().into_iter().filter_map(|request| request.path).collect();
    assert_eq!(paths, ["/n5", "/n6", "/n7", "/n8", "/n9"]);
    assert_eq!(server.count(Op::Create.on("/n9")), 1);
    server.clear_log();
    assert!(server.requests().is_empty());
    assert_eq!(server.wait_request(Op::Create, Duration::from_millis(10)), None);
    client.ping().unwrap();
    let ping = server.wait_request(Op::Ping, SOON).unwrap();
    assert_eq!((ping.session, ping.xid, ping.path), (client.session_id(), -2, None));
}

// ---- its end ----

fn sockets() -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap().flatten();
    links
        .filter(|fd| {
            fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
        })
        .count()
}

fn stopped_server_leaves_no_thread_no_socket_no_port() {
    let tasks = || fs::read_dir("/proc/self/task").unwrap().count();
    let (threads, open) = (tasks(), sockets());
    for drops in [true, false, true] {
        let (server, at) = start();
        let address = server.address();
        let mut client = raw(&at);
        let held = server.hold_requests(Op::Ping);
        server.black_hole(true);
        if drops {
            drop(server);
        } else {
            server.stop();
        }
        assert!(
            !held.wait(Duration::from_secs(60)),
            "the wait ends at once, because no request can come"
        );
        drop(held);
        assert!(client.ping().is_err(), "the server has closed the connection");
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        client.abandon();
        assert_eq!(sockets(), open);
        // A thread that has ended may still have its /proc entry for a moment.
        until("the thread is gone", SOON, || (tasks() == threads).then_some(()));
    }
}

fn servers_of_one_process_have_nothing_in_common() {
    let (one, first) = start();
    let (_other, second) = start();
    assert_ne!(first, second);
    let third = brand::embedded().port(one.address().port()).start();
    assert_eq!(third.map(drop).unwrap_err().kind(), ErrorKind::AddrInUse);
    raw(&first).create("/here", b"", PERSISTENT).unwrap();
    assert!(!exists(&second, "/here"));
    let session = session(&second);
    let mutex = mutex(&session);
    let guard = mutex.lock().unwrap();
    one.stop();
    assert!(guard.is_held());
    guard.unlock().unwrap();
    until_empty(&second, LOCK);
}

scenarios![on embedded;
    restart_keeps_nodes_and_sessions_and_forgets_watches,
    waiter_waits_on_over_restarts,
    restart_without_data_is_a_new_server_at_the_old_address,
    wiped_server_knows_no_session,
    sequence_numbers_are_set,
    lock_keeps_its_order_past_the_last_number,
    virtual_hours_pass_at_once,
    advance_serves_earlier_requests_first,
    holder_loses_a_lock_by_virtual_time,
    event_is_waited_for,
    containers_go_by_virtual_time,
    waiter_arms_one_watch_and_is_sent_one_event,
    log_keeps_the_newest_and_forgets_when_told,
    stopped_server_leaves_no_thread_no_socket_no_port,
    servers_of_one_process_have_nothing_in_common,
];
