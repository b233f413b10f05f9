//! Several writes at once.

use crate::support::{Acl, CreateMode, Error, Requests, make, requests, scenarios};
use zk_session::{Op, OpOutcome};

const OPEN: &Acl = &Acl::Open;

fn create(path: &str, mode: CreateMode) -> Op<'_> {
    Op::Create { path, data: b"new", mode, acl: OPEN }
}

/// The names of all nodes, with the data of each.
fn all(zk: &Requests) -> Vec<(String, Vec<u8>)> {
    let mut names = zk.children("/").unwrap();
    names.sort();
    let data = |name: &String| zk.get(&format!("/{name}")).unwrap().data;
    names.iter().map(|name| (name.clone(), data(name))).collect()
}

fn all_operations_are_done_and_each_says_what_it_did() {
    let zk = requests();
    let (old, gone) = (make(&zk, "/old", b"old"), make(&zk, "/gone", b""));
    let done = zk
        .multi(&[
            Op::Check { path: "/old", version: Some(old.version) },
            Op::Check { path: "/gone", version: None },
            Op::Delete { path: "/gone", version: Some(gone.version) },
            Op::Set { path: "/old", data: b"changed", version: Some(old.version) },
            create("/stays", CreateMode::Persistent),
            create("/number-", CreateMode::EphemeralSequential),
            create("/folder", CreateMode::Container),
            create("/folder/child", CreateMode::Persistent),
            Op::Set { path: "/stays", data: b"again", version: Some(0) },
        ])
        .unwrap();
    assert_eq!(done.len(), 9);
    assert_eq!(done[..3], [OpOutcome::Checked, OpOutcome::Checked, OpOutcome::Deleted]);
    assert_eq!(done[3], OpOutcome::Set(zk.exists("/old").unwrap().unwrap()));
    assert_eq!(done[8], OpOutcome::Set(zk.exists("/stays").unwrap().unwrap()));
    for (at, wanted) in
        [(4, "/stays"), (5, "/number-0000000003"), (6, "/folder"), (7, "/folder/child")]
    {
        let OpOutcome::Created { path, stat } = &done[at] else { panic!("{:?}", done[at]) };
        assert_eq!(path, wanted);
        // Where the server says what the node is, it says so of this node.
        let now = zk.exists(path).unwrap().unwrap();
        assert!(stat.is_none_or(|stat| stat.czxid == now.czxid), "{stat:?} {now:?}");
    }
    let wanted =
        [("folder", "new"), ("number-0000000003", "new"), ("old", "changed"), ("stays", "again")];
    assert_eq!(all(&zk), wanted.map(|(name, data)| (name.to_owned(), data.as_bytes().to_vec())));
    assert_eq!(zk.multi(&[]).unwrap(), []);
}

fn a_refused_operation_is_named_and_none_is_done() {
    let zk = requests();
    for path in ["/old", "/parent", "/parent/child"] {
        make(&zk, path, b"old");
    }
    zk.create("/goes", b"", CreateMode::Ephemeral, OPEN).unwrap();
    let before = all(&zk);
    let path = |path: &str| path.to_owned();
    let old = Op::Set { path: "/old", data: b"new", version: None };
    let new = create("/new", CreateMode::Persistent);
    for (refused, why) in [
        (
            Op::Check { path: "/old", version: Some(7) },
            Error::BadVersion { op: "check", path: path("/old") },
        ),
        (
            Op::Check { path: "/no", version: None },
            Error::NoNode { op: "check", path: path("/no") },
        ),
        (
            Op::Delete { path: "/parent", version: None },
            Error::NotEmpty { op: "delete", path: path("/parent") },
        ),
        (
            Op::Set { path: "/no", data: b"", version: None },
            Error::NoNode { op: "write", path: path("/no") },
        ),
        (
            create("/parent", CreateMode::Persistent),
            Error::NodeExists { op: "create", path: path("/parent") },
        ),
        (
            create("/goes/child", CreateMode::Persistent),
            Error::NoChildrenForEphemerals { op: "create", path: path("/goes/child") },
        ),
        (new, Error::NodeExists { op: "create", path: path("/new") }),
    ] {
        let wanted = |index| Error::MultiRefused { index, why: Box::new(why.clone()) };
        if !matches!(refused, Op::Create { path: "/new", .. }) {
            assert_eq!(zk.multi(&[refused, old, new]).unwrap_err(), wanted(0));
            assert_eq!(zk.multi(&[old, refused, new]).unwrap_err(), wanted(1));
        }
        let e = zk.multi(&[old, new, refused, refused]).unwrap_err();
        assert_eq!(e, wanted(2));
        assert!(e.to_string().contains(&why.to_string()) && !e.is_transient(), "{e}");
    }
    assert_eq!(all(&zk), before);
}

fn a_bad_path_in_a_multi_is_refused_before_anything_is_sent() {
    let zk = requests();
    let refused =
        zk.multi(&[create("/a", CreateMode::Persistent), create("b", CreateMode::Persistent)]);
    assert!(matches!(refused, Err(Error::InvalidPath { path, .. }) if path == "b"));
    assert_eq!(all(&zk), []);
}

scenarios![
    all_operations_are_done_and_each_says_what_it_did,
    a_refused_operation_is_named_and_none_is_done,
    a_bad_path_in_a_multi_is_refused_before_anything_is_sent,
];
