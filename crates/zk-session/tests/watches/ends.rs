//! The ends of watches.
use crate::scene::{NODE, SOON, Scene, told};
use std::time::Duration;
use zk_session::WatchEvent::{Created, Lost};
use zk_session::{Error, LossReason, SessionEvent, Watched};

zk_test_support::scenarios![
    a_watch_says_that_its_session_is_lost_and_ends,
    a_program_watches_again_in_the_next_session,
    the_close_of_the_session_ends_its_watches,
    a_watch_does_not_keep_its_session_open,
    a_closed_session_gives_no_watch,
];

fn a_watch_says_that_its_session_is_lost_and_ends() {
    let scene = Scene::new();
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    let receiver = watch.receiver().clone();
    scene.expire();
    let lost = Lost(LossReason::SessionExpired);
    assert_eq!(told(&watch), lost);
    assert!(receiver.recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
    // A loop that overlooks the end finds it at each turn.
    assert_eq!(watch.next(Duration::ZERO), Some(lost.clone()));
    assert_eq!(watch.next(Duration::ZERO), Some(lost));
}

fn a_program_watches_again_in_the_next_session() {
    let mut scene = Scene::new();
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    scene.expire();
    assert_eq!(told(&watch), Lost(LossReason::SessionExpired));
    let again = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    drop(watch); // it has a number in the session before, and ends nothing in this one
    scene.them.create(NODE, b"", 0).unwrap();
    assert_eq!(told(&again), Created);
}

fn the_close_of_the_session_ends_its_watches() {
    let scene = Scene::new();
    let watches = [Watched::Node, Watched::Children]
        .map(|what| scene.session.requests().watch(NODE, what).unwrap());
    scene.session.close().unwrap();
    let lost = || Lost(LossReason::SessionClosed);
    assert_eq!(watches.each_ref().map(told), [lost(), lost()]);
}

fn a_watch_does_not_keep_its_session_open() {
    let Scene { session, events, proxy: _proxy, server: _server, .. } = Scene::new();
    let watch = session.requests().watch(NODE, Watched::Node).unwrap();
    drop(session);
    assert_eq!(told(&watch), Lost(LossReason::SessionClosed));
    assert_eq!(events.iter().last(), Some(SessionEvent::Closed));
}

fn a_closed_session_gives_no_watch() {
    let scene = Scene::new();
    scene.session.close().unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Node).map(drop);
    assert_eq!(watch, Err(Error::Closed { op: "watch", path: NODE.to_owned() }));
    let held = scene.session.requests().hold("/a-", b"", &zk_session::Acl::Open).map(drop);
    assert_eq!(held, Err(Error::Closed { op: "hold", path: "/a-".to_owned() }));
}
