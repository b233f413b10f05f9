//! Reads and writes of nodes that exist.
use super::{
    answers::{Body, Heard, children, deleted},
    checks::*,
    client::{Client, Hello},
    requests::*,
};
use zk_test_support::{Shared, raw::Stat, scenarios};

scenarios![
    set_data_counts_versions,
    delete_checks_version_and_children,
    reads_return_the_same_stat,
    children_are_listed_with_or_without_stat,
    a_check_that_succeeds_is_never_answered,
    sync_gives_back_its_path,
    all_below_are_counted,
    a_session_lists_its_ephemeral_nodes,
    ephemeral_nodes_go_with_their_session,
    watchers_get_an_event_for_each_node_of_an_ended_session,
];

fn set_data_counts_versions() {
    let mut client = Client::connect(&Shared::chroot());
    let (_, made) = made(&mut client, &create("/a").data(b"0"));
    let mut last = made;
    for (count, (version, data)) in
        [(-1, "1"), (1, "twelve"), (2, ""), (-1, "x"), (4, "y")].into_iter().enumerate()
    {
        let reply = client.good(&set_data_version("/a", data.as_bytes(), version));
        let Body::Stat(stat) = reply.body else { panic!("{reply:?}") };
        let expected = Stat {
            version: count as i32 + 1,
            mzxid: reply.zxid,
            data_length: data.len() as i32,
            ..new_stat(made, 0)
        };
        assert_eq!(timeless(stat), expected);
        assert!(reply.zxid > last);
        last = reply.zxid;
        assert_eq!(client.body(&get_data("/a")), Body::Data(Some(data.into()), stat));
    }
    let wrong = [0, 4, 6, -2, i32::MAX, i32::MIN];
    codes(&mut client, &wrong.map(|version| (set_data_version("/a", b"no", version), BAD_VERSION)));
    codes(&mut client, &[(set_data("/b", b""), NO_NODE)]);
    assert_eq!(stat(&mut client, "/a").mzxid, last);
}

fn delete_checks_version_and_children() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a", "/a/b"]);
    client.good(&set_data("/a", b"1"));
    // The versions of the children and of the ACL do not matter.
    client.good(&set_acl("/a", &open()));
    let wrong = [0, 2, -2, i32::MIN];
    codes(&mut client, &wrong.map(|version| (delete_version("/a", version), BAD_VERSION)));
    codes(
        &mut client,
        &[
            (delete_version("/a", 1), NOT_EMPTY),
            (delete("/a"), NOT_EMPTY),
            (delete_version("/a/b", 0), 0),
            (delete_version("/a/b", 0), NO_NODE),
            (delete_version("/a", 1), 0),
            (delete("/a"), NO_NODE),
            (delete("/a/b"), NO_NODE),
            (get_data("/a"), NO_NODE),
            (get_children("/a"), NO_NODE),
            (get_children2("/a"), NO_NODE),
            (get_acl("/a"), NO_NODE),
            (exists("/a"), NO_NODE),
            (set_data("/a", b""), NO_NODE),
            (set_acl("/a", &open()), NO_NODE),
            (Req::GetAllChildrenNumber { path: "/a".into() }, NO_NODE),
        ],
    );
    check_codes(&mut client, &[(check("/a", -1), NO_NODE)]);
}

fn reads_return_the_same_stat() {
    let mut client = Client::connect(&Shared::chroot());
    client.good(&ephemeral("/e").data(b"data"));
    make(&mut client, &["/a", "/a/1", "/a/2"]);
    client.good(&set_data("/a", b"data"));
    for (path, owner) in [("/e", client.id()), ("/a", 0)] {
        let Body::Stat(stat) = client.body(&exists(path)) else { panic!() };
        assert_eq!(stat.ephemeral_owner, owner);
        let names = if owner == 0 { vec!["1".to_owned(), "2".to_owned()] } else { vec![] };
        assert_eq!(client.body(&get_data(path)), Body::Data(Some(b"data".to_vec()), stat));
        assert_eq!(client.body(&get_children2(path)), Body::Children(names.clone(), stat));
        assert_eq!(client.body(&get_children(path)), Body::Names(names));
        assert_eq!(client.body(&get_acl(path)), Body::Acl(open(), stat));
        let Body::Stat(set) = client.body(&set_data(path, b"data!")) else { panic!() };
        assert_eq!(client.body(&exists(path)), Body::Stat(set));
        let Body::Stat(set) = client.body(&set_acl(path, &open())) else { panic!() };
        assert_eq!(client.body(&exists(path)), Body::Stat(set));
    }
    client.close();
}

fn children_are_listed_with_or_without_stat() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a", "/a/z", "/a/é", "/a/b", "/a/b/below", "/ab", "/a/B"]);
    client.good(&ephemeral("/a/e"));
    assert_eq!(names(&mut client, "/a"), ["B", "b", "e", "z", "é"]);
    assert_eq!(names(&mut client, "/a/b"), ["below"]);
    assert_eq!(names(&mut client, "/a/z"), [""; 0]);
    assert_eq!(names(&mut client, "/"), ["a", "ab"]);
    let Body::Children(names, stat) = client.body(&get_children2("/a")) else { panic!() };
    assert_eq!((names.len(), stat.num_children, stat.cversion), (5, 5, 5));
    client.close();
}

/// Its answer would hold a Stat that it has not got. In 3.9 a check stands in a multi only.
fn a_check_that_succeeds_is_never_answered() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a"]);
    if is_39() {
        let reply = client.call(&check("/a", 0));
        assert_eq!((reply.zxid, reply.err), (-1, UNIMPLEMENTED));
        assert_eq!(client.next(), Heard::Closed);
        return;
    }
    let before = client.good(&Req::Ping).zxid;
    codes(
        &mut client,
        &[(check("/a", 1), BAD_VERSION), (check("/b", 0), NO_NODE), (check("a", 0), BAD_ARGUMENTS)],
    );
    for version in [0, -1] {
        client.send(&[check("/a", version), exists("/a")]);
        let Heard::Reply(reply) = client.next() else { panic!() };
        assert!(matches!(reply.body, Body::Stat(stat) if stat.czxid == stat.mzxid));
        assert_eq!(client.unanswered(), [op::CHECK], "version {version}");
        client.forget();
    }
    assert!(client.good(&Req::Ping).zxid >= before + 5);
}

fn sync_gives_back_its_path() {
    let mut client = Client::connect(&Shared::chroot());
    for path in ["/", "/nothing", "/bad//path/", "no-path", ""] {
        assert_eq!(client.body(&sync(path)), Body::Path(path.to_owned()));
    }
}

fn all_below_are_counted() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a", "/a/1", "/a/1/1", "/a/1/1/1", "/a/2", "/ab", "/ab/1"]);
    client.good(&ephemeral("/a/e"));
    for (path, count) in [("/a", 5), ("/a/1", 2), ("/a/1/1/1", 0), ("/ab", 1), ("/", 8)] {
        let all = Req::GetAllChildrenNumber { path: path.into() };
        assert_eq!(client.body(&all), Body::Number(count), "{path}");
    }
    client.close();
}

fn a_session_lists_its_ephemeral_nodes() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    make(&mut client, &["/d", "/dir"]);
    let told = |client: &mut Client, prefix: &str| match client
        .body(&Req::GetEphemerals { prefix: prefix.to_owned() })
    {
        Body::Names(paths) => paths,
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&mut client, ""), [""; 0]);
    for path in ["/d/1", "/dir/1", "/e"] {
        client.good(&ephemeral(path));
    }
    client.good(&ephemeral("/d/s").flags(mode::EPHEMERAL_SEQUENTIAL));
    client.good(&container("/c"));
    client.good(&create_ttl("/t", 3_600_000));
    other.good(&ephemeral("/d/other"));
    let all = ["/d/1", "/d/s0000000001", "/dir/1", "/e"];
    for prefix in ["", " ", "\t\n"] {
        assert_eq!(told(&mut client, prefix), all, "{prefix:?}");
    }
    // A prefix is one of the text, not of the tree. No node needs to have this path.
    assert_eq!(told(&mut client, "/"), all);
    assert_eq!(told(&mut client, "/d"), ["/d/1", "/d/s0000000001", "/dir/1"]);
    assert_eq!(told(&mut client, "/d/"), ["/d/1", "/d/s0000000001"]);
    assert_eq!(told(&mut client, "/d/1"), ["/d/1"]);
    assert_eq!(told(&mut client, "/nothing"), [""; 0]);
    assert_eq!(told(&mut client, "nothing"), [""; 0]);
    // It does not matter which client deletes the node.
    other.good(&delete("/d/1"));
    assert_eq!(told(&mut client, "/d/"), ["/d/s0000000001"]);
    assert_eq!(told(&mut other, ""), ["/d/other"]);
    client.close();
    other.close();
}

fn ephemeral_nodes_go_with_their_session() {
    let address = Shared::chroot();
    let (mut client, mut other) = (Client::connect(&address), Client::connect(&address));
    let (_, made) = made(&mut client, &create("/d"));
    for number in 0..20 {
        client.good(&ephemeral(&format!("/d/{number}")));
    }
    client.good(&ephemeral("/d/s").flags(mode::EPHEMERAL_SEQUENTIAL));
    client.good(&delete("/d/7"));
    other.good(&delete("/d/8"));
    other.good(&ephemeral("/d/8"));
    let end = client.close().zxid;
    assert_eq!(names(&mut other, "/d"), ["8"]);
    // Twenty-two creates and twenty-one deletes. The close deletes all its nodes in one
    // transaction.
    let left = Stat { cversion: 43, num_children: 1, pzxid: end, ..new_stat(made, 0) };
    assert_eq!(stat(&mut other, "/d"), left);
    other.close();
}

/// The events come in the order of a hash table, whether the session is closed or expires.
fn watchers_get_an_event_for_each_node_of_an_ended_session() {
    let address = Shared::chroot();
    let mut other = Client::connect(&address);
    make(&mut other, &["/d", "/d/one", "/d/two"]);
    for expires in [false, true] {
        let mut client = Hello::new().timeout(1000).say(&address).unwrap();
        let paths = Vec::from_iter((0..20).map(|number| format!("/d/two/{number}")));
        for path in paths.iter().map(String::as_str).chain(["/d/one/e"]) {
            client.good(&ephemeral(path));
        }
        // One-shot watches on nodes and on their parents, and lasting watches of both kinds.
        other.good(&watch_data("/d/two/7"));
        other.good(&watch_children("/d/two"));
        other.good(&add_watch("/d/one", PERSISTENT_WATCH));
        other.good(&add_watch("/d", RECURSIVE_WATCH));
        other.events();
        let mut expected = Vec::from_iter(paths.iter().map(|path| deleted(path)));
        expected.extend([deleted("/d/one/e"), children("/d/one"), children("/d/two")]);
        if expires {
            client.abandon();
        } else {
            client.close();
        }
        let mut events = Vec::from_iter(expected.iter().map(|_| match other.next() {
            Heard::Event(event) => event,
            heard => panic!("{heard:?}"),
        }));
        // The event of a parent follows that of its child.
        let at = |path: &str| events.iter().position(|event| event.path == path).expect(path);
        assert_eq!(at("/d/one"), at("/d/one/e") + 1);
        assert!(events[at("/d/two") - 1].path.starts_with("/d/two/"), "{events:?}");
        events.sort();
        expected.sort();
        assert_eq!(events, expected);
        heard(&mut other, &[]);
        let left = [names(&mut other, "/d/one"), names(&mut other, "/d/two")];
        assert_eq!(left.concat(), [""; 0]);
    }
}
