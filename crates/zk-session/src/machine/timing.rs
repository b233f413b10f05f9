//! Time: the event loop calls `tick`, which gives up slow connections and requests, keeps the
//! session alive, renews the lease, and says when to call it again.

use super::*;
use crate::machine::codec::Operation;

impl Machine {
    /// Does what is due, and gives the time of the next call.
    pub(crate) fn tick(&mut self, lease: LeaseStatus, now: BootTime) -> Option<BootTime> {
        let ending_is_due = self.ending.as_ref().is_some_and(|ending| now >= ending.until);
        if self.phase != Phase::Over && ending_is_due {
            self.over(false);
        }
        if self.phase == Phase::Up
            && self.ending.as_ref().is_some_and(|ending| !ending.is_close_sent)
        {
            self.send_close(now);
        }
        match self.phase {
            Phase::Over => return None,
            Phase::Handshake(since) | Phase::Auth(since, _) if now >= since + self.attempt() => {
                let waited = self.attempt().as_millis();
                self.disconnect(
                    format!("accepted the connection, but gave no session within {waited} ms"),
                    now,
                );
            }
            Phase::Up => self.tick_up(lease, now),
            _ => {}
        }
        self.fail_overdue(now);
        self.next_time(lease, now)
    }

    fn tick_up(&mut self, lease: LeaseStatus, now: BootTime) {
        let is_overdue = self.overdue_at().is_some_and(|overdue_at| now >= overdue_at);
        if let Some(oldest) = self.outstanding.front().filter(|_| is_overdue) {
            let waited = now.since(oldest.stamp.sent).as_millis();
            self.disconnect(format!("gave no answer for {waited} ms"), now);
            return;
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
        // On a new connection the lease comes first, if holds depend on it or callers wait for it:
        // it was not renewed during the outage. Then come the deletes, so that the creates that
        // follow do not find our old nodes.
        if std::mem::take(&mut self.is_new) && self.is_lease_needed(lease) {
            self.renew_lease(now);
        }
        self.background.forget_late(now);
        self.send_background(now);
        self.send_looks(now);
        self.send_unsent(now);
        if lease.is_fresh {
            for waiter in self.proof.waiters.drain(..) {
                self.outputs.push_back(Output::Done(waiter.number, Ok(())));
            }
        }
        if self.next_proof(lease).is_some_and(|next| now >= next) {
            if self.is_lease_needed(lease) || !self.background.late.is_empty() {
                self.renew_lease(now);
            } else {
                // This shows whether the server still has a leader.
                self.send(&Operation::Sync, SentFor::Nobody, now);
            }
        }
        if now >= self.last_sent + self.keep_alive(lease) {
            self.send_ping(now);
        }
    }

    fn send_ping(&mut self, now: BootTime) {
        self.to_server = Operation::Ping.encode(xid::PING, std::mem::take(&mut self.to_server));
        self.sent(xid::PING, op::PING, SentFor::Nobody, now);
    }

    /// The longest silence towards the server.
    fn keep_alive(&self, lease: LeaseStatus) -> Duration {
        self.timeout() / if self.is_lease_needed(lease) { 16 } else { 8 }
    }

    /// Whether a hold depends on the lease, or a caller waits until it is fresh.
    fn is_lease_needed(&self, lease: LeaseStatus) -> bool {
        lease.end.is_some() || self.is_proof_awaited()
    }

    /// If nothing was sent for T/3, this process was stopped or got no processor. Then writes on
    /// this connection cannot prove for a while that the leader heard of us lately. But the leader
    /// checks the session when it is attached to a new connection, and that proves it at once. So
    /// this connection is given up.
    pub(super) fn resume_after_silence(&mut self, now: BootTime) {
        let silence = now.since(self.last_sent);
        if self.phase == Phase::Up && !self.is_ending() && silence >= self.timeout() / 3 {
            let ms = silence.as_millis();
            self.disconnect(
                format!("this process sent nothing for {ms} ms, so the session reconnects"),
                now,
            );
        }
    }

    /// If answers are slow or the tick is long, the proofs on this connection may show too little.
    /// Then holds would be lost and callers would wait although the session lives. A new connection
    /// shows more, so this connection is given up.
    fn resume_where_proofs_show_too_little(&mut self, lease: LeaseStatus, now: BootTime) {
        let t = self.timeout();
        let is_short = lease.end.is_some_and(|end| end.since(now) < t / 4);
        let is_late = self.proof.waiters.first().is_some_and(|first| now >= first.since + t / 6);
        if (is_short || is_late) && now >= self.up_since + t / 4 {
            self.disconnect(
                "the lease could not be renewed on it in time, so the session reconnects".into(),
                now,
            );
        }
    }

    /// Whether callers wait until the lease is fresh. A `tick` that finds the lease fresh answers
    /// them.
    pub(crate) fn is_proof_awaited(&self) -> bool {
        !self.proof.waiters.is_empty()
    }

    /// Renews the lease. When it is fresh, [`Output::Done`] comes with the number that this gives;
    /// an error if the connection is lost before. On a new connection the renewal is sent by the
    /// next `tick`. `None` if there is no connection: the caller waits for one by the retry policy,
    /// not here.
    pub(crate) fn prove(&mut self, now: BootTime) -> Option<u64> {
        self.resume_after_silence(now);
        if self.phase != Phase::Up || self.is_ending() {
            return None;
        }
        let number = self.new_number();
        self.proof.waiters.push(LeaseWaiter { since: now, number });
        if self.is_up() {
            self.renew_lease(now);
        }
        Some(number)
    }

    /// Renews the lease: first a `sync`, if that gains enough, and after its answer a write.
    ///
    /// The same is done while a create may still be done late. If it was done, the write is refused,
    /// because the session has moved (`removal`). A `sync` would be answered all the same:
    /// `ProposalRequestProcessor.processRequest` passes it on without a look at the owner.
    fn renew_lease(&mut self, now: BootTime) {
        if std::mem::replace(&mut self.proof.is_under_way, true) {
            return;
        }
        self.proof.begun = now;
        if self.heard.would_gain(self.timeout() / 16, now) {
            self.send(&Operation::Sync, SentFor::Proof, now);
        } else {
            self.send_noop(now);
        }
    }

    fn send_noop(&mut self, now: BootTime) {
        let path = self.config.noop.clone();
        self.send(&Operation::Delete { path: &path, version: None }, SentFor::Proof, now);
    }

    /// Takes the answer to the `sync` or the write of a renewal.
    pub(super) fn proof_answered(&mut self, op: i32, code: i32, now: BootTime) {
        self.proof.is_under_way = op == op::SYNC && code == err::OK;
        if self.proof.is_under_way {
            self.send_noop(now);
        }
    }

    /// The time of the next request that the leader must serve: a server that has lost its leader
    /// still answers pings. `None` while a renewal is under way.
    fn next_proof(&self, lease: LeaseStatus) -> Option<BootTime> {
        let t = self.timeout();
        let earliest = self.proof.begun + t / 16;
        match (self.proof.is_under_way, lease.end) {
            (true, _) => None,
            (false, _) if self.is_proof_awaited() => Some(earliest),
            // The renewal comes well before the end of the lease, however often other writes are
            // acknowledged.
            (false, Some(end)) => {
                Some((self.last_ordered + t / 6).min(end.before(t / 3)).max(earliest))
            }
            // Other threads' `sync`s do not put off the write that is needed here.
            (false, None) if !self.background.late.is_empty() => {
                Some(self.last_ordered.min(self.proof.begun) + t / 4)
            }
            (false, None) => Some(self.last_ordered + t / 4),
        }
    }

    /// The time at which the connection is given up because the oldest request has no answer.
    ///
    /// That is T/6 after the request was sent. While the bytes of a long answer come, T/6 counts
    /// from the last of them, because other answers come only after that answer. But no request
    /// waits longer than T/3: a server that sends the bytes one by one is given up too. (A renewal
    /// of the lease that waits so long may come too late, and then the lease ends.)
    ///
    /// It is safe to wait: only answers extend a lease, and the end of a lease does not wait for an
    /// answer. No caller waits longer either: each request of a caller is answered after T/6
    /// whatever the connection does.
    pub(super) fn overdue_at(&self) -> Option<BootTime> {
        let sent = self.outstanding.front()?.stamp.sent;
        Some(
            (sent.max(self.skipped_at) + self.operation_timeout())
                .min(sent + self.operation_timeout() * 2),
        )
    }

    fn next_time(&self, lease: LeaseStatus, now: BootTime) -> Option<BootTime> {
        let phase = match self.phase {
            Phase::Handshake(since) | Phase::Auth(since, _) => Some(since + self.attempt()),
            Phase::Up if self.is_ending() => self.overdue_at(),
            Phase::Up => {
                // A hold that is granted meanwhile shortens `keep_alive`. So `tick` runs every
                // T/16, to notice it.
                let look = now + self.timeout() / 16;
                let idle = self.last_sent + self.keep_alive(lease);
                let times = [
                    self.overdue_at(),
                    self.background.next_time(),
                    self.next_look(),
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
