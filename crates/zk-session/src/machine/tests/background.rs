//! Tests of deletes, sweeps and removals, and of the watches on held nodes.

use super::*;

/// The error code of a server that has too much to do.
pub(super) const THROTTLED: i32 = -127;

#[test]
fn a_delete_is_sent_until_it_is_acknowledged() {
    let mut rig = Rig::up();
    let outcome = rig.remove_and_tell(Removal::named("/l/n".into(), "id".into()));
    for _ in 0..3 {
        assert_eq!(rig.sent().pop().map(|s| (s.1, s.2)), Some((op::DELETE, "/l/n".into())));
        rig.cut();
    }
    assert_eq!(rig.pending(), ["id"]);
    let (xid, ..) = rig.sent().pop().unwrap();
    rig.reply(xid, err::NO_NODE, &[]);
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
    assert_eq!(rig.pending(), [""; 0]);
}

/// The delete of a contender's node.
pub(super) fn delete(path: &str) -> Task {
    Task::Remove(Removal::named(path.into(), "id".into()))
}

/// The removal after a create without an answer.
pub(super) fn sweep() -> Task {
    Task::Remove(Removal::of_create("/l/_c_id-lock-", "id"))
}

#[test]
fn a_lost_create_is_swept_only_after_a_write_on_the_same_connection() {
    let mut rig = Rig::up();
    rig.add_task(sweep());
    let (xid, op, path) = rig.sent().pop().unwrap();
    assert_eq!((op, path.as_str()), (op::DELETE, NOOP));
    rig.reply(xid, err::NO_NODE, &[]);
    assert_eq!(rig.sent().pop().map(|s| s.1), Some(op::GET_CHILDREN));
    // The answer does not come. On the next connection the sweep begins with the write again.
    rig.cut();
    let (xid, op, _) = rig.sent().pop().unwrap();
    assert_eq!(op, op::DELETE);
    rig.reply(xid, err::NO_NODE, &[]);
    let (xid, ..) = rig.sent().pop().unwrap();
    rig.reply(xid, err::OK, &listing(&["_c_id-lock-0000000003"]));
    rig.delete_found("/l/_c_id-lock-0000000003");
    assert_eq!(rig.pending(), [""; 0]);
}

impl Rig {
    /// Removes a node of ours; gives its nonce, and the receiver of the result.
    pub(super) fn remove(&mut self, czxid: Option<i64>) -> (String, Receiver<Outcome>) {
        let nonce = nonce::new();
        let removal = Removal::signed("/l/lock".into(), nonce.clone(), czxid);
        (nonce, self.remove_and_tell(removal))
    }

    /// The write before a removal's read is acknowledged.
    #[track_caller]
    pub(super) fn acknowledge_noop(&mut self) {
        let xid = self.only_request(op::DELETE, NOOP);
        self.reply(xid, err::NO_NODE, &[]);
    }

    /// A removal reads the node, and gets this answer.
    #[track_caller]
    pub(super) fn answer_read(&mut self, shown: Option<Vec<u8>>) {
        let xid = self.only_request(op::GET_DATA, "/l/lock");
        let code = if shown.is_some() { err::OK } else { err::NO_NODE };
        self.reply(xid, code, &shown.unwrap_or_default());
    }

    /// A removal writes to the node, which has this czxid, and deletes it.
    #[track_caller]
    pub(super) fn write_and_delete(&mut self, czxid: i64) {
        let xid = self.only_request(op::SET_DATA, "/l/lock");
        self.reply(xid, err::OK, &node_of_version(b"", czxid, 7, 1).split_off(4));
        let xid = self.only_request(op::DELETE, "/l/lock");
        self.reply(xid, err::OK, &[]);
    }

    /// The node of a lost create is found behind the listing: it is read, and deleted.
    #[track_caller]
    pub(super) fn delete_found(&mut self, path: &str) {
        let xid = self.only_request(op::GET_DATA, path);
        self.reply(xid, err::OK, &node(b"", 5, 7));
        let xid = self.only_request(op::DELETE, path);
        self.reply(xid, err::OK, &[]);
    }
}

#[test]
fn a_node_with_a_fixed_name_is_deleted_after_a_write_and_a_read_that_shows_it_is_ours() {
    for czxid in [None, Some(5)] {
        let mut rig = Rig::up();
        let (nonce, outcome) = rig.remove(czxid);
        rig.acknowledge_noop();
        rig.answer_read(Some(node(&nonce::sign(&nonce, b"x"), 5, 7)));
        assert_eq!(rig.pending(), [nonce.as_str()]);
        rig.write_and_delete(5);
        assert_eq!(outcome.try_recv(), Ok(Ok(())));
        assert_eq!(rig.pending(), [""; 0]);
        rig.pass_time(T);
        assert!(rig.sent().iter().all(|s| s.2 != "/l/lock"));
    }
}

/// A second delete could hit the node of the next holder, who may have made it behind the first.
#[test]
fn a_node_with_a_fixed_name_is_deleted_once_however_often_that_is_asked_for() {
    let mut rig = Rig::up();
    let (nonce, first) = rig.remove(Some(5));
    let again = |rig: &mut Rig| {
        rig.remove_and_tell(Removal::signed("/l/lock".into(), nonce.clone(), Some(5)))
    };
    let second = again(&mut rig);
    rig.acknowledge_noop();
    let third = again(&mut rig);
    rig.answer_read(Some(node(&nonce::sign(&nonce, b"x"), 5, 7)));
    let fourth = again(&mut rig);
    rig.write_and_delete(5);
    for outcome in [first, second, third, fourth] {
        assert_eq!(outcome.try_recv(), Ok(Ok(())));
    }
    assert_eq!((rig.sent(), rig.pending()), (vec![], vec![]));
}

#[test]
fn a_node_with_a_fixed_name_that_is_not_ours_stays() {
    let (theirs, ours) = (nonce::sign(&nonce::new(), b"x"), |nonce: &str| nonce::sign(nonce, b"x"));
    for czxid in [None, Some(5)] {
        for case in 0..5 {
            let mut rig = Rig::up();
            let (nonce, outcome) = rig.remove(czxid);
            let shown = match (case, czxid) {
                (0, _) => None,
                (1, _) => Some(node(&theirs, 6, 7)),
                (2, _) => Some(node(&ours(&nonce), 5, 8)),
                (3, _) => Some(node(b"", 6, 0)),
                (_, Some(_)) => Some(node(&ours(&nonce), 6, 7)),
                (_, None) => Some(node(b"their words", 6, 8)),
            };
            rig.acknowledge_noop();
            rig.answer_read(shown);
            assert_eq!(rig.sent(), [], "{case} {czxid:?}");
            assert_eq!(outcome.try_recv(), Ok(Ok(())), "{case} {czxid:?}");
            // A create whose answer was lost may still be done.
            assert_eq!(rig.pending().is_empty(), czxid.is_some());
        }
    }
}

#[test]
fn a_node_of_our_session_is_ours_though_its_data_was_overwritten_before_its_czxid_was_known() {
    // The node is that of the lost create, or of a later one, which was acknowledged.
    for is_of_another in [false, true] {
        let mut rig = Rig::up();
        if is_of_another {
            let call = rig.create_fixed("another");
            let xid = rig.only_request(op::CREATE2, "/l/lock");
            rig.reply(xid, err::OK, &batches::created("/l/lock", 9));
            assert!(call.1.try_recv().is_ok());
        }
        rig.remove(None);
        if !is_of_another {
            rig.acknowledge_noop();
        }
        rig.answer_read(Some(node(b"their words", 9, 7)));
        if is_of_another {
            assert_eq!(rig.sent(), []);
        } else {
            rig.write_and_delete(9);
        }
    }
}

#[test]
fn a_sweep_deletes_the_node_that_its_create_made_and_no_other() {
    for (names, ours) in [
        (["x_c_id-lock-0000000001", "_c_id-lock-0000000003"], Some("_c_id-lock-0000000003")),
        (["_c_id-lock-000000000x", "_c_id-lock--2147483648"], Some("_c_id-lock--2147483648")),
        (["_c_id-lock-7-copy", "_c_id-__READ__0000000001"], None),
    ] {
        let mut rig = Rig::up();
        rig.add_task(sweep());
        rig.acknowledge_noop();
        let xid = rig.only_request(op::GET_CHILDREN, "/l");
        rig.reply(xid, err::OK, &listing(&names));
        match ours {
            Some(name) => rig.delete_found(&format!("/l/{name}")),
            None => assert_eq!(rig.sent(), []),
        }
    }
}

#[test]
fn a_node_with_the_known_czxid_is_ours_whatever_data_it_has() {
    let mut rig = Rig::up();
    rig.remove(Some(5));
    rig.acknowledge_noop();
    rig.answer_read(Some(node(b"their words", 5, 7)));
    rig.write_and_delete(5);
}

#[test]
fn a_removal_begins_anew_on_each_connection_and_spares_the_next_holder() {
    let mut rig = Rig::up();
    let (nonce, outcome) = rig.remove(Some(5));
    let ours = Some(node(&nonce::sign(&nonce, b"x"), 5, 7));
    rig.only_request(op::DELETE, NOOP); // no answer
    rig.cut();
    rig.acknowledge_noop();
    rig.only_request(op::GET_DATA, "/l/lock"); // no answer
    rig.cut();
    rig.acknowledge_noop();
    rig.answer_read(ours);
    let xid = rig.only_request(op::SET_DATA, "/l/lock");
    rig.reply(xid, err::OK, &node_of_version(b"", 5, 7, 1).split_off(4));
    // The delete is done, and its answer is lost. Then another client makes the node.
    rig.only_request(op::DELETE, "/l/lock");
    rig.cut();
    assert_eq!(rig.pending(), [nonce.as_str()]);
    rig.acknowledge_noop();
    rig.answer_read(Some(node(&nonce::sign(&nonce::new(), b"x"), 6, 8)));
    assert_eq!(rig.sent(), []);
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
    assert_eq!(rig.pending(), [""; 0]);
}

#[test]
fn a_removal_reads_only_after_a_write_that_went_through_the_quorum() {
    let mut rig = Rig::up();
    rig.remove(None);
    let xid = rig.only_request(op::DELETE, NOOP);
    rig.reply(xid, err::RUNTIME_INCONSISTENCY, &[]);
    assert_eq!(rig.sent(), []);
    rig.pass_time(T / 8);
    assert_eq!(rig.sent().iter().filter(|s| s.2 == NOOP).count(), 1);
}

/// A server that has lost its leader refuses a write by itself; its answer has no new zxid.
#[test]
fn a_sweep_does_not_list_after_the_refusal_of_a_server_without_a_leader() {
    for task in [sweep(), Task::Remove(Removal::signed("/l/lock".into(), nonce::new(), None))] {
        let mut rig = Rig::up();
        rig.add_task(task);
        let xid = rig.only_request(op::DELETE, NOOP);
        rig.bytes(&ReplyHeader { xid, zxid: 0, err: err::NO_AUTH }.frame(&[]));
        assert_eq!(rig.sent(), []);
        rig.pass_time(T / 8);
        assert_eq!(rig.sent().iter().filter(|s| s.2 == NOOP).count(), 1);
    }
}

#[test]
fn a_removal_that_is_refused_is_reported_and_tried_again_from_the_start() {
    for refused in [op::GET_DATA, op::DELETE] {
        let mut rig = Rig::up();
        let (nonce, outcome) = rig.remove(None);
        let (mut steps, end) = (Vec::new(), rig.now + T * 2);
        while rig.now < end {
            for (xid, op, path) in rig.sent() {
                match (op, path.as_str()) {
                    (op, "/l/lock") if op == refused => rig.reply(xid, err::NO_AUTH, &[]),
                    (op::SET_DATA, _) => {
                        rig.reply(xid, err::OK, &node_of_version(b"", 5, 7, 1).split_off(4));
                    }
                    (_, "/l/lock") => {
                        rig.reply(xid, err::OK, &node(&nonce::sign(&nonce, b"x"), 5, 7))
                    }
                    (_, NOOP) => rig.reply(xid, err::NO_NODE, &[]),
                    _ => {
                        rig.reply(xid, err::OK, &[]);
                        continue;
                    }
                }
                steps.push((op, path));
            }
            rig.pass_time(T / 48);
        }
        assert_eq!(outcome.try_recv(), Ok(Err(err::NO_AUTH)));
        assert_eq!(rig.pending(), [nonce.as_str()]);
        let (of, permission) =
            if refused == op::DELETE { ("/l", "DELETE") } else { ("/l/lock", "READ") };
        assert_eq!(
            rig.logged,
            [format!(
                "/l/lock: our node could not be deleted (NoAuth: the ACL of {of} does not give \
                 {permission} to this session); change the ACL, or give auth() credentials that it \
                 names; it is tried again, and the server deletes the node when the session ends"
            )]
        );
        assert_eq!(rig.machine.has_refused("/l"), refused == op::DELETE);
        let is_refused = |(op, path): &(i32, String)| *op == refused && path == "/l/lock";
        let tries = steps.iter().filter(|step| is_refused(step)).count();
        assert!((2..=3).contains(&tries), "{steps:?}");
        let steps: Vec<_> = steps.iter().map(|(op, path)| (*op, path.as_str())).collect();
        // One write on the connection is enough for all tries.
        let own = [op::GET_DATA, op::SET_DATA, op::DELETE].map(|op| (op, "/l/lock"));
        let own = if refused == op::GET_DATA { &own[..1] } else { &own };
        assert_eq!(steps, [&[(op::DELETE, NOOP)], &own.repeat(tries)[..]].concat());
    }
}

#[test]
fn a_removal_survives_a_malformed_answer() {
    let mut rig = Rig::up();
    let (nonce, outcome) = rig.remove(None);
    rig.acknowledge_noop();
    let xid = rig.only_request(op::GET_DATA, "/l/lock");
    rig.reply(xid, err::OK, &[0, 0, 0, 9]);
    assert!(rig.machine.cut.is_some());
    rig.attach(7);
    rig.acknowledge_noop();
    rig.answer_read(Some(node(&nonce::sign(&nonce, b"x"), 5, 7)));
    rig.write_and_delete(5);
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
}

#[test]
fn a_sweep_survives_a_malformed_answer() {
    let mut rig = Rig::up();
    rig.add_task(sweep());
    rig.acknowledge_noop();
    let xid = rig.only_request(op::GET_CHILDREN, "/l");
    rig.reply(xid, err::OK, &[0, 0, 0, 9]);
    assert!(rig.machine.cut.is_some());
    rig.attach(7);
    rig.acknowledge_noop();
    let xid = rig.only_request(op::GET_CHILDREN, "/l");
    rig.reply(xid, err::OK, &listing(&["_c_id-lock-0000000003"]));
    rig.delete_found("/l/_c_id-lock-0000000003");
    assert_eq!(rig.pending(), [""; 0]);
}

#[test]
fn a_watch_that_finds_another_node_of_the_same_name_shows_that_ours_is_gone() {
    for (czxid, loss) in [(5, None), (6, Some(LossReason::NodeDeleted))] {
        let mut rig = Rig::up();
        let hold = rig.fixed(5);
        rig.pass_time(WATCH_AFTER * 2);
        rig.answer_read(Some(node(b"whatever", czxid, 7)));
        assert_eq!(hold.loss(), loss);
    }
}

#[test]
fn a_late_release_of_a_lost_hold_leaves_the_next_one_of_the_same_name_alone() {
    let mut rig = Rig::up();
    let first = rig.fixed(5);
    rig.lease.node_deleted("/l/lock", rig.now);
    let second = rig.fixed(6);
    rig.lease.release(&first);
    rig.lease.node_gone(&first, rig.now);
    assert_eq!((first.loss(), second.loss()), (Some(LossReason::NodeDeleted), None));
    rig.with(|m, now| m.end(LossReason::SessionExpired, now));
    assert_eq!(
        second.loss(),
        Some(LossReason::SessionExpired),
        "it still stands and falls with the lease"
    );
}

#[test]
fn a_hold_is_watched_after_a_while_and_again_on_each_connection() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    rig.pass_time(WATCH_AFTER * 2);
    let xid = rig.only_request(op::GET_DATA, "/l/n");
    rig.reply(xid, err::OK, &node(b"", 5, 7));
    rig.cut();
    rig.acknowledge_noop(); // the renewal of the lease goes first
    let xid = rig.only_request(op::GET_DATA, "/l/n");
    assert_eq!(hold.loss(), None);
    rig.reply(xid, err::NO_NODE, &[]);
    assert_eq!(hold.loss(), Some(LossReason::NodeDeleted));
}

#[test]
fn a_holder_gets_the_data_that_the_watch_reads_and_a_new_watch_after_each_change() {
    let mut rig = Rig::up();
    let hold = rig.hold("/l/n");
    rig.pass_time(WATCH_AFTER * 2);
    let all = [&b"host:1"[..], b"__REVOKE__", b""];
    for data in all {
        let (xid, op, _) = rig.sent().pop().unwrap();
        assert_eq!(op, op::GET_DATA);
        rig.reply(xid, err::OK, &node(data, 5, 7));
        rig.event(event::DATA_CHANGED, "/l/n");
    }
    assert_eq!(*rig.read.lock(), all);
    assert_eq!(hold.loss(), None);
}

/// The answer to a look at a folder. Here the owner says whether it is ours, in the place of what the
/// session has made.
fn folder(owner: i64) -> Vec<u8> {
    node(b"", 5, owner).split_off(4)
}

#[test]
fn a_folder_is_looked_at_before_it_is_deleted_and_only_ours_is() {
    let prune = || Task::Prune { path: "/l".into(), is_ours: false };
    let mut rig = Rig::up();
    rig.add_task(prune());
    let xid = rig.only_request(op::EXISTS, "/l");
    rig.reply(xid, err::OK, &folder(0));
    assert_eq!(rig.sent(), []);
    rig.add_task(prune());
    let xid = rig.only_request(op::EXISTS, "/l");
    rig.reply(xid, err::OK, &folder(1));
    let xid = rig.only_request(op::DELETE, "/l");
    rig.reply(xid, err::NOT_EMPTY, &[]);
    // A look on an earlier connection shows nothing about the folder of today.
    rig.add_task(prune());
    let xid = rig.only_request(op::EXISTS, "/l");
    rig.machine.server_bytes(
        &ReplyHeader { xid, zxid: rig.zxid, err: err::OK }.frame(&folder(1)),
        rig.now,
    );
    rig.machine.server_gone("cut", rig.now);
    rig.deliver_outputs();
    rig.attach(7);
    assert_eq!(rig.sent(), []);
}

#[test]
fn a_delete_that_is_refused_is_tried_again_and_never_blocks_us() {
    let mut rig = Rig::up();
    let outcome = rig.remove_and_tell(Removal::named("/l/n".into(), "id".into()));
    let (xid, ..) = rig.sent().pop().unwrap();
    rig.reply(xid, err::NO_AUTH, &[]);
    assert_eq!(outcome.try_recv(), Ok(Err(err::NO_AUTH)));
    assert_eq!((rig.pending(), rig.logged.len()), (vec!["id".to_owned()], 1));
    let mut tries = 0;
    for _ in 0..96 {
        rig.pass_time(T / 48);
        for (xid, _, path) in rig.sent() {
            tries += usize::from(path == "/l/n");
            rig.reply(xid, err::NO_AUTH, &[]);
        }
    }
    assert!((1..=2).contains(&tries), "{tries}");
    assert_eq!(rig.logged.len(), 1, "each refused removal is reported once");
}

/// A caller that wants to make another node there must know it, and must not wait for long once the
/// ACL allows the delete.
#[test]
fn a_refused_delete_is_known_by_its_folder_and_is_tried_again_when_somebody_asks() {
    let mut rig = Rig::up();
    rig.add_task(delete("/l/n"));
    let xid = rig.only_request(op::DELETE, "/l/n");
    rig.reply(xid, err::NO_AUTH, &[]);
    let known = |rig: &Rig| ["/l", "/", "/l/n", "/m"].map(|dir| rig.machine.has_refused(dir));
    assert_eq!(known(&rig), [true, false, false, false]);
    assert!(rig.machine.retry_refused("/m", rig.now).is_none());
    for (code, is_known) in [(err::NO_AUTH, true), (err::OK, false)] {
        let (number, path) = rig.machine.retry_refused("/l", rig.now).unwrap();
        assert_eq!(path, "/l/n");
        let xid = rig.only_request(op::DELETE, "/l/n");
        // Another caller waits for the same answer.
        let (other, _) = rig.machine.retry_refused("/l", rig.now).unwrap();
        assert_eq!(rig.sent(), []);
        rig.zxid += 1;
        let frame = ReplyHeader { xid, zxid: rig.zxid, err: code }.frame(&[]);
        rig.machine.server_bytes(&frame, rig.now);
        let outcome = if code == err::OK { Ok(()) } else { Err(code) };
        let done: Vec<_> = std::mem::take(&mut rig.machine.outputs)
            .into_iter()
            .filter_map(|output| match output {
                Output::Done(number, outcome) => Some((number, outcome)),
                _ => None,
            })
            .collect();
        assert_eq!(done, [(number, outcome), (other, outcome)]);
        assert_eq!(known(&rig), [is_known, false, false, false]);
    }
    rig.pass_time(T * 2);
    assert!(rig.sent().iter().all(|(_, _, path)| path != "/l/n"), "it is gone");
}

#[test]
fn however_many_deletes_are_refused_few_of_them_are_tried_again_at_a_time() {
    let mut rig = Rig::up();
    let refuse = |rig: &mut Rig| {
        let sent = rig.sent();
        sent.iter().for_each(|(xid, ..)| rig.reply(*xid, err::NO_AUTH, &[]));
        sent.iter().filter(|(_, op, _)| *op == op::DELETE).count()
    };
    for n in 0..4_000 {
        let removal = Removal::named(format!("/l/{n}"), format!("id{n}"));
        rig.add_task(Task::Remove(removal));
        assert_eq!(refuse(&mut rig), 1, "each is sent at once, and once");
    }
    let mut tries = 0;
    for _ in 0..96 {
        rig.pass_time(T / 24);
        tries += refuse(&mut rig);
    }
    assert!((1..=1_000).contains(&tries), "{tries} in 4 T");
    // A delete of another lock waits for none of them.
    rig.add_task(delete("/m/n"));
    assert!(rig.sent().iter().any(|(_, _, path)| path == "/m/n"));
}

/// A server without a leader gives answers without a new zxid.
#[test]
fn a_delete_that_the_leader_has_not_answered_is_sent_again() {
    for code in [err::OK, err::NO_NODE] {
        let mut rig = Rig::up();
        rig.add_task(delete("/l/n"));
        let xid = rig.only_request(op::DELETE, "/l/n");
        rig.bytes(&ReplyHeader { xid, zxid: 0, err: code }.frame(&[]));
        assert_eq!((rig.pending(), rig.sent()), (vec!["id".to_owned()], vec![]), "{code}");
        rig.pass_time(T / 8);
        assert_eq!(rig.sent().iter().filter(|s| s.2 == "/l/n").count(), 1, "{code}");
    }
}

#[test]
fn a_throttled_delete_or_watch_is_sent_again_after_its_pause() {
    for is_watch in [false, true] {
        let mut rig = Rig::up();
        if is_watch {
            rig.hold("/l/n");
            rig.pass_time(WATCH_AFTER);
        } else {
            rig.add_task(delete("/l/n"));
        }
        let (xid, ..) = rig.sent().pop().unwrap();
        rig.reply(xid, THROTTLED, &[]);
        let due = rig.now + T / 8;
        // Writes go meanwhile, so no `sync` is due at the same time.
        for _ in 0..5 {
            rig.pass_time(T / 48);
            assert!(rig.sent().iter().all(|s| s.2 != "/l/n"));
            rig.client_request(op::SET_DATA, "/x");
        }
        assert_eq!(rig.tick_until_quiet(), Some(due));
        rig.pass_time(due.since(rig.now));
        assert_eq!(rig.sent().iter().filter(|s| s.2 == "/l/n").count(), 1);
    }
}

#[test]
fn the_next_connection_ends_the_pause_of_a_delete_unless_it_was_refused() {
    for (code, is_sent) in [(THROTTLED, true), (err::NO_AUTH, false)] {
        let mut rig = Rig::up();
        rig.add_task(delete("/l/n"));
        let xid = rig.only_request(op::DELETE, "/l/n");
        rig.reply(xid, code, &[]);
        rig.cut();
        assert_eq!(rig.sent().iter().any(|s| s.2 == "/l/n"), is_sent, "{code}");
    }
}

#[test]
fn a_hold_is_watched_once_it_has_stood_for_a_while_however_late_it_was_granted() {
    let mut rig = Rig::up();
    rig.pass_time(WATCH_AFTER * 3); // its thread was slow
    let hold = rig.hold("/l/n");
    let granted = rig.now;
    assert_eq!(rig.tick_until_quiet(), Some(granted + WATCH_AFTER));
    rig.now = granted + WATCH_AFTER;
    rig.tick_until_quiet();
    assert!(rig.sent().iter().any(|(_, op, path)| *op == op::GET_DATA && path == hold.path()));
}

impl Rig {
    /// A removal of a lost create finds no node.
    fn sweep_without_a_node(&mut self) {
        self.add_task(sweep());
        self.acknowledge_noop();
        let xid = self.only_request(op::GET_CHILDREN, "/l");
        self.reply(xid, err::OK, &listing(&[]));
        assert_eq!(self.pending(), ["id"]);
    }
}

/// The create was sent over another server, and that server's stream to the leader stood still.
#[test]
fn a_create_that_is_done_after_its_node_was_looked_for_in_vain_is_found_on_the_next_connection() {
    let mut rig = Rig::up();
    rig.sweep_without_a_node();
    rig.cut();
    // A listing without the node, behind a write, does not end the search.
    rig.acknowledge_noop();
    let xid = rig.only_request(op::GET_CHILDREN, "/l");
    rig.reply(xid, err::OK, &listing(&["_c_other-lock-0000000002"]));
    assert_eq!((rig.sent(), rig.pending()), (vec![], vec!["id".to_owned()]));
    rig.cut();
    rig.acknowledge_noop();
    let xid = rig.only_request(op::GET_CHILDREN, "/l");
    rig.reply(xid, err::OK, &listing(&["_c_id-lock-0000000003"]));
    let xid = rig.only_request(op::GET_CHILDREN, "/l");
    rig.reply(xid, err::OK, &listing(&["_c_id-lock-0000000003"]));
    rig.delete_found("/l/_c_id-lock-0000000003");
    assert_eq!((rig.sent(), rig.pending()), (vec![], vec![]));
}

/// A session that holds nothing sends no write by itself. The `sync`s of a session that has moved
/// are answered.
#[test]
fn while_a_create_may_still_be_done_a_write_in_each_quarter_of_the_timeout_shows_whether_it_was() {
    let mut rig = Rig::up();
    rig.sweep_without_a_node();
    // RELIABILITY.md, G4: for ten timeouts, and a minute at least.
    assert_eq!(removal::late_bound(T / 12), Duration::from_secs(60));
    // The last look comes when its time is over.
    let (mut since, end) = (rig.now, rig.now + T * 11 + T / 16);
    while !rig.pending().is_empty() {
        assert!(rig.now < end, "it is never forgotten");
        for (xid, op, _) in rig.sent() {
            since = if op == op::DELETE { rig.now } else { since };
            match op {
                op::DELETE => rig.reply(xid, err::NO_NODE, &[]),
                op::GET_CHILDREN => rig.reply(xid, err::OK, &listing(&[])),
                _ => rig.reply(xid, err::OK, b"\0\0\0\x01/"),
            }
        }
        assert!(rig.now.since(since) < T / 3, "{:?}", rig.now.since(since));
        rig.pass_time(T / 48);
    }
    assert!(rig.now >= end.before(T * 2), "it was forgotten too early");
}

/// A server may have done the create while there was no connection. The session lives for longer
/// than T after that: the leader looks at its sessions once in a tick.
#[test]
fn a_late_create_is_looked_for_on_a_connection_that_comes_after_its_time() {
    for (names, is_made) in
        [(["_c_id-lock-0000000003"], true), (["_c_other-lock-0000000002"], false)]
    {
        let mut rig = Rig::up();
        rig.sweep_without_a_node();
        rig.drop_connection();
        rig.pass_time(removal::late_bound(T) + T * 2);
        rig.attach(7);
        assert_eq!(rig.pending(), ["id"]);
        // The write before the look, and that of each T/4.
        for (xid, op, path) in rig.sent() {
            assert_eq!((op, path.as_str()), (op::DELETE, NOOP));
            rig.reply(xid, err::NO_NODE, &[]);
        }
        let xid = rig.only_request(op::GET_CHILDREN, "/l");
        rig.reply(xid, err::OK, &listing(&names));
        if is_made {
            let xid = rig.only_request(op::GET_CHILDREN, "/l");
            rig.reply(xid, err::OK, &listing(&names));
            rig.delete_found("/l/_c_id-lock-0000000003");
        }
        assert_eq!((rig.sent(), rig.pending()), (vec![], vec![]));
    }
}

/// The names of other clients' nodes may contain our id, if somebody has copied it.
#[test]
fn a_sweep_deletes_every_node_of_our_session_with_its_id_and_no_other() {
    let mut rig = Rig::up();
    rig.add_task(sweep());
    rig.acknowledge_noop();
    let xid = rig.only_request(op::GET_CHILDREN, "/l");
    let names = ["_c_id-lock-0000000003", "_c_id-lock-0000000004", "_c_id-lock-0000000005"];
    rig.reply(xid, err::OK, &listing(&names));
    rig.delete_found("/l/_c_id-lock-0000000005");
    let xid = rig.only_request(op::GET_DATA, "/l/_c_id-lock-0000000004");
    rig.reply(xid, err::OK, &node(b"", 6, 8));
    rig.delete_found("/l/_c_id-lock-0000000003");
    assert_eq!((rig.sent(), rig.pending()), (vec![], vec![]));
}

/// Another client has written to the node between our read and our write: we read it again.
#[test]
fn a_node_with_a_fixed_name_is_deleted_only_in_the_version_that_our_write_gave_it() {
    let mut rig = Rig::up();
    let (nonce, outcome) = rig.remove(Some(5));
    rig.acknowledge_noop();
    rig.answer_read(Some(node(&nonce::sign(&nonce, b"x"), 5, 7)));
    // If the write comes late, it must not make another node look like this one.
    let frame = rig.machine.to_server.clone();
    let written = frame.get(frame.len() - 4 - nonce.len()..frame.len() - 4).unwrap();
    assert_eq!(nonce::released(written), Some(nonce.as_str()));
    assert_eq!(nonce::split(written), (None, b"".as_slice()));
    let xid = rig.only_request(op::SET_DATA, "/l/lock");
    rig.reply(xid, err::BAD_VERSION, &[]);
    rig.answer_read(Some(node_of_version(b"__REVOKE__", 5, 7, 1)));
    let xid = rig.only_request(op::SET_DATA, "/l/lock");
    rig.reply(xid, err::OK, &node_of_version(b"", 5, 7, 2).split_off(4));
    let frame = rig.machine.to_server.clone();
    assert!(frame.ends_with(&2i32.to_be_bytes()), "the delete names the version: {frame:?}");
    let xid = rig.only_request(op::DELETE, "/l/lock");
    rig.reply(xid, err::BAD_VERSION, &[]);
    rig.answer_read(Some(node(&nonce::sign(&nonce::new(), b"x"), 6, 8)));
    assert_eq!((rig.sent(), rig.pending()), (vec![], vec![]));
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
}

/// The lost write may still be done, and give the next holder's node the version 1. A delete of that
/// version could hit it.
#[test]
fn a_delete_names_a_version_that_no_lost_write_can_give_another_node() {
    let mut rig = Rig::up();
    let (nonce, outcome) = rig.remove(Some(5));
    rig.acknowledge_noop();
    rig.answer_read(Some(node(&nonce::sign(&nonce, b"x"), 5, 7)));
    rig.only_request(op::SET_DATA, "/l/lock"); // no answer
    rig.cut();
    rig.acknowledge_noop();
    rig.answer_read(Some(node(&nonce::sign(&nonce, b"x"), 5, 7)));
    for version in [1, 2] {
        let xid = rig.only_request(op::SET_DATA, "/l/lock");
        rig.reply(xid, err::OK, &node_of_version(b"", 5, 7, version).split_off(4));
    }
    let frame = rig.machine.to_server.clone();
    assert!(frame.ends_with(&2i32.to_be_bytes()), "{frame:?}");
    let xid = rig.only_request(op::DELETE, "/l/lock");
    rig.reply(xid, err::OK, &[]);
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
}

/// A session may take locks at ever new paths.
#[test]
fn the_czxid_of_a_node_with_a_fixed_name_is_forgotten_with_the_node() {
    let mut rig = Rig::up();
    let nonce = nonce::new();
    let call = rig.create_fixed(&nonce);
    let xid = rig.only_request(op::CREATE2, "/l/lock");
    rig.reply(xid, err::OK, &super::batches::created("/l/lock", 5));
    assert!(call.1.try_recv().is_ok_and(|answers| answers.all.iter().all(Result::is_ok)));
    assert_eq!(rig.machine.background.acknowledged.get("/l/lock"), Some(&5));

    let (_, outcome) = rig.remove(Some(5)); // the create was a write on this connection
    rig.answer_read(Some(node(&nonce::sign(&nonce, b"x"), 5, 7)));
    rig.write_and_delete(5);
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
    assert!(rig.machine.background.acknowledged.is_empty());
}

/// A quota, say, forbids the write. The node goes all the same.
#[test]
fn a_node_that_cannot_be_written_to_is_deleted_in_the_version_that_it_has() {
    for code in [err::NO_AUTH, -125] {
        let mut rig = Rig::up();
        let (nonce, outcome) = rig.remove(Some(5));
        rig.acknowledge_noop();
        rig.answer_read(Some(node(&nonce::sign(&nonce, b"x"), 5, 7)));
        let xid = rig.only_request(op::SET_DATA, "/l/lock");
        rig.reply(xid, code, &[]);
        let xid = rig.only_request(op::DELETE, "/l/lock");
        rig.reply(xid, err::OK, &[]);
        assert_eq!(outcome.try_recv(), Ok(Ok(())));
    }
}

/// The directory of an exclusive lock may be one that this client cannot list.
#[test]
fn a_late_create_is_looked_for_by_itself_where_its_directory_cannot_be_listed() {
    let mut rig = Rig::up();
    let (nonce, _) = rig.remove(None);
    rig.acknowledge_noop();
    rig.answer_read(None);
    rig.cut();
    rig.acknowledge_noop();
    let xid = rig.only_request(op::GET_CHILDREN, "/l");
    rig.reply(xid, err::NO_AUTH, &[]);
    rig.answer_read(Some(node(&nonce::sign(&nonce, b"x"), 5, 7)));
    rig.write_and_delete(5);
    assert_eq!((rig.sent(), rig.pending()), (vec![], vec![]));
}

/// The create waited in a thread of this very server, which has one for each connection. So no later
/// write of ours is refused, and no further connection comes.
#[test]
fn a_late_create_is_looked_for_once_more_before_it_is_forgotten() {
    let mut rig = Rig::up();
    rig.sweep_without_a_node();
    let (until, mut looks) = (rig.now + removal::late_bound(T) + T * 3, 0);
    let mut name = "_c_id-lock-0000000003";
    while rig.now < until {
        for (xid, op, path) in rig.sent() {
            match op {
                op::GET_CHILDREN => {
                    looks += 1;
                    rig.reply(xid, err::OK, &listing(&[name]));
                }
                op::GET_DATA => rig.reply(xid, err::OK, &node(b"", 5, 7)),
                op::DELETE if path != NOOP => {
                    name = "_c_other-lock-0000000002";
                    rig.reply(xid, err::OK, &[]);
                }
                op::DELETE => rig.reply(xid, err::NO_NODE, &[]),
                _ => rig.reply(xid, err::OK, b"\0\0\0\x01/"),
            }
        }
        rig.pass_time(T / 48);
    }
    assert!(looks > 0, "forgotten ({:?} pending) without another look", rig.pending());
    assert_eq!((name, rig.pending()), ("_c_other-lock-0000000002", vec![]));
}

/// A look that is under way when the time of the create ends may have been done before the create.
#[test]
fn a_late_create_is_not_forgotten_by_a_look_whose_write_was_sent_before_its_time() {
    let mut rig = Rig::up();
    rig.sweep_without_a_node();
    rig.drop_connection();
    rig.pass_time(removal::late_bound(T) + T - MS);
    rig.attach(7);
    let writes = rig.sent();
    rig.pass_time(MS * 2);
    for (xid, ..) in writes {
        rig.reply(xid, err::NO_NODE, &[]);
    }
    let empty = listing(&[]);
    let xid = rig.only_request(op::GET_CHILDREN, "/l");
    rig.reply(xid, err::OK, &empty);
    assert_eq!(rig.pending(), ["id"]);
    rig.acknowledge_noop();
    let xid = rig.only_request(op::GET_CHILDREN, "/l");
    rig.reply(xid, err::OK, &empty);
    assert_eq!((rig.sent(), rig.pending()), (vec![], vec![]));
}
