//! The link's decisions, without a socket: bytes and time in; bytes, cuts and events out.
//!
//! On one side is the client crate, which believes that it talks to one server that never fails; on
//! the other is the ensemble. The machine keeps the session, gives every request an answer in time,
//! and reports what happened. See the crate's ARCHITECTURE.md for why it exists.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;

use super::chores::{Chore, Chores};
use crate::clock::BootTime;
use crate::error::LossReason;
use crate::session::config::LeaseProof;
use crate::session::shared::Shared;
use crate::session::wire::code::{err, event, op, xid};
use crate::session::wire::frame::Frames;
use crate::session::wire::record::{ConnectReply, ConnectRequest, ReplyHeader, Writer, request_header};
use crate::session::wire::{Malformed, check};

/// How long a closing session tries to tell the server.
const GOODBYE: Duration = Duration::from_millis(700);

/// A hold this old gets a watch on its node, if it has none yet.
const WATCH_AFTER: Duration = Duration::from_millis(50);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LinkEvent {
    Connected { session_id: i64, timeout: Duration },
    Suspended,
    Reconnected,
    Lost(LossReason),
}

pub(crate) struct Settings {
    pub(crate) timeout: Duration,
    /// How long one host may take to connect and to answer the connect request.
    pub(crate) attempt: Duration,
    pub(crate) auth: Vec<(String, Vec<u8>)>,
    pub(crate) proof: LeaseProof,
    pub(crate) noop_path: String,
}

pub(super) struct Machine {
    settings: Settings,
    shared: Arc<Shared>,
    phase: Phase,
    session: Option<Session>,
    ending: Option<Ending>,
    /// The largest zxid of any reply; watch events carry none.
    zxid: i64,
    next_xid: i32,
    from_crate: Frames,
    from_server: Frames,
    /// What the crate asked and has no answer to yet, oldest first.
    asked: VecDeque<Asked>,
    /// What was sent on this connection and has no answer yet, oldest first.
    flight: VecDeque<Flight>,
    chores: Chores,
    crate_connected: bool,
    crate_close: Option<i32>,
    crate_closed: bool,
    last_sent: BootTime,
    last_write: BootTime,
    last_sync: BootTime,
    last_traffic: BootTime,
    /// What the pump must do: write these, close the server's socket, pass on the events.
    pub(super) to_server: Vec<u8>,
    pub(super) to_crate: Vec<u8>,
    pub(super) cut: Option<String>,
    pub(super) events: Vec<LinkEvent>,
}

struct Session {
    id: i64,
    password: Vec<u8>,
    timeout: Duration,
    attached_before: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No connection; the pump dials.
    Down,
    /// The connect request is sent.
    Greeting(BootTime),
    /// The credentials are sent; so many answers are awaited.
    Auth(BootTime, usize),
    Up,
    /// The session has ended; everything is answered at once.
    Over,
}

struct Ending {
    reason: LossReason,
    until: BootTime,
    /// Whether the server has ended the session.
    told: bool,
    done: Vec<Sender<bool>>,
}

struct Asked {
    xid: i32,
    op: i32,
    frame: Vec<u8>,
    arrived: BootTime,
    sent: bool,
}

struct Flight {
    xid: i32,
    op: i32,
    sent: BootTime,
    owner: Owner,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The first of `asked` that has no answer.
    Crate,
    Chore(u64),
    Close,
    /// Nobody: pings, syncs, no-op writes, requests whose caller has been answered.
    Link,
}

impl Machine {
    pub(super) fn new(settings: Settings, shared: Arc<Shared>, now: BootTime) -> Self {
        Machine {
            chores: Chores::new(settings.noop_path.clone()),
            settings,
            shared,
            phase: Phase::Down,
            session: None,
            ending: None,
            zxid: 0,
            next_xid: 1,
            from_crate: Frames::default(),
            from_server: Frames::default(),
            asked: VecDeque::new(),
            flight: VecDeque::new(),
            crate_connected: false,
            crate_close: None,
            crate_closed: false,
            last_sent: now,
            last_write: now,
            last_sync: now,
            last_traffic: now,
            to_server: Vec::new(),
            to_crate: Vec::new(),
            cut: None,
            events: Vec::new(),
        }
    }

    /// T: the negotiated timeout, or the one asked for as long as there is none.
    fn timeout(&self) -> Duration {
        self.session.as_ref().map_or(self.settings.timeout, |s| s.timeout)
    }

    /// T/6: the longest that anything may go unanswered.
    fn patience(&self) -> Duration {
        self.timeout() / 6
    }

    pub(super) fn wants_connection(&self) -> bool {
        self.phase == Phase::Down
    }

    /// How often the dialler may try at the least, so that a live session is found in time.
    pub(super) fn redial_cap(&self) -> Option<Duration> {
        self.session.as_ref().map(|s| s.timeout / 8)
    }

    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Over
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    // ---- the client crate's side ----

    pub(super) fn crate_bytes(&mut self, bytes: &[u8], now: BootTime) -> Result<(), Malformed> {
        self.last_traffic = now;
        self.from_crate.push(bytes);
        let mut frames = std::mem::take(&mut self.from_crate);
        let mut result = Ok(());
        while result.is_ok() {
            match frames.next() {
                Ok(Some(frame)) => result = self.crate_frame(frame, now),
                Ok(None) => break,
                Err(e) => result = Err(e),
            }
        }
        self.from_crate = frames;
        result
    }

    fn crate_frame(&mut self, frame: &[u8], now: BootTime) -> Result<(), Malformed> {
        if !self.crate_connected {
            self.crate_connected = true;
            // A timeout this long keeps the crate from pinging and from thinking itself expired.
            let reply = ConnectReply { timeout_ms: i32::MAX, session_id: 1, password: vec![0; 16] };
            self.to_crate.extend(reply.frame());
            return Ok(());
        }
        let (xid, op) = request_header(frame)?;
        match op {
            op::PING => self.answer_crate(xid, err::OK),
            op::CLOSE => {
                self.crate_close = Some(xid);
                self.end(LossReason::SessionClosed, now);
                self.settle_crate_close();
            }
            _ => match &self.ending {
                Some(ending) => {
                    let code = code_of(ending.reason);
                    self.answer_crate(xid, code);
                }
                None => {
                    let op = if op == op::CREATE && frame.ends_with(&4i32.to_be_bytes()) {
                        op::CREATE_CONTAINER // the crate makes a persistent node of its Container mode
                    } else {
                        op
                    };
                    let frame = frame.to_vec();
                    self.asked.push_back(Asked { xid, op, frame, arrived: now, sent: false });
                    self.forward(now);
                }
            },
        }
        Ok(())
    }

    fn answer_crate(&mut self, xid: i32, err: i32) {
        self.to_crate.extend(ReplyHeader { xid, zxid: 0, err }.frame(&[]));
    }

    /// Once the session is over the crate's own close request can be answered.
    fn settle_crate_close(&mut self) {
        if self.is_over()
            && let Some(xid) = self.crate_close.take()
        {
            self.answer_crate(xid, err::OK);
            self.crate_closed = true;
        }
    }

    /// Whether the crate's close request is answered: its socket should close soon.
    pub(super) fn crate_is_closed(&self) -> bool {
        self.crate_closed
    }

    // ---- requests to the server ----

    fn new_xid(&mut self) -> i32 {
        self.next_xid = self.next_xid.checked_add(1).unwrap_or(1);
        self.next_xid
    }

    fn send(&mut self, xid: i32, op: i32, owner: Owner, frame: &[u8], now: BootTime) {
        self.to_server.extend_from_slice(frame);
        self.flight.push_back(Flight { xid, op, sent: now, owner });
        self.last_sent = now;
        if op::is_write(op) {
            self.last_write = now;
        }
    }

    /// Sends what the crate asked and was not sent yet, under our own xids.
    fn forward(&mut self, now: BootTime) {
        if self.phase != Phase::Up {
            return;
        }
        for i in 0..self.asked.len() {
            let xid = if self.asked[i].sent { continue } else { self.new_xid() };
            let asked = &mut self.asked[i];
            asked.sent = true;
            let (op, body) = (asked.op, std::mem::take(&mut asked.frame));
            let mut frame = Writer::request(xid, op).frame();
            frame.extend_from_slice(body.get(8..).unwrap_or_default());
            let length = (frame.len() - 4) as i32;
            frame[..4].copy_from_slice(&length.to_be_bytes());
            self.send(xid, op, Owner::Crate, &frame, now);
        }
    }

    fn send_chores(&mut self, now: BootTime) {
        if self.phase != Phase::Up || self.is_ending() {
            return;
        }
        let attach = self.shared.attach();
        for hold in self.shared.lease.unarmed(attach, WATCH_AFTER, now) {
            hold.set_armed_on(attach);
            self.chores.add(Chore::Watch { hold }, now);
        }
        for id in self.chores.due(now) {
            let xid = self.new_xid();
            if let Some((op, frame)) = self.chores.request(id, xid) {
                self.send(xid, op, Owner::Chore(id), &frame, now);
            }
        }
    }

    pub(super) fn chore(&mut self, chore: Chore, now: BootTime) {
        self.last_traffic = now;
        if self.is_ending() {
            return; // its sender is dropped: the session is lost
        }
        self.chores.add(chore, now);
        self.send_chores(now);
    }

    /// Looks for holds that need a watch now.
    pub(super) fn wake(&mut self, now: BootTime) {
        self.send_chores(now);
    }

    // ---- the server's side ----

    pub(super) fn connected(&mut self, now: BootTime) {
        self.phase = Phase::Greeting(now);
        self.from_server.clear();
        self.to_server.clear();
        let (session_id, password) = match &self.session {
            Some(s) => (s.id, s.password.as_slice()),
            None => (0, [0; 16].as_slice()),
        };
        let request = ConnectRequest {
            last_zxid: self.zxid,
            timeout_ms: i32::try_from(self.settings.timeout.as_millis()).unwrap_or(i32::MAX),
            session_id,
            password,
        };
        self.to_server.extend(request.frame());
        self.last_sent = now;
    }

    pub(super) fn server_bytes(&mut self, bytes: &[u8], now: BootTime) {
        if matches!(self.phase, Phase::Down | Phase::Over) {
            return; // the rest of a connection that was given up
        }
        self.from_server.push(bytes);
        let mut frames = std::mem::take(&mut self.from_server);
        loop {
            let result = match frames.next() {
                Ok(Some(frame)) => self.server_frame(frame, now),
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

    fn server_frame(&mut self, frame: &[u8], now: BootTime) -> Result<(), Malformed> {
        if let Phase::Greeting(sent) = self.phase {
            return self.greeted(ConnectReply::read(frame)?, sent, now);
        }
        let (header, body) = ReplyHeader::read(frame)?;
        match header.xid {
            xid::EVENT => {
                let (kind, path) = check::watch_event(body)?;
                self.watched(kind, path, now);
                return Ok(());
            }
            xid::AUTH => return self.authenticated(header.err, now),
            _ => {}
        }
        self.zxid = self.zxid.max(header.zxid);
        let at = self.flight.iter().position(|f| f.xid == header.xid);
        let flight = at.and_then(|i| self.flight.remove(i)).ok_or(Malformed("an unknown xid"))?;
        if op::is_write(flight.op) && err::is_committed(header.err)
            || flight.op == op::SYNC && header.err == err::OK && self.settings.proof == LeaseProof::Leader
        {
            self.shared.lease.extend(flight.sent, now);
        }
        match header.err {
            err::SESSION_EXPIRED if flight.owner != Owner::Close => {
                self.end(LossReason::SessionExpired, now);
                return Ok(());
            }
            err::SESSION_MOVED => {
                self.detach("the session has moved to another connection".into(), now);
                return Ok(());
            }
            _ => {}
        }
        match flight.owner {
            Owner::Link => Ok(()),
            Owner::Close => {
                self.over(true);
                Ok(())
            }
            Owner::Chore(id) => {
                let pause = self.timeout() / 8;
                self.chores.reply(id, header.err, body, now, pause, &self.shared)?;
                self.send_chores(now);
                Ok(())
            }
            Owner::Crate => {
                if header.err == err::OK {
                    check::reply(flight.op, body)?;
                }
                let asked = self.asked.pop_front().ok_or(Malformed("an answer to nothing"))?;
                let reply = ReplyHeader { xid: asked.xid, ..header };
                self.to_crate.extend(reply.frame(body));
                Ok(())
            }
        }
    }

    /// Wakes whoever waits for this node. It goes straight there: by way of the crate it would cost
    /// two more threads' wake-ups at each hand-over between processes.
    fn watched(&mut self, kind: i32, path: &str, now: BootTime) {
        let is_gone = kind == event::DELETED;
        if is_gone {
            self.shared.lease.node_deleted(path);
        } else if let Some(hold) = self.shared.lease.hold_on(path) {
            hold.rearm();
            self.send_chores(now);
        }
        self.shared.nodes.ring(path, is_gone);
    }

    fn greeted(&mut self, reply: ConnectReply, sent: BootTime, now: BootTime) -> Result<(), Malformed> {
        let timeout = u64::try_from(reply.timeout_ms).unwrap_or(0);
        match &mut self.session {
            // A server that knows nothing of our session says so by a timeout of zero. Never may
            // another session take its place here: the crate above would not notice.
            Some(session) if timeout == 0 || reply.session_id != session.id => {
                log::info!("session 0x{:x}: expired", session.id);
                if self.is_ending() {
                    self.over(true);
                } else {
                    self.end(LossReason::SessionExpired, now);
                }
                return Ok(());
            }
            Some(session) => session.password = reply.password,
            None if timeout == 0 || reply.session_id == 0 => {
                return Err(Malformed("a refusal to make a session"));
            }
            None => {
                let timeout = Duration::from_millis(timeout);
                self.session = Some(Session {
                    id: reply.session_id,
                    password: reply.password,
                    timeout,
                    attached_before: false,
                });
                self.shared.grant(reply.session_id, timeout);
                self.shared.lease.begin(timeout, sent);
                self.last_write = sent;
            }
        }
        if self.is_ending() {
            self.say_goodbye(now);
            return Ok(());
        }
        // Before anything else: the server handles credentials in order with what follows.
        for (scheme, credentials) in &self.settings.auth {
            let frame = Writer::request(xid::AUTH, op::AUTH)
                .i32(0)
                .buffer(scheme.as_bytes())
                .buffer(credentials)
                .frame();
            self.to_server.extend(frame);
        }
        self.phase = Phase::Auth(now, self.settings.auth.len());
        self.attach_if_ready(now);
        Ok(())
    }

    fn authenticated(&mut self, code: i32, now: BootTime) -> Result<(), Malformed> {
        if self.is_ending() {
            return Ok(());
        }
        let Phase::Auth(since, left) = self.phase else {
            return Err(Malformed("an answer to credentials that were not sent"));
        };
        if code != err::OK {
            log::warn!("the server refused our credentials (ZooKeeper error {code})");
            self.phase = Phase::Up; // the server still listens: the session can be closed
            self.end(LossReason::AuthFailed, now);
            return Ok(());
        }
        self.phase = Phase::Auth(since, left.saturating_sub(1));
        self.attach_if_ready(now);
        Ok(())
    }

    fn attach_if_ready(&mut self, now: BootTime) {
        let (Phase::Auth(_, 0), Some(session)) = (self.phase, self.session.as_mut()) else { return };
        self.phase = Phase::Up;
        self.last_sync = now;
        self.shared.attached();
        let before = std::mem::replace(&mut session.attached_before, true);
        self.events.push(if before {
            LinkEvent::Reconnected
        } else {
            LinkEvent::Connected { session_id: session.id, timeout: session.timeout }
        });
        // Deletes first: what is created next should find our old nodes gone.
        self.send_chores(now);
        self.forward(now);
    }

    /// The connection ended, or never came up.
    pub(super) fn server_gone(&mut self, reason: &str, now: BootTime) {
        if !self.is_over() {
            self.detach(reason.to_owned(), now);
            self.cut = None; // it is closed already
        }
    }

    /// Gives this connection up; what was sent on it may or may not have been done.
    fn detach(&mut self, reason: String, now: BootTime) {
        if self.phase == Phase::Up && !self.is_ending() {
            self.events.push(LinkEvent::Suspended);
        }
        self.phase = Phase::Down;
        self.cut = Some(reason);
        self.from_server.clear();
        self.to_server.clear();
        self.flight.clear();
        while self.asked.front().is_some_and(|a| a.sent) {
            self.refuse_oldest(err::CONNECTION_LOSS);
        }
        self.chores.cut(now);
    }

    fn refuse_oldest(&mut self, code: i32) {
        if let Some(asked) = self.asked.pop_front() {
            self.answer_crate(asked.xid, code);
        }
    }

    // ---- the end ----

    /// Closes the session at the server and then for good; `done` hears whether the server knows.
    pub(super) fn close(&mut self, done: Sender<bool>, now: BootTime) {
        self.end(LossReason::SessionClosed, now);
        match &mut self.ending {
            Some(ending) if self.phase != Phase::Over => ending.done.push(done),
            Some(ending) => drop(done.try_send(ending.told)),
            None => {}
        }
    }

    /// The session is lost to its users from here on: every caller gets an answer now.
    pub(super) fn end(&mut self, reason: LossReason, now: BootTime) {
        if self.ending.is_some() {
            return;
        }
        self.shared.lease.end(reason);
        self.ending = Some(Ending { reason, until: now + GOODBYE, told: false, done: Vec::new() });
        self.events.push(LinkEvent::Lost(reason));
        while !self.asked.is_empty() {
            self.refuse_oldest(code_of(reason));
        }
        self.chores.drop_all();
        for flight in &mut self.flight {
            flight.owner = Owner::Link;
        }
        match (reason, self.phase) {
            (LossReason::SessionExpired, _) => self.over(true),
            (_, Phase::Up | Phase::Auth(..)) => self.say_goodbye(now),
            // A session was or may be made: the next connection, or the one being made, closes it.
            (_, Phase::Greeting(_)) => {}
            (_, Phase::Down) if self.session.is_some() => {}
            _ => self.over(true),
        }
    }

    fn say_goodbye(&mut self, now: BootTime) {
        self.phase = Phase::Up;
        let xid = self.new_xid();
        let frame = Writer::request(xid, op::CLOSE).frame();
        self.send(xid, op::CLOSE, Owner::Close, &frame, now);
    }

    fn over(&mut self, told: bool) {
        self.phase = Phase::Over;
        self.cut = Some("the session has ended".into());
        self.flight.clear();
        self.to_server.clear();
        if let Some(ending) = &mut self.ending {
            ending.told = told;
            for done in ending.done.drain(..) {
                let _ = done.try_send(told);
            }
        }
        self.settle_crate_close();
    }

    // ---- time ----

    /// Does what is due, and says when to come again.
    pub(super) fn tick(&mut self, now: BootTime) -> Option<BootTime> {
        if let Some(ending) = &self.ending
            && self.phase != Phase::Over
            && now >= ending.until
        {
            self.over(false);
        }
        match self.phase {
            Phase::Over => return None,
            Phase::Greeting(since) | Phase::Auth(since, _) if now >= since + self.settings.attempt => {
                let waited = self.settings.attempt.as_millis();
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

    fn tick_up(&mut self, now: BootTime) {
        let patience = self.patience();
        if self.flight.front().is_some_and(|f| now >= f.sent + patience) {
            self.detach(format!("gave no answer for {} ms", patience.as_millis()), now);
            return;
        }
        if self.is_ending() {
            return;
        }
        self.send_chores(now);
        if now >= self.next_proof() {
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
        if now >= self.last_sent + self.timeout() / 8 {
            let frame = Writer::request(xid::PING, op::PING).frame();
            self.send(xid::PING, op::PING, Owner::Link, &frame, now);
        }
    }

    /// When the leader must next be asked for an answer: a ping alone would stay on a follower that
    /// has lost its leader.
    fn next_proof(&self) -> BootTime {
        match (self.shared.lease.is_needed(), self.settings.proof) {
            (true, LeaseProof::Quorum) => self.last_write + self.timeout() / 6,
            (true, LeaseProof::Leader) => self.last_write.max(self.last_sync) + self.timeout() / 6,
            (false, _) => self.last_write.max(self.last_sync) + self.timeout() / 4,
        }
    }

    fn next_time(&self, now: BootTime) -> Option<BootTime> {
        let patience = self.patience();
        let asked = self.asked.front().map(|a| a.arrived + patience);
        let phase = match self.phase {
            Phase::Greeting(since) | Phase::Auth(since, _) => Some(since + self.settings.attempt),
            Phase::Up => {
                let flight = self.flight.front().map(|f| f.sent + patience);
                // A hold that came of the traffic just seen gets its watch in time. Holds are not
                // announced (that would cost each of them a wake-up): they are found by looking.
                let watch = self.last_traffic + WATCH_AFTER + Duration::from_millis(5);
                let look = if watch > now { watch } else { now + self.timeout() / 16 };
                let idle = (self.last_sent + self.timeout() / 8).min(self.next_proof());
                [flight, self.chores.next_time(), Some(look.min(idle))].into_iter().flatten().min()
            }
            Phase::Down | Phase::Over => None,
        };
        let end = self.ending.as_ref().map(|e| e.until);
        [asked, phase, end].into_iter().flatten().min()
    }
}

fn code_of(reason: LossReason) -> i32 {
    match reason {
        LossReason::AuthFailed => err::AUTH_FAILED,
        _ => err::SESSION_EXPIRED,
    }
}
