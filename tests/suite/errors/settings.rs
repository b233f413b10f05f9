//! Paths and settings that cannot work.
use super::page::{Failures, LOCK, failed};
use crate::support::{
    embedded::{raw, start},
    raw::EPHEMERAL,
    scenarios,
    scene::{config, session},
};
use std::time::Duration;
use zk_mutex::{
    Acl, AclEntry, Config, Error, Layout, Permissions, RetryPolicy, WaitStrategy, ZkElection,
    ZkMultiLock, ZkMutex, ZkSemaphore, ZkSession,
};

pub const VARIANTS: &[&str] = &["InvalidPath", "InvalidConfig"];

const NOWHERE: &str = "127.0.0.1:1";
const PERMITS: &str = "/permits/api";
const STRANGER: &str = "_c_6f8ad2cc-3b5e-4f0c-9a57-0b8f9d3c1e42-lock-0000000000";

fn paths_and_settings_that_cannot_work_print_what_the_page_says() {
    let (_server, at) = start();
    let session = session(&at);
    let mut failures = Failures::of(VARIANTS);

    // Paths.
    let long = format!("/{}", "x".repeat(4096));
    let paths = ["", "locks", "/a/", "/a//b", "/a/..", "/\0", "/\t", "/\u{e000}", "/\u{10000}"];
    for path in paths.into_iter().chain([&*long, "/", "/zookeeper/a"]) {
        let error = failed(ZkMutex::new(&session, path));
        let Error::InvalidPath { rule, .. } = &error else { panic!("{error:?}") };
        failures.add(&error, &[(&format!("{path:?}"), "PATH"), (rule, "RULE")]);
    }
    let error = failed(session.attempt_revoke(LOCK));
    let Error::InvalidPath { rule, .. } = &error else { panic!("{error:?}") };
    failures.add(&error, &[(&format!("{LOCK:?}"), "PATH"), (rule, "RULE")]);

    // Settings of a session.
    for text in ["zk1;zk2", "zk://zk1/app", "orders:secret@zk1:2181", "orders:sec/ret@zk1:2181"] {
        failures.add(&refused(config(text)), &[]);
    }
    for text in ["", "zk1:0", "zk1/app,zk2/app", "zk1,,zk2"] {
        let error = refused(config(text));
        let Error::InvalidConfig { reason, .. } = &error else { panic!("{error:?}") };
        failures.add(&error, &[(reason, "REASON")]);
    }
    let (zero, second) = (Duration::ZERO, Duration::from_secs(1));
    let nowhere = || config(NOWHERE);
    for wrong in [
        nowhere().session_timeout(zero),
        nowhere().connect_timeout(zero),
        nowhere().server_tick(zero),
    ] {
        failures.add(&refused(wrong), &[("0ns", "TIME")]);
    }
    let long_tick = nowhere().session_timeout(second).server_tick(second * 2);
    failures.add(&refused(long_tick), &[("2s", "TIME"), ("1s", "TIMEOUT")]);
    let policy = RetryPolicy { base: zero, cap: second, ..RetryPolicy::default() };
    let policy = nowhere().retry_policy(policy);
    failures.add(&refused(policy), &[("0ns", "TIME"), ("1s", "CAP")]);
    failures.add(&refused(nowhere().auth("", "")), &[("\"\"", "SCHEME")]);
    failures.add(&refused(nowhere().auth("digest", "secret")), &[]);
    failures.add(&tls(), &[]);
    failures.add(&refused(config(format!("{at}/app"))), &[]);

    // Settings of a lock that another lock of its path has otherwise.
    let lock = ZkMutex::new(&session, LOCK).unwrap();
    let with = || ZkMutex::builder(&session, LOCK);
    failures.add(&failed(ZkSemaphore::new(&session, LOCK, 1)), &[]);
    let error = failed(other_kind(&at));
    let said = error.to_string();
    let owner = said.split("a mutex (").nth(1).and_then(|rest| rest.split("); give").next());
    failures.add(&error, &[(STRANGER, "NODE"), (owner.unwrap(), "OWNER")]);
    failures.add(&failed(with().layout(Layout::Kazoo).build()), &[]);
    failures.add(&failed(with().acl(Acl::Custom(Vec::new())).build()), &[]);
    failures.add(&failed(with().wait_strategy(WaitStrategy::Parent).build()), &[]);

    // Other settings of a lock.
    let entry = |i: usize| AclEntry {
        permissions: Permissions::READ,
        scheme: "ip".into(),
        id: format!("10.0.0.{i:03}"),
    };
    let error = failed(with().acl(Acl::Custom((0..200).map(entry).collect())).build());
    failures.add(&error, &[(&bytes_in(&error), "N bytes")]);
    failures.add(&failed(with().acl(Acl::CreatorAll).build()), &[]);
    let error = failed(with().data(vec![0; 2 << 20]).build());
    failures.add(&error, &[(&bytes_in(&error), "N bytes")]);
    failures.add(&failed(with().max_hold(zero).build()), &[]);
    failures.add(&failed(with().release_overdue().build()), &[]);
    failures.add(&failed(ZkMultiLock::new([&lock; 0])), &[]);

    // Permits.
    failures.add(&failed(ZkSemaphore::new(&session, PERMITS, 0)), &[]);
    let semaphore = ZkSemaphore::new(&session, PERMITS, 2).unwrap();
    failures.add(&failed(semaphore.acquire_many(0)), &[]);
    failures.add(&failed(semaphore.acquire_many(3)), &[]);
    semaphore.set_permits(0).unwrap();
    failures.add(&failed(semaphore.acquire_many(3)), &[]);
    raw(&at).set_data(PERMITS, b"not a number").unwrap();
    failures.add(&failed(semaphore.set_permits(3)), &[]);

    failures.check();
}

/// A mutex's node in the way of an election, through a chroot: this process has a mutex there.
fn other_kind(at: &str) -> zk_mutex::Result<zk_mutex::Leadership> {
    let mut raw = raw(at);
    raw.mkdirs("/elections/locks/orders").unwrap();
    raw.create(&format!("/elections{LOCK}/{STRANGER}"), b"", EPHEMERAL).unwrap();
    let session = session(&format!("{at}/elections"));
    ZkElection::new(&session, LOCK)?.join()?.wait_leader()
}

/// The error for settings of a session.
#[track_caller]
fn refused(config: Config) -> Error {
    failed(ZkSession::connect(config))
}

/// The number of bytes that the message names first.
#[track_caller]
fn bytes_in(error: &Error) -> String {
    let message = error.to_string();
    let before = message.split_once(" bytes").expect("bytes").0;
    format!("{} bytes", before.rsplit(' ').next().unwrap_or_default())
}

/// A certificate file that does not exist.
#[cfg(feature = "tls")]
fn tls() -> Error {
    let tls = zk_mutex::TlsConfig::new("/no/such/file");
    match refused(Config::new(NOWHERE).tls(tls)) {
        Error::InvalidConfig { what, .. } => {
            Error::InvalidConfig { what, reason: "REASON".to_owned() }
        }
        other => panic!("{other:?}"),
    }
}

/// Without the feature there is no such failure: the row is taken as it is.
#[cfg(not(feature = "tls"))]
fn tls() -> Error {
    Error::InvalidConfig { what: "tls", reason: "REASON".to_owned() }
}

scenarios![paths_and_settings_that_cannot_work_print_what_the_page_says on embedded];
