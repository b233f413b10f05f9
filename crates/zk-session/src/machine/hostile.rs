//! Fuzz targets for the machine: a server that sends any bytes at any time, and callers that come,
//! leave, hold locks, and are stopped for any time.
//!
//! An observer stands beside the machine. It reads each byte of both directions by itself. From
//! these bytes alone it works out the answers that each caller may have got, and the latest end of
//! each hold. The observer is never stricter than the protocol. If it cannot know how much of a
//! piece the machine has read before it gave the connection up, it assumes that the machine has
//! read all of it.

use super::rig::{MS, Rig, T, listing, node};
use super::*;
use crate::acl::Acl;
use crate::lease::node::{LeasedNode, NodeWatch};
use crate::machine::Watched;
use crate::machine::codec::{CallError, CreateMode, Operation};
use crossbeam_channel::{Receiver, TryRecvError};
use zk_wire::code::event;
use zk_wire::frame::MAX_FRAME;
use zk_wire::fuzz::Script;
use zk_wire::record::{Reader, watch_event};

/// The number of acts of a script that are played.
const ACTS: usize = 400;

/// The connection machine with everything around it.
pub(crate) fn connection(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut world = HostileWorld::new(&mut script);
    for _ in 0..ACTS {
        if script.is_over() {
            break;
        }
        world.act(&mut script);
    }
    world.end();
}

/// Only connections: a server answers one after the other with any bytes.
pub(crate) fn connect_answers(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut world = HostileWorld::new(&mut script);
    while !script.is_over() {
        world.connect();
        let answer = script.piece();
        let cut = script.place(answer.len() + 1).unwrap_or(0);
        world.deliver(&answer[..cut], true);
        world.deliver(&answer[cut..], false);
        world.grant("/h/a", false);
        let part = u32::from(script.byte());
        world.pass_time(world.rig.machine.timeout() * part / 256);
        if script.flag() {
            world.drop_connection();
        }
    }
    world.end();
}

/// A session with holds, and watch events with any content.
pub(crate) fn watch_events(bytes: &[u8]) {
    let mut script = Script::new(bytes);
    let mut world = HostileWorld::up();
    for (path, is_fixed) in [("/h/a", false), ("/h/b", true), ("/h/\u{e9}", false)] {
        world.grant(path, is_fixed);
    }
    let mut gone = Vec::new();
    while !script.is_over() {
        if !world.is_connected() {
            world.attach();
        }
        let body = match script.flag() {
            true => {
                let (kind, state) = (script.word(), script.word());
                let path = script.pick(&["/h/a", "/h/b", "/h/\u{e9}", "/h", "", "/h/a/"]);
                Writer::bare().i32(kind).i32(state).buffer(path.as_bytes()).body()
            }
            false => script.piece().to_vec(),
        };
        if let Ok((event::DELETED, path)) = codec::watch_event(&body) {
            gone.push(path.to_owned());
        }
        let zxid = i64::from(script.byte()) - 1;
        world.say(xid::EVENT, zxid, err::OK, &body);
        let no_tick = script.flag();
        world.deliver_all(no_tick);
        let is_right =
            |held: &ObservedHold| held.is_lost == gone.iter().any(|path| path == held.hold.path());
        assert!(no_tick || world.holds.iter().all(is_right), "a hold stands, but not its node");
    }
    world.end();
}

/// One connection, as the observer sees it.
struct ObservedConnection {
    /// When the connect request was sent.
    handshake_sent: BootTime,
    /// The session id of the answer to it.
    session_id: Option<i64>,
    /// The answer neither made nor resumed the session.
    is_refused: bool,
    /// Bytes of the server that are not a whole frame yet.
    stream: Vec<u8>,
    /// The number of bytes of a long frame that are still to come.
    skip: usize,
    requests: Vec<ObservedRequest>,
    lag: Duration,
    /// The requests that were answered: the times at which each was sent and answered.
    answered: Vec<(BootTime, BootTime)>,
    /// The newest time at which the leader has certainly heard of the session through its pings, as
    /// an ordered answer shows.
    relayed: Option<BootTime>,
    /// The newest such time that a later ordered answer shows to have reached the leader.
    heard: Option<BootTime>,
    /// When the newest write was sent that was acknowledged.
    committed: Option<BootTime>,
}

/// A request that the machine has sent.
struct ObservedRequest {
    xid: i32,
    op: i32,
    path: String,
    sent: BootTime,
    /// The largest zxid that the machine had certainly seen then.
    seen: i64,
    relayed: Option<BootTime>,
    /// The error and the body of the answer.
    answer: Option<(i32, Vec<u8>)>,
}

/// A caller that waits for answers, or has left.
struct ObservedCaller {
    call: Option<(u64, Receiver<Answers>)>,
    arrived: BootTime,
    parts: Vec<(i32, String)>,
}

/// A hold, and whether it was found lost.
struct ObservedHold {
    hold: Arc<LeasedNode>,
    is_lost: bool,
}

struct HostileWorld {
    rig: Rig,
    connections: Vec<ObservedConnection>,
    /// The bytes that the server has sent and the machine has not read.
    said: Vec<u8>,
    zxid: i64,
    seen: i64,
    /// The session's id and timeout, by the answers to connect requests.
    session: Option<i64>,
    timeout: Duration,
    /// The time at which the leader has last heard of the session, as the observer works it out.
    heard: BootTime,
    names: u32,
    /// For each request of a caller: the index of the connection on which it was sent, and its xid.
    places: BTreeMap<(i32, String), Option<(usize, i32)>>,
    callers: Vec<ObservedCaller>,
    /// The requests of the application's client that have no answer: the number, the path, and the
    /// time of each.
    asked: Vec<(u64, String, BootTime)>,
    proofs: Vec<(Receiver<Outcome>, BootTime)>,
    tasks: usize,
    /// The numbers of the watches that nobody has ended.
    watches: Vec<u64>,
    holds: Vec<ObservedHold>,
    closing: Option<(Receiver<bool>, BootTime)>,
}

impl HostileWorld {
    fn new(script: &mut Script<'_>) -> Self {
        let auth: &[(&str, &str)] =
            if script.flag() { &[("digest", "u:p"), ("ip", "")] } else { &[] };
        let mut rig = Rig::new(auth);
        if script.flag() {
            rig.machine.config.sasl = Some(SaslWords { login: "SASL".into(), advice: "" });
        }
        rig.machine.config.tick = script.pick(&[None, Some(T / 12), Some(T / 2)]);
        HostileWorld::of(rig)
    }

    fn of(rig: Rig) -> Self {
        HostileWorld {
            heard: rig.now,
            timeout: T,
            rig,
            connections: Vec::new(),
            said: Vec::new(),
            zxid: 0,
            seen: 0,
            session: None,
            names: 0,
            places: BTreeMap::new(),
            callers: Vec::new(),
            asked: Vec::new(),
            proofs: Vec::new(),
            tasks: 0,
            watches: Vec::new(),
            holds: Vec::new(),
            closing: None,
        }
    }

    fn up() -> Self {
        let mut world = HostileWorld::of(Rig::new(&[]));
        world.attach();
        world
    }

    fn attach(&mut self) {
        self.connect();
        self.greet(7, T.as_millis() as i32);
        self.deliver_all(false);
    }

    fn is_connected(&self) -> bool {
        !matches!(self.rig.machine.phase, Phase::Down | Phase::Over)
    }

    // ---- acts ----

    fn act(&mut self, script: &mut Script<'_>) {
        let act = script.byte();
        // The server's bytes may stay on the way, and the event loop may not call `tick`.
        let (stays, no_tick) = (act & 0x80 != 0, act & 0x40 != 0);
        match act % 0x40 {
            0 | 1 => self.connect(),
            2 => {
                let id = script.pick(&[7, 7, 7, 0, 8, -1]);
                let t = script.pick(&[24_000, 24_000, 12_000, 4_000, 30_000, 1, 0, -1, i32::MAX]);
                self.greet(id, t);
            }
            3 => self.said.extend(script.piece()),
            4 => {
                let frame = Writer::bare().raw(script.piece()).frame();
                self.said.extend(frame);
            }
            5 | 6 => {
                let code = script.pick(&CODES);
                self.answer(script, |_, op, path| (code, body_of(op, path)));
            }
            7 => {
                let (code, body) = (script.pick(&CODES), script.piece().to_vec());
                self.answer(script, |_, _, _| (code, body));
            }
            8 => {
                let code = script.word();
                self.answer(script, |_, _, _| (code, Vec::new()));
            }
            9 => self.answer_all(),
            10 => {
                let kind =
                    script.pick(&[event::CREATED, event::DELETED, event::DATA_CHANGED, 4, 5, 0]);
                let path = match script.place(self.holds.len() + 1) {
                    Some(0) | None => "/d0".to_owned(),
                    Some(at) => self.holds[at - 1].hold.path().to_owned(),
                };
                let zxid = self.next_zxid(script.byte());
                self.say(xid::EVENT, zxid, err::OK, &watch_event(kind, &path));
            }
            11 => {
                let code = script.pick(&[err::OK, err::OK, err::AUTH_FAILED]);
                self.say(xid::AUTH, 0, code, &[]);
            }
            12 => self.long_answer(script),
            13 => {
                let zeros = [0; 64 << 10];
                self.said.extend(&zeros[..usize::from(script.byte()) << 8]);
            }
            14 => {
                let most = usize::from(script.byte()).min(self.said.len());
                let bytes: Vec<u8> = self.said.drain(..most).collect();
                return self.deliver(&bytes, no_tick);
            }
            15 | 16 => {
                let part = u32::from(script.byte());
                self.pass_time(self.rig.machine.timeout() * part / 256);
            }
            17 => self.pass_time(MS * u32::from(script.byte())),
            18 => {
                // The process is stopped, or its host sleeps.
                let part = u32::from(script.byte());
                self.rig.now = self.rig.now + self.rig.machine.timeout() * part / 32;
                return self.check(true);
            }
            19..=22 => self.call(script, no_tick),
            23 | 24 => self.leave(script, no_tick),
            25 => self.client_request(),
            26 => self.delete(script),
            27 => self.prove(),
            28 | 29 => {
                let (path, is_fixed) = (script.pick(&["/h/a", "/h/b", "/i/c"]), script.flag());
                self.grant(path, is_fixed);
            }
            30 => self.release(script),
            31 => self.drop_connection(),
            32 if script.byte() > 200 => self.close(),
            33 | 34 => self.watch(script),
            35 => self.end_watch(script),
            36..=39 => {
                // The mechanism makes a step, asked or not.
                let step = match script.byte() % 6 {
                    0..=2 => SaslStep::Send(script.piece().to_vec()),
                    3 => SaslStep::Done,
                    4 => SaslStep::Failed("no ticket".into()),
                    _ => SaslStep::Refused("not proven".into()),
                };
                self.rig.with(|machine, now| machine.sasl(step, now));
            }
            _ => self.tick(),
        }
        if !stays && !self.said.is_empty() {
            return self.deliver_all(no_tick);
        }
        self.settle(no_tick);
    }

    fn connect(&mut self) {
        if !self.rig.machine.wants_connection() {
            return;
        }
        self.said.clear();
        let request = self.rig.connect();
        let mut r = Reader::new(&request[4..]);
        let (version, _, timeout, id) = (r.i32(), r.i64(), r.i32(), r.i64());
        assert_eq!(
            (version, id),
            (Ok(0), Ok(self.session.unwrap_or(0))),
            "it asks for its own session"
        );
        assert!(timeout.is_ok_and(|ms| ms > 0));
        self.connections.push(ObservedConnection {
            handshake_sent: self.rig.now,
            session_id: None,
            is_refused: false,
            stream: Vec::new(),
            skip: 0,
            requests: Vec::new(),
            lag: Duration::ZERO,
            answered: Vec::new(),
            relayed: None,
            heard: None,
            committed: None,
        });
    }

    fn greet(&mut self, session_id: i64, timeout_ms: i32) {
        self.said.extend(ConnectReply { timeout_ms, session_id, password: vec![5; 16] }.frame());
    }

    fn say(&mut self, xid: i32, zxid: i64, err: i32, body: &[u8]) {
        self.said.extend(ReplyHeader { xid, zxid, err }.frame(body));
    }

    fn next_zxid(&mut self, choice: u8) -> i64 {
        match choice % 16 {
            0 => 0,
            1 => self.zxid,
            2 => -1,
            3 if choice > 200 => i64::MAX,
            _ => {
                self.zxid += 1;
                self.zxid
            }
        }
    }

    /// The server answers one of its open requests.
    fn answer(
        &mut self,
        script: &mut Script<'_>,
        with: impl FnOnce(i32, i32, &str) -> (i32, Vec<u8>),
    ) {
        let choice = script.byte();
        let zxid = self.next_zxid(choice);
        let Some(line) = self.connections.last() else { return };
        let open: Vec<&ObservedRequest> =
            line.requests.iter().filter(|request| request.answer.is_none()).collect();
        let Some(at) = script.place(open.len()) else { return };
        let (xid, (err, body)) = (open[at].xid, with(open[at].xid, open[at].op, &open[at].path));
        self.say(xid, zxid, err, &body);
    }

    /// The server answers all its open requests as a server should.
    fn answer_all(&mut self) {
        let Some(line) = self.connections.last() else { return };
        let open = line.requests.iter().filter(|request| request.answer.is_none());
        let open: Vec<_> = open.map(|of| (of.xid, of.op, body_of(of.op, &of.path))).collect();
        for (xid, op, body) in open {
            self.zxid += i64::from(op::is_write(op));
            self.say(xid, self.zxid, if op == op::DELETE { err::NO_NODE } else { err::OK }, &body);
        }
    }

    /// The beginning of an answer that is longer than the longest frame.
    fn long_answer(&mut self, script: &mut Script<'_>) {
        let (choice, more) = (script.byte(), i32::from(script.byte()) << 8);
        let Some(line) = self.connections.last() else { return };
        let open: Vec<&ObservedRequest> =
            line.requests.iter().filter(|request| request.answer.is_none()).collect();
        let xid = usize::from(choice).checked_rem(open.len()).map_or(1, |at| open[at].xid);
        self.zxid += 1;
        let mut frame = ReplyHeader { xid, zxid: self.zxid, err: err::OK }.frame(&[]);
        frame[..4].copy_from_slice(&(MAX_FRAME as i32 + 1 + more).to_be_bytes());
        self.said.extend(frame);
    }

    fn watch(&mut self, script: &mut Script<'_>) {
        let path = script.pick(&["/h/a", "/d0", "/w"]);
        let what = script.pick(&[None, Some(Watched::Node), Some(Watched::Children)]);
        let number = self.rig.with(|machine, now| match what {
            Some(what) => machine.watch_node(path, what, now),
            None => machine.watch_folder(path, now),
        });
        self.watches.extend(number);
    }

    fn end_watch(&mut self, script: &mut Script<'_>) {
        if let Some(at) = script.place(self.watches.len()) {
            let number = self.watches.swap_remove(at);
            self.rig.machine.end_look(number);
        }
    }

    fn name(&mut self) -> u32 {
        self.names += 1;
        self.names
    }

    fn call(&mut self, script: &mut Script<'_>, no_tick: bool) {
        let count = 1 + script.byte() % 3;
        let mut batch = Batch::new();
        let mut parts = Vec::new();
        for _ in 0..count {
            let name = self.name();
            let id = format!("{name:032x}");
            let (operation, path);
            let mut removal = None;
            match script.byte() % 7 {
                0 | 1 => {
                    let mode = CreateMode::EphemeralSequential;
                    path = format!("/d{name}/_c_{id}-lock-");
                    operation =
                        Operation::Create { path: &path, data: b"x", acl: &Acl::Open, mode };
                    removal = Some(Removal::of_create(&path, &id));
                }
                2 => {
                    path = format!("/d{name}/lock");
                    let mode = CreateMode::Ephemeral;
                    operation =
                        Operation::Create { path: &path, data: b"x", acl: &Acl::Open, mode };
                    removal = Some(Removal::signed(path.clone(), id, None));
                }
                kind => {
                    path = format!("/c{name}");
                    operation = match kind {
                        3 => Operation::GetData { path: &path, watch: true },
                        4 => Operation::Exists { path: &path },
                        5 => Operation::SetData { path: &path, data: b"y", version: None },
                        _ => Operation::GetChildren { path: &path, watch: false },
                    };
                }
            }
            batch.push(&operation, removal);
            parts.push((operation.code(), path));
        }
        match self.rig.submit(batch) {
            Ok(call) => {
                self.places.extend(parts.iter().map(|part| (part.clone(), None)));
                self.callers.push(ObservedCaller {
                    call: Some(call),
                    arrived: self.rig.now,
                    parts,
                });
            }
            Err(_) => assert!(self.rig.machine.is_ending()),
        }
        if !no_tick {
            self.rig.attend();
        }
    }

    /// The deadline of a caller is over, or it was cancelled.
    fn leave(&mut self, script: &mut Script<'_>, no_tick: bool) {
        let waiting: Vec<usize> =
            (0..self.callers.len()).filter(|at| self.callers[*at].call.is_some()).collect();
        let Some(at) = script.place(waiting.len()) else { return };
        let Some((number, answers)) = self.callers[waiting[at]].call.take() else { return };
        let has_left = self.rig.leave(number);
        if !no_tick {
            self.rig.attend();
        }
        if has_left {
            assert!(answers.try_recv().is_err(), "it left, and has answers all the same");
            return;
        }
        let got = match self.rig.take_answers(number) {
            Some(got) => got,
            None => {
                answers.try_recv().unwrap_or_else(|e| panic!("a caller that left too late: {e}"))
            }
        };
        self.verify(&self.callers[waiting[at]].parts, got);
    }

    fn client_request(&mut self) {
        let path = format!("/a{}", self.name());
        self.places.insert((op::EXISTS, path.clone()), None);
        let number = self.rig.client_request(op::EXISTS, &path);
        self.asked.push((number, path, self.rig.now));
    }

    fn delete(&mut self, script: &mut Script<'_>) {
        let name = self.name();
        self.tasks += 1;
        let (id, is_ours) = (format!("{name:032x}"), script.flag());
        let path = format!("/t{name}/_c_{id}-lock-0000000001");
        let task = match script.byte() % 3 {
            0 => Task::Prune { path, is_ours },
            _ => Task::Remove(Removal::named(path, id)),
        };
        self.rig.add_task(task);
    }

    fn prove(&mut self) {
        let now = self.rig.now;
        self.proofs.push((self.rig.prove(), now));
    }

    fn grant(&mut self, path: &str, is_fixed: bool) {
        let make = if is_fixed { LeasedNode::fixed } else { LeasedNode::new };
        let hold = make(path.to_owned(), 5, NodeWatch::Unset, self.rig.listener());
        let is_taken = self.rig.lease.leased_node(path).is_some();
        if !is_taken && self.rig.lease.grant(&hold, self.rig.now).is_ok() {
            self.holds.push(ObservedHold { hold, is_lost: false });
        }
    }

    fn release(&mut self, script: &mut Script<'_>) {
        let Some(at) = script.place(self.holds.len()) else { return };
        let ObservedHold { hold, .. } = self.holds.remove(at);
        self.rig.lease.release(&hold);
        self.tasks += 1;
        let (path, id) = (hold.path().to_owned(), format!("{:032x}", self.name()));
        self.rig.add_task(Task::Remove(Removal::named(path, id)));
    }

    fn drop_connection(&mut self) {
        self.said.clear();
        self.rig.drop_connection();
        self.settle(false);
    }

    fn close(&mut self) {
        // `Generation::close` does the same.
        self.rig.lease.end(LossReason::SessionClosed);
        let (closed, now) = (self.rig.close(), self.rig.now);
        self.closing.get_or_insert((closed, now));
    }

    // ---- the event loop around the machine ----

    fn tick(&mut self) {
        let next = self.rig.tick_until_quiet();
        self.observe(&[], true);
        self.poll();
        let oldest =
            self.callers.iter().filter(|caller| caller.call.is_some()).map(|caller| caller.arrived);
        if let Some(oldest) = oldest.min() {
            let limit = oldest + self.rig.machine.operation_timeout();
            assert!(
                next.is_some_and(|next| next <= limit),
                "it sleeps longer than a caller may wait"
            );
        }
    }

    fn pass_time(&mut self, d: Duration) {
        let until = self.rig.now + d;
        loop {
            self.settle(false);
            let next = self.rig.tick_until_quiet();
            self.observe(&[], true);
            match next.filter(|next| *next <= until) {
                Some(next) => self.rig.now = next,
                None => break,
            }
        }
        self.rig.now = until;
        self.settle(false);
    }

    fn deliver_all(&mut self, no_tick: bool) {
        let bytes = std::mem::take(&mut self.said);
        self.deliver(&bytes, no_tick);
    }

    /// The machine reads these bytes. `no_tick`: the event loop does not call `tick` afterwards.
    fn deliver(&mut self, bytes: &[u8], no_tick: bool) {
        self.observe(&[], true);
        let was_connected = self.is_connected();
        self.rig.machine.server_bytes(bytes, self.rig.now);
        if was_connected {
            let stays = self.is_connected();
            self.observe(bytes, stays);
        }
        self.settle(no_tick);
    }

    fn settle(&mut self, no_tick: bool) {
        if !no_tick {
            self.rig.deliver_outputs();
            self.rig.tick();
            self.rig.deliver_outputs();
        }
        self.observe(&[], true);
        self.check(no_tick);
    }

    // ---- the observer ----

    /// Reads the bytes that the machine has sent, and `bytes`, which the machine has read just
    /// before. `stays`: the machine was connected throughout, and has read all of them.
    fn observe(&mut self, bytes: &[u8], stays: bool) {
        let sent = std::mem::take(&mut self.rig.machine.to_server);
        let fresh = self.read_requests(&sent);
        let mut is_fresh_ordered = false;
        for frame in self.read_frames(bytes) {
            is_fresh_ordered |= self.read_frame(&frame, fresh, stays);
        }
        let Some(line) = self.connections.last_mut() else { return };
        for request in &mut line.requests[fresh..] {
            request.relayed = line.relayed;
        }
        if is_fresh_ordered {
            line.heard = line.heard.max(line.relayed);
        }
        self.count();
    }

    /// Takes over what the newest connection shows.
    fn count(&mut self) {
        let Some(line) = self.connections.last() else { return };
        if let Some(shown) = line.heard.min(line.committed) {
            self.heard = self.heard.max(shown);
        }
    }

    /// Reads the requests that the machine has sent; gives the index of the first.
    fn read_requests(&mut self, mut sent: &[u8]) -> usize {
        let Some(number) = self.connections.len().checked_sub(1) else {
            assert!(sent.is_empty(), "it sends without a connection");
            return 0;
        };
        let line = &mut self.connections[number];
        let fresh = line.requests.len();
        while let Some((prefix, rest)) = sent.split_first_chunk::<4>() {
            let (frame, rest) = rest.split_at(u32::from_be_bytes(*prefix) as usize);
            sent = rest;
            let mut r = Reader::new(frame);
            let (xid, op) = (r.i32().unwrap(), r.i32().unwrap());
            let path = r.string().unwrap_or_default().to_owned();
            if op == op::AUTH {
                continue;
            }
            let is_new = line.requests.iter().all(|of| of.xid != xid) || xid == xid::PING;
            assert!(is_new, "the xid {xid} twice");
            let key = (op, path);
            if let Some(place) = self.places.get_mut(&key) {
                assert_eq!(*place, None, "{key:?} was sent twice");
                *place = Some((number, xid));
            }
            let (sent, seen) = (self.rig.now, self.seen);
            let (op, path) = key;
            line.requests.push(ObservedRequest {
                xid,
                op,
                path,
                sent,
                seen,
                relayed: None,
                answer: None,
            });
        }
        assert!(sent.is_empty(), "half a frame");
        fresh
    }

    /// Cuts the bytes of the server into whole frames.
    fn read_frames(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let Some(line) = self.connections.last_mut() else { return Vec::new() };
        let skipped = line.skip.min(bytes.len());
        line.skip -= skipped;
        line.stream.extend(&bytes[skipped..]);
        let (mut frames, mut at) = (Vec::new(), 0);
        while let Some((prefix, rest)) = line.stream[at..].split_first_chunk::<4>() {
            let Ok(length) = usize::try_from(i32::from_be_bytes(*prefix)) else { break };
            if length <= MAX_FRAME {
                let Some(frame) = rest.get(..length) else { break };
                frames.push(frame.to_vec());
                at += 4 + length;
                continue;
            }
            let Some(head) = rest.get(..HEAD) else { break };
            let (mut head, arrived) = (head.to_vec(), rest.len().min(length));
            // The machine gives the caller this error.
            head[12..].copy_from_slice(&err::TOO_LONG.to_be_bytes());
            frames.push(head);
            line.skip = length - arrived;
            at += 4 + arrived;
        }
        line.stream.drain(..at);
        frames
    }

    /// Reads one frame of the server. True: it answers a write that the machine has sent while it
    /// read these same bytes.
    fn read_frame(&mut self, frame: &[u8], fresh: usize, stays: bool) -> bool {
        let now = self.rig.now;
        let Some(line) = self.connections.last_mut() else { return false };
        if line.is_refused {
            return false;
        }
        if line.session_id.is_none() {
            let is_ours = |of: &ConnectReply| self.session.is_none_or(|id| id == of.session_id);
            let is_good =
                |of: &ConnectReply| of.timeout_ms > 0 && of.session_id != 0 && is_ours(of);
            let Some(reply) = ConnectReply::read(frame).ok().filter(is_good) else {
                line.is_refused = true;
                return false;
            };
            let granted = Duration::from_millis(reply.timeout_ms.unsigned_abs().into());
            self.timeout = match self.session {
                Some(_) => self.timeout.min(granted),
                None => {
                    self.heard = line.handshake_sent;
                    granted
                }
            };
            self.session = Some(reply.session_id);
            line.session_id = Some(reply.session_id);
            let tick = self.rig.machine.config.tick.map_or(self.timeout / 4, |tick| tick / 2);
            line.lag = tick + self.timeout / 12;
            line.answered.push((line.handshake_sent, now));
            line.relayed = Some(line.handshake_sent);
            return false;
        }
        let Ok((header, body)) = ReplyHeader::read(frame) else { return false };
        if stays {
            self.seen = self.seen.max(header.zxid);
        }
        if matches!(header.xid, xid::EVENT | xid::AUTH) {
            return false;
        }
        let is_it =
            |request: &ObservedRequest| request.xid == header.xid && request.answer.is_none();
        let Some(at) = line.requests.iter().position(is_it) else { return false };
        let request = &mut line.requests[at];
        request.answer = Some((header.err, body.to_vec()));
        let is_write =
            op::is_write(request.op) && err::is_committed(header.err) && header.zxid > request.seen;
        let is_sync = request.op == op::SYNC && header.err == err::OK;
        let lasts = now < self.heard + (self.timeout - self.timeout / 12);
        let is_third_step = is_write || is_sync && lasts;
        if is_third_step {
            line.heard = line.heard.max(request.relayed);
        }
        if is_write {
            line.committed = line.committed.max(Some(request.sent));
        }
        if is_write || is_sync {
            let in_time =
                line.answered.iter().filter(|(_, answered)| *answered + line.lag <= request.sent);
            line.relayed = line.relayed.max(in_time.map(|(sent, _)| *sent).max());
        }
        line.answered.push((request.sent, now));
        self.count();
        is_third_step && at >= fresh
    }

    /// Checks the rules that hold at any time. `no_tick`: the event loop has not called `tick`
    /// since.
    fn check(&mut self, no_tick: bool) {
        self.check_session();
        self.check_holds();
        self.poll();
        if !no_tick {
            self.check_limits();
        }
    }

    fn check_session(&self) {
        let m = &self.rig.machine;
        if let Some(session) = &m.session {
            assert_eq!(Some(session.id), self.session, "another session");
            assert_eq!(session.timeout, self.timeout);
        }
        if matches!(m.phase, Phase::Sasl(..) | Phase::Auth(..) | Phase::Up) {
            let line = self.connections.last().expect("a connection");
            assert_eq!(line.session_id, self.session, "up without its session");
            assert!(line.session_id.is_some());
        }
        // The machine keeps no more entries than callers and servers have caused.
        assert!(m.unsent.len() <= m.batches.len());
        let open = |line: &ObservedConnection| {
            line.requests.iter().filter(|request| request.answer.is_none()).count()
        };
        assert!(m.outstanding.len() <= self.connections.last().map_or(0, open));
        assert!(m.pending_deletes().len() <= self.names as usize);
        assert!(m.looks.len() <= self.watches.len());
        let look = |of: &Outstanding| match of.sent_for {
            SentFor::Look(number) => Some(number),
            _ => None,
        };
        let mut looks: Vec<u64> = m.outstanding.iter().filter_map(look).collect();
        looks.sort_unstable();
        // The answer to the look of an ended watch may still come, and its number has no other.
        assert!(looks.windows(2).all(|pair| pair[0] != pair[1]), "two looks of one watch overlap");
        assert!(m.is_over() || m.session.is_some() || m.epoch == 0);
    }

    /// No hold stands longer than the observer says, and no lost hold stands again. If the timeout
    /// was shortened, the output for it comes first; until it is carried out, the holds stand by
    /// the old timeout.
    fn check_holds(&mut self) {
        let is_shorter = |output: &Output| matches!(output, Output::Shortened { .. });
        let outputs = &self.rig.machine.outputs;
        if let Some(at) = outputs.iter().position(is_shorter) {
            let is_log =
                |output: &Output| matches!(output, Output::Log(_, text) if text.contains("grants"));
            assert!(!outputs.iter().take(at).any(is_log), "a logger that blocks keeps holds alive");
            return;
        }
        let end = self.heard + (self.timeout - self.timeout / 12);
        for held in &mut self.holds {
            let stands = self.rig.lease.is_held(&held.hold, self.rig.now);
            assert!(!(stands && held.is_lost), "{}: held again", held.hold.path());
            held.is_lost = !stands;
            if stands {
                let (now, path) = (self.rig.now, held.hold.path());
                assert!(now < end, "{path}: held at {now:?}, after the lease's end at {end:?}");
                assert!(
                    !self.rig.machine.is_over() || !self.rig.machine.outputs.is_empty(),
                    "held after the end"
                );
            }
        }
    }

    /// Each caller that was answered checks its answers.
    fn poll(&mut self) {
        for at in 0..self.callers.len() {
            let Some((_, answers)) = &self.callers[at].call else { continue };
            match answers.try_recv() {
                Ok(got) => {
                    self.callers[at].call = None;
                    self.verify(&self.callers[at].parts, got);
                }
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => panic!("a caller gets no answer"),
            }
        }
        for (number, code) in self.rig.client_answers() {
            let at = self
                .asked
                .iter()
                .position(|(of, ..)| *of == number)
                .expect("an answer to the client twice");
            let (_, path, _) = self.asked.remove(at);
            let answer = self.answer_to(&(op::EXISTS, path));
            let is_own =
                matches!(code, err::CONNECTION_LOSS | err::SESSION_EXPIRED | err::AUTH_FAILED);
            assert!(
                is_own || answer.is_some_and(|(err, _)| *err == code),
                "the client got another's answer"
            );
        }
        self.proofs.retain(|(proven, _)| proven.try_recv() == Err(TryRecvError::Empty));
    }

    /// The server's answer to the request of a caller.
    fn answer_to(&self, part: &(i32, String)) -> Option<&(i32, Vec<u8>)> {
        let (line, xid) = (*self.places.get(part)?)?;
        self.connections[line].requests.iter().find(|request| request.xid == xid)?.answer.as_ref()
    }

    /// A caller gets the server's answers to its own requests, or an error that says that there was
    /// none.
    fn verify(&self, parts: &[(i32, String)], got: Answers) {
        assert_eq!(got.all.len(), parts.len());
        for (part, got) in parts.iter().zip(got.all) {
            let answer = self.answer_to(part);
            match (got, answer) {
                (Ok(reply), Some((err::OK, body))) => {
                    let expected =
                        codec::decode(part.0, body).expect("what a caller got is well formed");
                    assert_eq!(format!("{reply:?}"), format!("{expected:?}"), "{part:?}");
                }
                (Ok(reply), answer) => panic!("{part:?}: {reply:?} for {answer:?}"),
                (
                    Err(CallError::ConnectionLoss | CallError::Expired | CallError::AuthFailed(_)),
                    _,
                ) => {}
                (Err(e), Some((code, _))) => {
                    assert_eq!(e, CallError::of(part.0, *code), "{part:?}")
                }
                (Err(e), None) => panic!("{part:?}: {e:?} for no answer"),
            }
        }
    }

    /// `tick` was called: no caller waits longer than is promised.
    fn check_limits(&mut self) {
        let (m, now, t) = (&self.rig.machine, self.rig.now, self.rig.machine.timeout());
        let is_late = |of: &&ObservedCaller| now >= of.arrived + m.operation_timeout();
        assert!(
            !self.callers.iter().filter(is_late).any(|of| of.call.is_some()),
            "a caller waits too long"
        );
        let fresh = self.callers.len() - self.callers.iter().filter(is_late).count();
        assert!(
            m.batches.len() <= fresh + self.asked.len(),
            "requests of callers that left are kept"
        );
        for (_, path, asked) in &self.asked {
            assert!(now < *asked + m.operation_timeout(), "the client waits too long for {path}");
        }
        for (_, since) in &self.proofs {
            assert!(now < *since + t * 5 / 16, "a caller waits too long for the lease");
        }
        if let Some(oldest) = m.outstanding.front().filter(|_| m.phase == Phase::Up) {
            assert!(now < oldest.stamp.sent + t / 2, "a silent server is kept");
        }
        if let Some((_, since)) = self.closing.as_ref().filter(|_| !m.is_over()) {
            assert!(now < *since + CLOSE_TIMEOUT, "it closes for ever");
        }
        assert!(m.outputs.is_empty());
    }

    /// Whatever happened before, the session ends, every caller gets an answer, and the machine
    /// keeps nothing.
    fn end(&mut self) {
        self.close();
        self.pass_time(CLOSE_TIMEOUT);
        assert!(self.rig.machine.is_over());
        let m = &self.rig.machine;
        assert!(m.batches.is_empty() && m.outstanding.is_empty() && m.to_server.is_empty());
        assert_eq!(m.looks.len(), 0);
        assert!(self.callers.iter().all(|caller| caller.call.is_none()));
        assert!(self.asked.is_empty() && self.proofs.is_empty());
        assert!(self.closing.as_ref().is_some_and(|(closed, _)| closed.try_recv().is_ok()));
        assert!(self.rig.lease.is_over() && self.holds.iter().all(|held| held.is_lost));
    }
}

/// Codes of answers; success is the most frequent.
const CODES: [i32; 17] = [
    err::OK,
    err::OK,
    err::OK,
    err::OK,
    err::OK,
    err::NO_NODE,
    err::NODE_EXISTS,
    err::NO_AUTH,
    err::NOT_EMPTY,
    err::BAD_VERSION,
    err::CONNECTION_LOSS,
    err::SESSION_EXPIRED,
    err::SESSION_MOVED,
    err::TOO_LONG,
    -127,
    err::AUTH_FAILED,
    err::REQUIRES_AUTH,
];

/// The right answer to a request.
fn body_of(op: i32, path: &str) -> Vec<u8> {
    match op {
        op::CREATE | op::CREATE2 | op::CREATE_CONTAINER => {
            node(format!("{path}0000000003").as_bytes(), 5, 7)
        }
        op::GET_DATA => node(path.as_bytes(), 5, 7),
        op::EXISTS | op::SET_DATA | op::SET_ACL => node(b"", 5, 7).split_off(4),
        op::GET_CHILDREN => {
            // If the request is that of a sweep, one name is that of our node.
            let id = path.trim_start_matches("/d").parse().unwrap_or(0_u32);
            let name = format!("_c_{id:032x}-lock-0000000003");
            listing(&[&name, "other"])
        }
        op::GET_CHILDREN2 => [listing(&["other"]), node(b"", 5, 7).split_off(4)].concat(),
        op::SYNC => Writer::bare().buffer(b"/").body(),
        _ => Vec::new(),
    }
}
