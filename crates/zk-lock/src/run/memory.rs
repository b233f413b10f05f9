//! `run --record`: a run as `zk-lock history` shows it. It is noted when the command begins, so
//! that a run whose host has gone is seen too, and again when the run has ended. Neither holds the
//! command up, and neither changes the exit status.

use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use zk_mutex::ZkSession;
use zk_mutex::crossbeam_channel::bounded;

use crate::exit::Failure;
use crate::nodes::record::Record;
use crate::output::Output;
use crate::time::millis;

/// So long the end of a run waits until it is noted.
const PATIENCE: Duration = Duration::from_secs(3);

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

    /// Notes how the run has ended: the exit status of zk-lock, and why the lock was lost. It waits
    /// for the servers for a moment at most, so an outage keeps no process.
    pub fn end(self, session: &ZkSession, status: u8, lost: Option<&str>, output: &Output) {
        let paths = self.paths.clone();
        let end = json!({"ended_ms": now(), "status": status, "lost": lost});
        let (tell, told) = bounded(1);
        let session = session.clone();
        let note = move || tell.send(self.note_end(&session, &end));
        let started = std::thread::Builder::new().name("recorded".into()).spawn(note);
        let noted = started.ok().and_then(|_| told.recv_timeout(PATIENCE).ok());
        let why = match noted {
            Some(Ok(())) => return,
            Some(Err(failure)) => failure.message,
            None => "ZooKeeper has not answered in time".to_owned(),
        };
        let text = format!("{why}; `zk-lock history` lacks the end of this run");
        output.warn("not_recorded", &text, json!({"paths": paths}));
    }

    fn note_end(self, session: &ZkSession, end: &Value) -> Result<(), Failure> {
        if let Some(Ok(begun)) = self.noted.map(JoinHandle::join) {
            begun?;
        }
        let is_ours = |entry: &Value| {
            entry["nodes"] == self.nodes.as_str() && entry["began_ms"] == self.began
        };
        self.paths.iter().try_for_each(|path| {
            Record::update(session, path, |record| {
                let entries = record.runs.iter_mut().filter(|entry| is_ours(entry));
                for entry in entries.filter_map(Value::as_object_mut) {
                    entry.extend(end.as_object().cloned().unwrap_or_default());
                }
            })
        })
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
