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
            let waited = now.since(oldest.stamp.sent).as_millis();
            self.detach(format!("gave no answer for {waited} ms"), now);
            return;
        }
        if self.is_ending() {
            return;
        }
        self.resume_after_silence(now);
        if self.phase == Phase::Up {
            self.resume_where_proofs_show_too_little(now);
        }
        self.send_chores(now);
        if self.phase == Phase::Up && self.next_proof().is_some_and(|next| now >= next) {
            self.renew_lease(now);
        }
        if self.phase == Phase::Up && now >= self.last_sent + self.keep_alive() {
            let frame = Writer::request(xid::PING, op::PING).frame();
            self.send(xid::PING, op::PING, Owner::Link, &frame, now);
        }
    }

    /// The longest silence towards the server.
    fn keep_alive(&self) -> Duration {
        let is_needed = self.shared.lease.is_needed() || !self.proof.waiting.is_empty();
        self.timeout() / if is_needed { 16 } else { 8 }
    }

    /// This process may have sent nothing for T/3: it was stopped, or got no processor. Then writes
    /// on this connection prove nothing recent for a while. The leader checks the session when it
    /// attaches anew, which proves it at once.
    pub(super) fn resume_after_silence(&mut self, now: BootTime) {
        let silence = now.since(self.last_sent);
        if self.phase == Phase::Up && !self.is_ending() && silence >= self.timeout() / 3 {
            let ms = silence.as_millis();
            self.detach(format!("this process sent nothing for {ms} ms: attaching anew"), now);
        }
    }

    /// Where answers are slow, or the tick is long, the proofs on this connection can show too
    /// little: holds would be lost, and callers would wait, though the session lives. To attach
    /// anew shows more.
    fn resume_where_proofs_show_too_little(&mut self, now: BootTime) {
        let t = self.timeout();
        let holds_end = self.shared.lease.end_time().filter(|_| self.shared.lease.is_needed());
        let is_short = holds_end.is_some_and(|end| end.since(now) < t / 4);
        let is_late = self.proof.waiting.first().is_some_and(|first| now >= first.since + t / 6);
        if (is_short || is_late) && now >= self.attached + t / 4 {
            self.detach("the lease could not be renewed on it in time: attaching anew".into(), now);
        }
    }

    /// Renews the lease, if there are holds or callers wait for it: a `sync`, if that gains enough,
    /// and behind its answer a write. Otherwise sends a `sync` alone, which shows whether the server
    /// still has a leader.
    pub(super) fn renew_lease(&mut self, now: BootTime) {
        let waiting = self.proof.waiting.first().map(|first| first.dir.clone());
        let Some(dir) = waiting.or_else(|| self.shared.lease.a_directory()) else {
            return self.send_sync(Owner::Link, now);
        };
        if self.proof.under_way.is_some() {
            return;
        }
        self.proof.begun = now;
        if self.heard.would_gain(self.timeout() / 16, now) {
            self.send_sync(Owner::Proof, now);
        } else {
            self.send_noop(&dir, now);
        }
        self.proof.under_way = Some(dir);
    }

    fn send_sync(&mut self, owner: Owner, now: BootTime) {
        let xid = self.new_xid();
        let frame = Writer::request(xid, op::SYNC).buffer(b"/").frame();
        self.send(xid, op::SYNC, owner, &frame, now);
    }

    fn send_noop(&mut self, dir: &str, now: BootTime) {
        let xid = self.new_xid();
        let frame = self.chores.noop(xid, dir);
        self.send(xid, op::DELETE, Owner::Proof, &frame, now);
    }

    /// One of the two requests of a proof was answered.
    pub(super) fn proof_answered(&mut self, op: i32, code: i32, now: BootTime) {
        let Some(dir) = self.proof.under_way.take() else { return };
        if op == op::SYNC && code == err::OK {
            self.send_noop(&dir, now);
            self.proof.under_way = Some(dir);
        } else if self.shared.lease.is_fresh(now) {
            for waiting in self.proof.waiting.drain(..) {
                let _ = waiting.done.try_send(Ok(())); // its caller may have left
            }
        }
    }

    /// When the leader must next be asked for an answer: a ping alone would stay on a follower that
    /// has lost its leader. `None` while a proof is under way.
    pub(super) fn next_proof(&self) -> Option<BootTime> {
        let (t, lease) = (self.timeout(), &self.shared.lease);
        let earliest = self.proof.begun + t / 16;
        let end = lease.end_time().filter(|_| lease.is_needed());
        match (&self.proof.under_way, end) {
            (Some(_), _) => None,
            (None, _) if !self.proof.waiting.is_empty() => Some(earliest),
            // In good time before the lease ends, however often other writes are acknowledged.
            (None, Some(end)) => Some((self.last_ordered + t / 6).min(end.before(t / 3)).max(earliest)),
            (None, None) => Some(self.last_ordered + t / 4),
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
                let idle = self.last_sent + self.keep_alive();
                let times =
                    [self.overdue_at(), self.chores.next_time(), self.next_proof(), Some(look.min(idle))];
                times.into_iter().flatten().min()
            }
            Phase::Down | Phase::Over => None,
        };
        let end = self.ending.as_ref().map(|e| e.until);
        [asked, phase, end].into_iter().flatten().min()
    }
}
