//! For how long a holder has held its lock, as far as anybody can know.
//!
//! ZooKeeper keeps when a contender has joined the queue, and not when its turn has come. A program
//! that looks again and again knows more: a contender that waited at an earlier look has held the
//! lock since then at most.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::queue::{Contender, Queue};

/// When each contender was last seen to wait.
#[derive(Clone, Debug, Default)]
pub struct Since(HashMap<String, (i64, Instant)>);

impl Since {
    /// Notes the waiters of a look that began at this time, and forgets who is not there any more.
    pub fn note(&mut self, queues: &[Queue], looked: Instant) {
        let before = std::mem::take(&mut self.0);
        for contender in queues.iter().flat_map(|queue| &queue.contenders) {
            let key = (contender.stat.czxid, looked);
            if !contender.holds {
                self.0.insert(contender.path.clone(), key);
            } else if let Some(seen) = before.get(&contender.path) {
                // The node may be another one of the same name.
                if seen.0 == contender.stat.czxid {
                    self.0.insert(contender.path.clone(), *seen);
                }
            }
        }
    }

    /// It has held the lock for so long at most. After a single look that is the age of its node,
    /// its wait included.
    pub fn held(&self, holder: &Contender) -> Duration {
        let seen = self.0.get(&holder.path).map(|(_, waited)| waited.elapsed());
        holder.age().min(seen.unwrap_or(Duration::MAX))
    }

    /// The longest time for which somebody has held the lock; `None` if nobody does.
    pub fn longest(&self, queue: &Queue) -> Option<Duration> {
        queue.holders().map(|holder| self.held(holder)).max()
    }
}
