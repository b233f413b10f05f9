//! What is told while the connection stays.
use crate::scene::{NODE, SOON, Scene, told};
use zk_session::WatchEvent::{Changed, ChildrenChanged, Created, Deleted};
use zk_session::crossbeam_channel::unbounded;
use zk_session::unstable::{Folder, FolderWatch};
use zk_session::{Session, Watched};
use zk_test_support::{OpKind, until};

zk_test_support::scenarios![
    each_change_of_a_node_is_told_once,
    each_change_of_the_children_is_told_once,
    a_change_of_the_data_of_a_child_is_no_change_of_the_children,
    a_change_behind_a_read_is_told,
    the_sessions_own_changes_are_told,
    two_watches_of_one_node_are_told_each_for_itself,
    a_node_and_its_children_are_watched_each_for_itself,
    a_watch_and_a_function_for_the_same_folder_are_both_told,
    a_slow_receiver_gets_the_newest_events,
    a_dropped_watch_is_told_nothing_and_the_session_goes_on,
    a_watch_that_is_dropped_while_its_node_is_read_does_no_harm on embedded,
    a_one_shot_watch_gives_its_first_event_and_ends,
    paths_are_below_the_chroot,
    the_root_is_watched,
];

fn each_change_of_a_node_is_told_once() {
    let mut scene = Scene::new();
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    for _ in 0..2 {
        scene.them.create(NODE, b"", 0).unwrap();
        assert_eq!(told(&watch), Created);
        for data in [b"1", b"2"] {
            scene.them.set_data(NODE, data).unwrap();
            assert_eq!(told(&watch), Changed);
        }
        scene.them.create(&format!("{NODE}/child"), b"", 0).unwrap(); // tells nothing
        scene.them.delete(&format!("{NODE}/child")).unwrap();
        scene.them.delete(NODE).unwrap();
        assert_eq!(told(&watch), Deleted);
    }
}

fn each_change_of_the_children_is_told_once() {
    let mut scene = Scene::new();
    let watch = scene.session.requests().watch(NODE, Watched::Children).unwrap();
    scene.them.create(NODE, b"", 0).unwrap();
    assert_eq!(told(&watch), Created);
    let child = format!("{NODE}/child");
    for _ in 0..3 {
        scene.them.create(&child, b"", 0).unwrap();
        assert_eq!(told(&watch), ChildrenChanged);
        scene.them.delete(&child).unwrap();
        assert_eq!(told(&watch), ChildrenChanged);
    }
    scene.them.delete(NODE).unwrap();
    assert_eq!(told(&watch), Deleted);
}

fn a_change_of_the_data_of_a_child_is_no_change_of_the_children() {
    let mut scene = Scene::new();
    let child = format!("{NODE}/child");
    scene.them.create(NODE, b"", 0).unwrap();
    scene.them.create(&child, b"", 0).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Children).unwrap();
    scene.them.set_data(&child, b"1").unwrap();
    scene.them.set_data(NODE, b"1").unwrap();
    scene.them.delete(&child).unwrap();
    assert_eq!(told(&watch), ChildrenChanged);
    scene.them.delete(NODE).unwrap();
    assert_eq!(told(&watch), Deleted);
}

/// The watch is set when the call returns: no change falls between it and a read that follows.
fn a_change_behind_a_read_is_told() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    for _ in 0..20 {
        let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
        scene.them.set_data(NODE, b"").unwrap();
        assert_eq!(told(&watch), Changed);
    }
}

fn the_sessions_own_changes_are_told() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Children).unwrap();
    let held = scene
        .session
        .requests()
        .hold(&format!("{NODE}/own-"), b"", &zk_session::Acl::Open)
        .unwrap();
    assert_eq!(told(&watch), ChildrenChanged);
    held.release().unwrap();
    assert_eq!(told(&watch), ChildrenChanged);
}

fn two_watches_of_one_node_are_told_each_for_itself() {
    let mut scene = Scene::new();
    let [a, b] = [(); 2].map(|()| scene.session.requests().watch(NODE, Watched::Node).unwrap());
    scene.them.create(NODE, b"", 0).unwrap();
    assert_eq!((told(&a), told(&b)), (Created, Created));
    drop(a);
    scene.them.set_data(NODE, b"1").unwrap();
    assert_eq!(told(&b), Changed);
    // A later watch begins with the node as it is now.
    let c = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    scene.them.delete(NODE).unwrap();
    assert_eq!((told(&b), told(&c)), (Deleted, Deleted));
}

/// The server tells of a deletion once, whatever was watched.
fn a_node_and_its_children_are_watched_each_for_itself() {
    let mut scene = Scene::new();
    let [node, children] = [Watched::Node, Watched::Children]
        .map(|what| scene.session.requests().watch(NODE, what).unwrap());
    for _ in 0..2 {
        scene.them.create(NODE, b"", 0).unwrap();
        assert_eq!((told(&node), told(&children)), (Created, Created));
        scene.them.set_data(NODE, b"1").unwrap();
        assert_eq!(told(&node), Changed);
        scene.them.create(&format!("{NODE}/child"), b"", 0).unwrap();
        assert_eq!(told(&children), ChildrenChanged);
        scene.them.delete(&format!("{NODE}/child")).unwrap();
        assert_eq!(told(&children), ChildrenChanged);
        scene.them.delete(NODE).unwrap();
        assert_eq!((told(&node), told(&children)), (Deleted, Deleted));
    }
}

/// Authors of recipes have such a function; the server has one watch for both.
fn a_watch_and_a_function_for_the_same_folder_are_both_told() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let generation = scene.session.core().generation().unwrap();
    let (tell, calls) = unbounded();
    let folder = |name: &'static str| {
        let tell = tell.clone();
        let notify = move |folder: Folder<'_>| {
            let names = match folder {
                Folder::Listed { names, .. } => Some(names.len()),
                Folder::Changed => None,
            };
            tell.send((name, names)).unwrap();
            true
        };
        FolderWatch::new(NODE.to_owned(), Box::new(notify))
    };
    let next = || calls.recv_timeout(SOON).unwrap();
    let watch = scene.session.requests().watch(NODE, Watched::Children).unwrap();
    generation.watch_folder(folder("first"));
    assert_eq!(next(), ("first", Some(0)));
    generation.watch_folder(folder("second")); // a folder has one function
    assert_eq!(next(), ("second", Some(0)));
    scene.them.create(&format!("{NODE}/child"), b"", 0).unwrap();
    assert_eq!((next(), told(&watch)), (("second", None), ChildrenChanged));
    // The function has heard of its change, and the watch goes on.
    scene.them.delete(&format!("{NODE}/child")).unwrap();
    assert_eq!(told(&watch), ChildrenChanged);
    // The end of the watch is not the end of the function.
    generation.watch_folder(folder("third"));
    assert_eq!(next(), ("third", Some(0)));
    drop(watch);
    scene.them.delete(NODE).unwrap();
    assert_eq!(next(), ("third", None));
    assert!(calls.is_empty());
}

fn a_slow_receiver_gets_the_newest_events() {
    let mut scene = Scene::new();
    scene.them.create(NODE, b"", 0).unwrap();
    let [slow, quick] =
        [(); 2].map(|()| scene.session.requests().watch(NODE, Watched::Node).unwrap());
    for _ in 0..40 {
        scene.them.set_data(NODE, b"").unwrap();
        assert_eq!(told(&quick), Changed); // so the next change is another event
    }
    scene.them.delete(NODE).unwrap();
    assert_eq!(told(&quick), Deleted);
    let all: Vec<_> = slow.receiver().try_iter().collect();
    assert_eq!((all.len(), all.last()), (16, Some(&Deleted)));
}

fn a_dropped_watch_is_told_nothing_and_the_session_goes_on() {
    let mut scene = Scene::new();
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    let receiver = watch.receiver().clone();
    drop(watch);
    assert!(receiver.recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
    scene.them.create(NODE, b"", 0).unwrap();
    until("the event comes", SOON, || (scene.proxy.events(NODE) == 1).then_some(()));
    // The answer to this watch's read comes behind that event.
    let _other = scene.session.requests().watch("/other", Watched::Node).unwrap();
    assert_eq!(scene.proxy.count(OpKind::Exists.on(NODE)), 1, "nobody reads for a dropped watch");
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    scene.them.delete(NODE).unwrap();
    assert_eq!(told(&watch), Deleted);
}

fn a_watch_that_is_dropped_while_its_node_is_read_does_no_harm() {
    let mut scene = Scene::new();
    let [watch, other] =
        [(); 2].map(|()| scene.session.requests().watch(NODE, Watched::Node).unwrap());
    let held = scene.server.embedded_server().hold_requests(zk_test_server::Op::Exists.on(NODE));
    scene.them.create(NODE, b"", 0).unwrap();
    assert!(held.wait(SOON));
    drop(watch);
    drop(held);
    assert_eq!(told(&other), Created);
    scene.them.delete(NODE).unwrap();
    assert_eq!(told(&other), Deleted);
}

fn a_one_shot_watch_gives_its_first_event_and_ends() {
    let mut scene = Scene::new();
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    scene.them.create(NODE, b"", 0).unwrap();
    assert_eq!(watch.next(SOON), Some(Created));
    let watch = scene.session.requests().watch(NODE, Watched::Node).unwrap();
    assert_eq!(watch.next(std::time::Duration::from_millis(50)), None);
}

fn paths_are_below_the_chroot() {
    let mut scene = Scene::new();
    scene.them.create("/app", b"", 0).unwrap();
    let session = Session::connect(format!("{}/app", scene.server.connect_string())).unwrap();
    let [node, root] = [(NODE, Watched::Node), ("/", Watched::Children)]
        .map(|(path, what)| session.requests().watch(path, what).unwrap());
    scene.them.create("/app/node", b"", 0).unwrap();
    assert_eq!((told(&node), told(&root)), (Created, ChildrenChanged));
    let held = session.requests().hold("/x/y-", b"", &zk_session::Acl::Open).unwrap();
    assert!(held.path().starts_with("/x/y-"), "{}", held.path());
    scene.them.exists(&format!("/app{}", held.path())).unwrap().expect("it is there");
}

fn the_root_is_watched() {
    let mut scene = Scene::new();
    let watch = scene.session.requests().watch("/", Watched::Children).unwrap();
    scene.them.create(NODE, b"", 0).unwrap();
    assert_eq!(told(&watch), ChildrenChanged);
}
