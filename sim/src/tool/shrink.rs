//! The fewest faults with which a run still fails in the same way.

use std::time::{Duration, Instant};

use crate::asked::Asked;
use crate::play::{self, Violation};

/// The search for a smaller part ends after so many chances in a row without a success.
const FRUITLESS: u32 = 8;

/// More faults than these are not printed one by one.
const READABLE: usize = 100;

/// A part of a plan's faults, by their numbers, and the chance with which they are played. With
/// another chance the same faults make another run: threads and packets take turns in another way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    faults: Vec<usize>,
    chance: u64,
}

/// Searches for the fewest faults with which this run still fails with the same violation, for at
/// most this time, and prints them.
pub fn report(asked: &Asked, violation: &Violation, lasts: Duration, at_once: usize) {
    let Ok(scenario) = asked.scenario() else { return };
    let (started, plan) = (Instant::now(), &scenario.plan.0);
    if lasts.is_zero() {
        return;
    }
    let until = started + lasts;
    let of = |part: &Part| {
        let chance = (part.chance != scenario.chance).then_some(part.chance);
        let faults = (part.faults.len() < plan.len()).then(|| part.faults.clone());
        Asked { faults, chance, ..asked.clone() }
    };
    let mut runs = 0;
    let mut first_failing = |parts: &[Part]| {
        runs += parts.len();
        let play = |part: &Part| play::in_child_until(&of(part), until);
        let fails = |part: &Part| match play(part) {
            Ok(Some(told)) => told.violation.is_some_and(|found| found.kind == violation.kind),
            Ok(None) | Err(_) => false,
        };
        let outcomes: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = parts.iter().map(|part| scope.spawn(|| fails(part))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or(false)).collect()
        });
        outcomes.iter().position(|fails| *fails)
    };
    let whole = Part { faults: (0..plan.len()).collect(), chance: scenario.chance };
    // A fault that is injected after the failure changes nothing.
    let is_before = |number: &usize| violation.at.is_none_or(|at| plan[*number].0 <= at);
    let before = Part { faults: whole.faults.iter().copied().filter(is_before).collect(), ..whole };
    let start =
        if first_failing(std::slice::from_ref(&before)).is_some() { before } else { whole.clone() };
    let part = fewest(start, at_once, &mut first_failing, || Instant::now() >= until);
    eprintln!(
        "{:?} with {} of its {} faults ({runs} runs in {:.0} s):",
        violation.kind,
        part.faults.len(),
        plan.len(),
        started.elapsed().as_secs_f64()
    );
    if part.faults.len() > READABLE {
        eprintln!("  too many to print here: --write FILE lists them");
    } else {
        for number in &part.faults {
            let (time, fault) = &plan[*number];
            eprintln!("{:>16.9} s  {number:>4}  {fault}", time.as_secs_f64());
        }
    }
    eprintln!("to see it again: {}", of(&part));
    eprintln!(
        "to keep it as a test: {} --write sim/tests/plans/NAME.plan (and sim/tests/seeds.rs)",
        of(&part)
    );
}

/// The smallest failing part of this one that was found. `first_failing` returns the first failing
/// part of several. It plays `at_once` of them in the time of one.
fn fewest(
    whole: Part,
    at_once: usize,
    mut first_failing: impl FnMut(&[Part]) -> Option<usize>,
    is_over: impl Fn() -> bool,
) -> Part {
    let mut best = whole;
    let (own, mut fruitless) = (best.chance, 0);
    // Fewer faults make another run, which may miss the failure by chance. So other chances are
    // tried, too.
    for chance in std::iter::once(own).chain((1..).filter(|chance| *chance != own)) {
        let before = best.faults.len();
        fewer(&mut best, chance, at_once, &mut first_failing, &is_over);
        fruitless = if best.faults.len() < before { 0 } else { fruitless + 1 };
        if best.faults.is_empty() || fruitless == FRUITLESS || is_over() {
            break;
        }
    }
    best
}

/// Leaves out halves, quarters, and so on down to single faults, if the rest still fails with this
/// chance.
fn fewer(
    best: &mut Part,
    chance: u64,
    at_once: usize,
    first_failing: &mut impl FnMut(&[Part]) -> Option<usize>,
    is_over: &impl Fn() -> bool,
) {
    let mut size = best.faults.len().div_ceil(2);
    while !best.faults.is_empty() && !is_over() {
        let (mut from, before) = (0, best.faults.len());
        while from < best.faults.len() && !is_over() {
            let starts = (from..best.faults.len()).step_by(size).take(at_once);
            let mut parts: Vec<Part> =
                starts.map(|from| best.without(from, size).by(chance)).collect();
            match first_failing(&parts) {
                Some(number) => {
                    *best = parts.swap_remove(number);
                    from += number * size;
                }
                None => from += parts.len() * size,
            }
        }
        if size == 1 && best.faults.len() == before {
            return;
        }
        size = (size / 2).clamp(1, best.faults.len().div_ceil(2).max(1));
    }
}

impl Part {
    fn without(&self, from: usize, count: usize) -> Part {
        let mut faults = self.faults.clone();
        faults.drain(from..(from + count).min(self.faults.len()));
        Part { faults, ..*self }
    }

    fn by(self, chance: u64) -> Part {
        Part { chance, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn whole(count: usize) -> Part {
        Part { faults: (0..count).collect(), chance: 7 }
    }

    /// The fewest of so many faults that fail by a rule, and the number of parts that were played.
    fn found(count: usize, at_once: usize, fails: impl Fn(&Part) -> bool) -> (Part, usize) {
        let mut played = 0;
        let first_failing = |parts: &[Part]| {
            assert!(parts.len() <= at_once);
            played += parts.len();
            parts.iter().position(&fails)
        };
        let part = fewest(whole(count), at_once, first_failing, || false);
        (part, played)
    }

    #[test]
    fn only_the_faults_that_it_takes_are_left() {
        for needed in
            [vec![], vec![0], vec![299], vec![17, 18], vec![3, 150, 298], (40..52).collect()]
        {
            for at_once in [1, 2, 5] {
                let (part, _) = found(300, at_once, |part| {
                    let kept: BTreeSet<_> = part.faults.iter().collect();
                    needed.iter().all(|number| kept.contains(number))
                });
                assert_eq!(part, Part { faults: needed.clone(), chance: 7 });
            }
        }
    }

    #[test]
    fn two_of_many_faults_are_found_in_few_runs() {
        let (_, played) =
            found(1_000, 1, |part| part.faults.contains(&123) && part.faults.contains(&777));
        assert!(played < 150, "{played}");
    }

    #[test]
    fn another_chance_is_tried_where_the_first_one_does_not_show_it() {
        // Fewer than ten faults fail with only one chance of three.
        let (part, _) = found(100, 2, |part| {
            part.faults.contains(&50) && (part.faults.len() >= 10 || part.chance.is_multiple_of(3))
        });
        assert_eq!(part.faults, [50]);
        assert!(part.chance.is_multiple_of(3));
    }

    #[test]
    fn a_plan_that_needs_all_its_faults_stays_as_it_is() {
        let (part, played) = found(20, 2, |part| part.faults.len() == 20);
        assert_eq!(part, whole(20));
        assert!(played < 500, "{played}");
    }

    #[test]
    fn it_ends_when_its_time_is_over() {
        let played = std::cell::Cell::new(0);
        let first_failing = |parts: &[Part]| {
            played.set(played.get() + parts.len());
            None
        };
        fewest(whole(100), 2, first_failing, || played.get() >= 10);
        assert_eq!(played.get(), 10);
    }
}
