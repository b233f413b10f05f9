//! Background operations: deletes that must happen, and watches on held nodes and on lists of
//! children.
//!
//! They belong to the connection, because they outlive their callers: no caller waits for a
//! release, and an abandoned create has no caller left. A delete is sent again on each connection
//! until it is acknowledged or the session is gone at the server. So no node is orphaned.

use super::removal::RemovalNext;
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
    /// Delete this node if it is empty. This is tried once, whatever the answer is.
    Prune { path: String },
    /// Watch a held node.
    Watch { hold: Arc<LeasedNode> },
    /// List a node's children with a watch.
    WatchFolder { watch: Arc<FolderWatch> },
}

struct TaskEntry {
    task: Task,
    not_before: BootTime,
    warned: bool,
}

/// The pause after a refusal, as a number of usual pauses. It is long, because somebody must change
/// an ACL before another try can succeed.
const REFUSED_PAUSES: u32 = 8;

/// The pause after an answer that was longer than a frame may be, as a number of usual pauses. Each
/// try costs the connection megabytes, and somebody must delete children or data before one can
/// succeed.
const TOO_LONG_PAUSES: u32 = 64;

#[derive(Default)]
pub(super) struct Background {
    next: u64,
    all: HashMap<u64, TaskEntry>,
    waiting: VecDeque<u64>,
    /// The ids of our own nodes that are to be deleted and may still exist. The set is copied only
    /// if a caller still has an earlier state of it.
    pub(super) pending: Arc<HashSet<String>>,
}

impl Background {
    fn add(&mut self, mut task: Task, now: BootTime) {
        if let Task::Remove(removal) = &mut task {
            if self.joins_earlier(removal) {
                return;
            }
            self.expect(&removal.id);
        }
        self.next += 1;
        self.requeue(self.next, TaskEntry { task, not_before: now, warned: false }, now);
    }

    /// Whether an earlier removal of the same node is under way, and other clients use the node's
    /// name too. If so, the callers of this removal wait for the earlier one. (The library deletes
    /// the node of a lock that is held too long. The holder may drop its guard meanwhile.)
    ///
    /// With two removals, each could read that the node is ours before the first deletes it. Then
    /// another client could make its own node before the second delete arrives. The second delete
    /// would hit that node, and a third client would get the lock while the other still holds it.
    fn joins_earlier(&mut self, removal: &mut Removal) -> bool {
        if removal.is_named() || !self.pending.contains(&removal.id) {
            return false;
        }
        let earlier = self.all.values_mut().find_map(|entry| match &mut entry.task {
            Task::Remove(earlier) if earlier.id == removal.id => Some(earlier),
            _ => None,
        });
        earlier.map(|earlier| earlier.done.append(&mut removal.done)).is_some()
    }

    pub(super) fn remove(&mut self, removal: Removal, now: BootTime) {
        self.add(Task::Remove(removal), now);
    }

    /// A create without a caller may make the node with this id.
    pub(super) fn expect(&mut self, id: &str) {
        Arc::make_mut(&mut self.pending).insert(id.to_owned());
    }

    /// Removes the node of a create whose caller does not get it, now that the answer is there or
    /// lost.
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

    /// The node with this id does not exist any more.
    fn gone(&mut self, id: &str) {
        if self.pending.contains(id) {
            Arc::make_mut(&mut self.pending).remove(id);
        }
    }

    #[cfg(zk_sim)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// The nodes to delete that would outlive the session. Their names belong to no other client.
    pub(super) fn lasting(&self) -> Vec<String> {
        let path = |entry: &TaskEntry| match &entry.task {
            Task::Remove(removal) if removal.outlives_session => Some(removal.path.clone()),
            _ => None,
        };
        self.all.values().filter_map(path).collect()
    }

    /// Takes the tasks to send now.
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

    /// The time at which the next delayed task is due.
    pub(super) fn next_time(&self) -> Option<BootTime> {
        self.waiting.iter().filter_map(|id| self.all.get(id)).map(|e| e.not_before).min()
    }

    fn requeue(&mut self, id: u64, mut entry: TaskEntry, not_before: BootTime) {
        entry.not_before = not_before;
        self.all.insert(id, entry);
        self.waiting.push_back(id);
    }

    /// The connection is gone: each removal begins anew on the next connection.
    pub(super) fn cut(&mut self, now: BootTime) {
        self.all.retain(|_, entry| {
            // Watches are not sent again: on the next connection the lease asks for them anew.
            let Task::Remove(removal) = &mut entry.task else { return false };
            removal.restart();
            // A refused removal keeps its pause: another connection would bring the same answer.
            if !entry.warned {
                entry.not_before = now;
            }
            true
        });
        let mut ids: Vec<u64> = self.all.keys().copied().collect();
        ids.sort_unstable();
        self.waiting = ids.into();
    }

    /// The session ends, and with it every ephemeral node that was to be deleted. (The nodes that
    /// outlive it are deleted just before the close request.)
    pub(super) fn drop_all(&mut self) {
        self.all.clear();
        self.waiting.clear();
    }
}

impl Machine {
    /// Takes a background operation.
    pub(crate) fn add_task(&mut self, task: Task, now: BootTime) {
        if let Some(ending) = &mut self.ending {
            // The session is lost, so the sender of the result is dropped. If the close request is
            // still to be sent, the node is deleted before it.
            if let Task::Remove(Removal { outlives_session: true, path, .. }) = task {
                ending.lasting_nodes.push(path);
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

    /// Sends the tasks that are due.
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
                self.sent(xid, op, SentFor::Task(id), now);
            }
        }
    }

    /// The node whose delete is a write without an effect. It is in a directory of our locks, where
    /// an ACL allows us to delete.
    pub(super) fn noop(&self, dir: &str) -> String {
        path::join(dir, &self.config.noop)
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
                        // The caller of this gives the connection up. The task stays for the next
                        // connection.
                        self.background.requeue(id, entry, now);
                        return Err(e);
                    }
                }
            }
            Task::Prune { path } => {
                if matches!(code, err::OK | err::NO_NODE) {
                    self.outputs.push_back(Output::Pruned(std::mem::take(path)));
                }
            }
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
                        "{path}: the node of a held lock could not be read with a watch ({why}); its deletion may not be noticed"
                    )));
                }
                // Other errors (throttled, moved) pass: try again a little later.
                _ => self.background.requeue(id, entry, now + self.timeout() / 8),
            },
        }
        Ok(())
    }

    fn removal_goes_on(
        &mut self,
        id: u64,
        mut entry: TaskEntry,
        next: RemovalNext,
        code: i32,
        now: BootTime,
    ) {
        let pause = self.timeout() / 8;
        let Task::Remove(removal) = &mut entry.task else { return };
        match next {
            RemovalNext::SendNow => self.background.requeue(id, entry, now),
            RemovalNext::SendLater => self.background.requeue(id, entry, now + pause),
            RemovalNext::CheckHolds => {
                self.outputs.push_back(Output::MayRemove { task: id, path: removal.path.clone() });
                self.background.all.insert(id, entry);
            }
            RemovalNext::Gone => {
                self.background.gone(&removal.id);
                if removal.renew_parent {
                    let path = path::parent(&removal.path).to_owned();
                    self.background.add(Task::Prune { path }, now);
                }
                self.outputs.extend(removal.done.drain(..).map(|done| Output::Done(done, Ok(()))));
            }
            // It stays among the pending deletes, so that our own contenders do not wait for it.
            RemovalNext::Refused => {
                if !entry.warned {
                    let (path, why, what) = (&removal.path, reason(code), removal.refused());
                    let end = match removal.outlives_session {
                        true => "",
                        false => ", and the server deletes the node when the session ends",
                    };
                    self.outputs.push_back(Output::warn(format!(
                        "{path}: {what} ({why}); it is tried again{end}"
                    )));
                }
                entry.warned = true;
                self.outputs
                    .extend(removal.done.drain(..).map(|done| Output::Done(done, Err(code))));
                let times = if code == err::TOO_LONG { TOO_LONG_PAUSES } else { REFUSED_PAUSES };
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
                // The removal began anew meanwhile, on another connection.
                None => drop(self.background.all.insert(id, entry)),
            }
        }
        self.resume_after_silence(now);
        self.send_background(now);
    }
}

/// The text of a refusal, with advice if there is any.
fn reason(code: i32) -> String {
    match code {
        err::TOO_LONG => TOO_LONG_ADVICE.to_owned(),
        _ => format!("ZooKeeper error {code}"),
    }
}
