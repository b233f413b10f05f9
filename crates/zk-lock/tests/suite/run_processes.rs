//! The processes of `run`: signals, grandchildren, and the end of zk-lock itself.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{
    LIMIT, Notes, Running, SESSION, SPARE, Signal, assert_in_time, at_best, child_named, children,
    is_alive, revoke, run, server, until, until_dead, wait_children, zk_lock,
};

const LOCK: &str = "/locks/orders";

/// A command with a child, which notes the ids of both.
const FAMILY: &str = "sleep 300 & echo $! > $D/grandchild; echo $$ > $D/child; wait";
/// The same, but no signal ends either of them.
const STUBBORN: &str = "trap '' TERM INT HUP; \
                        (trap '' TERM INT HUP; while :; do sleep 0.1; done) & \
                        echo $! > $D/grandchild; echo $$ > $D/child; while :; do sleep 0.1; done";

#[test]
fn signals_go_to_the_commands_group() {
    let server = server();
    for (signal, code) in [(Signal::INT, 12), (Signal::TERM, 13), (Signal::HUP, 14)] {
        let notes = Notes::new();
        let script = notes.script(
            "trap 'exit 12' INT; trap 'exit 13' TERM; trap 'exit 14' HUP; sleep 300 & \
             echo $! > $D/grandchild; echo > $D/ready; wait",
        );
        let running = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]));
        notes.wait("ready");
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(!is_alive(notes.wait_pid("grandchild")));
    }
}

#[test]
fn what_the_command_leaves_behind_ends_before_the_lock_is_released() {
    let server = server();
    let notes = Notes::new();
    for script in [
        "sleep 300 & echo $! > $D/left",
        "(trap '' TERM; while :; do sleep 0.05; done) & echo $! > $D/left",
    ] {
        let script = notes.script(&format!("{script}; exit 6"));
        let ended = run(&server, &["run", "--grace", "200ms", LOCK, "--", "sh", "-c", &script]);
        assert_eq!(ended.code, 6, "{ended:?}");
        assert!(!is_alive(notes.wait_pid("left")));
    }
    // An orphan of an orphan, which notes when it ends; the lock goes later.
    let script = notes.script(
        "(sh -c 'trap \"sleep 0.3; date +%s%N > $0/ended; exit\" TERM; echo > $0/up; \
                 while :; do sleep 0.05; done' $D &) ; \
         while [ ! -e $D/up ]; do sleep 0.02; done",
    );
    let first = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]));
    notes.wait("up");
    let second = run(&server, &["run", LOCK, "--", "date", "+%s%N"]);
    assert_eq!(first.end().code, 0);
    assert!(notes.wait("ended").trim() < second.out.trim(), "{second:?}");
}

#[test]
fn the_death_of_zk_lock_ends_the_command_and_its_children() {
    let server = server();
    for family in [FAMILY, STUBBORN] {
        let notes = Notes::new();
        let script = notes.script(family);
        let mut command = zk_lock(
            &server,
            &["run", "--session", SESSION, "--grace", "300ms", LOCK, "--", "sh", "-c", &script],
        );
        // Its guard has these until it ends.
        let running = {
            command.stdout(Stdio::null()).stderr(Stdio::null());
            Running::start(command)
        };
        let (child, grandchild) = (notes.wait_pid("child"), notes.wait_pid("grandchild"));
        let guard = child_named(running.pid(), "zk-guard").expect("a guard");
        let killed = Instant::now();
        running.signal(Signal::KILL);
        until_dead(child);
        until_dead(grandchild);
        assert!(at_best(killed) < Duration::from_secs(3), "{:?}", killed.elapsed());
        let is_kept = children(&server, LOCK).len() == 1;
        assert_in_time(is_kept, killed, SPARE, "the server has not given the lock away");
        until_dead(guard);
        wait_children(&server, LOCK, 0);
    }
}

#[test]
fn the_death_of_zk_lock_before_it_has_the_lock_leaves_no_process() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo $$ > $D/child; sleep 300");
    let holder = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]));
    let child = notes.wait_pid("child");
    let waiter = Running::start(zk_lock(&server, &["run", LOCK, "--", "true"]));
    wait_children(&server, LOCK, 2);
    assert_eq!(child_named(waiter.pid(), "zk-guard"), None);
    waiter.signal(Signal::KILL);
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().code, 143);
    assert!(!is_alive(child));
}

#[test]
fn a_zk_lock_in_the_command_of_another_ends_its_own_command_in_time() {
    let server = server();
    let notes = Notes::new();
    let zk_lock_itself = env!("CARGO_BIN_EXE_zk-lock");
    let script = notes.script(STUBBORN);
    let mut outer = zk_lock(&server, &["run", "--revocable", "--grace", "200ms", LOCK, "--"]);
    outer.args([zk_lock_itself, "run", "/locks/inner", "--", "sh", "-c", &script]);
    // The inner guard has these until it ends.
    outer.stdout(Stdio::null()).stderr(Stdio::null());
    let outer = Running::start(outer);
    let (child, grandchild) = (notes.wait_pid("child"), notes.wait_pid("grandchild"));
    revoke(&server, LOCK);
    assert_eq!(outer.end().code, 137);
    let ended = Instant::now();
    until_dead(child);
    until_dead(grandchild);
    assert!(at_best(ended) < Duration::from_secs(2), "no second grace: {:?}", ended.elapsed());
}

#[test]
fn a_zk_lock_that_is_stopped_loses_its_command_before_its_lock() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script(STUBBORN);
    let arguments =
        ["run", "--session", SESSION, "--grace", "200ms", LOCK, "--", "sh", "-c", &script];
    let running = Running::start(zk_lock(&server, &arguments));
    let (child, grandchild) = (notes.wait_pid("child"), notes.wait_pid("grandchild"));
    let stopped = Instant::now();
    running.signal(Signal::STOP);
    until_dead(child);
    until_dead(grandchild);
    let is_kept = children(&server, LOCK).len() == 1;
    assert_in_time(is_kept, stopped, SPARE, "the server has not given the lock away");
    running.signal(Signal::CONT);
    let ended = running.end();
    assert_eq!(ended.code, 123, "{ended:?}");
}

/// Each renewal of the lease has to reach the guard in time, through a process that is often late.
#[test]
fn a_zk_lock_that_is_stopped_for_moments_keeps_its_lock() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("while [ ! -e $D/go ]; do sleep 0.05; done; exit 7");
    let locks: Vec<String> = (0..8).map(|i| format!("/locks/{i}")).collect();
    let all: Vec<Running> = (locks.iter())
        .map(|lock| ["run", "--session", SESSION, lock, "--", "sh", "-c", &script])
        .map(|arguments| Running::start(zk_lock(&server, &arguments)))
        .collect();
    locks.iter().for_each(|lock| {
        wait_children(&server, lock, 1);
    });
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(12) {
        for (signal, millis) in [(Signal::STOP, 200), (Signal::CONT, 50)] {
            all.iter().for_each(|running| running.signal(signal));
            crate::support::pause(millis);
        }
    }
    std::fs::write(notes.path("go"), "").expect("a file");
    for ended in all.into_iter().map(Running::end) {
        assert_in_time(ended.code == 7, began, SPARE, &format!("{ended:?}"));
    }
}

#[test]
fn a_guard_that_is_killed_is_replaced() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script(FAMILY);
    let mut command = zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running::start(command);
    let (child, grandchild) = (notes.wait_pid("child"), notes.wait_pid("grandchild"));
    let guard = child_named(running.pid(), "zk-guard").expect("a guard");
    kill(guard, Signal::KILL);
    let other = until("another guard", LIMIT, || {
        child_named(running.pid(), "zk-guard").filter(|pid| *pid != guard && is_alive(*pid))
    });
    // It may not know the group yet; it answers when it does, and zk-lock waits for that.
    crate::support::pause(300);
    assert!(is_alive(child));
    running.signal(Signal::KILL);
    until_dead(child);
    until_dead(grandchild);
    until_dead(other);
}

#[test]
fn a_guard_that_is_stopped_keeps_no_lock() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo $$ > $D/child; while [ ! -e $D/go ]; do sleep 0.02; done");
    let running = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]));
    notes.wait("child");
    let guard = child_named(running.pid(), "zk-guard").expect("a guard");
    kill(guard, Signal::STOP);
    std::fs::write(notes.path("go"), "").expect("a file");
    // It has nothing left to guard.
    until_dead(guard);
    assert_eq!(running.end().code, 0);
    assert_eq!(children(&server, LOCK), [""; 0]);
}

fn kill(pid: i32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
    rustix::process::kill_process(pid, signal).expect("it runs");
}

#[test]
fn a_signal_that_is_ignored_from_the_beginning_stays_ignored() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo > $D/began; while [ ! -e $D/go ]; do sleep 0.02; done; exit 9");
    let zk_lock = env!("CARGO_BIN_EXE_zk-lock");
    let mut nohup = Command::new("sh");
    nohup.args([
        "-c",
        "trap '' HUP; exec \"$@\"",
        "sh",
        zk_lock,
        "run",
        LOCK,
        "--",
        "sh",
        "-c",
        &script,
    ]);
    nohup.env("ZK_CONNECT", server.connect_string());
    nohup.stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running::start(nohup);
    notes.wait("began");
    running.signal(Signal::HUP);
    crate::support::pause(200);
    std::fs::write(notes.path("go"), "").expect("a file");
    assert_eq!(running.end().code, 9);
}
