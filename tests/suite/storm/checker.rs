//! Judges the histories of a storm, after it.
//!
//! **When a hold was certainly valid.** It begins at the stamp of `got`, which was taken before
//! `is_held()` answered true. It ends
//!
//! * if the guard was found invalid: at the last stamp at which it was still found valid;
//! * if the guard was let go: at the stamp before that, or at the end of the lease that was noted
//!   last, if that came first;
//! * otherwise (the process was killed, or is stopped to the end): at the end of the lease that was
//!   noted last. Nobody may get the lock before that. The killed process itself cannot act any
//!   more, but the library cannot know this, and the same rule protects a process that is only
//!   stopped.
//!
//! The real validity is never shorter than this, so no clock error and no pause of a process can
//! make two such times overlap. A hold whose lease was over when its call returned was never valid;
//! it counts as no hold.
//!
//! **What is a violation.**
//!
//! * `overlap`: two holds were certainly valid at once that must not be: two writers, a writer and
//!   a reader, more permits than there are. Holds of one thread inside each other are none: a
//!   writer that reads before it lets the write go downgrades.
//! * `token_order`: a hold has no greater fencing token than an earlier hold that excludes it.
//!   Permits exclude nobody, so they have no order.
//! * `queue_order`: a hold has a lower sequence number than an earlier hold that excludes it. The
//!   node of a `ZkExclusiveLock` has no number.
//! * `lease_cut_short`: a hold was lost before the end of the lease that the library had stated.
//!   Another process could have had the lock in the rest of that time. Nobody but the servers
//!   deletes nodes in a storm.
//! * `lost_late`: a guard was found invalid, and `lost()` was not ready soon after.
//! * `lost_while_held`: `lost()` was ready, and `is_held()` answered true after that.
//! * `lost_after_release`: `lost()` became ready although its guard had been let go before the
//!   lease ended.
//! * `deadline`: a call returned later than its deadline, and `never_ended`: it had not returned
//!   when its process made its last note. `lock_timeout(d)` may take d, a single step (`try_lock`,
//!   a release) a sixth of the session timeout for each lock.
//! * `wrong_error`: a call failed with anything but `Unavailable`. `Lost` may be the
//!   answer of a release, to a thread that has another hold, and of a multi-lock that lost a member
//!   while it waited for the next one.
//! * `error_in_calm`: a call failed with `Unavailable` although there was no fault from its
//!   beginning to its end, nor just before. A deadline of less than half a second may just be too
//!   short for an answer, and so may be what a multi-lock has left of it for its last member.
//! * `outage_as_contention`: a call said that others hold the lock, and nobody else had ever asked
//!   for that lock.
//! * `node_left`: a node is left when all sessions are closed or expired.
//! * `no_progress`: a thread did not get its lock after the last fault, or a worker did not end
//!   well.
//! * `broken_history`: a line that no worker writes, or none that has to be there.
//!
//! **The noise of the machine.** Each process notes every 200 ms that it runs. Where such a note
//! comes late, the process was stopped, or had no processor: a call gets that time on top. Besides,
//! a call may return [`NOISE`] late, and `lost()` may be [`SOON`] late. An error in a calm counts
//! only if no process of the storm was late by more than [`STALL`] together from shortly before the
//! call to its end: a server that gets no processor answers late too.
use super::history::{self, BEAT, Failure, Line, Mode, Note, PROGRAM};
use std::collections::{BTreeMap, BTreeSet};

/// How many permits the semaphore has.
pub const PERMITS: usize = 3;
/// The path of the multi-lock's first member.
pub const MULTI: &str = "/multi";

/// A second, in microseconds, as all times here.
const SECOND: i64 = 1_000_000;
/// How much later than its deadline a call may return.
pub const NOISE: i64 = 2 * SECOND;
/// How much later than `is_held()` answers false `lost()` may be ready.
pub const SOON: i64 = SECOND;
/// A call with a shorter deadline may end before the server has answered.
const ANSWER: i64 = SECOND / 2;
/// How late a process may note that it runs.
const LATE: i64 = SECOND / 50;
/// How late the notes of all processes may be where an error counts.
pub const STALL: i64 = SECOND / 10;

/// All kinds of violations.
pub const KINDS: [&str; 15] = [
    "overlap",
    "token_order",
    "queue_order",
    "lease_cut_short",
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

/// What all histories together show.
#[derive(Default)]
pub struct Verdict {
    pub violations: Vec<(&'static str, String)>,
    /// By recipe.
    pub acquisitions: BTreeMap<String, usize>,
    /// By kind.
    pub faults: BTreeMap<String, usize>,
    /// Calls that found the lock taken, calls that failed with `Unavailable`, holds that were lost.
    pub taken: usize,
    pub unavailable: usize,
    pub lost: usize,
}

/// A call of a worker.
struct Call {
    process: usize,
    thread: String,
    lock: String,
    /// None: it lets the lock go.
    mode: Option<Mode>,
    within: Option<i64>,
    /// The thread had another hold when it asked.
    is_inside: bool,
    asked: i64,
    end: Option<(i64, End)>,
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
    got: i64,
    /// The end of the lease that was noted last.
    until: i64,
    /// When it was last found valid.
    last: i64,
    void: Option<i64>,
    lost: Option<(i64, String)>,
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

    /// Whether its thread had this other one when it got it.
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
    /// When it noted that it runs.
    beats: Vec<i64>,
    last: i64,
    ended: bool,
}

impl Process {
    /// For how long it did not run in this time, as far as its notes show.
    fn stalled(&self, from: i64, to: i64) -> i64 {
        // The pair that contains `from`, and those behind it.
        let first = self.beats.partition_point(|beat| *beat <= from).saturating_sub(1);
        let pairs = self.beats[first.min(self.beats.len())..].windows(2);
        let gaps = pairs.take_while(|pair| pair[0] < to).map(|pair| pair[1] - pair[0] - BEAT);
        gaps.filter(|late| *late > LATE).sum()
    }
}

/// Where the calls and holds of one process are, and how many holds each thread has.
#[derive(Default)]
struct Index {
    calls: BTreeMap<u64, usize>,
    holds: BTreeMap<u64, (String, usize)>,
    present: BTreeMap<String, i64>,
}

/// What was read of the histories.
#[derive(Default)]
pub struct Judge {
    processes: Vec<Process>,
    calls: Vec<Call>,
    holds: BTreeMap<String, Vec<Hold>>,
    killed: BTreeSet<String>,
    calms: Vec<(i64, i64)>,
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
            last,
            ended: false,
        });
        let mut index = Index::default();
        for line in lines {
            let text = line.to_string();
            if self.note(process, line, &mut index).is_none() {
                self.found(
                    "broken_history",
                    format!("{name}: {text:?} is about nothing that was noted"),
                );
            }
        }
    }

    /// None if the note is about a call or a hold that is not there.
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
            // A call that gives several holds ends with the first.
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
            (Note::Lost { reason, .. }, Some(hold)) => hold.lost = Some((at, reason)),
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
            (Note::Beat, _) => self.processes[process].beats.push(at),
            (Note::End, _) => self.processes[process].ended = true,
            (Note::Ask { op, lock, mode, within }, _) => {
                index.calls.insert(op, self.calls.len());
                let is_inside = index.present.get(&thread).is_some_and(|count| *count > 0);
                self.calls.push(Call {
                    process,
                    thread,
                    lock,
                    mode,
                    within,
                    is_inside,
                    asked: at,
                    end: None,
                });
            }
            (Note::Got { hold, lock, mode, token, until, node, .. }, _) => {
                let of_lock = self.holds.entry(lock.clone()).or_default();
                index.holds.insert(hold, (lock, of_lock.len()));
                *index.present.entry(thread.clone()).or_default() += 1;
                of_lock.push(Hold {
                    process,
                    thread,
                    mode,
                    token,
                    node,
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

    /// Looks at everything together.
    pub fn verdict(mut self) -> Verdict {
        for (lock, holds) in std::mem::take(&mut self.holds) {
            let recipe = recipe(&lock);
            *self.verdict.acquisitions.entry(recipe.to_owned()).or_default() += holds.len();
            self.verdict.lost += holds.iter().filter(|hold| hold.void.is_some()).count();
            self.judge_holds(&lock, &holds);
            holds.iter().for_each(|hold| self.judge_signal(&lock, hold));
        }
        self.judge_calls();
        self.judge_ends();
        self.verdict
    }

    /// How a hold is named in a violation.
    fn show(&self, lock: &str, hold: &Hold) -> String {
        let Hold { thread, mode, token, node, got, until, last, free, .. } = hold;
        let process = &self.processes[hold.process].name;
        format!(
            "{lock} {process}/{thread} {mode} {token:?} {node} got={got} last={last} until={until} free={free:?} end={}",
            hold.end()
        )
    }

    /// Holds of one lock against each other.
    fn judge_holds(&mut self, lock: &str, holds: &[Hold]) {
        let mut valid: Vec<&Hold> = holds.iter().filter(|hold| hold.got < hold.end()).collect();
        valid.sort_by_key(|hold| hold.got);
        let mut present: Vec<&Hold> = Vec::new();
        // The hold with the greatest token so far that alone held the lock, and of all.
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

    /// What a hold's own process saw of it.
    fn judge_signal(&mut self, lock: &str, hold: &Hold) {
        let process = &self.processes[hold.process];
        let mut found = Vec::new();
        let first = hold.void.into_iter().chain(hold.lost.as_ref().map(|(at, _)| *at)).min();
        if first.is_some_and(|first| first < hold.until) {
            let reason = hold.lost.as_ref().map_or("", |(_, reason)| reason);
            found.push(("lease_cut_short", format!("void={:?} {reason}", hold.void)));
        }
        if let Some(void) = hold.void {
            let told = hold.lost.as_ref().map_or(process.last, |(at, _)| *at);
            if told > void + SOON + process.stalled(void, told) {
                found.push(("lost_late", format!("void={void} lost={:?}", hold.lost)));
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
        // Who asks for one member of the multi-lock keeps others from all.
        let whole = |lock| if recipe(lock) == recipe(MULTI) { MULTI } else { lock };
        for call in self.calls.iter().filter(|call| call.mode.is_some()) {
            askers.entry(whole(&call.lock)).or_default().push((
                call.asked,
                call.process,
                &call.thread,
            ));
        }
        let mut found = Vec::new();
        let (mut taken, mut unavailable) = (0, 0);
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
            if let Some(within) = call.within
                && over - call.asked > within + NOISE + process.stalled(call.asked, over)
            {
                match call.end {
                    Some(_) => add("deadline", "returned"),
                    None => add("never_ended", "not returned at"),
                }
            }
            match &call.end {
                Some((at, End::Taken)) => {
                    taken += 1;
                    let mut others = askers[whole(&call.lock)].iter();
                    if !others.any(|(asked, process, thread)| {
                        asked < at && (*process, *thread) != (call.process, &*call.thread)
                    }) {
                        add("outage_as_contention", "nobody else had asked");
                    }
                }
                Some((at, End::Failed(Failure::Unavailable, text))) => {
                    unavailable += 1;
                    let is_calm =
                        self.calms.iter().any(|(from, to)| *from <= call.asked && at <= to);
                    let all = self.processes.iter();
                    let stalled: i64 =
                        all.map(|process| process.stalled(call.asked - SECOND, *at)).sum();
                    let is_too_short = call.within.is_some_and(|within| {
                        within < ANSWER || call.lock == MULTI && at - call.asked >= within
                    });
                    if is_calm && stalled <= STALL && !is_too_short {
                        add("error_in_calm", text);
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
    }

    /// What there has to be at the end.
    fn judge_ends(&mut self) {
        let Some(quiet) = self.quiet else {
            return self.found("broken_history", "the faults never ended".to_owned());
        };
        if !self.listed {
            self.found("broken_history", "the nodes at the end were not listed".to_owned());
        }
        // When each thread got its lock last.
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
                        "{}/{thread} got nothing after {quiet}, but at {last}",
                        process.name
                    );
                    found.push(("no_progress", what));
                }
            }
        }
        self.verdict.violations.extend(found);
    }
}

/// What a lock is: the first word of its path.
fn recipe(lock: &str) -> &str {
    lock.split(['/', '-']).find(|word| !word.is_empty()).unwrap_or(lock)
}
