//! Each recipe on each brand of server: ZooKeeper 3.8, 3.9, a Keeper, which has no containers and
//! resumes no session, and a server that numbers its nodes with more than ten digits.
use crate::support::{
    On, Raw, Test, Variant,
    contend::{Section, session, stat, until_queue},
    embedded::{is_connected, raw},
    logged::logged,
    raw::EPHEMERAL_SEQUENTIAL,
    recipe::{Recipe, over_recipes, rows},
    scenarios,
    scene::{SOON, queue, session_of, until_empty, until_event},
    until,
};
use log::Level;
use std::{sync::Arc, thread, time::Duration};
use zk_mutex::{Error, LossReason, OptionalExt, SessionState, ZkMutex, ZkRwLock};
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

/// This version answers the question whether a node exists only to clients that may read the node.
fn a_chroot_that_the_session_may_not_read_exists_on_39() {
    let (_server, at) = start(Brand::ZooKeeper39);
    let mut raw = raw(&at);
    raw.mkdirs("/app").unwrap();
    raw.set_acl("/app", 31 & !1).unwrap(); // no READ
    let ours = session(&format!("{at}/app"));
    ZkMutex::new(&ours, "/locks/orders").unwrap().lock().unwrap().unlock().unwrap();
}

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
        assert_eq!(digits, if brand == Brand::WideNumbers { 11 } else { 10 }, "{}", guard.path());
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

fn recipe_works_where_numbers_have_eleven_digits(recipe: Recipe) {
    on(Brand::WideNumbers, recipe);
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
        (other.status().state == SessionState::Connected).then_some(())
    });
    // The former session lives on at the server, and keeps the lock.
    if server.sessions().iter().any(|session| session.id == former) {
        assert!(others.try_lock().optional().unwrap().is_none() || stat(&at, &path).is_none());
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
    // Each is the first create of a flight that makes the folders, and follows a create of the
    // contender's node alone, which has found no parent.
    server.drop_request(Op::Create.on("/app").skip(1));
    server.drop_request(Op::Create.on("/app").skip(2));
    let guard = mutex.lock().unwrap();
    assert_eq!(server.pending_faults(), 0, "both were met");
    guard.unlock().unwrap();
    // A container would be gone soon.
    thread::sleep(Duration::from_millis(300));
    assert!(stat(&at, LOCK).is_some(), "persistent");
    assert!(mutex.try_lock().optional().unwrap().is_some());
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
    assert!(
        theirs.try_lock().optional().unwrap().is_some(),
        "whether its parents are there or not"
    );
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

/// On a server without containers a session deletes the folders that it made. An operator may have
/// made one of them the operator's own meanwhile.
fn a_folder_that_an_operator_has_taken_over_stays() {
    let take_over: [fn(&mut Raw); 3] = [
        |raw| assert!(raw.set_data(LOCK, b"owner: payments").is_ok()),
        |raw| raw.set_acl(LOCK, 31).unwrap(),
        |raw| {
            raw.delete(LOCK).unwrap();
            raw.mkdirs(LOCK).unwrap();
        },
    ];
    let (_server, at) = start(Brand::Keeper);
    for take_over in take_over {
        let session = session(&at);
        drop(ZkMutex::new(&session, LOCK).unwrap().lock().unwrap());
        until_empty(&at, LOCK);
        let mut raw = raw(&at);
        take_over(&mut raw);
        let before = raw.exists(LOCK).unwrap();
        session.close().unwrap();
        assert_eq!(raw.exists(LOCK).unwrap(), before);
        raw.delete(LOCK).unwrap();
    }
}

// ---- numbers ----

/// Numbers of ten digits and of eleven in one queue. Those of ten that ZooKeeper gives out come
/// first; the others follow by their age.
fn numbers_that_grow_by_a_digit_keep_their_order() {
    let (_server, at) = start(Brand::ZooKeeper38);
    let session = session(&at);
    // A folder that the mutex made would be a container, which the server deletes while it is empty.
    let mut raw: Raw = raw(&at);
    raw.mkdirs(LOCK).unwrap();
    let mutex = ZkMutex::new(&session, LOCK).unwrap();
    drop(mutex.lock().unwrap());
    for number in ["4294967296", "10000000000", "9999999999", "0000000007"] {
        let name = format!("{LOCK}/_c_{}-lock-{number}", uuid::Uuid::new_v4());
        raw.create(&name, b"", 1).unwrap();
    }
    let numbers: Vec<i64> =
        mutex.contenders().unwrap().iter().map(|c| number_of(&c.path)).collect();
    assert_eq!(numbers, [7, 4_294_967_296, 10_000_000_000, 9_999_999_999]);
    assert_eq!(number_of(&mutex.holders().unwrap()[0].path), 7);
    assert!(logged(Level::Error, "").is_empty());
    assert_eq!(queue(&at, LOCK).len(), 4);
}

/// The numbers of this server stop, and then begin anew below those that it gave out before. A
/// client that took the lowest number for the first contender would find two holders.
fn holders_exclude_each_other_where_numbers_of_eleven_digits_begin_anew() {
    let (server, at) = start(Brand::WideNumbers);
    raw(&at).mkdirs(&format!("{LOCK}/keeps-it")).unwrap(); // a folder that is not made anew
    let sessions = [session(&at), session(&at)];
    for left in [0, 1, 2] {
        server.set_sequence(LOCK, i32::MAX - left).unwrap();
        let mut raw = raw(&at);
        let names: Vec<String> =
            (0..6).map(|_| format!("{LOCK}/_c_{}-lock-", uuid::Uuid::new_v4())).collect();
        // Pipelined creates: some of the numbers have begun anew.
        let ahead = until("numbers begin anew", SOON, || {
            let made = raw.create_at_once(&names, EPHEMERAL_SEQUENTIAL).unwrap();
            if made.iter().any(|node| number_of(node) < 10_000_000_000) {
                return Some(made);
            }
            made.iter().for_each(|node| raw.delete(node).unwrap());
            None
        });
        let section = Section::default();
        thread::scope(|scope| {
            for session in &sessions {
                let section = &section;
                scope.spawn(move || {
                    let mutex = ZkMutex::new(session, LOCK).unwrap();
                    for _ in 0..ROUNDS {
                        let guard = mutex.lock().unwrap();
                        section.pass();
                        guard.unlock().unwrap();
                    }
                });
            }
            until_queue(&at, LOCK, ahead.len() + 1 + sessions.len());
            let numbers: Vec<i64> = ZkMutex::new(&sessions[0], LOCK)
                .unwrap()
                .contenders()
                .unwrap()
                .iter()
                .map(|contender| number_of(&contender.path))
                .collect();
            let made: Vec<i64> = ahead.iter().map(|node| number_of(node)).collect();
            assert_eq!(numbers[..made.len()], made, "in the order of their age");
            for node in &ahead {
                assert_eq!(section.counter(), 0, "{node} is ahead");
                raw.delete(node).unwrap();
            }
        });
        assert_eq!(section.counter(), sessions.len() * ROUNDS);
    }
    assert_eq!(logged(Level::Error, ""), [""; 0]);
}

/// A read that is made later cannot have the place of a write whose number carries no order.
fn a_downgrade_is_refused_where_numbers_have_eleven_digits() {
    let (_server, at) = start(Brand::WideNumbers);
    let session = session(&at);
    let lock = ZkRwLock::new(&session, LOCK).unwrap();
    let _write = lock.write().unwrap();
    let refused = lock.read().unwrap_err();
    let is_refusal = matches!(&refused, Error::Server { code, .. } if code == "NumbersUsedUp");
    assert!(is_refusal && refused.to_string().contains("carry no order"), "{refused}");
}

fn number_of(node: &str) -> i64 {
    node.rsplit_once('-').unwrap().1.parse().unwrap()
}

pub fn tests() -> Vec<Test> {
    let rows = rows![Recipe::any =>
        recipe_works_on_3_9,
        recipe_works_on_a_keeper,
        recipe_works_where_numbers_have_eleven_digits;
        Recipe::is_lock_that_queues => holder_whose_session_was_swapped_loses_its_hold_and_gets_another,
    ];
    let mut all = over_recipes(module_path!(), On::Only(Variant::Embedded), rows);
    all.extend(scenarios![@list
        a_chroot_that_the_session_may_not_read_exists_on_39 on embedded,
        a_container_whose_connection_is_lost_twice_is_made_persistent_and_goes_when_empty on embedded,
        parents_on_a_keeper_stay_while_somebody_uses_them on embedded,
        a_node_that_somebody_else_made_is_not_deleted on embedded,
        a_folder_that_an_operator_has_taken_over_stays on embedded,
        numbers_that_grow_by_a_digit_keep_their_order on embedded,
        holders_exclude_each_other_where_numbers_of_eleven_digits_begin_anew on embedded,
        a_downgrade_is_refused_where_numbers_have_eleven_digits on embedded,
    ]);
    all
}
