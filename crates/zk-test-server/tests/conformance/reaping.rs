//! Containers and nodes with a time to live: when the server deletes them.
use super::{
    answers::{Heard, children, deleted},
    checks::*,
    client::Client,
    requests::{mode::*, *},
};
use std::time::{Duration, Instant};
use zk_test_support::{Server, Variant, scenarios, until};

scenarios![
    a_container_goes_when_its_last_child_has_gone,
    only_a_container_that_was_used_goes,
    a_node_goes_after_its_time_to_live,
    children_keep_a_node_and_changes_renew_its_time,
    effects_of_reaping_on_the_parent,
];

const SOON: Duration = Duration::from_secs(20);
const TTL_MILLIS: i64 = 1000;

fn server() -> (Server, Client) {
    let server = Server::builder().container_check(Duration::from_millis(50)).start();
    let client = Client::connect(&server.connect_string());
    (server, client)
}

fn until_gone(client: &mut Client, path: &str) {
    until(&format!("{path} goes"), SOON, || (client.code(&exists(path)) == NO_NODE).then_some(()));
}

/// Waits until the server has checked for empty containers and expired nodes since this call.
fn after_a_check(client: &mut Client) {
    for _ in 0..2 {
        client.good(&container("/look"));
        client.good(&create("/look/c"));
        client.good(&delete("/look/c"));
        until_gone(client, "/look");
    }
}

fn a_container_goes_when_its_last_child_has_gone() {
    let (_server, mut client) = server();
    // It does not matter how the container was made. The inner one of two containers is deleted
    // first.
    let containers = [
        container("/c"),
        container("/plain-flags").flags(PERSISTENT),
        container("/ephemeral-flags").flags(EPHEMERAL),
        container("/n-").flags(SEQUENTIAL),
    ];
    for create_it in containers {
        let path = made(&mut client, &create_it).0;
        client.good(&container(&format!("{path}/inner")));
        client.good(&create(&format!("{path}/inner/1")));
        client.good(&ephemeral(&format!("{path}/inner/2")));
        after_a_check(&mut client);
        client.good(&delete(&format!("{path}/inner/1")));
        after_a_check(&mut client);
        assert_eq!(names(&mut client, &path), ["inner"]);
        client.good(&watch_exists(&path));
        client.good(&watch_exists(&format!("{path}/inner")));
        client.good(&delete(&format!("{path}/inner/2")));
        assert_eq!(client.next(), Heard::Event(deleted(&format!("{path}/inner"))));
        assert_eq!(client.next(), Heard::Event(deleted(&path)));
        assert_eq!(client.code(&exists(&path)), NO_NODE);
    }
}

fn only_a_container_that_was_used_goes() {
    let (_server, mut client) = server();
    client.good(&container("/fresh"));
    client.good(&container("/fresh-data").data(b"1"));
    client.good(&set_data("/fresh-data", b"2"));
    // Flags alone do not make a container of a plain node.
    for (path, op) in [("/create", op::CREATE), ("/create2", op::CREATE2)] {
        client.good(&create(path).op(op).flags(CONTAINER));
        client.good(&create(&format!("{path}/c")));
        client.good(&delete(&format!("{path}/c")));
    }
    // In a multi they do.
    client.good(&Req::Multi(vec![create("/multi").flags(CONTAINER)]));
    client.good(&create("/multi/c"));
    client.good(&delete("/multi/c"));
    until_gone(&mut client, "/multi");
    after_a_check(&mut client);
    assert_eq!(names(&mut client, "/"), ["create", "create2", "fresh", "fresh-data", "zookeeper"]);
    // Any client may delete the container.
    client.good(&delete("/fresh"));
}

fn a_node_goes_after_its_time_to_live() {
    let (_server, mut client) = server();
    let began = Instant::now();
    client.good(&create_ttl("/t", TTL_MILLIS));
    client.good(&create_ttl("/long", 3_600_000));
    let numbered = made(&mut client, &create_ttl("/n-", TTL_MILLIS).flags(SEQUENTIAL_TTL)).0;
    client.good(&watch_exists("/t"));
    assert_eq!(client.next(), Heard::Event(deleted("/t")));
    assert!(
        began.elapsed() >= Duration::from_millis(TTL_MILLIS as u64),
        "after {:?}",
        began.elapsed()
    );
    until_gone(&mut client, &numbered);
    assert_eq!(client.code(&exists("/long")), 0);
}

fn children_keep_a_node_and_changes_renew_its_time() {
    let (_server, mut client) = server();
    client.good(&create_ttl("/t", TTL_MILLIS));
    client.good(&create("/t/c"));
    client.good(&create_ttl("/set", 2 * TTL_MILLIS));
    client.good(&create_ttl("/first", 2 * TTL_MILLIS));
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(3 * TTL_MILLIS as u64) {
        client.good(&set_data("/set", b""));
        std::thread::sleep(Duration::from_millis(100));
    }
    until_gone(&mut client, "/first");
    assert_eq!(client.code(&exists("/t")), 0);
    let set = Instant::now();
    client.good(&set_data("/set", b""));
    // The time is long over when the child is deleted. Neither children nor the ACL renew the time.
    client.good(&set_acl("/t", &open()));
    client.good(&watch_exists("/t"));
    client.good(&delete("/t/c"));
    assert_eq!(client.next(), Heard::Event(deleted("/t")));
    until_gone(&mut client, "/set");
    assert!(
        set.elapsed() >= Duration::from_millis(2 * TTL_MILLIS as u64),
        "after {:?}",
        set.elapsed()
    );
}

fn effects_of_reaping_on_the_parent() {
    let (_server, mut client) = server();
    make(&mut client, &["/p"]);
    client.good(&container("/p/c"));
    client.good(&create("/p/c/1"));
    let before = stat(&mut client, "/p");
    client.good(&watch_children("/p"));
    client.good(&watch_data("/p/c"));
    let last = zxid(&mut client, &delete("/p/c/1"));
    assert_eq!(client.next(), Heard::Event(deleted("/p/c")));
    assert_eq!(client.next(), Heard::Event(children("/p")));
    let after = stat(&mut client, "/p");
    assert_eq!(
        (after.cversion, after.num_children, after.pzxid),
        (before.cversion + 1, 0, last + 1)
    );
    // Nothing else took a number. But a real server that checks again before the container is gone
    // orders a second deletion. That takes a number too, although it fails.
    match Variant::current() {
        Variant::Real => assert!(client.good(&Req::Ping).zxid > last),
        _ => assert_eq!(client.good(&Req::Ping).zxid, last + 1),
    }
}
