//! ACLs with entries of one's own: the entries at the server, the clients that they let in, and the
//! entries that are refused.
use crate::support::{
    Raw, Shared, raw, scenarios,
    scene::{SOON, full_path, queue, session, until_empty},
};
use zk_mutex::{
    Acl, AclEntry, Config, Error, OptionalExt, Permissions, ZkElection, ZkExclusiveLock, ZkMutex,
    ZkRwLock, ZkSemaphore, ZkSemaphoreMutex, ZkSession,
};

const LOCK: &str = "/locks/orders";

fn with_auth(at: &str, credentials: &str) -> ZkSession {
    ZkSession::connect(Config::new(at).auth("digest", credentials).connect_timeout(SOON)).unwrap()
}

/// The session's own identities have all rights, and everybody else has these.
fn ours_and(everybody: Permissions) -> Acl {
    Acl::Custom(vec![
        AclEntry { permissions: Permissions::ALL, scheme: "auth".into(), id: "".into() },
        AclEntry { permissions: everybody, scheme: "world".into(), id: "anyone".into() },
    ])
}

/// The full paths of this node and of all nodes below it.
fn tree(raw: &mut Raw, path: &str) -> Vec<String> {
    let names = raw.children(path).unwrap();
    let below = names.iter().flat_map(|name| tree(raw, &format!("{path}/{name}")));
    let below: Vec<String> = below.collect();
    [vec![path.to_owned()], below].concat()
}

fn entries_are_on_the_nodes_and_parents_of_every_recipe() {
    let at = Shared::chroot();
    let ours = with_auth(&at, "service:secret");
    let acl = || ours_and(Permissions::READ | Permissions::WRITE);
    let mutex = ZkMutex::builder(&ours, "/l/mutex").acl(acl()).build().unwrap();
    let rwlock = ZkRwLock::builder(&ours, "/l/rwlock").acl(acl()).build().unwrap();
    let exclusive = ZkExclusiveLock::builder(&ours, "/l/exclusive").acl(acl()).build().unwrap();
    let semaphore = ZkSemaphore::builder(&ours, "/l/semaphore", 3).acl(acl()).build().unwrap();
    let one = ZkSemaphoreMutex::builder(&ours, "/l/one").acl(acl()).build().unwrap();
    let election = ZkElection::builder(&ours, "/l/election").acl(acl()).build().unwrap();
    let guards = (
        mutex.lock().unwrap(),
        rwlock.read().unwrap(),
        exclusive.lock().unwrap(),
        semaphore.acquire().unwrap(),
        one.lock().unwrap(),
        election.join().unwrap(),
    );
    guards.5.wait_leader().unwrap();
    let mut friend = Raw::connect(&at).unwrap();
    friend.add_auth("service:secret").unwrap();
    let all = tree(&mut friend, &full_path(&at, "/l"));
    // The folder, six paths, two folders of each semaphore, and one node of each hold.
    assert_eq!(all.len(), 1 + 6 + 2 * 2 + 6, "{all:?}");
    for path in all {
        let acl = friend.get_acl(&path).unwrap();
        assert_eq!((acl.len(), acl[0].perms, acl[0].scheme.as_str()), (2, 31, "digest"), "{path}");
        assert!(acl[0].id.starts_with("service:"), "{path}");
        assert_eq!(
            (acl[1].perms, acl[1].scheme.as_str(), acl[1].id.as_str()),
            (3, "world", "anyone")
        );
    }
}

fn clients_without_an_entry_may_read_and_not_lock() {
    let at = Shared::chroot();
    let (ours, theirs) = (with_auth(&at, "service:secret"), session(&at));
    let mutex = ZkMutex::builder(&ours, LOCK).acl(ours_and(Permissions::READ)).build().unwrap();
    let guard = mutex.lock().unwrap();
    let shut_out = ZkMutex::new(&theirs, LOCK).unwrap();
    assert_eq!(shut_out.contenders().unwrap().len(), 1);
    assert!(shut_out.try_lock().optional().unwrap().is_none(), "it may read that the lock is held");
    assert!(matches!(shut_out.lock().map(drop), Err(Error::NoAuth { .. })));
    let colleague = with_auth(&at, "service:secret");
    let other =
        ZkMutex::builder(&colleague, LOCK).acl(ours_and(Permissions::READ)).build().unwrap();
    assert!(other.try_lock().optional().unwrap().is_none());
    guard.unlock().unwrap();
    other.lock().unwrap().unlock().unwrap();
    assert!(matches!(shut_out.try_lock().optional().map(drop), Err(Error::NoAuth { .. })));
    until_empty(&at, LOCK);
}

fn one_path_with_other_entries_is_refused() {
    let at = Shared::chroot();
    let ours = with_auth(&at, "service:secret");
    let build = |acl| ZkMutex::builder(&ours, LOCK).acl(acl).build();
    let mutex = build(ours_and(Permissions::READ)).unwrap();
    build(ours_and(Permissions::READ)).unwrap();
    for other in [ours_and(Permissions::ALL), Acl::CreatorAll, Acl::Custom(vec![])] {
        match build(other) {
            Err(Error::InvalidConfig { reason, .. }) => {
                assert!(reason.contains(LOCK) && reason.contains("acl(Custom"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }
    mutex.lock().unwrap().unlock().unwrap();
}

fn entries_that_the_server_refuses_are_an_error_with_advice() {
    let at = Shared::chroot();
    let ours = session(&at); // without credentials
    let one = |scheme: &str, id: &str| {
        Acl::Custom(vec![AclEntry {
            permissions: Permissions::ALL,
            scheme: scheme.into(),
            id: id.into(),
        }])
    };
    let wrong = [Acl::Custom(vec![]), one("nonsense", "me"), one("auth", ""), one("ip", "nowhere")];
    for (i, acl) in wrong.into_iter().enumerate() {
        let path = format!("/safe/lock-{i}");
        let mutex = ZkMutex::builder(&ours, &path).acl(acl.clone()).build().unwrap();
        let permit = ZkSemaphore::builder(&ours, format!("{path}-permits"), 2).acl(acl.clone());
        let exclusive =
            ZkExclusiveLock::builder(&ours, format!("{path}-x")).acl(acl).build().unwrap();
        for refused in [
            mutex.lock().map(drop),
            mutex.try_lock().optional().map(drop),
            exclusive.lock().map(drop),
            permit.build().and_then(|permits| permits.acquire().map(drop)),
        ] {
            let error = refused.unwrap_err();
            assert!(matches!(error, Error::Server { .. }), "{error:?}");
            let said = error.to_string();
            assert!(
                said.contains(&path)
                    && said.contains("InvalidACL")
                    && said.contains("check auth()"),
                "{said}"
            );
        }
    }
    let mut raw = Raw::connect(&at).unwrap();
    let made = raw.children(&full_path(&at, "/safe"));
    assert_eq!(made.map_err(|e| e.code()), Err(Some(raw::NO_NODE)));
    ZkMutex::new(&ours, LOCK).unwrap().lock().unwrap().unlock().unwrap();
    assert_eq!(queue(&at, LOCK), [""; 0]);
}

/// A request that is too long would cost the session its connection.
fn too_many_entries_are_refused_before_anything_is_sent() {
    let at = Shared::chroot();
    let ours = session(&at);
    let of = |count: usize| {
        let entry = |i: usize| AclEntry {
            permissions: Permissions::ALL,
            scheme: "ip".into(),
            id: format!("10.0.{}.{}", i / 250, i % 250),
        };
        Acl::Custom(
            (0..count)
                .map(entry)
                .chain([AclEntry {
                    permissions: Permissions::ALL,
                    scheme: "world".into(),
                    id: "anyone".into(),
                }])
                .collect(),
        )
    };
    match ZkMutex::builder(&ours, LOCK).acl(of(200)).build() {
        Err(Error::InvalidConfig { what, reason }) => {
            assert!(what == "acl" && reason.contains("3072"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    let deep = format!("/{}/lock", "x".repeat(3900));
    let data = vec![7; (1 << 20) - (8 << 10)];
    let mutex = ZkMutex::builder(&ours, &deep).acl(of(130)).data(data).build().unwrap();
    mutex.lock().unwrap().unlock().unwrap();
}

/// The password of a session as ZooKeeper's servers compute it (`ZooKeeperServer.generatePasswd`):
/// 16 bytes of `java.util.Random`, whose seed is the id with a constant.
fn password_of(id: i64) -> Vec<u8> {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const STATE: u64 = (1 << 48) - 1;
    let mut state = (id as u64 ^ 0xB341_5C00 ^ MULTIPLIER) & STATE;
    let words = std::iter::repeat_with(|| {
        state = (state.wrapping_mul(MULTIPLIER) + 0xB) & STATE;
        ((state >> 16) as u32).to_le_bytes()
    });
    words.take(4).flatten().collect()
}

/// What SECURITY.md warns of: no ACL keeps a stranger from that who knows the session's id.
fn a_stranger_who_knows_a_sessions_id_can_close_it() {
    let at = Shared::chroot();
    let session = with_auth(&at, "service:secret");
    let mutex = ZkMutex::builder(&session, LOCK).acl(Acl::CreatorAll).build().unwrap();
    let guard = mutex.lock().unwrap();
    let id = session.status().session_id.unwrap();
    raw::expire(&at, id, &password_of(id)).unwrap();
    assert!(guard.lost().wait(SOON).is_some(), "the holder is told");
}

scenarios![
    entries_are_on_the_nodes_and_parents_of_every_recipe,
    clients_without_an_entry_may_read_and_not_lock,
    one_path_with_other_entries_is_refused,
    entries_that_the_server_refuses_are_an_error_with_advice,
    too_many_entries_are_refused_before_anything_is_sent,
    // The embedded server's passwords are its own.
    a_stranger_who_knows_a_sessions_id_can_close_it on real,
];
