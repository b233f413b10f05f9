//! The holder's process is stopped, and its follower loses the leader: its guard must be invalid
//! before the leader expires its session and the next contender gets the lock.
//!
//! A follower without its leader answers reads and pings for a long time, while the leader expires
//! the sessions that it receives nothing for. A process that was stopped was silent, and the leader
//! counts from before the stop, although the first write after waking is acknowledged at once.
use crate::{
    lease::{
        program,
        rounds::{Act, Holder, Members, Plan, Setup, hold},
    },
    support::{process::child, scenarios},
};
use std::time::{Duration, Instant};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Plays a round in which the leader expires the holder. In the child's process this plays the
/// holder.
fn play(scenario: &str, timeout: Duration, eager: bool, holder: Holder, acts: &[(Duration, Act)]) {
    if let Some(address) = child() {
        return hold(&address);
    }
    let setup = Setup { timeout, tick: ms(1000), eager, leader_serves: true };
    let plan = Plan { setup, holder, follower: 0, rival_at_leader: true, acts: acts.to_vec() };
    let outcome = Members::start(setup).play(&plan, module_path!(), scenario);
    println!("{plan} {outcome}\n{}", outcome.seen);
    assert!(outcome.overlap.is_none(), "two could hold the lock at once: {outcome}");
    assert!(
        outcome.expired,
        "the leader must expire the holder, otherwise the round shows nothing"
    );
}

/// The process was stopped for less than its session lasts. The leader counts from before the stop.
fn lock_taken_on_waking_ends_before_the_leader_lets_the_next_one_in() {
    play(
        "lock_taken_on_waking_ends_before_the_leader_lets_the_next_one_in",
        ms(10_000),
        false,
        Holder::OnWaking,
        &[
            (ms(1_700), Act::Stop),
            (ms(8_900), Act::Continue),
            (ms(8_900), Act::AwaitProof),
            (ms(8_900), Act::BlackHole),
        ],
    );
}

/// The process was stopped for less than its lease lasts. Its first write after waking must not
/// extend the lease beyond the time at which the leader, which counts from before the stop, expires
/// the session.
fn holder_that_woke_within_its_lease_stops_before_the_leader_lets_the_next_one_in() {
    play(
        "holder_that_woke_within_its_lease_stops_before_the_leader_lets_the_next_one_in",
        ms(20_000),
        false,
        Holder::Idle,
        &[
            (ms(4_000), Act::Stop),
            (ms(13_700), Act::Continue),
            (ms(13_700), Act::AwaitProof),
            (ms(13_700), Act::BlackHole),
        ],
    );
}

/// With eager ACL checks a follower itself answers NoAuth to a write, also without its leader.
fn holder_refused_by_its_follower_alone_stops_before_the_leader_lets_the_next_one_in() {
    play(
        "holder_refused_by_its_follower_alone_stops_before_the_leader_lets_the_next_one_in",
        ms(4_000),
        true,
        Holder::Idle,
        &[(ms(4_000), Act::BlackHole)],
    );
}

/// The seeds of the suite: one where the leader serves clients, and one where it does not.
const SEEDS: [u64; 2] = [9, 31];

/// `tests/isolation` runs this scenario with other seeds.
fn holders_stopped_and_cut_off_at_random_stop_before_the_leader_lets_the_next_one_in() {
    if let Some(address) = child() {
        return hold(&address);
    }
    let seeds = program::seeds().unwrap_or_else(|| SEEDS.to_vec());
    let mut members: Option<Members> = None;
    let mut overlaps = Vec::new();
    for seed in seeds.into_iter().take_while(|_| !program::is_over()) {
        let plan = Plan::of(seed);
        if members.as_ref().is_none_or(|members| members.setup() != plan.setup) {
            drop(members.take());
        }
        let members = members.get_or_insert_with(|| Members::start(plan.setup));
        let begun = Instant::now();
        let outcome = members.play(&plan, module_path!(), program::SCENARIO);
        println!("seed={seed} {plan} {outcome} took={}", begun.elapsed().as_millis());
        if outcome.overlap.is_some() {
            println!("{}", outcome.seen);
            overlaps.push(seed);
        }
    }
    assert!(
        overlaps.is_empty(),
        "two could hold the lock at once in the rounds of these seeds: {overlaps:?}"
    );
}

scenarios![
    on real;
    lock_taken_on_waking_ends_before_the_leader_lets_the_next_one_in within 240,
    holder_that_woke_within_its_lease_stops_before_the_leader_lets_the_next_one_in within 240,
    holder_refused_by_its_follower_alone_stops_before_the_leader_lets_the_next_one_in within 240,
    holders_stopped_and_cut_off_at_random_stop_before_the_leader_lets_the_next_one_in within 240,
];
