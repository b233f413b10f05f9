//! Requests for one node, while there is a connection.

use crate::support::{
    Acl, Config, CreateMode, Error, Raw, SOON, Server, Session, Shared, make, requests, scenarios,
    session, until,
};
use std::time::Duration;
use zk_session::{AclEntry, Permissions};
use zk_test_server::{Op, TestServer};

const OPEN: &Acl = &Acl::Open;
const HOUR: Duration = Duration::from_secs(3600);

fn each_mode_makes_its_kind_of_node() {
    let at = Shared::chroot();
    let session = session(&at);
    let zk = session.requests().within(SOON);
    let id = session.status().session_id.unwrap();
    for (mode, path, wanted, owner) in [
        (CreateMode::Persistent, "/stays", "/stays", 0),
        (CreateMode::PersistentSequential, "/job-", "/job-0000000001", 0),
        (CreateMode::Ephemeral, "/goes", "/goes", id),
        (CreateMode::EphemeralSequential, "/turn-", "/turn-0000000003", id),
        (CreateMode::Container, "/folder", "/folder", 0),
        (CreateMode::Ttl(HOUR), "/for-an-hour", "/for-an-hour", 0),
        (CreateMode::SequentialTtl(HOUR), "/hourly-", "/hourly-0000000006", 0),
    ] {
        let made = zk.create(path, b"data", mode, OPEN).unwrap();
        assert_eq!((made.path.as_str(), made.stat.owner), (wanted, owner), "{mode:?}");
        let node = zk.get(&made.path).unwrap();
        assert_eq!((node.data.as_slice(), node.stat), (b"data".as_slice(), made.stat), "{mode:?}");
    }
    // A name may be the number alone.
    zk.create("/numbers", b"", CreateMode::Persistent, OPEN).unwrap();
    let number = zk.create("/numbers/", b"", CreateMode::PersistentSequential, OPEN).unwrap();
    assert_eq!(number.path, "/numbers/0000000000");
    // The session's end deletes what belongs to it.
    let mut names = zk.children("/").unwrap();
    names.sort();
    let all = [
        "folder",
        "for-an-hour",
        "goes",
        "hourly-0000000006",
        "job-0000000001",
        "numbers",
        "stays",
        "turn-0000000003",
    ];
    assert_eq!(names, all);
    session.close().unwrap();
    let (server, chroot) = parts(&at);
    let mut left = Raw::connect(server).unwrap().children(chroot).unwrap();
    left.sort();
    assert_eq!(left, all.into_iter().filter(|n| !n.starts_with(['g', 't'])).collect::<Vec<_>>());
}

/// The server and the chroot of a connect string.
fn parts(at: &str) -> (&str, &str) {
    at.split_at(at.find('/').unwrap())
}

fn a_container_goes_with_its_last_child_and_a_node_with_a_ttl_when_nobody_touches_it() {
    let server = Server::builder().container_check(Duration::from_millis(200)).start();
    let session = session(&server.connect_string());
    let zk = session.requests().within(SOON);
    let ttl = CreateMode::Ttl(Duration::from_millis(300));
    zk.create("/short", b"", ttl, OPEN).unwrap();
    zk.create("/folder", b"", CreateMode::Container, OPEN).unwrap();
    make(&zk, "/folder/child", b"");
    until("the node with a time to live is gone", SOON, || {
        zk.exists("/short").unwrap().is_none().then_some(())
    });
    assert!(zk.exists("/folder").unwrap().is_some(), "it has a child");
    zk.delete("/folder/child", None).unwrap();
    until("the container is gone", SOON, || zk.exists("/folder").unwrap().is_none().then_some(()));
}

fn data_is_replaced_and_deleted_only_in_its_version() {
    let zk = requests();
    let made = make(&zk, "/config", b"one");
    assert_eq!((made.version, made.data_length, made.children), (0, 3, 0));
    let second = zk.set("/config", b"second", Some(0)).unwrap();
    assert_eq!((second.version, second.data_length), (1, 6));
    assert_eq!((second.czxid, second.ctime), (made.czxid, made.ctime));
    assert!(second.mzxid > made.mzxid && second.mtime >= made.mtime);
    let refused = zk.set("/config", b"three", Some(0)).unwrap_err();
    assert_eq!(refused, Error::BadVersion { op: "write", path: "/config".into() });
    let third = zk.set("/config", b"", None).unwrap();
    let node = zk.get("/config").unwrap();
    assert_eq!((node.data.len(), node.stat, third.version), (0, third, 2));
    assert_eq!(zk.exists("/config").unwrap(), Some(third));
    let refused = zk.delete("/config", Some(1)).unwrap_err();
    assert_eq!(refused, Error::BadVersion { op: "delete", path: "/config".into() });
    zk.delete("/config", Some(2)).unwrap();
    assert_eq!(zk.exists("/config").unwrap(), None);
}

fn what_a_server_refuses_is_named_with_the_path_below_the_chroot() {
    let zk = requests();
    make(&zk, "/a", b"");
    zk.create("/goes", b"", CreateMode::Ephemeral, OPEN).unwrap();
    make(&zk, "/a/b", b"");
    let (no, path) = ("/no/node", String::from("/no/node"));
    let create = |path| zk.create(path, b"", CreateMode::Persistent, OPEN).unwrap_err();
    for (refused, op) in [
        (create(no), "create"),
        (zk.get(no).unwrap_err(), "read"),
        (zk.set(no, b"", None).unwrap_err(), "write"),
        (zk.delete(no, None).unwrap_err(), "delete"),
        (zk.children(no).unwrap_err(), "list"),
        (zk.acl(no).unwrap_err(), "read the ACL of"),
        (zk.set_acl(no, OPEN, None).unwrap_err(), "set the ACL of"),
    ] {
        assert_eq!(refused, Error::NoNode { op, path: path.clone() });
        assert!(!refused.is_transient());
    }
    assert_eq!(create("/a"), Error::NodeExists { op: "create", path: "/a".into() });
    let path = "/goes/child".to_owned();
    assert_eq!(create("/goes/child"), Error::NoChildrenForEphemerals { op: "create", path });
    let refused = zk.delete("/a", None).unwrap_err();
    assert_eq!(refused, Error::NotEmpty { op: "delete", path: "/a".into() });
    let none = zk.create("/c", b"", CreateMode::Persistent, &Acl::Custom(Vec::new())).unwrap_err();
    assert!(matches!(&none, Error::Server { code, .. } if code == "InvalidACL"), "{none:?}");
}

fn the_root_is_the_chroot_and_a_chroot_that_is_missing_is_not_made() {
    let at = Shared::chroot();
    let zk = session(&at).requests().within(SOON);
    make(&zk, "/child", b"");
    assert_eq!(zk.children("/").unwrap(), ["child"]);
    zk.set("/", b"root", None).unwrap();
    let (server, chroot) = parts(&at);
    assert_eq!(Raw::connect(server).unwrap().get_data(chroot).unwrap().0, b"root");
    let missing = Config::new(format!("{at}/missing")).create_chroot();
    let missing = Session::connect(missing).unwrap().requests().within(SOON);
    assert_eq!(missing.exists("/").unwrap(), None);
    let refused = missing.create("/a", b"", CreateMode::Persistent, OPEN).unwrap_err();
    assert_eq!(refused, Error::NoNode { op: "create", path: "/a".into() });
}

fn an_acl_is_read_and_replaced_and_keeps_others_out() {
    let at = Shared::chroot();
    let config = Config::new(&at).auth("digest", "orders:secret");
    let owner = Session::connect(config).unwrap().requests().within(SOON);
    let other = session(&at).requests().within(SOON);
    let made = owner.create("/mine", b"", CreateMode::Persistent, &Acl::CreatorAll).unwrap();
    let (mut entries, stat) = owner.acl("/mine").unwrap();
    assert_eq!((entries.len(), entries[0].scheme.as_str()), (1, "digest"));
    assert_eq!((entries[0].permissions, stat), (Permissions::ALL, made.stat));
    let no_auth = |op, permission| Error::NoAuth { op, path: "/mine".into(), permission };
    let refused = other.get("/mine").unwrap_err();
    assert_eq!(refused, no_auth("read", "READ"));
    entries.push(AclEntry {
        permissions: Permissions::READ,
        scheme: "world".into(),
        id: "anyone".into(),
    });
    let changed = Acl::Custom(entries.clone());
    let refused = owner.set_acl("/mine", &changed, Some(1)).unwrap_err();
    assert_eq!(refused, Error::BadVersion { op: "set the ACL of", path: "/mine".into() });
    let stat = owner.set_acl("/mine", &changed, Some(0)).unwrap();
    assert_eq!((stat.aversion, stat.version), (1, 0));
    assert_eq!(owner.acl("/mine").unwrap(), (entries, stat));
    assert_eq!(other.get("/mine").unwrap().stat, stat);
    let refused = other.set("/mine", b"", None).unwrap_err();
    assert_eq!(refused, no_auth("write", "WRITE"));
    let refused = other.set_acl("/mine", OPEN, None).unwrap_err();
    assert_eq!(refused, no_auth("set the ACL of", "ADMIN"));
    owner.set_acl("/mine", OPEN, None).unwrap();
    let open = owner.acl("/mine").unwrap().0;
    assert_eq!((open.len(), open[0].permissions), (1, Permissions::ALL));
}

fn what_cannot_be_a_request_is_refused_before_anything_is_sent() {
    let server = TestServer::start().unwrap();
    let session = session(&server.connect_string());
    let zk = session.requests().within(SOON);
    for path in ["", "a", "/a/", "//", "/a/../b", "/a\0"] {
        let create = |mode| zk.create(path, b"", mode, OPEN).map(drop);
        for refused in [
            zk.get(path).map(drop),
            zk.set(path, b"", None).map(drop),
            zk.delete(path, None),
            zk.exists(path).map(drop),
            zk.children(path).map(drop),
            zk.acl(path).map(drop),
            zk.set_acl(path, OPEN, None).map(drop),
            create(CreateMode::Persistent),
        ] {
            let e = refused.unwrap_err();
            assert!(matches!(&e, Error::InvalidPath { path: of, .. } if of == path), "{e:?}");
        }
    }
    for ttl in [Duration::ZERO, Duration::from_secs(3600 * 24 * 366 * 35)] {
        let refused = zk.create("/a", b"", CreateMode::Ttl(ttl), OPEN).unwrap_err();
        assert!(
            matches!(refused, Error::InvalidConfig { what: "CreateMode::Ttl", .. }),
            "{refused}"
        );
    }
    // A server would cut the connection at such a request, also in the middle of a multi.
    let much = vec![0; 0xf_ffff];
    let refused = zk.create("/a", &much, CreateMode::Persistent, OPEN).unwrap_err();
    assert!(matches!(refused, Error::InvalidConfig { what: "request", .. }), "{refused}");
    let half = vec![0; 600_000];
    let set = zk_session::Op::Set { path: "/a", data: &half, version: None };
    let refused = zk.multi(&[set, set]).unwrap_err();
    assert!(matches!(refused, Error::InvalidConfig { what: "request", .. }), "{refused}");
    zk.sync().unwrap();
    let sent = server.requests();
    assert!(sent.iter().any(|request| request.op == Op::Sync), "{sent:?}");
    let is_own = |op: &Op| matches!(op, Op::Connect | Op::Sync | Op::Ping);
    assert!(sent.iter().all(|request| is_own(&request.op)), "{sent:?}");
    // The longest that a server takes.
    let room = 0xf_ffff - (much.len() - (0xf_ffff - 200));
    assert!(zk.create("/a", &much[..room], CreateMode::Persistent, OPEN).is_ok());
    assert_eq!(session.status().stats.connections_lost, 0, "the connection has stayed");
}

scenarios![
    each_mode_makes_its_kind_of_node,
    a_container_goes_with_its_last_child_and_a_node_with_a_ttl_when_nobody_touches_it,
    data_is_replaced_and_deleted_only_in_its_version,
    what_a_server_refuses_is_named_with_the_path_below_the_chroot,
    the_root_is_the_chroot_and_a_chroot_that_is_missing_is_not_made,
    an_acl_is_read_and_replaced_and_keeps_others_out,
    what_cannot_be_a_request_is_refused_before_anything_is_sent on embedded,
];
