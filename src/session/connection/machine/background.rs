//! Background operations: deletes that must happen, and watches on held nodes.
//!
//! They belong to the connection because they must survive what callers do not: a release is not
//! waited for, an abandoned create has no caller left. A delete is sent again on each connection
//! until it is acknowledged or the session is gone at the server: no node is orphaned.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::removal::{Next, Removal};
use super::requests::{Settle, is_uncertain};
use super::{Outcome, Output};
use crate::clock::BootTime;
use crate::error::TOO_LONG_ADVICE;
use crate::session::connection::codec::{self, CallError, Operation, Reply};
use crate::session::generation::FolderWatch;
use crate::session::hold::Hold;
use crate::session::path;
use crate::wire::Malformed;
use crate::wire::code::{err, op};
use crate::world::{HashMap, HashSet, Sender};

/// One background operation.
pub(crate) enum Task {
    /// Delete our node `path`, whose id is `id`; then try to delete its parent too, if asked.
    Delete {
        path: String,
        id: String,
        renew_parent: bool,
        outlives_session: bool,
        done: Option<Sender<Outcome>>,
    },
    /// A create of the node `prefix`, or of that and the server's number, was not acknowledged:
    /// find the node under `parent` and delete it. `id` is the part of the name that is ours alone.
    Sweep { parent: String, prefix: String, id: String, outlives_session: bool },
    /// Delete a node with a fixed name, if it is ours.
    Remove(Removal),
    /// Delete this empty node, once, whatever the answer.
    Prune { path: String },
    /// Watch a held node.
    Watch { hold: Arc<Hold> },
    /// List a node's children with a watch.
    WatchFolder { watch: Arc<FolderWatch> },
}

impl Task {
    /// The id of the node that it is about, until it is gone.
    fn id(&self) -> Option<&str> {
        match self {
            Task::Delete { id, .. } | Task::Sweep { id, .. } => Some(id),
            Task::Remove(removal) => Some(removal.nonce()),
            Task::Prune { .. } | Task::Watch { .. } | Task::WatchFolder { .. } => None,
        }
    }
}

/// The answer to the request of a task.
pub(super) struct TaskAnswer<'a> {
    pub(super) code: i32,
    /// It is a write, and the leader has acknowledged it; the same code from a server that is alone
    /// shows nothing.
    pub(super) is_written: bool,
    pub(super) body: &'a [u8],
}

struct Entry {
    task: Task,
    not_before: BootTime,
    /// For a sweep: a write made after the lost create was acknowledged on this connection.
    proven: bool,
    warned: bool,
}

/// How many times the usual pause a task waits that was refused: somebody must change an ACL first.
const SLOWLY: u32 = 8;

/// The same, where the answer was longer than a frame may be: each try costs the connection megabytes,
/// and somebody must clean up first.
const SELDOM: u32 = 64;

pub(super) struct Background {
    /// The name of a node that never exists: deleting it is a write without an effect.
    noop: String,
    next: u64,
    /// The session's id, once there is one.
    pub(super) session: i64,
    all: HashMap<u64, Entry>,
    waiting: VecDeque<u64>,
    /// The ids of nodes of ours that should go and may still exist. It is copied only where somebody
    /// still looks at an earlier state of it.
    pub(super) pending: Arc<HashSet<String>>,
}

impl Background {
    pub(super) fn new(noop: String) -> Self {
        Background {
            noop,
            next: 0,
            session: 0,
            all: HashMap::default(),
            waiting: VecDeque::new(),
            pending: Arc::default(),
        }
    }

    pub(super) fn add(&mut self, task: Task, now: BootTime) {
        if let Some(id) = task.id() {
            Arc::make_mut(&mut self.pending).insert(id.to_owned());
        }
        self.next += 1;
        self.all.insert(self.next, Entry { task, not_before: now, proven: false, warned: false });
        self.waiting.push_back(self.next);
    }

    pub(super) fn remove(&mut self, removal: Removal, now: BootTime) {
        self.add(Task::Remove(removal), now);
    }

    /// The node that this create may make has no caller any more.
    pub(super) fn expect(&mut self, settle: &Settle) {
        if let Settle::Named { id, .. } | Settle::Fixed { nonce: id, .. } = settle {
            Arc::make_mut(&mut self.pending).insert(id.clone());
        }
    }

    /// Sees to the node of a create that nobody gets, now that its answer is there or lost.
    pub(super) fn settle(&mut self, settle: &Settle, answer: &Result<Reply, CallError>, now: BootTime) {
        let is_uncertain = answer.as_ref().is_err_and(is_uncertain);
        match (settle, answer) {
            (Settle::Nothing, _) => {}
            (Settle::Named { id, outlives_session, .. }, Ok(Reply::Created(path, _))) => self.add(
                Task::Delete {
                    path: path.clone(),
                    id: id.clone(),
                    renew_parent: false,
                    outlives_session: *outlives_session,
                    done: None,
                },
                now,
            ),
            (Settle::Named { prefix, id, outlives_session }, _) if is_uncertain => {
                let (parent, prefix) = (path::parent(prefix).to_owned(), path::name(prefix).to_owned());
                let (id, outlives_session) = (id.clone(), *outlives_session);
                self.add(Task::Sweep { parent, prefix, id, outlives_session }, now);
            }
            (Settle::Fixed { path, nonce, may_exist }, _) if *may_exist || is_uncertain || answer.is_ok() => {
                self.remove(Removal::new(path.clone(), nonce.clone(), None, None), now);
            }
            (Settle::Named { id, .. } | Settle::Fixed { nonce: id, .. }, _) => self.gone(id),
        }
    }

    /// Nothing is left of the node with this id.
    fn gone(&mut self, id: &str) {
        if self.pending.contains(id) {
            Arc::make_mut(&mut self.pending).remove(id);
        }
    }

    /// The nodes that should go and would outlive the session. Their names are nobody else's.
    pub(super) fn lasting(&self) -> Vec<String> {
        let path = |entry: &Entry| match &entry.task {
            Task::Delete { path, outlives_session: true, .. } => Some(path.clone()),
            Task::Sweep { parent, prefix, outlives_session: true, .. } => Some(path::join(parent, prefix)),
            _ => None,
        };
        self.all.values().filter_map(path).collect()
    }

    /// The tasks to send now.
    pub(super) fn due(&mut self, now: BootTime) -> Vec<u64> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let (all, mut due) = (&self.all, Vec::new());
        self.waiting.retain(|id| match all.get(id) {
            Some(entry) if entry.not_before <= now => {
                due.push(*id);
                false
            }
            Some(_) => true,
            None => false,
        });
        due
    }

    /// When the next delayed task is due.
    pub(super) fn next_time(&self) -> Option<BootTime> {
        self.waiting.iter().filter_map(|id| self.all.get(id)).map(|e| e.not_before).min()
    }

    /// Appends the next request of a task; gives its operation.
    pub(super) fn encode(&self, id: u64, xid: i32, bytes: &mut Vec<u8>) -> Option<i32> {
        let entry = self.all.get(&id)?;
        let noop;
        let operation = match &entry.task {
            Task::Delete { path, .. } | Task::Prune { path } => Operation::Delete { path },
            Task::Sweep { parent, .. } if entry.proven => {
                Operation::GetChildren { path: parent, watch: false }
            }
            Task::Sweep { parent, .. } => {
                noop = self.noop(parent);
                Operation::Delete { path: &noop }
            }
            Task::Remove(removal) => {
                noop = self.noop(path::parent(removal.path()));
                removal.operation(&noop)?
            }
            Task::Watch { hold } => Operation::GetData { path: hold.path(), watch: true },
            Task::WatchFolder { watch } => Operation::GetChildren { path: watch.dir(), watch: true },
        };
        *bytes = operation.encode(xid, std::mem::take(bytes));
        Some(operation.code())
    }

    /// The node whose delete is a write without an effect, in a directory of our locks: there an ACL
    /// allows us to delete.
    pub(super) fn noop(&self, dir: &str) -> String {
        path::join(dir, &self.noop)
    }

    /// Takes the answer to the request of a task.
    pub(super) fn reply(
        &mut self,
        id: u64,
        answer: TaskAnswer<'_>,
        now: BootTime,
        pause: Duration,
        out: &mut VecDeque<Output>,
    ) -> Result<(), Malformed> {
        let TaskAnswer { code, is_written, body } = answer;
        let Some(mut entry) = self.all.remove(&id) else { return Ok(()) };
        let refused = matches!(code, err::NO_AUTH | err::AUTH_FAILED | err::TOO_LONG);
        let slowly = now + pause * if code == err::TOO_LONG { SELDOM } else { SLOWLY };
        match &mut entry.task {
            Task::Delete { path, id: node, renew_parent, done, .. } => match code {
                err::OK | err::NO_NODE if is_written => {
                    self.gone(node);
                    if *renew_parent {
                        self.add(Task::Prune { path: path::parent(path).to_owned() }, now);
                    }
                    finish(done.take(), Ok(()), out);
                    return Ok(());
                }
                _ if refused || code == err::NOT_EMPTY => {
                    if !entry.warned {
                        out.push_back(Output::warn(format!(
                            "{path}: our node could not be deleted (ZooKeeper error {code}); trying on, it goes at the latest with the session"
                        )));
                    }
                    entry.warned = true;
                    finish(done.take(), Err(code), out);
                    // It stays pending, so that it never blocks us.
                    self.requeue(id, entry, slowly);
                    return Ok(());
                }
                _ => {}
            },
            Task::Sweep { parent, prefix, id: node, outlives_session } => match (entry.proven, code) {
                (false, _) if is_written => {
                    entry.proven = true;
                    self.requeue(id, entry, now);
                    return Ok(());
                }
                (true, err::OK) => {
                    let name = match codec::children(body) {
                        Ok(children) => children.into_iter().find(|name| is_made_by(prefix, name)),
                        Err(e) => {
                            // The connection ends for it; the sweep does not.
                            self.requeue(id, entry, now);
                            return Err(e);
                        }
                    };
                    let Some(name) = name else {
                        self.gone(node);
                        return Ok(());
                    };
                    let path = path::join(parent, name);
                    out.push_back(Output::Log(
                        log::Level::Debug,
                        format!("{path}: created, its reply was lost; deleting it"),
                    ));
                    let (id, outlives_session) = (std::mem::take(node), *outlives_session);
                    self.add(
                        Task::Delete { path, id, renew_parent: false, outlives_session, done: None },
                        now,
                    );
                    return Ok(());
                }
                (true, err::NO_NODE) => {
                    self.gone(node);
                    return Ok(());
                }
                (true, _) if refused => {
                    if !entry.warned {
                        out.push_back(Output::warn(format!(
                            "{parent}: may not be listed ({}); a node of ours with id {node} may stay there until the session ends",
                            reason(code)
                        )));
                    }
                    entry.warned = true;
                    self.requeue(id, entry, slowly);
                    return Ok(());
                }
                _ => {}
            },
            Task::Remove(removal) => match removal.reply(&answer, self.session) {
                Ok(next) => {
                    self.removal_goes_on(id, entry, next, (code, now, slowly, now + pause), out);
                    return Ok(());
                }
                Err(e) => {
                    self.requeue(id, entry, now); // the connection is cut for it, the task stays
                    return Err(e);
                }
            },
            Task::Prune { .. } => return Ok(()),
            Task::WatchFolder { watch } => {
                let listed = match code {
                    err::OK => match codec::decode(op::GET_CHILDREN, body)? {
                        Reply::Children(children) => Some((children, self.pending.clone())),
                        _ => None,
                    },
                    _ => None,
                };
                out.push_back(Output::FolderListed(watch.clone(), listed));
                return Ok(());
            }
            Task::Watch { hold } => match code {
                err::OK => {
                    if let Reply::Node(node) = codec::decode(op::GET_DATA, body)? {
                        out.push_back(Output::HoldRead(hold.clone(), Some((node.stat.czxid, node.data))));
                    }
                    return Ok(());
                }
                err::NO_NODE => {
                    out.push_back(Output::HoldRead(hold.clone(), None));
                    return Ok(());
                }
                _ if refused => {
                    out.push_back(Output::warn(format!(
                        "{}: our node may not be watched ({})",
                        hold.path(),
                        reason(code)
                    )));
                    return Ok(());
                }
                _ => {}
            },
        }
        // Anything else (throttled, moved) passes: again, a little later.
        self.requeue(id, entry, now + pause);
        Ok(())
    }

    fn removal_goes_on(
        &mut self,
        id: u64,
        mut entry: Entry,
        next: Next,
        (code, now, slowly, later): (i32, BootTime, BootTime, BootTime),
        out: &mut VecDeque<Output>,
    ) {
        let Task::Remove(removal) = &mut entry.task else { return };
        match next {
            Next::Now => self.requeue(id, entry, now),
            Next::Later => self.requeue(id, entry, later),
            Next::Ask => {
                out.push_back(Output::MayRemove { task: id, path: removal.path().to_owned() });
                self.all.insert(id, entry);
            }
            Next::Gone => {
                let done = removal.done();
                let nonce = removal.nonce().to_owned();
                self.gone(&nonce);
                finish(done, Ok(()), out);
            }
            Next::Refused => {
                if !entry.warned {
                    out.push_back(Output::warn(format!(
                        "{}: our node could not be deleted ({}); trying on, it goes at the latest with the session",
                        removal.path(),
                        reason(code)
                    )));
                }
                finish(removal.done(), Err(code), out);
                entry.warned = true;
                self.requeue(id, entry, slowly);
            }
        }
    }

    /// The answer to `Output::MayRemove`.
    pub(super) fn may_remove(&mut self, id: u64, may: bool, now: BootTime, out: &mut VecDeque<Output>) {
        let Some(mut entry) = self.all.remove(&id) else { return };
        let next = match &mut entry.task {
            Task::Remove(removal) => removal.may_remove(may),
            _ => None,
        };
        match next {
            Some(next) => self.removal_goes_on(id, entry, next, (err::OK, now, now, now), out),
            None => drop(self.all.insert(id, entry)), // it began anew meanwhile, on another connection
        }
    }

    fn requeue(&mut self, id: u64, mut entry: Entry, not_before: BootTime) {
        entry.not_before = not_before;
        self.all.insert(id, entry);
        self.waiting.push_back(id);
    }

    /// The connection is gone: what was sent on it goes again on the next one, from the start.
    pub(super) fn cut(&mut self, now: BootTime) {
        self.all.retain(|_, entry| {
            entry.proven = false;
            // One that was refused waits on: another connection would bring the same answer.
            if !entry.warned {
                entry.not_before = now;
            }
            if let Task::Remove(removal) = &mut entry.task {
                removal.restart();
            }
            // Watches are set anew by the next connection.
            !matches!(entry.task, Task::Watch { .. } | Task::WatchFolder { .. } | Task::Prune { .. })
        });
        let mut ids: Vec<u64> = self.all.keys().copied().collect();
        ids.sort_unstable();
        self.waiting = ids.into();
    }

    /// The session ends, and with it every ephemeral node that was to be deleted. (Those that outlive it are deleted by the goodbye.)
    pub(super) fn drop_all(&mut self) {
        self.all.clear();
        self.waiting.clear();
    }
}

/// Whether a create of `prefix`, numbered by the server or not, can have made the node `name`.
fn is_made_by(prefix: &str, name: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|number| {
        number.strip_prefix('-').unwrap_or(number).bytes().all(|digit| digit.is_ascii_digit())
    })
}

/// Why a task was refused, and what to do.
fn reason(code: i32) -> String {
    match code {
        err::TOO_LONG => TOO_LONG_ADVICE.to_owned(),
        _ => format!("ZooKeeper error {code}"),
    }
}

/// Reports how a task ended, if a caller asked for that.
fn finish(done: Option<Sender<Outcome>>, outcome: Outcome, out: &mut VecDeque<Output>) {
    out.extend(done.map(|done| Output::Done(done, outcome)));
}
