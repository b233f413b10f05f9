//! Each recipe on each brand of server: ZooKeeper 3.8, 3.9, and a Keeper, which has no containers,
//! resumes no session, and numbers its nodes with more than ten digits.
use crate::support::{
    On, Raw, Test, Variant,
    contend::{Section, session, stat, until_queue},
    embedded::{is_connected, raw},
    logged::logged,
    recipe::{Recipe, over_recipes, rows},
    scenarios,
    scene::{SOON, queue, session_of, until_empty, until_event},
    until,
};
use log::Level;
use std::{sync::Arc, thread, time::Duration};
use zk_mutex::{LossReason, SessionState, ZkMutex};
use zk_test_server::{Brand, Op, TestServer};

const LOCK: &str = "/app/locks/orders";
const ROUNDS: usize = 5;

fn start(brand: Brand) -> (TestServer, String) {
    let server = TestServer::builder().brand(brand).tick(Duration::from_millis(100));
    let server = server.container_check_interval(Duration::from_millis(50)).start().unwrap();
    let at = server.connect_string();
    (server, at)
}

// ---- each recipe ----

/// The holders of two sessions and four threads exclude each other, and nothing is left.
fn on(brand: Brand, recipe: Recipe) {
    let (_server, at) = start(brand);
    let sessions = [session(&at), session(&at)];
    // The first session makes the parents, and so it deletes them where the server does not.
    recipe.sole().make(&sessions[0], LOCK).lock().unwrap().unlock().unwrap();
    let section = Section::default();
    thread::scope(|scope| {
        for session in &sessions {
            let (lock, section) = (Arc::new(recipe.sole().make(session, LOCK)), &section);
            for _ in 0..2 {
                let lock = Arc::clone(&lock);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let guard = lock.lock().unwrap();
                        section.pass();
                        guard.unlock().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(section.counter(), sessions.len() * 2 * ROUNDS);
    until_empty(&at, LOCK);
    let lock = recipe.make(&sessions[0], LOCK);
    let guard = lock.lock().unwrap();
    if recipe.queues() {
        let digits = guard.path().bytes().rev().take_while(u8::is_ascii_digit).count();
        assert_eq!(digits, if brand == Brand::Keeper { 11 } else { 10 }, "{}", guard.path());
    }
    guard.unlock().unwrap();
    sessions.iter().rev().for_each(|session| session.close().unwrap());
    // Containers go by themselves; a semaphore's own node is none, because it has data.
    let path = if recipe == Recipe::Permit { "/app/locks/orders/leases" } else { "/app" };
    until("its parents go", SOON, || stat(&at, path).is_none().then_some(()));
    assert_eq!(logged(Level::Error, ""), [""; 0]);
}

fn recipe_works_on_3_9(recipe: Recipe) {
    on(Brand::ZooKeeper39, recipe);
}

fn recipe_works_on_a_keeper(recipe: Recipe) {
    on(Brand::Keeper, recipe);
}

/// The server has given the client another session without a word. The former session's node keeps
/// others out until the server has expired it.
fn holder_whose_session_was_swapped_loses_its_hold_and_gets_another(recipe: Recipe) {
    let (server, at) = start(Brand::Keeper);
    let session = session_of(&at, Duration::from_secs(6));
    let other = session_of(&at, Duration::from_secs(6));
    let (lock, others) = (recipe.sole().make(&session, LOCK), recipe.sole().make(&other, LOCK));
    let events = session.subscribe();
    let guard = lock.lock().unwrap();
    let (lost, path) = (guard.lost(), guard.path().to_owned());
    let former = stat(&at, &path).unwrap().ephemeral_owner;
    server.cut_connections();
    assert_eq!(lost.wait(SOON), Some(LossReason::SessionExpired));
    assert!(!guard.is_held());
    drop(guard);
    until_event(&events, is_connected);
    until("the other session is back", SOON, || {
        (other.state() == SessionState::Connected).then_some(())
    });
    // The former session lives on at the server, and keeps the lock.
    if server.sessions().iter().any(|session| session.id == former) {
        assert!(others.try_lock().unwrap().is_none() || stat(&at, &path).is_none());
        assert!(server.expire_session(former));
    }
    let guard = others.lock().unwrap();
    assert!(guard.is_held() && stat(&at, &path).is_none());
    drop(guard);
    assert!(lock.lock().unwrap().is_held());
}

// ---- parents ----

/// A server that closes the connection at each `createContainer`, but resumes sessions.
fn a_container_whose_connection_is_lost_twice_is_made_persistent_and_goes_when_empty() {
    let (server, at) = start(Brand::ZooKeeper38);
    let session = session(&at);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    // Each follows a create of the contender's node, which finds no parent.
    server.drop_request(Op::Create.on(LOCK).skip(1));
    server.drop_request(Op::Create.on(LOCK).skip(2));
    let guard = mutex.lock().unwrap();
    assert_eq!(server.pending_faults(), 0, "both were met");
    guard.unlock().unwrap();
    // A container would be gone soon.
    thread::sleep(Duration::from_millis(300));
    assert!(stat(&at, LOCK).is_some(), "persistent");
    assert!(mutex.try_lock().unwrap().is_some());
    assert!(logged(Level::Warn, "").iter().any(|line| line.contains("no containers")));
    session.close().unwrap();
    until("the parents go with the session", SOON, || stat(&at, "/app").is_none().then_some(()));
}

fn parents_on_a_keeper_stay_while_somebody_uses_them() {
    let (_server, at) = start(Brand::Keeper);
    let (maker, other) = (session(&at), session(&at));
    let ours = ZkMutex::new(&maker, LOCK).unwrap();
    let theirs = ZkMutex::new(&other, LOCK).unwrap();
    let guard = ours.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| theirs.lock().unwrap().unlock());
        until_queue(&at, LOCK, 2);
        guard.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
    let guard = theirs.lock().unwrap();
    maker.close().unwrap();
    assert!(guard.is_held() && stat(&at, LOCK).is_some());
    drop(guard);
    until_empty(&at, LOCK);
    assert!(theirs.try_lock().unwrap().is_some(), "whether its parents are there or not");
}

fn a_node_that_somebody_else_made_is_not_deleted() {
    let (_server, at) = start(Brand::Keeper);
    raw(&at).mkdirs("/app/locks").unwrap();
    let session = session(&at);
    drop(ZkMutex::new(&session, LOCK).unwrap().lock().unwrap());
    until_empty(&at, LOCK);
    session.close().unwrap();
    until("our own goes", SOON, || stat(&at, LOCK).is_none().then_some(()));
    assert!(stat(&at, "/app/locks").is_some());
}

// ---- numbers ----

/// Numbers of ten digits and of eleven in one queue: the order of the numbers, not of their text.
fn numbers_that_grow_by_a_digit_keep_their_order() {
    let (_server, at) = start(Brand::ZooKeeper38);
    let session = session(&at);
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    drop(mutex.lock().unwrap());
    let mut raw: Raw = raw(&at);
    raw.mkdirs(LOCK).unwrap();
    for number in ["10000000000", "9999999999", "4294967296", "0000000007"] {
        let name = format!("{LOCK}/_c_{}-lock-{number}", uuid::Uuid::new_v4());
        raw.create(&name, b"", 1).unwrap();
    }
    let numbers: Vec<i64> = mutex.contenders().unwrap().iter().map(|c| c.sequence).collect();
    assert_eq!(numbers, [7, 4_294_967_296, 9_999_999_999, 10_000_000_000]);
    assert_eq!(mutex.holders().unwrap()[0].sequence, 7);
    assert!(logged(Level::Error, "").is_empty());
    assert_eq!(queue(&at, LOCK).len(), 4);
}

pub fn tests() -> Vec<Test> {
    let rows = rows![Recipe::any =>
        recipe_works_on_3_9,
        recipe_works_on_a_keeper;
        Recipe::is_lock_that_queues => holder_whose_session_was_swapped_loses_its_hold_and_gets_another,
    ];
    let mut all = over_recipes(module_path!(), On::Only(Variant::Embedded), rows);
    all.extend(scenarios![@list
        a_container_whose_connection_is_lost_twice_is_made_persistent_and_goes_when_empty on embedded,
        parents_on_a_keeper_stay_while_somebody_uses_them on embedded,
        a_node_that_somebody_else_made_is_not_deleted on embedded,
        numbers_that_grow_by_a_digit_keep_their_order on embedded,
    ]);
    all
}
