//! Faults of an election: there is never a second leader, and never a node too many or too few,
//! whatever is lost and whatever third parties do.
use crate::{
    election::leading::{PATH, election, join, leads, next},
    support::{
        OpKind, Proxy, Shared, at_best,
        contend::{Section, proxied, session, until_queue},
        embedded::{flap, raw, start},
        logged,
        raw::{EPHEMERAL, PERSISTENT},
        scenarios,
        scene::{
            SOON, name, queue, session_of, until_empty, until_event, until_node_watched,
            until_state,
        },
        until,
    },
};
use crossbeam_channel::{bounded, unbounded};
use std::{
    ops::ControlFlow::{Break, Continue},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    Cause, Config, ElectionEvent, Error, LossReason, OptionalExt, RetryPolicy, SessionEvent,
    SessionState, ZkCandidate, ZkMutex, ZkSession,
};
use zk_test_server::{Op, TestServer};

/// A part of the path of candidates' nodes only.
const NODE: &str = "-latch-";
/// Long enough to see that something does not come.
const A_WHILE: Duration = Duration::from_millis(300);
const SLACK: Duration = Duration::from_millis(1500);

/// From now on the server does not answer.
fn go_away(server: &TestServer) {
    server.refuse(true);
    server.cut_connections();
}

/// A session that reconnects at once, so that more faults fit into the time.
fn eager(at: &str) -> ZkSession {
    let policy = RetryPolicy {
        base: Duration::from_millis(5),
        cap: Duration::from_millis(20),
        ..RetryPolicy::default()
    };
    ZkSession::connect(Config::new(at).retry_policy(policy)).unwrap()
}

/// Waits until so many nodes exist and exactly one of the candidates leads.
#[track_caller]
fn until_settled(at: &str, candidates: &[ZkCandidate]) {
    until("each candidate has one node, and one leads", SOON * 2, || {
        let leading: Vec<_> = candidates.iter().filter_map(ZkCandidate::leadership).collect();
        let nodes = queue(at, PATH);
        let stands = |path: &str| nodes.iter().any(|node| node == name(path));
        (nodes.len() == candidates.len() && leading.len() == 1 && stands(leading[0].path()))
            .then_some(())
    });
}

// ---- outages ----

fn leader_leads_on_over_an_outage_shorter_than_the_lease() {
    let (server, at) = start();
    let session = session(&at);
    let [first, second] = [(); 2].map(|()| join(&at, &election(&session)));
    let leadership = leads(&first);
    let (token, nodes) = (leadership.fencing_token(), queue(&at, PATH));
    let events = session.subscribe();
    go_away(&server);
    until_event(&events, |event| *event == SessionEvent::Suspended);
    assert!(first.is_leader() && leads(&first).is_held() && !second.is_leader());
    server.refuse(false);
    until_event(&events, |event| *event == SessionEvent::Reconnected);
    assert!(leadership.is_held() && leadership.fencing_token() == token);
    server.restart();
    until_event(&events, |event| *event == SessionEvent::Reconnected);
    assert!(leadership.is_held() && !second.is_leader());
    assert_eq!(queue(&at, PATH), nodes);
    first.leave().unwrap();
    leads(&second);
}

/// On both servers: two candidates, of which the leader is behind a black hole.
fn interrupted_leader_knows_before_the_next_one_leads() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let timeout = Duration::from_secs(4);
    let (ours, theirs) = (session_of(&through, timeout), session_of(&at, timeout));
    let first = join(&at, &election(&ours));
    let leadership = leads(&first);
    let second = join(&at, &election(&theirs));
    assert!(matches!(next(first.events()), ElectionEvent::Elected { .. }));
    proxy.black_hole(true);
    assert!(second.wait_leader().unwrap().is_held());
    assert!(!first.is_leader(), "two leaders");
    assert!(
        leadership.lost().receiver().try_recv().is_err_and(|e| e.is_disconnected()),
        "and its signal was set"
    );
    assert_eq!(leadership.lost_reason(), Some(LossReason::LeaseExpired));
    assert_eq!(next(first.events()), ElectionEvent::Lost(LossReason::LeaseExpired));
    proxy.black_hole(false);
    // The old leader queues again behind the new one, perhaps in a new session.
    until_state(&ours, SessionState::Connected);
    until_settled(&at, &[first, second]);
    until_empty(&at, PATH);
}

fn candidates_queue_while_the_server_is_away() {
    let (server, at) = start();
    let sessions = [(); 2].map(|()| session(&at));
    go_away(&server);
    sessions.iter().for_each(|session| until_state(session, SessionState::Suspended));
    let candidates: Vec<_> = (0..4).map(|n| election(&sessions[n % 2]).join().unwrap()).collect();
    for candidate in &candidates {
        let said = candidate.wait_leader_timeout(A_WHILE).optional().map(drop);
        assert!(matches!(said, Err(Error::Unavailable { op: "wait_leader", .. })), "{said:?}");
        assert!(!candidate.is_leader() && candidate.events().is_empty());
    }
    assert!(matches!(election(&sessions[0]).holders(), Err(Error::Unavailable { .. })));
    server.refuse(false);
    until_settled(&at, &candidates);
    drop(candidates);
    until_empty(&at, PATH);
}

fn leaving_without_having_been_connected_is_quick_and_leaves_nothing() {
    let (server, at) = start();
    let session = session(&at);
    go_away(&server);
    until_state(&session, SessionState::Suspended);
    let [first, second] = [(); 2].map(|()| election(&session).join().unwrap());
    let begun = Instant::now();
    first.leave().unwrap();
    drop(second);
    assert!(at_best(begun) < SLACK, "there is no node to wait for");
    let third = election(&session).join().unwrap();
    let _ = session.close();
    assert!(matches!(third.wait_leader().map(drop), Err(Error::Closed { .. })));
    third.leave().unwrap();
    assert!(at_best(begun) < SLACK * 2, "a close takes a second at most");
    server.refuse(false);
    assert_eq!(queue(&at, PATH), Vec::<String>::new());
}

fn leaving_in_an_outage_says_so_and_the_node_goes() {
    let (server, at) = start();
    let session = session_of(&at, Duration::from_secs(12));
    let id = session.status().session_id;
    let [first, second] = [(); 2].map(|()| join(&at, &election(&session)));
    let leadership = leads(&first);
    go_away(&server);
    until_state(&session, SessionState::Suspended);
    let begun = Instant::now();
    let said = first.leave();
    assert!(matches!(said, Err(Error::Unavailable { op: "leave", .. })), "{said:?}");
    assert!(at_best(begun) < session.status().timeout / 6 + SLACK);
    assert!(
        !first.is_leader() && !leadership.is_held(),
        "the candidate has left although the call failed"
    );
    server.refuse(false);
    leads(&second);
    assert_eq!(queue(&at, PATH).len(), 1);
    drop(second);
    until_empty(&at, PATH);
    assert_eq!(
        session.status().session_id,
        id,
        "the session is the same, so the nodes were deleted"
    );
}

fn outage_that_outlasts_the_retry_policy_ends_the_wait_and_not_the_candidacy() {
    let (server, at) = start();
    let proxy = Proxy::start(server.address());
    let policy = RetryPolicy { max_elapsed: Duration::from_secs(1), ..RetryPolicy::default() };
    let ours =
        ZkSession::connect(Config::new(proxy.connect_string()).retry_policy(policy)).unwrap();
    let theirs = session(&at);
    let [first, second] = [&theirs, &ours].map(|session| join(&at, &election(session)));
    leads(&first);
    let nodes = until_queue(&at, PATH, 2);
    proxy.refuse(true);
    proxy.cut();
    until_state(&ours, SessionState::Suspended);
    for _ in 0..2 {
        let said = second.wait_leader().map(drop);
        assert!(
            matches!(said, Err(Error::Unavailable { cause: Cause::Outage(_), .. })),
            "{said:?}"
        );
    }
    assert!(second.events().is_empty());
    proxy.refuse(false);
    until_state(&ours, SessionState::Connected);
    assert!(second.wait_leader_timeout(A_WHILE).optional().unwrap().is_none());
    assert_eq!(until_queue(&at, PATH, 2), nodes, "the candidate has kept its place");
    first.leave().unwrap();
    assert_eq!(name(leads(&second).path()), nodes[1]);
}

/// The call has to know that another candidate is ahead: otherwise it could not tell contention
/// from an outage when its time is over.
fn look_of_a_waiting_candidate_whose_answer_is_lost_is_made_again() {
    let (server, at) = start();
    let (theirs, ours) = (session(&at), session_of(&at, Duration::from_secs(6)));
    let [first, second] = [&theirs, &ours].map(|session| join(&at, &election(session)));
    leads(&first);
    let nodes = until_queue(&at, PATH, 2);
    until_node_watched(&at, &format!("{PATH}/{}", nodes[0]));
    let lost = || ours.status().stats.connections_lost;
    let before = lost();
    server.drop_reply(Op::GetChildren.on(PATH));
    let said =
        second.wait_leader_timeout(Duration::from_secs(8)).optional().map(|leads| leads.is_some());
    assert_eq!((said, server.pending_faults()), (Ok(false), 0));
    assert!(lost() > before, "the connection without the answer was given up");
    drop((first, second));
    until_empty(&at, PATH);
}

fn flapping_connections_make_no_second_leader() {
    const RUNNERS: usize = 4;
    const TERMS: usize = 12;
    const CUTS: usize = 50;
    let (server, at) = start();
    let sessions = [(); 2].map(|()| eager(&at));
    let ids = sessions.each_ref().map(|session| session.status().session_id);
    let (section, terms) = (Section::default(), AtomicUsize::new(0));
    thread::scope(|scope| {
        for runner in 0..RUNNERS {
            let (election, section, terms) = (election(&sessions[runner % 2]), &section, &terms);
            let server = &server;
            scope.spawn(move || {
                let mut own = 0;
                election.run(|leadership| {
                    section.pass();
                    // This cuts the connections in the middle of each term, too.
                    server.cut_connections();
                    own += 1;
                    section.pass();
                    assert!(leadership.is_held(), "{:?}", leadership.lost_reason());
                    if terms.fetch_add(1, SeqCst) >= RUNNERS * TERMS && own > 1 {
                        Break(())
                    } else {
                        Continue(())
                    }
                })
            });
        }
        let cuts = flap(&server, 5, CUTS, RUNNERS * TERMS, || terms.load(SeqCst));
        println!("{} terms over {cuts} cuts", terms.load(SeqCst));
    });
    assert_eq!(section.counter(), terms.load(SeqCst) * 2);
    until_empty(&at, PATH);
    assert_eq!(
        sessions.each_ref().map(|session| session.status().session_id),
        ids,
        "the sessions are the same, so they have deleted the nodes"
    );
}

// ---- lost sessions, wiped data, meddling ----

fn expired_leader_stands_again_behind_the_next() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let first = join(&at, &election(&ours));
    let leadership = leads(&first);
    let candidates = [first, join(&at, &election(&theirs)), join(&at, &election(&ours))];
    assert!(server.expire_session(ours.status().session_id.unwrap()));
    let next_one = leads(&candidates[1]);
    // The term was ended early, and the leader is notified of that.
    assert!(leadership.lost().wait(SOON).is_some());
    assert!(!leadership.is_held() && !candidates[0].is_leader());
    // The server may report the deleted node before the expired session.
    let reason = leadership.lost_reason();
    assert!(
        matches!(reason, Some(LossReason::SessionExpired | LossReason::NodeDeleted)),
        "{reason:?}"
    );
    until_settled(&at, &candidates);
    assert!(next_one.is_held());
    drop(candidates);
    until_empty(&at, PATH);
}

fn server_that_lost_everything_is_begun_with_anew() {
    let (server, at) = start();
    let sessions = [(); 2].map(|()| session_of(&at, Duration::from_secs(4)));
    let candidates: Vec<_> = (0..4).map(|n| join(&at, &election(&sessions[n % 2]))).collect();
    let leadership = leads(&candidates[0]);
    server.wipe();
    // The new server refuses clients that have seen a higher zxid, until its own zxid is as high.
    // The lease ends before.
    assert!(leadership.lost().wait(SOON).is_some());
    until_settled(&at, &candidates);
    drop(candidates);
    until_empty(&at, PATH);
}

fn node_ahead_that_goes_between_the_listing_and_the_watch_lets_the_next_lead() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let first = join(&at, &election(&ours));
    let leadership = leads(&first);
    let watch =
        Op::GetData.on(name(leadership.path())).session(theirs.status().session_id.unwrap());
    let held = server.hold_requests(watch);
    let second = election(&theirs).join().unwrap();
    assert!(held.wait(SOON));
    first.leave().unwrap();
    drop(held);
    leads(&second);
    assert_eq!(queue(&at, PATH).len(), 1);
}

/// A leader whose node is deleted may believe that it leads until it is notified. This scenario
/// checks only the number of nodes.
fn reset_races_leave_exactly_one_node_for_each_candidate() {
    const ROUNDS: usize = 60;
    let (server, at) = start();
    let sessions = [(); 2].map(|()| eager(&at));
    let candidates: Vec<_> = (0..6).map(|n| join(&at, &election(&sessions[n % 2]))).collect();
    let mut random = fastrand::Rng::with_seed(6);
    for _ in 0..ROUNDS {
        // Resets one candidate, or two whose resets overlap.
        for _ in 0..random.usize(1..3) {
            let id = sessions[random.usize(..2)].status().session_id;
            // A limit for planned faults, so that the candidates still make progress.
            let may_plan = server.pending_faults() < 3;
            match random.usize(..8) {
                1..5 if !may_plan => {}
                0 => server.cut_connections(),
                1 => server.drop_reply(Op::Create.on(NODE)),
                2 => server.drop_request(Op::Create.on(NODE)),
                3 => server.drop_reply(Op::GetChildren.on(PATH).session(id.unwrap_or_default())),
                4 => server.drop_reply(Op::Delete.on(NODE)),
                5 => {
                    let _ = id.is_some_and(|id| server.expire_session(id));
                }
                _ => {
                    if let Some(node) = queue(&at, PATH).first() {
                        // the node may be deleted already
                        let _ = raw(&at).delete(&format!("{PATH}/{node}"));
                    }
                }
            }
        }
        thread::sleep(Duration::from_millis(random.u64(..25)));
    }
    until_settled(&at, &candidates);
    drop(candidates);
    until_empty(&at, PATH);
}

// ---- leaving while a create is unanswered ----

fn candidate_that_leaves_while_its_create_is_unanswered_leaves_no_node() {
    let (server, at) = start();
    let session = session_of(&at, Duration::from_secs(9));
    let (election, id) = (election(&session), session.status().session_id);
    drop(election.join().unwrap()); // makes the path
    until_empty(&at, PATH);
    for fault in [TestServer::drop_reply, TestServer::drop_request, TestServer::silence_reply] {
        fault(&server, Op::Create.on(NODE));
        let candidate = election.join().unwrap();
        until("the fault was injected", SOON, || (server.pending_faults() == 0).then_some(()));
        match candidate.leave() {
            Ok(()) => assert_eq!(
                queue(&at, PATH),
                Vec::<String>::new(),
                "leave() says that the node is gone"
            ),
            Err(e) => assert!(matches!(e, Error::Unavailable { op: "leave", .. }), "{e}"),
        }
        until_empty(&at, PATH);
        until_state(&session, SessionState::Connected);
    }
    // The create is held up, and applied long after the candidate has left.
    let held = server.hold_requests(Op::Create.on(NODE));
    let candidate = election.join().unwrap();
    assert!(held.wait(SOON));
    // The call may be so slow that the create has been given up and deleted meanwhile.
    if let Err(e) = candidate.leave() {
        assert!(matches!(e, Error::Unavailable { op: "leave", .. }), "{e}");
    }
    drop(held);
    until_state(&session, SessionState::Connected);
    leads(&election.join().unwrap());
    until_empty(&at, PATH);
    thread::sleep(A_WHILE); // a node that was made late would stay
    assert_eq!(queue(&at, PATH), Vec::<String>::new());
    assert_eq!(
        session.status().session_id,
        id,
        "the session is the same, so it has deleted the node"
    );
}

fn candidate_that_leaves_waits_for_no_other_locks_node() {
    let (_server, at) = start();
    let session = session_of(&at, Duration::from_secs(6));
    let mutex = ZkMutex::new(&session, "/locks/a").unwrap();
    let guard = mutex.lock().unwrap();
    let candidate = join(&at, &election(&session));
    leads(&candidate);
    raw(&at).set_acl("/locks/a", 31 & !8).unwrap(); // its children may not be deleted
    assert!(matches!(guard.unlock(), Err(Error::NoAuth { .. })));
    assert_eq!(candidate.leave(), Ok(()));
    raw(&at).set_acl("/locks/a", 31).unwrap();
}

// ---- refusals ----

fn refused_candidate_is_out_and_says_why() {
    let (_server, at) = start();
    let session = session(&at);
    let election = election(&session);
    let mut raw = raw(&at);
    raw.mkdirs(PATH).unwrap();
    raw.set_acl(PATH, 1 + 16).unwrap(); // read and admin
    let candidate = election.join().unwrap();
    let refused = Error::NoAuth { op: "campaign", path: PATH.into(), permission: "CREATE" };
    assert_eq!(candidate.wait_leader().map(drop), Err(refused.clone()));
    assert_eq!(next(candidate.events()), ElectionEvent::Failed(refused.clone()));
    assert!(candidate.events().recv().is_err(), "no event follows");
    assert_eq!(election.run(|_| Break(())), Err(refused));
    raw.set_acl(PATH, 31).unwrap();
    assert!(candidate.wait_leader().is_err(), "the candidate has ended");
    candidate.leave().unwrap();
    leads(&election.join().unwrap());
    until_empty(&at, PATH);
}

fn candidate_that_the_server_answers_with_an_error_tries_on() {
    let (_server, at) = start();
    let session = session_of(&at, Duration::from_secs(4));
    let mut raw = raw(&at);
    // Ephemeral nodes have no children.
    let parent = PATH.rsplit_once('/').unwrap().0;
    raw.create(parent, b"", EPHEMERAL).unwrap();
    let candidate = election(&session).join().unwrap();
    let said = candidate.wait_leader().map(drop);
    assert!(matches!(said, Err(Error::Server { .. })), "{said:?}");
    assert_eq!(next(candidate.events()), ElectionEvent::Retrying(said.unwrap_err()));
    thread::sleep(session.status().timeout / 4); // time for another try
    assert!(candidate.events().is_empty(), "each error is reported once");
    raw.delete(parent).unwrap();
    raw.create(parent, b"", PERSISTENT).unwrap();
    until("it leads", SOON, || candidate.is_leader().then_some(()));
    assert!(matches!(next(candidate.events()), ElectionEvent::Elected { .. }));
    leads(&candidate);
}

/// There is no outage: the connection is cut again and again, and made again at once.
fn candidate_whose_creates_are_not_answered_says_so_and_tries_on() {
    let (server, at) = start();
    let policy = RetryPolicy { max_elapsed: Duration::from_secs(1), ..RetryPolicy::default() };
    let timeout = Duration::from_secs(4);
    let session =
        ZkSession::connect(Config::new(&at).session_timeout(timeout).retry_policy(policy)).unwrap();
    let unanswered = server.hold_requests(Op::Create.on(NODE));
    let candidate = election(&session).join().unwrap();
    let said = next(candidate.events());
    assert!(
        matches!(
            said,
            ElectionEvent::Retrying(Error::Unavailable { cause: Cause::NoProgress(_), .. })
        ),
        "{said:?}"
    );
    drop(unanswered);
    until("it leads", SOON, || candidate.is_leader().then_some(()));
    leads(&candidate);
}

// ---- the runner ----

/// The runner is elected. Before it calls its function (its thread is blocked in the logger), its
/// leadership ends.
fn loss_between_the_election_and_the_call_is_never_seen() {
    type End = fn(&TestServer, &ZkSession, &str);
    let ends: [End; 3] = [
        |_, session, at| {
            let node = format!("{PATH}/{}", queue(at, PATH).remove(0));
            until_node_watched(at, &node);
            raw(at).delete(&node).unwrap();
            // The event of the deletion comes before this answer.
            drop(ZkMutex::new(session, "/locks/other").unwrap().lock().unwrap());
            assert_eq!(session.status().state, SessionState::Connected);
        },
        |server, session, _| {
            let events = session.subscribe();
            assert!(server.expire_session(session.status().session_id.unwrap()));
            // The term lasts until its client is notified, which takes another connection.
            until_event(&events, |event| matches!(event, SessionEvent::Lost(_)));
        },
        |server, session, _| {
            server.black_hole(true);
            thread::sleep(session.status().timeout * 23 / 24); // past the lease
            server.black_hole(false);
        },
    ];
    for end in ends {
        let (server, at) = start();
        let session = session_of(&at, Duration::from_secs(4));
        let election = election(&session);
        let (tell, told) = unbounded();
        thread::scope(|scope| {
            let held = logged::hold(": elected");
            let runs = scope.spawn(|| {
                election.run(|leadership| {
                    assert!(leadership.is_held(), "{:?}", leadership.lost_reason());
                    tell.send(name(leadership.path()).to_owned()).unwrap();
                    Break(())
                })
            });
            assert!(held.wait(SOON));
            let first = queue(&at, PATH).remove(0);
            end(&server, &session, &at);
            drop(held);
            runs.join().unwrap().unwrap();
            let called: Vec<_> = told.try_iter().collect();
            assert!(called.len() == 1 && called[0] != first, "{called:?} after {first}");
        });
        until_empty(&at, PATH);
    }
}

fn leader_that_is_expired_while_the_call_runs_is_notified_and_queues_again() {
    let (server, at) = start();
    let (ours, theirs) = (session(&at), session(&at));
    let (tell, told) = bounded(1);
    let calls = AtomicUsize::new(0);
    thread::scope(|scope| {
        let runs = scope.spawn(|| {
            election(&ours).run(|leadership| {
                tell.send(leadership.fencing_token()).unwrap();
                if calls.fetch_add(1, SeqCst) == 1 {
                    return Break(leadership.is_held());
                }
                assert!(leadership.lost().wait(SOON).is_some());
                assert!(!leadership.is_held() && leadership.check().is_err());
                Continue(())
            })
        });
        let first = told.recv_timeout(SOON).unwrap();
        let other = join(&at, &election(&theirs));
        assert!(server.expire_session(ours.status().session_id.unwrap()));
        let theirs = leads(&other).fencing_token();
        until_queue(&at, PATH, 2);
        assert!(
            told.recv_timeout(A_WHILE).is_err() && other.is_leader(),
            "not called beside another leader"
        );
        other.leave().unwrap();
        let second = told.recv_timeout(SOON).unwrap();
        assert!(first < theirs && theirs < second);
        assert_eq!(runs.join().unwrap(), Ok(true));
    });
    until_empty(&at, PATH);
}

/// Runs on both servers.
fn candidates_node_is_swept_when_the_reply_to_its_create_is_lost() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let session = session(&through);
    let (election, id) = (election(&session), session.status().session_id);
    drop(election.join().unwrap());
    until_empty(&at, PATH);
    proxy.drop_reply(OpKind::Create.on(NODE));
    let candidate = election.join().unwrap();
    let leadership = leads(&candidate);
    assert_eq!(proxy.plans(), 0, "the fault was injected");
    until("only the leader's node is left", SOON, || {
        (queue(&at, PATH) == [name(leadership.path())]).then_some(())
    });
    candidate.leave().unwrap();
    assert_eq!(queue(&at, PATH), Vec::<String>::new());
    assert_eq!(session.status().session_id, id);
}

scenarios![
    leader_leads_on_over_an_outage_shorter_than_the_lease on embedded,
    interrupted_leader_knows_before_the_next_one_leads,
    candidates_queue_while_the_server_is_away on embedded,
    leaving_without_having_been_connected_is_quick_and_leaves_nothing on embedded,
    leaving_in_an_outage_says_so_and_the_node_goes on embedded,
    outage_that_outlasts_the_retry_policy_ends_the_wait_and_not_the_candidacy on embedded,
    look_of_a_waiting_candidate_whose_answer_is_lost_is_made_again on embedded,
    flapping_connections_make_no_second_leader on embedded,
    expired_leader_stands_again_behind_the_next on embedded,
    server_that_lost_everything_is_begun_with_anew on embedded,
    node_ahead_that_goes_between_the_listing_and_the_watch_lets_the_next_lead on embedded,
    reset_races_leave_exactly_one_node_for_each_candidate on embedded,
    candidate_that_leaves_while_its_create_is_unanswered_leaves_no_node on embedded,
    candidate_that_leaves_waits_for_no_other_locks_node on embedded,
    refused_candidate_is_out_and_says_why on embedded,
    candidate_that_the_server_answers_with_an_error_tries_on on embedded,
    candidate_whose_creates_are_not_answered_says_so_and_tries_on on embedded,
    loss_between_the_election_and_the_call_is_never_seen on embedded,
    leader_that_is_expired_while_the_call_runs_is_notified_and_queues_again on embedded,
    candidates_node_is_swept_when_the_reply_to_its_create_is_lost,
];
