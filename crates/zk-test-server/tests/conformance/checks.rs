//! What scenarios have in common.
pub use super::servers::is_39;
use super::{
    answers::{Body, Event, Reply},
    client::Client,
    requests::{Req, exists},
};
use zk_test_support::raw::Stat;

pub const MARSHALLING: i32 = -5;
pub const UNIMPLEMENTED: i32 = -6;
pub const BAD_ARGUMENTS: i32 = -8;
pub const RUNTIME_INCONSISTENCY: i32 = -2;
pub const NO_NODE: i32 = -101;
pub const NO_AUTH: i32 = -102;
pub const BAD_VERSION: i32 = -103;
pub const NO_CHILDREN_FOR_EPHEMERALS: i32 = -108;
pub const NODE_EXISTS: i32 = -110;
pub const NOT_EMPTY: i32 = -111;
pub const INVALID_ACL: i32 = -114;
pub const AUTH_FAILED: i32 = -115;
pub const NO_WATCHER: i32 = -121;
pub const RECONFIG_DISABLED: i32 = -123;

/// `user:base64(sha1(user:password))` of `alice:wonder` and `bob:builder`.
pub const ALICE: &str = "alice:8y0lhh/7xkdEiwhX7vo9i+/Nmzc=";
pub const BOB: &str = "bob:4rsXV9JgUbFl9ZE40xENilxlRV8=";

/// Makes each request and compares all error codes with the expected ones.
#[track_caller]
pub fn codes(client: &mut Client, expected: &[(Req, i32)]) {
    let answers: Vec<i32> = expected.iter().map(|(request, _)| client.code(request)).collect();
    let wrong: Vec<String> = expected
        .iter()
        .zip(answers)
        .filter(|((_, expected), got)| expected != got)
        .map(|((request, expected), got)| format!("{request:?}\n    got {got}, not {expected}"))
        .collect();
    assert!(wrong.is_empty(), "{} answers differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// The same for single checks, which ZooKeeper 3.9 does not know.
#[track_caller]
pub fn check_codes(client: &mut Client, expected: &[(Req, i32)]) {
    if !is_39() {
        codes(client, expected);
    }
}

/// The `Stat` of a node that the transaction `zxid` has created, without its times.
pub fn new_stat(zxid: i64, data_length: i32) -> Stat {
    Stat {
        czxid: zxid,
        mzxid: zxid,
        ctime: 0,
        mtime: 0,
        version: 0,
        cversion: 0,
        aversion: 0,
        ephemeral_owner: 0,
        data_length,
        num_children: 0,
        pzxid: zxid,
    }
}

/// A `Stat` without its times. They are checked here instead, against the server's clock.
#[track_caller]
pub fn timeless(stat: Stat) -> Stat {
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    let (now, day) = (now.as_millis() as i64, 86_400_000);
    let known = if stat.czxid == 0 { 0..=0 } else { now - day..=now + 1000 };
    assert!(known.contains(&stat.ctime), "ctime of {stat:?}, now is {now}");
    assert!(
        stat.ctime <= stat.mtime && stat.mtime <= now + 1000,
        "mtime of {stat:?}, now is {now}"
    );
    assert!(stat.czxid != stat.mzxid || stat.ctime == stat.mtime, "times of {stat:?}");
    Stat { ctime: 0, mtime: 0, ..stat }
}

/// The `Stat` of a node that exists, without its times.
#[track_caller]
pub fn stat(client: &mut Client, path: &str) -> Stat {
    match client.body(&exists(path)) {
        Body::Stat(stat) => timeless(stat),
        other => panic!("{path}: {other:?}"),
    }
}

/// The path in a create's reply, and the zxid of the create.
#[track_caller]
pub fn made(client: &mut Client, create: &Req) -> (String, i64) {
    match client.good(create) {
        Reply { zxid, body: Body::Path(path) | Body::Created(path, _), .. } => (path, zxid),
        other => panic!("{create:?}: {other:?}"),
    }
}

/// The zxid of a write that must succeed.
#[track_caller]
pub fn zxid(client: &mut Client, write: &Req) -> i64 {
    client.good(write).zxid
}

/// Creates these nodes, empty, persistent and open to all.
#[track_caller]
pub fn make(client: &mut Client, paths: &[&str]) {
    for path in paths {
        client.good(&super::requests::create(path));
    }
}

/// Checks that these events have come, and no others.
#[track_caller]
pub fn heard(client: &mut Client, events: &[Event]) {
    assert_eq!(client.events(), events);
}

/// The children's names.
#[track_caller]
pub fn names(client: &mut Client, path: &str) -> Vec<String> {
    match client.body(&super::requests::get_children(path)) {
        Body::Names(names) => names,
        other => panic!("{path}: {other:?}"),
    }
}
