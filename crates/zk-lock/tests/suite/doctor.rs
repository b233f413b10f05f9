//! `doctor` finds what is prepared to be wrong, and nothing else.

use std::time::{Duration, SystemTime};

use serde_json::Value;
use zk_test_server::{TestServer, TestServerBuilder};
use zk_test_support::stub::Then;
use zk_test_support::{Stub, own_loopback, raw};

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

/// On a busy machine answers are slow, and doctor says so. A scenario that is not about latency
/// runs doctor again then, so many times at most.
const ATTEMPTS: usize = 10;

#[track_caller]
fn assert_finds(server: &TestServer, arguments: &[&str], code: i32, more: &[(&str, &str)]) {
    let is_slow = |(check, level): &(String, String)| {
        let is_latency = ["read", "write"].contains(&check.as_str());
        is_latency && !more.contains(&(check.as_str(), level.as_str()))
    };
    let (mut ended, mut all) = found(server, arguments);
    for _ in 1..ATTEMPTS {
        if !all.iter().any(is_slow) {
            break;
        }
        (ended, all) = found(server, arguments);
    }
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

/// The chapter on costs has the figures, which scenarios count.
#[test]
fn the_upkeep_of_sessions_is_told_as_the_guide_has_it() {
    let server = builder().start().expect("a server");
    let is_quick = |out: &str| !out.contains("answers take more than");
    let told = (0..ATTEMPTS)
        .map(|_| run(&server, &["doctor", "--session", "40s"]).out)
        .find(|out| is_quick(out))
        .expect("answers within a second");
    let figures = |row: &str| -> (String, String) {
        let guide = include_str!("../../../../src/guide/costs.md");
        let line = guide.lines().find(|line| line.starts_with(row)).expect("a row of the table");
        let mut cells = line[row.len()..].split('|').map(str::trim);
        (cells.next().expect("requests").to_owned(), cells.next().expect("writes").to_owned())
    };
    let (requests, writes) = figures("| it holds nothing |");
    assert_eq!(writes, "0");
    assert!(
        told.contains(&format!("holds nothing sends {requests} requests and no write")),
        "{told}"
    );
    let (requests, writes) = figures("| it holds locks |");
    let holder = format!("holds locks {requests} requests, and {writes} of them are writes");
    assert!(told.contains(&holder), "{told}");
    assert!(told.contains("in each 40 s"), "{told}");
    assert!(!told.contains("leaderServes"), "it stands alone: {told}");
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

/// A healthy server, and beside it a host that answers every request with these words.
#[track_caller]
fn assert_finds_beside(words: &str, more: &[(&str, &str)]) {
    let server = builder().start().expect("a server");
    let stub = Stub::start(words, Then::Close);
    let connect = format!("{},{}", server.connect_string(), stub.connect_string());
    assert_finds(&server, &["--connect", &connect], 1, more);
}

#[test]
fn a_server_without_a_quorum_is_found() {
    let words = "This ZooKeeper instance is not currently serving requests\n";
    assert_finds_beside(words, &[("quorum", "fault")]);
}

/// What it finds of the quorum where the servers answer with these words, and give no session.
fn quorum_of(words: &[&str]) -> Vec<String> {
    let stubs: Vec<_> = words.iter().map(|words| Stub::start(*words, Then::Close)).collect();
    let connect = stubs.iter().map(Stub::connect_string).collect::<Vec<_>>().join(",");
    let server = builder().start().expect("a server");
    let (_, all) = found(&server, &["--connect", &connect, "--connect-timeout", "500ms"]);
    all.into_iter().filter(|(check, _)| check == "quorum").map(|(_, level)| level).collect()
}

#[test]
fn a_leader_that_serves_no_clients_is_no_fault() {
    let silent = "This ZooKeeper instance is not currently serving requests\n";
    let follower = "Zookeeper version: 3.8.0-5a02a05eddb5, built on 2022-02-25\nMode: follower\n";
    assert_eq!(quorum_of(&[follower, silent, follower]), ["note"]);
    // At most one of them leads.
    assert_eq!(quorum_of(&[follower, silent, silent]), ["fault", "fault"]);
    assert_eq!(quorum_of(&[silent]), ["fault"]);
    let leader = follower.replace("follower", "leader");
    assert_eq!(quorum_of(&[follower, silent, &leader]), ["fault"]);
}

#[test]
fn servers_with_different_limits_of_the_timeout_are_found() {
    let (server, other) = (builder(), builder().max_session_timeout(Duration::from_secs(8)));
    let servers = [server, other].map(|one| one.start().expect("a server"));
    let connect = servers.each_ref().map(TestServer::connect_string).join(",");
    let (code, all) = found(&servers[0], &["--connect", &connect]);
    assert_eq!(code, 1);
    assert!(all.contains(&("timeout".to_owned(), "fault".to_owned())), "{all:?}");
}

#[test]
fn a_server_that_is_read_only_is_found() {
    let words = "Zookeeper version: 3.8.0-5a02a05eddb59aee6ac762f7ea82e92a68eb9c0f, built on \
                 2022-02-25 08:49 UTC\nLatency min/avg/max: 0/0.0/0\nMode: read-only\n";
    assert_finds_beside(words, &[("quorum", "fault"), ("version", "warning")]);
}

#[test]
fn a_server_that_is_too_old_is_found() {
    let words = "Zookeeper version: 3.4.14-4c25d480e66aadd371de8bd2fd8da255ac140bcf, built on \
                 03/06/2019 16:18 GMT\nLatency min/avg/max: 0/0/0\nMode: follower\n";
    let more = [("version", "fault"), ("version", "warning"), ("serving", "fault")];
    assert_finds_beside(words, &more);
}

#[test]
fn a_port_that_is_not_for_clients_is_found() {
    assert_finds_beside("HTTP/1.1 400 Bad Request\r\n\r\n", &[("reachable", "fault")]);
}

#[test]
fn a_server_that_gives_no_session_is_found() {
    let (server, silent) =
        (builder().start().expect("a server"), builder().start().expect("a server"));
    silent.black_hole(true);
    let connect = format!("{},{}", server.connect_string(), silent.connect_string());
    let more = [("reachable", "note"), ("serving", "fault")];
    assert_finds(&server, &["--connect", &connect], 1, &more);
}

#[test]
fn a_host_of_another_ensemble_is_found() {
    let (server, other) =
        (builder().start().expect("a server"), builder().start().expect("a server"));
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.create("/app", b"", raw::PERSISTENT).expect("a folder");
    let hosts = [server.connect_string(), other.connect_string()];
    for connect in [hosts.join(","), format!("{},{}", hosts[1], hosts[0])] {
        assert_finds(&server, &["--connect", &connect], 1, &[("ensemble", "fault")]);
    }
    // One of them does not even have the chroot.
    let connect = format!("{}/app", hosts.join(","));
    let (code, all) = found(&server, &["--connect", &connect]);
    assert_eq!(code, 1);
    assert!(all.contains(&("ensemble".to_owned(), "fault".to_owned())), "{all:?}");
    // The same server under two names is one ensemble.
    let names = format!("{0},{0}", hosts[0]);
    assert_finds(&server, &["--connect", &names], 0, &[]);
    for server in [&server, &other] {
        let mut raw = Raw::connect(&server.connect_string()).expect("a session");
        let left = raw.children("/").expect("a list");
        assert!(left.iter().all(|node| !node.contains("doctor")), "{left:?}");
    }
}

#[test]
fn a_server_whose_clock_is_wrong_is_found() {
    for minutes in [-5 * 60, 5] {
        let apart = Duration::from_secs(60 * i64::abs(minutes).unsigned_abs());
        let now = SystemTime::now();
        let clock = if minutes < 0 { now - apart } else { now + apart };
        let server = builder().wall_clock(clock).start().expect("a server");
        assert_finds(&server, &[], 0, &[("clock", "warning")]);
    }
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
