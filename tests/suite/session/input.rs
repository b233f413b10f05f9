//! Bad input and faults at the start: the caller gets an error in time that names the problem, its
//! place, and the remedy.
use crate::support::{
    OpKind, Proxy, Raw, Server, Shared, Stub, at_best,
    logged::logged,
    own_loopback, raw, scenarios,
    scene::{SOON, full_path, queue, session_of, until_empty},
    stub::Then,
    wire::Writer,
};
use log::Level;
use std::{
    io::ErrorKind,
    net::TcpListener,
    time::{Duration, Instant},
};
use zk_mutex::{
    Acl, Config, Error, HostFailure, OptionalExt, Result, RetryPolicy, SessionState, ZkMutex,
    ZkSession,
};

/// How much longer than its timeout a failed connect may take on a busy machine.
const SLACK: Duration = Duration::from_millis(500);
/// ZooKeeper's limit for a request, without the part that we keep for the path and the ACL.
const MOST_DATA: usize = (1 << 20) - (8 << 10);

/// A session that does not expire, even on a busy machine.
#[track_caller]
fn session(address: &str) -> ZkSession {
    session_of(address, Duration::from_secs(15))
}

// ---- paths ----

fn bad_path_is_refused_with_its_rule_and_nothing_is_sent() {
    let proxy = Proxy::start(Shared::connect_string().parse().unwrap());
    let session = session(&proxy.connect_string());
    proxy.clear();
    let long = format!("/{}", "a".repeat(4096));
    for (path, word) in [
        ("", "must not be empty"),
        ("locks", "must start with '/'"),
        ("locks/orders", "must start with '/'"),
        ("/a/", "must not end with '/'"),
        ("//", "must not end with '/'"),
        ("/a//b", "empty node name"),
        ("//a", "empty node name"),
        ("/./a", "'.' or '..'"),
        ("/a/..", "'.' or '..'"),
        ("/a/../b", "'.' or '..'"),
        ("/a\0b", "NUL"),
        ("/a\nb", "control character"),
        ("/a\u{7f}", "control character"),
        ("/a\u{e000}", "private-use"),
        ("/a\u{1f512}", "U+FFFF"),
        ("/", "root"),
        ("/zookeeper", "server's own"),
        ("/zookeeper/quota/a", "server's own"),
        (&long, "4096 bytes"),
    ] {
        for made in
            [ZkMutex::new(&session, path), ZkMutex::builder(&session, path).data("x").build()]
        {
            let error = made.unwrap_err();
            let Error::InvalidPath { path: given, rule } = &error else {
                panic!("{path:?}: {error:?}");
            };
            assert_eq!(given, path);
            assert!(rule.contains(word), "{path:?}: {rule}");
            let said = error.to_string();
            assert!(said.contains(&format!("{path:?}")) && said.contains(rule), "{said}");
        }
    }
    // Only requests that keep the session alive may pass.
    let idle = |kind| matches!(kind, OpKind::Ping | OpKind::Sync);
    let sent: Vec<_> = proxy.requests().into_iter().filter(|request| !idle(request.kind)).collect();
    assert_eq!(sent, []);
    assert_eq!(session.status().state, SessionState::Connected);
}

fn path_beside_the_servers_own_is_fine_below_a_chroot() {
    let address = Shared::chroot();
    let session = session(&address);
    let mutex = ZkMutex::new(&session, "/zookeeper/a").unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    until_empty(&address, "/zookeeper/a");
}

// ---- settings ----

/// Expects `InvalidConfig` about `what`, with a reason that contains `word`.
#[track_caller]
fn refused(made: Result<ZkSession>, what: &str, word: &str) {
    let error = made.unwrap_err();
    let Error::InvalidConfig { what: about, reason } = &error else {
        panic!("{what} {word}: {error:?}")
    };
    assert_eq!(*about, what);
    assert!(reason.contains(word), "no {word:?} in {reason:?}");
    assert_eq!(error.to_string(), format!("invalid {what}: {reason}"));
}

fn bad_connect_string_is_refused_before_any_dialling() {
    let stub = Stub::silent();
    let host = stub.connect_string();
    let with = |rest: &str| format!("{host}{rest}");
    for (connect_string, word) in [
        (String::new(), "no host"),
        ("   ".into(), "no host"),
        ("/app".into(), "no host"),
        (":2181".into(), "no name"),
        ("h:".into(), "1 to 65535"),
        ("h:99999".into(), "1 to 65535"),
        ("h:0".into(), "1 to 65535"),
        ("h:x".into(), "1 to 65535"),
        ("h:+1".into(), "1 to 65535"),
        ("::1".into(), "brackets"),
        ("[::1".into(), "']'"),
        ("h h".into(), "ASCII"),
        ("http://h:2181".into(), ""),
        (with("/app/"), "must not end with '/'"),
        (with("/a//b"), "empty node name"),
        (with("/a/.."), "'.' or '..'"),
        (with("/app,h2:2181/app"), "comma"),
        (with(","), "empty"),
        (with(",,h2"), "empty"),
        (with(",:2181"), "no name"),
        (with(",h:x"), "1 to 65535"),
        (format!("h:99999,{host}"), "1 to 65535"),
    ] {
        refused(ZkSession::connect(&connect_string), "connect string", word);
    }
    assert_eq!(stub.taken(), 0);
}

fn bad_timeout_is_refused_before_any_dialling() {
    let stub = Stub::silent();
    let config = || Config::new(stub.connect_string());
    let beyond = Duration::from_millis(i32::MAX as u64 + 1);
    for bad in [Duration::ZERO, Duration::from_micros(999), beyond, Duration::MAX] {
        refused(
            ZkSession::connect(config().session_timeout(bad)),
            "session_timeout",
            "2147483647 ms",
        );
        refused(
            ZkSession::connect(config().connect_timeout(bad)),
            "connect_timeout",
            "2147483647 ms",
        );
        refused(ZkSession::connect(config().server_tick(bad)), "server_tick", "2147483647 ms");
    }
    let second = Duration::from_secs(1);
    let tick = config().session_timeout(second).server_tick(second + Duration::from_millis(1));
    refused(ZkSession::connect(tick), "server_tick", "two ticks or more");
    assert_eq!(stub.taken(), 0);
}

fn bad_retry_policy_or_scheme_is_refused_before_any_dialling() {
    let stub = Stub::silent();
    let config = || Config::new(stub.connect_string());
    let policy = RetryPolicy::default();
    let second = Duration::from_secs(1);
    for bad in [
        RetryPolicy { base: Duration::ZERO, ..policy },
        RetryPolicy { base: Duration::ZERO, cap: Duration::ZERO, ..policy },
        RetryPolicy { base: second * 10, ..policy },
        RetryPolicy { cap: Duration::ZERO, ..policy },
    ] {
        refused(
            ZkSession::connect(config().retry_policy(bad)),
            "retry_policy",
            "above zero and at most its cap",
        );
    }
    refused(ZkSession::connect(config().auth("", "user:password")), "auth", "scheme");
    refused(ZkSession::connect(config().auth("digest", "password")), "auth", "colon");
    assert_eq!(stub.taken(), 0);
}

fn extreme_settings_that_are_allowed_work() {
    let longest = Duration::from_millis(i32::MAX as u64);
    let policy =
        RetryPolicy { base: Duration::MAX, cap: Duration::MAX, max_elapsed: Duration::MAX };
    let config = |address: &str| {
        Config::new(address).session_timeout(longest).connect_timeout(longest).retry_policy(policy)
    };
    let address = Shared::chroot();
    let session = ZkSession::connect(config(&address)).unwrap();
    assert_eq!(
        session.status().timeout,
        Duration::from_secs(60),
        "the longest that the server grants"
    );
    let mutex = ZkMutex::builder(&session, "/lock").hand_over(Duration::MAX).build().unwrap();
    mutex.lock_timeout(Duration::MAX).optional().unwrap().unwrap().unlock().unwrap();
    until_empty(&address, "/lock");
    // An endless pause after the first failure.
    let dead = format!("{}:2181", own_loopback());
    let tried = ZkSession::connect(config(&dead).connect_timeout(Duration::from_millis(500)));
    assert!(matches!(tried, Err(Error::Connect { .. })), "{tried:?}");
}

// ---- hosts ----

/// Expects `Error::Connect` in time, which names each host of the connect string once with its
/// reason.
#[track_caller]
fn fails(connect_string: &str, timeout: Duration) -> Vec<HostFailure> {
    let mut took = Duration::MAX;
    // The quickest of three tries counts, because the machine may be busy.
    for attempt in 1.. {
        let start = Instant::now();
        let tried = ZkSession::connect(
            Config::new(connect_string)
                .session_timeout(Duration::from_secs(6))
                .connect_timeout(timeout),
        );
        took = took.min(at_best(start));
        let error = tried.unwrap_err();
        let Error::Connect { hosts, waited } = &error else {
            panic!("{connect_string}: {error:?}")
        };
        assert!(*waited >= timeout, "connect gave up after {waited:?}");
        let named: Vec<&str> = hosts.iter().map(|failure| failure.host.as_str()).collect();
        assert_eq!(named.join(","), connect_string);
        let said = error.to_string();
        assert!(said.starts_with("connect: no session within"), "{said}");
        assert!(said.contains("check that ZooKeeper runs and is reachable"), "{said}");
        for failure in hosts {
            assert!(said.contains(&format!("{}: {}", failure.host, failure.reason)), "{said}");
        }
        // On a machine that stood still for half the time, some host was not tried.
        let all_asked = hosts.iter().all(|failure| failure.reason != "no answer yet");
        if took < timeout + SLACK && all_asked {
            return hosts.clone();
        }
        assert!(
            attempt < 3,
            "connect took {took:?} at best, with a timeout of {timeout:?}: {said}"
        );
    }
    unreachable!()
}

const CONNECT: Duration = Duration::from_millis(1500);

#[track_caller]
fn fails_because(connect_string: &str, word: &str) {
    let hosts = fails(connect_string, CONNECT);
    assert!(hosts[0].reason.contains(word), "no {word:?} in {hosts:?}");
}

/// A name that no resolver finds. No resolver asks another one for it, because its label is too
/// long.
fn unknown_host() -> String {
    format!("{}.example:2181", "x".repeat(64))
}

fn refused_host() -> String {
    format!("{}:2181", own_loopback())
}

fn unknown_host_is_named_with_its_cause_in_time() {
    fails_because(&unknown_host(), "its name has no address");
}

fn refused_port_is_named_with_its_cause_in_time() {
    fails_because(&refused_host(), "refused");
}

fn silent_host_is_named_with_its_cause_in_time() {
    let stub = Stub::silent();
    fails_because(&stub.connect_string(), "gave no session within");
    assert!(stub.taken() >= 1);
}

fn host_whose_program_never_accepts_is_named_with_its_cause_in_time() {
    let listener = TcpListener::bind((own_loopback(), 0)).unwrap();
    fails_because(&listener.local_addr().unwrap().to_string(), "gave no session within");
    listener.set_nonblocking(true).unwrap();
    let dialled = std::iter::from_fn(|| listener.accept().ok()).count();
    assert!((1..20).contains(&dialled), "dialled {dialled} times");
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

fn black_holed_handshake_is_named_with_its_cause_in_time_and_leaves_no_session() {
    let server = Server::start();
    let proxy = Proxy::start(server.address());
    proxy.black_hole(true);
    fails_because(&proxy.connect_string(), "gave no session within");
    proxy.black_hole(false);
    // The connect requests arrive now, from clients that are gone: their sessions must not stay
    // open.
    crate::support::until("no connection is left", SOON, || {
        (proxy.connections() == 0).then_some(())
    });
}

fn port_that_answers_http_is_named_with_its_cause_in_time() {
    let stub = Stub::start("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", Then::Close);
    fails_because(&stub.connect_string(), "does not speak ZooKeeper's protocol");
}

fn port_that_answers_garbage_is_named_with_its_cause_in_time() {
    let greeting = |timeout: i32, id: i64| {
        Writer::new().i32(0).i32(timeout).i64(id).buffer(&[7; 16]).bool(false).frame()
    };
    let whole = greeting(6000, 1);
    let cases: [(&str, Vec<u8>, Then, &str); 9] = [
        ("a negative length", vec![0xff; 20], Then::Stay, "impossible length"),
        ("a huge length", vec![0x7f, 0xff, 0xff, 0xff, 0, 0], Then::Stay, "impossible length"),
        ("an empty frame", vec![0; 4], Then::Stay, "truncated"),
        ("a truncated record", vec![0, 0, 0, 6, 0, 0, 0, 0, 0, 0], Then::Stay, "truncated"),
        ("half a frame, then silence", whole[..20].to_vec(), Then::Stay, "gave no session within"),
        ("half a frame, then the end", whole[..20].to_vec(), Then::Close, "closed the connection"),
        ("nothing, then the end", Vec::new(), Then::Close, "closed the connection"),
        ("no session at all", greeting(0, 0), Then::Stay, "refusal to make a session"),
        ("a session without an id", greeting(6000, 0), Then::Stay, "refusal to make a session"),
    ];
    for (what, words, then, word) in cases {
        let stub = Stub::start(words, then);
        let hosts = fails(&stub.connect_string(), Duration::from_secs(1));
        assert!(hosts[0].reason.contains(word), "{what}: {hosts:?}");
        assert!((1..40).contains(&stub.taken()), "{what}: dialled {} times", stub.taken());
    }
}

fn every_host_is_named_with_a_cause_of_its_own() {
    let (silent, http) = (Stub::silent(), Stub::start("HTTP/1.1 200 OK\r\n\r\n", Then::Close));
    let hosts = [refused_host(), unknown_host(), silent.connect_string(), http.connect_string()];
    let failures = fails(&hosts.join(","), Duration::from_secs(2));
    for (failure, word) in
        failures.iter().zip(["refused", "its name has no address", "no session", "protocol"])
    {
        assert!(failure.reason.contains(word), "no {word:?} in {failures:?}");
    }
}

fn first_host_dead_and_second_alive_connects() {
    let address = Shared::chroot();
    let (silent, http) = (Stub::silent(), Stub::start("HTTP/1.1 200 OK\r\n\r\n", Then::Close));
    let dead = [refused_host(), unknown_host(), silent.connect_string(), http.connect_string()];
    // Hosts are tried in a random order: each dead host is the first one now and then.
    for dead in dead.iter().chain(&dead).chain(&dead) {
        let session = ZkSession::connect(
            Config::new(format!("{dead},{address}"))
                .session_timeout(Duration::from_secs(3))
                .connect_timeout(SOON),
        )
        .unwrap();
        assert_eq!(session.status().state, SessionState::Connected);
    }
    let all = format!("{},{address}", dead.join(","));
    let session = session(&all);
    let mutex = ZkMutex::new(&session, "/lock").unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    until_empty(&address, "/lock");
}

// ---- node data ----

fn node_data_beyond_the_limit_is_refused_at_build_time() {
    let address = Shared::chroot();
    let session = session(&address);
    for size in [MOST_DATA + 1, 1 << 20, (1 << 20) + 1, 5 << 20] {
        let error = ZkMutex::builder(&session, "/lock").data(vec![0; size]).build().unwrap_err();
        assert!(matches!(&error, Error::InvalidConfig { what: "data", .. }), "{error:?}");
        let said = error.to_string();
        assert!(
            said.contains(&size.to_string()) && said.contains(&MOST_DATA.to_string()),
            "{said}"
        );
    }
    assert_eq!(queue(&address, "/lock"), Vec::<String>::new());
}

fn node_data_just_under_the_limit_works_with_a_long_path_too() {
    let address = Shared::chroot();
    let session = session(&address);
    let long = format!("/{}", "n".repeat(4000));
    for path in ["/lock", &long] {
        let data: Vec<u8> = (0..MOST_DATA).map(|i| i as u8).collect();
        let mutex = ZkMutex::builder(&session, path).data(data.clone()).build().unwrap();
        let guard = mutex.lock_timeout(SOON).optional().unwrap().unwrap();
        let contenders = mutex.contenders().unwrap();
        assert_eq!(contenders.len(), 1);
        assert!(contenders[0].data == data, "the data is as it was given");
        assert!(guard.is_held());
        guard.unlock().unwrap();
        until_empty(&address, path);
    }
}

// ---- permissions ----

fn unknown_auth_scheme_is_an_auth_error_that_says_what_to_check() {
    let address = Shared::chroot();
    let start = Instant::now();
    let error = ZkSession::connect(
        Config::new(&address).auth("nonsense", "user:password").connect_timeout(SOON),
    )
    .unwrap_err();
    assert!(at_best(start) < SOON, "the error comes at once, not by the timeout");
    assert!(matches!(&error, Error::Auth { op: "connect", .. }), "{error:?}");
    let said = error.to_string();
    assert!(
        said.starts_with("connect") && said.contains("the scheme nonsense (AuthFailed); check"),
        "{said}"
    );
}

fn with_auth(address: &str, credentials: &str) -> ZkSession {
    let config =
        Config::new(address).session_timeout(Duration::from_secs(15)).connect_timeout(SOON);
    ZkSession::connect(config.auth("digest", credentials)).unwrap()
}

/// Expects a `NoAuth` error that names the operation, the path, what is missing and the advice.
#[track_caller]
fn no_auth<T: std::fmt::Debug>(made: Result<T>, path: &str, missing: &str) {
    let error = made.unwrap_err();
    let Error::NoAuth { op, path: refused, permission } = &error else { panic!("{error:?}") };
    assert!(refused.starts_with(path) && *permission == missing, "{error:?}");
    let said = error.to_string();
    assert!(
        said.starts_with(&format!("{op} {path}"))
            && said.contains(&format!("does not give {missing}"))
            && said.contains("auth()"),
        "{said}"
    );
}

fn wrong_password_on_a_creator_all_lock_is_no_auth_naming_the_path() {
    let address = Shared::chroot();
    let (owner, stranger) = (with_auth(&address, "user:right"), with_auth(&address, "user:wrong"));
    let mutex = |session: &ZkSession| {
        ZkMutex::builder(session, "/safe/lock").acl(Acl::CreatorAll).build().unwrap()
    };
    let (ours, theirs) = (mutex(&owner), mutex(&stranger));
    let guard = ours.lock().unwrap();
    let refused = || {
        no_auth(theirs.try_lock().optional(), "/safe/lock", "READ");
        no_auth(theirs.lock(), "/safe/lock", "CREATE");
        no_auth(theirs.lock_timeout(SOON).optional(), "/safe/lock", "CREATE");
        no_auth(theirs.contenders(), "/safe/lock", "READ");
    };
    refused();
    assert_eq!(ours.contenders().unwrap().len(), 1);
    assert!(guard.is_held());
    guard.unlock().unwrap();
    refused();
    let colleague = with_auth(&address, "user:right");
    mutex(&colleague).lock().unwrap().unlock().unwrap();
    assert_eq!(ours.contenders().unwrap(), []);
    let mut raw = Raw::connect(&address).unwrap();
    let folder = full_path(&address, "/safe/lock");
    assert_eq!(raw.children(&folder).unwrap_err().code(), Some(raw::NO_AUTH));
    raw.add_auth("user:right").unwrap();
    assert_eq!(raw.children(&folder).unwrap(), Vec::<String>::new());
}

fn no_permission_on_the_parent_is_no_auth_naming_the_path() {
    let address = Shared::chroot();
    let (owner, stranger) = (with_auth(&address, "user:right"), session(&address));
    let safe = ZkMutex::builder(&owner, "/safe/lock").acl(Acl::CreatorAll).build().unwrap();
    safe.lock().unwrap().unlock().unwrap();
    for path in ["/safe/other", "/safe/deep/down/other"] {
        let mutex = ZkMutex::new(&stranger, path).unwrap();
        no_auth(mutex.lock(), "/safe", "CREATE");
        no_auth(mutex.try_lock().optional(), "/safe", "CREATE");
    }
    assert_eq!(safe.contenders().unwrap(), []);
}

/// Every server would refuse the nodes.
fn creator_all_without_credentials_is_refused_when_the_lock_is_built() {
    let address = Shared::chroot();
    let session = session(&address);
    match ZkMutex::builder(&session, "/safe/lock").acl(Acl::CreatorAll).build() {
        Err(Error::InvalidConfig { what: "acl", reason }) => {
            assert!(reason.contains("auth()"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(queue(&address, "/safe/lock"), Vec::<String>::new());
}

fn chroot_is_made_only_where_the_session_says_so() {
    let address = Shared::chroot();
    let below = format!("{address}/deeper/still");
    let config = || Config::new(&below).connect_timeout(SOON);
    match ZkSession::connect(config()) {
        Err(Error::InvalidConfig { what: "chroot", reason }) => {
            assert!(reason.contains("/deeper/still"), "{reason}");
            assert!(reason.contains("Config::create_chroot()"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    let mut raw = Raw::connect(&address).unwrap();
    assert!(raw.exists(&full_path(&address, "/deeper")).unwrap().is_none());
    // The first lock makes it, which is said.
    let ours = ZkSession::connect(config().create_chroot()).unwrap();
    ZkMutex::new(&ours, "/lock").unwrap().lock().unwrap().unlock().unwrap();
    let told = logged(Level::Info, "the chroot did not exist and was made");
    assert!(told.len() == 1 && told[0].contains("/deeper/still"), "{told:?}");
    let theirs = ZkSession::connect(config()).unwrap();
    let mutex = ZkMutex::new(&theirs, "/lock").unwrap();
    mutex.lock().unwrap().unlock().unwrap();
    // An administrator deletes it.
    for node in ["/deeper/still/lock", "/deeper/still"] {
        raw.delete(&full_path(&address, node)).unwrap();
    }
    let error = mutex.lock().unwrap_err();
    assert!(error.to_string().contains("/deeper/still does not exist"), "{error}");
}

scenarios![
    bad_path_is_refused_with_its_rule_and_nothing_is_sent,
    path_beside_the_servers_own_is_fine_below_a_chroot,
    bad_connect_string_is_refused_before_any_dialling on none,
    bad_timeout_is_refused_before_any_dialling on none,
    bad_retry_policy_or_scheme_is_refused_before_any_dialling on none,
    extreme_settings_that_are_allowed_work,
    unknown_host_is_named_with_its_cause_in_time on none,
    refused_port_is_named_with_its_cause_in_time on none,
    silent_host_is_named_with_its_cause_in_time on none,
    host_whose_program_never_accepts_is_named_with_its_cause_in_time on none,
    black_holed_handshake_is_named_with_its_cause_in_time_and_leaves_no_session,
    port_that_answers_http_is_named_with_its_cause_in_time on none,
    port_that_answers_garbage_is_named_with_its_cause_in_time on none,
    every_host_is_named_with_a_cause_of_its_own on none,
    first_host_dead_and_second_alive_connects,
    node_data_beyond_the_limit_is_refused_at_build_time,
    node_data_just_under_the_limit_works_with_a_long_path_too,
    unknown_auth_scheme_is_an_auth_error_that_says_what_to_check,
    wrong_password_on_a_creator_all_lock_is_no_auth_naming_the_path,
    no_permission_on_the_parent_is_no_auth_naming_the_path,
    creator_all_without_credentials_is_refused_when_the_lock_is_built,
    chroot_is_made_only_where_the_session_says_so,
];
