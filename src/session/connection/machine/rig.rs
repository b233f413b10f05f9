//! What stands around the machine where there is no network: the event loop and the generation,
//! without threads and sockets, and a clock that only its owner moves. Tests and fuzz targets share
//! it.
#![cfg_attr(not(test), allow(dead_code))] // a fuzz target needs a part of it

use super::*;
use crate::session::connection::codec::{CallError, Operation};
use crate::session::event::SessionEvent;
use crate::session::lease;
use crossbeam_channel::Receiver;
use zk_wire::code::event;
use zk_wire::record::{Reader, request_header};

pub(super) const T: Duration = Duration::from_secs(24);
pub(super) const MS: Duration = Duration::from_millis(1);

/// What stands around the machine: the event loop and the generation, without threads and sockets.
pub(super) struct Rig {
    pub(super) m: Machine,
    pub(super) now: BootTime,
    pub(super) lease: lease::Lease,
    /// The session timeout that callers see.
    pub(super) timeout: Duration,
    pub(super) epoch: u64,
    pub(super) events: Vec<SessionEvent>,
    /// What the application's client was answered: its numbers, and the errors.
    pub(super) answers: Vec<(u64, i32)>,
    /// The watch events, in the place of the watch registry.
    pub(super) watch_events: Vec<(i32, String)>,
    pub(super) server_in: Frames,
    pub(super) client: u64,
    pub(super) zxid: i64,
}

/// What the machine sent to the server: xid, operation, and the path where there is one.
pub(super) type Sent = (i32, i32, String);

/// A caller's requests: their number, and where their answers come.
pub(super) type Call = (u64, Receiver<Answers>);

impl Rig {
    pub(super) fn new(auth: &[(&str, &str)]) -> Self {
        let now = BootTime::now();
        let settings = Settings {
            timeout: T,
            attempt: T / 6,
            auth: auth.iter().map(|(s, c)| ((*s).into(), c.as_bytes().to_vec())).collect(),
            tick: None,
            noop: "noop".into(),
        };
        Rig {
            m: Machine::new(settings, now),
            now,
            lease: lease::Lease::default(),
            timeout: Duration::ZERO,
            epoch: 0,
            events: Vec::new(),
            answers: Vec::new(),
            watch_events: Vec::new(),
            server_in: Frames::default(),
            client: 0,
            zxid: 0,
        }
    }

    pub(super) fn up() -> Self {
        let mut rig = Rig::new(&[]);
        rig.attach(7);
        assert_eq!(rig.events(), [SessionEvent::Connected { session_id: 7, timeout: T }]);
        rig
    }

    pub(super) fn attach(&mut self, session_id: i64) {
        self.connect();
        self.greet(session_id, T.as_millis() as i32);
    }

    /// A socket is connected; gives what the machine says first.
    pub(super) fn connect(&mut self) -> Vec<u8> {
        self.server_in.clear();
        self.m.cut = None;
        self.m.connected(self.now);
        std::mem::take(&mut self.m.to_server)
    }

    pub(super) fn greet(&mut self, session_id: i64, timeout_ms: i32) {
        let reply = ConnectReply { timeout_ms, session_id, password: vec![5; 16] };
        self.bytes(&reply.frame());
    }

    /// The server's bytes come, as the event loop sees to them.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.m.server_bytes(bytes, self.now);
        self.hand_out();
        self.look();
        self.hand_out();
    }

    /// A calling thread gives the machine something to do. The event loop wakes where it must.
    pub(super) fn with<T>(&mut self, act: impl FnOnce(&mut Machine, BootTime) -> T) -> T {
        let value = act(&mut self.m, self.now);
        if self.m.wants_attention() {
            self.look();
            self.hand_out();
        }
        value
    }

    /// The event loop looks at the time.
    pub(super) fn look(&mut self) -> Option<BootTime> {
        if self.m.is_up() {
            let epoch = self.m.epoch();
            let holds = self.lease.to_watch(epoch, self.now);
            holds.into_iter().for_each(|hold| self.m.watch(hold, self.now));
        }
        let lease = Lease { end: self.lease.needed_end(), is_fresh: self.lease.is_fresh(self.now) };
        let next = self.m.tick(lease, &|| self.lease.a_directory(), self.now);
        let watch = if self.m.is_up() { self.lease.next_watch(self.m.epoch()) } else { None };
        [next, watch].into_iter().flatten().min()
    }

    /// Sees to what the machine wants done outside, as the generation does.
    pub(super) fn hand_out(&mut self) {
        while !self.m.outputs.is_empty() {
            for output in std::mem::take(&mut self.m.outputs) {
                self.take_output(output);
            }
        }
    }

    pub(super) fn take_output(&mut self, output: Output) {
        match output {
            Output::Granted { timeout, sent, .. } => {
                self.timeout = timeout;
                self.lease.begin(timeout, sent);
            }
            Output::Shortened { timeout } => {
                self.timeout = timeout;
                self.lease.shorten(timeout, self.now);
            }
            Output::Attached { epoch, is_first } => {
                self.epoch = epoch;
                self.events.push(match &self.m.session {
                    Some(s) if is_first => {
                        SessionEvent::Connected { session_id: s.id, timeout: self.timeout }
                    }
                    _ => SessionEvent::Reconnected,
                });
            }
            Output::Suspended => self.events.push(SessionEvent::Suspended),
            Output::Lost(reason) => {
                self.lease.end(reason);
                self.events.push(SessionEvent::Lost(reason));
            }
            Output::Heard(at) => drop(self.lease.extend(at, self.now)),
            Output::Answered(_, caller, answers) => drop(caller.try_send(answers)),
            Output::Done(caller, outcome) => drop(caller.try_send(outcome)),
            Output::ClientAnswered { number, err, .. } => self.answers.push((number, err)),
            Output::Watch { kind, path } => self.watch_event(kind, &path),
            Output::HoldRead(hold, Some((czxid, data))) if hold.is_node(czxid) => {
                hold.note_data(&data)
            }
            Output::HoldRead(hold, _) => self.lease.node_gone(&hold, self.now),
            Output::MayRemove { task, path } => {
                let may = self.lease.leased_node(&path).is_none();
                self.m.may_remove(task, may, self.now);
            }
            Output::FolderListed(..) | Output::TellLoss(_) | Output::Log(..) => {}
        }
    }

    pub(super) fn watch_event(&mut self, kind: i32, path: &str) {
        if kind == event::DELETED {
            self.lease.node_deleted(path, self.now);
        } else if let Some(hold) = self.lease.leased_node(path) {
            self.lease.rearm(&hold);
        }
        self.watch_events.push((kind, path.to_owned()));
    }

    /// The application's client asks; gives its number.
    pub(super) fn ask(&mut self, op: i32, path: &str) -> u64 {
        self.client += 1;
        let body = Writer::bare().buffer(path.as_bytes()).bool(false).frame()[4..].to_vec();
        let batch = Batch::of_client(self.client, op, &body);
        // The client's end answers this itself.
        if let Err(e) = self.with(|m, now| m.submit(batch, now)) {
            let code =
                if e == CallError::AuthFailed { err::AUTH_FAILED } else { err::SESSION_EXPIRED };
            self.answers.push((self.client, code));
        }
        self.client
    }

    /// A caller sends these together.
    pub(super) fn call(&mut self, requests: &[(Operation<'_>, Option<Removal>)]) -> Call {
        let (mut batch, answers) = Batch::new();
        for (operation, settle) in requests {
            batch.push(operation, settle.clone());
        }
        (self.with(|m, now| m.submit(batch, now)).unwrap(), answers)
    }

    /// A caller leaves.
    pub(super) fn abandon(&mut self, call: &Call) -> bool {
        self.with(|m, now| m.abandon(call.0, now))
    }

    pub(super) fn task(&mut self, task: Task) {
        self.with(|m, now| m.add_task(task, now));
    }

    pub(super) fn sent(&mut self) -> Vec<Sent> {
        let bytes = std::mem::take(&mut self.m.to_server);
        self.server_in.push(&bytes);
        let mut all = Vec::new();
        while let Some(frame) = self.server_in.next().unwrap() {
            let (xid, op) = request_header(frame).unwrap();
            let rest = frame.get(8..).unwrap_or_default();
            let path = Reader::new(rest).string().unwrap_or("").to_owned();
            all.push((xid, op, path));
        }
        all
    }

    /// The one request that was sent.
    #[track_caller]
    pub(super) fn one(&mut self, op: i32, path: &str) -> i32 {
        let sent = self.sent();
        assert_eq!(shown(&sent), [(op, path)]);
        sent[0].0
    }

    /// An answer of the leader: it bears a new zxid.
    pub(super) fn reply(&mut self, xid: i32, err: i32, body: &[u8]) {
        self.zxid += 1;
        let frame = ReplyHeader { xid, zxid: self.zxid, err }.frame(body);
        self.bytes(&frame);
    }

    /// A watch fires.
    pub(super) fn event(&mut self, kind: i32, path: &str) {
        let body =
            Writer::bare().i32(kind).i32(event::SYNC_CONNECTED).buffer(path.as_bytes()).frame();
        let frame = ReplyHeader { xid: xid::EVENT, zxid: -1, err: 0 }.frame(&body[4..]);
        self.bytes(&frame);
    }

    /// What the application's client was answered: its number and the error.
    pub(super) fn answers(&mut self) -> Vec<(u64, i32)> {
        std::mem::take(&mut self.answers)
    }

    pub(super) fn events(&mut self) -> Vec<SessionEvent> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn pending(&self) -> Vec<String> {
        let mut ids: Vec<_> = self.m.pending_deletes().iter().cloned().collect();
        ids.sort();
        ids
    }

    /// The connection ends.
    pub(super) fn drop_connection(&mut self) {
        self.m.server_gone("cut", self.now);
        self.look();
        self.hand_out();
    }

    /// The connection ends, and the session is taken up on the next one.
    pub(super) fn cut(&mut self) {
        self.drop_connection();
        self.attach(7);
    }

    /// Lets time pass, looking whenever the machine asked to be looked at.
    pub(super) fn pass(&mut self, d: Duration) {
        let until = self.now + d;
        while let Some(next) = self.look_until_quiet().filter(|next| *next <= until) {
            self.now = next;
        }
        self.now = until;
        self.look();
        self.hand_out();
    }

    /// The event loop looks as long as there is anything to do now.
    pub(super) fn look_until_quiet(&mut self) -> Option<BootTime> {
        for _ in 0..4 {
            let next = self.look();
            self.hand_out();
            if next.is_none_or(|next| next > self.now) {
                return next;
            }
        }
        panic!("it wakes up for nothing, over and over");
    }

    /// Ends the holds whose lease has run out.
    pub(super) fn lapse(&self) {
        self.lease.end_if_due(self.now);
    }

    pub(super) fn grant(&self, hold: Arc<LeasedNode>) -> Arc<LeasedNode> {
        self.lease.grant(&hold, self.now).unwrap();
        hold
    }

    pub(super) fn hold(&self, path: &str) -> Arc<LeasedNode> {
        self.grant(LeasedNode::new(path.into(), 5, 0, Box::new(|| ())))
    }

    /// A hold of a node whose name others use too.
    pub(super) fn fixed(&self, czxid: i64) -> Arc<LeasedNode> {
        self.grant(LeasedNode::fixed("/l/lock".into(), czxid, 0, Box::new(|| ())))
    }
}

/// Requests without their xids.
pub(super) fn shown(sent: &[Sent]) -> Vec<(i32, &str)> {
    sent.iter().map(|(_, op, path)| (*op, path.as_str())).collect()
}
