//! The application's own client on the lock's session: its calls, its end, its cost, and the common
//! session with the locks.
use crate::support::{
    Raw, Server, Shared,
    contend::Over,
    logged,
    own::{listening, threads},
    raw, scenarios,
    scene::{SOON, full_path, session, until_empty},
    until,
};
use crossbeam_channel::{Receiver, unbounded};
use std::{
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use zk_mutex::{
    Error, OptionalExt, SessionEvent, ZkMutex,
    zookeeper::{
        Acl, AddWatchMode, CreateMode, WatchedEvent, WatchedEventType, WatcherType, ZkError,
        ZooKeeper,
    },
};

const LOCK: &str = "/lock";

pub(super) fn make(client: &ZooKeeper, path: &str, mode: CreateMode) -> String {
    client.create(path, b"data".to_vec(), Acl::open_unsafe().clone(), mode).unwrap()
}

pub(super) type Fired = (WatchedEventType, String);

/// A watcher, and the channel of its events.
pub(super) fn watcher() -> (impl Fn(WatchedEvent) + Send + 'static, Receiver<Fired>) {
    let (tell, events) = unbounded();
    let watcher = move |event: WatchedEvent| {
        let _ = tell.send((event.event_type, event.path.unwrap_or_default()));
    };
    (watcher, events)
}

#[track_caller]
fn owner(at: &str, path: &str) -> Option<i64> {
    let stat = Raw::connect(at).unwrap().exists(&full_path(at, path)).unwrap();
    stat.map(|stat| stat.ephemeral_owner)
}

#[track_caller]
fn until_gone(at: &str, path: &str) {
    until(&format!("{path} is gone"), SOON, || owner(at, path).is_none().then_some(()));
}

// ---- its calls ----

fn all_calls_of_the_client_work_below_the_chroot() {
    let at = Shared::chroot();
    let session = session(&at);
    let client = session.client().unwrap();
    assert_eq!(make(&client, "/a", CreateMode::Persistent), "/a");
    assert_eq!(make(&client, "/a/n-", CreateMode::PersistentSequential), "/a/n-0000000000");
    make(&client, "/a/box", CreateMode::Container);
    assert_eq!(client.get_data("/a", false).unwrap().0, b"data");
    assert_eq!(client.set_data("/a", vec![1], Some(0)).unwrap().version, 1);
    assert_eq!(client.set_data("/a", vec![1], Some(0)).unwrap_err(), ZkError::BadVersion);
    let mut names = client.get_children("/a", false).unwrap();
    names.sort();
    assert_eq!(names, ["box", "n-0000000000"]);
    assert_eq!(client.get_acl("/a").unwrap().0, *Acl::open_unsafe());
    client.set_acl("/a/box", Acl::read_unsafe().clone(), None).unwrap();
    assert_eq!(client.get_acl("/a/box").unwrap().0, *Acl::read_unsafe());
    assert_eq!(client.delete("/a", None), Err(ZkError::NotEmpty));
    client.delete("/a/n-0000000000", None).unwrap();
    assert!(client.exists("/a/n-0000000000", false).unwrap().is_none());
    assert_eq!(client.get_data("/none", false).map(drop), Err(ZkError::NoNode));
    assert_eq!(owner(&at, "/a"), Some(0));
    // A watch on the root. At the server this is the chroot.
    let (watch, events) = watcher();
    client.get_children_w("/", watch).unwrap();
    make(&client, "/b", CreateMode::Persistent);
    assert_eq!(
        events.recv_timeout(SOON).unwrap(),
        (WatchedEventType::NodeChildrenChanged, "/".into())
    );
}

fn the_client_and_the_locks_are_one_session_at_the_server() {
    let at = Shared::chroot();
    let session = session(&at);
    let client = session.client().unwrap();
    make(&client, "/host", CreateMode::Ephemeral);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let contender = mutex.contenders().unwrap().remove(0);
    let id = session.status().session_id;
    assert_eq!(owner(&at, "/host"), id);
    let names = client.get_children(LOCK, false).unwrap();
    assert_eq!(names.len(), 1, "{contender:?}");
    assert_eq!(owner(&at, &format!("{LOCK}/{}", names[0])), id);
    guard.unlock().unwrap();
    session.close().unwrap();
    until_gone(&at, "/host");
}

fn a_shared_session_refuses_what_it_cannot_do_and_keeps_its_connection() {
    let at = Shared::chroot();
    let session = session(&at);
    let events = session.subscribe();
    let client = session.client().unwrap();
    make(&client, "/n", CreateMode::Persistent);
    let lasting = client.add_watch("/n", AddWatchMode::PersistentRecursive, |_| ());
    assert_eq!(lasting, Err(ZkError::Unimplemented));
    assert_eq!(client.remove_watches("/n", WatcherType::Any), Err(ZkError::Unimplemented));
    assert_eq!(client.add_auth("digest", b"me:pw".to_vec()), Err(ZkError::Unimplemented));
    assert_eq!(client.add_auth("nonsense", vec![]), Err(ZkError::Unimplemented));
    for length in [1 << 20, 20 << 20] {
        assert_eq!(
            client.set_data("/n", vec![0; length], None).map(drop),
            Err(ZkError::BadArguments)
        );
    }
    assert_eq!(client.get_data("/n", false).unwrap().0, b"data");
    assert!(!events.try_iter().any(|event| event == SessionEvent::Suspended));
}

/// A server sends an event once to each session, whichever watch it fires.
fn watches_of_the_client_and_of_locks_on_the_same_nodes_all_fire() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let client = ours.client().unwrap();
    let (mutex, other) = (ZkMutex::new(&ours, LOCK).unwrap(), ZkMutex::new(&theirs, LOCK).unwrap());
    for _ in 0..20 {
        let guard = other.lock().unwrap();
        let path = format!("{LOCK}/{}", client.get_children(LOCK, false).unwrap()[0]);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                mutex.lock_timeout(SOON).optional().unwrap().expect("the release wakes us").unlock()
            });
            until("a second contender", SOON, || {
                (client.get_children(LOCK, false).unwrap().len() == 2).then_some(())
            });
            let (watch, node) = watcher();
            client.get_data_w(&path, watch).unwrap();
            let (watch, list) = watcher();
            client.get_children_w(LOCK, watch).unwrap();
            guard.unlock().unwrap();
            assert_eq!(node.recv_timeout(SOON).unwrap(), (WatchedEventType::NodeDeleted, path));
            assert_eq!(list.recv_timeout(SOON).unwrap().0, WatchedEventType::NodeChildrenChanged);
            waiter.join().unwrap().unwrap();
            assert!(node.try_recv().is_err() && list.try_recv().is_err(), "each watch fires once");
        });
        until_empty(&at, LOCK);
    }
}

fn many_threads_use_one_client_while_others_lock() {
    let at = Shared::chroot();
    let session = session(&at);
    let client = session.client().unwrap();
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    make(&client, "/n", CreateMode::Persistent);
    thread::scope(|scope| {
        for i in 0..16 {
            let (client, mutex) = (&client, &mutex);
            scope.spawn(move || {
                for round in 0..40 {
                    let path = format!("/n/{i}-{round}");
                    let data = path.clone().into_bytes();
                    let acl = Acl::open_unsafe().clone();
                    client.create(&path, data.clone(), acl, CreateMode::Ephemeral).unwrap();
                    assert_eq!(
                        client.get_data(&path, false).unwrap().0,
                        data,
                        "the answer of another thread's request"
                    );
                    client.delete(&path, None).unwrap();
                    if i < 4 {
                        mutex.lock().unwrap().unlock().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(client.get_children("/n", false).unwrap(), Vec::<String>::new());
    until_empty(&at, LOCK);
}

// ---- its end, and the end of the session ----

fn every_caller_gets_the_same_client_while_it_lives() {
    let session = session(&Shared::chroot());
    let clients: Vec<Arc<ZooKeeper>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| session.client().unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(clients.iter().all(|client| Arc::ptr_eq(client, &clients[0])));
}

fn closing_the_client_ends_neither_locks_nor_ephemeral_nodes() {
    let at = Shared::chroot();
    let session = session(&at);
    let (id, events) = (session.status().session_id, session.subscribe());
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    for round in 0..5 {
        let client = session.client().unwrap();
        let path = make(&client, "/host-", CreateMode::EphemeralSequential);
        if round % 2 == 0 {
            client.close().unwrap();
            assert_eq!(client.exists("/", false).map(drop), Err(ZkError::ConnectionLoss));
            assert!(
                !Arc::ptr_eq(&client, &session.client().unwrap()),
                "the closed client is returned again"
            );
        }
        drop(client);
        assert_eq!(owner(&at, &path), id);
        guard.check().unwrap();
    }
    guard.unlock().unwrap();
    assert_eq!((session.status().session_id, events.try_iter().count()), (id, 0));
}

fn closing_the_session_ends_the_client() {
    let at = Shared::chroot();
    let session = session(&at);
    let client = session.client().unwrap();
    make(&client, "/host", CreateMode::Ephemeral);
    session.close().unwrap();
    until_gone(&at, "/host");
    for _ in 0..3 {
        assert_eq!(client.exists("/host", false).map(drop), Err(ZkError::SessionExpired));
    }
    assert!(matches!(session.client().map(drop), Err(Error::Closed { .. })));
    client.close().unwrap();
}

fn the_client_does_not_keep_the_session_open() {
    let at = Shared::chroot();
    let session = session(&at);
    let client = session.client().unwrap();
    make(&client, "/host", CreateMode::Ephemeral);
    drop(session);
    until_gone(&at, "/host");
    assert_eq!(client.exists("/host", false).map(drop), Err(ZkError::SessionExpired));
}

// ---- its cost ----

fn a_client_has_four_threads_and_no_port_once_it_is_in() {
    let at = Shared::chroot();
    let session = session(&at);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    let before = threads().len();
    let settled = |expected: usize| {
        until(&format!("{expected} threads more"), SOON, || {
            (threads().len() == before + expected).then_some(())
        });
        assert!(listening().is_empty());
    };
    for _ in 0..3 {
        let client = session.client().unwrap();
        client.exists("/", false).unwrap();
        settled(4);
        drop(client);
        settled(0);
    }
    let client = session.client().unwrap();
    client.exists("/", false).unwrap();
    session.close().unwrap();
    drop(client);
    // The session's own two threads have ended, too.
    until("the end of all threads", SOON, || (threads().len() + 2 == before).then_some(()));
}

/// While the port listens, every process of the host can connect to it.
fn strangers_at_the_clients_port_disturb_neither_client_nor_locks() {
    let at = Shared::chroot();
    let session = session(&at);
    let stop = AtomicBool::new(false);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    thread::scope(|scope| {
        let all = Over(&stop);
        let knocker = scope.spawn(|| {
            let mut strangers = Vec::new();
            while !stop.load(Ordering::SeqCst) {
                for port in listening() {
                    for words in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 5000], &[0; 49], &[]] {
                        let port = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                        if let Ok(mut stranger) =
                            TcpStream::connect_timeout(&port, Duration::from_secs(1))
                        {
                            let _ = stranger.write_all(words);
                            strangers.push(stranger);
                        }
                    }
                }
            }
            strangers.len()
        });
        for _ in 0..50 {
            let client = session.client().unwrap();
            assert!(client.exists(LOCK, false).is_ok());
            mutex.lock().unwrap().unlock().unwrap();
        }
        drop(all);
        println!("{} strangers came in time", knocker.join().unwrap());
    });
}

/// A client that is stuck in a callback of the application blocks no other user of the session.
fn a_stuck_client_holds_up_no_lock() {
    let at = Shared::chroot();
    let session = session(&at);
    let client = session.client().unwrap();
    make(&client, "/n", CreateMode::Persistent);
    let (release, gate) = crossbeam_channel::bounded::<()>(0);
    client.add_listener(move |_| assert!(gate.recv().is_err()));
    let (watch, fired) = watcher();
    client.get_data_w("/n", watch).unwrap();
    thread::scope(|scope| {
        // The close is answered. Before its caller gets the answer, the listener blocks the
        // client's io thread.
        let closing = scope.spawn(|| client.close());
        let other = until("a client that is not closed", SOON, || {
            let other = session.client().unwrap();
            (!Arc::ptr_eq(&other, &client)).then_some(other)
        });
        let mutex = ZkMutex::new(&session, LOCK).unwrap();
        for round in 0..50u8 {
            mutex.lock().unwrap().unlock().unwrap();
            other.set_data("/n", vec![round], None).unwrap();
        }
        drop(release);
        closing.join().unwrap().unwrap();
    });
    assert!(fired.try_recv().is_err(), "the watches of a closed client are gone");
    until_empty(&at, LOCK);
}

/// A logger of the application panics on the crate's reader thread. The session has other users, so
/// it goes on.
fn a_client_whose_thread_dies_is_replaced_and_costs_no_lock() {
    let at = Shared::chroot();
    let session = session(&at);
    let (id, events) = (session.status().session_id, session.subscribe());
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let client = session.client().unwrap();
    make(&client, "/host", CreateMode::Ephemeral);
    let level = log::max_level();
    logged::trap("Response chunk len");
    log::set_max_level(log::LevelFilter::Trace);
    assert_eq!(client.exists("/host", false).map(drop), Err(ZkError::ConnectionLoss));
    log::set_max_level(level);
    assert_eq!(logged::panics(), 1);
    let new = until("another client", SOON, || {
        let new = session.client().unwrap();
        (!Arc::ptr_eq(&new, &client)).then_some(new)
    });
    assert!(new.exists("/host", false).unwrap().is_some());
    assert_eq!(client.exists("/host", false).map(drop), Err(ZkError::ConnectionLoss));
    drop(client);
    guard.unlock().unwrap();
    assert_eq!((session.status().session_id, events.try_iter().count()), (id, 0));
    until_empty(&at, LOCK);
}

fn a_listing_that_is_too_long_is_an_error_of_that_call_alone() {
    let server = Server::start();
    let session = session(&server.connect_string());
    let events = session.subscribe();
    let mut raw = Raw::connect(&server.connect_string()).unwrap();
    raw.create("/many", b"", raw::PERSISTENT).unwrap();
    for i in 0..17 {
        raw.create(&format!("/many/{i:02}{}", "x".repeat(1_000_000)), b"", raw::PERSISTENT)
            .unwrap();
    }
    let client = session.client().unwrap();
    assert_eq!(client.get_children("/many", false).map(drop), Err(ZkError::APIError));
    assert_eq!(client.exists("/many", false).unwrap().unwrap().num_children, 17);
    assert!(!events.try_iter().any(|event| event == SessionEvent::Suspended));
}

scenarios![
    all_calls_of_the_client_work_below_the_chroot,
    the_client_and_the_locks_are_one_session_at_the_server,
    a_shared_session_refuses_what_it_cannot_do_and_keeps_its_connection,
    watches_of_the_client_and_of_locks_on_the_same_nodes_all_fire,
    many_threads_use_one_client_while_others_lock,
    every_caller_gets_the_same_client_while_it_lives,
    closing_the_client_ends_neither_locks_nor_ephemeral_nodes,
    closing_the_session_ends_the_client,
    the_client_does_not_keep_the_session_open,
    a_client_has_four_threads_and_no_port_once_it_is_in,
    strangers_at_the_clients_port_disturb_neither_client_nor_locks,
    a_stuck_client_holds_up_no_lock,
    a_client_whose_thread_dies_is_replaced_and_costs_no_lock,
    a_listing_that_is_too_long_is_an_error_of_that_call_alone on embedded,
];
