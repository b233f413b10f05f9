//! Requests that a follower forwards late: its stream to the leader stands still, and the session
//! has moved to another server when the stream goes on.
use crate::support::{
    Direction, Ensemble, OpKind, Proxy, Raw, Server,
    contend::{session, until_queue},
    scenarios,
    scene::{SOON, until_empty, until_event},
    until,
};
use std::{thread, time::Duration};
use zk_mutex::{SessionEvent, ZkExclusiveLock, ZkMutex, ZkSession};

const LOCK: &str = "/locks/orders";

/// The session gives up a handshake at a follower, and its second connection there is completed by
/// the leader's answer to the first REVALIDATE. The second REVALIDATE stands in the stream to the
/// leader, and behind it what `ask` sends. Then the session moves to the leader, `settle` runs, and
/// the stream goes on. In the end no node may be left.
fn forwarded_late(ask: impl FnOnce(&ZkSession) + Send, settle: impl FnOnce(&ZkSession)) {
    // Neither server gives the other up before syncLimit ticks: the stream stands still for much less
    // than these 40 seconds, also on a busy machine.
    let server = Server::real().tick(Duration::from_secs(2)).set("syncLimit", 20);
    let ensemble = Ensemble::start_with(3, server);
    let (leader, follower) = (ensemble.leader(), ensemble.followers()[0]);
    let [quorum, _] = ensemble.way(follower, leader);
    let way = |member| Proxy::start(ensemble.member(member).address());
    let (to_follower, to_leader) = (way(follower), way(leader));
    to_leader.refuse(true);
    let both = format!("{},{}", to_follower.connect_string(), to_leader.connect_string());
    let at = ensemble.member(leader).connect_string();
    Raw::connect(&at).unwrap().mkdirs(LOCK).unwrap();
    let ours = session(&both);
    let (id, events) = (ours.status().session_id, ours.subscribe());
    let counted = |member, name| ensemble.member(member).metric(name);
    let (taken, checked) = ("zk_connection_revalidate_count", "zk_revalidate_count");
    let (taken_before, checked_before) = (counted(follower, taken), counted(leader, checked));

    // The first REVALIDATE passes, and its answer does not.
    quorum.hold(Direction::ToClient, true);
    to_follower.cut();
    until("the first REVALIDATE is checked", SOON, || {
        (counted(leader, checked) > checked_before).then_some(())
    });
    quorum.hold(Direction::ToServer, true);
    until("the session has dialled the follower again", SOON, || {
        (counted(follower, taken) > taken_before + 1).then_some(())
    });
    quorum.hold(Direction::ToClient, false);
    until_event(&events, |event| *event == SessionEvent::Reconnected);
    thread::scope(|scope| {
        let create = to_follower.on_request(OpKind::Create, SOON);
        scope.spawn(|| ask(&ours));
        create.wait();
        to_leader.refuse(false);
        to_follower.refuse(true);
        to_follower.cut();
    });
    until_empty(&at, LOCK);
    settle(&ours);
    until_empty(&at, LOCK);
    quorum.hold(Direction::ToServer, false);
    until_queue(&at, LOCK, 1);
    until_empty(&at, LOCK);
    assert_eq!(ours.status().session_id, id);
}

fn a_create_that_is_forwarded_late_leaves_no_contender() {
    forwarded_late(
        |ours| ZkMutex::new(ours, LOCK).unwrap().lock().unwrap().unlock().unwrap(),
        |_| {},
    );
}

/// The lock is used again in between.
fn a_create_that_is_forwarded_late_leaves_no_exclusive_lock() {
    let lock = |ours: &ZkSession| {
        let lock = ZkExclusiveLock::new(ours, LOCK).unwrap();
        lock.lock().unwrap().unlock().unwrap();
    };
    forwarded_late(lock, lock);
}

scenarios![
    a_create_that_is_forwarded_late_leaves_no_contender on real,
    a_create_that_is_forwarded_late_leaves_no_exclusive_lock on real,
];
