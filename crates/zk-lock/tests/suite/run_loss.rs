//! `--on-loss`, and what is said of a loss, whichever process ends the command: zk-lock, or its
//! guard where zk-lock is stopped or killed.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, kill_process};
use zk_test_server::TestServer;

use crate::support::{
    LIMIT, Notes, Running, SESSION, SPARE, Signal, assert_in_time, child_named, is_alive, pause,
    revoke, server, until, until_dead, wait_children, zk_lock,
};

const LOCK: &str = "/locks/orders";

/// A command that goes on until the scenario says `go`.
const PATIENT: &str =
    "echo $$ > $D/child; while [ ! -e $D/go ]; do sleep 0.02; done; echo > $D/done";

/// A command of `--on-loss` that writes a line each time that it runs.
fn on_loss(notes: &Notes) -> String {
    let script = notes.script("echo \"$ZK_LOCK_PATH: $ZK_LOCK_LOSS\" >> $D/loss");
    std::fs::write(notes.path("on-loss"), script).expect("a script");
    format!("sh {}", notes.path("on-loss").display())
}

/// The lines of that command so far.
fn losses(notes: &Notes) -> Vec<String> {
    notes.read("loss").unwrap_or_default().lines().map(str::to_owned).collect()
}

fn say(notes: &Notes, name: &str) {
    std::fs::write(notes.path(name), "").expect("a file");
}

/// `run` with these options and this script as its command, in the directory of the notes.
fn run(server: &TestServer, notes: &Notes, options: &[&str], script: &str) -> Command {
    let (json, options): (Vec<&str>, Vec<&str>) =
        options.iter().partition(|option| **option == "--json");
    let mut command = zk_lock(server, &json);
    command.arg("run");
    for (option, value) in [("--session", SESSION), ("--on-loss", &on_loss(notes))] {
        if !options.contains(&option) {
            command.args([option, value]);
        }
    }
    command.args(options);
    command.args([LOCK, "--", "sh", "-c", &notes.script(script)]);
    command.current_dir(notes.path("."));
    command
}

/// The guard has these until it ends, so nobody can wait for their end.
fn in_silence(mut command: Command) -> Running {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Running::start(command)
}

fn guard(of: &Running) -> i32 {
    child_named(of.pid(), "zk-guard").expect("a guard")
}

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).expect("a process id"), Signal::KILL).expect("it runs");
}

#[test]
fn the_guard_of_a_stopped_zk_lock_tells_of_the_loss_and_nobody_does_so_again() {
    for options in [&["--grace", "200ms"][..], &["--json"]] {
        let server = server();
        let notes = Notes::new();
        let running = Running::start(run(&server, &notes, options, PATIENT));
        let child = notes.wait_pid("child");
        // It goes on for a while: zk-lock waits for it, and starts no other.
        let script = notes.script(
            "echo \"$ZK_LOCK_PATH: $ZK_LOCK_LOSS\" >> $D/loss; \
             while [ ! -e $D/told ]; do sleep 0.02; done; echo > $D/ended",
        );
        std::fs::write(notes.path("on-loss"), script).expect("a script");
        let guard = guard(&running);
        running.signal(Signal::STOP);
        until_dead(child);
        let expected = "/locks/orders: zk-lock was stopped, and could not renew its lease";
        assert_eq!(notes.wait("loss"), expected);
        pause(2_100); // what comes later than two seconds says so
        running.signal(Signal::CONT);
        until("zk-lock goes on", LIMIT, || (!is_stopped(running.pid())).then_some(()));
        pause(200);
        say(&notes, "told");
        let ended = running.end();
        assert_eq!(ended.code, 123, "{ended:?}");
        until_dead(guard);
        assert!(notes.read("ended").is_some(), "zk-lock has waited for it");
        assert_eq!(losses(&notes), [expected]);
        for text in ["the guard has ended the command: zk-lock was stopped", "Z, "] {
            assert!(ended.err.contains(text), "{ended:?}");
        }
        if options == ["--json"] {
            let lines = ended.err.lines().map(serde_json::from_str);
            let lines: Vec<serde_json::Value> = lines.map(|line| line.expect("JSON")).collect();
            let told: Vec<_> = lines.iter().filter(|line| line["event"] == "lost").collect();
            // One of the guard, when it happened, and one of zk-lock.
            assert_eq!(told.len(), 2, "{ended:?}");
            assert!(told.iter().any(|line| line["late_ms"].as_u64() > Some(2_000)), "{ended:?}");
        }
    }
}

fn is_stopped(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| stat.contains(") T "))
}

#[test]
fn the_guard_of_a_killed_zk_lock_tells_of_the_loss() {
    let server = server();
    let notes = Notes::new();
    // A path that begins where zk-lock was started.
    let running = in_silence(run(&server, &notes, &["--on-loss", "sh ./on-loss"], PATIENT));
    let child = notes.wait_pid("child");
    let guard = guard(&running);
    running.signal(Signal::KILL);
    until_dead(child);
    until_dead(guard);
    assert_eq!(losses(&notes), ["/locks/orders: zk-lock was killed"]);
}

#[test]
fn a_guard_in_the_place_of_a_killed_one_tells_of_the_loss_once() {
    let server = server();
    let notes = Notes::new();
    let running = in_silence(run(&server, &notes, &[], PATIENT));
    let child = notes.wait_pid("child");
    let killed = guard(&running);
    kill(killed);
    let other = until("another guard", LIMIT, || {
        child_named(running.pid(), "zk-guard").filter(|pid| *pid != killed && is_alive(*pid))
    });
    pause(300); // it may not know the group yet
    running.signal(Signal::KILL);
    until_dead(child);
    until_dead(other);
    assert_eq!(losses(&notes), ["/locks/orders: zk-lock was killed"]);
}

#[test]
fn zk_lock_tells_of_the_loss_if_its_guard_was_killed() {
    let server = server();
    let notes = Notes::new();
    let running = Running::start(run(&server, &notes, &[], PATIENT));
    let child = notes.wait_pid("child");
    running.signal(Signal::STOP);
    kill(guard(&running));
    until("its session expires", LIMIT, || server.sessions().is_empty().then_some(()));
    assert!(is_alive(child), "nobody is there to end it");
    running.signal(Signal::CONT);
    let ended = running.end();
    assert_eq!(ended.code, 123, "{ended:?}");
    let [loss] = &losses(&notes)[..] else { panic!("one: {:?}", losses(&notes)) };
    assert!(loss.contains("zk-lock did not run for "), "{loss}");
}

/// It was stopped, and its command came to its end meanwhile, in time: nothing is lost.
#[test]
fn a_command_that_has_ended_before_its_guard_looks_keeps_its_status() {
    let server = server();
    let notes = Notes::new();
    let running = Running::start(run(&server, &notes, &[], &format!("{PATIENT}; exit 5")));
    let child = notes.wait_pid("child");
    let guard = guard(&running);
    let stopped = Instant::now();
    running.signal(Signal::STOP);
    say(&notes, "go");
    until_dead(child);
    // It looks at the end of the lease, and finds nothing to do.
    until_dead(guard);
    wait_children(&server, LOCK, 0);
    running.signal(Signal::CONT);
    let ended = running.end();
    let is_kept = ended.code == 5 && losses(&notes).is_empty();
    assert_in_time(is_kept, stopped, SPARE, &format!("{ended:?}, {:?}", losses(&notes)));
}

#[test]
fn a_kill_after_the_command_has_ended_is_no_loss() {
    let server = server();
    let notes = Notes::new();
    let running = in_silence(run(&server, &notes, &[], PATIENT));
    let child = notes.wait_pid("child");
    let guard = guard(&running);
    running.signal(Signal::STOP);
    say(&notes, "go");
    until_dead(child);
    running.signal(Signal::KILL);
    until_dead(guard);
    assert_eq!(losses(&notes), [""; 0]);
}

#[test]
fn a_kill_while_the_command_is_ended_for_another_reason_is_no_loss() {
    let server = server();
    let notes = Notes::new();
    let options = ["--session", "30s", "--max-hold", "300ms"];
    let script = format!("trap 'echo > $D/asked' TERM; {PATIENT}");
    let running = in_silence(run(&server, &notes, &options, &script));
    let child = notes.wait_pid("child");
    let guard = guard(&running);
    notes.wait("asked");
    running.signal(Signal::KILL);
    say(&notes, "go");
    until_dead(child);
    until_dead(guard);
    assert_eq!(losses(&notes), [""; 0]);
}

/// The outer one kills the inner one, which has no time to say anything.
#[test]
fn a_zk_lock_in_the_command_of_another_tells_of_its_own_loss_only() {
    let server = server();
    let (outer, inner) = (Notes::new(), Notes::new());
    let stubborn = "trap '' TERM; echo $$ > $D/child; while :; do sleep 0.05; done";
    let mut command = zk_lock(&server, &["run", "--revocable", "--grace", "200ms"]);
    command.args(["--on-loss", &on_loss(&outer), LOCK, "--", env!("CARGO_BIN_EXE_zk-lock")]);
    command.args(["run", "--on-loss", &on_loss(&inner), "/locks/inner", "--", "sh", "-c"]);
    command.arg(inner.script(stubborn));
    let running = in_silence(command);
    let child = inner.wait_pid("child");
    revoke(&server, LOCK);
    assert_eq!(running.end().code, 137);
    until_dead(child);
    assert_eq!(inner.wait("loss"), "/locks/inner: zk-lock was killed");
    assert_eq!((losses(&outer).len(), losses(&inner).len()), (0, 1));
}

/// A pipe for stderr that has no room left, and its other end.
fn full_pipe() -> (Stdio, UnixStream) {
    let (mut theirs, ours) = UnixStream::pair().expect("a pair");
    theirs.set_nonblocking(true).expect("a setting");
    while theirs.write(&[b'.'; 4096]).is_ok() {}
    while theirs.write(b".").is_ok() {}
    theirs.set_nonblocking(false).expect("a setting");
    (Stdio::from(std::os::fd::OwnedFd::from(theirs)), ours)
}

/// What is in the pipe, up to its end.
fn drain(mut pipe: UnixStream) -> String {
    let mut all = String::new();
    pipe.read_to_string(&mut all).expect("text");
    all.trim_start_matches('.').to_owned()
}

#[test]
fn a_guard_whose_stderr_nobody_reads_ends_the_command_all_the_same() {
    let server = server();
    let notes = Notes::new();
    let mut command = run(&server, &notes, &[], PATIENT);
    let (stderr, pipe) = full_pipe();
    let running = Running::start({
        command.stdout(Stdio::null()).stderr(stderr);
        command
    });
    let child = notes.wait_pid("child");
    let stopped = Instant::now();
    running.signal(Signal::STOP);
    until_dead(child);
    let is_kept = server.sessions().len() == 1;
    assert_in_time(is_kept, stopped, SPARE, "the server has not expired the session");
    assert_eq!(
        notes.wait("loss"),
        "/locks/orders: zk-lock was stopped, and could not renew its lease"
    );
    running.signal(Signal::KILL);
    drop(pipe);
}

#[test]
fn a_stderr_that_nobody_reads_delays_neither_the_end_nor_on_loss_and_has_the_time() {
    let server = server();
    let notes = Notes::new();
    let mut command = run(&server, &notes, &[], PATIENT);
    let (stderr, pipe) = full_pipe();
    let running = Running::start({
        command.stdout(Stdio::null()).stderr(stderr);
        command
    });
    let child = notes.wait_pid("child");
    assert!(server.expire_session(server.sessions()[0].id));
    until_dead(child);
    // As zk-lock found it: its guard, which hears of it too, does nothing in its place.
    let loss = notes.wait("loss");
    assert!(loss.contains("its node is gone") || loss.contains("expired"), "{loss}");
    pause(2_100);
    let said = drain(pipe);
    assert_eq!(running.end().code, 123);
    assert!(said.contains("/locks/orders is lost"), "{said}");
    assert!(said.contains("Z, "), "{said}");
}

#[test]
fn a_stderr_that_nobody_reads_costs_no_lock() {
    let server = server();
    let notes = Notes::new();
    let mut command = run(&server, &notes, &[], PATIENT);
    let (stderr, pipe) = full_pipe();
    let running = Running::start({
        command.stdout(Stdio::null()).stderr(stderr);
        command
    });
    let child = notes.wait_pid("child");
    let asked = Instant::now();
    revoke(&server, LOCK);
    pause(7_000); // more than a session timeout
    assert_in_time(is_alive(child), asked, SPARE, "the command goes on");
    say(&notes, "go");
    // The lock is given back before anybody reads.
    wait_children(&server, LOCK, 0);
    let said = drain(pipe);
    let code = running.end().code;
    assert_in_time(code == 0, asked, SPARE, &format!("{code}, {said}"));
    assert!(said.contains("somebody asks for /locks/orders"), "{said}");
}

#[test]
fn the_status_of_a_loss_can_be_told_from_the_commands_own() {
    let server = server();
    let notes = Notes::new();
    let options = ["--loss-status", "9", "--quiet"];
    let running = Running::start(run(&server, &notes, &options, PATIENT));
    notes.wait("child");
    assert!(server.expire_session(server.sessions()[0].id));
    let ended = running.end();
    assert_eq!(ended.code, 9, "{ended:?}");
    assert!(ended.err.contains("/locks/orders is lost"), "that is an error: {ended:?}");
    let notes = Notes::new();
    let script = "echo $$ > $D/child; exit 123";
    let ended = Running::start(run(&server, &notes, &["--loss-status", "9"], script)).end();
    assert_eq!(ended.code, 123, "{ended:?}");
    let ended = crate::support::run(&server, &["run", "--loss-status", "256", LOCK, "--", "true"]);
    assert_eq!(ended.code, 64, "{ended:?}");
}
