//! Transaction ids: which requests take one, and which one each answer has.
use super::{
    answers::{Body, Reply},
    checks::*,
    client::{Client, Hello},
    requests::*,
};
use zk_test_support::{Server, raw::Stat, scenarios};

scenarios![a_fresh_server_counts_from_one, writes_take_a_zxid_even_if_they_fail];

/// No other scenario uses this server.
fn a_fresh_server_counts_from_one() {
    let server = Server::start();
    let address = &server.connect_string();
    stats_of_a_fresh_server(address);
    answers_have_the_last_applied_zxid(address);
    pipelined_answers_have_zxids_of_their_own(address);
    sessions_take_zxids(address);
}

fn writes_take_a_zxid_even_if_they_fail() {
    let server = Server::start();
    let mut client = Client::connect(&server.connect_string());
    make(&mut client, &["/a", "/a/b"]);
    let all = Req::GetAllChildrenNumber { path: "/a".into() };
    let unreadable = |op| Req::Other { op, body: vec![0] };
    // A request, its code, and how many zxids it takes.
    let unread = i64::from(!is_39());
    let mut requests: Vec<(Req, i32, i64)> = vec![
        (create("/c"), 0, 1),
        (create2("/d"), 0, 1),
        (container("/e"), 0, 1),
        (create_ttl("/f", 1_000_000), 0, 1),
        (ephemeral("/g"), 0, 1),
        (set_data("/c", b""), 0, 1),
        (set_acl("/c", &open()), 0, 1),
        (delete("/c"), 0, 1),
        (Req::Multi(vec![create("/m"), delete("/m"), create("/n")]), 0, 1),
        (Req::Multi(vec![]), 0, 1),
        (Req::Multi(vec![create("/o"), create("/o")]), 0, 1),
        // Failed writes take one.
        (create("/a"), NODE_EXISTS, 1),
        (create("/x/y"), NO_NODE, 1),
        (create("bad"), BAD_ARGUMENTS, 1),
        (create("/x").flags(99), BAD_ARGUMENTS, 1),
        (create("/x").acl(&[]), INVALID_ACL, 1),
        (delete("/a"), NOT_EMPTY, 1),
        (delete("/x"), NO_NODE, 1),
        (delete("/"), BAD_ARGUMENTS, 1),
        (set_data_version("/a", b"", 7), BAD_VERSION, 1),
        (set_acl("/x", &open()), NO_NODE, 1),
        (Req::Other { op: op::RECONFIG, body: vec![0xff; 20] }, RECONFIG_DISABLED, 1),
        // And so do, in 3.8, writes that cannot be read.
        (unreadable(op::CREATE), MARSHALLING, unread),
        (unreadable(op::DELETE), MARSHALLING, unread),
        (unreadable(op::MULTI), MARSHALLING, 1),
        (Req::Multi(vec![exists("/a")]), MARSHALLING, 1),
        // Reads take none.
        (exists("/a"), 0, 0),
        (exists("/x"), NO_NODE, 0),
        (watch_data("/a"), 0, 0),
        (get_children("/a"), 0, 0),
        (get_children2("/a"), 0, 0),
        (get_acl("/a"), 0, 0),
        (all, 0, 0),
        (sync("/"), 0, 0),
        (Req::Ping, 0, 0),
        (Req::WhoAmI, 0, 0),
        (Req::GetEphemerals { prefix: String::new() }, 0, 0),
        (Req::MultiRead(vec![get_data("/a"), get_data("/x")]), 0, 0),
        (add_watch("/a", RECURSIVE_WATCH), 0, 0),
        (remove_watches("/a", ANY_WATCHES), 0, 0),
        (check_watches("/a", ANY_WATCHES), NO_WATCHER, 0),
        (
            Req::SetWatches(Watches { seen: 0, exist: vec!["/a".into()], ..Watches::default() }),
            0,
            0,
        ),
        (unreadable(op::EXISTS), MARSHALLING, 0),
        (unreadable(op::GET_DATA), MARSHALLING, 0),
    ];
    if !is_39() {
        requests.push((check("/a", 7), BAD_VERSION, 1));
    }
    let mut last = client.good(&Req::Ping).zxid;
    for (request, code, takes) in requests {
        let reply = client.call(&request);
        assert_eq!((reply.err, reply.zxid - last), (code, takes), "{request:?}");
        last = reply.zxid;
    }
    // A check that succeeds takes one too, and tells nobody.
    if !is_39() {
        client.send(&[check("/a", 0), Req::Ping]);
        assert_eq!(client.reply().unwrap().zxid, last + 1);
        client.forget();
        last += 1;
    }
    // Credentials have no zxid at all.
    assert_eq!(client.good(&auth("digest", "a:b")).zxid, 0);
    assert_eq!(client.good(&Req::Ping).zxid, last);
}

fn answers_have_the_last_applied_zxid(address: &str) {
    let (mut client, mut other) = (Client::connect(address), Client::connect(address));
    let (_, first) = made(&mut client, &create("/r"));
    for reader in [&mut client, &mut other] {
        for read in [get_data("/r"), exists("/nothing"), Req::Ping, get_children("/r"), sync("/")] {
            assert_eq!(reader.call(&read).zxid, first, "{read:?}");
        }
    }
    let second = zxid(&mut other, &set_data("/r", b""));
    assert_eq!(second, first + 1);
    assert_eq!(client.call(&exists("/nothing")).zxid, second);
}

fn pipelined_answers_have_zxids_of_their_own(address: &str) {
    let mut client = Client::connect(address);
    let (_, first) = made(&mut client, &create("/p"));
    let mut requests = Vec::new();
    let mut expected = Vec::new();
    for round in 0..100 {
        let path = format!("/p/{round}");
        requests.extend([
            create(&path),
            exists("/p"),
            create(&path),
            set_data(&path, b"x"),
            get_data(&path),
        ]);
        let zxid = first + 3 * round;
        expected.extend([
            (zxid + 1, 0),
            (zxid + 1, 0),
            (zxid + 2, NODE_EXISTS),
            (zxid + 3, 0),
            (zxid + 3, 0),
        ]);
    }
    client.send(&requests);
    for (request, (zxid, err)) in requests.iter().zip(expected) {
        let reply = client.reply().unwrap();
        assert_eq!((reply.zxid, reply.err), (zxid, err), "{request:?}");
        match (request, reply) {
            (Req::Exists { .. }, Reply { body: Body::Stat(stat), .. }) => {
                assert_eq!(stat.pzxid, zxid)
            }
            (Req::GetData { .. }, Reply { body: Body::Data(_, stat), .. }) => {
                assert_eq!(stat.mzxid, zxid)
            }
            _ => {}
        }
    }
}

fn sessions_take_zxids(address: &str) {
    let mut client = Client::connect(address);
    let zxid = |client: &mut Client| client.good(&Req::Ping).zxid;
    let first = zxid(&mut client);
    let other = Client::connect(address);
    assert_eq!(zxid(&mut client), first + 1);
    // Moving a session takes no zxid, and neither do refusals.
    let mut moved = Hello::again(&other).say(address).unwrap();
    Hello { id: 7, ..Hello::new() }.say(address).unwrap();
    assert!(Hello { seen: i64::MAX, ..Hello::new() }.say(address).is_none());
    assert_eq!(zxid(&mut client), first + 1);
    assert_eq!(moved.close().zxid, first + 2);
    assert_eq!(zxid(&mut client), first + 2);
}

fn stats_of_a_fresh_server(address: &str) {
    let mut client = Client::connect(address);
    // The begin of the session was the first transaction.
    assert_eq!(client.good(&Req::Ping).zxid, 1);
    for (path, children) in [("/", 1), ("/zookeeper", 2), ("/zookeeper/quota", 0)] {
        let cversion = if path == "/" { -1 } else { -children };
        let expected = Stat { num_children: children, cversion, ..new_stat(0, 0) };
        assert_eq!(stat(&mut client, path), expected, "{path}");
    }
    let config = Stat { aversion: -1, ..new_stat(0, 0) };
    assert_eq!(stat(&mut client, "/zookeeper/config"), config);
    let Body::Acl(list, _) = client.body(&get_acl("/zookeeper/config")) else { panic!() };
    assert_eq!(list, [acl(1, "world", "anyone")]);
    for path in ["/", "/zookeeper", "/zookeeper/quota"] {
        let Body::Acl(list, _) = client.body(&get_acl(path)) else { panic!() };
        assert_eq!(list, open(), "{path}");
        let Body::Data(data, _) = client.body(&get_data(path)) else { panic!() };
        assert_eq!(data, Some(vec![]), "{path}");
    }
    assert_eq!(client.body(&Req::GetAllChildrenNumber { path: "/".into() }), Body::Number(3));
    assert_eq!(
        client.body(&Req::GetAllChildrenNumber { path: "/zookeeper".into() }),
        Body::Number(2)
    );
    // Changes of the root itself.
    let (_, a) = made(&mut client, &create("/a"));
    assert_eq!(a, 2);
    let root = stat(&mut client, "/");
    assert_eq!(root, Stat { num_children: 2, cversion: 0, pzxid: a, ..new_stat(0, 0) });
    let set = zxid(&mut client, &set_data("/", b"root"));
    let root = Stat { version: 1, mzxid: set, data_length: 4, ..root };
    let Body::Data(data, _) = client.body(&get_data("/")) else { panic!() };
    assert_eq!(data, Some(b"root".to_vec()));
    let Body::Stat(now) = client.body(&exists("/")) else { panic!() };
    assert_eq!(Stat { mtime: 0, ..now }, root);
    assert_eq!(made(&mut client, &sequential("/n-")).0, "/n-0000000001");
}
