//! A generation beside the embedded server: cases whose outcome depends on which thread comes
//! first.

use crossbeam_channel::Sender;

use super::*;
use crate::{ZkMutex, ZkSession};
use zk_test_server::TestServer;

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

#[test]
fn nothing_is_held_any_more_when_the_server_hears_of_the_close() {
    let server = TestServer::start().unwrap();
    let session = || ZkSession::connect(&server.connect_string()).unwrap();
    let (ours, theirs) = (session(), session());
    let mutex = ZkMutex::new(&ours, "/locks/orders").unwrap();
    let guard = mutex.lock().unwrap();
    let generation = ours.core().generation().unwrap();
    let go_on = stop_event_loop(&generation);
    std::thread::scope(|scope| {
        scope.spawn(|| ours.close());
        let other = ZkMutex::new(&theirs, "/locks/orders").unwrap();
        let theirs = other.lock().unwrap();
        assert!(!(guard.is_held() && theirs.is_held()), "two valid guards");
        drop(go_on);
    });
}

const SOON: Duration = Duration::from_secs(20);

/// Sends a listing, and does not read its answer.
#[cfg(unix)]
fn send(generation: &Generation) -> Receiver<Answers> {
    let (mut batch, answers) = Batch::new();
    batch.push(&Operation::GetChildren { path: "/", watch: false }, None);
    generation.connection.with(|machine, now| machine.submit(batch, now)).unwrap();
    answers
}

#[cfg(unix)]
#[test]
fn the_event_loop_reads_again_after_a_caller_that_panicked_while_it_read() {
    let server = TestServer::start().unwrap();
    let session = ZkSession::connect(&server.connect_string()).unwrap();
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
        let read = || generation.read_until(done, &Limit::NONE);
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
    let session = ZkSession::connect(&server.connect_string()).unwrap();
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
    assert!(generation.read_until(fails, &Limit::NONE).is_none());
    drop(unblock);
}

/// The event loop is stopped meanwhile.
#[cfg(unix)]
#[test]
fn a_thread_that_waits_for_a_node_reads_the_event_of_its_end_itself() {
    let server = TestServer::start().unwrap();
    let session = || ZkSession::connect(&server.connect_string()).unwrap();
    let (ours, theirs) = (session(), session());
    let theirs = theirs.core().generation().unwrap();
    let mode = CreateMode::Persistent;
    let create = Operation::Create { path: "/ahead", data: &[], acl: &Acl::Open, mode };
    theirs.call(create, &Limit::NONE).unwrap();
    let generation = ours.core().generation().unwrap();
    let notifier = Notifier::new();
    let mask = super::super::notifier::EventMask { gone: 1, changed: 2 };
    let _registration = generation.nodes.register("/ahead".to_owned(), &notifier, mask);
    generation.read("/ahead", true, &Limit::NONE).unwrap();
    let _go_on = stop_event_loop(&generation);
    theirs.call(Operation::Delete { path: "/ahead" }, &Limit::NONE).unwrap();
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

/// The event loop, which would log the loss, is stopped meanwhile.
#[cfg(unix)]
#[test]
fn a_held_node_is_lost_as_soon_as_any_thread_reads_that_its_node_is_gone() {
    let server = TestServer::start().unwrap();
    let session = || ZkSession::connect(&server.connect_string()).unwrap();
    let (ours, theirs) = (session(), session());
    let generation = ours.core().generation().unwrap();
    let mutex = ZkMutex::new(&ours, "/locks/orders").unwrap();
    let guard = mutex.lock().unwrap();
    let _lost = guard.lost();
    let listed = generation.children("/locks/orders", false, &Limit::NONE).unwrap();
    let node = format!("/locks/orders/{}", listed.children.names()[0]);
    // `lost` made the event loop set a watch on the node. Only the event loop carries out the
    // answer to that, and no caller reads before it has. So this waits until a later answer has
    // come.
    let leased = generation.lease.leased_node(&node).unwrap();
    while leased.armed_on() != generation.epoch() {
        std::thread::sleep(Duration::from_millis(1));
    }
    generation.children("/", false, &Limit::NONE).unwrap();
    let go_on = stop_event_loop(&generation);
    let theirs = theirs.core().generation().unwrap();
    theirs.call(Operation::Delete { path: &node }, &Limit::NONE).unwrap();
    // The event comes before the answer to a listing. While the event loop is stopped, the caller
    // of the listing may not get its answer.
    let until = std::time::Instant::now() + SOON;
    while guard.is_held() && std::time::Instant::now() < until {
        let _ = generation.children("/", false, &Limit::after(Duration::from_millis(100)));
    }
    assert!(!guard.is_held());
    // The next thread gets its turn after the event loop goes on.
    std::thread::scope(|scope| {
        let next = scope.spawn(|| mutex.lock().map(drop));
        drop(go_on);
        assert!(next.join().unwrap().is_ok());
    });
}

/// The lease has ended, and no thread has noticed that yet.
#[test]
fn a_proof_that_comes_after_the_leases_end_runs_no_foreign_code_on_the_thread_that_reads_it() {
    let server = TestServer::start().unwrap();
    let session = ZkSession::connect(&server.connect_string()).unwrap();
    let generation = session.core().generation().unwrap();
    let (told, teller) = bounded(1);
    let on_loss = Box::new(move || told.send(std::thread::current().id()).unwrap());
    let node = LeasedNode::new("/orders".to_owned(), 0, 0, on_loss);
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
    let session =
        ZkSession::builder(server.connect_string()).session_timeout(hour).connect().unwrap();
    let generation = session.core().generation().unwrap();
    server.delay(Duration::from_millis(1));
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let _ = generation.children("/", false, &Limit::NONE);
            }
        });
        let proven: Vec<_> = (0..30).map(|_| generation.prove("/", &Limit::after(SOON))).collect();
        is_over.store(true, Ordering::SeqCst);
        assert!(proven.iter().all(Result::is_ok), "{proven:?}");
    });
}

/// Foreign code (a logger, say) blocks the event loop, which has read the answer already.
#[test]
fn a_caller_returns_at_its_deadline_although_its_answer_waits_behind_foreign_code() {
    let server = TestServer::start().unwrap();
    let session = ZkSession::connect(&server.connect_string()).unwrap();
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
    let session = ZkSession::connect(&server.connect_string()).unwrap();
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

#[test]
fn deletes_of_empty_parents_do_not_pile_up_in_an_outage() {
    const INTERVAL: Duration = Duration::from_secs(60);
    let server = TestServer::start().unwrap();
    let session = ZkSession::connect(&server.connect_string()).unwrap();
    let generation = session.core().generation().unwrap();
    let (path, acl, mode) = ("/locks", &Acl::Open, CreateMode::Persistent);
    generation.call(Operation::Create { path, data: &[], acl, mode }, &Limit::NONE).unwrap();
    generation.of_core.parents.made(path, BootTime::now());
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
    let deletes = || server.count(zk_test_server::Op::Delete);
    while !generation.connection.with(|machine, _| machine.is_up()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The server serves a request after all that were sent before it.
    generation.children("/", false, &Limit::after(SOON)).unwrap();
    assert_eq!(deletes(), 0, "what was found in the outage is forgotten");
    look(21);
    let is_listed = || {
        let listed = generation.children("/", false, &Limit::after(SOON)).unwrap();
        listed.children.names().contains(&"locks")
    };
    assert!(!is_listed());
    assert_eq!(deletes(), 1);
    while look(22).is_some() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(deletes(), 1, "the deleted one is looked for no more");
}
