//! What `export` serves.

use std::cmp::Reverse;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::exit::Failure;
use crate::metrics::{Metric, Metrics};
use crate::nodes::queue::{LockKind, Queue};
use crate::nodes::since::Since;
use crate::nodes::tree::Tree;

const UP: Metric = Metric {
    name: "zk_lock_up",
    help: "1 if ZooKeeper answers. If it does not, nothing is known of the locks, and they have no \
           metrics.",
    labels: &[],
};
const LAST_READ: Metric = Metric {
    name: "zk_lock_last_read_timestamp_seconds",
    help: "When all locks were read last.",
    labels: &[],
};
const READ_TIME: Metric = Metric {
    name: "zk_lock_read_duration_seconds",
    help: "How long it took to read all locks.",
    labels: &[],
};
const LOCKS: Metric =
    Metric { name: "zk_lock_locks", help: "How many locks are in use.", labels: &[] };
const LEFT_OUT: Metric = Metric {
    name: "zk_lock_locks_left_out",
    help: "How many locks in use have no metrics of their own here, because there are more than \
           --max-locks.",
    labels: &[],
};
const HIDDEN: Metric = Metric {
    name: "zk_lock_nodes_hidden",
    help: "How many nodes the ACL hides from the exporter; what is below them is not known.",
    labels: &[],
};
const HOLDERS: Metric = Metric {
    name: "zk_lock_holders",
    help: "How many contenders hold the lock.",
    labels: &["path", "kind"],
};
const WAITING: Metric = Metric {
    name: "zk_lock_waiting",
    help: "How many contenders wait for the lock.",
    labels: &["path", "kind"],
};
const HELD_FOR: Metric = Metric {
    name: "zk_lock_oldest_holder_age_seconds",
    help: "For how long the oldest holder has held the lock at most: since the exporter has seen \
           it wait, or else since it has joined the queue.",
    labels: &["path", "kind"],
};
const WAITS_FOR: Metric = Metric {
    name: "zk_lock_oldest_waiter_age_seconds",
    help: "For how long the oldest waiter has waited.",
    labels: &["path", "kind"],
};
const PERMITS: Metric = Metric {
    name: "zk_lock_permits",
    help: "How many permits the semaphore has, if that stands in its node.",
    labels: &["path"],
};
const TAKEN: Metric = Metric {
    name: "zk_lock_permits_taken",
    help: "How many permits of the semaphore are taken.",
    labels: &["path"],
};

/// What one look at the locks has found.
pub struct Read {
    pub tree: Tree,
    pub began: Instant,
    pub took: Duration,
    pub at: SystemTime,
}

/// What is known of the locks.
pub struct State {
    /// Not more locks than these have metrics of their own: each of them costs Prometheus memory,
    /// and a client that may make a node can make many.
    max_locks: usize,
    is_up: bool,
    last: Option<Read>,
    since: Since,
}

impl State {
    pub fn new(max_locks: usize) -> State {
        State { max_locks, is_up: false, last: None, since: Since::default() }
    }

    pub fn read(&mut self, read: Read) {
        self.since.note(&read.tree.queues, read.began);
        self.is_up = true;
        self.last = Some(read);
    }

    pub fn is_away(&mut self) {
        self.is_up = false;
    }

    pub fn page(&self) -> Result<String, Failure> {
        let mut metrics = Metrics::default();
        let is_up = self.is_up && self.last.is_some();
        metrics.set(&UP, &[], f64::from(u8::from(is_up)))?;
        if let Some(read) = &self.last {
            let at = read.at.duration_since(UNIX_EPOCH).unwrap_or_default();
            metrics.set(&LAST_READ, &[], at.as_secs_f64())?;
        }
        if let Some(read) = self.last.as_ref().filter(|_| is_up) {
            self.locks(read, &mut metrics)?;
        }
        metrics.text()
    }

    fn locks(&self, read: &Read, metrics: &mut Metrics) -> Result<(), Failure> {
        let mut queues: Vec<&Queue> = read.tree.queues.iter().collect();
        metrics.set(&READ_TIME, &[], read.took.as_secs_f64())?;
        metrics.set(&HIDDEN, &[], count(read.tree.hidden.len()))?;
        metrics.set(&LOCKS, &[], count(queues.len()))?;
        metrics.set(&LEFT_OUT, &[], count(queues.len().saturating_sub(self.max_locks)))?;
        if queues.len() > self.max_locks {
            // Those that somebody may have to look at.
            queues
                .sort_by_cached_key(|queue| Reverse((queue.waiting(), self.since.longest(queue))));
            queues.truncate(self.max_locks);
        }
        for queue in queues {
            let (path, kind) = (queue.path.as_str(), queue.kind.name());
            let labels = [path, kind];
            let holders = queue.holders().count();
            metrics.set(&HOLDERS, &labels, count(holders))?;
            metrics.set(&WAITING, &labels, count(queue.waiting()))?;
            if let Some(held) = self.since.longest(queue) {
                metrics.set(&HELD_FOR, &labels, held.as_secs_f64())?;
            }
            let waiters = queue.contenders.iter().filter(|one| !one.holds);
            if let Some(waits) = waiters.map(|one| one.age()).max() {
                metrics.set(&WAITS_FOR, &labels, waits.as_secs_f64())?;
            }
            if queue.kind == LockKind::Semaphore {
                metrics.set(&TAKEN, &[path], count(holders))?;
                if let Some(permits) = queue.permits {
                    metrics.set(&PERMITS, &[path], f64::from(permits))?;
                }
            }
        }
        Ok(())
    }
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_one_that_prometheus_takes() {
        let all = [&UP, &LAST_READ, &READ_TIME, &LOCKS, &LEFT_OUT, &HIDDEN];
        crate::metrics::check(&all);
        crate::metrics::check(&[&HOLDERS, &WAITING, &HELD_FOR, &WAITS_FOR, &PERMITS, &TAKEN]);
    }

    #[test]
    fn before_anything_is_read_nothing_is_known() {
        let page = State::new(10).page().expect("a page");
        assert!(page.ends_with("\nzk_lock_up 0\n"), "{page}");
        assert_eq!(page.matches("TYPE").count(), 1, "{page}");
    }
}
