//! Scenarios that the proof of the lease depends on, one property each.

use super::super::*;
use super::world::{World, create, is_ok, ms};
use zk_wire::code::{err, event, op};
use zk_wire::record::Reader;

const EPHEMERAL: i32 = 1;
const SEQUENTIAL: i32 = 2;
/// Two ticks.
const T: Duration = Duration::from_secs(4);

fn serving() -> World {
    World::serving(Settings::default(), 1)
}

#[test]
fn three_members_elect_one_and_all_serve() {
    for seed in 0..20 {
        let mut world = World::serving(Settings::default(), seed);
        let leader = world.leader();
        let writer = world.attach(world.followers()[0], T);
        assert!(is_ok(world.create(writer, "/a", 0)), "seed {seed}");
        world.run(ms(100));
        for member in 0..3 {
            assert!(
                world.ensemble.nodes(member).iter().any(|node| node.path == "/a"),
                "{member}, {leader}"
            );
        }
    }
}

#[test]
fn an_ensemble_of_one_member_serves() {
    let mut world = World::serving(Settings { members: 1, ..Settings::default() }, 1);
    let client = world.attach(0, T);
    assert!(is_ok(world.create(client, "/a", EPHEMERAL)));
    world.run(T * 2);
    assert_eq!(world.expiries(world.clients[client].session), 1);
    assert!(world.clients[client].conn.is_none());
    assert!(world.ensemble.nodes(0).iter().all(|node| node.path != "/a"));
}

#[test]
fn a_member_alone_of_three_does_not_serve() {
    let mut world = serving();
    let leader = world.leader();
    let client = world.attach(leader, T * 5);
    for follower in world.followers() {
        world.ensemble.kill(follower, world.now);
        world.carry();
    }
    world.until("the leader gives up", |world| !world.ensemble.is_serving(leader));
    world.run(ms(60_000));
    assert!(!world.ensemble.is_serving(leader));
    assert!(world.clients[client].conn.is_none());
}

#[test]
fn a_follower_that_is_cut_off_answers_pings_while_the_leader_expires_its_client() {
    let mut world = serving();
    let follower = world.followers()[0];
    let client = world.attach(follower, T);
    world.cut_off(follower);
    world.idle(&[client], ms(7000));
    let session = world.clients[client].session;
    assert_eq!(world.expiries(session), 1);
    assert!(world.clients[client].conn.is_some());
    // The client reads the follower's old tree and gets answers, but its write is not answered.
    assert_eq!(world.exists(client, "/zookeeper"), Some(err::OK));
    let written = world.create(client, "/a", 0);
    assert!(written.is_none());
    assert!(world.clients[client].conn.is_none(), "the follower has closed the connection");
    // Once the members are connected again, all of them know that the session has ended.
    world.cut.clear();
    world.until_all_serve();
    world.connect(client, follower);
    world.until("the session is refused", |world| world.clients[client].is_expired);
}

#[test]
fn a_forwarded_write_does_not_keep_the_session_alive() {
    let mut world = serving();
    let (leader, follower) = (world.leader(), world.followers()[0]);
    let client = world.attach(follower, T);
    let session = world.clients[client].session;
    // The leader receives the follower's packets, but its pings do not reach the follower.
    world.cut.insert((leader, follower));
    let mut written = 0;
    for n in 0..30 {
        world.send(client, op::CREATE, |w| create(w, &format!("/n{n}"), 0));
        world.run(ms(200));
        written =
            world.ensemble.nodes(leader).iter().filter(|node| node.path.starts_with("/n")).count();
        if world.expiries(session) > 0 {
            break;
        }
    }
    assert!(written > 15, "only {written} of the client's writes were applied");
    assert_eq!(world.expiries(session), 1);
}

#[test]
fn the_answer_to_the_leaders_ping_keeps_a_session() {
    let mut world = serving();
    let follower = world.followers()[0];
    let client = world.attach(follower, T);
    world.idle(&[client], T * 10);
    assert_eq!(world.expiries(world.clients[client].session), 0);
    // Nothing but this answer keeps the session alive.
    world.run(T * 2);
    assert_eq!(world.expiries(world.clients[client].session), 1);
    assert!(world.clients[client].conn.is_none());
}

#[test]
fn a_leader_that_is_cut_off_answers_requests_that_need_no_quorum_until_it_gives_up() {
    let mut world = serving();
    let leader = world.leader();
    let client = world.attach(leader, T * 5);
    world.cut_off(leader);
    assert_eq!(world.exists(client, "/zookeeper"), Some(err::OK));
    assert!(is_ok(world.call(client, op::SYNC, |w| w.buffer(b"/"))));
    let start = world.now;
    assert!(world.create(client, "/a", 0).is_none());
    let lasted = world.now - start;
    assert!(world.clients[client].conn.is_none());
    assert!(lasted > ms(9000) && lasted < ms(13_000), "{lasted:?}");
    // The proposals of the old leader are gone once it follows the new one.
    world.cut.clear();
    world.until_all_serve();
    for member in 0..3 {
        assert!(world.ensemble.nodes(member).iter().all(|node| node.path != "/a"));
    }
}

#[test]
fn acknowledged_writes_outlive_the_leader() {
    let mut world = serving();
    let leader = world.leader();
    let client = world.attach(leader, T * 5);
    assert!(is_ok(world.create(client, "/a", 0)));
    world.ensemble.kill(leader, world.now);
    world.carry();
    world
        .until("another leads", |world| world.ensemble.leader().is_some_and(|next| next != leader));
    let next = world.leader();
    assert!(world.ensemble.nodes(next).iter().any(|node| node.path == "/a"));
    // The session continues at the new leader, with its whole timeout.
    world.connect(client, next);
    world.until("the client is attached", |world| world.clients[client].is_attached);
    assert_eq!(world.exists(client, "/a"), Some(err::OK));
}

#[test]
fn a_session_begins_anew_at_a_new_leader() {
    let mut world = serving();
    let leader = world.leader();
    let client = world.attach(world.followers()[0], T * 5);
    world.run(T * 4);
    world.ensemble.kill(leader, world.now);
    world.carry();
    world
        .until("another leads", |world| world.ensemble.leader().is_some_and(|next| next != leader));
    world.run(T * 4);
    let session = world.clients[client].session;
    assert_eq!(world.expiries(session), 0);
    world.until("it expires", |world| world.expiries(session) > 0);
}

#[test]
fn a_member_that_lost_its_data_is_brought_level() {
    let mut world = serving();
    let follower = world.followers()[0];
    let client = world.attach(world.leader(), T * 5);
    assert!(is_ok(world.create(client, "/a", 0)));
    world.ensemble.kill(follower, world.now);
    world.carry();
    assert!(is_ok(world.create(client, "/b", 0)));
    world.ensemble.start(follower, false, world.now);
    world.carry();
    assert_eq!(world.ensemble.applied(follower), 0);
    world.until_all_serve();
    let nodes = world.ensemble.nodes(follower);
    assert!(["/a", "/b"].iter().all(|path| nodes.iter().any(|node| node.path == *path)));
}

#[test]
fn a_client_that_moved_may_not_write_over_its_old_connection() {
    let mut world = serving();
    let followers = world.followers();
    let client = world.attach(followers[0], T);
    let old = world.forget(client);
    world.connect(client, followers[1]);
    world.until("the client is attached", |world| world.clients[client].is_attached);
    let write = create(zk_wire::record::Writer::request(1000, op::CREATE), "/old", 0).frame();
    world.send_raw(old, write);
    assert!(is_ok(world.create(client, "/new", 0)));
    world.run(ms(100));
    let nodes = world.ensemble.nodes(followers[0]);
    assert!(nodes.iter().any(|node| node.path == "/new"));
    assert!(nodes.iter().all(|node| node.path != "/old"));
    let server = &world.ensemble.members[followers[0]].server;
    assert_eq!(server.front.state(old.1), crate::engine::conn::State::Ended);
}

#[test]
fn an_eager_follower_refuses_by_itself_with_zxid_0() {
    for eager_acl_check in [false, true] {
        let mut world = World::serving(Settings { eager_acl_check, ..Settings::default() }, 1);
        let follower = world.followers()[0];
        let client = world.attach(follower, T);
        world.run(ms(100));
        world.cut_off(follower);
        let refused =
            world.call(client, op::SET_DATA, |w| w.buffer(b"/zookeeper/config").i32(-1).i32(-1));
        match refused {
            Some(answer) => {
                assert_eq!((answer.err, answer.zxid, eager_acl_check), (err::NO_AUTH, 0, true))
            }
            None => assert!(!eager_acl_check),
        }
        // A write to a node that does not exist here is left to the leader.
        if world.clients[client].conn.is_some() {
            assert!(
                world.call(client, op::SET_DATA, |w| w.buffer(b"/none").i32(-1).i32(-1)).is_none()
            );
        }
    }
}

#[test]
fn a_leader_that_serves_no_clients_gives_no_session_and_orders_the_writes_of_others() {
    let mut world = World::serving(Settings { leader_serves: false, ..Settings::default() }, 1);
    let refused = world.client(T);
    world.connect(refused, world.leader());
    world.until("the leader closes", |world| world.clients[refused].conn.is_none());
    assert!(!world.clients[refused].is_attached);
    let client = world.attach(world.followers()[0], T);
    assert!(is_ok(world.create(client, "/a", 0)));
}

#[test]
fn a_refused_write_is_a_transaction() {
    let mut world = serving();
    let client = world.attach(world.followers()[0], T);
    let first = world.create(client, "/a", 0).expect("an answer");
    let second = world.create(client, "/a", 0).expect("an answer");
    assert_eq!((second.err, second.zxid), (err::NODE_EXISTS, first.zxid + 1));
}

#[test]
fn a_read_waits_for_the_write_before_it_and_sees_it() {
    let mut world = serving();
    let followers = world.followers();
    let (one, two) = (world.attach(followers[0], T), world.attach(followers[0], T));
    world.send(one, op::CREATE, |w| create(w, "/a", 0));
    let before = world.now;
    assert_eq!(world.exists(one, "/a"), Some(err::OK));
    // The write went to the leader and its followers, and back.
    assert!(world.now > before + ms(2), "the read did not wait for the write");
    // Another session's reads do not wait for this write.
    let leader = world.leader();
    world.hold(leader, followers[0], ms(1000));
    world.send(one, op::CREATE, |w| create(w, "/b", 0));
    let before = world.now;
    assert_eq!(world.exists(two, "/b"), Some(err::NO_NODE));
    assert!(world.now < before + ms(500));
}

#[test]
fn sync_brings_all_earlier_commits() {
    let mut world = serving();
    let (leader, follower) = (world.leader(), world.followers()[0]);
    let (writer, reader) = (world.attach(leader, T), world.attach(follower, T));
    world.hold(leader, follower, ms(500));
    assert!(is_ok(world.create(writer, "/a", 0)));
    assert_eq!(world.exists(reader, "/a"), Some(err::NO_NODE));
    assert!(is_ok(world.call(reader, op::SYNC, |w| w.buffer(b"/"))));
    assert_eq!(world.exists(reader, "/a"), Some(err::OK));
}

#[test]
fn watches_fire_when_the_follower_applies_and_once() {
    let mut world = serving();
    let followers = world.followers();
    let (writer, watcher) = (world.attach(followers[0], T), world.attach(followers[1], T));
    world.watch(watcher, "/a");
    world.run(ms(100));
    for path in ["/a", "/b"] {
        assert!(is_ok(world.create(writer, path, 0)));
    }
    assert!(is_ok(world.call(writer, op::SET_DATA, |w| w.buffer(b"/a").i32(-1).i32(-1))));
    world.run(ms(100));
    assert_eq!(world.clients[watcher].events, [(event::CREATED, "/a".to_owned())]);
    assert!((0..3).all(|member| world.ensemble.watch_count(member) == 0));
}

#[test]
fn a_closed_session_takes_its_nodes_along_and_its_connection_is_closed() {
    let mut world = serving();
    let client = world.attach(world.followers()[0], T);
    assert!(is_ok(world.create(client, "/e", EPHEMERAL)));
    assert!(is_ok(world.call(client, op::CLOSE, |w| w)));
    world.run(ms(100));
    assert!(world.clients[client].conn.is_none());
    for member in 0..3 {
        assert!(world.ensemble.nodes(member).iter().all(|node| node.path != "/e"));
        assert!(world.ensemble.sessions(member).is_empty());
    }
}

#[test]
fn an_operator_expires_a_session_and_sets_a_number() {
    let mut world = serving();
    let client = world.attach(world.followers()[0], T);
    assert!(is_ok(world.create(client, "/q", 0)));
    assert!(!world.ensemble.set_sequence("/none", 7, world.now));
    assert!(world.ensemble.set_sequence("/q", i32::MAX - 1, world.now));
    world.carry();
    let made = world.create(client, "/q/n-", SEQUENTIAL).expect("an answer");
    assert_eq!(Reader::new(&made.body).string(), Ok("/q/n-2147483646"));
    let session = world.clients[client].session;
    // Only the session that last sent something to the leader is checked here, so the client pings
    // first.
    world.run(ms(100));
    world.forget_heard();
    assert!(world.ensemble.expire(session, world.now));
    world.carry();
    world.until("the client's connection is closed", |world| world.clients[client].conn.is_none());
    assert!(!world.ensemble.expire(session, world.now));
}

#[test]
fn a_member_with_other_limits_grants_another_timeout() {
    let mut world = serving();
    let followers = world.followers();
    world.ensemble.set_session_limits(followers[1], T * 2, T * 4);
    let client = world.attach(followers[0], T);
    assert_eq!(world.clients[client].granted, T);
    world.leave(client);
    world.connect(client, followers[1]);
    world.until("the client is attached", |world| world.clients[client].is_attached);
    assert_eq!(world.clients[client].granted, T * 2);
    world.run(T + T / 2);
    assert_eq!(world.expiries(world.clients[client].session), 0);
}

#[test]
fn a_follower_that_is_behind_turns_away_a_client_that_has_seen_more() {
    let mut world = serving();
    let (leader, follower) = (world.leader(), world.followers()[0]);
    let client = world.attach(leader, T);
    world.hold(leader, follower, ms(1000));
    assert!(is_ok(world.create(client, "/a", 0)));
    world.leave(client);
    world.connect(client, follower);
    world.until("the follower turns the client away", |world| world.clients[client].conn.is_none());
    assert!(!world.clients[client].is_expired && !world.clients[client].is_attached);
    world.run(ms(1000));
    world.connect(client, follower);
    world.until("the client is attached", |world| world.clients[client].is_attached);
}

#[test]
fn a_stream_with_a_gap_is_closed_and_made_again() {
    let mut world = serving();
    let (leader, follower) = (world.leader(), world.followers()[0]);
    let client = world.attach(leader, T * 5);
    world.cut.insert((leader, follower));
    assert!(is_ok(world.create(client, "/a", 0)));
    world.run(ms(1500));
    world.cut.clear();
    world.until("the follower looks for a leader", |world| !world.ensemble.is_serving(follower));
    world.until_all_serve();
    assert_eq!(world.leader(), leader);
    assert!(world.ensemble.nodes(follower).iter().any(|node| node.path == "/a"));
}

#[test]
fn containers_are_reaped_everywhere() {
    let mut world = serving();
    let client = world.attach(world.followers()[0], T * 5);
    world.call(client, op::CREATE_CONTAINER, |w| create(w, "/c", 4));
    assert!(is_ok(world.create(client, "/c/child", 0)));
    assert!(is_ok(world.call(client, op::DELETE, |w| w.buffer(b"/c/child").i32(-1))));
    world.idle(&[client], ms(61_000));
    assert!((0..3).all(|member| world.ensemble.nodes(member).iter().all(|node| node.path != "/c")));
}

#[test]
fn the_handshakes_of_a_deaf_member_keep_a_session_alive() {
    let mut world = serving();
    let member = world.followers()[0];
    let client = world.attach(member, T);
    assert!(is_ok(world.create(client, "/a", EPHEMERAL)));
    world.ensemble.set_deaf(member, true);
    let answers = world.clients[client].answers.len();
    world.watch(client, "/a");
    world.run(T / 2);
    assert_eq!(world.clients[client].answers.len(), answers);
    for _ in 0..6 {
        world.leave(client);
        world.connect(client, member);
        world.run(T / 2);
        assert!(world.clients[client].is_attached);
    }
    assert_eq!(world.expiries(world.clients[client].session), 0);
    world.run(T * 2);
    assert_eq!(world.expiries(world.clients[client].session), 1);
}
