//! Time: what is overdue, what keeps the session alive, when to look again.

use super::*;
use crate::session::connection::codec::Operation;

impl Machine {
    /// Does what is due, and says when to come again. `directory` names a directory of a held node,
    /// where our own writes are allowed; it is asked only if the lease is to be renewed.
    pub(crate) fn tick(
        &mut self,
        lease: Lease,
        directory: &dyn Fn() -> Option<String>,
        now: BootTime,
    ) -> Option<BootTime> {
        let ending_is_due = self.ending.as_ref().is_some_and(|ending| now >= ending.until);
        if self.phase != Phase::Over && ending_is_due {
            self.over(false);
        }
        if self.phase == Phase::Up && self.ending.as_ref().is_some_and(|ending| !ending.is_said) {
            self.say_goodbye(now);
        }
        match self.phase {
            Phase::Over => return None,
            Phase::Greeting(since) | Phase::Auth(since, _) if now >= since + self.attempt() => {
                let waited = self.attempt().as_millis();
                self.detach(
                    format!("accepted the connection, but gave no session within {waited} ms"),
                    now,
                );
            }
            Phase::Up => self.tick_up(lease, directory, now),
            _ => {}
        }
        self.fail_overdue(now);
        self.next_time(lease, now)
    }

    fn tick_up(&mut self, lease: Lease, directory: &dyn Fn() -> Option<String>, now: BootTime) {
        if let (Some(oldest), Some(overdue_at)) = (self.flight.front(), self.overdue_at()) {
            if now >= overdue_at {
                let waited = now.since(oldest.stamp.sent).as_millis();
                self.detach(format!("gave no answer for {waited} ms"), now);
                return;
            }
        }
        if self.is_ending() {
            return;
        }
        self.resume_after_silence(now);
        if self.phase == Phase::Up {
            self.resume_where_proofs_show_too_little(lease, now);
        }
        if self.phase != Phase::Up {
            return;
        }
        // On a new connection: holds depend on the lease, and it was not renewed during the outage.
        // Then deletes: what is created next should find our old nodes gone.
        let is_needed = lease.end.is_some() || !self.proof.waiting.is_empty();
        if std::mem::take(&mut self.is_new) && is_needed {
            self.renew_lease(directory(), now);
        }
        self.send_background(now);
        self.send_unsent(now);
        if lease.is_fresh {
            for waiting in self.proof.waiting.drain(..) {
                self.outputs.push_back(Output::Done(waiting.done, Ok(())));
            }
        }
        if self.next_proof(lease).is_some_and(|next| now >= next) {
            let directory = if lease.end.is_some() { directory() } else { None };
            self.renew_lease(directory, now);
        }
        if now >= self.last_sent + self.keep_alive(lease) {
            self.send_ping(now);
        }
    }

    fn send_ping(&mut self, now: BootTime) {
        self.to_server = Operation::Ping.encode(xid::PING, std::mem::take(&mut self.to_server));
        self.sent(xid::PING, op::PING, Owner::Nobody, now);
    }

    /// The longest silence towards the server.
    fn keep_alive(&self, lease: Lease) -> Duration {
        let is_needed = lease.end.is_some() || !self.proof.waiting.is_empty();
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
    fn resume_where_proofs_show_too_little(&mut self, lease: Lease, now: BootTime) {
        let t = self.timeout();
        let is_short = lease.end.is_some_and(|end| end.since(now) < t / 4);
        let is_late = self.proof.waiting.first().is_some_and(|first| now >= first.since + t / 6);
        if (is_short || is_late) && now >= self.attached + t / 4 {
            self.detach("the lease could not be renewed on it in time: attaching anew".into(), now);
        }
    }

    /// Renews the lease by a write in the directory of a caller that waits, or else in this one: a
    /// `sync`, if that gains enough, and behind its answer the write. Without any directory it
    /// sends a `sync` alone, which shows whether the server still has a leader.
    pub(super) fn renew_lease(&mut self, held: Option<String>, now: BootTime) {
        let waiting = self.proof.waiting.first().map(|first| first.dir.clone());
        let Some(dir) = waiting.or(held) else {
            return self.send(&Operation::Sync, Owner::Nobody, now);
        };
        if self.proof.under_way.is_some() {
            return;
        }
        self.proof.begun = now;
        if self.heard.would_gain(self.timeout() / 16, now) {
            self.send(&Operation::Sync, Owner::Proof, now);
        } else {
            self.send_noop(&dir, now);
        }
        self.proof.under_way = Some(dir);
    }

    fn send_noop(&mut self, dir: &str, now: BootTime) {
        let path = self.noop(dir);
        self.send(&Operation::Delete { path: &path }, Owner::Proof, now);
    }

    /// One of the two requests of a proof was answered.
    pub(super) fn proof_answered(&mut self, op: i32, code: i32, now: BootTime) {
        let Some(dir) = self.proof.under_way.take() else { return };
        if op == op::SYNC && code == err::OK {
            self.send_noop(&dir, now);
            self.proof.under_way = Some(dir);
        }
    }

    /// When the leader must next be asked for an answer: a ping alone would stay on a follower that
    /// has lost its leader. `None` while a proof is under way.
    fn next_proof(&self, lease: Lease) -> Option<BootTime> {
        let t = self.timeout();
        let earliest = self.proof.begun + t / 16;
        match (&self.proof.under_way, lease.end) {
            (Some(_), _) => None,
            (None, _) if !self.proof.waiting.is_empty() => Some(earliest),
            // In good time before the lease ends, however often other writes are acknowledged.
            (None, Some(end)) => {
                Some((self.last_ordered + t / 6).min(end.before(t / 3)).max(earliest))
            }
            (None, None) => Some(self.last_ordered + t / 4),
        }
    }

    /// When the connection is given up because the oldest request has no answer.
    ///
    /// That is T/6 after it was sent. While the bytes of a long answer come, the T/6 count from the
    /// last of them, because other answers wait behind it. But no request waits longer than T/3: a
    /// server that sends the bytes one by one is given up too. (A renewal of the lease that waits
    /// so long may come too late, and the lease ends.)
    ///
    /// Nothing unsafe can come of waiting: only answers extend a lease, and its end waits for none.
    /// Nor does any caller wait for longer: each request is answered after T/6 whatever the
    /// connection does.
    pub(super) fn overdue_at(&self) -> Option<BootTime> {
        let sent = self.flight.front()?.stamp.sent;
        Some(
            (sent.max(self.skipped_at) + self.operation_timeout())
                .min(sent + self.operation_timeout() * 2),
        )
    }

    fn next_time(&self, lease: Lease, now: BootTime) -> Option<BootTime> {
        let phase = match self.phase {
            Phase::Greeting(since) | Phase::Auth(since, _) => Some(since + self.attempt()),
            Phase::Up if self.is_ending() => self.overdue_at(),
            Phase::Up => {
                // A hold that is granted meanwhile wants more: it is found by looking.
                let look = now + self.timeout() / 16;
                let idle = self.last_sent + self.keep_alive(lease);
                let times = [
                    self.overdue_at(),
                    self.background.next_time(),
                    self.next_proof(lease),
                    Some(look.min(idle)),
                ];
                times.into_iter().flatten().min()
            }
            Phase::Down | Phase::Over => None,
        };
        let end = self.ending.as_ref().map(|e| e.until);
        [self.next_overdue(), phase, end].into_iter().flatten().min()
    }
}
