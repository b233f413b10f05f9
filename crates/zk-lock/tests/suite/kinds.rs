//! Locks of several kinds, and clients that do not know each other's names, at one path: `run` and
//! `elect` refuse to come second, and what shows locks shows all of them.

use serde_json::Value;
use zk_test_server::TestServer;
use zk_test_support::raw::{EPHEMERAL, EPHEMERAL_SEQUENTIAL, PERSISTENT};

use crate::support::{Ended, Raw, children, run, server};

const LOCK: &str = "/locks/orders";
const UUID: &str = "5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab";
const HEX: &str = "514e5a831836450cb1a56c741e990fd8";

/// What another client has at the path.
struct Stage {
    server: TestServer,
    raw: Raw,
}

impl Stage {
    fn new() -> Stage {
        let server = server();
        let mut raw = Raw::connect(&server.connect_string()).expect("a session");
        raw.mkdirs(LOCK).expect("folders");
        Stage { server, raw }
    }

    /// The path of the node that it gets.
    fn stands(&mut self, name: &str, data: &str) -> String {
        let path = format!("{LOCK}/{name}");
        self.raw.create(&path, data.as_bytes(), EPHEMERAL_SEQUENTIAL).expect("a node")
    }

    fn folder(&mut self, name: &str, data: &str) {
        let path = format!("{LOCK}/{name}");
        self.raw.create(&path, data.as_bytes(), PERSISTENT).expect("a folder");
    }

    fn gone(&mut self, path: &str) {
        self.raw.delete(path).expect("it is there");
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        run(&self.server, arguments)
    }

    /// It says what stands there and what to do, and leaves no node.
    #[track_caller]
    fn assert_refused(&self, arguments: &[&str], says: &[&str]) {
        let before = children(&self.server, LOCK);
        let ended = self.run(arguments);
        assert_eq!(ended.code, 64, "{arguments:?}: {ended:?}");
        for text in says {
            assert!(ended.err.contains(text), "{arguments:?} must say {text:?}: {ended:?}");
        }
        assert_eq!(children(&self.server, LOCK), before);
    }
}

const TRUE: [&str; 2] = ["--", "true"];

fn with<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &[LOCK], &TRUE].concat()
}

#[test]
fn run_refuses_a_path_where_another_kind_stands() {
    let mut stage = Stage::new();
    let node = stage.stands(&format!("_c_{UUID}-latch-"), "h7:4711");
    let name = node.rsplit('/').next().expect("a name").to_owned();
    for kind in [&["run"][..], &["run", "--read"], &["run", "--permits", "1", "--of", "2"]] {
        stage.assert_refused(&with(kind), &["an election", &name, "h7:4711", "zk-lock elect"]);
    }
    stage.gone(&node);
    let node = stage.stands(&format!("_c_{UUID}-lock-"), "h7:4711");
    stage.assert_refused(&with(&["elect"]), &["a mutex", "h7:4711", "use `zk-lock run`"]);
    stage.assert_refused(
        &with(&["run", "--permits", "1", "--of", "2"]),
        &["a mutex", "leave --permits out"],
    );
    let read = with(&["run", "--try", "--read"]);
    stage.assert_refused(&read, &["a mutex", "leave --read and --write out"]);
    stage.gone(&node);

    let set = stage.run(&["permits", LOCK, "3", "--create"]);
    assert_eq!((set.code, set.out.as_str()), (0, "/locks/orders: 3 permits, 0 taken, 0 wait\n"));
    stage.assert_refused(&with(&["run"]), &["the number of a semaphore", "zk-lock forget"]);
    for folder in ["leases", "locks"] {
        stage.folder(folder, "");
    }
    stage.stands(&format!("leases/_c_{UUID}-lease-"), "h7:4711");
    stage.assert_refused(&with(&["run"]), &["a semaphore", "h7:4711", "--permits"]);
    assert_eq!(stage.run(&with(&["run", "--permits", "1"])).code, 0);
}

#[test]
fn run_refuses_names_that_the_client_there_does_not_wait_for() {
    let mut stage = Stage::new();
    let node = stage.stands(&format!("{HEX}__lock__"), "");
    stage.assert_refused(&with(&["run"]), &["kazoo", "--layout kazoo", "extra_lock_patterns"]);
    assert_eq!(stage.run(&with(&["run", "--layout", "kazoo", "--try"])).code, 124);
    // It says so, and waits for the client that may not wait for it.
    let forced = stage.run(&with(&["run", "--force", "--try"]));
    assert_eq!(forced.code, 124, "{forced:?}");
    assert!(forced.err.contains("running all the same (--force)"), "{forced:?}");
    stage.gone(&node);
    let ended =
        stage.run(&["run", "--layout", "kazoo", LOCK, "--", "sh", "-c", "echo $ZK_LOCK_NODE"]);
    assert!(ended.out.contains("__lock__"), "{ended:?}");

    let node = stage.stands(&format!("_c_{UUID}-lock-"), "10.0.0.7");
    stage.assert_refused(&with(&["run", "--layout", "kazoo"]), &["Curator", "leave --layout out"]);
    assert_eq!(stage.run(&with(&["run", "--try"])).code, 124);
    stage.gone(&node);
    // zk-mutex waits for the names of both layouts.
    stage.stands(&format!("_c_{UUID}-lock-"), "h7:4711");
    assert_eq!(stage.run(&with(&["run", "--layout", "kazoo", "--try"])).code, 124);
}

#[test]
fn kazoos_semaphore_is_not_shared() {
    let mut stage = Stage::new();
    stage.raw.set_data(LOCK, b"3").expect("it is there");
    let path = format!("{LOCK}/{HEX}");
    stage.raw.create(&path, b"", EPHEMERAL).expect("a lease");
    stage.assert_refused(&with(&["run", "--permits", "1"]), &["kazoo", "a path of its own"]);
    stage.assert_refused(&["permits", LOCK, "4"], &["kazoo", "max_leases"]);
    assert_eq!(stage.raw.get_data(LOCK).expect("it is there").0, b"3");
}

/// The lines of JSON.
fn lines(ended: &Ended) -> Vec<Value> {
    let line = |line: &str| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {ended:?}"));
    ended.out.lines().map(line).collect()
}

#[test]
fn show_and_ls_list_every_kind_at_a_path_with_its_own_holders() {
    let mut stage = Stage::new();
    stage.raw.set_data(LOCK, b"2").expect("it is there");
    for folder in ["leases", "locks"] {
        stage.folder(folder, "");
    }
    stage.stands(&format!("_c_{UUID}-lock-"), "h1:1");
    stage.stands(&format!("_c_{UUID}-lock-"), "h2:2");
    stage.stands(&format!("_c_{UUID}-latch-"), "h3:3");
    // Any node in this folder takes a permit, whatever its name.
    stage.stands("leases/mine-", "h4:4");
    stage.stands(&format!("locks/_c_{UUID}-lock-"), "h5:5");
    let path = format!("{LOCK}/lock");
    let data = format!("{UUID}\nh6:6");
    stage.raw.create(&path, data.as_bytes(), EPHEMERAL).expect("a node");
    let wanted = [
        ("mutex", 1, 1, "h1:1"),
        ("election", 1, 0, "h3:3"),
        ("semaphore", 1, 1, "h4:4"),
        ("exclusive", 1, 0, "h6:6"),
    ];
    for command in ["show", "ls"] {
        let ended = stage.run(&["--json", command, LOCK]);
        let found = lines(&ended);
        let found: Vec<(&str, i64, i64, &str)> = found
            .iter()
            .map(|one| {
                let first = one["contenders"][0]["data"].as_str().expect("data");
                let count = |key: &str| one[key].as_i64().expect("a number");
                (one["kind"].as_str().expect("a kind"), count("holding"), count("waiting"), first)
            })
            .collect();
        assert_eq!(found, wanted, "{command}");
    }
    let shown = stage.run(&["show", LOCK]);
    assert!(shown.out.contains("h4:4") && shown.out.contains("h6:6"), "{shown:?}");
    assert!(shown.err.contains("which do not exclude each other"), "{shown:?}");
}

/// `ls` and `show` name the holder that the locks themselves go by.
#[test]
fn show_knows_the_order_where_the_numbers_carry_none() {
    let mut stage = Stage::new();
    for name in [
        format!("{LOCK}/_c_{UUID}-lock-2147483647"),
        format!("{LOCK}/_c_{UUID}-lock--2147483648"),
        format!("{LOCK}/_c_{UUID}-lock-0000000007"),
    ] {
        stage.raw.create(&name, b"h7:1", EPHEMERAL).expect("a node");
    }
    let shown = lines(&stage.run(&["--json", "show", LOCK]));
    let numbers: Vec<i64> = shown[0]["contenders"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["sequence"].as_i64().expect("a number"))
        .collect();
    assert_eq!(numbers, [7, 2_147_483_647, -2_147_483_648]);
}

/// The contender that is first in the queue for permits has made its permit's node already.
#[test]
fn a_contender_that_waits_for_permits_holds_none() {
    let mut stage = Stage::new();
    stage.raw.set_data(LOCK, b"1").expect("it is there");
    for folder in ["leases", "locks"] {
        stage.folder(folder, "");
    }
    stage.stands(&format!("leases/_c_{UUID}-lease-"), "h1:1");
    let mut other = Raw::connect(&stage.server.connect_string()).expect("a session");
    for name in [format!("locks/_c_{UUID}-lock-"), format!("leases/_c_{UUID}-lease-")] {
        let path = format!("{LOCK}/{name}");
        other.create(&path, b"h2:2", EPHEMERAL_SEQUENTIAL).expect("a node");
    }
    let shown = lines(&stage.run(&["--json", "show", LOCK]));
    assert_eq!((&shown[0]["holding"], &shown[0]["waiting"]), (&1.into(), &1.into()));
    let all = shown[0]["contenders"].as_array().expect("a list");
    let found: Vec<_> = all.iter().map(|one| (&one["data"], &one["holds"])).collect();
    assert_eq!(found, [(&"h1:1".into(), &true.into()), (&"h2:2".into(), &false.into())]);
    let told = stage.run(&["permits", LOCK]).out;
    assert_eq!(told, "/locks/orders: 1 permit, 1 taken, 1 waits\n");
    // Paused: the one that has a permit keeps it, and nobody else has one.
    assert_eq!(stage.run(&["permits", LOCK, "0"]).code, 0);
    let shown = lines(&stage.run(&["--json", "show", LOCK]));
    assert_eq!((&shown[0]["holding"], &shown[0]["waiting"]), (&1.into(), &1.into()));
}

#[test]
fn a_semaphore_that_is_paused_lets_run_wait() {
    let stage = Stage::new();
    assert_eq!(stage.run(&["permits", LOCK, "0", "--create"]).code, 0);
    let ended = stage.run(&with(&["run", "--permits", "1", "--timeout", "300ms"]));
    assert_eq!(ended.code, 124, "{ended:?}");
    assert!(ended.err.contains("it is paused"), "{ended:?}");
}

#[test]
fn show_warns_of_names_that_do_not_wait_for_each_other() {
    let mut stage = Stage::new();
    stage.stands(&format!("_c_{UUID}-lock-"), "10.0.0.7");
    let says = "may hold all the same";
    assert!(!stage.run(&["show", LOCK]).err.contains(says));
    stage.stands(&format!("{HEX}__lock__"), "");
    let shown = stage.run(&["show", LOCK]);
    assert!(shown.err.contains(says), "{shown:?}");
}
