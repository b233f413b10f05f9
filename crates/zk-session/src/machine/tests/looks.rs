//! Tests of the looks at nodes: when each is sent, and what its answers show.

use super::*;
use crate::machine::Watched;
use zk_wire::record::Stat;

/// The fields of a `Stat` that a look is about.
fn stat(czxid: i64, mzxid: i64, pzxid: i64) -> Vec<u8> {
    let w = Writer::bare().i64(czxid).i64(mzxid).i64(0).i64(0).i32(0).i32(0).i32(0).i64(0);
    w.i32(0).i32(0).i64(pzxid).body()
}

/// The answer to a look at the children.
fn listed(names: &[&str], pzxid: i64) -> Vec<u8> {
    [listing(names), stat(1, 1, pzxid)].concat()
}

impl Rig {
    fn watch(&mut self, path: &str, what: Watched) -> u64 {
        self.with(|machine, now| machine.watch_node(path, what, now)).unwrap()
    }

    fn looked(&mut self) -> Vec<(u64, Result<Option<i64>, i32>)> {
        let zxid = |stat: Stat| stat.mzxid.max(stat.pzxid);
        let all = std::mem::take(&mut self.looked);
        all.into_iter().map(|(number, seen)| (number, seen.map(|stat| stat.map(zxid)))).collect()
    }

    /// The node is looked at, and is there.
    #[track_caller]
    fn answer_look(&mut self, mzxid: i64) {
        let xid = self.only_request(op::EXISTS, "/a");
        self.reply(xid, err::OK, &stat(1, mzxid, 1));
    }

    #[track_caller]
    fn sends_nothing(&mut self) {
        assert_eq!(self.sent(), []);
    }
}

#[test]
fn a_node_is_looked_at_once_and_then_after_each_event() {
    let mut rig = Rig::up();
    let number = rig.watch("/a", Watched::Node);
    rig.answer_look(5);
    rig.sends_nothing();
    rig.event(event::DATA_CHANGED, "/a");
    rig.answer_look(6);
    rig.event(event::DELETED, "/a");
    let xid = rig.only_request(op::EXISTS, "/a");
    rig.reply(xid, err::NO_NODE, &[]);
    rig.event(event::CREATED, "/a");
    rig.answer_look(8);
    let wanted = [Ok(Some(5)), Ok(Some(6)), Ok(None), Ok(Some(8))];
    assert_eq!(rig.looked(), wanted.map(|seen| (number, seen)));
}

#[test]
fn events_of_other_nodes_and_of_other_kinds_cause_no_look() {
    let mut rig = Rig::up();
    rig.watch("/a", Watched::Node);
    rig.answer_look(5);
    rig.event(event::CHILDREN_CHANGED, "/a");
    rig.event(event::DATA_CHANGED, "/b");
    rig.event(event::DATA_CHANGED, "/a/b");
    rig.sends_nothing();
    rig.watch("/c", Watched::Children);
    let xid = rig.only_request(op::GET_CHILDREN2, "/c");
    rig.reply(xid, err::OK, &listed(&["x"], 3));
    rig.event(event::DATA_CHANGED, "/c");
    rig.sends_nothing();
    rig.event(event::CHILDREN_CHANGED, "/c");
    rig.only_request(op::GET_CHILDREN2, "/c");
}

/// That event may have used up the watch which the look has set, and no other event would come.
#[test]
fn an_event_that_comes_before_the_answer_causes_another_look_behind_it() {
    let mut rig = Rig::up();
    let number = rig.watch("/a", Watched::Node);
    let xid = rig.only_request(op::EXISTS, "/a");
    rig.event(event::DATA_CHANGED, "/a");
    rig.event(event::DATA_CHANGED, "/a");
    rig.sends_nothing(); // two looks of one watch never overlap
    rig.reply(xid, err::OK, &stat(1, 5, 1));
    rig.answer_look(6);
    rig.sends_nothing();
    assert_eq!(rig.looked(), [(number, Ok(Some(5))), (number, Ok(Some(6)))]);
}

#[test]
fn each_new_connection_causes_a_look_whether_the_last_answer_came_or_not() {
    let mut rig = Rig::up();
    let number = rig.watch("/a", Watched::Node);
    rig.answer_look(5);
    rig.cut(); // the watch was set
    rig.only_request(op::EXISTS, "/a");
    rig.cut(); // the look was under way
    rig.answer_look(6);
    rig.event(event::DATA_CHANGED, "/a");
    rig.drop_connection(); // the event has come, and the look behind it is lost
    rig.sends_nothing();
    rig.attach(7);
    rig.answer_look(7);
    let wanted = [Ok(Some(5)), Ok(Some(6)), Ok(Some(7))];
    assert_eq!(rig.looked(), wanted.map(|seen| (number, seen)));
}

/// The reads that a caller sends after it has set a watch show nothing older than the watch.
#[test]
fn on_a_new_connection_looks_go_before_the_requests_of_callers() {
    let mut rig = Rig::up();
    rig.watch("/a", Watched::Node);
    rig.answer_look(5);
    rig.drop_connection();
    rig.watch("/b", Watched::Node);
    let _call = rig.call(&[(Operation::GetData { path: "/b", watch: false }, None)]);
    rig.attach(7);
    let sent = rig.sent();
    assert_eq!(without_xids(&sent), [(op::EXISTS, "/a"), (op::EXISTS, "/b"), (op::GET_DATA, "/b")]);
}

#[test]
fn a_watch_that_is_set_during_an_outage_is_sent_once() {
    let mut rig = Rig::up();
    rig.drop_connection();
    rig.watch("/a", Watched::Node);
    rig.drop_connection(); // another attempt fails
    rig.attach(7);
    rig.answer_look(5);
    rig.sends_nothing();
}

#[test]
fn the_creation_of_a_node_whose_children_are_watched_is_noticed() {
    let mut rig = Rig::up();
    let number = rig.watch("/c", Watched::Children);
    let xid = rig.only_request(op::GET_CHILDREN2, "/c");
    rig.reply(xid, err::NO_NODE, &[]);
    // That listing has set no watch, so nothing is told yet.
    assert_eq!(rig.looked(), []);
    let xid = rig.only_request(op::EXISTS, "/c");
    rig.reply(xid, err::NO_NODE, &[]);
    assert_eq!(rig.looked(), [(number, Ok(None))]);
    rig.event(event::CREATED, "/c");
    let xid = rig.only_request(op::GET_CHILDREN2, "/c");
    rig.reply(xid, err::OK, &listed(&[], 4));
    assert_eq!(rig.looked(), [(number, Ok(Some(4)))]);
    rig.event(event::DELETED, "/c");
    let xid = rig.only_request(op::GET_CHILDREN2, "/c");
    rig.reply(xid, err::NO_NODE, &[]);
    // On another connection the list comes first again.
    rig.cut();
    rig.only_request(op::GET_CHILDREN2, "/c");
}

#[test]
fn a_node_that_is_made_between_the_two_requests_of_a_look_is_listed() {
    let mut rig = Rig::up();
    let number = rig.watch("/c", Watched::Children);
    let xid = rig.only_request(op::GET_CHILDREN2, "/c");
    rig.reply(xid, err::NO_NODE, &[]);
    let xid = rig.only_request(op::EXISTS, "/c");
    rig.reply(xid, err::OK, &stat(3, 3, 3));
    let xid = rig.only_request(op::GET_CHILDREN2, "/c");
    rig.reply(xid, err::OK, &listed(&["x"], 4));
    assert_eq!(rig.looked(), [(number, Ok(Some(4)))]);
    rig.sends_nothing();
}

#[test]
fn a_server_whose_answers_contradict_each_other_is_asked_seldom() {
    let mut rig = Rig::up();
    rig.watch("/c", Watched::Children);
    for _ in 0..2 {
        let xid = rig.only_request(op::GET_CHILDREN2, "/c");
        rig.reply(xid, err::NO_NODE, &[]);
        let xid = rig.only_request(op::EXISTS, "/c");
        rig.reply(xid, err::OK, &stat(3, 3, 3));
    }
    rig.sends_nothing();
    rig.pass_time(T / 8);
    assert!(without_xids(&rig.sent()).contains(&(op::GET_CHILDREN2, "/c")));
}

/// Answers all that the machine sends of itself while time passes, and counts the looks.
fn looks_within(rig: &mut Rig, time: Duration, code: i32) -> usize {
    let mut looks = 0;
    for _ in 0..96 {
        rig.pass_time(time / 96);
        for (xid, op, _) in rig.sent() {
            looks += usize::from(op == op::EXISTS);
            let code = match op {
                op::EXISTS => code,
                op::DELETE => err::NO_NODE,
                _ => err::OK,
            };
            rig.reply(xid, code, &[]);
        }
    }
    looks
}

#[test]
fn a_refused_look_is_told_and_tried_again_once_in_a_session_timeout() {
    for (code, least, most) in [(err::NO_AUTH, 7, 8), (err::TOO_LONG, 0, 1)] {
        let mut rig = Rig::up();
        let number = rig.watch("/a", Watched::Node);
        let xid = rig.only_request(op::EXISTS, "/a");
        rig.reply(xid, code, &[]);
        rig.sends_nothing();
        assert_eq!(rig.looked(), [(number, Err(code))]);
        let looks = looks_within(&mut rig, T * 8, code);
        assert!((least..=most).contains(&looks), "{code}: {looks}");
        assert_eq!(rig.looked().len(), looks);
        rig.event(event::DATA_CHANGED, "/a");
        if code == err::TOO_LONG {
            rig.sends_nothing(); // it would cost as much again, at each event
            continue;
        }
        // An event shows that something has changed.
        rig.answer_look(5);
        assert_eq!(rig.looked(), [(number, Ok(Some(5)))]);
    }
}

#[test]
fn a_look_that_a_busy_server_puts_off_is_tried_again_soon_and_not_told() {
    let mut rig = Rig::up();
    let number = rig.watch("/a", Watched::Node);
    let xid = rig.only_request(op::EXISTS, "/a");
    rig.reply(xid, THROTTLED, &[]);
    assert_eq!(rig.looked(), []);
    rig.sends_nothing();
    rig.pass_time(T / 8);
    let sent = rig.sent();
    let xid = sent.iter().find(|sent| sent.1 == op::EXISTS).unwrap().0;
    for (other, op, _) in &sent {
        if *op != op::EXISTS {
            rig.reply(*other, err::OK, &[]);
        }
    }
    rig.reply(xid, err::OK, &stat(1, 5, 1));
    assert_eq!(rig.looked(), [(number, Ok(Some(5)))]);
}

#[test]
fn two_watches_of_one_node_look_each_for_itself_and_end_each_for_itself() {
    let mut rig = Rig::up();
    let (a, b) = (rig.watch("/a", Watched::Node), rig.watch("/a", Watched::Node));
    let sent = rig.sent();
    assert_eq!(without_xids(&sent), [(op::EXISTS, "/a"); 2]);
    // The second is ended before its answer comes.
    rig.machine.end_look(b);
    for (xid, ..) in sent {
        rig.reply(xid, err::OK, &stat(1, 5, 1));
    }
    assert_eq!(rig.looked(), [(a, Ok(Some(5)))]);
    rig.event(event::DATA_CHANGED, "/a");
    rig.answer_look(6);
    assert_eq!(rig.looked(), [(a, Ok(Some(6)))]);
    rig.machine.end_look(a);
    assert_eq!((rig.machine.looks.len(), rig.machine.next_look()), (0, None));
    rig.event(event::DATA_CHANGED, "/a");
    rig.sends_nothing();
}

#[test]
fn a_watch_that_ends_before_it_is_sent_is_not_sent() {
    let mut rig = Rig::up();
    rig.drop_connection();
    let number = rig.watch("/a", Watched::Node);
    rig.machine.end_look(number);
    rig.attach(7);
    rig.sends_nothing();
}

#[test]
fn a_folder_is_listed_once_and_its_first_change_ends_the_look() {
    let mut rig = Rig::up();
    let node = rig.watch("/c", Watched::Children); // beside it, and not disturbed by its end
    let xid = rig.only_request(op::GET_CHILDREN2, "/c");
    rig.reply(xid, err::OK, &listed(&["x"], 3));
    let number = rig.with(|machine, now| machine.watch_folder("/c", now)).unwrap();
    let xid = rig.only_request(op::GET_CHILDREN, "/c");
    rig.reply(xid, err::OK, &listing(&["x"]));
    rig.event(event::CHILDREN_CHANGED, "/c");
    assert_eq!(rig.folders, [(number, Some(vec!["x".to_owned()])), (number, None)]);
    let xid = rig.only_request(op::GET_CHILDREN2, "/c");
    rig.reply(xid, err::OK, &listed(&["x", "y"], 4));
    assert_eq!(rig.looked(), [(node, Ok(Some(3))), (node, Ok(Some(4)))]);
    assert_eq!(rig.machine.looks.len(), 1);
}

#[test]
fn a_folder_that_cannot_be_listed_or_whose_connection_is_lost_counts_as_changed() {
    let mut rig = Rig::up();
    let number = rig.with(|machine, now| machine.watch_folder("/c", now)).unwrap();
    let xid = rig.only_request(op::GET_CHILDREN, "/c");
    rig.reply(xid, err::NO_NODE, &[]);
    let again = rig.with(|machine, now| machine.watch_folder("/c", now)).unwrap();
    rig.only_request(op::GET_CHILDREN, "/c");
    rig.drop_connection();
    assert_eq!(rig.folders, [(number, None)]);
    rig.attach(7);
    rig.sends_nothing();
    assert_eq!(rig.folders, [(number, None), (again, None)]);
    assert_eq!(rig.machine.looks.len(), 0);
}

#[test]
fn a_malformed_answer_costs_the_connection_and_not_the_watch() {
    let mut rig = Rig::up();
    let number = rig.watch("/a", Watched::Node);
    let xid = rig.only_request(op::EXISTS, "/a");
    rig.reply(xid, err::OK, b"short");
    assert!(rig.machine.cut.is_some());
    assert_eq!(rig.looked(), []);
    rig.attach(7);
    rig.answer_look(5);
    assert_eq!(rig.looked(), [(number, Ok(Some(5)))]);
}

#[test]
fn no_node_is_watched_any_more_when_the_session_has_ended() {
    let mut rig = Rig::up();
    rig.watch("/a", Watched::Node);
    rig.answer_look(5);
    rig.close();
    rig.sent();
    assert_eq!(rig.machine.looks.len(), 0);
    assert_eq!(rig.machine.watch_node("/a", Watched::Node, rig.now), None);
    rig.event(event::DATA_CHANGED, "/a");
    rig.sends_nothing();
}

/// All looks are due on a new connection. A server that takes its time for each would have to
/// answer the last one in T/6, too.
#[test]
fn few_looks_are_under_way_at_once_however_many_are_due() {
    let mut rig = Rig::up();
    let watches = 50;
    let mut all: Vec<Sent> = Vec::new();
    for i in 0..watches {
        rig.watch(&format!("/{i}"), Watched::Node);
    }
    rig.sent();
    rig.cut();
    let mut open = rig.sent();
    while let Some((xid, ..)) = open.first().cloned() {
        assert!(open.len() <= 8, "{}", open.len());
        all.push(open.remove(0));
        rig.reply(xid, err::OK, &stat(1, 5, 1));
        open.extend(rig.sent());
    }
    assert_eq!(all.len(), watches);
}

/// Its answer may take longer than a connection waits for one.
#[test]
fn a_look_that_is_under_way_whenever_a_connection_ends_waits_longer_each_time() {
    let mut rig = Rig::up();
    rig.watch("/a", Watched::Children);
    let is_sent = |rig: &mut Rig| rig.sent().iter().any(|(_, _, path)| path == "/a");
    for _ in 0..2 {
        assert!(is_sent(&mut rig));
        rig.cut();
    }
    for pauses in [1, 2] {
        assert!(!is_sent(&mut rig), "{pauses}");
        rig.pass_time(T / 8 * pauses - MS);
        assert!(!is_sent(&mut rig), "{pauses}");
        rig.pass_time(MS);
        assert!(is_sent(&mut rig), "{pauses}");
        rig.cut();
    }
}
