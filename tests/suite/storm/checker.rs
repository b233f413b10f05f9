//! Checks the histories of a storm after its end.
//!
//! **When a hold was certainly valid.** It begins at the stamp of `got`, which was taken before
//! `is_held()` returned true. It ends
//!
//! * if the guard was found invalid: at the last stamp at which it was still found valid;
//! * if the guard was released: at the stamp before that, or at the end of the lease in the last
//!   note, if that came first;
//! * otherwise (the process was killed, or is stopped to the end): at the end of the lease in the
//!   last note. No other process may get the lock before that. The killed process itself cannot act
//!   any more, but the library cannot know this, and the same rule protects a process that is only
//!   stopped.
//!
//! The real validity is never shorter than this, so no clock error and no pause of a process can
//! make two such times overlap. A hold whose lease was over when its call returned was never valid
//! and does not count.
//!
//! **The violations.**
//!
//! * `overlap`: two holds were certainly valid at once although they exclude each other: two
//!   writers, a writer and a reader, more holds than permits. Nested holds of one thread do not
//!   count: a writer that reads before it releases the write downgrades.
//! * `token_order`: a hold does not have a greater fencing token than an earlier hold that excludes
//!   it. Permits do not exclude each other, so they have no order.
//! * `queue_order`: a hold has a lower sequence number than an earlier hold that excludes it. The
//!   node of a `ZkExclusiveLock` has no number.
//! * `lease_cut_short`: a hold was lost before the end of the lease that the library had stated.
//!   Another process could have got the lock in the rest of that time. Only the servers delete
//!   nodes in a storm.
//! * `max_hold`: a hold of the lock that has a `max_hold` was valid for longer than that, or was
//!   lost for that reason earlier. It began between the beginning and the end of its call.
//! * `lost_late`: a guard was found invalid, and `lost()` was not ready soon after. The guard of a
//!   lock with a `max_hold` counts as invalid when that time is over since its call returned.
//! * `lost_while_held`: `lost()` was ready, and `is_held()` returned true after that.
//! * `lost_after_release`: `lost()` became ready although its guard had been released before the
//!   lease ended.
//! * `deadline`: a call returned later than its deadline, and `never_ended`: it had not returned
//!   when its process made its last note. `lock_timeout(d)` may take d, and a single step
//!   (`try_lock`, a release) may take a sixth of the session timeout for each lock.
//! * `wrong_error`: a call failed with another error than `Unavailable`. `Lost` is allowed as the
//!   result of a release, for a thread that has another hold, and for a multi-lock that lost a
//!   member while it waited for the next one.
//! * `error_in_calm`: a call failed with `Unavailable` although there was no fault from its
//!   beginning to its end, nor just before. A deadline of less than half a second may be too short
//!   for an answer, and so may be the time that a multi-lock has left for its last member.
//! * `outage_as_contention`: a call reported that others hold the lock, although no other thread
//!   had ever asked for it. The process itself may have: when its session ends, the node of its
//!   last hold or call stands until the servers have ended the session, too. A leader that is
//!   deposed just after it has said that a session is over has not ended it, and the next leader
//!   counts the whole timeout anew. So a call may find the lock taken if the process has another
//!   session now, had asked for this lock before, and has not got it since; but not later in a calm.
//! * `node_left`: a node is left when all sessions are closed or expired.
//! * `no_progress`: a thread did not get its lock after the last fault, or a worker did not end
//!   with success.
//! * `broken_history`: a line that no worker writes, or a missing line.
//!
//! **The noise of the machine.** What is left of a late call's time without the machine's part is
//! the library's, and may be [`NOISE`]; so may be what is left of the time in which a thread waited
//! for `lost()` of a void hold. Several looks tell of the machine's part:
//!
//! * for how long the thread itself was runnable without a processor;
//! * for how long the threads of the library were for which it may have waited (`Wait::delays`);
//! * for how long a thread beside them that only sleeps was late, by delays of 20 ms or more;
//! * how late the beats of its process were, which are due every 200 ms: it was stopped, or had no
//!   processor.
//!
//! A machine that is busy keeps all threads waiting at once, and a process that is stopped is
//! stopped with all its threads. So the same second can be in each of these, and it must be taken
//! off once only. The process notes its threads' waits at each beat: those of one beat tell of the
//! same time, and the longest counts; those of other beats tell of another time, and are added. In
//! all it is at least what the thread itself noted for the whole call. While the thread ran on a
//! processor it waited for nobody: that time is the library's, and no part of the machine's.
//!
//! A beat does not say when in its 200 ms a wait was. In the beats in which the time begins and
//! ends, waits count as if they were in it, so up to two beats too much may be taken off.
//!
//! Not each wait during a call makes it late. `lock_timeout(d)` sleeps until d is over or the lock
//! comes, so a wait before d is over makes it no later, and only waits behind that count (`timeout`). In
//! the steps of all other calls a wait pushes all that comes behind it.
//!
//! An error in a calm does not count if in more than half of the time of its call (at least in half
//! of the half second before the error) the machine kept the thread waiting as above, or a server
//! kept a client without the library waiting (`Note::Bare`) that connected and wrote, for longer
//! than [`SLOW`] or without an answer at all.
//!
//! What is excused so is counted, and also what could have been found ([`Looked`]): a storm on a
//! machine that excuses everything would pass without a check.
use super::history::{self, BEAT, Failure, Line, Mode, Note, PROGRAM, Spent, Wait};
use std::collections::{BTreeMap, BTreeSet};

/// The number of permits of the semaphore.
pub const PERMITS: usize = 3;
/// The path of the multi-lock's first member.
pub const MULTI: &str = "/multi";
/// The path of the lock that has a `max_hold`, and that time.
pub const BOUNDED: &str = "/bounded";
pub const MAX_HOLD: i64 = 3 * SECOND / 10;
/// The reason of the losses at the end of a `max_hold`.
const HELD_TOO_LONG: &str = "HeldTooLong";

/// A second in microseconds, the unit of all times here.
const SECOND: i64 = 1_000_000;
/// How much later than its deadline a call may return, and how much later than its hold is void
/// `lost()` may be ready, when the machine's part is taken off.
pub const NOISE: i64 = SECOND / 2;
/// A call with a shorter deadline than this may end before the server has answered.
const ANSWER: i64 = SECOND / 2;
/// How late a note that the process runs may come.
const LATE: i64 = SECOND / 50;
/// How long a client without the library may wait for a server that is not slow.
pub const SLOW: i64 = SECOND / 4;

/// All kinds of violations.
pub const KINDS: [&str; 16] = [
    "overlap",
    "token_order",
    "queue_order",
    "lease_cut_short",
    "max_hold",
    "lost_late",
    "lost_while_held",
    "lost_after_release",
    "deadline",
    "never_ended",
    "wrong_error",
    "error_in_calm",
    "outage_as_contention",
    "node_left",
    "no_progress",
    "broken_history",
];

/// The results of all histories together.
#[derive(Default)]
pub struct Verdict {
    pub violations: Vec<(&'static str, String)>,
    /// The number of acquisitions of each recipe.
    pub acquisitions: BTreeMap<String, usize>,
    /// The number of faults of each kind.
    pub faults: BTreeMap<String, usize>,
    /// The number of lost holds for each reason.
    pub lost: BTreeMap<String, usize>,
    /// The numbers of calls that found the lock taken, and of calls that failed with `Unavailable`.
    pub taken: usize,
    pub unavailable: usize,
    /// How many of these failed in a calm in which the machine or a server was slow.
    pub excused: usize,
    /// The calls with a deadline, and those that would be found if they had come a second late.
    pub deadlines: Looked,
    /// The calls in calms, and those that would be found if they had failed.
    pub in_calms: Looked,
    /// The number of requests of clients without the library, and of those that were slow.
    pub bare: usize,
    pub slow_bare: usize,
    /// The late calls, and the late signals of losses.
    pub calls: Latest,
    pub signals: Latest,
}

/// How much a check has looked at.
#[derive(Clone, Copy, Default)]
pub struct Looked {
    pub at: usize,
    /// How often it could have found something: the machine would not have excused it.
    pub could_find: usize,
}

impl Looked {
    fn add(&mut self, could_find: bool) {
        self.at += 1;
        self.could_find += usize::from(could_find);
    }
}

/// What came late, in microseconds.
#[derive(Clone, Copy, Default)]
pub struct Latest {
    /// How many came late.
    pub count: usize,
    /// How late the latest one was, how its time was spent, and for how long it was asleep.
    pub late: i64,
    pub spent: Spent,
    pub asleep: i64,
    /// How late each was at most without the machine's part.
    pub at_best: i64,
}

impl Latest {
    /// Adds one that took the time `whole`.
    fn add(&mut self, late: i64, at_best: i64, whole: i64, spent: Spent) {
        if late > 0 {
            self.count += 1;
        }
        if late > self.late {
            let asleep = whole - spent.ran - spent.runnable;
            (self.late, self.spent, self.asleep) = (late, spent, asleep);
        }
        self.at_best = self.at_best.max(at_best);
    }
}

/// A call of a worker.
struct Call {
    process: usize,
    thread: String,
    lock: String,
    /// None: the call releases the lock.
    mode: Option<Mode>,
    within: Option<i64>,
    timeout: i64,
    /// Whether the thread had another hold when the call began.
    is_inside: bool,
    asked: i64,
    end: Option<(i64, End)>,
    /// If it was late: how its time was spent.
    spent: Spent,
}

enum End {
    Got,
    Taken,
    Done,
    Failed(Failure, String),
}

/// A hold of a worker's thread.
struct Hold {
    process: usize,
    thread: String,
    mode: Mode,
    token: (i64, u64),
    node: String,
    /// When its call began, and when that had returned.
    asked: i64,
    got: i64,
    /// The end of the lease in the last note.
    until: i64,
    /// The time of the last note that found it valid.
    last: i64,
    void: Option<i64>,
    lost: Option<(i64, Spent, String)>,
    free: Option<i64>,
    freed: Option<(i64, bool)>,
    late: bool,
}

impl Hold {
    /// The end of the time in which it was certainly valid.
    fn end(&self) -> i64 {
        let known = self.until.max(self.last);
        match (self.void, self.free) {
            (Some(_), _) => self.last,
            (None, Some(free)) => free.min(known),
            (None, None) => known,
        }
    }

    /// The number at the end of its node's name.
    fn number(&self) -> Option<u64> {
        let digits = self.node.len().checked_sub(10)?;
        self.node.get(digits..)?.parse().ok()
    }

    /// Whether its thread had this other hold when it got it.
    fn is_inside(&self, other: &Hold) -> bool {
        let same = (self.process, &self.thread) == (other.process, &other.thread);
        same && other.free.is_none_or(|free| free > self.got)
    }

    fn excludes(&self, other: &Hold) -> bool {
        self.mode == Mode::Write || other.mode == Mode::Write
    }
}

/// A process that left a history.
struct Process {
    name: String,
    /// The times of the notes that it runs.
    beats: Vec<i64>,
    /// Its threads' waits between two of these times, in the order of time.
    waits: Vec<(i64, i64, Wait)>,
    /// Its session, and when it was first found to be another one than before.
    session: Option<i64>,
    sessions: Vec<i64>,
    last: i64,
    ended: bool,
}

impl Process {
    /// When it was kept waiting between these times, with this thread or with what the thread may
    /// have waited for.
    fn kept_waiting(&self, thread: &str, from: i64, to: i64) -> Vec<(i64, i64)> {
        // The pair of beats that contains `from`, and all later pairs.
        let first = self.beats.partition_point(|beat| *beat <= from).saturating_sub(1);
        let pairs = self.beats[first.min(self.beats.len())..].windows(2);
        let pairs = pairs.map(|pair| (pair[0], pair[1])).take_while(|(before, _)| *before < to);
        let stalls = pairs.filter(|(before, beat)| beat - before > BEAT + LATE);
        let stalls = stalls.map(|(before, beat)| (before + BEAT, beat));
        let first = self.waits.partition_point(|(_, beat, _)| *beat <= from);
        // A long wait is told when it is over, perhaps only after the time.
        let waits = self.waits[first..].iter().take_while(|(before, ..)| *before < to + SECOND);
        let waits = waits.filter(|(.., wait)| wait.delays(thread));
        // Where in its beat a wait was is not known. It counts as if it was as long as possible in
        // this time, and a wait that is no longer than its beat is in that beat.
        let waits = waits.map(|(before, beat, wait)| {
            let over = if *before < to { to.min(*beat) } else { *beat };
            let begun = over - wait.micros;
            (if beat - wait.micros < *before { begun } else { begun.max(*before) }, over)
        });
        stalls.chain(waits).collect()
    }

    /// How much of the time from `from` to `to`, which this thread spent like that, was the
    /// machine's part. The top of this file says what is added up, and what is not.
    fn machine(&self, thread: &str, spent: Spent, from: i64, to: i64) -> i64 {
        let Spent { ran, runnable, control } = spent;
        let all = sum(self.kept_waiting(thread, from, to), from, to);
        all.max(runnable).max(control).min((to - from - ran).max(0))
    }
}

/// The places of one process's calls and holds, and how many holds each thread has.
#[derive(Default)]
struct Index {
    calls: BTreeMap<u64, usize>,
    holds: BTreeMap<u64, (String, usize)>,
    present: BTreeMap<String, i64>,
}

/// The content of the histories.
#[derive(Default)]
pub struct Judge {
    processes: Vec<Process>,
    calls: Vec<Call>,
    holds: BTreeMap<String, Vec<Hold>>,
    killed: BTreeSet<String>,
    calms: Vec<(i64, i64)>,
    /// The requests of clients without the library that were slow: from when to when.
    bare: Vec<(i64, i64)>,
    quiet: Option<i64>,
    listed: bool,
    verdict: Verdict,
}

impl Judge {
    /// Takes the history of the process `name`.
    pub fn take(&mut self, name: &str, text: &str) {
        let lines = match history::parse(text) {
            Ok(lines) => lines,
            Err(why) => return self.found("broken_history", format!("{name}: {why}")),
        };
        let process = self.processes.len();
        let last = lines.last().map_or(0, |line| line.at);
        self.processes.push(Process {
            name: name.to_owned(),
            beats: Vec::new(),
            waits: Vec::new(),
            session: None,
            sessions: Vec::new(),
            last,
            ended: false,
        });
        let mut index = Index::default();
        for line in lines {
            let text = line.to_string();
            if self.note(process, line, &mut index).is_none() {
                self.found(
                    "broken_history",
                    format!("{name}: {text:?} is about a call or hold that was not noted"),
                );
            }
        }
    }

    /// None if the note is about a call or a hold that was not noted.
    fn note(&mut self, process: usize, line: Line, index: &mut Index) -> Option<()> {
        let Line { at, thread, note } = line;
        let end = match &note {
            Note::Got { op, .. } => Some((*op, End::Got)),
            Note::Taken { op } => Some((*op, End::Taken)),
            Note::Done { op } => Some((*op, End::Done)),
            Note::Failed { op, error, text } => Some((*op, End::Failed(*error, text.clone()))),
            _ => None,
        };
        if let Some((op, end)) = end {
            // A call that returns several holds ends with the first of them.
            self.calls[*index.calls.get(&op)?].end.get_or_insert((at, end));
        }
        let hold = match &note {
            Note::Held { hold, .. }
            | Note::Void { hold }
            | Note::Lost { hold, .. }
            | Note::Revived { hold }
            | Note::Free { hold }
            | Note::Freed { hold, .. }
            | Note::Late { hold } => {
                let (lock, number) = index.holds.get(hold)?;
                Some(&mut self.holds.get_mut(lock)?[*number])
            }
            _ => None,
        };
        match (note, hold) {
            (Note::Held { until, .. }, Some(hold)) => {
                (hold.last, hold.until) = (at, hold.until.max(until));
            }
            (Note::Void { .. }, Some(hold)) => hold.void = Some(at),
            (Note::Lost { spent, reason, .. }, Some(hold)) => {
                hold.lost = Some((at, spent, reason));
            }
            (Note::Free { .. }, Some(hold)) => {
                hold.free = Some(at);
                *index.present.entry(thread).or_default() -= 1;
            }
            (Note::Freed { held, .. }, Some(hold)) => hold.freed = Some((at, held)),
            (Note::Late { .. }, Some(hold)) => hold.late = true,
            (Note::Revived { .. }, Some(hold)) => {
                let what = format!("{} held at {at} after lost() was ready", hold.node);
                self.found("lost_while_held", what);
            }
            (Note::Waited { op, spent }, _) => self.calls[*index.calls.get(&op)?].spent = spent,
            (Note::Beat(waits), _) => {
                let process = &mut self.processes[process];
                let before = process.beats.last().map_or(at - BEAT, |beat| *beat);
                process.waits.extend(waits.into_iter().map(|wait| (before, at, wait)));
                process.beats.push(at);
            }
            (Note::Session { id }, _) => {
                let process = &mut self.processes[process];
                if process.session.replace(id).is_some_and(|before| before != id) {
                    process.sessions.push(at);
                }
            }
            (Note::End, _) => self.processes[process].ended = true,
            (Note::Ask { op, lock, mode, within, timeout }, _) => {
                index.calls.insert(op, self.calls.len());
                let is_inside = index.present.get(&thread).is_some_and(|count| *count > 0);
                self.calls.push(Call {
                    process,
                    thread,
                    lock,
                    mode,
                    within,
                    timeout,
                    is_inside,
                    asked: at,
                    end: None,
                    spent: Spent::default(),
                });
            }
            (Note::Got { op, hold, lock, mode, token, until, node }, _) => {
                let asked = self.calls[*index.calls.get(&op)?].asked;
                let of_lock = self.holds.entry(lock.clone()).or_default();
                index.holds.insert(hold, (lock, of_lock.len()));
                *index.present.entry(thread.clone()).or_default() += 1;
                of_lock.push(Hold {
                    process,
                    thread,
                    mode,
                    token,
                    node,
                    asked,
                    got: at,
                    until,
                    last: at,
                    void: None,
                    lost: None,
                    free: None,
                    freed: None,
                    late: false,
                });
            }
            (Note::Fault { kind, .. }, _) => *self.verdict.faults.entry(kind).or_default() += 1,
            (Note::Bare { took, answered }, _) => {
                self.verdict.bare += 1;
                if took > SLOW || !answered {
                    self.verdict.slow_bare += 1;
                    self.bare.push((at - took, at));
                }
            }
            (Note::Calm { until }, _) => self.calms.push((at, until)),
            (Note::Quiet, _) => self.quiet = Some(at),
            (Note::Listed, _) => self.listed = true,
            (Note::Killed { worker }, _) => drop(self.killed.insert(worker)),
            (Note::Stuck { worker, how }, _) => {
                self.found("no_progress", format!("{worker}: {how}"))
            }
            (Note::Left { node }, _) => self.found("node_left", node),
            _ => {}
        }
        Some(())
    }

    fn found(&mut self, kind: &'static str, what: String) {
        self.verdict.violations.push((kind, what));
    }

    /// Checks everything together.
    pub fn verdict(mut self) -> Verdict {
        for (lock, holds) in std::mem::take(&mut self.holds) {
            let recipe = recipe(&lock);
            *self.verdict.acquisitions.entry(recipe.to_owned()).or_default() += holds.len();
            for hold in holds.iter().filter(|hold| hold.void.is_some()) {
                let reason = hold.lost.as_ref().map_or("not told", |(_, _, reason)| reason);
                *self.verdict.lost.entry(reason.to_owned()).or_default() += 1;
            }
            self.judge_holds(&lock, &holds);
            holds.iter().for_each(|hold| self.judge_signal(&lock, hold));
        }
        self.judge_calls();
        self.judge_ends();
        self.verdict
    }

    /// The description of a hold in a violation.
    fn show(&self, lock: &str, hold: &Hold) -> String {
        let Hold { thread, mode, token, node, got, until, last, free, .. } = hold;
        let process = &self.processes[hold.process].name;
        format!(
            "{lock} {process}/{thread} {mode} {token:?} {node} got={got} last={last} until={until} free={free:?} end={}",
            hold.end()
        )
    }

    /// Checks the holds of one lock against each other.
    fn judge_holds(&mut self, lock: &str, holds: &[Hold]) {
        let mut valid: Vec<&Hold> = holds.iter().filter(|hold| hold.got < hold.end()).collect();
        valid.sort_by_key(|hold| hold.got);
        let mut present: Vec<&Hold> = Vec::new();
        // The hold with the greatest token so far: of those that held the lock alone, and of all.
        let (mut wrote, mut any): (Option<&Hold>, Option<&Hold>) = (None, None);
        for hold in valid {
            present.retain(|other| other.end() > hold.got);
            if hold.mode == Mode::Permit {
                if present.len() >= PERMITS {
                    let all: Vec<String> =
                        present.iter().map(|other| self.show(lock, other)).collect();
                    self.found(
                        "overlap",
                        format!("{} beside {}", self.show(lock, hold), all.join(", ")),
                    );
                }
                present.push(hold);
                continue;
            }
            for other in &present {
                if hold.excludes(other) && !hold.is_inside(other) {
                    let (one, two) = (self.show(lock, hold), self.show(lock, other));
                    self.found("overlap", format!("{one} beside {two}"));
                }
            }
            present.push(hold);
            let before = if hold.mode == Mode::Write { any } else { wrote };
            if let Some(before) = before.filter(|before| !hold.is_inside(before)) {
                let shown = format!("{} after {}", self.show(lock, hold), self.show(lock, before));
                if hold.token <= before.token {
                    self.found("token_order", shown.clone());
                }
                let numbers = hold.number().zip(before.number());
                if hold.node != before.node && numbers.is_some_and(|(hold, before)| hold <= before)
                {
                    self.found("queue_order", shown);
                }
            }
            if any.is_none_or(|any| any.token <= hold.token) {
                any = Some(hold);
            }
            if hold.mode == Mode::Write && wrote.is_none_or(|wrote| wrote.token <= hold.token) {
                wrote = Some(hold);
            }
        }
    }

    /// Checks the notes of a hold's own process.
    fn judge_signal(&mut self, lock: &str, hold: &Hold) {
        let process = &self.processes[hold.process];
        let mut found = Vec::new();
        let lost = hold.lost.as_ref();
        let reason = lost.map_or("", |(_, _, reason)| reason);
        let first = hold.void.into_iter().chain(lost.map(|(at, ..)| *at)).min();
        if first.is_some_and(|first| first < hold.until) {
            found.push(("lease_cut_short", format!("void={:?} {reason}", hold.void)));
        }
        let is_early =
            reason == HELD_TOO_LONG && first.is_some_and(|first| first < hold.asked + MAX_HOLD);
        let is_long = lock == BOUNDED && hold.last.max(hold.until) > hold.got + MAX_HOLD;
        if is_early || is_long {
            found.push(("max_hold", format!("void={:?} {reason}", hold.void)));
        }
        if let Some(void) = hold.void {
            let (told, spent) =
                lost.map_or((process.last, Spent::default()), |(at, spent, _)| (*at, *spent));
            let (late, machine) = (told - void, process.machine(&hold.thread, spent, void, told));
            if lost.is_some() {
                self.verdict.signals.add(late, late - machine, late, spent);
            }
            if late - machine > NOISE {
                let what = format!("void={void} lost={:?} {}", hold.lost, of_which(late, machine));
                found.push(("lost_late", what));
            }
        }
        if hold.late && hold.freed.is_some_and(|(at, held)| held && at < hold.until) {
            found.push(("lost_after_release", format!("freed={:?}", hold.freed)));
        }
        for (kind, what) in found {
            let what = format!("{} {what}", self.show(lock, hold));
            self.found(kind, what);
        }
    }

    fn judge_calls(&mut self) {
        let mut askers: BTreeMap<&str, Vec<(i64, usize, &str)>> = BTreeMap::new();
        for call in self.calls.iter().filter(|call| call.mode.is_some()) {
            askers.entry(whole(&call.lock)).or_default().push((
                call.asked,
                call.process,
                &call.thread,
            ));
        }
        let mut found = Vec::new();
        let (mut taken, mut unavailable, mut excused) = (0, 0, 0);
        let (mut deadlines, mut in_calms) = (Looked::default(), Looked::default());
        let mut latest = Latest::default();
        for call in &self.calls {
            let process = &self.processes[call.process];
            let over = call.end.as_ref().map_or(process.last, |(at, _)| *at);
            let mut add = |kind, what: &str| {
                let (name, Call { lock, thread, asked, within, .. }) = (&process.name, call);
                found.push((
                    kind,
                    format!("{lock} {name}/{thread} asked={asked} within={within:?} {what} {over}"),
                ));
            };
            if let Some(within) = call.within {
                let late = over - call.asked - within;
                // What the thread noted of the whole call does not say what was behind its timeout.
                let spent = match call.timeout {
                    0 => call.spent,
                    _ => Spent { ran: call.spent.ran, ..Spent::default() },
                };
                let from = call.asked + call.timeout;
                let machine = process.machine(&call.thread, spent, from, over);
                let much = call.asked + within + SECOND;
                let excuse = process.machine(&call.thread, Spent::default(), from, much);
                deadlines.add(SECOND - excuse > NOISE);
                let at_best = late - machine;
                if call.end.is_some() {
                    latest.add(late, at_best, over - call.asked, call.spent);
                }
                match call.end {
                    Some(_) if at_best > NOISE => {
                        let what =
                            format!("{} ({:?}); returned", of_which(late, machine), call.spent);
                        add("deadline", &what);
                    }
                    None if at_best > NOISE => add("never_ended", "not returned at"),
                    _ => {}
                }
            }
            if let Some((at, _)) = &call.end
                && self.is_judged_in_calm(call, *at)
            {
                in_calms.add(!self.is_excused(call, *at));
            }
            match &call.end {
                Some((at, End::Taken)) => {
                    taken += 1;
                    let mut others = askers[whole(&call.lock)].iter();
                    if !others.any(|(asked, process, thread)| {
                        asked < at && (*process, *thread) != (call.process, &*call.thread)
                    }) && !self.finds_its_own_node(call, *at)
                    {
                        add("outage_as_contention", "no other thread had asked");
                    }
                }
                Some((at, End::Failed(Failure::Unavailable, text))) => {
                    unavailable += 1;
                    match self.is_judged_in_calm(call, *at) {
                        true if self.is_excused(call, *at) => excused += 1,
                        true => add("error_in_calm", text),
                        false => {}
                    }
                }
                Some((_, End::Failed(Failure::Lost, _)))
                    if call.mode.is_none() || call.is_inside || call.lock == MULTI => {}
                Some((_, End::Failed(_, text))) => add("wrong_error", text),
                _ => {}
            }
        }
        self.verdict.violations.extend(found);
        (self.verdict.taken, self.verdict.unavailable) = (taken, unavailable);
        (self.verdict.excused, self.verdict.calls) = (excused, latest);
        (self.verdict.deadlines, self.verdict.in_calms) = (deadlines, in_calms);
    }

    /// Whether a call that ends at this time may have found a node of an earlier session of its
    /// process.
    fn finds_its_own_node(&self, call: &Call, at: i64) -> bool {
        let of_lock = self.calls.iter().filter(|other| {
            other.process == call.process
                && other.mode.is_some()
                && whole(&other.lock) == whole(&call.lock)
        });
        let first = of_lock.clone().map(|other| other.asked).min();
        let got = of_lock.filter_map(|other| match other.end {
            Some((got, End::Got)) if got <= call.asked => Some(got),
            _ => None,
        });
        let since = got.max().max(first);
        let is_late =
            self.calms.iter().any(|(from, to)| (from + SECOND..*to).contains(&call.asked));
        let mut sessions = self.processes[call.process].sessions.iter();
        !is_late
            && sessions.any(|session| since.is_some_and(|since| since < *session) && *session <= at)
    }

    /// Whether a call that ends at this time may not fail with `Unavailable`: there was no fault,
    /// and its time was long enough for an answer.
    fn is_judged_in_calm(&self, call: &Call, at: i64) -> bool {
        let is_calm = self.calms.iter().any(|(from, to)| *from <= call.asked && at <= *to);
        // A call may take longer than it waits for an answer: a candidate joins and leaves, too.
        let waits = if call.timeout > 0 { Some(call.timeout) } else { call.within };
        let is_too_short = waits.is_some_and(|waits| waits < ANSWER)
            || call.lock == MULTI && call.within.is_some_and(|within| at - call.asked >= within);
        is_calm && !is_too_short
    }

    /// Whether the machine or a server was slow in more than half of the time of a call that ends
    /// at this time, so that it may fail in a calm.
    fn is_excused(&self, call: &Call, at: i64) -> bool {
        let from = call.asked.min(at - ANSWER);
        let mut slow = self.processes[call.process].kept_waiting(&call.thread, from, at);
        slow.extend(&self.bare);
        sum(slow, from, at) > (at - from) / 2
    }

    /// Checks what has to be there at the end.
    fn judge_ends(&mut self) {
        let Some(quiet) = self.quiet else {
            return self.found("broken_history", "the faults never ended".to_owned());
        };
        if !self.listed {
            self.found("broken_history", "the nodes at the end were not listed".to_owned());
        }
        // The time at which each thread last got its lock.
        let mut got: BTreeMap<(usize, &str), i64> = BTreeMap::new();
        for call in self.calls.iter().filter(|call| call.mode.is_some()) {
            let last = got.entry((call.process, &call.thread)).or_default();
            if let Some((at, End::Got)) = call.end {
                *last = at.max(*last);
            }
        }
        let mut found = Vec::new();
        for (index, process) in self.processes.iter().enumerate() {
            if process.name == PROGRAM || self.killed.contains(&process.name) {
                continue;
            }
            if !process.ended {
                found.push(("no_progress", format!("{} did not end", process.name)));
            }
            let threads: Vec<_> = got.range((index, "")..(index + 1, "")).collect();
            if threads.is_empty() {
                found.push(("no_progress", format!("{} asked for nothing", process.name)));
            }
            for ((_, thread), last) in threads {
                if *last < quiet {
                    let what = format!(
                        "{}/{thread} got no lock after {quiet}, only at {last}",
                        process.name
                    );
                    found.push(("no_progress", what));
                }
            }
        }
        self.verdict.violations.extend(found);
    }
}

/// How much of the time from `from` to `to` is in at least one of these spans.
fn sum(mut spans: Vec<(i64, i64)>, from: i64, to: i64) -> i64 {
    spans.sort_unstable();
    let (mut all, mut end) = (0, from);
    for (begun, over) in spans {
        let over = over.min(to);
        all += (over - begun.max(end)).max(0);
        end = end.max(over);
    }
    all
}

/// How late something was, and the machine's part of that.
fn of_which(late: i64, machine: i64) -> String {
    format!("{} ms late, of which the machine's part is {} ms", late / 1000, machine / 1000)
}

/// A call for one member of the multi-lock keeps others from the whole.
fn whole(lock: &str) -> &str {
    if recipe(lock) == recipe(MULTI) { MULTI } else { lock }
}

/// The recipe of a lock: the first word of its path.
fn recipe(lock: &str) -> &str {
    lock.split(['/', '-']).find(|word| !word.is_empty()).unwrap_or(lock)
}
