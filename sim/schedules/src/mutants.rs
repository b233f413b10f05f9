//! The broken copies. In each of them a little code is replaced, and one scenario finds it.

/// One way to break the library.
pub struct Mutant {
    pub name: &'static str,
    pub engine: &'static str,
    /// The item, a code that stands once in it, and its replacement (`sim/copies.rs`).
    pub edits: &'static [(&'static str, &'static str, &'static str)],
    /// The scenario that fails, and words of its message.
    pub scenario: &'static str,
    pub words: &'static str,
}

/// loom's word for threads that wait for each other or for ever.
const DEADLOCK: &str = "deadlock";

/// The message of a scenario in which the turn is passed to a thread that has left.
const NOT_FREE: &str = "no thread has the turn, and it is not free";

pub const ALL: &[Mutant] = &[
    // ---- the local queue ----
    Mutant {
        name: "a_turn_is_passed_on_without_a_wake_up",
        engine: "loom",
        edits: &[(
            "QueueState::give",
            "match sender.try_send(Message::Turn(with))",
            "std::mem::forget((with, sender));\n            match Ok::<(), zk_session::world::TrySendError<Message<H, P, S>>>(())",
        )],
        scenario: "queue::threads_have_the_turn_one_at_a_time_in_the_order_in_which_they_came",
        words: DEADLOCK,
    },
    Mutant {
        name: "a_lock_is_handed_over_without_a_wake_up",
        engine: "loom",
        edits: &[(
            "QueueState::give",
            "match sender.try_send(Message::Turn(with))",
            "std::mem::forget((with, sender));\n            match Ok::<(), zk_session::world::TrySendError<Message<H, P, S>>>(())",
        )],
        scenario: "local_lock::threads_hold_the_lock_one_at_a_time_and_hand_it_over",
        words: DEADLOCK,
    },
    Mutant {
        name: "a_cancelled_wait_swallows_the_turn",
        engine: "loom",
        edits: &[(
            "LocalQueue::enter",
            "state.queue.len() == before",
            "matches!(end, Ended::Deadline) && state.queue.len() == before",
        )],
        scenario: "queue::a_waiter_that_is_cancelled_passes_on_a_turn_that_has_come",
        words: NOT_FREE,
    },
    Mutant {
        name: "a_deadline_swallows_the_turn",
        engine: "loom",
        edits: &[(
            "LocalQueue::enter",
            "state.queue.len() == before",
            "matches!(end, Ended::Cancelled) && state.queue.len() == before",
        )],
        scenario: "queue::a_waiter_whose_deadline_comes_with_the_turn_passes_it_on",
        words: NOT_FREE,
    },
    Mutant {
        name: "a_deadline_swallows_the_lock_that_is_handed_over",
        engine: "loom",
        edits: &[(
            "LocalQueue::enter",
            "state.queue.len() == before",
            "matches!(end, Ended::Cancelled) && state.queue.len() == before",
        )],
        scenario: "queue::a_hand_over_and_a_deadline_at_the_same_instant",
        words: NOT_FREE,
    },
    Mutant {
        name: "a_deadline_swallows_a_share",
        engine: "loom",
        edits: &[(
            "LocalQueue::enter",
            "state.queue.len() == before",
            "matches!(end, Ended::Cancelled) && state.queue.len() == before",
        )],
        scenario: "queue::a_share_and_a_deadline_at_the_same_instant",
        words: NOT_FREE,
    },
    Mutant {
        name: "a_waiter_that_leaves_stays_in_the_queue",
        engine: "loom",
        edits: &[(
            "LocalQueue::enter",
            "state.queue.retain(|waiter| waiter.number != number);",
            "",
        )],
        scenario: "queue::a_hand_over_and_a_cancel_at_the_same_instant",
        words: NOT_FREE,
    },
    Mutant {
        name: "the_newest_is_first",
        engine: "loom",
        edits: &[("QueueState::give", "pop_front()", "pop_back()")],
        scenario: "queue::threads_have_the_turn_one_at_a_time_in_the_order_in_which_they_came",
        words: "a thread that came later was first",
    },
    Mutant {
        name: "the_lock_is_free_while_somebody_has_the_turn",
        engine: "loom",
        edits: &[(
            "LocalQueue::enter",
            "state.occupant.is_none()",
            "state.occupant.is_none() || state.queue.is_empty()",
        )],
        scenario: "queue::threads_have_the_turn_one_at_a_time_in_the_order_in_which_they_came",
        words: "two threads have the turn",
    },
    Mutant {
        name: "a_turn_ends_twice",
        engine: "loom",
        edits: &[("LocalQueue::end_hold", "state.node == Some(node)", "true")],
        scenario: "queue::a_turn_that_is_forfeited_while_its_owner_leaves_ends_once",
        words: "two threads have the turn",
    },
    Mutant {
        name: "a_lost_lock_is_handed_over",
        engine: "loom",
        edits: &[("LocalQueue::pass", "state.node != Some(node)", "false")],
        scenario: "queue::a_turn_that_is_forfeited_while_it_is_handed_over_ends_once",
        words: "two threads have the turn",
    },
    Mutant {
        name: "who_only_tries_is_not_told_that_the_lock_is_held",
        engine: "loom",
        edits: &[(
            "QueueState::set_phase",
            "phase != TurnPhase::Requesting",
            "phase == TurnPhase::Blocked",
        )],
        scenario: "queue::a_thread_that_only_tries_finds_the_lock_held",
        words: DEADLOCK,
    },
    Mutant {
        name: "a_crowd_loses_a_turn",
        engine: "shuttle",
        edits: &[(
            "LocalQueue::enter",
            "state.queue.len() == before",
            "matches!(end, Ended::Deadline) && state.queue.len() == before",
        )],
        scenario: "queue::crowd_of_all_kinds",
        words: DEADLOCK,
    },
    // ---- notifiers ----
    Mutant {
        name: "the_wake_up_comes_before_its_cause",
        engine: "loom",
        edits: &[
            ("Notifier::notify", "self.events.fetch_or(mask, Ordering::AcqRel);", ""),
            (
                "Notifier::notify",
                "let _ = self.sender.try_send(());",
                "let _ = self.sender.try_send(());\n        self.events.fetch_or(mask, Ordering::AcqRel);",
            ),
        ],
        scenario: "notifier::no_event_is_lost",
        words: DEADLOCK,
    },
    Mutant {
        name: "clearing_one_event_clears_all",
        engine: "loom",
        edits: &[("clear", "fetch_and(!mask, Ordering::AcqRel)", "fetch_and(0, Ordering::AcqRel)")],
        scenario: "notifier::an_event_that_comes_while_another_is_cleared_is_kept",
        words: DEADLOCK,
    },
    Mutant {
        name: "the_node_is_read_before_the_registration",
        engine: "loom",
        edits: &[
            (
                "an_event_behind_the_registration_wakes_the_waiter",
                "let _registration",
                "let was_gone = is_gone.load(Ordering::Acquire);\n        let _registration",
            ),
            (
                "an_event_behind_the_registration_wakes_the_waiter",
                "!is_gone.load(Ordering::Acquire)",
                "!was_gone",
            ),
        ],
        scenario: "notifier::an_event_behind_the_registration_wakes_the_waiter",
        words: DEADLOCK,
    },
    Mutant {
        name: "nobody_looks_again_behind_the_registration",
        engine: "loom",
        edits: &[
            (
                "LazyRegistration::wait",
                "self.made = Some((notifier, registration));",
                "let end = notifier.wait(limit);\n        self.made = Some((notifier, registration));",
            ),
            ("LazyRegistration::wait", "Ended::Got(0)", "end"),
        ],
        scenario: "notifier::a_change_before_the_registration_is_found_by_another_look",
        words: DEADLOCK,
    },
    Mutant {
        name: "a_registration_takes_others_along",
        engine: "loom",
        edits: &[(
            "Registration::drop",
            "retain(|registered| registered.number != self.number)",
            "clear()",
        )],
        scenario: "notifier::a_registration_that_is_dropped_takes_no_other_along",
        words: DEADLOCK,
    },
    // ---- signals ----
    Mutant {
        name: "a_signal_is_ready_before_its_value",
        engine: "loom",
        edits: &[(
            "raise",
            "if self.value.set(value).is_ok() { drop(self.sender.lock().take()); }",
            "drop(self.sender.lock().take());\n        let _ = self.value.set(value);",
        )],
        scenario: "signal::a_signal_that_is_ready_has_its_value",
        words: "the signal is ready without a value",
    },
    Mutant {
        name: "a_signal_joins_without_a_look",
        engine: "loom",
        edits: &[
            ("Once::join", "let mut signals", "let value = self.value();\n        let mut signals"),
            ("Once::join", "match self.value()", "match value"),
        ],
        scenario: "signal::a_signal_that_joins_while_it_happens_is_raised",
        words: "the signal joined and was not raised",
    },
    Mutant {
        name: "signals_are_raised_behind_their_list",
        engine: "loom",
        edits: &[(
            "happen",
            "for signal in self.signals.lock().drain(..)",
            "let all = std::mem::take(&mut *self.signals.lock());\n            for signal in all",
        )],
        scenario: "signal::a_signal_that_has_parted_changes_no_more",
        words: "the signal was raised after it had parted",
    },
    // ---- the lease ----
    Mutant {
        name: "the_mark_is_read_before_the_end_of_the_lease",
        engine: "loom",
        edits: &[
            (
                "Lease::is_held",
                "if now >= self.end.get() || now >= node.bound()",
                "let is_lost = node.loss().is_some();\n        if now >= self.end.get()",
            ),
            ("Lease::is_held", "node.loss().is_none()", "!is_lost"),
            (
                "Lease::is_held",
                "self.end_if_due(now);",
                "self.end_if_due(now);\n            return node.loss().is_none();",
            ),
        ],
        scenario: "lease::a_late_proof_brings_no_hold_back",
        words: "held again",
    },
    Mutant {
        name: "the_end_is_read_in_any_order",
        engine: "loom",
        edits: &[("SharedTime::get", "Ordering::Acquire", "Ordering::Relaxed")],
        scenario: "lease::a_late_proof_brings_no_hold_back",
        words: "held again",
    },
    Mutant {
        name: "the_end_is_written_in_any_order",
        engine: "loom",
        edits: &[("SharedTime::set", "Ordering::Release", "Ordering::Relaxed")],
        scenario: "lease::a_late_proof_brings_no_hold_back",
        words: "held again",
    },
    Mutant {
        name: "a_late_proof_marks_nothing",
        engine: "loom",
        edits: &[("Lease::extend", "self.lapse(&mut state, now)", "Vec::new()")],
        scenario: "lease::a_late_proof_brings_no_hold_back",
        words: "held again",
    },
    Mutant {
        name: "a_late_proof_writes_before_it_marks",
        engine: "loom",
        edits: &[
            (
                "Lease::extend",
                "let lapsed = self.lapse(&mut state, now);",
                "let before = state.heard;\n        state.heard = state.heard.max(Some(heard));\n        self.publish_end(&state);\n        let after = std::mem::replace(&mut state.heard, before);\n        let lapsed = self.lapse(&mut state, now);\n        state.heard = after;",
            ),
            ("Lease::extend", "state.over.is_none()", "false"),
        ],
        scenario: "lease::a_late_proof_brings_no_hold_back",
        words: "held again",
    },
    Mutant {
        name: "a_loss_is_found_and_not_marked",
        engine: "loom",
        edits: &[
            ("Lease::is_held", "now >= self.end.get() || now >= node.bound()", "false"),
            (
                "Lease::is_held",
                "node.loss().is_none()",
                "now < self.end.get() && node.loss().is_none()",
            ),
        ],
        scenario: "lease::a_check_after_one_that_saw_the_loss_sees_it_too",
        words: "held again",
    },
    Mutant {
        name: "a_proof_in_time_that_is_written_late_is_not_looked_at_again",
        engine: "loom",
        edits: &[
            ("Lease::is_held", "|| now >= node.bound()", ""),
            (
                "Lease::is_held",
                "self.end_if_due(now);",
                "self.end_if_due(now);\n            return false;",
            ),
        ],
        scenario: "lease::a_proof_in_time_that_is_written_late_decides_once",
        words: "a thread saw a loss although the hold stands",
    },
    Mutant {
        name: "a_shorter_lease_is_not_published",
        engine: "loom",
        edits: &[("shorten", "self.publish_end(&state);", "")],
        scenario: "lease::a_shorter_lease_counts_as_soon_as_it_is_there",
        words: "the longer lease still counts",
    },
    Mutant {
        name: "a_lost_hold_stays_with_the_lease",
        engine: "loom",
        edits: &[(
            "Lease::take_all",
            "drain().map(|(_, node)| node).filter(|node| node.mark(reason))",
            "values().filter(|node| node.mark(reason) || true).cloned()",
        )],
        scenario: "lease::a_loss_that_several_threads_find_is_notified_once",
        words: "right: None",
    },
    Mutant {
        name: "an_event_is_believed_before_the_clock",
        engine: "loom",
        edits: &[("mark_gone", "self.lapse(&mut state, now)", "Vec::new()")],
        scenario: "lease::a_loss_that_several_threads_find_is_notified_once",
        words: "LeaseExpired",
    },
    Mutant {
        name: "a_hold_is_marked_outside_the_lock",
        engine: "loom",
        edits: &[
            ("mark_ended", "state.over.get_or_insert(reason);", ""),
            (
                "mark_ended",
                "self.take_all(&mut state, reason)",
                "let lost = self.take_all(&mut state, reason);\n        drop(state);\n        self.state.lock().over.get_or_insert(reason);\n        lost",
            ),
        ],
        scenario: "lease::a_hold_that_is_granted_while_the_session_ends_is_lost",
        words: "a hold was granted although the session has ended",
    },
    Mutant {
        name: "a_released_hold_stays",
        engine: "loom",
        edits: &[(
            "Lease::release",
            "self.state.lock().take_out(node)",
            "let _ = (self.state.lock(), node)",
        )],
        scenario: "lease::a_released_hold_is_never_lost",
        words: "the hold was lost after its release",
    },
    Mutant {
        name: "the_deletion_is_looked_for_only_before_the_notification",
        engine: "loom",
        edits: &[(
            "Generation::watch_event",
            "{ self.held_node_gone(path); } else",
            "{\n        } else",
        )],
        scenario: "lease::a_node_that_is_deleted_while_it_becomes_a_hold_is_lost",
        words: "the hold stands although its node is deleted",
    },
    Mutant {
        name: "the_waiters_are_notified_before_the_hold_is_lost",
        engine: "loom",
        edits: &[(
            "Generation::watch_event",
            "if is_gone { self.held_node_gone(path); } self",
            "self",
        )],
        scenario: "lease::a_waiter_that_is_notified_of_the_deletion_finds_the_hold_lost",
        words: "two guards are valid",
    },
    Mutant {
        name: "a_node_becomes_a_hold_before_the_registration",
        engine: "loom",
        edits: &[(
            "a_node_that_is_deleted_while_it_becomes_a_hold_is_lost",
            "notifier.events() & GONE != 0",
            "false",
        )],
        scenario: "lease::a_node_that_is_deleted_while_it_becomes_a_hold_is_lost",
        words: "the hold stands although its node is deleted",
    },
    // ---- re-entry ----
    Mutant {
        name: "a_hold_goes_under_the_lock",
        engine: "loom",
        edits: &[
            (
                "Reentry::insert",
                "let before = self.0.lock().insert(thread, hold.clone());",
                "let mut map = self.0.lock();\n        drop(map.insert(thread, hold.clone()));",
            ),
            ("Reentry::insert", "drop(before)", "drop(map)"),
        ],
        scenario: "reentry::a_hold_may_read_its_lock_when_it_is_dropped",
        words: DEADLOCK,
    },
    // ---- a lock in this process ----
    Mutant {
        name: "a_loss_ends_the_turn_of_any_hold",
        engine: "loom",
        edits: &[("LocalQueue::end_hold", "state.node == Some(node)", "state.node.is_some()")],
        scenario: "local_lock::a_lost_hold_is_not_valid_beside_the_next",
        words: "the release of a lost hold ended another turn",
    },
    Mutant {
        name: "a_release_leaves_the_turn_to_the_loss",
        engine: "loom",
        edits: &[
            (
                "LocalLock::end",
                "let release",
                "let is_lost = node.loss().is_some();\n        let release",
            ),
            (
                "LocalLock::end",
                "self.turns.end_hold(node.key());",
                "if !is_lost {\n            self.turns.end_hold(node.key());\n        }",
            ),
        ],
        scenario: "local_lock::a_thread_that_drops_a_lost_guard_has_no_turn_any_more",
        words: "the turn outlives the guard",
    },
    Mutant {
        name: "a_hand_over_is_not_noted",
        engine: "loom",
        edits: &[(
            "LocalLock::hold",
            "if let Err(turn) = turn.becomes_hold(&node, self.held)",
            "if node.is_held() {\n                    std::mem::forget(turn);\n                } else",
        )],
        scenario: "local_lock::a_hold_whose_node_is_deleted_while_it_is_handed_over_keeps_no_turn",
        words: "a lost hold blocks the next thread",
    },
    Mutant {
        name: "a_loss_is_looked_for_before_the_turn_is_taken",
        engine: "loom",
        edits: &[
            (
                "Turn::becomes_hold",
                "self.queue.note_node",
                "let is_held = node.is_held();\n        self.queue.note_node",
            ),
            ("Turn::becomes_hold", "!node.is_held()", "!is_held"),
        ],
        scenario: "local_lock::a_hold_whose_node_is_deleted_while_it_is_handed_over_keeps_no_turn",
        words: "a lost hold blocks the next thread",
    },
    Mutant {
        name: "a_lost_hold_is_taken_over",
        engine: "loom",
        edits: &[("Turn::becomes_hold", "!node.is_held()", "false")],
        scenario: "local_lock::a_hold_that_is_lost_while_it_is_handed_over_keeps_no_turn",
        words: "a lost hold blocks the next thread",
    },
    Mutant {
        name: "a_loss_ends_the_turn_of_the_first_holder",
        engine: "loom",
        edits: &[(
            "LocalQueue::end_hold",
            "state.node == Some(node)",
            "state.node == Some(node) && state.is_turn_of(1)",
        )],
        scenario: "local_lock::a_hold_that_is_lost_while_it_is_handed_over_keeps_no_turn",
        words: "a lost hold blocks the next thread",
    },
    Mutant {
        name: "a_turn_that_leads_nowhere_is_kept",
        engine: "loom",
        edits: &[(
            "LocalLock::hold",
            "drop(turn);\n                    continue",
            "std::mem::forget(turn);\n                    continue",
        )],
        scenario: "local_lock::a_hold_that_is_lost_while_it_is_handed_over_keeps_no_turn",
        words: DEADLOCK,
    },
    Mutant {
        name: "a_lock_is_kept_although_somebody_asks",
        engine: "loom",
        edits: &[(
            "put",
            "matches!(&state.watch, Others::Contended(of) if of == held_node.path())",
            "false",
        )],
        scenario: "local_lock::a_kept_lock_is_released_when_another_contender_comes",
        words: "the nodes that were deleted",
    },
    Mutant {
        name: "a_kept_lock_is_let_go_and_taken",
        engine: "loom",
        edits: &[(
            "Keeper::take",
            "take().map(|(held_node, _)| held_node)",
            "as_ref().map(|(held_node, _)| held_node.clone())",
        )],
        scenario: "local_lock::a_kept_lock_is_released_when_another_contender_comes",
        words: "the nodes that were deleted",
    },
    Mutant {
        name: "a_crowd_keeps_a_lost_turn",
        engine: "shuttle",
        edits: &[("LocalLock::hold", "turns.end_hold(node)", "let _ = (&turns, node)")],
        scenario: "local_lock::crowd_of_holders_whose_lease_ends",
        words: DEADLOCK,
    },
    Mutant {
        name: "a_hand_over_keeps_the_time_of_the_thread_before",
        engine: "loom",
        edits: &[("LocalLock::release", "node.bind(&HoldBounds::default());", "")],
        scenario: "local_lock::a_hold_whose_time_ends_while_it_is_handed_over_is_lost_or_begins_anew",
        words: "lost by the time of another thread",
    },
];
