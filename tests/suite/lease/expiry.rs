//! Exclusion in the hardest case: the server ends a session whose holder is not notified of it.
//! Also the cost of a queue.
use crate::support::{
    Ensemble, Isolation, On, OpKind, Proxy, Raw, Recipe, Request, Server, Shared, Test, at_best,
    contend::Over,
    recipe::{Lock, Row, over_recipes, rows},
    scenarios,
    scene::{SOON, full_path, queue, session_of, until_empty, until_renewed, until_state},
    until,
};
use std::{
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{Error, Held, LossReason, OptionalExt, SessionState, ZkMutex, ZkSession};

const PATH: &str = "/locks/orders";
const SLACK: Duration = Duration::from_millis(1500);

/// The end of a hold for its holder, and the end of its node at a server.
#[derive(Clone, Copy, Debug)]
struct Ends {
    /// The start of the last call of `is_held` that returned true.
    held: Duration,
    /// The time of the first answer that the node does not exist.
    node_gone: Duration,
}

impl Ends {
    #[track_caller]
    fn assert_in_order(self, what: &str) {
        let Ends { held, node_gone } = self;
        println!("{what}: is_held() was true until {held:?}, the node was gone at {node_gone:?}");
        // The threads may run late. But a hold that was valid in a call after this answer was valid
        // beside the next holder's.
        assert!(held < node_gone, "two holders are possible: {self:?}");
    }
}

/// Watches the guard on this thread, and the node by a client without faults, until both have
/// ended.
fn watch_the_end(guard: &Held, node: &str, address: &str, start: Instant, limit: Duration) -> Ends {
    let path = node.to_owned();
    let mut raw = Raw::connect(address).unwrap();
    let ends = thread::scope(|scope| {
        let looker = scope.spawn(move || {
            while raw.exists(&path).unwrap().is_some() {
                assert!(at_best(start) < limit, "the node is still there");
                thread::sleep(Duration::from_millis(2));
            }
            start.elapsed()
        });
        let mut held = Duration::ZERO;
        loop {
            let asked = start.elapsed();
            if !guard.is_held() {
                break;
            }
            held = asked;
            assert!(at_best(start) < limit, "still held");
            thread::sleep(Duration::from_millis(1));
        }
        Ends { held, node_gone: looker.join().unwrap() }
    });
    assert!(!guard.is_held(), "a loss is final");
    ends
}

/// Tries again and again with short limits, all of which must be kept, until it is stopped.
fn keep_trying(other: &Lock, session: &ZkSession, stop: &AtomicBool) -> usize {
    let mut tried = 0;
    while !stop.load(SeqCst) {
        let limit = Duration::from_millis(200);
        let start = Instant::now();
        let said = other.lock_timeout(limit).optional().map(drop);
        assert!(at_best(start) < limit + SLACK, "{:?}", start.elapsed());
        assert!(matches!(said, Ok(()) | Err(Error::Unavailable { .. })), "{said:?}");
        let (start, single) = (Instant::now(), session.status().timeout / 6);
        let said = other.try_lock().optional().map(drop);
        assert!(at_best(start) < single + SLACK, "{:?}", start.elapsed());
        assert!(matches!(said, Ok(()) | Err(Error::Unavailable { .. })), "{said:?}");
        tried += 1;
    }
    tried
}

/// Holds through `victim` while the fault lasts. A contender without the fault gets the lock when
/// the hold is over.
fn outlived(
    recipe: Recipe,
    what: &str,
    victim: &ZkSession,
    clean: &str,
    fault: impl FnOnce(),
    heal: impl FnOnce(Instant),
) {
    let timeout = victim.status().timeout;
    let (lock, spare) = (recipe.make(victim, PATH), recipe.make(victim, "/locks/other"));
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    let node = full_path(clean, guard.path());
    let first = guard.fencing_token();
    let others = session_of(clean, timeout);
    let other = recipe.rival().make(&others, PATH);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let all = Over(&stop);
        let contender = scope.spawn(|| {
            let theirs = other.lock().unwrap();
            (theirs.is_held(), theirs.fencing_token(), Instant::now())
        });
        until("the contender waits", SOON, || (queue(clean, PATH).len() == 2).then_some(()));
        let start = Instant::now();
        fault();
        let tries = scope.spawn(|| keep_trying(&spare, victim, &stop));
        let ends = watch_the_end(&guard, &node, clean, start, timeout * 10);
        let (held, second, granted) = contender.join().unwrap();
        ends.assert_in_order(what);
        assert!(held && second > first);
        assert!(granted - start > ends.held, "granted while the first still held");
        assert!(lost.wait(Duration::ZERO).is_some());
        assert!(
            matches!(guard.lost_reason(), Some(LossReason::LeaseExpired)),
            "{:?}",
            guard.lost_reason()
        );
        heal(start);
        until_state(victim, SessionState::Connected);
        drop(all);
        assert!(tries.join().unwrap() > 0);
    });
    drop(guard);
    // The victim recovers by itself: the same thread locks again.
    let again = lock.lock_timeout(SOON).optional().unwrap().expect("the lock is free");
    assert!(again.is_held());
    again.unlock().unwrap();
    until_empty(clean, PATH);
    until_empty(clean, "/locks/other");
}

/// The session timeout in seconds, and the scenario's name.
const BLACK_HOLES: [(u64, &str); 2] = [
    (3, "holder_in_a_black_hole_stops_before_the_server_lets_the_next_one_in"),
    (6, "holder_in_a_black_hole_stops_in_time_with_a_longer_session"),
];

fn black_hole(recipe: Recipe, timeout: Duration) {
    let at = Shared::chroot();
    let (host, chroot) = at.split_once('/').unwrap();
    let proxy = Proxy::start(host.parse().unwrap());
    let victim = session_of(&format!("{}/{chroot}", proxy.connect_string()), timeout);
    assert_eq!(victim.status().timeout, timeout);
    outlived(
        recipe,
        &format!("black hole, T = {timeout:?}"),
        &victim,
        &at,
        || proxy.black_hole(true),
        |start| {
            thread::sleep((timeout * 3).saturating_sub(start.elapsed()));
            proxy.black_hole(false);
        },
    );
}

/// The lease may end though the session is resumed: the hold stays lost, and the node is deleted
/// with the guard.
fn hold_that_outlived_its_lease_stays_lost_though_its_session_is_resumed(recipe: Recipe) {
    let at = Shared::chroot();
    let (host, chroot) = at.split_once('/').unwrap();
    let proxy = Proxy::start(host.parse().unwrap());
    let timeout = Duration::from_secs(9);
    let victim = session_of(&format!("{}/{chroot}", proxy.connect_string()), timeout);
    let lock = recipe.make(&victim, PATH);
    let id = victim.status().session_id;
    let guard = lock.lock().unwrap();
    until_renewed(&victim);
    proxy.refuse(true);
    proxy.cut();
    let (lost, begun) = (guard.lost(), Instant::now());
    assert_eq!(lost.wait(SOON), Some(LossReason::LeaseExpired));
    assert!(at_best(begun) < timeout, "{:?}", begun.elapsed());
    proxy.refuse(false);
    until_state(&victim, SessionState::Connected);
    assert_eq!(victim.status().session_id, id, "the session was resumed");
    assert!(!guard.is_held() && guard.lost_reason() == Some(LossReason::LeaseExpired));
    if recipe.is_a_threads() {
        assert!(matches!(
            lock.lock().map(drop),
            Err(Error::Lost { reason: LossReason::LeaseExpired, .. })
        ));
    }
    assert_eq!(queue(&at, PATH).len(), 1, "the node stays until the guard is dropped");
    let others = session_of(&at, timeout);
    let other = recipe.rival().make(&others, PATH);
    assert!(other.try_lock().optional().unwrap().is_none());
    drop(guard);
    assert!(other.lock_timeout(SOON).optional().unwrap().is_some());
    assert!(lock.lock().unwrap().is_held());
    until_empty(&at, PATH);
    assert_eq!(victim.status().session_id, id);
}

// ---- a follower that has lost its leader ----

fn ensemble() -> Ensemble {
    let server = Server::real().tick(Duration::from_secs(2)).min_session(Duration::from_secs(4));
    Ensemble::start_with(3, server)
}

/// The holder knows only one follower. This follower is cut off from its leader and answers pings
/// for a while.
fn cut_off_follower(which: usize) {
    let ensemble = ensemble();
    let followers = ensemble.followers();
    let (cut_off, leader) = (followers[which], ensemble.leader());
    let victim = session_of(&ensemble.member(cut_off).connect_string(), Duration::from_secs(4));
    assert_eq!(victim.status().timeout, Duration::from_secs(4));
    outlived(
        Recipe::Mutex,
        &format!("follower {cut_off} without its leader {leader}"),
        &victim,
        &ensemble.member(leader).connect_string(),
        || ensemble.isolate(cut_off, Isolation::BlackHole),
        |_| {
            ensemble.heal(cut_off);
            let serves = || ensemble.serves(cut_off).then_some(());
            until("the follower serves again", Duration::from_secs(60), serves);
        },
    );
}

fn holder_on_the_first_follower_without_its_leader_stops_before_the_next_one_is_let_in() {
    cut_off_follower(0);
}

fn holder_on_the_second_follower_without_its_leader_stops_before_the_next_one_is_let_in() {
    cut_off_follower(1);
}

/// If it can, the session moves to another server within its lease, and the hold is not lost.
fn holder_that_knows_all_servers_moves_away_from_a_follower_without_its_leader() {
    let ensemble = ensemble();
    let (victim, at) = connected_to_a_follower(&ensemble);
    let id = victim.status().session_id;
    let mutex = ZkMutex::new(&victim, PATH).unwrap();
    let guard = mutex.lock().unwrap();
    let leader = ensemble.member(ensemble.leader()).connect_string();
    let others = session_of(&leader, Duration::from_secs(4));
    let other = ZkMutex::new(&others, PATH).unwrap();
    let events = victim.subscribe();
    ensemble.isolate(at, Isolation::BlackHole);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(8) {
        assert!(
            guard.is_held(),
            "{:?} after {:?}: {:?}",
            guard.lost_reason(),
            start.elapsed(),
            events.try_iter().collect::<Vec<_>>()
        );
        thread::sleep(Duration::from_millis(1));
    }
    // Three servers on a busy machine may take longer for one answer than the T/6 of a single step.
    // So the calls are made until they are answered, and the release goes on without its caller.
    assert!(until("an answer", SOON, || other.try_lock().optional().ok()).is_none());
    until_state(&victim, SessionState::Connected);
    assert_eq!(victim.status().session_id, id);
    drop(guard);
    drop(until("the lock", SOON, || other.lock_timeout(SOON).optional().ok().flatten()));
    until_empty(&leader, PATH);
    ensemble.heal(at);
}

/// The order of hosts is random: connects until the session is at a follower.
fn connected_to_a_follower(ensemble: &Ensemble) -> (ZkSession, usize) {
    until("a session at a follower", Duration::from_secs(30), || {
        let session = session_of(&ensemble.connect_string(), Duration::from_secs(4));
        let id = format!("0x{:x}", session.status().session_id?);
        let at = ensemble.followers().into_iter().find(|member| {
            ensemble
                .member(*member)
                .four_letter("cons")
                .is_ok_and(|connections| connections.contains(&id))
        });
        at.map(|at| (session, at))
    })
}

// ---- the cost of a release ----

fn drained_queue_costs_two_requests_and_one_event_to_another_for_each_release() {
    const WAITERS: usize = 30;
    let server = Server::start();
    let at = server.connect_string();
    let proxy = Proxy::start(server.address());
    // None of the sessions' own requests falls into the measured time.
    let timeout = Duration::from_secs(60);
    let first = session_of(&proxy.connect_string(), timeout);
    let holder = ZkMutex::builder(&first, PATH).hand_over(Duration::ZERO).build().unwrap();
    let guard = holder.lock().unwrap();
    let (inside, passed, ready) =
        (AtomicUsize::new(0), AtomicUsize::new(0), Barrier::new(WAITERS + 1));
    let through = proxy.connect_string();
    let (requests, events) = thread::scope(|scope| {
        for _ in 0..WAITERS {
            scope.spawn(|| {
                let session = session_of(&through, timeout);
                let mutex =
                    ZkMutex::builder(&session, PATH).hand_over(Duration::ZERO).build().unwrap();
                let guard = mutex.lock().unwrap();
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two holders");
                inside.fetch_sub(1, SeqCst);
                guard.unlock().unwrap();
                passed.fetch_add(1, SeqCst);
                ready.wait(); // sessions end after the count
            });
        }
        // All waiters are in the queue and watch the node ahead and their own.
        until("all waiters are in place", Duration::from_secs(60), || {
            (queue(&at, PATH).len() == WAITERS + 1 && server.watches() > 2 * WAITERS as i64)
                .then_some(())
        });
        let beyond_replies = || {
            let (received, sent) = server.packets();
            sent - received
        };
        let (asking, before) = (beyond_replies(), beyond_replies());
        proxy.clear();
        guard.unlock().unwrap();
        until("the queue has drained", Duration::from_secs(60), || {
            (passed.load(SeqCst) == WAITERS).then_some(())
        });
        let requests = proxy.requests();
        // Without the packets that the queries themselves add.
        let events = beyond_replies() - before - (before - asking);
        ready.wait();
        (requests, events)
    });
    let releases = WAITERS + 1;
    let of_the_lock =
        |request: &&Request| request.path.as_deref().is_some_and(|path| path.starts_with(PATH));
    let locks: Vec<_> = requests.iter().filter(of_the_lock).collect();
    println!("{releases} releases: {} requests, {events} events", locks.len());
    assert!(locks.len() <= 2 * releases, "{} requests: {locks:?}", locks.len());
    assert_eq!(locks.iter().filter(|request| request.kind == OpKind::Delete).count(), releases);
    // Each deletion sends an event to the next waiter and to the owner of the node; a herd would be
    // hundreds of events. The counters are not read at the same moment, so there may be a few more.
    assert!(events <= 2 * releases as i64 + 6, "{events} events for {releases} releases");
    until_empty(&at, PATH);
}

pub fn tests() -> Vec<Test> {
    let mut rows = rows![
        Recipe::is_lock_that_queues =>
        hold_that_outlived_its_lease_stays_lost_though_its_session_is_resumed
    ];
    rows.extend(BLACK_HOLES.map(|(timeout, name)| {
        let timeout = Duration::from_secs(timeout);
        Row::new(name, Recipe::queues, move |recipe| black_hole(recipe, timeout))
    }));
    let mut all = over_recipes(module_path!(), On::Both, rows);
    all.extend(scenarios![@list
        // Only real servers form ensembles.
        holder_on_the_first_follower_without_its_leader_stops_before_the_next_one_is_let_in on real,
        holder_on_the_second_follower_without_its_leader_stops_before_the_next_one_is_let_in on real,
        holder_that_knows_all_servers_moves_away_from_a_follower_without_its_leader on real,
        drained_queue_costs_two_requests_and_one_event_to_another_for_each_release,
    ]);
    all
}
