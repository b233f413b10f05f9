//! `doctor` finds what is prepared to be wrong, and nothing else.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use zk_test_server::{TestServer, TestServerBuilder};
use zk_test_support::stub::Then;
use zk_test_support::{Stub, own_loopback, raw};

use crate::support::{Ended, Raw, Scratch, run, zk_lock};

const HEX: &str = "514e5a831836450cb1a56c741e990fd8";
const UUID: &str = "5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab";

/// A finding: the check, its level and its words.
pub struct Finding {
    pub check: String,
    pub level: String,
    pub text: String,
}

/// All that it has found.
pub fn findings(ended: &Ended) -> Vec<Finding> {
    let lines = ended.out.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let of = |line: Value| {
        let text = |key: &str| line[key].as_str().expect("text").to_owned();
        assert!(text("level") == "ok" || !text("advice").is_empty(), "{line}");
        Finding { check: text("check"), level: text("level"), text: text("text") }
    };
    lines.map(of).collect()
}

/// What it finds: the checks, each with its level, but for those that are well.
fn found(server: &TestServer, arguments: &[&str]) -> (i32, Vec<(String, String)>) {
    let ended = run(server, &[&["--json", "doctor"], arguments].concat());
    let all = findings(&ended).into_iter().filter(|one| one.level != "ok");
    (ended.code, all.map(|one| (one.check, one.level)).collect())
}

/// What it says about one check: each time the level and the words.
pub fn said(ended: &Ended, check: &str) -> Vec<(String, String)> {
    let all = findings(ended).into_iter().filter(|one| one.check == check);
    all.map(|one| (one.level, one.text)).collect()
}

/// It says one thing about this check, of this level and with these words in it.
#[track_caller]
pub fn assert_says(ended: &Ended, check: &str, level: &str, words: &str) {
    let all = said(ended, check);
    let is_it = |(of, text): &(String, String)| of == level && text.contains(words);
    assert!(all.len() == 1 && is_it(&all[0]), "{check}, {level}, {words:?}: {ended:?}");
}

/// What every server of these scenarios has: it stands alone, is open to all, and has no TLS. Its
/// host may have nothing that sets the clock.
const USUAL: [(&str, &str); 4] =
    [("servers", "warning"), ("acl", "warning"), ("tls", "note"), ("ntp", "warning")];

/// On a busy machine answers are slow or do not come in time, and doctor says so. A scenario that is
/// not about latency runs doctor again then, so many times at most.
const ATTEMPTS: usize = 10;

#[track_caller]
fn assert_finds(server: &TestServer, arguments: &[&str], code: i32, more: &[(&str, &str)]) {
    let is_slow = |(check, level): &(String, String)| {
        let is_latency = ["read", "write"].contains(&check.as_str());
        let is_late = check == "containers" && level == "note";
        (is_latency || is_late) && !more.contains(&(check.as_str(), level.as_str()))
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
    for name in [format!("/lock/{HEX}__lock__"), format!("/lock/_c_{UUID}-lock-")] {
        raw.create(&name, b"", raw::EPHEMERAL_SEQUENTIAL).expect("a node");
    }
    assert_finds(&server, &["/lock"], 1, &[("clients", "fault")]);
    // An identifier such as many programs give kazoo.
    raw.create("/named", b"", raw::PERSISTENT).expect("a folder");
    for (name, data) in
        [(format!("/named/{HEX}__lock__"), "h7:1"), (format!("/named/_c_{UUID}-lock-"), "10.0.0.7")]
    {
        raw.create(&name, data.as_bytes(), raw::EPHEMERAL_SEQUENTIAL).expect("a node");
    }
    assert_finds(&server, &["/named"], 1, &[("clients", "fault")]);
    raw.create("/other", b"", raw::PERSISTENT).expect("a folder");
    for (name, data) in
        [(format!("/other/{HEX}__lock__"), ""), (format!("/other/_c_{UUID}-lock-"), "h7:1")]
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
    raw.create(&format!("/lock/_c_{UUID}-lock-"), b"h7:1", raw::SEQUENTIAL).expect("a node");
    assert_finds(&server, &["/lock"], 0, &[("clients", "note")]);
    assert_finds(&server, &["/lock/deeper"], 0, &[("path", "note")]);
}

/// A server that does not allow a word.
#[test]
fn a_word_that_a_server_does_not_allow_is_said() {
    let server = builder().start().expect("a server");
    let words = "srvr is not executed because it is not in the whitelist.\n";
    let stub = Stub::start(words, Then::Close);
    let connect = format!("{},{}", server.connect_string(), stub.connect_string());
    let ended = run(&server, &["--json", "doctor", "--connect", &connect]);
    assert_says(&ended, "reachable", "note", "its whitelist does not have srvr");
}

/// Two sessions of zk-mutex hold locks, and three more are connected.
#[test]
fn the_upkeep_of_the_fleet_is_told() {
    let server = builder().start().expect("a server");
    let mut sessions: Vec<Raw> =
        (0..5).map(|_| Raw::connect(&server.connect_string()).expect("a session")).collect();
    let t = sessions[0].timeout().as_secs_f64();
    sessions[4].mkdirs("/fleet/a").expect("a folder");
    sessions[4].mkdirs("/fleet/b").expect("a folder");
    for (session, path) in [(0, "/fleet/a"), (1, "/fleet/a"), (2, "/fleet/b"), (2, "/fleet/a")] {
        let name = format!("{path}/_c_{UUID}-lock-");
        let made = sessions[session].create(&name, b"h7:1", raw::EPHEMERAL_SEQUENTIAL);
        made.expect("a contender");
    }
    let told = (0..ATTEMPTS)
        .map(|_| run(&server, &["doctor", "/fleet"]).out)
        .find(|out| !out.contains("answers take more than"))
        .expect("answers in time");
    // The figures of the chapter on costs, which another scenario compares with what is told.
    let (requests, writes, idle) = (2.0 * 8.0 / t, 2.0 * 1.6 / t, 3.0 * 4.0 / t);
    for part in [
        "2 locks are in use below /fleet, held by 2 sessions of zk-mutex".to_owned(),
        format!("send {requests:.2} requests a second for that, {writes:.2} of them writes"),
        format!(
            "3 sessions more, if all are of zk-mutex and hold nothing elsewhere, send {idle:.2}"
        ),
    ] {
        assert!(told.contains(&part), "{part:?}: {told}");
    }
}

#[test]
fn a_chroot_that_a_slip_has_made_is_found() {
    let server = builder().start().expect("a server");
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs("/team/orders/lock").expect("a folder");
    let lock = format!("/team/orders/lock/_c_{UUID}-lock-");
    raw.create(&lock, b"h7:1", raw::EPHEMERAL_SEQUENTIAL).expect("a contender");
    let doctor = |chroot: &str| {
        let connect = format!("{}{chroot}", server.connect_string());
        run(&server, &["--json", "doctor", "--connect", &connect])
    };
    let missing = doctor("/team/order");
    assert_says(&missing, "chroot", "fault", "does not exist; is /team/orders meant?");
    raw.mkdirs("/team/order/lock").expect("a folder");
    let made = doctor("/team/order");
    let words = "nothing is in the chroot /team/order, and 1 lock is in use below /team/orders";
    assert_says(&made, "chroot", "warning", words);
    // A chroot of its own has a lock, or data, or no neighbour of a name like its own.
    raw.set_data("/team/order/lock", b"a setting").expect("data");
    raw.mkdirs("/team/stock").expect("a folder");
    for chroot in ["/team/order", "/team/orders", "/team/stock", ""] {
        assert_eq!(said(&doctor(chroot), "chroot"), [], "{chroot}");
    }
}

#[test]
fn kinds_that_do_not_exclude_each_other_are_found() {
    let server = builder().start().expect("a server");
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    let mut stand = |folder: &str, mark: &str| {
        raw.mkdirs(folder).expect("a folder");
        let name = format!("{folder}/_c_{UUID}-{mark}");
        raw.create(&name, b"h7:1", raw::EPHEMERAL_SEQUENTIAL).expect("a contender");
    };
    stand("/limited", "lock-");
    stand("/limited/leases", "lease-");
    assert_finds(&server, &["/limited"], 1, &[("kinds", "fault")]);
    stand("/led", "latch-");
    stand("/led", "lock-");
    assert_finds(&server, &["/led"], 1, &[("kinds", "fault")]);
    // Locks of all kinds stand in one queue, and each semaphore has a mutex of its own.
    stand("/fine/queue", "lock-");
    stand("/fine/queue", "__READ__");
    stand("/fine/led", "latch-");
    stand("/fine/limited/leases", "lease-");
    stand("/fine/limited/locks", "lock-");
    assert_finds(&server, &["/fine"], 0, &[]);
}

#[test]
fn a_semaphore_that_nobody_uses_is_found() {
    let server = builder().start().expect("a server");
    let path = "/limits/downloads";
    let ended = run(&server, &["run", "--permits", "1", "--of", "3", path, "--", "true"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.create("/limits/count", b"7", raw::PERSISTENT).expect("a number of another program");
    let doctor = || run(&server, &["--json", "doctor", "/limits"]);
    assert_says(
        &doctor(),
        "semaphores",
        "note",
        &format!("nobody uses the semaphore {path} (permits: 3"),
    );
    raw.mkdirs("/limits/downloads/leases").expect("a folder");
    let name = format!("{path}/leases/_c_{UUID}-lease-");
    raw.create(&name, b"h7:1", raw::EPHEMERAL_SEQUENTIAL).expect("a permit");
    assert_eq!(said(&doctor(), "semaphores"), []);
}

#[test]
fn a_folder_in_which_this_client_may_not_delete_is_found() {
    let server = builder().start().expect("a server");
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    let (read, create) = (1, 4);
    raw.mkdirs("/locks/half").expect("a folder");
    raw.set_acl("/locks/half", read | create).expect("an ACL");
    assert_finds(&server, &["/locks"], 1, &[("folders", "fault")]);
    raw.mkdirs("/others/lock").expect("a folder");
    raw.create(&format!("/others/lock/_c_{UUID}-lock-"), b"h7:1", raw::EPHEMERAL_SEQUENTIAL)
        .expect("a contender");
    raw.set_acl("/others/lock", read).expect("an ACL");
    assert_finds(&server, &["/others"], 0, &[("folders", "note")]);
    // What is closed and no lock is nobody's business.
    raw.mkdirs("/settings/closed").expect("a folder");
    raw.set_acl("/settings/closed", read).expect("an ACL");
    assert_finds(&server, &["/settings"], 0, &[]);
}

#[test]
fn a_filter_that_hides_the_warnings_of_the_library_is_found() {
    let server = builder().start().expect("a server");
    let doctor = |filters: &str| -> Ended {
        let mut command = zk_lock(&server, &["--json", "doctor"]);
        command.env("RUST_LOG", filters).output().expect("zk-lock runs").into()
    };
    for (filters, words) in [
        ("zk_mutex=lout", "has parts that are ignored"),
        ("off", "hides the warnings of zk_mutex and zk_session"),
        ("error,zk_mutex=info", "hides the warnings of zk_session"),
    ] {
        let (warnings, well): (Vec<_>, Vec<_>) =
            said(&doctor(filters), "logger").into_iter().partition(|(level, _)| level == "warning");
        assert!(warnings.len() == 1 && warnings[0].1.contains(words), "{filters}: {warnings:?}");
        assert_eq!(well.len(), 1, "{filters}: {well:?}");
    }
    assert_says(&doctor("warn"), "logger", "ok", "stderr takes lines");
}

#[test]
fn a_stderr_that_takes_no_lines_is_found() {
    let server = builder().start().expect("a server");
    let doctor = |stderr: Stdio| -> Ended {
        let mut command = zk_lock(&server, &["--json", "doctor"]);
        command.stderr(stderr).output().expect("zk-lock runs").into()
    };
    assert_says(&doctor(Stdio::piped()), "logger", "ok", "stderr takes lines");
    assert_says(&doctor(Stdio::null()), "logger", "note", "goes to /dev/null");
    let full = File::options().write(true).open("/dev/full").expect("a full device");
    assert_says(&doctor(full.into()), "logger", "warning", "takes no line");
    let (ours, theirs) = UnixStream::pair().expect("a stream");
    drop(theirs);
    assert_says(&doctor(OwnedFd::from(ours).into()), "logger", "warning", "reader has gone");
    let (mut ours, reader) = UnixStream::pair().expect("a stream");
    ours.set_nonblocking(true).expect("a stream that does not wait");
    let end = loop {
        if let Err(e) = ours.write(&[0; 1 << 10]) {
            break e.kind();
        }
    };
    assert_eq!(end, ErrorKind::WouldBlock);
    ours.set_nonblocking(false).expect("a stream that waits");
    assert_says(&doctor(OwnedFd::from(ours).into()), "logger", "warning", "stderr is full");
    drop(reader);
}

/// The program that knows it is played by a script.
#[test]
fn a_host_whose_clock_nothing_sets_is_found() {
    let server = builder().start().expect("a server");
    let scratch = Scratch::new("zk-lock-ntp");
    let program = scratch.path().join("timedatectl");
    let path = std::env::var("PATH").expect("a PATH");
    let path = format!("{}:{path}", scratch.path().display());
    for (says, level, words) in [
        ("echo no", "warning", "nothing synchronises this host's clock"),
        ("echo yes", "ok", "this host's clock is synchronised"),
        ("exit 1", "ok", "is not known"),
    ] {
        fs::write(&program, format!("#!/bin/sh\n{says}\n")).expect("a script");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a program");
        let mut command = zk_lock(&server, &["--json", "doctor"]);
        let ended: Ended = command.env("PATH", &path).output().expect("zk-lock runs").into();
        assert_says(&ended, "ntp", level, words);
    }
}

#[test]
fn nodes_that_are_hidden_from_doctor_are_told() {
    let server = builder().start().expect("a server");
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs("/locks/secret").expect("folders");
    raw.set_acl("/locks/secret", 4).expect("an ACL"); // only CREATE
    assert_finds(&server, &["/locks"], 0, &[("hidden", "note")]);
}
