//! The creates: four opcodes, seven modes, sequential numbers, and the Stats of node and parent.
use super::{
    answers::{Body, Reply},
    checks::*,
    client::Client,
    requests::{mode::*, op::*, *},
};
use zk_test_support::{Shared, raw::Stat, scenarios};

scenarios![
    each_opcode_with_each_mode,
    the_parents_stat_counts_changes,
    numbers_come_from_the_parents_count_of_creates,
    numbers_are_appended_to_any_name,
    data_may_be_null_or_empty,
    every_mode_but_the_ephemeral_may_have_children,
    a_node_created_again_begins_anew,
];

const HOUR: i64 = 3_600_000;

fn each_opcode_with_each_mode() {
    let mut client = Client::connect(&Shared::chroot());
    let session = client.id();
    let bad = Err(BAD_ARGUMENTS);
    // For each opcode and its flags: the owner of the node, and whether it has a number. (The owner
    // of a container or of a node with a time to live is a special number inside the server, which
    // clients do not see.)
    type Owner = (i64, bool);
    let expected: [(i32, i32, Result<Owner, i32>); 28] = [
        (CREATE, PERSISTENT, Ok((0, false))),
        (CREATE, EPHEMERAL, Ok((session, false))),
        (CREATE, SEQUENTIAL, Ok((0, true))),
        (CREATE, EPHEMERAL_SEQUENTIAL, Ok((session, true))),
        (CREATE, CONTAINER, Ok((0, false))),
        (CREATE, TTL, bad),
        (CREATE, SEQUENTIAL_TTL, bad),
        (CREATE2, PERSISTENT, Ok((0, false))),
        (CREATE2, EPHEMERAL, Ok((session, false))),
        (CREATE2, SEQUENTIAL, Ok((0, true))),
        (CREATE2, EPHEMERAL_SEQUENTIAL, Ok((session, true))),
        (CREATE2, CONTAINER, Ok((0, false))),
        (CREATE2, TTL, bad),
        (CREATE2, SEQUENTIAL_TTL, bad),
        (CREATE_CONTAINER, PERSISTENT, Ok((0, false))),
        (CREATE_CONTAINER, EPHEMERAL, Ok((0, false))),
        (CREATE_CONTAINER, SEQUENTIAL, Ok((0, true))),
        (CREATE_CONTAINER, EPHEMERAL_SEQUENTIAL, Ok((0, true))),
        (CREATE_CONTAINER, CONTAINER, Ok((0, false))),
        (CREATE_CONTAINER, TTL, bad),
        (CREATE_CONTAINER, SEQUENTIAL_TTL, bad),
        (CREATE_TTL, PERSISTENT, bad),
        (CREATE_TTL, EPHEMERAL, bad),
        (CREATE_TTL, SEQUENTIAL, bad),
        (CREATE_TTL, EPHEMERAL_SEQUENTIAL, bad),
        (CREATE_TTL, CONTAINER, bad),
        (CREATE_TTL, TTL, Ok((0, false))),
        (CREATE_TTL, SEQUENTIAL_TTL, Ok((0, true))),
    ];
    make(&mut client, &["/p"]);
    let mut count = 0;
    for (op, flags, expected) in expected {
        let path = format!("/p/{op}-{flags}-");
        let reply = client.call(&create_ttl(&path, HOUR).op(op).flags(flags).data(b"four"));
        let case = format!("opcode {op} with flags {flags}");
        match expected {
            Err(code) => {
                assert_eq!((reply.err, reply.body), (code, Body::Empty), "{case}");
                assert_eq!(client.code(&exists(&path)), NO_NODE, "{case}");
            }
            Ok((owner, numbered)) => {
                let name = if numbered { format!("{path}{count:010}") } else { path };
                count += 1;
                let made = Stat { ephemeral_owner: owner, ..new_stat(reply.zxid, 4) };
                match (op, reply.body) {
                    (CREATE, Body::Path(path)) => assert_eq!(path, name, "{case}"),
                    (_, Body::Created(path, stat)) => {
                        assert_eq!((path, timeless(stat)), (name.clone(), made), "{case}");
                    }
                    (_, other) => panic!("{case}: {other:?}"),
                }
                assert_eq!(stat(&mut client, &name), made, "{case}");
            }
        }
    }
    client.close();
}

fn the_parents_stat_counts_changes() {
    let mut client = Client::connect(&Shared::chroot());
    let (_, p) = made(&mut client, &create("/p"));
    let stat = |client: &mut Client| stat(client, "/p");
    assert_eq!(stat(&mut client), new_stat(p, 0));
    let (_, a) = made(&mut client, &create("/p/a"));
    assert_eq!(
        stat(&mut client),
        Stat { cversion: 1, num_children: 1, pzxid: a, ..new_stat(p, 0) }
    );
    let (_, b) = made(&mut client, &create("/p/b"));
    assert_eq!(
        stat(&mut client),
        Stat { cversion: 2, num_children: 2, pzxid: b, ..new_stat(p, 0) }
    );
    let gone = zxid(&mut client, &delete("/p/a"));
    assert_eq!(
        stat(&mut client),
        Stat { cversion: 3, num_children: 1, pzxid: gone, ..new_stat(p, 0) }
    );
    // Grandchildren and failures do not count. Data and ACL have versions of their own.
    let set = zxid(&mut client, &set_data("/p", b"12345"));
    client.good(&create("/p/b/c"));
    codes(&mut client, &[(create("/p/b"), NODE_EXISTS), (delete("/p/x"), NO_NODE)]);
    client.good(&set_data("/p/b", b"1"));
    let changed = Stat { version: 1, mzxid: set, data_length: 5, ..new_stat(p, 0) };
    let changed = Stat { cversion: 3, num_children: 1, pzxid: gone, ..changed };
    assert_eq!(stat(&mut client), changed);
    client.good(&set_acl("/p", &open()));
    client.good(&set_acl("/p", &open()));
    assert_eq!(stat(&mut client), Stat { aversion: 2, ..changed });
    // A failed multi leaves both counts as they were.
    client.good(&Req::Multi(vec![create("/p/m"), delete("/p/x")]));
    assert_eq!(stat(&mut client), Stat { aversion: 2, ..changed });
}

fn numbers_come_from_the_parents_count_of_creates() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/p", "/p/plain"]);
    let next = |client: &mut Client, create: Req, number: &str| {
        let Req::Create(Create { path, .. }) = &create else { unreachable!() };
        let expected = format!("{path}{number}");
        assert_eq!(made(client, &create).0, expected);
        expected
    };
    // Each create counts. A delete does not count, and neither does a create that fails.
    let first = next(&mut client, sequential("/p/n-"), "0000000001");
    next(&mut client, ephemeral("/p/e-").flags(EPHEMERAL_SEQUENTIAL), "0000000002");
    client.good(&delete(&first));
    client.good(&delete("/p/plain"));
    next(&mut client, sequential("/p/n-"), "0000000003");
    client.good(&ephemeral("/p/e"));
    client.good(&container("/p/c"));
    codes(&mut client, &[(create("/p/c"), NODE_EXISTS), (sequential("/p/x/n-"), NO_NODE)]);
    next(&mut client, create_ttl("/p/t-", HOUR).flags(SEQUENTIAL_TTL), "0000000006");
    next(&mut client, create2("/p/n-").flags(SEQUENTIAL), "0000000007");
    // A name with the next number may exist already.
    client.good(&create("/p/n-0000000009"));
    assert_eq!(client.code(&sequential("/p/n-")), NODE_EXISTS);
    client.good(&create("/p/other"));
    next(&mut client, sequential("/p/n-"), "0000000010");
    // A parent that was deleted and created again counts from zero.
    client.good(&create("/q"));
    next(&mut client, sequential("/q/n-"), "0000000000");
    client.good(&delete("/q/n-0000000000"));
    client.good(&delete("/q"));
    client.good(&create("/q"));
    next(&mut client, sequential("/q/n-"), "0000000000");
    client.close();
}

fn numbers_are_appended_to_any_name() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/p"]);
    for (count, (name, made_of_it)) in
        [("/p/", "/p/"), ("/p/.", "/p/."), ("/p/..", "/p/.."), ("/p/é-", "/p/é-"), ("/p/7", "/p/7")]
            .into_iter()
            .enumerate()
    {
        assert_eq!(made(&mut client, &sequential(name)).0, format!("{made_of_it}{count:010}"));
    }
    // But the whole name has to be a valid path.
    codes(&mut client, &[(sequential("/p//"), NO_NODE), (sequential("/p/a\u{1}"), BAD_ARGUMENTS)]);
}

fn data_may_be_null_or_empty() {
    let mut client = Client::connect(&Shared::chroot());
    let read = |client: &mut Client, path: &str| match client.body(&get_data(path)) {
        Body::Data(data, stat) => (data, stat.data_length),
        other => panic!("{other:?}"),
    };
    client.good(&create("/null").null_data());
    client.good(&create("/empty").data(b""));
    client.good(&create("/zero").data(&[0]));
    assert_eq!(read(&mut client, "/null"), (None, 0));
    assert_eq!(read(&mut client, "/empty"), (Some(vec![]), 0));
    assert_eq!(read(&mut client, "/zero"), (Some(vec![0]), 1));
    client.good(&Req::SetData { path: "/empty".into(), data: None, version: 0 });
    client.good(&set_data("/null", b""));
    assert_eq!(read(&mut client, "/empty"), (None, 0));
    assert_eq!(read(&mut client, "/null"), (Some(vec![]), 0));
    assert_eq!(stat(&mut client, "/null").version, 1);
}

fn every_mode_but_the_ephemeral_may_have_children() {
    let mut client = Client::connect(&Shared::chroot());
    for (parent, create) in [
        ("/persistent", create("/persistent")),
        ("/container", container("/container")),
        ("/ttl", create_ttl("/ttl", HOUR)),
    ] {
        client.good(&create);
        for mode in [PERSISTENT, EPHEMERAL, SEQUENTIAL, EPHEMERAL_SEQUENTIAL] {
            client.good(&super::requests::create(&format!("{parent}/{mode}")).flags(mode));
        }
        assert_eq!(stat(&mut client, parent).num_children, 4);
    }
    client.good(&ephemeral("/e"));
    let children = [
        create("/e/a"),
        ephemeral("/e/a"),
        sequential("/e/a"),
        container("/e/a"),
        create_ttl("/e/a", HOUR),
        create2("/e/a"),
    ];
    codes(&mut client, &children.map(|child| (child, NO_CHILDREN_FOR_EPHEMERALS)));
    assert_eq!(names(&mut client, "/e"), [""; 0]);
    client.close();
}

fn a_node_created_again_begins_anew() {
    let mut client = Client::connect(&Shared::chroot());
    client.good(
        &ephemeral("/n")
            .data(b"first")
            .acl(&[acl(31, "world", "anyone"), acl(1, "ip", "127.0.0.1")]),
    );
    client.good(&set_data("/n", b"second"));
    client.good(&delete("/n"));
    let Reply { zxid, body, .. } = client.good(&create2("/n").data(b"3rd"));
    let Body::Created(path, made) = body else { panic!("{body:?}") };
    assert_eq!((path.as_str(), timeless(made)), ("/n", new_stat(zxid, 3)));
    assert_eq!(client.body(&get_data("/n")), Body::Data(Some(b"3rd".to_vec()), made));
    assert_eq!(client.body(&get_acl("/n")), Body::Acl(open(), made));
}
