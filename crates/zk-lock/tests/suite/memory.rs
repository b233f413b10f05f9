//! What zk-lock remembers beside a lock: who was asked to let go, and the runs of a job.

use serde_json::Value;
use zk_test_server::TestServer;
use zk_test_support::raw::EPHEMERAL_SEQUENTIAL;

use crate::support::{Notes, Raw, Running, Signal, children, run, server, until_dead, zk_lock};

const LOCK: &str = "/locks/orders";
const UUID: &str = "5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab";

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_contender_that_was_asked_to_let_go_is_still_known() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs(LOCK).expect("folders");
    let path = format!("{LOCK}/_c_{UUID}-lock-");
    let holder = raw.create(&path, b"h7:4711", EPHEMERAL_SEQUENTIAL).expect("a node");
    let waiter = raw.create(&path, b"10.0.0.8", EPHEMERAL_SEQUENTIAL).expect("a node");
    for _ in 0..2 {
        // To ask twice loses nothing.
        assert_eq!(run(&server, &["revoke", LOCK]).code, 0);
    }
    let node = waiter.rsplit('/').next().expect("a name");
    assert_eq!(run(&server, &["revoke", LOCK, "--node", node]).code, 0);
    assert_eq!(raw.get_data(&holder).expect("it is there").0, b"__REVOKE__");
    let shown = lines(&run(&server, &["--json", "show", LOCK]).out);
    let [first, second] = [0, 1].map(|i| shown[0]["contenders"][i].clone());
    assert_eq!((first["host"].as_str(), first["pid"].as_i64()), (Some("h7"), Some(4711)));
    assert_eq!(
        (&first["asked_to_let_go"], first["client"].as_str()),
        (&true.into(), Some("zk-mutex"))
    );
    assert_eq!(
        (second["host"].as_str(), second["client"].as_str()),
        (Some("10.0.0.8"), Some("Curator"))
    );
    let text = run(&server, &["show", LOCK]).out;
    assert!(text.contains("h7:4711 (asked to let go)"), "{text}");
    // What zk-lock has noted is no lock.
    assert_eq!(run(&server, &["--json", "ls"]).out.lines().count(), 1);

    // Somebody else has asked this one, so nobody knows it any more.
    let third = raw.create(&path, b"__REVOKE__", EPHEMERAL_SEQUENTIAL).expect("a node");
    assert_eq!(run(&server, &["revoke", LOCK, "--node", &third]).code, 0);
    let shown = lines(&run(&server, &["--json", "show", LOCK]).out);
    let third = &shown[0]["contenders"][2];
    assert_eq!((third["host"].as_str(), third["client"].as_str()), (None, Some("unknown")));
}

fn history(server: &TestServer) -> Vec<Value> {
    lines(&run(server, &["--json", "history", LOCK]).out)
}

#[test]
fn history_has_the_runs_of_a_job_and_how_each_ended() {
    let server = server();
    assert_eq!(run(&server, &["run", LOCK, "--", "true"]).code, 0);
    let none = run(&server, &["history", LOCK]);
    assert!(none.code == 1 && none.err.contains("--record"), "{none:?}");
    let record = ["run", "--record", LOCK, "--", "sh", "-c"];
    assert_eq!(run(&server, &[&record[..], &["exit 0"]].concat()).code, 0);
    assert_eq!(run(&server, &[&record[..], &["exit 5"]].concat()).code, 5);
    // zk-lock is killed: nobody is left to note the end.
    let notes = Notes::new();
    let script = notes.script("echo $$ > $D/child; exec sleep 300");
    let holder = Running::start(zk_lock(&server, &[&record[..], &[&script]].concat()));
    let child = notes.wait_pid("child");
    crate::support::until("the run is noted", crate::support::LIMIT, || {
        (history(&server).len() == 3).then_some(())
    });
    assert_eq!(history(&server)[2]["state"], "running");
    holder.signal(Signal::KILL);
    until_dead(child);
    drop(holder);
    for session in server.sessions() {
        server.expire_session(session.id);
    }
    assert_eq!(children(&server, LOCK), [""; 0]);
    let all = history(&server);
    let ends: Vec<(Option<i64>, &str)> = all
        .iter()
        .map(|one| (one["status"].as_i64(), one["state"].as_str().expect("a state")))
        .collect();
    assert_eq!(ends, [(Some(0), "ended"), (Some(5), "ended"), (None, "unknown")]);
    assert!(all.iter().all(|one| one["host"].as_str().is_some_and(|host| host.contains(':'))));
    let text = run(&server, &["history", LOCK]).out;
    assert!(text.contains("status 5") && text.contains("not noted"), "{text}");
    // `forget` forgets them.
    assert_eq!(run(&server, &["forget", LOCK, "--yes"]).code, 0);
    assert_eq!(run(&server, &["history", LOCK]).code, 1);
}

#[test]
fn history_says_that_a_run_has_lost_its_lock() {
    let server = server();
    let notes = Notes::new();
    let script = notes.script("echo $$ > $D/child; exec sleep 300");
    let record = ["run", "--record", LOCK, "--", "sh", "-c", &script];
    let holder = Running::start(zk_lock(&server, &record));
    notes.wait_pid("child");
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    let node = children(&server, LOCK).remove(0);
    raw.delete(&format!("{LOCK}/{node}")).expect("it is there");
    assert_eq!(holder.end().code, 123);
    let all = history(&server);
    assert_eq!(all[0]["status"], 123);
    assert!(all[0]["lost"].as_str().is_some_and(|why| why.contains("gone")), "{all:?}");
}

/// Whoever may make a record may hide it.
#[test]
fn a_record_that_is_hidden_hides_no_lock() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs(LOCK).expect("folders");
    let path = format!("{LOCK}/_c_{UUID}-lock-");
    raw.create(&path, b"__REVOKE__", EPHEMERAL_SEQUENTIAL).expect("a node");
    raw.mkdirs("/zk-lock/records/%2Flocks%2Forders").expect("folders");
    raw.set_acl("/zk-lock/records/%2Flocks%2Forders", 4).expect("an ACL"); // only CREATE
    let shown = run(&server, &["--json", "show", LOCK]);
    assert_eq!((shown.code, lines(&shown.out)[0]["holding"].as_i64()), (0, Some(1)), "{shown:?}");
    assert_eq!(run(&server, &["--json", "ls"]).out.lines().count(), 1);
    assert_eq!(run(&server, &["run", "--try", LOCK, "--", "true"]).code, 124);
}

/// The servers do not answer any more when the command ends.
#[test]
fn the_end_of_a_recorded_run_waits_for_no_outage() {
    let server = TestServer::start().expect("a server");
    let notes = Notes::new();
    let script = notes.script("echo $$ > $D/child; while [ ! -e $D/go ]; do sleep 0.02; done");
    let record = ["run", "--record", "--session", "30s", LOCK, "--", "sh", "-c", &script];
    let holder = Running::start(zk_lock(&server, &record));
    notes.wait_pid("child");
    server.black_hole(true);
    std::fs::write(notes.path("go"), "").expect("a file");
    let ended = holder.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.err.contains("lacks the end of this run"), "{ended:?}");
}
