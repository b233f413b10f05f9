//! `run --record`: a run as `zk-lock history` shows it. It is noted when the command begins, so
//! that a run whose host has gone is seen too, and again when the run has ended. Neither holds the
//! command up, and neither changes the exit status.

use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use zk_mutex::ZkSession;

use crate::exit::Failure;
use crate::nodes::record::Record;
use crate::output::Output;
use crate::time::millis;

/// A run that is remembered.
pub struct Memory {
    paths: Vec<String>,
    /// By this the run's entry is found again.
    nodes: String,
    began: u64,
    noted: Option<JoinHandle<Result<(), Failure>>>,
}

impl Memory {
    /// Notes that the run has begun, on a thread of its own: in an outage that takes long.
    pub fn begin(session: &ZkSession, paths: &[String], variables: &[(String, String)]) -> Memory {
        let of = |name: &str| {
            let found = variables.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).unwrap_or_default()
        };
        let memory =
            Memory { paths: paths.to_vec(), nodes: of("ZK_LOCK_NODE"), began: now(), noted: None };
        let entry = json!({
            "began_ms": memory.began,
            "host": host_and_process(),
            "nodes": memory.nodes,
            "session": of("ZK_LOCK_SESSION"),
        });
        let (session, paths) = (session.clone(), paths.to_vec());
        let note = move || {
            paths.iter().try_for_each(|path| {
                Record::update(&session, path, |record| record.runs.push(entry.clone()))
            })
        };
        let noted = std::thread::Builder::new().name("record".into()).spawn(note).ok();
        Memory { noted, ..memory }
    }

    /// Notes how the run has ended: the exit status of zk-lock, and why the lock was lost.
    pub fn end(self, session: &ZkSession, status: u8, lost: Option<&str>, output: &Output) {
        let begun = self.noted.map(JoinHandle::join);
        let end = json!({"ended_ms": now(), "status": status, "lost": lost});
        let is_ours = |entry: &Value| {
            entry["nodes"] == self.nodes.as_str() && entry["began_ms"] == self.began
        };
        let ended = self.paths.iter().try_for_each(|path| {
            Record::update(session, path, |record| {
                let entries = record.runs.iter_mut().filter(|entry| is_ours(entry));
                for entry in entries.filter_map(Value::as_object_mut) {
                    entry.extend(end.as_object().cloned().unwrap_or_default());
                }
            })
        });
        let failure = match begun {
            Some(Ok(Err(failure))) => Some(failure),
            _ => ended.err(),
        };
        if let Some(failure) = failure {
            let text = format!("{}; `zk-lock history` lacks this run", failure.message);
            output.warn("not_recorded", &text, json!({"paths": self.paths}));
        }
    }
}

fn now() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// As in the data of a lock's node.
fn host_and_process() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{name}:{}", std::process::id())
}
