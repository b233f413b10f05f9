//! Requests while connections break, servers are away, and sessions end.

use crate::support::{
    Acl, CreateMode, Error, OpKind, Proxied, Proxy, Requests, SOON, Server, Session, make,
    scenarios, session, until,
};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use zk_session::{CancelToken, Cause, Config, Op, RetryPolicy, SessionState};
use zk_test_server::Op as Requested;
use zk_test_support::{Direction, Ensemble, Which, control};

const OPEN: &Acl = &Acl::Open;
/// Long enough for an answer that does not wait for the leader.
const A_WHILE: Duration = Duration::from_millis(200);

/// A call, and how the proxy sees its request.
type Call = (Which, fn(&Requests) -> Result<(), Error>);

fn cause(refused: Error) -> Cause {
    match refused {
        Error::Unavailable { cause, .. } => cause,
        e => panic!("{e:?}"),
    }
}

fn a_read_whose_answer_is_lost_is_sent_again() {
    let scene = Proxied::start();
    let zk = scene.requests();
    make(&zk, "/a", b"data");
    make(&zk, "/a/b", b"");
    let reads: [Call; 5] = [
        (OpKind::GetData.on("/a"), |zk| zk.get("/a").map(|n| assert_eq!(n.data, b"data"))),
        (OpKind::Exists.on("/a"), |zk| zk.exists("/a").map(|stat| assert!(stat.is_some()))),
        (OpKind::GetChildren.on("/a"), |zk| zk.children("/a").map(|all| assert_eq!(all, ["b"]))),
        (OpKind::Other.on("/a"), |zk| zk.acl("/a").map(|(acl, _)| assert_eq!(acl[0].id, "anyone"))),
        (OpKind::Sync.into(), |zk| zk.sync()),
    ];
    for (which, read) in reads {
        scene.proxy.clear();
        scene.proxy.drop_reply(which.clone());
        read(&zk).unwrap_or_else(|e| panic!("{which:?}: {e}"));
        assert_eq!((scene.proxy.plans(), scene.proxy.count(which.clone())), (0, 2), "{which:?}");
    }
}

fn a_write_whose_answer_is_lost_is_not_sent_again() {
    let scene = Proxied::start();
    let zk = scene.requests();
    make(&zk, "/a", b"");
    make(&zk, "/gone", b"");
    make(&zk, "/acl", b"");
    let mut raw = scene.raw();
    let writes: [Call; 4] = [
        (OpKind::Create.on("/n-"), |zk| {
            zk.create("/n-", b"", CreateMode::PersistentSequential, OPEN).map(drop)
        }),
        (OpKind::SetData.on("/a"), |zk| zk.set("/a", b"once", None).map(drop)),
        (OpKind::Delete.on("/gone"), |zk| zk.delete("/gone", None)),
        (OpKind::Other.on("/acl"), |zk| zk.set_acl("/acl", OPEN, None).map(drop)),
    ];
    for (which, write) in writes {
        scene.proxy.clear();
        scene.proxy.drop_reply(which.clone());
        let refused = write(&zk).unwrap_err();
        assert!(refused.is_transient(), "{which:?}: {refused:?}");
        assert_eq!(cause(refused), Cause::ConnectionLost, "{which:?}");
        // The next answer comes on another connection, behind all that the session has sent again.
        zk.sync().unwrap();
        assert_eq!((scene.proxy.plans(), scene.proxy.count(which.clone())), (0, 1), "{which:?}");
    }
    // Each was done, once.
    let names = raw.children("/").unwrap();
    assert_eq!(names.iter().filter(|name| name.starts_with("n-")).count(), 1, "{names:?}");
    assert!(!names.contains(&"gone".to_owned()));
    assert_eq!(zk.get("/a").unwrap().stat.version, 1);
    assert_eq!(zk.exists("/acl").unwrap().unwrap().aversion, 1);
}

fn a_multi_whose_answer_is_lost_is_not_sent_again() {
    let server = Server::start();
    let zk = session(&server.connect_string()).requests().within(SOON);
    make(&zk, "/a", b"");
    let embedded = server.embedded_server();
    embedded.drop_reply(Requested::Multi);
    let refused = zk.multi(&[Op::Set { path: "/a", data: b"once", version: None }]).unwrap_err();
    assert_eq!(cause(refused), Cause::ConnectionLost);
    zk.sync().unwrap();
    assert_eq!((embedded.pending_faults(), embedded.count(Requested::Multi)), (0, 1));
    assert_eq!(zk.get("/a").unwrap().stat.version, 1);
}

fn a_write_that_was_not_sent_is_sent_when_there_is_a_connection() {
    let scene = Proxied::start();
    let zk = scene.requests();
    make(&zk, "/a", b"");
    scene.begin_outage();
    scene.proxy.clear();
    let (called, is_called) = mpsc::channel();
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            called.send(()).unwrap();
            let made = zk.create("/n-", b"", CreateMode::PersistentSequential, OPEN);
            made.and_then(|_| zk.set("/a", b"new", Some(0)))
        });
        is_called.recv().unwrap();
        // Another call waits in vain meanwhile.
        let refused = zk.clone().within(Duration::from_millis(500)).set("/a", b"no", None);
        assert!(matches!(cause(refused.unwrap_err()), Cause::Outage(_)));
        scene.end_outage();
        assert_eq!(writing.join().unwrap().unwrap().version, 1);
    });
    zk.sync().unwrap();
    assert_eq!(scene.proxy.count(OpKind::Create.on("/n-")), 1);
    assert_eq!(scene.proxy.count(OpKind::SetData.on("/a")), 1, "the other was never sent");
}

fn a_call_in_an_outage_ends_at_its_deadline_and_names_the_hosts() {
    control::start();
    let scene = Proxied::start();
    scene.begin_outage();
    let time = Duration::from_secs(1);
    let whole = time..time + Duration::from_secs(1);
    let zk = scene.session.requests();
    let begun = Instant::now();
    let refused = zk.clone().within(time).get("/").unwrap_err();
    control::assert_lasted(begun, whole.clone());
    let Cause::Outage(hosts) = cause(refused) else { panic!("no outage") };
    assert_eq!(hosts.len(), 1);
    assert_eq!(hosts[0].host, scene.proxy.connect_string());
    let begun = Instant::now();
    let refused = zk.clone().until(begun + time).within(SOON).delete("/a", None).unwrap_err();
    control::assert_lasted(begun, whole);
    assert!(matches!(cause(refused), Cause::Outage(_)));
}

fn a_call_without_a_deadline_waits_for_as_long_as_the_retry_policy_allows() {
    control::start();
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    let time = Duration::from_secs(1);
    let policy = RetryPolicy { max_elapsed: time, ..RetryPolicy::default() };
    let config = Config::new(proxy.connect_string()).retry_policy(policy);
    let session = Session::connect(config).unwrap();
    proxy.refuse(true);
    proxy.cut();
    until("the outage", SOON, || (session.status().state == SessionState::Suspended).then_some(()));
    let begun = Instant::now();
    let refused = session.requests().exists("/").unwrap_err();
    control::assert_lasted(begun, time..time + Duration::from_secs(1));
    assert!(matches!(cause(refused), Cause::Outage(_)));
}

fn a_silent_server_ends_no_call_too_late() {
    control::start();
    let scene = Proxied::start();
    let zk = scene.session.requests();
    zk.sync().unwrap();
    scene.proxy.black_hole(true);
    let time = Duration::from_secs(1);
    for write in [false, true] {
        let zk = zk.clone().within(time);
        let begun = Instant::now();
        let refused = if write { zk.set("/", b"", None).err() } else { zk.get("/").err() };
        control::assert_lasted(begun, time..time + Duration::from_secs(1));
        assert_eq!(refused.map(cause), Some(Cause::Deadline), "write: {write}");
    }
    scene.proxy.black_hole(false);
}

fn a_call_whose_time_is_over_before_it_begins_sends_nothing() {
    let scene = Proxied::start();
    let zk = scene.session.requests();
    scene.proxy.clear();
    let token = CancelToken::new();
    token.cancel();
    let path = "/a".to_owned();
    let past = zk.clone().until(Instant::now());
    assert_eq!(cause(past.set("/a", b"", None).unwrap_err()), Cause::Deadline);
    assert_eq!(cause(zk.clone().within(Duration::ZERO).get("/a").unwrap_err()), Cause::Deadline);
    let cancelled = zk.clone().cancelled_by(&token);
    assert_eq!(cancelled.get("/a").unwrap_err(), Error::Cancelled { path: path.clone() });
    assert_eq!(cancelled.delete("/a", None).unwrap_err(), Error::Cancelled { path });
    zk.sync().unwrap();
    let sent = scene.proxy.requests();
    assert!(sent.iter().any(|request| request.kind == OpKind::Sync), "{sent:?}");
    assert!(sent.iter().all(|request| request.path.as_deref() != Some("/a")), "{sent:?}");
}

fn a_token_ends_a_call_that_waits() {
    let scene = Proxied::start();
    let token = CancelToken::new();
    let zk = scene.requests().cancelled_by(&token);
    make(&zk, "/a", b"");
    // One waits for its answer, the other for a connection.
    scene.proxy.hold_replies(true);
    let sent = scene.proxy.on_request(OpKind::SetData.on("/a"), SOON);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| zk.set("/a", b"new", None));
        sent.wait();
        token.cancel();
        let refused = waiting.join().unwrap().unwrap_err();
        assert_eq!(refused, Error::Cancelled { path: "/a".into() });
    });
    scene.proxy.hold_replies(false);
    let token = CancelToken::new();
    let zk = scene.requests().cancelled_by(&token);
    scene.begin_outage();
    let (called, is_called) = mpsc::channel();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            called.send(()).unwrap();
            zk.get("/a")
        });
        is_called.recv().unwrap();
        token.cancel();
        let refused = waiting.join().unwrap().unwrap_err();
        assert_eq!(refused, Error::Cancelled { path: "/a".into() });
    });
}

fn a_call_goes_on_in_the_next_session() {
    let server = Server::start();
    let session = session(&server.connect_string());
    let zk = session.requests().within(SOON);
    make(&zk, "/a", b"data");
    let goes = zk.create("/goes", b"", CreateMode::Ephemeral, OPEN).unwrap();
    let embedded = server.embedded_server();
    let old = session.status().session_id.unwrap();
    assert_eq!(goes.stat.owner, old);
    embedded.refuse(true);
    embedded.cut_connections();
    assert!(embedded.expire_session(old));
    until("the outage", SOON, || (session.status().state == SessionState::Suspended).then_some(()));
    let (called, is_called) = mpsc::channel();
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            called.send(()).unwrap();
            zk.get("/a")
        });
        is_called.recv().unwrap();
        embedded.refuse(false);
        assert_eq!(reading.join().unwrap().unwrap().data, b"data");
    });
    assert_eq!(zk.exists("/goes").unwrap(), None);
    let made = zk.create("/goes", b"", CreateMode::Ephemeral, OPEN).unwrap();
    assert_ne!(made.stat.owner, old);
    assert_eq!(Some(made.stat.owner), session.status().session_id);
}

fn requests_keep_the_session_open_until_it_is_closed() {
    let server = Server::start();
    let zk = session(&server.connect_string()).requests().within(SOON);
    assert!(zk.exists("/").unwrap().is_some(), "the other handle is dropped");
    let session = session(&server.connect_string());
    let zk = session.requests().within(SOON);
    session.close().unwrap();
    assert_eq!(zk.get("/").unwrap_err(), Error::Closed { op: "read", path: "/".into() });
    let refused = zk.set("/", b"", None).unwrap_err();
    assert_eq!(refused, Error::Closed { op: "write", path: "/".into() });
}

fn a_sync_shows_what_another_client_has_done_at_another_server() {
    // The follower gives its leader up after four ticks without a word.
    let ensemble = Ensemble::start_with(3, Server::real().tick(Duration::from_secs(2)));
    let (leader, follower) = (ensemble.leader(), ensemble.followers()[0]);
    let to_follower = Proxy::start(ensemble.member(follower).address());
    let ours = session(&to_follower.connect_string()).requests().within(SOON);
    let theirs = session(&ensemble.member(leader).connect_string()).requests().within(SOON);
    make(&theirs, "/config", b"old");
    ours.sync().unwrap();
    assert_eq!(ours.get("/config").unwrap().data, b"old");
    // From now on the follower does not hear what the leader commits.
    let [quorum, _] = ensemble.way(follower, leader);
    quorum.hold(Direction::ToClient, true);
    theirs.set("/config", b"new", None).unwrap();
    assert_eq!(ours.get("/config").unwrap().data, b"old", "the follower lags");
    thread::scope(|scope| {
        let synced = to_follower.on_request(OpKind::Sync, SOON);
        let reading = scope.spawn(|| ours.sync().and_then(|()| ours.get("/config")));
        synced.wait();
        thread::sleep(A_WHILE);
        quorum.hold(Direction::ToClient, false);
        assert_eq!(reading.join().unwrap().unwrap().data, b"new");
    });
}

scenarios![
    a_read_whose_answer_is_lost_is_sent_again,
    a_write_whose_answer_is_lost_is_not_sent_again,
    a_multi_whose_answer_is_lost_is_not_sent_again on embedded,
    a_write_that_was_not_sent_is_sent_when_there_is_a_connection,
    a_call_in_an_outage_ends_at_its_deadline_and_names_the_hosts,
    a_call_without_a_deadline_waits_for_as_long_as_the_retry_policy_allows,
    a_silent_server_ends_no_call_too_late,
    a_call_whose_time_is_over_before_it_begins_sends_nothing,
    a_token_ends_a_call_that_waits,
    a_call_goes_on_in_the_next_session on embedded,
    requests_keep_the_session_open_until_it_is_closed,
    a_sync_shows_what_another_client_has_done_at_another_server on real,
];
