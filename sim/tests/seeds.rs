//! Runs that are played in each test: plans in files, each of which is named after its situation,
//! and tests of `tests/simulate`.
//!
//! A seed makes another run as soon as any choice is made in another way, so a situation that
//! should be kept is written as a plan. Plans are written by hand, or by `tests/simulate --play S
//! --faults 3,17 --write FILE` for a seed that has found something. The threads' steps depend on
//! each step of the library, so a plan stands for a situation and not for one run; it is played
//! with several chances. The table has the texts of the trace that show that the situation
//! occurred. If a plan no longer shows its situation, it has to be replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn simulate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zk-mutex-sim")).args(arguments).output().unwrap()
}

/// The JSON of one run, which must have no violation.
fn play(arguments: &[&str]) -> Value {
    let output = simulate(arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}", told.lines().last().unwrap_or_default());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Plays the plan with this name. `lines` are texts of the trace, `numbers` are names in the JSON, of
/// checks or of others.
/// All runs together must have each of them at least once. There are three runs; if one of the events
/// has not come about by then, other chances are played, since some situations come about by few.
fn planned(name: &str, lines: &[&str], numbers: &[&str]) {
    let path = plans().join(name).with_extension("plan");
    let mut seen = BTreeMap::new();
    for chance in 1..=24 {
        if chance > 3 && seen.values().all(|count| *count > 0) {
            break;
        }
        let chance = chance.to_string();
        let mut arguments = vec!["--plan", path.to_str().unwrap(), "--chance", &chance];
        lines.iter().for_each(|text| arguments.extend(["--count", text]));
        let sums = &play(&arguments)["sums"];
        for (what, count) in lines.iter().map(|text| (text, &sums["counted"][text])).chain(
            numbers.iter().map(|name| (name, sums["checks"].get(name).unwrap_or(&sums[name]))),
        ) {
            *seen.entry(*what).or_insert(0) += count.as_u64().unwrap();
        }
    }
    assert!(
        seen.values().all(|count| *count > 0),
        "not every expected event has occurred: {seen:?}"
    );
}

fn plans() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans")
}

macro_rules! plans {
    ($($name:ident: $lines:expr, $numbers:expr;)*) => {
        $(#[test] fn $name() { planned(stringify!($name), &$lines, &$numbers) })*

        #[test]
        fn every_plan_is_played() {
            let files = std::fs::read_dir(plans()).unwrap();
            let names: BTreeSet<_> =
                files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            assert_eq!(names, BTreeSet::from([$(format!("{}.plan", stringify!($name))),*]));
        }
    };
}

const LAPSED: &str = "lock lost, its lease ran out";
const DELETED: &str = "lock lost, its node is gone";
const QUEUES_AGAIN: &str = "our waiting node is gone";
const EXPIRED: &str = "lost, the server expired the session";
const RESUMED: &str = ": resumed";
const TOO_LONG: &str = "lock lost, it was held for longer than its max_hold";
const LATE_READ: &str = "made behind the deletion of its write";
const DONE_LATE: &str = "was done late";
const NO_SESSION: &str = "accepted the connection, but gave no session";
const UNTOLD: &str = "its client was not told of its timeout";
const PROOF_LATE: &str = "the lease could not be renewed on it in time";
const NO_LEADER: &str = "looks for a leader";
const MOVED: &str = " is at 10.1.";
const TAKEN_OVER: &str = "belongs to another ensemble";
const SLOW_LINE: &str = " bytes in a second";
const OTHER_KIND: &str = "belongs to another kind of lock";
const LONG_ANSWER: &str = "long answer";
const LOST_ON_A_SLOW_LINE: &str = "lost on a slow line";

plans! {
    a_look_up_that_hangs: ["fault: LookUps", MOVED, RESUMED], ["acquisitions"];
    a_name_that_goes: ["NoSuchName", MOVED, RESUMED], ["acquisitions"];
    addresses_that_another_ensemble_takes_over: [MOVED, TAKEN_OVER, RESUMED], ["acquisitions"];
    an_exclusive_lock_that_one_process_takes_again_and_again: [TOO_LONG, ": made"], [];
    answers_that_are_lost: [RESUMED, LAPSED], [];
    calls_that_end_between_two_requests: ["/passing/"], ["folder left"];
    candidates_whose_connections_are_cut: [RESUMED, LAPSED, ": elected"], ["refused"];
    contenders_of_other_libraries: ["fault: Visit", OTHER_KIND], ["acquisitions"];
    clocks_far_beyond_the_bound: [LAPSED, EXPIRED], ["overlaps", "refused_writes"];
    exclusive_locks_on_followers_that_lag: ["fault: Lag"], ["refused"];
    creates_that_are_done_late: [DONE_LATE, RESUMED], [];
    guards_that_are_dropped_as_they_are_lost: [DELETED, EXPIRED], ["untrue count"];
    handshakes_that_come_late: ["fault: LateHandshakes", DONE_LATE, RESUMED], [];
    holds_that_end_after_a_sleep: ["fault: SleepHost", TOO_LONG], [];
    hosts_that_sleep: ["fault: SleepHost", LAPSED, EXPIRED], ["refused_writes"];
    leaders_that_are_cut_off: [NO_LEADER, RESUMED, LAPSED], [];
    leaders_without_clients_that_are_cut_off: [NO_LEADER, RESUMED, LAPSED], [];
    long_lists_on_slow_lines: [SLOW_LINE], ["acquisitions", LONG_ANSWER, LOST_ON_A_SLOW_LINE];
    logger_and_observer_that_block: ["fault: Block", " s ago)", LAPSED, RESUMED], [];
    members_that_are_lost_while_others_are_waited_for: [EXPIRED, "releasing the other members"], [];
    names_with_a_silent_address: [MOVED, "[fd00::", RESUMED], ["acquisitions"];
    nodes_that_an_operator_deletes: [DELETED, QUEUES_AGAIN], [];
    nodes_that_are_removed_twice: [TOO_LONG, "waiting until our earlier node is deleted"], [];
    numbers_of_permits_on_followers_that_lag: ["fault: Lag"], ["refused"];
    objects_for_each_call: ["/passing/", "/unreadable/", RESUMED], ["acquisitions"];
    one_name_for_servers_that_move: [MOVED, RESUMED], ["acquisitions"];
    outages_longer_than_the_retry_policy: ["there is no connection", RESUMED, LAPSED], [];
    outages_longer_than_the_session: [RESUMED, LAPSED], [];
    places_of_processes_in_a_hurry: [], ["place lost"];
    processes_that_stop_and_write_late: [LAPSED, EXPIRED], ["refused_writes"];
    sequence_numbers_that_are_used_up: ["carry no order any more"], [];
    requests_for_a_common_name_that_are_done_late: [NO_SESSION, RESUMED], [];
    servers_that_move_all_at_once: [MOVED, RESUMED], ["acquisitions"];
    servers_that_move_one_after_the_other: [MOVED, RESUMED], ["acquisitions"];
    servers_that_lose_their_data: ["with its data: false", RESUMED, LAPSED], [];
    sessions_that_no_server_serves: ["is deaf: true", RESUMED, LAPSED], ["acquisitions"];
    sessions_that_are_ended: ["the operator expires session", DELETED, QUEUES_AGAIN, EXPIRED], [];
    slow_servers_and_calls_with_little_time: ["fault: SlowServers"], ["contention unproven"];
    stops_between_two_steps: ["is held for", "is stopped", LAPSED], [];
    timeouts_that_become_shorter: ["fault: Limits", LAPSED, EXPIRED, RESUMED], [];
    timeouts_that_the_client_is_not_told: [UNTOLD, LAPSED, EXPIRED], [];
    two_of_five_hosts_that_are_silent: ["fault: HalfWorks", RESUMED], ["acquisitions"];
    waiters_whose_answers_are_slow: ["fault: Slow", "gave no answer for", PROOF_LATE], [];
    waiters_whose_nodes_an_operator_deletes: ["fault: DeleteWaiting", DELETED, QUEUES_AGAIN], [];
    writes_that_are_deleted_as_they_are_downgraded: [DELETED, LATE_READ], [];
}

/// A seed with few steps.
const SHORT: &str = "24";

#[test]
fn a_seed_is_the_same_run_each_time() {
    let (mut first, mut again) = (play(&["--play", SHORT]), play(&["--play", SHORT]));
    for told in [&mut first, &mut again] {
        assert!(told["sums"]["processor_seconds"].take().is_number());
    }
    assert_eq!(first, again);
    assert!(first["sums"]["acquisitions"].as_u64() > Some(100));
}

#[test]
fn a_part_of_the_faults_is_another_run() {
    let (all, none) = (play(&["--play", SHORT]), play(&["--play", SHORT, "--faults", ""]));
    assert_ne!(all["hash"], none["hash"]);
    assert_eq!(none["sums"]["faults_by_kind"], serde_json::json!({}));
    assert_eq!(none["sums"]["lost"], 0, "without faults no lock is lost");
}

#[test]
fn another_chance_is_another_run_with_the_same_faults() {
    let (own, other) = (play(&["--play", SHORT]), play(&["--play", SHORT, "--chance", "5"]));
    assert_ne!(own["hash"], other["hash"]);
    assert_eq!(own["sums"]["faults_by_kind"], other["sums"]["faults_by_kind"]);
}

#[test]
fn a_scenario_in_a_file_is_the_same_run() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("a_scenario_in_a_file");
    let path = path.to_str().unwrap();
    let part = ["--play", SHORT, "--mode", "drift", "--faults", "0,3,4,9"];
    assert!(simulate(&[&part[..], &["--write", path]].concat()).status.success());
    assert_eq!(play(&part)["hash"], play(&["--plan", path])["hash"]);
}

#[test]
fn a_failing_seed_is_shrunk_and_the_printed_command_fails_too() {
    // The search ends as soon as the seed is shrunk. On a busy machine this takes long.
    let wish = ["--seconds", "1", "--seed", SHORT, "--shrink-seconds", "600"];
    let output = simulate(&[&wish[..], &["--planted", "5,20"]].concat());
    assert_eq!(output.status.code(), Some(1));
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(line["violations_by_check"]["planted"], line["violations"]);
    let told = String::from_utf8(output.stderr).unwrap();
    let mut shrunk =
        told.lines().skip_while(|line| !line.starts_with("\"planted\" with 2 of its "));
    assert!(shrunk.next().is_some(), "{told}");
    assert_eq!(shrunk.take_while(|line| line.starts_with(' ')).count(), 2);
    let command =
        told.lines().find_map(|line| line.strip_prefix("to see it again: tests/simulate "));
    let arguments: Vec<_> = command.unwrap().split(' ').collect();
    assert_eq!(arguments[..4], ["--play", SHORT, "--faults", "5,20"]);
    let again = simulate(&arguments);
    assert_eq!(again.status.code(), Some(1));
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(again["violation"]["kind"], "planted");
}

#[test]
fn unknown_arguments_are_refused() {
    for arguments in [
        &["--seconds"][..],
        &[],
        &["--play", "x"],
        &["--play", "1", "--seconds", "1"],
        &["--mode", "other", "--play", "1"],
        &["--nonsense", "1"],
        &["--plan", "no such file"],
    ] {
        assert_eq!(simulate(arguments).status.code(), Some(2), "{arguments:?}");
    }
}
