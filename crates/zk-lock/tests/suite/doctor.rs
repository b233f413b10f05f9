//! `doctor` finds what is prepared to be wrong, and nothing else.

use std::time::Duration;

use serde_json::Value;
use zk_test_server::{TestServer, TestServerBuilder};
use zk_test_support::{own_loopback, raw};

use crate::support::{Raw, run};

/// What it finds: the checks, each with its level, but for those that are well.
fn found(server: &TestServer, arguments: &[&str]) -> (i32, Vec<(String, String)>) {
    let ended = run(server, &[&["--json", "doctor"], arguments].concat());
    let lines = ended.out.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let of = |line: Value| {
        let text = |key: &str| line[key].as_str().expect("text").to_owned();
        assert!(text("level") == "ok" || !text("advice").is_empty(), "{line}");
        (text("check"), text("level"))
    };
    let all = lines.map(of).filter(|(_, level)| level != "ok").collect();
    (ended.code, all)
}

/// What every server of these scenarios has: it stands alone, is open to all, and has no TLS.
const USUAL: [(&str, &str); 3] = [("servers", "warning"), ("acl", "warning"), ("tls", "note")];

#[track_caller]
fn assert_finds(server: &TestServer, arguments: &[&str], code: i32, more: &[(&str, &str)]) {
    let (ended, mut all) = found(server, arguments);
    for (check, level) in USUAL {
        let usual = (check.to_owned(), level.to_owned());
        if let Some(at) = all.iter().position(|one| *one == usual) {
            all.remove(at);
        }
    }
    let all: Vec<(&str, &str)> = all.iter().map(|(c, l)| (c.as_str(), l.as_str())).collect();
    assert_eq!((ended, all.as_slice()), (code, more));
}

fn builder() -> TestServerBuilder {
    TestServer::builder()
}

#[test]
fn a_healthy_server_has_no_fault() {
    let server = builder().start().expect("a server");
    assert_finds(&server, &[], 0, &[]);
    let text = run(&server, &["doctor"]);
    assert!(text.out.contains("ok       containers"), "{text:?}");
    assert!(text.out.contains("-> name all servers of the ensemble"), "{text:?}");
}

#[test]
fn a_timeout_that_is_not_granted_is_found() {
    let server = builder().max_session_timeout(Duration::from_secs(8)).start().expect("a server");
    assert_finds(&server, &[], 0, &[("timeout", "warning")]);
    assert_finds(&server, &["--session", "8s"], 0, &[]);
}

#[test]
fn a_timeout_that_is_too_short_is_found() {
    let server = builder().start().expect("a server");
    assert_finds(&server, &["--session", "3s"], 0, &[("timeout", "warning")]);
}

#[test]
fn a_tick_that_is_too_long_is_found() {
    let long = builder().tick(Duration::from_secs(10)).min_session_timeout(Duration::from_secs(1));
    let server = long.start().expect("a server");
    assert_finds(&server, &["--session", "12s"], 1, &[("tick", "fault")]);
    assert_finds(&server, &["--session", "30s"], 0, &[("tick", "warning")]);
}

#[test]
fn a_host_that_does_not_answer_is_found() {
    let server = builder().start().expect("a server");
    let closed = format!("{}:2181", own_loopback());
    let connect = format!("{},{closed}", server.connect_string());
    let two = [("servers", "warning"), ("reachable", "fault")];
    assert_finds(&server, &["--connect", &connect], 1, &two[1..]);
    server.refuse(true);
    let nothing = ["--connect-timeout", "500ms"];
    assert_finds(&server, &nothing, 1, &[("reachable", "fault"), ("session", "fault")]);
}

#[test]
fn a_chroot_that_is_missing_is_found() {
    let server = builder().start().expect("a server");
    let connect = format!("{}/nowhere", server.connect_string());
    assert_finds(&server, &["--connect", &connect], 1, &[("chroot", "fault")]);
}

#[test]
fn slow_answers_are_found() {
    let server = builder().start().expect("a server");
    server.delay(Duration::from_millis(80));
    assert_finds(&server, &[], 0, &[("read", "warning"), ("write", "warning")]);
    server.delay(Duration::from_millis(500));
    assert_finds(&server, &["--session", "4s"], 1, &[("read", "fault"), ("write", "fault")]);
}

#[test]
fn an_acl_that_does_not_let_us_write_is_found() {
    let server = builder().start().expect("a server");
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.create("/locks", b"", raw::PERSISTENT).expect("a folder");
    raw.set_acl("/locks", 1).expect("an ACL"); // only READ
    assert_finds(&server, &["/locks"], 1, &[("write", "fault")]);
}

#[test]
fn libraries_that_do_not_exclude_each_other_are_found() {
    let server = builder().start().expect("a server");
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.create("/lock", b"", raw::PERSISTENT).expect("a folder");
    let hex = "514e5a831836450cb1a56c741e990fd8";
    let uuid = "5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab";
    for name in [format!("/lock/{hex}__lock__"), format!("/lock/_c_{uuid}-lock-")] {
        raw.create(&name, b"", raw::EPHEMERAL_SEQUENTIAL).expect("a node");
    }
    assert_finds(&server, &["/lock"], 1, &[("clients", "fault")]);
    // An identifier such as many programs give kazoo.
    raw.create("/named", b"", raw::PERSISTENT).expect("a folder");
    for (name, data) in
        [(format!("/named/{hex}__lock__"), "h7:1"), (format!("/named/_c_{uuid}-lock-"), "10.0.0.7")]
    {
        raw.create(&name, data.as_bytes(), raw::EPHEMERAL_SEQUENTIAL).expect("a node");
    }
    assert_finds(&server, &["/named"], 1, &[("clients", "fault")]);
    raw.create("/other", b"", raw::PERSISTENT).expect("a folder");
    for (name, data) in
        [(format!("/other/{hex}__lock__"), ""), (format!("/other/_c_{uuid}-lock-"), "h7:1")]
    {
        raw.create(&name, data.as_bytes(), raw::EPHEMERAL_SEQUENTIAL).expect("a node");
    }
    assert_finds(&server, &["/other"], 0, &[("clients", "warning")]);
}

#[test]
fn a_lock_that_outlives_its_session_is_found() {
    let server = builder().start().expect("a server");
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.create("/lock", b"", raw::PERSISTENT).expect("a folder");
    let uuid = "5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab";
    raw.create(&format!("/lock/_c_{uuid}-lock-"), b"h7:1", raw::SEQUENTIAL).expect("a node");
    assert_finds(&server, &["/lock"], 0, &[("clients", "note")]);
    assert_finds(&server, &["/lock/deeper"], 0, &[("path", "note")]);
}
