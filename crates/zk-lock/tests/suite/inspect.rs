//! The commands that show locks and free them, on nodes of several client libraries.

use std::collections::HashSet;

use serde_json::Value;
use zk_test_server::{Op, TestServer};
use zk_test_support::raw;

use crate::support::{
    Ended, Notes, Raw, Running, Signal, children, run, server, until, wait_children, zk_lock,
};

const LOCK: &str = "/locks/orders";

/// A session that has the folders of the scenarios.
fn raw(server: &TestServer) -> Raw {
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs(LOCK).expect("folders");
    raw
}

fn uuid(i: usize) -> String {
    format!("5f1c6a2e-9d0b-4c3a-8e7f-{i:012x}")
}

fn hex(i: usize) -> String {
    format!("514e5a831836450cb1a56c74{i:08x}")
}

fn contend(raw: &mut Raw, name: &str, data: &str) -> String {
    let path = format!("{LOCK}/{name}");
    let made = raw.create(&path, data.as_bytes(), raw::EPHEMERAL_SEQUENTIAL).expect("a node");
    made.rsplit('/').next().expect("a name").to_owned()
}

fn json(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{ended:?}");
    serde_json::from_str(&ended.out).unwrap_or_else(|e| panic!("{e}: {ended:?}"))
}

#[test]
fn show_names_the_contenders_of_every_library() {
    let server = server();
    let mut raw = raw(&server);
    let mut wanted = Vec::new();
    for i in 0..52 {
        let (name, data, client) = match i % 4 {
            1 if i % 8 == 5 => {
                (format!("{}__lock__", hex(i)), format!("h7:{i}"), "kazoo or zk-mutex")
            }
            0 => (format!("_c_{}-lock-", uuid(i)), "10.0.0.7".to_owned(), "Curator"),
            1 => (format!("{}__lock__", hex(i)), String::new(), "kazoo"),
            2 => (format!("_c_{}-lock-", hex(i)), String::new(), "go-zookeeper"),
            _ => (format!("_c_{}-lock-", uuid(i)), format!("h7:{i}"), "zk-mutex"),
        };
        wanted.push((contend(&mut raw, &name, &data), client));
    }
    let shown = json(&run(&server, &["--json", "show", LOCK]));
    let all = shown["contenders"].as_array().expect("a list");
    let names: Vec<(String, &str)> = all
        .iter()
        .map(|one| {
            let text = |key: &str| one[key].as_str().expect("text");
            (text("node").to_owned(), text("client"))
        })
        .collect();
    assert_eq!(names, wanted);
    assert_eq!(all.iter().filter(|one| one["holds"] == true).count(), 1);
    assert_eq!(
        (all[0]["holds"].as_bool(), all[0]["host"].as_str()),
        (Some(true), Some("10.0.0.7"))
    );
    assert_eq!((all[3]["host"].as_str(), all[3]["pid"].as_i64()), (Some("h7"), Some(3)));
    assert_eq!(all[0]["session"], format!("0x{:x}", raw.session_id()));
    let addresses = all.iter().map(|one| one["address"].as_str().expect("text"));
    let addresses: HashSet<&str> = addresses.collect();
    assert!(addresses.len() == 1 && addresses.iter().all(|one| one.starts_with("127.0.0.1:")));
    assert_eq!((shown["kind"].as_str(), shown["waiting"].as_i64()), (Some("mutex"), Some(51)));

    let text = run(&server, &["show", LOCK]);
    assert_eq!(text.out.lines().count(), 54, "{text:?}");
    assert!(text.out.contains("mutex, 1 holds it, 51 wait"), "{text:?}");
}

/// The server that answers may lag behind the leader.
#[test]
fn show_reads_behind_a_sync() {
    let server = server();
    let mut raw = raw(&server);
    contend(&mut raw, &format!("_c_{}-lock-", uuid(1)), "10.0.0.7");
    json(&run(&server, &["--json", "show", LOCK]));
    let requests = server.requests();
    let first = |op: Op, path: &str| {
        requests
            .iter()
            .position(|request| request.op == op && request.path.as_deref() == Some(path))
    };
    let (sync, list) = (first(Op::Sync, "/"), first(Op::GetChildren, LOCK));
    assert!(sync.is_some() && sync < list, "{requests:?}");
}

#[test]
fn show_tells_readers_writers_candidates_permits_and_watches() {
    let server = server();
    let mut raw = raw(&server);
    let holds = |path: &str| -> Vec<bool> {
        let shown = json(&run(&server, &["--json", "show", path]));
        let all = shown["contenders"].as_array().expect("a list").clone();
        all.iter().map(|one| one["holds"].as_bool().expect("a flag")).collect()
    };
    contend(&mut raw, &format!("_c_{}-__READ__", uuid(1)), "h7:1");
    let second = contend(&mut raw, &format!("{}__rlock__", hex(2)), "");
    contend(&mut raw, &format!("_c_{}-__WRIT__", uuid(3)), "h7:3");
    contend(&mut raw, &format!("_c_{}-__READ__", uuid(4)), "h7:4");
    assert_eq!(holds(LOCK), [true, true, false, false]);

    raw.watch(&format!("{LOCK}/{second}")).expect("a watch");
    let shown = json(&run(&server, &["--json", "show", LOCK]));
    let session = format!("0x{:x}", raw.session_id());
    assert_eq!(shown["contenders"][1]["watched_by"], serde_json::json!([session]));
    assert_eq!(shown["contenders"][0]["watched_by"], serde_json::json!([]));

    // Below a chroot the same nodes have other paths.
    let chroot = format!("{}/locks", server.connect_string());
    let shown = json(&run(&server, &["--json", "--connect", &chroot, "show", "/orders"]));
    assert_eq!(shown["contenders"][1]["watched_by"], serde_json::json!([session]));

    let notes = Notes::new();
    let script = notes.script("echo > $D/began; sleep 300");
    let permits = ["run", "--permits", "2", "--of", "3", "/sem", "--", "sh", "-c", &script];
    let holder = Running::start(zk_lock(&server, &permits));
    notes.wait("began");
    assert_eq!(holds("/sem"), [true, true]);
    assert_eq!(json(&run(&server, &["--json", "show", "/sem"]))["permits"], 3);
    holder.signal(Signal::TERM);
    holder.end();
    raw.create("/kazoo", b"3", raw::PERSISTENT).expect("a folder");
    for i in 0..2 {
        raw.create(&format!("/kazoo/{}", hex(i)), b"", raw::EPHEMERAL).expect("a lease");
    }
    assert_eq!(holds("/kazoo"), [true, true]);
    let shown = json(&run(&server, &["--json", "show", "/kazoo"]));
    assert_eq!((shown["permits"].as_i64(), shown["kind"].as_str()), (Some(3), Some("semaphore")));
    raw.create("/hashes", b"", raw::PERSISTENT).expect("a folder");
    raw.create(&format!("/hashes/{}", hex(1)), b"", raw::EPHEMERAL).expect("no lock");
    assert_eq!(run(&server, &["show", "/hashes"]).code, 1);
    let nobody = run(&server, &["show", "/nowhere"]);
    assert_eq!(nobody.code, 1);
    assert!(nobody.err.contains("there is no node /nowhere"), "{nobody:?}");
}

#[test]
fn ls_lists_the_locks_below_a_path() {
    let server = server();
    let mut raw = raw(&server);
    assert_eq!(run(&server, &["ls"]).out, "");
    contend(&mut raw, &format!("_c_{}-lock-", uuid(1)), "h7:1");
    contend(&mut raw, &format!("_c_{}-lock-", uuid(2)), "h8:2");
    // A lock in the folder of another one, and nodes that are no locks.
    raw.create(&format!("{LOCK}/eu"), b"", raw::PERSISTENT).expect("a folder");
    let nested = format!("{LOCK}/eu/_c_{}-latch-", uuid(3));
    raw.create(&nested, b"h9:3", raw::EPHEMERAL_SEQUENTIAL).expect("a node");
    raw.create("/config", b"x", raw::PERSISTENT).expect("a node");
    let nonce = format!("{}\nh6:6", uuid(7));
    raw.create("/only", nonce.as_bytes(), raw::EPHEMERAL).expect("a node");
    let listed = run(&server, &["--json", "ls"]);
    let all: Vec<Value> =
        listed.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let found: Vec<(&str, &str, i64)> = all
        .iter()
        .map(|one| {
            let text = |key: &str| one[key].as_str().expect("text");
            (text("path"), text("kind"), one["waiting"].as_i64().expect("a number"))
        })
        .collect();
    assert_eq!(
        found,
        [(LOCK, "mutex", 1), ("/locks/orders/eu", "election", 0), ("/only", "exclusive", 0)]
    );
    let text = run(&server, &["ls", "/locks"]).out;
    assert!(text.contains("h7:1") && text.contains("h9:3") && !text.contains("/only"), "{text}");
}

#[test]
fn watch_tells_of_each_change() {
    let server = server();
    let mut raw = raw(&server);
    let notes = Notes::new();
    let file = |name: &str| std::fs::File::create(notes.path(name)).expect("a file");
    let mut command = zk_lock(&server, &["--json", "watch", LOCK]);
    command.stdout(file("seen"));
    let watching = Running::start(command);
    let expect = |event: &str, node: &str| {
        until(&format!("{event} {node}"), crate::support::LIMIT, || {
            let seen = notes.read("seen")?;
            let lines = seen.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            lines.into_iter().find(|line| {
                line["event"] == event && (node.is_empty() || line["contender"]["node"] == node)
            })
        });
    };
    expect("free", "");
    let first = contend(&mut raw, &format!("_c_{}-lock-", uuid(1)), "h7:1");
    expect("holds", &first);
    let second = contend(&mut raw, &format!("_c_{}-lock-", uuid(2)), "h8:2");
    expect("waits", &second);
    raw.set_data(&format!("{LOCK}/{first}"), b"__REVOKE__").expect("it is there");
    expect("asked", &first);
    raw.delete(&format!("{LOCK}/{first}")).expect("it is there");
    expect("gone", &first);
    expect("holds", &second);
    watching.signal(Signal::INT);
    assert_eq!(watching.end().code, 130);
    let text = run(&server, &["watch", "--for", "100ms", LOCK]);
    assert_eq!(text.code, 0);
    assert!(text.out.contains(&format!("holds  mutex     {second} (h8:2, zk-mutex,")), "{text:?}");
}

#[test]
fn revoke_asks_the_holder_and_break_deletes_what_it_was_told() {
    let server = server();
    let mut raw = raw(&server);
    let first = contend(&mut raw, &format!("_c_{}-lock-", uuid(1)), "10.0.0.7");
    let second = contend(&mut raw, &format!("_c_{}-lock-", uuid(2)), "h8:2");
    let data = |raw: &mut Raw, name: &str| {
        let (data, _) = raw.get_data(&format!("{LOCK}/{name}")).expect("it is there");
        String::from_utf8(data).expect("text")
    };
    let asked = run(&server, &["revoke", LOCK]);
    assert_eq!(asked.code, 0, "{asked:?}");
    assert!(
        asked.out.contains(&format!("asked to let go: {first} (10.0.0.7, Curator,")),
        "{asked:?}"
    );
    assert_eq!(data(&mut raw, &first), "__REVOKE__");
    assert_eq!(data(&mut raw, &second), "h8:2");
    let asked = json(&run(&server, &["--json", "revoke", LOCK, "--node", &second]));
    assert_eq!(asked["contender"]["node"], second);

    let refused = run(&server, &["break", LOCK, "--node", &second]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert!(refused.err.contains("say --yes if that is meant"), "{refused:?}");
    assert_eq!(children(&server, LOCK).len(), 2);
    let unknown = run(&server, &["break", LOCK, "--node", "nobody", "--yes"]);
    assert_eq!(unknown.code, 1, "{unknown:?}");
    assert!(unknown.err.contains("`zk-lock show /locks/orders` lists"), "{unknown:?}");
    let broken = run(&server, &["break", LOCK, "--node", &second, "--yes"]);
    assert_eq!(broken.code, 0, "{broken:?}");
    assert_eq!(children(&server, LOCK), [first.as_str()]);
    assert_eq!(run(&server, &["revoke", "/nowhere"]).code, 1);
}

#[test]
fn break_takes_the_names_of_each_client() {
    let server = server();
    let mut raw = raw(&server);
    let hex = uuid(7).replace('-', "");
    for prefix in [
        format!("_c_{hex}-lock-"), // go-zookeeper
        format!("{hex}__lock__"),  // kazoo
        format!("{hex}__rlock__"),
        format!("_c_{}-lock-", uuid(1)), // Curator
        format!("_c_{}-__READ__", uuid(2)),
        format!("_c_{}-__WRIT__", uuid(3)),
        format!("_c_{}-lock-1", uuid(4)), // a number of eleven digits
    ] {
        let node = contend(&mut raw, &prefix, "h7:1");
        // go-zookeeper does not listen, and its data is left alone.
        let is_heard = !prefix.starts_with(&format!("_c_{hex}"));
        let asked = run(&server, &["revoke", LOCK, "--node", &node]);
        assert_eq!(asked.code == 0, is_heard, "{node}: {asked:?}");
        let data = raw.get_data(&format!("{LOCK}/{node}")).expect("it is there").0;
        assert_eq!(data == b"__REVOKE__", is_heard, "{node}");
        // The name, or the node's whole path.
        let path = format!("{LOCK}/{node}");
        let named = if prefix.contains("lock") { &node } else { &path };
        let broken = run(&server, &["break", LOCK, "--node", named, "--yes"]);
        assert_eq!((broken.code, children(&server, LOCK).len()), (0, 0), "{node}: {broken:?}");
    }
}

#[test]
fn a_command_runs_while_its_process_leads() {
    let server = server();
    let notes = Notes::new();
    let lead = |name: &str| {
        let script = notes.script(&format!("echo $ZK_LOCK_NODE > $D/{name}; exec sleep 300"));
        Running::start(zk_lock(&server, &["elect", "/leader", "--", "sh", "-c", &script]))
    };
    let first = lead("first");
    notes.wait("first");
    let second = lead("second");
    wait_children(&server, "/leader", 2);
    let observed =
        json(&run(&server, &["--json", "elect", "/leader", "--observe", "--for", "100ms"]));
    assert_eq!(observed["event"], "leads");
    assert_eq!(observed["contender"]["path"].as_str(), Some(notes.wait("first").as_str()));
    let late = run(&server, &["elect", "--timeout", "300ms", "/leader", "--", "true"]);
    assert_eq!(late.code, 124, "{late:?}");
    assert_eq!(children(&server, "/leader").len(), 2, "it has left");
    first.signal(Signal::TERM);
    assert_eq!(first.end().code, 143);
    notes.wait("second");
    // A leader whose node goes is no leader.
    let node = wait_children(&server, "/leader", 1).remove(0);
    let mut raw = raw(&server);
    raw.delete(&format!("/leader/{node}")).expect("it is there");
    let ended = second.end();
    assert_eq!(ended.code, 123, "{ended:?}");
    assert!(ended.err.contains("the leadership of /leader is lost"), "{ended:?}");
    wait_children(&server, "/leader", 0);
}

#[test]
fn bench_measures_and_leaves_no_contender() {
    let server = server();
    let measured = run(&server, &["--json", "bench", "--seconds", "200ms"]);
    assert_eq!(measured.code, 0, "{measured:?}");
    let lines: Vec<Value> =
        measured.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(
        (lines[0]["part"].as_str(), lines[1]["part"].as_str()),
        (Some("uncontended"), Some("contended"))
    );
    assert!(lines.iter().all(|line| line["cycles"].as_i64() > Some(0)), "{lines:?}");
    assert_eq!(children(&server, "/zk-lock-bench"), [""; 0]);
    let text = run(&server, &["bench", "--seconds", "100ms", "--sessions", "2"]);
    assert!(text.out.contains("LOCKS/S"), "{text:?}");
}

/// Their data would be lost, and nobody would let go.
#[test]
fn clients_that_do_not_listen_are_not_asked_to_let_go() {
    let server = server();
    let mut raw = raw(&server);
    for (prefix, data) in [
        (format!("{}__lock__", hex(1)), "job-7"), // kazoo's
        (format!("_c_{}-latch-", uuid(2)), "participant 1"), // a LeaderLatch
    ] {
        let node = contend(&mut raw, &prefix, data);
        let asked = run(&server, &["revoke", LOCK]);
        assert_eq!(asked.code, 1, "{asked:?}");
        assert!(asked.err.contains("does not listen"), "{asked:?}");
        let path = format!("{LOCK}/{node}");
        assert_eq!(raw.get_data(&path).expect("it is there").0, data.as_bytes());
        raw.delete(&path).expect("it is there");
    }
}

/// A reader waits for the writer that waits ahead of it, and not for the readers that hold.
#[test]
fn a_reader_is_told_of_the_writer_that_is_ahead() {
    let server = server();
    let mut raw = raw(&server);
    contend(&mut raw, &format!("_c_{}-__READ__", uuid(1)), "h1:1");
    contend(&mut raw, &format!("_c_{}-__WRIT__", uuid(2)), "h2:2");
    let ended = run(&server, &["run", "--try", "--read", LOCK, "--", "true"]);
    assert_eq!(ended.code, 124, "{ended:?}");
    assert!(ended.err.contains("write that waits, h2:2"), "{ended:?}");
}

#[test]
fn ls_does_not_say_that_all_is_free_where_nodes_are_hidden() {
    let server = server();
    let mut raw = raw(&server);
    raw.set_acl("/locks", 4).expect("an ACL"); // only CREATE
    let ended = run(&server, &["-q", "ls"]);
    assert_eq!(ended.code, 77, "{ended:?}");
    assert!(ended.err.contains("hidden"), "{ended:?}");
}

/// The lock changes hands between the listing and the read of the holder's node. It is never free.
#[test]
fn a_lock_that_changes_hands_while_it_is_read_is_not_free() {
    let server = server();
    let mut raw = raw(&server);
    let first = contend(&mut raw, &format!("_c_{}-lock-", uuid(1)), "h1:1");
    for command in ["show", "ls"] {
        let holder = format!("{LOCK}/{}", children(&server, LOCK)[0]);
        let unread = server.hold_requests(Op::GetData.on(&holder));
        let showing = Running::start(zk_lock(&server, &["--json", command, LOCK]));
        assert!(unread.wait(crate::support::LIMIT));
        let next = contend(&mut raw, &format!("_c_{}-lock-", uuid(2)), "h2:2");
        raw.delete(&holder).expect("it is there");
        drop(unread);
        let shown = json(&showing.end());
        assert_eq!(shown["contenders"][0]["node"], next.as_str(), "{command}: {shown}");
        assert_eq!(shown["holding"], 1, "{command}: {shown}");
    }
    assert_ne!(children(&server, LOCK), [first.as_str()]);
}
