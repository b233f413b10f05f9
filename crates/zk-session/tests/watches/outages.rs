//! What is told when the connection is lost and comes back.
use crate::scene::{NODE, SOON, Scene, told};
use std::thread;
use std::time::Duration;
use zk_session::WatchEvent::{Changed, ChildrenChanged, Created, Deleted};
use zk_session::{CancelToken, Cause, Error, RetryPolicy, SessionEvent, Watched};
use zk_test_support::{OpKind, until};

zk_test_support::scenarios![
    a_change_in_an_outage_is_told_once,
    an_outage_without_a_change_tells_nothing,
    a_node_that_was_deleted_and_made_anew_in_an_outage_is_told_of_as_that,
    a_child_that_came_and_went_in_an_outage_is_told_of,
    a_node_that_came_and_went_in_an_outage_is_not_told_of,
    a_change_is_told_whose_event_was_lost_with_the_connection,
    a_change_is_told_once_when_the_answer_to_its_read_is_lost,
    changes_are_told_through_many_outages,
    a_change_behind_a_restart_of_the_server_is_told,
    a_watch_that_is_asked_for_in_an_outage_is_set_when_it_ends,
    a_watch_that_is_asked_for_in_an_outage_gives_up_as_the_policy_says,
    the_limits_of_a_call_are_kept_in_an_outage,
    the_limits_of_a_call_are_kept_when_the_answer_does_not_come,
];

fn a_change_in_an_outage_is_told_once() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    scene.begin_outage();
    for _ in 0..3 {
        scene.them.set_data(NODE, b"").unwrap();
    }
    scene.end_outage();
    assert_eq!(told(&watch), Changed); // one event for all three
    scene.them.delete(NODE).unwrap();
    assert_eq!(told(&watch), Deleted);
}

fn an_outage_without_a_change_tells_nothing() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let watches = [Watched::Node, Watched::Children]
        .map(|what| scene.session.requests().watch(NODE, what).unwrap());
    for _ in 0..3 {
        scene.begin_outage();
        scene.end_outage();
    }
    scene.them.delete(NODE).unwrap();
    assert_eq!(watches.each_ref().map(told), [Deleted, Deleted]);
}

/// The czxid differs, and the data may be the same.
fn a_node_that_was_deleted_and_made_anew_in_an_outage_is_told_of_as_that() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let watches = [Watched::Node, Watched::Children]
        .map(|what| scene.session.requests().watch(NODE, what).unwrap());
    scene.begin_outage();
    scene.them.delete(NODE).unwrap();
    scene.them.create(NODE, b"", 0).unwrap();
    scene.end_outage();
    for event in [Deleted, Created] {
        assert_eq!(watches.each_ref().map(told), [event.clone(), event]);
    }
    scene.them.delete(NODE).unwrap();
    assert_eq!(watches.each_ref().map(told), [Deleted, Deleted]);
}

/// The list is the same before and after.
fn a_child_that_came_and_went_in_an_outage_is_told_of() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Children).unwrap();
    scene.begin_outage();
    scene.them.create(&format!("{NODE}/child"), b"", 0).unwrap();
    scene.them.delete(&format!("{NODE}/child")).unwrap();
    scene.end_outage();
    assert_eq!(told(&watch), ChildrenChanged);
    scene.them.delete(NODE).unwrap();
    assert_eq!(told(&watch), Deleted);
}

/// Nothing at the server shows that such a node has ever been there. `Watch` says so.
fn a_node_that_came_and_went_in_an_outage_is_not_told_of() {
    let mut scene = Scene::new();
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    scene.begin_outage();
    scene.them.create(NODE, b"", 0).unwrap();
    scene.them.delete(NODE).unwrap();
    scene.end_outage();
    scene.them.create(NODE, b"", 0).unwrap();
    assert_eq!(told(&watch), Created);
    scene.them.delete(NODE).unwrap();
    assert_eq!(told(&watch), Deleted);
}

fn a_change_is_told_whose_event_was_lost_with_the_connection() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    scene.proxy.freeze();
    scene.them.set_data(NODE, b"").unwrap();
    scene.proxy.cut();
    assert_eq!(told(&watch), Changed);
    scene.them.delete(NODE).unwrap();
    assert_eq!(told(&watch), Deleted);
}

fn a_change_is_told_once_when_the_answer_to_its_read_is_lost() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    scene.proxy.drop_reply(OpKind::Exists.on(NODE));
    scene.them.set_data(NODE, b"").unwrap();
    scene.until(&SessionEvent::Reconnected);
    assert_eq!((told(&watch), scene.proxy.plans()), (Changed, 0));
    scene.them.delete(NODE).unwrap();
    assert_eq!(told(&watch), Deleted);
}

/// Cuts fall anywhere. What is told last is how the node is, and no event is told without a change.
fn changes_are_told_through_many_outages() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    // The first outage may last longer than sixty changes: it goes on until one of them is told.
    let mut changes = 0;
    while changes < 60 || watch.receiver().is_empty() {
        if changes % 4 == 0 && changes < 60 {
            scene.proxy.cut();
        }
        scene.them.set_data(NODE, b"").unwrap();
        changes += 1;
        thread::sleep(Duration::from_millis(5)); // cuts shall fall into different steps
    }
    scene.them.delete(NODE).unwrap();
    let mut told = std::iter::from_fn(|| watch.next(SOON));
    let changed = told.by_ref().take_while(|event| *event != Deleted).collect::<Vec<_>>();
    assert!(changed.iter().all(|event| *event == Changed), "{changed:?}");
    assert!((1..=changes).contains(&changed.len()), "{} of {changes}", changed.len());
    assert!(watch.receiver().is_empty());
}

fn a_change_behind_a_restart_of_the_server_is_told() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    scene.server.restart();
    scene.until(&SessionEvent::Reconnected);
    let mut them = zk_test_support::Raw::connect(&scene.server.connect_string()).unwrap();
    them.set_data(NODE, b"").unwrap();
    assert_eq!(told(&watch), Changed);
    scene.them.abandon();
}

fn a_watch_that_is_asked_for_in_an_outage_is_set_when_it_ends() {
    let mut scene = Scene::new();
    scene.begin_outage();
    let session = scene.session.clone();
    let asked = thread::spawn(move || session.requests().watch(NODE, Watched::Node));
    thread::sleep(Duration::from_millis(50)); // it may begin to wait; nothing depends on that
    assert!(!asked.is_finished());
    scene.end_outage();
    let watch = asked.join().unwrap().unwrap();
    scene.them.create(NODE, b"", 0).unwrap();
    assert_eq!(told(&watch), Created);
}

fn a_watch_that_is_asked_for_in_an_outage_gives_up_as_the_policy_says() {
    let policy = RetryPolicy { max_elapsed: Duration::from_millis(300), ..RetryPolicy::default() };
    let scene = Scene::of(|config| config.retry_policy(policy));
    scene.begin_outage();
    let refused = scene.session.requests().watch(NODE, Watched::Node).map(drop);
    let is_outage = |e: &Error| matches!(e, Error::Unavailable { op: "watch", cause: Cause::Outage(_), path } if path == NODE);
    assert!(refused.as_ref().is_err_and(is_outage), "{refused:?}");
    let held = scene.session.requests().hold(NODE, b"", &zk_session::Acl::Open).map(drop);
    assert!(matches!(held, Err(Error::Unavailable { op: "hold", .. })), "{held:?}");
}

fn the_limits_of_a_call_are_kept_in_an_outage() {
    let scene = Scene::new();
    scene.begin_outage();
    let within = scene.session.requests().within(Duration::from_millis(100));
    let is_outage = |e: &Error| matches!(e, Error::Unavailable { cause: Cause::Outage(_), .. });
    let watch = within.watch(NODE, Watched::Node).map(drop);
    assert!(watch.as_ref().is_err_and(is_outage), "{watch:?}");
    let held = within.hold(NODE, b"", &zk_session::Acl::Open).map(drop);
    assert!(held.as_ref().is_err_and(is_outage), "{held:?}");
    let token = CancelToken::new();
    token.cancel();
    let cancelled = scene.session.requests().cancelled_by(&token);
    let error = Err(Error::Cancelled { path: NODE.to_owned() });
    assert_eq!(cancelled.watch(NODE, Watched::Node).map(drop), error);
    assert_eq!(cancelled.hold(NODE, b"", &zk_session::Acl::Open).map(drop), error);
}

/// The server takes the request and does not answer. The watch that is given up so tells nothing,
/// and the node that may have been made is deleted.
fn the_limits_of_a_call_are_kept_when_the_answer_does_not_come() {
    let mut scene = Scene::new();
    let within = scene.session.requests().within(Duration::from_millis(200));
    scene.proxy.hold_replies(true);
    let is_late = |e: &Error| matches!(e, Error::Unavailable { cause: Cause::Deadline, .. });
    let watch = within.watch(NODE, Watched::Node).map(drop);
    assert!(watch.as_ref().is_err_and(is_late), "{watch:?}");
    let held = within.hold(&format!("{NODE}-"), b"", &zk_session::Acl::Open).map(drop);
    assert!(held.as_ref().is_err_and(is_late), "{held:?}");
    scene.proxy.hold_replies(false);
    until("no node stays behind", SOON, || {
        let names = scene.them.children("/").unwrap();
        names.iter().all(|name| name == "zookeeper").then_some(())
    });
    assert_eq!(scene.proxy.count(OpKind::Create), 1);
}
