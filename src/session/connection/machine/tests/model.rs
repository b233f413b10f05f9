//! Callers at random against a small server: whatever is cut, refused, given up or ended, each
//! caller gets one answer, no node of ours is left over, and none that goes blocks us.

use std::collections::BTreeMap;

use super::background::node;
use super::batches::created;
use super::*;
use crate::session::acl::Acl;

/// What a server knows of nodes, in one folder. It does requests when the test says so, and its
/// answers wait until the test lets them through.
#[derive(Default)]
struct Server {
    /// Data, czxid, owner.
    nodes: BTreeMap<String, (Vec<u8>, i64, i64)>,
    made: i32,
    zxid: i64,
    /// How many creates it is about to refuse, and with which code.
    refuses: (usize, i32),
    requests: VecDeque<Vec<u8>>,
    /// Requests of earlier connections, which may still be done until a write of this one is.
    late: VecDeque<Vec<u8>>,
    answers: VecDeque<Vec<u8>>,
}

impl Server {
    fn serve(&mut self) {
        if let Some(frame) = self.requests.pop_front() {
            let answer = self.answer(&frame);
            self.answers.push_back(answer);
            if request_header(&frame).is_ok_and(|(_, op)| op::is_write(op)) {
                self.late.clear();
            }
        }
    }

    fn serve_late(&mut self) {
        if let Some(frame) = self.late.pop_front() {
            self.answer(&frame); // nobody hears it
        }
    }

    fn answer(&mut self, frame: &[u8]) -> Vec<u8> {
        let mut r = Reader::new(frame);
        let (xid, op) = (r.i32().unwrap(), r.i32().unwrap());
        self.zxid += i64::from(op::is_write(op));
        let answer = match op {
            op::CREATE2 => {
                let (path, data) = (r.string().unwrap(), r.buffer().unwrap());
                assert_eq!(
                    (r.i32(), r.i32(), r.string(), r.string()),
                    (Ok(1), Ok(31), Ok("world"), Ok("anyone"))
                );
                self.create(path.to_owned(), data.to_vec(), r.i32().unwrap())
            }
            op::DELETE => match self.nodes.remove(r.string().unwrap()) {
                Some(_) => Ok(Vec::new()),
                None => Err(err::NO_NODE),
            },
            op::GET_DATA => match self.nodes.get(r.string().unwrap()) {
                Some((data, czxid, owner)) => Ok(node(data, *czxid, *owner)),
                None => Err(err::NO_NODE),
            },
            op::GET_CHILDREN => {
                let names = self.nodes.keys().map(|path| &path.as_bytes()["/l/".len()..]);
                let w = Writer::bare().i32(i32::try_from(self.nodes.len()).unwrap());
                Ok(names.fold(w, Writer::buffer).frame()[4..].to_vec())
            }
            op::CLOSE => {
                self.nodes.retain(|_, (_, _, owner)| *owner == 0);
                Ok(Vec::new())
            }
            _ => Ok(Writer::bare().buffer(b"/").frame()[4..].to_vec()),
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
        let is_numbered = mode == CreateMode::EphemeralSequential as i32;
        self.made += i32::from(is_numbered);
        let path = if is_numbered { format!("{path}{:010}", self.made) } else { path };
        if self.nodes.contains_key(&path) {
            return Err(err::NODE_EXISTS);
        }
        let owner = if mode == CreateMode::Persistent as i32 { 0 } else { 7 };
        let answer = created(&path, self.zxid);
        self.nodes.insert(path, (data, self.zxid, owner));
        Ok(answer)
    }
}

/// One request of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Contender,
    /// A contender's node that outlives the session.
    Lasting,
    /// `true`: an earlier create of it may have been done.
    Fixed(bool),
    List,
}

struct Caller {
    /// What it asked for, and the id of the node where it makes one.
    parts: Vec<(Part, String)>,
    call: Call,
    is_waiting: bool,
}

struct World {
    rig: Rig,
    server: Server,
    callers: Vec<Caller>,
    /// The nodes that callers have, by their ids.
    owned: BTreeMap<String, (Part, String)>,
}

fn path_of(part: Part, id: &str) -> String {
    match part {
        Part::Contender => format!("/l/_c_{id}-lock-"),
        Part::Lasting => format!("/l/_c_{id}-kept"),
        Part::Fixed(_) => format!("/l/{id}"),
        Part::List => "/l".to_owned(),
    }
}

/// The id in the name of a node.
fn id_of(name: &str) -> &str {
    name.strip_prefix("_c_").map_or(name, |rest| &rest[..32])
}

impl World {
    fn new(has_hold: bool) -> Self {
        let (mut rig, mut server) = (Rig::up(), Server::default());
        if has_hold {
            server.nodes.insert("/l/held".to_owned(), (Vec::new(), 5, 7));
            rig.hold("/l/held");
        }
        rig.sent();
        World { rig, server, callers: Vec::new(), owned: BTreeMap::new() }
    }

    fn call(&mut self, parts: &[Part], retried: Option<&str>) {
        if self.rig.m.is_ending() {
            return;
        }
        let new_id = |part: &Part| match retried {
            Some(nonce) => nonce.to_owned(),
            None if matches!(part, Part::Fixed(_)) => nonce::new(),
            None => nonce::new().replace('-', ""),
        };
        let parts: Vec<_> = parts.iter().map(|part| (*part, new_id(part))).collect();
        let paths: Vec<_> = parts.iter().map(|(part, id)| path_of(*part, id)).collect();
        let data: Vec<_> = parts.iter().map(|(_, id)| nonce::sign(id, b"x")).collect();
        let request = |((part, id), (path, data)): (&(Part, String), (&'_ String, &'_ Vec<u8>))| {
            let named = |outlives_session| {
                let mut removal = Removal::of_create(path, id);
                removal.outlives_session = outlives_session;
                Some(removal)
            };
            match *part {
                Part::Contender => (CreateMode::EphemeralSequential, named(false), data.clone()),
                Part::Lasting => (CreateMode::Persistent, named(true), data.clone()),
                Part::Fixed(may_exist) => {
                    let mut removal = Removal::signed(path.clone(), id.clone(), None);
                    removal.may_exist = may_exist;
                    (CreateMode::Ephemeral, Some(removal), data.clone())
                }
                Part::List => (CreateMode::Container, None, Vec::new()),
            }
        };
        let made: Vec<_> = parts.iter().zip(paths.iter().zip(&data)).map(request).collect();
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
        self.callers.push(Caller { parts, call, is_waiting: true });
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
        if self.rig.m.is_ending() {
            return; // what becomes of a release then has a scenario of its own
        }
        let ids: Vec<String> = self.owned.keys().cloned().collect();
        let Some(id) = ids.get(at % ids.len().max(1)).cloned() else { return };
        let (part, path) = self.owned.remove(&id).unwrap();
        match part {
            Part::Fixed(_) => self.rig.task(Task::Remove(Removal::signed(path, id, None))),
            _ => {
                let mut removal = Removal::named(path, id);
                removal.outlives_session = part == Part::Lasting;
                self.rig.task(Task::Remove(removal));
            }
        }
    }

    /// Each caller that was answered sees what it got.
    fn poll(&mut self) {
        let is_known = |caller: &&Caller| caller.is_waiting;
        let making = self.callers.iter().filter(is_known).flat_map(|caller| &caller.parts);
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
                        "an answer to each who waits, and one"
                    );
                    continue;
                }
            };
            assert!(caller.is_waiting && answers.all.len() == caller.parts.len());
            caller.is_waiting = false;
            for ((part, id), answer) in caller.parts.clone().into_iter().zip(answers.all) {
                match (part, answer) {
                    (Part::List, Ok(Reply::Children(children))) => {
                        for name in children.names() {
                            let id = id_of(name);
                            let is_ours =
                                id == "held" || known.contains(id) || answers.pending.contains(id);
                            assert!(is_ours, "{name} would block us");
                        }
                    }
                    (Part::List, answer) => assert!(answer.is_err()),
                    (_, Ok(Reply::Created(path, _))) => drop(self.owned.insert(id, (part, path))),
                    (_, Ok(answer)) => panic!("{answer:?} to a create"),
                    // A caller that is still there settles a fixed name itself.
                    (Part::Fixed(_), Err(CallError::ConnectionLoss)) if at % 2 == 0 => {
                        self.call(&[Part::Fixed(true)], Some(&id));
                    }
                    (Part::Fixed(_), Err(CallError::Expired)) => {}
                    (Part::Fixed(_), Err(_)) => {
                        let path = path_of(part, &id);
                        self.rig.task(Task::Remove(Removal::signed(path, id, None)));
                    }
                    (_, Err(_)) => {}
                }
            }
        }
    }

    /// What was sent is at the server, unless the connection is gone with it.
    fn flow(&mut self) {
        if self.rig.m.wants_connection() || self.rig.m.is_over() {
            self.server.late.append(&mut self.server.requests);
            self.server.answers.clear();
        }
        self.rig.server_in.push(&std::mem::take(&mut self.rig.m.to_server));
        while let Some(frame) = self.rig.server_in.next().unwrap() {
            self.server.requests.push_back(frame.to_vec());
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Call(parts) => self.call(parts, None),
            Act::Leave(at) => self.leave(at),
            Act::Release(at) => self.release(at),
            Act::Serve(n) => (0..n).for_each(|_| self.server.serve()),
            Act::ServeLate(n) => (0..n).for_each(|_| self.server.serve_late()),
            Act::Answer(n) => {
                for _ in 0..n {
                    let Some(frame) = self.server.answers.pop_front() else { break };
                    self.rig.bytes(&frame);
                }
            }
            Act::Refuse(n, code) => self.server.refuses = (n, code),
            Act::Cut => self.rig.drop_connection(),
            Act::Attach if self.rig.m.wants_connection() => self.rig.attach(7),
            Act::Attach => {}
            Act::Outage(parts, ms) => {
                self.rig.drop_connection();
                self.flow();
                self.call(parts, None);
                self.rig.pass(Duration::from_millis(ms));
                if self.rig.m.wants_connection() {
                    self.rig.attach(7);
                }
            }
            Act::Wait(ms) => self.rig.pass(Duration::from_millis(ms)),
            Act::Close => drop(ending::close(&mut self.rig)),
            Act::Expire if self.rig.m.wants_connection() => {
                self.server.nodes.retain(|_, (_, _, owner)| *owner == 0);
                self.rig.connect();
                self.rig.greet(0, 0);
            }
            Act::Expire => {}
        }
        self.flow();
        self.poll();
        self.flow();
        self.check();
    }

    /// Each node at the server belongs to somebody, or is known to be on its way out.
    fn check(&self) {
        if self.rig.m.is_ending() {
            return;
        }
        let pending = self.rig.m.pending_deletes();
        let waiting =
            self.callers.iter().filter(|caller| caller.is_waiting).flat_map(|caller| &caller.parts);
        let mut known: HashSet<&str> = waiting.map(|(_, id)| id.as_str()).collect();
        known.extend(pending.iter().chain(self.owned.keys()).map(String::as_str));
        known.insert("held");
        let unknown =
            self.server.nodes.keys().find(|path| !known.contains(id_of(&path["/l/".len()..])));
        assert_eq!(unknown, None);
    }
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Call(&'static [Part]),
    Leave(usize),
    Release(usize),
    Serve(usize),
    ServeLate(usize),
    Answer(usize),
    Refuse(usize, i32),
    Cut,
    Attach,
    /// Requests wait for a while before they are sent.
    Outage(&'static [Part], u64),
    Wait(u64),
    Close,
    Expire,
}

fn act() -> impl Strategy<Value = Act> {
    const CALLS: [&[Part]; 6] = [
        &[Part::Contender, Part::List],
        &[Part::Contender, Part::Contender],
        &[Part::Contender],
        &[Part::Fixed(false)],
        &[Part::Lasting],
        &[Part::List, Part::List],
    ];
    prop_oneof![
        60 => (0..CALLS.len()).prop_map(|at| Act::Call(CALLS[at])),
        30 => any::<usize>().prop_map(Act::Leave),
        20 => any::<usize>().prop_map(Act::Release),
        50 => (1usize..6).prop_map(Act::Serve),
        10 => (1usize..6).prop_map(Act::ServeLate),
        50 => (1usize..6).prop_map(Act::Answer),
        5 => (1usize..3, prop_oneof![Just(err::NO_AUTH), Just(err::NO_NODE), Just(-127)])
            .prop_map(|(n, code)| Act::Refuse(n, code)),
        10 => Just(Act::Cut),
        20 => Just(Act::Attach),
        10 => (0..CALLS.len(), 1u64..4000).prop_map(|(at, ms)| Act::Outage(CALLS[at], ms)),
        20 => (1u64..2000).prop_map(Act::Wait),
        2 => (2000u64..5000).prop_map(Act::Wait),
        1 => Just(Act::Close),
        1 => Just(Act::Expire),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_caller_is_answered_once_and_every_node_that_nobody_has_goes(
        has_hold in any::<bool>(),
        acts in prop::collection::vec(act(), 0..150),
    ) {
        let mut world = World::new(has_hold);
        acts.into_iter().for_each(|act| world.act(act));
        let is_closed = world.rig.m.is_ending() && !world.rig.m.is_over();
        for _ in 0..40 {
            for act in [Act::Attach, Act::Serve(1000), Act::Answer(1000), Act::Wait(600)] {
                world.act(act);
            }
        }
        let World { rig, server, callers, owned } = world;
        prop_assert!(callers.iter().all(|caller| !caller.is_waiting));
        prop_assert!(rig.m.batches.is_empty() && rig.m.unsent.is_empty());
        let left: Vec<&String> = server.nodes.keys().filter(|path| *path != "/l/held").collect();
        let mut expected: Vec<&String> = owned.values().map(|(_, path)| path).collect();
        expected.sort();
        if !rig.m.is_ending() {
            prop_assert_eq!(rig.pending(), [""; 0]);
            prop_assert_eq!(left, expected);
        } else if is_closed {
            expected.retain(|path| path.ends_with("-kept"));
            prop_assert_eq!(left, expected);
        }
    }
}
