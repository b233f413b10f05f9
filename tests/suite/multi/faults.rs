//! Several locks as one, while some of them are lost, silent or out of reach.
use crate::{
    multi::locking::{elsewhere, multi, mutexes},
    support::{
        assert_lasted, at_best,
        contend::{Section, session, spawn_waiting, until_queue},
        embedded::{raw, start},
        logged::logged,
        scenarios,
        scene::{SOON, queue, session_of, until_empty, until_state},
        until,
    },
};
use log::Level;
use std::{
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Config, Error, LossReason, OptionalExt, RetryPolicy, SessionState, ZkMultiLock, ZkMutex,
    ZkRwLock, ZkSession,
};
use zk_test_server::{Op, TestServer};

const A: &str = "/locks/a";
const B: &str = "/locks/b";
const C: &str = "/locks/c";
const LOCK: &str = "-lock-";
const A_WHILE: Duration = Duration::from_millis(300);
const SLACK: Duration = Duration::from_millis(1500);

/// Two ensembles. The members on the first one are taken first.
fn two() -> [(TestServer, String); 2] {
    let mut servers = [start(), start()];
    servers.sort_by(|(_, one), (_, other)| one.cmp(other));
    servers
}

fn on_both(sessions: &[ZkSession; 2]) -> ZkMultiLock {
    let [first, second] = sessions.each_ref().map(|session| ZkMutex::new(session, A).unwrap());
    ZkMultiLock::new([second, first]).unwrap()
}

fn the_signal_comes_with_the_first_loss() {
    let [(server, at), (other_server, other)] = two();
    let sessions = [session(&at), session(&other)];
    let lock = on_both(&sessions);
    for which in [0, 1] {
        let guard = lock.lock().unwrap();
        let (lost, clone) = (guard.lost(), guard.lost().clone());
        let tokens = guard.fencing_tokens();
        assert!(lost.receiver().try_recv().is_err_and(|e| e.is_empty()));
        let (server, at) = if which == 0 { (&server, &at) } else { (&other_server, &other) };
        assert!(server.expire_session(sessions[which].status().session_id.unwrap()));
        for lost in [lost, clone] {
            assert!(lost.wait(SOON).is_some());
        }
        assert!(!guard.is_held() && guard.valid_for().is_zero());
        let reason = guard.lost().reason().expect("it is lost");
        // The members were given in the order: second ensemble, first ensemble.
        let held: Vec<_> = guard.holds().map(|held| held.is_held()).collect();
        assert_eq!(held, [which == 0, which == 1]);
        let path = guard.holds().nth(1 - which).unwrap().path().to_owned();
        let lost = Error::Lost { path, reason };
        assert_eq!(guard.check(), Err(lost.clone()));
        assert_eq!(guard.fencing_tokens(), tokens, "they stay");
        assert_eq!(guard.unlock(), Err(lost), "the other member is released");
        until_empty(at, A);
    }
    until_empty(&at, A);
    until_empty(&other, A);
    assert!(lock.lock().unwrap().is_held(), "in new sessions");
}

fn a_member_lost_while_another_is_waited_for_ends_the_wait() {
    let [(server, at), (_other_server, other)] = two();
    let (sessions, theirs) = ([session(&at), session(&other)], session(&other));
    let (lock, rival) = (on_both(&sessions), ZkMutex::new(&theirs, A).unwrap());
    for forever in [true, false] {
        let held = rival.lock().unwrap();
        thread::scope(|scope| {
            let waiting = spawn_waiting(scope, || {
                if forever {
                    lock.lock().map(drop)
                } else {
                    lock.lock_timeout(SOON * 6).optional().map(drop)
                }
            });
            until_queue(&other, A, 2);
            let node = format!("{A}/{}", queue(&at, A)[0]);
            assert!(server.expire_session(sessions[0].status().session_id.unwrap()));
            let said = waiting.join().unwrap();
            assert!(matches!(&said, Err(Error::Lost { path, .. }) if *path == node), "{said:?}");
        });
        until_queue(&other, A, 1);
        until_empty(&at, A);
        held.unlock().unwrap();
    }
    assert!(lock.lock_timeout(SOON).optional().unwrap().is_some());
}

fn a_member_lost_while_another_is_taken_is_found_at_the_end() {
    let (server, at) = start();
    let sessions = [session(&at), session(&at)];
    let [first, second] =
        [(&sessions[0], A), (&sessions[1], B)].map(|(s, path)| ZkMutex::new(s, path).unwrap());
    let lock = ZkMultiLock::new([&first, &second]).unwrap();
    let asked = server.hold_requests(Op::Create.on("/locks/b/"));
    thread::scope(|scope| {
        // The call is made once without holding, to make the folder.
        let waiting = scope.spawn(|| lock.lock().map(drop));
        assert!(asked.wait(SOON));
        let node = format!("{A}/{}", until_queue(&at, A, 1)[0]);
        // The node is watched as soon as it has been held a little.
        assert!(server.wait_request(Op::GetData.on(&node), SOON).is_some());
        raw(&at).delete(&node).unwrap();
        until("the loss is known", SOON, || logged(Level::Warn, "lock lost").into_iter().next());
        drop(asked);
        let lost = Error::Lost { path: node, reason: LossReason::NodeDeleted };
        assert_eq!(waiting.join().unwrap(), Err(lost));
    });
    until_empty(&at, A);
    until_empty(&at, B);
}

/// The last member is taken without a wait, which the loss of another could end.
fn a_member_lost_before_the_last_is_taken_at_once_is_found_at_the_end() {
    let (_server, at) = start();
    let session = session(&at);
    let shortest = Duration::from_nanos(1);
    let first = ZkMutex::builder(&session, A).max_hold(shortest).build().unwrap();
    let kept = ZkMutex::builder(&session, B).keep(SOON * 10).build().unwrap();
    let lock = ZkMultiLock::new([&first, &kept]).unwrap();
    drop(kept.lock().unwrap());
    let said = lock.lock().map(drop);
    assert!(matches!(said, Err(Error::Lost { reason: LossReason::HeldTooLong, .. })), "{said:?}");
    until_empty(&at, A);
}

fn a_member_out_of_reach_rolls_the_others_back() {
    let [(_server, at), (gone, other)] = two();
    let timeout = Duration::from_secs(4);
    let policy = RetryPolicy { max_elapsed: Duration::from_secs(1), ..RetryPolicy::default() };
    let config = Config::new(other.as_str()).session_timeout(timeout).retry_policy(policy);
    let sessions = [session(&at), ZkSession::connect(config).unwrap()];
    let lock = on_both(&sessions);
    lock.lock().unwrap().unlock().unwrap();
    gone.refuse(true);
    gone.cut_connections();
    type Ask = fn(&ZkMultiLock) -> Result<(), Error>;
    let asks: [(Ask, Duration); 3] = [
        (|lock| lock.lock_timeout(A_WHILE).optional().map(drop), A_WHILE),
        (|lock| lock.try_lock().optional().map(drop), timeout / 6),
        (|lock| lock.lock().map(drop), Duration::from_secs(1)),
    ];
    for (ask, within) in asks {
        let begun = Instant::now();
        let said = ask(&lock);
        assert!(
            matches!(&said, Err(Error::Unavailable { op: "lock", path, .. }) if path == A),
            "{said:?}"
        );
        assert!(at_best(begun) < within + SLACK, "{:?}", begun.elapsed());
        until_empty(&at, A);
    }
    gone.refuse(false);
    until_state(&sessions[1], SessionState::Connected);
    assert!(lock.lock_timeout(SOON).optional().unwrap().is_some(), "the member is back");
}

fn a_silent_ensemble_does_not_keep_us_beyond_the_deadline() {
    let [(_server, at), (silent, other)] = two();
    let sessions = [session(&at), session_of(&other, Duration::from_secs(30))];
    let lock = on_both(&sessions);
    lock.lock().unwrap().unlock().unwrap();
    silent.black_hole(true);
    let begun = Instant::now();
    let said = lock.lock_timeout(A_WHILE).optional().map(drop);
    assert!(matches!(said, Err(Error::Unavailable { .. })), "{said:?}");
    assert_lasted(begun, A_WHILE..A_WHILE + SLACK);
    until_empty(&at, A);
    silent.black_hole(false);
    assert!(lock.lock_timeout(SOON).optional().unwrap().is_some());
}

fn a_lost_answer_leaves_nothing_of_any_member() {
    let (server, at) = start();
    let ours = session(&at);
    let lock = multi(&ours, &[A, B, C]);
    lock.lock().unwrap().unlock().unwrap();
    for path in [A, B, C] {
        server.drop_reply(Op::Create.on(path));
        let guard = lock.lock().unwrap();
        assert_eq!(server.pending_faults(), 0);
        until("one node in each queue", SOON, || {
            [A, B, C].iter().all(|path| queue(&at, path).len() == 1).then_some(())
        });
        server.drop_reply(Op::Delete.on(path));
        assert!(guard.is_held());
        guard.unlock().unwrap();
        assert_eq!(server.pending_faults(), 0);
        [A, B, C].iter().for_each(|path| until_empty(&at, path));
    }
}

fn releases_are_begun_before_any_is_waited_for_and_the_last_taken_goes_first() {
    let (server, at) = start();
    let sessions = [session(&at), session(&at), session(&at)];
    let members =
        sessions.iter().zip([C, A, B]).map(|(session, path)| ZkMutex::new(session, path).unwrap());
    let lock = ZkMultiLock::new(members).unwrap();
    let guard = lock.lock().unwrap();
    let held = server.hold_requests(Op::Delete.on(LOCK));
    thread::scope(|scope| {
        // Guards stay on their thread.
        let look = scope.spawn(|| {
            until("all three deletes are sent", SOON, || (held.count() == 3).then_some(()));
            drop(held);
        });
        guard.unlock().unwrap();
        look.join().unwrap();
    });
    // Within one session the deletes follow one another, so their order can be observed.
    let lock = multi(&sessions[0], &[B, C, A]);
    for rolls_back in [false, true] {
        let rival = ZkMutex::new(&sessions[1], C).unwrap();
        let busy = rolls_back.then(|| rival.lock().unwrap());
        server.clear_log();
        match &busy {
            None => lock.lock().unwrap().unlock().unwrap(),
            Some(_) => assert!(elsewhere(|| lock.try_lock().optional().unwrap().is_none())),
        }
        [A, B].iter().for_each(|path| until_empty(&at, path));
        let of = |op: Op| {
            let requests = server.requests();
            let paths = requests.iter().filter(|request| request.op == op).filter_map(|request| {
                request
                    .path
                    .as_deref()
                    .filter(|path| path.contains(LOCK))
                    .map(|path| path[..A.len()].to_owned())
            });
            paths.collect::<Vec<_>>()
        };
        let taken = if rolls_back { vec![A, B] } else { vec![A, B, C] };
        assert_eq!(of(Op::Create), taken);
        assert_eq!(of(Op::Delete), taken.into_iter().rev().collect::<Vec<_>>());
    }
}

fn releases_without_an_answer_wait_once_in_all() {
    let servers = [start(), start(), start()];
    let timeout = Duration::from_secs(12);
    let sessions = servers.each_ref().map(|(_, at)| session_of(at, timeout));
    let members = sessions.each_ref().map(|session| ZkMutex::new(session, A).unwrap());
    let lock = ZkMultiLock::new(&members).unwrap();
    let guard = lock.lock().unwrap();
    servers.iter().for_each(|(server, _)| server.black_hole(true));
    let begun = Instant::now();
    let said = guard.unlock();
    assert!(at_best(begun) < timeout / 6 + SLACK, "{:?}", begun.elapsed());
    let Err(Error::Several { failures }) = said else { panic!("{said:?}") };
    assert_eq!(failures.len(), 3);
    assert!(
        failures.iter().all(|e| matches!(e, Error::Unavailable { op: "unlock", .. })),
        "{failures:?}"
    );
    servers.iter().for_each(|(server, _)| server.black_hole(false));
    servers.iter().for_each(|(_, at)| until_empty(at, A));
}

fn transfers_stay_exact_while_connections_are_cut() {
    const PATHS: [&str; 3] = [A, B, C];
    let (server, at) = start();
    let eager = RetryPolicy {
        base: Duration::from_millis(5),
        cap: Duration::from_millis(20),
        ..RetryPolicy::default()
    };
    let sessions = [(); 3].map(|()| {
        let config = Config::new(at.as_str()).session_timeout(Duration::from_secs(30));
        ZkSession::connect(config.retry_policy(eager)).unwrap()
    });
    let ids = sessions.each_ref().map(|session| session.status().session_id);
    let (sections, done, passed) =
        ([(); 3].map(|()| Section::default()), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for (number, session) in sessions.iter().chain(&sessions).enumerate() {
            let (sections, done, passed) = (&sections, &done, &passed);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(number as u64);
                for _ in 0..20 {
                    let mut chosen = [0, 1, 2];
                    random.shuffle(&mut chosen);
                    let chosen = &chosen[..random.usize(2..=3)];
                    let lock = multi(
                        session,
                        &chosen.iter().map(|&which| PATHS[which]).collect::<Vec<_>>(),
                    );
                    let guard =
                        lock.lock_timeout(SOON * 6).optional().unwrap().expect("no deadlock");
                    chosen.iter().for_each(|&which| sections[which].pass());
                    passed.fetch_add(chosen.len(), SeqCst);
                    guard.unlock().unwrap();
                }
                done.fetch_add(1, SeqCst);
            });
        }
        // Each cut waits until there was progress since the cut before. On a busy machine cuts at
        // fixed times could prevent any progress.
        while done.load(SeqCst) < 6 {
            let before = passed.load(SeqCst);
            server.cut_connections();
            until("there is progress", SOON * 3, || {
                (passed.load(SeqCst) > before || done.load(SeqCst) == 6).then_some(())
            });
        }
    });
    assert_eq!(sections.iter().map(Section::counter).sum::<usize>(), passed.load(SeqCst));
    assert_eq!(sessions.each_ref().map(|session| session.status().session_id), ids);
    PATHS.iter().for_each(|path| until_empty(&at, path));
}

fn a_hold_that_is_handed_on_is_no_more_of_ours() {
    let (server, at) = start();
    let ours = session(&at);
    let mutex = ZkMutex::builder(&ours, A).hand_over(Duration::from_secs(60)).build().unwrap();
    let others = mutexes(&ours, &[B]);
    let lock = ZkMultiLock::new([&mutex, &others[0]]).unwrap();
    let guard = lock.lock().unwrap();
    let signal = guard.lost();
    thread::scope(|scope| {
        let next = spawn_waiting(scope, || {
            let guard = mutex.lock().unwrap();
            let lost = guard.lost();
            assert!(server.expire_session(ours.status().session_id.unwrap()));
            assert!(lost.wait(SOON).is_some());
            guard.path().to_owned()
        });
        let node = guard.holds().next().unwrap().path().to_owned();
        drop(guard);
        assert_eq!(next.join().unwrap(), node, "the next thread has the same node");
    });
    assert!(signal.receiver().try_recv().is_err_and(|e| e.is_empty()) && signal.reason().is_none());
}

fn one_ensemble_is_known_by_a_host_in_common() {
    let (_server, at) = start();
    let (one, other) = (session(&at), session(&format!("{at},127.0.0.1:1")));
    let (lock, again) = (ZkMutex::new(&one, A).unwrap(), ZkMutex::new(&other, A).unwrap());
    assert!(matches!(ZkMultiLock::new([&lock, &again]), Err(Error::WouldDeadlock { .. })));
    let guard = lock.lock().unwrap();
    let said = ZkMultiLock::new([&again]).unwrap().lock().map(drop);
    assert!(matches!(said, Err(Error::WouldDeadlock { .. })), "{said:?}");
    drop((guard, again));
    let said = ZkRwLock::new(&other, A).map(drop);
    assert!(matches!(said, Err(Error::InvalidConfig { .. })), "another kind on the path: {said:?}");
}

fn a_guard_that_is_the_last_handle_frees_all_members_before_a_session_ends_in_a_black_hole() {
    for silent in [0, 1] {
        let servers = two();
        let sessions = [0, 1].map(|n: usize| session(&servers[n].1));
        let guard = on_both(&sessions).lock().unwrap();
        drop(sessions);
        let at = &servers[1 - silent].1;
        let theirs = ZkMutex::new(&session(at), A).unwrap();
        servers[silent].0.black_hole(true);
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                let _guard = theirs.lock().unwrap();
                Instant::now()
            });
            until_queue(at, A, 2);
            drop(guard); // closes both sessions; the silent server does not answer
            let dropped = Instant::now();
            assert!(
                waiter.join().unwrap() < dropped,
                "the other member waited for the silent server"
            );
        });
        servers[silent].0.black_hole(false);
    }
}

scenarios![
    on embedded;
    a_guard_that_is_the_last_handle_frees_all_members_before_a_session_ends_in_a_black_hole,
    the_signal_comes_with_the_first_loss,
    a_member_lost_while_another_is_waited_for_ends_the_wait,
    a_member_lost_while_another_is_taken_is_found_at_the_end,
    a_member_lost_before_the_last_is_taken_at_once_is_found_at_the_end,
    a_member_out_of_reach_rolls_the_others_back,
    a_silent_ensemble_does_not_keep_us_beyond_the_deadline,
    a_lost_answer_leaves_nothing_of_any_member,
    releases_are_begun_before_any_is_waited_for_and_the_last_taken_goes_first,
    releases_without_an_answer_wait_once_in_all,
    transfers_stay_exact_while_connections_are_cut,
    a_hold_that_is_handed_on_is_no_more_of_ours,
    one_ensemble_is_known_by_a_host_in_common,
];
