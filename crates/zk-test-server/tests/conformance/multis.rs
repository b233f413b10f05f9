//! multi, which does everything or nothing, and multiRead.
use super::{
    answers::{Body, Outcome, Outcome::*, Reply, children, created, deleted},
    checks::*,
    client::Client,
    requests::{mode::*, *},
};
use zk_test_support::{Shared, raw::Stat, scenarios};

scenarios![
    all_parts_have_one_zxid,
    the_kinds_of_creates_in_a_multi,
    a_part_sees_the_changes_of_the_parts_before_it,
    the_first_error_undoes_all,
    a_failed_multi_leaves_no_trace,
    numbers_in_a_multi,
    an_empty_multi_succeeds,
    parts_that_are_not_allowed,
    a_multi_read_answers_each_part_for_itself,
    events_of_a_multi,
];

#[track_caller]
fn results(client: &mut Client, parts: Vec<Req>) -> Vec<Outcome> {
    match client.body(&Req::Multi(parts)) {
        Body::Results(results) => results,
        other => panic!("{other:?}"),
    }
}

/// The results of a multi whose part `at` fails.
fn failure(parts: usize, at: usize, code: i32) -> Vec<Outcome> {
    let result = |part: usize| match part.cmp(&at) {
        std::cmp::Ordering::Less => Error(0),
        std::cmp::Ordering::Equal => Error(code),
        std::cmp::Ordering::Greater => Error(RUNTIME_INCONSISTENCY),
    };
    (0..parts).map(result).collect()
}

fn all_parts_have_one_zxid() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/old", "/set"]);
    let parts = vec![
        check("/set", 0),
        create("/p"),
        create("/p/1").data(b"1"),
        create("/p/2"),
        set_data("/set", b"one"),
        set_data_version("/set", b"three", 1),
        check("/set", 2),
        delete("/old"),
    ];
    let Reply { zxid, body: Body::Results(results), .. } = client.good(&Req::Multi(parts)) else {
        panic!()
    };
    let SetData(first) = results[4].clone() else { panic!("{results:?}") };
    let SetData(second) = results[5].clone() else { panic!("{results:?}") };
    let make = |path: &str| Create(path.to_owned());
    let expected = [
        Check,
        make("/p"),
        make("/p/1"),
        make("/p/2"),
        SetData(first),
        SetData(second),
        Check,
        Delete,
    ];
    assert_eq!(results, expected);
    assert_eq!((first.version, first.mzxid, first.data_length), (1, zxid, 3));
    assert_eq!((second.version, second.mzxid, second.data_length), (2, zxid, 5));
    let set = Stat { cversion: 2, num_children: 2, ..new_stat(zxid, 0) };
    assert_eq!(stat(&mut client, "/p"), set);
    assert_eq!(stat(&mut client, "/p/1"), new_stat(zxid, 1));
    assert_eq!(client.code(&exists("/old")), NO_NODE);
}

fn the_kinds_of_creates_in_a_multi() {
    let mut client = Client::connect(&Shared::chroot());
    let session = client.id();
    // Flags that ask for a container or a time to live make one, whatever the opcode. In 3.8
    // create2 answers as create does.
    let parts = vec![
        create("/create"),
        ephemeral("/ephemeral"),
        create2("/create2"),
        create2("/create2-container").flags(CONTAINER),
        create("/create-container").flags(CONTAINER),
        container("/container"),
        container("/container-plain").flags(PERSISTENT),
        container("/container-ephemeral").flags(EPHEMERAL),
        create_ttl("/ttl", 1_000_000),
        create_ttl("/ttl-plain", 1_000_000).flags(PERSISTENT),
        create_ttl("/ttl-container", 1_000_000).flags(CONTAINER),
    ];
    let paths: Vec<String> = parts
        .iter()
        .map(|part| match part {
            Req::Create(create) => create.path.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    let Reply { zxid, body: Body::Results(results), .. } = client.good(&Req::Multi(parts)) else {
        panic!()
    };
    let with_stat: &[&str] = if is_39() {
        &[
            "/create2",
            "/container-plain",
            "/container-ephemeral",
            "/create2-container",
            "/create-container",
            "/container",
            "/ttl",
            "/ttl-container",
        ]
    } else {
        &["/create2-container", "/create-container", "/container", "/ttl", "/ttl-container"]
    };
    for (path, result) in paths.iter().zip(&results) {
        // In 3.9 a createContainer makes a container, whatever its flags.
        let is_container = path == "/container-ephemeral" && is_39();
        let owner = if path.ends_with("ephemeral") && !is_container { session } else { 0 };
        let made = Stat { ephemeral_owner: owner, ..new_stat(zxid, 0) };
        match result {
            Create(at) if !with_stat.contains(&path.as_str()) => assert_eq!(at, path),
            Create2(at, stat) if with_stat.contains(&path.as_str()) => {
                assert_eq!((at, timeless(*stat)), (path, made));
            }
            other => panic!("{path}: {other:?}"),
        }
        assert_eq!(stat(&mut client, path), made, "{path}");
    }
    assert_eq!(results.len(), paths.len());
    client.close();
}

fn a_part_sees_the_changes_of_the_parts_before_it() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a", "/a/b"]);
    let parts = vec![
        create("/x"),
        create("/x/y"),
        delete("/x/y"),
        delete("/x"),
        create("/x"),
        check("/x", 0),
    ];
    let made = |path: &str| Create(path.to_owned());
    let expected = [made("/x"), made("/x/y"), Delete, Delete, made("/x"), Check];
    assert_eq!(results(&mut client, parts), expected);
    assert_eq!(results(&mut client, vec![delete("/a/b"), delete("/a")]), [Delete, Delete]);
    // A part sees an ephemeral parent, an ACL and a version of the same multi.
    let readable = [acl(1, "world", "anyone")];
    for (parts, code) in [
        (vec![ephemeral("/e"), create("/e/c")], NO_CHILDREN_FOR_EPHEMERALS),
        (vec![create("/l").acl(&readable), create("/l/c")], NO_AUTH),
        (vec![create("/l"), create("/l")], NODE_EXISTS),
        (vec![create("/l"), create("/l/c"), delete("/l")], NOT_EMPTY),
        (vec![delete("/x"), set_data("/x", b"")], NO_NODE),
        (vec![set_data("/x", b""), set_data_version("/x", b"", 0)], BAD_VERSION),
    ] {
        let failed = failure(parts.len(), parts.len() - 1, code);
        assert_eq!(results(&mut client, parts), failed);
    }
    assert_eq!(names(&mut client, "/"), ["x"]);
}

fn the_first_error_undoes_all() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a", "/a/b"]);
    let before = stat(&mut client, "/a");
    let good = |number: usize| create(&format!("/a/{number}"));
    let flags = if is_39() { NODE_EXISTS } else { BAD_ARGUMENTS };
    for (part, code) in [
        (create("/a"), NODE_EXISTS),
        (create("/x/y"), NO_NODE),
        (create("bad"), BAD_ARGUMENTS),
        (create("/a/x").acl(&[]), INVALID_ACL),
        (create("/a/").flags(PERSISTENT), BAD_ARGUMENTS),
        (delete("/a"), NOT_EMPTY),
        (delete("/x"), NO_NODE),
        (delete_version("/a/b", 7), BAD_VERSION),
        (set_data("/x", b""), NO_NODE),
        (set_data_version("/a", b"", 7), BAD_VERSION),
        (check("/x", -1), NO_NODE),
        (check("/a", 7), BAD_VERSION),
        // In 3.9 the whole multi is refused for them.
        (if is_39() { create("/a") } else { create("/a/f").flags(99) }, flags),
        (create_ttl("/a/t", 0), BAD_ARGUMENTS),
    ] {
        for at in 0..3 {
            let mut parts = vec![set_data("/a", b"undone"), good(1), good(2)];
            parts.insert(at, part.clone());
            let last = client.good(&Req::Ping).zxid;
            let reply = client.call(&Req::Multi(parts));
            // The reply's header has no error.
            assert_eq!(
                (reply.err, reply.body),
                (0, Body::Results(failure(4, at, code))),
                "{part:?} at {at}"
            );
            assert!(reply.zxid > last);
        }
    }
    assert_eq!(stat(&mut client, "/a"), before);
    assert_eq!(names(&mut client, "/a"), ["b"]);
}

fn a_failed_multi_leaves_no_trace() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a", "/a/b"]);
    // One packet: the server prepares the writes behind the failed multi while the multi is in
    // progress.
    let failing = Req::Multi(vec![
        delete("/a/b"),
        create("/a/n-").flags(SEQUENTIAL),
        set_data("/a", b"no"),
        ephemeral("/a/e"),
        delete("/nothing"),
    ]);
    for round in 0..30 {
        let version = round * 2;
        client.send(&[
            set_data_version("/a", b"1", version),
            failing.clone(),
            sequential("/a/n-"),
            set_data_version("/a", b"2", version + 1),
            create("/a/b"),
            create("/a/e/x"),
        ]);
        let replies: Vec<Reply> = (0..6).map(|_| client.reply().unwrap()).collect();
        assert_eq!(replies[1].body, Body::Results(failure(5, 4, NO_NODE)), "round {round}");
        // "/a/b" was the first child.
        assert_eq!(replies[2].body, Body::Path(format!("/a/n-{:010}", 1 + round)));
        let codes: Vec<i32> = replies.iter().map(|reply| reply.err).collect();
        assert_eq!(codes, [0, 0, 0, 0, NODE_EXISTS, NO_NODE], "round {round}");
    }
    assert_eq!(names(&mut client, "/a").len(), 31);
}

fn numbers_in_a_multi() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/p", "/p/a"]);
    let numbers = |results: Vec<Outcome>| -> Vec<String> {
        let path = |result| match result {
            Create(path) | Create2(path, _) => Some(path.strip_prefix("/p/")?.to_owned()),
            _ => None,
        };
        results.into_iter().filter_map(path).collect()
    };
    let parts = |count| vec![sequential("/p/"); count];
    assert_eq!(numbers(results(&mut client, parts(2))), ["0000000001", "0000000002"]);
    let mut failing = parts(3);
    failing.push(delete("/nothing"));
    assert_eq!(results(&mut client, failing), failure(4, 3, NO_NODE));
    let mixed = vec![
        sequential("/p/"),
        delete("/p/a"),
        ephemeral("/p/").flags(EPHEMERAL_SEQUENTIAL),
        container("/p/").flags(SEQUENTIAL),
        create_ttl("/p/", 1_000_000).flags(SEQUENTIAL_TTL),
    ];
    let four = ["0000000003", "0000000004", "0000000005", "0000000006"];
    assert_eq!(numbers(results(&mut client, mixed)), four);
    assert_eq!(made(&mut client, &sequential("/p/")).0, "/p/0000000007");
    client.close();
}

fn an_empty_multi_succeeds() {
    let mut client = Client::connect(&Shared::chroot());
    let before = client.good(&Req::Ping).zxid;
    let reply = client.good(&Req::Multi(vec![]));
    assert_eq!(reply.body, Body::Results(vec![]));
    assert!(reply.zxid > before);
    assert_eq!(client.body(&Req::MultiRead(vec![])), Body::Results(vec![]));
}

fn parts_that_are_not_allowed() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a"]);
    let no = |op| Req::Other { op, body: Vec::new() };
    let begun = Body::Results(vec![]);
    for parts in [
        vec![exists("/a")],
        vec![set_acl("/a", &open())],
        vec![get_children2("/a")],
        vec![sync("/a")],
        vec![Req::Ping],
        vec![no(14)],
        vec![no(-11)],
        vec![no(-1)],
        vec![create("/b"), exists("/a")],
        vec![create("/b"), get_data("/a")],
        vec![get_data("/a"), create("/b")],
        // Flags of a time to live, but no time.
        vec![create("/b"), create("/c").flags(TTL)],
    ] {
        let reply = client.call(&Req::Multi(parts.clone()));
        assert_eq!((reply.err, reply.body), (MARSHALLING, Body::Empty), "multi {parts:?}");
        let reply = client.call(&Req::MultiRead(parts.clone()));
        // Of parts that can be read, it has begun an answer. (3.9 does not read these flags.)
        let body = if !is_39() && matches!(parts[..], [Req::Create(_), Req::Create(_)]) {
            begun.clone()
        } else {
            Body::Empty
        };
        assert_eq!((reply.err, reply.body), (MARSHALLING, body), "multiRead {parts:?}");
    }
    let reply = client.call(&Req::Multi(vec![get_data("/a"), get_children("/a")]));
    assert_eq!((reply.err, reply.body), (MARSHALLING, Body::Empty));
    let reply = client.call(&Req::MultiRead(vec![create("/b")]));
    assert_eq!((reply.err, reply.body), (MARSHALLING, begun));
    assert_eq!(names(&mut client, "/"), ["a"]);
}

fn a_multi_read_answers_each_part_for_itself() {
    let mut client = Client::connect(&Shared::chroot());
    client.good(&create("/a").data(b"data"));
    make(&mut client, &["/a/2", "/a/1"]);
    client.good(&create("/null").null_data());
    client.good(&create("/locked").acl(&[acl(2, "world", "anyone")]));
    let before = client.good(&Req::Ping).zxid;
    let reply = client.good(&Req::MultiRead(vec![
        get_data("/a"),
        get_children("/a"),
        get_data("/nothing"),
        get_children("/nothing"),
        get_children("/a/1"),
        get_data("/null"),
        get_data("/locked"),
        watch_data("/a"),
        get_data("/a"),
    ]));
    let read = |client: &mut Client, path: &str| match client.body(&get_data(path)) {
        Body::Data(data, stat) => Data(data, stat),
        other => panic!("{other:?}"),
    };
    let (a, null) = (read(&mut client, "/a"), read(&mut client, "/null"));
    let expected = [
        a.clone(),
        Children(vec!["1".into(), "2".into()]),
        Error(NO_NODE),
        Error(NO_NODE),
        Children(vec![]),
        null,
        Error(NO_AUTH),
        a.clone(),
        a,
    ];
    assert_eq!(reply.body, Body::Results(expected.to_vec()));
    assert!(reply.zxid >= before);
    // The multiRead sets no watch, whatever its parts ask for.
    client.good(&set_data("/a", b""));
    heard(&mut client, &[]);
}

fn events_of_a_multi() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a", "/a/old"]);
    codes(
        &mut client,
        &[(watch_exists("/a/new"), NO_NODE), (watch_data("/a/old"), 0), (watch_children("/a"), 0)],
    );
    let failing = vec![create("/a/new"), delete("/a/old"), delete("/nothing")];
    assert_eq!(results(&mut client, failing), failure(3, 2, NO_NODE));
    heard(&mut client, &[]);
    client.good(&Req::Multi(vec![create("/a/new"), delete("/a/old"), set_data("/a/new", b"")]));
    heard(&mut client, &[created("/a/new"), children("/a"), deleted("/a/old")]);
}
