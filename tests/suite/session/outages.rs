//! What an operator reads of an outage: which server was lost and why, what each host answers, and
//! what becomes of a session whose servers have lost their data.
use crate::support::{
    Proxy, Server, Shared,
    logged::logged,
    scenarios,
    scene::{SOON, next, session_of, until_empty, until_state},
    until,
};
use log::Level;
use std::{thread, time::Duration};
use zk_mutex::{
    Cause, Config, Error, LossReason, OptionalExt, RetryPolicy, SessionEvent, SessionState,
    ZkMutex, ZkSession,
};

const LOCK: &str = "/locks/orders";

#[track_caller]
fn until_logged(level: Level, parts: &[&str]) -> String {
    let is_meant = |line: &String| parts.iter().all(|part| line.contains(part));
    until(&format!("{parts:?} is logged"), SOON, || {
        logged(level, parts[0]).into_iter().find(is_meant)
    })
}

fn outage_is_a_warning_with_host_and_cause_and_its_end_names_the_server() {
    let address = Shared::chroot();
    let (server, chroot) = address.split_once('/').unwrap();
    let proxy = Proxy::start(server.parse().unwrap());
    let host = proxy.connect_string();
    let ours = session_of(&format!("{host}/{chroot}"), Duration::from_secs(40));
    let mutex = ZkMutex::new(&ours, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    proxy.refuse(true);
    proxy.cut();
    until_state(&ours, SessionState::Suspended);
    let id = format!("session 0x{:x}", ours.status().session_id.unwrap());
    let told = until_logged(Level::Warn, &[&id, &format!("the connection to {host} is lost (")]);
    assert!(told.contains("; lease left ") && told.ends_with("; resuming"), "{told}");
    let again = until_logged(Level::Warn, &[&id, "no connection for 1", &format!("{host}: ")]);
    assert!(again.contains("refused"), "{again}");
    proxy.refuse(false);
    until_state(&ours, SessionState::Connected);
    let back = until_logged(Level::Info, &[&id, &format!("resumed on {host}, ")]);
    assert!(back.ends_with(" s away"), "{back}");
    drop(guard);
    until_empty(&address, LOCK);
    // An outage without a lock is told too.
    proxy.cut();
    until_logged(Level::Warn, &[&id, "is lost (", "; nothing is held; resuming"]);
}

fn expiry_is_told_once() {
    let server = Server::start();
    let ours = session_of(&server.connect_string(), Duration::from_secs(30));
    let (events, id) = (ours.subscribe(), ours.status().session_id.unwrap());
    server.embedded_server().expire_session(id);
    while !matches!(next(&events), SessionEvent::Lost(LossReason::SessionExpired)) {}
    until_state(&ours, SessionState::Connected);
    let lines = |level| {
        let mut lines = logged(level, &format!("0x{id:x}"));
        lines.retain(|line| line.starts_with("session") && line.contains("expired"));
        lines
    };
    ours.close().unwrap(); // the log has all lines
    let told = lines(Level::Warn);
    assert!(told.len() == 1 && told[0].contains("making a new one"), "{told:?}");
    assert_eq!(lines(Level::Info), Vec::<String>::new());
}

/// The server comes back without its data. A lock has run its cycle so often that the new server
/// has seen less than the session for a while.
fn forgetful(after: Option<Duration>) -> (Server, ZkSession, ZkMutex) {
    let server = Server::start();
    let mut config = Config::new(server.connect_string())
        .session_timeout(Duration::from_secs(6))
        .connect_timeout(SOON)
        .retry_policy(RetryPolicy {
            max_elapsed: Duration::from_secs(2),
            ..RetryPolicy::default()
        });
    if let Some(after) = after {
        config = config.after_data_loss(after);
    }
    let session = ZkSession::connect(config).unwrap();
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    (0..20).for_each(|_| mutex.lock().unwrap().unlock().unwrap());
    (server, session, mutex)
}

fn server_without_its_data_is_told_as_such_and_waited_for() {
    let (server, session, mutex) = forgetful(None);
    let (id, events) = (session.status().session_id, session.subscribe());
    server.wipe();
    let asks = "did it lose its data";
    // A busy server may answer the first attempts too late: then the error says only that.
    let error = until("the server refuses the session", SOON, || {
        Some(mutex.lock().unwrap_err()).filter(|error| error.to_string().contains(asks))
    });
    let Error::Unavailable { cause: Cause::Outage(hosts), .. } = &error else {
        panic!("{error:?}")
    };
    assert!(hosts.len() == 1 && hosts[0].reason.contains(asks), "{hosts:?}");
    assert!(!error.to_string().contains("reachable"), "{error}");
    until_logged(Level::Warn, &["no connection for 1", asks]);
    assert_eq!(
        (session.status().session_id, session.status().state),
        (id, SessionState::Suspended)
    );
    assert!(events.try_iter().all(|event| event == SessionEvent::Suspended));
}

fn new_session_follows_the_data_loss_after_the_time_that_was_set() {
    // Longer than a server takes to read its data on a busy computer: until then it refuses the
    // session, as if it had lost the data.
    let (server, session, mutex) = forgetful(Some(Duration::from_secs(10)));
    let (id, events) = (session.status().session_id, session.subscribe());
    let guard = mutex.lock().unwrap();
    // A restart, with the data, is none: the same server takes the session back.
    server.restart();
    while next(&events) != SessionEvent::Reconnected {}
    server.wipe();
    thread::scope(|scope| {
        let waits =
            scope.spawn(|| mutex.lock_timeout(SOON * 3).optional().map(|got| got.is_some()));
        assert!(guard.lost().wait(SOON).is_some());
        while next(&events) != SessionEvent::Lost(LossReason::SessionExpired) {}
        until_state(&session, SessionState::Connected);
        assert_ne!(session.status().session_id, id);
        drop(guard);
        let got = waits.join().unwrap();
        // Its time may have been over before the session was given up.
        assert!(matches!(got, Ok(true) | Err(Error::Unavailable { .. })), "{got:?}");
    });
    mutex.lock().unwrap().unlock().unwrap();
    until_empty(&server.connect_string(), LOCK);
    session.close().unwrap(); // the log has all lines
    assert_eq!(logged(Level::Warn, "given up (after_data_loss)").len(), 1);
}

/// A host that cannot be reached may still have the data.
fn session_is_not_given_up_while_a_host_does_not_answer() {
    let server = Server::start();
    let dead = Proxy::start(server.address());
    dead.refuse(true);
    let hosts = format!("{},{}", server.connect_string(), dead.connect_string());
    let session = ZkSession::connect(
        Config::new(hosts)
            .session_timeout(Duration::from_secs(6))
            .connect_timeout(SOON)
            .after_data_loss(Duration::from_millis(100)),
    )
    .unwrap();
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    (0..20).for_each(|_| mutex.lock().unwrap().unlock().unwrap());
    let id = session.status().session_id;
    server.wipe();
    until_logged(Level::Warn, &["no connection for 1", "did it lose its data", "refused"]);
    assert_eq!(
        (session.status().session_id, session.status().state),
        (id, SessionState::Suspended)
    );
}

/// Attempts overlap while servers are silent. The server that they all reach takes two connections
/// of one host, and the old connection may still be one of them.
fn sockets_to_spare_do_not_lock_the_session_out() {
    // The server itself would close a connection without a session after ten seconds.
    let server = Server::builder()
        .set("maxClientCnxns", 2)
        .property("zookeeper.nio.sessionlessCnxnTimeout", 600_000)
        .start();
    let proxies = [(); 3].map(|()| Proxy::start(server.address()));
    let hosts = proxies.each_ref().map(Proxy::connect_string).join(",");
    let session = session_of(&hosts, Duration::from_secs(20));
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    let guard = mutex.lock().unwrap();
    for _ in 0..3 {
        server.pause();
        proxies.iter().for_each(Proxy::cut);
        until_state(&session, SessionState::Suspended);
        until("three attempts at a time", SOON, || {
            let connections = proxies.iter().map(Proxy::connections).sum::<usize>();
            (connections >= 3).then_some(())
        });
        server.resume();
        until_state(&session, SessionState::Connected);
    }
    assert!(guard.is_held());
    drop(guard);
    // Nor do they keep another session out: the first one has one connection only.
    let other = session_of(&server.connect_string(), Duration::from_secs(20));
    ZkMutex::new(&other, LOCK).unwrap().lock().unwrap().unlock().unwrap();
}

scenarios![
    outage_is_a_warning_with_host_and_cause_and_its_end_names_the_server,
    expiry_is_told_once on embedded,
    server_without_its_data_is_told_as_such_and_waited_for,
    new_session_follows_the_data_loss_after_the_time_that_was_set,
    session_is_not_given_up_while_a_host_does_not_answer,
    sockets_to_spare_do_not_lock_the_session_out on real,
];
