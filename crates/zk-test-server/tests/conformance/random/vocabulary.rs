//! The parts of a random sequence: paths, data, versions and permissions. They are chosen at
//! random, or from earlier answers.
use super::super::{
    answers::{Body, Outcome, Reply},
    checks::ALICE,
    requests::{Create, Req, acl, mode::*, op, open, rooted},
};
use fastrand::Rng;
use std::collections::HashMap;
use zk_test_support::raw::{Acl, Stat};

/// Paths below the node of the sequence.
const PATHS: [&str; 12] = [
    "/",
    "/a",
    "/a",
    "/b",
    "/a/x",
    "/a/y",
    "/b/x",
    "/a/x/1",
    "/a/x/2",
    "/b/x/1",
    "/a/x/1/deep",
    "/c",
];
const ODD_PATHS: [&str; 7] =
    ["/a/", "/a//x", "/a/../b", "", "no-path", "/nothing/there", "/a/\u{1}"];
const SYSTEM_PATHS: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];
pub const HOUR: i64 = 3_600_000;

pub struct Vocabulary {
    pub rng: Rng,
    /// All nodes of this sequence are below this node.
    pub top: String,
    /// Only choices whose answers do not depend on how requests overlap.
    pub steady: bool,
    /// The sequential nodes so far.
    numbered: Vec<String>,
    stats: HashMap<String, Stat>,
    /// The zxids of earlier answers.
    zxids: Vec<i64>,
}

impl Vocabulary {
    pub fn new(seed: u64) -> Vocabulary {
        Vocabulary {
            rng: Rng::with_seed(seed),
            top: format!("/s{seed}"),
            steady: false,
            numbered: Vec::new(),
            stats: HashMap::new(),
            zxids: vec![0],
        }
    }

    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.rng.usize(0..choices.len())].clone()
    }

    /// One of the choices, each as often as its weight says.
    pub fn weighted<T: Copy>(&mut self, choices: &[(u32, T)]) -> T {
        let mut at = self.rng.u32(0..choices.iter().map(|(weight, _)| weight).sum());
        for (weight, choice) in choices {
            match at.checked_sub(*weight) {
                Some(rest) => at = rest,
                None => return *choice,
            }
        }
        unreachable!()
    }

    pub fn path(&mut self) -> String {
        if !self.numbered.is_empty() && self.chance(20) {
            let numbered = self.numbered.clone();
            return self.pick(&numbered);
        }
        if !self.steady && self.chance(4) {
            return self.pick(&SYSTEM_PATHS).to_owned();
        }
        let path = if self.chance(4) { self.pick(&ODD_PATHS) } else { self.pick(&PATHS) };
        rooted(&self.top, path)
    }

    /// All paths that may have a node by now.
    pub fn all_paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = PATHS.iter().map(|path| rooted(&self.top, path)).collect();
        paths.extend(self.numbered.iter().cloned());
        paths.extend(SYSTEM_PATHS.map(str::to_owned));
        paths.sort();
        paths.dedup();
        paths
    }

    pub fn data(&mut self) -> Option<Vec<u8>> {
        match self.rng.u32(0..10) {
            0 => None,
            1 => Some(Vec::new()),
            _ => Some((0..self.rng.usize(1..5)).map(|_| self.rng.u8(..)).collect()),
        }
    }

    /// A version: the right one, any, or a wrong one.
    pub fn version(&mut self, path: &str, of: impl Fn(&Stat) -> i32) -> i32 {
        let known = self.stats.get(path).map_or(0, of);
        match self.rng.u32(0..10) {
            0..4 => known,
            4..8 => -1,
            8 => known + 1,
            _ => self.pick(&[-2, 0, 1, 99]),
        }
    }

    pub fn seen(&mut self) -> i64 {
        let zxids = self.zxids.clone();
        self.pick(&zxids)
    }

    pub fn acl(&mut self) -> Option<Vec<Acl>> {
        let world = |perms| acl(perms, "world", "anyone");
        let alice = |perms| acl(perms, "digest", ALICE);
        Some(match self.rng.u32(0..100) {
            0..82 => open(),
            82..84 => vec![world(1)],
            84..86 => vec![world(30)],
            86..88 => vec![alice(31)],
            88..90 => vec![alice(31), world(1)],
            90..92 => vec![acl(31, "auth", ""), world(1)],
            92..93 => vec![world(7), world(7), acl(31, "ip", "127.0.0.0/8")],
            93..95 => vec![acl(31, "ip", "10.0.0.0/8"), world(15)],
            95 => vec![acl(31, "digest", "no-colon")],
            96 => vec![acl(31, "unknown", "x")],
            97 => vec![],
            98 => return None,
            _ => vec![world(0)],
        })
    }

    pub fn create(&mut self) -> Req {
        // Opcode and flags that fit together, or not.
        let (op, flags) = match self.rng.u32(0..100) {
            0..25 => (op::CREATE, PERSISTENT),
            25..35 => (op::CREATE, EPHEMERAL),
            35..43 => (op::CREATE, SEQUENTIAL),
            43..48 => (op::CREATE, EPHEMERAL_SEQUENTIAL),
            48..60 => (op::CREATE2, self.rng.i32(0..4)),
            60..68 => (op::CREATE_CONTAINER, CONTAINER),
            68..73 => (op::CREATE_TTL, TTL),
            73..76 => (op::CREATE_TTL, SEQUENTIAL_TTL),
            _ if self.steady => (op::CREATE, PERSISTENT),
            76..80 => (op::CREATE_CONTAINER, self.rng.i32(0..4)),
            80..84 => (self.pick(&[op::CREATE, op::CREATE2]), self.rng.i32(4..7)),
            84..87 => (op::CREATE_TTL, self.rng.i32(0..5)),
            87..89 => (op::CREATE, self.pick(&[7, -1, 100])),
            _ => (op::CREATE, PERSISTENT),
        };
        // The path of a numbered node is a prefix.
        let mut path = self.path();
        if matches!(flags, SEQUENTIAL | EPHEMERAL_SEQUENTIAL | SEQUENTIAL_TTL) && self.chance(90) {
            path += "/n-";
        }
        let ttl = if self.chance(90) || self.steady {
            HOUR
        } else {
            self.pick(&[0, -5, 1 << 40, HOUR * 24])
        };
        // (A createTTL without a mode of its own and with an invalid time would end a real server.)
        let ttl = if (flags == TTL || flags == SEQUENTIAL_TTL) || ttl >= 0 { ttl } else { HOUR };
        Req::Create(Create { op, path, data: self.data(), acl: self.acl(), flags, ttl })
    }

    /// Remembers the numbers and paths of an answer.
    pub fn learn(&mut self, request: &Req, reply: &Reply) {
        self.zxids.push(reply.zxid);
        let path = match request {
            Req::Create(create) => &create.path,
            Req::Exists { path, .. }
            | Req::GetData { path, .. }
            | Req::SetData { path, .. }
            | Req::SetAcl { path, .. }
            | Req::GetChildren2 { path, .. } => path,
            Req::Multi(parts) => {
                if let Body::Results(results) = &reply.body {
                    for (part, result) in parts.iter().zip(results) {
                        if let Outcome::Create(made) | Outcome::Create2(made, _) = result {
                            self.made(part, made, None);
                        }
                    }
                }
                return;
            }
            _ => return,
        };
        match &reply.body {
            Body::Path(made) => self.made(request, made, None),
            Body::Created(made, stat) => self.made(request, made, Some(*stat)),
            Body::Stat(stat) | Body::Data(_, stat) | Body::Children(_, stat) => {
                self.stats.insert(path.clone(), *stat);
            }
            _ => {}
        }
    }

    fn made(&mut self, create: &Req, path: &str, stat: Option<Stat>) {
        if matches!(create, Req::Create(create) if create.path != path)
            && !self.numbered.iter().any(|at| at == path)
        {
            self.numbered.push(path.to_owned());
        }
        match stat {
            Some(stat) => self.stats.insert(path.to_owned(), stat),
            None => self.stats.remove(path),
        };
    }
}
