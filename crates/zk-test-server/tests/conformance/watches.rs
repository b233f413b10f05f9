//! One-shot watches: which requests set them, which changes fire them, and when the event comes.
use super::{
    answers::{Event, Heard, changed, children, created, deleted},
    checks::*,
    client::Client,
    requests::*,
};
use zk_test_support::{Shared, scenarios};

scenarios![
    events_of_each_kind_of_watch,
    a_watch_fires_once,
    the_same_watch_twice_is_one,
    a_deleted_node_fires_its_watches_once_and_its_parents_once,
    failed_reads_and_writes,
    an_event_comes_before_the_answer_that_shows_the_change,
    events_come_in_the_order_of_changes,
    watches_are_of_the_connection,
    a_watch_fires_for_its_own_client_too,
    events_of_a_node_that_may_not_be_read_are_swallowed,
];

fn events_of_each_kind_of_watch() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    let set_c = set_data("/p/c", b"x");
    let get2 = Req::GetChildren2 { path: "/p".into(), watch: true };
    // Each case: the nodes that exist at first, the request that sets the watch, and writes, each
    // with its events.
    type Case = (&'static [&'static str], Req, Vec<(Req, Vec<Event>)>);
    let cases: Vec<Case> = vec![
        (&[], watch_exists("/p"), vec![(create("/p"), vec![created("/p")])]),
        (&["/p"], watch_exists("/p"), vec![(set_data("/p", b""), vec![changed("/p")])]),
        (&["/p"], watch_exists("/p"), vec![(delete("/p"), vec![deleted("/p")])]),
        (&["/p"], watch_data("/p"), vec![(set_data("/p", b""), vec![changed("/p")])]),
        (&["/p"], watch_data("/p"), vec![(delete("/p"), vec![deleted("/p")])]),
        // Data watches do not fire for children and ACLs.
        (
            &["/p"],
            watch_data("/p"),
            vec![
                (create("/p/c"), vec![]),
                (set_acl("/p", &open()), vec![]),
                (delete("/p/c"), vec![]),
                (set_data("/p", b""), vec![changed("/p")]),
            ],
        ),
        (&["/p"], watch_children("/p"), vec![(create("/p/c"), vec![children("/p")])]),
        (&["/p", "/p/c"], watch_children("/p"), vec![(delete("/p/c"), vec![children("/p")])]),
        (&["/p"], watch_children("/p"), vec![(delete("/p"), vec![deleted("/p")])]),
        (&["/p"], get2.clone(), vec![(create2("/p/c"), vec![children("/p")])]),
        (&["/p"], get2, vec![(delete("/p"), vec![deleted("/p")])]),
        // Child watches do not fire for data, ACLs and grandchildren.
        (
            &["/p", "/p/c"],
            watch_children("/p"),
            vec![
                (set_data("/p", b""), vec![]),
                (set_c.clone(), vec![]),
                (set_acl("/p", &open()), vec![]),
                (create("/p/c/d"), vec![]),
                (sequential("/p/s"), vec![children("/p")]),
            ],
        ),
        (&["/p"], watch_children("/p"), vec![(ephemeral("/p/c"), vec![children("/p")])]),
        (&["/p"], watch_children("/p"), vec![(container("/p/c"), vec![children("/p")])]),
        (
            &["/p"],
            watch_children("/p"),
            vec![(create_ttl("/p/c", 1_000_000), vec![children("/p")])],
        ),
        // A node that is created and deleted.
        (
            &["/p"],
            watch_exists("/p/c"),
            vec![(create("/p/c"), vec![created("/p/c")]), (set_c, vec![])],
        ),
    ];
    for (there, watch, writes) in cases {
        make(&mut other, there);
        client.code(&watch);
        for (write, events) in writes {
            other.good(&write);
            assert_eq!(client.events(), events, "{watch:?} on {there:?}, {write:?}");
        }
        let code = other.code(&Req::GetAllChildrenNumber { path: "/p".into() });
        if code == 0 {
            for child in names(&mut other, "/p") {
                other.code(&delete(&format!("/p/{child}/d")));
                other.good(&delete(&format!("/p/{child}")));
            }
            other.good(&delete("/p"));
        }
        client.events();
    }
}

fn a_watch_fires_once() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p"]);
    client.good(&watch_data("/p"));
    client.good(&watch_children("/p"));
    assert_eq!(client.code(&watch_exists("/x")), NO_NODE);
    for (write, events) in [
        (set_data("/p", b"1"), vec![changed("/p")]),
        (set_data("/p", b"2"), vec![]),
        (create("/p/1"), vec![children("/p")]),
        (create("/p/2"), vec![]),
        (create("/x"), vec![created("/x")]),
        (delete("/x"), vec![]),
        (create("/x"), vec![]),
    ] {
        other.good(&write);
        assert_eq!(client.events(), events, "{write:?}");
    }
    // A watch that is set again fires again.
    client.good(&watch_data("/p"));
    other.good(&set_data("/p", b"3"));
    heard(&mut client, &[changed("/p")]);
}

fn the_same_watch_twice_is_one() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p"]);
    // exists and getData set the same kind of watch.
    for _ in 0..3 {
        client.good(&watch_data("/p"));
        client.good(&watch_exists("/p"));
        client.good(&watch_children("/p"));
        client.good(&Req::GetChildren2 { path: "/p".into(), watch: true });
    }
    other.good(&set_data("/p", b"1"));
    other.good(&create("/p/c"));
    heard(&mut client, &[changed("/p"), children("/p")]);
    // Two connections have two watches.
    client.good(&watch_data("/p"));
    other.good(&watch_data("/p"));
    other.good(&set_data("/p", b"2"));
    heard(&mut client, &[changed("/p")]);
    heard(&mut other, &[changed("/p")]);
}

fn a_deleted_node_fires_its_watches_once_and_its_parents_once() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p", "/p/c"]);
    client.good(&watch_data("/p/c"));
    client.good(&watch_children("/p/c"));
    client.good(&watch_children("/p"));
    client.good(&watch_data("/p"));
    other.good(&delete("/p/c"));
    heard(&mut client, &[deleted("/p/c"), children("/p")]);
    // All watches of the deleted node are gone; the parent's data watch is not.
    make(&mut other, &["/p/c", "/p/c/d"]);
    other.good(&set_data("/p/c", b""));
    heard(&mut client, &[]);
    other.good(&set_data("/p", b""));
    heard(&mut client, &[changed("/p")]);
}

fn failed_reads_and_writes() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p"]);
    client.good(&create("/locked").acl(&[acl(2, "world", "anyone")]));
    // Of the failed reads only exists leaves a watch.
    codes(
        &mut client,
        &[
            (watch_data("/x"), NO_NODE),
            (watch_children("/x"), NO_NODE),
            (watch_data("/locked"), NO_AUTH),
            (watch_children("/locked"), NO_AUTH),
        ],
    );
    other.good(&create("/x"));
    other.good(&create("/x/c"));
    other.good(&set_data("/locked", b""));
    heard(&mut client, &[]);
    // A failed write fires nothing.
    client.good(&watch_data("/p"));
    client.good(&watch_children("/p"));
    codes(
        &mut other,
        &[
            (set_data_version("/p", b"", 7), BAD_VERSION),
            (delete_version("/p", 7), BAD_VERSION),
            (create("/p"), NODE_EXISTS),
            (delete("/p/x"), NO_NODE),
        ],
    );
    heard(&mut client, &[]);
}

fn an_event_comes_before_the_answer_that_shows_the_change() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut client, &["/p"]);
    // The event of the client's own write comes before the answer to this write.
    client.good(&watch_data("/p"));
    client.send(&[set_data("/p", b"own")]);
    assert_eq!(client.next(), Heard::Event(changed("/p")));
    assert!(matches!(client.next(), Heard::Reply(reply) if reply.err == 0));
    // The event of another client's write comes before the answer to any request that was sent
    // after that write was acknowledged.
    client.good(&watch_children("/p"));
    other.good(&create("/p/c"));
    client.send(&[get_children("/p")]);
    assert_eq!(client.next(), Heard::Event(children("/p")));
    assert!(matches!(client.next(), Heard::Reply(reply) if reply.err == 0));
    // In one packet, the event comes between the answer that set the watch and the answer to the
    // write.
    client.send(&[
        watch_data("/p"),
        set_data("/p", b"1"),
        set_data("/p", b"2"),
        watch_exists("/p/c"),
        delete("/p/c"),
    ]);
    let heard: Vec<Heard> = (0..7).map(|_| client.next()).collect();
    let events: Vec<Option<Event>> = heard
        .iter()
        .map(|heard| if let Heard::Event(event) = heard { Some(event.clone()) } else { None })
        .collect();
    let (first, second) = (Some(changed("/p")), Some(deleted("/p/c")));
    assert_eq!(events, [None, first, None, None, None, second, None]);
}

fn events_come_in_the_order_of_changes() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p", "/p/0"]);
    let mut expected = Vec::new();
    let mut writes = Vec::new();
    for number in 1..50 {
        let path = format!("/p/{number}");
        assert_eq!(client.code(&watch_exists(&path)), NO_NODE);
        writes.push(create(&path));
        expected.push(created(&path));
    }
    client.good(&watch_children("/p"));
    expected.insert(1, children("/p"));
    other.send(&writes);
    while client.events.len() < expected.len() {
        client.good(&Req::Ping);
    }
    heard(&mut client, &expected);
}

fn watches_are_of_the_connection() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p"]);
    client.good(&watch_data("/p"));
    client.good(&add_watch("/p", RECURSIVE_WATCH));
    let mut again = super::client::Hello::again(&client).say(&address).unwrap();
    other.good(&set_data("/p", b"1"));
    heard(&mut again, &[]);
    assert_eq!(again.code(&check_watches("/p", ANY_WATCHES)), NO_WATCHER);
    assert_eq!(client.rest(), []);
}

fn a_watch_fires_for_its_own_client_too() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/p"]);
    assert_eq!(client.code(&watch_exists("/p/e")), NO_NODE);
    client.good(&watch_children("/p"));
    client.good(&ephemeral("/p/e"));
    heard(&mut client, &[created("/p/e"), children("/p")]);
    client.good(&watch_exists("/p/e"));
    client.good(&watch_children("/p"));
    // This holds even at the end of the session.
    client.send(&[Req::CloseSession]);
    assert_eq!(client.next(), Heard::Event(deleted("/p/e")));
    assert_eq!(client.next(), Heard::Event(children("/p")));
    assert!(matches!(client.next(), Heard::Reply(reply) if reply.err == 0));
    assert_eq!(client.next(), Heard::Closed);
}

/// Debian's 3.8.0 and releases since 3.8.4 do this (CVE-2024-23944).
fn events_of_a_node_that_may_not_be_read_are_swallowed() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    let no_read = [acl(30, "world", "anyone")];
    make(&mut other, &["/p", "/q", "/q/c", "/r", "/r/c"]);
    client.good(&watch_data("/p"));
    client.good(&watch_children("/p"));
    assert_eq!(client.code(&watch_exists("/p/hidden")), NO_NODE);
    // The ACL of the created node counts for its own watch, and the parent's ACL for the child
    // watch.
    other.good(&create("/p/hidden").acl(&no_read));
    heard(&mut client, &[children("/p")]);
    other.good(&set_acl("/p", &no_read));
    other.good(&set_data("/p", b""));
    heard(&mut client, &[]);
    // The watch has been used up.
    other.good(&set_acl("/p", &open()));
    other.good(&set_data("/p", b""));
    heard(&mut client, &[]);
    // The ACL of a deleted node counts for its own watches, and the parent's ACL for child watches.
    client.good(&watch_data("/q/c"));
    client.good(&watch_children("/q"));
    other.good(&set_acl("/q/c", &no_read));
    other.good(&delete("/q/c"));
    heard(&mut client, &[children("/q")]);
    client.good(&watch_data("/r/c"));
    client.good(&watch_children("/r"));
    other.good(&set_acl("/r", &no_read));
    other.good(&delete("/r/c"));
    heard(&mut client, &[deleted("/r/c")]);
    // Credentials count as they are when it happens, and in 3.8 nothing is asked of what exists
    // tells.
    let exists_code = if is_39() { NO_AUTH } else { 0 };
    assert_eq!(client.code(&watch_exists("/r")), exists_code);
    if is_39() {
        other.good(&set_acl("/r", &open()));
        client.good(&watch_exists("/r"));
    }
    client.good(&auth("digest", "alice:wonder"));
    other.good(&auth("digest", "alice:wonder"));
    other.good(&set_acl("/r", &[acl(31, "auth", "")]));
    other.good(&set_data("/r", b""));
    heard(&mut client, &[changed("/r")]);
}
