//! The surroundings of the machine in tests, benches and fuzz targets: the event loop and the
//! generation, without threads, sockets or a network, and a clock that only the test moves.
#![cfg_attr(not(test), allow(dead_code))] // fuzz targets and benches need a part of it

use super::*;
use crate::event::SessionEvent;
use crate::lease;
use crate::lease::node::{LeasedNode, Listener, NodeWatch};
use crate::machine::codec::{CallError, Operation};
use crate::world::Mutex;
use crossbeam_channel::{Receiver, Sender, bounded};
use std::collections::HashMap;
use zk_wire::code::event;
use zk_wire::record::{Reader, request_header, watch_event};

pub(super) const T: Duration = Duration::from_secs(24);
/// The path of the write without an effect.
pub(super) const NOOP: &str = "/no-op/none";
pub(super) const MS: Duration = Duration::from_millis(1);

/// The machine, with the parts of the event loop and of the generation that it needs.
pub(super) struct Rig {
    pub(super) machine: Machine,
    pub(super) now: BootTime,
    pub(super) lease: lease::Lease,
    /// The session timeout that callers see.
    pub(super) timeout: Duration,
    pub(super) epoch: u64,
    pub(super) events: Vec<SessionEvent>,
    /// The callers that wait, by their numbers.
    callers: HashMap<u64, Sender<Answers>>,
    outcomes: HashMap<u64, Sender<Outcome>>,
    closes: Vec<Sender<bool>>,
    /// The answers to the application's client: the number of each request, and the error.
    pub(super) client_answers: Vec<(u64, i32)>,
    /// The watch events, in the place of the watch registry.
    pub(super) watch_events: Vec<(i32, String)>,
    /// What the looks at nodes have shown, and those at folders.
    pub(super) looked: Vec<(u64, Result<Option<Stat>, i32>)>,
    pub(super) folders: Vec<(u64, Option<Vec<String>>)>,
    /// The tokens of the server for the mechanism of SASL, from the first, empty one.
    pub(super) sasl: Vec<Option<Vec<u8>>>,
    /// Why the session has ended, if its login was refused.
    pub(super) refusals: Vec<String>,
    /// Why each server has refused the login.
    pub(super) refused_by: Vec<String>,
    /// There is no other server that could take the login.
    pub(super) is_only_host: bool,
    /// The lines for the log.
    pub(super) logged: Vec<String>,
    /// The data that watches of held nodes have read.
    pub(super) read: Arc<Mutex<Vec<Vec<u8>>>>,
    pub(super) server_in: Frames,
    pub(super) client: u64,
    pub(super) zxid: i64,
}

/// A request that the machine sent: xid, operation, and the path, if there is one.
pub(super) type Sent = (i32, i32, String);

/// The requests of a caller: their number, and the receiver of their answers.
pub(super) type PendingCall = (u64, Receiver<Answers>);

impl Rig {
    pub(super) fn new(auth: &[(&str, &str)]) -> Self {
        let now = BootTime::now();
        let config = MachineConfig {
            auth: auth.iter().map(|(s, c)| ((*s).into(), c.as_bytes().to_vec())).collect(),
            ..MachineConfig::new(T, NOOP.into())
        };
        Rig {
            machine: Machine::new(config, now),
            now,
            lease: lease::Lease::default(),
            timeout: Duration::ZERO,
            epoch: 0,
            events: Vec::new(),
            callers: HashMap::new(),
            outcomes: HashMap::new(),
            closes: Vec::new(),
            client_answers: Vec::new(),
            watch_events: Vec::new(),
            looked: Vec::new(),
            folders: Vec::new(),
            sasl: Vec::new(),
            refusals: Vec::new(),
            refused_by: Vec::new(),
            is_only_host: true,
            logged: Vec::new(),
            read: Arc::default(),
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

    /// A socket is connected; gives the machine's connect request.
    pub(super) fn connect(&mut self) -> Vec<u8> {
        self.connect_to(true)
    }

    /// The same; `is_believed`: the session has ended if the server does not know it.
    pub(super) fn connect_to(&mut self, is_believed: bool) -> Vec<u8> {
        self.server_in.clear();
        self.machine.cut = None;
        let bound = self.machine.timeout() / 6;
        self.machine.connected(Dialled { bound, is_believed }, self.now);
        std::mem::take(&mut self.machine.to_server)
    }

    pub(super) fn greet(&mut self, session_id: i64, timeout_ms: i32) {
        let reply = ConnectReply { timeout_ms, session_id, password: vec![5; 16] };
        self.bytes(&reply.frame());
    }

    /// The server's bytes come, and the event loop handles them.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.machine.server_bytes(bytes, self.now);
        self.deliver_outputs();
        self.tick();
        self.deliver_outputs();
    }

    /// A calling thread gives the machine something to do. If there is work for the event loop, it
    /// wakes.
    pub(super) fn with<T>(&mut self, act: impl FnOnce(&mut Machine, BootTime) -> T) -> T {
        let value = act(&mut self.machine, self.now);
        self.attend();
        value
    }

    /// If there is work for the event loop, it wakes.
    pub(super) fn attend(&mut self) {
        if self.machine.wants_attention() {
            self.tick();
            self.deliver_outputs();
        }
    }

    /// The event loop does what is due.
    pub(super) fn tick(&mut self) -> Option<BootTime> {
        if self.machine.is_up() {
            let epoch = self.machine.epoch();
            let holds = self.lease.to_watch(epoch, self.now);
            for hold in holds {
                let (path, czxid) = (hold.path().to_owned(), hold.czxid());
                self.machine.watch(WatchedNode { path, czxid }, self.now);
            }
        }
        let lease =
            LeaseStatus { end: self.lease.needed_end(), is_fresh: self.lease.is_fresh(self.now) };
        let next = self.machine.tick(lease, self.now);
        let watch =
            if self.machine.is_up() { self.lease.next_watch(self.machine.epoch()) } else { None };
        [next, watch].into_iter().flatten().min()
    }

    /// Carries out the outputs of the machine, as the generation does.
    pub(super) fn deliver_outputs(&mut self) {
        if let Some(reason) = self.machine.take_refusal() {
            self.refused_by.push(reason.clone());
            if self.is_only_host {
                self.machine.all_refuse_login(reason, self.now);
            }
        }
        while !self.machine.outputs.is_empty() {
            for output in std::mem::take(&mut self.machine.outputs) {
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
                self.events.push(match &self.machine.session {
                    Some(s) if is_first => {
                        SessionEvent::Connected { session_id: s.id, timeout: self.timeout }
                    }
                    _ => SessionEvent::Reconnected,
                });
            }
            Output::Sasl(token) => self.sasl.push(token),
            Output::Refused(reason) => self.refusals.push(reason),
            Output::Suspended => self.events.push(SessionEvent::Suspended),
            Output::Lost(reason) => {
                self.outcomes.clear();
                self.lease.end(reason);
                self.events.push(SessionEvent::Lost(reason));
            }
            Output::Heard(at) => drop(self.lease.extend(at, self.now)),
            Output::Answered(number, answers) => {
                let _ = self.callers.remove(&number).map(|caller| caller.try_send(answers));
            }
            Output::Done(number, outcome) => {
                let _ = self.outcomes.remove(&number).map(|caller| caller.try_send(outcome));
            }
            Output::Closed(server_knows) => {
                for caller in self.closes.drain(..) {
                    let _ = caller.try_send(server_knows);
                }
            }
            Output::RawAnswered { number, err, .. } => self.client_answers.push((number, err)),
            Output::Watch { kind, path } => self.watch_event(kind, &path),
            Output::HoldRead(watched, seen) => {
                let hold = self.lease.leased_node(&watched.path);
                let Some(hold) = hold.filter(|hold| hold.czxid() == watched.czxid) else { return };
                match seen {
                    Some((czxid, data)) if hold.is_node(czxid) => hold.listener().read(&data),
                    _ => self.lease.node_gone(&hold, self.now),
                }
            }
            Output::MayPrune { task, stat, .. } => {
                let may = stat.owner != 0;
                self.machine.may_prune(task, may, self.now);
            }
            Output::Log(_, line) => self.logged.push(line),
            Output::Looked(number, seen) => self.looked.push((number, seen)),
            Output::FolderListed(number, listed) => {
                let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
                self.folders.push((number, listed.map(|(children, _)| names(children.names()))));
            }
            Output::Pruned(_) | Output::RoundTrip { .. } => {}
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

    /// The application's client sends a request; gives its number.
    pub(super) fn client_request(&mut self, op: i32, path: &str) -> u64 {
        self.client += 1;
        let body = Writer::bare().buffer(path.as_bytes()).bool(false).body();
        let batch = Batch::raw(self.client, op, &body);
        // The listener for raw requests, which is told of the end, answers such a request itself.
        if let Err(e) = self.with(|m, now| m.submit(batch, now)) {
            let code = if matches!(e, CallError::AuthFailed(_)) {
                err::AUTH_FAILED
            } else {
                err::SESSION_EXPIRED
            };
            self.client_answers.push((self.client, code));
        }
        self.client
    }

    /// A caller sends these requests together.
    pub(super) fn call(&mut self, requests: &[(Operation<'_>, Option<Removal>)]) -> PendingCall {
        let mut batch = Batch::new();
        for (operation, settle) in requests {
            batch.push(operation, settle.clone());
        }
        let call = self.submit(batch).unwrap();
        self.attend();
        call
    }

    /// A caller sends this batch, and the event loop does not wake.
    pub(super) fn submit(&mut self, batch: Batch) -> Result<PendingCall, CallError> {
        let number = self.machine.submit(batch, self.now)?;
        let (caller, answers) = bounded(1);
        self.callers.insert(number, caller);
        Ok((number, answers))
    }

    /// A node is removed, and a caller waits for the outcome.
    pub(super) fn remove_and_tell(&mut self, removal: Removal) -> Receiver<Outcome> {
        let number = self.machine.remove(removal, self.now);
        let outcome = self.outcome_of(number);
        self.attend();
        outcome
    }

    /// A caller waits until the lease is fresh.
    pub(super) fn prove(&mut self) -> Receiver<Outcome> {
        let number = self.machine.prove(self.now);
        let fresh = self.outcome_of(number);
        self.attend();
        fresh
    }

    pub(super) fn outcome_of(&mut self, number: Option<u64>) -> Receiver<Outcome> {
        let (caller, outcome) = bounded(1);
        if let Some(number) = number {
            self.outcomes.insert(number, caller);
        }
        outcome
    }

    /// The session is closed; the receiver gets whether the server knows.
    pub(super) fn close(&mut self) -> Receiver<bool> {
        let (caller, server_knows) = bounded(1);
        match self.machine.close(self.now) {
            Some(knows) => caller.try_send(knows).unwrap(),
            None => self.closes.push(caller),
        }
        self.attend();
        server_knows
    }

    /// A caller leaves.
    pub(super) fn abandon(&mut self, call: &PendingCall) -> bool {
        let has_left = self.leave(call.0);
        self.attend();
        has_left
    }

    /// A caller leaves, and the event loop does not wake.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        let has_left = self.machine.abandon(number, self.now);
        if has_left {
            self.callers.remove(&number);
        }
        has_left
    }

    /// A caller that leaves takes its answers from the outputs.
    pub(super) fn take_answers(&mut self, number: u64) -> Option<Answers> {
        let answers = self.machine.take_answers(number)?;
        self.callers.remove(&number);
        Some(answers)
    }

    pub(super) fn add_task(&mut self, task: Task) {
        self.with(|m, now| m.add_task(task, now));
    }

    pub(super) fn sent(&mut self) -> Vec<Sent> {
        let bytes = std::mem::take(&mut self.machine.to_server);
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

    /// Exactly this request was sent; gives its xid.
    #[track_caller]
    pub(super) fn only_request(&mut self, op: i32, path: &str) -> i32 {
        let sent = self.sent();
        assert_eq!(without_xids(&sent), [(op, path)]);
        sent[0].0
    }

    /// An answer of the leader: it has a new zxid.
    pub(super) fn reply(&mut self, xid: i32, err: i32, body: &[u8]) {
        self.zxid += 1;
        let frame = ReplyHeader { xid, zxid: self.zxid, err }.frame(body);
        self.bytes(&frame);
    }

    /// A watch fires.
    pub(super) fn event(&mut self, kind: i32, path: &str) {
        let frame =
            ReplyHeader { xid: xid::EVENT, zxid: -1, err: 0 }.frame(&watch_event(kind, path));
        self.bytes(&frame);
    }

    /// Takes the answers to the application's client.
    pub(super) fn client_answers(&mut self) -> Vec<(u64, i32)> {
        std::mem::take(&mut self.client_answers)
    }

    pub(super) fn events(&mut self) -> Vec<SessionEvent> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn pending(&self) -> Vec<String> {
        let mut ids: Vec<_> = self.machine.pending_deletes().iter().cloned().collect();
        ids.sort();
        ids
    }

    /// The connection ends.
    pub(super) fn drop_connection(&mut self) {
        self.machine.server_gone("cut", self.now);
        self.tick();
        self.deliver_outputs();
    }

    /// The connection ends, and the next one carries the session.
    pub(super) fn cut(&mut self) {
        self.drop_connection();
        self.attach(7);
    }

    /// Lets time pass. The event loop wakes at each time that the machine has named.
    pub(super) fn pass_time(&mut self, d: Duration) {
        let until = self.now + d;
        while let Some(next) = self.tick_until_quiet().filter(|next| *next <= until) {
            self.now = next;
        }
        self.now = until;
        self.tick();
        self.deliver_outputs();
    }

    /// The event loop works until nothing is due now; gives the time of the next work.
    pub(super) fn tick_until_quiet(&mut self) -> Option<BootTime> {
        for _ in 0..4 {
            let next = self.tick();
            self.deliver_outputs();
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

    /// Hears of a hold what it has to hear.
    pub(super) fn listener(&self) -> Arc<dyn Listener> {
        Arc::new(Holder(self.read.clone()))
    }

    pub(super) fn grant(&self, hold: Arc<LeasedNode>) -> Arc<LeasedNode> {
        self.lease.grant(&hold, self.now).unwrap();
        hold
    }

    pub(super) fn hold(&self, path: &str) -> Arc<LeasedNode> {
        self.grant(LeasedNode::new(path.into(), 5, NodeWatch::Unset, self.listener()))
    }

    /// A hold of a node whose name others use too.
    pub(super) fn fixed(&self, czxid: i64) -> Arc<LeasedNode> {
        self.grant(LeasedNode::fixed("/l/lock".into(), czxid, NodeWatch::Unset, self.listener()))
    }
}

/// A machine whose session is connected, for its bench.
#[allow(dead_code)] // only a bench outside of this crate uses it
pub struct Bench(Rig);

#[allow(dead_code)]
impl Bench {
    /// One whose session is connected.
    pub fn up() -> Self {
        Bench(Rig::up())
    }

    /// A caller creates a node and lists its folder in one flight. The server answers, with these
    /// names. Gives how many the caller gets.
    pub fn create_and_list(&mut self, names: &[&str]) -> usize {
        let (acl, mode) = (&crate::acl::Acl::Open, codec::CreateMode::EphemeralSequential);
        let create = Operation::Create { path: "/l/_c_id-lock-", data: b"host:1", acl, mode };
        let list = Operation::GetChildren { path: "/l", watch: false };
        let removal = Removal::of_create("/l/_c_id-lock-", "id");
        let (_, answers) = self.0.call(&[(create, Some(removal)), (list, None)]);
        let sent: Vec<i32> = self.0.sent().iter().map(|(xid, ..)| *xid).collect();
        self.0.reply(sent[0], 0, &node(b"/l/_c_id-lock-0000000007", 5, 7));
        self.0.reply(sent[1], 0, &listing(names));
        let mut answers = answers.try_recv().unwrap();
        answers.listed(1).unwrap().children.names().len()
    }
}

struct Holder(Arc<Mutex<Vec<Vec<u8>>>>);

impl Listener for Holder {
    fn lost(&self, _: LossReason) {}

    fn read(&self, data: &[u8]) {
        self.0.lock().push(data.to_owned());
    }

    fn look(&self, _: BootTime) -> BootTime {
        BootTime::END
    }
}

/// Requests without their xids.
pub(super) fn without_xids(sent: &[Sent]) -> Vec<(i32, &str)> {
    sent.iter().map(|(_, op, path)| (*op, path.as_str())).collect()
}

/// The body of the answer to a read of a node, or to a create: then `data` is the node's path.
pub(super) fn node(data: &[u8], czxid: i64, owner: i64) -> Vec<u8> {
    node_of_version(data, czxid, owner, 0)
}

/// The same, of a node that was written to so many times.
pub(super) fn node_of_version(data: &[u8], czxid: i64, owner: i64, version: i32) -> Vec<u8> {
    let stat = Writer::bare().buffer(data).i64(czxid).i64(0).i64(0).i64(0).i32(version);
    stat.i32(0).i32(0).i64(owner).i32(0).i32(0).i64(0).body()
}

/// The body of a listing with these names.
pub(super) fn listing(names: &[&str]) -> Vec<u8> {
    let count = Writer::bare().i32(i32::try_from(names.len()).unwrap());
    names.iter().fold(count, |w, name| w.buffer(name.as_bytes())).body()
}
