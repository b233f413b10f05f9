//! setWatches and setWatches2: how a client that reconnects sets its watches again and gets the
//! events that it has missed.
use super::{
    answers::{Event, Heard, changed, children, created, deleted},
    checks::*,
    client::{Client, Hello},
    requests::*,
};
use zk_test_support::{Shared, scenarios};

scenarios![
    missed_events_are_sent_at_once,
    watches_without_a_missed_event_are_set_again,
    lasting_watches_are_set_again_without_a_word,
    events_come_before_the_answer_list_by_list,
    one_connection_goes_and_the_next_takes_over,
    empty_and_odd_lists,
];

fn paths(paths: &[&str]) -> Vec<String> {
    paths.iter().map(|path| (*path).to_owned()).collect()
}

fn watches(seen: i64, data: &[&str], exist: &[&str], child: &[&str]) -> Req {
    Req::SetWatches(Watches {
        seen,
        data: paths(data),
        exist: paths(exist),
        child: paths(child),
        persistent: None,
    })
}

fn watches2(seen: i64, lists: [&[&str]; 5]) -> Req {
    let [data, exist, child, persistent, recursive] = lists.map(paths);
    Req::SetWatches(Watches { seen, data, exist, child, persistent: Some([persistent, recursive]) })
}

fn missed_events_are_sent_at_once() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/same", "/set", "/parent", "/parent/c", "/gone", "/listed"]);
    let seen = client.good(&Req::Ping).zxid;
    client.good(&set_data("/set", b""));
    client.good(&delete("/parent/c"));
    client.good(&delete("/gone"));
    client.good(&set_acl("/listed", &open()));
    let now = client.good(&Req::Ping).zxid;
    // The zxid that was seen last, the number of the list, the path, and the expected event.
    let cases: [(i64, usize, &str, Option<Event>); 19] = [
        (seen, 0, "/same", None),
        (seen, 0, "/set", Some(changed("/set"))),
        (now, 0, "/set", None),
        (0, 0, "/same", Some(changed("/same"))),
        (seen, 0, "/gone", Some(deleted("/gone"))),
        (now, 0, "/gone", Some(deleted("/gone"))),
        (now, 0, "/never", Some(deleted("/never"))),
        (seen, 0, "/parent", None),
        (seen, 0, "/listed", None),
        (seen, 1, "/same", Some(created("/same"))),
        (now, 1, "/same", Some(created("/same"))),
        (seen, 1, "/gone", None),
        (0, 1, "/never", None),
        (seen, 2, "/same", None),
        (seen, 2, "/set", None),
        (seen, 2, "/parent", Some(children("/parent"))),
        (now, 2, "/parent", None),
        (seen, 2, "/gone", Some(deleted("/gone"))),
        (0, 2, "/same", Some(children("/same"))),
    ];
    for (seen, list, path, told) in cases {
        let mut lists: [&[&str]; 3] = [&[]; 3];
        let one = [path];
        lists[list] = &one;
        for request in [
            watches(seen, lists[0], lists[1], lists[2]),
            watches2(seen, [lists[0], lists[1], lists[2], &[], &[]]),
        ] {
            let reply = client.good(&request);
            assert_eq!(reply.xid, -8);
            let events = std::mem::take(&mut client.events);
            assert_eq!(events, Vec::from_iter(told.clone()), "{request:?}");
            // Only watches without an event are set.
            let left = client
                .code(&remove_watches(path, if list == 2 { CHILD_WATCHES } else { DATA_WATCHES }));
            assert_eq!(left == 0, told.is_none(), "{request:?}: {left}");
        }
    }
}

fn watches_without_a_missed_event_are_set_again() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/d", "/c"]);
    let seen = client.good(&Req::Ping).zxid;
    client.good(&watches(seen, &["/d"], &["/e"], &["/c"]));
    heard(&mut client, &[]);
    for (write, events) in [
        (set_data("/d", b""), vec![changed("/d")]),
        (set_data("/d", b""), vec![]),
        (create("/e"), vec![created("/e")]),
        (delete("/e"), vec![]),
        (create("/c/1"), vec![children("/c")]),
        (create("/c/2"), vec![]),
    ] {
        other.good(&write);
        assert_eq!(client.events(), events, "{write:?}");
    }
    // No permission is needed.
    other.good(&create("/locked").acl(&[acl(2, "world", "anyone")]));
    client.good(&watches(seen, &["/locked"], &["/locked"], &["/locked"]));
    heard(&mut client, &[changed("/locked"), created("/locked"), children("/locked")]);
}

fn lasting_watches_are_set_again_without_a_word() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut other, &["/p", "/r"]);
    client.good(&watches2(0, [&[], &[], &[], &["/p", "/nothing"], &["/r"]]));
    heard(&mut client, &[]);
    for (write, events) in [
        (set_data("/p", b""), vec![changed("/p")]),
        (set_data("/p", b""), vec![changed("/p")]),
        (create("/p/c"), vec![children("/p")]),
        (create("/r/c"), vec![created("/r/c")]),
        (create("/r/c/d"), vec![created("/r/c/d")]),
        (create("/nothing"), vec![created("/nothing")]),
        (delete("/nothing"), vec![deleted("/nothing")]),
    ] {
        other.good(&write);
        assert_eq!(client.events(), events, "{write:?}");
    }
    // A one-shot watch in the same request does not replace the lasting one, because its list comes
    // first.
    let seen = client.good(&Req::Ping).zxid;
    client.good(&watches2(seen, [&["/r"], &[], &["/r"], &["/r"], &[]]));
    for _ in 0..2 {
        other.good(&set_data("/r", b""));
        heard(&mut client, &[changed("/r")]);
    }
}

fn events_come_before_the_answer_list_by_list() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a", "/b", "/b/c"]);
    client.send(&[
        watches(0, &["/b", "/x", "/a"], &["/y", "/a", "/b"], &["/x", "/b", "/a"]),
        exists("/a"),
    ]);
    let expected = [
        changed("/b"),
        deleted("/x"),
        changed("/a"),
        created("/a"),
        created("/b"),
        deleted("/x"),
        children("/b"),
        children("/a"),
    ];
    for event in expected {
        assert_eq!(client.next(), Heard::Event(event));
    }
    assert!(matches!(client.next(), Heard::Reply(reply) if reply.xid == -8));
    assert!(matches!(client.next(), Heard::Reply(_)));
}

fn one_connection_goes_and_the_next_takes_over() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut client, &["/a", "/b"]);
    client.good(&watch_data("/a"));
    client.good(&watch_data("/b"));
    let seen = client.good(&watch_children("/a")).zxid;
    other.good(&set_data("/a", b"missed"));
    let mut again = Hello { seen, ..Hello::again(&client) }.say(&address).unwrap();
    other.good(&create("/a/c"));
    again.good(&watches(seen, &["/a", "/b"], &[], &["/a"]));
    heard(&mut again, &[changed("/a"), children("/a")]);
    other.good(&set_data("/b", b""));
    heard(&mut again, &[changed("/b")]);
}

fn empty_and_odd_lists() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a"]);
    let seen = client.good(&Req::Ping).zxid;
    client.good(&watches(seen, &[], &[], &[]));
    client.good(&watches2(seen, [&[]; 5]));
    // The same path twice, and strings that are not paths.
    client.good(&watches(seen, &["/a", "/a", "no-path", ""], &[], &[]));
    let root = deleted("no-path");
    heard(&mut client, &[root]);
    client.good(&set_data("/a", b""));
    heard(&mut client, &[changed("/a")]);
}
