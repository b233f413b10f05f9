//! A breadth-first search over all histories of a scope. It keeps the hashes of the states that it
//! has seen, and the way to each state of the last layer; a state itself is made again by playing
//! its history, so a search takes little memory. The first history that it finds is the shortest.

use std::collections::HashSet;

use crate::scope::{Action, Scope, Start};
use crate::world::World;

pub struct Found {
    pub start: &'static Start,
    pub history: Vec<Action>,
    pub wrong: String,
}

pub struct Outcome {
    pub found: Option<Found>,
    /// The states that differ, and the steps that were taken.
    pub states: usize,
    pub steps: usize,
}

/// One step of a history: the step before, and the action.
type Step = (u32, Action);

pub fn search(scope: &'static Scope, rule: &str, depth: usize) -> Outcome {
    let mut seen: HashSet<u64> = HashSet::new();
    let mut steps = 0;
    let mut found = None;
    // The histories of each start, as a tree.
    let mut all: Vec<(&'static Start, Vec<Step>, Vec<u32>)> = Vec::new();
    for start in scope.starts {
        let world = World::new(scope, crate::client(rule), start);
        seen.insert(world.key());
        all.push((start, Vec::new(), vec![u32::MAX]));
    }
    for layer in 1..=depth {
        for (start, tree, last) in &mut all {
            let start: &'static Start = start;
            let mut next = Vec::new();
            for &at in last.iter() {
                let world = played(scope, rule, start, &history(tree, at));
                for action in world.actions() {
                    let mut world = world.clone();
                    world.act(action);
                    steps += 1;
                    let key = world.key();
                    if world.wrong.is_none() && !seen.insert(key) {
                        continue;
                    }
                    if let Some(wrong) = world.wrong.clone().or_else(|| world.calms_down()) {
                        let mut history = history(tree, at);
                        history.push(action);
                        found = Some(Found { start, history, wrong });
                        return Outcome { found, states: seen.len(), steps };
                    }
                    if layer < depth {
                        next.push(u32::try_from(tree.len()).expect("few steps"));
                        tree.push((at, action));
                    }
                }
            }
            *last = next;
        }
    }
    Outcome { found, states: seen.len(), steps }
}

fn history(tree: &[Step], mut at: u32) -> Vec<Action> {
    let mut actions = Vec::new();
    while let Some((before, action)) = tree.get(at as usize) {
        actions.push(*action);
        at = *before;
    }
    actions.reverse();
    actions
}

fn played(scope: &'static Scope, rule: &str, start: &Start, history: &[Action]) -> World {
    let mut world = World::new(scope, crate::client(rule), start);
    history.iter().for_each(|action| world.act(*action));
    world
}
