//! Names: which nodes count as contenders, which do not, and the names of our own.
use crate::support::{
    Raw, Shared,
    contend::{session, spawn_waiting, until_queue},
    logged::logged,
    raw::{EPHEMERAL_SEQUENTIAL, PERSISTENT},
    scenarios,
    scene::{full_path, name, queue, until_empty},
};
use log::Level;
use std::thread;
use zk_mutex::{Layout, OptionalExt, ZkMutex};

const LOCK: &str = "/locks/orders";
const UUID: &str = "6f8ad2cc-3b5e-4f0c-9a57-0b8f9d3c1e42";
const HEX: &str = "6f8ad2cc3b5e4f0c9a570b8f9d3c1e42";

fn contender_of(kind: &str) -> String {
    match kind {
        "__lock__" | "__rlock__" => format!("{HEX}{kind}"),
        "plain lock-" => "lock-".to_owned(),
        _ => format!("_c_{UUID}-{kind}"),
    }
}

/// A lock with this layout waits for a contender of that kind, and only while it exists.
fn waits_for(kind: &str, layout: Layout) {
    let at = Shared::chroot();
    let mut raw = Raw::connect(&at).unwrap();
    raw.mkdirs(&full_path(&at, LOCK)).unwrap();
    let session = session(&at);
    let mutex = ZkMutex::builder(&session, LOCK).layout(layout).build().unwrap();
    let prefix = full_path(&at, &format!("{LOCK}/{}", contender_of(kind)));
    let ahead = raw.create(&prefix, b"", EPHEMERAL_SEQUENTIAL).unwrap();
    assert!(mutex.try_lock().optional().unwrap().is_none(), "{kind}");
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || {
            let guard = mutex.lock().unwrap();
            let names = queue(&at, LOCK);
            assert!(guard.is_held());
            names
        });
        let before = until_queue(&at, LOCK, 2);
        let behind = raw.create(&prefix, b"", EPHEMERAL_SEQUENTIAL).unwrap();
        raw.sync().unwrap();
        assert!(!waiter.is_finished(), "{kind}");
        let ours: Vec<_> =
            mutex.contenders().unwrap().iter().map(|c| name(&c.path).to_owned()).collect();
        assert_eq!(ours, until_queue(&at, LOCK, 3), "the queue, in its order");
        assert!(!waiter.is_finished(), "{kind}");
        raw.delete(&ahead).unwrap();
        let while_held = waiter.join().unwrap();
        assert!(while_held.contains(&before[1]) && while_held.len() == 2, "{kind}: {while_held:?}");
        raw.delete(&behind).unwrap();
    });
    until_empty(&at, LOCK);
    let mixed = matches!(kind, "__lock__" | "__rlock__") != (layout == Layout::Kazoo);
    let errors = logged(Level::Error, &full_path(&at, LOCK));
    assert_eq!(errors.len(), usize::from(mixed), "{errors:?}");
    assert!(errors.iter().all(|error| error.contains("kazoo")), "{errors:?}");
    session.close().unwrap();
}

fn a_curator_node_ahead_is_waited_for() {
    waits_for("lock-", Layout::Curator);
    waits_for("lock-", Layout::Kazoo);
}

fn a_kazoo_node_ahead_is_waited_for() {
    waits_for("__lock__", Layout::Curator);
    waits_for("__lock__", Layout::Kazoo);
}

fn a_node_without_an_id_ahead_is_waited_for() {
    waits_for("plain lock-", Layout::Curator);
}

fn the_layout_makes_the_names() {
    let at = Shared::chroot();
    let session = session(&at);
    for (layout, path) in [(Layout::Kazoo, "/kazoos"), (Layout::Curator, "/curators")] {
        let mutex = ZkMutex::builder(&session, path).layout(layout).build().unwrap();
        for number in 0..2 {
            let guard = mutex.lock().unwrap();
            let names = queue(&at, path);
            assert_eq!(names.len(), 1);
            assert_eq!(guard.path(), format!("{path}/{}", names[0]));
            let (mark, hyphens) = match layout {
                Layout::Kazoo => ("__lock__", ""),
                _ => ("-lock-", "----"),
            };
            let (id, digits) = names[0].split_once(mark).unwrap();
            assert_eq!(digits, format!("{number:010}"));
            let id = if layout == Layout::Kazoo { id } else { id.strip_prefix("_c_").unwrap() };
            assert_eq!(id.chars().filter(|c| *c == '-').collect::<String>(), hyphens);
            assert_eq!(id.chars().filter(char::is_ascii_hexdigit).count(), 32, "{id}");
            guard.unlock().unwrap();
        }
        until_empty(&at, path);
    }
}

fn junk_in_the_locks_folder_is_ignored_and_left_alone() {
    let at = Shared::chroot();
    let mut raw = Raw::connect(&at).unwrap();
    let mut junk = [
        "config".to_owned(),
        "leases".to_owned(),
        "lock-".to_owned(),
        "lock-12".to_owned(),
        "lock-00000000012".to_owned(),
        "lock-000000000a".to_owned(),
        "clock-0000000000".to_owned(),
        format!("_c_{UUID}-lock-"),
        format!("_c_{UUID}-lease-0000000001"),
        format!("{HEX}__lock__123"),
    ];
    junk.sort();
    raw.mkdirs(&full_path(&at, LOCK)).unwrap();
    for name in &junk {
        raw.create(&full_path(&at, &format!("{LOCK}/{name}")), b"not yours", PERSISTENT).unwrap();
    }
    let sessions = [session(&at), session(&at)];
    for _ in 0..2 {
        // The log is told once for each session, also where each call has a lock object of its own.
        let mutexes = sessions.each_ref().map(|session| ZkMutex::new(session, LOCK).unwrap());
        mutexes[0].try_lock().optional().unwrap().expect("there is no contender").unlock().unwrap();
        let guard = mutexes[0].lock().unwrap();
        let contenders = mutexes[0].contenders().unwrap();
        assert_eq!((contenders.len(), contenders[0].path.clone()), (1, guard.path().to_owned()));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| mutexes[1].lock().unwrap().unlock());
            until_queue(&at, LOCK, junk.len() + 2);
            guard.unlock().unwrap();
            waiter.join().unwrap().unwrap();
        });
    }
    assert_eq!(queue(&at, LOCK), junk);
    let warnings = logged(Level::Warn, "no contenders");
    assert_eq!(warnings.len(), 2, "one warning for the lock of each session: {warnings:?}");
    assert!(
        warnings[0].contains(LOCK) && warnings[0].contains("10 of its children"),
        "{warnings:?}"
    );
}

fn both_layouts_in_one_queue_are_an_error_in_the_log_once() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    for _ in 0..3 {
        let one = ZkMutex::new(&ours, LOCK).unwrap();
        let other = ZkMutex::builder(&theirs, LOCK).layout(Layout::Kazoo).build().unwrap();
        // The two still exclude each other.
        let guard = one.lock().unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| other.lock().unwrap().unlock());
            until_queue(&at, LOCK, 2);
            assert!(one.contenders().unwrap().len() == 2 && !waiter.is_finished());
            guard.unlock().unwrap();
            waiter.join().unwrap().unwrap();
        });
    }
    let errors = logged(Level::Error, "kazoo");
    assert_eq!(errors.len(), 2, "one error for the lock of each session: {errors:?}");
    assert!(
        errors
            .iter()
            .all(|error| error.contains(LOCK) && error.contains("let them use one layout"))
    );
    until_empty(&at, LOCK);
}

/// Go's, kazoo's and Curator's names, and a number of eleven digits.
fn an_admin_calls_the_nodes_by_each_clients_names() {
    let at = Shared::chroot();
    let mut raw = Raw::connect(&at).unwrap();
    raw.mkdirs(&full_path(&at, LOCK)).unwrap();
    let session = session(&at);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    for name in [
        format!("_c_{HEX}-lock-0000000001"),
        format!("{HEX}__lock__0000000002"),
        format!("{HEX}__rlock__0000000003"),
        format!("_c_{UUID}-lock-0000000004"),
        format!("_c_{UUID}-__READ__0000000005"),
        format!("_c_{UUID}-__WRIT__0000000006"),
        format!("{HEX}__lock__10000000007"),
        format!("_c_{UUID}-lock-10000000008"),
    ] {
        let path = full_path(&at, &format!("{LOCK}/{name}"));
        let data = |raw: &mut Raw| raw.get_data(&path).unwrap().0;
        raw.create(&path, b"theirs", PERSISTENT).unwrap();
        let contender = mutex.contenders().unwrap().remove(0);
        assert_eq!((&contender.path, contender.session_id), (&format!("{LOCK}/{name}"), 0));
        let asked = session.attempt_revoke(&contender.path).unwrap();
        assert_eq!(asked, Some(b"theirs".to_vec()), "{name}");
        assert_eq!(data(&mut raw), b"__REVOKE__");
        let is_of_a_mutex = name.contains("lock-") || name.contains("__lock__");
        let said = mutex.try_lock().map(drop).unwrap_err();
        assert_eq!(said.is_contended(), is_of_a_mutex, "{name}: {said}");
        raw.delete(&path).unwrap();
        assert!(mutex.try_lock().optional().unwrap().is_some(), "{name}");
        until_empty(&at, LOCK);
    }
    session.close().unwrap();
}

scenarios![
    an_admin_calls_the_nodes_by_each_clients_names,
    a_curator_node_ahead_is_waited_for,
    a_kazoo_node_ahead_is_waited_for,
    a_node_without_an_id_ahead_is_waited_for,
    the_layout_makes_the_names,
    junk_in_the_locks_folder_is_ignored_and_left_alone,
    both_layouts_in_one_queue_are_an_error_in_the_log_once,
];
