//! A thread that gives up leaves its process's place in the queue to the next thread.
use crate::support::{
    On, OpKind, Shared, Test, contend,
    contend::{spawn_waiting, until_queue},
    embedded::start,
    recipe::{Recipe, over_recipes, rows},
    scenarios,
    scene::{SOON, session, until_empty},
    until,
};
use crossbeam_channel::bounded;
use std::{thread, time::Duration};
use zk_mutex::{
    Acl, AclEntry, CancelToken, Error, OptionalExt, Permissions, Wait, ZkMutex, ZkRwLock,
};
use zk_session::CreateMode;
use zk_test_server::Op;

const PATH: &str = "/locks/orders";

/// One process holds the lock. Threads A and B of a second process wait, and then a third process.
/// A is cancelled: B has the place, and gets the lock before the third process.
fn next_thread_keeps_the_place(recipe: Recipe) {
    let at = Shared::chroot();
    let sessions = [(); 3].map(|()| session(&at));
    let [holder, ours] = [&sessions[0], &sessions[1]].map(|session| recipe.make(session, PATH));
    let theirs = recipe.rival().make(&sessions[2], PATH);
    // A reader waits for writers only.
    let holder =
        if recipe == Recipe::Read { Recipe::Write.make(&sessions[0], PATH) } else { holder };
    let folder = if recipe == Recipe::Permit { format!("{PATH}/locks") } else { PATH.to_owned() };
    // The holder of a permit has no node in the queue.
    let held = usize::from(recipe != Recipe::Permit);
    let guard = holder.lock().unwrap();
    let (token, (tell, order)) = (CancelToken::new(), bounded(2));
    thread::scope(|scope| {
        let first =
            spawn_waiting(scope, || ours.lock_with(Wait::forever().cancelled_by(&token)).map(drop));
        until_queue(&at, &folder, held + 1);
        let next = spawn_waiting(scope, || {
            let _guard = ours.lock_timeout(SOON).unwrap();
            tell.send("the next thread").unwrap();
        });
        let third = spawn_waiting(scope, || {
            let _guard = theirs.lock().unwrap();
            tell.send("the third process").unwrap();
        });
        let waiting = until_queue(&at, &folder, held + 2);
        token.cancel();
        assert!(matches!(first.join().unwrap(), Err(Error::Cancelled { .. })));
        assert_eq!(until_queue(&at, &folder, held + 2), waiting, "the same nodes");
        drop(guard);
        next.join().unwrap();
        third.join().unwrap();
    });
    assert_eq!(order.try_iter().collect::<Vec<_>>(), ["the next thread", "the third process"]);
    until_empty(&at, PATH);
}

/// The watches go on with the place: the next thread sends nothing until it has the lock.
fn next_thread_has_the_watches_of_the_place() {
    let at = Shared::chroot();
    let (proxy, through) = contend::proxied(&at);
    let (theirs, ours) = (session(&at), session(&through));
    let [other, mutex] = [&theirs, &ours].map(|session| ZkMutex::new(session, PATH).unwrap());
    let (guard, token) = (other.lock().unwrap(), CancelToken::new());
    thread::scope(|scope| {
        let first = spawn_waiting(scope, || {
            mutex.lock_with(Wait::forever().cancelled_by(&token)).optional().map(drop)
        });
        until_queue(&at, PATH, 2);
        let next = spawn_waiting(scope, || mutex.lock().map(drop));
        proxy.clear();
        token.cancel();
        assert!(matches!(first.join().unwrap(), Err(Error::Cancelled { .. })));
        drop(guard);
        next.join().unwrap().unwrap();
    });
    until_empty(&at, PATH);
    let sent = [OpKind::Create, OpKind::GetChildren, OpKind::GetData].map(|kind| proxy.count(kind));
    assert_eq!(sent, [0; 3], "creates, listings and reads");
    ours.close().unwrap();
}

/// A writer's place is no use to a reader: the node goes, and the reader makes its own.
fn place_of_a_writer_does_not_go_to_a_reader() {
    let at = Shared::chroot();
    let (theirs, ours) = (session(&at), session(&at));
    let [other, lock] = [&theirs, &ours].map(|session| ZkRwLock::new(session, PATH).unwrap());
    let (guard, token) = (other.write().unwrap(), CancelToken::new());
    thread::scope(|scope| {
        let writer = spawn_waiting(scope, || {
            lock.write_with(Wait::forever().cancelled_by(&token)).optional().map(drop)
        });
        until_queue(&at, PATH, 2);
        let reader = spawn_waiting(scope, || lock.read().map(drop));
        token.cancel();
        assert!(matches!(writer.join().unwrap(), Err(Error::Cancelled { .. })));
        let is_read = |names: &[String]| names.last().is_some_and(|name| name.contains("__READ__"));
        until("the reader has its own node", SOON, || {
            is_read(&until_queue(&at, PATH, 2)).then_some(())
        });
        drop(guard);
        reader.join().unwrap().unwrap();
    });
    until_empty(&at, PATH);
}

/// The last thread takes the node away.
fn last_thread_leaves_no_place() {
    let at = Shared::chroot();
    let (theirs, ours) = (session(&at), session(&at));
    let [other, mutex] = [&theirs, &ours].map(|session| ZkMutex::new(session, PATH).unwrap());
    let guard = other.lock().unwrap();
    let tokens = [(); 3].map(|()| CancelToken::new());
    thread::scope(|scope| {
        let waiters = tokens.each_ref().map(|token| {
            spawn_waiting(scope, || {
                mutex.lock_with(Wait::forever().cancelled_by(token)).optional().map(drop)
            })
        });
        let waiting = until_queue(&at, PATH, 2);
        for (token, waiter) in tokens.iter().zip(waiters) {
            assert_eq!(until_queue(&at, PATH, 2), waiting);
            token.cancel();
            assert!(matches!(waiter.join().unwrap(), Err(Error::Cancelled { .. })));
        }
        until_queue(&at, PATH, 1);
    });
    drop(guard);
    until_empty(&at, PATH);
}

/// A thread is refused, here by the folder's ACL. Its place would be no use to the next thread, and
/// could keep other processes from the lock.
fn refused_thread_leaves_no_place() {
    let (server, at) = start();
    let ours = session(&at);
    let all_but_read = Permissions::CREATE | Permissions::DELETE;
    let entry = AclEntry { permissions: all_but_read, scheme: "world".into(), id: "anyone".into() };
    let mode = CreateMode::Persistent;
    ours.zookeeper()
        .requests()
        .within(SOON)
        .create("/unread", b"", mode, &Acl::Custom(vec![entry]))
        .unwrap();
    let mutex = ZkMutex::new(&ours, "/unread").unwrap();
    let held = server.hold_requests(Op::GetChildren.on("/unread"));
    thread::scope(|scope| {
        let threads = [(); 2].map(|()| spawn_waiting(scope, || mutex.lock().map(drop)));
        assert!(held.wait(SOON), "one of them asks");
        drop(held);
        for thread in threads {
            let said = thread.join().unwrap();
            assert!(matches!(said, Err(Error::NoAuth { permission: "READ", .. })), "{said:?}");
        }
    });
    assert_eq!(server.count(Op::Create.on("/unread/")), 2, "each has a node of its own");
}

/// Readers whose locks have different bounds, and a writer that came after them.
fn reader_with_other_bounds_comes_before_a_later_writer() {
    let at = Shared::chroot();
    let (theirs, ours) = (session(&at), session(&at));
    let other = ZkRwLock::new(&theirs, PATH).unwrap();
    let plain = ZkRwLock::new(&ours, PATH).unwrap();
    let bounded_lock =
        ZkRwLock::builder(&ours, PATH).max_hold(Duration::from_secs(600)).build().unwrap();
    let (guard, (tell, order)) = (other.write().unwrap(), bounded(3));
    thread::scope(|scope| {
        let tell = &tell;
        let readers = [&plain, &bounded_lock].map(|lock| {
            spawn_waiting(scope, move || {
                let _guard = lock.read().unwrap();
                tell.send("a reader").unwrap();
            })
        });
        let writer = spawn_waiting(scope, || {
            let _guard = plain.write().unwrap();
            tell.send("the writer").unwrap();
        });
        drop(guard);
        readers.into_iter().chain([writer]).for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(order.try_iter().collect::<Vec<_>>(), ["a reader", "a reader", "the writer"]);
    until_empty(&at, PATH);
}

pub fn tests() -> Vec<Test> {
    let rows = rows![Recipe::is_lock_that_queues => next_thread_keeps_the_place];
    let mut all = over_recipes(module_path!(), On::Both, rows);
    all.extend(scenarios![@list
        last_thread_leaves_no_place,
        next_thread_has_the_watches_of_the_place,
        place_of_a_writer_does_not_go_to_a_reader,
        reader_with_other_bounds_comes_before_a_later_writer,
        refused_thread_leaves_no_place on embedded,
    ]);
    all
}
