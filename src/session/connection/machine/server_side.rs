//! The server's side: handshake, replies, watch events, and connections that fail.

use super::*;

impl Machine {
    pub(crate) fn connected(&mut self, now: BootTime) {
        if self.is_over() {
            return; // the socket came up while the session ended, and is closed at the next look
        }
        self.phase = Phase::Greeting(now);
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
        self.resume_after_silence(now);
        if matches!(self.phase, Phase::Down | Phase::Over) {
            return; // the rest of a connection that was given up
        }
        if self.from_server.is_skipping() {
            self.skipped_at = now;
        }
        self.from_server.push(bytes);
        let mut frames = std::mem::take(&mut self.from_server);
        loop {
            // The flight is searched for such a frame only: it can be as long as there are locks.
            let next = if frames.is_next_long()
                && self.flight.iter().any(|flight| op::has_long_answer(flight.op))
            {
                frames.next_or_head()
            } else {
                frames.next().map(|frame| frame.map(Next::Whole))
            };
            let result = match next {
                Ok(Some(Next::Whole(frame))) => self.server_frame(frame, now),
                Ok(Some(Next::Head(head))) => self.server_head(head, now),
                Ok(None) => break,
                Err(e) => Err(e),
            };
            if let Err(Malformed(what)) = result {
                self.detach(format!("does not speak ZooKeeper's protocol: it sent {what}"), now);
            }
            if matches!(self.phase, Phase::Down | Phase::Over) {
                return; // what else came on that connection means nothing now
            }
        }
        self.from_server = frames;
    }

    pub(super) fn server_frame(&mut self, frame: &[u8], now: BootTime) -> Result<(), Malformed> {
        if let Phase::Greeting(sent) = self.phase {
            return self.greeted(ConnectReply::read(frame)?, sent, now);
        }
        let (header, body) = ReplyHeader::read(frame)?;
        self.heard.saw(header.zxid);
        match header.xid {
            xid::EVENT => {
                let (kind, path) = codec::watch_event(body)?;
                self.outputs.push_back(Output::Watch { kind, path: path.to_owned() });
                return Ok(());
            }
            xid::AUTH => return self.authenticated(header.err, now),
            _ => {}
        }
        self.zxid = self.zxid.max(header.zxid);
        let at = self
            .flight
            .iter()
            .position(|f| f.xid == header.xid)
            .ok_or(Malformed("an unknown xid"))?;
        // Callers rely on the order: a listing shows what was done before it. Only a write that a
        // server with eager ACL checks refuses by itself is answered, with zxid 0, before earlier
        // requests.
        let is_refusal = header.zxid == 0 && matches!(header.err, err::NO_AUTH | err::INVALID_ACL);
        let is_callers = |flight: &Flight| matches!(flight.owner, Owner::Batch { .. });
        let is_bound =
            |flight: &Flight| is_callers(flight) && !(is_refusal && op::is_write(flight.op));
        if self.flight.get(at).is_some_and(is_bound) && self.flight.iter().take(at).any(is_callers)
        {
            return Err(Malformed("an answer out of turn"));
        }
        let flight = self.flight.remove(at).ok_or(Malformed("an unknown xid"))?;
        let answer = match flight.op {
            op::SYNC if header.err == err::OK => Answer::Synced,
            op if op::is_write(op) && err::is_committed(header.err) => Answer::Written,
            _ => Answer::Local,
        };
        let is_written = self.heard.answer(&flight.stamp, answer, header.zxid, now);
        if let Some(heard) = flight.stamp.relayed.filter(|_| is_written) {
            self.outputs.push_back(Output::Heard(heard));
        }
        if header.err == err::SESSION_EXPIRED && flight.owner != Owner::Close {
            self.end(LossReason::SessionExpired, now);
            return Ok(());
        }
        if header.err == err::SESSION_MOVED {
            self.detach("the session has moved to another connection".into(), now);
            return Ok(());
        }
        match flight.owner {
            Owner::Nobody => {}
            Owner::Close => self.over(true),
            Owner::Proof => self.proof_answered(flight.op, header.err, now),
            Owner::Task(task) => self.task_answered(task, header.err, is_written, body, now)?,
            Owner::Batch { number, part } => {
                self.batch_answered((number, part), flight.op, header, body, now)?;
            }
        }
        self.send_background(now);
        Ok(())
    }

    /// The head of a frame beyond the longest: a listing of far too many children, or a huge node.
    /// Only the request that it answers fails, and for good: asking again, on whatever connection,
    /// would give the same. The bytes are thrown away as they come, so that what follows them is
    /// still heard.
    fn server_head(&mut self, head: &[u8; HEAD], now: BootTime) -> Result<(), Malformed> {
        let (header, _) = ReplyHeader::read(head)?;
        let is_answered =
            |flight: &Flight| flight.xid == header.xid && op::has_long_answer(flight.op);
        if header.err != err::OK || !self.flight.iter().any(is_answered) {
            return Err(Malformed("a frame of impossible length"));
        }
        self.skipped_at = now;
        let frame = ReplyHeader { err: err::TOO_LONG, ..header }.frame(&[]);
        self.server_frame(frame.get(4..).unwrap_or_default(), now)
    }

    pub(super) fn greeted(
        &mut self,
        reply: ConnectReply,
        sent: BootTime,
        now: BootTime,
    ) -> Result<(), Malformed> {
        let timeout = u64::try_from(reply.timeout_ms).unwrap_or(0);
        match &mut self.session {
            // A server that knows nothing of our session says so by a timeout of zero. Never may
            // another session take its place here: guards and callers mean this one.
            Some(session) if timeout == 0 || reply.session_id != session.id => {
                let line = format!("session 0x{:x}: expired", session.id);
                if self.is_ending() {
                    self.over(true);
                } else {
                    self.end(LossReason::SessionExpired, now);
                }
                self.log(log::Level::Info, line);
                return Ok(());
            }
            Some(session) => {
                session.password = reply.password;
                // Servers may differ in what they allow, and each connection is negotiated anew. A
                // shorter timeout counts at once. A longer one never counts: an earlier server may
                // still report our session with the shorter one, and a new leader starts the
                // session with the one it was made with.
                let timeout = Duration::from_millis(timeout);
                if timeout < session.timeout {
                    let ms = timeout.as_millis();
                    session.timeout = timeout;
                    // Before the line for the log: a logger may block, and holds would stand on
                    // meanwhile.
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
                self.outputs.push_back(Output::Granted { session_id, timeout, sent });
                self.warn_of_tick(timeout);
            }
        }
        self.last_ordered = sent;
        self.heard.attached(self.lag(), sent, now);
        match &self.ending {
            Some(Ending { reason: LossReason::AuthFailed, .. }) => {}
            // Only deletes need them.
            Some(ending) if ending.lasting.is_empty() => {}
            _ => self.show_credentials(now),
        }
        if self.is_ending() {
            self.say_goodbye(now);
            return Ok(());
        }
        self.phase = Phase::Auth(now, self.settings.auth.len());
        self.attach_if_ready(now);
        Ok(())
    }

    /// Before anything else: the server handles credentials in order with what follows.
    fn show_credentials(&mut self, now: BootTime) {
        for (scheme, credentials) in &self.settings.auth {
            let frame = Writer::request(xid::AUTH, op::AUTH)
                .i32(0)
                .buffer(scheme.as_bytes())
                .buffer(credentials)
                .frame();
            self.to_server.extend(frame);
        }
        if !self.settings.auth.is_empty() {
            self.last_sent = now;
        }
    }

    /// Says so where what the application states of the servers' tick does not fit what they grant.
    fn warn_of_tick(&mut self, granted: Duration) {
        let Some(tick) = self.settings.tick else { return };
        let asked = self.settings.timeout;
        let (stated, t) = (tick.as_millis(), granted.as_millis());
        if granted < tick * 2 {
            self.outputs.push_back(Output::warn(format!(
                "a session timeout of {t} ms is less than two of the servers' ticks ({stated} ms as stated): the session is attached anew often to keep its locks; ask for two ticks or more"
            )));
        }
        // By default a server grants 2 to 20 ticks; where it granted another timeout than was asked
        // for, its tick shows.
        let shown = if granted > asked { granted / 2 } else { granted / 20 };
        if granted != asked && tick < shown {
            self.outputs.push_back(Output::warn(format!(
                "server_tick states {stated} ms, but the servers granted {t} ms for {} ms, which looks like a tick of {} ms; if their tick is longer than stated, two holders are possible: state their tickTime",
                asked.as_millis(),
                shown.as_millis()
            )));
        }
    }

    pub(super) fn authenticated(&mut self, code: i32, now: BootTime) -> Result<(), Malformed> {
        if self.is_ending() {
            return Ok(());
        }
        let Phase::Auth(since, left) = self.phase else {
            return Err(Malformed("an answer to credentials that were not sent"));
        };
        if code != err::OK {
            self.phase = Phase::Up; // the server still listens: the session can be closed
            self.end(LossReason::AuthFailed, now);
            self.outputs.push_back(Output::warn(format!(
                "the server refused our credentials (ZooKeeper error {code})"
            )));
            return Ok(());
        }
        self.phase = Phase::Auth(since, left.saturating_sub(1));
        self.attach_if_ready(now);
        Ok(())
    }

    pub(super) fn attach_if_ready(&mut self, now: BootTime) {
        if !matches!(self.phase, Phase::Auth(_, 0)) {
            return;
        }
        self.phase = Phase::Up;
        self.attached = now;
        self.epoch += 1;
        self.outputs.push_back(Output::Attached { epoch: self.epoch, is_first: self.epoch == 1 });
        // What goes first on this connection is decided by the `tick` that follows.
        self.is_new = true;
    }

    /// The connection ended, or never came up.
    pub(crate) fn server_gone(&mut self, reason: &str, now: BootTime) {
        if !self.is_over() {
            self.detach(reason.to_owned(), now);
            self.cut = None; // it is closed already
        }
    }

    /// Gives this connection up; what was sent on it may or may not have been done.
    pub(super) fn detach(&mut self, reason: String, now: BootTime) {
        if self.phase == Phase::Up && !self.is_ending() {
            self.outputs.push_back(Output::Suspended);
        }
        self.phase = Phase::Down;
        self.cut = Some(reason);
        self.from_server.clear();
        self.to_server.clear();
        self.proof.under_way = None;
        self.proof.waiting.clear(); // each caller waits for the connection by its retry policy
        self.background.cut(now);
        self.fail_sent(now);
    }
}
