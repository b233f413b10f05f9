//! Permissions: the credentials of connections, the ACLs of nodes, and the permission that each
//! operation needs.
use super::{
    answers::{Body, Heard},
    checks::*,
    client::{Client, Hello},
    requests::*,
};
use zk_test_support::{Server, Shared, raw::Acl, scenarios};

scenarios![
    each_operation_needs_its_permission,
    credentials_are_added_and_listed,
    credentials_of_an_unknown_scheme_close_the_connection,
    the_scheme_auth_stands_for_all_credentials,
    lists_are_set_and_read_with_their_version,
    digests_are_masked_for_clients_that_may_not_set_the_list,
    addresses_are_matched_by_their_first_bits,
    duplicates_in_a_list_are_dropped,
    a_multi_needs_each_permission,
    the_superuser_may_do_everything,
];

const READ: i32 = 1;
const WRITE: i32 = 2;
const CREATE: i32 = 4;
const DELETE: i32 = 8;
const ADMIN: i32 = 16;

fn alice(perms: i32) -> Acl {
    acl(perms, "digest", ALICE)
}

fn world(perms: i32) -> Acl {
    acl(perms, "world", "anyone")
}

fn each_operation_needs_its_permission() {
    let address = Shared::chroot();
    let (mut client, mut owner) = (Client::connect(&address), Client::connect(&address));
    owner.good(&auth("digest", "alice:wonder"));
    owner.good(&create("/n").acl(&[alice(31), world(31)]));
    make(&mut owner, &["/n/child", "/n/gone"]);
    let all = Req::GetAllChildrenNumber { path: "/n".into() };
    // The operations, and which permissions are enough, of the node or, for creates and deletes, of
    // its parent.
    let exists_needs = if is_39() { READ } else { 31 };
    let mut operations = vec![
        (exists("/n"), exists_needs),
        (get_data("/n"), READ),
        (get_children("/n"), READ),
        (get_children2("/n"), READ),
        (all, READ),
        (get_acl("/n"), READ | ADMIN),
        (set_data_version("/n", b"", 99), WRITE),
        (create("/n/child"), CREATE),
        (create2("/n/child").flags(mode::EPHEMERAL), CREATE),
        (delete_version("/n/gone", 99), DELETE),
        (set_acl_version("/n", &open(), 99), ADMIN),
    ];
    if !is_39() {
        operations.push((check("/n", 99), READ));
    }
    for perms in [0, READ, WRITE, CREATE, DELETE, ADMIN, !READ, !WRITE, !CREATE, !DELETE, !ADMIN] {
        owner.good(&set_acl("/n", &[alice(31), world(perms & 31)]));
        for (operation, enough) in &operations {
            let code = client.code(operation);
            let free = perms & 31 & enough != 0 || *enough == 31;
            assert_eq!(code != NO_AUTH, free, "{operation:?} with permissions {perms:#b}: {code}");
            assert_ne!(owner.code(operation), NO_AUTH, "{operation:?}");
        }
    }
    // A list without permission for anybody. In 3.8 exists needs none.
    let exists_code = if is_39() { NO_AUTH } else { 0 };
    owner.good(&set_acl("/n", &[world(0)]));
    codes(
        &mut owner,
        &[
            (get_data("/n"), NO_AUTH),
            (set_acl("/n", &open()), NO_AUTH),
            (exists("/n"), exists_code),
        ],
    );
    // For a delete the parent's ACL counts, not the node's.
    codes(&mut client, &[(delete("/n/child"), NO_AUTH), (create("/n/x"), NO_AUTH)]);
    client.good(&create("/mine").acl(&[acl(31, "digest", BOB)]));
    codes(&mut client, &[(get_data("/mine"), NO_AUTH), (delete("/mine"), 0)]);
}

fn credentials_are_added_and_listed() {
    let mut client = Client::connect(&Shared::chroot());
    let ip = ("ip".to_owned(), client.local_ip());
    let user = |name: &str| ("digest".to_owned(), name.to_owned());
    assert_eq!(client.body(&Req::WhoAmI), Body::Who(vec![ip.clone()]));
    let reply = client.good(&auth("digest", "alice:wonder"));
    assert_eq!((reply.xid, reply.zxid, reply.body), (-4, 0, Body::Empty));
    assert_eq!(client.body(&Req::WhoAmI), Body::Who(vec![user("alice"), ip.clone()]));
    // The same credentials again change nothing. A wrong password makes other credentials.
    client.good(&auth("digest", "alice:wonder"));
    client.good(&auth("ip", "anything"));
    client.good(&auth("digest", "alice:wrong"));
    client.good(&auth("digest", "no-colon"));
    client.good(&auth("digest", ""));
    let who = vec![user(""), user("alice"), user("alice"), user("no-colon"), ip];
    assert_eq!(client.body(&Req::WhoAmI), Body::Who(who));
}

fn credentials_of_an_unknown_scheme_close_the_connection() {
    let address = Shared::chroot();
    for scheme in ["", "world", "auth", "super", "sasl", "x509", "Digest"] {
        let mut client = Client::connect(&address);
        client.good(&ephemeral("/e"));
        let reply = client.call(&auth(scheme, "alice:wonder"));
        assert_eq!((reply.xid, reply.zxid, reply.err), (-4, 0, AUTH_FAILED), "{scheme}");
        assert_eq!(client.next(), Heard::Closed);
        // The session still lives.
        let mut again = Hello::again(&client).say(&address).unwrap();
        assert_eq!(stat(&mut again, "/e").ephemeral_owner, client.id());
        again.close();
    }
}

fn the_scheme_auth_stands_for_all_credentials() {
    let mut client = Client::connect(&Shared::chroot());
    let list = |client: &mut Client, path: &str| match client.body(&get_acl(path)) {
        Body::Acl(list, _) => list,
        other => panic!("{other:?}"),
    };
    assert_eq!(client.code(&create("/a").acl(&[acl(31, "auth", "")])), INVALID_ACL);
    client.good(&auth("digest", "alice:wonder"));
    client.good(&create("/a").acl(&[acl(31, "auth", "ignored")]));
    assert_eq!(list(&mut client, "/a"), [alice(31)]);
    client.good(&auth("digest", "bob:builder"));
    client.good(&set_acl("/a", &[acl(17, "auth", ""), world(1), acl(3, "auth", "")]));
    let mut found = list(&mut client, "/a");
    let bob = |perms| acl(perms, "digest", BOB);
    let key = |acl: &Acl| (acl.perms, acl.scheme.clone(), acl.id.clone());
    let mut expected = vec![alice(17), bob(17), world(1), alice(3), bob(3)];
    found.sort_by_key(key);
    expected.sort_by_key(key);
    assert_eq!(found, expected);
    // Two entries stay two, although they stand for the same credentials.
    client.good(&create("/b").acl(&[acl(31, "auth", "x"), acl(31, "auth", "y")]));
    assert_eq!(list(&mut client, "/b").len(), 4);
}

fn lists_are_set_and_read_with_their_version() {
    let mut client = Client::connect(&Shared::chroot());
    let (_, made) = made(&mut client, &create("/a").data(b"1"));
    client.good(&auth("digest", "alice:wonder"));
    let expected =
        |version| Body::Stat(zk_test_support::raw::Stat { aversion: version, ..new_stat(made, 1) });
    let mut set = |version, list: &[Acl]| match client.call(&set_acl_version("/a", list, version)) {
        reply if reply.err != 0 => Err(reply.err),
        reply => match reply.body {
            Body::Stat(stat) => Ok(Body::Stat(timeless(stat))),
            other => panic!("{other:?}"),
        },
    };
    assert_eq!(set(1, &open()), Err(BAD_VERSION));
    assert_eq!(set(0, &open()), Ok(expected(1)));
    assert_eq!(set(-1, &[alice(31), world(1)]), Ok(expected(2)));
    assert_eq!(set(0, &open()), Err(BAD_VERSION));
    assert_eq!(set(2, &[world(1), alice(31), acl(4, "ip", "10.0.0.0/8")]), Ok(expected(3)));
    let Body::Acl(list, stat) = client.body(&get_acl("/a")) else { panic!() };
    assert_eq!(list, [world(1), alice(31), acl(4, "ip", "10.0.0.0/8")]);
    assert_eq!(Body::Stat(timeless(stat)), expected(3));
    // Bits without a meaning are kept.
    client.good(&set_acl("/a", &[world(-1)]));
    let Body::Acl(list, _) = client.body(&get_acl("/a")) else { panic!() };
    assert_eq!(list, [world(-1)]);
}

fn digests_are_masked_for_clients_that_may_not_set_the_list() {
    let address = Shared::chroot();
    let mut client = Client::connect(&address);
    let lists = |client: &mut Client, list: &[Acl]| {
        let path = format!("/{}", names(client, "/").len());
        client.good(&create(&path).acl(list));
        match client.call(&get_acl(&path)) {
            reply if reply.err != 0 => Err(reply.err),
            reply => match reply.body {
                Body::Acl(list, _) => Ok(list),
                other => panic!("{other:?}"),
            },
        }
    };
    let odd = acl(1, "digest", "x:y=/+");
    let masked = vec![acl(31, "digest", "alice:x"), acl(1, "digest", "x:x"), world(READ)];
    assert_eq!(lists(&mut client, &[alice(31), odd.clone(), world(READ)]), Ok(masked));
    let whole = vec![alice(31), world(ADMIN)];
    assert_eq!(lists(&mut client, &whole), Ok(whole.clone()));
    assert_eq!(lists(&mut client, &[alice(31), world(WRITE | CREATE | DELETE)]), Err(NO_AUTH));
    client.good(&auth("digest", "alice:wonder"));
    let whole = vec![alice(ADMIN), odd, world(READ)];
    assert_eq!(lists(&mut client, &whole), Ok(whole.clone()));
}

fn addresses_are_matched_by_their_first_bits() {
    let mut client = Client::connect(&Shared::chroot());
    let me = client.local_ip();
    let [a, b, c, d] = me.split('.').map(|byte| byte.parse().unwrap()).collect::<Vec<u8>>()[..]
    else {
        panic!("{me} is no IPv4 address")
    };
    for (number, (range, mine)) in [
        (me.clone(), true),
        (format!("{me}/32"), true),
        (format!("{a}.{b}.{c}.{}", d ^ 1), false),
        (format!("{a}.{b}.{c}.{}/31", d ^ 1), true),
        (format!("{a}.{b}.{c}.{}/31", d ^ 2), false),
        (format!("{a}.{b}.{}.{d}/24", c ^ 1), false),
        (format!("{a}.{b}.{}.{d}/16", c ^ 1), true),
        (format!("{a}.{b}.{c}.{}/24", d ^ 255), true),
        (format!("{}.{b}.{c}.{d}/7", a ^ 1), true),
        (format!("{}.0.0.0/8", a ^ 1), false),
        ("0.0.0.0/0".to_owned(), true),
        ("255.255.255.255/0".to_owned(), true),
        (format!("{me}/0"), true),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/{number}");
        client.good(&create(&path).acl(&[acl(READ, "ip", &range)]));
        assert_eq!(
            client.code(&get_data(&path)),
            if mine { 0 } else { NO_AUTH },
            "{range} of {me}"
        );
    }
}

fn duplicates_in_a_list_are_dropped() {
    let mut client = Client::connect(&Shared::chroot());
    let list = [world(1), world(2), world(1), alice(1), world(2), alice(1)];
    client.good(&create("/a").acl(&list));
    client.good(&create("/b"));
    client.good(&set_acl("/b", &list));
    client.good(&auth("digest", "alice:wonder"));
    for path in ["/a", "/b"] {
        let Body::Acl(list, _) = client.body(&get_acl(path)) else { panic!() };
        assert_eq!(list, [world(1), world(2), acl(1, "digest", "alice:x")]);
    }
}

fn a_multi_needs_each_permission() {
    use super::answers::Outcome::*;
    let mut client = Client::connect(&Shared::chroot());
    client.good(&create("/locked").acl(&[world(READ)]));
    client.good(&create("/open"));
    for refused in
        [create("/locked/a"), delete("/locked/a"), set_data("/locked", b""), create2("/locked/a")]
    {
        let parts = vec![create("/open/a"), refused, create("/open/b")];
        let Body::Results(results) = client.body(&Req::Multi(parts)) else { panic!() };
        assert_eq!(results, [Error(0), Error(NO_AUTH), Error(RUNTIME_INCONSISTENCY)]);
    }
    assert_eq!(names(&mut client, "/open"), [""; 0]);
    let granted = Req::Multi(vec![check("/locked", 0), create("/open/a")]);
    assert_eq!(client.body(&granted), Body::Results(vec![Check, Create("/open/a".into())]));
}

fn the_superuser_may_do_everything() {
    // The example of ZooKeeper's documentation: the password is "test".
    let server = Server::builder().super_digest("super:D/InIHSb7yEEbrWz8b9l71RjZJU=").start();
    let address = server.connect_string();
    let (mut owner, mut client) = (Client::connect(&address), Client::connect(&address));
    owner.good(&auth("digest", "alice:wonder"));
    owner.good(&create("/n").acl(&[alice(READ)]));
    client.good(&auth("digest", "super:wrong"));
    assert_eq!(client.code(&get_data("/n")), NO_AUTH);
    client.good(&auth("digest", "super:test"));
    let ip = ("ip".to_owned(), client.local_ip());
    let user = |scheme: &str, name: &str| (scheme.to_owned(), name.to_owned());
    let who = vec![user("digest", "super"), user("digest", "super"), ip, user("super", "")];
    assert_eq!(client.body(&Req::WhoAmI), Body::Who(who));
    client.good(&set_data("/n", b"1"));
    client.good(&create("/n/child"));
    let Body::Acl(list, _) = client.body(&get_acl("/n")) else { panic!() };
    assert_eq!(list, [alice(READ)], "the digest is not masked");
    client.good(&set_acl("/n", &[world(READ)]));
    assert_eq!(client.code(&create("/a").acl(&[acl(31, "super", "")])), INVALID_ACL);
    client.good(&delete("/n/child"));
    // The scheme `auth` stands only for the digests.
    client.good(&create("/mine").acl(&[acl(31, "auth", "")]));
    let Body::Acl(list, _) = client.body(&get_acl("/mine")) else { panic!() };
    assert!(list.iter().all(|entry| entry.scheme == "digest"), "{list:?}");
}
