//! Requests that the server refuses, and the error code that comes first if there are several
//! reasons.
use super::{
    checks::*,
    client::Client,
    requests::{mode::*, op::*, *},
};
use zk_test_support::{Shared, scenarios};

scenarios![
    paths_that_are_none,
    flags_and_times_to_live,
    lists_of_permissions,
    of_several_reasons_the_first_is_reported,
    system_nodes,
    requests_that_cannot_be_read,
    opcodes_of_the_servers_own,
];

fn paths_that_are_none() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/p", "/p/c"]);
    let bad = BAD_ARGUMENTS;
    // For each path, the answers to creates, deletes, writes (setData, setACL, check) and reads
    // (exists, getData, getChildren).
    for (path, created, deleted, written, read) in [
        ("", bad, bad, bad, 0),
        ("p", bad, bad, bad, NO_NODE),
        ("p/c", NO_NODE, NO_NODE, bad, NO_NODE),
        ("/p/", bad, NO_NODE, bad, NO_NODE),
        ("/p//c", NO_NODE, NO_NODE, bad, NO_NODE),
        ("//p", NO_NODE, NO_NODE, bad, NO_NODE),
        ("/p/.", bad, NO_NODE, bad, NO_NODE),
        ("/p/..", bad, NO_NODE, bad, NO_NODE),
        ("/p/./c", NO_NODE, NO_NODE, bad, NO_NODE),
        ("/p/../p", NO_NODE, NO_NODE, bad, NO_NODE),
        ("/p/...", 0, 0, NO_NODE, NO_NODE),
        ("/p/.a", 0, 0, NO_NODE, NO_NODE),
        ("/p/a.", 0, 0, NO_NODE, NO_NODE),
        ("/p/ ", 0, 0, NO_NODE, NO_NODE),
        ("/p/é漢\u{20ac}", 0, 0, NO_NODE, NO_NODE),
        ("/p/\u{1}", bad, NO_NODE, bad, NO_NODE),
        ("/p/\u{1f}", bad, NO_NODE, bad, NO_NODE),
        ("/p/\u{7f}", bad, NO_NODE, bad, NO_NODE),
        ("/p/\u{9f}", bad, NO_NODE, bad, NO_NODE),
        ("/p/\u{a0}", 0, 0, NO_NODE, NO_NODE),
        ("/p/\u{e000}", bad, NO_NODE, bad, NO_NODE),
        ("/p/\u{f8ff}", bad, NO_NODE, bad, NO_NODE),
        ("/p/\u{f900}", 0, 0, NO_NODE, NO_NODE),
        ("/p/\u{ffef}", 0, 0, NO_NODE, NO_NODE),
        ("/p/\u{fff0}", bad, NO_NODE, bad, NO_NODE),
        // Java represents characters outside the basic plane as surrogates.
        ("/p/\u{1f600}", bad, NO_NODE, bad, NO_NODE),
    ] {
        let not_read = get_data(path);
        codes(
            &mut client,
            &[
                (create(path), created),
                (delete(path), deleted),
                (set_data(path, b""), written),
                (set_acl(path, &open()), written),
                (exists(path), read),
                (not_read, read),
                (get_children(path), read),
                (get_children2(path), read),
                (get_acl(path), read),
                (Req::GetAllChildrenNumber { path: path.into() }, read),
            ],
        );
        check_codes(&mut client, &[(check(path, 7), written)]);
    }
    // A null character: of the reads, only exists checks for it.
    let null = "/p/\0";
    codes(
        &mut client,
        &[
            (create(null), bad),
            (delete(null), bad),
            (set_data(null, b""), bad),
            (exists(null), bad),
            (get_data(null), NO_NODE),
            (get_children(null), NO_NODE),
            (watch_data(null), NO_NODE),
        ],
    );
}

fn flags_and_times_to_live() {
    let mut client = Client::connect(&Shared::chroot());
    for op in [CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL] {
        for flags in [7, 8, 64, -1, i32::MIN, i32::MAX] {
            let create = create_ttl("/a", 1).op(op).flags(flags);
            assert_eq!(client.code(&create), BAD_ARGUMENTS, "opcode {op}, flags {flags}");
        }
    }
    let longest = (1 << 40) - 1;
    for (number, (ttl, code)) in [
        (1, 0),
        (longest, 0),
        (longest + 1, BAD_ARGUMENTS),
        (0, BAD_ARGUMENTS),
        (-1, BAD_ARGUMENTS),
        (i64::MIN, BAD_ARGUMENTS),
        (i64::MAX, BAD_ARGUMENTS),
    ]
    .into_iter()
    .enumerate()
    {
        for flags in [TTL, SEQUENTIAL_TTL] {
            let path = format!("/t{number}-{flags}-");
            let reply = client.call(&create_ttl(&path, ttl).flags(flags));
            assert_eq!(reply.err, code, "a time to live of {ttl}, flags {flags}");
        }
    }
    assert_eq!(names(&mut client, "/").len(), 4);
}

fn lists_of_permissions() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/set"]);
    let one = |perms, scheme: &str, id: &str| Some(vec![acl(perms, scheme, id)]);
    for (number, (acl, code)) in [
        (None, INVALID_ACL),
        (Some(vec![]), INVALID_ACL),
        (one(31, "world", "anyone"), 0),
        (one(31, "world", "someone"), INVALID_ACL),
        (one(31, "world", ""), INVALID_ACL),
        (one(0, "world", "anyone"), 0),
        (one(-1, "world", "anyone"), 0),
        (one(1 << 20, "world", "anyone"), 0),
        (one(31, "", ""), INVALID_ACL),
        (one(31, "sasl", "a"), INVALID_ACL),
        (one(31, "super", ""), INVALID_ACL),
        (one(31, "no-scheme", "a:b"), INVALID_ACL),
        (one(31, "auth", ""), INVALID_ACL),
        (one(31, "auth", "alice:wonder"), INVALID_ACL),
        (one(31, "digest", "alice:anything"), 0),
        (one(31, "digest", "alice"), INVALID_ACL),
        (one(31, "digest", "alice:"), INVALID_ACL),
        (one(31, "digest", ":x"), 0),
        (one(31, "digest", "a:b:c"), INVALID_ACL),
        (one(31, "digest", ""), INVALID_ACL),
        (one(31, "ip", "127.0.0.1"), 0),
        (one(31, "ip", "127.0.0.0/8"), 0),
        (one(31, "ip", "127.0.0.1/0"), 0),
        (one(31, "ip", "127.0.0.1/32"), 0),
        (one(31, "ip", "127.0.0.1/33"), INVALID_ACL),
        (one(31, "ip", "127.0.0.1/-1"), INVALID_ACL),
        (one(31, "ip", "127.0.0.1/x"), INVALID_ACL),
        (one(31, "ip", "127.0.0.1/"), INVALID_ACL),
        (one(31, "ip", "127.0.0.256"), INVALID_ACL),
        (one(31, "ip", "127.0.0"), INVALID_ACL),
        (one(31, "ip", "127.0.0.1.1"), INVALID_ACL),
        (one(31, "ip", "::1"), if is_39() { 0 } else { INVALID_ACL }),
        (one(31, "ip", ""), INVALID_ACL),
        (Some(vec![acl(31, "world", "anyone"), acl(31, "digest", "x")]), INVALID_ACL),
        (Some(vec![acl(31, "world", "anyone"), acl(31, "world", "anyone")]), 0),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/n{number}");
        let Req::Create(bare) = create(&path) else { unreachable!() };
        let create = Req::Create(Create { acl: acl.clone(), ..bare });
        assert_eq!(client.code(&create), code, "{create:?}");
        let names = names(&mut client, "/");
        assert_eq!(names.contains(&format!("n{number}")), code == 0);
        // setACL judges alike.
        let fresh = format!("/s{number}");
        client.good(&super::requests::create(&fresh));
        let set = Req::SetAcl { path: fresh, acl, version: 0 };
        assert_eq!(client.code(&set), code, "{set:?}");
    }
}

fn of_several_reasons_the_first_is_reported() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/p", "/p/c"]);
    client.good(&create("/locked").acl(&[acl(1, "world", "anyone")]));
    client.good(&create("/closed").acl(&[acl(8, "digest", "nobody:x")]));
    client.good(&ephemeral("/e"));
    let nobody = [acl(31, "auth", "")];
    let dir = |op| create_ttl("nowhere", 1).op(op);
    codes(
        &mut client,
        &[
            // The order of create: flags, time to live, the form of the path, the ACL, the parent,
            // permission, the path, existence, the parent's kind.
            (create("nowhere").flags(9).acl(&nobody), BAD_ARGUMENTS),
            (dir(CREATE_TTL).acl(&nobody), BAD_ARGUMENTS),
            (create("/x/y").acl(&nobody), INVALID_ACL),
            (create("/x/y/"), NO_NODE),
            (create("/locked/"), NO_AUTH),
            (create("/locked/c\u{1}"), NO_AUTH),
            (create("/p/c"), NODE_EXISTS),
            (create("/e/\u{1}"), BAD_ARGUMENTS),
            (create("/e/c"), NO_CHILDREN_FOR_EPHEMERALS),
            // The order of delete: the parent, permission, existence, the version, children.
            (delete_version("/x/y", 9), NO_NODE),
            (delete_version("/locked/c", 9), NO_AUTH),
            (delete_version("/p/x", 9), NO_NODE),
            (delete_version("/p", 9), BAD_VERSION),
            (delete_version("/p", 0), NOT_EMPTY),
            (delete("/p"), NOT_EMPTY),
            // setData: the path, existence, permission, the version.
            (set_data_version("/x/", b"", 9), BAD_ARGUMENTS),
            (set_data_version("/x", b"", 9), NO_NODE),
            (set_data_version("/closed", b"", 9), NO_AUTH),
            (set_data_version("/p", b"", 9), BAD_VERSION),
            // setACL: the path, the list, existence, permission, the version.
            (set_acl_version("/x/", &nobody, 9), BAD_ARGUMENTS),
            (set_acl_version("/x", &nobody, 9), INVALID_ACL),
            (set_acl_version("/x", &open(), 9), NO_NODE),
            (set_acl_version("/closed", &open(), 9), NO_AUTH),
            (set_acl_version("/p", &open(), 9), BAD_VERSION),
        ],
    );
    // check: as setData.
    check_codes(
        &mut client,
        &[
            (check("/x/", 9), BAD_ARGUMENTS),
            (check("/x", 9), NO_NODE),
            (check("/closed", 9), NO_AUTH),
            (check("/p", 9), BAD_VERSION),
        ],
    );
    client.close();
}

fn system_nodes() {
    // Without a chroot: the server's own root.
    let mut client = Client::connect(&Shared::connect_string());
    codes(
        &mut client,
        &[
            (create("/"), NODE_EXISTS),
            (delete("/"), BAD_ARGUMENTS),
            (delete_version("/", 99), BAD_ARGUMENTS),
            (delete("/zookeeper"), BAD_ARGUMENTS),
            (delete("/zookeeper/quota"), BAD_ARGUMENTS),
            (delete("/zookeeper/config"), BAD_ARGUMENTS),
            (create("/zookeeper"), NODE_EXISTS),
            (create("/zookeeper/quota"), NODE_EXISTS),
            (set_data("/zookeeper/config", b""), NO_AUTH),
            (set_acl("/zookeeper/config", &open()), NO_AUTH),
            (delete("/zookeeper/nothing"), NO_NODE),
            (exists("/zookeeper/config"), 0),
            (exists("/"), 0),
            (exists(""), 0),
            (get_acl(""), 0),
        ],
    );
    assert_eq!(names(&mut client, "/zookeeper"), ["config", "quota"]);
    assert_eq!(names(&mut client, "/zookeeper/quota"), [""; 0]);
    assert!(names(&mut client, "/").contains(&"zookeeper".to_owned()));
    let zero = new_stat(0, 0);
    assert_eq!(stat(&mut client, "/zookeeper/quota"), zero);
}

fn requests_that_cannot_be_read() {
    let address = Shared::chroot();
    let mut client = Client::connect(&address);
    make(&mut client, &["/a"]);
    let opcodes = [
        CREATE,
        DELETE,
        EXISTS,
        GET_DATA,
        SET_DATA,
        GET_ACL,
        SET_ACL,
        GET_CHILDREN,
        SYNC,
        GET_CHILDREN2,
        CHECK,
        MULTI,
        CREATE2,
        CHECK_WATCHES,
        REMOVE_WATCHES,
        CREATE_CONTAINER,
        CREATE_TTL,
        MULTI_READ,
        SET_WATCHES,
        GET_EPHEMERALS,
        GET_ALL_CHILDREN_NUMBER,
        SET_WATCHES2,
        ADD_WATCH,
    ];
    let string = |length: i32, text: &[u8]| [&length.to_be_bytes(), text].concat();
    for body in
        [Vec::new(), vec![0, 0], string(100, b"/a"), string(-2, b""), string(i32::MAX, b"/a")]
    {
        for op in opcodes.into_iter().filter(|op| *op != CHECK || !is_39()) {
            let reply = client.call(&Req::Other { op, body: body.clone() });
            assert_eq!(reply.err, MARSHALLING, "opcode {op} with body {body:02x?}");
        }
    }
    // Trailing bytes are ignored.
    let path = format!("/{}/a", address.split_once('/').unwrap().1);
    let trailing = [string(path.len() as i32, path.as_bytes()), vec![0, 1, 2, 3]].concat();
    assert_eq!(client.code(&Req::Other { op: EXISTS, body: trailing }), 0);
    assert_eq!(client.code(&exists("/a")), 0);
}

fn opcodes_of_the_servers_own() {
    let mut client = Client::connect(&Shared::chroot());
    make(&mut client, &["/a"]);
    let [code, reconfig, container] = [
        Req::Other { op: CREATE_SESSION, body: Vec::new() },
        Req::Other {
            op: RECONFIG,
            body: [[0xff; 4]; 3].concat().into_iter().chain([0xff; 8]).collect(),
        },
        Req::Other { op: DELETE_CONTAINER, body: b"/a".to_vec() },
    ]
    .map(|request| client.code(&request));
    let refused = if is_39() { MARSHALLING } else { BAD_ARGUMENTS };
    assert_eq!((code, reconfig, container), (MARSHALLING, RECONFIG_DISABLED, refused));
    assert_eq!(client.code(&exists("/a")), 0);
}
