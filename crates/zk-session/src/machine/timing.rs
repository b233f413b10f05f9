//! Time: the event loop calls `tick`, which gives up slow connections and requests, keeps the
//! session alive, renews the lease, and says when to call it again.

use std::hash::{DefaultHasher, Hash, Hasher};

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
            Phase::Handshake(since) | Phase::Sasl(since, _) | Phase::Auth(since, _)
                if now >= since + self.dialled.bound =>
            {
                self.disconnect(self.why_not_up(), now);
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
        self.held_since = lease.end.and(self.held_since.or(Some(now)));
        self.resume_after_silence(self.longest_silence(), now);
        // A waiter's lease may be short when it is granted the lock.
        let is_short = lease.end.is_some_and(|end| end.since(now) < self.timeout() / 3);
        if self.phase == Phase::Up && self.held_since == Some(now) && is_short && self.is_slow() {
            self.renew_lease(now);
        }
        if self.phase == Phase::Up {
            self.resume_where_proofs_show_too_little(lease, now);
        }
        if self.phase != Phase::Up {
            return;
        }
        // Its answers are refusals that pass, or none to a write. (This connection has had time to
        // serve a request. An earlier one may have had none.)
        let t = self.timeout();
        if self.unserved_since().is_some_and(|since| now >= (since + t).max(self.up_since + t / 3))
        {
            self.let_go(now);
            return;
        }
        // On a new connection the lease comes first, if holds depend on it or callers wait for it:
        // it was not renewed during the outage. Then come the deletes, so that the creates that
        // follow do not find our old nodes.
        if std::mem::take(&mut self.is_new) && self.is_lease_needed(lease) {
            self.renew_lease(now);
        }
        self.background.look_for_past(now);
        self.send_background(now);
        self.send_looks(now);
        self.send_unsent(now);
        if lease.is_fresh {
            for waiter in self.proof.waiters.drain(..) {
                self.outputs.push_back(Output::Done(waiter.number, Ok(())));
            }
        }
        if self.next_renewal(lease).is_some_and(|next| now >= next) {
            self.renew_lease(now);
        }
        if self.next_upkeep(lease).is_some_and(|next| now >= next) {
            self.send_upkeep(lease, now);
        }
    }

    /// Sends what keeps the session alive and, if a hold depends on it, the lease.
    ///
    /// It is a `sync`, because a `sync` does three things. The server hears of us. A server that
    /// has lost its leader gives no answer, so this connection is given up; it would answer a ping.
    /// And each of the three steps that show what the leader has heard may be a `sync`
    /// (`lease/heard.rs`). With one in each eighth of T, the last one of these steps shows a time
    /// that is half of T ago (the tick of the servers is at most T/2), and the lease never has less
    /// than T/4 left.
    ///
    /// The lease needs a commit too. If none was shown for long, a write without an effect is sent
    /// in place of the `sync`.
    fn send_upkeep(&mut self, lease: LeaseStatus, now: BootTime) {
        if lease.end.is_none() {
            self.send(&Operation::Sync, SentFor::Nobody, now);
            return;
        }
        let age = self.heard.committed().map(|committed| now.since(committed));
        let is_old = |wait| age.is_none_or(|age| age >= wait);
        if self.config.leader_serves && is_old(self.own_write_after()) {
            self.send_noop(SentFor::Nobody, now);
        } else if !self.config.leader_serves && is_old(self.commit_wait()) {
            // The other holders need a commit as well, and see the first one that is made. So this
            // session asks first whether there is one.
            self.proof.begun = now;
            self.proof.is_under_way = true;
            self.proof.looks_for_commit = true;
            if now >= self.next_slot(lease) {
                self.send(&Operation::Sync, SentFor::Proof, now);
            } else {
                self.send_between(&Operation::Sync, now);
            }
        } else {
            self.send(&Operation::Sync, SentFor::Nobody, now);
        }
    }

    /// How old the newest commit may become before a write of this session's own makes another, if
    /// nobody else's writes count: as old as what the leader has heard becomes. That is as many
    /// eighths of T as the lag takes, and two for the two steps behind it.
    fn own_write_after(&self) -> Duration {
        let (lag, eighth) = (self.lag().as_nanos(), (self.timeout() / 8).as_nanos().max(1));
        let steps = u32::try_from(lag.div_ceil(eighth)).unwrap_or(u32::MAX).min(3) + 2;
        self.timeout() * (2 * steps - 1) / 16
    }

    /// Sends a request of a look for a commit. It comes at any time, and does not put off what is
    /// sent in each eighth of T.
    fn send_between(&mut self, operation: &Operation<'_>, now: BootTime) {
        let last_ordered = self.last_ordered;
        self.send(operation, SentFor::Proof, now);
        self.last_ordered = last_ordered;
    }

    /// Whether the last answer took so long that more upkeep is needed: then the steps that show
    /// what the leader has heard are further apart.
    fn is_slow(&self) -> bool {
        self.last_took > self.timeout() / 32
    }

    /// How old the newest commit may become before this session makes one, if other clients' writes
    /// count.
    ///
    /// Many sessions may hold something and need a commit at about the same time. Each draws a
    /// moment in the same quarter of T, late ones by far more often than early ones: so some
    /// session is first, its write is seen by the others before their moments come, and there are
    /// few such writes, however many sessions there are.
    fn commit_wait(&self) -> Duration {
        // The number of sessions for which the draw is made; with fewer it costs nothing.
        const MANY: f64 = 10_000.0;
        // The path of the no-op has an id of this session alone, so the draws of sessions differ.
        let mut drawn = DefaultHasher::new();
        (&self.config.noop, self.proof.looks).hash(&mut drawn);
        let drawn = f64::from((drawn.finish() >> 32) as u32) / f64::from(u32::MAX);
        let late = (drawn * (MANY - 1.0)).ln_1p() / MANY.ln();
        self.timeout() * 3 / 8 + (self.timeout() / 4).mul_f64(late)
    }

    /// When the next request of the upkeep is due that comes at regular times.
    fn next_slot(&self, lease: LeaseStatus) -> BootTime {
        let part = match (lease.end, self.is_slow()) {
            (None, _) => 4,
            (Some(_), false) => 8,
            (Some(_), true) => 16,
        };
        self.last_ordered + self.timeout() / part
    }

    /// When `send_upkeep` is due. `None` while a renewal is under way.
    fn next_upkeep(&self, lease: LeaseStatus) -> Option<BootTime> {
        if self.proof.is_under_way {
            return None;
        }
        let next = self.next_slot(lease);
        let committed =
            self.heard.committed().filter(|_| lease.end.is_some() && !self.config.leader_serves);
        let look = committed.map(|committed| {
            (committed + self.commit_wait()).max(self.proof.begun + self.timeout() / 16)
        });
        Some(look.map_or(next, |look| look.min(next)))
    }

    /// Whether a hold depends on the lease, or a caller waits until it is fresh.
    fn is_lease_needed(&self, lease: LeaseStatus) -> bool {
        lease.end.is_some() || self.is_proof_awaited()
    }

    /// If nothing was sent for T/3, this process was stopped or got no processor. Then writes on
    /// this connection cannot prove for a while that the leader heard of us lately. But the leader
    /// checks the session when it is attached to a new connection, and that proves it at once. So
    /// this connection is given up.
    pub(super) fn resume_after_silence(&mut self, longest: Duration, now: BootTime) {
        let silence = now.since(self.last_sent);
        if self.phase == Phase::Up && !self.is_ending() && silence >= longest {
            let ms = silence.as_millis();
            self.disconnect(
                format!("this process sent nothing for {ms} ms, so the session reconnects"),
                now,
            );
        }
    }

    /// An idle session sends something each T/4, and loses nothing if that is late.
    pub(super) fn longest_silence(&self) -> Duration {
        self.timeout() / if self.held_since.is_some() || self.is_proof_awaited() { 3 } else { 2 }
    }

    /// If answers are slow or the tick is long, the proofs on this connection may show too little.
    /// Then holds would be lost and callers would wait although the session lives. A new connection
    /// shows more, so this connection is given up.
    ///
    /// That says nothing of the first renewal for a hold, as the lease of a waiter may be short.
    /// Where answers are slow, a new connection would come later than the two answers of that
    /// renewal. If the server is silent, the connection is given up T/6 after the request.
    fn resume_where_proofs_show_too_little(&mut self, lease: LeaseStatus, now: BootTime) {
        let t = self.timeout();
        let least = if self.is_slow() { t / 4 } else { t / 6 };
        let is_first = self.held_since.is_some_and(|since| self.proof.begun <= since);
        let is_first = is_first && self.proof.is_under_way && self.is_slow();
        let is_short = !is_first && lease.end.is_some_and(|end| end.since(now) < least);
        let is_late = !lease.is_fresh && self.late_proof_at().is_some_and(|at| now >= at);
        if is_late || (is_short && now >= self.up_since + t / 4) {
            self.disconnect(
                "the lease could not be renewed on it in time, so the session reconnects".into(),
                now,
            );
        }
    }

    /// When this connection is given up because a caller has waited for T/6 until the lease is
    /// fresh; not before it has stood for T/4.
    fn late_proof_at(&self) -> Option<BootTime> {
        let first = self.proof.waiters.first()?;
        Some((first.since + self.timeout() / 6).max(self.up_since + self.timeout() / 4))
    }

    /// Whether callers wait until the lease is fresh. A `tick` that finds the lease fresh answers
    /// them.
    pub(super) fn is_proof_awaited(&self) -> bool {
        !self.proof.waiters.is_empty()
    }

    /// Whether the renewal is answered for which callers wait. If it has shown nothing newer, the
    /// lease may be fresh all the same, by another thread's request.
    pub(crate) fn has_answered_proof(&self) -> bool {
        self.is_proof_awaited() && !self.proof.is_under_way
    }

    /// Renews the lease. When it is fresh, [`Output::Done`] comes with the number that this gives;
    /// an error if the connection is lost before. On a new connection the renewal is sent by the
    /// next `tick`. `None` if there is no connection: the caller waits for one by the retry policy,
    /// not here.
    pub(crate) fn prove(&mut self, now: BootTime) -> Option<u64> {
        self.resume_after_silence(self.timeout() / 3, now);
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
            self.send_noop(SentFor::Proof, now);
        }
    }

    fn send_noop(&mut self, sent_for: SentFor, now: BootTime) {
        let path = self.config.noop.clone();
        self.send(&Operation::Delete { path: &path, version: None }, sent_for, now);
    }

    /// Takes the answer to the `sync` or the write of a renewal, or to the `sync` that looks
    /// whether another client has written.
    pub(super) fn proof_answered(&mut self, op: i32, code: i32, now: BootTime) {
        self.proof.is_under_way = op == op::SYNC && code == err::OK;
        let looks_for_commit = std::mem::take(&mut self.proof.looks_for_commit);
        if looks_for_commit {
            self.proof.looks += 1;
            let committed = self.heard.committed();
            let is_old = |committed| now.since(committed) >= self.timeout() * 3 / 8;
            // A caller that has come meanwhile waits for a renewal.
            self.proof.is_under_way &= self.is_proof_awaited() || committed.is_none_or(is_old);
        }
        if self.proof.is_under_way && looks_for_commit {
            let path = self.config.noop.clone();
            self.send_between(&Operation::Delete { path: &path, version: None }, now);
        } else if self.proof.is_under_way {
            self.send_noop(SentFor::Proof, now);
        }
    }

    /// When the lease must be renewed at once, because callers wait for it, or it is shorter than
    /// the upkeep leaves it where answers come in time, or a create may still be done late, or no
    /// write was acknowledged since servers have taken the session up. `None`: nothing needs that
    /// now, or a renewal is under way.
    fn next_renewal(&self, lease: LeaseStatus) -> Option<BootTime> {
        let t = self.timeout();
        let earliest = self.proof.begun + t / 16;
        if self.proof.is_under_way {
            return None;
        }
        if self.is_proof_awaited() {
            return Some(earliest);
        }
        // Other threads' `sync`s do not put off the write that is needed here, nor do those of a
        // holder.
        let is_late = !self.background.late.is_empty();
        let late = is_late.then(|| self.last_ordered.min(self.proof.begun) + t / 4);
        let short = lease.end.map(|end| {
            let least = if self.is_slow() { t / 3 } else { t / 4 };
            end.before(least).max(earliest)
        });
        // A server that serves the session ends the time in which it was not served.
        let unserved = self.unserved_since().filter(|_| self.needs_write());
        let unserved = unserved.map(|since| since.max(self.proof.begun) + t / 4);
        [late, short, unserved].into_iter().flatten().min()
    }

    /// The time at which the connection is given up because the oldest request has no answer.
    ///
    /// That is T/6 after the request was sent. While the bytes of an answer come, T/6 counts from
    /// the last of them, because other answers come only after that answer. But no request waits
    /// longer than T/2: a server that sends the bytes one by one is given up too. (T/2 lets an answer
    /// of 3 MB pass on a line of 3 MB/s where T is 3 s. On a new connection the lease is renewed
    /// first, and lasts longer than that.)
    ///
    /// It is safe to wait: only answers extend a lease, and the end of a lease does not wait for an
    /// answer. If a lease runs short meanwhile, the connection is given up earlier
    /// ([`resume_where_proofs_show_too_little`](Self::resume_where_proofs_show_too_little)), and the
    /// next connection renews it before the caller asks again: a caller whose answer was cut short
    /// pauses first. The server hears of the session meanwhile by the requests that wait behind that
    /// answer. Callers do not wait longer than T/6, but for the caller of the answer that comes.
    pub(super) fn overdue_at(&self) -> Option<BootTime> {
        let sent = self.outstanding.front()?.stamp.sent;
        let longest = sent + self.timeout() / 2;
        Some((sent.max(self.partial_at) + self.operation_timeout()).min(longest))
    }

    fn next_time(&self, lease: LeaseStatus, now: BootTime) -> Option<BootTime> {
        let phase = match self.phase {
            Phase::Handshake(since) | Phase::Sasl(since, _) | Phase::Auth(since, _) => {
                Some(since + self.dialled.bound)
            }
            Phase::Up if self.is_ending() => self.overdue_at(),
            Phase::Up => {
                // A hold that is granted meanwhile wants more upkeep. So `tick` runs every T/16, to
                // notice it.
                let look = now + self.timeout() / 16;
                let times = [
                    self.overdue_at(),
                    self.background.next_time(),
                    self.next_look(),
                    self.next_renewal(lease),
                    self.late_proof_at(),
                    self.next_upkeep(lease),
                    Some(look),
                ];
                times.into_iter().flatten().min()
            }
            Phase::Down | Phase::Over => None,
        };
        let end = self.ending.as_ref().map(|e| e.until);
        [self.next_overdue(), phase, end].into_iter().flatten().min()
    }
}
