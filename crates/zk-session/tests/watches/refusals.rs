//! Nodes that the session may not read, and paths that no node can have.
use crate::scene::{NODE, SOON, Scene, told};
use zk_session::WatchEvent::{ChildrenChanged, Refused};
use zk_session::{Acl, AclEntry, Error, Permissions, Watched};
use zk_test_support::OpKind;

zk_test_support::scenarios![
    a_node_that_may_not_be_read_cannot_be_watched,
    a_refusal_is_told_once_and_changes_are_told_when_it_is_over,
    a_change_that_an_acl_has_hidden_is_told_on_the_next_connection,
    a_path_that_no_node_can_have_is_refused_without_a_request,
    a_node_that_may_not_be_made_is_not_held,
];

/// All permissions but that to read.
const NO_READ: i32 = 2 | 4 | 8 | 16;
const ALL: i32 = 31;

fn no_auth(op: &'static str, path: &str, permission: &'static str) -> Error {
    Error::NoAuth { op, path: path.to_owned(), permission }
}

fn a_node_that_may_not_be_read_cannot_be_watched() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    scene.them.set_acl(NODE, NO_READ).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Children).map(drop);
    assert_eq!(watch, Err(no_auth("watch", NODE, "READ")));
}

fn a_refusal_is_told_once_and_changes_are_told_when_it_is_over() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Children).unwrap();
    scene.them.set_acl(NODE, NO_READ).unwrap();
    scene.proxy.cut();
    assert_eq!(told(&watch), Refused(no_auth("watch", NODE, "READ")));
    // It reads again on the next connection, and is refused again.
    let again = scene.proxy.on_reply(OpKind::GetChildren.on(NODE), SOON);
    scene.proxy.cut();
    again.wait();
    assert_eq!(scene.proxy.count(OpKind::GetChildren.on(NODE)), 3, "it does not spin");
    scene.them.create(&format!("{NODE}/child"), b"", 0).unwrap();
    scene.them.set_acl(NODE, ALL).unwrap();
    assert_eq!(told(&watch), ChildrenChanged); // a session timeout later
    scene.them.delete(&format!("{NODE}/child")).unwrap();
    assert_eq!(told(&watch), ChildrenChanged);
}

/// The server sends no event to a client that may not read the node, and uses up the watch. `Watch`
/// says so.
fn a_change_that_an_acl_has_hidden_is_told_on_the_next_connection() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Children).unwrap();
    scene.them.set_acl(NODE, NO_READ).unwrap();
    scene.them.create(&format!("{NODE}/child"), b"", 0).unwrap();
    scene.them.set_acl(NODE, ALL).unwrap();
    scene.proxy.cut();
    assert_eq!(told(&watch), ChildrenChanged);
    scene.them.delete(&format!("{NODE}/child")).unwrap();
    assert_eq!(told(&watch), ChildrenChanged);
}

fn a_path_that_no_node_can_have_is_refused_without_a_request() {
    let scene = Scene::new();
    let long = format!("/{}", "x".repeat(4096));
    for path in ["", "node", "/node/", "/a//b", "/a/../b", &long] {
        let watch = scene.session.requests().watch(path, Watched::Node).map(drop);
        assert!(
            matches!(&watch, Err(Error::InvalidPath { path: of, .. }) if of == path),
            "{watch:?}"
        );
    }
    for prefix in ["", "node-", "/a//b-", "/\0", &long] {
        let held = scene.session.requests().hold(prefix, b"", &Acl::Open).map(drop);
        assert!(
            matches!(&held, Err(Error::InvalidPath { path: of, .. }) if of == prefix),
            "{held:?}"
        );
    }
    assert_eq!(scene.proxy.count(OpKind::Exists) + scene.proxy.count(OpKind::Create), 0);
}

fn a_node_that_may_not_be_made_is_not_held() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    scene.them.set_acl(NODE, 1 | 16).unwrap(); // to read and to administer
    let prefix = format!("{NODE}/own-");
    let hold = |acl: &Acl| scene.session.requests().hold(&prefix, b"", acl).map(drop);
    assert_eq!(hold(&Acl::Open), Err(no_auth("hold", &prefix, "CREATE")));
    scene.them.set_acl(NODE, ALL).unwrap();
    let refused = hold(&Acl::Custom(Vec::new()));
    let is_invalid = |e: &Error| matches!(e, Error::Server { code, .. } if code == "InvalidACL");
    assert!(refused.as_ref().is_err_and(is_invalid), "{refused:?}");
    // With this ACL the owner itself may not read its node, so its end is not noticed by a watch.
    let own =
        AclEntry { permissions: Permissions::DELETE, scheme: "world".into(), id: "anyone".into() };
    assert_eq!(hold(&Acl::Custom(vec![own])), Ok(()));
}
