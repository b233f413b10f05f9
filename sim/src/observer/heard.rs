//! What the processes have heard about the run's locks: when an answer of a server about each lock
//! last came to each process.

use std::collections::BTreeMap;
use std::time::Duration;

use zk_sim_runtime::{ProcessId, now};
use zk_wire::code::op;

use super::Seen;
use crate::workload::Place;

/// When the last answer about each lock came to each process.
#[derive(Default)]
pub(super) struct Heard(BTreeMap<(ProcessId, String), Duration>);

/// The requests about locks that a client has sent on one connection and that have no answer: the
/// path of each one's lock.
#[derive(Default)]
pub(super) struct Asked(BTreeMap<i32, String>);

impl Asked {
    /// The client sends this request.
    pub(super) fn sends(&mut self, frame: &[u8], places: &[Place]) {
        let Some((xid, code)) = int(frame).zip(frame.get(4..).and_then(int)) else { return };
        let shows_others = matches!(
            code,
            op::CREATE
                | op::CREATE2
                | op::CREATE_CONTAINER
                | op::MULTI
                | op::GET_DATA
                | op::EXISTS
                | op::GET_CHILDREN
                | op::GET_CHILDREN2
        );
        let has = |path: &str| frame.windows(path.len()).any(|part| part == path.as_bytes());
        let place = places.iter().filter(|place| has(&place.path));
        // The path of one lock may begin as that of another.
        if let Some(place) = place.max_by_key(|place| place.path.len()).filter(|_| shows_others) {
            self.0.insert(xid, place.path.clone());
        }
    }

    /// A server's answer has come. Gives the path of the lock that it is about.
    pub(super) fn hears(&mut self, frame: &[u8]) -> Option<String> {
        self.0.remove(&int(frame)?)
    }
}

impl Heard {
    /// When an answer about the lock at this path last came to the process.
    pub(super) fn of(&self, process: ProcessId, lock: &str) -> Option<Duration> {
        self.0.get(&(process, lock.to_owned())).copied()
    }
}

impl Seen {
    /// An answer about this lock has come to a process.
    pub(super) fn has_heard(&mut self, process: ProcessId, lock: String) {
        self.heard.0.insert((process, lock), now());
    }
}

fn int(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().map(|first| i32::from_be_bytes(*first))
}
