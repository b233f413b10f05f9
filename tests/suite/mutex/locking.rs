//! Locking: the scenarios of Curator's and kazoo's lock tests, on one client and on several.
use crate::support::{
    Proxy, Raw, Server, Shared,
    contend::{Section, session, spawn_waiting, stat, until_queue},
    raw, scenarios,
    scene::{SOON, full_path, name, queue, session_that_makes_its_chroot, until_empty},
    until,
};
use crossbeam_channel::bounded;
use std::{
    collections::HashSet,
    fs, process, thread,
    time::{Duration, SystemTime},
};
use zk_mutex::{Acl, Config, Error, OptionalExt, ZkMutex, ZkSession};

const LOCK: &str = "/locks/orders";

fn ten_threads_on_one_instance_never_two_holders() {
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    let section = Section::default();
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let guard = mutex.lock().unwrap();
                    section.pass();
                    assert!(guard.is_held());
                }
            });
        }
    });
    assert_eq!(section.counter(), 200);
    until_empty(&at, LOCK);
}

fn a_second_thread_cannot_enter_mid_nesting() {
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    thread::scope(|scope| {
        let outer = mutex.lock().unwrap();
        let inner = mutex.lock().unwrap();
        let try_elsewhere =
            || scope.spawn(|| mutex.try_lock().optional().unwrap().is_some()).join().unwrap();
        assert!(!try_elsewhere());
        let waiter = spawn_waiting(scope, || mutex.lock().unwrap().hold_count());
        drop(inner);
        assert!(outer.is_held() && !try_elsewhere() && !waiter.is_finished());
        drop(outer);
        assert_eq!(waiter.join().unwrap(), 1);
    });
    until_empty(&at, LOCK);
}

fn three_deep_nesting() {
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    let first = mutex.lock().unwrap();
    let second = mutex.try_lock().optional().unwrap().unwrap();
    let third = mutex.lock_timeout(Duration::ZERO).optional().unwrap().unwrap();
    assert_eq!([first.hold_count(), second.hold_count(), third.hold_count()], [3; 3]);
    assert!(first.path() == second.path() && second.path() == third.path());
    assert_eq!(queue(&at, LOCK).len(), 1);
    drop(first); // guards may be dropped in any order
    assert_eq!((third.hold_count(), third.is_held()), (2, true));
    second.unlock().unwrap();
    assert_eq!((third.hold_count(), third.is_held()), (1, true));
    assert_eq!(queue(&at, LOCK).len(), 1);
    third.unlock().unwrap();
    assert_eq!(queue(&at, LOCK), [""; 0]);
    assert!(!mutex.is_owned_by_current_thread());
}

fn two_clients_hand_over() {
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at)];
    let mutexes = sessions.each_ref().map(|session| ZkMutex::new(session, LOCK).unwrap());
    for round in 0..6 {
        let (holder, next) = (&mutexes[round % 2], &mutexes[(round + 1) % 2]);
        thread::scope(|scope| {
            let guard = holder.lock().unwrap();
            let waiter = scope.spawn(|| next.lock().unwrap().is_held());
            until_queue(&at, LOCK, 2);
            assert!(!waiter.is_finished() && guard.is_held());
            guard.unlock().unwrap();
            assert!(waiter.join().unwrap());
        });
    }
    until_empty(&at, LOCK);
}

fn persistent_acls_on_node_and_parents() {
    let at = Shared::chroot();
    let ours = ZkSession::connect(Config::new(&at).auth("digest", "service:secret")).unwrap();
    let mutex = ZkMutex::builder(&ours, LOCK).acl(Acl::CreatorAll).build().unwrap();
    let guard = mutex.lock().unwrap();

    let mut friend = Raw::connect(&at).unwrap();
    friend.add_auth("service:secret").unwrap();
    for path in [guard.path(), LOCK, "/locks"] {
        let acl = friend.get_acl(&full_path(&at, path)).unwrap();
        assert_eq!((acl.len(), acl[0].perms, acl[0].scheme.as_str()), (1, 31, "digest"), "{path}");
        assert!(acl[0].id.starts_with("service:") && !acl[0].id.contains("secret"), "{acl:?}");
    }
    let mut stranger = Raw::connect(&at).unwrap();
    let node = full_path(&at, guard.path());
    assert_eq!(stranger.children(&full_path(&at, LOCK)).unwrap_err().code(), Some(raw::NO_AUTH));
    assert_eq!(stranger.get_data(&node).unwrap_err().code(), Some(raw::NO_AUTH));
    assert_eq!(stranger.delete(&node).unwrap_err().code(), Some(raw::NO_AUTH));

    let theirs = session(&at);
    let shut_out = ZkMutex::new(&theirs, LOCK).unwrap();
    for refused in [
        shut_out.lock().map(drop),
        shut_out.try_lock().optional().map(drop),
        shut_out.contenders().map(drop),
    ] {
        match refused {
            Err(Error::NoAuth { path, .. }) => assert_eq!(path, LOCK),
            other => panic!("{other:?}"),
        }
    }
    guard.unlock().unwrap();
    assert_eq!(friend.children(&full_path(&at, LOCK)).unwrap(), [""; 0]);
    drop(mutex.lock().unwrap()); // once more, in parents that only this session uses
    until("the folder is empty", SOON, || {
        friend.children(&full_path(&at, LOCK)).unwrap().is_empty().then_some(())
    });
}

fn works_under_a_chroot() {
    let bare = Shared::chroot();
    for at in [bare.clone(), format!("{bare}/not/there/yet")] {
        let mutex = ZkMutex::new(&session_that_makes_its_chroot(&at), LOCK).unwrap();
        let guard = mutex.lock().unwrap();
        assert!(
            guard.path().starts_with(&format!("{LOCK}/_c_")),
            "without the chroot: {}",
            guard.path()
        );
        assert!(stat(&at, guard.path()).is_some(), "below the chroot");
        let contenders = mutex.contenders().unwrap();
        assert_eq!(contenders[0].path, guard.path());
        guard.unlock().unwrap();
        until_empty(&at, LOCK);
    }
}

fn six_contenders_in_fifo_order() {
    let at = Shared::chroot();
    let (tell, order) = bounded(6);
    let holder = ZkMutex::new(&session(&at), LOCK).unwrap();
    let sessions: Vec<ZkSession> = (0..6).map(|_| session(&at)).collect();
    thread::scope(|scope| {
        let guard = holder.lock().unwrap();
        for (i, session) in sessions.iter().enumerate() {
            let (tell, at) = (tell.clone(), &at);
            scope.spawn(move || {
                let mutex = ZkMutex::new(session, LOCK).unwrap();
                let guard = mutex.lock().unwrap();
                tell.send(i).unwrap();
                assert_eq!(
                    queue(at, LOCK).len(),
                    6 - i,
                    "earlier contenders have released, later ones wait"
                );
                drop(guard);
            });
            until_queue(at, LOCK, i + 2);
        }
        assert!(order.is_empty());
        drop(guard);
    });
    assert_eq!(order.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    until_empty(&at, LOCK);
}

fn re_acquire_after_release() {
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let guard = mutex.lock().unwrap();
        nodes.push(guard.path().to_owned());
        guard.unlock().unwrap();
        let there = || mutex.lock().unwrap().path().to_owned();
        nodes.push(thread::scope(|scope| scope.spawn(there).join().unwrap()));
    }
    let numbers: Vec<&str> = nodes.iter().map(|node| &node[node.len() - 10..]).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "each hold has a new node: {nodes:?}");
    until_empty(&at, LOCK);
}

fn contenders_shows_the_holder() {
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at), session(&at)];
    let data = ["", "the second", "the third"];
    let mutexes: Vec<_> = sessions
        .iter()
        .zip(data)
        .map(|(session, data)| {
            let builder = ZkMutex::builder(session, LOCK);
            if data.is_empty() {
                builder.build().unwrap()
            } else {
                builder.data(data).build().unwrap()
            }
        })
        .collect();
    assert_eq!(mutexes[0].contenders().unwrap(), [], "the parent does not exist");
    let before = SystemTime::now() - Duration::from_secs(2);
    let guard = mutexes[0].lock().unwrap();
    thread::scope(|scope| {
        for (i, mutex) in mutexes.iter().enumerate().skip(1) {
            scope.spawn(move || drop(mutex.lock().unwrap()));
            until_queue(&at, LOCK, i + 1);
        }
        let names = until_queue(&at, LOCK, 3);
        for mutex in &mutexes {
            let contenders = mutex.contenders().unwrap();
            assert_eq!(contenders.iter().map(|c| name(&c.path)).collect::<Vec<_>>(), names);
            for ((contender, session), data) in contenders.iter().zip(&sessions).zip(data) {
                assert_eq!(Some(contender.session_id), session.status().session_id);
                assert!(
                    contender.created > before
                        && contender.created < SystemTime::now() + Duration::from_secs(2)
                );
                if data.is_empty() {
                    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
                    let expected = format!("{}:{}", host.trim(), process::id());
                    assert_eq!(String::from_utf8_lossy(&contender.data), expected);
                } else {
                    assert_eq!(contender.data, data.as_bytes());
                }
            }
            assert_eq!(contenders[0].path, guard.path());
        }
        drop(guard);
    });
    until_empty(&at, LOCK);
}

fn parent_container_disappears_after_use() {
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    for all in [false, true] {
        mutex.lock().unwrap().unlock().unwrap();
        let mut raw = Raw::connect(&at).unwrap();
        raw.delete(&full_path(&at, LOCK)).unwrap();
        if all {
            raw.delete(&full_path(&at, "/locks")).unwrap();
        }
    }
    let guard = mutex.lock().unwrap();
    assert!(guard.is_held() && stat(&at, guard.path()).is_some());
    drop(guard);
    until_empty(&at, LOCK);
}

fn parents_are_containers_and_go_by_themselves() {
    let server = Server::builder().container_check(Duration::from_millis(300)).start();
    let proxy = Proxy::start(server.address());
    let at = server.connect_string();
    let session = session(&proxy.connect_string());
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    for _ in 0..2 {
        proxy.clear();
        mutex.lock().unwrap().unlock().unwrap();
        // createContainer
        let made = proxy.requests().into_iter().filter(|request| request.opcode == 19);
        let made: HashSet<String> = made.filter_map(|request| request.path).collect();
        assert_eq!(made, HashSet::from([LOCK.into(), "/locks".into()]));
        until("the server removes the parents", SOON, || {
            stat(&at, "/locks").is_none().then_some(())
        });
    }
    session.close().unwrap();
}

scenarios![
    ten_threads_on_one_instance_never_two_holders,
    a_second_thread_cannot_enter_mid_nesting,
    three_deep_nesting,
    two_clients_hand_over,
    persistent_acls_on_node_and_parents,
    works_under_a_chroot,
    six_contenders_in_fifo_order,
    re_acquire_after_release,
    contenders_shows_the_holder,
    parent_container_disappears_after_use,
    parents_are_containers_and_go_by_themselves,
];
