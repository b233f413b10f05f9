//! Elections: the leader, the order of leaders, how a candidate leaves, and the events of the latch
//! and the runner.
use crate::support::{
    Raw, Shared,
    contend::{proxied, session, spawn_waiting, stat, until_queue},
    process::{Process, child},
    raw::EPHEMERAL_SEQUENTIAL,
    scenarios,
    scene::{SOON, full_path, name, queue, session_of, until_empty},
    until,
};
use crossbeam_channel::{Receiver, unbounded};
use std::{
    ops::ControlFlow::{Break, Continue},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};
use zk_mutex::{
    CancelToken, Cause, ElectionEvent, Error, Leadership, LockBuilder, LossReason, OptionalExt,
    SessionState, Wait, ZkCandidate, ZkElection, ZkMutex, ZkSession,
};

pub const PATH: &str = "/elections/billing";
const UUID: &str = "6f8ad2cc-3b5e-4f0c-9a57-0b8f9d3c1e42";
/// Long enough to see that something does not come.
const A_WHILE: Duration = Duration::from_millis(300);

pub fn election(session: &ZkSession) -> ZkElection {
    ZkElection::new(session, PATH).unwrap()
}

fn named(session: &ZkSession, id: &str) -> ZkElection {
    ZkElection::builder(session, PATH).data(id).build().unwrap()
}

/// Joins, and returns when the candidate's node exists and the candidate knows it. Before the
/// answer to its create, a cut of its connection would make it queue again with another node and
/// delete this one a little later.
#[track_caller]
pub fn join(at: &str, election: &ZkElection) -> ZkCandidate {
    let before = queue(at, PATH).len();
    let candidate = election.join().unwrap();
    until_queue(at, PATH, before + 1);
    let has_place = || candidate.wait_leader_timeout(Duration::ZERO).optional().ok().map(drop);
    until("the candidate leads or knows the leader", SOON, has_place);
    candidate
}

#[track_caller]
pub fn leads(candidate: &ZkCandidate) -> Leadership {
    candidate.wait_leader_timeout(SOON).optional().unwrap().expect("it leads")
}

#[track_caller]
pub fn next(events: &Receiver<ElectionEvent>) -> ElectionEvent {
    events.recv_timeout(SOON).expect("an event of the election")
}

/// The ids of the candidates, in the order of the queue.
fn ids(election: &ZkElection) -> Vec<String> {
    let id = |candidate: zk_mutex::Contender| String::from_utf8(candidate.data).unwrap();
    election.contenders().unwrap().into_iter().map(id).collect()
}

// ---- the latch ----

fn candidates_lead_in_the_order_in_which_they_joined() {
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at)];
    let election = election(&sessions[1]);
    assert!(
        election.holders().unwrap().is_empty(),
        "there are no candidates, and the path does not exist"
    );
    let candidates: Vec<_> =
        (0..4).map(|n| join(&at, &named(&sessions[n % 2], &format!("number {n}")))).collect();
    let mut last = None;
    for (place, candidate) in candidates.iter().enumerate() {
        let leadership = leads(candidate);
        let token = leadership.fencing_token();
        assert!(last < Some(token), "{last:?} before {token:?}");
        last = Some(token);
        let leading: Vec<bool> = candidates.iter().map(ZkCandidate::is_leader).collect();
        assert!(leading.iter().enumerate().all(|(n, leads)| *leads == (n == place)), "{leading:?}");
        let ids = ids(&election);
        assert_eq!(ids, (place..4).map(|n| format!("number {n}")).collect::<Vec<_>>());
        let leader = election.holders().unwrap().remove(0);
        assert_eq!((leader.data, leader.reads), (ids[0].clone().into_bytes(), false));
        assert_eq!(Some(leader.session_id), sessions[place % 2].status().session_id);
        assert_eq!(leader.path, leadership.path());
        assert!(
            name(&leader.path).starts_with("_c_") && leader.path.contains("-latch-"),
            "{}",
            leader.path
        );
        let czxid = stat(&at, leadership.path()).unwrap().czxid;
        assert_eq!(token.zxid(), czxid, "the token has the czxid of its node");
        candidate.leave().unwrap();
        assert!(!candidate.is_leader() && queue(&at, PATH).len() == 3 - place);
    }
    until_empty(&at, PATH);
}

fn candidate_that_leaves_from_the_middle_promotes_no_other() {
    let at = Shared::chroot();
    let session = session(&at);
    let election = election(&session);
    let candidates: Vec<_> = (0..4).map(|_| join(&at, &election)).collect();
    leads(&candidates[0]);
    candidates[1].leave().unwrap();
    assert!(candidates[2].wait_leader_timeout(A_WHILE).optional().unwrap().is_none());
    assert!(
        candidates[0].is_leader()
            && candidates[3].wait_leader_timeout(A_WHILE).optional().unwrap().is_none()
    );
    assert_eq!(queue(&at, PATH).len(), 3);
    candidates[0].leave().unwrap();
    leads(&candidates[2]);
    assert!(!candidates[3].is_leader() && !candidates[1].is_leader());
}

fn leadership_rotates_over_the_candidates() {
    const CANDIDATES: usize = 5;
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at)];
    let elections: Vec<_> =
        (0..CANDIDATES).map(|n| named(&sessions[n % 2], &n.to_string())).collect();
    let mut joined: Vec<_> = elections.iter().map(|election| join(&at, election)).collect();
    let mut last = None;
    for turn in 0..CANDIDATES * 3 {
        let leadership = leads(&joined[0]);
        let token = leadership.fencing_token();
        assert!(last < Some(token));
        last = Some(token);
        assert_eq!(joined.iter().filter(|candidate| candidate.is_leader()).count(), 1);
        drop(joined.remove(0));
        assert!(!leadership.is_held());
        joined.push(elections[turn % CANDIDATES].join().unwrap());
        until("the candidate has a new node instead of the old one", SOON, || {
            let ids = ids(&elections[0]);
            (ids.len() == CANDIDATES && *ids.last()? == (turn % CANDIDATES).to_string())
                .then_some(())
        });
    }
    drop(joined);
    until_empty(&at, PATH);
}

fn nothing_is_left_after_leaving_and_joining_anew_is_another_candidate() {
    let at = Shared::chroot();
    let session = session(&at);
    let election = election(&session);
    let candidate = election.join().unwrap();
    let leadership = leads(&candidate);
    let (lost, copy, token) = (leadership.lost(), leadership.clone(), leadership.fencing_token());
    assert!(
        leadership.is_held()
            && leadership.check().is_ok()
            && leadership.valid_for() > Duration::ZERO
    );
    assert_eq!((leadership.hold_count(), leadership.lost_reason()), (1, None));
    drop(leadership);
    assert!(candidate.is_leader(), "dropping a view does not end the term");
    candidate.leave().unwrap();
    assert_eq!(queue(&at, PATH), Vec::<String>::new());
    assert!(
        lost.receiver().try_recv().is_err_and(|e| e.is_disconnected()),
        "every end of a term is reported"
    );
    assert_eq!((copy.is_held(), copy.lost_reason()), (false, Some(LossReason::Resigned)));
    assert_eq!(copy.valid_for(), Duration::ZERO);
    let gone = Error::Lost { path: copy.path().to_owned(), reason: LossReason::Resigned };
    assert_eq!((copy.check(), copy.fencing_token()), (Err(gone), token));
    let cancelled = Error::Cancelled { path: PATH.into() };
    assert_eq!(candidate.wait_leader().map(drop), Err(cancelled.clone()));
    assert_eq!(candidate.wait_leader_timeout(SOON).optional().map(drop), Err(cancelled));
    candidate.leave().unwrap();
    assert!(!candidate.is_leader() && candidate.leadership().is_none());
    let events: Vec<_> = candidate.events().iter().collect();
    assert!(
        matches!(events[..], [ElectionEvent::Elected { .. }, ElectionEvent::Left]),
        "{events:?}"
    );
    let again = election.join().unwrap();
    assert!(leads(&again).is_held() && !copy.is_held());
    drop(again);
    until_empty(&at, PATH);
}

fn candidates_that_are_dropped_leave_wherever_they_stand() {
    let at = Shared::chroot();
    let session = session(&at);
    let election = election(&session);
    for drops in [0, 1] {
        let mut candidates = vec![join(&at, &election), join(&at, &election)];
        leads(&candidates[0]);
        drop(candidates.remove(drops));
        leads(&candidates[0]);
        until_queue(&at, PATH, 1);
        drop(candidates);
        until_empty(&at, PATH);
    }
    // They are dropped right after joining, while requests are under way.
    for _ in 0..20 {
        drop(election.join().unwrap());
    }
    until_empty(&at, PATH);
    for _ in 0..20 {
        election.join().unwrap().leave().unwrap();
        assert_eq!(queue(&at, PATH), Vec::<String>::new());
    }
    assert_eq!(session.status().state, SessionState::Connected);
}

fn leaving_ends_the_waits_of_other_threads() {
    let at = Shared::chroot();
    let session = session(&at);
    let election = election(&session);
    let [first, second] = [(); 2].map(|()| join(&at, &election));
    let leadership = leads(&first);
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        let waits = spawn_waiting(scope, || second.wait_leader().map(drop));
        let cancelled = spawn_waiting(scope, || {
            second.wait_leader_with(Wait::forever().cancelled_by(&cancel)).optional().map(drop)
        });
        let told = spawn_waiting(scope, || leadership.lost().wait(SOON));
        cancel.cancel();
        assert_eq!(cancelled.join().unwrap(), Err(Error::Cancelled { path: PATH.into() }));
        assert!(!waits.is_finished(), "the candidate stays in the queue");
        second.leave().unwrap();
        assert_eq!(waits.join().unwrap(), Err(Error::Cancelled { path: PATH.into() }));
        first.leave().unwrap();
        assert!(told.join().unwrap().is_some());
    });
}

fn waiting_for_leadership_in_vain_is_no_error() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let leader = join(&at, &election(&theirs));
    leads(&leader);
    let candidate = join(&at, &election(&ours));
    let begun = Instant::now();
    assert!(candidate.wait_leader_timeout(A_WHILE).optional().unwrap().is_none());
    assert!(begun.elapsed() >= A_WHILE);
    // There is no time to ask who leads now.
    let said = candidate.wait_leader_with(Wait::until(Instant::now())).optional().map(drop);
    let is_expected = matches!(said, Err(Error::Unavailable { cause: Cause::Deadline, .. }));
    assert!(is_expected, "{said:?}");
    assert!(candidate.leadership().is_none() && !candidate.is_leader());
    assert_eq!(queue(&at, PATH).len(), 2, "the candidate stays in the queue");
    thread::scope(|scope| {
        let waits = spawn_waiting(scope, || candidate.wait_leader().unwrap().is_held());
        leader.leave().unwrap();
        assert!(waits.join().unwrap());
    });
    // It leads the whole time, so the call does not wait.
    assert!(candidate.wait_leader_timeout(Duration::ZERO).optional().unwrap().is_some());
}

fn own_node_deleted_by_a_third_party_ends_the_term_and_it_queues_again() {
    let at = Shared::chroot();
    let session = session(&at);
    let election = election(&session);
    let [first, second] = [(); 2].map(|()| join(&at, &election));
    let (leadership, events) = (leads(&first), first.events());
    let token = leadership.fencing_token();
    assert_eq!(next(events), ElectionEvent::Elected { token });
    let mut raw = Raw::connect(&at).unwrap();
    raw.delete(&full_path(&at, leadership.path())).unwrap();
    let theirs = leads(&second);
    assert!(!leadership.is_held() && theirs.is_held(), "the first leader was notified before");
    assert_eq!(next(events), ElectionEvent::Lost(LossReason::NodeDeleted));
    // It queues again, behind the other candidate.
    until_queue(&at, PATH, 2);
    assert!(first.wait_leader_timeout(A_WHILE).optional().unwrap().is_none());
    second.leave().unwrap();
    let again = leads(&first);
    assert!(again.is_held() && !leadership.is_held() && !theirs.is_held());
    assert!(again.fencing_token() > token);
    assert_eq!(next(events), ElectionEvent::Elected { token: again.fencing_token() });
    first.leave().unwrap();
    assert_eq!(next(events), ElectionEvent::Left);
    assert!(events.recv().is_err(), "no event follows");
    until_empty(&at, PATH);
}

fn slow_reader_of_events_blocks_no_other() {
    let at = Shared::chroot();
    let session = session(&at);
    let candidate = election(&session).join().unwrap();
    let mut raw = Raw::connect(&at).unwrap();
    let mut last = None;
    for _ in 0..40 {
        let leadership = leads(&candidate);
        last = Some(leadership.fencing_token());
        raw.delete(&full_path(&at, leadership.path())).unwrap();
        assert!(leadership.lost().wait(SOON).is_some());
    }
    let token = leads(&candidate).fencing_token();
    candidate.leave().unwrap();
    let events: Vec<_> = candidate.events().iter().collect();
    assert!(events.len() < 80, "the oldest events are dropped");
    assert_eq!(events[events.len() - 2..], [ElectionEvent::Elected { token }, ElectionEvent::Left]);
    assert!(Some(token) > last);
}

fn closed_session_ends_the_candidacy() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let election = election(&ours);
    let [first, second] = [(); 2].map(|()| join(&at, &election));
    let leadership = leads(&first);
    let next_one = join(&at, &self::election(&theirs));
    thread::scope(|scope| {
        let waits = spawn_waiting(scope, || second.wait_leader().map(drop));
        ours.close().unwrap();
        assert!(matches!(waits.join().unwrap(), Err(Error::Closed { .. })));
    });
    assert_eq!(
        (leadership.is_held(), leadership.lost_reason()),
        (false, Some(LossReason::SessionClosed))
    );
    leads(&next_one);
    let events: Vec<_> = first.events().iter().collect();
    let lost = ElectionEvent::Lost(LossReason::SessionClosed);
    assert!(events.len() == 3 && events[1] == lost, "{events:?}");
    assert!(matches!(&events[2], ElectionEvent::Failed(Error::Closed { .. })), "{events:?}");
    assert!(matches!(first.wait_leader().map(drop), Err(Error::Closed { .. })));
    assert!(matches!(election.join().map(drop), Err(Error::Closed { .. })));
    assert!(matches!(election.run(|_| Break(())), Err(Error::Closed { .. })));
    assert!(matches!(election.holders().map(drop), Err(Error::Closed { .. })));
    first.leave().unwrap();
    assert_eq!(queue(&at, PATH).len(), 1, "the nodes were deleted with the session");
}

// ---- the path ----

fn path_may_not_exist_yet_and_goes_without_a_trace() {
    let at = Shared::chroot();
    let session = session(&at);
    let election = ZkElection::new(&session, "/some/where/quite/deep").unwrap();
    let candidates = [(); 3].map(|()| election.join().unwrap());
    until("one leads", SOON, || candidates.iter().any(ZkCandidate::is_leader).then_some(()));
    until("all stand", SOON, || (election.contenders().unwrap().len() == 3).then_some(()));
    drop(candidates);
    until_empty(&at, "/some/where/quite/deep");
}

fn paths_that_are_none_are_refused() {
    let at = Shared::chroot();
    let session = session(&at);
    for path in ["elections/billing", "", "/", "/a//b", "/a/", "/a/../b"] {
        let refused = ZkElection::new(&session, path).unwrap_err();
        assert!(
            matches!(&refused, Error::InvalidPath { path: told, .. } if told == path),
            "{refused}"
        );
    }
}

fn elections_and_locks_keep_off_each_others_paths() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let election = election(&ours);
    let refused = ZkMutex::new(&ours, PATH).unwrap_err();
    assert!(
        matches!(&refused, Error::InvalidConfig { reason, .. } if reason.contains("another kind")),
        "{refused}"
    );
    let refused =
        ZkElection::builder(&ours, PATH).acl(zk_mutex::Acl::CreatorAll).build().unwrap_err();
    assert!(matches!(refused, Error::InvalidConfig { .. }), "{refused}");
    assert!(ZkMutex::new(&theirs, PATH).is_err(), "through another session");
    // The locks of other processes are known by their nodes.
    const OTHER: &str = "/elections/other";
    let mut raw = Raw::connect(&at).unwrap();
    for (path, mark) in [(PATH, "lock-"), (OTHER, "latch-")] {
        raw.mkdirs(&full_path(&at, path)).unwrap();
        let prefix =
            full_path(&at, &format!("{path}/_c_6f8ad2cc-3b5e-4f0c-9a57-0b8f9d3c1e42-{mark}"));
        raw.create(&prefix, b"", EPHEMERAL_SEQUENTIAL).unwrap();
    }
    let candidate = election.join().unwrap();
    let refused = candidate.wait_leader().unwrap_err();
    assert!(matches!(&refused, Error::InvalidConfig { what: "path", .. }), "{refused}");
    let mutex = ZkMutex::new(&theirs, OTHER).unwrap();
    let refused = mutex.try_lock().unwrap_err();
    assert!(matches!(&refused, Error::InvalidConfig { what: "path", .. }), "{refused}");
    assert_eq!((election.contenders().unwrap().len(), mutex.contenders().unwrap().len()), (0, 0));
}

fn wiped_path_is_made_again_and_one_leads() {
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at)];
    let candidates: Vec<_> = (0..4).map(|n| join(&at, &election(&sessions[n % 2]))).collect();
    for _ in 0..3 {
        until("one leads", SOON, || candidates.iter().find_map(ZkCandidate::leadership));
        let before = queue(&at, PATH);
        // This is what an administrator does. Candidates queue again meanwhile.
        let mut raw = Raw::connect(&at).unwrap();
        until("the path does not exist for a moment", SOON, || {
            raw.delete_recursive(&full_path(&at, "/elections")).is_ok().then_some(())
        });
        until("the candidates are back in the queue", SOON, || {
            let now = queue(&at, PATH);
            (now.len() == 4 && before.iter().all(|name| !now.contains(name))).then_some(())
        });
        until("exactly one leads", SOON, || {
            (candidates.iter().filter(|candidate| candidate.is_leader()).count() == 1).then_some(())
        });
        let leader = election(&sessions[0]).holders().unwrap().remove(0);
        let leading = candidates.iter().find_map(ZkCandidate::leadership).unwrap();
        assert_eq!(leading.path(), leader.path);
    }
    drop(candidates);
    until_empty(&at, PATH);
}

// ---- others ----

fn foreign_latches_are_respected_and_respect_ours() {
    let at = Shared::chroot();
    let session = session(&at);
    let election = named(&session, "ours");
    drop(join(&at, &election)); // makes the path
    until_empty(&at, PATH);
    let mut curator = Raw::connect(&at).unwrap();
    let prefix = full_path(&at, &format!("{PATH}/_c_{UUID}-latch-"));
    let theirs = curator.create(&prefix, b"java", EPHEMERAL_SEQUENTIAL).unwrap();
    let candidate = join(&at, &election);
    assert!(candidate.wait_leader_timeout(A_WHILE).optional().unwrap().is_none());
    assert_eq!(election.holders().unwrap().remove(0).data, b"java");
    let behind = curator.create(&prefix, b"java", EPHEMERAL_SEQUENTIAL).unwrap();
    assert_eq!(ids(&election), ["java", "ours", "java"]);
    curator.delete(&theirs).unwrap();
    leads(&candidate);
    // The foreign latch has its id in the node's data.
    let ours = election.holders().unwrap().remove(0).path;
    assert_eq!(curator.get_data(&full_path(&at, &ours)).unwrap().0, b"ours");
    candidate.leave().unwrap();
    assert_eq!(ids(&election), ["java"]);
    curator.delete(&behind).unwrap();
}

/// The child's part: it leads until it is killed.
fn lead_until_killed(address: &str) {
    let session = session_of(address, Duration::from_secs(2));
    let candidate = election(&session).join().unwrap();
    println!("{}", candidate.wait_leader().unwrap().fencing_token().zxid());
    thread::sleep(Duration::from_secs(90));
}

fn leader_that_is_killed_elects_the_next() {
    if let Some(address) = child() {
        return lead_until_killed(&address);
    }
    let at = Shared::chroot();
    let mut leader =
        Process::start(module_path!(), "leader_that_is_killed_elects_the_next", &at, &[]);
    let token: i64 = leader.says().parse().unwrap();
    let session = session(&at);
    let [second, third] = [(); 2].map(|()| join(&at, &election(&session)));
    assert!(second.wait_leader_timeout(A_WHILE).optional().unwrap().is_none());
    drop(leader); // with SIGKILL
    let leadership = second
        .wait_leader_timeout(SOON * 2)
        .optional()
        .unwrap()
        .expect("the server ended its session");
    assert!(leadership.fencing_token().zxid() > token);
    assert!(!third.is_leader());
    drop((second, third));
    until_empty(&at, PATH);
}

fn next_one_leads_though_the_first_went_while_the_next_was_away() {
    let at = Shared::chroot();
    let (proxy, through) = proxied(&at);
    let (ours, theirs) = (session(&at), session(&through));
    let first = join(&at, &election(&ours));
    let second = join(&at, &election(&theirs));
    leads(&first);
    proxy.refuse(true);
    proxy.cut();
    until("an outage", SOON, || (theirs.status().state == SessionState::Suspended).then_some(()));
    first.leave().unwrap();
    let begun = Instant::now();
    let said = second.wait_leader_timeout(A_WHILE).optional().map(drop);
    assert!(matches!(said, Err(Error::Unavailable { .. })), "an outage is no contention: {said:?}");
    assert!(begun.elapsed() >= A_WHILE);
    proxy.refuse(false);
    leads(&second);
    assert_eq!(queue(&at, PATH).len(), 1);
}

// ---- the runner ----

fn runner_leads_again_until_it_ends_itself() {
    let at = Shared::chroot();
    let session = session(&at);
    let election = election(&session);
    let mut terms = Vec::new();
    let said = election.run(|leadership| {
        assert!(leadership.is_held());
        assert_eq!(queue(&at, PATH).last().map(String::as_str), Some(name(leadership.path())));
        terms.push((leadership.fencing_token(), leadership.clone()));
        if terms.len() == 3 { Break("enough") } else { Continue(()) }
    });
    assert_eq!(said, Ok("enough"));
    assert!(terms.is_sorted_by(|a, b| a.0 < b.0), "a node for each term");
    assert!(terms.iter().all(|(_, term)| !term.is_held() && term.lost().wait(SOON).is_some()));
    until_empty(&at, PATH);
}

fn runners_lead_one_after_the_other() {
    const RUNNERS: usize = 4;
    const TERMS: usize = 15;
    let at = Shared::chroot();
    let sessions = [session(&at), session(&at)];
    let section = crate::support::contend::Section::default();
    let (tell, told) = unbounded();
    thread::scope(|scope| {
        for runner in 0..RUNNERS {
            let (election, section, tell) =
                (election(&sessions[runner % 2]), &section, tell.clone());
            let at = &at;
            scope.spawn(move || {
                let mut terms = 0;
                election.run(|leadership| {
                    // This makes the order that of the queue, not that of the threads' start.
                    if terms == 0 {
                        until("all stand", SOON, || {
                            (queue(at, PATH).len() >= RUNNERS).then_some(())
                        });
                    }
                    section.pass();
                    assert!(leadership.is_held());
                    tell.send(runner).unwrap();
                    terms += 1;
                    if terms == TERMS { Break(()) } else { Continue(()) }
                })
            });
            until_queue(at, PATH, runner + 1);
        }
    });
    drop(tell);
    assert_eq!(section.counter(), RUNNERS * TERMS);
    let order: Vec<usize> = told.iter().collect();
    // A candidate that has led queues again at the end, so all others lead in between.
    assert!(order.windows(2).filter(|two| two[0] == two[1]).count() <= RUNNERS, "{order:?}");
    until_empty(&at, PATH);
}

fn panic_of_the_runners_work_ends_its_term_and_goes_on() {
    let at = Shared::chroot();
    let session = session(&at);
    let election = election(&session);
    let mut seen = None;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        election.run(|leadership| -> std::ops::ControlFlow<()> {
            seen = Some(leadership.clone());
            panic!("while leading")
        })
    }));
    assert!(panicked.is_err_and(|panic| panic.downcast_ref::<&str>() == Some(&"while leading")));
    assert!(seen.is_some_and(|leadership| !leadership.is_held()));
    until_empty(&at, PATH);
    assert_eq!(election.run(|_| Break(7)), Ok(7));
}

fn runner_is_cancelled_while_it_waits_and_between_two_terms() {
    let at = Shared::chroot();
    let session = session(&at);
    let election = election(&session);
    let cancelled = Err(Error::Cancelled { path: PATH.into() });
    let leader = join(&at, &election);
    leads(&leader);
    let calls = AtomicUsize::new(0);
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        let runs = spawn_waiting(scope, || {
            election.run_until_cancelled(&cancel, |_| {
                calls.fetch_add(1, SeqCst);
                Break(())
            })
        });
        until_queue(&at, PATH, 2);
        cancel.cancel();
        assert_eq!(runs.join().unwrap(), cancelled);
    });
    assert_eq!(calls.load(SeqCst), 0);
    until_queue(&at, PATH, 1);
    leader.leave().unwrap();
    assert_eq!(
        election.run_until_cancelled(&cancel, |_| Break(())),
        cancelled,
        "cancelled is cancelled"
    );
    let cancel = CancelToken::new();
    let said = election.run_until_cancelled(&cancel, |leadership| -> std::ops::ControlFlow<()> {
        cancel.cancel();
        assert!(leadership.is_held(), "the running term is not interrupted");
        calls.fetch_add(1, SeqCst);
        Continue(())
    });
    assert_eq!((said, calls.load(SeqCst)), (cancelled, 1));
    until_empty(&at, PATH);
}

fn runner_and_latch_stand_in_one_queue() {
    let at = Shared::chroot();
    let (ours, theirs) = (session(&at), session(&at));
    let candidate = join(&at, &election(&ours));
    let leadership = leads(&candidate);
    thread::scope(|scope| {
        let runs = spawn_waiting(scope, || {
            election(&theirs).run(|leading| Break((leadership.is_held(), leading.is_held())))
        });
        until_queue(&at, PATH, 2);
        candidate.leave().unwrap();
        assert_eq!(runs.join().unwrap(), Ok((false, true)));
    });
    until_empty(&at, PATH);
}

// ---- types ----

fn what_debug_shows() {
    let at = Shared::chroot();
    let session = session(&at);
    let election = election(&session);
    assert_eq!(format!("{election:?}"), format!("ZkElection {{ path: {PATH:?}, .. }}"));
    let candidate = election.join().unwrap();
    let leadership = leads(&candidate);
    assert_eq!(
        format!("{candidate:?}"),
        format!("ZkCandidate {{ path: {PATH:?}, state: <leads>, .. }}")
    );
    let shown = format!("{leadership:?}");
    assert!(shown.contains("-latch-") && shown.contains("<held>"), "{shown}");
    candidate.leave().unwrap();
    assert!(
        format!("{candidate:?}").contains("<over>") && format!("{leadership:?}").contains("<lost>")
    );
    fn both<T: Send + Sync + 'static>() {}
    both::<(ZkElection, LockBuilder<ZkElection>, ZkCandidate, Leadership, ElectionEvent)>();
}

scenarios![
    candidates_lead_in_the_order_in_which_they_joined,
    candidate_that_leaves_from_the_middle_promotes_no_other,
    leadership_rotates_over_the_candidates,
    nothing_is_left_after_leaving_and_joining_anew_is_another_candidate,
    candidates_that_are_dropped_leave_wherever_they_stand,
    leaving_ends_the_waits_of_other_threads,
    waiting_for_leadership_in_vain_is_no_error,
    own_node_deleted_by_a_third_party_ends_the_term_and_it_queues_again,
    slow_reader_of_events_blocks_no_other,
    closed_session_ends_the_candidacy,
    path_may_not_exist_yet_and_goes_without_a_trace,
    paths_that_are_none_are_refused,
    elections_and_locks_keep_off_each_others_paths,
    wiped_path_is_made_again_and_one_leads,
    foreign_latches_are_respected_and_respect_ours,
    leader_that_is_killed_elects_the_next,
    next_one_leads_though_the_first_went_while_the_next_was_away,
    runner_leads_again_until_it_ends_itself,
    runners_lead_one_after_the_other,
    panic_of_the_runners_work_ends_its_term_and_goes_on,
    runner_is_cancelled_while_it_waits_and_between_two_terms,
    runner_and_latch_stand_in_one_queue,
    what_debug_shows,
];
