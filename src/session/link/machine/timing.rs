//! Time: what is overdue, what keeps the session alive, when to look again.

use super::*;

impl Machine {
    /// Does what is due, and says when to come again.
    pub(crate) fn tick(&mut self, now: BootTime) -> Option<BootTime> {
        if let Some(ending) = &self.ending
            && self.phase != Phase::Over
            && now >= ending.until
        {
            self.over(false);
        }
        match self.phase {
            Phase::Over => return None,
            Phase::Greeting(since) | Phase::Auth(since, _) if now >= since + self.attempt() => {
                let waited = self.attempt().as_millis();
                self.detach(format!("accepted the connection, but gave no session within {waited} ms"), now);
            }
            Phase::Up => self.tick_up(now),
            _ => {}
        }
        while self.asked.front().is_some_and(|a| now >= a.arrived + self.patience()) {
            // Sent late, after an outage: the connection is not to blame, only the answer comes too late.
            if let Some(flight) = self.flight.iter_mut().find(|f| f.owner == Owner::Crate) {
                flight.owner = Owner::Link;
            }
            self.refuse_oldest(err::CONNECTION_LOSS);
        }
        self.next_time(now)
    }

    pub(super) fn tick_up(&mut self, now: BootTime) {
        if let (Some(oldest), Some(overdue_at)) = (self.flight.front(), self.overdue_at())
            && now >= overdue_at
        {
            let waited = now.since(oldest.sent).as_millis();
            self.detach(format!("gave no answer for {waited} ms"), now);
            return;
        }
        if self.is_ending() {
            return;
        }
        self.send_chores(now);
        if now >= self.next_proof() {
            self.send_proof(now);
        }
        if now >= self.last_sent + self.timeout() / 8 {
            let frame = Writer::request(xid::PING, op::PING).frame();
            self.send(xid::PING, op::PING, Owner::Link, &frame, now);
        }
    }

    /// Asks the leader for an answer: by a write, where holds depend on it.
    pub(super) fn send_proof(&mut self, now: BootTime) {
        let xid = self.new_xid();
        if self.shared.lease.is_needed() && self.settings.proof == LeaseProof::Quorum {
            let frame = self.chores.noop(xid);
            self.send(xid, op::DELETE, Owner::Link, &frame, now);
        } else {
            let frame = Writer::request(xid, op::SYNC).buffer(b"/").frame();
            self.send(xid, op::SYNC, Owner::Link, &frame, now);
            self.last_sync = now;
        }
    }

    /// When the leader must next be asked for an answer: a ping alone would stay on a follower that
    /// has lost its leader.
    pub(super) fn next_proof(&self) -> BootTime {
        match (self.shared.lease.is_needed(), self.settings.proof) {
            (true, LeaseProof::Quorum) => self.last_write + self.timeout() / 6,
            (true, LeaseProof::Leader) => self.last_write.max(self.last_sync) + self.timeout() / 6,
            (false, _) => self.last_write.max(self.last_sync) + self.timeout() / 4,
        }
    }

    pub(super) fn next_time(&self, now: BootTime) -> Option<BootTime> {
        let patience = self.patience();
        let asked = self.asked.front().map(|a| a.arrived + patience);
        let phase = match self.phase {
            Phase::Greeting(since) | Phase::Auth(since, _) => Some(since + self.attempt()),
            Phase::Up if self.is_ending() => self.overdue_at(),
            Phase::Up => {
                // A hold that came of the traffic just seen gets its watch in time. Holds are not
                // announced (that would cost each of them a wake-up): they are found by looking.
                let watch = self.last_traffic + WATCH_AFTER + Duration::from_millis(5);
                let look = if watch > now { watch } else { now + self.timeout() / 16 };
                let idle = (self.last_sent + self.timeout() / 8).min(self.next_proof());
                [self.overdue_at(), self.chores.next_time(), Some(look.min(idle))].into_iter().flatten().min()
            }
            Phase::Down | Phase::Over => None,
        };
        let end = self.ending.as_ref().map(|e| e.until);
        [asked, phase, end].into_iter().flatten().min()
    }
}
