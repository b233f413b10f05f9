//! `run` where the network, the server or the lock itself goes wrong.

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use zk_test_server::TestServer;
use zk_test_support::Proxy;

use crate::support::{
    LIMIT, Notes, Raw, Running, SESSION, SPARE, Signal, assert_in_time, at_best, children,
    is_alive, pause, revoke, server, until, until_dead, wait_children, zk_lock,
};

const LOCK: &str = "/locks/orders";

#[test]
fn a_holder_whose_network_is_cut_is_ended_before_its_lease() {
    let polite =
        "trap 'echo > $D/asked; exit 0' TERM; echo $$ > $D/child; while :; do sleep 0.05; done";
    let stubborn = "trap '' TERM; echo $$ > $D/child; while :; do sleep 0.05; done";
    for (script, is_polite) in [(polite, true), (stubborn, false)] {
        let server = server();
        let notes = Notes::new();
        let script = notes.script(script);
        let on_loss = format!("sh {}", notes.path("on-loss").display());
        std::fs::write(notes.path("on-loss"), notes.script("echo \"$ZK_LOCK_LOSS\" > $D/loss"))
            .expect("a script");
        let running = Running::start(zk_lock(
            &server,
            &[
                "run",
                "--session",
                SESSION,
                "--grace",
                "1s",
                "--on-loss",
                &on_loss,
                LOCK,
                "--",
                "sh",
                "-c",
                &script,
            ],
        ));
        let child = notes.wait_pid("child");
        let session = server.sessions()[0].id;
        let cut = Instant::now();
        server.black_hole(true);
        until_dead(child);
        let is_living = server.sessions().iter().any(|living| living.id == session);
        assert_in_time(is_living, cut, SPARE, "the server has not expired the session");
        server.black_hole(false);
        let ended = running.end();
        assert_eq!(ended.code, 123, "{ended:?}");
        // If zk-lock got no processor for so long, its guard has ended the command in its place.
        let is_by_zk_lock = ended.err.contains("ZooKeeper does not answer");
        assert_in_time(is_by_zk_lock, cut, SPARE, &format!("zk-lock ends it itself: {ended:?}"));
        let is_killed = ended.err.contains("SIGKILL to the command's");
        let what = if is_polite {
            "a command that ends by itself is not killed"
        } else {
            "zk-lock kills a command that does not end"
        };
        assert_in_time(is_killed != is_polite, cut, Duration::from_millis(500), what);
        if !is_by_zk_lock || is_killed == is_polite {
            continue; // the machine was late, and the guard was in time
        }
        assert_eq!(notes.read("asked").is_some(), is_polite);
        let loss = notes.wait("loss");
        let is_told = loss.contains("ZooKeeper has not answered");
        assert_in_time(is_told, cut, SPARE, &format!("the loss is told: {loss}"));
    }
}

/// What the next holder sees of the one before, as its process id says. A zombie is dead.
const LOOK: &str = "case \"$(cat /proc/$(head -1 $D/child)/stat 2>/dev/null)\" in \
                    ''|*') Z '*) echo dead > $D/seen;; *) echo alive > $D/seen;; esac";

#[test]
fn the_next_holder_finds_the_command_of_the_one_before_dead() {
    let stubborn = "trap '' TERM; echo $$ > $D/child; while :; do sleep 0.05; done";
    for how in ["cut", "stopped", "killed"] {
        let server = server();
        let proxy = Proxy::start(server.address());
        let notes = Notes::new();
        let script = notes.script(stubborn);
        let connect = proxy.connect_string();
        let mut first = zk_lock(
            &server,
            &["-c", &connect, "run", "--session", SESSION, LOCK, "--", "sh", "-c", &script],
        );
        // The guard has these until it ends.
        first.stdout(Stdio::null()).stderr(Stdio::null());
        let first = Running::start(first);
        notes.wait("child");
        let look = notes.script(LOOK);
        let second = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &look]));
        wait_children(&server, LOCK, 2);
        let gone = Instant::now();
        match how {
            "cut" => proxy.black_hole(true),
            "stopped" => first.signal(Signal::STOP),
            _ => first.signal(Signal::KILL),
        }
        let seen = notes.wait("seen");
        assert_in_time(
            seen == "dead",
            gone,
            SPARE,
            &format!("{how}, and the next one sees {seen}"),
        );
        assert_eq!(second.end().code, 0);
        if how == "cut" {
            assert_eq!(first.end().code, 123);
        } else if how == "stopped" {
            first.signal(Signal::CONT);
            assert_eq!(first.end().code, 123);
        }
    }
}

#[test]
fn a_short_outage_costs_nothing() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo > $D/began; while [ ! -e $D/go ]; do sleep 0.02; done; exit 8");
    let running = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]));
    notes.wait("began");
    for _ in 0..3 {
        server.restart();
        pause(200);
    }
    std::fs::write(notes.path("go"), "").expect("a file");
    let ended = running.end();
    assert_eq!(ended.code, 8, "{ended:?}");
    assert_eq!(children(&server, LOCK), [""; 0]);
}

/// The session gives the frozen server up, and moves on, before so little of the lease is left that
/// the command has to end. A freeze is most dangerous just before the lease is renewed, so servers
/// freeze at many moments between two renewals.
#[test]
fn a_server_that_freezes_costs_no_command_where_another_answers() {
    // With a long tick a lease is proven late, and less of it is left.
    let tick = Duration::from_secs(3);
    let server = TestServer::builder().tick(tick).start().expect("a server");
    let ways = [Proxy::start(server.address()), Proxy::start(server.address())];
    let connect = ways.each_ref().map(Proxy::connect_string).join(",");
    let notes = Notes::new();
    let script = notes.script("echo > $D/began; while [ ! -e $D/go ]; do sleep 0.02; done; exit 8");
    let arguments = ["run", "-v", "--session", SESSION, LOCK, "--", "sh", "-c", &script];
    let mut command = zk_lock(&server, &[&["--connect", &connect], &arguments[..]].concat());
    command.stderr(std::fs::File::create(notes.path("said")).expect("a file"));
    let running = Running::start(command);
    notes.wait("began");
    for moment in 0..8 {
        pause(1_000 + moment * 300);
        let used = ways.iter().find(|way| way.connections() > 0).expect("a connection");
        let (frozen, since) = (Instant::now(), resumed(&notes));
        used.black_hole(true);
        until("the session has moved, or the command has ended", LIMIT, || {
            let has_ended = notes.read("said").is_some_and(|said| said.contains("the command"));
            (has_ended || resumed(&notes) > since).then_some(())
        });
        let is_well = resumed(&notes) > since;
        assert_in_time(is_well, frozen, SPARE, &format!("{:?}", notes.read("said")));
        used.black_hole(false);
        if !is_well {
            return; // the machine was too late
        }
    }
    std::fs::write(notes.path("go"), "").expect("a file");
    assert_eq!(running.end().code, 8);
}

/// How often the session has moved to another server.
fn resumed(notes: &Notes) -> usize {
    notes.read("said").unwrap_or_default().matches("resumed on").count()
}

#[test]
fn a_command_whose_lock_somebody_deletes_is_killed_at_once() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("trap '' TERM; echo $$ > $D/child; while :; do sleep 0.05; done");
    let running = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]));
    let child = notes.wait_pid("child");
    let node = wait_children(&server, LOCK, 1).remove(0);
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.delete(&format!("{LOCK}/{node}")).expect("it is there");
    until_dead(child);
    let ended = running.end();
    assert_eq!(ended.code, 123, "{ended:?}");
    assert!(ended.err.contains("its node is gone (deleted by hand"), "{ended:?}");
}

#[test]
fn a_command_whose_session_expires_is_killed() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo $$ > $D/child; sleep 300");
    let running = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]));
    let child = notes.wait_pid("child");
    assert!(server.expire_session(server.sessions()[0].id));
    until_dead(child);
    let ended = running.end();
    assert_eq!(ended.code, 123, "{ended:?}");
    assert!(ended.err.contains("/locks/orders is lost"), "{ended:?}");
}

#[test]
fn a_release_in_an_outage_does_not_change_the_status() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo > $D/began; while [ ! -e $D/go ]; do sleep 0.02; done; exit 8");
    let arguments = ["run", "--session", "5s", "--grace", "200ms", LOCK, "--", "sh", "-c", &script];
    let running = Running::start(zk_lock(&server, &arguments));
    notes.wait("began");
    server.black_hole(true);
    std::fs::write(notes.path("go"), "").expect("a file");
    let ended = running.end();
    assert_eq!(ended.code, 8, "{ended:?}");
    assert!(ended.err.contains("the release is not confirmed"), "{ended:?}");
    server.black_hole(false);
    wait_children(&server, LOCK, 0);
}

#[test]
fn an_outage_while_waiting_keeps_the_place_and_a_signal_still_ends_it() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo $$ > $D/child; sleep 300");
    let holder = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]));
    let child = notes.wait_pid("child");
    let waiter = Running::start(zk_lock(&server, &["run", LOCK, "--", "true"]));
    wait_children(&server, LOCK, 2);
    server.refuse(true);
    server.cut_connections();
    pause(3_500); // by now it would say who is ahead, and cannot ask
    waiter.signal(Signal::TERM);
    let signalled = Instant::now();
    assert_eq!(waiter.end().code, 143);
    assert!(at_best(signalled) < Duration::from_secs(4), "{:?}", signalled.elapsed());
    assert!(is_alive(child), "its lease goes on");
    server.refuse(false);
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().code, 143);
}

/// What a script of an operator looks like. `ZK_LOCK_TEST_RUNS=200` plays the whole of it.
#[test]
fn scripts_that_count_under_the_lock_are_exact_while_the_server_restarts() {
    let runs: usize =
        std::env::var("ZK_LOCK_TEST_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let server = server();
    let notes = Notes::new();
    let script = "i=0\n\
        while [ $i -lt $RUNS ]; do\n\
          $ZK_LOCK run /locks/counter -- sh -c '\n\
            n=$(cat $COUNTER); sleep 0.001; echo $((n + 1)) > $COUNTER' || exit 1\n\
          i=$((i + 1))\n\
        done";
    std::fs::write(notes.path("counter"), "0\n").expect("a file");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let count = || {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", script]);
            command.env("RUNS", runs.to_string()).env("COUNTER", notes.path("counter"));
            command.env("ZK_LOCK", env!("CARGO_BIN_EXE_zk-lock"));
            command.env("ZK_CONNECT", server.connect_string()).output().expect("sh runs")
        };
        let scripts: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        let restarts = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(700));
                server.restart();
            }
        });
        for script in scripts {
            let output = script.join().expect("no panic");
            assert!(output.status.success(), "{output:?}");
        }
        is_over.store(true, Ordering::SeqCst);
        restarts.join().expect("no panic");
    });
    assert_eq!(notes.wait("counter"), (4 * runs).to_string());
    assert_eq!(children(&server, "/locks/counter"), [""; 0]);
}

#[test]
fn a_holder_that_is_asked_lets_go_if_it_said_so() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo $$ > $D/child; sleep 300");
    let running =
        Running::start(zk_lock(&server, &["run", "--revocable", LOCK, "--", "sh", "-c", &script]));
    notes.wait("child");
    revoke(&server, LOCK);
    let ended = running.end();
    assert_eq!(ended.code, 143, "{ended:?}");
    assert!(ended.err.contains("somebody asks for /locks/orders: SIGTERM"), "{ended:?}");

    let notes = Notes::new();
    let script = notes.script("echo > $D/began; while [ ! -e $D/go ]; do sleep 0.02; done; exit 8");
    let running = Running::start(zk_lock(&server, &["run", LOCK, "--", "sh", "-c", &script]));
    notes.wait("began");
    revoke(&server, LOCK);
    pause(300);
    std::fs::write(notes.path("go"), "").expect("a file");
    let ended = running.end();
    assert_eq!(ended.code, 8, "{ended:?}");
    assert!(ended.err.contains("with --revocable that would end the command"), "{ended:?}");
}
