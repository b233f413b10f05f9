//! Background operations: deletes that must happen, and watches on held nodes.
//!
//! They belong to the connection because they must survive what callers do not: a release is not
//! waited for, an abandoned create has no caller left. A delete is sent again on each connection
//! until it is acknowledged or the session is gone at the server: no node is orphaned.

use super::removal::Next;
use super::requests::is_uncertain;
use super::*;
use crate::error::TOO_LONG_ADVICE;
use crate::session::connection::codec::{CallError, Operation, Reply};
use crate::world::HashMap;
use zk_wire::path;

/// One background operation.
pub(crate) enum Task {
    /// Delete a node of ours.
    Remove(Removal),
    /// Delete this empty node, once, whatever the answer.
    Prune { path: String },
    /// Watch a held node.
    Watch { hold: Arc<LeasedNode> },
    /// List a node's children with a watch.
    WatchFolder { watch: Arc<FolderWatch> },
}

struct Entry {
    task: Task,
    not_before: BootTime,
    warned: bool,
}

/// How many times the usual pause a task waits that was refused: somebody must change an ACL first.
const SLOWLY: u32 = 8;

/// The same, where the answer was longer than a frame may be: each try costs the connection
/// megabytes, and somebody must clean up first.
const SELDOM: u32 = 64;

#[derive(Default)]
pub(super) struct Background {
    next: u64,
    all: HashMap<u64, Entry>,
    waiting: VecDeque<u64>,
    /// The ids of nodes of ours that should go and may still exist. It is copied only where
    /// somebody still looks at an earlier state of it.
    pub(super) pending: Arc<HashSet<String>>,
}

impl Background {
    fn add(&mut self, task: Task, now: BootTime) {
        if let Task::Remove(removal) = &task {
            self.expect(&removal.id);
        }
        self.next += 1;
        self.requeue(self.next, Entry { task, not_before: now, warned: false }, now);
    }

    pub(super) fn remove(&mut self, removal: Removal, now: BootTime) {
        self.add(Task::Remove(removal), now);
    }

    /// A create may make the node with this id, and has no caller any more.
    pub(super) fn expect(&mut self, id: &str) {
        Arc::make_mut(&mut self.pending).insert(id.to_owned());
    }

    /// Sees to the node of a create that nobody gets, now that its answer is there or lost.
    pub(super) fn settle(
        &mut self,
        removal: Removal,
        answer: &Result<Reply, CallError>,
        now: BootTime,
    ) {
        match answer {
            Ok(Reply::Created(path, _)) => self.remove(removal.made(path), now),
            Err(e) if !removal.may_exist && !is_uncertain(e) => self.gone(&removal.id),
            _ => self.remove(removal, now),
        }
    }

    /// Nothing is left of the node with this id.
    fn gone(&mut self, id: &str) {
        if self.pending.contains(id) {
            Arc::make_mut(&mut self.pending).remove(id);
        }
    }

    #[cfg(zk_sim)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The nodes that should go and would outlive the session. Their names are nobody else's.
    pub(super) fn lasting(&self) -> Vec<String> {
        let path = |entry: &Entry| match &entry.task {
            Task::Remove(removal) if removal.outlives_session => Some(removal.path.clone()),
            _ => None,
        };
        self.all.values().filter_map(path).collect()
    }

    /// The tasks to send now.
    fn due(&mut self, now: BootTime) -> Vec<u64> {
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

    fn requeue(&mut self, id: u64, mut entry: Entry, not_before: BootTime) {
        entry.not_before = not_before;
        self.all.insert(id, entry);
        self.waiting.push_back(id);
    }

    /// The connection is gone: what was sent on it goes again on the next one, from the start.
    pub(super) fn cut(&mut self, now: BootTime) {
        self.all.retain(|_, entry| {
            // Watches are set anew by the next connection.
            let Task::Remove(removal) = &mut entry.task else { return false };
            removal.restart();
            // One that was refused waits on: another connection would bring the same answer.
            if !entry.warned {
                entry.not_before = now;
            }
            true
        });
        let mut ids: Vec<u64> = self.all.keys().copied().collect();
        ids.sort_unstable();
        self.waiting = ids.into();
    }

    /// The session ends, and with it every ephemeral node that was to be deleted. (Those that
    /// outlive it are deleted by the goodbye.)
    pub(super) fn drop_all(&mut self) {
        self.all.clear();
        self.waiting.clear();
    }
}

impl Machine {
    /// Takes a background operation.
    pub(crate) fn add_task(&mut self, task: Task, now: BootTime) {
        if let Some(ending) = &mut self.ending {
            // Its sender is dropped: the session is lost. A goodbye that is still to be said
            // deletes it.
            if let Task::Remove(removal) = task {
                if removal.outlives_session {
                    ending.lasting.push(removal.path);
                }
            }
            return;
        }
        self.resume_after_silence(now);
        self.background.add(task, now);
        self.send_background(now);
    }

    /// Watches a held node; the request goes with the next `tick`.
    pub(crate) fn watch(&mut self, hold: Arc<LeasedNode>, now: BootTime) {
        self.background.add(Task::Watch { hold }, now);
    }

    /// Sends what the background has to do.
    pub(super) fn send_background(&mut self, now: BootTime) {
        if !self.is_up() || self.is_ending() {
            return;
        }
        for id in self.background.due(now) {
            let xid = self.new_xid();
            let Some(entry) = self.background.all.get(&id) else { continue };
            let noop;
            let operation = match &entry.task {
                Task::Remove(removal) => {
                    noop = self.noop(path::parent(&removal.path));
                    removal.operation(&noop)
                }
                Task::Prune { path } => Some(Operation::Delete { path }),
                Task::Watch { hold } => Some(Operation::GetData { path: hold.path(), watch: true }),
                Task::WatchFolder { watch } => {
                    Some(Operation::GetChildren { path: watch.dir(), watch: true })
                }
            };
            if let Some(operation) = operation {
                self.to_server = operation.encode(xid, std::mem::take(&mut self.to_server));
                let op = operation.code();
                self.sent(xid, op, Owner::Task(id), now);
            }
        }
    }

    /// The node whose delete is a write without an effect, in a directory of our locks: there an
    /// ACL allows us to delete.
    pub(super) fn noop(&self, dir: &str) -> String {
        path::join(dir, &self.settings.noop)
    }

    /// Takes the answer to the request of a task.
    pub(super) fn task_answered(
        &mut self,
        id: u64,
        code: i32,
        is_written: bool,
        body: &[u8],
        now: BootTime,
    ) -> Result<(), Malformed> {
        let Some(mut entry) = self.background.all.remove(&id) else { return Ok(()) };
        match &mut entry.task {
            Task::Remove(removal) => {
                let session = self.session.as_ref().map_or(0, |session| session.id);
                match removal.answered(code, is_written, body, session) {
                    Ok(next) => self.removal_goes_on(id, entry, next, code, now),
                    Err(e) => {
                        // The connection is cut for it, and the task stays.
                        self.background.requeue(id, entry, now);
                        return Err(e);
                    }
                }
            }
            Task::Prune { .. } => {}
            Task::WatchFolder { watch } => {
                let listed = match code {
                    err::OK => match codec::decode(op::GET_CHILDREN, body)? {
                        Reply::Children(children) => Some((children, self.pending_deletes())),
                        _ => None,
                    },
                    _ => None,
                };
                self.outputs.push_back(Output::FolderListed(watch.clone(), listed));
            }
            Task::Watch { hold } => match code {
                err::OK => {
                    if let Reply::Node(node) = codec::decode(op::GET_DATA, body)? {
                        let seen = Some((node.stat.czxid, node.data));
                        self.outputs.push_back(Output::HoldRead(hold.clone(), seen));
                    }
                }
                err::NO_NODE => self.outputs.push_back(Output::HoldRead(hold.clone(), None)),
                err::NO_AUTH | err::AUTH_FAILED | err::TOO_LONG => {
                    let (path, why) = (hold.path(), reason(code));
                    self.outputs.push_back(Output::warn(format!(
                        "{path}: our node may not be watched ({why})"
                    )));
                }
                // Anything else (throttled, moved) passes: again, a little later.
                _ => self.background.requeue(id, entry, now + self.timeout() / 8),
            },
        }
        Ok(())
    }

    fn removal_goes_on(&mut self, id: u64, mut entry: Entry, next: Next, code: i32, now: BootTime) {
        let pause = self.timeout() / 8;
        let Task::Remove(removal) = &mut entry.task else { return };
        match next {
            Next::Now => self.background.requeue(id, entry, now),
            Next::Later => self.background.requeue(id, entry, now + pause),
            Next::Ask => {
                self.outputs.push_back(Output::MayRemove { task: id, path: removal.path.clone() });
                self.background.all.insert(id, entry);
            }
            Next::Gone => {
                self.background.gone(&removal.id);
                if removal.renew_parent {
                    let path = path::parent(&removal.path).to_owned();
                    self.background.add(Task::Prune { path }, now);
                }
                self.outputs.extend(removal.done.take().map(|done| Output::Done(done, Ok(()))));
            }
            // It stays pending, so that it never blocks us.
            Next::Refused => {
                if !entry.warned {
                    let (path, why, what) = (&removal.path, reason(code), removal.refused());
                    let until = "trying on, it goes at the latest with the session";
                    self.outputs
                        .push_back(Output::warn(format!("{path}: {what} ({why}); {until}")));
                }
                entry.warned = true;
                self.outputs.extend(removal.done.take().map(|done| Output::Done(done, Err(code))));
                let times = if code == err::TOO_LONG { SELDOM } else { SLOWLY };
                self.background.requeue(id, entry, now + pause * times);
            }
        }
    }

    /// The answer to `Output::MayRemove`.
    pub(crate) fn may_remove(&mut self, id: u64, may: bool, now: BootTime) {
        if let Some(mut entry) = self.background.all.remove(&id) {
            let next = match &mut entry.task {
                Task::Remove(removal) => removal.may_go(may),
                _ => None,
            };
            match next {
                Some(next) => self.removal_goes_on(id, entry, next, err::OK, now),
                // it began anew meanwhile, on another connection
                None => drop(self.background.all.insert(id, entry)),
            }
        }
        self.resume_after_silence(now);
        self.send_background(now);
    }
}

/// Why a task was refused, and what to do.
fn reason(code: i32) -> String {
    match code {
        err::TOO_LONG => TOO_LONG_ADVICE.to_owned(),
        _ => format!("ZooKeeper error {code}"),
    }
}
