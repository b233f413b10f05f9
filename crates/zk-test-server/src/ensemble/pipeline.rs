//! The order of requests at a member (`CommitProcessor`): the requests of a session are answered in
//! the order in which they came. A write, or a `sync` at a follower, waits until the leader has
//! committed it, and the later requests of the session wait behind it. Other sessions do not wait.

use crate::engine::finish::Pending;
use std::collections::{BTreeMap, VecDeque};

#[derive(Debug, Default)]
pub(super) struct Pipeline {
    /// What each session waits for, oldest first. The first one waits for the leader.
    waiting: BTreeMap<i64, VecDeque<Waiting>>,
    /// What waits for the leader, of all sessions: session and xid.
    uncommitted: VecDeque<(i64, i32)>,
}

#[derive(Debug)]
struct Waiting {
    request: Pending,
    needs_commit: bool,
}

impl Pipeline {
    /// Takes a request; gives it back if it can be answered at once.
    pub(super) fn take(&mut self, request: Pending, needs_commit: bool) -> Option<Pending> {
        let session = request.session;
        if needs_commit {
            self.uncommitted.push_back((session, request.xid));
        } else if !self.waiting.contains_key(&session) {
            return Some(request);
        }
        self.waiting.entry(session).or_default().push_back(Waiting { request, needs_commit });
        None
    }

    /// Returns the request that was committed, if it has waited longest at this member. A request
    /// that its session sent over another server is not returned. (Clients that continue their xids
    /// on a new connection rely on this.)
    pub(super) fn committed(&mut self, session: i64, xid: i32) -> Option<Pending> {
        if self.uncommitted.front() != Some(&(session, xid)) {
            return None;
        }
        self.uncommitted.pop_front();
        Some(self.waiting.get_mut(&session)?.pop_front()?.request)
    }

    /// Returns the next request of a session, if it need not wait any more.
    pub(super) fn next_ready(&mut self, session: i64) -> Option<Pending> {
        let waiting = self.waiting.get_mut(&session)?;
        let is_ready = waiting.front().is_some_and(|first| !first.needs_commit);
        let ready = if is_ready { waiting.pop_front() } else { None };
        if waiting.is_empty() {
            self.waiting.remove(&session);
        }
        ready.map(|first| first.request)
    }
}
