//! States that may come about and must not last.
//!
//! Such a state may last for a while. A commit may be under way from the leader to a follower, at
//! most for as long as a follower waits for its leader; then the library may have to renew its
//! lease. After `syncLimit` and a session timeout the state is a violation. Only time counts in
//! which the process runs, and it begins anew when its session changes the connection: the library
//! gives a connection up when a request is unanswered for T/6, so a server has answered during this
//! time.

use std::collections::BTreeMap;
use std::time::Duration;

use zk_sim_runtime::{ProcessId, is_alive, now, process_name, stopped_for};
use zk_test_server::ensemble::NodeInfo;

use super::{Broken, Seen};

/// The states that were found at the last look, and the time since when each of them lasts.
#[derive(Default)]
pub(super) struct Lasting(BTreeMap<(&'static str, String), Since>);

/// A state at one moment.
pub(super) struct State {
    /// The check that fails if the state lasts.
    pub(super) check: &'static str,
    /// What is so. Another state has another text.
    pub(super) what: String,
    /// The session that should end it.
    pub(super) session: i64,
    /// It is counted when it begins: the check fails if it lasts. Otherwise it is counted
    /// elsewhere.
    pub(super) counts: bool,
}

/// How long something has been so.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Since {
    pub(super) time: Duration,
    /// How long the process had been stopped by then.
    stopped: Duration,
    clue: Clue,
}

/// The time counts only while all of these values stay the same.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Clue {
    pub(super) process: ProcessId,
    pub(super) session: i64,
    epoch: u64,
}

impl Seen {
    /// Checks that none of these states has lasted. Without a tree nothing is known, and the time
    /// begins anew.
    pub(super) fn lasting(&mut self, tree: Option<&[NodeInfo]>) -> Option<Broken> {
        let mut all = Vec::new();
        if let Some(tree) = tree {
            self.sleepers(tree, &mut all);
            self.untold(tree, &mut all);
            self.kept(tree, &mut all);
        }
        let mut before = std::mem::take(&mut self.lasting.0);
        let mut broken = None;
        for State { check, what, session, counts } in all {
            let key = (check, what);
            let Some(since) = self.since_when(session, before.remove(&key)) else { continue };
            if counts && since.time == now() {
                self.counts.note(check);
            }
            if self.has_lasted(&since) {
                let (what, who) = (&key.1, process_name(since.clue.process));
                let text = format!("{what}, of {who}, since {:?}", since.time);
                broken = broken.or(Some((check, text)));
            }
            self.lasting.0.insert(key, since);
        }
        broken
    }

    /// Since when something is so that a process with this session should end. `before`: what the
    /// last look found. `None`: the session has no connection.
    pub(super) fn since_when(&self, session: i64, before: Option<Since>) -> Option<Since> {
        let clue = self.clue(session)?;
        let before = before.filter(|before| before.clue == clue);
        let stopped = stopped_for(clue.process);
        Some(before.unwrap_or_else(|| Since { time: now(), stopped, clue }))
    }

    /// Whether the time counts on.
    pub(super) fn is_still(&self, since: &Since) -> bool {
        self.clue(since.clue.session).is_some_and(|clue| clue == since.clue)
    }

    pub(super) fn clue(&self, session: i64) -> Option<Clue> {
        let of = self.sessions.get(&session).filter(|of| is_alive(of.process))?;
        Some(Clue { process: of.process, session, epoch: of.epoch? })
    }

    /// Whether it is so for longer than anything may last that the library should end.
    pub(super) fn has_lasted(&self, since: &Since) -> bool {
        let bound = self.setting.sync_time + self.setting.session_timeout;
        let stopped = stopped_for(since.clue.process) - since.stopped;
        now() > since.time + stopped + bound * self.setting.slowness()
    }
}
