//! What goes on at many locks: `ls --watch`, the limits of `ls`, and `wait`.

use std::fs::File;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use zk_test_server::{Op, TestServer};
use zk_test_support::raw::{EPHEMERAL, EPHEMERAL_SEQUENTIAL, PERSISTENT};
use zk_test_support::{Proxy, control};

use crate::schema;
use crate::support::{
    Ended, LIMIT, Notes, Raw, Running, Signal, children, run, server, until, zk_lock,
};

const LOCK: &str = "/locks/orders";
const UUID: &str = "5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab";

fn raw(server: &TestServer) -> Raw {
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs(LOCK).expect("folders");
    raw
}

/// A contender with a name of Curator's; its path.
fn contend(raw: &mut Raw, folder: &str, mark: &str, data: &str) -> String {
    raw.mkdirs(folder).expect("folders");
    let path = format!("{folder}/_c_{UUID}-{mark}");
    raw.create(&path, data.as_bytes(), EPHEMERAL_SEQUENTIAL).expect("a node")
}

fn lines(text: &str) -> Vec<Value> {
    // The last line may not be written to its end.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The program with its lines in two files, which can be read while it runs.
struct Watched {
    running: Running,
    notes: Notes,
}

impl Watched {
    fn start(mut command: Command) -> Watched {
        let notes = Notes::new();
        let file = |name: &str| File::create(notes.path(name)).expect("a file");
        command.stdout(file("out")).stderr(file("err"));
        Watched { running: Running::start(command), notes }
    }

    /// The first line of this file that is like this, once there is one.
    fn wait(&self, file: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        until(what, LIMIT, || lines(&self.notes.read(file)?).into_iter().find(|line| is_it(line)))
    }

    fn wait_event(&self, file: &str, event: &str) -> Value {
        self.wait(file, event, |line| line["event"] == event)
    }

    fn count(&self, file: &str) -> usize {
        lines(&self.notes.read(file).unwrap_or_default()).len()
    }

    fn end(self) -> (Ended, Vec<Value>) {
        let mut ended = self.running.end();
        ended.err = self.notes.read("err").unwrap_or_default();
        let out = self.notes.read("out").unwrap_or_default();
        out.lines().chain(ended.err.lines()).for_each(schema::check_if_json);
        (ended, lines(&out))
    }
}

#[test]
fn an_overview_tells_of_each_lock_that_changes_and_of_outages() {
    let server = server();
    let proxy = Proxy::start(server.address());
    let mut raw = raw(&server);
    let first = contend(&mut raw, LOCK, "lock-", "h7:1");
    let at = proxy.connect_string();
    let arguments = ["--json", "-c", &at, "ls", "--watch", "--every", "100ms", "/locks"];
    let watched = Watched::start(zk_lock(&server, &arguments));
    let wait = |path: &str, holder: &str, waiting: u64| {
        watched.wait("out", &format!("{path} {holder} {waiting}"), |line| {
            line["event"] == "lock"
                && line["path"] == path
                && line["contenders"][0]["data"] == holder
                && line["waiting"] == waiting
        })
    };
    wait(LOCK, "h7:1", 0);
    contend(&mut raw, LOCK, "lock-", "h8:2");
    wait(LOCK, "h7:1", 1);
    let permit = contend(&mut raw, "/locks/dl/leases", "lease-", "h9:3");
    let semaphore = wait("/locks/dl", "h9:3", 0);
    assert_eq!(semaphore["kind"], "semaphore");
    raw.set_data(&first, b"__REVOKE__").expect("it is there");
    watched.wait("out", "asked", |line| line["contenders"][0]["asked_to_let_go"] == true);

    // What changes in an outage is told behind it, and nothing is told twice.
    let before = watched.count("out");
    proxy.refuse(true);
    proxy.cut();
    watched.wait_event("err", "away");
    raw.delete(&permit).expect("it is there");
    assert_eq!(watched.count("out"), before);
    proxy.refuse(false);
    let back = watched.wait_event("err", "back");
    assert!(back["away_ms"].as_u64() >= Some(2_000), "{back}");
    let free = watched.wait_event("out", "free");
    assert_eq!((&free["path"], &free["kind"]), (&json!("/locks/dl"), &json!("semaphore")));
    assert_eq!(watched.count("out"), before + 1);
    watched.running.signal(Signal::TERM);
    let (ended, out) = watched.end();
    assert_eq!(ended.code, 143, "{ended:?}");
    assert!(out.iter().all(|line| line["time_ms"].is_u64()), "{out:?}");

    // Without JSON, each line is for people.
    let text = run(&server, &["ls", "--watch", "--for", "10ms"]);
    assert_eq!(text.code, 0, "{text:?}");
    assert!(text.out.contains("Z /locks/orders mutex held by (asked to let go) for "), "{text:?}");
    assert!(text.out.trim_end().ends_with("waiting: 1"), "{text:?}");
    for wrong in [&["ls", "--every", "5s"][..], &["ls", "--for", "5s"]] {
        assert_eq!(run(&server, wrong).code, 64, "{wrong:?}");
    }
    assert_eq!(run(&server, &["ls", "--watch", "--every", "0"]).code, 64);
}

#[test]
fn commands_that_go_on_end_by_a_signal_and_at_their_time_in_an_outage_too() {
    let server = server();
    let mut raw = raw(&server);
    contend(&mut raw, LOCK, "lock-", "h7:1");
    let start = |command: &[&str]| {
        let proxy = Proxy::start(server.address());
        let at = proxy.connect_string();
        let arguments = [&["--json", "-c", &at], command].concat();
        let watched = Watched::start(zk_lock(&server, &arguments));
        let file = if command[0] == "wait" { "err" } else { "out" };
        watched.wait(file, "a first look", |_| true);
        proxy.refuse(true);
        proxy.cut();
        (watched, proxy)
    };
    for command in [&["watch", LOCK][..], &["ls", "--watch"], &["wait", LOCK]] {
        let (watched, _proxy) = start(command);
        watched.wait_event("err", "away");
        let asked = Instant::now();
        watched.running.signal(Signal::INT);
        let (ended, _) = watched.end();
        assert_eq!(ended.code, 130, "{command:?}: {ended:?}");
        // A read in an outage takes a minute.
        let took = asked.elapsed();
        assert!(took < LIMIT, "{command:?}: {took:?}");
    }
    let limited = [
        (&["watch", "--for", "8s", LOCK][..], 0),
        (&["ls", "--watch", "--for", "8s"], 0),
        (&["wait", "--timeout", "8s", LOCK], 69),
    ];
    let running = limited.map(|(command, code)| (start(command), code));
    let began = Instant::now();
    for ((watched, _proxy), code) in running {
        let (ended, _) = watched.end();
        assert_eq!(ended.code, code, "{ended:?}");
    }
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
}

/// A server whose nodes look two hours old.
fn old_server() -> TestServer {
    control::start();
    let start = SystemTime::now() - Duration::from_secs(7_200);
    let server = TestServer::builder().tick(Duration::from_millis(100)).wall_clock(start);
    server.start().expect("a server")
}

#[test]
fn limits_show_the_locks_that_are_over_one_and_the_status_says_so() {
    let server = old_server();
    let mut raw = raw(&server);
    let ls = |arguments: &[&str]| {
        let ended = run(&server, &[&["--json", "ls"], arguments].concat());
        let found: Vec<(String, Value)> = lines(&ended.out)
            .iter()
            .map(|line| (line["path"].as_str().expect("a path").to_owned(), line["over"].clone()))
            .collect();
        (ended.code, found)
    };
    assert_eq!(ls(&["--held-over", "1h", "--waiting-over", "0"]), (0, Vec::new()));
    contend(&mut raw, LOCK, "lock-", "h7:1");
    let other = "/locks/rates";
    for _ in 0..3 {
        contend(&mut raw, other, "lock-", "h8:2");
    }
    // A leader may lead for as long as it lives.
    for _ in 0..3 {
        contend(&mut raw, "/locks/leader", "latch-", "h9:3");
    }
    let (held, waiting) = (json!(["held-over"]), json!(["waiting-over"]));
    let found = |path: &str, over: &Value| (path.to_owned(), over.clone());
    let both = vec![found(LOCK, &held), found(other, &held)];
    assert_eq!(ls(&["--held-over", "1h"]), (1, both));
    assert_eq!(ls(&["--held-over", "3h"]), (0, Vec::new()));
    assert_eq!(ls(&["--waiting-over", "1"]), (1, vec![found(other, &waiting)]));
    assert_eq!(ls(&["--waiting-over", "2"]), (0, Vec::new()));
    let one = vec![found(other, &waiting)];
    assert_eq!(ls(&["--held-over", "3h", "--waiting-over", "1"]), (1, one));
    let all = vec![found(LOCK, &held), found(other, &json!(["held-over", "waiting-over"]))];
    assert_eq!(ls(&["--held-over", "1h", "--waiting-over", "1"]), (1, all));
    let text = run(&server, &["ls", "--held-over", "1h"]);
    assert!(text.out.starts_with("LOCK") && text.out.contains("OVER\n"), "{text:?}");
    assert!(text.out.contains("held-over\n"), "{text:?}");

    // A path with a slip in it is no lock that is well.
    let wrong = run(&server, &["ls", "/lokcs", "--held-over", "1h"]);
    assert!(wrong.code == 0 && wrong.err.contains("there is no node /lokcs"), "{wrong:?}");
    // What is hidden may be over a limit.
    raw.create("/hidden", b"", PERSISTENT).expect("a node");
    raw.set_acl("/hidden", 0b11110).expect("it is there");
    assert_eq!(ls(&["--held-over", "1h"]).0, 1);
    let unknown = run(&server, &["ls", "--held-over", "3h"]);
    assert_eq!(unknown.code, 77, "{unknown:?}");
    assert!(unknown.err.contains("/hidden is left out"), "{unknown:?}");
    assert_eq!(run(&server, &["ls"]).code, 0);
}

/// ZooKeeper keeps when somebody has joined a queue, and not when its turn has come.
#[test]
fn a_wait_that_was_seen_is_no_part_of_the_time_of_a_hold() {
    let server = old_server();
    let mut raw = raw(&server);
    let first = contend(&mut raw, LOCK, "lock-", "h7:1");
    contend(&mut raw, LOCK, "lock-", "h8:2");
    let arguments = ["--json", "ls", "--watch", "--every", "100ms", "--held-over", "1h"];
    let watched = Watched::start(zk_lock(&server, &arguments));
    let seen = watched.wait_event("out", "lock");
    assert_eq!((&seen["over"], &seen["waiting"]), (&json!(["held-over"]), &json!(1)));
    raw.delete(&first).expect("it is there");
    let now = watched.wait_event("out", "within_limits");
    assert_eq!(now["path"], LOCK);
    // Who looks once cannot know it.
    assert_eq!(run(&server, &["ls", "--held-over", "1h"]).code, 1);
}

/// The session of the only client that watches or reads this node.
fn reads(server: &TestServer, op: Op, path: &str, but: i64) -> usize {
    let all = server.requests();
    all.iter()
        .filter(|one| one.op == op && one.path.as_deref() == Some(path) && one.session != but)
        .count()
}

#[test]
fn a_wait_ends_when_everybody_has_gone_and_reads_next_to_nothing_meanwhile() {
    let server = server();
    let mut raw = raw(&server);
    let own = raw.session_id();
    let first = contend(&mut raw, LOCK, "lock-", "h7:1");
    let watched = Watched::start(zk_lock(&server, &["--json", "wait", LOCK]));
    let waiting = watched.wait_event("err", "waiting");
    assert!(waiting["message"].as_str().is_some_and(|text| text.contains("h7:1")), "{waiting}");
    server.clear_log();
    let began = Instant::now();
    let others: Vec<String> =
        (0..20).map(|i| contend(&mut raw, LOCK, "lock-", &format!("h8:{i}"))).collect();
    assert_eq!(raw.children(LOCK).expect("a list").len(), 21, "it does not queue");
    assert_eq!(server.sessions().iter().map(|one| one.ephemerals).max(), Some(21));
    // The newest is the one to wait for, whoever holds the lock.
    raw.delete(&first).expect("it is there");
    let last = others.last().expect("twenty");
    until("it watches the newest", LIMIT, || {
        let all = server.requests();
        let is_it = |one: &&_| matches!(one, zk_test_server::Request { watch: true, .. });
        all.iter().filter(is_it).find(|one| one.path.as_deref() == Some(last)).map(drop)
    });
    for gone in &others {
        raw.delete(gone).expect("it is there");
    }
    let (ended, out) = watched.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!((&out[0]["event"], &out[0]["path"]), (&json!("free"), &json!(LOCK)));
    // Two looks, and one each 30 seconds.
    let looks = reads(&server, Op::GetChildren, LOCK, own);
    let slow = usize::try_from(began.elapsed().as_secs() / 30).expect("a number");
    assert!(looks <= 2 + slow, "{looks} looks");
}

#[test]
fn a_wait_is_for_holders_of_any_kind() {
    let server = server();
    let mut raw = raw(&server);
    raw.create("/only", format!("{UUID}\nh6:6").as_bytes(), EPHEMERAL).expect("a node");
    contend(&mut raw, "/shared", "__READ__", "h7:1");
    contend(&mut raw, "/shared", "__READ__", "h7:2");
    contend(&mut raw, "/leader", "latch-", "h7:3");
    let hex = UUID.replace('-', "");
    raw.mkdirs("/kazoo").expect("a folder");
    raw.create(&format!("/kazoo/{hex}__lock__"), b"", EPHEMERAL_SEQUENTIAL).expect("a node");
    // A permit is taken, and another client waits for its turn to take one.
    contend(&mut raw, "/sem/leases", "lease-", "h7:4");
    contend(&mut raw, "/sem/locks", "lock-", "h7:5");
    for path in ["/only", "/shared", "/leader", "/kazoo", "/sem"] {
        let held = run(&server, &["wait", "--timeout", "1ms", path]);
        assert_eq!(held.code, 124, "{path}: {held:?}");
        assert!(held.err.contains(&format!("{path} is still held by ")), "{held:?}");
        let watched = Watched::start(zk_lock(&server, &["--json", "wait", path]));
        watched.wait_event("err", "waiting");
        match path {
            "/only" => raw.delete(path).expect("it is there"),
            "/sem" => {
                let permit = raw.children("/sem/leases").expect("a list").remove(0);
                raw.delete(&format!("/sem/leases/{permit}")).expect("it is there");
            }
            _ => {
                for child in raw.children(path).expect("a list") {
                    raw.delete(&format!("{path}/{child}")).expect("it is there");
                }
            }
        }
        let (ended, out) = watched.end();
        assert_eq!((ended.code, out.len()), (0, 1), "{path}: {ended:?}");
        let free = run(&server, &["wait", "--timeout", "1ms", path]);
        assert_eq!((free.code, free.out.as_str()), (0, ""), "{path}");
        assert_eq!(free.err.contains("there is no node"), path == "/only", "{path}: {free:?}");
    }
    // That nobody waits for a path that does not exist is said to people and programs.
    let nowhere = run(&server, &["--json", "wait", "/nowhere"]);
    assert_eq!((nowhere.code, &lines(&nowhere.out)[0]["exists"]), (0, &json!(false)));
    let said = run(&server, &["wait", "/nowhere"]);
    assert!(said.err.contains("there is no node /nowhere"), "{said:?}");
}

#[test]
fn a_wait_for_several_locks_ends_when_all_are_free() {
    let server = server();
    let mut raw = raw(&server);
    let other = "/locks/rates";
    let [first, second] = [LOCK, other].map(|path| contend(&mut raw, path, "lock-", "h7:1"));
    let watched = Watched::start(zk_lock(&server, &["--json", "wait", LOCK, other]));
    let waits_for = |path: &str| {
        watched.wait("err", path, |line| line["event"] == "waiting" && line["path"] == path)
    };
    waits_for(LOCK);
    raw.delete(&first).expect("it is there");
    waits_for(other);
    // The first of them is held again before the second is free.
    let again = contend(&mut raw, LOCK, "lock-", "h8:2");
    raw.delete(&second).expect("it is there");
    until("it waits for the first again", LIMIT, || {
        let all = lines(&watched.notes.read("err")?);
        (all.iter().filter(|line| line["path"] == LOCK).count() == 2).then_some(())
    });
    raw.delete(&again).expect("it is there");
    let (ended, out) = watched.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    let paths: Vec<&Value> = out.iter().map(|line| &line["path"]).collect();
    assert_eq!(paths, [LOCK, other]);
    assert_eq!(children(&server, LOCK), [""; 0]);
}

#[test]
fn a_wait_survives_an_outage_in_which_the_lock_becomes_free() {
    let server = server();
    let proxy = Proxy::start(server.address());
    let mut raw = raw(&server);
    let holder = contend(&mut raw, LOCK, "lock-", "h7:1");
    let at = proxy.connect_string();
    let watched = Watched::start(zk_lock(&server, &["--json", "-c", &at, "wait", LOCK]));
    watched.wait_event("err", "waiting");
    proxy.refuse(true);
    proxy.cut();
    watched.wait_event("err", "away");
    raw.delete(&holder).expect("it is there");
    proxy.refuse(false);
    let (ended, out) = watched.end();
    assert_eq!((ended.code, out.len()), (0, 1), "{ended:?}");
    assert!(ended.err.contains("answers again"), "{ended:?}");
}
