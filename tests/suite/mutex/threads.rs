//! Threads of one process, and several processes: the order of turns, and the cost of a hand-over.
use crate::support::{
    OpKind, Shared, assert_lasted, at_best,
    contend::{Over, Section, proxied, session, spawn_waiting, until_queue},
    scenarios,
    scene::{SOON, until_empty},
    until,
};
use crossbeam_channel::bounded;
use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{OptionalExt, ZkMutex};

const LOCK: &str = "/locks/orders";

/// Six threads queue up behind a holder, which then releases. Returns the order in which they get
/// the lock, with the nodes of their guards.
fn six_threads_in_turn(mutex: &ZkMutex) -> (Vec<usize>, Vec<String>) {
    let (tell, told) = bounded(6);
    let mut nodes = Vec::new();
    thread::scope(|scope| {
        let guard = mutex.lock().unwrap();
        nodes.push(guard.path().to_owned());
        for i in 0..6 {
            let tell = tell.clone();
            spawn_waiting(scope, move || {
                let guard = mutex.lock().unwrap();
                tell.send((i, guard.path().to_owned())).unwrap();
            });
        }
        assert!(told.is_empty());
        drop(guard);
    });
    let (order, later) = told.try_iter().unzip::<_, _, Vec<_>, Vec<_>>();
    nodes.extend(later);
    (order, nodes)
}

fn threads_of_one_process_take_turns_in_the_order_they_came() {
    let at = Shared::chroot();
    let session = session(&at);
    for bound in [SOON, Duration::from_millis(20), Duration::ZERO] {
        let mutex = ZkMutex::builder(&session, LOCK).hand_over(bound).build().unwrap();
        assert_eq!(six_threads_in_turn(&mutex).0, [0, 1, 2, 3, 4, 5], "{bound:?}");
        until_empty(&at, LOCK);
    }
}

fn a_hand_over_within_the_bound_makes_no_new_node() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let session = session(&through);
    let mutex = ZkMutex::builder(&session, LOCK).hand_over(SOON).build().unwrap();
    let (order, nodes) = six_threads_in_turn(&mutex);
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    assert_eq!(nodes.iter().collect::<HashSet<_>>().len(), 1, "{nodes:?}");
    until_empty(&at, LOCK);
    // The parent does not exist at the first attempt.
    let created = proxy.requests().into_iter().filter(|request| request.kind == OpKind::Create);
    let created: Vec<String> =
        created.filter_map(|r| r.path).filter(|path| path.contains("-lock-")).collect();
    assert!(created.len() <= 2 && created.iter().all(|path| *path == created[0]), "{created:?}");
    assert_eq!(proxy.count(OpKind::Delete.on("-lock-")), 1);
    session.close().unwrap();
}

/// The data is written once, when the node is made: a hand-over costs no request.
fn a_node_that_is_handed_over_keeps_its_data() {
    let at = Shared::chroot();
    let session = session(&at);
    let job =
        |data: &str| ZkMutex::builder(&session, LOCK).data(data).hand_over(SOON).build().unwrap();
    let (one, two) = (job("job 1"), job("job 2"));
    let guard = one.lock().unwrap();
    thread::scope(|scope| {
        let waiter = spawn_waiting(scope, || {
            let _guard = two.lock().unwrap();
            two.holders().unwrap().remove(0).data
        });
        drop(guard);
        assert_eq!(waiter.join().unwrap(), b"job 1");
    });
    drop(two.lock().unwrap());
    until_empty(&at, LOCK);
}

fn a_bound_of_zero_queues_anew_for_each_acquisition() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let session = session(&through);
    let mutex = ZkMutex::builder(&session, LOCK).hand_over(Duration::ZERO).build().unwrap();
    drop(mutex.lock().unwrap()); // makes the parents
    until_empty(&at, LOCK);
    proxy.clear();
    let (order, nodes) = six_threads_in_turn(&mutex);
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    assert_eq!(nodes.iter().collect::<HashSet<_>>().len(), 7, "{nodes:?}");
    until_empty(&at, LOCK);
    assert_eq!(proxy.count(OpKind::Create.on("-lock-")), 7);
    assert_eq!(proxy.count(OpKind::Delete.on("-lock-")), 7);
    session.close().unwrap();
}

fn another_process_gets_its_turn_within_the_hand_over_bound() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let bound = Duration::from_millis(100);
    let busy = ZkMutex::builder(&ours, LOCK).hand_over(bound).build().unwrap();
    let other = ZkMutex::new(&theirs, LOCK).unwrap();
    let (section, stop) = (Section::default(), AtomicBool::new(false));
    thread::scope(|scope| {
        let _all = Over(&stop);
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let _guard = busy.lock().unwrap();
                    section.pass();
                }
            });
        }
        for _ in 0..5 {
            let before = section.counter();
            until("the others count", SOON, || (section.counter() > before + 10).then_some(()));
            let start = Instant::now();
            let got = other.lock_timeout(SOON).optional().unwrap();
            let took = at_best(start);
            section.pass();
            assert!(got.is_some_and(|guard| guard.is_held()));
            assert!(took < bound + Duration::from_millis(1500), "{took:?} at best");
        }
    });
    until_empty(&at, LOCK);
}

fn processes_and_their_threads_exclude_each_other() {
    let at = Shared::chroot();
    let section = Section::default();
    let sessions: Vec<_> = (0..3).map(|_| session(&at)).collect();
    thread::scope(|scope| {
        for (i, session) in (0..12).map(|i| (i, &sessions[i % 3])) {
            let section = &section;
            // One releases at once, one now and then, one as late as it may.
            let bound = [Duration::ZERO, Duration::from_millis(2), SOON][i % 3];
            scope.spawn(move || {
                let mutex = ZkMutex::builder(session, LOCK).hand_over(bound).build().unwrap();
                for round in 0..25 {
                    let guard = if round % 5 == 4 {
                        mutex
                            .lock_timeout(Duration::from_secs(60))
                            .optional()
                            .unwrap()
                            .expect("the process gets its turn")
                    } else {
                        mutex.lock().unwrap()
                    };
                    section.pass();
                    assert!(guard.is_held());
                    if round % 2 == 0 {
                        guard.unlock().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(section.counter(), 12 * 25);
    until_empty(&at, LOCK);
}

fn a_timed_wait_in_the_local_queue_leaves_the_others_in_order() {
    let at = Shared::chroot();
    let mutex = ZkMutex::new(&session(&at), LOCK).unwrap();
    let (tell, told) = bounded(2);
    let wait = Duration::from_secs(3); // the next thread queues up meanwhile
    thread::scope(|scope| {
        let guard = mutex.lock().unwrap();
        let queue = |i| {
            let (tell, mutex) = (tell.clone(), &mutex);
            spawn_waiting(scope, move || {
                let _guard = mutex.lock().unwrap();
                tell.send(i).unwrap();
            })
        };
        queue(0);
        let short = spawn_waiting(scope, || {
            let start = Instant::now();
            assert!(mutex.lock_timeout(wait).optional().unwrap().is_none());
            assert_lasted(start, wait..wait + Duration::from_millis(1500));
        });
        queue(1);
        short.join().unwrap();
        assert_eq!(until_queue(&at, LOCK, 1).len(), 1, "one node for all threads");
        drop(guard);
    });
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 1]);
    until_empty(&at, LOCK);
}

scenarios![
    threads_of_one_process_take_turns_in_the_order_they_came,
    a_hand_over_within_the_bound_makes_no_new_node,
    a_node_that_is_handed_over_keeps_its_data,
    a_bound_of_zero_queues_anew_for_each_acquisition,
    another_process_gets_its_turn_within_the_hand_over_bound,
    processes_and_their_threads_exclude_each_other,
    a_timed_wait_in_the_local_queue_leaves_the_others_in_order,
];
