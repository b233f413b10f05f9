//! The election of a leader (`FastLeaderElection`). Each member first votes for itself. When it
//! receives a greater vote, it votes for that candidate too. It decides when a quorum has the same
//! vote and no greater vote comes for a while.

use super::message::{Notification, State, Vote};
use super::server::Server;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a member waits for a greater vote once a quorum agrees (`finalizeWait`).
const SETTLE: Duration = Duration::from_millis(200);
/// The first pause before a member repeats its vote. Each pause is twice as long as the one before.
const FIRST_REPEAT: Duration = Duration::from_millis(200);
const LAST_REPEAT: Duration = Duration::from_millis(3200);

#[derive(Debug)]
pub(super) struct Election {
    own: Vote,
    proposal: Vote,
    /// The votes of this round, by member.
    received: BTreeMap<usize, Vote>,
    /// The votes of members that already have a leader.
    settled: BTreeMap<usize, Notification>,
    decide_at: Option<Duration>,
    repeat_at: Duration,
    repeat_after: Duration,
}

impl Election {
    pub(super) fn begin(server: &mut Server) -> Election {
        server.round += 1;
        let own = server.own_vote();
        let mut election = Election {
            own,
            proposal: own,
            received: BTreeMap::new(),
            settled: BTreeMap::new(),
            decide_at: None,
            repeat_at: server.now + FIRST_REPEAT,
            repeat_after: FIRST_REPEAT,
        };
        election.vote(server);
        election
    }

    fn notification(&self, server: &Server) -> Notification {
        Notification { state: State::Looking, round: server.round, vote: self.proposal }
    }

    /// Sends this member's vote to all other members.
    fn vote(&mut self, server: &mut Server) {
        self.decide_at = None;
        for to in 0..server.members {
            server.notify(to, self.notification(server));
        }
        self.received.insert(server.id, self.proposal);
        self.count(server);
    }

    fn count(&mut self, server: &Server) {
        let agree = self.received.values().filter(|vote| **vote == self.proposal).count();
        if agree >= server.quorum() && self.decide_at.is_none() {
            self.decide_at = Some(server.now + SETTLE);
        }
    }

    /// Takes a vote. Returns a member if this vote shows that it leads already, or is about to
    /// lead.
    pub(super) fn hear(
        &mut self,
        server: &mut Server,
        from: usize,
        heard: Notification,
    ) -> Option<usize> {
        let Notification { state, round, vote } = heard;
        if state != State::Looking {
            self.settled.insert(from, heard);
            if round == server.round {
                self.received.insert(from, vote);
            }
            return self.find_settled(server, round, vote);
        }
        self.settled.remove(&from);
        if round < server.round {
            server.notify(from, self.notification(server));
            return None;
        }
        if round > server.round {
            server.round = round;
            self.received.clear();
            self.received.insert(from, vote);
            self.proposal = self.own.max(vote);
            self.vote(server);
            return None;
        }
        self.received.insert(from, vote);
        if vote > self.proposal {
            self.proposal = vote;
            self.vote(server);
        } else {
            self.count(server);
        }
        None
    }

    /// The leader to join: it says itself that it leads, and either a quorum follows it in the same
    /// epoch or a quorum has voted for it in this round. (The followers may have decided in
    /// different rounds.)
    fn find_settled(&self, server: &mut Server, round: u64, vote: Vote) -> Option<usize> {
        let leader = vote.member;
        let follows = |n: &&Notification| n.vote.epoch == vote.epoch && n.vote.member == leader;
        let leads =
            self.settled.get(&leader).filter(follows).is_some_and(|n| n.state == State::Leading);
        let settled = self.settled.values().filter(follows).count();
        let votes = match round == server.round {
            true => self.received.values().filter(|vote| vote.member == leader).count(),
            false => 0,
        };
        if !leads || leader == server.id || settled.max(votes) < server.quorum() {
            return None;
        }
        server.round = round;
        Some(leader)
    }

    pub(super) fn next_timer(&self) -> Duration {
        self.decide_at.map_or(self.repeat_at, |at| at.min(self.repeat_at))
    }

    /// Does what is due. Returns the new leader once the election is decided.
    pub(super) fn timer(&mut self, server: &mut Server) -> Option<usize> {
        if self.decide_at.is_some_and(|at| at <= server.now) {
            return Some(self.proposal.member);
        }
        if self.repeat_at <= server.now {
            for to in 0..server.members {
                server.notify(to, self.notification(server));
            }
            self.repeat_after = (self.repeat_after * 2).min(LAST_REPEAT);
            self.repeat_at = server.now + self.repeat_after;
        }
        None
    }
}
