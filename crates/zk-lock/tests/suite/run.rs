//! `run` where nothing goes wrong: statuses, what the command sees, and the kinds of locks.

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use zk_test_server::{Op, TestServer};

use crate::support::{
    LIMIT, Notes, Raw, Running, Signal, assert_in_time, children, pause, run, server, until,
    until_dead, wait_children, zk_lock,
};

const LOCK: &str = "/locks/orders";

#[track_caller]
fn assert_code(server: &TestServer, arguments: &[&str], code: i32, says: &str) {
    let ended = run(server, arguments);
    assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
    assert!(ended.err.contains(says), "{arguments:?}: {ended:?}");
}

#[test]
fn the_exit_status_is_the_commands() {
    let server = server();
    for code in [0, 1, 42, 255] {
        assert_code(&server, &["run", LOCK, "--", "sh", "-c", &format!("exit {code}")], code, "");
    }
    assert_eq!(children(&server, LOCK), [""; 0], "all were released");
}

#[test]
fn a_command_that_a_signal_ends_has_128_and_its_number() {
    let server = server();
    assert_code(&server, &["run", LOCK, "--", "sh", "-c", "kill -TERM $$"], 143, "");
    assert_code(&server, &["run", LOCK, "--", "sh", "-c", "kill -KILL $$"], 137, "");
}

#[test]
fn a_command_that_is_missing_or_cannot_run_has_the_shells_status() {
    let server = server();
    assert_code(
        &server,
        &["run", LOCK, "--", "/no/such/command"],
        127,
        "cannot run /no/such/command",
    );
    assert_code(
        &server,
        &["run", LOCK, "--", "no-such-command"],
        127,
        "cannot run no-such-command",
    );
    assert_code(&server, &["run", LOCK, "--", "/etc/passwd"], 126, "Permission denied");
    assert_eq!(children(&server, LOCK), [""; 0]);
}

#[test]
fn a_wrong_command_line_has_the_status_of_usage() {
    let server = server();
    let tail = ["--", "true"];
    let wrong: [(&[&str], &str); 11] = [
        (&["run", "--nonsense", LOCK], "--nonsense"),
        (&["run"], "PATH"),
        (&["run", "locks/orders"], "must start with '/'"),
        (&["run", "--read", "--write", LOCK], "cannot be used with"),
        (&["run", "--try", "--timeout", "5s", LOCK], "cannot be used with"),
        (&["run", "--timeout", "soon", LOCK], "write a duration as"),
        (&["run", LOCK, LOCK], "is given twice"),
        (&["run", "--grace", "7s", LOCK], "the grace may be 5.5 s at most"),
        (&["run", "--min-hold", "5s", "--max-hold", "4s", LOCK], "--min-hold 5 s is longer"),
        (&["run", "--permits", "2", LOCK], "say how many it has with --of"),
        (&["run", "--acl", "creator", LOCK], "give --auth too"),
    ];
    for (arguments, says) in wrong {
        assert_code(&server, &[arguments, &tail].concat(), 64, says);
    }
    assert_code(&server, &["run", LOCK], 64, "COMMAND");
    assert_code(&server, &["--connect", "", "run", LOCK, "--", "true"], 64, "--connect zk1:2181");
    assert_code(&server, &["--connect", "h:0", "run", LOCK, "--", "true"], 64, "port must be 1");
    let secret = ["--auth", "digest:NO_SUCH_VARIABLE", "run", LOCK, "--", "true"];
    assert_code(&server, &secret, 64, "there is no environment variable NO_SUCH_VARIABLE");
}

#[test]
fn a_grace_that_the_granted_session_is_too_short_for_is_refused_with_the_numbers() {
    let server = TestServer::builder()
        .max_session_timeout(std::time::Duration::from_secs(4))
        .start()
        .expect("a server");
    let arguments = ["run", "--grace", "2s", LOCK, "--", "true"];
    assert_code(&server, &arguments, 64, "the servers grant a session timeout of 4 s at most");
    assert_code(&server, &["run", LOCK, "--", "true"], 0, "");
}

#[test]
fn servers_that_cannot_be_reached_have_a_status_of_their_own() {
    let server = server();
    server.refuse(true);
    let arguments = ["--connect-timeout", "1s", "run", LOCK, "--", "true"];
    assert_code(&server, &arguments, 69, "Check --connect (or ZK_CONNECT)");
}

#[test]
fn what_an_acl_refuses_has_a_status_of_its_own() {
    let server = server();
    let notes = Notes::new();
    std::fs::write(notes.path("secret"), "orders:secret\n").expect("a file");
    let auth = format!("digest:{}", notes.path("secret").display());
    let arguments = ["--auth", &auth, "run", "--acl", "creator", LOCK, "--", "true"];
    assert_code(&server, &arguments, 0, "");
    assert_code(&server, &["run", LOCK, "--", "true"], 77, "give credentials that it names");
    assert_code(&server, &arguments, 0, "");
    let ended: crate::support::Ended =
        zk_lock(&server, &["--auth", "digest:SECRET", "run", LOCK, "--", "true"])
            .env("SECRET", "orders:secret")
            .output()
            .expect("it runs")
            .into();
    assert_eq!(ended.code, 0, "{ended:?}");
}

#[test]
fn a_lock_that_others_hold_is_not_obtained() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo > $D/began; read x");
    let mut holder = zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]);
    holder.stdin(Stdio::piped());
    let mut child = holder.spawn().expect("it runs");
    notes.wait("began");
    assert_code(&server, &["run", "--try", LOCK, "--", "true"], 124, "");
    assert_code(&server, &["run", "--timeout", "300ms", LOCK, "--", "true"], 124, "");
    assert_code(&server, &["run", "-n", "-E", "3", LOCK, "--", "true"], 3, "");
    assert_code(&server, &["-v", "run", "-n", "/other", LOCK, "--", "true"], 124, "held by others");
    assert_eq!(children(&server, "/other"), [""; 0], "of several locks none is kept");
    child.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
    assert!(child.wait().expect("it ends").success());
    assert_code(&server, &["run", "-n", LOCK, "--", "true"], 0, "");
}

#[test]
fn the_command_has_the_streams_and_sees_the_lock_in_its_environment() {
    let server = server();
    let mut command = zk_lock(
        &server,
        &[
            "run",
            "/a",
            "/b",
            "--",
            "sh",
            "-c",
            "cat; echo \"$ZK_LOCK_PATH|$ZK_LOCK_NODE|$ZK_LOCK_FENCE|$ZK_LOCK_SESSION\"; \
             echo oops >&2",
        ],
    );
    let mut child = command.stdin(Stdio::piped()).spawn().expect("it runs");
    child.stdin.take().expect("a pipe").write_all(b"from outside\n").expect("it reads");
    let ended: crate::support::Ended = child.wait_with_output().expect("it ends").into();
    assert_eq!((ended.code, ended.err.as_str()), (0, "oops\n"));
    let rest = ended.out.strip_prefix("from outside\n").expect("what it read");
    let parts: Vec<&str> = rest.trim_end().split('|').collect();
    assert_eq!(parts[0], "/a\n/b");
    let nodes: Vec<&str> = parts[1].lines().collect();
    assert!(nodes[0].starts_with("/a/_c_") && nodes[1].starts_with("/b/_c_"), "{nodes:?}");
    let fences: Vec<&str> = parts[2].lines().collect();
    assert!(fences.iter().all(|fence| fence.len() == 32) && fences[0] < fences[1], "{fences:?}");
    assert!(parts[3].starts_with("0x"), "{parts:?}");
}

#[test]
fn fences_rise_from_holder_to_holder() {
    let server = server();
    let fence = || run(&server, &["run", LOCK, "--", "sh", "-c", "echo $ZK_LOCK_FENCE"]).out;
    let all: Vec<String> = (0..3).map(|_| fence()).collect();
    assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
}

#[test]
fn whoever_reads_the_commands_output_sees_its_end_although_the_lock_is_kept() {
    let server = server();
    let arguments = ["run", "--min-hold", "20s", LOCK, "--", "sh", "-c", "echo $$"];
    let mut child = zk_lock(&server, &arguments).spawn().expect("it runs");
    let mut out = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().expect("a pipe"), &mut out)
        .expect("it can be read");
    // The output ends a moment before the process does, and a signal would still be for the
    // command.
    until_dead(out.trim().parse().expect("a process id"));
    assert!(child.try_wait().expect("it can be asked").is_none(), "the lock is kept");
    assert_eq!(children(&server, LOCK).len(), 1);
    // The work is done: a signal ends only the wait.
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::TERM)
        .expect("it runs");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
    assert_eq!(children(&server, LOCK), [""; 0]);
}

#[test]
fn a_lock_is_held_at_least_and_at_most_so_long() {
    let server = server();
    let began = std::time::Instant::now();
    assert_code(&server, &["run", "--min-hold", "700ms", LOCK, "--", "sh", "-c", "exit 5"], 5, "");
    assert!(began.elapsed().as_millis() >= 700);
    let endless = ["run", "--max-hold", "300ms", LOCK, "--", "sleep", "60"];
    assert_code(&server, &endless, 143, "has been held for 300 ms (--max-hold)");
    let stubborn = "trap '' TERM; while :; do sleep 0.1; done";
    let grace =
        ["run", "--max-hold", "300ms", "--grace", "200ms", LOCK, "--", "sh", "-c", stubborn];
    let began = std::time::Instant::now();
    let ended = run(&server, &grace);
    // The shell needs a moment until it is deaf.
    let is_killed = ended.code == 137 && ended.err.contains("SIGKILL to the command's process");
    assert_in_time(is_killed, began, Duration::from_millis(200), &format!("{ended:?}"));
    let other = ["run", "--max-hold", "300ms", "--signal", "INT", LOCK, "--", "sleep", "60"];
    assert_code(&server, &other, 130, "SIGINT to the command");
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let server = server();
    let notes = Notes::new();
    let reader = |name: &str| {
        let script =
            notes.script(&format!("echo > $D/{name}; while [ ! -e $D/go ]; do sleep 0.02; done"));
        Running::start(zk_lock(&server, &["run", "--read", LOCK, "--", "sh", "-c", &script]))
    };
    let (one, two) = (reader("one"), reader("two"));
    notes.wait("one");
    notes.wait("two");
    assert_code(&server, &["run", "--write", "--try", LOCK, "--", "true"], 124, "");
    std::fs::write(notes.path("go"), "").expect("a file");
    assert_eq!((one.end().code, two.end().code), (0, 0));
    assert_code(&server, &["run", "--write", "--try", LOCK, "--", "true"], 0, "");
}

#[test]
fn permits_are_counted_and_their_number_need_be_said_only_once() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo > $D/began; while [ ! -e $D/go ]; do sleep 0.02; done");
    let holder = Running::start(zk_lock(
        &server,
        &["run", "--permits", "2", "--of", "3", LOCK, "--", "sh", "-c", &script],
    ));
    notes.wait("began");
    assert_code(&server, &["run", "--permits", "1", "--try", LOCK, "--", "true"], 0, "");
    assert_code(&server, &["run", "--permits", "2", "--try", LOCK, "--", "true"], 124, "");
    let other = ["run", "--permits", "1", "--of", "4", LOCK, "--", "true"];
    assert_code(&server, &other, 64, "has 3 permits, and --of says 4");
    std::fs::write(notes.path("go"), "").expect("a file");
    assert_eq!(holder.end().code, 0);
}

#[test]
fn a_signal_ends_a_wait_and_leaves_nothing_in_the_queue() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.create("/locks", b"", 0).and_then(|_| raw.create(LOCK, b"", 0)).expect("a folder");
    let ahead = format!("{LOCK}/_c_5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab-lock-");
    raw.create(&ahead, b"", zk_test_support::raw::EPHEMERAL_SEQUENTIAL).expect("a holder");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        server.clear_log();
        let waiter = Running::start(zk_lock(&server, &["run", LOCK, "--", "touch", "/nowhere"]));
        // Its node is there, and it has read who is ahead.
        wait_children(&server, LOCK, 2);
        assert!(server.wait_request(Op::GetData.on(LOCK), LIMIT).is_some());
        waiter.signal(signal);
        let ended = waiter.end();
        assert_eq!(ended.code, code, "{ended:?}");
        // It has said good-bye, and its node went before.
        assert_eq!(children(&server, LOCK).len(), 1);
    }
}

#[test]
fn a_signal_ends_an_attempt_to_connect() {
    let server = server();
    server.black_hole(true);
    let waiter = Running::start(zk_lock(&server, &["run", LOCK, "--", "true"]));
    until("it dials", LIMIT, || (server.connection_count() > 0).then_some(()));
    pause(50);
    waiter.signal(Signal::INT);
    assert_eq!(waiter.end().code, 130);
    server.black_hole(false);
}

#[test]
fn somebody_who_waits_is_told_for_whom() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo > $D/began; while [ ! -e $D/go ]; do sleep 0.02; done");
    let holder = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]));
    notes.wait("began");
    let id = holder.pid().as_raw_nonzero();
    let ended = run(&server, &["-v", "run", "--timeout", "4s", LOCK, "--", "true"]);
    assert_eq!(ended.code, 124);
    assert!(ended.err.contains(&format!(":{id}, session 0x")), "{ended:?}");
    std::fs::write(notes.path("go"), "").expect("a file");
    assert_eq!(holder.end().code, 0);
}

/// Before `run` queues, it asks what stands at the path. No server answers that question.
#[test]
fn the_time_of_a_wait_and_a_signal_end_the_look_at_the_path() {
    // A request waits for a sixth of the session timeout for its answer.
    let long = std::time::Duration::from_secs(600);
    let server = TestServer::builder().max_session_timeout(long).start().expect("a server");
    let unanswered = server.hold_requests(Op::GetChildren.on(LOCK));
    let ended =
        run(&server, &["run", "--session", "600s", "--timeout", "300ms", LOCK, "--", "true"]);
    assert_eq!(ended.code, 69, "{ended:?}");
    assert!(ended.err.contains("the time of --timeout ended"), "{ended:?}");
    drop(unanswered);
    let unanswered = server.hold_requests(Op::GetChildren.on(LOCK));
    let asking =
        Running::start(zk_lock(&server, &["run", "--session", "600s", LOCK, "--", "true"]));
    assert!(unanswered.wait(LIMIT));
    asking.signal(Signal::TERM);
    assert_eq!(asking.end().code, 143);
    drop(unanswered);
}

/// Holds a lock until `go` is there.
fn holder(server: &TestServer, notes: &Notes, arguments: &[&str]) -> Running {
    let script = notes.script("echo > $D/began; while [ ! -e $D/go ]; do sleep 0.02; done");
    let tail = ["--", "sh", "-c", &script];
    let holder = Running::start(zk_lock(server, &[arguments, &tail].concat()));
    notes.wait("began");
    holder
}

#[test]
fn a_lock_that_others_hold_is_named_with_its_holders() {
    let server = server();
    let notes = Notes::new();
    let holder = holder(&server, &notes, &["run", "/locks/b"]);
    let id = holder.pid().as_raw_nonzero();
    // The second of three, without a terminal.
    let several = ["run", "--try", "/locks/a", "/locks/b", "/locks/c", "--", "true"];
    let ended = run(&server, &several);
    assert_eq!(ended.code, 124, "{ended:?}");
    let begins = "zk-lock: /locks/b is held by others: mutex, ";
    assert!(ended.err.starts_with(begins), "{ended:?}");
    assert!(ended.err.contains(&format!(":{id}, zk-mutex, session 0x")), "{ended:?}");
    assert!(ended.err.contains("queued "), "for how long: {ended:?}");
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    let timeout = ["run", "--timeout", "4s", "-E", "9", "/locks/b", "--", "true"];
    assert_code(&server, &timeout, 9, begins);
    let quiet = run(&server, &[&["--quiet"], &several[..]].concat());
    assert_eq!((quiet.code, quiet.err.as_str()), (124, ""));
    let json = run(&server, &[&["--json"], &several[..]].concat());
    let line: serde_json::Value = serde_json::from_str(&json.err).expect("one line of JSON");
    assert_eq!((&line["event"], &line["path"]), (&"not_obtained".into(), &"/locks/b".into()));
    assert_eq!(line["held_by"][0]["pid"], id.get());
    std::fs::write(notes.path("go"), "").expect("a file");
    assert_eq!(holder.end().code, 0);
}

#[test]
fn the_holders_of_permits_and_the_leader_are_named_too() {
    let server = server();
    let notes = [Notes::new(), Notes::new(), Notes::new()];
    let permit = ["run", "--permits", "1", "--of", "2", "/limits/two"];
    let holders = [
        holder(&server, &notes[0], &permit),
        holder(&server, &notes[1], &permit),
        holder(&server, &notes[2], &["elect", "/leader"]),
    ];
    let pids = holders.each_ref().map(|holder| holder.pid().as_raw_nonzero());
    let ended = run(&server, &["run", "--permits", "1", "--try", "/limits/two", "--", "true"]);
    assert_eq!(ended.code, 124, "{ended:?}");
    assert!(ended.err.contains("/limits/two is held by others: permit, "), "{ended:?}");
    for pid in &pids[..2] {
        assert!(ended.err.contains(&format!(":{pid}, ")), "{pid}: {ended:?}");
    }
    let ended = run(&server, &["elect", "--timeout", "4s", "/leader", "--", "true"]);
    assert_eq!(ended.code, 124, "{ended:?}");
    assert!(ended.err.contains("others lead /leader: candidate, "), "{ended:?}");
    assert!(ended.err.contains(&format!(":{}, ", pids[2])), "{ended:?}");
    for (holder, notes) in holders.into_iter().zip(&notes) {
        std::fs::write(notes.path("go"), "").expect("a file");
        assert_eq!(holder.end().code, 0);
    }
}

/// That others hold the lock is known already.
#[test]
fn holders_that_cannot_be_read_make_no_outage_of_it() {
    let server = server();
    let notes = Notes::new();
    let holder = holder(&server, &notes, &["run", LOCK]);
    server.clear_log();
    let attempt = ["run", "--try", LOCK, "--", "true"];
    assert_code(&server, &attempt, 124, "/locks/orders is held by others: mutex, ");
    // The last time that it lists the contenders is for that line.
    let before = server.count(Op::GetChildren.on(LOCK)) - 1;
    let held = server.hold_requests(Op::GetChildren.on(LOCK).skip(before));
    let ended = run(&server, &attempt);
    assert_eq!((ended.code, held.count()), (124, 1), "{ended:?}");
    assert_eq!(ended.err, "zk-lock: /locks/orders is held by others\n");
    drop(held);
    std::fs::write(notes.path("go"), "").expect("a file");
    assert_eq!(holder.end().code, 0);
}

#[test]
fn json_lines_tell_what_happens() {
    let server = server();
    let ended = run(&server, &["--json", "run", LOCK, "--", "sh", "-c", "exit 4"]);
    assert_eq!(ended.code, 4);
    let lines: Vec<serde_json::Value> =
        ended.err.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let events: Vec<&str> = lines.iter().filter_map(|line| line["event"].as_str()).collect();
    assert_eq!(events, ["acquired", "ended", "released"]);
    assert_eq!(lines[0]["zk_lock_path"], LOCK);
    assert_eq!(lines[1]["status"], 4);
    let failed = run(&server, &["--json", "run", "nowhere", "--", "true"]);
    let line: serde_json::Value = serde_json::from_str(&failed.err).expect("JSON");
    assert_eq!((line["event"].as_str(), line["status"].as_i64()), (Some("failed"), Some(64)));
}
