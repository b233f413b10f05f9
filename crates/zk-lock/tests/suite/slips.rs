//! Slips of an operator: a path that is mistyped, a chroot that does not exist, numbers that cannot
//! be. None of them looks like a free lock, and none leaves a node.

use zk_test_support::raw::{EPHEMERAL_SEQUENTIAL, PERSISTENT};

use crate::support::{Raw, run, server};

const LOCK: &str = "/locks/orders";
const NODE: &str = "/locks/orders/_c_5f1c6a2e-9d0b-4c3a-8e7f-0123456789ab-lock-";

#[test]
fn each_command_refuses_a_path_that_no_lock_has() {
    let server = server();
    for path in ["locks/orders", "/locks/orders/", "//locks", "/locks/../orders", ""] {
        for command in [
            &["run", path, "--", "true"][..],
            &["elect", path, "--", "true"],
            &["ls", path],
            &["show", path],
            &["watch", "--for", "1ms", path],
            &["wait", path],
            &["export", "--listen", "127.0.0.1:0", path],
            &["revoke", path],
            &["break", path, "--node", "x", "--yes"],
            &["permits", path],
            &["permits", path, "2"],
            &["forget", path, "--yes"],
            &["doctor", path],
            &["bench", path, "--seconds", "10ms"],
        ] {
            let ended = run(&server, command);
            assert_eq!(ended.code, 64, "{command:?}: {ended:?}");
            assert!(ended.out.is_empty(), "{ended:?}");
        }
    }
}

#[test]
fn a_free_lock_and_a_path_that_does_not_exist_are_told_apart() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs(LOCK).expect("folders");
    for command in [&["show"][..], &["revoke"], &["break", "--node", "x", "--yes"]] {
        let free = run(&server, &[command, &[LOCK]].concat());
        let wrong = run(&server, &[command, &["/locks/ordres"]].concat());
        assert_eq!(wrong.code, 1, "{wrong:?}");
        let says = "there is no node /locks/ordres";
        assert!(wrong.err.contains(says), "{wrong:?}");
        assert!(wrong.err.contains("nearest node that exists is /locks"), "{wrong:?}");
        assert_eq!(free.code, 1, "{free:?}");
        assert!(!free.err.contains("there is no node"), "{free:?}");
    }
    assert!(run(&server, &["show", LOCK]).err.contains("it is free"));
    let folder = run(&server, &["-v", "show", "/locks"]).err;
    assert!(folder.contains("see `zk-lock ls /locks`"), "{folder}");
}

#[test]
fn a_chroot_that_does_not_exist_is_an_error_until_run_is_told_to_make_it() {
    let server = server();
    let at = format!("{}/ap", server.connect_string());
    for command in [
        &["run", LOCK, "--", "true"][..],
        &["elect", LOCK, "--", "true"],
        &["ls"],
        &["show", LOCK],
        &["wait", LOCK],
        &["export", "--listen", "127.0.0.1:0"],
        &["revoke", LOCK],
        &["break", LOCK, "--node", "x", "--yes"],
        &["permits", LOCK, "3"],
        &["forget", LOCK, "--yes"],
        &["bench", "--seconds", "10ms"],
    ] {
        let ended = run(&server, &[&["--connect", &at], command].concat());
        assert_eq!(ended.code, 64, "{command:?}: {ended:?}");
        assert!(ended.err.contains("the chroot"), "{ended:?}");
        assert!(ended.err.contains("run --create-chroot"), "{ended:?}");
    }
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    assert!(!raw.children("/").expect("a list").contains(&"ap".to_owned()));
    let made = run(&server, &["--connect", &at, "run", "--create-chroot", LOCK, "--", "true"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert_eq!(run(&server, &["--connect", &at, "ls"]).code, 0);
}

#[test]
fn a_command_line_that_is_refused_writes_nothing() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    let before = raw.children("/").expect("a list");
    let standing = "/sem";
    for arguments in [
        &["run", "--permits", "2", "--of", "1", "/new", "--", "true"][..],
        &["run", "--permits", "0", "--of", "1", "/new", "--", "true"],
        &["run", "--permits", "1", "/new", "--", "true"],
        &["run", "/new", "/new", "--", "true"],
        &["run", "--acl", "creator", "/new", "--", "true"],
        &["run", "--grace", "1h", "/new", "--", "true"],
        &["run", "--min-hold", "2s", "--max-hold", "1s", "/new", "--", "true"],
        &["run", "--permits", "1", "--layout", "kazoo", "--read", "/new", "--", "true"],
        &["permits", "/new"],
    ] {
        let ended = run(&server, arguments);
        let is_absent = arguments[0] == "permits";
        assert_eq!(ended.code, if is_absent { 1 } else { 64 }, "{arguments:?}: {ended:?}");
        assert_eq!(raw.children("/").expect("a list"), before, "{arguments:?}");
    }
    // Of several semaphores one has another number: the others are not made.
    assert_eq!(run(&server, &["permits", standing, "3", "--create"]).code, 0);
    let two = ["run", "--permits", "1", "--of", "2", "/new", standing, "--", "true"];
    let ended = run(&server, &two);
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(ended.err.contains("has 3 permits, and --of says 2"), "{ended:?}");
    let too_many = ["run", "--permits", "4", standing, "--", "true"];
    assert_eq!(run(&server, &too_many).code, 64);
    let after = raw.children("/").expect("a list");
    assert!(!after.contains(&"new".to_owned()), "{after:?}");
}

#[test]
fn permits_shows_and_sets_the_number() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    let permits = |arguments: &[&str]| run(&server, &[&["permits"], arguments].concat());
    assert_eq!(permits(&["/sem"]).code, 1, "there is none");
    // A slip in the path makes no semaphore.
    let refused = permits(&["/sem", "3"]);
    assert!(refused.code == 64 && refused.err.contains("--create makes one"), "{refused:?}");
    assert_eq!(permits(&["/sem", "2", "--create"]).code, 0);
    for (number, says) in [
        ("3", "/sem: 3 permits, 0 taken, 0 wait\n"),
        ("0", "/sem: 0 permits, so it is paused, 0 taken, 0 wait\n"),
        ("1", "/sem: 1 permit, 0 taken, 0 wait\n"),
    ] {
        let set = permits(&["/sem", number]);
        assert_eq!((set.code, set.out.as_str()), (0, says), "{set:?}");
        assert_eq!(permits(&["/sem"]).out, says);
        assert_eq!(raw.get_data("/sem").expect("it is there").0, number.as_bytes());
    }
    // What belongs to others stays.
    raw.create("/config", b"x=1", PERSISTENT).expect("a node");
    let refused = permits(&["/config", "3", "--create"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert_eq!(raw.get_data("/config").expect("it is there").0, b"x=1");
    raw.mkdirs(LOCK).expect("folders");
    raw.create(NODE, b"h7:1", EPHEMERAL_SEQUENTIAL).expect("a node");
    let refused = permits(&[LOCK, "3", "--create"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    assert_eq!(raw.get_data(LOCK).expect("it is there").0, b"");
}

#[test]
fn forget_removes_a_lock_that_nobody_uses_and_nothing_else() {
    let server = server();
    let mut raw = Raw::connect(&server.connect_string()).expect("a session");
    raw.mkdirs(LOCK).expect("folders");
    let forget = |path: &str| run(&server, &["forget", path, "--yes"]);
    let node = raw.create(NODE, b"h7:1", EPHEMERAL_SEQUENTIAL).expect("a node");
    let used = forget(LOCK);
    assert_eq!(used.code, 1, "{used:?}");
    assert!(used.err.contains("in use") && used.err.contains("h7:1"), "{used:?}");
    raw.delete(&node).expect("it is there");
    let unasked = run(&server, &["forget", LOCK]);
    assert_eq!(unasked.code, 64, "{unasked:?}");
    assert!(unasked.err.contains("say --yes"), "{unasked:?}");
    assert_eq!(forget(LOCK).code, 0);
    assert_eq!(raw.children("/locks").expect("a list"), [""; 0]);

    // The node of a client is no lock.
    raw.mkdirs(LOCK).expect("folders");
    let node = raw.create(NODE, b"", EPHEMERAL_SEQUENTIAL).expect("a node");
    let refused = forget(&node);
    assert!(refused.code == 64 && refused.err.contains("node of one client"), "{refused:?}");
    raw.delete(&node).expect("it is there");

    // The data in a folder of a semaphore's is somebody's.
    raw.create("/svc", b"5", PERSISTENT).expect("a node");
    raw.create("/svc/leases", b"mydata", PERSISTENT).expect("a node");
    assert_eq!(forget("/svc").code, 64);
    assert_eq!(raw.get_data("/svc/leases").expect("it is there").0, b"mydata");

    // A number may be a program's counter.
    raw.create("/counter", b"5", PERSISTENT).expect("a node");
    let refused = forget("/counter");
    assert!(refused.code == 64 && refused.err.contains("a program's counter"), "{refused:?}");

    // A semaphore, with the folders that its users have left.
    let used = run(&server, &["run", "--permits", "1", "--of", "2", "/sem", "--", "true"]);
    assert_eq!(used.code, 0, "{used:?}");
    let forgotten = forget("/sem");
    assert_eq!(forgotten.code, 0, "{forgotten:?}");
    assert!(forgotten.out.contains("an unused semaphore of 2 permits"), "{forgotten:?}");

    // Nodes of others.
    raw.create("/config", b"x=1", PERSISTENT).expect("a node");
    raw.create("/folder", b"", PERSISTENT).expect("a node");
    raw.create("/folder/deeper", b"", PERSISTENT).expect("a node");
    for path in ["/config", "/folder"] {
        let refused = forget(path);
        assert_eq!(refused.code, 64, "{refused:?}");
    }
    assert_eq!(forget("/nowhere").code, 1);
    let left = raw.children("/").expect("a list");
    for (name, stays) in [("sem", false), ("config", true), ("folder", true)] {
        assert_eq!(left.contains(&name.to_owned()), stays, "{name}: {left:?}");
    }
}
