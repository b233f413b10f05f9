//! Actions of third parties on a queue, over each recipe: nodes and folders are deleted, and data
//! is set, while locks are held and waited for.
use crate::support::{
    Direction, On, OpKind, Proxy, Raw, Recipe, Shared, Test,
    contend::spawn_waiting,
    raw::EPHEMERAL_SEQUENTIAL,
    recipe::{Lock, over_recipes, rows},
    scene::{SOON, full_path, queue, session, session_of, until_empty, until_state, until_watched},
    until,
};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::{
    collections::HashSet,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread::{self, Scope},
    time::{Duration, Instant},
};
use zk_mutex::{Error, LossReason, SessionState, ZkSession};

const PATH: &str = "/locks/orders";
/// Long enough for a wrong grant to show.
const A_WHILE: Duration = Duration::from_millis(400);

/// A chroot at the shared server, and the nodes in the lock's folder there.
struct Folder {
    at: String,
}

impl Folder {
    fn new() -> Folder {
        Folder { at: Shared::chroot() }
    }

    fn raw(&self) -> Raw {
        Raw::connect(&self.at).unwrap()
    }

    fn names(&self) -> HashSet<String> {
        queue(&self.at, PATH).into_iter().collect()
    }

    fn full(&self, path: &str) -> String {
        full_path(&self.at, path)
    }

    fn node(&self, name: &str) -> String {
        self.full(&format!("{PATH}/{name}"))
    }

    fn lock(&self, recipe: Recipe) -> (ZkSession, Lock) {
        let session = session(&self.at);
        let lock = recipe.make(&session, PATH);
        (session, lock)
    }

    /// A session through a proxy.
    fn proxied(&self, recipe: Recipe, timeout: Duration) -> (Proxy, ZkSession, Lock) {
        let (host, chroot) = self.at.split_once('/').unwrap();
        let proxy = Proxy::start(host.parse().unwrap());
        let session = session_of(&format!("{}/{chroot}", proxy.connect_string()), timeout);
        let lock = recipe.make(&session, PATH);
        (proxy, session, lock)
    }

    /// Waits for one more node than `before`, and returns its name.
    fn newcomer(&self, before: &HashSet<String>) -> String {
        until("a new node in the queue", SOON, || self.names().difference(before).next().cloned())
    }

    /// The path at which another client makes its node.
    fn foreign(&self, recipe: Recipe) -> String {
        let id = "_c_0c8f8d6e-6c0f-4f0e-9d55-0a1b2c3d4e5f";
        self.full(&format!("{}/{id}{}", recipe.folder(PATH), recipe.foreign_mark()))
    }

    fn delete(&self, name: &str) {
        self.raw().delete(&self.node(name)).unwrap();
    }

    fn end(&self) {
        until_empty(&self.at, PATH);
    }
}

/// A thread that locks, reports it, and unlocks on request.
struct Contender {
    granted: Receiver<String>,
    release: Sender<()>,
}

/// `inside` counts valid holders; it must never be more than one.
fn contend<'s>(scope: &'s Scope<'s, '_>, lock: &'s Lock, inside: &'s AtomicUsize) -> Contender {
    let (tell, granted) = bounded(1);
    let (release, released) = bounded::<()>(1);
    scope.spawn(move || {
        let guard = lock.lock().unwrap();
        assert_eq!(inside.fetch_add(1, SeqCst), 0, "two holders");
        tell.send(guard.path().to_owned()).unwrap();
        released.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(guard.is_held(), "{:?}", guard.lost_reason());
        inside.fetch_sub(1, SeqCst);
        guard.unlock().unwrap();
    });
    Contender { granted, release }
}

impl Contender {
    #[track_caller]
    fn granted(&self) -> String {
        match self.granted.recv_timeout(SOON) {
            Ok(path) => path.strip_prefix(PATH).unwrap()[1..].to_owned(),
            Err(_) => panic!("not granted"),
        }
    }

    fn release(&self) {
        self.release.send(()).unwrap();
    }

    #[track_caller]
    fn still_waits(&self) {
        thread::sleep(A_WHILE);
        assert!(self.granted.is_empty(), "granted too early");
    }
}

// ---- the holder's node ----

fn holder_whose_node_is_deleted_is_notified_at_once_if_it_took_the_signal(recipe: Recipe) {
    let folder = Folder::new();
    let (_session, lock) = folder.lock(recipe);
    let guard = lock.lock().unwrap();
    let (lost, clone) = (guard.lost(), guard.lost().clone());
    until_watched(&folder.at, &guard); // the watch is set
    folder.delete(&queue(&folder.at, PATH)[0]);
    for signal in [&lost, &clone] {
        assert!(signal.wait(SOON).is_some());
        assert_eq!(signal.reason(), Some(LossReason::NodeDeleted));
    }
    let gone = Error::Lost { path: guard.path().to_owned(), reason: LossReason::NodeDeleted };
    assert_eq!((guard.is_held(), guard.check()), (false, Err(gone.clone())));
    assert_eq!(guard.unlock(), Err(gone));
    folder.end();
}

fn holder_whose_node_is_deleted_is_notified_once_it_has_held_a_little(recipe: Recipe) {
    let folder = Folder::new();
    let (_session, lock) = folder.lock(recipe);
    let guard = lock.lock().unwrap();
    thread::sleep(A_WHILE); // the scenario must not ask for the signal
    folder.delete(&queue(&folder.at, PATH)[0]);
    until("the loss is known", SOON, || (!guard.is_held()).then_some(()));
    assert_eq!(guard.lost_reason(), Some(LossReason::NodeDeleted));
    drop(guard);
    folder.end();
}

fn holder_whose_node_is_deleted_right_after_the_grant_is_notified(recipe: Recipe) {
    let folder = Folder::new();
    let (_session, lock) = folder.lock(recipe);
    let guard = lock.lock().unwrap();
    folder.delete(&queue(&folder.at, PATH)[0]);
    until("the loss is known", SOON, || (!guard.is_held()).then_some(()));
    assert_eq!(guard.lost_reason(), Some(LossReason::NodeDeleted));
    drop(guard);
    folder.end();
}

fn data_set_on_the_holders_node_is_no_loss_and_its_later_deletion_is_noticed(recipe: Recipe) {
    let folder = Folder::new();
    let (_session, lock) = folder.lock(recipe);
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    until_watched(&folder.at, &guard);
    let node = queue(&folder.at, PATH).remove(0);
    for data in [&b"revoke"[..], b"revoke again"] {
        folder.raw().set_data(&folder.node(&node), data).unwrap();
        assert!(lost.wait(A_WHILE).is_none());
        assert!(guard.is_held());
    }
    folder.delete(&node);
    assert!(lost.wait(SOON).is_some());
    assert_eq!(lost.reason(), Some(LossReason::NodeDeleted));
    drop(guard);
    folder.end();
}

fn lost_guard_blocks_no_thread_and_its_late_drop_affects_no_other(recipe: Recipe) {
    let folder = Folder::new();
    let (session, lock) = folder.lock(recipe);
    let sole = recipe.sole().make(&session, PATH);
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    until_watched(&folder.at, &guard);
    folder.delete(&queue(&folder.at, PATH)[0]);
    assert!(lost.wait(SOON).is_some());
    if recipe.is_a_threads() {
        let said = lock.lock().map(drop);
        assert!(
            matches!(said, Err(Error::Lost { reason: LossReason::NodeDeleted, .. })),
            "{said:?}"
        );
    }
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        let other = contend(scope, &lock, &inside);
        let theirs = other.granted();
        assert!(!guard.is_held(), "a loss is final");
        drop(guard);
        lock.contenders().unwrap(); // a delete by the drop would be answered before this
        assert_eq!(folder.names(), HashSet::from([theirs]));
        let third = contend(scope, &sole, &inside);
        third.still_waits();
        other.release();
        third.granted();
        third.release();
    });
    // The thread can lock again, once its lost guard is dropped.
    lock.lock().unwrap().unlock().unwrap();
    folder.end();
}

// ---- a waiter's node ----

fn waiter_whose_node_is_deleted_between_two_others_queues_again(recipe: Recipe) {
    let folder = Folder::new();
    let (_a, first) = folder.lock(recipe.sole());
    let (_b, second) = folder.lock(recipe);
    let (_c, third) = folder.lock(recipe.sole());
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        let one = contend(scope, &first, &inside);
        one.granted();
        let before = folder.names();
        let two = contend(scope, &second, &inside);
        let middle = folder.newcomer(&before);
        let before = folder.names();
        let three = contend(scope, &third, &inside);
        let last = folder.newcomer(&before);
        three.still_waits();
        folder.delete(&middle);
        let again = until("the second has queued again", SOON, || {
            let names = folder.names();
            (names.len() == 3)
                .then(|| names.into_iter().find(|name| !before.contains(name) && *name != last))?
        });
        assert_ne!(again, middle);
        three.still_waits();
        assert!(two.granted.is_empty());
        one.release();
        assert_eq!(three.granted(), last);
        two.still_waits();
        three.release();
        assert_eq!(two.granted(), again);
        two.release();
    });
    folder.end();
}

fn waiter_whose_node_is_deleted_while_first_in_line_queues_again(recipe: Recipe) {
    let folder = Folder::new();
    let [(_a, first), (_b, second)] = [folder.lock(recipe.rival()), folder.lock(recipe)];
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        let one = contend(scope, &first, &inside);
        one.granted();
        let before = folder.names();
        let two = contend(scope, &second, &inside);
        let own = folder.newcomer(&before);
        folder.delete(&own);
        let again = until("the waiter has queued again", SOON, || {
            folder.names().difference(&before).find(|name| **name != own).cloned()
        });
        two.still_waits();
        one.release();
        assert_eq!(two.granted(), again);
        two.release();
    });
    folder.end();
}

/// The waiter's node and the one ahead are deleted at once. The last event must not make the waiter
/// a holder without a node.
fn waiter_whose_node_is_deleted_just_before_its_predecessors_is_not_granted_without_a_node(
    recipe: Recipe,
) {
    let folder = Folder::new();
    let (_session, lock) = folder.lock(recipe);
    let mut foreign = folder.raw();
    foreign.mkdirs(&folder.full(&recipe.folder(PATH))).unwrap();
    let inside = AtomicUsize::new(0);
    for _ in 0..20 {
        let ahead = foreign.create(&folder.foreign(recipe), b"java", EPHEMERAL_SEQUENTIAL).unwrap();
        let before = folder.names();
        thread::scope(|scope| {
            let waiter = contend(scope, &lock, &inside);
            let own = folder.newcomer(&before);
            thread::sleep(Duration::from_millis(100)); // its own node is watched after 50 ms
            foreign.delete(&folder.node(&own)).unwrap();
            foreign.delete(&ahead).unwrap();
            let granted = waiter.granted();
            assert_ne!(granted, own);
            assert_eq!(folder.names(), HashSet::from([granted]));
            waiter.release();
        });
    }
    folder.end();
}

fn folder_deleted_while_one_holds_and_two_wait_grants_one_after_the_other(recipe: Recipe) {
    let folder = Folder::new();
    // New nodes come when the folder is deleted: those of the waiters, and that of a leader, which
    // queues again at once.
    let timeout = Duration::from_secs(24);
    let (proxy_a, _a, first) = folder.proxied(recipe.sole(), timeout);
    let (proxy_b, _b, second) = folder.proxied(recipe, timeout);
    let (proxy_c, _c, third) = folder.proxied(recipe.sole(), timeout);
    let inside = AtomicUsize::new(0);
    let guard = first.lock().unwrap();
    let lost = guard.lost();
    until_watched(&folder.at, &guard);
    thread::scope(|scope| {
        let two = contend(scope, &second, &inside);
        let three = contend(scope, &third, &inside);
        until("both wait", SOON, || (folder.names().len() == 3).then_some(()));
        two.still_waits();
        let proxies = [&proxy_a, &proxy_b, &proxy_c];
        proxies.into_iter().for_each(|proxy| proxy.hold(Direction::ToServer, true));
        // From the end of the queue, so that no waiter becomes the first before the folder is
        // deleted.
        let (mut raw, mut names) = (folder.raw(), queue(&folder.at, PATH));
        names.sort_by_key(|name| std::cmp::Reverse(name[name.len() - 10..].to_owned()));
        names.iter().for_each(|name| raw.delete(&folder.node(name)).unwrap());
        raw.delete(&folder.full(PATH)).unwrap();
        proxies.into_iter().for_each(|proxy| proxy.hold(Direction::ToServer, false));
        assert!(lost.wait(SOON).is_some());
        assert_eq!(lost.reason(), Some(LossReason::NodeDeleted));
        assert!(!guard.is_held());
        drop(guard);
        let (next, last) = crossbeam_channel::select! {
            recv(two.granted) -> _ => (&two, &three),
            recv(three.granted) -> _ => (&three, &two),
            default(SOON) => panic!("no waiter was granted the lock"),
        };
        last.still_waits();
        next.release();
        last.granted();
        last.release();
    });
    folder.end();
}

// ---- events while a listing is under way ----

/// Waits until one more event about this node than `before` stands in the proxy, behind the replies
/// that it holds back.
#[track_caller]
fn until_event_behind(proxy: &Proxy, node: &str, before: usize) {
    until("the event stands behind the reply", SOON, || {
        (proxy.events(node) > before).then_some(())
    });
}

/// Three contenders in a row. The last one's final listing is held up on its way back, and
/// meanwhile its node is deleted. Returns the contenders of the last one and of the one before it,
/// as `meanwhile` left them.
fn deleted_while_the_listing_travels(
    recipe: Recipe,
    also: impl FnOnce(&Folder, &str) + Send,
    then: impl FnOnce(&Folder, &Contender, &Contender, &str),
) {
    let folder = Folder::new();
    let [(_a, first), (_b, second)] = [folder.lock(recipe.sole()), folder.lock(recipe.sole())];
    let (proxy, _session, third) = folder.proxied(recipe, Duration::from_secs(12));
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        let one = contend(scope, &first, &inside);
        let holder = one.granted();
        let before = folder.names();
        let two = contend(scope, &second, &inside);
        let middle = folder.newcomer(&before);
        let before = folder.names();
        let three = contend(scope, &third, &inside);
        let own = folder.newcomer(&before);
        until("the last one watches its own node", SOON, || {
            (proxy.count(OpKind::GetData.on(&own)) > 0).then_some(())
        });
        // The middle contender releases, so the last one lists again.
        let listed = proxy.hold_reply(OpKind::GetChildren, SOON);
        folder.delete(&middle);
        let again = folder.newcomer(&HashSet::from([holder.clone(), middle, own.clone()]));
        // The listing is made, and shows the last contender directly behind the holder.
        listed.wait();
        let before = proxy.events(&folder.node(&own));
        also(&folder, &own);
        until_event_behind(&proxy, &folder.node(&own), before);
        proxy.hold(Direction::ToClient, false);
        thread::sleep(A_WHILE);
        assert!(three.granted.is_empty() && two.granted.is_empty());
        one.release();
        let _ = again;
        then(&folder, &two, &three, &own);
    });
    folder.end();
}

fn waiter_whose_node_is_deleted_behind_its_listing_is_not_granted_beside_another(recipe: Recipe) {
    deleted_while_the_listing_travels(
        recipe,
        |folder, own| folder.delete(own),
        |folder, two, three, own| {
            two.granted();
            three.still_waits();
            two.release();
            assert_ne!(three.granted(), own);
            assert_eq!(folder.names().len(), 1);
            three.release();
        },
    );
}

fn data_set_behind_the_listing_does_not_disturb_the_queue(recipe: Recipe) {
    deleted_while_the_listing_travels(
        recipe,
        |folder, own| assert!(folder.raw().set_data(&folder.node(own), b"hello").is_ok()),
        |_, two, three, own| {
            assert_eq!(three.granted(), own);
            three.release();
            two.granted();
            two.release();
        },
    );
}

fn holder_whose_node_is_deleted_behind_the_listing_that_grants_it_is_notified(recipe: Recipe) {
    let folder = Folder::new();
    let [(_a, first), (_b, second)] = [folder.lock(recipe.sole()), folder.lock(recipe.sole())];
    let (proxy, _session, third) = folder.proxied(recipe, Duration::from_secs(12));
    let (holder, mut raw) = (first.lock().unwrap(), folder.raw());
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        let before = folder.names();
        let two = contend(scope, &second, &inside);
        folder.newcomer(&before);
        let before = folder.names();
        let (tell, told) = bounded(1);
        let (release, released) = bounded::<()>(0);
        scope.spawn(move || {
            let guard = match third.lock() {
                Ok(guard) => guard,
                // A member of a multi-lock that is lost while the next one is taken.
                Err(Error::Lost { reason: LossReason::NodeDeleted, .. })
                    if recipe == Recipe::Multi =>
                {
                    return;
                }
                Err(e) => panic!("{e}"),
            };
            // The last contender to be granted the lock; it may have the deleted node, or a new
            // one.
            tell.send((guard.path().to_owned(), guard.lost())).unwrap();
            let _ = released.recv(); // waits until the other end is dropped
        });
        let own = folder.newcomer(&before);
        until("the waiter watches its own node", SOON, || {
            (proxy.count(OpKind::GetData.on(&own)) > 0).then_some(())
        });
        // In a herd the release wakes the third too, and it lists. On a busy machine the server may
        // answer that only when the second has released: then no other listing follows.
        let is_woken = recipe == Recipe::Herd;
        let woken = is_woken.then(|| proxy.on_reply(OpKind::GetChildren, SOON));
        holder.unlock().unwrap();
        two.granted();
        if let Some(woken) = woken {
            woken.wait();
        }
        let listed = proxy.hold_reply(OpKind::GetChildren, SOON);
        two.release();
        listed.wait();
        let before = proxy.events(&folder.node(&own));
        raw.delete(&folder.node(&own)).unwrap();
        until_event_behind(&proxy, &folder.node(&own), before);
        proxy.hold(Direction::ToClient, false);
        let granted = match told.recv_timeout(SOON) {
            Err(RecvTimeoutError::Disconnected) => None,
            granted => Some(granted.expect("the lock is granted, or the loss is reported")),
        };
        if let Some((_, lost)) = granted.filter(|(path, _)| path.ends_with(&own)) {
            let told = lost.wait(SOON);
            assert_eq!(
                told,
                Some(LossReason::NodeDeleted),
                "the guard is valid although its node is deleted"
            );
        }
        drop(release);
    });
    folder.end();
}

/// The event comes right behind the answer to the read that set its watch. A waiter that registers
/// for the event only after this answer would sleep on.
fn event_that_comes_with_the_answer_that_armed_its_watch_is_not_missed(recipe: Recipe) {
    node_ahead_is_deleted_while_its_read_travels(
        recipe,
        |_, _| (),
        |own, granted| assert_eq!(granted, own),
    );
}

/// Two nodes are deleted while the answers to the reads that set the watches are under way: first
/// the waiter's own, then the one ahead. The deletion of the node ahead must not grant the lock.
fn waiter_whose_node_is_deleted_while_its_reads_travel_is_not_granted_without_a_node(
    recipe: Recipe,
) {
    node_ahead_is_deleted_while_its_read_travels(
        recipe,
        |folder, own| folder.delete(own),
        |own, granted| assert_ne!(granted, own),
    );
}

fn node_ahead_is_deleted_while_its_read_travels(
    recipe: Recipe,
    before: impl FnOnce(&Folder, &str),
    then: impl FnOnce(String, String),
) {
    let folder = Folder::new();
    let (_a, first) = folder.lock(recipe.sole());
    let (proxy, _b, second) = folder.proxied(recipe, Duration::from_secs(30));
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        let one = contend(scope, &first, &inside);
        let holder = one.granted();
        let read = proxy.hold_reply(OpKind::GetData.on(&holder), SOON);
        let two = contend(scope, &second, &inside);
        let own = folder.newcomer(&HashSet::from([holder.clone()]));
        read.wait();
        before(&folder, &own);
        one.release();
        // The holder's node goes last, so this is the last of the events.
        until_event_behind(&proxy, &folder.node(&holder), 0);
        proxy.hold(Direction::ToClient, false);
        then(own, two.granted());
        two.release();
    });
    folder.end();
}

// ---- a foreign predecessor ----

fn revocation_on_the_node_ahead_arms_the_watch_again(recipe: Recipe) {
    let folder = Folder::new();
    let (_session, lock) = folder.lock(recipe);
    let mut foreign = folder.raw();
    foreign.mkdirs(&folder.full(&recipe.folder(PATH))).unwrap();
    let ahead = foreign.create(&folder.foreign(recipe), b"java", EPHEMERAL_SEQUENTIAL).unwrap();
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        let waiter = contend(scope, &lock, &inside);
        until("it waits", SOON, || (folder.names().len() == 2).then_some(()));
        for _ in 0..3 {
            waiter.still_waits();
            foreign.set_data(&ahead, b"__REVOKE__").unwrap();
        }
        waiter.still_waits();
        foreign.delete(&ahead).unwrap();
        waiter.granted();
        waiter.release();
    });
    folder.end();
}

fn node_ahead_that_goes_while_the_waiter_is_cut_off_is_not_missed(recipe: Recipe) {
    let folder = Folder::new();
    let (proxy, session, lock) = folder.proxied(recipe, Duration::from_secs(12));
    let mut foreign = folder.raw();
    foreign.mkdirs(&folder.full(&recipe.folder(PATH))).unwrap();
    let name = folder.foreign(recipe);
    let ahead = foreign.create(&name, b"java", EPHEMERAL_SEQUENTIAL).unwrap();
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        let waiter = contend(scope, &lock, &inside);
        until("it waits", SOON, || recipe.waits(&proxy).then_some(()));
        let id = session.status().session_id;
        proxy.refuse(true);
        proxy.cut();
        until_state(&session, SessionState::Suspended);
        foreign.delete(&ahead).unwrap();
        waiter.still_waits();
        proxy.refuse(false);
        waiter.granted();
        assert_eq!(session.status().session_id, id);
        waiter.release();
    });
    folder.end();
}

/// No event reaches the waiter: after it has reconnected, its own node is missing in its listing.
fn waiter_whose_node_is_deleted_while_it_is_cut_off_queues_again(recipe: Recipe) {
    let folder = Folder::new();
    let (_a, first) = folder.lock(recipe.sole());
    let (proxy, session, second) = folder.proxied(recipe, Duration::from_secs(12));
    let inside = AtomicUsize::new(0);
    thread::scope(|scope| {
        let one = contend(scope, &first, &inside);
        let holder = one.granted();
        let two = contend(scope, &second, &inside);
        let own = folder.newcomer(&HashSet::from([holder.clone()]));
        until("it waits", SOON, || recipe.waits(&proxy).then_some(()));
        proxy.refuse(true);
        proxy.cut();
        until_state(&session, SessionState::Suspended);
        folder.delete(&own);
        proxy.refuse(false);
        let again = folder.newcomer(&HashSet::from([holder, own]));
        two.still_waits();
        one.release();
        assert_eq!(two.granted(), again);
        two.release();
    });
    folder.end();
}

/// The holder's node is deleted, and the waiter's right after it, as when an administrator wipes
/// the folder.
fn waiter_whose_node_is_deleted_while_it_is_granted_does_not_believe_in_it(recipe: Recipe) {
    let folder = Folder::new();
    let (_theirs, other) = folder.lock(recipe.rival());
    let (_ours, lock) = folder.lock(recipe);
    let mut foreign = folder.raw();
    for round in 0..10 {
        let guard = other.lock().unwrap();
        let before = folder.names();
        thread::scope(|scope| {
            let waiter = spawn_waiting(scope, || {
                let guard = match lock.lock() {
                    Ok(guard) => guard,
                    // A member of a multi-lock.
                    Err(e) => return assert!(matches!(e, Error::Lost { .. }), "{e}"),
                };
                let path = guard.path().to_owned();
                let mut raw = folder.raw();
                until("the guard and the node agree", SOON, || {
                    (guard.is_held() == raw.exists(&folder.full(&path)).unwrap().is_some())
                        .then_some(())
                });
            });
            let mine = folder.newcomer(&before);
            for name in before.iter().chain([&mine]) {
                let _ = foreign.delete(&folder.node(name));
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_micros(round * 4) {}
            }
            waiter.join().unwrap();
        });
        drop(guard);
    }
}

pub fn tests() -> Vec<Test> {
    let rows = rows![
        Recipe::any =>
        holder_whose_node_is_deleted_is_notified_at_once_if_it_took_the_signal,
        holder_whose_node_is_deleted_is_notified_once_it_has_held_a_little,
        holder_whose_node_is_deleted_right_after_the_grant_is_notified,
        data_set_on_the_holders_node_is_no_loss_and_its_later_deletion_is_noticed;
        Recipe::queues =>
        waiter_whose_node_is_deleted_while_first_in_line_queues_again,
        waiter_whose_node_is_deleted_just_before_its_predecessors_is_not_granted_without_a_node,
        revocation_on_the_node_ahead_arms_the_watch_again,
        node_ahead_that_goes_while_the_waiter_is_cut_off_is_not_missed;
        Recipe::is_lock_that_queues =>
        lost_guard_blocks_no_thread_and_its_late_drop_affects_no_other,
        waiter_whose_node_is_deleted_while_it_is_granted_does_not_believe_in_it;
        Recipe::waits_in_one_row =>
        waiter_whose_node_is_deleted_between_two_others_queues_again,
        folder_deleted_while_one_holds_and_two_wait_grants_one_after_the_other,
        waiter_whose_node_is_deleted_behind_its_listing_is_not_granted_beside_another,
        data_set_behind_the_listing_does_not_disturb_the_queue,
        holder_whose_node_is_deleted_behind_the_listing_that_grants_it_is_notified,
        waiter_whose_node_is_deleted_while_it_is_cut_off_queues_again;
        Recipe::watches_the_node_ahead =>
        event_that_comes_with_the_answer_that_armed_its_watch_is_not_missed,
        waiter_whose_node_is_deleted_while_its_reads_travel_is_not_granted_without_a_node;
    ];
    over_recipes(module_path!(), On::Both, rows)
}
