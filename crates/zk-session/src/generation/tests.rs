//! A generation beside the embedded server: cases whose outcome depends on which thread comes
//! first.

use crossbeam_channel::Sender;

use super::*;
use crate::acl::{Acl, AclEntry, Permissions};
use crate::cancel::CancelToken;
use crate::lease::node::{Listener, NodeWatch};
use crate::limit::Ended;
use crate::machine::{Batch, Output};
use crate::notifier::Notifier;
use crate::raw::RawNews;
use crate::world::bounded;
use crate::{Config, Session, SessionEvent};
use zk_test_server::{Op, TestServer};
use zk_test_support::control;
use zk_wire::code::{event, op};
use zk_wire::path;

/// A session with a timeout of 40 s.
fn long_session(server: &TestServer) -> Session {
    session_of(server, Duration::from_secs(40))
}

/// Stops the event loop, as a busy computer may do, until the returned sender is dropped.
fn stop_event_loop(generation: &Generation) -> Sender<()> {
    // On a new connection callers cannot send until the event loop has been at work once. It must
    // not stop before that.
    generation.read("/", false, &Limit::NONE).unwrap();
    let (stopped, is_stopped) = bounded(0);
    let (go_on, gate) = bounded::<()>(0);
    let stop = move || {
        let _ = (stopped.send(()), gate.recv());
    };
    generation.at(BootTime::now(), Box::new(stop));
    is_stopped.recv().unwrap();
    go_on
}

/// Makes an ephemeral node and holds it under the lease; `on_loss` hears of its loss.
fn hold(generation: &Generation, on_loss: impl Fn() + Send + Sync + 'static) -> Arc<LeasedNode> {
    hold_at("/held", generation, Arc::new(on_loss))
}

fn hold_at(path: &str, generation: &Generation, listener: Arc<dyn Listener>) -> Arc<LeasedNode> {
    let (acl, mode) = (&Acl::Open, CreateMode::Ephemeral);
    let create = Operation::Create { path, data: &[], acl, mode };
    let (path, czxid) = generation.call(create, &Limit::NONE).unwrap().created().unwrap();
    let node = LeasedNode::new(path, czxid, NodeWatch::Unset, listener);
    generation.grant(&node).unwrap();
    node
}

fn is_held(generation: &Generation, node: &Arc<LeasedNode>) -> bool {
    generation.lease.is_held(node, BootTime::now())
}

/// Whether this client finds the node that `hold` has made.
fn finds_it(generation: &Generation) -> bool {
    generation.read("/held", false, &Limit::NONE).is_ok()
}

#[test]
fn reads_behind_a_sync_that_failed_show_nothing() {
    let answers = |sync| {
        let all = vec![sync, Ok(Reply::Children(Listing::default()))];
        let pending = Arc::default();
        Answers { all, epoch: 1, were_sent: true, pending, was_cut_short: false }.behind_sync()
    };
    assert!(answers(Ok(Reply::Done)).unwrap().listed(0).is_ok());
    let refused = CallError::Other("ThrottledOp".to_owned());
    assert_eq!(answers(Err(refused.clone())).err(), Some(refused));
}

/// A write that finds no connection in its time is not done when there is one again.
#[test]
fn a_write_that_was_not_sent_is_never_sent_whatever_ended_its_wait() {
    let server = TestServer::start().unwrap();
    // The operation timeout is a second.
    let session = session_of(&server, Duration::from_secs(6));
    let events = session.subscribe();
    let generation = session.core().generation().unwrap();
    let token = CancelToken::new();
    token.cancel();
    server.refuse(true);
    server.cut_connections();
    while events.recv().unwrap() != SessionEvent::Suspended {}
    for limit in [
        Limit::NONE, // it is given up after the operation timeout
        Limit::after(Duration::from_millis(10)),
        Limit::cancelled_by(&token),
    ] {
        let create = Operation::Create {
            path: "/a",
            data: b"",
            acl: &Acl::Open,
            mode: CreateMode::PersistentSequential,
        };
        assert!(generation.write(create, &limit).unwrap().is_none());
    }
    server.refuse(false);
    while events.recv().unwrap() != SessionEvent::Reconnected {}
    assert!(generation.read("/", false, &Limit::NONE).is_ok());
    assert_eq!(server.count(Op::Create), 0);
    // In the session's end too.
    session.close().unwrap();
    let delete = Operation::Delete { path: "/", version: None };
    assert!(generation.write(delete, &Limit::NONE).unwrap().is_none());
}

#[test]
fn nothing_is_held_any_more_when_the_server_hears_of_the_close() {
    let server = TestServer::start().unwrap();
    let session = || Session::connect(server.connect_string()).unwrap();
    let (ours, theirs) = (session(), session());
    let theirs = theirs.core().generation().unwrap();
    let generation = ours.core().generation().unwrap();
    let node = hold(&generation, || ());
    let go_on = stop_event_loop(&generation);
    std::thread::scope(|scope| {
        scope.spawn(|| ours.close());
        while finds_it(&theirs) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_held(&generation, &node), "another client could hold it too");
        drop(go_on);
    });
}

/// While the host sleeps the clock of the leases goes on, and the supervisor's timer does not.
#[test]
fn the_supervisor_looks_once_in_a_second_however_long_the_timeout_is() {
    let server = TestServer::start().unwrap();
    let session = long_session(&server);
    assert_eq!(session.status().timeout, Duration::from_secs(40));
    let generation = session.core().generation().unwrap();
    let looks = loop {
        match generation.supervisor_looks.get() {
            next if next == BootTime::default() || next == BootTime::END => {
                std::thread::yield_now();
            }
            next => break next,
        }
    };
    assert!(looks.since(generation.timers_now()) <= Duration::from_secs(1));
}

/// A supervisor that only looked now and then would come a second late here.
#[test]
fn the_supervisor_wakes_for_the_end_of_the_lease() {
    control::start();
    let server = TestServer::start().unwrap();
    let session = long_session(&server);
    let generation = session.core().generation().unwrap();
    let lost = hold(&generation, || ()).signal();
    let go_on = stop_event_loop(&generation); // it would renew the lease
    let begun = std::time::Instant::now();
    let timeout = Duration::from_millis(360);
    generation.lease.begin(timeout, BootTime::now());
    (generation.of_core.wake_supervisor)();
    assert_eq!(lost.wait(SOON), Some(LossReason::LeaseExpired));
    let took = control::at_best(begun);
    assert!(took < timeout * 2, "{took:?} in place of {:?}", timeout - timeout / 12);
    drop(go_on);
}

/// A supervisor that slept on until its next look would tell of this hold's end most of a second
/// late.
#[test]
fn the_supervisor_wakes_for_the_end_of_a_hold_that_is_bound_while_it_sleeps() {
    control::start();
    let server = TestServer::start().unwrap();
    let session = long_session(&server);
    let generation = session.core().generation().unwrap();
    let node = hold(&generation, || ());
    let lost = node.signal();
    let max = Duration::from_millis(50);
    // It has just begun to sleep.
    let sleeps = loop {
        let next = generation.supervisor_looks.get();
        let left = next.since(generation.timers_now());
        if next != BootTime::END && left > max * 18 {
            break left;
        }
        std::thread::yield_now();
    };
    let begun = std::time::Instant::now();
    let bounds = Bounds { max: Some(max), ..Bounds::default() };
    generation.bind(&node, bounds);
    assert_eq!(lost.wait(SOON), Some(LossReason::HeldTooLong));
    let took = control::at_best(begun);
    assert!(took < sleeps - max, "{took:?} in place of {max:?}; its next look was {sleeps:?} away");
}

/// The thread that closes the session loses the processor just before it ends the lease.
#[test]
fn the_server_hears_of_no_close_while_something_is_held() {
    let server = TestServer::start().unwrap();
    let session = || Session::connect(server.connect_string()).unwrap();
    let (ours, theirs) = (session(), session());
    let theirs = theirs.core().generation().unwrap();
    let generation = ours.core().generation().unwrap();
    let node = hold(&generation, || ());
    // The event loop has no more work until the lease is to be renewed.
    assert!(server.wait_request(Op::GetData.on("/held"), SOON).is_some());
    generation.read("/", false, &Limit::NONE).unwrap();
    std::thread::scope(|scope| {
        let stopped = generation.lease.stopped();
        scope.spawn(|| ours.close());
        let until = std::time::Instant::now() + Duration::from_secs(1);
        while std::time::Instant::now() < until {
            assert!(finds_it(&theirs));
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(stopped);
        while finds_it(&theirs) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!is_held(&generation, &node));
    });
}

/// A thread of this process may wait for this node and get the lock.
#[test]
fn a_hold_is_lost_before_anybody_is_told_that_its_node_is_gone() {
    let server = TestServer::start().unwrap();
    let session = Session::connect(server.connect_string()).unwrap();
    let generation = session.core().generation().unwrap();
    let leased = LeasedNode::new("/l/n".into(), 5, NodeWatch::Unset, Arc::new(|| ()));
    generation.grant(&leased).unwrap();
    let (tell, told) = bounded(1);
    let hold = leased.clone();
    let is_told = move |news: RawNews<'_>| {
        if let RawNews::Watch { .. } = news {
            tell.send(hold.loss()).unwrap();
        }
    };
    generation.listen(Arc::new(is_told));
    generation.take_output(Output::Watch { kind: event::DELETED, path: "/l/n".into() });
    assert_eq!(told.recv().unwrap(), Some(LossReason::NodeDeleted));
}

/// A caller finds no notification and makes its node a hold, while the event loop looks for a hold,
/// finds none, and tells of the deletion.
#[test]
fn a_node_that_becomes_a_hold_while_its_deletion_is_told_is_lost() {
    let server = TestServer::start().unwrap();
    let session = Session::connect(server.connect_string()).unwrap();
    let generation = session.core().generation().unwrap();
    let leased = LeasedNode::new("/l/n".into(), 5, NodeWatch::Unset, Arc::new(|| ()));
    let (caller, granted) = (Arc::downgrade(&generation), leased.clone());
    // It stands for the caller: it is called between the two looks.
    let grants = move |news: RawNews<'_>| {
        if let RawNews::Watch { .. } = news {
            caller.upgrade().unwrap().grant(&granted).unwrap();
        }
    };
    generation.listen(Arc::new(grants));
    generation.take_output(Output::Watch { kind: event::DELETED, path: "/l/n".into() });
    assert_eq!(leased.loss(), Some(LossReason::NodeDeleted));
}

const SOON: Duration = Duration::from_secs(20);

/// Sends a listing, and does not read its answer.
#[cfg(unix)]
fn send(generation: &Generation) -> Receiver<Answers> {
    let mut batch = Batch::new();
    batch.push(&Operation::GetChildren { path: "/", watch: false }, None);
    generation.connection.submit(batch).unwrap().1
}

#[cfg(unix)]
#[test]
fn the_event_loop_reads_again_after_a_caller_that_panicked_while_it_read() {
    let server = TestServer::start().unwrap();
    let session = Session::connect(server.connect_string()).unwrap();
    let generation = session.core().generation().unwrap();
    let go_on = stop_event_loop(&generation); // it might always read first
    let panics = (0..100).any(|_| {
        let _answers = send(&generation);
        let calls = std::cell::Cell::new(0);
        let done = || {
            calls.set(calls.get() + 1);
            assert!(calls.get() == 1, "a defect");
            None::<()>
        };
        let read = || (&*generation as &dyn Owner).read_until(done, &Limit::NONE);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)).is_err()
    });
    assert!(panics);
    drop(go_on);
    assert!(generation.children("/", false, &Limit::after(SOON)).is_ok());
    assert_eq!(server.count(zk_test_server::Op::Connect), 1);
}

/// The other thread may just carry out the event for which this thread waits.
#[cfg(unix)]
#[test]
fn nobody_becomes_a_reader_while_another_thread_carries_out_what_was_read() {
    let server = TestServer::start().unwrap();
    let session = Session::connect(server.connect_string()).unwrap();
    let generation = session.core().generation().unwrap();
    let (blocked, is_blocked) = bounded(1);
    let (unblock, gate) = bounded::<()>(0);
    let notify = move |_: Folder<'_>| {
        let _ = (blocked.try_send(()), gate.recv());
        true
    };
    generation.watch_folder(FolderWatch::new("/".to_owned(), Box::new(notify)));
    is_blocked.recv_timeout(SOON).unwrap();
    let fails = || -> Option<()> { panic!("it reads") };
    assert!((&*generation as &dyn Owner).read_until(fails, &Limit::NONE).is_none());
    drop(unblock);
}

/// The event loop is stopped meanwhile.
#[cfg(unix)]
#[test]
fn a_thread_that_waits_for_a_node_reads_the_event_of_its_end_itself() {
    let server = TestServer::start().unwrap();
    let session = || Session::connect(server.connect_string()).unwrap();
    let (ours, theirs) = (session(), session());
    let theirs = theirs.core().generation().unwrap();
    let mode = CreateMode::Persistent;
    let create = Operation::Create { path: "/ahead", data: &[], acl: &Acl::Open, mode };
    theirs.call(create, &Limit::NONE).unwrap();
    let generation = ours.core().generation().unwrap();
    let notifier = Notifier::new();
    let mask = crate::notifier::EventMask { gone: 1, changed: 2 };
    let _registration = generation.nodes.register("/ahead".to_owned(), &notifier, mask);
    generation.read("/ahead", true, &Limit::NONE).unwrap();
    let _go_on = stop_event_loop(&generation);
    theirs.call(Operation::Delete { path: "/ahead", version: None }, &Limit::NONE).unwrap();
    // Each wait reads only during its first milliseconds. On a busy computer the event may come
    // later.
    let until = std::time::Instant::now() + SOON;
    let wait = || generation.wait(&notifier, &Limit::after(Duration::from_millis(20)));
    let events = std::iter::repeat_with(wait).find_map(|ended| match ended {
        Ended::Got(events) => Some(Some(events)),
        _ => (std::time::Instant::now() > until).then_some(None),
    });
    assert_eq!(events, Some(Some(1)));
}

/// The event loop, which would notify the holder, is stopped meanwhile.
#[cfg(unix)]
#[test]
fn a_held_node_is_lost_as_soon_as_any_thread_reads_that_its_node_is_gone() {
    let server = TestServer::start().unwrap();
    let session = || Session::connect(server.connect_string()).unwrap();
    let (ours, theirs) = (session(), session());
    let generation = ours.core().generation().unwrap();
    let (tell, told) = bounded(1);
    let leased = hold(&generation, move || tell.send(()).unwrap());
    // The event loop sets a watch on the node. Only the event loop carries out the answer to that,
    // and no caller reads before it has. So this waits until a later answer has come.
    generation.lease.rearm(&leased);
    generation.wake();
    while leased.watch() != NodeWatch::On(generation.epoch()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    generation.children("/", false, &Limit::NONE).unwrap();
    let go_on = stop_event_loop(&generation);
    let theirs = theirs.core().generation().unwrap();
    theirs.call(Operation::Delete { path: "/held", version: None }, &Limit::NONE).unwrap();
    // The event comes before the answer to a listing. While the event loop is stopped, the caller
    // of the listing may not get its answer.
    let until = std::time::Instant::now() + SOON;
    while is_held(&generation, &leased) && std::time::Instant::now() < until {
        let _ = generation.children("/", false, &Limit::after(Duration::from_millis(100)));
    }
    assert!(!is_held(&generation, &leased));
    // Its listener hears of it when the event loop goes on.
    assert!(told.try_recv().is_err());
    drop(go_on);
    assert!(told.recv_timeout(SOON).is_ok());
}

/// The lease has ended, and no thread has noticed that yet.
#[test]
fn a_proof_that_comes_after_the_leases_end_notifies_nobody_on_the_thread_that_reads_it() {
    let server = TestServer::start().unwrap();
    let session = Session::connect(server.connect_string()).unwrap();
    let generation = session.core().generation().unwrap();
    let (told, teller) = bounded(1);
    let on_loss = Arc::new(move || told.send(std::thread::current().id()).unwrap());
    let node = LeasedNode::new("/orders".to_owned(), 0, NodeWatch::Unset, on_loss);
    generation.grant(&node).unwrap();
    generation.lease.begin(Duration::from_millis(1), BootTime::default());
    let proof = Output::Heard(BootTime::now());
    assert!(generation.is_light(&proof), "any thread may carry it out");
    generation.take_output(proof);
    assert_eq!(node.loss(), Some(LossReason::LeaseExpired), "it comes too late for this node");
    assert_ne!(teller.recv_timeout(SOON).unwrap(), std::thread::current().id());
}

/// The session timeout is so long that the event loop wakes by itself only every four minutes.
#[test]
fn a_proof_whose_answer_another_caller_reads_ends_the_wait_for_it() {
    let hour = Duration::from_secs(3600);
    let server = TestServer::builder().max_session_timeout(hour).start().unwrap();
    let session = session_of(&server, hour);
    let generation = session.core().generation().unwrap();
    server.delay(Duration::from_millis(1));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let _ = generation.children("/", false, &Limit::NONE);
            }
        });
        let proven: Vec<_> = (0..30).map(|_| generation.prove(&Limit::after(SOON))).collect();
        is_over.store(true, Ordering::SeqCst);
        assert!(proven.iter().all(Result::is_ok), "{proven:?}");
    });
}

/// The event loop, which has read the answer already, gets no processor.
#[test]
fn a_caller_returns_at_its_deadline_although_its_answer_waits_for_the_event_loop() {
    let server = TestServer::start().unwrap();
    let session = Session::connect(server.connect_string()).unwrap();
    let generation = session.core().generation().unwrap();
    let go_on = stop_event_loop(&generation);
    let (blocked, is_blocked) = bounded(1);
    let (unblock, gate) = bounded::<()>(0);
    let notify = move |_: Folder<'_>| {
        let _ = (blocked.try_send(()), gate.recv());
        true
    };
    generation.watch_folder(FolderWatch::new("/".to_owned(), Box::new(notify)));
    let (left, has_left) = bounded(1);
    std::thread::scope(|scope| {
        let call = || {
            let limit = Limit::after(Duration::from_secs(1));
            let _ = left.send(generation.children("/", false, &limit).map(drop));
        };
        scope.spawn(call);
        let both = zk_test_server::Matcher::from(zk_test_server::Op::GetChildren).skip(1);
        server.wait_request(both, SOON).unwrap();
        drop(go_on);
        is_blocked.recv_timeout(SOON).unwrap();
        let outcome = has_left.recv_timeout(SOON);
        drop(unblock);
        assert!(outcome.is_ok(), "it waits for the event loop");
    });
}

/// The listing comes in many reads.
#[test]
fn a_large_listing_is_whole_while_other_callers_read_too() {
    const NODES: usize = 2_000;
    let server = TestServer::start().unwrap();
    let session = Session::connect(server.connect_string()).unwrap();
    let generation = session.core().generation().unwrap();
    let paths: Vec<String> = (0..NODES).map(|i| format!("/{}-{i}", "n".repeat(60))).collect();
    let mode = CreateMode::Ephemeral;
    let create = |path| (Operation::Create { path, data: &[], acl: &Acl::Open, mode }, None);
    let creates: Vec<_> = paths.iter().map(|path| create(path.as_str())).collect();
    let made = generation.flight(&creates, &Limit::NONE).unwrap();
    assert!(made.all.iter().all(Result::is_ok));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..10 {
                    let listed = generation.children("/", false, &Limit::NONE).unwrap();
                    let names: HashSet<&str> = listed.children.names().into_iter().collect();
                    assert!(paths.iter().all(|path| names.contains(&path[1..])));
                }
            });
        }
    });
    assert_eq!(server.count(zk_test_server::Op::Connect), 1);
}

/// How many containers were asked for.
fn containers(server: &TestServer) -> usize {
    server.requests().iter().filter(|request| request.opcode == op::CREATE_CONTAINER).count()
}

/// Makes a node in the folder `dir`.
fn make_in(
    generation: &Generation,
    dir: &str,
    acl: &Acl,
    limit: &Limit<'_>,
) -> Result<(), CallError> {
    let (path, mode) = (&path::join(dir, "n-"), CreateMode::EphemeralSequential);
    let create = (Operation::Create { path, data: &[], acl: &Acl::Open, mode }, None);
    generation.flight_in(dir, None, acl, &[create], limit)?.take(0)?.created().map(drop)
}

/// An ACL further up may not let us make nodes, and need not.
#[test]
fn missing_folders_are_made_in_one_flight_and_those_that_exist_need_no_right() {
    let server = TestServer::start().unwrap();
    let session = long_session(&server);
    let generation = session.core().generation().unwrap();
    let make = |dir| make_in(&generation, dir, &Acl::Open, &Limit::NONE);
    let made = || containers(&server);
    make("/a/b/c").unwrap();
    assert_eq!(made(), 3);
    make("/a/b/c").unwrap();
    assert_eq!(made(), 3, "the folder is there");
    make("/a/b/d").unwrap();
    assert_eq!(made(), 4, "the folders above were seen");
    // Nobody may make nodes in the root any more.
    let entry = |permissions| AclEntry { permissions, scheme: "world".into(), id: "anyone".into() };
    let only = |permissions| Acl::Custom(vec![entry(permissions)]);
    let set = |path, acl: &Acl| {
        let set = Operation::SetAcl { path, acl, version: None };
        generation.call(set, &Limit::NONE).unwrap()
    };
    set("/", &only(Permissions::READ | Permissions::ADMIN));
    let other = long_session(&server);
    let other = other.core().generation().unwrap();
    make_in(&other, "/a/e/f", &Acl::Open, &Limit::NONE).unwrap();
    assert_eq!(made(), 4 + 3);
    assert_eq!(make("/b/c"), Err(CallError::NoAuth("CREATE")));
    set("/a/b", &only(Permissions::READ | Permissions::ADMIN));
    assert_eq!(make("/a/b/g"), Err(CallError::NoAuth("CREATE")));
    // The folders were deleted since.
    set("/", &Acl::Open);
    make("/x/y").unwrap();
    let node = generation.children("/x/y", false, &Limit::NONE).unwrap();
    let node = format!("/x/y/{}", node.children.names()[0]);
    for path in [&*node, "/x/y", "/x"] {
        generation.call(Operation::Delete { path, version: None }, &Limit::NONE).unwrap();
    }
    make("/x/y").unwrap();
}

/// Such a folder would stay: a server does not delete a container that never had a child.
#[test]
fn a_call_whose_time_is_over_makes_no_folder() {
    let server = TestServer::start().unwrap();
    let session = long_session(&server);
    let generation = session.core().generation().unwrap();
    let limit = Limit::after(Duration::ZERO);
    assert_eq!(make_in(&generation, "/l/a", &Acl::Open, &limit), Err(CallError::Deadline));
    assert!(generation.children("/", false, &Limit::NONE).is_ok());
    assert_eq!(containers(&server), 0);
}

#[test]
fn deletes_of_empty_parents_do_not_pile_up_in_an_outage() {
    const INTERVAL: Duration = Duration::from_secs(60);
    let server = TestServer::start().unwrap();
    let session = Session::connect(server.connect_string()).unwrap();
    let generation = session.core().generation().unwrap();
    let (path, acl, mode) = ("/locks", &Acl::Open, CreateMode::Persistent);
    let made = generation.call(Operation::Create { path, data: &[], acl, mode }, &Limit::NONE);
    generation.of_core.parents.made(path, made.unwrap().created().unwrap().1, BootTime::now());
    server.refuse(true);
    server.cut_connections();
    while generation.connection.with(|machine, _| machine.is_up()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let look = |times| generation.delete_empty_parents(BootTime::now() + INTERVAL * times);
    for times in 1..=20 {
        assert!(look(times).is_some(), "it is looked for again");
    }
    server.refuse(false);
    let looks = || server.count(zk_test_server::Op::Exists);
    while !generation.connection.with(|machine, _| machine.is_up()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The server serves a request after all that were sent before it.
    generation.children("/", false, &Limit::after(SOON)).unwrap();
    assert_eq!(looks(), 0, "what was found in the outage is forgotten");
    look(21);
    let is_listed = || {
        let listed = generation.children("/", false, &Limit::after(SOON)).unwrap();
        listed.children.names().contains(&"locks")
    };
    while is_listed() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(looks(), 1);
    while look(22).is_some() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(looks(), 1, "the deleted one is looked for no more");
}

/// A listener that hears of a connection may lock at once, and what it lists must count as of that
/// connection.
#[test]
fn the_epoch_of_a_connection_is_known_before_the_connection_is_reported() {
    use crate::connect_string::ConnectString;
    use std::sync::{OnceLock as Cell, Weak};
    let server = TestServer::start().unwrap();
    let hosts = ConnectString::parse(&server.connect_string()).unwrap().hosts;
    let made: Arc<Cell<Weak<Generation>>> = Arc::default();
    let (reported, epochs) = bounded(8);
    let of = made.clone();
    let report = move |_: SessionEvent| {
        while of.get().is_none() {
            std::thread::yield_now();
        }
        let generation = of.get().and_then(Weak::upgrade);
        let _ = reported.try_send(generation.map(|generation| generation.epoch()));
    };
    let timeout = Duration::from_secs(6);
    let config = MachineConfig::new(timeout, "no-op".into());
    let of_core = OfCore {
        chroot: Chroot { path: String::new(), is_required: false },
        parents: Arc::default(),
        tell: None,
        report: Box::new(report),
        wake_supervisor: Box::new(|| ()),
    };
    let dialling = Dialling::to(&hosts);
    let (alive, _ended) = bounded(0);
    let generation = Generation::start(1, config, dialling, of_core, alive).unwrap();
    made.set(Arc::downgrade(&generation)).unwrap();
    assert_eq!(epochs.recv_timeout(SOON), Ok(Some(1)));
    let _ = generation.close();
}

// ---- a defect ends the event loop's thread ----

/// Ends the event loop's thread by a panic. The session is lost to the client, and lives on at the
/// server.
fn break_event_loop(session: &Session) {
    let notify = |_: Folder<'_>| -> bool { panic!("a defect") };
    let generation = session.core().generation().unwrap();
    generation.watch_folder(FolderWatch::new("/".to_owned(), Box::new(notify)));
}

fn session_of(server: &TestServer, timeout: Duration) -> Session {
    Session::connect(Config::new(server.connect_string()).session_timeout(timeout)).unwrap()
}

#[test]
fn dead_event_loop_is_a_new_session() {
    let server = TestServer::start().unwrap();
    let session = session_of(&server, Duration::from_secs(4));
    let (id, events) = (session.status().session_id, session.subscribe());
    let lost = hold(&session.core().generation().unwrap(), || ()).signal();
    break_event_loop(&session);
    assert_eq!(lost.wait(SOON), Some(LossReason::Internal));
    assert_eq!(events.recv_timeout(SOON), Ok(SessionEvent::Lost(LossReason::Internal)));
    let next = events.recv_timeout(SOON);
    assert!(matches!(next, Ok(SessionEvent::Connected { .. })), "{next:?}");
    assert_ne!(session.status().session_id, id);
    let generation = session.core().generation().unwrap();
    while finds_it(&generation) {
        std::thread::sleep(Duration::from_millis(10)); // until the old session expires
    }
}

/// Waits for a new session in the place of the one that is lost by a defect.
fn a_new_session_follows(events: &Receiver<SessionEvent>) {
    assert_eq!(events.recv_timeout(SOON), Ok(SessionEvent::Lost(LossReason::Internal)));
    let next = events.recv_timeout(SOON);
    assert!(matches!(next, Ok(SessionEvent::Connected { .. })), "{next:?}");
}

/// Other threads would go on with a machine that is half changed.
#[test]
fn a_panic_in_the_middle_of_a_change_of_the_machine_is_a_new_session() {
    let server = TestServer::start().unwrap();
    let session = session_of(&server, Duration::from_secs(40));
    let events = session.subscribe();
    let generation = session.core().generation().unwrap();
    let lost = hold(&generation, || ()).signal();
    let held = server.hold_requests(Op::GetChildren);
    let answers = send(&generation);
    let outcome = generation.remove_and_tell(Removal::named("/held".into(), "held".into()));
    let panics = || {
        generation.connection.with(|machine, now| {
            machine.end(LossReason::SessionExpired, now);
            machine.outputs.clear();
            panic!("a defect");
        })
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(panics)).is_err());
    assert_eq!(lost.wait(SOON), Some(LossReason::Internal));
    // Each caller hears of it, also one that leaves by itself.
    assert!(answers.recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
    assert!(outcome.recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
    assert!(generation.children("/", false, &Limit::after(SOON)).is_err());
    assert!(!generation.close().1.recv_timeout(SOON).unwrap_or(false));
    drop(held);
    a_new_session_follows(&events);
}

/// It panics when it looks after a hold.
struct Panicking(crossbeam_channel::Sender<()>);

impl Listener for Panicking {
    fn lost(&self, _: LossReason) {
        let _ = self.0.send(());
    }

    fn read(&self, _: &[u8]) {}

    fn look(&self, _: BootTime) -> BootTime {
        panic!("a defect")
    }
}

/// It alone ends leases in time.
#[test]
fn a_panic_of_the_supervisor_ends_the_lease_and_another_session_is_supervised() {
    control::start();
    let server = TestServer::start().unwrap();
    let session = session_of(&server, Duration::from_secs(40));
    let events = session.subscribe();
    for _ in 0..2 {
        let generation = session.core().generation().unwrap();
        let other = hold(&generation, || ()).signal();
        let (told, is_told) = bounded(1);
        let node = hold_at("/n", &generation, Arc::new(Panicking(told)));
        generation.bind(&node, Bounds { look_after: Some(Duration::ZERO), ..Bounds::default() });
        (generation.of_core.wake_supervisor)();
        assert_eq!(node.signal().wait(SOON), Some(LossReason::Internal));
        assert_eq!(other.wait(SOON), Some(LossReason::Internal));
        assert_eq!(is_told.recv_timeout(SOON), Ok(()));
        a_new_session_follows(&events);
        let generation = session.core().generation().unwrap();
        while finds_it(&generation) {
            std::thread::sleep(Duration::from_millis(10)); // the server hears of the end
        }
    }
    // The new one ends leases in time.
    let generation = session.core().generation().unwrap();
    let lost = hold(&generation, || ()).signal();
    let go_on = stop_event_loop(&generation); // it would renew the lease
    generation.lease.begin(Duration::from_millis(360), BootTime::now());
    (generation.of_core.wake_supervisor)();
    assert_eq!(lost.wait(SOON), Some(LossReason::LeaseExpired));
    drop(go_on);
    session.close().unwrap();
}
