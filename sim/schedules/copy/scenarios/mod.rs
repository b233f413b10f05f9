//! The scenarios: small worlds of two to four threads, for which loom tries every schedule, and
//! crowds, for which shuttle tries many schedules.

pub mod notifier;
pub mod local_lock;
pub mod lease;
pub mod queue;
pub mod reentry;
pub mod signal;

type Scenario = (&'static str, fn());

macro_rules! scenarios {
    ($($module:ident: $($name:ident)+;)+) => {
        pub const ALL: &[Scenario] = &[$($((concat!(stringify!($module), "::", stringify!($name)), $module::$name),)+)+];
    };
}

scenarios! {
    queue:
        threads_have_the_turn_one_at_a_time_in_the_order_in_which_they_came
        a_waiter_that_is_cancelled_passes_on_a_turn_that_has_come
        a_waiter_whose_deadline_comes_with_the_turn_passes_it_on
        a_hand_over_and_a_deadline_at_the_same_instant
        a_hand_over_and_a_cancel_at_the_same_instant
        a_share_and_a_deadline_at_the_same_instant
        a_thread_that_only_tries_finds_the_lock_held
        a_thread_that_only_tries_takes_a_turn_that_becomes_free
        a_turn_that_is_forfeited_while_its_owner_leaves_ends_once
        a_turn_that_is_forfeited_while_it_is_handed_over_ends_once
        crowd_of_all_kinds;
    notifier:
        no_event_is_lost
        an_event_behind_the_registration_wakes_the_waiter
        a_change_before_the_registration_is_found_by_another_look
        an_event_and_a_deadline_at_the_same_instant
        an_event_that_comes_while_another_is_cleared_is_kept
        a_registration_that_is_dropped_takes_no_other_along;
    signal:
        a_signal_that_is_ready_has_its_value
        of_two_values_the_first_counts_for_everybody
        a_signal_that_joins_while_it_happens_is_raised
        a_signal_that_has_parted_changes_no_more
        a_cancelled_token_ends_the_wait;
    lease:
        a_check_after_one_that_saw_the_loss_sees_it_too
        a_late_proof_brings_no_hold_back
        a_proof_in_time_that_is_written_late_decides_once
        a_shorter_lease_counts_as_soon_as_it_is_there
        a_loss_that_several_threads_find_is_notified_once
        a_hold_that_is_given_up_while_its_node_is_deleted_has_one_reason
        a_released_hold_is_never_lost
        a_hold_that_is_granted_while_the_session_ends_is_lost
        a_renewal_while_the_session_ends_grants_nothing
        a_node_that_is_deleted_while_it_becomes_a_hold_is_lost
        a_waiter_that_is_notified_of_the_deletion_finds_the_hold_lost;
    reentry:
        guards_of_two_threads_and_a_check_by_a_third
        a_hold_may_read_its_lock_when_it_is_dropped;
    local_lock:
        threads_hold_the_lock_one_at_a_time_and_hand_it_over
        a_hold_that_is_lost_while_it_is_handed_over_keeps_no_turn
        a_hold_whose_node_is_deleted_while_it_is_handed_over_keeps_no_turn
        a_hold_whose_node_is_deleted_while_it_is_kept_keeps_no_turn
        a_hold_whose_time_ends_while_it_is_handed_over_is_lost_or_begins_anew
        a_hold_that_is_lost_while_it_is_released_keeps_no_turn
        a_thread_that_drops_a_lost_guard_has_no_turn_any_more
        a_lost_hold_is_not_valid_beside_the_next
        a_kept_lock_is_released_when_another_contender_comes
        crowd_of_holders_whose_lease_ends;
}
