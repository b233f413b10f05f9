//! Random callers with a small server. Whatever is cut, refused, given up or ended: each caller
//! gets one answer, no node of ours is left over, and no caller waits for a node that is to be
//! deleted.

use std::collections::BTreeMap;

use super::batches::created;
use super::*;
use crate::acl::Acl;

/// A server with the nodes of one directory. It does requests when the test says so, and keeps its
/// answers until the test delivers them.
#[derive(Default)]
struct ModelServer {
    nodes: BTreeMap<String, ModelNode>,
    made: i32,
    zxid: i64,
    /// The number of creates that it will refuse, and the code.
    refuses: (usize, i32),
    requests: VecDeque<Vec<u8>>,
    /// Requests of earlier connections, and when each connection was lost. They may still be done,
    /// but not after the time that a request can be late.
    late: VecDeque<(BootTime, Vec<u8>)>,
    /// A request of an earlier connection was done: the session belongs to that server, and writes
    /// of the present connection are refused.
    has_moved: bool,
    answers: VecDeque<Vec<u8>>,
}

#[derive(Default)]
struct ModelNode {
    data: Vec<u8>,
    czxid: i64,
    owner: i64,
    version: i32,
}

impl ModelServer {
    fn serve(&mut self) {
        if let Some(frame) = self.requests.pop_front() {
            let answer = self.answer(&frame);
            self.answers.push_back(answer);
        }
    }

    fn serve_late(&mut self, now: BootTime) {
        self.late.retain(|(lost, _)| now < *lost + removal::late_bound(T));
        if let Some((_, frame)) = self.late.pop_front() {
            self.has_moved = false;
            self.answer(&frame); // its connection is gone, so no client gets the answer
            self.has_moved = true;
        }
    }

    fn answer(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut r = Reader::new(frame);
        let (xid, op) = (r.i32().unwrap(), r.i32().unwrap());
        self.zxid += i64::from(op::is_write(op));
        let answer = match op {
            op if op::is_write(op) && self.has_moved => Err(err::SESSION_MOVED),
            op::CREATE2 => {
                let (path, data) = (r.string().unwrap(), r.buffer().unwrap());
                assert_eq!(
                    (r.i32(), r.i32(), r.string(), r.string()),
                    (Ok(1), Ok(31), Ok("world"), Ok("anyone"))
                );
                self.create(path.to_owned(), data.to_vec(), r.i32().unwrap())
            }
            op::DELETE => {
                let (path, version) = (r.string().unwrap(), r.i32().unwrap());
                match self.nodes.get(path) {
                    Some(node) if version == -1 || version == node.version => {
                        self.nodes.remove(path);
                        Ok(Vec::new())
                    }
                    Some(_) => Err(err::BAD_VERSION),
                    None => Err(err::NO_NODE),
                }
            }
            op::SET_DATA => {
                let (path, data) = (r.string().unwrap(), r.buffer().unwrap());
                match self.nodes.get_mut(path) {
                    Some(node) if r.i32() == Ok(node.version) => {
                        (node.data, node.version) = (data.to_vec(), node.version + 1);
                        Ok(node.stat())
                    }
                    Some(_) => Err(err::BAD_VERSION),
                    None => Err(err::NO_NODE),
                }
            }
            op::GET_DATA => match self.nodes.get(r.string().unwrap()) {
                Some(node) => Ok(node.read()),
                None => Err(err::NO_NODE),
            },
            op::GET_CHILDREN => {
                let names: Vec<&str> = self.nodes.keys().map(|path| &path["/l/".len()..]).collect();
                Ok(listing(&names))
            }
            op::CLOSE => {
                self.nodes.retain(|_, node| node.owner == 0);
                self.late.clear(); // the session is over, so each of them is refused
                Ok(Vec::new())
            }
            _ => Ok(Writer::bare().buffer(b"/").body()),
        };
        let header = ReplyHeader {
            xid,
            zxid: self.zxid,
            err: answer.as_ref().err().copied().unwrap_or(err::OK),
        };
        header.frame(&answer.unwrap_or_default())
    }

    fn create(&mut self, path: String, data: Vec<u8>, mode: i32) -> Result<Vec<u8>, i32> {
        if self.refuses.0 > 0 {
            self.refuses.0 -= 1;
            return Err(self.refuses.1);
        }
        let is_numbered = mode == CreateMode::EphemeralSequential.flags();
        self.made += i32::from(is_numbered);
        let path = if is_numbered { format!("{path}{:010}", self.made) } else { path };
        if self.nodes.contains_key(&path) {
            return Err(err::NODE_EXISTS);
        }
        let owner = if mode == CreateMode::Persistent.flags() { 0 } else { 7 };
        let answer = created(&path, self.zxid);
        self.nodes.insert(path, ModelNode { data, czxid: self.zxid, owner, version: 0 });
        Ok(answer)
    }
}

impl ModelNode {
    fn read(&self) -> Vec<u8> {
        node_of_version(&self.data, self.czxid, self.owner, self.version)
    }

    fn stat(&self) -> Vec<u8> {
        self.read().split_off(4 + self.data.len())
    }
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelRequest {
    Contender,
    Fixed,
    List,
}

struct ModelCaller {
    /// The kinds of its requests, and the id of the node that each makes.
    wanted: Vec<(ModelRequest, String)>,
    call: PendingCall,
    is_waiting: bool,
}

struct ModelWorld {
    rig: Rig,
    server: ModelServer,
    callers: Vec<ModelCaller>,
    /// The nodes that callers have, by their ids.
    owned: BTreeMap<String, (ModelRequest, String)>,
}

fn path_of(kind: ModelRequest, id: &str) -> String {
    match kind {
        ModelRequest::Contender => format!("/l/_c_{id}-lock-"),
        ModelRequest::Fixed => format!("/l/{id}"),
        ModelRequest::List => "/l".to_owned(),
    }
}

/// The id in the name of a node.
fn id_of(name: &str) -> &str {
    name.strip_prefix("_c_").map_or(name, |rest| &rest[..32])
}

impl ModelWorld {
    fn new(has_hold: bool) -> Self {
        let (mut rig, mut server) = (Rig::up(), ModelServer::default());
        if has_hold {
            let held = ModelNode { czxid: 5, owner: 7, ..ModelNode::default() };
            server.nodes.insert("/l/held".to_owned(), held);
            rig.hold("/l/held");
        }
        rig.sent();
        ModelWorld { rig, server, callers: Vec::new(), owned: BTreeMap::new() }
    }

    fn call(&mut self, wanted: &[ModelRequest]) {
        if self.rig.machine.is_ending() {
            return;
        }
        let new_id = |kind: &ModelRequest| match kind {
            ModelRequest::Fixed => nonce::new(),
            _ => nonce::new().replace('-', ""),
        };
        let wanted: Vec<_> = wanted.iter().map(|kind| (*kind, new_id(kind))).collect();
        let paths: Vec<_> = wanted.iter().map(|(kind, id)| path_of(*kind, id)).collect();
        let data: Vec<_> = wanted.iter().map(|(_, id)| nonce::sign(id, b"x")).collect();
        let request =
            |((kind, id), (path, data)): (&(ModelRequest, String), (&'_ String, &'_ Vec<u8>))| {
                match *kind {
                    ModelRequest::Contender => {
                        let removal = Removal::of_create(path, id);
                        (CreateMode::EphemeralSequential, Some(removal), data.clone())
                    }
                    ModelRequest::Fixed => {
                        let removal = Removal::signed(path.clone(), id.clone(), None);
                        (CreateMode::Ephemeral, Some(removal), data.clone())
                    }
                    ModelRequest::List => (CreateMode::Container, None, Vec::new()),
                }
            };
        let made: Vec<_> = wanted.iter().zip(paths.iter().zip(&data)).map(request).collect();
        let requests: Vec<_> = made
            .iter()
            .zip(&paths)
            .map(|((mode, settle, data), path)| {
                let operation = match mode {
                    CreateMode::Container => Operation::GetChildren { path, watch: false },
                    mode => Operation::Create { path, data, acl: &Acl::Open, mode: *mode },
                };
                (operation, settle.clone())
            })
            .collect();
        let call = self.rig.call(&requests);
        self.callers.push(ModelCaller { wanted, call, is_waiting: true });
    }

    fn leave(&mut self, at: usize) {
        let waiting: Vec<usize> =
            (0..self.callers.len()).filter(|i| self.callers[*i].is_waiting).collect();
        if waiting.is_empty() {
            return;
        }
        let caller = &mut self.callers[waiting[at % waiting.len()]];
        if self.rig.abandon(&caller.call) {
            caller.is_waiting = false;
        }
    }

    fn release(&mut self, at: usize) {
        if self.rig.machine.is_ending() {
            return; // another test covers releases after the end
        }
        let ids: Vec<String> = self.owned.keys().cloned().collect();
        let Some(id) = ids.get(at % ids.len().max(1)).cloned() else { return };
        let (kind, path) = self.owned.remove(&id).unwrap();
        match kind {
            ModelRequest::Fixed => self.rig.add_task(Task::Remove(Removal::signed(path, id, None))),
            _ => self.rig.add_task(Task::Remove(Removal::named(path, id))),
        }
    }

    /// Each caller that was answered checks its answers.
    fn poll(&mut self) {
        let is_known = |caller: &&ModelCaller| caller.is_waiting;
        let making = self.callers.iter().filter(is_known).flat_map(|caller| &caller.wanted);
        let known: HashSet<String> =
            making.map(|(_, id)| id).chain(self.owned.keys()).cloned().collect();
        for at in 0..self.callers.len() {
            let caller = &mut self.callers[at];
            let answers = match caller.call.1.try_recv() {
                Ok(answers) => answers,
                Err(e) => {
                    assert_eq!(
                        e.is_disconnected(),
                        !caller.is_waiting,
                        "each waiting caller gets one answer"
                    );
                    continue;
                }
            };
            assert!(caller.is_waiting && answers.all.len() == caller.wanted.len());
            caller.is_waiting = false;
            for ((kind, id), answer) in caller.wanted.clone().into_iter().zip(answers.all) {
                match (kind, answer) {
                    (ModelRequest::List, Ok(Reply::Children(children))) => {
                        for name in children.names() {
                            let id = id_of(name);
                            let is_ours =
                                id == "held" || known.contains(id) || answers.pending.contains(id);
                            assert!(is_ours, "{name} would block us");
                        }
                    }
                    (ModelRequest::List, answer) => assert!(answer.is_err()),
                    (_, Ok(Reply::Created(path, _))) => drop(self.owned.insert(id, (kind, path))),
                    (_, Ok(answer)) => panic!("{answer:?} to a create"),
                    (_, Err(_)) => {}
                }
            }
        }
    }

    /// The requests that were sent arrive at the server, unless their connection is gone.
    fn flow(&mut self) {
        if self.rig.machine.wants_connection() || self.rig.machine.is_over() {
            let now = self.rig.now;
            let late = self.server.requests.drain(..).map(|frame| (now, frame));
            self.server.late.extend(late);
            self.server.answers.clear();
            self.server.has_moved = false; // the next connection makes its server the owner
        }
        self.rig.server_in.push(&std::mem::take(&mut self.rig.machine.to_server));
        while let Some(frame) = self.rig.server_in.next().unwrap() {
            self.server.requests.push_back(frame.to_vec());
        }
    }

    fn act(&mut self, act: ModelAct) {
        match act {
            ModelAct::Call(wanted) => self.call(wanted),
            ModelAct::Leave(at) => self.leave(at),
            ModelAct::Release(at) => self.release(at),
            ModelAct::Serve(n) => (0..n).for_each(|_| self.server.serve()),
            ModelAct::ServeLate(n) => (0..n).for_each(|_| self.server.serve_late(self.rig.now)),
            ModelAct::Answer(n) => {
                for _ in 0..n {
                    let Some(frame) = self.server.answers.pop_front() else { break };
                    self.rig.bytes(&frame);
                }
            }
            ModelAct::Refuse(n, code) => self.server.refuses = (n, code),
            ModelAct::Cut => self.rig.drop_connection(),
            ModelAct::Attach if self.rig.machine.wants_connection() => self.rig.attach(7),
            ModelAct::Attach => {}
            ModelAct::Outage(wanted, ms) => {
                self.rig.drop_connection();
                self.flow();
                self.call(wanted);
                self.rig.pass_time(Duration::from_millis(ms));
                if self.rig.machine.wants_connection() {
                    self.rig.attach(7);
                }
            }
            ModelAct::Wait(ms) => self.rig.pass_time(Duration::from_millis(ms)),
            ModelAct::Close => drop(self.rig.close()),
            ModelAct::Expire if self.rig.machine.wants_connection() => {
                self.server.nodes.retain(|_, node| node.owner == 0);
                self.rig.connect();
                self.rig.greet(0, 0);
            }
            ModelAct::Expire => {}
        }
        self.flow();
        self.poll();
        self.flow();
        self.check();
    }

    /// Each node at the server belongs to a caller or a hold, or is a pending delete.
    fn check(&self) {
        if self.rig.machine.is_ending() {
            return;
        }
        let pending = self.rig.machine.pending_deletes();
        let waiting = self
            .callers
            .iter()
            .filter(|caller| caller.is_waiting)
            .flat_map(|caller| &caller.wanted);
        let mut known: HashSet<&str> = waiting.map(|(_, id)| id.as_str()).collect();
        known.extend(pending.iter().chain(self.owned.keys()).map(String::as_str));
        known.insert("held");
        let unknown =
            self.server.nodes.keys().find(|path| !known.contains(id_of(&path["/l/".len()..])));
        assert_eq!(unknown, None);
    }
}

#[derive(Clone, Copy, Debug)]
enum ModelAct {
    Call(&'static [ModelRequest]),
    Leave(usize),
    Release(usize),
    Serve(usize),
    ServeLate(usize),
    Answer(usize),
    Refuse(usize, i32),
    Cut,
    Attach,
    /// Requests wait for a while before they are sent.
    Outage(&'static [ModelRequest], u64),
    Wait(u64),
    Close,
    Expire,
}

fn act() -> impl Strategy<Value = ModelAct> {
    const CALLS: [&[ModelRequest]; 5] = [
        &[ModelRequest::Contender, ModelRequest::List],
        &[ModelRequest::Contender, ModelRequest::Contender],
        &[ModelRequest::Contender],
        &[ModelRequest::Fixed],
        &[ModelRequest::List, ModelRequest::List],
    ];
    prop_oneof![
        60 => (0..CALLS.len()).prop_map(|at| ModelAct::Call(CALLS[at])),
        30 => any::<usize>().prop_map(ModelAct::Leave),
        20 => any::<usize>().prop_map(ModelAct::Release),
        50 => (1usize..6).prop_map(ModelAct::Serve),
        10 => (1usize..6).prop_map(ModelAct::ServeLate),
        50 => (1usize..6).prop_map(ModelAct::Answer),
        5 => (1usize..3, prop_oneof![Just(err::NO_AUTH), Just(err::NO_NODE), Just(-127)])
            .prop_map(|(n, code)| ModelAct::Refuse(n, code)),
        10 => Just(ModelAct::Cut),
        20 => Just(ModelAct::Attach),
        10 => (0..CALLS.len(), 1u64..4000).prop_map(|(at, ms)| ModelAct::Outage(CALLS[at], ms)),
        20 => (1u64..2000).prop_map(ModelAct::Wait),
        2 => (2000u64..5000).prop_map(ModelAct::Wait),
        1 => Just(ModelAct::Close),
        1 => Just(ModelAct::Expire),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_caller_is_answered_once_and_every_abandoned_node_is_deleted(
        has_hold in any::<bool>(),
        acts in prop::collection::vec(act(), 0..150),
    ) {
        let mut world = ModelWorld::new(has_hold);
        acts.into_iter().for_each(|act| world.act(act));
        let is_closed = world.rig.machine.is_ending() && !world.rig.machine.is_over();
        let end = world.rig.now + removal::late_bound(T) + T * 4;
        while world.rig.now < end {
            for act in [ModelAct::Attach, ModelAct::Serve(1000), ModelAct::Answer(1000), ModelAct::Wait(600)] {
                world.act(act);
            }
        }
        let ModelWorld { rig, server, callers, owned } = world;
        prop_assert!(callers.iter().all(|caller| !caller.is_waiting));
        prop_assert!(rig.machine.batches.is_empty() && rig.machine.unsent.is_empty());
        let left: Vec<&String> = server.nodes.keys().filter(|path| *path != "/l/held").collect();
        let mut expected: Vec<&String> = owned.values().map(|(_, path)| path).collect();
        expected.sort();
        if !rig.machine.is_ending() {
            prop_assert_eq!(rig.pending(), [""; 0]);
            prop_assert_eq!(left, expected);
        } else if is_closed {
            expected.retain(|path| path.ends_with("-kept"));
            prop_assert_eq!(left, expected);
        }
    }
}
