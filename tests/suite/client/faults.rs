//! The application's client on the lock's session, under faults: its requests and watches continue
//! while the session does and end with the session, and no fault of the client affects a lock.
use crate::client::calls::{Fired, make, watcher};
use crate::support::{
    OpKind, Proxy, Raw, Server, Shared, raw, scenarios,
    scene::{SOON, expire, full_path, session_of, until_event, until_state},
    until,
    wire::Writer,
};
use crossbeam_channel::{Receiver, unbounded};
use std::{
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    SessionEvent, SessionState, ZkMutex, ZkSession,
    zookeeper::{
        Acl, CreateMode, WatchedEvent,
        WatchedEventType::{self, NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted},
        ZkError, ZkResult,
    },
};

/// The session timeout of scenarios that wait until the server expires a session, or for a sixth of
/// the timeout.
const T: Duration = Duration::from_secs(6);
/// The session timeout of scenarios in which no session may expire, even on a busy machine.
const LONG: Duration = Duration::from_secs(30);
const LOCK: &str = "/lock";

/// A chroot of the scenario's own on the shared server, with its addresses past a proxy and through
/// it.
struct Stage {
    proxy: Proxy,
    direct: String,
    session: ZkSession,
    events: Receiver<SessionEvent>,
}

impl Stage {
    fn new(timeout: Duration) -> Stage {
        let direct = Shared::chroot();
        let (server, chroot) = direct.split_once('/').unwrap();
        let proxy = Proxy::start(server.parse().unwrap());
        let session = session_of(&format!("{}/{chroot}", proxy.connect_string()), timeout);
        let events = session.subscribe();
        Stage { proxy, direct, session, events }
    }

    fn raw(&self) -> Raw {
        Raw::connect(&self.direct).unwrap()
    }

    fn full(&self, path: &str) -> String {
        full_path(&self.direct, path)
    }

    /// No host answers during `meanwhile`; returns when the session is resumed.
    #[track_caller]
    fn outage(&self, meanwhile: impl FnOnce()) {
        self.proxy.refuse(true);
        self.proxy.cut();
        until_state(&self.session, SessionState::Suspended);
        meanwhile();
        self.proxy.refuse(false);
        self.resumed();
    }

    #[track_caller]
    fn resumed(&self) {
        let seen = until_event(&self.events, |event| *event == SessionEvent::Reconnected);
        assert!(!seen.iter().any(|event| matches!(event, SessionEvent::Lost(_))), "{seen:?}");
    }
}

#[track_caller]
fn fires(events: &Receiver<Fired>, kind: WatchedEventType, path: &str) {
    assert_eq!(events.recv_timeout(SOON).expect(path), (kind, path.to_owned()));
}

/// Repeats the call until the connection lasts long enough for it.
#[track_caller]
fn until_answered<T>(mut call: impl FnMut() -> ZkResult<T>) -> T {
    until("an answer", SOON, || match call() {
        Ok(answer) => Some(answer),
        Err(ZkError::ConnectionLoss) => None,
        Err(e) => panic!("{e:?}"),
    })
}

// ---- requests ----

fn requests_go_on_after_each_cut() {
    let stage = Stage::new(LONG);
    let client = stage.session.client().unwrap();
    make(&client, "/n", CreateMode::Ephemeral);
    for round in 0..10u8 {
        stage.proxy.cut();
        until_answered(|| client.set_data("/n", vec![round], None));
        stage.resumed();
        assert_eq!(until_answered(|| client.get_data("/n", false)).0, [round]);
    }
}

fn a_request_whose_reply_is_lost_is_a_connection_loss() {
    let stage = Stage::new(LONG);
    let client = stage.session.client().unwrap();
    stage.proxy.drop_reply(OpKind::Create.on("/n"));
    let made = client.create("/n", vec![], Acl::open_unsafe().clone(), CreateMode::Ephemeral);
    assert_eq!(made, Err(ZkError::ConnectionLoss));
    stage.resumed();
    assert!(
        until_answered(|| client.exists("/n", false)).is_some(),
        "the server has executed the create"
    );
}

/// In a black hole, and while no server can be reached. The outage ends after both calls have
/// returned.
fn no_request_waits_for_the_end_of_an_outage() {
    let stage = Stage::new(T);
    let client = stage.session.client().unwrap();
    make(&client, "/n", CreateMode::Persistent);
    stage.proxy.black_hole(true);
    assert_eq!(client.get_data("/n", false).map(drop), Err(ZkError::ConnectionLoss));
    stage.proxy.refuse(true);
    stage.proxy.cut();
    assert!(matches!(
        client.get_data("/n", false).map(drop),
        Err(ZkError::ConnectionLoss | ZkError::SessionExpired)
    ));
    stage.proxy.refuse(false);
    stage.proxy.black_hole(false);
}

/// The crate itself hangs or panics at most of these inputs.
fn nonsense_of_the_server_does_not_reach_the_client() {
    let stage = Stage::new(LONG);
    let client = stage.session.client().unwrap();
    make(&client, "/n", CreateMode::Ephemeral);
    let (w, data) = watcher();
    client.get_data_w("/n", w).unwrap();
    let head = |xid: i32| Writer::new().i32(xid).i64(1).i32(0);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("a negative length", vec![0xff; 4]),
        ("an empty frame", vec![0; 4]),
        ("half a header", vec![0, 0, 0, 6, 0, 0, 0, 1, 0, 0]),
        ("an unknown xid", head(123_456_789).frame()),
        ("a watch event without a body", head(-1).frame()),
        ("a watch event of no type", head(-1).i32(99).i32(3).string(&stage.full("/n")).frame()),
        ("a watch event of no state", head(-1).i32(3).i32(77).string(&stage.full("/n")).frame()),
        (
            "a watch event whose path is no text",
            head(-1).i32(2).i32(3).buffer(&[0xff, 0xfe]).frame(),
        ),
        ("a watch event outside the chroot", head(-1).i32(3).i32(3).string("/").frame()),
    ];
    for (what, words) in cases {
        stage.proxy.inject(&words);
        if what != "a watch event outside the chroot" {
            stage.resumed();
        }
        assert!(until_answered(|| client.exists("/n", false)).is_some(), "{what}");
    }
    assert!(data.try_recv().is_err());
    client.set_data("/n", vec![1], None).unwrap();
    fires(&data, NodeDataChanged, "/n");
}

fn requests_go_on_after_a_restart_of_the_server() {
    let server = Server::start();
    let session = session_of(&server.connect_string(), LONG);
    let client = session.client().unwrap();
    make(&client, "/n", CreateMode::Ephemeral);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let (w, data) = watcher();
    client.get_data_w("/n", w).unwrap();
    for round in 0..3u8 {
        server.restart();
        until_answered(|| client.exists("/n", false)).expect("the session lives");
        if round == 1 {
            until_answered(|| client.set_data("/n", vec![round], None));
            fires(&data, NodeDataChanged, "/n");
        }
    }
    assert!(guard.is_held());
    assert!(data.try_recv().is_err());
}

// ---- watches ----

fn changes_in_an_outage_are_delivered_after_it() {
    let stage = Stage::new(LONG);
    let client = stage.session.client().unwrap();
    for path in ["/data", "/gone", "/list", "/calm", "/later"] {
        make(&client, path, CreateMode::Persistent);
    }
    let (w, data) = watcher();
    client.get_data_w("/data", w).unwrap();
    let (w, gone) = watcher();
    client.exists_w("/gone", w).unwrap();
    let (w, list) = watcher();
    client.get_children_w("/list", w).unwrap();
    let (w, made) = watcher();
    client.exists_w("/made", w).unwrap();
    let (w, calm) = watcher();
    client.get_data_w("/calm", w).unwrap();
    let (w, later) = watcher();
    client.get_children_w("/later", w).unwrap();
    stage.outage(|| {
        let mut raw = stage.raw();
        raw.set_data(&stage.full("/data"), b"new").unwrap();
        raw.delete(&stage.full("/gone")).unwrap();
        raw.create(&stage.full("/list/child"), b"", raw::PERSISTENT).unwrap();
        raw.create(&stage.full("/made"), b"", raw::PERSISTENT).unwrap();
    });
    fires(&data, NodeDataChanged, "/data");
    fires(&gone, NodeDeleted, "/gone");
    fires(&list, NodeChildrenChanged, "/list");
    fires(&made, NodeCreated, "/made");
    for _ in 0..3 {
        stage.outage(|| ());
    }
    stage.raw().create(&stage.full("/later/child"), b"", raw::PERSISTENT).unwrap();
    fires(&later, NodeChildrenChanged, "/later");
    // The server sent everything else before this answer.
    until_answered(|| client.exists("/calm", false));
    for events in [data, gone, list, made, calm, later] {
        assert!(
            events.try_recv().is_err(),
            "each watch fires once, and the watch of the unchanged node never"
        );
    }
}

/// The first connection after the outage dies before its first answer. The change is delivered on
/// the next connection.
fn changes_are_delivered_though_the_reconnection_fails_at_first() {
    let stage = Stage::new(LONG);
    let client = stage.session.client().unwrap();
    make(&client, "/n", CreateMode::Persistent);
    let (w, data) = watcher();
    client.get_data_w("/n", w).unwrap();
    stage.outage(|| {
        stage.raw().set_data(&stage.full("/n"), b"new").unwrap();
        // The proxy counts `setWatches` among the other operations.
        stage.proxy.drop_request(OpKind::Other);
    });
    until_answered(|| client.exists("/n", false));
    fires(&data, NodeDataChanged, "/n");
    assert_eq!(stage.proxy.plans(), 0, "the fault was injected");
    assert!(data.try_recv().is_err());
}

/// Setting them again takes more than one request, because a server accepts 1 MiB.
fn thousands_of_watches_survive_a_cut() {
    const COUNT: usize = 3000;
    let stage = Stage::new(LONG);
    let client = stage.session.client().unwrap();
    make(&client, "/n", CreateMode::Persistent);
    let (tell, fired) = unbounded();
    let path = |i: usize| format!("/n/{i:0>500}");
    for i in 0..COUNT {
        let tell = tell.clone();
        let watcher = move |event: WatchedEvent| {
            let _ = tell.send(event.path.unwrap_or_default());
        };
        assert!(client.exists_w(&path(i), watcher).unwrap().is_none());
    }
    stage.outage(|| ());
    let mut raw = stage.raw();
    for i in 0..COUNT {
        raw.create(&stage.full(&path(i)), b"", raw::PERSISTENT).unwrap();
    }
    for i in 0..COUNT {
        assert_eq!(fired.recv_timeout(SOON).unwrap(), path(i));
    }
    raw.delete_recursive(&stage.full("/n")).unwrap();
    assert!(fired.try_recv().is_err());
}

// ---- the end of the session ----

fn an_expired_session_is_a_clean_error_and_a_new_client_is_of_the_new_session() {
    let stage = Stage::new(LONG);
    let client = stage.session.client().unwrap();
    make(&client, "/host", CreateMode::Ephemeral);
    let (w, old) = watcher();
    client.exists_w("/later", w).unwrap();
    let before = stage.session.status().session_id;
    expire(&stage.proxy, &stage.direct);
    until_event(&stage.events, |event| matches!(event, SessionEvent::Connected { .. }));
    for _ in 0..3 {
        assert_eq!(client.exists("/host", false).map(drop), Err(ZkError::SessionExpired));
    }
    let new = stage.session.client().unwrap();
    assert!(
        until_answered(|| new.exists("/host", false)).is_none(),
        "the node was deleted with its session"
    );
    make(&new, "/host", CreateMode::Ephemeral);
    make(&new, "/later", CreateMode::Persistent);
    let owner = stage.raw().exists(&stage.full("/host")).unwrap().unwrap().ephemeral_owner;
    assert_eq!(Some(owner), stage.session.status().session_id);
    assert_ne!(Some(owner), before);
    assert!(old.try_recv().is_err(), "the old client's watches are gone");
    client.close().unwrap();
    assert!(
        new.exists("/host", false).unwrap().is_some(),
        "the old client ends nothing of the new one"
    );
}

fn a_client_requested_in_an_outage_comes_with_the_connection() {
    let stage = Stage::new(LONG);
    thread::scope(|scope| {
        let mut asks = None;
        stage.outage(|| asks = Some(scope.spawn(|| stage.session.client())));
        let client = asks.unwrap().join().unwrap().unwrap();
        until_answered(|| client.exists("/", false));
    });
}

fn a_client_closed_in_an_outage_closes_and_the_lock_is_still_held() {
    let stage = Stage::new(LONG);
    let mutex = ZkMutex::new(&stage.session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let client = stage.session.client().unwrap();
    make(&client, "/host", CreateMode::Ephemeral);
    stage.outage(|| {
        client.close().unwrap();
        drop(client);
    });
    assert!(guard.is_held());
    assert!(until_answered(|| stage.session.client().unwrap().exists("/host", false)).is_some());
}

// ---- locks ----

/// Whatever the client does, the lease is renewed for several session timeouts.
fn a_busy_client_does_not_cost_a_lock_its_lease() {
    let stage = Stage::new(T);
    let mutex = ZkMutex::new(&stage.session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    let client = stage.session.client().unwrap();
    client
        .create("/big", vec![7; 900_000], Acl::open_unsafe().clone(), CreateMode::Persistent)
        .unwrap();
    let end = Instant::now() + 2 * T;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while Instant::now() < end {
                    until_answered(|| client.get_data("/big", false));
                    assert_eq!(
                        client.set_data("/big", vec![0; 2 << 20], None).map(drop),
                        Err(ZkError::BadArguments)
                    );
                    assert_eq!(client.add_auth("nonsense", vec![]), Err(ZkError::Unimplemented));
                }
            });
        }
    });
    guard.unlock().unwrap();
    assert!(!stage.events.try_iter().any(|event| matches!(event, SessionEvent::Lost(_))));
}

scenarios![
    requests_go_on_after_each_cut,
    a_request_whose_reply_is_lost_is_a_connection_loss,
    no_request_waits_for_the_end_of_an_outage,
    nonsense_of_the_server_does_not_reach_the_client,
    requests_go_on_after_a_restart_of_the_server,
    changes_in_an_outage_are_delivered_after_it,
    changes_are_delivered_though_the_reconnection_fails_at_first,
    thousands_of_watches_survive_a_cut,
    an_expired_session_is_a_clean_error_and_a_new_client_is_of_the_new_session,
    a_client_requested_in_an_outage_comes_with_the_connection,
    a_client_closed_in_an_outage_closes_and_the_lock_is_still_held,
    a_busy_client_does_not_cost_a_lock_its_lease,
];
