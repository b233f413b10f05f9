//! Ephemeral nodes under the lease.
use crate::scene::{SOON, Scene, told};
use std::time::{Duration, Instant};
use zk_session::{Acl, Error, LossReason, SessionEvent, WatchEvent, Watched};
use zk_test_support::{OpKind, Raw, until};

zk_test_support::scenarios![
    a_held_node_is_there_until_it_is_released,
    a_dropped_node_is_deleted_in_the_background,
    a_node_that_somebody_deletes_is_lost,
    a_node_is_lost_with_its_session,
    a_node_is_lost_when_the_session_is_closed_and_released_nodes_are_not,
    the_lease_ends_before_the_server_can_delete_the_node,
    a_node_is_held_through_a_short_outage,
    a_node_whose_create_was_not_answered_is_deleted_and_another_one_is_held,
    a_release_in_an_outage_says_so_and_the_node_goes_later,
    a_node_is_held_after_an_idle_hour on embedded,
    the_nodes_above_are_made,
    a_node_that_somebody_replaces_in_an_outage_is_lost_and_theirs_is_not_deleted,
    a_node_that_is_too_long_is_refused_and_costs_no_connection,
];

const PREFIX: &str = "/services/web-";

fn children(raw: &mut Raw) -> Vec<String> {
    raw.children("/services").unwrap_or_default()
}

fn until_only(raw: &mut Raw, names: &[&str]) {
    until("only these nodes are there", SOON, || (children(raw) == names).then_some(()));
}

fn a_held_node_is_there_until_it_is_released() {
    let mut scene = Scene::new();
    let held = scene.session.requests().hold(PREFIX, b"10.0.0.7", &Acl::Open).unwrap();
    let id = held.path().strip_prefix(PREFIX).unwrap();
    assert!(id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit()), "{id}");
    let (data, stat) = scene.them.get_data(held.path()).unwrap();
    assert_eq!(
        (data.as_slice(), Some(stat.ephemeral_owner)),
        (&b"10.0.0.7"[..], scene.session.status().session_id)
    );
    let (lost, left) = (held.lost(), held.remaining());
    assert!(held.is_held() && left > Duration::ZERO && left <= scene.session.status().timeout);
    held.release().unwrap();
    assert_eq!((children(&mut scene.them), lost.reason()), (vec![], None));
}

fn a_dropped_node_is_deleted_in_the_background() {
    let mut scene = Scene::new();
    let held = scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap();
    let watch = scene.session.requests().watch(held.path(), Watched::Node).unwrap();
    let lost = held.lost();
    scene.proxy.black_hole(true);
    let begun = Instant::now();
    drop(held);
    assert!(begun.elapsed() < scene.session.status().timeout / 6, "it waited for an answer");
    scene.proxy.black_hole(false);
    assert_eq!(told(&watch), WatchEvent::Deleted);
    assert_eq!((children(&mut scene.them), lost.reason()), (vec![], None));
}

fn a_node_that_somebody_deletes_is_lost() {
    let mut scene = Scene::new();
    let held = scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap();
    let lost = held.lost();
    scene.them.delete(held.path()).unwrap();
    assert_eq!(lost.wait(SOON), Some(LossReason::NodeDeleted));
    assert_eq!((held.is_held(), held.remaining()), (false, Duration::ZERO));
    // Somebody makes a node of this name: it is not ours.
    scene.them.create(held.path(), b"", 0).unwrap();
    assert!(!held.is_held());
    held.release().unwrap();
}

fn a_node_is_lost_with_its_session() {
    let mut scene = Scene::new();
    let held = scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap();
    scene.expire();
    let reason = held.lost().wait(SOON).expect("it is lost");
    // The event of the node may come before the news of the session.
    assert!(matches!(reason, LossReason::SessionExpired | LossReason::NodeDeleted), "{reason}");
    assert!(!held.is_held());
    let again = scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap();
    assert!(again.is_held() && again.path() != held.path());
    drop(held);
    let name = again.path().rsplit_once('/').unwrap().1;
    until_only(&mut scene.them, &[name]);
}

fn a_node_is_lost_when_the_session_is_closed_and_released_nodes_are_not() {
    let mut scene = Scene::new();
    let [held, released] =
        [(); 2].map(|()| scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap());
    let signals = [held.lost(), released.lost()];
    released.release().unwrap();
    scene.session.close().unwrap();
    assert!(!held.is_held());
    let reasons = signals.map(|lost| lost.reason());
    assert_eq!(reasons, [Some(LossReason::SessionClosed), None]);
    assert!(matches!(held.release(), Err(Error::Unavailable { op: "release", .. })));
    until_only(&mut scene.them, &[]);
}

/// The process that is cut off knows that it holds nothing, while the node is still there.
fn the_lease_ends_before_the_server_can_delete_the_node() {
    let mut scene = Scene::new();
    let held = scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap();
    let name = held.path().rsplit_once('/').unwrap().1;
    scene.proxy.black_hole(true);
    assert_eq!(held.lost().wait(SOON), Some(LossReason::LeaseExpired));
    assert!(!held.is_held());
    assert_eq!(children(&mut scene.them), [name]);
    until_only(&mut scene.them, &[]);
}

fn a_node_is_held_through_a_short_outage() {
    let mut scene = Scene::new();
    let held = scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap();
    for _ in 0..2 {
        scene.begin_outage();
        assert!(held.is_held());
        scene.end_outage();
    }
    // Its watch is set again on the new connection.
    scene.them.delete(held.path()).unwrap();
    assert_eq!(held.lost().wait(SOON), Some(LossReason::NodeDeleted));
}

fn a_node_whose_create_was_not_answered_is_deleted_and_another_one_is_held() {
    let mut scene = Scene::new();
    scene.them.create("/services", b"", 0).unwrap();
    scene.proxy.drop_reply(OpKind::Create.on(PREFIX));
    let held = scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap();
    assert_eq!((scene.proxy.plans(), scene.proxy.count(OpKind::Create.on(PREFIX))), (0, 2));
    let name = held.path().rsplit_once('/').unwrap().1;
    until_only(&mut scene.them, &[name]);
    assert!(held.is_held());
}

fn a_release_in_an_outage_says_so_and_the_node_goes_later() {
    let mut scene = Scene::new();
    let held = scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap();
    scene.begin_outage();
    let released = held.release();
    assert!(matches!(released, Err(Error::Unavailable { op: "release", .. })), "{released:?}");
    assert_eq!(children(&mut scene.them).len(), 1);
    scene.end_outage();
    until_only(&mut scene.them, &[]);
}

/// While nothing is held, the lease is not renewed: the first hold does that.
fn a_node_is_held_after_an_idle_hour() {
    let scene = Scene::new();
    until("the lease is stale", SOON, || {
        (scene.session.status().lease_remaining < scene.session.status().timeout / 4).then_some(())
    });
    let held = scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap();
    assert!(held.is_held() && held.remaining() > scene.session.status().timeout / 4);
}

fn the_nodes_above_are_made() {
    let mut scene = Scene::new();
    let held = scene.session.requests().hold("/a/b/c/own-", b"", &Acl::Open).unwrap();
    scene.them.exists(held.path()).unwrap().expect("it is there");
    assert_eq!(scene.session.status().state, zk_session::SessionState::Connected);
    let events: Vec<SessionEvent> = scene.events.try_iter().collect();
    assert_eq!(events, []);
}

/// The name has a fresh id, but an operator may use it all the same.
fn a_node_that_somebody_replaces_in_an_outage_is_lost_and_theirs_is_not_deleted() {
    let mut scene = Scene::of(|config| config.session_timeout(Duration::from_secs(30)));
    let [released, dropped] =
        [(); 2].map(|()| scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap());
    let paths = [&released, &dropped].map(|held| held.path().to_owned());
    scene.begin_outage();
    for path in &paths {
        scene.them.delete(path).unwrap();
        scene.them.create(path, b"theirs", 0).unwrap();
    }
    scene.end_outage();
    for held in [&released, &dropped] {
        assert_eq!(held.lost().wait(SOON), Some(LossReason::NodeDeleted));
    }
    released.release().unwrap();
    drop(dropped);
    scene.session.close().unwrap(); // behind all that the session had to send
    for path in &paths {
        assert_eq!(scene.them.get_data(path).unwrap().0, b"theirs");
    }
}

/// A server would end the connection, on which everything else of the session depends.
fn a_node_that_is_too_long_is_refused_and_costs_no_connection() {
    let scene = Scene::new();
    let held = scene.session.requests().hold(PREFIX, &vec![0; 2 << 20], &Acl::Open);
    assert!(matches!(held, Err(Error::InvalidConfig { what: "request", .. })), "{held:?}");
    assert_eq!(scene.session.status().stats.connections_lost, 0);
    assert!(scene.session.requests().hold(PREFIX, b"", &Acl::Open).unwrap().is_held());
}
