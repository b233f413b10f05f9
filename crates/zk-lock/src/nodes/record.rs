//! What zk-lock remembers of a lock beside the lock's own nodes: who was asked to let go, and the
//! last runs of `run --record`.
//!
//! It is JSON in one node for each lock, below `/zk-lock/records`. The node of the lock would not
//! do: the server deletes it while nobody uses the lock, a semaphore has its number there, and
//! other children of it would be strangers in its queue. Every client may write to a record. So
//! zk-lock bounds what it reads there, shows it, and never acts on it.

use serde_json::{Map, Value, json};
use zk_mutex::zk_session::{CreateMode, Error, Requests};
use zk_mutex::{Acl, ZkSession};

use super::queue::Contender;
use crate::exit::Failure;
use crate::zk;

/// The folder of the records, which is no folder of locks: its first part, and all of it.
pub const TOP: &str = "zk-lock";
const FOLDER: &str = "/zk-lock/records";

/// So many runs, and so many clients that were asked to let go, are remembered.
const RUNS: usize = 20;
const ASKED: usize = 20;
/// A client's data is remembered up to this length.
const LONGEST_DATA: usize = 256;
/// Longer data is nothing that zk-lock wrote.
const LONGEST: usize = 256 << 10;
/// Two programs that write at once try again; so many at once are no accident.
const TRIES: usize = 20;

/// The record of a lock, as lists of JSON objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The oldest first.
    pub runs: Vec<Value>,
    /// The nodes that were asked to let go, with the data that they had before.
    asked: Vec<Value>,
}

impl Record {
    /// The record of the lock at this path; an empty one if there is none.
    pub fn read(session: &ZkSession, path: &str) -> Result<Record, Failure> {
        let node = zk::data(session, &node_of(path))?;
        Ok(node.map(|(data, _)| Record::of(&data)).unwrap_or_default())
    }

    fn of(data: &[u8]) -> Record {
        let value = if data.len() > LONGEST { Value::Null } else { parse(data) };
        let list = |key: &str| {
            let all = value[key].as_array().into_iter().flatten();
            all.filter(|one| one.is_object()).cloned().collect()
        };
        Record { runs: list("runs"), asked: list("asked") }
    }

    fn json(&self, path: &str) -> Value {
        let last = |all: &[Value], most: usize| all[all.len().saturating_sub(most)..].to_vec();
        json!({
            "version": 1,
            "path": path,
            "runs": last(&self.runs, RUNS),
            "asked": last(&self.asked, ASKED),
        })
    }

    /// Changes the record at the server.
    pub fn update(
        session: &ZkSession,
        path: &str,
        change: impl Fn(&mut Record),
    ) -> Result<(), Failure> {
        let (requests, node) = (session.zookeeper().requests(), node_of(path));
        for _ in 0..TRIES {
            let before = zk::data(session, &node)?;
            let mut record = before.as_ref().map(|(data, _)| Record::of(data)).unwrap_or_default();
            change(&mut record);
            let data = record.json(path).to_string();
            let written = match before {
                Some((_, stat)) => {
                    requests.set(&node, data.as_bytes(), Some(stat.version)).map(drop)
                }
                None => make(&requests, &node, data.as_bytes()),
            };
            match written {
                // Somebody else has written, made or removed it meanwhile.
                Err(Error::BadVersion { .. } | Error::NoNode { .. } | Error::NodeExists { .. }) => {
                }
                written => return Ok(written?),
            }
        }
        Err(Failure::system(format!("{node} is written by others all the time")))
    }

    /// Notes that this contender is asked to let go. The request overwrites its data, which is gone
    /// already if somebody has asked before.
    pub fn note_asked(&mut self, contender: &Contender) {
        if contender.is_asked {
            return;
        }
        let data = &contender.data[..contender.data.len().min(LONGEST_DATA)];
        self.asked.push(json!({
            "node": contender.name,
            "czxid": czxid(contender),
            "data": String::from_utf8_lossy(data),
        }));
    }

    /// The data that a contender had before it was asked to let go.
    pub fn data_before(&self, contender: &Contender) -> Option<Vec<u8>> {
        let found = self.asked.iter().find(|one| {
            one["czxid"] == czxid(contender) && one["node"] == contender.name.as_str()
        })?;
        Some(found["data"].as_str()?.as_bytes().to_vec())
    }

    /// Forgets the lock.
    pub fn forget(session: &ZkSession, path: &str) -> Result<(), Failure> {
        match session.zookeeper().requests().delete(&node_of(path), None) {
            Ok(()) | Err(Error::NoNode { .. }) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

fn parse(data: &[u8]) -> Value {
    serde_json::from_slice(data).unwrap_or(Value::Object(Map::new()))
}

/// As `show --json` has it.
fn czxid(contender: &Contender) -> String {
    format!("0x{:x}", contender.stat.czxid)
}

/// Each record is one name in one folder, whatever slashes the lock's path has.
fn node_of(path: &str) -> String {
    let name = path.replace('%', "%25").replace('/', "%2F");
    zk::join(FOLDER, &name)
}

/// Makes the node, and the folders above it.
fn make(requests: &Requests, node: &str, data: &[u8]) -> zk_mutex::zk_session::Result<()> {
    let create = |path: &str, data: &[u8]| {
        requests.create(path, data, CreateMode::Persistent, &Acl::Open).map(drop)
    };
    match create(node, data) {
        Err(Error::NoNode { .. }) => {}
        made => return made,
    }
    let top = zk::join("/", TOP);
    for folder in [top.as_str(), FOLDER] {
        match create(folder, b"") {
            Ok(()) | Err(Error::NodeExists { .. }) => {}
            Err(e) => return Err(e),
        }
    }
    create(node, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_bounded_and_garbage_is_nothing() {
        for garbage in [&b""[..], b"\xff", b"[]", b"{\"runs\": 7}", b"{\"runs\": [1, \"x\"]}"] {
            assert_eq!(Record::of(garbage), Record::default(), "{garbage:?}");
        }
        let runs: Vec<Value> = (0..100).map(|i| json!({"began_ms": i})).collect();
        let record = Record { runs, asked: Vec::new() };
        let read = Record::of(record.json("/a").to_string().as_bytes());
        assert_eq!((read.runs.len(), &read.runs[19]), (RUNS, &json!({"began_ms": 99})));
        assert_eq!(Record::of(&vec![b' '; LONGEST + 1]), Record::default());
    }

    #[test]
    fn each_path_has_a_record_of_its_own() {
        assert_eq!(node_of("/locks/a%2Fb"), "/zk-lock/records/%2Flocks%2Fa%252Fb");
    }
}
