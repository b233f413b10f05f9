//! The limits of `ls`, for alerts: which locks are held for too long, and for which too many wait.

use std::time::Duration;

use serde_json::{Value, json};

use crate::cli::LimitArgs;
use crate::nodes::queue::{LockKind, Queue};
use crate::nodes::since::Since;

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    held: Option<Duration>,
    waiting: Option<usize>,
}

/// A lock that is to be shown.
#[derive(Clone, Debug)]
pub struct Found {
    pub queue: Queue,
    /// The longest time for which somebody has held it; `None` if nobody does.
    pub held: Option<Duration>,
    /// The limits that it is over, as their options are called.
    pub over: Vec<&'static str>,
}

impl Limits {
    pub fn of(args: &LimitArgs) -> Limits {
        Limits { held: args.held_over, waiting: args.waiting_over }
    }

    pub fn are_set(&self) -> bool {
        self.held.is_some() || self.waiting.is_some()
    }

    /// The locks that are over a limit; without limits, all.
    pub fn pick(&self, queues: Vec<Queue>, since: &Since) -> Vec<Found> {
        let find = |queue: Queue| {
            let held = since.longest(&queue);
            let over = self.over(queue.kind, held, queue.waiting());
            Found { queue, held, over }
        };
        let all = queues.into_iter().map(find);
        all.filter(|found| !self.are_set() || !found.over.is_empty()).collect()
    }

    /// An election is over no limit: its leader leads for as long as it lives, and its candidates
    /// are there to wait.
    fn over(&self, kind: LockKind, held: Option<Duration>, waiting: usize) -> Vec<&'static str> {
        let is_held_over = self.held.zip(held).is_some_and(|(most, held)| held > most);
        let is_waiting_over = self.waiting.is_some_and(|most| waiting > most);
        let all = [("held-over", is_held_over), ("waiting-over", is_waiting_over)];
        let is_meant = kind != LockKind::Election;
        all.into_iter().filter(|(_, is_over)| is_meant && *is_over).map(|(name, _)| name).collect()
    }

    /// The lock for `--json`.
    pub fn json(&self, found: &Found) -> Value {
        let mut value = found.queue.json();
        if self.are_set() {
            value["over"] = json!(found.over);
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_itself_is_not_over_it_and_elections_have_none() {
        let hour = Duration::from_secs(3_600);
        let limits = Limits { held: Some(hour), waiting: Some(10) };
        let over = |kind, held, waiting| limits.over(kind, held, waiting);
        let long = Some(hour + Duration::from_millis(1));
        assert_eq!(over(LockKind::Mutex, Some(hour), 10), [""; 0]);
        assert_eq!(over(LockKind::Mutex, long, 10), ["held-over"]);
        assert_eq!(over(LockKind::Semaphore, None, 11), ["waiting-over"]);
        assert_eq!(over(LockKind::ReadWrite, long, 11), ["held-over", "waiting-over"]);
        assert_eq!(over(LockKind::Election, long, 11), [""; 0]);
        let none = Limits { held: None, waiting: None };
        assert_eq!(none.over(LockKind::Mutex, long, 11), [""; 0]);
    }
}
