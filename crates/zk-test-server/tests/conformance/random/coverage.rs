//! Counts the operations and answers of the random sequences, prints the counts, and checks that
//! the expected ones occurred. So the sequences cannot lose a part unnoticed.
use super::{
    super::{
        answers::{Body, Heard, Kind, Outcome},
        requests::op,
        servers::is_39,
    },
    player::Played,
};
use std::{collections::BTreeMap, fmt};

/// Stands for all unknown opcodes.
const UNKNOWN: i32 = 99;

/// Opcodes and their names.
const OPERATIONS: [(i32, &str); 30] = [
    (op::CREATE_SESSION, "come back"),
    (op::CREATE, "create"),
    (op::CREATE2, "create2"),
    (op::CREATE_CONTAINER, "createContainer"),
    (op::CREATE_TTL, "createTTL"),
    (op::DELETE, "delete"),
    (op::EXISTS, "exists"),
    (op::GET_DATA, "getData"),
    (op::SET_DATA, "setData"),
    (op::GET_ACL, "getACL"),
    (op::SET_ACL, "setACL"),
    (op::GET_CHILDREN, "getChildren"),
    (op::GET_CHILDREN2, "getChildren2"),
    (op::SYNC, "sync"),
    (op::PING, "ping"),
    (op::CHECK, "check"),
    (op::MULTI, "multi"),
    (op::MULTI_READ, "multiRead"),
    (op::AUTH, "auth"),
    (op::SET_WATCHES, "setWatches"),
    (op::SET_WATCHES2, "setWatches2"),
    (op::ADD_WATCH, "addWatch"),
    (op::REMOVE_WATCHES, "removeWatches"),
    (op::CHECK_WATCHES, "checkWatches"),
    (op::GET_EPHEMERALS, "getEphemerals"),
    (op::GET_ALL_CHILDREN_NUMBER, "getAllChildrenNumber"),
    (op::WHO_AM_I, "whoAmI"),
    (op::CLOSE_SESSION, "closeSession"),
    (op::RECONFIG, "reconfig"),
    (UNKNOWN, "an unknown one"),
];

const CODES: [(i32, &str); 16] = [
    (0, "ok"),
    (-5, "marshalling"),
    (-6, "unimplemented"),
    (-8, "bad arguments"),
    (-101, "no node"),
    (-102, "no auth"),
    (-103, "bad version"),
    (-108, "no children for ephemerals"),
    (-110, "node exists"),
    (-111, "not empty"),
    (-114, "invalid ACL"),
    (-115, "auth failed"),
    (-121, "no watcher"),
    (-123, "reconfig disabled"),
    (-2, "runtime inconsistency (in a multi)"),
    (-1000, "an error in a multi"),
];

const EVENTS: [Kind; 4] = [Kind::Created, Kind::Deleted, Kind::DataChanged, Kind::ChildrenChanged];

#[derive(Default)]
pub struct Coverage {
    operations: BTreeMap<i32, usize>,
    codes: BTreeMap<i32, usize>,
    events: BTreeMap<Kind, usize>,
    acts: usize,
    packets: usize,
    /// Counts by opcode and error code.
    pairs: BTreeMap<(i32, i32), usize>,
}

impl Coverage {
    pub fn add(&mut self, played: &[Played]) {
        for played in played {
            self.acts += 1;
            self.packets += usize::from(played.opcodes.len() > 1 && played.act.starts_with("Ask"));
            let known = |opcode: &i32| OPERATIONS.iter().any(|(known, _)| known == opcode);
            let opcodes =
                played.opcodes.iter().map(|opcode| if known(opcode) { *opcode } else { UNKNOWN });
            let opcodes = Vec::from_iter(opcodes);
            for opcode in &opcodes {
                *self.operations.entry(*opcode).or_default() += 1;
            }
            let replies =
                played.heard.iter().filter(|heard| matches!(heard, Heard::Reply(_))).count();
            for (at, heard) in played.heard.iter().enumerate() {
                match heard {
                    Heard::Event(event) => *self.events.entry(event.kind).or_default() += 1,
                    Heard::Closed => {}
                    Heard::Reply(reply) => {
                        self.code(reply.err);
                        let before = played.heard[..at]
                            .iter()
                            .filter(|heard| matches!(heard, Heard::Reply(_)));
                        if let (true, Some(opcode)) =
                            (replies == opcodes.len(), opcodes.get(before.count()))
                        {
                            *self.pairs.entry((*opcode, reply.err)).or_default() += 1;
                        }
                        if let Body::Results(results) = &reply.body {
                            for result in results {
                                match result {
                                    Outcome::Error(-2) => self.code(-2),
                                    Outcome::Error(code) if *code != 0 => self.code(-1000),
                                    _ => {}
                                }
                            }
                        }
                    }
                }
            }
        }
    }

    fn code(&mut self, code: i32) {
        *self.codes.entry(code).or_default() += 1;
    }

    /// Everything in the tables was met. (A single check is not played to 3.9.)
    pub fn check(&self) {
        let known = || OPERATIONS.iter().filter(|(opcode, _)| *opcode != op::CHECK || !is_39());
        let operations = known().filter(|(opcode, _)| !self.operations.contains_key(opcode));
        let codes = CODES.iter().filter(|(code, _)| !self.codes.contains_key(code));
        let events = EVENTS.iter().filter(|kind| !self.events.contains_key(kind));
        let mut missing: Vec<String> =
            operations.chain(codes).map(|(_, name)| (*name).to_owned()).collect();
        missing.extend(events.map(|kind| format!("{kind:?}")));
        assert!(missing.is_empty(), "the random sequences did not meet {missing:?}\n{self}");
        // Each operation has succeeded at least once, except those that cannot succeed, or are not
        // answered then.
        let never = [op::CHECK, op::RECONFIG, op::CREATE_SESSION, UNKNOWN];
        let failed = known().filter(|(opcode, _)| {
            !never.contains(opcode) && !self.pairs.contains_key(&(*opcode, 0))
        });
        let failed = Vec::from_iter(failed.map(|(_, name)| name));
        assert!(
            failed.is_empty(),
            "of the random sequences none had success with {failed:?}\n{self}"
        );
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests: usize = self.operations.values().sum();
        writeln!(
            f,
            "{} acts, {requests} requests, {} packets of several",
            self.acts, self.packets
        )?;
        let name = |table: &[(i32, &'static str)], number: i32| {
            table
                .iter()
                .find(|(known, _)| *known == number)
                .map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
        };
        write!(f, "operations:")?;
        for (opcode, count) in &self.operations {
            write!(f, " {} {count},", name(&OPERATIONS, *opcode))?;
        }
        write!(f, "\ncodes:")?;
        for (code, count) in &self.codes {
            write!(f, " {} {count},", name(&CODES, *code))?;
        }
        write!(f, "\ncodes of operations:")?;
        for ((opcode, code), count) in &self.pairs {
            write!(f, " {} {} {count},", name(&OPERATIONS, *opcode), name(&CODES, *code))?;
        }
        write!(f, "\nevents:")?;
        for (kind, count) in &self.events {
            write!(f, " {kind:?} {count},")?;
        }
        writeln!(f)
    }
}
