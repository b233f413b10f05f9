//! The checker finds each kind of violation in a made-up history, and none in a history without
//! violations.
//!
//! In these histories a word `@1.5` is a time in seconds. Unless the program's history says
//! otherwise, the faults end at second 0, before everything else.
use super::checker::{BOUNDED, Judge, KINDS, MAX_HOLD, Verdict};
use crate::support::scenarios;
use std::collections::BTreeSet;

fn judged(histories: &[(&str, &[&str])]) -> Verdict {
    let time = |word: &str| match word.strip_prefix('@') {
        None => word.to_owned(),
        Some(seconds) => format!("{:.0}", seconds.parse::<f64>().expect("seconds") * 1e6),
    };
    let mut judge = Judge::default();
    let quiet: (&str, &[&str]) = ("storm", &["@0 storm quiet", "@99 storm listed"]);
    let program = histories.iter().all(|(name, _)| *name != "storm").then_some(quiet);
    for (name, lines) in program.iter().chain(histories) {
        let mut text = String::new();
        for line in *lines {
            let words: Vec<String> = line.split(' ').map(time).collect();
            text += &format!("{}\n", words.join(" "));
        }
        judge.take(name, &text);
    }
    judge.verdict()
}

/// The kinds of violations that the checker finds in these histories.
fn found(histories: &[(&str, &[&str])]) -> Vec<&'static str> {
    let violations = judged(histories).violations;
    assert!(violations.iter().all(|(kind, _)| KINDS.contains(kind)), "{violations:?}");
    let kinds: BTreeSet<&str> = violations.into_iter().map(|(kind, _)| kind).collect();
    kinds.into_iter().collect()
}

const NONE: [&str; 0] = [];

fn two_that_take_turns_are_well() {
    let a = [
        "@1 t ask 0 /mutex write -",
        "@1.1 t got 0 1 /mutex write 17 0 @4 /mutex/_c_a-lock-0000000001",
        "@1.2 t held 1 @4.1",
        "@1.3 t ask 2 /mutex - @0.5",
        "@1.3 t free 1",
        "@1.4 t freed 1 true",
        "@1.4 t done 2",
        "@9 main end",
    ];
    let b = [
        "@1 t ask 0 /mutex write @2",
        "@1.35 t got 0 1 /mutex write 18 0 @4 /mutex/_c_b-lock-0000000002",
        // Another thread of the process gets the node.
        "@1.36 u ask 2 /mutex write -",
        "@1.4 t free 1",
        "@1.4 t freed 1 true",
        "@1.41 u got 2 3 /mutex write 18 1 @4 /mutex/_c_b-lock-0000000002",
        "@1.5 u free 3",
        "@1.5 u freed 3 true",
        "@9 main end",
    ];
    assert_eq!(found(&[("a", &a), ("b", &b)]), NONE);
}

fn two_writers_at_once_are_found() {
    let a = [
        "@1 t ask 0 /mutex write -",
        "@1 t got 0 1 /mutex write 17 0 @4 n0000000001",
        "@2 t free 1",
        "@9 main end",
    ];
    let b = [
        "@1 t ask 0 /mutex write -",
        "@1.5 t got 0 1 /mutex write 18 0 @4 n0000000002",
        "@3 t free 1",
        "@9 main end",
    ];
    assert_eq!(found(&[("a", &a), ("b", &b)]), ["overlap"]);
}

fn the_lease_of_a_killed_or_stopped_process_keeps_others_out() {
    let program = [
        "@0 storm quiet",
        "@1.6 storm fault worker_kill a",
        "@1.7 storm killed a",
        "@99 storm listed",
    ];
    let a = [
        "@1 t ask 0 /mutex write -",
        "@1 t got 0 1 /mutex write 17 0 @3 n0000000001",
        "@1.5 t held 1 @4",
    ];
    let b = |got: &str| {
        let got = format!("{got} t got 0 1 /mutex write 18 0 @8 n0000000002");
        found(&[
            ("storm", &program),
            ("a", &a),
            ("b", &["@1 t ask 0 /mutex write -", &got, "@7 t free 1", "@9 main end"]),
        ])
    };
    assert_eq!(b("@3.9"), ["overlap"]);
    assert_eq!(b("@4"), NONE);
    // A stopped process finds its guard void when it wakes.
    let stopped = [
        &a[..],
        &[
            "@6 t void 1",
            "@6 t lost 1 @0 @0 @0 LeaseExpired",
            "@6.1 t free 1",
            "@6.2 t freed 1 false",
            "@9 main end",
        ],
    ]
    .concat();
    let b = [
        "@1 t ask 0 /mutex write -",
        "@4.1 t got 0 1 /mutex write 18 0 @9 n0000000002",
        "@8 t free 1",
        "@9 main end",
    ];
    assert_eq!(found(&[("a", &stopped), ("b", &b)]), NONE);
}

fn a_hold_whose_lease_was_over_when_the_call_returned_is_none() {
    // The first process was stopped between the answer and its stamp.
    let a = [
        "@1 t ask 0 /mutex write -",
        "@5 t got 0 1 /mutex write 17 0 @5 n0000000001",
        "@6 t free 1",
        "@9 main end",
    ];
    let b = [
        "@1 t ask 0 /mutex write -",
        "@4 t got 0 1 /mutex write 18 0 @8 n0000000002",
        "@7 t free 1",
        "@9 main end",
    ];
    assert_eq!(found(&[("a", &a), ("b", &b)]), NONE);
}

fn readers_stand_beside_readers_and_not_beside_writers() {
    let a = |mode: &str| {
        let ask = format!("@1 t ask 0 /rwlock {mode} -");
        let got = format!("@1 t got 0 1 /rwlock {mode} 17 0 @4 n0000000001");
        let b = [
            "@1 t ask 0 /rwlock read -",
            "@1.5 t got 0 1 /rwlock read 18 0 @4 n0000000002",
            "@3 t free 1",
            "@9 main end",
        ];
        found(&[("a", &[&*ask, &*got, "@2 t free 1", "@9 main end"]), ("b", &b)])
    };
    assert_eq!(a("read"), NONE);
    assert_eq!(a("write"), ["overlap"]);
}

fn a_writer_that_reads_on_is_well_and_keeps_other_writers_out() {
    let a = [
        "@1 t ask 0 /rwlock write -",
        "@1.1 t got 0 1 /rwlock write 17 0 @4 n0000000001",
        "@1.2 t ask 2 /rwlock read -",
        "@1.3 t got 2 3 /rwlock read 17 0 @4 r0000000001",
        "@1.4 t free 1",
        "@2 t free 3",
        "@9 main end",
    ];
    let b = |got: &str| {
        let got = format!("{got} t got 0 1 /rwlock write 18 0 @4 n0000000002");
        found(&[
            ("a", &a),
            ("b", &["@1 t ask 0 /rwlock write -", &got, "@3 t free 1", "@9 main end"]),
        ])
    };
    assert_eq!(b("@2"), NONE);
    assert_eq!(b("@1.9"), ["overlap"]);
}

fn more_permits_than_there_are_are_found() {
    let with = |count: u32| {
        let mut lines = vec!["@1 t ask 0 /semaphore permit -".to_owned()];
        for hold in 1..=count {
            // Permits have no order.
            let token = 20 - hold;
            lines.push(format!(
                "@1.{hold} t got 0 {hold} /semaphore permit {token} 0 @4 n00000000{token}"
            ));
        }
        lines.extend((1..=count).map(|hold| format!("@2 t free {hold}")));
        lines.push("@9 main end".to_owned());
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        found(&[("a", &lines)])
    };
    assert_eq!(with(3), NONE);
    assert_eq!(with(4), ["overlap"]);
}

fn tokens_and_numbers_that_fall_are_found() {
    let with = |lock: &str, modes: [&str; 2], token: u32, number: u32| {
        let turn = |mode: &str, at: u32, token: u32, number: u32| {
            [
                format!("@{at} t ask 0 {lock} {mode} -"),
                format!("@{at} t got 0 1 {lock} {mode} {token} 0 @9 n{number:010}"),
                format!("@{at}.5 t free 1"),
                "@9 main end".to_owned(),
            ]
        };
        let (a, b) = (turn(modes[0], 1, 17, 5), turn(modes[1], 2, token, number));
        found(&[("a", &a.each_ref().map(|line| &**line)), ("b", &b.each_ref().map(|line| &**line))])
    };
    assert_eq!(with("/mutex", ["write", "write"], 18, 6), NONE);
    assert_eq!(with("/mutex", ["write", "write"], 16, 6), ["token_order"]);
    assert_eq!(with("/mutex", ["write", "write"], 17, 6), ["token_order"]);
    assert_eq!(with("/mutex", ["write", "write"], 18, 4), ["queue_order"]);
    assert_eq!(with("/rwlock", ["read", "write"], 16, 4), ["queue_order", "token_order"]);
    assert_eq!(with("/rwlock", ["write", "read"], 16, 4), ["queue_order", "token_order"]);
    assert_eq!(with("/rwlock", ["read", "read"], 16, 4), NONE);
    assert_eq!(with("/semaphore", ["permit", "permit"], 16, 4), NONE);
}

/// The violations of a hold until second 4 with these further notes.
fn of_a_hold(lines: &[&str]) -> Vec<&'static str> {
    let begin = ["@1 t ask 0 /mutex write -", "@1.1 t got 0 1 /mutex write 17 0 @4 n0000000001"];
    found(&[("a", &[&begin, lines, &["@20 main end"]].concat())])
}

fn a_hold_lost_before_its_lease_was_over_is_found() {
    assert_eq!(of_a_hold(&["@4.1 t void 1", "@4.1 t lost 1 @0 @0 @0 LeaseExpired"]), NONE);
    assert_eq!(
        of_a_hold(&["@3.9 t void 1", "@3.9 t lost 1 @0 @0 @0 SessionExpired"]),
        ["lease_cut_short"]
    );
    assert_eq!(
        of_a_hold(&["@2 t held 1 @6", "@5 t void 1", "@5 t lost 1 @0 @0 @0 NodeDeleted"]),
        ["lease_cut_short"]
    );
}

fn a_signal_that_is_late_or_never_comes_is_found() {
    let lost = |at: &str, spent: &str| {
        of_a_hold(&["@4.1 t void 1", &format!("{at} t lost 1 {spent} LeaseExpired")])
    };
    assert_eq!(lost("@4.5", "@0 @0 @0"), NONE);
    assert_eq!(lost("@4.7", "@0 @0 @0"), ["lost_late"]);
    assert_eq!(of_a_hold(&["@4.1 t void 1", "@9 t free 1"]), ["lost_late"]);
    // The control beside the thread was late too, or the thread itself had no processor.
    assert_eq!(lost("@5.3", "@0 @0 @0.8"), NONE);
    assert_eq!(lost("@5.3", "@0 @0.8 @0"), NONE);
    assert_eq!(lost("@5.3", "@0 @0 @0.6"), ["lost_late"]);
    // Both tell of the same time.
    assert_eq!(lost("@5.3", "@0 @0.6 @0.6"), ["lost_late"]);
    // While a thread runs the machine keeps nobody from telling it.
    assert_eq!(lost("@5.3", "@1.1 @0 @0.8"), ["lost_late"]);
    // The process was stopped in between.
    let beats =
        ["@4 beat beat", "@4.1 t void 1", "@5.2 beat beat", "@5.3 t lost 1 @0 @0 @0 LeaseExpired"];
    assert_eq!(of_a_hold(&beats), NONE);
}

/// The violations of a hold of the lock whose holds have an end of their own. It was asked for at
/// second 1, and got then with the end that the library states.
fn of_a_bounded_hold(lines: &[&str]) -> Vec<&'static str> {
    let begin = format!("{BOUNDED} write");
    let begin = [
        &*format!("@1 t ask 0 {begin} -"),
        &*format!("@1.1 t got 0 1 {begin} 17 0 @1.4 n0000000001"),
    ];
    found(&[("a", &[&begin, lines, &["@20 main end"]].concat())])
}

fn a_hold_that_does_not_end_with_its_own_time_is_found() {
    assert_eq!(MAX_HOLD, 300_000, "the times below are made for it");
    let ends = |void: &str, lost: &str| {
        let lost = format!("{lost} t lost 1 @0 @0 @0 HeldTooLong");
        of_a_bounded_hold(&[&format!("{void} t void 1"), &lost])
    };
    assert_eq!(ends("@1.4", "@1.45"), NONE);
    assert_eq!(ends("@1.4", "@2"), ["lost_late"]);
    // It began when the call did, or later.
    assert_eq!(ends("@1.35", "@1.4"), ["lease_cut_short"]);
    assert_eq!(ends("@1.25", "@1.29"), ["lease_cut_short", "max_hold"]);
    // It began before the call returned.
    assert_eq!(of_a_bounded_hold(&["@1.39 t held 1 @1.4", "@1.5 t free 1"]), NONE);
    assert_eq!(of_a_bounded_hold(&["@1.41 t held 1 @1.42", "@1.5 t free 1"]), ["max_hold"]);
    // Another loss may come at any time after the end of the lease that was stated.
    let begin = [
        &*format!("@1 t ask 0 {BOUNDED} write -"),
        &*format!("@1.1 t got 0 1 {BOUNDED} write 17 0 @1.15 n0000000001"),
    ];
    let lost =
        ["@1.2 t void 1", "@1.2 t lost 1 @0 @0 @0 LeaseExpired", "@1.3 t free 1", "@20 main end"];
    assert_eq!(found(&[("a", &[&begin[..], &lost[..]].concat())]), NONE);
}

fn a_signal_of_a_hold_that_stands_is_found() {
    assert_eq!(
        of_a_hold(&["@4.1 t void 1", "@4.1 t lost 1 @0 @0 @0 LeaseExpired", "@4.2 t revived 1"]),
        ["lost_while_held"]
    );
}

fn a_signal_after_a_release_is_found() {
    assert_eq!(
        of_a_hold(&["@2 t free 1", "@2.1 t freed 1 true", "@3 t late 1"]),
        ["lost_after_release"]
    );
    // The lease may have ended before the guard was released.
    assert_eq!(of_a_hold(&["@3.9 t free 1", "@4.1 t freed 1 true", "@5 t late 1"]), NONE);
    assert_eq!(of_a_hold(&["@2 t free 1", "@2.1 t freed 1 false", "@5 t late 1"]), NONE);
}

/// The violations of a call that begins at second 10, may take a second and ends with these notes,
/// beside a call that got its lock.
fn of_a_call(lock: &str, lines: &[&str]) -> Vec<&'static str> {
    of_a_storm_call(lock, "@1", lines, &[])
}

/// The same of a call that may take that time, with these further notes of the program.
fn of_a_storm_call(lock: &str, within: &str, lines: &[&str], notes: &[&str]) -> Vec<&'static str> {
    let begin = [
        "@1 t ask 0 /mutex write -",
        "@1 t got 0 1 /mutex write 17 0 @4 n0000000001",
        "@2 t free 1",
    ];
    let ask = format!("@10 t ask 2 {lock} write {within}");
    let all = [&begin[..], &[&*ask], lines, &["@20 main end"]].concat();
    let other = [
        "@1 t ask 0 /multi write -",
        "@1 t got 0 1 /multi write 17 0 @4 n0000000001",
        "@2 t free 1",
        "@9 main end",
    ];
    let program = [&["@0 storm quiet", "@5 storm calm @15"], notes, &["@99 storm listed"]].concat();
    found(&[("storm", &program), ("a", &all), ("b", &other)])
}

fn a_call_that_returns_long_after_its_deadline_is_found() {
    assert_eq!(of_a_call("/multi", &["@11.4 t taken 2"]), NONE);
    assert_eq!(of_a_call("/multi", &["@11.6 t taken 2"]), ["deadline"]);
    // It came two seconds late. Its thread was runnable without a processor, or the control beside
    // it was: for the rest of the time it ran or was asleep.
    let busy =
        |spent: &str| of_a_call("/multi", &["@13 t taken 2", &format!("@13 t waited 2 {spent}")]);
    assert_eq!(busy("@0.1 @1.6 @0"), NONE);
    assert_eq!(busy("@0.1 @0 @1.6"), NONE);
    assert_eq!(busy("@0.1 @1.4 @0"), ["deadline"]);
    assert_eq!(busy("@0.1 @0 @1.4"), ["deadline"]);
    // Both tell of the same time, so one is not added to the other.
    assert_eq!(busy("@0.1 @0.8 @0.8"), ["deadline"]);
    assert_eq!(busy("@0.1 @1.4 @1.4"), ["deadline"]);
    // A thread that runs does not wait for a processor, nor for another thread.
    assert_eq!(busy("@1.4 @0 @1.6"), NONE);
    assert_eq!(busy("@1.6 @0 @1.6"), ["deadline"]);
    assert_eq!(busy("@2.9 @0.1 @2.9"), ["deadline"]);
    // The process was stopped meanwhile.
    assert_eq!(of_a_call("/multi", &["@10.5 beat beat", "@14 beat beat", "@14.5 t taken 2"]), NONE);
    assert_eq!(
        of_a_call("/multi", &["@10.5 beat beat", "@11.5 beat beat", "@14.5 t taken 2"]),
        ["deadline"]
    );
}

/// The call comes 1.2 s late. The process notes at each beat who waited for a processor since the
/// beat before.
fn waits_at_one_time_are_counted_once_and_those_of_other_times_are_added() {
    let with = |beats: &[&str]| {
        let first = "@11.2 beat beat";
        of_a_call("/multi", &[&[first], beats, &["@12.2 t taken 2"]].concat())
    };
    let quiet = ["@11.4 beat beat", "@11.6 beat beat", "@11.8 beat beat", "@12 beat beat"];
    assert_eq!(with(&quiet), ["deadline"]);
    // Threads of the library, at four times.
    let waits = [
        "@11.4 beat beat zkm-loop-1 @0.19",
        "@11.6 beat beat zkm-session @0.19",
        "@11.8 beat beat t @0.19",
        "@12 beat beat control @0.19",
    ];
    assert_eq!(with(&waits), NONE);
    // All of them at one time.
    let at_once = "@11.6 beat beat control @0.19 t @0.19 zkm-loop-1 @0.19 zkm-session @0.19";
    assert_eq!(with(&[quiet[0], at_once, quiet[2], quiet[3]]), ["deadline"]);
    // Threads for which the call does not wait.
    for other in ["u", "zkm-log", "zkm-observer", "zkm-candidate", "zkm-client-1"] {
        let beat = format!("@12 beat beat {other} @0.19");
        assert_eq!(with(&[waits[0], waits[1], waits[2], &beat]), ["deadline"], "{other}");
    }
    // A wait that lasted for several beats is told at its end.
    assert_eq!(with(&[quiet[0], quiet[1], quiet[2], "@12 beat beat zkm-loop-1 @0.8"]), NONE);
    // It was over before the call began.
    let before = ["@10 beat beat zkm-loop-1 @0.8", "@10.2 beat beat", "@10.4 beat beat"];
    let between = ["@10.6 beat beat", "@10.8 beat beat", "@11 beat beat"];
    assert_eq!(
        of_a_call("/multi", &[&before[..], &between, &["@11.6 t taken 2"]].concat()),
        ["deadline"]
    );
    // A part of it was over before the call began.
    let part = |at: &str| {
        let beat = format!("{at} beat beat zkm-loop-1 @0.8");
        of_a_call("/multi", &[&beat, "@12.2 t taken 2"])
    };
    assert_eq!(part("@10.75"), NONE);
    assert_eq!(part("@10.65"), ["deadline"]);
    // It began before the call ended, and was told after that.
    let long = |wait: &str| {
        let end = ["@12.2 beat beat", "@12.2 t taken 2", "@12.4 beat beat", wait];
        of_a_call("/multi", &[&["@11.2 beat beat"], &quiet[..], &end].concat())
    };
    assert_eq!(long("@12.6 beat beat zkm-loop-1 @1.15"), NONE);
    assert_eq!(long("@12.6 beat beat zkm-loop-1 @0.9"), ["deadline"]);
    // The process was stopped, and then its thread got no processor.
    let stopped = "@11.9 beat beat control @0.5";
    let then = |wait: &str| {
        let note = format!("@12.2 t waited 2 @0 {wait} @0.5");
        with(&[quiet[0], stopped, &format!("@12.1 beat beat t {wait}"), &note])
    };
    assert_eq!(then("@0.2"), NONE);
    assert_eq!(then("@0.01"), ["deadline"]);
}

/// The call waits for its lock for two seconds, and returns 0.7 s later than that.
fn a_wait_makes_a_call_late_only_if_the_call_does_not_sleep_meanwhile() {
    let with = |within: &str, at: &str, notes: &[&str]| {
        let beat = format!("{at} beat beat zkm-loop-1 @0.4");
        let lines = [&[&*beat, "@12.7 t taken 2"], notes].concat();
        of_a_storm_call("/multi", within, &lines, &[])
    };
    assert_eq!(with("@2", "@11", &[]), NONE);
    assert_eq!(with("@2 @2", "@11", &[]), ["deadline"]);
    assert_eq!(with("@2 @2", "@12.5", &[]), NONE);
    // What the thread noted of the whole call does not say when that was.
    let waited = ["@12.7 t waited 2 @0 @0.4 @0.4"];
    assert_eq!(with("@2", "@11.5", &waited), NONE);
    assert_eq!(with("@2 @2", "@11.5", &waited), ["deadline"]);
}

fn a_call_that_never_returns_is_found() {
    assert_eq!(of_a_call("/multi", &[]), ["never_ended"]);
}

fn an_error_that_no_fault_explains_is_found() {
    let lines = ["@10.5 t failed 2 unavailable no answer"];
    assert_eq!(of_a_call("/mutex", &lines), ["error_in_calm"]);
    assert_eq!(of_a_call("/multi", &lines), ["error_in_calm"]);
    // No time was left for the second member. Another thread held the mutex all the time.
    let lines = ["@11 t failed 2 unavailable no answer"];
    assert_eq!(of_a_call("/multi", &lines), NONE);
    assert_eq!(of_a_call("/mutex", &lines), ["error_in_calm"]);
    // Such a deadline is too short for any answer.
    let short = ["@12 t ask 3 /mutex write @0.4", "@12.4 t failed 3 unavailable no answer"];
    assert_eq!(of_a_call("/multi", &["@11 t taken 2", short[0], short[1]]), NONE);
    // So is that of a candidate, whose call may take longer, since it joins and leaves.
    let failed = "@12.04 t failed 3 unavailable no answer";
    let elects = |ask| of_a_call("/multi", &["@11 t taken 2", ask, failed]);
    assert_eq!(elects("@12 t ask 3 /election write @0.534 @0.034"), NONE);
    assert_eq!(elects("@12 t ask 3 /election write @1.534 @1.034"), ["error_in_calm"]);
    assert_eq!(
        of_a_call("/multi", &["@15.1 t failed 2 unavailable no answer", "@18 t x"]),
        ["broken_history"]
    );
    // A client without the library waited for a server, too.
    let line = "@10.5 t failed 2 unavailable no answer";
    let bare = |notes: &[&str]| of_a_storm_call("/multi", "@1", &[line], notes);
    assert_eq!(bare(&["@10.5 storm bare @0.3 true"]), NONE);
    assert_eq!(bare(&["@10.5 storm bare @0.05 true"]), ["error_in_calm"]);
    assert_eq!(bare(&["@9.9 storm bare @0.3 true"]), ["error_in_calm"]);
    assert_eq!(bare(&["@11 storm bare @0.3 true"]), ["error_in_calm"]);
    // It waited in less than half of the time of the call.
    assert_eq!(bare(&["@10.6 storm bare @0.3 true"]), ["error_in_calm"]);
    // Several servers were slow at one time, or one at two times.
    let again = |at: &str| {
        let again = format!("{at} storm bare @0.28 true");
        bare(&["@10.13 storm bare @0.3 true", &again])
    };
    assert_eq!(again("@10.13"), ["error_in_calm"]);
    assert_eq!(again("@10.5"), NONE);
    // Many short waits are none that is long.
    let short: Vec<_> = (1..6).map(|at| format!("@10.{at} storm bare @0.1 true")).collect();
    assert_eq!(bare(&short.iter().map(|note| &**note).collect::<Vec<_>>()), ["error_in_calm"]);
    // A server did not answer at all.
    let none = short.iter().map(|note| note.replace("true", "false")).collect::<Vec<_>>();
    assert_eq!(bare(&none.iter().map(|note| &**note).collect::<Vec<_>>()), NONE);
    // A thread of the library got no processor for so long that no answer came in time.
    let slow = |wait: &str| {
        let beat = format!("@10.4 beat beat zkm-loop-1 {wait}");
        of_a_call("/multi", &["@10.2 beat beat", &beat, line])
    };
    assert_eq!(slow("@0.3"), NONE);
    assert_eq!(slow("@0.1"), ["error_in_calm"]);
    // The process had no processor.
    let stopped = |beat| of_a_call("/multi", &[beat, "@10.45 beat beat", line]);
    assert_eq!(stopped("@9.95 beat beat"), NONE);
    assert_eq!(stopped("@10.1 beat beat"), ["error_in_calm"]);
    // A short wait explains no error that comes at once.
    let at_once = |beat: &str| {
        let error = "@10.01 t failed 2 unavailable no answer";
        of_a_call("/multi", &["@9.9 beat beat", beat, error])
    };
    assert_eq!(at_once("@10 beat beat zkm-loop-1 @0.05"), ["error_in_calm"]);
    assert_eq!(at_once("@10 beat beat zkm-loop-1 @0.3"), NONE);
    assert_eq!(of_a_call("/multi", &["@10.5 t failed 2 other no such lock"]), ["wrong_error"]);
    assert_eq!(of_a_call("/multi", &["@10.5 t failed 2 lost a member"]), NONE);
    assert_eq!(of_a_call("/mutex", &["@10.5 t failed 2 lost what"]), ["wrong_error"]);
}

fn what_could_have_been_found_is_counted() {
    let of = |within: &str, lines: &[&str], notes: &[&str]| {
        let ask = format!("@10 t ask 0 /mutex write {within}");
        let program = [&["@0 storm quiet", "@5 storm calm @15"], notes].concat();
        let a = [&[&*ask], lines, &["@20 main end"]].concat();
        let Verdict { deadlines, in_calms, .. } = judged(&[("storm", &program), ("a", &a)]);
        [deadlines.at, deadlines.could_find, in_calms.at, in_calms.could_find]
    };
    let taken = "@10.6 t taken 0";
    assert_eq!(of("@1", &[taken], &[]), [1, 1, 1, 1]);
    assert_eq!(of("-", &[taken], &[]), [0, 0, 1, 1]);
    assert_eq!(of("@0.1", &[taken], &[]), [1, 1, 0, 0]);
    assert_eq!(of("@1", &["@16 t taken 0"], &[]), [1, 1, 0, 0]);
    // If it had come a second late, or had failed, the machine would have excused it.
    let beat = |at: &str| format!("{at} beat beat zkm-loop-1 @0.6");
    assert_eq!(of("@1", &[taken, &beat("@12")], &[]), [1, 0, 1, 1]);
    assert_eq!(of("@1", &[&beat("@10.6"), taken], &[]), [1, 0, 1, 0]);
    assert_eq!(of("@1 @1", &[&beat("@10.6"), taken], &[]), [1, 1, 1, 0]);
    assert_eq!(of("@1", &[taken], &["@10.6 storm bare @0.6 true"]), [1, 1, 1, 0]);
}

fn a_writer_may_get_a_loss_error_when_it_wants_to_read() {
    assert_eq!(
        of_a_hold(&["@2 t ask 2 /mutex read -", "@5 t failed 2 lost the write", "@6 t free 1"]),
        NONE
    );
}

fn an_outage_that_is_called_contention_is_found() {
    // Another thread asks for /multi, and no other one for the second lock.
    assert_eq!(of_a_call("/multi", &["@10.5 t taken 2"]), NONE);
    // A call for /multi keeps others from all members.
    assert_eq!(of_a_call("/multi-beside", &["@10.5 t taken 2"]), NONE);
    assert_eq!(of_a_call("/own-a", &["@10.5 t taken 2"]), ["outage_as_contention"]);
}

/// The process got its own lock in one session. All servers were stopped then; after that, the
/// leader told the process that the session was over, and was deposed before it had ended it. The
/// next leader counted the session's time from its own beginning.
fn a_node_of_an_ended_session_may_keep_its_own_process_waiting() {
    let own = |session: &str, then: &[&str]| {
        let begin = [
            "@1 session session 7",
            "@1 own ask 0 /own-a write -",
            "@1.1 own got 0 1 /own-a write 17 0 @4 n0000000001",
            "@4 own void 1",
            "@4 own lost 1 @0 @0 @0 LeaseExpired",
            "@4 own free 1",
        ];
        let program = ["@0 storm quiet", "@9 storm calm @12", "@99 storm listed"];
        let a = [&begin[..], &[session], then, &["@20 main end"]].concat();
        found(&[("storm", &program), ("a", &a)])
    };
    let (ended, contention) = ("@7 session session 8", ["outage_as_contention"]);
    let taken = ["@7.1 own ask 2 /own-a write @2", "@9.1 own taken 2"];
    assert_eq!(own(ended, &taken), NONE);
    // It is the same session, which deletes its own nodes; or the session ends only later.
    assert_eq!(own("@7 session x", &taken), ["broken_history"]);
    assert_eq!(own("@3 beat beat", &taken), contention);
    assert_eq!(own(ended, &["@6 own ask 2 /own-a write @0.5", "@6.5 own taken 2"]), contention);
    // It has got the lock since, so the node is gone.
    let again = [
        "@7.1 own ask 2 /own-a write -",
        "@8 own got 2 3 /own-a write 18 0 @12 n0000000002",
        "@8.1 own free 3",
        "@8.2 own ask 4 /own-a write @0.5",
        "@8.3 own taken 4",
    ];
    assert_eq!(own(ended, &again), contention);
    // It never asked for this lock in the session before.
    let other = ["@7.1 own ask 2 /heirs-a write @0.5", "@7.2 own taken 2"];
    assert_eq!(own(ended, &other), contention);
    // The faults ended long ago, and the servers have ended that session.
    assert_eq!(own(ended, &["@11 own ask 2 /own-a write @0.5", "@11.1 own taken 2"]), contention);
}

fn a_node_that_is_left_is_found() {
    let a = [
        "@1 t ask 0 /mutex write -",
        "@1 t got 0 1 /mutex write 17 0 @4 n0000000001",
        "@2 t free 1",
        "@9 main end",
    ];
    let program =
        ["@0 storm quiet", "@98 storm left /storm/mutex/_c_a-lock-0000000001", "@99 storm listed"];
    assert_eq!(found(&[("storm", &program), ("a", &a)]), ["node_left"]);
}

fn a_thread_that_gets_nothing_after_the_faults_is_found() {
    let program = |quiet: &str, killed: &[&str]| {
        let quiet = format!("{quiet} storm quiet");
        let end = ["@99 storm listed"];
        let a = [
            "@1 t ask 0 /mutex write -",
            "@1 t got 0 1 /mutex write 17 0 @4 n0000000001",
            "@2 t free 1",
            "@9 main end",
        ];
        found(&[("storm", &[&[&*quiet], killed, &end].concat()), ("a", &a)])
    };
    assert_eq!(program("@0", &[]), NONE);
    assert_eq!(program("@3", &[]), ["no_progress"]);
    assert_eq!(program("@3", &["@2 storm killed a"]), NONE);
    assert_eq!(program("@0", &["@9 storm stuck a ended with 101"]), ["no_progress"]);
    // One thread did not end, and one never began.
    assert_eq!(
        found(&[("a", &["@1 t ask 0 /mutex write -", "@1 t got 0 1 /mutex write 17 0 @4 n"])]),
        ["no_progress"]
    );
    assert_eq!(found(&[("a", &["@1 main end"])]), ["no_progress"]);
}

fn a_history_with_a_hole_is_found() {
    assert_eq!(found(&[("storm", &["@99 storm listed"])]), ["broken_history"]);
    assert_eq!(found(&[("storm", &["@99 storm quiet"])]), ["broken_history"]);
    assert_eq!(of_a_hold(&["@2 t gone 1"]), ["broken_history"]);
    assert_eq!(of_a_hold(&["@2 t free 7"]), ["broken_history"]);
    assert_eq!(of_a_hold(&["@2 beat beat t"]), ["broken_history"]);
    assert_eq!(of_a_hold(&["@2 beat beat t x"]), ["broken_history"]);
    // A kill cuts the last line off.
    let mut judge = Judge::default();
    judge.take("storm", "0 storm quiet\n0 storm killed a\n0 storm listed\n");
    judge.take("a", "1 t ask 0 /mutex write -\n2 t got 0 1 /mut");
    assert!(judge.verdict().violations.is_empty());
}

scenarios![
    on none;
    two_that_take_turns_are_well,
    two_writers_at_once_are_found,
    the_lease_of_a_killed_or_stopped_process_keeps_others_out,
    a_hold_whose_lease_was_over_when_the_call_returned_is_none,
    readers_stand_beside_readers_and_not_beside_writers,
    a_writer_that_reads_on_is_well_and_keeps_other_writers_out,
    more_permits_than_there_are_are_found,
    tokens_and_numbers_that_fall_are_found,
    a_hold_lost_before_its_lease_was_over_is_found,
    a_signal_that_is_late_or_never_comes_is_found,
    a_hold_that_does_not_end_with_its_own_time_is_found,
    a_signal_of_a_hold_that_stands_is_found,
    a_signal_after_a_release_is_found,
    a_call_that_returns_long_after_its_deadline_is_found,
    waits_at_one_time_are_counted_once_and_those_of_other_times_are_added,
    a_wait_makes_a_call_late_only_if_the_call_does_not_sleep_meanwhile,
    a_call_that_never_returns_is_found,
    an_error_that_no_fault_explains_is_found,
    what_could_have_been_found_is_counted,
    a_writer_may_get_a_loss_error_when_it_wants_to_read,
    an_outage_that_is_called_contention_is_found,
    a_node_of_an_ended_session_may_keep_its_own_process_waiting,
    a_node_that_is_left_is_found,
    a_thread_that_gets_nothing_after_the_faults_is_found,
    a_history_with_a_hole_is_found,
];
