//! Background operations: deletes that must happen, and watches on held nodes.
//!
//! They belong to the connection, because they outlive their callers: no caller waits for a
//! release, and an abandoned create has no caller left. A delete is sent again on each connection
//! until it is acknowledged or the session is gone at the server. So no node is orphaned.

use super::late::LateCreates;
use super::removal::{RemovalNext, late_bound};
use super::requests::is_uncertain;
use super::*;
use crate::error::TOO_LONG_ADVICE;
use crate::machine::codec::{CallError, Operation, Reply};
use crate::world::HashMap;
use zk_wire::path;

/// One background operation.
pub(crate) enum Task {
    /// Delete a node of ours.
    Remove(Removal),
    /// Delete this folder if it is empty and still ours. This is tried once, whatever the answers
    /// are. `is_ours`: a look has shown that it is.
    Prune { path: String, is_ours: bool },
    /// Watch a held node.
    Watch(WatchedNode),
    /// List a directory after a write: a create whose answer was lost may have been done late. The
    /// write was sent at `since`; `is_written`: it is acknowledged.
    LookAgain { dir: String, since: BootTime, is_written: bool },
}

struct TaskEntry {
    task: Task,
    /// The numbers of the callers that wait for the outcome of a removal.
    awaited_by: Vec<u64>,
    not_before: BootTime,
    warned: bool,
    /// How often an answer to this task was cut short.
    cuts: u32,
}

/// The pause after a refusal, as a number of usual pauses. It is long, because somebody must change
/// an ACL before another try can succeed.
pub(super) const REFUSED_PAUSES: u32 = 8;

/// About how many refused removals are tried again in each T. A program may take and release locks
/// for days in a folder where it must not delete: if each of its nodes were tried again in each T,
/// these deletes would leave no time for those of other locks.
const REFUSED_AT_ONCE: u32 = 64;

/// The pause after an answer that was longer than a frame may be, as a number of usual pauses. Each
/// try costs the connection megabytes, and somebody must delete children or data before one can
/// succeed.
pub(super) const TOO_LONG_PAUSES: u32 = 64;

/// The pause after so many answers in a row that were cut short, as a number of usual pauses.
pub(crate) fn backoff(cuts: u32) -> u32 {
    (1 << cuts.min(6)).min(TOO_LONG_PAUSES)
}

#[derive(Default)]
pub(super) struct Background {
    next: u64,
    all: HashMap<u64, TaskEntry>,
    /// The tasks to send, by the time before which each is not sent.
    waiting: BTreeSet<(BootTime, u64)>,
    /// The ids of our own nodes that are to be deleted and may still exist. The set is copied only
    /// if a caller still has an earlier state of it.
    pub(super) pending: Arc<HashSet<String>>,
    /// The creates without an answer that have made no node so far, and that may still be done.
    pub(super) late: LateCreates,
    /// The removals whose delete an ACL has refused, by the directories of their nodes. Each of them
    /// stands for a node of ours at the server, so these are no more than we have nodes there.
    refused: HashMap<String, BTreeSet<u64>>,
    /// The czxids of the nodes with a common name whose creates were acknowledged last, by path.
    /// Each stays until a removal has shown that its node is gone.
    pub(super) acknowledged: HashMap<String, i64>,
}

impl Background {
    /// Adds a task. For a removal, the caller with the number `awaited_by` hears of the outcome.
    fn add(&mut self, task: Task, awaited_by: Option<u64>, now: BootTime) {
        if let Task::Remove(removal) = &task {
            if self.joins_earlier(removal, awaited_by) {
                return;
            }
            self.expect(&removal.id);
        }
        self.next += 1;
        let awaited_by = Vec::from_iter(awaited_by);
        let entry = TaskEntry { task, awaited_by, not_before: now, warned: false, cuts: 0 };
        self.requeue(self.next, entry, now);
    }

    /// Whether an earlier removal of the same node is under way, and other clients use the node's
    /// name too. If so, the caller of this removal waits for the earlier one. (The library deletes
    /// the node of a lock that is held too long. The holder may drop its guard meanwhile.)
    ///
    /// With two removals, each could read that the node is ours before the first deletes it. Then
    /// another client could make its own node before the second delete arrives. The second delete
    /// would hit that node, and a third client would get the lock while the other still holds it.
    fn joins_earlier(&mut self, removal: &Removal, awaited_by: Option<u64>) -> bool {
        if removal.is_named() || !self.pending.contains(&removal.id) {
            return false;
        }
        let is_earlier = |entry: &&mut TaskEntry| matches!(&entry.task, Task::Remove(earlier) if earlier.id == removal.id);
        let earlier = self.all.values_mut().find(is_earlier);
        earlier.map(|earlier| earlier.awaited_by.extend(awaited_by)).is_some()
    }

    /// Removes a node for which no caller waits.
    pub(super) fn remove(&mut self, removal: Removal, now: BootTime) {
        self.add(Task::Remove(removal), None, now);
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
            Ok(Reply::Created(path, stat)) => self.remove(removal.made(path, stat.czxid), now),
            Err(e) if !is_uncertain(e) => self.gone(&removal.id),
            _ => self.remove(removal, now),
        }
    }

    /// The node with this id does not exist any more.
    fn gone(&mut self, id: &str) {
        if self.pending.contains(id) {
            Arc::make_mut(&mut self.pending).remove(id);
        }
    }

    /// Sends the delete of a node in `dir` again, if an ACL has refused it, and lets the caller with
    /// this number wait for its outcome. Gives the node's path.
    fn try_again(&mut self, dir: &str, awaited_by: u64, now: BootTime) -> Option<String> {
        let id = *self.refused.get(dir)?.first()?;
        let entry = self.all.get_mut(&id)?;
        let Task::Remove(Removal { path, .. }) = &entry.task else { return None };
        let path = path.clone();
        entry.awaited_by.push(awaited_by);
        // If it does not wait, it is on its way.
        if self.waiting.remove(&(entry.not_before, id)) {
            entry.not_before = now;
            self.waiting.insert((now, id));
        }
        Some(path)
    }

    /// The removal is over, or its delete was refused again, for whatever reason.
    fn forget_refused(&mut self, id: u64, removal: &Removal) {
        let dir = path::parent(&removal.path);
        if let Some(ids) = self.refused.get_mut(dir) {
            ids.remove(&id);
            if ids.is_empty() {
                self.refused.remove(dir);
            }
        }
    }

    /// The node of this removal does not exist any more. So nobody reads its czxid any more, and a
    /// session that takes locks at ever new paths does not remember them all.
    fn forget_acknowledged(&mut self, removal: &Removal) {
        if removal.czxid().is_some_and(|czxid| self.acknowledged.get(&removal.path) == Some(&czxid))
        {
            self.acknowledged.remove(&removal.path);
        }
    }

    #[cfg(any(feature = "test", zk_sim))]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Takes the tasks to send now.
    fn due(&mut self, now: BootTime) -> Vec<u64> {
        let later = self.waiting.split_off(&(now, u64::MAX));
        std::mem::replace(&mut self.waiting, later).into_iter().map(|(_, id)| id).collect()
    }

    /// The time at which the next delayed task is due.
    pub(super) fn next_time(&self) -> Option<BootTime> {
        self.waiting.first().map(|(not_before, _)| *not_before)
    }

    fn requeue(&mut self, id: u64, mut entry: TaskEntry, not_before: BootTime) {
        entry.not_before = not_before;
        self.all.insert(id, entry);
        self.waiting.insert((not_before, id));
    }

    /// Looks once more for the nodes of the creates that cannot be done any more. Behind that look
    /// they are forgotten ([`forget_late`](Self::forget_late)).
    pub(super) fn look_for_past(&mut self, now: BootTime) {
        let is_look = |entry: &TaskEntry| matches!(entry.task, Task::LookAgain { .. });
        if self.late.is_empty() || self.all.values().any(is_look) {
            return;
        }
        for dir in self.late.past_dirs(now) {
            self.look_again(dir, now);
        }
    }

    fn look_again(&mut self, dir: String, now: BootTime) {
        self.add(Task::LookAgain { dir, since: now, is_written: false }, None, now);
    }

    /// A listing of this directory has shown none of the nodes of the late creates that are left
    /// there. It was sent after a write that was sent at `since`. Creates that could not be done
    /// any more by then are forgotten.
    fn forget_late(&mut self, dir: &str, since: BootTime) {
        for id in self.late.take_past(dir, since) {
            self.gone(&id);
        }
    }

    /// The connection is gone: each removal begins again on the next connection. If the answer to its
    /// request has come in part, it waits, longer each time: the answer takes longer than a
    /// connection waits, and each try blocks the answers to all others. `pause` is the first wait.
    pub(super) fn cut(&mut self, cut_short: Option<SentFor>, pause: Duration, now: BootTime) {
        if let Some(SentFor::Task(id)) = cut_short {
            if let Some(entry) = self.all.get_mut(&id) {
                entry.cuts += 1;
                entry.not_before = now + pause * backoff(entry.cuts);
            }
        }
        let mut dirs = self.late.dirs();
        self.all.retain(|_, entry| {
            match &mut entry.task {
                Task::Remove(removal) => removal.restart(),
                Task::LookAgain { dir, is_written, .. } if dirs.contains(dir) => {
                    *is_written = false;
                    dirs.retain(|other| other != dir);
                }
                // Watches are not sent again: on the next connection the lease asks for them again.
                _ => return false,
            }
            // A refused removal keeps its pause: another connection would bring the same answer.
            if !entry.warned && entry.cuts == 0 {
                entry.not_before = now;
            }
            true
        });
        for dir in dirs {
            self.look_again(dir, now);
        }
        self.waiting = self.all.iter().map(|(id, entry)| (entry.not_before, *id)).collect();
    }

    /// The session ends, and with it every node that was to be deleted.
    pub(super) fn drop_all(&mut self) {
        self.all.clear();
        self.waiting.clear();
        self.refused.clear();
        self.late = LateCreates::default();
    }
}

impl Machine {
    /// Takes a background operation, unless the session is lost.
    pub(crate) fn add_task(&mut self, task: Task, now: BootTime) {
        self.add(task, None, now);
    }

    /// Removes a node. The outcome comes as [`Output::Done`] with the number that this gives. `None`
    /// if the session is lost, and the node with it.
    pub(crate) fn remove(&mut self, removal: Removal, now: BootTime) -> Option<u64> {
        let number = self.new_number();
        self.add(Task::Remove(removal), Some(number), now).then_some(number)
    }

    /// Whether an ACL has refused the delete of a node of ours in this directory, and the node may
    /// be there still.
    pub(crate) fn has_refused(&self, dir: &str) -> bool {
        self.background.refused.contains_key(dir)
    }

    /// Tries such a delete again at once. Gives the number with which its outcome comes, and the
    /// path of the node.
    pub(crate) fn retry_refused(&mut self, dir: &str, now: BootTime) -> Option<(u64, String)> {
        self.resume_after_silence(self.timeout() / 3, now);
        let number = self.new_number();
        let path = self.background.try_again(dir, number, now)?;
        self.send_background(now);
        Some((number, path))
    }

    fn add(&mut self, task: Task, awaited_by: Option<u64>, now: BootTime) -> bool {
        if self.is_ending() {
            return false;
        }
        self.resume_after_silence(self.timeout() / 3, now);
        self.background.add(task, awaited_by, now);
        self.send_background(now);
        true
    }

    /// Watches a held node; the request goes with the next `tick`.
    pub(crate) fn watch(&mut self, node: WatchedNode, now: BootTime) {
        self.background.add(Task::Watch(node), None, now);
    }

    /// Sends the tasks that are due.
    pub(super) fn send_background(&mut self, now: BootTime) {
        if !self.is_up() || self.is_ending() {
            return;
        }
        for id in self.background.due(now) {
            let xid = self.new_xid();
            let Some(entry) = self.background.all.get_mut(&id) else { continue };
            match &mut entry.task {
                Task::Remove(removal) if self.is_proven => removal.is_proven(),
                Task::LookAgain { since, is_written: false, .. } => *since = now,
                _ => {}
            }
            let operation = match &entry.task {
                Task::Remove(removal) => removal.operation(&self.config.noop),
                Task::Prune { path, is_ours: false } => Operation::Exists { path },
                Task::Prune { path, is_ours: true } => Operation::Delete { path, version: Some(0) },
                Task::Watch(node) => Operation::GetData { path: &node.path, watch: true },
                Task::LookAgain { is_written: false, .. } => {
                    Operation::Delete { path: &self.config.noop, version: None }
                }
                Task::LookAgain { dir, .. } => Operation::GetChildren { path: dir, watch: false },
            };
            self.to_server = operation.encode(xid, std::mem::take(&mut self.to_server));
            let op = operation.code();
            self.sent(xid, op, SentFor::Task(id), now);
        }
    }

    /// Takes the answer to the request of a task.
    pub(super) fn task_answered(
        &mut self,
        (id, op): (u64, i32),
        code: i32,
        is_written: bool,
        body: &[u8],
        now: BootTime,
    ) -> Result<(), Malformed> {
        let is_listed = |code| matches!(code, err::OK | err::NO_NODE);
        let Some(mut entry) = self.background.all.remove(&id) else { return Ok(()) };
        match &mut entry.task {
            Task::Remove(removal) => {
                let session = self.session_id();
                let acknowledged = self.background.acknowledged.get(&removal.path).copied();
                match removal.answered(code, is_written, body, session, acknowledged) {
                    Ok(next) => self.removal_goes_on(id, entry, next, code, now),
                    Err(e) => {
                        // The caller of this gives the connection up. The task stays for the next
                        // connection.
                        self.background.requeue(id, entry, now);
                        return Err(e);
                    }
                }
            }
            Task::Prune { path, is_ours } => match (code, *is_ours) {
                (err::OK, false) => {
                    if let Reply::Stat(stat) = codec::decode(op::EXISTS, body)? {
                        let path = path.clone();
                        self.outputs.push_back(Output::MayPrune { task: id, path, stat });
                        self.background.all.insert(id, entry);
                    }
                }
                (err::OK | err::NO_NODE, _) => {
                    self.outputs.push_back(Output::Pruned(std::mem::take(path)));
                }
                _ => {}
            },
            Task::LookAgain { is_written: after_write, .. } if is_written => {
                *after_write = true;
                self.background.requeue(id, entry, now);
            }
            Task::LookAgain { dir, since, .. } if op == op::GET_CHILDREN && is_listed(code) => {
                let names = if code == err::OK { codec::children(body)? } else { Vec::new() };
                for removal in self.background.late.take_made(dir, &names) {
                    if removal.is_named() {
                        let text =
                            format!("{}: a create without an answer was done late", removal.path);
                        self.outputs.push_back(Output::Log(log::Level::Debug, text));
                    }
                    self.background.remove(removal, now);
                }
                self.background.forget_late(dir, *since);
            }
            // The directory cannot be listed. A removal by itself may need no listing, or says so.
            Task::LookAgain { dir, .. }
                if matches!(code, err::NO_AUTH | err::AUTH_FAILED | err::TOO_LONG) =>
            {
                for removal in self.background.late.take_all(dir) {
                    self.background.remove(removal, now);
                }
            }
            Task::LookAgain { dir, .. } if self.background.late.dirs().contains(dir) => {
                let pause = self.timeout() / 8;
                self.background.requeue(id, entry, now + pause);
            }
            Task::LookAgain { .. } => {}
            Task::Watch(watched) => match code {
                err::OK => {
                    if let Reply::Node(node) = codec::decode(op::GET_DATA, body)? {
                        let seen = Some((node.stat.czxid, node.data));
                        self.outputs.push_back(Output::HoldRead(watched.clone(), seen));
                    }
                }
                err::NO_NODE => self.outputs.push_back(Output::HoldRead(watched.clone(), None)),
                err::NO_AUTH | err::AUTH_FAILED | err::TOO_LONG => {
                    let (path, why) = (&watched.path, reason(code));
                    self.outputs.push_back(Output::warn(format!(
                        "{path}: this held node could not be read with a watch ({why}); its deletion may not be noticed"
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
        if !matches!(next, RemovalNext::SendNow | RemovalNext::SendLater) {
            self.background.forget_refused(id, removal);
        }
        match next {
            RemovalNext::SendNow => self.background.requeue(id, entry, now),
            RemovalNext::SendLater => self.background.requeue(id, entry, now + pause),
            RemovalNext::Gone => {
                self.background.gone(&removal.id);
                self.background.forget_acknowledged(removal);
                self.outputs.extend(entry.outcome(Ok(())));
            }
            // It stays among the pending deletes until it cannot come any more.
            RemovalNext::Absent => {
                // T more: if the create is done at the last moment, a write shows that only later.
                let t = self.timeout();
                let until = *removal.until.get_or_insert(now + late_bound(t) + t);
                self.outputs.extend(entry.outcome(Ok(())));
                match entry.task {
                    // A look after its time has shown that its directory cannot be listed, and
                    // this removal has looked for the node by itself.
                    Task::Remove(removal) if until <= now => self.background.gone(&removal.id),
                    Task::Remove(removal) => self.background.late.add(removal, until),
                    _ => {}
                }
            }
            // It stays among the pending deletes, so that our own contenders do not wait for it.
            RemovalNext::Refused(op) => {
                if !entry.warned {
                    self.outputs.push_back(Output::warn(removal.refused(op, code)));
                }
                if (op, code) == (op::DELETE, err::NO_AUTH) {
                    let dir = path::parent(&removal.path).to_owned();
                    self.background.refused.entry(dir).or_default().insert(id);
                }
                entry.warned = true;
                self.outputs.extend(entry.outcome(Err(code)));
                let all = u32::try_from(self.background.all.len()).unwrap_or(u32::MAX);
                let times = match code {
                    err::TOO_LONG => TOO_LONG_PAUSES,
                    _ => REFUSED_PAUSES * (1 + all / REFUSED_AT_ONCE),
                };
                self.background.requeue(id, entry, now + pause * times);
            }
        }
    }

    /// The answer to `Output::MayPrune`.
    pub(crate) fn may_prune(&mut self, id: u64, may: bool, now: BootTime) {
        if let Some(mut entry) = self.background.all.remove(&id) {
            if let (Task::Prune { is_ours, .. }, true) = (&mut entry.task, may) {
                *is_ours = true;
                self.background.requeue(id, entry, now);
            }
        }
        self.resume_after_silence(self.timeout() / 3, now);
        self.send_background(now);
    }
}

impl TaskEntry {
    /// The outcome, for each caller that waits for it.
    fn outcome(&mut self, outcome: Outcome) -> impl Iterator<Item = Output> + use<'_> {
        self.awaited_by.drain(..).map(move |number| Output::Done(number, outcome))
    }
}

/// The text of a refusal, with advice if there is any.
fn reason(code: i32) -> String {
    match code {
        err::TOO_LONG => TOO_LONG_ADVICE.to_owned(),
        _ => err::name(code),
    }
}
