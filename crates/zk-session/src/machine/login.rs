//! The login on a new connection: by SASL, if the session has that, then with the credentials of
//! other schemes. Only then does the connection carry the session.
//!
//! SASL takes several steps, and each waits for the other side. The machine knows no mechanism: it
//! hands each token of the server to its owner ([`Output::Sasl`]), which answers with
//! [`Machine::sasl`], at once or later. All other credentials are sent in one flight: the server
//! handles them in order with the requests that follow.
//!
//! A server that enforces a login (`enforce.auth.enabled`, `sessionRequireClientSASLAuth`) refuses
//! any other request before it, the close of the session included
//! (`ZooKeeperServer.processPacket`). So a session that ends logs in too before it closes itself.

use super::removal::is_passing;
use super::*;
use crate::machine::codec::CallError;
use zk_wire::record::Reader;

/// What the log and errors say of the session's login by SASL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SaslWords {
    /// The mechanism, and as whom: `SASL DIGEST-MD5 as "alice"`.
    pub(crate) login: String,
    /// What to check if a server refuses it.
    pub(crate) advice: &'static str,
}

/// What the owner's mechanism makes of the server's token.
#[derive(Debug, PartialEq, Eq)]
#[allow(dead_code)] // the features decide which of them are made
pub(crate) enum SaslStep {
    /// This is the answer.
    Send(Vec<u8>),
    /// The login is over. The server has nothing more to say.
    Done,
    /// It cannot go on now, for this reason: the connection is given up, and the next host is
    /// tried.
    Failed(String),
    /// The server is not to be trusted, or does not take this login, for this reason. It counts as
    /// a server that has refused: another server may take the login.
    Refused(String),
}

impl Machine {
    /// The server has taken the session up.
    pub(super) fn log_in(&mut self, now: BootTime) {
        let is_recent = |(_, last): &(BootTime, BootTime)| now < *last + self.timeout() * 3 / 2;
        let (since, _) = self.taken_up.filter(is_recent).unwrap_or((now, now));
        self.taken_up = Some((since, now));
        // If the connections before were too short for any request, one is due at once on this one.
        self.last_ordered = self.last_ordered.min(since);
        if self.ending.as_ref().is_some_and(|ending| ending.is_login_refused) {
            self.send_close(now); // a login would be refused again
        } else if now >= since + self.timeout() && !self.is_ending() {
            self.let_go(now);
        } else if self.config.sasl.is_some() {
            self.phase = Phase::Sasl(now, None);
            self.outputs.push_back(Output::Sasl(None));
        } else {
            self.present_credentials(now);
        }
    }

    /// Notes whether the server serves the session, now that it has answered a request. An
    /// acknowledged write is service. A session that needs no write is served by any answer. Other
    /// answers do not serve a session that holds something or has nodes to delete: it can neither
    /// keep these nodes nor delete them, and they stand. If the server refuses a request for lack of
    /// time, the time without service begins, if it has not begun before.
    pub(super) fn note_service(&mut self, code: i32, is_written: bool, now: BootTime) {
        if is_written || !self.needs_write() {
            self.taken_up = None;
        } else if is_passing(code) {
            self.taken_up.get_or_insert((now, now));
        }
    }

    /// Whether a hold, a caller or a pending delete needs an acknowledged write.
    pub(super) fn needs_write(&self) -> bool {
        self.held_since.is_some() || self.is_proof_awaited() || !self.background.pending.is_empty()
    }

    /// Whether this connection carries the session, and a server has served the session since it was
    /// last taken up. (A server that enforces a login refuses the first request only.)
    pub(crate) fn is_served(&self) -> bool {
        self.is_up() && self.taken_up.is_none()
    }

    /// Since when servers have taken the session up, again and again, and have not served it.
    pub(super) fn unserved_since(&self) -> Option<BootTime> {
        self.taken_up.map(|(since, _)| since)
    }

    /// Servers have taken the session up for T and have not served it: it could not log in, or its
    /// requests got no answers. Each handshake counts at the leader as a sign of life, so the
    /// servers never expire it. Its holds are long lost, and its nodes would stand for as long as
    /// this goes on: no other client would get its locks. So it is given up as if it had expired.
    /// (If no server has taken it up for T and a half in between, that was an outage, and the time
    /// begins again: these handshakes did not keep the session alive. The leader counts in ticks, and
    /// a tick is half of T at most.)
    ///
    /// The close goes out without a login, and nothing waits for its answer. A server that enforces
    /// a login refuses it, and a server that serves nothing does not do it; then the session is not
    /// presented again, and expires after T.
    pub(super) fn let_go(&mut self, now: BootTime) {
        let (id, s) = (self.session_id(), self.timeout().as_secs_f64());
        self.phase = Phase::Up; // the next `tick` sends the close, when all have heard of the loss
        self.end_at_server(LossReason::SessionExpired, true, now);
        self.ending.iter_mut().for_each(|ending| ending.is_login_refused = true);
        self.outputs.push_back(Output::warn(format!(
            "session 0x{id:x}: servers have taken it up for {s:.1} s and neither let it log in nor served a request, so it is given up: otherwise they would keep its nodes, and its locks would stay taken"
        )));
    }

    /// Takes the answer of the owner's mechanism to the last [`Output::Sasl`] of this connection.
    pub(crate) fn sasl(&mut self, step: SaslStep, now: BootTime) {
        let Phase::Sasl(since, None) = self.phase else { return };
        match step {
            SaslStep::Send(token) => {
                let xid = self.new_xid();
                self.to_server.extend(Writer::request(xid, op::SASL).buffer(&token).frame());
                self.last_sent = now;
                self.phase = Phase::Sasl(since, Some(xid));
            }
            SaslStep::Done => self.present_credentials(now),
            SaslStep::Failed(reason) => self.disconnect(reason, now),
            SaslStep::Refused(reason) => self.server_refuses_login(reason, now),
        }
    }

    /// Takes the server's answer to a token.
    pub(super) fn sasl_answered(
        &mut self,
        since: BootTime,
        code: i32,
        body: &[u8],
        now: BootTime,
    ) -> Result<(), Malformed> {
        match code {
            err::OK => {
                let token = Reader::new(body).buffer()?.to_vec();
                self.phase = Phase::Sasl(since, None);
                self.outputs.push_back(Output::Sasl(Some(token)));
            }
            err::AUTH_FAILED | err::REQUIRES_AUTH => {
                let (login, advice) = match &self.config.sasl {
                    Some(words) => (words.login.as_str(), words.advice),
                    None => ("SASL", ""),
                };
                let name = err::name(code);
                self.server_refuses_login(
                    format!("the server refused {login} ({name}); {advice}"),
                    now,
                );
            }
            code => {
                let name = err::name(code);
                self.disconnect(format!("answered the login by SASL with {name}"), now);
            }
        }
        Ok(())
    }

    /// Sends the credentials of the other schemes. A session that ends is closed behind them.
    fn present_credentials(&mut self, now: BootTime) {
        for (scheme, credentials) in &self.config.auth {
            let frame = Writer::request(xid::AUTH, op::AUTH)
                .i32(0)
                .buffer(scheme.as_bytes())
                .buffer(credentials)
                .frame();
            self.to_server.extend(frame);
        }
        if !self.config.auth.is_empty() {
            self.last_sent = now;
        }
        if self.is_ending() {
            self.send_close(now);
            return;
        }
        self.phase = Phase::Auth(now, self.config.auth.len());
        self.up_if_authenticated(now);
    }

    pub(super) fn auth_answered(&mut self, code: i32, now: BootTime) -> Result<(), Malformed> {
        let (since, left) = match self.phase {
            Phase::Auth(since, left) => (since, left),
            _ if self.is_ending() && code == err::OK => return Ok(()),
            _ if self.is_ending() => (now, 0),
            _ => return Err(Malformed("an answer to credentials that were not sent")),
        };
        if code != err::OK {
            let first_left = self.config.auth.len().saturating_sub(left);
            let scheme = self.config.auth.get(first_left).map_or("", |(scheme, _)| scheme);
            let reason = format!(
                "the server refused the credentials of the scheme {scheme} ({}); check them, and whether the servers have that scheme",
                err::name(code)
            );
            self.server_refuses_login(reason, now);
            return Ok(());
        }
        self.phase = Phase::Auth(since, left.saturating_sub(1));
        self.up_if_authenticated(now);
        Ok(())
    }

    /// The server has refused a request because this connection has not logged in as it enforces.
    /// Another server may not enforce it, or not yet: so this counts as a refused login. The request
    /// was not done, and its caller asks again as after any lost connection.
    pub(super) fn login_missing(&mut self, now: BootTime) {
        if self.is_ending() {
            self.over(false); // nor does it take the close
            return;
        }
        let name = err::name(err::REQUIRES_AUTH);
        let reason = match &self.config.sasl {
            None => format!(
                "the server serves only sessions that log in ({name}); give the session a login by SASL, or credentials of a scheme that the server enforces (enforce.auth.schemes)"
            ),
            Some(words) => format!(
                "the server took {}, and still serves only sessions that log in otherwise ({name}); give the session credentials of a scheme that the server enforces (enforce.auth.schemes)",
                words.login
            ),
        };
        self.server_refuses_login(reason, now);
    }

    /// This server refuses the login. Another one may take it: the key or the password of one
    /// server may be wrong, or not be changed yet. So the connection is given up, and the owner
    /// says when all servers have refused ([`all_refuse_login`](Self::all_refuse_login)).
    ///
    /// A session that ends anyway is closed by the next connection without a login: only a server
    /// that enforces one refuses that.
    fn server_refuses_login(&mut self, reason: String, now: BootTime) {
        match &mut self.ending {
            Some(ending) => ending.is_login_refused = true,
            None => self.refused_here = Some(reason.clone()),
        }
        self.disconnect(reason, now);
    }

    /// Why the last server has refused the login, if it has; the owner takes this once.
    pub(crate) fn take_refusal(&mut self) -> Option<String> {
        self.refused_here.take()
    }

    /// No server lets the session in, the last one for this reason: the session is lost.
    pub(crate) fn all_refuse_login(&mut self, reason: String, now: BootTime) {
        if self.is_ending() {
            return;
        }
        self.refusal = Some(reason.clone());
        self.outputs.push_back(Output::Refused(reason.clone()));
        self.end(LossReason::AuthFailed, now);
        self.ending.iter_mut().for_each(|ending| ending.is_login_refused = true);
        self.outputs.push_back(Output::warn(reason));
    }

    /// What a request failed with: it bears the reason if the session has no login.
    pub(super) fn call_error(&self, op: i32, code: i32) -> CallError {
        match &self.refusal {
            Some(reason) if code == err::AUTH_FAILED => CallError::AuthFailed(reason.clone()),
            _ => CallError::of(op, code),
        }
    }

    fn up_if_authenticated(&mut self, now: BootTime) {
        if !matches!(self.phase, Phase::Auth(_, 0)) {
            return;
        }
        self.phase = Phase::Up;
        self.up_since = now;
        self.epoch += 1;
        self.looks_attached();
        self.outputs.push_back(Output::Attached { epoch: self.epoch, is_first: self.epoch == 1 });
        // The `tick` that follows decides what is sent first on this connection.
        self.is_new = true;
    }

    /// What the server, or our own side, has not done in the time of an attempt.
    pub(super) fn why_not_up(&self) -> String {
        let ms = self.dialled.bound.as_millis();
        let words = self.config.sasl.as_ref();
        let login = words.map_or("SASL", |words| words.login.as_str());
        match self.phase {
            Phase::Sasl(_, None) => {
                format!("{login} got no further within {ms} ms: does the KDC answer?")
            }
            Phase::Sasl(_, Some(_)) => format!("did not answer {login} within {ms} ms"),
            _ => format!("accepted the connection, but gave no session within {ms} ms"),
        }
    }
}
