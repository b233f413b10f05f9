//! The server's side: the handshake, answers, watch events, and connections that fail. The event
//! loop and readers call it with the bytes that they have read.
//!
//! Every byte is checked before a caller sees it. Bytes that are not the protocol end the
//! connection.

use super::*;

/// With this begins the answer of a TLS server to bytes that are not TLS.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

/// A reason for which a server closes a connection without a word.
const TOO_MANY: &str = "has it too many connections from this address (maxClientCnxns; then its \
    log says \"Too many connections\")";

impl Machine {
    pub(crate) fn connected(&mut self, dialled: Dialled, now: BootTime) {
        if self.is_over() {
            // The session ended while the socket was being connected; the next `tick` closes it.
            return;
        }
        self.phase = Phase::Handshake(now);
        self.dialled = dialled;
        self.is_proven = false;
        self.from_server.clear();
        self.to_server.clear();
        let (session_id, password) = match &self.session {
            Some(s) => (s.id, s.password.as_slice()),
            None => (0, [0; 16].as_slice()),
        };
        let request = ConnectRequest {
            last_zxid: self.zxid,
            timeout_ms: i32::try_from(self.timeout().as_millis()).unwrap_or(i32::MAX),
            session_id,
            password,
        };
        self.to_server.extend(request.frame());
        self.last_sent = now;
    }

    pub(crate) fn server_bytes(&mut self, bytes: &[u8], now: BootTime) {
        self.resume_after_silence(self.longest_silence(), now);
        if matches!(self.phase, Phase::Down | Phase::Over) {
            return; // these are the last bytes of a connection that was given up
        }
        let has_begun = self.has_part_of_frame();
        self.from_server.push(bytes);
        let mut frames = std::mem::take(&mut self.from_server);
        loop {
            let expects_long =
                || self.outstanding.iter().any(|request| op::has_long_answer(request.op));
            let result = match frames.next_or_head(expects_long) {
                Ok(Some(FrameOrHead::Frame(frame))) => self.server_frame(frame, now),
                Ok(Some(FrameOrHead::Head(head))) => self.server_head(head, now),
                Ok(None) => break,
                Err(e) => Err(e),
            };
            if let Err(Malformed(what)) = result {
                let reason = if !self.is_greeted() && bytes.starts_with(&TLS_ALERT) {
                    "speaks TLS on this port; connect with the builder's tls()".to_owned()
                } else {
                    format!("does not speak ZooKeeper's protocol: it sent {what}")
                };
                self.disconnect(reason, now);
            }
            if matches!(self.phase, Phase::Down | Phase::Over) {
                return; // that connection was given up, and its other bytes do not count
            }
        }
        self.from_server = frames;
        if has_begun || self.has_part_of_frame() {
            self.partial_at = now;
        }
    }

    /// Whether the rest of a frame is still to come.
    fn has_part_of_frame(&self) -> bool {
        self.from_server.is_skipping() || self.from_server.is_partial()
    }

    /// The request whose answer has come in part. (The answers come in order. An event may come in
    /// between, but it is short.)
    pub(super) fn under_way(&self) -> Option<SentFor> {
        let oldest = self.outstanding.front().filter(|_| self.from_server.is_partial())?;
        Some(oldest.sent_for)
    }

    pub(super) fn server_frame(&mut self, frame: &[u8], now: BootTime) -> Result<(), Malformed> {
        if let Phase::Handshake(sent) = self.phase {
            return self.handshake_answered(ConnectReply::read(frame)?, sent, now);
        }
        let (header, body) = ReplyHeader::read(frame)?;
        self.heard.saw(header.zxid);
        match header.xid {
            xid::EVENT => {
                let (kind, path) = codec::watch_event(body)?;
                self.outputs.push_back(Output::Watch { kind, path: path.to_owned() });
                self.stir_looks(kind, path, now);
                return Ok(());
            }
            xid::AUTH => return self.auth_answered(header.err, now),
            _ => {}
        }
        self.zxid = self.zxid.max(header.zxid);
        if let Phase::Sasl(since, Some(xid)) = self.phase {
            if header.xid == xid {
                return self.sasl_answered(since, header.err, body, now);
            }
        }
        let at = self
            .outstanding
            .iter()
            .position(|f| f.xid == header.xid)
            .ok_or(Malformed("an unknown xid"))?;
        // Callers rely on the order of answers: a listing shows the effect of earlier requests.
        // There is one exception: a server with eager ACL checks refuses a write by itself, with
        // zxid 0, before it answers earlier requests.
        let is_refusal = header.zxid == 0 && matches!(header.err, err::NO_AUTH | err::INVALID_ACL);
        let is_callers = |request: &Outstanding| matches!(request.sent_for, SentFor::Batch { .. });
        let is_bound = |request: &Outstanding| {
            is_callers(request) && !(is_refusal && op::is_write(request.op))
        };
        if self.outstanding.get(at).is_some_and(is_bound)
            && self.outstanding.iter().take(at).any(is_callers)
        {
            return Err(Malformed("an answer out of turn"));
        }
        let request = self.outstanding.remove(at).ok_or(Malformed("an unknown xid"))?;
        let took = now.since(request.stamp.sent);
        self.last_took = took;
        if self.config.is_observed {
            self.outputs.push_back(Output::RoundTrip { op: request.op, took });
        }
        let answer = match request.op {
            op::SYNC if header.err == err::OK => Answer::Synced,
            op if op::is_write(op) && err::is_committed(header.err) => Answer::Written,
            _ => Answer::Local,
        };
        let shown = self.heard.answer(&request.stamp, answer, header.zxid, now);
        let is_written = shown.is_written;
        self.is_proven |= is_written;
        if let Some(heard) = shown.heard {
            self.outputs.push_back(Output::Heard(heard));
        }
        if header.err == err::SESSION_EXPIRED && request.sent_for != SentFor::Close {
            self.end(LossReason::SessionExpired, now);
            return Ok(());
        }
        if header.err == err::SESSION_MOVED {
            self.disconnect("the session has moved to another connection".into(), now);
            return Ok(());
        }
        if header.err == err::REQUIRES_AUTH {
            self.login_missing(now);
            return Ok(());
        }
        self.note_service(header.err, is_written, now);
        match request.sent_for {
            SentFor::Nobody => {}
            SentFor::Close => self.over(true),
            SentFor::Proof => self.proof_answered(request.op, header.err, now),
            SentFor::Task(task) => {
                self.task_answered((task, request.op), header.err, is_written, body, now)?;
            }
            SentFor::Look(number) => {
                self.look_answered((number, request.op), header.err, body, now)?;
            }
            SentFor::Batch { number, part } => {
                self.batch_answered((number, part), request.op, header, body, now)?;
            }
        }
        self.send_background(now);
        self.send_looks(now);
        Ok(())
    }

    /// The head of a frame that is too long: a listing of far too many children, or a huge node.
    /// Only the request that it answers fails, and finally, because any other connection would
    /// bring the same answer. The bytes are skipped as they come, so that the answers after them
    /// are still read.
    fn server_head(&mut self, head: &[u8; HEAD], now: BootTime) -> Result<(), Malformed> {
        let (header, _) = ReplyHeader::read(head)?;
        let is_answered =
            |request: &Outstanding| request.xid == header.xid && op::has_long_answer(request.op);
        if header.err != err::OK || !self.outstanding.iter().any(is_answered) {
            return Err(Malformed("a frame of impossible length"));
        }
        let frame = ReplyHeader { err: err::TOO_LONG, ..header }.frame(&[]);
        self.server_frame(frame.get(4..).unwrap_or_default(), now)
    }

    pub(super) fn handshake_answered(
        &mut self,
        reply: ConnectReply,
        sent: BootTime,
        now: BootTime,
    ) -> Result<(), Malformed> {
        let timeout = u64::try_from(reply.timeout_ms).unwrap_or(0);
        match &mut self.session {
            // A server that does not know our session grants a timeout of zero. Another session
            // must never take the place of ours: guards and callers belong to this session.
            Some(session) if timeout == 0 || reply.session_id != session.id => {
                if self.is_ending() {
                    self.over(self.dialled.is_believed);
                } else if !self.dialled.is_believed {
                    self.is_doubted = true;
                    let reason = "does not know the session; whether its address still belongs to the ensemble is asked of the resolver first";
                    self.disconnect(reason.into(), now);
                } else {
                    self.end(LossReason::SessionExpired, now);
                }
                return Ok(());
            }
            Some(session) => {
                session.password = reply.password;
                // Servers may allow different timeouts, and each connection is negotiated anew. A
                // shorter timeout counts at once. A longer one never counts: an earlier server may
                // still report our session with the shorter timeout, and a new leader starts the
                // session with its first timeout.
                let timeout = Duration::from_millis(timeout);
                if timeout < session.timeout {
                    let ms = timeout.as_millis();
                    session.timeout = timeout;
                    // The shorter lease counts before anything else is done.
                    self.outputs.push_back(Output::Shortened { timeout });
                    self.outputs.push_back(Output::warn(format!(
                        "session 0x{:x}: this server grants a timeout of {ms} ms only; it counts from now on (let all servers of the ensemble grant the same)",
                        session.id
                    )));
                }
            }
            None if timeout == 0 || reply.session_id == 0 => {
                return Err(Malformed("a refusal to make a session"));
            }
            None => {
                let timeout = Duration::from_millis(timeout);
                self.session =
                    Some(Session { id: reply.session_id, password: reply.password, timeout });
                let session_id = reply.session_id;
                self.heard.made(sent);
                self.outputs.push_back(Output::Granted { session_id, timeout, sent });
                self.warn_of_wrong_tick(timeout);
            }
        }
        self.last_ordered = sent;
        self.heard.attached(self.lag(), self.timeout(), sent, now);
        self.log_in(now);
        Ok(())
    }

    /// Warns if the servers' tick as the application states it does not fit the timeout that the
    /// server grants.
    fn warn_of_wrong_tick(&mut self, granted: Duration) {
        let Some(tick) = self.config.tick else { return };
        let asked = self.config.timeout;
        let (stated, t) = (tick.as_millis(), granted.as_millis());
        if granted < tick * 2 {
            self.outputs.push_back(Output::warn(format!(
                "a session timeout of {t} ms is less than two of the servers' ticks ({stated} ms as stated): the session must reconnect often to keep its locks; ask for two ticks or more"
            )));
        }
        // By default a server grants 2 to 20 ticks. If it granted another timeout than the
        // requested one, that shows its tick.
        let shown = if granted > asked { granted / 2 } else { granted / 20 };
        if granted != asked && tick < shown {
            self.outputs.push_back(Output::warn(format!(
                "server_tick states {stated} ms, but the servers granted {t} ms for {} ms, which looks like a tick of {} ms; if their tick is longer than stated, two holders are possible: state their tickTime",
                asked.as_millis(),
                shown.as_millis()
            )));
        }
    }

    /// Whether the last server did not know the session and is not believed; the owner takes this once.
    pub(crate) fn take_doubt(&mut self) -> bool {
        std::mem::take(&mut self.is_doubted)
    }

    /// Our session was presented to the server, which has not answered yet.
    pub(crate) fn is_presented(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_)) && self.session.is_some()
    }

    /// Why the server closed the connection, as far as that can be known; `end` says how it did. A
    /// server that has no quorum, or that has seen less than the session, closes the connection in
    /// the place of an answer to the connect request. One with too many connections from this
    /// address closes each further one, which looks the same.
    pub(crate) fn why_closed(&self, end: String) -> String {
        let zxid = self.zxid;
        match self.phase {
            Phase::Handshake(_) if self.session.is_some() => format!(
                "{end} right after our connect request: did it lose its data, has it no quorum, or {TOO_MANY}? (our session has seen zxid 0x{zxid:x}, and a server that has seen less refuses it)"
            ),
            Phase::Handshake(_) => {
                format!(
                    "{end} right after our connect request: has it no quorum, {TOO_MANY}, or does it want TLS on this port (the builder's tls())?"
                )
            }
            Phase::Sasl(..) => match &self.config.sasl {
                Some(words) => format!("{end} during {}; {}", words.login, words.advice),
                None => end,
            },
            _ => end,
        }
    }

    /// All servers have refused the session since this time. If the application allows it, and it
    /// has lasted long enough, the session is given up.
    pub(crate) fn refused_by_all(&mut self, since: BootTime, now: BootTime) {
        let lasted = now.since(since);
        let is_resumed = matches!(self.phase, Phase::Sasl(..) | Phase::Auth(..) | Phase::Up);
        if is_resumed
            || self.is_ending()
            || self.config.after_data_loss.is_none_or(|after| lasted < after)
        {
            return;
        }
        let id = self.session_id();
        self.end(LossReason::SessionExpired, now);
        self.outputs.push_back(Output::warn(format!(
            "session 0x{id:x}: every server has refused it for {:.1} s, as servers do that have lost their data, so it is given up (after_data_loss)",
            lasted.as_secs_f64()
        )));
    }

    /// The connection ended, or never came up.
    pub(crate) fn server_gone(&mut self, reason: &str, now: BootTime) {
        if !self.is_over() {
            self.disconnect(reason.to_owned(), now);
            self.cut = None; // the socket is closed already
        }
    }

    /// Gives this connection up. The requests that were sent on it may or may not have been done.
    pub(super) fn disconnect(&mut self, reason: String, now: BootTime) {
        if self.phase == Phase::Up && !self.is_ending() {
            self.outputs.push_back(Output::Suspended);
        }
        self.phase = Phase::Down;
        self.cut = Some(reason);
        // A server that ends in the middle of an answer that is not late has cut nothing short.
        let is_late = |oldest: &Outstanding| now >= oldest.stamp.sent + self.timeout() / 12;
        let cut_short = self.under_way().filter(|_| self.outstanding.front().is_some_and(is_late));
        self.from_server.clear();
        self.to_server.clear();
        self.proof.is_under_way = false;
        self.proof.looks_for_commit = false;
        // Their callers wait for the next connection by the retry policy.
        let waiters = self.proof.waiters.drain(..);
        let lost = |waiter: LeaseWaiter| Output::Done(waiter.number, Err(err::CONNECTION_LOSS));
        self.outputs.extend(waiters.map(lost));
        self.background.cut(cut_short, self.timeout() / 8, now);
        self.looks.cut(self.timeout() / 8, now);
        self.fail_sent(cut_short, now);
        if self.ends_without_session() {
            // If a server has made the session, its id is lost, and nothing can close it. The next
            // connection would only make another one.
            self.over(false);
        }
    }
}
